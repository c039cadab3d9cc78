//! `tidemark wait TABLE --before INSTANT`: until a table is complete up to an instant.
//!
//! The exit code is the answer: a shell goes on with `&&`. What is waited for is told on the standard error when it changes.

use std::{collections::BTreeSet, io::Write, time::Duration};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
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
    watermark::{System, Term},
};

/// What a claim may rest on: a term of ours, or the word of another system where there is no claim of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accepted {
    Term(Term),
    System(System),
    AnySystem,
}

impl Accepted {
    /// Every name with what it stands for.
    fn names() -> Vec<(&'static str, Accepted, &'static str)> {
        let terms = Term::ALL.map(|term| (term.label(), Accepted::Term(term), says(term)));
        let systems = System::ALL.map(|system| {
            let help = "What this system left on the table, where there is no claim of ours";
            (system.label(), Accepted::System(system), help)
        });
        let any = (
            "foreign",
            Accepted::AnySystem,
            "All of these systems that left something",
        );
        terms.into_iter().chain(systems).chain([any]).collect()
    }

    fn of(name: &str) -> Option<Accepted> {
        let mut names = Accepted::names().into_iter();
        names
            .find(|(known, _, _)| *known == name)
            .map(|(_, accepted, _)| accepted)
    }
}

/// What a term rests on.
fn says(term: Term) -> &'static str {
    match term {
        Term::Resolved => "The source has said in the partition that the cell is over",
        Term::Minimum => "The oldest of the recent rows lies behind the cell",
        Term::Heartbeat => {
            "A heartbeat from after the cell has come through the source, and the partition was read to its end after that"
        }
        Term::CaughtUp => "The partition was read to its end after the cell was over",
        Term::Percentile => "All but a small share of the recent rows lie behind the cell",
        Term::Clock => "The cell was over long enough ago",
    }
}

fn accepted() -> impl TypedValueParser<Value = Accepted> {
    let names = Accepted::names().into_iter();
    let names = names.map(|(name, _, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(names).try_map(|name| Accepted::of(&name).ok_or("no such name"))
}

/// What `--help` says besides the flags.
const HELP: &str = concat!(
    "\
Examples:
  tidemark wait shop.orders --before 2026-11-30T13:00Z --timeout 2h
  tidemark wait shop.orders --from 2026-11-30T00:00Z --before 2026-12-01T00:00Z --file orders.yaml -o json
  tidemark wait shop.orders --before 2026-11-30T13:00Z --timeout 0s    # asks once
  tidemark wait shop.orders --before 2026-11-30T13:00Z --accept foreign --catalog-uri http://localhost:8181

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
    /// What the claim may rest on, separated by commas; all terms where none is named
    ///
    /// The word of another system counts only if it is named, and only where there is no claim of ours: it proves less.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = accepted())]
    accept: Vec<Accepted>,
    /// How long to wait; 0s asks once
    #[arg(long, value_name = "LENGTH", default_value = "1h", value_parser = span)]
    timeout: Duration,
    /// How often to ask
    #[arg(long, value_name = "LENGTH", default_value = "5s", value_parser = pause)]
    every: Duration,
    /// How to answer
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    catalog: CatalogArguments,
}

pub(super) async fn wait(arguments: Arguments, out: &mut dyn Write) -> Result<Exit, Error> {
    process::start_logging(LogFormat::Text, None)?;
    if arguments
        .from
        .is_some_and(|from_us| from_us >= arguments.before)
    {
        return Err(Error::EmptyInterval);
    }
    let question = Question {
        from_us: arguments.from,
        before_us: arguments.before,
        accept: terms(&arguments.accept),
        foreign: systems(&arguments.accept),
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

/// The accepted terms; none is named: all of them.
fn terms(accepted: &[Accepted]) -> Option<BTreeSet<Term>> {
    let terms = accepted.iter().filter_map(|accepted| match accepted {
        Accepted::Term(term) => Some(*term),
        Accepted::System(_) | Accepted::AnySystem => None,
    });
    let terms: BTreeSet<Term> = terms.collect();
    (!terms.is_empty()).then_some(terms)
}

fn systems(accepted: &[Accepted]) -> BTreeSet<System> {
    let systems = |accepted: &Accepted| match accepted {
        Accepted::Term(_) => Vec::new(),
        Accepted::System(system) => vec![*system],
        Accepted::AnySystem => System::ALL.into(),
    };
    accepted.iter().flat_map(systems).collect()
}

pub(super) fn instant(text: &str) -> Result<i64, String> {
    parse_instant_us(text)
        .ok_or_else(|| "write an instant with its offset, as 2026-11-30T13:00Z".to_owned())
}

/// Without any pause a wait would do nothing but ask.
fn pause(text: &str) -> Result<Duration, String> {
    let every = span(text)?;
    let least = Duration::from_millis(100);
    let refused = || "write a length of 100ms at least".to_owned();
    (every >= least).then_some(every).ok_or_else(refused)
}

pub(super) fn span(text: &str) -> Result<Duration, String> {
    parse_length_us(text)
        .map(length)
        .ok_or_else(|| "write a length, as 90s, 2h or 1h30m".to_owned())
}
