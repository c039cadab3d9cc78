//! What somebody sees who watches the pipelines, as `kubectl get --watch` does.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tidemark::{
    api::{pipeline::IngestionPipeline, quantity::parse_instant_us},
    process::clock::Clock,
};

/// What is known of one pipeline.
#[derive(Debug, Clone, Default)]
struct One {
    claim_us: Option<i64>,
    /// When that claim was first seen.
    claimed_us: i64,
    spec_hash: Option<String>,
    is_ready: bool,
    /// How often it has changed.
    changes: u64,
    /// How often it has changed without saying anything else but the commit.
    repeats: u64,
}

/// Everything seen. Clones see the same.
#[derive(Clone)]
pub(crate) struct Seen {
    all: Arc<Mutex<HashMap<String, One>>>,
    /// When something has changed, µs.
    at: Arc<Mutex<Vec<i64>>>,
}

impl Seen {
    /// Begins to watch.
    pub(crate) fn start(client: &Client, clock: Clock) -> Self {
        let seen = Self {
            all: Arc::default(),
            at: Arc::default(),
        };
        let api: Api<IngestionPipeline> = Api::all(client.clone());
        let (into, config) = (seen.clone(), watcher::Config::default());
        tokio::spawn(async move {
            let changes = watcher(api, config).default_backoff().applied_objects();
            let mut changes = changes.boxed();
            while let Some(change) = changes.next().await {
                if let Ok(pipeline) = change {
                    into.take_in(&pipeline, clock.now_us());
                }
            }
        });
        seen
    }

    fn take_in(&self, pipeline: &IngestionPipeline, now_us: i64) {
        let status = pipeline.status.clone().unwrap_or_default();
        let claim = status.finalized_before.as_ref();
        let claim_us = claim.and_then(|text| parse_instant_us(&text.0));
        let mut conditions = status.conditions.iter();
        let is_ready = conditions.any(|one| one.kind == "Ready" && one.reason == "AsExpected");
        let mut all = self.lock();
        let one = all.entry(pipeline.uid().unwrap_or_default()).or_default();
        let before = (one.claim_us, one.spec_hash.clone(), one.is_ready);
        if one.claim_us != claim_us {
            one.claimed_us = now_us;
        }
        one.claim_us = claim_us;
        one.spec_hash.clone_from(&status.spec_hash);
        one.is_ready = is_ready;
        one.changes += 1;
        if before == (one.claim_us, one.spec_hash.clone(), one.is_ready) {
            one.repeats += 1;
        }
        drop(all);
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        at.push(now_us);
    }

    /// How many are known.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// How many are complete up to an instant.
    pub(crate) fn claimed(&self, before_us: i64) -> usize {
        let all = self.lock();
        let claimed = all.values().filter(|one| one.claim_us >= Some(before_us));
        claimed.count()
    }

    /// When the present claim of a pipeline was first seen.
    pub(crate) fn claimed_at(&self, uid: &str) -> Option<i64> {
        Some(self.lock().get(uid)?.claimed_us)
    }

    /// How many are ready, and run something else than `before`.
    pub(crate) fn changed_from(&self, before: &HashMap<String, String>) -> usize {
        let all = self.lock();
        let changed = all
            .iter()
            .filter(|(uid, one)| one.is_ready && one.spec_hash.as_ref() != before.get(*uid));
        changed.count()
    }

    /// How many are ready.
    pub(crate) fn ready(&self) -> usize {
        self.lock().values().filter(|one| one.is_ready).count()
    }

    /// What each of them runs.
    pub(crate) fn hashes(&self) -> HashMap<String, String> {
        let all = self.lock();
        all.iter()
            .filter_map(|(uid, one)| Some((uid.clone(), one.spec_hash.clone()?)))
            .collect()
    }

    /// Forgets how often and when they have changed.
    pub(crate) fn begin(&self) {
        for one in self.lock().values_mut() {
            (one.changes, one.repeats) = (0, 0);
        }
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        at.clear();
    }

    /// How often they have changed since then, and how often for the same claim, specification and readiness.
    pub(crate) fn changes(&self) -> (u64, u64) {
        let all = self.lock();
        let sum = |count: fn(&One) -> u64| all.values().map(count).sum();
        (sum(|one| one.changes), sum(|one| one.repeats))
    }

    /// The most changes a second over any ten seconds.
    pub(crate) fn most_per_second(&self) -> f64 {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let mut first = 0;
        let counts = at.iter().enumerate().map(|(last, now)| {
            while at[first] + 10_000_000 <= *now {
                first += 1;
            }
            u32::try_from(last - first + 1).unwrap_or(u32::MAX)
        });
        f64::from(counts.max().unwrap_or(0)) / 10.0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, One>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
