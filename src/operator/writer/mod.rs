//! Writes statuses: a bounded list, the last value of each object, within a budget, and only while this replica leads.
//!
//! Comes in: a [`Write`] as it was derived. Goes out: server-side applies of the status under a field manager of its own, so that
//! conditions of others stay; and what became of each, to whoever derived it.
//!
//! The rule that must never break: nothing is written by a replica that has lost the lead. A write starts only while the lease
//! lasts longer than the write may take, and it names the version of the object that it was derived from: one that was held up
//! all the same meets a conflict as soon as another leader has written.
//!
//! What is lost on the way (list full, lead lost, server away) is derived again by the sweep: nothing is kept for its own sake.

mod budget;
mod queue;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
    core::PartialObjectMeta,
};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::{budget::Budget, queue::Queue};
use super::{
    Key,
    counts::{Counts, Dropped},
    lease::Leadership,
};
use crate::{
    api::{
        gate::{FinalizationGate, FinalizationGateStatus},
        pipeline::IngestionPipeline,
        policy::{IngestionPolicy, IngestionPolicyStatus},
        status::IngestionPipelineStatus,
    },
    process::clock::{Clock, jittered},
    sensor::chain,
};

pub use queue::{Taken, Urgency};

/// The field manager of statuses. The rest of an object, and the conditions of others, are none of its business.
pub const FIELD_MANAGER: &str = "tidemark-status";

/// How long a write may take. The lease has to last longer for it to start.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many objects may wait: every pipeline of the largest fleet, twice.
const MOST_WAITING: usize = 20_000;

/// How many writes are under way at once: at the peak of 150 a second, each may take 200 ms.
const AT_ONCE: usize = 32;

/// How long a write that failed waits for its next try.
const AGAIN_AFTER: Duration = Duration::from_secs(4);

/// How soon one that was forbidden: a missing right is given by a person.
const FORBIDDEN_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// A status to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The object.
    pub key: Key,
    /// What tells it from another one that had the same name.
    pub uid: String,
    /// The version of the object that the status was derived from.
    pub resource_version: String,
    /// What to write.
    pub status: NewStatus,
}

/// The status of an object of one of the kinds that have theirs written here.
#[derive(Debug, Clone, PartialEq)]
pub enum NewStatus {
    /// A pipeline's.
    Pipeline(Arc<IngestionPipelineStatus>),
    /// A gate's.
    Gate(FinalizationGateStatus),
    /// A policy's.
    Policy(Box<IngestionPolicyStatus>),
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// What was to be written.
    pub write: Write,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a write ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is on the object, which has this version now.
    Done(String),
    /// The object has changed since: what is to be written is derived again from what it is now.
    Stale,
    /// The object is gone.
    Gone,
    /// The server refuses it, and will refuse it again.
    Refused,
    /// It was not tried: this replica does not lead any more.
    Lost,
}

/// Hands writes in. Clones share one list.
#[derive(Clone)]
pub struct Writer {
    queue: Arc<Mutex<Queue<(Urgency, Write)>>>,
    news: Arc<Notify>,
    counts: Counts,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

/// What writing needs.
#[derive(Clone)]
pub struct WriterContext {
    /// The API server.
    pub client: Client,
    /// Whether this replica leads.
    pub leadership: Leadership,
    /// The time.
    pub clock: Clock,
}

impl fmt::Debug for WriterContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterContext")
            .field("leadership", &self.leadership)
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// A list without entries.
    #[must_use]
    pub fn new(counts: Counts) -> Self {
        Self {
            queue: Arc::new(Mutex::new(Queue::new(MOST_WAITING))),
            news: Arc::new(Notify::new()),
            counts,
        }
    }

    /// Hands a write in; what became of it is told when it has ended. Whoever does has seen that it differs from what the object has.
    #[must_use = "what is dropped has to be derived again"]
    pub fn submit(&self, write: Write, urgency: Urgency) -> Taken {
        self.counts.wanted();
        let uid = write.uid.clone();
        let taken = self.queue().put(&uid, urgency, (urgency, write));
        match taken {
            Taken::Queued => {}
            Taken::Merged => self.counts.merged(),
            Taken::Dropped => self.counts.dropped(Dropped::Full, 1),
        }
        self.news.notify_one();
        taken
    }

    /// How many objects wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue().len()
    }

    /// What would be written next.
    #[cfg(test)]
    pub(super) fn next(&self) -> Option<Write> {
        let mut queue = self.queue();
        let (uid, (_, write)) = queue.take()?;
        queue.done(&uid);
        Some(write)
    }

    /// Writes until `stop`. `tell` hears what became of each write.
    pub async fn run(
        self,
        context: WriterContext,
        tell: Arc<dyn Fn(Written) + Send + Sync>,
        stop: CancellationToken,
    ) {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut budget = Budget::new(context.clock.monotonic());
        let mut leads = context.leadership.subscribe();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.until_news() => {}
            }
            if !context.leadership.may_start(WRITE_TIMEOUT) {
                // Towards its end a lease is often renewed a moment later.
                if !*leads.borrow_and_update() {
                    self.lose(&*tell);
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = leads.changed() => {}
                    () = context.clock.sleep(Duration::from_secs(1)) => {}
                }
                continue;
            }
            let (leadership, now) = (&context.leadership, context.clock.monotonic());
            budget.spent(leadership.saved_up_in(), now);
            let taken = budget.take(now);
            leadership.save_up_in(budget.full_in());
            if let Err(wait) = taken {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = context.clock.sleep(wait) => {}
                }
                continue;
            }
            let place = tokio::select! {
                () = stop.cancelled() => return,
                place = Arc::clone(&places).acquire_owned() => place,
            };
            let (Ok(place), Some((uid, (urgency, write)))) = (place, self.queue().take()) else {
                continue;
            };
            let (writer, context, tell) = (self.clone(), context.clone(), Arc::clone(&tell));
            tokio::spawn(async move {
                writer.carry_out(&context, (urgency, write), &*tell).await;
                writer.queue().done(&uid);
                writer.news.notify_one();
                drop(place);
            });
        }
    }

    /// What waits is the next leader's to write.
    fn lose(&self, tell: &(dyn Fn(Written) + Send + Sync)) {
        let lost = self.queue().clear();
        self.counts.dropped(Dropped::NotLeading, lost.len());
        for (_, write) in lost {
            let outcome = Outcome::Lost;
            tell(Written { write, outcome });
        }
    }

    async fn until_news(&self) {
        while self.queue().is_empty() {
            self.news.notified().await;
        }
    }

    async fn carry_out(
        &self,
        context: &WriterContext,
        (urgency, write): (Urgency, Write),
        tell: &(dyn Fn(Written) + Send + Sync),
    ) {
        let object = &write.key;
        let outcome = match apply(context, &write).await {
            Ok(resource_version) => {
                self.counts.written();
                Outcome::Done(resource_version)
            }
            Err(Refusal::Stale) => {
                self.counts.dropped(Dropped::Stale, 1);
                Outcome::Stale
            }
            Err(Refusal::Gone) => {
                self.counts.dropped(Dropped::Gone, 1);
                Outcome::Gone
            }
            Err(Refusal::Invalid(error)) => {
                self.counts.failed();
                warn!(%object, error, "the API server refuses a status");
                Outcome::Refused
            }
            Err(Refusal::Forbidden(error)) => {
                self.counts.failed();
                warn!(%object, error, "the API server forbids a status; it is written again later");
                return self.put_back(&context.clock, FORBIDDEN_AGAIN_AFTER, (urgency, write));
            }
            Err(Refusal::Later(error)) => {
                self.counts.failed();
                debug!(%object, error, "a status is written again later");
                return self.put_back(&context.clock, AGAIN_AFTER, (urgency, write));
            }
            Err(Refusal::TooLate) => {
                return self.put_back(&context.clock, AGAIN_AFTER, (urgency, write));
            }
        };
        tell(Written { write, outcome });
    }

    /// Tries again in a while, unless something later is to be written by then.
    fn put_back(&self, clock: &Clock, after: Duration, (urgency, write): (Urgency, Write)) {
        let (writer, clock) = (self.clone(), clock.clone());
        tokio::spawn(async move {
            clock.sleep(jittered(after)).await;
            let uid = write.uid.clone();
            writer.queue().put_back(&uid, urgency, (urgency, write));
            writer.news.notify_one();
        });
    }

    fn queue(&self) -> MutexGuard<'_, Queue<(Urgency, Write)>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a write did not take effect.
enum Refusal {
    Stale,
    Gone,
    Invalid(String),
    /// A right is missing, or not known yet: an API server that has just started forbids everything for some seconds.
    Forbidden(String),
    Later(String),
    /// The lease does not last long enough.
    TooLate,
}

/// Applies a status; the version of the object with it.
async fn apply(context: &WriterContext, write: &Write) -> Result<String, Refusal> {
    let (client, namespace) = (context.client.clone(), &write.key.namespace);
    match &write.status {
        NewStatus::Pipeline(status) => {
            let objects =
                Api::<PartialObjectMeta<IngestionPipeline>>::namespaced(client, namespace);
            apply_to(context, write, (objects, json!(status))).await
        }
        NewStatus::Gate(status) => {
            let objects = Api::<PartialObjectMeta<FinalizationGate>>::namespaced(client, namespace);
            apply_to(context, write, (objects, json!(status))).await
        }
        NewStatus::Policy(status) => {
            let objects = Api::<PartialObjectMeta<IngestionPolicy>>::all(client);
            apply_to(context, write, (objects, json!(status))).await
        }
    }
}

/// Of the answer the version alone is read: what cannot be decoded of a specification is not our business here.
async fn apply_to<K>(
    context: &WriterContext,
    write: &Write,
    (objects, status): (Api<PartialObjectMeta<K>>, Value),
) -> Result<String, Refusal>
where
    K: Resource<DynamicType = ()>,
{
    // The uid keeps it from an object made again under the name, the version from one that another leader has written since.
    let object = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": write.key.name, "uid": write.uid, "resourceVersion": write.resource_version},
        "status": status,
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(object);
    let asked = objects.patch_status(&write.key.name, &params, &patch);
    // Asked once more, as late as can be: between the list and here a process may have stood still.
    if !context.leadership.may_start(WRITE_TIMEOUT) {
        return Err(Refusal::TooLate);
    }
    match timeout(context.clock.real(WRITE_TIMEOUT), asked).await {
        Ok(Ok(object)) => Ok(object.metadata.resource_version.unwrap_or_default()),
        Ok(Err(kube::Error::Api(status))) => Err(match status.code {
            409 => Refusal::Stale,
            404 => Refusal::Gone,
            401 | 403 => Refusal::Forbidden(status.message.clone()),
            400 | 413 | 422 => Refusal::Invalid(status.message.clone()),
            _ => Refusal::Later(status.message.clone()),
        }),
        Ok(Err(error)) => Err(Refusal::Later(chain(&error))),
        Err(_) => Err(Refusal::Later("no answer in time".to_owned())),
    }
}
