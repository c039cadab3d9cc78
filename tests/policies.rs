//! Policies as a platform engineer meets them: `tidemark effective` and `tidemark policy diff`, on files and on a real API server.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use tidemark::{
    api::parse_objects,
    operator::{
        Key,
        counts::Counts,
        lease::{Leadership, LeaseName, lead},
        policy::{Policies, decide},
        policy_report::{PolicyReportContext, PolicyReports},
        writer::{Writer, WriterContext},
    },
    process::clock::Clock,
};
use tokio_util::sync::CancellationToken;

use crate::support::{
    kube::{Kube, User},
    wait::within,
};

/// Exit code, standard output and standard error.
fn ran(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark"));
    command
        .env("KUBECONFIG", "/nowhere/kubeconfig")
        .env_remove("KUBERNETES_SERVICE_HOST");
    let output = command.args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/policies")
}

/// A folder with files of these names and texts.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// A pipeline with this worker.
fn pipeline(namespace: &str, name: &str, worker: &str) -> String {
    format!(
        "---
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: {name}, namespace: {namespace}, labels: {{size: small}}}}
spec:
  source: {{format: DebeziumJson, kafka: {{bootstrapServers: 'k:1', topics: [a]}}}}
  sink: {{table: {namespace}.{name}, catalog: {{type: Rest, uri: 'http://c'}}}}
  worker: {{{worker}}}
"
    )
}

/// A policy for the pipelines of one namespace.
fn policy(name: &str, namespace: &str, spec: &str) -> String {
    format!(
        "---
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPolicy
metadata: {{name: {name}}}
spec: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}, {spec}}}
"
    )
}

#[test]
fn examples_of_policies_count() {
    for entry in fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        let objects = parse_objects(&fs::read_to_string(&path).unwrap());
        let objects = objects.unwrap_or_else(|faults| panic!("{}: {faults:?}", path.display()));
        let policies = Policies::new(&objects.policies);
        assert!(policies.refused().is_empty(), "{:?}", policies.refused());
        assert!(!policies.sorted().is_empty(), "{}", path.display());
    }
}

#[test]
fn effective_shows_files_with_the_source_of_each_value() {
    let files = folder(&[
        (
            "pipelines.yaml",
            &(pipeline("shop", "orders", "replicas: 2") + &pipeline("hr", "pay", "")),
        ),
        (
            "policy.yaml",
            &policy("gold", "shop", "overrides: {worker: {memoryBudget: 512Mi}}"),
        ),
    ]);
    let at = |name: &str| files.path().join(name).display().to_string();
    let (pipelines, gold) = (at("pipelines.yaml"), at("policy.yaml"));
    let (code, out, told) = ran(&["effective", "orders", "-f", &pipelines, "--policy", &gold]);
    assert_eq!((code, told.as_str()), (0, ""));
    let lines = [
        "# Policy gold selects it.",
        "    memoryBudget: 512Mi        # override of policy \"gold\"",
        "    replicas: 2                # pipeline",
    ];
    for line in lines {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            out.lines().any(|found| squeezed(found) == squeezed(line)),
            "{line}\n{out}"
        );
    }
    let (code, out, _) = ran(&[
        "effective",
        "-f",
        &pipelines,
        "--policy",
        &gold,
        "-o",
        "json",
    ]);
    let reports: Value = serde_json::from_str(&out).unwrap();
    let budgets: Vec<&Value> = reports
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["spec"]["worker"]["memoryBudget"])
        .collect();
    assert_eq!(
        (code, budgets),
        (0, vec![&Value::from("512Mi"), &Value::from("256Mi")])
    );
}

/// Scripts and CI jobs look at the codes alone.
#[test]
fn exit_codes_are_those_of_the_table() {
    let files = folder(&[
        ("pipeline.yaml", &pipeline("shop", "orders", "replicas: 2")),
        (
            "same.yaml",
            &policy("same", "shop", "defaults: {worker: {replicas: 5}}"),
        ),
        (
            "other.yaml",
            &policy("other", "shop", "overrides: {worker: {replicas: 5}}"),
        ),
        (
            "strict.yaml",
            &policy(
                "strict",
                "shop",
                "mode: Enforce, limits: {replicas: {max: 1}}",
            ),
        ),
        (
            "wrong.yaml",
            &policy("wrong", "shop", "limits: {replicas: {min: 3, max: 1}}"),
        ),
        ("typo.yaml", &policy("typo", "shop", "limit: {}")),
    ]);
    let at = |name: &str| files.path().join(name).display().to_string();
    let file = at("pipeline.yaml");
    let diff = |policy: &str| ran(&["policy", "diff", &at(policy), "-f", &file]);
    let effective = |policy: &str| ran(&["effective", "-f", &file, "--policy", &at(policy)]);
    assert_eq!(diff("same.yaml").0, 0);
    assert_eq!(diff("other.yaml").0, 1);
    assert_eq!(diff("strict.yaml").0, 1);
    let (code, _, told) = diff("wrong.yaml");
    assert!(
        code == 2 && told.contains("policy wrong: spec.limits.replicas.min: 3"),
        "{code} {told}"
    );
    let (code, _, told) = diff("typo.yaml");
    assert!(
        code == 2 && told.contains("did you mean limits?"),
        "{code} {told}"
    );
    assert_eq!(effective("other.yaml").0, 0);
    assert_eq!(effective("strict.yaml").0, 1);
    // One that counts for nothing is said beside the answer.
    let (code, _, told) = effective("wrong.yaml");
    assert!(
        code == 0 && told.contains("policy wrong is wrong and counts for nothing"),
        "{code} {told}"
    );
    assert_eq!(ran(&["effective", "returns", "-f", &file]).0, 3);
    assert_eq!(
        ran(&["policy", "diff", "--delete", "gone", "-f", &file]).0,
        3
    );
    assert_eq!(ran(&["policy", "diff", &file, "-f", &file]).0, 2);
    let (code, _, told) = ran(&["effective", "orders", "-n", "shop"]);
    assert!(code == 7 && told.contains("--kubeconfig"), "{code} {told}");
}

#[test]
fn diff_says_what_would_change_and_how() {
    let files = folder(&[
        (
            "before.yaml",
            &(pipeline("shop", "orders", "replicas: 2")
                + &pipeline("shop", "returns", "")
                + &pipeline("hr", "pay", "")
                + &policy("gold", "shop", "defaults: {worker: {replicas: 3}}")),
        ),
        (
            "gold.yaml",
            &policy(
                "gold",
                "shop",
                "mode: Enforce, defaults: {worker: {replicas: 4, podLabels: {tier: gold}}}, limits: {memoryBudget: 300Mi, replicas: {min: 3}}",
            ),
        ),
    ]);
    let at = |name: &str| files.path().join(name).display().to_string();
    let (code, out, told) = ran(&["policy", "diff", &at("gold.yaml"), "-f", &at("before.yaml")]);
    let expected = r#"policy gold (changed): selects 2 of 3 pipelines

shop/orders is refused, and goes on with what was last accepted
  spec.worker.podLabels[tier]: nothing → gold (default of policy "gold")
  refused: spec.worker.replicas is 2; the policy "gold" allows at least 3

shop/returns changes, and its pods restart
  spec.worker.podLabels[tier]: nothing → gold (default of policy "gold")
  spec.worker.replicas: 3 (default of policy "gold") → 4 (default of policy "gold")

Of 3 pipelines: 1 would change (1 with new pods), 1 would be refused, 1 would go on unchanged.
"#;
    assert_eq!((code, out.as_str(), told.as_str()), (1, expected, ""));
    let (code, out, _) = ran(&[
        "policy",
        "diff",
        "--delete",
        "gold",
        "-f",
        &at("before.yaml"),
        "-o",
        "json",
    ]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 1);
    let policies = json!([{"name": "gold", "change": "deleted", "selects": 2, "notes": []}]);
    assert_eq!(report["policies"], policies);
    assert_eq!(report["pipelines"][0]["pipeline"], "shop/returns");
    assert_eq!(report["pipelines"][0]["values"][0]["new"]["value"], 1);
}

/// The program as this user runs it.
fn as_user(user: &User, arguments: &[&str]) -> (i32, String, String) {
    let kubeconfig = user.kubeconfig().display().to_string();
    let flag = ["--kubeconfig", kubeconfig.as_str()];
    ran(&[arguments, &flag].concat())
}

/// What is told of the pipelines of one namespace: the server is shared, and others have theirs on it.
fn of_namespace(report: &str, namespace: &str) -> Vec<Value> {
    let report: Value = serde_json::from_str(report).unwrap();
    let pipelines = report["pipelines"].as_array().unwrap().iter();
    let own = |one: &&Value| {
        one["pipeline"]
            .as_str()
            .unwrap()
            .starts_with(&format!("{namespace}/"))
    };
    pipelines.filter(own).cloned().collect()
}

/// A platform engineer looks before applying; what was told is what then holds, by the same function.
#[test]
fn diff_tells_of_live_pipelines_what_then_holds() {
    let kube = Kube::shared();
    let namespace = kube.namespace("diff_tells");
    let name = format!("{namespace}-gold");
    kube.apply(
        &(pipeline(&namespace, "orders", "replicas: 2") + &pipeline(&namespace, "returns", "")),
    );
    let spec = "priority: 7, overrides: {worker: {memoryBudget: 512Mi}}, defaults: {worker: {replicas: 3}}";
    let gold = policy(&name, &namespace, spec);
    let files = folder(&[("gold.yaml", &gold)]);
    let file = files.path().join("gold.yaml").display().to_string();
    let admin = kube.admin();
    let (code, out, told) = as_user(&admin, &["policy", "diff", &file, "-o", "json"]);
    assert_eq!(code, 1, "{told}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        report["policies"],
        json!([{"name": name, "change": "new", "selects": 2, "notes": []}])
    );
    let told = of_namespace(&out, &namespace);
    let effects: Vec<&Value> = told.iter().map(|one| &one["effect"]).collect();
    assert_eq!(effects, ["Restarts", "Restarts"], "{out}");
    let foretold = &told[1]["values"];
    kube.apply(&gold);
    let (code, out, told) = as_user(&admin, &["policy", "diff", &file, "-o", "json"]);
    assert_eq!(
        (code, of_namespace(&out, &namespace)),
        (0, Vec::new()),
        "{told}"
    );
    let (code, out, told) = as_user(
        &admin,
        &["effective", "returns", "-n", &namespace, "-o", "json"],
    );
    assert_eq!(code, 0, "{told}");
    let effective: Value = serde_json::from_str(&out).unwrap();
    for value in foretold.as_array().unwrap() {
        let path = value["path"].as_str().unwrap();
        let pointer = path.replacen("spec", "", 1).replace('.', "/");
        assert_eq!(
            effective["spec"].pointer(&pointer),
            Some(&value["new"]["value"]),
            "{path}"
        );
        assert_eq!(effective["sources"][path], value["new"]["source"], "{path}");
    }
    let (code, out, told) = as_user(&admin, &["policy", "diff", "--delete", &name, "-o", "json"]);
    assert_eq!(
        (code, of_namespace(&out, &namespace).len()),
        (1, 2),
        "{told}"
    );
}

/// Whoever may read pipelines, namespaces and policies may ask; whoever may not is told what is missing.
#[test]
fn asking_needs_no_more_than_reading() {
    let kube = Kube::shared();
    let namespace = kube.namespace("asking_needs");
    kube.apply(&pipeline(&namespace, "orders", ""));
    let group = "tidemark.dev";
    let read = json!([
        {"apiGroups": [group], "resources": ["ingestionpipelines", "ingestionpolicies"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"]},
    ]);
    let reader = kube.account(&namespace, "reader", &read);
    let (code, _, told) = as_user(&reader, &["effective", "orders", "-n", &namespace]);
    assert_eq!(code, 0, "{told}");
    let files = folder(&[("idle.yaml", &policy("idle", &namespace, "priority: 1"))]);
    let file = files.path().join("idle.yaml").display().to_string();
    let (code, out, told) = as_user(&reader, &["policy", "diff", &file]);
    assert!(
        code == 0 && out.contains("policy idle (new): selects 1 of"),
        "{code} {out} {told}"
    );
    let (code, _, told) = as_user(&reader, &["effective", "none", "-n", &namespace]);
    assert!(
        code == 3 && told.contains(&format!("{namespace}/none")),
        "{code} {told}"
    );
    let part =
        json!([{"apiGroups": [group], "resources": ["ingestionpipelines"], "verbs": ["get"]}]);
    let half = kube.account(&namespace, "half", &part);
    let (code, _, told) = as_user(&half, &["effective", "orders", "-n", &namespace]);
    assert!(
        code == 7 && told.contains("namespace") && told.contains("orbidden"),
        "{code} {told}"
    );
}

/// What the program accepts and refuses in a file, the API server accepts and refuses as well.
#[test]
fn examples_are_taken_by_the_api_server() {
    let kube = Kube::shared();
    for entry in fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let said = kube
            .person()
            .kubectl(&["apply", "--dry-run=server", "-f", "-"], &text);
        let said = said.expect_success();
        assert!(said.contains("ingestionpolicy.tidemark.dev"), "{said}");
    }
}

/// The parts of the operator that say how policies are, with the rights that the chart gives them.
async fn reporting(operator: &User, namespace: &str, stop: &CancellationToken) -> PolicyReports {
    let (client, clock) = (operator.client().await, Clock::system());
    let leadership = Leadership::none(clock.clone());
    let writer = Writer::new(Counts::default());
    let reports = PolicyReports::new(PolicyReportContext {
        writer: writer.clone(),
        leadership: leadership.clone(),
        clock: clock.clone(),
    });
    let name = LeaseName::new(namespace, "tidemark", "test");
    tokio::spawn(lead(client.clone(), name, leadership.clone(), stop.clone()));
    let context = WriterContext {
        client: client.clone(),
        leadership,
        clock,
    };
    let told = reports.clone();
    let tell = Arc::new(move |written| told.written(&written));
    tokio::spawn(writer.run(context, tell, stop.clone()));
    tokio::spawn(reports.clone().run(client, stop.clone()));
    reports
}

/// An object of this kind and name as it is on the server.
fn get(kube: &Kube, kind: &str, name: &str) -> Value {
    let said = kube.admin().kubectl(&["get", kind, name, "-o", "json"], "");
    serde_json::from_str(&said.expect_success()).unwrap()
}

/// Waits until the status of a policy is as it should be.
fn status_when(kube: &Kube, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let look = || Some(get(kube, "ipol", name)["status"].clone()).filter(&fits);
    tokio::task::block_in_place(|| within(Duration::from_mins(1), "a status of a policy", look))
}

/// What `kubectl get ipol` shows, and that nothing is said before all of the fleet was looked at.
#[tokio::test(flavor = "multi_thread")]
async fn status_of_a_policy_counts_who_breaks_its_limits() {
    let kube = Kube::shared();
    let namespace = kube.namespace("status_of_a_policy");
    let name = format!("{namespace}-small");
    let small = policy(&name, &namespace, "limits: {replicas: {max: 2}}");
    kube.apply(&small);
    let texts = (0..4).map(|number| {
        pipeline(
            &namespace,
            &format!("p{number}"),
            &format!("replicas: {}", number + 1),
        )
    });
    let objects = parse_objects(&(texts.collect::<String>() + &small)).unwrap();
    let policies = Policies::new(&objects.policies);
    let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), namespace.clone())]);
    let (operator, stop) = (kube.operator(&namespace, &[]), CancellationToken::new());
    let reports = reporting(&operator, &namespace, &stop).await;
    for pipeline in &objects.pipelines {
        let key = Key::new(&namespace, pipeline.metadata.name.as_deref().unwrap());
        reports.decided(&key, &decide(pipeline, &labels, &policies));
    }
    assert_eq!(get(kube, "ipol", &name)["status"], Value::Null);
    reports.complete();
    let status = status_when(kube, &name, |status| !status.is_null());
    let counts = [&status["matched"], &status["violating"], &status["pending"]];
    assert_eq!(counts, [4, 2, 0]);
    let violator = |pipeline: &str, replicas: u32| {
        let message =
            format!("spec.worker.replicas is {replicas}; the policy \"{name}\" allows at most 2");
        json!({"namespace": namespace, "name": pipeline, "message": message})
    };
    assert_eq!(
        status["violators"],
        json!([violator("p2", 3), violator("p3", 4)])
    );
    for gone in ["p2", "p3"] {
        reports.gone(&Key::new(&namespace, gone));
    }
    status_when(kube, &name, |status| {
        status["violating"] == 0 && status["matched"] == 2
    });
    stop.cancel();
}

/// A wrong policy says so where its author looks, and is not written again and again.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_policy_is_told_once_in_its_status() {
    let kube = Kube::shared();
    let namespace = kube.namespace("wrong_policy");
    let [wrong, good] = ["wrong", "good"].map(|name| format!("{namespace}-{name}"));
    let zone = "defaults: {finalization: {cell: 1d, zone: Nowhere/Land}}";
    kube.apply(&(policy(&wrong, &namespace, zone) + &policy(&good, &namespace, "priority: 1")));
    let (operator, stop) = (kube.operator(&namespace, &[]), CancellationToken::new());
    let reports = reporting(&operator, &namespace, &stop).await;
    reports.complete();
    status_when(kube, &good, |status| !status.is_null());
    for (name, condition) in [(&good, "Accepted"), (&wrong, "Accepted=false")] {
        let (condition, policy) = (
            format!("--for=condition={condition}"),
            format!("ipol/{name}"),
        );
        let words = ["wait", &condition, &policy, "--timeout=60s"];
        kube.admin().kubectl(&words, "").expect_success();
    }
    let told = get(kube, "ipol", &wrong);
    let message = told["status"]["conditions"][0]["message"].as_str().unwrap();
    let expected =
        "spec.defaults.finalization.zone: \"Nowhere/Land\": is no zone of the tz database";
    assert!(message.contains(expected), "{message}");
    // Whatever changes elsewhere: an equal status is not written again.
    kube.apply(&policy(
        &good,
        &namespace,
        "limits: {replicas: {max: 4}, commitInterval: {min: 2m}}",
    ));
    status_when(kube, &good, |status| {
        status["conditions"][0]["message"] != ""
    });
    assert_eq!(
        get(kube, "ipol", &wrong)["metadata"]["resourceVersion"],
        told["metadata"]["resourceVersion"]
    );
    stop.cancel();
}
