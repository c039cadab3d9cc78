//! What holds the next open cell of a table, since when, and what would release it.
//!
//! In: the table as the catalog has it and the clock. Out: one [`Why`], the same for people and programs. No worker is asked: the
//! state and the summaries on the table say all of it, as of the newest commit.
//!
//! The reason and its remedy are those of `/progress` and of the conditions.

mod text;

use serde::Serialize;
use strum::EnumMessage;

pub use text::{Layout, text};

use super::{
    TableRecord,
    foreign::{self, ForeignReport},
    frontiers::{self, Frontier, Release},
};
use crate::{
    api::{
        Reason,
        quantity::{Instant, iso, iso_option, length},
        worker::Holding,
    },
    watermark::{
        self, Ancestor, HeldBy, Hold, PartitionRecord, PartitionState, Quantile, State, TableView,
        Term, TermValue,
        contract::{self, OwnSummary},
        read_claim,
    },
};

/// What holds a table's next cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// The table.
    pub table: String,
    /// As `get` says it.
    pub standing: Standing,
    /// The claim that counts; null: none does.
    #[serde(rename = "finalizedBefore", with = "iso_option")]
    pub finalized_before_us: Option<i64>,
    /// The cell that is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<Cell>,
    /// Why it is open; null: nothing of ours is on the table.
    pub reason: Option<Reason>,
    /// What the reason means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<&'static str>,
    /// All of it in a sentence.
    pub sentence: String,
    /// By what it is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<Holder>,
    /// The last news that moved what holds it.
    #[serde(
        rename = "since",
        with = "iso_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub since_us: Option<i64>,
    /// What would release it: any one of these.
    pub release: Vec<Release>,
    /// What a person can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The commit that all of this is as of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<AsOf>,
    /// How far each source partition has got, the least first.
    pub partitions: Vec<Frontier>,
    /// What other systems say, where there is no claim of ours.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<ForeignReport>,
}

/// How the table's claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Standing {
    /// There is one.
    Claimed,
    /// There is none: nothing writes the table, or nothing is final yet.
    Unclaimed,
    /// There is one that does not count.
    Held,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// Its name.
    pub name: String,
    /// Its first instant.
    #[serde(rename = "from", with = "iso")]
    pub from_us: i64,
    /// The first instant after it.
    #[serde(rename = "before", with = "iso")]
    pub before_us: i64,
}

/// What holds a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// In words.
    pub what: String,
    /// The source partition, as `topic/partition`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The term that came closest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<&'static str>,
    /// How far it has got.
    #[serde(rename = "reached", with = "iso_option")]
    pub reached_us: Option<i64>,
    /// The setting that makes the difference, and its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// The commit that brought what it rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitRef>,
}

/// A setting with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bound {
    /// The field of the manifest.
    pub field: &'static str,
    /// What it is set to.
    pub value: String,
}

/// A commit of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitRef {
    /// Its id.
    pub id: String,
    /// When it was made, by its worker's clock.
    #[serde(rename = "at", with = "iso")]
    pub at_us: i64,
    /// Its snapshot.
    pub snapshot_id: i64,
}

/// Which commit, whose, and under which settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AsOf {
    /// The commit.
    pub commit_id: String,
    /// When it was made, by its worker's clock.
    #[serde(rename = "at", with = "iso")]
    pub at_us: i64,
    /// Who writes the table.
    pub writer: String,
    /// The worker that committed.
    pub worker: String,
    /// The revision of the settings.
    pub policy_revision: u64,
    /// The settings.
    pub policy: String,
}

/// Explains a table, by the clock `now_us`.
#[must_use]
pub fn why(record: &TableRecord, now_us: i64) -> Why {
    let mut why = explained(record, now_us);
    if why.standing == Standing::Unclaimed {
        why.foreign = foreign::reports(&record.foreign());
    }
    why
}

fn explained(record: &TableRecord, now_us: i64) -> Why {
    let (table, view) = (record.table.as_str(), &record.view());
    let claim = match read_claim(view) {
        watermark::Reading::Nothing => return nothing(table),
        watermark::Reading::Held { why, .. } => {
            let leads_back = view.lineage.snapshots.iter().any(Ancestor::is_own);
            return refused(table, Reason::of_held(&why, leads_back), &why.to_string());
        }
        watermark::Reading::Claim(claim) => claim.claim,
    };
    let own: Vec<(i64, OwnSummary)> = own_summaries(view);
    let Some(state) = record.state() else {
        return nothing(table);
    };
    explain(table, &state, &own, claim.finalized_before_us, now_us)
}

/// Our summaries that can be read, with their snapshots, the newest first.
fn own_summaries(view: &TableView<'_>) -> Vec<(i64, OwnSummary)> {
    let snapshots = view.lineage.snapshots.iter();
    snapshots
        .filter_map(|snapshot| {
            let summary = contract::read_summary(&snapshot.summary).ok().flatten()?;
            Some((snapshot.snapshot_id, summary))
        })
        .collect()
}

fn nothing(table: &str) -> Why {
    Why {
        table: table.to_owned(),
        standing: Standing::Unclaimed,
        finalized_before_us: None,
        cell: None,
        reason: None,
        meaning: None,
        sentence: format!(
            "No commit of Tidemark is on {table}: nothing claims anything about it, so nothing holds it."
        ),
        held_by: None,
        since_us: None,
        release: vec![Release {
            term: None,
            needs: "a pipeline that writes the table".to_owned(),
        }],
        remedy: None,
        as_of: None,
        partitions: Vec::new(),
        foreign: Vec::new(),
    }
}

fn refused(table: &str, reason: Reason, problem: &str) -> Why {
    Why {
        standing: Standing::Held,
        reason: Some(reason),
        meaning: reason.get_documentation(),
        sentence: format!("{table} has a claim that does not count: {problem}."),
        remedy: Some(reason.remedy().to_owned()),
        release: Vec::new(),
        ..nothing(table)
    }
}

fn explain(
    table: &str,
    state: &State,
    own: &[(i64, OwnSummary)],
    claimed_us: Option<i64>,
    now_us: i64,
) -> Why {
    let hold = state.hold(true);
    let holding = Holding::of(hold.clone(), state);
    let (grid, reason) = (state.policy.grid, holding.reason(now_us));
    let before_us = holding.cell_end_us(now_us);
    let cell = Cell {
        name: grid.last_final(before_us),
        from_us: grid.floor(before_us.saturating_sub(1)),
        before_us,
    };
    let holder = holder(&hold, state, own);
    let mut sentence = format!(
        "{} of {table} is open: {}.",
        cell.name,
        sentence(&hold, &holder)
    );
    let mut remedy = reason.remedy().to_owned();
    let due_us = before_us.saturating_add(state.policy.bounds.max_delay_us);
    if let Some(last_us) = last_commit_us(own).filter(|us| *us < due_us && asks_for_commit(reason))
    {
        sentence = format!(
            "{sentence} The last commit is of {}, before that could be.",
            Instant(last_us)
        );
        WITHOUT_COMMITS.clone_into(&mut remedy);
    }
    Why {
        table: table.to_owned(),
        standing: if claimed_us.is_some() {
            Standing::Claimed
        } else {
            Standing::Unclaimed
        },
        finalized_before_us: claimed_us,
        cell: Some(cell),
        reason: Some(reason),
        meaning: reason.get_documentation(),
        sentence,
        since_us: Some(hold.since_us),
        release: frontiers::release(&hold, state, before_us),
        held_by: Some(holder),
        remedy: Some(remedy),
        as_of: own.first().map(|(_, newest)| as_of(newest)),
        partitions: frontiers::frontiers(state),
        foreign: Vec::new(),
    }
}

/// What a person does where nobody has committed since the cell could close: no setting would help.
const WITHOUT_COMMITS: &str = "see that a worker runs, and what its /progress says: nobody has committed since the cell could close";

/// Whether a worker that reads what there is would end it by a commit.
fn asks_for_commit(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::BrokerNotAsked
            | Reason::PartitionNew
            | Reason::WindowIncomplete
            | Reason::PartitionBehind
            | Reason::PartitionSilent
    )
}

fn last_commit_us(own: &[(i64, OwnSummary)]) -> Option<i64> {
    let commits = own
        .iter()
        .map(|(_, summary)| summary.record.committed_at_us);
    commits.max()
}

fn as_of(newest: &OwnSummary) -> AsOf {
    let record = &newest.record;
    AsOf {
        commit_id: record.commit_id.to_string(),
        at_us: record.committed_at_us,
        writer: newest.writer.clone(),
        worker: newest.worker.clone(),
        policy_revision: record.policy.revision,
        policy: frontiers::settings(&record.policy),
    }
}

/// What holds a cell, as a sentence without its beginning and end, for `get`.
#[must_use]
pub(super) fn hold_sentence(hold: &Hold) -> String {
    let mut text = held_by(&hold.by);
    if let Some(reached_us) = hold.reached_us {
        text = format!("{text}, which has reached {}", Instant(reached_us));
    }
    format!("{text} (since {})", Instant(hold.since_us))
}

fn sentence(hold: &Hold, holder: &Holder) -> String {
    let alone = ["waits ", "is "]
        .iter()
        .any(|verb| holder.what.starts_with(verb));
    let subject = if alone { "it " } else { "" };
    let reached = hold.reached_us.filter(|_| hold.by != HeldBy::Clock);
    let reached = reached.map_or_else(String::new, |us| {
        format!(", which has reached {}", Instant(us))
    });
    format!("{subject}{}{reached}", holder.what)
}

fn held_by(by: &HeldBy) -> String {
    match by {
        HeldBy::NotAsked => "the broker has not been asked for its partitions".to_owned(),
        HeldBy::NoPartition => "the topics have no partition".to_owned(),
        HeldBy::NoTerm => "no term is admitted".to_owned(),
        HeldBy::Unanchored { topic, partition } => {
            format!("{topic}/{partition} is new and not anchored yet")
        }
        HeldBy::Partition {
            topic,
            partition,
            term: Some(term),
        } => format!("waits for {topic}/{partition} by its term {}", term.label()),
        HeldBy::Partition {
            topic,
            partition,
            term: None,
        } => format!("waits for {topic}/{partition}, of which nothing is known yet"),
        HeldBy::Asked => "waits for the greatest delay after the broker was asked".to_owned(),
        HeldBy::Clock => "is not over".to_owned(),
        HeldBy::Writer { writer } => format!("waits for the writer {writer}"),
        HeldBy::Policy { revision } => {
            format!("waits for a worker with policy revision {revision}")
        }
    }
}

fn holder(hold: &Hold, state: &State, own: &[(i64, OwnSummary)]) -> Holder {
    let mut holder = Holder {
        what: held_by(&hold.by),
        partition: None,
        term: None,
        reached_us: hold.reached_us,
        bound: None,
        commit: None,
    };
    match &hold.by {
        HeldBy::Unanchored { topic, partition } => {
            holder.partition = Some(format!("{topic}/{partition}"));
        }
        HeldBy::Partition {
            topic,
            partition,
            term,
        } => {
            holder.partition = Some(format!("{topic}/{partition}"));
            holder.term = term.map(Term::label);
            let known = state.partition(topic, *partition);
            let value = known.and_then(|known| state.view().frontier(known));
            if let Some((known, value)) = known.zip(value) {
                holder.bound = Some(bound(state, &value));
                let rests = |record: &PartitionRecord| rests_on(state, known, &value, record);
                holder.commit = commit_with(own, |summary| {
                    let key = (topic.clone(), *partition);
                    summary.record.partitions.get(&key).is_some_and(rests)
                });
            }
        }
        HeldBy::Asked => {
            holder.bound = Some(Bound {
                field: "finalization.maxDelay",
                value: length(state.policy.bounds.max_delay_us),
            });
            let asked_us = state.asked.as_ref().map(|asked| asked.at_us);
            // The first commit with this answer is the oldest that has it.
            let with = own.iter().rev();
            holder.commit = with
                .filter(|(_, summary)| {
                    summary.record.asked.as_ref().map(|asked| asked.at_us) == asked_us
                })
                .map(commit_ref)
                .next();
        }
        HeldBy::NotAsked
        | HeldBy::NoPartition
        | HeldBy::NoTerm
        | HeldBy::Clock
        | HeldBy::Writer { .. }
        | HeldBy::Policy { .. } => {}
    }
    holder
}

fn commit_with(own: &[(i64, OwnSummary)], is: impl Fn(&OwnSummary) -> bool) -> Option<CommitRef> {
    own.iter().find(|(_, summary)| is(summary)).map(commit_ref)
}

fn commit_ref((snapshot_id, summary): &(i64, OwnSummary)) -> CommitRef {
    CommitRef {
        id: summary.record.commit_id.to_string(),
        at_us: summary.record.committed_at_us,
        snapshot_id: *snapshot_id,
    }
}

/// Whether the least row of a window lies deeper than the lateness: more commits in it, or a better source, would not help.
fn is_deep(state: &State, value: &TermValue) -> bool {
    value.basis_us.saturating_sub(value.value_us) > state.policy.bounds.allowed_lateness_us
}

/// The setting that the value of a term depends on most.
fn bound(state: &State, value: &TermValue) -> Bound {
    let (policy, bounds) = (&state.policy, &state.policy.bounds);
    match value.term {
        Term::Minimum if is_deep(state, value) => Bound {
            field: "finalization.windowCommits",
            value: policy.window_commits.to_string(),
        },
        Term::Percentile if is_deep(state, value) => Bound {
            field: "finalization.quantile",
            value: policy.quantile.map_or("", Quantile::label).to_owned(),
        },
        Term::Resolved => Bound {
            field: "finalization.terms",
            value: "Resolved".to_owned(),
        },
        Term::Minimum | Term::Percentile => Bound {
            field: "finalization.allowedLateness",
            value: length(bounds.allowed_lateness_us),
        },
        Term::Heartbeat | Term::CaughtUp | Term::Clock => Bound {
            field: "finalization.maxDelay",
            value: length(bounds.max_delay_us),
        },
    }
}

/// Whether a commit brought what the value of a term rests on.
fn rests_on(
    state: &State,
    known: &PartitionState,
    value: &TermValue,
    record: &PartitionRecord,
) -> bool {
    match value.term {
        Term::Minimum | Term::Percentile => record.stats.is_some_and(|stats| {
            let rung = state
                .policy
                .quantile
                .filter(|_| value.term == Term::Percentile);
            let low_us = rung.map_or(stats.least_us, |rung| stats.quantile_us(rung));
            if is_deep(state, value) {
                low_us == value.value_us
            } else {
                stats.greatest_us == value.basis_us
            }
        }),
        Term::CaughtUp => {
            record.caught_up_us.is_some() && record.caught_up_us == known.caught_up_us
        }
        Term::Heartbeat => {
            record.heartbeat_us.is_some() && record.heartbeat_us == known.heartbeat_us
        }
        Term::Resolved => record.resolved_us.is_some() && record.resolved_us == known.resolved_us,
        // It rests on no commit's rows.
        Term::Clock => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensor::testing::{Table, minute, policy};

    /// Partition 0 flows until 10:12, partition 1 was read to its end then.
    fn table() -> Table {
        let mut table = Table::anchored(policy(), 2);
        for now in [604, 608, 612] {
            table.commit(now, &[(0, vec![now - 3, now - 1])], &[1]);
        }
        table
    }

    #[test]
    fn least_partition_holds_with_its_bound_its_commit_and_each_way_out() {
        let mut table = table();
        table.commit(672, &[(1, vec![610, 671])], &[]);
        let why = why(&table.record, minute(673));
        let holder = why.held_by.unwrap();
        assert_eq!(
            why.cell.map(|cell| cell.name).as_deref(),
            Some("2026-11-30T10")
        );
        assert_eq!(why.reason, Some(Reason::PartitionBehind));
        assert_eq!(holder.partition.as_deref(), Some("orders/0"));
        assert_eq!(holder.term, Some("minimum"));
        assert_eq!(
            holder.bound.map(|bound| bound.field),
            Some("finalization.windowCommits")
        );
        // The least row of its window, 10:01, came with the commit of 10:04.
        assert_eq!(holder.commit.map(|commit| commit.at_us), Some(minute(604)));
        assert_eq!(why.since_us, Some(minute(612)));
        let ways: Vec<_> = why.release.iter().map(|release| release.term).collect();
        assert_eq!(ways, [Some("minimum"), Some("caught-up")]);
        let first: Vec<&str> = why
            .partitions
            .iter()
            .map(|one| one.partition.as_str())
            .collect();
        assert_eq!(first, ["orders/0", "orders/1"], "the least first");
    }

    /// To a stopped worker no setting helps: it is that which is to be told, and the last thing that was heard of it.
    #[test]
    fn worker_that_has_stopped_is_what_a_person_has_to_see_to() {
        let stopped = why(&table().record, minute(690));
        assert!(asks_for_commit(stopped.reason.unwrap()), "{stopped:?}");
        assert_eq!(stopped.remedy.as_deref(), Some(WITHOUT_COMMITS));
        let told = "The last commit is of 2026-11-30T10:12:00Z, before that could be.";
        assert!(stopped.sentence.ends_with(told), "{}", stopped.sentence);
        // One that runs, and is held by a partition without rows.
        let mut table = table();
        table.commit(672, &[(1, vec![671])], &[]);
        let held = why(&table.record, minute(690));
        assert_eq!(held.remedy.as_deref(), held.reason.map(Reason::remedy));
        assert!(!held.sentence.contains("last commit"), "{}", held.sentence);
    }

    /// A cell that is not over alarms nobody, whoever is behind.
    #[test]
    fn cell_is_simply_open_until_its_end_and_the_delay_have_passed() {
        let table = table();
        assert_eq!(
            why(&table.record, minute(669)).reason,
            Some(Reason::CellOpen)
        );
        assert_ne!(
            why(&table.record, minute(670)).reason,
            Some(Reason::CellOpen)
        );
    }

    /// One ends by itself, the other one needs a person.
    #[test]
    fn rolled_back_table_and_replaced_one_are_told_apart() {
        let mut table = table();
        table.record.lineage.snapshots.remove(0);
        let reason = |table: &Table| why(&table.record, minute(700)).reason;
        assert_eq!(reason(&table), Some(Reason::RolledBack));
        table.record.lineage.snapshots.clear();
        assert_eq!(reason(&table), Some(Reason::TableReplaced));
    }

    #[test]
    fn held_claim_has_a_reason_with_a_remedy() {
        let mut table = table();
        table.record.table_uuid = uuid::Uuid::from_u128(8);
        let why = why(&table.record, minute(700));
        assert_eq!(
            (why.standing, why.reason),
            (Standing::Held, Some(Reason::TableRecreated))
        );
        assert_eq!(why.remedy.as_deref(), Some(Reason::TableRecreated.remedy()));
    }
}
