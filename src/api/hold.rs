//! Which reason a held cell, or a claim that does not count, has.
//!
//! In: what the finalization core says of a state or a table, and the clock. Out: a [`Reason`] with its remedy, the same one in
//! `/progress`, in a condition and in `tidemark why`.
//!
//! Until its end and the greatest delay have passed an open cell is the usual course, whoever holds it.

use super::{condition::Reason, progress::HoldProgress, worker};
use crate::watermark::{Grid, Heartbeats, Held, HeldBy, Hold, State, Term};

/// What holds the next cell of a table, as of one of its commits: enough to say so at any later instant, when nobody can look at
/// the table again.
#[derive(Debug, Clone)]
pub struct Holding {
    hold: Hold,
    grid: Grid,
    max_delay_us: i64,
    heartbeats: Heartbeats,
    newest_heartbeat_us: Option<i64>,
    /// The newest change is a row of an initial snapshot.
    snapshot: bool,
}

impl Holding {
    /// What holds the next cell of a state.
    #[must_use]
    pub fn of(hold: Hold, state: &State) -> Self {
        Self {
            hold,
            grid: state.policy.grid,
            max_delay_us: state.policy.bounds.max_delay_us,
            heartbeats: state.policy.heartbeats,
            newest_heartbeat_us: state.newest_heartbeat_us,
            snapshot: state.newest_change.is_some_and(|change| change.snapshot),
        }
    }

    /// All of it by the clock `now_us`.
    #[must_use]
    pub fn at(&self, now_us: i64) -> HoldProgress {
        let (partition, term) = match &self.hold.by {
            HeldBy::Unanchored { topic, partition } => (Some(format!("{topic}/{partition}")), None),
            HeldBy::Partition {
                topic,
                partition,
                term,
            } => (
                Some(format!("{topic}/{partition}")),
                term.map(worker::Term::from),
            ),
            _ => (None, None),
        };
        HoldProgress {
            cell_end_us: Some(self.cell_end_us(now_us)),
            partition,
            term,
            reason: self.reason(now_us),
            since_us: self.hold.since_us,
        }
    }

    /// The end of the cell that is waited for. Without a claim it is the one that the least frontier has entered, and where
    /// nothing is known at all the one that ended last.
    #[must_use]
    pub fn cell_end_us(&self, now_us: i64) -> i64 {
        match (self.hold.cell_us, self.hold.reached_us) {
            (Some(cell_us), _) => self.grid.end(cell_us),
            (None, Some(reached_us)) => self.grid.end(reached_us),
            (None, None) => self.grid.floor(now_us),
        }
    }

    /// Why the cell is open.
    #[must_use]
    pub fn reason(&self, now_us: i64) -> Reason {
        let due_us = self.cell_end_us(now_us).saturating_add(self.max_delay_us);
        match &self.hold.by {
            HeldBy::Policy { .. } => Reason::PolicyOutdated,
            HeldBy::NoPartition => Reason::NoPartition,
            HeldBy::NoTerm => Reason::SpecInvalid,
            _ if now_us < due_us => Reason::CellOpen,
            HeldBy::NotAsked | HeldBy::Asked => Reason::BrokerNotAsked,
            HeldBy::Unanchored { .. } => Reason::PartitionNew,
            HeldBy::Clock => Reason::CellOpen,
            HeldBy::Writer { .. } => Reason::WriterBehind,
            HeldBy::Partition { .. } if self.snapshot => Reason::SnapshotRunning,
            HeldBy::Partition { .. } if !self.is_source_alive(due_us) => Reason::ConnectorSilent,
            HeldBy::Partition { term, .. } => match term {
                None => Reason::WindowIncomplete,
                Some(Term::Resolved) => Reason::WatermarkMissing,
                Some(Term::Minimum | Term::Percentile) => Reason::PartitionBehind,
                Some(Term::Heartbeat | Term::CaughtUp) => Reason::PartitionSilent,
                Some(Term::Clock) => Reason::CellOpen,
            },
        }
    }

    /// Whether the source has shown a heartbeat late enough to close the cell, or shows none at all.
    fn is_source_alive(&self, due_us: i64) -> bool {
        self.heartbeats == Heartbeats::None || self.newest_heartbeat_us >= Some(due_us)
    }
}

impl Reason {
    /// Why a table's claim does not count. `leads_back`: main's history holds a commit of ours all the same, from which its writer
    /// goes on by itself.
    #[must_use]
    pub fn of_held(held: &Held, leads_back: bool) -> Self {
        match held {
            Held::Void => Self::TableRecreated,
            Held::NotInAncestry if leads_back => Self::RolledBack,
            Held::NotInAncestry => Self::TableReplaced,
            Held::LineageUnknown => Self::LineageUnknown,
            Held::CherryPicked { .. } => Self::CherryPicked,
            Held::Removed | Held::Unreadable(_) => Self::StateUnreadable,
        }
    }
}

impl From<Term> for worker::Term {
    fn from(term: Term) -> Self {
        match term {
            Term::Resolved => Self::Resolved,
            Term::Minimum => Self::Minimum,
            Term::Heartbeat => Self::Heartbeat,
            Term::CaughtUp => Self::CaughtUp,
            Term::Percentile => Self::Percentile,
            Term::Clock => Self::Clock,
        }
    }
}
