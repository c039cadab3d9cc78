//! Whether a policy can be applied as it is written.
//!
//! What is wrong whatever a pipeline says is told at the policy; what depends on a pipeline is told there. The policy's values are
//! laid over a pipeline that says nothing, so that they are held against the very rules that pipelines are held against.

use std::sync::Arc;

use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{super::rollout, Limits, Policy};
use crate::api::{
    Fault,
    effective::{Broken, Origin, PolicyLayers, broken, layered},
    pipeline::IngestionPipeline,
    policy::{IngestionPolicy, PolicyMode, PolicyValues, RolloutSpec},
    schema::{Selector, SelectorOperator},
};

/// What a policy may fill.
pub(super) const FILLABLE: [&str; 12] = [
    "spec.source.kafka.properties",
    "spec.source.kafka.security",
    "spec.source.onGap",
    "spec.sink.catalog.caRef",
    "spec.sink.catalog.credentialRef",
    "spec.sink.catalog.properties",
    "spec.sink.catalog.storage",
    "spec.sink.commit",
    "spec.sink.expire",
    "spec.sink.onRollback",
    "spec.finalization",
    "spec.worker",
];

pub(super) fn policy(policy: &IngestionPolicy) -> Result<Policy, Vec<Fault>> {
    let object = format!("policy {}", policy.name_any());
    let spec = &policy.spec;
    let mut found = Vec::new();
    for (field, selector) in [
        ("selector", &spec.selector),
        ("namespaceSelector", &spec.namespace_selector),
    ] {
        found.extend(
            selector
                .iter()
                .flat_map(|selector| requirements(field, selector)),
        );
    }
    found.extend(spec.rollout.iter().filter_map(rollout));
    let limits = spec.limits.as_ref().map(Limits::new).transpose();
    let limits = limits.unwrap_or_else(|broken| {
        found.extend(broken);
        None
    });
    let [defaults, overrides] =
        [("defaults", &spec.defaults), ("overrides", &spec.overrides)].map(|(part, values)| {
            values_of(policy, (part, values.as_ref()), limits.as_ref(), &mut found)
        });
    if !found.is_empty() {
        return Err(found
            .into_iter()
            .map(|broken| broken.alone(&object))
            .collect());
    }
    Ok(Policy {
        name: name(policy),
        priority: spec.priority.unwrap_or_default(),
        selector: spec.selector.clone().unwrap_or_default(),
        namespace_selector: spec.namespace_selector.clone().unwrap_or_default(),
        mode: spec.mode.unwrap_or_default(),
        rollout: spec.rollout.clone(),
        notes: notes(&name(policy), [&defaults, &overrides], limits.as_ref()),
        defaults,
        overrides,
        limits,
    })
}

fn name(policy: &IngestionPolicy) -> Arc<str> {
    policy.name_any().into()
}

/// A requirement that could not be met, or that means nothing.
fn requirements(field: &str, selector: &Selector) -> Vec<Broken> {
    let expressions = selector.match_expressions.iter().flatten().enumerate();
    let wrong = expressions.filter_map(|(index, requirement)| {
        let needs = matches!(
            requirement.operator,
            SelectorOperator::In | SelectorOperator::NotIn
        );
        let has = requirement
            .values
            .as_ref()
            .is_some_and(|values| !values.is_empty());
        (needs != has).then(|| {
            let path = format!("spec.{field}.matchExpressions[{index}].values");
            let remedy = "write values with operator In and NotIn, and with no other";
            Broken::new(&path, None, "does not go with the operator", remedy)
        })
    });
    wrong.collect()
}

/// A limit of waves that cannot be read.
fn rollout(spec: &RolloutSpec) -> Option<Broken> {
    let told = rollout::Limits::read(spec, rollout::Limits::default()).err()?;
    let (path, told) = told.split_once(": ").unwrap_or(("spec.rollout", &told));
    let (problem, remedy) = told.rsplit_once("; ").unwrap_or((told, "correct it"));
    Some(Broken::new(path, None, problem, remedy))
}

/// The values of `defaults` or `overrides` in the shape of a pipeline's `spec`.
fn values_of(
    policy: &IngestionPolicy,
    (part, spec): (&str, Option<&PolicyValues>),
    limits: Option<&Limits>,
    found: &mut Vec<Broken>,
) -> Value {
    let Some(spec) = spec else {
        return json!({});
    };
    let values = serde_json::to_value(spec).expect("values of a policy are valid JSON");
    for (field, why) in [
        (
            "/finalization/completeFrom",
            "set it in the pipeline: it speaks of one table's rows",
        ),
        (
            "/worker/serviceAccountName",
            "set it in the pipeline: it is an identity",
        ),
    ] {
        if values.pointer(field).is_some() {
            let path = format!("spec.{part}{}", field.replace('/', "."));
            found.push(Broken::new(
                &path,
                None,
                "may not be filled by a policy",
                why,
            ));
        }
    }
    let pipeline = silent();
    let name = name(policy);
    let layers = PolicyLayers {
        defaults: vec![(Arc::clone(&name), &values)],
        overrides: Vec::new(),
    };
    let layered = layered(&pipeline, &layers);
    let fillable = |path: &str| FILLABLE.iter().any(|field| path.starts_with(field));
    let own = |broken: &Broken| {
        let said = |path: &str| {
            layered
                .origin(path)
                .is_some_and(|origin| origin.policy().is_some())
        };
        !broken.is_missing() && broken.paths().all(fillable) && broken.paths().any(said)
    };
    let rules = broken(&pipeline, &layered).into_iter().filter(own);
    let below = format!("spec.{part}");
    found.extend(rules.map(|broken| broken.below("spec", &below)));
    if part == "defaults"
        && let Some(limits) = limits
    {
        let beyond = limits.check(
            &layered,
            "any",
            (&name, policy.spec.mode.unwrap_or_default()),
        );
        let said = beyond
            .into_iter()
            .filter(|violation| violation.origin.policy().is_some());
        found.extend(said.map(|violation| {
            let path = violation.field.replacen("spec", &below, 1);
            let value = Value::from(violation.value).to_string();
            let problem = format!("is beyond its own limit, {}", violation.allowed);
            let remedy = "take a default within the limit, or an override: limits do not bind it";
            Broken::new(&path, Some(value), problem, remedy)
        }));
    }
    values
}

/// The built-in values beyond the limits, where the policy itself gives no other.
fn notes(
    name: &Arc<str>,
    [defaults, overrides]: [&Value; 2],
    limits: Option<&Limits>,
) -> Vec<String> {
    let layers = PolicyLayers {
        defaults: vec![(Arc::clone(name), defaults)],
        overrides: vec![(Arc::clone(name), overrides)],
    };
    let layered = layered(&silent(), &layers);
    let beyond = limits.map(|limits| limits.check(&layered, "any", (name, PolicyMode::Audit)));
    let beyond = beyond.into_iter().flatten();
    let built_in = beyond.filter(|violation| violation.origin == Origin::BuiltIn);
    let told = built_in.map(|violation| {
        format!(
            "a pipeline that says nothing is beyond a limit: {} is {} (built-in), allowed is {}: give a default",
            violation.field, violation.value, violation.allowed
        )
    });
    told.collect()
}

/// A pipeline that says nothing that a policy may say.
fn silent() -> IngestionPipeline {
    let spec = json!({
        "source": {"kafka": {"bootstrapServers": "any:9092", "topics": ["any"]}, "format": "DebeziumJson"},
        "sink": {"catalog": {"type": "Rest", "uri": "http://any"}, "table": "any.any"},
    });
    let spec = serde_json::from_value(spec).expect("the least that a pipeline says");
    let mut pipeline = IngestionPipeline::new("any", spec);
    pipeline.meta_mut().namespace = Some("any".to_owned());
    pipeline
}
