//! The operator with thousands of pipelines: cold start, steady state, the turn of the hour, waves, a killed leader, readers.
//!
//! `cargo bench --bench fleet -- [--sizes 1000,10000] [--only cold,steady,hour,leader,polls,policy,upgrade] [--steady 300]
//! [--takeover 10] [--store FOLDER] [--data FOLDER] [--program tidemark]`. Real are etcd, the API server and the operator, which is
//! the built program with the rights of the chart. No controller manager and no kubelet runs: children and pods are made beforehand,
//! and what those two would do is done here. The workers are one server in this process that answers with the project's own types.
//!
//! A store is kept in `--store` once it is filled, and filled stores are taken from there: making ten thousand pipelines takes long.
//! The clusters run in `--data`, else below the target folder; etcd is told not to wait for the disk. `--only fill` measures nothing.

#[expect(dead_code, reason = "each bench uses a part of it")]
#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod kubelet;
mod operator;
mod polls;
mod scenarios;
mod seen;
mod setup;
mod workers;

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use tidemark::process::clock::Clock;

use cluster::Cluster;
use kubelet::Kubelet;
use scenarios::Bench;
use seen::Seen;
use support::{Arguments, folder, say};

fn main() {
    let arguments = Arguments::read();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if arguments.text("part") == "polls" {
        return runtime.block_on(polls::part(&arguments));
    }
    let sizes = match arguments.text("sizes") {
        "" => "1000,10000",
        sizes => sizes,
    };
    let top = match arguments.text("data") {
        "" => folder("fleet"),
        data => PathBuf::from(data),
    };
    for size in sizes.split(',') {
        let size: usize = size.parse().expect("--sizes: numbers of pipelines");
        let folder = top.join(size.to_string());
        if folder.exists() {
            std::fs::remove_dir_all(&folder).expect("the data of an earlier run");
        }
        // A runtime for each size: what follows a cluster ends with it.
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(run(size, &folder, &arguments));
        runtime.shutdown_background();
        std::fs::remove_dir_all(&folder).expect("the data of a cluster");
    }
}

async fn run(size: usize, folder: &Path, arguments: &Arguments) {
    say(scenarios::head(size));
    let listener = workers::listen().await;
    let clock = Clock::system();
    let cluster = filled(size, folder, arguments).await;
    let client = cluster.client().await;
    let workers = setup::workers(&client, &clock).await;
    assert_eq!(workers.all().len(), size, "pipelines that are there");
    if arguments.text("only") == "fill" {
        return;
    }
    tokio::spawn(workers::serve(listener, Arc::clone(&workers)));
    let seen = Seen::start(&client, clock.clone());
    let takeover = Duration::from_secs(arguments.number("takeover", 10));
    let program = match arguments.text("program") {
        "" => env!("CARGO_BIN_EXE_tidemark"),
        program => program,
    };
    let bench = Bench {
        program: program.into(),
        kubelet: Kubelet::start(client.clone(), Arc::clone(&workers), takeover),
        kubeconfig: cluster.operator(),
        cluster,
        client,
        folder: folder.to_owned(),
        clock,
        workers,
        seen,
        steady: Duration::from_secs(arguments.number("steady", 300)),
    };
    bench.until_seen().await;
    scenarios(&bench, arguments.text("only")).await;
}

async fn scenarios(bench: &Bench, only: &str) {
    let wanted = |name: &str| only.is_empty() || only.split(',').any(|one| one == name);
    let mut operator = bench.cold_start().await;
    if wanted("steady") {
        bench.steady_state(&operator).await;
    }
    if wanted("hour") {
        bench.turn_of_the_hour(&operator).await;
    }
    if wanted("polls") {
        bench.long_polls(&operator).await;
    }
    if wanted("leader") {
        operator = bench.leader_killed(operator).await;
    }
    if wanted("policy") {
        bench.policy_change(&operator).await;
    }
    if wanted("upgrade") {
        bench.upgrade(operator).await;
    }
}

/// A cluster with so many pipelines: from the store, or filled anew.
async fn filled(size: usize, folder: &Path, arguments: &Arguments) -> Cluster {
    let kept = Some(arguments.text("store")).filter(|store| !store.is_empty());
    let kept = kept.map(|store| PathBuf::from(store).join(size.to_string()));
    let is_new = !kept.as_ref().is_some_and(|kept| kept.exists());
    match &kept {
        Some(kept) if !is_new => copy(kept, folder),
        _ => std::fs::create_dir_all(folder).expect("a folder for a cluster"),
    }
    let cluster = Cluster::start(folder);
    let (client, clock) = (cluster.client().await, Clock::system());
    let began = clock.monotonic();
    if is_new {
        cluster.prepare();
        setup::fill(&client, size).await;
    }
    let told = setup::tell(&client, &clock).await;
    if is_new || told > 0 {
        say(format!(
            "filled in {:.0} s, {told} statuses among it",
            clock.monotonic().saturating_sub(began).as_secs_f64()
        ));
    }
    let Some(kept) = kept.filter(|_| is_new) else {
        return cluster;
    };
    drop((client, cluster));
    copy(folder, &kept);
    Cluster::start(folder)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().expect("a folder above it")).expect("a folder");
    let copied = Command::new("cp").arg("-r").args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "cp -r");
}
