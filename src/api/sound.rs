//! Whether an effective specification is one that a manifest can bring about.
//!
//! Whoever writes one by hand is not kept by the rules of manifests from numbers under which a claim would be none, a buffer
//! would hold nothing or a loop would never rest. In: the specification. Out: every number out of its bounds.

use std::{fmt, ops::RangeInclusive};

use super::worker::EffectiveSpec;

const SECOND_US: i64 = 1_000_000;
const HOUR_US: i64 = 3_600 * SECOND_US;
const DAY_US: i64 = 24 * HOUR_US;
const WEEK_US: i64 = 7 * DAY_US;

/// A number out of its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfBounds {
    /// The field, as the file has it.
    pub field: &'static str,
    /// Its value.
    pub value: i128,
    /// What it may be.
    pub bounds: RangeInclusive<i128>,
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            bounds,
        } = self;
        let (least, most) = (bounds.start(), bounds.end());
        write!(
            f,
            "{field}: {value} is out of bounds; write a number from {least} to {most}"
        )
    }
}

impl EffectiveSpec {
    /// Every number that no manifest brings about.
    #[must_use]
    pub fn out_of_bounds(&self) -> Vec<OutOfBounds> {
        let within = |number: &OutOfBounds| number.bounds.contains(&number.value);
        let all = self.of_finalization().into_iter().chain(self.of_the_rest());
        all.filter(|number| !within(number)).collect()
    }

    fn of_finalization(&self) -> Vec<OutOfBounds> {
        let spec = &self.finalization;
        let number = |field, value: i64, bounds| check(field, value.into(), bounds);
        let week = || 0..=WEEK_US;
        vec![
            number("finalization.cellUs", spec.cell_us, SECOND_US..=DAY_US),
            number(
                "finalization.allowedLatenessUs",
                spec.allowed_lateness_us,
                week(),
            ),
            number("finalization.maxDelayUs", spec.max_delay_us, week()),
            number(
                "finalization.maxFutureSkewUs",
                spec.max_future_skew_us,
                week(),
            ),
            number(
                "finalization.windowDurationUs",
                spec.window_duration_us.unwrap_or(0),
                week(),
            ),
            number(
                "finalization.maxAgeUs",
                spec.max_age_us.unwrap_or(1),
                1..=10_000 * DAY_US,
            ),
            number(
                "finalization.windowCommits",
                spec.window_commits.into(),
                1..=64,
            ),
        ]
    }

    fn of_the_rest(&self) -> Vec<OutOfBounds> {
        let (sink, expire, worker) = (&self.sink, &self.sink.expire, &self.worker);
        let number = |field, value: i64, bounds| check(field, value.into(), bounds);
        let budget: i128 = worker.memory_budget_bytes.into();
        vec![
            // Below a manifest's second: a worker keeps up with it, and tests are in a hurry.
            number(
                "sink.commitIntervalUs",
                sink.commit_interval_us,
                SECOND_US / 10..=HOUR_US,
            ),
            number(
                "sink.expire.keepUs",
                expire.keep_us,
                60 * SECOND_US..=30 * DAY_US,
            ),
            number(
                "sink.expire.keepSnapshots",
                expire.keep_snapshots.into(),
                3..=1_000,
            ),
            number("sink.expire.graceUs", expire.grace_us, 0..=WEEK_US),
            number("worker.replicas", worker.replicas.into(), 1..=64),
            check("worker.memoryBudgetBytes", budget, 16 << 20..=64 << 30),
        ]
    }
}

fn check(field: &'static str, value: i128, bounds: RangeInclusive<i64>) -> OutOfBounds {
    OutOfBounds {
        field,
        value,
        bounds: i128::from(*bounds.start())..=i128::from(*bounds.end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::load_manifests;

    const MANIFEST: &str = r"
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {name: orders, namespace: shop}
spec:
  source:
    kafka: {bootstrapServers: 'kafka:9092', topics: [shop.shop.orders]}
    format: DebeziumJson
  sink:
    catalog: {type: Rest, uri: 'http://catalog:8181'}
    table: shop.orders
";

    /// Every number of the file, found in the file itself: none may be forgotten when one is added.
    #[test]
    fn every_number_of_the_file_has_bounds_that_are_told_with_field_value_and_remedy() {
        let mut spec = load_manifests(MANIFEST).unwrap().remove(0).1;
        spec.finalization.max_age_us = Some(DAY_US);
        spec.finalization.window_duration_us = Some(HOUR_US);
        assert_eq!(spec.out_of_bounds(), []);
        let whole = serde_json::to_value(&spec).unwrap();
        let mut places = Vec::new();
        numbers("", &whole, &mut places);
        assert_eq!(places.len(), 13, "{places:?}");
        for place in places {
            for wrong in [-1_i64, 0, i64::MAX] {
                let mut file = whole.clone();
                *file.pointer_mut(&place).unwrap() = wrong.into();
                let field = place[1..].replace('/', ".");
                let told: Vec<String> = match EffectiveSpec::from_yaml(&file.to_string()) {
                    Ok(spec) => spec
                        .out_of_bounds()
                        .iter()
                        .map(ToString::to_string)
                        .collect(),
                    // Of a type without a sign, or a narrow one.
                    Err(error) => vec![format!("{field}: {wrong} {error}")],
                };
                let zero = ["Lateness", "Delay", "Skew", "Duration", "graceUs"];
                let zero = wrong == 0 && zero.iter().any(|one| field.contains(one));
                assert_eq!(told.len(), usize::from(!zero), "{told:?}");
                assert!(
                    zero || told[0].starts_with(&format!("{field}: {wrong} ")),
                    "{field}: {told:?}"
                );
            }
        }
    }

    fn numbers(path: &str, value: &serde_json::Value, places: &mut Vec<String>) {
        match value {
            serde_json::Value::Number(_) => places.push(path.to_owned()),
            serde_json::Value::Object(fields) => {
                for (field, value) in fields {
                    numbers(&format!("{path}/{field}"), value, places);
                }
            }
            _ => {}
        }
    }
}
