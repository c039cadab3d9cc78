//! What is known of a row beside its columns.
//!
//! A decoder says it when it closes the row; accumulators read it as a slice, without Arrow.

/// In place of an instant that is not there.
pub const NO_TIME: i64 = i64::MIN;

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// The row is new.
    Create = b'c',
    /// The row has new values, or is there: an upsert.
    Update = b'u',
    /// The row is gone.
    Delete = b'd',
    /// A snapshot read the row.
    Read = b'r',
    /// All rows are gone.
    Truncate = b't',
}

/// Whether a row comes from a snapshot of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Snapshot {
    /// No, from its log.
    #[default]
    Streamed,
    /// From the initial snapshot.
    Initial,
    /// The last row of the initial snapshot.
    Last,
    /// From an incremental snapshot, which runs beside the log.
    Incremental,
}

/// What is known of a row beside its columns. Instants are µs since 1970-01-01 UTC; `NO_TIME` where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowFacts {
    /// Event time, from 1990 until 2200.
    pub event_time_us: i64,
    /// The Kafka record's timestamp.
    pub record_time_us: i64,
    /// When the source committed the change.
    pub commit_time_us: i64,
    /// Kafka offset.
    pub offset: i64,
    /// Position in the source's own order.
    pub position: i64,
    /// When the worker read the record.
    pub ingested_at_us: i64,
    /// Row within the position.
    pub sub: i32,
    /// Place of topic and partition in `Rows::partitions`.
    pub partition: u32,
    /// Place of the source in `Rows::sources`.
    pub source: u32,
    /// How often the source's order began anew; the sink's verdict.
    pub incarnation: u32,
    /// What the change did.
    pub op: Op,
    /// Whether it comes from a snapshot.
    pub snapshot: Snapshot,
    /// Whether it had come before; the sink's verdict.
    pub replayed: bool,
}

/// What a format says of a row, for `close`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) op: Op,
    pub(super) event_time: EventTime<'a>,
    pub(super) commit_time_us: i64,
    pub(super) position: i64,
    pub(super) sub: i32,
    pub(super) source: u32,
    pub(super) snapshot: Snapshot,
}

/// An event time, or what came in its place.
#[derive(Clone, Copy, Debug)]
pub(super) enum EventTime<'a> {
    At(i64),
    Unusable(&'a [u8]),
    Missing,
}

/// What it means when a row image does not have a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// The source left it out: named in `_cdc_unavailable`.
    Unavailable,
    /// It is null.
    Null,
    /// There is no row at all: null, and where null cannot be, an empty value that `_cdc_unavailable` names.
    Empty,
}
