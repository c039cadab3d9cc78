//! A decision for people and for programs: the specification with the source of each value, and what a change of policies does.
//!
//! Comes in: an explanation or a difference. Goes out: YAML with comments, a text, or a struct that is written as JSON. A value that
//! a fault does not show is not shown here either: it may hold a secret.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use serde::Serialize;
use serde_json::Value;

use super::{
    Explained, Violation,
    diff::{Changed, Difference, Effect},
};
use crate::api::{
    Fault,
    effective::{Leaf, Origin, label},
    pipeline::IngestionPipeline,
    policy::PolicyMode,
};

/// The longest line that still has its comment in the column of the others.
const COLUMN: usize = 56;

/// The terms of the finalization.
const TERMS: &str = "spec.finalization.terms";

/// What stands for a value that is not shown.
const HIDDEN: &str = "(not shown)";

/// An effective specification, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveReport {
    /// `namespace/name`.
    pub pipeline: String,
    /// Whether it may run as it is.
    pub accepted: bool,
    /// The hash of what runs; empty where it is wrong.
    pub hash: String,
    /// The policies that select it, the one that counts first first.
    pub policies: Vec<String>,
    /// The specification with every layer in it.
    pub spec: Value,
    /// Who said each value, by its path.
    pub sources: BTreeMap<String, SourceReport>,
    /// What counts for nothing because the field that it goes with was decided otherwise.
    pub left_out: Vec<LeftOutReport>,
    /// What is beyond limits.
    pub violations: Vec<ViolationReport>,
    /// What is wrong.
    pub faults: Vec<String>,
}

/// Who said a value, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceReport {
    /// `built-in`, `default`, `pipeline` or `override`.
    pub layer: &'static str,
    /// The policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// A value that counts for nothing, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeftOutReport {
    /// The value.
    #[serde(flatten)]
    pub leaf: LeafReport,
    /// The field that it goes with.
    pub with: LeafReport,
}

/// A value and who said it, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeafReport {
    /// Which field.
    pub path: String,
    /// The value.
    pub value: Value,
    /// Who said it.
    pub source: SourceReport,
}

/// Something beyond a limit, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ViolationReport {
    /// The policy.
    pub policy: String,
    /// What becomes of the pipeline.
    pub mode: PolicyMode,
    /// Which field.
    pub field: String,
    /// Its value, or the entries of it that are beyond the limit.
    pub value: String,
    /// Who said it.
    pub source: SourceReport,
    /// What would be right.
    pub allowed: String,
    /// All of it for people.
    pub message: String,
}

/// What becomes of a pipeline, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DifferenceReport {
    /// `namespace/name`.
    pub pipeline: String,
    /// What its workers do.
    pub effect: String,
    /// The values that differ.
    pub values: Vec<ChangedReport>,
    /// What is beyond limits and was not before.
    pub violations: Vec<ViolationReport>,
    /// What is wrong.
    pub faults: Vec<String>,
}

/// A value that differs, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangedReport {
    /// Which field.
    pub path: String,
    /// What it was.
    pub old: Option<LeafReport>,
    /// What it will be.
    pub new: Option<LeafReport>,
}

impl From<&Origin> for SourceReport {
    fn from(origin: &Origin) -> Self {
        let layer = match origin {
            Origin::BuiltIn => "built-in",
            Origin::Default(_) => "default",
            Origin::Pipeline => "pipeline",
            Origin::Override(_) => "override",
        };
        Self {
            layer,
            policy: origin.policy().map(ToString::to_string),
        }
    }
}

impl From<&Leaf> for LeafReport {
    fn from(leaf: &Leaf) -> Self {
        Self {
            path: leaf.path.clone(),
            value: leaf.value.clone(),
            source: (&leaf.origin).into(),
        }
    }
}

impl From<&Violation> for ViolationReport {
    fn from(violation: &Violation) -> Self {
        Self {
            policy: violation.policy.to_string(),
            mode: violation.mode,
            field: violation.field.clone(),
            value: violation.value.clone(),
            source: (&violation.origin).into(),
            allowed: violation.allowed.clone(),
            message: violation.to_string(),
        }
    }
}

/// An effective specification for programs.
#[must_use]
pub fn report(pipeline: &IngestionPipeline, explained: &Explained) -> EffectiveReport {
    let decision = &explained.decision;
    let mut spec = explained.layered.value();
    let terms = leaves(explained)
        .into_iter()
        .filter(|leaf| leaf.path == TERMS);
    let terms = terms.map(|leaf| (leaf.path, leaf.value));
    let hidden = unshown(explained)
        .into_iter()
        .map(|path| (path, Value::from(HIDDEN)));
    for (path, shown) in terms.chain(hidden) {
        let mut place = Some(&mut spec);
        for key in keys(&path) {
            place = place.and_then(|value| value.get_mut(&key));
        }
        if let Some(place) = place {
            *place = shown;
        }
    }
    let sources = explained.layered.leaves().into_iter();
    let fallen = explained.layered.fallen().iter();
    EffectiveReport {
        pipeline: label(pipeline),
        accepted: decision.accepted().is_some(),
        hash: decision.hash.clone(),
        policies: decision.policies.iter().map(ToString::to_string).collect(),
        spec,
        sources: sources
            .map(|leaf| (leaf.path, (&leaf.origin).into()))
            .collect(),
        left_out: fallen
            .map(|fallen| LeftOutReport {
                leaf: (&fallen.leaf).into(),
                with: (&fallen.with).into(),
            })
            .collect(),
        violations: decision.violations.iter().map(Into::into).collect(),
        faults: told(decision.outcome.as_ref().err()),
    }
}

/// An effective specification as YAML, with the source of each value as a comment.
///
/// # Panics
/// Never: each leaf has a name.
#[must_use]
pub fn yaml(pipeline: &IngestionPipeline, explained: &Explained) -> String {
    let hidden = unshown(explained);
    let mut lines: Vec<(String, Option<String>)> = Vec::new();
    let metadata = &pipeline.metadata;
    for (indent, field, value) in [
        ("", "apiVersion", Some("tidemark.dev/v1alpha1")),
        ("", "kind", Some("IngestionPipeline")),
        ("", "metadata", None),
        ("  ", "name", metadata.name.as_deref()),
        ("  ", "namespace", metadata.namespace.as_deref()),
        ("", "spec", None),
    ] {
        let value = value.map(|value| format!(" {}", scalar(value)));
        if value.is_some() || indent.is_empty() {
            lines.push((
                format!("{indent}{field}:{}", value.unwrap_or_default()),
                None,
            ));
        }
    }
    let mut before: Vec<String> = Vec::new();
    for leaf in leaves(explained) {
        let keys = keys(&leaf.path);
        let (last, parents) = keys.split_last().expect("a leaf has a name");
        let same = before
            .iter()
            .zip(parents)
            .take_while(|(old, new)| old == new)
            .count();
        for (depth, parent) in parents.iter().enumerate().skip(same) {
            lines.push((
                format!("{:1$}{2}:", "", 2 * depth + 2, scalar(parent)),
                None,
            ));
        }
        let indent = " ".repeat(2 * parents.len() + 2);
        let value = if hidden.contains(&leaf.path) {
            Value::from(HIDDEN)
        } else {
            leaf.value
        };
        let named = format!("{indent}{}:", scalar(last));
        match &value {
            Value::Array(items) if flow(&value).len() > COLUMN => {
                lines.push((named, Some(leaf.origin.to_string())));
                lines.extend(
                    items
                        .iter()
                        .map(|item| (format!("{indent}- {}", flow(item)), None)),
                );
            }
            value => lines.push((
                format!("{named} {}", flow(value)),
                Some(leaf.origin.to_string()),
            )),
        }
        before = parents.to_vec();
    }
    head(pipeline, explained) + &aligned(&lines)
}

/// The leaves as they run: of the terms a heartbeat table has taken the place of one.
fn leaves(explained: &Explained) -> Vec<Leaf> {
    let mut leaves = explained.layered.leaves();
    if let Ok(resolved) = &explained.decision.outcome
        && let Some(terms) = leaves.iter_mut().find(|leaf| leaf.path == TERMS)
    {
        let run = resolved.spec.finalization.terms.iter();
        terms.value = run.map(ToString::to_string).collect();
    }
    leaves
}

/// The lines with their comments in one column, but for long ones.
fn aligned(lines: &[(String, Option<String>)]) -> String {
    let commented = lines.iter().filter(|(_, comment)| comment.is_some());
    let widths = commented.map(|(line, _)| line.chars().count());
    let column = widths.filter(|width| *width <= COLUMN).max().unwrap_or(0);
    let mut text = String::new();
    for (line, comment) in lines {
        let _ = match comment {
            Some(comment) => writeln!(text, "{line:<column$}  # {comment}"),
            None => writeln!(text, "{line}"),
        };
    }
    text
}

/// What is to be known of the whole, as comments.
fn head(pipeline: &IngestionPipeline, explained: &Explained) -> String {
    let decision = &explained.decision;
    let mut text = match (&decision.outcome, decision.accepted()) {
        (Ok(_), Some(_)) => format!(
            "# {} is accepted; its hash is {}.\n",
            label(pipeline),
            decision.hash
        ),
        (Ok(_), None) => format!(
            "# {} is not accepted: it is beyond an enforced limit.\n",
            label(pipeline)
        ),
        (Err(_), _) => format!("# {} is not accepted: it is wrong.\n", label(pipeline)),
    };
    match decision.policies.as_slice() {
        [] => text += "# No policy selects it.\n",
        [one] => drop(writeln!(text, "# Policy {one} selects it.")),
        several => drop(writeln!(
            text,
            "# Policies {} select it; of two that say the same field the first counts.",
            several.join(", ")
        )),
    }
    let fallen = explained.layered.fallen().iter().map(|fallen| {
        let (leaf, with) = (&fallen.leaf, &fallen.with);
        format!("{}: it does not go with {}", said(leaf), said(with))
    });
    list(&mut text, "Left out", fallen);
    list(
        &mut text,
        "Wrong",
        told(decision.outcome.as_ref().err()).into_iter(),
    );
    for (mode, title) in [
        (PolicyMode::Enforce, "Beyond enforced limits"),
        (PolicyMode::Audit, "Beyond limits that are only counted"),
    ] {
        let own = decision
            .violations
            .iter()
            .filter(|violation| violation.mode == mode);
        list(&mut text, title, own.map(ToString::to_string));
    }
    text
}

fn list(text: &mut String, title: &str, entries: impl Iterator<Item = String>) {
    let entries: Vec<String> = entries.collect();
    if !entries.is_empty() {
        let _ = writeln!(text, "# {title}:\n#   {}", entries.join("\n#   "));
    }
}

fn said(leaf: &Leaf) -> String {
    format!("{}: {} ({})", leaf.path, flow(&leaf.value), leaf.origin)
}

fn told(faults: Option<&Vec<Fault>>) -> Vec<String> {
    faults
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect()
}

/// The paths of values that faults do not show: they may hold secrets.
fn unshown(explained: &Explained) -> BTreeSet<String> {
    let faults = explained.decision.outcome.as_ref().err();
    let faults = faults.into_iter().flatten();
    let unshown = faults.filter(|fault| fault.value.is_empty() && !fault.path.contains(" and "));
    unshown.map(|fault| fault.path.clone()).collect()
}

/// `spec.source.kafka.properties[a.b]` → `source`, `kafka`, `properties`, `a.b`.
fn keys(path: &str) -> Vec<String> {
    let (fields, chosen) = match path.split_once('[') {
        Some((fields, chosen)) => (fields, chosen.strip_suffix(']')),
        None => (path, None),
    };
    let fields = fields.split('.').skip(1);
    fields.chain(chosen).map(str::to_owned).collect()
}

/// A value on one line of YAML.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| format!("{}: {}", scalar(key), flow(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

/// A text as YAML, in quotes where a reader of any version would take it for something else.
fn scalar(text: &str) -> String {
    let other = ["y", "n", "yes", "no", "on", "off"];
    // A lone "-" is a text in one of these places and the mark of an entry in the other.
    let in_both = format!("key: {text}\nlist: [{text}]\n");
    let same = serde_yaml::from_str::<serde_yaml::Value>(&in_both).is_ok_and(|read| {
        let placed = [&read["key"], &read["list"][0]].map(serde_yaml::Value::as_str);
        placed == [Some(text); 2]
            && read["list"]
                .as_sequence()
                .is_some_and(|list| list.len() == 1)
    });
    let sixty = text.starts_with(|c: char| c.is_ascii_digit()) && text.contains(':');
    if same && !sixty && !other.contains(&text.to_lowercase().as_str()) {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

/// What becomes of a pipeline, for programs.
#[must_use]
pub fn difference_report(pipeline: &str, difference: &Difference) -> DifferenceReport {
    let values = difference.leaves.iter().map(|changed| ChangedReport {
        path: changed.path.clone(),
        old: changed.old.as_ref().map(Into::into),
        new: changed.new.as_ref().map(Into::into),
    });
    DifferenceReport {
        pipeline: pipeline.to_owned(),
        effect: difference.effect.to_string(),
        values: values.collect(),
        violations: difference.violations.iter().map(Into::into).collect(),
        faults: told(Some(&difference.faults)),
    }
}

/// What becomes of a pipeline, for people.
#[must_use]
pub fn difference(pipeline: &str, difference: &Difference) -> String {
    let effect = match difference.effect {
        Effect::None => "stays as it is",
        Effect::Changes => "changes",
        Effect::Restarts => "changes, and its pods restart",
        Effect::Moves => "changes, and moves to other pods",
        Effect::Accepted => "is accepted, and runs",
        Effect::Refused => "is refused, and goes on with what was last accepted",
    };
    let mut text = format!("{pipeline} {effect}\n");
    for Changed { path, old, new } in &difference.leaves {
        let value = |leaf: &Option<Leaf>| {
            let said = leaf
                .as_ref()
                .map(|leaf| format!("{} ({})", flow(&leaf.value), leaf.origin));
            said.unwrap_or_else(|| "nothing".to_owned())
        };
        let _ = writeln!(text, "  {path}: {} → {}", value(old), value(new));
    }
    for violation in &difference.violations {
        let mode = match violation.mode {
            PolicyMode::Enforce => "refused",
            PolicyMode::Audit => "counted",
        };
        let _ = writeln!(text, "  {mode}: {violation}");
    }
    for fault in &difference.faults {
        let _ = writeln!(text, "  wrong: {fault}");
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{Policies, diff, explain},
        *,
    };
    use crate::api::{parse_manifests, parse_objects};

    const OBJECTS: &str = "
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {name: orders, namespace: shop}
spec:
  source: {format: DebeziumJson, kafka: {bootstrapServers: 'k:1', topics: [a, b], properties: {fetch.wait.max.ms: '50'}}}
  sink:
    table: shop.orders
    catalog: {type: Rest, uri: 'http://c'}
    schema: [{name: id, type: long, key: true}, {name: amount, type: 'decimal(12,2)'}]
  worker: {replicas: 9}
  finalization: {cell: 1h}
---
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPolicy
metadata: {name: gold}
spec:
  mode: Enforce
  limits: {replicas: {max: 4}, maxDelay: {max: 5m}}
  defaults: {finalization: {cell: 1d, zone: Europe/Berlin, maxDelay: 4m}, sink: {expire: {enabled: false}}}
  overrides: {worker: {podLabels: {team: 'on'}}}
";

    fn of(text: &str) -> (IngestionPipeline, Explained) {
        let mut objects = parse_objects(text).unwrap_or_else(|faults| panic!("{faults:?}"));
        let policies = Policies::new(&objects.policies);
        assert!(policies.refused().is_empty(), "{:?}", policies.refused());
        let pipeline = objects.pipelines.remove(0);
        let explained = explain(&pipeline, &BTreeMap::new(), &policies);
        (pipeline, explained)
    }

    const WITH_SOURCES: &str = r#"# shop/orders is not accepted: it is beyond an enforced limit.
# Policy gold selects it.
# Left out:
#   spec.finalization.zone: Europe/Berlin (default of policy "gold"): it does not go with spec.finalization.cell: 1h (pipeline)
# Beyond enforced limits:
#   spec.worker.replicas is 9; the policy "gold" allows at most 4
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata:
  name: orders
  namespace: shop
spec:
  eventTime:
    from: SourceCommit               # built-in
  finalization:
    allowedLateness: 5m              # built-in
    cell: 1h                         # pipeline
    lateData: Notify                 # built-in
    maxDelay: 4m                     # default of policy "gold"
    maxFutureSkew: 5m                # built-in
    onJoin: Reopen                   # built-in
    terms: [Minimum, CaughtUp]       # built-in
    windowCommits: 3                 # built-in
  sink:
    catalog:
      name: default                  # built-in
      type: Rest                     # pipeline
      uri: http://c                  # pipeline
    commit:
      interval: 60s                  # built-in
    expire:
      enabled: false                 # default of policy "gold"
      grace: 1h                      # built-in
      keep: 6h                       # built-in
      keepSnapshots: 300             # built-in
    metadataPrefix: _cdc_            # built-in
    onRollback: Replay               # built-in
    partitioning: Hour               # built-in
    schema:                          # pipeline
    - {key: true, name: id, type: long}
    - {name: amount, type: "decimal(12,2)"}
    table: shop.orders               # pipeline
    writer: shop.orders              # built-in
  source:
    format: DebeziumJson             # pipeline
    kafka:
      bootstrapServers: k:1          # pipeline
      groupId: tidemark.shop.orders  # built-in
      properties:
        fetch.wait.max.ms: "50"      # pipeline
      security:
        protocol: Plaintext          # built-in
      startFrom: Earliest            # built-in
      topics: [a, b]                 # pipeline
    onGap: Stop                      # built-in
  suspend: false                     # built-in
  worker:
    memoryBudget: 256Mi              # built-in
    placement: Dedicated             # built-in
    podLabels:
      team: "on"                     # override of policy "gold"
    replicas: 9                      # pipeline
    resources:
      limits:
        memory: 384Mi                # built-in
      requests:
        cpu: 250m                    # built-in
        memory: 384Mi                # built-in
"#;

    #[test]
    fn yaml_has_every_value_with_its_source() {
        let (pipeline, explained) = of(OBJECTS);
        assert_eq!(yaml(&pipeline, &explained), WITH_SOURCES);
    }

    /// What is printed can be taken as a manifest that needs no default: it resolves to the same.
    #[test]
    fn printed_specification_is_a_manifest_that_resolves_to_itself() {
        let (pipeline, explained) = of(&OBJECTS.replace("replicas: 9", "replicas: 3"));
        let text = yaml(&pipeline, &explained);
        let again = parse_manifests(&text)
            .unwrap_or_else(|faults| panic!("{faults:?}\n{text}"))
            .remove(0);
        let again = explain(&again, &BTreeMap::new(), &Policies::default());
        assert_eq!(again.decision.outcome, explained.decision.outcome);
        assert_eq!(again.layered.value(), explained.layered.value());
    }

    /// Whoever names a heartbeat table sees which term closes cells.
    #[test]
    fn terms_are_shown_as_they_run() {
        let text = OBJECTS.replace(
            "format: DebeziumJson",
            "format: DebeziumJson, heartbeatTable: beats",
        );
        let (pipeline, explained) = of(&text);
        assert!(yaml(&pipeline, &explained).contains("terms: [Minimum, Heartbeat]"));
        let report = report(&pipeline, &explained);
        assert_eq!(
            report.spec["finalization"]["terms"],
            serde_json::json!(["Minimum", "Heartbeat"])
        );
    }

    #[test]
    fn secrets_in_wrong_places_are_not_shown() {
        let text = OBJECTS
            .replace("type: Rest, uri: 'http://c'", "type: Sql, uri: 'postgresql://u:hush@h/d', warehouse: 'file:///w', properties: {s3.secret-access-key: hush}")
            .replace("limits: {", "limits: {catalogs: ['http://*'], ");
        let (pipeline, explained) = of(&text);
        let texts = [
            yaml(&pipeline, &explained),
            serde_json::to_string(&report(&pipeline, &explained)).unwrap(),
            format!("{:?}", explained.decision),
        ];
        for text in texts {
            assert!(
                text.contains("catalog.uri") && !text.contains("hush"),
                "{text}"
            );
        }
    }

    #[test]
    fn report_names_layers_and_policies() {
        let (pipeline, explained) = of(OBJECTS);
        let report = serde_json::to_value(report(&pipeline, &explained)).unwrap();
        assert_eq!(report["spec"]["finalization"]["maxDelay"], "4m");
        assert_eq!(
            report["sources"]["spec.finalization.maxDelay"],
            serde_json::json!({"layer": "default", "policy": "gold"})
        );
        assert_eq!(
            report["sources"]["spec.worker.replicas"],
            serde_json::json!({"layer": "pipeline"})
        );
        assert_eq!(report["leftOut"][0]["path"], "spec.finalization.zone");
        assert_eq!(report["leftOut"][0]["with"]["value"], "1h");
        let violation = serde_json::json!([{
            "policy": "gold",
            "mode": "Enforce",
            "field": "spec.worker.replicas",
            "value": "9",
            "source": {"layer": "pipeline"},
            "allowed": "at most 4",
            "message": "spec.worker.replicas is 9; the policy \"gold\" allows at most 4",
        }]);
        assert_eq!(report["violations"], violation);
    }

    #[test]
    fn difference_says_old_and_new() {
        let (_, before) = of(&OBJECTS.replace("replicas: 9", "replicas: 3"));
        let after = OBJECTS
            .replace("replicas: 9", "replicas: 3")
            .replace("maxDelay: 4m", "windowCommits: 5")
            .replace("mode: Enforce", "mode: Audit");
        let (_, after) = of(&after);
        let found = diff::difference(&before, &after).unwrap();
        let expected = r#"shop/orders changes
  spec.finalization.maxDelay: 4m (default of policy "gold") → 10m (built-in)
  spec.finalization.windowCommits: 3 (built-in) → 5 (default of policy "gold")
  counted: spec.finalization.maxDelay is 10m (built-in); the policy "gold" allows at most 5m
"#;
        assert_eq!(difference("shop/orders", &found), expected);
        let report = serde_json::to_value(difference_report("shop/orders", &found)).unwrap();
        assert_eq!(report["effect"], "Changes");
        assert_eq!(report["values"][0]["old"]["value"], "4m");
        assert_eq!(report["values"][0]["new"]["source"]["layer"], "built-in");
    }

    /// A mark of YAML that stands alone would be read as that mark, or as nothing.
    #[test]
    fn lone_marks_of_yaml_are_quoted() {
        for mark in [
            "-", "?", ":", "~", "-\n", "", "#", "&", "*", "|", ">", "<<", "---", "...",
        ] {
            let read: serde_yaml::Value =
                serde_yaml::from_str(&format!("a: {}\n", scalar(mark))).unwrap();
            assert_eq!(read["a"].as_str(), Some(mark), "{mark:?}");
        }
        assert_eq!(scalar("-"), r#""-""#);
    }

    proptest! {
        #[test]
        fn prop_texts_come_back_from_yaml_as_they_were(text in "[ -~äß\n\t]{0,12}") {
            let line = format!("a: {}\nb: [{0}, {{{0}: 1}}]\n", scalar(&text));
            let back: serde_yaml::Value = serde_yaml::from_str(&line).unwrap();
            prop_assert_eq!(back["a"].as_str(), Some(text.as_str()));
            prop_assert_eq!(back["b"][0].as_str(), Some(text.as_str()));
            prop_assert_eq!(back["b"][1][text.as_str()].as_i64(), Some(1));
        }
    }
}
