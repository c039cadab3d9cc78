//! Questions to the cluster: what is there, how far it reaches, which topic this is.
//!
//! A client of its own under `read_uncommitted`, so that high watermarks are the log's and not the last stable offset that an
//! open transaction holds back. Every call waits for brokers, up to the timeout given, and may come from any thread.
//!
//! An answer is never guessed: one topic in error is an error of the whole list, and a partition without an offset has an
//! error of its own in the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::metadata::{Metadata, MetadataBroker, MetadataTopic};
use regex::Regex;
use uuid::Uuid;

use super::log::Context;
use super::sys;
use super::{Code, Error, MAX_PARTITIONS, Security, Settings, StartFrom, TopicPartition, Topics};

/// `ListOffsets`: the high watermark.
const LATEST: i64 = -1;
/// `ListOffsets`: the start of the log.
const EARLIEST: i64 = -2;

/// Log lines taken before each question: more than a client writes between two of them.
const SERVED: usize = 64;

/// One topic as the cluster has it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicInfo {
    /// The topic's name.
    pub name: String,
    /// Its id: another one under the same name is another topic. `None` on clusters older than Kafka 2.8.
    pub id: Option<Uuid>,
    /// Its partitions, ascending.
    pub partitions: Vec<i32>,
}

/// An offset for each partition asked, or why there is none.
pub type Answers = BTreeMap<TopicPartition, Result<i64, Error>>;

/// Asks about one pipeline's cluster.
pub struct Inquirer {
    client: BaseConsumer<Context>,
    bootstrap_servers: String,
    security: Security,
}

impl Inquirer {
    /// Makes the client; no broker is asked yet.
    ///
    /// # Errors
    /// A refused or unknown property, or a client that cannot be created.
    pub fn create(settings: &Settings) -> Result<Self, Error> {
        let client = settings
            .inquirer()?
            .create_with_context(Context::default())
            .map_err(|source| Error::Create { source })?;
        Ok(Self {
            client,
            bootstrap_servers: settings.bootstrap_servers.clone(),
            security: settings.security.clone(),
        })
    }

    /// The id of the cluster; it stays the same for the cluster's life.
    ///
    /// # Errors
    /// No broker answered in time, or the cluster is too old to have one.
    pub fn cluster_id(&self, timeout: Duration) -> Result<String, Error> {
        self.serve();
        let id = self
            .client
            .client()
            .fetch_cluster_id(timeout)
            .filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| self.unreachable("the id of the cluster", timeout))?;
        self.client.context().answered();
        Ok(id)
    }

    /// The pipeline's topics with ids and partitions, ascending by name. A pattern may match none.
    ///
    /// # Errors
    /// A listed topic does not exist, or any topic could not be described: then nothing is known of the others either.
    pub fn topics(&self, topics: &Topics, timeout: Duration) -> Result<Vec<TopicInfo>, Error> {
        self.serve();
        let (names, broker) = match topics {
            Topics::List(names) => self.listed(names, timeout)?,
            Topics::Pattern(pattern) => self.matching(pattern, timeout)?,
        };
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<String> = names.into_iter().collect();
        let described = sys::describe_topics(&self.client, &names, broker, timeout);
        let described =
            described.map_err(|code| self.failed("describing topics", code, timeout))?;
        let by_pattern = matches!(topics, Topics::Pattern(_));
        let mut found = Vec::with_capacity(described.len());
        for topic in described {
            match topic.code {
                // Kafka's own topics are never meant by a pattern.
                Code::OK if by_pattern && topic.internal => {}
                Code::OK => {
                    let mut partitions = topic.partitions;
                    partitions.sort_unstable();
                    found.push(TopicInfo {
                        name: topic.name,
                        id: topic.id,
                        partitions,
                    });
                }
                code if code.is_unknown() => {
                    return Err(Error::TopicNotFound { topic: topic.name });
                }
                code => {
                    return Err(Error::TopicUnavailable {
                        topic: topic.name,
                        code,
                    });
                }
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        bounded(found)
    }

    /// The high watermark of every partition, asked of the leaders in one round: everything below it was in the log when the
    /// answer was made, committed or not.
    ///
    /// # Errors
    /// The whole question failed. Failures of single partitions are in the answers.
    pub fn high_watermarks(
        &self,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> Result<Answers, Error> {
        self.offsets(partitions, LATEST, timeout)
    }

    /// The first offset that each log still has.
    ///
    /// # Errors
    /// The whole question failed. Failures of single partitions are in the answers.
    pub fn log_starts(
        &self,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> Result<Answers, Error> {
        self.offsets(partitions, EARLIEST, timeout)
    }

    /// Where a pipeline without positions begins, for its anchor commit. Only asks; nothing is remembered.
    ///
    /// # Errors
    /// The whole question failed. Failures of single partitions are in the answers.
    pub fn start_offsets(
        &self,
        partitions: &[TopicPartition],
        from: StartFrom,
        timeout: Duration,
    ) -> Result<Answers, Error> {
        let timestamp_us = match from {
            StartFrom::Earliest => return self.log_starts(partitions, timeout),
            StartFrom::Latest => return self.high_watermarks(partitions, timeout),
            StartFrom::Timestamp(timestamp_us) => timestamp_us,
        };
        // Asked first: a record that comes between the two questions then is read, not lost.
        let mut answers = self.high_watermarks(partitions, timeout)?;
        // A negative number would be one of ListOffsets' special ones; every record is younger than 1970.
        let since_ms = timestamp_us.max(0).div_euclid(1_000);
        for (at, found) in self.look_up(partitions, since_ms, timeout)? {
            match found {
                Ok(None) => {}
                Ok(Some(offset)) => drop(answers.insert(at, Ok(offset))),
                Err(error) => drop(answers.insert(at, Err(error))),
            }
        }
        Ok(answers)
    }

    /// Finds out why a position was lost ([`Error::PositionLost`]): deleted before it was read, or truncated.
    ///
    /// # Errors
    /// The question failed; the position is still lost.
    pub fn explain(
        &self,
        at: &TopicPartition,
        offset: i64,
        timeout: Duration,
    ) -> Result<Error, Error> {
        let ask = |spec| -> Result<i64, Error> {
            let mut answers = self.offsets(std::slice::from_ref(at), spec, timeout)?;
            answers
                .remove(at)
                .unwrap_or_else(|| Err(no_answer(at, Code::UNKNOWN_PARTITION)))
        };
        let (log_start, log_end) = (ask(EARLIEST)?, ask(LATEST)?);
        let (topic, partition) = (at.topic.clone(), at.partition);
        Ok(if offset < log_start {
            Error::LogStartMoved {
                topic,
                partition,
                offset,
                log_start,
            }
        } else {
            // Above the end, or the records below it are of another leader's history.
            Error::LogTruncated {
                topic,
                partition,
                offset,
                log_end,
            }
        })
    }

    fn offsets(
        &self,
        partitions: &[TopicPartition],
        spec: i64,
        timeout: Duration,
    ) -> Result<Answers, Error> {
        let found = self.look_up(partitions, spec, timeout)?;
        let offset = |at: &TopicPartition, found: Result<Option<i64>, Error>| {
            found.and_then(|offset| offset.ok_or_else(|| no_answer(at, Code::NO_OFFSET)))
        };
        Ok(found
            .into_iter()
            .map(|(at, found)| (at.clone(), offset(&at, found)))
            .collect())
    }

    /// One round of `ListOffsets`. `None` is an answer: no record of this timestamp or later.
    fn look_up(
        &self,
        partitions: &[TopicPartition],
        spec: i64,
        timeout: Duration,
    ) -> Result<BTreeMap<TopicPartition, Result<Option<i64>, Error>>, Error> {
        self.serve();
        let question = "asking for offsets";
        if partitions.is_empty() {
            return Ok(BTreeMap::new());
        }
        let list = sys::List::of(partitions.iter().map(|at| (at, spec, None)));
        let list = list.map_err(|code| Error::Question { question, code })?;
        let elements = sys::list_offsets(&self.client, &list, timeout);
        let elements = elements.map_err(|code| self.failed(question, code, timeout))?;
        // A partition that librdkafka leaves out has had no answer.
        let silent = |at: &TopicPartition| (at.clone(), Err(no_answer(at, Code::TIMED_OUT)));
        let mut answers: BTreeMap<_, _> = partitions.iter().map(silent).collect();
        for element in elements {
            let answer = match (element.code, element.offset) {
                (Code::OK, offset) if offset >= 0 => Ok(Some(offset)),
                // What the leader says when no record is young enough; librdkafka's own "none" is another number.
                (Code::OK, -1) => Ok(None),
                (Code::OK, _) => Err(no_answer(&element.at, Code::TIMED_OUT)),
                (code, _) => Err(no_answer(&element.at, code)),
            };
            answers.insert(element.at, answer);
        }
        Ok(answers)
    }

    fn listed(
        &self,
        names: &[String],
        timeout: Duration,
    ) -> Result<(BTreeSet<String>, i32), Error> {
        let Some(first) = names.first() else {
            return Ok((BTreeSet::new(), 0));
        };
        let metadata = self.client.fetch_metadata(Some(first), timeout);
        let metadata = metadata.map_err(|_| self.unreachable("a broker that answers", timeout))?;
        Ok((
            names.iter().cloned().collect(),
            self.answering(&metadata, timeout)?,
        ))
    }

    fn matching(&self, pattern: &str, timeout: Duration) -> Result<(BTreeSet<String>, i32), Error> {
        let whole = Regex::new(&format!("^(?:{pattern})$"));
        let whole = whole.map_err(|source| Error::Pattern {
            pattern: pattern.to_owned(),
            source,
        })?;
        let all = self.client.fetch_metadata(None, timeout);
        let all = all.map_err(|_| self.unreachable("the list of topics", timeout))?;
        let names = all
            .topics()
            .iter()
            .map(MetadataTopic::name)
            .filter(|name| whole.is_match(name));
        Ok((
            names.map(str::to_owned).collect(),
            self.answering(&all, timeout)?,
        ))
    }

    /// A broker that has just answered; at the first contact its number is not known yet, then any that it named.
    fn answering(&self, metadata: &Metadata, timeout: Duration) -> Result<i32, Error> {
        let named = metadata.brokers().first().map(MetadataBroker::id);
        let broker = Some(metadata.orig_broker_id())
            .filter(|id| *id >= 0)
            .or(named);
        let broker = broker.ok_or_else(|| self.unreachable("a broker that answers", timeout))?;
        self.client.context().answered();
        Ok(broker)
    }

    /// Log lines and errors of this client wait in its queue; nobody else takes them.
    fn serve(&self) {
        for _ in 0..SERVED {
            drop(self.client.poll(Duration::ZERO));
        }
    }

    fn failed(&self, question: &'static str, code: Code, waited: Duration) -> Error {
        if code == Code::TIMED_OUT {
            self.unreachable(question, waited)
        } else {
            Error::Question { question, code }
        }
    }

    /// Why nobody answers: the fault that the client told meanwhile, else just that.
    pub(super) fn unreachable(&self, question: &'static str, waited: Duration) -> Error {
        self.serve();
        match self.client.context().fault() {
            Some(Error::Untrusted { detail, .. }) => {
                let fault = self.security.certificate_fault(&self.bootstrap_servers);
                return Error::Untrusted { detail, fault };
            }
            Some(error) => return error,
            None if self.security.meets_tls(&self.bootstrap_servers) => {
                let detail = "it is encrypted".to_owned();
                return Error::OtherProtocol { detail };
            }
            None => {}
        }
        let bootstrap_servers = self.bootstrap_servers.clone();
        Error::Unreachable {
            bootstrap_servers,
            waited,
            question,
        }
    }
}

fn no_answer(at: &TopicPartition, code: Code) -> Error {
    Error::NoAnswer {
        topic: at.topic.clone(),
        partition: at.partition,
        code,
    }
}

fn bounded(topics: Vec<TopicInfo>) -> Result<Vec<TopicInfo>, Error> {
    let count = topics.iter().map(|topic| topic.partitions.len()).sum();
    if count > MAX_PARTITIONS {
        Err(Error::TooManyPartitions { count })
    } else {
        Ok(topics)
    }
}
