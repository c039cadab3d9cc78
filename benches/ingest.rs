//! Rows per CPU second, against the floor: consuming alone plus writing Parquet alone of the same rows.
//!
//! `cargo bench --bench ingest -- [--rows 2000000] [--rounds 5] [--mock]`. The pipeline is `tidemark run` in a process of its
//! own, from its start to its last commit; the broker and the producer are others. Rounds are interleaved. The settings of the
//! floor's Parquet are pinned here and do not follow the product's: a slow writer must not raise its own floor.

#[expect(dead_code, reason = "each bench uses a part of it")]
mod support;

use std::{path::Path, time::Duration};

use arrow::{
    array::{AsArray as _, RecordBatch, UInt32Array},
    compute::take_record_batch,
    datatypes::TimestampMicrosecondType,
};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    file::properties::{EnabledStatistics, WriterProperties},
    schema::types::ColumnPath,
};
use serde_json::{Value, json};
use support::{
    Arguments, Figures,
    cpu::{self, Process},
    events::PARTITIONS,
    folder,
    kafka::{Broker, MOCK_ROWS},
    part, per_row,
    pipeline::{Place, Worker},
    rows, say,
};
use tidemark::kafka::{Mode, Position, Security, Settings, Source, TopicPartition};

/// What a pipeline has by default.
const MEMORY_BUDGET_BYTES: u64 = 256 << 20;

/// Rows whose Parquet is written in one go: they are held in memory.
const PARQUET_ROWS: u32 = 1_000_000;

const HOUR_US: i64 = 3_600_000_000;

/// Columns for which a dictionary does not pay.
const PLAIN: [&str; 11] = [
    "id",
    "customer_id",
    "price",
    "note",
    "created_at",
    "updated_at",
    "_cdc_event_time",
    "_cdc_offset",
    "_cdc_partition",
    "_cdc_ingested_at",
    "_cdc_position.position",
];

fn main() {
    let arguments = Arguments::read();
    match arguments.text("part") {
        "consume" => say(consume(&arguments)),
        "parquet" => say(parquet(&arguments)),
        _ => compare(&arguments),
    }
}

fn compare(arguments: &Arguments) {
    let mock = arguments.has("mock");
    let most = if mock { MOCK_ROWS } else { u32::MAX };
    let row_count: u32 = arguments.number("rows", 2_000_000).min(most);
    let folder = folder("ingest");
    let broker = Broker::start(mock, &folder.join("kafka"));
    broker.fill("orders", row_count);
    say(format!(
        "{row_count} rows, {PARTITIONS} partitions, {}, {} broker; CPU ns a row",
        cpu::machine(),
        if mock { "mock" } else { "Kafka" },
    ));
    say("round  load  consume  parquet    floor  pipeline  floor/pipeline  commits  peak MiB");
    let mut rounds = Rounds::default();
    for round in 1..=arguments.number("rounds", 5) {
        let place = Place::new(folder.join(format!("round-{round}")));
        let load = cpu::load();
        let pipeline = pipeline(&place, &broker.bootstrap(), row_count);
        let of = |name: &str| {
            let arguments = [
                ("bootstrap", broker.bootstrap()),
                ("folder", place.folder().display().to_string()),
                ("rows", row_count.to_string()),
            ];
            number(&part(name, &arguments), "ns_a_row")
        };
        let (consume, parquet) = (of("consume"), of("parquet"));
        std::fs::remove_dir_all(place.folder().join("warehouse")).expect("the round's table");
        let line = rounds.add(consume, parquet, &pipeline);
        say(format!("{round:5}  {load:4.1}  {line}"));
    }
    rounds.close();
}

/// The figures of all rounds.
#[derive(Default)]
struct Rounds {
    consume: Figures,
    parquet: Figures,
    pipeline: Figures,
    ratio: Figures,
    peak_mib: Figures,
    /// Of the last round.
    threads: Value,
}

impl Rounds {
    fn add(&mut self, consume: f64, parquet: f64, pipeline: &Value) -> String {
        let (whole, peak_mib) = (number(pipeline, "ns_a_row"), number(pipeline, "peak_mib"));
        let floor = consume + parquet;
        self.consume.add(consume);
        self.parquet.add(parquet);
        self.pipeline.add(whole);
        self.ratio.add(floor / whole);
        self.peak_mib.add(peak_mib);
        let commits = &pipeline["commits"];
        let line = format!(
            "{consume:7.0}  {parquet:7.0}  {floor:7.0}  {whole:8.0}  {:12.0} %  {commits:7}  {peak_mib:8.0}",
            floor / whole * 100.0,
        );
        self.threads = pipeline["threads"].clone();
        line
    }

    fn close(&self) {
        for (name, of) in [
            ("least", Figures::least as fn(&Figures) -> f64),
            ("median", Figures::median),
        ] {
            let (consume, parquet) = (of(&self.consume), of(&self.parquet));
            let (floor, whole) = (consume + parquet, of(&self.pipeline));
            say(format!(
                "{name}: consume {consume:.0} + parquet {parquet:.0} = floor {floor:.0}; pipeline {whole:.0} ns = {:.0} rows per CPU second; floor/pipeline {:.0} %",
                1e9 / whole,
                floor / whole * 100.0,
            ));
        }
        say(format!(
            "floor/pipeline by round: median {:.0} %, {:.0} to {:.0} %; peak RSS {:.0} MiB",
            self.ratio.median() * 100.0,
            self.ratio.least() * 100.0,
            self.ratio.greatest() * 100.0,
            self.peak_mib.greatest(),
        ));
        say(format!(
            "threads of the last round, ns a row: {}",
            self.threads
        ));
    }
}

/// The whole way, from the start of the process until the last row is committed.
fn pipeline(place: &Place, bootstrap: &str, row_count: u32) -> Value {
    place.add("orders", bootstrap, "orders", "2s");
    let mut worker = Worker::start(place);
    let commits = worker.wait_for(u64::from(row_count));
    let cpu_ns = worker.process.cpu_ns();
    let threads: serde_json::Map<String, Value> = worker
        .process
        .threads()
        .into_iter()
        .map(|(name, ns)| (name, json!(per_row(ns, commits.rows).round())))
        .collect();
    let peak_mib = worker.process.memory_mib("VmHWM");
    drop(worker);
    assert_eq!(commits.rows, u64::from(row_count), "rows on the table");
    json!({
        "ns_a_row": per_row(cpu_ns, commits.rows),
        "commits": commits.count,
        "peak_mib": peak_mib,
        "threads": threads,
    })
}

/// The same records through the same source, and nothing done with them.
fn consume(arguments: &Arguments) -> Value {
    let row_count: u64 = arguments.number("rows", 0);
    let settings = Settings {
        security: Security::default(),
        bootstrap_servers: arguments.text("bootstrap").to_owned(),
        group_id: "floor".to_owned(),
        member: "floor".to_owned(),
        properties: std::collections::BTreeMap::new(),
        memory_budget_bytes: MEMORY_BUDGET_BYTES,
    };
    let before_ns = Process::own().cpu_ns();
    let mut source =
        Source::create(&settings, Mode::Assign, PARTITIONS as usize).expect("a consumer");
    let starts: Vec<_> = (0..PARTITIONS.cast_signed())
        .map(|partition| {
            let at = TopicPartition::new("orders", partition);
            (at, Position::at(0))
        })
        .collect();
    source.assign(&starts).expect("an assignment");
    let (mut read, mut bytes) = (0_u64, 0_usize);
    while read < row_count {
        let chunk = source.poll_chunk(1_000, Duration::from_millis(100));
        for message in chunk.messages() {
            read += 1;
            bytes += message.value().map_or(0, <[u8]>::len);
        }
    }
    let ns = Process::own().cpu_ns() - before_ns;
    json!({"ns_a_row": per_row(ns, read), "bytes": bytes})
}

/// The same rows into Parquet, a file an hour, and the files onto the disk.
fn parquet(arguments: &Arguments) -> Value {
    let folder = Path::new(arguments.text("folder"));
    let row_count = arguments.number("rows", 0).min(PARQUET_ROWS);
    let mut hours: std::collections::BTreeMap<i64, Vec<RecordBatch>> =
        std::collections::BTreeMap::new();
    rows::decode(folder, row_count, |rows| {
        for (hour, batch) in by_hour(&rows.finish()) {
            hours.entry(hour).or_default().push(batch);
        }
    });
    let before_ns = cpu::thread_ns();
    let mut bytes = 0;
    for (hour, batches) in &hours {
        let mut writer = ArrowWriter::try_new(Vec::new(), batches[0].schema(), Some(pinned()))
            .expect("a schema that Parquet has");
        for batch in batches {
            writer.write(batch).expect("memory takes every byte");
        }
        let file = writer.into_inner().expect("memory takes every byte");
        bytes += file.len() as u64;
        std::fs::write(folder.join(format!("{hour}.parquet")), file).expect("room on the disk");
    }
    let ns = cpu::thread_ns() - before_ns;
    json!({
        "ns_a_row": per_row(ns, u64::from(row_count)),
        "bytes_a_row": per_row(bytes, u64::from(row_count)),
    })
}

fn by_hour(batch: &RecordBatch) -> Vec<(i64, RecordBatch)> {
    let times = batch
        .column_by_name("_cdc_event_time")
        .expect("a metadata column")
        .as_primitive::<TimestampMicrosecondType>();
    let mut hours: std::collections::BTreeMap<i64, Vec<u32>> = std::collections::BTreeMap::new();
    for (row, time_us) in (0..).zip(times.values()) {
        hours
            .entry(time_us.div_euclid(HOUR_US))
            .or_default()
            .push(row);
    }
    hours
        .into_iter()
        .map(|(hour, rows)| {
            let part = take_record_batch(batch, &UInt32Array::from(rows));
            (hour, part.expect("rows of the batch"))
        })
        .collect()
}

/// zstd 1, a dictionary only where it pays, chunk statistics untruncated, V1 pages.
fn pinned() -> WriterProperties {
    let level = ZstdLevel::try_new(1).expect("a level of zstd");
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_statistics_truncate_length(None);
    for column in PLAIN {
        let path = ColumnPath::new(column.split('.').map(str::to_owned).collect());
        properties = properties.set_column_dictionary_enabled(path, false);
    }
    properties.build()
}

fn number(answer: &Value, name: &str) -> f64 {
    answer[name].as_f64().expect("a number in an answer")
}
