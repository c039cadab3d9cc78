//! One pipeline: session after session until it is told to stop.
//!
//! A session ends by an error or because the worker stops. After an error the pipeline waits as the error says and begins
//! anew from what the table holds; nothing is carried over from one session to the next but the pause and the [`Memory`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::accumulate::AccumulatorFactory;
use super::finalize::CommitProcessor;
use super::identity::Names;
use super::memory::Memory;
use super::metrics::PipelineMetrics;
use super::progress::Status;
use super::session::Session;
use super::worker::real_now;
use super::{Error, Next};
use crate::api::EffectiveSpec;
use crate::api::worker::{OnGap, RunState};
use crate::kafka::{self, TopicPartition};
use crate::process::clock::{BACKOFF_MOST, Backoff, Clock};
use crate::process::secret::{Secrets, State};

/// How often it is looked whether a secret has changed: the files are small, and a pod sees a change after a minute anyway.
pub(super) const SECRET_LOOK: Duration = Duration::from_secs(5);

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
    /// How long a stop may take.
    pub grace: Duration,
    /// The topics that it names.
    pub names: Arc<Names>,
    /// What is remembered from session to session.
    pub memory: Arc<Memory>,
    /// The user's accumulators.
    pub accumulators: Vec<AccumulatorFactory>,
    /// The user's commit processors.
    pub processors: Vec<Arc<dyn CommitProcessor>>,
}

impl Context {
    /// A sign of life of the loop.
    pub(super) fn beat(&self) {
        self.status.pulse().beat(real_now(&self.clock));
    }

    /// Where it stands from now on.
    pub(super) fn enter(&self, state: RunState) {
        self.status.enter(state, self.clock.now_us());
    }

    /// What its secrets are now.
    fn secret_state(&self) -> State {
        Secrets::from_environment().state_of(self.spec.secret_refs())
    }

    /// What the secrets are now that a session reads once. Those of a store are read again while it runs.
    pub(super) fn session_secrets(&self) -> State {
        Secrets::from_environment().state_of(self.spec.lasting_secret_refs())
    }

    /// The loop will rest so long, in real time.
    fn rest(&self, length: Duration) {
        self.status.pulse().rest(real_now(&self.clock), length);
    }
}

/// Keeps a pipeline going until it is told to stop. Blocks its thread.
pub(super) fn run(context: &Context) {
    keep_going(context);
    context.metrics.leave();
}

fn keep_going(context: &Context) {
    let pipeline = context.spec.id();
    if context.spec.suspend {
        context.enter(RunState::Suspended);
        context.rest(Duration::MAX);
        context.runtime.block_on(context.stop.cancelled());
        return;
    }
    let mut backoff = Backoff::default();
    while !context.stop.is_cancelled() {
        context.enter(RunState::Starting);
        context.beat();
        let (committed, ended) = run_session(context);
        if committed {
            backoff.reset();
        }
        let error = match ended {
            Ok(()) => break,
            Err(_) if context.stop.is_cancelled() => break,
            Err(Error::SecretChanged) => {
                tracing::info!(
                    pipeline,
                    "a secret has changed; the session begins again with it"
                );
                continue;
            }
            Err(error) => error,
        };
        let pause = match hold(context, &error) {
            Next::Later => backoff.next_delay(),
            Next::AwaitChange => BACKOFF_MOST,
        };
        let pause = context.clock.real(pause);
        context.rest(pause);
        context.runtime.block_on(async {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = context.stop.cancelled() => {}
                () = secret_changes(context) => backoff.reset(),
            }
        });
    }
}

/// Tells why the pipeline stands, and says what it does about it.
fn hold(context: &Context, error: &Error) -> Next {
    let pipeline = context.spec.id();
    let table = context.spec.sink.table.to_string();
    remember_truncation(context, error);
    if error.reason().voids_claim() {
        context.status.withdraw();
        context.metrics.claim(None);
    }
    let chain = chain(error);
    context.status.fail(error, context.clock.now_us());
    let next = if goes_on(context, error) {
        Next::Later
    } else {
        error.next()
    };
    match next {
        Next::Later => {
            tracing::warn!(
                pipeline,
                table,
                reason = error.reason().label(),
                error = chain,
                "the session ended; it begins again"
            );
            context.enter(RunState::Waiting);
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
            context.enter(RunState::Stopped);
        }
    }
    next
}

/// Returns when a secret of the pipeline changes: nobody has to wait for what is there already.
async fn secret_changes(context: &Context) {
    let state = context.secret_state();
    while context.secret_state() == state {
        tokio::time::sleep(SECRET_LOOK).await;
    }
}

/// One session. A panic in it is an error like any other: the table fences whatever it left behind.
fn run_session(context: &Context) -> (bool, Result<(), Error>) {
    let session = || match Session::open(context) {
        Ok(session) => session.run(),
        Err(error) => (false, Err(error)),
    };
    catch_unwind(AssertUnwindSafe(session)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let problem = text.unwrap_or("no word of why").to_owned();
        (false, Err(Error::Crashed { problem }))
    })
}

/// Whether a gap at the source is one that the specification allows: the next session goes on behind it.
fn goes_on(context: &Context, error: &Error) -> bool {
    let gap = matches!(
        error,
        Error::Kafka(
            kafka::Error::PositionLost { .. }
                | kafka::Error::LogStartMoved { .. }
                | kafka::Error::LogTruncated { .. }
        ) | Error::PartitionGone { .. }
    );
    gap && context.spec.source.on_gap == OnGap::Continue
}

/// A log that was cut and has grown again looks whole from outside: only the reader has noticed.
fn remember_truncation(context: &Context, error: &Error) {
    if let Error::Kafka(kafka::Error::LogTruncated {
        topic,
        partition,
        offset,
        ..
    }) = error
    {
        let at = TopicPartition::new(Arc::clone(topic), *partition);
        context.memory.note_truncation(at, *offset);
    }
}

/// The error and its sources, as one line.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
