//! What the histories held: each fault, term and condition, and how far the claims came.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use strum::{EnumIter, IntoEnumIterator, IntoStaticStr};

/// Something that a history may hold. One that none of many histories held was not simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Seen {
    // Rows.
    /// A partition was silent while others flowed.
    SilentPartition,
    /// A row ahead of the clock, within the skew.
    RowAhead,
    /// A row nearly as old as the delay allows.
    RowDelayed,
    /// A row out of order within the lateness.
    RowDisordered,
    /// A row that breaks a bound.
    RowBeyondBounds,
    /// A row below the claim when it was committed, counted as late.
    RowLate,
    /// A row without an event time.
    RowTimeless,
    /// A row too far in the future.
    RowFuture,
    /// A row older than the greatest age.
    RowOld,
    /// A message that no decoder takes.
    RowUndecodable,
    /// A row of an initial snapshot.
    RowOfSnapshot,
    /// A record without a row.
    Signal,
    /// Rows sent again.
    Replay,
    /// The source's positions began anew.
    SourceFailover,
    /// The connector stopped, and went on with rows that had waited.
    ConnectorStopped,
    /// The source made a promise.
    Promise,
    // The cluster.
    /// A question met an open transaction.
    TransactionOpen,
    /// A transaction took effect.
    TransactionCommitted,
    /// A transaction was aborted.
    TransactionAborted,
    /// A partition was added.
    PartitionAdded,
    /// A topic was deleted and made anew.
    TopicRecreated,
    /// A topic joined, and the claim was taken back to what all allow.
    TopicJoined,
    /// A topic joined, and the claim stayed.
    TopicBackfilled,
    /// A topic left.
    TopicLeft,
    /// A topic that had left was named again.
    TopicReturned,
    /// Records that could not be read any more, or were read before, had been lost or cut off.
    RowsLost,
    /// The end of a log was cut off.
    LogCut,
    /// Reading went back to where a log had been cut.
    WentBack,
    /// The broker could not name the partitions.
    Unanswered,
    // Workers.
    /// Another pipeline wrote to the table, too.
    WriterJoined,
    /// A writer was declared drained.
    WriterDrained,
    /// It went on.
    WriterUndrained,
    /// A worker died.
    WorkerDied,
    /// A commit of a dead worker took effect after its death.
    CommitAfterDeath,
    /// A worker stood still.
    WorkerStalled,
    /// A worker went on with partitions that others had taken.
    Zombie,
    /// A partition was handed over.
    HandedOver,
    /// A batch was dropped because its partitions had moved.
    Fenced,
    /// The settings changed.
    PolicyChanged,
    /// The cells changed.
    CellsChanged,
    /// Cells were the days in a zone, over a change of its clocks.
    DaysInZone,
    // The table.
    /// Two commits met, and one lost.
    Conflict,
    /// An answer was lost, the commit took effect.
    AnswerLostApplied,
    /// An answer was lost, the commit took no effect.
    AnswerLostNotApplied,
    /// The catalog was away.
    Outage,
    /// A compaction.
    ForeignReplace,
    /// Somebody's insert.
    ForeignAppend,
    /// Snapshots were expired.
    Expired,
    /// Nothing of ours was left among the table's snapshots.
    Overrun,
    /// The table was rolled back.
    RolledBack,
    /// A commit of ours was repeated by somebody.
    CherryPicked,
    /// A claim was taken away from a table that nobody could go on from.
    Withdrawn,
    /// The table's owner agreed to go on from it as it was.
    LineageAccepted,
    /// A person took back that a stretch is complete.
    Retracted,
    /// The table was copied.
    Copied,
    /// The state was rebuilt from the summaries.
    Rebuilt,
    // Commits without data.
    /// To anchor partitions, or go on behind a gap.
    EmptyAnchors,
    /// To raise the claim.
    EmptyRaises,
    /// To let an open cell go.
    EmptyReleases,
    /// To move offsets without rows.
    EmptyMoved,
    // Terms that a claim rested on.
    /// See `Term::Minimum`.
    TermMinimum,
    /// See `Term::CaughtUp`.
    TermCaughtUp,
    /// See `Term::Percentile`.
    TermPercentile,
    /// See `Term::Heartbeat`.
    TermHeartbeat,
    /// See `Term::Resolved`.
    TermResolved,
    /// See `Term::Clock`: the claims of such a history are its owner's word, and I1 is not asked of them.
    TermClock,
    // What held a claim.
    /// See `HeldBy::Partition`, by a term.
    HeldPartition,
    /// See `HeldBy::Partition`, no term known.
    HeldUnknown,
    /// See `HeldBy::Asked`.
    HeldAsked,
    /// See `HeldBy::Writer`.
    HeldWriter,
    /// See `HeldBy::Policy`.
    HeldPolicy,
    // Edges of a claim.
    /// A claim with a gap.
    Gap,
    /// A claim that begins somewhere.
    CompleteFrom,
    /// Cells that were final and are open again.
    Reopened,
}

/// Counts over histories.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Histories played.
    pub histories: u64,
    /// Those in which the claim advanced, beyond the first.
    pub advanced: u64,
    /// Source partitions that lived in them.
    pub streams: u64,
    /// Records appended.
    pub records: u64,
    /// Commits of ours.
    pub commits: u64,
    /// Cells finalized.
    pub cells: u64,
    /// Histories that held something.
    pub seen: BTreeMap<Seen, u64>,
}

/// What one history held.
#[derive(Clone, Debug, Default)]
pub(super) struct Note {
    pub seen: BTreeSet<Seen>,
    pub commits: u64,
    pub cells: u64,
    pub raises: u64,
    pub streams: u64,
    pub records: u64,
}

impl Note {
    pub(super) fn see(&mut self, seen: Seen) {
        self.seen.insert(seen);
    }
}

impl Tally {
    /// Takes in one history.
    pub(super) fn add(&mut self, note: &Note) {
        self.histories += 1;
        self.advanced += u64::from(note.raises > 1);
        self.streams += note.streams;
        self.records += note.records;
        self.commits += note.commits;
        self.cells += note.cells;
        for seen in &note.seen {
            *self.seen.entry(*seen).or_default() += 1;
        }
    }

    /// Takes in the histories of another.
    pub(super) fn join(&mut self, other: &Tally) {
        self.histories += other.histories;
        self.advanced += other.advanced;
        self.streams += other.streams;
        self.records += other.records;
        self.commits += other.commits;
        self.cells += other.cells;
        for (seen, histories) in &other.seen {
            *self.seen.entry(*seen).or_default() += histories;
        }
    }

    /// What no history held.
    #[must_use]
    pub fn missing(&self) -> Vec<Seen> {
        Seen::iter()
            .filter(|seen| !self.seen.contains_key(seen))
            .collect()
    }

    /// Whether the histories are worth something: nothing is missing, and the claim advanced in nine of ten.
    #[must_use]
    pub fn is_telling(&self) -> bool {
        self.missing().is_empty() && self.advanced * 10 >= self.histories * 9
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for seen in Seen::iter() {
            let histories = self.seen.get(&seen).copied().unwrap_or_default();
            let name: &str = seen.into();
            writeln!(f, "{name:<24} {histories:>9}")?;
        }
        writeln!(f, "histories                {:>9}", self.histories)?;
        writeln!(f, "the claim advanced in    {:>9}", self.advanced)?;
        writeln!(f, "streams                  {:>9}", self.streams)?;
        writeln!(f, "records                  {:>9}", self.records)?;
        writeln!(f, "commits                  {:>9}", self.commits)?;
        write!(f, "cells finalized          {:>9}", self.cells)
    }
}
