//! Manifests as files hold them: YAML documents in, pipelines or every fault out.
//!
//! A document is checked against the schema of the custom resource itself, so a file is refused for what the API server
//! refuses or drops; then the pipeline is resolved, so that rules between fields are part of the same run.
//!
//! A fault names the object, the path, the value and what to do; a file with five faults is told all five.

use std::{collections::BTreeSet, fmt, sync::LazyLock};

use serde::Deserialize;
use serde_json::Value;

use super::{
    effective::{Broken, PolicyLayers, check as check_rules, layered},
    pipeline::IngestionPipeline,
    worker::EffectiveSpec,
};

mod objects;
mod schema;
mod stand_in;

pub use objects::{Objects, parse_objects};
pub(crate) use schema::shown;
use schema::{Findings, check};
use stand_in::pruned;

/// What is wrong with one field of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Which object: `namespace/name`, or `document 2` where it has none.
    pub object: String,
    /// Which field, as `spec.sink.table`.
    pub path: String,
    /// Its value; empty where there is none.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
    /// The fields in it that a policy has said, each with the policy.
    pub said_by: Vec<String>,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.path)?;
        if !self.value.is_empty() {
            write!(f, ": {}", self.value)?;
        }
        write!(f, ": {}", self.problem)?;
        if !self.said_by.is_empty() {
            write!(f, " ({})", self.said_by.join(", "))?;
        }
        write!(f, "; {}", self.remedy)
    }
}

/// The pipelines of a text with YAML documents.
///
/// # Errors
/// Every fault there is, in the order of the documents.
pub fn parse_manifests(text: &str) -> Result<Vec<IngestionPipeline>, Vec<Fault>> {
    let loaded = load_manifests(text)?;
    Ok(loaded.into_iter().map(|(pipeline, _)| pipeline).collect())
}

/// The pipelines of a text with YAML documents, each with its effective specification.
///
/// # Errors
/// Every fault there is, in the order of the documents.
pub fn load_manifests(text: &str) -> Result<Vec<(IngestionPipeline, EffectiveSpec)>, Vec<Fault>> {
    let mut loaded = Vec::new();
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    for (number, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let place = format!("document {}", number + 1);
        match document_of(document) {
            Ok(None) => {}
            Ok(Some(object)) => match load(&object, place) {
                Ok(pair) if !names.insert(pair.1.id()) => faults.push(twice(&pair.1)),
                Ok(pair) => loaded.push(pair),
                Err(found) => faults.extend(found),
            },
            Err(problem) => {
                // Behind a syntax error nothing can be told from the rest of the file.
                let remedy = "correct the text at this place";
                faults.push(Broken::new("YAML", None, problem, remedy).alone(&place));
                break;
            }
        }
    }
    if faults.is_empty() {
        Ok(loaded)
    } else {
        Err(faults)
    }
}

/// One document as JSON, none where it is empty, or what the parser says.
fn document_of(document: serde_yaml::Deserializer<'_>) -> Result<Option<Value>, String> {
    let told = |error: &dyn fmt::Display| error.to_string();
    let yaml = serde_yaml::Value::deserialize(document).map_err(|error| told(&error))?;
    if yaml.is_null() {
        return Ok(None);
    }
    let object = serde_json::to_value(&yaml).map_err(|error| told(&error))?;
    Ok(Some(object))
}

fn twice(spec: &EffectiveSpec) -> Fault {
    Fault {
        object: spec.id(),
        path: "metadata.name".to_owned(),
        value: shown(&Value::from(spec.name.as_str())),
        problem: "stands twice".to_owned(),
        said_by: Vec::new(),
        remedy: "give each pipeline of a namespace a name of its own".to_owned(),
    }
}

fn load(object: &Value, place: String) -> Result<(IngestionPipeline, EffectiveSpec), Vec<Fault>> {
    let label = label_of(object, place);
    let found = against(&PIPELINES, "IngestionPipeline", object);
    let pipeline = pruned(object, &found);
    let mut broken = found.broken;
    let resolved = pipeline.map(|pipeline| {
        let layered = layered(&pipeline, &PolicyLayers::default());
        (check_rules(&pipeline, &layered), pipeline)
    });
    match resolved {
        Ok((Ok(resolved), pipeline)) if broken.is_empty() => return Ok((pipeline, resolved.spec)),
        Ok((Err(rules), _)) => {
            let known: Vec<String> = broken.iter().map(|fault| fault.path.clone()).collect();
            let fresh = |rule: &Broken| !rule.touches(&known);
            broken.extend(rules.into_iter().filter(fresh));
        }
        Err(problem) if broken.is_empty() => broken.push(Broken::new(
            "spec",
            None,
            problem,
            "compare with the examples",
        )),
        Ok((Ok(_), _)) | Err(_) => {}
    }
    Err(broken
        .into_iter()
        .map(|fault| fault.alone(&label))
        .collect())
}

/// The schema of pipelines, worked out once.
static PIPELINES: LazyLock<Value> = LazyLock::new(schema::schema::<IngestionPipeline>);

/// `namespace/name`, or the place of an object that has no name.
fn label_of(object: &Value, place: String) -> String {
    let text = |field: &str| object["metadata"][field].as_str();
    let namespace = text("namespace").unwrap_or("default");
    text("name").map_or(place, |name| format!("{namespace}/{name}"))
}

/// Everything that is wrong with an object by the schema of its kind.
fn against(schema: &Value, kind: &str, object: &Value) -> Findings {
    let mut found = Findings::default();
    check_head(object, kind, &mut found);
    let ours = |fault: &Broken| fault.path.starts_with("metadata.");
    if found.broken.iter().all(ours) {
        check(schema, object, "", &mut found);
    }
    found
}

const API_VERSION: &str = "tidemark.dev/v1alpha1";

const METADATA: [&str; 15] = [
    "name",
    "namespace",
    "labels",
    "annotations",
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "generation",
    "ownerReferences",
    "finalizers",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
    "selfLink",
];

fn check_head(object: &Value, kind: &str, found: &mut Findings) {
    let Some(fields) = object.as_object() else {
        let remedy = "write apiVersion, kind, metadata and spec";
        found.push("document", Some(object), "is no object".to_owned(), remedy);
        return;
    };
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", kind)] {
        let value = fields.get(field);
        if value.and_then(Value::as_str) != Some(expected) {
            found.push(
                field,
                value,
                "is not run by Tidemark".to_owned(),
                format!("write {expected}"),
            );
        }
    }
    let metadata = fields.get("metadata").and_then(Value::as_object);
    let Some(metadata) = metadata else {
        found.push(
            "metadata",
            fields.get("metadata"),
            "is missing".to_owned(),
            "write metadata.name",
        );
        return;
    };
    for unknown in metadata
        .keys()
        .filter(|key| !METADATA.contains(&key.as_str()))
    {
        let path = format!("metadata.{unknown}");
        found.push(
            &path,
            metadata.get(unknown),
            "is no field".to_owned(),
            "remove it",
        );
    }
    for (field, needed) in [("name", true), ("namespace", false)] {
        let value = metadata.get(field);
        if (needed || value.is_some()) && !value.and_then(Value::as_str).is_some_and(is_dns_name) {
            let remedy = "write lower-case letters, digits and -, at most 253 characters";
            found.push(
                &format!("metadata.{field}"),
                value,
                "is no name".to_owned(),
                remedy,
            );
        }
    }
}

fn is_dns_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.len() <= 253
        && text.chars().all(inner)
        && edge(text.chars().next())
        && edge(text.chars().next_back())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{stand_in::pointer_of, *};

    const GOOD: &str = r"
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {name: orders, namespace: shop}
spec:
  source:
    kafka: {bootstrapServers: 'kafka:9092', topics: [shop.shop.orders]}
    format: DebeziumJson
  sink:
    catalog: {type: Rest, uri: 'http://catalog:8181'}
    table: shop.orders
";

    /// A field that has to be there and is wrong hides no rule of the others.
    #[test]
    fn wrong_name_and_wrong_required_fields_hide_nothing() {
        let text = GOOD
            .replace("name: orders", "name: Orders")
            .replace("DebeziumJson", "Debezium")
            .replace("shop.orders", "orders")
            .replace("    table:", "    commit: {interval: 10ms}\n    table:");
        let found = faults(&format!("{text}  finalization: {{cell: 7h}}\n"));
        let paths = [
            "metadata.name",
            "spec.source.format",
            "spec.sink.table",
            "spec.sink.commit.interval",
            "spec.finalization.cell",
        ];
        for path in paths {
            assert!(
                found.iter().any(|fault| fault.contains(path)),
                "{path}: {found:#?}"
            );
        }
        assert_eq!(found.len(), paths.len(), "{found:#?}");
    }

    /// Paths of the schema that cannot be left out without making the whole unreadable: required fields, and entries of lists.
    fn needed(schema: &Value, path: &str, list: &mut Vec<String>) {
        let required = schema["required"].as_array().into_iter().flatten();
        let required: Vec<&str> = required.filter_map(Value::as_str).collect();
        for (field, of_field) in schema["properties"].as_object().into_iter().flatten() {
            let below = format!("{path}.{field}");
            if required.contains(&field.as_str()) {
                list.push(below.clone());
            }
            needed(of_field, &below, list);
        }
        if schema["items"].is_object() {
            let below = format!("{path}[0]");
            list.push(below.clone());
            needed(&schema["items"], &below, list);
        }
    }

    /// The same for every such place there is: something of another kind, and nothing at all.
    #[test]
    fn no_wrong_field_or_entry_hides_the_rules_of_the_others() {
        let text = format!(
            "{GOOD}    schema: [{{name: id, type: long, key: true}}]\n  finalization: {{cell: 7h, terms: [Minimum], alsoWrite: [Flink]}}\n"
        );
        let mut whole: Value = serde_yaml::from_str(&text).unwrap();
        let spec = &mut whole["spec"];
        spec["source"]["deadLetter"] = json!({"topic": "dead"});
        spec["source"]["accept"] = json!({"topicIds": ["11111111-2222-4333-8444-555555555555"]});
        spec["sink"]["catalog"]["credentialRef"] = json!({"name": "n", "key": "k"});
        spec["worker"] = json!({"tolerations": [{"key": "spot"}]});
        let mut places = Vec::new();
        needed(&PIPELINES["properties"]["spec"], "spec", &mut places);
        assert!(places.len() > 15, "{places:?}");
        for (place, wrong) in places
            .iter()
            .flat_map(|place| [(place, Value::from(5)), (place, Value::Null)])
        {
            let (parent, last) = pointer_of(place);
            let mut object = whole.clone();
            match object.pointer_mut(&parent).expect(place) {
                Value::Array(items) => items[0] = wrong,
                parent => parent[last] = wrong,
            }
            let found = faults(&object.to_string());
            for path in [place, "spec.finalization.cell"] {
                assert!(
                    found.iter().any(|fault| fault.contains(path)),
                    "{path} with {place}: {found:#?}"
                );
            }
        }
    }

    fn faults(text: &str) -> Vec<String> {
        let faults = load_manifests(text).expect_err("the manifest is wrong");
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn good_manifest_is_read() {
        let loaded = load_manifests(GOOD).unwrap();
        assert_eq!(loaded[0].1.id(), "shop/orders");
        assert_eq!(
            load_manifests(&format!("---\n{GOOD}---\n# nothing\n"))
                .unwrap()
                .len(),
            1
        );
    }

    /// One fault a run would make a person start the command five times.
    #[test]
    fn all_faults_come_in_one_run() {
        let text = GOOD
            .replace("format: DebeziumJson", "format: Debezium\n    onGapp: Stop")
            .replace(
                "table: shop.orders",
                "table: orders\n    commit: {interval: 60}",
            )
            + "  eventTime: {from: Header}\n  worker: {replicas: 0}\n";
        let faults = faults(&text);
        let expected = [
            r#"shop/orders: spec.source.format: "Debezium": is none of the choices; write one of DebeziumJson, TicdcDebeziumJson, TicdcSimpleJson, CanalJson, Json"#,
            r#"shop/orders: spec.source.onGapp: "Stop": is no field; did you mean onGap?"#,
            r"shop/orders: spec.sink.commit.interval: 60: is no text; write a text; put numbers and true or false in quotes",
            r"shop/orders: spec.worker.replicas: 0: is out of bounds; write a number from 1 to 64",
        ];
        for expected in expected {
            assert!(
                faults.iter().any(|fault| fault == expected),
                "{expected}\nnot in\n{}",
                faults.join("\n")
            );
        }
        assert!(
            faults
                .iter()
                .any(|fault| fault.starts_with("shop/orders: spec.sink.table")),
            "{faults:?}"
        );
    }

    #[test]
    fn missing_field_is_told_with_what_it_is_for() {
        let faults = faults(&GOOD.replace("    table: shop.orders\n", ""));
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(
            faults[0].starts_with("shop/orders: spec.sink.table: is missing; The table"),
            "{faults:?}"
        );
    }

    /// A rule between two fields is told beside a wrong value elsewhere.
    #[test]
    fn rules_are_checked_beside_wrong_values() {
        let text = GOOD.replace("topics: [shop.shop.orders]", "topics: [a], topicPattern: b")
            + "  worker: {replicas: many}\n";
        let faults = faults(&text);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(
            faults[1].contains("topics") && faults[1].contains("topicPattern"),
            "{faults:?}"
        );
    }

    #[test]
    fn other_objects_and_names_twice_are_refused() {
        let config_map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        assert_eq!(faults(config_map).len(), 2);
        assert!(faults(&format!("{GOOD}---\n{GOOD}"))[0].contains("stands twice"));
        assert!(faults("a: [")[0].starts_with("document 1: YAML"));
    }
}
