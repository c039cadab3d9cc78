//! When to commit, and what to close when memory runs short.
//!
//! Time comes in as a monotonic length since some start; nothing here waits or writes.
//!
//! Memory never commits: reaching the budget closes files, so that the size of a commit follows the interval and not the
//! number of partitions of the table.

use std::time::Duration;

/// Closed files of this number are worth a commit of their own.
pub(crate) const FILES_DUE: usize = 32;

/// The least time between two commits, unless the interval itself is shorter.
pub(crate) const LEAST_GAP: Duration = Duration::from_secs(5);

/// How often it is worked out whether the rows at hand could close a cell.
const OUTLOOK_EVERY: Duration = Duration::from_secs(1);

/// The cadence of one worker's commits.
#[derive(Clone, Debug)]
pub(crate) struct Cadence {
    interval: Duration,
    /// This worker's place within the interval.
    phase: Duration,
    workers: u32,
    /// A moving mean of what an attempt takes.
    attempt: Duration,
    last: Option<Duration>,
    /// When the table was last looked at.
    looked: Duration,
    /// When it was last worked out whether the rows at hand could close a cell.
    outlooked: Duration,
    /// Whether the open cell could have closed at the last turn.
    closable: bool,
}

/// What is due in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing.
    Rest,
    /// To work out whether the rows at hand would close a cell: then a commit may be ([`Cadence::due`]).
    Outlook,
    /// To ask the cluster, and go to the table.
    Ask,
}

/// What waits to be committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Rows read and not committed.
    pub rows: u64,
    /// Files already closed.
    pub closed_files: usize,
}

impl Cadence {
    /// A cadence of `interval` among `workers` workers; `seed` spreads them over the interval.
    #[must_use]
    pub(crate) fn new(interval: Duration, workers: u32, seed: u64) -> Self {
        let workers = workers.max(1);
        let share = u32::try_from(seed % 1000).unwrap_or(0);
        let phase = if workers > 1 {
            interval * share / 1000
        } else {
            Duration::ZERO
        };
        Self {
            interval,
            phase,
            workers,
            attempt: Duration::ZERO,
            last: None,
            looked: Duration::ZERO,
            outlooked: Duration::ZERO,
            closable: false,
        }
    }

    /// The interval in force: longer than the one asked for where attempts take long, so that workers × attempt stays below a
    /// third of it.
    #[must_use]
    pub(crate) fn interval(&self) -> Duration {
        self.interval.max(self.attempt * self.workers * 3)
    }

    /// The start of the cadence: the first commit comes after the phase and one interval at most.
    pub(crate) fn start(&mut self, now: Duration) {
        self.last = Some((now + self.phase).saturating_sub(self.interval));
        (self.looked, self.outlooked) = (now, now);
    }

    /// The table is looked at.
    pub(crate) fn look(&mut self, now: Duration) {
        self.looked = now;
    }

    /// Whether the open cell could have closed at the last turn, were all rows there.
    #[must_use]
    pub(crate) fn is_closable(&self) -> bool {
        self.closable
    }

    /// What is due now. `closable`: the clock has passed the end of the open cell and the greatest delay.
    pub(crate) fn turn(&mut self, now: Duration, waiting: Waiting, closable: bool) -> Turn {
        let just_closable = closable && !self.closable;
        self.closable = closable;
        let rested = now.saturating_sub(self.looked) >= LEAST_GAP.min(self.interval());
        if just_closable && rested || self.look_due(now, self.looked) {
            return Turn::Ask;
        }
        let outlook_every = OUTLOOK_EVERY.min(self.interval() / 4);
        if closable && waiting.rows > 0 && now.saturating_sub(self.outlooked) >= outlook_every {
            self.outlooked = now;
            return Turn::Outlook;
        }
        if self.due(now, waiting, false) {
            Turn::Ask
        } else {
            Turn::Rest
        }
    }

    /// A commit was made at `now`, and took `attempt` for each try.
    pub(crate) fn committed(&mut self, now: Duration, attempt: Duration) {
        self.attempt = (self.attempt * 3 + attempt) / 4;
        self.last = Some(now);
    }

    /// Whether a commit of rows is due. `could_close`: the rows at hand would close a cell.
    #[must_use]
    pub(crate) fn due(&self, now: Duration, waiting: Waiting, could_close: bool) -> bool {
        let since = now.saturating_sub(self.last.unwrap_or(now));
        if waiting.rows == 0 || since < LEAST_GAP.min(self.interval) {
            return false;
        }
        could_close || waiting.closed_files >= FILES_DUE || since >= self.interval()
    }

    /// Whether it is time to look at the table without rows of one's own.
    #[must_use]
    pub(crate) fn look_due(&self, now: Duration, last_look: Duration) -> bool {
        let since = now.saturating_sub(self.last.unwrap_or(now).max(last_look));
        since >= self.interval()
    }
}

/// How much of the budget the open files may take; the rest is for rows being decoded and for the client's queue.
#[must_use]
pub(crate) fn writer_budget(memory_budget_bytes: u64) -> usize {
    usize::try_from(memory_budget_bytes / 2).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;
    const ROWS: Waiting = Waiting {
        rows: 1,
        closed_files: 0,
    };

    fn committed_at(at: u64, attempt_ms: u64, workers: u32) -> Cadence {
        let mut cadence = Cadence::new(S(60), workers, 0);
        cadence.committed(S(at), Duration::from_millis(attempt_ms));
        cadence
    }

    #[test]
    fn nothing_new_is_never_due() {
        let waiting = Waiting {
            rows: 0,
            closed_files: 99,
        };
        assert!(!committed_at(0, 0, 1).due(S(600), waiting, true));
    }

    #[test]
    fn rows_are_due_after_the_interval() {
        let cadence = committed_at(100, 0, 1);
        assert!(!cadence.due(S(159), ROWS, false));
        assert!(cadence.due(S(160), ROWS, false));
    }

    #[test]
    fn cell_that_could_close_is_due_early_but_not_at_once() {
        let cadence = committed_at(100, 0, 1);
        assert!(!cadence.due(S(104), ROWS, true));
        assert!(cadence.due(S(105), ROWS, true));
    }

    #[test]
    fn many_closed_files_are_due_early() {
        let waiting = Waiting {
            rows: 1,
            closed_files: FILES_DUE,
        };
        assert!(committed_at(100, 0, 1).due(S(105), waiting, false));
    }

    #[test]
    fn interval_shorter_than_the_least_gap_is_kept() {
        let mut cadence = Cadence::new(S(1), 1, 0);
        cadence.committed(S(10), Duration::ZERO);
        assert!(cadence.due(S(11), ROWS, false));
    }

    /// Otherwise workers would spend their time in conflicts with each other.
    #[test]
    fn slow_attempts_of_many_workers_stretch_the_interval() {
        let mut cadence = committed_at(0, 10_000, 6);
        for _ in 0..40 {
            cadence.committed(S(0), S(10));
        }
        assert!(cadence.interval() >= S(179), "{:?}", cadence.interval());
    }

    #[test]
    fn workers_start_spread_over_the_interval() {
        let first = |seed| {
            let mut cadence = Cadence::new(S(60), 3, seed);
            cadence.start(S(1000));
            (1000..2000).find(|s| cadence.due(S(*s), ROWS, false))
        };
        assert_eq!(
            (first(0), first(500), first(999)),
            (Some(1000), Some(1030), Some(1060))
        );
    }
}
