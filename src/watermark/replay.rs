//! From a table's lineage to the state a worker goes on from, and to the claim a reader may count on.
//!
//! In: the table's identity, its properties, and its ancestry, newest first. Foreign snapshots are walked over; ours are keyed
//! by commit id. Precedence: the newest own ancestor's summary, then the state, then the properties.
//!
//! A claim counts only on the table and ref it names, and only while its commit is in the ancestry. In doubt it is held.
//!
//! Decided here, where the rules leave it open:
//! - Where the commit named by the properties is behind an expired parent, what counts is the summary of the newest own
//!   snapshot that is left, in the same epoch: the properties may be those of commits that were rolled back, the summary's
//!   claim is true of its own ancestry.
//! - A table whose properties were removed has no claim to count on, although a summary has one: the next commit writes it
//!   again.
//! - A summary that cannot be read cuts the chain, as an expired one does. After a cut, complete-from can no longer fall
//!   below what was published, and windows begin anew.

use std::collections::HashMap;

use uuid::Uuid;

use super::claim::Claim;
use super::codec::Unreadable;
use super::contract::{
    BadValue, COMMIT_ID, OwnSummary, TableClaim, WRITER, read_properties, read_summary,
    state_property, summary_commit_id,
};
use super::frontier::TopicState;
use super::state::{CompleteFrom, Identity, State, unknown};

/// The key by which Iceberg marks a snapshot that was cherry-picked.
const CHERRY_PICKED: &str = "source-snapshot-id";

/// A snapshot in the ancestry of a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// Its id.
    pub snapshot_id: i64,
    /// Its parent's.
    pub parent_id: Option<i64>,
    /// Its summary.
    pub summary: HashMap<String, String>,
}

/// The ancestry of a ref.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// The snapshots, newest first, as far as parent links lead.
    pub snapshots: Vec<Ancestor>,
    /// Whether they end at a parent that is gone: the rest has expired.
    pub broken: bool,
}

/// What there is to know of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableView<'a> {
    /// Its UUID.
    pub table_uuid: Uuid,
    /// The ref that is read, `main`.
    pub table_ref: &'a str,
    /// Its properties.
    pub properties: &'a HashMap<String, String>,
    /// The ancestry of the ref.
    pub lineage: &'a Lineage,
}

/// The state that a worker goes on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The state as of the newest own commit.
    pub state: State,
    /// Whether it was rebuilt from summaries, wholly or in part.
    pub rebuilt: bool,
    /// Whether the properties claim something else: they are rewritten by the next commit.
    pub differs: bool,
}

/// Why a worker cannot go on from a table by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
pub enum Obstacle {
    /// The state was written by a newer release.
    #[error("the state of writer \"{writer}\": {source}")]
    Newer {
        /// The writer.
        writer: String,
        /// What is newer.
        source: Unreadable,
    },
    /// The state cannot be read, and there is no summary to rebuild it from.
    #[error("the state of writer \"{writer}\" is not readable, and no summary is: {source}")]
    Damaged {
        /// The writer.
        writer: String,
        /// What is wrong.
        source: BadValue,
    },
    /// State and summaries are those of another table or ref: it is a copy, or it was replaced.
    #[error(
        "the state is that of table {table_uuid} ref \"{table_ref}\"; accept this table to begin anew on it"
    )]
    Void {
        /// The table it names.
        table_uuid: Uuid,
        /// The ref it names.
        table_ref: String,
    },
    /// The table was rolled back behind the state's commit.
    #[error("the table was rolled back behind commit {commit_id}, to {to:?}")]
    RolledBack {
        /// The state's commit.
        commit_id: Uuid,
        /// The newest own commit in the ancestry, if there is one.
        to: Option<Uuid>,
    },
    /// The ancestry is broken and holds no snapshot of ours.
    #[error("the ancestry is broken and holds no commit of writer \"{writer}\"")]
    LineageUnknown {
        /// The writer.
        writer: String,
    },
    /// One of our snapshots was cherry-picked.
    #[error("snapshot {snapshot_id} is a cherry-picked copy of one of ours")]
    CherryPicked {
        /// The copy.
        snapshot_id: i64,
    },
}

/// What a reader may count on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Nothing of ours is on the table.
    Nothing,
    /// This.
    Claim(TableClaim),
    /// A claim stands there but does not count.
    Held {
        /// Why.
        why: Held,
        /// What stands there.
        last: Option<TableClaim>,
    },
}

/// Why a claim does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
pub enum Held {
    /// It names another table or ref.
    #[error("the claim is about another table or ref")]
    Void,
    /// Its commit is not in the ancestry: the table was rolled back or replaced.
    #[error("the commit of the claim is not in the table's ancestry")]
    NotInAncestry,
    /// The ancestry is broken and holds no snapshot of ours.
    #[error("the table's ancestry is broken and holds no commit of ours")]
    LineageUnknown,
    /// The newest own snapshot is a cherry-picked copy.
    #[error("snapshot {snapshot_id} is a cherry-picked copy")]
    CherryPicked {
        /// The copy.
        snapshot_id: i64,
    },
    /// The properties are gone.
    #[error("the properties of the claim were removed")]
    Removed,
    /// It cannot be read.
    #[error("the claim is not readable: {0}")]
    Unreadable(BadValue),
}

/// Whether a claim covers a stretch of event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// All of it.
    Ready,
    /// Its end is not reached yet.
    NotYet,
    /// A cell of it got late rows and is withheld until the claim next rises.
    Withheld {
        /// Where the first withheld stretch begins.
        from_us: i64,
        /// Where it ends.
        to_us: i64,
    },
    /// It begins before the claim does.
    BeforeCompleteFrom {
        /// Where the claim begins.
        complete_from_us: i64,
    },
    /// A gap lies in it.
    Gap {
        /// Where the gap begins.
        from_us: i64,
        /// Where it ends.
        to_us: i64,
    },
}

/// The state that a writer goes on from; `None` on a table it has not committed to.
///
/// # Errors
/// When the table is not one to go on from without somebody's decision.
pub fn stand(writer: &str, table: &TableView<'_>) -> Result<Option<Standing>, Obstacle> {
    let own: Vec<&Ancestor> = table
        .lineage
        .snapshots
        .iter()
        .filter(|snapshot| is_of(snapshot, writer))
        .collect();
    if let Some(copy) = own
        .first()
        .filter(|newest| newest.summary.contains_key(CHERRY_PICKED))
    {
        return Err(Obstacle::CherryPicked {
            snapshot_id: copy.snapshot_id,
        });
    }
    let name = state_property(writer);
    let state = match table.properties.get(&name).map(|text| State::decode(text)) {
        Some(Err(Unreadable::Damaged)) if own.is_empty() => {
            return Err(Obstacle::Damaged {
                writer: writer.to_owned(),
                source: BadValue::Packed {
                    name,
                    source: Unreadable::Damaged,
                },
            });
        }
        None | Some(Err(Unreadable::Damaged)) => None,
        Some(Err(source)) => {
            return Err(Obstacle::Newer {
                writer: writer.to_owned(),
                source,
            });
        }
        Some(Ok(state)) => Some(state),
    };
    if let Some(state) = &state {
        check_table(table, state.identity.table_uuid, &state.identity.table_ref)?;
    }
    let Some(newest) = own.first() else {
        return stand_without_commits(writer, table, state.as_ref());
    };
    let (state, rebuilt) = stand_on(writer, table, &own, newest, state)?;
    let claimed = read_properties(table.properties).ok().flatten();
    let differs = claimed.is_none_or(|claimed| {
        let (there, here) = (&claimed.claim, &state.published);
        claimed.commit_id != state.commit_id
            || there.epoch != here.epoch
            || there.finalized_before_us != here.finalized_before_us
    });
    Ok(Some(Standing {
        state,
        rebuilt,
        differs,
    }))
}

fn stand_without_commits(
    writer: &str,
    table: &TableView<'_>,
    state: Option<&State>,
) -> Result<Option<Standing>, Obstacle> {
    let ours = table.properties.contains_key(COMMIT_ID);
    match state {
        Some(state) if !table.lineage.broken => Err(Obstacle::RolledBack {
            commit_id: state.commit_id,
            to: None,
        }),
        None if !(ours && table.lineage.broken) => Ok(None),
        _ => Err(Obstacle::LineageUnknown {
            writer: writer.to_owned(),
        }),
    }
}

fn stand_on(
    writer: &str,
    table: &TableView<'_>,
    own: &[&Ancestor],
    newest: &Ancestor,
    state: Option<State>,
) -> Result<(State, bool), Obstacle> {
    let known_at = state.as_ref().and_then(|state| {
        let id = Some(state.commit_id);
        own.iter()
            .position(|snapshot| summary_commit_id(&snapshot.summary) == id)
    });
    match (state, known_at) {
        (Some(state), Some(0)) => Ok((state, false)),
        (Some(state), Some(at)) => {
            let (summaries, cut) = readable(writer, &own[..at])?;
            let rebuilt = fold((!cut).then_some(state), &summaries, cut);
            Ok((rebuilt, true))
        }
        (state, _) => {
            let (summaries, cut) = readable(writer, own)?;
            let cut = cut || table.lineage.broken;
            let oldest_us = summaries
                .first()
                .map(|oldest| oldest.record.committed_at_us);
            if let Some(state) = state
                && !(cut && Some(state.committed_at_us) <= oldest_us)
            {
                return Err(Obstacle::RolledBack {
                    commit_id: state.commit_id,
                    to: summary_commit_id(&newest.summary),
                });
            }
            if let Some(newest) = summaries.last() {
                check_table(table, newest.table_uuid, &newest.table_ref)?;
            }
            Ok((fold(None, &summaries, cut), true))
        }
    }
}

fn is_of(snapshot: &Ancestor, writer: &str) -> bool {
    snapshot.summary.contains_key(COMMIT_ID)
        && snapshot
            .summary
            .get(WRITER)
            .is_some_and(|name| name == writer)
}

fn check_table(table: &TableView<'_>, table_uuid: Uuid, table_ref: &str) -> Result<(), Obstacle> {
    if table_uuid == table.table_uuid && table_ref == table.table_ref {
        return Ok(());
    }
    Err(Obstacle::Void {
        table_uuid,
        table_ref: table_ref.to_owned(),
    })
}

/// The summaries, oldest first, down to the first that cannot be read; the newest must be.
fn readable(writer: &str, own: &[&Ancestor]) -> Result<(Vec<OwnSummary>, bool), Obstacle> {
    let mut summaries = Vec::with_capacity(own.len());
    let mut cut = false;
    for snapshot in own {
        match read_summary(&snapshot.summary) {
            Ok(Some(summary)) => summaries.push(summary),
            Ok(None) => {}
            Err(BadValue::Packed { source, .. })
                if summaries.is_empty() && source != Unreadable::Damaged =>
            {
                return Err(Obstacle::Newer {
                    writer: writer.to_owned(),
                    source,
                });
            }
            Err(source) if summaries.is_empty() => {
                return Err(Obstacle::Damaged {
                    writer: writer.to_owned(),
                    source,
                });
            }
            Err(_) => {
                cut = true;
                break;
            }
        }
    }
    summaries.reverse();
    Ok((summaries, cut))
}

/// Takes the steps of the commits after `base`, or of all there are. `cut`: there were more before them.
fn fold(base: Option<State>, summaries: &[OwnSummary], cut: bool) -> State {
    let newest = summaries.last().expect("the newest summary is readable");
    let oldest_us = summaries[0].record.committed_at_us;
    let cut_us = cut.then_some(oldest_us);
    let mut state = base.unwrap_or_else(|| {
        let (identity, policy) = (identity(newest), newest.record.policy.clone());
        State::new(identity, &newest.offsets.subscription, policy, oldest_us)
    });
    for summary in summaries {
        state.apply(&summary.record, cut_us);
    }
    state.published = newest.published.clone();
    for ((topic, partition), (next_offset, leader_epoch)) in &newest.offsets.next {
        let topic: &mut TopicState = state.topics.entry(topic.clone()).or_default();
        let known = topic
            .partitions
            .entry(*partition)
            .or_insert_with(|| unknown(cut_us));
        known.next_offset = *next_offset;
        known.leader_epoch = *leader_epoch;
    }
    for (topic, id) in &newest.offsets.topic_ids {
        state.topics.entry(topic.clone()).or_default().id = Some(*id);
    }
    if cut {
        keep_edges(&mut state, newest);
    }
    state
}

/// What the lost part of the chain would have said of complete-from and gaps is taken from what was published.
fn keep_edges(state: &mut State, newest: &OwnSummary) {
    for open in &newest.open_gaps {
        if state
            .partition(&open.topic, open.partition)
            .is_some_and(|known| known.gap.is_some())
        {
            continue;
        }
        match open.from_us {
            Some(from_us) => state.published.gaps.add(from_us, open.to_us),
            None => {
                state.published.lost_before_us =
                    state.published.lost_before_us.max(Some(open.to_us));
            }
        }
    }
    if let CompleteFrom::From(us) = newest.published.complete_from {
        state.published.lost_before_us = state.published.lost_before_us.max(Some(us));
    }
}

fn identity(summary: &OwnSummary) -> Identity {
    Identity {
        writer: summary.writer.clone(),
        cluster_id: summary.cluster_id.clone(),
        installation: summary.installation.clone(),
        table_uuid: summary.table_uuid,
        table_ref: summary.table_ref.clone(),
    }
}

/// What a reader of a table may count on.
#[must_use]
pub fn read_claim(table: &TableView<'_>) -> Reading {
    let held = |why: Held, last: Option<TableClaim>| Reading::Held { why, last };
    let property = match read_properties(table.properties) {
        Ok(property) => property,
        Err(bad) => return held(Held::Unreadable(bad), None),
    };
    let own = |snapshot: &&Ancestor| snapshot.summary.contains_key(COMMIT_ID);
    let newest = table.lineage.snapshots.iter().find(own);
    let (property, newest) = match (property, newest) {
        (None, None) => return Reading::Nothing,
        (None, Some(_)) => return held(Held::Removed, None),
        (Some(property), None) if table.lineage.broken => {
            return held(Held::LineageUnknown, Some(property));
        }
        (Some(property), None) => return held(Held::NotInAncestry, Some(property)),
        (Some(property), Some(newest)) => (property, newest),
    };
    let here = |claim: &TableClaim| {
        claim.table_uuid == table.table_uuid && claim.table_ref == table.table_ref
    };
    if !here(&property) {
        return held(Held::Void, Some(property));
    }
    if newest.summary.contains_key(CHERRY_PICKED) {
        let snapshot_id = newest.snapshot_id;
        return held(Held::CherryPicked { snapshot_id }, Some(property));
    }
    let claim = match read_summary(&newest.summary) {
        Ok(Some(summary)) => summary.table_claim(),
        Ok(None) => return held(Held::NotInAncestry, Some(property)),
        Err(bad) => return held(Held::Unreadable(bad), Some(property)),
    };
    if !here(&claim) {
        return held(Held::Void, Some(property));
    }
    let id = Some(property.commit_id);
    let mut ancestors = table.lineage.snapshots.iter();
    let in_ancestry = ancestors.any(|snapshot| summary_commit_id(&snapshot.summary) == id);
    let expired = table.lineage.broken && claim.claim.epoch == property.claim.epoch;
    if !in_ancestry && !expired {
        return held(Held::NotInAncestry, Some(property));
    }
    Reading::Claim(with_margin(claim, &property))
}

/// The summary's claim, with the margin of the properties where they are of the same commit.
fn with_margin(mut claim: TableClaim, property: &TableClaim) -> TableClaim {
    let same = claim.commit_id == property.commit_id
        && claim.claim.finalized_before_us == property.claim.finalized_before_us;
    claim.claim.margin_us = property.claim.margin_us.filter(|_| same);
    claim
}

impl Claim {
    /// Whether everything with an event time in `[from_us, before_us)` is there.
    #[must_use]
    pub fn covers(&self, from_us: i64, before_us: i64) -> Coverage {
        if let CompleteFrom::From(complete_from_us) = self.complete_from
            && from_us < complete_from_us
        {
            return Coverage::BeforeCompleteFrom { complete_from_us };
        }
        if let Some((from_us, to_us)) = self.gaps.within(from_us, before_us) {
            return Coverage::Gap { from_us, to_us };
        }
        if self.finalized_before_us < Some(before_us) {
            return Coverage::NotYet;
        }
        match self.amended.withheld().within(from_us, before_us) {
            Some((from_us, to_us)) => Coverage::Withheld { from_us, to_us },
            None => Coverage::Ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract::FINALIZED_BEFORE;
    use super::super::testing::{TOPIC, Table, WRITER, at, news, policy};
    use super::super::{Contribution, HeldBy, JumpKind, Policy, Term};
    use super::*;

    fn drop_state(table: &mut Table) {
        table.properties.remove(&state_property(WRITER));
    }

    fn stand_on(table: &Table) -> Result<Option<Standing>, Obstacle> {
        stand(WRITER, &table.view())
    }

    fn foreign(snapshot_id: i64) -> Ancestor {
        Ancestor {
            snapshot_id,
            parent_id: Some(snapshot_id - 1),
            summary: HashMap::from([("operation".to_owned(), "replace".to_owned())]),
        }
    }

    fn claimed(table: &Table) -> Option<i64> {
        match read_claim(&table.view()) {
            Reading::Claim(claim) => claim.claim.finalized_before_us,
            _ => None,
        }
    }

    fn why(table: &Table) -> Held {
        match read_claim(&table.view()) {
            Reading::Held { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_new_table_has_nothing_to_stand_on() {
        let mut table = Table::new(policy());
        assert_eq!(stand_on(&table), Ok(None));
        assert_eq!(read_claim(&table.view()), Reading::Nothing);
        table.lineage.snapshots.push(foreign(1));
        table.lineage.broken = true;
        assert_eq!(stand_on(&table), Ok(None), "an old table of others");
    }

    #[test]
    fn the_state_is_taken_as_it_stands_behind_foreign_snapshots() {
        let mut table = Table::flowing();
        table.lineage.snapshots.insert(0, foreign(6));
        let standing = stand_on(&table).unwrap().unwrap();
        assert_eq!((standing.rebuilt, standing.differs), (false, false));
        assert_eq!(standing.state, table.state);
        assert_eq!(claimed(&table), Some(at("10:00")));
    }

    #[test]
    fn a_lost_state_is_rebuilt_as_it_was() {
        let mut table = Table::flowing();
        table.commit(news("10:45").jump(0, 4, 9, JumpKind::Forward));
        drop_state(&mut table);
        let standing = stand_on(&table).unwrap().unwrap();
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
        assert_eq!(stand_on(&table).unwrap().unwrap().state, table.state);
        table.commit(news("10:48").asked("10:48", 2).reading("shop.*"));
        table.commit(items(news("10:49").anchor(0, 0).reading("shop.*")));
        for text in [None, Some(before)] {
            drop_state(&mut table);
            let text = text.map(|text| (name.clone(), text));
            table.properties.extend(text);
            let standing = stand_on(&table).unwrap().unwrap();
            assert!(standing.rebuilt && !standing.differs);
            assert_eq!(standing.state, table.state);
            assert_eq!(standing.state.subscription, "shop.*");
        }
    }

    #[test]
    fn a_state_left_behind_is_brought_forward() {
        let mut table = Table::flowing();
        let name = state_property(WRITER);
        let (before, old) = (
            table.properties[&name].clone(),
            table.properties[FINALIZED_BEFORE].clone(),
        );
        table.commit(
            news("11:30")
                .rows(0, 4, &[])
                .end("11:30", 4)
                .asked("11:30", 2),
        );
        table.commit(news("11:30").rows(1, 4, &[]).end("11:30", 4));
        table.properties.insert(name, before);
        table.properties.insert(FINALIZED_BEFORE.to_owned(), old);
        let standing = stand_on(&table).unwrap().unwrap();
        assert!(standing.rebuilt && standing.differs);
        assert_eq!(standing.state, table.state);
        assert_eq!(
            claimed(&table),
            Some(at("11:00")),
            "the newest summary before the property"
        );
    }

    #[test]
    fn a_damaged_state_is_rebuilt_and_a_newer_one_holds() {
        let mut table = Table::flowing();
        let name = state_property(WRITER);
        table.properties.insert(name.clone(), "garbage".to_owned());
        assert_eq!(stand_on(&table).unwrap().unwrap().state, table.state);
        table.properties.insert(name, "Ag==".to_owned());
        let source = Unreadable::Newer { version: 2 };
        let writer = WRITER.to_owned();
        assert_eq!(stand_on(&table), Err(Obstacle::Newer { writer, source }));
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
        let state = stand_on(&table).unwrap().unwrap().state;
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
        table.state = stand_on(&table).unwrap().unwrap().state;
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
    fn a_table_rolled_back_holds_its_claim_and_stops_its_writer() {
        let mut table = Table::flowing();
        table.lineage.snapshots.drain(..2);
        let to = summary_commit_id(&table.lineage.snapshots[0].summary);
        let commit_id = table.state.commit_id;
        assert_eq!(
            stand_on(&table),
            Err(Obstacle::RolledBack { commit_id, to })
        );
        assert_eq!(why(&table), Held::NotInAncestry);
        table.lineage.snapshots.clear();
        assert_eq!(
            stand_on(&table),
            Err(Obstacle::RolledBack {
                commit_id,
                to: None
            })
        );
        assert_eq!(why(&table), Held::NotInAncestry);
    }

    /// With expired parents a roll-back cannot be told from expiry: the newest own summary is true of its ancestry.
    #[test]
    fn after_expiry_the_newest_own_summary_counts_not_the_property() {
        let mut table = Table::flowing();
        table.lineage.snapshots.drain(..2);
        table.lineage.broken = true;
        let Reading::Claim(read) = read_claim(&table.view()) else {
            panic!("held")
        };
        assert_eq!(
            read.claim.finalized_before_us, None,
            "that commit had none yet"
        );
        table
            .properties
            .insert(super::super::contract::EPOCH.to_owned(), "2".to_owned());
        assert_eq!(why(&table), Held::NotInAncestry, "another epoch");
        table.lineage.snapshots = vec![foreign(9)];
        assert_eq!(why(&table), Held::LineageUnknown);
        let writer = WRITER.to_owned();
        assert_eq!(stand_on(&table), Err(Obstacle::LineageUnknown { writer }));
    }

    #[test]
    fn a_copy_a_branch_and_a_replaced_table_show_no_claim() {
        let mut table = Table::flowing();
        let void = Obstacle::Void {
            table_uuid: Uuid::from_u128(7),
            table_ref: "main".to_owned(),
        };
        let other = TableView {
            table_uuid: Uuid::from_u128(8),
            ..table.view()
        };
        let branch = TableView {
            table_ref: "audit",
            ..table.view()
        };
        for view in [other, branch] {
            assert_eq!(stand(WRITER, &view), Err(void.clone()));
            assert!(matches!(
                read_claim(&view),
                Reading::Held {
                    why: Held::Void,
                    ..
                }
            ));
        }
        drop_state(&mut table);
        let other = TableView {
            table_uuid: Uuid::from_u128(8),
            ..table.view()
        };
        assert_eq!(stand(WRITER, &other), Err(void), "by the summary, too");
    }

    #[test]
    fn a_cherry_picked_copy_and_removed_properties_hold() {
        let mut table = Table::flowing();
        table.lineage.snapshots[0]
            .summary
            .insert(CHERRY_PICKED.to_owned(), "3".to_owned());
        assert_eq!(why(&table), Held::CherryPicked { snapshot_id: 5 });
        assert_eq!(
            stand_on(&table),
            Err(Obstacle::CherryPicked { snapshot_id: 5 })
        );
        table.properties.clear();
        assert_eq!(why(&table), Held::Removed);
    }

    #[test]
    fn what_cannot_be_read_is_held() {
        let mut table = Table::flowing();
        table
            .properties
            .insert(FINALIZED_BEFORE.to_owned(), "soon".to_owned());
        assert!(matches!(
            why(&table),
            Held::Unreadable(BadValue::Value { .. })
        ));
    }

    #[test]
    fn a_stretch_is_covered_between_the_edges_and_beside_the_gaps() {
        let mut table = Table::flowing();
        table.commit(news("12:30").jump(1, 4, 50, JumpKind::Forward));
        let mut claim = table.state.claim();
        claim.finalized_before_us = Some(at("15:00"));
        assert_eq!(claim.covers(at("13:00"), at("15:00")), Coverage::Ready);
        assert_eq!(claim.covers(at("13:00"), at("15:01")), Coverage::NotYet);
        let gap = Coverage::Gap {
            from_us: at("10:00"),
            to_us: at("13:00"),
        };
        assert_eq!(claim.covers(at("12:00"), at("14:00")), gap);
        let complete_from_us = at("10:00");
        let before = Coverage::BeforeCompleteFrom { complete_from_us };
        assert_eq!(claim.covers(at("09:00"), at("14:00")), before);
    }
}
