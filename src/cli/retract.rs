//! `tidemark retract TABLE --from INSTANT --before INSTANT --reason TEXT`: takes back that a stretch is complete.

use std::io::Write;

use super::{Error, Exit, catalog::CatalogArguments, wait};
use crate::{
    api::{quantity::instant, worker::TableName},
    process::{self, LogFormat},
    sensor, sink,
    watermark::{Order, Retraction},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tidemark retract shop.orders --from 2026-11-30T08:00Z --before 2026-11-30T10:00Z --reason 'a job deleted rows' --file orders.yaml

The stretch, rounded outward to cells, is left out of the table's claim for good: it is one of its gaps in a new epoch, and
`tidemark wait` over it answers incomplete. The stretch begins in what is published, and ends not
later than the current cell. Workers go on beside it.

Exit codes: 0 done, 1 it failed, 2 the command line is wrong or nothing is published there, 3 no such table, 7 the catalog cannot be reached")]
pub(super) struct Arguments {
    /// The table, as namespace.name
    table: TableName,
    /// The first instant that is no longer said to be complete, as 2026-11-30T08:00Z
    #[arg(long, value_name = "INSTANT", value_parser = wait::instant)]
    from: i64,
    /// The first instant after it
    #[arg(long, value_name = "INSTANT", value_parser = wait::instant)]
    before: i64,
    /// Why, in one line of at most 120 characters; it stands on the table
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    catalog: CatalogArguments,
}

pub(super) async fn retract(arguments: Arguments, out: &mut dyn Write) -> Result<Exit, Error> {
    process::start_logging(LogFormat::Text, None)?;
    let retraction = Retraction::new(arguments.from, arguments.before, &arguments.reason);
    let order = Order::Retract(retraction.map_err(Error::Retraction)?);
    let catalog = arguments.catalog.resolve(&arguments.table)?;
    let (settings, table) = sensor::address(&catalog, &arguments.table)?;
    let done = sink::order(&settings, table, (None, order), "tidemark retract").await?;
    let (from, before) = (instant(arguments.from), instant(arguments.before));
    let commit = done
        .commit_id
        .map_or_else(String::new, |id| format!(", commit {id}"));
    writeln!(
        out,
        "retracted: {} from {from} to before {before}, in epoch {}{commit}",
        arguments.table, done.claim.epoch
    )?;
    Ok(Exit::Ready)
}
