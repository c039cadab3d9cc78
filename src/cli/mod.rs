//! The commands: one file each, flags in, one call into a room below, an exit code out.
//!
//! Answers go to the standard output, everything said beside them to the standard error. A failure is printed with its
//! whole chain of causes, here and nowhere else.
//!
//! [`Exit`] is the one table of exit codes.

use std::{
    error::Error as StdError,
    ffi::OsString,
    fmt::Write as _,
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand};
use ratatui::crossterm::terminal;

use crate::{
    api::{Reason, worker::TableName},
    sensor::{layout, tune::TooLittle},
};

/// The table of exit codes, as `--help` shows it; a macro, so that it can be joined to other text.
macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  0    ready: the table is complete there (get: it has a claim; effective: it is accepted; policy diff: nothing changes)
  1    not yet (effective: it is not accepted; policy diff: something changes); a command that is not about a table has failed
  2    the command line or a manifest is wrong
  3    no such table, or no such pipeline or policy
  4    incomplete: before the table's complete-from, or in a gap
  5    held: the table has a claim that does not count, as after a rollback
  6    ready, but not with the accepted evidence
  7    the catalog or the API server cannot be reached
  124  the time is over and it is still not yet"
    };
}

mod catalog;
mod completions;
mod crds;
mod demo;
mod effective;
mod files;
mod get;
mod history;
mod kubernetes;
mod operator;
mod policy;
mod probe;
pub mod reference;
mod retract;
mod run;
mod serve;
mod simulate;
mod tune;
mod until_stopped;
mod wait;
mod why;
mod worker;
mod writer;

/// The version with the commit it was built from.
pub const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("TIDEMARK_COMMIT"),
    ")"
);

const EXIT_CODES: &str = exit_codes!();

/// How a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// What was asked for is there.
    Ready = 0,
    /// It is not there yet; for commands that are not about a table, they failed.
    NotYet = 1,
    /// The command line or a manifest is wrong.
    Usage = 2,
    /// The catalog has no such table, or the cluster no such pipeline or policy.
    NoTable = 3,
    /// The interval lies before the table's complete-from, or meets a gap.
    Incomplete = 4,
    /// The table's claim does not count at the moment.
    Held = 5,
    /// Ready, but not by the accepted terms alone.
    OtherEvidence = 6,
    /// The catalog cannot be reached, or the table cannot be read; or the API server cannot be asked.
    CatalogUnreachable = 7,
    /// The time is over and it is still not yet.
    TimedOut = 124,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        (exit as u8).into()
    }
}

/// Kafka change events into Apache Iceberg, exactly once, with a finalization watermark on every table.
///
/// A pipeline reads change events from Kafka topics, appends them to an Iceberg table, and after each commit the table says
/// before which event time it is complete.
#[derive(Debug, Parser)]
#[command(name = "tidemark", version = VERSION, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  tidemark demo
  tidemark run orders.yaml
  tidemark get shop.orders --catalog-uri http://localhost:8181
  tidemark wait shop.orders --before 2026-11-30T13:00Z --timeout 2h && spark-submit hourly.py
  tidemark why shop.orders --catalog-uri http://localhost:8181
  tidemark crds | kubectl apply --server-side -f -
  tidemark effective orders -n shop
  tidemark policy diff gold.yaml
  source <(tidemark completions bash)";

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the whole of it in this process, in under a minute
    Demo(demo::Arguments),
    /// Run pipelines from manifests on this machine
    Run(run::Arguments),
    /// Run the pipelines of a folder of effective specifications, as a pod does
    Worker(worker::Arguments),
    /// Run the pipelines of a Kubernetes cluster: reconcile the custom resources
    Operator(operator::Arguments),
    /// Show before which event time a table is complete
    Get(get::Arguments),
    /// Wait until a table is complete up to an instant
    Wait(wait::Arguments),
    /// Show what holds the next cell of a table, and what would release it
    Why(why::Arguments),
    /// Show when each cell of a table became final, and what came late
    History(history::Arguments),
    /// Show what other finalization settings would have cost a table, and which one to take
    Tune(tune::Arguments),
    /// Take back that a stretch of a table is complete
    Retract(retract::Arguments),
    /// List the writers of a table, or declare one drained
    #[command(subcommand)]
    Writer(writer::Command),
    /// Show by whole histories from a seed that the claim is right
    Simulate(simulate::Arguments),
    /// Show what a pipeline runs as, with the source of each value
    Effective(effective::Arguments),
    /// Show what a policy would change before it is applied
    #[command(subcommand)]
    Policy(policy::Command),
    /// See whether a server answers, from a pod that has no other client
    Probe(probe::Arguments),
    /// Print the custom resource definitions
    Crds,
    /// Print the completions of a shell
    Completions(completions::Arguments),
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// What was written goes nowhere.
    #[error("the output cannot be written")]
    Output(#[from] io::Error),
    /// The files name no pipelines.
    #[error(transparent)]
    Files(#[from] files::Error),
    /// The admin server has no address.
    #[error(
        "the admin server cannot listen on {address}; name another address with --admin, as 127.0.0.1:0 for a free port"
    )]
    Admin {
        /// Where it was to listen.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The catalog of a table is not given.
    #[error(transparent)]
    Catalog(#[from] catalog::Error),
    /// A table could not be read.
    #[error(transparent)]
    Sensor(#[from] crate::sensor::Error),
    /// An interval without an instant in it: whatever is asked of it would be answered with yes.
    #[error("the interval is empty: write a --from that lies before --before")]
    EmptyInterval,
    /// A stretch that cannot be retracted.
    #[error("{0}")]
    Retraction(String),
    /// An order was not carried out.
    #[error("the table is as it was")]
    Order(#[from] crate::sink::Error),
    /// A history to be played cannot be read.
    #[error("the history \"{path}\" cannot be read; give the JSON that tidemark simulate printed", path = .path.display())]
    History {
        /// Its file.
        path: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The demo could not be run to its end.
    #[error(transparent)]
    Demo(#[from] crate::demo::Error),
    /// A table has too little on record to judge settings by.
    #[error("table \"{table}\" cannot be tuned")]
    TooLittle {
        /// Which.
        table: TableName,
        /// What is missing.
        source: TooLittle,
    },
    /// A picture cannot be written.
    #[error("\"{}\" cannot be written; name another file with --svg", .path.display())]
    Picture {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A cluster could not be asked.
    #[error(transparent)]
    Kubernetes(#[from] kubernetes::Error),
    /// Policies cannot be applied as they are written.
    #[error("{}", .0.join("\n"))]
    WrongPolicies(Vec<String>),
    /// A server has no address.
    #[error(
        "nothing can listen on {address}; name another address with --admin or --readers, as 127.0.0.1:0 for a free port"
    )]
    Listen {
        /// Where it was to listen.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// No API server is configured.
    #[error("no API server to call; set KUBECONFIG, or run in a pod with a service account")]
    Kubeconfig(#[source] kube::config::InferConfigError),
    /// The operator could not start.
    #[error(transparent)]
    Operator(crate::operator::run::Error),
    /// Start-up failed.
    #[error(transparent)]
    Process(#[from] crate::process::Error),
}

impl Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Output(_)
            | Self::Process(_)
            | Self::Admin { .. }
            | Self::Demo(_)
            | Self::Listen { .. }
            | Self::Kubeconfig(_)
            | Self::Operator(_)
            | Self::TooLittle { .. }
            | Self::Picture { .. } => Exit::NotYet,
            Self::Catalog(_)
            | Self::Files(_)
            | Self::EmptyInterval
            | Self::Retraction(_)
            | Self::WrongPolicies(_)
            | Self::History { .. } => Exit::Usage,
            Self::Kubernetes(error) => error.exit(),
            Self::Order(error) => match error.reason() {
                Reason::TableNotFound => Exit::NoTable,
                Reason::SpecInvalid => Exit::Usage,
                Reason::CatalogUnreachable => Exit::CatalogUnreachable,
                _ => Exit::NotYet,
            },
            Self::Sensor(error) if error.is_no_such_table() => Exit::NoTable,
            Self::Sensor(_) => Exit::CatalogUnreachable,
        }
    }
}

/// Runs the command that `arguments` name, the program's own name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(told) => {
            // Help and version come this way too, with exit code 0.
            let printed = told.print();
            return if printed.is_ok() && !told.use_stderr() {
                Exit::Ready
            } else {
                Exit::Usage
            }
            .into();
        }
    };
    let exit = match run(arguments.command, &mut io::stdout()) {
        Ok(exit) => exit,
        // The reader of a pipe has seen enough.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ready,
        Err(error) => {
            tell(&error);
            error.exit()
        }
    };
    exit.into()
}

fn run(command: Command, out: &mut dyn Write) -> Result<Exit, Error> {
    match command {
        Command::Demo(arguments) => demo::demo(arguments, out),
        Command::Run(arguments) => run::run(&arguments, out),
        Command::Worker(arguments) => worker::worker(arguments),
        Command::Operator(arguments) => operator::operator(&arguments),
        Command::Get(arguments) => block_on(get::get(arguments, out)),
        Command::Wait(arguments) => block_on(wait::wait(arguments, out)),
        Command::Why(arguments) => block_on(why::why(arguments, out)),
        Command::History(arguments) => block_on(history::history(arguments, out)),
        Command::Tune(arguments) => block_on(tune::tune(arguments, out)),
        Command::Retract(arguments) => block_on(retract::retract(arguments, out)),
        Command::Writer(command) => block_on(writer::writer(command, out)),
        Command::Simulate(arguments) => simulate::simulate(&arguments, out),
        Command::Effective(arguments) => block_on(effective::effective(arguments, out)),
        Command::Policy(command) => block_on(policy::policy(command, out)),
        Command::Probe(arguments) => block_on(probe::probe(arguments, out)),
        Command::Crds => crds::crds(out),
        Command::Completions(arguments) => {
            completions::completions(&arguments, Arguments::command(), out)
        }
    }
}

/// How many characters fit a line of the standard output.
fn width() -> usize {
    let terminal = io::stdout().is_terminal().then(terminal::size);
    terminal
        .and_then(Result::ok)
        .map_or(layout::WIDTH, |(columns, _)| columns.into())
}

/// Runs a reader's command: one thread is plenty.
fn block_on<T>(command: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(command)
}

/// Prints an error with its causes, each on a line.
fn tell(error: &dyn StdError) {
    let mut text = format!("error: {error}\n");
    let mut cause = error.source();
    while let Some(inner) = cause {
        let _ = writeln!(text, "  because: {inner}");
        cause = inner.source();
    }
    // Where the standard error is closed, nobody is there to be told.
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn table_of_exit_codes_is_whole() {
        for exit in [0, 1, 2, 3, 4, 5, 6, 7, 124] {
            assert!(EXIT_CODES.contains(&format!("\n  {exit:<3}  ")), "{exit}");
        }
        assert_eq!(EXIT_CODES.lines().count(), 10);
    }
}
