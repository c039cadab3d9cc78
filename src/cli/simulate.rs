//! `tidemark simulate`: whole histories from a seed, judged by an oracle.

use std::{fs, io::Write, path::PathBuf, thread, time::Duration};

use super::{Error, Exit};
use crate::{
    api::quantity::parse_length_us,
    process::clock::length,
    simulate::{self, Options, Plan},
};

/// Histories below which a fault may be missing by chance.
const TELLING: u64 = 10_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tidemark simulate --histories 10000
  tidemark simulate --histories 1 --seed 4711
  tidemark simulate --replay failed.json

Cluster, table and clock are simulated; what decides is the code of the worker. It prints in how many histories each fault,
term and condition was met. It ends with 1 when a promise was broken, and then prints the shortest history found that breaks
it; and when 10,000 histories or more leave a fault out, or the claim did not advance in nine of ten.")]
pub(super) struct Arguments {
    /// How many histories
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    histories: u64,
    /// What the first is drawn from; the others from the numbers after it
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Go on until this much time has passed, as 120s
    #[arg(long, value_name = "LENGTH", value_parser = time, default_value = "0s")]
    at_least: Duration,
    /// How many at a time; by default as many as there are processors
    #[arg(long, value_name = "THREADS")]
    threads: Option<usize>,
    /// Play this one history, as it was printed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["histories", "seed", "at_least"])]
    replay: Option<PathBuf>,
}

fn time(text: &str) -> Result<Duration, String> {
    parse_length_us(text)
        .map(length)
        .ok_or_else(|| "write a length, as 90s, 2h or 1h30m".to_owned())
}

pub(super) fn simulate(arguments: &Arguments, out: &mut dyn Write) -> Result<Exit, Error> {
    if let Some(path) = &arguments.replay {
        return replay(path, out);
    }
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    let options = Options {
        histories: arguments.histories,
        seed: arguments.seed,
        at_least: arguments.at_least,
        threads: arguments.threads.unwrap_or_else(processors),
    };
    let report = simulate::run(&options);
    writeln!(out, "{}", report.tally)?;
    writeln!(
        out,
        "seconds                  {:>9}",
        report.elapsed.as_secs()
    )?;
    if let Some(failure) = report.failure {
        writeln!(out, "{failure}")?;
        return Ok(Exit::NotYet);
    }
    if report.tally.histories >= TELLING && !report.tally.is_telling() {
        writeln!(out, "missing: {:?}", report.tally.missing())?;
        return Ok(Exit::NotYet);
    }
    Ok(Exit::Ready)
}

fn replay(path: &PathBuf, out: &mut dyn Write) -> Result<Exit, Error> {
    let history = |source: std::io::Error| Error::History {
        path: path.clone(),
        source,
    };
    let text = fs::read_to_string(path).map_err(history)?;
    let plan: Plan = serde_json::from_str(&text).map_err(|error| history(error.into()))?;
    match simulate::replay(&plan) {
        Ok(()) => {
            writeln!(out, "no promise is broken")?;
            Ok(Exit::Ready)
        }
        Err(breach) => {
            writeln!(out, "{breach}")?;
            Ok(Exit::NotYet)
        }
    }
}
