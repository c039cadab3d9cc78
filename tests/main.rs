//! The one integration binary, a line a module: real servers start once for all of them.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "the exemption for tests in clippy.toml does not reach the plain functions that they share"
)]

mod admission;
mod catalog_security;
mod chart;
mod cli;
mod commits;
mod demo;
mod digest;
mod documents;
mod end_to_end;
mod exactly_once;
mod foreign;
mod formats;
mod generated;
mod house;
mod identity;
mod kafka_security;
mod late;
mod lead;
mod lineage;
mod long_faults;
mod model;
mod object_storage;
mod operated;
mod operator;
mod pipeline;
mod policies;
mod policy;
mod progress;
mod resources;
mod retract;
mod simulation;
mod source;
mod support;
mod terms;
mod ticdc;
mod topics;
mod writers;
