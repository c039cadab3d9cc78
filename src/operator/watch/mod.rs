//! What the API server says, taken into the index.
//!
//! One watch a kind, each object pruned before it is kept. A watch that ends begins again by itself; what is missing in the new list
//! is gone. An object that cannot be decoded is named and passed over.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc};

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource,
    api::PartialObjectMeta,
    core::{ApiResource, GroupVersionKind},
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use super::{
    Key, Task,
    apply::resource,
    build::{Kind, MANAGER},
    fleet::Fleet,
    index::Index,
    policy::ReadPolicy,
};

mod objects;
mod pruned;

use objects::{
    ConfigMap, Deployment, Pod, all_namespaces, all_pods, config_maps, deployments,
    disruption_budgets, key_of, network_policies, pipelines, policies,
};
pub(super) use objects::{content_of, take_written};
use pruned::{Pruned, ReadPipeline};

/// How one kind goes into the index.
struct Intake<K> {
    kind: &'static str,
    apply: fn(&mut Index, K) -> Vec<Task>,
    delete: fn(&mut Index, &Key) -> Vec<Task>,
    /// What the index holds of the kind.
    known: fn(&Index) -> Vec<Key>,
}

/// How many objects come at once when everything is listed. The text of a page is in memory whole, some 6 KB for an object; six
/// kinds are listed at the same time.
const PAGE: u32 = 250;

/// Watches everything until the fleet ends. `namespaces`: where pipelines are looked for; everywhere where there are none.
pub(super) fn watch_all(client: &Client, namespaces: &[String], fleet: &Arc<Fleet>) {
    let scopes: Vec<Option<&String>> = match namespaces {
        [] => vec![None],
        named => named.iter().map(Some).collect(),
    };
    fleet.expect_lists(2 + 6 * scopes.len());
    let clusterwide = watcher::Config::default().page_size(PAGE);
    watch(
        Api::<ReadPolicy>::all(client.clone()),
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
    let ours = clusterwide.clone().labels(&format!(
        "app.kubernetes.io/managed-by={MANAGER},app.kubernetes.io/component=worker"
    ));
    for scope in scopes {
        watch(
            scoped::<ReadPipeline>(client, scope),
            clusterwide.clone(),
            pipelines(),
            scope,
            fleet,
        );
        watch(
            dynamic::<ConfigMap>(client, scope, &resource(Kind::ConfigMap)),
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
        let budgets = dynamic::<Pruned>(client, scope, &resource(Kind::PodDisruptionBudget));
        watch(budgets, ours.clone(), disruption_budgets(), scope, fleet);
        let policies = dynamic::<Pruned>(client, scope, &resource(Kind::NetworkPolicy));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::index::PodSeen;

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
