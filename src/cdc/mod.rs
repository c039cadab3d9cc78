//! Bytes of a record → typed rows of the change-log table, or a signal.
//!
//! A `Decoder` takes one Kafka record and either appends its rows to `Rows`, names the signal that the record is, or returns a
//! `Fault` that says what is wrong with it. No I/O, no clock: whatever a row needs from outside comes with the `Record`.
//!
//! A record that cannot be decoded leaves no trace in `Rows`, no bytes make a decoder panic, and no fault repeats what a row holds.

mod batch;
mod column;
mod debezium;
mod decimal;
mod event_time;
mod facts;
mod heartbeat;
mod image;
mod instant;
mod keys;
mod keyvalue;
mod kind;
mod lexeme;
mod partitions;
mod scan;
mod schema;
mod source_block;
#[cfg(test)]
mod testing;
mod ticdc;
mod tso;
mod zoned;

use std::sync::Arc;

pub use batch::Rows;
pub use debezium::{DEFAULT_PLACEHOLDER, Debezium};
pub use facts::{NO_TIME, Op, RowFacts, Snapshot};
pub use heartbeat::{Beat, HeartbeatReader};
pub use keyvalue::KeyValue;
pub use kind::{Column, Kind};
pub use partitions::SourcePartition;
pub use schema::{
    Encoding, Metadata, RowSchema, RowSettings, SchemaFault, SourceColumn, metadata_columns,
};
pub use ticdc::TiCdc;

/// The headers of a record, read only when somebody asks.
pub trait Headers {
    /// The value of the last header of that name.
    fn last(&self, name: &str) -> Option<&[u8]>;
}

/// A record without headers.
impl Headers for () {
    fn last(&self, _: &str) -> Option<&[u8]> {
        None
    }
}

/// Headers as pairs of name and value.
impl Headers for [(&str, &[u8])] {
    fn last(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .rev()
            .find(|header| header.0 == name)
            .map(|header| header.1)
    }
}

/// One Kafka record, borrowed from the consumer.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// The topic it was read from.
    pub topic: &'a str,
    /// The partition it was read from.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// The record's own timestamp, µs since 1970-01-01 UTC.
    pub timestamp_us: Option<i64>,
    /// The worker's clock when the record was taken from the consumer, µs since 1970-01-01 UTC: becomes `_cdc_ingested_at`.
    pub ingested_at_us: i64,
    /// The key; `None` is a null key.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a null value.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: &'a dyn Headers,
}

/// Decodes the records of one format. It learns the order of keys from what it sees, so each source keeps its own.
pub trait Decoder: Send {
    /// Appends the rows of `record` to `rows`, or says which signal it is.
    ///
    /// # Errors
    /// A `Fault` when the record is neither; `rows` is then as it was before.
    fn decode(&mut self, record: &Record<'_>, rows: &mut Rows) -> Result<Decoded, Fault>;

    /// Whether a partition has the changes of a source in the order of their positions, unless the source sends them again.
    fn in_source_order(&self) -> bool {
        true
    }

    /// Fields that the table has no column for, since the last call.
    fn take_unknown(&mut self) -> UnknownFields;
}

/// A format's own part of decoding.
trait Format {
    /// What its rows are of.
    fn schema(&self) -> &Arc<RowSchema>;

    /// Appends the rows of a record, or says which signal it is. What it has appended when it fails does not stay.
    fn take(&mut self, record: &Record<'_>, rows: &mut Rows) -> Result<Decoded, Bad>;
}

/// The part that is the same for all: the rows are of the format's schema, and a record that is none leaves no trace in them.
fn decode(
    format: &mut impl Format,
    record: &Record<'_>,
    rows: &mut Rows,
) -> Result<Decoded, Fault> {
    assert!(
        Arc::ptr_eq(format.schema(), rows.schema()),
        "decoder and rows are of one schema"
    );
    let first = rows.len();
    format.take(record, rows).map_err(|bad| {
        rows.roll_back_to(first);
        bad.into_fault(format.schema())
    })
}

/// What became of a record that could be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// So many rows were appended: one, or two where a change of key was split.
    Rows(usize),
    /// No row: the record says something else.
    Signal(Signal),
}

/// What a record without a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A null value behind a delete, for Kafka's log compaction.
    Tombstone,
    /// The connector is alive: its clock, µs since 1970-01-01 UTC. It caps a claim and never raises one.
    Heartbeat {
        /// The connector's clock.
        clock_us: i64,
    },
    /// TiCDC sent every change below this timestamp into the partition: what comes later was committed then or later, or had
    /// come before.
    Resolved {
        /// The timestamp, greater than 0.
        tso: i64,
        /// Its milliseconds, µs since 1970-01-01 UTC: no new change was committed before.
        time_us: i64,
    },
    /// The source's table definitions, or a change of them.
    SchemaChange,
    /// A transaction began in the source.
    TransactionBegin,
    /// A transaction ended in the source.
    TransactionEnd,
    /// A logical decoding message of PostgreSQL.
    LogicalMessage,
}

/// Where a row's event time comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EventTimeFrom {
    /// The time at which the source committed the change.
    #[default]
    SourceCommit,
    /// A field of the row image, whether or not the table has a column of that name. Its unit is the column's `Encoding`;
    /// without one, text is ISO 8601 and a number has the one unit in which it lies between 1990 and 2200.
    Column(String),
    /// A header of the record: ISO 8601 text, a number as text, or eight bytes big endian.
    Header(String),
    /// The record's own timestamp.
    RecordTimestamp,
}

/// Fields without a column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownFields {
    /// How many values were passed over.
    pub count: u64,
    /// Names that had not been reported before, at most 256 over the life of a decoder.
    pub new_names: Vec<String>,
}

/// Why a record could not be decoded. Names columns and kinds, never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
pub enum Fault {
    /// Not JSON.
    #[error("byte {at}: not the JSON expected here; is the topic's format right?")]
    Syntax {
        /// Offset in the value, or in the key.
        at: usize,
    },
    /// A string that is not UTF-8.
    #[error("byte {at}: text is not valid UTF-8")]
    Utf8 {
        /// Offset of the string.
        at: usize,
    },
    /// More than 64 levels of nesting.
    #[error("byte {at}: nested deeper than 64 levels")]
    Depth {
        /// Offset of the level that is too much.
        at: usize,
    },
    /// The value is wrapped in its schema.
    #[error(
        "the message carries its schema; set value.converter.schemas.enable=false on the connector"
    )]
    SchemaEnvelope,
    /// Neither a change nor a known signal.
    #[error(
        "the message has no \"op\" and is no heartbeat, schema change or transaction; is the topic's format right?"
    )]
    NoOperation,
    /// An operation nobody knows.
    #[error("unknown \"op\"; expected one of c, u, d, r, t, m")]
    UnknownOperation,
    /// A kind of message nobody knows, or none.
    #[error(
        "\"type\" is missing or unknown; expected INSERT, UPDATE, DELETE, a watermark or a change of definitions; is the topic's format right?"
    )]
    UnknownType,
    /// A change without TiDB's extension.
    #[error(
        "the change has no \"_tidb.commitTs\"; set enable-tidb-extension=true in the sink URI of the changefeed"
    )]
    NoExtension,
    /// A message of TiCDC's Debezium flavour that is none.
    #[error("the message or its key has no \"payload\"; is the topic's format right?")]
    NoPayload,
    /// A row that was too large for its message.
    #[error(
        "the row was too large for its message, which holds its key only; raise max-message-bytes in the sink URI of the changefeed"
    )]
    Incomplete,
    /// A change without its row.
    #[error("a change of kind \"{op}\" without a row image")]
    NoImage {
        /// The operation's letter.
        op: char,
    },
    /// A member of the message came twice, or is not of its kind.
    #[error("\"{member}\" is repeated or not of its kind")]
    Member {
        /// The member of the envelope.
        member: &'static str,
    },
    /// A column came twice in one row image.
    #[error("column \"{column}\" is there twice")]
    Duplicate {
        /// The column.
        column: String,
    },
    /// A value that the column's type cannot take.
    #[error(
        "column \"{column}\": the value does not fit the type {kind}; change the type, or the column's encoding"
    )]
    Type {
        /// The column.
        column: String,
        /// Its type.
        kind: Kind,
    },
    /// A value outside the column's range.
    #[error("column \"{column}\": the value is out of range for the type {kind}; widen the column")]
    Range {
        /// The column.
        column: String,
        /// Its type.
        kind: Kind,
    },
    /// A number for an instant, and nobody said in which unit.
    #[error(
        "column \"{column}\": a number for the type {kind}; declare its encoding: seconds, millis, micros or nanos"
    )]
    Unit {
        /// The column.
        column: String,
        /// Its type.
        kind: Kind,
    },
    /// A date and time in a zone nobody knows.
    #[error(
        "column \"{column}\": the value's time zone is not known here; run TiCDC with --tz=UTC"
    )]
    Zone {
        /// The column.
        column: String,
    },
    /// A required column without a value.
    #[error(
        "column \"{column}\" is required and the change has no value for it; make the column optional"
    )]
    Required {
        /// The column.
        column: String,
    },
    /// Neither a key nor a value.
    #[error("the record has neither a key nor a value")]
    Empty,
    /// A key that does not fill the key columns.
    #[error(
        "the key is no object and the table has {key_columns} key columns; declare the one it belongs to"
    )]
    Key {
        /// How many key columns the table has.
        key_columns: usize,
    },
}

impl Fault {
    /// The fault's name, as label and dead-letter reason.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.into()
    }
}

/// What went wrong, cheap to hand up from the innermost loop; `Fault` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bad {
    Syntax(usize),
    Utf8(usize),
    Depth(usize),
    Duplicate(usize),
    Misfit(usize, Misfit),
    Member(&'static str),
    SchemaEnvelope,
    NoOperation,
    UnknownOperation,
    UnknownType,
    NoExtension,
    NoPayload,
    Incomplete,
    NoImage(u8),
    Empty,
    Key,
}

/// Why a column does not take a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Misfit {
    Type,
    Range,
    Unit,
    Zone,
    Required,
}

impl Bad {
    #[cold]
    fn into_fault(self, schema: &RowSchema) -> Fault {
        let column = |c: usize| schema.columns()[c].name.clone();
        let kind = |c: usize| schema.columns()[c].kind.clone();
        match self {
            Bad::Syntax(at) => Fault::Syntax { at },
            Bad::Utf8(at) => Fault::Utf8 { at },
            Bad::Depth(at) => Fault::Depth { at },
            Bad::Duplicate(c) => Fault::Duplicate { column: column(c) },
            Bad::Misfit(c, Misfit::Type) => Fault::Type {
                column: column(c),
                kind: kind(c),
            },
            Bad::Misfit(c, Misfit::Range) => Fault::Range {
                column: column(c),
                kind: kind(c),
            },
            Bad::Misfit(c, Misfit::Unit) => Fault::Unit {
                column: column(c),
                kind: kind(c),
            },
            Bad::Misfit(c, Misfit::Zone) => Fault::Zone { column: column(c) },
            Bad::Misfit(c, Misfit::Required) => Fault::Required { column: column(c) },
            Bad::Member(member) => Fault::Member { member },
            Bad::SchemaEnvelope => Fault::SchemaEnvelope,
            Bad::NoOperation => Fault::NoOperation,
            Bad::UnknownOperation => Fault::UnknownOperation,
            Bad::UnknownType => Fault::UnknownType,
            Bad::NoExtension => Fault::NoExtension,
            Bad::NoPayload => Fault::NoPayload,
            Bad::Incomplete => Fault::Incomplete,
            Bad::NoImage(op) => Fault::NoImage { op: char::from(op) },
            Bad::Empty => Fault::Empty,
            Bad::Key => Fault::Key {
                key_columns: schema.key().len(),
            },
        }
    }
}
