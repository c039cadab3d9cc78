//! What the operator counts.
//!
//! Names, units and help texts stand here once. No label holds the name of a pipeline: ten thousand of them would be ten thousand
//! series; what is wrong with which one is in its status.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use strum::IntoEnumIterator;

use crate::api::condition::ConditionType;

/// From what is decided in memory to a server that is overloaded.
const SECONDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepOutcome {
    step: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    verb: &'static str,
    kind: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Standing {
    condition: String,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: String,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics of an operator. Clones count together.
#[derive(Clone, Debug)]
pub struct OperatorMetrics {
    queue_depth: Gauge,
    queue_wait: Histogram,
    reconcile: Histograms<StepOutcome>,
    calls: Family<Call, Counter>,
    pipelines: Family<Standing, Gauge>,
    undecodable: Family<OfKind, Gauge>,
    changes_waiting: Gauge,
    leader: Gauge,
}

impl OperatorMetrics {
    /// Registers them all.
    pub fn register(registry: &mut Registry) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(SECONDS);
        let metrics = Self {
            queue_depth: Gauge::default(),
            queue_wait: histogram(),
            reconcile: Family::new_with_constructor(histogram),
            calls: Family::default(),
            pipelines: Family::default(),
            undecodable: Family::default(),
            changes_waiting: Gauge::default(),
            leader: Gauge::default(),
        };
        metrics.show_zeros();
        let name = |name: &str| format!("operator_{name}");
        registry.register(
            name("queue_depth"),
            "Tasks that wait for a hand",
            metrics.queue_depth.clone(),
        );
        registry.register_with_unit(
            name("queue_wait"),
            "How long tasks waited for a hand",
            Unit::Seconds,
            metrics.queue_wait.clone(),
        );
        registry.register_with_unit(
            name("reconcile"),
            "How long the steps of a task took, by step and outcome",
            Unit::Seconds,
            metrics.reconcile.clone(),
        );
        registry.register(
            name("api_calls"),
            "Calls of the API server, by verb, kind and outcome",
            metrics.calls.clone(),
        );
        registry.register(
            name("pipelines"),
            "Pipelines, by condition and its status",
            metrics.pipelines.clone(),
        );
        registry.register(
            name("undecodable"),
            "Objects that cannot be decoded, by kind",
            metrics.undecodable.clone(),
        );
        registry.register(
            name("changes_waiting"),
            "Tasks whose change waits for its turn in a wave",
            metrics.changes_waiting.clone(),
        );
        registry.register(
            name("leader"),
            "1 while this replica leads",
            metrics.leader.clone(),
        );
        metrics
    }

    /// Series that are there from the start: an alarm on one that is absent would never come.
    fn show_zeros(&self) {
        for kind in ConditionType::iter() {
            for status in ["True", "False", "Unknown"] {
                self.set_pipelines(kind.into(), status, 0);
            }
        }
        for kind in ["IngestionPipeline", "IngestionPolicy"] {
            self.set_undecodable(kind, 0);
        }
        for step in ["decide", "apply", "pipeline", "pool", "namespace"] {
            let outcomes = match step {
                "decide" => ["accepted", "refused"],
                _ => ["ok", "failed"],
            };
            for outcome in outcomes {
                drop(self.reconcile.get_or_create(&StepOutcome { step, outcome }));
            }
        }
    }

    /// How many tasks wait.
    pub fn set_queue_depth(&self, depth: usize) {
        self.queue_depth
            .set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// A task was taken in hand.
    pub fn waited(&self, waited: Duration) {
        self.queue_wait.observe(waited.as_secs_f64());
    }

    /// A step of a task has ended.
    pub fn step(&self, step: &'static str, outcome: &'static str, took: Duration) {
        let of = StepOutcome { step, outcome };
        self.reconcile
            .get_or_create(&of)
            .observe(took.as_secs_f64());
    }

    /// The API server was called.
    pub fn call(&self, verb: &'static str, kind: &str, outcome: &'static str) {
        let of = Call {
            verb,
            kind: kind.to_owned(),
            outcome,
        };
        self.calls.get_or_create(&of).inc();
    }

    /// How many pipelines have a condition with this status.
    pub fn set_pipelines(&self, condition: &str, status: &'static str, count: usize) {
        let of = Standing {
            condition: condition.to_owned(),
            status,
        };
        self.pipelines
            .get_or_create(&of)
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// How many objects of a kind cannot be decoded.
    pub fn set_undecodable(&self, kind: &str, count: usize) {
        let of = OfKind {
            kind: kind.to_owned(),
        };
        self.undecodable
            .get_or_create(&of)
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// How many changes wait for their turn.
    pub fn set_changes_waiting(&self, count: usize) {
        self.changes_waiting
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Whether this replica leads.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{operator::counts::Counts, process::Metrics};

    /// Who writes an alarm sees its series before anything has gone wrong.
    #[test]
    fn series_are_there_from_the_start() {
        let metrics = Metrics::default();
        metrics.register(OperatorMetrics::register);
        let _ = Counts::register(&metrics);
        let text = metrics.encode();
        for series in [
            "operator_undecodable{kind=\"IngestionPolicy\"} 0",
            "operator_pipelines{condition=\"Ready\",status=\"False\"} 0",
            "status_writes_dropped_total{reason=\"Full\"} 0",
            "worker_polls_total{outcome=\"Unreachable\"} 0",
        ] {
            assert!(text.contains(series), "{series}\n{text}");
        }
    }
}
