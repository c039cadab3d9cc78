//! Whether a pipeline's own loop still turns.
//!
//! The loop gives a sign of life at every turn, and says beforehand how long it means to rest. It turns whether or not there
//! are rows, and while brokers or catalog are away, so that silence has one meaning: the thread is stuck, and only a new
//! process helps. Times are real ones, measured from any fixed instant.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Silence after which a loop is taken for stuck: twice what its longest wait may take, which is the commit of what was read
/// of partitions that the group takes away.
pub(super) const STUCK_AFTER: Duration = Duration::from_mins(5);

/// The signs of life of one loop. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Pulse {
    /// Until when the loop may be silent, ms.
    due_ms: Arc<AtomicU64>,
}

impl Pulse {
    /// A loop that is about to begin.
    #[must_use]
    pub(super) fn new(now: Duration) -> Self {
        let pulse = Self {
            due_ms: Arc::default(),
        };
        pulse.beat(now);
        pulse
    }

    /// The loop turns.
    pub(super) fn beat(&self, now: Duration) {
        self.rest(now, Duration::ZERO);
    }

    /// The loop turns, and will rest so long.
    pub(super) fn rest(&self, now: Duration, length: Duration) {
        let due = now.saturating_add(length).saturating_add(STUCK_AFTER);
        self.due_ms.store(millis(due), Ordering::Relaxed);
    }

    /// For how long the loop has given no sign of life, once that is too long.
    #[must_use]
    pub(super) fn stuck_for(&self, now: Duration) -> Option<Duration> {
        let over = millis(now).checked_sub(self.due_ms.load(Ordering::Relaxed))?;
        Some(STUCK_AFTER + Duration::from_millis(over))
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: fn(u64) -> Duration = Duration::from_mins;

    #[test]
    fn loop_that_turns_is_never_stuck() {
        let pulse = Pulse::new(MINUTE(0));
        for minute in 1..100 {
            assert_eq!(pulse.stuck_for(MINUTE(minute)), None);
            pulse.beat(MINUTE(minute));
        }
    }

    #[test]
    fn loop_without_a_sign_of_life_is_stuck_until_the_next_one() {
        let pulse = Pulse::new(MINUTE(10));
        let almost = MINUTE(15).saturating_sub(Duration::from_millis(1));
        assert_eq!(pulse.stuck_for(almost), None);
        assert_eq!(pulse.stuck_for(MINUTE(15)), Some(MINUTE(5)));
        assert_eq!(pulse.stuck_for(MINUTE(22)), Some(MINUTE(12)));
        pulse.beat(MINUTE(22));
        assert_eq!(pulse.stuck_for(MINUTE(22)), None);
    }

    /// A pipeline that waits for a person rests for minutes, one that is suspended for ever.
    #[test]
    fn rest_that_was_announced_is_no_silence() {
        let pulse = Pulse::new(MINUTE(0));
        pulse.rest(MINUTE(0), MINUTE(5));
        assert_eq!(pulse.stuck_for(MINUTE(9)), None);
        assert_eq!(pulse.stuck_for(MINUTE(10)), Some(MINUTE(5)));
        pulse.rest(MINUTE(10), Duration::MAX);
        assert_eq!(pulse.stuck_for(MINUTE(1_000_000)), None);
    }
}
