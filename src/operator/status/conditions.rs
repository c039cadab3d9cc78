//! The five conditions of a pipeline.
//!
//! Of several workers the worst counts: no before unknown, unknown before yes. Each condition has a reason of the one list, and
//! its message ends with what to do. A worker that has not answered yet says nothing: what was said before stays until it is out
//! of reach.

use super::{MESSAGE_CHARS, Said, Situation, Trouble, Worker, claim::Told};
use crate::api::{
    Reason,
    condition::{Answer, ConditionType},
    quantity::instant,
    schema::{ConditionStatus, StatusCondition},
    status::IngestionPipelineStatus,
    worker::{PipelineProgress, RunState},
};

const SECOND_US: i64 = 1_000_000;

/// What is said, before it is set beside what was said.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    status: ConditionStatus,
    reason: Reason,
    message: String,
}

/// What one worker, or all of them, come to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Findings {
    accepted: Finding,
    ready: Finding,
    advancing: Finding,
}

/// The conditions, each with the time of its last change.
pub(super) fn derive(
    situation: &Situation<'_>,
    told: &Told<'_>,
    old: &IngestionPipelineStatus,
) -> Vec<StatusCondition> {
    let workers = of_workers(situation, told.shown_us(old));
    let accepted = accepted(situation, workers.as_ref());
    let ready = if workers.is_none() && is_waited_for(situation, old) {
        None
    } else {
        Some(ready(situation, workers.as_ref(), &accepted))
    };
    let advancing = match (&ready, workers) {
        (Some(ready), Some(workers)) if ready.status == ConditionStatus::True => {
            Some(workers.advancing)
        }
        (ready, _) => ready.clone(),
    };
    let found = [
        (ConditionType::Accepted, Some(accepted)),
        (ConditionType::Ready, ready),
        (ConditionType::Advancing, advancing),
        (ConditionType::Reopened, reopened(told)),
        (ConditionType::Suspended, Some(suspended(situation))),
    ];
    let found = found.into_iter().map(|(kind, finding)| {
        let kind: &'static str = kind.into();
        let before = of_kind(&old.conditions, kind);
        match (finding, before) {
            (Some(finding), _) => finding.beside(kind, before, situation),
            (None, Some(before)) => StatusCondition {
                observed_generation: Some(situation.reconciled.generation),
                ..before.clone()
            },
            // Of what is never said without having been said before, only cells that are open again are left.
            (None, None) => Finding::new(ConditionStatus::False, Reason::AsExpected, "")
                .beside(kind, None, situation),
        }
    });
    found.collect()
}

/// Whether what was said before stands until the workers there are have answered or are out of reach.
fn is_waited_for(situation: &Situation<'_>, old: &IngestionPipelineStatus) -> bool {
    let kind: &'static str = ConditionType::Ready.into();
    let before = of_kind(&old.conditions, kind);
    let is_still_told = before.is_some_and(|ready| ready.reason != Reason::Suspended.label());
    is_still_told && !situation.workers.is_empty() && !situation.reconciled.suspend
}

/// The condition of a kind.
pub(super) fn of_kind<'a>(
    conditions: &'a [StatusCondition],
    kind: &str,
) -> Option<&'a StatusCondition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Whether a condition says something else than before: numbers outside of quotes do not count, they change with every try.
pub(super) fn is_news(new: &StatusCondition, old: &StatusCondition) -> bool {
    (new.status, &new.reason, new.observed_generation)
        != (old.status, &old.reason, old.observed_generation)
        || words(&new.message) != words(&old.message)
}

/// A message without its numbers: tokens with a digit outside of quotes. What stands in quotes is a name.
fn words(message: &str) -> String {
    let parts = message.split('"').enumerate().map(|(at, part)| {
        if at % 2 == 1 {
            return format!("\"{part}\"");
        }
        let tokens = part.split_whitespace();
        let words = tokens.filter(|token| !token.contains(|c: char| c.is_ascii_digit()));
        words.collect::<Vec<_>>().join(" ")
    });
    parts.collect::<Vec<_>>().join(" ")
}

impl Finding {
    fn new(status: ConditionStatus, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
        }
    }

    fn fine() -> Self {
        Self::new(ConditionStatus::True, Reason::AsExpected, "")
    }

    fn no(trouble: &Trouble) -> Self {
        Self::new(
            ConditionStatus::False,
            trouble.reason,
            trouble.message.clone(),
        )
    }

    /// The worse one: no before unknown before yes; among equals the one that is named first.
    fn worse(self, other: Self) -> Self {
        if self.rank() >= other.rank() {
            self
        } else {
            other
        }
    }

    fn rank(&self) -> u8 {
        match self.status {
            ConditionStatus::True => 0,
            ConditionStatus::Unknown => 1,
            ConditionStatus::False => 2,
        }
    }

    /// As a condition. The time of the change stays as long as the answer does.
    fn beside(
        self,
        kind: &'static str,
        before: Option<&StatusCondition>,
        situation: &Situation<'_>,
    ) -> StatusCondition {
        let since = before.filter(|before| before.status == self.status);
        let now_us = situation.now_us.div_euclid(SECOND_US) * SECOND_US;
        StatusCondition {
            kind: kind.to_owned(),
            status: self.status,
            reason: self.reason.label().to_owned(),
            message: message(&self.message, self.reason),
            last_transition_time: since.map_or_else(
                || instant(now_us),
                |before| before.last_transition_time.clone(),
            ),
            observed_generation: Some(situation.reconciled.generation),
        }
    }
}

/// `message; remedy`, within its bounds: of a message that is too long the end is left out, never the remedy.
fn message(text: &str, reason: Reason) -> String {
    if reason.is_usual() {
        return text.chars().take(MESSAGE_CHARS).collect();
    }
    let remedy = reason.remedy();
    if text.is_empty() {
        return remedy.to_owned();
    }
    let room = MESSAGE_CHARS.saturating_sub(remedy.chars().count() + 2);
    let text: String = if text.chars().count() > room {
        text.chars().take(room - 1).chain(['…']).collect()
    } else {
        text.to_owned()
    };
    format!("{text}; {remedy}")
}

/// What all workers come to that have something to say; `None`: none has.
fn of_workers(situation: &Situation<'_>, shown_us: Option<i64>) -> Option<Findings> {
    let workers = situation.workers.iter();
    let said = workers.filter_map(|(name, worker)| of_worker(name, worker, (situation, shown_us)));
    said.reduce(|all, one| Findings {
        accepted: all.accepted.worse(one.accepted),
        ready: all.ready.worse(one.ready),
        advancing: all.advancing.worse(one.advancing),
    })
}

fn of_worker(
    name: &str,
    worker: &Worker,
    (situation, shown_us): (&Situation<'_>, Option<i64>),
) -> Option<Findings> {
    let all = |ready: Finding| Findings {
        accepted: Finding::fine(),
        advancing: ready.clone(),
        ready,
    };
    if worker.is_silent(situation.now_us) {
        let since = situation.now_us - worker.silent_us(situation.now_us);
        let message = format!(
            "worker \"{name}\" has not answered since {}",
            instant(since.div_euclid(SECOND_US) * SECOND_US)
        );
        return Some(all(Finding::new(
            ConditionStatus::Unknown,
            Reason::WorkerUnreachable,
            message,
        )));
    }
    Some(match &worker.heard.as_ref()?.1 {
        Said::Progress(progress) => of_progress(progress, (situation, shown_us)),
        Said::NotLoaded => all(Finding::new(
            ConditionStatus::False,
            Reason::Starting,
            format!("worker \"{name}\" has not loaded the pipeline yet"),
        )),
        Said::Unreadable(why) => all(Finding::new(
            ConditionStatus::Unknown,
            Reason::Unrecognized,
            format!("worker \"{name}\": {why}"),
        )),
    })
}

fn of_progress(
    progress: &PipelineProgress,
    (situation, shown_us): (&Situation<'_>, Option<i64>),
) -> Findings {
    let conditions = progress.conditions();
    let find = |kind: ConditionType| {
        let found = conditions.iter().find(|condition| condition.kind == kind);
        found.map_or_else(Finding::fine, |found| {
            let status = match found.status {
                Answer::True => ConditionStatus::True,
                Answer::False => ConditionStatus::False,
                Answer::Unknown => ConditionStatus::Unknown,
            };
            Finding::new(status, found.reason, found.message.clone())
        })
    };
    // What a worker says of a specification that is no longer the newest is about the fields of before.
    let is_current = situation
        .reconciled
        .spec_hash
        .as_ref()
        .is_none_or(|hash| *hash == progress.spec_hash);
    let ready = match progress.stuck_seconds {
        Some(seconds) if progress.state == RunState::Running => Finding::new(
            ConditionStatus::False,
            Reason::Crashed,
            format!("its loop has not turned for {seconds} s; the pod is restarted"),
        ),
        _ => find(ConditionType::Ready),
    };
    Findings {
        accepted: if is_current {
            find(ConditionType::Accepted)
        } else {
            Finding::fine()
        },
        advancing: {
            let found = find(ConditionType::Advancing);
            advancing(found, &ready, progress, (situation, shown_us))
        },
        ready,
    }
}

/// A cell that is open a little longer than its bounds is usual: it waits for the next commit, and no alarm may come from it. One
/// below the claim that is shown is final: of several workers each speaks of the table as it last saw it.
fn advancing(
    found: Finding,
    ready: &Finding,
    progress: &PipelineProgress,
    (situation, shown_us): (&Situation<'_>, Option<i64>),
) -> Finding {
    let Some(hold) = progress.hold.as_ref().filter(|_| ready.rank() == 0) else {
        return ready.clone();
    };
    if found.rank() == 0 {
        return found;
    }
    if hold.cell_end_us.is_some_and(|us| Some(us) <= shown_us) {
        return Finding::fine();
    }
    let patience_us = situation.reconciled.patience_us;
    let due_us = hold
        .cell_end_us
        .map(|end_us| end_us.saturating_add(patience_us));
    if found.status == ConditionStatus::False && due_us.is_some_and(|us| situation.now_us < us) {
        return Finding::fine();
    }
    let cell = hold.cell_end_us.map_or_else(
        || "the first cell is open".to_owned(),
        |us| format!("the cell up to {} is open", instant(us)),
    );
    // What keeps the worker from it has words of its own.
    let why = Some(found.message.as_str()).filter(|message| !message.is_empty());
    let partition = hold.partition.as_ref();
    let why = why.map(str::to_owned);
    let why = why.or_else(|| partition.map(|partition| format!("partition \"{partition}\"")));
    Finding {
        message: match why {
            Some(why) => format!("{cell}: {why}"),
            None => cell,
        },
        ..found
    }
}

fn accepted(situation: &Situation<'_>, workers: Option<&Findings>) -> Finding {
    let reconciled = situation.reconciled;
    if let Err(trouble) = &reconciled.accepted {
        return Finding::no(trouble);
    }
    if let Err(trouble) = &reconciled.applied {
        return Finding::no(trouble);
    }
    match (workers, &reconciled.pending) {
        (Some(workers), _) if workers.accepted.rank() > 0 => workers.accepted.clone(),
        (_, Some(pending)) => Finding {
            status: ConditionStatus::True,
            ..Finding::no(pending)
        },
        _ => Finding::fine(),
    }
}

fn ready(situation: &Situation<'_>, workers: Option<&Findings>, accepted: &Finding) -> Finding {
    let children = situation.children;
    if situation.reconciled.suspend {
        return Finding::new(ConditionStatus::False, Reason::Suspended, "");
    }
    if let Some(workers) = workers {
        return workers.ready.clone();
    }
    if let Some(trouble) = children
        .trouble
        .as_ref()
        .filter(|_| children.ready_replicas == 0)
    {
        return Finding::no(trouble);
    }
    if children.replicas == 0 && accepted.status == ConditionStatus::False {
        return accepted.clone();
    }
    let message = format!(
        "{} of {} workers are ready",
        children.ready_replicas, children.desired
    );
    Finding::new(ConditionStatus::False, Reason::Starting, message)
}

fn reopened(told: &Told<'_>) -> Option<Finding> {
    let (reopened, claim_us) = told.reopened()?;
    Some(match reopened {
        Some(reopened) => Finding::new(
            ConditionStatus::True,
            reopened.reason,
            reopened.message(claim_us),
        ),
        None => Finding::new(ConditionStatus::False, Reason::AsExpected, ""),
    })
}

fn suspended(situation: &Situation<'_>) -> Finding {
    if !situation.reconciled.suspend {
        return Finding::new(ConditionStatus::False, Reason::AsExpected, "");
    }
    match situation.children.replicas {
        0 => Finding::new(ConditionStatus::True, Reason::Suspended, ""),
        left => Finding::new(
            ConditionStatus::False,
            Reason::Stopping,
            format!("{left} workers commit what they have read"),
        ),
    }
}
