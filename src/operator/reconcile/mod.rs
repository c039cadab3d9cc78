//! One task: resolve, decide, place, wave, build, apply, report.
//!
//! The steps that decide are pure and lie in `policy`, `plan`, `rollout` and `build`; here they are put in their order and what they
//! say is carried out. Invalid input waits for a change; what may go well later is tried again with a back-off of its own.

use std::{sync::Arc, time::Duration};

use tracing::warn;

use super::{
    Key, Task,
    apply::Applier,
    build::{Entry, Kind, NETWORK_POLICY, Workers, network_policy},
    fleet::{Fleet, Report, own},
    index::{Changed, Decided},
    lease::Leadership,
    plan::{Plan, dedicated, plan, uid_of},
    policy::decide,
    queue::Outcome,
    status::Reconciled,
};
use crate::{api::pipeline::IngestionPipeline, sensor::chain};

mod children;
mod pool;

use children::Carried;

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
        self.wait(task, carried.held.clone());
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
        let (labels, policies, hindrance, last) = {
            let state = self.fleet.lock();
            let index = &state.index;
            let last = index.last_accepted(uid, &key.namespace).cloned();
            (
                index.namespace_labels(&key.namespace),
                index.policies(),
                index.hindrance(key),
                last,
            )
        };
        let decision = decide(pipeline, &labels, &policies);
        self.fleet.policy_reports.decided(key, &decision);
        let plan = plan(pipeline, &decision, hindrance.as_ref(), last.as_ref());
        let shared = plan.pool(&key.namespace).zip(plan.wanted.clone());
        let decided = Decided {
            generation: pipeline.metadata.generation.unwrap_or_default(),
            plan: shared.is_some().then(|| Arc::new(plan.clone())),
            shared,
        };
        let mut state = self.fleet.lock();
        state
            .rollout
            .set_member(uid, &key.to_string(), &plan.groups);
        let tasks = state.index.set_decided(key, decided);
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
                workers.owner.as_ref() != Some(&owner) && workers.entries.contains(uid)
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
        let others = all.filter(|(key, seen)| **key != workers.key && seen.entries.contains(uid));
        others
            .filter_map(|(_, seen)| seen.owner.clone())
            .map(Task::from)
            .collect()
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
            reconciled: Arc::new(reconciled),
        };
        self.fleet.report(key, report);
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
