//! A manifest against the schema of the custom resource: what the API server refuses or drops is found in a file as well.
//!
//! In: a value and its part of the schema. Out: every fault, each with its place. Only what a structural schema of ours uses is
//! known here, and no rule between fields.

use kube::CustomResourceExt;
use regex::Regex;
use serde_json::{Map, Value};

use super::{Fault, stand_in::Place};
use crate::api::effective::Broken;

/// What a walk over an object finds.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) broken: Vec<Broken>,
    /// Where each of them is.
    pub(super) places: Vec<Place>,
}

impl Findings {
    /// One more.
    pub(super) fn push(
        &mut self,
        place: &Place,
        value: Option<&Value>,
        problem: String,
        remedy: impl Into<String>,
    ) {
        let broken = Broken::new(&place.path, value.map(shown), problem, remedy);
        self.broken.push(broken);
        self.places.push(place.clone());
    }

    /// All of them, of the object `label`.
    pub(super) fn faults(self, label: &str) -> Vec<Fault> {
        self.broken
            .into_iter()
            .map(|fault| fault.alone(label))
            .collect()
    }
}

/// The schema of the whole object as a custom resource definition holds it.
pub(super) fn schema<K: CustomResourceExt>() -> Value {
    let definition =
        serde_json::to_value(K::crd()).expect("a custom resource definition is valid JSON");
    let mut schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    let string = serde_json::json!({"type": "string"});
    let any = serde_json::json!({"x-kubernetes-preserve-unknown-fields": true});
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
pub(super) fn check(schema: &Value, value: &Value, place: &Place, found: &mut Findings) {
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
            place,
            Some(value),
            "is none of the choices".to_owned(),
            one_of(&choices),
        );
        return;
    }
    match (schema["type"].as_str(), value) {
        (Some("object"), Value::Object(fields)) => check_object(schema, fields, place, found),
        (Some("array"), Value::Array(items)) => {
            check_count(
                schema,
                ["minItems", "maxItems"],
                items.len(),
                "entries",
                (place, found),
            );
            for (index, item) in items.iter().enumerate() {
                check(&schema["items"], item, &place.entry(index), found);
            }
        }
        (Some("string"), Value::String(text)) => check_text(schema, text, place, found),
        (Some("integer"), Value::Number(number)) if number.is_i64() || number.is_u64() => {
            check_number(schema, value, place, found);
        }
        (Some("boolean"), Value::Bool(_)) | (Some("number"), Value::Number(_)) | (None, _) => {}
        (Some(kind), _) => {
            let form = schema["pattern"].as_str().map(wanted);
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
            let remedy = form.unwrap_or(remedy);
            found.push(place, Some(value), format!("is no {kind}"), remedy);
        }
    }
}

fn check_object(schema: &Value, fields: &Map<String, Value>, place: &Place, found: &mut Findings) {
    let below = |field: &str| place.field(field);
    let known = schema["properties"].as_object();
    for (field, value) in fields {
        if let Some(of_field) = known.and_then(|known| known.get(field)) {
            check(of_field, value, &below(field), found);
        } else if schema["additionalProperties"].is_object() {
            let schema = &schema["additionalProperties"];
            check(schema, value, &place.key(field), found);
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
        (place, found),
    );
}

fn check_text(schema: &Value, text: &str, place: &Place, found: &mut Findings) {
    let length = text.chars().count();
    check_count(
        schema,
        ["minLength", "maxLength"],
        length,
        "characters",
        (place, found),
    );
    if let Some(pattern) = schema["pattern"].as_str() {
        let fits = Regex::new(pattern)
            .expect("patterns of the schema are tested")
            .is_match(text);
        if !fits {
            let value = Value::from(text);
            let remedy = wanted(pattern);
            found.push(
                place,
                Some(&value),
                "is not of the right form".to_owned(),
                remedy,
            );
        }
    }
}

/// What a person writes where a pattern did not match, by a part of the pattern.
const FORMS: [(&str, &str); 15] = [
    ("ms|s|m|h|d", "write a length, as 90s, 5m or 1h30m"),
    ("Ki|Mi", "write a size, as 256Mi"),
    ("{1,6}m|", "write an amount of CPU, as 500m or 2"),
    ("{1,2}%", "write a number or a share, as 20 or 5%"),
    (
        "{4}-",
        "write an instant with its offset, as 2026-11-30T10:00:00Z",
    ),
    ("{12}$", "write a UUID in lower case, with its four hyphens"),
    (
        "timestamptz",
        "write a type by Iceberg's name, as long, timestamptz or decimal(12,2)",
    ),
    (r"^[^.\s]+(", "write namespace.table, as shop.orders"),
    (
        "^https?",
        "write an address without a user, as https://store:9000",
    ),
    (
        "{namespace}",
        "write a pattern of letters, digits and . _ : / @ -, with * and {namespace}, as {namespace}.*",
    ),
    (
        "^[-._a-zA-Z0-9]+",
        "write the key of an entry in a Secret: letters, digits, dots, hyphens and underscores",
    ),
    (
        "^[a-zA-Z0-9._-]+",
        "write letters, digits, dots, hyphens and underscores only",
    ),
    ("^[a-zA-Z0-9-]+", "write letters, digits and hyphens only"),
    (
        "^[a-zA-Z_][",
        "write letters, digits and underscores only, and no digit first",
    ),
    (
        "^[a-z0-9]([-a-z0-9",
        "write small letters, digits and hyphens, with a letter or a digit at each end",
    ),
];

fn wanted(pattern: &str) -> &str {
    let plain = pattern.replace("\\{", "{").replace("\\}", "}");
    let known = FORMS.iter().find(|(part, _)| plain.contains(part));
    known.map_or(pattern, |(_, remedy)| remedy)
}

fn check_number(schema: &Value, value: &Value, place: &Place, found: &mut Findings) {
    let number = value.as_f64().unwrap_or(f64::NAN);
    if schema["format"] == "int64" && value.as_i64().is_none() {
        let remedy = format!("write at most {}", i64::MAX);
        found.push(place, Some(value), "is out of bounds".to_owned(), remedy);
        return;
    }
    let least = schema["minimum"].as_f64().unwrap_or(f64::NEG_INFINITY);
    let greatest = schema["maximum"].as_f64().unwrap_or(f64::INFINITY);
    if !(least..=greatest).contains(&number) {
        let remedy = match (least.is_finite(), greatest.is_finite()) {
            (true, true) => format!("write a number from {least} to {greatest}"),
            (true, false) => format!("write at least {least}"),
            _ => format!("write at most {greatest}"),
        };
        found.push(place, Some(value), "is out of bounds".to_owned(), remedy);
    }
}

fn check_count(
    schema: &Value,
    bounds: [&str; 2],
    count: usize,
    what: &str,
    (place, found): (&Place, &mut Findings),
) {
    let [least, most] = bounds.map(|bound| schema[bound].as_u64());
    let count = count as u64;
    if least.is_some_and(|least| count < least) {
        let remedy = format!("write at least {} {what}", least.unwrap_or_default());
        found.push(place, None, format!("has {count} {what}"), remedy);
    }
    if most.is_some_and(|most| count > most) {
        let remedy = format!("write at most {} {what}", most.unwrap_or_default());
        found.push(place, None, format!("has {count} {what}"), remedy);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{
        gate::FinalizationGate, pipeline::IngestionPipeline, policy::IngestionPolicy,
    };

    fn patterns(schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(fields) => {
                let own = fields.get("pattern").and_then(Value::as_str);
                found.extend(own.map(str::to_owned));
                fields.values().for_each(|below| patterns(below, found));
            }
            Value::Array(items) => items.iter().for_each(|item| patterns(item, found)),
            _ => {}
        }
    }

    /// A regular expression tells few people what to write.
    #[test]
    fn every_pattern_has_words_for_it() {
        let mut found = Vec::new();
        for schema in [
            schema::<IngestionPipeline>(),
            schema::<IngestionPolicy>(),
            schema::<FinalizationGate>(),
        ] {
            patterns(&schema, &mut found);
        }
        found.sort();
        found.dedup();
        let wordless: Vec<&String> = found
            .iter()
            .filter(|one| wanted(one) == one.as_str())
            .collect();
        assert_eq!(wordless, Vec::<&String>::new());
        let words: Vec<&str> = FORMS
            .iter()
            .filter(|(_, words)| !found.iter().any(|one| wanted(one) == *words))
            .map(|(_, words)| *words)
            .collect();
        assert_eq!(
            words,
            Vec::<&str>::new(),
            "words for a pattern that is gone"
        );
    }
}
