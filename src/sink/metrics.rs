//! What a worker counts, by pipeline and table.
//!
//! Names, units and help texts stand here once. No label holds a key, an offset or free text; partitions are a label of lag
//! alone. What is only true of a pipeline that is there (its claim, its lag, what it holds) goes with it; counters stay.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::ingest::Counted;
use crate::kafka::TopicPartition;
use crate::process::age::{Age, AgesBy};
use crate::process::clock::Clock;
use crate::watermark::Excluded;

/// From a local catalog's few milliseconds to an outage.
const COMMIT_SECONDS: [f64; 12] = [
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    pipeline: String,
    table: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    pipeline: String,
    table: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPartition {
    pipeline: String,
    table: String,
    topic: String,
    partition: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CommitOutcome {
    pipeline: String,
    table: String,
    outcome: &'static str,
}

/// The metrics of a worker.
#[derive(Clone)]
pub(super) struct WorkerMetrics {
    records: Family<Of, Counter>,
    bytes: Family<Of, Counter>,
    rows: Family<Of, Counter>,
    committed_rows: Family<Of, Counter>,
    signals: Family<OfKind, Counter>,
    dead_letters: Family<Of, Counter>,
    unknown_fields: Family<Of, Counter>,
    excluded: Family<OfKind, Counter>,
    late: Family<Of, Counter>,
    lag: Family<OfPartition, Gauge>,
    commits: Family<CommitOutcome, Histogram, fn() -> Histogram>,
    conflicts: Family<Of, Counter>,
    claim: Family<Of, Gauge>,
    claim_age: Family<Of, Age, AgesBy>,
    heartbeat_age: Family<Of, Age, AgesBy>,
    held: Family<Of, Gauge>,
}

impl WorkerMetrics {
    /// Registers them all; ages are by `clock`.
    pub(super) fn register(registry: &mut Registry, clock: &Clock) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(COMMIT_SECONDS);
        let commits = Family::new_with_constructor(histogram);
        let help = "Commit attempts, by outcome";
        registry.register_with_unit("commit", help, Unit::Seconds, commits.clone());
        let mut add = Add(registry);
        Self {
            records: add.plain("records", "Kafka records read"),
            bytes: add.with_unit("read", Unit::Bytes, "Keys and values read"),
            rows: add.plain("rows", "Rows decoded; those of a dropped batch come again"),
            committed_rows: add.plain("committed_rows", "Rows committed"),
            signals: add.plain("signals", "Records that are no row, by kind"),
            dead_letters: add.plain("dead_letters", "Records sent to the dead-letter topic"),
            unknown_fields: add.plain("unknown_fields", "Values without a column"),
            excluded: add.plain("excluded_rows", "Rows without a say in the claim, by kind"),
            late: add.plain("late_rows", "Rows committed below the claim"),
            lag: add.plain(
                "lag_records",
                "Offsets between the table and the partition's end",
            ),
            commits,
            conflicts: add.plain("commit_conflicts", "Attempts that another commit preceded"),
            claim: add.with_unit("claim", Unit::Seconds, "Complete before it, since 1970"),
            claim_age: add.age("claim_age", "How far the clock is past the claim", clock),
            heartbeat_age: add.age(
                "heartbeat_age",
                "Age of the newest heartbeat that the source was seen to send",
                clock,
            ),
            held: add.with_unit("held", Unit::Bytes, "Rows and open files in memory"),
        }
    }

    /// The metrics of one pipeline.
    #[must_use]
    pub(super) fn pipeline(&self, pipeline: &str, table: &str) -> PipelineMetrics {
        PipelineMetrics {
            all: self.clone(),
            of: Of {
                pipeline: pipeline.to_owned(),
                table: table.to_owned(),
            },
        }
    }
}

struct Add<'r>(&'r mut Registry);

impl Add<'_> {
    fn plain<L: EncodeLabelSet + Label, M: EncodeMetric + Value>(
        &mut self,
        name: &str,
        help: &str,
    ) -> Family<L, M> {
        let family = Family::default();
        self.0.register(name, help, family.clone());
        family
    }

    fn with_unit<L: EncodeLabelSet + Label, M: EncodeMetric + Value>(
        &mut self,
        name: &str,
        unit: Unit,
        help: &str,
    ) -> Family<L, M> {
        let family = Family::default();
        self.0.register_with_unit(name, help, unit, family.clone());
        family
    }

    fn age<L: EncodeLabelSet + Label>(
        &mut self,
        name: &str,
        help: &str,
        clock: &Clock,
    ) -> Family<L, Age, AgesBy> {
        let family = Family::new_with_constructor(AgesBy(clock.clone()));
        self.0
            .register_with_unit(name, help, Unit::Seconds, family.clone());
        family
    }
}

/// What a registry wants of labels.
trait Label: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {}
impl<T: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static> Label for T {}

/// What a registry wants of metrics.
trait Value: TypedMetric + Default + fmt::Debug + Send + Sync + 'static {}
impl<T: TypedMetric + Default + fmt::Debug + Send + Sync + 'static> Value for T {}

/// The metrics of one pipeline.
#[derive(Clone)]
pub(super) struct PipelineMetrics {
    all: WorkerMetrics,
    of: Of,
}

impl PipelineMetrics {
    /// What ingestion counted.
    pub(super) fn read(&self, counted: &Counted) {
        self.all
            .records
            .get_or_create(&self.of)
            .inc_by(counted.records);
        self.all.bytes.get_or_create(&self.of).inc_by(counted.bytes);
        self.all.rows.get_or_create(&self.of).inc_by(counted.rows);
        self.all
            .dead_letters
            .get_or_create(&self.of)
            .inc_by(counted.dead_letters);
        self.all
            .unknown_fields
            .get_or_create(&self.of)
            .inc_by(counted.unknown_fields);
        for (kind, count) in &counted.signals {
            self.all
                .signals
                .get_or_create(&self.kind(kind))
                .inc_by(*count);
        }
    }

    fn kind(&self, kind: &'static str) -> OfKind {
        OfKind {
            pipeline: self.of.pipeline.clone(),
            table: self.of.table.clone(),
            kind,
        }
    }

    /// What a commit put on the table.
    pub(super) fn put(&self, rows: u64, excluded: &Excluded, late: u64) {
        self.all.committed_rows.get_or_create(&self.of).inc_by(rows);
        self.all.late.get_or_create(&self.of).inc_by(late);
        for (kind, count) in super::progress::excluded_kinds(excluded) {
            self.all
                .excluded
                .get_or_create(&self.kind(kind))
                .inc_by(count);
        }
    }

    /// An attempt that is on the table.
    pub(super) fn committed(&self, elapsed: Duration) {
        self.attempt("committed", elapsed);
    }

    /// An attempt that is not, or of which it is not known.
    pub(super) fn failed(&self, outcome: &'static str, elapsed: Duration) {
        self.attempt(outcome, elapsed);
        if outcome == "conflict" {
            self.all.conflicts.get_or_create(&self.of).inc();
        }
    }

    fn attempt(&self, outcome: &'static str, elapsed: Duration) {
        let outcome = CommitOutcome {
            pipeline: self.of.pipeline.clone(),
            table: self.of.table.clone(),
            outcome,
        };
        self.all
            .commits
            .get_or_create(&outcome)
            .observe(elapsed.as_secs_f64());
    }

    /// The claim as of a look at it; `None`: there is none.
    pub(super) fn claim(&self, claim_us: Option<i64>) {
        let Some(claim_us) = claim_us else {
            self.all.claim.remove(&self.of);
            self.all.claim_age.remove(&self.of);
            return;
        };
        self.all
            .claim
            .get_or_create(&self.of)
            .set(claim_us.div_euclid(1_000_000));
        self.all.claim_age.get_or_create(&self.of).set_of(claim_us);
    }

    /// The source's newest heartbeat.
    pub(super) fn heartbeat(&self, heartbeat_us: i64) {
        self.all
            .heartbeat_age
            .get_or_create(&self.of)
            .set_of(heartbeat_us);
    }

    /// The pipeline is no longer this worker's: nothing is said of it as if it still were.
    pub(super) fn leave(&self) {
        self.claim(None);
        self.all.heartbeat_age.remove(&self.of);
        self.all.held.remove(&self.of);
    }

    /// What is held in memory.
    pub(super) fn held(&self, bytes: usize) {
        self.all
            .held
            .get_or_create(&self.of)
            .set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// What is still to be read of a partition.
    pub(super) fn lag(&self, at: &TopicPartition, records: i64) {
        self.all
            .lag
            .get_or_create(&self.of_partition(at))
            .set(records);
    }

    /// This worker no longer reads a partition.
    pub(super) fn forget(&self, at: &TopicPartition) {
        self.all.lag.remove(&self.of_partition(at));
    }

    fn of_partition(&self, at: &TopicPartition) -> OfPartition {
        OfPartition {
            pipeline: self.of.pipeline.clone(),
            table: self.of.table.clone(),
            topic: at.topic.to_string(),
            partition: at.partition,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Metrics;

    const MINUTE_US: i64 = 60_000_000;

    struct Scene {
        metrics: Metrics,
        clock: Clock,
        orders: PipelineMetrics,
        other: PipelineMetrics,
    }

    fn scene() -> Scene {
        let (metrics, clock) = (Metrics::default(), Clock::system());
        let all = metrics.register(|registry| WorkerMetrics::register(registry, &clock));
        Scene {
            orders: all.pipeline("shop/orders", "shop.orders"),
            other: all.pipeline("shop/other", "shop.other"),
            metrics,
            clock,
        }
    }

    impl Scene {
        /// What is scraped of a metric of `shop/orders`.
        fn scraped(&self, metric: &str) -> Option<i64> {
            let page = self.metrics.encode();
            let series = format!("tidemark_{metric}{{pipeline=\"shop/orders\",");
            let line = page.lines().find(|line| line.starts_with(&series))?;
            Some(line.rsplit(' ').next()?.parse().expect("a whole number"))
        }
    }

    /// Nobody looks at a table whose catalog is away, and that is when its age matters.
    #[test]
    fn ages_go_on_between_two_looks() {
        let scene = scene();
        let now_us = scene.clock.now_us();
        scene.orders.claim(Some(now_us - 7 * MINUTE_US));
        scene.orders.heartbeat(now_us - MINUTE_US);
        let ages = || ["claim_age_seconds", "heartbeat_age_seconds"].map(|age| scene.scraped(age));
        let near = |seconds: i64| Some(seconds)..=Some(seconds + 30);
        let [claim, heartbeat] = ages();
        assert!(near(420).contains(&claim), "{claim:?}");
        assert!(near(60).contains(&heartbeat), "{heartbeat:?}");
        scene.clock.step(MINUTE_US);
        let [claim, heartbeat] = ages();
        assert!(near(480).contains(&claim), "{claim:?}");
        assert!(near(120).contains(&heartbeat), "{heartbeat:?}");
    }

    /// A claim that was taken back is not 56 years old, and one of a pipeline that left is nobody's.
    #[test]
    fn claim_that_is_not_there_has_no_series() {
        let scene = scene();
        let series = || ["claim_seconds", "claim_age_seconds"].map(|name| scene.scraped(name));
        scene.other.claim(Some(0));
        assert_eq!(series(), [None, None], "none yet");
        scene.orders.claim(Some(MINUTE_US));
        assert_eq!(series()[0], Some(60));
        scene.orders.claim(None);
        assert_eq!(series(), [None, None], "taken back");
        scene.orders.claim(Some(MINUTE_US));
        scene.orders.heartbeat(MINUTE_US);
        scene.orders.held(5);
        scene.orders.leave();
        assert_eq!(series(), [None, None], "left");
        for gone in ["heartbeat_age_seconds", "held_bytes"] {
            assert_eq!(scene.scraped(gone), None, "{gone}");
        }
        let page = scene.metrics.encode();
        assert!(page.contains("pipeline=\"shop/other\""), "{page}");
    }
}
