//! Topics that leave, and come back.
//!
//! What leaves is remembered with its next offsets, and a partition that is back goes on there: its rows are on the table once, and
//! what came meanwhile is read. Where its log no longer reaches back that far there is a gap, from how far it had got.
//!
//! The claim went on without it. So it is a topic that joins, whatever the subscription; but nothing is missing of it before the offset
//! that it left at, and complete-from does not rise.
//!
//! Decided here, where the rules leave it open: of a partition that was created while its topic was away, rows that its log has lost
//! may be as old as any; a topic that the broker had stopped naming, and that is named again with another id, is a new one, because
//! what was lost of the old one is told already.

use uuid::Uuid;

use super::jumps::proven_us;
use super::misfit::Misfit;
use super::news::{Anchor, Contribution, Origin};
use crate::watermark::frontier::OpenGap;
use crate::watermark::left::{LeftPartition, LeftTopic};
use crate::watermark::state::{Record, State};

/// What the table remembers of a partition without an anchor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Past<'a> {
    /// Nothing.
    None,
    /// It left here.
    Left(&'a LeftTopic, LeftPartition),
    /// Its topic left, before it was created.
    CreatedSince(&'a LeftTopic),
    /// Another topic of this name left.
    Renewed(&'a LeftTopic),
}

impl<'a> Past<'a> {
    pub(super) fn of(base: &'a State, anchor: &Anchor) -> Self {
        let Some(left) = base.left.topics().get(&anchor.topic) else {
            return Past::None;
        };
        if !left.is(anchor.topic_id) {
            return if left.gone {
                Past::None
            } else {
                Past::Renewed(left)
            };
        }
        match left.partitions.get(&anchor.partition) {
            Some(partition) => Past::Left(left, *partition),
            None if base.topics.contains_key(&anchor.topic) => Past::None,
            None => Past::CreatedSince(left),
        }
    }

    /// Whether something of the topic was on the table before.
    pub(super) fn is_known(self) -> bool {
        !matches!(self, Past::None)
    }

    /// Whether nothing was missed of it before reading began, as far as no gap says so.
    pub(super) fn is_whole(self) -> bool {
        matches!(self, Past::Left(..) | Past::CreatedSince(_))
    }

    /// The id of the topic, where the broker no longer tells one.
    pub(super) fn id(self) -> Option<Uuid> {
        match self {
            Past::Left(left, _) | Past::CreatedSince(left) => left.id,
            Past::None | Past::Renewed(_) => None,
        }
    }

    /// The leader epoch of the record before the offset at which reading begins.
    pub(super) fn leader_epoch(self, offset: i64) -> Option<i32> {
        match self {
            Past::Left(_, left) if left.next_offset == offset => left.leader_epoch,
            _ => None,
        }
    }

    /// What cannot be read of it any more.
    pub(super) fn gap(self, offset: i64, restart_us: i64) -> Option<OpenGap> {
        let (from_us, in_order) = match self {
            Past::Left(topic, left) if left.next_offset != offset => {
                (topic.reached_us, offset > left.next_offset)
            }
            Past::CreatedSince(_) if offset > 0 => (None, true),
            Past::Renewed(_) => (None, false),
            Past::None | Past::Left(..) | Past::CreatedSince(_) => return None,
        };
        Some(OpenGap {
            from_us,
            restart_us,
            in_order,
        })
    }
}

/// Whether an anchor was derived from what the table remembers of its partition. `joins`: the topic may be older than the claim.
pub(super) fn check_origin(
    base: &State,
    derived_from: Option<Uuid>,
    anchor: &Anchor,
    (past, joins): (Past<'_>, bool),
) -> Result<(), Misfit> {
    let topic = anchor.topic.clone();
    let (next_offset, from) = match (past, anchor.origin) {
        (Past::Left(_, left), Origin::Back { from }) => (Some(left.next_offset), Some(from)),
        (Past::Left(_, left), Origin::New | Origin::Anew) => (Some(left.next_offset), None),
        (_, Origin::Back { from }) => (None, Some(from)),
        (Past::Renewed(left), Origin::New) => {
            return Err(Misfit::TopicId {
                topic,
                table: left.id.unwrap_or_default(),
                broker: anchor.topic_id.unwrap_or_default(),
            });
        }
        (Past::None, Origin::New) => {
            let left = base.left.topics();
            let unknown = !base.topics.contains_key(&topic) && !left.contains_key(&topic);
            return if joins && unknown && base.left.forgotten() {
                Err(Misfit::Forgotten { topic })
            } else {
                Ok(())
            };
        }
        (Past::None | Past::CreatedSince(_) | Past::Renewed(_), _) => (None, None),
    };
    // It may have been back, and left again where it had left before.
    let stale = from > Some(anchor.offset) && derived_from != Some(base.commit_id);
    if next_offset == from && !stale {
        return Ok(());
    }
    Err(Misfit::Left {
        topic,
        partition: anchor.partition,
        next_offset,
    })
}

impl State {
    /// Whether an anchor is still what this state waits for: the partition has none, and left where the anchor says.
    #[must_use]
    pub fn takes(&self, anchor: &Anchor) -> bool {
        let from = match anchor.origin {
            Origin::Back { from } => Some(from),
            Origin::New | Origin::Anew => None,
        };
        let left = self
            .left
            .next_offset(&anchor.topic, anchor.topic_id, anchor.partition);
        self.partition(&anchor.topic, anchor.partition).is_none() && left == from
    }
}

/// What leaves with a commit, and what is back.
pub(super) fn derive_left(base: &State, record: &mut Record, news: &Contribution) {
    for anchor in &news.anchors {
        record.left.give_back(&anchor.topic, anchor.partition);
    }
    let retires = |topic: &str| news.retired.iter().any(|retired| retired == topic);
    for (topic, partition, known) in base.partitions() {
        let gone = record.gone.contains(&(topic.to_owned(), partition));
        if !gone && !retires(topic) {
            continue;
        }
        let left = LeftTopic {
            id: base.topics.get(topic).and_then(|known| known.id),
            at_us: record.committed_at_us,
            gone: !retires(topic),
            reached_us: proven_us(base, known),
            ..LeftTopic::default()
        };
        let next = LeftPartition {
            next_offset: known.next_offset,
            leader_epoch: known.leader_epoch,
        };
        record.left.take(topic, &left, (partition, next));
    }
    for (topic, id) in &record.topic_ids {
        record.left.renew(topic, *id);
    }
    record.left.fit();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watermark::advance::{JumpKind, advance};
    use crate::watermark::epoch::StepCause;
    use crate::watermark::frontier::OnJoin;
    use crate::watermark::left::Left;
    use crate::watermark::replay::stand;
    use crate::watermark::standing::{Asker, Standing};
    use crate::watermark::testing::{Table, WRITER, at, complete_from, from, gap, news};

    const ITEMS: &str = "shop.items";
    const BOTH: &str = "shop.orders,shop.items";

    /// News of the topic that comes and goes.
    fn items(news: Contribution) -> Contribution {
        news.of(ITEMS).reading(BOTH)
    }

    /// `flowing` with another topic of two partitions, read up to offset 2 of the first and 0 of the second.
    fn with_items() -> Table {
        let mut table = Table::flowing();
        table.commit(items(news("10:42").anchor(0, 0).anchor(1, 0)));
        let rows = news("10:50").rows(0, 0, &["10:40", "10:50"]);
        let rows = rows.end("10:50", 2);
        table.commit(items(rows.rows(1, 0, &[]).end("10:50", 0)));
        let asked = news("10:51").asked("10:51", 2).and_asked(ITEMS, 2);
        table.commit(asked.reading(BOTH));
        table
    }

    fn flow(table: &mut Table) {
        for partition in [0, 1] {
            table.commit(news("11:20").rows(partition, 4, &["11:10", "11:20"]));
            let rows = news("11:21").rows(partition, 6, &["11:11", "11:21"]);
            table.commit(rows.asked("11:21", 2));
        }
    }

    /// Both partitions have left, and the claim has gone on to 11:00.
    fn without_items() -> Table {
        let mut table = with_items();
        table.commit(news("10:52").retire(ITEMS));
        flow(&mut table);
        table
    }

    fn back(now: &str, partition: i32, from: i64, offset: i64) -> Contribution {
        items(news(now).anchor(partition, offset).back(from))
    }

    #[test]
    fn a_topic_that_is_back_goes_on_where_it_left() {
        let mut table = without_items();
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        let edge = complete_from(&table);
        let (epoch, gaps) = (table.state.published.epoch, table.state.gaps());
        let again = items(news("11:30").anchor(0, 0));
        let left = |next_offset| Misfit::Left {
            topic: ITEMS.to_owned(),
            partition: 0,
            next_offset,
        };
        let refused = table.try_commit(again).unwrap_err();
        assert_eq!(refused, left(Some(2)), "its rows would be there twice");
        let outdated = table.try_commit(back("11:30", 0, 1, 1)).unwrap_err();
        assert_eq!(outdated, left(Some(2)));

        let both = news("11:30").anchor(0, 2).back(2).anchor(1, 0).back(0);
        table.commit(items(both));
        let next = |partition| table.state.partition(ITEMS, partition).unwrap().next_offset;
        assert_eq!((next(0), next(1)), (2, 0));
        assert!(table.state.left.is_empty());
        let published = &table.state.published;
        assert_eq!((published.epoch, table.claim()), (epoch + 1, None));
        let reopened = published.reopened.unwrap();
        let (cause, before_us) = (reopened.cause, reopened.before_us);
        assert_eq!(
            (cause, before_us),
            (StepCause::TopicJoined, at("11:00")),
            "what came meanwhile may lie below"
        );
        assert_eq!(
            complete_from(&table),
            edge,
            "nothing is missing of it before"
        );
        assert_eq!(table.state.gaps(), gaps);
        let rows = news("11:31")
            .rows(0, 2, &["10:55", "11:30"])
            .end("11:31", 4);
        let rows = rows.rows(1, 0, &[]).end("11:31", 0).asked("11:31", 2);
        table.commit(items(rows.and_asked(ITEMS, 2)));
        table.commit(news("11:32").rows(0, 8, &["11:31"]).reading(BOTH));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(table.state.published.reopened, None);
        let twice = table.try_commit(back("11:33", 0, 2, 2)).unwrap_err();
        assert!(matches!(twice, Misfit::Anchored { next_offset: 4, .. }));
    }

    /// A worker that still has the topic in its hands may bring it in again only where it left, whoever took it out.
    #[test]
    fn what_a_worker_read_before_the_topic_left_is_fenced_until_it_is_back() {
        let mut table = without_items();
        let held = || items(news("11:30").rows(0, 2, &["10:55"]));
        assert!(matches!(
            table.try_commit(held()),
            Err(Misfit::Offset {
                next_offset: None,
                ..
            })
        ));
        table.commit(back("11:31", 0, 2, 2));
        table.commit(held());
        assert_eq!(table.state.partition(ITEMS, 0).unwrap().next_offset, 3);
    }

    #[test]
    fn a_log_that_passed_the_offset_it_left_at_leaves_a_gap_from_how_far_it_had_got() {
        let mut table = without_items();
        assert_eq!(
            table.state.left.topics()[ITEMS].reached_us,
            Some(at("10:40")),
            "caught up at 10:50, less D"
        );
        table.commit(back("12:30", 1, 0, 50));
        assert_eq!(table.state.gaps().stretches(), gap("10:00", "13:00"));
        table.commit(items(news("12:31").rows(1, 50, &["11:40"])));
        assert_eq!(
            table.state.gaps().stretches(),
            gap("10:00", "12:00"),
            "in the order of its log"
        );
        table.commit(back("12:32", 0, 2, 1));
        table.commit(items(news("12:33").rows(0, 1, &["11:40"])));
        assert_eq!(
            table.state.gaps().stretches(),
            gap("10:00", "13:00"),
            "cut back and written anew"
        );
    }

    #[test]
    fn another_topic_of_the_name_begins_anew_with_leave_and_behind_what_was_lost() {
        let mut table = without_items();
        let anew = |origin: Origin| {
            let mut anew = items(news("12:30").anchor(0, 0));
            anew.anchors[0].topic_id = Some(Uuid::from_u128(10));
            anew.anchors[0].origin = origin;
            anew
        };
        let unasked = table.try_commit(anew(Origin::New)).unwrap_err();
        let (table_id, broker) = (Uuid::from_u128(9), Uuid::from_u128(10));
        assert_eq!(
            unasked,
            Misfit::TopicId {
                topic: ITEMS.to_owned(),
                table: table_id,
                broker
            }
        );
        table.commit(anew(Origin::Anew));
        assert_eq!(table.state.partition(ITEMS, 0).unwrap().next_offset, 0);
        assert_eq!(table.state.topics[ITEMS].id, Some(broker));
        assert!(table.state.left.is_empty(), "the old one never comes back");
        table.commit(items(news("12:31").rows(0, 0, &["10:50"])));
        assert_eq!(
            complete_from(&table),
            from("13:00"),
            "12:30 and the skew: what the old one held is in no order with it"
        );
    }

    /// As where an access rule hid the topic for a while.
    #[test]
    fn a_topic_that_is_named_again_goes_on_whatever_the_subscription() {
        let mut table = with_items();
        let gone = news("12:30")
            .jump(0, 2, 2, JumpKind::Gone)
            .jump(1, 0, 0, JumpKind::Gone);
        table.commit(items(gone));
        assert_eq!(table.state.partition(ITEMS, 0), None);
        assert_eq!(table.state.subscription, BOTH);
        let created = table.try_commit(items(news("12:40").anchor(0, 0)));
        assert!(matches!(created, Err(Misfit::Left { .. })));
        let mut other = items(news("12:40").anchor(0, 0));
        other.anchors[0].topic_id = Some(Uuid::from_u128(10));
        let deleted = advance(&table.state, &table.policy, &other).unwrap();
        let epoch = table.state.published.epoch;
        assert_eq!(deleted.claim.epoch, epoch, "created since, and no step");
        assert!(deleted.state.left.is_empty());
        table.commit(back("12:40", 0, 2, 2));
        assert_eq!(table.state.published.epoch, epoch + 1);
        assert_eq!(table.state.partition(ITEMS, 0).unwrap().next_offset, 2);
    }

    /// A rebuild that forgot it would let the topic in from its first record.
    #[test]
    fn what_has_left_is_rebuilt_from_any_summary() {
        let mut table = without_items();
        table.lineage.snapshots.truncate(1);
        table.lineage.broken = true;
        table.properties.clear();
        let standing = stand(&Asker::new(WRITER, at("12:00")), &table.view()).unwrap();
        let Standing::GoesOn(going_on) = standing else {
            panic!("{standing:?}");
        };
        assert!(going_on.rebuilt);
        assert_eq!(going_on.state.left, table.state.left);
        assert!(!going_on.state.left.is_empty());
    }

    /// Of a partition that was created meanwhile nothing is on the table, and nothing is known of what its log has lost.
    #[test]
    fn a_partition_created_while_its_topic_was_away_begins_at_its_first_record() {
        let whole = |offset: i64| {
            let mut table = without_items();
            let edge = complete_from(&table);
            let all = news("12:30").anchor(0, 2).back(2).anchor(1, 0).back(0);
            table.commit(items(all.anchor(2, offset)));
            assert_eq!(table.state.partition(ITEMS, 2).unwrap().next_offset, offset);
            complete_from(&table) == edge
        };
        assert!(whole(0));
        assert!(!whole(5));
    }

    #[test]
    fn a_topic_that_is_back_may_leave_the_claim_where_it_is() {
        let mut table = without_items();
        table.policy.on_join = OnJoin::Backfill;
        table.policy.revision = 2;
        let epoch = table.state.published.epoch;
        table.commit(back("11:30", 0, 2, 2));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(table.state.published.epoch, epoch);
        let known = table.state.partition(ITEMS, 0).unwrap();
        assert_eq!(known.backfill_before_us, Some(at("11:00")));
    }

    #[test]
    fn where_some_are_forgotten_no_topic_joins_without_leave() {
        let mut table = without_items();
        table.state.left = Left::of(table.state.left.topics().clone(), true);
        let users = |origin: Origin| {
            let mut users = news("12:30").anchor(0, 0).of("shop.users");
            users.anchors[0].origin = origin;
            users.reading("shop.*")
        };
        let topic = "shop.users".to_owned();
        let unseen = table.try_commit(users(Origin::New)).unwrap_err();
        assert_eq!(unseen, Misfit::Forgotten { topic });
        let created = users(Origin::New).reading(&table.state.subscription.clone());
        advance(&table.state, &table.policy, &created).unwrap();
        table.commit(users(Origin::Anew));
        table.commit(back("12:31", 0, 2, 2));
    }

    #[test]
    fn a_first_commit_that_keeps_offsets_keeps_what_had_left() {
        let kept = without_items().state;
        let begins = crate::watermark::Beginning {
            last_epoch: 1,
            kept: Some(Box::new(kept.clone())),
            ..crate::watermark::Beginning::default()
        };
        let identity = kept.identity.clone();
        let state = begins.state(identity, BOTH, kept.policy.clone(), at("12:30"));
        let back = items(news("12:30").anchor(0, 2).back(2));
        let next = advance(&state, &kept.policy, &back).unwrap();
        assert_eq!(next.state.partition(ITEMS, 0).unwrap().next_offset, 2);
        assert_eq!(next.state.left.topics()[ITEMS].partitions.len(), 1);
    }
}
