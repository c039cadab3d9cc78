//! Files that are written by the program itself are fresh.
//!
//! `TIDEMARK_WRITE=1 cargo test generated` writes them anew.

use std::{env, fmt::Write, fs, path::Path};

use regex::Regex;
use tidemark::{
    api::custom_resource_definitions,
    cli::reference,
    operator::{http, policy::admission},
};

use crate::house;

/// Compares a file of the package with what it should be, or writes it.
fn fresh(path: &str, expected: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if env::var_os("TIDEMARK_WRITE").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, expected).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == expected,
        "{path} is stale: run TIDEMARK_WRITE=1 cargo test generated"
    );
}

#[test]
fn custom_resource_definitions_are_fresh() {
    for (name, definition) in custom_resource_definitions() {
        fresh(&format!("crds/{name}"), &definition);
    }
}

/// A chart cannot read files outside of itself.
#[test]
fn chart_copies_are_fresh() {
    for (name, definition) in custom_resource_definitions() {
        fresh(
            &format!("charts/tidemark-crds/definitions/{name}"),
            &definition,
        );
    }
}

/// What the admission policies of the chart evaluate.
#[test]
fn limits_of_the_chart_are_fresh() {
    fresh("charts/tidemark/admission/limits.yaml", &admission());
}

#[test]
fn reference_is_fresh() {
    for (name, page) in reference::pages() {
        fresh(&format!("docs/reference/{name}"), &page);
    }
}

#[test]
fn openapi_document_is_fresh() {
    let document = serde_json::to_string_pretty(&http::document()).unwrap() + "\n";
    fresh("docs/reference/openapi.json", &document);
}

#[test]
fn list_of_metrics_is_fresh() {
    let mut page = String::from(
        "# Metrics\n\nWritten by `cargo test generated`. Served at `/metrics`; the names of counters end with `_total`.\n\n\
         | metric | what it says |\n| --- | --- |\n",
    );
    for (name, help) in house::metrics() {
        writeln!(page, "| `{name}` | {help} |").unwrap();
    }
    fresh("docs/reference/metrics.md", &page);
}

/// A default in the schema would be stored in every object, where no later version and no policy can change it.
#[test]
fn schema_has_no_defaults() {
    let default = Regex::new(r"(?m)^\s*(- )?default:").unwrap();
    for (name, definition) in custom_resource_definitions() {
        assert!(!default.is_match(&definition), "{name} has a default");
    }
}

/// What `kubectl explain` shows of a choice: each of its values, in the words of the field and not of its type.
#[test]
fn every_choice_is_described_by_its_field() {
    let mut untold = Vec::new();
    for (name, definition) in custom_resource_definitions() {
        let definition: serde_json::Value = serde_yaml::from_str(&definition).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for part in ["spec", "status"] {
            choices(
                &schema["properties"][part],
                &format!("{name} {part}"),
                &mut untold,
            );
        }
    }
    assert_eq!(untold, Vec::<String>::new());
}

fn choices(schema: &serde_json::Value, path: &str, untold: &mut Vec<String>) {
    let description = schema["description"].as_str().unwrap_or_default();
    for choice in schema["enum"].as_array().into_iter().flatten() {
        let choice = choice
            .as_str()
            .map_or_else(|| choice.to_string(), str::to_owned);
        if !description.contains(&format!("`{choice}`")) {
            untold.push(format!("{path}: {choice}"));
        }
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        choices(field, &format!("{path}.{name}"), untold);
    }
    if schema["items"]["properties"].is_object() {
        choices(&schema["items"], &format!("{path}[]"), untold);
    }
}

/// What the API server refuses in a structural schema, or what would exceed its cost limit for rules.
#[test]
fn schema_is_structural_and_bounded() {
    for (_, definition) in custom_resource_definitions() {
        let definition: serde_json::Value = serde_yaml::from_str(&definition).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for part in ["spec", "status"] {
            check(&schema["properties"][part], part);
        }
    }
}

fn check(schema: &serde_json::Value, path: &str) {
    for forbidden in ["$ref", "anyOf", "oneOf", "allOf", "not", "default"] {
        assert!(schema.get(forbidden).is_none(), "{path} has {forbidden}");
    }
    let bounded = |bound: &str| assert!(schema.get(bound).is_some(), "{path} has no {bound}");
    match schema["type"].as_str() {
        Some("object") if schema.get("additionalProperties").is_some() => {
            assert!(
                schema.get("properties").is_none(),
                "{path} has properties and additional ones"
            );
            bounded("maxProperties");
            check(&schema["additionalProperties"], &format!("{path}[*]"));
        }
        Some("object") => {
            for (name, field) in schema["properties"].as_object().unwrap() {
                let path = format!("{path}.{name}");
                assert!(field["description"].is_string(), "{path} is not described");
                check(field, &path);
            }
        }
        Some("array") => {
            bounded("maxItems");
            check(&schema["items"], &format!("{path}[]"));
        }
        Some("string") if schema.get("enum").is_none() => bounded("maxLength"),
        Some("number") => bounded("enum"),
        Some("string" | "integer" | "boolean") => {}
        kind => panic!("{path} has the type {kind:?}"),
    }
}
