//! Memory of a worker: idle, for each further idle pipeline, and at full rate.
//!
//! `cargo bench --bench memory -- [--rows 1000000] [--more 20] [--mock]`. All three are `tidemark run` in a process of its own;
//! idle means that the topic was read to its end and ten seconds have passed since.

#[expect(dead_code, reason = "each bench uses a part of it")]
mod support;

use std::{path::PathBuf, time::Duration};

use support::{
    Arguments, cpu,
    events::PARTITIONS,
    folder,
    kafka::{Broker, MOCK_ROWS},
    pipeline::{Place, Worker},
    say, wait,
};

/// After this long without work a worker has given back what it will.
const IDLE: Duration = Duration::from_secs(10);

const IDLE_ROWS: u32 = 1_000;

const PATIENCE: Duration = Duration::from_mins(5);

fn main() {
    let arguments = Arguments::read();
    let mock = arguments.has("mock");
    let most = if mock { MOCK_ROWS } else { u32::MAX };
    let full_rows: u32 = arguments.number("rows", 1_000_000).min(most);
    let more: u32 = arguments.number("more", 20);
    let folder = folder("memory");
    let broker = Broker::start(mock, &folder.join("kafka"));
    broker.fill("quiet", IDLE_ROWS);
    broker.fill("orders", full_rows);
    say(format!(
        "{PARTITIONS} partitions a pipeline, {}, load {:.1}",
        cpu::machine(),
        cpu::load()
    ));

    let one = idle(folder.join("one"), &broker, 1);
    let many = idle(folder.join("many"), &broker, 1 + more);
    say(format!(
        "idle, one pipeline: RSS {:.1} MiB, of it anonymous {:.1} MiB",
        one.rss, one.anonymous
    ));
    say(format!(
        "idle, {} pipelines: RSS {:.1} MiB; each further one {:.2} MiB RSS, {:.2} MiB anonymous; {} threads",
        1 + more,
        many.rss,
        (many.rss - one.rss) / f64::from(more),
        (many.anonymous - one.anonymous) / f64::from(more),
        many.threads,
    ));

    let place = Place::new(folder.join("full"));
    place.add("orders", &broker.bootstrap(), "orders", "60s");
    let mut worker = Worker::start(&place);
    let commits = worker.wait_for(u64::from(full_rows));
    let peak = worker.process.memory_mib("VmHWM");
    let after = worker.process.memory_mib("VmRSS");
    drop(worker);
    say(format!(
        "full rate: peak RSS {peak:.1} MiB, {after:.1} MiB at the end; {} rows in {} commits",
        commits.rows, commits.count
    ));
}

struct Idle {
    rss: f64,
    anonymous: f64,
    threads: usize,
}

fn idle(folder: PathBuf, broker: &Broker, pipelines: u32) -> Idle {
    let place = Place::new(folder);
    for number in 0..pipelines {
        place.add(
            &format!("quiet{number}"),
            &broker.bootstrap(),
            "quiet",
            "2s",
        );
    }
    let mut worker = Worker::start(&place);
    wait::within(PATIENCE, "every pipeline on its table", || {
        let commits = worker.commits();
        let rows = u64::from(IDLE_ROWS) * u64::from(pipelines);
        (commits.reading == pipelines as usize && commits.rows >= rows).then_some(())
    });
    wait::rest(IDLE);
    let idle = Idle {
        rss: worker.process.memory_mib("VmRSS"),
        anonymous: worker.process.memory_mib("RssAnon"),
        threads: worker.process.thread_count(),
    };
    drop(worker);
    idle
}
