//! The charts, with a real Helm on a real API server.

use std::{collections::BTreeSet, fs, time::Duration};

use serde::Deserialize;
use serde_json::Value;

use crate::support::{
    kube::{Kube, chart},
    wait::within,
};

/// How long a controller may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Whoever installs the definitions by their chart can upgrade them by it, and keeps every pipeline when it goes.
#[test]
fn definitions_survive_their_chart() {
    let kube = Kube::start_own();
    let person = kube.person();
    let chart = chart("tidemark-crds");
    let lint = person.helm(&["lint", "--strict", &chart], "");
    let lint = lint.expect_success();
    assert!(lint.contains("0 chart(s) failed"), "{lint}");
    person
        .helm(&["install", "crds", &chart], "")
        .expect_success();
    kube.await_definitions();
    person
        .helm(&["upgrade", "crds", &chart], "")
        .expect_success();
    person.helm(&["uninstall", "crds"], "").expect_success();
    let left = person.kubectl(&["get", "ipl"], "").expect_success();
    assert!(left.is_empty(), "{left}");
    let without = [
        "install",
        "crds",
        &chart,
        "--set",
        "keep=false",
        "--take-ownership",
    ];
    person.helm(&without, "").expect_success();
    person.helm(&["uninstall", "crds"], "").expect_success();
    person.kubectl(&["get", "ipl"], "").expect_failure();
}

/// Sets of values, each a list of `--set`.
const VALUES: [&[&str]; 5] = [
    &[],
    &["replicas=1", "admission.enabled=false"],
    &["namespaces={shop,billing}", "scrapeNamespaces={monitoring}"],
    &[
        "image.repository=lake/tidemark",
        "image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "image.pullSecrets={one,two}",
        "image.pullPolicy=Always",
    ],
    &[
        "serviceAccount.annotations.role=reader",
        "podLabels.team=lake",
        "podAnnotations.note=mine",
        "nodeSelector.disk=ssd",
        "tolerations[0].operator=Exists",
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1",
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key=disk",
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].operator=Exists",
        "priorityClassName=system-cluster-critical",
        "extraArgs={--max-changing=5%}",
        "log.level=debug",
        "log.format=text",
        "installation=eu",
        "resources.limits.memory=1Gi",
    ],
];

fn rendered(kube: &Kube, namespace: &str, values: &[&str]) -> Vec<Value> {
    let chart = chart("tidemark");
    let mut words = vec!["template", "tidemark", &chart, "--namespace", namespace];
    words.extend(values.iter().flat_map(|value| ["--set", value]));
    let text = kube.person().helm(&words, "").expect_success();
    let documents = serde_yaml::Deserializer::from_str(&text);
    let objects = documents.map(|document| Value::deserialize(document).unwrap());
    objects.filter(|object| !object.is_null()).collect()
}

/// Each set of values gives objects that the API server takes without a warning, in a namespace of the restricted kind.
#[test]
fn chart_of_the_operator_is_accepted_with_all_values() {
    let kube = Kube::shared();
    let person = kube.person();
    let namespace = kube.namespace("chart_of_the_operator");
    let restricted =
        ["enforce", "warn"].map(|mode| format!("pod-security.kubernetes.io/{mode}=restricted"));
    person
        .kubectl(
            &["label", "ns", &namespace, &restricted[0], &restricted[1]],
            "",
        )
        .expect_success();
    for name in ["shop", "billing"] {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        kube.apply(&object.to_string());
    }
    let chart = chart("tidemark");
    for values in VALUES {
        let mut words = vec!["lint", "--strict", &chart];
        words.extend(values.iter().flat_map(|value| ["--set", value]));
        let said = person.helm(&words, "").expect_success();
        assert!(said.contains("0 chart(s) failed"), "{said}");
        let objects = rendered(kube, &namespace, values);
        let list =
            serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        let words = [
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            "-",
        ];
        let said = person.kubectl(&words, &list);
        assert_eq!(said.err, "", "{values:?}");
        let applied = said.expect_success();
        assert_eq!(applied.lines().count(), objects.len(), "{applied}");
        let budgets = objects
            .iter()
            .filter(|object| object["kind"] == "PodDisruptionBudget")
            .count();
        assert_eq!(
            budgets,
            usize::from(!values.contains(&"replicas=1")),
            "{values:?}"
        );
    }
}

/// What the chart of the operator is made of.
const KINDS: &str = "deploy,pdb,sa,role,rolebinding,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding";

/// From an empty cluster to running pods and back, in a namespace that takes restricted pods only.
#[test]
fn operator_is_installed_upgraded_and_gone_without_a_trace() {
    let kube = Kube::start_own();
    kube.with_controllers();
    let person = kube.person();
    person
        .kubectl(&["create", "ns", "lake"], "")
        .expect_success();
    let restricted = "pod-security.kubernetes.io/enforce=restricted";
    person
        .kubectl(&["label", "ns", "lake", restricted], "")
        .expect_success();
    let helm = |words: &[&str]| {
        person
            .helm(&[words, &["-n", "lake"]].concat(), "")
            .expect_success()
    };
    let [definitions, operator] = ["tidemark-crds", "tidemark"].map(chart);
    helm(&["install", "definitions", &definitions]);
    let notes = helm(&["install", "tidemark", &operator]);
    assert!(
        notes.contains("kubectl -n lake rollout status deployment/tidemark"),
        "{notes}"
    );
    let get = |words: &[&str]| {
        person
            .kubectl(&[&["get"], words].concat(), "")
            .expect_success()
    };
    let await_pods = |count| {
        let what = format!("{count} pods of the operator");
        within(PATIENCE, &what, || {
            let pods = get(&[
                "pods",
                "-n",
                "lake",
                "-l",
                "app.kubernetes.io/component=operator",
                "-o",
                "name",
            ]);
            (pods.lines().count() == count).then_some(())
        });
    };
    await_pods(2);
    // The controller has held the expressions against the schemas of our kinds, and finds nothing that cannot be.
    let checked = within(PATIENCE, "admission policies that were checked", || {
        let said = get(&[
            "validatingadmissionpolicy",
            "-o",
            "jsonpath={range .items[*]}{.status.typeChecking}{'\\n'}{end}",
        ]);
        (said.matches('{').count() == 2).then_some(said)
    });
    assert_eq!(checked, "{}\n{}\n");
    helm(&["upgrade", "tidemark", &operator, "--set", "replicas=1"]);
    await_pods(1);
    helm(&["uninstall", "tidemark", "--wait"]);
    let left = get(&[KINDS, "-A", "-l", "helm.sh/chart", "-o", "name"]);
    assert_eq!(left, "");
    await_pods(0);
}

/// A value that is mistyped or makes no sense is refused by name.
#[test]
fn wrong_values_are_refused() {
    let kube = Kube::shared();
    let chart = chart("tidemark");
    for (value, told) in [
        ("replica=3", "replica"),
        ("replicas=0", "replicas"),
        ("image.digest=sha256:12", "digest"),
        ("namespaces={Shop}", "namespaces"),
        ("log.format=xml", "format"),
        ("extraArgs={max-changing}", "extraArgs"),
        ("admission.enabled=maybe", "enabled"),
    ] {
        let said = kube
            .person()
            .helm(&["template", "tidemark", &chart, "--set", value], "");
        let said = said.expect_failure();
        assert!(said.contains(told), "{value}: {said}");
    }
}

/// The rules of all roles that a set of values gives to the operator.
fn rules(objects: &[Value]) -> Vec<&Value> {
    let roles = objects.iter().filter(|object| {
        object["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("Role"))
    });
    roles
        .flat_map(|role| role["rules"].as_array().unwrap())
        .collect()
}

fn texts(value: &Value) -> BTreeSet<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// No rule says "all", none is about secrets or roles, and what people write is not written.
#[test]
fn operator_has_no_right_too_many() {
    let kube = Kube::shared();
    for values in VALUES {
        let objects = rendered(kube, "tidemark-system", values);
        for rule in rules(&objects) {
            let [groups, resources, verbs] =
                ["apiGroups", "resources", "verbs"].map(|part| texts(&rule[part]));
            for part in [&groups, &resources, &verbs] {
                assert!(!part.is_empty() && !part.contains("*"), "{rule}");
            }
            for never in [
                "secrets",
                "serviceaccounts",
                "roles",
                "clusterroles",
                "pods/exec",
                "serviceaccounts/token",
            ] {
                assert!(!resources.contains(never), "{rule}");
            }
            for written in [
                "ingestionpipelines",
                "ingestionpolicies",
                "namespaces",
                "pods",
            ] {
                let writing = ["create", "update", "patch", "delete", "deletecollection"];
                let writes = verbs.iter().any(|verb| writing.contains(verb));
                assert!(!(resources.contains(written) && writes), "{rule}");
            }
        }
        let of_cluster = |object: &Value| object["kind"] == "ClusterRole";
        let cluster: Vec<Value> = objects.into_iter().filter(of_cluster).collect();
        let confined = values.iter().any(|value| value.starts_with("namespaces="));
        let everywhere = rules(&cluster)
            .iter()
            .any(|rule| texts(&rule["resources"]).contains("configmaps"));
        assert_eq!(everywhere, !confined, "{values:?}");
    }
}

/// Whoever has the operator's account can do what it does, and nothing with secrets.
#[test]
fn account_of_the_operator_does_its_work() {
    let kube = Kube::shared();
    let namespace = kube.namespace("account_of_the_operator");
    let operator = kube.operator(&namespace, &[]);
    let elsewhere = "default";
    for (question, space, answer) in [
        (
            "patch ingestionpipelines.tidemark.dev --subresource=status",
            elsewhere,
            "yes",
        ),
        (
            "patch ingestionpolicies.tidemark.dev --subresource=status",
            elsewhere,
            "yes",
        ),
        ("delete finalizationgates.tidemark.dev", elsewhere, "yes"),
        ("create deployments.apps", elsewhere, "yes"),
        ("patch networkpolicies.networking.k8s.io", elsewhere, "yes"),
        ("create events.events.k8s.io", elsewhere, "yes"),
        (
            "update leases.coordination.k8s.io/tidemark",
            &namespace,
            "yes",
        ),
        ("update leases.coordination.k8s.io/other", &namespace, "no"),
        ("create leases.coordination.k8s.io", elsewhere, "no"),
        ("patch ingestionpipelines.tidemark.dev", elsewhere, "no"),
        ("get secrets", elsewhere, "no"),
        ("list secrets", &namespace, "no"),
        ("create pods", elsewhere, "no"),
    ] {
        let words = ["auth", "can-i", "-n", space].into_iter();
        let words: Vec<&str> = words.chain(question.split(' ')).collect();
        let said = operator.kubectl(&words, "");
        assert_eq!(
            said.out.trim(),
            answer,
            "{question} in {space}: {}",
            said.err
        );
    }
}

/// A person who sets a value finds it explained.
#[test]
fn every_value_is_documented() {
    let text = fs::read_to_string(chart("tidemark") + "/values.yaml").unwrap();
    let page = fs::read_to_string(chart("tidemark") + "/README.md").unwrap();
    let values: Value = serde_yaml::from_str(&text).unwrap();
    let mut names = Vec::new();
    for (name, value) in values.as_object().unwrap() {
        match value
            .as_object()
            .filter(|fields| !fields.is_empty() && name != "resources")
        {
            Some(fields) => names.extend(fields.keys().map(|field| format!("{name}.{field}"))),
            None => names.push(name.clone()),
        }
    }
    for name in names {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}
