//! The whole operator against a real API server and controller manager, with exactly the rights that the chart gives it.
//!
//! Pods are run by a node of the tests' own; what a person does is done by `kubectl`.

use std::{collections::BTreeSet, time::Duration};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tidemark::{
    api::{EffectiveSpec, quantity::parse_instant_us},
    process::clock::Clock,
};

use crate::{
    resources::definitions,
    support::{
        kube::Kube,
        kubelet::Runs,
        operator::{Operator, Stage, condition_of},
        wait::pause,
    },
};

const MINUTE_US: i64 = 60_000_000;

/// Another leader has to be there within this time.
const TAKEOVER: Duration = Duration::from_secs(30);

/// What pods of a pipeline are given, read.
fn given(stage: &Stage<'_>, name: &str) -> Option<EffectiveSpec> {
    Some(EffectiveSpec::from_yaml(&stage.given(name)?).unwrap())
}

/// The greatest delay that the pods of a pipeline are given, in minutes.
fn delay_min(stage: &Stage<'_>, name: &str) -> Option<i64> {
    Some(given(stage, name)?.finalization.max_delay_us / MINUTE_US)
}

fn await_delay(stage: &Stage<'_>, name: &str, minutes: i64) {
    let what = format!("{name}: a greatest delay of {minutes} minutes");
    stage.await_some(&what, |stage| {
        (delay_min(stage, name)? == minutes).then_some(())
    });
}

fn delay(minutes: i64) -> Value {
    json!({"finalization": {"maxDelay": format!("{minutes}m")}})
}

/// How many children there are of each kind.
fn children(stage: &Stage<'_>) -> [usize; 4] {
    [
        "ConfigMap",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "Deployment",
    ]
    .map(|kind| stage.list(kind, true).len())
}

fn await_children(stage: &Stage<'_>, count: [usize; 4]) {
    let what = format!("{count:?} children");
    stage.await_some(&what, |stage| (children(stage) == count).then_some(()));
}

fn await_pods(stage: &Stage<'_>, count: usize) {
    let what = format!("{count} pods");
    stage.await_some(&what, |stage| {
        (stage.kubelet.pods().len() == count).then_some(())
    });
}

/// From the first `kubectl apply` to the last `kubectl delete`.
#[test]
fn pipeline_lives_as_its_specification_says() {
    let stage = Stage::new("pipeline_lives", Runs::Answers);
    stage.apply(&stage.pipeline("orders", &json!({})));
    stage.await_ready("orders");
    assert_eq!(children(&stage), [1, 0, 1, 1]);
    stage.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "ipl/orders",
        "--timeout=5s",
    ]);
    let row = stage.kubectl(&["get", "ipl", "orders", "--no-headers"]);
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..2], ["orders", "True"], "{row}");

    let before = stage.kubelet.pods();
    stage.edit("orders", &delay(20));
    await_delay(&stage, "orders", 20);
    stage.await_ready("orders");
    assert_eq!(stage.kubelet.pods(), before, "an edit restarts no pod");

    stage.edit("orders", &json!({"suspend": true}));
    stage.await_condition("orders", "Suspended", ("True", "Suspended"));
    stage.await_condition("orders", "Ready", ("False", "Suspended"));
    await_pods(&stage, 0);
    stage.edit("orders", &json!({"suspend": false}));
    stage.await_ready("orders");
    stage.await_condition("orders", "Suspended", ("False", "AsExpected"));

    let before = stage.kubelet.pods();
    stage.kubectl(&["scale", "ipl/orders", "--replicas=2"]);
    let selector = stage.await_some("two ready workers", |stage| {
        let status = stage.get("IngestionPipeline", "orders")?["status"].clone();
        (status["readyReplicas"] == 2).then(|| status["selector"].as_str().unwrap().to_owned())
    });
    let pods = stage.kubectl(&["get", "pods", "-l", &selector, "-o", "name"]);
    assert!(
        stage.kubelet.pods().is_superset(&before),
        "the first goes on"
    );
    assert_eq!(pods.lines().count(), 2, "{pods}");
    await_children(&stage, [1, 1, 1, 1]);
    stage.kubectl(&["scale", "ipl/orders", "--replicas=1"]);
    await_children(&stage, [1, 0, 1, 1]);
    stage.await_ready("orders");

    stage.kubectl(&["delete", "ipl", "orders"]);
    await_children(&stage, [0; 4]);
    await_pods(&stage, 0);
}

/// Somebody scales a Deployment of the operator by hand: it is told whose the field is, and the way back is open.
#[test]
fn what_somebody_else_holds_is_left_to_him_and_named() {
    let stage = Stage::new("what_somebody_else", Runs::Answers);
    stage.apply(&stage.pipeline("orders", &json!({})));
    stage.await_ready("orders");
    stage.kubectl(&["scale", "deployment/orders-tidemark", "--replicas=3"]);
    let told = stage.await_condition("orders", "Accepted", ("False", "FieldConflict"));
    assert!(
        told.contains("\"kubectl\"") && told.contains(".spec.replicas"),
        "{told}"
    );
    let replicas = &stage.get("Deployment", "orders-tidemark").unwrap()["spec"]["replicas"];
    assert_eq!(*replicas, 3, "nothing is taken by force");
    stage.kubectl(&["delete", "deployment/orders-tidemark"]);
    stage.await_condition("orders", "Accepted", ("True", "AsExpected"));
    let replicas = stage.get("Deployment", "orders-tidemark").unwrap()["spec"]["replicas"].clone();
    assert_eq!(replicas, 1);
    stage.await_ready("orders");
}

/// Waits until a second has begun in which an object was not made: the age of objects is told in seconds.
fn let_age(stage: &Stage<'_>, name: &str) {
    let made =
        stage.get("IngestionPipeline", name).unwrap()["metadata"]["creationTimestamp"].clone();
    let made: jiff::Timestamp = made.as_str().unwrap().parse().unwrap();
    let clock = Clock::system();
    stage.await_some("the next second", |_| {
        (clock.now_us() / 1_000_000 > made.as_second() + 1).then_some(())
    });
}

#[test]
fn younger_of_two_pipelines_with_one_table_waits_for_it() {
    let stage = Stage::new("younger_of_two", Runs::Answers);
    stage.apply(&stage.pipeline("elder", &json!({})));
    stage.await_ready("elder");
    let_age(&stage, "elder");
    let table = format!("{}.elder", stage.namespace);
    stage.apply(&stage.pipeline("younger", &json!({"sink": {"table": table}})));
    let told = stage.await_condition("younger", "Accepted", ("False", "TableTaken"));
    assert!(
        told.contains(&format!("\"{}/elder\"", stage.namespace)),
        "{told}"
    );
    assert_eq!(stage.list("Deployment", true).len(), 1);
    stage.await_condition("elder", "Accepted", ("True", "AsExpected"));
    stage.kubectl(&["delete", "ipl", "elder"]);
    stage.await_condition("younger", "Accepted", ("True", "AsExpected"));
    stage.await_ready("younger");
    assert_eq!(stage.list("Deployment", true).len(), 1);
}

/// A policy that comes later stops nothing that runs, and whoever is beyond it can still be suspended.
#[test]
fn policy_fills_and_wins_and_limits_after_the_fact() {
    let stage = Stage::new("policy_fills", Runs::Answers);
    let values = json!({"defaults": {"worker": {"replicas": 2}}, "overrides": {"finalization": {"maxDelay": "12m"}}});
    stage.apply(&stage.policy("gold", &values).1);
    stage.apply(&stage.pipeline("orders", &delay(20)));
    stage.apply(&stage.pipeline("small", &json!({"worker": {"replicas": 1}})));
    for (name, replicas) in [("orders", 2), ("small", 1)] {
        stage.await_some(&format!("the values of the policy in {name}"), |stage| {
            let spec = given(stage, name)?;
            ((spec.worker.replicas, spec.finalization.max_delay_us) == (replicas, 12 * MINUTE_US))
                .then_some(())
        });
        stage.await_ready(name);
    }

    let (strict, limit) = stage.policy(
        "strict",
        &json!({"mode": "Enforce", "limits": {"replicas": {"max": 1}}}),
    );
    let before = stage.given("orders");
    stage.apply(&limit);
    let told = stage.await_condition("orders", "Accepted", ("False", "PolicyViolated"));
    assert!(
        told.contains(&strict) && told.contains("spec.worker.replicas"),
        "{told}"
    );
    stage.await_condition("orders", "Ready", ("True", "AsExpected"));
    stage.await_condition("small", "Accepted", ("True", "AsExpected"));
    assert_eq!(stage.given("orders"), before);
    let violators = |matched: u64, violating: u64| {
        stage.await_some("the status of the policy", |stage| {
            let status = stage.get("IngestionPolicy", &strict)?["status"].clone();
            (status["matched"] == matched && status["violating"] == violating).then_some(status)
        })
    };
    let status = violators(2, 1);
    assert_eq!(status["violators"][0]["name"], "orders");
    // An edit of a violator changes nothing, but for standing still.
    stage.edit(
        "orders",
        &json!({"finalization": {"allowedLateness": "6m"}, "suspend": true}),
    );
    stage.await_condition("orders", "Suspended", ("True", "Suspended"));
    stage.edit("orders", &json!({"suspend": false}));
    stage.await_condition("orders", "Ready", ("True", "AsExpected"));
    let spec = given(&stage, "orders").unwrap();
    assert_eq!(spec.finalization.allowed_lateness_us, 5 * MINUTE_US);

    stage.kubectl(&[
        "patch",
        "ipol",
        &strict,
        "--type=merge",
        "-p",
        r#"{"spec": {"mode": "Audit"}}"#,
    ]);
    stage.await_condition("orders", "Accepted", ("True", "AsExpected"));
    violators(2, 1);
    stage.await_some("the edit", |stage| {
        let spec = given(stage, "orders")?;
        (spec.finalization.allowed_lateness_us == 6 * MINUTE_US).then_some(())
    });
}

/// How many of these pipelines are given this greatest delay.
fn changed(stage: &Stage<'_>, names: &[&str], minutes: i64) -> usize {
    let is_so = |name: &&&str| delay_min(stage, name) == Some(minutes);
    names.iter().filter(is_so).count()
}

/// A policy changes five pipelines, two at a time; a later change breaks the first two, and stops there until they are mended.
#[test]
fn change_goes_in_waves_and_no_further_than_one_that_stops() {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    let stage = Stage::new("change_goes", Runs::Answers);
    let policy = |minutes: i64, deadline: &str| {
        let rollout = json!({"maxChanging": "2", "deadline": deadline, "maxFailed": 0});
        stage.policy("slow", &json!({"rollout": rollout, "defaults": {"finalization": {"maxDelay": format!("{minutes}m")}}}))
    };
    let (slow, first) = policy(11, "10m");
    stage.apply(&first);
    for name in NAMES {
        stage.apply(&stage.pipeline(name, &json!({})));
    }
    for name in NAMES {
        stage.await_ready(name);
    }
    let wave = |changing: &str, pending: u64| {
        stage.await_some(&format!("{changing} and {pending} that wait"), |stage| {
            let object = stage.get("IngestionPolicy", &slow)?;
            let [_, reason, message] = condition_of(&object, "Progressing")?;
            (reason == changing && object["status"]["pending"] == pending).then_some(message)
        })
    };

    stage.kubelet.hold_mounts();
    stage.apply(&policy(12, "10m").1);
    wave("RolloutPending", 3);
    assert_eq!(changed(&stage, &NAMES, 12), 2);
    assert_eq!(changed(&stage, &NAMES, 11), 3);
    stage.kubelet.release_mounts();
    wave("AsExpected", 0);
    assert_eq!(changed(&stage, &NAMES, 12), 5);

    stage
        .kubelet
        .break_those(|spec| spec.finalization.max_delay_us == 13 * MINUTE_US);
    stage.apply(&policy(13, "10s").1);
    let told = wave("RolloutHalted", 3);
    assert!(
        told.contains("of 5 pipelines did not get ready again"),
        "{told}"
    );
    assert_eq!(changed(&stage, &NAMES, 13), 2);
    // Whoever waits says for what: not for a place any more.
    for name in NAMES
        .into_iter()
        .filter(|name| delay_min(&stage, name) == Some(12))
    {
        stage.await_some(&format!("{name}: why it waits"), |stage| {
            let [status, reason, message] = stage.condition(name, "Accepted")?;
            let waits = status == "True" && reason == "RolloutPending";
            (waits && message.contains("not ready again after their change")).then_some(())
        });
    }
    stage.kubelet.mend();
    wave("AsExpected", 0);
    assert_eq!(changed(&stage, &NAMES, 13), 5);
}

/// Three pipelines in one pod: it is never restarted for one of them.
#[test]
fn pipelines_of_a_pool_share_their_pods() {
    let stage = Stage::new("pipelines_of_a_pool", Runs::Answers);
    let shared = json!({"worker": {"placement": "Shared", "pool": "small"}});
    for name in ["a", "b", "c"] {
        stage.apply(&stage.pipeline(name, &shared));
    }
    for name in ["a", "b", "c"] {
        stage.await_ready(name);
    }
    assert_eq!(children(&stage), [1, 0, 1, 1]);
    let pods = stage.kubelet.pods();
    assert_eq!(pods.len(), 1);
    stage.edit("a", &delay(20));
    await_delay(&stage, "a", 20);
    stage.await_ready("a");
    stage.edit(
        "b",
        &json!({"worker": {"placement": "Dedicated", "pool": null}}),
    );
    await_children(&stage, [2, 0, 1, 2]);
    stage.await_ready("b");
    let uid = stage.get("IngestionPipeline", "b").unwrap()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned();
    stage.await_some("b has left the pool", |stage| {
        let map = stage.get("ConfigMap", "small-tidemark-0")?;
        map["data"]
            .get(format!("{uid}.yaml"))
            .is_none()
            .then_some(())
    });
    stage.kubectl(&["delete", "ipl", "a"]);
    stage.await_some("a has left the pool", |stage| {
        let map = stage.get("ConfigMap", "small-tidemark-0")?;
        (map["data"].as_object()?.len() == 2).then_some(())
    });
    stage.await_ready("c");
    assert!(
        stage.kubelet.pods().is_superset(&pods),
        "the shared pod goes on"
    );
    stage.kubectl(&["delete", "ipl", "b", "c"]);
    await_children(&stage, [0; 4]);
}

/// The leader is stopped in the middle and goes on when another one leads; what it would have written is not written by it.
#[test]
fn leader_that_is_lost_is_followed_and_writes_nothing_more() {
    let stage = Stage::alone("leader_that_is_lost", Runs::Answers);
    let first = stage.operate("first", &[]);
    first.await_lead();
    stage.apply(&stage.pipeline("orders", &json!({})));
    stage.await_ready("orders");
    let second = stage.operate("second", &[]);
    stage.await_some("a second replica that stands by", |_| {
        matches!(second.ask("admin", "/readyz"), Some((200, _))).then_some(())
    });
    let writes = stage.await_some("a leader with nothing to write", |_| {
        let before = first.writes();
        pause(Duration::from_secs(2));
        (first.writes() == before).then_some(before)
    });
    let clock = Clock::system();
    first.signal(Signal::SIGSTOP);
    let (stopped, began_us) = (clock.monotonic(), clock.now_us());
    stage.edit("orders", &delay(20));
    await_delay(&stage, "orders", 20);
    let taken_over = clock.monotonic().saturating_sub(stopped);
    assert!(taken_over < TAKEOVER, "{taken_over:?}");
    assert!(second.leads());
    first.signal(Signal::SIGCONT);
    stage.await_some("the first replica knows that it has lost the lead", |_| {
        (!first.leads()).then_some(())
    });
    stage.edit("orders", &delay(25));
    await_delay(&stage, "orders", 25);
    stage.await_ready("orders");
    assert_eq!(first.writes(), writes);
    let holder = stage.get("Lease", "tidemark").unwrap()["spec"]["holderIdentity"].clone();
    assert!(holder.as_str().unwrap().starts_with("second_"), "{holder}");
    // What a leader has written counts for the next one.
    stage.await_some("when all writes are saved up again", |stage| {
        let lease = stage.get("Lease", "tidemark")?;
        let at = &lease["metadata"]["annotations"]["tidemark.dev/statuses-saved-up-at"];
        (parse_instant_us(at.as_str()?)? > began_us).then_some(())
    });
    assert!(second.terminate().success());
    first.await_lead();
}

/// The image of the workers comes with the operator: all pods are made again, but not at once.
#[test]
fn another_version_of_the_operator_rolls_its_workers_in_waves() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let stage = Stage::alone("another_version", Runs::Answers);
    let old = stage.operate("old", &[]);
    for name in NAMES {
        stage.apply(&stage.pipeline(name, &json!({})));
    }
    for name in NAMES {
        stage.await_ready(name);
    }
    let before = stage.kubelet.pods();
    assert!(old.terminate().success());
    let new = stage.operate(
        "new",
        &[
            "--worker-image",
            "test.local/tidemark:2",
            "--max-changing",
            "1",
        ],
    );
    let mut order = Vec::new();
    stage.await_some("all Deployments with the new image", |stage| {
        let (mut done, mut rolling) = (0, Vec::new());
        for object in stage.list("Deployment", true) {
            let (name, status) = (
                object["metadata"]["name"].as_str()?.to_owned(),
                &object["status"],
            );
            let is_new = object["spec"]["template"]["spec"]["containers"][0]["image"]
                == "test.local/tidemark:2";
            let whole = object["metadata"]["generation"] == status["observedGeneration"]
                && status["updatedReplicas"] == 1
                && status["readyReplicas"] == 1;
            match (is_new, whole) {
                (true, true) => done += 1,
                (true, false) => rolling.push(name.clone()),
                (false, _) => {}
            }
            if is_new && !order.contains(&name) {
                order.push(name);
            }
        }
        assert!(rolling.len() <= 1, "{rolling:?} at once");
        (done == NAMES.len()).then_some(())
    });
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), NAMES.len());
    for name in NAMES {
        stage.await_ready(name);
    }
    stage.await_some("new pods", |stage| {
        stage.kubelet.pods().is_disjoint(&before).then_some(())
    });
    assert!(new.leads());
}

/// So many pipelines, by name.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("p{number:02}")).collect()
}

/// Waits until the pods of all these are given this greatest delay and run it.
fn await_all(stage: &Stage<'_>, names: &[String], minutes: i64) {
    let what = format!("{minutes} minutes in all of {} pipelines", names.len());
    stage.await_some(&what, |stage| {
        let given = names
            .iter()
            .all(|name| delay_min(stage, name) == Some(minutes));
        given.then_some(())
    });
    for name in names {
        stage.await_ready(name);
    }
}

/// A policy that gives all pipelines this greatest delay.
fn all_wait(stage: &Stage<'_>, minutes: i64) -> Value {
    stage.policy("all", &json!({"overrides": delay(minutes)})).1
}

/// Refuses every write of an operator for pods and what they mount, as an API server does that is beyond its means.
fn refusing(namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": {"name": "no-seats"},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"},
            }},
        },
        {
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "no-seats"},
            "spec": {
                "priorityLevelConfiguration": {"name": "no-seats"},
                "matchingPrecedence": 100,
                "rules": [{
                    "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": "tidemark", "namespace": namespace}}],
                    "resourceRules": [{
                        "verbs": ["patch"], "apiGroups": ["", "apps"], "resources": ["configmaps", "deployments"], "namespaces": ["*"],
                    }],
                }],
            },
        },
    ]})
}

/// How many watches of each kind have been opened. One that finds nothing new says nothing more.
fn opened(operator: &Operator) -> [u64; 9] {
    let kinds = [
        "ingestionpipelines",
        "ingestionpolicies",
        "finalizationgates",
        "configmaps",
        "deployments",
        "poddisruptionbudgets",
        "networkpolicies",
        "pods",
        "namespaces",
    ];
    kinds.map(|kind| {
        let kind = format!("kind=\"{kind}\"");
        let labels = ["verb=\"watch\"", "outcome=\"ok\"", &kind];
        operator.metric("tidemark_operator_api_calls_total", &labels)
    })
}

/// Has the server refuse, and waits until it does: before it has digested that, everything is still written.
fn refuse(kube: &Kube, stage: &Stage<'_>) {
    kube.apply(&refusing(&stage.namespace).to_string());
    let digested = "--for=condition=Dangling=false";
    stage.kubectl(&["wait", "flowschema/no-seats", digested, "--timeout=60s"]);
}

/// Waits until one of these is told that its change was refused: which one is tried first is chance, and after it others wait.
fn await_refused(stage: &Stage<'_>, names: &[String]) {
    stage.await_some("one that is refused", |stage| {
        names.iter().find_map(|name| {
            let accepted = condition_of(&stage.get("IngestionPipeline", name)?, "Accepted")?;
            (accepted[0] == "False" && accepted[1] == "ApplyFailed").then_some(())
        })
    });
}

/// The API server dies in the middle of a change over all, forgets what a watch has seen, and refuses writes: nothing is lost.
#[test]
fn fleet_bears_an_api_server_that_is_away_or_has_no_time() {
    let kube = Kube::start_own();
    kube.apply_definitions();
    let stage = Stage::whole(&kube, "fleet_bears", Runs::Answers);
    let operator = stage.operate("one", &["--max-changing", "100%", "--log", "info"]);
    let names = names(12);
    let all: Vec<Value> = names
        .iter()
        .map(|name| stage.pipeline(name, &json!({})))
        .collect();
    stage.apply(&json!({"apiVersion": "v1", "kind": "List", "items": all}));
    await_all(&stage, &names, 10);

    stage.apply(&all_wait(&stage, 11));
    stage.await_some("the first one that changes", |stage| {
        names
            .iter()
            .any(|name| delay_min(stage, name) == Some(11))
            .then_some(())
    });
    let before = opened(&operator);
    kube.kill();
    pause(Duration::from_secs(2));
    kube.start(&[]);
    await_all(&stage, &names, 11);

    stage.await_some("watches that all go on", |_| {
        let opened = opened(&operator);
        let mut kinds = opened.iter().zip(&before);
        kinds.all(|(now, before)| now > before).then_some(())
    });
    // Whatever happens while nobody watches, and more than the server remembers after its restart.
    operator.signal(Signal::SIGSTOP);
    kube.kill();
    kube.start(&[]);
    stage.apply(&all_wait(&stage, 12));
    stage.kubectl(&["delete", "ipl", &names[0]]);
    stage.kubectl(&["delete", "deployment", &format!("{}-tidemark", names[1])]);
    operator.signal(Signal::SIGCONT);
    await_all(&stage, &names[1..], 12);
    let count = names.len() - 1;
    await_children(&stage, [count, 0, 1, count]);
    let expired = operator.metric(
        "tidemark_operator_api_calls_total",
        &["verb=\"watch\"", "outcome=\"gone\""],
    );
    let log = operator.log();
    assert!(
        expired > 0 || log.contains("too old resource version"),
        "no watch has expired"
    );

    refuse(&kube, &stage);
    stage.apply(&all_wait(&stage, 13));
    await_refused(&stage, &names[1..]);
    let refused = operator.metric(
        "tidemark_operator_api_calls_total",
        &["outcome=\"too_many_requests\""],
    );
    assert!(refused > 0);
    assert!(operator.leads(), "the lease has seats of its own");
    stage.kubectl(&[
        "delete",
        "flowschema,prioritylevelconfiguration",
        "no-seats",
    ]);
    await_all(&stage, &names[1..], 13);
    stage.await_condition(&names[1], "Accepted", ("True", "AsExpected"));
}

/// The definitions as a later version might have them: with one more value in these enumerations.
fn later_definitions() -> String {
    let mut items = definitions();
    for definition in &mut items {
        let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
            ["spec"]["properties"];
        for field in ["/source/properties/format/enum", "/mode/enum"] {
            if let Some(values) = spec.pointer_mut(field) {
                values.as_array_mut().unwrap().push("Later".into());
            }
        }
    }
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn undecodable(operator: &Operator, kind: &str) -> bool {
    operator.metric(
        "tidemark_operator_undecodable",
        &[&format!("kind=\"{kind}\"")],
    ) == 1
}

/// As after a downgrade: an object that this version cannot read is named and stops nobody, and a policy that cannot be read lets
/// nothing change that it might not allow.
#[test]
fn object_of_a_later_version_stops_nobody_and_is_named() {
    let kube = Kube::start_own();
    kube.apply(&later_definitions());
    kube.await_definitions();
    let stage = Stage::whole(&kube, "object_of_a_later", Runs::Answers);
    let operator = stage.operate("one", &["--max-changing", "100%"]);
    stage.apply(&stage.pipeline("later", &json!({"source": {"format": "Later"}})));
    stage.apply(&stage.pipeline("orders", &json!({})));
    let mut other = stage.pipeline("other", &json!({}));
    other["metadata"]["labels"] = json!({"team": "other"});
    stage.apply(&other);
    stage.await_ready("orders");
    stage.await_ready("other");
    stage.await_some("the later pipeline by name and number", |stage| {
        let named = operator
            .log()
            .contains(&format!("{}/later", stage.namespace));
        (named && undecodable(&operator, "IngestionPipeline")).then_some(())
    });
    stage.edit("orders", &delay(11));
    await_delay(&stage, "orders", 11);
    stage.await_ready("orders");

    let selector = json!({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]});
    let (later, policy) = stage.policy("later", &json!({"mode": "Later", "selector": selector}));
    stage.apply(&policy);
    kube.apply_definitions();
    let told = stage.await_condition("orders", "Accepted", ("False", "PolicyUnreadable"));
    assert!(told.contains(&later) && told.contains("Later"), "{told}");
    stage.await_condition("orders", "Ready", ("True", "AsExpected"));
    stage.edit("orders", &delay(12));
    stage.edit("other", &delay(12));
    await_delay(&stage, "other", 12);
    stage.await_condition("orders", "Accepted", ("False", "PolicyUnreadable"));
    assert_eq!(delay_min(&stage, "orders"), Some(11));
    stage.await_some("the policy says so itself", |stage| {
        let object = stage.get("IngestionPolicy", &later)?;
        let [status, reason, _] = condition_of(&object, "Accepted")?;
        (status == "False" && reason == "PolicyUnreadable").then_some(())
    });
    assert!(operator.terminate().success());

    // One that has never known another version of the policy decides no otherwise.
    let operator = stage.operate("two", &["--max-changing", "100%"]);
    operator.await_lead();
    stage.await_some("the policy by number", |_| {
        undecodable(&operator, "IngestionPolicy").then_some(())
    });
    stage.await_condition("orders", "Accepted", ("False", "PolicyUnreadable"));
    assert_eq!(delay_min(&stage, "orders"), Some(11));
    stage.kubectl(&["delete", "ipol", &later]);
    stage.await_condition("orders", "Accepted", ("True", "AsExpected"));
    await_delay(&stage, "orders", 12);
}
