//! An operator's life: watches at once, tasks while it leads, statuses from what its workers say.
//!
//! A replica that does not lead keeps its index warm and writes nothing. One that comes to lead looks at everything once: what
//! needs no change costs no call.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use kube::{Client, Config};
use strum::IntoEnumIterator;
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::{Id, JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::{
    Key, Task,
    apply::Applier,
    claims::Claims,
    client::{Pace, paced_client},
    counts::Counts,
    events::{Events, Sender},
    fleet::{Fleet, FleetSettings},
    gate::{GateContext, Gates},
    http::{self, Readers},
    lease::{Leadership, LeaseName, lead},
    metrics::OperatorMetrics,
    policy_report::{PolicyReportContext, PolicyReports},
    progress::Poller,
    queue::Outcome,
    reconcile::Reconciler,
    report::{ReportContext, Reports},
    status::condition,
    tell,
    watch::watch_all,
    writer::{Writer, WriterContext, Written},
};
use crate::{
    api::{condition::ConditionType, schema::ConditionStatus},
    process::{Metrics, clock::Clock},
};

/// How often it is said how far changes have got: a wave takes minutes.
const WAVES_EVERY: Duration = Duration::from_secs(5);

/// How often it is counted how the pipelines are.
const COUNT_EVERY: Duration = Duration::from_secs(15);

/// How often the sweep goes a step.
const SWEEP_STEP: Duration = Duration::from_secs(5);

/// The pace of what keeps the lead: never behind what the fleet has to write.
const LEASE_PACE: Pace = Pace {
    rate: 10,
    burst: 10,
    concurrency: 4,
};

/// What an operator is told at its start.
#[derive(Debug, Clone)]
pub struct OperatorSettings {
    /// What the fleet is like.
    pub fleet: FleetSettings,
    /// Where pipelines are looked for; everywhere where there are none.
    pub namespaces: Vec<String>,
    /// The lease of the leader.
    pub lease: LeaseName,
    /// How fast the API server may be called for children.
    pub pace: Pace,
    /// How fast it may be called for statuses; the writer has a budget of its own.
    pub status_pace: Pace,
    /// How many tasks are in hand at once.
    pub hands: usize,
    /// How long it takes until every child was looked at once more for what somebody changed unseen.
    pub sweep: Duration,
    /// How often each worker is asked.
    pub ask_every: Duration,
}

/// Why an operator could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no client.
    #[error("the API server cannot be called with this configuration")]
    Client(#[from] kube::Error),
    /// The workers cannot be asked.
    #[error("no HTTP client for the workers")]
    Poller(#[from] reqwest::Error),
    /// A part has ended.
    #[error("a part of the operator has ended")]
    Part(#[from] io::Error),
}

/// What an operator runs in.
pub struct Surroundings {
    /// How the API server is reached.
    pub config: Config,
    /// Where readers ask for claims.
    pub readers: TcpListener,
    /// The time.
    pub clock: Clock,
    /// Where its metrics go.
    pub metrics: Metrics,
    /// When it ends.
    pub stop: CancellationToken,
}

/// Runs until it is stopped. `ready` becomes true when everything was seen once.
///
/// # Errors
/// It cannot start.
pub async fn run(
    settings: OperatorSettings,
    around: Surroundings,
    ready: watch::Sender<bool>,
) -> Result<(), Error> {
    let Surroundings {
        config,
        readers,
        clock,
        metrics,
        stop,
    } = around;
    let counted = metrics.register(OperatorMetrics::register);
    let client = |pace| paced_client(config.clone(), pace, &clock, &counted);
    let (children, statuses) = (client(settings.pace)?, client(settings.status_pace)?);
    let counts = Counts::register(&metrics);
    let voice = Voice::new(&counts, &clock);
    let shared = (clock.clone(), counted.clone());
    let reports = (voice.reports.clone(), voice.policies.clone());
    let fleet = Arc::new(Fleet::new(settings.fleet, shared, reports, stop.clone()));
    let (leadership, claims) = (voice.leadership.clone(), voice.claims.clone());
    if !settings.namespaces.is_empty() {
        // Until their labels are known.
        voice.policies.confine_to(Vec::new());
    }
    let poller = Poller::new(clock.clone(), counts.clone(), settings.ask_every)?;

    let mut parts = JoinSet::new();
    watch_all(&children, &settings.namespaces, &fleet);
    let pod = settings.lease.identity.clone();
    let leading = (client(LEASE_PACE)?, settings.lease, leadership.clone());
    parts.spawn(lead(leading.0, leading.1, leading.2, stop.clone()));
    voice.start(&mut parts, &statuses, (&settings.namespaces, pod), &stop);
    let (answer, answers) = mpsc::channel(1024);
    let asked = Arc::clone(&fleet);
    let targets = Arc::new(move || tell::targets(&asked));
    parts.spawn(poller.run(targets, answer, stop.clone()));
    parts.spawn(tell::listen(Arc::clone(&fleet), answers));
    parts.spawn(tell::tell(Arc::clone(&fleet), stop.clone()));
    parts.spawn(tell::look_again(Arc::clone(&fleet), stop.clone()));
    parts.spawn(sweep(Arc::clone(&fleet), settings.sweep, stop.clone()));
    let (telling, namespaces) = (Arc::clone(&fleet), settings.namespaces.clone());
    parts.spawn(tell_waves(telling, namespaces, stop.clone()));
    let told = (claims.clone(), counts.clone());
    parts.spawn(count(Arc::clone(&fleet), told, stop.clone()));
    parts.spawn(tell_ready(Arc::clone(&fleet), ready, stop.clone()));
    let readers_of = Readers::new(claims, (counts, clock.clone()), stop.clone());
    let serving = tokio::spawn(http::serve(readers, readers_of));

    let reconciler = Arc::new(Reconciler {
        fleet,
        applier: Applier::new(children),
        leadership,
    });
    work_off(&reconciler, settings.hands, &stop).await;
    // Whoever gives the lead up has to be heard to the end.
    while let Some(ended) = parts.join_next().await {
        ended.map_err(io::Error::other)?;
    }
    serving.await.map_err(io::Error::other)??;
    info!("operator has stopped");
    Ok(())
}

/// What says how the pipelines are: to the API server, to readers, in Events.
struct Voice {
    leadership: Leadership,
    clock: Clock,
    writer: Writer,
    claims: Claims,
    sender: Sender,
    reports: Reports,
    gates: Gates,
    policies: PolicyReports,
}

impl Voice {
    fn new(counts: &Counts, clock: &Clock) -> Self {
        let leadership = Leadership::none(clock.clone());
        let (writer, claims) = (Writer::new(counts.clone()), Claims::default());
        let (events, sender) = Events::new(counts.clone());
        let reports = Reports::new(ReportContext {
            writer: writer.clone(),
            claims: claims.clone(),
            events,
            clock: clock.clone(),
        });
        let gates = Gates::new(GateContext {
            claims: claims.clone(),
            writer: writer.clone(),
            leadership: leadership.clone(),
            clock: clock.clone(),
        });
        let policies = PolicyReports::new(PolicyReportContext {
            writer: writer.clone(),
            leadership: leadership.clone(),
            clock: clock.clone(),
        });
        Self {
            leadership,
            clock: clock.clone(),
            writer,
            claims,
            sender,
            reports,
            gates,
            policies,
        }
    }

    fn start(
        self,
        parts: &mut JoinSet<()>,
        client: &Client,
        (namespaces, pod): (&[String], String),
        stop: &CancellationToken,
    ) {
        let context = WriterContext {
            client: client.clone(),
            leadership: self.leadership.clone(),
            clock: self.clock.clone(),
        };
        let (gates, reports) = (self.gates.clone(), self.reports);
        let policies = self.policies.clone();
        let tell = move |written: Written| {
            gates.written(&written);
            policies.written(&written);
            reports.written(written);
        };
        parts.spawn(self.writer.run(context, Arc::new(tell), stop.clone()));
        parts.spawn(self.policies.run(client.clone(), stop.clone()));
        let as_pod = (self.leadership, self.clock, pod);
        parts.spawn(self.sender.run(client.clone(), as_pod, stop.clone()));
        for scope in scopes(namespaces) {
            let (gates, client, stop) = (self.gates.clone(), client.clone(), stop.clone());
            parts.spawn(async move { gates.run(client, scope.as_deref(), stop).await });
        }
    }
}

/// Where pipelines are looked for: in each of these namespaces, or everywhere.
fn scopes(namespaces: &[String]) -> Vec<Option<String>> {
    match namespaces {
        [] => vec![None],
        named => named.iter().cloned().map(Some).collect(),
    }
}

async fn tell_ready(fleet: Arc<Fleet>, ready: watch::Sender<bool>, stop: CancellationToken) {
    let mut complete = fleet.complete();
    tokio::select! {
        () = stop.cancelled() => {}
        whole = complete.wait_for(|complete| *complete) => drop(ready.send_replace(whole.is_ok())),
    }
}

/// Takes tasks in hand whenever this replica leads.
async fn work_off(reconciler: &Arc<Reconciler>, hands: usize, stop: &CancellationToken) {
    let fleet = &reconciler.fleet;
    let mut complete = fleet.complete();
    tokio::select! {
        () = stop.cancelled() => return,
        _ = complete.wait_for(|complete| *complete) => {}
    }
    let mut leads = reconciler.leadership.subscribe();
    while !stop.is_cancelled() {
        let leading = *leads.borrow_and_update();
        if leading {
            info!("this replica leads");
            fleet.take_over();
            while_leading(reconciler, hands, &mut leads, stop).await;
            fleet.step_down();
            info!("this replica leads no longer");
            continue;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = leads.changed() => if changed.is_err() { return },
        }
    }
}

async fn while_leading(
    reconciler: &Arc<Reconciler>,
    hands: usize,
    leads: &mut watch::Receiver<bool>,
    stop: &CancellationToken,
) {
    let fleet = &reconciler.fleet;
    let mut busy = JoinSet::new();
    let mut tasks = HashMap::<Id, Task>::new();
    while *leads.borrow() && !stop.is_cancelled() {
        let mut due = None;
        while busy.len() < hands {
            match fleet.next() {
                Ok((task, waited)) => {
                    fleet.metrics.waited(waited);
                    let (reconciler, in_hand) = (Arc::clone(reconciler), task.clone());
                    let handle = busy.spawn(async move { reconciler.reconcile(&in_hand).await });
                    tasks.insert(handle.id(), task);
                }
                Err(next) => {
                    due = next;
                    break;
                }
            }
        }
        if busy.is_empty() {
            // Nothing is queued and nothing in hand: every pipeline was decided.
            fleet.policy_reports.complete();
        }
        let due = due.unwrap_or(Duration::from_mins(1));
        tokio::select! {
            () = stop.cancelled() => {}
            _ = leads.changed() => {}
            () = fleet.queued.notified(), if busy.len() < hands => {}
            Some(ended) = busy.join_next_with_id() => end(fleet, &mut tasks, ended),
            () = fleet.clock.sleep(due), if busy.len() < hands => {}
        }
    }
    // What is in hand asks before each call whether this replica still leads.
    while let Some(ended) = busy.join_next_with_id().await {
        end(fleet, &mut tasks, ended);
    }
}

fn end(fleet: &Fleet, tasks: &mut HashMap<Id, Task>, ended: Result<(Id, Outcome), JoinError>) {
    let (id, outcome) = match ended {
        Ok(ended) => ended,
        Err(broken) => {
            error!(error = %broken, "a task broke off; it begins again by itself");
            (broken.id(), Outcome::Failed(None))
        }
    };
    if let Some(task) = tasks.remove(&id) {
        fleet.done(&task, outcome);
    }
}

/// Says how far changes have got over the pipelines of policies, and which policies are about these namespaces.
async fn tell_waves(fleet: Arc<Fleet>, namespaces: Vec<String>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = fleet.clock.sleep(WAVES_EVERY) => {}
        }
        if !fleet.leads() {
            continue;
        }
        let (waves, own) = {
            let state = fleet.lock();
            let own = namespaces
                .iter()
                .map(|name| state.index.namespace_labels(name));
            (state.rollout.waves(), own.collect::<Vec<_>>())
        };
        if !own.is_empty() {
            fleet.policy_reports.confine_to(own);
        }
        fleet.policy_reports.roll(waves);
    }
}

/// Goes over all pipelines again and again, slowly: what somebody changed while nobody watched is found so.
async fn sweep(fleet: Arc<Fleet>, whole: Duration, stop: CancellationToken) {
    let mut at = Key::new("", "");
    let mut credit = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = fleet.clock.sleep(SWEEP_STEP) => {}
        }
        let mut state = fleet.lock();
        credit += state.index.pipelines().count() as u64 * SWEEP_STEP.as_secs();
        let share = credit / whole.as_secs().max(1);
        credit %= whole.as_secs().max(1);
        let next: Vec<Key> = state
            .index
            .pipelines_after(&at)
            .take(usize::try_from(share).unwrap_or(usize::MAX))
            .cloned()
            .collect();
        if share > 0 {
            at = next.last().cloned().unwrap_or(Key::new("", ""));
        }
        let tasks: Vec<Task> = next
            .into_iter()
            .map(|key| {
                match state
                    .index
                    .decided(&key)
                    .and_then(|decided| decided.pool().cloned())
                {
                    Some(pool) => Task::Pool(pool),
                    None => Task::Pipeline(key),
                }
            })
            .collect();
        state.verify.extend(tasks.iter().cloned());
        fleet.queue_in(&mut state, tasks);
    }
}

/// Counts how the pipelines are, again and again.
async fn count(fleet: Arc<Fleet>, (claims, told): (Claims, Counts), stop: CancellationToken) {
    while !stop.is_cancelled() {
        count_once(&fleet, &claims, &told);
        tokio::select! {
            () = stop.cancelled() => return,
            () = fleet.clock.sleep(COUNT_EVERY) => {}
        }
    }
}

fn count_once(fleet: &Fleet, claims: &Claims, told: &Counts) {
    let (now_us, oldest) = (fleet.clock.now_us(), claims.oldest());
    let ages = oldest
        .iter()
        .map(|(namespace, claim_us)| (namespace.as_str(), seconds(now_us - claim_us)));
    told.oldest(ages);
    let mut counts = HashMap::<(&'static str, &'static str), usize>::new();
    let kinds = || ConditionType::iter().map(<&'static str>::from);
    for kind in kinds() {
        for status in ["True", "False", "Unknown"] {
            counts.insert((kind, status), 0);
        }
    }
    claims.each(|known| {
        for kind in kinds() {
            let found = condition(&known.status, kind);
            let status = match found.map(|condition| condition.status) {
                Some(ConditionStatus::True) => "True",
                Some(ConditionStatus::False) => "False",
                Some(ConditionStatus::Unknown) | None => "Unknown",
            };
            *counts.entry((kind, status)).or_default() += 1;
        }
    });
    let mut undecodable = HashMap::from([("IngestionPipeline", 0), ("IngestionPolicy", 0)]);
    let state = fleet.lock();
    for (kind, _, _) in state.index.all_undecodable() {
        *undecodable.entry(kind).or_default() += 1;
    }
    for ((kind, status), count) in counts {
        fleet.metrics.set_pipelines(kind, status, count);
    }
    for (kind, count) in undecodable {
        fleet.metrics.set_undecodable(kind, count);
    }
}

fn seconds(us: i64) -> f64 {
    crate::process::clock::length(us).as_secs_f64()
}
