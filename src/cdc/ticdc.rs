//! TiCDC's own formats: `CanalJson` with TiDB's extension, and the `Simple` protocol in JSON.
//!
//! Both say what happened in `type`, carry the new row in `data` and the one before in `old`, and the commit timestamp of the
//! change, which is also its position. Watermarks are signals, table definitions and their changes are signals too. They differ
//! in their names, and in how a row stands there: `CanalJson` has one in an array, deletes in `data` as well, and may leave out of
//! `old` what did not change.
//!
//! A partition does not have the changes in the order of their commits; only a watermark says what can still come.

use std::sync::Arc;

use super::batch::Rows;
use super::event_time::EventTimes;
use super::facts::{Absent, Change, EventTime, Op, Snapshot};
use super::image::{Image, Span};
use super::keys::Keys;
use super::scan::Scan;
use super::schema::RowSchema;
use super::{
    Bad, Decoded, Decoder, EventTimeFrom, Fault, Format, Record, Signal, UnknownFields, decode, tso,
};

/// Decodes one of TiCDC's own formats into the rows of one table.
pub struct TiCdc {
    schema: Arc<RowSchema>,
    protocol: Protocol,
    event_times: EventTimes,
    members: Keys<Member>,
    extension: Keys<Member>,
    image: Image,
    /// Where the key columns stand in `old`.
    old_key: Vec<Span>,
    unescaped: String,
}

/// Which of the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    CanalJson,
    Simple,
}

/// The members of a message that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Type,
    IsDdl,
    Data,
    Old,
    Extension,
    CommitTs,
    WatermarkTs,
    KeyOnly,
    ClaimCheck,
    Version,
    Other,
}

/// What kind of message it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Unknown,
    Change(Op),
    Watermark,
    Definition,
}

/// What one message says. A place of 0 is none: a row never stands there.
#[derive(Default)]
struct Envelope {
    seen: u16,
    kind: Kind,
    data: usize,
    old: usize,
    commit: Option<i64>,
    watermark: Option<i64>,
    incomplete: bool,
}

impl TiCdc {
    /// A decoder of `CanalJson` for rows of `schema`.
    #[must_use]
    pub fn canal_json(schema: &Arc<RowSchema>, event_time: EventTimeFrom) -> TiCdc {
        TiCdc::new(schema, event_time, Protocol::CanalJson)
    }

    /// A decoder of the `Simple` protocol in JSON for rows of `schema`.
    #[must_use]
    pub fn simple(schema: &Arc<RowSchema>, event_time: EventTimeFrom) -> TiCdc {
        TiCdc::new(schema, event_time, Protocol::Simple)
    }

    fn new(schema: &Arc<RowSchema>, event_time: EventTimeFrom, protocol: Protocol) -> TiCdc {
        let event_times = EventTimes::new(event_time, schema);
        let keys = |members: &[(&str, Member)]| {
            let named = members
                .iter()
                .map(|(name, member)| (name.to_string(), *member));
            Keys::new(named, Member::Other)
        };
        let members: &[(&str, Member)] = match protocol {
            Protocol::CanalJson => &[
                ("type", Member::Type),
                ("isDdl", Member::IsDdl),
                ("data", Member::Data),
                ("old", Member::Old),
                ("_tidb", Member::Extension),
            ],
            Protocol::Simple => &[
                ("version", Member::Version),
                ("type", Member::Type),
                ("data", Member::Data),
                ("old", Member::Old),
                ("commitTs", Member::CommitTs),
                ("handleKeyOnly", Member::KeyOnly),
                ("claimCheckLocation", Member::ClaimCheck),
            ],
        };
        let extension = [
            ("commitTs", Member::CommitTs),
            ("watermarkTs", Member::WatermarkTs),
            ("onlyHandleKey", Member::KeyOnly),
            ("claimCheckLocation", Member::ClaimCheck),
        ];
        TiCdc {
            schema: Arc::clone(schema),
            protocol,
            members: keys(members),
            extension: keys(&extension),
            // TiCDC leaves a column out where it leaves one out.
            image: Image::new(schema, event_times.field(), ""),
            event_times,
            old_key: vec![(0, 0); schema.key().len()],
            unescaped: String::new(),
        }
    }
}

impl Decoder for TiCdc {
    fn decode(&mut self, record: &Record<'_>, rows: &mut Rows) -> Result<Decoded, Fault> {
        decode(self, record, rows)
    }

    fn in_source_order(&self) -> bool {
        false
    }

    fn take_unknown(&mut self) -> UnknownFields {
        let mut fields = UnknownFields::default();
        self.image.report(&mut fields);
        fields
    }
}

impl Format for TiCdc {
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

impl TiCdc {
    fn message(
        &mut self,
        record: &Record<'_>,
        message: &[u8],
        rows: &mut Rows,
    ) -> Result<Decoded, Bad> {
        let first = rows.len();
        let envelope = self.envelope(message, rows)?;
        let op = match envelope.kind {
            Kind::Change(op) => op,
            Kind::Unknown => return Err(Bad::UnknownType),
            Kind::Watermark | Kind::Definition => {
                rows.roll_back_to(first);
                return envelope.signal(self.protocol).map(Decoded::Signal);
            }
        };
        let commit = self.commit(&envelope)?;
        // Of a row that is gone the key is enough.
        if envelope.incomplete && op != Op::Delete {
            return Err(Bad::Incomplete);
        }
        if op == Op::Update && self.key_changed(message) {
            rows.roll_back_to(first);
            self.fill(message, envelope.old, rows)?;
            self.fill_missing(message, envelope.data, rows)?;
            self.close(record, message, (Op::Delete, commit), rows)?;
            self.fill(message, envelope.data, rows)?;
            self.close(record, message, (Op::Create, commit), rows)?;
            return Ok(Decoded::Rows(2));
        }
        let place = match (op, self.protocol) {
            (Op::Delete, Protocol::Simple) => envelope.old,
            _ => envelope.data,
        };
        if place == 0 {
            return Err(Bad::NoImage(op as u8));
        }
        if place != envelope.data {
            rows.roll_back_to(first);
            self.fill(message, place, rows)?;
        }
        self.close(record, message, (op, commit), rows)?;
        Ok(Decoded::Rows(1))
    }

    /// Reads the message. A row in `data` goes into the open row at once: it usually is the row.
    fn envelope(&mut self, message: &[u8], rows: &mut Rows) -> Result<Envelope, Bad> {
        let mut envelope = Envelope::default();
        let mut scan = Scan::new(message, &mut self.unescaped);
        let TiCdc {
            protocol,
            members,
            extension,
            image,
            old_key,
            ..
        } = self;
        old_key.fill((0, 0));
        scan.object(members, |scan, member| {
            envelope.see(member)?;
            match member {
                Member::Data => {
                    envelope.data = row(*protocol, scan, "data", |scan| image.fill(scan, rows))?;
                }
                Member::Old => {
                    envelope.old = row(*protocol, scan, "old", |scan| {
                        image.locate_key(scan, old_key)
                    })?;
                }
                Member::Extension if scan.object_or_null("_tidb")? => {
                    return scan.object(extension, |scan, member| {
                        envelope.see(member)?;
                        envelope.read(member, *protocol, scan)
                    });
                }
                Member::Extension => {}
                member => return envelope.read(member, *protocol, scan),
            }
            Ok(())
        })?;
        scan.end()?;
        Ok(envelope)
    }

    /// Fills the open row from the image at `place`.
    fn fill(&mut self, message: &[u8], place: usize, rows: &mut Rows) -> Result<(), Bad> {
        let mut scan = Scan::new(message, &mut self.unescaped);
        scan.at = place;
        self.image.fill(&mut scan, rows)
    }

    /// Fills what the open row does not have from the image at `place`.
    fn fill_missing(&mut self, message: &[u8], place: usize, rows: &mut Rows) -> Result<(), Bad> {
        let mut scan = Scan::new(message, &mut self.unescaped);
        scan.at = place;
        self.image.fill_missing(&mut scan, rows)
    }

    /// Whether `old` has a key column with another value than `data`: a column that it does not have is the same.
    fn key_changed(&self, message: &[u8]) -> bool {
        let pairs = self.old_key.iter().zip(self.image.key_spans());
        let there = pairs.filter(|(old, new)| old.1 != 0 && new.1 != 0);
        there
            .into_iter()
            .any(|(old, new)| message[old.0..old.1] != message[new.0..new.1])
    }

    /// The commit timestamp of a change, and its time in µs.
    fn commit(&self, envelope: &Envelope) -> Result<(i64, i64), Bad> {
        let (member, known) = match self.protocol {
            Protocol::CanalJson => ("_tidb.commitTs", envelope.has(Member::CommitTs)),
            Protocol::Simple => ("commitTs", true),
        };
        if !known {
            return Err(Bad::NoExtension);
        }
        let commit = envelope
            .commit
            .and_then(|tso| Some((tso, tso::time_us(tso)?)));
        commit.ok_or(Bad::Member(member))
    }

    /// Closes the open row.
    fn close(
        &mut self,
        record: &Record<'_>,
        message: &[u8],
        (op, (commit, commit_time_us)): (Op, (i64, i64)),
        rows: &mut Rows,
    ) -> Result<(), Bad> {
        let image = (&self.image, &*self.schema, message);
        let change = Change {
            op,
            event_time: self
                .event_times
                .of(record, image, || EventTime::At(commit_time_us)),
            commit_time_us,
            position: commit,
            sub: 0,
            source: rows.source(self.protocol.source()),
            snapshot: Snapshot::Streamed,
        };
        rows.close(record, &change, Absent::Unavailable)
    }
}

impl Protocol {
    /// What names the source: a message does not say from which cluster it is.
    fn source(self) -> &'static str {
        match self {
            Protocol::CanalJson => "ticdc/canal-json",
            Protocol::Simple => "ticdc/simple",
        }
    }

    /// What a `type` means.
    fn kind(self, name: &[u8]) -> Kind {
        match (self, name) {
            (_, b"INSERT") => Kind::Change(Op::Create),
            (_, b"UPDATE") => Kind::Change(Op::Update),
            (_, b"DELETE") => Kind::Change(Op::Delete),
            (Protocol::CanalJson, b"TIDB_WATERMARK") | (Protocol::Simple, b"WATERMARK") => {
                Kind::Watermark
            }
            (Protocol::Simple, b"BOOTSTRAP")
            | (
                _,
                b"CREATE" | b"RENAME" | b"CINDEX" | b"DINDEX" | b"ERASE" | b"TRUNCATE" | b"ALTER"
                | b"QUERY",
            ) => Kind::Definition,
            _ => Kind::Unknown,
        }
    }
}

impl Envelope {
    /// Each member that matters comes once.
    #[inline]
    fn see(&mut self, member: Member) -> Result<(), Bad> {
        let bit = 1 << (member as u16);
        let repeated = self.seen & bit != 0;
        self.seen |= bit;
        if repeated && member != Member::Other {
            return Err(Bad::Member(member.name()));
        }
        Ok(())
    }

    fn has(&self, member: Member) -> bool {
        self.seen & (1 << (member as u16)) != 0
    }

    /// Reads a member that is no row.
    #[inline]
    fn read(&mut self, member: Member, protocol: Protocol, scan: &mut Scan<'_>) -> Result<(), Bad> {
        match member {
            Member::Type => {
                if scan.token() != b'"' {
                    return Err(Bad::Member("type"));
                }
                let text = scan.text()?;
                // A change of definitions stays one, whatever canal calls it.
                if self.kind != Kind::Definition {
                    self.kind = protocol.kind(scan.bytes(text));
                }
            }
            Member::IsDdl => {
                if flag(scan, "isDdl")? {
                    self.kind = Kind::Definition;
                }
            }
            Member::CommitTs => self.commit = tso::read(scan)?,
            Member::WatermarkTs => self.watermark = tso::read(scan)?,
            Member::KeyOnly => self.incomplete |= flag(scan, member.name())?,
            Member::ClaimCheck => {
                let location = scan.span()?;
                self.incomplete |=
                    !matches!(&scan.message[location.0..location.1], b"\"\"" | b"null");
            }
            Member::Version => {
                if scan.int()? != Some(1) {
                    return Err(Bad::Member("version"));
                }
            }
            _ => return scan.skip(),
        }
        Ok(())
    }

    /// What a message without a row says.
    fn signal(&self, protocol: Protocol) -> Result<Signal, Bad> {
        if self.kind == Kind::Definition {
            return Ok(Signal::SchemaChange);
        }
        let (tso, member) = match protocol {
            Protocol::CanalJson => (self.watermark, "_tidb.watermarkTs"),
            Protocol::Simple => (self.commit, "commitTs"),
        };
        tso.and_then(Signal::resolved).ok_or(Bad::Member(member))
    }
}

impl Member {
    fn name(self) -> &'static str {
        match self {
            Member::Type => "type",
            Member::IsDdl => "isDdl",
            Member::Data => "data",
            Member::Old => "old",
            Member::Extension => "_tidb",
            Member::CommitTs => "commitTs",
            Member::WatermarkTs => "watermarkTs",
            Member::KeyOnly => "handleKeyOnly",
            Member::ClaimCheck => "claimCheckLocation",
            Member::Version => "version",
            Member::Other => "",
        }
    }
}

/// The place of the row here, which `read` moves past; 0 where there is none. TiCDC sends one row a message.
#[inline]
fn row(
    protocol: Protocol,
    scan: &mut Scan<'_>,
    member: &'static str,
    read: impl FnOnce(&mut Scan<'_>) -> Result<(), Bad>,
) -> Result<usize, Bad> {
    let in_array = protocol == Protocol::CanalJson;
    match scan.token() {
        b'n' => return scan.word(b"null").map(|()| 0),
        b'[' if in_array => scan.at += 1,
        b'{' if !in_array => {}
        _ => return Err(Bad::Member(member)),
    }
    match scan.token() {
        b']' if in_array => {
            scan.at += 1;
            return Ok(0);
        }
        b'{' => {}
        _ => return Err(Bad::Member(member)),
    }
    let place = scan.at;
    read(scan)?;
    if in_array {
        match scan.token() {
            b']' => scan.at += 1,
            _ => return Err(Bad::Member(member)),
        }
    }
    Ok(place)
}

/// A boolean.
fn flag(scan: &mut Scan<'_>, member: &'static str) -> Result<bool, Bad> {
    match scan.token() {
        b't' => scan.word(b"true").map(|()| true),
        b'f' => scan.word(b"false").map(|()| false),
        _ => Err(Bad::Member(member)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::testing::{Topic, table};
    use super::super::{Encoding, Kind as Type, RowFacts};
    use super::*;

    const TSO: i64 = 470_827_662_540_800_001;
    const TIME_US: i64 = 1_796_064_996_875_000;

    fn orders() -> Arc<RowSchema> {
        let columns = [
            ("id", Type::Long),
            ("region", Type::String),
            ("note", Type::String),
            ("seen", Type::Timestamp),
        ];
        table(&columns, &["id", "region"], &[("seen", Encoding::Iso)])
    }

    fn topics() -> [Topic<TiCdc>; 2] {
        let schema = orders();
        let from = || EventTimeFrom::SourceCommit;
        [
            Topic::new(&schema, TiCdc::canal_json(&schema, from())),
            Topic::new(&schema, TiCdc::simple(&schema, from())),
        ]
    }

    /// The same message in each format. A delete's row goes where the format has it.
    fn messages(kind: &str, data: &Value, old: &Value) -> [Vec<u8>; 2] {
        let list = |row: &Value| {
            if row.is_null() {
                Value::Null
            } else {
                json!([row])
            }
        };
        let canal = json!({
            "id": 0, "database": "shop", "table": "orders", "pkNames": ["id"], "isDdl": false, "type": kind, "es": TIME_US / 1000,
            "ts": 1, "sql": "", "sqlType": {"id": -5}, "mysqlType": {"id": "bigint"}, "old": list(old), "data": list(data),
            "_tidb": {"commitTs": TSO},
        });
        let (data, old) = if kind == "DELETE" {
            (old, data)
        } else {
            (data, old)
        };
        let mut simple = json!({
            "version": 1, "database": "shop", "table": "orders", "tableID": 5, "type": kind, "commitTs": TSO, "buildTs": 1,
            "schemaVersion": 447_984_074_911_121_426_i64,
        });
        for (member, row) in [("data", data), ("old", old)] {
            if !row.is_null() {
                simple[member] = row.clone();
            }
        }
        [canal, simple].map(|message| message.to_string().into_bytes())
    }

    fn order(id: &str, note: &str) -> Value {
        json!({"id": id, "region": "eu", "note": note, "seen": "2026-11-30 10:00:00"})
    }

    /// Sends the message to both and takes the rows of each.
    fn rows_of(kind: &str, data: &Value, old: &Value, columns: &[&str]) -> Vec<Vec<String>> {
        let mut taken = Vec::new();
        for (mut topic, message) in topics().into_iter().zip(messages(kind, data, old)) {
            topic.send(None, Some(&message)).unwrap();
            taken.push(topic.take(columns));
        }
        let rows = taken.pop().unwrap();
        assert_eq!(taken[0], rows, "both formats say the same");
        rows
    }

    /// A change becomes a row: position and times are the commit timestamp's, to the last bit and the millisecond.
    #[test]
    fn a_change_becomes_a_row() {
        for (mut topic, message) in
            topics()
                .into_iter()
                .zip(messages("INSERT", &order("7", "fragile"), &Value::Null))
        {
            assert_eq!(topic.send(None, Some(&message)), Ok(Decoded::Rows(1)));
            let facts = RowFacts {
                event_time_us: TIME_US,
                record_time_us: 1_796_032_800_000_000,
                commit_time_us: TIME_US,
                offset: 0,
                position: TSO,
                ingested_at_us: 1_796_032_900_000_000,
                sub: 0,
                partition: 0,
                source: 0,
                incarnation: 0,
                op: Op::Create,
                snapshot: Snapshot::Streamed,
                replayed: false,
            };
            assert_eq!(topic.rows.facts(), [facts]);
            assert!(!topic.decoder.in_source_order());
            let rows = topic.take(&["id", "region", "note", "seen", "_cdc_unavailable"]);
            assert_eq!(rows, [["7", "eu", "fragile", "2026-11-30T10:00:00", "∅"]]);
        }
    }

    #[test]
    fn a_delete_is_the_row_before() {
        let columns = ["_cdc_op", "id", "note"];
        let rows = rows_of("DELETE", &order("7", "was"), &Value::Null, &columns);
        assert_eq!(rows, [["d", "7", "was"]]);
    }

    /// A delete may come with its key only: what is missing was left out, and is not null.
    #[test]
    fn a_delete_of_the_key_alone_says_what_it_leaves_out() {
        let key = json!({"id": "7", "region": "eu"});
        let columns = ["_cdc_op", "id", "note", "_cdc_unavailable"];
        let rows = rows_of("DELETE", &key, &Value::Null, &columns);
        assert_eq!(rows, [["d", "7", "∅", "[note, seen]"]]);
    }

    /// Whether `old` has all columns or only those that changed.
    #[test]
    fn a_change_of_key_is_a_delete_and_a_create() {
        let columns = ["_cdc_op", "id", "region", "note", "_cdc_unavailable"];
        let new = order("8", "new");
        let expected = [["d", "7", "eu", "was", "∅"], ["c", "8", "eu", "new", "∅"]];
        for old in [order("7", "was"), json!({"note": "was", "id": "7"})] {
            assert_eq!(rows_of("UPDATE", &new, &old, &columns), expected);
        }
        let old = json!({"note": "was"});
        let rows = rows_of("UPDATE", &new, &old, &columns);
        assert_eq!(rows, [["u", "8", "eu", "new", "∅"]], "the key is the same");
        assert_eq!(rows_of("UPDATE", &new, &Value::Null, &columns), rows);
    }

    /// An event time from a column follows the row: of the delete it is what `old` has, or what did not change.
    #[test]
    fn a_change_of_key_has_the_event_time_of_each_row() {
        let schema = orders();
        let from = EventTimeFrom::Column("seen".to_owned());
        let mut topic = Topic::new(&schema, TiCdc::canal_json(&schema, from));
        let changed = json!({"id": "7", "seen": "2026-11-30 09:00:00"});
        for old in [changed, json!({"id": "7"})] {
            let [message, _] = messages("UPDATE", &order("8", "new"), &old);
            topic.send(None, Some(&message)).unwrap();
        }
        let times = topic.take(&["_cdc_op", "_cdc_event_time"]);
        assert_eq!(
            times,
            [
                ["d", "2026-11-30T09:00:00Z"],
                ["c", "2026-11-30T10:00:00Z"],
                ["d", "2026-11-30T10:00:00Z"],
                ["c", "2026-11-30T10:00:00Z"],
            ]
        );
    }

    /// Every other kind of message, and a null value.
    #[test]
    fn what_is_no_row_is_a_signal() {
        let [mut canal, mut simple] = topics();
        let resolved = Signal::resolved(TSO).unwrap();
        for (message, signal) in [
            (
                json!({"isDdl": false, "type": "TIDB_WATERMARK", "data": null, "_tidb": {"watermarkTs": TSO}}),
                resolved,
            ),
            (
                json!({"type": "TIDB_WATERMARK", "_tidb": {"watermarkTs": TSO.to_string()}}),
                resolved,
            ),
            (
                json!({"isDdl": true, "type": "ALTER", "data": null, "_tidb": {"commitTs": TSO}}),
                Signal::SchemaChange,
            ),
            (
                json!({"type": "TRUNCATE", "isDdl": true, "sql": "truncate table orders"}),
                Signal::SchemaChange,
            ),
            (
                json!({"type": "SOMETHING", "isDdl": true}),
                Signal::SchemaChange,
            ),
            (
                json!({"isDdl": true, "type": "SOMETHING"}),
                Signal::SchemaChange,
            ),
        ] {
            let decoded = canal.send(None, Some(message.to_string().as_bytes()));
            assert_eq!(decoded, Ok(Decoded::Signal(signal)), "{message}");
        }
        for (message, signal) in [
            (
                json!({"version": 1, "type": "WATERMARK", "commitTs": TSO, "buildTs": 1}),
                resolved,
            ),
            (
                json!({"version": 1, "type": "BOOTSTRAP", "commitTs": 0, "tableSchema": {}}),
                Signal::SchemaChange,
            ),
            (
                json!({"version": 1, "type": "ERASE", "commitTs": TSO, "preTableSchema": null}),
                Signal::SchemaChange,
            ),
        ] {
            let decoded = simple.send(None, Some(message.to_string().as_bytes()));
            assert_eq!(decoded, Ok(Decoded::Signal(signal)), "{message}");
        }
        assert_eq!(
            canal.send(None, None),
            Ok(Decoded::Signal(Signal::Tombstone))
        );
        assert!(canal.rows.is_empty() && simple.rows.is_empty());
    }

    /// A row cut down to its key would overwrite what it does not hold; of a row that is gone the key is enough.
    #[test]
    fn a_row_too_large_for_its_message_is_refused_unless_it_is_gone() {
        let row = r#"{"id":"1","region":"eu"}"#;
        let canal = |kind: &str, extra: &str| {
            format!(r#"{{"type":"{kind}","data":[{row}],"_tidb":{{"commitTs":{TSO},{extra}}}}}"#)
        };
        let simple = |kind: &str, extra: &str| {
            let member = if kind == "DELETE" { "old" } else { "data" };
            format!(r#"{{"version":1,"type":"{kind}","commitTs":{TSO},{extra},"{member}":{row}}}"#)
        };
        let [mut canals, mut simples] = topics();
        for kind in ["INSERT", "UPDATE", "DELETE"] {
            let expected = match kind {
                "DELETE" => Ok(Decoded::Rows(1)),
                _ => Err(Fault::Incomplete),
            };
            for extra in [
                r#""onlyHandleKey":true"#,
                r#""claimCheckLocation":"s3:/bucket/1.json""#,
            ] {
                let message = canal(kind, extra);
                assert_eq!(
                    canals.send(None, Some(message.as_bytes())),
                    expected,
                    "{message}"
                );
            }
            for extra in [
                r#""handleKeyOnly":true"#,
                r#""claimCheckLocation":"s3:/bucket/1.json""#,
            ] {
                let message = simple(kind, extra);
                assert_eq!(
                    simples.send(None, Some(message.as_bytes())),
                    expected,
                    "{message}"
                );
            }
        }
        let message = simple("INSERT", r#""handleKeyOnly":false,"claimCheckLocation":"""#);
        assert_eq!(
            simples.send(None, Some(message.as_bytes())),
            Ok(Decoded::Rows(1))
        );
    }

    /// Each message is refused with these words, and leaves nothing behind.
    fn refused(topic: &mut Topic<TiCdc>, messages: &[(String, &str)]) {
        for (message, expected) in messages {
            let fault = topic.send(None, Some(message.as_bytes())).unwrap_err();
            assert_eq!(fault.to_string(), *expected, "{message}");
            assert!(!fault.reason().is_empty());
        }
        assert!(topic.rows.is_empty());
    }

    const NO_TYPE: &str = "\"type\" is missing or unknown; expected INSERT, UPDATE, DELETE, a watermark or a change of definitions; is the topic's format right?";

    /// A fault says what is wrong with the message and what to do.
    #[test]
    fn faults_of_the_message_name_the_member() {
        let [mut canal, mut simple] = topics();
        let row = r#""data":[{"id":"1","region":"eu"}]"#;
        let insert = |extra: &str| format!(r#"{{"type":"INSERT",{row}{extra}}}"#);
        let commit = format!(r#""_tidb":{{"commitTs":{TSO}}}"#);
        let no_commit = "\"_tidb.commitTs\" is repeated or not of its kind";
        let messages = [
            (
                insert(""),
                "the change has no \"_tidb.commitTs\"; set enable-tidb-extension=true in the sink URI of the changefeed",
            ),
            (insert(r#","_tidb":{"commitTs":4.7e17}"#), no_commit),
            (insert(r#","_tidb":{"commitTs":1}"#), no_commit),
            (insert(r#","_tidb":{"commitTs":null}"#), no_commit),
            (
                insert(r#","_tidb":[]"#),
                "\"_tidb\" is repeated or not of its kind",
            ),
            (
                insert(&format!(r#","isDdl":"no",{commit}"#)),
                "\"isDdl\" is repeated or not of its kind",
            ),
            (
                r#"{"type":"TIDB_WATERMARK","_tidb":{}}"#.to_owned(),
                "\"_tidb.watermarkTs\" is repeated or not of its kind",
            ),
            (format!("{{{row},{commit}}}"), NO_TYPE),
            (format!(r#"{{"type":"WATERMARK",{commit}}}"#), NO_TYPE),
            (
                format!(r#"{{"type":1,{commit}}}"#),
                "\"type\" is repeated or not of its kind",
            ),
            (
                String::new(),
                "byte 0: not the JSON expected here; is the topic's format right?",
            ),
        ];
        refused(&mut canal, &messages);
        let messages = [
            (
                r#"{"version":2,"type":"WATERMARK","commitTs":1}"#.to_owned(),
                "\"version\" is repeated or not of its kind",
            ),
            (
                r#"{"version":1,"type":"WATERMARK","commitTs":0}"#.to_owned(),
                "\"commitTs\" is repeated or not of its kind",
            ),
            (
                r#"{"version":1,"type":"TIDB_WATERMARK"}"#.to_owned(),
                NO_TYPE,
            ),
        ];
        refused(&mut simple, &messages);
    }

    /// A fault names the column, and never what the row holds.
    #[test]
    fn faults_of_the_row_do_not_name_the_value() {
        let [mut canal, mut simple] = topics();
        let with = |kind: &str, rows: &str| {
            format!(r#"{{"type":"{kind}",{rows},"_tidb":{{"commitTs":{TSO}}}}}"#)
        };
        let no_row = "\"data\" is repeated or not of its kind";
        let messages = [
            (
                with("DELETE", r#""data":null"#),
                "a change of kind \"d\" without a row image",
            ),
            (
                with("INSERT", r#""data":[]"#),
                "a change of kind \"c\" without a row image",
            ),
            (
                with("INSERT", r#""data":[{"id":"1","region":""},{"id":"2"}]"#),
                no_row,
            ),
            (with("INSERT", r#""data":{"id":"1"}"#), no_row),
            (with("INSERT", r#""data":[],"data":[]"#), no_row),
            (
                with("INSERT", r#""data":[{"id":"secret","region":"eu"}]"#),
                "column \"id\": the value does not fit the type long; change the type, or the column's encoding",
            ),
            (
                with("INSERT", r#""data":[{"id":"18446744073709551615"}]"#),
                "column \"id\": the value is out of range for the type long; widen the column",
            ),
            (
                with("INSERT", r#""data":[{"id":"1"}]"#),
                "column \"region\" is required and the change has no value for it; make the column optional",
            ),
        ];
        refused(&mut canal, &messages);
        let with = |kind: &str, rows: &str| {
            format!(r#"{{"version":1,"type":"{kind}","commitTs":{TSO},{rows}}}"#)
        };
        let zoned = r#""data":{"id":"1","region":"eu","seen":{"location":"Local","value":"2026-11-30 10:00:00"}}"#;
        let messages = [
            (
                with("DELETE", r#""data":{"id":"1","region":"eu"}"#),
                "a change of kind \"d\" without a row image",
            ),
            (with("INSERT", r#""data":[{"id":"1"}]"#), no_row),
            (
                with("INSERT", zoned),
                "column \"seen\": the value's time zone is not known here; run TiCDC with --tz=UTC",
            ),
        ];
        refused(&mut simple, &messages);
    }

    proptest! {
        /// Members in any order, damage anywhere: a row or a fault, never a panic, and the rows around it are untouched.
        #[test]
        fn prop_a_broken_row_leaves_its_neighbours(
            order_of in Just((0..5_usize).collect::<Vec<_>>()).prop_shuffle(),
            kind in prop::sample::select(vec!["INSERT", "UPDATE", "DELETE", "TIDB_WATERMARK", "ALTER"]),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in any::<prop::sample::Index>(),
        ) {
            let [mut topic, _] = topics();
            let [good, _] = messages("UPDATE", &order("1", "good"), &order("1", "was"));
            topic.send(None, Some(&good)).unwrap();
            let row = order("7", "note \u{e9} \"\\").to_string();
            let parts = [
                format!(r#""type":"{kind}""#),
                format!(r#""data":[{row}]"#),
                format!(r#""old":[{}]"#, order("8", "was")),
                format!(r#""_tidb":{{"commitTs":{TSO},"watermarkTs":{TSO}}}"#),
                r#""mysqlType":{"id":"bigint"}"#.to_owned(),
            ];
            let parts: Vec<&str> = order_of.iter().map(|part| &*parts[*part]).collect();
            let mut message = format!("{{{}}}", parts.join(",")).into_bytes();
            let before = topic.rows.len();
            let decoded = topic.send(None, Some(&message));
            let rows = match kind {
                "UPDATE" => 2,
                "INSERT" | "DELETE" => 1,
                _ => 0,
            };
            prop_assert!(decoded.is_ok());
            prop_assert_eq!(topic.rows.len(), before + rows);
            for (at, byte) in damage {
                let at = at.index(message.len());
                message[at] = byte;
            }
            let whole = serde_json::from_slice::<Value>(&message).is_ok();
            let decoded = topic.send(None, Some(&message));
            prop_assert!(whole || decoded.is_err(), "{:?}", decoded);
            let expected = before + rows + match decoded {
                Ok(Decoded::Rows(rows)) => rows,
                _ => 0,
            };
            prop_assert_eq!(topic.rows.len(), expected);
            message.truncate(cut.index(message.len()));
            let whole = serde_json::from_slice::<Value>(&message).is_ok();
            prop_assert!(whole || topic.send(None, Some(&message)).is_err());
            topic.send(None, Some(&good)).unwrap();
            let rows = topic.take(&["id", "note"]);
            prop_assert_eq!(rows.len(), expected + 1);
            prop_assert_eq!(&rows[0], &["1", "good"]);
            prop_assert_eq!(&rows[expected], &["1", "good"]);
        }

        /// Bytes that were never JSON.
        #[test]
        fn prop_any_bytes_are_harmless(value in prop::collection::vec(any::<u8>(), 0..200)) {
            for mut topic in topics() {
                let _ = topic.send(None, Some(&value));
                prop_assert_eq!(topic.rows.finish().num_rows(), 0);
            }
        }

        /// Any bytes through ISO 8859-1 and back.
        #[test]
        fn prop_bytes_come_back_from_characters(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            use arrow::array::{Array as _, LargeBinaryArray};
            let schema = table(&[("id", Type::Long), ("data", Type::Binary)], &["id"], &[("data", Encoding::Latin1)]);
            let mut topic = Topic::new(&schema, TiCdc::canal_json(&schema, EventTimeFrom::SourceCommit));
            let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
            let [message, _] = messages("INSERT", &json!({"id": "1", "data": text}), &Value::Null);
            topic.send(None, Some(&message)).unwrap();
            let batch = topic.rows.finish();
            let found = batch.column(1).as_any().downcast_ref::<LargeBinaryArray>().unwrap();
            prop_assert_eq!(found.value(0), &bytes[..]);
        }
    }
}
