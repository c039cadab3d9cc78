//! What runs pods in a cluster, as far as an operator sees it: a changed `ConfigMap` reaches its worker after a while, a changed
//! Deployment gets another pod in the place of the old one.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;
use tidemark::operator::{Key, build::entries};
use tokio::sync::Semaphore;

use super::{
    cluster::{DEPLOYMENT, POD, objects},
    setup::{deployment_is, deployment_status, pod_starts},
    workers::Workers,
};

/// How many pods start at once: a large cluster has a node for each few.
const AT_ONCE: usize = 100;

/// How long a pod takes from its end to its successor's first answer.
const RESTART: Duration = Duration::from_secs(3);

/// It runs for as long as the runtime does.
pub(crate) struct Kubelet {
    client: Client,
    workers: Arc<Workers>,
    /// Within how long a changed `ConfigMap` is loaded.
    takeover: Duration,
    places: Semaphore,
    restarted: AtomicUsize,
    /// Of each Deployment the template that its pod was made of, and the generation that was seen.
    made: Mutex<BTreeMap<Key, (Value, i64)>>,
}

impl Kubelet {
    /// Starts it: it follows what changes from now on.
    pub(crate) fn start(client: Client, workers: Arc<Workers>, takeover: Duration) -> Arc<Self> {
        let kubelet = Arc::new(Self {
            client,
            workers,
            takeover,
            places: Semaphore::new(AT_ONCE),
            restarted: AtomicUsize::new(0),
            made: Mutex::default(),
        });
        tokio::spawn(Arc::clone(&kubelet).follow_config_maps());
        tokio::spawn(Arc::clone(&kubelet).follow_deployments());
        kubelet
    }

    /// How many pods have come in the place of others.
    pub(crate) fn restarted(&self) -> usize {
        self.restarted.load(Ordering::Relaxed)
    }

    async fn follow_config_maps(self: Arc<Self>) {
        let api: Api<ConfigMap> = Api::all(self.client.clone());
        let mut changes = watcher(api, ours())
            .default_backoff()
            .applied_objects()
            .boxed();
        while let Some(change) = changes.next().await {
            let Ok(map) = change else { continue };
            for (uid, entry) in entries(&map.data.unwrap_or_default()) {
                let worker = self.workers.of(&uid);
                if worker.is_none_or(|worker| worker.runs() == entry.runs) {
                    continue;
                }
                let (kubelet, after) = (Arc::clone(&self), self.takeover.mul_f64(fastrand::f64()));
                tokio::spawn(async move {
                    kubelet.workers.clock.sleep(after).await;
                    if let Some(worker) = kubelet.workers.of(&uid) {
                        worker.load(entry.runs.clone());
                    }
                });
            }
        }
    }

    async fn follow_deployments(self: Arc<Self>) {
        let api = objects(&self.client, None, DEPLOYMENT);
        let mut changes = watcher(api, ours())
            .default_backoff()
            .applied_objects()
            .boxed();
        while let Some(change) = changes.next().await {
            let Ok(deployment) = change else { continue };
            let key = Key::new(
                &deployment.namespace().unwrap_or_default(),
                &deployment.name_any(),
            );
            let generation = deployment.metadata.generation.unwrap_or_default();
            let template = deployment.data["spec"]["template"].clone();
            let before = {
                let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
                made.insert(key.clone(), (template.clone(), generation))
            };
            let Some((made_of, _)) = before.filter(|(_, seen)| *seen < generation) else {
                continue;
            };
            let kubelet = Arc::clone(&self);
            tokio::spawn(async move {
                if made_of == template {
                    // Another annotation is a generation, too, and no other pod.
                    let status = deployment_status(generation, 1);
                    deployment_is(&kubelet.client, &key, status).await;
                } else {
                    kubelet.restart(&key, &deployment).await;
                }
            });
        }
    }

    async fn restart(&self, key: &Key, deployment: &DynamicObject) {
        let _place = self.places.acquire().await.expect("an open semaphore");
        let generation = deployment.metadata.generation.unwrap_or_default();
        let owner = deployment.owner_references().first();
        let uid = owner.map(|owner| owner.uid.clone()).unwrap_or_default();
        let Some((number, worker)) = self.workers.find(&uid) else {
            return;
        };
        deployment_is(&self.client, key, deployment_status(generation, 0)).await;
        let pods = objects(&self.client, Some(&key.namespace), POD);
        worker.end();
        let at_once = DeleteParams::default().grace_period(0);
        pods.delete(&worker.pod(), &at_once)
            .await
            .expect("a pod to delete");
        self.workers.clock.sleep(RESTART).await;
        let pod = format!("{}-{generation}-bbbbb", key.name);
        worker.start(pod.clone());
        pod_starts(&self.client, deployment, number, &pod).await;
        deployment_is(&self.client, key, deployment_status(generation, 1)).await;
        self.restarted.fetch_add(1, Ordering::Relaxed);
    }
}

fn ours() -> watcher::Config {
    watcher::Config::default().labels("app.kubernetes.io/component=worker")
}
