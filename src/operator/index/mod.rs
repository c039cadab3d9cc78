//! What the operator has seen of the cluster: pipelines, policies, namespaces, the children it has made, and pods.
//!
//! Objects go in by `apply` and `delete`; each says what has to be looked at again for it. Answers come out of a few read functions.
//! No client, no clock.
//!
//! Nothing is kept twice: of a child its hash and what the next decision needs, of an object no managed fields. One object that
//! cannot be decoded is named and stops nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use kube::ResourceExt;
use sha2::{Digest, Sha256};

use super::{
    Key, Owner, PoolKey, Task,
    build::Entry,
    plan::Plan,
    policy::{Labels, Policies, UnreadPolicy},
    status::{Trouble, condition},
};
use crate::api::{
    Reason,
    effective::{EffectivePod, Place},
    pipeline::{IngestionPipeline, SinkSpec},
    policy::IngestionPolicy,
    schema::ConditionStatus,
    status::IngestionPipelineStatus,
};

mod children;
mod kept;
mod policies;
mod seen;

pub use kept::Kept;
pub use seen::{Changed, ChildSeen, DeploymentSeen, Entries, PodSeen, WorkersSeen};

/// Where a table is, so that two pipelines that write it meet: a digest of the catalog's kind, address, name and warehouse, and of
/// the table's name.
type TableKey = [u8; 16];

/// Everything seen.
#[derive(Debug, Default)]
pub struct Index {
    pipelines: BTreeMap<Key, Seen>,
    /// By name.
    policies: BTreeMap<String, Arc<IngestionPolicy>>,
    /// The same, as decisions read them.
    read_policies: Arc<Policies>,
    /// Those that this version cannot read, by name.
    unread_policies: BTreeMap<String, UnreadPolicy>,
    /// Their labels, by name.
    namespaces: BTreeMap<String, Labels>,
    /// By what all children of a set of workers are called.
    workers: BTreeMap<Key, WorkersSeen>,
    /// By namespace.
    network_policies: BTreeMap<String, ChildSeen>,
    /// By namespace and name.
    pods: BTreeMap<Key, PodSeen>,
    /// Who names a table, the eldest first: one tree, because a tree of its own for each table would have room for eleven rivals.
    tables: BTreeMap<(TableKey, Age), Key>,
    /// Pipelines that came, changed or went since they were last told.
    touched: Vec<(Key, Option<Touched>)>,
    /// Objects that cannot be decoded, with the kind, and why.
    undecodable: BTreeMap<(String, Key), String>,
}

/// When an object was made, in seconds, and its uid for those made within one of them.
type Age = (i64, String);

/// Before anything was made.
const ELDEST: Age = (i64::MIN, String::new());

#[derive(Debug)]
struct Seen {
    /// The same one while only status and version change.
    kept: Arc<Kept>,
    table: TableKey,
    age: Age,
    /// Whether its status says that rows are read and committed.
    ready: bool,
    /// What was decided last.
    decided: Option<Arc<Decided>>,
}

/// A pipeline that came or changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Touched {
    /// What it asks for.
    pub kept: Arc<Kept>,
    /// The version of the object.
    pub version: String,
    /// Its status.
    pub status: Option<IngestionPipelineStatus>,
}

impl From<IngestionPipeline> for Touched {
    fn from(object: IngestionPipeline) -> Self {
        Self {
            kept: Arc::new(Kept::of(&object)),
            version: object.metadata.resource_version.unwrap_or_default(),
            status: object.status,
        }
    }
}

/// What was decided about a pipeline, as far as its pool needs it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decided {
    /// Which generation of the specification it is about.
    pub generation: i64,
    /// The whole decision, of one that joins a pool.
    pub plan: Option<Arc<Plan>>,
    /// The pool that it joins, and with what; `None` for one with workers of its own, or with none at all.
    pub shared: Option<(PoolKey, Arc<Entry>)>,
}

/// Another pipeline that names the same table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rival {
    /// The elder one.
    pub key: Key,
    /// The table that both name.
    pub table: String,
}

impl Index {
    /// A pipeline that is there. A change of its status alone is a reason to look at nothing.
    pub fn apply_pipeline(&mut self, object: IngestionPipeline) -> Vec<Task> {
        let key = key_of(&object);
        self.undecodable
            .remove(&(IngestionPipeline::KIND.to_owned(), key.clone()));
        let tasks = self.take_in(&key, &object);
        let touched = self.pipelines.get(&key).map(|seen| Touched {
            kept: Arc::clone(&seen.kept),
            version: object.metadata.resource_version.unwrap_or_default(),
            status: object.status,
        });
        self.touched.push((key, touched));
        tasks
    }

    fn take_in(&mut self, key: &Key, object: &IngestionPipeline) -> Vec<Task> {
        let ready = object.status.as_ref().is_some_and(says_ready);
        let kept = Kept::of(object);
        if let Some(known) = self.pipelines.get_mut(key)
            && *known.kept == kept
        {
            known.ready = ready;
            return Vec::new();
        }
        let seen = Seen {
            table: table_key(&object.spec.sink),
            age: age_of(object),
            kept: Arc::new(kept),
            ready,
            decided: None,
        };
        let Some(before) = self.pipelines.remove(key) else {
            let mut tasks = self.enter(key, seen);
            tasks.push(Task::Namespace(key.namespace.clone()));
            return tasks;
        };
        let same_uid = before.kept.uid == seen.kept.uid;
        let mut tasks = self.leave(key, &before);
        let decided = before.decided.filter(|_| same_uid);
        tasks.extend(self.enter(key, Seen { decided, ..seen }));
        unique(tasks)
    }

    /// A pipeline that is gone.
    pub fn delete_pipeline(&mut self, key: &Key) -> Vec<Task> {
        self.undecodable
            .remove(&(IngestionPipeline::KIND.to_owned(), key.clone()));
        let Some(seen) = self.pipelines.remove(key) else {
            return Vec::new();
        };
        self.touched.push((key.clone(), None));
        let mut tasks = self.leave(key, &seen);
        tasks.extend([
            Task::Pipeline(key.clone()),
            Task::Namespace(key.namespace.clone()),
        ]);
        unique(tasks)
    }

    /// Those that name its table have to be looked at when it comes or goes, and its pool.
    fn leave(&mut self, key: &Key, seen: &Seen) -> Vec<Task> {
        let mut tasks = Vec::new();
        self.tables.remove(&(seen.table, seen.age.clone()));
        tasks.extend(self.naming(&seen.table).cloned().map(Task::Pipeline));
        let pool = seen.decided.as_ref().and_then(|decided| decided.pool());
        tasks.extend(
            pool.filter(|_| !self.pipelines.contains_key(key))
                .cloned()
                .map(Task::Pool),
        );
        tasks
    }

    fn enter(&mut self, key: &Key, seen: Seen) -> Vec<Task> {
        self.tables
            .insert((seen.table, seen.age.clone()), key.clone());
        let rivals = self.naming(&seen.table).cloned();
        let tasks = rivals.map(Task::Pipeline).collect();
        self.pipelines.insert(key.clone(), seen);
        tasks
    }

    /// Who names a table, the eldest first.
    fn naming<'a>(&'a self, table: &'a TableKey) -> impl Iterator<Item = &'a Key> {
        let all = self.tables.range((*table, ELDEST)..);
        all.take_while(move |((named, _), _)| named == table)
            .map(|(_, key)| key)
    }

    /// An object that cannot be decoded. What was known of it stays in force.
    pub fn undecodable(&mut self, kind: &str, key: Key, error: String) {
        self.undecodable.insert((kind.to_owned(), key), error);
    }

    /// What was decided about a pipeline; says which pools have to be looked at for it.
    pub fn set_decided(&mut self, key: &Key, decided: Decided) -> Vec<Task> {
        let Some(seen) = self.pipelines.get_mut(key) else {
            return Vec::new();
        };
        if seen.decided.as_deref() == Some(&decided) {
            return Vec::new();
        }
        let decided = Arc::new(decided);
        let before = seen.decided.replace(Arc::clone(&decided));
        let pools = [
            before.as_ref().and_then(|before| before.pool().cloned()),
            decided.pool().cloned(),
        ];
        unique(pools.into_iter().flatten().map(Task::Pool).collect())
    }

    /// What came, changed or went since this was last asked, one after the other.
    pub fn take_touched(&mut self) -> Vec<(Key, Option<Touched>)> {
        std::mem::take(&mut self.touched)
    }

    /// A pipeline, with no more of its status than the table's UUID.
    #[must_use]
    pub fn pipeline(&self, key: &Key) -> Option<IngestionPipeline> {
        Some(self.kept(key)?.whole(key))
    }

    /// What is kept of a pipeline.
    #[must_use]
    pub fn kept(&self, key: &Key) -> Option<&Arc<Kept>> {
        self.pipelines.get(key).map(|seen| &seen.kept)
    }

    /// Whether its status says that rows are read and committed: what is known of it until its workers have been asked.
    #[must_use]
    pub fn says_ready(&self, key: &Key) -> bool {
        self.pipelines.get(key).is_some_and(|seen| seen.ready)
    }

    /// What was decided about it last.
    #[must_use]
    pub fn decided(&self, key: &Key) -> Option<Arc<Decided>> {
        self.pipelines.get(key)?.decided.clone()
    }

    /// All pipelines.
    pub fn pipelines(&self) -> impl Iterator<Item = (&Key, &Arc<Kept>)> {
        self.pipelines.iter().map(|(key, seen)| (key, &seen.kept))
    }

    /// The pipelines of a namespace.
    pub fn of_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Key> {
        self.pipelines
            .range(Key::new(namespace, "")..)
            .map(|(key, _)| key)
            .take_while(move |key| key.namespace == namespace)
    }

    /// The pipelines behind a key, in their order.
    pub fn pipelines_after<'a>(&'a self, key: &Key) -> impl Iterator<Item = &'a Key> {
        let from = (Bound::Excluded(key.clone()), Bound::Unbounded);
        self.pipelines.range(from).map(|(key, _)| key)
    }

    /// The same with what they ask for.
    pub fn pipelines_of<'a>(
        &'a self,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Kept>)> {
        let own = self.of_namespace(namespace);
        own.filter_map(|key| Some((key, self.kept(key)?)))
    }

    /// The labels of a namespace.
    #[must_use]
    pub fn namespace_labels(&self, name: &str) -> Labels {
        self.namespaces.get(name).cloned().unwrap_or_default()
    }

    /// The policies, as decisions read them.
    #[must_use]
    pub fn policies(&self) -> Arc<Policies> {
        Arc::clone(&self.read_policies)
    }

    /// What beside its own specification keeps a pipeline from being accepted: a policy that may be about it and cannot be read,
    /// or an elder pipeline with its table.
    #[must_use]
    pub fn hindrance(&self, key: &Key) -> Option<Trouble> {
        let labels = &self.kept(key)?.labels;
        let of_namespace = self.namespace_labels(&key.namespace);
        let mut unread = self.unread_policies.values();
        let unread = unread.find(|policy| policy.selects(labels, &of_namespace));
        let unread = unread.map(|policy| {
            let told = format!("policy \"{}\": {}", policy.name(), policy.error);
            Trouble::new(Reason::PolicyUnreadable, told)
        });
        unread.or_else(|| {
            let Rival { key, table } = self.rival(key)?;
            let told = format!("table \"{table}\" is written by the elder pipeline \"{key}\"");
            Some(Trouble::new(Reason::TableTaken, told))
        })
    }

    /// The elder pipeline that names the same table, unless both of them say that they share it.
    #[must_use]
    pub fn rival(&self, key: &Key) -> Option<Rival> {
        let seen = self.pipelines.get(key)?;
        let shared = |elder: &Key| self.kept(elder).is_some_and(|elder| elder.shared);
        let elders = self.naming(&seen.table).take_while(|elder| *elder != key);
        let mut rivals = elders.filter(|elder| !(seen.kept.shared && shared(elder)));
        rivals.next().map(|elder| Rival {
            key: elder.clone(),
            table: seen.kept.table.clone(),
        })
    }

    /// The pipelines whose decision says that they join this pool, and those of its present members that nothing was decided about.
    #[must_use]
    pub fn pool_members(&self, pool: &PoolKey) -> Vec<(Key, String, Option<Arc<Decided>>)> {
        let owner = Owner::Pool(pool.clone());
        let present: BTreeSet<&String> = self
            .workers_of(&owner)
            .flat_map(|(_, workers)| workers.entries.uids())
            .collect();
        let members = self.of_namespace(&pool.namespace).filter_map(|key| {
            let seen = self.pipelines.get(key)?;
            let uid = &seen.kept.uid;
            let belongs = match &seen.decided {
                Some(decided) => decided.pool() == Some(pool),
                None => present.contains(uid),
            };
            belongs.then(|| (key.clone(), uid.clone(), seen.decided.clone()))
        });
        members.collect()
    }

    /// The objects that cannot be decoded: kind, name and why.
    pub fn all_undecodable(&self) -> impl Iterator<Item = (&str, &Key, &str)> {
        self.undecodable
            .iter()
            .map(|((kind, key), error)| (kind.as_str(), key, error.as_str()))
    }
}

impl Decided {
    /// The pool that the pipeline joins.
    #[must_use]
    pub fn pool(&self) -> Option<&PoolKey> {
        self.shared.as_ref().map(|(pool, _)| pool)
    }
}

trait HasKind {
    const KIND: &'static str;
}

impl HasKind for IngestionPipeline {
    const KIND: &'static str = "IngestionPipeline";
}

impl HasKind for IngestionPolicy {
    const KIND: &'static str = "IngestionPolicy";
}

fn key_of(object: &IngestionPipeline) -> Key {
    Key::new(&object.namespace().unwrap_or_default(), &object.name_any())
}

fn age_of(object: &IngestionPipeline) -> Age {
    let made = object.metadata.creation_timestamp.as_ref();
    let made_s = made.map_or(i64::MIN, |time| time.0.as_second());
    (made_s, object.uid().unwrap_or_default())
}

fn table_key(sink: &SinkSpec) -> TableKey {
    let catalog = &sink.catalog;
    let kind = catalog.kind.to_string();
    let mut digest = Sha256::new();
    for part in [
        kind.as_str(),
        catalog.uri.trim_end_matches('/'),
        catalog.name.as_deref().unwrap_or_default(),
        catalog.warehouse.as_deref().unwrap_or_default(),
        &sink.table,
    ] {
        digest.update([part.as_bytes(), &[0]].concat());
    }
    let digest = digest.finalize();
    digest[..16].try_into().expect("the digest has 32 bytes")
}

fn says_ready(status: &IngestionPipelineStatus) -> bool {
    let ready = condition(status, "Ready");
    ready.is_some_and(|ready| ready.status == ConditionStatus::True)
}

/// The pool that a pipeline joins by what its pods are like.
#[must_use]
pub fn pool_of(namespace: &str, pod: &EffectivePod) -> Option<PoolKey> {
    match &pod.place {
        Place::Dedicated(_) => None,
        Place::Shared { pool } => Some(PoolKey {
            namespace: namespace.to_owned(),
            service_account: pod.service_account_name.clone(),
            pool: pool.clone(),
        }),
    }
}

fn unique(tasks: Vec<Task>) -> Vec<Task> {
    tasks
        .into_iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::build::Kind;

    fn pipeline(name: &str, extra: &str) -> IngestionPipeline {
        let (head, spec) = extra.split_once("---").unwrap_or((extra, ""));
        let text = format!(
            "
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata:
  name: {name}
  namespace: shop
  uid: uid-{name}
  creationTimestamp: 2026-11-30T10:00:00Z
  managedFields: [{{manager: kubectl}}]
  {head}
spec:
  source: {{format: DebeziumJson, kafka: {{bootstrapServers: 'k:1', topics: [a]}}}}
  sink: {{table: shop.{name}, catalog: {{type: Rest, uri: 'http://c'}}}}
  {spec}
"
        );
        serde_yaml::from_str(&text).unwrap()
    }

    fn of_table(name: &str, made: &str, shared: bool) -> IngestionPipeline {
        let mut object = pipeline(name, "");
        object.spec.sink.table = "shop.one".into();
        object.spec.sink.shared = Some(shared);
        let made = format!("2026-11-30T{made}:00Z").parse().unwrap();
        object.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(made));
        object
    }

    fn policy(name: &str, spec: &str) -> IngestionPolicy {
        let text = format!(
            "{{apiVersion: tidemark.dev/v1alpha1, kind: IngestionPolicy, metadata: {{name: {name}}}, spec: {spec}}}"
        );
        serde_yaml::from_str(&text).unwrap()
    }

    fn key(name: &str) -> Key {
        Key::new("shop", name)
    }

    fn tasks(names: &[&str]) -> Vec<Task> {
        names.iter().map(|name| Task::Pipeline(key(name))).collect()
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    /// Its own status writes come back by the watch: looking at each again would never end.
    #[test]
    fn status_alone_is_no_reason_to_look() {
        let mut index = Index::default();
        let mut object = pipeline("a", "");
        let namespace = Task::Namespace("shop".into());
        assert_eq!(
            index.apply_pipeline(object.clone()),
            [tasks(&["a"]), vec![namespace.clone()]].concat()
        );
        object.status = Some(serde_yaml::from_str("{lag: '0'}").unwrap());
        object.metadata.resource_version = Some("2".into());
        let before = Arc::clone(index.kept(&key("a")).unwrap());
        index.take_touched();
        assert_eq!(index.apply_pipeline(object.clone()), []);
        let touched = Touched {
            kept: Arc::clone(&before),
            version: "2".into(),
            status: object.status.clone(),
        };
        assert_eq!(index.take_touched(), [(key("a"), Some(touched))]);
        assert!(Arc::ptr_eq(&before, index.kept(&key("a")).unwrap()));
        object.spec.suspend = Some(true);
        assert_eq!(index.apply_pipeline(object), tasks(&["a"]));
        assert_eq!(
            index.delete_pipeline(&key("a")),
            [tasks(&["a"]), vec![namespace]].concat()
        );
        assert_eq!(index.delete_pipeline(&key("a")), []);
    }

    /// What is decided about is what was seen, but for what no decision is about.
    #[test]
    fn what_decisions_are_about_is_kept() {
        let mut index = Index::default();
        let mut object = pipeline(
            "a",
            "labels: {team: x}\n  generation: 4\n  annotations: {long: text}---suspend: true",
        );
        let seen = "{lag: '0', tableUuid: 0c5e1a3e-6c1c-4d57-a4d8-3d1d5b7f5a10}";
        object.status = serde_yaml::from_str(seen).unwrap();
        index.apply_pipeline(object.clone());
        object.metadata.managed_fields = None;
        object.metadata.annotations = None;
        object.metadata.creation_timestamp = None;
        object.status.as_mut().unwrap().lag = None;
        assert_eq!(index.pipeline(&key("a")), Some(object));
    }

    #[test]
    fn policy_concerns_those_it_selects_and_those_it_selected() {
        let mut index = Index::default();
        index.apply_pipeline(pipeline("a", "labels: {team: x}"));
        index.apply_pipeline(pipeline("b", "labels: {team: y}"));
        let of = |team: &str| {
            policy(
                "p",
                &format!("{{selector: {{matchLabels: {{team: {team}}}}}}}"),
            )
        };
        assert_eq!(index.apply_policy(of("x")), tasks(&["a"]));
        assert_eq!(index.apply_policy(of("x")), []);
        assert_eq!(index.apply_policy(of("y")), tasks(&["a", "b"]));
        assert_eq!(index.delete_policy("p"), tasks(&["b"]));
        assert_eq!(index.delete_policy("p"), []);
    }

    #[test]
    fn labels_of_a_namespace_decide_too() {
        let mut index = Index::default();
        index.apply_pipeline(pipeline("a", ""));
        index.apply_policy(policy(
            "p",
            "{namespaceSelector: {matchLabels: {tier: gold}}, rollout: {}}",
        ));
        assert_eq!(
            index.apply_namespace("shop", labels(&[("tier", "gold")])),
            tasks(&["a"])
        );
        assert_eq!(
            index.apply_namespace("shop", labels(&[("tier", "gold")])),
            []
        );
        assert_eq!(index.apply_namespace("other", labels(&[])), []);
    }

    #[test]
    fn of_two_pipelines_with_one_table_the_younger_has_a_rival() {
        let mut index = Index::default();
        index.apply_pipeline(of_table("young", "11:00", false));
        assert_eq!(index.rival(&key("young")), None);
        let both = index.apply_pipeline(of_table("old", "09:00", false));
        assert_eq!(both[..2], tasks(&["old", "young"]));
        let rival = Rival {
            key: key("old"),
            table: "shop.one".into(),
        };
        assert_eq!(
            (index.rival(&key("old")), index.rival(&key("young"))),
            (None, Some(rival.clone()))
        );
        index.apply_pipeline(of_table("old", "09:00", true));
        assert_eq!(index.rival(&key("young")), Some(rival));
        assert_eq!(
            index.apply_pipeline(of_table("young", "11:00", true)),
            tasks(&["old", "young"])
        );
        assert_eq!(index.rival(&key("young")), None);
        index.apply_pipeline(of_table("old", "09:00", false));
        let after = index.delete_pipeline(&key("old"));
        assert!(after.contains(&tasks(&["young"])[0]), "{after:?}");
        assert_eq!(index.rival(&key("young")), None);
    }

    /// Deleted and made again between two looks: nothing of the old one may be kept.
    #[test]
    fn pipeline_made_again_is_another_one() {
        let mut index = Index::default();
        index.apply_pipeline(pipeline("a", ""));
        index.set_decided(&key("a"), Decided::default());
        let mut again = pipeline("a", "");
        again.metadata.uid = Some("uid-2".into());
        assert_eq!(index.apply_pipeline(again), tasks(&["a"]));
        assert_eq!(index.decided(&key("a")), None);
    }

    #[test]
    fn undecodable_object_is_named_until_it_is_mended() {
        let mut index = Index::default();
        index.undecodable("IngestionPipeline", key("a"), "missing field `sink`".into());
        let named: Vec<_> = index
            .all_undecodable()
            .map(|(kind, key, why)| format!("{kind} {key}: {why}"))
            .collect();
        assert_eq!(named, ["IngestionPipeline shop/a: missing field `sink`"]);
        index.apply_pipeline(pipeline("a", ""));
        assert_eq!(index.all_undecodable().count(), 0);
    }

    fn pool() -> PoolKey {
        PoolKey {
            namespace: "shop".into(),
            service_account: None,
            pool: "small".into(),
        }
    }

    fn entry(hash: &str) -> Arc<Entry> {
        let pod = EffectivePod {
            service_account_name: None,
            place: Place::Shared {
                pool: "small".into(),
            },
        };
        Arc::new(Entry {
            spec: String::new(),
            spec_hash: hash.into(),
            runs: hash.into(),
            pod,
            replicas: 1,
            memory_budget_bytes: 1,
            suspend: false,
            secrets: Vec::new(),
            table_uuid: None,
        })
    }

    fn member(hash: &str) -> Decided {
        Decided {
            generation: 1,
            plan: None,
            shared: Some((pool(), entry(hash))),
        }
    }

    #[test]
    fn pool_is_looked_at_for_each_decision_that_differs() {
        let mut index = Index::default();
        index.apply_pipeline(pipeline("a", ""));
        let of_pool = [Task::Pool(pool())];
        assert_eq!(index.set_decided(&key("a"), member("1")), of_pool);
        assert_eq!(index.set_decided(&key("a"), member("1")), []);
        assert_eq!(index.set_decided(&key("a"), Decided::default()), of_pool);
        index.set_decided(&key("a"), member("1"));
        assert!(index.delete_pipeline(&key("a")).contains(&of_pool[0]));
    }

    /// After a start nothing is decided yet: a pool must not drop members for that.
    #[test]
    fn present_member_of_a_pool_stays_until_something_is_decided_about_it() {
        let mut index = Index::default();
        for name in ["a", "b", "c"] {
            index.apply_pipeline(pipeline(name, ""));
        }
        let child = (
            Kind::ConfigMap,
            Some(Owner::Pool(pool())),
            ChildSeen::default(),
        );
        index.apply_child(&key("small-tidemark-0"), child, |workers| {
            let entries = ["uid-a", "uid-b", "gone"].map(|uid| (uid.to_owned(), entry("1")));
            workers.entries.set(BTreeMap::from(entries));
        });
        index.set_decided(&key("b"), Decided::default());
        index.set_decided(&key("c"), member("1"));
        let members: Vec<_> = index
            .pool_members(&pool())
            .into_iter()
            .map(|(_, uid, decided)| (uid, decided.is_some()))
            .collect();
        assert_eq!(
            members,
            [("uid-a".to_owned(), false), ("uid-c".to_owned(), true)]
        );
        assert_eq!(index.last_accepted("uid-b", "shop"), Some(&entry("1")));
    }

    #[test]
    fn child_that_is_not_as_it_was_concerns_its_owner() {
        let mut index = Index::default();
        let workers = key("a-tidemark");
        let mut apply = |version, hash: &str| {
            let seen = ChildSeen {
                uid: "1".into(),
                version,
                hash: hash.into(),
                ..ChildSeen::default()
            };
            let owner = Some(Owner::Pipeline(key("a")));
            index.apply_child(&workers, (Kind::Deployment, owner, seen), |_| ())
        };
        assert_eq!(apply(5, "1"), tasks(&["a"]));
        assert_eq!(apply(5, "1"), []);
        // What the watch says late of what was written since.
        assert_eq!(apply(4, "0"), []);
        assert_eq!(
            index
                .workers(&workers)
                .unwrap()
                .child(Kind::Deployment)
                .unwrap()
                .hash,
            "1"
        );
        assert_eq!(
            index.delete_child(&workers, Kind::Deployment),
            tasks(&["a"])
        );
        assert_eq!(index.workers(&workers), None);
    }

    #[test]
    fn only_ready_pods_are_asked() {
        let mut index = Index::default();
        for (name, workers, ready, leaving) in [
            ("1", "a-tidemark", true, false),
            ("2", "a-tidemark", false, false),
            ("3", "a-tidemark", true, true),
            ("4", "b-tidemark", true, false),
        ] {
            let pod = PodSeen {
                workers: workers.into(),
                ready,
                leaving,
                ..PodSeen::default()
            };
            index.set_pod(&key(name), Some(pod));
        }
        let names = |index: &Index| {
            index
                .ready_pods()
                .map(|(key, _)| key.name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&index), ["1", "4"]);
        let workers = key("a-tidemark");
        let of_a: Vec<&str> = index.pods_of(&workers).map(|(name, _)| name).collect();
        assert_eq!(of_a, ["1", "2"]);
        index.set_pod(&key("1"), None);
        assert_eq!(names(&index), ["4"]);
    }
}
