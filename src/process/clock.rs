//! The only reader of the time.
//!
//! Everything that asks for an instant, waits or backs off is given a [`Clock`]. The system's clock is the usual one; the
//! demo runs the same worker code on a scaled one, on which an hour passes in seconds.
//!
//! Wall time may jump, the monotonic time never does: lengths are measured by [`Clock::monotonic`], and [`JumpWatch`]
//! tells when the two have come apart.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

/// A wall clock that has gone more than this against the monotonic one has jumped.
pub const JUMP_TOLERANCE: Duration = Duration::from_secs(30);

/// The first delay of a usual [`Backoff`].
pub const BACKOFF_FIRST: Duration = Duration::from_secs(5);

/// The longest delay of a usual [`Backoff`].
pub const BACKOFF_MOST: Duration = Duration::from_mins(5);

/// Wall time, monotonic time and sleeping, all at one pace. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    started: Instant,
    pace: Pace,
    /// What [`Clock::step`] has added to the wall time.
    stepped_us: AtomicI64,
}

#[derive(Debug)]
enum Pace {
    System,
    Scaled { factor: u32, start_us: i64 },
}

impl Clock {
    /// The machine's own clock.
    #[must_use]
    pub fn system() -> Self {
        Self::with(Pace::System)
    }

    /// A clock that goes `factor` times as fast and shows the present instant once `run` of real time has passed.
    ///
    /// With 300 an hour passes in 12 s: `Clock::scaled(300, 40 s)` starts 3 h 19 min ago. Beyond the end of the run it shows the
    /// present, and never the future: nobody could check what is claimed of that. The monotonic time keeps its pace, so that
    /// what is measured by it (intervals, patience) is as long as before.
    #[must_use]
    pub fn scaled(factor: u32, run: Duration) -> Self {
        let factor = factor.max(1);
        let ahead = micros(run) * i64::from(factor - 1);
        Self::with(Pace::Scaled {
            factor,
            start_us: system_now_us() - ahead,
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this file is the reader of the time"
    )]
    fn with(pace: Pace) -> Self {
        let inner = Inner {
            started: Instant::now(),
            pace,
            stepped_us: AtomicI64::new(0),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Wall time in µs since 1970-01-01 UTC. It may jump, back as well.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        let stepped = self.inner.stepped_us.load(Ordering::Relaxed);
        let now = match self.inner.pace {
            Pace::System => system_now_us(),
            Pace::Scaled { start_us, .. } => {
                (start_us + micros(self.monotonic())).min(system_now_us())
            }
        };
        now + stepped
    }

    /// Time since this clock was made, at its own pace. It never goes back.
    #[must_use]
    pub fn monotonic(&self) -> Duration {
        self.inner.started.elapsed() * self.factor()
    }

    /// Waits until `length` has passed on this clock.
    pub async fn sleep(&self, length: Duration) {
        tokio::time::sleep(self.real(length)).await;
    }

    /// How long `length` of this clock takes on the machine's: for time-outs of calls that know no other clock.
    #[must_use]
    pub fn real(&self, length: Duration) -> Duration {
        length / self.factor()
    }

    /// How many times faster than the machine's this clock goes.
    #[must_use]
    pub fn factor(&self) -> u32 {
        match self.inner.pace {
            Pace::System => 1,
            Pace::Scaled { factor, .. } => factor,
        }
    }

    /// Moves the wall time of this clock, as an administrator would; the monotonic time stays.
    pub fn step(&self, by_us: i64) {
        self.inner.stepped_us.fetch_add(by_us, Ordering::Relaxed);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this file is the reader of the time"
)]
fn system_now_us() -> i64 {
    match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    }
}

/// A length in µs; one beyond 292,000 years is the greatest.
#[must_use]
pub fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}

/// A length of µs; a negative one is none.
#[must_use]
pub fn length(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

/// Tells when the wall time has jumped against the monotonic one.
///
/// An instant read before a jump must not be compared with one read after it. Slow drift (an NTP slew) is no jump: each
/// observation is compared with the one before.
#[derive(Debug)]
pub struct JumpWatch {
    tolerance_us: i64,
    last: Option<(i64, i64)>,
}

impl JumpWatch {
    /// A watch that overlooks what is within `tolerance`; [`JUMP_TOLERANCE`] is the usual one.
    #[must_use]
    pub fn new(tolerance: Duration) -> Self {
        Self {
            tolerance_us: micros(tolerance),
            last: None,
        }
    }

    /// Reads both times of `clock` and tells by how many µs the wall jumped since the last look, if it did.
    pub fn look(&mut self, clock: &Clock) -> Option<i64> {
        self.observe(clock.now_us(), clock.monotonic())
    }

    /// The same of two readings that belong together.
    pub fn observe(&mut self, now_us: i64, monotonic: Duration) -> Option<i64> {
        let monotonic_us = micros(monotonic);
        let (last_now, last_monotonic) = self.last.replace((now_us, monotonic_us))?;
        let jump = now_us.saturating_sub(last_now) - (monotonic_us - last_monotonic);
        (jump.saturating_abs() > self.tolerance_us).then_some(jump)
    }
}

/// Delays between tries: each twice the one before up to a longest, and each shortened at random by up to a quarter so that
/// many who failed together do not try together.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Default for Backoff {
    /// 5 s, doubling to 5 min.
    fn default() -> Self {
        Self::new(BACKOFF_FIRST, BACKOFF_MOST)
    }
}

impl Backoff {
    /// Starts at `first` and never waits longer than `most`.
    #[must_use]
    pub fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            next: first.min(most),
        }
    }

    /// How long to wait before the next try, on the clock of the caller.
    pub fn next_delay(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.most);
        jittered(whole)
    }

    /// A try has succeeded: the next failure waits the first delay again.
    pub fn reset(&mut self) {
        self.next = self.first.min(self.most);
    }
}

/// `length` shortened at random by up to a quarter.
#[must_use]
pub fn jittered(length: Duration) -> Duration {
    length.mul_f64(1.0 - fastrand::f64() / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: i64 = 1_000_000;

    /// A demo whose last hour lies in the future would show claims that nobody can check.
    #[test]
    fn scaled_clock_shows_the_present_at_the_end_of_its_run() {
        let clock = Clock::scaled(300, Duration::from_secs(40));
        let behind_us = Clock::system().now_us() - clock.now_us();
        let expected_us = 299 * 40 * SECOND_US;
        assert!(
            (behind_us - expected_us).abs() < 30 * SECOND_US,
            "{behind_us} µs behind"
        );
        assert_eq!(clock.real(Duration::from_hours(1)), Duration::from_secs(12));
    }

    #[test]
    fn scaled_clock_that_has_arrived_goes_with_the_present() {
        let clock = Clock::scaled(1_000_000_000, Duration::ZERO);
        let mut last_us = clock.now_us();
        let hour = Duration::from_hours(1);
        while clock.monotonic() < 1_000 * hour {
            let now_us = clock.now_us();
            assert!(now_us >= last_us && now_us <= Clock::system().now_us());
            last_us = now_us;
        }
    }

    #[test]
    fn stepped_clock_moves_the_wall_and_not_the_monotonic_time() {
        let clock = Clock::system();
        let mut watch = JumpWatch::new(JUMP_TOLERANCE);
        assert_eq!(watch.look(&clock), None);
        clock.step(-300 * SECOND_US);
        let jump = watch
            .look(&clock)
            .expect("a step of five minutes is a jump");
        assert!((jump + 300 * SECOND_US).abs() < 30 * SECOND_US, "{jump}");
        assert_eq!(watch.look(&clock), None);
    }

    #[test]
    fn slow_drift_is_no_jump() {
        let mut watch = JumpWatch::new(JUMP_TOLERANCE);
        for minute in 0..60 {
            let now_us = minute * 61 * SECOND_US;
            let monotonic = Duration::from_secs(u64::try_from(minute).unwrap() * 60);
            assert_eq!(watch.observe(now_us, monotonic), None);
        }
    }

    #[test]
    fn backoff_doubles_to_its_longest_and_starts_again() {
        let mut backoff = Backoff::default();
        for whole in [5, 10, 20, 40, 80, 160, 300, 300] {
            let delay = backoff.next_delay();
            let whole = Duration::from_secs(whole);
            assert!(
                delay <= whole && delay >= whole * 3 / 4,
                "{delay:?} of {whole:?}"
            );
        }
        backoff.reset();
        assert!(backoff.next_delay() <= BACKOFF_FIRST);
    }
}
