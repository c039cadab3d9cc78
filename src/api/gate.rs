//! The custom resource `FinalizationGate`: waits until hours of several tables are final, and says so once.
//!
//! `kubectl wait` compares for equality, so it cannot wait for an instant; it can wait for a gate's condition.

#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats each struct within a function"
)]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{
    pipeline::{InstantText, LengthText, TermName},
    schema::{Selector, StatusCondition},
    worker::Term,
};

/// Becomes `Final` once, when all the named tables are complete from one instant up to another.
///
/// Wait for it with `kubectl wait --for=condition=Final`. It cannot be changed: make another one for another time.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "tidemark.dev",
    version = "v1alpha1",
    kind = "FinalizationGate",
    namespaced,
    shortname = "fgate",
    category = "tidemark",
    doc = "Becomes Final once, when all the named tables are complete from one instant up to another.",
    derive = "PartialEq",
    status = "FinalizationGateStatus",
    printcolumn = r#"{"name": "Final", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Final\")].status", "description": "Whether all of it is final."}"#,
    printcolumn = r#"{"name": "Before", "type": "string", "jsonPath": ".spec.before", "description": "The end of the time that is waited for."}"#,
    printcolumn = r#"{"name": "Tables", "type": "string", "jsonPath": ".status.ready", "description": "How many of the tables are final."}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Final\")].reason", "description": "Why it is so."}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self == oldSelf").message("a gate cannot be changed; make another one"),
    validation = Rule::new("[has(self.pipelines), has(self.tables), has(self.selector)].filter(x, x).size() == 1").message("set one of pipelines, tables and selector")
)]
pub struct FinalizationGateSpec {
    /// The pipelines of this namespace whose tables are waited for, 1 to 100, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 253)))]
    pub pipelines: Option<Vec<String>>,
    /// The tables that are waited for, 1 to 100, as `shop.orders`: each one that a pipeline of this namespace writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 3, max = 512)))]
    pub tables: Option<Vec<String>>,
    /// The labels of the pipelines of this namespace whose tables are waited for. One that matches none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// The first instant that has to be complete, as `2026-11-30T12:00:00Z`. Built-in default: one cell of each table before `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<InstantText>,
    /// The first instant that need not be complete any more, as `2026-11-30T13:00:00Z`.
    pub before: InstantText,
    /// On which terms a claim may rest, 1 to 6. By default on any. A claim that rests on another one does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<TermName>>", length(min = 1, max = 6))]
    pub accept: Option<Vec<Term>>,
    /// How long after it became final the gate is deleted, as `24h`. By default it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_after_final: Option<LengthText>,
}

/// How far a gate has got.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FinalizationGateStatus {
    /// `Final`: once true it stays so, whatever becomes of the tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
    /// How many of the tables are final, as `2/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub ready: Option<String>,
    /// The first pipelines that are not, at most 10, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub waiting: Vec<WaitingPipeline>,
    /// When it became final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_at: Option<InstantText>,
}

/// A pipeline that a gate waits for.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct WaitingPipeline {
    /// Its name, or the table's where no pipeline writes it.
    #[schemars(length(max = 512))]
    pub name: String,
    /// Why it is not final.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// The values that belong to the reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub message: String,
}
