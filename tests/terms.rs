//! What may close a cell, each term on a real broker and a real catalog: what a claim rests on, and what holds it.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use tidemark::{
    api::{Reason, quantity::instant, worker::PipelineProgress},
    process::clock::Clock,
};

use crate::support::{
    catalog::Catalog,
    kafka::Broker,
    ledger::Event,
    pipeline::{Pipeline, claimed, property, start, table},
    wait::pause,
    worker::change,
};

const SECOND_US: i64 = 1_000_000;
const CELL_US: i64 = 5 * SECOND_US;
const DELAY_US: i64 = 2 * SECOND_US;

fn now_us() -> i64 {
    Clock::system().now_us()
}

fn evidence(namespace: &str) -> Option<String> {
    property(&table(namespace), "tidemark.evidence").map(str::to_owned)
}

/// What the table claims, µs.
fn on_table(namespace: &str) -> i64 {
    let table = table(namespace);
    let text = property(&table, "tidemark.finalized-before-ms").expect("a claim");
    text.parse::<i64>().expect("milliseconds") * 1_000
}

/// The exit code of `tidemark wait` for a reader who accepts one term.
fn accepted(namespace: &str, before_us: i64, term: &str) -> Option<i32> {
    let status = Command::new(env!("CARGO_BIN_EXE_tidemark"))
        .args(["wait", &format!("{namespace}.rows"), "--timeout", "0s"])
        .args(["--before", &instant(before_us), "--accept", term])
        .args(["--catalog-uri", &Catalog::shared().uri()])
        .output()
        .expect("the program")
        .status;
    status.code()
}

/// The oldest row of a long batch holds the minimum for as long as it is in the window; a percentile goes past it.
#[test]
fn a_percentile_is_ahead_of_the_minimum() {
    let broker = Broker::shared();
    let topic = broker.topic("percentile", 1);
    let namespace = Catalog::shared().namespace("percentile");
    let spec = Pipeline {
        bootstrap: &broker.bootstrap(),
        topics: &format!("topics: [{topic}]"),
        namespace: &namespace,
        finalization: "{cell: 5s, allowedLateness: 1s, maxDelay: 2s, maxFutureSkew: 1s, completeFrom: Unbounded, \
                       terms: [Minimum, Percentile], quantile: 0.01}",
        ..Pipeline::USUAL
    }
    .spec();
    let began_us = now_us();
    let mut id = 0;
    let mut write = |count: usize, seconds_ago: i64| {
        let time_ms = Some((began_us - seconds_ago * SECOND_US) / 1_000);
        let keys: Vec<String> = (id..id + count)
            .map(|id| format!(r#"{{"id":{id}}}"#))
            .collect();
        id += count;
        let rows = keys
            .iter()
            .map(|key| (key.as_str(), r#"{"text":"a"}"#, time_ms));
        broker.write_timed(&topic, 0, rows);
    };
    write(1, 60);
    write(599, 20);
    let worker = start(vec![spec]);
    worker.wait("the long batch", |pipeline| pipeline.rows == 600);
    write(1, 15);
    worker.wait("a second commit", |pipeline| pipeline.rows == 601);
    write(1, 15);
    worker.wait("a claim", |pipeline| claimed(pipeline).is_some());
    worker.stop();

    let claim_us = on_table(&namespace);
    assert!(
        claim_us > began_us - 30 * SECOND_US,
        "{}",
        instant(claim_us)
    );
    assert_eq!(evidence(&namespace).as_deref(), Some("percentile"));
    let codes = ["percentile", "minimum"].map(|term| accepted(&namespace, claim_us, term));
    assert_eq!(
        codes,
        [Some(0), Some(6)],
        "a reader may insist on the minimum"
    );
}

/// Something at the source that shows that it is alive, five times a second.
struct Heart {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<i64>,
}

impl Heart {
    fn start(topic: &str, beat: impl Fn(i64) -> (String, String) + Send + 'static) -> Self {
        let (topic, stop) = (topic.to_owned(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            loop {
                let at_us = now_us();
                let (key, value) = beat(at_us);
                Broker::shared().write(&topic, 0, [(key.as_str(), value.as_str())]);
                if told.load(Ordering::SeqCst) {
                    return at_us;
                }
                pause(Duration::from_millis(200));
            }
        });
        Self { stop, thread }
    }

    /// Stops it; gives the instant of the last beat.
    fn stop(self) -> i64 {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("the heart ends")
    }
}

/// As Debezium writes it with `heartbeat.interval.ms`.
fn of_connector(at_us: i64) -> (String, String) {
    let key = r#"{"serverName":"shop"}"#.to_owned();
    (key, format!(r#"{{"ts_ms":{}}}"#, at_us / 1_000))
}

/// The topic is read to its end all the while, so that nothing but the heartbeat tells a stopped connector from a quiet source.
#[test]
fn a_connector_that_stops_holds_the_claim() {
    let broker = Broker::shared();
    let topic = broker.topic("connector_stops", 1);
    let beats = broker.topic("connector_stops_beats", 1);
    let namespaces = ["connector_stops", "connector_unheard"];
    let [capped, plain] = namespaces.map(|name| Catalog::shared().namespace(name));
    let spec = |namespace: &str, source: &str| {
        Pipeline {
            bootstrap: &broker.bootstrap(),
            topics: &format!("topics: [{topic}]"),
            namespace,
            format: "DebeziumJson",
            source,
            event_time: "{from: SourceCommit}",
            columns: "- {name: note, type: string}",
            ..Pipeline::USUAL
        }
        .spec()
    };
    let (key, value) = change(&Event {
        number: 1,
        event_time_us: now_us(),
    });
    broker.write(&topic, 0, [(key.as_str(), value.as_str())]);
    let heart = Heart::start(&beats, of_connector);
    let listening = start(vec![spec(&capped, &format!("heartbeatTopic: {beats}"))]);
    let deaf = start(vec![spec(&plain, "")]);
    listening.wait("a claim", |pipeline| claimed(pipeline).is_some());

    let last_us = heart.stop();
    let beyond = |pipeline: &PipelineProgress| claimed(pipeline) > Some(last_us + CELL_US);
    deaf.wait("a claim beyond the last heartbeat", beyond);
    listening.wait("the reason", |pipeline| {
        let hold = pipeline.hold.as_ref();
        hold.is_some_and(|hold| hold.reason == Reason::ConnectorSilent)
    });
    let held_us = on_table(&capped);
    assert!(held_us <= last_us - DELAY_US, "{}", instant(held_us));
    assert_eq!(evidence(&capped).as_deref(), Some("caught-up"));

    let heart = Heart::start(&beats, of_connector);
    listening.wait("a claim again", beyond);
    heart.stop();
    listening.stop();
    deaf.stop();
}

/// The rows of the table come through the same connector as those that it speaks for.
#[test]
fn a_heartbeat_table_closes_the_cells_of_a_silent_topic() {
    let broker = Broker::shared();
    let topic = broker.topic("heartbeat_table", 2);
    let beats = broker.topic("heartbeat_table_beats", 1);
    let namespace = Catalog::shared().namespace("heartbeat_table");
    let spec = Pipeline {
        bootstrap: &broker.bootstrap(),
        topics: &format!("topics: [{topic}]"),
        namespace: &namespace,
        format: "DebeziumJson",
        source: &format!("heartbeatTable: {beats}"),
        event_time: "{from: SourceCommit}",
        columns: "- {name: note, type: string}",
        ..Pipeline::USUAL
    }
    .spec();
    let worker = start(vec![spec]);
    let heart = Heart::start(&beats, |at_us| {
        change(&Event {
            number: 1,
            event_time_us: at_us,
        })
    });
    worker.wait("a claim", |pipeline| claimed(pipeline).is_some());
    let last_us = heart.stop();
    worker.wait("the reason", |pipeline| {
        let hold = pipeline.hold.as_ref();
        hold.is_some_and(|hold| hold.reason == Reason::ConnectorSilent)
    });
    worker.wait("a heartbeat that ages", |_| {
        worker.scraped("tidemark_heartbeat_age_seconds") >= Some(1)
    });
    worker.stop();
    assert!(on_table(&namespace) <= last_us - DELAY_US);
    assert_eq!(evidence(&namespace).as_deref(), Some("heartbeat"));
}

/// A watermark of TiCDC speaks for its partition alone.
#[test]
fn watermarks_of_every_partition_close_a_cell() {
    let broker = Broker::shared();
    let topic = broker.topic("watermarks", 2);
    let namespace = Catalog::shared().namespace("watermarks");
    let spec = Pipeline {
        bootstrap: &broker.bootstrap(),
        topics: &format!("topics: [{topic}]"),
        namespace: &namespace,
        format: "TicdcSimpleJson",
        event_time: "{from: SourceCommit}",
        finalization: "{cell: 5s, maxDelay: 2s, terms: [Resolved]}",
        ..Pipeline::USUAL
    }
    .spec();
    let watermark = |partition: i32, at_us: i64| {
        let (ms, tso) = (at_us / 1_000, at_us / 1_000 * (1 << 18));
        let value =
            format!(r#"{{"version":1,"type":"WATERMARK","commitTs":{tso},"buildTs":{ms}}}"#);
        broker.write(&topic, partition, [("", value.as_str())]);
    };
    let first_us = now_us();
    watermark(0, first_us);
    let worker = start(vec![spec]);
    worker.wait("the watermark of one partition", |pipeline| {
        let hold = pipeline.hold.as_ref();
        hold.is_some_and(|hold| hold.partition.as_deref() == Some(&format!("{topic}/1")))
    });
    watermark(1, first_us);
    worker.wait("a claim", |pipeline| claimed(pipeline).is_some());
    worker.stop();
    let claim_us = on_table(&namespace);
    assert!(
        (first_us - CELL_US..=first_us).contains(&claim_us),
        "{}",
        instant(claim_us)
    );
    assert_eq!(evidence(&namespace).as_deref(), Some("resolved"));
}

/// Nothing is read and nothing proved: the owner vouches for it.
#[test]
fn a_clock_closes_the_cells_of_a_topic_without_rows() {
    let broker = Broker::shared();
    let topic = broker.topic("clock", 1);
    let namespace = Catalog::shared().namespace("clock");
    let spec = Pipeline {
        bootstrap: &broker.bootstrap(),
        topics: &format!("topics: [{topic}]"),
        namespace: &namespace,
        finalization: "{cell: 5s, maxDelay: 2s, terms: [Minimum, Clock]}",
        ..Pipeline::USUAL
    }
    .spec();
    let worker = start(vec![spec]);
    worker.wait("a claim", |pipeline| claimed(pipeline).is_some());
    worker.stop();
    assert_eq!(evidence(&namespace).as_deref(), Some("clock"));
}
