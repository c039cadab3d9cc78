//! Why something is as it is: the conditions of a pipeline and one list of reasons, each with its remedy.
//!
//! A reason is a stable name that errors, `/progress`, logs, metrics and conditions share: whoever sees one can look it up.
//! The name comes from the variant and is never written twice.

use serde::{Deserialize, Serialize};
use strum::{EnumMessage, IntoStaticStr};

/// What is said about a pipeline as a whole.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    EnumMessage,
    strum::EnumIter,
)]
pub enum ConditionType {
    /// The specification can be run as it is written.
    Accepted,
    /// Rows are read and committed.
    Ready,
    /// The claim follows the clock; when false, the reason says what holds it.
    Advancing,
    /// Cells that were final are open again, until the claim is back where it was.
    Reopened,
    /// The pipeline is stopped because its specification asks for it.
    Suspended,
}

/// A condition's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
pub enum Answer {
    /// Yes.
    True,
    /// No, and the reason says why.
    False,
    /// It cannot be told.
    Unknown,
}

/// What a reason means for whoever meets it: whether anything is wrong, and who ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumMessage, strum::EnumIter)]
pub enum Course {
    /// Nothing is wrong
    Usual,
    /// It heals by itself
    Heals,
    /// Somebody has to change something
    AwaitsChange,
    /// Data is at risk, and somebody has to decide
    AwaitsDecision,
    /// The claim waits
    Holds,
    /// The claim was taken back
    TakesBack,
    /// A gate waits
    Gate,
}

/// One condition as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// What is said.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// Whether it is so.
    pub status: Answer,
    /// Why.
    pub reason: Reason,
    /// The values that belong to the reason.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub message: String,
}

/// Every reason there is.
///
/// [`Reason::label`] is the name of the variant and part of the public interface.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    EnumMessage,
    strum::EnumIter,
    strum::Display,
)]
pub enum Reason {
    // The usual course.
    /// All is as it should be.
    AsExpected,
    /// The pipeline is being opened: its table, its topics, its positions.
    Starting,
    /// The specification says `suspend: true`.
    Suspended,
    /// The worker is stopping.
    Stopping,
    /// A part of the program has failed. It begins again by itself.
    Crashed,
    /// A worker has not answered the operator for a while. What it claimed stays true.
    WorkerUnreachable,
    /// A change is accepted and waits for its turn in a wave.
    RolloutPending,
    /// The API server does not take what is to run.
    ApplyFailed,
    /// Somebody else has taken over a field of what is to run.
    FieldConflict,
    /// A pod of the workers does not start.
    PodNotStarted,
    /// The specification is beyond the limits of a policy.
    PolicyViolated,
    /// An elder pipeline writes the table.
    TableTaken,

    // The specification.
    /// A field is wrong, or two fields do not go together.
    SpecInvalid,
    /// A secret that the specification refers to is not there.
    SecretMissing,
    /// A secret holds something else than it should, as a key where certificates belong.
    SecretInvalid,
    /// The brokers, the catalog or the store do not take the credentials.
    CredentialsRefused,
    /// The certificate of a broker, of the catalog or of the store is signed by nobody who is trusted, or its time is over.
    CertificateUntrusted,
    /// The certificate of a broker, of the catalog or of the store is that of another host.
    HostMismatch,
    /// A policy is wrong somewhere, so nothing of it counts.
    PolicyInvalid,
    /// A policy that may be about the pipeline cannot be read by this version of the operator.
    PolicyUnreadable,
    /// Pipelines did not get ready again after their change, so that it goes no further.
    RolloutHalted,

    // The source.
    /// A listed topic does not exist, or a pattern matches none.
    TopicNotFound,
    /// A topic was deleted and made again under its name.
    TopicRecreated,
    /// A topic joins that may have been read before: more have left than the table remembers.
    TopicForgotten,
    /// The brokers belong to another cluster than the one in the table.
    ClusterChanged,
    /// The next offset of a partition is no longer in its log.
    OffsetOutOfRange,
    /// The log ends before what was read from it, or another leader wrote other rows there.
    LogTruncated,
    /// A partition that was read is gone.
    PartitionGone,
    /// The topics have more partitions than one pipeline can keep in its table.
    TooManyPartitions,
    /// No broker answers.
    BrokerUnreachable,
    /// A broker refuses the client.
    BrokerRefused,
    /// The brokers speak another protocol at that address: encrypted or not, with credentials or without.
    ProtocolMismatch,
    /// Rows cannot be decoded and no dead-letter topic is configured.
    Undecodable,
    /// Rows that could not be decoded cannot be written to the dead-letter topic either.
    DeadLetterFailed,

    // The table.
    /// The catalog does not answer.
    CatalogUnreachable,
    /// The catalog refuses the request.
    CatalogRefused,
    /// The store with the table's files does not answer.
    StorageUnreachable,
    /// Files cannot be written or read where the table keeps them.
    StorageFailed,
    /// The table does not exist, and the specification does not say which columns it has.
    TableNotFound,
    /// The table has another UUID than the one its state names.
    TableRecreated,
    /// The table's layout is not the one that the specification asks for.
    TableMismatch,
    /// The table's columns and the source's do not go together.
    SchemaMismatch,
    /// The table belongs to another writer.
    WriterMismatch,
    /// The writer was declared drained.
    WriterDrained,
    /// The table belongs to another installation of Tidemark.
    InstallationMismatch,
    /// The table's history has expired down to a snapshot above every commit of this writer.
    LineageUnknown,
    /// The table was replaced, or rolled back behind the first commit of this writer.
    TableReplaced,
    /// A commit of this writer was cherry-picked: its rows are there without what it said about them.
    CherryPicked,
    /// The table was rolled back. Reading goes on from the commit that it was rolled back to.
    RolledBack,
    /// The table's owner agreed to go on from a table that does not lead to the last commit; its claim began anew.
    LineageAccepted,
    /// The state on the table was written by a newer version.
    StateTooNew,
    /// The state on the table cannot be read.
    StateUnreadable,
    /// Another commit came first; the claim is worked out again on top of it.
    CommitConflict,
    /// A commit got no answer; the table is read to see whether it took effect.
    CommitUnknown,
    /// The table is further than this worker: another one has taken its partitions over, and its batch was dropped.
    Fenced,

    // What holds a claim.
    /// The cell is not over yet, or its rows may still be on their way within the declared delay.
    CellOpen,
    /// Fewer commits with rows than the window needs, and the partition is not caught up.
    WindowIncomplete,
    /// The window of recent rows still reaches into the cell, and the partition is not caught up.
    PartitionBehind,
    /// Nobody has read the partition to its end since the cell could close: it brings no rows that would, or no worker reads it.
    PartitionSilent,
    /// The source has shown no heartbeat since the cell ended: its connector may stand still with rows of the cell.
    ConnectorSilent,
    /// The newest watermark that the source sent into a partition lies before the end of the cell.
    WatermarkMissing,
    /// The broker has not been asked, or has not answered, since the cell ended.
    BrokerNotAsked,
    /// An initial snapshot is being read; its rows say nothing about time.
    SnapshotRunning,
    /// The topics have no partition.
    NoPartition,
    /// The broker names a partition that no commit has anchored yet.
    PartitionNew,
    /// The worker runs with an older policy than the table was last written with.
    PolicyOutdated,
    /// Another writer of the table has not got as far.
    WriterBehind,
    /// No rows, and every partition is read to its end.
    Idle,

    // What takes a claim back.
    /// A topic that may be older than the claim is read from now on.
    TopicJoined,
    /// Another pipeline writes to the table from now on, or goes on after it was drained.
    WriterJoined,

    // What a gate waits for.
    /// The table's claim has not got there.
    NotFinal,
    /// Rows of the time that is waited for are missing for good.
    RowsMissing,
    /// The table has a claim that does not count.
    ClaimHeld,
    /// The table is complete there, but not by the accepted terms alone.
    OtherEvidence,
    /// There is no such pipeline, or none that writes the table.
    PipelineNotFound,

    // The last, as serde wants it.
    /// Another version of the program says something that this one does not know.
    #[serde(other)]
    Unrecognized,
}

/// The course of each reason.
const COURSES: [(Course, &[Reason]); 7] = [
    (
        Course::Usual,
        &[
            Reason::AsExpected,
            Reason::Idle,
            Reason::Starting,
            Reason::Suspended,
            Reason::Stopping,
            Reason::RolloutPending,
            Reason::CellOpen,
            Reason::CommitConflict,
            Reason::CommitUnknown,
            Reason::Fenced,
        ],
    ),
    (
        Course::Heals,
        &[
            Reason::Crashed,
            Reason::WorkerUnreachable,
            Reason::ApplyFailed,
            Reason::FieldConflict,
            Reason::PodNotStarted,
            Reason::SecretMissing,
            Reason::SecretInvalid,
            Reason::CredentialsRefused,
            Reason::CertificateUntrusted,
            Reason::HostMismatch,
            Reason::TopicNotFound,
            Reason::BrokerUnreachable,
            Reason::BrokerRefused,
            Reason::ProtocolMismatch,
            Reason::DeadLetterFailed,
            Reason::CatalogUnreachable,
            Reason::CatalogRefused,
            Reason::StorageUnreachable,
            Reason::StorageFailed,
        ],
    ),
    (
        Course::AwaitsChange,
        &[
            Reason::PolicyViolated,
            Reason::TableTaken,
            Reason::SpecInvalid,
            Reason::PolicyInvalid,
            Reason::PolicyUnreadable,
            Reason::RolloutHalted,
            Reason::TooManyPartitions,
            Reason::TableMismatch,
            Reason::SchemaMismatch,
            Reason::WriterMismatch,
            Reason::WriterDrained,
            Reason::StateTooNew,
            Reason::Unrecognized,
        ],
    ),
    (
        Course::AwaitsDecision,
        &[
            Reason::TopicRecreated,
            Reason::TopicForgotten,
            Reason::ClusterChanged,
            Reason::OffsetOutOfRange,
            Reason::LogTruncated,
            Reason::PartitionGone,
            Reason::Undecodable,
            Reason::TableNotFound,
            Reason::TableRecreated,
            Reason::TableReplaced,
            Reason::LineageUnknown,
            Reason::CherryPicked,
            Reason::StateUnreadable,
            Reason::InstallationMismatch,
        ],
    ),
    (
        Course::Holds,
        &[
            Reason::WindowIncomplete,
            Reason::PartitionBehind,
            Reason::PartitionSilent,
            Reason::ConnectorSilent,
            Reason::WatermarkMissing,
            Reason::BrokerNotAsked,
            Reason::SnapshotRunning,
            Reason::NoPartition,
            Reason::PartitionNew,
            Reason::PolicyOutdated,
            Reason::WriterBehind,
        ],
    ),
    (
        Course::TakesBack,
        &[
            Reason::RolledBack,
            Reason::LineageAccepted,
            Reason::TopicJoined,
            Reason::WriterJoined,
        ],
    ),
    (
        Course::Gate,
        &[
            Reason::NotFinal,
            Reason::RowsMissing,
            Reason::ClaimHeld,
            Reason::OtherEvidence,
            Reason::PipelineNotFound,
        ],
    ),
];

impl Reason {
    /// The name as it is shown.
    #[must_use]
    pub fn label(self) -> &'static str {
        self.into()
    }

    /// Whether nothing is wrong, so that there is nothing to do.
    #[must_use]
    pub fn is_usual(self) -> bool {
        matches!(self, Self::AsExpected | Self::Idle)
    }

    /// What it means for whoever meets it.
    ///
    /// # Panics
    /// Never: each reason stands in the table, and a test holds it to that.
    #[must_use]
    pub fn course(self) -> Course {
        let found = COURSES.iter().find(|(_, reasons)| reasons.contains(&self));
        found.expect("every reason has a course").0
    }

    /// Whether the table's claim does not count while a worker says so: its history does not hold the commit that the claim is
    /// true for.
    #[must_use]
    pub fn voids_claim(self) -> bool {
        matches!(
            self,
            Self::TableRecreated
                | Self::TableReplaced
                | Self::LineageUnknown
                | Self::CherryPicked
                | Self::RolledBack
                | Self::StateUnreadable
        )
    }

    /// The reason of a name; a name that this version does not know is [`Reason::Unrecognized`].
    #[must_use]
    pub fn of_label(label: &str) -> Self {
        let mut all = <Self as strum::IntoEnumIterator>::iter();
        all.find(|reason| reason.label() == label)
            .unwrap_or(Self::Unrecognized)
    }

    /// What a person does about it; for a state that ends by itself, when that is.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        self.of_course()
            .or_else(|| self.of_the_source())
            .or_else(|| self.of_the_table())
            .or_else(|| self.of_a_gate())
            .unwrap_or_else(|| self.of_a_hold())
    }

    fn of_course(self) -> Option<&'static str> {
        Some(match self {
            Self::AsExpected => "nothing to do",
            Self::Starting => "ends by itself; if it lasts, the log says what is waited for",
            Self::Suspended => "set suspend: false to go on from where the table stands",
            Self::Stopping => "ends by itself within the grace period",
            Self::Crashed => {
                "report it with the log; the pipeline begins again from what the table holds"
            }
            Self::WorkerUnreachable => {
                "see whether the pod runs, and whether a network policy keeps the operator from its port 8080"
            }
            Self::Unrecognized => {
                "run the operator in the version of its workers, or in a later one"
            }
            Self::RolloutPending => {
                "ends when those before it are well; rollout of the policy says how many go at once"
            }
            Self::PodNotStarted => {
                "see kubectl describe pod: the image, a secret, a node with room"
            }
            Self::FieldConflict => {
                "undo the change by that manager and take its field out of its managedFields, or delete the object: it is made again"
            }
            Self::PolicyViolated => {
                "change the fields that the message names, or ask whoever owns the policy; what ran before goes on meanwhile"
            }
            Self::TableTaken => {
                "delete one of the two pipelines, name another table, or set sink.shared: true in both"
            }
            Self::ApplyFailed => {
                "see what the API server says: a quota, a right of the operator, or an admission rule; it is tried again by itself"
            }
            Self::SpecInvalid => "correct the fields that the message names",
            Self::PolicyInvalid => {
                "correct the fields that the message names; until then the policy counts for nothing"
            }
            Self::PolicyUnreadable => {
                "run the operator in the version that the policy was written for, or correct the policy; until then what was accepted last goes on, and nothing new is accepted"
            }
            Self::RolloutHalted => {
                "see why they are not ready; it goes on when they are, or when the change is taken back"
            }
            Self::SecretMissing => {
                "make the Secret with this key in the namespace of the pipeline; outside of Kubernetes provide the file $TIDEMARK_SECRETS/<name>/<key> or the variable TIDEMARK_SECRET_<NAME>_<KEY>; it is looked for again by itself"
            }
            Self::SecretInvalid => {
                "put what the message asks for into the secret; it is read again by itself"
            }
            Self::CredentialsRefused => {
                "see whether the secrets that source.kafka.security or sink.catalog.storage names hold the user's or the key's, and what that may do; they are read again by themselves"
            }
            Self::CertificateUntrusted => {
                "name the certificate that signed it in caRef of source.kafka.security.tls, sink.catalog or sink.catalog.storage; it is tried again by itself"
            }
            Self::HostMismatch => {
                "write the address by a name that its certificate has, or have a certificate made for that name; it is tried again by itself"
            }
            _ => return None,
        })
    }

    fn of_the_source(self) -> Option<&'static str> {
        Some(match self {
            Self::TopicNotFound => {
                "create the topic, or correct source.kafka.topics or topicPattern"
            }
            Self::TopicRecreated => {
                "if the new topic continues the old one, name its id in source.accept.topicIds; rows that were only in the old one are lost"
            }
            Self::TopicForgotten => {
                "if none of the topic's rows are in the table, name its id in source.accept.topicIds; else read it by a pipeline with another table"
            }
            Self::ClusterChanged => {
                "point source.kafka.bootstrapServers back, or name the new cluster in source.accept.clusterId"
            }
            Self::OffsetOutOfRange | Self::LogTruncated | Self::PartitionGone => {
                "rows are lost at the source: set source.onGap: Continue to go on; the gap is then part of the claim"
            }
            Self::TooManyPartitions => {
                "split the topics over several pipelines, each with a table of its own"
            }
            Self::BrokerUnreachable => {
                "check source.kafka.bootstrapServers and the network; it is tried again by itself"
            }
            Self::BrokerRefused => {
                "grant the client read and describe on its topics and group; it is tried again by itself"
            }
            Self::ProtocolMismatch => {
                "set source.kafka.security.protocol to that of the listener in bootstrapServers, or name another listener; it is tried again by itself"
            }
            Self::Undecodable => {
                "correct the producer and move the row away, or set source.deadLetter.topic"
            }
            Self::DeadLetterFailed => {
                "check that the dead-letter topic exists and may be written; it is tried again by itself"
            }
            _ => return None,
        })
    }

    fn of_the_table(self) -> Option<&'static str> {
        Some(match self {
            Self::CatalogUnreachable => {
                "check sink.catalog.uri and the network; it is tried again by itself"
            }
            Self::CatalogRefused => {
                "check the credential and the rights on the catalog; it is tried again by itself"
            }
            Self::StorageUnreachable => {
                "check sink.catalog.storage.endpoint and the network; it is tried again by itself"
            }
            Self::StorageFailed => {
                "check space and rights where the table keeps its files; it is tried again by itself"
            }
            Self::TableNotFound => {
                "make the table, or set sink.schema so that it can be made; restore one that was there before, or name the UUID of another one in sink.accept.tableUuid; it is looked for again by itself"
            }
            Self::TableRecreated => {
                "if the new table is meant, name its UUID in sink.accept.tableUuid: rows are read from startFrom, and the old table's claim does not count for it"
            }
            Self::TableMismatch => {
                "change the specification to what the table has, or name another table"
            }
            Self::SchemaMismatch => {
                "change the column that the message names in sink.schema or in the table"
            }
            Self::WriterMismatch => {
                "name another table, set sink.shared: true to write beside the other pipeline, or delete that one and run this one under its name"
            }
            Self::WriterDrained => {
                "if it is to go on: tidemark writer undrain TABLE WRITER; else delete the pipeline"
            }
            Self::InstallationMismatch => {
                "if the other installation no longer runs, name it in sink.accept.installation"
            }
            Self::LineageUnknown => {
                "keep the newest snapshot of this writer when you expire others; to go on from what is there, set sink.accept.lineage to the id that the message names: the claim begins anew"
            }
            Self::TableReplaced => {
                "set the current snapshot back to one of this writer's; or set sink.accept.lineage to the id that the message names: rows are read again from startFrom, with sink.onRollback: KeepOffsets from where reading was, and the claim begins anew"
            }
            Self::CherryPicked => {
                "roll the table back to a commit of this writer: the rows are read again; or set sink.accept.lineage to the id that the message names: the claim begins anew"
            }
            Self::RolledBack => {
                "ends by itself: rows that are gone are read again, or left out with sink.onRollback: KeepOffsets"
            }
            Self::LineageAccepted => {
                "ends by itself when the claim is back; take sink.accept out of the specification"
            }
            Self::StateTooNew => "run the version that wrote the table, or a later one",
            Self::StateUnreadable => {
                "put the table's properties back as an earlier metadata file has them; or set sink.accept.lineage to the id that the message names, at the writer that it names: the claim begins anew, and rows are read again from startFrom"
            }
            Self::CommitConflict | Self::CommitUnknown | Self::Fenced => {
                "nothing to do: it is settled by reading the table again"
            }
            _ => return None,
        })
    }

    fn of_a_gate(self) -> Option<&'static str> {
        Some(match self {
            Self::NotFinal => "ends by itself; tidemark why TABLE says what holds the claim",
            Self::RowsMissing => {
                "the gate will not become final: read the table's gaps and complete-from, and make a gate for a time without them"
            }
            Self::ClaimHeld => {
                "ends when the table's writer goes on; its pipeline says why it does not"
            }
            Self::OtherEvidence => {
                "ends when an accepted term gets as far; accept more terms to go on with what there is"
            }
            Self::PipelineNotFound => "make the pipeline, or make a gate with the right name",
            _ => return None,
        })
    }

    fn of_a_hold(self) -> &'static str {
        match self {
            Self::CellOpen => "ends by itself, at the latest maxDelay after the end of the cell",
            Self::WindowIncomplete => {
                "ends with more commits or once the partition is caught up; a smaller finalization.windowCommits needs fewer"
            }
            Self::PartitionBehind => {
                "ends when the rows of the partition have passed the cell; if the lag grows, add replicas; one without more rows is closed by the term CaughtUp, where finalization.terms admits it"
            }
            Self::PartitionSilent => {
                "see that a worker runs and what its /progress says: one that reads the partition to its end closes the cell"
            }
            Self::ConnectorSilent => {
                "start the connector, or check that it writes heartbeats to source.heartbeatTopic or heartbeatTable and that the client may read them"
            }
            Self::WatermarkMissing => {
                "ends with the next watermark; check that the changefeed runs and sends them (enable-tidb-extension with canal-json)"
            }
            Self::BrokerNotAsked => {
                "check the broker's answers in the log; it is asked again every commit interval"
            }
            Self::SnapshotRunning => "ends with the first streamed row",
            Self::PartitionNew => "ends with the next commit",
            Self::WriterBehind => {
                "see what holds that writer; one that brings nothing more: tidemark writer drain TABLE WRITER"
            }
            Self::NoPartition => "create the topic's partitions, or correct the topics",
            Self::PolicyOutdated => {
                "give this worker the newer settings; where nobody runs with them any more, it goes on with its own after ten commit intervals"
            }
            Self::TopicJoined => {
                "ends when the topic is read up to where the claim was; read the cells that the message names again then"
            }
            Self::WriterJoined => {
                "ends when the writer has read up to where the claim was; read the cells that the message names again then"
            }
            _ => "nothing to do",
        }
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::*;

    /// A reason without a way on leaves a person alone with a name.
    #[test]
    fn every_reason_has_a_remedy() {
        let careless = [Reason::AsExpected, Reason::Idle];
        for reason in Reason::iter() {
            let remedy = reason.remedy();
            assert_eq!(
                remedy == "nothing to do",
                careless.contains(&reason),
                "{reason}: {remedy}"
            );
        }
    }

    /// The runbook has each section once.
    #[test]
    fn every_reason_has_one_course() {
        for reason in Reason::iter() {
            let courses = COURSES.iter().filter(|(_, all)| all.contains(&reason));
            assert_eq!(courses.count(), 1, "{reason}");
        }
        let all: usize = COURSES.iter().map(|(_, all)| all.len()).sum();
        assert_eq!(all, Reason::iter().count());
    }

    #[test]
    fn label_is_the_variant() {
        assert_eq!(Reason::TopicRecreated.label(), "TopicRecreated");
        assert_eq!(serde_json::to_string(&Reason::Idle).unwrap(), "\"Idle\"");
    }
}
