//! The last step of a pipeline: what is known of it becomes its status, its claim for readers, and Events.
//!
//! Comes in: objects as the watch brings them, what was reconciled, what workers answered, what became of writes. Each is taken in by
//! one function, which derives the status anew and hands on what has changed: to the writer, to the readers' cache, to the Events.
//!
//! On a replica that does not lead, the readers' cache is filled from the objects and nothing else happens. No client here, and the
//! lock is never held over a wait.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Key,
    claims::{Claims, Known},
    events::{Events, notices},
    index::{Kept, Touched},
    progress::Heard,
    status::{self, Children, Reconciled, Said, Situation, Workers},
    writer::{NewStatus, Outcome, Taken, Urgency, Write, Writer, Written},
};
use crate::{
    api::{
        status::IngestionPipelineStatus,
        worker::{PipelineProgress, RunState},
    },
    process::clock::Clock,
};

/// In how many turns a sweep looks at all pipelines.
pub const SWEEP_TURNS: u64 = 16;

/// Where reports go. Clones are the same.
#[derive(Clone)]
pub struct Reports {
    inner: Arc<Mutex<Inner>>,
    context: ReportContext,
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reports")
    }
}

/// Whom reports are handed on to.
#[derive(Debug, Clone)]
pub struct ReportContext {
    /// Who writes statuses.
    pub writer: Writer,
    /// What readers are answered from.
    pub claims: Claims,
    /// Who sends Events.
    pub events: Events,
    /// The time.
    pub clock: Clock,
}

#[derive(Default)]
struct Inner {
    leads: bool,
    /// Each in a place of its own: a tree keeps half as much room again as it needs.
    pipelines: BTreeMap<Key, Box<Pipeline>>,
    /// Which pipelines of its namespace a worker runs, by the namespace and name of its pod; most run one.
    by_worker: HashMap<Key, Vec<String>>,
}

/// What is known of one pipeline.
struct Pipeline {
    kept: Arc<Kept>,
    resource_version: String,
    /// The status that the object has.
    current: Option<Arc<IngestionPipelineStatus>>,
    /// The status that it shall have, until that is settled.
    submitted: Option<Arc<IngestionPipelineStatus>>,
    reconciled: Option<(Arc<Reconciled>, Children)>,
    workers: Workers,
}

/// How the workers of a pipeline run what they were given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InForce {
    /// Each of them runs it.
    Everywhere,
    /// Some have not loaded it, or do not run.
    NotYet,
    /// One needs a person.
    Stopped,
}

impl Reports {
    /// Of no pipelines.
    #[must_use]
    pub fn new(context: ReportContext) -> Self {
        Self {
            inner: Arc::default(),
            context,
        }
    }

    /// An object as it is now.
    pub fn seen(&self, key: &Key, touched: Touched) {
        let Touched {
            kept,
            version,
            status,
        } = touched;
        let mut inner = self.lock();
        let known = inner.pipelines.get(key);
        if known.is_some_and(|known| known.kept.uid != kept.uid) {
            inner.forget(key);
        }
        let pipeline = inner.pipelines.entry(key.clone()).or_insert_with(|| {
            Box::new(Pipeline {
                kept: Arc::clone(&kept),
                resource_version: String::new(),
                current: None,
                submitted: None,
                reconciled: None,
                workers: Workers::default(),
            })
        });
        // The answer to a write is often here before the watch: what the watch brings of before it is old.
        if is_older(&version, &pipeline.resource_version) {
            return;
        }
        pipeline.kept = kept;
        pipeline.resource_version = version;
        if pipeline.current.as_deref() != status.as_ref() {
            pipeline.current = status.map(Arc::new);
        }
        self.report(&mut inner, key);
    }

    /// An object is gone.
    pub fn gone(&self, key: &Key) {
        self.lock().forget(key);
        self.context.claims.remove(key);
    }

    /// What came of reconciling a pipeline: its pods, and the names of those that are to answer.
    pub fn reconciled(
        &self,
        key: &Key,
        (reconciled, children): (Arc<Reconciled>, Children),
        pods: &[&str],
    ) {
        let mut inner = self.lock();
        let now_us = self.context.clock.now_us();
        let Some(pipeline) = inner.pipelines.get_mut(key) else {
            return;
        };
        let before: Vec<String> = pipeline
            .workers
            .iter()
            .map(|(name, _)| name.to_owned())
            .collect();
        pipeline.workers.expect(pods, now_us);
        pipeline.reconciled = Some((reconciled, children));
        inner.place(key, &before, pods);
        self.report(&mut inner, key);
    }

    /// What a worker answered. Silence is no answer: it is measured by the time.
    pub fn heard(&self, heard: &Heard) {
        let Some(said) = &heard.said else { return };
        let mut inner = self.lock();
        let worker = Key::new(&heard.target.namespace, &heard.target.worker);
        let names = inner.by_worker.get(&worker).cloned().unwrap_or_default();
        for name in names {
            let key = Key::new(&worker.namespace, &name);
            let Some(pipeline) = inner.pipelines.get_mut(&key) else {
                continue;
            };
            let said = said
                .get(&pipeline.kept.uid)
                .cloned()
                .unwrap_or(Said::NotLoaded);
            // What time alone changes is for the sweep to see.
            if pipeline.workers.hear(&worker.name, said, heard.at_us) {
                self.report(&mut inner, &key);
            }
        }
    }

    /// What became of a write.
    pub fn written(&self, written: Written) {
        let Written { write, outcome } = written;
        let NewStatus::Pipeline(status) = write.status else {
            return;
        };
        let mut inner = self.lock();
        let key = write.key;
        let Some(pipeline) = inner.pipelines.get_mut(&key) else {
            return;
        };
        if pipeline.kept.uid != write.uid {
            return;
        }
        let is_last = pipeline.submitted.as_ref() == Some(&status);
        match outcome {
            Outcome::Done(version) => {
                if !is_older(&version, &pipeline.resource_version) {
                    pipeline.resource_version = version;
                    pipeline.current = Some(status);
                }
            }
            // Tried again when the object or what is to be said of it changes; until then it counts as said.
            Outcome::Refused => return,
            Outcome::Stale | Outcome::Gone | Outcome::Lost => {}
        }
        if is_last {
            pipeline.submitted = None;
        }
        // Derived again at once where the object is another one by now, else when the watch brings it.
        if pipeline.resource_version != write.resource_version {
            self.report(&mut inner, &key);
        }
    }

    /// Whether this replica leads. Who does not knows nothing of workers.
    pub fn leads(&self, leads: bool) {
        let mut inner = self.lock();
        inner.leads = leads;
        if !leads {
            inner.by_worker.clear();
            for pipeline in inner.pipelines.values_mut() {
                pipeline.submitted = None;
                pipeline.reconciled = None;
                pipeline.workers = Workers::default();
            }
        }
        let keys: Vec<Key> = inner.pipelines.keys().cloned().collect();
        for key in keys {
            self.report(&mut inner, &key);
        }
    }

    /// Looks again at one of [`SWEEP_TURNS`] parts of all pipelines: time alone changes what is to be said of them, and a write
    /// may be lost.
    pub fn sweep(&self, turn: u64) {
        let mut inner = self.lock();
        let part = inner.pipelines.keys().filter(|key| {
            let mut hasher = DefaultHasher::new();
            key.hash(&mut hasher);
            hasher.finish() % SWEEP_TURNS == turn % SWEEP_TURNS
        });
        let part: Vec<Key> = part.cloned().collect();
        for key in part {
            self.report(&mut inner, &key);
        }
    }

    /// How the workers of a pipeline run a specification, by its hash; `None` without workers.
    #[must_use]
    pub fn in_force(&self, key: &Key, spec_hash: &str) -> Option<InForce> {
        let inner = self.lock();
        let workers = &inner.pipelines.get(key)?.workers;
        let now_us = self.context.clock.now_us();
        let of_each = workers
            .iter()
            .map(|(_, worker)| match worker.progress(now_us) {
                Some(progress) if progress.spec_hash == spec_hash => match progress.state {
                    RunState::Running | RunState::Suspended => InForce::Everywhere,
                    RunState::Starting | RunState::Waiting => InForce::NotYet,
                    RunState::Stopped => InForce::Stopped,
                },
                _ => InForce::NotYet,
            });
        of_each.reduce(|all, one| match (all, one) {
            (InForce::Stopped, _) | (_, InForce::Stopped) => InForce::Stopped,
            (InForce::NotYet, _) | (_, InForce::NotYet) => InForce::NotYet,
            _ => InForce::Everywhere,
        })
    }

    /// Derives the status of one pipeline, and hands on what is new.
    fn report(&self, inner: &mut Inner, key: &Key) {
        let leads = inner.leads;
        let Some(pipeline) = inner.pipelines.get_mut(key) else {
            return;
        };
        let now_us = self.context.clock.now_us();
        let old = pipeline.submitted.as_ref().or(pipeline.current.as_ref());
        let derived = match &pipeline.reconciled {
            Some((reconciled, children)) if leads => {
                let situation = Situation {
                    reconciled,
                    children,
                    workers: &pipeline.workers,
                    now_us,
                };
                let new = status::status_of(&situation, old.map(Arc::as_ref));
                let same = old.filter(|old| ***old == new);
                Some(same.map_or_else(|| Arc::new(new), Arc::clone))
            }
            _ => None,
        };
        let told = derived.as_ref().or(old).cloned().unwrap_or_default();
        self.context.claims.set(Known {
            key: key.clone(),
            kept: Arc::clone(&pipeline.kept),
            progress: newest(&pipeline.workers, now_us),
            status: told,
        });
        if let Some(new) = derived {
            self.submit(pipeline, key, new);
        }
    }

    fn submit(&self, pipeline: &mut Pipeline, key: &Key, new: Arc<IngestionPipelineStatus>) {
        let old = pipeline.submitted.as_ref().or(pipeline.current.as_ref());
        if old.is_some_and(|old| Arc::ptr_eq(old, &new) || !status::is_news(&new, old)) {
            return;
        }
        let old = old.map(Arc::as_ref);
        let urgent = old.is_none_or(|old| status::is_news_of_conditions(&new, old));
        for notice in notices(old, &new) {
            self.context.events.tell(key, &pipeline.kept.uid, notice);
        }
        let write = Write {
            key: key.clone(),
            uid: pipeline.kept.uid.clone(),
            resource_version: pipeline.resource_version.clone(),
            status: NewStatus::Pipeline(Arc::clone(&new)),
        };
        let urgency = if urgent {
            Urgency::Condition
        } else {
            Urgency::Usual
        };
        let taken = self.context.writer.submit(write, urgency);
        // What the list had no room for is derived again by the sweep.
        pipeline.submitted = (taken != Taken::Dropped).then_some(new);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn forget(&mut self, key: &Key) {
        let Some(pipeline) = self.pipelines.remove(key) else {
            return;
        };
        let before: Vec<String> = pipeline
            .workers
            .iter()
            .map(|(name, _)| name.to_owned())
            .collect();
        self.place(key, &before, &[]);
    }

    /// Notes which workers run a pipeline.
    fn place(&mut self, key: &Key, before: &[String], after: &[&str]) {
        for name in before.iter().filter(|name| !after.contains(&name.as_str())) {
            let worker = Key::new(&key.namespace, name);
            if let Some(names) = self.by_worker.get_mut(&worker) {
                names.retain(|name| *name != key.name);
                if names.is_empty() {
                    self.by_worker.remove(&worker);
                }
            }
        }
        for name in after {
            let worker = Key::new(&key.namespace, name);
            let names = self.by_worker.entry(worker).or_default();
            if !names.contains(&key.name) {
                names.reserve_exact(1);
                names.push(key.name.clone());
            }
        }
    }
}

/// Whether one version of an object is before another. Versions are numbers that rise; others are never older.
fn is_older(one: &str, other: &str) -> bool {
    match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one < other,
        _ => false,
    }
}

/// What the worker with the newest claim said.
fn newest(workers: &Workers, now_us: i64) -> Option<Arc<PipelineProgress>> {
    let said = workers
        .iter()
        .filter_map(|(_, worker)| match &worker.heard {
            Some((_, Said::Progress(progress))) if !worker.is_silent(now_us) => Some(progress),
            _ => None,
        });
    let age = |progress: &&Arc<PipelineProgress>| {
        let claim = progress.claim.as_ref();
        claim.map(|claim| (claim.epoch, claim.finalized_before_us, claim.commit_id))
    };
    said.max_by_key(age).cloned()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{
        api::{pipeline::IngestionPipeline, quantity::parse_instant_us, worker::ClaimProgress},
        operator::{counts::Counts, progress::Target},
    };

    struct Case {
        reports: Reports,
        writer: Writer,
        claims: Claims,
    }

    const UID: &str = "0c5e1a3e-6c1c-4d57-a4d8-3d1d5b7f5a10";

    fn key() -> Key {
        Key::new("shop", "orders")
    }

    impl Case {
        fn new() -> Self {
            let counts = Counts::default();
            let (writer, claims) = (Writer::new(counts.clone()), Claims::default());
            let reports = Reports::new(ReportContext {
                writer: writer.clone(),
                claims: claims.clone(),
                events: Events::new(counts).0,
                clock: Clock::system(),
            });
            Self {
                reports,
                writer,
                claims,
            }
        }

        /// Leads, and has reconciled the pipeline to one worker.
        fn leading() -> Self {
            let case = Self::new();
            case.reports.leads(true);
            case.sees("1", None);
            let reconciled = Reconciled {
                generation: 1,
                accepted: Ok(()),
                applied: Ok(()),
                pending: None,
                spec_hash: Some("h".into()),
                suspend: false,
                patience_us: 0,
            };
            let children = Children {
                desired: 1,
                replicas: 1,
                ready_replicas: 1,
                ..Children::default()
            };
            case.reports
                .reconciled(&key(), (Arc::new(reconciled), children), &["w-0"]);
            case
        }

        fn sees(&self, version: &str, status: Option<IngestionPipelineStatus>) {
            let object = format!(
                "{{apiVersion: tidemark.dev/v1alpha1, kind: IngestionPipeline, metadata: {{name: orders, namespace: shop, uid: {UID}, resourceVersion: '{version}'}}, \
                 spec: {{source: {{kafka: {{bootstrapServers: k, topics: [t]}}, format: DebeziumJson}}, sink: {{catalog: {{type: Rest, uri: u}}, table: shop.orders}}}}}}"
            );
            let mut object: IngestionPipeline = serde_yaml::from_str(&object).unwrap();
            object.status = status;
            self.reports.seen(&key(), object.into());
        }

        fn hears(&self, worker: &str, before: &str, commit: u128) {
            let claim = ClaimProgress {
                finalized_before_us: parse_instant_us(&format!("2026-11-30T{before}:00Z")),
                complete_from_us: None,
                gaps: Vec::new(),
                evidence: vec!["minimum".into()],
                margin_ms: None,
                epoch: 1,
                reopened: None,
                commit_id: Uuid::from_u128(commit),
                table_uuid: None,
                cell: None,
                zone: None,
                accepted: Vec::new(),
                amended: Vec::new(),
            };
            let progress = PipelineProgress {
                state: RunState::Running,
                spec_hash: "h".into(),
                claim: Some(claim),
                ..PipelineProgress::default()
            };
            let said = BTreeMap::from([(UID.to_owned(), Said::Progress(Arc::new(progress)))]);
            self.reports.heard(&Heard {
                target: Target {
                    namespace: "shop".into(),
                    worker: worker.into(),
                    address: ([127, 0, 0, 1], 8080).into(),
                },
                at_us: Clock::system().now_us(),
                said: Some(said),
            });
        }

        /// The claim that would be written next.
        fn next(&self) -> Option<(Option<String>, Write)> {
            let write = self.writer.next()?;
            let NewStatus::Pipeline(status) = &write.status else {
                unreachable!()
            };
            let before = status.finalized_before.clone();
            Some((before.map(|text| text.0), write))
        }

        fn ends(&self, write: Write, outcome: Outcome) {
            self.reports.written(Written { write, outcome });
        }
    }

    const NOON: Option<&str> = Some("2026-11-30T12:00:00Z");

    #[test]
    fn status_is_handed_in_once() {
        let case = Case::leading();
        case.hears("w-0", "12:00", 1);
        let (before, write) = case.next().unwrap();
        assert_eq!(before.as_deref(), NOON);
        case.hears("w-0", "12:00", 2);
        case.reports.leads(true);
        assert!(case.next().is_none(), "it is under way");
        case.ends(write, Outcome::Done("2".into()));
        // What the watch brings of before the write is old.
        case.sees("1", None);
        case.hears("w-0", "12:00", 3);
        assert!(case.next().is_none(), "it is written");
        case.hears("w-0", "13:00", 4);
        let (_, write) = case.next().unwrap();
        assert_eq!(write.resource_version, "2");
    }

    #[test]
    fn stale_write_waits_for_the_object() {
        let case = Case::leading();
        case.hears("w-0", "12:00", 1);
        let (_, write) = case.next().unwrap();
        case.ends(write, Outcome::Stale);
        assert!(case.next().is_none(), "the object is not here yet");
        case.sees("5", None);
        let (before, write) = case.next().unwrap();
        assert_eq!(
            (before.as_deref(), write.resource_version.as_str()),
            (NOON, "5")
        );
        // One that is refused is not tried again for its own sake.
        case.ends(write, Outcome::Refused);
        case.hears("w-0", "12:00", 2);
        assert!(case.next().is_none());
        case.hears("w-0", "13:00", 3);
        assert!(case.next().is_some());
    }

    /// A worker speaks for the pipelines that were given to it.
    #[test]
    fn answer_of_another_pod_says_nothing() {
        let case = Case::leading();
        let (before, write) = case.next().unwrap();
        assert_eq!(before, None);
        case.ends(write, Outcome::Done("2".into()));
        case.hears("w-1", "12:00", 1);
        assert!(case.next().is_none());
        assert_eq!(case.reports.in_force(&key(), "h"), Some(InForce::NotYet));
        case.hears("w-0", "12:00", 1);
        assert!(case.next().is_some());
        assert_eq!(
            case.reports.in_force(&key(), "h"),
            Some(InForce::Everywhere)
        );
        assert_eq!(
            case.reports.in_force(&key(), "other"),
            Some(InForce::NotYet)
        );
    }

    #[test]
    fn who_does_not_lead_tells_what_the_object_has_and_writes_nothing() {
        let case = Case::leading();
        case.hears("w-0", "13:00", 1);
        let _ = case.next();
        case.reports.leads(false);
        let told = IngestionPipelineStatus {
            epoch: Some(1),
            finalized_before: Some(crate::api::pipeline::InstantText(
                "2026-11-30T12:00:00Z".into(),
            )),
            ..IngestionPipelineStatus::default()
        };
        case.sees("7", Some(told.clone()));
        case.hears("w-0", "14:00", 2);
        case.reports.sweep(0);
        assert!(case.next().is_none());
        let known = case.claims.get(&key()).unwrap();
        assert_eq!((&*known.status, &known.progress), (&told, &None));
        case.reports.gone(&key());
        assert!(case.claims.get(&key()).is_none());
    }
}
