//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

/// How long to leave the machine to others between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks again and again until `look` gives something, and gives that. Fails, naming `what`, when the deadline has passed.
#[track_caller]
#[expect(
    clippy::disallowed_methods,
    reason = "a deadline of the test itself is not on any clock under test"
)]
pub(crate) fn within<T>(deadline: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            start.elapsed() < deadline,
            "not within {deadline:?}: {what}"
        );
        std::thread::sleep(PAUSE);
    }
}

/// Lets a time pass: for what lasts, such as an outage.
#[expect(
    clippy::disallowed_methods,
    reason = "an outage lasts as long as it lasts"
)]
pub(crate) fn pause(length: Duration) {
    std::thread::sleep(length);
}

/// Lets a random moment pass, for a fault that falls at any time.
pub(crate) fn some_moment(longest: Duration) {
    pause(longest.mul_f64(fastrand::f64()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_gives_what_was_found_at_last() {
        let mut looks = 0;
        let found = within(Duration::from_secs(10), "the third look", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
    }

    #[test]
    #[should_panic(expected = "not within 1ms: a thing that never comes")]
    fn within_fails_by_name() {
        within(Duration::from_millis(1), "a thing that never comes", || {
            None::<()>
        });
    }
}
