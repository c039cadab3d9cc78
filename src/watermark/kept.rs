//! The commits that the table still has on record, oldest first, and what they published.
//!
//! In: a table's lineage. Out: each commit's summary with its late rows, its digest, and the margin of its claim, which no summary
//! names: it is worked out from the records, as far as they reach.
//!
//! What has expired is not guessed at: a record that is cut says so, and a margin that rests on what is gone is unknown.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::contract::{EVENT_TIME_DIGEST, LATE, Offsets, OwnSummary, RECORDS, read_summary};
use super::digest::Sketch;
use super::frontier::{Policy, TopicState};
use super::lineage::TableView;
use super::rebuild::fold;
use super::state::{Identity, Record, State, unknown};

/// The commits on record.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Oldest first; at least one.
    pub commits: Vec<KeptCommit>,
    /// Whether there were more before them.
    pub cut: bool,
}

/// One commit on record.
#[derive(Clone, Debug)]
pub struct KeptCommit {
    /// Its snapshot.
    pub snapshot_id: i64,
    /// What it says.
    pub summary: OwnSummary,
    /// Rows that it wrote.
    pub rows: u64,
    /// Rows of it below the claim of its base.
    pub late: LateRows,
    /// The event times of its rows with a say.
    pub times: Option<Sketch>,
}

/// Late rows of a commit, by the names of their cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LateRows {
    /// Cell and rows.
    pub cells: Vec<(String, u64)>,
    /// What the list could not hold: the lowest cell of it, and its rows.
    pub overflow: Option<(String, u64)>,
}

impl LateRows {
    /// All of them.
    #[must_use]
    pub fn rows(&self) -> u64 {
        let all = self.cells.iter().chain(&self.overflow);
        all.map(|(_, rows)| rows).sum()
    }
}

impl Kept {
    /// The commits of one writer, by default of the one that committed last; `None` where no commit of it can be read.
    #[must_use]
    pub fn of(table: &TableView<'_>, writer: Option<&str>) -> Option<Kept> {
        let mut kept = Kept::of_all(table)?;
        let newest = kept.newest().writer.clone();
        let writer = writer.unwrap_or(&newest);
        kept.commits
            .retain(|commit| commit.summary.writer == writer);
        (!kept.commits.is_empty()).then_some(kept)
    }

    /// The commits of all writers: what the table claimed, not what follows from them. `None` where none can be read.
    #[must_use]
    pub fn of_all(table: &TableView<'_>) -> Option<Kept> {
        let mut commits: Vec<KeptCommit> = Vec::new();
        let mut cut = table.lineage.broken;
        // A copy that took our names along is no commit of ours.
        for snapshot in table.lineage.snapshots.iter().filter(|one| one.is_own()) {
            match read_summary(&snapshot.summary) {
                Ok(None) => {}
                Ok(Some(summary)) => {
                    commits.push(kept(snapshot.snapshot_id, summary, &snapshot.summary));
                }
                Err(_) => {
                    cut = true;
                    break;
                }
            }
        }
        commits.reverse();
        (!commits.is_empty()).then_some(Kept { commits, cut })
    }

    /// The oldest commit on record.
    #[must_use]
    pub fn oldest(&self) -> &OwnSummary {
        &self.commits[0].summary
    }

    /// The newest commit on record.
    #[must_use]
    pub fn newest(&self) -> &OwnSummary {
        &self.commits[self.commits.len() - 1].summary
    }

    /// How much disorder the claim of each commit survived; `None` without a claim or where the record does not reach.
    #[must_use]
    pub fn margins_us(&self) -> Vec<Option<i64>> {
        let mut state = self.before(&self.oldest().record.policy);
        let margin = |commit: &KeptCommit| {
            self.step(&mut state, &commit.summary.record, &commit.summary.offsets);
            state.published = commit.summary.published.clone();
            state.claim().margin_us
        };
        self.commits.iter().map(margin).collect()
    }

    /// The state as of the newest commit, as far as the record reaches.
    #[must_use]
    pub fn state(&self) -> State {
        let summaries: Vec<OwnSummary> = self
            .commits
            .iter()
            .map(|commit| commit.summary.clone())
            .collect();
        fold(None, &summaries, self.cut)
    }

    /// The state before the oldest commit.
    pub(super) fn before(&self, policy: &Policy) -> State {
        let oldest = self.oldest();
        let identity = Identity {
            writer: oldest.writer.clone(),
            cluster_id: oldest.cluster_id.clone(),
            installation: oldest.installation.clone(),
            table_uuid: oldest.table_uuid,
            table_ref: oldest.table_ref.clone(),
        };
        let record = &oldest.record;
        let began_us = record.committed_at_us;
        State::new(identity, &record.subscription, policy.clone(), began_us)
    }

    /// Takes the step of one commit, all but what it publishes. Partitions of which nothing is on record are unknown.
    pub(super) fn step(&self, state: &mut State, record: &Record, offsets: &Offsets) {
        let oldest_us = self.oldest().record.committed_at_us;
        if record.begins {
            *state = self.before(&record.policy);
        }
        let began = state.is_new() && record.begins;
        let cut_us = (self.cut && !began).then_some(oldest_us);
        state.apply(record, cut_us);
        for (topic, partition) in offsets.next.keys() {
            let topic: &mut TopicState = state.topics.entry(topic.clone()).or_default();
            let partitions = &mut topic.partitions;
            partitions
                .entry(*partition)
                .or_insert_with(|| unknown(cut_us));
        }
    }
}

fn kept(snapshot_id: i64, own: OwnSummary, summary: &HashMap<String, String>) -> KeptCommit {
    let rows = summary.get(RECORDS).and_then(|text| text.parse().ok());
    KeptCommit {
        snapshot_id,
        summary: own,
        rows: rows.unwrap_or_default(),
        late: summary
            .get(LATE)
            .map_or_else(LateRows::default, |text| late(text)),
        times: summary.get(EVENT_TIME_DIGEST).and_then(|text| {
            let bytes = STANDARD.decode(text).ok()?;
            Sketch::decode(&bytes).ok()
        }),
    }
}

fn late(text: &str) -> LateRows {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let entry = |value: &Value| {
        let name = value.get(0)?.as_str()?.to_owned();
        Some((name, value.get(1)?.as_u64()?))
    };
    let cells = value["cells"].as_array().into_iter().flatten();
    LateRows {
        cells: cells.filter_map(entry).collect(),
        overflow: entry(&value["overflow"]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract::MARGIN_MS;
    use super::super::testing::{Table, at, news};
    use super::*;

    /// Two partitions; the claim rises to 10:00, then to 11:00, then a row of 10:50 comes.
    fn table() -> Table {
        let mut table = Table::anchored("09:00", 2);
        table.commit(
            news("10:20")
                .rows(0, 0, &["10:10", "10:15"])
                .asked("10:19", 2),
        );
        table.commit(news("10:21").rows(1, 0, &["10:12", "10:16"]));
        table.commit(news("10:40").rows(0, 2, &["10:30", "10:39"]));
        table.commit(news("10:41").rows(1, 2, &["10:33", "10:36"]));
        table.commit(
            news("11:12")
                .rows(0, 4, &["11:06"])
                .end("11:12", 5)
                .asked("11:12", 2),
        );
        table.commit(news("11:12").rows(1, 4, &[]).end("11:12", 4));
        table.commit(news("11:20").rows(0, 5, &["10:50", "11:19"]));
        table
    }

    #[test]
    fn commits_are_oldest_first_with_what_was_late() {
        let table = table();
        let kept = Kept::of(&table.view(), None).unwrap();
        assert!(!kept.cut);
        let claims = kept
            .commits
            .iter()
            .map(|commit| commit.summary.published.finalized_before_us);
        let expected = [
            None,
            None,
            None,
            None,
            Some("10:00"),
            Some("10:00"),
            Some("11:00"),
            Some("11:00"),
        ];
        assert_eq!(
            claims.collect::<Vec<_>>(),
            expected.map(|time| time.map(at))
        );
        let late = kept
            .commits
            .last()
            .map(|commit| commit.late.clone())
            .unwrap();
        assert_eq!(late.cells, [("2026-11-30T10".to_owned(), 1)]);
        assert_eq!(late.rows(), 1);
        let counts = kept
            .commits
            .iter()
            .map(|commit| commit.times.as_ref().map_or(0, Sketch::count));
        assert_eq!(counts.collect::<Vec<_>>(), [0, 2, 2, 2, 2, 1, 0, 2]);
    }

    #[test]
    fn margin_of_the_newest_commit_is_that_of_the_property() {
        let table = table();
        let margins = Kept::of(&table.view(), None).unwrap().margins_us();
        let property: i64 = table.properties[MARGIN_MS].parse().unwrap();
        assert_eq!(margins.last(), Some(&Some(property * 1000)));
        assert_eq!(margins[..4], [None; 4]);
    }

    /// What has expired must not look like a partition that does not exist.
    #[test]
    fn margin_that_rests_on_expired_commits_is_unknown() {
        let mut table = table();
        table.lineage.snapshots.truncate(1);
        table.lineage.broken = true;
        let kept = Kept::of(&table.view(), None).unwrap();
        assert!(kept.cut);
        assert_eq!(kept.margins_us(), [None]);
    }

    #[test]
    fn table_without_a_commit_of_ours_has_nothing_on_record() {
        let table = Table::new(super::super::testing::policy());
        assert!(Kept::of(&table.view(), None).is_none());
    }
}
