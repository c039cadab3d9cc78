//! What a batch or an answer says of one partition.
//!
//! A batch starts where the table goes on, or it is a zombie's. An answer about an end counts for the offset that the table
//! will hold, never for the position of whoever asked.

use super::misfit::Misfit;
use super::news::{AskedEnd, Contribution, PartitionNews};
use crate::watermark::event_time::floor_second;
use crate::watermark::frontier::{Heartbeats, PartitionState, PartitionStats};
use crate::watermark::state::{Record, State};

pub(super) fn derive_partition(
    base: &State,
    record: &mut Record,
    own: &PartitionNews,
) -> Result<(), Misfit> {
    let known = base.partition(&own.topic, own.partition);
    let key = (own.topic.clone(), own.partition);
    let moved = record.partitions.get(&key).map(|moved| moved.next_offset);
    let next_offset = moved.or(known.map(|known| known.next_offset));
    let batch = own.end_offset != own.start_offset
        || own.stats.is_some()
        || own.positions.is_some()
        || own.resolved_us.is_some();
    // Without a batch the position is the table's: a worker may prove for a partition what it has not read itself.
    let (start_offset, end_offset) = match next_offset {
        Some(next_offset) if !batch => (next_offset, next_offset),
        _ => (own.start_offset, own.end_offset),
    };
    if next_offset != Some(start_offset) {
        return Err(Misfit::Offset {
            topic: own.topic.clone(),
            partition: own.partition,
            start_offset,
            next_offset,
        });
    }
    if end_offset < start_offset {
        return Err(Misfit::Backwards {
            topic: own.topic.clone(),
            partition: own.partition,
            start_offset,
            end_offset,
        });
    }
    let proof = own.asked_end.filter(|end| proves(end, end_offset));
    let proof = proof.map(|end| proved(record.policy.heartbeats, &end));
    let (caught_up_us, heartbeat_us) = proof.unwrap_or_default();
    let known_at = |of: fn(&PartitionState) -> Option<i64>| known.and_then(of);
    let moved = moved.is_some();
    let fresher = |us: Option<i64>, of| us.filter(|_| us > known_at(of) || moved);
    let caught_up_us = fresher(caught_up_us, |known| known.caught_up_us);
    let heartbeat_us = fresher(heartbeat_us, |known| known.heartbeat_us);
    let resolved_us = fresher(own.resolved_us.map(floor_second), |known| known.resolved_us);
    if !batch && caught_up_us.is_none() && heartbeat_us.is_none() {
        return Ok(());
    }
    let entry = record.partitions.entry(key).or_default();
    entry.next_offset = end_offset;
    // Without a batch it is that of the worker's position, which the table may not share.
    entry.leader_epoch = own.leader_epoch.filter(|_| end_offset > start_offset);
    entry.stats = own.stats.map(round_stats);
    entry.caught_up_us = caught_up_us;
    entry.heartbeat_us = heartbeat_us;
    entry.resolved_us = resolved_us;
    entry.positions.clone_from(&own.positions);
    Ok(())
}

/// What an answer proves of a partition that has reached it: until when it is caught up, and up to which heartbeat of a table.
/// Neither is later than the question. A connector whose heartbeat is unknown may have stopped long ago.
fn proved(heartbeats: Heartbeats, end: &AskedEnd) -> (Option<i64>, Option<i64>) {
    let asked_us = floor_second(end.at_us);
    let beat_us = end.heartbeat_us.map(|us| floor_second(us).min(asked_us));
    match heartbeats {
        Heartbeats::None => (Some(asked_us), None),
        Heartbeats::Connector => (beat_us, None),
        Heartbeats::Table => (Some(asked_us), beat_us),
    }
}

/// The newest heartbeat that these news know of.
pub(super) fn newest_heartbeat(news: &Contribution) -> Option<i64> {
    let ends = news.partitions.iter().filter_map(|own| own.asked_end);
    let newest = ends.filter_map(|end| end.heartbeat_us).max();
    newest.map(floor_second)
}

/// Whether everything below an answered high watermark is in the table once a batch that ends at `end_offset` is.
fn proves(end: &AskedEnd, end_offset: i64) -> bool {
    end.high_watermark >= end.delivered && end_offset >= end.high_watermark
}

fn round_stats(stats: PartitionStats) -> PartitionStats {
    PartitionStats {
        rows: stats.rows.max(1),
        least_us: floor_second(stats.least_us),
        ladder_us: stats.ladder_us.map(floor_second),
        greatest_us: floor_second(stats.greatest_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watermark::advance::JumpKind;
    use crate::watermark::testing::{TOPIC, Table, at, news};

    /// A watermark below what was delivered comes from a truncated log, or an answer to somebody else.
    #[test]
    fn an_answer_below_what_was_delivered_proves_nothing() {
        let mut table = Table::flowing();
        let mut own = news("11:30").rows(1, 4, &[]).end("11:30", 3);
        own.partitions[0].asked_end.as_mut().unwrap().delivered = 4;
        table.commit(own);
        assert_eq!(table.state.partition(TOPIC, 1).unwrap().caught_up_us, None);
    }

    #[test]
    fn a_batch_that_does_not_start_where_the_table_goes_on_is_a_zombies() {
        let mut table = Table::flowing();
        let misfit = table
            .try_commit(news("10:50").rows(0, 3, &["10:45"]))
            .unwrap_err();
        assert_eq!(
            misfit,
            Misfit::Offset {
                topic: TOPIC.to_owned(),
                partition: 0,
                start_offset: 3,
                next_offset: Some(4)
            }
        );
        let unknown = table
            .try_commit(news("10:50").rows(7, 0, &["10:45"]))
            .unwrap_err();
        assert!(matches!(
            unknown,
            Misfit::Offset {
                next_offset: None,
                ..
            }
        ));
        let anchored = table.try_commit(news("10:50").anchor(0, 0)).unwrap_err();
        assert!(matches!(anchored, Misfit::Anchored { next_offset: 4, .. }));
    }

    /// Else a worker that lost an idle partition to a peer would have to drop what it read of the others.
    #[test]
    fn a_partition_without_a_batch_is_proved_by_the_tables_offset() {
        let mut table = Table::flowing();
        table.commit(news("11:30").rows(1, 0, &[]).end("11:30", 4));
        let known = table.state.partition(TOPIC, 1).unwrap();
        assert_eq!(
            (known.next_offset, known.caught_up_us),
            (4, Some(at("11:30")))
        );
        table.commit(news("11:40").rows(1, 9, &[]).end("11:40", 5));
        let known = table.state.partition(TOPIC, 1).unwrap();
        assert_eq!(
            (known.next_offset, known.caught_up_us),
            (4, Some(at("11:30"))),
            "its own position counts for nothing"
        );
    }

    fn with_epoch(mut news: Contribution, leader_epoch: Option<i32>) -> Contribution {
        let own = news.partitions.iter_mut();
        own.for_each(|own| own.leader_epoch = leader_epoch);
        news
    }

    /// After control records of a newer leader the broker would answer the older epoch with an earlier end: a false truncation.
    #[test]
    fn a_leader_epoch_is_kept_for_its_own_offset_only() {
        let mut table = Table::flowing();
        let epoch = |table: &Table| table.state.partition(TOPIC, 0).unwrap().leader_epoch;
        table.commit(with_epoch(news("10:50").rows(0, 4, &["10:45"]), Some(3)));
        assert_eq!(epoch(&table), Some(3));
        let proof = news("10:51").rows(0, 9, &[]).end("10:51", 5);
        table.commit(with_epoch(proof, Some(7)));
        assert_eq!(epoch(&table), Some(3), "of another position");
        let mut markers = news("10:52").rows(0, 5, &[]);
        markers.partitions[0].end_offset = 7;
        table.commit(markers);
        assert_eq!(epoch(&table), None);
        table.commit(with_epoch(news("10:53").rows(0, 7, &["10:50"]), Some(4)));
        assert_eq!(epoch(&table), Some(4));
        table.commit(news("12:30").jump(0, 8, 50, JumpKind::Forward));
        assert_eq!(epoch(&table), None, "a jump follows no record");
    }
}
