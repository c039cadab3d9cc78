//! What a worker wants on the table, and what it comes to on a base.
//!
//! In: a sealed batch, the cluster's answers, the state of the base that an attempt was loaded with. Out: whether the errand may
//! go onto that base, and what it brings to the claim. No I/O; each attempt asks anew.
//!
//! What was answered is bound to what was asked: an end without its partition's news proves nothing.

use uuid::Uuid;

use super::fence::{self, Verdict};
use super::ingest::{SealedBatch, ranges};
use super::question::Answer;
use crate::kafka::TopicPartition;
use crate::watermark::{
    Anchor, AskedPartitions, CellCounts, Contribution, Excluded, Jump, Order, PartitionNews,
    Policy, State, should_commit_empty,
};

/// Offsets without rows are committed after an hour at the latest.
const LONG_WAIT_US: i64 = 3_600_000_000;

/// What a worker wants on the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Errand {
    /// Rows; without them the commit is made only if the claim needs it.
    pub batch: Option<SealedBatch>,
    /// News of the worker's partitions, with the cluster's answers.
    pub news: Vec<PartitionNews>,
    /// Partitions the table does not know.
    pub anchors: Vec<Anchor>,
    /// Partitions that go on somewhere else.
    pub jumps: Vec<Jump>,
    /// The newest commit of the state that anchors and jumps were derived from, or that rows were read on.
    pub derived_from: Option<Uuid>,
    /// Topics that the specification no longer names.
    pub retired: Vec<String>,
    /// What a person asks for.
    pub order: Option<Order>,
    /// Which partitions there are.
    pub asked: Option<AskedPartitions>,
    /// Whether a session opens with it: it may be the first commit, and the one that takes up a roll-back.
    pub opens: bool,
}

/// Who brings an errand, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bearer<'a> {
    /// The commit's id.
    pub commit_id: Uuid,
    /// The worker, for people.
    pub worker: &'a str,
    /// The topics as the specification names them.
    pub subscription: &'a str,
    /// The finalization in force.
    pub policy: &'a Policy,
    /// The worker's clock.
    pub now_us: i64,
}

impl Errand {
    /// Rows in it.
    pub(crate) fn rows(&self) -> u64 {
        self.batch.as_ref().map_or(0, |batch| batch.times.rows)
    }

    /// Takes in what the cluster answered.
    pub(crate) fn hear(&mut self, answer: Answer) {
        for news in &mut self.news {
            let at = TopicPartition::new(news.topic.as_str(), news.partition);
            news.asked_end = answer.ends.get(&at).copied();
        }
        self.asked = answer.asked;
        self.anchors = answer.unknown;
    }

    /// Whether the table is worth a look. Without rows it is only when a commit could be worth it: a cell may close, a partition
    /// is new, or offsets without rows wait for so long that the log may be cut behind them.
    pub(crate) fn is_worth_a_look(&self, state: &State, closable: bool, now_us: i64) -> bool {
        let moved = |news: &PartitionNews| news.end_offset > news.start_offset;
        let waits_us = now_us.saturating_sub(state.committed_at_us);
        self.batch.is_some()
            || !self.anchors.is_empty()
            || closable
            || (waits_us >= LONG_WAIT_US && self.news.iter().any(moved))
    }

    /// Whether it may go onto a base, or is there already.
    pub(crate) fn judge(&self, state: &State, lost_answer: bool) -> Verdict {
        let jumped = |at: &TopicPartition| {
            let mut jumps = self.jumps.iter();
            let jump =
                jumps.find(|jump| *jump.topic == *at.topic && jump.partition == at.partition);
            jump.map(|jump| jump.offset)
        };
        let stands = |at: &TopicPartition| {
            let known = state.partition(&at.topic, at.partition);
            jumped(at).or(known.map(|known| known.next_offset))
        };
        fence::judge(&ranges(&self.news), stands, lost_answer)
    }

    /// What it brings to the claim of a base; `None`: nothing that is worth a commit. `reopens`: the base was rolled back, and
    /// waits for the commit that says so.
    pub(crate) fn contribution_to(
        &self,
        state: &State,
        reopens: bool,
        bearer: &Bearer<'_>,
    ) -> Option<Contribution> {
        let mut contribution = self.contribution(bearer);
        // What another worker has anchored meanwhile, or has taken out, is found by the next look.
        contribution.anchors.retain(|anchor| state.takes(anchor));
        let worth = self.batch.is_some()
            || reopens
            || should_commit_empty(state, bearer.policy, &contribution).is_some();
        worth.then_some(contribution)
    }

    /// What it brings to the claim.
    pub(crate) fn contribution(&self, bearer: &Bearer<'_>) -> Contribution {
        let times = self.batch.as_ref().map(|batch| &batch.times);
        Contribution {
            commit_id: bearer.commit_id,
            worker: bearer.worker.to_owned(),
            now_us: bearer.now_us,
            subscription: bearer.subscription.to_owned(),
            anchors: self.anchors.clone(),
            jumps: self.jumps.clone(),
            derived_from: self.derived_from,
            retired: self.retired.clone(),
            order: self.order.clone(),
            partitions: self.news.clone(),
            asked: self.asked.clone(),
            rows: self.rows(),
            excluded: times.map_or_else(Excluded::default, |times| times.excluded),
            cells: times.map_or_else(
                || CellCounts::new(bearer.policy.grid, None),
                |times| times.cells.clone(),
            ),
            event_times: times.and_then(|times| times.sketch.clone()),
        }
    }
}
