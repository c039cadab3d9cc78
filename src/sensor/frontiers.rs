//! How far each source partition of a table has got by each admitted term, and what would release a held cell.
//!
//! In: a state as of its commit. Out: values for people and programs. No I/O and no clock.

use serde::Serialize;

use crate::{
    api::quantity::{Instant, iso_option, length},
    watermark::{
        HeldBy, Hold, PartitionState, PartitionStats, Policy, Quantile, State, Term, View, contract,
    },
};

/// One source partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Frontier {
    /// The partition, as `topic/partition`.
    pub partition: String,
    /// The offset of the next record that is not in the table.
    pub next_offset: i64,
    /// A lower bound of the event times that it can still bring; null: unknown, and unknown holds.
    #[serde(rename = "frontier", with = "iso_option")]
    pub frontier_us: Option<i64>,
    /// The term that the frontier is by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'static str>,
    /// Every admitted term.
    pub terms: Vec<TermReport>,
}

/// What one term says of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TermReport {
    /// Which one.
    pub term: &'static str,
    /// Nothing before this can come any more; null: the term has no value.
    #[serde(rename = "value", with = "iso_option")]
    pub value_us: Option<i64>,
    /// What that rests on, or what is missing for a value.
    pub basis: String,
}

/// One way in which a held cell becomes final.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// The term by which it would; none where no term is in question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<&'static str>,
    /// What has to happen.
    pub needs: String,
}

/// All partitions, the least frontier first, an unknown one before all.
#[must_use]
pub fn frontiers(state: &State) -> Vec<Frontier> {
    let view = state.view();
    let mut all: Vec<Frontier> = state
        .partitions()
        .map(|(topic, partition, known)| {
            let frontier = view.frontier(known);
            let terms = Term::ALL.into_iter();
            Frontier {
                partition: format!("{topic}/{partition}"),
                next_offset: known.next_offset,
                frontier_us: frontier.map(|value| value.value_us),
                by: frontier.map(|value| value.term.label()),
                terms: terms
                    .filter(|term| state.policy.terms.contains(term))
                    .map(|term| report(&view, known, term))
                    .collect(),
            }
        })
        .collect();
    all.sort_by_key(|frontier| frontier.frontier_us);
    all
}

fn report(view: &View<'_>, known: &PartitionState, term: Term) -> TermReport {
    let value = view.values(known).find(|value| value.term == term);
    let basis = match value {
        Some(value) => format!("{} {}", basis(term), Instant(value.basis_us)),
        None => missing(view, known, term),
    };
    TermReport {
        term: term.label(),
        value_us: value.map(|value| value.value_us),
        basis,
    }
}

/// What the basis of a term is.
fn basis(term: Term) -> &'static str {
    match term {
        Term::Resolved => "promised up to",
        Term::Minimum | Term::Percentile => "rows up to",
        Term::Heartbeat => "heartbeat of",
        Term::CaughtUp => "asked at",
        Term::Clock => "committed at",
    }
}

/// Why a term has no value.
fn missing(view: &View<'_>, known: &PartitionState, term: Term) -> String {
    match term {
        Term::Resolved => "no promise of the source was read".to_owned(),
        Term::Minimum | Term::Percentile => {
            let commits = commits(known);
            let needed = view.policy.window_commits;
            if commits < needed {
                format!("{commits} of {needed} commits with rows on record")
            } else {
                "older commits of the window are no longer on record".to_owned()
            }
        }
        Term::CaughtUp if view.snapshot => "an initial snapshot is being read".to_owned(),
        Term::CaughtUp => "never read to its end".to_owned(),
        Term::Heartbeat => "no heartbeat was read".to_owned(),
        Term::Clock => "no commit".to_owned(),
    }
}

fn commits(known: &PartitionState) -> u32 {
    let entries = known.window.entries.iter();
    entries.fold(0, |sum, entry| sum.saturating_add(entry.commits))
}

/// Each way in which the cell that ends at `before_us` becomes final.
#[must_use]
pub(super) fn release(hold: &Hold, state: &State, before_us: i64) -> Vec<Release> {
    let due_us = before_us.saturating_add(state.policy.bounds.max_delay_us);
    let one = |needs: String| vec![Release { term: None, needs }];
    match &hold.by {
        HeldBy::NotAsked => one(format!(
            "the broker names its partitions, asked at or after {}",
            Instant(due_us)
        )),
        HeldBy::Asked => {
            let last = state.asked.as_ref().map(|asked| asked.at_us);
            let last = last.map_or_else(String::new, |us| format!(" (last {})", Instant(us)));
            one(format!(
                "the broker names its partitions, asked at or after {}{last}",
                Instant(due_us)
            ))
        }
        HeldBy::NoPartition => one("a partition in one of the topics".to_owned()),
        HeldBy::NoTerm => one("a term in finalization.terms".to_owned()),
        HeldBy::Unanchored { .. } => one("a commit that anchors the partition".to_owned()),
        HeldBy::Writer { writer } => one(format!(
            "a commit of writer {writer} whose own claim has reached {}",
            Instant(before_us)
        )),
        HeldBy::Clock => one(format!("a commit at or after {}", Instant(before_us))),
        HeldBy::Policy { revision } => one(format!(
            "a commit by a worker with policy revision {revision}"
        )),
        HeldBy::Partition {
            topic, partition, ..
        } => {
            let Some(known) = state.partition(topic, *partition) else {
                return Vec::new();
            };
            let terms = Term::ALL.into_iter();
            terms
                .filter(|term| state.policy.terms.contains(term))
                .map(|term| Release {
                    term: Some(term.label()),
                    needs: needs(term, state, known, before_us),
                })
                .collect()
        }
    }
}

/// What has to happen for a term of a partition to reach an instant.
fn needs(term: Term, state: &State, known: &PartitionState, before_us: i64) -> String {
    let policy = &state.policy;
    let due_us = before_us.saturating_add(policy.bounds.max_delay_us);
    let last =
        |us: Option<i64>| us.map_or_else(String::new, |us| format!(" (last {})", Instant(us)));
    match term {
        Term::Resolved => {
            let last = last(known.resolved_us);
            format!(
                "a promise of the source up to {} or later{last}",
                Instant(before_us)
            )
        }
        Term::Minimum => window_needs(policy, known, before_us, None),
        Term::Percentile => window_needs(policy, known, before_us, policy.quantile),
        Term::Heartbeat => {
            let last = last(known.heartbeat_us);
            format!(
                "a heartbeat of {} or later, and the partition read to its end after it{last}",
                Instant(due_us)
            )
        }
        Term::Clock => format!("a commit at or after {}", Instant(due_us)),
        Term::CaughtUp if state.view().snapshot => {
            "the end of the initial snapshot, then the partition read to its end".to_owned()
        }
        Term::CaughtUp => {
            let last = last(known.caught_up_us);
            format!(
                "the partition read to its end as asked at or after {}{last}",
                Instant(due_us)
            )
        }
    }
}

fn window_needs(
    policy: &Policy,
    known: &PartitionState,
    before_us: i64,
    quantile: Option<Quantile>,
) -> String {
    let lateness_us = policy.bounds.allowed_lateness_us;
    let entries = || known.window.entries.iter();
    let low = |stats: &PartitionStats| match quantile {
        Some(rung) => stats.quantile_us(rung),
        None => stats.least_us,
    };
    let behind = entries().take_while(|entry| low(&entry.stats) >= before_us);
    let there = behind.fold(0_u32, |sum, entry| sum.saturating_add(entry.commits));
    let there = there.min(policy.window_commits);
    let rows = match quantile {
        None => "rows only".to_owned(),
        Some(rung) => format!("all but a share of {} of their rows", rung.label()),
    };
    let mut text = format!(
        "{} commits in a row with {rows} from {} on ({there} so far)",
        policy.window_commits,
        Instant(before_us)
    );
    if policy.window_duration_us > 0 {
        text = format!(
            "{text}, and every one of the last {}",
            length(policy.window_duration_us)
        );
    }
    if lateness_us > 0 {
        let greatest = entries().map(|entry| entry.stats.greatest_us).max();
        let greatest = greatest.map_or_else(String::new, |us| format!(" (so far {})", Instant(us)));
        text = format!(
            "{text}, and a row at or after {}{greatest}",
            Instant(before_us.saturating_add(lateness_us))
        );
    }
    text
}

/// The settings of a policy in words.
#[must_use]
pub(super) fn settings(policy: &Policy) -> String {
    let terms: Vec<&str> = policy.terms.iter().map(|term| term.label()).collect();
    let window = match policy.window_duration_us {
        0 => policy.window_commits.to_string(),
        us => format!("{} and {}", policy.window_commits, length(us)),
    };
    format!(
        "{}, window={window}, terms={}",
        contract::bounds_text(&policy.bounds).replace(',', ", "),
        terms.join("+")
    )
}
