//! Partitions that go on somewhere else than the table says.
//!
//! What lies between is a gap in the claim. A log cut back voids what was known of the partition, as a new incarnation does;
//! a log start that passed the reader does not, since what is still to come keeps its order. A partition that is gone leaves
//! the table with its gap: nothing of it can come later than the instant when it was found to be gone, and the skew.

use std::collections::BTreeSet;

use super::misfit::Misfit;
use super::news::{Before, Contribution, Jump, JumpKind};
use crate::watermark::event_time::{ceil_second, floor_second};
use crate::watermark::frontier::{OpenGap, PartitionState, Term, View};
use crate::watermark::state::{PartitionRecord, Record, State};

pub(super) fn derive_jump(
    base: &State,
    record: &mut Record,
    news: &Contribution,
    jump: &Jump,
) -> Result<(), Misfit> {
    let Some(known) = base.partition(&jump.topic, jump.partition) else {
        return Err(Misfit::Offset {
            topic: jump.topic.clone(),
            partition: jump.partition,
            start_offset: jump.offset,
            next_offset: None,
        });
    };
    let recreated = matches!(jump.kind, JumpKind::Recreated { .. });
    let table = base.topics.get(&jump.topic).and_then(|topic| topic.id);
    // Both incarnations of a topic may stand at the same offset.
    let renewed =
        matches!(jump.kind, JumpKind::Recreated { topic_id: Some(id) } if table == Some(id));
    // Rows that were read after a jump back can end where it began.
    let stale = jump.kind == JumpKind::Truncated && news.derived_from != Some(base.commit_id);
    // A log that was cut, or made anew, and gone on in by another worker stands at an offset of the one before.
    let there = Before::of(base, &jump.topic, jump.partition);
    let other = jump.before.is_some() && jump.before != there;
    if known.next_offset != jump.from || renewed || stale || other {
        return Err(Misfit::JumpedAlready {
            topic: jump.topic.clone(),
            partition: jump.partition,
            next_offset: known.next_offset,
        });
    }
    if let JumpKind::Recreated { topic_id: Some(id) } = jump.kind {
        record.topic_ids.insert(jump.topic.clone(), id);
    }
    let from_us = proven_us(base, known).filter(|_| !recreated);
    let own = PartitionRecord {
        next_offset: jump.offset,
        reset: !matches!(jump.kind, JumpKind::Forward | JumpKind::Gone),
        gap: Some(OpenGap {
            from_us,
            restart_us: ceil_second(jump.at_us),
            in_order: matches!(jump.kind, JumpKind::Forward),
        }),
        ..PartitionRecord::default()
    };
    let key = (jump.topic.clone(), jump.partition);
    if jump.kind == JumpKind::Gone {
        record.gone.insert(key.clone());
    }
    record.partitions.insert(key, own);
    Ok(())
}

/// How far a partition has got, in whole seconds. What lies behind the rows on record is lost, whatever the clock says of it.
pub(super) fn proven_us(base: &State, known: &PartitionState) -> Option<i64> {
    let mut proven = base.policy.terms.clone();
    proven.remove(&Term::Clock);
    let view = View {
        terms: &proven,
        ..base.view()
    };
    view.frontier(known)
        .map(|value| floor_second(value.value_us))
}

/// What leaves with the partitions that are gone: a topic without any other, and their place in the answer.
pub(super) fn leave_gone(base: &State, record: &mut Record) {
    let gone = &record.gone;
    let stays = |topic: &String| {
        let known = base.topics.get(topic);
        let mut partitions = known.into_iter().flat_map(|known| known.partitions.keys());
        known.is_none() || partitions.any(|partition| !gone.contains(&(topic.clone(), *partition)))
    };
    record.topics.retain(stays);
    if let Some(asked) = &mut record.asked {
        for (topic, partition) in gone {
            if let Some(partitions) = asked.topics.get_mut(topic) {
                partitions.remove(partition);
            }
        }
        asked.topics.retain(|_, partitions| !partitions.is_empty());
    }
}

/// The offsets of a partition that is left out would be taken for those of the new topic.
pub(super) fn check_recreated(base: &State, jumps: &[Jump]) -> Result<(), Misfit> {
    let recreated = |jump: &&Jump| matches!(jump.kind, JumpKind::Recreated { .. });
    let topics: BTreeSet<&str> = jumps
        .iter()
        .filter(recreated)
        .map(|jump| jump.topic.as_str())
        .collect();
    for (topic, partition, _) in base.partitions() {
        let jumped = |jump: &Jump| jump.topic == topic && jump.partition == partition;
        if topics.contains(topic) && !jumps.iter().any(jumped) {
            return Err(Misfit::Recreated {
                topic: topic.to_owned(),
                partition,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::watermark::testing::{TOPIC, Table, complete_from, from, gap, news};

    #[test]
    fn a_log_that_lost_its_head_leaves_a_gap_that_closes_with_the_next_rows() {
        let mut table = Table::flowing();
        table.commit(news("12:30").jump(1, 4, 50, JumpKind::Forward));
        assert_eq!(
            table.state.gaps().stretches(),
            gap("10:00", "13:00"),
            "from 10:28, up to the restart and the skew"
        );
        table.commit(news("12:31").rows(1, 50, &["11:40"]));
        assert_eq!(
            table.state.gaps().stretches(),
            gap("10:00", "12:00"),
            "up to 11:40 and L"
        );
        assert_eq!(table.state.partition(TOPIC, 1).unwrap().next_offset, 51);
        assert_eq!(
            table
                .state
                .partition(TOPIC, 1)
                .unwrap()
                .window
                .entries
                .len(),
            2,
            "the order goes on"
        );
    }

    /// Two workers see the same loss. The second would begin again behind rows that the first has read since.
    #[test]
    fn a_jump_counts_only_on_the_offset_it_was_derived_from() {
        let mut table = Table::flowing();
        let jump = |now: &str| news(now).jump(1, 4, 50, JumpKind::Forward);
        table.commit(jump("12:30"));
        table.commit(news("12:31").rows(1, 50, &["12:30", "12:31"]));
        let before = table.state.clone();
        let already = Misfit::JumpedAlready {
            topic: TOPIC.to_owned(),
            partition: 1,
            next_offset: 52,
        };
        assert_eq!(table.try_commit(jump("12:32")).unwrap_err(), already);
        assert_eq!(table.state, before);
    }

    /// The log was cut from 4 to 2. The first worker goes back there and reads on to 4: the second one's jump would begin at 2 again, and
    /// both rows would be read twice.
    #[test]
    fn a_jump_back_counts_only_on_the_state_it_was_derived_from() {
        let mut table = Table::flowing();
        let derived_from = Some(table.state.commit_id);
        let jump = |now: &str| Contribution {
            derived_from,
            ..news(now).jump(1, 4, 2, JumpKind::Truncated)
        };
        table.commit(jump("12:30"));
        table.commit(news("12:31").rows(1, 2, &["12:30", "12:31"]));
        let before = table.state.clone();
        let already = Misfit::JumpedAlready {
            topic: TOPIC.to_owned(),
            partition: 1,
            next_offset: 4,
        };
        assert_eq!(table.try_commit(jump("12:32")).unwrap_err(), already);
        assert_eq!(table.state, before);
        table.commit(news("12:33").jump(1, 4, 3, JumpKind::Truncated));
        assert_eq!(table.state.partition(TOPIC, 1).unwrap().next_offset, 3);
    }

    /// The lateness is a bound within one topic incarnation: what the old one held may be later than anything in the new one.
    #[test]
    fn what_a_deleted_topic_held_ends_with_the_restart_and_not_with_the_new_rows() {
        let mut table = Table::anchored("09:00", 1);
        let topic_id = Some(Uuid::from_u128(10));
        table.commit(news("12:30").jump(0, 0, 0, JumpKind::Recreated { topic_id }));
        table.commit(news("12:31").rows(0, 0, &["10:50"]));
        assert_eq!(complete_from(&table), from("13:00"), "12:30 and the skew");
    }

    #[test]
    fn a_log_written_anew_is_in_no_order_with_what_it_lost() {
        let mut table = Table::flowing();
        table.commit(news("12:30").jump(1, 4, 2, JumpKind::Truncated));
        table.commit(news("12:31").rows(1, 2, &["11:40"]));
        assert_eq!(table.state.gaps().stretches(), gap("10:00", "13:00"));
    }

    #[test]
    fn a_topic_made_anew_may_have_more_partitions() {
        let mut table = Table::anchored("09:00", 1);
        let topic_id = Some(Uuid::from_u128(10));
        let mut anew = news("12:30")
            .jump(0, 0, 0, JumpKind::Recreated { topic_id })
            .anchor(1, 0);
        anew.anchors[0].topic_id = topic_id;
        table.commit(anew);
        assert_eq!(table.state.topics[TOPIC].id, topic_id);
        assert_eq!(table.state.partition(TOPIC, 1).unwrap().next_offset, 0);
    }

    /// A worker was to go on at 50 of a topic that had lost its head. It was made anew, and another worker began at 0 there: what lies
    /// below 50 there was never lost.
    #[test]
    fn a_jump_counts_only_in_the_log_that_it_was_derived_from() {
        let mut table = Table::anchored("09:00", 1);
        let mut forward = news("12:30").jump(0, 0, 50, JumpKind::Forward);
        forward.jumps[0].before = Before::of(&table.state, TOPIC, 0);
        let topic_id = Some(Uuid::from_u128(10));
        table.commit(news("12:30").jump(0, 0, 0, JumpKind::Recreated { topic_id }));
        let already = Misfit::JumpedAlready {
            topic: TOPIC.to_owned(),
            partition: 0,
            next_offset: 0,
        };
        assert_eq!(table.try_commit(forward.clone()).unwrap_err(), already);
        forward.jumps[0].before = Before::of(&table.state, TOPIC, 0);
        table.commit(forward);
        assert_eq!(table.state.partition(TOPIC, 0).unwrap().next_offset, 50);
    }

    /// The new topic may stand at the very offset of the old one.
    #[test]
    fn a_recreated_topic_begins_anew_once() {
        let mut table = Table::anchored("09:00", 1);
        let topic_id = Some(Uuid::from_u128(10));
        let again = || news("12:30").jump(0, 0, 0, JumpKind::Recreated { topic_id });
        table.commit(again());
        let already = Misfit::JumpedAlready {
            topic: TOPIC.to_owned(),
            partition: 0,
            next_offset: 0,
        };
        assert_eq!(table.try_commit(again()).unwrap_err(), already);
    }

    #[test]
    fn a_recreated_topic_begins_anew_and_completeness_with_it() {
        let mut table = Table::flowing();
        let id = Some(Uuid::from_u128(10));
        let kind = JumpKind::Recreated { topic_id: id };
        let partly = table
            .try_commit(news("12:30").jump(0, 4, 0, kind))
            .unwrap_err();
        assert_eq!(
            partly,
            Misfit::Recreated {
                topic: TOPIC.to_owned(),
                partition: 1
            }
        );
        table.commit(news("12:30").jump(0, 4, 0, kind).jump(1, 4, 0, kind));
        assert_eq!(
            complete_from(&table),
            from("13:00"),
            "what was lost has no known beginning"
        );
        assert_eq!(table.state.topics[TOPIC].id, id);
        assert_eq!(
            table.claim().as_deref(),
            Some("2026-11-30T10:00:00Z"),
            "carried on"
        );
        assert_eq!(table.state.partition(TOPIC, 0).unwrap().window.entries, []);
    }

    /// A topic of a pattern that was deleted, or one that was made again with fewer partitions.
    #[test]
    fn a_partition_that_is_gone_leaves_a_gap_and_holds_nothing() {
        let mut table = Table::flowing();
        table.commit(news("12:30").jump(1, 4, 4, JumpKind::Gone));
        assert_eq!(table.state.partition(TOPIC, 1), None);
        let stretch = gap("10:00", "13:00");
        assert_eq!(table.state.gaps().stretches(), stretch, "from 10:28 on");
        table.commit(
            news("12:31")
                .rows(0, 4, &["12:20", "12:25"])
                .asked("12:31", 1),
        );
        table.commit(
            news("12:32")
                .rows(0, 6, &["12:28", "12:30"])
                .asked("12:32", 1),
        );
        let claim = table.claim();
        assert_eq!(claim.as_deref(), Some("2026-11-30T12:00:00Z"));
        assert_eq!(table.state.gaps().stretches(), stretch, "for good");
        table.commit(news("12:33").jump(0, 8, 8, JumpKind::Gone));
        assert!(
            table.state.topics.is_empty() && table.state.asked.as_ref().unwrap().topics.is_empty()
        );
        assert_eq!(table.claim(), claim, "no partition, and none the less");
        let again = table.try_commit(news("12:34").jump(0, 8, 8, JumpKind::Gone));
        assert!(matches!(
            again,
            Err(Misfit::Offset {
                next_offset: None,
                ..
            })
        ));
    }
}
