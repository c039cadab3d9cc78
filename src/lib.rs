//! Kafka change events into Apache Iceberg, exactly once, with a finalization watermark on every table.
//!
//! A room below may be used by the rooms above it, never the other way round; `tests/house.rs` checks it.
//! From the top:
//! - `cli`: the commands of the program.
//! - `demo`: the whole pipeline in one process: an embedded broker, a generator of changes, the worker, and a judge.
//! - `simulate`: whole histories from a seed, judged by an oracle: how the claim is shown to be right.
//! - `operator`: the fleet: what the custom resources ask for, made so in the cluster, and what is said of it.
//! - `sensor`: reading a table's claim, and waiting for it.
//! - `sink`: one worker: pipelines from topics into tables, exactly once; accumulators and commit processors.
//! - `kafka`: the source: assignment, positions, end offsets, identity of cluster and topic, dead letters.
//! - `lake`: Iceberg tables: opening, writing, committing on a known base, lineage, maintenance.
//! - `process`: logging, metrics, the stop signal, secrets, the admin server, and the only reader of the clock.
//! - `cdc`: bytes of change events to typed rows and signals, one file per format; pure.
//! - `api`: the manifest, the conditions and reasons, and what a worker is given and answers; pure.
//! - `watermark`: before which event time a table is complete, and every name on the table; pure.

pub mod api;
pub mod cdc;
pub mod cli;
pub mod demo;
pub mod kafka;
pub mod lake;
pub mod operator;
pub mod process;
pub mod sensor;
pub mod simulate;
pub mod sink;
pub mod watermark;
