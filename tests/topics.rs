//! Topics that join a pipeline and leave it: what becomes of the claim, on a real broker and a real catalog.

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
    kafka::Broker,
    pipeline::{Pipeline, property, reason, start, table, total_records, write},
    server::own_name,
};

fn claimed(pipeline: &PipelineProgress) -> Option<i64> {
    pipeline.claim.as_ref()?.finalized_before_us
}

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
        pipeline.state == RunState::Stopped && reason(pipeline) == Some(Reason::PartitionGone)
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
