//! Everything in one process: a broker, a generator of changes, a catalog, a warehouse, and the same worker as anywhere.
//!
//! Generator and worker run on one scaled clock, on which an hour passes in seconds and which arrives at the present when
//! the demo ends. The [`generator`] sends disordered, late and at times no changes to the embedded [`broker`], whose receipts
//! become the [`record`]; the worker writes the table; the [`screen`] shows a [`picture`] of both; in the end [`check`] reads the
//! table back and holds it against the record.
//!
//! The demo has no way into the worker but the one that everybody has: a manifest, a broker's address, and `/progress`.

pub mod broker;
pub mod check;
pub mod feed;
pub mod generator;
pub mod look;
pub mod picture;
pub mod record;
mod report;
mod screen;
mod show;

use std::{io::Write, path::PathBuf, time::Duration};

use jiff::Timestamp;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{
        self,
        worker::{PipelineProgress, Progress},
    },
    lake,
    process::{
        Metrics,
        clock::{Clock, length},
    },
    sink::{Worker, WorkerSettings},
};

use feed::Feed;
use look::Place;
use picture::{Hour, Stage};
use record::Declared;
use screen::Screen;
use show::Show;

/// The topic of the demo.
pub const TOPIC: &str = "shop.shop.orders";

/// How many times faster than a person's the demo's clock goes: an hour in 12 s.
const FACTOR: u32 = 300;

/// How often changes are sent, on a person's clock.
const TICK: Duration = Duration::from_millis(50);

/// A picture comes with each of so many ticks.
const TICKS_A_PICTURE: u32 = 4;

/// How long the worker may take to commit the last changes, and to stop, on a person's clock.
const PATIENCE: Duration = Duration::from_secs(20);

const MINUTE_US: i64 = 60_000_000;
const HOUR_US: i64 = 60 * MINUTE_US;

/// The bounds that the manifest declares and the judge goes by.
const DECLARED: Declared = Declared {
    lateness_us: generator::LATENESS_US,
    delay_us: 10 * MINUTE_US,
};

/// How a demo is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The folder for catalog and warehouse; a new temporary one without it.
    pub keep: Option<PathBuf>,
    /// What the changes are drawn from; the same seed gives the same ones, shifted in time.
    pub seed: u64,
    /// Whether to take over the terminal for a live picture.
    pub live: bool,
    /// How a person calls this program: its path, where the shell would not find it by its name.
    pub program: String,
}

/// Why a demo could not be run. What it finds wrong with the table is no error but its result.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
pub enum Error {
    /// The folder cannot be used.
    #[error("folder \"{}\" cannot be used", .folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is a demo in the folder already.
    #[error("folder \"{}\" holds an earlier demo; delete it or name another one", .folder.display())]
    Occupied {
        /// Which.
        folder: PathBuf,
    },
    /// The embedded broker failed, or lost a message.
    #[error("the embedded broker failed")]
    Broker(#[source] rdkafka::error::KafkaError),
    /// The demo's own manifest was refused.
    #[error("the demo's manifest was refused: {faults}")]
    Manifest {
        /// Every fault.
        faults: String,
    },
    /// The terminal or the output is gone.
    #[error("the picture cannot be shown")]
    Screen(#[source] std::io::Error),
    /// The worker stopped and would not go on.
    #[error("the worker stopped: {problem}")]
    Worker {
        /// What it says.
        problem: String,
    },
    /// The catalog cannot be opened or has no such table.
    #[error("the table cannot be loaded")]
    Lake(#[from] lake::Error),
    /// The table cannot be read back.
    #[error("the table cannot be read back")]
    Read(#[source] Box<iceberg::Error>),
    /// A column is missing or has another type.
    #[error("the table cannot be read back: column \"{column}\" is missing or has another type")]
    Column {
        /// Which.
        column: &'static str,
    },
    /// A value in a snapshot summary is not what its name says.
    #[error("a snapshot says \"{name}\" = \"{value}\", which is no instant")]
    Summary {
        /// Its name.
        name: String,
        /// What stands there.
        value: String,
    },
}

impl Error {
    fn read(source: iceberg::Error) -> Self {
        Self::Read(Box::new(source))
    }
}

/// Runs a demo; `true` if nothing was wrong with its table. Ends by itself in under a minute.
///
/// # Errors
/// [`Error`] when it could not be run to its end.
pub async fn run(options: &Options, out: &mut dyn Write) -> Result<bool, Error> {
    let place = Place::prepare(options.keep.as_deref())?;
    let span = Span::ending_at(Clock::system().now_us());
    let clock = Clock::scaled(FACTOR, span.real());
    let mut feed = Feed::start(options.seed, clock.clone())?;
    let spec = prepare(&place, feed.bootstrap_servers())?;
    let ingest = Ingest::start(spec, clock.clone());
    writeln!(out, "{}", report::opening(&span, place.folder())).map_err(Error::Screen)?;
    let mut screen = Screen::open(options.live, out)?;
    let shown = Show::new(span, clock)
        .run(&mut feed, &ingest, &mut screen)
        .await;
    ingest.stop().await;
    let stage = shown.and_then(|mut picture| {
        picture.stage = Stage::Checking;
        screen.show(&picture).map(|()| picture)
    });
    drop(screen);
    let picture = stage?;
    let catalog = lake::catalog::open(&place.catalog_settings()).await?;
    let table = lake::catalog::load(catalog.as_ref(), &look::table()).await?;
    let record = feed.record();
    let findings = check::check(&table, &record, DECLARED).await?;
    let text = report::closing(&findings, &record, &picture);
    writeln!(out, "{text}").map_err(Error::Screen)?;
    let metadata_file = table.metadata_location().unwrap_or_default();
    write!(
        out,
        "{}",
        place.instructions(metadata_file, &options.program)
    )
    .map_err(Error::Screen)?;
    Ok(report::is_good(&findings, &picture))
}

/// The time that a demo covers, on its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start_us: i64,
    end_us: i64,
}

impl Span {
    /// Three to four hours that end at `now_us` and begin 12 min before a full one, so that whole hours become final: two or three
    /// of them, the last of which has ended at least 18 min before the end (the claim comes 10 to 16 min behind).
    fn ending_at(now_us: i64) -> Self {
        let mut last_us = now_us - now_us.rem_euclid(HOUR_US);
        if now_us - last_us < 18 * MINUTE_US {
            last_us -= HOUR_US;
        }
        let hours = if now_us - last_us < 48 * MINUTE_US {
            3
        } else {
            2
        };
        Self {
            start_us: last_us - hours * HOUR_US - 12 * MINUTE_US,
            end_us: now_us,
        }
    }

    /// How long it takes a person: the scaled clock arrives at the present when it is over.
    fn real(&self) -> Duration {
        length(self.end_us - self.start_us) / (FACTOR - 1)
    }

    /// Until when changes are sent; the rest is for the last commits.
    fn flow_end_us(&self) -> i64 {
        self.end_us - 6 * MINUTE_US
    }

    /// The hours in it, in order, also those that it only touches.
    fn hours(&self) -> Vec<Hour> {
        let first_us = self.start_us - self.start_us.rem_euclid(HOUR_US);
        let starts = (0..)
            .map(|hour| first_us + hour * HOUR_US)
            .take_while(|start_us| *start_us < self.end_us);
        starts
            .map(|start_us| Hour {
                start_us,
                ..Hour::default()
            })
            .collect()
    }
}

/// An instant as ISO 8601 text in UTC; one outside of any calendar is its beginning.
fn instant(us: i64) -> Timestamp {
    Timestamp::from_microsecond(us).unwrap_or(Timestamp::MIN)
}

/// The worker, with the one pipeline of the demo.
struct Ingest {
    progress: watch::Receiver<Progress>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Ingest {
    fn start(spec: api::EffectiveSpec, clock: Clock) -> Self {
        let worker = Worker::new(WorkerSettings {
            worker_id: "demo".to_owned(),
            installation: String::new(),
            clock,
            metrics: Metrics::default(),
            grace: PATIENCE,
        });
        let progress = worker.progress();
        let stop = CancellationToken::new();
        let token = stop.clone();
        let task = tokio::spawn(async move {
            worker.set_pipelines(vec![spec]).await;
            worker.run(token).await;
        });
        Self {
            progress,
            stop,
            task,
        }
    }

    /// What the pipeline is doing.
    fn progress(&self) -> PipelineProgress {
        let progress = self.progress.borrow();
        progress
            .pipelines
            .values()
            .next()
            .cloned()
            .unwrap_or_default()
    }

    /// Lets it commit what it has read, and ends it.
    async fn stop(self) {
        self.stop.cancel();
        // A worker that panicked has left its table as it was after its last commit, and that is what is judged.
        let _ = self.task.await;
    }
}

/// Writes the manifest down and resolves it, as `tidemark run` would.
fn prepare(place: &Place, bootstrap_servers: &str) -> Result<api::EffectiveSpec, Error> {
    let manifest = place.manifest(bootstrap_servers);
    let written = std::fs::write(place.manifest_file(), &manifest);
    written.map_err(|source| Error::Folder {
        folder: place.folder().to_owned(),
        source,
    })?;
    let loaded = api::load_manifests(&manifest).map_err(|faults| Error::Manifest {
        faults: faults
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; "),
    })?;
    let spec = loaded.into_iter().next().map(|(_, spec)| spec);
    spec.ok_or_else(|| Error::Manifest {
        faults: "it holds no pipeline".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the time of day: at least three hours, whole hours in them, and over in less than 50 s.
    #[test]
    fn span_holds_whole_hours_that_have_time_to_become_final() {
        for minute in 0..240 {
            let span = Span::ending_at(1_796_032_800_000_000 + minute * MINUTE_US + 1);
            let whole = |hour: &Hour| {
                hour.start_us >= span.start_us
                    && hour.start_us + HOUR_US + 18 * MINUTE_US <= span.end_us
            };
            let hours = span.hours().iter().filter(|hour| whole(hour)).count();
            assert!((2..=3).contains(&hours), "minute {minute}");
            assert!(
                span.end_us - span.start_us >= 3 * HOUR_US,
                "minute {minute}"
            );
            assert!(span.real() < Duration::from_secs(50), "minute {minute}");
        }
    }
}
