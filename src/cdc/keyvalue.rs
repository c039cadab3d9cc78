//! Plain JSON from key-value stores: fields of key and value are columns, a null value is a delete.
//!
//! The record's key is a JSON object of key columns, or a raw string or number for the one key column; it wins over the same field in
//! the value. A field that is absent is null. The position is the offset: a key stays in its partition.

use std::sync::Arc;

use super::batch::{Absent, Change, EventTime, NO_TIME, Op, Rows, Snapshot};
use super::event_time::EventTimes;
use super::image::Image;
use super::scan::{Scan, Text};
use super::schema::{RowSchema, SchemaFault};
use super::{Bad, Decoded, Decoder, EventTimeFrom, Fault, Record, UnknownFields};

/// Decodes plain JSON into the rows of one table.
pub struct KeyValue {
    schema: Arc<RowSchema>,
    event_times: EventTimes,
    key: Image,
    value: Image,
    unescaped: String,
    source_id: String,
}

impl KeyValue {
    /// A decoder for rows of `schema`.
    ///
    /// # Errors
    /// `NoSourceCommit`: the format has no commit time.
    pub fn new(
        schema: &Arc<RowSchema>,
        event_time: EventTimeFrom,
    ) -> Result<KeyValue, SchemaFault> {
        if event_time == EventTimeFrom::SourceCommit {
            return Err(SchemaFault::NoSourceCommit);
        }
        let event_times = EventTimes::new(event_time, schema);
        Ok(KeyValue {
            schema: Arc::clone(schema),
            key: Image::new(schema, None, ""),
            value: Image::new(schema, event_times.field(), ""),
            event_times,
            unescaped: String::new(),
            source_id: String::new(),
        })
    }
}

impl Decoder for KeyValue {
    fn decode(&mut self, record: &Record<'_>, rows: &mut Rows) -> Result<Decoded, Fault> {
        assert!(
            Arc::ptr_eq(&self.schema, rows.schema()),
            "decoder and rows are of one schema"
        );
        let first = rows.len();
        self.row(record, rows)
            .map(|()| Decoded::Rows(1))
            .map_err(|bad| {
                rows.roll_back_to(first);
                bad.into_fault(&self.schema)
            })
    }

    fn take_unknown(&mut self) -> UnknownFields {
        let mut fields = UnknownFields::default();
        self.value.report(&mut fields);
        self.key.report(&mut fields);
        fields
    }
}

impl KeyValue {
    fn row(&mut self, record: &Record<'_>, rows: &mut Rows) -> Result<(), Bad> {
        match record.key {
            Some(key) => self.key(key, record.value.is_some(), rows)?,
            None if record.value.is_none() => return Err(Bad::Empty),
            None => {}
        }
        self.value.forget();
        if let Some(value) = record.value {
            let mut scan = Scan::new(value, &mut self.unescaped);
            self.value.fill_rest(&mut scan, rows)?;
            scan.end()?;
        }
        if self.source_id.strip_prefix("kafka/") != Some(record.topic) {
            self.source_id = format!("kafka/{}", record.topic);
        }
        let image = (&self.value, &*self.schema, record.value.unwrap_or_default());
        let change = Change {
            op: if record.value.is_some() {
                Op::Update
            } else {
                Op::Delete
            },
            event_time: self.event_times.of(record, image, || EventTime::Missing),
            commit_time_us: NO_TIME,
            position: record.offset,
            sub: 0,
            source: rows.source(&self.source_id),
            snapshot: Snapshot::Streamed,
        };
        rows.close(record, &change, Absent::Null)
    }

    /// Fills the key columns. Without any, the key is needed only where there is no value.
    fn key(&mut self, key: &[u8], has_value: bool, rows: &mut Rows) -> Result<(), Bad> {
        let mut scan = Scan::new(key, &mut self.unescaped);
        match (scan.token(), self.schema.key()) {
            (b'{', _) => {
                self.key.fill(&mut scan, rows)?;
                scan.end()
            }
            (b'"', [c]) => {
                let text = scan.text()?;
                scan.end()?;
                match text {
                    Text::Plain(from, to) => rows.text(*c, key, from, to),
                    Text::Unescaped => {
                        rows.text(*c, scan.unescaped.as_bytes(), 0, scan.unescaped.len())
                    }
                }
            }
            (_, [c]) => {
                let text = std::str::from_utf8(key).map_err(|_| Bad::Utf8(0))?;
                rows.text(*c, text.as_bytes(), 0, text.len())
            }
            (_, []) if has_value => Ok(()),
            _ => Err(Bad::Key),
        }
    }
}
