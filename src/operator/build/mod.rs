//! What a set of workers is made of in the cluster: one `ConfigMap`, one Deployment, above one replica a disruption budget.
//!
//! Comes in: effective specifications and what their pods are like. Goes out: the children as they are applied. No client, no
//! clock, no look at what is there.
//!
//! Equal input gives equal children to the last byte: whether one has to be written is decided by its hash alone, and a changed
//! specification changes the `ConfigMap` and nothing else, so that no pod restarts for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Key, Owner};
use crate::api::effective::{Dedicated, Resources};

mod config_map;
mod deployment;
mod network_policy;
mod pod_disruption_budget;

pub use config_map::{Entry, entries};
pub use network_policy::{NETWORK_POLICY, network_policy};

/// Who writes the children: the field manager, and the value of the label `app.kubernetes.io/managed-by`.
pub const MANAGER: &str = "tidemark";

/// The label that ties pods to their workers; its value is the name that all children of the workers share.
pub const WORKERS_LABEL: &str = "tidemark.dev/workers";

/// The annotation with the hash of a child as it was built.
pub const HASH: &str = "tidemark.dev/hash";

/// The annotation with the hash of what a child asks for, without whose it is.
pub const SPEC_HASH: &str = "tidemark.dev/spec-hash";

/// The annotation that names the pipeline of dedicated workers.
pub const PIPELINE: &str = "tidemark.dev/pipeline";

/// The annotation that names the pool of shared workers, as `<service account>/<pool>`.
pub const POOL: &str = "tidemark.dev/pool";

/// The longest name of workers: a pod's name adds 17 characters to it, and a label holds 63.
const NAME_LENGTH: usize = 46;

/// What all workers of an installation have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The image of the workers.
    pub image: String,
    /// The installation that their tables belong to.
    pub installation: String,
    /// The namespace that the operator runs in: the workers' admin port is open to it.
    pub operator_namespace: String,
    /// Further namespaces that may read the workers' admin port, as the one of Prometheus.
    pub scrape_namespaces: BTreeSet<String>,
}

/// A set of workers that is to be there.
#[derive(Debug, Clone, PartialEq)]
pub struct Workers {
    /// The namespace and the name of all its children.
    pub key: Key,
    /// Whose workers they are.
    pub owner: Owner,
    /// The pipelines that they run, by uid.
    pub members: BTreeMap<String, Member>,
    /// Their service account; the namespace's default where there is none.
    pub service_account: Option<String>,
    /// What the pods are like.
    pub template: Dedicated,
    /// How many of them there are; none where all of their pipelines stand still.
    pub replicas: u32,
}

/// A pipeline of a set of workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// What the worker is given, and what was accepted about the pods.
    pub entry: Arc<Entry>,
}

/// The kinds of children, in the order in which they are applied: the specifications are there before the pods that read them.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::IntoStaticStr,
    strum::EnumIter,
)]
pub enum Kind {
    /// The effective specifications.
    ConfigMap,
    /// How many pods may be away at once.
    PodDisruptionBudget,
    /// Who may reach the workers of a namespace.
    NetworkPolicy,
    /// The pods.
    Deployment,
}

/// A child as it is applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Child {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: Key,
    /// The hash of the rest.
    pub hash: String,
    /// The hash of what it asks for: another owner alone restarts no pod.
    pub spec_hash: String,
    /// The whole object, with its hash.
    pub object: Value,
}

impl Child {
    fn new(kind: Kind, key: &Key, mut object: Value) -> Self {
        let hash = hash_of(&object);
        let spec_hash = hash_of(&object["spec"]);
        object["metadata"]["annotations"][HASH] = hash.as_str().into();
        object["metadata"]["annotations"][SPEC_HASH] = spec_hash.as_str().into();
        Self {
            kind,
            key: key.clone(),
            hash,
            spec_hash,
            object,
        }
    }
}

/// The children of a set of workers, in the order in which they are applied.
#[must_use]
pub fn build(workers: &Workers, settings: &Settings) -> Vec<Child> {
    let mut children = vec![config_map::config_map(workers)];
    children.extend(pod_disruption_budget::pod_disruption_budget(workers));
    children.push(deployment::deployment(workers, settings));
    children
}

/// What shared pods are like whose pipelines may hold so many bytes of rows together: all alike, so that none restarts for a
/// pipeline that comes or goes.
#[must_use]
pub fn template_of_budget(budget_bytes: u64) -> Dedicated {
    Dedicated {
        resources: Resources::of_budget(budget_bytes),
        node_selector: BTreeMap::new(),
        tolerations: Vec::new(),
        priority_class_name: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    }
}

/// The name of the workers of one pipeline.
#[must_use]
pub fn dedicated_name(pipeline: &str) -> String {
    fitting(pipeline, "tidemark")
}

/// The name of the `number`th workers of a pool.
#[must_use]
pub fn shared_name(service_account: Option<&str>, pool: &str, number: u32) -> String {
    let pool = match service_account {
        None => pool.to_owned(),
        Some(account) => format!("{pool}-{}", &hex(account.as_bytes())[..6]),
    };
    fitting(&pool, &format!("tidemark-{number}"))
}

/// `<name>-<ending>`, cut to fit; whatever is cut or not allowed in the name of a pod is replaced by a hash of the whole.
fn fitting(name: &str, ending: &str) -> String {
    let whole = format!("{name}-{ending}");
    if whole.len() <= NAME_LENGTH && !name.contains('.') {
        return whole;
    }
    let hash = &hex(name.as_bytes())[..8];
    let room = NAME_LENGTH - ending.len() - hash.len() - 2;
    let cut: String = name.replace('.', "-").chars().take(room).collect();
    format!("{}-{hash}-{ending}", cut.trim_end_matches('-'))
}

/// The labels that find the pods of these workers; they never change.
#[must_use]
pub fn selector(name: &str) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("app.kubernetes.io/managed-by", MANAGER.to_owned()),
        (WORKERS_LABEL, name.to_owned()),
    ])
}

/// The same as one text, for `/scale` and `kubectl get -l`.
#[must_use]
pub fn selector_text(name: &str) -> String {
    let labels = selector(name).into_iter();
    let labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    labels.join(",")
}

/// The head of a child: names, labels, whose it is.
fn metadata(workers: &Workers) -> Value {
    let owners: Vec<Value> = workers
        .members
        .iter()
        .map(|(uid, member)| {
            json!({
                "apiVersion": "tidemark.dev/v1alpha1",
                "kind": "IngestionPipeline",
                "name": member.name,
                "uid": uid,
            })
        })
        .collect();
    json!({
        "name": workers.key.name,
        "namespace": workers.key.namespace,
        "labels": labels(workers),
        "annotations": owner_annotation(&workers.owner),
        "ownerReferences": owners,
    })
}

fn labels(workers: &Workers) -> BTreeMap<&'static str, String> {
    let placement = match workers.owner {
        Owner::Pipeline(_) => "Dedicated",
        Owner::Pool(_) => "Shared",
    };
    let mut labels = selector(&workers.key.name);
    labels.extend([
        ("app.kubernetes.io/name", "tidemark".to_owned()),
        ("app.kubernetes.io/component", "worker".to_owned()),
        ("app.kubernetes.io/instance", workers.key.name.clone()),
        ("tidemark.dev/placement", placement.to_owned()),
    ]);
    labels
}

fn owner_annotation(owner: &Owner) -> Value {
    match owner {
        Owner::Pipeline(key) => json!({PIPELINE: key.name}),
        Owner::Pool(pool) => json!({POOL: pool.text()}),
    }
}

/// The first 16 digits of the hash of an object.
fn hash_of(object: &Value) -> String {
    let mut digits = hex(object.to_string().as_bytes());
    digits.truncate(16);
    digits
}

fn hex(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        api::{
            effective::{Place, PolicyLayers, layered, resolve},
            worker::SecretRef,
        },
        operator::PoolKey,
    };

    pub(in crate::operator) fn settings() -> Settings {
        Settings {
            image: "registry.example/tidemark:1".into(),
            installation: "prod".into(),
            operator_namespace: "tidemark-system".into(),
            scrape_namespaces: BTreeSet::from(["monitoring".to_owned()]),
        }
    }

    /// The workers of a pipeline with this section `spec.worker`.
    pub(in crate::operator) fn workers(section: &str) -> Workers {
        let text = format!(
            "
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: orders, namespace: shop, uid: uid-1}}
spec:
  source: {{format: DebeziumJson, kafka: {{bootstrapServers: 'k:1', topics: [a]}}}}
  sink: {{table: shop.orders, catalog: {{type: Rest, uri: 'http://c'}}}}
  worker: {section}
"
        );
        let pipeline = serde_yaml::from_str(&text).unwrap();
        let resolved = resolve(&pipeline, &layered(&pipeline, &PolicyLayers::default())).unwrap();
        let template = match &resolved.pod.place {
            Place::Dedicated(own) => (**own).clone(),
            Place::Shared { .. } => template_of_budget(1 << 30),
        };
        let owner = match &resolved.pod.place {
            Place::Dedicated(_) => Owner::Pipeline(Key::new("shop", "orders")),
            Place::Shared { pool } => Owner::Pool(PoolKey {
                namespace: "shop".into(),
                service_account: resolved.pod.service_account_name.clone(),
                pool: pool.clone(),
            }),
        };
        let secret = |key: &str| SecretRef {
            name: "catalog".into(),
            key: key.into(),
        };
        let mut entry = Entry::of(&resolved, None);
        entry.secrets = vec![secret("ca"), secret("credential")];
        let member = Member {
            name: "orders".into(),
            entry: Arc::new(entry),
        };
        Workers {
            key: Key::new("shop", &dedicated_name("orders")),
            owner,
            members: BTreeMap::from([("uid-1".to_owned(), member)]),
            replicas: resolved.spec.worker.replicas,
            service_account: resolved.pod.service_account_name,
            template,
        }
    }

    /// The built object without what every child has, against YAML.
    #[track_caller]
    pub(in crate::operator) fn assert_object(child: &Child, expected: &str) {
        let mut object = child.object.clone();
        let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
        assert_eq!(annotations.remove(HASH), Some(child.hash.clone().into()));
        annotations.remove(SPEC_HASH);
        let expected: Value = serde_yaml::from_str(expected).unwrap();
        assert_eq!(
            object,
            expected,
            "\n{}",
            serde_yaml::to_string(&object).unwrap()
        );
    }

    fn kinds_that_differ(a: &Workers, b: &Workers) -> Vec<Kind> {
        let (a, b) = (build(a, &settings()), build(b, &settings()));
        let pairs = a.into_iter().zip(b).filter(|(a, b)| a.hash != b.hash);
        pairs.map(|(a, _)| a.kind).collect()
    }

    /// A restart for each new value of a bound would stop every pipeline of the fleet for nothing.
    #[test]
    fn changed_specification_rewrites_the_config_map_alone() {
        let old = workers("{replicas: 2}");
        assert_eq!(kinds_that_differ(&old, &old.clone()), []);
        let mut new = old.clone();
        let entry = &mut new.members.get_mut("uid-1").unwrap().entry;
        Arc::make_mut(entry).spec = "name: other\n".into();
        assert_eq!(kinds_that_differ(&old, &new), [Kind::ConfigMap]);
    }

    #[test]
    fn image_and_identity_restart_the_pods_and_leave_the_rest() {
        let old = workers("{}");
        let image = Settings {
            image: "registry.example/tidemark:2".into(),
            ..settings()
        };
        let (a, b) = (build(&old, &settings()), build(&old, &image));
        assert_eq!(a[0], b[0]);
        assert_ne!(a[1].hash, b[1].hash);
        let account = workers("{serviceAccountName: lake}");
        assert_eq!(
            kinds_that_differ(&old, &account),
            [Kind::ConfigMap, Kind::Deployment]
        );
    }

    #[test]
    fn names_fit_and_differ() {
        assert_eq!(dedicated_name("orders"), "orders-tidemark");
        assert_eq!(shared_name(None, "default", 0), "default-tidemark-0");
        let long = "a".repeat(253);
        let names = [
            dedicated_name(&long),
            dedicated_name(&format!("{long}b")),
            dedicated_name("a.b"),
            dedicated_name("a-b"),
            shared_name(Some("lake"), "default", 0),
            shared_name(Some("lake2"), "default", 0),
            shared_name(None, &"p".repeat(40), 1234),
        ];
        let different: BTreeSet<&String> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
        for name in &names {
            assert!(name.len() <= NAME_LENGTH, "{name}");
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.chars().all(allowed), "{name}");
        }
    }

    #[test]
    fn children_of_a_pool_name_it() {
        let shared = workers("{placement: Shared, pool: small, serviceAccountName: lake}");
        let object = &build(&shared, &settings())[0].object;
        let text = object["metadata"]["annotations"][POOL].as_str().unwrap();
        assert_eq!(Owner::Pool(PoolKey::parse("shop", text)), shared.owner);
        assert_eq!(
            object["metadata"]["labels"]["tidemark.dev/placement"],
            "Shared"
        );
    }
}
