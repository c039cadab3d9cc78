//! The real program on a manifest, as a person would run it, and what its table then tells.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use super::{
    catalog::{Catalog, request},
    judge::{Bounds, Commit},
    ledger::Event,
    readers::python,
    wait::within,
};

/// A worker commits what it has and leaves the group when it is told to stop; Kubernetes gives it thirty seconds.
const GRACE: Duration = Duration::from_secs(30);

/// A pipeline with short cells, from topics of [`change`]s to a table.
#[derive(Clone)]
pub(crate) struct Pipeline {
    pub(crate) name: String,
    pub(crate) bootstrap: String,
    pub(crate) topics: Vec<String>,
    pub(crate) catalog_uri: String,
    pub(crate) namespace: String,
    pub(crate) replicas: u32,
    pub(crate) max_delay: Duration,
    /// The length of a cell, seconds.
    pub(crate) cell_s: u32,
    /// Further fields of the sink, as `onRollback: KeepOffsets`, a line each.
    pub(crate) sink: String,
}

impl Pipeline {
    /// The table's name in its namespace.
    pub(crate) const TABLE: &'static str = "orders";

    /// The bounds that the manifest declares.
    pub(crate) fn bounds(&self) -> Bounds {
        let delay_us = i64::try_from(self.max_delay.as_micros()).expect("a short time");
        Bounds {
            lateness_us: 1_000_000,
            delay_us,
            cell_us: i64::from(self.cell_s) * 1_000_000,
        }
    }

    pub(crate) fn manifest(&self) -> String {
        format!(
            "\
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: {name}, namespace: tests}}
spec:
  source:
    kafka:
      bootstrapServers: {bootstrap}
      topics: [{topics}]
      properties: {{session.timeout.ms: \"3000\", heartbeat.interval.ms: \"500\", topic.metadata.refresh.interval.ms: \"1000\"}}
    format: DebeziumJson
  sink:
    catalog: {{type: Rest, uri: \"{catalog}\"}}
    table: {namespace}.{table}
    schema:
      - {{name: id, type: long, key: true}}
      - {{name: note, type: string}}
    commit: {{interval: 1s}}
    expire: {{keepSnapshots: 1000}}
    {sink}
  finalization: {{cell: {cell}s, allowedLateness: 1s, maxDelay: {delay}s}}
  worker: {{replicas: {replicas}}}
",
            name = self.name,
            bootstrap = self.bootstrap,
            topics = self.topics.join(", "),
            catalog = self.catalog_uri,
            namespace = self.namespace,
            table = Self::TABLE,
            replicas = self.replicas,
            sink = self.sink,
            cell = self.cell_s,
            delay = self.max_delay.as_secs(),
        )
    }
}

/// The manifest of a pipeline of key-value rows with cells of five seconds. `kafka` and `catalog` are the fields of its brokers and of
/// its catalog.
pub(crate) fn manifest_of_rows(name: &str, kafka: &str, catalog: &str, table: &str) -> String {
    format!(
        "\
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: {name}, namespace: tests}}
spec:
  source:
    kafka: {{{kafka}}}
    format: Json
  sink:
    catalog: {{{catalog}}}
    table: {table}
    schema: [{{name: id, type: long, key: true}}, {{name: text, type: string}}]
    commit: {{interval: 1s}}
  finalization: {{cell: 5s, allowedLateness: 1s, maxDelay: 2s}}
",
        name = name.replace('_', "-"),
    )
}

/// One running worker. Dropping it kills it.
pub(crate) struct Worker {
    process: Child,
    log: PathBuf,
}

impl Worker {
    /// Starts a worker on a pipeline; `who` tells its log from those of its like.
    pub(crate) fn start(pipeline: &Pipeline, who: &str) -> Self {
        Self::run((&pipeline.name, who), &pipeline.manifest(), &[])
    }

    /// Starts a worker on the manifest of this name, in an environment with these variables.
    pub(crate) fn run((name, who): (&str, &str), text: &str, variables: &[(&str, &str)]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let manifest = folder.join(format!("{name}.yaml"));
        // Whole at once: a second worker of the pipeline may be reading it.
        let new = manifest.with_extension(format!("{who}.new"));
        fs::write(&new, text).expect("a manifest in the target folder");
        fs::rename(&new, &manifest).expect("a manifest in its place");
        let log = folder.join(format!("{name}-{who}.log"));
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .expect("a log file");
        let process = Command::new(env!("CARGO_BIN_EXE_tidemark"))
            .arg("run")
            .arg(&manifest)
            .args(["--admin", "127.0.0.1:0"])
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn()
            .expect("the program");
        Self { process, log }
    }

    /// Where a worker writes what it has to say, one life after the other.
    pub(crate) fn log_of(pipeline: &Pipeline, who: &str) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{who}.log", pipeline.name))
    }

    /// Ends it at once, wherever it is.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    /// Ends it in order and says how it ended.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        let what = format!("an orderly end, see {}", self.log.display());
        within(GRACE, &what, || {
            self.process.try_wait().expect("our own child")
        })
    }

    /// Stops it in its tracks, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("a running worker");
    }

    /// Waits until its table has so many rows, and says how many it has.
    pub(crate) fn wait_for_rows(
        &self,
        wanted: u64,
        within_time: Duration,
        rows: impl Fn() -> Option<u64>,
    ) -> u64 {
        let what = format!("{wanted} rows, see {}", self.log.display());
        within(within_time, &what, || {
            rows().filter(|found| *found >= wanted)
        })
    }

    /// Holds that none of these is in its log or at `/progress`.
    pub(crate) fn assert_hidden(&self, secrets: &[&str]) {
        let log = fs::read_to_string(&self.log).expect("its log");
        let progress = self.progress();
        for secret in secrets {
            let path = self.log.display();
            assert!(!log.contains(secret), "a secret is in {path}");
            assert!(!progress.contains(secret), "a secret is in /progress");
        }
    }

    /// What it answers at `/progress` now.
    pub(crate) fn progress(&self) -> String {
        let address = self.admin();
        let address =
            address.unwrap_or_else(|| panic!("no admin address in {}", self.log.display()));
        request(address, "GET", "/progress", "")
            .map(|(_, body)| body)
            .unwrap_or_default()
    }

    /// Where it answers; `None` before it does.
    fn admin(&self) -> Option<SocketAddr> {
        let text = fs::read_to_string(&self.log).expect("the worker's log");
        let (_, rest) = text.rsplit_once("admin=")?;
        rest.split_whitespace().next()?.parse().ok()
    }

    /// Waits until it names this reason at `/progress`.
    pub(crate) fn wait_for_reason(&self, reason: &str, patience: Duration) {
        let said = format!("\"reason\":\"{reason}\"");
        let what = format!("{reason}, see {}", self.log.display());
        within(patience, &what, || {
            self.admin()?;
            self.progress().contains(&said).then_some(())
        });
    }

    /// Whether it runs; a worker never ends by itself.
    pub(crate) fn runs(&mut self) -> bool {
        self.process.try_wait().expect("our own child").is_none()
    }

    /// Where it writes what it has to say.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// The change that an event is, as Debezium writes an insert into a MariaDB table (`tests/data/mariadb` has captured ones).
pub(crate) fn change(event: &Event) -> (String, String) {
    let (id, time_us) = (event.number, event.event_time_us);
    let source = format!(
        "{{\"version\":\"3.5.0.Final\",\"connector\":\"mariadb\",\"name\":\"shop\",\"ts_ms\":{},\"snapshot\":\"false\",\"db\":\"shop\",\
         \"sequence\":null,\"ts_us\":{time_us},\"ts_ns\":{time_us}000,\"table\":\"orders\",\"server_id\":1,\"gtid\":null,\
         \"file\":\"binlog.000001\",\"pos\":{},\"row\":0,\"thread\":7,\"query\":null}}",
        time_us / 1_000,
        4 + id * 100,
    );
    let value = format!(
        "{{\"before\":null,\"after\":{{\"id\":{id},\"note\":\"{}\"}},\"source\":{source},\"transaction\":null,\"op\":\"c\",\
         \"ts_ms\":{},\"ts_us\":{time_us},\"ts_ns\":{time_us}000}}",
        note(id),
        time_us / 1_000,
    );
    (format!("{{\"id\":{id}}}"), value)
}

/// What the note of a row says: something that no other row says.
pub(crate) fn note(id: u64) -> String {
    format!("order {:016x}", id.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The history of a table, as PyIceberg reads it: its own commits, the oldest first.
pub(crate) fn history(catalog: &Catalog, namespace: &str) -> Vec<Commit> {
    let table = format!("{namespace}.{}", Pipeline::TABLE);
    let text = python("commits.py", &["--uri", &catalog.uri(), "--table", &table]);
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    lines.filter_map(|line| commit(&line)).collect()
}

/// What leads to a table's newest snapshot, as PyIceberg reads it: the commits of its writer, the oldest first. Others may have
/// changed the table as well, and older snapshots may have expired.
pub(crate) fn ancestry(catalog: &Catalog, namespace: &str) -> Vec<Commit> {
    let table = format!("{namespace}.{}", Pipeline::TABLE);
    let text = python("ancestry.py", &["--uri", &catalog.uri(), "--table", &table]);
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let own = lines.filter(|line| line["own"] == true);
    own.map(|line| commit_of(&line)).collect()
}

/// `None` for a snapshot of somebody else's, which brings no rows here.
fn commit(line: &Value) -> Option<Commit> {
    assert_eq!(
        line["parent_expired"], false,
        "what expired cannot be judged"
    );
    let summary = &line["summary"];
    if summary["tidemark.commit-id"].is_null() {
        assert_eq!(line["rows"], serde_json::json!([]), "rows of a stranger");
        return None;
    }
    assert!(
        summary["tidemark.gaps"].is_null(),
        "nothing was lost, so there is no gap: {summary}"
    );
    Some(commit_of(line))
}

fn commit_of(line: &Value) -> Commit {
    let rows = line["rows"].as_array().expect("rows");
    let summary = &line["summary"];
    let before = instant(&summary["tidemark.finalized-before"]);
    let complete =
        before.and_then(|before| Some((instant(&summary["tidemark.complete-from"])?, before)));
    let epoch = summary["tidemark.epoch"]
        .as_str()
        .and_then(|epoch| epoch.parse().ok())
        .unwrap_or(0);
    Commit {
        rows: rows.iter().map(row).collect(),
        epoch,
        complete,
        gaps: gaps(&summary["tidemark.gaps"]),
    }
}

/// Those with both ends, and those that are open as far as they can reach.
fn gaps(text: &Value) -> Vec<(i64, i64)> {
    let Some(text) = text.as_str() else {
        return Vec::new();
    };
    let gaps: Value = serde_json::from_str(text).expect("the gaps of a summary");
    let settled = gaps["settled"].as_array().expect("settled gaps").iter();
    let open = gaps["open"].as_array().expect("open gaps").iter();
    let settled = settled.filter_map(|gap| Some((instant(&gap[0])?, instant(&gap[1])?)));
    let open = open.filter_map(|gap| Some((instant(&gap["from"])?, instant(&gap["to"])?)));
    settled.chain(open).collect()
}

fn row(row: &Value) -> ((String, i32, i64), Option<i64>) {
    let partition = row[1]
        .as_i64()
        .and_then(|partition| i32::try_from(partition).ok());
    let place = (
        row[0].as_str().map(str::to_owned),
        partition,
        row[2].as_i64(),
    );
    let (Some(topic), Some(partition), Some(offset)) = place else {
        panic!("a row without its place: {row}")
    };
    ((topic, partition, offset), row[3].as_i64())
}

fn instant(text: &Value) -> Option<i64> {
    let text = text.as_str()?;
    let instant: jiff::Timestamp = text
        .parse()
        .unwrap_or_else(|error| panic!("no instant: {text}: {error}"));
    Some(instant.as_microsecond())
}

/// How many rows the table holds by its newest snapshot, and the number of that snapshot's commit.
pub(crate) fn size(catalog: &Catalog, namespace: &str) -> (usize, i64) {
    let Some(table) = catalog.table(namespace, Pipeline::TABLE) else {
        return (0, 0);
    };
    let metadata = &table["metadata"];
    let newest = metadata["snapshots"].as_array().and_then(|all| {
        all.iter()
            .find(|snapshot| snapshot["snapshot-id"] == metadata["current-snapshot-id"])
    });
    let records =
        newest.and_then(|snapshot| snapshot["summary"]["total-records"].as_str()?.parse().ok());
    (
        records.unwrap_or(0),
        metadata["last-sequence-number"].as_i64().unwrap_or(0),
    )
}

/// The claim of a table as its properties have it, in microseconds.
pub(crate) fn claim(catalog: &Catalog, namespace: &str) -> Option<i64> {
    let table = catalog.table(namespace, Pipeline::TABLE)?;
    instant(&table["metadata"]["properties"]["tidemark.finalized-before"])
}
