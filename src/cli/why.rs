//! `tidemark why TABLE`: what holds the next cell of a table, and what would release it.

use std::io::Write;

use super::{Error, Exit, catalog::CatalogArguments, get::Output, width};
use crate::{
    api::worker::TableName,
    process::clock::Clock,
    sensor::{self, print, why},
};

/// Partitions that a person is shown.
const PARTITIONS: usize = 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tidemark why shop.orders --file orders.yaml
  tidemark why shop.orders --catalog-uri http://localhost:8181 --partitions 50
  tidemark why shop.orders --catalog-uri http://localhost:8181 -o json | jq -r .reason

All of it is read from the table, as of its newest commit; the worker is not asked.

Exit codes: 0 with a claim, 1 without one, 3 no such table, 5 the claim does not count, 7 the catalog cannot be reached")]
pub(super) struct Arguments {
    /// The table, as namespace.name
    table: TableName,
    /// How many partitions to list, the least frontier first; by default 10 for people and all for programs
    #[arg(long, value_name = "NUMBER")]
    partitions: Option<usize>,
    /// How to answer
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    catalog: CatalogArguments,
}

pub(super) async fn why(arguments: Arguments, out: &mut dyn Write) -> Result<Exit, Error> {
    let catalog = arguments.catalog.resolve(&arguments.table)?;
    let reader = sensor::Reader::open(&catalog, &arguments.table).await?;
    let now_us = Clock::system().now_us();
    let mut why = why::why(&reader.record().await?, now_us);
    let layout = why::Layout {
        partitions: arguments.partitions.unwrap_or(PARTITIONS),
        width: width(),
        now_us,
    };
    if let (Some(most), true) = (arguments.partitions, arguments.output != Output::Text) {
        why.partitions.truncate(most);
    }
    let answer = match arguments.output {
        Output::Text => why::text(&why, &layout),
        Output::Json => print::json(&why),
        Output::Yaml => print::yaml(&why),
    };
    out.write_all(answer.as_bytes())?;
    Ok(match why.standing {
        why::Standing::Claimed => Exit::Ready,
        why::Standing::Unclaimed => Exit::NotYet,
        why::Standing::Held => Exit::Held,
    })
}
