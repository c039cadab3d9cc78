//! TiDB's changes on a topic of several partitions, as TiCDC sends them: rows, replays, and the claim by its watermarks.
//!
//! The messages are made by the form that `data/ticdc/canal_json.jsonl` has.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tidemark::process::clock::Clock;

use crate::support::{
    catalog::Catalog,
    kafka::Broker,
    pipeline::{Pipeline, Running, property, start, table},
    readers::Reader,
    wait::pause,
};

const PARTITIONS: i32 = 3;

/// TiDB's timestamp of an instant, and a count within its millisecond.
fn tso(us: i64, counter: i64) -> i64 {
    (us / 1000) << 18 | counter
}

fn now_us() -> i64 {
    Clock::system().now_us()
}

fn row(id: i64, note: &str) -> Value {
    json!({"id": id.to_string(), "note": note, "data": "\u{0}\u{ff}A"})
}

fn change(kind: &str, data: &Value, old: &Value, commit_tso: i64) -> String {
    let list = |row: &Value| {
        if row.is_null() {
            Value::Null
        } else {
            json!([row])
        }
    };
    json!({
        "id": 0, "database": "shop", "table": "orders", "pkNames": ["id"], "isDdl": false, "type": kind,
        "es": commit_tso >> 18, "ts": now_us() / 1000, "sql": "",
        "sqlType": {"id": -5, "note": 12, "data": 2004}, "mysqlType": {"id": "bigint", "note": "varchar", "data": "blob"},
        "old": list(old), "data": list(data), "_tidb": {"commitTs": commit_tso},
    })
    .to_string()
}

fn watermark(tso: i64) -> String {
    json!({
        "id": 0, "database": "", "table": "", "pkNames": null, "isDdl": false, "type": "TIDB_WATERMARK", "es": tso >> 18,
        "ts": now_us() / 1000, "sql": "", "sqlType": null, "mysqlType": null, "data": null, "old": null,
        "_tidb": {"watermarkTs": tso},
    })
    .to_string()
}

fn ddl(tso: i64) -> String {
    json!({
        "id": 0, "database": "shop", "table": "orders", "pkNames": null, "isDdl": true, "type": "ALTER", "es": tso >> 18, "ts": 1,
        "sql": "ALTER TABLE orders ADD INDEX(note)", "sqlType": null, "mysqlType": null, "data": null, "old": null,
        "_tidb": {"commitTs": tso},
    })
    .to_string()
}

/// TiCDC's messages have no key.
fn send(broker: &Broker, topic: &str, partition: i32, messages: &[String]) {
    broker.write(
        topic,
        partition,
        messages.iter().map(|message| ("", message.as_str())),
    );
}

fn run(broker: &Broker, topic: &str, namespace: &str) -> Running {
    let bootstrap = broker.bootstrap();
    let topics = format!("topics: [{topic}]");
    let pipeline = Pipeline {
        bootstrap: &bootstrap,
        topics: &topics,
        namespace,
        format: "CanalJson",
        event_time: "{from: SourceCommit}",
        columns: "- {name: note, type: string}\n      - {name: data, type: binary}",
        finalization: "{cell: 5s, allowedLateness: 1s, maxDelay: 2s, maxFutureSkew: 1s, terms: [Resolved], completeFrom: Unbounded}",
        ..Pipeline::USUAL
    };
    start(vec![pipeline.spec()])
}

/// A watermark on each of these partitions every quarter of a second while `work` goes on, as TiCDC sends them.
fn with_watermarks(broker: &Broker, topic: &str, partitions: &[i32], work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for partition in partitions {
                    send(broker, topic, *partition, &[watermark(tso(now_us(), 0))]);
                }
                pause(Duration::from_millis(250));
            }
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// A partition without a watermark holds the claim; with one on each it moves, by their evidence alone.
#[test]
fn the_claim_moves_by_the_watermarks_of_every_partition() {
    let broker = Broker::shared();
    let topic = broker.topic("ticdc_claim", PARTITIONS);
    let namespace = Catalog::shared().namespace("ticdc_claim");
    for partition in 0..PARTITIONS {
        let id = i64::from(partition);
        let insert = change("INSERT", &row(id, "new"), &Value::Null, tso(now_us(), id));
        send(broker, &topic, partition, &[insert]);
    }
    let worker = run(broker, &topic, &namespace);
    with_watermarks(broker, &topic, &[0, 1], || {
        worker.wait("the partition that holds", |pipeline| {
            let holds = pipeline
                .hold
                .as_ref()
                .and_then(|hold| hold.partition.as_deref());
            let claim = pipeline
                .claim
                .as_ref()
                .and_then(|claim| claim.finalized_before_us);
            pipeline.rows == 3 && claim.is_none() && holds.is_some_and(|holds| holds.ends_with('2'))
        });
    });
    let began_us = now_us();
    with_watermarks(broker, &topic, &[0, 1, 2], || {
        worker.wait("two cells more", |pipeline| {
            let claim = pipeline.claim.as_ref();
            claim.is_some_and(|claim| {
                claim.evidence == ["resolved"]
                    && claim.finalized_before_us > Some(began_us + 5_000_000)
            })
        });
    });
    worker.stop();
    assert_eq!(
        property(&table(&namespace), "tidemark.evidence"),
        Some("resolved")
    );
}

/// Every kind of change, in an order that is not the commits', a watermark, and a change on each side of it.
fn changes(first: i64, at: impl Fn(i64) -> i64) -> Vec<String> {
    let [new, old] = ["new", "old"].map(|note| row(first + 1, note));
    let other = |note: &str| row(first + 2, note);
    let moved = json!({"id": (first + 1).to_string()});
    vec![
        ddl(at(0)),
        change("INSERT", &old, &Value::Null, at(5)),
        change("INSERT", &other("of another table"), &Value::Null, at(2)),
        change("UPDATE", &new, &old, at(6)),
        change("UPDATE", &row(first + 3, "new"), &moved, at(7)),
        change("DELETE", &other("of another table"), &Value::Null, at(8)),
        watermark(at(10)),
        change("DELETE", &other("again"), &Value::Null, at(8)),
        change("INSERT", &row(first + 4, "equal"), &Value::Null, at(10)),
    ]
}

/// A row as a reader finds it: offset, operation, id, note, and the second of its commit, from the position.
fn told(row: &Value, start_us: i64) -> String {
    let position = row["_cdc_position"]["position"].as_i64().unwrap();
    let commit_us = (position >> 18) * 1000;
    assert_eq!(row["data"], "00ff41");
    assert_eq!(row["_cdc_position"]["incarnation"], "ticdc/canal-json#0");
    assert_eq!(row["_cdc_event_time"], commit_us);
    let second = (commit_us - start_us / 1000 * 1000) / 1_000_000;
    let replay = if row["_cdc_replay"] == true {
        " replay"
    } else {
        ""
    };
    let of = |name: &str| row[name].to_string().replace('"', "");
    let (offset, op, id, note) = (of("_cdc_offset"), of("_cdc_op"), of("id"), of("note"));
    format!("{offset:0>2} {op} {id} {note} at {second}{replay}")
}

/// Below a watermark a change had come before, also in the next life of the worker; above it, it is new, whatever the order.
#[test]
fn canal_json_changes_are_rows_and_only_what_is_below_a_watermark_is_a_replay() {
    let broker = Broker::shared();
    let topic = broker.topic("ticdc_rows", PARTITIONS);
    let namespace = Catalog::shared().namespace("ticdc_rows");
    let start_us = now_us() - 60_000_000;
    let at = |second: i64| tso(start_us + second * 1_000_000, 7);
    for partition in 0..PARTITIONS {
        send(
            broker,
            &topic,
            partition,
            &changes(i64::from(partition) * 10, at),
        );
    }
    let worker = run(broker, &topic, &namespace);
    worker.wait("all rows", |pipeline| pipeline.rows == 24);
    worker.stop();
    // This one knows what was resolved from the table alone.
    for partition in 0..PARTITIONS {
        let id = i64::from(partition) * 10 + 5;
        let again = change("INSERT", &row(id, "again"), &Value::Null, at(9));
        let new = change("INSERT", &row(id + 1, "new"), &Value::Null, at(11));
        send(broker, &topic, partition, &[again, new]);
    }
    let worker = run(broker, &topic, &namespace);
    worker.wait("the rest", |pipeline| pipeline.rows == 6);
    worker.stop();

    let rows = Reader::PyIceberg.rows(Catalog::shared(), &namespace, "rows");
    let of_one = rows.iter().filter(|row| row["_cdc_partition"] == 1);
    let mut found: Vec<String> = of_one.map(|row| told(row, start_us)).collect();
    found.sort();
    assert_eq!(
        found,
        [
            "01 c 11 old at 5",
            "02 c 12 of another table at 2",
            "03 u 11 new at 6",
            "04 c 13 new at 7",
            "04 d 11 new at 7",
            "05 d 12 of another table at 8",
            "07 d 12 again at 8 replay",
            "08 c 14 equal at 10",
            "09 c 15 again at 9 replay",
            "10 c 16 new at 11",
        ]
    );
}
