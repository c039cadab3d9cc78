//! A published stretch that is taken back, while the worker runs on a real broker and a real catalog.

use std::process::{Command, Output};

use serde_json::Value;
use tidemark::{api::quantity::instant, process::clock::Clock};

use crate::support::{
    catalog::Catalog,
    kafka::Broker,
    pipeline::{Pipeline, claimed, property, start, table, write},
};

const CELL_US: i64 = 5_000_000;

fn ran(command: &str, namespace: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidemark"))
        .args([command, &format!("{namespace}.rows")])
        .args(arguments)
        .args(["--catalog-uri", &Catalog::shared().uri()])
        .output()
        .expect("the program")
}

fn wait(namespace: &str, before_us: i64) -> (Option<i32>, Value) {
    let before = instant(before_us);
    let asked = ["--timeout", "0s", "--before", &before, "-o", "json"];
    let output = ran("wait", namespace, &asked);
    let answer = serde_json::from_slice(&output.stdout).expect("JSON");
    (output.status.code(), answer)
}

/// The stretch stays out over the worker's further commits; what lies beside it, and what comes after, is as it was.
#[test]
fn a_retracted_stretch_stays_out_of_the_claim_while_the_worker_goes_on() {
    let broker = Broker::shared();
    let topic = broker.topic("retracted", 1);
    let namespace = Catalog::shared().namespace("retracted");
    write(broker, &topic, 0, 0..3);
    let bootstrap = broker.bootstrap();
    let topics = format!("topics: [{topic}]");
    let pipeline = Pipeline {
        bootstrap: &bootstrap,
        topics: &topics,
        namespace: &namespace,
        finalization: "{cell: 5s, allowedLateness: 1s, maxDelay: 2s, maxFutureSkew: 1s, completeFrom: Unbounded}",
        ..Pipeline::USUAL
    };
    let worker = start(vec![pipeline.spec()]);
    worker.wait("a claim", |pipeline| claimed(pipeline).is_some());
    let claim = {
        let table = table(&namespace);
        let text = property(&table, "tidemark.finalized-before-ms").expect("a claim");
        text.parse::<i64>().expect("milliseconds") * 1000
    };
    let (from, before) = (instant(claim - CELL_US + 1_000_000), instant(claim));
    let stretch = ["--from", &from, "--before", &before];
    let reason = ["--reason", "a job deleted rows"];
    let output = ran("retract", &namespace, &[&stretch[..], &reason].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");

    let now = Clock::system().now_us();
    write(broker, &topic, 0, 3..5);
    worker.wait("rows and a claim after it", |pipeline| {
        pipeline.rows == 5 && claimed(pipeline) > Some(now)
    });
    let own = worker.progress.borrow().pipelines.values().next().cloned();
    worker.stop();
    let own = own.and_then(|pipeline| pipeline.claim).expect("a claim");
    assert_eq!((own.epoch, own.gaps.len()), (2, 1));
    let after = table(&namespace);
    assert_eq!(property(&after, "tidemark.epoch"), Some("2"));
    let gaps: Value =
        serde_json::from_str(property(&after, "tidemark.gaps").expect("a gap")).expect("JSON");
    assert_eq!(
        gaps,
        serde_json::json!([[instant(claim - CELL_US), instant(claim)]])
    );
    let (code, answer) = wait(&namespace, claim);
    assert_eq!(code, Some(4), "{answer}");
    let why = answer["why"].as_str().expect("a reason");
    assert!(why.ends_with("a job deleted rows"), "{why}");
    assert_eq!(wait(&namespace, claim - CELL_US).0, Some(0));
    assert_eq!(wait(&namespace, claim + CELL_US).0, Some(0));

    let future = [
        "--from",
        "2999-01-01T00:00Z",
        "--before",
        "2999-01-02T00:00Z",
        "--reason",
        "too early",
    ];
    let refused = ran("retract", &namespace, &future);
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(
        told.contains("nothing is published from 2999-01-01T00:00:00Z on"),
        "{told}"
    );
    assert_eq!(
        table(&namespace)["metadata"]["current-snapshot-id"],
        after["metadata"]["current-snapshot-id"]
    );
}
