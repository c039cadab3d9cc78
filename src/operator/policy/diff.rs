//! What becomes of a pipeline when policies change: before it is done.
//!
//! Two answers of the same pure function are compared, so what is told here is what the operator will do.

use super::{Explained, Violation};
use crate::api::{
    Fault,
    effective::{Layered, Leaf, Place},
};

/// What becomes of one pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// What its workers do.
    pub effect: Effect,
    /// The values that differ, by their path; those that another one takes down with it as well.
    pub leaves: Vec<Changed>,
    /// What is beyond limits afterwards and was not before.
    pub violations: Vec<Violation>,
    /// What is wrong with it afterwards.
    pub faults: Vec<Fault>,
}

/// A value that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// Which field.
    pub path: String,
    /// What it was.
    pub old: Option<Leaf>,
    /// What it will be.
    pub new: Option<Leaf>,
}

/// What workers do when a specification changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum Effect {
    /// Nothing.
    None,
    /// They take the new values up as they run.
    Changes,
    /// Their pods are made anew, one after the other.
    Restarts,
    /// They leave their pods for others.
    Moves,
    /// They begin to run what was refused until now.
    Accepted,
    /// They go on with what was last accepted; a pipeline that runs nothing yet does not start.
    Refused,
}

/// What changes for a pipeline; `None` where nothing does.
#[must_use]
pub fn difference(before: &Explained, after: &Explained) -> Option<Difference> {
    let known = |violation: &Violation| before.decision.violations.contains(violation);
    let violations = after.decision.violations.iter();
    let faults = after.decision.outcome.as_ref().err();
    let difference = Difference {
        effect: effect(before, after),
        leaves: leaves(before, after),
        violations: violations.filter(|found| !known(found)).cloned().collect(),
        faults: faults.cloned().unwrap_or_default(),
    };
    let same_faults =
        difference.faults.is_empty() || before.decision.outcome == after.decision.outcome;
    let nothing =
        difference.effect == Effect::None && difference.violations.is_empty() && same_faults;
    (!nothing).then_some(difference)
}

fn effect(before: &Explained, after: &Explained) -> Effect {
    match (before.decision.accepted(), after.decision.accepted()) {
        (None, None) => Effect::None,
        (None, Some(_)) => Effect::Accepted,
        (Some(_), None) => Effect::Refused,
        (Some(_), Some(_)) if before.decision.hash == after.decision.hash => Effect::None,
        (Some(old), Some(new)) => match (&old.pod.place, &new.pod.place) {
            _ if old.pod == new.pod => Effect::Changes,
            (Place::Dedicated(_), Place::Dedicated(_)) => Effect::Restarts,
            _ => Effect::Moves,
        },
    }
}

/// The values that differ. Where what runs is the same, another text for the same amount is no difference.
fn leaves(before: &Explained, after: &Explained) -> Vec<Changed> {
    let both = [before, after].map(|one| one.decision.outcome.as_ref().ok());
    if let [Some(old), Some(new)] = both
        && old == new
    {
        return Vec::new();
    }
    differing(&before.layered, &after.layered)
}

fn differing(before: &Layered, after: &Layered) -> Vec<Changed> {
    let (before, after) = (before.leaves(), after.leaves());
    let find = |leaves: &[Leaf], path: &str| leaves.iter().find(|leaf| leaf.path == path).cloned();
    let gone = before
        .iter()
        .filter(|old| find(&after, &old.path).is_none());
    let mut paths: Vec<&str> = after
        .iter()
        .chain(gone)
        .map(|leaf| leaf.path.as_str())
        .collect();
    paths.sort_unstable();
    let changed = paths.into_iter().filter_map(|path| {
        let (old, new) = (find(&before, path), find(&after, path));
        let value = |leaf: &Option<Leaf>| leaf.as_ref().map(|leaf| leaf.value.clone());
        (value(&old) != value(&new)).then(|| Changed {
            path: path.to_owned(),
            old,
            new,
        })
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Policies, explain},
        *,
    };
    use crate::api::parse_objects;

    /// A pipeline with this worker, under policies before and after; each a name and its `spec`.
    fn between(
        worker: &str,
        before: &[(&str, &str)],
        after: &[(&str, &str)],
    ) -> Option<Difference> {
        let text = format!(
            "{{apiVersion: tidemark.dev/v1alpha1, kind: IngestionPipeline, metadata: {{name: orders, namespace: shop}}, spec: {{source: {{format: DebeziumJson, kafka: {{bootstrapServers: 'k:1', topics: [a]}}}}, sink: {{table: shop.orders, catalog: {{type: Rest, uri: 'http://c'}}}}, worker: {{{worker}}}}}}}"
        );
        let pipeline = parse_objects(&text).unwrap().pipelines.remove(0);
        let [before, after] = [before, after].map(|policies| {
            let documents = policies.iter().map(|(name, spec)| {
                format!("---\n{{apiVersion: tidemark.dev/v1alpha1, kind: IngestionPolicy, metadata: {{name: {name}}}, spec: {{{spec}}}}}\n")
            });
            let objects = parse_objects(&documents.collect::<String>()).unwrap();
            let read = Policies::new(&objects.policies);
            assert!(read.refused().is_empty(), "{:?}", read.refused());
            explain(&pipeline, &std::collections::BTreeMap::new(), &read)
        });
        difference(&before, &after)
    }

    fn shown(difference: &Difference) -> Vec<String> {
        let text = |leaf: &Option<Leaf>| {
            leaf.as_ref().map_or("-".to_owned(), |leaf| {
                format!("{} ({})", leaf.value, leaf.origin)
            })
        };
        let leaves = difference.leaves.iter();
        leaves
            .map(|leaf| format!("{}: {} → {}", leaf.path, text(&leaf.old), text(&leaf.new)))
            .collect()
    }

    #[test]
    fn effect_follows_what_has_to_happen_to_the_pods() {
        let cases = [
            ("", "priority: 3", None),
            ("", "defaults: {finalization: {cell: 60m}}", None),
            ("replicas: 2", "defaults: {worker: {replicas: 3}}", None),
            (
                "",
                "defaults: {worker: {replicas: 3}}",
                Some(Effect::Changes),
            ),
            (
                "",
                "overrides: {finalization: {maxDelay: 11m}}",
                Some(Effect::Changes),
            ),
            (
                "",
                "overrides: {worker: {podLabels: {a: b}}}",
                Some(Effect::Restarts),
            ),
            (
                "",
                "overrides: {worker: {memoryBudget: 512Mi}}",
                Some(Effect::Restarts),
            ),
            (
                "placement: Shared",
                "overrides: {worker: {memoryBudget: 512Mi}}",
                Some(Effect::Changes),
            ),
            (
                "",
                "overrides: {worker: {placement: Shared}}",
                Some(Effect::Moves),
            ),
            (
                "",
                "mode: Enforce, limits: {windowCommits: {min: 4}}",
                Some(Effect::Refused),
            ),
            ("", "limits: {windowCommits: {min: 4}}", Some(Effect::None)),
        ];
        for (worker, spec, expected) in cases {
            let found = between(worker, &[], &[("new", spec)]);
            assert_eq!(found.map(|found| found.effect), expected, "{worker} {spec}");
        }
        let enforce = ("strict", "mode: Enforce, limits: {windowCommits: {min: 4}}");
        let found = between(
            "",
            &[enforce],
            &[
                enforce,
                ("help", "defaults: {finalization: {windowCommits: 5}}"),
            ],
        );
        assert_eq!(found.unwrap().effect, Effect::Accepted);
        assert_eq!(
            between("", &[enforce], &[enforce, ("idle", "priority: 9")]),
            None
        );
    }

    #[test]
    fn values_are_told_with_what_they_were_and_who_says_them() {
        let before = [(
            "base",
            "defaults: {finalization: {cell: 1d, zone: Europe/Berlin}, worker: {podLabels: {cost: a}}}",
        )];
        let after = [(
            "base",
            "defaults: {finalization: {cell: 15m}}, overrides: {worker: {replicas: 4}}",
        )];
        let difference = between("replicas: 2", &before, &after).unwrap();
        let expected = [
            r#"spec.finalization.cell: "1d" (default of policy "base") → "15m" (default of policy "base")"#,
            r#"spec.finalization.zone: "Europe/Berlin" (default of policy "base") → -"#,
            r#"spec.worker.podLabels[cost]: "a" (default of policy "base") → -"#,
            r#"spec.worker.replicas: 2 (pipeline) → 4 (override of policy "base")"#,
        ];
        assert_eq!(shown(&difference), expected);
        assert_eq!(difference.effect, Effect::Restarts);
    }

    /// What was beyond a limit before is no news.
    #[test]
    fn only_new_violations_are_told() {
        let old = ("old", "limits: {replicas: {max: 4}}");
        let new = (
            "new",
            "limits: {replicas: {max: 6}, windowCommits: {min: 9}}",
        );
        let difference = between("replicas: 5", &[old], &[old, new]).unwrap();
        let told: Vec<String> = difference
            .violations
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            [
                r#"spec.finalization.windowCommits is 3 (built-in); the policy "new" allows at least 9"#
            ]
        );
        assert_eq!(difference.effect, Effect::None);
    }
}
