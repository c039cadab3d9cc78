//! What the limits of a policy mean to the API server: expressions that it evaluates (CEL), and the words in which it refuses.
//!
//! They are written from the table in `limits`, so that whoever goes beyond a limit is told by `kubectl apply` what the operator
//! would tell later. The API server sees one pipeline and one policy at a time: every policy has to agree, which is the intersection
//! of their limits. So it looks only at what a pipeline says itself: what is left out is filled from all policies.
//!
//! And it looks only when the specification changes, `suspend` apart: whoever is beyond a limit that came later can still be
//! suspended, relabelled, and rid of a finalizer.

use serde::Serialize;
use serde_json::Value;

use super::limits::{CUT, Kind, RULES};
use crate::api::{custom_resource_definitions, schema::length_in_cel};

/// What the admission policies are made of.
#[derive(Serialize)]
struct Admission {
    /// What is named once: each `beyond` is a list with the sentence about one field, or with none.
    variables: Vec<Variable>,
    /// A validation a field: each becomes a warning of its own.
    each: Vec<Validation>,
    /// One for all fields: of a refusal only the first message is told.
    all: Vec<Validation>,
}

#[derive(Serialize)]
struct Variable {
    name: String,
    expression: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Validation {
    expression: String,
    message_expression: String,
    reason: &'static str,
}

/// The variables and validations of the admission policies, as YAML; `params` is an `IngestionPolicy`.
///
/// # Panics
/// Never: texts are valid YAML.
#[must_use]
pub fn admission() -> String {
    let schema = schema_of_spec();
    let mut admission = Admission {
        variables: heads(&schema),
        each: Vec::new(),
        all: Vec::new(),
    };
    let secrets = secrets(&schema, "");
    for (limit, kind, fields) in RULES {
        for field in fields {
            match field.strip_prefix('*') {
                Some(_) => {
                    for field in &secrets {
                        admission.add(limit, kind, (field, false));
                    }
                }
                None => admission.add(limit, kind, (field, is_list(&schema, field))),
            }
        }
    }
    admission.add_scale();
    admission.add_all();
    let yaml = serde_yaml::to_string(&admission).expect("texts are valid YAML");
    format!(
        "# Written by `cargo test generated`: the limits of IngestionPolicy as the API server evaluates them.\n{yaml}"
    )
}

impl Admission {
    /// Refuses one field beyond one limit.
    fn add(&mut self, limit: &str, kind: Kind, (field, list): (&str, bool)) {
        let ends = field.match_indices('.').map(|(end, _)| end);
        let there = ends.chain([field.len()]);
        let there = there.map(|end| format!(" && has(object.spec.{})", &field[..end]));
        let value = format!("object.spec.{field}");
        let looked = Looked {
            limit: &format!("variables.limits.{limit}"),
            when: &format!(
                "variables.bound && has(variables.limits.{limit}){}",
                there.collect::<String>()
            ),
            values: &match kind {
                Kind::PatternsOfList => format!("{value}.split(',').map(part, part.trim())"),
                _ if list => value,
                _ => format!("[{value}]"),
            },
        };
        self.refuse(field, kind, &looked);
    }

    /// `kubectl scale` and autoscalers do not write the pipeline but its Scale, which carries no labels: only policies without a
    /// selector can tell.
    fn add_scale(&mut self) {
        let looked = Looked {
            limit: "variables.limits.replicas",
            when: "variables.scaled && has(variables.limits.replicas)",
            values: "[object.spec.replicas]",
        };
        self.refuse("worker.replicas", Kind::Counts, &looked);
    }

    fn refuse(&mut self, field: &str, kind: Kind, looked: &Looked) {
        let name = format!("beyond{}", self.each.len());
        let Looked {
            limit,
            when,
            values,
        } = looked;
        let found = format!(
            "{values}.filter(value, !({})).map(value, {}).join(', ')",
            fits(kind, "value", limit),
            shown(kind)
        );
        let told = format!(
            "'spec.{field} is ' + {} + '; the policy \"' + params.metadata.name + '\" allows ' + {}",
            cut("found", CUT),
            allowed(kind, limit)
        );
        self.variables.push(Variable {
            name: name.clone(),
            expression: format!(
                "({when} ? [{found}] : []).filter(found, found != '').map(found, {told})"
            ),
        });
        self.each.push(Validation {
            expression: format!("variables.{name}.size() == 0"),
            message_expression: format!("variables.{name}[0]"),
            reason: REASON,
        });
    }

    fn add_all(&mut self) {
        let lists = (0..self.each.len()).map(|number| format!("variables.beyond{number}"));
        let lists = lists.collect::<Vec<_>>().join(" + ");
        self.variables.push(Variable {
            name: "told".to_owned(),
            expression: format!("({lists}).join('. ')"),
        });
        self.all.push(Validation {
            expression: "variables.told == ''".to_owned(),
            message_expression: cut("variables.told", WHOLE),
            reason: REASON,
        });
    }
}

/// What a client is answered: the pipeline is well-formed, but not allowed here.
const REASON: &str = "Forbidden";
/// How many characters a whole message has: one beyond 5 kB would be dropped.
const WHOLE: usize = 2000;

/// What is held against a limit.
struct Looked<'a> {
    limit: &'a str,
    /// Whether the limit and the field are there.
    when: &'a str,
    values: &'a str,
}

/// Something that can be compared with `<=`.
fn amount(kind: Kind, value: &str) -> String {
    match kind {
        Kind::Lengths => length_in_cel(value),
        _ => value.to_owned(),
    }
}

fn at_most(kind: Kind, value: &str, most: &str) -> String {
    match kind {
        Kind::Size | Kind::Cpu => format!("quantity({value}).compareTo(quantity({most})) <= 0"),
        _ => format!("{} <= {}", amount(kind, value), amount(kind, most)),
    }
}

fn fits(kind: Kind, value: &str, limit: &str) -> String {
    match kind {
        Kind::Size | Kind::Cpu | Kind::Share => at_most(kind, value, limit),
        Kind::Lengths | Kind::Counts => {
            let [least, most] = ["min", "max"].map(|end| format!("{limit}.{end}"));
            format!(
                "(!has({least}) || {}) && (!has({most}) || {})",
                at_most(kind, &least, value),
                at_most(kind, value, &most)
            )
        }
        Kind::Names => format!("{value} in {limit}"),
        // Of what a pattern may hold only the dot and the star mean something to a regular expression.
        Kind::Patterns | Kind::Addresses | Kind::PatternsOfList => format!(
            "{limit}.exists(pattern, {value}.matches('(?s)^' + pattern.replace('.', '[.]').replace('*', '.*').replace('{{namespace}}', \
             request.namespace) + '$'))"
        ),
        Kind::Incomparable => "false".to_owned(),
    }
}

/// A value as it is told; see `without_user` in `limits`.
fn shown(kind: Kind) -> &'static str {
    match kind {
        Kind::Addresses => {
            "(value.contains('@') ? (value.split('@')[0].contains('://') ? value.split('@')[0].split('://')[0] + '://' : '') + '…@' + \
             value.split('@')[size(value.split('@')) - 1] : value)"
        }
        _ => "string(value)",
    }
}

/// What a limit allows, in words.
fn allowed(kind: Kind, limit: &str) -> String {
    let only = |entries: &str| {
        format!(
            "(size({limit}) == 0 ? 'none' : 'only ' + {})",
            cut(entries, CUT)
        )
    };
    let patterns = format!("{limit}.join(', ').replace('{{namespace}}', request.namespace)");
    match kind {
        Kind::Size | Kind::Cpu | Kind::Share => format!("'at most ' + string({limit})"),
        Kind::Lengths | Kind::Counts => format!(
            "(has({limit}.min) && has({limit}.max) ? string({limit}.min) + ' to ' + string({limit}.max) : has({limit}.max) ? 'at most ' + \
             string({limit}.max) : 'at least ' + string({limit}.min))"
        ),
        Kind::Names => only(&format!("{limit}.join(', ')")),
        Kind::Patterns | Kind::Addresses | Kind::PatternsOfList => only(&patterns),
        Kind::Incomparable => format!(
            "'only topics by name, and of these ' + {}",
            cut(&patterns, CUT)
        ),
    }
}

/// A text cut where it is long.
fn cut(text: &str, length: usize) -> String {
    format!("(size({text}) > {length} ? {text}.substring(0, {length}) + '…' : {text})")
}

/// Which pipeline a policy binds, and when.
fn heads(schema: &Value) -> Vec<Variable> {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let changes = fields
        .map(|(field, _)| field)
        .filter(|field| *field != "suspend")
        .map(|field| {
            let [new, old] = ["object", "oldObject"].map(|object| format!("{object}.spec.{field}"));
            format!(" || has({new}) != has({old}) || (has({new}) && {new} != {old})")
        });
    let specification_changed = format!(
        "request.operation != 'UPDATE'{}",
        changes.collect::<String>()
    );
    let by_namespace = matches("params.spec.namespaceSelector", "variables.namespaceLabels");
    let by_labels = matches("params.spec.selector", "variables.labels");
    let heads = [
        (
            "labels",
            "has(object.metadata.labels) ? object.metadata.labels : {}",
        ),
        (
            "namespaceLabels",
            "has(namespaceObject.metadata.labels) ? namespaceObject.metadata.labels : {}",
        ),
        (
            "limits",
            "has(params.spec.limits) ? params.spec.limits : {}",
        ),
        (
            "scale",
            "has(request.subResource) && request.subResource == 'scale'",
        ),
        ("inNamespace", &by_namespace),
        (
            "bound",
            &format!(
                "!variables.scale && variables.inNamespace && ({by_labels}) && ({specification_changed})"
            ),
        ),
        (
            "scaled",
            "variables.scale && variables.inNamespace && !has(params.spec.selector) && object.spec.replicas != oldObject.spec.replicas",
        ),
    ];
    let variable = |(name, expression): (&str, &str)| Variable {
        name: name.to_owned(),
        expression: expression.to_owned(),
    };
    heads.map(variable).into()
}

/// Whether a selector matches labels; one that is left out matches all.
fn matches(selector: &str, labels: &str) -> String {
    let listed =
        format!("requirement.key in {labels} && {labels}[requirement.key] in requirement.values");
    format!(
        "!has({selector}) || ((!has({selector}.matchLabels) || {selector}.matchLabels.all(key, key in {labels} && {labels}[key] == \
         {selector}.matchLabels[key])) && (!has({selector}.matchExpressions) || {selector}.matchExpressions.all(requirement, \
         requirement.operator == 'In' ? {listed} : requirement.operator == 'NotIn' ? !({listed}) : requirement.operator == 'Exists' ? \
         requirement.key in {labels} : !(requirement.key in {labels}))))"
    )
}

fn schema_of_spec() -> Value {
    let definitions = custom_resource_definitions();
    let mut pipelines = definitions
        .iter()
        .filter(|(name, _)| name.starts_with("ingestionpipelines."));
    let (_, text) = pipelines.next().expect("pipelines have a definition");
    let definition: Value = serde_yaml::from_str(text).expect("it was written as YAML");
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
}

fn is_list(schema: &Value, field: &str) -> bool {
    let found = field
        .split('.')
        .fold(schema, |schema, name| &schema["properties"][name]);
    found["type"] == "array"
}

/// The names of all secrets that a specification refers to, as paths below it.
fn secrets(schema: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}{name}");
        if name.ends_with("Ref") {
            found.push(format!("{path}.name"));
        }
        found.extend(secrets(field, &format!("{path}.")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reference within a list would be looked at by the operator alone.
    #[test]
    fn secrets_are_found_wherever_they_stand() {
        fn count(schema: &Value) -> usize {
            let fields = schema["properties"].as_object().into_iter().flatten();
            let own = fields
                .clone()
                .filter(|(name, _)| name.ends_with("Ref"))
                .count();
            let below = fields.map(|(_, field)| field).chain(
                [schema.get("items"), schema.get("additionalProperties")]
                    .into_iter()
                    .flatten(),
            );
            own + below.map(count).sum::<usize>()
        }
        let schema = schema_of_spec();
        let found = secrets(&schema, "");
        assert!(
            found.contains(&"sink.catalog.credentialRef.name".to_owned()),
            "{found:?}"
        );
        assert_eq!(found.len(), count(&schema), "{found:?}");
    }
}
