//! One task: resolve, decide, place, wave, build, apply, report.
//!
//! The steps that decide are pure and lie in `policy`, `plan`, `rollout` and `build`; here they are put in their order and what they
//! say is carried out. Invalid input waits for a change; what may go well later is tried again with a back-off of its own.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tracing::{info, warn};

use super::{
    Key, Owner, PoolKey, Task,
    apply::{Applier, Error},
    build::{Entry, Kind, NETWORK_POLICY, Workers, build, network_policy},
    fleet::{Fleet, Report, own},
    index::{Changed, ChildSeen, Decided, WorkersSeen},
    lease::Leadership,
    plan::{Plan, Sharer, dedicated, plan, shared, uid_of, work},
    policy::decide,
    queue::Outcome,
    rollout::Held,
    status::{Reconciled, Trouble},
};
use crate::{
    api::{Reason, pipeline::IngestionPipeline},
    sensor::chain,
};

/// How long a write may take: it is started only by a replica that leads for longer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a pipeline waits for another one's decision, or for a write that another task makes.
const SOON: Duration = Duration::from_secs(2);

/// Carries tasks out.
pub(super) struct Reconciler {
    pub(super) fleet: Arc<Fleet>,
    pub(super) applier: Applier,
    pub(super) leadership: Leadership,
}

/// What came of the children of a set of workers.
struct Carried {
    applied: Result<(), Trouble>,
    pending: Option<Trouble>,
    /// The pipelines, by uid, whose change has to wait.
    held: Vec<String>,
    outcome: Outcome,
}

impl Reconciler {
    /// One task.
    pub(super) async fn reconcile(&self, task: &Task) -> Outcome {
        let began = self.fleet.clock.monotonic();
        let (step, outcome) = match task {
            Task::Pipeline(key) => ("pipeline", self.pipeline(task, key).await),
            Task::Pool(pool) => ("pool", self.pool(task, pool).await),
            Task::Namespace(name) => ("namespace", self.namespace(name).await),
        };
        let told = if matches!(outcome, Outcome::Failed(_)) {
            "failed"
        } else {
            "ok"
        };
        self.timed(step, told, began);
        outcome
    }

    fn timed(&self, step: &'static str, outcome: &'static str, began: Duration) {
        let took = self.fleet.clock.monotonic().saturating_sub(began);
        self.fleet.metrics.step(step, outcome, took);
    }

    async fn pipeline(&self, task: &Task, key: &Key) -> Outcome {
        let Some(pipeline) = self.fleet.lock().index.pipeline(key) else {
            return self.gone(key).await;
        };
        if pipeline.metadata.deletion_timestamp.is_some() {
            // Its children go with it, after it: nothing is written for it any more.
            return Outcome::Done;
        }
        let uid = uid_of(&pipeline);
        let plan = self.decide(key, &pipeline, &uid);
        let workers = plan
            .wanted
            .as_ref()
            .and_then(|entry| dedicated(key, &uid, entry));
        let Some(workers) = workers else {
            let is_shared = plan.pool(&key.namespace).is_some();
            if !is_shared {
                self.report(key, &pipeline, &plan, (None, None));
            }
            return self.leave_own(key, &uid, is_shared).await;
        };
        let carried = self.carry_out(task, &workers).await;
        self.wait(task, &carried.held);
        let elsewhere = self.left_elsewhere(&uid, &workers);
        self.report(key, &pipeline, &plan, (Some(&workers.key), Some(&carried)));
        if !elsewhere.is_empty() && carried.applied.is_ok() {
            let mut state = self.fleet.lock();
            self.fleet.queue_in(&mut state, elsewhere);
        }
        carried.outcome
    }

    /// Resolve and decide, and tell the pool and the waves.
    fn decide(&self, key: &Key, pipeline: &IngestionPipeline, uid: &str) -> Plan {
        let began = self.fleet.clock.monotonic();
        let (labels, policies, rival, last) = {
            let state = self.fleet.lock();
            let index = &state.index;
            let last = index.last_accepted(uid, &key.namespace).cloned();
            (
                index.namespace_labels(&key.namespace),
                index.policies(),
                index.rival(key),
                last,
            )
        };
        let decision = decide(pipeline, &labels, &policies);
        self.fleet.policy_reports.decided(key, &decision);
        let plan = plan(pipeline, &decision, rival.as_ref(), last.as_ref());
        let shared = plan.pool(&key.namespace).zip(plan.wanted.clone());
        let mut state = self.fleet.lock();
        state
            .rollout
            .set_member(uid, &key.to_string(), &plan.groups);
        let tasks = state.index.set_decided(key, Decided { shared });
        self.fleet.queue_in(&mut state, tasks);
        drop(state);
        self.timed(
            "decide",
            if plan.accepted.is_ok() {
                "accepted"
            } else {
                "refused"
            },
            began,
        );
        plan
    }

    /// A pipeline that is gone: garbage collection takes its children, and what it does not know of is deleted.
    async fn gone(&self, key: &Key) -> Outcome {
        {
            let state = self.fleet.lock();
            if state
                .index
                .all_undecodable()
                .any(|(_, named, _)| named == key)
            {
                // It is there, and its workers go on with what they have.
                return Outcome::Done;
            }
        }
        self.fleet.forget(key);
        self.delete_workers(&own(key), &[]).await
    }

    /// A pipeline without workers of its own: those that it had are deleted once others run it, or none shall.
    async fn leave_own(&self, key: &Key, uid: &str, is_shared: bool) -> Outcome {
        let owner = own(key);
        let (has_own, runs_elsewhere) = {
            let state = self.fleet.lock();
            let mut elsewhere = state.index.all_workers_of(&key.namespace);
            let runs = elsewhere.any(|(_, workers)| {
                workers.owner.as_ref() != Some(&owner) && workers.entries.contains_key(uid)
            });
            (state.index.workers_of(&owner).next().is_some(), runs)
        };
        match (has_own, is_shared, runs_elsewhere) {
            (true, true, true) => self.delete_workers(&owner, &[]).await,
            (true, true, false) => Outcome::Again(SOON),
            // What cannot be read of what was accepted is left alone.
            _ => Outcome::Done,
        }
    }

    /// Other workers that still hold a pipeline.
    fn left_elsewhere(&self, uid: &str, workers: &Workers) -> Vec<Task> {
        let state = self.fleet.lock();
        let all = state.index.all_workers_of(&workers.key.namespace);
        let others =
            all.filter(|(key, seen)| **key != workers.key && seen.entries.contains_key(uid));
        others
            .filter_map(|(_, seen)| seen.owner.clone())
            .map(Task::from)
            .collect()
    }

    async fn pool(&self, task: &Task, pool: &PoolKey) -> Outcome {
        let owner = Owner::Pool(pool.clone());
        let Some(sharers) = self.sharers(pool, &owner) else {
            return Outcome::Again(SOON);
        };
        let sets = shared(pool, &sharers, &self.fleet.settings.capacity);
        let (mut worst, mut held) = (Outcome::Done, Vec::new());
        for workers in &sets {
            let carried = self.carry_out(task, workers).await;
            if held.is_empty() {
                held.clone_from(&carried.held);
            }
            for (uid, member) in &workers.members {
                self.report_member(
                    &Key::new(&pool.namespace, &member.name),
                    uid,
                    (workers, &carried),
                );
            }
            worst = worse(worst, carried.outcome);
        }
        self.wait(task, &held);
        let kept: Vec<Key> = sets.into_iter().map(|workers| workers.key).collect();
        worse(worst, self.delete_workers(&owner, &kept).await)
    }

    /// Who shares a pool, with what; `None` while a decision is missing: a member must not be dropped for that.
    fn sharers(&self, pool: &PoolKey, owner: &Owner) -> Option<BTreeMap<String, Sharer>> {
        let state = self.fleet.lock();
        let with = |uid: &str| {
            let mut present = state
                .index
                .workers_of(owner)
                .filter(|(_, workers)| workers.entries.contains_key(uid));
            present
                .next()
                .map(|(key, workers)| (key.name.clone(), Arc::clone(&workers.entries[uid])))
        };
        let mut sharers = BTreeMap::new();
        for (key, uid, decided) in state.index.pool_members(pool) {
            let (_, entry) = decided?.shared.clone()?;
            let with = with(&uid).map(|(name, _)| name);
            sharers.insert(
                uid,
                Sharer {
                    name: key.name,
                    entry,
                    with,
                },
            );
        }
        // One that has left stays until its new workers have it.
        for (key, pipeline) in state.index.pipelines_of(&pool.namespace) {
            let uid = uid_of(pipeline);
            let Some((name, entry)) = with(&uid).filter(|_| !sharers.contains_key(&uid)) else {
                continue;
            };
            let mut all = state.index.all_workers_of(&pool.namespace);
            let moved = all.any(|(_, workers)| {
                workers.owner.as_ref() != Some(owner) && workers.entries.contains_key(&uid)
            });
            if !moved {
                sharers.insert(
                    uid,
                    Sharer {
                        name: key.name.clone(),
                        entry,
                        with: Some(name),
                    },
                );
            }
        }
        Some(sharers)
    }

    /// A task whose change is held waits for its turn; one without does not.
    fn wait(&self, task: &Task, held: &[String]) {
        let mut state = self.fleet.lock();
        if held.is_empty() {
            state.rollout.withdraw(task);
        } else {
            state.rollout.wait(task, held.to_vec());
        }
        self.fleet
            .metrics
            .set_changes_waiting(state.rollout.waiting());
    }

    /// Wave, build and apply.
    async fn carry_out(&self, task: &Task, workers: &Workers) -> Carried {
        let (fleet, now_us) = (&self.fleet, self.fleet.clock.now_us());
        let children = build(workers, &fleet.settings.build);
        let keys: Vec<(String, Key)> = workers
            .members
            .iter()
            .map(|(uid, member)| (uid.clone(), Key::new(&workers.key.namespace, &member.name)))
            .collect();
        let (work, mark) = {
            let mut state = fleet.lock();
            let state = &mut *state;
            for (_, key) in &keys {
                state.observe(key, Some(&workers.key), now_us);
            }
            let verify = state.verify.remove(task);
            let seen = state.index.workers(&workers.key);
            let work = work(workers, children, seen, (&state.contents, verify));
            let changing: Vec<String> = work.changing.iter().cloned().collect();
            let was_ready = changing.iter().any(|uid| state.rollout.is_ready(uid));
            let marked = seen.and_then(WorkersSeen::changed);
            if !changing.is_empty()
                && let Err(held) = state.rollout.ask(&changing, now_us)
            {
                return Carried::held(&held, changing);
            }
            let mark = match (marked, changing.is_empty()) {
                (Some(marked), true) => marked,
                _ => Changed {
                    at_us: now_us,
                    was_ready,
                },
            };
            (work, mark)
        };
        let mut applied = Ok(());
        if !work.changing.is_empty() {
            info!(workers = %workers.key, pipelines = work.changing.len(), "a change goes out");
        }
        for child in &work.write {
            applied = self.write(child, mark).await;
            if applied.is_err() {
                break;
            }
        }
        if applied.is_ok() {
            applied = self.delete(&work.delete).await;
        }
        let deadlines = {
            let state = fleet.lock();
            let deadlines = keys
                .iter()
                .filter_map(|(uid, _)| state.rollout.deadline_us(uid));
            deadlines.min()
        };
        Carried::of(applied, deadlines.map(|at_us| length(at_us - now_us)))
    }

    async fn write(&self, child: &super::build::Child, mark: Changed) -> Result<(), Error> {
        self.lead()?;
        let began = self.fleet.clock.monotonic();
        let applying = self.applier.apply(child, Some(mark));
        let written = tokio::time::timeout(WRITE_TIMEOUT, applying).await;
        let written = written.unwrap_or_else(|_| {
            Err(Error::Slow {
                kind: child.kind,
                key: child.key.clone(),
            })
        });
        self.timed(
            "apply",
            if written.is_ok() { "ok" } else { "failed" },
            began,
        );
        let object = written?;
        let mut state = self.fleet.lock();
        let content = super::watch::content_of(child.kind, &object);
        state
            .contents
            .insert((child.kind, child.key.clone()), content);
        let tasks = super::watch::take_written(&mut state.index, child.kind, &object);
        // Its own write is no reason to look again; a pool may wait for it.
        let tasks = tasks
            .into_iter()
            .filter(|task| matches!(task, Task::Pool(_)));
        let tasks: Vec<Task> = tasks.collect();
        self.fleet.queue_in(&mut state, tasks);
        Ok(())
    }

    async fn delete(&self, surplus: &[(Kind, Key, ChildSeen)]) -> Result<(), Error> {
        for (kind, key, seen) in surplus {
            self.lead()?;
            let deleting = self.applier.delete(*kind, key, seen);
            let deleted = tokio::time::timeout(WRITE_TIMEOUT, deleting).await;
            deleted.unwrap_or_else(|_| {
                Err(Error::Slow {
                    kind: *kind,
                    key: key.clone(),
                })
            })?;
            let mut state = self.fleet.lock();
            state.contents.remove(&(*kind, key.clone()));
        }
        Ok(())
    }

    /// Deletes the workers of an owner but for those that are kept.
    async fn delete_workers(&self, owner: &Owner, kept: &[Key]) -> Outcome {
        let surplus: Vec<_> = {
            let state = self.fleet.lock();
            let gone = state
                .index
                .workers_of(owner)
                .filter(|(key, _)| !kept.contains(key));
            // The pods first: they read what the others hold.
            gone.flat_map(|(key, seen)| {
                seen.children
                    .iter()
                    .rev()
                    .map(|(kind, child)| (*kind, key.clone(), child.clone()))
            })
            .collect()
        };
        Carried::of(self.delete(&surplus).await, None).outcome
    }

    async fn namespace(&self, name: &str) -> Outcome {
        let child = network_policy(name, &self.fleet.settings.build);
        let (wanted, seen, touched) = {
            let state = self.fleet.lock();
            let seen = state.index.network_policy(name).cloned();
            let content = state
                .contents
                .get(&(Kind::NetworkPolicy, child.key.clone()));
            let touched = content
                .zip(seen.as_ref())
                .is_some_and(|(content, seen)| *content != seen.content);
            (
                state.index.of_namespace(name).next().is_some(),
                seen,
                touched,
            )
        };
        let done = match seen {
            Some(seen) if !wanted => {
                let key = Key::new(name, NETWORK_POLICY);
                self.delete(&[(Kind::NetworkPolicy, key, seen)]).await
            }
            None if !wanted => Ok(()),
            Some(seen) if seen.hash == child.hash && !touched => Ok(()),
            _ => {
                self.write(
                    &child,
                    Changed {
                        at_us: self.fleet.clock.now_us(),
                        was_ready: false,
                    },
                )
                .await
            }
        };
        if let Err(error) = &done {
            warn!(
                namespace = name,
                error = chain(error),
                "the network policy is not as it should be"
            );
        }
        Carried::of(done, None).outcome
    }

    fn lead(&self) -> Result<(), Error> {
        if self.leadership.may_start(WRITE_TIMEOUT) {
            Ok(())
        } else {
            Err(Error::NotLeader)
        }
    }

    fn report(
        &self,
        key: &Key,
        pipeline: &IngestionPipeline,
        plan: &Plan,
        (workers, carried): (Option<&Key>, Option<&Carried>),
    ) {
        let given = workers.and_then(|workers| {
            let state = self.fleet.lock();
            let entry: Option<Arc<Entry>> = state
                .index
                .workers(workers)?
                .entries
                .get(&uid_of(pipeline))
                .cloned();
            entry
        });
        let reconciled = Reconciled {
            generation: pipeline.metadata.generation.unwrap_or_default(),
            accepted: plan.accepted.clone(),
            applied: carried.map_or(Ok(()), |carried| carried.applied.clone()),
            pending: carried.and_then(|carried| carried.pending.clone()),
            spec_hash: given.map(|entry| entry.spec_hash.clone()),
            suspend: pipeline.spec.suspend.unwrap_or_default(),
            patience_us: plan.patience_us,
        };
        let report = Report {
            uid: uid_of(pipeline),
            workers: workers.cloned(),
            reconciled,
        };
        self.fleet.report(key, report);
    }

    /// The report of a pipeline that shares its workers: what was decided about it, and what came of them.
    fn report_member(&self, key: &Key, uid: &str, (workers, carried): (&Workers, &Carried)) {
        let Some(pipeline) = self.fleet.lock().index.pipeline(key) else {
            return;
        };
        let plan = self.decide(key, &pipeline, uid);
        self.report(key, &pipeline, &plan, (Some(&workers.key), Some(carried)));
    }
}

impl Carried {
    fn held(held: &Held, uids: Vec<String>) -> Self {
        Self {
            applied: Ok(()),
            pending: Some(Trouble::new(Reason::RolloutPending, held.to_string())),
            held: uids,
            outcome: Outcome::Done,
        }
    }

    /// `until`: when a change that is under way has to be over.
    fn of(applied: Result<(), Error>, until: Option<Duration>) -> Self {
        let Err(error) = applied else {
            let outcome = until.map_or(Outcome::Done, Outcome::Again);
            return Self {
                applied: Ok(()),
                pending: None,
                held: Vec::new(),
                outcome,
            };
        };
        let (reason, outcome) = match &error {
            Error::Conflict { .. } => (Reason::FieldConflict, Outcome::Failed(None)),
            Error::Refused {
                forbidden: false, ..
            } => (Reason::ApplyFailed, Outcome::Done),
            Error::Refused { .. } | Error::Slow { .. } => {
                (Reason::ApplyFailed, Outcome::Failed(None))
            }
            Error::Unavailable { retry_after_s, .. } => (
                Reason::ApplyFailed,
                Outcome::Failed(Some(Duration::from_secs((*retry_after_s).into()))),
            ),
            // The next leader does it.
            Error::NotLeader => {
                return Self {
                    applied: Ok(()),
                    pending: None,
                    held: Vec::new(),
                    outcome: Outcome::Done,
                };
            }
        };
        Self {
            applied: Err(Trouble::new(reason, chain(&error))),
            pending: None,
            held: Vec::new(),
            outcome,
        }
    }
}

/// The outcome that asks for more: a failure, then a later look.
fn worse(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Failed(_), _) | (_, Outcome::Done) => one,
        (Outcome::Again(one), Outcome::Again(other)) => Outcome::Again(one.min(other)),
        _ => other,
    }
}

fn length(us: i64) -> Duration {
    crate::process::clock::length(us)
}
