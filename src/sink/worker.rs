//! A set of pipelines in one process, each on a thread of its own.
//!
//! Given a new set, it starts what is new, stops what is gone, and does both to what has changed; the others do not notice.
//! A pipeline that panics is logged and begun again by the next set, and takes no other with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::accumulate::AccumulatorFactory;
use super::buffer::writer_budget;
use super::finalize::CommitProcessor;
use super::metrics::WorkerMetrics;
use super::pipeline::{Context, run};
use super::progress::Status;
use crate::api::EffectiveSpec;
use crate::api::worker::Progress;
use crate::process::Metrics;
use crate::process::clock::Clock;

/// How long a pipeline may take to commit what it has read when it is stopped: below the 30 s that Kubernetes grants by default.
pub const GRACE: Duration = Duration::from_secs(25);

/// What a worker is made of.
#[derive(Clone)]
pub struct WorkerSettings {
    /// Its name: a pod's, or a host's and process's.
    pub worker_id: String,
    /// Which installation it belongs to; empty outside of one.
    pub installation: String,
    /// The clock.
    pub clock: Clock,
    /// Where its metrics go.
    pub metrics: Metrics,
    /// How long a pipeline may take to stop.
    pub grace: Duration,
}

/// A worker.
pub struct Worker {
    settings: WorkerSettings,
    metrics: WorkerMetrics,
    runtime: Handle,
    accumulators: Vec<AccumulatorFactory>,
    processors: Vec<Arc<dyn CommitProcessor>>,
    running: Mutex<BTreeMap<String, Running>>,
    progress: watch::Sender<Progress>,
    changed: Arc<tokio::sync::Notify>,
}

struct Running {
    hash: String,
    status: Status,
    stop: CancellationToken,
    abandon: CancellationToken,
    thread: JoinHandle<()>,
}

impl Worker {
    /// A worker without pipelines, on the runtime it is called in.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn new(settings: WorkerSettings) -> Self {
        let metrics = settings.metrics.register(WorkerMetrics::register);
        let progress = Progress {
            worker: settings.worker_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Progress::default()
        };
        Self {
            settings,
            metrics,
            runtime: Handle::current(),
            accumulators: Vec::new(),
            processors: Vec::new(),
            running: Mutex::default(),
            progress: watch::Sender::new(progress),
            changed: Arc::default(),
        }
    }

    /// Adds an accumulator to every pipeline that starts from now on.
    #[must_use]
    pub fn with_accumulator(mut self, accumulator: AccumulatorFactory) -> Self {
        self.accumulators.push(accumulator);
        self
    }

    /// Adds a commit processor to every pipeline that starts from now on.
    #[must_use]
    pub fn with_processor(mut self, processor: Arc<dyn CommitProcessor>) -> Self {
        self.processors.push(processor);
        self
    }

    /// What it is doing; changes arrive within a second.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Runs exactly these pipelines from now on. Returns when those that are gone or changed have stopped.
    pub async fn set_pipelines(&self, specs: Vec<EffectiveSpec>) {
        let wanted: BTreeMap<String, EffectiveSpec> = specs
            .into_iter()
            .map(|spec| (spec.uid.clone(), spec))
            .collect();
        let gone = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let stays = |uid: &String, running: &Running| {
                let same = wanted
                    .get(uid)
                    .is_some_and(|spec| spec.hash() == running.hash);
                same && !running.thread.is_finished()
            };
            let gone: Vec<String> = running
                .iter()
                .filter(|(uid, running)| !stays(uid, running))
                .map(|(uid, _)| uid.clone())
                .collect();
            gone.into_iter()
                .filter_map(|uid| running.remove(&uid))
                .collect::<Vec<_>>()
        };
        self.stop(gone).await;
        {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            for (uid, spec) in wanted {
                running.entry(uid).or_insert_with(|| self.start(spec));
            }
        }
        self.publish();
    }

    fn start(&self, spec: EffectiveSpec) -> Running {
        let changed = Arc::clone(&self.changed);
        let status = Status::new(&spec, Arc::new(move || changed.notify_one()));
        let (stop, abandon) = (CancellationToken::new(), CancellationToken::new());
        let context = Context {
            clock: self.settings.clock.clone(),
            runtime: self.runtime.clone(),
            status: status.clone(),
            metrics: self
                .metrics
                .pipeline(&spec.id(), &spec.sink.table.to_string()),
            stop: stop.clone(),
            abandon: abandon.clone(),
            worker: self.settings.worker_id.clone(),
            installation: self.settings.installation.clone(),
            budget: writer_budget(spec.worker.memory_budget_bytes),
            accumulators: self.accumulators.clone(),
            processors: self.processors.clone(),
            spec: Arc::new(spec),
        };
        let hash = context.spec.hash();
        let name = format!("tm-{}", context.spec.name);
        let thread = std::thread::Builder::new()
            .name(name.chars().take(15).collect())
            .spawn(move || run(&context))
            .expect("the system has room for a thread");
        Running {
            hash,
            status,
            stop,
            abandon,
            thread,
        }
    }

    /// Runs until `token` is cancelled, then stops every pipeline: what is read is committed first.
    pub async fn run(&self, token: CancellationToken) {
        loop {
            tokio::select! {
                () = token.cancelled() => break,
                () = self.changed.notified() => self.publish(),
                () = tokio::time::sleep(Duration::from_secs(1)) => self.publish(),
            }
        }
        let all = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        self.stop(all.into_values().collect()).await;
        self.publish();
    }

    async fn stop(&self, gone: Vec<Running>) {
        for running in &gone {
            running.stop.cancel();
        }
        let grace = self.settings.grace;
        let abandon: Vec<CancellationToken> =
            gone.iter().map(|running| running.abandon.clone()).collect();
        let timer = self.runtime.spawn(async move {
            tokio::time::sleep(grace).await;
            abandon.iter().for_each(CancellationToken::cancel);
        });
        for running in gone {
            let pipeline = running.status.read().pipeline;
            let joined = self.runtime.spawn_blocking(|| running.thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                tracing::error!(
                    pipeline,
                    "the pipeline's thread panicked; its table is as its last commit left it"
                );
            }
        }
        timer.abort();
    }

    fn publish(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let pipelines: BTreeMap<_, _> = running
            .iter()
            .map(|(uid, running)| (uid.clone(), running.status.read()))
            .collect();
        drop(running);
        self.progress
            .send_modify(|progress| progress.pipelines = pipelines);
    }
}
