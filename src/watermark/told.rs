//! What the readers of a table were told last, whoever committed it.
//!
//! What is known of a writer can get less: its state is removed, its commits expire, another writer's word about it is rolled
//! back. Counted anew from what is left, the epochs of all writers may come to less than what was published, or a claim may
//! be lower in the same epoch.
//!
//! Nothing is ever published below what readers were told: whoever commits next makes up for what is missing with its own epoch.

use super::contract::{read_properties, read_summary_claim};
use super::epoch::{Reopened, StepCause};
use super::event_time::floor_second;
use super::gaps::Gaps;
use super::lineage::TableView;
use super::state::State;
use super::writers::newest_word;

/// What a table published last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Its epoch.
    pub epoch: u64,
    /// Its claim.
    pub claimed_us: Option<i64>,
    /// What it left out.
    pub gaps: Gaps,
}

impl Told {
    /// By the newest commit of ours in the ancestry, or by the properties of one that is gone from there.
    pub(super) fn by(table: &TableView<'_>) -> Self {
        let word = newest_word(table);
        let word = word.and_then(|word| read_summary_claim(word).ok().flatten());
        let property = read_properties(table.properties).ok().flatten();
        let property = property.filter(|told| table.is(told.table_uuid, &told.table_ref));
        // A commit in the ancestry says it itself.
        let property = property.filter(|told| {
            let mut own = table.lineage.snapshots.iter().filter(|own| own.is_own());
            word.is_none() || !own.any(|own| own.commit_id() == Some(told.commit_id))
        });
        let mut all = Told::default();
        for told in word.into_iter().chain(property) {
            let claim = told.claim;
            let (epoch, claimed_us) = (claim.epoch, claim.finalized_before_us);
            (all.epoch, all.claimed_us) = (all.epoch, all.claimed_us).max((epoch, claimed_us));
            for (from_us, to_us) in claim.gaps.stretches() {
                all.gaps.add(*from_us, *to_us);
            }
        }
        all
    }
}

impl State {
    /// Goes on from what readers were told. The others have to be known.
    pub(super) fn follow(&mut self, told: &Told, now_us: i64) {
        let begins = self.is_new();
        // A writer that begins claims nothing yet, and holds the others.
        let claimed_us = self.claimed_us().filter(|_| !begins);
        let fell = told
            .claimed_us
            .filter(|told_us| claimed_us < Some(*told_us));
        let least = told.epoch + u64::from(fell.is_some());
        let others: u64 = self.peers.iter().map(|peer| peer.claim.epoch).sum();
        let published = &mut self.published;
        published.epoch += least.saturating_sub(published.epoch + others);
        let known_us = published.reopened.map(|reopened| reopened.before_us);
        // What a first commit opens is its own.
        let fell = fell.filter(|_| !begins);
        if let Some(before_us) = fell.filter(|told_us| known_us < Some(*told_us)) {
            published.reopened = Some(Reopened {
                cause: StepCause::RolledBack,
                from_us: claimed_us,
                before_us,
                at_us: floor_second(now_us),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract::state_property;
    use super::super::order::{Order, Retraction};
    use super::super::testing::pair::{
        OTHER, accepted, base, claimed, commit, flow, order, stands, two,
    };
    use super::super::testing::{Table, WRITER, at, news};
    use super::*;

    fn forget(table: &mut Table, writer: &str) {
        table.properties.remove(&state_property(writer)).unwrap();
    }

    /// Both up to 12:00, in epoch 2; the newest two commits are of the one that goes away then.
    fn further() -> Table {
        let mut table = two();
        for writer in [OTHER, WRITER] {
            let rows = [("12:20", "12:10"), ("12:21", "12:11")];
            flow(
                &mut table,
                writer,
                rows,
                if writer == OTHER { 1 } else { 2 },
            );
        }
        assert_eq!(last(&table), told(2, Some("12:00")));
        table
    }

    fn told(epoch: u64, claim: Option<&str>) -> (u64, Option<i64>) {
        (epoch, claim.map(at))
    }

    fn last(table: &Table) -> (u64, Option<i64>) {
        let told = Told::by(&table.view());
        (told.epoch, told.claimed_us)
    }

    /// The next commit of a writer, and what readers are told by it.
    fn next(table: &mut Table, writer: &str, now: &str) -> (u64, Option<i64>) {
        let before = last(table);
        let next = commit(table, writer, news(now));
        let told = last(table);
        assert_eq!(told.1, next.claim.finalized_before_us);
        assert!(told >= before, "{before:?} is followed by {told:?}");
        told
    }

    /// It was rolled back while it was away, another one had counted that as a step, and then its state was lost: the epoch of the
    /// table fell.
    #[test]
    fn a_roll_back_that_was_counted_once_is_counted_without_the_state_as_well() {
        let mut table = further();
        table.roll_back(2);
        assert_eq!(next(&mut table, OTHER, "12:30"), told(3, Some("10:00")));
        forget(&mut table, WRITER);
        assert_eq!(next(&mut table, OTHER, "12:31"), told(3, Some("10:00")));
        assert_eq!(base(&table, WRITER).published.epoch, 1);
        assert_eq!(next(&mut table, WRITER, "12:32"), told(3, Some("10:00")));
    }

    /// Nobody has counted the roll-back when the state is lost, or the one who has is rolled back as well: the claim fell within an epoch.
    #[test]
    fn a_claim_that_nothing_explains_any_more_falls_in_a_new_epoch() {
        for first in [WRITER, OTHER] {
            let mut table = further();
            table.roll_back(2);
            forget(&mut table, WRITER);
            let fallen = next(&mut table, first, "12:30");
            assert!(fallen.0 > 2 && fallen.1 == Some(at("10:00")));
            let mut table = further();
            table.roll_back(2);
            assert_eq!(next(&mut table, OTHER, "12:30"), told(3, Some("10:00")));
            table.roll_back(2);
            forget(&mut table, WRITER);
            let fallen = next(&mut table, first, "12:31");
            assert!(fallen >= told(3, Some("10:00")), "{fallen:?}");
        }
    }

    #[test]
    fn two_writers_that_lose_their_states_go_on_in_no_earlier_epoch() {
        let mut table = further();
        table.roll_back(3);
        forget(&mut table, WRITER);
        forget(&mut table, OTHER);
        let first = next(&mut table, WRITER, "12:30");
        assert!(first.0 > 2, "{first:?}");
        assert_eq!(next(&mut table, OTHER, "12:31").0, first.0);
    }

    /// The commit that it was rolled back to has expired, and with its state goes what that would have counted.
    #[test]
    fn an_epoch_outlasts_the_expiry_of_what_it_was_counted_by() {
        let mut table = further();
        let rows = [("13:20", "13:10"), ("13:21", "13:11")];
        flow(&mut table, OTHER, rows, 1);
        table.roll_back(2);
        let counted = next(&mut table, WRITER, "13:30");
        forget(&mut table, OTHER);
        assert_eq!(next(&mut table, WRITER, "13:31"), counted);
        table.lineage.snapshots.truncate(1);
        table.lineage.broken = true;
        assert!(
            stands(&table, WRITER).is_err(),
            "nobody knows how far it had got"
        );
    }

    /// Rolled back behind all of its commits it is in no summary of the others: without its state nothing is left of it but the epoch.
    #[test]
    fn the_epochs_of_a_writer_that_is_forgotten_stay() {
        let mut table = two();
        table.roll_back(3);
        let undone = next(&mut table, WRITER, "11:40");
        assert_eq!(undone, told(4, None));
        forget(&mut table, OTHER);
        let alone = next(&mut table, WRITER, "11:41");
        assert_eq!(alone, told(4, Some("10:00")));
        assert_eq!(base(&table, WRITER).published.epoch, 4);
        forget(&mut table, WRITER);
        assert_eq!(base(&table, WRITER).published.epoch, 4);
        let back = commit(&mut table, OTHER, news("11:42").anchor(0, 0));
        assert_eq!((claimed(&back), back.claim.epoch), (None, 5));
    }

    #[test]
    fn a_drained_writer_that_is_rolled_back_and_loses_its_state_keeps_its_epochs() {
        let mut table = further();
        order(&mut table, WRITER, "12:30", Order::Drain);
        let rows = [("13:20", "13:10"), ("13:21", "13:11")];
        flow(&mut table, OTHER, rows, 1);
        let newest = last(&table);
        table.roll_back(3);
        let fallen = next(&mut table, OTHER, "13:30");
        assert!(fallen.0 > newest.0 && fallen.1 < newest.1);
        forget(&mut table, WRITER);
        assert_eq!(next(&mut table, OTHER, "13:31"), fallen);
    }

    /// Who reads the table learns which cells are open again with the very commit that takes them back, whosever it is.
    #[test]
    fn whoever_takes_a_claim_back_first_says_which_cells_are_open_again() {
        let mut table = further();
        table.roll_back(2);
        let counted = commit(&mut table, OTHER, news("12:30"));
        let reopened = Reopened {
            cause: StepCause::RolledBack,
            from_us: Some(at("10:00")),
            before_us: at("12:00"),
            at_us: at("23:00"),
        };
        assert_eq!(counted.claim.reopened, Some(reopened));
        let rows = [("12:40", "12:30"), ("12:41", "12:31")];
        let back = flow(&mut table, WRITER, rows, 2);
        assert_eq!(
            (claimed(&back).as_deref(), back.claim.reopened),
            (Some("2026-11-30T12:00:00Z"), None)
        );
    }

    /// A drained writer is let in again after the table was rolled back: what that had opened was forgotten with what the writer opens.
    #[test]
    fn who_enters_after_a_roll_back_keeps_what_that_has_opened() {
        let mut table = two();
        order(&mut table, WRITER, "11:40", Order::Drain);
        let rows = [("12:20", "12:10"), ("12:21", "12:11")];
        flow(&mut table, OTHER, rows, 1);
        let stretch = Retraction::new(at("10:00"), at("11:00"), "a job deleted rows");
        order(
            &mut table,
            WRITER,
            "12:30",
            Order::Retract(stretch.unwrap()),
        );
        assert_eq!(last(&table), told(3, Some("12:00")));
        table.roll_back(3);
        let back = order(&mut table, WRITER, "12:40", Order::Undrain).claim;
        assert_eq!(back.finalized_before_us, Some(at("10:00")));
        let reopened = Reopened {
            cause: StepCause::WriterJoined,
            from_us: Some(at("10:00")),
            before_us: at("12:00"),
            at_us: at("12:40"),
        };
        assert_eq!(back.reopened, Some(reopened));
        let drained = order(&mut table, WRITER, "12:41", Order::Drain).claim;
        assert_eq!(drained.finalized_before_us, Some(at("11:00")));
        assert_eq!(drained.reopened, Some(reopened), "12:00 is still to come");
    }

    /// It was said to have joined, to an owner who had agreed to the table.
    #[test]
    fn a_writer_that_begins_anew_beside_another_says_so() {
        let mut table = further();
        let newest = table.lineage.snapshots.remove(0);
        table.lineage.snapshots.retain(|own| own.is_of(OTHER));
        table.lineage.broken = true;
        assert!(newest.is_of(WRITER));
        table.state = accepted(&table, WRITER);
        let begins = table.commit(news("12:30").anchor(0, 4).anchor(1, 4)).claim;
        let reopened = begins.reopened.unwrap();
        assert_eq!(reopened.cause, StepCause::LineageAccepted);
        assert_eq!((reopened.from_us, reopened.before_us), (None, at("12:00")));
    }

    /// What somebody writes into the properties by hand is not what readers were told.
    #[test]
    fn a_commit_that_is_there_says_what_it_told() {
        let mut table = further();
        let epoch = super::super::contract::EPOCH.to_owned();
        table.properties.insert(epoch, "99".to_owned());
        assert_eq!(next(&mut table, OTHER, "12:30"), told(2, Some("12:00")));
    }
}
