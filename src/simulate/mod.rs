//! Whole histories from a seed, judged by an oracle: how the claim is shown to be right.
//!
//! ```text
//! seed ─▶ plan: settings and events ─▶ world: cluster, table, clock (plain structs) ◀─▶ workers: sink and watermark, as they are
//!                                            │ every record, every commit
//!                                            ▼
//!                                      oracle: its own account of what is there; reads claims as text
//! ```
//!
//! What a history drives is the code of production: `sink/{buffer,accumulate,tracks,errand,fence,finalize}` and the whole of
//! `watermark`, with state and summary encoded and decoded at every commit. Only the broker, the catalog and the clock are
//! simulated. A history that fails is made as short as it can be and printed as JSON, to be kept in `histories/`.
//!
//! The same seed plays the same history, on any number of threads.

mod broker;
mod content;
mod draw;
mod faults;
mod judge;
mod oracle;
mod pipeline;
mod plan;
mod rules;
mod said;
mod shrink;
mod start;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod way;
mod work;
mod worker;
mod world;
#[cfg(test)]
mod wrong;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

pub use oracle::Breach;
pub use plan::Plan;
pub use tally::{Seen, Tally};

use crate::process::clock::Clock;
use oracle::{Found, breach};
use rules::{Honest, Rules};
use tally::Note;

/// How many histories, and from where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Histories at least; the one numbered n is drawn from `seed` + n.
    pub histories: u64,
    /// The seed of the first.
    pub seed: u64,
    /// More of them until this much time has passed.
    pub at_least: Duration,
    /// Threads.
    pub threads: usize,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the histories held.
    pub tally: Tally,
    /// The first that failed.
    pub failure: Option<Failure>,
    /// How long it took.
    pub elapsed: Duration,
}

/// A history in which a promise was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// As short as it could be made.
    pub plan: Plan,
    /// Which promise, and how.
    pub breach: Breach,
    /// Events it was drawn with.
    pub drawn: usize,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let history = serde_json::to_string(&self.plan).unwrap_or_default();
        writeln!(f, "broken: {}", self.breach)?;
        writeln!(
            f,
            "drawn: tidemark simulate --histories 1 --seed {}; {} of {} events are enough:",
            self.plan.seed,
            self.plan.events.len(),
            self.drawn
        )?;
        write!(f, "{history}")
    }
}

/// Plays histories until they are enough or one fails.
#[must_use]
pub fn run(options: &Options) -> Report {
    let clock = Clock::system();
    let started = clock.monotonic();
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let enough = |number: u64| {
        number >= options.histories && clock.monotonic().saturating_sub(started) >= options.at_least
    };
    let work = || {
        let (mut tally, mut failure) = (Tally::default(), None);
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if enough(number) {
                break;
            }
            let plan = draw::draw(options.seed.wrapping_add(number));
            let (note, found) = play(&plan, &|| Box::new(Honest));
            tally.add(&note);
            if let Err(breach) = found {
                failed.store(true, Ordering::Relaxed);
                failure = Some((plan, breach));
            }
        }
        (tally, failure)
    };
    let mut report = Report {
        tally: Tally::default(),
        failure: None,
        elapsed: Duration::ZERO,
    };
    let mut failures = Vec::new();
    thread::scope(|scope| {
        let handles: Vec<_> = (0..options.threads.max(1))
            .map(|_| scope.spawn(work))
            .collect();
        for handle in handles {
            if let Ok((tally, failure)) = handle.join() {
                report.tally.join(&tally);
                failures.extend(failure);
            }
        }
    });
    report.elapsed = clock.monotonic().saturating_sub(started);
    failures.sort_by_key(|(plan, _): &(Plan, Breach)| plan.seed);
    report.failure = failures.into_iter().next().map(|(plan, breach)| {
        let drawn = plan.events.len();
        let (plan, breach) = shrink::shrink(plan, breach, &|| Box::new(Honest));
        Failure {
            plan,
            breach,
            drawn,
        }
    });
    report
}

/// Plays one history by the rules of the house; tells what was broken in it.
///
/// # Errors
/// The first promise that was broken.
pub fn replay(plan: &Plan) -> Result<(), Breach> {
    play(plan, &|| Box::new(Honest)).1
}

/// Plays one history. A panic in it is a promise broken as well: the core asserts what would lose or invent data.
fn play(plan: &Plan, rules: &dyn Fn() -> Box<dyn Rules>) -> (Note, Found) {
    let played = catch_unwind(AssertUnwindSafe(|| world::play(plan, rules())));
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no word of why");
        (Note::default(), Err(breach("panic", text)))
    })
}
