//! Which reason a held cell, or a claim that does not count, has.
//!
//! In: what the finalization core says of a state or a table, and the clock. Out: a [`Reason`] with its remedy, the same one in
//! `/progress`, in a condition and in `tidemark why`.
//!
//! Until its end and the greatest delay have passed an open cell is the usual course, whoever holds it.

use super::{condition::Reason, progress::HoldProgress, worker};
use crate::watermark::{Grid, Heartbeats, Held, HeldBy, Hold, State, Term};

impl HoldProgress {
    /// What holds the next cell of a state, by the clock `now_us`.
    #[must_use]
    pub fn of(hold: &Hold, state: &State, now_us: i64) -> Self {
        let cell_end_us = cell_end_us(hold, state.policy.grid, now_us);
        let (partition, term) = match &hold.by {
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
        Self {
            cell_end_us,
            partition,
            term,
            reason: Reason::of_hold(hold, state, cell_end_us, now_us),
            since_us: hold.since_us,
        }
    }
}

/// The end of the cell that is waited for. Without a claim it is the one that the least frontier has entered, and where
/// nothing is known at all the one that ended last.
fn cell_end_us(hold: &Hold, grid: Grid, now_us: i64) -> i64 {
    match (hold.cell_us, hold.reached_us) {
        (Some(cell_us), _) => grid.end(cell_us),
        (None, Some(reached_us)) => grid.end(reached_us),
        (None, None) => grid.floor(now_us),
    }
}

impl Reason {
    /// Why the cell that ends at `cell_end_us` is open.
    #[must_use]
    pub fn of_hold(hold: &Hold, state: &State, cell_end_us: i64, now_us: i64) -> Self {
        let due_us = cell_end_us.saturating_add(state.policy.bounds.max_delay_us);
        match &hold.by {
            HeldBy::Policy { .. } => Self::PolicyOutdated,
            HeldBy::NoPartition => Self::NoPartition,
            HeldBy::NoTerm => Self::SpecInvalid,
            _ if now_us < due_us => Self::CellOpen,
            HeldBy::NotAsked | HeldBy::Asked => Self::BrokerNotAsked,
            HeldBy::Unanchored { .. } => Self::PartitionNew,
            HeldBy::Clock => Self::CellOpen,
            HeldBy::Writer { .. } => Self::WriterBehind,
            HeldBy::Partition { .. }
                if state.newest_change.is_some_and(|change| change.snapshot) =>
            {
                Self::SnapshotRunning
            }
            HeldBy::Partition { .. } if !is_alive(state, due_us) => Self::ConnectorSilent,
            HeldBy::Partition { term, .. } => match term {
                None => Self::WindowIncomplete,
                Some(Term::Resolved) => Self::WatermarkMissing,
                Some(Term::Minimum | Term::Percentile) => Self::PartitionBehind,
                Some(Term::Heartbeat | Term::CaughtUp) => Self::PartitionSilent,
                Some(Term::Clock) => Self::CellOpen,
            },
        }
    }

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

/// Whether the source has shown a heartbeat late enough to close the cell, or shows none at all.
fn is_alive(state: &State, due_us: i64) -> bool {
    state.policy.heartbeats == Heartbeats::None || state.newest_heartbeat_us >= Some(due_us)
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
