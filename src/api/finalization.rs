//! What a specification asks of the finalization core: the [`Policy`] of a pipeline.
//!
//! In: an effective specification, whose numbers are sound. Out: the policy at revision 0; which revision it is, the table says.

use super::{
    effective::effective,
    pipeline::IngestionPipeline,
    worker::{self, EffectiveSpec, Finalization},
};
use crate::watermark::{
    Bounds, FromRule, Grid, Heartbeats, LateData, NoGrid, OnJoin, Policy, Quantile, Term,
};

impl EffectiveSpec {
    /// The finalization that it asks for.
    ///
    /// # Errors
    /// The length of a cell does not divide a day, or its zone is none.
    pub fn policy(&self) -> Result<Policy, NoGrid> {
        let finalization = &self.finalization;
        Ok(Policy {
            revision: 0,
            grid: Grid::in_zone(finalization.cell_us, finalization.zone.as_deref())?,
            bounds: finalization.bounds(),
            window_commits: finalization.window_commits,
            window_duration_us: finalization.window_duration_us.unwrap_or(0),
            terms: finalization
                .terms
                .iter()
                .map(|term| (*term).into())
                .collect(),
            quantile: finalization.quantile.map(Quantile::from),
            heartbeats: match &self.source.heartbeat {
                None => Heartbeats::None,
                Some(worker::Heartbeat::Connector(_)) => Heartbeats::Connector,
                Some(worker::Heartbeat::Table(_)) => Heartbeats::Table,
            },
            complete_from: match finalization.complete_from {
                None => FromRule::Derived,
                Some(worker::CompleteFrom::Unbounded) => FromRule::Unbounded,
                Some(worker::CompleteFrom::Instant(us)) => FromRule::Instant(us),
            },
            late_data: match finalization.late_data {
                worker::LateData::Ignore => LateData::Ignore,
                worker::LateData::Notify => LateData::Notify,
                worker::LateData::Reopen => LateData::Reopen,
            },
            on_join: match finalization.on_join {
                worker::OnJoin::Reopen => OnJoin::Reopen,
                worker::OnJoin::Backfill => OnJoin::Backfill,
            },
        })
    }
}

impl Finalization {
    fn bounds(&self) -> Bounds {
        Bounds {
            allowed_lateness_us: self.allowed_lateness_us,
            max_delay_us: self.max_delay_us,
            max_future_skew_us: self.max_future_skew_us,
            max_age_us: self.max_age_us,
        }
    }
}

/// The policy of a pipeline whose manifest says nothing of its finalization, as revision 1 of a table.
///
/// # Panics
/// Never: the built-in defaults are sound.
#[must_use]
pub fn built_in_policy() -> Policy {
    let spec = serde_json::json!({
        "source": {"kafka": {"bootstrapServers": "any:9092", "topics": ["any"]}, "format": "DebeziumJson"},
        "sink": {"catalog": {"type": "Rest", "uri": "http://any"}, "table": "any.any"},
    });
    let spec = serde_json::from_value(spec).expect("it has all that has to be there");
    let spec = effective(&IngestionPipeline::new("any", spec)).expect("it breaks no rule");
    Policy {
        revision: 1,
        ..spec.policy().expect("an hour divides a day")
    }
}

impl From<worker::Term> for Term {
    fn from(term: worker::Term) -> Self {
        match term {
            worker::Term::Resolved => Self::Resolved,
            worker::Term::Minimum => Self::Minimum,
            worker::Term::Heartbeat => Self::Heartbeat,
            worker::Term::CaughtUp => Self::CaughtUp,
            worker::Term::Percentile => Self::Percentile,
            worker::Term::Clock => Self::Clock,
        }
    }
}

impl From<worker::Quantile> for Quantile {
    fn from(quantile: worker::Quantile) -> Self {
        match quantile {
            worker::Quantile::Permille => Self::Permille,
            worker::Quantile::Percent => Self::Percent,
            worker::Quantile::FivePercent => Self::FivePercent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of one changes the claims of every pipeline that says nothing.
    #[test]
    fn defaults_are_those_that_are_documented() {
        const MINUTE_US: i64 = 60_000_000;
        let expected = Policy {
            revision: 1,
            grid: Grid::new(60 * MINUTE_US).unwrap(),
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
        };
        assert_eq!(built_in_policy(), expected);
    }
}
