//! Manifests as files hold them: YAML documents in, pipelines or every fault out.
//!
//! A document is checked against the schema of the custom resource itself, so a file is refused for what the API server
//! refuses or drops; then the pipeline is resolved, so that rules between fields are part of the same run, also beside wrong
//! values ([`stand_in`]).
//!
//! A fault names the object, the path, the value and what to do; a file with five faults is told all five.

use std::{collections::BTreeSet, fmt, sync::LazyLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    effective::{ANY_PROPERTY, Broken, PolicyLayers, PropertyCheck, check as check_rules, layered},
    pipeline::IngestionPipeline,
    worker::EffectiveSpec,
};

mod objects;
mod schema;
mod stand_in;

pub use objects::{Objects, parse_objects};
pub(crate) use schema::shown;
use schema::{Findings, check};
use stand_in::{Place, filled};

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
    load_manifests_for(text, ANY_PROPERTY)
}

/// The same, for a Kafka client that knows its options.
///
/// # Errors
/// Every fault there is, in the order of the documents.
pub fn load_manifests_for(
    text: &str,
    property: PropertyCheck,
) -> Result<Vec<(IngestionPipeline, EffectiveSpec)>, Vec<Fault>> {
    let mut loaded = Vec::new();
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    for (number, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let place = format!("document {}", number + 1);
        match document_of(document) {
            Ok(None) => {}
            // A file holds the namespace and the secrets of a pipeline as well.
            Ok(Some(object)) if is_of_others(&object) => {}
            Ok(Some(object)) => {
                let label = label_of(&object, place);
                if is_meant(&object, PIPELINE) && !names.insert(label.clone()) {
                    faults.push(twice(&object, &label));
                }
                match load(&object, &label, property) {
                    Ok(pair) => loaded.push(pair),
                    Err(found) => faults.extend(found),
                }
            }
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

/// Whether an object is of a group and a kind that are not ours. A `List` is told: what is in it would be passed over.
fn is_of_others(object: &Value) -> bool {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let ours = version.is_empty() || version.starts_with("tidemark.dev/");
    !ours && !kind.is_empty() && ![PIPELINE, "List"].contains(&kind)
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

/// `namespace/name`, or the place of an object that has no name.
fn label_of(object: &Value, place: String) -> String {
    let text = |field: &str| object["metadata"][field].as_str();
    let namespace = text("namespace").unwrap_or("default");
    text("name").map_or(place, |name| format!("{namespace}/{name}"))
}

fn twice(object: &Value, label: &str) -> Fault {
    let value = Some(shown(&object["metadata"]["name"]));
    let remedy = "give each pipeline of a namespace a name of its own";
    Broken::new("metadata.name", value, "stands twice", remedy).alone(label)
}

fn load(
    object: &Value,
    label: &str,
    property: PropertyCheck,
) -> Result<(IngestionPipeline, EffectiveSpec), Vec<Fault>> {
    let mut found = against(&PIPELINES, PIPELINE, object);
    if !is_meant(object, PIPELINE) {
        return Err(found.faults(label));
    }
    if found.broken.is_empty() {
        let pipeline: IngestionPipeline =
            serde_json::from_value(object.clone()).map_err(|problem| {
                let remedy = "compare with the examples";
                let broken = Broken::new("spec", None, problem.to_string(), remedy);
                vec![broken.alone(label)]
            })?;
        return match rules_of(&pipeline, property) {
            Ok(spec) => Ok((pipeline, spec)),
            Err(broken) => {
                let faults = broken.into_iter().map(|fault| fault.alone(label));
                Err(faults.collect())
            }
        };
    }
    let rules = rules_beside(object, &found, property);
    found.broken.extend(rules);
    Err(found.faults(label))
}

/// What a pipeline comes to by itself, without a policy.
fn rules_of(
    pipeline: &IngestionPipeline,
    property: PropertyCheck,
) -> Result<EffectiveSpec, Vec<Broken>> {
    let layered = layered(pipeline, &PolicyLayers::default());
    check_rules(pipeline, &layered, property).map(|resolved| resolved.spec)
}

/// The schema of pipelines, worked out once.
static PIPELINES: LazyLock<Value> = LazyLock::new(schema::schema::<IngestionPipeline>);

const PIPELINE: &str = "IngestionPipeline";

/// Everything that is wrong with an object by the schema of its kind.
fn against(schema: &Value, kind: &str, object: &Value) -> Findings {
    let mut found = Findings::default();
    check_head(object, kind, &mut found);
    if is_meant(object, kind) {
        check(schema, object, &Place::default(), &mut found);
    }
    found
}

/// Whether an object is meant as one of a kind, so that the whole of it can be checked, also where its head is wrong.
fn is_meant(object: &Value, kind: &str) -> bool {
    const OTHERS: [&str; 3] = [PIPELINE, "IngestionPolicy", "FinalizationGate"];
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let of_group = text("apiVersion").starts_with("tidemark.dev/");
    // A mistyped kind is taken for a pipeline where it has a pipeline's parts: of anything else nothing more can be told.
    let parts = ["source", "sink"].map(|part| !object["spec"][part].is_null());
    text("kind") == kind || of_group && !OTHERS.contains(&text("kind")) && parts.contains(&true)
}

/// The rules that an object breaks beside what was found wrong, whatever a person writes there.
fn rules_beside(object: &Value, found: &Findings, property: PropertyCheck) -> Vec<Broken> {
    let fillings = filled(object, &PIPELINES, &found.places);
    let mut broken: Option<Vec<Broken>> = None;
    for filling in fillings {
        let Ok(pipeline) = serde_json::from_value::<IngestionPipeline>(filling) else {
            continue;
        };
        let rules = rules_of(&pipeline, property).err().unwrap_or_default();
        match &mut broken {
            None => broken = Some(rules),
            Some(broken) => broken.retain(|one| rules.iter().any(|rule| rule.is_same(one))),
        }
    }
    let mut broken = broken.unwrap_or_default();
    let known = |rule: &Broken| found.broken.iter().any(|fault| rule.follows(&fault.path));
    broken.retain(|rule| !known(rule));
    for rule in &mut broken {
        // As the person wrote it, and not with what stands in.
        let written = |place: &Place| place.above(&rule.path, object).map(shown);
        if let Some(value) = found.places.iter().find_map(written) {
            rule.value = rule.value.is_some().then_some(value);
        }
    }
    broken
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
        found.push(
            &Place::of("document"),
            Some(object),
            "is no object".to_owned(),
            remedy,
        );
        return;
    };
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", kind)] {
        let value = fields.get(field);
        if value.and_then(Value::as_str) != Some(expected) {
            found.push(
                &Place::of(field),
                value,
                "is not run by Tidemark".to_owned(),
                format!("write {expected}"),
            );
        }
    }
    let metadata = fields.get("metadata").and_then(Value::as_object);
    let Some(metadata) = metadata else {
        let value = fields.get("metadata");
        let problem = if value.is_some() {
            "is no object"
        } else {
            "is missing"
        };
        found.push(
            &Place::of("metadata"),
            value,
            problem.to_owned(),
            "write metadata.name",
        );
        return;
    };
    check_metadata(metadata, found);
}

fn check_metadata(metadata: &Map<String, Value>, found: &mut Findings) {
    for unknown in metadata
        .keys()
        .filter(|key| !METADATA.contains(&key.as_str()))
    {
        found.push(
            &Place::of("metadata").field(unknown),
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
                &Place::of("metadata").field(field),
                value,
                "is no name".to_owned(),
                remedy,
            );
        }
    }
    let mut rest = metadata.clone();
    for known in ["name", "namespace"] {
        rest.remove(known);
    }
    if let Err(problem) = serde_json::from_value::<ObjectMeta>(rest.into()) {
        let remedy = "correct it, or leave it out: only name and namespace are needed";
        found.push(&Place::of("metadata"), None, problem.to_string(), remedy);
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

    /// A manifest with something of everything.
    const WHOLE: &str = r"
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {name: orders, namespace: shop}
spec:
  source:
    kafka:
      bootstrapServers: 'kafka:9092'
      topics: [a, b, c]
      startFrom: Earliest
      security: {protocol: SaslSsl, tls: {caRef: {name: n, key: c}}, sasl: {mechanism: ScramSha512, username: u, passwordRef: {name: n, key: p}}}
      properties: {fetch.wait.max.ms: '100'}
    format: DebeziumJson
    onGap: Stop
    deadLetter: {topic: dead}
    accept: {topicIds: [11111111-2222-4333-8444-555555555555]}
  eventTime: {from: SourceCommit}
  sink:
    catalog:
      type: Rest
      uri: 'https://catalog:8181'
      credentialRef: {name: n, key: k}
      storage: {endpoint: 'https://store', region: r, accessKeyIdRef: {name: n, key: i}, secretAccessKeyRef: {name: n, key: s}, caRef: {name: n, key: c}}
      properties: {scope: all}
    table: shop.orders
    schema: [{name: id, type: long, key: true}, {name: note, type: string}]
    metadataPrefix: _cdc_
    partitioning: Hour
    commit: {interval: 60s}
    expire: {enabled: true, keep: 6h, keepSnapshots: 300}
    accept: {lineage: 7}
  finalization: {cell: 1h, maxDelay: 10m, windowCommits: 3, terms: [Minimum, CaughtUp], alsoWrite: [Flink], lateData: Notify}
  worker: {replicas: 1, memoryBudget: 256Mi, tolerations: [{key: spot}]}
  suspend: false
";

    /// Something wrong: how it is told, and what is written where for it.
    type Plant = (&'static str, &'static [(&'static str, &'static str)]);

    /// A broken rule for each that a person can break, in a manifest whose every value is one of the right form.
    const BROKEN_RULES: [Plant; 26] = [
        (
            "security.protocol and spec.source.kafka.security.tls",
            &[("/spec/source/kafka/security/protocol", "SaslPlaintext")],
        ),
        (
            "properties[sasl.password]",
            &[("/spec/source/kafka/properties/sasl.password", "hush")],
        ),
        (
            "catalog.caRef and spec.sink.catalog.uri",
            &[
                ("/spec/sink/catalog/uri", "'http://catalog:8181'"),
                ("/spec/sink/catalog/caRef", "{name: n, key: c}"),
            ],
        ),
        (
            "storage.caRef and spec.sink.catalog.storage.endpoint",
            &[("/spec/sink/catalog/storage/endpoint", "'http://store'")],
        ),
        (
            "catalog.properties[s3.secret-access-key]",
            &[("/spec/sink/catalog/properties/s3.secret-access-key", "hush")],
        ),
        (
            "kafka.topics and spec.source.kafka.topicPattern: do not",
            &[("/spec/source/kafka/topicPattern", "x.*")],
        ),
        (
            "names a topic twice",
            &[("/spec/source/kafka/topics/1", "a")],
        ),
        (
            "startFrom and",
            &[(
                "/spec/source/kafka/startTimestamp",
                "'2026-11-30T10:00:00Z'",
            )],
        ),
        (
            "deadLetter.topic and",
            &[("/spec/source/deadLetter/topic", "a")],
        ),
        (
            "terms and spec.source.heartbeatTopic",
            &[
                ("/spec/source/heartbeatTopic", "h"),
                ("/spec/finalization/terms/1", "Clock"),
            ],
        ),
        (
            "eventTime.from and spec.eventTime.header",
            &[("/spec/eventTime/header", "h")],
        ),
        (
            "operations and spec.finalization.maxAge",
            &[
                ("/spec/eventTime/from", "Column"),
                ("/spec/eventTime/column", "note"),
                ("/spec/sink/schema/1/type", "timestamptz"),
            ],
        ),
        (
            "catalog.type and",
            &[
                ("/spec/sink/catalog/type", "Sql"),
                ("/spec/sink/catalog/uri", "'sqlite:x'"),
            ],
        ),
        (
            "catalog.uri: \"ftp",
            &[("/spec/sink/catalog/uri", "'ftp://x'")],
        ),
        (
            "schema[1].name: \"ID\": stands twice",
            &[("/spec/sink/schema/1/name", "ID")],
        ),
        (
            "schema[1].name and spec.sink.metadataPrefix",
            &[("/spec/sink/schema/1/name", "_cdc_op")],
        ),
        (
            "schema[1].encoding: is missing",
            &[("/spec/sink/schema/1/type", "timestamp")],
        ),
        (
            "finalization.cell: \"7h\"",
            &[("/spec/finalization/cell", "7h")],
        ),
        (
            "finalization.zone and",
            &[("/spec/finalization/zone", "UTC")],
        ),
        (
            "terms and spec.finalization.quantile",
            &[("/spec/finalization/quantile", "0.01")],
        ),
        (
            "names a term twice",
            &[("/spec/finalization/terms/1", "Minimum")],
        ),
        (
            "names a system twice",
            &[("/spec/finalization/alsoWrite", "[Flink, Flink]")],
        ),
        (
            "which is no column",
            &[("/spec/sink/partitioning", "day(nope)")],
        ),
        (
            "properties[enable.auto.commit]",
            &[("/spec/source/kafka/properties/enable.auto.commit", "'true'")],
        ),
        (
            "commit.interval: \"2h\"",
            &[("/spec/sink/commit/interval", "2h")],
        ),
        (
            "completeFrom: \"yesterday\"",
            &[("/spec/finalization/completeFrom", "yesterday")],
        ),
    ];

    /// Every place of an object, as a pointer and as people read it.
    fn places(value: &Value, pointer: &str, path: &str, all: &mut Vec<(String, String)>) {
        let free = path.ends_with("properties");
        let below: Vec<(String, String, &Value)> = match value {
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| {
                    let path = if free {
                        format!("{path}[{name}]")
                    } else {
                        format!("{path}.{name}")
                    };
                    (format!("{pointer}/{name}"), path, value)
                })
                .collect(),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(at, item)| (format!("{pointer}/{at}"), format!("{path}[{at}]"), item))
                .collect(),
            _ => Vec::new(),
        };
        for (pointer, path, value) in below {
            places(value, &pointer, &path, all);
            all.push((pointer, path));
        }
    }

    fn put(object: &mut Value, pointer: &str, value: Option<Value>) {
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        match (object.pointer_mut(parent), value) {
            (Some(Value::Array(items)), Some(value)) => {
                items[last.parse::<usize>().unwrap()] = value;
            }
            (Some(Value::Array(items)), None) => drop(items.remove(last.parse().unwrap())),
            (Some(parent), Some(value)) => parent[last] = value,
            (Some(parent), None) => drop(parent.as_object_mut().unwrap().remove(last)),
            (None, _) => {}
        }
    }

    fn told(object: &Value) -> Vec<String> {
        let told = load(object, "shop/orders", ANY_PROPERTY)
            .err()
            .unwrap_or_default();
        told.iter().map(ToString::to_string).collect()
    }

    /// What may be meant where something is wrong: what was there, nothing, each choice, another text, another length, a list.
    fn meant(whole: &Value, pointer: &str) -> Vec<Option<Value>> {
        let mut at = &PIPELINES.clone();
        for step in pointer.split('/').skip(1) {
            at = match step.parse::<usize>() {
                Ok(_) => &at["items"],
                Err(_) => &at["properties"][step],
            };
        }
        let items = at["items"]["enum"].as_array().into_iter().flatten();
        let lists = items.cloned().chain([Value::from("zz")]);
        let lists = lists.map(|item| Value::from(vec![item]));
        let choices = at["enum"].as_array().into_iter().flatten().cloned();
        let choices = choices.chain(lists);
        let own = whole.pointer(pointer).cloned();
        let others = ["zz", "zz_", "1d", "nope"].map(Value::from).into_iter();
        let others = others.chain([Value::from(true), Value::from(false)]);
        let all = choices.chain(own).chain(others).map(Some).chain([None]);
        all.collect()
    }

    /// Whether an edit is of a place, of one in it, or of one that it is in.
    fn touches(edit: &str, pointer: &str) -> bool {
        let within = |inner: &str, outer: &str| {
            inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        within(edit, pointer) || within(pointer, edit)
    }

    /// Nor does one broken rule hide another one.
    #[test]
    fn two_broken_rules_are_both_told() {
        let whole: Value = serde_yaml::from_str(WHOLE).unwrap();
        for (at, (rule, edits)) in BROKEN_RULES.iter().enumerate() {
            for (other, further) in &BROKEN_RULES[..at] {
                let apart = |(edit, _): &(&str, &str)| {
                    further.iter().all(|(pointer, _)| !touches(edit, pointer))
                };
                if !edits.iter().all(apart) {
                    continue;
                }
                let mut object = whole.clone();
                for (pointer, value) in edits.iter().chain(*further) {
                    let value = serde_yaml::from_str(value).unwrap();
                    put(&mut object, pointer, Some(value));
                }
                let found = told(&object);
                for rule in [rule, other] {
                    assert!(
                        found.iter().any(|told| told.contains(rule)),
                        "{rule}: {found:#?}"
                    );
                }
            }
        }
    }

    /// Two faults are both told in one run, wherever they are and whatever one may do to the other; and nothing is told that
    /// would go away with them. A rule need not be told only where the wrong place may yet come to satisfy it.
    #[test]
    fn prop_no_wrong_value_hides_a_rule_and_none_makes_one_up() {
        let whole: Value = serde_yaml::from_str(WHOLE).unwrap();
        assert_eq!(told(&whole), Vec::<String>::new());
        let mut all = Vec::new();
        places(&whole["spec"], "/spec", "spec", &mut all);
        assert!(all.len() > 50, "{}", all.len());
        let (mut both, mut pairs) = (0, 0);
        for (rule, edits) in BROKEN_RULES {
            let mut planted = whole.clone();
            for (pointer, value) in edits {
                put(
                    &mut planted,
                    pointer,
                    Some(serde_yaml::from_str(value).unwrap()),
                );
            }
            let alone = told(&planted);
            assert!(
                alone.len() == 1 && alone[0].contains(rule),
                "{rule}: {alone:#?}"
            );
            for (pointer, path) in &all {
                if edits.iter().any(|(edit, _)| touches(edit, pointer)) {
                    continue;
                }
                let mut object = planted.clone();
                put(&mut object, pointer, Some(Value::from(5.5)));
                let found = told(&object);
                let own = |told: &&String| told.contains(&format!(": {path}"));
                let ruled = |told: &&String| told.contains(rule);
                let context = format!("{path}: 5.5 beside \"{rule}\": {found:#?}");
                assert!(found.iter().any(|told| own(&told)), "{context}");
                let known = |told: &String| own(&told) || ruled(&told);
                assert!(found.iter().all(known), "{context}");
                pairs += 1;
                if found.iter().any(|told| ruled(&told)) {
                    both += 1;
                } else {
                    let may_end = may_end(&whole, &planted, (pointer, path), rule);
                    assert!(may_end, "{context}");
                }
            }
        }
        assert!(both * 10 > pairs * 8, "{both} of {pairs} pairs are told");
    }

    /// Whether something that may be meant at a place satisfies a rule. What a whole object may come to hold is more than can be
    /// tried.
    fn may_end(whole: &Value, planted: &Value, (pointer, path): (&str, &str), rule: &str) -> bool {
        let object = whole.pointer(pointer).is_some_and(Value::is_object);
        object
            || meant(whole, pointer).into_iter().any(|meant| {
                let mut object = planted.clone();
                put(&mut object, pointer, meant);
                let told = told(&object);
                let at = format!(": {path}: ");
                let unsound = told.iter().any(|told| told.contains(&at));
                !unsound && !told.iter().any(|told| told.contains(rule))
            })
    }

    /// Neither the head nor the metadata hide what is below `spec`, and a name that stands twice is told beside other faults.
    #[test]
    fn wrong_head_hides_nothing() {
        let wrong = [
            (
                "apiVersion: tidemark.dev/v1alpha1",
                "apiVersion: tidemark.dev/v1",
            ),
            ("kind: IngestionPipeline", "kind: Pipeline"),
            ("namespace: shop", "labels: 5"),
            ("namespace: shop", "generation: many"),
            ("{name: orders, namespace: shop}", "5"),
        ];
        for (right, wrong) in wrong {
            let text = WHOLE.replace(right, wrong).replace("cell: 1h", "cell: 7h");
            let told = faults(&text.replace("topics: [a, b, c]", "topics: [a, a]"));
            for rule in ["finalization.cell", "names a topic twice"] {
                assert!(
                    told.iter().any(|told| told.contains(rule)),
                    "{wrong}: {told:#?}"
                );
            }
            assert_eq!(told.len(), 3, "{told:#?}");
        }
        let wrong = GOOD.replace("DebeziumJson", "Debezium");
        let told = faults(&format!("{wrong}---\n{wrong}"));
        assert_eq!(told.len(), 3, "{told:#?}");
        assert!(
            told.iter().any(|told| told.contains("stands twice")),
            "{told:#?}"
        );
    }

    /// Names with dots in a map of free names are places like any other.
    #[test]
    fn wrong_property_hides_no_rule() {
        let text = WHOLE.replace(
            "fetch.wait.max.ms: '100'",
            "fetch.wait.max.ms: 100, acks: '1'",
        );
        let told = faults(&text);
        assert_eq!(told.len(), 2, "{told:#?}");
        assert!(
            told[0].contains("properties[fetch.wait.max.ms]: 100: is no text"),
            "{told:#?}"
        );
        assert!(told[1].contains("properties[acks]"), "{told:#?}");
        let huge = WHOLE.replace("lineage: 7", "lineage: 9223372036854775808");
        assert!(faults(&huge)[0].contains("accept.lineage: 9223372036854775808: is out of bounds"));
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
            r"shop/orders: spec.sink.commit.interval: 60: is no text; write a length, as 90s, 5m or 1h30m",
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

    /// A typing error in the group must not make a pipeline one of others.
    #[test]
    fn objects_of_others_are_passed_over_and_what_looks_like_ours_is_not() {
        let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {b: c}\n";
        assert_eq!(
            parse_manifests(&format!("{secret}---\n{GOOD}"))
                .unwrap()
                .len(),
            1
        );
        for (version, kind) in [
            ("tidemark.io/v1alpha1", "IngestionPipeline"),
            ("tidemark.dev/v1alpha1", "IngestionPolicy"),
            ("tidemark.dev/v1alpha1", "IngestPipeline"),
            ("v1", "List"),
        ] {
            let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n");
            assert!(
                faults(&text)[0].contains("is not run by Tidemark"),
                "{text}"
            );
        }
    }

    #[test]
    fn names_twice_are_refused() {
        assert!(faults(&format!("{GOOD}---\n{GOOD}"))[0].contains("stands twice"));
        assert!(faults("a: [")[0].starts_with("document 1: YAML"));
    }
}
