//! Debezium's JSON without the schema envelope: MySQL, MariaDB and PostgreSQL.
//!
//! A change has `op`, a row image before or after, and a `source` block with commit time and position. A record without `op` is a
//! heartbeat, a schema change or a transaction's begin or end. One update that changes the key becomes a delete and a create.
//!
//! Positions order changes as the source commits them. MySQL, MariaDB: number of the binlog file and position in it, then the row.
//! PostgreSQL: end of the commit before the row's transaction, then how far behind it the row stands; not the row's own place in the
//! log, since transactions that overlap write their rows in another order than they commit.

use std::sync::Arc;

use super::batch::{Absent, Change, EventTime, NO_TIME, Op, Rows, Snapshot};
use super::event_time::{EventTimes, usable};
use super::image::{Image, Span};
use super::instant::{Unit, is_event_time};
use super::scan::{Keys, Scan};
use super::schema::RowSchema;
use super::{Bad, Decoded, Decoder, EventTimeFrom, Fault, Record, Signal, UnknownFields};

/// What Debezium writes for a value that the source left out, unless `unavailable.value.placeholder` says otherwise.
pub const DEFAULT_PLACEHOLDER: &str = "__debezium_unavailable_value";

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
    binlog: Binlog,
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

/// The members of a source block that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceMember {
    Time(Unit),
    Snapshot,
    Connector,
    Name,
    Database,
    Server,
    File,
    Position,
    Row,
    Lsn,
    Sequence,
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

/// What its source block says.
#[derive(Default)]
struct Source {
    /// The finest commit time, how it was written, and how fine it is.
    time_us: Option<i64>,
    time: Span,
    fineness: u8,
    snapshot: Snapshot,
    connector: Span,
    name: Span,
    database: Span,
    server: Span,
    file: Span,
    position: i64,
    row: i64,
    lsn: Option<i64>,
    last_commit_lsn: Option<i64>,
}

/// The number of the binlog file named last.
#[derive(Default)]
struct Binlog {
    file: Vec<u8>,
    number: i64,
}

impl Debezium {
    /// A decoder for rows of `schema`.
    #[must_use]
    pub fn new(schema: &Arc<RowSchema>, event_time: EventTimeFrom) -> Debezium {
        Debezium::with_placeholder(schema, event_time, DEFAULT_PLACEHOLDER)
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
        let source_members = [
            ("ts_ms", SourceMember::Time(Unit::Millis)),
            ("ts_us", SourceMember::Time(Unit::Micros)),
            ("ts_ns", SourceMember::Time(Unit::Nanos)),
            ("snapshot", SourceMember::Snapshot),
            ("connector", SourceMember::Connector),
            ("name", SourceMember::Name),
            ("db", SourceMember::Database),
            ("server_id", SourceMember::Server),
            ("file", SourceMember::File),
            ("pos", SourceMember::Position),
            ("row", SourceMember::Row),
            ("lsn", SourceMember::Lsn),
            ("sequence", SourceMember::Sequence),
        ];
        Debezium {
            schema: Arc::clone(schema),
            members: Keys::new(
                members.map(|(name, member)| (name.to_owned(), member)),
                Member::Other,
            ),
            source_members: Keys::new(
                source_members.map(|(name, member)| (name.to_owned(), member)),
                SourceMember::Other,
            ),
            image: Image::new(schema, event_times.field(), placeholder),
            key: Image::new(schema, None, placeholder),
            event_times,
            before_key: vec![(0, 0); schema.key().len()],
            unescaped: String::new(),
            source_id: String::new(),
            binlog: Binlog::default(),
        }
    }
}

impl Decoder for Debezium {
    fn decode(&mut self, record: &Record<'_>, rows: &mut Rows) -> Result<Decoded, Fault> {
        assert!(
            Arc::ptr_eq(&self.schema, rows.schema()),
            "decoder and rows are of one schema"
        );
        let Some(message) = record.value else {
            return Ok(Decoded::Signal(Signal::Tombstone));
        };
        let first = rows.len();
        self.message(record, message, rows).map_err(|bad| {
            rows.roll_back_to(first);
            bad.into_fault(&self.schema)
        })
    }

    fn take_unknown(&mut self) -> UnknownFields {
        let mut fields = UnknownFields::default();
        self.image.report(&mut fields);
        self.key.report(&mut fields);
        fields
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
                return envelope.signal(message).map(Decoded::Signal);
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
            ..
        } = self;
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
            self.key.fill_rest(&mut scan, rows)?;
        }
        let id = source.parts(message);
        if !is_joined(self.source_id.as_bytes(), id) {
            self.source_id = id.map(String::from_utf8_lossy).join("/");
        }
        let (position, sub) = self.binlog.position(message, source, record.offset);
        let image = (&self.image, &*self.schema, message);
        let snapshot = match (op, source.snapshot) {
            (Op::Read, Snapshot::Streamed) => Snapshot::Initial,
            (_, snapshot) => snapshot,
        };
        let change = Change {
            op,
            event_time: self
                .event_times
                .of(record, image, || source.commit_time(message)),
            commit_time_us: source
                .time_us
                .filter(|us| is_event_time(*us))
                .unwrap_or(NO_TIME),
            position,
            sub,
            source: rows.source(&self.source_id),
            snapshot,
        };
        rows.close(
            record,
            &change,
            if op == Op::Truncate {
                Absent::Null
            } else {
                Absent::Unavailable
            },
        )
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

    /// What a message without a row says.
    #[cold]
    fn signal(&self, message: &[u8]) -> Result<Signal, Bad> {
        if self.op == b'm' {
            return Ok(Signal::LogicalMessage);
        }
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

impl Source {
    #[inline]
    fn read(&mut self, member: SourceMember, scan: &mut Scan<'_>) -> Result<(), Bad> {
        match member {
            SourceMember::Time(unit) => return self.read_time(unit, scan),
            SourceMember::Snapshot => self.snapshot = snapshot(scan)?,
            SourceMember::Connector => self.connector = scan.plain_text()?.unwrap_or_default(),
            SourceMember::Name => self.name = scan.plain_text()?.unwrap_or_default(),
            SourceMember::Database => self.database = scan.plain_text()?.unwrap_or_default(),
            SourceMember::Server => self.server = scan.span()?,
            SourceMember::File => self.file = scan.plain_text()?.unwrap_or_default(),
            SourceMember::Position => self.position = scan.int()?.unwrap_or(0),
            SourceMember::Row => self.row = scan.int()?.unwrap_or(0),
            SourceMember::Lsn => self.lsn = scan.int()?,
            SourceMember::Sequence => self.last_commit_lsn = first_of_sequence(scan)?,
            SourceMember::Other => return scan.skip(),
        }
        Ok(())
    }

    #[inline]
    fn read_time(&mut self, unit: Unit, scan: &mut Scan<'_>) -> Result<(), Bad> {
        let fineness = match unit {
            Unit::Nanos => 3,
            Unit::Micros => 2,
            _ => 1,
        };
        scan.token();
        let from = scan.at;
        let number = scan.int()?;
        if fineness > self.fineness && scan.message[from..scan.at] != *b"null" {
            self.fineness = fineness;
            self.time = (from, scan.at);
            self.time_us = number.and_then(|number| unit.to_us(number));
        }
        Ok(())
    }

    fn commit_time<'m>(&self, message: &'m [u8]) -> EventTime<'m> {
        let written = &message[self.time.0..self.time.1];
        match self.time_us {
            Some(us) => usable(us, written),
            None if written.is_empty() => EventTime::Missing,
            None => EventTime::Unusable(written),
        }
    }

    /// PostgreSQL's position. Before the first commit that the connector has seen, the row's own place, which is below it.
    fn log_position(&self) -> Option<(i64, i32)> {
        match (self.last_commit_lsn, self.lsn) {
            (Some(commit), Some(lsn)) => {
                let behind = lsn
                    .saturating_sub(commit)
                    .clamp(i64::from(i32::MIN), i64::from(i32::MAX));
                Some((commit, i32::try_from(behind).unwrap_or(0)))
            }
            (commit, lsn) => commit.or(lsn).map(|position| (position, 0)),
        }
    }

    /// What names the source: connector, its name, and the server's id or the database.
    fn parts<'m>(&self, message: &'m [u8]) -> [&'m [u8]; 3] {
        let server = if self.server.1 == 0 {
            self.database
        } else {
            self.server
        };
        [self.connector, self.name, server].map(|(from, to)| &message[from..to])
    }
}

impl Binlog {
    /// Position and row in the source's order. A source of another kind is ordered by the topic's offsets.
    fn position(&mut self, message: &[u8], source: &Source, offset: i64) -> (i64, i32) {
        let file = &message[source.file.0..source.file.1];
        if file.is_empty() {
            return source.log_position().unwrap_or((offset, 0));
        }
        if file != self.file {
            let digits = file.iter().rev().take_while(|c| c.is_ascii_digit()).count();
            let digits = std::str::from_utf8(&file[file.len() - digits..]).ok();
            let number = digits.and_then(|digits| digits.parse().ok()).unwrap_or(0);
            self.number = number.min(i64::from(i32::MAX));
            self.file = file.to_vec();
        }
        // A transaction of more than 4 GiB goes on behind the position that 32 bits hold: there all its rows are equal.
        let position = source.position.clamp(0, i64::from(u32::MAX));
        (
            self.number << 32 | position,
            i32::try_from(source.row).unwrap_or(0),
        )
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

/// `"false"`, `"true"`, `"first"`, `"last"`, `"incremental"` and others, or a boolean.
fn snapshot(scan: &mut Scan<'_>) -> Result<Snapshot, Bad> {
    match scan.token() {
        b'"' => {
            let text = scan.text()?;
            Ok(match scan.bytes(text) {
                b"false" => Snapshot::Streamed,
                b"last" => Snapshot::Last,
                b"incremental" => Snapshot::Incremental,
                _ => Snapshot::Initial,
            })
        }
        b't' => scan.word(b"true").map(|()| Snapshot::Initial),
        _ => scan.skip().map(|()| Snapshot::Streamed),
    }
}

/// PostgreSQL's `"[\"24023119\",\"24023128\"]"`: the commit before this transaction, then the row's own place. Null before the first.
fn first_of_sequence(scan: &mut Scan<'_>) -> Result<Option<i64>, Bad> {
    if scan.token() != b'"' {
        return scan.skip().map(|()| None);
    }
    let text = scan.text()?;
    let Some(rest) = scan.bytes(text).strip_prefix(b"[\"") else {
        return Ok(None);
    };
    let digits = rest.iter().take_while(|c| c.is_ascii_digit()).count();
    Ok(std::str::from_utf8(&rest[..digits])
        .ok()
        .and_then(|digits| digits.parse().ok()))
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
