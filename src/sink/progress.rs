//! What a pipeline is doing, as `/progress` shows it.
//!
//! Written by the pipeline's thread at every turn of events, read by anyone at any time: the reader gets a copy. A claim shown
//! here is the table's, as of a commit, so an old one is still true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Error;
use super::pipeline::chain;
use super::pulse::Pulse;
use crate::api::quantity::length;
use crate::api::worker::{
    AcceptedProgress, AmendedProgress, ClaimProgress, CommitProgress, ErrorProgress, Holding,
    Interval, LagSummary, PartitionProgress, PipelineProgress, ReopenedProgress, RunState,
};
use crate::api::{EffectiveSpec, Reason};
use crate::kafka::{self, TopicPartition};
use crate::lake;
use crate::watermark::{
    Claim, CompleteFrom, Excluded, Policy, Reopened, State, StepCause, Term, is_current,
};

/// The shared progress of one pipeline.
#[derive(Clone)]
pub(super) struct Status {
    inner: Arc<Mutex<Inner>>,
    changed: Arc<dyn Fn() + Send + Sync>,
    pulse: Pulse,
}

struct Inner {
    /// Without what depends on the clock of whoever asks.
    progress: PipelineProgress,
    /// What holds the next cell, by the newest look at the table.
    holding: Option<Holding>,
    /// Whether the last error was met before anything was read.
    met_opening: bool,
}

/// What can go wrong, as people are told.
pub(super) trait Trouble: std::error::Error + 'static {
    /// The kind.
    fn reason(&self) -> Reason;

    /// The partition that it is about, where it is about one.
    fn at(&self) -> Option<TopicPartition>;
}

impl Trouble for Error {
    fn reason(&self) -> Reason {
        self.reason()
    }

    fn at(&self) -> Option<TopicPartition> {
        self.at()
    }
}

impl Trouble for kafka::Error {
    fn reason(&self) -> Reason {
        super::of_kafka(self)
    }

    fn at(&self) -> Option<TopicPartition> {
        self.at()
    }
}

impl Trouble for lake::Error {
    fn reason(&self) -> Reason {
        super::of_lake(self)
    }

    fn at(&self) -> Option<TopicPartition> {
        None
    }
}

impl Status {
    /// A pipeline that has not begun. `changed` is called after every change; the signs of life come by `pulse`.
    #[must_use]
    pub(super) fn new(
        spec: &EffectiveSpec,
        changed: Arc<dyn Fn() + Send + Sync>,
        pulse: Pulse,
        now_us: i64,
    ) -> Self {
        let progress = PipelineProgress {
            pipeline: spec.id(),
            table: spec.sink.table.to_string(),
            spec_hash: spec.hash(),
            state_since_us: now_us,
            ..PipelineProgress::default()
        };
        let inner = Inner {
            progress,
            holding: None,
            met_opening: true,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
            changed,
            pulse,
        }
    }

    /// A copy, as it is by the clock `now_us`, and whether the loop turns; `now` is the real time that the signs of life are
    /// measured in.
    #[must_use]
    pub(super) fn read(&self, now: Duration, now_us: i64) -> PipelineProgress {
        let inner = self.lock();
        let progress = PipelineProgress {
            stuck_seconds: self.pulse.stuck_for(now).map(|silence| silence.as_secs()),
            ..inner.progress.clone()
        };
        progress.at(now_us, inner.holding.as_ref())
    }

    /// Whether something keeps it from reading or committing.
    #[must_use]
    pub(super) fn is_kept(&self) -> bool {
        self.lock().progress.is_kept()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The signs of life of its loop.
    pub(super) fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Changes it.
    pub(super) fn write(&self, change: impl FnOnce(&mut PipelineProgress)) {
        change(&mut self.lock().progress);
        (self.changed)();
    }

    /// Where it stands. Once it runs, what kept it from its start is over, and what of the rest its opening would have met
    /// again; until brokers have answered nobody knows what is still to be read.
    pub(super) fn enter(&self, state: RunState, now_us: i64) {
        if state == RunState::Running {
            self.heal(Proof::Opened);
        }
        self.write(|progress| {
            if progress.state != state {
                (progress.state, progress.state_since_us) = (state, now_us);
            }
            if state == RunState::Starting {
                progress.lag = None;
            }
        });
    }

    /// Something went wrong; tells whether that is news. The same trouble in the same place keeps its first instant.
    pub(super) fn fail(&self, trouble: &impl Trouble, now_us: i64) -> bool {
        let reason = trouble.reason();
        let partition = trouble
            .at()
            .map(|at| format!("{}/{}", at.topic, at.partition));
        let mut inner = self.lock();
        let before = inner.progress.last_error.as_ref();
        let same = before.filter(|error| error.reason == reason && error.partition == partition);
        let since_us = same.map(|error| error.since_us);
        inner.progress.last_error = Some(ErrorProgress {
            partition,
            ..ErrorProgress::new(reason, chain(trouble), since_us.unwrap_or(now_us))
        });
        inner.met_opening = inner.progress.state == RunState::Starting;
        drop(inner);
        (self.changed)();
        since_us.is_none()
    }

    /// Something has gone well: the last error is over where that proves it.
    pub(super) fn heal(&self, proof: Proof) {
        let mut inner = self.lock();
        let error = inner.progress.last_error.as_ref();
        if error.is_some_and(|error| proof.settles(error.reason, inner.met_opening)) {
            inner.progress.last_error = None;
            drop(inner);
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
    pub(super) fn claimed(&self, state: &State, policy: &Policy) {
        let mut inner = self.lock();
        inner.progress.policy_revision = Some(state.policy.revision);
        inner.progress.claim = (!state.is_new()).then(|| claim(&state.claim(), state));
        let holding = || Holding::of(state.hold(is_current(state, policy)), state);
        inner.holding = (!state.is_new()).then(holding);
        drop(inner);
        (self.changed)();
    }

    /// What the table claimed no longer counts.
    pub(super) fn withdraw(&self) {
        let mut inner = self.lock();
        inner.progress.claim = None;
        inner.holding = None;
        drop(inner);
        (self.changed)();
    }

    /// The partitions that this worker reads, and the ends of those that have answered.
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
        let lag = lag(&rows);
        self.write(|progress| {
            progress.partitions = rows;
            progress.lag = lag;
        });
    }
}

/// What is still to be read; `None`: of one partition at least nobody knows, or there is none.
fn lag(partitions: &[PartitionProgress]) -> Option<LagSummary> {
    let behind: Option<Vec<u64>> = partitions
        .iter()
        .map(|partition| {
            let behind = partition.end_offset? - partition.next_offset;
            Some(u64::try_from(behind).unwrap_or(0))
        })
        .collect();
    let behind = behind.filter(|behind| !behind.is_empty())?;
    let partitions_behind = behind.iter().filter(|offsets| **offsets > 0).count();
    Some(LagSummary {
        offsets: behind.iter().sum(),
        partitions_behind: u32::try_from(partitions_behind).unwrap_or(u32::MAX),
    })
}

/// What shows that an error is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// Table and source are open.
    Opened,
    /// Kafka has answered as it should.
    Answered,
    /// What was under way has come to the table and back.
    Arrived,
}

impl Proof {
    fn settles(self, reason: Reason, met_opening: bool) -> bool {
        match self {
            Self::Opened => met_opening || !shows_later(reason),
            Self::Answered => is_of_source(reason),
            Self::Arrived => !is_of_source(reason),
        }
    }
}

fn is_of_source(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::TopicNotFound | Reason::BrokerUnreachable | Reason::BrokerRefused
    )
}

/// Whether a pipeline can open, and only meet it when it reads or writes.
fn shows_later(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Undecodable
            | Reason::DeadLetterFailed
            | Reason::SchemaMismatch
            | Reason::OffsetOutOfRange
            | Reason::BrokerRefused
            | Reason::CatalogRefused
            | Reason::StorageFailed
            | Reason::Crashed
    )
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
