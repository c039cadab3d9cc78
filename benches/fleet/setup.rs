//! A fleet as it is after some days: pipelines, their children and pods, and statuses in which nothing has to change.
//!
//! Children and statuses are made by the operator's own pure steps, so that an operator that starts finds what it would have
//! written itself. Pods are made here: no controller and no kubelet runs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tidemark::{
    api::{
        pipeline::IngestionPipeline,
        quantity::{instant, parse_instant_us},
        status::IngestionPipelineStatus,
    },
    operator::{
        Key,
        apply::{self, Applier},
        build::{
            Child, Kind, Settings, WORKERS_LABEL, Workers as Set, build, dedicated_name, entries,
            network_policy, selector_text,
        },
        index::Changed,
        plan::{Plan, dedicated, plan},
        policy::{Labels, Policies, decide},
        status::{self, Children, Reconciled, Said, Situation},
        writer::FIELD_MANAGER,
    },
    process::clock::Clock,
};

use super::{
    cluster::{DEPLOYMENT, POD, SYSTEM, objects},
    workers::{HOUR_US, Worker, Workers, address, table_uuid},
};

/// How many namespaces they lie in.
const NAMESPACES: usize = 50;

/// How many are made at once.
const AT_ONCE: usize = 48;

/// How long ago the children were last changed: long enough that no wave remembers it.
const AGE: Duration = Duration::from_hours(48);

/// How old a claim may be at the start: `maxDelay` of the manifests and what a run takes.
const STANDS_US: i64 = 8 * HOUR_US + HOUR_US / 4;

/// How often a call is repeated for which the API server had no time.
const TRIES: u32 = 60;

/// How long it is left alone before.
const PAUSE: Duration = Duration::from_secs(1);

/// The image of the workers at first.
pub(crate) const IMAGE: &str = "registry.example/tidemark:1";

/// What the children have in common.
pub(crate) fn settings(image: &str) -> Settings {
    Settings {
        image: image.to_owned(),
        installation: "default".to_owned(),
        operator_namespace: SYSTEM.to_owned(),
        scrape_namespaces: [].into(),
    }
}

/// Where the pipeline with a number is.
pub(crate) fn key_of(number: usize) -> Key {
    let namespace = format!("team-{:02}", number % NAMESPACES);
    Key::new(&namespace, &format!("orders-{number:05}"))
}

/// Makes `size` pipelines with all that belongs to them, but for their statuses.
pub(crate) async fn fill(client: &Client, size: usize) {
    let applier = Applier::new(client.clone());
    for number in 0..NAMESPACES.min(size) {
        let name = key_of(number).namespace;
        let labels = json!({"tidemark.dev/tier": if number % 2 == 0 { "gold" } else { "basic" }});
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        make(
            client,
            None,
            ("", "v1", "Namespace", "namespaces"),
            namespace,
        )
        .await;
        // Without it every pod is refused; where a controller manager runs it comes by itself.
        let account = json!({"metadata": {"name": "default", "namespace": name}});
        let kind = ("", "v1", "ServiceAccount", "serviceaccounts");
        make(client, Some(&name), kind, account).await;
        write(&applier, &network_policy(&name, &settings(IMAGE))).await;
    }
    let all = stream::iter(0..size);
    all.for_each_concurrent(AT_ONCE, |number| pipeline(client, &applier, number))
        .await;
}

async fn pipeline(client: &Client, applier: &Applier, number: usize) {
    let key = key_of(number);
    let api: Api<IngestionPipeline> = Api::namespaced(client.clone(), &key.namespace);
    let asked = serde_json::from_value(manifest(number)).expect("a pipeline");
    let by_a_person = PostParams {
        field_manager: Some("kubectl-create".to_owned()),
        ..PostParams::default()
    };
    let made = match api.create(&by_a_person, &asked).await {
        Ok(made) => made,
        // Made, or not, when the server had no time to say so.
        Err(_) => {
            patient(|| async {
                let found = api.get_opt(&key.name).await?;
                match found {
                    Some(found) => Ok(found),
                    None => api.create(&by_a_person, &asked).await,
                }
            })
            .await
        }
    };
    let set = planned(made, number).1;
    for child in build(&set, &settings(IMAGE)) {
        let object = write(applier, &child).await;
        if child.kind == Kind::Deployment {
            let ready = deployment_status(object.metadata.generation.unwrap_or(1), 1);
            deployment_is(client, &set.key, ready).await;
            pod_starts(
                client,
                &object,
                number,
                &format!("{}-6b7d4-aaaaa", set.key.name),
            )
            .await;
        }
    }
}

/// What the operator plans for a pipeline without policies, whose table it has seen.
fn planned(mut pipeline: IngestionPipeline, number: usize) -> (Plan, Set) {
    pipeline.status = Some(IngestionPipelineStatus {
        table_uuid: Some(table_uuid(number)),
        ..IngestionPipelineStatus::default()
    });
    let decision = decide(&pipeline, &Labels::new(), &Policies::default());
    let plan = plan(&pipeline, &decision, None, None);
    assert_eq!(plan.accepted, Ok(()));
    let entry = plan.wanted.clone().expect("something to run");
    let key = Key::new(
        &pipeline.namespace().unwrap_or_default(),
        &pipeline.name_any(),
    );
    let uid = pipeline.uid().unwrap_or_default();
    let set = dedicated(&key, &uid, &entry).expect("workers of its own");
    (plan, set)
}

fn manifest(number: usize) -> Value {
    let key = key_of(number);
    json!({
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "IngestionPipeline",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {"team": key.namespace, "source": "postgres", "app.kubernetes.io/part-of": "shop"},
            "annotations": {"contact": format!("{}@shop.example", key.namespace)},
        },
        "spec": {
            "source": {
                "kafka": {
                    "bootstrapServers": "kafka-0.kafka:9093,kafka-1.kafka:9093,kafka-2.kafka:9093",
                    "topics": [format!("shop.{}.{}", key.namespace, key.name)],
                },
                "format": "DebeziumJson",
            },
            "sink": {
                "catalog": {
                    "type": "Rest",
                    "uri": "http://catalog.lake:8181",
                    "warehouse": "lake",
                    "credentialRef": {"name": "catalog", "key": "credential"},
                },
                "table": table(&key),
            },
            // Beyond how long this bench lets an hour stand open.
            "finalization": {"maxDelay": "8h"},
        },
    })
}

fn table(key: &Key) -> String {
    let name = |text: &str| text.replace('-', "_");
    format!("{}.{}", name(&key.namespace), name(&key.name))
}

async fn make(
    client: &Client,
    namespace: Option<&str>,
    kind: (&str, &str, &str, &str),
    mut object: Value,
) {
    let (group, version, name, _) = kind;
    object["apiVersion"] = match group {
        "" => version.into(),
        group => format!("{group}/{version}").into(),
    };
    object["kind"] = name.into();
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    let api = objects(client, namespace, kind);
    let usual = PostParams::default();
    patient(|| async {
        match api.create(&usual, &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            made => made.map(drop),
        }
    })
    .await;
}

async fn write(applier: &Applier, child: &Child) -> DynamicObject {
    let mark = Changed {
        at_us: Clock::system().now_us() - tidemark::process::clock::micros(AGE),
        was_ready: false,
    };
    for _ in 0..TRIES {
        match applier.apply(child, Some(mark)).await {
            Err(apply::Error::Unavailable { .. }) => Clock::system().sleep(PAUSE).await,
            written => return written.expect("a child that the API server takes"),
        }
    }
    let written = applier.apply(child, Some(mark)).await;
    written.expect("an API server that finds the time")
}

/// Calls again while the server has no time: a machine that others use, too, may keep it waiting for its disk.
async fn patient<T, F>(call: impl Fn() -> F) -> T
where
    F: Future<Output = kube::Result<T>>,
{
    for _ in 0..TRIES {
        match call().await {
            Err(kube::Error::Api(status)) if status.code >= 500 || status.code == 429 => {
                Clock::system().sleep(PAUSE).await;
            }
            answer => return answer.expect("a call that the API server takes"),
        }
    }
    call().await.expect("an API server that finds the time")
}

/// What a Deployment says of itself with this many pods of its newest template, all ready.
pub(crate) fn deployment_status(generation: i64, ready: u32) -> Value {
    let answer = if ready > 0 { "True" } else { "False" };
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "as the controller manager says it",
            "lastUpdateTime": "2026-11-30T00:00:00Z", "lastTransitionTime": "2026-11-30T00:00:00Z",
        })
    };
    json!({
        "observedGeneration": generation,
        "replicas": ready,
        "updatedReplicas": ready,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "conditions": [
            condition("Available", answer, "MinimumReplicasAvailable"),
            condition("Progressing", "True", "NewReplicaSetAvailable"),
        ],
    })
}

/// Writes the status of a Deployment.
pub(crate) async fn deployment_is(client: &Client, key: &Key, status: Value) {
    let api = objects(client, Some(&key.namespace), DEPLOYMENT);
    let patch = Patch::Merge(json!({"status": status}));
    let usual = PatchParams::default();
    patient(|| api.patch_status(&key.name, &usual, &patch)).await;
}

/// Makes the pod of a Deployment, as its controllers and a kubelet do: it runs at once.
pub(crate) async fn pod_starts(
    client: &Client,
    deployment: &DynamicObject,
    number: usize,
    name: &str,
) {
    let namespace = deployment.namespace().unwrap_or_default();
    let template = &deployment.data["spec"]["template"];
    let mut spec = template["spec"].clone();
    spec["nodeName"] = format!("node-{}", number % 100).into();
    let pod = json!({
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": template["metadata"]["labels"],
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true,
                "name": format!("{}-6b7d4", deployment.name_any()), "uid": deployment.uid().unwrap_or_default(),
            }],
        },
        "spec": spec,
    });
    make(client, Some(&namespace), POD, pod).await;
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-11-30T00:00:00Z"});
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    let image = &template["spec"]["containers"][0]["image"];
    let status = json!({
        "phase": "Running",
        "hostIP": "192.0.2.1",
        "podIP": address(number),
        "podIPs": [{"ip": address(number)}],
        "startTime": "2026-11-30T00:00:00Z",
        "qosClass": "Burstable",
        "conditions": conditions,
        "containerStatuses": [{
            "name": "worker", "image": image, "imageID": image, "ready": true, "started": true, "restartCount": 0,
            "containerID": "containerd://0", "state": {"running": {"startedAt": "2026-11-30T00:00:00Z"}},
        }],
    });
    let api = objects(client, Some(&namespace), POD);
    let patch = Patch::Merge(json!({"status": status}));
    let usual = PatchParams::default();
    patient(|| api.patch_status(name, &usual, &patch)).await;
}

/// The workers of all pipelines that are there, as their statuses say.
pub(crate) async fn workers(client: &Client, clock: &Clock) -> Arc<Workers> {
    workers_of(client, pipelines(client).await, clock).await
}

async fn workers_of(client: &Client, all: Vec<IngestionPipeline>, clock: &Clock) -> Arc<Workers> {
    let label = "app.kubernetes.io/component=worker";
    let ours = ListParams::default().labels(label);
    let maps: Api<ConfigMap> = Api::all(client.clone());
    let maps = maps.list(&ours).await.expect("all config maps");
    let loaded = maps
        .iter()
        .flat_map(|map| entries(map.data.as_ref().unwrap_or(&BTreeMap::new())));
    let loaded: BTreeMap<String, String> = loaded
        .map(|(uid, entry)| (uid, entry.runs.clone()))
        .collect();
    let pods = objects(client, None, POD).list(&ours).await;
    let pods = pods.expect("all pods");
    let pods: BTreeMap<Key, String> = pods
        .iter()
        .map(|pod| {
            let set = pod.labels().get(WORKERS_LABEL).cloned();
            let namespace = pod.namespace().unwrap_or_default();
            (
                Key::new(&namespace, &set.unwrap_or_default()),
                pod.name_any(),
            )
        })
        .collect();
    let claim_us = claim(&all).unwrap_or_else(|| first_us(clock));
    let workers = all.into_iter().map(|pipeline| {
        let key = Key::new(
            &pipeline.namespace().unwrap_or_default(),
            &pipeline.name_any(),
        );
        let uid = pipeline.uid().unwrap_or_default();
        let set = Key::new(&key.namespace, &dedicated_name(&key.name));
        let (runs, pod) = (loaded[&uid].clone(), pods[&set].clone());
        let table = table(&key);
        Worker::new(key, (uid, table), runs, pod)
    });
    Arc::new(Workers::new(workers.collect(), claim_us, clock.clone()))
}

/// All pipelines, by the numbers that their names end in, as their addresses go.
async fn pipelines(client: &Client) -> Vec<IngestionPipeline> {
    let api: Api<IngestionPipeline> = Api::all(client.clone());
    let listed = api.list(&ListParams::default()).await;
    let mut all = listed.expect("all pipelines").items;
    all.sort_by_key(ResourceExt::name_any);
    all
}

/// The claim that all of them have.
fn claim(all: &[IngestionPipeline]) -> Option<i64> {
    let mut claims = all.iter().map(|pipeline| {
        let claim = pipeline.status.as_ref()?.finalized_before.as_ref()?;
        parse_instant_us(&claim.0)
    });
    let first = claims.next()??;
    claims.all(|claim| claim == Some(first)).then_some(first)
}

/// The claim of a fleet that is made anew.
fn first_us(clock: &Clock) -> i64 {
    clock.now_us().div_euclid(HOUR_US) * HOUR_US - 6 * HOUR_US
}

/// Writes the statuses as the operator would, unless they are there and stand for long enough: what it then derives is no news.
/// Says how many it has written.
pub(crate) async fn tell(client: &Client, clock: &Clock) -> usize {
    let all = pipelines(client).await;
    let is_new = |claim_us: i64| claim_us > clock.now_us() - STANDS_US;
    if claim(&all).is_some_and(is_new) {
        return 0;
    }
    let number = all.len();
    // Without what was claimed before, whoever lists the workers finds them at the first claim.
    let bare = |mut pipeline: IngestionPipeline| {
        pipeline.status = None;
        pipeline
    };
    let workers = workers_of(client, all.iter().cloned().map(bare).collect(), clock).await;
    let each = stream::iter(all.into_iter().enumerate());
    each.for_each_concurrent(AT_ONCE, |(number, pipeline)| {
        tell_one(client, &workers, (number, pipeline))
    })
    .await;
    number
}

async fn tell_one(client: &Client, workers: &Workers, (number, seen): (usize, IngestionPipeline)) {
    let worker = &workers.all()[number];
    let api: Api<IngestionPipeline> = Api::namespaced(client.clone(), &worker.key.namespace);
    let generation = seen.metadata.generation.unwrap_or_default();
    let (plan, set) = planned(seen, number);
    let reconciled = Reconciled {
        generation,
        accepted: Ok(()),
        applied: Ok(()),
        pending: None,
        spec_hash: plan.wanted.as_ref().map(|entry| entry.spec_hash.clone()),
        suspend: false,
        patience_us: plan.patience_us,
    };
    let children = Children {
        desired: 1,
        replicas: 1,
        ready_replicas: 1,
        selector: Some(selector_text(&set.key.name)),
        trouble: None,
    };
    let (now_us, pod) = (workers.clock.now_us(), worker.pod());
    let mut heard = status::Workers::default();
    heard.expect(&[&pod], now_us);
    let said = Said::Progress(Arc::new(workers.pipeline(number, now_us)));
    heard.hear(&pod, said, now_us);
    let situation = Situation {
        reconciled: &reconciled,
        children: &children,
        workers: &heard,
        now_us,
    };
    let told = status::status_of(&situation, None);
    let ready = status::condition(&told, "Ready").map(|ready| ready.reason.clone());
    assert_eq!(
        ready.as_deref(),
        Some("AsExpected"),
        "at {}",
        instant(now_us)
    );
    let object = json!({
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "IngestionPipeline",
        "metadata": {"name": worker.key.name},
        "status": told,
    });
    let by_the_operator = PatchParams::apply(FIELD_MANAGER).force();
    let (name, patch) = (&worker.key.name, Patch::Apply(object));
    patient(|| api.patch_status(name, &by_the_operator, &patch)).await;
}
