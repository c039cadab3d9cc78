//! A whole pipeline: real broker, real catalog, the real program, and two foreign readers at the end.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use crate::support::{
    catalog::Catalog,
    judge::{Sent, judge},
    kafka::Broker,
    ledger::{Ledger, Plan},
    readers::Reader,
    server::own_name,
    wait::within,
    worker::{Pipeline, Worker, change, claim, history, note, size},
};

/// How far the claim has to move, and so how long the load runs.
const CELLS: i64 = 10;
/// For what takes seconds on a quiet machine, and the fifty seconds of ten cells.
const PATIENCE: Duration = Duration::from_mins(3);

/// Every row is there once with what it was sent with, the claim moves over ten cells, and is never above the truth.
#[test]
fn rows_arrive_once_and_the_claim_is_never_early() {
    let (broker, catalog) = (Broker::shared(), Catalog::shared());
    let pipeline = Pipeline {
        name: "end-to-end".to_owned(),
        bootstrap: broker.bootstrap(),
        topics: vec![broker.topic("end_to_end", 3)],
        catalog_uri: catalog.uri(),
        namespace: own_name("end_to_end"),
        replicas: 1,
        max_delay: Duration::from_secs(2),
        cell_s: 5,
        sink: String::new(),
    };
    let ledger = Ledger::start(
        broker,
        Plan {
            topic: pipeline.topics[0].clone(),
            partitions: 3,
            rows_per_second: 300,
            lateness: Duration::from_secs(1),
            transactions: None,
            message: change,
        },
    );
    let worker = Worker::start(&pipeline, "worker");
    let first = within(PATIENCE, "the first claim", || {
        claim(catalog, &pipeline.namespace)
    });
    let enough = first + CELLS * pipeline.bounds().cell_us;
    within(PATIENCE, "ten more cells", || {
        claim(catalog, &pipeline.namespace).filter(|claim| *claim >= enough)
    });
    let sent = ledger.stop();
    within(PATIENCE, "the last rows", || {
        (size(catalog, &pipeline.namespace).0 >= sent.len()).then_some(())
    });
    assert!(worker.terminate().success());

    let verdict = judge(
        &sent,
        &history(catalog, &pipeline.namespace),
        pipeline.bounds(),
    );
    verdict.assert_true();
    verdict.assert_moved(CELLS);
    let wanted = sent.iter().map(as_row).collect::<BTreeMap<_, _>>();
    for reader in Reader::ALL {
        let rows = reader.rows(catalog, &pipeline.namespace, Pipeline::TABLE);
        assert_eq!(rows.len(), wanted.len(), "{reader:?}");
        for row in rows {
            assert_eq!(
                wanted.get(&place(&row)),
                Some(&without_moment(row)),
                "{reader:?}"
            );
        }
    }
}

fn place(row: &Value) -> String {
    format!(
        "{} {} {}",
        row["_cdc_topic"], row["_cdc_partition"], row["_cdc_offset"]
    )
}

/// When a row was read is the worker's own to say; everything else is known before.
fn without_moment(mut row: Value) -> Value {
    assert!(row["_cdc_ingested_at"].is_i64(), "{row}");
    row.as_object_mut()
        .expect("a row")
        .remove("_cdc_ingested_at");
    row
}

/// A row as it has to be read, and where.
fn as_row(sent: &Sent) -> (String, Value) {
    let row = json!({
        "id": sent.number,
        "note": note(sent.number),
        "_cdc_op": "c",
        "_cdc_event_time": sent.event_time_us,
        "_cdc_event_time_raw": null,
        "_cdc_position": {"incarnation": "mariadb/shop/1#0", "position": (1_u64 << 32) + 4 + sent.number * 100, "sub": 0},
        "_cdc_replay": false,
        "_cdc_unavailable": null,
        "_cdc_topic": sent.place.0,
        "_cdc_partition": sent.place.1,
        "_cdc_offset": sent.place.2,
    });
    (place(&row), row)
}
