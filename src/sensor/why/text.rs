//! An explanation as a sentence, named values and a table for people.

use std::fmt::Write;

use super::Why;
use crate::{
    api::quantity::{Instant, length},
    sensor::{
        foreign,
        layout::{self, Align},
    },
};

/// How an explanation is laid out for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Partitions shown at most.
    pub partitions: usize,
    /// Characters a line.
    pub width: usize,
    /// The clock, for how long ago things were.
    pub now_us: i64,
}

/// An explanation for people.
#[must_use]
pub fn text(why: &Why, layout: &Layout) -> String {
    let mut text = layout::paragraph(&why.sentence, layout.width);
    let ago = |us: i64| match layout.now_us.saturating_sub(us) {
        ago if ago >= 0 => format!("{} ({} ago)", Instant(us), length(ago - ago % 1_000_000)),
        _ => Instant(us).to_string(),
    };
    let mut facts: Vec<(&str, String)> = Vec::new();
    if let Some(claim_us) = why.finalized_before_us {
        facts.push(("final before", Instant(claim_us).to_string()));
    }
    if let Some(reason) = why.reason {
        let meaning = why.meaning.unwrap_or_default();
        facts.push(("reason", format!("{reason}: {meaning}")));
    }
    if let Some(holder) = &why.held_by {
        let bound = holder.bound.as_ref();
        facts.extend(bound.map(|bound| ("bound", format!("{} {}", bound.field, bound.value))));
        let commit = holder.commit.as_ref();
        facts.extend(commit.map(|commit| {
            let (id, snapshot) = (&commit.id, commit.snapshot_id);
            (
                "rests on",
                format!("commit {id}, snapshot {snapshot}, {}", ago(commit.at_us)),
            )
        }));
    }
    facts.extend(why.since_us.map(|us| ("since", ago(us))));
    for (at, release) in why.release.iter().enumerate() {
        let or = if at > 0 { "or " } else { "" };
        let by = release
            .term
            .map_or_else(String::new, |term| format!("{term}: "));
        facts.push(("released by", format!("{or}{by}{}", release.needs)));
    }
    facts.extend(why.remedy.clone().map(|remedy| ("what to do", remedy)));
    if let Some(as_of) = &why.as_of {
        let (id, writer, worker) = (&as_of.commit_id, &as_of.writer, &as_of.worker);
        let at = ago(as_of.at_us);
        facts.push((
            "as of",
            format!("commit {id} of writer {writer} by worker {worker}, {at}"),
        ));
        let revision = as_of.policy_revision;
        facts.push(("policy", format!("revision {revision}: {}", as_of.policy)));
    }
    if !facts.is_empty() {
        text.push('\n');
        text += &layout::facts(&facts, layout.width);
    }
    text + &partitions(why, layout.partitions) + &foreign::text(&why.foreign, layout.width)
}

/// The least frontiers, a line for each term.
fn partitions(why: &Why, most: usize) -> String {
    let mut rows = Vec::new();
    for frontier in why.partitions.iter().take(most) {
        for (at, term) in frontier.terms.iter().enumerate() {
            let name = if at == 0 {
                frontier.partition.as_str()
            } else {
                ""
            };
            let mark = if frontier.by == Some(term.term) {
                "*"
            } else {
                ""
            };
            let value = term
                .value_us
                .map_or_else(|| "unknown".to_owned(), |us| Instant(us).to_string());
            rows.push(
                [name, mark, term.term, &value, &term.basis]
                    .map(str::to_owned)
                    .to_vec(),
            );
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let columns = ["PARTITION", "", "TERM", "REACHES", "RESTS ON"].map(|name| (name, Align::Left));
    let mut text = format!("\n{}", layout::table(&columns, &rows));
    let left = why.partitions.len().saturating_sub(most);
    if let (Some(next), 1..) = (why.partitions.get(most), left) {
        let from = next.frontier_us.map_or_else(
            || "unknown".to_owned(),
            |us| format!("at or after {}", Instant(us)),
        );
        let them = if left == 1 { "partition" } else { "partitions" };
        let _ = writeln!(text, "  {left} more {them}, {from}");
    }
    text
}
