//! A history before it is played: the settings of a pipeline, and what happens to it, drawn from a seed.
//!
//! Plain numbers that read and write as JSON, so that a history that failed once can be kept. Every event makes sense in every
//! state of the world (numbers are taken modulo what is there), so that events can be left out.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::watermark::{
    Bounds, FromRule, Grid, Heartbeats, LADDER, LateData, OnJoin, Policy, SECOND_US, Term,
};

/// Workers at most.
pub(super) const MOST_WORKERS: usize = 3;

/// Partitions of one topic at most.
pub(super) const MOST_PARTITIONS: usize = 4;

/// A zone, and when histories of its days begin.
pub(super) struct Zone {
    pub name: Option<&'static str>,
    pub start_s: i64,
}

/// No zone, from 2026-11-30T08:59:50Z, so that a cell of any length ends soon; and zones a little before their clocks change: the day
/// of 25 hours, that of 23, and one that has no midnight.
pub(super) const ZONES: [Zone; 4] = [
    Zone {
        name: None,
        start_s: 1_796_029_190,
    },
    Zone {
        name: Some("Europe/Berlin"),
        start_s: 1_792_832_400,
    },
    Zone {
        name: Some("America/New_York"),
        start_s: 1_772_848_800,
    },
    Zone {
        name: Some("Africa/Cairo"),
        start_s: 1_776_897_000,
    },
];

/// A history: settings and events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What it was drawn from.
    pub seed: u64,
    /// The pipeline and what it meets.
    pub settings: Settings,
    /// What happens, in order.
    pub events: Vec<Event>,
}

/// The pipeline and what it meets. Lengths in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a choice of its own, none a state of another"
)]
pub struct Settings {
    /// Length of a cell, whole seconds that divide a day.
    pub cell_ms: i64,
    /// The zone whose days are the cells, which are of a day then: by place in [`ZONES`]; 0: none.
    #[serde(default)]
    pub zone: usize,
    /// The three bounds.
    pub lateness_ms: i64,
    /// See [`Settings::lateness_ms`].
    pub delay_ms: i64,
    /// See [`Settings::lateness_ms`].
    pub skew_ms: i64,
    /// The greatest age of a row with a say; 0: none.
    pub age_ms: i64,
    /// Data-carrying commits in a window.
    pub window_commits: u32,
    /// And the time that it looks back; 0: none.
    pub window_ms: i64,
    /// The admitted terms, by their labels.
    pub terms: Vec<String>,
    /// The quantile, by place in the ladder.
    pub quantile: usize,
    /// Which heartbeats the source has, as `Heartbeats` numbers them.
    pub heartbeats: u8,
    /// What late rows do to their cell, by place in `LateData::ALL`.
    pub late: u8,
    /// The commit interval.
    pub interval_ms: i64,
    /// Partitions of each topic at the start.
    pub partitions: Vec<usize>,
    /// Partitions of a topic that is there from the start and may join later.
    pub joining: usize,
    /// Partitions of each topic of another pipeline on the same table, which comes later; none: there is none.
    #[serde(default)]
    pub second: Vec<usize>,
    /// Whether the claim stays when it joins, and its rows below have no say.
    pub backfill: bool,
    /// Workers.
    pub workers: usize,
    /// Whether each worker reads everything, as copies of one do; else the group shares the partitions out.
    pub copies: bool,
    /// Whether reading begins at the ends of the logs.
    pub latest: bool,
    /// Whether rows that a roll-back took out stay out; else they are read again.
    pub keep_offsets: bool,
}

/// What a record carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A change within the bounds.
    Change,
    /// A change that breaks the bounds: it comes too late.
    Outlaw,
    /// A row of an initial snapshot.
    Snapshot,
    /// The last one.
    LastOfSnapshot,
    /// A row without an event time.
    Timeless,
    /// A row too far in the future.
    Future,
    /// A row older than the greatest age.
    Old,
    /// A message that no decoder takes.
    Undecodable,
    /// A heartbeat of the connector, or another signal without a row.
    Signal,
}

/// What becomes of the next commit that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It takes effect and its answer is lost.
    AppliedUnanswered,
    /// It takes no effect, and nobody says so.
    LostUnanswered,
    /// The catalog refuses connections.
    Outage,
}

/// What others do to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Foreign {
    /// A compaction.
    Replace,
    /// Somebody's `INSERT`.
    Append,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Time passes: so many thousandths of a cell.
    Wait(u16),
    /// The usual: rows in all partitions, all workers read and commit as they would.
    Flow {
        /// How old the rows are, 0 (ahead by the skew) to 255 (the greatest delay).
        delay: u8,
        /// Which partitions stay silent, as bits.
        silent: u8,
    },
    /// Records of one partition, outside of a transaction.
    Produce {
        /// Which.
        partition: u8,
        /// How many.
        rows: u8,
        /// How old, as in [`Event::Flow`].
        delay: u8,
        /// Which.
        kind: Kind,
    },
    /// Rows of an open transaction; one is begun where there is none.
    Transact {
        /// Which partition.
        partition: u8,
        /// How many.
        rows: u8,
        /// How old.
        delay: u8,
    },
    /// The open transaction of a partition ends.
    End {
        /// Which partition.
        partition: u8,
        /// Whether it takes effect.
        committed: bool,
    },
    /// The connector goes back and sends its last rows again.
    Replay {
        /// Which partition.
        partition: u8,
        /// How many.
        rows: u8,
    },
    /// The source promises in all partitions of a topic that what is to come is later.
    Resolve {
        /// Which.
        topic: u8,
    },
    /// The connector stops, or goes on with all that the source did meanwhile.
    Connector {
        /// Whether it goes on.
        runs: bool,
    },
    /// The source's positions begin anew: a failover of the database.
    Failover {
        /// Which partition.
        partition: u8,
    },
    /// A worker reads so many records of each of its partitions.
    Fetch {
        /// Which.
        worker: u8,
        /// How many.
        records: u8,
    },
    /// A worker looks at what is under way and begins what is due.
    Turn {
        /// Which.
        worker: u8,
    },
    /// A worker does its usual work until it rests.
    Work {
        /// Which.
        worker: u8,
    },
    /// What becomes of the next commit that is sent.
    Fate(Fate),
    /// A worker dies; another one is started in its place at the next event of that worker.
    Kill {
        /// Which.
        worker: u8,
    },
    /// A worker stands still; others take its partitions.
    Stall {
        /// Which.
        worker: u8,
    },
    /// It goes on, without knowing what happened.
    Wake {
        /// Which.
        worker: u8,
    },
    /// A partition is handed over.
    Rebalance {
        /// Which.
        partition: u8,
        /// To which worker.
        worker: u8,
    },
    /// A topic gets one more partition.
    AddPartition {
        /// Which topic.
        topic: u8,
    },
    /// The topic that may join does.
    Join,
    /// A topic is no longer named by the specification.
    Leave {
        /// Which.
        topic: u8,
    },
    /// A topic that has left is named again.
    Return {
        /// Which.
        topic: u8,
    },
    /// A topic is deleted and made anew under its name.
    Recreate {
        /// Which topic.
        topic: u8,
    },
    /// The newest records of a partition are lost, as by a leader that had not got them yet.
    Cut {
        /// Which.
        partition: u8,
        /// How many.
        records: u8,
    },
    /// Retention takes the oldest records of a partition.
    Retain {
        /// Which partition.
        partition: u8,
        /// How many.
        records: u8,
    },
    /// The broker cannot name the partitions of its topics for a while.
    Unanswered {
        /// How many questions.
        questions: u8,
    },
    /// Somebody else commits.
    Foreign(Foreign),
    /// Old snapshots are expired.
    Expire {
        /// How many are kept.
        keep: u8,
    },
    /// The settings change, at one worker after the other.
    Change {
        /// Which of them, and how.
        how: u8,
    },
    /// A worker takes the newest settings.
    Adopt {
        /// Which.
        worker: u8,
    },
    /// Somebody's expiry leaves nothing of ours on the table.
    Overrun,
    /// A person repeats one of our commits that a roll-back has taken out.
    Pick {
        /// Which.
        which: u8,
    },
    /// The table's owner agrees to go on from it as it is, where a worker does not by itself.
    Accept,
    /// The table is rolled back by a person.
    Rollback {
        /// So many snapshots.
        back: u8,
    },
    /// A writer is declared drained, or is no longer.
    Drain {
        /// Which.
        pipeline: u8,
        /// Whether it is.
        drained: bool,
    },
    /// A person takes back that a stretch is complete.
    Retract {
        /// So many cells before the claim it begins.
        back: u8,
        /// Of so many cells.
        cells: u8,
    },
    /// The table is copied; the copy must not claim.
    Copy,
    /// The packed state is gone from the table's properties.
    ForgetState,
    /// For more than an hour a partition brings nothing but signals.
    Quiet {
        /// Which.
        partition: u8,
    },
}

impl Settings {
    /// The policy, at revision 1.
    pub(super) fn policy(&self) -> Policy {
        let us = |ms: i64| ms * 1000;
        Policy {
            revision: 1,
            grid: self.grid(),
            bounds: Bounds {
                allowed_lateness_us: us(self.lateness_ms),
                max_delay_us: us(self.delay_ms),
                max_future_skew_us: us(self.skew_ms),
                max_age_us: (self.age_ms > 0).then_some(us(self.age_ms)),
            },
            window_commits: self.window_commits,
            window_duration_us: us(self.window_ms),
            terms: self.terms(),
            quantile: LADDER.get(self.quantile).copied(),
            heartbeats: Heartbeats::from_repr(self.heartbeats).unwrap_or_default(),
            complete_from: FromRule::Derived,
            on_join: if self.backfill {
                OnJoin::Backfill
            } else {
                OnJoin::Reopen
            },
            late_data: LateData::ALL[usize::from(self.late) % LateData::ALL.len()],
        }
    }

    /// The cells at the start.
    pub(super) fn grid(&self) -> Grid {
        let zone = ZONES.get(self.zone).and_then(|zone| zone.name);
        let grid = Grid::in_zone(self.cell_ms * 1000, zone);
        grid.expect("drawn from the lengths that make a grid")
    }

    /// The cells after their owner has changed them: others of about the length.
    pub(super) fn other_grid(&self, how: u8) -> Grid {
        let lengths_ms = [self.cell_ms / 5, self.cell_ms * 3, self.cell_ms / 2];
        let other = Grid::new(lengths_ms[usize::from(how) % lengths_ms.len()] * 1000);
        other.unwrap_or_else(|_| self.grid())
    }

    /// When the history begins.
    pub(super) fn start_us(&self) -> i64 {
        ZONES[self.zone % ZONES.len()].start_s * SECOND_US
    }

    /// The admitted terms.
    pub(super) fn terms(&self) -> BTreeSet<Term> {
        let terms = self.terms.iter();
        terms.filter_map(|label| Term::from_label(label)).collect()
    }

    /// Where worker clocks may lie apart from the true time.
    pub(super) fn clock_us(worker: usize) -> i64 {
        const APART_US: i64 = SECOND_US / 4;
        [0, APART_US, -APART_US][worker % 3]
    }
}

/// The most that a worker's clock is off.
pub(super) const CLOCKS_US: i64 = SECOND_US / 4;
