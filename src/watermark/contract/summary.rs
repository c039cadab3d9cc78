//! What a commit says in its snapshot's summary, and what it leaves out where that would be too much.
//!
//! Every snapshot that is kept carries its summary in the table's metadata, which is read and written with each commit. What goes
//! first is what the least depends on; what is left in the end is what the state is rebuilt from.
//!
//! A shortened list covers no less than a whole one: gaps and amended cells become one stretch over all of them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::lists::{
    amended_text, asked_beside_offsets, asked_text, gaps_text, late_text, offsets_text,
    reopened_text, retracted_text, writers_text,
};
use super::settings::{complete_from_text, evidence_text, policy_text};
use super::{
    AMENDED, BEGINS, COMMIT_ID, COMMITTED_AT, COMPLETE_FROM, EPOCH, EVENT_TIME_DIGEST,
    EVENT_TIME_MAX, EVENT_TIME_MIN, EVENT_TIME_P50, EVENT_TIME_P99, EVIDENCE, EXCLUDED_BACKFILL,
    EXCLUDED_FUTURE, EXCLUDED_MISSING, EXCLUDED_PAST, EXCLUDED_SNAPSHOT, EXCLUDED_UNDECODABLE,
    FINALIZED_BEFORE, GAPS, INSTALLATION, LATE, MAX_SUMMARY, OFFSETS, PARTITIONS, PARTITIONS_ASKED,
    POLICY, POLICY_REVISION, RECORDS, REF, REOPENED, REPLAYED, RETRACTED, SOURCE_POSITIONS,
    TABLE_UUID, WORKER, WRITER, WRITER_FINALIZED_BEFORE, WRITER_PUBLISHED, WRITERS, iso,
};
use crate::watermark::advance::{Advanced, Contribution};
use crate::watermark::amended::Amended;
use crate::watermark::cells::LateCells;
use crate::watermark::codec::Detail;
use crate::watermark::order::Retracted;
use crate::watermark::state::{Published, State};

type Summary = BTreeMap<String, String>;

/// What is shortened or left out where a summary would be too long, in this order: source positions (forgotten means "not a replay"),
/// ladders, the digest, late rows by cell, the reasons of retractions, the cells that were amended, the ends of open gaps; then offsets are
/// packed, and what rows have shown is left out, and the ids of most topics.
const SHORTER: [fn(&mut Summary, &Advanced); 10] = [
    |summary, _| drop(summary.remove(SOURCE_POSITIONS)),
    |summary, advanced| {
        put(
            summary,
            PARTITIONS,
            Some(partitions(advanced, Detail::NoLadder)),
        );
    },
    |summary, _| drop(summary.remove(EVENT_TIME_DIGEST)),
    late_in_one,
    without_reasons,
    amended_in_one,
    gaps_in_one,
    |summary, advanced| pack_offsets(summary, advanced, true),
    |summary, advanced| {
        put(
            summary,
            PARTITIONS,
            Some(partitions(advanced, Detail::Bare)),
        );
    },
    |summary, advanced| pack_offsets(summary, advanced, false),
];

/// The summary of a commit. [`MAX_SUMMARY`] bytes at most, but for what it cannot do without: names, ids, offsets and statistics of very
/// many topics.
#[must_use]
pub fn summary(advanced: &Advanced, news: &Contribution) -> Summary {
    let mut summary = summary_of_state(advanced, &news.worker);
    summary.extend(summary_of_rows(advanced, news));
    put(
        &mut summary,
        PARTITIONS,
        Some(partitions(advanced, Detail::Full)),
    );
    put(
        &mut summary,
        SOURCE_POSITIONS,
        advanced.record.encode_positions(),
    );
    for shorten in SHORTER {
        if size(&summary) <= MAX_SUMMARY {
            break;
        }
        shorten(&mut summary, advanced);
    }
    summary
}

/// Bytes of a summary, names included.
fn size(summary: &Summary) -> usize {
    let all = summary.iter();
    all.map(|(name, value)| name.len() + value.len()).sum()
}

fn put(summary: &mut Summary, name: &str, value: Option<String>) {
    match value {
        Some(value) => summary.insert(name.to_owned(), value),
        None => summary.remove(name),
    };
}

fn partitions(advanced: &Advanced, detail: Detail) -> String {
    advanced.record.encode_partitions(detail)
}

/// Offsets packed, and the partitions asked for as far as they are others. `ids`: with all of them.
fn pack_offsets(summary: &mut Summary, advanced: &Advanced, ids: bool) {
    let state = &advanced.state;
    put(summary, OFFSETS, Some(state.encode_offsets(ids)));
    let asked = state.asked.as_ref();
    let asked = asked.map(|asked| asked_beside_offsets(asked, state));
    put(summary, PARTITIONS_ASKED, asked);
}

fn late_in_one(summary: &mut Summary, advanced: &Advanced) {
    let late = &advanced.late;
    let lowest = late.cells.first().map(|cell| cell.from_us);
    let rest = late.overflow.map(|(from_us, _)| from_us);
    let lowest = lowest.into_iter().chain(rest).min();
    let one = LateCells {
        cells: Vec::new(),
        overflow: lowest.map(|from_us| (from_us, late.rows())),
    };
    put(summary, LATE, late_text(advanced.state.policy.grid, &one));
}

fn without_reasons(summary: &mut Summary, advanced: &Advanced) {
    let claimed = unexplained(&advanced.claim.retracted);
    put(summary, RETRACTED, retracted_text(&claimed));
    let published = &advanced.state.published;
    shorten_own(
        summary,
        &Published {
            retracted: unexplained(&published.retracted),
            ..published.clone()
        },
    );
}

fn amended_in_one(summary: &mut Summary, advanced: &Advanced) {
    let one = |amended: &Amended| amended.in_one();
    put(
        summary,
        AMENDED,
        amended_text(&one(&advanced.claim.amended)),
    );
    let published = &advanced.state.published;
    shorten_own(
        summary,
        &Published {
            retracted: unexplained(&published.retracted),
            amended: one(&published.amended),
            ..published.clone()
        },
    );
}

fn gaps_in_one(summary: &mut Summary, advanced: &Advanced) {
    let mut state = State {
        topics: BTreeMap::new(),
        ..advanced.state.clone()
    };
    // As far as they can reach: the union is the one that readers are told.
    state.published.gaps = advanced.state.gaps();
    state.published.lost_before_us = advanced.state.lost_before_us();
    put(summary, GAPS, gaps_text(&state));
}

/// Where the other names have the claim of the table.
fn shorten_own(summary: &mut Summary, published: &Published) {
    if let Some(own) = summary.get_mut(WRITER_PUBLISHED) {
        *own = published.encode();
    }
}

fn unexplained(retracted: &[Retracted]) -> Vec<Retracted> {
    let mut all = retracted.to_vec();
    for one in &mut all {
        one.reason.clear();
    }
    all
}

fn summary_of_state(advanced: &Advanced, worker: &str) -> BTreeMap<String, String> {
    let (state, claim, record) = (&advanced.state, &advanced.claim, &advanced.record);
    let own = !state.peers.is_empty() || state.published.drained;
    let values = [
        (COMMIT_ID, Some(record.commit_id.to_string())),
        (WRITER, Some(state.identity.writer.clone())),
        (WORKER, Some(worker.to_owned())),
        (INSTALLATION, Some(state.identity.installation.clone())),
        (TABLE_UUID, Some(state.identity.table_uuid.to_string())),
        (REF, Some(state.identity.table_ref.clone())),
        (EPOCH, Some(claim.epoch.to_string())),
        (POLICY_REVISION, Some(state.policy.revision.to_string())),
        (POLICY, Some(policy_text(&state.policy))),
        (COMMITTED_AT, Some(iso(record.committed_at_us))),
        (PARTITIONS_ASKED, state.asked.as_ref().map(asked_text)),
        (OFFSETS, Some(offsets_text(state))),
        (FINALIZED_BEFORE, claim.finalized_before_us.map(iso)),
        (COMPLETE_FROM, Some(complete_from_text(claim.complete_from))),
        (
            EVIDENCE,
            claim
                .finalized_before_us
                .map(|_| evidence_text(&claim.evidence)),
        ),
        (GAPS, gaps_text(state)),
        (BEGINS, record.begins.then(|| true.to_string())),
        (REOPENED, claim.reopened.map(reopened_text)),
        (AMENDED, amended_text(&claim.amended)),
        (RETRACTED, retracted_text(&claim.retracted)),
        (WRITERS, writers_text(state)),
        (WRITER_PUBLISHED, own.then(|| state.published.encode())),
        (
            WRITER_FINALIZED_BEFORE,
            state.published.finalized_before_us.filter(|_| own).map(iso),
        ),
    ];
    let present = values
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    present.collect()
}

fn summary_of_rows(advanced: &Advanced, news: &Contribution) -> BTreeMap<String, String> {
    let times = news.event_times.as_ref();
    let some = |rows: u64| (rows > 0).then(|| rows.to_string());
    let values = [
        (RECORDS, Some(news.rows.to_string())),
        (EVENT_TIME_MIN, times.map(|times| iso(times.least_us()))),
        (EVENT_TIME_MAX, times.map(|times| iso(times.greatest_us()))),
        (EVENT_TIME_P50, times.map(|times| iso(times.quantile(0.5)))),
        (EVENT_TIME_P99, times.map(|times| iso(times.quantile(0.99)))),
        (
            EVENT_TIME_DIGEST,
            times.map(|times| STANDARD.encode(times.encode())),
        ),
        (LATE, late_text(advanced.state.policy.grid, &advanced.late)),
        (REPLAYED, some(news.excluded.replayed)),
        (EXCLUDED_FUTURE, some(news.excluded.future)),
        (EXCLUDED_PAST, some(news.excluded.past)),
        (EXCLUDED_MISSING, some(news.excluded.missing)),
        (EXCLUDED_SNAPSHOT, some(news.excluded.snapshot)),
        (EXCLUDED_BACKFILL, some(news.excluded.backfill)),
        (EXCLUDED_UNDECODABLE, some(news.excluded.undecodable)),
    ];
    let present = values
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    present.collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::{read_summary, state_property};
    use super::*;
    use crate::watermark::advance::JumpKind;
    use crate::watermark::amended::LateData;
    use crate::watermark::frontier::{FromRule, PartitionStats, Policy, Term};
    use crate::watermark::grid::Grid;
    use crate::watermark::order::{MAX_REASON, MAX_RETRACTED, Order, Retraction};
    use crate::watermark::replay::stand;
    use crate::watermark::source_position::SourcePositions;
    use crate::watermark::standing::{Accepted, Asker, Obstacle, Standing};
    use crate::watermark::testing::{Table, WRITER as WRITER_NAME, at, news, policy};
    use crate::watermark::{CellCounts, SECOND_US};

    /// A pipeline with so many topics of so many partitions, anchored at offsets of this length.
    #[derive(Clone, Copy)]
    struct Size {
        topics: usize,
        partitions: i32,
        offset: i64,
    }

    impl Size {
        fn topic(topic: usize) -> String {
            format!("shop.tenant-{topic:04}.orders")
        }

        fn all(self) -> impl Iterator<Item = (String, i32)> {
            (0..self.topics).flat_map(move |topic| {
                (0..self.partitions).map(move |partition| (Size::topic(topic), partition))
            })
        }

        fn offset(self, partition: i32) -> i64 {
            self.offset + i64::from(partition) * 7_919
        }

        /// All of them read to their ends at 11:30.
        fn table(self) -> Table {
            let mut table = Table::new(Policy {
                grid: Grid::new(60 * SECOND_US).unwrap(),
                late_data: LateData::Reopen,
                complete_from: FromRule::Unbounded,
                terms: [Term::CaughtUp].into(),
                ..policy()
            });
            let mut first = news("09:00");
            let mut asked = news("11:30").asked("11:30", 0).asked.unwrap();
            asked.topics.clear();
            for (topic, partition) in self.all() {
                let own = news("09:00").anchor(partition, self.offset(partition));
                let mut own = own.of(&topic);
                let seed = topic.bytes().fold(9_u64, |sum, byte| {
                    sum.wrapping_mul(31).wrapping_add(u64::from(byte))
                });
                let id = fastrand::Rng::with_seed(seed).u128(..);
                own.anchors[0].topic_id = Some(Uuid::from_u128(id));
                first.anchors.append(&mut own.anchors);
                asked.topics.entry(topic).or_default().insert(partition);
            }
            first.asked = Some(asked);
            table.commit(first);
            let mut proof = news("11:30");
            for (topic, partition) in self.all() {
                let own = self.offset(partition);
                let end = news("11:30").rows(partition, own, &[]).end("11:30", own);
                proof.partitions.extend(end.of(&topic).partitions);
            }
            table.commit(proof);
            assert!(table.claim().is_some());
            table
        }

        /// A gap opens in each.
        fn lose(self, table: &mut Table) {
            let mut lost = news("11:40");
            for (topic, partition) in self.all() {
                let own = self.offset(partition);
                let jump = news("11:40").jump(partition, own, own + 50, JumpKind::Forward);
                lost.jumps.extend(jump.of(&topic).jumps);
            }
            table.commit(lost);
        }

        /// Rows in each, late ones among them, with numbers that nothing compresses by luck.
        fn rows(self, table: &Table) -> Contribution {
            let mut rows = news("11:45");
            rows.cells = CellCounts::new(table.policy.grid, None);
            for (topic, partition) in self.all() {
                let known = table.state.partition(&topic, partition).unwrap();
                let odd = |salt: i64| {
                    let number =
                        i64::from(partition) * 245_489 + topic.bytes().map(i64::from).sum::<i64>();
                    (number + salt * 104_729) % 3_000
                };
                let mut own = news("11:45").rows(partition, known.next_offset, &["11:44"]);
                let mut times = [1, 2, 3, 4, 5].map(|salt| at("10:30") + odd(salt) * SECOND_US);
                times.sort_unstable();
                rows.cells.extend(&times);
                let news = &mut own.partitions[0];
                news.stats = Some(PartitionStats {
                    rows: odd(7).cast_unsigned() + 1,
                    least_us: times[0],
                    ladder_us: [times[1], times[2], times[3]],
                    greatest_us: times[4],
                });
                news.end_offset = news.start_offset + odd(6) + 1;
                news.leader_epoch = Some(12);
                let mut positions = SourcePositions::default();
                positions.judge("shop/1", odd(8) * 1_000_003, Some(times[4]));
                news.positions = Some(positions);
                rows.partitions.extend(own.of(&topic).partitions);
            }
            rows.event_times = news("11:45")
                .rows(0, 0, &["10:00", "11:00", "11:10"])
                .event_times;
            rows
        }
    }

    /// As long as a table's lists get: retractions with long reasons, and gaps far apart.
    fn fill(table: &mut Table) {
        for turn in 0..MAX_RETRACTED {
            let (from, before) = (at("09:00"), at("09:05"));
            let reason = "\"".repeat(MAX_REASON);
            let mut order = news(&format!("11:3{turn}"));
            order.order = Some(Order::Retract(
                Retraction::new(from, before, &reason).unwrap(),
            ));
            table.commit(order);
        }
        for stretch in 0..64 {
            let from_us = at("01:00") + stretch * 300 * SECOND_US;
            let published = &mut table.state.published;
            published.gaps.add(from_us, from_us + 60 * SECOND_US);
        }
    }

    /// The worst summary of such a pipeline.
    fn measured(topics: usize, partitions: i32, offset: i64, gaps: bool) -> (usize, Summary) {
        let size_of = Size {
            topics,
            partitions,
            offset,
        };
        let mut table = size_of.table();
        fill(&mut table);
        if gaps {
            size_of.lose(&mut table);
        }
        let rows = size_of.rows(&table);
        let next = table.commit(rows);
        assert!(next.late.rows() > 0 && !next.claim.amended.is_empty());
        let summary: Summary = table.lineage.snapshots[0]
            .summary
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let read = read_summary(&table.lineage.snapshots[0].summary);
        let read = read.unwrap().unwrap();
        assert_eq!(read.offsets.next.len(), table.state.partitions().count());
        let told = read.own_claim().gaps;
        for (from_us, to_us) in table.state.gaps().stretches() {
            assert_eq!(
                told.within(*from_us, *to_us)
                    .map(|(from, to)| from <= *from_us && to >= *to_us),
                Some(true),
                "no gap gets narrower"
            );
        }
        (size(&summary), summary)
    }

    /// What is kept in full, and what is shortened: measured on rows in every partition, with every list full.
    #[test]
    fn a_summary_stays_small_and_what_it_cannot_do_without_is_measured() {
        for (topics, partitions, offset) in [
            (1, 600, 1_000_000_007),
            (1, 1_000, 1_000_000_000_007),
            (100, 10, 1_000_000_007),
            (1_000, 1, 1_000_000_007),
        ] {
            let (bytes, _) = measured(topics, partitions, offset, true);
            eprintln!("{topics} x {partitions}: {bytes} bytes");
            assert!(bytes <= MAX_SUMMARY, "{topics} x {partitions}: {bytes}");
        }
    }

    /// Without its id a topic made anew would be taken for the one before.
    #[test]
    fn ids_without_room_come_from_other_summaries_or_nobody_goes_on() {
        let size_of = Size {
            topics: 1_000,
            partitions: 1,
            offset: 1_000_000_007,
        };
        let mut table = size_of.table();
        fill(&mut table);
        let rows = size_of.rows(&table);
        table.commit(rows);
        let newest = read_summary(&table.lineage.snapshots[0].summary);
        assert!(!newest.unwrap().unwrap().offsets.ids_left_out.is_empty());
        table.properties.remove(&state_property(WRITER_NAME));
        let asker = Asker::new(WRITER_NAME, at("12:00"));
        let ids = |state: &State| -> BTreeMap<String, Option<Uuid>> {
            let topics = state.topics.iter();
            topics
                .map(|(name, known)| (name.clone(), known.id))
                .collect()
        };
        match stand(&asker, &table.view()) {
            Ok(Standing::GoesOn(rebuilt)) => assert_eq!(ids(&rebuilt.state), ids(&table.state)),
            other => panic!("{other:?}"),
        }
        table.lineage.snapshots.truncate(1);
        table.lineage.broken = true;
        let alone = stand(&asker, &table.view());
        assert!(matches!(alone, Err(Obstacle::Damaged { .. })), "{alone:?}");
        let accept = Accepted {
            snapshot_id: Some(table.lineage.snapshots[0].snapshot_id),
            table_uuid: None,
        };
        let agreed = stand(&Asker { accept, ..asker }, &table.view());
        assert!(matches!(agreed, Ok(Standing::Begins(_))), "{agreed:?}");
    }

    /// Else a rebuild would let a reader count on cells that are withheld, or take a stretch for complete.
    #[test]
    fn shortened_lists_cover_no_less() {
        let (_, summary) = measured(1, 1_000, 1_000_000_007, true);
        let summary = summary.into_iter().collect();
        let read = read_summary(&summary).unwrap().unwrap().of_table;
        assert!(read.amended.cells().is_empty());
        let rest = read.amended.overflow().expect("all in one");
        assert!(rest.withheld && rest.from_us <= at("10:31") && rest.rows > 0);
        assert_eq!(read.retracted.len(), MAX_RETRACTED);
        assert!(read.retracted.iter().all(|one| one.reason.is_empty()));
        let small = measured(1, 10, 1_000_000_007, false).1;
        let small = small.into_iter().collect();
        let read = read_summary(&small).unwrap().unwrap().of_table;
        assert_eq!(read.retracted[0].reason.chars().count(), MAX_REASON);
        assert!(!read.amended.cells().is_empty());
        assert!(small.contains_key(SOURCE_POSITIONS) && small.contains_key(EVENT_TIME_DIGEST));
    }
}
