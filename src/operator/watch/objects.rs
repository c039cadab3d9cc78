//! The objects that are watched: what of each is kept, and how it goes into the index.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    ResourceExt,
    api::{DynamicObject, ObjectMeta, PartialObjectMeta},
};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use sha2::{Digest, Sha256};
use tracing::warn;

use super::{
    Intake,
    pruned::{Pruned, ReadPipeline},
};
use crate::{
    api::quantity::parse_instant_us,
    operator::{
        Key, Owner, PoolKey, Task,
        apply::{CHANGED_AT, WAS_READY},
        build::{HASH, Kind, NETWORK_POLICY, PIPELINE, POOL, SPEC_HASH, WORKERS_LABEL, entries},
        index::{Changed, ChildSeen, DeploymentSeen, Index, PodSeen},
        policy::ReadPolicy,
    },
};

/// Config maps with what they hold.
pub(super) type ConfigMap = Pruned<IgnoredAny, IgnoredAny, BTreeMap<String, String>>;

/// Deployments: how many pods there are to be, and are.
pub(super) type Deployment = Pruned<DeploymentSpec, DeploymentStatus>;

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct DeploymentSpec {
    #[serde(default)]
    replicas: u32,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DeploymentStatus {
    observed_generation: i64,
    replicas: u32,
    updated_replicas: u32,
    ready_replicas: u32,
}

/// Pods: where they are and how they stand.
pub(super) type Pod = Pruned<IgnoredAny, PodStatus>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    conditions: Vec<PodCondition>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerStatus {
    state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerState {
    waiting: Option<ContainerWaiting>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerWaiting {
    reason: String,
    message: String,
}

pub(super) fn key_of(meta: &ObjectMeta) -> Key {
    Key::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

pub(super) fn pipelines() -> Intake<ReadPipeline> {
    const KIND: &str = "IngestionPipeline";
    Intake {
        kind: KIND,
        apply: |index, object| {
            let key = key_of(&object.metadata);
            match object.whole() {
                Ok(pipeline) => index.apply_pipeline(pipeline),
                Err(error) => pass_over(index, KIND, key, error),
            }
        },
        delete: Index::delete_pipeline,
        known: |index| index.pipelines().map(|(key, _)| key.clone()).collect(),
    }
}

pub(super) fn policies() -> Intake<ReadPolicy> {
    Intake {
        kind: "IngestionPolicy",
        apply: |index, object| match object {
            ReadPolicy::Whole(policy) => index.apply_policy(*policy),
            ReadPolicy::Unread(policy) => {
                let (name, error) = (policy.name(), &policy.error);
                warn!(
                    policy = name,
                    error,
                    "a policy cannot be decoded; whom it selects goes on with what was accepted last"
                );
                index.apply_unread_policy(*policy)
            }
        },
        delete: |index, key| index.delete_policy(&key.name),
        known: |index| {
            index
                .policy_names()
                .map(|name| Key::new("", name))
                .collect()
        },
    }
}

fn pass_over(index: &mut Index, kind: &str, key: Key, error: String) -> Vec<Task> {
    warn!(kind, object = %key, error, "an object cannot be decoded and is passed over; what was known of it stays in force");
    index.undecodable(kind, key, error);
    Vec::new()
}

pub(super) fn all_namespaces() -> Intake<PartialObjectMeta<Namespace>> {
    Intake {
        kind: "Namespace",
        apply: |index, object| {
            let labels = object.metadata.labels.clone().unwrap_or_default();
            index.apply_namespace(&object.name_any(), labels)
        },
        delete: |index, key| {
            index.delete_namespace(&key.name);
            Vec::new()
        },
        known: |index| index.namespaces().map(|name| Key::new("", name)).collect(),
    }
}

pub(super) fn config_maps() -> Intake<ConfigMap> {
    Intake {
        kind: "ConfigMap",
        apply: take_config_map,
        delete: |index, key| index.delete_child(key, Kind::ConfigMap),
        known: |index| index.with_child(Kind::ConfigMap).cloned().collect(),
    }
}

fn take_config_map(index: &mut Index, object: ConfigMap) -> Vec<Task> {
    let Pruned { metadata, data, .. } = object;
    let child = child_of(Kind::ConfigMap, &metadata, content_of_data(&data));
    index.apply_child(&key_of(&metadata), child, |workers| {
        workers.entries.set(entries(&data));
    })
}

fn content_of_data(data: &BTreeMap<String, String>) -> u64 {
    let mut digest = Sha256::new();
    for (key, value) in data {
        digest.update([key.as_bytes(), &[0], value.as_bytes(), &[0]].concat());
    }
    let digest = digest.finalize();
    u64::from_be_bytes(digest[..8].try_into().expect("the digest has 32 bytes"))
}

pub(super) fn deployments() -> Intake<Deployment> {
    Intake {
        kind: "Deployment",
        apply: take_deployment,
        delete: |index, key| index.delete_child(key, Kind::Deployment),
        known: |index| index.with_child(Kind::Deployment).cloned().collect(),
    }
}

fn take_deployment(index: &mut Index, object: Deployment) -> Vec<Task> {
    let meta = &object.metadata;
    let status = object.status;
    let wanted = object.spec.replicas;
    let current = status.observed_generation >= meta.generation.unwrap_or_default();
    let deployment = DeploymentSeen {
        wanted,
        replicas: status.replicas,
        ready: status.ready_replicas,
        rolled_out: current && status.updated_replicas == wanted && status.replicas == wanted,
    };
    index.apply_child(
        &key_of(meta),
        child_of(Kind::Deployment, meta, generation(meta)),
        |workers| {
            workers.deployment = deployment;
        },
    )
}

pub(super) fn disruption_budgets() -> Intake<Pruned> {
    Intake {
        kind: "PodDisruptionBudget",
        apply: |index, object| take_disruption_budget(index, &object.metadata),
        delete: |index, key| index.delete_child(key, Kind::PodDisruptionBudget),
        known: |index| {
            index
                .with_child(Kind::PodDisruptionBudget)
                .cloned()
                .collect()
        },
    }
}

fn take_disruption_budget(index: &mut Index, meta: &ObjectMeta) -> Vec<Task> {
    let child = child_of(Kind::PodDisruptionBudget, meta, generation(meta));
    index.apply_child(&key_of(meta), child, |_| ())
}

pub(super) fn network_policies() -> Intake<Pruned> {
    Intake {
        kind: "NetworkPolicy",
        apply: |index, object| take_network_policy(index, &object.metadata),
        delete: |index, key| index.set_network_policy(&key.namespace, None),
        known: |index| {
            index
                .network_policies()
                .map(|namespace| Key::new(namespace, NETWORK_POLICY))
                .collect()
        },
    }
}

fn take_network_policy(index: &mut Index, meta: &ObjectMeta) -> Vec<Task> {
    let (_, _, seen) = child_of(Kind::NetworkPolicy, meta, generation(meta));
    if key_of(meta).name != NETWORK_POLICY {
        return Vec::new();
    }
    index.set_network_policy(&key_of(meta).namespace, Some(seen))
}

/// What the API server holds of a child, as a number.
pub(in crate::operator) fn content_of(kind: Kind, object: &DynamicObject) -> u64 {
    match kind {
        Kind::ConfigMap => {
            let data = serde_json::from_value(object.data["data"].clone());
            content_of_data(&data.unwrap_or_default())
        }
        Kind::Deployment | Kind::PodDisruptionBudget | Kind::NetworkPolicy => {
            generation(&object.metadata)
        }
    }
}

/// Takes in what a write has answered, before the watch says it: the next look must not write it again.
pub(in crate::operator) fn take_written(
    index: &mut Index,
    kind: Kind,
    object: &DynamicObject,
) -> Vec<Task> {
    fn decoded<K: DeserializeOwned>(object: &DynamicObject) -> Option<K> {
        serde_json::from_value(serde_json::to_value(object).ok()?).ok()
    }
    match kind {
        Kind::ConfigMap => decoded(object).map(|object| take_config_map(index, object)),
        Kind::Deployment => decoded(object).map(|object| take_deployment(index, object)),
        Kind::PodDisruptionBudget => Some(take_disruption_budget(index, &object.metadata)),
        Kind::NetworkPolicy => Some(take_network_policy(index, &object.metadata)),
    }
    .unwrap_or_default()
}

pub(super) fn all_pods() -> Intake<Pod> {
    Intake {
        kind: "Pod",
        apply: |index, object| {
            let key = key_of(&object.metadata);
            index.set_pod(&key, Some(pod_seen(object)))
        },
        delete: |index, key| index.set_pod(key, None),
        known: |index| index.pods().cloned().collect(),
    }
}

fn pod_seen(pod: Pod) -> PodSeen {
    let labels = pod.metadata.labels.as_ref();
    let workers = labels.and_then(|labels| labels.get(WORKERS_LABEL).cloned());
    let workers = workers.unwrap_or_default();
    let leaving = pod.metadata.deletion_timestamp.is_some();
    let status = pod.status;
    let condition = |kind: &str| {
        status
            .conditions
            .iter()
            .find(|condition| condition.kind == kind)
    };
    let waiting = status
        .container_statuses
        .iter()
        .filter_map(|container| container.state.waiting.as_ref());
    // Two reasons of every start.
    let mut waiting = waiting.filter(|waiting| {
        !matches!(
            waiting.reason.as_str(),
            "ContainerCreating" | "PodInitializing"
        )
    });
    let unscheduled = condition("PodScheduled").filter(|condition| condition.status == "False");
    let trouble = waiting
        .next()
        .map(|waiting| (&waiting.reason, &waiting.message));
    let trouble = trouble.or(unscheduled.map(|condition| (&condition.reason, &condition.message)));
    PodSeen {
        workers,
        leaving,
        ready: condition("Ready").is_some_and(|ready| ready.status == "True"),
        trouble: trouble.map(|(reason, message)| format!("{reason}: {message}")),
        address: status.pod_ip,
    }
}

fn generation(meta: &ObjectMeta) -> u64 {
    meta.generation
        .and_then(|generation| generation.try_into().ok())
        .unwrap_or_default()
}

/// What every child says of itself.
fn child_of(kind: Kind, meta: &ObjectMeta, content: u64) -> (Kind, Option<Owner>, ChildSeen) {
    let none = BTreeMap::new();
    let annotations = meta.annotations.as_ref().unwrap_or(&none);
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let pipeline = annotations
        .get(PIPELINE)
        .map(|name| Owner::Pipeline(Key::new(namespace, name)));
    let pool = annotations
        .get(POOL)
        .map(|text| Owner::Pool(PoolKey::parse(namespace, text)));
    let changed = annotations
        .get(CHANGED_AT)
        .and_then(|text| parse_instant_us(text));
    let seen = ChildSeen {
        uid: meta.uid.clone().unwrap_or_default(),
        version: meta
            .resource_version
            .as_deref()
            .and_then(|text| text.parse().ok())
            .unwrap_or_default(),
        hash: annotations.get(HASH).cloned().unwrap_or_default(),
        spec_hash: annotations.get(SPEC_HASH).cloned().unwrap_or_default(),
        content,
        changed: changed.map(|at_us| Changed {
            at_us,
            was_ready: annotations
                .get(WAS_READY)
                .is_some_and(|text| text == "true"),
        }),
    };
    (kind, pipeline.or(pool), seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: &str) -> PodSeen {
        let text = format!(
            "{{metadata: {{name: a, namespace: shop, labels: {{tidemark.dev/workers: a-tidemark}}}}, spec: {{containers: []}}, status: {status}}}"
        );
        pod_seen(serde_yaml::from_str(&text).unwrap())
    }

    #[test]
    fn pod_says_where_it_is_and_what_is_wrong() {
        let ready = pod(
            "{podIP: 10.0.0.1, conditions: [{type: Ready, status: 'True', lastTransitionTime: x}]}",
        );
        let expected = PodSeen {
            workers: "a-tidemark".into(),
            address: Some("10.0.0.1".into()),
            ready: true,
            ..PodSeen::default()
        };
        assert_eq!(ready, expected);
        let image = pod(
            "{containerStatuses: [{name: worker, state: {waiting: {reason: ErrImagePull, message: no such image}}}]}",
        );
        assert_eq!(
            image.trouble.as_deref(),
            Some("ErrImagePull: no such image")
        );
        let starting = pod(
            "{containerStatuses: [{name: worker, state: {waiting: {reason: ContainerCreating}}}]}",
        );
        assert_eq!(starting.trouble, None);
        let homeless = pod(
            "{conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: no node}]}",
        );
        assert_eq!(homeless.trouble.as_deref(), Some("Unschedulable: no node"));
    }

    #[test]
    fn deployment_is_rolled_out_when_all_pods_are_as_it_says() {
        let seen = |generation: u32, status: &str| {
            let text = format!(
                "{{metadata: {{name: a, namespace: shop, uid: u, generation: {generation}}}, spec: {{replicas: 2}}, status: {status}}}"
            );
            let mut index = Index::default();
            take_deployment(&mut index, serde_yaml::from_str(&text).unwrap());
            index.workers(&Key::new("shop", "a")).unwrap().deployment
        };
        let done = "{observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 1}";
        let expected = DeploymentSeen {
            wanted: 2,
            replicas: 2,
            ready: 1,
            rolled_out: true,
        };
        assert_eq!(seen(2, done), expected);
        assert!(!seen(3, done).rolled_out);
        assert!(
            !seen(
                2,
                &done.replace("replicas: 2, updated", "replicas: 3, updated")
            )
            .rolled_out
        );
        assert!(!seen(2, &done.replace("updatedReplicas: 2", "updatedReplicas: 1")).rolled_out);
    }
}
