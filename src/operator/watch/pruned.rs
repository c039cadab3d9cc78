//! Objects as the watch decodes them: of each the parts that are named here.
//!
//! Comes in: what the API server sends. What nobody asks for is passed over while it is read, above all who wrote which field, and
//! is never in memory: it is two thirds of an object, and a list of ten thousand comes in pages of hundreds, of six kinds at once.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Resource,
    api::ObjectMeta,
    core::{ApiResource, DynamicResourceScope},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;

use crate::{api::pipeline::IngestionPipeline, operator::policy::Labels};

/// An object with its metadata, and of the rest what its kind is asked for.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Pruned<P = IgnoredAny, U = IgnoredAny, D = IgnoredAny> {
    #[serde(deserialize_with = "lean")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: P,
    #[serde(default)]
    pub(super) status: U,
    #[serde(default)]
    pub(super) data: D,
}

/// A pipeline, or why it cannot be decoded: one object must not hide the others.
#[derive(Debug, Clone)]
pub(super) struct ReadPipeline {
    pub(super) metadata: ObjectMeta,
    /// Without its metadata.
    pub(super) read: Result<Box<IngestionPipeline>, String>,
}

impl ReadPipeline {
    /// The pipeline with its metadata.
    pub(super) fn whole(self) -> Result<IngestionPipeline, String> {
        let mut pipeline = self.read?;
        pipeline.metadata = self.metadata;
        Ok(*pipeline)
    }
}

impl<'de> Deserialize<'de> for ReadPipeline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn part<T: DeserializeOwned>(name: &str, value: Value) -> Result<T, String> {
            serde_json::from_value(value).map_err(|error| format!("{name}: {error}"))
        }
        let Pruned {
            metadata,
            spec,
            status,
            ..
        } = Pruned::<Value, Value>::deserialize(deserializer)?;
        let read = part("spec", spec).and_then(|spec| {
            let mut pipeline = IngestionPipeline::new("", spec);
            pipeline.status = part("status", status)?;
            Ok(Box::new(pipeline))
        });
        Ok(Self { metadata, read })
    }
}

impl<P, U, D> Resource for Pruned<P, U, D> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Resource for ReadPipeline {
    type DynamicType = ();
    type Scope = <IngestionPipeline as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        IngestionPipeline::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        IngestionPipeline::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        IngestionPipeline::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        IngestionPipeline::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Of the metadata what anybody here looks at.
fn lean<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Lean {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        labels: Option<Labels>,
        annotations: Option<Labels>,
    }
    let lean = Lean::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: lean.name,
        namespace: lean.namespace,
        uid: lean.uid,
        resource_version: lean.resource_version,
        generation: lean.generation,
        creation_timestamp: lean.creation_timestamp,
        deletion_timestamp: lean.deletion_timestamp,
        labels: lean.labels,
        annotations: lean.annotations,
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const META: &str = "{name: a, namespace: shop, uid: u, resourceVersion: '7', generation: 2, labels: {team: x}, \
        creationTimestamp: 2026-11-30T10:00:00Z, managedFields: [{manager: kubectl, fieldsV1: {f:spec: {}}}], selfLink: /}";

    #[test]
    fn what_nobody_asks_for_is_not_kept() {
        let text =
            format!("{{metadata: {META}, spec: {{replicas: [1]}}, data: {{a: b}}, kind: Any}}");
        let bare: Pruned = serde_yaml::from_str(&text).unwrap();
        let meta = &bare.metadata;
        assert_eq!((&meta.managed_fields, &meta.self_link), (&None, &None));
        let kept = (
            meta.uid.as_deref(),
            meta.resource_version.as_deref(),
            meta.generation,
        );
        assert_eq!(kept, (Some("u"), Some("7"), Some(2)));
        let map: Pruned<IgnoredAny, IgnoredAny, Labels> = serde_yaml::from_str(&text).unwrap();
        assert_eq!(map.data, BTreeMap::from([("a".into(), "b".into())]));
    }

    #[test]
    fn pipeline_that_cannot_be_decoded_says_whose_fault_it_is() {
        let read = |spec: &str, status: &str| {
            let text = format!(
                "{{apiVersion: v1, kind: Any, metadata: {META}, spec: {spec}, status: {status}}}"
            );
            let read: ReadPipeline = serde_yaml::from_str(&text).unwrap();
            assert_eq!(read.metadata.uid.as_deref(), Some("u"));
            read.whole()
        };
        let source = "{format: DebeziumJson, kafka: {bootstrapServers: 'k:1', topics: [a]}}";
        let sink = "{table: shop.a, catalog: {type: Rest, uri: 'http://c'}}";
        let whole = read(&format!("{{source: {source}, sink: {sink}}}"), "{lag: '0'}").unwrap();
        assert_eq!(whole.metadata.name.as_deref(), Some("a"));
        assert_eq!(whole.status.unwrap().lag.as_deref(), Some("0"));
        let error = read(&format!("{{source: {source}}}"), "null").unwrap_err();
        assert_eq!(error, "spec: missing field `sink`");
        let spec = format!("{{source: {source}, sink: {sink}}}");
        let error = read(&spec, "{epoch: first}").unwrap_err();
        assert!(error.starts_with("status: invalid type"), "{error}");
    }
}
