//! `tidemark demo`: everything in one process, in under a minute.

use std::{
    io::{IsTerminal, Write, stdout},
    path::PathBuf,
};

use super::{Error, Exit};
use crate::{
    demo,
    process::{LogFormat, start_logging},
};

/// What is said in lines beside the demo's own: only what is odd.
const LOG_FILTER: &str = "warn";

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tidemark demo
  tidemark demo --keep /tmp/demo && tidemark get shop.orders --file /tmp/demo/orders.yaml

A broker, a generator of changes, a catalog and a worker run in this process, on a clock on which an hour passes in 12 s. In the
end the table is read back and compared with what was sent; anything wrong ends it with 1.")]
pub(super) struct Arguments {
    /// Keep catalog and table in this folder; by default in a new one among the temporary files
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// What the changes are drawn from: the same number gives the same changes
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Tell in lines what happens, also in a terminal
    #[arg(long)]
    lines: bool,
}

pub(super) fn demo(arguments: Arguments, out: &mut dyn Write) -> Result<Exit, Error> {
    let live = !arguments.lines && stdout().is_terminal();
    if !live {
        // In a live picture a log line would be a blot.
        start_logging(LogFormat::Text, Some(LOG_FILTER))?;
    }
    let options = demo::Options {
        keep: arguments.keep,
        seed: arguments.seed,
        live,
        program: program(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let good = runtime.block_on(demo::run(&options, out))?;
    Ok(if good { Exit::Ready } else { Exit::NotYet })
}

/// How a shell in any folder finds this program again: by its name where it was found so, else by its path.
fn program() -> String {
    let called = std::env::args().next().unwrap_or_default();
    let path = std::env::current_exe()
        .ok()
        .filter(|_| called.contains('/'));
    path.map_or_else(|| "tidemark".to_owned(), |path| path.display().to_string())
}
