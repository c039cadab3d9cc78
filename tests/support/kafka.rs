//! A real Kafka broker: one for all tests, and one of its own for a test that breaks it.

use std::{
    path::PathBuf,
    sync::{Mutex, OnceLock},
    time::Duration,
};

use futures::executor::block_on;
use nix::sys::signal::Signal;
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    producer::{BaseProducer, BaseRecord, Producer},
};

use super::{
    server::{self, Server, Start, own_name},
    wait::within,
};

/// How long one request to the broker may take: right after a restart it loads its internal topics first.
pub(crate) const REQUEST: Duration = Duration::from_mins(1);

/// A broker on a port of its own. Dropping one that a test has started ends it.
pub(crate) struct Broker {
    port: u16,
    data: PathBuf,
    settings: Vec<String>,
    server: Mutex<Option<Server>>,
    /// Removes the data of a test's own broker.
    _folder: Option<tempfile::TempDir>,
}

impl Broker {
    /// The broker that all tests share: started by the first one that asks, gone with the test process. Never break it.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Broker> = OnceLock::new();
        SHARED.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a folder for the broker").keep();
            Self::start_in(folder, None, &[])
        })
    }

    /// A broker for one test, which may kill, hang and restart it. `settings` are added to its properties, `key=value`.
    pub(crate) fn start_own(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the broker");
        Self::start_in(folder.path().to_owned(), Some(folder), settings)
    }

    fn start_in(data: PathBuf, folder: Option<tempfile::TempDir>, settings: &[&str]) -> Self {
        let (port, server) = server::start_somewhere(&Start {
            name: "kafka",
            data: &data,
            port: 0,
            settings,
            remove: folder.is_none(),
        });
        let settings = settings.iter().map(ToString::to_string).collect();
        Self {
            port,
            data,
            settings,
            server: Mutex::new(Some(server)),
            _folder: folder,
        }
    }

    /// What goes into `bootstrap.servers`.
    pub(crate) fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A client's configuration that names this broker.
    pub(crate) fn client(&self, settings: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.bootstrap());
        for (key, value) in settings {
            config.set(*key, *value);
        }
        config
    }

    /// Creates a topic for a test and gives its name, which begins with the test's.
    pub(crate) fn topic(&self, test: &str, partitions: i32) -> String {
        let name = own_name(test);
        self.create_topic(&name, partitions, &[]);
        name
    }

    /// Creates a topic of that name, with settings such as `("retention.ms", "1000")`.
    pub(crate) fn create_topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        for (key, value) in settings {
            topic = topic.set(key, value);
        }
        // A topic that was deleted a moment ago may still be known.
        within(REQUEST, "a new topic", || {
            let answer = block_on(self.admin().create_topics([&topic], &options()))
                .expect("an answer about topics");
            answer.into_iter().all(|one| one.is_ok()).then_some(())
        });
    }

    /// Gives a topic more partitions, `total` in all.
    pub(crate) fn add_partitions(&self, topic: &str, total: usize) {
        let more = NewPartitions::new(topic, total);
        let answer = block_on(self.admin().create_partitions([&more], &options()))
            .expect("an answer about partitions");
        assert_eq!(answer, [Ok(topic.to_owned())]);
    }

    /// Deletes a topic and waits until the broker no longer names it.
    pub(crate) fn delete_topic(&self, topic: &str) {
        let answer = block_on(self.admin().delete_topics(&[topic], &options()))
            .expect("an answer about topics");
        assert_eq!(answer, [Ok(topic.to_owned())]);
        let admin = self.admin();
        within(REQUEST, "the end of a topic", || {
            let known = admin
                .inner()
                .fetch_metadata(None, REQUEST)
                .expect("the broker's topics");
            (!known.topics().iter().any(|one| one.name() == topic)).then_some(())
        });
    }

    /// Deletes the records of a partition below an offset: the log then starts there.
    pub(crate) fn delete_records(&self, topic: &str, partition: i32, before_offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(before_offset))
            .expect("an offset");
        let answer = block_on(self.admin().delete_records(&list, &options()))
            .expect("an answer about records");
        assert!(
            answer.elements().iter().all(|one| one.error().is_ok()),
            "{answer:?}"
        );
    }

    /// The first offset and the one after the last, transactions counted whether they were committed or not.
    pub(crate) fn offsets(&self, topic: &str, partition: i32) -> (i64, i64) {
        self.admin()
            .inner()
            .fetch_watermarks(topic, partition, REQUEST)
            .expect("the offsets of a partition")
    }

    /// Writes plain records, key and value, to a partition, and returns when the broker has them.
    pub(crate) fn write<'a>(
        &self,
        topic: &str,
        partition: i32,
        records: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) {
        let records = records.into_iter();
        self.write_timed(
            topic,
            partition,
            records.map(|(key, value)| (key, value, None)),
        );
    }

    /// The same with timestamps in milliseconds since 1970; without one it is the clock's.
    pub(crate) fn write_timed<'a>(
        &self,
        topic: &str,
        partition: i32,
        records: impl IntoIterator<Item = (&'a str, &'a str, Option<i64>)>,
    ) {
        let producer: BaseProducer = self
            .client(&[("linger.ms", "1")])
            .create()
            .expect("a producer");
        for (key, value, timestamp_ms) in records {
            let record = BaseRecord::to(topic).partition(partition);
            let mut record = record.key(key).payload(value);
            record.timestamp = timestamp_ms;
            producer.send(record).expect("room in the producer's queue");
        }
        producer.flush(REQUEST).expect("every record delivered");
    }

    /// Reads the values of a partition from an offset to its present end, as far as they are committed.
    pub(crate) fn read(&self, topic: &str, partition: i32, from_offset: i64) -> Vec<String> {
        let records = read_committed(&self.reader(), topic, partition, from_offset);
        records.into_iter().map(|(_, value)| value).collect()
    }

    /// The settings of a client for [`read_committed`].
    pub(crate) fn reader(&self) -> ClientConfig {
        self.client(&[
            ("group.id", "reader"),
            ("enable.auto.commit", "false"),
            ("enable.partition.eof", "true"),
        ])
    }

    /// What a consumer group is doing, by the broker's word: `Stable`, `PreparingRebalance`, …; `None` where there is none.
    pub(crate) fn group_state(&self, group: &str) -> Option<String> {
        let admin = self.admin();
        let groups = admin.inner().fetch_group_list(Some(group), REQUEST).ok()?;
        let found = groups.groups().iter().find(|one| one.name() == group)?;
        Some(found.state().to_owned())
    }

    /// Ends the broker as a crash would.
    pub(crate) fn kill(&self) {
        self.server
            .lock()
            .expect("no panic under this lock")
            .take()
            .expect("a running broker")
            .kill();
    }

    /// Stops the broker in order.
    pub(crate) fn stop(&self) {
        self.server
            .lock()
            .expect("no panic under this lock")
            .take()
            .expect("a running broker")
            .stop();
    }

    /// Starts it again where it was, with what it had.
    pub(crate) fn start(&self) {
        let settings: Vec<_> = self.settings.iter().map(String::as_str).collect();
        let start = Start {
            name: "kafka",
            data: &self.data,
            port: self.port,
            settings: &settings,
            remove: false,
        };
        let server = Server::start(&start).expect("a broker that starts again");
        *self.server.lock().expect("no panic under this lock") = Some(server);
    }

    /// Makes the broker hang: connections stay open and nothing is answered, until `resume`.
    pub(crate) fn hang(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Ends a `hang`.
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        self.server
            .lock()
            .expect("no panic under this lock")
            .as_ref()
            .expect("a running broker")
            .signal(signal);
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client(&[]).create().expect("an admin client")
    }
}

fn options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(REQUEST))
        .operation_timeout(Some(REQUEST))
}

/// Offsets and values of a partition from an offset to its present end, without those of open and aborted transactions.
pub(crate) fn read_committed(
    reader: &ClientConfig,
    topic: &str,
    partition: i32,
    from_offset: i64,
) -> Vec<(i64, String)> {
    let consumer: BaseConsumer = reader.create().expect("a consumer");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(from_offset))
        .expect("an offset");
    consumer.assign(&list).expect("an assignment");
    let mut records = Vec::new();
    loop {
        let polled = within(REQUEST, "the next record", || {
            consumer.poll(Duration::from_millis(100))
        });
        match polled {
            Ok(message) => {
                let value = String::from_utf8_lossy(message.payload().unwrap_or_default());
                records.push((message.offset(), value.into_owned()));
            }
            Err(KafkaError::PartitionEOF(_)) => return records,
            Err(error) => panic!("reading {topic} {partition}: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_grows_and_loses_its_old_records() {
        let broker = Broker::shared();
        let topic = broker.topic("a_topic_grows", 1);
        broker.write(&topic, 0, [("a", "1"), ("b", "2"), ("c", "3")]);
        broker.delete_records(&topic, 0, 2);
        assert_eq!(broker.offsets(&topic, 0), (2, 3));
        assert_eq!(broker.read(&topic, 0, 2), ["3"]);

        broker.add_partitions(&topic, 2);
        within(REQUEST, "the new partition", || {
            let metadata = broker
                .admin()
                .inner()
                .fetch_metadata(Some(&topic), REQUEST)
                .ok()?;
            (metadata.topics()[0].partitions().len() == 2).then_some(())
        });
        broker.delete_topic(&topic);
        broker.create_topic(&topic, 1, &[("retention.ms", "-1")]);
        assert_eq!(broker.offsets(&topic, 0), (0, 0));
    }

    /// What an own broker is for. A kill may take what was never flushed to a disk, not what a process had written.
    #[test]
    fn an_own_broker_keeps_its_records_over_a_kill_a_stop_and_a_hang() {
        let broker = Broker::start_own(&["log.segment.bytes=1048576"]);
        let topic = broker.topic("an_own_broker", 1);
        broker.write(&topic, 0, [("a", "1")]);
        broker.kill();
        broker.start();
        broker.write(&topic, 0, [("a", "2")]);
        broker.stop();
        broker.start();
        broker.hang();
        broker.resume();
        assert_eq!(broker.read(&topic, 0, 0), ["1", "2"]);
    }
}
