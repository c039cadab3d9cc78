//! Merging small manifests, so that a table's ten-thousandth commit costs what its tenth did.
//!
//! Every append adds a manifest, and every commit rewrites the list of all of them. From time to time the small ones become
//! one: a snapshot of operation `replace` that adds and removes no row. It is not one of the pipeline's commits and carries
//! no commit id; whoever walks the lineage walks over it.
//!
//! Files keep their snapshot and sequence numbers, so deletes of other engines apply to them as before.

use std::collections::HashMap;

use iceberg::TableUpdate;
use iceberg::spec::{
    DataFile, FormatVersion, MAIN_BRANCH, ManifestContentType, ManifestFile, ManifestListWriter,
    ManifestWriterBuilder, Operation, Snapshot, SnapshotReference, SnapshotRetention, Summary,
};
use iceberg::table::Table;
use tracing::info;
use uuid::Uuid;

use super::Error;
use super::names::file_mark;
use super::raw::RawCommitter;

/// Small manifests at which merging is worth a snapshot.
pub const MERGE_AT: usize = 100;

/// Size of a full manifest, Iceberg's default (`commit.manifest.target-size-bytes`).
const FULL_BYTES: i64 = 8 * 1024 * 1024;

/// Summary key of snapshots that only maintain the table.
pub const MAINTENANCE: &str = "tidemark.maintenance";

/// Merges the small manifests of main when there are at least `merge_at`. `None` when there was nothing to do.
///
/// Tables of format version 3 are left alone: the client (`iceberg` 0.10.1) would draw new row ids.
///
/// # Errors
/// As [`commit`](super::commit::commit): a conflict means that a commit came first, which is no harm.
pub async fn merge_manifests(
    committer: &dyn RawCommitter,
    base: &Table,
    merge_at: usize,
    now_ms: i64,
) -> Result<Option<Table>, Error> {
    let metadata = base.metadata();
    let Some(newest) = metadata.current_snapshot() else {
        return Ok(None);
    };
    if metadata.format_version() != FormatVersion::V2 {
        return Ok(None);
    }
    let list = base.manifest_list_reader(newest).load().await;
    let list = list.map_err(|error| Error::file(newest.manifest_list(), "read", error))?;
    let spec_id = metadata.default_partition_spec_id();
    let (small, kept): (Vec<ManifestFile>, Vec<ManifestFile>) =
        list.entries().iter().cloned().partition(|manifest| {
            manifest.content == ManifestContentType::Data
                && manifest.partition_spec_id == spec_id
                && manifest.manifest_length < FULL_BYTES
        });
    if small.len() < merge_at.max(2) {
        return Ok(None);
    }
    let merge = Draft::new(base);
    let merged = merge.rewrite(&small).await?;
    let summary = merge.summary(small.len(), merged.len(), kept.len());
    let manifests = kept.into_iter().chain(merged).collect();
    let updates = merge.updates(manifests, summary, now_ms).await?;
    let table = committer.update(base, merge.id, updates).await?;
    info!(table = %base.identifier(), manifests = small.len(), "manifests merged");
    Ok(Some(table))
}

/// A snapshot in the making, on a base.
pub(super) struct Draft<'a> {
    base: &'a Table,
    pub(super) id: Uuid,
    snapshot_id: i64,
}

impl<'a> Draft<'a> {
    pub(super) fn new(base: &'a Table) -> Self {
        let id = file_mark();
        let mut snapshot_id = 0;
        while snapshot_id == 0 || base.metadata().snapshot_by_id(snapshot_id).is_some() {
            snapshot_id = fastrand::i64(1..);
        }
        Self {
            base,
            id,
            snapshot_id,
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/metadata/{name}.avro", self.base.metadata().location())
    }

    async fn rewrite(&self, small: &[ManifestFile]) -> Result<Vec<ManifestFile>, Error> {
        let mut merged = Vec::new();
        let mut rest = small;
        while !rest.is_empty() {
            let mut bytes = 0;
            let count = rest
                .iter()
                .take_while(|manifest| {
                    bytes += manifest.manifest_length;
                    bytes <= FULL_BYTES
                })
                .count()
                .max(1);
            let (bin, after) = rest.split_at(count);
            merged.push(self.rewrite_bin(bin, merged.len()).await?);
            rest = after;
        }
        Ok(merged)
    }

    async fn rewrite_bin(
        &self,
        bin: &[ManifestFile],
        number: usize,
    ) -> Result<ManifestFile, Error> {
        let io = self.base.file_io();
        let metadata = self.base.metadata();
        let path = self.path(&format!("{}-m{number}", self.id));
        let failed = |error| Error::file(&path, "written", error);
        let mut writer = ManifestWriterBuilder::new(
            io.new_output(&path).map_err(failed)?,
            Some(self.snapshot_id),
            metadata.current_schema().clone(),
            metadata.default_partition_spec().as_ref().clone(),
        )
        .build_v2_data();
        for manifest in bin {
            let loaded = manifest.load_manifest(io).await;
            let loaded =
                loaded.map_err(|error| Error::file(&manifest.manifest_path, "read", error))?;
            for entry in loaded.entries().iter().filter(|entry| entry.is_alive()) {
                let sequence_number = entry.sequence_number().unwrap_or(manifest.sequence_number);
                writer
                    .add_existing_file(
                        entry.data_file().clone(),
                        entry.snapshot_id().unwrap_or(manifest.added_snapshot_id),
                        sequence_number,
                        entry.file_sequence_number.or(Some(sequence_number)),
                    )
                    .map_err(failed)?;
            }
        }
        writer.write_manifest_file().await.map_err(failed)
    }

    /// A manifest of new files.
    pub(super) async fn write_added(&self, files: &[DataFile]) -> iceberg::Result<ManifestFile> {
        let metadata = self.base.metadata();
        let path = self.path(&format!("{}-m0", self.id));
        let mut writer = ManifestWriterBuilder::new(
            self.base.file_io().new_output(path)?,
            Some(self.snapshot_id),
            metadata.current_schema().clone(),
            metadata.default_partition_spec().as_ref().clone(),
        )
        .build_v2_data();
        for file in files {
            // Below zero: inherited from the snapshot.
            writer.add_file(file.clone(), -1)?;
        }
        writer.write_manifest_file().await
    }

    fn summary(&self, replaced: usize, created: usize, kept: usize) -> Summary {
        let newest = self.base.metadata().current_snapshot();
        // Totals go on as they are: no file comes or goes.
        let mut properties: HashMap<String, String> = newest
            .iter()
            .flat_map(|newest| &newest.summary().additional_properties)
            .filter(|(key, _)| key.starts_with("total-"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        for (key, count) in [
            ("manifests-created", created),
            ("manifests-kept", kept),
            ("manifests-replaced", replaced),
        ] {
            properties.insert(key.to_owned(), count.to_string());
        }
        properties.insert(MAINTENANCE.to_owned(), "manifests".to_owned());
        Summary {
            operation: Operation::Replace,
            additional_properties: properties,
        }
    }

    /// Writes the manifest list; what makes it main's newest snapshot.
    pub(super) async fn updates(
        &self,
        manifests: Vec<ManifestFile>,
        summary: Summary,
        now_ms: i64,
    ) -> Result<Vec<TableUpdate>, Error> {
        let metadata = self.base.metadata();
        let path = self.path(&format!("snap-{}-0-{}", self.snapshot_id, self.id));
        let sequence_number = metadata.next_sequence_number();
        let write = async {
            let output = self.base.file_io().new_output(&path)?.writer().await?;
            let parent_id = metadata.current_snapshot_id();
            let mut list =
                ManifestListWriter::v2(output, self.snapshot_id, parent_id, sequence_number);
            list.add_manifests(manifests.into_iter())?;
            list.close().await
        };
        write
            .await
            .map_err(|error: iceberg::Error| Error::file(&path, "written", error))?;
        let snapshot = Snapshot::builder()
            .with_manifest_list(path)
            .with_snapshot_id(self.snapshot_id)
            .with_parent_snapshot_id(metadata.current_snapshot_id())
            .with_sequence_number(sequence_number)
            .with_summary(summary)
            .with_schema_id(metadata.current_schema_id())
            // A clock behind the table's newest change would be refused.
            .with_timestamp_ms(now_ms.max(metadata.last_updated_ms()))
            .build();
        Ok(vec![
            TableUpdate::AddSnapshot { snapshot },
            TableUpdate::SetSnapshotRef {
                ref_name: MAIN_BRANCH.to_owned(),
                reference: SnapshotReference::new(
                    self.snapshot_id,
                    SnapshotRetention::branch(None, None, None),
                ),
            },
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalog;
    use super::super::fixture::{self, add_row, ident, lake, read_ids};
    use super::super::raw::open_raw;
    use super::*;

    async fn rows(lake: &fixture::Lake, count: i64) -> Table {
        fixture::table(lake.catalog.as_ref()).await;
        for id in 0..count {
            add_row(lake.catalog.as_ref(), id).await;
        }
        catalog::load(lake.catalog.as_ref(), &ident())
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn few_manifests_are_left_alone() {
        let lake = lake().await;
        let committer = open_raw(&lake.settings).await.unwrap();
        let empty = fixture::table(lake.catalog.as_ref()).await;
        assert!(
            merge_manifests(committer.as_ref(), &empty, 2, 0)
                .await
                .unwrap()
                .is_none()
        );
        let table = rows(&lake, 3).await;
        assert!(
            merge_manifests(committer.as_ref(), &table, 4, 0)
                .await
                .unwrap()
                .is_none()
        );
    }

    /// Numbers decide which deletes of other engines apply to a file.
    #[tokio::test]
    async fn files_keep_their_snapshot_and_sequence_numbers() {
        let lake = lake().await;
        let table = rows(&lake, 3).await;
        let committer = open_raw(&lake.settings).await.unwrap();
        let merged = merge_manifests(committer.as_ref(), &table, 2, 0)
            .await
            .unwrap()
            .unwrap();
        let newest = merged.metadata().current_snapshot().unwrap();
        let list = merged.manifest_list_reader(newest).load().await.unwrap();
        let manifest = &list.entries()[0];
        assert_eq!(
            (manifest.sequence_number, manifest.min_sequence_number),
            (4, 1)
        );
        let loaded = manifest.load_manifest(merged.file_io()).await.unwrap();
        let mut numbers: Vec<(Option<i64>, Option<i64>)> = loaded
            .entries()
            .iter()
            .map(|entry| (entry.sequence_number(), entry.file_sequence_number))
            .collect();
        numbers.sort_unstable();
        assert_eq!(
            numbers,
            [(Some(1), Some(1)), (Some(2), Some(2)), (Some(3), Some(3))]
        );
        let reloaded = catalog::load(lake.catalog.as_ref(), &ident())
            .await
            .unwrap();
        assert_eq!(
            reloaded.metadata(),
            merged.metadata(),
            "the answer is the table"
        );
        assert_eq!(read_ids(&reloaded).await, [0, 1, 2]);
    }

    #[tokio::test]
    async fn a_commit_that_came_first_wins_over_a_merge() {
        let lake = lake().await;
        let stale = rows(&lake, 3).await;
        add_row(lake.catalog.as_ref(), 3).await;
        let committer = open_raw(&lake.settings).await.unwrap();
        let error = merge_manifests(committer.as_ref(), &stale, 2, 0)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
        let table = catalog::load(lake.catalog.as_ref(), &ident())
            .await
            .unwrap();
        assert_eq!(read_ids(&table).await, [0, 1, 2, 3]);
    }

    /// An append that was derived before the merge must not land beside it.
    #[tokio::test]
    async fn a_merge_makes_an_older_base_stale() {
        let lake = lake().await;
        let base = rows(&lake, 3).await;
        let committer = open_raw(&lake.settings).await.unwrap();
        merge_manifests(committer.as_ref(), &base, 2, 0)
            .await
            .unwrap()
            .unwrap();
        let append = fixture::append(&base, 9..10).await;
        let error = super::super::commit::commit(lake.catalog.as_ref(), &base, &append)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
    }
}
