//! The rules of `spec.worker`: what the pods of a pipeline are like.
//!
//! What the API server would refuse in a pod is refused here, where the person who wrote it is told. Outside Kubernetes the same
//! fields are checked and have no effect.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Layered, Rules};
use crate::api::{
    pod::{
        CpuText, Placement, ResourceAmounts, TaintEffect, TolerationOperator, TolerationSpec,
        WorkerSpec,
    },
    quantity::{bytes, cpu, parse_bytes, parse_cpu_millis},
};

/// What a worker needs beside its rows and open files: code, clients of Kafka, their queues. Measured: 37 MiB idle, 183 MiB at
/// full rate with the usual budget, of which rows hold less than half.
const MEMORY_BESIDE_BUDGET: u64 = 128 << 20;

/// What a worker asks for where nothing is said, thousandths of a core.
const CPU_REQUEST_MILLIS: u32 = 250;

/// What labels and annotations of pods may not begin with.
const RESERVED: [&str; 2] = ["tidemark.dev/", "app.kubernetes.io/"];

/// What the pods of a pipeline are like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EffectivePod {
    /// The service account; the namespace's `default` where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Whether they are its own.
    pub place: Place,
}

/// In whose pods a pipeline runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// In its own.
    Dedicated(Box<Dedicated>),
    /// In those of a pool, with others of its namespace and service account.
    Shared {
        /// The pool.
        pool: String,
    },
}

/// Pods that run one pipeline alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Dedicated {
    /// What the container asks for and may use.
    pub resources: Resources,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that are borne.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<TolerationSpec>,
    /// The priority class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Further labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Further annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What a container asks for and what it may use at most; CPU in thousandths of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// CPU that is set aside.
    pub cpu_request_millis: u32,
    /// Memory that is set aside.
    pub memory_request_bytes: u64,
    /// CPU at most; no bound where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit_millis: Option<u32>,
    /// Memory at most.
    pub memory_limit_bytes: u64,
}

impl Resources {
    /// What a container needs whose pipelines may hold `budget_bytes` together, where nobody has said it.
    #[must_use]
    pub fn of_budget(budget_bytes: u64) -> Self {
        let memory = budget_bytes.saturating_add(MEMORY_BESIDE_BUDGET);
        Self {
            cpu_request_millis: CPU_REQUEST_MILLIS,
            memory_request_bytes: memory,
            cpu_limit_millis: None,
            memory_limit_bytes: memory,
        }
    }
}

/// Fills in what follows from the placement and the memory budget.
pub(super) fn fill(layered: &mut Layered) {
    let text = |keys: &[&str]| {
        let (value, _) = layered.get(keys)?;
        value.as_str().map(str::to_owned)
    };
    if text(&["worker", "placement"]).as_deref() == Some("Shared") {
        return layered.fill(&["worker", "pool"], Value::from("default"));
    }
    let amount = |part: &str, of: &str| text(&["worker", "resources", part, of]);
    let budget = text(&["worker", "memoryBudget"]);
    let Some(budget) = budget.as_deref().and_then(parse_bytes) else {
        return;
    };
    let usual = Resources::of_budget(budget);
    // What is said of the one bounds what is built in of the other.
    let said = |part, of| amount(part, of).as_deref().and_then(parse_bytes);
    let (least, most) = (said("requests", "memory"), said("limits", "memory"));
    let request = usual.memory_request_bytes.min(most.unwrap_or(u64::MAX));
    let limit = usual.memory_limit_bytes.max(least.unwrap_or_default());
    let most = amount("limits", "cpu");
    let most = most.as_deref().and_then(parse_cpu_millis);
    let most = most.filter(|millis| *millis > 0);
    let cores = usual.cpu_request_millis.min(most.unwrap_or(u32::MAX));
    for (part, of, value) in [
        ("requests", "memory", bytes(request)),
        ("limits", "memory", bytes(limit)),
        ("requests", "cpu", cpu(cores)),
    ] {
        layered.fill(&["worker", "resources", part, of], value.into());
    }
}

impl Rules {
    pub(super) fn pod(&mut self, spec: &WorkerSpec, budget_bytes: u64) -> EffectivePod {
        let place = match spec.placement {
            Some(Placement::Shared) => self.shared(spec),
            _ => Place::Dedicated(Box::new(self.dedicated(spec, budget_bytes))),
        };
        EffectivePod {
            service_account_name: spec.service_account_name.clone(),
            place,
        }
    }

    fn shared(&mut self, spec: &WorkerSpec) -> Place {
        let own = [
            ("resources", spec.resources.is_some()),
            ("nodeSelector", spec.node_selector.is_some()),
            ("tolerations", spec.tolerations.is_some()),
            ("priorityClassName", spec.priority_class_name.is_some()),
            ("podLabels", spec.pod_labels.is_some()),
            ("podAnnotations", spec.pod_annotations.is_some()),
        ];
        for (field, _) in own.into_iter().filter(|(_, said)| *said) {
            let path = format!("spec.worker.{field}");
            let remedy = "write placement: Dedicated, or leave it out: shared pods are alike";
            self.refuse_pair(
                [&path, "spec.worker.placement"],
                "do not go together",
                remedy,
            );
        }
        Place::Shared {
            pool: spec.pool.clone().unwrap_or_default(),
        }
    }

    fn dedicated(&mut self, spec: &WorkerSpec, budget_bytes: u64) -> Dedicated {
        if spec.pool.is_some() {
            let pair = ["spec.worker.pool", "spec.worker.placement"];
            let remedy = "write placement: Shared, or leave the pool out";
            self.refuse_pair(pair, "do not go together", remedy);
        }
        let labels = spec.pod_labels.clone().unwrap_or_default();
        let annotations = spec.pod_annotations.clone().unwrap_or_default();
        let node_selector = spec.node_selector.clone().unwrap_or_default();
        for (field, entries) in [("podLabels", &labels), ("nodeSelector", &node_selector)] {
            for (key, value) in entries {
                self.label(&format!("spec.worker.{field}[{key}]"), key, value);
            }
        }
        for key in annotations.keys().filter(|key| !is_label_key(key)) {
            let path = format!("spec.worker.podAnnotations[{key}]");
            self.refuse(&path, key, "is no key of an annotation", KEY_FORM);
        }
        let keys = [("podLabels", &labels), ("podAnnotations", &annotations)];
        for (field, key) in keys
            .iter()
            .flat_map(|(field, entries)| entries.keys().map(move |key| (field, key)))
        {
            if RESERVED.iter().any(|prefix| key.starts_with(prefix)) || key == "pod-template-hash" {
                let path = format!("spec.worker.{field}[{key}]");
                self.refuse(
                    &path,
                    key,
                    "is reserved",
                    "take another key: it is the operator's own",
                );
            }
        }
        let tolerations = spec.tolerations.clone().unwrap_or_default();
        for (index, toleration) in tolerations.iter().enumerate() {
            self.toleration(index, toleration);
        }
        Dedicated {
            resources: self.resources(spec, budget_bytes),
            node_selector,
            tolerations,
            priority_class_name: spec.priority_class_name.clone(),
            labels,
            annotations,
        }
    }

    fn label(&mut self, path: &str, key: &str, value: &str) {
        if !is_label_key(key) {
            self.refuse(path, key, "is no key of a label", KEY_FORM);
        }
        if !value.is_empty() && !is_label_part(value) {
            let remedy = "write at most 63 letters, digits, -, _ and ., the first and last a letter or digit";
            self.refuse(path, value, "is no value of a label", remedy);
        }
    }

    fn toleration(&mut self, index: usize, toleration: &TolerationSpec) {
        let at = |field: &str| format!("spec.worker.tolerations[{index}].{field}");
        let exists = toleration.operator == Some(TolerationOperator::Exists);
        let drives = toleration.effect == Some(TaintEffect::NoExecute);
        let rules = [
            (
                toleration.key.is_some() || exists,
                ["operator", "key"],
                "write a key, or operator: Exists for every key",
            ),
            (
                toleration.value.is_none() || !exists,
                ["value", "operator"],
                "leave the value out, or write operator: Equal",
            ),
            (
                toleration.toleration_seconds.is_none() || drives,
                ["tolerationSeconds", "effect"],
                "write effect: NoExecute, or leave the seconds out",
            ),
        ];
        for (_, [one, other], remedy) in rules.into_iter().filter(|(fits, ..)| !fits) {
            self.refuse_pair([&at(one), &at(other)], "do not go together", remedy);
        }
        if let Some(key) = toleration.key.as_ref().filter(|key| !is_label_key(key)) {
            self.refuse(&at("key"), key, "is no key of a taint", KEY_FORM);
        }
    }

    fn resources(&mut self, spec: &WorkerSpec, budget_bytes: u64) -> Resources {
        let said = spec.resources.clone().unwrap_or_default();
        let [(asked_cpu, asked), (most_cpu, most)] =
            [("requests", said.requests), ("limits", said.limits)].map(|(part, amounts)| {
                let amounts = amounts.unwrap_or_default();
                let path = format!("spec.worker.resources.{part}");
                (self.cores(&path, &amounts), self.memory(&path, &amounts))
            });
        let usual = Resources::of_budget(budget_bytes);
        let resources = Resources {
            cpu_request_millis: asked_cpu.unwrap_or(usual.cpu_request_millis),
            memory_request_bytes: asked.unwrap_or(usual.memory_request_bytes),
            cpu_limit_millis: most_cpu,
            memory_limit_bytes: most.unwrap_or(usual.memory_limit_bytes),
        };
        let no_less = [
            (
                "cpu",
                resources.cpu_request_millis > most_cpu.unwrap_or(u32::MAX),
            ),
            (
                "memory",
                resources.memory_request_bytes > resources.memory_limit_bytes,
            ),
        ];
        for (of, _) in no_less.into_iter().filter(|(_, less)| *less) {
            let [limit, request] =
                ["limits", "requests"].map(|part| format!("spec.worker.resources.{part}.{of}"));
            let remedy = "write a limit that is no less than what is asked for";
            self.refuse_pair([&limit, &request], "do not go together", remedy);
        }
        if resources.memory_limit_bytes < budget_bytes {
            let pair = [
                "spec.worker.resources.limits.memory",
                "spec.worker.memoryBudget",
            ];
            let remedy = format!(
                "write a limit of at least {}: the budget and what a worker needs beside it",
                bytes(usual.memory_limit_bytes)
            );
            self.refuse_pair(pair, "do not go together", &remedy);
        }
        resources
    }

    fn cores(&mut self, path: &str, amounts: &ResourceAmounts) -> Option<u32> {
        let CpuText(text) = amounts.cpu.as_ref()?;
        let millis = parse_cpu_millis(text).filter(|millis| *millis > 0);
        if millis.is_none() {
            let path = format!("{path}.cpu");
            self.refuse(&path, text, "is no amount of CPU", "write 500m, 0.5 or 2");
        }
        millis
    }

    fn memory(&mut self, path: &str, amounts: &ResourceAmounts) -> Option<u64> {
        // Less than this no process starts with; more no machine has.
        let bounds = [16 << 20, 1 << 44];
        self.size(&format!("{path}.memory"), amounts.memory.as_ref(), bounds)
    }
}

const KEY_FORM: &str = "write name or prefix/name: the name at most 63 letters, digits, -, _ and ., the prefix a DNS name";

/// Whether Kubernetes takes it for a key of labels, annotations and taints.
fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key
        .rsplit_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_dns_label = |part: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !part.is_empty()
            && part.chars().all(inner)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    is_label_part(name)
        && prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(is_dns_label))
}

/// Whether Kubernetes takes it for a value of a label, or for the name in a key.
fn is_label_part(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.chars().all(inner)
        && edge(text.chars().next())
        && edge(text.chars().next_back())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{
        effective::{PolicyLayers, layered, resolve},
        manifest::parse_manifests,
        pipeline::IngestionPipeline,
    };

    fn pipeline(worker: &str) -> IngestionPipeline {
        parse_manifests(&manifest(worker))
            .unwrap_or_else(|faults| panic!("{faults:?}"))
            .remove(0)
    }

    fn manifest(worker: &str) -> String {
        format!(
            "apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: orders, namespace: shop}}
spec:
  source: {{format: DebeziumJson, kafka: {{bootstrapServers: 'k:1', topics: [a]}}}}
  sink: {{table: shop.orders, catalog: {{type: Rest, uri: 'http://c'}}}}
  worker: {{{worker}}}
"
        )
    }

    fn pod(worker: &str) -> EffectivePod {
        let pipeline = pipeline(worker);
        resolve(&pipeline, &layered(&pipeline, &PolicyLayers::default()))
            .unwrap()
            .pod
    }

    fn refused(worker: &str) -> String {
        let faults = parse_manifests(&manifest(worker)).expect_err(worker);
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults[0].to_string()
    }

    fn dedicated(worker: &str) -> Dedicated {
        match pod(worker).place {
            Place::Dedicated(own) => *own,
            Place::Shared { pool } => panic!("shared in {pool}"),
        }
    }

    #[test]
    fn pods_follow_the_memory_budget_where_nothing_is_said() {
        let usual = Resources {
            cpu_request_millis: 250,
            memory_request_bytes: 384 << 20,
            cpu_limit_millis: None,
            memory_limit_bytes: 384 << 20,
        };
        let alone = Dedicated {
            resources: usual,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            priority_class_name: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        };
        let expected = EffectivePod {
            service_account_name: None,
            place: Place::Dedicated(Box::new(alone)),
        };
        assert_eq!(pod(""), expected);
        assert_eq!(
            dedicated("memoryBudget: 1Gi").resources,
            Resources::of_budget(1 << 30)
        );
    }

    /// What is said of requests or limits alone must not make a pod that the API server refuses.
    #[test]
    fn what_is_said_bounds_what_is_not() {
        let resources = dedicated("resources: {limits: {cpu: 100m, memory: 300Mi}}").resources;
        let expected = Resources {
            cpu_request_millis: 100,
            memory_request_bytes: 300 << 20,
            cpu_limit_millis: Some(100),
            memory_limit_bytes: 300 << 20,
        };
        assert_eq!(resources, expected);
        let resources = dedicated("resources: {requests: {cpu: '1.5', memory: 2Gi}}").resources;
        let expected = Resources {
            cpu_request_millis: 1500,
            memory_request_bytes: 2 << 30,
            cpu_limit_millis: None,
            memory_limit_bytes: 2 << 30,
        };
        assert_eq!(resources, expected);
    }

    #[test]
    fn shared_pods_have_a_pool() {
        let shared = |pool: &str| EffectivePod {
            service_account_name: None,
            place: Place::Shared { pool: pool.into() },
        };
        assert_eq!(pod("placement: Shared"), shared("default"));
        assert_eq!(pod("placement: Shared, pool: small"), shared("small"));
    }

    #[test]
    fn what_a_pod_cannot_be_is_refused_by_name() {
        let cases = [
            ("pool: small", ["worker.pool", "placement: Shared"]),
            (
                "placement: Shared, podLabels: {a: b}",
                ["worker.podLabels", "placement: Dedicated"],
            ),
            (
                "podLabels: {tidemark.dev/pipeline: x}",
                ["podLabels[tidemark.dev/pipeline]", "reserved"],
            ),
            (
                "podLabels: {app.kubernetes.io/name: x}",
                ["podLabels[app.kubernetes.io/name]", "reserved"],
            ),
            (
                "podAnnotations: {tidemark.dev/hash: x}",
                ["podAnnotations[tidemark.dev/hash]", "reserved"],
            ),
            ("podLabels: {'a b': x}", ["podLabels[a b]", "no key"]),
            ("podLabels: {a: 'x y'}", ["podLabels[a]", "no value"]),
            ("nodeSelector: {-a: x}", ["nodeSelector[-a]", "no key"]),
            (
                "podAnnotations: {A.B/c: x}",
                ["podAnnotations[A.B/c]", "no key"],
            ),
            (
                "tolerations: [{value: x}]",
                ["tolerations[0].operator", "tolerations[0].key"],
            ),
            (
                "tolerations: [{key: a, operator: Exists, value: x}]",
                ["tolerations[0].value", "Equal"],
            ),
            (
                "tolerations: [{key: a, tolerationSeconds: 5}]",
                ["tolerationSeconds", "NoExecute"],
            ),
            (
                "resources: {requests: {cpu: 2}, limits: {cpu: 500m}}",
                ["resources.requests.cpu", "text"],
            ),
            (
                "resources: {requests: {cpu: '2'}, limits: {cpu: 500m}}",
                ["resources.limits.cpu", "resources.requests.cpu"],
            ),
            (
                "resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}",
                ["resources.limits.memory", "resources.requests.memory"],
            ),
            (
                "memoryBudget: 1Gi, resources: {limits: {memory: 512Mi}}",
                ["resources.limits.memory", "at least 1152Mi"],
            ),
            (
                "resources: {limits: {cpu: '0'}}",
                ["resources.limits.cpu", "500m"],
            ),
        ];
        for (worker, words) in cases {
            let told = refused(worker);
            assert!(
                words.iter().all(|word| told.contains(word)),
                "{worker}: {told}"
            );
        }
    }

    #[test]
    fn keys_are_those_that_kubernetes_takes() {
        let long = "a".repeat(63);
        for good in [
            "a",
            "A_b.c-1",
            "example.com/x",
            "azure.workload.identity/use",
            &long,
        ] {
            assert!(is_label_key(good), "{good}");
        }
        let longer = "a".repeat(64);
        for bad in [
            "",
            "a/",
            "/a",
            "a/b/c",
            "-a",
            "a-",
            "Example.com/x",
            "a..b/x",
            "ä",
            &longer,
        ] {
            assert!(!is_label_key(bad), "{bad}");
        }
    }

    /// The operator stores it beside the specification.
    #[test]
    fn pod_is_written_and_read_back() {
        let pod = pod(
            "serviceAccountName: writer, nodeSelector: {disk: ssd}, tolerations: [{key: a, operator: Exists, effect: NoSchedule}], podLabels: {team: a}",
        );
        let written = serde_json::to_value(&pod).unwrap();
        let expected = json!({
            "serviceAccountName": "writer",
            "place": {"dedicated": {
                "resources": {"cpuRequestMillis": 250, "memoryRequestBytes": 402_653_184, "memoryLimitBytes": 402_653_184},
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
                "labels": {"team": "a"},
            }},
        });
        assert_eq!(written, expected);
        assert_eq!(
            serde_json::from_value::<EffectivePod>(written).unwrap(),
            pod
        );
    }
}
