//! What tests of this room begin with.

use crate::watermark::{Bounds, FromRule, Grid, Heartbeats, LateData, OnJoin, Policy};

/// Hourly cells without any bound or term, by a window of so many commits.
pub(super) fn policy(revision: u64, window_commits: u32) -> Policy {
    Policy {
        revision,
        grid: Grid::new(3_600_000_000).unwrap(),
        bounds: Bounds {
            allowed_lateness_us: 0,
            max_delay_us: 0,
            max_future_skew_us: 0,
            max_age_us: None,
        },
        window_commits,
        window_duration_us: 0,
        terms: [].into(),
        quantile: None,
        heartbeats: Heartbeats::None,
        complete_from: FromRule::Derived,
        late_data: LateData::Notify,
        on_join: OnJoin::Reopen,
    }
}
