//! A claim for people and for programs.
//!
//! Comes in: a reading or a verdict. Goes out: a text, or a struct that is written as JSON or YAML. Instants are ISO 8601 in
//! UTC everywhere.

use std::{collections::BTreeSet, fmt::Write};

use serde::Serialize;

use super::{
    Answer, Question,
    foreign::{self, ForeignReport},
    verdict::{Reading, Standing, TableClaim, Verdict},
};
use crate::{
    api::{
        quantity::{Instant, iso, iso_option, length},
        worker::Interval,
    },
    watermark::{AmendedCell, CompleteFrom, Reopened, Retracted},
};

/// What `get` says, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The table.
    pub table: String,
    /// `claimed`, `unclaimed` or `held`.
    pub standing: &'static str,
    /// The newest snapshot: read this one, not a later one that may have been rolled back.
    pub snapshot_id: Option<i64>,
    /// Why a claim does not count, or was taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The claim.
    #[serde(flatten)]
    pub claim: Option<ClaimReport>,
    /// What other systems say, where there is no claim of ours.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<ForeignReport>,
    /// All of it for people.
    pub sentence: String,
}

/// A claim, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReport {
    /// Every row with an earlier event time is there.
    #[serde(rename = "finalizedBefore", with = "iso")]
    pub finalized_before_us: i64,
    /// The last final cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_final_cell: Option<String>,
    /// From when on that holds; null is from ever on.
    #[serde(rename = "completeFrom", with = "iso_option")]
    pub complete_from_us: Option<i64>,
    /// Where it does not hold.
    pub gaps: Vec<Interval>,
    /// The gaps that were retracted last, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retracted: Vec<RetractedReport>,
    /// Cells that got rows after they were final.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub amended: Vec<AmendedReport>,
    /// All further such cells, from the lowest on: any between may have been amended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amended_overflow: Option<AmendedReport>,
    /// Cells that were final in an earlier epoch and are open again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reopened: Option<ReopenedReport>,
    /// The terms that it rests on, as the table's property writes them.
    pub evidence: Vec<&'static str>,
    /// The declared bounds that it rests on.
    pub bounds: String,
    /// How much disorder it would have survived, ms.
    pub margin_ms: Option<i64>,
    /// The epoch.
    pub epoch: u64,
    /// The policy revision.
    pub policy_revision: u64,
    /// The commit that it is true for.
    pub commit_id: String,
    /// What holds the next cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// Rows that could not be decoded, in the commits that are still on record.
    pub undecodable: u64,
}

/// A cell with late rows, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AmendedReport {
    /// The cell.
    #[serde(flatten)]
    pub cell: Interval,
    /// How many commits brought late rows. Whoever has read the cell at a lower one reads it again.
    pub revision: u64,
    /// How many late rows came.
    pub rows: u64,
    /// When the newest of the commits was made.
    #[serde(rename = "at", with = "iso")]
    pub at_us: i64,
    /// Whether it does not count as final until the claim next rises.
    pub withheld: bool,
}

/// A stretch that was retracted, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RetractedReport {
    /// The stretch.
    #[serde(flatten)]
    pub stretch: Interval,
    /// When.
    #[serde(rename = "at", with = "iso")]
    pub at_us: i64,
    /// Why.
    pub reason: String,
}

/// Cells that are open again, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReopenedReport {
    /// Why, as the table's property writes it.
    pub cause: &'static str,
    /// They are final again once the claim is back here.
    #[serde(rename = "before", with = "iso")]
    pub before_us: i64,
    /// Since when.
    #[serde(rename = "since", with = "iso")]
    pub since_us: i64,
}

/// What `wait` says, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AnswerReport {
    /// `ready`, `not-yet`, `incomplete`, `held` or `other-evidence`.
    pub verdict: &'static str,
    /// The interval that was asked about.
    pub interval: Interval,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The cells of the interval that got rows after they were final.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<AmendedReport>,
    /// What the table said last.
    #[serde(flatten)]
    pub report: Report,
}

/// Any report as a JSON object, indented.
///
/// # Panics
/// Never: reports are plain structs with text keys.
pub fn json(report: &impl Serialize) -> String {
    serde_json::to_string_pretty(report).expect("a report is valid JSON") + "\n"
}

/// Any report as YAML.
///
/// # Panics
/// Never: reports are plain structs with text keys.
pub fn yaml(report: &impl Serialize) -> String {
    serde_yaml::to_string(report).expect("a report is valid YAML")
}

/// A reading for programs.
#[must_use]
pub fn report(reading: &Reading) -> Report {
    let (standing, why, claim) = match &reading.standing {
        Standing::Unclaimed => (
            "unclaimed",
            reading.taken_back.map(taken_back_sentence),
            None,
        ),
        Standing::Held(why) => ("held", Some(why.clone()), None),
        Standing::Claimed(claim) => ("claimed", None, Some(claim_report(claim))),
    };
    let (table, snapshot_id) = (reading.table.clone(), reading.snapshot_id);
    Report {
        table,
        standing,
        snapshot_id,
        why,
        claim,
        foreign: foreign::reports(&reading.foreign),
        sentence: sentence(reading),
    }
}

fn claim_report(claim: &TableClaim) -> ClaimReport {
    ClaimReport {
        finalized_before_us: claim.finalized_before_us,
        last_final_cell: claim.last_final_cell.clone(),
        complete_from_us: complete_from_us(claim),
        gaps: gaps(claim),
        retracted: claim.claim.retracted.iter().map(retracted).collect(),
        amended: claim.claim.amended.cells().iter().map(amended).collect(),
        amended_overflow: claim.claim.amended.overflow().map(amended),
        reopened: claim.claim.reopened.map(reopened),
        evidence: evidence(claim),
        bounds: claim.bounds.clone(),
        margin_ms: claim.claim.margin_us.map(|us| us.div_euclid(1000)),
        epoch: claim.claim.epoch,
        policy_revision: claim.policy_revision,
        commit_id: claim.commit_id.clone(),
        hold: claim.hold.clone(),
        undecodable: claim.undecodable,
    }
}

fn complete_from_us(claim: &TableClaim) -> Option<i64> {
    match claim.claim.complete_from {
        CompleteFrom::Unbounded => None,
        CompleteFrom::From(us) => Some(us),
    }
}

fn gaps(claim: &TableClaim) -> Vec<Interval> {
    let stretches = claim.claim.gaps.stretches().iter();
    stretches
        .map(|(from_us, before_us)| Interval {
            from_us: *from_us,
            before_us: *before_us,
        })
        .collect()
}

fn amended(cell: &AmendedCell) -> AmendedReport {
    AmendedReport {
        cell: Interval {
            from_us: cell.from_us,
            before_us: cell.before_us,
        },
        revision: cell.revision,
        rows: cell.rows,
        at_us: cell.at_us,
        withheld: cell.withheld,
    }
}

fn retracted(retracted: &Retracted) -> RetractedReport {
    RetractedReport {
        stretch: Interval {
            from_us: retracted.from_us,
            before_us: retracted.before_us,
        },
        at_us: retracted.at_us,
        reason: retracted.reason.clone(),
    }
}

/// What was taken back, for people.
fn taken_back(claim: &TableClaim) -> Option<String> {
    let all = claim.claim.retracted.iter().rev();
    let told = all.map(|one| {
        let (from, before) = (Instant(one.from_us), Instant(one.before_us));
        format!("{from} to before {before}: {}", one.reason)
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn reopened(reopened: Reopened) -> ReopenedReport {
    ReopenedReport {
        cause: reopened.cause.label(),
        before_us: reopened.before_us,
        since_us: reopened.at_us,
    }
}

/// Cells with late rows for people, the newest first.
fn revisions(claim: &TableClaim) -> Option<String> {
    let cells = claim.claim.amended.cells().iter().rev();
    let told = cells.map(|cell| {
        let (from, before) = (Instant(cell.from_us), Instant(cell.before_us));
        format!(
            "{from} to before {before}: revision {}, {} rows",
            cell.revision, cell.rows
        )
    });
    let rest = claim.claim.amended.overflow().map(|rest| {
        let (from, before) = (Instant(rest.from_us), Instant(rest.before_us));
        format!(
            "others between {from} and {before}: up to revision {}, {} rows",
            rest.revision, rest.rows
        )
    });
    let told: Vec<String> = told.chain(rest).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// A claim that was taken back altogether, for people.
pub(super) fn taken_back_sentence(reopened: Reopened) -> String {
    format!(
        "cells before {} were final and are open again since {} ({})",
        Instant(reopened.before_us),
        Instant(reopened.at_us),
        reopened.cause.label()
    )
}

/// What was final before and is open again, for people.
fn open_again(claim: &TableClaim) -> Option<String> {
    let reopened = claim.claim.reopened?;
    Some(format!(
        "cells before {} since {} ({})",
        Instant(reopened.before_us),
        Instant(reopened.at_us),
        reopened.cause.label()
    ))
}

fn evidence(claim: &TableClaim) -> Vec<&'static str> {
    claim
        .claim
        .evidence
        .iter()
        .map(|term| term.label())
        .collect()
}

/// What there is to say without a claim of ours.
fn unclaimed(reading: &Reading) -> String {
    let table = &reading.table;
    if let Some(reopened) = reading.taken_back {
        let again = taken_back_sentence(reopened);
        return format!("{table} makes no claim any more: {again}.");
    }
    if reading.foreign.is_empty() {
        return format!(
            "{table} makes no claim: nothing can be said about which rows are still to come."
        );
    }
    let systems: BTreeSet<&str> = reading
        .foreign
        .iter()
        .map(|claim| claim.system.label())
        .collect();
    let systems: Vec<&str> = systems.into_iter().collect();
    format!(
        "{table} makes no claim of ours; {} left a word of another kind on it, which counts for nobody who does not choose it.",
        systems.join(" and ")
    )
}

/// A reading as a sentence that a person understands.
#[must_use]
pub fn sentence(reading: &Reading) -> String {
    let table = &reading.table;
    let claim = match &reading.standing {
        Standing::Unclaimed => return unclaimed(reading),
        Standing::Held(why) => return format!("{table} has a claim that does not count: {why}."),
        Standing::Claimed(claim) => claim,
    };
    let before = Instant(claim.finalized_before_us);
    let mut text = match complete_from_us(claim) {
        None => format!("{table} holds every row with an event time before {before}"),
        Some(from) if from < claim.finalized_before_us => {
            format!(
                "{table} holds every row with an event time from {} to before {before}",
                Instant(from)
            )
        }
        Some(from) => {
            return format!(
                "{table} holds no whole cell yet: it is complete from {} on, and final before {before}.",
                Instant(from)
            );
        }
    };
    for (index, gap) in gaps(claim).iter().enumerate() {
        let word = if index == 0 { ", except those" } else { " and" };
        let _ = write!(
            text,
            "{word} from {} to before {}",
            Instant(gap.from_us),
            Instant(gap.before_us)
        );
    }
    text.push('.');
    for (from_us, before_us) in claim.claim.amended.withheld().stretches() {
        let _ = write!(
            text,
            " From {} to before {} rows came late: that is withheld until the claim next rises.",
            Instant(*from_us),
            Instant(*before_us)
        );
    }
    if claim.undecodable > 0 {
        let (rows, are) = if claim.undecodable == 1 {
            ("row", "is")
        } else {
            ("rows", "are")
        };
        let _ = write!(
            text,
            " {} {rows} of the commits on record could not be decoded and {are} not in the table.",
            claim.undecodable
        );
    }
    text
}

/// A reading for people: the sentence, then the values.
#[must_use]
pub fn text(reading: &Reading, width: usize) -> String {
    let mut text = sentence(reading) + "\n";
    let Standing::Claimed(claim) = &reading.standing else {
        return text + &foreign::text(&foreign::reports(&reading.foreign), width);
    };
    let lines = [
        ("last final cell", claim.last_final_cell.clone()),
        ("evidence", Some(evidence(claim).join(", "))),
        ("bounds", Some(claim.bounds.replace(',', ", "))),
        ("margin", claim.claim.margin_us.map(length)),
        ("next cell", claim.hold.clone()),
        ("late rows", revisions(claim)),
        ("open again", open_again(claim)),
        ("retracted", taken_back(claim)),
        ("snapshot", reading.snapshot_id.map(|id| id.to_string())),
        ("commit", Some(claim.commit_id.clone())),
        ("epoch", Some(claim.claim.epoch.to_string())),
        ("policy revision", Some(claim.policy_revision.to_string())),
    ];
    text.push('\n');
    for (name, value) in lines {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            let _ = writeln!(text, "  {name:<16} {value}");
        }
    }
    text
}

/// The end of a wait for people: one line.
#[must_use]
pub fn answer(answer: &Answer, question: &Question) -> String {
    let interval = interval(answer, question);
    let span = format!(
        "{} to before {}",
        Instant(interval.from_us),
        Instant(interval.before_us)
    );
    let table = &answer.reading.table;
    match &answer.verdict {
        Verdict::Ready => {
            let snapshot = answer
                .reading
                .snapshot_id
                .map_or_else(String::new, |id| format!("; read snapshot {id}"));
            let word = match answer.reading.standing {
                Standing::Claimed(_) => "is complete",
                Standing::Unclaimed | Standing::Held(_) => "is complete by the word of others",
            };
            format!("ready: {table} {word} from {span}{snapshot}\n")
        }
        Verdict::NotYet => format!("not yet: {span}: {}\n", sentence(&answer.reading)),
        Verdict::Incomplete(why) => format!("incomplete: {table} from {span}: {why}\n"),
        Verdict::Held(why) => format!("held: {table}: {why}\n"),
        Verdict::OtherEvidence => {
            let report = report(&answer.reading);
            let evidence = report
                .claim
                .map_or_else(String::new, |claim| claim.evidence.join(", "));
            format!(
                "other evidence: {table} is complete from {span}, but that rests on {evidence}\n"
            )
        }
    }
}

/// The end of a wait for programs.
#[must_use]
pub fn answer_report(answer: &Answer, question: &Question) -> AnswerReport {
    let why = match &answer.verdict {
        Verdict::Incomplete(why) | Verdict::Held(why) => Some(why.clone()),
        Verdict::Ready | Verdict::NotYet | Verdict::OtherEvidence => None,
    };
    let mut report = report(&answer.reading);
    report.why = None;
    let interval = interval(answer, question);
    let revisions = match &answer.reading.standing {
        Standing::Claimed(claim) => {
            let cells = &claim.claim.amended;
            let met = cells.within(interval.from_us, interval.before_us);
            met.map(amended).collect()
        }
        Standing::Unclaimed | Standing::Held(_) => Vec::new(),
    };
    AnswerReport {
        verdict: answer.verdict.word(),
        interval,
        why,
        revisions,
        report,
    }
}

fn interval(answer: &Answer, question: &Question) -> Interval {
    let grid = match &answer.reading.standing {
        Standing::Claimed(claim) => claim.grid,
        Standing::Unclaimed | Standing::Held(_) => None,
    };
    question.interval(grid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::quantity::parse_instant_us,
        sensor::verdict::tests::{amended, claimed},
        watermark::StepCause,
    };

    fn at(text: &str) -> i64 {
        parse_instant_us(text).unwrap()
    }

    #[test]
    fn claim_is_a_sentence() {
        let mut reading = claimed("2026-11-30T08:00:00Z", "2026-11-30T12:00:00Z");
        let expected = "shop.orders holds every row with an event time from 2026-11-30T08:00:00Z to before 2026-11-30T12:00:00Z.";
        assert_eq!(sentence(&reading), expected);
        let Standing::Claimed(claim) = &mut reading.standing else {
            unreachable!()
        };
        claim.claim.complete_from = CompleteFrom::Unbounded;
        claim
            .claim
            .gaps
            .add(at("2026-11-30T09:00:00Z"), at("2026-11-30T10:00:00Z"));
        let expected = "shop.orders holds every row with an event time before 2026-11-30T12:00:00Z, except those from 2026-11-30T09:00:00Z to before 2026-11-30T10:00:00Z.";
        assert_eq!(sentence(&reading), expected);
    }

    /// Whoever has read a cell has to learn that it is another one now.
    #[test]
    fn late_rows_show_in_both_answers() {
        let mut reading = claimed("2026-11-30T00:00:00Z", "2026-11-30T12:00:00Z");
        amended(&mut reading, true);
        let late = "2026-11-30T10:00:00Z to before 2026-11-30T11:00:00Z";
        assert!(
            text(&reading, 100).contains(&format!("late rows        {late}: revision 2, 5 rows"))
        );
        assert!(sentence(&reading).contains(&format!("From {late} rows came late")));
        let asked = |before: &str| {
            let question = Question {
                from_us: None,
                before_us: at(before),
                accept: None,
                foreign: BTreeSet::new(),
            };
            let verdict = reading.judge(&question);
            let reading = reading.clone();
            let answer = Answer { verdict, reading };
            serde_json::to_value(answer_report(&answer, &question)).unwrap()
        };
        let report = asked("2026-11-30T11:00:00Z");
        assert_eq!(report["verdict"], "not-yet");
        assert_eq!(report["revisions"][0]["revision"], 2);
        assert_eq!(report["revisions"][0]["from"], "2026-11-30T10:00:00Z");
        assert_eq!(report["amended"][0]["withheld"], true);
        assert!(asked("2026-11-30T12:00:00Z").get("revisions").is_none());
    }

    /// Whoever has read its cells must not take the table for one that never claimed any.
    #[test]
    fn a_claim_that_was_taken_back_is_told_from_none() {
        let mut reading = claimed("2026-11-30T08:00:00Z", "2026-11-30T12:00:00Z");
        reading.standing = Standing::Unclaimed;
        reading.taken_back = Some(Reopened {
            cause: StepCause::TopicJoined,
            from_us: None,
            before_us: at("2026-11-30T12:00:00Z"),
            at_us: at("2026-11-30T12:20:00Z"),
        });
        let again = "cells before 2026-11-30T12:00:00Z were final and are open again since 2026-11-30T12:20:00Z (topic-joined)";
        assert_eq!(report(&reading).why.as_deref(), Some(again));
        assert_eq!(
            sentence(&reading),
            format!("shop.orders makes no claim any more: {again}.")
        );
    }

    /// Scripts read these names.
    #[test]
    fn report_has_its_names() {
        let report = serde_json::to_value(report(&claimed(
            "2026-11-30T08:00:00Z",
            "2026-11-30T12:00:00Z",
        )))
        .unwrap();
        assert_eq!(report["standing"], "claimed");
        assert_eq!(report["finalizedBefore"], "2026-11-30T12:00:00Z");
        assert_eq!(report["completeFrom"], "2026-11-30T08:00:00Z");
        assert_eq!(report["evidence"][1], "caught-up");
        assert_eq!(report["snapshotId"], 7);
    }
}
