//! What the worker pods of a pipeline are like: how many, how large, where they run, and whether they are shared.
//!
//! A part of the custom resources; outside Kubernetes only the number of replicas and the memory budget mean anything.

#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats each struct within a function"
)]

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use strum::VariantNames;

use super::pipeline::BytesText;

/// How many workers run a pipeline, what each may use, and where.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.pool) || (has(self.placement) && self.placement == 'Shared')").message("pool goes with placement: Shared"),
    validation = Rule::new("!has(self.placement) || self.placement != 'Shared' || (!has(self.resources) && !has(self.nodeSelector) && !has(self.tolerations) && !has(self.priorityClassName) && !has(self.podLabels) && !has(self.podAnnotations))").message("resources, nodeSelector, tolerations, priorityClassName, podLabels and podAnnotations go with placement: Dedicated; shared pods are alike")
)]
pub struct WorkerSpec {
    /// How many workers share the partitions, from 1 to 64. Built-in default 1. `tidemark run` is one of them.
    ///
    /// With one the partitions are assigned without a group; a second copy by accident is harmless, the table fences it. `kubectl scale` changes it where it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub replicas: Option<u32>,
    /// How many bytes of rows and open files a worker holds, from `16Mi` to `64Gi`. Built-in default `256Mi`.
    ///
    /// Reaching it closes files early; it does not commit. The memory of a pod follows it unless `resources` says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_budget: Option<BytesText>,
    /// Whether the pipeline has pods of its own, `Dedicated`, or shares them with others of its namespace, `Shared`. Built-in default `Dedicated`.
    ///
    /// Shared pods suit many small pipelines. A change moves the pipeline to other pods: it commits where it was and goes on where the table stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Which pool of shared pods it joins. Built-in default `default`. Pipelines share a pod only within one namespace, one service account and one pool.
    ///
    /// A change moves the pipeline to other pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 40),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub pool: Option<String>,
    /// The service account of the pods, for the identity that a cloud gives to it. Built-in default: the namespace's `default`.
    ///
    /// Its token is never mounted. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub service_account_name: Option<String>,
    /// What the container asks for and may use. Built-in default: memory after `memoryBudget`, a quarter of a CPU asked for and none as a limit.
    ///
    /// A change restarts the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesSpec>,
    /// Labels that a node must have for the pods to run on it, at most 32. None by default. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints of nodes that the pods bear, at most 16. None by default. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub tolerations: Option<Vec<TolerationSpec>>,
    /// The priority class of the pods. None by default. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub priority_class_name: Option<String>,
    /// Further labels of the pods, at most 32, as `azure.workload.identity/use: "true"`. None by default. A change restarts the pods.
    ///
    /// Labels below `tidemark.dev/` and `app.kubernetes.io/` are the operator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub pod_labels: Option<BTreeMap<String, String>>,
    /// Further annotations of the pods, at most 32. None by default. A change restarts the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    pub pod_annotations: Option<BTreeMap<String, String>>,
}

/// What a container asks for, and what it may use at most.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ResourcesSpec {
    /// What the scheduler sets aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceAmounts>,
    /// What the container may use at most. Beyond its CPU it is slowed down, beyond its memory it is ended; nothing is lost by either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceAmounts>,
}

/// An amount of CPU and one of memory.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceAmounts {
    /// CPU in cores or thousandths of one: `2`, `0.5` or `500m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuText>,
    /// Memory in bytes, as `512Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<BytesText>,
}

/// A taint that is borne, as in a pod.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TolerationSpec {
    /// The taint's key. Without one every key matches, and `operator` is `Exists`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 316))]
    pub key: Option<String>,
    /// How `value` is compared: `Equal` or `Exists`. The cluster takes `Equal` where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// The taint's value, with `Equal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// Which effect of the taint is borne: `NoSchedule`, `PreferNoSchedule` or `NoExecute`. All where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// For how many seconds `NoExecute` is borne. For good where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 604_800))]
    pub toleration_seconds: Option<i64>,
}

/// Whether pods are shared.
#[derive(
    Serialize,
    Deserialize,
    VariantNames,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
)]
pub enum Placement {
    /// Pods of its own.
    #[default]
    Dedicated,
    /// Pods with others of its namespace, service account and pool.
    Shared,
}

/// How a taint's value is compared.
#[derive(Serialize, Deserialize, VariantNames, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TolerationOperator {
    /// It is the one named.
    Equal,
    /// It is any.
    Exists,
}

/// What a taint does.
#[derive(Serialize, Deserialize, VariantNames, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintEffect {
    /// Keeps new pods away.
    NoSchedule,
    /// Keeps new pods away if it can.
    PreferNoSchedule,
    /// Drives pods away.
    NoExecute,
}

/// A text with the schema of an amount of CPU.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(transparent)]
pub struct CpuText(pub String);

super::schema::choices!(Placement TolerationOperator TaintEffect);

super::schema::inline_schema! {
    CpuText: {"type": "string", "maxLength": 16, "pattern": "^([0-9]{1,6}m|[0-9]{1,4}(\\.[0-9]{1,3})?)$"};
}
