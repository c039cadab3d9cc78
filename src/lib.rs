//! Kafka change events into Apache Iceberg, exactly once, with a finalization watermark on every table.
//!
//! A room below may be used by the rooms above it, never the other way round; `tests/house.rs` checks it.
//! From the top:
//! - `kafka`: the source: assignment, positions, end offsets, identity of cluster and topic, dead letters.
//! - `cdc`: bytes of a record to typed rows, or a signal; a file a format; pure.
//! - `watermark`: before which event time a table is complete, and every name on the table; pure.

pub mod cdc;
pub mod kafka;
pub mod watermark;
