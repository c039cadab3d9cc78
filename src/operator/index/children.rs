//! The part of the index about what the operator has made: children, by sets of workers, and their pods.

use std::sync::Arc;

use super::{ChildSeen, DeploymentSeen, Entries, Index, PodSeen, WorkersSeen, unique};
use crate::operator::{
    Key, Owner, Task,
    build::{Entry, Kind},
};

impl Index {
    /// A child of a set of workers that is there; what else it says is taken over by `more`. An older version is passed over.
    pub fn apply_child(
        &mut self,
        key: &Key,
        (kind, owner, seen): (Kind, Option<Owner>, ChildSeen),
        more: impl FnOnce(&mut WorkersSeen),
    ) -> Vec<Task> {
        let known = self.workers.get(key);
        let known = known.and_then(|workers| workers.child(kind));
        if known.is_some_and(|known| known.uid == seen.uid && known.version > seen.version) {
            return Vec::new();
        }
        self.change_workers(key, |workers| {
            workers.owner = owner.or(workers.owner.take());
            workers.set_child(kind, Some(seen));
            more(workers);
        })
    }

    /// A child that is gone.
    pub fn delete_child(&mut self, key: &Key, kind: Kind) -> Vec<Task> {
        self.change_workers(key, |workers| {
            workers.set_child(kind, None);
            match kind {
                Kind::ConfigMap => workers.entries = Entries::default(),
                Kind::Deployment => workers.deployment = DeploymentSeen::default(),
                Kind::PodDisruptionBudget | Kind::NetworkPolicy => {}
            }
        })
    }

    /// The sets of workers that have a child of a kind.
    pub fn with_child(&self, kind: Kind) -> impl Iterator<Item = &Key> {
        let with = self.workers.iter();
        with.filter(move |(_, workers)| workers.child(kind).is_some())
            .map(|(key, _)| key)
    }

    /// Changes what is known of the children of a set of workers; says whose they are.
    fn change_workers(&mut self, key: &Key, change: impl FnOnce(&mut WorkersSeen)) -> Vec<Task> {
        let workers = self.workers.entry(key.clone()).or_default();
        let mut before = workers.clone();
        change(workers);
        for (kind, child) in &mut before.children {
            // A version alone is no difference.
            child.version = workers.child(*kind).map_or(0, |now| now.version);
        }
        let same = before == *workers;
        let owners = [before.owner, workers.owner.clone()];
        if workers.children.is_empty() {
            self.workers.remove(key);
        }
        if same {
            return Vec::new();
        }
        unique(owners.into_iter().flatten().map(Task::from).collect())
    }

    /// A network policy that is there, or gone.
    pub fn set_network_policy(&mut self, namespace: &str, seen: Option<ChildSeen>) -> Vec<Task> {
        let same = self.network_policies.get(namespace) == seen.as_ref();
        match seen {
            Some(seen) => self.network_policies.insert(namespace.to_owned(), seen),
            None => self.network_policies.remove(namespace),
        };
        if same {
            Vec::new()
        } else {
            vec![Task::Namespace(namespace.to_owned())]
        }
    }

    /// A pod that is there, or gone.
    pub fn set_pod(&mut self, key: &Key, seen: Option<PodSeen>) -> Vec<Task> {
        let before = match &seen {
            Some(seen) => self.pods.insert(key.clone(), seen.clone()),
            None => self.pods.remove(key),
        };
        if before == seen {
            return Vec::new();
        }
        let workers = before
            .or(seen)
            .map(|pod| Key::new(&key.namespace, &pod.workers));
        let owner = workers.and_then(|workers| self.workers.get(&workers)?.owner.clone());
        owner.map(Task::from).into_iter().collect()
    }

    /// The children of a set of workers.
    #[must_use]
    pub fn workers(&self, key: &Key) -> Option<&WorkersSeen> {
        self.workers.get(key)
    }

    /// The sets of workers of an owner, as they were seen.
    pub fn workers_of<'a>(
        &'a self,
        owner: &'a Owner,
    ) -> impl Iterator<Item = (&'a Key, &'a WorkersSeen)> {
        let namespace = owner.namespace();
        self.workers
            .range(Key::new(namespace, "")..)
            .take_while(move |(key, _)| key.namespace == namespace)
            .filter(move |(_, workers)| workers.owner.as_ref() == Some(owner))
    }

    /// All sets of workers.
    pub fn all_workers(&self) -> impl Iterator<Item = (&Key, &WorkersSeen)> {
        self.workers.iter()
    }

    /// The network policy of a namespace.
    #[must_use]
    pub fn network_policy(&self, namespace: &str) -> Option<&ChildSeen> {
        self.network_policies.get(namespace)
    }

    /// The namespaces that have one.
    pub fn network_policies(&self) -> impl Iterator<Item = &String> {
        self.network_policies.keys()
    }

    /// The sets of workers of a namespace.
    pub fn all_workers_of(&self, namespace: &str) -> impl Iterator<Item = (&Key, &WorkersSeen)> {
        let from = self.workers.range(Key::new(namespace, "")..);
        let namespace = namespace.to_owned();
        from.take_while(move |(key, _)| key.namespace == namespace)
    }

    /// The workers that hold a pipeline; while it moves, one of two.
    #[must_use]
    pub fn last_workers(&self, uid: &str, namespace: &str) -> Option<&WorkersSeen> {
        let mut holding = self.all_workers_of(namespace);
        holding
            .find(|(_, workers)| workers.entries.contains(uid))
            .map(|(_, workers)| workers)
    }

    /// What was last accepted of a pipeline: whatever its workers hold, wherever they are.
    #[must_use]
    pub fn last_accepted(&self, uid: &str, namespace: &str) -> Option<&Arc<Entry>> {
        self.last_workers(uid, namespace)?.entries.get(uid)
    }

    /// The pods of a set of workers that are not being ended, by name.
    pub fn pods_of<'a>(&'a self, workers: &'a Key) -> impl Iterator<Item = (&'a str, &'a PodSeen)> {
        self.pods
            .range(Key::new(&workers.namespace, "")..)
            .take_while(|(key, _)| key.namespace == workers.namespace)
            .filter(|(_, pod)| pod.workers == workers.name && !pod.leaving)
            .map(|(key, pod)| (key.name.as_str(), pod))
    }

    /// The workers that a pod is one of.
    #[must_use]
    pub fn workers_of_pod(&self, pod: &Key) -> Option<&WorkersSeen> {
        let name = &self.pods.get(pod)?.workers;
        self.workers.get(&Key::new(&pod.namespace, name))
    }

    /// Whether a pod is there.
    #[must_use]
    pub fn has_pod(&self, pod: &Key) -> bool {
        self.pods.contains_key(pod)
    }

    /// Every pod that has been seen.
    pub fn pods(&self) -> impl Iterator<Item = &Key> {
        self.pods.keys()
    }

    /// The policies that have been seen, by name.
    pub fn policy_names(&self) -> impl Iterator<Item = &String> {
        self.policies.keys()
    }

    /// The namespaces that have been seen.
    pub fn namespaces(&self) -> impl Iterator<Item = &String> {
        self.namespaces.keys()
    }

    /// The pods that can be asked.
    pub fn ready_pods(&self) -> impl Iterator<Item = (&Key, &PodSeen)> {
        self.pods
            .iter()
            .filter(|(_, pod)| pod.ready && !pod.leaving)
    }
}
