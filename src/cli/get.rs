//! `tidemark get TABLE`: before which event time a table is complete.

use std::io::Write;

use clap::ValueEnum;

use super::{Error, Exit, catalog::CatalogArguments, width};
use crate::{
    api::worker::TableName,
    sensor::{self, Standing, print},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tidemark get shop.orders --catalog-uri http://localhost:8181
  tidemark get shop.orders --file orders.yaml -o json | jq .finalizedBefore

Where there is no claim of ours, what Kafka Connect, Flink, Gobblin or AutoMQ left on the table is shown as what it is.

Exit codes: 0 with a claim, 1 without one of ours, 3 no such table, 5 the claim does not count, 7 the catalog cannot be reached")]
pub(super) struct Arguments {
    /// The table, as namespace.name
    table: TableName,
    /// How to answer
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    catalog: CatalogArguments,
}

/// How a reader's command answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// A table and a sentence for people.
    Text,
    /// A JSON object.
    Json,
    /// The same as YAML.
    Yaml,
}

pub(super) async fn get(arguments: Arguments, out: &mut dyn Write) -> Result<Exit, Error> {
    let catalog = arguments.catalog.resolve(&arguments.table)?;
    let reading = sensor::Reader::open(&catalog, &arguments.table)
        .await?
        .read()
        .await?;
    let answer = match arguments.output {
        Output::Text => print::text(&reading, width()),
        Output::Json => print::json(&print::report(&reading)),
        Output::Yaml => print::yaml(&print::report(&reading)),
    };
    out.write_all(answer.as_bytes())?;
    Ok(match reading.standing {
        Standing::Claimed(_) => Exit::Ready,
        Standing::Unclaimed => Exit::NotYet,
        Standing::Held(_) => Exit::Held,
    })
}
