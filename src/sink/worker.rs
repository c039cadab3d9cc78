//! A set of pipelines in one process, each on a thread of its own.
//!
//! Given a new set, it starts what is new, stops what is gone, and does both to what has changed; the others do not notice.
//! A pipeline that panics is logged and begun again by the next set, and takes no other with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::accumulate::AccumulatorFactory;
use super::buffer::writer_budget;
use super::finalize::CommitProcessor;
use super::identity::Names;
use super::memory::Memory;
use super::metrics::WorkerMetrics;
use super::pipeline::{Context, run};
use super::progress::Status;
use super::pulse::Pulse;
use crate::api::EffectiveSpec;
use crate::api::worker::{PipelineProgress, Progress};
use crate::process::Metrics;
use crate::process::clock::Clock;

pub use crate::api::worker::GRACE;

/// What is still granted after the grace period: an attempt is given up at once, a question to the brokers is not.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// How often it is looked whether threads have ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

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
    running: Mutex<BTreeMap<String, Arc<Running>>>,
    /// By pipeline and table: what was seen of one table says nothing of another.
    memories: Mutex<BTreeMap<(String, String), Arc<Memory>>>,
    /// Told to stop, and not ended yet.
    leaving: Mutex<Vec<Arc<Running>>>,
    stopping: CancellationToken,
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
        let metrics = settings
            .metrics
            .register(|registry| WorkerMetrics::register(registry, &settings.clock));
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
            memories: Mutex::default(),
            leaving: Mutex::default(),
            stopping: CancellationToken::new(),
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

    /// Runs exactly these pipelines from now on. Returns when those that are gone or changed have stopped, unless the worker
    /// itself is stopped meanwhile: then nothing new is started.
    pub async fn set_pipelines(&self, specs: Vec<EffectiveSpec>) {
        let wanted: BTreeMap<String, EffectiveSpec> = specs
            .into_iter()
            .map(|spec| (spec.uid.clone(), spec))
            .collect();
        for spec in wanted.values() {
            // For those that run as well: it is no reason to stop them.
            self.memory_of(spec).know_table(spec.sink.known_table);
        }
        let gone = self.take(|uid, running| {
            let same = wanted
                .get(uid)
                .is_some_and(|spec| spec.hash() == running.hash);
            !same || running.thread.is_finished()
        });
        lock(&self.leaving).extend(gone.iter().cloned());
        self.stop(&gone).await;
        lock(&self.leaving).retain(|leaving| !leaving.thread.is_finished());
        lock(&self.memories).retain(|(uid, _), _| wanted.contains_key(uid));
        if !self.stopping.is_cancelled() {
            let mut running = lock(&self.running);
            for (uid, spec) in wanted {
                running
                    .entry(uid)
                    .or_insert_with(|| Arc::new(self.start(spec)));
            }
        }
        self.publish();
    }

    fn take(&self, chosen: impl Fn(&String, &Running) -> bool) -> Vec<Arc<Running>> {
        let mut running = lock(&self.running);
        let uids: Vec<String> = running
            .keys()
            .filter(|uid| chosen(uid, &running[*uid]))
            .cloned()
            .collect();
        uids.iter().filter_map(|uid| running.remove(uid)).collect()
    }

    /// What this process remembers of a pipeline and its table, whatever else its specification says now.
    fn memory_of(&self, spec: &EffectiveSpec) -> Arc<Memory> {
        let sink = &spec.sink;
        let table = format!("{} {} {}", sink.catalog.uri, sink.catalog.name, sink.table);
        let mut memories = lock(&self.memories);
        Arc::clone(memories.entry((spec.uid.clone(), table)).or_default())
    }

    fn start(&self, spec: EffectiveSpec) -> Running {
        let changed = Arc::clone(&self.changed);
        let pulse = Pulse::new(real_now(&self.settings.clock));
        let changed: Arc<dyn Fn() + Send + Sync> = Arc::new(move || changed.notify_one());
        let status = Status::new(&spec, changed, pulse, self.settings.clock.now_us());
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
            grace: self.settings.grace,
            names: Arc::new(Names::of(&spec)),
            memory: self.memory_of(&spec),
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
        self.stopping.cancel();
        let mut all = self.take(|_, _| true);
        all.append(&mut lock(&self.leaving));
        self.stop(&all).await;
        self.publish();
    }

    /// Lets pipelines commit what they have read, at most for the grace period; what has not ended then is left behind, and the
    /// table fences it.
    async fn stop(&self, gone: &[Arc<Running>]) {
        for running in gone {
            running.stop.cancel();
        }
        let ended = |running: &Arc<Running>| running.thread.is_finished();
        if self
            .within(self.settings.grace, || gone.iter().all(ended))
            .await
        {
            return;
        }
        for running in gone {
            running.abandon.cancel();
        }
        self.within(LAST_MOMENT, || gone.iter().all(ended)).await;
        for running in gone.iter().filter(|running| !ended(running)) {
            let pipeline = running.status.read(Duration::ZERO, 0).pipeline;
            tracing::warn!(
                pipeline,
                "not stopped in time; the table is as its last commit left it"
            );
        }
    }

    async fn within(&self, patience: Duration, done: impl Fn() -> bool) -> bool {
        let waited = tokio::time::timeout(patience, async {
            while !done() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        waited.await.is_ok()
    }

    fn publish(&self) {
        let pipelines = self.look(real_now(&self.settings.clock));
        self.progress
            .send_modify(|progress| progress.pipelines = pipelines);
    }

    fn look(&self, now: Duration) -> BTreeMap<String, PipelineProgress> {
        let now_us = self.settings.clock.now_us();
        lock(&self.running)
            .iter()
            .map(|(uid, running)| (uid.clone(), running.status.read(now, now_us)))
            .collect()
    }
}

/// The real time of a clock, from when it was made.
pub(super) fn real_now(clock: &Clock) -> Duration {
    clock.real(clock.monotonic())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::pulse::STUCK_AFTER;
    use super::*;
    use crate::api::load_manifests;
    use crate::api::worker::RunState;

    /// Nobody listens on these ports: the pipeline waits, again and again.
    const MANIFEST: &str = r#"
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {name: orders, namespace: shop}
spec:
  source:
    kafka: {bootstrapServers: "127.0.0.1:1", topics: [orders]}
    format: Json
  eventTime: {from: RecordTimestamp}
  sink:
    catalog: {type: Rest, uri: "http://127.0.0.1:1"}
    table: shop.orders
    schema: [{name: id, type: long, key: true}]
"#;

    fn spec(suspend: bool) -> EffectiveSpec {
        let mut spec = load_manifests(MANIFEST)
            .expect("a sound manifest")
            .remove(0)
            .1;
        spec.suspend = suspend;
        spec
    }

    fn worker() -> Worker {
        Worker::new(WorkerSettings {
            worker_id: "one".to_owned(),
            installation: String::new(),
            clock: Clock::system(),
            metrics: Metrics::default(),
            grace: Duration::ZERO,
        })
    }

    async fn until(worker: &Worker, state: RunState) {
        let reached = worker.within(Duration::from_mins(1), || {
            let seen = worker.look(Duration::ZERO);
            seen.values().any(|pipeline| pipeline.state == state)
        });
        assert!(reached.await, "never {state}");
    }

    fn stuck(worker: &Worker, later: Duration) -> Option<u64> {
        let now = real_now(&worker.settings.clock) + later;
        worker.look(now).into_values().next()?.stuck_seconds
    }

    #[tokio::test]
    async fn suspended_pipeline_is_never_stuck() {
        let worker = worker();
        worker.set_pipelines(vec![spec(true)]).await;
        until(&worker, RunState::Suspended).await;
        assert_eq!(stuck(&worker, Duration::from_hours(1000)), None);
        worker.set_pipelines(Vec::new()).await;
    }

    /// It rests between two tries; the rest is over before the silence counts.
    #[tokio::test]
    async fn pipeline_that_waits_for_its_catalog_is_not_stuck_while_it_tries_again() {
        let worker = worker();
        worker.set_pipelines(vec![spec(false)]).await;
        until(&worker, RunState::Waiting).await;
        assert_eq!(stuck(&worker, STUCK_AFTER * 9 / 10), None);
        let silence = stuck(&worker, STUCK_AFTER * 3).expect("it has not tried again by then");
        assert!(silence >= STUCK_AFTER.as_secs(), "{silence}");
        worker.set_pipelines(Vec::new()).await;
    }

    /// A thread that hangs gives no sign of life, and neither does one that is gone.
    #[tokio::test]
    async fn loop_that_has_ended_without_being_told_to_is_stuck() {
        let worker = worker();
        let pulse = Pulse::new(Duration::ZERO);
        let status = Status::new(&spec(false), Arc::new(|| ()), pulse, 0);
        let running = Running {
            hash: String::new(),
            status,
            stop: CancellationToken::new(),
            abandon: CancellationToken::new(),
            thread: std::thread::spawn(|| ()),
        };
        lock(&worker.running).insert("uid".to_owned(), Arc::new(running));
        let seen = |now| worker.look(now)["uid"].stuck_seconds;
        assert_eq!(seen(Duration::from_secs(299)), None);
        assert_eq!(seen(Duration::from_secs(301)), Some(301));
        worker.publish();
        let published = worker.progress();
        assert_eq!(published.borrow().stuck(), [], "this worker has just begun");
    }
}
