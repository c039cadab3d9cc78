//! Wave, build and apply: the children of one set of workers made as they are to be, or the reason why not.
//!
//! Every write asks first whether this replica still leads, and what the API server answers is in the index before the watch says it.

use std::time::Duration;

use tracing::info;

use super::{Reconciler, SOON, WRITE_TIMEOUT};
use crate::{
    api::Reason,
    operator::{
        Key, Owner, Task,
        apply::Error,
        build::{Child, Kind, Workers, build},
        index::{Changed, ChildSeen, WorkersSeen},
        plan::work,
        queue::Outcome,
        rollout::Held,
        status::Trouble,
        watch,
    },
    process::clock::length,
    sensor::chain,
};

/// What came of the children of a set of workers.
pub(super) struct Carried {
    pub(super) applied: Result<(), Trouble>,
    pub(super) pending: Option<Trouble>,
    /// The pipelines, by uid, whose change has to wait, and for what.
    pub(super) held: Option<(Vec<String>, Held)>,
    pub(super) outcome: Outcome,
}

impl Reconciler {
    /// A task whose change is held waits for its turn; one without does not.
    pub(super) fn wait(&self, task: &Task, held: Option<(Vec<String>, Held)>) {
        let mut state = self.fleet.lock();
        match held {
            None => state.rollout.withdraw(task),
            Some((uids, held)) => state.rollout.wait(task, uids, &held),
        }
        self.fleet
            .metrics
            .set_changes_waiting(state.rollout.waiting());
    }

    /// Wave, build and apply.
    pub(super) async fn carry_out(&self, task: &Task, workers: &Workers) -> Carried {
        let (fleet, now_us) = (&self.fleet, self.fleet.clock.now_us());
        let children = build(workers, &fleet.settings.build);
        let uids: Vec<&String> = workers.members.keys().collect();
        let members = workers.members.values();
        let keys = members.map(|member| Key::new(&workers.key.namespace, &member.name));
        let keys: Vec<Key> = keys.collect();
        let (work, mark) = {
            let mut state = fleet.lock();
            let state = &mut *state;
            for key in &keys {
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
                let until = state.rollout.next_deadline_us(&uids);
                return Carried::held(held, changing, until.map(|at_us| length(at_us - now_us)));
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
        let until = fleet.lock().rollout.next_deadline_us(&uids);
        Carried::of(applied, until.map(|at_us| length(at_us - now_us)))
    }

    pub(super) async fn write(&self, child: &Child, mark: Changed) -> Result<(), Error> {
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
        let content = watch::content_of(child.kind, &object);
        state
            .contents
            .insert((child.kind, child.key.clone()), content);
        let tasks = watch::take_written(&mut state.index, child.kind, &object);
        // Its own write is no reason to look again; a pool may wait for it.
        let tasks = tasks
            .into_iter()
            .filter(|task| matches!(task, Task::Pool(_)));
        let tasks: Vec<Task> = tasks.collect();
        self.fleet.queue_in(&mut state, tasks);
        Ok(())
    }

    pub(super) async fn delete(&self, surplus: &[(Kind, Key, ChildSeen)]) -> Result<(), Error> {
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
    pub(super) async fn delete_workers(&self, owner: &Owner, kept: &[Key]) -> Outcome {
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

    pub(super) fn lead(&self) -> Result<(), Error> {
        if self.leadership.may_start(WRITE_TIMEOUT) {
            Ok(())
        } else {
            Err(Error::NotLeader)
        }
    }
}

impl Carried {
    pub(super) fn held(held: Held, uids: Vec<String>, until: Option<Duration>) -> Self {
        Self {
            applied: Ok(()),
            pending: Some(Trouble::new(Reason::RolloutPending, held.to_string())),
            held: Some((uids, held)),
            outcome: until.map_or(Outcome::Done, Outcome::Again),
        }
    }

    /// `until`: when a change that is under way has to be over.
    pub(super) fn of(applied: Result<(), Error>, until: Option<Duration>) -> Self {
        let (applied, outcome) = match applied {
            Ok(()) => (Ok(()), until.map_or(Outcome::Done, Outcome::Again)),
            // The next leader does it. If that is this one, whose lease was only short for a while, nothing else would ask again.
            Err(Error::NotLeader) => (Ok(()), Outcome::Again(SOON)),
            Err(error) => {
                let (reason, outcome) = failed(&error);
                (Err(Trouble::new(reason, chain(&error))), outcome)
            }
        };
        Self {
            applied,
            pending: None,
            held: None,
            outcome,
        }
    }
}

/// What is said of a write that failed, and when it is tried again.
fn failed(error: &Error) -> (Reason, Outcome) {
    match error {
        Error::Conflict { .. } => (Reason::FieldConflict, Outcome::Failed(None)),
        Error::Refused {
            forbidden: false, ..
        } => (Reason::ApplyFailed, Outcome::Done),
        Error::Unavailable { retry_after_s, .. } => {
            let after = Duration::from_secs((*retry_after_s).into());
            (Reason::ApplyFailed, Outcome::Failed(Some(after)))
        }
        Error::Refused { .. } | Error::Slow { .. } | Error::NotLeader => {
            (Reason::ApplyFailed, Outcome::Failed(None))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease that was short for a moment is often renewed: this replica goes on leading, and nobody else does what it left.
    #[test]
    fn write_that_the_lease_was_too_short_for_is_tried_again() {
        let carried = Carried::of(Err(Error::NotLeader), None);
        let told = (carried.applied, carried.pending, carried.outcome);
        assert_eq!(told, (Ok(()), None, Outcome::Again(SOON)));
    }
}
