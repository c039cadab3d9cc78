//! `tidemark history TABLE`: when each cell became final, and what came for it afterwards.

use std::io::Write;

use clap::ValueEnum;

use super::{Error, Exit, catalog::CatalogArguments, width};
use crate::{
    api::{quantity::parse_instant_us, worker::TableName},
    sensor::{self, history, print},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tidemark history shop.orders --file orders.yaml
  tidemark history shop.orders --from 2026-11-30T00:00Z --before 2026-12-01T00:00Z --catalog-uri http://localhost:8181
  tidemark history shop.orders --catalog-uri http://localhost:8181 -o csv > orders.csv

It reaches back as far as the table keeps our snapshots, and says where that is.

Exit codes: 0 with commits on record, 1 without one, 3 no such table, 7 the catalog cannot be reached")]
pub(super) struct Arguments {
    /// The table, as namespace.name
    table: TableName,
    /// Only cells that end after this instant, as 2026-11-30T10:00Z
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    from: Option<i64>,
    /// Only cells that begin before this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    before: Option<i64>,
    /// How to answer
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    catalog: CatalogArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table for people.
    Text,
    /// A JSON object.
    Json,
    /// The same as YAML.
    Yaml,
    /// Comma-separated values, a line a cell.
    Csv,
}

pub(super) async fn history(arguments: Arguments, out: &mut dyn Write) -> Result<Exit, Error> {
    let span = arguments.from.zip(arguments.before);
    if span.is_some_and(|(from_us, before_us)| from_us >= before_us) {
        return Err(Error::EmptyInterval);
    }
    let catalog = arguments.catalog.resolve(&arguments.table)?;
    let reader = sensor::Reader::open(&catalog, &arguments.table).await?;
    let record = reader.record().await?;
    let span = history::Span {
        from_us: arguments.from,
        before_us: arguments.before,
    };
    let history = history::history(&record, span);
    let answer = match arguments.output {
        Output::Text => history::text(&history, width()),
        Output::Json => print::json(&history),
        Output::Yaml => print::yaml(&history),
        Output::Csv => history::csv(&history),
    };
    out.write_all(answer.as_bytes())?;
    Ok(if history.commits > 0 {
        Exit::Ready
    } else {
        Exit::NotYet
    })
}

fn instant(text: &str) -> Result<i64, String> {
    parse_instant_us(text)
        .ok_or_else(|| "write an instant with its offset, as 2026-11-30T13:00Z".to_owned())
}
