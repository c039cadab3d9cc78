//! How long `tidemark tune` takes on the largest table that it may meet.
//!
//! `cargo bench --bench tune -- [--partitions 1000] [--commits 300]`. A table of one writer is made with the core's own functions: so many
//! snapshots, as many as are kept, with rows in every partition. Then what the command does with it is timed: the summaries are read, and
//! every setting is tried.

#[expect(dead_code, reason = "each bench uses a part of it")]
mod support;

use std::borrow::Cow;

use support::{Arguments, cpu, cpu::thread_ns, say};
use tidemark::{
    api::built_in_policy,
    sensor::tune::tune,
    watermark::{
        Ancestor, Anchor, AskedPartitions, Contribution, Identity, Kept, Lineage, Origin,
        PartitionNews, PartitionStats, State, TableView, advance, contract,
    },
};
use uuid::Uuid;

const TOPIC: &str = "orders";
const MINUTE_US: i64 = 60_000_000;
const BEGIN_US: i64 = 1_796_029_200_000_000;

fn main() {
    let arguments = Arguments::read();
    let partitions: i32 = arguments.number("partitions", 1_000);
    let commits: i64 = arguments.number("commits", 300);
    let lineage = lineage(partitions, commits);
    let properties = std::collections::HashMap::new();
    let view = TableView {
        table_uuid: Uuid::from_u128(7),
        table_ref: "main",
        properties: &properties,
        lineage: &lineage,
    };
    let begun = thread_ns();
    let kept = Kept::of(&view, None);
    let read = thread_ns() - begun;
    let tuning = tune("shop.orders", kept.as_ref()).expect("enough on record");
    let all = thread_ns() - begun;
    say(format!(
        "{partitions} partitions, {} snapshots, {} cells, {}: {} ms of CPU, of which reading the summaries {}",
        lineage.snapshots.len(),
        tuning.cells.len(),
        cpu::machine(),
        all / 1_000_000,
        read / 1_000_000,
    ));
}

/// The snapshots of a table, newest first: a commit a minute, with rows of the minutes before it in every partition.
fn lineage(partitions: i32, commits: i64) -> Lineage<'static> {
    let policy = built_in_policy();
    let identity = Identity {
        writer: "shop.orders".to_owned(),
        cluster_id: "cluster".to_owned(),
        installation: String::new(),
        table_uuid: Uuid::from_u128(7),
        table_ref: "main".to_owned(),
    };
    let mut state = State::new(identity, TOPIC, policy.clone(), BEGIN_US);
    let mut lineage = Lineage::default();
    for number in 0..commits {
        let news = news(&state, partitions, number);
        let next = advance(&state, &policy, &news).expect("news that fit");
        let ancestor = Ancestor {
            snapshot_id: number + 1,
            parent_id: Some(number),
            summary: Cow::Owned(contract::summary(&next, &news).into_iter().collect()),
            picked: None,
        };
        lineage.snapshots.insert(0, ancestor);
        state = next.state;
    }
    lineage
}

fn news(state: &State, partitions: i32, number: i64) -> Contribution {
    let now_us = BEGIN_US + number * MINUTE_US;
    let anchor = |partition: i32| Anchor {
        topic: TOPIC.to_owned(),
        topic_id: None,
        partition,
        offset: 0,
        origin: Origin::New,
        at_us: now_us,
    };
    let rows = |partition: i32| {
        let next = state.partition(TOPIC, partition)?.next_offset;
        let odd = |salt: i64| (i64::from(partition) * 7_919 + number * 131 + salt) % 200;
        let least_us = now_us - 4 * MINUTE_US + odd(1) * 1_000_000 / 4;
        let rung = |place: i64| least_us + place * 5_000_000 + odd(place) * 10_000;
        Some(PartitionNews {
            topic: TOPIC.to_owned(),
            partition,
            start_offset: next,
            end_offset: next + 100 + odd(2),
            stats: Some(PartitionStats {
                rows: 100,
                least_us,
                ladder_us: [rung(1), rung(2), rung(3)],
                greatest_us: rung(9),
            }),
            ..PartitionNews::default()
        })
    };
    Contribution {
        anchors: (0..partitions)
            .filter(|_| number == 0)
            .map(anchor)
            .collect(),
        partitions: (0..partitions).filter_map(rows).collect(),
        asked: Some(AskedPartitions {
            at_us: now_us,
            topics: [(TOPIC.to_owned(), (0..partitions).collect())].into(),
        }),
        rows: 100 * u64::from(partitions.unsigned_abs()),
        ..Contribution::empty(
            (
                Uuid::from_u128(u128::from(number.unsigned_abs()) + 1),
                "worker-0",
            ),
            TOPIC,
            built_in_policy().grid,
            now_us,
        )
    }
}
