//! One commit attempt: the table's state and a worker's news in, the next state and claim out.
//!
//! Pure, and called anew on each attempt with the base of that attempt. A worker brings only its own partitions; the others
//! stand as the table has them.
//!
//! Whatever the news, the claim falls only in a step of the epoch, an offset does not run back except by a declared jump, and
//! a worker with older settings carries the claim forward without raising it.
//!
//! Decided here, where the rules leave it open: of two workers with one revision and different settings the second counts as
//! the older one.

use std::collections::{BTreeMap, BTreeSet};

use super::amended::LateData;
use super::cells::LateCells;
use super::claim::{Claim, Hold};
use super::epoch::{Reopened, StepCause};
use super::event_time::{SECOND_US, floor_second};
use super::frontier::{NewestChange, PartitionState, Policy, TermValue, View};
use super::order::{Order, Retracted, Retraction};
use super::state::{Record, State};

mod jumps;
mod misfit;
mod news;
mod partitions;
mod returns;
mod topics;

use topics::Arrival;

pub use misfit::Misfit;
pub use news::{Anchor, AskedEnd, Before, Contribution, Jump, JumpKind, Origin, PartitionNews};

/// What a commit attempt writes.
#[derive(Clone, Debug)]
pub struct Advanced {
    /// The state after the commit.
    pub state: State,
    /// The same as the property's value.
    pub state_text: String,
    /// What it claims.
    pub claim: Claim,
    /// What holds the next cell.
    pub hold: Hold,
    /// Rows of this commit below the base's claim.
    pub late: LateCells,
    /// What changed, for the summary.
    pub record: Record,
}

/// Why a commit without data is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyCommit {
    /// It anchors partitions.
    Anchors,
    /// It takes topics out that are no longer read.
    Retires,
    /// It raises the claim.
    Raises,
    /// One of its partitions held the lowest open cell and no longer does.
    Releases,
    /// Offsets without rows have not been committed for long.
    Moved,
    /// A person asks for it.
    Ordered,
}

/// How long offsets without rows wait for a commit with rows. Deletions, signals and markers of transactions fill a log as rows do;
/// once retention has passed the table's offset a restart could not tell them from lost rows. An hour is far below any
/// retention in use (Kafka's default is seven days), and 24 empty commits a day are few.
const MOVED_AFTER_US: i64 = 3_600 * SECOND_US;

/// Derives what a commit on `base` writes.
///
/// # Errors
/// When the news do not fit the base; nothing may be committed then.
///
/// # Panics
/// If the claim would fall within an epoch.
pub fn advance(base: &State, policy: &Policy, news: &Contribution) -> Result<Advanced, Misfit> {
    let Next {
        mut state,
        record,
        step,
    } = apply(base, policy, news)?;
    // Before publishing: the claim is derived from what the table will hold.
    state.fit()?;
    publish(base, policy, step, &mut state);
    let late = news.cells.below(base.claimed_us());
    amend(base, &late, &mut state);
    let epochs = state.published.epoch.cmp(&base.published.epoch);
    let stepped = epochs.is_gt() || (base.is_new() && !base.peers.is_empty());
    assert!(
        epochs.is_ge() && (stepped || state.claimed_us() >= base.claimed_us()),
        "a claim never falls within an epoch"
    );
    Ok(Advanced {
        claim: state.claim(),
        hold: state.hold(is_current(base, policy)),
        state_text: state.encode()?,
        late,
        record,
        state,
    })
}

/// Whether a commit of these news on `base` would raise the claim. Far cheaper than [`advance`]: nothing is packed, and where
/// neither clock nor answer has passed the open cell no partition is looked at. `false`, too, where the news do not fit.
#[must_use]
pub fn would_raise(base: &State, policy: &Policy, news: &Contribution) -> bool {
    is_within_reach(base, policy, news)
        && apply(base, policy, news).is_ok_and(|next| raises(base, policy, &next.state))
}

/// Whether, and why, a worker without data should commit. `None`, too, where the news do not fit the base.
#[must_use]
pub fn should_commit_empty(
    base: &State,
    policy: &Policy,
    news: &Contribution,
) -> Option<EmptyCommit> {
    if news.order.is_some() {
        return Some(EmptyCommit::Ordered);
    }
    if !news.anchors.is_empty() || !news.jumps.is_empty() {
        return Some(EmptyCommit::Anchors);
    }
    let named = base.asked.iter().flat_map(|asked| asked.topics.keys());
    let mut there = base.topics.keys().chain(named);
    if there.any(|topic| news.retired.contains(topic)) {
        return Some(EmptyCommit::Retires);
    }
    let next = apply(base, policy, news).ok()?.state;
    if raises(base, policy, &next) {
        return Some(EmptyCommit::Raises);
    }
    let open_end_us = base.open_cell_end_us();
    let passed = |value: Option<TermValue>| match (value, open_end_us) {
        (Some(value), Some(end_us)) => value.value_us >= end_us,
        (value, None) => value.is_some(),
        (None, _) => false,
    };
    // Both with the eyes of the next commit: only the news make the difference, not the hour.
    let view = next.view();
    let stored = View {
        snapshot: base.view().snapshot,
        ..view
    };
    let releases = news.partitions.iter().any(|own| {
        let before = base.partition(&own.topic, own.partition);
        let after = next.partition(&own.topic, own.partition);
        let frontier = |view: &View<'_>, known: Option<&PartitionState>| {
            known.and_then(|known| view.frontier(known))
        };
        !passed(frontier(&stored, before)) && passed(frontier(&view, after))
    });
    if releases {
        return Some(EmptyCommit::Releases);
    }
    let moved = news
        .partitions
        .iter()
        .any(|own| own.end_offset > own.start_offset);
    let waited_us = news.now_us.saturating_sub(base.committed_at_us);
    (moved && waited_us >= MOVED_AFTER_US).then_some(EmptyCommit::Moved)
}

/// Whether both caps of the claim have passed the end of the open cell.
fn is_within_reach(base: &State, policy: &Policy, news: &Contribution) -> bool {
    let table_us = base.asked.as_ref().map(|asked| asked.at_us);
    let fresh_us = news.asked.as_ref().map(|asked| asked.at_us);
    let policy = policy_in_force(base, policy);
    let caps = table_us.max(fresh_us).map(|asked_us| {
        let asked_cap_us = asked_us.saturating_sub(policy.bounds.max_delay_us);
        policy.grid.floor(asked_cap_us.min(news.now_us))
    });
    caps > base.published.finalized_before_us
}

fn raises(base: &State, policy: &Policy, next: &State) -> bool {
    is_current(base, policy) && next.candidate(&next.view()) > base.published.finalized_before_us
}

fn policy_in_force<'p>(base: &'p State, policy: &'p Policy) -> &'p Policy {
    if base.is_new() || policy.revision > base.policy.revision {
        policy
    } else {
        &base.policy
    }
}

/// A base with the news of a commit, before anything is published.
struct Next {
    state: State,
    record: Record,
    step: Option<Step>,
}

/// Why a commit opens an epoch.
enum Step {
    /// A topic joins: the claim begins anew with what all topics allow.
    Joins {
        /// Whether reading begins in it: something may have been missed before.
        begins: bool,
    },
    /// A stretch is left out from now on.
    Retracts(Retraction),
    /// The writer is new to a table that has others, or goes on after it was drained.
    Enters,
}

fn apply(base: &State, policy: &Policy, news: &Contribution) -> Result<Next, Misfit> {
    let record = derive_record(base, policy, news)?;
    let mut state = base.clone();
    state.apply(&record, None);
    match news.order {
        Some(Order::Drain) => state.published.drained = true,
        Some(Order::Undrain) => state.published.drained = false,
        Some(Order::Retract(_)) | None => {}
    }
    let mut anchors = news.anchors.iter();
    let joined =
        anchors.any(|anchor| topics::arrival(base, &record.policy, news, anchor) == Arrival::Joins);
    let begins = record
        .partitions
        .values()
        .any(|own| own.anchor_us.is_some());
    Ok(Next {
        state,
        record,
        step: match &news.order {
            Some(Order::Retract(retraction)) => {
                check_published(base, retraction)?;
                check_past(policy_in_force(base, policy), retraction, news.now_us)?;
                Some(Step::Retracts(retraction.clone()))
            }
            Some(Order::Drain) => None,
            Some(Order::Undrain) => base.published.drained.then_some(Step::Enters),
            None if base.is_new() && !base.peers.is_empty() => Some(Step::Enters),
            None => joined.then_some(Step::Joins { begins }),
        },
    })
}

/// Only what is published can be taken back.
fn check_published(base: &State, retraction: &Retraction) -> Result<(), Misfit> {
    let claim_us = base.claimed_us();
    if claim_us > Some(retraction.from_us) {
        return Ok(());
    }
    let from_us = retraction.from_us;
    Err(Misfit::NotPublished { from_us, claim_us })
}

/// What is still to come cannot be taken back: it would be left out for good, whatever arrives.
fn check_past(policy: &Policy, retraction: &Retraction, now_us: i64) -> Result<(), Misfit> {
    let newest_us = now_us.saturating_add(policy.bounds.max_future_skew_us);
    let latest_us = policy.grid.ceil(newest_us);
    if retraction.before_us <= latest_us {
        return Ok(());
    }
    let before_us = retraction.before_us;
    Err(Misfit::StillToCome {
        before_us,
        latest_us,
    })
}

fn publish(base: &State, policy: &Policy, step: Option<Step>, state: &mut State) {
    let may_raise = is_current(base, policy);
    let rule_kept = !base.is_new() && base.policy.complete_from == state.policy.complete_from;
    // Of a topic that joins, too, nothing is claimed before reading began there.
    let edge_kept = rule_kept && !matches!(step, Some(Step::Joins { begins: true }));
    let (at_us, open) = (state.committed_at_us, base.published.reopened);
    let cause = match &step {
        Some(Step::Joins { .. }) => Some(StepCause::TopicJoined),
        // One that begins anew by its owner's word has not joined.
        Some(Step::Enters) => Some(match open.filter(|_| base.is_new()) {
            Some(open) => open.cause,
            None => StepCause::WriterJoined,
        }),
        Some(Step::Retracts(_)) | None => None,
    };
    match step {
        None => {}
        // A new writer's first epoch is one more of the table's.
        Some(Step::Enters) if base.is_new() => {}
        Some(Step::Enters) => state.published.epoch += 1,
        Some(Step::Joins { .. }) => {
            let candidate = state.candidate(&state.view());
            let claim_us = if may_raise {
                candidate
            } else {
                candidate.min(base.published.finalized_before_us)
            };
            state
                .published
                .step(StepCause::TopicJoined, claim_us, at_us);
        }
        Some(Step::Retracts(retraction)) => {
            let grid = state.policy.grid;
            state.published.retract(Retracted {
                from_us: grid.floor(retraction.from_us),
                before_us: grid.ceil(retraction.before_us),
                at_us,
                reason: retraction.reason,
            });
        }
    }
    state.publish(may_raise, edge_kept);
    if let Some(cause) = cause.filter(|_| !base.peers.is_empty()) {
        // What readers saw was the claim of the table, not the writer's own; what had been open before is so still.
        let (before_us, from_us) = (base.claimed_us(), state.claimed_us());
        let fell = before_us.filter(|before_us| from_us < Some(*before_us));
        let reopened = fell.map(|before_us| Reopened {
            cause,
            from_us,
            before_us: open.map_or(before_us, |open| open.before_us.max(before_us)),
            at_us,
        });
        state.published.reopened = reopened.or(open);
        state.published.close_reopened(from_us);
    }
}

/// Late rows give their cells a revision; those of before are final again where the claim has risen.
fn amend(base: &State, late: &LateCells, state: &mut State) {
    let claimed = state.claimed_us();
    let before_us = base.claimed_us();
    let published = &mut state.published;
    published.amended.release_above(claimed);
    let choice = state.policy.late_data;
    if let Some(claim_us) = before_us.filter(|_| choice != LateData::Ignore) {
        let withheld_at_us = claimed
            .max(before_us)
            .filter(|_| choice == LateData::Reopen);
        let at_us = state.committed_at_us;
        published
            .amended
            .take(late, claim_us, at_us, withheld_at_us);
    }
}

/// Whether a worker with this policy may raise the claim of a state: with the table's settings, whatever their revision, or with
/// newer ones.
#[must_use]
pub fn is_current(base: &State, policy: &Policy) -> bool {
    base.is_new() || policy.revision > base.policy.revision || policy.same_settings(&base.policy)
}

fn derive_record(base: &State, policy: &Policy, news: &Contribution) -> Result<Record, Misfit> {
    let is_retired = |topic: &String| news.retired.contains(topic);
    let changes = news.partitions.iter().filter_map(|own| own.newest_change);
    let mut record = Record {
        commit_id: news.commit_id,
        committed_at_us: floor_second(news.now_us),
        begins: base.is_new(),
        policy: policy_in_force(base, policy).clone(),
        subscription: topics::derive_subscription(base, news),
        topics: base
            .topics
            .keys()
            .filter(|topic| !is_retired(topic))
            .cloned()
            .collect(),
        left: base.left.clone(),
        asked: topics::newer_answer(base.asked.as_ref(), news.asked.as_ref()).map(|mut asked| {
            asked.topics.retain(|topic, _| !is_retired(topic));
            asked
        }),
        newest_change: changes.fold(base.newest_change, |newest, change| {
            let change = NewestChange {
                record_time_us: change.record_time_us.div_euclid(1000) * 1000,
                ..change
            };
            Some(newest.map_or(change, |newest| newest.newer(change)))
        }),
        newest_heartbeat_us: base
            .newest_heartbeat_us
            .max(partitions::newest_heartbeat(news)),
        topic_ids: BTreeMap::new(),
        partitions: BTreeMap::new(),
        gone: BTreeSet::new(),
    };
    for anchor in &news.anchors {
        topics::derive_anchor(base, &mut record, news, anchor)?;
    }
    for jump in &news.jumps {
        jumps::derive_jump(base, &mut record, news, jump)?;
    }
    jumps::check_recreated(base, &news.jumps)?;
    jumps::leave_gone(base, &mut record);
    topics::check_retired(news)?;
    returns::derive_left(base, &mut record, news);
    for own in &news.partitions {
        partitions::derive_partition(base, &mut record, own)?;
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::cells::LateCell;
    use super::super::claim::HeldBy;
    use super::super::contract;
    use super::super::frontier::{FromRule, Term};
    use super::super::grid::Grid;
    use super::super::reading::Coverage;
    use super::super::state::CompleteFrom;
    use super::super::testing::{TOPIC, Table, at, complete_from, from, news, policy};
    use super::*;

    #[test]
    fn the_first_commit_anchors_and_claims_nothing() {
        let table = Table::anchored("09:10", 2);
        assert_eq!(table.claim(), None);
        assert_eq!(
            complete_from(&table),
            from("10:00"),
            "09:10 plus the skew of five minutes, rounded up"
        );
        assert_eq!(table.state.hold(true).by, HeldBy::NotAsked);
    }

    #[test]
    fn a_claim_needs_the_window_of_every_partition() {
        let mut table = Table::anchored("09:00", 2);
        table.commit(news("10:20").rows(0, 0, &["10:10"]).asked("10:19", 2));
        table.commit(news("10:40").rows(0, 1, &["10:30"]));
        let hold = table.commit(news("10:41").rows(1, 0, &["10:35"])).hold;
        assert_eq!(table.claim(), None);
        let by = HeldBy::Partition {
            topic: TOPIC.to_owned(),
            partition: 1,
            term: None,
        };
        assert_eq!(
            (hold.by, hold.reached_us, hold.since_us),
            (by, None, at("10:41"))
        );
        table.commit(news("10:42").rows(1, 1, &["10:36"]));
        assert_eq!(
            table.claim().as_deref(),
            Some("2026-11-30T10:00:00Z"),
            "10:10 less five minutes, the least of all"
        );
    }

    #[test]
    fn the_least_of_the_frontiers_and_both_caps_is_floored_to_a_cell() {
        let mut table = Table::flowing();
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        table.commit(news("11:08").rows(0, 4, &["11:06"]));
        table.commit(news("11:08").rows(1, 4, &["11:06"]));
        table.commit(news("11:09").rows(0, 5, &["11:07"]));
        let hold = table.commit(news("11:09").rows(1, 5, &["11:08"])).hold;
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        assert_eq!(
            (hold.by, hold.reached_us),
            (HeldBy::Asked, Some(at("10:29"))),
            "asked at 10:39, less D"
        );
        let next = table.commit(news("11:10").asked("11:10", 2));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(
            next.claim.margin_us,
            Some(7 * 60 * super::super::SECOND_US),
            "the least greatest event time less the claim"
        );
    }

    #[test]
    fn a_silent_partition_is_released_by_proof_only() {
        let mut table = Table::flowing();
        table.commit(news("12:00").rows(0, 4, &["11:50"]).asked("11:59", 2));
        table.commit(news("12:20").rows(0, 5, &["12:15"]).asked("12:19", 2));
        assert_eq!(
            table.claim().as_deref(),
            Some("2026-11-30T10:00:00Z"),
            "silence is no consent"
        );
        let behind = news("12:21").rows(1, 4, &[]).end("12:20", 5);
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &behind),
            None,
            "a record waits there"
        );
        let caught_up = news("12:21").rows(1, 4, &[]).end("12:20", 4);
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &caught_up),
            Some(EmptyCommit::Raises)
        );
        let next = table.commit(caught_up);
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(
            next.claim.evidence,
            BTreeSet::from([Term::Minimum, Term::CaughtUp])
        );
    }

    #[test]
    fn a_worker_releases_its_partition_even_while_another_holds() {
        let mut table = Table::flowing();
        table.commit(news("11:30").asked("11:30", 2));
        let own = news("11:30").rows(1, 4, &[]).end("11:30", 4);
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &own),
            Some(EmptyCommit::Releases)
        );
        table.commit(own.clone());
        let again = news("11:31").rows(1, 4, &[]).end("11:31", 4);
        assert_eq!(
            should_commit_empty(&table.state, &table.policy, &again),
            None,
            "once a cell"
        );
    }

    #[test]
    fn caught_up_does_not_count_while_a_snapshot_goes_on() {
        let change = |time: &str, snapshot: bool| {
            Some(NewestChange {
                record_time_us: at(time),
                snapshot,
            })
        };
        let mut table = Table::anchored("09:00", 1);
        let mut rows = news("11:30")
            .rows(0, 0, &[])
            .end("11:30", 0)
            .asked("11:30", 1);
        rows.partitions[0].newest_change = change("11:29", true);
        table.commit(rows.clone());
        assert_eq!(table.claim(), None);
        rows.partitions[0].newest_change = change("11:29", false);
        table.commit(rows);
        assert_eq!(
            table.claim().as_deref(),
            Some("2026-11-30T11:00:00Z"),
            "the last row of it shares its time"
        );
    }

    #[test]
    fn the_clock_of_the_commit_caps_rows_from_the_future() {
        let mut table = Table::anchored("09:00", 1);
        table.commit(news("09:58").rows(0, 0, &["10:03"]).asked("09:58", 1));
        let next = table.commit(news("09:59").rows(0, 1, &["10:04"]).asked("10:30", 1));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T09:00:00Z"));
        assert!(next.claim.finalized_before_us <= Some(at("09:59")));
    }

    #[test]
    fn complete_from_falls_with_the_first_rows() {
        let mut table = Table::anchored("09:58", 2);
        assert_eq!(complete_from(&table), from("11:00"));
        table.commit(news("10:05").rows(0, 0, &["09:50"]));
        assert_eq!(
            complete_from(&table),
            from("11:00"),
            "the other partition has shown none"
        );
        table.commit(news("10:06").rows(1, 0, &["09:49", "10:05"]));
        assert_eq!(
            complete_from(&table),
            from("10:00"),
            "09:50 and L, and the second that the rounding may hide"
        );
        table.commit(news("10:07").rows(1, 2, &["08:00"]));
        assert_eq!(
            complete_from(&table),
            from("10:00"),
            "by the first commit of each"
        );
    }

    #[test]
    fn the_owner_may_vouch_for_what_lies_before() {
        for (rule, expected) in [
            (FromRule::Unbounded, CompleteFrom::Unbounded),
            (FromRule::Instant(at("07:30")), from("08:00")),
        ] {
            let mut table = Table::new(Policy {
                complete_from: rule,
                ..policy()
            });
            table.commit(news("09:00").anchor(0, 0));
            assert_eq!(complete_from(&table), expected);
        }
    }

    #[test]
    fn a_commit_that_would_raise_the_claim_is_told_from_one_that_would_not() {
        let mut table = Table::flowing();
        let would = |table: &Table, news: &Contribution| {
            let would = would_raise(&table.state, &table.policy, news);
            let next = advance(&table.state, &table.policy, news).unwrap();
            let raised = next.claim.finalized_before_us > table.state.published.finalized_before_us;
            assert_eq!(would, raised);
            would
        };
        table.commit(
            news("11:20")
                .rows(0, 4, &["11:10"])
                .rows(1, 4, &["11:10"])
                .asked("10:50", 2),
        );
        let rows = || news("11:21").rows(0, 5, &["11:20"]).rows(1, 5, &["11:19"]);
        assert!(!would(&table, &rows()), "asked too long ago");
        assert!(!would(&table, &rows().asked("11:05", 2)), "less D");
        assert!(would(&table, &rows().asked("11:10", 2)));
        assert!(
            !would(&table, &rows().asked("11:10", 3)),
            "one more is named"
        );
        let one = news("11:21").rows(0, 5, &["11:20"]).asked("11:21", 2);
        assert!(!would(&table, &one), "the other holds");
        let unfit = news("11:21").rows(0, 4, &["11:20"]).asked("11:21", 2);
        assert!(!would_raise(&table.state, &table.policy, &unfit));
        table.policy.bounds.max_delay_us = 0;
        assert!(!would(&table, &rows().asked("11:10", 2)), "other settings");
    }

    /// Else retention passes the offsets, and a restart says that rows are lost.
    #[test]
    fn offsets_without_rows_are_committed_after_an_hour() {
        let mut table = Table::flowing();
        let moved = |now: &str| {
            let mut moved = news(now).rows(0, 4, &[]);
            moved.partitions[0].end_offset = 9;
            moved
        };
        let why = |table: &Table, news: &Contribution| {
            should_commit_empty(&table.state, &table.policy, news)
        };
        assert_eq!(why(&table, &moved("11:40")), None);
        assert_eq!(why(&table, &news("11:41").rows(0, 4, &[])), None);
        assert_eq!(why(&table, &moved("11:41")), Some(EmptyCommit::Moved));
        table.commit(moved("11:41"));
        assert_eq!(table.state.partition(TOPIC, 0).unwrap().next_offset, 9);
        assert_eq!(why(&table, &moved("13:00")), None, "it does not fit");
    }

    /// Revisions are counted by each that edits: two may reach the same settings by different ways.
    #[test]
    fn the_tables_settings_are_current_whatever_their_revision() {
        let mut table = Table::flowing();
        table.policy.revision = 3;
        table.commit(news("10:45").asked("10:45", 2));
        table.policy.revision = 2;
        assert!(is_current(&table.state, &table.policy));
        for partition in [0, 1] {
            table.commit(
                news("11:30")
                    .rows(partition, 4, &["11:20"])
                    .asked("11:30", 2),
            );
            table.commit(news("11:31").rows(partition, 5, &["11:21"]));
        }
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(table.state.policy.revision, 3);
    }

    #[test]
    fn older_settings_carry_the_claim_forward_and_do_not_raise_it() {
        let mut table = Table::flowing();
        table.policy.revision = 2;
        table.policy.bounds.allowed_lateness_us = 0;
        table.commit(news("10:45").asked("10:45", 2));
        table.policy = policy();
        for partition in [0, 1] {
            table.commit(
                news("11:30")
                    .rows(partition, 4, &["11:20"])
                    .asked("11:30", 2),
            );
            table.commit(news("11:31").rows(partition, 5, &["11:21"]));
        }
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        assert_eq!(table.state.hold(false).by, HeldBy::Policy { revision: 2 });
        table.policy = table.state.policy.clone();
        table.commit(news("11:32"));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
    }

    /// The claim is an instant, not the number of a cell: what was final under the old cells stays so.
    #[test]
    fn changed_cells_keep_the_claim_until_one_of_them_ends_behind_it() {
        let mut table = Table::flowing();
        let days = Grid::in_zone(86_400 * SECOND_US, Some("Europe/Berlin")).unwrap();
        table.policy = Policy {
            revision: 2,
            grid: days,
            ..policy()
        };
        let next = table.commit(news("10:50").rows(0, 4, &["10:45"]).asked("10:50", 2));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        assert_eq!(table.properties[contract::LAST_FINAL_CELL], "2026-11-29");
        assert_eq!(next.late.rows(), 0);
        let flow = |table: &mut Table, now: &str, time: &str| {
            for partition in [0, 1] {
                let offset = table.state.partition(TOPIC, partition).unwrap().next_offset;
                table.commit(news(now).rows(partition, offset, &[time]).asked(now, 2));
            }
        };
        for (now, time) in [("22:50", "22:40"), ("22:51", "22:41")] {
            flow(&mut table, now, time);
        }
        assert_eq!(
            table.claim().as_deref(),
            Some("2026-11-30T10:00:00Z"),
            "the day in Berlin ends at 23:00 UTC"
        );
        for (now, time) in [("23:20", "23:10"), ("23:21", "23:11")] {
            flow(&mut table, now, time);
        }
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T23:00:00Z"));
        assert_eq!(table.properties[contract::LAST_FINAL_CELL], "2026-11-30");
        table.policy.revision = 3;
        table.policy.grid = Grid::new(900 * SECOND_US).unwrap();
        flow(&mut table, "23:40", "23:30");
        flow(&mut table, "23:41", "23:31");
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T23:15:00Z"));
        assert_eq!(
            table.properties[contract::LAST_FINAL_CELL],
            "2026-11-30T23:00"
        );
        assert_eq!(table.state.published.epoch, 1);
    }

    #[test]
    fn one_revision_with_two_settings_does_not_raise() {
        let mut table = Table::flowing();
        let other = Policy {
            window_commits: 1,
            ..policy()
        };
        assert!(is_current(&table.state, &policy()) && !is_current(&table.state, &other));
        assert_eq!(other.revision_on(Some(&table.state.policy)), 2);
        assert_eq!(policy().revision_on(Some(&table.state.policy)), 1);
        table.policy = other;
        table.commit(news("10:50"));
        assert_eq!(table.state.policy, policy());
    }

    #[test]
    fn settings_that_hold_more_never_lower_the_claim() {
        let mut table = Table::flowing();
        table.policy = Policy {
            revision: 2,
            window_commits: 9,
            terms: BTreeSet::from([Term::Minimum]),
            ..policy()
        };
        let next = table.commit(news("10:50"));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        assert_eq!(
            next.claim.evidence,
            BTreeSet::from([Term::Minimum]),
            "kept from before"
        );
        assert_eq!(next.claim.margin_us, None, "nothing left to measure it by");
    }

    #[test]
    fn rows_below_the_claim_of_the_base_are_late() {
        let mut table = Table::flowing();
        let next = table.commit(news("10:50").rows(0, 4, &["09:59", "10:00", "08:10"]));
        let late = |from: &str, before: &str| LateCell {
            from_us: at(from),
            before_us: at(before),
            rows: 1,
        };
        assert_eq!(
            next.late.cells,
            [late("08:00", "09:00"), late("09:00", "10:00")]
        );
        assert_eq!(
            table.claim().as_deref(),
            Some("2026-11-30T10:00:00Z"),
            "never lowered"
        );
        let revisions = |table: &Table| -> Vec<u64> {
            let cells = table.state.published.amended.cells();
            cells.iter().map(|cell| cell.revision).collect()
        };
        assert_eq!(revisions(&table), [1, 1]);
        table.commit(news("10:51").rows(0, 7, &["09:58"]));
        assert_eq!(revisions(&table), [1, 2]);
        let covered = table.state.claim().covers(at("09:00"), at("10:00"));
        assert_eq!(
            covered,
            Coverage::BeforeCompleteFrom {
                complete_from_us: at("10:00")
            }
        );
    }

    #[test]
    fn late_rows_that_are_ignored_are_counted_only() {
        let mut table = Table::flowing();
        table.policy.late_data = LateData::Ignore;
        table.policy.revision = 2;
        let next = table.commit(news("10:50").rows(0, 4, &["09:59"]));
        assert_eq!(next.late.rows(), 1);
        assert!(table.state.published.amended.is_empty());
    }

    /// Else whoever waits for the cell reads it while more of its rows are on their way.
    #[test]
    fn a_cell_with_late_rows_is_withheld_until_the_claim_next_rises() {
        let mut table = Table::flowing();
        table.policy = Policy {
            late_data: LateData::Reopen,
            complete_from: FromRule::Unbounded,
            revision: 2,
            ..policy()
        };
        let hour = |table: &Table| table.state.claim().covers(at("09:00"), at("10:00"));
        table.commit(news("10:50").rows(0, 4, &["09:59"]));
        let (from_us, to_us) = (at("09:00"), at("10:00"));
        assert_eq!(hour(&table), Coverage::Withheld { from_us, to_us });
        assert_eq!(
            table.properties[contract::WITHHELD],
            r#"[["2026-11-30T09:00:00Z","2026-11-30T10:00:00Z"]]"#
        );
        let before = table.state.claim().covers(at("08:00"), at("09:00"));
        assert_eq!(before, Coverage::Ready, "its neighbour stands");
        table.commit(news("11:20").rows(1, 4, &["11:10"]).asked("11:20", 2));
        table.commit(news("11:21").rows(1, 5, &["11:11"]));
        table.commit(news("11:22").rows(0, 5, &["11:12"]));
        assert_eq!(
            hour(&table),
            Coverage::Withheld { from_us, to_us },
            "the window still holds the late row"
        );
        table.commit(news("11:23").rows(0, 6, &["11:13", "08:30"]));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        table.commit(news("11:24").rows(0, 8, &["11:14"]));
        table.commit(news("11:25").rows(0, 9, &["11:15", "09:10"]));
        table.commit(news("11:26").rows(0, 11, &["11:16"]));
        table.commit(news("11:27").rows(0, 12, &["11:17"]));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(hour(&table), Coverage::Ready);
        assert!(!table.properties.contains_key(contract::WITHHELD));
        let cells = table.state.published.amended.cells();
        let revisions: Vec<u64> = cells.iter().map(|cell| cell.revision).collect();
        assert_eq!(revisions, [1, 2], "08:00 and 09:00");
    }

    #[test]
    fn a_reader_that_accepts_fewer_terms_gets_the_smaller_claim() {
        let mut table = Table::flowing();
        table.commit(
            news("12:21")
                .rows(0, 4, &[])
                .end("12:20", 4)
                .asked("12:20", 2),
        );
        table.commit(news("12:21").rows(1, 4, &[]).end("12:20", 4));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T12:00:00Z"));
        let accepted = |term: Term| table.state.accepted(&BTreeSet::from([term]));
        assert_eq!(accepted(Term::CaughtUp), Some(at("12:00")));
        assert_eq!(accepted(Term::Minimum), Some(at("10:00")));
        assert_eq!(table.state.accepted(&BTreeSet::new()), None);
    }
}
