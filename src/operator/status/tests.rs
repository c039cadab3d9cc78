//! The rules of a status, one by one and under any order of answers.

use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;

use super::{claim::few, *};
use crate::api::{
    quantity::parse_instant_us,
    schema::ConditionStatus,
    worker::{
        AcceptedProgress, AmendedProgress, ClaimProgress, ErrorProgress, HoldProgress, Interval,
        LagSummary, PipelineProgress, ReopenedProgress, RunState,
    },
};

const SECOND_US: i64 = 1_000_000;
const HOUR_US: i64 = 3_600 * SECOND_US;

fn at(text: &str) -> i64 {
    parse_instant_us(text).unwrap()
}

/// Today, by the time of day.
fn today(time: &str) -> i64 {
    at(&format!("2026-11-30T{time}:00Z"))
}

/// A pipeline that is as it should be, with one worker, at noon.
struct Case {
    reconciled: Reconciled,
    children: Children,
    workers: Workers,
    now_us: i64,
}

impl Case {
    fn new() -> Self {
        let mut workers = Workers::default();
        workers.expect(&["a"], today("12:00"));
        Self {
            reconciled: Reconciled {
                generation: 3,
                accepted: Ok(()),
                applied: Ok(()),
                pending: None,
                spec_hash: Some("hash".into()),
                suspend: false,
                patience_us: 13 * 60 * SECOND_US,
            },
            children: Children {
                desired: 1,
                replicas: 1,
                ready_replicas: 1,
                selector: Some("tidemark.dev/pipeline=orders".into()),
                trouble: None,
            },
            workers,
            now_us: today("12:00"),
        }
    }

    fn hears(&mut self, worker: &str, progress: PipelineProgress) -> &mut Self {
        self.workers
            .hear(worker, Said::Progress(Arc::new(progress)), self.now_us);
        self
    }

    fn derive(&self, old: Option<&IngestionPipelineStatus>) -> Option<IngestionPipelineStatus> {
        let situation = Situation {
            reconciled: &self.reconciled,
            children: &self.children,
            workers: &self.workers,
            now_us: self.now_us,
        };
        derive(&situation, old)
    }

    /// The status after this, whether or not it is written.
    fn after(&self, old: &IngestionPipelineStatus) -> IngestionPipelineStatus {
        self.derive(Some(old)).unwrap_or_else(|| old.clone())
    }
}

fn commit(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn claim(epoch: u64, before: Option<&str>, number: u128) -> ClaimProgress {
    ClaimProgress {
        finalized_before_us: before.map(today),
        complete_from_us: Some(today("00:00")),
        gaps: Vec::new(),
        evidence: vec!["minimum".into(), "caught-up".into()],
        margin_ms: None,
        epoch,
        reopened: None,
        commit_id: commit(number),
        table_uuid: Some(commit(1)),
        cell: Some("1h".into()),
        zone: None,
        accepted: Vec::new(),
        amended: Vec::new(),
    }
}

fn running(claim: Option<ClaimProgress>) -> PipelineProgress {
    PipelineProgress {
        pipeline: "shop/orders".into(),
        table: "shop.orders".into(),
        state: RunState::Running,
        spec_hash: "hash".into(),
        lag: Some(LagSummary::default()),
        claim,
        ..PipelineProgress::default()
    }
}

fn stopped(reason: Reason, message: &str) -> PipelineProgress {
    PipelineProgress {
        state: RunState::Stopped,
        last_error: Some(ErrorProgress::new(reason, message.into(), 0)),
        ..running(None)
    }
}

/// Status, reason and message of a condition.
fn told<'a>(
    status: &'a IngestionPipelineStatus,
    kind: &str,
) -> (ConditionStatus, &'a str, &'a str) {
    let condition = condition(status, kind).unwrap();
    (condition.status, &condition.reason, &condition.message)
}

fn first(case: &Case) -> IngestionPipelineStatus {
    case.derive(None).expect("the first status is written")
}

#[test]
fn healthy_pipeline_says_its_claim() {
    let mut case = Case::new();
    case.hears("a", running(Some(claim(2, Some("11:00"), 7))));
    let status = first(&case);
    let condition = |kind: &str, status, reason: &str| StatusCondition {
        kind: kind.into(),
        status,
        reason: reason.into(),
        message: String::new(),
        last_transition_time: "2026-11-30T12:00:00Z".into(),
        observed_generation: Some(3),
    };
    let expected = IngestionPipelineStatus {
        observed_generation: Some(3),
        conditions: vec![
            condition("Accepted", ConditionStatus::True, "AsExpected"),
            condition("Ready", ConditionStatus::True, "AsExpected"),
            condition("Advancing", ConditionStatus::True, "AsExpected"),
            condition("Reopened", ConditionStatus::False, "AsExpected"),
            condition("Suspended", ConditionStatus::False, "AsExpected"),
        ],
        finalized_before: Some(text(today("11:00"))),
        complete_from: Some(text(today("00:00"))),
        evidence: Some("minimum,caught-up".into()),
        epoch: Some(2),
        commit_id: Some(commit(7)),
        cell: Some(crate::api::pipeline::LengthText("1h".into())),
        lag: Some("0".into()),
        replicas: Some(1),
        ready_replicas: Some(1),
        selector: Some("tidemark.dev/pipeline=orders".into()),
        table_uuid: Some(commit(1)),
        spec_hash: Some("hash".into()),
        ..IngestionPipelineStatus::default()
    };
    assert_eq!(status, expected);
    assert_eq!(case.derive(Some(&status)), None, "it is written");
}

/// A worker commits every minute: that alone is no write.
#[test]
fn further_commit_without_a_new_claim_is_no_write() {
    let mut case = Case::new();
    case.hears("a", running(Some(claim(2, Some("11:00"), 7))));
    let status = first(&case);
    case.now_us += 60 * SECOND_US;
    case.hears("a", running(Some(claim(2, Some("11:00"), 8))));
    assert_eq!(case.derive(Some(&status)), None);
    case.hears("a", running(Some(claim(2, Some("12:00"), 9))));
    let next = case.derive(Some(&status)).unwrap();
    assert_eq!(next.finalized_before, Some(text(today("12:00"))));
    assert_eq!(next.commit_id, Some(commit(9)));
}

#[test]
fn old_answer_neither_lowers_nor_blanks_the_claim() {
    let mut case = Case::new();
    case.hears("a", running(Some(claim(2, Some("11:00"), 7))));
    let status = first(&case);
    for old in [
        Some(claim(2, Some("10:00"), 6)),
        Some(claim(2, None, 8)),
        None,
    ] {
        let mut case = Case::new();
        case.hears("a", running(old));
        assert_eq!(case.derive(Some(&status)), None);
    }
    // An epoch that is over.
    let mut case = Case::new();
    case.hears("a", running(Some(claim(1, Some("12:00"), 9))));
    assert_eq!(case.derive(Some(&status)), None);
}

#[test]
fn new_epoch_takes_the_claim_back() {
    let mut case = Case::new();
    case.hears("a", running(Some(claim(2, Some("11:00"), 7))));
    let status = first(&case);
    let mut reopened = claim(3, Some("09:00"), 8);
    reopened.reopened = Some(ReopenedProgress {
        reason: Reason::TopicJoined,
        from_us: Some(today("09:00")),
        before_us: today("11:00"),
        since_us: today("12:00"),
    });
    case.hears("a", running(Some(reopened)));
    let next = case.derive(Some(&status)).unwrap();
    assert_eq!(next.finalized_before, Some(text(today("09:00"))));
    let (status, reason, message) = told(&next, "Reopened");
    assert_eq!((status, reason), (ConditionStatus::True, "TopicJoined"));
    assert_eq!(
        message,
        format!(
            "cells from 2026-11-30T09:00:00Z to before 2026-11-30T11:00:00Z were final and are open again; {}",
            Reason::TopicJoined.remedy()
        )
    );
    // Without any claim left.
    case.hears("a", running(Some(claim(4, None, 9))));
    let last = case.derive(Some(&next)).unwrap();
    assert_eq!((last.finalized_before, last.epoch), (None, Some(4)));
}

/// Whoever reads a claim that the table no longer makes reads rows that may be gone.
#[test]
fn void_claim_is_withdrawn_and_comes_back() {
    let mut case = Case::new();
    case.workers.expect(&["a", "b"], case.now_us);
    case.hears("a", running(Some(claim(2, Some("11:00"), 7))));
    case.hears("b", running(Some(claim(2, Some("11:00"), 7))));
    let status = first(&case);
    let mut void = stopped(Reason::LineageUnknown, "snapshot 5 is not known");
    void.claim = Some(claim(2, Some("11:00"), 7));
    case.hears("b", void);
    let withdrawn = case.derive(Some(&status)).unwrap();
    assert_eq!(
        (&withdrawn.finalized_before, withdrawn.epoch),
        (&None, Some(2))
    );
    assert_eq!(withdrawn.table_uuid, Some(commit(1)));
    assert_eq!(told(&withdrawn, "Ready").1, "LineageUnknown");
    // Silence brings nothing back.
    let mut silent = Case::new();
    silent.now_us = case.now_us + 2 * UNREACHABLE_AFTER_US;
    assert_eq!(silent.after(&withdrawn).finalized_before, None);
    case.hears("b", running(Some(claim(2, Some("11:00"), 7))));
    let back = case.derive(Some(&withdrawn)).unwrap();
    assert_eq!(back.finalized_before, status.finalized_before);
}

/// Of two workers one has made the commit after a rollback, and the other still finds the old one gone.
/// A table that was made again counts its epochs anew: what is void of the old one says nothing of it.
#[test]
fn void_claim_of_an_old_table_hides_none_of_the_new_one() {
    let mut case = Case::new();
    case.workers.expect(&["a", "b"], case.now_us);
    case.hears("a", running(Some(claim(5, Some("11:00"), 7))));
    let old = first(&case);
    let mut void = stopped(Reason::TableRecreated, "another UUID");
    void.claim = Some(claim(5, Some("11:00"), 7));
    case.hears("a", void);
    let withdrawn = case.after(&old);
    assert_eq!(withdrawn.finalized_before, None);
    let mut anew = claim(0, Some("10:00"), 8);
    anew.table_uuid = Some(commit(2));
    case.hears("b", running(Some(anew)));
    for before in [&old, &withdrawn] {
        let status = case.after(before);
        assert_eq!(
            (status.finalized_before, status.table_uuid),
            (Some(text(today("10:00"))), Some(commit(2)))
        );
    }
}

#[test]
fn void_epoch_does_not_withdraw_a_later_one() {
    let mut case = Case::new();
    case.workers.expect(&["a", "b"], case.now_us);
    case.hears("a", running(Some(claim(2, Some("11:00"), 7))));
    let status = first(&case);
    let mut behind = stopped(Reason::RolledBack, "snapshot 5 is gone");
    behind.claim = Some(claim(2, Some("11:00"), 7));
    case.hears("b", behind.clone());
    case.hears("a", running(Some(claim(3, Some("10:00"), 8))));
    let next = case.derive(Some(&status)).unwrap();
    assert_eq!(next.finalized_before, Some(text(today("10:00"))));
    // And it does not when the one that knows better is silent.
    let mut alone = Case::new();
    alone.workers.expect(&["b"], alone.now_us);
    alone.hears("b", behind);
    assert_eq!(alone.after(&next).finalized_before, next.finalized_before);
}

/// A table made again counts from the beginning; the greater epoch is the old table's.
#[test]
fn table_of_the_newest_commit_is_meant() {
    let mut case = Case::new();
    case.workers.expect(&["a", "b"], case.now_us);
    case.hears("a", running(Some(claim(9, Some("11:00"), 70))));
    let status = first(&case);
    let mut anew = claim(1, None, 80);
    anew.table_uuid = Some(commit(2));
    case.hears("b", running(Some(anew.clone())));
    let next = case.derive(Some(&status)).unwrap();
    assert_eq!((next.epoch, &next.finalized_before), (Some(1), &None));
    assert_eq!(next.table_uuid, Some(commit(2)));
    assert_eq!(
        case.derive(Some(&next)),
        None,
        "the old table's worker does not bring it back"
    );
}

#[test]
fn silence_is_unknown_and_the_claim_stays() {
    let mut case = Case::new();
    case.hears("a", running(Some(claim(2, Some("11:00"), 7))));
    let status = first(&case);
    case.now_us += UNREACHABLE_AFTER_US;
    assert_eq!(case.derive(Some(&status)), None, "not yet");
    case.now_us += SECOND_US;
    let next = case.derive(Some(&status)).unwrap();
    assert_eq!(next.finalized_before, status.finalized_before);
    for kind in ["Ready", "Advancing"] {
        let (answer, reason, message) = told(&next, kind);
        assert_eq!(
            (answer, reason),
            (ConditionStatus::Unknown, "WorkerUnreachable")
        );
        assert!(
            message.starts_with("worker \"a\" has not answered since 2026-11-30T12:00:00Z; "),
            "{message}"
        );
    }
    // Longer silence is no further write.
    case.now_us += HOUR_US;
    assert_eq!(case.derive(Some(&next)), None);
}

/// A new leader has heard nobody: it must not write ten thousand statuses to say so.
#[test]
fn workers_that_have_not_been_asked_yet_change_nothing() {
    let mut case = Case::new();
    case.hears("a", running(Some(claim(2, Some("11:00"), 7))));
    let status = first(&case);
    let fresh = Case::new();
    assert_eq!(fresh.derive(Some(&status)), None);
}

#[test]
fn worst_of_several_workers_counts_and_their_lag_adds_up() {
    let mut case = Case::new();
    case.workers.expect(&["a", "b"], case.now_us);
    let lag = |offsets| {
        Some(LagSummary {
            offsets,
            partitions_behind: 1,
        })
    };
    case.hears(
        "a",
        PipelineProgress {
            lag: lag(600),
            ..running(Some(claim(2, Some("11:00"), 7)))
        },
    );
    case.hears(
        "b",
        PipelineProgress {
            lag: lag(600),
            ..stopped(
                Reason::Undecodable,
                "topic \"shop\", partition 3, offset 17",
            )
        },
    );
    let status = first(&case);
    assert_eq!(status.lag.as_deref(), Some("<10k"));
    assert_eq!(status.finalized_before, Some(text(today("11:00"))));
    let (answer, reason, message) = told(&status, "Ready");
    assert_eq!((answer, reason), (ConditionStatus::False, "Undecodable"));
    assert_eq!(
        message,
        format!(
            "topic \"shop\", partition 3, offset 17; {}",
            Reason::Undecodable.remedy()
        )
    );
    // The same fault at another offset is the same state; one in another topic is not.
    case.hears(
        "b",
        PipelineProgress {
            lag: lag(600),
            ..stopped(
                Reason::Undecodable,
                "topic \"shop\", partition 3, offset 18",
            )
        },
    );
    assert_eq!(case.derive(Some(&status)), None);
    case.hears(
        "b",
        PipelineProgress {
            lag: lag(600),
            ..stopped(
                Reason::Undecodable,
                "topic \"toys\", partition 3, offset 18",
            )
        },
    );
    assert!(case.derive(Some(&status)).is_some());
}

/// A 0 of before the stop says that nothing is left to read.
#[test]
fn lag_is_unknown_once_all_have_stopped() {
    let mut case = Case::new();
    case.workers.expect(&["a", "b"], case.now_us);
    case.hears("a", running(None)).hears("b", running(None));
    let status = first(&case);
    assert_eq!(status.lag.as_deref(), Some("0"));
    let silent = |state: PipelineProgress| PipelineProgress { lag: None, ..state };
    case.hears("a", silent(stopped(Reason::Undecodable, "offset 17")));
    let one = case.derive(Some(&status)).unwrap();
    assert_eq!(one.lag.as_deref(), Some("0"), "the other one may say more");
    case.hears("b", silent(stopped(Reason::Undecodable, "offset 18")));
    let both = case.derive(Some(&one)).unwrap();
    assert_eq!(both.lag, None);
    case.hears("a", running(None)).hears("b", running(None));
    assert_eq!(case.derive(Some(&both)).unwrap().lag.as_deref(), Some("0"));
}

#[test]
fn time_of_a_condition_moves_only_with_its_answer() {
    let mut case = Case::new();
    case.hears("a", running(None));
    let status = first(&case);
    case.now_us += 60 * SECOND_US;
    case.reconciled.generation = 4;
    case.hears("a", stopped(Reason::TopicNotFound, "topic \"a\""));
    let down = case.derive(Some(&status)).unwrap();
    let time = |status: &IngestionPipelineStatus, kind: &str| {
        condition(status, kind)
            .unwrap()
            .last_transition_time
            .clone()
    };
    assert_eq!(time(&down, "Ready"), "2026-11-30T12:01:00Z");
    assert_eq!(time(&down, "Accepted"), "2026-11-30T12:00:00Z");
    case.now_us += 60 * SECOND_US;
    case.hears("a", stopped(Reason::BrokerUnreachable, "no broker"));
    let other = case.derive(Some(&down)).unwrap();
    assert_eq!(told(&other, "Ready").1, "BrokerUnreachable");
    assert_eq!(time(&other, "Ready"), "2026-11-30T12:01:00Z");
    assert_eq!(
        condition(&other, "Ready").unwrap().observed_generation,
        Some(4)
    );
}

/// Ten thousand cells end at once: each is held for a moment, and that is no alarm.
/// Deriving a status takes longer than seeing that nothing has come.
#[test]
fn an_answer_is_news_once_and_after_a_silence() {
    let (mut workers, at_us) = (Workers::default(), today("12:00"));
    workers.expect(&["a"], at_us);
    let mut hears = |name: &str, said: &Said, second: i64| {
        workers.hear(name, said.clone(), at_us + second * SECOND_US)
    };
    let said = Said::Progress(Arc::new(running(None)));
    assert!(hears("a", &Said::NotLoaded, 0));
    assert!(!hears("a", &Said::NotLoaded, 20));
    assert!(hears("a", &said, 40));
    assert!(!hears("a", &Said::NotLoaded, 30), "an old one");
    assert!(!hears("b", &said, 50), "nobody asks for it");
    assert!(!hears("a", &said, 60));
    assert!(hears("a", &said, 3_600), "nobody had heard of it any more");
}

#[test]
fn cell_is_held_once_patience_is_over() {
    let mut case = Case::new();
    let hold = HoldProgress {
        cell_end_us: Some(today("11:00")),
        partition: Some("shop.orders/3".into()),
        term: None,
        reason: Reason::PartitionBehind,
        since_us: today("10:50"),
    };
    let behind = PipelineProgress {
        hold: Some(hold),
        ..running(Some(claim(2, Some("10:00"), 7)))
    };
    case.now_us = today("11:12");
    case.hears("a", behind.clone());
    let status = first(&case);
    assert_eq!(told(&status, "Advancing").0, ConditionStatus::True);
    case.now_us = today("11:13");
    case.hears("a", behind);
    let next = case.derive(Some(&status)).unwrap();
    let (answer, reason, message) = told(&next, "Advancing");
    assert_eq!(
        (answer, reason),
        (ConditionStatus::False, "PartitionBehind")
    );
    assert_eq!(
        message,
        format!(
            "the cell up to 2026-11-30T11:00:00Z is open: partition \"shop.orders/3\"; {}",
            Reason::PartitionBehind.remedy()
        )
    );
    // Another worker has seen the commit that made the cell final.
    case.workers.expect(&["a", "b"], case.now_us);
    case.hears("b", running(Some(claim(2, Some("11:00"), 8))));
    let final_since = case.derive(Some(&next)).unwrap();
    assert_eq!(told(&final_since, "Advancing").0, ConditionStatus::True);
}

#[test]
fn refused_specification_is_told_beside_what_goes_on() {
    let mut case = Case::new();
    case.hears("a", running(Some(claim(2, Some("11:00"), 7))));
    case.reconciled.accepted = Err(Trouble::new(
        Reason::SpecInvalid,
        "source.kafka.topics is empty",
    ));
    let status = first(&case);
    assert_eq!(told(&status, "Accepted").0, ConditionStatus::False);
    assert_eq!(told(&status, "Ready").0, ConditionStatus::True);
    // Where nothing runs, it is why nothing does.
    let mut none = Case::new();
    none.workers = Workers::default();
    none.children = Children::default();
    none.reconciled.accepted = case.reconciled.accepted.clone();
    let status = first(&none);
    assert_eq!(told(&status, "Ready").1, "SpecInvalid");
    assert_eq!(told(&status, "Advancing").1, "SpecInvalid");
}

#[test]
fn change_that_waits_for_its_turn_is_accepted() {
    let mut case = Case::new();
    case.reconciled.pending = Some(Trouble::new(Reason::RolloutPending, "wave 2 of 5"));
    let (answer, reason, message) = {
        let status = first(&case);
        let (answer, reason, message) = told(&status, "Accepted");
        (answer, reason.to_owned(), message.to_owned())
    };
    assert_eq!(
        (answer, reason.as_str()),
        (ConditionStatus::True, "RolloutPending")
    );
    assert!(message.starts_with("wave 2 of 5; "), "{message}");
}

#[test]
fn suspended_once_the_last_worker_has_committed() {
    let mut case = Case::new();
    case.hears("a", running(Some(claim(2, Some("11:00"), 7))));
    case.reconciled.suspend = true;
    let stopping = first(&case);
    assert_eq!(told(&stopping, "Suspended").1, "Stopping");
    assert_eq!(told(&stopping, "Ready").1, "Suspended");
    case.workers = Workers::default();
    case.children = Children {
        selector: case.children.selector.clone(),
        ..Children::default()
    };
    let status = case.derive(Some(&stopping)).unwrap();
    assert_eq!(told(&status, "Suspended").0, ConditionStatus::True);
    assert_eq!(status.finalized_before, stopping.finalized_before);
    assert_eq!(status.lag, None);
    // And it does not say so any more when it is to go on.
    case.reconciled.suspend = false;
    case.workers.expect(&["a"], case.now_us);
    let back = case.derive(Some(&status)).unwrap();
    assert_eq!(told(&back, "Ready").1, "Starting");
}

#[test]
fn pods_that_do_not_start_say_why() {
    let mut case = Case::new();
    case.workers = Workers::default();
    case.children.ready_replicas = 0;
    let status = first(&case);
    assert_eq!(told(&status, "Ready").1, "Starting");
    assert!(
        told(&status, "Ready")
            .2
            .starts_with("0 of 1 workers are ready; ")
    );
    case.children.trouble = Some(Trouble::new(
        Reason::SecretMissing,
        "secret \"kafka\" not found",
    ));
    let next = case.derive(Some(&status)).unwrap();
    assert_eq!(told(&next, "Ready").1, "SecretMissing");
}

#[test]
fn long_message_keeps_its_remedy() {
    let mut case = Case::new();
    case.hears("a", stopped(Reason::CatalogRefused, &"x".repeat(100_000)));
    let status = first(&case);
    let (_, _, message) = told(&status, "Ready");
    assert_eq!(message.chars().count(), MESSAGE_CHARS);
    assert!(message.ends_with(&format!("x…; {}", Reason::CatalogRefused.remedy())));
}

#[test]
fn withheld_cells_and_accepted_terms_are_told() {
    let mut case = Case::new();
    let cell = |from: &str, before: &str, withheld| AmendedProgress {
        cell: Interval {
            from_us: today(from),
            before_us: today(before),
        },
        revision: 1,
        rows: 2,
        at_us: today("11:30"),
        withheld,
    };
    let set = |terms: &[&str], before: Option<&str>| AcceptedProgress {
        terms: terms.iter().map(|term| (*term).to_owned()).collect(),
        before_us: before.map(today),
    };
    let mut claim = claim(2, Some("11:00"), 7);
    claim.amended = vec![cell("08:00", "09:00", true), cell("09:00", "10:00", false)];
    claim.accepted = vec![set(&["minimum"], None), set(&["caught-up"], Some("10:00"))];
    case.hears("a", running(Some(claim)));
    let status = first(&case);
    assert_eq!(status.withheld, [gap(today("08:00"), today("09:00"))]);
    assert_eq!(
        status.accepted,
        [accepted(&["caught-up".to_owned()], today("10:00"))]
    );
}

#[derive(Debug, Clone)]
struct Step {
    worker: usize,
    epoch: u64,
    hour: Option<i64>,
    commit: u128,
}

/// Claims as one table's history brings them: within an epoch the claim rises with the commits.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..3_usize, 0..3_i64, 0..4_u8);
    prop::collection::vec(step, 1..20).prop_map(|steps| {
        let (mut epoch, mut hour) = (1, None);
        let made = steps
            .into_iter()
            .enumerate()
            .map(|(at, (worker, more, kind))| {
                if kind == 0 {
                    epoch += 1;
                    hour = None;
                } else if more > 0 {
                    hour = Some(hour.unwrap_or(0) + more);
                }
                Step {
                    worker,
                    epoch,
                    hour,
                    commit: u128::try_from(at).unwrap() + 1,
                }
            });
        made.collect()
    })
}

fn hear(case: &mut Case, step: &Step) {
    let mut told = claim(step.epoch, None, step.commit);
    told.finalized_before_us = step.hour.map(|hour| today("00:00") + hour * HOUR_US);
    case.now_us += SECOND_US;
    case.hears(["a", "b", "c"][step.worker], running(Some(told)));
}

fn key(status: &IngestionPipelineStatus) -> (Option<u64>, Option<i64>) {
    let before = status.finalized_before.as_ref();
    (
        status.epoch,
        before.and_then(|text| parse_instant_us(&text.0)),
    )
}

proptest! {
    /// However late and in whatever order answers arrive.
    #[test]
    fn prop_claim_rises_within_an_epoch_and_ends_at_the_newest(
        (steps, order) in steps().prop_flat_map(|steps| (Just(steps.clone()), Just(steps).prop_shuffle())),
    ) {
        let mut case = Case::new();
        case.workers.expect(&["a", "b", "c"], case.now_us);
        let mut status = first(&case);
        for step in &order {
            hear(&mut case, step);
            let next = case.after(&status);
            prop_assert!(key(&next) >= key(&status), "{:?} after {:?}", key(&next), key(&status));
            prop_assert_eq!(case.derive(Some(&next)), None, "a second look writes again");
            status = next;
        }
        let newest = steps.iter().map(|step| (step.epoch, step.hour)).max().unwrap();
        let expected = (Some(newest.0), newest.1.map(|hour| today("00:00") + hour * HOUR_US));
        prop_assert_eq!(key(&status), expected);
    }

    #[test]
    fn prop_few_gaps_cover_all_of_many(gaps in prop::collection::vec((0..1_000_i64, 1..20_i64), 0..80)) {
        let gaps = gaps.into_iter().map(|(from, length)| Interval { from_us: from * SECOND_US, before_us: (from + length) * SECOND_US });
        let gaps: Vec<Interval> = gaps.collect();
        let merged = few(gaps.iter().copied());
        prop_assert!(merged.len() <= 16);
        let merged: Vec<Interval> = merged.iter().map(|gap| Interval { from_us: at(&gap.from.0), before_us: at(&gap.before.0) }).collect();
        for gap in &gaps {
            prop_assert!(merged.iter().any(|one| one.from_us <= gap.from_us && gap.before_us <= one.before_us));
        }
        prop_assert!(merged.windows(2).all(|pair| pair[0].before_us < pair[1].from_us));
    }
}
