//! The embedded broker and the sender beside it.
//!
//! The Kafka client library brings a broker of its own for tests: it speaks the protocol on a port of the loopback
//! interface, keeps everything in memory, and drops the oldest messages of a partition beyond 5 MiB. It lives as long as the
//! sender, whose client it belongs to.
//!
//! Every message that the broker has confirmed stands in the [`Record`], with the offset that it gave.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rdkafka::{
    ClientConfig, ClientContext, Message,
    config::FromClientConfigAndContext,
    error::{KafkaError, RDKafkaErrorCode},
    message::DeliveryResult,
    producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer},
};

use crate::{
    demo::{
        Error,
        generator::Change,
        record::{Receipt, Record},
    },
    process::clock::Clock,
};

/// How long the last messages may take to be confirmed.
const FLUSH: Duration = Duration::from_secs(10);

/// A broker with one topic, and the only one who sends to it.
pub struct Broker {
    producer: ThreadedProducer<Receipts>,
    bootstrap_servers: String,
    topic: String,
}

/// Enters confirmed messages into the record.
struct Receipts {
    clock: Clock,
    record: Arc<Mutex<Record>>,
    failure: Mutex<Option<KafkaError>>,
}

impl Broker {
    /// Starts a broker with one topic of `partitions` partitions. `clock` dates the receipts.
    ///
    /// # Errors
    /// [`Error::Broker`] when no port or no memory is to be had.
    pub fn start(topic: &str, partitions: i32, clock: Clock) -> Result<Self, Error> {
        let receipts = Receipts {
            clock,
            record: Arc::default(),
            failure: Mutex::default(),
        };
        let mut config = ClientConfig::new();
        config
            .set("test.mock.num.brokers", "1")
            .set("enable.idempotence", "true")
            .set("linger.ms", "5");
        let producer =
            ThreadedProducer::from_config_and_context(&config, receipts).map_err(Error::Broker)?;
        let bootstrap_servers =
            create_topic(&producer, topic, partitions).map_err(Error::Broker)?;
        Ok(Self {
            producer,
            bootstrap_servers,
            topic: topic.to_owned(),
        })
    }

    /// Where it listens, on the loopback interface.
    #[must_use]
    pub fn bootstrap_servers(&self) -> &str {
        &self.bootstrap_servers
    }

    /// What was sent and confirmed so far; it grows while the broker runs.
    #[must_use]
    pub fn record(&self) -> Arc<Mutex<Record>> {
        Arc::clone(&self.producer.context().record)
    }

    /// Hands one message to the client; its receipt follows.
    ///
    /// # Errors
    /// [`Error::Broker`] when the client's queue is full, or when an earlier message could not be delivered.
    pub fn send(&self, change: &Change) -> Result<(), Error> {
        if let Some(failure) = lock(&self.producer.context().failure).take() {
            return Err(Error::Broker(failure));
        }
        let value = change.value.as_deref();
        let receipt = Receipt {
            offset: -1,
            order: change.order,
            event_time_us: change.event_time_us,
            stored_us: 0,
            late: change.late,
            is_row: value.is_some(),
            bytes: (change.key.len() + value.map_or(0, str::len)) as u64,
        };
        let record =
            BaseRecord::<str, str, Box<Receipt>>::with_opaque_to(&self.topic, Box::new(receipt))
                .key(&change.key)
                .partition(change.partition)
                .timestamp(change.passed_on_us / 1_000);
        let record = match value {
            Some(value) => record.payload(value),
            None => record,
        };
        self.producer
            .send(record)
            .map_err(|(error, _)| Error::Broker(error))
    }

    /// Waits until every message handed over is confirmed. Blocks: not for the thread of an executor.
    ///
    /// # Errors
    /// [`Error::Broker`] when that takes too long or a message could not be delivered.
    pub fn flush(&self) -> Result<(), Error> {
        self.producer.flush(FLUSH).map_err(Error::Broker)?;
        match lock(&self.producer.context().failure).take() {
            Some(failure) => Err(Error::Broker(failure)),
            None => Ok(()),
        }
    }
}

/// Creates the topic at the broker within the client, and tells where that one listens.
fn create_topic(
    producer: &ThreadedProducer<Receipts>,
    topic: &str,
    partitions: i32,
) -> Result<String, KafkaError> {
    let none = KafkaError::Global(RDKafkaErrorCode::Fail);
    let cluster = producer.client().mock_cluster().ok_or(none)?;
    cluster.create_topic(topic, partitions, 1)?;
    Ok(cluster.bootstrap_servers())
}

impl ClientContext for Receipts {}

impl ProducerContext for Receipts {
    type DeliveryOpaque = Box<Receipt>;

    fn delivery(&self, result: &DeliveryResult<'_>, mut receipt: Box<Receipt>) {
        match result {
            Ok(message) => {
                receipt.offset = message.offset();
                receipt.stored_us = self.clock.now_us();
                lock(&self.record).enter(message.partition(), *receipt);
            }
            Err((error, _)) => *lock(&self.failure) = Some(error.clone()),
        }
    }
}

/// Both guarded values are whole after every step: a panic elsewhere does not spoil them.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::generator::{Generator, PARTITIONS};

    /// The record is what everything is judged by: offsets without a hole, in the order of sending.
    #[test]
    fn every_message_is_confirmed_in_the_order_of_sending() {
        let clock = Clock::system();
        let start_us = clock.now_us();
        let broker =
            Broker::start("shop.shop.orders", PARTITIONS, clock).expect("the broker starts");
        let mut changes = Vec::new();
        Generator::new(1, start_us).changes_until(start_us + 300_000_000, &mut changes);
        for change in &changes {
            broker.send(change).expect("the queue has room");
        }
        broker.flush().expect("all are confirmed");
        let record = broker.record();
        let record = lock(&record);
        for partition in 0..PARTITIONS {
            let sent = changes
                .iter()
                .filter(|change| change.partition == partition);
            let sent: Vec<i64> = sent.map(|change| change.event_time_us).collect();
            let confirmed = record.messages().filter(|(at, _)| *at == partition);
            let confirmed: Vec<i64> = confirmed
                .map(|(_, receipt)| receipt.event_time_us)
                .collect();
            assert_eq!(confirmed, sent);
            assert_eq!(
                record.end_offset(partition),
                i64::try_from(sent.len()).unwrap()
            );
        }
        assert!(
            broker.bootstrap_servers().starts_with("127.0.0.1:"),
            "{}",
            broker.bootstrap_servers()
        );
    }
}
