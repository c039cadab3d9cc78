//! Whether a gate is final, and what it waits for.
//!
//! Pure: a gate, what is known of the pipelines of its namespace, and the time. A gate that was final once stays so: whoever
//! waited for it has read the tables by then.

use std::{collections::BTreeSet, sync::Arc};

use super::super::{claims::Known, status};
use crate::{
    api::{
        Reason,
        gate::{FinalizationGate, FinalizationGateSpec, FinalizationGateStatus, WaitingPipeline},
        pipeline::InstantText,
        quantity::{instant, parse_instant_us, parse_length_us},
        schema::{ConditionStatus, StatusCondition},
        worker,
    },
    sensor::{Question, Verdict},
    watermark::Term,
};

/// How many that are waited for are named.
const MOST_NAMED: usize = 10;

/// The longest message about one of them.
const MESSAGE_CHARS: usize = 256;

const SECOND_US: i64 = 1_000_000;

/// The new status; `None`: there is nothing to write.
#[must_use]
pub fn derive(
    gate: &FinalizationGate,
    known: &[Arc<Known>],
    now_us: i64,
) -> Option<FinalizationGateStatus> {
    let old = gate.status.clone().unwrap_or_default();
    if is_final(&old) {
        return None;
    }
    let (all, waiting) = look(&gate.spec, known);
    let now_us = now_us.div_euclid(SECOND_US) * SECOND_US;
    let is_final = waiting.is_empty();
    let before = status::condition_of(&old.conditions, "Final");
    let finding = StatusCondition {
        kind: "Final".to_owned(),
        status: if is_final {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        },
        ..told(all, &waiting)
    };
    let since = before.filter(|before| before.status == finding.status);
    let new = FinalizationGateStatus {
        conditions: vec![StatusCondition {
            last_transition_time: since.map_or_else(
                || instant(now_us),
                |before| before.last_transition_time.clone(),
            ),
            observed_generation: gate.metadata.generation,
            ..finding
        }],
        ready: Some(format!("{}/{all}", all.saturating_sub(waiting.len()))),
        final_at: is_final.then(|| InstantText(instant(now_us))),
        waiting: waiting.into_iter().take(MOST_NAMED).collect(),
    };
    is_news(&new, &old).then_some(new)
}

/// Whether a gate is final.
#[must_use]
pub fn is_final(status: &FinalizationGateStatus) -> bool {
    let found = status::condition_of(&status.conditions, "Final");
    found.is_some_and(|found| found.status == ConditionStatus::True)
}

/// When a gate is to be deleted, µs; `None`: not as things stand.
#[must_use]
pub fn ends_at_us(gate: &FinalizationGate) -> Option<i64> {
    let status = gate.status.as_ref().filter(|status| is_final(status))?;
    let since_us = parse_instant_us(&status.final_at.as_ref()?.0)?;
    let lasts_us = parse_length_us(&gate.spec.ttl_after_final.as_ref()?.0)?;
    Some(since_us.saturating_add(lasts_us))
}

/// Whether anything has changed but numbers within messages.
fn is_news(new: &FinalizationGateStatus, old: &FinalizationGateStatus) -> bool {
    let names = |status: &FinalizationGateStatus| -> Vec<(String, String)> {
        let waiting = status.waiting.iter();
        waiting
            .map(|one| (one.name.clone(), one.reason.clone()))
            .collect()
    };
    let conditions = status::is_news_between(&new.conditions, &old.conditions);
    conditions || new.ready != old.ready || names(new) != names(old)
}

/// What the condition says.
fn told(all: usize, waiting: &[WaitingPipeline]) -> StatusCondition {
    let lost = waiting
        .iter()
        .find(|one| one.reason == Reason::RowsMissing.label());
    let reason = match lost.or(waiting.first()) {
        None => Reason::AsExpected,
        Some(one) => Reason::of_label(&one.reason),
    };
    let ready = all.saturating_sub(waiting.len());
    let message = if waiting.is_empty() {
        String::new()
    } else {
        format!("{ready} of {all} are final; {}", reason.remedy())
    };
    StatusCondition {
        kind: String::new(),
        status: ConditionStatus::False,
        reason: reason.label().to_owned(),
        message,
        last_transition_time: String::new(),
        observed_generation: None,
    }
}

/// How many are waited for in all, and those of them that are not final.
fn look(spec: &FinalizationGateSpec, known: &[Arc<Known>]) -> (usize, Vec<WaitingPipeline>) {
    let Some(before_us) = parse_instant_us(&spec.before.0) else {
        return (
            1,
            vec![waiting(
                &spec.before.0,
                Reason::SpecInvalid,
                "spec.before is no instant",
            )],
        );
    };
    let from = spec.from.as_ref().map(|from| parse_instant_us(&from.0));
    if from.is_some_and(|from_us| from_us.is_none_or(|from_us| from_us >= before_us)) {
        return (
            1,
            vec![waiting(
                &spec.before.0,
                Reason::SpecInvalid,
                "spec.from is no instant before spec.before",
            )],
        );
    }
    let question = Question {
        from_us: from.flatten(),
        before_us,
        accept: spec
            .accept
            .as_ref()
            .map(|terms| terms.iter().map(|term| core(*term)).collect()),
        foreign: BTreeSet::new(),
    };
    let wanted = wanted(spec, known);
    if wanted.is_empty() {
        let none = waiting("", Reason::PipelineNotFound, "no pipeline has these labels");
        return (1, vec![none]);
    }
    let open = wanted.iter().filter_map(|(name, known)| match known {
        Some(known) => judge(name, known, &question),
        None => Some(waiting(name, Reason::PipelineNotFound, "")),
    });
    (wanted.len(), open.collect())
}

/// Each one that is waited for by name, with its pipeline where there is one.
fn wanted<'a>(
    spec: &FinalizationGateSpec,
    known: &'a [Arc<Known>],
) -> Vec<(String, Option<&'a Known>)> {
    if let Some(names) = &spec.pipelines {
        let of = |name: &String| known.iter().find(|known| known.key.name == *name);
        let all: BTreeSet<&String> = names.iter().collect();
        return all
            .into_iter()
            .map(|name| (name.clone(), of(name).map(|known| &**known)))
            .collect();
    }
    if let Some(tables) = &spec.tables {
        // Of several pipelines that write a table, the one that has seen the newest claim.
        let of = |table: &String| {
            let writers = known.iter().filter(|known| known.kept.table == *table);
            writers.max_by_key(|known| (known.status.epoch, known.finalized_before_us()))
        };
        let all: BTreeSet<&String> = tables.iter().collect();
        return all
            .into_iter()
            .map(|table| (table.clone(), of(table).map(|known| &**known)))
            .collect();
    }
    let selector = spec.selector.clone().unwrap_or_default();
    let selected = known
        .iter()
        .filter(|known| selector.matches(&known.kept.labels));
    selected
        .map(|known| (known.key.name.clone(), Some(&**known)))
        .collect()
}

fn judge(name: &str, known: &Known, question: &Question) -> Option<WaitingPipeline> {
    let far = || {
        known.status.finalized_before.as_ref().map_or_else(
            || "nothing is final yet".to_owned(),
            |before| format!("final before {} so far", before.0),
        )
    };
    match known.judge(question) {
        Verdict::Ready => None,
        Verdict::NotYet => Some(waiting(name, Reason::NotFinal, &far())),
        Verdict::Incomplete(why) => Some(waiting(name, Reason::RowsMissing, &why)),
        Verdict::Held(why) => Some(waiting(name, Reason::ClaimHeld, &why)),
        Verdict::OtherEvidence => Some(waiting(
            name,
            Reason::OtherEvidence,
            &format!(
                "it rests on {}",
                known
                    .status
                    .evidence
                    .as_deref()
                    .unwrap_or("nothing that is known")
            ),
        )),
    }
}

fn waiting(name: &str, reason: Reason, message: &str) -> WaitingPipeline {
    WaitingPipeline {
        name: name.to_owned(),
        reason: reason.label().to_owned(),
        message: message.chars().take(MESSAGE_CHARS).collect(),
    }
}

fn core(term: worker::Term) -> Term {
    match term {
        worker::Term::Resolved => Term::Resolved,
        worker::Term::Minimum => Term::Minimum,
        worker::Term::Heartbeat => Term::Heartbeat,
        worker::Term::CaughtUp => Term::CaughtUp,
        worker::Term::Percentile => Term::Percentile,
        worker::Term::Clock => Term::Clock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{
        Key,
        claims::tests::{change, kept, orders, today},
    };

    fn gate(spec: &str) -> FinalizationGate {
        let yaml = format!(
            "{{metadata: {{name: g, namespace: shop, generation: 1}}, spec: {spec}, apiVersion: tidemark.dev/v1alpha1, kind: FinalizationGate}}"
        );
        serde_yaml::from_str(&yaml).unwrap()
    }

    /// `orders` is final up to 12:00, `items` up to 11:00.
    fn two() -> Vec<Arc<Known>> {
        let mut items = Known {
            key: Key::new("shop", "items"),
            kept: Arc::new(kept("u", "a", "shop.items")),
            ..orders()
        };
        change(&mut items, |status| {
            status.finalized_before = Some(InstantText(today("11:00")));
        });
        vec![Arc::new(items), Arc::new(orders())]
    }

    fn noon() -> i64 {
        parse_instant_us(&today("12:20")).unwrap()
    }

    /// Each reason that is waited for, and the condition's own.
    fn reasons(spec: &str) -> (String, Vec<String>, String) {
        let status = derive(&gate(spec), &two(), noon()).unwrap();
        let waiting = status
            .waiting
            .iter()
            .map(|one| format!("{} {}", one.name, one.reason));
        (
            status.ready.clone().unwrap(),
            waiting.collect(),
            status.conditions[0].reason.clone(),
        )
    }

    fn says(before: &str, rest: &str, expected: (&str, &[&str], &str)) {
        let spec = format!("{{before: '{}', {rest}}}", today(before));
        let (ready, waiting, reason) = expected;
        let waiting: Vec<String> = waiting.iter().map(|one| (*one).to_owned()).collect();
        let expected = (ready.to_owned(), waiting, reason.to_owned());
        assert_eq!(reasons(&spec), expected, "{spec}");
    }

    #[test]
    fn gate_says_what_it_waits_for() {
        let none = "PipelineNotFound";
        says(
            "11:00",
            "pipelines: [orders, items]",
            ("2/2", &[], "AsExpected"),
        );
        says(
            "12:00",
            "pipelines: [orders, items]",
            ("1/2", &["items NotFinal"], "NotFinal"),
        );
        says(
            "12:00",
            "pipelines: [orders, carts]",
            ("1/2", &["carts PipelineNotFound"], none),
        );
        says("12:00", "tables: [shop.orders]", ("1/1", &[], "AsExpected"));
        says(
            "12:00",
            "tables: [shop.carts, shop.orders]",
            ("1/2", &["shop.carts PipelineNotFound"], none),
        );
        says(
            "12:00",
            "selector: {matchLabels: {team: a}}",
            ("1/2", &["items NotFinal"], "NotFinal"),
        );
        says(
            "12:00",
            "selector: {matchLabels: {team: b}}",
            ("0/1", &[" PipelineNotFound"], none),
        );
        says(
            "12:00",
            "pipelines: [orders], accept: [CaughtUp]",
            ("0/1", &["orders OtherEvidence"], "OtherEvidence"),
        );
    }

    #[test]
    fn time_that_can_never_be_final_is_told() {
        let from =
            |time: &str, names: &str| format!("pipelines: [{names}], from: '{}'", today(time));
        let lost: &[&str] = &["items NotFinal", "orders RowsMissing"];
        says(
            "12:00",
            &from("07:00", "orders, items"),
            ("0/2", lost, "RowsMissing"),
        );
        let wrong: &[&str] = &["2026-11-30T12:00:00Z SpecInvalid"];
        says(
            "12:00",
            &from("12:00", "orders"),
            ("0/1", wrong, "SpecInvalid"),
        );
    }

    /// Whoever waited has read the tables by then: what becomes of them later is another matter.
    #[test]
    fn final_once_and_for_good() {
        let mut gate = gate(&format!(
            "{{before: '{}', pipelines: [orders], ttlAfterFinal: 1h}}",
            today("12:00")
        ));
        let status = derive(&gate, &two(), noon()).unwrap();
        assert!(is_final(&status));
        assert_eq!(status.final_at, Some(InstantText(today("12:20"))));
        assert_eq!(ends_at_us(&gate), None);
        gate.status = Some(status);
        assert_eq!(derive(&gate, &[], noon()), None);
        assert_eq!(ends_at_us(&gate), parse_instant_us(&today("13:20")));
    }

    #[test]
    fn only_a_step_is_written() {
        let mut gate = gate(&format!(
            "{{before: '{}', pipelines: [orders, items]}}",
            today("13:00")
        ));
        let mut known = two();
        gate.status = derive(&gate, &known, noon());
        assert!(gate.status.is_some());
        change(Arc::make_mut(&mut known[0]), |status| {
            status.finalized_before = Some(InstantText(today("12:00")));
        });
        assert_eq!(
            derive(&gate, &known, noon()),
            None,
            "it got further, and is still waited for"
        );
        change(Arc::make_mut(&mut known[0]), |status| {
            status.finalized_before = Some(InstantText(today("13:00")));
        });
        assert_eq!(
            derive(&gate, &known, noon()).unwrap().ready.as_deref(),
            Some("1/2")
        );
    }
}
