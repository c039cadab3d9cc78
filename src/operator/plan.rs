//! What one pipeline shall be, and which of its children differ from that.
//!
//! Comes in: the decision of the policies, what else stands against it, what was accepted before, what was seen of the children.
//! Goes out: what is wanted, why it is not accepted, and what has to be written. Pure.
//!
//! What is not accepted changes nothing that runs: the last accepted goes on, and can always be made to stand still.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::ResourceExt;

use super::{
    Key, Owner, PoolKey,
    build::{Child, Entry, Kind, Member, Workers, dedicated_name, shared_name, template_of_budget},
    index::{ChildSeen, WorkersSeen, pool_of},
    placement::{Capacity, Need, pack},
    policy::Decision,
    status::Trouble,
};
use crate::api::{
    Reason,
    effective::{Place, Resolved},
    pipeline::IngestionPipeline,
};

/// How many faults or violations a condition names.
const NAMED: usize = 3;

/// How many commit intervals a cell may be open beyond its declared delays before something holds it.
const INTERVALS: i64 = 3;

/// What one pipeline shall be.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Whether what is asked for can be run.
    pub accepted: Result<(), Trouble>,
    /// What is to run: what is asked for, or the last that was accepted; nothing where nothing ever was.
    pub wanted: Option<Arc<Entry>>,
    /// The policies in whose waves it changes.
    pub groups: Vec<String>,
    /// How long after its end a cell may be open before something holds it, µs.
    pub patience_us: i64,
}

impl Plan {
    /// The pool that the pipeline joins, where it shares its pods.
    #[must_use]
    pub fn pool(&self, namespace: &str) -> Option<PoolKey> {
        pool_of(namespace, &self.wanted.as_ref()?.pod)
    }
}

/// Plans a pipeline. `hindrance`: what beside it keeps it from being accepted; `last`: what was accepted before.
#[must_use]
pub fn plan(
    pipeline: &IngestionPipeline,
    decision: &Decision,
    hindrance: Option<&Trouble>,
    last: Option<&Arc<Entry>>,
) -> Plan {
    let accepted = accepted(decision, hindrance);
    // Once seen it is kept, whatever becomes of the status.
    let table = pipeline
        .status
        .as_ref()
        .and_then(|status| status.table_uuid);
    let table = table.or_else(|| last.and_then(|last| last.table_uuid));
    let wanted = if let (Ok(()), Ok(resolved)) = (&accepted, &decision.outcome) {
        Some(Entry::of(resolved, table))
    } else {
        let suspend = pipeline.spec.suspend.unwrap_or_default();
        last.map(|last| last.with_suspend(suspend).with_table(table))
    };
    Plan {
        accepted,
        wanted: wanted.map(Arc::new),
        groups: decision.rollouts.iter().map(ToString::to_string).collect(),
        patience_us: decision.outcome.as_ref().map_or(0, patience_us),
    }
}

fn accepted(decision: &Decision, hindrance: Option<&Trouble>) -> Result<(), Trouble> {
    if let Err(faults) = &decision.outcome {
        let told = faults.iter().map(ToString::to_string);
        return Err(Trouble::new(Reason::SpecInvalid, some_of(told)));
    }
    let mut refusals = decision.refusals().map(ToString::to_string).peekable();
    if refusals.peek().is_some() {
        return Err(Trouble::new(Reason::PolicyViolated, some_of(refusals)));
    }
    hindrance.map_or(Ok(()), |hindrance| Err(hindrance.clone()))
}

fn some_of(told: impl Iterator<Item = String>) -> String {
    let told: Vec<String> = told.collect();
    let more = told.len().saturating_sub(NAMED);
    let named = told[..told.len() - more].join("; ");
    if more == 0 {
        named
    } else {
        format!("{named}; and {more} more")
    }
}

fn patience_us(resolved: &Resolved) -> i64 {
    let (finalization, sink) = (&resolved.spec.finalization, &resolved.spec.sink);
    let delay_us = finalization
        .max_delay_us
        .max(finalization.allowed_lateness_us);
    delay_us + sink.commit_interval_us * INTERVALS
}

/// The workers of a pipeline that has its own; `None` for one that shares them.
#[must_use]
pub fn dedicated(key: &Key, uid: &str, entry: &Arc<Entry>) -> Option<Workers> {
    let Place::Dedicated(template) = &entry.pod.place else {
        return None;
    };
    let member = Member {
        name: key.name.clone(),
        entry: Arc::clone(entry),
    };
    Some(Workers {
        key: Key::new(&key.namespace, &dedicated_name(&key.name)),
        owner: Owner::Pipeline(key.clone()),
        members: BTreeMap::from([(uid.to_owned(), member)]),
        service_account: entry.pod.service_account_name.clone(),
        template: (**template).clone(),
        replicas: if entry.suspend { 0 } else { entry.replicas },
    })
}

/// A pipeline that shares its pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Sharer {
    /// Its name.
    pub name: String,
    /// What it is to run.
    pub entry: Arc<Entry>,
    /// The name of the workers that it is with at present.
    pub with: Option<String>,
}

/// The shared workers of a pool, by uid of those who share them.
#[must_use]
pub fn shared(
    pool: &PoolKey,
    sharers: &BTreeMap<String, Sharer>,
    capacity: &Capacity,
) -> Vec<Workers> {
    let needs = sharers.iter().map(|(uid, sharer)| {
        let need = Need {
            memory_bytes: sharer.entry.memory_budget_bytes,
            replicas: sharer.entry.replicas,
            bin: sharer.with.as_deref().and_then(|name| bin_of(pool, name)),
        };
        (uid.clone(), need)
    });
    let packed = pack(&needs.collect(), capacity);
    let mut bins = BTreeMap::<u32, BTreeMap<String, Member>>::new();
    for (uid, bin) in packed {
        let Sharer { name, entry, .. } = sharers[&uid].clone();
        bins.entry(bin)
            .or_default()
            .insert(uid, Member { name, entry });
    }
    let workers = bins.into_iter().map(|(bin, members)| {
        let held = members
            .values()
            .map(|member| member.entry.memory_budget_bytes)
            .sum::<u64>();
        let running = members.values().filter(|member| !member.entry.suspend);
        Workers {
            key: Key::new(
                &pool.namespace,
                &shared_name(pool.service_account.as_deref(), &pool.pool, bin),
            ),
            owner: Owner::Pool(pool.clone()),
            replicas: running
                .map(|member| member.entry.replicas)
                .max()
                .unwrap_or(0),
            service_account: pool.service_account.clone(),
            template: template_of_budget(held.max(capacity.memory_bytes)),
            members,
        }
    });
    workers.collect()
}

/// The number of workers of a pool, by their name.
fn bin_of(pool: &PoolKey, name: &str) -> Option<u32> {
    let bin: u32 = name.rsplit_once('-')?.1.parse().ok()?;
    let expected = shared_name(pool.service_account.as_deref(), &pool.pool, bin);
    (expected == name).then_some(bin)
}

/// What each child held when it was last written from here.
pub type Contents = BTreeMap<(Kind, Key), u64>;

/// What has to be done about the children of a set of workers.
#[derive(Debug, Default)]
pub struct Work {
    /// To be written, in this order.
    pub write: Vec<Child>,
    /// No longer wanted.
    pub delete: Vec<(Kind, Key, ChildSeen)>,
    /// The pipelines, by uid, for which something changes that can go wrong: none at first, and none that stands still.
    pub changing: BTreeSet<String>,
}

/// Compares children with what was seen. `verify`: those that nobody has written from here are written once more, for what somebody
/// may have changed while nobody watched.
#[must_use]
pub fn work(
    workers: &Workers,
    children: Vec<Child>,
    seen: Option<&WorkersSeen>,
    (contents, verify): (&Contents, bool),
) -> Work {
    let none = WorkersSeen::default();
    let seen = seen.unwrap_or(&none);
    let mut work = Work::default();
    let kinds: BTreeSet<Kind> = children.iter().map(|child| child.kind).collect();
    for child in children {
        let known = seen.child(child.kind);
        let written = contents.get(&(child.kind, child.key.clone()));
        let same = known.is_some_and(|known| known.hash == child.hash);
        let untouched =
            known.is_some_and(|known| written.map_or(!verify, |content| *content == known.content));
        if same && untouched {
            continue;
        }
        if known.is_some() && !same {
            work.changing.extend(changed_by(&child, workers, seen));
        }
        work.write.push(child);
    }
    let surplus = seen
        .children
        .iter()
        .filter(|(kind, _)| !kinds.contains(kind));
    work.delete = surplus
        .map(|(kind, seen)| (*kind, workers.key.clone(), seen.clone()))
        .collect();
    work
}

/// Whom a new version of a child concerns.
fn changed_by(child: &Child, workers: &Workers, seen: &WorkersSeen) -> Vec<String> {
    let runs_now = |uid: &String| seen.entries.get(uid).is_some_and(|entry| !entry.suspend);
    let running = workers
        .members
        .iter()
        .filter(|(uid, member)| runs_now(uid) && !member.entry.suspend);
    let concerned = running.filter(|(uid, member)| match child.kind {
        // Pods restart for all of them, unless only a pipeline came or went.
        Kind::Deployment => {
            let before = seen.child(Kind::Deployment);
            before.is_none_or(|before| before.spec_hash != child.spec_hash)
        }
        Kind::ConfigMap => {
            let before = seen.entries.get(uid);
            before.is_none_or(|before| !before.asks_as(&member.entry))
        }
        Kind::PodDisruptionBudget | Kind::NetworkPolicy => false,
    });
    concerned.map(|(uid, _)| uid.clone()).collect()
}

/// The uid of a pipeline.
#[must_use]
pub fn uid_of(pipeline: &IngestionPipeline) -> String {
    pipeline.uid().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::EffectiveSpec,
        operator::{
            build::{build, tests::settings},
            index::{Changed, DeploymentSeen},
            policy::{Labels, Policies, decide},
        },
    };

    const CAPACITY: Capacity = Capacity {
        memory_bytes: 1 << 30,
        pipelines: 10,
    };

    fn pipeline(name: &str, extra: &str) -> IngestionPipeline {
        let text = format!(
            "
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: {name}, namespace: shop, uid: uid-{name}}}
spec:
  source: {{format: DebeziumJson, kafka: {{bootstrapServers: 'k:1', topics: [a]}}}}
  sink: {{table: shop.{name}, catalog: {{type: Rest, uri: 'http://c'}}, commit: {{interval: 60s}}}}
{extra}"
        );
        serde_yaml::from_str(&text).unwrap()
    }

    /// Decided under these policies, each as `name: spec`.
    fn decided(pipeline: &IngestionPipeline, policies: &[&str]) -> Decision {
        let policies: Vec<_> = policies
            .iter()
            .map(|text| {
                let (name, spec) = text.split_once(": ").unwrap();
                let text = format!("{{apiVersion: tidemark.dev/v1alpha1, kind: IngestionPolicy, metadata: {{name: {name}}}, spec: {spec}}}");
                serde_yaml::from_str(&text).unwrap()
            })
            .collect();
        decide(pipeline, &Labels::new(), &Policies::new(&policies))
    }

    fn entry(name: &str, extra: &str) -> Arc<Entry> {
        let pipeline = pipeline(name, extra);
        let plan = plan(&pipeline, &decided(&pipeline, &[]), None, None);
        assert_eq!(plan.accepted, Ok(()));
        plan.wanted.unwrap()
    }

    #[test]
    fn what_is_accepted_is_what_is_asked_for() {
        let pipeline = pipeline("orders", "  finalization: {maxDelay: 20m}\n");
        let slow = "slow: {rollout: {maxChanging: '1'}}";
        let plan = plan(
            &pipeline,
            &decided(&pipeline, &[slow, "plain: {}"]),
            None,
            None,
        );
        let entry = plan.wanted.clone().unwrap();
        let spec = EffectiveSpec::from_yaml(&entry.spec).unwrap();
        assert_eq!(
            (spec.hash(), spec.finalization.max_delay_us),
            (entry.runs.clone(), 1_200_000_000)
        );
        let expected = Plan {
            accepted: Ok(()),
            wanted: Some(entry),
            groups: vec!["slow".into()],
            patience_us: 1_380_000_000,
        };
        assert_eq!(plan, expected);
    }

    /// A limit that comes later stops nothing that runs.
    #[test]
    fn violator_goes_on_with_what_was_accepted_and_can_be_suspended() {
        let last = entry("orders", "");
        let suspended = pipeline(
            "orders",
            "  suspend: true\n  finalization: {maxDelay: 20m}\n",
        );
        let limit = "strict: {mode: Enforce, limits: {maxDelay: {max: 15m}}}";
        let plan = plan(
            &suspended,
            &decided(&suspended, &[limit]),
            None,
            Some(&last),
        );
        let told = plan.accepted.unwrap_err();
        assert_eq!(told.reason, Reason::PolicyViolated);
        assert!(
            told.message.contains("strict") && told.message.contains("maxDelay"),
            "{}",
            told.message
        );
        let wanted = plan.wanted.unwrap();
        assert_eq!(*wanted, last.with_suspend(true));
        assert_eq!(
            dedicated(&Key::new("shop", "orders"), "u", &wanted)
                .unwrap()
                .replicas,
            0
        );
    }

    #[test]
    fn violator_of_an_audit_is_accepted_and_one_that_never_was_runs_not_at_all() {
        let pipeline = pipeline("orders", "  finalization: {maxDelay: 20m}\n");
        let limit = "soft: {mode: Audit, limits: {maxDelay: {max: 15m}}}";
        assert_eq!(
            plan(&pipeline, &decided(&pipeline, &[limit]), None, None).accepted,
            Ok(())
        );
        let limit = limit.replace("Audit", "Enforce");
        let refused = plan(&pipeline, &decided(&pipeline, &[&limit]), None, None);
        assert_eq!(refused.wanted, None);
    }

    #[test]
    fn wrong_specification_names_its_faults_and_whatever_stands_against_it_counts() {
        let wrong = pipeline("orders", "  finalization: {cell: 7h, maxDelay: 9999h}\n");
        let told = plan(&wrong, &decided(&wrong, &[]), None, None)
            .accepted
            .unwrap_err();
        assert_eq!(told.reason, Reason::SpecInvalid);
        assert!(
            told.message.contains("finalization.cell") && told.message.contains("maxDelay"),
            "{}",
            told.message
        );
        let taken = Trouble::new(Reason::TableTaken, "table \"shop.orders\"");
        let fine = pipeline("orders", "");
        let told = plan(&fine, &decided(&fine, &[]), Some(&taken), None);
        assert_eq!((told.accepted, told.wanted), (Err(taken), None));
    }

    /// The worker says in the status which table it is; from then on it stays so.
    #[test]
    fn table_once_seen_stays_known() {
        let fresh = pipeline("orders", "");
        let known = |pipeline: &IngestionPipeline, last: Option<&Arc<Entry>>| {
            let entry = plan(pipeline, &decided(pipeline, &[]), None, last)
                .wanted
                .unwrap();
            let spec = EffectiveSpec::from_yaml(&entry.spec).unwrap();
            assert_eq!(spec.sink.known_table, entry.table_uuid);
            (entry.table_uuid, entry)
        };
        assert_eq!(known(&fresh, None).0, None);
        let mut seen = fresh.clone();
        seen.status = Some(crate::api::status::IngestionPipelineStatus {
            table_uuid: Some(uuid::Uuid::from_u128(7)),
            ..Default::default()
        });
        let (table, entry) = known(&seen, None);
        assert_eq!(table, Some(uuid::Uuid::from_u128(7)));
        assert_eq!(
            known(&fresh, Some(&entry)).0,
            table,
            "a status that was lost takes nothing back"
        );
        let wrong = pipeline("orders", "  finalization: {cell: 7h}\n");
        assert_eq!(known(&wrong, Some(&entry)).0, table);
    }

    fn seen_of(workers: &Workers) -> WorkersSeen {
        let children = build(workers, &settings()).into_iter().map(|child| {
            let seen = ChildSeen {
                uid: "u".into(),
                hash: child.hash,
                content: 7,
                ..ChildSeen::default()
            };
            (child.kind, seen)
        });
        WorkersSeen {
            owner: Some(workers.owner.clone()),
            children: children.collect(),
            entries: workers
                .members
                .iter()
                .map(|(uid, member)| (uid.clone(), Arc::clone(&member.entry)))
                .collect::<BTreeMap<_, _>>()
                .into(),
            deployment: DeploymentSeen::default(),
        }
    }

    fn workers(extra: &str) -> Workers {
        dedicated(
            &Key::new("shop", "orders"),
            "uid-orders",
            &entry("orders", extra),
        )
        .unwrap()
    }

    /// What is written and deleted, and for whom it is a change.
    fn told(
        new: &Workers,
        seen: Option<&WorkersSeen>,
        contents: &Contents,
        verify: bool,
    ) -> (Vec<Kind>, Vec<Kind>, usize) {
        let work = work(new, build(new, &settings()), seen, (contents, verify));
        let written = work.write.iter().map(|child| child.kind).collect();
        let deleted = work.delete.iter().map(|(kind, _, _)| *kind).collect();
        (written, deleted, work.changing.len())
    }

    #[test]
    fn only_what_differs_is_written() {
        use Kind::{ConfigMap, Deployment, PodDisruptionBudget};
        let none = Contents::new();
        let old = workers("");
        let seen = seen_of(&old);
        assert_eq!(
            told(&old, None, &none, false),
            (vec![ConfigMap, Deployment], vec![], 0)
        );
        assert_eq!(told(&old, Some(&seen), &none, false), (vec![], vec![], 0));
        let bound = workers("  finalization: {maxDelay: 20m}\n");
        assert_eq!(
            told(&bound, Some(&seen), &none, false),
            (vec![ConfigMap], vec![], 1)
        );
        let two = workers("  worker: {replicas: 2}\n");
        assert_eq!(
            told(&two, Some(&seen), &none, false),
            (vec![ConfigMap, PodDisruptionBudget, Deployment], vec![], 1)
        );
        assert_eq!(
            told(&old, Some(&seen_of(&two)), &none, false),
            (vec![ConfigMap, Deployment], vec![PodDisruptionBudget], 1)
        );
    }

    /// Somebody's `kubectl edit` leaves the hash as it was.
    #[test]
    fn what_somebody_changed_is_written_again_and_is_no_change() {
        let workers = workers("");
        let seen = seen_of(&workers);
        let contents =
            |content| Contents::from([((Kind::Deployment, workers.key.clone()), content)]);
        assert_eq!(
            told(&workers, Some(&seen), &contents(7), false),
            (vec![], vec![], 0)
        );
        assert_eq!(
            told(&workers, Some(&seen), &contents(6), false),
            (vec![Kind::Deployment], vec![], 0)
        );
        // After a start nobody knows; the sweep writes once what it has not written itself.
        assert_eq!(
            told(&workers, Some(&seen), &contents(7), true),
            (vec![Kind::ConfigMap], vec![], 0)
        );
    }

    /// Nothing that runs is put at risk by it, so it waits for nobody.
    #[test]
    fn suspending_and_going_on_is_no_change() {
        let (running, still) = (workers(""), workers("  suspend: true\n"));
        let none = Contents::new();
        assert_eq!(told(&still, Some(&seen_of(&running)), &none, false).2, 0);
        assert_eq!(told(&running, Some(&seen_of(&still)), &none, false).2, 0);
    }

    #[test]
    fn sharers_stay_where_they_are_and_one_more_comes_in() {
        let pool = PoolKey {
            namespace: "shop".into(),
            service_account: None,
            pool: "small".into(),
        };
        let sharer = |name: &str, more: &str, with: Option<&str>| {
            let entry = entry(
                name,
                &format!(
                    "  worker: {{placement: Shared, pool: small, memoryBudget: 512Mi}}\n{more}"
                ),
            );
            (
                format!("uid-{name}"),
                Sharer {
                    name: name.into(),
                    entry,
                    with: with.map(str::to_owned),
                },
            )
        };
        let sharers = BTreeMap::from([
            sharer("a", "", Some("small-tidemark-3")),
            sharer("b", "  suspend: true\n", Some("small-tidemark-1")),
            sharer("c", "", None),
            sharer("d", "", Some("other-tidemark-0")),
        ]);
        let sets = shared(&pool, &sharers, &CAPACITY);
        let told: Vec<_> = sets
            .iter()
            .map(|set| {
                (
                    set.key.name.as_str(),
                    set.members.keys().map(String::as_str).collect::<Vec<_>>(),
                    set.replicas,
                )
            })
            .collect();
        let expected = [
            ("small-tidemark-1", vec!["uid-b", "uid-c"], 1),
            ("small-tidemark-3", vec!["uid-a", "uid-d"], 1),
        ];
        assert_eq!(told, expected);
        assert_eq!(sets[0].template, template_of_budget(1 << 30));
        let still = BTreeMap::from([sharer("b", "  suspend: true\n", None)]);
        assert_eq!(shared(&pool, &still, &CAPACITY)[0].replicas, 0);
    }

    #[test]
    fn last_change_is_that_of_the_latest_child() {
        let changed = |at_us| {
            Some(Changed {
                at_us,
                was_ready: at_us == 5,
            })
        };
        let mut seen = seen_of(&workers(""));
        assert_eq!(seen.changed(), None);
        for ((_, child), at_us) in seen.children.iter_mut().zip([5, 3]) {
            child.changed = changed(at_us);
        }
        assert_eq!(seen.changed(), changed(5));
    }
}
