//! How a command that serves until a signal logs, runs and ends.

use super::{Error, Exit};
use crate::process::{self, LogFormat};

#[derive(Debug, clap::Args)]
pub(super) struct Logging {
    /// How log lines are written
    #[arg(
        long,
        value_name = "FORMAT",
        env = "TIDEMARK_LOG_FORMAT",
        hide_env_values = true,
        default_value = "text"
    )]
    log_format: LogFormat,
    /// What is logged, as info or `info,tidemark::kafka=debug`
    #[arg(long, value_name = "FILTER", env = process::LOG_VARIABLE, hide_env_values = true)]
    log: Option<String>,
}

/// Runs what serves until a signal, with a log.
pub(super) fn until_stopped(
    logging: &Logging,
    serving: impl Future<Output = Result<(), Error>>,
) -> Result<Exit, Error> {
    process::start_logging(logging.log_format, logging.log.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(serving);
    // A question to a server that is away must not outlast the grace period.
    runtime.shutdown_background();
    ended.map(|()| Exit::Ready)
}
