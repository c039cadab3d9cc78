//! Settings of the finalization that change while workers run, on a real broker and a real catalog.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;
use tidemark::api::{Reason, worker::PipelineProgress};

use crate::support::{
    catalog::Catalog,
    kafka::Broker,
    pipeline::{PATIENCE, Pipeline, Running, start_as, table, write},
    wait::within,
};

/// One snapshot as this test looks at it.
struct Published {
    worker: String,
    revision: u64,
    claim: Option<String>,
}

/// Our snapshots, oldest first.
fn published(table: &Value) -> Vec<Published> {
    let mut snapshots: Vec<&Value> = table["metadata"]["snapshots"]
        .as_array()
        .expect("snapshots")
        .iter()
        .collect();
    snapshots.sort_by_key(|snapshot| snapshot["sequence-number"].as_i64());
    let text = |snapshot: &Value, name: &str| snapshot["summary"][name].as_str().map(str::to_owned);
    snapshots
        .into_iter()
        .map(|snapshot| Published {
            worker: text(snapshot, "tidemark.worker").expect("a worker"),
            revision: text(snapshot, "tidemark.policy-revision")
                .and_then(|revision| revision.parse().ok())
                .expect("a revision"),
            claim: text(snapshot, "tidemark.finalized-before"),
        })
        .collect()
}

fn held_by_policy(pipeline: &PipelineProgress) -> bool {
    let hold = pipeline.hold.as_ref();
    hold.is_some_and(|hold| hold.reason == Reason::PolicyOutdated)
}

fn commits_of(namespace: &str, worker: &str, revision: u64) -> usize {
    let published = published(&table(namespace));
    let own = |one: &&Published| one.worker == worker && one.revision == revision;
    published.iter().filter(own).count()
}

/// Rows for both partitions until the end of a test.
fn keep_writing(broker: &Broker, topic: &str, ended: &AtomicBool) {
    let mut id = 0;
    within(PATIENCE * 10, "the end of the test", || {
        for partition in 0..2 {
            write(broker, topic, partition, id..id + 1);
            id += 1;
        }
        ended.load(Ordering::Relaxed).then_some(())
    });
}

/// Nobody runs with the newest settings any more, and nobody restarts the worker that has run all the while.
#[test]
fn a_worker_goes_on_by_itself_after_a_canary_that_was_withdrawn() {
    let broker = Broker::shared();
    let topic = broker.topic("canary", 2);
    let namespace = Catalog::shared().namespace("canary");
    let bootstrap = broker.bootstrap();
    let topics = format!("topics: [{topic}]");
    let usual = Pipeline {
        bootstrap: &bootstrap,
        topics: &topics,
        namespace: &namespace,
        replicas: 2,
        ..Pipeline::USUAL
    };
    let other = Pipeline {
        finalization: "{cell: 5s, allowedLateness: 2s, maxDelay: 2s, maxFutureSkew: 1s}",
        ..usual
    };
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| keep_writing(broker, &topic, &ended));
        let stays = start_as("stays", vec![usual.spec()]);
        stays.wait("a commit", |pipeline| pipeline.rows > 0);
        let canary = start_as("canary", vec![other.spec()]);
        within(PATIENCE, "commits under the canary's settings", || {
            (commits_of(&namespace, "canary", 2) >= 3).then_some(())
        });
        canary.stop();
        stays.wait("the word that its settings are old", held_by_policy);
        within(PATIENCE * 3, "commits under its own settings", || {
            (commits_of(&namespace, "stays", 3) >= 5).then_some(())
        });
        stays.wait("a claim that nothing holds for long", |pipeline| {
            !held_by_policy(pipeline)
        });
        stays.stop();
        ended.store(true, Ordering::Relaxed);
    });
    let published = published(&table(&namespace));
    let revisions: Vec<u64> = published.iter().map(|one| one.revision).collect();
    assert!(
        revisions.is_sorted() && revisions.last() == Some(&3),
        "{revisions:?}"
    );
    let mut raised = 0;
    for pair in published.windows(2) {
        assert!(pair[1].claim >= pair[0].claim, "never back");
        if pair[1].claim > pair[0].claim && pair[1].revision > 1 {
            let by = if pair[1].revision == 2 {
                "canary"
            } else {
                "stays"
            };
            assert_eq!(pair[1].worker, by);
            raised += usize::from(by == "stays");
        }
    }
    assert!(raised >= 1, "under its own settings");
}

/// In the middle of a rolling restart a table has a worker of before and one of after. The older one goes on committing its
/// rows; it carries the newer settings on and never raises the claim under its own.
#[test]
fn in_a_rolling_restart_only_the_worker_with_the_newer_settings_raises_the_claim() {
    let broker = Broker::shared();
    let topic = broker.topic("rolling_policy", 2);
    let namespace = Catalog::shared().namespace("rolling_policy");
    let bootstrap = broker.bootstrap();
    let topics = format!("topics: [{topic}]");
    let before = Pipeline {
        bootstrap: &bootstrap,
        topics: &topics,
        namespace: &namespace,
        replicas: 2,
        ..Pipeline::USUAL
    };
    let after = Pipeline {
        finalization: "{cell: 5s, allowedLateness: 2s, maxDelay: 2s, maxFutureSkew: 1s}",
        ..before
    };
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| keep_writing(broker, &topic, &ended));
        let older = start_as("older", vec![before.spec()]);
        older.wait("a claim", |pipeline| {
            let claim = pipeline.claim.as_ref();
            claim.is_some_and(|claim| claim.finalized_before_us.is_some())
        });
        let newer = start_as("newer", vec![after.spec()]);
        let shares = |running: &Running| {
            let progress = running.progress.borrow();
            let mut pipelines = progress.pipelines.values();
            pipelines.any(|pipeline| pipeline.partitions.len() == 1)
        };
        within(PATIENCE, "a partition for each", || {
            (shares(&older) && shares(&newer)).then_some(())
        });
        older.wait("the word that its settings are old", held_by_policy);
        within(PATIENCE, "commits of both under the newer settings", || {
            let both = ["older", "newer"].map(|worker| commits_of(&namespace, worker, 2));
            (both[0] >= 5 && both[1] >= 5).then_some(())
        });
        older.stop();
        newer.stop();
        ended.store(true, Ordering::Relaxed);
    });
    let published = published(&table(&namespace));
    assert!(
        published
            .windows(2)
            .all(|pair| pair[0].revision <= pair[1].revision)
    );
    let mut raised = 0;
    for pair in published.windows(2) {
        let rose = pair[1].claim > pair[0].claim;
        if pair[1].revision == 2 && rose {
            assert_eq!(pair[1].worker, "newer");
            raised += 1;
        }
    }
    assert!(
        raised >= 1,
        "the claim has to rise under the newer settings"
    );
}
