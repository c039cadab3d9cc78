//! What could not be decoded, kept in a topic of its own.
//!
//! Key, value, timestamp and headers go over unchanged; five `tidemark.` headers say what was wrong and where it stood.
//! At least once: a batch that is tried again sends its rejected records again.
//!
//! A batch is committed only after [`DeadLetters::flush`] said that every one of its records is confirmed by all replicas.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use super::log::log;
use super::sys::Header;
use super::{Error, Settings, TopicPartition};

/// How long one look at the reports takes while the producer's buffer is full.
const FULL_WAIT: Duration = Duration::from_millis(100);
/// After so many looks (30 s) a full buffer is a broker that does not answer.
const FULL_LOOKS: usize = 300;

/// A record that could not be decoded.
#[derive(Debug, Clone, Copy)]
pub struct Rejected<'r> {
    /// Where it stood.
    pub at: &'r TopicPartition,
    /// Its offset there.
    pub offset: i64,
    /// Its timestamp in µs since 1970, if it had one.
    pub timestamp_us: Option<i64>,
    /// Its key, unchanged.
    pub key: Option<&'r [u8]>,
    /// Its value, unchanged.
    pub value: Option<&'r [u8]>,
    /// The kind of fault, one word of a fixed list.
    pub reason: &'r str,
    /// The fault in words.
    pub error: &'r str,
}

/// The producer of one pipeline's dead letters.
pub struct DeadLetters {
    config: ClientConfig,
    topic: String,
    /// Absent before the first record and after a failure: reports of a failed batch must not count for the next one.
    producer: Option<BaseProducer<Reports>>,
    sent: u64,
}

impl DeadLetters {
    /// Prepares the producer; it connects with the first record.
    ///
    /// # Errors
    /// A refused or unknown property.
    pub fn create(settings: &Settings, topic: &str) -> Result<Self, Error> {
        let config = settings.producer()?;
        Ok(Self {
            config,
            topic: topic.to_owned(),
            producer: None,
            sent: 0,
        })
    }

    /// The topic that the records go to.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Hands one record over; it is copied. Its own headers come first.
    ///
    /// # Errors
    /// The record is refused at once (too large), or the buffer stays full.
    pub fn send<'h>(
        &mut self,
        rejected: &Rejected<'_>,
        headers: impl Iterator<Item = Header<'h>>,
    ) -> Result<(), Error> {
        if self.producer.is_none() {
            let made = self.config.create_with_context(Reports::default());
            self.producer = Some(made.map_err(|source| Error::Create { source })?);
        }
        self.sent += 1;
        let headers = annotate(rejected, headers);
        let handed_over = self.producer.as_ref().map_or(Ok(()), |producer| {
            hand_over(producer, record(&self.topic, rejected, headers))
        });
        handed_over.map_err(|error| self.failed(error.to_string()))
    }

    /// Waits until every record sent since the last flush is confirmed. `Ok` says how many.
    ///
    /// # Errors
    /// Some are not, within the deadline or at all: the batch must not be committed.
    pub fn flush(&mut self, deadline: Duration) -> Result<u64, Error> {
        let Some(producer) = &self.producer else {
            return Ok(0);
        };
        // Its own result says nothing: it is Ok when every record failed. The reports count.
        let flushed = producer.flush(deadline);
        let tally = producer.context().tally();
        if tally.delivered == self.sent {
            self.sent = 0;
            producer.context().reset();
            return Ok(tally.delivered);
        }
        let problem = match (tally.problem, flushed) {
            (Some(problem), _) => problem,
            (None, Err(error)) => error.to_string(),
            (None, Ok(())) => format!("no report within {deadline:?}"),
        };
        Err(self.failed(problem))
    }

    fn failed(&mut self, problem: String) -> Error {
        let delivered = self
            .producer
            .take()
            .map_or(0, |producer| producer.context().tally().delivered);
        let sent = std::mem::take(&mut self.sent);
        Error::Undelivered {
            topic: self.topic.clone(),
            sent,
            undelivered: sent.saturating_sub(delivered),
            problem,
        }
    }
}

fn annotate<'h>(
    rejected: &Rejected<'_>,
    headers: impl Iterator<Item = Header<'h>>,
) -> OwnedHeaders {
    let (partition, offset) = (
        rejected.at.partition.to_string(),
        rejected.offset.to_string(),
    );
    let ours = [
        ("tidemark.reason", rejected.reason),
        ("tidemark.topic", &*rejected.at.topic),
        ("tidemark.partition", &*partition),
        ("tidemark.offset", &*offset),
        ("tidemark.error", rejected.error),
    ];
    let mut all = OwnedHeaders::new();
    for Header { name, value } in headers {
        all = all.insert(rdkafka::message::Header { key: name, value });
    }
    for (key, value) in ours {
        all = all.insert(rdkafka::message::Header {
            key,
            value: Some(value),
        });
    }
    all
}

fn record<'r>(
    topic: &'r str,
    rejected: &Rejected<'r>,
    headers: OwnedHeaders,
) -> BaseRecord<'r, [u8], [u8]> {
    let mut record = BaseRecord::to(topic).headers(headers);
    record.key = rejected.key;
    record.payload = rejected.value;
    record.timestamp = rejected
        .timestamp_us
        .map(|timestamp_us| timestamp_us.div_euclid(1_000));
    record
}

fn hand_over(
    producer: &BaseProducer<Reports>,
    mut record: BaseRecord<'_, [u8], [u8]>,
) -> Result<(), KafkaError> {
    for _ in 0..FULL_LOOKS {
        match producer.send(record) {
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                record = back;
                producer.poll(FULL_WAIT);
            }
            Err((error, _)) => return Err(error),
            Ok(()) => return Ok(()),
        }
    }
    Err(KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull))
}

/// What the broker said of the records so far.
#[derive(Debug, Clone, Default)]
struct Tally {
    delivered: u64,
    problem: Option<String>,
}

#[derive(Default)]
struct Reports(Mutex<Tally>);

impl Reports {
    fn tally(&self) -> Tally {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn reset(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Tally::default();
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka client error");
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, report: &DeliveryResult<'_>, (): ()) {
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match report {
            Ok(_) => tally.delivered += 1,
            Err((error, _)) => {
                tally.problem.get_or_insert_with(|| error.to_string());
            }
        }
    }
}
