//! The custom resource `IngestionPolicy`: what a platform team decides for many pipelines at once.
//!
//! `defaults` fill what a pipeline leaves out, `overrides` win over what it says, `limits` bound what it may say. What identifies
//! a pipeline (table, writer, group, catalog) is never filled by a policy; how its brokers, catalog and store are reached may be.

#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats each struct within a function"
)]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use strum::VariantNames;

use super::{
    pipeline::{
        BytesText, CommitSpec, ExpireSpec, FinalizationSpec, KafkaSecuritySpec, LengthText,
        OnGapName, OnRollbackName, ProtocolName, QuantileNumber, SecretRefSpec, StorageSpec,
        TermName,
    },
    pod::{CpuText, WorkerSpec},
    schema::{Selector, StatusCondition, length_in_cel},
    worker::{OnGap, OnRollback, Protocol, Quantile, SecretRef, Term},
};

/// What a platform team decides for many pipelines: defaults, overrides, limits, and how fast a change goes over them.
///
/// Several policies may select one pipeline. Their limits all hold. Of their defaults and overrides the one with the greater `priority` counts, field by field; among equals the first by name.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "tidemark.dev",
    version = "v1alpha1",
    kind = "IngestionPolicy",
    shortname = "ipol",
    category = "tidemark",
    doc = "What a platform team decides for many pipelines: defaults, overrides, limits, and how fast a change goes over them.",
    derive = "PartialEq",
    status = "IngestionPolicyStatus",
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].status", "description": "Whether it counts; nothing of a policy does that is wrong somewhere."}"#,
    printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "description": "Whether its limits are enforced."}"#,
    printcolumn = r#"{"name": "Priority", "type": "integer", "jsonPath": ".spec.priority", "description": "Which one counts where several fill one field."}"#,
    printcolumn = r#"{"name": "Matched", "type": "integer", "jsonPath": ".status.matched", "description": "How many pipelines it selects."}"#,
    printcolumn = r#"{"name": "Violating", "type": "integer", "jsonPath": ".status.violating", "description": "How many of them break its limits."}"#,
    printcolumn = r#"{"name": "Pending", "type": "integer", "jsonPath": ".status.pending", "description": "How many wait for their turn to change."}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct IngestionPolicySpec {
    /// The labels of the pipelines that are meant. By default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// The labels of the namespaces whose pipelines are meant. By default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<Selector>,
    /// Which policy counts where several fill one field: the greatest, from -1000 to 1000. Built-in default 0. It has no part in limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: Option<i32>,
    /// What a pipeline gets where it says nothing itself.
    ///
    /// A change goes over the running pipelines in waves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<PolicyValues>,
    /// What a pipeline gets whatever it says itself. The policy's own limits do not bind it.
    ///
    /// A change goes over the running pipelines in waves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<PolicyValues>,
    /// What a pipeline may say, whoever said it but an override. A limit that is left out does not bind; of several policies all limits hold.
    ///
    /// In a pattern `*` stands for any number of characters, dots and slashes among them, and `{namespace}` for the pipeline's namespace. An empty list allows none. Bounds are included, and amounts are compared: `60m` is `1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsSpec>,
    /// What becomes of a pipeline beyond the limits: `Enforce` refuses it, `Audit` counts it and warns. Built-in default `Audit`.
    ///
    /// One that is running when the limit comes goes on with what was last accepted, and can always be suspended, deleted and relabelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<PolicyMode>,
    /// How fast a change goes over the pipelines that this policy selects, whatever the cause of the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutSpec>,
}

/// Fields of a pipeline that a policy may fill.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.finalization) || !has(self.finalization.completeFrom)").message("finalization.completeFrom speaks of one table's rows: set it in the pipeline"),
    validation = Rule::new("!has(self.worker) || !has(self.worker.serviceAccountName)").message("worker.serviceAccountName is an identity: set it in the pipeline")
)]
pub struct PolicyValues {
    /// What is filled of a pipeline's `spec.source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<PolicySource>,
    /// What is filled of a pipeline's `spec.sink`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<PolicySink>,
    /// What is filled of a pipeline's `spec.finalization`: every field but `completeFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalization: Option<FinalizationSpec>,
    /// What is filled of a pipeline's `spec.worker`: every field but `serviceAccountName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerSpec>,
}

/// Fields of a pipeline's source that a policy may fill.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PolicySource {
    /// How brokers are reached, and options of the Kafka client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kafka: Option<PolicyKafka>,
    /// What happens where rows are lost at the source, as in a pipeline: `Stop` or `Continue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<OnGapName>")]
    pub on_gap: Option<OnGap>,
}

/// Fields of a pipeline's Kafka client that a policy may fill.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PolicyKafka {
    /// How the brokers are reached, as in a pipeline; each field is filled by itself, and a password only for its own user.
    ///
    /// A secret that is named here is looked for in the namespace of each pipeline. What does not go with the `protocol` that counts in the end falls away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<KafkaSecuritySpec>,
    /// Options of the Kafka client, as in a pipeline; each is filled by itself. At most 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    pub properties: Option<BTreeMap<String, String>>,
}

/// Fields of a pipeline's sink that a policy may fill.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PolicySink {
    /// How the catalog and the files of its tables are reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<PolicyCatalog>,
    /// When rows are committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitSpec>,
    /// What is kept of a table's history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire: Option<ExpireSpec>,
    /// What becomes of rows that a roll-back takes out, as in a pipeline: `Replay` or `KeepOffsets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<OnRollbackName>")]
    pub on_rollback: Option<OnRollback>,
}

/// Fields of a pipeline's catalog that a policy may fill. Which catalog it is belongs to the pipeline.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PolicyCatalog {
    /// The secret that opens the catalog, as in a pipeline. It is looked for in the namespace of each pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretRefSpec>")]
    pub credential_ref: Option<SecretRef>,
    /// The secret with certificates that are trusted beside the usual ones, as in a pipeline. It falls away where the catalog's address is not `https://`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretRefSpec>")]
    pub ca_ref: Option<SecretRef>,
    /// How the files are reached, as in a pipeline; each field is filled by itself, and what belongs to a key only with that key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageSpec>,
    /// Options of the catalog, as in a pipeline; each is filled by itself. At most 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    pub properties: Option<BTreeMap<String, String>>,
}

/// What a pipeline may say.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LimitsSpec {
    /// The terms that `finalization.terms` may name, 1 to 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<TermName>>", length(min = 1, max = 6))]
    pub terms: Option<Vec<Term>>,
    /// The greatest `finalization.quantile`, `0.001`, `0.01` or `0.05`: how much of completeness may be traded for freshness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<QuantileNumber>")]
    pub quantile: Option<Quantile>,
    /// Bounds of `finalization.allowedLateness`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_lateness: Option<LengthLimits>,
    /// Bounds of `finalization.maxDelay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<LengthLimits>,
    /// Bounds of `finalization.maxFutureSkew`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_future_skew: Option<LengthLimits>,
    /// Bounds of `finalization.windowCommits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_commits: Option<CountLimits>,
    /// Bounds of `sink.commit.interval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_interval: Option<LengthLimits>,
    /// Bounds of `worker.replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<CountLimits>,
    /// The greatest `worker.memoryBudget`, as `1Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_budget: Option<BytesText>,
    /// The greatest CPU in `worker.resources`, asked for or as a limit, as `2` or `500m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuText>,
    /// The greatest memory in `worker.resources`, asked for or as a limit, as `2Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<BytesText>,
    /// Patterns of the brokers in `source.kafka.bootstrapServers`, at most 32, as `*.kafka.svc:9092`. Each broker has to match one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<PatternText>>", length(max = 32))]
    pub brokers: Option<Vec<String>>,
    /// Patterns of the topics, at most 32, as `{namespace}.*`: those read, the dead-letter topic and the heartbeat topic. A `topicPattern` is refused with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<PatternText>>", length(max = 32))]
    pub topics: Option<Vec<String>>,
    /// The protocols that `source.kafka.security.protocol` may name, 1 to 4, as `[SaslSsl]`. A pipeline that names none reads in `Plaintext`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<ProtocolName>>", length(min = 1, max = 4))]
    pub protocols: Option<Vec<Protocol>>,
    /// Patterns of `sink.catalog.uri`, at most 32, as `https://catalog.lake:8181`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<PatternText>>", length(max = 32))]
    pub catalogs: Option<Vec<String>>,
    /// Patterns of `sink.catalog.storage.endpoint`, at most 32, as `https://*.storage.example.org`. A pipeline that names none is not bound by it: its catalog says where the store is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<PatternText>>", length(max = 32))]
    pub stores: Option<Vec<String>>,
    /// Patterns of `sink.table`, at most 32, as `{namespace}.*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<PatternText>>", length(max = 32))]
    pub tables: Option<Vec<String>>,
    /// Patterns of `worker.serviceAccountName`, at most 32, as `ingest-*`. A pipeline that names none is not bound by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<PatternText>>", length(max = 32))]
    pub service_accounts: Option<Vec<String>>,
    /// Patterns of the secrets that a pipeline may refer to, wherever it does, at most 32, as `{namespace}-*`: credentials, passwords, keys, certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<PatternText>>", length(max = 32))]
    pub secrets: Option<Vec<String>>,
}

/// Bounds of a length, both of them included.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(format!("!has(self.min) || !has(self.max) || {} <= {}", length_in_cel("self.min"), length_in_cel("self.max"))).message("min is greater than max"))]
pub struct LengthLimits {
    /// The least, as `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<LengthText>,
    /// The greatest, as `7d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<LengthText>,
}

/// Bounds of a number, both of them included.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.min) || !has(self.max) || self.min <= self.max").message("min is greater than max"))]
pub struct CountLimits {
    /// The least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub min: Option<u32>,
    /// The greatest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max: Option<u32>,
}

/// What becomes of a pipeline beyond the limits.
#[derive(Serialize, Deserialize, VariantNames, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyMode {
    /// It is accepted, counted, and a warning is shown.
    #[default]
    Audit,
    /// It is refused.
    Enforce,
}

/// How fast a change goes over many pipelines.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSpec {
    /// How many pipelines may be changing at once, as a number or a share of those selected: `20` or `5%`, at least one. Built-in default `10%`.
    ///
    /// `0` holds every change back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 5),
        regex(pattern = r"^([0-9]{1,5}|[0-9]{1,2}%|100%)$")
    )]
    pub max_changing: Option<String>,
    /// How long a changed pipeline has to get ready again, from `10s` to `24h`. Built-in default `10m`.
    ///
    /// One that was ready before and is not by then has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<LengthText>,
    /// How many may fail before the change goes no further, from 0 to 1000. Built-in default 0.
    ///
    /// It goes on when they are ready again, or when the cause is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub max_failed: Option<u32>,
}

/// What a policy does at present.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct IngestionPolicyStatus {
    /// Which generation of the specification the rest speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// `Accepted`: whether it can be applied as it is written. `Progressing`: whether a change is going over its pipelines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
    /// How many pipelines it selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub matched: Option<u32>,
    /// How many of them break its limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub violating: Option<u32>,
    /// How many of them wait for their turn to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub pending: Option<u32>,
    /// The first that break its limits, at most 10, by namespace and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub violators: Vec<Violator>,
}

/// A pipeline beyond the limits of a policy.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Violator {
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The field, its value and the limit.
    #[schemars(length(max = 512))]
    pub message: String,
}

struct PatternText;

super::schema::choices!(PolicyMode);

super::schema::inline_schema! {
    PatternText: {"type": "string", "minLength": 1, "maxLength": 253, "pattern": "^([a-zA-Z0-9._:/@*-]|\\{namespace\\})+$"};
}
