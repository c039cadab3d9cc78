//! Rows that come for a final cell: what the table then says, and what its readers are told.

use std::process::Command;

use serde_json::Value;
use tidemark::{api::quantity::instant, process::clock::Clock};

use crate::support::{
    catalog::Catalog,
    kafka::Broker,
    pipeline::{PATIENCE, Pipeline, claimed, property, start, table, total_records},
    wait::within,
};

const CELL_US: i64 = 5_000_000;

/// `tidemark wait` over one cell, asked once: its exit code and its answer.
fn wait(namespace: &str, before_us: i64) -> (Option<i32>, Value) {
    let ran = Command::new(env!("CARGO_BIN_EXE_tidemark"))
        .args(["wait", &format!("{namespace}.rows"), "--timeout", "0s"])
        .args(["--before", &instant(before_us), "-o", "json"])
        .args(["--catalog-uri", &Catalog::shared().uri()])
        .output()
        .expect("the program");
    let answer = serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| {
        let told = String::from_utf8_lossy(&ran.stderr);
        panic!("no answer of wait: {error}: {told}")
    });
    (ran.status.code(), answer)
}

/// A late row is written, its cell gets a revision and is withheld, over a stop of the worker, until the claim next rises. The
/// claim never falls.
#[test]
fn a_late_row_withholds_its_cell_until_the_claim_next_rises() {
    let broker = Broker::shared();
    let topic = broker.topic("late_rows", 1);
    let namespace = Catalog::shared().namespace("late_rows");
    // By recent rows alone: the claim rises when the test says so.
    let finalization = "{cell: 5s, allowedLateness: 1s, maxDelay: 2s, maxFutureSkew: 1s, windowCommits: 1, \
                        terms: [Minimum], completeFrom: Unbounded, lateData: Reopen}";
    let bootstrap = broker.bootstrap();
    let topics = format!("topics: [{topic}]");
    let pipeline = Pipeline {
        bootstrap: &bootstrap,
        topics: &topics,
        namespace: &namespace,
        finalization,
        ..Pipeline::USUAL
    };
    let key = |id: u64| format!(r#"{{"id":{id}}}"#);
    let row = |id: u64, time_ms: Option<i64>| {
        broker.write_timed(&topic, 0, [(key(id).as_str(), r#"{"text":"a"}"#, time_ms)]);
    };
    let worker = start(vec![pipeline.spec()]);
    row(1, None);
    worker.wait("a claim", |pipeline| claimed(pipeline).is_some());
    worker.stop();
    let claim = {
        let table = table(&namespace);
        let text = property(&table, "tidemark.finalized-before-ms").expect("a claim");
        text.parse::<i64>().expect("milliseconds") * 1000
    };
    assert_eq!(wait(&namespace, claim).0, Some(0));

    row(2, Some((claim - CELL_US / 2) / 1000));
    let worker = start(vec![pipeline.spec()]);
    worker.wait("the late row", |pipeline| pipeline.rows == 1);
    worker.stop();
    let late = table(&namespace);
    assert_eq!(total_records(&late), 2);
    let ms = property(&late, "tidemark.finalized-before-ms");
    assert_eq!(ms, Some((claim / 1000).to_string().as_str()), "not lowered");
    let cell = [instant(claim - CELL_US), instant(claim)];
    let withheld: Value =
        serde_json::from_str(property(&late, "tidemark.withheld").expect("withheld")).unwrap();
    assert_eq!(withheld, serde_json::json!([cell]));
    let (code, answer) = wait(&namespace, claim);
    assert_eq!(
        (code, &answer["verdict"]),
        (Some(1), &Value::from("not-yet"))
    );
    assert_eq!(answer["revisions"][0]["revision"], 1);
    assert_eq!(
        wait(&namespace, claim - CELL_US).0,
        Some(0),
        "its neighbour"
    );

    within(PATIENCE, "rows beyond the next cell", || {
        let now_us = Clock::system().now_us();
        (now_us > claim + 2 * CELL_US).then_some(())
    });
    let worker = start(vec![pipeline.spec()]);
    row(3, None);
    worker.wait("a higher claim", |pipeline| claimed(pipeline) > Some(claim));
    worker.stop();
    assert_eq!(property(&table(&namespace), "tidemark.withheld"), None);
    let (code, answer) = wait(&namespace, claim);
    assert_eq!(code, Some(0), "{answer}");
    assert_eq!(answer["revisions"][0]["revision"], 1);
    assert_eq!(answer["epoch"], 1);
}
