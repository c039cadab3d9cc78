//! Each rule of the custom resources is broken once, and a person reads where and why.
//!
//! `tests/data/resources/rules.yaml` has the cases. A rule without one fails the run.

use std::collections::BTreeMap;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{below, definitions, least, merge, schema};
use crate::support::kube::{Kube, Said};

/// A rule, and objects that break it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    kind: String,
    /// Where the fault is.
    at: String,
    /// Its message.
    message: String,
    #[serde(default)]
    new: Vec<Value>,
    #[serde(default)]
    change: Vec<(Value, Value)>,
}

fn rules() -> Vec<Rule> {
    let text = include_str!("../data/resources/rules.yaml");
    serde_yaml::from_str(text).expect("a list of rules")
}

/// The messages of all rules of a schema.
fn messages(schema: &Value, found: &mut Vec<String>) {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        found.push(rule["message"].as_str().expect("a message").to_owned());
    }
    for (_, schema) in below(schema) {
        messages(schema, found);
    }
}

#[test]
fn every_rule_has_a_case() {
    let rules = rules();
    for definition in definitions() {
        let kind = &definition["spec"]["names"]["kind"];
        let mut found = Vec::new();
        messages(schema(&definition), &mut found);
        for message in found {
            let known = rules
                .iter()
                .filter(|rule| *kind == *rule.kind && rule.message == message);
            let cases: usize = known.map(|rule| rule.new.len() + rule.change.len()).sum();
            assert!(
                cases > 0,
                "{kind} has the rule \"{message}\", which no case breaks"
            );
        }
    }
}

/// What is said about each object of a stream, by name.
fn complaints(said: &Said) -> BTreeMap<String, String> {
    // Of a field that is no object the value stands there as well.
    let complaint =
        Regex::new(r#"(?m)"(case-\d+)" is invalid: (\S+: Invalid value: )(?:"[^"]*": )?(.*)$"#)
            .unwrap();
    let found = complaint.captures_iter(&said.err);
    found
        .map(|found| (found[1].to_owned(), found[2].to_owned() + &found[3]))
        .collect()
}

/// The stored objects, the wrong ones, and what has to be said about each by name.
#[derive(Default)]
struct Cases {
    stored: Vec<Value>,
    wrong: Vec<Value>,
    expected: BTreeMap<String, String>,
}

impl Cases {
    fn add(&mut self, rule: &Rule, before: Option<&Value>, patch: &Value) {
        let name = format!("case-{}", self.wrong.len());
        let mut object = least(&rule.kind, &name);
        if let Some(before) = before {
            merge(&mut object["spec"], before);
            self.stored.push(object.clone());
        }
        merge(&mut object["spec"], patch);
        self.wrong.push(object);
        self.expected.insert(
            name,
            format!("{}: Invalid value: {}", rule.at, rule.message),
        );
    }
}

/// By either way of applying; all of them in one go, as with a folder of manifests.
#[test]
fn every_broken_rule_is_told_where_and_why() {
    let kube = Kube::shared();
    let mut cases = Cases::default();
    for rule in rules() {
        rule.new
            .iter()
            .for_each(|patch| cases.add(&rule, None, patch));
        rule.change
            .iter()
            .for_each(|(before, patch)| cases.add(&rule, Some(before), patch));
    }
    let list =
        |items: &[Value]| json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    for way in ["--server-side=false", "--server-side=true"] {
        let namespace = kube.namespace("every_broken_rule");
        let words = ["apply", "-n", &namespace, "-f", "-", way];
        let stored = kube.person().kubectl(&words, &list(&cases.stored));
        stored.expect_success();
        let words: Vec<&str> = words.into_iter().chain(["--dry-run=server"]).collect();
        let said = kube.person().kubectl(&words, &list(&cases.wrong));
        assert_eq!(complaints(&said), cases.expected, "{words:?}: {}", said.out);
    }
}
