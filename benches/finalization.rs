//! What share of a worker's CPU the watermark takes.
//!
//! `cargo bench --bench finalization -- [--rows 1000000] [--rounds 5] [--mock]`. Above the line: the watermark's own functions
//! over the same rows, in the batches and the order of the pipeline: replay judgement, say, statistics, cells, digest, by the
//! sink's own [`EventTimeStatistics`]; then for each commit sealing, the state read back, the advance, summary and properties.
//! Below it: the whole pipeline of the same run.

#[expect(dead_code, reason = "each bench uses a part of it")]
mod support;

use std::{borrow::Cow, collections::HashMap, path::Path};

use serde_json::{Value, json};
use support::{
    Arguments, Figures,
    cpu::{self, thread_ns},
    events::PARTITIONS,
    folder,
    kafka::{Broker, MOCK_ROWS},
    part, per_row,
    pipeline::{Place, Worker},
    rows, say,
};
use tidemark::{
    api::built_in_policy,
    cdc::Rows,
    sink::{EventTimeStatistics, EventTimes, Known, Reading},
    watermark::{
        Ancestor, Anchor, AskedEnd, AskedPartitions, Asker, Contribution, Identity, Lineage,
        Origin, PartitionNews, Policy, Say, Standing, State, TableView, advance, contract, stand,
    },
};
use uuid::Uuid;

/// A commit every so many rows: far more often than a minute at full rate.
const ROWS_A_COMMIT: usize = 500_000;

const MINUTE_US: i64 = 60_000_000;

/// As Debezium's topics are read.
const READING: Reading = Reading {
    creates_only: false,
    in_source_order: true,
    claim_us: None,
};

fn main() {
    let arguments = Arguments::read();
    match arguments.text("part") {
        "watermark" => say(watermark(&arguments)),
        _ => compare(&arguments),
    }
}

fn compare(arguments: &Arguments) {
    let mock = arguments.has("mock");
    let most = if mock { MOCK_ROWS } else { u32::MAX };
    let row_count: u32 = arguments.number("rows", 1_000_000).min(most);
    let folder = folder("finalization");
    let broker = Broker::start(mock, &folder.join("kafka"));
    broker.fill("orders", row_count);
    say(format!(
        "{row_count} rows, {PARTITIONS} partitions, {}; CPU ns a row",
        cpu::machine()
    ));
    say("round  load  judge+say  statistics+cells+digest  commits  watermark  pipeline   share");
    let [mut watermarks, mut pipelines] = std::array::from_fn(|_| Figures::default());
    for round in 1..=arguments.number("rounds", 5) {
        let place = Place::new(folder.join(format!("round-{round}")));
        let load = cpu::load();
        let pipeline = pipeline(&place, &broker.bootstrap(), row_count);
        let folder = place.folder().display().to_string();
        let answer = part(
            "watermark",
            &[("folder", folder), ("rows", row_count.to_string())],
        );
        let of = |name: &str| answer[name].as_f64().expect("a number in an answer");
        let watermark = of("judge") + of("observe") + of("commits");
        say(format!(
            "{round:5}  {load:4.1}  {:9.1}  {:23.1}  {:7.2}  {watermark:9.1}  {pipeline:8.0}  {:5.2} %",
            of("judge"),
            of("observe"),
            of("commits"),
            watermark / pipeline * 100.0,
        ));
        watermarks.add(watermark);
        pipelines.add(pipeline);
    }
    for (name, of) in [
        ("least", Figures::least as fn(&Figures) -> f64),
        ("median", Figures::median),
    ] {
        say(format!(
            "{name}: watermark {:.1} / pipeline {:.0} = {:.2} %",
            of(&watermarks),
            of(&pipelines),
            of(&watermarks) / of(&pipelines) * 100.0,
        ));
    }
}

fn pipeline(place: &Place, bootstrap: &str, row_count: u32) -> f64 {
    place.add("orders", bootstrap, "orders", "2s");
    let mut worker = Worker::start(place);
    let commits = worker.wait_for(u64::from(row_count));
    let cpu_ns = worker.process.cpu_ns();
    drop(worker);
    per_row(cpu_ns, commits.rows)
}

fn watermark(arguments: &Arguments) -> Value {
    let folder = Path::new(arguments.text("folder"));
    let mut run = Run::new(built_in_policy());
    rows::decode(folder, arguments.number("rows", 0), |rows| {
        run.flush(rows);
        drop(rows.finish());
    });
    run.commit();
    run.answer()
}

/// The watermark's part of a pipeline, and what it took.
struct Run {
    policy: Policy,
    statistics: EventTimeStatistics,
    known: Vec<Known>,
    says: Vec<Say>,
    table: Table,
    ends: Vec<i64>,
    waiting: usize,
    now_us: i64,
    spent: Spent,
}

#[derive(Default)]
struct Spent {
    rows: u64,
    judge_ns: u64,
    observe_ns: u64,
    commit_ns: u64,
}

impl Run {
    fn new(policy: Policy) -> Self {
        Self {
            statistics: EventTimeStatistics::new(&policy, READING),
            known: vec![Known::default(); PARTITIONS as usize],
            says: Vec::new(),
            table: Table::new(&policy),
            ends: vec![0; PARTITIONS as usize],
            waiting: 0,
            now_us: 0,
            spent: Spent::default(),
            policy,
        }
    }

    fn flush(&mut self, rows: &mut Rows) {
        for facts in rows.facts() {
            self.ends[facts.partition as usize] += 1;
            self.now_us = facts.record_time_us + MINUTE_US;
        }
        let (facts, sources) = rows.facts_mut();
        let start_ns = thread_ns();
        self.statistics
            .judge(facts, sources, &mut self.known, self.now_us, &mut self.says);
        let judged_ns = thread_ns();
        self.statistics.observe(rows.facts(), &self.says);
        self.spent.observe_ns += thread_ns() - judged_ns;
        self.spent.judge_ns += judged_ns - start_ns;
        self.spent.rows += rows.len() as u64;
        self.waiting += rows.len();
        if self.waiting >= ROWS_A_COMMIT {
            self.commit();
        }
    }

    fn commit(&mut self) {
        if std::mem::take(&mut self.waiting) == 0 {
            return;
        }
        let start_ns = thread_ns();
        let times = self.statistics.seal();
        self.table
            .commit(&self.policy, times, self.ends.clone(), self.now_us);
        self.spent.commit_ns += thread_ns() - start_ns;
    }

    fn answer(&self) -> Value {
        let Spent {
            rows,
            judge_ns,
            observe_ns,
            commit_ns,
        } = self.spent;
        json!({
            "judge": per_row(judge_ns, rows),
            "observe": per_row(observe_ns, rows),
            "commits": per_row(commit_ns, rows),
        })
    }
}

/// What the table holds between commits, without a table.
struct Table {
    uuid: Uuid,
    next_offsets: Vec<i64>,
    properties: HashMap<String, String>,
    lineage: Lineage<'static>,
}

impl Table {
    /// With the first commit, which anchors the partitions.
    fn new(policy: &Policy) -> Self {
        let uuid = Uuid::from_u128(1);
        let identity = Identity {
            writer: "bench.orders".to_owned(),
            cluster_id: "cluster".to_owned(),
            installation: "local".to_owned(),
            table_uuid: uuid,
            table_ref: "main".to_owned(),
        };
        let mut table = Self {
            uuid,
            next_offsets: vec![0; PARTITIONS as usize],
            properties: HashMap::new(),
            lineage: Lineage::default(),
        };
        let first = State::new(identity, "orders", policy.clone(), 0);
        let mut news = contribution(policy, 0);
        news.anchors = (0..PARTITIONS.cast_signed())
            .map(|partition| Anchor {
                topic: "orders".to_owned(),
                topic_id: None,
                partition,
                offset: 0,
                origin: Origin::New,
                at_us: 0,
            })
            .collect();
        table.write(&first, policy, &news);
        table
    }

    /// What the watermark does for a commit: once to see whether it would close a cell, once to write it.
    fn commit(&mut self, policy: &Policy, times: EventTimes, ends: Vec<i64>, now_us: i64) {
        let with_a_say: u64 = times
            .partitions
            .iter()
            .filter_map(|partition| partition.stats.as_ref())
            .map(|stats| stats.rows)
            .sum();
        assert!(
            with_a_say * 100 > times.rows * 99,
            "nearly every row has a say: {with_a_say} of {}",
            times.rows
        );
        let mut news = contribution(policy, now_us);
        for ((partition, times), end_offset) in (0..).zip(&times.partitions).zip(&ends) {
            news.partitions.push(PartitionNews {
                topic: "orders".to_owned(),
                partition,
                start_offset: self.next_offsets[partition.cast_unsigned() as usize],
                end_offset: *end_offset,
                before: None,
                leader_epoch: Some(0),
                stats: times.stats,
                positions: None,
                newest_change: times.newest_change,
                resolved_us: None,
                asked_end: Some(AskedEnd {
                    at_us: now_us,
                    heartbeat_us: None,
                    high_watermark: end_offset + 1,
                    delivered: *end_offset,
                }),
            });
        }
        self.next_offsets = ends;
        news.rows = times.rows;
        news.excluded = times.excluded;
        news.cells = times.cells;
        news.event_times = times.sketch;
        let base = self.state();
        drop(advance(&base, policy, &news).expect("news that fit"));
        self.write(&base, policy, &news);
    }

    /// The state as a worker reads it before an attempt.
    fn state(&self) -> State {
        let view = TableView {
            table_uuid: self.uuid,
            table_ref: "main",
            properties: &self.properties,
            lineage: &self.lineage,
        };
        match stand(&Asker::new("bench.orders", 0), &view).expect("a state of our own") {
            Standing::GoesOn(going_on) => going_on.state,
            Standing::Begins(beginning) => unreachable!("no state: {beginning:?}"),
        }
    }

    fn write(&mut self, base: &State, policy: &Policy, news: &Contribution) {
        let advanced = advance(base, policy, news).expect("news that fit");
        let summary = contract::summary(&advanced, news);
        let properties = contract::properties(&advanced);
        for key in properties.remove {
            self.properties.remove(&key);
        }
        self.properties.extend(properties.set);
        let parent = self.lineage.snapshots.first();
        let ancestor = Ancestor {
            snapshot_id: parent.map_or(1, |parent| parent.snapshot_id + 1),
            parent_id: parent.map(|parent| parent.snapshot_id),
            summary: Cow::Owned(summary.into_iter().collect()),
            picked: None,
        };
        self.lineage.snapshots.insert(0, ancestor);
    }
}

fn contribution(policy: &Policy, now_us: i64) -> Contribution {
    let partitions = (0..PARTITIONS.cast_signed()).collect();
    Contribution {
        asked: Some(AskedPartitions {
            at_us: now_us,
            topics: [("orders".to_owned(), partitions)].into(),
        }),
        ..Contribution::empty((Uuid::now_v7(), "bench"), "orders", policy.grid, now_us)
    }
}
