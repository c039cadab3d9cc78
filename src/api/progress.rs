//! What a worker answers: what each of its pipelines is doing, and what follows from it.
//!
//! A copy of what the worker last did; reading it costs the data path nothing. A claim in it is the table's as of a commit,
//! so an old one is still true within its epoch.
//!
//! It holds no secret.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    condition::{Answer, Condition, ConditionType, Reason},
    hold::Holding,
    quantity::{instant, iso, iso_option},
    worker::Term,
};

/// What a worker is doing, as `/progress` shows it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Which worker.
    pub worker: String,
    /// The version it runs.
    pub version: String,
    /// How many bytes of rows and open files it holds.
    pub memory_held_bytes: u64,
    /// Its pipelines by uid.
    pub pipelines: BTreeMap<String, PipelineProgress>,
}

impl Progress {
    /// Which pipelines have not left their start.
    #[must_use]
    pub fn starting(&self) -> Vec<&str> {
        let starting = |pipeline: &&PipelineProgress| pipeline.state == RunState::Starting;
        self.pipelines
            .values()
            .filter(starting)
            .map(|pipeline| pipeline.pipeline.as_str())
            .collect()
    }

    /// Which pipelines are stuck, and for how many seconds.
    #[must_use]
    pub fn stuck(&self) -> Vec<(&str, u64)> {
        self.pipelines
            .values()
            .filter_map(|pipeline| Some((pipeline.pipeline.as_str(), pipeline.stuck_seconds?)))
            .collect()
    }
}

/// What one pipeline is doing.
///
/// A reader takes what is left out for its default: workers of an older version say less.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PipelineProgress {
    /// `namespace/name`.
    pub pipeline: String,
    /// The table it writes.
    pub table: String,
    /// Where it stands.
    pub state: RunState,
    /// Since when it stands there.
    #[serde(rename = "stateSince", with = "iso")]
    pub state_since_us: i64,
    /// For how many seconds its loop has not turned, once that is too long: it is stuck, whatever its state says, and
    /// `/healthz` fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_seconds: Option<u64>,
    /// The hash of the effective specification in force.
    pub spec_hash: String,
    /// The policy revision of the table's state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_revision: Option<u64>,
    /// The table's claim as of the newest commit seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimProgress>,
    /// What holds the next cell: whatever keeps the pipeline from reading or committing, else what the table waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldProgress>,
    /// How far each source partition that this worker reads has got.
    pub partitions: Vec<PartitionProgress>,
    /// What was still to be read of them when the brokers were last asked; none while nobody knows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lag: Option<LagSummary>,
    /// The last commit of this worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_commit: Option<CommitProgress>,
    /// What went wrong last, until it has gone well again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ErrorProgress>,
    /// Rows committed by this worker.
    pub rows: u64,
    /// Rows written to the dead-letter topic by this worker.
    pub dead_letters: u64,
    /// Rows committed by this worker that had no say about the claim, by kind.
    pub excluded: BTreeMap<String, u64>,
}

/// Where a pipeline stands.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
)]
pub enum RunState {
    /// It opens its table and its source.
    #[default]
    Starting,
    /// It reads and commits.
    Running,
    /// Something outside is missing; it tries again by itself.
    Waiting,
    /// It needs a person; the last error says for what.
    Stopped,
    /// Its specification says that it stands still.
    Suspended,
}

/// The table's claim: what was true as of one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimProgress {
    /// Every row with an earlier event time is there; `None` is no claim.
    #[serde(rename = "finalizedBefore", with = "iso_option")]
    pub finalized_before_us: Option<i64>,
    /// From when on that holds; `None` is without a start.
    #[serde(rename = "completeFrom", with = "iso_option", default)]
    pub complete_from_us: Option<i64>,
    /// Where it does not hold.
    #[serde(default)]
    pub gaps: Vec<Interval>,
    /// Which terms carry it.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// How much disorder it would have survived, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin_ms: Option<i64>,
    /// The epoch; within one the claim never goes back.
    pub epoch: u64,
    /// Cells that were final in an earlier epoch and are open again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reopened: Option<ReopenedProgress>,
    /// The commit it is true for.
    pub commit_id: Uuid,
    /// The table it is about: one that was made again begins anew with its epochs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub table_uuid: Option<Uuid>,
    /// The length of a cell, as `1h`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cell: Option<String>,
    /// The zone whose days the cells are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub zone: Option<String>,
    /// How far fewer of the admitted terms alone would carry it. Not told of a table with several writers.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub accepted: Vec<AcceptedProgress>,
    /// Cells that got rows after they were final.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub amended: Vec<AmendedProgress>,
}

/// How far some terms carry a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedProgress {
    /// These terms alone.
    pub terms: Vec<String>,
    /// Carry it up to here; none: nowhere.
    #[serde(rename = "finalizedBefore", with = "iso_option")]
    pub before_us: Option<i64>,
}

/// A cell that got rows after it was final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AmendedProgress {
    /// The cell.
    #[serde(flatten)]
    pub cell: Interval,
    /// How many commits brought late rows.
    pub revision: u64,
    /// How many late rows came.
    pub rows: u64,
    /// When the newest of the commits was made.
    #[serde(rename = "at", with = "iso")]
    pub at_us: i64,
    /// Whether it does not count as final at present.
    pub withheld: bool,
}

/// Cells that are open again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReopenedProgress {
    /// Why.
    pub reason: Reason,
    /// The claim right after the step back; `None`: there was none.
    #[serde(rename = "from", with = "iso_option")]
    pub from_us: Option<i64>,
    /// The claim before it.
    #[serde(rename = "before", with = "iso")]
    pub before_us: i64,
    /// When the step was made.
    #[serde(rename = "since", with = "iso")]
    pub since_us: i64,
}

impl ReopenedProgress {
    /// Which cells, as a sentence. `claim_us`: the claim now.
    #[must_use]
    pub fn message(&self, claim_us: Option<i64>) -> String {
        let before = instant(self.before_us);
        match claim_us {
            Some(from_us) => format!(
                "cells from {} to before {before} were final and are open again",
                instant(from_us)
            ),
            None => format!("all cells before {before} were final and are open again"),
        }
    }
}

/// From an instant up to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interval {
    /// The first instant in it, µs.
    #[serde(rename = "from", with = "iso")]
    pub from_us: i64,
    /// The first instant after it, µs.
    #[serde(rename = "before", with = "iso")]
    pub before_us: i64,
}

/// What holds the next cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldProgress {
    /// The end of the cell that is waited for; none while the table has not been read.
    #[serde(
        rename = "cellEnd",
        with = "iso_option",
        skip_serializing_if = "Option::is_none",
        default
    )]
    pub cell_end_us: Option<i64>,
    /// The partition that reading stands still at, else the one whose frontier is the least, as `topic/partition`; none where
    /// something else holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The term that came closest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<Term>,
    /// Why.
    pub reason: Reason,
    /// Since when.
    #[serde(rename = "since", with = "iso")]
    pub since_us: i64,
}

/// How far one source partition has got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionProgress {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The next offset that the table does not hold.
    pub next_offset: i64,
    /// The end of the partition when the broker was last asked; none while nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_offset: Option<i64>,
    /// A lower bound of the event times that it can still bring.
    #[serde(
        rename = "frontier",
        with = "iso_option",
        skip_serializing_if = "Option::is_none"
    )]
    #[serde(default)]
    pub frontier_us: Option<i64>,
}

/// What is still to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LagSummary {
    /// Offsets between the table and the ends of the partitions.
    pub offsets: u64,
    /// How many partitions have such a distance.
    pub partitions_behind: u32,
}

/// A commit of this worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitProgress {
    /// Its id.
    pub commit_id: Uuid,
    /// The snapshot it became.
    pub snapshot_id: i64,
    /// When.
    #[serde(rename = "at", with = "iso")]
    pub at_us: i64,
    /// Its rows.
    pub rows: u64,
    /// How long it took, retries and all.
    pub elapsed_ms: u64,
}

/// What went wrong last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorProgress {
    /// Which kind.
    pub reason: Reason,
    /// The partition that it is about, as `topic/partition`, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub partition: Option<String>,
    /// The values that belong to it.
    pub message: String,
    /// What to do.
    pub remedy: String,
    /// Since when.
    #[serde(rename = "since", with = "iso")]
    pub since_us: i64,
}

impl ErrorProgress {
    /// An error with the remedy of its reason.
    #[must_use]
    pub fn new(reason: Reason, message: String, since_us: i64) -> Self {
        Self {
            reason,
            partition: None,
            message,
            remedy: reason.remedy().to_owned(),
            since_us,
        }
    }
}

/// What keeps a pipeline from reading or committing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Obstacle {
    reason: Reason,
    partition: Option<String>,
    since_us: i64,
}

impl PipelineProgress {
    /// The whole as it is by the clock `now_us`, where the table was last seen to be held by `holding`: what holds the next cell,
    /// and no more of the lag than is known.
    #[must_use]
    pub fn at(mut self, now_us: i64, holding: Option<&Holding>) -> Self {
        let by_table = holding.map(|holding| holding.at(now_us));
        let Some(obstacle) = self.obstacle() else {
            self.hold = by_table.map(|hold| self.idle_or(hold));
            return self;
        };
        self.hold = Some(HoldProgress {
            cell_end_us: by_table.and_then(|hold| hold.cell_end_us),
            partition: obstacle.partition,
            term: None,
            reason: obstacle.reason,
            since_us: obstacle.since_us,
        });
        // Rows go on arriving, and nobody sees them.
        self.lag = None;
        for partition in &mut self.partitions {
            partition.end_offset = None;
        }
        self
    }

    /// A cell that only rows could close is held by nothing that is wrong while there are none: everything is read, and this worker
    /// has committed no row since the cell ended.
    fn idle_or(&self, mut hold: HoldProgress) -> HoldProgress {
        let by_rows = matches!(
            hold.reason,
            Reason::WindowIncomplete | Reason::PartitionBehind
        );
        let is_read = self.lag.is_some_and(|lag| lag.offsets == 0);
        let committed = self.last_commit.as_ref().filter(|commit| commit.rows > 0);
        let is_quiet = committed.is_none_or(|commit| Some(commit.at_us) < hold.cell_end_us);
        if by_rows && is_read && is_quiet {
            hold.reason = Reason::Idle;
        }
        hold
    }

    /// Whether something keeps it from reading or committing.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.obstacle().is_some()
    }

    fn obstacle(&self) -> Option<Obstacle> {
        let own = |reason| Obstacle {
            reason,
            partition: None,
            since_us: self.state_since_us,
        };
        match (self.state, &self.last_error) {
            (RunState::Suspended, _) => Some(own(Reason::Suspended)),
            (_, Some(error)) => Some(Obstacle {
                reason: error.reason,
                partition: error.partition.clone(),
                since_us: error.since_us,
            }),
            (RunState::Running, None) => None,
            (RunState::Starting | RunState::Waiting | RunState::Stopped, None) => {
                Some(own(Reason::Starting))
            }
        }
    }

    /// The conditions that follow from where the pipeline stands.
    #[must_use]
    pub fn conditions(&self) -> Vec<Condition> {
        let error = self.last_error.as_ref();
        let message = || error.map_or_else(String::new, |error| error.message.clone());
        let invalid = error.is_some_and(|error| error.reason == Reason::SpecInvalid);
        let accepted = if invalid {
            (Answer::False, Reason::SpecInvalid)
        } else {
            (Answer::True, Reason::AsExpected)
        };
        let kept = self.obstacle().map(|obstacle| obstacle.reason);
        // A session that waits for the end of an outage goes on by itself: what counts of it is whether cells are late.
        let ready = match (self.state, kept) {
            (RunState::Running, _) | (_, None) => (Answer::True, Reason::AsExpected),
            (_, Some(reason)) => (Answer::False, reason),
        };
        let advancing = match kept.or(self.hold.as_ref().map(|hold| hold.reason)) {
            Some(Reason::Idle) => (Answer::Unknown, Reason::Idle),
            None | Some(Reason::CellOpen) => (Answer::True, Reason::AsExpected),
            Some(reason) => (Answer::False, reason),
        };
        let suspended = match self.state {
            RunState::Suspended => (Answer::True, Reason::Suspended),
            _ => (Answer::False, Reason::AsExpected),
        };
        let claim = self.claim.as_ref();
        let open = claim.and_then(|claim| claim.reopened);
        let reopened = match open {
            Some(reopened) => (Answer::True, reopened.reason),
            None => (Answer::False, Reason::AsExpected),
        };
        [
            (ConditionType::Accepted, accepted),
            (ConditionType::Ready, ready),
            (ConditionType::Advancing, advancing),
            (ConditionType::Reopened, reopened),
            (ConditionType::Suspended, suspended),
        ]
        .map(|(kind, (status, reason))| {
            let told = error.is_some_and(|error| error.reason == reason);
            let cells = open.filter(|_| kind == ConditionType::Reopened);
            Condition {
                kind,
                status,
                reason,
                message: match cells {
                    Some(open) => open.message(claim.and_then(|claim| claim.finalized_before_us)),
                    None if told => message(),
                    None => String::new(),
                },
            }
        })
        .into()
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::*;
    use crate::api::built_in_policy;
    use crate::watermark::{Identity, State};

    fn told(progress: &PipelineProgress, kind: ConditionType) -> (Answer, Reason, String) {
        let conditions = progress.conditions();
        let condition = conditions
            .into_iter()
            .find(|condition| condition.kind == kind)
            .unwrap();
        (condition.status, condition.reason, condition.message)
    }

    fn minute(minute: i64) -> i64 {
        minute * 60_000_000
    }

    /// A table that nobody has committed to yet.
    fn holding() -> Holding {
        let identity = Identity {
            writer: "shop.orders".to_owned(),
            cluster_id: "cluster".to_owned(),
            installation: "here".to_owned(),
            table_uuid: Uuid::from_u128(7),
            table_ref: "main".to_owned(),
        };
        let state = State::new(identity, "orders", built_in_policy(), minute(570));
        Holding::of(state.hold(true), &state)
    }

    /// Read to its end when the brokers were last asked.
    fn without_lag(state: RunState) -> PipelineProgress {
        let partition = PartitionProgress {
            topic: "orders".to_owned(),
            partition: 0,
            next_offset: 7,
            end_offset: Some(7),
            frontier_us: None,
        };
        PipelineProgress {
            state,
            state_since_us: minute(640),
            partitions: vec![partition],
            lag: Some(LagSummary::default()),
            ..PipelineProgress::default()
        }
    }

    /// Everything that can stop a pipeline or make it wait, in every state in which it is met: the hold is that and nothing else,
    /// a lag that nobody knows is not zero, and the conditions say the same.
    #[test]
    fn whatever_keeps_a_pipeline_from_its_work_holds_the_next_cell() {
        use RunState::{Running, Starting, Stopped, Waiting};
        let (holding, now_us) = (holding(), minute(700));
        for reason in Reason::iter() {
            for state in [Starting, Running, Waiting, Stopped] {
                let partition = Some("orders/0".to_owned());
                let error = ErrorProgress {
                    partition: partition.clone(),
                    ..ErrorProgress::new(reason, "the values".to_owned(), minute(650))
                };
                let mut progress = without_lag(state);
                progress.last_error = Some(error);
                let progress = progress.at(now_us, Some(&holding));
                let hold = HoldProgress {
                    cell_end_us: Some(holding.cell_end_us(now_us)),
                    partition,
                    term: None,
                    reason,
                    since_us: minute(650),
                };
                assert_eq!(progress.hold, Some(hold), "{state}");
                assert_eq!(progress.lag, None, "{reason} {state}");
                assert_eq!(progress.partitions[0].end_offset, None, "{reason} {state}");
                let expected = (Answer::False, reason, "the values".to_owned());
                if state != Running {
                    assert_eq!(told(&progress, ConditionType::Ready), expected, "{state}");
                }
                // An open cell and silence are no failure, and nothing ends a session by them.
                if ![Reason::CellOpen, Reason::Idle].contains(&reason) {
                    assert_eq!(told(&progress, ConditionType::Advancing), expected);
                }
                let invalid = reason == Reason::SpecInvalid;
                let accepted = told(&progress, ConditionType::Accepted).0;
                assert_eq!(accepted == Answer::False, invalid, "{reason}");
            }
        }
    }

    #[test]
    fn pipeline_that_has_not_begun_or_is_suspended_is_held_by_that() {
        for (state, reason) in [
            (RunState::Starting, Reason::Starting),
            (RunState::Suspended, Reason::Suspended),
        ] {
            let progress = without_lag(state).at(minute(700), None);
            let hold = progress.hold.as_ref().expect("a hold");
            assert_eq!((hold.reason, hold.cell_end_us), (reason, None));
            assert_eq!(hold.since_us, minute(640), "since it stands there");
            assert_eq!(progress.lag, None);
            for kind in [ConditionType::Ready, ConditionType::Advancing] {
                assert_eq!(told(&progress, kind).1, reason);
            }
        }
    }

    /// The hold is by the clock of whoever asks, also where the table was last seen long ago.
    #[test]
    fn pipeline_that_runs_is_held_by_its_table() {
        let holding = holding();
        let at = |now_us| without_lag(RunState::Running).at(now_us, Some(&holding));
        let end_us = holding.cell_end_us(minute(640));
        let due_us = end_us + built_in_policy().bounds.max_delay_us;
        let reason = |progress: &PipelineProgress| progress.hold.as_ref().map(|hold| hold.reason);
        assert_eq!(reason(&at(due_us - 1)), Some(Reason::CellOpen));
        assert_eq!(reason(&at(due_us)), Some(holding.reason(due_us)));
        assert_ne!(holding.reason(due_us), Reason::CellOpen);
        assert_eq!(at(due_us).lag, Some(LagSummary::default()));
        assert_eq!(at(due_us).partitions[0].end_offset, Some(7));
    }

    /// Nothing is wrong with a table that gets no rows, though its claim stands still where only rows may close a cell.
    #[test]
    fn quiet_table_whose_cells_only_rows_close_is_idle() {
        let hold = |reason| HoldProgress {
            cell_end_us: Some(minute(660)),
            partition: Some("orders/0".to_owned()),
            term: Some(Term::Minimum),
            reason,
            since_us: minute(650),
        };
        let commit = |at_us, rows| CommitProgress {
            commit_id: Uuid::nil(),
            snapshot_id: 1,
            at_us,
            rows,
            elapsed_ms: 5,
        };
        let quiet = without_lag(RunState::Running);
        let reason = |progress: &PipelineProgress, of| progress.idle_or(hold(of)).reason;
        for held in [Reason::WindowIncomplete, Reason::PartitionBehind] {
            assert_eq!(reason(&quiet, held), Reason::Idle);
        }
        for other in [
            Reason::ConnectorSilent,
            Reason::CellOpen,
            Reason::SnapshotRunning,
        ] {
            assert_eq!(reason(&quiet, other), other);
        }
        let mut progress = quiet.clone();
        for (last, expected) in [
            (commit(minute(659), 7), Reason::Idle),
            (commit(minute(661), 0), Reason::Idle),
            (commit(minute(661), 7), Reason::PartitionBehind),
        ] {
            progress.last_commit = Some(last);
            assert_eq!(reason(&progress, Reason::PartitionBehind), expected);
        }
        let mut behind = quiet.clone();
        behind.lag = Some(LagSummary {
            offsets: 1,
            partitions_behind: 1,
        });
        assert_eq!(
            reason(&behind, Reason::PartitionBehind),
            Reason::PartitionBehind
        );
        behind.lag = None;
        assert_eq!(
            reason(&behind, Reason::PartitionBehind),
            Reason::PartitionBehind
        );
        progress.hold = Some(hold(Reason::Idle));
        let told = told(&progress, ConditionType::Advancing);
        assert_eq!((told.0, told.1), (Answer::Unknown, Reason::Idle));
    }

    /// Whoever has read the cells has to know which, and that they are not final now.
    #[test]
    fn reopened_cells_are_named_as_long_as_they_are_open() {
        let reopened = ReopenedProgress {
            reason: Reason::TopicJoined,
            from_us: None,
            before_us: 7_200_000_000,
            since_us: 7_500_000_000,
        };
        let claim = ClaimProgress {
            finalized_before_us: Some(3_600_000_000),
            complete_from_us: None,
            gaps: Vec::new(),
            evidence: Vec::new(),
            margin_ms: None,
            epoch: 2,
            reopened: Some(reopened),
            commit_id: Uuid::nil(),
            table_uuid: None,
            cell: None,
            zone: None,
            accepted: Vec::new(),
            amended: Vec::new(),
        };
        let mut progress = PipelineProgress {
            claim: Some(claim),
            ..PipelineProgress::default()
        };
        let cells = "cells from 1970-01-01T01:00:00Z to before 1970-01-01T02:00:00Z were final and are open again";
        assert_eq!(
            told(&progress, ConditionType::Reopened),
            (Answer::True, Reason::TopicJoined, cells.to_owned())
        );
        progress.claim.as_mut().unwrap().reopened = None;
        assert_eq!(told(&progress, ConditionType::Reopened).0, Answer::False);
    }

    /// An open cell is the usual case: no alarm may come from it.
    #[test]
    fn open_cell_is_advancing() {
        let hold = HoldProgress {
            cell_end_us: Some(0),
            partition: None,
            term: None,
            reason: Reason::CellOpen,
            since_us: 0,
        };
        let mut progress = PipelineProgress {
            state: RunState::Running,
            hold: Some(hold),
            ..PipelineProgress::default()
        };
        assert_eq!(told(&progress, ConditionType::Advancing).0, Answer::True);
        progress.hold.as_mut().unwrap().reason = Reason::PartitionBehind;
        assert_eq!(
            told(&progress, ConditionType::Advancing).1,
            Reason::PartitionBehind
        );
    }
}
