//! How far one source partition has got: the frontier F(p), a lower bound of every event time with a say that it can still
//! deliver.
//!
//! Worked out from what the table holds of the partition: its recent commits, when it was last proved caught up, what its
//! source has promised in it. No broker, and no clock but that of the commit. `claim` takes the least frontier of all.
//!
//! Unknown holds: too few commits on record are never read as consent, and an idle partition is never left out; its terms
//! age by themselves.
//!
//! Decided here, where the rules leave it open:
//! - A window is the fewest newest entries that hold N commits, and every entry not older than `windowDuration` against
//!   the commit at hand. What was dropped leaves its time behind: a window whose record may be cut inside the duration is
//!   unknown until the cut has aged out of it.
//! - The newest change of a pipeline is the one with the greatest record time; on a tie a streamed row wins over a row of a
//!   snapshot, since the mark on the last row of a snapshot shares its time with the rows before it.
//! - A heartbeat's time never counts for more than the instant of the question behind it: a source whose clock is ahead proves
//!   nothing about times to come.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::amended::LateData;
use super::event_time::Bounds;
use super::grid::Grid;
use super::source_position::SourcePositions;

/// The rungs of the ladder of low quantiles that every commit keeps beside least and greatest, least first.
pub const LADDER: [Quantile; 3] = [Quantile::Permille, Quantile::Percent, Quantile::FivePercent];

/// A low quantile of event times: this share of the rows may lie below it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::EnumCount, strum::FromRepr,
)]
#[repr(u8)]
pub enum Quantile {
    /// 0.001
    Permille = 0,
    /// 0.01
    Percent = 1,
    /// 0.05
    FivePercent = 2,
}

const _: () = assert!(LADDER.len() == <Quantile as strum::EnumCount>::COUNT);

impl Quantile {
    /// The share of the rows below it, between 0 and 1.
    #[must_use]
    pub fn share(self) -> f64 {
        match self {
            Quantile::Permille => 0.001,
            Quantile::Percent => 0.01,
            Quantile::FivePercent => 0.05,
        }
    }

    /// The share as people write it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Quantile::Permille => "0.001",
            Quantile::Percent => "0.01",
            Quantile::FivePercent => "0.05",
        }
    }

    /// The quantile of a label.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Quantile> {
        LADDER.into_iter().find(|rung| rung.label() == label)
    }
}

/// Entries a window keeps at most; more are merged with their neighbours.
pub const MAX_WINDOW: usize = 64;

/// A way to bound what a partition can still deliver. In the order in which evidence is named; the number is its byte in the
/// state.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::EnumCount, strum::FromRepr,
)]
#[repr(u8)]
pub enum Term {
    /// The source's own promise, read from the partition: every change up to this commit time was sent before it.
    Resolved = 1,
    /// The least event time of the recent commits, or their greatest less the allowed lateness: what is less.
    Minimum = 2,
    /// When the newest heartbeat that came all the way through the source was committed there, less the greatest delay.
    Heartbeat = 3,
    /// When the partition was last proved caught up, less the greatest delay.
    CaughtUp = 4,
    /// As the minimum, with a low quantile of each commit in place of its least event time.
    Percentile = 5,
    /// The clock of the commit, less the greatest delay: nothing is proved, the owner vouches for it.
    Clock = 6,
}

impl Term {
    /// Every term, in the order of evidence.
    pub const ALL: [Term; 6] = [
        Term::Resolved,
        Term::Minimum,
        Term::Heartbeat,
        Term::CaughtUp,
        Term::Percentile,
        Term::Clock,
    ];

    /// The name in `tidemark.evidence`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Term::Resolved => "resolved",
            Term::Minimum => "minimum",
            Term::Heartbeat => "heartbeat",
            Term::CaughtUp => "caught-up",
            Term::Percentile => "percentile",
            Term::Clock => "clock",
        }
    }

    /// The term of a name.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Term> {
        Term::ALL.into_iter().find(|term| term.label() == label)
    }

    /// The term of a byte in the state.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Term> {
        Term::from_repr(byte)
    }
}

const _: () = assert!(Term::ALL.len() == <Term as strum::EnumCount>::COUNT);

/// What is known of the source's own pulse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum Heartbeats {
    /// Nothing: a silent source and a stopped connector look the same.
    #[default]
    None = 0,
    /// The connector's clock: nothing counts as caught up for longer than the connector was alive. It moves nothing forward.
    Connector = 1,
    /// The commit times of a table that somebody writes for this purpose, as they come through the source.
    Table = 2,
}

/// From where a pipeline claims completeness, as set by its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FromRule {
    /// From what the first commits show.
    #[default]
    Derived,
    /// From ever on: the owner vouches for what lies before.
    Unbounded,
    /// From this instant on: the owner vouches for it.
    Instant(i64),
}

/// The settings of the finalization, as they are in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Rises with each change of the settings. Only a worker at the table's revision may raise its claim.
    pub revision: u64,
    /// What is finalized.
    pub grid: Grid,
    /// The declared bounds.
    pub bounds: Bounds,
    /// How many data-carrying commits of a partition the terms look at (N, at least 1).
    pub window_commits: u32,
    /// They look at every commit of this last time, too; 0 for no such time.
    pub window_duration_us: i64,
    /// The admitted terms; none at all never claims.
    pub terms: BTreeSet<Term>,
    /// The quantile of [`Term::Percentile`], which has no value without.
    pub quantile: Option<Quantile>,
    /// Which heartbeats stand behind [`Term::CaughtUp`] and [`Term::Heartbeat`].
    pub heartbeats: Heartbeats,
    /// From where the claim counts.
    pub complete_from: FromRule,
    /// What late rows do to their cell.
    pub late_data: LateData,
    /// What a topic that joins does to the claim.
    pub on_join: OnJoin,
}

/// What a topic that may be older than the claim does to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OnJoin {
    /// The claim is taken back to what all topics together allow.
    #[default]
    Reopen = 0,
    /// The claim stays, and the topic's rows below it have no say.
    Backfill = 1,
}

impl OnJoin {
    /// Every choice.
    pub const ALL: [OnJoin; 2] = [OnJoin::Reopen, OnJoin::Backfill];

    /// The name in a summary.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            OnJoin::Reopen => "reopen",
            OnJoin::Backfill => "backfill",
        }
    }

    /// The choice of a name.
    #[must_use]
    pub fn from_label(label: &str) -> Option<OnJoin> {
        let mut all = OnJoin::ALL.into_iter();
        all.find(|choice| choice.label() == label)
    }

    /// The choice of a byte in the state.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<OnJoin> {
        let mut all = OnJoin::ALL.into_iter();
        all.find(|choice| *choice as u8 == byte)
    }
}

impl Policy {
    /// Whether two policies say the same, whatever their revisions.
    #[must_use]
    pub fn same_settings(&self, other: &Policy) -> bool {
        let mut twin = other.clone();
        twin.revision = self.revision;
        *self == twin
    }

    /// The revision under which these settings go on on a table: the table's where it has the same settings, else one more
    /// than the greater of its and ours. On a new table ours, at least 1.
    #[must_use]
    pub fn revision_on(&self, table: Option<&Policy>) -> u64 {
        match table {
            None => self.revision.max(1),
            Some(table) if self.same_settings(table) => table.revision,
            Some(table) => self.revision.max(table.revision).saturating_add(1),
        }
    }
}

/// What the rows with a say of one partition showed in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionStats {
    /// How many there were; at least 1.
    pub rows: u64,
    /// The least event time, exact.
    pub least_us: i64,
    /// The quantiles of [`LADDER`].
    pub ladder_us: [i64; 3],
    /// The greatest event time, exact.
    pub greatest_us: i64,
}

/// One data-carrying commit of a partition, or several merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowEntry {
    /// When the newest of them was committed.
    pub committed_at_us: i64,
    /// How many they are.
    pub commits: u32,
    /// What they showed: least of the leasts and rungs, greatest of the greatests.
    pub stats: PartitionStats,
}

/// The recent data-carrying commits of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Newest first.
    pub entries: Vec<WindowEntry>,
    /// When the newest commit that is no longer on record was made, at the latest.
    pub dropped_at_us: Option<i64>,
}

/// A gap whose far end is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenGap {
    /// The frontier when it opened; `None`: nothing before its end can be claimed.
    pub from_us: Option<i64>,
    /// When reading went on behind it.
    pub restart_us: i64,
    /// Whether what was lost comes before what is read behind it in one order, so that the lateness bounds it. A new topic of the
    /// same name, and a log that was written anew, have an order of their own.
    pub in_order: bool,
}

/// One source partition as the table knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionState {
    /// The offset of the next record that is not in the table.
    pub next_offset: i64,
    /// The leader epoch of the record before that offset, where it is known.
    pub leader_epoch: Option<i32>,
    /// When its start offset was anchored; `None`: it was created later and read from its first record on.
    pub anchor_us: Option<i64>,
    /// What was claimed when its topic joined: older rows of it have no say. `None`: it did not join, or took the claim back.
    pub backfill_before_us: Option<i64>,
    /// The least event time of its first data-carrying commit, kept while `anchor_us` is.
    pub first_least_us: Option<i64>,
    /// Its recent data-carrying commits.
    pub window: Window,
    /// Everything appended before this instant is in the table.
    pub caught_up_us: Option<i64>,
    /// Everything that the source sent before it sent its heartbeat of this instant is in the table, but for what took
    /// longer than the greatest delay.
    pub heartbeat_us: Option<i64>,
    /// Every change with an earlier commit time is in the table, says the source.
    pub resolved_us: Option<i64>,
    /// A gap that is not closed yet.
    pub gap: Option<OpenGap>,
    /// The greatest source positions.
    pub positions: SourcePositions,
}

/// The partitions of one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicState {
    /// Its id, where the broker tells one.
    pub id: Option<Uuid>,
    /// Its partitions by number.
    pub partitions: BTreeMap<i32, PartitionState>,
}

/// The newest change that was read from the topics of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestChange {
    /// The time of its record; kept in whole milliseconds.
    pub record_time_us: i64,
    /// Whether it is a row of a snapshot that goes on after it.
    pub snapshot: bool,
}

impl NewestChange {
    /// The newer of two, whatever their order.
    #[must_use]
    pub fn newer(self, other: NewestChange) -> NewestChange {
        let rank =
            |change: &NewestChange| (change.record_time_us.div_euclid(1000), !change.snapshot);
        if rank(&other) > rank(&self) {
            other
        } else {
            self
        }
    }
}

/// What a term says of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermValue {
    /// Which one.
    pub term: Term,
    /// Nothing before this can come any more.
    pub value_us: i64,
    /// What it rests on: the greatest event time, the question, the heartbeat, the promise or the clock.
    pub basis_us: i64,
}

/// What the terms need to know beside the partition.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The settings.
    pub policy: &'a Policy,
    /// The terms that count: those of the policy, or fewer when a reader accepts fewer.
    pub terms: &'a BTreeSet<Term>,
    /// When the commit at hand is made.
    pub now_us: i64,
    /// Whether an initial snapshot goes on.
    pub snapshot: bool,
}

impl View<'_> {
    /// The values of the admitted terms, in the order of evidence.
    pub fn values(&self, partition: &PartitionState) -> impl Iterator<Item = TermValue> {
        let admitted = Term::ALL
            .into_iter()
            .filter(|term| self.terms.contains(term));
        admitted.filter_map(move |term| self.value(term, partition))
    }

    fn value(&self, term: Term, partition: &PartitionState) -> Option<TermValue> {
        let bounds = &self.policy.bounds;
        let delayed = |us: i64| (us.saturating_sub(bounds.max_delay_us), us);
        let (value_us, basis_us) = match term {
            Term::Resolved => {
                let promised_us = partition.resolved_us?;
                (promised_us, promised_us)
            }
            Term::Minimum => self.of_window(&partition.window, |stats| stats.least_us)?,
            Term::Heartbeat => delayed(partition.heartbeat_us?),
            // Rows of the stream wait behind an initial snapshot, perhaps for days.
            Term::CaughtUp => delayed(partition.caught_up_us.filter(|_| !self.snapshot)?),
            Term::Percentile => {
                let rung = self.policy.quantile?;
                self.of_window(&partition.window, |stats| stats.quantile_us(rung))?
            }
            Term::Clock => delayed(self.now_us),
        };
        Some(TermValue {
            term,
            value_us,
            basis_us,
        })
    }

    /// The frontier: the greatest of the admitted terms; `None` while it is unknown.
    #[must_use]
    pub fn frontier(&self, partition: &PartitionState) -> Option<TermValue> {
        self.values(partition).reduce(|best, next| {
            if next.value_us > best.value_us {
                next
            } else {
                best
            }
        })
    }

    /// The least of `low` over the commits that count, or their greatest event time less the lateness; and that greatest.
    ///
    /// Nothing still to come is more than the lateness older than the greatest, so the value holds whatever `low` is. `low`
    /// only adds to the margin, and taken commit by commit it adds no less than over all their rows together: of each
    /// commit less than a share q lies below its own q-quantile, so below the least of these lies less than a share q of
    /// them all, and that least is at or below the q-quantile of them all.
    fn of_window(
        &self,
        window: &Window,
        low: impl Fn(&PartitionStats) -> i64,
    ) -> Option<(i64, i64)> {
        let kept = window.needed(self.policy, self.now_us)?;
        let shown = window.entries[..kept].iter().map(|entry| entry.stats);
        let stats = shown.reduce(merge)?;
        let floor_us = stats
            .greatest_us
            .saturating_sub(self.policy.bounds.allowed_lateness_us);
        Some((low(&stats).min(floor_us), stats.greatest_us))
    }
}

impl PartitionStats {
    /// One of its low quantiles.
    #[must_use]
    pub fn quantile_us(&self, rung: Quantile) -> i64 {
        self.ladder_us[rung as usize]
    }
}

impl Window {
    /// Adds a commit.
    pub fn push(&mut self, committed_at_us: i64, stats: PartitionStats) {
        let entry = WindowEntry {
            committed_at_us,
            commits: 1,
            stats,
        };
        self.entries.insert(0, entry);
    }

    /// How many of the newest entries the policy looks at; `None` while that many are not on record.
    #[must_use]
    pub fn needed(&self, policy: &Policy, now_us: i64) -> Option<usize> {
        let since_us = since(policy, now_us);
        if self
            .dropped_at_us
            .is_some_and(|dropped| policy.window_duration_us > 0 && dropped >= since_us)
        {
            return None;
        }
        let mut commits = 0_u32;
        let by_count = self.entries.iter().position(|entry| {
            commits = commits.saturating_add(entry.commits);
            commits >= policy.window_commits
        })?;
        let recent = |entry: &WindowEntry| {
            policy.window_duration_us > 0 && entry.committed_at_us >= since_us
        };
        let by_time = self.entries.iter().rposition(recent).unwrap_or(0);
        Some(by_count.max(by_time) + 1)
    }

    /// Drops what the policy does not look at, and merges neighbours down to `len` entries; below two it forgets them all.
    pub fn prune(&mut self, policy: &Policy, now_us: i64, len: usize) {
        let mut keep = self.needed(policy, now_us).unwrap_or(self.entries.len());
        if len < 2 {
            keep = 0;
        }
        for gone in self.entries.drain(keep..) {
            self.dropped_at_us = self.dropped_at_us.max(Some(gone.committed_at_us));
        }
        while self.entries.len() > len.max(2) {
            self.merge_lightest();
        }
    }

    /// Merges the two neighbours with the fewest commits, the newest of equals: so no entry grows without end while the
    /// window slides, and each still ages out of it.
    fn merge_lightest(&mut self) {
        let weight = |at: &usize| {
            u64::from(self.entries[*at].commits) + u64::from(self.entries[*at + 1].commits)
        };
        let Some(at) = (0..self.entries.len().saturating_sub(1)).min_by_key(weight) else {
            return;
        };
        let older = self.entries.remove(at + 1);
        let newer = &mut self.entries[at];
        newer.commits = newer.commits.saturating_add(older.commits);
        newer.stats = merge(newer.stats, older.stats);
    }
}

fn since(policy: &Policy, now_us: i64) -> i64 {
    now_us.saturating_sub(policy.window_duration_us)
}

/// What two commits showed together.
fn merge(a: PartitionStats, b: PartitionStats) -> PartitionStats {
    PartitionStats {
        rows: a.rows.saturating_add(b.rows),
        least_us: a.least_us.min(b.least_us),
        ladder_us: std::array::from_fn(|rung| a.ladder_us[rung].min(b.ladder_us[rung])),
        greatest_us: a.greatest_us.max(b.greatest_us),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::state::unknown;
    use super::super::testing::{Table, at, news, policy};
    use super::super::{Digest, EmptyCommit, JumpKind, SECOND_US, Sketch, should_commit_empty};
    use super::*;

    const DAY_US: i64 = 86_400 * SECOND_US;

    /// A table of one partition under these terms, cells of an hour, L 5 min, D 10 min.
    fn table(terms: &[Term], change: impl FnOnce(&mut Policy)) -> Table {
        let mut policy = Policy {
            terms: terms.iter().copied().collect(),
            ..policy()
        };
        change(&mut policy);
        let mut table = Table::new(policy);
        table.commit(news("09:00").anchor(0, 0));
        table
    }

    fn frontier(table: &Table) -> Option<(Term, i64)> {
        let known = table.state.partition(super::super::testing::TOPIC, 0)?;
        let value = table.state.view().frontier(known)?;
        Some((value.term, value.value_us))
    }

    fn evidence(table: &Table) -> Vec<Term> {
        table.state.claim().evidence.into_iter().collect()
    }

    fn margin_s(table: &Table) -> Option<i64> {
        Some(table.state.claim().margin_us? / SECOND_US)
    }

    #[test]
    fn every_term_and_quantile_comes_back_by_its_name_and_byte() {
        for term in Term::ALL {
            assert_eq!(Term::from_label(term.label()), Some(term));
            assert_eq!(Term::from_byte(term as u8), Some(term));
        }
        assert!(Term::ALL.is_sorted(), "the order of evidence");
        assert_eq!(Term::from_byte(0), None);
        for rung in LADDER {
            assert_eq!(Quantile::from_label(rung.label()), Some(rung));
            assert_eq!(rung.label().parse(), Ok(rung.share()));
        }
    }

    /// A minute's rows of a reader that catches up: the oldest is an hour older than the rest.
    #[test]
    fn a_percentile_is_not_held_by_the_few_oldest_rows_of_a_commit() {
        let terms = [Term::Minimum, Term::Percentile];
        let mut table = table(&terms, |policy| policy.quantile = Some(Quantile::Percent));
        let mut rows = vec!["10:10"];
        rows.extend(["11:20"; 999]);
        table.commit(news("11:30").rows(0, 0, &rows).asked("11:30", 1));
        table.commit(news("11:31").rows(0, 1_000, &rows).asked("11:31", 1));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(evidence(&table), [Term::Percentile]);
        assert_eq!(margin_s(&table), Some(20 * 60));
        let alone = |term| table.state.accepted(&BTreeSet::from([term]));
        assert_eq!(alone(Term::Minimum), Some(at("10:00")));
        assert_eq!(alone(Term::Percentile), Some(at("11:00")));
        // The row of the share 0.001 among 1,000 is the first one.
        table.policy.quantile = Some(Quantile::Permille);
        table.policy.revision = 2;
        table.commit(news("11:32").asked("11:32", 1));
        assert_eq!(frontier(&table), Some((Term::Minimum, at("10:10"))));
    }

    /// A quantile of all rows of the window together, as of their merged digests, would pass over all rows of a small commit
    /// beside a large one.
    #[test]
    fn a_small_commit_holds_a_percentile_as_a_large_one_does() {
        let mut table = table(&[Term::Percentile], |policy| {
            policy.quantile = Some(Quantile::FivePercent);
        });
        table.commit(news("11:25").rows(0, 0, &["10:40"; 2]).asked("11:25", 1));
        table.commit(news("11:26").rows(0, 2, &["11:20"; 400]));
        let of_all = {
            let mut digest = Digest::default();
            digest.extend(&[at("10:40"); 2]);
            digest.extend(&[at("11:20"); 400]);
            digest.finish().unwrap().quantile(0.05)
        };
        assert_eq!(of_all, at("11:20"));
        assert_eq!(frontier(&table), Some((Term::Percentile, at("10:40"))));
    }

    #[test]
    fn a_percentile_without_a_quantile_is_unknown() {
        let mut table = table(&[Term::Percentile], |_| ());
        table.commit(news("10:20").rows(0, 0, &["10:10"]).asked("10:20", 1));
        table.commit(news("10:25").rows(0, 1, &["10:20"]).asked("10:25", 1));
        assert_eq!((frontier(&table), table.claim()), (None, None));
    }

    /// The log was read to its end all the while: nothing but the heartbeat tells that the connector stands still.
    #[test]
    fn a_stopped_connector_holds_what_is_caught_up() {
        let mut table = table(&[Term::CaughtUp], |policy| {
            policy.heartbeats = Heartbeats::Connector;
        });
        let look = |now: &str, beat: &str| {
            let looked = news(now).rows(0, 0, &[]).end(now, 0).asked(now, 1);
            looked.heartbeat(beat)
        };
        table.commit(look("10:20", "10:19"));
        assert_eq!(frontier(&table), Some((Term::CaughtUp, at("10:09"))));
        table.commit(look("11:50", "10:19"));
        assert_eq!(frontier(&table), Some((Term::CaughtUp, at("10:09"))));
        assert_eq!(table.state.newest_heartbeat_us, Some(at("10:19")));
        table.commit(look("11:51", "11:50:30"));
        assert_eq!(frontier(&table), Some((Term::CaughtUp, at("11:40:30"))));
        assert_eq!(margin_s(&table), Some(50 * 60 + 30));
    }

    #[test]
    fn a_heartbeat_only_caps() {
        let mut table = table(&[Term::CaughtUp], |policy| {
            policy.heartbeats = Heartbeats::Connector;
        });
        let look = |now: &str| news(now).rows(0, 0, &[]).end(now, 0).asked(now, 1);
        table.commit(look("10:20"));
        assert_eq!(
            frontier(&table),
            None,
            "without a heartbeat nothing is proved"
        );
        table.commit(look("10:21").heartbeat("23:00"));
        assert_eq!(
            frontier(&table),
            Some((Term::CaughtUp, at("10:11"))),
            "a clock that is ahead moves nothing forward"
        );
    }

    #[test]
    fn a_row_of_the_heartbeat_table_counts_once_the_partition_was_read_to_its_end_after_it() {
        let terms = [Term::Heartbeat];
        let mut table = table(&terms, |policy| policy.heartbeats = Heartbeats::Table);
        let behind = news("11:20").rows(0, 0, &["11:00"]).end("11:19", 5);
        table.commit(behind.heartbeat("11:18").asked("11:19", 1));
        assert_eq!(frontier(&table), None);
        let there = news("11:21").rows(0, 1, &["11:01"; 4]).end("11:19", 5);
        table.commit(there.heartbeat("11:18"));
        assert_eq!(frontier(&table), Some((Term::Heartbeat, at("11:08"))));
        assert_eq!(evidence(&table), [Term::Heartbeat]);
        assert_eq!(margin_s(&table), Some(18 * 60));
        // The connector began again, and its rows of before came once more.
        let again = news("11:30").rows(0, 5, &[]).end("11:30", 5);
        table.commit(again.heartbeat("10:00").asked("11:30", 1));
        assert_eq!(frontier(&table), Some((Term::Heartbeat, at("11:08"))));
        let known = table
            .state
            .partition(super::super::testing::TOPIC, 0)
            .unwrap();
        assert_eq!(known.caught_up_us, Some(at("11:30")), "known, not admitted");
    }

    #[test]
    fn a_promise_counts_from_the_commit_that_holds_it_and_repeats_do_not_lower_it() {
        let mut table = table(&[Term::Resolved, Term::CaughtUp], |_| ());
        let first = news("11:20")
            .rows(0, 0, &["10:40"])
            .resolved("11:05:00.750");
        table.commit(first.asked("11:20", 1));
        assert_eq!(frontier(&table), Some((Term::Resolved, at("11:05"))));
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(evidence(&table), [Term::Resolved]);
        assert_eq!(margin_s(&table), Some(5 * 60), "no delay is needed");
        table.commit(news("11:21").rows(0, 2, &[]).resolved("10:50"));
        assert_eq!(frontier(&table), Some((Term::Resolved, at("11:05"))));
        let recreated = JumpKind::Recreated { topic_id: None };
        table.commit(news("11:30").jump(0, 3, 0, recreated));
        assert_eq!(frontier(&table), None, "another log, another promise");
    }

    /// A promise alone is worth a commit without rows.
    #[test]
    fn a_promise_without_rows_is_committed_when_it_closes_a_cell() {
        let table = table(&[Term::Resolved], |_| ());
        let promise = |time| {
            news("11:20")
                .rows(0, 0, &[])
                .resolved(time)
                .asked("11:20", 1)
        };
        let worth = |news| should_commit_empty(&table.state, &table.policy, &news);
        assert_eq!(worth(promise("11:01")), Some(EmptyCommit::Raises));
        let mut silent = promise("11:01");
        silent.partitions[0].resolved_us = None;
        assert_eq!(worth(silent), Some(EmptyCommit::Moved), "after two hours");
    }

    /// Nothing is read of the partition: its owner vouches for it.
    #[test]
    fn the_clock_moves_by_itself() {
        let mut table = table(&[Term::Minimum, Term::Clock], |_| ());
        let look = news("11:09").asked("11:09", 1);
        table.commit(look);
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T10:00:00Z"));
        let look = news("11:11").asked("11:11", 1);
        let worth = should_commit_empty(&table.state, &table.policy, &look);
        assert_eq!(worth, Some(EmptyCommit::Raises));
        table.commit(look);
        assert_eq!(table.claim().as_deref(), Some("2026-11-30T11:00:00Z"));
        assert_eq!(
            (evidence(&table), margin_s(&table)),
            (vec![Term::Clock], Some(11 * 60))
        );
    }

    fn share(part: usize, whole: usize) -> f64 {
        f64::from(u32::try_from(part).unwrap()) / f64::from(u32::try_from(whole).unwrap())
    }

    /// The row of a share among these, the least one that has at least that share at or below it.
    fn exact(times: &[i64], rung: Quantile) -> i64 {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let at_or_below = |at: &usize| share(at + 1, sorted.len());
        let at = (0..sorted.len()).find(|at| at_or_below(at) >= rung.share());
        sorted[at.unwrap()]
    }

    fn times() -> impl Strategy<Value = Vec<i64>> {
        let spread = prop_oneof![
            Just(1_i64),
            Just(SECOND_US),
            Just(3_600 * SECOND_US),
            Just(DAY_US)
        ];
        (0..DAY_US, spread, 1_usize..300).prop_flat_map(|(base_us, spread_us, rows)| {
            let time = (0_i64..1_000).prop_map(move |n| base_us + n * n * spread_us / 1_000_000);
            prop::collection::vec(time, rows)
        })
    }

    proptest! {
        /// The lemma: the least of the commits' quantiles never is above the quantile of all their rows.
        #[test]
        fn prop_the_least_quantile_of_the_commits_is_at_most_that_of_their_union(
            commits in prop::collection::vec(times(), 1..8),
        ) {
            let union: Vec<i64> = commits.concat();
            for rung in LADDER {
                let least = commits.iter().map(|times| exact(times, rung)).min().unwrap();
                prop_assert!(least <= exact(&union, rung), "{rung:?}");
            }
        }

        /// The term itself, over digests, merged entries and rounding: it leaves no greater share of the rows below it than
        /// its quantile and the error of a digest, it is never below the minimum, never above the lateness.
        #[test]
        fn prop_a_percentile_leaves_its_share_of_the_rows_below(
            commits in prop::collection::vec(times(), 1..8), entries in 2_usize..8,
        ) {
            let mut partition = unknown(None);
            let count = u32::try_from(commits.len()).unwrap();
            let union: Vec<i64> = commits.concat();
            let greatest_us = union.iter().max().unwrap();
            for rung in LADDER {
                let policy = Policy {
                    window_commits: count,
                    terms: BTreeSet::from([Term::Minimum, Term::Percentile]),
                    quantile: Some(rung),
                    ..policy()
                };
                partition.window = Window::default();
                for (n, times) in (0..).zip(&commits) {
                    let mut digest = Digest::default();
                    digest.extend(times);
                    partition.window.push(n * SECOND_US, digest.finish().as_ref().map(Sketch::stats).unwrap());
                    partition.window.prune(&policy, n * SECOND_US, entries);
                }
                let view = View { policy: &policy, terms: &policy.terms, now_us: 0, snapshot: false };
                let values: Vec<TermValue> = view.values(&partition).collect();
                let [minimum, percentile] = values[..] else { panic!("{values:?}") };
                prop_assert!(minimum.value_us <= percentile.value_us);
                prop_assert!(percentile.value_us <= greatest_us - policy.bounds.allowed_lateness_us);
                let below = union.iter().filter(|us| **us < percentile.value_us).count();
                let share = share(below, union.len());
                prop_assert!(share <= rung.share() + 0.005, "{rung:?}: {share} of {}", union.len());
            }
        }
    }
}
