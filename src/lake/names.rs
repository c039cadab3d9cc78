//! The names of the files that this house writes, so that it deletes no other's.
//!
//! Iceberg's own names are UUIDs; ours are UUIDs with a mark that no other writer draws. A data file's name also says for
//! which table it was written: two tables may share a folder, and a table that was dropped may live on under another name.

use iceberg::spec::TableMetadata;
use uuid::Uuid;

/// Bytes 6 and 7 of the ids in the names of this house's manifests and manifest lists: version 8 ("custom") and a mark, so
/// that no other writer draws one.
const MARK: [u8; 2] = [0x87, 0xde];

/// An id for the names of one attempt's metadata files or of one writer's data files, with this house's mark. Never used
/// twice: a retry under the same name would overwrite a file that may be committed.
pub(super) fn file_mark() -> Uuid {
    let mut bytes = Uuid::now_v7().into_bytes();
    bytes[6..8].copy_from_slice(&MARK);
    Uuid::from_bytes(bytes)
}

/// Where the data files of a table go: `write.data.path`, else `data` below its location.
pub(super) fn data_folder(metadata: &TableMetadata) -> String {
    metadata.properties().get("write.data.path").map_or_else(
        || format!("{}/data", metadata.location().trim_end_matches('/')),
        |path| path.trim_end_matches('/').to_owned(),
    )
}

/// One data file of one table, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DataFileName {
    /// The writer's id, from [`file_mark`].
    pub(super) writer: Uuid,
    /// Its number among the writer's files.
    pub(super) number: u64,
}

impl DataFileName {
    /// `<writer>-<table>-<number>.parquet`; of the table's UUID the last eight digits, which are random in all versions.
    pub(super) fn write(self, table: Uuid) -> String {
        let Self { writer, number } = self;
        format!("{writer}-{}-{number:05}.parquet", digits(table))
    }

    /// Reads a name; `None` where another writer wrote the file, or it was written for another table.
    pub(super) fn read(name: &str, table: Uuid) -> Option<Self> {
        let stem = name.strip_suffix(".parquet")?;
        let (writer, rest) = stem.split_at_checked(36)?;
        let (of_table, number) = rest.strip_prefix('-')?.split_once('-')?;
        let writer = Uuid::try_parse(writer).ok().filter(is_marked)?;
        let number = number.parse().ok()?;
        let read = Self { writer, number };
        // Only what is written so again: a name is read in one way.
        (of_table == digits(table) && read.write(table) == name).then_some(read)
    }
}

fn digits(table: Uuid) -> String {
    format!("{:08x}", table.as_u128() & 0xffff_ffff)
}

fn is_marked(id: &Uuid) -> bool {
    id.as_bytes()[6..8] == MARK
}

/// The last part of a path.
pub(super) fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a file of the metadata folder is a manifest and no manifest list.
pub(super) fn is_manifest(name: &str) -> bool {
    name.strip_suffix(".avro")
        .is_some_and(|stem| !stem.starts_with("snap-"))
}

/// Whether a file of the metadata folder is this house's: `snap-<id>-<attempt>-<mark>.avro`, `<mark>-m<n>.avro`, and where they are ours `<version>-<uuid>.metadata.json`.
pub(super) fn is_our_metadata(name: &str, metadata_files: bool) -> bool {
    if let Some(stem) = name.strip_suffix(".avro") {
        let id = match stem.strip_prefix("snap-") {
            Some(_) => stem
                .len()
                .checked_sub(36)
                .and_then(|start| stem.get(start..)),
            None => stem.rsplit_once("-m").map(|(id, _)| id),
        };
        return id
            .and_then(|id| Uuid::parse_str(id).ok())
            .is_some_and(|id| is_marked(&id));
    }
    let Some(stem) = name.strip_suffix(".metadata.json") else {
        return false;
    };
    let stem = stem.strip_suffix(".gz").unwrap_or(stem);
    metadata_files
        && stem.split_once('-').is_some_and(|(version, id)| {
            version.parse::<u32>().is_ok() && Uuid::parse_str(id).is_ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_the_mark_are_ours() {
        let mark = file_mark();
        assert_eq!(mark.get_version_num(), 8);
        assert!(is_our_metadata(&format!("{mark}-m0.avro"), false));
        assert!(is_our_metadata(&format!("snap-123-0-{mark}.avro"), false));
        let other = Uuid::now_v7();
        assert!(!is_our_metadata(&format!("{other}-m0.avro"), true));
        assert!(!is_our_metadata(&format!("snap-123-0-{other}.avro"), true));
        assert!(!is_our_metadata("snap-1.avro", true));
        assert!(!is_our_metadata("20260101-stats.puffin", true));
        let metadata = format!("00012-{other}.metadata.json");
        assert!(is_our_metadata(&metadata, true) && !is_our_metadata(&metadata, false));
        assert!(
            !is_our_metadata("v3.metadata.json", true),
            "Hadoop tables are not ours"
        );
    }

    #[test]
    fn name_of_a_data_file_is_read_only_for_its_table() {
        let (table, other) = (
            Uuid::from_u128(0x1_2345_6789),
            Uuid::from_u128(0x2_2345_6780),
        );
        let name = DataFileName {
            writer: file_mark(),
            number: 7,
        };
        let written = name.write(table);
        assert!(written.ends_with("-23456789-00007.parquet"), "{written}");
        assert_eq!(DataFileName::read(&written, table), Some(name));
        assert_eq!(DataFileName::read(&written, other), None);
        let far = DataFileName {
            number: 1_234_567,
            ..name
        };
        assert_eq!(DataFileName::read(&far.write(table), table), Some(far));
    }

    /// Whatever is not exactly ours is somebody else's.
    #[test]
    fn names_of_other_writers_are_not_read() {
        let (table, mark, plain) = (Uuid::nil(), file_mark(), Uuid::now_v7());
        for name in [
            format!("{plain}-00000000-00001.parquet"),
            format!("{mark}-00001.parquet"),
            format!("{mark}-00000000-1.parquet"),
            format!("{mark}-00000000-+0001.parquet"),
            format!("{mark}-00000000-00001.parquet.crc"),
            format!("{}-00000000-00001.parquet", mark.simple()),
            format!("00000-1-{plain}-0-00001.parquet"),
            "ääääääääääääääääääääääääääääääääääää-.parquet".to_owned(),
            String::new(),
        ] {
            assert_eq!(DataFileName::read(&name, table), None, "{name}");
        }
    }
}
