//! `tidemark tune TABLE`: what other finalization settings would have cost, and which one to take.

use std::{fs, io::Write, path::PathBuf};

use super::{Error, Exit, catalog::CatalogArguments, get::Output, width};
use crate::{
    api::worker::TableName,
    sensor::{
        self, print,
        tune::{self, picture},
    },
    watermark::Kept,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tidemark tune shop.orders --file orders.yaml
  tidemark tune shop.orders --catalog-uri http://localhost:8181 --svg tune.svg
  tidemark tune shop.orders --catalog-uri http://localhost:8181 -o json | jq -r .recommended.command

The commits that the table keeps are taken once more under other settings, by the functions that the worker uses. Nothing is
changed; a wider bound declares more about the source, a narrower one less, and only its owner knows which is true.

Exit codes: 0 with a recommendation, 1 if too little is on record, 3 no such table, 7 the catalog cannot be reached")]
pub(super) struct Arguments {
    /// The table, as namespace.name
    table: TableName,
    /// Of several writers of the table the one to look at; the one that committed last where it is left out
    #[arg(long, value_name = "WRITER")]
    writer: Option<String>,
    /// Draw it in this file, too
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// How to answer
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    catalog: CatalogArguments,
}

pub(super) async fn tune(arguments: Arguments, out: &mut dyn Write) -> Result<Exit, Error> {
    let catalog = arguments.catalog.resolve(&arguments.table)?;
    let reader = sensor::Reader::open(&catalog, &arguments.table).await?;
    let record = reader.record().await?;
    let kept = Kept::of(&record.view(), arguments.writer.as_deref());
    let tuning = tune::tune(&record.table, kept.as_ref());
    let tuning = tuning.map_err(|source| Error::TooLittle {
        table: arguments.table,
        source,
    })?;
    if let Some(path) = arguments.svg {
        let written = fs::write(&path, picture::svg(&tuning));
        written.map_err(|source| Error::Picture { path, source })?;
    }
    let answer = match arguments.output {
        Output::Text => tune::text(&tuning, width()),
        Output::Json => print::json(&tuning),
        Output::Yaml => print::yaml(&tuning),
    };
    out.write_all(answer.as_bytes())?;
    Ok(Exit::Ready)
}
