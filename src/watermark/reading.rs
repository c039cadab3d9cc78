//! The claim that a reader may count on.
//!
//! A claim counts only on the table and ref it names, and only while its commit is in the ancestry. In doubt it is held.
//!
//! Decided here, where the rules leave it open:
//! - What counts is what the newest own ancestor's summary says: a property may be that of commits that are gone.
//! - Where the commit named by the properties is behind an expired parent, the newest own snapshot that is left counts, if it
//!   is of the same epoch and younger (commit ids are ordered by time). An older one is what a roll-back left: the worker will
//!   open an epoch for it.
//! - A table whose properties were removed has no claim to count on, although a summary has one: the next commit writes it
//!   again.

use super::claim::Claim;
use super::contract::{BadValue, TableClaim, read_properties, read_summary_claim};
use super::lineage::{Ancestor, Picked, TableView};
use super::state::CompleteFrom;

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
    /// One of our commits was cherry-picked onto the newest own one.
    #[error("snapshot {snapshot_id} is a cherry-picked copy of a commit of ours")]
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

/// What a reader of a table may count on.
#[must_use]
pub fn read_claim(table: &TableView<'_>) -> Reading {
    let held = |why: Held, last: Option<TableClaim>| Reading::Held { why, last };
    let property = match read_properties(table.properties) {
        Ok(property) => property,
        Err(bad) => return held(Held::Unreadable(bad), None),
    };
    let newest = table.lineage.snapshots.iter().position(Ancestor::is_own);
    let (property, newest) = match (property, newest) {
        (None, None) => return Reading::Nothing,
        (None, Some(_)) => return held(Held::Removed, None),
        (Some(property), _) if !table.is(property.table_uuid, &property.table_ref) => {
            return held(Held::Void, Some(property));
        }
        (Some(property), None) if table.lineage.broken => {
            return held(Held::LineageUnknown, Some(property));
        }
        (Some(property), None) => return held(Held::NotInAncestry, Some(property)),
        (Some(property), Some(newest)) => (property, newest),
    };
    let ours = |snapshot: &&Ancestor| matches!(snapshot.picked, Some(Picked::Ours(_)));
    if let Some(copy) = table.lineage.snapshots[..newest].iter().find(ours) {
        let snapshot_id = copy.snapshot_id;
        return held(Held::CherryPicked { snapshot_id }, Some(property));
    }
    let claim = match read_summary_claim(&table.lineage.snapshots[newest].summary) {
        Ok(Some(claim)) => claim,
        Ok(None) => return held(Held::NotInAncestry, Some(property)),
        Err(bad) => return held(Held::Unreadable(bad), Some(property)),
    };
    if !table.is(claim.table_uuid, &claim.table_ref) {
        return held(Held::Void, Some(property));
    }
    let own = table.lineage.snapshots.iter().filter(|own| own.is_own());
    let in_ancestry = own
        .filter_map(Ancestor::commit_id)
        .any(|id| id == property.commit_id);
    let expired = table.lineage.broken
        && claim.claim.epoch == property.claim.epoch
        && claim.commit_id > property.commit_id;
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
    use uuid::Uuid;

    use super::super::JumpKind;
    use super::super::contract::{EPOCH, FINALIZED_BEFORE, withdrawal};
    use super::super::testing::{Table, at, news};
    use super::*;

    fn why(table: &Table) -> Held {
        match read_claim(&table.view()) {
            Reading::Held { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }

    fn claimed(table: &Table) -> Option<i64> {
        match read_claim(&table.view()) {
            Reading::Claim(claim) => claim.claim.finalized_before_us,
            _ => None,
        }
    }

    #[test]
    fn a_claim_counts_behind_foreign_snapshots() {
        let mut table = Table::flowing();
        table.foreign(None);
        table.foreign(Some(Picked::Foreign));
        table.foreign(Some(Picked::Gone));
        assert_eq!(claimed(&table), Some(at("10:00")));
    }

    #[test]
    fn a_roll_back_and_a_replaced_table_hold_the_claim() {
        let mut table = Table::flowing();
        table.roll_back(2);
        assert_eq!(why(&table), Held::NotInAncestry);
        table.lineage.snapshots.clear();
        assert_eq!(why(&table), Held::NotInAncestry);
    }

    /// Otherwise readers would see the claim fall in one epoch on every table that expires snapshots.
    #[test]
    fn a_roll_back_is_told_from_expiry_by_the_order_of_commits() {
        let mut table = Table::flowing();
        table.roll_back(2);
        table.lineage.broken = true;
        assert_eq!(why(&table), Held::NotInAncestry);
    }

    /// A property that somebody put back, whose commit has expired since.
    #[test]
    fn an_old_property_behind_an_expired_parent_gives_way_to_the_newest_summary() {
        let mut table = Table::flowing();
        let old = table.properties.clone();
        table.commit(
            news("11:30")
                .rows(0, 4, &[])
                .end("11:30", 4)
                .asked("11:30", 2),
        );
        table.commit(news("11:30").rows(1, 4, &[]).end("11:30", 4));
        table.properties = old;
        table.lineage.snapshots.truncate(1);
        table.lineage.broken = true;
        assert_eq!(claimed(&table), Some(at("11:00")));
        table.properties.insert(EPOCH.to_owned(), "2".to_owned());
        assert_eq!(why(&table), Held::NotInAncestry, "another epoch");
        table.lineage.snapshots.clear();
        table.foreign(None);
        assert_eq!(why(&table), Held::LineageUnknown);
    }

    #[test]
    fn a_copy_a_branch_and_a_table_made_again_show_no_claim() {
        let mut table = Table::flowing();
        for _ in 0..2 {
            let other = TableView {
                table_uuid: Uuid::from_u128(8),
                ..table.view()
            };
            let branch = TableView {
                table_ref: "audit",
                ..table.view()
            };
            for view in [other, branch] {
                let read = read_claim(&view);
                assert!(
                    matches!(
                        read,
                        Reading::Held {
                            why: Held::Void,
                            ..
                        }
                    ),
                    "{read:?}"
                );
            }
            // A copy of the definition brings the properties and no snapshot.
            table.lineage.snapshots.clear();
        }
    }

    /// Its rows are there twice, or without those before it.
    #[test]
    fn a_cherry_picked_commit_of_ours_holds_until_a_commit_lies_above_it() {
        let mut table = Table::flowing();
        let snapshot_id = table.foreign(Some(Picked::Ours("shop.items".to_owned())));
        assert_eq!(why(&table), Held::CherryPicked { snapshot_id });
        table.commit(news("10:45").rows(0, 4, &["10:41"]));
        assert_eq!(claimed(&table), Some(at("10:00")));
        table.properties.clear();
        assert_eq!(why(&table), Held::Removed);
        table.properties.clear();
        table.lineage.snapshots.clear();
        assert_eq!(read_claim(&table.view()), Reading::Nothing);
    }

    #[test]
    fn a_withdrawn_claim_says_nothing_and_what_it_was_about() {
        let mut table = Table::flowing();
        let changes = withdrawal(&table.properties).unwrap();
        assert!(changes.set.is_empty());
        changes.remove.iter().for_each(|name| {
            table.properties.remove(name);
        });
        assert_eq!(withdrawal(&table.properties), None);
        table.lineage.snapshots.clear();
        let Reading::Held {
            last: Some(last), ..
        } = read_claim(&table.view())
        else {
            panic!("not held")
        };
        assert_eq!(last.claim.finalized_before_us, None);
        assert_eq!((last.claim.epoch, last.commit_id), (1, Uuid::from_u128(5)));
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
