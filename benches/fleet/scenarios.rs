//! What is measured, one function each. Each leaves the fleet so that nothing has to change.

use std::{
    collections::HashMap,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tidemark::{api::policy::IngestionPolicy, process::clock::Clock};

use super::{
    cluster::Cluster,
    kubelet::Kubelet,
    operator::{Metrics, Operator, Start},
    seen::Seen,
    setup::IMAGE,
    workers::{Workers, commit_after},
};
use crate::support::{cpu, cpu::Process, say};

/// Far beyond what anything takes on a machine that others use, too.
const PATIENCE: Duration = Duration::from_mins(40);

/// How long to leave the machine to others between two looks.
const PAUSE: Duration = Duration::from_millis(250);

/// For how long next to nothing is written before a scenario is over.
const QUIET: Duration = Duration::from_secs(12);

/// So many writes come in that time anyway, for each pipeline: lags rise and fall, and the sweep writes what it has not written yet.
const FEW: f64 = 0.003;

/// Everything that a scenario needs.
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) folder: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) clock: Clock,
    pub(crate) workers: Arc<Workers>,
    pub(crate) seen: Seen,
    pub(crate) kubelet: Arc<Kubelet>,
    /// How long a steady state is looked at.
    pub(crate) steady: Duration,
}

/// What was used up to a moment.
struct Meter {
    at: Duration,
    operator_ns: u64,
    api_ns: u64,
    etcd_ns: u64,
    metrics: Metrics,
}

impl Bench {
    fn size(&self) -> usize {
        self.workers.all().len()
    }

    fn start(&self, name: &str, image: &str) -> Operator {
        let start = Start {
            program: &self.program,
            name,
            image,
            folder: &self.folder,
        };
        Operator::start(&self.kubeconfig, &start)
    }

    fn since(&self, at: Duration) -> Duration {
        self.clock.monotonic().saturating_sub(at)
    }

    async fn meter(&self, operator: &Operator) -> Meter {
        let (api, etcd) = self.cluster.processes();
        Meter {
            at: self.clock.monotonic(),
            operator_ns: operator.process.cpu_ns(),
            api_ns: api.cpu_ns(),
            etcd_ns: etcd.cpu_ns(),
            metrics: operator.metrics().await,
        }
    }

    /// CPU, memory and writes since a moment, as one line.
    async fn spent(&self, operator: &Operator, since: &Meter) -> String {
        let now = self.meter(operator).await;
        let seconds = now.at.saturating_sub(since.at).as_secs_f64();
        let before = since.metrics.writes();
        let mut writes: Vec<(String, f64)> = now
            .metrics
            .writes()
            .into_iter()
            .map(|(kind, count)| {
                let count = count - before.get(&kind).copied().unwrap_or(0.0);
                (kind, count)
            })
            .filter(|(_, count)| *count > 0.0)
            .collect();
        writes.sort_by(|one, other| other.1.total_cmp(&one.1));
        let all: f64 = writes.iter().map(|(_, count)| count).sum();
        let of_each: Vec<String> = writes
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        let cpu = seconds_of(now.operator_ns - since.operator_ns);
        format!(
            "{seconds:.0} s; operator {cpu:.1} CPU s = {:.3} core, RSS {}; {all} writes = {:.1}/s ({}); \
             API server {:.0} CPU s, etcd {:.0}; load {:.1}",
            cpu / seconds,
            memory(operator),
            all / seconds,
            of_each.join(", "),
            seconds_of(now.api_ns - since.api_ns),
            seconds_of(now.etcd_ns - since.etcd_ns),
            cpu::load(),
        )
    }

    /// Waits until it is so.
    async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let began = self.clock.monotonic();
        while !is_so().await {
            let waited = self.since(began);
            assert!(waited < PATIENCE, "not within {PATIENCE:?}: {what}");
            self.clock.sleep(PAUSE).await;
        }
    }

    /// Waits until nothing is written any more; says since when.
    async fn until_quiet(&self, operator: &Operator) -> Duration {
        let few = 6.0 + FEW * counted(self.size());
        let mut last = (f64::NEG_INFINITY, self.clock.monotonic());
        self.until("a fleet in which nothing changes", async || {
            let metrics = operator.metrics().await;
            let written: f64 = metrics
                .writes()
                .iter()
                .filter(|(kind, _)| *kind != "leases")
                .map(|(_, count)| count)
                .sum();
            let waiting = metrics.sum("operator_queue_depth", &[])
                + metrics.sum("operator_changes_waiting", &[]);
            if written > last.0 + few || waiting > 0.0 {
                last = (written, self.clock.monotonic());
            }
            self.since(last.1) > QUIET
        })
        .await;
        last.1
    }

    /// Waits until everything is known to those who look on.
    pub(crate) async fn until_seen(&self) {
        let size = self.size();
        self.until("all pipelines seen", async || self.seen.count() == size)
            .await;
    }

    /// From the start of the program to a leader that has looked at everything and finds that nothing has to change.
    pub(crate) async fn cold_start(&self) -> Operator {
        let began = self.clock.monotonic();
        let operator = self.start("cold", IMAGE);
        self.until("the lists", async || operator.is_ready().await)
            .await;
        let listed = self.since(began);
        let listed_cpu = seconds_of(operator.process.cpu_ns());
        let all = counted(self.size());
        self.until("every pipeline reconciled", async || {
            let metrics = operator.metrics().await;
            metrics.sum("operator_queue_depth", &[]) < 1.0 && reconciled(&metrics) >= all
        })
        .await;
        let done = self.since(began);
        let cpu = seconds_of(operator.process.cpu_ns());
        say(format!(
            "cold start: lists in after {:.1} s ({listed_cpu:.1} CPU s), all reconciled after {:.1} s ({cpu:.1} CPU s); \
             RSS {}; load {:.1}",
            listed.as_secs_f64(),
            done.as_secs_f64(),
            memory(&operator),
            cpu::load(),
        ));
        self.until("every worker asked", async || {
            let metrics = operator.metrics().await;
            metrics.sum("worker_polls_total", &["outcome=\"Answered\""]) >= 2.0 * all
        })
        .await;
        self.until_quiet(&operator).await;
        let metrics = operator.metrics().await;
        say(format!(
            "  two rounds of asking later: writes {:?}; RSS {}",
            metrics.writes(),
            memory(&operator),
        ));
        operator
    }

    /// A window in which nothing happens but commits.
    pub(crate) async fn steady_state(&self, operator: &Operator) {
        let before = self.meter(operator).await;
        self.seen.begin();
        self.clock.sleep(self.steady).await;
        let spent = self.spent(operator, &before).await;
        say(format!("steady state: {spent}"));
    }

    /// Every worker's claim moves within a minute.
    pub(crate) async fn turn_of_the_hour(&self, operator: &Operator) {
        let before = self.meter(operator).await;
        self.seen.begin();
        let (turn_us, claim_us) = self.workers.turn();
        self.until_claimed(claim_us).await;
        let spent = self.spent(operator, &before).await;
        say(format!("turn of the hour: {spent}"));
        say(format!(
            "  commit to watch: {}; most {:.0}/s over ten seconds; changes seen and repeated {:?}",
            self.latencies(turn_us),
            self.seen.most_per_second(),
            self.seen.changes(),
        ));
        self.until_quiet(operator).await;
    }

    async fn until_claimed(&self, claim_us: i64) {
        let size = self.size();
        self.until("every claim in its status", async || {
            self.seen.claimed(claim_us) == size
        })
        .await;
    }

    fn latencies(&self, turn_us: i64) -> String {
        let all = self.workers.all().iter().enumerate();
        let latencies = all.filter_map(|(number, worker)| {
            let seen_us = self.seen.claimed_at(&worker.uid)?;
            Some(seen_us - commit_after(number, turn_us))
        });
        shares(latencies.collect())
    }

    /// The leader is killed while claims move; a second replica goes on. Gives that one.
    pub(crate) async fn leader_killed(&self, leader: Operator) -> Operator {
        let second = self.start("second", IMAGE);
        self.until("a second replica", async || second.is_ready().await)
            .await;
        say(format!(
            "leader killed: the one that stands by has RSS {}",
            memory(&second),
        ));
        let before = self.meter(&second).await;
        self.seen.begin();
        let (turn_us, claim_us) = self.workers.turn();
        let some = self.size() / 4;
        self.until("a quarter of the claims", async || {
            self.seen.claimed(claim_us) >= some
        })
        .await;
        let written = leader.metrics().await.sum("status_writes_total", &[]);
        leader.kill();
        let killed = self.clock.monotonic();
        let at_kill = self.seen.claimed(claim_us);
        self.until("another leader", async || {
            second.metrics().await.sum("operator_leader", &[]) > 0.0
        })
        .await;
        let led = self.since(killed);
        self.until("its first status", async || {
            second.metrics().await.sum("status_writes_total", &[]) > 0.0
        })
        .await;
        let first = self.since(killed);
        self.until_claimed(claim_us).await;
        let done = self.since(killed);
        let spent = self.spent(&second, &before).await;
        say(format!("  {spent}"));
        self.until_quiet(&second).await;
        let (changes, repeats) = self.seen.changes();
        say(format!(
            "  killed with {at_kill} of {} written ({written} statuses by the first in its life); leads after {:.1} s, first status after {:.1} s, \
             all claims after {:.1} s; commit to watch: {}; lost {}, written again without need {repeats} of {changes}",
            self.size(),
            led.as_secs_f64(),
            first.as_secs_f64(),
            done.as_secs_f64(),
            self.latencies(turn_us),
            self.size() - self.seen.claimed(claim_us),
        ));
        second
    }

    /// A reader for each pipeline waits for the next hour.
    pub(crate) async fn long_polls(&self, operator: &Operator) {
        let next_us = self.workers.next();
        let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
        command
            .args(["--part", "polls", "--url", &operator.readers])
            .args(["--size", &self.size().to_string()])
            .args(["--before", &next_us.to_string()])
            .stdout(Stdio::piped());
        let rss = operator.process.memory_mib("VmRSS");
        let mut before = self.meter(operator).await;
        let child = command.spawn().expect("this program again");
        let all = counted(self.size());
        self.until("all readers waiting", async || {
            operator.metrics().await.sum("readers_waiting", &[]) >= all * 0.999
        })
        .await;
        say(format!(
            "{} readers wait: all after {:.1} s, {:.1} CPU s; RSS {rss:.0} → {:.0} MiB",
            self.size(),
            self.since(before.at).as_secs_f64(),
            seconds_of(operator.process.cpu_ns() - before.operator_ns),
            operator.process.memory_mib("VmRSS"),
        ));
        before = self.meter(operator).await;
        // One round of requests: all come back unanswered once, and wait again.
        self.clock.sleep(Duration::from_mins(1)).await;
        let spent = self.spent(operator, &before).await;
        say(format!(
            "  a minute of waiting, each asking every 30 s: {spent}"
        ));
        before = self.meter(operator).await;
        let (turn_us, _) = self.workers.turn();
        let output = tokio::task::spawn_blocking(move || child.wait_with_output());
        let output = output.await.expect("no panic").expect("our own child");
        let answers: Vec<(usize, Option<i64>, u32, u32)> =
            serde_json::from_slice(&output.stdout).expect("what came of the readers");
        let answered = answers
            .iter()
            .filter_map(|(number, at_us, _, _)| Some((*at_us)? - commit_after(*number, turn_us)));
        let latencies: Vec<i64> = answered.collect();
        let failed: u32 = answers.iter().map(|(_, _, _, failed)| failed).sum();
        let spent = self.spent(operator, &before).await;
        say(format!(
            "  the hour turns: {} of {} told; commit to answer: {}; {failed} failures; {spent}",
            latencies.len(),
            self.size(),
            shares(latencies),
        ));
        self.until_quiet(operator).await;
    }

    /// A policy gives every pipeline other bounds; its limits are those of the operator: a tenth at once.
    pub(crate) async fn policy_change(&self, operator: &Operator) {
        let hashes = self.seen.hashes();
        let before = self.meter(operator).await;
        self.seen.begin();
        let api: Api<IngestionPolicy> = Api::all(self.client.clone());
        let policy = json!({
            "apiVersion": "tidemark.dev/v1alpha1", "kind": "IngestionPolicy", "metadata": {"name": "bounds"},
            "spec": {"overrides": {"finalization": {"allowedLateness": "7m"}}, "rollout": {"maxChanging": "10%"}},
        });
        let by_a_person = PatchParams::apply("person").force();
        let applied = api
            .patch("bounds", &by_a_person, &Patch::Apply(policy))
            .await;
        applied.expect("a policy");
        self.until_changed(&hashes).await;
        let quiet = self.until_quiet(operator).await;
        let spent = self.spent(operator, &before).await;
        let (changes, repeats) = self.seen.changes();
        say(format!(
            "policy change over all: everything as it shall be after {:.0} s; {changes} changes seen, {repeats} of them of conditions only; {spent}",
            quiet.saturating_sub(before.at).as_secs_f64(),
        ));
    }

    async fn until_changed(&self, before: &HashMap<String, String>) {
        let size = self.size();
        self.until("every pipeline ready with the new settings", async || {
            self.seen.changed_from(before) == size
        })
        .await;
    }

    /// The operator ends and one of another version begins, with another image for the workers.
    pub(crate) async fn upgrade(&self, old: Operator) {
        let began = self.clock.monotonic();
        old.stop();
        let stopped = self.since(began);
        self.seen.begin();
        let new = self.start("upgraded", "registry.example/tidemark:2");
        self.until("the lists", async || new.is_ready().await).await;
        let before = self.meter(&new).await;
        let restarted = self.kubelet.restarted();
        let size = self.size();
        self.until("every pod of the new image, ready", async || {
            self.kubelet.restarted() - restarted == size && self.seen.ready() == size
        })
        .await;
        let quiet = self.until_quiet(&new).await;
        let spent = self.spent(&new, &before).await;
        let (changes, repeats) = self.seen.changes();
        say(format!(
            "upgrade: the old one ended after {:.1} s; all pods of the new image and ready {:.0} s after that; \
             {changes} changes seen, {repeats} of them of other things than readiness; {spent}",
            stopped.as_secs_f64(),
            quiet.saturating_sub(began + stopped).as_secs_f64(),
        ));
    }
}

/// Names what is measured before it is.
pub(crate) fn head(size: usize) -> String {
    format!(
        "\n{size} pipelines, {}, load {:.1}, this process {:.0} MiB",
        cpu::machine(),
        cpu::load(),
        Process::own().memory_mib("VmRSS"),
    )
}

/// Its memory now and at most; of the former the program's text is shared with every other process of it.
fn memory(operator: &Operator) -> String {
    let mib = |line| operator.process.memory_mib(line);
    format!(
        "{:.0} MiB (anonymous {:.0}, peak {:.0})",
        mib("VmRSS"),
        mib("RssAnon"),
        mib("VmHWM")
    )
}

fn reconciled(metrics: &Metrics) -> f64 {
    let labels = ["step=\"pipeline\"", "outcome=\"ok\""];
    metrics.sum("operator_reconcile_seconds_count", &labels)
}

fn counted(size: usize) -> f64 {
    f64::from(u32::try_from(size).expect("a number of pipelines"))
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53: some hours of ns")]
fn seconds_of(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Shares of latencies in seconds.
#[expect(clippy::cast_precision_loss, reason = "below 2^53: some hours of µs")]
fn shares(mut latencies_us: Vec<i64>) -> String {
    latencies_us.sort_unstable();
    let share = |percent: usize| {
        let at = (latencies_us.len() * percent / 100).min(latencies_us.len().saturating_sub(1));
        latencies_us.get(at).map_or(f64::NAN, |us| *us as f64 / 1e6)
    };
    format!(
        "p50 {:.1} s, p99 {:.1} s, most {:.1} s",
        share(50),
        share(99),
        share(100)
    )
}
