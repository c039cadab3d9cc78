//! What is counted of saying how pipelines are: statuses written, workers asked, readers that wait.
//!
//! No label holds a name of a pipeline: ten thousand series of each would be more than the fleet itself. The oldest claim is told
//! by namespace, the greatest unit that somebody owns.

use std::{fmt, sync::atomic::AtomicU64};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Unit,
};
use strum::{EnumIter, IntoEnumIterator};

use crate::process::Metrics;

/// Why a status was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue, EnumIter)]
pub enum Dropped {
    /// Too many waited.
    Full,
    /// This replica does not lead any more.
    NotLeading,
    /// The object had changed since.
    Stale,
    /// The object was gone.
    Gone,
}

/// How asking a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue, EnumIter)]
pub enum Polled {
    /// With what it does.
    Answered,
    /// With something that cannot be read.
    Unreadable,
    /// With an error of HTTP.
    Refused,
    /// Not at all.
    Unreachable,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    reason: Dropped,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: Polled,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Namespace {
    namespace: String,
}

/// The counters. Clones are the same ones.
#[derive(Clone, Default)]
pub struct Counts {
    wanted: Counter,
    merged: Counter,
    written: Counter,
    failed: Counter,
    dropped: Family<Why, Counter>,
    polls: Family<Outcome, Counter>,
    events: Counter,
    events_dropped: Counter,
    oldest: Family<Namespace, Gauge<f64, AtomicU64>>,
    held_open: Gauge,
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counts")
    }
}

impl Counts {
    /// Registers them all.
    #[must_use]
    pub fn register(metrics: &Metrics) -> Self {
        let counts = Self::default();
        // An alarm on a series that is absent would never come.
        for reason in Dropped::iter() {
            drop(counts.dropped.get_or_create(&Why { reason }));
        }
        for outcome in Polled::iter() {
            drop(counts.polls.get_or_create(&Outcome { outcome }));
        }
        metrics.register(|registry| {
            let mut plain = |name: &str, help: &str, counter: &Counter| {
                registry.register(name, help, counter.clone());
            };
            plain(
                "status_writes_wanted",
                "Statuses that differed from what the object had",
                &counts.wanted,
            );
            plain(
                "status_writes_merged",
                "Statuses that took the place of one that waited",
                &counts.merged,
            );
            plain("status_writes", "Statuses written", &counts.written);
            plain(
                "status_writes_failed",
                "Status writes that the API server failed or refused",
                &counts.failed,
            );
            plain("events", "Kubernetes Events sent", &counts.events);
            plain(
                "events_dropped",
                "Kubernetes Events left out, because there were too many",
                &counts.events_dropped,
            );
            registry.register(
                "status_writes_dropped",
                "Statuses that were not written, by reason",
                counts.dropped.clone(),
            );
            registry.register(
                "worker_polls",
                "Questions to workers, by outcome",
                counts.polls.clone(),
            );
            registry.register(
                "readers_waiting",
                "Requests of readers that wait for a claim",
                counts.held_open.clone(),
            );
            registry.register_with_unit(
                "oldest_claim_age",
                "Age of the claim that lies furthest back, by namespace",
                Unit::Seconds,
                counts.oldest.clone(),
            );
        });
        counts
    }

    /// A status differs from what the object has.
    pub fn wanted(&self) {
        self.wanted.inc();
    }

    /// It took the place of one that waited.
    pub fn merged(&self) {
        self.merged.inc();
    }

    /// It is on the object.
    pub fn written(&self) {
        self.written.inc();
    }

    /// The API server failed or refused it.
    pub fn failed(&self) {
        self.failed.inc();
    }

    /// So many were not written.
    pub fn dropped(&self, reason: Dropped, count: usize) {
        if count > 0 {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            self.dropped.get_or_create(&Why { reason }).inc_by(count);
        }
    }

    /// A worker was asked.
    pub fn polled(&self, outcome: Polled) {
        self.polls.get_or_create(&Outcome { outcome }).inc();
    }

    /// An Event was sent, or left out.
    pub fn event(&self, sent: bool) {
        if sent {
            self.events.inc();
        } else {
            self.events_dropped.inc();
        }
    }

    /// A reader's request waits until what this returns is dropped.
    #[must_use]
    pub fn waits(&self) -> Waits {
        self.held_open.inc();
        Waits(self.held_open.clone())
    }

    /// The age of the claim that lies furthest back, by namespace; all others are forgotten.
    pub fn oldest<'a>(&self, ages: impl IntoIterator<Item = (&'a str, f64)>) {
        self.oldest.clear();
        for (namespace, seconds) in ages {
            let namespace = namespace.to_owned();
            self.oldest
                .get_or_create(&Namespace { namespace })
                .set(seconds);
        }
    }
}

/// A reader's request that waits.
#[derive(Debug)]
pub struct Waits(Gauge);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.dec();
    }
}
