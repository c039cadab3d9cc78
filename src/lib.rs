//! Kafka change events into Apache Iceberg, exactly once, with a finalization watermark on every table.
//!
//! A room below may be used by the rooms above it, never the other way round; `tests/house.rs` checks it.
//! From the top:
//! - `kafka`: the source: assignment, positions, end offsets, identity of cluster and topic, dead letters.
//! - `watermark`: before which event time a table is complete, and every name on the table; pure.

pub mod kafka;
pub mod watermark;
