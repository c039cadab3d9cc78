//! What the parts of an operator share: the index, the queue, the waves, and what was last reported.
//!
//! One lock, held for a look or a change in memory, never over a call. Whoever changes the index says what has to be looked at, and
//! it is queued in the same breath.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Key, Owner, Task, build,
    index::{Changed, Index, Kept, WorkersSeen},
    metrics::OperatorMetrics,
    placement::Capacity,
    plan::Contents,
    policy::Policies,
    policy_report::PolicyReports,
    queue::{Outcome, Queue},
    report::Reports,
    rollout::{Health, Limits, Rollout},
    status::Reconciled,
};
use crate::{
    api::worker::{PipelineProgress, RunState},
    process::clock::Clock,
};

/// How long a pipeline that another leader had changed has at least to show that it is well: several rounds of asking.
const ADOPTED_US: i64 = 120_000_000;

/// How long after a change a new leader looks whether the pipeline is well, before it lets others go. What is wrong with it later is
/// not of that change.
const LATELY_US: i64 = 86_400_000_000;

/// What an operator is told at its start.
#[derive(Debug, Clone)]
pub struct FleetSettings {
    /// What the children of all pipelines have in common.
    pub build: build::Settings,
    /// How much shared workers hold.
    pub capacity: Capacity,
    /// How fast a change goes over pipelines that no policy with a `rollout` selects.
    pub limits: Limits,
}

/// What the parts share.
pub struct Fleet {
    pub(super) settings: FleetSettings,
    pub(super) clock: Clock,
    pub(super) metrics: OperatorMetrics,
    /// What is said of the pipelines.
    pub(super) reports: Reports,
    /// What is said of the policies.
    pub(super) policy_reports: PolicyReports,
    state: Mutex<State>,
    /// Something was queued.
    pub(super) queued: Notify,
    /// Something was reported that the status may have to say.
    pub(super) reported: Notify,
    leads: AtomicBool,
    lists: AtomicUsize,
    complete: watch::Sender<bool>,
    stop: CancellationToken,
}

/// What stands under the lock.
pub(super) struct State {
    pub(super) index: Index,
    pub(super) rollout: Rollout,
    pub(super) queue: Queue<Task>,
    /// What each child held when it was last written from here.
    pub(super) contents: Contents,
    /// Tasks whose children are written once more.
    pub(super) verify: BTreeSet<Task>,
    pub(super) reports: BTreeMap<Key, Report>,
    /// Pipelines whose report has changed since the status was last derived.
    pub(super) news: BTreeSet<Key>,
    /// What each worker runs of each pipeline, by uid and pod.
    told: HashMap<String, Vec<(String, Told)>>,
    /// Whose limits the waves keep to.
    policies: Arc<Policies>,
    /// Whether places in a wave may have become free.
    pub(super) freed: bool,
}

/// What was reported last about a pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Which one of that name.
    pub uid: String,
    /// The workers that run it.
    pub workers: Option<Key>,
    /// What came of reconciling it.
    pub reconciled: Arc<Reconciled>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    runs: String,
    running: bool,
}

impl Fleet {
    /// A fleet of which nothing is known yet.
    #[must_use]
    pub fn new(
        settings: FleetSettings,
        (clock, metrics): (Clock, OperatorMetrics),
        (reports, policy_reports): (Reports, PolicyReports),
        stop: CancellationToken,
    ) -> Self {
        let state = State {
            index: Index::default(),
            rollout: Rollout::new(settings.limits),
            queue: Queue::default(),
            contents: Contents::new(),
            verify: BTreeSet::new(),
            reports: BTreeMap::new(),
            news: BTreeSet::new(),
            told: HashMap::new(),
            policies: Arc::default(),
            freed: false,
        };
        Self {
            settings,
            clock,
            metrics,
            reports,
            policy_reports,
            state: Mutex::new(state),
            queued: Notify::new(),
            reported: Notify::new(),
            leads: AtomicBool::new(false),
            lists: AtomicUsize::new(0),
            complete: watch::Sender::new(false),
            stop,
        }
    }

    /// When the operator is to end.
    pub(super) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many lists have to come in before anything is known.
    pub(super) fn expect_lists(&self, lists: usize) {
        self.lists.store(lists, Ordering::Release);
    }

    /// One of them has.
    pub(super) fn listed(&self) {
        if self.lists.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete.send_replace(true);
        }
    }

    /// Tells whether everything was seen once: before that, what is missing may be there.
    #[must_use]
    pub fn complete(&self) -> watch::Receiver<bool> {
        self.complete.subscribe()
    }

    /// Changes the index, and queues what has to be looked at for it.
    pub(super) fn take_in(&self, change: impl FnOnce(&mut Index) -> Vec<Task>) {
        let touched = {
            let mut state = self.lock();
            let tasks = change(&mut state.index);
            state.read_limits(self.settings.limits);
            self.queue_in(&mut state, tasks);
            state.index.take_touched()
        };
        for (key, touched) in touched {
            match touched {
                Some(touched) => self.reports.seen(&key, touched),
                None => self.reports.gone(&key),
            }
        }
    }

    /// Queues tasks.
    pub(super) fn queue_in(&self, state: &mut State, tasks: impl IntoIterator<Item = Task>) {
        let now = self.clock.monotonic();
        for task in tasks {
            state.queue.add(task, now);
        }
        self.queued.notify_one();
    }

    /// Whether this replica leads, as far as it knows: nothing is asked and nothing said by one that does not.
    pub(super) fn leads(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }

    /// Another replica leads: what was reported is its to say.
    pub(super) fn step_down(&self) {
        self.leads.store(false, Ordering::Release);
        self.metrics.set_leader(false);
        self.reports.leads(false);
        self.policy_reports.step_down();
        let mut state = self.lock();
        state.reports.clear();
        state.news.clear();
        state.told.clear();
    }

    /// Everything is looked at: this replica leads from now on. What the last leader had let go still has its place.
    pub(super) fn take_over(&self) {
        self.leads.store(true, Ordering::Release);
        self.metrics.set_leader(true);
        self.reports.leads(true);
        let mut state = self.lock();
        let state = &mut *state;
        state.contents.clear();
        state.rollout = Rollout::new(self.settings.limits);
        state.policies = Arc::default();
        state.read_limits(self.settings.limits);
        let now_us = self.clock.now_us();
        let pipelines: Vec<_> = state
            .index
            .pipelines()
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        let mut tasks = BTreeSet::new();
        for (key, pipeline) in &pipelines {
            state.adopt(key, pipeline, now_us);
            tasks.insert(Task::Pipeline(key.clone()));
            tasks.insert(Task::Namespace(key.namespace.clone()));
        }
        // What is left of those that are gone.
        tasks.extend(
            state
                .index
                .all_workers()
                .filter_map(|(_, workers)| workers.owner.clone())
                .map(Task::from),
        );
        tasks.extend(state.index.network_policies().cloned().map(Task::Namespace));
        self.queue_in(state, tasks);
    }

    /// What a worker runs, as it says itself, by uid. Whoever is well again gives a place free.
    pub(super) fn hear(&self, pod: &str, said: &BTreeMap<String, &PipelineProgress>) {
        let mut state = self.lock();
        let state = &mut *state;
        let now_us = self.clock.now_us();
        for (uid, progress) in said {
            let told = Told {
                runs: progress.spec_hash.clone(),
                running: progress.state == RunState::Running,
            };
            let (namespace, name) = progress.pipeline.split_once('/').unwrap_or_default();
            let key = Key::new(namespace, name);
            let of_pods = state.told.entry(uid.clone()).or_default();
            match of_pods.iter_mut().find(|(of, _)| of == pod) {
                Some((_, before)) if *before == told => continue,
                Some((_, before)) => *before = told,
                None => {
                    // Most have one, and would else have room for four.
                    of_pods.reserve_exact(1);
                    of_pods.push((pod.to_owned(), told));
                }
            }
            // Pods come and go for as long as the pipeline is there.
            of_pods.retain(|(pod, _)| state.index.has_pod(&Key::new(namespace, pod)));
            if let Some(report) = state.reports.get(&key).filter(|report| report.uid == *uid) {
                let workers = report.workers.clone();
                state.observe(&key, workers.as_ref(), now_us);
            }
        }
        self.queued.notify_one();
    }

    /// A task that [`Queue::next`] gave out has ended.
    pub(super) fn done(&self, task: &Task, outcome: Outcome) {
        let mut state = self.lock();
        state.queue.done(task, outcome, self.clock.monotonic());
        self.metrics.set_queue_depth(state.queue.waiting());
    }

    /// The next task, else how long until one is due.
    pub(super) fn next(&self) -> Result<(Task, Duration), Option<Duration>> {
        let mut state = self.lock();
        let now = self.clock.monotonic();
        if std::mem::take(&mut state.freed) {
            for task in state.rollout.released() {
                state.queue.add(task, now);
            }
            self.metrics.set_changes_waiting(state.rollout.waiting());
        }
        let next = state.queue.next(now);
        self.metrics.set_queue_depth(state.queue.waiting());
        next.ok_or_else(|| state.queue.next_due().map(|due| due.saturating_sub(now)))
    }

    /// Reports what came of a pipeline. It is handed on even where it is the same: its pods may be others by now.
    pub(super) fn report(&self, key: &Key, report: Report) {
        let mut state = self.lock();
        state.reports.insert(key.clone(), report);
        state.news.insert(key.clone());
        self.reported.notify_one();
    }

    /// A pipeline is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.policy_reports.gone(key);
        let mut state = self.lock();
        if let Some(report) = state.reports.remove(key) {
            state.rollout.remove(&report.uid);
            state.told.remove(&report.uid);
            state.freed = true;
        }
    }
}

impl State {
    /// The limits of the policies, where they have changed.
    fn read_limits(&mut self, below: Limits) {
        let policies = self.index.policies();
        if Arc::ptr_eq(&policies, &self.policies) {
            return;
        }
        for policy in policies.sorted() {
            if let Some(rollout) = policy.rollout() {
                // A policy with a limit that cannot be read counts for nothing, so this one can.
                let limits = Limits::read(rollout, below).unwrap_or(below);
                self.rollout.set_group(policy.name(), limits);
            }
        }
        self.policies = policies;
        self.freed = true;
    }

    /// Which waves a pipeline goes with, and what the last leader had let go of it.
    fn adopt(&mut self, key: &Key, pipeline: &Kept, now_us: i64) {
        let labels = self.index.namespace_labels(&key.namespace);
        let waves = self.policies.sorted().iter().filter(|policy| {
            policy.rollout().is_some() && policy.selects(&pipeline.labels, &labels)
        });
        let groups: Vec<String> = waves.map(|policy| policy.name().to_string()).collect();
        let uid = &pipeline.uid;
        self.rollout.set_member(uid, &key.to_string(), &groups);
        let health = Health {
            settled: false,
            ready: self.index.says_ready(key),
        };
        self.rollout.observe(uid, health, now_us);
        let workers = self.index.last_workers(uid, &key.namespace);
        // Who stands still has nobody to ask.
        let running = workers.filter(|workers| workers.deployment.wanted > 0);
        let Some(Changed { at_us, was_ready }) = running.and_then(WorkersSeen::changed) else {
            return;
        };
        let deadline_us = self.rollout.patience_us(uid);
        let lately = at_us.saturating_add(LATELY_US.max(deadline_us)) > now_us;
        if was_ready && lately {
            // What the status says may be of before the change: the workers are asked first.
            let since_us = at_us.max(now_us + ADOPTED_US - deadline_us);
            self.rollout.adopt(uid, since_us, was_ready);
        }
    }

    /// How the workers of a pipeline are doing, told to the waves.
    pub(super) fn observe(&mut self, key: &Key, workers: Option<&Key>, now_us: i64) {
        let Some(kept) = self.index.kept(key) else {
            return;
        };
        let uid = kept.uid.clone();
        let health = self.health(key, &uid, workers);
        if self.rollout.observe(&uid, health, now_us) {
            self.freed = true;
        }
    }

    fn health(&self, key: &Key, uid: &str, workers: Option<&Key>) -> Health {
        let Some(told) = self.told.get(uid) else {
            return Health {
                settled: false,
                ready: self.index.says_ready(key),
            };
        };
        let seen = workers.and_then(|key| Some((key, self.index.workers(key)?)));
        let Some((key, seen)) = seen else {
            return Health::default();
        };
        let runs = seen.entries.get(uid).map(|entry| entry.runs.as_str());
        let deployment = seen.deployment;
        let pods: Vec<Option<&Told>> = self
            .index
            .pods_of(key)
            .map(|(pod, _)| {
                let mut said = told.iter().filter(|(of, _)| of == pod);
                said.next().map(|(_, told)| told)
            })
            .collect();
        let all = |fits: &dyn Fn(&Told) -> bool| pods.iter().all(|told| told.is_some_and(fits));
        let whole = deployment.rolled_out && deployment.ready == deployment.wanted;
        Health {
            settled: whole && all(&|told| Some(told.runs.as_str()) == runs),
            ready: whole && deployment.wanted > 0 && all(&|told| told.running),
        }
    }
}

/// The owner of the workers of a pipeline that has its own.
pub(super) fn own(key: &Key) -> Owner {
    Owner::Pipeline(key.clone())
}
