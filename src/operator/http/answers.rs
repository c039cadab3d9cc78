//! What readers are answered, as JSON. The names are those of `tidemark get -o json` and `tidemark wait -o json` where they say the
//! same.
//!
//! Pure. Instants are ISO 8601 in UTC.

use schemars::JsonSchema;
use serde::Serialize;

use super::super::claims::Known;
use crate::{
    api::{quantity::instant, schema::ConditionStatus, status::GapStatus},
    sensor::{Answer, Question, Standing, Verdict, print},
};

/// What is known of a pipeline's claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimAnswer {
    /// The namespace of the pipeline.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
    /// The table that it writes.
    pub(super) table: String,
    /// `claimed`, `unclaimed` or `held`: whether there is a claim, and whether it counts.
    pub(super) standing: &'static str,
    /// Why a claim does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// Every row with an earlier event time is in the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finalized_before: Option<String>,
    /// The last final cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_final_cell: Option<String>,
    /// From when on that holds; left out: from ever on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) complete_from: Option<String>,
    /// Where it does not hold.
    pub(super) gaps: Vec<Stretch>,
    /// Where it does not count until the claim next rises.
    pub(super) withheld: Vec<Stretch>,
    /// The terms that it rests on.
    pub(super) evidence: Vec<String>,
    /// The epoch. Within one the claim never goes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) epoch: Option<u64>,
    /// The commit that it is true for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) commit_id: Option<String>,
    /// The length of a cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cell: Option<String>,
    /// The zone whose days the cells are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) zone: Option<String>,
    /// How many rows are still to be read, in steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lag: Option<String>,
    /// How the pipeline is doing.
    pub(super) conditions: Vec<ConditionAnswer>,
    /// The claim for people.
    pub(super) sentence: String,
}

/// One condition of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConditionAnswer {
    /// What is said.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// `True`, `False` or `Unknown`.
    pub(super) status: &'static str,
    /// Why, as one stable word.
    pub(super) reason: String,
    /// The values that belong to the reason, and what to do.
    pub(super) message: String,
    /// Since when `status` is what it is.
    pub(super) since: String,
}

/// From an instant up to another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stretch {
    /// The first instant in it.
    pub(super) from: String,
    /// The first instant after it.
    pub(super) before: String,
}

/// A cell that got rows after it was final.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Revision {
    /// The cell.
    #[serde(flatten)]
    pub(super) cell: Stretch,
    /// How many commits brought late rows. Whoever has read the cell at a lower one reads it again.
    #[serde(rename = "revision")]
    pub(super) number: u64,
    /// How many late rows came.
    pub(super) rows: u64,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadyAnswer {
    /// `ready`, `not-yet`, `incomplete`, `held` or `other-evidence`.
    pub(super) verdict: &'static str,
    /// The interval that was asked about.
    pub(super) interval: Stretch,
    /// Why it is incomplete or held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// The cells of the interval that got rows after they were final, as far as this replica knows them.
    pub(super) revisions: Vec<Revision>,
    /// What the answer rests on.
    pub(super) claim: ClaimAnswer,
}

/// One of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Item {
    /// The verdict, where `before` was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<&'static str>,
    /// The claim.
    #[serde(flatten)]
    pub(super) claim: ClaimAnswer,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page {
    /// The claims, by namespace and name.
    pub(super) items: Vec<Item>,
    /// Where to go on; left out on the last page.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub(super) go_on: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{}{error}: {remedy}", place(.parameter.as_deref(), .value.as_deref()))]
pub(super) struct Problem {
    /// What is wrong.
    pub(super) error: String,
    /// Which parameter it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parameter: Option<String>,
    /// What was given for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<String>,
    /// What to do.
    pub(super) remedy: String,
}

fn place(parameter: Option<&str>, value: Option<&str>) -> String {
    match (parameter, value) {
        (Some(parameter), Some(value)) => format!("parameter {parameter}, \"{value}\": "),
        (Some(parameter), None) => format!("parameter {parameter}: "),
        _ => String::new(),
    }
}

impl Problem {
    /// A parameter that is wrong. Of its value no more is said back than a line holds.
    pub(super) fn parameter(name: &str, value: &str, error: &str, remedy: &str) -> Self {
        let short = |text: &str| text.chars().take(200).collect::<String>();
        Self {
            error: error.to_owned(),
            parameter: Some(short(name)),
            value: (!value.is_empty()).then(|| short(value)),
            remedy: remedy.to_owned(),
        }
    }

    /// Anything else.
    pub(super) fn plain(error: &str, remedy: &str) -> Self {
        Self {
            error: error.to_owned(),
            parameter: None,
            value: None,
            remedy: remedy.to_owned(),
        }
    }
}

impl ClaimAnswer {
    pub(super) fn of(known: &Known) -> Self {
        let status = &*known.status;
        let reading = known.reading();
        let (standing, why, last_final_cell) = match &reading.standing {
            Standing::Unclaimed => ("unclaimed", None, None),
            Standing::Held(why) => ("held", Some(why.clone()), None),
            Standing::Claimed(claim) => ("claimed", None, claim.last_final_cell.clone()),
        };
        let evidence = status.evidence.as_deref().unwrap_or_default().split(',');
        let conditions = status.conditions.iter().map(|condition| ConditionAnswer {
            kind: condition.kind.clone(),
            status: match condition.status {
                ConditionStatus::True => "True",
                ConditionStatus::False => "False",
                ConditionStatus::Unknown => "Unknown",
            },
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            since: condition.last_transition_time.clone(),
        });
        Self {
            namespace: known.key.namespace.clone(),
            name: known.key.name.clone(),
            table: known.kept.table.clone(),
            standing,
            why,
            finalized_before: status.finalized_before.as_ref().map(|text| text.0.clone()),
            last_final_cell,
            complete_from: status.complete_from.as_ref().map(|text| text.0.clone()),
            gaps: stretches(&status.gaps),
            withheld: stretches(&status.withheld),
            evidence: evidence
                .filter(|term| !term.is_empty())
                .map(str::to_owned)
                .collect(),
            epoch: status.epoch,
            commit_id: status.commit_id.map(|id| id.to_string()),
            cell: status.cell.as_ref().map(|cell| cell.0.clone()),
            zone: status.zone.clone(),
            lag: status.lag.clone(),
            conditions: conditions.collect(),
            sentence: print::sentence(&reading),
        }
    }
}

impl ReadyAnswer {
    pub(super) fn of(known: &Known, question: &Question) -> (Verdict, Self) {
        let verdict = known.judge(question);
        let reading = known.reading();
        let report = print::answer_report(
            &Answer {
                verdict: verdict.clone(),
                reading,
            },
            question,
        );
        let revisions = report.revisions.iter().map(|one| Revision {
            cell: Stretch {
                from: instant(one.cell.from_us),
                before: instant(one.cell.before_us),
            },
            number: one.revision,
            rows: one.rows,
        });
        let answer = Self {
            verdict: report.verdict,
            interval: Stretch {
                from: instant(report.interval.from_us),
                before: instant(report.interval.before_us),
            },
            why: report.why.clone(),
            revisions: revisions.collect(),
            claim: ClaimAnswer::of(known),
        };
        (verdict, answer)
    }

    /// What of it is another answer when it changes: not the commit, which changes every minute.
    pub(super) fn gist(&self) -> impl Serialize {
        (
            (
                self.verdict,
                &self.interval.from,
                &self.interval.before,
                self.why.clone(),
            ),
            (self.claim.finalized_before.clone(), self.claim.epoch),
            (
                self.revisions.clone(),
                self.claim.gaps.clone(),
                self.claim.withheld.clone(),
            ),
        )
    }
}

impl Serialize for Gist<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.gist().serialize(serializer)
    }
}

/// An answer by what matters of it.
pub(super) struct Gist<'a>(pub(super) &'a ReadyAnswer);

fn stretches(gaps: &[GapStatus]) -> Vec<Stretch> {
    let told = gaps.iter().map(|gap| Stretch {
        from: gap.from.0.clone(),
        before: gap.before.0.clone(),
    });
    told.collect()
}
