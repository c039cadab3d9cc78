//! The settings that are tried: those in force, and others around them.
//!
//! In: a policy. Out: values of its fields, each with the name and the form that a manifest has for it.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};

use crate::{
    api::quantity::length,
    watermark::{LADDER, Policy, Quantile},
};

const MINUTE_US: i64 = 60_000_000;
const HOUR_US: i64 = 60 * MINUTE_US;

/// Window lengths that are tried, in commits.
const COMMITS: [u32; 6] = [1, 2, 3, 5, 10, 20];

/// Values of the bounds that are tried.
const LENGTHS_US: [i64; 9] = [
    0,
    MINUTE_US,
    2 * MINUTE_US,
    5 * MINUTE_US,
    10 * MINUTE_US,
    15 * MINUTE_US,
    30 * MINUTE_US,
    HOUR_US,
    2 * HOUR_US,
];

/// A field of `spec.finalization` that is tried.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    strum::EnumIter,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Field {
    /// N: how many commits with rows of a partition the window holds.
    WindowCommits,
    /// L: how far out of order the rows of a partition may come.
    AllowedLateness,
    /// D: how long after its event time a row is in Kafka at the latest.
    MaxDelay,
    /// The share of the rows of each commit that the term percentile leaves out.
    Quantile,
}

impl Field {
    /// Every field.
    pub const ALL: [Field; 4] = [
        Field::WindowCommits,
        Field::AllowedLateness,
        Field::MaxDelay,
        Field::Quantile,
    ];

    /// Its name in the manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The settings of one trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Setting {
    /// See [`Field::WindowCommits`].
    pub window_commits: u32,
    /// See [`Field::AllowedLateness`].
    #[serde(rename = "allowedLateness", serialize_with = "lengths")]
    pub allowed_lateness_us: i64,
    /// See [`Field::MaxDelay`].
    #[serde(rename = "maxDelay", serialize_with = "lengths")]
    pub max_delay_us: i64,
    /// See [`Field::Quantile`]; none where the term is not admitted.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "share")]
    pub quantile: Option<Quantile>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn lengths<S: Serializer>(us: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&length(*us))
}

#[expect(
    clippy::ref_option,
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn share<S: Serializer>(quantile: &Option<Quantile>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(quantile.map_or(0.0, Quantile::share))
}

impl Setting {
    /// Those of a policy.
    pub(super) fn of(policy: &Policy) -> Self {
        Self {
            window_commits: policy.window_commits,
            allowed_lateness_us: policy.bounds.allowed_lateness_us,
            max_delay_us: policy.bounds.max_delay_us,
            quantile: policy.quantile,
        }
    }

    /// A policy with these settings.
    pub(super) fn on(self, policy: &Policy) -> Policy {
        let mut policy = policy.clone();
        policy.window_commits = self.window_commits;
        policy.bounds.allowed_lateness_us = self.allowed_lateness_us;
        policy.bounds.max_delay_us = self.max_delay_us;
        policy.quantile = self.quantile;
        policy
    }

    /// The same with half of its bounds.
    pub(super) fn halved(self) -> Self {
        Self {
            allowed_lateness_us: self.allowed_lateness_us / 2,
            max_delay_us: self.max_delay_us / 2,
            ..self
        }
    }

    /// One field as people write it.
    #[must_use]
    pub fn value(&self, field: Field) -> String {
        match field {
            Field::WindowCommits => self.window_commits.to_string(),
            Field::AllowedLateness => length(self.allowed_lateness_us),
            Field::MaxDelay => length(self.max_delay_us),
            Field::Quantile => self.quantile.map_or("", Quantile::label).to_owned(),
        }
    }

    /// The fields in which two settings differ.
    pub(super) fn changed(&self, other: &Setting) -> Vec<Field> {
        let differs = |field: &Field| self.value(*field) != other.value(*field);
        Field::ALL.into_iter().filter(differs).collect()
    }

    /// This setting with other values of a field, in order.
    pub(super) fn varied(self, field: Field) -> Vec<Setting> {
        let commits = || {
            let values = COMMITS.into_iter().chain([self.window_commits]);
            values.collect::<BTreeSet<u32>>().into_iter()
        };
        let lengths = |own: i64, least: i64| {
            let values = LENGTHS_US
                .into_iter()
                .filter(move |us| *us >= least)
                .chain([own]);
            values.collect::<BTreeSet<i64>>().into_iter()
        };
        match field {
            Field::WindowCommits => commits()
                .map(|window_commits| Setting {
                    window_commits,
                    ..self
                })
                .collect(),
            Field::AllowedLateness => lengths(self.allowed_lateness_us, 0)
                .map(|allowed_lateness_us| Setting {
                    allowed_lateness_us,
                    ..self
                })
                .collect(),
            Field::MaxDelay => lengths(self.max_delay_us, MINUTE_US)
                .map(|max_delay_us| Setting {
                    max_delay_us,
                    ..self
                })
                .collect(),
            Field::Quantile if self.quantile.is_some() => LADDER
                .into_iter()
                .map(|quantile| Setting {
                    quantile: Some(quantile),
                    ..self
                })
                .collect(),
            Field::Quantile => Vec::new(),
        }
    }
}
