//! The statuses of policies: watched on every replica, counted from what was decided and written by the leader.
//!
//! Comes in: policies as the watch brings them, decisions about pipelines, how far changes have got. Goes out: statuses to the writer.
//!
//! Nothing is said before every pipeline was decided once: a count of half the fleet would be wrong. A policy that cannot be decoded
//! says so in its own status, and stops no other.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt};
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    Key,
    lease::Leadership,
    policy::{Decision, Labels, Policies, ReadPolicy},
    policy_status::{Situation, Told, Wave, derive, tally},
    writer::{NewStatus, Outcome, Taken, Urgency, WRITE_TIMEOUT, Write, Writer, Written},
};
use crate::{
    api::policy::{IngestionPolicy, IngestionPolicySpec, IngestionPolicyStatus},
    process::clock::Clock,
    sensor::chain,
};

/// How often statuses are derived, where something has changed: counts move with every step of a wave.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// In how many such turns they are derived in any case: a write may be lost.
const TURNS: u64 = 12;

/// What is said of policies. Clones are the same.
#[derive(Clone)]
pub struct PolicyReports {
    inner: Arc<Mutex<Inner>>,
    context: PolicyReportContext,
}

impl fmt::Debug for PolicyReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolicyReports")
    }
}

/// What saying it needs.
#[derive(Debug, Clone)]
pub struct PolicyReportContext {
    /// Who writes statuses.
    pub writer: Writer,
    /// Whether this replica leads.
    pub leadership: Leadership,
    /// The time.
    pub clock: Clock,
}

#[derive(Default)]
struct Inner {
    /// By name.
    policies: BTreeMap<String, Seen>,
    /// What was decided about each pipeline, as far as policies have a part in it.
    told: BTreeMap<Key, Told>,
    /// How far changes have got, by the name of the policy.
    waves: BTreeMap<String, Wave>,
    /// Whether every pipeline was decided once.
    is_complete: bool,
    has_changed: bool,
    /// The labels of the namespaces that this operator looks after; `None`: all there are.
    scope: Option<Vec<Labels>>,
}

struct Seen {
    /// Of one that cannot be read no more than whose it is and what was said of it.
    object: IngestionPolicy,
    /// Why it cannot be read.
    unread: Option<String>,
    /// The status that it shall have, until that is settled.
    submitted: Option<IngestionPolicyStatus>,
}

impl Seen {
    /// Whether it is about any of these namespaces.
    fn is_of(&self, scope: Option<&[Labels]>) -> bool {
        let selector = self.object.spec.namespace_selector.as_ref();
        let matches = |labels: &Labels| selector.is_none_or(|selector| selector.matches(labels));
        scope.is_none_or(|scope| scope.iter().any(matches))
    }
}

impl PolicyReports {
    /// Of no policies.
    #[must_use]
    pub fn new(context: PolicyReportContext) -> Self {
        Self {
            inner: Arc::default(),
            context,
        }
    }

    /// What was decided about a pipeline.
    pub fn decided(&self, key: &Key, decision: &Decision) {
        let told = Told::of(decision);
        let mut inner = self.lock();
        if inner.told.get(key) != Some(&told) {
            inner.told.insert(key.clone(), told);
            inner.has_changed = true;
        }
    }

    /// A pipeline that is gone.
    pub fn gone(&self, key: &Key) {
        let mut inner = self.lock();
        let known = inner.told.remove(key).is_some();
        inner.has_changed |= known;
    }

    /// How far changes have got over the pipelines of each policy with a `rollout`.
    pub fn roll(&self, waves: BTreeMap<String, Wave>) {
        let mut inner = self.lock();
        if inner.waves != waves {
            inner.waves = waves;
            inner.has_changed = true;
        }
    }

    /// This operator looks after namespaces with these labels and no others: a policy that selects none of them is counted by
    /// somebody else, who would write the opposite.
    pub fn confine_to(&self, namespaces: Vec<Labels>) {
        let mut inner = self.lock();
        if inner.scope.as_ref() != Some(&namespaces) {
            inner.scope = Some(namespaces);
            inner.has_changed = true;
        }
    }

    /// Every pipeline was decided once since this replica leads.
    pub fn complete(&self) {
        let mut inner = self.lock();
        inner.has_changed |= !inner.is_complete;
        inner.is_complete = true;
    }

    /// Another replica leads, and decides.
    pub fn step_down(&self) {
        let mut inner = self.lock();
        inner.told.clear();
        inner.waves.clear();
        inner.is_complete = false;
        for seen in inner.policies.values_mut() {
            seen.submitted = None;
        }
    }

    /// Watches and says until `stop`.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        let api: Api<ReadPolicy> = Api::all(client);
        let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.watch(events) => {}
            () = self.look() => {}
        }
    }

    async fn watch(&self, events: impl Stream<Item = Result<Event<ReadPolicy>, watcher::Error>>) {
        let mut events = std::pin::pin!(events);
        let mut fresh: Vec<String> = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => fresh.clear(),
                Ok(Event::InitApply(object)) => fresh.push(self.seen(object)),
                Ok(Event::InitDone) => self.lock().policies.retain(|name, _| fresh.contains(name)),
                Ok(Event::Apply(object)) => drop(self.seen(object)),
                Ok(Event::Delete(object)) => {
                    let mut inner = self.lock();
                    inner.policies.remove(&object.name());
                    inner.has_changed = true;
                }
                Err(error) => debug!(
                    error = chain(&error),
                    "policies cannot be watched at present"
                ),
            }
        }
    }

    fn seen(&self, object: ReadPolicy) -> String {
        let (mut object, unread) = match object {
            ReadPolicy::Whole(object) => (*object, None),
            ReadPolicy::Unread(policy) => {
                let object = IngestionPolicy {
                    metadata: policy.metadata,
                    spec: IngestionPolicySpec::default(),
                    status: policy.status,
                };
                (object, Some(policy.error))
            }
        };
        object.metadata.managed_fields = None;
        let name = object.name_any();
        let mut inner = self.lock();
        let before = inner.policies.remove(&name);
        // Of a status alone, as this replica has written it, nothing new follows.
        let same = |before: &Seen| before.object.metadata.generation == object.metadata.generation;
        inner.has_changed |= !before.as_ref().is_some_and(same);
        let seen = Seen {
            object,
            unread,
            submitted: before.and_then(|before| before.submitted),
        };
        inner.policies.insert(name.clone(), seen);
        name
    }

    /// What became of a write.
    pub fn written(&self, written: &Written) {
        let NewStatus::Policy(status) = &written.write.status else {
            return;
        };
        let mut inner = self.lock();
        // What was not written is derived again from what the object is by then.
        inner.has_changed |= matches!(written.outcome, Outcome::Stale | Outcome::Lost);
        let Some(seen) = inner.policies.get_mut(&written.write.key.name) else {
            return;
        };
        if seen.object.uid().as_deref() != Some(&written.write.uid) {
            return;
        }
        if let Outcome::Done(version) = &written.outcome {
            seen.object.status = Some((**status).clone());
            seen.object.metadata.resource_version = Some(version.clone());
        }
        if seen.submitted.as_ref() == Some(&**status) && written.outcome != Outcome::Refused {
            seen.submitted = None;
        }
    }

    async fn look(&self) {
        for turn in 1_u64.. {
            self.context.clock.sleep(LOOK_EVERY).await;
            let is_due = turn.is_multiple_of(TURNS);
            let mut inner = self.lock();
            if inner.is_complete && (inner.has_changed || is_due) {
                inner.has_changed = false;
                self.say(&mut inner);
            }
        }
    }

    fn say(&self, inner: &mut Inner) {
        let leads = self.context.leadership.may_start(WRITE_TIMEOUT);
        let whole = inner.policies.values().filter(|seen| seen.unread.is_none());
        let policies = Policies::new(whole.map(|seen| &seen.object));
        let tallies = tally(&inner.told);
        let still = Wave::default();
        for (name, seen) in &mut inner.policies {
            if !leads || !seen.is_of(inner.scope.as_deref()) {
                seen.submitted = None;
                continue;
            }
            let situation = Situation {
                policies: &policies,
                unread: seen.unread.as_deref(),
                tally: tallies.get(name.as_str()),
                wave: inner.waves.get(name).unwrap_or(&still),
                now_us: self.context.clock.now_us(),
            };
            let told = seen.submitted.as_ref().or(seen.object.status.as_ref());
            let Some(status) = derive(&seen.object, told, &situation) else {
                continue;
            };
            let status = Box::new(status);
            let write = Write {
                key: Key::new("", name),
                uid: seen.object.uid().unwrap_or_default(),
                resource_version: seen.object.resource_version().unwrap_or_default(),
                status: NewStatus::Policy(status.clone()),
            };
            let taken = self.context.writer.submit(write, Urgency::Condition);
            seen.submitted = (taken != Taken::Dropped).then_some(*status);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::counts::Counts;

    /// The policies whose statuses would be written, by name.
    fn said(reports: &PolicyReports) -> Vec<String> {
        reports.say(&mut reports.lock());
        let written = std::iter::from_fn(|| reports.context.writer.next());
        let mut names: Vec<String> = written.map(|write| write.key.name).collect();
        names.sort();
        names
    }

    /// Two operators that look after other namespaces would write the opposite of each other into one status.
    #[tokio::test]
    async fn policy_that_selects_none_of_the_namespaces_is_counted_by_somebody_else() {
        let clock = Clock::system();
        let reports = PolicyReports::new(PolicyReportContext {
            writer: Writer::new(Counts::default()),
            leadership: Leadership::held(clock.clone()),
            clock,
        });
        for (name, spec) in [
            ("all", "{}"),
            ("gold", "{namespaceSelector: {matchLabels: {tier: gold}}}"),
        ] {
            let text = format!(
                "{{apiVersion: tidemark.dev/v1alpha1, kind: IngestionPolicy, metadata: {{name: {name}, uid: {name}, generation: 1}}, spec: {spec}}}"
            );
            reports.seen(serde_yaml::from_str(&text).unwrap());
        }
        let tier = |tier: &str| Labels::from([("tier".to_owned(), tier.to_owned())]);
        reports.confine_to(Vec::new());
        assert_eq!(said(&reports), [""; 0], "no namespace is known yet");
        reports.confine_to(vec![tier("basic")]);
        assert_eq!(said(&reports), ["all"]);
        reports.confine_to(vec![tier("basic"), tier("gold")]);
        assert_eq!(said(&reports), ["gold"], "and the other is under way");
    }
}
