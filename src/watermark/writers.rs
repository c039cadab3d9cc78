//! Several writers of one table: what the others have published, and the claim of the table over all.
//!
//! In: a writer's own state, and of every other writer the newest that the table says. Out: the table's claim, which is the
//! least of all. Whoever commits works it out and publishes it; each writer's own claim moves with its own commits alone.
//!
//! The table's epoch is the sum of the writers': it rises with each of theirs and with each writer that joins, and as none of
//! them falls within its epoch, neither does the least.
//!
//! A writer that is drained no longer holds the claim, and may not commit. What is missing of it stays missing: its gaps and
//! its complete-from count on.

use std::collections::{BTreeSet, HashMap};

use uuid::Uuid;

use super::claim::Claim;
use super::codec::Unreadable;
use super::contract::{
    BadValue, REF, TABLE_UUID, WRITER, read_summary, seen_by, state_property, writer_of,
};
use super::event_time::Bounds;
use super::lineage::{Ancestor, TableView};
use super::order::MAX_RETRACTED;
use super::state::State;

/// Another writer of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub writer: String,
    /// Its newest commit; nil where none that is known is there any more.
    pub commit_id: Uuid,
    /// Whether it was declared drained.
    pub drained: bool,
    /// What it publishes for itself.
    pub claim: Claim,
    /// Under which bounds.
    pub bounds: Bounds,
}

impl Peer {
    fn of(state: &State) -> Self {
        Peer {
            writer: state.identity.writer.clone(),
            commit_id: state.commit_id,
            drained: state.published.drained,
            claim: state.own_claim(),
            bounds: state.policy.bounds.clone(),
        }
    }
}

/// Another writer of the table of whom nobody can tell what it claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "of writer \"{writer}\", which writes here as well, neither state nor summary is readable: {source}"
)]
pub struct PeerUnreadable {
    /// The writer.
    pub writer: String,
    /// What is wrong.
    pub source: BadValue,
}

impl PeerUnreadable {
    /// Whether a newer release can read it.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(&self.source, BadValue::Packed { source, .. } if *source != Unreadable::Damaged)
    }
}

/// The other writers of a table, by name: those with a state, and, since a state can be lost, those whose commits are there or were seen
/// by another one's. States and commits that are those of another table or ref are none of this one's.
///
/// # Errors
/// The state of one cannot be read, and no summary of it is on record: the table's claim cannot be worked out.
pub fn peers(own: &str, table: &TableView<'_>) -> Result<Vec<Peer>, PeerUnreadable> {
    let unreadable = |writer: String| |source: BadValue| PeerUnreadable { writer, source };
    let all = others(own, table).into_iter();
    let all = all.map(|writer| peer(&writer, table).map_err(unreadable(writer)));
    all.filter_map(Result::transpose).collect()
}

/// The names of the other writers.
pub(super) fn others(own: &str, table: &TableView<'_>) -> BTreeSet<String> {
    let named = table.properties.keys().filter_map(|key| writer_of(key));
    let snapshots = table.lineage.snapshots.iter();
    let commits = snapshots.filter(|snapshot| snapshot.is_own());
    let seen = commits.filter_map(|commit| commit.summary.get(WRITER).map(String::as_str));
    let told = newest_word(table).and_then(seen_by).unwrap_or_default();
    let mut writers: BTreeSet<String> = named.chain(seen).map(str::to_owned).collect();
    writers.extend(told.into_keys());
    writers.remove(own);
    writers
}

fn peer(writer: &str, table: &TableView<'_>) -> Result<Option<Peer>, BadValue> {
    let name = state_property(writer);
    let state = table.properties.get(&name).map(|text| State::decode(text));
    let state = match state {
        Some(Ok(state)) => Some(state),
        Some(Err(source @ (Unreadable::Newer { .. } | Unreadable::Term { .. }))) => {
            return Err(BadValue::Packed { name, source });
        }
        Some(Err(Unreadable::Damaged)) | None => None,
    };
    let foreign = |state: &State| !table.is(state.identity.table_uuid, &state.identity.table_ref);
    if state.as_ref().is_some_and(foreign) {
        return Ok(None);
    }
    let snapshots = table.lineage.snapshots.iter();
    let mut own = snapshots.filter(|snapshot| snapshot.is_of(writer));
    let newest = own.next();
    let stated = state.as_ref().map(|state| state.commit_id);
    let newest_id = newest.and_then(Ancestor::commit_id);
    let (Some(newest), false) = (newest, newest_id == stated) else {
        return match state {
            // The newest is the one that wrote the state, or all have expired and another writer saw it.
            Some(state) if newest.is_some() || is_vouched(writer, state.commit_id, table) => {
                Ok(Some(Peer::of(&state)))
            }
            // The table was rolled back behind all that it committed.
            Some(state) => Ok(Some(undone(&state))),
            None => Err(BadValue::Packed {
                name,
                source: Unreadable::Damaged,
            }),
        };
    };
    let Some(summary) = read_summary(&newest.summary)? else {
        return Err(BadValue::Packed {
            name,
            source: Unreadable::Damaged,
        });
    };
    if !table.is(summary.table_uuid, &summary.table_ref) {
        return Ok(None);
    }
    let mut peer = Peer {
        writer: writer.to_owned(),
        commit_id: summary.record.commit_id,
        drained: summary.published.drained,
        claim: summary.own_claim(),
        bounds: summary.record.policy.bounds.clone(),
    };
    let behind = own.any(|snapshot| snapshot.commit_id() == stated);
    if let Some(state) = state.filter(|_| !behind) {
        // Rolled back: it will go on in an epoch above the one that was undone.
        peer.claim.epoch = peer.claim.epoch.max(state.published.epoch) + 1;
    }
    Ok(Some(peer))
}

/// Whether a commit of a writer is in the ancestry by the word of another writer's summary there: its own may have expired
/// while the other went on.
pub(super) fn is_vouched(writer: &str, commit_id: Uuid, table: &TableView<'_>) -> bool {
    let mut summaries = table.lineage.snapshots.iter();
    let newest = summaries.find_map(|snapshot| seen_by(&snapshot.summary)?.remove(writer));
    newest == Some(commit_id)
}

/// What the newest commit of ours on this table says, whosever it is. It names the writers beside its own, also those of whom nothing else
/// is left.
pub(super) fn newest_word<'t>(table: &TableView<'t>) -> Option<&'t HashMap<String, String>> {
    let mut snapshots = table.lineage.snapshots.iter();
    let newest: &HashMap<String, String> = &snapshots.find(|snapshot| snapshot.is_own())?.summary;
    let uuid = newest.get(TABLE_UUID)?.parse().ok()?;
    table.is(uuid, newest.get(REF)?).then_some(newest)
}

/// How many epochs a writer has behind it once none of its commits is known to be there: the commit that the table was rolled back to
/// may have published a claim in the first, while it was on record.
pub(super) const EPOCHS_UNDONE: u64 = 2;

/// Nothing of what it published holds, and it will go on in another epoch.
fn undone(state: &State) -> Peer {
    let mut peer = Peer::of(state);
    // Else the next summary would vouch for a commit that is gone.
    peer.commit_id = Uuid::nil();
    peer.claim.epoch += EPOCHS_UNDONE;
    peer.claim.finalized_before_us = None;
    peer.claim.evidence.clear();
    peer.claim.margin_us = None;
    peer
}

impl State {
    /// The table's claim before which event time: the least of all writers that are not drained. Where each is, the greatest: so
    /// far nobody held it any more, whichever was drained first.
    #[must_use]
    pub fn claimed_us(&self) -> Option<i64> {
        let own = (self.published.drained, self.published.finalized_before_us);
        // A writer that has not committed yet is none of those that the table has.
        let own = Some(own).filter(|_| self.peers.is_empty() || !self.is_new());
        let peers = self.peers.iter();
        let peers = peers.map(|peer| (peer.drained, peer.claim.finalized_before_us));
        let all = || own.into_iter().chain(peers.clone());
        if all().all(|(drained, _)| drained) {
            return all().filter_map(|(_, claim_us)| claim_us).max();
        }
        let held = all().filter(|(drained, _)| !drained);
        held.map(|(_, claim_us)| claim_us).min().flatten()
    }

    /// Whose word the table's claim rests on, by whether a writer is drained and what it claims: that of each which is not. Where all
    /// are, that of those which claim as much.
    pub fn counts(&self) -> impl Fn(bool, Option<i64>) -> bool + use<> {
        let all = self.published.drained && self.peers.iter().all(|peer| peer.drained);
        let claimed = self.claimed_us();
        move |drained, own| {
            if all { own == claimed } else { !drained }
        }
    }

    /// The writer that holds the table's claim below this one's.
    #[must_use]
    pub fn held_by_peer(&self) -> Option<&Peer> {
        let own = self.published.finalized_before_us;
        let active = self.peers.iter().filter(|peer| !peer.drained);
        let least = active.min_by_key(|peer| peer.claim.finalized_before_us)?;
        (self.published.drained || least.claim.finalized_before_us < own).then_some(least)
    }

    /// What the table publishes: this writer's claim with those of the others.
    #[must_use]
    pub fn claim(&self) -> Claim {
        let mut claim = self.own_claim();
        if self.peers.is_empty() {
            return claim;
        }
        let claimed = self.claimed_us();
        let counts = self.counts();
        let mut margins = vec![claim.margin_us];
        if !counts(self.published.drained, claim.finalized_before_us) {
            claim.evidence.clear();
            margins.clear();
        }
        for peer in &self.peers {
            claim.epoch += peer.claim.epoch;
            claim.complete_from = claim.complete_from.max(peer.claim.complete_from);
            for (from_us, to_us) in peer.claim.gaps.stretches() {
                claim.gaps.add(*from_us, *to_us);
            }
            if counts(peer.drained, peer.claim.finalized_before_us) {
                claim.evidence.extend(&peer.claim.evidence);
                margins.push(peer.claim.margin_us);
            }
            let further = peer.claim.reopened;
            if further.map(|one| one.before_us) > claim.reopened.map(|one| one.before_us) {
                claim.reopened = further;
            }
            claim.amended.merge(&peer.claim.amended);
            claim.retracted.extend(peer.claim.retracted.iter().cloned());
        }
        claim.retracted.sort_by_key(|one| (one.at_us, one.from_us));
        let surplus = claim.retracted.len().saturating_sub(MAX_RETRACTED);
        claim.retracted.drain(..surplus);
        claim.amended.release_above(claimed);
        claim.reopened = claim.reopened.filter(|one| claimed < Some(one.before_us));
        claim.finalized_before_us = claimed;
        claim.margin_us = margins
            .into_iter()
            .min()
            .flatten()
            .filter(|_| claimed.is_some());
        if claimed.is_none() {
            claim.evidence.clear();
        }
        claim
    }

    /// The bounds under which all of it is a theorem: of each the greatest.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let mut bounds = self.policy.bounds.clone();
        let counts = self.counts();
        let counting = |peer: &&Peer| counts(peer.drained, peer.claim.finalized_before_us);
        for peer in self.peers.iter().filter(counting) {
            let other = &peer.bounds;
            bounds.allowed_lateness_us = bounds.allowed_lateness_us.max(other.allowed_lateness_us);
            bounds.max_delay_us = bounds.max_delay_us.max(other.max_delay_us);
            bounds.max_future_skew_us = bounds.max_future_skew_us.max(other.max_future_skew_us);
            // Without a bound every row has a say, however old.
            bounds.max_age_us = bounds
                .max_age_us
                .zip(other.max_age_us)
                .map(|(a, b)| a.max(b));
        }
        bounds
    }
}

/// The writers that a table knows, this one among them, by name.
#[must_use]
pub fn writers_of(state: &State) -> Vec<Peer> {
    let mut all = state.peers.clone();
    all.push(Peer::of(state));
    all.sort_by(|a, b| a.writer.cmp(&b.writer));
    all
}

#[cfg(test)]
mod tests {
    use super::super::claim::HeldBy;
    use super::super::contract::{self, FINALIZED_BEFORE, claim_property};
    use super::super::epoch::{Reopened, StepCause};
    use super::super::order::Order;
    use super::super::standing::Obstacle;
    use super::super::testing::pair::{
        OTHER, accepted, base, claimed, commit, flow, going_on, order, stands, two, unreadable,
    };
    use super::super::testing::{Table, WRITER, at, news};
    use super::*;

    #[test]
    fn a_writer_that_joins_takes_the_claim_back_until_it_has_got_there() {
        let mut table = Table::flowing();
        let joined = commit(&mut table, OTHER, news("10:50").anchor(0, 0));
        assert_eq!((claimed(&joined), joined.claim.epoch), (None, 2));
        let reopened = Reopened {
            cause: StepCause::WriterJoined,
            from_us: None,
            before_us: at("10:00"),
            at_us: at("10:50"),
        };
        assert_eq!(joined.claim.reopened, Some(reopened));
        assert!(!table.properties.contains_key(FINALIZED_BEFORE));
        let rows = [("10:55", "10:40"), ("10:56", "10:41")];
        let there = flow(&mut table, OTHER, rows, 1);
        assert_eq!(claimed(&there).as_deref(), Some("2026-11-30T10:00:00Z"));
        assert_eq!((there.claim.reopened, there.claim.epoch), (None, 2));
    }

    #[test]
    fn the_claim_is_the_least_of_all_writers_whoever_commits() {
        let mut table = two();
        let ahead = base(&table, OTHER);
        assert_eq!(ahead.published.finalized_before_us, Some(at("11:00")));
        assert_eq!(ahead.claimed_us(), Some(at("10:00")));
        assert_eq!(
            table.properties[&claim_property(OTHER)],
            "2026-11-30T11:00:00Z"
        );
        let hold = ahead.hold(true);
        let writer = WRITER.to_owned();
        assert_eq!(hold.by, HeldBy::Writer { writer });
        assert_eq!(hold.cell_us, Some(at("10:00")));
        let rows = [("11:30", "11:20"), ("11:31", "11:21")];
        let both = flow(&mut table, WRITER, rows, 2);
        assert_eq!(claimed(&both).as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(both.claim.epoch, 2);
        assert_eq!(
            table.properties[&claim_property(WRITER)],
            "2026-11-30T11:00:00Z"
        );
    }

    /// What one writer publishes must not come back as the other's.
    #[test]
    fn each_state_is_rebuilt_from_its_own_summaries() {
        let mut table = two();
        flow(
            &mut table,
            WRITER,
            [("11:30", "11:20"), ("11:31", "11:21")],
            2,
        );
        for writer in [WRITER, OTHER] {
            let before = base(&table, writer);
            let text = table.properties.remove(&state_property(writer)).unwrap();
            let rebuilt = going_on(&table, writer);
            assert!(rebuilt.rebuilt);
            assert_eq!(rebuilt.state.published, before.published);
            assert_eq!(rebuilt.state.topics, before.topics);
            table.properties.insert(state_property(writer), text);
        }
    }

    #[test]
    fn a_drained_writer_holds_nothing_and_goes_on_in_a_new_epoch() {
        let mut table = two();
        let drained = order(&mut table, WRITER, "11:40", Order::Drain);
        assert_eq!(claimed(&drained).as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(drained.claim.epoch, 2, "it only rises");
        assert!(base(&table, WRITER).published.drained);
        let text = table.properties.remove(&state_property(WRITER)).unwrap();
        assert!(
            base(&table, WRITER).published.drained,
            "by the summary, too"
        );
        table.properties.insert(state_property(WRITER), text);
        let rows = [("12:20", "12:10"), ("12:21", "12:11")];
        let alone = flow(&mut table, OTHER, rows, 1);
        assert_eq!(claimed(&alone).as_deref(), Some("2026-11-30T12:00:00Z"));
        let back = order(&mut table, WRITER, "12:30", Order::Undrain);
        assert_eq!(claimed(&back).as_deref(), Some("2026-11-30T10:00:00Z"));
        assert_eq!(back.claim.epoch, 3);
        let reopened = back.claim.reopened.unwrap();
        assert_eq!(reopened.cause, StepCause::WriterJoined);
        assert_eq!(
            (reopened.from_us, reopened.before_us),
            (Some(at("10:00")), at("12:00"))
        );
    }

    /// A claim that rose when the first left must not fall when the last does.
    #[test]
    fn the_last_writer_that_is_drained_takes_nothing_back_whichever_it_is() {
        for [first, last] in [[WRITER, OTHER], [OTHER, WRITER]] {
            let mut table = two();
            order(&mut table, first, "11:40", Order::Drain);
            let drained = order(&mut table, last, "11:41", Order::Drain);
            assert_eq!(claimed(&drained).as_deref(), Some("2026-11-30T11:00:00Z"));
            assert_eq!(drained.claim.epoch, 2);
            let word = Peer::of(&base(&table, OTHER)).claim;
            assert!(
                !word.evidence.is_empty(),
                "that of the one that claims as much"
            );
            assert_eq!(
                (&drained.claim.evidence, drained.claim.margin_us),
                (&word.evidence, word.margin_us)
            );
            let back = order(&mut table, WRITER, "11:42", Order::Undrain);
            assert_eq!(claimed(&back).as_deref(), Some("2026-11-30T10:00:00Z"));
            assert_eq!(back.claim.epoch, 3);
        }
    }

    #[test]
    fn rows_are_late_below_the_claim_of_the_table() {
        let mut table = two();
        let rows = |offset: i64, time: &str| news("11:30").rows(0, offset, &[time]);
        let above = commit(&mut table, OTHER, rows(2, "10:30"));
        assert_eq!(above.late.rows(), 0, "nobody was told that it is final");
        let below = commit(&mut table, OTHER, rows(3, "09:30"));
        assert_eq!(below.late.rows(), 1);
        let other = commit(&mut table, WRITER, news("11:31").rows(0, 4, &["09:40"]));
        let cells = other.claim.amended.cells();
        assert_eq!((cells.len(), cells[0].revision), (1, 2), "of both");
    }

    #[test]
    fn a_writer_whose_commits_were_rolled_back_claims_nothing() {
        let mut table = two();
        let known = |table: &Table| peers(WRITER, &table.view()).unwrap().remove(0);
        assert_eq!(known(&table).claim.epoch, 1);
        table.lineage.snapshots.drain(..2);
        let peer = known(&table);
        assert_eq!(
            (peer.claim.finalized_before_us, peer.claim.epoch),
            (None, 2)
        );
        table.lineage.snapshots.remove(0);
        let peer = known(&table);
        assert_eq!(
            (peer.claim.finalized_before_us, peer.claim.epoch),
            (None, 3)
        );
    }

    /// The commit that it was rolled back to is on record at first, with its claim, and then no longer: the claim of the table fell within
    /// an epoch.
    #[test]
    fn a_roll_back_of_a_writer_that_is_away_is_one_more_step_once_it_has_expired() {
        let mut table = two();
        let rows = [("12:20", "12:10"), ("12:21", "12:11")];
        flow(&mut table, WRITER, rows, 2);
        let rows = [("13:20", "13:10"), ("13:21", "13:11")];
        flow(&mut table, OTHER, rows, 1);
        table.roll_back(2);
        let rolled_back = commit(&mut table, WRITER, news("13:30"));
        assert_eq!(
            claimed(&rolled_back).as_deref(),
            Some("2026-11-30T11:00:00Z")
        );
        assert_eq!(rolled_back.claim.epoch, 3);
        table.lineage.snapshots.truncate(1);
        table.lineage.broken = true;
        for now in ["13:31", "13:32"] {
            let expired = commit(&mut table, WRITER, news(now));
            assert_eq!((claimed(&expired), expired.claim.epoch), (None, 4));
        }
        let unknown = Obstacle::LineageUnknown {
            writer: OTHER.to_owned(),
        };
        assert_eq!(stands(&table, OTHER), Err(unknown));
        assert_eq!(
            accepted(&table, OTHER).published.epoch,
            3,
            "4 with the other's"
        );
    }

    /// It began anew at its first offsets, as if it had never committed, and the claim of the table rose without it.
    #[test]
    fn a_writer_of_whom_only_the_word_of_another_is_left_is_not_taken_for_a_new_one() {
        let mut table = two();
        let rows = [("12:20", "12:10"), ("12:21", "12:11")];
        let last = flow(&mut table, WRITER, rows, 2);
        table.lineage.snapshots.truncate(1);
        table.lineage.broken = true;
        for name in [state_property(OTHER), claim_property(OTHER)] {
            table.properties.remove(&name).unwrap();
        }
        let unknown = Obstacle::LineageUnknown {
            writer: OTHER.to_owned(),
        };
        assert_eq!(stands(&table, OTHER), Err(unknown));
        assert_eq!(stands(&table, WRITER), Err(unreadable().into()));
        let begins = accepted(&table, OTHER).published;
        assert!(begins.epoch >= last.claim.epoch, "{begins:?}");
        assert_eq!(
            begins.reopened.map(|one| one.before_us),
            last.claim.finalized_before_us
        );
        let new = stands(&table, "shop.new");
        assert_eq!(new, Err(unreadable().into()), "nor can another one begin");
    }

    /// A region that is down for long: the other one's commits outlive its own.
    #[test]
    fn a_writer_whose_commits_have_expired_is_where_the_other_one_saw_it() {
        let mut table = two();
        let before = base(&table, OTHER);
        flow(
            &mut table,
            WRITER,
            [("11:30", "11:20"), ("11:31", "11:21")],
            2,
        );
        table.lineage.snapshots.truncate(2);
        table.lineage.broken = true;
        assert_eq!(base(&table, OTHER).topics, before.topics);
        let peer = peers(WRITER, &table.view()).unwrap().remove(0);
        assert_eq!(peer.claim.finalized_before_us, Some(at("11:00")));
        // Rolled back behind its last commit, beyond what is on record: nobody there has seen that.
        let text = table.properties[&state_property(OTHER)].clone();
        flow(
            &mut table,
            OTHER,
            [("11:40", "11:30"), ("11:41", "11:31")],
            1,
        );
        table.lineage.snapshots.drain(..2);
        let peer = peers(WRITER, &table.view()).unwrap().remove(0);
        assert_eq!(peer.claim.finalized_before_us, None);
        assert!(stands(&table, OTHER).is_err());
        table.properties.insert(state_property(OTHER), text);
        assert!(stands(&table, OTHER).is_ok());
    }

    /// The one that found the other's commits gone named the newest of them in its summary: from then on they counted as seen, the
    /// table's claim rose over the rows that were lost, and the other one went on behind them.
    #[test]
    fn a_writer_whose_commits_are_gone_is_not_vouched_for_by_who_found_that() {
        let mut table = two();
        let rows = [("11:30", "11:20"), ("11:31", "11:21")];
        flow(&mut table, WRITER, rows, 2);
        table.lineage.snapshots.truncate(2);
        table.lineage.broken = true;
        let rows = [("12:20", "12:10"), ("12:21", "12:11")];
        flow(&mut table, OTHER, rows, 1);
        table.roll_back(2);
        for now in ["12:30", "12:31"] {
            let next = commit(&mut table, WRITER, news(now));
            assert_eq!((claimed(&next), next.claim.epoch), (None, 4));
            let unknown = Obstacle::LineageUnknown {
                writer: OTHER.to_owned(),
            };
            assert_eq!(stands(&table, OTHER), Err(unknown));
        }
    }

    /// Somebody removed what the table said of it: the claim rose as if there were no such writer.
    #[test]
    fn a_writer_whose_properties_are_gone_is_known_by_its_commits() {
        let mut table = two();
        let mut before = peers(WRITER, &table.view()).unwrap();
        // A summary has no margin.
        before[0].claim.margin_us = None;
        for name in [state_property(OTHER), claim_property(OTHER)] {
            table.properties.remove(&name).unwrap();
        }
        assert_eq!(peers(WRITER, &table.view()).unwrap(), before);
        let rows = [("12:20", "12:10"), ("12:21", "12:11")];
        let alone = flow(&mut table, WRITER, rows, 2);
        assert_eq!(claimed(&alone).as_deref(), Some("2026-11-30T11:00:00Z"));
        // What another table brought along is none of this one's.
        table.lineage.snapshots.iter_mut().for_each(|snapshot| {
            let summary = snapshot.summary.to_mut();
            let uuid = Uuid::from_u128(8).to_string();
            summary.insert(contract::TABLE_UUID.to_owned(), uuid);
        });
        assert_eq!(peers(WRITER, &table.view()), Ok(Vec::new()));
    }

    /// A claim over writers of whom one is not known would be a guess.
    #[test]
    fn a_state_that_cannot_be_read_is_no_writer_that_can_be_left_out() {
        let mut table = two();
        let name = state_property(OTHER);
        table.properties.insert(name.clone(), "garbage".to_owned());
        let rebuilt = peers(WRITER, &table.view()).unwrap().remove(0);
        assert_eq!(rebuilt.claim.finalized_before_us, Some(at("11:00")));
        table.lineage.snapshots.truncate(0);
        assert_eq!(peers(WRITER, &table.view()), Err(unreadable()));
    }
}
