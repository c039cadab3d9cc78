//! What readers are answered from: every pipeline's claim as this replica knows it.
//!
//! On every replica it is filled from the objects' statuses; the leader lays over them what the workers said last. It is a cache:
//! nothing is asked for a reader's sake.
//!
//! Whoever waits for one pipeline is woken by changes of that one alone, so that ten thousand who wait cost as much as those whose
//! answer changes.

mod known;

use std::{
    collections::BTreeMap,
    fmt,
    ops::Bound,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::watch;

use super::Key;

pub use known::Known;
#[cfg(test)]
pub(super) use known::tests;

/// The claims. Clones are the same.
#[derive(Clone, Default)]
pub struct Claims {
    by_key: Arc<RwLock<BTreeMap<Key, watch::Sender<Arc<Known>>>>>,
    version: Arc<AtomicU64>,
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("known", &self.read().len())
            .finish_non_exhaustive()
    }
}

impl Claims {
    /// Takes in what is known of a pipeline now. Those who wait for it hear it if it is another than before.
    pub fn set(&self, known: Known) {
        let known = Arc::new(known);
        let told = self.read().get(&known.key).map(|entry| {
            // A pipeline made again is another one: who waits for the old one hears that it is gone.
            let same_uid = entry.borrow().kept.uid == known.kept.uid;
            same_uid.then(|| {
                entry.send_if_modified(|before| {
                    let changed = **before != *known;
                    if changed {
                        *before = Arc::clone(&known);
                    }
                    changed
                })
            })
        });
        let changed = if let Some(Some(changed)) = told {
            changed
        } else {
            let mut all = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
            all.insert(known.key.clone(), watch::Sender::new(known));
            true
        };
        if changed {
            self.version.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A pipeline is gone: who waits for it hears it.
    pub fn remove(&self, key: &Key) {
        let mut all = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(key);
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// What is known of a pipeline.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Known>> {
        let all = self.read();
        Some(Arc::clone(&all.get(key)?.borrow()))
    }

    /// The same, to be waited on: it ends when the pipeline is gone.
    #[must_use]
    pub fn subscribe(&self, key: &Key) -> Option<watch::Receiver<Arc<Known>>> {
        Some(self.read().get(key)?.subscribe())
    }

    /// At most `most` that are wanted, in the order of their keys, beginning behind `after`.
    #[must_use]
    pub fn page(
        &self,
        after: Option<&Key>,
        most: usize,
        mut is_wanted: impl FnMut(&Known) -> bool,
    ) -> Vec<Arc<Known>> {
        let all = self.read();
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = all.range((begin, Bound::Unbounded));
        let known = entries.map(|(_, entry)| Arc::clone(&entry.borrow()));
        known.filter(|known| is_wanted(known)).take(most).collect()
    }

    /// All of one namespace.
    #[must_use]
    pub fn of_namespace(&self, namespace: &str) -> Vec<Arc<Known>> {
        let all = self.read();
        let entries = all.range(Key::new(namespace, "")..);
        let own = entries.take_while(|(key, _)| key.namespace == namespace);
        own.map(|(_, entry)| Arc::clone(&entry.borrow())).collect()
    }

    /// Another number with each change of any of them.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Looks at each.
    pub fn each(&self, mut look: impl FnMut(&Known)) {
        for entry in self.read().values() {
            look(&entry.borrow());
        }
    }

    /// The claim that lies furthest back, by namespace, µs. Pipelines without a claim have none.
    #[must_use]
    pub fn oldest(&self) -> BTreeMap<String, i64> {
        let mut oldest = BTreeMap::new();
        self.each(|known| {
            if let Some(before_us) = known.finalized_before_us() {
                let least = oldest
                    .entry(known.key.namespace.clone())
                    .or_insert(before_us);
                *least = before_us.min(*least);
            }
        });
        oldest
    }

    /// How many wait for a pipeline.
    #[cfg(test)]
    pub(super) fn waiting(&self, key: &Key) -> usize {
        self.read()
            .get(key)
            .map_or(0, watch::Sender::receiver_count)
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Key, watch::Sender<Arc<Known>>>> {
        self.by_key.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod cache_tests {
    use super::*;

    #[test]
    fn who_waits_hears_changes_of_that_one_only() {
        let claims = Claims::default();
        let orders = known::tests::orders();
        claims.set(orders.clone());
        let mut heard = claims.subscribe(&orders.key).unwrap();
        assert!(!heard.has_changed().unwrap());
        claims.set(orders.clone());
        let other = Known {
            key: Key::new("shop", "items"),
            ..orders.clone()
        };
        claims.set(other);
        assert!(!heard.has_changed().unwrap());
        let mut risen = orders.clone();
        known::tests::change(&mut risen, |status| status.epoch = Some(2));
        claims.set(risen);
        assert!(heard.has_changed().unwrap());
        heard.mark_unchanged();
        // Made again under its name.
        claims.set(Known {
            kept: Arc::new(known::tests::kept("v", "a", "shop.orders")),
            ..orders.clone()
        });
        assert!(heard.has_changed().is_err(), "it ends");
        claims.remove(&orders.key);
        assert_eq!(claims.get(&orders.key), None);
    }

    #[test]
    fn pages_follow_each_other() {
        let claims = Claims::default();
        for name in ["a", "b", "c", "d"] {
            claims.set(Known {
                key: Key::new("shop", name),
                ..known::tests::orders()
            });
        }
        claims.set(Known {
            key: Key::new("toys", "a"),
            ..known::tests::orders()
        });
        let names = |page: Vec<Arc<Known>>| {
            page.iter()
                .map(|known| known.key.to_string())
                .collect::<Vec<_>>()
        };
        let wanted = |known: &Known| known.key.name != "b";
        let first = claims.page(None, 2, wanted);
        let last = first.last().unwrap().key.clone();
        assert_eq!(names(first), ["shop/a", "shop/c"]);
        assert_eq!(
            names(claims.page(Some(&last), 2, wanted)),
            ["shop/d", "toys/a"]
        );
        assert_eq!(claims.of_namespace("shop").len(), 4);
        assert_eq!(claims.oldest().len(), 2);
    }
}
