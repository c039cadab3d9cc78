//! What a commit costs as the table gets older, with maintenance on.
//!
//! `cargo bench --bench commits -- [--commits 2000] [--rest] [--by-hand]`. One writer of 16 partitions commits one small file
//! after the other, a minute apart on its own clock: the table is loaded, the state read from it, the claim advanced, the
//! commit sent, and then the table maintained, as the sink does it. Writing the data file is not counted. With `--rest` the
//! catalog is the Iceberg project's REST server in a process of its own, otherwise SQLite; `--by-hand` commits without the
//! client's transaction.
//!
//! The grace of files is 20 s instead of an hour, so that deleting them is part of what is measured. Snapshots are kept as by
//! default: 300 of them, 8 MiB.

#[expect(dead_code, reason = "each bench uses a part of it")]
mod support;

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use iceberg::{
    Catalog, TableIdent,
    spec::{DataFile, PrimitiveType, Type},
    table::Table,
};
use support::{
    Arguments, Figures,
    cpu::{self, Process},
    folder, say,
    server::Server,
};
use tidemark::{
    api::built_in_policy,
    lake::{
        catalog::{self, CatalogKind, CatalogSettings},
        commit::{Append, commit, commit_by_hand},
        lineage::lineage,
        maintain::{MaintainSettings, Maintainer},
        raw::{self, RawCommitter},
        table::{Column, Partitioning, TableSpec, open_or_create},
        writer::{TableWriter, WriterSettings},
    },
    process::clock::Clock,
    watermark::{
        Anchor, AskedEnd, AskedPartitions, Asker, CellCounts, Contribution, Digest, Excluded,
        Identity, Origin, PartitionNews, Policy, Sketch, Standing, State, TableView, advance,
        contract, stand,
    },
};
use tokio::runtime::Runtime;
use uuid::Uuid;

const PARTITIONS: i32 = 16;

/// Rows of a partition in a commit.
const ROWS: i64 = 32;

/// What is compared: so many commits at the beginning and at the end.
const BLOCK: usize = 50;

/// The commits before the first block: the first ones warm the process up.
const SKIPPED: usize = 9;

const MINUTE_US: i64 = 60_000_000;

/// The start of the writer's clock, the edge of an hour.
const START_US: i64 = 1_704_067_200_000_000;

const GRACE: Duration = Duration::from_secs(20);

fn main() {
    let arguments = Arguments::read();
    let commits: usize = arguments.number("commits", 2_000);
    let folder = folder("commits");
    let rest = arguments.has("rest");
    let server = rest.then(|| Server::start("catalog", &folder.join("catalog"), &[]));
    let runtime = Runtime::new().expect("a runtime");
    let by_hand = arguments.has("by-hand");
    let settings = settings(&folder, server.as_ref());
    let mut bench = Bench::open(&runtime, &settings, by_hand, !rest);
    say(format!(
        "{commits} commits of {PARTITIONS} partitions, {}, {}{}, load {:.1}",
        cpu::machine(),
        if rest {
            "REST catalog"
        } else {
            "SQLite catalog"
        },
        if by_hand { ", by hand" } else { "" },
        cpu::load(),
    ));
    say("commits      load  median ms  CPU ms  maintenance ms  CPU ms  metadata.json KiB  files");
    let mut blocks = Vec::new();
    let mut block = Block::default();
    for number in 1..=SKIPPED + commits {
        let cost = bench.commit(number);
        if number <= SKIPPED {
            continue;
        }
        block.add(&cost);
        if block.count == BLOCK {
            let done = std::mem::take(&mut block);
            let shown = (number - SKIPPED) / BLOCK;
            if shown == 1 || shown.is_multiple_of(8) || number + BLOCK > SKIPPED + commits {
                say(done.line(number, &bench.metadata()));
            }
            blocks.push(done);
        }
    }
    let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
        return say(format!("fewer than {BLOCK} commits: nothing to compare"));
    };
    say(format!(
        "last {BLOCK} / first {BLOCK}: wall {:.2} (medians), CPU {:.2} (means); with maintenance, CPU {:.2}",
        last.wall_ms.median() / first.wall_ms.median(),
        last.cpu_ms / first.cpu_ms,
        (last.cpu_ms + last.maintenance_cpu_ms) / (first.cpu_ms + first.maintenance_cpu_ms),
    ));
}

fn settings(folder: &Path, server: Option<&Server>) -> CatalogSettings {
    if let Some(server) = server {
        let uri = format!("http://{}", server.address);
        return CatalogSettings::new(CatalogKind::Rest { uri });
    }
    let uri = format!("sqlite://{}/catalog.db", folder.display());
    let mut settings = CatalogSettings::new(CatalogKind::Sql { uri });
    settings.warehouse = Some(format!("{}/warehouse", folder.display()));
    settings
}

/// What one commit cost.
struct Cost {
    wall: Duration,
    cpu_ns: u64,
    maintenance: Duration,
    maintenance_cpu_ns: u64,
}

#[derive(Default)]
struct Block {
    count: usize,
    wall_ms: Figures,
    maintenance_ms: Figures,
    cpu_ms: f64,
    maintenance_cpu_ms: f64,
}

/// The table's metadata on disk.
struct Metadata {
    newest_bytes: u64,
    files: usize,
}

impl Block {
    fn add(&mut self, cost: &Cost) {
        self.count += 1;
        self.wall_ms.add(cost.wall.as_secs_f64() * 1e3);
        self.maintenance_ms
            .add(cost.maintenance.as_secs_f64() * 1e3);
        self.cpu_ms += Duration::from_nanos(cost.cpu_ns).as_secs_f64() * 1e3;
        self.maintenance_cpu_ms +=
            Duration::from_nanos(cost.maintenance_cpu_ns).as_secs_f64() * 1e3;
    }

    fn line(&self, last: usize, metadata: &Metadata) -> String {
        format!(
            "{:5}-{last:<5}  {:4.1}  {:9.1}  {:6.1}  {:14.1}  {:6.1}  {:17}  {:5}",
            last + 1 - BLOCK,
            cpu::load(),
            self.wall_ms.median(),
            self.cpu_ms / 50.0,
            self.maintenance_ms.median(),
            self.maintenance_cpu_ms / 50.0,
            metadata.newest_bytes / 1024,
            metadata.files,
        )
    }
}

/// One writer and its table.
struct Bench<'r> {
    runtime: &'r Runtime,
    catalog: Arc<dyn Catalog>,
    by_hand: Option<Arc<dyn RawCommitter>>,
    maintainer: Maintainer,
    writer: TableWriter,
    ident: TableIdent,
    policy: Policy,
    clock: Clock,
    location: Option<String>,
}

impl<'r> Bench<'r> {
    fn open(
        runtime: &'r Runtime,
        settings: &CatalogSettings,
        by_hand: bool,
        metadata_files: bool,
    ) -> Self {
        let ident = TableIdent::from_strs(["bench", "orders"]).expect("a name");
        let (catalog, raw, table) = runtime.block_on(async {
            let catalog = catalog::open(settings).await.expect("the catalog");
            let raw = raw::open_raw(settings).await.expect("the catalog");
            let opened = open_or_create(&*catalog, &ident, &spec()).await;
            (catalog, raw, opened.expect("a new table").table)
        });
        let maintain = MaintainSettings {
            grace: GRACE,
            metadata_files,
            ..MaintainSettings::default()
        };
        let handle = runtime.handle().clone();
        Self {
            runtime,
            catalog,
            by_hand: by_hand.then(|| Arc::clone(&raw)),
            maintainer: Maintainer::new(maintain, Some(raw)),
            writer: TableWriter::new(&table, WriterSettings::default(), handle)
                .expect("a table that can be written"),
            ident,
            policy: built_in_policy(),
            clock: Clock::system(),
            location: None,
        }
    }

    /// Commit `number`; the first one anchors.
    fn commit(&mut self, number: usize) -> Cost {
        let minute = i64::try_from(number).expect("few commits");
        let now_us = START_US + minute * MINUTE_US;
        let files = if number == 1 {
            Vec::new()
        } else {
            self.write(now_us)
        };
        let before = (self.clock.monotonic(), used_ns());
        let table = self.runtime.block_on(self.attempt(minute, now_us, files));
        let between = (self.clock.monotonic(), used_ns());
        let wall_ms = self.clock.now_us() / 1_000;
        let report = self
            .runtime
            .block_on(self.maintainer.run(&*self.catalog, &table, wall_ms));
        let after = (self.clock.monotonic(), used_ns());
        let report = report.expect("maintenance");
        self.location = report.table.metadata_location().map(str::to_owned);
        Cost {
            wall: between.0.saturating_sub(before.0),
            cpu_ns: between.1.saturating_sub(before.1),
            maintenance: after.0.saturating_sub(between.0),
            maintenance_cpu_ns: after.1.saturating_sub(between.1),
        }
    }

    fn write(&mut self, now_us: i64) -> Vec<DataFile> {
        let rows = ROWS * i64::from(PARTITIONS);
        let ids = Int64Array::from_iter_values(0..rows);
        let times = TimestampMicrosecondArray::from_iter_values((0..rows).map(|row| now_us - row));
        let columns: Vec<ArrayRef> = vec![Arc::new(ids), Arc::new(times.with_timezone("+00:00"))];
        let batch = RecordBatch::try_new(self.writer.arrow_schema().clone(), columns);
        self.writer.write(&batch.expect("a batch")).expect("room");
        self.writer.finish().expect("room")
    }

    /// One attempt, from the load to the answer.
    async fn attempt(&self, minute: i64, now_us: i64, files: Vec<DataFile>) -> Table {
        let base = catalog::load(&*self.catalog, &self.ident).await;
        let base = base.expect("the table");
        let state = self.state(&base, now_us);
        let news = news(&self.policy, minute, now_us);
        let advanced = advance(&state, &self.policy, &news).expect("news that fit");
        let properties = contract::properties(&advanced);
        let append = Append {
            commit_id: news.commit_id,
            withdraws: false,
            files,
            summary: contract::summary(&advanced, &news),
            set_properties: properties.set.into_iter().collect(),
            remove_properties: properties.remove.into_iter().collect(),
        };
        let committed = match &self.by_hand {
            Some(raw) => {
                let wall_ms = self.clock.now_us() / 1_000;
                commit_by_hand(&**raw, &base, &append, wall_ms).await
            }
            None => commit(&*self.catalog, &base, &append).await,
        };
        committed.expect("a commit without a rival")
    }

    /// The writer's state on a table, by its properties and lineage.
    fn state(&self, table: &Table, now_us: i64) -> State {
        let metadata = table.metadata();
        let lineage = lineage(metadata);
        let ancestry = lineage.ancestry();
        let view = TableView {
            table_uuid: metadata.uuid(),
            table_ref: "main",
            properties: metadata.properties(),
            lineage: &ancestry,
        };
        let standing =
            stand(&Asker::new("bench.orders", now_us), &view).expect("a state of our own");
        let identity = Identity {
            writer: "bench.orders".to_owned(),
            cluster_id: "cluster".to_owned(),
            installation: "local".to_owned(),
            table_uuid: metadata.uuid(),
            table_ref: "main".to_owned(),
        };
        match standing {
            Standing::Begins(begins) => {
                begins.state(identity, "orders", self.policy.clone(), now_us)
            }
            Standing::GoesOn(going_on) => going_on.state,
        }
    }

    fn metadata(&self) -> Metadata {
        let location = self.location.as_deref().unwrap_or_default();
        let newest = catalog::local_path(location).expect("a local table");
        let folder = newest.parent().expect("a folder");
        Metadata {
            newest_bytes: newest.metadata().expect("the newest metadata").len(),
            files: folder.read_dir().expect("the metadata folder").count(),
        }
    }
}

/// CPU of all threads so far.
fn used_ns() -> u64 {
    Process::own().threads().values().sum()
}

fn spec() -> TableSpec {
    TableSpec {
        columns: Some(vec![
            Column::key("id", Type::Primitive(PrimitiveType::Long)),
            Column::optional("at", Type::Primitive(PrimitiveType::Timestamptz)),
        ]),
        metadata_columns: Vec::new(),
        partitioning: Partitioning::Hour("at".to_owned()),
        properties: BTreeMap::new(),
        location: None,
    }
}

/// A minute's rows of every partition; in the first commit its anchors.
fn news(policy: &Policy, minute: i64, now_us: i64) -> Contribution {
    let first = minute == 1;
    let mut cells = CellCounts::new(policy.grid, None);
    let mut sketches = Vec::new();
    let mut partitions = Vec::new();
    for partition in (0..PARTITIONS).filter(|_| !first) {
        let times: Vec<i64> = (0..ROWS).map(|row| now_us - row * 1_000_000).collect();
        let mut digest = Digest::default();
        digest.extend(&times);
        cells.extend(&times);
        let sketch = digest.finish();
        let end_offset = (minute - 1) * ROWS;
        partitions.push(PartitionNews {
            topic: "orders".to_owned(),
            partition,
            start_offset: end_offset - ROWS,
            end_offset,
            leader_epoch: Some(0),
            stats: sketch.as_ref().map(Sketch::stats),
            asked_end: Some(AskedEnd {
                at_us: now_us,
                heartbeat_us: None,
                high_watermark: end_offset,
                delivered: end_offset,
            }),
            ..PartitionNews::default()
        });
        sketches.extend(sketch);
    }
    let anchors = (0..PARTITIONS).filter(|_| first).map(|partition| Anchor {
        topic: "orders".to_owned(),
        topic_id: None,
        partition,
        offset: 0,
        origin: Origin::New,
        at_us: now_us,
    });
    Contribution {
        commit_id: Uuid::now_v7(),
        worker: "bench".to_owned(),
        now_us,
        subscription: "orders".to_owned(),
        anchors: anchors.collect(),
        jumps: Vec::new(),
        derived_from: None,
        retired: Vec::new(),
        order: None,
        rows: u64::from(!first) * (ROWS * i64::from(PARTITIONS)).cast_unsigned(),
        partitions,
        asked: Some(AskedPartitions {
            at_us: now_us,
            topics: [("orders".to_owned(), (0..PARTITIONS).collect())].into(),
        }),
        excluded: Excluded::default(),
        cells,
        event_times: Sketch::merge(&sketches),
    }
}
