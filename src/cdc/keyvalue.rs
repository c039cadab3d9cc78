//! Plain JSON from key-value stores: fields of key and value are columns, a null value is a delete.
//!
//! The record's key is a JSON object of key columns, or a raw string or number for the one key column; it wins over the same field in
//! the value. A field that is absent is null. The position is the offset: a key stays in its partition.

use std::sync::Arc;

use super::batch::Rows;
use super::event_time::EventTimes;
use super::facts::{Absent, Change, EventTime, NO_TIME, Op, Snapshot};
use super::image::Image;
use super::scan::{Scan, Text};
use super::schema::{RowSchema, SchemaFault};
use super::{Bad, Decoded, Decoder, EventTimeFrom, Fault, Format, Record, UnknownFields, decode};

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
        decode(self, record, rows)
    }

    fn take_unknown(&mut self) -> UnknownFields {
        let mut fields = UnknownFields::default();
        self.value.report(&mut fields);
        self.key.report(&mut fields);
        fields
    }
}

impl Format for KeyValue {
    fn schema(&self) -> &Arc<RowSchema> {
        &self.schema
    }

    fn take(&mut self, record: &Record<'_>, rows: &mut Rows) -> Result<Decoded, Bad> {
        self.row(record, rows).map(|()| Decoded::Rows(1))
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

#[cfg(test)]
mod tests {
    use super::super::testing::{Topic, table};
    use super::super::{Encoding, Kind};
    use super::*;

    const COLUMNS: [&str; 5] = ["_cdc_op", "user", "region", "score", "seen"];

    fn topic(key: &[&str], event_time: EventTimeFrom) -> Topic<KeyValue> {
        let columns = [
            ("user", Kind::String),
            ("region", Kind::Int),
            ("score", Kind::Double),
            ("seen", Kind::Timestamptz),
        ];
        let schema = table(&columns, key, &[("seen", Encoding::Millis)]);
        Topic::new(&schema, KeyValue::new(&schema, event_time).unwrap())
    }

    /// Fields of key and value are columns; what the value does not have is null, not left out.
    #[test]
    fn key_and_value_make_one_row() {
        let mut topic = topic(
            &["user", "region"],
            EventTimeFrom::Column("seen".to_owned()),
        );
        let key = Some(r#"{"region": 4, "user": "a"}"#);
        topic
            .send(
                key,
                Some(br#"{"score": 1.5, "seen": 1796032800000, "user": "not the key's"}"#),
            )
            .unwrap();
        topic.send(key, Some(b"{}")).unwrap();
        topic.send(key, None).unwrap();
        topic
            .send(None, Some(br#"{"region":5,"user":"b","score":2}"#))
            .unwrap();
        let facts = topic.rows.facts();
        assert_eq!(
            (facts[0].event_time_us, facts[0].position, facts[0].sub),
            (1_796_032_800_000_000, 0, 0)
        );
        assert_eq!(
            (facts[2].event_time_us, facts[2].position, facts[2].op),
            (NO_TIME, 2, Op::Delete)
        );
        assert_eq!(topic.rows.sources(), ["kafka/shop.orders".into()]);
        assert_eq!(
            topic.take(&COLUMNS),
            [
                ["u", "a", "4", "1.5", "2026-11-30T10:00:00Z"],
                ["u", "a", "4", "∅", "∅"],
                ["d", "a", "4", "∅", "∅"],
                ["u", "b", "5", "2.0", "∅"],
            ]
        );
    }

    /// A key that is no object belongs to the one key column.
    #[test]
    fn a_raw_key_fills_the_key_column() {
        let mut text = topic(&["user"], EventTimeFrom::RecordTimestamp);
        for key in [
            "plain",
            "\"quoted \\u00e9\"",
            "12",
            "",
            "žluťoučký kůň je dlouhý klíč",
        ] {
            text.send(Some(key), Some(b"{\"score\":1}")).unwrap();
        }
        let users: Vec<String> = text.take(&["user"]).concat();
        assert_eq!(
            users,
            [
                "plain",
                "quoted é",
                "12",
                "",
                "žluťoučký kůň je dlouhý klíč"
            ]
        );
        let mut number = topic(&["region"], EventTimeFrom::RecordTimestamp);
        number.send(Some("42"), None).unwrap();
        assert!(matches!(
            number.send(Some("x"), None),
            Err(Fault::Type { .. })
        ));
        assert_eq!(
            number.take(&["_cdc_op", "region", "_cdc_event_time"]),
            [["d", "42", "2026-11-30T10:00:00Z"]]
        );
    }

    /// A row without its key cannot be merged: it is refused, and its neighbours stay.
    #[test]
    fn a_record_without_its_key_is_refused() {
        let mut topic = topic(&["user", "region"], EventTimeFrom::RecordTimestamp);
        let key = Some(r#"{"user":"a","region":1}"#);
        topic.send(key, Some(b"{}")).unwrap();
        assert_eq!(topic.send(None, None), Err(Fault::Empty));
        assert_eq!(
            topic.send(Some("a"), Some(b"{}")),
            Err(Fault::Key { key_columns: 2 })
        );
        assert_eq!(
            topic.send(Some(r#"{"user":"a"}"#), None),
            Err(Fault::Required {
                column: "region".to_owned()
            })
        );
        assert!(matches!(
            topic.send(key, Some(b"[]")),
            Err(Fault::Syntax { at: 0 })
        ));
        assert!(matches!(
            topic.send(Some(r#"{"user":"a"} x"#), None),
            Err(Fault::Syntax { at: 13 })
        ));
        assert_eq!(
            topic.send(key, Some(br#"{"score":1,"score":2}"#)),
            Err(Fault::Duplicate {
                column: "score".to_owned()
            })
        );
        topic.send(key, None).unwrap();
        assert_eq!(
            topic.take(&["_cdc_op", "_cdc_offset"]),
            [["u", "0"], ["d", "7"]]
        );
    }

    /// The format has no commit time: better told at the start than null in every row.
    #[test]
    fn event_time_cannot_come_from_a_commit() {
        let schema = table(&[("user", Kind::String)], &["user"], &[]);
        assert_eq!(
            KeyValue::new(&schema, EventTimeFrom::SourceCommit).err(),
            Some(SchemaFault::NoSourceCommit)
        );
    }
}
