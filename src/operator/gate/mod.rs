//! `FinalizationGate`: watched on every replica, judged and written by the leader, deleted when its time is over.
//!
//! Comes in: gates as the watch brings them, and the claims that this replica knows. Goes out: statuses to the writer.
//!
//! A gate that cannot be decoded is named in the log and stops no other.

mod verdict;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Preconditions},
    core::{DeserializeGuard, ObjectMeta},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Key,
    claims::Claims,
    lease::Leadership,
    writer::{NewStatus, Outcome, Urgency, WRITE_TIMEOUT, Write, Writer, Written},
};
use crate::{
    api::gate::{FinalizationGate, FinalizationGateStatus},
    process::clock::Clock,
    sensor::chain,
};

pub use verdict::{derive, ends_at_us, is_final};

/// How often gates are looked at, where a claim has changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// In how many such turns they are looked at in any case: a write may be lost, a time may be over.
const TURNS: u64 = 15;

/// The gates. Clones are the same.
#[derive(Clone)]
pub struct Gates {
    inner: Arc<Mutex<BTreeMap<Key, Gate>>>,
    context: GateContext,
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gates")
    }
}

/// What gates need.
#[derive(Debug, Clone)]
pub struct GateContext {
    /// What is known of pipelines.
    pub claims: Claims,
    /// Who writes statuses.
    pub writer: Writer,
    /// Whether this replica leads.
    pub leadership: Leadership,
    /// The time.
    pub clock: Clock,
}

struct Gate {
    object: FinalizationGate,
    /// The status that it shall have, until that is settled.
    submitted: Option<FinalizationGateStatus>,
}

impl Gates {
    /// Of none.
    #[must_use]
    pub fn new(context: GateContext) -> Self {
        Self {
            inner: Arc::default(),
            context,
        }
    }

    /// Watches and judges until `stop`. `namespace`: only there; `None`: everywhere.
    pub async fn run(self, client: Client, namespace: Option<&str>, stop: CancellationToken) {
        let api: Api<DeserializeGuard<FinalizationGate>> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.watch(events) => {}
            () = self.look(client) => {}
        }
    }

    async fn watch(
        &self,
        events: impl Stream<Item = Result<Event<DeserializeGuard<FinalizationGate>>, watcher::Error>>,
    ) {
        let mut events = std::pin::pin!(events);
        let mut fresh: Option<Vec<Key>> = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => fresh = Some(Vec::new()),
                Ok(Event::InitApply(object)) => {
                    let key = self.seen(object.0);
                    if let (Some(fresh), Some(key)) = (&mut fresh, key) {
                        fresh.push(key);
                    }
                }
                Ok(Event::InitDone) => {
                    if let Some(fresh) = fresh.take() {
                        self.gates().retain(|key, _| fresh.contains(key));
                    }
                }
                Ok(Event::Apply(object)) => {
                    self.seen(object.0);
                }
                Ok(Event::Delete(object)) => {
                    let key = match &object.0 {
                        Ok(gate) => key_of(&gate.metadata),
                        Err(invalid) => key_of(&invalid.metadata),
                    };
                    self.gates().remove(&key);
                }
                Err(error) => debug!(error = chain(&error), "gates cannot be watched at present"),
            }
        }
    }

    fn seen(
        &self,
        object: Result<FinalizationGate, kube::core::error_boundary::InvalidObject>,
    ) -> Option<Key> {
        match object {
            Ok(mut gate) => {
                gate.metadata.managed_fields = None;
                let key = key_of(&gate.metadata);
                let mut gates = self.gates();
                let submitted = gates.remove(&key).and_then(|before| before.submitted);
                gates.insert(
                    key.clone(),
                    Gate {
                        object: gate,
                        submitted,
                    },
                );
                self.judge(&mut gates, &key);
                Some(key)
            }
            Err(invalid) => {
                warn!(gate = %key_of(&invalid.metadata), error = chain(&invalid), "a gate cannot be read");
                None
            }
        }
    }

    /// What became of a write.
    pub fn written(&self, written: &Written) {
        let NewStatus::Gate(status) = &written.write.status else {
            return;
        };
        let mut gates = self.gates();
        let Some(gate) = gates.get_mut(&written.write.key) else {
            return;
        };
        if gate.object.uid().as_deref() != Some(&written.write.uid) {
            return;
        }
        if let Outcome::Done(version) = &written.outcome {
            gate.object.status = Some(status.clone());
            gate.object.metadata.resource_version = Some(version.clone());
        }
        if gate.submitted.as_ref() == Some(status) && written.outcome != Outcome::Refused {
            gate.submitted = None;
        }
    }

    /// Looks at all gates as claims change.
    async fn look(&self, client: Client) {
        let mut looked = None;
        for turn in 0_u64.. {
            self.context.clock.sleep(LOOK_EVERY).await;
            let version = self.context.claims.version();
            let is_due = turn.is_multiple_of(TURNS);
            if looked != Some(version) || is_due {
                looked = Some(version);
                let mut gates = self.gates();
                let keys: Vec<Key> = gates.keys().cloned().collect();
                for key in keys {
                    self.judge(&mut gates, &key);
                }
            }
            if is_due {
                self.end(&client).await;
            }
        }
    }

    fn judge(&self, gates: &mut BTreeMap<Key, Gate>, key: &Key) {
        let Some(gate) = gates.get_mut(key) else {
            return;
        };
        if !self.context.leadership.may_start(WRITE_TIMEOUT) {
            gate.submitted = None;
            return;
        }
        let known = self.context.claims.of_namespace(&key.namespace);
        let now_us = self.context.clock.now_us();
        let mut as_told = gate.object.clone();
        if gate.submitted.is_some() {
            as_told.status.clone_from(&gate.submitted);
        }
        let Some(status) = derive(&as_told, &known, now_us) else {
            return;
        };
        let write = Write {
            key: key.clone(),
            uid: gate.object.uid().unwrap_or_default(),
            resource_version: gate.object.resource_version().unwrap_or_default(),
            status: NewStatus::Gate(status.clone()),
        };
        let taken = self.context.writer.submit(write, Urgency::Condition);
        gate.submitted = (taken != super::writer::Taken::Dropped).then_some(status);
    }

    /// Deletes those whose time is over.
    async fn end(&self, client: &Client) {
        let now_us = self.context.clock.now_us();
        let over: Vec<(Key, Option<String>)> = self
            .gates()
            .iter()
            .filter(|(_, gate)| ends_at_us(&gate.object).is_some_and(|us| us <= now_us))
            .map(|(key, gate)| (key.clone(), gate.object.uid()))
            .collect();
        for (key, uid) in over {
            if !self.context.leadership.may_start(WRITE_TIMEOUT) {
                return;
            }
            let api: Api<FinalizationGate> = Api::namespaced(client.clone(), &key.namespace);
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid,
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            let asked = api.delete(&key.name, &params);
            match timeout(self.context.clock.real(WRITE_TIMEOUT), asked).await {
                Ok(Ok(_)) => info!(gate = %key, "the gate's time is over: it is deleted"),
                Ok(Err(error)) => {
                    debug!(gate = %key, error = chain(&error), "a gate was not deleted");
                }
                Err(_) => debug!(gate = %key, "a gate was not deleted in time"),
            }
        }
    }

    fn gates(&self) -> MutexGuard<'_, BTreeMap<Key, Gate>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key_of(metadata: &ObjectMeta) -> Key {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    Key {
        namespace: text(&metadata.namespace),
        name: text(&metadata.name),
    }
}
