//! What takes minutes, or rights that a test should not ask for by the way: `make faults` runs these.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::support::{
    catalog::Catalog,
    kafka::Broker,
    proxy::Fate,
    trial::{RECOVERY, Setup, Trial},
    wait::{pause, within},
};

const TWO_MINUTES: Duration = Duration::from_mins(2);

/// While it was away the pipeline says why, and it goes on by itself.
fn assert_said(trial: &Trial<'_>, reason: &str) {
    let log = trial.worker(0).log();
    let text = fs::read_to_string(log).expect("the worker's log");
    assert!(
        text.contains(reason),
        "the worker never said {reason}, see {}",
        log.display()
    );
}

#[test]
#[ignore = "five minutes: make faults"]
fn catalog_that_is_away_for_two_minutes_is_waited_for() {
    let trial = Setup::new("catalog_away").start(|_| Fate::Pass);
    trial.proxy.set_down(true);
    pause(TWO_MINUTES);
    trial.proxy.set_down(false);
    trial.await_commits(3);
    assert_said(&trial, "CatalogUnreachable");
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
    broker.start();
    trial.await_commits(3);
    assert_said(&trial, "BrokerUnreachable");
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
#[ignore = "twelve minutes, and needs libfaketime: make faults"]
fn clock_that_is_stepped_by_five_minutes_makes_no_claim_early() {
    let library = Path::new("/usr/lib")
        .join(format!("{}-linux-gnu", std::env::consts::ARCH))
        .join("faketime/libfaketime.so.1");
    assert!(
        library.exists(),
        "{} is not there: apt-get install libfaketime",
        library.display()
    );
    let folder = tempfile::tempdir().expect("a folder");
    let offset = folder.path().join("offset");
    let step = |by: &str| {
        let new = offset.with_extension("new");
        fs::write(&new, by)
            .and_then(|()| fs::rename(&new, &offset))
            .expect("a file with the clock's offset");
    };
    step("+0s");
    let mut setup = Setup::new("stepped_clock");
    setup.max_delay = Duration::from_mins(6);
    setup.environment = vec![
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", offset.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    let trial = setup.start(|_| Fate::Pass);
    for by in ["+300s", "+0s", "-300s", "+0s"] {
        step(by);
        trial.await_commits(5);
        pause(Duration::from_secs(20));
    }
    within(RECOVERY * 6, "a claim that moves on", || {
        (trial.cells() >= 10).then_some(())
    });
    trial.finish(&[], 4);
}
