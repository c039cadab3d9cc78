//! What the operator says of one pipeline: from what was reconciled, its pods, what its workers answered, and what it said before.
//!
//! Comes in: a [`Situation`] and the status that the object has. Goes out: the new status, or nothing where there is nothing to
//! write. No client and no clock: the same situation has one answer, and an answer that is already written has none.
//!
//! The rules that must never break:
//! - Within an epoch of a table the claim only rises. A worker's answer is a copy of the table's claim as of a commit, so an old
//!   one is still true: it neither lowers the claim nor blanks it, and neither does silence.
//! - A claim is withdrawn when the table withdraws it: with a new epoch, or when a worker says that the claim is void.
//! - A write is worth its cost only where something has changed state: a value that changes with every commit goes along with the
//!   next such write and causes none.

mod claim;
mod conditions;
mod lag;
mod workers;

use crate::api::{
    Reason,
    pipeline::InstantText,
    quantity::instant,
    schema::StatusCondition,
    status::{AcceptedStatus, GapStatus, IngestionPipelineStatus},
};

pub use workers::{Said, UNREACHABLE_AFTER_US, Worker, Workers};

/// The longest message of a condition; the schema has room for twice as much.
pub const MESSAGE_CHARS: usize = 1024;

/// Why something is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Which kind.
    pub reason: Reason,
    /// The values that belong to it; the remedy is the reason's.
    pub message: String,
}

impl Trouble {
    /// A reason with its values.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// What came of resolving, deciding, placing, building and applying one pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciled {
    /// Which generation of the specification all this is about.
    pub generation: i64,
    /// Whether the specification can be run: fields, policies, and no elder pipeline with the same table.
    pub accepted: Result<(), Trouble>,
    /// Whether the children are as they were built.
    pub applied: Result<(), Trouble>,
    /// A change that waits for its turn.
    pub pending: Option<Trouble>,
    /// The hash of the effective specification that the workers were last given.
    pub spec_hash: Option<String>,
    /// Whether the specification asks to stand still.
    pub suspend: bool,
    /// How long after its end a cell may be open before something holds it: the greatest delay and a few commit intervals, µs.
    pub patience_us: i64,
}

/// The pods of one pipeline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Children {
    /// How many there are to be.
    pub desired: u32,
    /// How many there are.
    pub replicas: u32,
    /// How many of them are ready.
    pub ready_replicas: u32,
    /// The labels that they have, as a selector.
    pub selector: Option<String>,
    /// Why they do not become ready, where a pod says it.
    pub trouble: Option<Trouble>,
}

/// Everything that a status is derived from.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// What was reconciled.
    pub reconciled: &'a Reconciled,
    /// The pods.
    pub children: &'a Children,
    /// What the workers answered.
    pub workers: &'a Workers,
    /// The time, µs.
    pub now_us: i64,
}

/// The new status; `None`: nothing in it has changed that is worth a write.
#[must_use]
pub fn derive(
    situation: &Situation<'_>,
    old: Option<&IngestionPipelineStatus>,
) -> Option<IngestionPipelineStatus> {
    let status = status_of(situation, old);
    old.is_none_or(|old| is_news(&status, old))
        .then_some(status)
}

/// The status as it is now, whether or not it is worth a write.
#[must_use]
pub fn status_of(
    situation: &Situation<'_>,
    old: Option<&IngestionPipelineStatus>,
) -> IngestionPipelineStatus {
    let empty = IngestionPipelineStatus::default();
    let before = old.unwrap_or(&empty);
    let told = claim::told(situation.workers, before, situation.now_us);
    let conditions = conditions::derive(situation, &told, before);
    let reconciled = situation.reconciled;
    let mut status = IngestionPipelineStatus {
        observed_generation: Some(reconciled.generation),
        conditions,
        lag: situation
            .workers
            .lag(before.lag.as_deref(), situation.now_us)
            .filter(|_| !reconciled.suspend),
        replicas: Some(situation.children.replicas),
        ready_replicas: Some(situation.children.ready_replicas),
        selector: situation.children.selector.clone(),
        spec_hash: reconciled.spec_hash.clone(),
        ..IngestionPipelineStatus::default()
    };
    told.write(before, &mut status);
    status
}

/// Whether anything has changed that is worth a write. The commit that a claim is true for changes with every commit, and numbers
/// within a message with every try.
#[must_use]
pub fn is_news(new: &IngestionPipelineStatus, old: &IngestionPipelineStatus) -> bool {
    let still = IngestionPipelineStatus {
        conditions: Vec::new(),
        commit_id: None,
        ..new.clone()
    };
    let before = IngestionPipelineStatus {
        conditions: Vec::new(),
        commit_id: None,
        ..old.clone()
    };
    still != before || is_news_of_conditions(new, old)
}

/// Whether a condition has changed: what people and alarms wait for, and what is written first.
#[must_use]
pub fn is_news_of_conditions(new: &IngestionPipelineStatus, old: &IngestionPipelineStatus) -> bool {
    is_news_between(&new.conditions, &old.conditions)
}

/// The condition of a kind, by its name.
#[must_use]
pub fn condition<'a>(
    status: &'a IngestionPipelineStatus,
    kind: &str,
) -> Option<&'a StatusCondition> {
    condition_of(&status.conditions, kind)
}

/// The condition of a kind among several.
#[must_use]
pub fn condition_of<'a>(
    conditions: &'a [StatusCondition],
    kind: &str,
) -> Option<&'a StatusCondition> {
    conditions::of_kind(conditions, kind)
}

/// Whether any of these conditions says something else than before.
#[must_use]
pub fn is_news_between(new: &[StatusCondition], old: &[StatusCondition]) -> bool {
    new.iter().any(|condition| {
        let before = conditions::of_kind(old, &condition.kind);
        before.is_none_or(|before| conditions::is_news(condition, before))
    })
}

fn text(us: i64) -> InstantText {
    InstantText(instant(us))
}

fn gap(from_us: i64, before_us: i64) -> GapStatus {
    GapStatus {
        from: text(from_us),
        before: text(before_us),
    }
}

fn accepted(terms: &[String], before_us: i64) -> AcceptedStatus {
    AcceptedStatus {
        terms: terms.join(","),
        before: text(before_us),
    }
}

#[cfg(test)]
mod tests;
