//! The broker that a bench reads from: a real one in its own process, or librdkafka's mock cluster inside this one.

use std::{path::Path, time::Duration};

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    config::FromClientConfig,
    error::{KafkaError, RDKafkaErrorCode},
    mocking::MockCluster,
    producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _},
};

use super::{
    events::{Event, Events, PARTITIONS},
    server::Server,
};

const REQUEST: Duration = Duration::from_mins(1);

/// What the mock cluster keeps of a partition is 5 MiB; beyond it drops the oldest.
pub(crate) const MOCK_ROWS: u32 = 7_000 * PARTITIONS;

/// A broker.
pub(crate) enum Broker {
    /// Apache Kafka in a JVM of its own.
    Real(Server),
    /// librdkafka's, with threads of its own in this process; what is measured runs in others.
    Mock(MockCluster<'static, DefaultProducerContext>),
}

impl Broker {
    /// Starts one; the real one keeps its log in `data`.
    pub(crate) fn start(mock: bool, data: &Path) -> Self {
        if mock {
            Self::Mock(MockCluster::new(1).expect("a mock cluster"))
        } else {
            Self::Real(Server::start("kafka", data, &[]))
        }
    }

    /// What goes into `bootstrap.servers`.
    pub(crate) fn bootstrap(&self) -> String {
        match self {
            Self::Real(server) => server.address.clone(),
            Self::Mock(cluster) => cluster.bootstrap_servers(),
        }
    }

    /// Creates `topic` and fills it with `rows` events, in record batches of 16 KiB without compression.
    pub(crate) fn fill(&self, topic: &str, rows: u32) {
        self.create(topic);
        let producer: BaseProducer = self
            .client()
            .set("linger.ms", "50")
            .set("batch.size", "16384")
            .set("queue.buffering.max.messages", "200000")
            .create()
            .expect("a producer");
        let (mut events, mut event) = (Events::new(1, rows), Event::default());
        while events.next_into(&mut event) {
            send(&producer, topic, &event);
        }
        producer.flush(REQUEST).expect("every record is sent");
        let ends = (0..PARTITIONS.cast_signed()).map(|partition| {
            let ends = producer
                .client()
                .fetch_watermarks(topic, partition, REQUEST);
            ends.expect("the offsets of a partition")
        });
        // A flush tells nothing of deliveries.
        let held: i64 = ends.map(|(start, end)| end - start).sum();
        assert_eq!(held, i64::from(rows), "records that the broker holds");
    }

    fn create(&self, topic: &str) {
        let partitions = PARTITIONS.cast_signed();
        if let Self::Mock(cluster) = self {
            return cluster
                .create_topic(topic, partitions, 1)
                .expect("a new topic");
        }
        let admin: AdminClient<DefaultClientContext> =
            AdminClient::from_config(&self.client()).expect("an admin client");
        let options = AdminOptions::new().operation_timeout(Some(REQUEST));
        let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        let made = futures::executor::block_on(admin.create_topics([&new], &options));
        assert_eq!(
            made.expect("an answer about topics"),
            [Ok(topic.to_owned())]
        );
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.bootstrap());
        config
    }
}

/// Hands an event to the client; waits while its queue is full.
fn send(producer: &BaseProducer, topic: &str, event: &Event) {
    loop {
        let record = BaseRecord::to(topic)
            .partition(event.partition.cast_signed())
            .timestamp(event.record_ms)
            .key(&event.key)
            .payload(&event.value);
        let sent = producer.send(record).map_err(|(error, _)| error);
        let full = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
        if sent.as_ref() != Err(&full) {
            return sent.expect("a record that the client takes");
        }
        producer.poll(Duration::from_millis(20));
    }
}
