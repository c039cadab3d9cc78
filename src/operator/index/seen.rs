//! What is kept of children and pods: of each what the next decision needs, and nothing else.
//!
//! Plain values; the index says whose they are.

use std::{collections::BTreeMap, sync::Arc};

use crate::operator::{
    Owner,
    build::{Entry, Kind},
};

/// A child that was seen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChildSeen {
    /// Its uid: only this one is deleted.
    pub uid: String,
    /// The version of the object: an older one that comes late says nothing.
    pub version: u64,
    /// The hash that it was written with.
    pub hash: String,
    /// The hash of what it asked for, without whose it was.
    pub spec_hash: String,
    /// What the API server holds, as a number: it is another one where somebody else has changed it.
    pub content: u64,
    /// When it was last changed, and how its pipelines were then.
    pub changed: Option<Changed>,
}

/// The children of a set of workers that were seen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkersSeen {
    /// Whose they are.
    pub owner: Option<Owner>,
    /// In the order of their kinds: they are few, and a tree has room for eleven.
    pub children: Vec<(Kind, ChildSeen)>,
    /// What the `ConfigMap` holds.
    pub entries: Entries,
    /// How the Deployment stands.
    pub deployment: DeploymentSeen,
}

impl WorkersSeen {
    /// The child of a kind.
    #[must_use]
    pub fn child(&self, kind: Kind) -> Option<&ChildSeen> {
        let place = self.place(kind).ok()?;
        Some(&self.children[place].1)
    }

    /// A child that is there, or gone.
    pub(super) fn set_child(&mut self, kind: Kind, seen: Option<ChildSeen>) {
        match (self.place(kind), seen) {
            (Ok(place), Some(seen)) => self.children[place].1 = seen,
            (Err(place), Some(seen)) => {
                self.children.reserve_exact(1);
                self.children.insert(place, (kind, seen));
            }
            (Ok(place), None) => drop(self.children.remove(place)),
            (Err(_), None) => {}
        }
    }

    fn place(&self, kind: Kind) -> Result<usize, usize> {
        self.children.binary_search_by_key(&kind, |(kind, _)| *kind)
    }

    /// When one of the children was last changed, and how the pipelines were then.
    #[must_use]
    pub fn changed(&self) -> Option<Changed> {
        let changed = self.children.iter().filter_map(|(_, child)| child.changed);
        changed.max_by_key(|changed| changed.at_us)
    }
}

/// What a `ConfigMap` holds of the pipelines: a list, because most hold one and a tree has room for eleven.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Entries {
    /// In the order of their uids.
    by_uid: Arc<[(String, Arc<Entry>)]>,
}

impl Entries {
    /// What is held of a pipeline.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&Arc<Entry>> {
        let found = self.by_uid.binary_search_by(|(one, _)| (**one).cmp(uid));
        Some(&self.by_uid[found.ok()?].1)
    }

    /// Whether a pipeline is held.
    #[must_use]
    pub fn contains(&self, uid: &str) -> bool {
        self.get(uid).is_some()
    }

    /// The uids of the pipelines that are held.
    pub fn uids(&self) -> impl Iterator<Item = &String> {
        self.by_uid.iter().map(|(uid, _)| uid)
    }

    /// Takes over what is held now. What is as before stays where it is.
    pub fn set(&mut self, entries: BTreeMap<String, Arc<Entry>>) {
        let same = self.by_uid.iter().map(|(uid, entry)| (uid, entry));
        if !same.eq(&entries) {
            *self = entries.into();
        }
    }
}

impl From<BTreeMap<String, Arc<Entry>>> for Entries {
    fn from(entries: BTreeMap<String, Arc<Entry>>) -> Self {
        Self {
            by_uid: entries.into_iter().collect(),
        }
    }
}

/// When children were last changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changed {
    /// When, µs.
    pub at_us: i64,
    /// Whether the pipelines were ready before.
    pub was_ready: bool,
}

/// How a Deployment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeploymentSeen {
    /// How many pods there shall be.
    pub wanted: u32,
    /// How many there are.
    pub replicas: u32,
    /// How many of them are ready.
    pub ready: u32,
    /// Whether all of them are as the Deployment says.
    pub rolled_out: bool,
}

/// A pod that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodSeen {
    /// The name of its workers.
    pub workers: String,
    /// Its address.
    pub address: Option<String>,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it is being ended.
    pub leaving: bool,
    /// Why it does not become ready, as the cluster says it.
    pub trouble: Option<String>,
}
