//! The operator as the built program, and what it says of itself.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use super::cluster::{OPERATOR, SYSTEM};
use crate::support::{cpu::Process, wait};

/// How long a program may take to listen, or to end.
const SOON: Duration = Duration::from_mins(1);

/// One replica.
pub(crate) struct Operator {
    child: Child,
    /// What it uses.
    pub(crate) process: Process,
    /// Where readers ask it.
    pub(crate) readers: String,
    admin: String,
    client: reqwest::Client,
}

/// What is started.
pub(crate) struct Start<'a> {
    pub(crate) program: &'a Path,
    pub(crate) name: &'a str,
    pub(crate) image: &'a str,
    pub(crate) folder: &'a Path,
}

impl Operator {
    /// Starts one as the chart would.
    pub(crate) fn start(kubeconfig: &Path, start: &Start<'_>) -> Self {
        let Start { program, name, .. } = start;
        let log = start.folder.join(format!("{name}.log"));
        let child = Command::new(program)
            .args(["operator", "--worker-image", start.image])
            .args(["--operator-namespace", SYSTEM, "--lease", OPERATOR])
            .args(["--pod-name", name, "--log-format", "json"])
            .args(["--admin", "127.0.0.1:0", "--readers", "127.0.0.1:0"])
            .env("KUBECONFIG", kubeconfig)
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("a log file"))
            .spawn()
            .expect("the tidemark program");
        let process = Process::of(child.id());
        let (admin, readers) = wait::within(SOON, "an operator that listens", || told(&log));
        Self {
            child,
            process,
            readers: format!("http://{readers}"),
            admin: format!("http://{admin}"),
            client: reqwest::Client::new(),
        }
    }

    /// Whether it has seen everything once.
    pub(crate) async fn is_ready(&self) -> bool {
        let asked = self.client.get(format!("{}/readyz", self.admin));
        let answered = asked.send().await;
        answered.is_ok_and(|answer| answer.status().is_success())
    }

    /// What it counts.
    pub(crate) async fn metrics(&self) -> Metrics {
        let asked = self.client.get(format!("{}/metrics", self.admin)).send();
        let answer = asked.await.expect("an operator that answers");
        Metrics::read(&answer.text().await.expect("a page of metrics"))
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("a running operator");
        wait::within(SOON, "an operator that ends", || {
            self.child.try_wait().expect("our own child")
        });
    }
}

/// Ends it, also where a bench fails.
impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn told(log: &PathBuf) -> Option<(String, String)> {
    let log = fs::read_to_string(log).ok()?;
    let mut lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = lines.find(|line| line["message"] == "operator starts")?;
    let text = |name: &str| line[name].as_str().map(str::to_owned);
    Some((text("admin")?, text("readers")?))
}

/// A page of metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    fn read(page: &str) -> Self {
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let values = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(values.collect())
    }

    /// The sum of a metric over all of its series that have these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let name = format!("tidemark_{name}");
        let of = self.0.iter().filter(|(series, _)| {
            let is_meant = series
                .strip_prefix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('{'));
            is_meant && labels.iter().all(|label| series.contains(label))
        });
        of.map(|(_, value)| value).sum()
    }

    /// Its writes to the API server, by kind.
    pub(crate) fn writes(&self) -> BTreeMap<String, f64> {
        let mut writes = BTreeMap::new();
        let calls = self
            .0
            .iter()
            .filter(|(series, _)| series.starts_with("tidemark_operator_api_calls_total{"));
        for (series, count) in calls {
            let label = |name: &str| {
                let rest = series.split_once(&format!("{name}=\""))?.1;
                rest.split_once('"').map(|(value, _)| value)
            };
            if let (Some(verb), Some(kind)) = (label("verb"), label("kind"))
                && ["create", "update", "patch", "delete"].contains(&verb)
            {
                *writes.entry(kind.to_owned()).or_default() += count;
            }
        }
        writes
    }
}
