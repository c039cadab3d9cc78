//! What share of a worker's CPU the watermark takes.
//!
//! `cargo bench --bench finalization -- [--rows 1000000] [--rounds 5] [--mock]`. Above the line: the watermark's own functions
//! over the same rows, in the batches and the order of the pipeline: replay judgement, say, statistics, cells, digest; then for
//! each commit sealing, the state read back, the advance, summary and properties. Below it: the whole pipeline of the same run.
//!
//! The rows' facts are read from memory and not from the cache as in the pipeline, so the share is rather too great.

#[expect(dead_code, reason = "each bench uses a part of it")]
mod support;

use std::{collections::HashMap, path::Path};

use serde_json::{Value, json};
use support::{
    Arguments, Figures,
    cpu::{self, thread_ns},
    events::PARTITIONS,
    folder,
    kafka::{Broker, MOCK_ROWS},
    part, per_row,
    pipeline::{Place, Worker},
    rows::{self, ROWS_A_FLUSH},
    say,
};
use tidemark::{
    cdc::{NO_TIME, RowFacts, Snapshot},
    watermark::{
        Ancestor, Anchor, AskedEnd, AskedPartitions, Bounds, CellCounts, Contribution, Digest,
        Excluded, FromRule, Grid, Identity, LateData, Lineage, NewestChange, OnJoin, PartitionNews,
        Policy, RowTime, Say, Sketch, SourcePositions, State, TableView, Term, advance, contract,
        stand,
    },
};
use uuid::Uuid;

/// A commit every so many rows: far more often than a minute at full rate.
const ROWS_A_COMMIT: usize = 500_000;

const MINUTE_US: i64 = 60_000_000;

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

/// The facts of all rows, and the names in them.
#[derive(Default)]
struct Facts {
    rows: Vec<RowFacts>,
    sources: Vec<String>,
}

fn watermark(arguments: &Arguments) -> Value {
    let folder = Path::new(arguments.text("folder"));
    let mut facts = Facts::default();
    rows::decode(folder, arguments.number("rows", 0), |rows| {
        facts.rows.extend_from_slice(rows.facts());
        facts.sources = rows.sources().iter().map(ToString::to_string).collect();
        drop(rows.finish());
    });
    let policy = policy();
    let row_count = facts.rows.len() as u64;
    let (says, judge_ns) = judge_all(&facts, &policy);
    let mut table = Table::new(&policy);
    let (mut observe_ns, mut commit_ns) = (0, 0);
    let commits = facts
        .rows
        .chunks(ROWS_A_COMMIT)
        .zip(says.chunks(ROWS_A_COMMIT));
    for (rows, says) in commits {
        let now_us = rows[rows.len() - 1].record_time_us + MINUTE_US;
        let ends = table.ends(rows);
        let start_ns = thread_ns();
        let mut open = Open::new(&policy);
        for (rows, says) in rows.chunks(ROWS_A_FLUSH).zip(says.chunks(ROWS_A_FLUSH)) {
            open.observe(rows, says);
        }
        let sealing_ns = thread_ns();
        table.commit(&policy, open, ends, now_us);
        observe_ns += sealing_ns - start_ns;
        commit_ns += thread_ns() - sealing_ns;
    }
    json!({
        "judge": per_row(judge_ns, row_count),
        "observe": per_row(observe_ns, row_count),
        "commits": per_row(commit_ns, row_count),
    })
}

/// Whether each row is a replay, and whether it has a say.
fn judge_all(facts: &Facts, policy: &Policy) -> (Vec<Say>, u64) {
    let mut positions = vec![SourcePositions::default(); PARTITIONS as usize];
    let mut says = Vec::with_capacity(facts.rows.len());
    let now_us = facts
        .rows
        .last()
        .map_or(0, |row| row.record_time_us + MINUTE_US);
    let start_ns = thread_ns();
    for row in &facts.rows {
        let judged = positions[row.partition as usize].judge(
            &facts.sources[row.source as usize],
            row.position,
            some(row.commit_time_us),
        );
        let time = RowTime {
            event_time_us: some(row.event_time_us),
            record_time_us: some(row.record_time_us),
            snapshot: row.snapshot != Snapshot::Streamed,
            replayed: judged.replayed,
            backfill_before_us: None,
        };
        says.push(policy.bounds.say(&time, now_us));
    }
    let ns = thread_ns() - start_ns;
    let with_a_say = says.iter().filter(|say| **say == Say::Yes).count();
    assert!(
        with_a_say * 100 > says.len() * 99,
        "nearly every row has a say: {with_a_say} of {}",
        says.len()
    );
    (says, ns)
}

/// What an open batch gathers: the statistics as the sink keeps them.
struct Open {
    partitions: Vec<Gathering>,
    times: Vec<i64>,
    excluded: Excluded,
    cells: CellCounts,
}

#[derive(Default)]
struct Gathering {
    digest: Digest,
    least_us: Option<i64>,
    greatest_us: Option<i64>,
    newest_change: Option<NewestChange>,
}

impl Open {
    fn new(policy: &Policy) -> Self {
        Self {
            partitions: (0..PARTITIONS).map(|_| Gathering::default()).collect(),
            times: Vec::new(),
            excluded: Excluded::default(),
            cells: CellCounts::new(policy.grid, None),
        }
    }

    fn observe(&mut self, facts: &[RowFacts], says: &[Say]) {
        let mut from = 0;
        for run in facts.chunk_by(|a, b| a.partition == b.partition) {
            self.observe_run(run, &says[from..from + run.len()]);
            from += run.len();
        }
    }

    fn observe_run(&mut self, run: &[RowFacts], says: &[Say]) {
        self.times.clear();
        let mut newest: Option<NewestChange> = None;
        for (facts, say) in run.iter().zip(says) {
            match say {
                Say::Yes => self.times.push(facts.event_time_us),
                say => self.excluded.count(*say),
            }
            let change = NewestChange {
                record_time_us: facts.record_time_us,
                snapshot: facts.snapshot == Snapshot::Initial,
            };
            if facts.record_time_us != NO_TIME {
                newest = Some(newest.map_or(change, |newest| newest.newer(change)));
            }
        }
        self.cells.extend(&self.times);
        let gathering = &mut self.partitions[run[0].partition as usize];
        gathering.newest_change = newest.or(gathering.newest_change);
        for time_us in &self.times {
            let least_us = gathering.least_us.unwrap_or(*time_us).min(*time_us);
            gathering.least_us = Some(least_us);
            gathering.greatest_us = gathering.greatest_us.max(Some(*time_us));
        }
        gathering.digest.extend(&self.times);
    }
}

/// What the table holds between commits, without a table.
struct Table {
    uuid: Uuid,
    next_offsets: Vec<i64>,
    properties: HashMap<String, String>,
    lineage: Lineage,
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
                at_us: 0,
            })
            .collect();
        table.write(&first, policy, &news);
        table
    }

    /// Where a batch of these rows ends in each partition.
    fn ends(&self, rows: &[RowFacts]) -> Vec<i64> {
        let mut ends = self.next_offsets.clone();
        for row in rows {
            ends[row.partition as usize] += 1;
        }
        ends
    }

    /// Seals a batch, and everything that the watermark does for its commit: once to see whether it would close a cell, once to
    /// write it.
    fn commit(&mut self, policy: &Policy, mut open: Open, ends: Vec<i64>, now_us: i64) {
        let mut news = contribution(policy, now_us);
        let mut sketches = Vec::new();
        for ((partition, gathering), end_offset) in (0..).zip(&mut open.partitions).zip(&ends) {
            let sketch = gathering.digest.finish();
            let stats = sketch.as_ref().map(Sketch::stats);
            assert_eq!(stats.map(|stats| stats.least_us), gathering.least_us);
            assert_eq!(stats.map(|stats| stats.greatest_us), gathering.greatest_us);
            news.rows += stats.map_or(0, |stats| stats.rows);
            news.partitions.push(PartitionNews {
                topic: "orders".to_owned(),
                partition,
                start_offset: self.next_offsets[partition.cast_unsigned() as usize],
                end_offset: *end_offset,
                leader_epoch: Some(0),
                stats,
                positions: None,
                newest_change: gathering.newest_change,
                asked_end: Some(AskedEnd {
                    at_us: now_us,
                    high_watermark: end_offset + 1,
                    delivered: *end_offset,
                }),
            });
            sketches.extend(sketch);
        }
        self.next_offsets = ends;
        news.excluded = open.excluded;
        news.cells = open.cells;
        news.event_times = Sketch::merge(&sketches);
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
        let standing = stand("bench.orders", &view).expect("a state of our own");
        standing.expect("a state").state
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
            summary: summary.into_iter().collect(),
        };
        self.lineage.snapshots.insert(0, ancestor);
    }
}

fn contribution(policy: &Policy, now_us: i64) -> Contribution {
    let partitions = (0..PARTITIONS.cast_signed()).collect();
    Contribution {
        commit_id: Uuid::now_v7(),
        worker: "bench".to_owned(),
        now_us,
        subscription: "orders".to_owned(),
        anchors: Vec::new(),
        jumps: Vec::new(),
        retired: Vec::new(),
        partitions: Vec::new(),
        asked: Some(AskedPartitions {
            at_us: now_us,
            topics: [("orders".to_owned(), partitions)].into(),
        }),
        rows: 0,
        excluded: Excluded::default(),
        cells: CellCounts::new(policy.grid, None),
        event_times: None,
    }
}

/// A pipeline's defaults.
fn policy() -> Policy {
    Policy {
        revision: 1,
        grid: Grid::new(60 * MINUTE_US).expect("an hour divides a day"),
        bounds: Bounds {
            allowed_lateness_us: 5 * MINUTE_US,
            max_delay_us: 10 * MINUTE_US,
            max_future_skew_us: 5 * MINUTE_US,
            max_age_us: None,
        },
        window_commits: 3,
        window_duration_us: 0,
        terms: [Term::Minimum, Term::CaughtUp].into(),
        complete_from: FromRule::Derived,
        late_data: LateData::Notify,
        on_join: OnJoin::Reopen,
    }
}

fn some(us: i64) -> Option<i64> {
    (us != NO_TIME).then_some(us)
}
