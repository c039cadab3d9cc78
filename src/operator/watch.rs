//! What the API server says, taken into the index.
//!
//! One watch a kind, each object pruned before it is kept. A watch that ends begins again by itself; what is missing in the new list
//! is gone. An object that cannot be decoded is named and passed over.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
};

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, Object, ObjectMeta, PartialObjectMeta},
    core::{ApiResource, DeserializeGuard, GroupVersionKind},
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use super::{
    Key, Owner, PoolKey, Task,
    apply::{CHANGED_AT, WAS_READY, resource},
    build::{
        HASH, Kind, MANAGER, NETWORK_POLICY, PIPELINE, POOL, SPEC_HASH, WORKERS_LABEL, entries,
    },
    fleet::Fleet,
    index::{Changed, ChildSeen, DeploymentSeen, Index, PodSeen},
};
use crate::api::{
    pipeline::IngestionPipeline, policy::IngestionPolicy, quantity::parse_instant_us,
};

/// How one kind goes into the index.
struct Intake<K> {
    kind: &'static str,
    apply: fn(&mut Index, K) -> Vec<Task>,
    delete: fn(&mut Index, &Key) -> Vec<Task>,
    /// What the index holds of the kind.
    known: fn(&Index) -> Vec<Key>,
}

/// Deployments, pruned.
type Deployment = Object<DeploymentSpec, DeploymentStatus>;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct DeploymentSpec {
    #[serde(default)]
    replicas: u32,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentStatus {
    observed_generation: i64,
    replicas: u32,
    updated_replicas: u32,
    ready_replicas: u32,
}

/// Pods, pruned.
type Pod = Object<PodSpec, PodStatus>;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct PodSpec {}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    conditions: Vec<PodCondition>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct PodCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    state: ContainerState,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<ContainerWaiting>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct ContainerWaiting {
    reason: String,
    message: String,
}

/// Watches everything until the fleet ends. `namespaces`: where pipelines are looked for; everywhere where there are none.
pub(super) fn watch_all(client: &Client, namespaces: &[String], fleet: &Arc<Fleet>) {
    let scopes: Vec<Option<&String>> = match namespaces {
        [] => vec![None],
        named => named.iter().map(Some).collect(),
    };
    fleet.expect_lists(2 + 6 * scopes.len());
    let clusterwide = watcher::Config::default();
    watch(
        Api::<DeserializeGuard<IngestionPolicy>>::all(client.clone()),
        clusterwide.clone(),
        policies(),
        None,
        fleet,
    );
    watch(
        Api::<PartialObjectMeta<Namespace>>::all(client.clone()),
        clusterwide.clone(),
        all_namespaces(),
        None,
        fleet,
    );
    let ours = watcher::Config::default().labels(&format!(
        "app.kubernetes.io/managed-by={MANAGER},app.kubernetes.io/component=worker"
    ));
    for scope in scopes {
        watch(
            scoped::<DeserializeGuard<IngestionPipeline>>(client, scope),
            clusterwide.clone(),
            pipelines(),
            scope,
            fleet,
        );
        watch(
            scoped::<ConfigMap>(client, scope),
            ours.clone(),
            config_maps(),
            scope,
            fleet,
        );
        watch(
            dynamic::<Deployment>(client, scope, &resource(Kind::Deployment)),
            ours.clone(),
            deployments(),
            scope,
            fleet,
        );
        let pods =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
        watch(
            dynamic::<Pod>(client, scope, &pods),
            ours.clone(),
            all_pods(),
            scope,
            fleet,
        );
        let budgets = dynamic::<DynamicObject>(client, scope, &resource(Kind::PodDisruptionBudget));
        watch(budgets, ours.clone(), disruption_budgets(), scope, fleet);
        let policies = dynamic::<DynamicObject>(client, scope, &resource(Kind::NetworkPolicy));
        watch(policies, ours.clone(), network_policies(), scope, fleet);
    }
}

fn scoped<K>(client: &Client, scope: Option<&String>) -> Api<K>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    match scope {
        None => Api::all(client.clone()),
        Some(namespace) => Api::namespaced(client.clone(), namespace),
    }
}

fn dynamic<K>(client: &Client, scope: Option<&String>, resource: &ApiResource) -> Api<K>
where
    K: Resource<Scope = kube::core::DynamicResourceScope, DynamicType = ApiResource>,
{
    match scope {
        None => Api::all_with(client.clone(), resource),
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
    }
}

fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    intake: Intake<K>,
    scope: Option<&String>,
    fleet: &Arc<Fleet>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (fleet, scope) = (Arc::clone(fleet), scope.cloned());
    let events = watcher(api, config).default_backoff();
    tokio::spawn(async move {
        tokio::select! {
            () = fleet.stopped() => {}
            () = follow(events, &intake, scope.as_deref(), &fleet) => {}
        }
    });
}

async fn follow<K: Resource>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    intake: &Intake<K>,
    scope: Option<&str>,
    fleet: &Fleet,
) {
    let mut events = std::pin::pin!(events);
    let (mut listed, mut first, mut broken) = (BTreeSet::new(), true, false);
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                if !broken {
                    // Once an outage: the watch tries again all the while.
                    warn!(
                        kind = intake.kind,
                        error = crate::sensor::chain(&error),
                        "watch broken"
                    );
                }
                broken = true;
                continue;
            }
        };
        if broken && !matches!(event, Event::Init) {
            info!(kind = intake.kind, "watch goes on");
            broken = false;
        }
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                listed.insert(key_of(object.meta()));
                fleet.take_in(|index| (intake.apply)(index, object));
            }
            Event::Apply(object) => fleet.take_in(|index| (intake.apply)(index, object)),
            Event::Delete(object) => {
                let key = key_of(object.meta());
                fleet.take_in(|index| (intake.delete)(index, &key));
            }
            Event::InitDone => {
                fleet.take_in(|index| drop_unlisted(index, intake, scope, &listed));
                listed.clear();
                if std::mem::take(&mut first) {
                    fleet.listed();
                }
            }
        }
    }
}

/// What the index holds and the new list does not is gone.
fn drop_unlisted<K>(
    index: &mut Index,
    intake: &Intake<K>,
    scope: Option<&str>,
    listed: &BTreeSet<Key>,
) -> Vec<Task> {
    let in_scope = |key: &Key| scope.is_none_or(|scope| key.namespace == scope);
    let known = (intake.known)(index).into_iter();
    let gone: Vec<Key> = known
        .filter(|key| in_scope(key) && !listed.contains(key))
        .collect();
    gone.iter()
        .flat_map(|key| (intake.delete)(index, key))
        .collect()
}

fn key_of(meta: &ObjectMeta) -> Key {
    Key::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

fn pipelines() -> Intake<DeserializeGuard<IngestionPipeline>> {
    const KIND: &str = "IngestionPipeline";
    Intake {
        kind: KIND,
        apply: |index, object| match object.0 {
            Ok(pipeline) => index.apply_pipeline(pipeline),
            Err(invalid) => pass_over(index, KIND, &invalid.metadata, invalid.error),
        },
        delete: Index::delete_pipeline,
        known: |index| index.pipelines().map(|(key, _)| key.clone()).collect(),
    }
}

fn policies() -> Intake<DeserializeGuard<IngestionPolicy>> {
    const KIND: &str = "IngestionPolicy";
    Intake {
        kind: KIND,
        apply: |index, object| match object.0 {
            Ok(policy) => index.apply_policy(policy),
            Err(invalid) => pass_over(index, KIND, &invalid.metadata, invalid.error),
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

fn pass_over(index: &mut Index, kind: &str, meta: &ObjectMeta, error: String) -> Vec<Task> {
    let key = key_of(meta);
    warn!(kind, object = %key, error, "an object cannot be decoded and is passed over; what was known of it stays in force");
    index.undecodable(kind, key, error);
    Vec::new()
}

fn all_namespaces() -> Intake<PartialObjectMeta<Namespace>> {
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

fn config_maps() -> Intake<ConfigMap> {
    Intake {
        kind: "ConfigMap",
        apply: take_config_map,
        delete: |index, key| index.delete_child(key, Kind::ConfigMap),
        known: |index| index.with_child(Kind::ConfigMap).cloned().collect(),
    }
}

fn take_config_map(index: &mut Index, object: ConfigMap) -> Vec<Task> {
    let data = object.data.unwrap_or_default();
    let child = child_of(Kind::ConfigMap, &object.metadata, content_of_data(&data));
    index.apply_child(&key_of(&object.metadata), child, |workers| {
        let entries = entries(&data);
        if *workers.entries != entries {
            workers.entries = Arc::new(entries);
        }
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

fn deployments() -> Intake<Deployment> {
    Intake {
        kind: "Deployment",
        apply: take_deployment,
        delete: |index, key| index.delete_child(key, Kind::Deployment),
        known: |index| index.with_child(Kind::Deployment).cloned().collect(),
    }
}

fn take_deployment(index: &mut Index, object: Deployment) -> Vec<Task> {
    let meta = &object.metadata;
    let status = object.status.unwrap_or_default();
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

fn disruption_budgets() -> Intake<DynamicObject> {
    Intake {
        kind: "PodDisruptionBudget",
        apply: |index, object| take_disruption_budget(index, &object),
        delete: |index, key| index.delete_child(key, Kind::PodDisruptionBudget),
        known: |index| {
            index
                .with_child(Kind::PodDisruptionBudget)
                .cloned()
                .collect()
        },
    }
}

fn take_disruption_budget(index: &mut Index, object: &DynamicObject) -> Vec<Task> {
    let meta = &object.metadata;
    let child = child_of(Kind::PodDisruptionBudget, meta, generation(meta));
    index.apply_child(&key_of(meta), child, |_| ())
}

fn network_policies() -> Intake<DynamicObject> {
    Intake {
        kind: "NetworkPolicy",
        apply: |index, object| take_network_policy(index, &object),
        delete: |index, key| index.set_network_policy(&key.namespace, None),
        known: |index| {
            index
                .network_policies()
                .map(|namespace| Key::new(namespace, NETWORK_POLICY))
                .collect()
        },
    }
}

fn take_network_policy(index: &mut Index, object: &DynamicObject) -> Vec<Task> {
    let meta = &object.metadata;
    let (_, _, seen) = child_of(Kind::NetworkPolicy, meta, generation(meta));
    if key_of(meta).name != NETWORK_POLICY {
        return Vec::new();
    }
    index.set_network_policy(&key_of(meta).namespace, Some(seen))
}

/// What the API server holds of a child, as a number.
pub(super) fn content_of(kind: Kind, object: &DynamicObject) -> u64 {
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
pub(super) fn take_written(index: &mut Index, kind: Kind, object: &DynamicObject) -> Vec<Task> {
    fn decoded<K: DeserializeOwned>(object: &DynamicObject) -> Option<K> {
        serde_json::from_value(serde_json::to_value(object).ok()?).ok()
    }
    match kind {
        Kind::ConfigMap => decoded(object).map(|object| take_config_map(index, object)),
        Kind::Deployment => decoded(object).map(|object| take_deployment(index, object)),
        Kind::PodDisruptionBudget => Some(take_disruption_budget(index, object)),
        Kind::NetworkPolicy => Some(take_network_policy(index, object)),
    }
    .unwrap_or_default()
}

fn all_pods() -> Intake<Pod> {
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
    let workers = pod.labels().get(WORKERS_LABEL).cloned().unwrap_or_default();
    let leaving = pod.metadata.deletion_timestamp.is_some();
    let status = pod.status.unwrap_or_default();
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

    /// What is missing after the watch began anew was deleted meanwhile.
    #[test]
    fn what_is_not_listed_any_more_is_gone() {
        let mut index = Index::default();
        for namespace in ["shop", "other"] {
            index.set_pod(&Key::new(namespace, "a"), Some(PodSeen::default()));
            index.set_pod(&Key::new(namespace, "b"), Some(PodSeen::default()));
        }
        let listed = BTreeSet::from([Key::new("shop", "a")]);
        drop_unlisted(&mut index, &all_pods(), Some("shop"), &listed);
        let left: Vec<String> = index.pods().map(Key::to_string).collect();
        assert_eq!(left, ["other/a", "other/b", "shop/a"]);
    }
}
