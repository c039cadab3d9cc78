//! Rows of one batch: the source's columns, and what is known of each row beside them.
//!
//! A decoder fills one row at a time and closes it; a row that fails is cut off and its neighbours stay. The sink reads the facts of
//! the rows as a slice, adds its verdict (replayed, incarnation), and takes the batch in the table's own schema.
//!
//! Column by column, every vector is as long as the number of closed rows whenever no row is open.
#![expect(
    clippy::inline_always,
    reason = "the innermost loop: measured, 464 against 530 ns a row"
)]

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::DataType;

use super::column::Values;
use super::facts::{Absent, Change, EventTime, NO_TIME, RowFacts};
use super::partitions::{Partitions, SourcePartition};
use super::scan::Number;
use super::schema::{Metadata, Origin, RowSchema};
use super::{Bad, Record};

/// Longest excerpt of an unusable event time that is kept, in bytes.
const RAW_LIMIT: usize = 128;
/// A batch of rows that grows. Places of partitions and sources stay the same from batch to batch.
pub struct Rows {
    schema: Arc<RowSchema>,
    columns: Vec<Values>,
    /// Columns that the open row has so far.
    filled: usize,
    facts: Vec<RowFacts>,
    /// Row, and the end of its text in `raw_text`.
    raw: Vec<(usize, usize)>,
    raw_text: String,
    /// Row and column, in the order of rows.
    unavailable: Vec<(usize, usize)>,
    partitions: Partitions,
    sources: Vec<Arc<str>>,
    source_places: HashMap<Arc<str>, u32>,
    /// The place of the source asked for last: most rows are of the source of the one before.
    last_source: u32,
}

impl Rows {
    /// No rows yet, with room for `capacity`.
    #[must_use]
    pub fn new(schema: &Arc<RowSchema>, capacity: usize) -> Rows {
        Rows {
            columns: schema
                .columns()
                .iter()
                .map(|column| Values::new(column, capacity))
                .collect(),
            schema: Arc::clone(schema),
            filled: 0,
            facts: Vec::with_capacity(capacity),
            raw: Vec::new(),
            raw_text: String::new(),
            unavailable: Vec::new(),
            partitions: Partitions::default(),
            sources: Vec::new(),
            source_places: HashMap::new(),
            last_source: 0,
        }
    }

    /// The schema that the batch will have.
    #[must_use]
    pub fn schema(&self) -> &Arc<RowSchema> {
        &self.schema
    }

    /// Rows so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Bytes that the rows take, about; costs as many steps as there are columns.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(Values::bytes).sum::<usize>()
            + size_of_val(self.facts.as_slice())
            + self.raw_text.len()
    }

    /// The facts of each row, in order.
    #[must_use]
    pub fn facts(&self) -> &[RowFacts] {
        &self.facts
    }

    /// Topics and partitions by place.
    #[must_use]
    pub fn partitions(&self) -> &[SourcePartition] {
        &self.partitions.all
    }

    /// Sources by place, such as `mysql/shop/184054`.
    #[must_use]
    pub fn sources(&self) -> &[Arc<str>] {
        &self.sources
    }

    /// The facts of each row, for the sink's verdict (until then a row is no replay and of the first incarnation), and the
    /// sources by place.
    pub fn facts_mut(&mut self) -> (&mut [RowFacts], &[Arc<str>]) {
        (&mut self.facts, &self.sources)
    }

    /// Takes all rows as a batch in the table's schema and begins anew.
    ///
    /// # Panics
    /// Never: `RowSchema` and the columns agree in every type, `null` refuses what is required, and all texts were checked.
    #[must_use]
    pub fn finish(&mut self) -> RecordBatch {
        let schema = Arc::clone(&self.schema);
        let mut arrays = Vec::with_capacity(schema.origins().len());
        for (field, origin) in schema.arrow().fields().iter().zip(schema.origins()) {
            arrays.push(match *origin {
                Origin::Source(c) => {
                    self.columns[c].finish(&schema.columns()[c], field.data_type())
                }
                Origin::Metadata(metadata) => self.metadata(metadata, field.data_type()),
            });
        }
        self.facts.clear();
        self.raw.clear();
        self.raw_text.clear();
        self.unavailable.clear();
        RecordBatch::try_new(Arc::clone(schema.arrow()), arrays)
            .expect("every array was made for its field")
    }

    fn metadata(&self, metadata: Metadata, data_type: &DataType) -> ArrayRef {
        let facts = &self.facts;
        let rows = facts.len();
        let instants = |us: Vec<i64>, nulls| {
            TimestampMicrosecondArray::new(us.into(), nulls).with_data_type(data_type.clone())
        };
        match metadata {
            Metadata::Op => {
                let letters = facts.iter().map(|facts| facts.op as u8).collect::<Vec<_>>();
                let ends = OffsetBuffer::from_repeated_length(1, facts.len());
                Arc::new(StringArray::new(ends, Buffer::from_vec(letters), None))
            }
            Metadata::EventTime => {
                let is_there = |row: usize| facts[row].event_time_us != NO_TIME;
                let present = NullBuffer::new(BooleanBuffer::collect_bool(rows, is_there));
                let us = (0..rows).map(|row| {
                    if is_there(row) {
                        facts[row].event_time_us
                    } else {
                        0
                    }
                });
                Arc::new(instants(
                    us.collect(),
                    (present.null_count() > 0).then_some(present),
                ))
            }
            Metadata::EventTimeRaw => self.event_time_raw(),
            Metadata::Position => self.position(data_type),
            Metadata::Replay => {
                let replayed = BooleanBuffer::collect_bool(rows, |row| facts[row].replayed);
                Arc::new(BooleanArray::new(replayed, None))
            }
            Metadata::Unavailable => self.unavailable_names(data_type),
            Metadata::Topic => {
                let topics = self
                    .facts
                    .iter()
                    .map(|facts| &*self.partitions.all[facts.partition as usize].topic);
                Arc::new(StringArray::from_iter_values(topics))
            }
            Metadata::Partition => {
                let partitions = facts
                    .iter()
                    .map(|facts| self.partitions.all[facts.partition as usize].partition);
                Arc::new(Int32Array::from_iter_values(partitions))
            }
            Metadata::Offset => Arc::new(Int64Array::from_iter_values(
                facts.iter().map(|facts| facts.offset),
            )),
            Metadata::IngestedAt => Arc::new(instants(
                facts.iter().map(|facts| facts.ingested_at_us).collect(),
                None,
            )),
        }
    }

    fn event_time_raw(&self) -> ArrayRef {
        if self.raw.is_empty() {
            return Arc::new(StringArray::new_null(self.facts.len()));
        }
        let mut texts = vec![None; self.facts.len()];
        let mut from = 0;
        for (row, end) in &self.raw {
            texts[*row] = Some(&self.raw_text[from..*end]);
            from = *end;
        }
        Arc::new(StringArray::from(texts))
    }

    fn position(&self, data_type: &DataType) -> ArrayRef {
        let DataType::Struct(fields) = data_type else {
            unreachable!("RowSchema::new has compared the types");
        };
        let mut text = Vec::new();
        let mut ends = Vec::with_capacity(self.facts.len() + 1);
        ends.push(0);
        let mut name = String::new();
        let mut named = None;
        for facts in &self.facts {
            if named != Some((facts.source, facts.incarnation)) {
                name = format!(
                    "{}#{}",
                    self.sources[facts.source as usize], facts.incarnation
                );
                named = Some((facts.source, facts.incarnation));
                text.reserve(name.len() * self.facts.len().saturating_sub(ends.len()));
            }
            text.extend_from_slice(name.as_bytes());
            ends.push(i32::try_from(text.len()).expect("a batch of names is far below 2 GiB"));
        }
        let parts: Vec<ArrayRef> = vec![
            Arc::new(StringArray::new(
                OffsetBuffer::new(ends.into()),
                Buffer::from_vec(text),
                None,
            )),
            Arc::new(Int64Array::from_iter_values(
                self.facts.iter().map(|facts| facts.position),
            )),
            Arc::new(Int32Array::from_iter_values(
                self.facts.iter().map(|facts| facts.sub),
            )),
        ];
        Arc::new(StructArray::new(fields.clone(), parts, None))
    }

    fn unavailable_names(&self, data_type: &DataType) -> ArrayRef {
        let DataType::List(element) = data_type else {
            unreachable!("RowSchema::new has compared the types");
        };
        if self.unavailable.is_empty() {
            return new_null_array(data_type, self.facts.len());
        }
        let mut lengths = vec![0; self.facts.len()];
        for (row, _) in &self.unavailable {
            lengths[*row] += 1;
        }
        let present = lengths
            .iter()
            .map(|length| *length > 0)
            .collect::<NullBuffer>();
        let names = self
            .unavailable
            .iter()
            .map(|(_, c)| &*self.schema.columns()[*c].name);
        let names = Arc::new(StringArray::from_iter_values(names));
        Arc::new(ListArray::new(
            Arc::clone(element),
            OffsetBuffer::from_lengths(lengths),
            names,
            Some(present),
        ))
    }
}

/// For decoders: one row at a time.
impl Rows {
    /// The column for the open row's next value, which must be its first.
    #[inline(always)]
    fn open(&mut self, c: usize) -> Result<&mut Values, Bad> {
        let column = &mut self.columns[c];
        if column.len() != self.facts.len() {
            return Err(Bad::Duplicate(c));
        }
        self.filled += 1;
        Ok(column)
    }

    /// Whether the open row has a value or null in that column.
    pub(super) fn has(&self, c: usize) -> bool {
        self.columns[c].len() != self.facts.len()
    }

    #[inline]
    pub(super) fn null(&mut self, c: usize) -> Result<(), Bad> {
        self.open(c)?
            .null()
            .map_err(|misfit| Bad::Misfit(c, misfit))
    }

    #[inline]
    pub(super) fn boolean(&mut self, c: usize, value: bool) -> Result<(), Bad> {
        self.open(c)?
            .boolean(value)
            .map_err(|misfit| Bad::Misfit(c, misfit))
    }

    #[inline(always)]
    pub(super) fn number(&mut self, c: usize, number: Number, written: &[u8]) -> Result<(), Bad> {
        self.open(c)?
            .number(number, written)
            .map_err(|misfit| Bad::Misfit(c, misfit))
    }

    /// The UTF-8 text `message[from..to]`.
    #[inline(always)]
    pub(super) fn text(
        &mut self,
        c: usize,
        message: &[u8],
        from: usize,
        to: usize,
    ) -> Result<(), Bad> {
        self.open(c)?
            .text(message, from, to)
            .map_err(|misfit| Bad::Misfit(c, misfit))
    }

    pub(super) fn nested(&mut self, c: usize, written: &[u8]) -> Result<(), Bad> {
        self.open(c)?
            .nested(written)
            .map_err(|misfit| Bad::Misfit(c, misfit))
    }

    /// Whether text in that column is bytes in base64.
    pub(super) fn is_base64(&self, c: usize) -> bool {
        self.columns[c].is_base64()
    }

    /// A column that the source left out. The list stays in the order of rows and columns.
    #[cold]
    pub(super) fn unavailable(&mut self, c: usize) -> Result<(), Bad> {
        let entry = (self.facts.len(), c);
        let place = self.unavailable.partition_point(|other| *other < entry);
        self.unavailable.insert(place, entry);
        self.null(c)
    }

    /// A column of a row that is none, where the table refuses null.
    #[cold]
    fn empty(&mut self, c: usize) -> Result<(), Bad> {
        self.unavailable.push((self.facts.len(), c));
        self.open(c)?
            .empty()
            .map_err(|misfit| Bad::Misfit(c, misfit))
    }

    /// The place of a source.
    #[inline]
    pub(super) fn source(&mut self, id: &str) -> u32 {
        if self
            .sources
            .get(self.last_source as usize)
            .is_none_or(|last| **last != *id)
        {
            self.last_source = self.find_source(id);
        }
        self.last_source
    }

    #[cold]
    fn find_source(&mut self, id: &str) -> u32 {
        if let Some(place) = self.source_places.get(id) {
            return *place;
        }
        let id: Arc<str> = id.into();
        let place = u32::try_from(self.sources.len()).expect("fewer sources than memory");
        self.sources.push(Arc::clone(&id));
        self.source_places.insert(id, place);
        place
    }

    /// Closes the row: columns it does not have become null.
    #[inline]
    pub(super) fn close(
        &mut self,
        record: &Record<'_>,
        change: &Change<'_>,
        absent: Absent,
    ) -> Result<(), Bad> {
        if self.filled != self.columns.len() {
            self.fill(absent)?;
        }
        self.filled = 0;
        let event_time_us = match change.event_time {
            EventTime::At(us) => us,
            EventTime::Unusable(written) => {
                self.keep_raw(written);
                NO_TIME
            }
            EventTime::Missing => NO_TIME,
        };
        self.facts.push(RowFacts {
            event_time_us,
            record_time_us: record.timestamp_us.unwrap_or(NO_TIME),
            commit_time_us: change.commit_time_us,
            offset: record.offset,
            position: change.position,
            ingested_at_us: record.ingested_at_us,
            sub: change.sub,
            partition: self.partitions.place(record.topic, record.partition),
            source: change.source,
            incarnation: 0,
            op: change.op,
            snapshot: change.snapshot,
            replayed: false,
        });
        Ok(())
    }

    #[cold]
    fn fill(&mut self, absent: Absent) -> Result<(), Bad> {
        for c in 0..self.columns.len() {
            if self.has(c) {
                continue;
            }
            match absent {
                Absent::Unavailable => self.unavailable(c)?,
                Absent::Empty if self.columns[c].is_required() => self.empty(c)?,
                Absent::Null | Absent::Empty => self.null(c)?,
            }
        }
        Ok(())
    }

    #[cold]
    fn keep_raw(&mut self, written: &[u8]) {
        let text = String::from_utf8_lossy(written);
        let mut end = text.len().min(RAW_LIMIT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.raw_text.push_str(&text[..end]);
        self.raw.push((self.facts.len(), self.raw_text.len()));
    }

    /// Cuts back to the first `rows` rows; an open row is gone.
    #[cold]
    pub(super) fn roll_back_to(&mut self, rows: usize) {
        self.filled = 0;
        self.facts.truncate(rows);
        for column in &mut self.columns {
            column.truncate(rows);
        }
        self.unavailable
            .truncate(self.unavailable.partition_point(|(row, _)| *row < rows));
        self.raw
            .truncate(self.raw.partition_point(|(row, _)| *row < rows));
        self.raw_text
            .truncate(self.raw.last().map_or(0, |(_, end)| *end));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Topic, table};
    use super::super::{Debezium, Decoder, Encoding, EventTimeFrom, Kind};
    use super::*;
    use Encoding::{Base64, Base64Url, Hex, Iso, Micros, Millis, Nanos, Seconds};

    fn values(
        columns: &[(&str, Kind)],
        encodings: &[(&str, Encoding)],
        image: &str,
    ) -> Result<Vec<String>, super::super::Fault> {
        let schema = table(columns, &[], encodings);
        let mut topic = Topic::new(&schema, Debezium::new(&schema, EventTimeFrom::SourceCommit));
        topic.send(
            None,
            Some(format!(r#"{{"op":"c","after":{image}}}"#).as_bytes()),
        )?;
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        Ok(topic.take(&names).remove(0))
    }

    /// A kind, an encoding, what came, and what it is.
    const ENCODED: [(Kind, Encoding, &str, &str); 33] = [
        (Kind::Boolean, Encoding::Plain, "1", "true"),
        (Kind::Int, Encoding::Plain, "\"-7\"", "-7"),
        (
            Kind::Long,
            Encoding::Plain,
            "9223372036854775807",
            "9223372036854775807",
        ),
        (Kind::Float, Encoding::Plain, "3.4E38", "3.4e38"),
        (Kind::Float, Encoding::Plain, "\"Infinity\"", "inf"),
        (Kind::Double, Encoding::Plain, "\"NaN\"", "NaN"),
        (Kind::Double, Encoding::Plain, "5", "5.0"),
        (
            Kind::Decimal {
                precision: 38,
                scale: 0,
            },
            Encoding::Plain,
            "18446744073709551616",
            "18446744073709551616",
        ),
        (
            Kind::Decimal {
                precision: 5,
                scale: 3,
            },
            Encoding::Plain,
            "1.10e1",
            "11.000",
        ),
        (
            Kind::Decimal {
                precision: 10,
                scale: 3,
            },
            Base64,
            "\"Bdw=\"",
            "1.500",
        ),
        (
            Kind::Decimal {
                precision: 10,
                scale: 3,
            },
            Encoding::Plain,
            r#"{"scale":2,"value":"Bdw="}"#,
            "15.000",
        ),
        (Kind::Date, Encoding::Plain, "20787", "2026-11-30"),
        (Kind::Date, Encoding::Days, "-1", "1969-12-31"),
        (Kind::Date, Iso, "\"2026-11-30Z\"", "2026-11-30"),
        (Kind::Time, Millis, "36672123", "10:11:12.123"),
        (Kind::Time, Micros, "36672123456", "10:11:12.123456"),
        (Kind::Time, Nanos, "36672123456999", "10:11:12.123456"),
        (Kind::Time, Iso, "\"10:11:12.123456Z\"", "10:11:12.123456"),
        (
            Kind::Timestamp,
            Seconds,
            "1796033472",
            "2026-11-30T10:11:12",
        ),
        (Kind::Timestamp, Millis, "-1", "1969-12-31T23:59:59.999"),
        (
            Kind::Timestamp,
            Micros,
            "1796033472123456",
            "2026-11-30T10:11:12.123456",
        ),
        (Kind::Timestamp, Nanos, "-1", "1969-12-31T23:59:59.999999"),
        (
            Kind::Timestamptz,
            Nanos,
            "\"1796033472123456789\"",
            "2026-11-30T10:11:12.123456Z",
        ),
        (
            Kind::Timestamptz,
            Iso,
            "\"2026-11-30T10:11:12+02:00\"",
            "2026-11-30T08:11:12Z",
        ),
        (
            Kind::Timestamptz,
            Encoding::Plain,
            "\"2026-11-30T10:11:12Z\"",
            "2026-11-30T10:11:12Z",
        ),
        (
            Kind::String,
            Encoding::Plain,
            "[1, {\"a\": null}]",
            "[1, {\"a\": null}]",
        ),
        (Kind::String, Encoding::Plain, "1.50", "1.50"),
        (Kind::String, Encoding::Plain, "false", "false"),
        (Kind::Binary, Encoding::Plain, "\"3q2+7wA=\"", "deadbeef00"),
        (Kind::Binary, Base64Url, "\"3q2-7wA\"", "deadbeef00"),
        (Kind::Binary, Hex, "\"DEADbeef00\"", "deadbeef00"),
        (Kind::Binary, Hex, "\"\"", ""),
        (
            Kind::Uuid,
            Encoding::Plain,
            "\"123e4567-e89b-12d3-a456-426614174000\"",
            "123e4567e89b12d3a456426614174000",
        ),
    ];

    /// One value of each kind in each of its encodings.
    #[test]
    fn every_encoding_of_every_kind_is_read() {
        for (kind, encoding, written, expected) in ENCODED {
            let image = format!(r#"{{"column":{written}}}"#);
            let found = values(&[("column", kind.clone())], &[("column", encoding)], &image);
            assert_eq!(
                found.as_deref(),
                Ok(&[expected.to_owned()][..]),
                "{kind} {encoding} {written}"
            );
        }
    }

    /// A value that does not fit is refused, by its column and for its reason.
    #[test]
    fn what_does_not_fit_is_refused() {
        let cases = [
            (Kind::Boolean, Encoding::Plain, "2", "Type"),
            (Kind::Int, Encoding::Plain, "2147483648", "Range"),
            (Kind::Long, Encoding::Plain, "9223372036854775808", "Range"),
            (Kind::Long, Encoding::Plain, "1.0", "Type"),
            (Kind::Long, Encoding::Plain, "true", "Type"),
            (Kind::Float, Encoding::Plain, "1e39", "Range"),
            (Kind::Double, Encoding::Plain, "\"\"", "Type"),
            (
                Kind::Decimal {
                    precision: 3,
                    scale: 1,
                },
                Encoding::Plain,
                "100",
                "Range",
            ),
            (
                Kind::Decimal {
                    precision: 3,
                    scale: 1,
                },
                Encoding::Base64,
                "1",
                "Type",
            ),
            (
                Kind::Decimal {
                    precision: 3,
                    scale: 1,
                },
                Encoding::Plain,
                "\"Infinity\"",
                "Type",
            ),
            (Kind::Date, Encoding::Plain, "2147483648", "Range"),
            (Kind::Date, Encoding::Plain, "\"-4712-01-01\"", "Type"),
            (Kind::Time, Encoding::Micros, "86400000000", "Range"),
            (Kind::Time, Encoding::Micros, "-1", "Range"),
            (Kind::Time, Encoding::Plain, "1", "Unit"),
            (Kind::Timestamp, Encoding::Seconds, "9223372036855", "Range"),
            (Kind::Timestamp, Encoding::Millis, "1.5", "Type"),
            (Kind::Timestamp, Encoding::Plain, "\"infinity\"", "Type"),
            (Kind::String, Encoding::Plain, "nul", "Syntax"),
            (Kind::Binary, Encoding::Plain, "\"not base64\"", "Type"),
            (Kind::Binary, Encoding::Hex, "\"abc\"", "Type"),
            (Kind::Uuid, Encoding::Plain, "\"123e4567\"", "Type"),
            (Kind::Uuid, Encoding::Plain, "[1]", "Type"),
        ];
        for (kind, encoding, written, reason) in cases {
            let image = format!(r#"{{"column":{written}}}"#);
            let fault =
                values(&[("column", kind.clone())], &[("column", encoding)], &image).unwrap_err();
            assert_eq!(fault.reason(), reason, "{kind} {encoding} {written}");
        }
    }

    /// The sink counts by place: a place never changes its partition, from batch to batch.
    #[test]
    fn partitions_keep_their_places() {
        let schema = table(&[("id", Kind::Long)], &[], &[]);
        let mut decoder = Debezium::new(&schema, EventTimeFrom::RecordTimestamp);
        let mut rows = Rows::new(&schema, 4);
        let mut send = |rows: &mut Rows, topic: &str, partition: i32| {
            let value = Some(&br#"{"op":"c","after":{"id":1}}"#[..]);
            let record = Record {
                topic,
                partition,
                offset: 9,
                timestamp_us: None,
                ingested_at_us: 1,
                key: None,
                value,
                headers: &(),
            };
            decoder.decode(&record, rows).unwrap();
            rows.facts().last().unwrap().partition
        };
        let turn = [
            ("a", 0),
            ("b", 0),
            ("a", 7),
            ("a", 100_000),
            ("b", 7),
            ("a", -1),
        ];
        for _ in 0..2 {
            let places: Vec<u32> = turn
                .iter()
                .map(|(topic, partition)| send(&mut rows, topic, *partition))
                .collect();
            assert_eq!(places, [0, 1, 2, 3, 4, 5]);
            let batch = rows.finish();
            assert_eq!(batch.schema(), *schema.arrow());
            assert_eq!(super::super::testing::cell(&batch, "_cdc_topic", 4), "b");
            assert_eq!(
                super::super::testing::cell(&batch, "_cdc_partition", 3),
                "100000"
            );
            assert_eq!(
                super::super::testing::cell(&batch, "_cdc_event_time", 0),
                "∅"
            );
        }
        assert_eq!(
            rows.partitions()[3],
            SourcePartition {
                topic: "a".into(),
                partition: 100_000
            }
        );
    }

    /// Memory is bounded in bytes, so a row's bytes must be seen.
    #[test]
    fn held_bytes_follow_the_rows() {
        let schema = table(&[("id", Kind::Long), ("note", Kind::String)], &[], &[]);
        let mut topic = Topic::new(
            &schema,
            Debezium::new(&schema, EventTimeFrom::RecordTimestamp),
        );
        let before = topic.rows.bytes();
        let message = format!(
            r#"{{"op":"c","after":{{"id":1,"note":"{}"}}}}"#,
            "x".repeat(1000)
        );
        topic.send(None, Some(message.as_bytes())).unwrap();
        assert!((1000..1200).contains(&(topic.rows.bytes() - before)));
        let _ = topic.rows.finish();
        assert_eq!(topic.rows.bytes(), before);
    }
}
