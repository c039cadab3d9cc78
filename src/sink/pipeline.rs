//! One pipeline: session after session until it is told to stop.
//!
//! A session ends by an error or because the worker stops. After an error the pipeline waits as the error says and begins
//! anew from what the table holds; nothing is carried over from one session to the next but the pause.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::accumulate::AccumulatorFactory;
use super::finalize::CommitProcessor;
use super::metrics::PipelineMetrics;
use super::progress::Status;
use super::session::Session;
use super::{Error, Next};
use crate::api::EffectiveSpec;
use crate::api::worker::RunState;
use crate::process::clock::{BACKOFF_MOST, Backoff, Clock};

/// What a pipeline is given.
#[derive(Clone)]
pub(super) struct Context {
    /// Its specification.
    pub spec: Arc<EffectiveSpec>,
    /// The clock.
    pub clock: Clock,
    /// The runtime that talks to the catalog.
    pub runtime: Handle,
    /// What others see of it.
    pub status: Status,
    /// What it counts.
    pub metrics: PipelineMetrics,
    /// Cancelled: commit what is read, leave.
    pub stop: CancellationToken,
    /// Cancelled: leave now.
    pub abandon: CancellationToken,
    /// The worker's name.
    pub worker: String,
    /// Which installation this worker belongs to; empty outside of one.
    pub installation: String,
    /// Bytes that rows and open files may hold.
    pub budget: usize,
    /// The user's accumulators.
    pub accumulators: Vec<AccumulatorFactory>,
    /// The user's commit processors.
    pub processors: Vec<Arc<dyn CommitProcessor>>,
}

/// Keeps a pipeline going until it is told to stop. Blocks its thread.
pub(super) fn run(context: &Context) {
    let pipeline = context.spec.id();
    let table = context.spec.sink.table.to_string();
    if context.spec.suspend {
        context.status.enter(RunState::Suspended);
        context.runtime.block_on(context.stop.cancelled());
        return;
    }
    let mut backoff = Backoff::default();
    while !context.stop.is_cancelled() {
        context.status.enter(RunState::Starting);
        let (committed, ended) = match Session::open(context) {
            Ok(session) => session.run(),
            Err(error) => (false, Err(error)),
        };
        if committed {
            backoff.reset();
        }
        let error = match ended {
            Ok(()) | Err(Error::Stopping) => break,
            Err(error) => error,
        };
        let chain = chain(&error);
        context
            .status
            .fail(error.reason(), chain.clone(), context.clock.now_us());
        let pause = match error.next() {
            Next::Later => {
                tracing::warn!(
                    pipeline,
                    table,
                    reason = error.reason().label(),
                    error = chain,
                    "the session ended; it begins again"
                );
                context
                    .status
                    .write(|progress| progress.state = RunState::Waiting);
                backoff.next_delay()
            }
            Next::AwaitChange => {
                tracing::error!(
                    pipeline,
                    table,
                    reason = error.reason().label(),
                    error = chain,
                    remedy = error.reason().remedy(),
                    "the pipeline stands still"
                );
                context
                    .status
                    .write(|progress| progress.state = RunState::Stopped);
                BACKOFF_MOST
            }
        };
        let pause = context.clock.real(pause);
        context.runtime.block_on(async {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = context.stop.cancelled() => {}
            }
        });
    }
}

/// The error and its sources, as one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
