//! The `ConfigMap` of a set of workers: for each pipeline the effective specification, and what was accepted about its pods.
//!
//! The worker reads `<uid>.yaml`, exactly an effective specification; `<uid>.accepted` is for the operator, which goes on with both
//! while a changed pipeline is not accepted. It holds references to secrets, never a secret.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::{Child, Kind, Member, Workers, metadata};
use crate::api::{
    EffectiveSpec,
    effective::{EffectivePod, Resolved},
    worker::SecretRef,
};

const SPEC: &str = ".yaml";
const KEPT: &str = ".accepted";

/// What a `ConfigMap` holds of one pipeline: all that is needed to go on with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The effective specification as the worker reads it.
    #[serde(skip)]
    pub spec: String,
    /// The hash of specification and pods, as the status shows it.
    pub spec_hash: String,
    /// The hash of the specification alone, as the worker reports it once it is in force.
    pub runs: String,
    /// What the pods are like.
    pub pod: EffectivePod,
    /// How many workers run it.
    pub replicas: u32,
    /// How many bytes of rows one of them may hold.
    pub memory_budget_bytes: u64,
    /// Whether it stands still.
    #[serde(default)]
    pub suspend: bool,
    /// The secrets that it refers to, in order, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretRef>,
    /// The UUID that its table was seen with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_uuid: Option<Uuid>,
}

impl Entry {
    /// What was resolved, as it is kept. `table_uuid`: what the table was seen with.
    #[must_use]
    pub fn of(resolved: &Resolved, table_uuid: Option<Uuid>) -> Self {
        let mut spec = resolved.spec.clone();
        spec.sink.known_table = table_uuid;
        let secrets: BTreeSet<&SecretRef> = spec.secret_refs().collect();
        Self {
            spec: spec.to_yaml(),
            spec_hash: resolved.hash(),
            runs: spec.hash(),
            pod: resolved.pod.clone(),
            replicas: spec.worker.replicas,
            memory_budget_bytes: spec.worker.memory_budget_bytes,
            suspend: spec.suspend,
            secrets: secrets.into_iter().cloned().collect(),
            table_uuid,
        }
    }

    /// The same for a table that was seen with this UUID: its workers refuse another one. What runs is no other for it.
    #[must_use]
    pub fn with_table(mut self, table_uuid: Option<Uuid>) -> Self {
        if table_uuid.is_some()
            && self.table_uuid != table_uuid
            && let Ok(mut spec) = EffectiveSpec::from_yaml(&self.spec)
        {
            spec.sink.known_table = table_uuid;
            self.spec = spec.to_yaml();
            self.table_uuid = table_uuid;
        }
        self
    }

    /// Whether two ask for the same: that more is known of the table is nothing that runs otherwise.
    #[must_use]
    pub fn asks_as(&self, other: &Self) -> bool {
        let bare = |entry: &Self| Self {
            spec: String::new(),
            table_uuid: None,
            ..entry.clone()
        };
        bare(self) == bare(other)
    }

    /// The same, standing still or not: that may be said even where nothing else is accepted.
    #[must_use]
    pub fn with_suspend(&self, suspend: bool) -> Self {
        let mut entry = self.clone();
        entry.suspend = suspend;
        // One of an older version that cannot be read any more stands still by having no pod.
        if self.suspend != suspend
            && let Ok(mut spec) = EffectiveSpec::from_yaml(&self.spec)
        {
            spec.suspend = suspend;
            entry.spec = spec.to_yaml();
            entry.runs = spec.hash();
        }
        entry
    }
}

pub(super) fn config_map(workers: &Workers) -> Child {
    let mut data = BTreeMap::new();
    for (uid, Member { entry, .. }) in &workers.members {
        let kept = serde_json::to_string(&**entry).expect("plain structs are valid JSON");
        data.insert(format!("{uid}{SPEC}"), entry.spec.clone());
        data.insert(format!("{uid}{KEPT}"), kept);
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(workers),
        "data": data,
    });
    Child::new(Kind::ConfigMap, &workers.key, object)
}

/// The pipelines that a `ConfigMap` holds, by uid. What cannot be read is left out: then nothing was accepted before.
#[must_use]
pub fn entries(data: &BTreeMap<String, String>) -> BTreeMap<String, Arc<Entry>> {
    let whole = data.iter().filter_map(|(key, spec)| {
        let uid = key.strip_suffix(SPEC)?;
        let mut entry: Entry = serde_json::from_str(data.get(&format!("{uid}{KEPT}"))?).ok()?;
        entry.spec.clone_from(spec);
        Some((uid.to_owned(), Arc::new(entry)))
    });
    whole.collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_object, workers};
    use super::*;

    #[test]
    fn a_pipeline_is_one_file_and_what_was_accepted_about_its_pods() {
        let workers = workers("{placement: Shared, serviceAccountName: lake}");
        let mut child = config_map(&workers);
        let data = serde_json::from_value(child.object["data"].clone()).unwrap();
        let entry = &workers.members["uid-1"].entry;
        assert_eq!(
            entries(&data),
            BTreeMap::from([("uid-1".into(), Arc::clone(entry))])
        );
        let read = EffectiveSpec::from_yaml(&data["uid-1.yaml"]).unwrap();
        assert_eq!(read.hash(), entry.runs);
        child.object["data"]["uid-1.yaml"] = "".into();
        let expected = r#"
apiVersion: v1
kind: ConfigMap
metadata:
  name: orders-tidemark
  namespace: shop
  labels:
    app.kubernetes.io/name: tidemark
    app.kubernetes.io/component: worker
    app.kubernetes.io/instance: orders-tidemark
    app.kubernetes.io/managed-by: tidemark
    tidemark.dev/placement: Shared
    tidemark.dev/workers: orders-tidemark
  annotations: {tidemark.dev/pool: lake/default}
  ownerReferences:
    - {apiVersion: tidemark.dev/v1alpha1, kind: IngestionPipeline, name: orders, uid: uid-1}
data:
  uid-1.yaml: ""
  uid-1.accepted: 'ACCEPTED'
"#;
        let accepted = format!(
            r#"{{"specHash":"{}","runs":"{}","pod":{{"serviceAccountName":"lake","place":{{"shared":{{"pool":"default"}}}}}},"replicas":1,"memoryBudgetBytes":268435456,"suspend":false,"secrets":[{{"name":"catalog","key":"ca"}},{{"name":"catalog","key":"credential"}}]}}"#,
            entry.spec_hash, entry.runs
        );
        assert_object(&child, &expected.replace("ACCEPTED", &accepted));
    }

    /// What becomes known of a table restarts nothing, waits for no wave, and reaches the worker.
    #[test]
    fn table_that_was_seen_is_handed_on_and_asks_for_nothing() {
        let entry = Entry::clone(&workers("{}").members["uid-1"].entry);
        let table = Uuid::from_u128(7);
        let seen = entry.clone().with_table(Some(table));
        let spec = EffectiveSpec::from_yaml(&seen.spec).unwrap();
        assert_eq!(
            (spec.sink.known_table, spec.hash(), seen.runs.clone()),
            (Some(table), entry.runs.clone(), entry.runs.clone())
        );
        assert!(seen.asks_as(&entry) && seen != entry);
        assert!(!seen.with_suspend(true).asks_as(&entry));
        assert_eq!(seen.clone().with_table(None), seen);
        let data = config_map(&workers("{}"));
        assert_eq!(
            entries(&serde_json::from_value(data.object["data"].clone()).unwrap())["uid-1"]
                .table_uuid,
            None
        );
    }

    /// Somebody else's key, and one of a later version.
    #[test]
    fn what_cannot_be_read_was_never_accepted() {
        let data = BTreeMap::from([
            ("a.yaml".to_owned(), "x".to_owned()),
            ("b.yaml".to_owned(), "x".to_owned()),
            ("b.accepted".to_owned(), "{}".to_owned()),
            ("notes".to_owned(), "x".to_owned()),
        ]);
        assert_eq!(entries(&data), BTreeMap::new());
    }

    #[test]
    fn what_was_accepted_can_be_suspended_and_go_on() {
        let entry = Entry::clone(&workers("{}").members["uid-1"].entry);
        let still = entry.with_suspend(true);
        assert!(EffectiveSpec::from_yaml(&still.spec).unwrap().suspend);
        assert_ne!(still.runs, entry.runs);
        assert_eq!(still.with_suspend(false), entry);
    }
}
