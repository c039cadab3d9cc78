//! One worker in the test's process: a real broker, a real catalog, short cells.

use std::time::Duration;

use serde_json::Value;
use tidemark::{
    api::{EffectiveSpec, load_manifests, worker::Progress},
    process::{Metrics, clock::Clock},
    sink::{GRACE, Worker, WorkerSettings},
};
use tokio_util::sync::CancellationToken;

use crate::support::{catalog::Catalog, kafka::Broker, wait::within};

const PATIENCE: Duration = Duration::from_mins(1);

/// A pipeline of key-value rows with cells of five seconds.
fn spec(broker: &Broker, topic: &str, namespace: &str) -> EffectiveSpec {
    let (bootstrap, catalog) = (broker.bootstrap(), Catalog::shared().uri());
    let manifest = format!(
        r#"
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: rows, namespace: {}}}
spec:
  source:
    kafka: {{bootstrapServers: "{bootstrap}", topics: [{topic}]}}
    format: Json
  eventTime: {{from: RecordTimestamp}}
  sink:
    catalog: {{type: Rest, uri: "{catalog}"}}
    table: {namespace}.rows
    schema:
      - {{name: id, type: long, key: true}}
      - {{name: text, type: string}}
    commit: {{interval: 1s}}
  finalization: {{cell: 5s, allowedLateness: 1s, maxDelay: 2s, maxFutureSkew: 1s}}
"#,
        namespace.replace('_', "-")
    );
    let mut loaded = load_manifests(&manifest).unwrap_or_else(|faults| panic!("{faults:#?}"));
    loaded.remove(0).1
}

struct Running {
    runtime: tokio::runtime::Runtime,
    stop: CancellationToken,
    progress: tokio::sync::watch::Receiver<Progress>,
    task: tokio::task::JoinHandle<()>,
}

fn start(specs: Vec<EffectiveSpec>) -> Running {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let stop = CancellationToken::new();
    let (worker, progress) = runtime.block_on(async {
        let worker = Worker::new(WorkerSettings {
            worker_id: "one".to_owned(),
            installation: String::new(),
            clock: Clock::system(),
            metrics: Metrics::default(),
            grace: GRACE,
        });
        worker.set_pipelines(specs).await;
        let progress = worker.progress();
        (worker, progress)
    });
    let token = stop.clone();
    let task = runtime.spawn(async move { worker.run(token).await });
    Running {
        runtime,
        stop,
        progress,
        task,
    }
}

impl Running {
    fn stop(self) {
        self.stop.cancel();
        self.runtime.block_on(self.task).expect("the worker ends");
    }

    /// Waits until some pipeline's progress is as wanted.
    fn wait(&self, what: &str, wanted: impl Fn(&tidemark::api::worker::PipelineProgress) -> bool) {
        within(PATIENCE, what, || {
            let progress = self.progress.borrow();
            progress.pipelines.values().any(&wanted).then_some(())
        });
    }
}

fn property<'m>(table: &'m Value, name: &str) -> Option<&'m str> {
    table["metadata"]["properties"][name].as_str()
}

fn total_records(table: &Value) -> u64 {
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

/// The whole way: rows are in the table, and a quiet topic closes its cells by being caught up.
#[test]
fn rows_reach_the_table_and_quiet_cells_close() {
    let broker = Broker::shared();
    let topic = broker.topic("rows_reach_the_table", 2);
    let namespace = Catalog::shared().namespace("rows_reach_the_table");
    let keys: Vec<(String, String)> = (0..100)
        .map(|id| {
            (
                format!(r#"{{"id":{id}}}"#),
                format!(r#"{{"text":"row {id}"}}"#),
            )
        })
        .collect();
    let records = |part: usize| {
        keys.iter()
            .skip(part)
            .step_by(2)
            .map(|(key, value)| (key.as_str(), value.as_str()))
    };
    broker.write(&topic, 0, records(0));
    broker.write(&topic, 1, records(1));

    let worker = start(vec![spec(broker, &topic, &namespace)]);
    worker.wait("all rows", |pipeline| pipeline.rows == 100);
    worker.wait("a claim", |pipeline| {
        pipeline
            .claim
            .as_ref()
            .is_some_and(|claim| claim.finalized_before_us.is_some())
    });
    worker.stop();

    let table = Catalog::shared()
        .table(&namespace, "rows")
        .expect("the table");
    assert_eq!(total_records(&table), 100);
    assert!(property(&table, "tidemark.finalized-before").is_some());
    assert_eq!(property(&table, "tidemark.evidence"), Some("caught-up"));
}

/// What the second session reads begins where the first one ended.
#[test]
fn second_session_goes_on_where_the_first_one_ended() {
    let broker = Broker::shared();
    let topic = broker.topic("second_session", 1);
    let namespace = Catalog::shared().namespace("second_session");
    for round in 0..2_u64 {
        broker.write(
            &topic,
            0,
            [
                (r#"{"id":1}"#, r#"{"text":"a"}"#),
                (r#"{"id":2}"#, r#"{"text":"b"}"#),
            ],
        );
        let worker = start(vec![spec(broker, &topic, &namespace)]);
        worker.wait("two rows", |pipeline| pipeline.rows == 2);
        worker.stop();
        let table = Catalog::shared()
            .table(&namespace, "rows")
            .expect("the table");
        assert_eq!(total_records(&table), 2 * (round + 1));
    }
}
