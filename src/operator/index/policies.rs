//! The part of the index about policies and the namespaces that they select: what comes or goes concerns whoever it selects.

use std::sync::Arc;

use kube::ResourceExt;

use super::{HasKind, Index, unique};
use crate::{
    api::{policy::IngestionPolicy, schema::Selector},
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
        self.pipelines_where(|labels, of_namespace| policy.selects(labels, of_namespace))
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
        let meant = |selector: &Option<Selector>, labels: &Labels| {
            let selector = selector.as_ref();
            selector.is_none_or(|selector| selector.matches(labels))
        };
        self.pipelines_where(|labels, of_namespace| {
            let mut specs = policies.iter().map(|policy| &policy.spec);
            specs.any(|spec| {
                meant(&spec.selector, labels) && meant(&spec.namespace_selector, of_namespace)
            })
        })
    }

    /// The pipelines whose labels, and those of their namespace, are meant.
    fn pipelines_where(&self, meant: impl Fn(&Labels, &Labels) -> bool) -> Vec<Task> {
        let none = Labels::new();
        let those = self.pipelines.iter().filter(|(key, seen)| {
            let of_namespace = self.namespaces.get(&key.namespace).unwrap_or(&none);
            meant(&seen.kept.labels, of_namespace)
        });
        those.map(|(key, _)| Task::Pipeline(key.clone())).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{Reason, pipeline::IngestionPipeline},
        operator::{policy::ReadPolicy, status::Trouble},
    };

    fn pipeline(name: &str, team: &str) -> IngestionPipeline {
        let text = format!(
            "
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: {name}, namespace: shop, uid: uid-{name}, labels: {{team: {team}}}}}
spec:
  source: {{format: DebeziumJson, kafka: {{bootstrapServers: 'k:1', topics: [a]}}}}
  sink: {{table: shop.{name}, catalog: {{type: Rest, uri: 'http://c'}}}}
"
        );
        serde_yaml::from_str(&text).unwrap()
    }

    fn policy(mode: &str) -> ReadPolicy {
        let text = format!(
            "{{apiVersion: tidemark.dev/v1alpha1, kind: IngestionPolicy, metadata: {{name: gold}}, spec: {{mode: {mode}, selector: {{matchLabels: {{team: a}}}}}}}}"
        );
        serde_yaml::from_str(&text).unwrap()
    }

    fn apply(index: &mut Index, policy: ReadPolicy) -> Vec<Task> {
        match policy {
            ReadPolicy::Whole(policy) => index.apply_policy(*policy),
            ReadPolicy::Unread(policy) => index.apply_unread_policy(*policy),
        }
    }

    /// A policy that counts, cannot be read for a while, counts again and goes: each time whoever it selects is looked at.
    #[test]
    fn unreadable_policy_hinders_whom_it_selects_until_it_can_be_read() {
        let mut index = Index::default();
        index.apply_pipeline(pipeline("a", "a"));
        index.apply_pipeline(pipeline("b", "b"));
        let (a, b) = (Key::new("shop", "a"), Key::new("shop", "b"));
        let selected = [Task::Pipeline(a.clone())];
        assert_eq!(apply(&mut index, policy("Enforce")), selected);
        assert_eq!(
            (index.hindrance(&a), index.policies().sorted().len()),
            (None, 1)
        );

        assert_eq!(apply(&mut index, policy("Later")), selected);
        let Some(Trouble { reason, message }) = index.hindrance(&a) else {
            panic!("nothing hinders it");
        };
        assert_eq!(reason, Reason::PolicyUnreadable);
        assert!(
            message.contains("\"gold\"") && message.contains("Later"),
            "{message}"
        );
        assert_eq!(
            (index.hindrance(&b), index.policies().sorted().len()),
            (None, 0)
        );
        assert_eq!(index.all_undecodable().count(), 1);

        assert_eq!(apply(&mut index, policy("Audit")), selected);
        assert_eq!(
            (index.hindrance(&a), index.all_undecodable().count()),
            (None, 0)
        );
        apply(&mut index, policy("Later"));
        assert_eq!(index.delete_policy("gold"), selected);
        assert_eq!(
            (index.hindrance(&a), index.all_undecodable().count()),
            (None, 0)
        );
    }
}
