//! For the tests of this room: a table, a topic that is decoded into it, and its rows as text.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use arrow::util::display::array_value_to_string;

use super::{
    Decoded, Decoder, Encoding, Fault, Kind, Record, RowSchema, RowSettings, Rows, metadata_columns,
};

/// A table of optional columns and the metadata under `_cdc_`.
pub(super) fn table(
    columns: &[(&str, Kind)],
    key: &[&str],
    encodings: &[(&str, Encoding)],
) -> Arc<RowSchema> {
    let field =
        |(name, kind): &(&str, Kind)| Field::new(*name, kind.data_type(), !key.contains(name));
    let metadata = metadata_columns("_cdc_").into_iter();
    let metadata =
        metadata.map(|column| Field::new(column.name, column.kind.data_type(), !column.required));
    let schema = Schema::new(
        columns
            .iter()
            .map(field)
            .chain(metadata)
            .collect::<Vec<_>>(),
    );
    let key: Vec<String> = key.iter().map(ToString::to_string).collect();
    let encodings = encodings
        .iter()
        .map(|(name, encoding)| (name.to_string(), *encoding))
        .collect();
    let settings = RowSettings {
        metadata_prefix: "_cdc_",
        key: &key,
        encodings: Some(&encodings),
    };
    RowSchema::new(Arc::new(schema), settings).expect("a good table")
}

/// A topic with one partition and who decodes it.
pub(super) struct Topic<D> {
    pub(super) decoder: D,
    pub(super) rows: Rows,
    next_offset: i64,
}

impl<D: Decoder> Topic<D> {
    pub(super) fn new(schema: &Arc<RowSchema>, decoder: D) -> Topic<D> {
        Topic {
            decoder,
            rows: Rows::new(schema, 4),
            next_offset: 0,
        }
    }

    /// Decodes a record at the next offset, a second after the one before.
    pub(super) fn send(
        &mut self,
        key: Option<&str>,
        value: Option<&[u8]>,
    ) -> Result<Decoded, Fault> {
        self.send_with(key, value, &[])
    }

    pub(super) fn send_with(
        &mut self,
        key: Option<&str>,
        value: Option<&[u8]>,
        headers: &[(&str, &[u8])],
    ) -> Result<Decoded, Fault> {
        let record = Record {
            topic: "shop.orders",
            partition: 3,
            offset: self.next_offset,
            timestamp_us: Some(1_796_032_800_000_000 + self.next_offset * 1_000_000),
            ingested_at_us: 1_796_032_900_000_000,
            key: key.map(str::as_bytes),
            value,
            headers: &Pairs(headers),
        };
        self.next_offset += 1;
        self.decoder.decode(&record, &mut self.rows)
    }

    /// The rows so far, with these columns.
    pub(super) fn take(&mut self, columns: &[&str]) -> Vec<Vec<String>> {
        let batch = self.rows.finish();
        (0..batch.num_rows())
            .map(|row| {
                columns
                    .iter()
                    .map(|column| cell(&batch, column, row))
                    .collect()
            })
            .collect()
    }
}

struct Pairs<'a>(&'a [(&'a str, &'a [u8])]);

impl super::Headers for Pairs<'_> {
    fn last(&self, name: &str) -> Option<&[u8]> {
        super::Headers::last(self.0, name)
    }
}

/// A value as text; `∅` is null.
pub(super) fn cell(batch: &RecordBatch, column: &str, row: usize) -> String {
    let array = batch.column_by_name(column).expect("a column of the table");
    if array.is_null(row) {
        "∅".to_owned()
    } else {
        array_value_to_string(array, row).expect("a type that prints")
    }
}
