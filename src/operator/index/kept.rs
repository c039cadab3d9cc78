//! What is kept of a pipeline: what is asked for again and again, and the rest as text.
//!
//! A specification has room for everything that one may say, some 3 KB, and says a sixth of it; it is read when something is decided.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{ResourceExt, api::ObjectMeta};
use uuid::Uuid;

use crate::{
    api::{pipeline::IngestionPipeline, status::IngestionPipelineStatus},
    operator::{Key, policy::Labels},
};

/// A pipeline, without its status and its version.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// What tells it from another one that had the same name.
    pub uid: String,
    /// Its labels.
    pub labels: Labels,
    /// The table that it writes, as its specification names it.
    pub table: String,
    /// Whether it says that it shares its table.
    pub(super) shared: bool,
    generation: Option<i64>,
    deleted: Option<Time>,
    /// The UUID of the table, as its status says it.
    table_uuid: Option<Uuid>,
    /// In JSON.
    spec: Box<str>,
}

impl Kept {
    /// Of an object as it was seen.
    #[must_use]
    pub(in crate::operator) fn of(object: &IngestionPipeline) -> Self {
        let (meta, sink) = (&object.metadata, &object.spec.sink);
        let spec = serde_json::to_string(&object.spec).expect("plain structs are valid JSON");
        Self {
            uid: object.uid().unwrap_or_default(),
            labels: object.labels().clone(),
            table: sink.table.clone(),
            shared: sink.shared == Some(true),
            generation: meta.generation,
            deleted: meta.deletion_timestamp.clone(),
            table_uuid: object.status.as_ref().and_then(|status| status.table_uuid),
            spec: spec.into(),
        }
    }

    /// What is decided about: the object with no more of its status than the UUID of the table.
    #[must_use]
    pub(super) fn whole(&self, key: &Key) -> IngestionPipeline {
        let spec = serde_json::from_str(&self.spec).expect("a specification that was written here");
        let status = self.table_uuid.map(|table_uuid| IngestionPipelineStatus {
            table_uuid: Some(table_uuid),
            ..IngestionPipelineStatus::default()
        });
        IngestionPipeline {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                namespace: Some(key.namespace.clone()),
                uid: Some(self.uid.clone()),
                generation: self.generation,
                deletion_timestamp: self.deleted.clone(),
                labels: (!self.labels.is_empty()).then(|| self.labels.clone()),
                ..ObjectMeta::default()
            },
            spec,
            status,
        }
    }
}
