//! What takes minutes, or rights that a test should not ask for by the way: `make faults` runs these.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use serde_json::Value;
use tidemark::{
    api::load_manifests,
    process::{Metrics, clock::Clock},
    sink::{GRACE, Worker, WorkerSettings},
};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::support::{
    catalog::Catalog,
    kafka::Broker,
    proxy::Fate,
    trial::{Setup, Trial},
    wait::pause,
};

const TWO_MINUTES: Duration = Duration::from_mins(2);

/// While a server is away the pipeline says which one, that it holds the next cell, and not that there is nothing to read; after it
/// has come back it goes on by itself.
fn assert_says(trial: &Trial<'_>, reason: &str) {
    let progress = trial.worker(0).progress();
    let whole: Value = serde_json::from_str(&progress).expect("JSON");
    let pipelines = whole["pipelines"].as_object().expect("pipelines");
    let pipeline = pipelines.values().next().expect("the pipeline");
    for told in [&pipeline["lastError"], &pipeline["hold"]] {
        assert_eq!(told["reason"], reason, "{progress}");
    }
    assert!(pipeline["lag"].is_null(), "{progress}");
}

#[test]
#[ignore = "five minutes: make faults"]
fn catalog_that_is_away_for_two_minutes_is_waited_for() {
    let trial = Setup::new("catalog_away").start(|_| Fate::Pass);
    trial.proxy.set_down(true);
    pause(TWO_MINUTES);
    assert_says(&trial, "CatalogUnreachable");
    trial.proxy.set_down(false);
    trial.await_commits(3);
    trial.finish(&[], 1);
}

#[test]
#[ignore = "five minutes: make faults"]
fn broker_that_is_away_for_two_minutes_is_waited_for() {
    let broker = Broker::start_own(&[]);
    let trial = Setup {
        broker: &broker,
        ..Setup::new("broker_away")
    }
    .start(|_| Fate::Pass);
    broker.kill();
    pause(TWO_MINUTES);
    assert_says(&trial, "BrokerUnreachable");
    broker.start();
    trial.await_commits(3);
    trial.finish(&[], 1);
}

/// A small file system of a test's own. Needs the right to mount.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(mebibytes: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder").keep();
        let size = format!("size={mebibytes}m");
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(&folder)
            .status();
        assert!(
            done.is_ok_and(|status| status.success()),
            "this test mounts a file system: run it as root"
        );
        Self(folder)
    }

    /// Writes until nothing more fits.
    fn fill(&self) {
        let block = vec![0_u8; 64 * 1024];
        let mut file = fs::File::create(self.filler()).expect("a file");
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.filler()).expect("the file that fills the disk");
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server that is being killed may still hold files.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
#[ignore = "mounts a file system: make faults"]
fn full_disk_loses_nothing_and_is_waited_for() {
    let disk = SmallDisk::mount(64);
    let catalog = Catalog::start_own_in(&disk.0);
    let trial = Setup {
        catalog: &catalog,
        ..Setup::new("full_disk")
    }
    .start(|_| Fate::Pass);
    for _ in 0..3 {
        disk.fill();
        pause(Duration::from_secs(20));
        disk.free();
        trial.await_commits(3);
    }
    trial.finish(&[], 3);
}

/// The worker's clock goes five minutes forward, back, and right again. The delay allows for it, as declared.
#[test]
#[ignore = "five minutes: make faults"]
fn clock_that_is_stepped_by_five_minutes_makes_no_claim_early() {
    const STEP_US: i64 = 300_000_000;
    let mut setup = Setup::new("stepped_clock");
    setup.max_delay = Duration::from_mins(6);
    let trial = setup.load(|_| Fate::Pass);
    // In this process, since the clock of another one cannot be stepped alone.
    let specs = load_manifests(&trial.pipeline.manifest())
        .expect("a sound manifest")
        .into_iter()
        .map(|(_, spec)| spec);
    let clock = Clock::system();
    let runtime = Runtime::new().expect("a runtime");
    let stop = CancellationToken::new();
    let worker = runtime.block_on(async {
        let worker = Worker::new(WorkerSettings {
            worker_id: "stepped".to_owned(),
            installation: "local".to_owned(),
            clock: clock.clone(),
            metrics: Metrics::default(),
            grace: GRACE,
        });
        worker.set_pipelines(specs.collect()).await;
        worker
    });
    let token = stop.clone();
    let worker = runtime.spawn(async move { worker.run(token).await });
    trial.await_commits(5);
    // Five minutes ahead, a claim is a minute behind the truth: it has to get in among the rows.
    for (by_us, seconds) in [
        (STEP_US, 150),
        (-STEP_US, 20),
        (-STEP_US, 20),
        (STEP_US, 20),
    ] {
        clock.step(by_us);
        trial.await_commits(5);
        pause(Duration::from_secs(seconds));
    }
    trial.finish(&[], 4);
    stop.cancel();
    runtime.block_on(worker).expect("a worker that ends well");
}
