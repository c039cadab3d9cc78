//! What the table remembers of one writer, and how a commit changes it.
//!
//! A commit is a [`Record`]; the state is the fold of the records along main's ancestry, and both the way forward and the
//! rebuild from the lineage take the same step, [`State::apply`].
//!
//! All times are whole seconds, rounded when they enter so that a claim only gets later and an edge only narrower: lower
//! bounds (windows, caught up, asked) down, what complete-from rests on (anchors, first rows, restarts) up. So the state
//! that comes back from the table is the very one that a claim was derived from.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::amended::Amended;
use super::epoch::Reopened;
use super::event_time::{SECOND_US, ceil_second, floor_second};
use super::frontier::{
    FromRule, MAX_WINDOW, NewestChange, OpenGap, PartitionState, PartitionStats, Policy, Term,
    TopicState, Window,
};
use super::gaps::Gaps;
use super::left::Left;
use super::order::Retracted;
use super::source_position::SourcePositions;
use super::writers::Peer;

/// Who a state belongs to. It is void on any other table or ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The writer, `<namespace>.<name>` by default.
    pub writer: String,
    /// The Kafka cluster its offsets count in.
    pub cluster_id: String,
    /// The installation that runs it.
    pub installation: String,
    /// The table.
    pub table_uuid: Uuid,
    /// The ref of the table, `main`.
    pub table_ref: String,
}

/// The partitions that the broker named, and when it was asked: one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedPartitions {
    /// The clock before the question left.
    pub at_us: i64,
    /// The partitions of each topic.
    pub topics: BTreeMap<String, BTreeSet<i32>>,
}

/// From where a claim counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CompleteFrom {
    /// From ever on.
    Unbounded,
    /// From this instant on, the edge of a cell.
    From(i64),
}

/// The published part of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Rises with each step back that a claim may take.
    pub epoch: u64,
    /// Complete before this instant; `None`: no claim.
    pub finalized_before_us: Option<i64>,
    /// Complete from here on.
    pub complete_from: CompleteFrom,
    /// The terms that the claim rests on.
    pub evidence: BTreeSet<Term>,
    /// Gaps with both ends known.
    pub gaps: Gaps,
    /// The end of the lost stretches that have no known beginning.
    pub lost_before_us: Option<i64>,
    /// Cells that were final in an earlier epoch and are open again.
    pub reopened: Option<Reopened>,
    /// Cells that got rows after they were final.
    pub amended: Amended,
    /// The stretches that were retracted last, the newest at the end. All of them are among the gaps.
    pub retracted: Vec<Retracted>,
    /// Whether the writer was declared drained: it no longer holds the table's claim, and may not commit.
    pub drained: bool,
}

/// What the table remembers of one writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Whose it is.
    pub identity: Identity,
    /// The commit that wrote it; nil before the first.
    pub commit_id: Uuid,
    /// When that was, by the clock of its worker.
    pub committed_at_us: i64,
    /// When the first commit was made.
    pub anchored_at_us: i64,
    /// Which topics it reads, as its owner wrote it: a list or a pattern under which the broker has named no other topic than
    /// those here. Empty: not known, a topic has left.
    pub subscription: String,
    /// The policy in force.
    pub policy: Policy,
    /// The partitions that a claim ranges over; `None` before the first answer.
    pub asked: Option<AskedPartitions>,
    /// The newest change read.
    pub newest_change: Option<NewestChange>,
    /// The newest heartbeat of the source that any commit knew of; only to explain what holds.
    pub newest_heartbeat_us: Option<i64>,
    /// What is known of each partition.
    pub topics: BTreeMap<String, TopicState>,
    /// Topics that were read and no longer are.
    pub left: Left,
    /// What this writer claims.
    pub published: Published,
    /// What the table says of its other writers: read with each base, and no part of what the state is kept as.
    pub peers: Vec<Peer>,
}

/// What one commit says of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionRecord {
    /// The offset of the next record after this commit.
    pub next_offset: i64,
    /// The leader epoch of the record before that offset; `None`: not known, or no record was added.
    pub leader_epoch: Option<i32>,
    /// Whether what was known of it before is void: a new topic incarnation, or a log cut back.
    pub reset: bool,
    /// When its start offset was anchored, in the commit that anchors it.
    pub anchor_us: Option<i64>,
    /// What was claimed when its topic joined, in the commit that anchors it, where that did not take the claim back.
    pub backfill_before_us: Option<i64>,
    /// What its rows with a say showed.
    pub stats: Option<PartitionStats>,
    /// Everything appended before this instant is in the table.
    pub caught_up_us: Option<i64>,
    /// The newest heartbeat before which everything sent is in the table.
    pub heartbeat_us: Option<i64>,
    /// The newest promise of the source that was read from it.
    pub resolved_us: Option<i64>,
    /// A gap that opens before the rows of this commit.
    pub gap: Option<OpenGap>,
    /// Its source positions after this commit.
    pub positions: Option<SourcePositions>,
}

/// What one commit changes: its own news, and the whole of what it publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its id.
    pub commit_id: Uuid,
    /// When it is made.
    pub committed_at_us: i64,
    /// Whether the writer begins with it: nothing that it committed before counts.
    pub begins: bool,
    /// The policy in force with it.
    pub policy: Policy,
    /// Which topics are read, as in force with it.
    pub subscription: String,
    /// The topics known after it. Any other one is retired.
    pub topics: BTreeSet<String>,
    /// What has left, as in force with it.
    pub left: Left,
    /// The partitions asked for, as in force with it.
    pub asked: Option<AskedPartitions>,
    /// The newest change, as in force with it.
    pub newest_change: Option<NewestChange>,
    /// The newest heartbeat, as in force with it.
    pub newest_heartbeat_us: Option<i64>,
    /// The ids of the topics with news.
    pub topic_ids: BTreeMap<String, Uuid>,
    /// The partitions with news.
    pub partitions: BTreeMap<(String, i32), PartitionRecord>,
    /// Those of them that are no longer there after it.
    pub gone: BTreeSet<(String, i32)>,
}

impl State {
    /// The state of a writer that has not committed yet.
    #[must_use]
    pub fn new(identity: Identity, subscription: &str, policy: Policy, now_us: i64) -> Self {
        State {
            identity,
            commit_id: Uuid::nil(),
            committed_at_us: floor_second(now_us),
            anchored_at_us: ceil_second(now_us),
            subscription: subscription.to_owned(),
            policy,
            asked: None,
            newest_change: None,
            newest_heartbeat_us: None,
            topics: BTreeMap::new(),
            left: Left::default(),
            published: Published {
                epoch: 1,
                finalized_before_us: None,
                complete_from: CompleteFrom::Unbounded,
                evidence: BTreeSet::new(),
                gaps: Gaps::default(),
                lost_before_us: None,
                reopened: None,
                amended: Amended::default(),
                retracted: Vec::new(),
                drained: false,
            },
            peers: Vec::new(),
        }
    }

    /// Whether no commit was made yet: the first one anchors.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.commit_id.is_nil()
    }

    /// What is known of a partition.
    #[must_use]
    pub fn partition(&self, topic: &str, partition: i32) -> Option<&PartitionState> {
        self.topics.get(topic)?.partitions.get(&partition)
    }

    /// Every partition that is known, in order.
    pub fn partitions(&self) -> impl Iterator<Item = (&str, i32, &PartitionState)> {
        self.topics.iter().flat_map(|(topic, known)| {
            let of_topic = known.partitions.iter();
            of_topic.map(move |(partition, state)| (topic.as_str(), *partition, state))
        })
    }

    /// Takes the step of one commit, all but what it publishes. `cut_us`: nothing that was committed before is on record.
    pub(super) fn apply(&mut self, record: &Record, cut_us: Option<i64>) {
        if self.is_new() {
            self.anchored_at_us = ceil_second(record.committed_at_us);
        }
        self.commit_id = record.commit_id;
        self.committed_at_us = record.committed_at_us;
        self.policy = record.policy.clone();
        self.subscription.clone_from(&record.subscription);
        self.retire(&record.topics);
        self.asked.clone_from(&record.asked);
        self.newest_change = record.newest_change;
        self.newest_heartbeat_us = record.newest_heartbeat_us;
        for ((topic, partition), news) in &record.partitions {
            let known = self.topics.entry(topic.clone()).or_default();
            if let Some(id) = record.topic_ids.get(topic) {
                known.id = Some(*id);
            }
            let left = self.left.topics().get(topic);
            let left = left.filter(|left| left.partitions.contains_key(partition));
            // The commits of before it left are no longer on record.
            let dropped_us = left.map(|left| left.at_us).max(cut_us);
            let state = known
                .partitions
                .entry(*partition)
                .or_insert_with(|| unknown(dropped_us));
            state.apply(news, record.committed_at_us);
            if news.stats.is_some()
                && let Some(gap) = state.gap.take()
            {
                let least_us = state
                    .window
                    .entries
                    .first()
                    .map(|entry| entry.stats.least_us);
                self.published.close(&gap, least_us, &record.policy);
            }
        }
        self.leave(&record.gone);
        self.left.clone_from(&record.left);
        for known in self.topics.values_mut() {
            for state in known.partitions.values_mut() {
                state
                    .window
                    .prune(&record.policy, record.committed_at_us, MAX_WINDOW);
            }
        }
    }

    /// Forgets every topic but these.
    fn retire(&mut self, kept: &BTreeSet<String>) {
        let (published, policy) = (&mut self.published, &self.policy);
        self.topics.retain(|topic, known| {
            let stays = kept.contains(topic);
            if !stays {
                let gone = known.partitions.values();
                gone.for_each(|partition| published.keep_edges(partition, policy));
            }
            stays
        });
    }

    /// Forgets these partitions, and a topic that has no other.
    fn leave(&mut self, gone: &BTreeSet<(String, i32)>) {
        for (topic, partition) in gone {
            let Some(known) = self.topics.get_mut(topic) else {
                continue;
            };
            if let Some(state) = known.partitions.remove(partition) {
                self.published.keep_edges(&state, &self.policy);
            }
            if known.partitions.is_empty() {
                self.topics.remove(topic);
            }
        }
    }

    /// The gaps as readers see them: the closed ones, and the open ones as far as they can reach.
    #[must_use]
    pub fn gaps(&self) -> Gaps {
        let mut gaps = self.published.gaps.clone();
        for (_, _, state) in self.partitions() {
            if let Some(OpenGap {
                from_us: Some(from_us),
                restart_us,
                ..
            }) = state.gap
            {
                gaps.add(
                    self.policy.grid.floor(from_us),
                    missed_until(&self.policy, restart_us, None),
                );
            }
        }
        gaps
    }

    /// Where the claim may count from at best: behind everything that is lost without a known beginning.
    pub(super) fn lost_before_us(&self) -> Option<i64> {
        let open = self.partitions().filter_map(|(_, _, state)| state.gap);
        let ends = open.filter(|gap| gap.from_us.is_none());
        let open = ends
            .map(|gap| missed_until(&self.policy, gap.restart_us, None))
            .max();
        open.max(self.published.lost_before_us)
    }
}

impl PartitionState {
    fn apply(&mut self, news: &PartitionRecord, committed_at_us: i64) {
        if news.reset {
            self.window = Window::default();
            self.caught_up_us = None;
            self.heartbeat_us = None;
            self.resolved_us = None;
            self.positions = SourcePositions::default();
            self.leader_epoch = None;
        }
        if let Some(gap) = news.gap {
            self.gap = Some(match self.gap {
                None => gap,
                Some(open) => OpenGap {
                    from_us: open.from_us.zip(gap.from_us).map(|(a, b)| a.min(b)),
                    restart_us: open.restart_us.max(gap.restart_us),
                    in_order: open.in_order && gap.in_order,
                },
            });
        }
        self.anchor_us = self.anchor_us.or(news.anchor_us);
        self.backfill_before_us = self.backfill_before_us.or(news.backfill_before_us);
        if let Some(stats) = news.stats {
            self.window.push(committed_at_us, stats);
            if self.anchor_us.is_some() && self.first_least_us.is_none() {
                self.first_least_us = Some(stats.least_us);
            }
        }
        self.caught_up_us = self.caught_up_us.max(news.caught_up_us);
        self.heartbeat_us = self.heartbeat_us.max(news.heartbeat_us);
        // It repeats and steps back in the log.
        self.resolved_us = self.resolved_us.max(news.resolved_us);
        if let Some(positions) = &news.positions {
            self.positions = positions.clone();
        }
        // An older row's epoch at a later offset would be taken for a log cut back.
        let kept = self
            .leader_epoch
            .filter(|_| news.next_offset == self.next_offset);
        self.leader_epoch = news.leader_epoch.or(kept);
        self.next_offset = news.next_offset;
    }
}

impl Published {
    /// What was never read of a partition that is forgotten stays outside of the claim, and nothing more than that.
    fn keep_edges(&mut self, gone: &PartitionState, policy: &Policy) {
        if let Some(gap) = gone.gap {
            self.close(&gap, None, policy);
        }
        if let (FromRule::Derived, Some(anchor_us)) = (policy.complete_from, gone.anchor_us) {
            let missed_us = missed_until(policy, anchor_us, gone.first_least_us);
            let before_us = match self.complete_from {
                CompleteFrom::From(from_us) => missed_us.min(from_us),
                CompleteFrom::Unbounded => missed_us,
            };
            self.lost_before_us = self.lost_before_us.max(Some(before_us));
        }
    }

    fn close(&mut self, gap: &OpenGap, least_us: Option<i64>, policy: &Policy) {
        let least_us = least_us.filter(|_| gap.in_order);
        let end_us = missed_until(policy, gap.restart_us, least_us);
        match gap.from_us {
            Some(from_us) => self.gaps.add(policy.grid.floor(from_us), end_us),
            None => self.lost_before_us = self.lost_before_us.max(Some(end_us)),
        }
    }
}

/// The first cell edge after every row of a partition that may be missing before a point in its log: none is later than
/// the least row behind that point plus the lateness, nor than the instant when reading began there plus the skew.
pub(super) fn missed_until(policy: &Policy, began_us: i64, least_us: Option<i64>) -> i64 {
    let bounds = &policy.bounds;
    let began = began_us
        .saturating_add(bounds.max_future_skew_us)
        .saturating_add(1);
    // The least is kept rounded down: the true one is less than a second above it.
    let least = least_us.map(|us| {
        us.saturating_add(SECOND_US)
            .saturating_add(bounds.allowed_lateness_us)
    });
    policy.grid.ceil(least.map_or(began, |us| us.min(began)))
}

/// A partition nothing is known of yet.
pub(super) fn unknown(cut_us: Option<i64>) -> PartitionState {
    PartitionState {
        next_offset: 0,
        leader_epoch: None,
        anchor_us: None,
        backfill_before_us: None,
        first_least_us: None,
        window: Window {
            entries: Vec::new(),
            dropped_at_us: cut_us,
        },
        caught_up_us: None,
        heartbeat_us: None,
        resolved_us: None,
        gap: None,
        positions: SourcePositions::default(),
    }
}
