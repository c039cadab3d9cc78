//! How far one source partition has got: the frontier F(p), a lower bound of every event time with a say that it can still
//! deliver.
//!
//! Worked out from what the table holds of the partition: its recent commits, and when it was last proved caught up. No
//! clock, no broker. `claim` takes the least frontier of all.
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

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::amended::LateData;
use super::event_time::Bounds;
use super::grid::Grid;
use super::source_position::SourcePositions;

/// The rungs of the ladder of low quantiles that every commit keeps beside least and greatest.
pub const LADDER: [f64; 3] = [0.001, 0.01, 0.05];

/// Entries a window keeps at most; more are merged with their neighbours.
pub const MAX_WINDOW: usize = 64;

/// A way to bound what a partition can still deliver. In the order in which evidence is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Term {
    /// The least event time of the recent commits, or their greatest less the allowed lateness: what is less.
    Minimum = 2,
    /// When the partition was last proved caught up, less the greatest delay.
    CaughtUp = 4,
}

impl Term {
    /// Every term, in the order of evidence.
    pub const ALL: [Term; 2] = [Term::Minimum, Term::CaughtUp];

    /// The name in `tidemark.evidence`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Term::Minimum => "minimum",
            Term::CaughtUp => "caught-up",
        }
    }

    /// The term of a name.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Term> {
        Term::ALL.into_iter().find(|term| term.label() == label)
    }

    /// The term of a byte in the state. The others are kept for terms to come.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Term> {
        Term::ALL.into_iter().find(|term| *term as u8 == byte)
    }
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
    /// What it rests on: the greatest event time, or when the question was asked.
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
        let minimum = || self.minimum(&partition.window);
        let caught_up = || self.caught_up(partition.caught_up_us);
        Term::ALL
            .into_iter()
            .filter(|term| self.terms.contains(term))
            .filter_map(move |term| match term {
                Term::Minimum => minimum(),
                Term::CaughtUp => caught_up(),
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

    fn minimum(&self, window: &Window) -> Option<TermValue> {
        let kept = window.needed(self.policy, self.now_us)?;
        let stats = window.entries[..kept]
            .iter()
            .map(|entry| entry.stats)
            .reduce(merge)?;
        let floor = stats
            .greatest_us
            .saturating_sub(self.policy.bounds.allowed_lateness_us);
        Some(TermValue {
            term: Term::Minimum,
            value_us: stats.least_us.min(floor),
            basis_us: stats.greatest_us,
        })
    }

    fn caught_up(&self, asked_us: Option<i64>) -> Option<TermValue> {
        let basis_us = asked_us.filter(|_| !self.snapshot)?;
        Some(TermValue {
            term: Term::CaughtUp,
            value_us: basis_us.saturating_sub(self.policy.bounds.max_delay_us),
            basis_us,
        })
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
