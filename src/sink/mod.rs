//! One worker: pipelines side by side, each from its topics into its table, exactly once.
//!
//! ```text
//! source ──chunk──▶ decoder ──rows──▶ judged ──▶ accumulators ─┐
//!    ▲                                  └──▶ Parquet files ────┤ sealed batch
//!    │ seek                                                    ▼
//!    │          load table ─▶ fence ─▶ processors (before) ─▶ one atomic commit ─▶ processors (after)
//!    └── dropped ◀──┘ moved          ▲                                │ moved or no answer
//!                                    └────────── load again ◀─────────┘
//! ```
//!
//! `pipeline` keeps one pipeline going: it opens a session and waits after an error as long as the error says. A session
//! (`session`) polls on a thread of its own and never waits for the catalog while it could read. `ingest` is the open batch,
//! `question` what the cluster is asked, `identity`, `load` and `standing` whether cluster and table are still what they were,
//! `memory` what only this process knows of that, `commit` the way of a batch onto the table, `after` what follows it, `order` what a person asks for beside; what is decided on the way is decided by the pure `fence`, `finalize`
//! and the finalization core. [`Accumulator`] and [`CommitProcessor`] are where a user adds to it.
//!
//! Never: a batch committed in part; a commit derived from another base than the one it lands on; a file deleted that may be
//! on the table; a row skipped without a word.

pub(crate) mod accumulate;
mod after;
pub(crate) mod buffer;
mod commit;
pub(crate) mod errand;
pub(crate) mod fence;
pub(crate) mod finalize;
mod heartbeat;
pub(crate) mod identity;
pub(crate) mod ingest;
mod load;
mod memory;
mod metrics;
mod open;
mod order;
mod pipeline;
mod progress;
mod pulse;
pub(crate) mod question;
mod session;
mod standing;
#[cfg(test)]
mod testing;
pub(crate) mod tracks;
mod worker;

pub use accumulate::{
    Accumulator, AccumulatorFactory, EventTimeStatistics, EventTimes, Observed, PartitionTimes,
    Reading,
};
pub use fence::{Lost, OffsetRange, Verdict, judge};
pub use finalize::{Attempt, CommitProcessor, Committed, Plan};
pub use ingest::SealedBatch;
pub use order::{Ordered, order};
pub use tracks::Known;
pub use worker::{GRACE, Worker, WorkerSettings};

use crate::api::Reason;
use crate::cdc::Fault;
use crate::kafka::{self, TopicPartition};
use crate::lake;

/// What a pipeline does after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Begin again after a pause that grows.
    Later,
    /// Stand still until the specification changes.
    AwaitChange,
}

/// Why a pipeline cannot go on as it is.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source.
    #[error(transparent)]
    Kafka(#[from] kafka::Error),
    /// The table.
    #[error(transparent)]
    Lake(#[from] lake::Error),
    /// A record that no decoder takes, and no dead-letter topic.
    #[error("topic \"{}\", partition {}, offset {offset}: {fault}", .at.topic, .at.partition)]
    Undecodable {
        /// Its partition.
        at: TopicPartition,
        /// Its offset.
        offset: i64,
        /// What is wrong with it.
        fault: Fault,
    },
    /// The broker no longer names a partition that the table has.
    #[error(
        "topic \"{}\", partition {}: the table has rows of it, the broker no longer names it",
        .at.topic, .at.partition
    )]
    PartitionGone {
        /// Which.
        at: TopicPartition,
    },
    /// Somebody else has moved partitions of ours.
    #[error("{}", fenced(.lost))]
    Fenced {
        /// Which.
        lost: Vec<Lost>,
    },
    /// Something is not what it was when the table was last written, or the specification does not fit.
    #[error("{problem}")]
    Refused {
        /// The kind.
        reason: Reason,
        /// The values.
        problem: String,
    },
    /// What was under way did not end in the time it had. It may still take effect: the table tells.
    #[error("a commit under way was given up; the table is read again")]
    GivenUp,
    /// The table leads to another commit than the one that reading began at.
    #[error(
        "table \"{table}\" was rolled back while rows were read for it; reading begins again from where it stands"
    )]
    RolledBack {
        /// The table.
        table: String,
    },
    /// The table is no longer the one that files were written for.
    #[error("{problem}")]
    Outdated {
        /// What has changed.
        problem: String,
    },
    /// A secret has changed: what was made with the old one is made anew.
    #[error("a secret has changed")]
    SecretChanged,
    /// A part of the program has panicked.
    #[error("a part of the program has failed: {problem}")]
    Crashed {
        /// What it said.
        problem: String,
    },
    /// The worker is to stop.
    #[error("the worker stops")]
    Stopping,
}

impl Error {
    fn crashed(error: &tokio::task::JoinError) -> Self {
        Self::Crashed {
            problem: error.to_string(),
        }
    }

    pub(crate) fn refused(reason: Reason, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self::Refused { reason, problem }
    }

    /// What the pipeline does.
    #[must_use]
    pub fn next(&self) -> Next {
        match self {
            // A topic that is created later needs no new specification.
            Self::Kafka(kafka::Error::TopicNotFound { .. })
            | Self::Fenced { .. }
            | Self::GivenUp
            | Self::RolledBack { .. }
            | Self::Outdated { .. }
            | Self::SecretChanged
            | Self::Crashed { .. }
            | Self::Stopping => Next::Later,
            Self::Kafka(error) => match error.next() {
                kafka::Next::Later => Next::Later,
                kafka::Next::AwaitChange | kafka::Next::Stop => Next::AwaitChange,
            },
            Self::Lake(error) => match error.next() {
                lake::Next::Again | lake::Next::Later => Next::Later,
                lake::Next::AwaitChange | lake::Next::Stop => Next::AwaitChange,
            },
            Self::Undecodable { .. } | Self::PartitionGone { .. } => Next::AwaitChange,
            Self::Refused { reason, .. } => match reason {
                // Let in again, it goes on by itself.
                Reason::SecretMissing
                | Reason::Fenced
                | Reason::WriterDrained
                | Reason::PolicyOutdated => Next::Later,
                _ => Next::AwaitChange,
            },
        }
    }

    /// The partition that it is about, where it is about one.
    fn at(&self) -> Option<TopicPartition> {
        match self {
            Self::Kafka(error) => error.at(),
            Self::Undecodable { at, .. } | Self::PartitionGone { at } => Some(at.clone()),
            Self::Fenced { lost } => lost.first().map(|lost| lost.at.clone()),
            _ => None,
        }
    }

    /// The kind, as `/progress` and the conditions name it.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Kafka(error) => of_kafka(error),
            Self::Lake(error) => of_lake(error),
            Self::Undecodable { .. } => Reason::Undecodable,
            Self::PartitionGone { .. } => Reason::PartitionGone,
            Self::Fenced { .. } => Reason::Fenced,
            Self::Refused { reason, .. } => *reason,
            Self::GivenUp => Reason::CommitUnknown,
            Self::RolledBack { .. } => Reason::RolledBack,
            Self::Outdated { .. } => Reason::TableMismatch,
            Self::SecretChanged => Reason::Starting,
            Self::Crashed { .. } => Reason::Crashed,
            Self::Stopping => Reason::Stopping,
        }
    }
}

fn of_kafka(error: &kafka::Error) -> Reason {
    use kafka::Error as E;
    match error {
        E::PropertyRefused { .. }
        | E::PropertyUnknown { .. }
        | E::PropertyInvalid { .. }
        | E::Pattern { .. } => Reason::SpecInvalid,
        E::TopicNotFound { .. } => Reason::TopicNotFound,
        E::TooManyPartitions { .. } => Reason::TooManyPartitions,
        E::PositionLost { .. } | E::LogStartMoved { .. } => Reason::OffsetOutOfRange,
        E::LogTruncated { .. } => Reason::LogTruncated,
        E::Undelivered { .. } => Reason::DeadLetterFailed,
        E::CredentialsRefused { .. } => Reason::CredentialsRefused,
        E::Untrusted {
            fault: Some(kafka::CertificateFault::OtherHost),
            ..
        } => Reason::HostMismatch,
        E::Untrusted { .. } => Reason::CertificateUntrusted,
        E::OtherProtocol { .. } => Reason::ProtocolMismatch,
        E::SecretInvalid { .. } => Reason::SecretInvalid,
        other if other.next() == kafka::Next::AwaitChange => Reason::BrokerRefused,
        _ => Reason::BrokerUnreachable,
    }
}

fn of_lake(error: &lake::Error) -> Reason {
    use crate::process::tls::Fault as F;
    use lake::Error as E;
    use lake::{catalog::CatalogFault as C, storage::StoreError as S};
    match error.certificate() {
        Some(F::Untrusted(_)) => return Reason::CertificateUntrusted,
        Some(F::OtherHost(_)) => return Reason::HostMismatch,
        Some(F::Unusable(_)) => return Reason::SecretInvalid,
        None => {}
    }
    match error.store() {
        Some(S::Refused { .. } | S::NoCredentials { .. }) => return Reason::CredentialsRefused,
        Some(S::Unreachable { .. }) => return Reason::StorageUnreachable,
        Some(S::Failed { .. }) => return Reason::StorageFailed,
        Some(S::Certificate(_)) | None => {}
    }
    match error.catalog() {
        Some(C::Unauthorized { .. }) => return Reason::CredentialsRefused,
        Some(C::Forbidden { .. }) => return Reason::CatalogRefused,
        Some(C::Certificate(_)) | None => {}
    }
    match error {
        E::Settings { .. } => Reason::SpecInvalid,
        E::Catalog { .. } => Reason::CatalogUnreachable,
        E::NoSuchTable { .. } => Reason::TableNotFound,
        E::Disagreement { .. } => Reason::TableMismatch,
        E::NotSent { .. } | E::File { .. } => Reason::StorageFailed,
        E::Conflict { .. } => Reason::CommitConflict,
        E::Unknown { .. } => Reason::CommitUnknown,
        E::Refused { .. } => Reason::CatalogRefused,
        E::Batch { .. } => Reason::SchemaMismatch,
    }
}

fn fenced(lost: &[Lost]) -> String {
    let parts = lost.iter().map(|lost| match lost.next {
        Some(next) if next == lost.start => format!(
            "{}: the batch begins at {next}, as the table does, but was read before the topic was made anew or its log cut",
            lost.at
        ),
        Some(next) => format!(
            "{}: the batch begins at {}, the table goes on at {next}",
            lost.at, lost.start
        ),
        None => format!(
            "{}: the batch begins at {}, the table does not know the partition",
            lost.at, lost.start
        ),
    });
    format!(
        "another worker has committed these partitions, the batch is dropped: {}",
        parts.collect::<Vec<_>>().join("; ")
    )
}
