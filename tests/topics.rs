//! Topics that join a pipeline and leave it: what becomes of the claim, on a real broker and a real catalog.

use std::time::Duration;

use serde_json::Value;
use tidemark::{
    api::{
        Reason,
        condition::{Answer, ConditionType},
        worker::{PipelineProgress, ReopenedProgress, RunState},
    },
    process::clock::Clock,
};

use crate::support::{
    catalog::Catalog,
    judge::{Commit, Sent, judge},
    kafka::Broker,
    ledger::{Ledger, Plan, now_us},
    pipeline::{
        PATIENCE, Pipeline, claimed, is_kept, property, start, table, total_records, write,
    },
    server::own_name,
    wait::within,
    worker::{self, Worker, ancestry, change, claim, size},
};

fn reopened(pipeline: &PipelineProgress) -> Option<ReopenedProgress> {
    pipeline.claim.as_ref()?.reopened
}

fn epoch(table: &Value) -> Option<&str> {
    property(table, "tidemark.epoch")
}

/// The claims in the table's snapshots, oldest first: epoch, finalized before, reopened.
fn published(table: &Value) -> Vec<(String, Option<String>, Option<String>)> {
    let mut snapshots: Vec<&Value> = table["metadata"]["snapshots"]
        .as_array()
        .expect("snapshots")
        .iter()
        .collect();
    snapshots.sort_by_key(|snapshot| snapshot["sequence-number"].as_i64());
    let text = |snapshot: &Value, name: &str| snapshot["summary"][name].as_str().map(str::to_owned);
    snapshots
        .into_iter()
        .map(|snapshot| {
            (
                text(snapshot, "tidemark.epoch").expect("an epoch"),
                text(snapshot, "tidemark.finalized-before"),
                text(snapshot, "tidemark.reopened"),
            )
        })
        .collect()
}

/// A topic that was there all the time is read from its first record: what was claimed without it is taken back in the commit
/// that anchors it, and comes back once it is read.
#[test]
fn a_topic_that_joins_opens_an_epoch_and_the_claim_comes_back() {
    let broker = Broker::shared();
    let (old, joins) = (broker.topic("joined", 1), broker.topic("joins", 1));
    let namespace = Catalog::shared().namespace("joining_topics");
    write(broker, &old, 0, 0..3);
    write(broker, &joins, 0, 3..7);
    let bootstrap = broker.bootstrap();
    let one = format!("topics: [{old}]");
    let pipeline = Pipeline {
        bootstrap: &bootstrap,
        topics: &one,
        namespace: &namespace,
        ..Pipeline::USUAL
    };
    let worker = start(vec![pipeline.spec()]);
    worker.wait("a claim", |pipeline| claimed(pipeline).is_some());
    worker.stop();
    let before = table(&namespace);
    assert_eq!(epoch(&before), Some("1"));
    let claimed_before = property(&before, "tidemark.finalized-before")
        .expect("a claim")
        .to_owned();

    let both = format!("topics: [{old}, {joins}]");
    let worker = start(vec![
        Pipeline {
            topics: &both,
            ..pipeline
        }
        .spec(),
    ]);
    worker.wait("the rows of both, and the claim back", |pipeline| {
        pipeline.rows == 4 && claimed(pipeline).is_some() && reopened(pipeline).is_none()
    });
    worker.stop();
    let after = table(&namespace);
    assert_eq!(total_records(&after), 7);
    assert_eq!(epoch(&after), Some("2"));
    assert_eq!(property(&after, "tidemark.reopened"), None);
    assert!(
        property(&after, "tidemark.finalized-before") >= Some(claimed_before.as_str()),
        "instants in UTC are in the order of their texts"
    );
    // The step is in the very commit that anchors the topic, and says what it took back.
    let published = published(&after);
    let step = published
        .iter()
        .position(|(epoch, ..)| epoch == "2")
        .expect("a step");
    let (_, claim, reopened) = &published[step];
    let reopened: Value =
        serde_json::from_str(reopened.as_ref().expect("it took something back")).expect("JSON");
    assert_eq!(claim, &None, "nothing is known of the new topic yet");
    assert_eq!(reopened["cause"], "topic-joined");
    assert_eq!(reopened["before"], claimed_before.as_str());
}

/// Leaves and joins in one edit, in one commit. While the claim is away the condition says so.
#[test]
fn one_topic_takes_the_place_of_another_in_one_edit() {
    let broker = Broker::shared();
    let (old, new) = (
        broker.topic("leaves", 1),
        broker.topic("takes_its_place", 1),
    );
    let namespace = Catalog::shared().namespace("replaced_topic");
    write(broker, &old, 0, 0..3);
    let bootstrap = broker.bootstrap();
    let (before, after) = (format!("topics: [{old}]"), format!("topics: [{new}]"));
    let pipeline = Pipeline {
        bootstrap: &bootstrap,
        topics: &before,
        namespace: &namespace,
        ..Pipeline::USUAL
    };
    let worker = start(vec![pipeline.spec()]);
    worker.wait("a claim", |pipeline| claimed(pipeline).is_some());
    worker.stop();

    // By recent rows alone, so that the topic without rows holds.
    let finalization =
        "{cell: 5s, allowedLateness: 1s, maxDelay: 2s, maxFutureSkew: 1s, terms: [Minimum]}";
    let worker = start(vec![
        Pipeline {
            topics: &after,
            finalization,
            ..pipeline
        }
        .spec(),
    ]);
    worker.wait("the condition", |pipeline| {
        let conditions = pipeline.conditions();
        let mut conditions = conditions.iter();
        conditions.any(|condition| {
            condition.kind == ConditionType::Reopened
                && condition.status == Answer::True
                && condition.reason == Reason::TopicJoined
        })
    });
    write(broker, &new, 0, 3..5);
    worker.wait("its rows", |pipeline| pipeline.rows == 2);
    worker.stop();
    let table = table(&namespace);
    assert_eq!(total_records(&table), 5);
    assert_eq!(epoch(&table), Some("2"));
    let offsets: Value = serde_json::from_str(
        table["metadata"]["snapshots"]
            .as_array()
            .and_then(|all| {
                let newest = &table["metadata"]["current-snapshot-id"];
                all.iter().find(|one| one["snapshot-id"] == *newest)
            })
            .and_then(|newest| newest["summary"]["tidemark.offsets"].as_str())
            .expect("offsets"),
    )
    .expect("JSON");
    let topics = offsets["topics"].as_object().expect("topics");
    assert!(topics.keys().eq([&new]), "{topics:?}");
}

/// The past of a topic that nobody waits for: the claim stays, and what lies below it has no say.
#[test]
fn a_topic_that_is_backfilled_leaves_the_claim_where_it_is() {
    let broker = Broker::shared();
    let (old, joins) = (broker.topic("stays", 1), broker.topic("backfills", 1));
    let namespace = Catalog::shared().namespace("backfilled_topic");
    write(broker, &old, 0, 0..3);
    write(broker, &joins, 0, 3..7);
    let bootstrap = broker.bootstrap();
    let (one, both) = (
        format!("topics: [{old}]"),
        format!("topics: [{old}, {joins}]"),
    );
    let pipeline = Pipeline {
        bootstrap: &bootstrap,
        topics: &one,
        namespace: &namespace,
        finalization: "{cell: 5s, allowedLateness: 1s, maxDelay: 2s, maxFutureSkew: 1s, onJoin: Backfill}",
        ..Pipeline::USUAL
    };
    let worker = start(vec![pipeline.spec()]);
    // Behind the rows of the topic that joins later.
    let until = Clock::system().now_us();
    worker.wait("a claim behind the rows", |pipeline| {
        claimed(pipeline) >= Some(until)
    });
    worker.stop();
    let before = property(&table(&namespace), "tidemark.finalized-before").map(str::to_owned);

    let joined = Pipeline {
        topics: &both,
        ..pipeline
    };
    let worker = start(vec![joined.spec()]);
    worker.wait("its rows, without a say", |pipeline| {
        pipeline.rows == 4 && pipeline.excluded.get("backfill") == Some(&4)
    });
    let read = Clock::system().now_us();
    worker.wait("a claim over both", |pipeline| {
        claimed(pipeline) >= Some(read)
    });
    worker.stop();
    let after = table(&namespace);
    assert_eq!((total_records(&after), epoch(&after)), (7, Some("1")));
    let claims = published(&after);
    let mut claims = claims.iter().map(|(_, claim, _)| claim.as_deref());
    assert!(claims.by_ref().any(|claim| claim == before.as_deref()));
    assert!(claims.all(|claim| claim >= before.as_deref()), "never back");
}

/// A topic of a pattern is deleted: what was not read of it can never be, and the pipeline goes on without it only when told to.
#[test]
fn a_topic_that_is_gone_stops_the_pipeline_or_leaves_a_gap() {
    let broker = Broker::shared();
    let prefix = own_name("gone");
    let [stays, goes] = ["stays", "goes"].map(|name| format!("{prefix}_{name}"));
    for topic in [&stays, &goes] {
        broker.create_topic(topic, 1, &[]);
        write(broker, topic, 0, 0..3);
    }
    let namespace = Catalog::shared().namespace("gone_topic");
    let bootstrap = broker.bootstrap();
    let topics = format!("topicPattern: \"{prefix}_.*\"");
    let pipeline = Pipeline {
        bootstrap: &bootstrap,
        topics: &topics,
        namespace: &namespace,
        ..Pipeline::USUAL
    };
    let worker = start(vec![pipeline.spec()]);
    worker.wait("all rows and a claim", |pipeline| {
        pipeline.rows == 6 && claimed(pipeline).is_some()
    });
    broker.delete_topic(&goes);
    worker.wait("the stop", |pipeline| {
        is_kept(pipeline, RunState::Stopped, Reason::PartitionGone)
    });
    worker.stop();
    let going_on = Pipeline {
        source: "onGap: Continue",
        ..pipeline
    };
    let worker = start(vec![going_on.spec()]);
    write(broker, &stays, 0, 3..5);
    worker.wait("the rows of the other topic", |pipeline| pipeline.rows == 2);
    let read = Clock::system().now_us();
    worker.wait("a claim without the topic", |pipeline| {
        claimed(pipeline) >= Some(read)
    });
    worker.stop();
    let table = table(&namespace);
    assert_eq!((total_records(&table), epoch(&table)), (8, Some("1")));
    assert!(
        property(&table, "tidemark.gaps").is_some(),
        "what was not read of it"
    );
}

/// The past of a topic that came back is on the table: it is read on from there, and not once more.
#[test]
fn a_topic_that_is_back_is_read_on_from_where_it_left() {
    let load = Load::start("topic_back", 1);
    let worker = load.worker("both", 2);
    load.await_claim(now_us());
    assert!(worker.terminate().success());

    let worker = load.worker("one", 1);
    load.await_claim(now_us());
    assert!(worker.terminate().success());
    let away = load.next_offset();

    let worker = load.worker("both", 2);
    load.await_claim(now_us());
    assert!(load.next_offset() > away, "rows came while it was away");
    load.finish(vec![worker], 2);
}

/// In a rolling edit a worker that begins with the old list takes the new topic out again, whatever another one has read of it.
#[test]
fn in_a_rolling_edit_of_the_topics_no_row_is_there_twice() {
    let load = Load::start("rolling_topics", 2);
    let (first, older) = (load.worker("first", 1), load.worker("older", 1));
    load.await_claim(now_us());
    assert!(first.terminate().success());
    let newer = load.worker("newer", 2);
    load.await_offset("the new topic", |next| next > Some(0));
    older.kill();
    let older = load.worker("older", 1);
    load.await_offset("the end of the new topic", |next| next.is_none());
    load.await_offset("the new topic again", |next| next > Some(0));
    assert!(older.terminate().success());
    let last = load.worker("last", 2);
    load.await_claim(now_us());
    load.finish(vec![newer, last], 3);
}

/// Two topics under load, the second of which joins and leaves.
struct Load {
    catalog: &'static Catalog,
    pipeline: worker::Pipeline,
    ledgers: Vec<Ledger>,
}

impl Load {
    fn start(test: &str, replicas: u32) -> Self {
        let (broker, catalog) = (Broker::shared(), Catalog::shared());
        let topics = ["stays", "comes"].map(|which| broker.topic(&format!("{test}_{which}"), 2));
        let ledger = |topic: &String| {
            let plan = Plan {
                topic: topic.clone(),
                partitions: 2,
                rows_per_second: 100,
                lateness: Duration::from_secs(1),
                transactions: None,
                message: change,
            };
            Ledger::start(broker, plan)
        };
        Self {
            catalog,
            ledgers: topics.iter().map(ledger).collect(),
            pipeline: worker::Pipeline {
                name: test.replace('_', "-"),
                bootstrap: broker.bootstrap(),
                topics: topics.to_vec(),
                catalog_uri: catalog.uri(),
                namespace: own_name(test),
                replicas,
                max_delay: Duration::from_secs(2),
                cell_s: 5,
                sink: String::new(),
            },
        }
    }

    /// A worker that is told of so many topics.
    fn worker(&self, who: &str, topics: usize) -> Worker {
        let mut pipeline = self.pipeline.clone();
        pipeline.topics.truncate(topics);
        Worker::start(&pipeline, who)
    }

    fn await_claim(&self, us: i64) {
        within(PATIENCE, "a claim", || {
            let claim = claim(self.catalog, &self.pipeline.namespace);
            (claim > Some(us)).then_some(())
        });
    }

    fn await_offset(&self, what: &str, wanted: impl Fn(Option<i64>) -> bool) {
        within(PATIENCE * 2, what, || {
            wanted(self.next_offset()).then_some(())
        });
    }

    /// Where the second topic goes on by the newest commit, both partitions together.
    fn next_offset(&self) -> Option<i64> {
        let offsets = self.offsets();
        let topics = offsets.last()?["topics"].as_object()?;
        let next = topics.get(&self.pipeline.topics[1])?["next"].as_array()?;
        Some(next.iter().filter_map(Value::as_i64).sum())
    }

    /// What each commit says of offsets, oldest first.
    fn offsets(&self) -> Vec<Value> {
        let table = self
            .catalog
            .table(&self.pipeline.namespace, worker::Pipeline::TABLE);
        let snapshots = table
            .as_ref()
            .and_then(|table| table["metadata"]["snapshots"].as_array());
        let mut snapshots: Vec<&Value> = snapshots.into_iter().flatten().collect();
        snapshots.sort_by_key(|snapshot| snapshot["sequence-number"].as_i64());
        let offsets = snapshots.into_iter().map(|snapshot| {
            let text = snapshot["summary"]["tidemark.offsets"].as_str();
            serde_json::from_str(text.expect("offsets")).expect("JSON")
        });
        offsets.collect()
    }

    /// Stops the load and judges each topic by the commits that speak of it.
    fn finish(mut self, workers: Vec<Worker>, epoch: u64) {
        let sent: Vec<Sent> = std::mem::take(&mut self.ledgers)
            .into_iter()
            .flat_map(Ledger::stop)
            .collect();
        within(PATIENCE, "the last rows", || {
            (size(self.catalog, &self.pipeline.namespace).0 >= sent.len()).then_some(())
        });
        self.await_claim(now_us());
        for worker in workers {
            assert!(worker.terminate().success());
        }
        let (commits, offsets) = (
            ancestry(self.catalog, &self.pipeline.namespace),
            self.offsets(),
        );
        assert_eq!(commits.len(), offsets.len(), "all of them ours");
        let gap = commits.iter().find(|commit| !commit.gaps.is_empty());
        assert!(gap.is_none(), "nothing was lost: {gap:?}");
        for topic in &self.pipeline.topics {
            let of_topic = |(commit, offsets): (&Commit, &Value)| Commit {
                rows: commit
                    .rows
                    .iter()
                    .filter(|((of, ..), _)| of == topic)
                    .cloned()
                    .collect(),
                complete: commit.complete.map(|(from, before)| {
                    let speaks = !offsets["topics"][topic].is_null();
                    (if speaks { from } else { before }, before)
                }),
                ..commit.clone()
            };
            let commits: Vec<Commit> = commits.iter().zip(&offsets).map(of_topic).collect();
            let mut sent = sent.clone();
            sent.retain(|one| one.place.0 == *topic);
            let verdict = judge(&sent, &commits, self.pipeline.bounds());
            verdict.assert_true();
            verdict.assert_moved(3);
        }
        let last = commits.last().map(|commit| commit.epoch);
        assert!(last >= Some(epoch), "{last:?}");
    }
}
