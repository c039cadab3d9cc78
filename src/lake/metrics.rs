//! Parquet's footer as Iceberg's description of a data file.
//!
//! Counts, sizes and bounds by field id, from the statistics of all row groups. Bounds of strings and bytes are shortened to
//! 16 characters or bytes: a prefix below, an incremented prefix above.
//!
//! A bound is never tighter than the values: a row group without statistics takes the column's bounds away, instead of being
//! left out as in the client's own writer (`iceberg` 0.10.1), after which engines skip files that hold the rows looked for.

use std::collections::{HashMap, HashSet};

use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, PrimitiveLiteral,
    PrimitiveType, Schema, Struct, Type,
};
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

/// Characters of a string bound, bytes of a binary one: the default of Iceberg's `truncate(16)` metrics mode.
const BOUND_LENGTH: usize = 16;

/// A finished file and where it belongs.
pub(super) struct Finished<'a> {
    pub(super) path: String,
    pub(super) size_bytes: u64,
    pub(super) parquet: &'a ParquetMetaData,
    pub(super) partition: Struct,
    pub(super) partition_spec_id: i32,
}

#[derive(Default)]
struct Columns {
    sizes: HashMap<i32, u64>,
    values: HashMap<i32, u64>,
    nulls: HashMap<i32, u64>,
    lower: HashMap<i32, Datum>,
    upper: HashMap<i32, Datum>,
    unbounded: HashSet<i32>,
}

/// Describes the file.
pub(super) fn data_file(schema: &Schema, file: Finished<'_>) -> Result<DataFile, String> {
    let mut columns = Columns::default();
    for row_group in file.parquet.row_groups() {
        for chunk in row_group.columns() {
            columns.add(schema, chunk);
        }
    }
    columns.shorten();
    let offsets = file
        .parquet
        .row_groups()
        .iter()
        .filter_map(parquet::file::metadata::RowGroupMetaData::file_offset)
        .collect();
    let rows = file.parquet.file_metadata().num_rows();
    DataFileBuilder::default()
        .content(DataContentType::Data)
        .file_path(file.path)
        .file_format(DataFileFormat::Parquet)
        .partition(file.partition)
        .partition_spec_id(file.partition_spec_id)
        .record_count(rows.unsigned_abs())
        .file_size_in_bytes(file.size_bytes)
        .column_sizes(columns.sizes)
        .value_counts(columns.values)
        .null_value_counts(columns.nulls)
        .lower_bounds(columns.lower)
        .upper_bounds(columns.upper)
        .split_offsets(Some(offsets))
        .build()
        .map_err(|error| error.to_string())
}

impl Columns {
    fn add(&mut self, schema: &Schema, chunk: &ColumnChunkMetaData) {
        let descriptor = chunk.column_descr();
        let info = descriptor.self_type().get_basic_info();
        if !info.has_id() {
            return;
        }
        let id = info.id();
        *self.sizes.entry(id).or_default() += chunk.compressed_size().unsigned_abs();
        *self.values.entry(id).or_default() += chunk.num_values().unsigned_abs();
        // Values inside lists and maps are counted, not bounded, as in Java.
        if descriptor.max_rep_level() > 0 {
            return;
        }
        let nulls = chunk
            .statistics()
            .and_then(parquet::file::statistics::Statistics::null_count_opt);
        if let Some(nulls) = nulls {
            *self.nulls.entry(id).or_default() += nulls;
            if nulls == chunk.num_values().unsigned_abs() {
                return;
            }
        }
        match bounds(schema, id, chunk) {
            Some((least, greatest)) => self.widen(id, least, greatest),
            None => {
                self.unbounded.insert(id);
            }
        }
    }

    fn widen(&mut self, id: i32, least: Datum, greatest: Datum) {
        let lower = self.lower.entry(id).or_insert_with(|| least.clone());
        if least < *lower {
            *lower = least;
        }
        let upper = self.upper.entry(id).or_insert_with(|| greatest.clone());
        if greatest > *upper {
            *upper = greatest;
        }
    }

    fn shorten(&mut self) {
        let unbounded = &self.unbounded;
        self.lower.retain(|id, _| !unbounded.contains(id));
        self.upper.retain(|id, _| !unbounded.contains(id));
        for bound in self.lower.values_mut() {
            if let Some(short) = prefix(bound) {
                *bound = short;
            }
        }
        let upper = std::mem::take(&mut self.upper);
        self.upper = upper
            .into_iter()
            .filter_map(|(id, bound)| incremented_prefix(bound).map(|bound| (id, bound)))
            .collect();
    }
}

fn bounds(schema: &Schema, id: i32, chunk: &ColumnChunkMetaData) -> Option<(Datum, Datum)> {
    let Type::Primitive(column_type) = schema.field_by_id(id)?.field_type.as_ref() else {
        return None;
    };
    let statistics = chunk.statistics()?;
    let least = datum(
        column_type,
        chunk.column_type(),
        statistics.min_bytes_opt()?,
    )?;
    let greatest = datum(
        column_type,
        chunk.column_type(),
        statistics.max_bytes_opt()?,
    )?;
    Some((least, greatest))
}

/// Parquet's bytes of a value are Iceberg's, but for decimals kept as integers: those are big-endian there.
fn datum(column_type: &PrimitiveType, physical: PhysicalType, bytes: &[u8]) -> Option<Datum> {
    let integer = matches!(physical, PhysicalType::INT32 | PhysicalType::INT64);
    if matches!(column_type, PrimitiveType::Decimal { .. }) && integer {
        let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
        return Datum::try_from_bytes(&reversed, column_type.clone()).ok();
    }
    Datum::try_from_bytes(bytes, column_type.clone()).ok()
}

fn prefix(bound: &Datum) -> Option<Datum> {
    match bound.literal() {
        PrimitiveLiteral::String(text) => {
            let (end, _) = text.char_indices().nth(BOUND_LENGTH)?;
            Some(Datum::string(&text[..end]))
        }
        PrimitiveLiteral::Binary(bytes) if is_binary(bound) && bytes.len() > BOUND_LENGTH => {
            Some(Datum::binary(bytes[..BOUND_LENGTH].iter().copied()))
        }
        _ => None,
    }
}

/// The least value of at most 16 characters that is not below the bound; `None` when there is none.
fn incremented_prefix(bound: Datum) -> Option<Datum> {
    match bound.literal() {
        PrimitiveLiteral::String(text) => {
            let Some((end, _)) = text.char_indices().nth(BOUND_LENGTH) else {
                return Some(bound);
            };
            let mut characters: Vec<char> = text[..end].chars().collect();
            while let Some(last) = characters.pop() {
                if let Some(next) = next_character(last) {
                    characters.push(next);
                    return Some(Datum::string(characters.into_iter().collect::<String>()));
                }
            }
            None
        }
        PrimitiveLiteral::Binary(bytes) if is_binary(&bound) && bytes.len() > BOUND_LENGTH => {
            let mut bytes = bytes[..BOUND_LENGTH].to_vec();
            while let Some(last) = bytes.pop() {
                if let Some(next) = last.checked_add(1) {
                    bytes.push(next);
                    return Some(Datum::binary(bytes));
                }
            }
            None
        }
        _ => Some(bound),
    }
}

fn next_character(character: char) -> Option<char> {
    // The surrogates are no characters: the one after U+D7FF is U+E000.
    match u32::from(character).checked_add(1)? {
        0xD800 => Some('\u{E000}'),
        next => char::from_u32(next),
    }
}

fn is_binary(bound: &Datum) -> bool {
    matches!(bound.data_type(), PrimitiveType::Binary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_strings_are_bounded_by_a_prefix_and_an_incremented_prefix() {
        let text = "abcdefghijklmnopqrstuvwxyz";
        let bound = Datum::string(text);
        assert_eq!(prefix(&bound), Some(Datum::string("abcdefghijklmnop")));
        assert_eq!(
            incremented_prefix(bound),
            Some(Datum::string("abcdefghijklmnoq"))
        );
    }

    #[test]
    fn short_strings_are_their_own_bound() {
        let bound = Datum::string("abcdefghijklmnop");
        assert_eq!(prefix(&bound), None);
        assert_eq!(incremented_prefix(bound.clone()), Some(bound));
    }

    #[test]
    fn a_last_character_that_cannot_grow_carries_into_the_one_before() {
        let text = format!("a{}", "\u{10FFFF}".repeat(20));
        assert_eq!(
            incremented_prefix(Datum::string(text)),
            Some(Datum::string("b"))
        );
        let greatest = "\u{10FFFF}".repeat(20);
        assert_eq!(incremented_prefix(Datum::string(greatest)), None);
        assert_eq!(next_character('\u{D7FF}'), Some('\u{E000}'));
    }

    #[test]
    fn bytes_are_cut_by_bytes() {
        let bound = Datum::binary([[7u8; 15].as_slice(), &[255, 1, 2]].concat());
        assert_eq!(
            prefix(&bound),
            Some(Datum::binary([[7u8; 15].as_slice(), &[255]].concat()))
        );
        assert_eq!(
            incremented_prefix(bound),
            Some(Datum::binary([[7u8; 14].as_slice(), &[8]].concat()))
        );
    }

    #[test]
    fn decimals_kept_as_integers_are_read_as_such() {
        let column_type = PrimitiveType::Decimal {
            precision: 9,
            scale: 2,
        };
        let stored = datum(
            &column_type,
            PhysicalType::INT32,
            &(-12345i32).to_le_bytes(),
        );
        let literal = stored.map(|datum| datum.literal().clone());
        assert_eq!(literal, Some(PrimitiveLiteral::Int128(-12345)));
    }
}
