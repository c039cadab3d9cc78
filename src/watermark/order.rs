//! What a person asks of a table, beside its workers.
//!
//! An order is carried out by one commit without rows, on the newest base, like every other: what it does is in the state and
//! in the summary of that commit, so that workers go on from it and a rebuild comes to the same.
//!
//! A stretch that is retracted is left out of the claim for good, in a new epoch. The claim itself stays: what it says beside
//! the stretch is as true as before.

/// The retracted stretches of which the reason is kept; the stretches themselves stay among the gaps.
pub const MAX_RETRACTED: usize = 8;

/// The longest reason, in characters.
pub const MAX_REASON: usize = 120;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Takes back that a stretch is complete.
    Retract(Retraction),
    /// The writer brings nothing more: it no longer holds the table's claim.
    Drain,
    /// The writer goes on, and holds the claim again.
    Undrain,
}

/// A stretch that is said not to be complete, although it was published as such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retraction {
    /// Its first instant.
    pub from_us: i64,
    /// The first instant after it.
    pub before_us: i64,
    /// Why, for people.
    pub reason: String,
}

/// A retraction that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retracted {
    /// The start of its first cell.
    pub from_us: i64,
    /// The end of its last cell.
    pub before_us: i64,
    /// When the commit was made.
    pub at_us: i64,
    /// Why, for people.
    pub reason: String,
}

impl Retraction {
    /// A stretch to retract, with a reason in one line.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub fn new(from_us: i64, before_us: i64, reason: &str) -> Result<Self, String> {
        if from_us >= before_us {
            return Err("the stretch is empty: write a --before that lies after --from".to_owned());
        }
        let reason = reason.trim();
        if reason.is_empty()
            || reason.chars().count() > MAX_REASON
            || reason.chars().any(char::is_control)
        {
            return Err(format!(
                "the reason {reason:?} cannot be kept: write one line of 1 to {MAX_REASON} characters"
            ));
        }
        Ok(Self {
            from_us,
            before_us,
            reason: reason.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TOPIC, Table, WRITER, at, identity, news, policy};
    use super::super::{Asker, Contribution, Coverage, Misfit, Standing, State, contract, stand};
    use super::*;

    fn retract(now: &str, from: &str, before: &str) -> Contribution {
        let retraction = Retraction::new(at(from), at(before), "a job deleted rows");
        Contribution {
            order: Some(Order::Retract(retraction.unwrap())),
            ..news(now)
        }
    }

    /// Hours from 07:00 to 10:00, all of them claimed.
    fn table() -> Table {
        let mut table = Table::flowing();
        table.policy.complete_from = super::super::FromRule::Unbounded;
        table.policy.revision = 2;
        table.commit(news("10:42"));
        table
    }

    #[test]
    fn a_retracted_stretch_is_left_out_in_a_new_epoch_and_its_neighbours_stay() {
        let mut table = table();
        table.commit(retract("10:50", "08:10", "08:50"));
        assert_eq!(table.state.published.epoch, 2);
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        let covers = |table: &Table, from: &str, before: &str| {
            table.state.claim().covers(at(from), at(before))
        };
        let (from_us, to_us) = (at("08:00"), at("09:00"));
        let gap = Coverage::Gap { from_us, to_us };
        assert_eq!(covers(&table, "08:00", "09:00"), gap, "outward to cells");
        assert_eq!(covers(&table, "09:00", "10:00"), Coverage::Ready);
        assert_eq!(
            table.properties[contract::RETRACTED],
            r#"[{"at":"2026-11-30T10:50:00Z","before":"2026-11-30T09:00:00Z","from":"2026-11-30T08:00:00Z","reason":"a job deleted rows"}]"#
        );
        // The worker goes on from it, and a rebuild comes to the same.
        table.commit(news("10:51").rows(0, 4, &["10:50"]));
        assert_eq!(covers(&table, "08:00", "09:00"), gap);
        assert_eq!(table.state.published.epoch, 2);
        let text = &table.properties[&contract::state_property(WRITER)];
        assert_eq!(State::decode(text).unwrap(), table.state);
        let summary = contract::read_summary(&table.lineage.snapshots[0].summary);
        assert_eq!(summary.unwrap().unwrap().published, table.state.published);
    }

    /// The stretch stayed out, and nobody could read why.
    #[test]
    fn a_retracted_stretch_outlasts_an_accept_that_keeps_the_offsets() {
        let mut table = table();
        table.commit(retract("10:50", "08:10", "08:50"));
        let before = table.state.published.clone();
        table.lineage.snapshots.clear();
        table.lineage.broken = true;
        let mut asker = Asker::new(WRITER, at("11:00"));
        asker.accept.snapshot_id = Some(table.foreign(None));
        let Ok(Standing::Begins(begins)) = stand(&asker, &table.view()) else {
            panic!("it does not begin");
        };
        let state = begins.state(identity(), TOPIC, policy(), at("11:00"));
        assert_eq!(state.published.retracted, before.retracted);
        assert_eq!(state.published.gaps, before.gaps);
    }

    /// What was never claimed cannot be taken back: it would be left out of what is still to come.
    #[test]
    fn only_what_is_published_can_be_retracted() {
        let mut table = table();
        let unpublished = table.try_commit(retract("10:50", "10:00", "11:00"));
        assert_eq!(
            unpublished.unwrap_err(),
            Misfit::NotPublished {
                from_us: at("10:00"),
                claim_us: Some(at("10:00"))
            }
        );
        let mut fresh = Table::anchored("09:00", 1);
        let none = fresh.try_commit(retract("09:10", "08:00", "09:00"));
        assert!(matches!(
            none.unwrap_err(),
            Misfit::NotPublished { claim_us: None, .. }
        ));
    }

    /// A gap stays for good: a wrong year would leave out all that is ever to come.
    #[test]
    fn what_is_still_to_come_cannot_be_retracted() {
        let mut table = table();
        let before = table.state.clone();
        let to_come = table.try_commit(retract("10:50", "08:00", "11:01"));
        assert_eq!(
            to_come.unwrap_err(),
            Misfit::StillToCome {
                before_us: at("11:01"),
                latest_us: at("11:00")
            }
        );
        assert_eq!(table.state, before);
        table.commit(retract("10:50", "08:00", "11:00"));
        let gap = (at("08:00"), at("11:00"));
        assert_eq!(table.state.gaps().stretches(), [gap], "the open cell, too");
    }

    #[test]
    fn old_reasons_are_forgotten_and_no_stretch_is() {
        let mut table = table();
        for minute in 10..20 {
            table.commit(retract(&format!("10:{}", minute + 40), "08:10", "08:50"));
        }
        table.policy.grid = super::super::Grid::new(60 * super::super::SECOND_US).unwrap();
        table.policy.revision = 3;
        table.commit(news("11:00"));
        assert_eq!(table.state.published.retracted.len(), MAX_RETRACTED);
        let stretch = (at("08:00"), at("09:00"));
        assert_eq!(table.state.gaps().stretches(), [stretch]);
        assert_eq!(table.state.published.epoch, 11);
    }

    #[test]
    fn a_reason_is_one_line() {
        for bad in ["", "  ", "two\nlines", &"x".repeat(MAX_REASON + 1)] {
            assert!(Retraction::new(0, 1, bad).is_err(), "{bad:?}");
        }
        assert!(Retraction::new(1, 1, "empty").is_err());
        assert_eq!(
            Retraction::new(0, 1, " trimmed ").unwrap().reason,
            "trimmed"
        );
    }
}
