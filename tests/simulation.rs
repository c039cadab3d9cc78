//! Whole histories from seeds against the oracle: ten thousand, the same ones on every machine.
//!
//! What they held is printed: `cargo test --test tidemark simulation -- --nocapture`.

use std::{thread, time::Duration};

use tidemark::simulate::{Options, run};

#[test]
fn no_promise_is_broken_in_ten_thousand_histories_that_leave_nothing_out() {
    let report = run(&Options {
        histories: 10_000,
        seed: 1,
        at_least: Duration::ZERO,
        threads: thread::available_parallelism().map_or(1, usize::from),
    });
    eprintln!("{}\nseconds {}", report.tally, report.elapsed.as_secs());
    let failure = report.failure.map(|failure| failure.to_string());
    assert_eq!(failure, None);
    assert_eq!(report.tally.missing(), []);
    assert!(report.tally.is_telling(), "{}", report.tally);
}
