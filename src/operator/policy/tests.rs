//! Policies over pipelines, from their YAML.

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::api::{
    custom_resource_definitions, effective::Origin, parse_manifests, worker::SaslMechanism,
};

fn policies(text: &str) -> Vec<IngestionPolicy> {
    let documents = serde_yaml::Deserializer::from_str(text);
    documents
        .map(|document| IngestionPolicy::deserialize(document).unwrap())
        .collect()
}

/// A policy with this in its `spec`.
fn policy(name: &str, spec: &str) -> IngestionPolicy {
    policies(&format!(
        "{{apiVersion: tidemark.dev/v1alpha1, kind: IngestionPolicy, metadata: {{name: {name}}}, spec: {{{spec}}}}}"
    ))
    .remove(0)
}

fn pipeline(labels: &str, extra: &str) -> IngestionPipeline {
    let text = format!(
        "apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: orders, namespace: shop, labels: {{{labels}}}}}
spec:
  source: {{format: DebeziumJson, kafka: {{bootstrapServers: 'k:1', topics: [a]}}}}
  sink: {{table: shop.orders, catalog: {{type: Rest, uri: 'http://c'}}}}
  {extra}
"
    );
    parse_manifests(&text)
        .unwrap_or_else(|faults| panic!("{faults:?}"))
        .remove(0)
}

fn namespace() -> Labels {
    let labels = [("kubernetes.io/metadata.name", "shop"), ("tier", "gold")];
    labels
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

fn explained(pipeline: &IngestionPipeline, policies: &[IngestionPolicy]) -> Explained {
    let read = Policies::new(policies);
    assert!(read.refused().is_empty(), "{:?}", read.refused());
    explain(pipeline, &namespace(), &read)
}

/// The leaves that a policy or the pipeline has said, each on a line.
fn said(explained: &Explained) -> Vec<String> {
    let leaves = explained.layered.leaves().into_iter();
    let said = leaves.filter(|leaf| leaf.origin != Origin::BuiltIn);
    let shown = said.map(|leaf| format!("{} = {} ({})", leaf.path, leaf.value, leaf.origin));
    shown
        .filter(|line| line.contains("policy") || line.contains("finalization"))
        .collect()
}

#[test]
fn defaults_fill_overrides_win_and_the_pipeline_stands_between() {
    let pipeline = pipeline("", "finalization: {maxDelay: 20m, windowCommits: 5}");
    let policies = [
        policy(
            "base",
            "defaults: {finalization: {maxDelay: 15m, maxFutureSkew: 1m}, worker: {podLabels: {team: base, cost: a}}}, overrides: {finalization: {windowCommits: 8}}",
        ),
        policy(
            "team",
            "priority: 10, defaults: {worker: {podLabels: {team: shop}}}",
        ),
    ];
    let explained = explained(&pipeline, &policies);
    let expected = [
        r#"spec.finalization.maxDelay = "20m" (pipeline)"#,
        r#"spec.finalization.maxFutureSkew = "1m" (default of policy "base")"#,
        r#"spec.finalization.windowCommits = 8 (override of policy "base")"#,
        r#"spec.worker.podLabels[cost] = "a" (default of policy "base")"#,
        r#"spec.worker.podLabels[team] = "shop" (default of policy "team")"#,
    ];
    assert_eq!(said(&explained), expected);
    let resolved = explained.decision.accepted().unwrap();
    assert_eq!(resolved.spec.finalization.window_commits, 8);
    assert_eq!(explained.decision.hash, resolved.hash());
    assert_eq!(explained.decision.policies, ["team".into(), "base".into()]);
}

/// The lowest name counts among equals, whichever was made or given first.
#[test]
fn greatest_priority_wins_then_the_first_name() {
    let pipeline = pipeline("", "");
    let with = |name: &str, priority: i32, commits: u32| {
        policy(
            name,
            &format!(
                "priority: {priority}, defaults: {{finalization: {{windowCommits: {commits}}}}}"
            ),
        )
    };
    let cases = [
        (vec![with("a", 0, 4), with("b", 1, 5)], 5),
        (vec![with("b", 0, 5), with("a", 0, 4)], 4),
        (vec![with("a", -5, 4), with("b", 0, 5), with("c", -1, 6)], 5),
    ];
    for (policies, expected) in cases {
        let explained = explained(&pipeline, &policies);
        let resolved = explained.decision.accepted().unwrap();
        assert_eq!(resolved.spec.finalization.window_commits, expected);
    }
}

#[test]
fn both_selectors_must_match() {
    let pipeline = pipeline("region: eu", "");
    let cases = [
        ("", true),
        ("selector: {matchLabels: {region: eu}}", true),
        ("selector: {matchLabels: {region: us}}", false),
        ("namespaceSelector: {matchLabels: {tier: gold}}", true),
        (
            "selector: {matchLabels: {region: eu}}, namespaceSelector: {matchLabels: {tier: tin}}",
            false,
        ),
        (
            "namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [shop]}]}",
            false,
        ),
    ];
    for (spec, selected) in cases {
        let found = explained(&pipeline, &[policy("one", spec)])
            .decision
            .policies;
        assert_eq!(found.len(), usize::from(selected), "{spec}");
    }
}

/// Each policy stands alone: where no value could please both, both are named.
#[test]
fn limits_intersect_and_an_empty_intersection_is_two_violations() {
    let pipeline = pipeline("", "finalization: {maxDelay: 30m}");
    let policies = [
        policy(
            "fast",
            "priority: 5, mode: Enforce, limits: {maxDelay: {max: 20m}}",
        ),
        policy("slow", "limits: {maxDelay: {min: 40m}}"),
    ];
    let decision = explained(&pipeline, &policies).decision;
    let told: Vec<String> = decision
        .violations
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected = [
        r#"spec.finalization.maxDelay is 30m; the policy "fast" allows at most 20m"#,
        r#"spec.finalization.maxDelay is 30m; the policy "slow" allows at least 40m"#,
    ];
    assert_eq!(told, expected);
    assert_eq!(decision.refusals().count(), 1);
    assert_eq!(decision.accepted(), None);
    assert_eq!(decision.violations_of("slow").count(), 1);
}

#[test]
fn audit_accepts_and_counts() {
    let pipeline = pipeline("", "worker: {replicas: 9}");
    let decision = explained(
        &pipeline,
        &[policy("small", "limits: {replicas: {max: 2}}")],
    )
    .decision;
    assert_eq!(decision.violations.len(), 1);
    assert_eq!(decision.accepted().unwrap().spec.worker.replicas, 9);
}

/// The built-in value runs like any other, so it is bound like any other.
#[test]
fn limits_bind_what_runs_and_not_what_is_overridden() {
    let pipeline = pipeline("", "finalization: {windowCommits: 2}");
    let limits = "limits: {windowCommits: {min: 4}, commitInterval: {min: 2m}}";
    let bound = explained(&pipeline, &[policy("bound", limits)]).decision;
    let told: Vec<String> = bound.violations.iter().map(ToString::to_string).collect();
    let expected = [
        r#"spec.finalization.windowCommits is 2; the policy "bound" allows at least 4"#,
        r#"spec.sink.commit.interval is 60s (built-in); the policy "bound" allows at least 2m"#,
    ];
    assert_eq!(told, expected);
    let exempt = "overrides: {finalization: {windowCommits: 1}, sink: {commit: {interval: 1m}}}";
    let policies = [policy("bound", limits), policy("exempt", exempt)];
    assert_eq!(explained(&pipeline, &policies).decision.violations, []);
}

/// Whoever is refused because of a policy has to know which one.
#[test]
fn bad_combination_names_the_policy_that_has_a_part_in_it() {
    let text = "source: {format: DebeziumJson, heartbeatTopic: beats, kafka: {bootstrapServers: 'k:1', topics: [a]}}";
    let mut pipeline = pipeline("", "");
    let spec: Value = serde_yaml::from_str(text).unwrap();
    pipeline.spec.source = serde_json::from_value(spec["source"].clone()).unwrap();
    let policies = [policy(
        "strict",
        "defaults: {finalization: {terms: [Minimum]}}",
    )];
    let faults = explained(&pipeline, &policies)
        .decision
        .outcome
        .unwrap_err();
    let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let expected = [
        r#"shop/orders: spec.finalization.terms and spec.source.heartbeatTopic: do not go together (spec.finalization.terms: default of policy "strict"); write CaughtUp in terms, which the heartbeats cap, or leave the topic out"#,
    ];
    assert_eq!(told, expected);
}

#[test]
fn default_falls_away_with_the_field_that_it_goes_with() {
    let policies = [policy(
        "usual",
        "defaults: {finalization: {terms: [Percentile, CaughtUp], quantile: 0.01, cell: 1d, zone: Europe/Berlin}, worker: {resources: {requests: {cpu: '2'}}}}",
    )];
    let own = pipeline(
        "",
        "finalization: {terms: [Minimum], cell: 1h}\n  worker: {placement: Shared}",
    );
    let explained = explained(&own, &policies);
    let resolved = explained.decision.accepted().unwrap();
    assert_eq!(resolved.spec.finalization.quantile, None);
    assert_eq!(resolved.spec.finalization.zone, None);
    let fallen = explained.layered.fallen().iter();
    let fallen: Vec<String> = fallen
        .map(|fallen| {
            format!(
                "{} with {} {}",
                fallen.leaf.path, fallen.with.path, fallen.with.value
            )
        })
        .collect();
    let expected = [
        r#"spec.finalization.quantile with spec.finalization.terms ["Minimum"]"#,
        r#"spec.finalization.zone with spec.finalization.cell "1h""#,
        r#"spec.worker.resources.requests.cpu with spec.worker.placement "Shared""#,
    ];
    assert_eq!(fallen, expected);
}

/// Half a policy would let through what its other half means to stop.
#[test]
fn wrong_policy_counts_for_nothing_and_says_everything() {
    let wrong = policy(
        "wrong",
        "selector: {matchExpressions: [{key: a, operator: In}]}, \
         defaults: {finalization: {cell: 7h, zone: Europe/Berlin, completeFrom: Unbounded, maxDelay: 1h}, source: {kafka: {properties: {acks: '0'}}}, worker: {podLabels: {tidemark.dev/x: y}}}, \
         overrides: {worker: {serviceAccountName: root, memoryBudget: 1Mi}, finalization: {terms: [Percentile]}}, \
         limits: {maxDelay: {max: 20m}, replicas: {min: 3, max: 2}}",
    );
    let good = policy("good", "defaults: {finalization: {windowCommits: 9}}");
    let read = Policies::new([&wrong, &good]);
    let told: Vec<String> = read.refused()["wrong"]
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected = [
        r"policy wrong: spec.selector.matchExpressions[0].values: does not go with the operator; write values with operator In and NotIn, and with no other",
        r"policy wrong: spec.limits.replicas.min: 3: is above max: 2; write a min that is at most max: no value could be right",
        r"policy wrong: spec.defaults.finalization.completeFrom: may not be filled by a policy; set it in the pipeline: it speaks of one table's rows",
        r"policy wrong: spec.defaults.source.kafka.properties[acks]: may not be set; dead letters are written to all replicas",
        r#"policy wrong: spec.defaults.worker.podLabels[tidemark.dev/x]: "tidemark.dev/x": is reserved; take another key: it is the operator's own"#,
        r#"policy wrong: spec.defaults.finalization.cell: "7h": is no whole number of seconds that divides a day; write such a length, as 15m, 1h or 1d"#,
        r"policy wrong: spec.defaults.finalization.zone and spec.defaults.finalization.cell: zone goes with cell: 1d; write cell: 1d, or leave the zone out",
        r"policy wrong: spec.overrides.worker.serviceAccountName: may not be filled by a policy; set it in the pipeline: it is an identity",
        r#"policy wrong: spec.overrides.worker.memoryBudget: "1Mi": is out of bounds; write a size from 16Mi to 64Gi"#,
        r"policy wrong: spec.overrides.finalization.terms and spec.overrides.finalization.quantile: do not go together; write Percentile in terms and a quantile, or neither",
    ];
    assert_eq!(told, expected);
    let decision = decide(&pipeline("", "worker: {replicas: 60}"), &namespace(), &read);
    assert_eq!(decision.policies, ["good".into()]);
    assert_eq!(decision.violations, []);
    assert_eq!(
        decision
            .accepted()
            .unwrap()
            .spec
            .finalization
            .window_commits,
        9
    );
}

/// A rollout that cannot be read would let every change go at once.
#[test]
fn rollout_that_cannot_be_read_is_refused() {
    let cases = [
        (
            "maxChanging: 200%",
            r#"policy fast: spec.rollout.maxChanging: "200%" is no number of pipelines; write a number or a share, as 20 or 5%"#,
        ),
        (
            "deadline: 1s",
            r#"policy fast: spec.rollout.deadline: "1s" is out of bounds; write a length from 10s to 1d"#,
        ),
    ];
    for (rollout, expected) in cases {
        let fast = policy("fast", &format!("rollout: {{{rollout}}}"));
        let faults = Policy::new(&fast).unwrap_err();
        let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(told, [expected]);
    }
}

/// A default beyond the policy's own limit would put every pipeline in the wrong that says nothing.
#[test]
fn default_beyond_a_limit_of_its_own_policy_is_refused() {
    let both = policy(
        "both",
        "defaults: {finalization: {maxDelay: 1h}}, limits: {maxDelay: {max: 20m}}",
    );
    let told: Vec<String> = Policy::new(&both)
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected = [
        r#"policy both: spec.defaults.finalization.maxDelay: "1h": is beyond its own limit, at most 20m; take a default within the limit, or an override: limits do not bind it"#,
    ];
    assert_eq!(told, expected);
    let over = policy(
        "over",
        "overrides: {finalization: {maxDelay: 1h}}, limits: {maxDelay: {max: 20m}}",
    );
    assert!(Policy::new(&over).is_ok());
}

/// The platform knows the listener, its certificates and the store; each team has a user and a key of its own.
#[test]
fn ways_to_brokers_and_store_are_put_together_from_policy_and_pipeline() {
    let platform = policy(
        "platform",
        "defaults: {source: {kafka: {security: {protocol: SaslSsl, tls: {caRef: {name: kafka-ca, key: ca.crt}}, sasl: {mechanism: ScramSha512}}}}, \
         sink: {catalog: {credentialRef: {name: catalog, key: c}, properties: {scope: lake}, storage: {endpoint: 'https://store', pathStyleAccess: true}}}}",
    );
    let mut own = pipeline("", "");
    let told = |own: &IngestionPipeline| {
        let faults = explained(own, std::slice::from_ref(&platform))
            .decision
            .outcome
            .unwrap_err();
        faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let asked_by = r#"(spec.source.kafka.security.protocol: default of policy "platform")"#;
    let [user, password] = ["username: is missing", "passwordRef: is missing"].map(|what| {
        format!("shop/orders: spec.source.kafka.security.sasl.{what} {asked_by}; name the ")
    });
    let missing = told(&own);
    assert_eq!(missing.len(), 2, "{missing:?}");
    assert!(
        missing[0].starts_with(&user) && missing[1].starts_with(&password),
        "{missing:?}"
    );
    own.spec.source.kafka.security =
        serde_yaml::from_str("{sasl: {username: shop, passwordRef: {name: shop, key: p}}}")
            .unwrap();
    let resolved = explained(&own, std::slice::from_ref(&platform));
    let spec = &resolved.decision.accepted().unwrap().spec;
    let refs: Vec<String> = spec.secret_refs().map(ToString::to_string).collect();
    assert_eq!(refs, ["kafka-ca/ca.crt", "shop/p", "catalog/c"]);
    let security = spec.source.security.as_ref().unwrap();
    let sasl = security.sasl.as_ref().unwrap();
    assert_eq!(
        (sasl.username.as_str(), sasl.mechanism),
        ("shop", SaslMechanism::ScramSha512)
    );
    let storage = spec.sink.catalog.storage.as_ref().unwrap();
    assert_eq!(storage.endpoint.as_deref(), Some("https://store"));
    assert!(storage.path_style_access);
}

/// A password is one user's, a token one key's, and without encryption nobody is trusted: nothing of a lower layer is kept beside them.
#[test]
fn secrets_of_a_policy_go_with_what_the_policy_says_beside_them() {
    let platform = policy(
        "platform",
        "defaults: {source: {kafka: {security: {protocol: SaslSsl, tls: {caRef: {name: ca, key: c}, certificateRef: {name: crt, key: c}, keyRef: {name: key, key: k}}, \
         sasl: {mechanism: Plain, username: all, passwordRef: {name: all, key: p}}}}}, \
         sink: {catalog: {storage: {endpoint: 'https://store', caRef: {name: s-ca, key: c}, accessKeyIdRef: {name: s, key: i}, \
         secretAccessKeyRef: {name: s, key: s}, sessionTokenRef: {name: s, key: t}}}}}",
    );
    let said = |security: &str, storage: &str| {
        let mut own = pipeline("", "");
        own.spec.source.kafka.security = serde_yaml::from_str(security).unwrap();
        own.spec.sink.catalog.storage = serde_yaml::from_str(storage).unwrap();
        let explained = explained(&own, std::slice::from_ref(&platform));
        match explained.decision.outcome {
            Ok(resolved) => resolved
                .spec
                .secret_refs()
                .map(ToString::to_string)
                .collect(),
            Err(faults) => faults
                .into_iter()
                .map(|fault| fault.path)
                .collect::<Vec<_>>(),
        }
    };
    let all = [
        "all/p", "ca/c", "crt/c", "key/k", "s/i", "s/s", "s/t", "s-ca/c",
    ];
    let but = |gone: &[&str]| {
        let left = all.iter().filter(|name| !gone.contains(name));
        left.map(|name| (*name).to_owned()).collect::<Vec<_>>()
    };
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let cases = [
        ("{}", "{}", but(&[])),
        ("{protocol: Ssl}", "{}", but(&["all/p"])),
        (
            "{protocol: Plaintext}",
            "{}",
            but(&["all/p", "ca/c", "crt/c", "key/k"]),
        ),
        (
            "{sasl: {username: own}}",
            "{}",
            vec!["spec.source.kafka.security.sasl.passwordRef".to_owned()],
        ),
        ("{}", "{endpoint: 'http://near'}", but(&["s-ca/c"])),
        (
            "{}",
            "{accessKeyIdRef: {name: own, key: i}, secretAccessKeyRef: {name: own, key: s}}",
            [
                but(&["s/i", "s/s", "s/t"]),
                vec!["own/i".into(), "own/s".into()],
            ]
            .concat(),
        ),
    ];
    for (security, storage, expected) in cases {
        assert_eq!(
            sorted(said(security, storage)),
            sorted(expected),
            "{security} {storage}"
        );
    }
}

/// What is asked for may come from the pipeline; what cannot go together cannot.
#[test]
fn protocol_of_a_policy_alone_is_no_fault_of_it() {
    let alone = policy(
        "alone",
        "overrides: {source: {kafka: {security: {protocol: SaslSsl}}}}",
    );
    assert!(Policy::new(&alone).is_ok());
    let half = policy(
        "half",
        "defaults: {source: {kafka: {security: {tls: {caRef: {name: n, key: c}}}}}}",
    );
    let told: Vec<String> = Policy::new(&half)
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected = [
        "policy half: spec.defaults.source.kafka.security.protocol and spec.defaults.source.kafka.security.tls: do not go together; tls goes with protocol: Ssl or SaslSsl",
    ];
    assert_eq!(told, expected);
}

/// A default alone that goes with no built-in value is wrong for every pipeline that says nothing.
#[test]
fn value_that_needs_another_one_comes_with_it() {
    let zone = policy("zone", "defaults: {finalization: {zone: Europe/Berlin}}");
    let told: Vec<String> = Policy::new(&zone)
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected = [
        "policy zone: spec.defaults.finalization.zone and spec.defaults.finalization.cell: zone goes with cell: 1d; write cell: 1d, or leave the zone out",
    ];
    assert_eq!(told, expected);
}

/// What depends on the pipeline is not the policy's fault.
#[test]
fn value_that_goes_with_some_pipelines_only_is_accepted() {
    for values in [
        "finalization: {terms: [Resolved]}",
        "finalization: {terms: [Heartbeat]}",
        "worker: {placement: Shared}",
    ] {
        assert!(
            Policy::new(&policy("some", &format!("defaults: {{{values}}}"))).is_ok(),
            "{values}"
        );
    }
}

/// Who limits the speed of a change is known by the policy's name.
#[test]
fn rollouts_are_those_of_all_policies_that_say_one() {
    let policies = [
        policy("silent", "priority: 9"),
        policy(
            "slow",
            "priority: 2, rollout: {maxChanging: '3', deadline: 1h}",
        ),
        policy(
            "fast",
            "priority: 3, rollout: {maxChanging: 50%, maxFailed: 7}",
        ),
        policy(
            "other",
            "selector: {matchLabels: {a: b}}, rollout: {maxChanging: '1'}",
        ),
    ];
    let decision = explained(&pipeline("", ""), &policies).decision;
    let names: Vec<&str> = decision.rollouts.iter().map(|name| &**name).collect();
    assert_eq!(names, ["fast", "slow"]);
    let read = Policies::new(&policies);
    let slow = read.get("slow").and_then(Policy::rollout).unwrap();
    assert_eq!(slow.max_changing.as_deref(), Some("3"));
}

/// The hash decides whether anything is applied: it follows both parts, and nothing else.
#[test]
fn hash_follows_what_runs() {
    let hash = |extra: &str, policies: &[IngestionPolicy]| {
        explained(&pipeline("", extra), policies).decision.hash
    };
    let plain = hash("", &[]);
    assert_eq!(
        plain,
        hash(
            "worker: {replicas: 1}",
            &[policy("idle", "priority: 3, limits: {replicas: {max: 2}}")]
        )
    );
    assert_ne!(plain, hash("worker: {replicas: 2}", &[]));
    assert_ne!(plain, hash("worker: {podLabels: {a: b}}", &[]));
    assert_ne!(
        plain,
        hash(
            "",
            &[policy("one", "defaults: {finalization: {maxDelay: 11m}}")]
        )
    );
}

/// A field that policies may fill and that is not known as such would never be checked in the policy itself.
#[test]
fn fillable_fields_are_those_of_the_schema() {
    let definitions = custom_resource_definitions();
    let (_, text) = definitions
        .iter()
        .find(|(name, _)| name.contains("policies"))
        .unwrap();
    let definition: Value = serde_yaml::from_str(text).unwrap();
    let spec =
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let defaults = &spec["properties"]["defaults"];
    assert_eq!(
        defaults["properties"],
        spec["properties"]["overrides"]["properties"]
    );
    let mut open = vec![("spec".to_owned(), defaults)];
    while let Some((path, schema)) = open.pop() {
        if check::FILLABLE.contains(&path.as_str()) {
            continue;
        }
        let fields = schema["properties"].as_object();
        let fields = fields.unwrap_or_else(|| panic!("{path} can be filled and is not known"));
        open.extend(
            fields
                .iter()
                .map(|(name, field)| (format!("{path}.{name}"), field)),
        );
    }
}

/// Values for a few leaves, as a policy or a pipeline may say them.
fn values() -> impl Strategy<Value = Value> {
    let minutes = || prop::option::of((1..6_u32).prop_map(|minutes| format!("{minutes}m")));
    (
        minutes(),
        minutes(),
        prop::option::of(1..5_u32),
        prop::option::of(1..4_u32),
        prop::option::of("[xy]"),
    )
        .prop_map(|(delay, interval, commits, replicas, property)| {
            json!({
                "finalization": {"maxDelay": delay, "windowCommits": commits},
                "sink": {"commit": {"interval": interval}},
                "worker": {"replicas": replicas},
                "source": {"kafka": {"properties": {"fetch.wait.max.ms": property}}},
            })
        })
}

const LEAVES: [(&[&str], &str); 5] = [
    (&["finalization", "maxDelay"], "10m"),
    (&["finalization", "windowCommits"], "3"),
    (&["sink", "commit", "interval"], "60s"),
    (&["worker", "replicas"], "1"),
    (&["source", "kafka", "properties", "fetch.wait.max.ms"], ""),
];

fn some(values: &Value) -> Value {
    match values {
        Value::Object(fields) => {
            let kept = fields.iter().map(|(key, value)| (key.clone(), some(value)));
            Value::Object(kept.filter(|(_, value)| !value.is_null()).collect())
        }
        value => value.clone(),
    }
}

/// What a policy says, as numbers: minutes at most of delay, its priority, whether it selects.
#[derive(Debug, Clone)]
struct Drawn {
    priority: i32,
    selects: bool,
    defaults: Value,
    overrides: Value,
    delay_minutes: Option<(u32, u32)>,
    enforce: bool,
}

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let bounds = prop::option::of((1..4_u32, 0..4_u32).prop_map(|(min, more)| (min, min + more)));
    let one = (
        -1..2_i32,
        any::<bool>(),
        values(),
        values(),
        bounds,
        any::<bool>(),
    );
    let one = one.prop_map(
        |(priority, selects, defaults, overrides, delay_minutes, enforce)| Drawn {
            priority,
            selects,
            // A default beyond its own limit makes no policy.
            defaults: if delay_minutes.is_some() {
                json!({})
            } else {
                some(&defaults)
            },
            overrides: some(&overrides),
            delay_minutes,
            enforce,
        },
    );
    prop::collection::vec(one, 0..5)
}

impl Drawn {
    fn name(number: usize) -> String {
        // Names in another order than the numbers.
        format!("p{}", (number * 7 + 3) % 10)
    }

    fn policy(&self, number: usize) -> IngestionPolicy {
        let limits = self.delay_minutes.map(|(min, max)| json!({"maxDelay": {"min": format!("{}s", min * 60), "max": format!("{max}m")}}));
        let spec = json!({
            "priority": self.priority,
            "selector": {"matchLabels": {"region": if self.selects { "eu" } else { "us" }}},
            "defaults": self.defaults,
            "overrides": self.overrides,
            "limits": limits,
            "mode": if self.enforce { "Enforce" } else { "Audit" },
        });
        IngestionPolicy::new(&Self::name(number), serde_json::from_value(spec).unwrap())
    }
}

fn at<'a>(values: &'a Value, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().try_fold(values, |values, key| values.get(key))
}

/// A pipeline with these values over the usual ones.
fn saying(values: &Value) -> IngestionPipeline {
    let mut pipeline = pipeline("region: eu", "");
    let plain = serde_json::to_value(&pipeline.spec).unwrap();
    let merged = Layered::new([(Origin::BuiltIn, &plain), (Origin::Pipeline, values)]);
    pipeline.spec = serde_json::from_value(merged.value()).unwrap();
    pipeline
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

proptest! {
    /// Two operators, or one after a restart, must come to the same.
    #[test]
    fn prop_order_of_policies_has_no_part(drawn in drawn(), own in values(), turn in 0..5_usize) {
        let policies: Vec<_> = drawn.iter().enumerate().map(|(number, one)| one.policy(number)).collect();
        let mut turned = policies.clone();
        turned.reverse();
        let by = turn.min(turned.len());
        turned.rotate_left(by);
        let pipeline = saying(&some(&own));
        prop_assert_eq!(explained(&pipeline, &policies), explained(&pipeline, &turned));
    }

    /// The oracle looks for each leaf by itself: in overrides, the pipeline, defaults, then at what is built in.
    #[test]
    fn prop_each_leaf_is_that_of_the_first_who_may_say_it(drawn in drawn(), own in values()) {
        let own = some(&own);
        let policies: Vec<_> = drawn.iter().enumerate().map(|(number, one)| one.policy(number)).collect();
        let explained = explained(&saying(&own), &policies);
        let mut order: Vec<(i32, String, &Drawn)> = drawn.iter().enumerate()
            .filter(|(_, one)| one.selects)
            .map(|(number, one)| (-one.priority, Drawn::name(number), one)).collect();
        order.sort_by(|left, right| (left.0, &left.1).cmp(&(right.0, &right.1)));
        for (keys, built_in) in LEAVES {
            let over = order.iter().find_map(|(_, name, one)| at(&one.overrides, keys).map(|value| (value, Origin::Override(name.as_str().into()))));
            let own = at(&own, keys).map(|value| (value, Origin::Pipeline));
            let below = order.iter().find_map(|(_, name, one)| at(&one.defaults, keys).map(|value| (value, Origin::Default(name.as_str().into()))));
            let expected = over.or(own).or(below).map(|(value, origin)| (plain(value), origin));
            let expected = expected.or_else(|| (!built_in.is_empty()).then(|| (built_in.to_owned(), Origin::BuiltIn)));
            let found = explained.layered.get(keys).map(|(value, origin)| (plain(value), origin.clone()));
            prop_assert_eq!(found, expected, "{:?}", keys);
        }
    }

    /// The oracle counts in minutes and knows neither layers nor texts.
    #[test]
    fn prop_limits_are_those_of_each_policy_by_itself(drawn in drawn(), own in values()) {
        let own = some(&own);
        let policies: Vec<_> = drawn.iter().enumerate().map(|(number, one)| one.policy(number)).collect();
        let decision = explained(&saying(&own), &policies).decision;
        let keys = LEAVES[0].0;
        let minutes = |value: &Value| plain(value).trim_end_matches('m').parse::<u32>().unwrap();
        let selecting = || drawn.iter().enumerate().filter(|(_, one)| one.selects);
        let overridden = selecting().any(|(_, one)| at(&one.overrides, keys).is_some());
        let mut order: Vec<_> = selecting().map(|(number, one)| (-one.priority, Drawn::name(number), one)).collect();
        order.sort_by(|left, right| (left.0, &left.1).cmp(&(right.0, &right.1)));
        let below = order.iter().find_map(|(_, _, one)| at(&one.defaults, keys));
        let delay = at(&own, keys).or(below).map_or(10, minutes);
        let expected: Vec<(String, bool)> = order.iter()
            .filter(|(_, _, one)| !overridden && one.delay_minutes.is_some_and(|(min, max)| delay < min || delay > max))
            .map(|(_, name, one)| (name.clone(), one.enforce)).collect();
        let found: Vec<(String, bool)> = decision.violations.iter()
            .map(|violation| (violation.policy.to_string(), violation.mode == PolicyMode::Enforce)).collect();
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(decision.accepted().is_some(), expected.iter().all(|(_, enforce)| !enforce));
    }
}
