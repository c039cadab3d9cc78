//! What the operator writes into the status of a pipeline: the claim, what holds it, and how many workers run.
//!
//! Coarse on purpose: a value that changes with every commit would be a write to the API server with every commit. Exact figures
//! are in the workers' `/progress` and `/metrics`. It holds no rows of partitions.

#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats each struct within a function"
)]

use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    pipeline::{InstantText, LengthText},
    schema::StatusCondition,
};

/// How a pipeline is doing.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct IngestionPipelineStatus {
    /// Which generation of the specification the rest speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// `Accepted`, `Ready`, `Advancing`, `Reopened` and `Suspended`, each with a reason and what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
    /// The table's claim: every row with an event time from `completeFrom` on and before this instant is in the table, `gaps` apart. Absent while nothing is claimed.
    ///
    /// It was true when it was written here and stays true until `epoch` changes; the table may have got further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalized_before: Option<InstantText>,
    /// From when on the claim holds. Absent where the table holds everything there ever was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_from: Option<InstantText>,
    /// Where the claim does not hold, at most 16. Where the table names more, several stand here as one that covers them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub gaps: Vec<GapStatus>,
    /// Cells that got rows after they were final and do not count until the claim next rises, at most 16, like `gaps`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub withheld: Vec<GapStatus>,
    /// How far fewer of the admitted terms alone would carry the claim, at most 7 sets of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    pub accepted: Vec<AcceptedStatus>,
    /// Which terms the claim rests on, as `minimum,caught-up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub evidence: Option<String>,
    /// The length of the table's cells, as `1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<LengthText>,
    /// The zone whose days the cells are, where they are a zone's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub zone: Option<String>,
    /// The epoch of the claim. Within one it never goes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub epoch: Option<u64>,
    /// The commit for which the claim is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<UuidText>")]
    pub commit_id: Option<Uuid>,
    /// How many rows are still to be read, in steps: `0`, `<1k`, `<10k`, `<100k`, `<1M`, `<10M` or `>=10M`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub lag: Option<String>,
    /// How many workers there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<u32>,
    /// How many of them are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ready_replicas: Option<u32>,
    /// Which labels its pods have, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub selector: Option<String>,
    /// The UUID of the table, once it was seen. Workers refuse another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<UuidText>")]
    pub table_uuid: Option<Uuid>,
    /// The hash of the effective specification that the workers were last given; `tidemark effective` prints it with the source of each value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub spec_hash: Option<String>,
}

/// From an instant up to another one, in which rows may be missing.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GapStatus {
    /// The first instant in it.
    pub from: InstantText,
    /// The first instant after it.
    pub before: InstantText,
}

/// How far some terms alone would carry the claim.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedStatus {
    /// The terms, as `caught-up`.
    #[schemars(length(max = 256))]
    pub terms: String,
    /// Every row with an event time before this instant is in the table, by these terms.
    pub before: InstantText,
}

struct UuidText;

super::schema::inline_schema! {
    UuidText: {"type": "string", "maxLength": 36, "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"};
}
