//! What a worker wants on the table, and what it comes to on a base.
//!
//! In: a sealed batch, the cluster's answers, the state of the base that an attempt was loaded with. Out: whether the errand may
//! go onto that base, and what it brings to the claim. No I/O; each attempt asks anew.
//!
//! What was answered is bound to what was asked: an end without its partition's news proves nothing.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::fence::{self, Lost, Verdict};
use super::ingest::{SealedBatch, ranges};
use super::question::Answer;
use crate::kafka::TopicPartition;
use crate::watermark::{
    Anchor, AskedPartitions, Before, CellCounts, Contribution, Excluded, Jump, Opening, Order,
    PartitionNews, Policy, State, should_commit_empty,
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
    /// The first commit or the roll-back that it takes up, as a session found it.
    pub opening: Option<Opening>,
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

    /// Whether it was made for a table that stands so. A first commit or a roll-back is taken up by a session that found just that: rows
    /// were read in another history, and what was found of another one leaves out what this one needs.
    pub(crate) fn is_for(&self, opening: Option<Opening>) -> bool {
        opening.is_none() || self.opening == opening
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
        match fence::judge(&ranges(&self.news), stands, lost_answer) {
            Verdict::Go => self.judge_logs(state),
            verdict => verdict,
        }
    }

    /// Whether the batch follows what the table has: another worker may have gone back in a log that was cut, or on in a topic that was
    /// made anew, and stand at the very offset.
    fn judge_logs(&self, state: &State) -> Verdict {
        let strange = self.batches().filter(|news| {
            let there = Before::of(state, &news.topic, news.partition);
            news.before
                .zip(there)
                .is_some_and(|(before, there)| !before.fits(&there))
        });
        let lost: Vec<Lost> = strange
            .map(|news| Lost {
                at: TopicPartition::new(news.topic.as_str(), news.partition),
                start: news.start_offset,
                next: Some(news.start_offset),
            })
            .collect();
        if lost.is_empty() {
            Verdict::Go
        } else {
            Verdict::Fenced(lost)
        }
    }

    fn batches(&self) -> impl Iterator<Item = &PartitionNews> {
        let moved = |news: &&PartitionNews| news.end_offset > news.start_offset;
        self.news.iter().filter(moved)
    }

    /// The ids of the topics that its rows were read from, where they are known.
    pub(crate) fn read_from(&self) -> BTreeMap<String, Uuid> {
        let batches = self.batches();
        let known = batches.filter_map(|news| Some((news.topic.clone(), news.before?.topic_id?)));
        known.collect()
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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::kafka::Position;
    use crate::sink::testing::policy;
    use crate::sink::tracks::Tracks;
    use crate::watermark::{
        Identity, OpenGap, PartitionState, SourcePositions, TopicState, Window,
    };

    fn at() -> TopicPartition {
        TopicPartition::new("shop.t0", 0)
    }

    /// A table that goes on at an offset of the partition, behind a record of this epoch.
    fn table(topic_id: u128, next_offset: i64, leader_epoch: Option<i32>) -> State {
        let identity = Identity {
            writer: "shop.orders".to_owned(),
            cluster_id: "cluster".to_owned(),
            installation: "here".to_owned(),
            table_uuid: Uuid::from_u128(7),
            table_ref: "main".to_owned(),
        };
        let mut state = State::new(identity, "shop.t0", policy(1, 1), 0);
        let known = PartitionState {
            next_offset,
            leader_epoch,
            anchor_us: None,
            backfill_before_us: None,
            first_least_us: None,
            window: Window::default(),
            caught_up_us: None,
            heartbeat_us: None,
            resolved_us: None,
            gap: None,
            positions: SourcePositions::default(),
        };
        let topic = TopicState {
            id: Some(Uuid::from_u128(topic_id)),
            partitions: [(0, known)].into(),
        };
        state.topics.insert("shop.t0".to_owned(), topic);
        state
    }

    /// Reads on from a table up to an offset, record by record, all of one epoch.
    fn read(state: &State, tracks: &mut Tracks, end: i64, leader_epoch: i32) -> Errand {
        let known = state.partition("shop.t0", 0).unwrap();
        let position = Position {
            next_offset: known.next_offset,
            leader_epoch: known.leader_epoch,
        };
        if tracks.delivered().is_empty() {
            tracks.begin(0, &at(), position, state);
        }
        for offset in tracks.delivered()[0].1..end {
            tracks.take(0, offset, Some(leader_epoch));
        }
        let news = tracks.news(|_| (None, None));
        tracks.advance_starts(&news);
        Errand {
            news,
            ..Errand::default()
        }
    }

    fn strange(start: i64) -> Verdict {
        Verdict::Fenced(vec![Lost {
            at: at(),
            start,
            next: Some(start),
        }])
    }

    /// A worker stood still with 80..100. Meanwhile the log was cut at 70, and another one went back there and read on to 80.
    #[test]
    fn a_batch_of_a_log_that_was_cut_is_fenced_where_another_worker_stands_at_its_very_offset() {
        let (before, now) = (table(9, 70, Some(5)), |epoch| table(9, 80, epoch));
        let mut tracks = Tracks::default();
        let first = read(&before, &mut tracks, 80, 5);
        assert_eq!(first.judge(&before, false), Verdict::Go);
        let held = read(&before, &mut tracks, 100, 5);
        assert_eq!(held.judge(&now(Some(5)), false), Verdict::Go);
        assert_eq!(held.judge(&now(Some(6)), false), strange(80));
        assert_eq!(
            held.judge(&now(None), false),
            Verdict::Go,
            "behind a marker, no record tells"
        );
        let mut back = now(None);
        let topic = back.topics.get_mut("shop.t0").unwrap();
        topic.partitions.get_mut(&0).unwrap().gap = Some(OpenGap {
            from_us: None,
            restart_us: 1,
            in_order: false,
        });
        assert_eq!(
            held.judge(&back, false),
            strange(80),
            "another worker went back to this very offset"
        );
        let mut behind = Tracks::default();
        let own = read(&back, &mut behind, 90, 6);
        assert_eq!(own.judge(&back, false), Verdict::Go);
    }

    /// One that anchors a topic which has joined became the first commit of a table that began anew meanwhile: without the other
    /// topics, which were then read again from their first records.
    #[test]
    fn an_opening_counts_on_what_it_was_derived_from_alone() {
        let opening = |on: u128, behind: u128| Opening {
            on: Uuid::from_u128(on),
            behind: Uuid::from_u128(behind),
        };
        let goes_on = Errand::default();
        let begins = Errand {
            opening: Some(opening(0, 5)),
            ..Errand::default()
        };
        assert!(goes_on.is_for(None) && !goes_on.is_for(Some(opening(0, 5))));
        assert!(begins.is_for(Some(opening(0, 5))));
        assert!(begins.is_for(None), "another worker has opened it");
        for other in [opening(0, 6), opening(4, 5)] {
            assert!(!begins.is_for(Some(other)), "{other:?}");
        }
    }

    /// Rows of the topic that was there before went onto the table as those of the new one, which were left out in their place.
    #[test]
    fn a_batch_of_a_topic_that_was_made_anew_is_fenced_at_offset_0_as_well() {
        let before = table(9, 0, None);
        let held = read(&before, &mut Tracks::default(), 2, 0);
        assert_eq!(held.judge(&before, false), Verdict::Go);
        assert_eq!(held.judge(&table(10, 0, None), false), strange(0));
        let topic = [("shop.t0".to_owned(), Uuid::from_u128(9))];
        assert_eq!(held.read_from(), topic.into(), "whatever the table has now");
    }
}
