//! The charts, with a real Helm on a real API server.

use std::{collections::BTreeSet, fs, process::Command, time::Duration};

use regex::Regex;
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
const VALUES: [&[&str]; 8] = [
    &[],
    &[
        "scrapeNamespaces={monitoring}",
        "monitoring.scrape.enabled=true",
        "monitoring.rules.enabled=true",
        "monitoring.dashboard.enabled=true",
        "monitoring.labels.release=prometheus",
        "monitoring.rules.runbook=https://runbooks.example/tidemark",
        "monitoring.rules.claimAgeSeconds=7200",
    ],
    &[
        "namespaces={shop}",
        "monitoring.scrape.enabled=true",
        "networkPolicy.readerNamespaces={jobs,airflow}",
        "networkPolicy.egress.enabled=true",
        "networkPolicy.egress.apiServerPorts={8443}",
    ],
    &["networkPolicy.enabled=false"],
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

/// The definitions of what a Prometheus Operator brings.
fn with_prometheus_operator(kube: &Kube) {
    for kind in ["servicemonitors", "podmonitors", "prometheusrules"] {
        kube.apply(&data(&format!("monitoring/{kind}.yaml")));
        let definition = format!("crd/{kind}.monitoring.coreos.com");
        let words = [
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            &definition,
        ];
        kube.admin().kubectl(&words, "").expect_success();
    }
}

fn data(path: &str) -> String {
    fs::read_to_string(format!("{}/tests/data/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
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
    // What a pod needs beside its namespace; no controller makes it here.
    let account = serde_json::json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace},
    });
    kube.apply(&account.to_string());
    with_prometheus_operator(kube);
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
        ("monitoring.scrape.interval=often", "interval"),
        ("monitoring.rules.claimAgeSeconds=3h", "claimAgeSeconds"),
        (
            "networkPolicy.egress.apiServerPorts={70000}",
            "apiServerPorts",
        ),
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

/// The program takes what the chart gives it, in the operator's pods and in the test's.
#[test]
fn arguments_of_all_pods_are_understood() {
    let kube = Kube::shared();
    for values in VALUES {
        let objects = rendered(kube, "tidemark-system", values);
        let pods = objects
            .iter()
            .filter_map(|object| match object["kind"].as_str() {
                Some("Deployment") => Some(&object["spec"]["template"]["spec"]),
                Some("Pod") => Some(&object["spec"]),
                _ => None,
            });
        let containers: Vec<&Value> = pods.map(|pod| &pod["containers"][0]).collect();
        assert_eq!(containers.len(), 2, "the operator and the test");
        for container in containers {
            let arguments = container["args"].as_array().unwrap().iter();
            let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark"));
            for argument in arguments {
                command.arg(argument.as_str().unwrap());
            }
            for variable in container["env"].as_array().into_iter().flatten() {
                if let Some(value) = variable["value"].as_str() {
                    command.env(variable["name"].as_str().unwrap(), value);
                }
            }
            // Help is given once everything before it has been understood.
            let said = command.arg("--help").output().unwrap();
            let complaint = String::from_utf8_lossy(&said.stderr);
            assert!(said.status.success(), "{values:?}: {complaint}");
        }
    }
}

fn chart_file(path: &str) -> String {
    fs::read_to_string(format!("{}/{path}", chart("tidemark"))).unwrap()
}

/// An alert or a panel about a metric that nobody counts would stay silent for ever.
#[test]
fn alerts_and_dashboard_name_metrics_that_there_are() {
    let known: BTreeSet<String> = crate::house::metrics()
        .into_iter()
        .flat_map(|(name, _)| {
            ["", "_total", "_bucket", "_count"].map(|ending| format!("{name}{ending}"))
        })
        .collect();
    let name = Regex::new(r"\btidemark_[a-z_]+").unwrap();
    for path in ["monitoring/rules.yaml", "monitoring/dashboard.json"] {
        let text = chart_file(path);
        let named: BTreeSet<&str> = name.find_iter(&text).map(|found| found.as_str()).collect();
        assert!(named.len() > 10, "{path}");
        for name in named {
            assert!(known.contains(name), "{path}: {name}");
        }
    }
    let dashboard: Value = serde_json::from_str(&chart_file("monitoring/dashboard.json")).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
}

/// Whoever is woken by an alert finds out what to do.
#[test]
fn every_alert_has_its_section() {
    let rules: Value = serde_yaml::from_str(&chart_file("monitoring/rules.yaml")).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operating.md");
    let page = fs::read_to_string(path).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let alerts: Vec<&Value> = groups
        .flat_map(|group| group["rules"].as_array().unwrap())
        .collect();
    assert!(alerts.len() > 10);
    for alert in &alerts {
        let name = alert["alert"].as_str().unwrap();
        assert!(page.contains(&format!("\n### {name}\n")), "{name}");
        let link = alert["annotations"]["runbook_url"].as_str().unwrap();
        assert_eq!(link, format!("RUNBOOK#{}", name.to_lowercase()));
    }
    let sections = page.matches("\n### Tidemark").count();
    assert_eq!(sections, alerts.len(), "a section without its alert");
}

/// The leaves of the values, as `monitoring.rules.enabled`; a map that is empty or free is one of them.
fn leaves(name: &str, value: &Value, free: &[&str]) -> Vec<String> {
    match value
        .as_object()
        .filter(|fields| !fields.is_empty() && !free.contains(&name))
    {
        Some(fields) => {
            let of = |(field, value): (&String, &Value)| {
                let name = format!("{name}.{field}");
                leaves(name.trim_start_matches('.'), value, free)
            };
            fields.iter().flat_map(of).collect()
        }
        None => vec![name.to_owned()],
    }
}

/// A person who sets a value finds it explained.
#[test]
fn every_value_is_documented() {
    let values: Value = serde_yaml::from_str(&chart_file("values.yaml")).unwrap();
    let page = chart_file("README.md");
    let names = leaves("", &values, &["resources", "monitoring.dashboard.labels"]);
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}
