//! How many writes to the API server there may be: many at once, few in the long run.
//!
//! A status write costs the API server some ten milliseconds of CPU, whatever it changes. At the turn of the hour every pipeline has
//! one to make; over an hour they may not be more than twenty a second.
//!
//! Time is a parameter. Two buckets are emptied together: neither is asked without the other, so that a write that the one refuses
//! costs nothing of the other.

use std::time::Duration;

/// The most writes within a second.
pub(super) const PEAK_PER_SECOND: f64 = 150.0;

/// The most writes a second, over any hour.
pub(super) const HOURLY_PER_SECOND: f64 = 20.0;

/// What may be saved up for the turn of an hour. With the rate below, no hour has more than twenty a second:
/// 18,000 + 3,600 × 15 = 72,000.
const SAVED: f64 = 18_000.0;

const REFILL_PER_SECOND: f64 = HOURLY_PER_SECOND - SAVED / 3_600.0;

/// What is left of both.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    peak: Bucket,
    saved: Bucket,
}

#[derive(Debug, Clone)]
struct Bucket {
    per_second: f64,
    most: f64,
    left: f64,
    at: Duration,
}

impl Budget {
    /// A full one.
    pub(super) fn new(now: Duration) -> Self {
        let bucket = |per_second, most| Bucket {
            per_second,
            most,
            left: most,
            at: now,
        };
        Self {
            // A tenth of a second's writes may start together.
            peak: bucket(PEAK_PER_SECOND, PEAK_PER_SECOND / 10.0),
            saved: bucket(REFILL_PER_SECOND, SAVED),
        }
    }

    /// How long it takes until everything is saved up again.
    pub(super) fn full_in(&self) -> Duration {
        Duration::from_secs_f64((SAVED - self.saved.left).max(0.0) / REFILL_PER_SECOND)
    }

    /// What others have spent counts here as well: it takes so long at least until everything is saved up again.
    pub(super) fn spent(&mut self, full_in: Duration, now: Duration) {
        self.saved.fill(now);
        let left = SAVED - full_in.as_secs_f64() * REFILL_PER_SECOND;
        self.saved.left = self.saved.left.min(left.max(0.0));
    }

    /// Takes one write, or says how long to wait for it.
    pub(super) fn take(&mut self, now: Duration) -> Result<(), Duration> {
        self.peak.fill(now);
        self.saved.fill(now);
        let wait = self.peak.wait().max(self.saved.wait());
        if !wait.is_zero() {
            return Err(wait);
        }
        self.peak.left -= 1.0;
        self.saved.left -= 1.0;
        Ok(())
    }
}

impl Bucket {
    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.left = (self.left + passed * self.per_second).min(self.most);
        self.at = self.at.max(now);
    }

    fn wait(&self) -> Duration {
        if self.left >= 1.0 {
            return Duration::ZERO;
        }
        // A little more than the exact time, which floating point may miss.
        Duration::from_secs_f64((1.0 - self.left) / self.per_second) + Duration::from_micros(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes as fast as it may from `from` on, for `length`; the times of the writes.
    fn spend(budget: &mut Budget, from: Duration, length: Duration) -> Vec<Duration> {
        let (mut now, mut writes) = (from, Vec::new());
        while now < from + length {
            match budget.take(now) {
                Ok(()) => writes.push(now),
                Err(wait) => now += wait,
            }
        }
        writes
    }

    fn most_within(writes: &[Duration], window: Duration) -> usize {
        let mut first = 0;
        let counts = writes.iter().enumerate().map(|(last, at)| {
            while writes[first] + window <= *at {
                first += 1;
            }
            last - first + 1
        });
        counts.max().unwrap_or(0)
    }

    /// Ten thousand pipelines have a new claim within the minute after the hour.
    #[test]
    fn turn_of_the_hour_takes_little_more_than_a_minute() {
        let mut budget = Budget::new(Duration::ZERO);
        let writes = spend(&mut budget, Duration::ZERO, Duration::from_mins(2));
        let last = writes[9_999];
        assert!(last < Duration::from_secs(68), "{last:?}");
    }

    #[test]
    fn no_hour_has_more_than_its_share_and_no_second_more_than_the_peak() {
        let mut budget = Budget::new(Duration::ZERO);
        let writes = spend(&mut budget, Duration::ZERO, Duration::from_hours(5));
        let hour = most_within(&writes, Duration::from_hours(1));
        assert!((71_000..=72_001).contains(&hour), "{hour} in an hour");
        let second = most_within(&writes, Duration::from_secs(1));
        assert!((150..=166).contains(&second), "{second} in a second");
    }

    /// A leader that follows another one within the hour goes on with what that one has left.
    #[test]
    fn what_another_leader_has_spent_counts() {
        let (mut first, mut second) = (Budget::new(Duration::ZERO), Budget::new(Duration::ZERO));
        let mut writes = spend(&mut first, Duration::ZERO, Duration::from_mins(2));
        let killed = Duration::from_mins(3);
        let full_at = Duration::from_mins(2) + first.full_in();
        second.spent(full_at.saturating_sub(killed), killed);
        writes.extend(spend(&mut second, killed, Duration::from_mins(57)));
        let hour = most_within(&writes, Duration::from_hours(1));
        assert!((71_000..=72_001).contains(&hour), "{hour} in an hour");
        // Its own are among it already.
        let (before, now) = (second.full_in(), Duration::from_hours(1));
        second.spent(before, now);
        assert!(before.abs_diff(second.full_in()) < Duration::from_millis(1));
    }

    proptest! {
        /// Whatever pauses there are, saving up never gives an hour more than its share.
        #[test]
        fn prop_pauses_save_no_more_than_an_hour_holds(pauses in prop::collection::vec(0..7_200_u64, 1..5)) {
            let mut budget = Budget::new(Duration::ZERO);
            let (mut now, mut writes) = (Duration::ZERO, Vec::new());
            for pause in pauses {
                now += Duration::from_secs(pause);
                writes.extend(spend(&mut budget, now, Duration::from_mins(20)));
                now += Duration::from_mins(20);
            }
            prop_assert!(most_within(&writes, Duration::from_hours(1)) <= 72_001);
        }
    }
}
