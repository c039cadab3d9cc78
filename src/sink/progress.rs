//! What a pipeline is doing, as `/progress` shows it.
//!
//! Written by the pipeline's thread at every turn of events, read by anyone at any time: the reader gets a copy. A claim shown
//! here is the table's, as of a commit, so an old one is still true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::pulse::Pulse;
use crate::api::quantity::length;
use crate::api::worker::{
    AcceptedProgress, AmendedProgress, ClaimProgress, CommitProgress, ErrorProgress, HoldProgress,
    Interval, LagSummary, PartitionProgress, PipelineProgress, ReopenedProgress, RunState,
};
use crate::api::{EffectiveSpec, Reason};
use crate::kafka::TopicPartition;
use crate::watermark::{
    Claim, CompleteFrom, Excluded, Policy, Reopened, State, StepCause, Term, is_current,
};

/// The shared progress of one pipeline.
#[derive(Clone)]
pub(super) struct Status {
    inner: Arc<Mutex<PipelineProgress>>,
    changed: Arc<dyn Fn() + Send + Sync>,
    pulse: Pulse,
}

impl Status {
    /// A pipeline that has not begun. `changed` is called after every change; the signs of life come by `pulse`.
    #[must_use]
    pub(super) fn new(
        spec: &EffectiveSpec,
        changed: Arc<dyn Fn() + Send + Sync>,
        pulse: Pulse,
    ) -> Self {
        let progress = PipelineProgress {
            pipeline: spec.id(),
            table: spec.sink.table.to_string(),
            spec_hash: spec.hash(),
            ..PipelineProgress::default()
        };
        Self {
            inner: Arc::new(Mutex::new(progress)),
            changed,
            pulse,
        }
    }

    /// A copy, and whether the loop turns; `now` is the real time that the signs of life are measured in.
    #[must_use]
    pub(super) fn read(&self, now: Duration) -> PipelineProgress {
        let progress = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        PipelineProgress {
            stuck_seconds: self.pulse.stuck_for(now).map(|silence| silence.as_secs()),
            ..progress.clone()
        }
    }

    /// The signs of life of its loop.
    pub(super) fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Changes it.
    pub(super) fn write(&self, change: impl FnOnce(&mut PipelineProgress)) {
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner));
        (self.changed)();
    }

    /// Where it stands.
    pub(super) fn enter(&self, state: RunState) {
        self.write(|progress| {
            progress.state = state;
        });
    }

    /// Something went wrong; tells whether that is news. The same reason keeps its first instant.
    pub(super) fn fail(&self, reason: Reason, message: String, now_us: i64) -> bool {
        let mut news = true;
        self.write(|progress| {
            let since_us = match &progress.last_error {
                Some(error) if error.reason == reason => {
                    news = false;
                    error.since_us
                }
                _ => now_us,
            };
            progress.last_error = Some(ErrorProgress::new(reason, message, since_us));
        });
        news
    }

    /// One side has answered as it should: its last error is over. What stopped a session is over with the first commit.
    pub(super) fn heal(&self, side: Side) {
        let mut progress = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let over = progress
            .last_error
            .as_ref()
            .is_some_and(|error| Side::of(error.reason) == side);
        if over {
            progress.last_error = None;
            drop(progress);
            (self.changed)();
        }
    }

    /// A commit of ours is on the table.
    pub(super) fn committed(&self, commit: CommitProgress, excluded: &Excluded) {
        self.write(|progress| {
            progress.rows += commit.rows;
            progress.last_commit = Some(commit);
            for (kind, count) in excluded_kinds(excluded).filter(|(_, count)| *count > 0) {
                *progress.excluded.entry(kind.to_owned()).or_default() += count;
            }
        });
    }

    /// What the table claims, and what holds the next cell.
    pub(super) fn claimed(&self, state: &State, policy: &Policy, now_us: i64) {
        self.write(|progress| {
            progress.policy_revision = Some(state.policy.revision);
            progress.claim = (!state.is_new()).then(|| claim(&state.claim(), state));
            let hold = || HoldProgress::of(&state.hold(is_current(state, policy)), state, now_us);
            progress.hold = (!state.is_new()).then(hold);
        });
    }

    /// The partitions that this worker reads.
    pub(super) fn partitions(
        &self,
        state: &State,
        ends: &BTreeMap<TopicPartition, i64>,
        own: &[(TopicPartition, i64)],
    ) {
        let view = state.view();
        let rows: Vec<PartitionProgress> = own
            .iter()
            .filter_map(|(at, _)| {
                let known = state.partition(&at.topic, at.partition)?;
                Some(PartitionProgress {
                    topic: at.topic.to_string(),
                    partition: at.partition,
                    next_offset: known.next_offset,
                    end_offset: ends.get(at).copied(),
                    frontier_us: view.frontier(known).map(|value| value.value_us),
                })
            })
            .collect();
        let behind = |row: &PartitionProgress| {
            row.end_offset
                .map_or(0, |end| u64::try_from(end - row.next_offset).unwrap_or(0))
        };
        let lag = LagSummary {
            offsets: rows.iter().map(behind).sum(),
            partitions_behind: u32::try_from(rows.iter().filter(|row| behind(row) > 0).count())
                .unwrap_or(u32::MAX),
        };
        self.write(|progress| {
            progress.partitions = rows;
            progress.lag = lag;
        });
    }
}

/// Which side an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Kafka.
    Source,
    /// Catalog, storage, and what is on the table.
    Table,
}

impl Side {
    fn of(reason: Reason) -> Side {
        match reason {
            Reason::TopicNotFound | Reason::BrokerUnreachable | Reason::BrokerRefused => {
                Side::Source
            }
            _ => Side::Table,
        }
    }
}

/// Rows without a say by the names of the metrics and of `/progress`.
pub(super) fn excluded_kinds(excluded: &Excluded) -> impl Iterator<Item = (&'static str, u64)> {
    [
        ("missing", excluded.missing),
        ("snapshot", excluded.snapshot),
        ("replayed", excluded.replayed),
        ("future", excluded.future),
        ("past", excluded.past),
        ("backfill", excluded.backfill),
        ("undecodable", excluded.undecodable),
    ]
    .into_iter()
}

/// A claim as readers of `/progress` see it.
fn claim(claim: &Claim, state: &State) -> ClaimProgress {
    ClaimProgress {
        finalized_before_us: claim.finalized_before_us,
        complete_from_us: match claim.complete_from {
            CompleteFrom::Unbounded => None,
            CompleteFrom::From(us) => Some(us),
        },
        gaps: claim
            .gaps
            .stretches()
            .iter()
            .map(|(from_us, before_us)| Interval {
                from_us: *from_us,
                before_us: *before_us,
            })
            .collect(),
        evidence: claim
            .evidence
            .iter()
            .map(|term| term.label().to_owned())
            .collect(),
        margin_ms: claim.margin_us.map(|us| us.div_euclid(1000)),
        epoch: claim.epoch,
        reopened: claim.reopened.map(reopened),
        commit_id: state.commit_id,
        table_uuid: Some(state.identity.table_uuid),
        cell: Some(length(state.policy.grid.cell_us())),
        zone: state.policy.grid.zone().map(str::to_owned),
        accepted: accepted(state),
        amended: amended(claim),
    }
}

/// How far each smaller set of the admitted terms alone would carry the claim. Of several writers the others' terms are not known
/// here.
fn accepted(state: &State) -> Vec<AcceptedProgress> {
    let terms: Vec<Term> = state.policy.terms.iter().copied().collect();
    if !state.peers.is_empty() {
        return Vec::new();
    }
    let sets = (1..(1_usize << terms.len()) - 1).map(|set| {
        let chosen = |(bit, term): (usize, &Term)| (set >> bit & 1 == 1).then_some(*term);
        terms.iter().enumerate().filter_map(chosen).collect()
    });
    let told = sets.map(|set: BTreeSet<Term>| AcceptedProgress {
        before_us: state.accepted(&set),
        terms: set.iter().map(|term| term.label().to_owned()).collect(),
    });
    told.filter(|set| set.before_us.is_some()).collect()
}

fn amended(claim: &Claim) -> Vec<AmendedProgress> {
    let cells = claim.amended.cells().iter().chain(claim.amended.overflow());
    let told = cells.map(|cell| AmendedProgress {
        cell: Interval {
            from_us: cell.from_us,
            before_us: cell.before_us,
        },
        revision: cell.revision,
        rows: cell.rows,
        at_us: cell.at_us,
        withheld: cell.withheld,
    });
    told.collect()
}

fn reopened(reopened: Reopened) -> ReopenedProgress {
    ReopenedProgress {
        reason: reason_of_step(reopened.cause),
        from_us: reopened.from_us,
        before_us: reopened.before_us,
        since_us: reopened.at_us,
    }
}

/// The reason by which a step of the epoch is known outside of the table.
pub(super) fn reason_of_step(cause: StepCause) -> Reason {
    match cause {
        StepCause::TopicJoined => Reason::TopicJoined,
        StepCause::RolledBack => Reason::RolledBack,
        StepCause::LineageAccepted => Reason::LineageAccepted,
        StepCause::WriterJoined => Reason::WriterJoined,
    }
}

/// The terms that a claim rests on, as one text.
#[must_use]
pub(super) fn evidence(state: &State) -> String {
    let labels: Vec<&str> = state
        .published
        .evidence
        .iter()
        .map(|term| term.label())
        .collect();
    labels.join(",")
}
