//! Pipeline and policies in, what is to run out: the effective specification, its hash, and what is beyond the limits.
//!
//! Pure: the same pipeline, labels and policies give the same answer in the operator, in `tidemark effective` and in
//! `tidemark policy diff`. The order in which policies are given has no part in it.
//!
//! A policy that is wrong somewhere counts for nothing at all: never half of it.

use std::{collections::BTreeMap, sync::Arc};

use kube::ResourceExt;
use serde_json::Value;

use crate::api::{
    Fault,
    effective::{Layered, PolicyLayers, Resolved, layered, resolve},
    pipeline::IngestionPipeline,
    policy::{IngestionPolicy, PolicyMode, RolloutSpec},
    schema::Selector,
};

mod admission;
mod check;
pub mod diff;
mod limits;
pub mod print;
mod read;

pub use admission::admission;
use limits::Limits;
pub use limits::Violation;
pub use read::{ReadPolicy, UnreadPolicy};

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// One policy, read and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    name: Arc<str>,
    priority: i32,
    selector: Selector,
    namespace_selector: Selector,
    defaults: Value,
    overrides: Value,
    limits: Option<Limits>,
    mode: PolicyMode,
    rollout: Option<RolloutSpec>,
    notes: Vec<String>,
}

/// The policies that count, and what is wrong with the others.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    /// The one that counts first where several say something: by priority, the greatest first, then by name.
    sorted: Vec<Policy>,
    refused: BTreeMap<String, Vec<Fault>>,
}

impl Policy {
    /// Reads a policy.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn new(policy: &IngestionPolicy) -> Result<Self, Vec<Fault>> {
        check::policy(policy)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// How fast a change goes over the pipelines that it selects, where it says so.
    #[must_use]
    pub fn rollout(&self) -> Option<&RolloutSpec> {
        self.rollout.as_ref()
    }

    /// What its author should know, though nothing is wrong.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether it is about a pipeline with these labels in a namespace with those.
    #[must_use]
    pub fn selects(&self, pipeline: &Labels, namespace: &Labels) -> bool {
        self.selector.matches(pipeline) && self.namespace_selector.matches(namespace)
    }
}

impl Policies {
    /// Reads policies, in any order.
    #[must_use]
    pub fn new<'a>(policies: impl IntoIterator<Item = &'a IngestionPolicy>) -> Self {
        let mut read = Self::default();
        for policy in policies {
            match Policy::new(policy) {
                Ok(policy) => read.sorted.push(policy),
                Err(faults) => drop(read.refused.insert(policy.name_any(), faults)),
            }
        }
        let rank = |policy: &Policy| (std::cmp::Reverse(policy.priority), Arc::clone(&policy.name));
        read.sorted.sort_by_key(rank);
        read
    }

    /// The policies that count.
    #[must_use]
    pub fn sorted(&self) -> &[Policy] {
        &self.sorted
    }

    /// The policy of this name, if it counts.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Policy> {
        self.sorted.iter().find(|policy| &*policy.name == name)
    }

    /// The policies that do not count, by name, each with what is wrong.
    #[must_use]
    pub fn refused(&self) -> &BTreeMap<String, Vec<Fault>> {
        &self.refused
    }
}

/// What becomes of one pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What is to run, or everything that is wrong with it.
    pub outcome: Result<Resolved, Vec<Fault>>,
    /// The hash of what is to run; empty where it is wrong.
    pub hash: String,
    /// What is beyond the limits of policies, in the order of the policies, then of the fields.
    pub violations: Vec<Violation>,
    /// The policies that select the pipeline, the one that counts first first.
    pub policies: Vec<Arc<str>>,
    /// Those of them that say how fast a change goes over their pipelines; each of them has to let it go.
    pub rollouts: Vec<Arc<str>>,
}

impl Decision {
    /// What is to run, unless it is wrong or beyond a limit that is enforced.
    #[must_use]
    pub fn accepted(&self) -> Option<&Resolved> {
        let resolved = self.outcome.as_ref().ok()?;
        self.refusals().next().is_none().then_some(resolved)
    }

    /// What is beyond limits that are enforced.
    pub fn refusals(&self) -> impl Iterator<Item = &Violation> {
        let enforced = |violation: &&Violation| violation.mode == PolicyMode::Enforce;
        self.violations.iter().filter(enforced)
    }

    /// Its violations of one policy.
    pub fn violations_of<'a>(&'a self, policy: &'a str) -> impl Iterator<Item = &'a Violation> {
        let own = move |violation: &&Violation| &*violation.policy == policy;
        self.violations.iter().filter(own)
    }
}

/// A decision, and where each value in it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// The decision.
    pub decision: Decision,
    /// The specification with the source of each value.
    pub layered: Layered,
}

/// Decides what becomes of one pipeline.
#[must_use]
pub fn decide(pipeline: &IngestionPipeline, namespace: &Labels, policies: &Policies) -> Decision {
    explain(pipeline, namespace, policies).decision
}

/// Decides, and says where each value comes from. Of ten thousand pipelines keep the decisions only.
#[must_use]
pub fn explain(pipeline: &IngestionPipeline, namespace: &Labels, policies: &Policies) -> Explained {
    let selecting = |policy: &&Policy| policy.selects(pipeline.labels(), namespace);
    let selected: Vec<&Policy> = policies.sorted.iter().filter(selecting).collect();
    // The one that counts first lies on top.
    let upwards = || selected.iter().rev();
    let layers = PolicyLayers {
        defaults: upwards()
            .map(|policy| (Arc::clone(&policy.name), &policy.defaults))
            .collect(),
        overrides: upwards()
            .map(|policy| (Arc::clone(&policy.name), &policy.overrides))
            .collect(),
    };
    let layered = layered(pipeline, &layers);
    let outcome = resolve(pipeline, &layered);
    let space = pipeline.namespace().unwrap_or_else(|| "default".to_owned());
    let violations = selected.iter().flat_map(|policy| {
        let limits = policy.limits.iter();
        limits.flat_map(|limits| limits.check(&layered, &space, (&policy.name, policy.mode)))
    });
    // A value that is wrong is told as that alone: a fault knows what it may not show.
    let wrong = |violation: &Violation| {
        let faults = outcome.as_ref().err().into_iter().flatten();
        let mut paths = faults.flat_map(|fault| fault.path.split(" and "));
        paths.any(|path| path == violation.field)
    };
    let violations = violations.filter(|violation| !wrong(violation)).collect();
    let limiting = selected.iter().filter(|policy| policy.rollout.is_some());
    let decision = Decision {
        hash: outcome.as_ref().map(Resolved::hash).unwrap_or_default(),
        violations,
        policies: selected
            .iter()
            .map(|policy| Arc::clone(&policy.name))
            .collect(),
        rollouts: limiting.map(|policy| Arc::clone(&policy.name)).collect(),
        outcome,
    };
    Explained { decision, layered }
}

#[cfg(test)]
mod tests;
