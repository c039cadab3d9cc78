//! What the operator says of one policy: whether it counts, how many pipelines it is about, and the first that break its limits.
//!
//! Comes in: the policy, the decisions about pipelines, and how far a change has got. Goes out: the new status, or nothing where
//! nothing has changed. No client and no clock.
//!
//! Counts and the first ten, never a row a pipeline: a policy over ten thousand stays one small object.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::ResourceExt;

use super::{
    Key,
    policy::{Decision, Policies, Policy},
};
use crate::api::{
    Fault, Reason,
    policy::{IngestionPolicy, IngestionPolicyStatus, Violator},
    quantity::instant,
    schema::{ConditionStatus, StatusCondition},
};

/// How many violators a status names.
const VIOLATORS: usize = 10;

/// The longest text about one of them, and of a condition, in characters; the schema has room for some more.
const VIOLATOR_CHARS: usize = 500;
const MESSAGE_CHARS: usize = 1024;

const SECOND_US: i64 = 1_000_000;

/// What a policy is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many pipelines it selects.
    pub matched: u32,
    /// The pipelines beyond its limits, each with what is told of it.
    violators: BTreeMap<Key, String>,
}

/// What was decided about one pipeline, as far as policies have a part in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// The policies that select it.
    policies: Vec<Arc<str>>,
    /// What is told of it, by the policy whose limits it breaks.
    violations: BTreeMap<Arc<str>, String>,
}

impl Told {
    /// What of a decision counts here.
    #[must_use]
    pub fn of(decision: &Decision) -> Self {
        let told = decision.policies.iter().filter_map(|policy| {
            let mut violations = decision.violations_of(policy);
            let first = violations.next()?.to_string();
            let told = match violations.count() {
                0 => first,
                more => format!("{first} (and {more} more)"),
            };
            Some((Arc::clone(policy), cut(&told, VIOLATOR_CHARS)))
        });
        Self {
            violations: told.collect(),
            policies: decision.policies.clone(),
        }
    }
}

/// Counts what each policy is about, by its name.
#[must_use]
pub fn tally<'a>(
    pipelines: impl IntoIterator<Item = (&'a Key, &'a Told)>,
) -> BTreeMap<Arc<str>, Tally> {
    let mut tallies: BTreeMap<Arc<str>, Tally> = BTreeMap::new();
    for (key, told) in pipelines {
        for policy in &told.policies {
            let tally = tallies.entry(Arc::clone(policy)).or_default();
            tally.matched = tally.matched.saturating_add(1);
            if let Some(told) = told.violations.get(policy) {
                tally.violators.insert(key.clone(), told.clone());
            }
        }
    }
    tallies
}

/// How far a change has got over the pipelines of a policy with a `rollout`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wave {
    /// How many are changing.
    pub changing: u32,
    /// How many wait for their turn.
    pub pending: u32,
    /// Those that have not become ready again in time, as `namespace/name`, where they keep the others waiting.
    pub failed: BTreeSet<String>,
}

/// Everything that the status of one policy is derived from.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// All policies, read.
    pub policies: &'a Policies,
    /// Why this version cannot read it, where it cannot.
    pub unread: Option<&'a str>,
    /// What it is about; nothing for one that selects no pipeline.
    pub tally: Option<&'a Tally>,
    /// How far a change has got.
    pub wave: &'a Wave,
    /// The time, µs.
    pub now_us: i64,
}

/// The new status; `None`: nothing has changed. `old`: what was said last.
#[must_use]
pub fn derive(
    policy: &IngestionPolicy,
    old: Option<&IngestionPolicyStatus>,
    situation: &Situation<'_>,
) -> Option<IngestionPolicyStatus> {
    let empty = IngestionPolicyStatus::default();
    let old = old.unwrap_or(&empty);
    let name = policy.name_any();
    let (tally, wave) = (situation.tally, situation.wave);
    let faults = situation.policies.refused().get(&name);
    let notes = situation.policies.get(&name).map(Policy::notes);
    let said = [
        match situation.unread {
            Some(error) => no(Reason::PolicyUnreadable, error),
            None => accepted(faults, notes.unwrap_or_default()),
        },
        progressing(wave, tally.map_or(0, |tally| tally.matched)),
    ];
    let generation = policy.metadata.generation;
    let now_us = situation.now_us.div_euclid(SECOND_US) * SECOND_US;
    let conditions = ["Accepted", "Progressing"].into_iter().zip(said);
    let conditions = conditions.map(|(kind, (status, reason, message))| {
        let before = old
            .conditions
            .iter()
            .find(|condition| condition.kind == kind);
        let same = before.filter(|before| before.status == status);
        StatusCondition {
            kind: kind.to_owned(),
            status,
            reason: reason.label().to_owned(),
            message: cut(&message, MESSAGE_CHARS),
            last_transition_time: same
                .map_or_else(|| instant(now_us), |same| same.last_transition_time.clone()),
            observed_generation: generation,
        }
    });
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let violators = || tally.into_iter().flat_map(|tally| &tally.violators);
    let new = IngestionPolicyStatus {
        observed_generation: generation,
        conditions: conditions.collect(),
        matched: Some(tally.map_or(0, |tally| tally.matched)),
        violating: Some(count(violators().count())),
        pending: Some(wave.pending),
        violators: violators()
            .take(VIOLATORS)
            .map(|(key, message)| Violator {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                message: message.clone(),
            })
            .collect(),
    };
    (new != *old).then_some(new)
}

type Said = (ConditionStatus, Reason, String);

/// A reason whose values are followed by what to do.
fn no(reason: Reason, values: &str) -> Said {
    let message = format!("{values}; {}", reason.remedy());
    (ConditionStatus::False, reason, message)
}

fn accepted(faults: Option<&Vec<Fault>>, notes: &[String]) -> Said {
    match faults {
        None => (ConditionStatus::True, Reason::AsExpected, notes.join("; ")),
        Some(faults) => {
            let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
            no(Reason::PolicyInvalid, &told.join("; "))
        }
    }
}

fn progressing(wave: &Wave, matched: u32) -> Said {
    if let Some(first) = wave.failed.first() {
        let failed = wave.failed.len();
        let values = format!(
            "{failed} of {matched} pipelines did not get ready again after their change, the first is {first}; {} wait",
            wave.pending
        );
        return no(Reason::RolloutHalted, &values);
    }
    if wave.changing == 0 && wave.pending == 0 {
        return (ConditionStatus::False, Reason::AsExpected, String::new());
    }
    let message = format!(
        "of {matched} pipelines {} are changing and {} wait",
        wave.changing, wave.pending
    );
    (ConditionStatus::True, Reason::RolloutPending, message)
}

fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{Objects, parse_objects},
        operator::policy::decide,
    };

    const NOW_US: i64 = 1_796_032_800_000_000;

    fn policy(spec: &str) -> IngestionPolicy {
        let text = format!(
            "{{apiVersion: tidemark.dev/v1alpha1, kind: IngestionPolicy, metadata: {{name: gold, generation: 3}}, spec: {{{spec}}}}}"
        );
        serde_yaml::from_str(&text).unwrap()
    }

    fn pipelines(replicas: impl IntoIterator<Item = u32>) -> Objects {
        let texts = replicas.into_iter().enumerate().map(|(number, replicas)| {
            format!(
                "---
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: p{number:02}, namespace: shop}}
spec:
  source: {{format: DebeziumJson, kafka: {{bootstrapServers: 'k:1', topics: [a]}}}}
  sink: {{table: shop.orders, catalog: {{type: Rest, uri: 'http://c'}}}}
  worker: {{replicas: {replicas}}}
"
            )
        });
        parse_objects(&texts.collect::<String>()).unwrap()
    }

    /// The status of the one policy over pipelines with so many replicas each.
    fn status(
        policy: &IngestionPolicy,
        replicas: &[u32],
        wave: &Wave,
    ) -> Option<IngestionPolicyStatus> {
        let objects = pipelines(replicas.iter().copied());
        let policies = Policies::new([policy]);
        let told: BTreeMap<Key, Told> = objects
            .pipelines
            .iter()
            .map(|pipeline| {
                let decision = decide(pipeline, &BTreeMap::new(), &policies);
                (Key::new("shop", &pipeline.name_any()), Told::of(&decision))
            })
            .collect();
        let tallies = tally(&told);
        let situation = Situation {
            policies: &policies,
            unread: None,
            tally: tallies.get("gold"),
            wave,
            now_us: NOW_US,
        };
        derive(policy, policy.status.as_ref(), &situation)
    }

    fn condition(
        kind: &str,
        status: ConditionStatus,
        reason: &str,
        message: &str,
    ) -> StatusCondition {
        StatusCondition {
            kind: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: "2026-11-30T10:00:00Z".to_owned(),
            observed_generation: Some(3),
        }
    }

    #[test]
    fn counts_and_names_those_beyond_the_limits() {
        let gold = policy("limits: {replicas: {max: 4}, windowCommits: {min: 2}}");
        let found = status(&gold, &[1, 5, 4, 9], &Wave::default());
        let violator = |name: &str, replicas: u32| Violator {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            message: format!(
                "spec.worker.replicas is {replicas}; the policy \"gold\" allows at most 4"
            ),
        };
        let expected = IngestionPolicyStatus {
            observed_generation: Some(3),
            conditions: vec![
                condition("Accepted", ConditionStatus::True, "AsExpected", ""),
                condition("Progressing", ConditionStatus::False, "AsExpected", ""),
            ],
            matched: Some(4),
            violating: Some(2),
            pending: Some(0),
            violators: vec![violator("p01", 5), violator("p03", 9)],
        };
        assert_eq!(found, Some(expected));
    }

    /// A policy over the whole fleet has to stay one small object.
    #[test]
    fn only_the_first_ten_are_named() {
        let gold = policy("limits: {replicas: {max: 1}, windowCommits: {min: 9}}");
        let found = status(&gold, &[2; 30], &Wave::default()).unwrap();
        assert_eq!((found.violating, found.violators.len()), (Some(30), 10));
        assert_eq!(
            found.violators[9].message,
            r#"spec.finalization.windowCommits is 3 (built-in); the policy "gold" allows at least 9 (and 1 more)"#
        );
        let names: Vec<&str> = found
            .violators
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(names[..2], ["p00", "p01"]);
    }

    #[test]
    fn wrong_policy_says_what_is_wrong_and_counts_for_nothing() {
        let wrong = policy("limits: {replicas: {min: 4, max: 2}}");
        let found = status(&wrong, &[9], &Wave::default()).unwrap();
        let message = "policy gold: spec.limits.replicas.min: 4: is above max: 2; write a min that is at most max: no value could be right; correct the fields that the message names; until then the policy counts for nothing";
        assert_eq!(
            found.conditions[0],
            condition("Accepted", ConditionStatus::False, "PolicyInvalid", message)
        );
        assert_eq!((found.matched, found.violating), (Some(0), Some(0)));
    }

    /// Whoever limits a field without a default for it is told before pipelines are refused for what they never said.
    #[test]
    fn limits_that_shut_out_a_built_in_value_are_noted() {
        let strict = policy(
            "limits: {commitInterval: {min: 2m}, maxDelay: {min: 15m}}, defaults: {finalization: {maxDelay: 20m}}",
        );
        let found = status(&strict, &[1], &Wave::default()).unwrap();
        let message = "a pipeline that says nothing is beyond a limit: spec.sink.commit.interval is 60s (built-in), allowed is at least 2m: give a default";
        assert_eq!(
            found.conditions[0],
            condition("Accepted", ConditionStatus::True, "AsExpected", message)
        );
    }

    #[test]
    fn change_that_goes_over_its_pipelines_is_told() {
        let gold = policy("rollout: {maxChanging: '2'}");
        let mut wave = Wave {
            changing: 2,
            pending: 7,
            failed: BTreeSet::new(),
        };
        let found = status(&gold, &[1; 9], &wave).unwrap();
        let message = "of 9 pipelines 2 are changing and 7 wait";
        assert_eq!(
            found.conditions[1],
            condition(
                "Progressing",
                ConditionStatus::True,
                "RolloutPending",
                message
            )
        );
        assert_eq!(found.pending, Some(7));
        wave.failed.insert("shop/p03".to_owned());
        let found = status(&gold, &[1; 9], &wave).unwrap();
        let halted = &found.conditions[1];
        assert_eq!(
            (halted.status, halted.reason.as_str()),
            (ConditionStatus::False, "RolloutHalted")
        );
        let start = "1 of 9 pipelines did not get ready again after their change, the first is shop/p03; 7 wait; ";
        assert!(halted.message.starts_with(start), "{}", halted.message);
    }

    /// A write for nothing costs the API server as much as a real one.
    #[test]
    fn nothing_is_written_where_nothing_has_changed_and_times_move_with_answers_only() {
        let mut gold = policy("limits: {replicas: {max: 1}}");
        gold.status = status(&gold, &[1, 2], &Wave::default());
        assert_eq!(status(&gold, &[1, 2], &Wave::default()), None);
        for condition in &mut gold.status.as_mut().unwrap().conditions {
            condition.last_transition_time = "2026-11-30T09:00:00Z".to_owned();
        }
        assert_eq!(status(&gold, &[1, 2], &Wave::default()), None);
        let wave = Wave {
            changing: 1,
            ..Wave::default()
        };
        let found = status(&gold, &[1, 2], &wave).unwrap();
        let times: Vec<&str> = found
            .conditions
            .iter()
            .map(|one| one.last_transition_time.as_str())
            .collect();
        assert_eq!(times, ["2026-11-30T09:00:00Z", "2026-11-30T10:00:00Z"]);
    }
}
