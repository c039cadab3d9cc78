//! From a table's lineage to the state a worker goes on from.
//!
//! In: the table's identity, its properties, its ancestry, and what its owner has agreed to. Out: a [`Standing`], where the
//! writer goes on and with which step of the epoch, or the [`Obstacle`] that only a person can take away. Foreign snapshots
//! are walked over; ours are keyed by commit id. Precedence: the newest own ancestor's summary, then the state, then the
//! properties.
//!
//! A commit that is gone from the ancestry is never counted as read, and one that may be there is never read again: what
//! cannot be told apart is an obstacle.
//!
//! Decided here, where the rules leave it open:
//! - A summary that cannot be read cuts the chain, as an expired one does. After a cut, complete-from can no longer fall
//!   below what was published, and windows begin anew.
//! - A table with its UUID and none of our commits, where nothing has expired, was replaced (`CREATE OR REPLACE`), or rolled
//!   back behind the first commit. It is not gone on from without leave: nobody can tell what the new rows are.
//! - A copy of our commit made by a cherry-pick has rows without a summary. Copies below the newest own commit were there
//!   when that was made, and count no more.
//! - Leave to go on names a snapshot above the newest own commit, so that it works once.
//! - What a worker has seen on the table in the same process counts like the state: a table restored from an old metadata file
//!   brings its old properties along, and looks whole.

use uuid::Uuid;

use super::codec::Unreadable;
use super::contract::{
    BadValue, TableClaim, read_properties, read_summary_claim, seen_by, state_property,
};
use super::epoch::StepCause;
use super::event_time::{SECOND_US, floor_second};
use super::lineage::{Ancestor, Picked, TableView};
use super::rebuild::{brought_forward, check_ids, fold, readable};
use super::standing::{Asker, Beginning, GoingOn, Obstacle, RolledBack, Seen, Standing};
use super::state::State;
use super::told::Told;
use super::writers::{self, EPOCHS_UNDONE, is_vouched, newest_word, peers};

/// How far the clocks of two workers may be apart: what is asked of them for catalogs, too.
const CLOCKS_US: i64 = 60 * SECOND_US;

/// Where a writer goes on, beside the other writers of the table.
///
/// # Errors
/// When the table is not one to go on from without somebody's decision.
pub fn stand(asker: &Asker<'_>, table: &TableView<'_>) -> Result<Standing, Obstacle> {
    let mut standing = stand_alone(asker, table)?;
    let (peers, told) = (peers(asker.writer, table)?, Told::by(table));
    match &mut standing {
        Standing::GoesOn(going_on) => {
            going_on.state.peers = peers;
            going_on.state.follow(&told, asker.now_us);
        }
        Standing::Begins(beginning) => {
            (beginning.peers, beginning.told) = (peers, told);
        }
    }
    Ok(standing)
}

/// Where a writer goes on by what is known of it.
fn stand_alone(asker: &Asker<'_>, table: &TableView<'_>) -> Result<Standing, Obstacle> {
    let snapshots = &table.lineage.snapshots;
    let own: Vec<&Ancestor> = snapshots.iter().filter(|s| s.is_of(asker.writer)).collect();
    let mut state = read_state(asker, table, own.is_empty())?;
    let mut known = Known::of(asker, table, state.as_ref());
    if let Some(void) = known.void(table) {
        if asker.accept.table_uuid != Some(table.table_uuid) {
            return Err(void);
        }
        // A table that names itself is only another one than this process has seen: it is gone on from where it stands.
        let itself = known
            .commits
            .iter()
            .all(|known| known.seen || known.is_here(table));
        if !itself || (state.is_none() && own.is_empty()) {
            return Ok(Standing::Begins(known.beginning(None)));
        }
        known.commits.retain(|known| !known.seen);
    }
    if own.is_empty()
        && let Some(seen) = state.take_if(|known| is_vouched(asker.writer, known.commit_id, table))
    {
        return Ok(going_on(seen, table, false));
    }
    if own.is_empty() {
        return stand_without_commits(asker, table, &known, state);
    }
    if let Some(current) = state.take_if(|state| own[0].commit_id() == Some(state.commit_id)) {
        if known.gone(&own, None, current.published.epoch).is_none()
            && copy_above(asker.writer, table, false).is_none()
        {
            return Ok(going_on(current, table, false));
        }
        state = Some(current);
    }
    let newest = snapshots.iter().position(|s| s.is_of(asker.writer));
    match stand_on_summaries(asker, table, &known, (&own, state.clone())) {
        // No older than the newest commit, of which nobody can tell what it holds.
        Err(Obstacle::Damaged { .. })
            if agreed_at(asker, table).is_some_and(|at| Some(at) <= newest) =>
        {
            Ok(known.begins_on_damaged(asker, state))
        }
        stood => stood,
    }
}

/// Where the summaries of the writer's own commits lead, with the state on record where there is one.
fn stand_on_summaries(
    asker: &Asker<'_>,
    table: &TableView<'_>,
    known: &Known,
    (own, state): (&[&Ancestor], Option<State>),
) -> Result<Standing, Obstacle> {
    let (summaries, unreadable) = readable(asker.writer, own)?;
    let Some(newest) = summaries.last() else {
        return stand_without_commits(asker, table, known, state);
    };
    if !table.is(newest.table_uuid, &newest.table_ref) {
        return Err(void(table, newest.table_uuid, &newest.table_ref));
    }
    let cut = unreadable || table.lineage.broken;
    let cut_us = cut.then_some(summaries[0].record.committed_at_us);
    let lost = known.gone(own, cut_us, newest.published.epoch);
    if let Some(copy) = copy_above(asker.writer, table, lost.is_some()) {
        if agreed_at(asker, table).is_some_and(|at| at <= copy) {
            let kept = state.unwrap_or_else(|| fold(None, &summaries, cut));
            return Ok(Standing::Begins(known.beginning(Some(kept))));
        }
        return Err(Obstacle::CherryPicked {
            writer: asker.writer.to_owned(),
            snapshot_id: table.lineage.snapshots[copy].snapshot_id,
        });
    }
    let Some(lost) = lost else {
        let state = brought_forward(state, own, &summaries, cut);
        check_ids(&state, newest)?;
        return Ok(going_on(state, table, true));
    };
    let restored = fold(None, &summaries, cut);
    check_ids(&restored, newest)?;
    let mut going_on = Box::new(GoingOn {
        state: restored,
        rebuilt: true,
        differs: true,
        rolled_back: Some(RolledBack {
            lost: lost.commit_id,
            kept: state.filter(|_| asker.keep_offsets).map(Box::new),
        }),
    });
    known.step_back(&mut going_on.state, asker.now_us);
    Ok(Standing::GoesOn(going_on))
}

/// The state property. Damaged, it is rebuilt, unless there is nothing to rebuild it from.
fn read_state(
    asker: &Asker<'_>,
    table: &TableView<'_>,
    alone: bool,
) -> Result<Option<State>, Obstacle> {
    let name = state_property(asker.writer);
    let writer = || asker.writer.to_owned();
    match table.properties.get(&name).map(|text| State::decode(text)) {
        Some(Err(source @ Unreadable::Damaged)) if alone && agreed_at(asker, table).is_none() => {
            let source = BadValue::Packed { name, source };
            Err(Obstacle::Damaged {
                writer: writer(),
                source,
            })
        }
        None | Some(Err(Unreadable::Damaged)) => Ok(None),
        Some(Err(source)) => Err(Obstacle::Newer {
            writer: writer(),
            source,
        }),
        Some(Ok(state)) => Ok(Some(state)),
    }
}

/// Where the snapshot of the ancestry is that the owner has named to go on from, counted from the newest.
fn agreed_at(asker: &Asker<'_>, table: &TableView<'_>) -> Option<usize> {
    let id = asker.accept.snapshot_id?;
    let mut snapshots = table.lineage.snapshots.iter();
    snapshots.position(|snapshot| snapshot.snapshot_id == id)
}

fn stand_without_commits(
    asker: &Asker<'_>,
    table: &TableView<'_>,
    known: &Known,
    state: Option<State>,
) -> Result<Standing, Obstacle> {
    let Some(last) = known.newest() else {
        return Ok(Standing::Begins(Beginning::default()));
    };
    let (writer, broken) = (asker.writer.to_owned(), table.lineage.broken);
    if agreed_at(asker, table).is_some() {
        // Where the table was replaced the rows are gone for certain; else they are there as far as anybody knows.
        // Rows that somebody deleted stay away from a table that has the others.
        let untold = broken && state.is_none();
        let kept = state.filter(|_| broken || asker.keep_offsets);
        let begins = Beginning {
            untold,
            ..known.beginning(kept)
        };
        return Ok(Standing::Begins(begins));
    }
    Err(if broken {
        Obstacle::LineageUnknown { writer }
    } else {
        let commit_id = last.commit_id;
        Obstacle::Replaced { writer, commit_id }
    })
}

/// The newest snapshot above the newest own commit that repeats one of the writer's. `lost`: commits of the writer are gone, so
/// that a copy of something unknown may be one of them.
fn copy_above(writer: &str, table: &TableView<'_>, lost: bool) -> Option<usize> {
    let newer = table
        .lineage
        .snapshots
        .iter()
        .take_while(|s| !s.is_of(writer));
    newer
        .map(|snapshot| &snapshot.picked)
        .position(|picked| match picked {
            Some(Picked::Ours(name)) => name == writer,
            Some(Picked::Gone) => lost,
            Some(Picked::Foreign) | None => false,
        })
}

fn going_on(state: State, table: &TableView<'_>, rebuilt: bool) -> Standing {
    let claimed = read_properties(table.properties).ok().flatten();
    let differs = claimed.is_none_or(|claimed| {
        let (there, here) = (&claimed.claim, &state.published);
        claimed.commit_id != state.commit_id
            || there.epoch != here.epoch
            || there.finalized_before_us != here.finalized_before_us
    });
    Standing::GoesOn(Box::new(GoingOn {
        state,
        rebuilt,
        differs,
        rolled_back: None,
    }))
}

/// A commit that something names beside the ancestry.
#[derive(Clone, Debug)]
struct KnownCommit {
    commit_id: Uuid,
    table_uuid: Uuid,
    table_ref: Option<String>,
    /// `None`: only the order of ids tells.
    committed_at_us: Option<i64>,
    epoch: u64,
    claimed_us: Option<i64>,
    /// Whether only this process knows of it.
    seen: bool,
}

impl KnownCommit {
    fn is_here(&self, table: &TableView<'_>) -> bool {
        let table_ref = self.table_ref.as_deref().unwrap_or(table.table_ref);
        table.is(self.table_uuid, table_ref)
    }
}

/// The newest commit of a writer by the word of another one's, which has counted its epoch and its claim in.
fn told_of(writer: &str, table: &TableView<'_>) -> Option<KnownCommit> {
    let word = newest_word(table)?;
    let commit_id = seen_by(word)?.remove(writer)?;
    let told = read_summary_claim(word).ok()??;
    Some(KnownCommit {
        commit_id,
        table_uuid: told.table_uuid,
        table_ref: Some(told.table_ref),
        committed_at_us: None,
        epoch: told.claim.epoch,
        claimed_us: told.claim.finalized_before_us,
        seen: false,
    })
}

/// What state, properties and memory name, the surest first.
struct Known {
    commits: Vec<KnownCommit>,
    /// Whether the table has other writers.
    shared: bool,
}

impl Known {
    fn of(asker: &Asker<'_>, table: &TableView<'_>, state: Option<&State>) -> Self {
        let of_state = |state: &State| KnownCommit {
            commit_id: state.commit_id,
            table_uuid: state.identity.table_uuid,
            table_ref: Some(state.identity.table_ref.clone()),
            committed_at_us: Some(state.committed_at_us),
            epoch: state.published.epoch,
            claimed_us: claimed_or_reopened(state),
            seen: false,
        };
        let of_seen = |seen: Seen| KnownCommit {
            commit_id: seen.commit_id,
            table_uuid: seen.table_uuid,
            table_ref: None,
            committed_at_us: Some(seen.committed_at_us),
            epoch: seen.epoch,
            claimed_us: seen.finalized_before_us,
            seen: true,
        };
        let of_property = |claim: TableClaim| KnownCommit {
            commit_id: claim.commit_id,
            table_uuid: claim.table_uuid,
            table_ref: Some(claim.table_ref),
            committed_at_us: None,
            epoch: claim.claim.epoch,
            claimed_us: claim.claim.finalized_before_us,
            seen: false,
        };
        // The claim may be another writer's: a commit in the ancestry explains it, whosever it is.
        let property = read_properties(table.properties).ok().flatten();
        let property = property.filter(|claim| {
            let mut own = table.lineage.snapshots.iter().filter(|own| own.is_own());
            state.is_none() && !own.any(|own| own.commit_id() == Some(claim.commit_id))
        });
        let alone = state.is_none()
            && !table
                .lineage
                .snapshots
                .iter()
                .any(|s| s.is_of(asker.writer));
        let state = state.map(of_state).into_iter();
        let others = asker
            .seen
            .map(of_seen)
            .into_iter()
            .chain(property.map(of_property))
            .chain(told_of(asker.writer, table).filter(|_| alone));
        Self {
            commits: state.chain(others).collect(),
            shared: !writers::others(asker.writer, table).is_empty(),
        }
    }

    fn newest(&self) -> Option<&KnownCommit> {
        self.commits.first()
    }

    /// The first that is about another table.
    fn void(&self, table: &TableView<'_>) -> Option<Obstacle> {
        let other = self.commits.iter().find(|known| !known.is_here(table))?;
        let table_ref = other.table_ref.as_deref().unwrap_or(table.table_ref);
        Some(void(table, other.table_uuid, table_ref))
    }

    /// The first that was made on this ancestry's own commits and is not among them. `cut_us`: the time of the oldest of them,
    /// where what came before it has expired. `epoch`: that of the newest; what was seen in an earlier one is a loss that
    /// another worker of the writer has taken up already. What is not clearly older than the cut is gone: two workers may
    /// commit in one second, and their clocks differ.
    fn gone(&self, own: &[&Ancestor], cut_us: Option<i64>, epoch: u64) -> Option<&KnownCommit> {
        let newest = own.first().and_then(|own| own.commit_id());
        let current = |known: &&KnownCommit| !known.seen || known.epoch >= epoch;
        self.commits.iter().filter(current).find(|known| {
            let there = own
                .iter()
                .any(|own| own.commit_id() == Some(known.commit_id));
            let expired = match known.committed_at_us {
                Some(at_us) => {
                    cut_us.is_some_and(|cut_us| at_us.saturating_add(CLOCKS_US) < cut_us)
                }
                None => newest > Some(known.commit_id),
            };
            !there && !expired
        })
    }

    fn last_epoch(&self) -> u64 {
        self.commits
            .iter()
            .map(|known| known.epoch)
            .max()
            .unwrap_or(0)
    }

    fn claimed_us(&self) -> Option<i64> {
        self.commits
            .iter()
            .filter_map(|known| known.claimed_us)
            .max()
    }

    fn beginning(&self, kept: Option<State>) -> Beginning {
        // Where the state was lost, only what was rebuilt from the summaries knows how far it had got.
        let epoch = kept.as_ref().map_or(0, |kept| kept.published.epoch);
        let claimed_us = kept.as_ref().and_then(claimed_or_reopened);
        // The step to the first commit is the last of those that the others may have counted.
        let counted = if self.shared { EPOCHS_UNDONE - 1 } else { 0 };
        Beginning {
            last_epoch: self.last_epoch().max(epoch).max(1) + counted,
            claimed_us: self.claimed_us().max(claimed_us),
            kept: kept.map(Box::new),
            ..Beginning::default()
        }
    }

    /// Commits of the writer are there, and what they hold nobody can tell.
    fn begins_on_damaged(&self, asker: &Asker<'_>, state: Option<State>) -> Standing {
        let kept = state.filter(|_| asker.keep_offsets);
        Standing::Begins(Beginning {
            untold: kept.is_none(),
            ..self.beginning(kept)
        })
    }

    /// The step of the epoch from what was known back to a restored state.
    fn step_back(&self, state: &mut State, now_us: i64) {
        let published = &mut state.published;
        let restored_us = published.finalized_before_us;
        published.epoch = published.epoch.max(self.last_epoch());
        published.finalized_before_us = restored_us.max(self.claimed_us());
        published.step(StepCause::RolledBack, restored_us, floor_second(now_us));
    }
}

/// The greatest claim of a state that readers may remember.
fn claimed_or_reopened(state: &State) -> Option<i64> {
    let reopened = state.published.reopened.map(|reopened| reopened.before_us);
    reopened.max(state.published.finalized_before_us)
}

fn void(table: &TableView<'_>, table_uuid: Uuid, table_ref: &str) -> Obstacle {
    Obstacle::Void {
        here: table.table_uuid,
        table_uuid,
        table_ref: table_ref.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::contract::{COMMIT_ID, FINALIZED_BEFORE, OFFSETS};
    use super::super::testing::{
        TOPIC, Table, WRITER, at, complete_from, from, identity, news, policy,
    };
    use super::super::{
        Accepted, CompleteFrom, Contribution, HeldBy, Jump, JumpKind, Order, Policy, Reopened,
        Retraction, Term, keep_offsets,
    };
    use super::*;

    fn stand_as(asker: Asker<'_>, table: &Table) -> Result<Standing, Obstacle> {
        stand(&asker, &table.view())
    }

    fn stand_on(table: &Table) -> Result<Standing, Obstacle> {
        stand_as(Asker::new(WRITER, at("11:30")), table)
    }

    fn going_on(table: &Table) -> GoingOn {
        match stand_on(table).unwrap() {
            Standing::GoesOn(going_on) => *going_on,
            Standing::Begins(beginning) => panic!("{beginning:?}"),
        }
    }

    fn beginning(asker: Asker<'_>, table: &Table) -> Beginning {
        match stand_as(asker, table).unwrap() {
            Standing::Begins(beginning) => beginning,
            Standing::GoesOn(going_on) => panic!("{going_on:?}"),
        }
    }

    /// An owner who has agreed to go on from a snapshot.
    fn agreeing(snapshot_id: i64) -> Asker<'static> {
        Asker {
            accept: Accepted {
                snapshot_id: Some(snapshot_id),
                table_uuid: None,
            },
            ..Asker::new(WRITER, at("11:30"))
        }
    }

    fn seeing(state: &State) -> Asker<'static> {
        Asker {
            seen: Some(Seen::of(state)),
            ..Asker::new(WRITER, at("11:30"))
        }
    }

    fn drop_state(table: &mut Table) {
        table.properties.remove(&state_property(WRITER));
    }

    fn next_offsets(state: &State) -> BTreeMap<i32, i64> {
        let all = state.partitions();
        all.map(|(_, partition, known)| (partition, known.next_offset))
            .collect()
    }

    /// The state as it was after so many commits of [`Table::flowing`].
    fn flowing_until(commits: usize) -> State {
        let mut table = Table::flowing();
        table.roll_back(5 - commits);
        table.properties.clear();
        going_on(&table).state
    }

    #[test]
    fn a_new_table_has_nothing_to_stand_on() {
        let mut table = Table::new(policy());
        let fresh = Ok(Standing::Begins(Beginning::default()));
        assert_eq!(stand_on(&table), fresh);
        table.foreign(None);
        table.lineage.broken = true;
        assert_eq!(stand_on(&table), fresh, "an old table of others");
        let epoch = Beginning::default().state(identity(), TOPIC, policy(), at("09:00"));
        assert_eq!(epoch, State::new(identity(), TOPIC, policy(), at("09:00")));
    }

    #[test]
    fn the_state_is_taken_as_it_stands_behind_foreign_snapshots() {
        let mut table = Table::flowing();
        table.foreign(None);
        table.foreign(Some(Picked::Foreign));
        table.foreign(Some(Picked::Gone));
        let standing = going_on(&table);
        assert_eq!((standing.rebuilt, standing.differs), (false, false));
        assert_eq!(standing.state, table.state);
    }

    #[test]
    fn a_lost_state_is_rebuilt_as_it_was() {
        let mut table = Table::flowing();
        table.commit(news("10:45").jump(0, 4, 9, JumpKind::Forward));
        drop_state(&mut table);
        let standing = going_on(&table);
        assert!(standing.rebuilt && !standing.differs);
        assert_eq!(standing.state, table.state);
    }

    /// A topic that left and came back is a new one: nothing of before may stick to it.
    #[test]
    fn topics_that_left_and_a_changed_subscription_are_rebuilt_as_they_were() {
        let mut table = Table::flowing();
        let name = state_property(WRITER);
        let items = |news: Contribution| news.of("shop.items");
        table.commit(items(news("10:45").anchor(0, 0)));
        table.commit(items(news("10:46").rows(0, 0, &["10:40", "10:41"])));
        let before = table.properties[&name].clone();
        let left = news("10:47").retire("shop.items").reading("shop.o*");
        table.commit(left);
        assert_eq!(table.state.subscription, "");
        drop_state(&mut table);
        assert_eq!(going_on(&table).state, table.state);
        table.commit(news("10:48").asked("10:48", 2).reading("shop.*"));
        let back = news("10:49").anchor(0, 2).back(2);
        table.commit(items(back.reading("shop.*")));
        for text in [None, Some(before)] {
            drop_state(&mut table);
            let text = text.map(|text| (name.clone(), text));
            table.properties.extend(text);
            let standing = going_on(&table);
            assert!(standing.rebuilt && !standing.differs);
            assert_eq!(standing.state, table.state);
            assert_eq!(standing.state.subscription, "shop.*");
        }
    }

    /// After expiry only what is left can be shown; nothing may become more than was claimed.
    #[test]
    fn a_broken_chain_keeps_the_claim_its_edges_and_the_offsets() {
        let mut table = Table::flowing();
        table.commit(news("10:45").jump(0, 4, 9, JumpKind::Forward));
        table.commit(news("10:46").rows(1, 4, &["10:40"]));
        drop_state(&mut table);
        table.lineage.snapshots.truncate(1);
        table.lineage.broken = true;
        let state = going_on(&table).state;
        assert_eq!(state.published.finalized_before_us, Some(at("10:00")));
        assert_eq!(
            state.published.complete_from,
            table.state.published.complete_from
        );
        assert_eq!(
            state.gaps(),
            table.state.gaps(),
            "an open gap stays as wide as it can get"
        );
        let next = |partition: i32| state.partition(TOPIC, partition).unwrap().next_offset;
        assert_eq!((next(0), next(1)), (9, 5));
        let by = HeldBy::Partition {
            topic: TOPIC.to_owned(),
            partition: 0,
            term: None,
        };
        assert_eq!(state.hold(true).by, by, "its window is gone");
    }

    #[test]
    fn a_cut_inside_the_window_duration_is_unknown_until_it_has_aged() {
        let mut table = Table::flowing();
        table.policy = Policy {
            revision: 2,
            window_duration_us: 3600 * 1_000_000,
            terms: [Term::Minimum].into(),
            ..policy()
        };
        for offset in 0..3 {
            table.commit(news("10:50").rows(0, 4 + offset, &["10:45"]));
            table.commit(news("10:50").rows(1, 4 + offset, &["10:45"]));
        }
        drop_state(&mut table);
        table.lineage.snapshots.truncate(6);
        table.lineage.broken = true;
        table.state = going_on(&table).state;
        for (now, known) in [("11:40", false), ("11:51", true)] {
            let offset = table.state.partition(TOPIC, 0).unwrap().next_offset;
            table.commit(news(now).rows(0, offset, &["11:30"]));
            let partition = table.state.partition(TOPIC, 0).unwrap();
            assert_eq!(
                table.state.view().frontier(partition).is_some(),
                known,
                "at {now}"
            );
        }
    }

    #[test]
    fn partitions_that_are_gone_stay_gone_in_a_rebuild() {
        let mut table = Table::flowing();
        table.commit(news("12:30").jump(1, 4, 4, JumpKind::Gone));
        table.commit(news("12:31").rows(0, 4, &["12:20"]).asked("12:31", 1));
        drop_state(&mut table);
        assert_eq!(going_on(&table).state, table.state);
        table.commit(news("12:33").jump(0, 5, 5, JumpKind::Gone));
        drop_state(&mut table);
        assert_eq!(going_on(&table).state, table.state);
    }

    #[test]
    fn a_state_left_behind_is_brought_forward() {
        let mut table = Table::flowing();
        let before = table.properties.clone();
        table.commit(
            news("11:30")
                .rows(0, 4, &[])
                .end("11:30", 4)
                .asked("11:30", 2),
        );
        table.commit(news("11:30").rows(1, 4, &[]).end("11:30", 4));
        table.properties = before;
        let standing = going_on(&table);
        assert!(standing.rebuilt && standing.differs && standing.rolled_back.is_none());
        assert_eq!(standing.state, table.state);
    }

    #[test]
    fn a_damaged_state_is_rebuilt_and_a_newer_one_holds() {
        let mut table = Table::flowing();
        let name = state_property(WRITER);
        table.properties.insert(name.clone(), "garbage".to_owned());
        assert_eq!(going_on(&table).state, table.state);
        table.properties.insert(name, "Aw==".to_owned());
        let source = Unreadable::Newer { version: 3 };
        let writer = WRITER.to_owned();
        assert_eq!(stand_on(&table), Err(Obstacle::Newer { writer, source }));
    }

    /// The message named a way on that led nowhere: commits were there, and none of them could be read.
    #[test]
    fn damaged_summaries_are_gone_on_from_by_the_owners_word_once() {
        let mut table = Table::flowing();
        drop_state(&mut table);
        let older = table.lineage.snapshots[1].snapshot_id;
        let newest = &mut table.lineage.snapshots[0];
        let summary = newest.summary.to_mut();
        summary.insert(OFFSETS.to_owned(), "garbage".to_owned());
        let newest = newest.snapshot_id;
        let damaged = stand_on(&table);
        assert!(matches!(damaged, Err(Obstacle::Damaged { .. })));
        assert_eq!(stand_as(agreeing(older), &table), damaged, "from before it");
        let foreign = table.foreign(None);
        for snapshot_id in [newest, foreign] {
            let begins = beginning(agreeing(snapshot_id), &table);
            assert_eq!((begins.last_epoch, &begins.kept), (1, &None));
            table.state = begins.state(identity(), TOPIC, policy(), at("11:30"));
        }
        table.commit(news("11:30").anchor(0, 0).anchor(1, 0));
        assert_eq!(table.state.published.epoch, 2);
        let reopened = table.state.published.reopened.unwrap();
        assert_eq!(reopened.before_us, at("10:00"));
        let mut agreed = agreeing(foreign);
        for text in [true, false] {
            let going_on = stand_as(agreed, &table).unwrap();
            assert!(matches!(going_on, Standing::GoesOn(_)), "it works once");
            if text {
                drop_state(&mut table);
            }
            agreed = agreeing(newest);
        }
    }

    /// Rows that are gone have to be read again, and the cells that they were in are open again.
    #[test]
    fn a_roll_back_restores_everything_and_opens_an_epoch() {
        let mut table = Table::flowing();
        table.commit(
            news("11:31")
                .rows(0, 4, &["11:20", "11:25"])
                .end("11:31", 6)
                .asked("11:30", 2),
        );
        table.commit(news("11:32").rows(1, 4, &[]).end("11:32", 4));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        table.roll_back(3);
        let standing = going_on(&table);
        let mut restored = flowing_until(4);
        assert_eq!(next_offsets(&restored), BTreeMap::from([(0, 4), (1, 2)]));
        assert_eq!(restored.published.finalized_before_us, None);
        restored.published.epoch = 2;
        restored.published.reopened = Some(Reopened {
            cause: StepCause::RolledBack,
            from_us: None,
            before_us: at("11:00"),
            at_us: at("11:30"),
        });
        assert_eq!(standing.state, restored);
        let lost = Uuid::from_u128(7);
        assert_eq!(standing.rolled_back, Some(RolledBack { lost, kept: None }));
        assert!(standing.differs);
    }

    /// The commit that takes the step up is found in the ancestry: a second roll-back is another step.
    #[test]
    fn an_epoch_is_opened_once_and_closed_when_the_claim_is_back() {
        let mut table = Table::flowing();
        table.roll_back(2);
        table.state = going_on(&table).state;
        table.commit(news("10:50").asked("10:50", 2));
        let standing = going_on(&table);
        assert_eq!(standing.rolled_back, None);
        assert_eq!(standing.state, table.state);
        assert_eq!(table.state.published.epoch, 2);
        assert!(table.state.published.reopened.is_some());
        drop_state(&mut table);
        assert_eq!(going_on(&table).state, table.state, "rebuilt as well");

        table.commit(
            news("10:51")
                .rows(0, 2, &["10:30", "10:39"])
                .end("10:51", 4),
        );
        table.commit(news("10:52").rows(1, 2, &["10:33", "10:36"]));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        assert_eq!(table.state.published.reopened, None);

        table.roll_back(2);
        assert_eq!(going_on(&table).state.published.epoch, 3);
    }

    /// Rolled forward to where it had been rolled back from: the commits in between are gone now.
    #[test]
    fn a_restored_snapshot_is_a_roll_back_to_it() {
        let mut table = Table::flowing();
        let all = table.lineage.clone();
        let before = table.state.clone();
        table.roll_back(2);
        table.state = going_on(&table).state;
        table.commit(news("10:50").asked("10:50", 2));
        table.lineage = all;
        let standing = going_on(&table);
        assert_eq!(next_offsets(&standing.state), next_offsets(&before));
        let published = &standing.state.published;
        assert_eq!(
            (published.epoch, published.finalized_before_us),
            (3, Some(at("10:00")))
        );
        assert_eq!(published.reopened, None, "nothing was claimed beyond it");
    }

    #[test]
    fn a_roll_back_without_a_state_is_seen_by_the_claim_alone() {
        let mut table = Table::flowing();
        drop_state(&mut table);
        table.roll_back(1);
        let standing = going_on(&table);
        assert_eq!(standing.state.published.epoch, 2);
        assert_eq!(standing.rolled_back.unwrap().lost, Uuid::from_u128(5));
    }

    /// `onRollback: KeepOffsets`: what is gone is not read again, and the claim says so.
    #[test]
    fn kept_offsets_leave_a_gap() {
        let mut table = Table::flowing();
        table.commit(news("10:45").anchor(2, 0));
        table.commit(news("10:46").rows(2, 0, &["10:44"]).asked("10:46", 3));
        table.commit(news("10:47").rows(1, 4, &["10:45", "10:46"]));
        table.roll_back(3);
        let asker = Asker {
            keep_offsets: true,
            ..Asker::new(WRITER, at("11:30"))
        };
        let Ok(Standing::GoesOn(standing)) = stand_as(asker, &table) else {
            panic!("no standing")
        };
        let kept = standing.rolled_back.unwrap().kept.unwrap();
        table.state = standing.state;
        let (jumps, anchors) =
            keep_offsets((&table.state, &kept), Vec::new(), |_| true, at("10:50"));
        table.commit(Contribution {
            anchors,
            jumps,
            ..news("10:50")
        });
        assert_eq!(
            next_offsets(&table.state),
            BTreeMap::from([(0, 4), (1, 6), (2, 1)])
        );
        assert_eq!(table.state.gaps().stretches(), [(at("10:00"), at("11:00"))]);
        assert_eq!(table.state.published.epoch, 2);
        drop_state(&mut table);
        assert_eq!(going_on(&table).state, table.state, "rebuilt as well");
    }

    /// Rolled back, and no longer named by the specification: a jump of a topic that leaves fits no base, and the pipeline stood still
    /// for good.
    #[test]
    fn offsets_of_a_topic_that_leaves_with_the_roll_back_are_not_kept() {
        const ITEMS: &str = "shop.items";
        let mut table = Table::flowing();
        table.commit(news("10:45").anchor(0, 0).of(ITEMS));
        table.commit(news("10:46").rows(0, 0, &["10:44"]).of(ITEMS));
        let kept = table.state.clone();
        table.roll_back(1);
        table.state = going_on(&table).state;
        let named = |topic: &str| topic == TOPIC;
        let (jumps, anchors) = keep_offsets((&table.state, &kept), Vec::new(), named, at("10:50"));
        table.commit(Contribution {
            anchors,
            jumps,
            ..news("10:50").retire(ITEMS)
        });
        let left = table.state.left.next_offset(ITEMS, None, 0);
        assert_eq!(left, Some(0), "what is gone is read should it come back");
    }

    #[test]
    fn a_roll_back_over_expired_snapshots_is_told_from_expiry() {
        let mut table = Table::flowing();
        table.roll_back(1);
        table.lineage.snapshots.truncate(2);
        table.lineage.broken = true;
        let standing = going_on(&table);
        assert_eq!(
            next_offsets(&standing.state),
            BTreeMap::from([(0, 4), (1, 2)])
        );
        assert_eq!(standing.state.published.epoch, 2);
    }

    /// Its old metadata file brings its old properties along: only who has seen more can tell.
    #[test]
    fn a_table_restored_from_an_old_metadata_file_is_a_roll_back() {
        let mut old = Table::anchored("09:00", 2);
        old.commit(
            news("10:20")
                .rows(0, 0, &["10:10", "10:15"])
                .asked("10:19", 2),
        );
        let table = Table::flowing();
        assert_eq!(going_on(&old).rolled_back, None);
        let Ok(Standing::GoesOn(standing)) = stand_as(seeing(&table.state), &old) else {
            panic!("no standing")
        };
        assert!(standing.rolled_back.is_some());
        let published = &standing.state.published;
        let before_us = at("10:00");
        let cause = StepCause::RolledBack;
        assert_eq!(published.epoch, 2);
        assert_eq!(
            published.reopened,
            Some(Reopened {
                cause,
                from_us: None,
                before_us,
                at_us: at("11:30"),
            })
        );
        old.properties.clear();
        old.lineage.snapshots.clear();
        let made_again = TableView {
            table_uuid: Uuid::from_u128(8),
            ..old.view()
        };
        let void = stand(&seeing(&table.state), &made_again);
        assert!(matches!(void, Err(Obstacle::Void { .. })), "{void:?}");
    }

    /// Two workers of one writer: the first to look takes the roll-back up, and the second remembers what is gone.
    #[test]
    fn a_loss_that_another_worker_has_taken_up_is_none_any_more() {
        let mut table = Table::flowing();
        let before = table.state.clone();
        table.roll_back(2);
        table.state = going_on(&table).state;
        table.commit(news("10:50").asked("10:50", 2));
        let Ok(Standing::GoesOn(second)) = stand_as(seeing(&before), &table) else {
            panic!("no standing")
        };
        assert_eq!(
            (second.rolled_back, second.state),
            (None, table.state.clone())
        );
        // It happens again before the second has looked.
        table.roll_back(1);
        let Ok(Standing::GoesOn(second)) = stand_as(seeing(&before), &table) else {
            panic!("no standing")
        };
        assert!(second.rolled_back.is_some());
        assert_eq!(second.state.published.epoch, 3);
    }

    /// Somebody put another table of ours under the name, with a history of its own.
    #[test]
    fn another_table_of_ours_is_gone_on_from_where_it_stands_once_accepted() {
        let table = Table::flowing();
        let mut before = table.state.clone();
        before.identity.table_uuid = Uuid::from_u128(8);
        let refused = stand_as(seeing(&before), &table);
        assert!(matches!(refused, Err(Obstacle::Void { .. })), "{refused:?}");
        let agreeing = Asker {
            accept: Accepted {
                table_uuid: Some(Uuid::from_u128(7)),
                snapshot_id: None,
            },
            ..seeing(&before)
        };
        let Ok(Standing::GoesOn(standing)) = stand_as(agreeing, &table) else {
            panic!("no standing")
        };
        assert_eq!((standing.rolled_back, standing.state), (None, table.state));
    }

    /// Somebody's expiry took all of our snapshots: what the state says may be there or not.
    #[test]
    fn a_broken_chain_without_a_commit_of_ours_needs_leave() {
        let mut table = Table::flowing();
        table.lineage.snapshots.clear();
        table.lineage.broken = true;
        let snapshot_id = table.foreign(None);
        let unknown = Obstacle::LineageUnknown {
            writer: WRITER.to_owned(),
        };
        assert!(unknown.withdraws());
        assert_eq!(stand_on(&table), Err(unknown.clone()));
        assert_eq!(
            stand_as(agreeing(17), &table),
            Err(unknown.clone()),
            "another snapshot"
        );

        let begins = beginning(agreeing(snapshot_id), &table);
        assert_eq!(begins.kept.as_deref(), Some(&table.state));
        let kept = table.state.clone();
        table.state = begins.state(identity(), TOPIC, policy(), at("11:30"));
        let (jumps, anchors) =
            keep_offsets((&table.state, &kept), Vec::new(), |_| true, at("11:30"));
        table.commit(Contribution {
            anchors,
            jumps,
            ..news("11:30")
        });
        let published = &table.state.published;
        assert_eq!((published.epoch, published.finalized_before_us), (2, None));
        assert_eq!(
            published.complete_from,
            CompleteFrom::From(at("12:00")),
            "as at a first commit"
        );
        let before_us = at("10:00");
        let cause = StepCause::LineageAccepted;
        assert_eq!(
            published.reopened,
            Some(Reopened {
                cause,
                from_us: None,
                before_us,
                at_us: at("11:30"),
            })
        );
        assert_eq!(next_offsets(&table.state), next_offsets(&kept));
        assert_eq!(
            going_on(&table).state,
            table.state,
            "leave is no longer needed"
        );

        table.roll_back(table.lineage.snapshots.len());
        table.lineage.snapshots.clear();
        table.foreign(None);
        table.lineage.snapshots[0].snapshot_id += 1;
        assert_eq!(
            stand_as(agreeing(snapshot_id), &table),
            Err(unknown),
            "the id works once"
        );
    }

    /// State and commits of the writer are gone; what was retracted in its name is named by what readers were told.
    #[test]
    fn where_a_writer_begins_without_its_state_what_the_table_left_out_stays_out() {
        let mut table = Table::flowing();
        let retraction = Retraction::new(at("09:10"), at("09:50"), "a job deleted rows");
        table.commit(Contribution {
            order: Some(Order::Retract(retraction.unwrap())),
            ..news("11:00")
        });
        table.lineage.snapshots.clear();
        drop_state(&mut table);
        let snapshot_id = table.foreign(None);
        let replaced = beginning(agreeing(snapshot_id), &table);
        assert!(!replaced.untold, "the rows are gone, all of them");
        table.lineage.broken = true;
        let begins = beginning(agreeing(snapshot_id), &table);
        assert_eq!(begins.kept, None);
        let state = begins.state(identity(), TOPIC, policy(), at("11:30"));
        assert_eq!(state.gaps().stretches(), [(at("09:00"), at("10:00"))]);
    }

    #[test]
    fn a_replaced_table_needs_leave_and_begins_where_its_owner_says() {
        let mut table = Table::flowing();
        table.lineage.snapshots.clear();
        let replaced = Obstacle::Replaced {
            writer: WRITER.to_owned(),
            commit_id: table.state.commit_id,
        };
        assert!(replaced.withdraws());
        assert_eq!(stand_on(&table), Err(replaced.clone()), "nothing is there");
        let snapshot_id = table.foreign(None);
        assert_eq!(stand_on(&table), Err(replaced.clone()));
        drop_state(&mut table);
        assert_eq!(
            stand_on(&table),
            Err(replaced),
            "the claim alone names a commit"
        );
        let mut table = Table::flowing();
        table.lineage.snapshots.clear();
        table.foreign(None);
        assert_eq!(
            beginning(agreeing(snapshot_id), &table).kept,
            None,
            "the rows are gone"
        );
        let keeping = Asker {
            keep_offsets: true,
            ..agreeing(snapshot_id)
        };
        assert!(beginning(keeping, &table).kept.is_some());
    }

    /// Complete-from fell with the first row, below what the log had held before it was made anew or cut and nobody had read: the two
    /// are in no order.
    #[test]
    fn where_offsets_are_kept_in_a_log_that_is_another_by_now_nothing_is_claimed_before_the_restart()
     {
        let topic_id = Some(Uuid::from_u128(10));
        let anew = JumpKind::Recreated { topic_id };
        for (kind, offset, edge) in [
            (Some(anew), 0, "13:00"),
            (Some(JumpKind::Truncated), 2, "13:00"),
            (Some(JumpKind::Forward), 50, "11:00"),
            (None, 4, "11:00"),
        ] {
            let mut table = Table::flowing();
            table.lineage.snapshots.clear();
            table.lineage.broken = true;
            let snapshot_id = table.foreign(None);
            let begins = beginning(agreeing(snapshot_id), &table);
            let kept = begins.kept.clone().unwrap();
            table.state = begins.state(identity(), TOPIC, policy(), at("12:30"));
            let moved = [0, 1].into_iter().filter_map(|partition| {
                Some(Jump {
                    topic: TOPIC.to_owned(),
                    partition,
                    kind: kind?,
                    from: 4,
                    before: None,
                    offset,
                    at_us: at("12:30"),
                })
            });
            let kept = (&table.state, &*kept);
            let (_, anchors) = keep_offsets(kept, moved.collect(), |_| true, at("12:30"));
            table.commit(Contribution {
                anchors,
                ..news("12:30")
            });
            for partition in [0, 1] {
                table.commit(news("12:31").rows(partition, offset, &["10:50"]));
            }
            assert_eq!(complete_from(&table), from(edge), "{kind:?}");
        }
    }

    /// Rows of a commit are there without its summary: neither to read again nor to leave out is right.
    #[test]
    fn a_cherry_picked_commit_of_ours_needs_leave() {
        let ours = || Some(Picked::Ours(WRITER.to_owned()));
        let mut above = Table::flowing();
        let mut instead = Table::flowing();
        instead.roll_back(2);
        for table in [&mut above, &mut instead] {
            let copy = table.foreign(ours());
            let later = table.foreign(None);
            let picked = Obstacle::CherryPicked {
                writer: WRITER.to_owned(),
                snapshot_id: copy,
            };
            assert!(picked.withdraws());
            assert_eq!(stand_on(table), Err(picked.clone()));
            let below = table.lineage.snapshots[2].snapshot_id;
            assert_eq!(
                stand_as(agreeing(below), table),
                Err(picked),
                "from before the copy"
            );
            for snapshot_id in [copy, later] {
                let begins = beginning(agreeing(snapshot_id), table);
                assert_eq!(begins.kept.as_deref(), Some(&table.state));
            }
        }
        // What lies below a commit of ours was there when it was made.
        let kept = above.state.clone();
        above.state = Beginning {
            last_epoch: 1,
            ..Beginning::default()
        }
        .state(identity(), TOPIC, policy(), at("11:30"));
        let (jumps, anchors) =
            keep_offsets((&above.state, &kept), Vec::new(), |_| true, at("11:30"));
        above.commit(Contribution {
            anchors,
            jumps,
            ..news("11:30")
        });
        assert_eq!(going_on(&above).state, above.state);
        drop_state(&mut above);
        assert_eq!(
            going_on(&above).state,
            above.state,
            "nothing from before it"
        );
    }

    /// Whose snapshot it was has expired: after a roll-back it may have been one of ours.
    #[test]
    fn an_unknown_cherry_pick_matters_only_after_a_roll_back() {
        let mut table = Table::flowing();
        table.foreign(Some(Picked::Gone));
        assert_eq!(going_on(&table).rolled_back, None);
        let mut table = Table::flowing();
        table.roll_back(2);
        table.foreign(Some(Picked::Gone));
        assert!(matches!(
            stand_on(&table),
            Err(Obstacle::CherryPicked { .. })
        ));
        let mut table = Table::flowing();
        table.roll_back(2);
        table.foreign(Some(Picked::Foreign));
        assert!(going_on(&table).rolled_back.is_some());
    }

    #[test]
    fn a_copy_a_branch_and_a_table_made_again_are_void_until_accepted() {
        let mut table = Table::flowing();
        let here = Uuid::from_u128(8);
        let void = Obstacle::Void {
            here,
            table_uuid: Uuid::from_u128(7),
            table_ref: "main".to_owned(),
        };
        assert!(!void.withdraws(), "the table is not ours");
        let copied = |table: &Table, asker: Asker<'_>| {
            stand(
                &asker,
                &TableView {
                    table_uuid: here,
                    ..table.view()
                },
            )
        };
        assert_eq!(
            copied(&table, Asker::new(WRITER, at("11:30"))),
            Err(void.clone())
        );
        let branch = TableView {
            table_ref: "audit",
            ..table.view()
        };
        let of_branch = stand(&Asker::new(WRITER, at("11:30")), &branch);
        assert!(matches!(of_branch, Err(Obstacle::Void { .. })));
        let agreeing = Asker {
            accept: Accepted {
                table_uuid: Some(here),
                snapshot_id: None,
            },
            ..Asker::new(WRITER, at("11:30"))
        };
        let begins = Beginning {
            last_epoch: 1,
            claimed_us: Some(at("10:00")),
            ..Beginning::default()
        };
        assert_eq!(copied(&table, agreeing), Ok(Standing::Begins(begins)));
        drop_state(&mut table);
        assert_eq!(
            copied(&table, Asker::new(WRITER, at("11:30"))),
            Err(void.clone()),
            "by the summary"
        );
        table.lineage.snapshots.clear();
        assert_eq!(
            copied(&table, Asker::new(WRITER, at("11:30"))),
            Err(void),
            "by the claim"
        );
        table.properties.remove(COMMIT_ID);
        table.properties.remove(FINALIZED_BEFORE);
        assert!(copied(&table, Asker::new(WRITER, at("11:30"))).is_ok());
    }
}
