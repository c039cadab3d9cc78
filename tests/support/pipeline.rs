//! One worker in the test's process on a real broker and a real catalog, and what its table then says.

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use serde_json::Value;
use tidemark::{
    api::{
        EffectiveSpec, Reason,
        condition::{Answer, ConditionType},
        load_manifests,
        worker::{PipelineProgress, Progress, RunState},
    },
    process::{Metrics, clock::Clock},
    sink::{GRACE, Worker, WorkerSettings},
};
use tokio_util::sync::CancellationToken;

use super::{
    catalog::{Catalog, local_path},
    kafka::Broker,
    wait::within,
};

/// How long a worker may take for anything on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A pipeline of key-value rows with cells of five seconds.
#[derive(Clone, Copy)]
pub(crate) struct Pipeline<'a> {
    pub(crate) name: &'a str,
    pub(crate) bootstrap: &'a str,
    pub(crate) topics: &'a str,
    pub(crate) namespace: &'a str,
    /// The address of the REST catalog; `None`: the shared one's.
    pub(crate) catalog: Option<&'a str>,
    pub(crate) format: &'a str,
    pub(crate) source: &'a str,
    pub(crate) event_time: &'a str,
    pub(crate) columns: &'a str,
    pub(crate) finalization: &'a str,
    /// Further lines under `sink`.
    pub(crate) sink: &'a str,
    pub(crate) replicas: u32,
}

impl Pipeline<'_> {
    /// Everything but broker, topics and namespace: one column beside the key, the record's timestamp as event time.
    pub(crate) const USUAL: Self = Self {
        name: "rows",
        bootstrap: "",
        topics: "",
        namespace: "",
        catalog: None,
        format: "Json",
        source: "",
        event_time: "{from: RecordTimestamp}",
        columns: "- {name: text, type: string}",
        finalization: "{cell: 5s, allowedLateness: 1s, maxDelay: 2s, maxFutureSkew: 1s}",
        sink: "",
        replicas: 1,
    };

    pub(crate) fn spec(&self) -> EffectiveSpec {
        let shared = Catalog::shared().uri();
        let catalog = self.catalog.unwrap_or(&shared);
        let Self {
            name,
            bootstrap,
            topics,
            namespace,
            catalog: _,
            format,
            source,
            event_time,
            columns,
            finalization,
            sink,
            replicas,
        } = self;
        let manifest = format!(
            r#"
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: {name}, namespace: {}}}
spec:
  source:
    kafka: {{bootstrapServers: "{bootstrap}", {topics}}}
    format: {format}
    {source}
  eventTime: {event_time}
  sink:
    catalog: {{type: Rest, uri: "{catalog}"}}
    table: {namespace}.rows
    schema:
      - {{name: id, type: long, key: true}}
      {columns}
    commit: {{interval: 1s}}
    {sink}
  finalization: {finalization}
  worker: {{replicas: {replicas}}}
"#,
            namespace.replace('_', "-")
        );
        let mut loaded = load_manifests(&manifest).unwrap_or_else(|faults| panic!("{faults:#?}"));
        loaded.remove(0).1
    }
}

/// What a test begins with: a topic of the shared broker and a namespace of the shared catalog.
pub(crate) struct Scene {
    pub(crate) broker: &'static Broker,
    pub(crate) topic: String,
    pub(crate) namespace: String,
    /// Another address of the catalog, such as a proxy's.
    pub(crate) catalog: Option<String>,
    bootstrap: String,
    topics: String,
}

impl Scene {
    pub(crate) fn new(test: &str, partitions: i32) -> Self {
        let broker = Broker::shared();
        let topic = broker.topic(test, partitions);
        Self {
            broker,
            bootstrap: broker.bootstrap(),
            topics: format!("topics: [{topic}]"),
            topic,
            namespace: Catalog::shared().namespace(test),
            catalog: None,
        }
    }

    /// One partition with these rows.
    pub(crate) fn with_rows(test: &str, ids: std::ops::Range<u64>) -> Self {
        let scene = Self::new(test, 1);
        scene.write(0, ids);
        scene
    }

    pub(crate) fn write(&self, partition: i32, ids: std::ops::Range<u64>) {
        write(self.broker, &self.topic, partition, ids);
    }

    /// One column beside the key.
    pub(crate) fn pipeline(&self) -> Pipeline<'_> {
        Pipeline {
            bootstrap: &self.bootstrap,
            topics: &self.topics,
            namespace: &self.namespace,
            catalog: self.catalog.as_deref(),
            ..Pipeline::USUAL
        }
    }

    pub(crate) fn spec(&self) -> EffectiveSpec {
        self.pipeline().spec()
    }

    /// The same with another line under `source`.
    pub(crate) fn with_source(&self, source: &str) -> EffectiveSpec {
        Pipeline {
            source,
            ..self.pipeline()
        }
        .spec()
    }

    pub(crate) fn table(&self) -> Value {
        table(&self.namespace)
    }

    pub(crate) fn total_records(&self) -> u64 {
        total_records(&self.table())
    }

    /// The data files in the table's folder, in the table or not.
    pub(crate) fn data_files(&self) -> BTreeSet<PathBuf> {
        let table = self.table();
        let location = table["metadata"]["location"].as_str().expect("a location");
        let mut folders = vec![local_path(location).join("data")];
        let mut files = BTreeSet::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder of data") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.insert(path);
                }
            }
        }
        files
    }
}

/// A worker that runs.
pub(crate) struct Running {
    runtime: tokio::runtime::Runtime,
    stop: CancellationToken,
    /// What the worker counts.
    pub(crate) metrics: Metrics,
    pub(crate) progress: tokio::sync::watch::Receiver<Progress>,
    task: tokio::task::JoinHandle<()>,
}

pub(crate) fn start(specs: Vec<EffectiveSpec>) -> Running {
    start_with(specs, |worker| worker)
}

/// A worker of another name: the second of a pipeline.
pub(crate) fn start_as(worker: &str, specs: Vec<EffectiveSpec>) -> Running {
    run(worker, Clock::system(), specs, |worker| worker)
}

pub(crate) fn start_with(
    specs: Vec<EffectiveSpec>,
    extend: impl FnOnce(Worker) -> Worker,
) -> Running {
    run("one", Clock::system(), specs, extend)
}

/// The same on a clock that a test steps.
pub(crate) fn start_on(clock: Clock, specs: Vec<EffectiveSpec>) -> Running {
    run("one", clock, specs, |worker| worker)
}

fn run(
    worker: &str,
    clock: Clock,
    specs: Vec<EffectiveSpec>,
    extend: impl FnOnce(Worker) -> Worker,
) -> Running {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let stop = CancellationToken::new();
    let metrics = Metrics::default();
    let (worker, progress) = runtime.block_on(async {
        let worker = Worker::new(WorkerSettings {
            worker_id: worker.to_owned(),
            installation: String::new(),
            clock,
            metrics: metrics.clone(),
            grace: GRACE,
        });
        let worker = extend(worker);
        worker.set_pipelines(specs).await;
        let progress = worker.progress();
        (worker, progress)
    });
    let token = stop.clone();
    let task = runtime.spawn(async move { worker.run(token).await });
    Running {
        runtime,
        stop,
        metrics,
        progress,
        task,
    }
}

impl Running {
    pub(crate) fn stop(self) {
        self.stop.cancel();
        self.runtime.block_on(self.task).expect("the worker ends");
    }

    /// What a scrape shows now of the first series of a metric.
    pub(crate) fn scraped(&self, metric: &str) -> Option<i64> {
        let page = self.metrics.encode();
        let line = page
            .lines()
            .find(|line| line.starts_with(&format!("{metric}{{")))?;
        Some(line.rsplit(' ').next()?.parse().expect("a whole number"))
    }

    /// Waits until some pipeline's progress is as wanted.
    pub(crate) fn wait(&self, what: &str, wanted: impl Fn(&PipelineProgress) -> bool) {
        within(PATIENCE, what, || {
            let progress = self.progress.borrow();
            progress.pipelines.values().any(&wanted).then_some(())
        });
    }

    pub(crate) fn wait_for_all(
        &self,
        what: &str,
        count: usize,
        wanted: impl Fn(&PipelineProgress) -> bool,
    ) {
        within(PATIENCE, what, || {
            let progress = self.progress.borrow();
            let all = progress
                .pipelines
                .values()
                .filter(|pipeline| wanted(pipeline))
                .count();
            (all == count).then_some(())
        });
    }
}

/// The table's claim as `/progress` has it.
pub(crate) fn claimed(pipeline: &PipelineProgress) -> Option<i64> {
    pipeline.claim.as_ref()?.finalized_before_us
}

pub(crate) fn reason(pipeline: &PipelineProgress) -> Option<Reason> {
    pipeline.last_error.as_ref().map(|error| error.reason)
}

/// Whether a pipeline is kept from its work there, for this reason; then all of `/progress` says so: the hold of the next cell, a
/// lag that nobody knows, the conditions.
#[track_caller]
pub(crate) fn is_kept(pipeline: &PipelineProgress, state: RunState, because: Reason) -> bool {
    if pipeline.state != state || reason(pipeline) != Some(because) {
        return false;
    }
    let error = pipeline.last_error.as_ref().expect("a reason");
    let hold = pipeline.hold.as_ref().expect("a hold");
    assert_eq!(
        (hold.reason, &hold.partition, hold.since_us),
        (because, &error.partition, error.since_us)
    );
    assert_eq!(pipeline.lag, None, "rows may be there that nobody has seen");
    for condition in pipeline.conditions() {
        let ready = condition.kind == ConditionType::Ready && state != RunState::Running;
        if ready || condition.kind == ConditionType::Advancing {
            let told = (condition.status, condition.reason, &condition.message);
            assert_eq!(told, (Answer::False, because, &error.message));
        }
    }
    true
}

pub(crate) fn table(namespace: &str) -> Value {
    Catalog::shared()
        .table(namespace, "rows")
        .expect("the table")
}

pub(crate) fn row(id: u64) -> (String, String) {
    (
        format!(r#"{{"id":{id}}}"#),
        format!(r#"{{"text":"row {id}"}}"#),
    )
}

pub(crate) fn write(broker: &Broker, topic: &str, partition: i32, ids: std::ops::Range<u64>) {
    let rows: Vec<(String, String)> = ids.map(row).collect();
    let rows = rows
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    broker.write(topic, partition, rows);
}

pub(crate) fn property<'m>(table: &'m Value, name: &str) -> Option<&'m str> {
    table["metadata"]["properties"][name].as_str()
}

pub(crate) fn total_records(table: &Value) -> u64 {
    let newest = &table["metadata"]["current-snapshot-id"];
    let snapshots = table["metadata"]["snapshots"]
        .as_array()
        .expect("snapshots");
    let newest = snapshots
        .iter()
        .find(|snapshot| snapshot["snapshot-id"] == *newest);
    let total = newest.and_then(|snapshot| snapshot["summary"]["total-records"].as_str());
    total.map_or(0, |total| total.parse().expect("a number"))
}
