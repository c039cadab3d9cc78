//! The fleet: what the custom resources ask for, made so in the cluster.
//!
//! ```text
//! watches ─▶ index ─▶ queue ─▶ one pipeline: decide ─▶ place ─▶ wave ─▶ build ─▶ apply ─▶ report
//!              ▲                                                          │
//!              └───────────────── children and pods as they are ◀─────────┘
//! ```
//!
//! Everything that decides is pure and sees no client: [`index`], [`placement`], [`rollout`], [`build`], [`queue`]. A write to the
//! API server is made by the leader alone, and only where a hash differs.

use std::fmt;

pub mod apply;
pub mod build;
pub mod claims;
pub mod client;
pub mod counts;
pub mod events;
pub mod fleet;
pub mod gate;
pub mod http;
pub mod index;
pub mod lease;
pub mod metrics;
pub mod placement;
pub mod plan;
pub mod policy;
pub mod policy_report;
pub mod policy_status;
pub mod progress;
pub mod queue;
mod reconcile;
pub mod report;
pub mod rollout;
pub mod run;
pub mod status;
mod tell;
mod watch;
pub mod writer;

/// The namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace; empty for what has none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// A key.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// Pods that pipelines share: those of one namespace, one service account and one pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolKey {
    /// The namespace.
    pub namespace: String,
    /// The service account; `None` is the namespace's default.
    pub service_account: Option<String>,
    /// The pool.
    pub pool: String,
}

impl PoolKey {
    /// Service account and pool as one text; neither holds a slash.
    #[must_use]
    pub fn text(&self) -> String {
        let account = self.service_account.as_deref().unwrap_or_default();
        format!("{account}/{}", self.pool)
    }

    /// Reads such a text.
    #[must_use]
    pub fn parse(namespace: &str, text: &str) -> Self {
        let (account, pool) = text.split_once('/').unwrap_or(("", text));
        Self {
            namespace: namespace.to_owned(),
            service_account: (!account.is_empty()).then(|| account.to_owned()),
            pool: pool.to_owned(),
        }
    }
}

/// Whose workers they are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A pipeline's own.
    Pipeline(Key),
    /// Those of a pool.
    Pool(PoolKey),
}

impl Owner {
    /// The namespace of all of it.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::Pipeline(key) => &key.namespace,
            Self::Pool(pool) => &pool.namespace,
        }
    }
}

/// What can be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Task {
    /// One pipeline: what it shall be, and its own workers.
    Pipeline(Key),
    /// The shared workers of a pool.
    Pool(PoolKey),
    /// What a namespace with pipelines needs once.
    Namespace(String),
}

impl From<Owner> for Task {
    fn from(owner: Owner) -> Self {
        match owner {
            Owner::Pipeline(key) => Self::Pipeline(key),
            Owner::Pool(pool) => Self::Pool(pool),
        }
    }
}

impl queue::Item for Task {
    fn lane(&self) -> &str {
        match self {
            Self::Pipeline(key) => &key.namespace,
            Self::Pool(pool) => &pool.namespace,
            Self::Namespace(name) => name,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pipeline(key) => write!(f, "pipeline {key}"),
            Self::Pool(pool) => write!(f, "pool {} {}", pool.namespace, pool.text()),
            Self::Namespace(name) => write!(f, "namespace {name}"),
        }
    }
}
