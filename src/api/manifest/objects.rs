//! Pipelines, policies and namespaces from files, as `kubectl get -o yaml` writes them or a person does.
//!
//! They are only read and held against their schemas: what policies make of a pipeline is decided elsewhere, and so is what is wrong
//! with the outcome. Kinds of others are passed over: a folder of manifests holds more than ours.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{API_VERSION, Fault, PIPELINES, against, document_of, label_of, schema};
use crate::api::{effective::Broken, pipeline::IngestionPipeline, policy::IngestionPolicy};

/// The schema of policies, worked out once.
static POLICIES: LazyLock<Value> = LazyLock::new(schema::schema::<IngestionPolicy>);

/// What policies are about, and the policies.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    /// The pipelines.
    pub pipelines: Vec<IngestionPipeline>,
    /// The policies.
    pub policies: Vec<IngestionPolicy>,
    /// The labels of namespaces, by name.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

/// The pipelines, policies and namespaces of a text with YAML documents; a `List` stands for its items.
///
/// # Errors
/// Every fault there is, in the order of the documents.
pub fn parse_objects(text: &str) -> Result<Objects, Vec<Fault>> {
    let mut objects = Objects::default();
    let mut faults = Vec::new();
    for (number, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let place = format!("document {}", number + 1);
        match document_of(document) {
            Ok(None) => {}
            Ok(Some(object)) => objects.take(object, &place, &mut faults),
            Err(problem) => {
                // Behind a syntax error nothing can be told from the rest of the file.
                let remedy = "correct the text at this place";
                faults.push(Broken::new("YAML", None, problem, remedy).alone(&place));
                break;
            }
        }
    }
    if faults.is_empty() {
        Ok(objects)
    } else {
        Err(faults)
    }
}

impl Objects {
    fn take(&mut self, mut object: Value, place: &str, faults: &mut Vec<Fault>) {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        match (version.as_str(), kind.as_str()) {
            (_, "List") if object["items"].is_array() => {
                for item in object["items"].as_array_mut().into_iter().flatten() {
                    self.take(item.take(), place, faults);
                }
            }
            ("v1", "Namespace") => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let labels = BTreeMap::deserialize(&object["metadata"]["labels"]);
                self.namespaces
                    .insert(name.to_owned(), labels.unwrap_or_default());
            }
            (API_VERSION, "IngestionPolicy") => {
                let name = object["metadata"]["name"].as_str();
                let label = name.map_or(place.to_owned(), |name| format!("policy {name}"));
                let found = read(&POLICIES, &kind, &object);
                keep(&mut self.policies, found, &label, faults);
            }
            // A kind that is none is told like a pipeline that is wrong.
            (version, kind) if !ours(version, kind) => {}
            _ => {
                let label = label_of(&object, place.to_owned());
                let found = read(&PIPELINES, "IngestionPipeline", &object);
                keep(&mut self.pipelines, found, &label, faults);
            }
        }
    }
}

/// Whether it is of our group and no gate, or of no group at all.
fn ours(version: &str, kind: &str) -> bool {
    (version.starts_with("tidemark.dev/") && kind != "FinalizationGate") || version.is_empty()
}

/// An object of a kind, or what is wrong with it.
fn read<T: DeserializeOwned>(schema: &Value, kind: &str, object: &Value) -> Result<T, Vec<Broken>> {
    let found = against(schema, kind, object);
    if !found.broken.is_empty() {
        return Err(found.broken);
    }
    let read = T::deserialize(object);
    read.map_err(|error| {
        let remedy = "compare with the examples";
        vec![Broken::new("spec", None, error.to_string(), remedy)]
    })
}

fn keep<T>(kept: &mut Vec<T>, found: Result<T, Vec<Broken>>, label: &str, faults: &mut Vec<Fault>) {
    match found {
        Ok(object) => kept.push(object),
        Err(broken) => faults.extend(broken.into_iter().map(|broken| broken.alone(label))),
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;

    use super::*;

    const PIPELINE: &str = "{apiVersion: tidemark.dev/v1alpha1, kind: IngestionPipeline, metadata: {name: orders, namespace: shop}, spec: {source: {format: DebeziumJson, kafka: {bootstrapServers: 'k:1', topics: [a]}}, sink: {table: shop.orders, catalog: {type: Rest, uri: 'http://c'}}}}";
    const POLICY: &str = "{apiVersion: tidemark.dev/v1alpha1, kind: IngestionPolicy, metadata: {name: gold}, spec: {mode: Enforce, limits: {replicas: {max: 4}}}}";

    #[test]
    fn objects_are_read_from_documents_and_lists_and_others_are_passed_over() {
        let text = format!(
            "{PIPELINE}\n---\napiVersion: v1\nkind: List\nitems:\n- {POLICY}\n- {{apiVersion: v1, kind: Namespace, metadata: {{name: shop, labels: {{tier: gold}}}}}}\n---\n\
             {{apiVersion: v1, kind: Secret, metadata: {{name: s}}}}\n---\n{{apiVersion: tidemark.dev/v1alpha1, kind: FinalizationGate, metadata: {{name: g}}}}\n"
        );
        let objects = parse_objects(&text).unwrap();
        assert_eq!(objects.pipelines[0].name_any(), "orders");
        assert_eq!(
            objects.policies[0]
                .spec
                .limits
                .as_ref()
                .unwrap()
                .replicas
                .as_ref()
                .unwrap()
                .max,
            Some(4)
        );
        assert_eq!(objects.namespaces["shop"]["tier"], "gold");
        assert_eq!((objects.pipelines.len(), objects.policies.len()), (1, 1));
    }

    #[test]
    fn all_faults_come_in_one_run() {
        let text = format!(
            "{}\n---\n{}\n---\n{{apiVersion: tidemark.dev/v1alpha1, kind: IngestPolicy, metadata: {{name: a}}}}\n",
            PIPELINE.replace("format: DebeziumJson", "format: Avro"),
            POLICY
                .replace("max: 4", "most: 4")
                .replace("Enforce", "enforce"),
        );
        let faults = parse_objects(&text).unwrap_err();
        let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let expected = [
            r#"shop/orders: spec.source.format: "Avro": is none of the choices; write one of DebeziumJson, TicdcDebeziumJson, TicdcSimpleJson, CanalJson, Json"#,
            r"policy gold: spec.limits.replicas.most: 4: is no field; remove it; the fields here are max, min",
            r#"policy gold: spec.mode: "enforce": is none of the choices; write one of Audit, Enforce"#,
            r#"default/a: kind: "IngestPolicy": is not run by Tidemark; write IngestionPipeline"#,
        ];
        assert_eq!(told, expected);
    }
}
