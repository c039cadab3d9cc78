//! `tidemark writer list|drain|undrain TABLE [WRITER]`: the writers of a table.

use std::fmt::Write as _;
use std::io::Write;

use serde::Serialize;

use super::{Error, Exit, catalog::CatalogArguments, get::Output};
use crate::{
    api::{
        quantity::{instant, iso_option},
        worker::TableName,
    },
    process::{self, LogFormat},
    sensor::{self, print},
    sink,
    watermark::{Order, Peer},
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List the writers of a table, and what each claims
    List(List),
    /// Declare a writer drained: it no longer holds the table's claim, and may not commit
    ///
    /// For a pipeline that is gone for good and whose rows are all on the table: nobody waits for it any more. What it missed
    /// stays missing: its gaps count on. A worker of it that still runs stops with `WriterDrained`.
    Drain(One),
    /// Let a drained writer go on: it holds the claim again, which takes a step back to it
    Undrain(One),
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// The table, as namespace.name
    table: TableName,
    /// How to answer
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    catalog: CatalogArguments,
}

#[derive(Debug, clap::Args)]
pub(super) struct One {
    /// The table, as namespace.name
    table: TableName,
    /// The writer, as `tidemark writer list` names it
    writer: String,
    #[command(flatten)]
    catalog: CatalogArguments,
}

/// A writer, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WriterReport {
    writer: String,
    drained: bool,
    #[serde(rename = "finalizedBefore", with = "iso_option")]
    finalized_before_us: Option<i64>,
    epoch: u64,
    evidence: Vec<&'static str>,
}

impl From<Peer> for WriterReport {
    fn from(peer: Peer) -> Self {
        Self {
            writer: peer.writer,
            drained: peer.drained,
            finalized_before_us: peer.claim.finalized_before_us,
            epoch: peer.claim.epoch,
            evidence: peer
                .claim
                .evidence
                .iter()
                .map(|term| term.label())
                .collect(),
        }
    }
}

pub(super) async fn writer(command: Command, out: &mut dyn Write) -> Result<Exit, Error> {
    process::start_logging(LogFormat::Text, None)?;
    match command {
        Command::List(arguments) => list(arguments, out).await,
        Command::Drain(arguments) => order(arguments, Order::Drain, out).await,
        Command::Undrain(arguments) => order(arguments, Order::Undrain, out).await,
    }
}

async fn list(arguments: List, out: &mut dyn Write) -> Result<Exit, Error> {
    let catalog = arguments.catalog.resolve(&arguments.table)?;
    let reader = sensor::Reader::open(&catalog, &arguments.table).await?;
    let writers = reader.writers().await?.into_iter().map(WriterReport::from);
    let writers: Vec<WriterReport> = writers.collect();
    let answer = match arguments.output {
        Output::Text => text(&writers),
        Output::Json => print::json(&writers),
        Output::Yaml => print::yaml(&writers),
    };
    out.write_all(answer.as_bytes())?;
    Ok(if writers.is_empty() {
        Exit::NotYet
    } else {
        Exit::Ready
    })
}

fn text(writers: &[WriterReport]) -> String {
    let longest = writers.iter().map(|one| one.writer.len()).max();
    let width = longest.unwrap_or(0).max("WRITER".len());
    let mut text = format!("{:<width$}  FINAL BEFORE          EVIDENCE\n", "WRITER");
    for one in writers {
        let claim = one
            .finalized_before_us
            .map_or_else(|| "-".to_owned(), instant);
        let evidence = if one.drained {
            "drained".to_owned()
        } else {
            one.evidence.join(",")
        };
        let _ = writeln!(text, "{:<width$}  {claim:<20}  {evidence}", one.writer);
    }
    text
}

async fn order(arguments: One, order: Order, out: &mut dyn Write) -> Result<Exit, Error> {
    let One {
        table,
        writer,
        catalog,
    } = arguments;
    let catalog = catalog.resolve(&table)?;
    let (settings, ident) = sensor::address(&catalog, &table)?;
    let (verb, already, who) = match order {
        Order::Undrain => ("goes on", "is not drained", "tidemark writer undrain"),
        _ => ("is drained", "is drained already", "tidemark writer drain"),
    };
    let done = sink::order(&settings, ident, (Some(&writer), order), who).await?;
    let claim = done.claim.finalized_before_us;
    let claim = claim.map_or_else(|| "nothing".to_owned(), instant);
    let epoch = done.claim.epoch;
    match done.commit_id {
        Some(commit_id) => writeln!(
            out,
            "writer {writer} of {table} {verb}; the table claims {claim}, in epoch {epoch}, commit {commit_id}"
        )?,
        None => writeln!(
            out,
            "writer {writer} of {table} {already}: nothing was done; the table claims {claim}, in epoch {epoch}"
        )?,
    }
    Ok(Exit::Ready)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_stand_in_a_table() {
        let one = |writer: &str, drained: bool, claim: Option<i64>| WriterReport {
            writer: writer.to_owned(),
            drained,
            finalized_before_us: claim,
            epoch: 1,
            evidence: vec!["minimum", "caught-up"],
        };
        let all = [one("a.b", false, Some(0)), one("longer.name", true, None)];
        let expected = "\
WRITER       FINAL BEFORE          EVIDENCE
a.b          1970-01-01T00:00:00Z  minimum,caught-up
longer.name  -                     drained
";
        assert_eq!(text(&all), expected);
    }
}
