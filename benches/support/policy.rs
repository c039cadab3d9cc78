//! The finalization that the benches run under.

use tidemark::watermark::{Bounds, FromRule, Grid, Heartbeats, LateData, OnJoin, Policy, Term};

const MINUTE_US: i64 = 60_000_000;

/// A pipeline's defaults.
pub(crate) fn policy() -> Policy {
    Policy {
        revision: 1,
        grid: Grid::new(60 * MINUTE_US).expect("an hour divides a day"),
        bounds: Bounds {
            allowed_lateness_us: 5 * MINUTE_US,
            max_delay_us: 10 * MINUTE_US,
            max_future_skew_us: 5 * MINUTE_US,
            max_age_us: None,
        },
        window_commits: 3,
        window_duration_us: 0,
        terms: [Term::Minimum, Term::CaughtUp].into(),
        quantile: None,
        heartbeats: Heartbeats::None,
        complete_from: FromRule::Derived,
        late_data: LateData::Notify,
        on_join: OnJoin::Reopen,
    }
}
