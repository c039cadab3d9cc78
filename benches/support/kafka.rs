//! The broker that a bench reads from: a real one in its own process, or librdkafka's mock cluster inside this one.

use std::{
    fs::File,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

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
    wait,
};

/// From the start of a server to its open port; the first start on a machine also makes a class archive.
const START: Duration = Duration::from_mins(2);

const REQUEST: Duration = Duration::from_mins(1);

/// What the mock cluster keeps of a partition is 5 MiB; beyond it drops the oldest.
pub(crate) const MOCK_ROWS: u32 = 7_000 * PARTITIONS;

/// A server of `tests/servers/run`; it ends when this is dropped.
pub(crate) struct Server {
    supervisor: Child,
    /// `127.0.0.1:port`.
    pub(crate) address: String,
}

impl Server {
    /// Starts `kafka` or `catalog` with its data in `data`.
    pub(crate) fn start(name: &str, data: &Path) -> Self {
        let port = free_port();
        let log = File::create(data.with_extension("log")).expect("a log file");
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/run");
        let supervisor = Command::new(run)
            .arg(name)
            .arg(data)
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("tests/servers/run");
        let mut server = Self {
            supervisor,
            address: format!("127.0.0.1:{port}"),
        };
        wait::within(START, &format!("a running {name}"), || {
            let ended = server.supervisor.try_wait().expect("our own child");
            assert!(
                ended.is_none(),
                "{name} ended at its start, see its log in {}",
                data.display()
            );
            TcpStream::connect(&server.address).ok()
        });
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

/// A port with the next one free as well, outside of those that the system gives to clients.
fn free_port() -> u16 {
    wait::within(START, "two free ports", || {
        let port = fastrand::u16(20_000..32_000);
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        (free(port) && free(port + 1)).then_some(port)
    })
}

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
            Self::Real(Server::start("kafka", data))
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
