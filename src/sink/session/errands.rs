//! The way to the table and back: what is sent, and what is made of the outcome.
//!
//! One errand at a time. The batch that fills meanwhile is worth nothing unless the one before it arrives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use iceberg::table::Table;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Session, UnderWay};
use crate::api::Reason;
use crate::api::worker::CommitProgress;
use crate::kafka::{self, Inquirer, Mode, TopicPartition, Topics};
use crate::lake;
use crate::process::clock::{Backoff, Clock};
use crate::sink::commit::{Outcome, Success};
use crate::sink::errand::Errand;
use crate::sink::identity::check_incarnations;
use crate::sink::pipeline::{Context, chain};
use crate::sink::progress::{Proof, Status, Trouble, evidence, reason_of_step};
use crate::sink::question::{Answer, PATIENCE, known};
use crate::sink::{Error, open};
use crate::watermark::{Excluded, HeldBy, Published, contract, is_current};

/// Looks at a claim that could rise before nobody is left who may raise it.
const LOOKS: u32 = 10;

/// And so long at least: a worker that begins anew joins its group first.
const LEAST_PATIENCE: Duration = Duration::from_secs(30);

impl Session<'_> {
    /// Sends what is read, or only the answers, on its way to the table.
    pub(super) fn send(&mut self, now: Duration) -> Result<(), Error> {
        let answer = self.answer.take().map(|(answer, _)| answer);
        let errand = self.errand(answer)?;
        self.cadence.look(now);
        if !self.is_worth_a_look(&errand) {
            return Ok(());
        }
        let (side, limit, status) = (
            Arc::clone(&self.side),
            self.limit.child_token(),
            self.context.status.clone(),
        );
        let own_limit = limit.clone();
        let id = self.context.spec.id();
        let clock = self.context.clock.clone();
        let news = errand.news.clone();
        let excluded = errand
            .batch
            .as_ref()
            .map(|batch| batch.times.excluded)
            .unwrap_or_default();
        let inquirer = Arc::clone(&self.inquirer);
        let known = errand.read_from();
        let task = self.context.runtime.spawn(async move {
            let waits = Waits { id, status, clock };
            // Offsets without rows as well: they would be those of the new topic.
            if let Err(error) = verify(inquirer, known, &limit, &waits).await {
                side.discard(&errand).await;
                return Err(error);
            }
            let told = |error: &lake::Error| waits.for_end_of(error);
            side.settle(&errand, &limit, &told).await
        });
        self.under_way = Some(UnderWay {
            task,
            news,
            excluded,
            started: now,
            limit: own_limit,
        });
        Ok(())
    }

    pub(super) fn errand(&mut self, answer: Option<Answer>) -> Result<Errand, Error> {
        let now_us = self.context.clock.now_us();
        let mut errand = Errand {
            derived_from: Some(self.state.commit_id),
            ..Errand::default()
        };
        if self.ingest.waiting().rows > 0 {
            let batch = self.ingest.seal(now_us)?;
            errand.news.clone_from(&batch.news);
            errand.batch = Some(batch);
        } else {
            errand.news = self.ingest.outlook();
        }
        self.context.metrics.held(self.ingest.held_bytes());
        let counted = self.ingest.take_counted();
        for name in &counted.new_unknown_fields {
            tracing::warn!(pipeline = %self.context.spec.id(), field = name, "the table has no column for a field; its values are left out");
        }
        self.context.metrics.read(&counted);
        self.context
            .status
            .write(|progress| progress.dead_letters += counted.dead_letters);
        if let Some(answer) = answer {
            errand.hear(answer);
        }
        Ok(errand)
    }

    /// Without rows the table is loaded only when a commit could be worth it: a cell may close, a partition is new, or offsets
    /// without rows wait for so long that the log may be cut behind them.
    fn is_worth_a_look(&self, errand: &Errand) -> bool {
        let now_us = self.context.clock.now_us();
        errand.is_worth_a_look(&self.state, self.cadence.is_closable(), now_us)
    }

    /// Takes what became of the errand under way, if there is one; waits for it at most so long, then gives it up.
    pub(super) fn arrive(&mut self, patience: Duration) -> Result<(), Error> {
        let Some(mut under_way) = self.under_way.take() else {
            return Ok(());
        };
        let ended = self.context.runtime.block_on(async {
            if let Ok(ended) = tokio::time::timeout(patience, &mut under_way.task).await {
                return ended;
            }
            under_way.limit.cancel();
            under_way.task.await
        });
        let outcome = ended.map_err(|error| Error::crashed(&error))??;
        let now = self.context.clock.monotonic();
        if !self.poisoned {
            self.context.status.heal(Proof::Arrived);
        }
        match outcome {
            Outcome::Looked(state) => self.state = *state,
            Outcome::Committed(success) => {
                self.committed = true;
                self.ingest.advance_starts(&under_way.news);
                self.cadence.committed(now, success.attempt);
                let elapsed = self
                    .context
                    .clock
                    .real(now.saturating_sub(under_way.started));
                self.note(*success, &under_way.excluded, elapsed);
            }
        }
        self.read_further()?;
        self.show();
        self.overrule(now)
    }

    /// Settings that nobody who runs has any more, as those of a canary that was withdrawn, would hold the claim for good: those here
    /// come as newer ones then. A worker that has them and runs raises the claim within a look or two.
    fn overrule(&self, now: Duration) -> Result<(), Error> {
        let (state, policy) = (&self.state, &self.side.policy);
        let revision = state.policy.revision;
        let holds = matches!(
            state.hold(is_current(state, policy)).by,
            HeldBy::Policy { .. }
        );
        let held = holds.then_some((revision, state.published.finalized_before_us));
        let interval = open::commit_interval(&self.context.spec);
        let patience = (interval * LOOKS).max(LEAST_PATIENCE);
        if !self.context.memory.is_overruled(held, now, patience) {
            return Ok(());
        }
        Err(Error::refused(
            Reason::PolicyOutdated,
            format!(
                "nobody with the settings of revision {revision} has raised the claim for {patience:?}; those here are taken for newer ones"
            ),
        ))
    }

    /// Reads what the table has by now and this worker does not read yet, if that is for it to decide.
    pub(super) fn read_further(&mut self) -> Result<(), Error> {
        if self.source.mode() == Mode::Group {
            return self.subscribe();
        }
        let reading: BTreeSet<TopicPartition> = self
            .ingest
            .delivered()
            .into_iter()
            .map(|(at, _)| at)
            .collect();
        let new: Vec<TopicPartition> = self.wanted().difference(&reading).cloned().collect();
        if new.is_empty() {
            return Ok(());
        }
        self.take_over(&new)
    }

    fn note(&mut self, success: Success, excluded: &Excluded, elapsed: Duration) {
        let context = self.context;
        let before = self.state.published.finalized_before_us;
        let epoch = self.state.published.epoch;
        let now_us = context.clock.now_us();
        let late = success
            .advanced
            .as_ref()
            .map_or(0, |advanced| advanced.late.rows());
        context.metrics.put(success.rows, excluded, late);
        if late > 0 {
            tracing::warn!(
                pipeline = %context.spec.id(), table = %context.spec.sink.table, commit_id = %success.commit_id,
                rows = late, "rows came late: their cells were final",
            );
        }
        let commit = CommitProgress {
            commit_id: success.commit_id,
            snapshot_id: success.snapshot_id,
            at_us: now_us,
            rows: success.rows,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        };
        context.status.committed(commit, excluded);
        self.state = success.state;
        let claim = self.state.published.finalized_before_us;
        tracing::info!(
            pipeline = %context.spec.id(), table = %context.spec.sink.table, commit_id = %success.commit_id,
            snapshot_id = success.snapshot_id, rows = success.rows, elapsed_ms = elapsed.as_millis(), "committed",
        );
        if let Some(claim_us) = claim.filter(|_| claim > before) {
            let evidence = evidence(&self.state);
            tracing::info!(
                pipeline = %context.spec.id(), table = %context.spec.sink.table,
                finalized_before = contract::iso(claim_us), evidence, "claim advanced",
            );
        }
        note_step(context, epoch, &self.state.published);
        let offsets: Vec<(TopicPartition, i64)> = self
            .ingest
            .delivered()
            .into_iter()
            .filter_map(|(at, _)| {
                Some((
                    at.clone(),
                    self.state.partition(&at.topic, at.partition)?.next_offset,
                ))
            })
            .collect();
        // Only lag tools look at them.
        if let Err(error) = self.source.commit_group_offsets(&offsets) {
            tracing::debug!(%error, "group offsets are not committed");
        }
        self.after_commit(success.table);
    }

    /// Processors and maintenance, beside the reading.
    fn after_commit(&self, table: Table) {
        let side = Arc::clone(&self.side);
        let maintainer = self.maintainer.clone().filter(|_| self.owns_maintenance());
        let now_ms = Clock::system().now_us().div_euclid(1000);
        self.context.runtime.spawn(async move {
            side.tell_processors(&table).await;
            let Some(maintainer) = maintainer else { return };
            // One at a time; what one run leaves, the next one finds.
            let Ok(mut maintainer) = maintainer.try_lock() else {
                return;
            };
            match maintainer.run(&*side.catalog, &table, now_ms).await {
                Ok(report) => tracing::debug!(
                    expired = report.expired,
                    deleted = report.deleted,
                    orphans = report.orphans,
                    "maintained"
                ),
                Err(error) => {
                    tracing::debug!(%error, "maintenance comes again with the next commit");
                }
            }
        });
    }

    /// One worker maintains the table: the one that reads the first partition.
    fn owns_maintenance(&self) -> bool {
        let first = known(&self.state).into_iter().next();
        first.is_some_and(|first| self.ingest.delivered().iter().any(|(at, _)| *at == first))
    }
}

/// Says that the claim was taken back, once, where it was.
pub(super) fn note_step(context: &Context, epoch: u64, published: &Published) {
    let stepped = published.epoch > epoch;
    if let Some(reopened) = published.reopened.filter(|_| stepped) {
        tracing::warn!(
            pipeline = %context.spec.id(), table = %context.spec.sink.table, epoch = published.epoch,
            reason = reason_of_step(reopened.cause).label(), claimed_before = contract::iso(reopened.before_us),
            claims_now = reopened.from_us.map(contract::iso), "cells are open again",
        );
    }
}

/// A commit that waits for the end of an outage.
struct Waits {
    id: String,
    status: Status,
    clock: Clock,
}

impl Waits {
    /// Said once an outage: it is tried again all the while.
    fn for_end_of(&self, error: &impl Trouble) {
        if self.status.fail(error, self.clock.now_us()) {
            tracing::warn!(pipeline = %self.id, reason = error.reason().label(), error = chain(error), "a commit waits");
        }
    }
}

/// Makes sure that everything read came from the topics whose offsets the table counts. The client reads on without a word in
/// a topic that was deleted and created anew while it read (librdkafka 2.12.1), so the ids are asked after the last row and
/// before the commit; an id never comes back.
async fn verify(
    inquirer: Arc<Inquirer>,
    known: BTreeMap<String, Uuid>,
    limit: &CancellationToken,
    waits: &Waits,
) -> Result<(), Error> {
    if known.is_empty() {
        return Ok(());
    }
    let names = Topics::List(known.keys().cloned().collect());
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    loop {
        let (asked, names) = (Arc::clone(&inquirer), names.clone());
        let asked = tokio::task::spawn_blocking(move || asked.topics(&names, PATIENCE));
        let error = match asked.await.map_err(|error| Error::crashed(&error))? {
            Ok(topics) => return check_incarnations(&known, &topics, &[]),
            Err(error) if error.next() == kafka::Next::Later => error,
            Err(error) => return Err(error.into()),
        };
        waits.for_end_of(&error);
        tokio::select! {
            () = tokio::time::sleep(backoff.next_delay()) => {}
            () = limit.cancelled() => return Err(Error::GivenUp),
        }
    }
}
