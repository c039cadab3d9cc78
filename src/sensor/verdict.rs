//! Whether a table is complete over an interval of event time.
//!
//! In: what the table says and a question. Out: one verdict. No I/O and no clock: the same question to the same snapshot has
//! one answer.
//!
//! Unknown is never ready: a claim that does not count, and one that the accepted terms do not carry, both say no.

use std::collections::BTreeSet;

use crate::{
    api::{quantity::instant, worker::Interval},
    watermark::{Claim, Coverage, ForeignClaim, Grid, Reopened, Retracted, System, Term},
};

/// What a table says by the readers' rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The table, as `namespace.name`.
    pub table: String,
    /// Its newest snapshot on main: what a job reads that waited for this claim. None: the table is empty.
    pub snapshot_id: Option<i64>,
    /// Whether there is a claim and whether it counts.
    pub standing: Standing,
    /// Where a claim was taken back altogether: what had been final and is open again.
    pub taken_back: Option<Reopened>,
    /// What other systems say, where there is no claim of ours.
    pub foreign: Vec<ForeignClaim>,
}

/// How a table's claim stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It has none: nothing writes it, or nothing is final yet.
    Unclaimed,
    /// It has one that does not count, and why.
    Held(String),
    /// It has one.
    Claimed(Box<TableClaim>),
}

/// A claim that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableClaim {
    /// What it says.
    pub claim: Claim,
    /// Every row with an earlier event time is there.
    pub finalized_before_us: i64,
    /// How far each set of accepted terms alone would carry it.
    pub accepted: Vec<Accepted>,
    /// What it rests on besides, as `lateness=5m,delay=10m,skew=5m`.
    pub bounds: String,
    /// The last final cell, for people.
    pub last_final_cell: Option<String>,
    /// The cells that are finalized; none where another system wrote the claim.
    pub grid: Option<Grid>,
    /// The policy revision.
    pub policy_revision: u64,
    /// The commit that it is true for.
    pub commit_id: String,
    /// What holds the next cell, as a sentence.
    pub hold: Option<String>,
    /// Rows that could not be decoded, in the commits that are still on record.
    pub undecodable: u64,
}

/// How far terms carry a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// These terms alone.
    pub terms: BTreeSet<Term>,
    /// Carry it up to here; none: nowhere.
    pub finalized_before_us: Option<i64>,
}

/// What a reader wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The first instant of the interval, µs; none: one cell before its end.
    pub from_us: Option<i64>,
    /// The first instant after it, µs.
    pub before_us: i64,
    /// The terms that may carry the claim; none: all.
    pub accept: Option<BTreeSet<Term>>,
    /// The systems whose word counts where there is no claim of ours.
    pub foreign: BTreeSet<System>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Complete: read the snapshot of the reading.
    Ready,
    /// The claim has not got there.
    NotYet,
    /// Rows of the interval are missing for good, and why.
    Incomplete(String),
    /// The claim does not count, and why.
    Held(String),
    /// Complete, but not by the accepted terms alone.
    OtherEvidence,
}

impl Verdict {
    /// The word for it, for programs.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotYet => "not-yet",
            Self::Incomplete(_) => "incomplete",
            Self::Held(_) => "held",
            Self::OtherEvidence => "other-evidence",
        }
    }
}

impl Question {
    /// The interval for these cells, as the pair of its ends in µs.
    #[must_use]
    pub fn interval(&self, grid: Option<Grid>) -> Interval {
        let one_before = grid.map_or(self.before_us, |grid| grid.floor(self.before_us - 1));
        Interval {
            from_us: self.from_us.unwrap_or(one_before),
            before_us: self.before_us,
        }
    }
}

impl Reading {
    /// Answers a question.
    #[must_use]
    pub fn judge(&self, question: &Question) -> Verdict {
        let claim = match &self.standing {
            Standing::Unclaimed => return self.judge_foreign(question),
            Standing::Held(why) => return Verdict::Held(why.clone()),
            Standing::Claimed(claim) => claim,
        };
        let interval = question.interval(claim.grid);
        match claim.claim.covers(interval.from_us, interval.before_us) {
            Coverage::Ready => {}
            Coverage::NotYet | Coverage::Withheld { .. } => return Verdict::NotYet,
            // It may still fall while the first rows come in: before the claim is there, it is not the last word.
            Coverage::BeforeCompleteFrom { .. }
                if claim.finalized_before_us < interval.before_us =>
            {
                return Verdict::NotYet;
            }
            Coverage::BeforeCompleteFrom { complete_from_us } => {
                return Verdict::Incomplete(format!(
                    "the table is complete from {} on only",
                    instant(complete_from_us)
                ));
            }
            Coverage::Gap { from_us, to_us } => {
                let (from, to) = (instant(from_us), instant(to_us));
                let mut retracted = claim.claim.retracted.iter().rev();
                let meets = |one: &&Retracted| one.from_us < to_us && from_us < one.before_us;
                if let Some(one) = retracted.find(meets) {
                    let at = instant(one.at_us);
                    return Verdict::Incomplete(format!(
                        "from {from} to before {to} the claim was taken back at {at}: {}",
                        one.reason
                    ));
                }
                return Verdict::Incomplete(format!(
                    "rows from {from} to before {to} were lost at the source"
                ));
            }
        }
        match &question.accept {
            Some(terms) if !claim.carried_by(terms, interval.before_us) => Verdict::OtherEvidence,
            _ => Verdict::Ready,
        }
    }

    /// By what other systems say: all of them that are accepted and say something, or none counts.
    fn judge_foreign(&self, question: &Question) -> Verdict {
        match self.foreign_before_us(&question.foreign) {
            Some(before_us) if question.before_us <= before_us => Verdict::Ready,
            _ => Verdict::NotYet,
        }
    }

    /// The least of what these systems say.
    #[must_use]
    pub fn foreign_before_us(&self, systems: &BTreeSet<System>) -> Option<i64> {
        let accepted = self
            .foreign
            .iter()
            .filter(|claim| systems.contains(&claim.system));
        accepted.map(|claim| claim.before_us).min()
    }
}

impl TableClaim {
    /// Whether these terms alone carry the claim up to `before_us`.
    fn carried_by(&self, terms: &BTreeSet<Term>, before_us: i64) -> bool {
        let carried = |accepted: &Accepted| {
            accepted.terms.is_subset(terms)
                && accepted
                    .finalized_before_us
                    .is_some_and(|us| us >= before_us)
        };
        self.claim.evidence.is_subset(terms) || self.accepted.iter().any(carried)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        api::quantity::parse_instant_us,
        watermark::{Amended, AmendedCell, CompleteFrom, Gaps},
    };

    const HOUR_US: i64 = 3_600_000_000;

    fn at(text: &str) -> i64 {
        parse_instant_us(text).unwrap()
    }

    /// A table with a claim over this interval, by both terms; caught-up alone carries it an hour less far.
    pub(in crate::sensor) fn claimed(from: &str, before: &str) -> Reading {
        let both = BTreeSet::from([Term::Minimum, Term::CaughtUp]);
        let only = BTreeSet::from([Term::CaughtUp]);
        let published = Claim {
            epoch: 1,
            finalized_before_us: Some(at(before)),
            complete_from: CompleteFrom::From(at(from)),
            gaps: Gaps::default(),
            evidence: both,
            margin_us: Some(1_000_000),
            reopened: None,
            amended: Amended::default(),
            retracted: Vec::new(),
        };
        let claim = TableClaim {
            claim: published,
            finalized_before_us: at(before),
            accepted: vec![Accepted {
                terms: only,
                finalized_before_us: Some(at(before) - HOUR_US),
            }],
            bounds: "lateness=5m,delay=10m,skew=5m".into(),
            last_final_cell: None,
            grid: Grid::new(HOUR_US).ok(),
            policy_revision: 1,
            commit_id: "c".into(),
            hold: None,
            undecodable: 0,
        };
        Reading {
            table: "shop.orders".into(),
            snapshot_id: Some(7),
            taken_back: None,
            standing: Standing::Claimed(Box::new(claim)),
            foreign: Vec::new(),
        }
    }

    fn question(before: &str) -> Question {
        Question {
            from_us: None,
            before_us: at(before),
            accept: None,
            foreign: BTreeSet::new(),
        }
    }

    fn ask(reading: &Reading, before: &str) -> Verdict {
        reading.judge(&question(before))
    }

    #[test]
    fn an_hour_is_asked_for_by_its_end() {
        let reading = claimed("2026-11-30T08:00:00Z", "2026-11-30T12:00:00Z");
        assert_eq!(ask(&reading, "2026-11-30T12:00:00Z"), Verdict::Ready);
        assert_eq!(ask(&reading, "2026-11-30T09:00:00Z"), Verdict::Ready);
        assert_eq!(ask(&reading, "2026-11-30T13:00:00Z"), Verdict::NotYet);
        // 07:00–08:00 was never read whole.
        assert!(matches!(
            ask(&reading, "2026-11-30T08:00:00Z"),
            Verdict::Incomplete(_)
        ));
    }

    #[test]
    fn gap_makes_its_cells_incomplete_and_no_others() {
        let mut reading = claimed("2026-11-30T00:00:00Z", "2026-11-30T12:00:00Z");
        let Standing::Claimed(claim) = &mut reading.standing else {
            unreachable!()
        };
        claim
            .claim
            .gaps
            .add(at("2026-11-30T09:00:00Z"), at("2026-11-30T10:00:00Z"));
        assert_eq!(ask(&reading, "2026-11-30T09:00:00Z"), Verdict::Ready);
        assert!(matches!(
            ask(&reading, "2026-11-30T10:00:00Z"),
            Verdict::Incomplete(_)
        ));
        assert_eq!(ask(&reading, "2026-11-30T11:00:00Z"), Verdict::Ready);
    }

    /// 10:00–11:00 of a table that is final up to 12:00.
    pub(in crate::sensor) fn amended(reading: &mut Reading, withheld: bool) {
        let Standing::Claimed(claim) = &mut reading.standing else {
            unreachable!()
        };
        let cell = AmendedCell {
            from_us: at("2026-11-30T10:00:00Z"),
            before_us: at("2026-11-30T11:00:00Z"),
            revision: 2,
            rows: 5,
            at_us: at("2026-11-30T12:20:00Z"),
            withheld,
        };
        claim.claim.amended = Amended::of(
            vec![cell],
            None,
            withheld.then_some(at("2026-11-30T12:00:00Z")),
        )
        .unwrap();
    }

    #[test]
    fn withheld_cell_is_not_yet_and_its_neighbours_are_ready() {
        let mut reading = claimed("2026-11-30T00:00:00Z", "2026-11-30T12:00:00Z");
        amended(&mut reading, true);
        assert_eq!(ask(&reading, "2026-11-30T11:00:00Z"), Verdict::NotYet);
        assert_eq!(ask(&reading, "2026-11-30T10:00:00Z"), Verdict::Ready);
        assert_eq!(ask(&reading, "2026-11-30T12:00:00Z"), Verdict::Ready);
        amended(&mut reading, false);
        assert_eq!(ask(&reading, "2026-11-30T11:00:00Z"), Verdict::Ready);
    }

    #[test]
    fn claim_counts_as_far_as_the_accepted_terms_carry_it() {
        let reading = claimed("2026-11-30T00:00:00Z", "2026-11-30T12:00:00Z");
        let accept = |before: &str, terms: &[Term]| {
            let accept = Some(terms.iter().copied().collect());
            reading.judge(&Question {
                accept,
                ..question(before)
            })
        };
        assert_eq!(
            accept("2026-11-30T11:00:00Z", &[Term::CaughtUp]),
            Verdict::Ready
        );
        assert_eq!(
            accept("2026-11-30T12:00:00Z", &[Term::CaughtUp]),
            Verdict::OtherEvidence
        );
        assert_eq!(
            accept("2026-11-30T11:00:00Z", &[Term::Minimum]),
            Verdict::OtherEvidence
        );
        assert_eq!(
            accept("2026-11-30T12:00:00Z", &[Term::Minimum, Term::CaughtUp]),
            Verdict::Ready
        );
    }

    /// A foreign value is no claim of ours: it counts for who says so, the least of those accepted, and never beside ours.
    #[test]
    fn foreign_word_counts_by_choice_and_only_without_a_claim_of_ours() {
        let ours = claimed("2026-11-30T00:00:00Z", "2026-11-30T12:00:00Z");
        let word = |system: System, before: &str| ForeignClaim {
            system,
            name: system.label().to_owned(),
            before_us: at(before),
            snapshot_id: None,
            note: None,
        };
        let words = vec![
            word(System::Gobblin, "2026-11-30T14:00:00Z"),
            word(System::Flink, "2026-11-30T13:00:00Z"),
        ];
        let asked = |standing: Standing, systems: &[System], before: &str| {
            let reading = Reading {
                standing,
                foreign: words.clone(),
                ..ours.clone()
            };
            reading.judge(&Question {
                foreign: systems.iter().copied().collect(),
                ..question(before)
            })
        };
        let none = || Standing::Unclaimed;
        let late = "2026-11-30T14:00:00Z";
        assert_eq!(asked(none(), &[], late), Verdict::NotYet);
        assert_eq!(asked(none(), &[System::Gobblin], late), Verdict::Ready);
        assert_eq!(
            asked(none(), &System::ALL, late),
            Verdict::NotYet,
            "flink is behind"
        );
        assert_eq!(
            asked(none(), &System::ALL, "2026-11-30T13:00:00Z"),
            Verdict::Ready
        );
        assert_eq!(
            asked(none(), &[System::AutoMq], "2026-11-30T01:00:00Z"),
            Verdict::NotYet
        );
        assert_eq!(
            asked(ours.standing.clone(), &System::ALL, "2026-11-30T13:00:00Z"),
            Verdict::NotYet
        );
        let held = Standing::Held("rolled back".into());
        assert_eq!(
            asked(held, &System::ALL, late),
            Verdict::Held("rolled back".into())
        );
    }

    #[test]
    fn claim_that_does_not_count_is_held() {
        let reading = Reading {
            standing: Standing::Held("rolled back".into()),
            ..claimed("2026-11-30T00:00:00Z", "2026-11-30T12:00:00Z")
        };
        assert_eq!(
            ask(&reading, "2026-11-30T01:00:00Z"),
            Verdict::Held("rolled back".into())
        );
    }
}
