//! The fleet: what the custom resources ask for, made so in the cluster, and what is said of it.
//!
//! A write to the API server is made by the leader alone.

use std::fmt;

pub mod claims;
pub mod counts;
pub mod events;
pub mod gate;
pub mod http;
pub mod lease;
pub mod policy;
pub mod policy_report;
pub mod policy_status;
pub mod progress;
pub mod report;
pub mod status;
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
