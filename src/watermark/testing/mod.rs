//! A table and its writer for the tests of the room: short times as `10:05`, one topic, commits that land.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use super::*;

pub(super) mod pair;

pub(super) const TOPIC: &str = "shop.orders";
pub(super) const WRITER: &str = "shop.orders";

/// An instant of 2026-11-30, `10:05` or `10:05:07.5`.
pub(super) fn at(time: &str) -> i64 {
    let seconds = if time.matches(':').count() == 1 {
        ":00"
    } else {
        ""
    };
    let iso = format!("2026-11-30T{time}{seconds}Z");
    iso.parse::<jiff::Timestamp>().unwrap().as_microsecond()
}

/// Cells of an hour, L 5 min, D 10 min, S 5 min, windows of two commits.
pub(super) fn policy() -> Policy {
    Policy {
        revision: 1,
        grid: Grid::new(3600 * SECOND_US).unwrap(),
        bounds: Bounds {
            allowed_lateness_us: 300 * SECOND_US,
            max_delay_us: 600 * SECOND_US,
            max_future_skew_us: 300 * SECOND_US,
            max_age_us: None,
        },
        window_commits: 2,
        window_duration_us: 0,
        terms: [Term::Minimum, Term::CaughtUp].into(),
        quantile: None,
        heartbeats: Heartbeats::None,
        complete_from: FromRule::Derived,
        late_data: LateData::Notify,
        on_join: OnJoin::Reopen,
    }
}

pub(super) fn complete_from(table: &Table) -> CompleteFrom {
    table.state.published.complete_from
}

pub(super) fn from(time: &str) -> CompleteFrom {
    CompleteFrom::From(at(time))
}

pub(super) fn gap(from: &str, to: &str) -> Vec<(i64, i64)> {
    vec![(at(from), at(to))]
}

pub(super) fn identity() -> Identity {
    Identity {
        writer: WRITER.to_owned(),
        cluster_id: "cluster".to_owned(),
        installation: "here".to_owned(),
        table_uuid: Uuid::from_u128(7),
        table_ref: "main".to_owned(),
    }
}

pub(super) fn news(now: &str) -> Contribution {
    Contribution::empty((Uuid::nil(), "worker-0"), TOPIC, policy().grid, at(now))
}

impl Contribution {
    pub(super) fn anchor(mut self, partition: i32, offset: i64) -> Self {
        self.anchors.push(Anchor {
            topic: TOPIC.to_owned(),
            topic_id: Some(Uuid::from_u128(9)),
            partition,
            offset,
            origin: Origin::New,
            at_us: self.now_us,
        });
        self
    }

    /// The anchor named last is that of a partition which left at this offset.
    pub(super) fn back(mut self, from: i64) -> Self {
        self.anchors.last_mut().unwrap().origin = Origin::Back { from };
        self
    }

    /// All of it under another topic.
    pub(super) fn of(mut self, topic: &str) -> Self {
        let anchors = self.anchors.iter_mut().map(|anchor| &mut anchor.topic);
        let jumps = self.jumps.iter_mut().map(|jump| &mut jump.topic);
        let partitions = self.partitions.iter_mut().map(|own| &mut own.topic);
        let all = anchors.chain(jumps).chain(partitions);
        all.for_each(|named| topic.clone_into(named));
        self
    }

    pub(super) fn reading(mut self, subscription: &str) -> Self {
        subscription.clone_into(&mut self.subscription);
        self
    }

    pub(super) fn retire(mut self, topic: &str) -> Self {
        self.retired.push(topic.to_owned());
        self
    }

    /// The answer names this topic, too.
    pub(super) fn and_asked(mut self, topic: &str, partitions: i32) -> Self {
        let asked = self.asked.as_mut().unwrap();
        asked
            .topics
            .insert(topic.to_owned(), (0..partitions).collect());
        self
    }

    pub(super) fn jump(mut self, partition: i32, from: i64, offset: i64, kind: JumpKind) -> Self {
        self.jumps.push(Jump {
            topic: TOPIC.to_owned(),
            partition,
            kind,
            from,
            before: None,
            offset,
            at_us: self.now_us,
        });
        self
    }

    /// Rows of a partition from an offset on, a row an event time.
    pub(super) fn rows(mut self, partition: i32, start_offset: i64, times: &[&str]) -> Self {
        let mut digest = Digest::default();
        for time in times {
            digest.push(at(time));
            self.cells.count(at(time));
        }
        let sketch = digest.finish();
        self.rows += times.len() as u64;
        self.event_times = Sketch::merge(self.event_times.iter().chain(&sketch));
        self.partitions.push(PartitionNews {
            topic: TOPIC.to_owned(),
            partition,
            start_offset,
            end_offset: start_offset + i64::try_from(times.len()).unwrap(),
            stats: sketch.as_ref().map(Sketch::stats),
            ..PartitionNews::default()
        });
        self
    }

    /// The newest answer about the end of the partition named last.
    pub(super) fn end(mut self, asked: &str, high_watermark: i64) -> Self {
        let own = self.partitions.last_mut().unwrap();
        own.asked_end = Some(AskedEnd {
            at_us: at(asked),
            heartbeat_us: None,
            high_watermark,
            delivered: own.start_offset,
        });
        self
    }

    /// The newest heartbeat that was read before that answer was asked for.
    pub(super) fn heartbeat(mut self, time: &str) -> Self {
        let own = self.partitions.last_mut().unwrap();
        own.asked_end.as_mut().unwrap().heartbeat_us = Some(at(time));
        self
    }

    /// A record behind the rows of the partition named last: the source's promise.
    pub(super) fn resolved(mut self, time: &str) -> Self {
        let own = self.partitions.last_mut().unwrap();
        own.end_offset += 1;
        own.resolved_us = Some(at(time));
        self
    }

    pub(super) fn asked(mut self, asked: &str, partitions: i32) -> Self {
        self.asked = Some(AskedPartitions {
            at_us: at(asked),
            topics: BTreeMap::from([(TOPIC.to_owned(), (0..partitions).collect::<BTreeSet<_>>())]),
        });
        self
    }
}

/// A table that one writer commits to.
pub(super) struct Table {
    pub(super) state: State,
    pub(super) policy: Policy,
    pub(super) properties: HashMap<String, String>,
    pub(super) lineage: Lineage<'static>,
    /// Commits so far, also those that are no longer there.
    pub(super) commits: u128,
}

impl Table {
    pub(super) fn new(policy: Policy) -> Self {
        Table {
            state: State::new(identity(), TOPIC, policy.clone(), at("00:00")),
            policy,
            properties: HashMap::new(),
            lineage: Lineage::default(),
            commits: 0,
        }
    }

    /// A table whose first commit anchored these partitions at offset 0.
    pub(super) fn anchored(now: &str, partitions: i32) -> Self {
        let mut table = Table::new(policy());
        let first = (0..partitions).fold(news(now), |news, partition| news.anchor(partition, 0));
        table.commit(first);
        table
    }

    /// Two partitions that flow until 10:40, by two workers: five commits, and the claim is 10:00.
    pub(super) fn flowing() -> Self {
        let mut table = Table::anchored("09:00", 2);
        let first = news("10:20").rows(0, 0, &["10:10", "10:15"]);
        table.commit(first.asked("10:19", 2));
        table.commit(news("10:21").rows(1, 0, &["10:12", "10:16"]));
        let second = news("10:40").rows(0, 2, &["10:30", "10:39"]);
        table.commit(second.end("10:40", 4).asked("10:39", 2));
        table.commit(news("10:41").rows(1, 2, &["10:33", "10:36"]));
        table
    }

    pub(super) fn commit(&mut self, news: Contribution) -> Advanced {
        self.try_commit(news).unwrap()
    }

    pub(super) fn try_commit(&mut self, mut news: Contribution) -> Result<Advanced, Misfit> {
        let number = self.commits + 1;
        news.commit_id = Uuid::from_u128(number);
        news.derived_from = news.derived_from.or(Some(self.state.commit_id));
        let next = advance(&self.state, &self.policy, &news)?;
        let changes = contract::properties(&next);
        self.properties.extend(changes.set);
        changes.remove.iter().for_each(|name| {
            self.properties.remove(name);
        });
        self.commits = number;
        let newest = self.lineage.snapshots.first();
        let summary = contract::summary(&next, &news).into_iter().collect();
        let ancestor = Ancestor {
            snapshot_id: i64::try_from(number).unwrap(),
            parent_id: newest.map(|newest| newest.snapshot_id),
            summary: Cow::Owned(summary),
            picked: None,
        };
        self.lineage.snapshots.insert(0, ancestor);
        self.state = next.state.clone();
        Ok(next)
    }

    /// The table is rolled back by so many snapshots, as `rollback_to_snapshot` does it: the properties stay.
    pub(super) fn roll_back(&mut self, snapshots: usize) {
        self.lineage.snapshots.drain(..snapshots);
    }

    /// A snapshot of somebody else's, or one that was cherry-picked.
    pub(super) fn foreign(&mut self, picked: Option<Picked>) -> i64 {
        let snapshot_id = 1_000 + i64::try_from(self.lineage.snapshots.len()).unwrap();
        let operation = ("operation".to_owned(), "replace".to_owned());
        let ancestor = Ancestor {
            snapshot_id,
            parent_id: None,
            summary: Cow::Owned(HashMap::from([operation])),
            picked,
        };
        self.lineage.snapshots.insert(0, ancestor);
        snapshot_id
    }

    pub(super) fn view(&self) -> TableView<'_> {
        TableView {
            table_uuid: Uuid::from_u128(7),
            table_ref: "main",
            properties: &self.properties,
            lineage: &self.lineage,
        }
    }

    pub(super) fn claim(&self) -> Option<String> {
        self.state.published.finalized_before_us.map(contract::iso)
    }
}
