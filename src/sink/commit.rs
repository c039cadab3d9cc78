//! The way of a batch onto the table.
//!
//! Every attempt loads the table, judges the batch by it, plans the commit on exactly that base and sends it once. A rival or
//! a lost answer leads to the next attempt with the same files; a base that has moved our partitions leads to the end of the
//! batch. Nothing is remembered between attempts but whether an answer was ever lost.
//!
//! Files of a batch are deleted only when no attempt with them was ever left without an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use iceberg::table::Table;
use iceberg::{Catalog, TableIdent};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Error;
use super::errand::{Bearer, Errand};
use super::fence::Verdict;
use super::finalize::{Attempt, CommitProcessor, Finalization, ForeignWords, Plan, plan};
use super::load::Loaded;
use super::memory::Memory;
use super::metrics::PipelineMetrics;
use super::standing::Leave;
use crate::api::Reason;
use crate::api::worker::{OnRollback, SinkAccept};
use crate::lake::commit::{Append, commit, commit_by_hand};
use crate::lake::orphans::COMMIT_WITHIN;
use crate::lake::raw::RawCommitter;
use crate::lake::{self, catalog, writer};
use crate::process::clock::{Backoff, Clock, jittered, length};
use crate::watermark::{Advanced, Contribution, Identity, Misfit, Opening, Policy, State, System};

/// Pause after a lost race: longer than most commits take, short beside any interval.
const RACE_PAUSE: Duration = Duration::from_millis(200);

/// Tries after lost races before the pause becomes that of an outage.
const RACES: u32 = 50;

/// A table and what is needed to commit to it.
pub(super) struct TableSide {
    /// The catalog.
    pub catalog: Arc<dyn Catalog>,
    /// Commits by hand where this process keeps the table's metadata: an SQL catalog's client reads and writes it thrice.
    pub by_hand: Option<Arc<dyn RawCommitter>>,
    /// The table's name.
    pub ident: TableIdent,
    /// Who writes.
    pub identity: Identity,
    /// Changes of the table's identity that a person has agreed to.
    pub accept: SinkAccept,
    /// What the writer may do there.
    pub leave: Leave,
    /// The cluster that a person has agreed to go on with.
    pub accept_cluster: Option<String>,
    /// What becomes of rows that a roll-back has taken out.
    pub on_rollback: OnRollback,
    /// What this process has seen on the table before.
    pub memory: Arc<Memory>,
    /// The partition spec that files are written for.
    pub spec_id: i32,
    /// The topics as the specification names them.
    pub subscription: String,
    /// The finalization in force.
    pub policy: Policy,
    /// In whose words the claim is told as well; `None`: in those that the table is written in.
    pub also_write: Option<BTreeSet<System>>,
    /// The user's processors.
    pub processors: Vec<Arc<dyn CommitProcessor>>,
    /// Who commits, for people.
    pub worker: String,
    /// The clock.
    pub clock: Clock,
    /// Counts attempts and their outcomes.
    pub metrics: PipelineMetrics,
    /// Properties to be written with the next commit: what the processors have handled.
    pub handled: Mutex<BTreeMap<String, String>>,
    /// Held while the processors are told.
    pub telling: tokio::sync::Mutex<()>,
}

/// What became of an errand.
pub(super) enum Outcome {
    /// It is on the table.
    Committed(Box<Success>),
    /// Nothing needed a commit; the table stands so.
    Looked(Box<State>),
}

/// A commit that is on the table.
pub(super) struct Success {
    /// The commit.
    pub commit_id: Uuid,
    /// Its snapshot.
    pub snapshot_id: i64,
    /// The state after it, and the claim.
    pub state: State,
    /// What it said of the claim; `None` when an answer was lost and the table read instead.
    pub advanced: Option<Advanced>,
    /// Rows in it.
    pub rows: u64,
    /// The table.
    pub table: Table,
    /// How long the last attempt took.
    pub attempt: Duration,
}

enum Attempted {
    Done(Outcome),
    /// Try again: somebody came first.
    Race(lake::Error),
    /// No answer.
    Lost(lake::Error),
    /// Something outside is missing.
    Outage(lake::Error),
}

impl TableSide {
    /// Brings an errand onto the table, however many attempts it takes. Outages are waited out; `told` hears of them.
    ///
    /// # Errors
    /// The batch is fenced or refused, or the worker stops. The batch is lost then, its files deleted where that is safe.
    pub(super) async fn settle(
        &self,
        errand: &Errand,
        stop: &CancellationToken,
        told: &(dyn Fn(&lake::Error) + Sync),
    ) -> Result<Outcome, Error> {
        let commit_id = Uuid::now_v7();
        let mut lost_answer = false;
        let mut races = 0;
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        loop {
            let started = self.clock.monotonic();
            let attempted = tokio::select! {
                attempted = self.attempt(errand, commit_id, lost_answer) => attempted,
                // It may have been sent: nothing is deleted.
                () = stop.cancelled() => return Err(Error::GivenUp),
            };
            let elapsed = self.clock.monotonic().saturating_sub(started);
            let pause = match attempted {
                Ok(Attempted::Done(mut outcome)) => {
                    if let Outcome::Committed(success) = &mut outcome {
                        success.attempt = elapsed;
                        self.metrics.committed(self.clock.real(elapsed));
                    }
                    return Ok(outcome);
                }
                Ok(Attempted::Race(error)) => {
                    self.metrics.failed("conflict", self.clock.real(elapsed));
                    races += 1;
                    if races > RACES {
                        told(&error);
                    }
                    jittered(RACE_PAUSE * races.min(10))
                }
                Ok(Attempted::Lost(error)) => {
                    self.metrics.failed("unknown", self.clock.real(elapsed));
                    lost_answer = true;
                    told(&error);
                    backoff.next_delay()
                }
                Ok(Attempted::Outage(error)) => {
                    self.metrics.failed("outage", self.clock.real(elapsed));
                    told(&error);
                    backoff.next_delay()
                }
                Err(error) => {
                    self.metrics.failed("dropped", self.clock.real(elapsed));
                    if !lost_answer {
                        self.discard(errand).await;
                    }
                    return Err(error);
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => {
                    if !lost_answer {
                        self.discard(errand).await;
                    }
                    return Err(Error::GivenUp);
                }
            }
        }
    }

    async fn attempt(
        &self,
        errand: &Errand,
        commit_id: Uuid,
        lost_answer: bool,
    ) -> Result<Attempted, Error> {
        let loaded = match self.load().await {
            Ok(loaded) => loaded,
            Err(Error::Lake(error)) if error.next() == lake::Next::Later => {
                return Ok(Attempted::Outage(error));
            }
            Err(error) => return Err(error),
        };
        // A roll-back, or a table that begins anew: what was found belongs to another history.
        if !errand.is_for(loaded.opening) || loaded.has_lost(errand.derived_from) {
            return Err(self.rolled_back());
        }
        if self.is_done(&loaded, errand, commit_id, lost_answer)? {
            return Ok(Attempted::Done(found(loaded, errand, commit_id)));
        }
        self.check_age(errand)?;
        let bearer = self.bearer(commit_id);
        let reopens = loaded.opening.as_ref().is_some_and(Opening::reopens);
        let Some(contribution) = errand.contribution_to(&loaded.state, reopens, &bearer) else {
            return Ok(Attempted::Done(Outcome::Looked(Box::new(loaded.state))));
        };
        let plan = match self.plan(&loaded, errand, &contribution) {
            Ok(plan) => plan,
            // Another worker anchored or jumped first, and stands where we would or further: the next look finds it.
            Err(Misfit::Anchored { .. } | Misfit::JumpedAlready { .. } | Misfit::Left { .. }) => {
                return Ok(Attempted::Done(Outcome::Looked(Box::new(loaded.state))));
            }
            Err(misfit) => return Err(of_misfit(&misfit)),
        };
        let batch = errand.batch.as_ref();
        let append = Append {
            commit_id,
            withdraws: false,
            files: batch.map(|batch| batch.files.clone()).unwrap_or_default(),
            summary: plan.summary,
            set_properties: plan.set_properties,
            remove_properties: plan.remove_properties,
        };
        match self.send(&loaded.table, &append).await {
            Ok(table) => Ok(Attempted::Done(succeeded(
                table,
                plan.advanced,
                errand,
                commit_id,
                loaded.state,
            ))),
            Err(error @ lake::Error::Conflict { .. }) => Ok(Attempted::Race(error)),
            Err(error @ lake::Error::Unknown { .. }) => Ok(Attempted::Lost(error)),
            // What is refused for what it is would be refused again: the session begins anew.
            Err(error)
                if error.next() == lake::Next::Later
                    && !matches!(error, lake::Error::Refused { .. }) =>
            {
                Ok(Attempted::Outage(error))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the errand is on this table already.
    ///
    /// # Errors
    /// It can never be: the table has moved on.
    fn is_done(
        &self,
        loaded: &Loaded,
        errand: &Errand,
        commit_id: Uuid,
        lost_answer: bool,
    ) -> Result<bool, Error> {
        // The id is drawn once an errand: where it stands, the errand is done, whatever an answer said.
        if loaded.lineage.find(commit_id).is_some() {
            return Ok(true);
        }
        self.check_layout(&loaded.table, errand)?;
        match errand.judge(&loaded.state, lost_answer) {
            Verdict::Go => Ok(false),
            Verdict::Done => Ok(true),
            Verdict::Fenced(lost) => Err(Error::Fenced { lost }),
        }
    }

    /// Files carry the partition values of the layout they were written for.
    fn check_layout(&self, table: &Table, errand: &Errand) -> Result<(), Error> {
        let metadata = table.metadata();
        if errand.batch.is_none()
            || (metadata.uuid() == self.identity.table_uuid
                && metadata.default_partition_spec_id() == self.spec_id)
        {
            return Ok(());
        }
        Err(Error::Outdated {
            problem: format!(
                "table \"{}\" was replaced or partitioned anew while rows were read for it",
                self.ident
            ),
        })
    }

    /// Files that have waited for long may be taken for orphans by whoever maintains the table: their rows are read again.
    fn check_age(&self, errand: &Errand) -> Result<(), Error> {
        let Some(batch) = &errand.batch else {
            return Ok(());
        };
        let waited_us = self.clock.now_us().saturating_sub(batch.begun_us);
        if self.clock.real(length(waited_us)) < COMMIT_WITHIN {
            Ok(())
        } else {
            Err(Error::GivenUp)
        }
    }

    pub(super) async fn send(&self, base: &Table, append: &Append) -> Result<Table, lake::Error> {
        let Some(raw) = &self.by_hand else {
            return commit(&*self.catalog, base, append).await;
        };
        // A snapshot's time is the machine's, also where the worker runs on another clock.
        let now_ms = Clock::system().now_us().div_euclid(1000);
        commit_by_hand(&**raw, base, append, now_ms).await
    }

    fn plan(
        &self,
        loaded: &Loaded,
        errand: &Errand,
        contribution: &Contribution,
    ) -> Result<Plan, Misfit> {
        let ours = Finalization::new(self.policy.clone());
        let words = ForeignWords {
            systems: self.also_write.as_ref(),
        };
        let mut processors: Vec<&dyn CommitProcessor> = vec![&ours, &words];
        processors.extend(self.processors.iter().map(|processor| &**processor));
        let attempt = Attempt {
            base: &loaded.table,
            state: &loaded.state,
            batch: errand.batch.as_ref(),
            contribution,
        };
        let mut plan = plan(&processors, &attempt)?;
        let handled = self.handled.lock().unwrap_or_else(PoisonError::into_inner);
        plan.set_properties.extend(handled.clone());
        Ok(plan)
    }

    /// Who brings an errand, as of now.
    pub(super) fn bearer(&self, commit_id: Uuid) -> Bearer<'_> {
        Bearer {
            commit_id,
            worker: &self.worker,
            subscription: &self.subscription,
            policy: &self.policy,
            now_us: self.clock.now_us(),
        }
    }

    /// Deletes the files of an errand that was never sent.
    pub(super) async fn discard(&self, errand: &Errand) {
        let Some(batch) = &errand.batch else { return };
        let Ok(table) = catalog::load(&*self.catalog, &self.ident).await else {
            return;
        };
        if let Err(error) = writer::discard(&table, &batch.files).await {
            tracing::warn!(table = %self.ident, %error, "files of a dropped batch remain");
        }
    }
}

/// A commit whose answer was lost, found on the table.
fn found(loaded: Loaded, errand: &Errand, commit_id: Uuid) -> Outcome {
    let entry = loaded
        .lineage
        .find(commit_id)
        .map(|entry| entry.snapshot_id);
    let snapshot_id = entry
        .or(loaded.table.metadata().current_snapshot_id())
        .unwrap_or_default();
    Outcome::Committed(Box::new(Success {
        commit_id,
        snapshot_id,
        state: loaded.state,
        advanced: None,
        rows: errand.rows(),
        table: loaded.table,
        attempt: Duration::ZERO,
    }))
}

fn succeeded(
    table: Table,
    advanced: Option<Advanced>,
    errand: &Errand,
    commit_id: Uuid,
    before: State,
) -> Outcome {
    Outcome::Committed(Box::new(Success {
        commit_id,
        snapshot_id: table.metadata().current_snapshot_id().unwrap_or_default(),
        state: advanced
            .as_ref()
            .map_or(before, |advanced| advanced.state.clone()),
        advanced,
        rows: errand.rows(),
        table,
        attempt: Duration::ZERO,
    }))
}

fn of_misfit(misfit: &Misfit) -> Error {
    let reason = match misfit {
        Misfit::TopicId { .. } | Misfit::Recreated { .. } => Reason::TopicRecreated,
        Misfit::Forgotten { .. } => Reason::TopicForgotten,
        Misfit::TooBig { .. } => Reason::TooManyPartitions,
        Misfit::NotPublished { .. } | Misfit::StillToCome { .. } => Reason::SpecInvalid,
        Misfit::Offset { .. }
        | Misfit::Backwards { .. }
        | Misfit::Anchored { .. }
        | Misfit::Left { .. }
        | Misfit::JumpedAlready { .. } => Reason::Fenced,
    };
    Error::refused(reason, misfit.to_string())
}
