//! When each cell of a table became final, and what came for it afterwards.
//!
//! In: the commits that the table still has on record. Out: a line a cell, for people and programs.
//!
//! What has expired is said to be so: a cell that was final before the oldest commit on record has no instant here, and rows
//! that came late for it before that are not counted.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write,
};

use serde::Serialize;
use uuid::Uuid;

use super::{
    TableRecord,
    layout::{self, Align},
};
use crate::{
    api::quantity::{Instant, iso, iso_option, length},
    watermark::{CompleteFrom, Grid, Kept, KeptCommit},
};

/// Lines at most, the newest: a table of one-second cells has 86,400 a day.
pub const MAX_CELLS: usize = 10_000;

/// What is known of a table's cells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// The table.
    pub table: String,
    /// How many commits are on record.
    pub commits: usize,
    /// The oldest of them; null: none is.
    #[serde(rename = "since", with = "iso_option")]
    pub since_us: Option<i64>,
    /// Whether there were commits before it.
    pub cut: bool,
    /// Cells that were left out because there are too many.
    pub left_out: usize,
    /// The cells, in order.
    pub cells: Vec<Cell>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// Its name.
    pub cell: String,
    /// Its first instant.
    #[serde(rename = "from", with = "iso")]
    pub from_us: i64,
    /// The first instant after it.
    #[serde(rename = "before", with = "iso")]
    pub before_us: i64,
    /// What it is now.
    pub state: CellState,
    /// When it became final: its commit's time by the worker's clock; null: before the oldest commit on record, or not at all.
    #[serde(rename = "finalAt", with = "iso_option")]
    pub final_at_us: Option<i64>,
    /// How long that was after its end, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<i64>,
    /// The terms that it rests on.
    pub evidence: Vec<&'static str>,
    /// How much disorder beyond the bounds that claim survived, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin_ms: Option<i64>,
    /// The commit that made it final; after a new epoch the one that did so again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_id: Option<String>,
    /// Its snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<i64>,
    /// The epoch of that claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Rows that came after it was final, in the commits on record.
    pub late_rows: u64,
    /// Commits that brought such rows: each is a new revision of the cell.
    pub revisions: u64,
    /// When a new epoch took it back, each time.
    #[serde(serialize_with = "instants")]
    pub reopened_at: Vec<i64>,
}

/// What a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum CellState {
    /// The claim has not reached its end.
    Open,
    /// It has.
    Final,
    /// It had, and a new epoch took it back.
    Reopened,
    /// Its rows, or some of them, were lost at the source, or it was retracted.
    Gap,
    /// Rows came late, and by its owner's choice it does not count until the claim next rises.
    Withheld,
    /// It lies before complete-from: nobody says that all of its rows were read.
    Incomplete,
}

fn instants<S: serde::Serializer>(all: &[i64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(all.iter().map(|us| Instant(*us).to_string()))
}

/// Which cells to list: those that meet `[from, before)`; all where an end is left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    /// The first instant.
    pub from_us: Option<i64>,
    /// The first instant after it.
    pub before_us: Option<i64>,
}

/// How a cell has fared, as far as the commits on record tell.
#[derive(Debug, Clone, Default)]
struct Course {
    /// The commit that made it final, by number; none: one before the record.
    by: Option<usize>,
    is_final: bool,
    reopened_at: Vec<i64>,
    late_rows: u64,
    revisions: u64,
}

/// The history of a table from its commits on record.
#[must_use]
pub fn history(record: &TableRecord, span: Span) -> History {
    let (table, kept) = (record.table.as_str(), Kept::of_all(&record.view()));
    let mut history = History {
        table: table.to_owned(),
        commits: kept.as_ref().map_or(0, |kept| kept.commits.len()),
        since_us: kept
            .as_ref()
            .map(|kept| kept.oldest().record.committed_at_us),
        cut: kept.as_ref().is_some_and(|kept| kept.cut),
        left_out: 0,
        cells: Vec::new(),
    };
    let Some(kept) = &kept else {
        return history;
    };
    let grid = kept.newest().record.policy.grid;
    let mut courses = courses(kept, grid);
    courses.retain(|from_us, _| {
        let end_us = grid.end(*from_us);
        span.from_us.is_none_or(|us| us < end_us) && span.before_us.is_none_or(|us| *from_us < us)
    });
    history.left_out = courses.len().saturating_sub(MAX_CELLS);
    let margins = margins_us(record, kept);
    history.cells = courses
        .into_iter()
        .skip(history.left_out)
        .map(|(from_us, course)| cell(kept, &margins, (grid, from_us), course))
        .collect();
    history
}

/// How much disorder the claim of each commit survived: the least of what that of each writer did that is not drained, as of its newest
/// commit then. Unknown while one of them has none on record.
fn margins_us(record: &TableRecord, all: &Kept) -> Vec<Option<i64>> {
    let view = record.view();
    let mut writers: BTreeSet<&str> = record.writer_names().collect();
    writers.extend(all.commits.iter().map(|one| one.summary.writer.as_str()));
    let mut own: HashMap<Uuid, Option<i64>> = HashMap::new();
    for kept in writers
        .iter()
        .filter_map(|name| Kept::of(&view, Some(name)))
    {
        let commits = kept.commits.iter();
        let ids = commits.map(|commit| commit.summary.record.commit_id);
        own.extend(ids.zip(kept.margins_us()));
    }
    let unknown = writers.into_iter().map(|name| (name, (false, None)));
    let mut newest: BTreeMap<&str, (bool, Option<i64>)> = unknown.filter(|_| all.cut).collect();
    let of = |commit: &'_ KeptCommit| commit.summary.record.commit_id;
    let mut margins = Vec::with_capacity(all.commits.len());
    for commit in &all.commits {
        let margin_us = own.get(&of(commit)).copied().flatten();
        let drained = commit.summary.published.drained;
        newest.insert(&commit.summary.writer, (drained, margin_us));
        let held = newest.values().filter(|(drained, _)| !drained);
        margins.push(held.map(|(_, margin_us)| *margin_us).min().flatten());
    }
    margins
}

/// Follows the claim from commit to commit: the cells it passes, those that a new epoch takes back, the rows that come late.
fn courses(kept: &Kept, grid: Grid) -> BTreeMap<i64, Course> {
    let mut courses: BTreeMap<i64, Course> = BTreeMap::new();
    let mut claim_us: Option<i64> = None;
    for (at, commit) in kept.commits.iter().enumerate() {
        let published = &commit.summary.of_table;
        late(&mut courses, commit, grid);
        if let Some(next_us) = published.finalized_before_us {
            let known_us = claim_us.or_else(|| begins_us(commit, kept.cut && at == 0));
            // Without a beginning nothing but the newest cell is known to be there.
            let from_us = known_us
                .unwrap_or(next_us - 1)
                .max(lowest_us(grid, next_us));
            let mut cell_us = grid.floor(from_us);
            while cell_us < next_us {
                let course = courses.entry(cell_us).or_default();
                if !course.is_final {
                    course.is_final = true;
                    course.by = Some(at);
                }
                cell_us = grid.end(cell_us);
            }
        }
        for (_, course) in courses.range_mut(published.finalized_before_us.unwrap_or(i64::MIN)..) {
            if course.is_final {
                course.is_final = false;
                course
                    .reopened_at
                    .push(commit.summary.record.committed_at_us);
            }
        }
        claim_us = published.finalized_before_us;
    }
    if let Some(claim_us) = claim_us {
        courses.entry(grid.floor(claim_us)).or_default();
    }
    courses
}

/// Where the cells of a first claim begin. Those of the oldest commit of a cut record became final somewhere before it.
fn begins_us(commit: &KeptCommit, before_the_record: bool) -> Option<i64> {
    let published = &commit.summary.of_table;
    if before_the_record {
        return published.finalized_before_us;
    }
    match published.complete_from {
        CompleteFrom::From(us) => Some(us),
        CompleteFrom::Unbounded => commit
            .times
            .as_ref()
            .map(crate::watermark::Sketch::least_us),
    }
}

/// No claim lists more cells than are shown.
fn lowest_us(grid: Grid, claim_us: i64) -> i64 {
    let most = i64::try_from(MAX_CELLS).unwrap_or(i64::MAX);
    claim_us.saturating_sub(grid.cell_us().saturating_mul(most))
}

fn late(courses: &mut BTreeMap<i64, Course>, commit: &KeptCommit, grid: Grid) {
    for (name, rows) in commit.late.cells.iter().chain(&commit.late.overflow) {
        let Some(from_us) = start_of(grid, name) else {
            continue;
        };
        let course = courses
            .entry(grid.floor(from_us))
            .or_insert_with(|| Course {
                is_final: true,
                ..Course::default()
            });
        course.late_rows += rows;
        course.revisions += 1;
    }
}

/// The first instant of a cell by its name: in UTC, or within a day of it in a zone.
fn start_of(grid: Grid, name: &str) -> Option<i64> {
    const HALF_DAY_US: i64 = 43_200_000_000;
    let start = match name.len() {
        10 => format!("{name}T00:00:00Z"),
        13 => format!("{name}:00:00Z"),
        16 => format!("{name}:00Z"),
        _ => format!("{name}Z"),
    };
    let utc_us = crate::api::quantity::parse_instant_us(&start)?;
    let near = [0, 1, -1, 2].map(|half| utc_us.saturating_add(half * HALF_DAY_US));
    let named = near.into_iter().find(|us| grid.name(*us) == name);
    // A cell of another grid than the present one: where it would lie in UTC.
    Some(grid.floor(named.unwrap_or(utc_us)))
}

fn cell(
    kept: &Kept,
    margins: &[Option<i64>],
    (grid, from_us): (Grid, i64),
    course: Course,
) -> Cell {
    let before_us = grid.end(from_us);
    let by = course.by.map(|at| (&kept.commits[at], margins[at]));
    let is_before = match kept.newest().of_table.complete_from {
        CompleteFrom::Unbounded => false,
        CompleteFrom::From(us) => from_us < us,
    };
    let claim = kept.newest().table_claim().claim;
    let in_gap = claim.gaps.within(from_us, before_us).is_some();
    let withheld = claim.amended.withheld();
    let is_withheld = withheld.within(from_us, before_us).is_some();
    let state = match (course.is_final, course.reopened_at.is_empty()) {
        (true, _) if is_before => CellState::Incomplete,
        (true, _) if in_gap => CellState::Gap,
        (true, _) if is_withheld => CellState::Withheld,
        (true, _) => CellState::Final,
        (false, true) => CellState::Open,
        (false, false) => CellState::Reopened,
    };
    let final_at_us = by.map(|(commit, _)| commit.summary.record.committed_at_us);
    let published = by.map(|(commit, _)| &commit.summary.of_table);
    Cell {
        cell: grid.name(from_us),
        from_us,
        before_us,
        state,
        final_at_us,
        delay_s: final_at_us.map(|us| us.saturating_sub(before_us).div_euclid(1_000_000)),
        evidence: published
            .iter()
            .flat_map(|published| published.evidence.iter().map(|term| term.label()))
            .collect(),
        margin_ms: by.and_then(|(_, margin)| Some(margin?.div_euclid(1000))),
        commit_id: by.map(|(commit, _)| commit.summary.record.commit_id.to_string()),
        snapshot_id: by.map(|(commit, _)| commit.snapshot_id),
        epoch: published.map(|published| published.epoch),
        late_rows: course.late_rows,
        revisions: course.revisions,
        reopened_at: course.reopened_at,
    }
}

/// A history for people.
#[must_use]
pub fn text(history: &History, width: usize) -> String {
    let mut text = layout::paragraph(&heading(history), width);
    if history.cells.is_empty() {
        return text;
    }
    let columns = [
        ("CELL", Align::Left),
        ("", Align::Left),
        ("FINAL AT", Align::Left),
        ("AFTER ITS END", Align::Right),
        ("EVIDENCE", Align::Left),
        ("MARGIN", Align::Right),
        ("LATE", Align::Right),
        ("REVISIONS", Align::Right),
        ("TAKEN BACK", Align::Left),
    ];
    let rows: Vec<Vec<String>> = history.cells.iter().map(row).collect();
    text.push('\n');
    text + &layout::table(&columns, &rows)
}

fn heading(history: &History) -> String {
    let table = &history.table;
    let Some(since_us) = history.since_us else {
        return format!("No commit of Tidemark that can be read is on record for {table}.");
    };
    let commits = if history.commits == 1 {
        "commit"
    } else {
        "commits"
    };
    let mut text = format!(
        "{} {commits} of {table} on record, the oldest of {}",
        history.commits,
        Instant(since_us)
    );
    text += if history.cut {
        "; those before it have expired, and what they made final has no instant here."
    } else {
        ", the first of all."
    };
    if history.cells.is_empty() {
        text += " No cell in question was final or late since.";
    }
    if history.left_out > 0 {
        let _ = write!(text, " {} earlier cells are left out.", history.left_out);
    }
    text
}

fn row(cell: &Cell) -> Vec<String> {
    let state: &'static str = cell.state.into();
    let some = |rows: u64| {
        if rows > 0 {
            rows.to_string()
        } else {
            String::new()
        }
    };
    let final_at = match (cell.final_at_us, cell.state) {
        (Some(us), _) => Instant(us).to_string(),
        (None, CellState::Open) => String::new(),
        (None, _) => "before the record".to_owned(),
    };
    let reopened: Vec<String> = cell
        .reopened_at
        .iter()
        .map(|us| Instant(*us).to_string())
        .collect();
    vec![
        cell.cell.clone(),
        state.to_owned(),
        final_at,
        cell.delay_s
            .map_or_else(String::new, |s| length(s.saturating_mul(1_000_000))),
        cell.evidence.join(","),
        cell.margin_ms.map_or_else(String::new, |ms| {
            length(ms.saturating_mul(1000) / 1_000_000 * 1_000_000)
        }),
        some(cell.late_rows),
        some(cell.revisions),
        reopened.join(" "),
    ]
}

/// A history as comma-separated values, a header first. No value needs quotes: lists are separated by blanks.
#[must_use]
pub fn csv(history: &History) -> String {
    let mut text = String::from(
        "cell,from,before,state,final_at,delay_s,evidence,margin_ms,late_rows,revisions,epoch,reopened_at,commit_id,snapshot_id\n",
    );
    for cell in &history.cells {
        let state: &'static str = cell.state.into();
        let reopened: Vec<String> = cell
            .reopened_at
            .iter()
            .map(|us| Instant(*us).to_string())
            .collect();
        let values = [
            cell.cell.clone(),
            Instant(cell.from_us).to_string(),
            Instant(cell.before_us).to_string(),
            state.to_owned(),
            shown(cell.final_at_us.map(Instant)),
            shown(cell.delay_s),
            cell.evidence.join(" "),
            shown(cell.margin_ms),
            cell.late_rows.to_string(),
            cell.revisions.to_string(),
            shown(cell.epoch),
            reopened.join(" "),
            shown(cell.commit_id.as_deref()),
            shown(cell.snapshot_id),
        ];
        let _ = writeln!(text, "{}", values.join(","));
    }
    text
}

fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Table, minute, policy};
    use super::*;

    /// Two partitions; 09 is complete and final at 10:12, 10 at 11:12, and a row of 10:50 comes at 11:20.
    fn table() -> Table {
        let mut table = Table::anchored(policy(), 2);
        for now in [604, 608, 612] {
            table.commit(now, &[(0, vec![now - 3, now - 1])], &[1]);
        }
        table.commit(672, &[(0, vec![661, 670])], &[0, 1]);
        table.commit(680, &[(0, vec![650, 679])], &[]);
        table
    }

    fn lines(history: &History) -> Vec<String> {
        csv(history)
            .lines()
            .skip(1)
            .map(|line| line.split(',').take(12).collect::<Vec<_>>().join(","))
            .collect()
    }

    #[test]
    fn cell_has_the_commit_that_made_it_final_and_what_came_late() {
        let table = table();
        let history = history(&table.record, Span::default());
        assert_eq!((history.commits, history.cut), (6, false));
        let expected = [
            "2026-11-30T10,2026-11-30T10:00:00Z,2026-11-30T11:00:00Z,final,2026-11-30T11:12:00Z,720,caught-up,720000,1,1,1,",
            "2026-11-30T11,2026-11-30T11:00:00Z,2026-11-30T12:00:00Z,open,,,,,0,0,,",
        ];
        assert_eq!(lines(&history), expected);
        let text = text(&history, 100);
        assert!(text.contains("the first of all"), "{text}");
    }

    /// Nothing may look as if it had never been final only because its commit has expired.
    #[test]
    fn cell_that_was_final_before_the_record_has_no_instant() {
        let mut table = table();
        table.expire(1);
        let history = history(&table.record, Span::default());
        assert!(history.cut);
        let expected = [
            "2026-11-30T10,2026-11-30T10:00:00Z,2026-11-30T11:00:00Z,final,,,,,1,1,,",
            "2026-11-30T11,2026-11-30T11:00:00Z,2026-11-30T12:00:00Z,open,,,,,0,0,,",
        ];
        assert_eq!(lines(&history), expected);
        let text = text(&history, 100);
        assert!(
            text.contains("before the record") && text.contains("have expired"),
            "{text}"
        );
    }

    #[test]
    fn span_leaves_out_the_cells_beside_it() {
        let table = table();
        let of = |from: Option<i64>, before: Option<i64>| {
            let span = Span {
                from_us: from.map(minute),
                before_us: before.map(minute),
            };
            let history = history(&table.record, span);
            history
                .cells
                .into_iter()
                .map(|cell| cell.cell)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(Some(660), None), ["2026-11-30T11"]);
        assert_eq!(of(None, Some(660)), ["2026-11-30T10"]);
        assert_eq!(of(Some(659), Some(661)), ["2026-11-30T10", "2026-11-30T11"]);
    }

    /// Nobody is to read the margin of one region for that of the table.
    #[test]
    fn the_margin_of_a_cell_is_the_least_of_all_writers() {
        let mut table = Table::anchored(policy(), 1);
        table.commit(605, &[(0, vec![600])], &[]);
        table.write_as("shop.west");
        table.begin(610, 1);
        // West has rows up to 12:18 for a claim of 12:00, and east is asked at 12:55.
        for hour in [0, 60] {
            for (now, at) in [(670, 668), (675, 672), (680, 678)] {
                table.commit(hour + now, &[(0, vec![hour + at])], &[]);
            }
            table.write_as("shop.orders");
            table.commit(hour + 715, &[], &[0]);
            table.write_as("shop.west");
        }
        let history = history(&table.record, Span::default());
        let eleven = history
            .cells
            .iter()
            .find(|cell| cell.cell == "2026-11-30T11");
        let eleven = eleven.expect("the hour from which both were read");
        assert_eq!(eleven.final_at_us, Some(minute(775)), "by east");
        assert_eq!(eleven.margin_ms, Some(18 * 60_000), "as far as west goes");
    }

    #[test]
    fn names_of_cells_lead_back_to_their_beginnings() {
        let begins =
            |grid: Grid, name: &str| start_of(grid, name).map(|us| Instant(us).to_string());
        for (seconds, name, begin) in [
            (86_400, "2026-11-30", "2026-11-30T00:00:00Z"),
            (3_600, "2026-11-30T09", "2026-11-30T09:00:00Z"),
            (900, "2026-11-30T09:45", "2026-11-30T09:45:00Z"),
            (5, "2026-11-30T09:45:05", "2026-11-30T09:45:05Z"),
        ] {
            let grid = Grid::new(seconds * 1_000_000).unwrap();
            assert_eq!(begins(grid, name).as_deref(), Some(begin));
        }
        for (zone, begin) in [
            ("Europe/Berlin", "2026-11-29T23:00:00Z"),
            ("America/Los_Angeles", "2026-11-30T08:00:00Z"),
            ("Pacific/Kiritimati", "2026-11-29T10:00:00Z"),
        ] {
            let grid = Grid::in_zone(86_400_000_000, Some(zone)).unwrap();
            assert_eq!(begins(grid, "2026-11-30").as_deref(), Some(begin), "{zone}");
        }
        assert_eq!(begins(policy().grid, "soon"), None);
    }
}
