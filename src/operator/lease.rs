//! Who leads: one replica of several, by a Lease of Kubernetes.
//!
//! Comes in: the name of the Lease, and who asks. Goes out: a [`Leadership`] that says at any time whether this replica may still
//! start something that takes a given time. What to do next is decided by [`evaluate`], which is pure.
//!
//! No clock of another machine is trusted: how long a holder has been silent is measured here, from when its last renewal was
//! first seen. The holder itself counts from when it *sent* its last renewal, and stops a second before the others may begin:
//! clocks may go at slightly different paces. It counts in both times of the clock, so that a machine that was stopped, with its
//! monotonic clock, does not take up where it was.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use crate::{
    api::quantity::{instant, parse_instant_us},
    process::clock::{Clock, jittered, length, micros},
    sensor::chain,
};

/// The annotation of the Lease that says when as many writes of statuses are saved up again as there may be: the next leader goes on
/// with what this one has left.
const SAVED_UP_AT: &str = "tidemark.dev/statuses-saved-up-at";

/// How long a lease lasts after its last renewal.
const LASTS: Duration = Duration::from_secs(15);

/// How often the holder renews it: three tries before it is lost.
const RENEW_EVERY: Duration = Duration::from_secs(4);

/// How often the others look. With the length of the lease, the next one leads within 18 s.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How soon it is looked at again after it was not as expected.
const SOON: Duration = Duration::from_millis(200);

/// How long a question to the API server may take.
const ASK_TIMEOUT: Duration = Duration::from_secs(4);

/// How long the holder counts on it: it stops a second before the others may begin.
const HOLDS: Duration = Duration::from_secs(14);

/// Which Lease, and who asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseName {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who asks. No two processes share one, not even a pod before and after a restart.
    pub identity: String,
}

impl LeaseName {
    /// A Lease, and a new identity for a process of this pod.
    #[must_use]
    pub fn new(namespace: &str, name: &str, pod: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: format!("{pod}_{}", Uuid::now_v7()),
        }
    }
}

/// Whether this replica leads, and for how long at least. Clones are the same.
#[derive(Clone)]
pub struct Leadership {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Clock,
    /// Until when, by the monotonic and by the wall time.
    until: Mutex<Option<(Duration, i64)>>,
    /// When everything is saved up again that a leader may write, µs, by whatever this one and those before it have written.
    saved_up_us: AtomicI64,
    leads: watch::Sender<bool>,
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl Leadership {
    /// Of a replica that does not lead.
    #[must_use]
    pub fn none(clock: Clock) -> Self {
        Self {
            inner: Arc::new(Inner {
                clock,
                until: Mutex::new(None),
                saved_up_us: AtomicI64::new(0),
                leads: watch::Sender::new(false),
            }),
        }
    }

    /// Of a replica that leads for the next hour.
    #[cfg(test)]
    pub(super) fn held(clock: Clock) -> Self {
        const HOUR: Duration = Duration::from_hours(1);
        let until = (
            clock.monotonic() + HOUR,
            clock.now_us() + crate::process::clock::micros(HOUR),
        );
        let held = Self::none(clock);
        held.set(Some(until));
        held
    }

    /// Whether something may be started that takes at most `takes`: it ends while nobody else can lead.
    #[must_use]
    pub fn may_start(&self, takes: Duration) -> bool {
        self.remaining() > takes
    }

    /// How long this replica leads for certain.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let until = self.inner.until.lock();
        let Some((monotonic, wall_us)) = *until.unwrap_or_else(PoisonError::into_inner) else {
            return Duration::ZERO;
        };
        let clock = &self.inner.clock;
        let left_us = wall_us.saturating_sub(clock.now_us());
        let by_wall = Duration::from_micros(u64::try_from(left_us).unwrap_or(0));
        monotonic.saturating_sub(clock.monotonic()).min(by_wall)
    }

    /// How long it takes until everything is saved up again that a leader may write.
    #[must_use]
    pub fn saved_up_in(&self) -> Duration {
        let saved_up_us = self.inner.saved_up_us.load(Ordering::Relaxed);
        length(saved_up_us.saturating_sub(self.inner.clock.now_us()))
    }

    /// This leader has written: so long does it take by now. The next one is told with the Lease.
    pub fn save_up_in(&self, takes: Duration) {
        self.saved_up(self.inner.clock.now_us().saturating_add(micros(takes)));
    }

    fn saved_up(&self, at_us: i64) {
        self.inner.saved_up_us.fetch_max(at_us, Ordering::Relaxed);
    }

    /// Hears when the lead is won and lost. It may be told late that it is lost: [`Leadership::may_start`] never is.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.inner.leads.subscribe()
    }

    fn set(&self, until: Option<(Duration, i64)>) {
        let mut held = self
            .inner
            .until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *held = until;
    }
}

/// What is known of a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    holder: Option<String>,
    /// Which renewal this is.
    version: String,
    transitions: i32,
    /// When it was first seen, on the monotonic clock.
    at: Duration,
    /// How long its holder wants it to last.
    lasts: Duration,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nobody has made it: make it.
    Create,
    /// It is ours: renew it.
    Renew,
    /// It is nobody's any more: take it.
    Take,
    /// It is another one's.
    Wait,
}

/// Decides what to do about a Lease as it was seen.
fn evaluate(seen: Option<&Seen>, identity: &str, now: Duration) -> Step {
    let Some(seen) = seen else {
        return Step::Create;
    };
    match &seen.holder {
        Some(holder) if holder == identity => Step::Renew,
        Some(_) if now < seen.at.saturating_add(seen.lasts) => Step::Wait,
        Some(_) | None => Step::Take,
    }
}

/// Seeks the lead and keeps it until `stop`, then gives it up.
pub async fn lead(
    client: Client,
    name: LeaseName,
    leadership: Leadership,
    stop: CancellationToken,
) {
    let leases = Api::namespaced(client, &name.namespace);
    let mut candidate = Candidate {
        leases,
        name,
        leadership,
        seen: None,
        told: None,
    };
    loop {
        let pause = candidate.turn().await;
        let clock = candidate.clock();
        tokio::select! {
            () = stop.cancelled() => break,
            () = clock.sleep(pause) => {}
        }
    }
    candidate.give_up().await;
}

struct Candidate {
    leases: Api<Lease>,
    name: LeaseName,
    leadership: Leadership,
    seen: Option<Seen>,
    /// The last failure that was logged.
    told: Option<String>,
}

/// Why a step came to nothing.
enum Failure {
    /// It is not as it was seen: look again.
    Changed,
    /// The server did not do it.
    Failed(String),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 409 => Self::Changed,
            _ => Self::Failed(chain(&error)),
        }
    }
}

impl Candidate {
    fn clock(&self) -> Clock {
        self.leadership.inner.clock.clone()
    }

    /// One look, and what follows from it; how long to wait for the next.
    async fn turn(&mut self) -> Duration {
        let tried = self.step().await;
        let leads = !self.leadership.remaining().is_zero();
        let pause = if leads && tried.is_ok() {
            RENEW_EVERY
        } else {
            jittered(LOOK_EVERY)
        };
        match tried {
            Ok(()) => self.told = None,
            Err(Failure::Changed) => {
                // Often a renewal of our own whose answer was lost: who leads is told after the next look.
                self.seen = None;
                return jittered(SOON);
            }
            Err(Failure::Failed(error)) => {
                if self.told.as_ref() != Some(&error) {
                    warn!(
                        lease = self.name.name,
                        error, "the lease cannot be asked for"
                    );
                    self.told = Some(error);
                }
            }
        }
        self.tell(leads);
        pause
    }

    fn tell(&self, leads: bool) {
        let changed = self.leadership.inner.leads.send_if_modified(|told| {
            let changed = *told != leads;
            *told = leads;
            changed
        });
        if changed {
            let what = if leads { "leads" } else { "does not lead" };
            info!(
                lease = self.name.name,
                identity = self.name.identity,
                "this replica {what}"
            );
        }
    }

    async fn step(&mut self) -> Result<(), Failure> {
        let clock = self.clock();
        // A holder knows its own Lease: it is asked for again only where it was not as expected.
        if !matches!(&self.seen, Some(seen) if seen.holder.as_ref() == Some(&self.name.identity)) {
            self.look().await?;
        }
        let step = evaluate(self.seen.as_ref(), &self.name.identity, clock.monotonic());
        if step == Step::Wait {
            self.leadership.set(None);
            return Ok(());
        }
        let sent = (clock.monotonic(), clock.now_us());
        let lease = self.wanted(step, sent.1);
        let params = PostParams::default();
        let (api, own) = (&self.leases, &self.name.name);
        let written = match step {
            Step::Create => self.within(api.create(&params, &lease)).await,
            _ => self.within(replace(api, own, &lease)).await,
        };
        match written {
            Ok(lease) => {
                self.saw(&lease, sent.0);
                let until = (sent.0 + HOLDS, sent.1.saturating_add(micros(HOLDS)));
                self.leadership.set(Some(until));
                Ok(())
            }
            Err(Failure::Changed) => {
                // Somebody else has written it, or deleted it: until it has been read again nothing is certain.
                self.leadership.set(None);
                Err(Failure::Changed)
            }
            Err(failed) => Err(failed),
        }
    }

    async fn look(&mut self) -> Result<(), Failure> {
        let found = self.within(self.leases.get_opt(&self.name.name)).await?;
        match found {
            Some(lease) => self.saw(&lease, self.clock().monotonic()),
            None => self.seen = None,
        }
        Ok(())
    }

    /// A renewal that was seen before stays seen at that time.
    fn saw(&mut self, lease: &Lease, at: Duration) {
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let since = self.seen.as_ref().filter(|seen| seen.version == version);
        let at = since.map_or(at, |seen| seen.at);
        let annotations = lease.metadata.annotations.as_ref();
        let saved_up = annotations.and_then(|all| parse_instant_us(all.get(SAVED_UP_AT)?));
        if let Some(at_us) = saved_up {
            self.leadership.saved_up(at_us);
        }
        let spec = lease.spec.as_ref();
        let holder = spec.and_then(|spec| spec.holder_identity.clone());
        let lasts = spec.and_then(|spec| spec.lease_duration_seconds);
        self.seen = Some(Seen {
            holder: holder.filter(|holder| !holder.is_empty()),
            version,
            transitions: spec.and_then(|spec| spec.lease_transitions).unwrap_or(0),
            at,
            // A holder of another version may want another length.
            lasts: lasts
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map_or(LASTS, Duration::from_secs),
        });
    }

    /// The Lease as it is to be. It names the version that it follows: who comes second is refused.
    fn wanted(&self, step: Step, now_us: i64) -> Lease {
        let now = Timestamp::from_microsecond(now_us).unwrap_or(Timestamp::UNIX_EPOCH);
        let seen = self.seen.as_ref();
        let transitions = seen.map_or(0, |seen| seen.transitions);
        let taken = step != Step::Renew;
        let saved_up_us = self.leadership.inner.saved_up_us.load(Ordering::Relaxed);
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.name.clone()),
                namespace: Some(self.name.namespace.clone()),
                resource_version: seen.map(|seen| seen.version.clone()),
                annotations: Some([(SAVED_UP_AT.to_owned(), instant(saved_up_us))].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name.identity.clone()),
                lease_duration_seconds: i32::try_from(LASTS.as_secs()).ok(),
                acquire_time: taken.then_some(MicroTime(now)),
                renew_time: Some(MicroTime(now)),
                lease_transitions: Some(transitions.saturating_add(i32::from(taken))),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Lets the next one lead at once.
    async fn give_up(&mut self) {
        let is_ours =
            matches!(&self.seen, Some(seen) if seen.holder.as_ref() == Some(&self.name.identity));
        self.leadership.set(None);
        self.tell(false);
        if !is_ours {
            return;
        }
        let mut lease = self.wanted(Step::Renew, self.clock().now_us());
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
        }
        // Where it fails, the lease runs out by itself.
        let replaced = replace(&self.leases, &self.name.name, &lease);
        let _ = self.within(replaced).await;
    }

    async fn within<T>(
        &self,
        asked: impl Future<Output = Result<T, impl Into<Failure>>>,
    ) -> Result<T, Failure> {
        match timeout(self.clock().real(ASK_TIMEOUT), asked).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(Failure::Failed("no answer in time".to_owned())),
        }
    }
}

/// Writes a Lease over the version that it names. One that is gone was not as it was seen, either.
async fn replace(leases: &Api<Lease>, name: &str, lease: &Lease) -> Result<Lease, Failure> {
    let replaced = leases.replace(name, &PostParams::default(), lease).await;
    replaced.map_err(|error| match &error {
        kube::Error::Api(status) if status.code == 404 => Failure::Changed,
        _ => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(holder: Option<&str>, at: u64) -> Seen {
        Seen {
            holder: holder.map(str::to_owned),
            version: "7".into(),
            transitions: 1,
            at: Duration::from_secs(at),
            lasts: LASTS,
        }
    }

    #[test]
    fn lease_is_taken_when_it_has_run_out_and_not_before() {
        let now = Duration::from_secs;
        assert_eq!(evaluate(None, "a", now(0)), Step::Create);
        assert_eq!(
            evaluate(Some(&seen(Some("a"), 100)), "a", now(500)),
            Step::Renew
        );
        assert_eq!(
            evaluate(Some(&seen(Some("b"), 100)), "a", now(114)),
            Step::Wait
        );
        assert_eq!(
            evaluate(Some(&seen(Some("b"), 100)), "a", now(115)),
            Step::Take
        );
        assert_eq!(evaluate(Some(&seen(None, 100)), "a", now(100)), Step::Take);
    }

    /// The holder stops before the others may begin, whatever it was doing when it last looked.
    #[test]
    fn holder_stops_before_the_next_one_begins() {
        assert!(HOLDS < LASTS);
        assert!(
            RENEW_EVERY + ASK_TIMEOUT + LOOK_EVERY < HOLDS,
            "two tries fit"
        );
        assert!(
            LASTS + LOOK_EVERY + ASK_TIMEOUT * 2 < Duration::from_secs(30),
            "takeover"
        );
    }

    #[test]
    fn nothing_starts_that_might_outlast_the_lease() {
        let clock = Clock::system();
        let leadership = Leadership::none(clock.clone());
        assert!(!leadership.may_start(Duration::ZERO));
        let until = clock.monotonic() + Duration::from_secs(10);
        leadership.set(Some((until, clock.now_us() + 10_000_000)));
        assert!(leadership.may_start(Duration::from_secs(5)));
        assert!(!leadership.may_start(Duration::from_secs(11)));
        // A machine that was stopped finds its monotonic clock where it was, and the wall's far ahead.
        clock.step(3_600_000_000);
        assert!(!leadership.may_start(Duration::ZERO));
    }
}
