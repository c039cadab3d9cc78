//! Waiting for a condition, never for a time alone.

use std::time::Duration;

use tidemark::process::clock::Clock;

/// How long to leave the machine to others between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Asks again and again until `look` gives something. Fails, naming `what`, when the deadline has passed.
#[track_caller]
pub(crate) fn within<T>(deadline: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::system();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            clock.monotonic() < deadline,
            "not within {deadline:?}: {what}"
        );
        rest(PAUSE);
    }
}

/// Leaves the machine to others.
#[expect(
    clippy::disallowed_methods,
    reason = "a bench waits for other processes and is on no clock itself"
)]
pub(crate) fn rest(length: Duration) {
    std::thread::sleep(length);
}
