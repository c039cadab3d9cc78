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
    /// By kind.
    pub children: BTreeMap<Kind, ChildSeen>,
    /// What the `ConfigMap` holds, by uid.
    pub entries: Arc<BTreeMap<String, Arc<Entry>>>,
    /// How the Deployment stands.
    pub deployment: DeploymentSeen,
}

impl WorkersSeen {
    /// When one of the children was last changed, and how the pipelines were then.
    #[must_use]
    pub fn changed(&self) -> Option<Changed> {
        let changed = self.children.values().filter_map(|child| child.changed);
        changed.max_by_key(|changed| changed.at_us)
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
