//! Manifests as files hold them: YAML documents in, pipelines or every fault out.
//!
//! A document is checked against the schema of the custom resource itself, so a file is refused for what the API server
//! refuses or drops; then the pipeline is resolved, so that rules between fields are part of the same run.
//!
//! A fault names the object, the path, the value and what to do; a file with five faults is told all five.

use std::{collections::BTreeSet, fmt};

use kube::CustomResourceExt;
use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    effective::{Broken, PolicyLayers, check as check_rules, layered},
    pipeline::IngestionPipeline,
    worker::EffectiveSpec,
};

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
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    let namespace = object
        .pointer("/metadata/namespace")
        .and_then(Value::as_str);
    let label = name.map_or(place, |name| {
        format!("{}/{name}", namespace.unwrap_or("default"))
    });
    let mut found = Findings::default();
    check_head(object, &mut found);
    let ours = |fault: &Broken| fault.path.starts_with("metadata.");
    if found.broken.iter().all(ours) {
        check(&schema(), object, "", &mut found);
    }
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

/// What a walk over an object finds.
#[derive(Default)]
struct Findings {
    broken: Vec<Broken>,
}

impl Findings {
    fn push(
        &mut self,
        path: &str,
        value: Option<&Value>,
        problem: String,
        remedy: impl Into<String>,
    ) {
        let value = value.map(shown);
        self.broken.push(Broken::new(path, value, problem, remedy));
    }
}

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

fn check_head(object: &Value, found: &mut Findings) {
    let Some(fields) = object.as_object() else {
        let remedy = "write apiVersion, kind, metadata and spec";
        found.push("document", Some(object), "is no object".to_owned(), remedy);
        return;
    };
    for (field, expected) in [
        ("apiVersion", "tidemark.dev/v1alpha1"),
        ("kind", "IngestionPipeline"),
    ] {
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

/// The schema of the whole object as the custom resource definition holds it.
fn schema() -> Value {
    let definition = serde_json::to_value(IngestionPipeline::crd())
        .expect("a custom resource definition is valid JSON");
    let mut schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    let string = serde_json::json!({"type": "string"});
    let any = serde_json::json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    for (name, of) in [
        ("apiVersion", &string),
        ("kind", &string),
        ("metadata", &any),
    ] {
        schema["properties"][name] = of.clone();
    }
    schema
}

/// Walks value and schema together. Only what a structural schema of ours uses is known here.
fn check(schema: &Value, value: &Value, path: &str, found: &mut Findings) {
    if value.is_null() && schema["nullable"] == Value::Bool(true) {
        return;
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        let choices = choices.iter().filter(|choice| !choice.is_null());
        let choices: Vec<String> = choices.map(plain).collect();
        let choices: Vec<&str> = choices.iter().map(String::as_str).collect();
        found.push(
            path,
            Some(value),
            "is none of the choices".to_owned(),
            one_of(&choices),
        );
        return;
    }
    match (schema["type"].as_str(), value) {
        (Some("object"), Value::Object(fields)) => check_object(schema, fields, path, found),
        (Some("array"), Value::Array(items)) => {
            check_count(
                schema,
                ["minItems", "maxItems"],
                items.len(),
                "entries",
                (path, found),
            );
            for (index, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{index}]"), found);
            }
        }
        (Some("string"), Value::String(text)) => check_text(schema, text, path, found),
        (Some("integer"), Value::Number(number)) if number.is_i64() || number.is_u64() => {
            check_number(schema, value, path, found);
        }
        (Some("boolean"), Value::Bool(_)) | (Some("number"), Value::Number(_)) | (None, _) => {}
        (Some(kind), _) => {
            let (kind, remedy) = match kind {
                "object" => ("object", "write fields below it"),
                "array" => ("list", "write a list, as [a, b]"),
                "string" => (
                    "text",
                    "write a text; put numbers and true or false in quotes",
                ),
                "boolean" => ("yes or no", "write true or false"),
                "number" => ("number", "write a number"),
                _ => ("whole number", "write a whole number"),
            };
            found.push(path, Some(value), format!("is no {kind}"), remedy);
        }
    }
}

fn check_object(schema: &Value, fields: &Map<String, Value>, path: &str, found: &mut Findings) {
    let below = |field: &str| {
        if path.is_empty() {
            field.to_owned()
        } else {
            format!("{path}.{field}")
        }
    };
    let known = schema["properties"].as_object();
    for (field, value) in fields {
        if let Some(of_field) = known.and_then(|known| known.get(field)) {
            check(of_field, value, &below(field), found);
        } else if schema["additionalProperties"].is_object() {
            check(&schema["additionalProperties"], value, &below(field), found);
        } else if schema["x-kubernetes-preserve-unknown-fields"] != Value::Bool(true) {
            let names: Vec<&str> = known
                .into_iter()
                .flat_map(Map::keys)
                .map(String::as_str)
                .collect();
            found.push(
                &below(field),
                Some(value),
                "is no field".to_owned(),
                instead_of(field, &names),
            );
        }
    }
    for needed in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if fields.get(needed).is_none_or(Value::is_null) {
            let remedy = schema["properties"][needed]["description"]
                .as_str()
                .unwrap_or("write it");
            let remedy = remedy
                .lines()
                .next()
                .unwrap_or(remedy)
                .trim_end_matches('.');
            found.push(&below(needed), None, "is missing".to_owned(), remedy);
        }
    }
    check_count(
        schema,
        ["minProperties", "maxProperties"],
        fields.len(),
        "entries",
        (path, found),
    );
}

fn check_text(schema: &Value, text: &str, path: &str, found: &mut Findings) {
    let length = text.chars().count();
    check_count(
        schema,
        ["minLength", "maxLength"],
        length,
        "characters",
        (path, found),
    );
    if let Some(pattern) = schema["pattern"].as_str() {
        let fits = Regex::new(pattern)
            .expect("patterns of the schema are tested")
            .is_match(text);
        if !fits {
            let value = Value::from(text);
            let remedy = wanted(pattern);
            found.push(
                path,
                Some(&value),
                "is not of the right form".to_owned(),
                remedy,
            );
        }
    }
}

/// What a person writes where a pattern did not match.
fn wanted(pattern: &str) -> String {
    if pattern.contains("ms|s|m|h|d") {
        "write a length, as 90s, 5m or 1h30m".to_owned()
    } else if pattern.contains("Ki|Mi") {
        "write a size, as 256Mi".to_owned()
    } else if pattern.contains("{4}-") {
        "write an instant with its offset, as 2026-11-30T10:00:00Z".to_owned()
    } else if pattern.contains("{12}$") {
        "write a UUID in lower case, with its four hyphens".to_owned()
    } else if pattern.contains("timestamptz") {
        "write a type by Iceberg's name, as long, timestamptz or decimal(12,2)".to_owned()
    } else {
        format!("it has to match {pattern}")
    }
}

fn check_number(schema: &Value, value: &Value, path: &str, found: &mut Findings) {
    let number = value.as_f64().unwrap_or(f64::NAN);
    let least = schema["minimum"].as_f64().unwrap_or(f64::NEG_INFINITY);
    let greatest = schema["maximum"].as_f64().unwrap_or(f64::INFINITY);
    if !(least..=greatest).contains(&number) {
        let remedy = match (least.is_finite(), greatest.is_finite()) {
            (true, true) => format!("write a number from {least} to {greatest}"),
            (true, false) => format!("write at least {least}"),
            _ => format!("write at most {greatest}"),
        };
        found.push(path, Some(value), "is out of bounds".to_owned(), remedy);
    }
}

fn check_count(
    schema: &Value,
    bounds: [&str; 2],
    count: usize,
    what: &str,
    (path, found): (&str, &mut Findings),
) {
    let [least, most] = bounds.map(|bound| schema[bound].as_u64());
    let count = count as u64;
    if least.is_some_and(|least| count < least) {
        let remedy = format!("write at least {} {what}", least.unwrap_or_default());
        found.push(path, None, format!("has {count} {what}"), remedy);
    }
    if most.is_some_and(|most| count > most) {
        let remedy = format!("write at most {} {what}", most.unwrap_or_default());
        found.push(path, None, format!("has {count} {what}"), remedy);
    }
}

/// A choice as a manifest has it.
fn plain(choice: &Value) -> String {
    choice
        .as_str()
        .map_or_else(|| choice.to_string(), str::to_owned)
}

fn one_of(choices: &[&str]) -> String {
    format!("write one of {}", choices.join(", "))
}

/// The name that was probably meant, else all there are.
fn instead_of(field: &str, names: &[&str]) -> String {
    let near = names.iter().min_by_key(|name| distance(field, name));
    match near {
        Some(near) if distance(field, near) <= 2 => format!("did you mean {near}?"),
        _ if names.is_empty() => "remove it".to_owned(),
        _ => format!("remove it; the fields here are {}", names.join(", ")),
    }
}

/// How many letters have to be changed, added or removed, upper and lower case being one.
fn distance(left: &str, right: &str) -> usize {
    let [left, right] = [left, right].map(str::to_ascii_lowercase);
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let changed = corner + usize::from(a != *b);
            corner = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(corner + 1);
        }
    }
    row[right.len()]
}

/// A value on one line, cut where it is long.
pub(crate) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

/// The object without what was found wrong, as far as it can still be read: its rules are checked in the same run.
fn pruned(object: &Value, found: &Findings) -> Result<IngestionPipeline, String> {
    let mut object = object.clone();
    for fault in &found.broken {
        remove(&mut object, &fault.path);
        stand_in(&mut object, &fault.path);
    }
    serde_json::from_value(object).map_err(|error| error.to_string())
}

/// What stands in for a field or an entry that has to be there, while the rules of the others are checked. What the rules find
/// about it is not told: the field is known to be wrong. `shape`: its path without the numbers of entries.
fn stand_in_for(shape: &str) -> Option<Value> {
    let catalog = || json!({"type": "Rest", "uri": "http://stand-in"});
    let kafka = || json!({"bootstrapServers": "stand-in:9092", "topics": ["stand-in"]});
    Some(match shape {
        "spec.source" => json!({"kafka": kafka(), "format": "DebeziumJson"}),
        "spec.source.kafka" => kafka(),
        "spec.source.kafka.bootstrapServers" => "stand-in:9092".into(),
        "spec.source.format" => "DebeziumJson".into(),
        "metadata.name"
        | "spec.source.kafka.topics[]"
        | "spec.source.deadLetter.topic"
        | "spec.sink.catalog.credentialRef.key"
        | "spec.sink.catalog.credentialRef.name" => "stand-in".into(),
        "spec.source.accept.topicIds[]" => "00000000-0000-0000-0000-000000000000".into(),
        "spec.sink" => json!({"catalog": catalog(), "table": "stand.in"}),
        "spec.sink.catalog" => catalog(),
        "spec.sink.catalog.type" => "Rest".into(),
        "spec.sink.catalog.uri" => "http://stand-in".into(),
        "spec.sink.table" => "stand.in".into(),
        "spec.sink.schema[]" => json!({"name": "stand_in", "type": "string"}),
        "spec.sink.schema[].name" => "stand_in".into(),
        "spec.sink.schema[].type" => "string".into(),
        "spec.finalization.terms[]" => "Minimum".into(),
        "spec.finalization.alsoWrite[]" => "KafkaConnect".into(),
        "spec.worker.tolerations[]" => json!({"operator": "Exists"}),
        _ => return None,
    })
}

fn stand_in(object: &mut Value, path: &str) {
    let shape: String = path
        .chars()
        .filter(|letter| !letter.is_ascii_digit())
        .collect();
    let Some(value) = stand_in_for(&shape) else {
        return;
    };
    let (pointer, last) = pointer_of(path);
    match object.pointer_mut(&pointer) {
        Some(Value::Object(fields)) => drop(fields.insert(last, value)),
        Some(Value::Array(items)) => {
            let at = last.parse().ok();
            if let Some(item) = at.and_then(|at: usize| items.get_mut(at)) {
                *item = value;
            }
        }
        _ => {}
    }
}

/// The JSON pointer of the parent of a path, and the path's last part.
fn pointer_of(path: &str) -> (String, String) {
    let path = path.replace('[', ".").replace(']', "");
    let (parent, last) = path.rsplit_once('.').unwrap_or(("", &path));
    let pointer = match parent {
        "" => String::new(),
        parent => format!("/{}", parent.replace('.', "/")),
    };
    (pointer, last.to_owned())
}

fn remove(object: &mut Value, path: &str) {
    let (pointer, last) = pointer_of(path);
    match object.pointer_mut(&pointer) {
        Some(Value::Object(fields)) => drop(fields.remove(&last)),
        // An entry of a list is only blanked: the ones behind it keep their places.
        Some(Value::Array(items)) => {
            if let Some(item) = last
                .parse::<usize>()
                .ok()
                .and_then(|index| items.get_mut(index))
            {
                *item = Value::Null;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        needed(&schema()["properties"]["spec"], "spec", &mut places);
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
