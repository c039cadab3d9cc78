//! The source: what can be read from Kafka, and how far.
//!
//! [`Source`] hands out records, end-of-partition events and rebalances of one consumer; [`Inquirer`] asks questions (which
//! partitions exist, how far they reach, which topic this is) with a client of its own, from any thread; [`Tail`] reads the end
//! of a topic in which only the newest record counts; [`DeadLetters`] takes what could not be decoded. Nothing here knows a table, and nothing here decides what a position means.
//!
//! **A topic that was deleted and made anew is not noticed by the consumer** when it reaches beyond the position: librdkafka
//! 2.12.1 reads on in it (`rdkafka_topic.c`, "FIXME: an offset reset must be triggered"), and both logs begin with leader
//! epoch 0. Whoever commits a batch asks [`Inquirer::topics`] after its last record and before the commit, and compares ids.
//!
//! No record is ever skipped silently: a position that the log no longer has, a topic that is gone or an answer that did not
//! come is an error with topic, partition and offset, and never a fresh start somewhere else.

mod code;
mod consumer;
mod dead_letter;
mod desk;
mod inquirer;
mod log;
mod notice;
mod security;
mod settings;
mod sys;
mod tail;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use code::Code;
pub use consumer::{Chunk, Event, Message, Mode, Source};
pub use dead_letter::{DeadLetters, Rejected};
pub use inquirer::{Answers, Inquirer, TopicInfo};
pub use security::{CertificateFault, Security};
pub use settings::{Settings, Topics, property_fault};
pub use sys::{Header, Headers};
pub use tail::Tail;

/// At most so many source partitions in one pipeline: their state must fit into the table's properties.
pub const MAX_PARTITIONS: usize = 1_000;

/// One partition of one topic, by name. Written `orders[3]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name; shared, so that a clone allocates nothing.
    pub topic: Arc<str>,
    /// The partition's number, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// The partition `partition` of `topic`.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        let topic = topic.into();
        Self { topic, partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.topic, self.partition)
    }
}

/// Where reading goes on in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The offset that is wanted next (exclusive end of what has been read).
    pub next_offset: i64,
    /// Leader epoch of the record before it, where known. With it, a log that was cut and written anew is detected at the
    /// start instead of being read on as if nothing had happened.
    pub leader_epoch: Option<i32>,
}

impl Position {
    /// A position without a leader epoch: nothing can be checked but the range of the log.
    #[must_use]
    pub fn at(next_offset: i64) -> Self {
        let leader_epoch = None;
        Self {
            next_offset,
            leader_epoch,
        }
    }
}

/// Where a pipeline begins that has no position yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFrom {
    /// At the first offset that the log still has.
    Earliest,
    /// At the high watermark: what is produced from now on.
    Latest,
    /// At the first record whose timestamp is this (µs since 1970) or later; at the high watermark where there is none.
    Timestamp(i64),
}

/// What the caller does after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Try again after a pause that grows: brokers away, a leader that moves.
    Later,
    /// Invalid input: nothing changes before the manifest, the topic or the rights do.
    AwaitChange,
    /// Data at risk: stop this pipeline until a person says how to go on.
    Stop,
}

/// What can go wrong between Kafka and a pipeline.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
pub enum Error {
    /// A property that the house sets itself, or that would break exactly-once.
    #[error("property \"{name}\" cannot be set: {reason}")]
    PropertyRefused {
        /// The property as it was given.
        name: String,
        /// Why, and what to use instead.
        reason: &'static str,
    },
    /// librdkafka has no property of this name.
    #[error("property \"{name}\" is unknown to librdkafka {version}; see its CONFIGURATION.md")]
    PropertyUnknown {
        /// The property as it was given.
        name: String,
        /// The version of librdkafka in this binary.
        version: String,
    },
    /// librdkafka knows the property but not the value.
    #[error("property \"{name}\": value \"{value}\" is invalid: {problem}")]
    PropertyInvalid {
        /// The property as it was given.
        name: String,
        /// The value as it was given.
        value: String,
        /// What librdkafka says of it.
        problem: String,
    },
    /// The topic pattern is no regular expression.
    #[error("topic pattern \"{pattern}\" is no regular expression")]
    Pattern {
        /// The pattern as it was given.
        pattern: String,
        /// What is wrong with it.
        source: regex::Error,
    },
    /// A listed topic does not exist on the cluster.
    #[error("topic \"{topic}\" does not exist; create it or correct the list of topics")]
    TopicNotFound {
        /// The topic that was asked for.
        topic: String,
    },
    /// The cluster answered for the topic, but with an error; so nothing is known of any topic.
    #[error("topic \"{topic}\" cannot be described: {code}")]
    TopicUnavailable {
        /// The topic that was asked for.
        topic: String,
        /// What the broker said.
        code: Code,
    },
    /// More partitions than one pipeline may have.
    #[error("{count} source partitions are more than {MAX_PARTITIONS}; split the pipeline")]
    TooManyPartitions {
        /// Partitions of all topics together.
        count: usize,
    },
    /// No broker answered in time.
    #[error("no answer from \"{bootstrap_servers}\" within {waited:?}: {question}")]
    Unreachable {
        /// The brokers that were asked.
        bootstrap_servers: String,
        /// How long.
        waited: Duration,
        /// What was asked.
        question: &'static str,
    },
    /// The brokers do not take the user, the password or the certificate.
    #[error("the brokers refuse the credentials: {detail}")]
    CredentialsRefused {
        /// librdkafka's words.
        detail: String,
    },
    /// The certificate of a broker is not trusted.
    #[error("the certificate of a broker is not trusted{}: {detail}", fault.map_or_else(String::new, |fault| format!(", {fault}")))]
    Untrusted {
        /// librdkafka's words.
        detail: String,
        /// What is wrong with it, where that is known.
        fault: Option<CertificateFault>,
    },
    /// The listener speaks another protocol than the client.
    #[error(
        "the brokers do not speak the protocol of source.kafka.security.protocol there: {detail}"
    )]
    OtherProtocol {
        /// librdkafka's words.
        detail: String,
    },
    /// A secret holds something else than it should.
    #[error("source.kafka.security.{field} {problem}")]
    SecretInvalid {
        /// The field that names it.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The whole question failed.
    #[error("{question} failed: {code}")]
    Question {
        /// What was asked.
        question: &'static str,
        /// What the broker or librdkafka said.
        code: Code,
    },
    /// No usable answer for this one partition; others may have one.
    #[error("topic \"{topic}\", partition {partition}: no offset: {code}")]
    NoAnswer {
        /// The topic asked.
        topic: Arc<str>,
        /// The partition asked.
        partition: i32,
        /// What the leader or librdkafka said.
        code: Code,
    },
    /// The log does not have the position, or its records before the position are others than the ones that were read.
    /// [`Inquirer::explain`] finds out which.
    #[error(
        "topic \"{topic}\", partition {partition}: position {offset} is no longer in the log: {detail}"
    )]
    PositionLost {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// The offset wanted next.
        offset: i64,
        /// librdkafka's words.
        detail: String,
    },
    /// Records were deleted (retention, `DeleteRecords`) before they were read.
    #[error("topic \"{topic}\", partition {partition}: position {offset} is below the start of the log, {log_start}; {} records are gone", log_start - offset)]
    LogStartMoved {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// The offset wanted next.
        offset: i64,
        /// The first offset that the log still has.
        log_start: i64,
    },
    /// The log was cut below the position: what was read from there is no longer what the topic holds.
    #[error(
        "topic \"{topic}\", partition {partition}: the log was truncated below position {offset}; it ends at {log_end} now"
    )]
    LogTruncated {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// The offset wanted next.
        offset: i64,
        /// The high watermark now.
        log_end: i64,
    },
    /// Reading one partition failed. librdkafka goes on trying, but it may never succeed.
    #[error("topic \"{topic}\", partition {partition}, offset {offset}: {code}: {detail}")]
    Fetch {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// The offset at or after which it failed.
        offset: i64,
        /// What failed.
        code: Code,
        /// librdkafka's words.
        detail: String,
    },
    /// Trouble of the whole client that librdkafka works on by itself: brokers down, a coordinator that moves.
    #[error("kafka client: {code}: {detail}")]
    Client {
        /// What failed.
        code: Code,
        /// librdkafka's words.
        detail: String,
    },
    /// The client is unusable and must be made anew.
    #[error("kafka client is unusable: {code}: {detail}")]
    Fatal {
        /// What failed.
        code: Code,
        /// librdkafka's words.
        detail: String,
    },
    /// The client could not be made.
    #[error("kafka client cannot be created")]
    Create {
        /// Why.
        source: rdkafka::error::KafkaError,
    },
    /// librdkafka refused a call.
    #[error("kafka client: {call} failed")]
    Call {
        /// What was to be done.
        call: &'static str,
        /// Why not.
        source: rdkafka::error::KafkaError,
    },
    /// Dead letters that the broker did not confirm. The batch they belong to must not be committed.
    #[error(
        "dead-letter topic \"{topic}\": {undelivered} of {sent} records are not confirmed: {problem}"
    )]
    Undelivered {
        /// The dead-letter topic.
        topic: String,
        /// Records handed over since the last flush.
        sent: u64,
        /// Those of them without a confirmation.
        undelivered: u64,
        /// The first failure, or that time ran out.
        problem: String,
    },
}

impl Error {
    /// What the caller does now.
    #[must_use]
    pub fn next(&self) -> Next {
        match self {
            Self::PropertyRefused { .. }
            | Self::PropertyUnknown { .. }
            | Self::PropertyInvalid { .. }
            | Self::Pattern { .. }
            | Self::TopicNotFound { .. }
            | Self::TooManyPartitions { .. } => Next::AwaitChange,
            Self::PositionLost { .. } | Self::LogStartMoved { .. } | Self::LogTruncated { .. } => {
                Next::Stop
            }
            Self::TopicUnavailable { code, .. }
            | Self::Question { code, .. }
            | Self::NoAnswer { code, .. } => {
                if code.is_authorization() {
                    Next::AwaitChange
                } else {
                    Next::Later
                }
            }
            Self::Fetch { code, .. } => code.next_after_fetch(),
            Self::Unreachable { .. }
            // Secrets are read again when they change, and brokers learn of users.
            | Self::CredentialsRefused { .. }
            | Self::Untrusted { .. }
            | Self::OtherProtocol { .. }
            | Self::SecretInvalid { .. }
            | Self::Client { .. }
            | Self::Fatal { .. }
            | Self::Create { .. }
            | Self::Call { .. }
            | Self::Undelivered { .. } => Next::Later,
        }
    }

    /// The partition that it is about, where it is about one.
    #[must_use]
    pub fn at(&self) -> Option<TopicPartition> {
        match self {
            Self::NoAnswer {
                topic, partition, ..
            }
            | Self::PositionLost {
                topic, partition, ..
            }
            | Self::LogStartMoved {
                topic, partition, ..
            }
            | Self::LogTruncated {
                topic, partition, ..
            }
            | Self::Fetch {
                topic, partition, ..
            } => Some(TopicPartition::new(Arc::clone(topic), *partition)),
            _ => None,
        }
    }

    /// The label of this kind of error in logs, metrics and conditions.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.into()
    }
}
