//! What every long-running command needs: logging, metrics, the stop signal, secrets, the admin server and the clock.
//!
//! Nothing here knows a pipeline. Metrics are registered by the rooms that count them.
//!
//! [`clock`] is the only reader of the time.

use std::{
    fmt,
    io::{self, IsTerminal},
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{encoding::text, registry::Registry};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;
use tracing_subscriber::EnvFilter;

pub mod age;
pub mod clock;
pub mod http;
pub mod secret;
pub mod tls;

/// The variable that says what is logged, as `info` or `info,tidemark::kafka=debug`.
pub const LOG_VARIABLE: &str = "TIDEMARK_LOG";

/// What is logged where nothing else is said. What the client of the API server says of each call that fails, the operator says
/// once an outage, and counts.
const USUAL: &str = "info,kube_client=off,kube_runtime=off";

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object a line, for collectors.
    Json,
}

/// Why a process could not start.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
pub enum Error {
    /// The filter of the log cannot be read.
    #[error(
        "log filter \"{filter}\" cannot be read; write a level or target=level, as info,tidemark::kafka=debug"
    )]
    LogFilter {
        /// What was given.
        filter: String,
        /// Where it breaks.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Another logger is in place.
    #[error("logging is already set up in this process")]
    LogTwice {
        /// What the logger said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Signals cannot be received.
    #[error("signals cannot be received")]
    Signals {
        /// What the system said.
        source: io::Error,
    },
    /// A secret is not where it is looked for, or cannot be read.
    #[error(transparent)]
    Secret(#[from] secret::Error),
}

/// Starts logging to the standard error output.
///
/// `filter` wins over the variable [`LOG_VARIABLE`]; without both, `info` is logged.
///
/// # Errors
/// The filter cannot be read, or logging was started before.
pub fn start_logging(format: LogFormat, filter: Option<&str>) -> Result<(), Error> {
    let filter = match filter {
        Some(filter) => filter.to_owned(),
        None => std::env::var(LOG_VARIABLE).unwrap_or_else(|_| USUAL.to_owned()),
    };
    let parsed =
        EnvFilter::try_new(&filter).map_err(|source| Error::LogFilter { filter, source })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    let started = match format {
        LogFormat::Text => lines.with_target(false).try_init(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .try_init(),
    };
    started.map_err(|source| Error::LogTwice { source })
}

/// A token that is cancelled by SIGTERM or SIGINT.
///
/// The second signal ends the process at once: a person who presses Ctrl-C twice means it. Ending in the middle is safe, the
/// table fences what was under way.
///
/// # Errors
/// Signals cannot be received.
pub fn stop_on_signals() -> Result<CancellationToken, Error> {
    let receive = |kind| signal(kind).map_err(|source| Error::Signals { source });
    let mut terminate = receive(SignalKind::terminate())?;
    let mut interrupt = receive(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        loop {
            let signal = tokio::select! {
                _ = terminate.recv() => SignalKind::terminate(),
                _ = interrupt.recv() => SignalKind::interrupt(),
            };
            if stop.is_cancelled() {
                std::process::exit(128 + signal.as_raw_value());
            }
            info!(
                signal = signal.as_raw_value(),
                "stopping: what is buffered is committed first"
            );
            stop.cancel();
        }
    });
    Ok(token)
}

/// All metrics of the process. Clones are the same registry.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            registry: Arc::new(Mutex::new(Registry::with_prefix("tidemark"))),
        }
    }
}

impl Metrics {
    /// Lets a room add its metrics; names get the prefix `tidemark_`.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All metrics in the `OpenMetrics` text format.
    ///
    /// # Panics
    /// Never: a string takes whatever is written to it.
    #[must_use]
    pub fn encode(&self) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = String::new();
        text::encode(&mut page, &registry).expect("writing to a string does not fail");
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;

    #[test]
    fn metrics_carry_the_prefix_of_the_house() {
        let metrics = Metrics::default();
        let rows: Counter = Counter::default();
        metrics.register(|registry| registry.register("rows", "Rows read.", rows.clone()));
        rows.inc_by(3);
        let page = metrics.encode();
        assert!(page.contains("\ntidemark_rows_total 3\n"), "{page}");
        assert!(page.ends_with("# EOF\n"), "{page}");
    }
}
