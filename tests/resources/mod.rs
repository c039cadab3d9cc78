//! The custom resources on a real API server, as a person meets them with `kubectl`.

mod bounds;
mod rules;

use std::{fs, path::Path};

use regex::Regex;
use serde_json::{Value, json};
use tidemark::api::custom_resource_definitions;

use crate::support::kube::{Kube, definition_names, yaml_stream};

/// The least that each kind takes: the start of every case.
const LEAST: [&str; 3] = [
    r#"
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {name: orders}
spec:
  source: {kafka: {bootstrapServers: "kafka:9092", topics: [shop.orders]}, format: DebeziumJson}
  sink: {catalog: {type: Rest, uri: "http://catalog:8181"}, table: shop.orders}
"#,
    r"
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPolicy
metadata: {name: fleet}
# It binds nothing, also while tests of other limits run beside.
spec: {namespaceSelector: {matchLabels: {tidemark.test/none: none}}}
",
    r#"
apiVersion: tidemark.dev/v1alpha1
kind: FinalizationGate
metadata: {name: noon}
spec: {pipelines: [orders], before: "2026-11-30T13:00:00Z"}
"#,
];

/// The least object of a kind under a name.
pub(crate) fn least(kind: &str, name: &str) -> Value {
    let mut objects = LEAST
        .iter()
        .map(|text| serde_yaml::from_str::<Value>(text).unwrap());
    let mut object = objects.find(|object| object["kind"] == kind).unwrap();
    object["metadata"]["name"] = name.into();
    object
}

/// Our definitions, read.
pub(crate) fn definitions() -> Vec<Value> {
    let texts = custom_resource_definitions().into_iter();
    texts
        .map(|(_, text)| serde_yaml::from_str(&text).unwrap())
        .collect()
}

fn schema(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

/// A JSON merge patch, as `kubectl patch --type=merge` applies it.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}

/// `kubectl apply` keeps the whole object in an annotation, which has its limit; and whoever began with it may go on server-side.
#[test]
fn definitions_apply_plainly_and_then_server_side() {
    let kube = Kube::start_own();
    let texts = custom_resource_definitions();
    let definitions = yaml_stream(texts.iter().map(|(_, text)| text.as_str()));
    for (words, outcome) in [
        (vec!["apply", "-f", "-"], "created"),
        (vec!["apply", "-f", "-"], "unchanged"),
        (
            vec!["apply", "--server-side", "-f", "-"],
            "serverside-applied",
        ),
        (vec!["apply", "-f", "-"], "configured"),
    ] {
        let said = kube.person().kubectl(&words, &definitions);
        assert_eq!(said.err, "", "{words:?}");
        let said = said.expect_success();
        assert_eq!(
            said.matches(outcome).count(),
            texts.len(),
            "{words:?}: {said}"
        );
    }
    kube.await_definitions();
    let mut words = vec!["get", "-o", "json"];
    let names = definition_names();
    words.extend(names.iter().map(String::as_str));
    let said = kube.person().kubectl(&words, "").expect_success();
    for kind in ["NonStructuralSchema", "\"type\": \"Terminating\""] {
        assert!(!said.contains(kind), "{said}");
    }
}

/// The schemas right below one: its fields by name, and those of the entries of a list or map without.
fn below(schema: &Value) -> impl Iterator<Item = (Option<&str>, &Value)> {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let entries = ["items", "additionalProperties"]
        .into_iter()
        .filter_map(|name| schema.get(name));
    fields
        .map(|(name, field)| (Some(name.as_str()), field))
        .chain(entries.map(|entry| (None, entry)))
}

/// Collects every path below a schema with its text. Entries of lists and maps have no step of their own, as for `kubectl explain`.
fn described<'a>(schema: &'a Value, path: &str, found: &mut Vec<(String, &'a str)>) {
    for (name, field) in below(schema) {
        let Some(name) = name else {
            described(field, path, found);
            continue;
        };
        let path = format!("{path}.{name}");
        found.push((
            path.clone(),
            field["description"].as_str().unwrap_or_default(),
        ));
        described(field, &path, found);
    }
}

/// What `kubectl explain` reads has each field with its text, whole; and it shows them.
#[test]
fn every_field_is_explained() {
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let kube = Kube::shared();
    for definition in definitions() {
        let kind = definition["spec"]["names"]["singular"].as_str().unwrap();
        let mut fields = Vec::new();
        for part in ["spec", "status"] {
            described(&schema(&definition)["properties"][part], part, &mut fields);
        }
        assert!(fields.len() > 5, "{kind}");
        let parents = fields
            .iter()
            .map(|(path, _)| path.rsplit_once('.').unwrap().0);
        let parents: std::collections::BTreeSet<&str> = parents.collect();
        for parent in parents {
            let place = format!("{kind}.{parent}");
            let said = squeezed(
                &kube
                    .person()
                    .kubectl(&["explain", &place], "")
                    .expect_success(),
            );
            for (path, text) in &fields {
                let Some((above, name)) = path.rsplit_once('.') else {
                    continue;
                };
                if above == parent {
                    let entry = said.find(&format!("{name}<"));
                    assert!(entry.is_some(), "{place} shows no {name}: {said}");
                    assert!(
                        !text.is_empty() && said.contains(&squeezed(text)),
                        "{path}: {text}"
                    );
                }
            }
        }
    }
}

/// Whoever mistypes a field is told at once, by either way of applying.
#[test]
fn unknown_fields_are_refused_by_name() {
    let kube = Kube::shared();
    let namespace = kube.namespace("unknown_fields");
    let mut object = least("IngestionPipeline", "mistyped");
    object["spec"]["finalization"] = json!({"allowedLatenes": "5m"});
    for way in [
        ["apply", "-f", "-", "-n", &namespace].as_slice(),
        &["apply", "--server-side", "-f", "-", "-n", &namespace],
    ] {
        let said = kube
            .person()
            .kubectl(way, &object.to_string())
            .expect_failure();
        assert!(said.contains("allowedLatenes"), "{way:?}: {said}");
    }
}

/// What the documentation shows has to be accepted as it stands.
#[test]
fn examples_are_accepted() {
    let kube = Kube::shared();
    let mut applied = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "yaml") {
            let text = fs::read_to_string(&path).unwrap();
            for document in serde_yaml::Deserializer::from_str(&text) {
                let object: Value = serde::Deserialize::deserialize(document).unwrap();
                if let Some(namespace) = object["metadata"]["namespace"].as_str() {
                    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
                    kube.apply(&object.to_string());
                }
            }
            let words = ["apply", "--dry-run=server", "-f", path.to_str().unwrap()];
            let said = kube.person().kubectl(&words, "");
            assert_eq!(said.err, "", "{}", path.display());
            said.expect_success();
            applied += 1;
        }
    }
    assert!(applied > 0);
}

/// A pipeline in a namespace of a test.
fn pipeline_in(test: &str) -> (&'static Kube, String) {
    let kube = Kube::shared();
    let namespace = kube.namespace(test);
    let words = ["apply", "-n", &namespace, "-f", "-"];
    let object = least("IngestionPipeline", "orders").to_string();
    kube.person().kubectl(&words, &object).expect_success();
    (kube, namespace)
}

/// Writes a part of a status as the operator would.
fn report(kube: &Kube, namespace: &str, object: &str, status: &Value) {
    let patch = json!({"status": status}).to_string();
    let words = [
        "patch",
        object,
        "-n",
        namespace,
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ];
    kube.person().kubectl(&words, "").expect_success();
}

/// A condition since a moment in the past.
fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-11-30T13:10:00Z"})
}

/// Also where the pipeline has not said how many workers it wants; and a number beyond the bounds is refused.
#[test]
fn pipeline_is_scaled() {
    let (kube, namespace) = pipeline_in("pipeline_is_scaled");
    let person = kube.person();
    let scale = |replicas| {
        person.kubectl(
            &[
                "scale",
                "ipl/orders",
                "-n",
                &namespace,
                "--replicas",
                replicas,
            ],
            "",
        )
    };
    scale("3").expect_success();
    let path = [
        "get",
        "ipl/orders",
        "-n",
        &namespace,
        "-o",
        "jsonpath={.spec.worker.replicas}",
    ];
    assert_eq!(person.kubectl(&path, "").expect_success(), "3");
    let said = scale("65").expect_failure();
    assert!(
        said.contains("spec.worker.replicas: Invalid value: 65"),
        "{said}"
    );
    report(
        kube,
        &namespace,
        "ipl/orders",
        &json!({"replicas": 2, "selector": "tidemark.dev/pipeline=orders"}),
    );
    let path = format!(
        "/apis/tidemark.dev/v1alpha1/namespaces/{namespace}/ingestionpipelines/orders/scale"
    );
    let scale: Value = serde_json::from_str(
        &person
            .kubectl(&["get", "--raw", &path], "")
            .expect_success(),
    )
    .unwrap();
    assert_eq!(
        scale["status"],
        json!({"replicas": 2, "selector": "tidemark.dev/pipeline=orders"})
    );
}

#[test]
fn conditions_can_be_waited_for() {
    let (kube, namespace) = pipeline_in("conditions_can_be");
    let gate = least("FinalizationGate", "noon").to_string();
    kube.person()
        .kubectl(&["apply", "-n", &namespace, "-f", "-"], &gate)
        .expect_success();
    for (object, kind) in [("ipl/orders", "Ready"), ("fgate/noon", "Final")] {
        let until = format!("--for=condition={kind}");
        let wait = |timeout| {
            kube.person()
                .kubectl(&["wait", object, "-n", &namespace, &until, timeout], "")
        };
        report(
            kube,
            &namespace,
            object,
            &json!({"conditions": [condition(kind, "False", "Starting")]}),
        );
        assert!(wait("--timeout=1s").expect_failure().contains("timed out"));
        report(
            kube,
            &namespace,
            object,
            &json!({"conditions": [condition(kind, "True", "AsExpected")]}),
        );
        wait("--timeout=30s").expect_success();
    }
}

/// Two writers of one status do not take each other's conditions away.
#[test]
fn conditions_of_two_writers_stand_side_by_side() {
    let (kube, namespace) = pipeline_in("conditions_of_two");
    for (writer, kind) in [("tidemark", "Ready"), ("other", "Backup")] {
        let mut object = json!({"apiVersion": "tidemark.dev/v1alpha1", "kind": "IngestionPipeline", "metadata": {"name": "orders"}});
        object["status"] = json!({"conditions": [condition(kind, "True", "AsExpected")]});
        let words = [
            "apply",
            "--server-side",
            "--subresource=status",
            "-n",
            &namespace,
            "--field-manager",
            writer,
            "-f",
            "-",
        ];
        kube.person()
            .kubectl(&words, &object.to_string())
            .expect_success();
    }
    let path = [
        "get",
        "ipl/orders",
        "-n",
        &namespace,
        "-o",
        "jsonpath={.status.conditions[*].type}",
    ];
    assert_eq!(
        kube.person().kubectl(&path, "").expect_success(),
        "Ready Backup"
    );
}

/// The columns of a table that `kubectl` prints, and the one row below.
fn columns(said: &str) -> Vec<(String, String)> {
    let (head, row) = said.trim_end().split_once('\n').unwrap();
    let starts = Regex::new(r"\S+( \S+)*").unwrap();
    let starts: Vec<(usize, &str)> = starts
        .find_iter(head)
        .map(|found| (found.start(), found.as_str()))
        .collect();
    let ends = starts.iter().skip(1).map(|(start, _)| *start);
    let ends = ends.chain([row.len()]);
    let cells = starts.iter().zip(ends).map(|((start, name), end)| {
        // Cells at the end may be empty.
        let cell = &row[(*start).min(row.len())..end.min(row.len())];
        ((*name).to_owned(), cell.trim().to_owned())
    });
    cells.collect()
}

#[test]
fn table_of_pipelines_shows_the_claim() {
    let (kube, namespace) = pipeline_in("table_of_pipelines");
    let status = json!({
        "conditions": [
            condition("Ready", "True", "AsExpected"), condition("Advancing", "False", "PartitionSilent"), condition("Accepted", "False", "PolicyViolated"),
        ],
        "finalizedBefore": "2026-11-30T13:00:00Z", "completeFrom": "2026-11-29T00:00:00Z", "evidence": "minimum,caught-up", "lag": "<1k", "replicas": 2,
    });
    report(kube, &namespace, "ipl/orders", &status);
    let said = kube
        .person()
        .kubectl(&["get", "ipl", "-n", &namespace, "-o", "wide"], "")
        .expect_success();
    let found = columns(&said);
    let found: Vec<(&str, &str)> = found
        .iter()
        .map(|(name, cell)| (name.as_str(), cell.as_str()))
        .collect();
    let age = found.iter().find(|(name, _)| *name == "AGE").unwrap();
    let expected = [
        ("NAME", "orders"),
        ("READY", "True"),
        ("FINAL BEFORE", "2026-11-30T13:00:00Z"),
        ("EVIDENCE", "minimum,caught-up"),
        ("LAG", "<1k"),
        ("REPLICAS", "2"),
        *age,
        ("HOLDS", "PartitionSilent"),
        ("COMPLETE FROM", "2026-11-29T00:00:00Z"),
        ("ACCEPTED", "False"),
        ("TABLE", "shop.orders"),
        ("SUSPENDED", ""),
    ];
    assert_eq!(found, expected, "{said}");
}

/// Each selectable field of each kind, by a value that is there and one that is not.
#[test]
fn pipelines_are_found_by_their_fields() {
    let (kube, namespace) = pipeline_in("pipelines_are_found");
    let fields = definitions().into_iter().flat_map(|definition| {
        let fields = definition["spec"]["versions"][0]["selectableFields"]
            .as_array()
            .cloned();
        fields.unwrap_or_default()
    });
    let mut found = Vec::new();
    for field in fields {
        let path = field["jsonPath"]
            .as_str()
            .unwrap()
            .trim_start_matches('.')
            .to_owned();
        let value = least("IngestionPipeline", "")
            .pointer(&format!("/{}", path.replace('.', "/")))
            .unwrap()
            .clone();
        for (value, listed) in [
            (
                value.as_str().unwrap(),
                "ingestionpipeline.tidemark.dev/orders\n",
            ),
            ("other", ""),
        ] {
            let selector = format!("--field-selector={path}={value}");
            let said = kube.person().kubectl(
                &["get", "ipl", "-n", &namespace, "-o", "name", &selector],
                "",
            );
            assert_eq!(said.expect_success(), listed, "{selector}");
        }
        found.push(path);
    }
    assert_eq!(found, ["spec.sink.table", "spec.source.format"]);
}
