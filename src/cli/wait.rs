//! `tidemark wait TABLE --before INSTANT`: until a table is complete up to an instant.
//!
//! The exit code is the answer: a shell goes on with `&&`. What is waited for is told on the standard error when it changes.

use std::{collections::BTreeSet, io::Write, time::Duration};

use clap::ValueEnum;
use tracing::info;

use super::{Error, Exit, catalog::CatalogArguments, get::Output};
use crate::{
    api::{
        quantity::{parse_instant_us, parse_length_us},
        worker::TableName,
    },
    process::{
        self, LogFormat,
        clock::{Clock, length},
    },
    sensor::{self, Answer, Question, Verdict, print},
    watermark::Term,
};

/// A reader that accepts less than everything names terms as the table's property writes them.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum TermName {
    /// The source has said in the partition that the cell is over.
    Resolved,
    /// The oldest of the recent rows lies behind the cell.
    Minimum,
    /// A heartbeat from after the cell has come through the source, and the partition was read to its end after that.
    Heartbeat,
    /// The partition was read to its end after the cell was over.
    CaughtUp,
    /// All but a small share of the recent rows lie behind the cell.
    Percentile,
    /// The cell was over long enough ago.
    Clock,
}

/// What `--help` says besides the flags.
const HELP: &str = concat!(
    "\
Examples:
  tidemark wait shop.orders --before 2026-11-30T13:00Z --timeout 2h
  tidemark wait shop.orders --from 2026-11-30T00:00Z --before 2026-12-01T00:00Z --file orders.yaml -o json
  tidemark wait shop.orders --before 2026-11-30T13:00Z --timeout 0s    # asks once

A missing table, and rows that are missing for good, end the wait at once. A claim that does not count, other evidence
and a catalog that cannot be reached may heal: they are its answer only when the time is over.
",
    exit_codes!()
);

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The table, as namespace.name
    table: TableName,
    /// The first instant after the interval, as 2026-11-30T13:00Z
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    before: i64,
    /// The first instant of the interval; one cell before --before where it is left out
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    from: Option<i64>,
    /// The terms that the claim may rest on, separated by commas; all where it is left out
    #[arg(long, value_name = "TERMS", value_delimiter = ',')]
    accept: Option<Vec<TermName>>,
    /// How long to wait; 0s asks once
    #[arg(long, value_name = "LENGTH", default_value = "1h", value_parser = span)]
    timeout: Duration,
    /// How often to ask
    #[arg(long, value_name = "LENGTH", default_value = "5s", value_parser = span)]
    every: Duration,
    /// How to answer
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    catalog: CatalogArguments,
}

pub(super) async fn wait(arguments: Arguments, out: &mut dyn Write) -> Result<Exit, Error> {
    process::start_logging(LogFormat::Text, None)?;
    let question = Question {
        from_us: arguments.from,
        before_us: arguments.before,
        accept: arguments.accept.as_deref().map(terms),
    };
    let catalog = arguments.catalog.resolve(&arguments.table)?;
    let clock = Clock::system();
    let patience = sensor::Patience {
        timeout: arguments.timeout,
        every: arguments.every,
    };
    let told = |what: &str| info!(table = %arguments.table, "{what}");
    let answer = sensor::wait(
        &catalog,
        &arguments.table,
        &question,
        (patience, &clock),
        told,
    )
    .await?;
    let text = match arguments.output {
        Output::Text => print::answer(&answer, &question),
        Output::Json => print::json(&print::answer_report(&answer, &question)),
        Output::Yaml => print::yaml(&print::answer_report(&answer, &question)),
    };
    out.write_all(text.as_bytes())?;
    Ok(exit(&answer, arguments.timeout.is_zero()))
}

fn exit(answer: &Answer, asked_once: bool) -> Exit {
    match answer.verdict {
        Verdict::Ready => Exit::Ready,
        Verdict::NotYet if asked_once => Exit::NotYet,
        Verdict::NotYet => Exit::TimedOut,
        Verdict::Incomplete(_) => Exit::Incomplete,
        Verdict::Held(_) => Exit::Held,
        Verdict::OtherEvidence => Exit::OtherEvidence,
    }
}

fn terms(names: &[TermName]) -> BTreeSet<Term> {
    let term = |name: &TermName| match name {
        TermName::Resolved => Term::Resolved,
        TermName::Minimum => Term::Minimum,
        TermName::Heartbeat => Term::Heartbeat,
        TermName::CaughtUp => Term::CaughtUp,
        TermName::Percentile => Term::Percentile,
        TermName::Clock => Term::Clock,
    };
    names.iter().map(term).collect()
}

pub(super) fn instant(text: &str) -> Result<i64, String> {
    parse_instant_us(text)
        .ok_or_else(|| "write an instant with its offset, as 2026-11-30T13:00Z".to_owned())
}

fn span(text: &str) -> Result<Duration, String> {
    parse_length_us(text)
        .map(length)
        .ok_or_else(|| "write a length, as 90s, 2h or 1h30m".to_owned())
}
