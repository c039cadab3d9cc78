//! Debezium's JSON: MySQL, MariaDB and PostgreSQL without the schema envelope, and as TiCDC writes it.
//!
//! A change has `op`, a row image before or after, and a `source` block with commit time and position. A record without `op` is a
//! heartbeat, a schema change or a transaction's begin or end. One update that changes the key becomes a delete and a create.
//!
//! Positions order changes as the source commits them. MySQL, MariaDB: number of the binlog file and position in it, then the row.
//! PostgreSQL: end of the commit before the row's transaction, then how far behind it the row stands; not the row's own place in the
//! log, since transactions that overlap write their rows in another order than they commit.
//!
//! TiCDC wraps message and key in `payload`, gives the commit timestamp as `source.commit_ts`, which is the position, and sends its
//! watermarks as `op: m`. A partition does not have its changes in the order of their commits.

use std::sync::Arc;

use super::batch::Rows;
use super::event_time::EventTimes;
use super::facts::{Absent, Change, EventTime, NO_TIME, Op, Snapshot};
use super::image::{Image, Span};
use super::instant::Unit;
use super::keys::Keys;
use super::scan::Scan;
use super::schema::RowSchema;
use super::source_block::{Binlog, Source, SourceMember, source_members};
use super::{
    Bad, Decoded, Decoder, EventTimeFrom, Fault, Format, Record, Signal, UnknownFields, decode, tso,
};

/// What Debezium writes for a value that the source left out, unless `unavailable.value.placeholder` says otherwise.
pub const DEFAULT_PLACEHOLDER: &str = "__debezium_unavailable_value";

/// Every change of TiCDC has its commit timestamp.
const NO_COMMIT_TS: Bad = Bad::Member("source.commit_ts");

/// Decodes Debezium's JSON into the rows of one table.
pub struct Debezium {
    schema: Arc<RowSchema>,
    event_times: EventTimes,
    members: Keys<Member>,
    source_members: Keys<SourceMember>,
    image: Image,
    key: Image,
    /// Where the key columns stand in the before image.
    before_key: Vec<Span>,
    unescaped: String,
    source_id: String,
    dialect: Dialect,
}

/// Who writes the messages.
enum Dialect {
    /// Debezium's connectors.
    Connector(Binlog),
    /// TiCDC.
    TiCdc(Keys<Wrapping>),
}

/// The members of what a message of TiCDC is wrapped in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrapping {
    Payload,
    Other,
}

/// The members of an envelope that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Before,
    After,
    Source,
    Op,
    Clock,
    ClockFiner,
    Status,
    Ddl,
    Schema,
    Payload,
    Other,
}

/// What one message says. A place of 0 is none: a member never stands there.
#[derive(Default)]
struct Envelope {
    seen: u16,
    op: u8,
    before: usize,
    after: usize,
    clock_ms: Option<i64>,
    status: Span,
    source: Source,
}

impl Debezium {
    /// A decoder for rows of `schema`.
    #[must_use]
    pub fn new(schema: &Arc<RowSchema>, event_time: EventTimeFrom) -> Debezium {
        Debezium::with_placeholder(schema, event_time, DEFAULT_PLACEHOLDER)
    }

    /// The same for messages that TiCDC writes.
    #[must_use]
    pub fn of_ticdc(schema: &Arc<RowSchema>, event_time: EventTimeFrom) -> Debezium {
        let wrapping = [("payload".to_owned(), Wrapping::Payload)];
        // TiCDC leaves a column out where it leaves one out.
        Debezium {
            dialect: Dialect::TiCdc(Keys::new(wrapping, Wrapping::Other)),
            ..Debezium::with_placeholder(schema, event_time, "")
        }
    }

    /// The same, where the connector's `unavailable.value.placeholder` is not the usual one.
    #[must_use]
    pub fn with_placeholder(
        schema: &Arc<RowSchema>,
        event_time: EventTimeFrom,
        placeholder: &str,
    ) -> Debezium {
        let event_times = EventTimes::new(event_time, schema);
        let members = [
            ("before", Member::Before),
            ("after", Member::After),
            ("source", Member::Source),
            ("op", Member::Op),
            ("ts_ms", Member::Clock),
            ("ts_us", Member::ClockFiner),
            ("ts_ns", Member::ClockFiner),
            ("status", Member::Status),
            ("ddl", Member::Ddl),
            ("tableChanges", Member::Ddl),
            ("schema", Member::Schema),
            ("payload", Member::Payload),
        ];
        Debezium {
            schema: Arc::clone(schema),
            members: Keys::new(
                members.map(|(name, member)| (name.to_owned(), member)),
                Member::Other,
            ),
            source_members: source_members(),
            image: Image::new(schema, event_times.field(), placeholder),
            key: Image::new(schema, None, placeholder),
            event_times,
            before_key: vec![(0, 0); schema.key().len()],
            unescaped: String::new(),
            source_id: String::new(),
            dialect: Dialect::Connector(Binlog::default()),
        }
    }
}

impl Decoder for Debezium {
    fn decode(&mut self, record: &Record<'_>, rows: &mut Rows) -> Result<Decoded, Fault> {
        decode(self, record, rows)
    }

    fn in_source_order(&self) -> bool {
        matches!(self.dialect, Dialect::Connector(_))
    }

    fn take_unknown(&mut self) -> UnknownFields {
        let mut fields = UnknownFields::default();
        self.image.report(&mut fields);
        self.key.report(&mut fields);
        fields
    }
}

impl Format for Debezium {
    fn schema(&self) -> &Arc<RowSchema> {
        &self.schema
    }

    fn take(&mut self, record: &Record<'_>, rows: &mut Rows) -> Result<Decoded, Bad> {
        match record.value {
            Some(message) => self.message(record, message, rows),
            None => Ok(Decoded::Signal(Signal::Tombstone)),
        }
    }
}

impl Debezium {
    fn message(
        &mut self,
        record: &Record<'_>,
        message: &[u8],
        rows: &mut Rows,
    ) -> Result<Decoded, Bad> {
        let first = rows.len();
        let envelope = self.envelope(message, rows)?;
        let (op, place) = match envelope.op {
            b'c' => (Op::Create, envelope.after),
            b'u' => (Op::Update, envelope.after),
            b'r' => (Op::Read, envelope.after),
            b'd' => (Op::Delete, envelope.before),
            b't' => (Op::Truncate, 0),
            b'm' | 0 => {
                rows.roll_back_to(first);
                return self.signal(&envelope, message).map(Decoded::Signal);
            }
            _ => return Err(Bad::UnknownOperation),
        };
        if op == Op::Update && self.key_changed(&envelope, message) {
            rows.roll_back_to(first);
            self.fill(message, envelope.before, rows)?;
            self.close(record, message, &envelope, Op::Delete, rows)?;
            self.fill(message, envelope.after, rows)?;
            self.close(record, message, &envelope, Op::Create, rows)?;
            return Ok(Decoded::Rows(2));
        }
        if place == 0 || place != envelope.after {
            if envelope.after != 0 {
                rows.roll_back_to(first);
            }
            self.image_or_key(record, message, (op, place), rows)?;
        }
        self.close(record, message, &envelope, op, rows)?;
        Ok(Decoded::Rows(1))
    }

    /// The row of a change that has no after image.
    #[cold]
    fn image_or_key(
        &mut self,
        record: &Record<'_>,
        message: &[u8],
        change: (Op, usize),
        rows: &mut Rows,
    ) -> Result<(), Bad> {
        match change {
            (Op::Truncate, _) => Ok(()),
            (_, place @ 1..) => self.fill(message, place, rows),
            // The columns of the key come from the record's key when the row is closed.
            (Op::Delete, 0) if record.key.is_some() && !self.schema.key().is_empty() => Ok(()),
            (op, _) => Err(Bad::NoImage(op as u8)),
        }
    }

    /// Reads the message. An after image goes into the open row at once: it usually is the row.
    fn envelope(&mut self, message: &[u8], rows: &mut Rows) -> Result<Envelope, Bad> {
        let mut envelope = Envelope::default();
        let mut scan = Scan::new(message, &mut self.unescaped);
        let Debezium {
            members,
            source_members,
            image,
            before_key,
            dialect,
            ..
        } = self;
        let read = |scan: &mut Scan<'_>| {
            scan.object(members, |scan, member| {
                envelope.see(member)?;
                match member {
                    Member::Before if scan.object_or_null("before")? => {
                        envelope.before = scan.at;
                        if before_key.is_empty() {
                            scan.skip()
                        } else {
                            image.locate_key(scan, before_key)
                        }
                    }
                    Member::After if scan.object_or_null("after")? => {
                        envelope.after = scan.at;
                        image.fill(scan, rows)
                    }
                    Member::Source if scan.object_or_null("source")? => {
                        let source = &mut envelope.source;
                        scan.object(source_members, |scan, member| source.read(member, scan))
                    }
                    Member::Op => {
                        envelope.op = operation(scan)?;
                        Ok(())
                    }
                    Member::Clock => {
                        envelope.clock_ms = scan.int()?;
                        Ok(())
                    }
                    Member::Status => {
                        envelope.status = scan.plain_text()?.unwrap_or_default();
                        Ok(())
                    }
                    Member::Before | Member::After | Member::Source => Ok(()),
                    _ => scan.skip(),
                }
            })
        };
        dialect.unwrap(&mut scan, read)?;
        scan.end()?;
        Ok(envelope)
    }

    /// Fills the open row from the image at `place`.
    fn fill(&mut self, message: &[u8], place: usize, rows: &mut Rows) -> Result<(), Bad> {
        let mut scan = Scan::new(message, &mut self.unescaped);
        scan.at = place;
        self.image.fill(&mut scan, rows)
    }

    /// What a message without a row says.
    #[cold]
    fn signal(&self, envelope: &Envelope, message: &[u8]) -> Result<Signal, Bad> {
        match (&self.dialect, envelope.op) {
            (Dialect::TiCdc(_), b'm') => {
                let resolved = envelope.source.commit_tso.and_then(Signal::resolved);
                resolved.ok_or(NO_COMMIT_TS)
            }
            (Dialect::Connector(_), b'm') => Ok(Signal::LogicalMessage),
            _ => envelope.signal(message),
        }
    }

    /// Whether both images have the whole key, and not the same. One writer writes one value in one way: bytes decide.
    fn key_changed(&self, envelope: &Envelope, message: &[u8]) -> bool {
        if envelope.before == 0 || envelope.after == 0 {
            return false;
        }
        let mut changed = false;
        for (before, after) in self.before_key.iter().zip(self.image.key_spans()) {
            if before.1 == 0 || after.1 == 0 {
                return false;
            }
            changed |= message[before.0..before.1] != message[after.0..after.1];
        }
        changed
    }

    /// Closes the open row with what the envelope says of it.
    fn close(
        &mut self,
        record: &Record<'_>,
        message: &[u8],
        envelope: &Envelope,
        op: Op,
        rows: &mut Rows,
    ) -> Result<(), Bad> {
        let source = &envelope.source;
        if op != Op::Truncate
            && let Some(key) = record.key
            && self.schema.key().iter().any(|c| !rows.has(*c))
        {
            let mut scan = Scan::new(key, &mut self.unescaped);
            let image = &mut self.key;
            self.dialect
                .unwrap(&mut scan, |scan| image.fill_rest(scan, rows))?;
        }
        let id = source.parts(message);
        if !is_joined(self.source_id.as_bytes(), id) {
            self.source_id = id.map(String::from_utf8_lossy).join("/");
        }
        let ((position, sub), commit_time) = match &mut self.dialect {
            Dialect::Connector(binlog) => (
                binlog.position(message, source, record.offset),
                source.commit_time(message),
            ),
            Dialect::TiCdc(_) => {
                let tso = source.commit_tso.ok_or(NO_COMMIT_TS)?;
                let commit_us = tso::time_us(tso).ok_or(NO_COMMIT_TS)?;
                ((tso, 0), EventTime::At(commit_us))
            }
        };
        let image = (&self.image, &*self.schema, message);
        let snapshot = match (op, source.snapshot) {
            (Op::Read, Snapshot::Streamed) => Snapshot::Initial,
            (_, snapshot) => snapshot,
        };
        let change = Change {
            op,
            event_time: self.event_times.of(record, image, || commit_time),
            commit_time_us: match commit_time {
                EventTime::At(us) => us,
                EventTime::Unusable(_) | EventTime::Missing => NO_TIME,
            },
            position,
            sub,
            source: rows.source(&self.source_id),
            snapshot,
        };
        rows.close(
            record,
            &change,
            if op == Op::Truncate {
                Absent::Empty
            } else {
                Absent::Unavailable
            },
        )
    }
}

impl Dialect {
    /// Reads the object that matters, which TiCDC wraps in another one.
    #[inline]
    fn unwrap(
        &mut self,
        scan: &mut Scan<'_>,
        mut read: impl FnMut(&mut Scan<'_>) -> Result<(), Bad>,
    ) -> Result<(), Bad> {
        let Dialect::TiCdc(wrapping) = self else {
            return read(scan);
        };
        let mut found = false;
        scan.object(wrapping, |scan, member| match member {
            Wrapping::Payload if found || scan.token() != b'{' => Err(Bad::Member("payload")),
            Wrapping::Payload => {
                found = true;
                read(scan)
            }
            Wrapping::Other => scan.skip(),
        })?;
        if found { Ok(()) } else { Err(Bad::NoPayload) }
    }
}

impl Envelope {
    /// Each member of a change comes once.
    #[inline]
    fn see(&mut self, member: Member) -> Result<(), Bad> {
        let bit = 1 << (member as u16);
        let repeated = self.seen & bit != 0;
        self.seen |= bit;
        match member {
            Member::Before if repeated => Err(Bad::Member("before")),
            Member::After if repeated => Err(Bad::Member("after")),
            Member::Source if repeated => Err(Bad::Member("source")),
            Member::Op if repeated => Err(Bad::Member("op")),
            _ => Ok(()),
        }
    }

    fn has(&self, member: Member) -> bool {
        self.seen & (1 << (member as u16)) != 0
    }

    /// What a message without an operation says.
    #[cold]
    fn signal(&self, message: &[u8]) -> Result<Signal, Bad> {
        if self.has(Member::Schema) && self.has(Member::Payload) {
            return Err(Bad::SchemaEnvelope);
        }
        if self.has(Member::Ddl) {
            return Ok(Signal::SchemaChange);
        }
        match &message[self.status.0..self.status.1] {
            b"BEGIN" => return Ok(Signal::TransactionBegin),
            b"END" => return Ok(Signal::TransactionEnd),
            _ => {}
        }
        let clocks = 1 << (Member::Clock as u16) | 1 << (Member::ClockFiner as u16);
        match self.clock_ms.and_then(|ms| Unit::Millis.to_us(ms)) {
            Some(clock_us) if self.seen & !clocks == 0 => Ok(Signal::Heartbeat { clock_us }),
            _ => Err(Bad::NoOperation),
        }
    }
}

/// One letter.
fn operation(scan: &mut Scan<'_>) -> Result<u8, Bad> {
    if scan.token() != b'"' {
        return Err(Bad::Member("op"));
    }
    let text = scan.text()?;
    match scan.bytes(text) {
        [op] if *op != 0 => Ok(*op),
        _ => Err(Bad::UnknownOperation),
    }
}

/// Whether `id` is the three parts with slashes between.
fn is_joined(id: &[u8], parts: [&[u8]; 3]) -> bool {
    let [first, second, third] = parts;
    let rest = id
        .strip_prefix(first)
        .and_then(|rest| rest.strip_prefix(b"/"));
    let rest = rest
        .and_then(|rest| rest.strip_prefix(second))
        .and_then(|rest| rest.strip_prefix(b"/"));
    rest.is_some_and(|rest| rest == third)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::testing::{Topic, table};
    use super::super::{Encoding, Kind, RowFacts};
    use super::*;

    const COLUMNS: [&str; 6] = ["id", "price", "note", "paid", "weight", "at"];

    fn orders() -> Arc<RowSchema> {
        let kinds = [
            ("id", Kind::Long),
            (
                "price",
                Kind::Decimal {
                    precision: 12,
                    scale: 2,
                },
            ),
            ("note", Kind::String),
            ("paid", Kind::Boolean),
            ("weight", Kind::Double),
            ("at", Kind::Timestamptz),
        ];
        table(&kinds, &["id"], &[("at", Encoding::Millis)])
    }

    fn topic(schema: &Arc<RowSchema>) -> Topic<Debezium> {
        Topic::new(schema, Debezium::new(schema, EventTimeFrom::SourceCommit))
    }

    fn mysql(pos: i64, row: i64) -> Value {
        json!({
            "version": "3.5.0.Final", "connector": "mysql", "name": "shop", "ts_ms": 1_796_032_800_000_i64, "snapshot": "false",
            "db": "shop", "sequence": null, "ts_us": 1_796_032_800_000_123_i64, "ts_ns": 1_796_032_800_000_123_999_i64, "table": "orders",
            "server_id": 184_054, "gtid": null, "file": "mysql-bin.000007", "pos": pos, "row": row, "thread": 5, "query": null,
        })
    }

    fn change(op: &str, before: &Value, after: &Value) -> Vec<u8> {
        json!({"before": before, "after": after, "source": mysql(1234, 2), "op": op, "ts_ms": 1_796_032_801_000_i64, "transaction": null})
            .to_string()
            .into_bytes()
    }

    fn order(id: i64, note: &str) -> Value {
        json!({"id": id, "price": "12.50", "note": note, "paid": true, "weight": 1.5, "at": 1_796_032_800_001_i64})
    }

    /// A change becomes a row with all that the envelope says.
    #[test]
    fn a_change_becomes_a_row() {
        let mut topic = topic(&orders());
        assert_eq!(
            topic.send(None, Some(&change("c", &Value::Null, &order(7, "fragile")))),
            Ok(Decoded::Rows(1))
        );
        let facts = RowFacts {
            event_time_us: 1_796_032_800_000_123,
            record_time_us: 1_796_032_800_000_000,
            commit_time_us: 1_796_032_800_000_123,
            offset: 0,
            position: (7 << 32) + 1234,
            ingested_at_us: 1_796_032_900_000_000,
            sub: 2,
            partition: 0,
            source: 0,
            incarnation: 0,
            op: Op::Create,
            snapshot: Snapshot::Streamed,
            replayed: false,
        };
        assert_eq!(topic.rows.facts(), [facts]);
        assert_eq!(topic.rows.sources(), ["mysql/shop/184054".into()]);
        let (facts, _) = topic.rows.facts_mut();
        (facts[0].replayed, facts[0].incarnation) = (true, 4);
        let all = [
            "id",
            "price",
            "note",
            "paid",
            "weight",
            "at",
            "_cdc_op",
            "_cdc_event_time",
            "_cdc_event_time_raw",
            "_cdc_position",
            "_cdc_replay",
            "_cdc_unavailable",
            "_cdc_topic",
            "_cdc_partition",
            "_cdc_offset",
            "_cdc_ingested_at",
        ];
        let row = [
            "7",
            "12.50",
            "fragile",
            "true",
            "1.5",
            "2026-11-30T10:00:00.001Z",
            "c",
            "2026-11-30T10:00:00.000123Z",
            "∅",
            "{incarnation: mysql/shop/184054#4, position: 30064772306, sub: 2}",
            "true",
            "∅",
            "shop.orders",
            "3",
            "0",
            "2026-11-30T10:01:40Z",
        ];
        assert_eq!(topic.take(&all), [row]);
        assert!(topic.rows.is_empty());
    }

    /// A delete is the row that was, whatever stands behind it.
    #[test]
    fn a_delete_carries_the_before_image() {
        let mut topic = topic(&orders());
        topic
            .send(None, Some(&change("d", &order(1, "was"), &Value::Null)))
            .unwrap();
        topic
            .send(
                None,
                Some(&change("d", &order(2, "was"), &order(3, "never"))),
            )
            .unwrap();
        topic
            .send(None, Some(&change("u", &order(4, "was"), &order(4, "is"))))
            .unwrap();
        topic
            .send(
                Some(r#"{"id":5}"#),
                Some(&change("d", &Value::Null, &Value::Null)),
            )
            .unwrap();
        assert_eq!(
            topic.take(&["_cdc_op", "id", "note", "_cdc_unavailable"]),
            [
                ["d", "1", "was", "∅"],
                ["d", "2", "was", "∅"],
                ["u", "4", "is", "∅"],
                ["d", "5", "∅", "[price, note, paid, weight, at]"]
            ]
        );
    }

    /// The old key must go, or the base table keeps a row that the source no longer has.
    #[test]
    fn a_change_of_key_in_one_message_is_a_delete_and_a_create() {
        let mut topic = topic(&orders());
        assert_eq!(
            topic.send(None, Some(&change("u", &order(1, "old"), &order(2, "new")))),
            Ok(Decoded::Rows(2))
        );
        assert_eq!(
            topic.send(None, Some(&change("u", &order(2, "old"), &order(2, "new")))),
            Ok(Decoded::Rows(1))
        );
        let facts = topic.rows.facts();
        assert_eq!(
            (facts[0].position, facts[0].sub, facts[0].offset),
            (facts[1].position, facts[1].sub, facts[1].offset)
        );
        assert_eq!(
            topic.take(&["_cdc_op", "id", "note"]),
            [["d", "1", "old"], ["c", "2", "new"], ["u", "2", "new"]]
        );
        // The second half does not fit: the first must not stay.
        let bad = change("u", &order(3, "old"), &json!({"id": 4, "price": "much"}));
        assert!(matches!(
            topic.send(None, Some(&bad)),
            Err(Fault::Type { .. })
        ));
        let bad = change("u", &json!({"id": 3, "price": "much"}), &order(4, "new"));
        assert!(matches!(
            topic.send(None, Some(&bad)),
            Err(Fault::Type { .. })
        ));
        assert!(topic.rows.is_empty());
    }

    /// Null would be read as the column's value: what was left out is named.
    #[test]
    fn columns_left_out_are_null_and_named() {
        let schema = table(
            &[
                ("id", Kind::Long),
                ("text", Kind::String),
                ("bytes", Kind::Binary),
                ("list", Kind::String),
                (
                    "price",
                    Kind::Decimal {
                        precision: 5,
                        scale: 1,
                    },
                ),
            ],
            &["id"],
            &[("price", Encoding::Base64)],
        );
        let mut topic = topic(&schema);
        let base64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==";
        let image = json!({"id": 1, "text": DEFAULT_PLACEHOLDER, "bytes": base64, "list": [DEFAULT_PLACEHOLDER], "price": base64});
        topic
            .send(None, Some(&change("u", &Value::Null, &image)))
            .unwrap();
        topic
            .send(
                None,
                Some(&change(
                    "u",
                    &Value::Null,
                    &json!({"id": 2, "list": "kept", "price": "Bdw=", "text": base64}),
                )),
            )
            .unwrap();
        topic.send(None, Some(&change("u", &Value::Null, &json!({"list": [1, {"a": null}], "id": 3, "text": "", "bytes": "", "price": null})))).unwrap();
        assert_eq!(
            topic.take(&["id", "text", "bytes", "list", "price", "_cdc_unavailable"]),
            [
                ["1", "∅", "∅", "∅", "∅", "[text, bytes, list, price]"],
                ["2", base64, "∅", "kept", "150.0", "[bytes]"],
                ["3", "", "", r#"[1,{"a":null}]"#, "∅", "∅"],
            ]
        );
    }

    /// A row of a snapshot has no say in the claim, so it must be known as one.
    #[test]
    fn snapshot_markers_are_kept() {
        let mut topic = topic(&orders());
        let markers = [
            ("r", json!("first"), Snapshot::Initial),
            ("r", json!("true"), Snapshot::Initial),
            ("r", json!(true), Snapshot::Initial),
            ("r", json!("last_in_data_collection"), Snapshot::Initial),
            ("r", json!("last"), Snapshot::Last),
            ("r", json!("incremental"), Snapshot::Incremental),
            ("r", json!("false"), Snapshot::Initial),
            ("u", json!("false"), Snapshot::Streamed),
            ("u", json!(false), Snapshot::Streamed),
            ("u", Value::Null, Snapshot::Streamed),
        ];
        for (op, marker, snapshot) in markers {
            let mut source = mysql(1, 0);
            source["snapshot"] = marker;
            let message = json!({"op": op, "source": source, "after": order(1, "")}).to_string();
            topic.send(None, Some(message.as_bytes())).unwrap();
            assert_eq!(
                topic.rows.facts().last().unwrap().snapshot,
                snapshot,
                "{message}"
            );
        }
    }

    /// Two transactions that overlap commit in one order and write in another: the commit decides.
    #[test]
    fn postgres_positions_follow_the_commits() {
        let mut topic = topic(&orders());
        let mut position = |sequence: Value, lsn: Value| {
            let source = json!({"connector": "postgresql", "name": "shop", "db": "shop", "ts_ms": 1_796_032_800_000_i64, "sequence": sequence, "lsn": lsn});
            let message = json!({"op": "c", "source": source, "after": order(1, "")}).to_string();
            topic.send(None, Some(message.as_bytes())).unwrap();
            let facts = topic.rows.facts().last().unwrap();
            (facts.position, facts.sub)
        };
        assert_eq!(position(json!("[null,\"100\"]"), json!(100)), (100, 0));
        assert_eq!(position(json!("[\"200\",\"250\"]"), json!(250)), (200, 50));
        assert_eq!(
            position(json!("[\"300\",\"150\"]"), json!(150)),
            (300, -150)
        );
        assert_eq!(
            position(
                json!("[\"300\",\"900000000000\"]"),
                json!(900_000_000_000_i64)
            ),
            (300, i32::MAX)
        );
        assert_eq!(position(json!("[\"400\",\"400\"]"), Value::Null), (400, 0));
        assert_eq!(position(Value::Null, json!(500)), (500, 0));
        assert_eq!(topic.rows.sources(), ["postgresql/shop/shop".into()]);
    }

    /// A sentinel as event time would hold or break a claim: it is none, and what came is kept.
    #[test]
    fn an_unusable_event_time_is_kept_as_it_came() {
        let mut topic = topic(&orders());
        for time in ["0", "4102444800000000", "\"soon\"", "null"] {
            let message = format!(
                r#"{{"op":"c","source":{{"ts_ms":{time},"ts_us":null}},"after":{{"id":1}}}}"#
            );
            topic.send(None, Some(message.as_bytes())).unwrap();
        }
        assert_eq!(topic.rows.facts()[0].event_time_us, NO_TIME);
        assert_eq!(topic.rows.facts()[0].commit_time_us, NO_TIME);
        assert_eq!(
            topic.take(&["_cdc_event_time", "_cdc_event_time_raw"]),
            [
                ["∅", "0"],
                ["∅", "4102444800000000"],
                ["∅", "\"soon\""],
                ["∅", "∅"]
            ]
        );
    }

    /// Event time and what came in its place, for one image and its headers.
    fn time(from: EventTimeFrom, image: &Value, headers: &[(&str, &[u8])]) -> Vec<String> {
        let schema = orders();
        let mut topic = Topic::new(&schema, Debezium::new(&schema, from));
        let message = change("c", &Value::Null, image);
        topic.send_with(None, Some(&message), headers).unwrap();
        topic
            .take(&["_cdc_event_time", "_cdc_event_time_raw"])
            .remove(0)
    }

    /// A field of the image is the event time, with or without a column of its name.
    #[test]
    fn event_time_comes_from_a_field() {
        let at = "2026-11-30T10:00:00Z";
        let cases = [
            (
                "at",
                json!({"id": 1, "at": 1_796_032_800_000_i64}),
                [at, "∅"],
            ),
            (
                "at",
                json!({"id": 1, "at": "2026-11-30T11:00:00+01:00"}),
                [at, "∅"],
            ),
            ("at", json!({"id": 1, "at": null}), ["∅", "∅"]),
            ("at", json!({"id": 1}), ["∅", "∅"]),
            (
                "at",
                json!({"id": 1, "at": "9999-12-31"}),
                ["∅", "9999-12-31"],
            ),
            (
                "elsewhere",
                json!({"id": 1, "elsewhere": 1_796_032_800}),
                [at, "∅"],
            ),
            ("id", json!({"id": 1_796_032_800_000_i64}), [at, "∅"]),
        ];
        for (name, image, expected) in cases {
            let found = time(EventTimeFrom::Column(name.to_owned()), &image, &[]);
            assert_eq!(found, expected, "{name}: {image}");
        }
    }

    /// The last header of the name is the event time, as text or as a long.
    #[test]
    fn event_time_comes_from_a_header_or_the_record() {
        type Headers<'a> = &'a [(&'a str, &'a [u8])];
        let at = "2026-11-30T10:00:00Z";
        let long = 1_796_032_800_000_i64.to_be_bytes();
        let cases: [(Headers<'_>, [&str; 2]); 4] = [
            (&[("time", b"x"), ("time", b"1796032800000")], [at, "∅"]),
            (&[("time", &long)], [at, "∅"]),
            (&[("time", b"\xff\xff")], ["∅", "\u{fffd}\u{fffd}"]),
            (&[], ["∅", "∅"]),
        ];
        for (headers, expected) in cases {
            let from = EventTimeFrom::Header("time".to_owned());
            assert_eq!(time(from, &order(1, ""), headers), expected);
        }
        assert_eq!(
            time(EventTimeFrom::RecordTimestamp, &order(1, ""), &[]),
            [at, "∅"]
        );
    }

    /// What is no row is told apart, and leaves none.
    #[test]
    fn signals_are_no_rows() {
        let mut topic = topic(&orders());
        let source = mysql(1, 0);
        let signals = [
            (
                json!({"ts_ms": 1_796_032_800_000_i64}),
                Signal::Heartbeat {
                    clock_us: 1_796_032_800_000_000,
                },
            ),
            (
                json!({"source": source, "ts_ms": 1, "databaseName": "shop", "ddl": "DROP TABLE x", "tableChanges": []}),
                Signal::SchemaChange,
            ),
            (
                json!({"status": "BEGIN", "id": "7", "event_count": null, "ts_ms": 1}),
                Signal::TransactionBegin,
            ),
            (
                json!({"status": "END", "id": "7", "event_count": 3, "data_collections": [], "ts_ms": 1}),
                Signal::TransactionEnd,
            ),
            (
                json!({"op": "m", "ts_ms": 1, "source": source, "message": {"prefix": "a", "content": "AA=="}}),
                Signal::LogicalMessage,
            ),
        ];
        assert_eq!(
            topic.send(Some("k"), None),
            Ok(Decoded::Signal(Signal::Tombstone))
        );
        for (message, signal) in signals {
            assert_eq!(
                topic.send(None, Some(message.to_string().as_bytes())),
                Ok(Decoded::Signal(signal)),
                "{message}"
            );
        }
        assert!(topic.rows.is_empty());
    }

    /// A truncation has no key, and the table refuses null in it: the empty value is named as one that was not there.
    #[test]
    fn a_truncation_keeps_a_required_key_empty_and_says_so() {
        let mut topic = topic(&orders());
        let truncation = change("t", &Value::Null, &Value::Null);
        topic.send(None, Some(&truncation)).unwrap();
        assert_eq!(
            topic.take(&["_cdc_op", "id", "_cdc_unavailable"]),
            [["t", "0", "[id]"]]
        );
    }

    /// Where the key may be null, a truncation is a row of nulls.
    #[test]
    fn a_truncation_is_a_row_of_nulls() {
        let mut topic = topic(&table(
            &[("id", Kind::Long), ("note", Kind::String)],
            &[],
            &[],
        ));
        topic
            .send(None, Some(&change("t", &Value::Null, &Value::Null)))
            .unwrap();
        assert_eq!(
            topic.take(&["_cdc_op", "id", "note", "_cdc_unavailable"]),
            [["t", "∅", "∅", "∅"]]
        );
    }

    /// A fault says what to do, and never what the row holds.
    #[test]
    fn faults_name_the_remedy_and_not_the_value() {
        let mut topic = topic(&orders());
        let image = |members: &str| format!(r#"{{"op":"c","after":{{"id":1,{members}}}}}"#);
        let faults = [
            (
                r#"{"schema":{},"payload":{"op":"c"}}"#.to_owned(),
                "the message carries its schema; set value.converter.schemas.enable=false on the connector",
            ),
            (
                r#"{"id":1}"#.to_owned(),
                "the message has no \"op\" and is no heartbeat, schema change or transaction; is the topic's format right?",
            ),
            (
                r#"{"op":"x","after":{"id":1}}"#.to_owned(),
                "unknown \"op\"; expected one of c, u, d, r, t, m",
            ),
            (
                r#"{"op":"c","after":null}"#.to_owned(),
                "a change of kind \"c\" without a row image",
            ),
            (
                r#"{"op":"d","before":null}"#.to_owned(),
                "a change of kind \"d\" without a row image",
            ),
            (
                r#"{"op":"c","after":[1]}"#.to_owned(),
                "\"after\" is repeated or not of its kind",
            ),
            (
                r#"{"op":"c","after":{"id":1},"after":{"note":""}}"#.to_owned(),
                "\"after\" is repeated or not of its kind",
            ),
            (
                image(r#""note":"a","note":"b""#),
                "column \"note\" is there twice",
            ),
            (
                image(r#""price":"secret""#),
                "column \"price\": the value does not fit the type decimal(12,2); change the type, or the column's encoding",
            ),
            (
                image(r#""price":"0.001""#),
                "column \"price\": the value is out of range for the type decimal(12,2); widen the column",
            ),
            (
                r#"{"op":"c","after":{"note":"x"}}"#.to_owned(),
                "column \"id\" is required and the change has no value for it; make the column optional",
            ),
            (
                r#"{"op":"c","after":{"id":1}} x"#.to_owned(),
                "byte 28: not the JSON expected here; is the topic's format right?",
            ),
            (
                String::new(),
                "byte 0: not the JSON expected here; is the topic's format right?",
            ),
        ];
        for (message, expected) in faults {
            let fault = topic.send(None, Some(message.as_bytes())).unwrap_err();
            assert_eq!(fault.to_string(), expected, "{message}");
            assert!(!fault.reason().is_empty());
        }
        let plain = table(&[("at", Kind::Timestamptz)], &[], &[]);
        let fault = self::topic(&plain)
            .send(None, Some(br#"{"op":"c","after":{"at":1796032800000}}"#))
            .unwrap_err();
        assert_eq!(
            fault.to_string(),
            "column \"at\": a number for the type timestamptz; declare its encoding: seconds, millis, micros or nanos"
        );
    }

    /// A new column in the source must not go unnoticed, nor fill the log.
    #[test]
    fn unknown_fields_are_counted_and_named_once() {
        let mut topic = topic(&orders());
        for _ in 0..3 {
            topic
                .send(
                    None,
                    Some(&change(
                        "c",
                        &Value::Null,
                        &json!({"id": 1, "new": {"a": 1}, "newer": 2}),
                    )),
                )
                .unwrap();
        }
        let fields = topic.decoder.take_unknown();
        assert_eq!(
            (fields.count, fields.new_names),
            (6, vec!["new".to_owned(), "newer".to_owned()])
        );
        assert_eq!(topic.decoder.take_unknown(), UnknownFields::default());
    }

    /// More columns than a machine word has bits, in an order that changes.
    #[test]
    fn a_table_may_have_any_number_of_columns() {
        let names: Vec<String> = (0..300).map(|n| format!("column_{n}")).collect();
        let columns: Vec<(&str, Kind)> = names.iter().map(|name| (&**name, Kind::Int)).collect();
        let mut topic = topic(&table(&columns, &[], &[]));
        for turn in 0..3 {
            let members = names.iter().enumerate().cycle().skip(turn * 100).take(299);
            let members: Vec<String> = members.map(|(n, name)| format!("\"{name}\":{n}")).collect();
            let message = format!(r#"{{"op":"c","after":{{{}}}}}"#, members.join(","));
            topic.send(None, Some(message.as_bytes())).unwrap();
        }
        let rows = topic.take(&[
            "column_0",
            "column_99",
            "column_199",
            "column_299",
            "_cdc_unavailable",
        ]);
        assert_eq!(
            rows,
            [
                ["0", "99", "199", "∅", "[column_299]"],
                ["0", "∅", "199", "299", "[column_99]"],
                ["0", "99", "∅", "299", "[column_199]"],
            ]
        );
    }

    fn ticdc(schema: &Arc<RowSchema>) -> Topic<Debezium> {
        Topic::new(
            schema,
            Debezium::of_ticdc(schema, EventTimeFrom::SourceCommit),
        )
    }

    const TSO: i64 = 470_827_662_540_800_001;

    /// A message of TiCDC, in the order of its members.
    fn from_ticdc(op: &str, before: &Value, after: &Value) -> Vec<u8> {
        let source = format!(
            r#"{{"version":"2.4.0.Final","connector":"TiCDC","name":"shop","ts_ms":{},"snapshot":"false","db":"shop","table":"orders","server_id":0,"gtid":null,"file":"","pos":0,"row":0,"thread":0,"query":null,"commit_ts":{TSO},"cluster_id":"shop"}}"#,
            TSO >> 18
        );
        let payload = format!(
            r#"{{"source":{source},"ts_ms":1796064997000,"transaction":null,"op":"{op}","before":{before},"after":{after}}}"#
        );
        format!(r#"{{"payload":{payload},"schema":{{"type":"struct","fields":[]}}}}"#).into_bytes()
    }

    /// Two commits of one millisecond keep their order; a double would join them.
    #[test]
    fn the_position_of_ticdc_is_the_commit_timestamp() {
        let mut topic = ticdc(&orders());
        for tso in [TSO, TSO + 1] {
            let message = from_ticdc("c", &Value::Null, &order(7, "fragile"));
            let message = String::from_utf8(message).unwrap();
            let message = message.replace(&TSO.to_string(), &tso.to_string());
            topic.send(None, Some(message.as_bytes())).unwrap();
        }
        let facts = topic.rows.facts();
        assert_eq!([facts[0].position, facts[1].position], [TSO, TSO + 1]);
        for facts in facts {
            assert_eq!(facts.event_time_us, 1_796_064_996_875_000);
            assert_eq!((facts.commit_time_us, facts.sub), (facts.event_time_us, 0));
        }
        assert_eq!(topic.rows.sources(), ["TiCDC/shop/0".into()]);
        assert!(!topic.decoder.in_source_order());
    }

    /// A column that a delete leaves out is not null, but the key is in the record's key, wrapped like the message.
    #[test]
    fn the_key_of_ticdc_is_wrapped_too() {
        let mut topic = ticdc(&orders());
        let message = from_ticdc("d", &json!({"note": "was"}), &Value::Null);
        let key = r#"{"payload":{"id":7},"schema":{"type":"struct"}}"#;
        topic.send(Some(key), Some(&message)).unwrap();
        assert_eq!(
            topic.take(&["_cdc_op", "id", "note", "_cdc_unavailable"]),
            [["d", "7", "was", "[price, paid, weight, at]"]]
        );
    }

    /// A logical message of PostgreSQL and a watermark of TiCDC have the same letter.
    #[test]
    fn a_watermark_is_one_only_from_ticdc() {
        let message = from_ticdc("m", &Value::Null, &Value::Null);
        let resolved = Signal::resolved(TSO).unwrap();
        assert_eq!(
            ticdc(&orders()).send(None, Some(&message)),
            Ok(Decoded::Signal(resolved))
        );
        let logical = br#"{"op":"m","source":{"commit_ts":470827662540800001}}"#;
        assert_eq!(
            topic(&orders()).send(None, Some(logical)),
            Ok(Decoded::Signal(Signal::LogicalMessage))
        );
    }

    #[test]
    fn faults_of_ticdc_name_the_member() {
        let mut topic = ticdc(&orders());
        let row = r#""after":{"id":1}"#;
        for (message, expected) in [
            (
                format!(r#"{{"op":"c",{row}}}"#),
                "the message or its key has no \"payload\"; is the topic's format right?",
            ),
            (
                r#"{"payload":null}"#.to_owned(),
                "\"payload\" is repeated or not of its kind",
            ),
            (
                r#"{"payload":{},"payload":{}}"#.to_owned(),
                "\"payload\" is repeated or not of its kind",
            ),
            (
                format!(r#"{{"payload":{{"op":"c",{row}}}}}"#),
                "\"source.commit_ts\" is repeated or not of its kind",
            ),
            (
                format!(r#"{{"payload":{{"op":"c",{row},"source":{{"commit_ts":1}}}}}}"#),
                "\"source.commit_ts\" is repeated or not of its kind",
            ),
            (
                r#"{"payload":{"op":"m","source":{"commit_ts":null}}}"#.to_owned(),
                "\"source.commit_ts\" is repeated or not of its kind",
            ),
        ] {
            let fault = topic.send(None, Some(message.as_bytes())).unwrap_err();
            assert_eq!(fault.to_string(), expected, "{message}");
        }
    }

    /// One row image: for each column a value's JSON text, or nothing.
    fn image() -> impl Strategy<Value = [Option<String>; 6]> {
        let maybe = |text: BoxedStrategy<String>| {
            prop::option::weighted(0.9, prop_oneof![9 => text, 1 => Just("null".to_owned())])
        };
        let quoted = |n: String, quote: bool| if quote { format!("\"{n}\"") } else { n };
        [
            maybe(
                (any::<i64>(), any::<bool>())
                    .prop_map(move |(n, quote)| quoted(n.to_string(), quote))
                    .boxed(),
            ),
            maybe(
                (-99_999_999_i64..99_999_999, 0..4_usize, any::<bool>())
                    .prop_map(move |(n, digits, quote)| {
                        let sign = if n < 0 { "-" } else { "" };
                        let digits_of_n =
                            format!("{:0>width$}", n.unsigned_abs(), width = digits + 1);
                        let (whole, fraction) = digits_of_n.split_at(digits_of_n.len() - digits);
                        let point = if digits > 0 { "." } else { "" };
                        quoted(format!("{sign}{whole}{point}{fraction}"), quote)
                    })
                    .boxed(),
            ),
            maybe(
                prop_oneof![
                    any::<String>().prop_map(|text| json!(text).to_string()),
                    super::super::scan::tests::json()
                ]
                .boxed(),
            ),
            maybe(
                prop_oneof![
                    "true", "false", "0", "1", "\"true\"", "\"1\"", "2", "\"yes\""
                ]
                .boxed(),
            ),
            maybe(
                (
                    any::<f64>().prop_filter("a number", |n| n.is_finite()),
                    any::<bool>(),
                )
                    .prop_map(move |(n, quote)| quoted(n.to_string(), quote))
                    .boxed(),
            ),
            maybe(
                prop_oneof![
                    any::<i32>().prop_map(|n| n.to_string()),
                    Just("\"2026-11-30T10:00:00.5Z\"".to_owned()),
                    Just("\"soon\"".to_owned())
                ]
                .boxed(),
            ),
        ]
    }

    /// What a column must hold, by `serde_json` and the standard library; `None` is a fault.
    fn expected(column: usize, written: Option<&str>) -> Option<String> {
        let value = written.map_or(Value::Null, |written| {
            serde_json::from_str(written).unwrap()
        });
        let text = match &value {
            Value::Null => return (column != 0).then(|| "∅".to_owned()),
            Value::String(text) => text.clone(),
            _ => written.unwrap_or_default().to_owned(),
        };
        match (column, value) {
            (0, _) => text.parse::<i64>().ok().map(|n| n.to_string()),
            (1, _) => {
                let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
                let kept = fraction.get(..2).unwrap_or(fraction);
                let exact = fraction[kept.len()..].bytes().all(|digit| digit == b'0');
                let cents = format!("{whole}{kept:0<2}").parse::<i128>().unwrap();
                let sign = if cents < 0 { "-" } else { "" };
                exact.then(|| format!("{sign}{}.{:02}", cents.abs() / 100, cents.abs() % 100))
            }
            (3, Value::Bool(_) | Value::Number(_) | Value::String(_)) => match &*text {
                "true" | "1" => Some("true".to_owned()),
                "false" | "0" => Some("false".to_owned()),
                _ => None,
            },
            (4, _) => Some(format!("{:?}", text.parse::<f64>().unwrap() + 0.0)),
            (5, Value::Number(ms)) => Some(ms.to_string()),
            (5, _) => (text != "soon").then(|| "1796032800500".to_owned()),
            _ => Some(text),
        }
    }

    /// The row of a good image, as the table has it.
    fn found(topic: &mut Topic<Debezium>) -> Vec<Vec<String>> {
        use arrow::array::{Array as _, Float64Array, TimestampMicrosecondArray};
        let batch = topic.rows.finish();
        let weights = batch
            .column(4)
            .as_any()
            .downcast_ref::<Float64Array>()
            .unwrap();
        let times = batch
            .column(5)
            .as_any()
            .downcast_ref::<TimestampMicrosecondArray>()
            .unwrap();
        let cell = |row: usize, column: usize| match column {
            4 if weights.is_valid(row) => format!("{:?}", weights.value(row) + 0.0),
            5 if times.is_valid(row) => (times.value(row) / 1000).to_string(),
            _ => super::super::testing::cell(&batch, COLUMNS[column], row),
        };
        (0..batch.num_rows())
            .map(|row| (0..6).map(|column| cell(row, column)).collect())
            .collect()
    }

    /// The message with its members in an order of their own, and white space between.
    fn written(
        image: &[Option<String>; 6],
        order: &[usize],
        envelope: &[usize],
        space: &str,
    ) -> String {
        let members = order
            .iter()
            .filter_map(|c| image[*c].as_ref().map(|value| (COLUMNS[*c], value)));
        let members: Vec<String> = members
            .map(|(name, value)| format!("\"{name}\"{space}:{space}{value}"))
            .collect();
        let after = format!("{{{space}{}{space}}}", members.join(&format!("{space},")));
        let parts = [
            format!("\"after\":{space}{after}"),
            "\"before\":null".to_owned(),
            format!("\"source\":{}", mysql(1, 0)),
            "\"op\":\"c\"".to_owned(),
            format!("\"ts_ms\":1{space}"),
        ];
        let parts: Vec<&str> = envelope.iter().map(|part| &*parts[*part]).collect();
        format!("{space}{{{}}}{space}", parts.join(","))
    }

    fn shuffled<const N: usize>() -> impl Strategy<Value = Vec<usize>> {
        Just((0..N).collect::<Vec<_>>()).prop_shuffle()
    }

    proptest! {
        /// Messages in any order of keys, with any white space and escapes: each is a row as serde_json reads it, or a fault that leaves
        /// the others alone.
        #[test]
        fn prop_rows_are_what_serde_json_reads(
            messages in prop::collection::vec((image(), shuffled::<6>(), shuffled::<5>(), "[ \t\r\n]{0,3}"), 1..8),
        ) {
            let mut topic = topic(&orders());
            let mut rows = Vec::new();
            for (image, order, envelope, space) in &messages {
                let message = written(image, order, envelope, space);
                let row: Option<Vec<String>> = (0..6).map(|column| expected(column, image[column].as_deref())).collect();
                let decoded = topic.send(None, Some(message.as_bytes()));
                prop_assert_eq!(decoded.is_ok(), row.is_some(), "{:?}: {}", decoded, message);
                rows.extend(row);
            }
            prop_assert_eq!(topic.rows.len(), rows.len());
            prop_assert_eq!(found(&mut topic), rows);
        }

        /// Damage anywhere in a message: a row or a fault, never a panic, and the rows around it are untouched.
        #[test]
        fn prop_a_broken_row_leaves_its_neighbours(
            image in image(),
            envelope in shuffled::<5>(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in any::<prop::sample::Index>(),
        ) {
            let good = change("u", &order(1, "was"), &order(1, "good"));
            let mut topic = topic(&orders());
            topic.send(None, Some(&good)).unwrap();
            let mut message = written(&image, &[0, 1, 2, 3, 4, 5], &envelope, "").into_bytes();
            for (at, byte) in damage {
                let at = at.index(message.len());
                message[at] = byte;
            }
            let whole = serde_json::from_slice::<Value>(&message).is_ok();
            let decoded = topic.send(None, Some(&message));
            prop_assert!(whole || decoded.is_err(), "{:?}", decoded);
            message.truncate(cut.index(message.len()));
            prop_assert!(topic.send(None, Some(&message)).is_err());
            topic.send(None, Some(&good)).unwrap();
            let between = decoded.map_or(0, |decoded| match decoded {
                Decoded::Rows(rows) => rows,
                Decoded::Signal(_) => 0,
            });
            let rows = topic.take(&["id", "price", "note", "_cdc_op", "_cdc_offset"]);
            prop_assert_eq!(rows.len(), 2 + between);
            prop_assert_eq!(&rows[0], &["1", "12.50", "good", "u", "0"]);
            prop_assert_eq!(&rows[1 + between], &["1", "12.50", "good", "u", "3"]);
        }

        /// Bytes that were never JSON.
        #[test]
        fn prop_any_bytes_are_harmless(value in prop::collection::vec(any::<u8>(), 0..200), key in any::<String>()) {
            for mut topic in [topic(&orders()), ticdc(&orders())] {
                let _ = topic.send(Some(&key), Some(&value));
                prop_assert_eq!(topic.rows.finish().num_rows(), 0);
            }
        }

        /// Damage anywhere in a message of TiCDC: a row, a signal or a fault, and the rows around it are untouched.
        #[test]
        fn prop_a_broken_message_of_ticdc_leaves_its_neighbours(
            op in prop::sample::select(vec!["c", "u", "d", "m"]),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut topic = ticdc(&orders());
            let good = from_ticdc("c", &Value::Null, &order(1, "good"));
            topic.send(None, Some(&good)).unwrap();
            let mut message = from_ticdc(op, &order(2, "was"), &order(2, "is"));
            for (at, byte) in damage {
                let at = at.index(message.len());
                message[at] = byte;
            }
            let whole = serde_json::from_slice::<Value>(&message).is_ok();
            let decoded = topic.send(None, Some(&message));
            prop_assert!(whole || decoded.is_err(), "{:?}", decoded);
            topic.send(None, Some(&good)).unwrap();
            let rows = topic.take(&["id", "note"]);
            prop_assert_eq!(rows.first(), rows.last());
        }
    }
}
