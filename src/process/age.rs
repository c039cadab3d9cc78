//! How old something is, as a metric: worked out at every scrape, by the clock that the instant is of.
//!
//! What is set is an instant. Whoever sets it may stop looking, wait or hang: the age goes on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::family::MetricConstructor;
use prometheus_client::metrics::{MetricType, TypedMetric};

use super::clock::Clock;

/// The age of an instant, whole seconds rounded down. Clones are the same.
#[derive(Clone)]
pub struct Age {
    clock: Clock,
    of_us: Arc<AtomicI64>,
}

impl Age {
    /// Of this instant from now on, µs since 1970.
    pub fn set_of(&self, us: i64) {
        self.of_us.store(us, Ordering::Relaxed);
    }

    /// By the clock as it stands.
    #[must_use]
    pub fn seconds(&self) -> i64 {
        let age_us = self
            .clock
            .now_us()
            .saturating_sub(self.of_us.load(Ordering::Relaxed));
        age_us.div_euclid(1_000_000)
    }
}

impl fmt::Debug for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Age").field(&self.of_us).finish()
    }
}

impl TypedMetric for Age {
    const TYPE: MetricType = MetricType::Gauge;
}

impl EncodeMetric for Age {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.seconds())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// Makes the ages of a family, all by one clock.
#[derive(Clone, Debug)]
pub struct AgesBy(pub Clock);

impl MetricConstructor<Age> for AgesBy {
    fn new_metric(&self) -> Age {
        Age {
            clock: self.0.clone(),
            of_us: Arc::new(AtomicI64::new(self.0.now_us())),
        }
    }
}
