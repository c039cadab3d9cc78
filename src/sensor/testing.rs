//! A table with commits for the tests of the room: one topic, times of 2026-11-30 in minutes of the day.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use uuid::Uuid;

use super::TableRecord;
use crate::{
    api::built_in_policy,
    watermark::{
        Ancestor, Anchor, AskedEnd, AskedPartitions, Asker, Contribution, Digest, Identity, Kept,
        Lineage, Origin, PartitionNews, Policy, Standing, State, advance, contract, stand,
    },
};

const MINUTE_US: i64 = 60_000_000;
const TOPIC: &str = "orders";

/// A minute of the day as µs.
pub(super) fn minute(minute: i64) -> i64 {
    let day: jiff::Timestamp = "2026-11-30T00:00:00Z".parse().unwrap();
    day.as_microsecond() + minute * MINUTE_US
}

/// Cells of an hour, N 3, L 5 min, D 10 min, S 5 min, `Minimum` and `CaughtUp`.
pub(super) fn policy() -> Policy {
    built_in_policy()
}

/// A table that one writer commits to.
pub(super) struct Table {
    pub(super) record: TableRecord,
    policy: Policy,
    state: State,
    next: BTreeMap<i32, i64>,
}

impl Table {
    /// One whose first commit, at 09:00, anchored these partitions.
    pub(super) fn anchored(policy: Policy, partitions: i32) -> Self {
        let identity = Identity {
            writer: "shop.orders".to_owned(),
            cluster_id: "cluster".to_owned(),
            installation: "here".to_owned(),
            table_uuid: Uuid::from_u128(7),
            table_ref: "main".to_owned(),
        };
        let mut table = Table {
            record: TableRecord {
                table: "shop.orders".to_owned(),
                snapshot_id: None,
                table_uuid: Uuid::from_u128(7),
                properties: HashMap::new(),
                lineage: Lineage::default(),
            },
            state: State::new(identity, TOPIC, policy.clone(), minute(540)),
            policy,
            next: BTreeMap::new(),
        };
        table.begin(540, partitions);
        table
    }

    /// The first commit of a writer: anchors.
    pub(super) fn begin(&mut self, now: i64, partitions: i32) {
        let mut first = self.news(now);
        for partition in 0..partitions {
            self.next.insert(partition, 0);
            first.anchors.push(Anchor {
                topic: TOPIC.to_owned(),
                topic_id: None,
                partition,
                offset: 0,
                origin: Origin::New,
                at_us: minute(now),
            });
        }
        self.land(&first);
    }

    /// The commits that follow are this writer's.
    pub(super) fn write_as(&mut self, writer: &str) {
        let view = self.record.view();
        let asker = Asker::new(writer, minute(1_440));
        let state = match stand(&asker, &view).unwrap() {
            Standing::GoesOn(going_on) => going_on.state,
            Standing::Begins(beginning) => {
                let identity = Identity {
                    writer: writer.to_owned(),
                    ..self.state.identity.clone()
                };
                beginning.state(identity, TOPIC, self.policy.clone(), minute(540))
            }
        };
        self.next = state
            .partitions()
            .map(|(_, partition, known)| (partition, known.next_offset))
            .collect();
        self.state = state;
    }

    /// Commits at a minute: rows of partitions at their minutes. Those without rows and named in `caught_up` are proved read to
    /// their ends, and the broker names all partitions.
    pub(super) fn commit(&mut self, now: i64, rows: &[(i32, Vec<i64>)], caught_up: &[i32]) {
        let mut news = self.news(now);
        let mut whole = Digest::default();
        for (partition, minutes) in rows {
            let mut digest = Digest::default();
            let times: Vec<i64> = minutes.iter().map(|at| minute(*at)).collect();
            digest.extend(&times);
            whole.extend(&times);
            news.cells.extend(&times);
            news.rows += times.len() as u64;
            let start_offset = self.next[partition];
            let end_offset = start_offset + i64::try_from(times.len()).unwrap();
            self.next.insert(*partition, end_offset);
            news.partitions.push(PartitionNews {
                topic: TOPIC.to_owned(),
                partition: *partition,
                start_offset,
                end_offset,
                stats: digest.finish().map(|sketch| sketch.stats()),
                ..PartitionNews::default()
            });
        }
        news.event_times = whole.finish();
        for partition in caught_up {
            let end = self.next[partition];
            news.partitions.push(PartitionNews {
                topic: TOPIC.to_owned(),
                partition: *partition,
                start_offset: end,
                end_offset: end,
                asked_end: Some(AskedEnd {
                    at_us: minute(now),
                    high_watermark: end,
                    delivered: end,
                    heartbeat_us: None,
                }),
                ..PartitionNews::default()
            });
        }
        news.asked = Some(AskedPartitions {
            at_us: minute(now),
            topics: [(TOPIC.to_owned(), self.next.keys().copied().collect())].into(),
        });
        self.land(&news);
    }

    /// What has expired: all but the newest commits.
    pub(super) fn expire(&mut self, kept: usize) {
        self.record.lineage.snapshots.truncate(kept);
        self.record.lineage.broken = true;
    }

    pub(super) fn kept(&self) -> Kept {
        Kept::of(&self.record.view(), None).unwrap()
    }

    fn news(&self, now: i64) -> Contribution {
        let commit_id = Uuid::from_u128(self.record.lineage.snapshots.len() as u128 + 1);
        Contribution::empty(
            (commit_id, "worker-0"),
            TOPIC,
            self.policy.grid,
            minute(now),
        )
    }

    fn land(&mut self, news: &Contribution) {
        let next = advance(&self.state, &self.policy, news).unwrap();
        let record = &mut self.record;
        let changes = contract::properties(&next);
        record.properties.extend(changes.set);
        for name in &changes.remove {
            record.properties.remove(name);
        }
        let snapshot_id = i64::try_from(record.lineage.snapshots.len()).unwrap() + 1;
        let ancestor = Ancestor {
            snapshot_id,
            parent_id: Some(snapshot_id - 1),
            summary: Cow::Owned(contract::summary(&next, news).into_iter().collect()),
            picked: None,
        };
        record.lineage.snapshots.insert(0, ancestor);
        record.snapshot_id = Some(snapshot_id);
        self.state = next.state;
    }
}
