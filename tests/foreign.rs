//! The claim in the words of other systems, on a real table: written with each commit, and taken away when it is no longer wanted.

use serde_json::Value;
use tidemark::watermark::foreign;

use crate::support::{
    catalog::Catalog,
    kafka::Broker,
    pipeline::{Pipeline, claimed, property, start, table},
};

/// A value in the summary of the newest snapshot.
fn summary(table: &Value, name: &str) -> Option<String> {
    let metadata = &table["metadata"];
    let newest = &metadata["current-snapshot-id"];
    let snapshots = metadata["snapshots"].as_array().expect("snapshots");
    let newest = snapshots
        .iter()
        .find(|snapshot| snapshot["snapshot-id"] == *newest);
    Some(newest?["summary"][name].as_str()?.to_owned())
}

#[test]
fn claim_is_told_in_other_words_until_that_is_withdrawn() {
    let broker = Broker::shared();
    let topic = broker.topic("foreign_words", 1);
    let namespace = Catalog::shared().namespace("foreign_words");
    let bootstrap = broker.bootstrap();
    let topics = format!("topics: [{topic}]");
    let mut id = 0;
    // Brings a row with each choice of words, and waits for a claim above the last one.
    let mut ran = |words: &str, above_us: Option<i64>| {
        let finalization = format!(
            "{{cell: 1s, allowedLateness: 0s, maxDelay: 1s, maxFutureSkew: 2s, windowCommits: 1, \
             completeFrom: Unbounded, alsoWrite: [{words}]}}"
        );
        let pipeline = Pipeline {
            bootstrap: &bootstrap,
            topics: &topics,
            namespace: &namespace,
            finalization: &finalization,
            ..Pipeline::USUAL
        };
        let worker = start(vec![pipeline.spec()]);
        id += 1;
        let key = format!(r#"{{"id":{id}}}"#);
        broker.write_timed(&topic, 0, [(key.as_str(), r#"{"text":"a"}"#, None)]);
        worker.wait("a higher claim", |pipeline| {
            pipeline.rows > 0 && claimed(pipeline) > above_us
        });
        worker.stop();
        let table = table(&namespace);
        let ms = property(&table, "tidemark.finalized-before-ms").expect("a claim");
        ms.parse::<i64>().expect("milliseconds") * 1000
    };

    let all_us = ran("KafkaConnect, Flink, Gobblin, AutoMq", None);
    let ms = |us: i64| (us / 1000).to_string();
    let told = table(&namespace);
    let flink = format!("flink.watermark.{}.rows", namespace.replace('_', "-"));
    let read = |name: &str| property(&told, name).map(str::to_owned);
    assert_eq!(read(foreign::GOBBLIN_WATERMARK), Some(ms(all_us)));
    assert_eq!(read(foreign::GOBBLIN_TIMEZONE).as_deref(), Some("UTC"));
    assert_eq!(read(&flink), Some(ms(all_us)));
    assert_eq!(
        read(foreign::GOBBLIN_TOTAL_COUNT),
        None,
        "nobody counts here"
    );
    let by_record = Some(ms(all_us - 2_000_000));
    assert_eq!(summary(&told, foreign::CONNECT_VTTS), by_record);
    assert_eq!(summary(&told, foreign::AUTOMQ_WATERMARK), by_record);
    assert!(summary(&told, foreign::CONNECT_VALID_THROUGH).is_some());

    let one_us = ran("Gobblin", Some(all_us));
    let told = table(&namespace);
    assert_eq!(
        property(&told, foreign::GOBBLIN_WATERMARK),
        Some(ms(one_us).as_str())
    );
    assert_eq!(property(&told, &flink), None);
    assert_eq!(summary(&told, foreign::CONNECT_VTTS), None);

    ran("", Some(one_us));
    let told = table(&namespace);
    for name in [
        foreign::GOBBLIN_WATERMARK,
        foreign::GOBBLIN_TIMEZONE,
        foreign::ALSO_WRITTEN,
    ] {
        assert_eq!(property(&told, name), None);
    }
}
