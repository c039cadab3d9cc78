//! Topics and partitions that come and go.
//!
//! A topic that the table does not know was created since while the pipeline's list or pattern is the table's. After a change
//! of it the topic may be older than the claim: it *joins*, which is a step of the epoch in the commit that anchors it. A
//! changed list or pattern becomes the table's with the first answer under it that names no topic but those that the table
//! knows once the commit is made.
//!
//! By choice a topic that joins does not take the claim back: its rows below the claim have no say, now and later, and what it
//! brings above holds the claim as every partition does.
//!
//! A topic that the specification no longer names leaves without a step. The claim may rise with it; what was never read of
//! it stays outside of complete-from and in the gaps.
//!
//! Decided here, where the rules leave it open: a partition created later that does not begin at offset 0 has lost rows
//! before it was first read; they cannot lie below what was claimed then, so its gap begins at the claim.

use std::collections::BTreeSet;

use super::misfit::Misfit;
use super::news::{Anchor, Contribution, JumpKind, Origin};
use super::returns::{Past, check_origin};
use crate::watermark::event_time::{ceil_second, floor_second};
use crate::watermark::frontier::{OnJoin, OpenGap, Policy};
use crate::watermark::state::{AskedPartitions, PartitionRecord, Record, State};

/// How a partition without an anchor comes to its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// With the first commit.
    First,
    /// Created since.
    Created,
    /// It may be older than the claim, which is taken back.
    Joins,
    /// It may be older than the claim, which stays: its rows below have no say.
    Backfills {
        /// The claim.
        before_us: i64,
    },
}

/// How a partition without an anchor comes. `policy`: the one in force with the commit.
pub(super) fn arrival(
    base: &State,
    policy: &Policy,
    news: &Contribution,
    anchor: &Anchor,
) -> Arrival {
    if base.is_new() {
        return Arrival::First;
    }
    let created = base.topics.contains_key(&anchor.topic) || news.subscription == base.subscription;
    // The claim has gone on without one that was away.
    if created && !Past::of(base, anchor).is_known() {
        return Arrival::Created;
    }
    match (policy.on_join, base.published.finalized_before_us) {
        (OnJoin::Backfill, Some(before_us)) => Arrival::Backfills { before_us },
        // Without a claim there is none to keep.
        (OnJoin::Backfill, None) | (OnJoin::Reopen, _) => Arrival::Joins,
    }
}

/// What the table may take for granted of topics that appear: the subscription under which an answer named no topic but those
/// that it knows. Topics that match it and appear later were created later. With no such answer the one before stays; after
/// a topic has left it would let that one in again as if it were new, so that none does.
pub(super) fn derive_subscription(base: &State, news: &Contribution) -> String {
    let left = |topic: &String| news.retired.contains(topic);
    let anchored = |topic: &String| news.anchors.iter().any(|anchor| anchor.topic == *topic);
    let known =
        |topic: &String| (base.topics.contains_key(topic) && !left(topic)) || anchored(topic);
    let fresh = news.asked.as_ref().filter(|fresh| {
        let table = base.asked.as_ref();
        table.is_none_or(|table| fresh.at_us > table.at_us)
    });
    if base.is_new() || fresh.is_some_and(|fresh| fresh.topics.keys().all(known)) {
        news.subscription.clone()
    } else if base.topics.keys().any(left) {
        String::new()
    } else {
        base.subscription.clone()
    }
}

/// The answer in force: the newer one, and a set that only grows; only the specification takes a topic out.
pub(super) fn newer_answer(
    table: Option<&AskedPartitions>,
    fresh: Option<&AskedPartitions>,
) -> Option<AskedPartitions> {
    let Some(fresh) = fresh.filter(|fresh| table.is_none_or(|table| fresh.at_us > table.at_us))
    else {
        return table.cloned();
    };
    let mut topics = fresh.topics.clone();
    for (topic, partitions) in table.iter().flat_map(|table| &table.topics) {
        topics
            .entry(topic.clone())
            .or_insert_with(BTreeSet::new)
            .extend(partitions);
    }
    let at_us = floor_second(fresh.at_us);
    let at_us = table.map_or(at_us, |table| at_us.max(table.at_us));
    Some(AskedPartitions { at_us, topics })
}

pub(super) fn derive_anchor(
    base: &State,
    record: &mut Record,
    news: &Contribution,
    anchor: &Anchor,
) -> Result<(), Misfit> {
    if let Some(known) = base.partition(&anchor.topic, anchor.partition) {
        return Err(Misfit::Anchored {
            topic: anchor.topic.clone(),
            partition: anchor.partition,
            next_offset: known.next_offset,
        });
    }
    let known = base.topics.get(&anchor.topic);
    let table = known.and_then(|topic| topic.id);
    // A topic that was made anew may have more partitions than the one before.
    let renewed = news.jumps.iter().any(|jump| {
        jump.topic == anchor.topic
            && jump.kind
                == JumpKind::Recreated {
                    topic_id: anchor.topic_id,
                }
    });
    if let (Some(table), Some(broker)) = (table, anchor.topic_id)
        && table != broker
        && !renewed
    {
        return Err(Misfit::TopicId {
            topic: anchor.topic.clone(),
            table,
            broker,
        });
    }
    let past = Past::of(base, anchor);
    let arrival = arrival(base, &record.policy, news, anchor);
    let joins = matches!(arrival, Arrival::Joins | Arrival::Backfills { .. });
    check_origin(base, news.derived_from, anchor, (past, joins))?;
    if let Some(id) = anchor.topic_id.or(past.id()) {
        record.topic_ids.insert(anchor.topic.clone(), id);
    }
    record.topics.insert(anchor.topic.clone());
    let at_us = ceil_second(anchor.at_us);
    let mut own = PartitionRecord {
        next_offset: anchor.offset,
        leader_epoch: past.leader_epoch(anchor.offset),
        gap: past.gap(anchor.offset, at_us),
        ..PartitionRecord::default()
    };
    match arrival {
        Arrival::First => own.anchor_us = Some(at_us),
        Arrival::Joins => own.anchor_us = Some(at_us).filter(|_| !past.is_whole()),
        Arrival::Created => {}
        Arrival::Backfills { before_us } => own.backfill_before_us = Some(before_us),
    }
    let lost = |from_us: Option<i64>, in_order: bool| OpenGap {
        from_us,
        restart_us: at_us,
        in_order,
    };
    if own.anchor_us.is_none() && anchor.offset > 0 && !past.is_known() {
        own.gap = Some(lost(base.published.finalized_before_us, true));
    }
    if arrival == Arrival::First && anchor.origin == Origin::Anew {
        own.gap = Some(lost(None, false));
    }
    record
        .partitions
        .insert((anchor.topic.clone(), anchor.partition), own);
    Ok(())
}

/// Nothing is read any more of a topic that leaves.
pub(super) fn check_retired(news: &Contribution) -> Result<(), Misfit> {
    let own = news.partitions.iter();
    let batches = own.map(|own| (&own.topic, own.partition, own.start_offset));
    let anchors = news.anchors.iter();
    let anchors = anchors.map(|anchor| (&anchor.topic, anchor.partition, anchor.offset));
    let jumps = news.jumps.iter();
    let jumps = jumps.map(|jump| (&jump.topic, jump.partition, jump.offset));
    let mut all = batches.chain(anchors).chain(jumps);
    match all.find(|(topic, _, _)| news.retired.contains(topic)) {
        None => Ok(()),
        Some((topic, partition, start_offset)) => Err(Misfit::Offset {
            topic: topic.clone(),
            partition,
            start_offset,
            next_offset: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watermark::advance::{
        EmptyCommit, JumpKind, advance, should_commit_empty, would_raise,
    };
    use crate::watermark::claim::HeldBy;
    use crate::watermark::epoch::{Reopened, StepCause};
    use crate::watermark::testing::{TOPIC, Table, at, complete_from, from, gap, news, policy};

    #[test]
    fn a_named_partition_without_an_anchor_holds() {
        let mut table = Table::flowing();
        table.commit(news("11:30").rows(0, 4, &["11:20"]).asked("11:30", 3));
        let by = HeldBy::Unanchored {
            topic: TOPIC.to_owned(),
            partition: 2,
        };
        assert_eq!(table.state.hold(true).by, by);
        let later = news("11:31").anchor(2, 0);
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &later),
            Some(EmptyCommit::Anchors)
        );
        let before = complete_from(&table);
        table.commit(later);
        assert_eq!(
            complete_from(&table),
            before,
            "created later: no rows were missed"
        );
        assert!(table.state.gaps().is_empty());
    }

    #[test]
    fn a_partition_created_later_whose_head_is_gone_leaves_a_gap_at_the_claim() {
        let mut table = Table::flowing();
        table.commit(news("11:31").anchor(2, 5));
        assert_eq!(table.state.gaps().stretches(), gap("10:00", "12:00"));
    }

    const BOTH: &str = "shop.orders,shop.users";

    /// News of a topic that the changed specification names, too.
    fn users(news: Contribution) -> Contribution {
        news.of("shop.users").reading(BOTH)
    }

    /// What a topic that joined at 10:51 took back: everything up to 10:00.
    fn all_reopened() -> Reopened {
        Reopened {
            cause: StepCause::TopicJoined,
            from_us: None,
            before_us: at("10:00"),
            at_us: at("10:51"),
        }
    }

    #[test]
    fn a_topic_created_since_is_no_step() {
        let mut table = Table::flowing();
        table.commit(news("10:50").anchor(0, 0).of("shop.items"));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        assert_eq!(table.state.published.epoch, 1);
    }

    #[test]
    fn a_topic_that_may_be_older_than_the_claim_opens_an_epoch() {
        let mut table = Table::flowing();
        table.commit(users(news("10:51").anchor(0, 0)));
        assert_eq!((table.claim(), table.state.published.epoch), (None, 2));
        assert_eq!(table.state.published.reopened, Some(all_reopened()));
        assert_eq!(
            complete_from(&table),
            from("11:00"),
            "10:51 and the skew: nothing of it is claimed before it was read"
        );
        table.commit(users(news("10:55").rows(0, 0, &["09:10"])));
        table.commit(users(news("10:56").rows(0, 1, &["10:40"])));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T09:00:00Z"));
        assert_eq!(table.state.published.reopened, Some(all_reopened()));
        assert_eq!(complete_from(&table), from("10:00"), "its first row");
        table.commit(users(news("10:57").rows(0, 2, &["10:50"])));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        assert_eq!(table.state.published.reopened, None, "it is back");
        assert_eq!(table.state.published.epoch, 2);
    }

    /// A topic without rows shows so in the commit that anchors it: nothing has to be taken back.
    #[test]
    fn a_topic_that_joins_and_is_read_to_its_end_takes_nothing_back() {
        let mut table = Table::flowing();
        let empty = news("10:51").anchor(0, 0).rows(0, 0, &[]).end("10:50", 0);
        table.commit(users(empty));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        let published = &table.state.published;
        assert_eq!((published.epoch, published.reopened), (2, None));
    }

    #[test]
    fn a_topic_that_is_backfilled_keeps_the_claim_and_holds_it_there() {
        let mut table = Table::flowing();
        table.policy.on_join = OnJoin::Backfill;
        table.policy.revision = 2;
        table.commit(users(news("10:51").anchor(0, 7)));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        let published = &table.state.published;
        assert_eq!((published.epoch, published.reopened), (1, None));
        assert_eq!(complete_from(&table), from("10:00"), "as it was");
        let known = table.state.partition("shop.users", 0).unwrap();
        assert_eq!(known.backfill_before_us, Some(at("10:00")));
        assert_eq!(
            table.state.gaps().stretches(),
            gap("10:00", "11:00"),
            "its log has lost its head: rows above the claim, too"
        );
        // Those below the claim have no say and are none of the statistics.
        for (partition, offset) in [(0, 4), (1, 4)] {
            table.commit(news("11:20").rows(partition, offset, &["11:10"]));
            table.commit(news("11:21").rows(partition, offset + 1, &["11:11"]));
        }
        table.commit(news("11:22").asked("11:22", 2).and_asked("shop.users", 1));
        let hold = table.state.hold(true);
        let by = HeldBy::Partition {
            topic: "shop.users".to_owned(),
            partition: 0,
            term: None,
        };
        assert_eq!((hold.by, hold.cell_us), (by, Some(at("10:00"))));
        let read = news("11:23").rows(0, 7, &[]).end("11:23", 7);
        table.commit(users(read));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
    }

    /// A claim that is not there cannot be kept.
    #[test]
    fn a_topic_that_is_backfilled_into_a_table_without_a_claim_joins_it() {
        let mut table = Table::anchored("09:00", 1);
        table.policy.on_join = OnJoin::Backfill;
        table.policy.revision = 2;
        table.commit(users(news("10:51").anchor(0, 0)));
        assert_eq!(table.state.published.epoch, 2);
        assert_eq!(complete_from(&table), from("11:00"));
    }

    #[test]
    fn one_topic_takes_the_place_of_another_in_one_commit() {
        let mut table = Table::flowing();
        let mut replaced = news("10:51").anchor(0, 0).asked("10:51", 1);
        let asked = replaced.asked.as_mut().unwrap();
        let partitions = asked.topics.remove(TOPIC).unwrap();
        asked.topics.insert("shop.users".to_owned(), partitions);
        let replaced = replaced.of("shop.users").reading("shop.users");
        table.commit(replaced.retire(TOPIC));
        assert!(table.state.topics.keys().eq(["shop.users"]));
        let asked = table.state.asked.clone().unwrap();
        assert!(asked.topics.keys().eq(["shop.users"]));
        assert_eq!(
            table.state.subscription, "shop.users",
            "all that it names are known"
        );
        assert_eq!((table.claim(), table.state.published.epoch), (None, 2));
        let rows = |now: &str, offset: i64, time: &str| {
            let rows = news(now).rows(0, offset, &[time]).of("shop.users");
            rows.reading("shop.users")
        };
        table.commit(rows("11:20", 0, "11:10"));
        table.commit(rows("11:21", 1, "11:12"));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
    }

    /// The step is the owner's; the height of the claim is that of the newer settings.
    #[test]
    fn older_settings_may_step_back_and_not_up() {
        let mut table = Table::flowing();
        table.policy.revision = 2;
        table.policy.bounds.allowed_lateness_us = 0;
        table.commit(news("10:45"));
        for (partition, now) in [(0, "11:30"), (1, "11:31")] {
            table.policy = policy();
            table.commit(news(now).rows(partition, 4, &["11:20"]).asked(now, 2));
            table.commit(news(now).rows(partition, 5, &["11:21"]));
        }
        let empty = news("11:32").anchor(0, 0).rows(0, 0, &[]).end("11:32", 0);
        table.commit(users(empty));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        assert_eq!(table.state.published.epoch, 2);
        table.policy = table.state.policy.clone();
        table.commit(news("11:33"));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
    }

    /// Whether anchoring a topic in this commit is a step.
    fn steps(table: &Table, news: &Contribution) -> bool {
        let next = advance(&table.state, &table.policy, news).unwrap();
        next.claim.epoch > table.state.published.epoch
    }

    /// Else every topic created after a change of the pattern would be taken for an older one, and the claim fall.
    #[test]
    fn a_changed_subscription_is_taken_once_an_answer_names_no_unknown_topic() {
        let mut table = Table::flowing();
        let created = || {
            news("10:55")
                .anchor(0, 0)
                .of("shop.items")
                .reading("shop.*")
        };
        table.commit(news("10:50").rows(0, 4, &["10:45"]).reading("shop.*"));
        assert!(
            steps(&table, &created()),
            "rows alone do not show what the new pattern matches"
        );
        table.commit(
            news("10:51")
                .asked("10:51", 2)
                .and_asked("shop.items", 1)
                .reading("shop.*"),
        );
        assert!(steps(&table, &created()), "it was there before");
        let mut table = Table::flowing();
        table.commit(news("10:52").asked("10:39", 2).reading("shop.*"));
        assert_eq!(table.state.subscription, TOPIC, "an answer of before");
        table.commit(news("10:53").asked("10:53", 2).reading("shop.*"));
        assert_eq!(table.state.subscription, "shop.*");
        assert!(!steps(&table, &created()));
    }

    /// `flowing`, with another topic that has no rows yet and holds the claim.
    fn with_items() -> Table {
        let mut table = Table::flowing();
        let both = || news("10:50").asked("10:50", 2).and_asked("shop.items", 1);
        table.commit(both().anchor(0, 0).of("shop.items"));
        for partition in [0, 1] {
            table.commit(news("11:20").rows(partition, 4, &["11:10", "11:20"]));
            table.commit(news("11:21").rows(partition, 6, &["11:11", "11:21"]));
        }
        table.commit(news("11:22").asked("11:22", 2));
        table
    }

    #[test]
    fn a_topic_out_of_the_specification_leaves_and_lets_the_claim_go() {
        let mut table = with_items();
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        let retires = || news("11:23").retire("shop.items").reading("other");
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &retires()),
            Some(EmptyCommit::Retires)
        );
        assert!(would_raise(&table.state, &table.policy, &retires()));
        table.commit(retires());
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &retires()),
            None,
            "once"
        );
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(table.state.published.epoch, 1);
        assert_eq!(table.state.partition("shop.items", 0), None);
        let asked = table.state.asked.clone().unwrap();
        assert!(asked.topics.keys().eq([TOPIC]));
        assert_eq!(asked.at_us, at("11:22"));
        let late = news("11:24").rows(0, 0, &["11:20"]).of("shop.items");
        assert!(matches!(
            table.try_commit(late).unwrap_err(),
            Misfit::Offset {
                next_offset: None,
                ..
            }
        ));
        for subscription in [TOPIC, "other"] {
            let back = news("11:24").anchor(0, 0).back(0).of("shop.items");
            let older = steps(&table, &back.reading(subscription));
            assert!(older, "it is older than the claim now");
        }
    }

    /// A worker that was not told yet may have named it again since.
    #[test]
    fn a_topic_that_only_an_answer_names_leaves_as_well() {
        let mut table = Table::flowing();
        table.commit(news("10:50").asked("10:50", 2).and_asked("shop.users", 1));
        table.commit(news("10:51").retire("shop.users"));
        assert!(
            table
                .state
                .asked
                .as_ref()
                .unwrap()
                .topics
                .keys()
                .eq([TOPIC])
        );
        assert_eq!(table.state.subscription, TOPIC, "it never was in the state");
        let zombie = news("10:52")
            .anchor(0, 0)
            .of("shop.users")
            .retire("shop.users");
        assert!(matches!(
            table.try_commit(zombie).unwrap_err(),
            Misfit::Offset { .. }
        ));
    }

    /// The claim of before was made over its rows, too: it may not grow over those that were never read.
    #[test]
    fn a_topic_that_leaves_takes_no_edge_of_the_claim_with_it() {
        let mut table = Table::new(policy());
        let mut first = news("09:00").anchor(0, 0);
        let items = news("09:57").anchor(0, 0).of("shop.items");
        first.anchors.extend(items.anchors);
        table.commit(first);
        assert_eq!(complete_from(&table), from("11:00"), "09:57 and the skew");
        table.commit(
            news("11:30")
                .jump(0, 0, 7, JumpKind::Forward)
                .of("shop.items"),
        );
        table.commit(news("11:40").rows(0, 0, &["09:10"]));
        assert_eq!(complete_from(&table), from("12:00"), "lost from ever on");
        table.commit(news("11:50").retire("shop.items"));
        assert_eq!(complete_from(&table), from("12:00"));

        let mut table = with_items();
        let rows = |offset: i64| news("11:23").rows(0, offset, &["10:10"]).of("shop.items");
        table.commit(rows(0));
        table.commit(rows(1));
        table.commit(
            news("12:30")
                .jump(0, 2, 7, JumpKind::Forward)
                .of("shop.items"),
        );
        let gaps = table.state.gaps();
        assert_eq!(gaps.stretches(), gap("10:00", "13:00"));
        let before = complete_from(&table);
        table.commit(news("12:31").retire("shop.items"));
        assert_eq!(table.state.gaps(), gaps);
        assert_eq!(complete_from(&table), before);
    }

    #[test]
    fn a_set_of_partitions_only_grows_and_an_older_answer_changes_nothing() {
        let mut table = Table::flowing();
        table.commit(news("10:50").asked("10:50", 1));
        let asked = table.state.asked.clone().unwrap();
        assert_eq!((asked.at_us, asked.topics[TOPIC].len()), (at("10:50"), 2));
        table.commit(news("10:51").asked("10:30", 9));
        assert_eq!(table.state.asked, Some(asked));
    }
}
