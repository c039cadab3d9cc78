//! The limits of policies, as whoever applies a pipeline meets them: on a real API server, with the admission policies of the chart.

use std::{collections::BTreeMap, time::Duration};

use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};
use tidemark::{
    api::{effective::Origin, pipeline::IngestionPipeline, policy::IngestionPolicy},
    operator::policy::{Policies, decide},
};

use crate::{
    resources::{least, merge},
    support::{
        kube::{Kube, User},
        wait::within,
    },
};

/// How long a policy may take until admission knows it.
const KNOWN: Duration = Duration::from_mins(1);

/// A pipeline of the shape of the least one, in a namespace.
fn pipeline(namespace: &str, name: &str, patch: &Value) -> Value {
    let mut object = least("IngestionPipeline", name);
    object["metadata"]["namespace"] = namespace.into();
    merge(&mut object["spec"], patch);
    object
}

/// A policy for pipelines of one namespace.
fn policy(namespace: &str, name: &str, spec: &Value) -> Value {
    let mut object = least("IngestionPolicy", &format!("{namespace}-{name}"));
    object["spec"] = json!({
        "mode": "Enforce",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    });
    merge(&mut object["spec"], spec);
    object
}

fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn apply(user: &User, object: &Value) -> crate::support::kube::Said {
    user.kubectl(&["apply", "-f", "-"], &object.to_string())
}

/// Waits until admission knows a policy: until it says something of a pipeline that is beyond it.
fn await_policy(user: &User, beyond: &Value) {
    within(KNOWN, "a policy that admission knows", || {
        let words = ["apply", "--dry-run=server", "-f", "-"];
        let said = user.kubectl(&words, &beyond.to_string());
        said.err.contains("ValidatingAdmissionPolicy").then_some(())
    });
}

/// Limits, and specifications beyond and within them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    limits: Value,
    beyond: Vec<Value>,
    within: Vec<Value>,
}

/// What the operator says of what a pipeline says itself.
fn told_by_operator(pipeline: &Value, policy: &Value) -> String {
    let policy: IngestionPolicy = serde_json::from_value(policy.clone()).unwrap();
    let pipeline: IngestionPipeline = serde_json::from_value(pipeline.clone()).unwrap();
    let space = pipeline.metadata.namespace.clone().unwrap();
    let namespace = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), space)]);
    let policies = Policies::new([&policy]);
    assert!(policies.refused().is_empty(), "{:?}", policies.refused());
    let decision = decide(&pipeline, &namespace, &policies);
    let own =
        |violation: &&tidemark::operator::policy::Violation| violation.origin == Origin::Pipeline;
    let told = decision
        .violations
        .iter()
        .filter(own)
        .map(ToString::to_string);
    told.collect::<Vec<_>>().join(". ")
}

/// What admission says of each object of a stream, by name.
fn refusals(err: &str) -> BTreeMap<String, String> {
    let refusal = Regex::new(r#"(?m)"(case-\d+)" is forbidden: .* denied request: (.*)$"#).unwrap();
    let found = refusal.captures_iter(err);
    found
        .map(|found| (found[1].to_owned(), found[2].to_owned()))
        .collect()
}

/// The operator and the API server judge every case alike, and in the same words; by either way of applying.
#[test]
fn whoever_is_beyond_a_limit_is_told_so_as_the_operator_would() {
    let cases: Vec<Case> =
        serde_yaml::from_str(include_str!("data/resources/limits.yaml")).unwrap();
    let kube = Kube::with_admission();
    let namespace = kube.namespace("whoever_is_beyond");
    let (mut policies, mut pipelines, mut expected) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (number, case) in cases.iter().enumerate() {
        let label = json!({"case": number.to_string()});
        let name = format!("limit-{number}");
        policies.push(policy(
            &namespace,
            &name,
            &json!({"limits": case.limits, "selector": {"matchLabels": label}}),
        ));
        let specs = case
            .beyond
            .iter()
            .map(|spec| (true, spec))
            .chain(case.within.iter().map(|spec| (false, spec)));
        for (beyond, spec) in specs {
            let name = format!("case-{}", pipelines.len());
            let mut object = pipeline(&namespace, &name, spec);
            object["metadata"]["labels"] = label.clone();
            let told = told_by_operator(&object, policies.last().unwrap());
            assert_eq!(beyond, !told.is_empty(), "{}: {spec}: {told}", case.limits);
            if beyond {
                expected.insert(name, told);
            }
            pipelines.push(object);
        }
    }
    let person = kube.person();
    person
        .kubectl(&["apply", "-f", "-"], &list(&policies))
        .expect_success();
    await_policy(&person, pipelines.last().unwrap());
    for way in ["--server-side=false", "--server-side=true"] {
        let said = person.kubectl(
            &["apply", way, "--dry-run=server", "-f", "-"],
            &list(&pipelines),
        );
        assert_eq!(refusals(&said.err), expected, "{way}: {}", said.out);
    }
    let told = &expected[expected.keys().last().unwrap()];
    assert!(told.contains("allows"), "{told}");
}

/// Every limit there is has a case; the operator's table has every one.
#[test]
fn every_limit_has_a_case() {
    let cases: Vec<Case> =
        serde_yaml::from_str(include_str!("data/resources/limits.yaml")).unwrap();
    let policies = super::resources::definitions().into_iter();
    let mut policies =
        policies.filter(|definition| definition["spec"]["names"]["kind"] == "IngestionPolicy");
    let schema = &policies.next().unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let limits = schema["properties"]["spec"]["properties"]["limits"]["properties"]
        .as_object()
        .unwrap();
    for limit in limits.keys() {
        let named = |case: &&Case| case.limits.get(limit).is_some() && !case.beyond.is_empty();
        assert!(cases.iter().any(|case| named(&case)), "{limit} has no case");
    }
}

/// A namespace with a pipeline of nine workers, and then a policy that allows eight.
fn violator(test: &str, mode: &str) -> (User, String) {
    let kube = Kube::with_admission();
    let namespace = kube.namespace(test);
    let person = kube.person();
    let orders = pipeline(&namespace, "orders", &json!({"worker": {"replicas": 9}}));
    apply(&person, &orders).expect_success();
    let eight = json!({"mode": mode, "limits": {"replicas": {"max": 8}}});
    apply(&person, &policy(&namespace, "eight", &eight)).expect_success();
    await_policy(
        &person,
        &pipeline(&namespace, "other", &json!({"worker": {"replicas": 9}})),
    );
    (person, namespace)
}

/// Also to a person who only wanted to change something else: nothing of it would run before the number is right.
#[test]
fn violator_is_changed_by_no_way_into_another_one() {
    let (person, namespace) = violator("violator_is_changed", "Enforce");
    let told =
        format!("spec.worker.replicas is 9; the policy \"{namespace}-eight\" allows at most 8");
    let slower = pipeline(
        &namespace,
        "orders",
        &json!({"worker": {"replicas": 9}, "sink": {"commit": {"interval": "2m"}}}),
    );
    for way in ["--server-side=false", "--server-side=true"] {
        let words = ["apply", way, "-f", "-"];
        let said = person.kubectl(&words, &slower.to_string()).expect_failure();
        assert!(
            said.contains("is forbidden") && said.contains(&told),
            "{way}: {said}"
        );
    }
    let scale = |to| {
        person.kubectl(
            &["scale", "ipl/orders", "-n", &namespace, "--replicas", to],
            "",
        )
    };
    let said = scale("10").expect_failure();
    assert!(said.contains("spec.worker.replicas is 10;"), "{said}");
    scale("8").expect_success();
    apply(
        &person,
        &pipeline(
            &namespace,
            "orders",
            &json!({"worker": {"replicas": 8}, "sink": {"commit": {"interval": "2m"}}}),
        ),
    )
    .expect_success();
}

/// Whoever is beyond a limit that came later can still be stopped, found, and got rid of.
#[test]
fn violator_can_be_suspended_labelled_and_deleted() {
    let (person, namespace) = violator("violator_can_be", "Enforce");
    let orders = ["ipl/orders", "-n", namespace.as_str()];
    let run = |words: &[&str]| {
        let words: Vec<&str> = words.iter().copied().chain(orders).collect();
        person.kubectl(&words, "").expect_success()
    };
    let patch = |patch: &str| run(&["patch", "--type=merge", "-p", patch]);
    patch(
        r#"{"metadata": {"finalizers": ["tidemark.test/held"], "annotations": {"note": "too many"}}}"#,
    );
    patch(r#"{"metadata": {"labels": {"team": "shop"}}}"#);
    patch(r#"{"spec": {"suspend": true}}"#);
    patch(r#"{"spec": {"suspend": false}}"#);
    patch(r#"{"spec": {"suspend": null}}"#);
    run(&[
        "patch",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status": {"lag": "0"}}"#,
    ]);
    run(&["delete", "--wait=false"]);
    patch(r#"{"metadata": {"finalizers": null}}"#);
    run(&["wait", "--for=delete", "--timeout=30s"]);
}

/// The person is told, and the pipeline is taken.
#[test]
fn audit_warns_of_each_field() {
    let (person, namespace) = violator("audit_warns", "Audit");
    let more =
        json!({"mode": null, "limits": {"memoryBudget": "1Gi", "tables": ["{namespace}.*"]}});
    apply(&person, &policy(&namespace, "more", &more)).expect_success();
    let beyond = pipeline(
        &namespace,
        "large",
        &json!({"worker": {"replicas": 10, "memoryBudget": "2Gi"}}),
    );
    let warnings = within(KNOWN, "both policies", || {
        let said = person.kubectl(
            &["apply", "--dry-run=server", "-f", "-"],
            &beyond.to_string(),
        );
        let warnings: Vec<String> = said.err.lines().map(str::to_owned).collect();
        (warnings.len() >= 3).then_some(warnings)
    });
    for told in [
        format!("spec.worker.replicas is 10; the policy \"{namespace}-eight\" allows at most 8"),
        format!(
            "spec.worker.memoryBudget is 2Gi; the policy \"{namespace}-more\" allows at most 1Gi"
        ),
        format!(
            "spec.sink.table is shop.orders; the policy \"{namespace}-more\" allows only {namespace}.*"
        ),
    ] {
        let told = |line: &&String| line.starts_with("Warning: ") && line.ends_with(&told);
        assert_eq!(warnings.iter().filter(told).count(), 1, "{warnings:#?}");
    }
    apply(&person, &beyond).expect_success();
    let said = person.kubectl(
        &["scale", "ipl/large", "-n", &namespace, "--replicas=11"],
        "",
    );
    assert!(said.err.contains("spec.worker.replicas is 11;"), "{said:?}");
    said.expect_success();
}

/// Whoever writes a password into an address is refused, and what the API server says and logs of it does not hold the password.
#[test]
fn password_in_an_address_is_not_repeated() {
    let kube = Kube::with_admission();
    let namespace = kube.namespace("password_in_an_address");
    let person = kube.person();
    let only = json!({"limits": {"catalogs": ["http://lake*"]}});
    apply(&person, &policy(&namespace, "only", &only)).expect_success();
    await_policy(&person, &pipeline(&namespace, "other", &json!({})));
    for (uri, told) in [
        (
            "https://reader:hunter2@lake:8181/x",
            "https://…@lake:8181/x",
        ),
        ("http://reader:hunter2@db@lake", "http://…@lake"),
        ("hunter2@lake", "…@lake"),
    ] {
        let beyond = pipeline(
            &namespace,
            "orders",
            &json!({"sink": {"catalog": {"uri": uri}}}),
        );
        let said = apply(&person, &beyond).expect_failure();
        assert!(
            said.contains(&format!("spec.sink.catalog.uri is {told};")),
            "{said}"
        );
        assert!(!said.contains("hunter2"), "{said}");
    }
}

/// Several policies bind one pipeline: what all of them allow is allowed.
#[test]
fn limits_of_several_policies_intersect() {
    let kube = Kube::with_admission();
    let namespace = kube.namespace("limits_of_several");
    let person = kube.person();
    for (name, limits) in [("least", json!({"min": 2})), ("most", json!({"max": 4}))] {
        apply(
            &person,
            &policy(&namespace, name, &json!({"limits": {"replicas": limits}})),
        )
        .expect_success();
        let beyond = if name == "least" { 1 } else { 5 };
        await_policy(
            &person,
            &pipeline(
                &namespace,
                "orders",
                &json!({"worker": {"replicas": beyond}}),
            ),
        );
    }
    for (replicas, allowed) in [(1, false), (2, true), (4, true), (5, false)] {
        let said = apply(
            &person,
            &pipeline(
                &namespace,
                "orders",
                &json!({"worker": {"replicas": replicas}}),
            ),
        );
        assert_eq!(said.success, allowed, "{replicas}: {said:?}");
    }
}

/// A policy binds what it selects, by the labels of the pipeline and of its namespace, and nothing else.
#[test]
fn policy_binds_what_it_selects() {
    let kube = Kube::with_admission();
    let person = kube.person();
    let [gold, tin] = ["policy_binds_gold", "policy_binds_tin"].map(|test| kube.namespace(test));
    person
        .kubectl(&["label", "ns", &gold, "tier=gold"], "")
        .expect_success();
    let both = json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [gold, tin]},
        {"key": "tier", "operator": "Exists"},
    ]});
    let spec = json!({
        "limits": {"replicas": {"max": 8}},
        "namespaceSelector": {"matchLabels": null, "matchExpressions": both["matchExpressions"]},
        "selector": {"matchExpressions": [{"key": "size", "operator": "NotIn", "values": ["large", "huge"]}]},
    });
    apply(&person, &policy(&gold, "selects", &spec)).expect_success();
    let nine = json!({"worker": {"replicas": 9}});
    await_policy(&person, &pipeline(&gold, "orders", &nine));
    for (namespace, size, bound) in [
        (&gold, None, true),
        (&gold, Some("small"), true),
        (&gold, Some("large"), false),
        (&tin, None, false),
        (&tin, Some("small"), false),
    ] {
        let mut object = pipeline(namespace, "orders", &nine);
        if let Some(size) = size {
            object["metadata"]["labels"] = json!({"size": size});
        }
        let said = person.kubectl(
            &["apply", "--dry-run=server", "-f", "-"],
            &object.to_string(),
        );
        assert_eq!(said.success, !bound, "{namespace} {size:?}: {said:?}");
    }
    // A Scale has no labels, so a policy that selects by them cannot speak of it: the operator does.
    apply(
        &person,
        &pipeline(&gold, "orders", &json!({"worker": {"replicas": 8}})),
    )
    .expect_success();
    person
        .kubectl(&["scale", "ipl/orders", "-n", &gold, "--replicas=9"], "")
        .expect_success();
}
