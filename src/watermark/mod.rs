//! The finalization core: before which event time is the data of a table complete?
//!
//! A worker keeps statistics of the rows it writes, asks the leaders how far their logs go, and calls [`advance()`] at each
//! commit attempt: the table's state and its own news in, the next state, claim, summary and properties out. A reader calls
//! [`read_claim`] on the same names. Nothing here does I/O or reads a clock.
//!
//! The promise: under the declared [`Bounds`] no row with a say and an event time below a claim is committed after the commit
//! that published it. Whatever is unknown holds the claim; nothing is ever taken for idle because it is silent.
//!
//! An instant is an `i64` of microseconds since 1970-01-01 UTC, a length an `i64` of microseconds.

#[cfg(test)]
mod accuracy;
mod advance;
mod amended;
mod cells;
mod claim;
mod codec;
pub mod contract;
mod digest;
mod epoch;
mod event_time;
pub mod foreign;
mod frontier;
mod gaps;
mod grid;
mod kept;
mod left;
mod lineage;
#[cfg(test)]
mod oracle;
mod order;
mod reading;
mod rebuild;
mod replay;
mod retrace;
mod source_position;
mod standing;
mod state;
#[cfg(test)]
mod testing;
mod told;
#[cfg(test)]
mod undigested;
mod varint;
mod writers;

pub use advance::{
    Advanced, Anchor, AskedEnd, Before, Contribution, EmptyCommit, Jump, JumpKind, Misfit, Origin,
    PartitionNews, advance, is_current, should_commit_empty, would_raise,
};
pub use amended::{Amended, AmendedCell, LateData, MAX_AMENDED};
pub use cells::{CellCounts, LateCell, LateCells, MAX_COUNTED, MAX_LATE};
pub use claim::{Claim, HeldBy, Hold};
pub use codec::{MAX_STATE, Unreadable};
pub use digest::{Digest, MAX_ENCODED, NoSketch, Sketch};
pub use epoch::{Reopened, StepCause};
pub use event_time::{
    Bounds, END_US, Excluded, LEAST_US, RowTime, SECOND_US, Say, ceil_second, floor_second,
    in_range,
};
pub use foreign::{ForeignClaim, System};
pub use frontier::{
    FromRule, Heartbeats, LADDER, MAX_WINDOW, NewestChange, OnJoin, OpenGap, PartitionState,
    PartitionStats, Policy, Quantile, Term, TermValue, TopicState, View, Window, WindowEntry,
};
pub use gaps::{Gaps, MAX_GAPS};
pub use grid::{Grid, NoGrid};
pub use kept::{Kept, KeptCommit, LateRows};
pub use left::{Left, LeftPartition, LeftTopic, MAX_LEFT};
pub use lineage::{Ancestor, Lineage, Picked, SOURCE_SNAPSHOT_ID, TableView};
pub use order::{MAX_REASON, MAX_RETRACTED, Order, Retracted, Retraction};
pub use reading::{Coverage, Held, Reading, read_claim};
pub use replay::stand;
pub use retrace::{Cost, Rows, Step};
pub use source_position::{Incarnation, Judged, MAX_INCARNATIONS, SourcePositions};
pub use standing::{
    Accepted, Asker, Beginning, GoingOn, Obstacle, Opening, RolledBack, Seen, Standing,
    keep_offsets,
};
pub use state::{
    AskedPartitions, CompleteFrom, Identity, PartitionRecord, Published, Record, State,
};
pub use told::Told;
pub use writers::{Peer, PeerUnreadable, peers, writers_of};
