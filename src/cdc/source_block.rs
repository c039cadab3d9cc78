//! Debezium's `source` block: who sent a change, when it was committed, and where it stands in the source's order.

use super::event_time::usable;
use super::facts::{EventTime, Snapshot};
use super::image::Span;
use super::instant::Unit;
use super::keys::Keys;
use super::scan::Scan;
use super::{Bad, tso};

/// The members of a source block that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceMember {
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
    CommitTs,
    Other,
}

/// What its source block says.
#[derive(Default)]
pub(super) struct Source {
    /// The finest commit time, how it was written, and how fine it is.
    time_us: Option<i64>,
    time: Span,
    fineness: u8,
    pub(super) snapshot: Snapshot,
    connector: Span,
    name: Span,
    database: Span,
    server: Span,
    file: Span,
    position: i64,
    row: i64,
    lsn: Option<i64>,
    last_commit_lsn: Option<i64>,
    /// TiCDC's commit timestamp.
    pub(super) commit_tso: Option<i64>,
}

/// The number of the binlog file named last.
#[derive(Default)]
pub(super) struct Binlog {
    file: Vec<u8>,
    number: i64,
}

/// The members by name.
pub(super) fn source_members() -> Keys<SourceMember> {
    let members = [
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
        ("commit_ts", SourceMember::CommitTs),
    ];
    Keys::new(
        members.map(|(name, member)| (name.to_owned(), member)),
        SourceMember::Other,
    )
}

impl Source {
    #[inline]
    pub(super) fn read(&mut self, member: SourceMember, scan: &mut Scan<'_>) -> Result<(), Bad> {
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
            SourceMember::CommitTs => self.commit_tso = tso::read(scan)?,
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

    pub(super) fn commit_time<'m>(&self, message: &'m [u8]) -> EventTime<'m> {
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
    pub(super) fn parts<'m>(&self, message: &'m [u8]) -> [&'m [u8]; 3] {
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
    pub(super) fn position(&mut self, message: &[u8], source: &Source, offset: i64) -> (i64, i32) {
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
