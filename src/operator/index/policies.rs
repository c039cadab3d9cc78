//! The part of the index about policies and the namespaces that they select: what comes or goes concerns whoever it selects.

use std::sync::Arc;

use kube::ResourceExt;

use super::{HasKind, Index, unique};
use crate::{
    api::{pipeline::IngestionPipeline, policy::IngestionPolicy},
    operator::{
        Key, Task,
        policy::{Labels, Policies, UnreadPolicy},
    },
};

impl Index {
    /// A policy that is there: whoever it selected or selects now has to be looked at.
    pub fn apply_policy(&mut self, mut object: IngestionPolicy) -> Vec<Task> {
        object.metadata.managed_fields = None;
        object.metadata.annotations = None;
        let name = object.name_any();
        let held = self.forget_unread(&name);
        let before = self.policies.insert(name.clone(), Arc::new(object));
        let now = &self.policies[&name];
        if before
            .as_ref()
            .is_some_and(|before| before.spec == now.spec)
        {
            return Vec::new();
        }
        let versions = before.iter().chain([now]).map(Arc::as_ref);
        let mut tasks = self.selected_by(&versions.collect::<Vec<_>>());
        tasks.extend(held);
        self.read_policies();
        unique(tasks)
    }

    /// A policy that is there and cannot be read: whoever it selects has to be looked at, whoever it selected before as well.
    pub fn apply_unread_policy(&mut self, policy: UnreadPolicy) -> Vec<Task> {
        let name = policy.name().to_owned();
        let mut tasks = self.delete_policy(&name);
        self.undecodable(
            IngestionPolicy::KIND,
            Key::new("", &name),
            policy.error.clone(),
        );
        self.unread_policies.insert(name.clone(), policy);
        tasks.extend(self.held_by(&name));
        unique(tasks)
    }

    /// Whom an unreadable policy keeps from changing.
    fn held_by(&self, name: &str) -> Vec<Task> {
        let Some(policy) = self.unread_policies.get(name) else {
            return Vec::new();
        };
        let none = Labels::new();
        let held = self.pipelines.iter().filter(|(key, seen)| {
            let of_namespace = self.namespaces.get(&key.namespace).unwrap_or(&none);
            policy.selects(seen.object.labels(), of_namespace)
        });
        held.map(|(key, _)| Task::Pipeline(key.clone())).collect()
    }

    fn forget_unread(&mut self, name: &str) -> Vec<Task> {
        self.undecodable
            .remove(&(IngestionPolicy::KIND.to_owned(), Key::new("", name)));
        let held = self.held_by(name);
        self.unread_policies.remove(name);
        held
    }

    fn read_policies(&mut self) {
        self.read_policies = Arc::new(Policies::new(self.policies.values().map(Arc::as_ref)));
    }

    /// A policy that is gone.
    pub fn delete_policy(&mut self, name: &str) -> Vec<Task> {
        let held = self.forget_unread(name);
        let Some(gone) = self.policies.remove(name) else {
            return held;
        };
        self.read_policies();
        let mut tasks = self.selected_by(&[&gone]);
        tasks.extend(held);
        unique(tasks)
    }

    fn selected_by(&self, policies: &[&IngestionPolicy]) -> Vec<Task> {
        let selected = self.pipelines.iter().filter(|(key, seen)| {
            let any = |policy: &&IngestionPolicy| self.selects(policy, key, &seen.object);
            policies.iter().any(any)
        });
        selected
            .map(|(key, _)| Task::Pipeline(key.clone()))
            .collect()
    }

    fn selects(&self, policy: &IngestionPolicy, key: &Key, pipeline: &IngestionPipeline) -> bool {
        let none = Labels::new();
        let of_namespace = self.namespaces.get(&key.namespace).unwrap_or(&none);
        let spec = &policy.spec;
        spec.selector
            .as_ref()
            .is_none_or(|selector| selector.matches(pipeline.labels()))
            && spec
                .namespace_selector
                .as_ref()
                .is_none_or(|selector| selector.matches(of_namespace))
    }

    /// A namespace that is there: policies may select its pipelines by its labels.
    pub fn apply_namespace(&mut self, name: &str, labels: Labels) -> Vec<Task> {
        let before = self.namespaces.insert(name.to_owned(), labels);
        if before.as_ref() == self.namespaces.get(name) {
            return Vec::new();
        }
        self.of_namespace(name)
            .map(|key| Task::Pipeline(key.clone()))
            .collect()
    }

    /// A namespace that is gone; its pipelines went before it.
    pub fn delete_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }
}
