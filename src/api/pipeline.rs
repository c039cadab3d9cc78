//! The custom resource `IngestionPipeline`: one stream of changes from Kafka into one table.
//!
//! Every leaf is optional but where the rows come from and where they go: `effective` fills what is left out. No default is
//! written into the schema, so that a later version, or a policy, can still decide it.
//!
//! The doc comment of a field is what `kubectl explain` shows.

#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats each struct within a function"
)]
#![expect(
    clippy::struct_field_names,
    reason = "a reference to a secret is called so, whatever the secret holds"
)]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use strum::VariantNames;
use uuid::Uuid;

use super::{
    pod::WorkerSpec,
    schema::{choices, inline_schema, length_in_cel},
    status::IngestionPipelineStatus,
    worker::{
        AlsoWrite, CatalogKind, Encoding, Format, LateData, OnGap, OnJoin, OnRollback, Protocol,
        Quantile, SaslMechanism, SecretRef, Term,
    },
};

/// A stream of changes from Kafka topics into one Iceberg table, with a claim before which event time it is complete.
///
/// The table, the writer, the consumer group and the catalog are the pipeline's identity and cannot be changed. Every other change is taken up by the workers that run, within about a minute, and what they have read is committed first; where it needs other pods (another Secret, most of `worker`) they are replaced in a wave.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "tidemark.dev",
    version = "v1alpha1",
    kind = "IngestionPipeline",
    namespaced,
    shortname = "ipl",
    category = "tidemark",
    doc = "A stream of changes from Kafka topics into one Iceberg table, with a claim before which event time it is complete.",
    derive = "PartialEq",
    status = "IngestionPipelineStatus",
    scale(
        spec_replicas_path = ".spec.worker.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    selectable = ".spec.sink.table",
    selectable = ".spec.source.format",
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "description": "Whether rows are read and committed."}"#,
    printcolumn = r#"{"name": "Final before", "type": "string", "jsonPath": ".status.finalizedBefore", "description": "Every row with an event time before it is in the table, from COMPLETE FROM on (-o wide)."}"#,
    printcolumn = r#"{"name": "Evidence", "type": "string", "jsonPath": ".status.evidence", "description": "Which terms that rests on."}"#,
    printcolumn = r#"{"name": "Lag", "type": "string", "jsonPath": ".status.lag", "description": "How many rows are still to be read, in steps."}"#,
    printcolumn = r#"{"name": "Replicas", "type": "integer", "jsonPath": ".status.replicas", "description": "How many workers there are."}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name": "Holds", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Advancing\")].reason", "priority": 1, "description": "What holds the next cell."}"#,
    printcolumn = r#"{"name": "Complete from", "type": "string", "jsonPath": ".status.completeFrom", "priority": 1, "description": "From when on the table is complete."}"#,
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].status", "priority": 1, "description": "Whether the specification can be run as it is written; while it cannot, the one before runs on."}"#,
    printcolumn = r#"{"name": "Table", "type": "string", "jsonPath": ".spec.sink.table", "priority": 1, "description": "The table it writes."}"#,
    printcolumn = r#"{"name": "Suspended", "type": "boolean", "jsonPath": ".spec.suspend", "priority": 1, "description": "Whether it is asked to stand still."}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.sink.table == oldSelf.sink.table").message("sink.table cannot be changed; make another pipeline for another table"),
    validation = Rule::new("has(self.sink.writer) == has(oldSelf.sink.writer) && (!has(self.sink.writer) || self.sink.writer == oldSelf.sink.writer)").message("sink.writer cannot be set, changed or removed; the table knows the pipeline by it"),
    validation = Rule::new("has(self.source.kafka.groupId) == has(oldSelf.source.kafka.groupId) && (!has(self.source.kafka.groupId) || self.source.kafka.groupId == oldSelf.source.kafka.groupId)").message("source.kafka.groupId cannot be set, changed or removed"),
    validation = Rule::new("self.sink.catalog.type == oldSelf.sink.catalog.type && self.sink.catalog.uri == oldSelf.sink.catalog.uri && has(self.sink.catalog.name) == has(oldSelf.sink.catalog.name) && (!has(self.sink.catalog.name) || self.sink.catalog.name == oldSelf.sink.catalog.name) && has(self.sink.catalog.warehouse) == has(oldSelf.sink.catalog.warehouse) && (!has(self.sink.catalog.warehouse) || self.sink.catalog.warehouse == oldSelf.sink.catalog.warehouse)").message("sink.catalog type, uri, name and warehouse cannot be changed; make another pipeline for another catalog"),
    validation = Rule::new("self.source.format != 'Json' || !has(self.eventTime) || !has(self.eventTime.from) || self.eventTime.from != 'SourceCommit'").message("eventTime.from: SourceCommit needs a source.format that carries it; with Json take Column, Header or RecordTimestamp"),
    validation = Rule::new("!has(self.eventTime) || !has(self.eventTime.from) || self.eventTime.from != 'Column' || (has(self.eventTime.operations) && self.eventTime.operations == 'Creates') || (has(self.finalization) && has(self.finalization.maxAge))").message("eventTime.from: Column needs eventTime.operations: Creates or finalization.maxAge: updates carry old values"),
    validation = Rule::new("!has(self.source.deadLetter) || !has(self.source.kafka.topics) || !(self.source.deadLetter.topic in self.source.kafka.topics)").message("source.deadLetter.topic is one of source.kafka.topics: its rows would be read again"),
    validation = Rule::new("!has(self.finalization) || !has(self.finalization.terms) || !('Heartbeat' in self.finalization.terms) || has(self.source.heartbeatTable)").message("finalization.terms: Heartbeat needs source.heartbeatTable, the topic with the rows of the heartbeat table"),
    validation = Rule::new("!has(self.source.heartbeatTable) || !has(self.finalization) || !has(self.finalization.terms) || 'Heartbeat' in self.finalization.terms || 'CaughtUp' in self.finalization.terms").message("source.heartbeatTable has no effect without Heartbeat in finalization.terms"),
    validation = Rule::new("!has(self.source.heartbeatTopic) || !has(self.finalization) || !has(self.finalization.terms) || 'CaughtUp' in self.finalization.terms").message("source.heartbeatTopic has no effect without CaughtUp in finalization.terms"),
    validation = Rule::new("!has(self.finalization) || !has(self.finalization.terms) || !('Resolved' in self.finalization.terms) || self.source.format in ['TicdcDebeziumJson', 'TicdcSimpleJson', 'CanalJson']").message("finalization.terms: Resolved needs a source.format of TiCDC, which carries it: TicdcDebeziumJson, TicdcSimpleJson or CanalJson"),
    validation = Rule::new("!has(self.finalization) || !has(self.finalization.terms) || !('Resolved' in self.finalization.terms) || !has(self.eventTime) || !has(self.eventTime.from) || self.eventTime.from == 'SourceCommit'").message("finalization.terms: Resolved speaks of commit times: it needs eventTime.from: SourceCommit")
)]
pub struct IngestionPipelineSpec {
    /// Where the rows come from.
    pub source: SourceSpec,
    /// Which time of a row counts for the claim. Built-in default: the source's commit time, or the record's timestamp with `Json`.
    ///
    /// A change holds for the rows read after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_time: Option<EventTimeSpec>,
    /// Where the rows go.
    pub sink: SinkSpec,
    /// When a cell of event time counts as complete: the bounds that the claim rests on.
    ///
    /// Each change raises the policy revision and never takes back a published cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalization: Option<FinalizationSpec>,
    /// How many workers run it and what each may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerSpec>,
    /// Whether the pipeline stands still. Built-in default `false`.
    ///
    /// What was read is committed first, then its workers are scaled to zero. Going on starts where the table stands: nothing is lost as long as Kafka keeps the rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

/// The source of the rows.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.heartbeatTopic) || !has(self.heartbeatTable)").message("set one of heartbeatTopic and heartbeatTable: the one caps CaughtUp, the other replaces it"),
    validation = Rule::new("(!has(self.heartbeatTopic) && !has(self.heartbeatTable)) || self.format == 'DebeziumJson'").message("heartbeatTopic and heartbeatTable go with format: DebeziumJson")
)]
pub struct SourceSpec {
    /// The Kafka cluster and the topics.
    pub kafka: KafkaSpec,
    /// What the messages are: `DebeziumJson` are Debezium's change events without the schema envelope; `TicdcDebeziumJson`, `TicdcSimpleJson` and `CanalJson` are what TiDB's TiCDC writes with `protocol=debezium`, `simple` and `canal-json`; `Json` are a state a key, where a null value is a delete.
    ///
    /// `CanalJson` needs `enable-tidb-extension=true` in the sink URI of the changefeed. A change of definitions in the topic (a DDL) is passed over; a column that is new in `sink.schema` is added to the table.
    ///
    /// With `Json` the key columns are those of `sink.schema` with `key: true`: fields of the record's key, or the whole key where there is one such column and the key is no object.
    #[schemars(with = "FormatName")]
    pub format: Format,
    /// What happens where rows are lost at the source (a stored offset below the log's start, a truncated log, a partition that is gone): `Stop` or `Continue`. Built-in default `Stop`.
    ///
    /// With `Continue` the pipeline goes on behind the gap and the claim names the gap for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<OnGapName>")]
    pub on_gap: Option<OnGap>,
    /// The topic of the connector's own heartbeats (`heartbeat.interval.ms`), as `__debezium-heartbeat.shop`.
    ///
    /// With it a partition counts as caught up only as long as the connector was alive: one that stops holds the claim instead of looking like a silent source. The heartbeats themselves move nothing forward. Every worker reads the newest one before it asks for the ends of the partitions. It takes effect like a change of `finalization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 249), regex(pattern = r"^[a-zA-Z0-9._-]+$"))]
    pub heartbeat_topic: Option<String>,
    /// The topic with the captured rows of a heartbeat table: one that is updated at the source every few seconds (`heartbeat.action.query`), as `shop.public.heartbeat`.
    ///
    /// With it the term `Heartbeat` takes the place of `CaughtUp`: a partition counts as complete up to the commit time of the newest such row that came through the connector before the partition was read to its end. It takes effect like a change of `finalization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 249), regex(pattern = r"^[a-zA-Z0-9._-]+$"))]
    pub heartbeat_table: Option<String>,
    /// Where rows go that cannot be decoded. Without it the pipeline stops at the first one.
    ///
    /// How many went there is part of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<DeadLetterSpec>,
    /// Changes of the source's identity that you agree to. The pipeline stops at each other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<SourceAcceptSpec>,
}

/// A Kafka cluster and topics of it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.topics) != has(self.topicPattern)").message("set one of topics and topicPattern"),
    validation = Rule::new("(has(self.startFrom) && self.startFrom == 'Timestamp') == has(self.startTimestamp)").message("startTimestamp goes with startFrom: Timestamp, and each needs the other")
)]
pub struct KafkaSpec {
    /// The brokers to ask first, `host:port` separated by commas. At most 2048 characters.
    ///
    /// The cluster found there is remembered in the table; another one stops the pipeline.
    #[schemars(length(min = 1, max = 2048))]
    pub bootstrap_servers: String,
    /// The topics to read, 1 to 100. All feed the one table, so their rows have the same columns.
    ///
    /// A listed topic that does not exist stops the pipeline. One that is removed retires its partitions in the next commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 100),
        inner(length(min = 1, max = 249), regex(pattern = r"^[a-zA-Z0-9._-]+$"))
    )]
    pub topics: Option<Vec<String>>,
    /// A regular expression; all topics whose whole name matches are read. Instead of `topics`, at most 512 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub topic_pattern: Option<String>,
    /// Where reading starts in a table that the pipeline has not written: `Earliest`, `Latest` or `Timestamp`. Built-in default `Earliest`.
    ///
    /// The first commit, an empty one, fixes it; a later change has no effect. A partition that appears later starts at its first row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_from: Option<StartFromName>,
    /// The instant for `startFrom: Timestamp`, as `2026-11-30T10:00:00Z`: reading starts at the first row whose Kafka timestamp is not before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<InstantText>,
    /// The consumer group. Built-in default `tidemark.<namespace>.<name>`; it cannot be set, changed or removed later.
    ///
    /// It shares the partitions out above one replica, and lag tools find the committed offsets there. Where the pipeline goes on is decided by the table alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 249), regex(pattern = r"^[a-zA-Z0-9._-]+$"))]
    pub group_id: Option<String>,
    /// How the brokers are reached: encrypted or not, and as whom. Built-in default: in plain text, as nobody.
    ///
    /// It holds for every client of the pipeline, that of the dead-letter topic as well. A changed one, and a changed secret, is taken up within a minute: what is read is committed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<KafkaSecuritySpec>,
    /// Further options of the Kafka client by librdkafka's names, at most 64, as `fetch.message.max.bytes: "1048576"`.
    ///
    /// Options that would break exactly-once, and those of security, are refused by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    pub properties: Option<BTreeMap<String, String>>,
}

/// How Kafka brokers are reached.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.sasl) || !has(self.protocol) || self.protocol in ['SaslPlaintext', 'SaslSsl']").message("sasl goes with protocol: SaslSsl or SaslPlaintext"),
    validation = Rule::new("!has(self.tls) || !has(self.protocol) || self.protocol in ['Ssl', 'SaslSsl']").message("tls goes with protocol: Ssl or SaslSsl")
)]
pub struct KafkaSecuritySpec {
    /// What the listener of `bootstrapServers` speaks: `Plaintext`, `Ssl` (encrypted), `SaslPlaintext` (with credentials) or `SaslSsl` (both). Built-in default `Plaintext`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ProtocolName>")]
    pub protocol: Option<Protocol>,
    /// Whom the client trusts, and its own certificate. It goes with `Ssl` and `SaslSsl`.
    ///
    /// A broker has to have a certificate for the name by which it is reached; that cannot be turned off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<KafkaTlsSpec>,
    /// As whom the client reads. It goes with `SaslPlaintext` and `SaslSsl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sasl: Option<KafkaSaslSpec>,
}

/// Whom a Kafka client trusts, and its own certificate.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.certificateRef) == has(self.keyRef)").message("certificateRef and keyRef go together"),
    validation = Rule::new("!has(self.keyPasswordRef) || has(self.keyRef)").message("keyPasswordRef goes with keyRef")
)]
pub struct KafkaTlsSpec {
    /// The secret with the certificates that may have signed a broker's, in PEM. By default the usual ones, which the image has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretRefSpec>")]
    pub ca_ref: Option<SecretRef>,
    /// The secret with the client's own certificate, in PEM, where the brokers ask for one. It goes with `keyRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretRefSpec>")]
    pub certificate_ref: Option<SecretRef>,
    /// The secret with the key of the client's certificate, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretRefSpec>")]
    pub key_ref: Option<SecretRef>,
    /// The secret with the password of the key, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretRefSpec>")]
    pub key_password_ref: Option<SecretRef>,
}

/// As whom a Kafka client reads.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct KafkaSaslSpec {
    /// How the password is shown to be known: `Plain` sends it, `ScramSha256` and `ScramSha512` do not. Needed with `sasl`, here or from a policy.
    ///
    /// It has to be one that the listener offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SaslMechanismName>")]
    pub mechanism: Option<SaslMechanism>,
    /// The user. Needed with `sasl`, here or from a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub username: Option<String>,
    /// The secret with the user's password. Needed with `sasl`, here or from the policy that names the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretRefSpec>")]
    pub password_ref: Option<SecretRef>,
}

/// A topic for rows that cannot be decoded.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterSpec {
    /// The topic. It has to exist, on the same cluster.
    ///
    /// Key, value and headers stay as they came; `tidemark.reason`, `.topic`, `.partition`, `.offset` and `.error` are added. A row may be there twice after a crash.
    #[schemars(length(min = 1, max = 249), regex(pattern = r"^[a-zA-Z0-9._-]+$"))]
    pub topic: String,
}

/// Changes of the source's identity that are agreed to.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SourceAcceptSpec {
    /// The id of the Kafka cluster to go on with, after a move to another one that holds the same rows at the same offsets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub cluster_id: Option<String>,
    /// The ids of topics to be read from their first row although rows of such a name may be in the table: topics that were deleted
    /// and made again, and those that join after more have left than the table remembers. At most 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<UuidText>>", length(max = 100))]
    pub topic_ids: Option<Vec<Uuid>>,
}

/// Which time of a row counts.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.from) && self.from == 'Column') == has(self.column)").message("column goes with from: Column, and each needs the other"),
    validation = Rule::new("(has(self.from) && self.from == 'Header') == has(self.header)").message("header goes with from: Header, and each needs the other"),
    validation = Rule::new("!has(self.operations) || has(self.column)").message("operations goes with from: Column")
)]
pub struct EventTimeSpec {
    /// Where it is: `SourceCommit` is when the source committed the change, `Column` a column, `Header` a header of the record, `RecordTimestamp` its Kafka timestamp.
    ///
    /// Built-in default `SourceCommit`, with `Json` `RecordTimestamp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<EventTimeFrom>,
    /// The column for `from: Column`. Its type is `timestamp`, `timestamptz` or `date`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub column: Option<String>,
    /// The header for `from: Header`: ISO 8601 text, or a number since 1970 in the one unit (seconds to nanoseconds) in which it lies between 1990 and 2200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub header: Option<String>,
    /// Which changes have a say with `from: Column`: `All` or `Creates`. Built-in default `All`.
    ///
    /// An update carries the old value of a column such as `created_at`; with `All` set `finalization.maxAge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<Operations>,
}

/// The table and how it is written.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SinkSpec {
    /// Where the table is registered.
    pub catalog: CatalogSpec,
    /// The table, `namespace.table`; the namespace may have several parts. It cannot be changed.
    ///
    /// A missing one is made. An existing one is checked first, and every disagreement is named.
    #[schemars(length(min = 3, max = 512), regex(pattern = r"^[^.\s]+(\.[^.\s]+)+$"))]
    pub table: String,
    /// The name under which the pipeline writes to its table. Built-in default `<namespace>.<name>`; it cannot be set, changed or removed later.
    ///
    /// The table refuses a writer it does not know (but see `shared`), so set it to the old name when a pipeline moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 316),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub writer: Option<String>,
    /// The source's columns, at most 1000. Without it the table has to exist and its own columns count.
    ///
    /// A column added here is added to the table. Fields of a message that are no column are counted and left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1000))]
    pub schema: Option<Vec<ColumnSpec>>,
    /// What the names of the metadata columns begin with. Built-in default `_cdc_`.
    ///
    /// A column of the source that begins so is refused. It cannot be changed once the table is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 2, max = 32),
        regex(pattern = r"^[a-zA-Z_][a-zA-Z0-9_]*$")
    )]
    pub metadata_prefix: Option<String>,
    /// How a new table is partitioned: `Hour` (of the event time), `None`, or transforms, as `day(_cdc_event_time), bucket(16, customer)`. Built-in default `Hour`.
    ///
    /// The transforms are `identity`, `year`, `month`, `day`, `hour`, `bucket(n, column)` and `truncate(n, column)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub partitioning: Option<String>,
    /// When rows are committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitSpec>,
    /// Whether the pipeline may write to a table that other pipelines write to, as one of each region. Built-in default `false`.
    ///
    /// The table's claim is then the least of all its writers' claims, and takes a step back when the pipeline first commits. One that is no longer run holds it until `tidemark writer drain`. Set `sink.expire.enabled` for one of them alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    /// What is kept of the table's history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire: Option<ExpireSpec>,
    /// What becomes of the rows that somebody takes out by rolling the table back: `Replay` or `KeepOffsets`. Built-in default `Replay`.
    ///
    /// With `Replay` they are read again from Kafka. With `KeepOffsets` reading goes on where it was, and the claim names what is missing as a gap. Either way the claim falls back to that of the snapshot, in a new epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<OnRollbackName>")]
    pub on_rollback: Option<OnRollback>,
    /// Changes of the table's identity that you agree to. The pipeline stops at each other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<SinkAcceptSpec>,
}

/// An Iceberg catalog.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.type != 'Sql' || has(self.warehouse)").message("warehouse is needed with type: Sql: the location below which new tables are made"),
    validation = Rule::new("!has(self.caRef) || self.uri.startsWith('https://')").message("caRef goes with a uri that begins with https://")
)]
pub struct CatalogSpec {
    /// Which protocol it speaks: `Rest` is the Iceberg REST protocol, `Sql` are tables in SQLite or PostgreSQL as PyIceberg and Java keep them.
    #[serde(rename = "type")]
    #[schemars(with = "CatalogKindName")]
    pub kind: CatalogKind,
    /// Where it is: `http://catalog:8181`, `sqlite:///var/lake/catalog.db` or `postgresql://user@host/db`. A password in it is refused.
    #[schemars(length(min = 1, max = 2048))]
    pub uri: String,
    /// The catalog's name, under which a SQL catalog keeps its tables. Built-in default `default`, as PyIceberg's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub name: Option<String>,
    /// The warehouse: its name (`Rest`), or the location below which new tables are made (`Sql`), as `s3://lake/tables` or `file:///var/lake`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub warehouse: Option<String>,
    /// The secret that opens it: `id:secret`, which is exchanged for tokens, or a token itself (`Rest`), a password (`Sql`).
    ///
    /// A changed secret is read again by itself. Tokens are exchanged at the catalog, or at the `oauth2-server-uri` of `properties`, anew before they end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretRefSpec>")]
    pub credential_ref: Option<SecretRef>,
    /// The secret with certificates, in PEM, that are trusted beside the usual ones. It goes with an `https://` address.
    ///
    /// A changed one is in force with the next connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretRefSpec>")]
    pub ca_ref: Option<SecretRef>,
    /// How the files of its tables are reached, where they are in a store that speaks S3. Left out, they are reached as the catalog says, with what it vends or with the identity of the pod.
    ///
    /// It may be changed: a running pipeline begins again with it, where its table stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageSpec>,
    /// Further options of the catalog, at most 64, as `scope: PRINCIPAL_ROLE:ALL`. Secrets are refused by name, and so is what stands in `storage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    pub properties: Option<BTreeMap<String, String>>,
}

/// A store that speaks S3.
///
/// Without keys it is opened with what a REST catalog vends for the table, renewed before it ends; without that with the identity of the pod: the variables `AWS_*`, a web identity token, the role of its container or node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.accessKeyIdRef) == has(self.secretAccessKeyRef)").message("accessKeyIdRef and secretAccessKeyRef go together"),
    validation = Rule::new("!has(self.sessionTokenRef) || has(self.accessKeyIdRef)").message("sessionTokenRef goes with accessKeyIdRef and secretAccessKeyRef"),
    validation = Rule::new("!has(self.caRef) || !has(self.endpoint) || self.endpoint.startsWith('https://')").message("caRef goes with an endpoint that begins with https://")
)]
pub struct StorageSpec {
    /// Where it is, as `https://s3.example.org:9000`. By default what the catalog says, else Amazon's own in the region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^https?://[^@\s]+$"))]
    pub endpoint: Option<String>,
    /// The region that requests are signed for, as `eu-central-1`. By default what the catalog says, else the variable `AWS_REGION`, else with an endpoint `us-east-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9-]+$"))]
    pub region: Option<String>,
    /// Whether the bucket stands in the path of an address (`https://store/bucket/key`) and not before its host. Built-in default `false`.
    ///
    /// Most stores of one's own need `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_style_access: Option<bool>,
    /// The secret with the id of the key. It goes with `secretAccessKeyRef`. Without keys the store is opened with what a REST catalog vends for the table, without that with the identity of the pod.
    ///
    /// A changed secret is taken up within a minute after it has reached the pod; files that are being written go on with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretRefSpec>")]
    pub access_key_id_ref: Option<SecretRef>,
    /// The secret with the key itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretRefSpec>")]
    pub secret_access_key_ref: Option<SecretRef>,
    /// The secret with the token of a session, where the key is a temporary one. Whoever makes it renews it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretRefSpec>")]
    pub session_token_ref: Option<SecretRef>,
    /// The secret with certificates, in PEM, that are trusted beside the usual ones. It goes with an `https://` endpoint.
    ///
    /// A changed one is in force with the next connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SecretRefSpec>")]
    pub ca_ref: Option<SecretRef>,
}

/// A column of the source.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ColumnSpec {
    /// The name, at the source and in the table.
    #[schemars(length(min = 1, max = 255))]
    pub name: String,
    /// The type by Iceberg's names: `boolean`, `int`, `long`, `float`, `double`, `decimal(p,s)`, `date`, `time`, `timestamp`, `timestamptz`, `string`, `uuid`, `binary`.
    #[serde(rename = "type")]
    #[schemars(
        length(min = 3, max = 16),
        regex(
            pattern = r"^(boolean|int|long|float|double|date|time|timestamp|timestamptz|string|uuid|binary|decimal\([0-9]{1,2}, ?[0-9]{1,2}\))$"
        )
    )]
    pub data_type: String,
    /// Whether it is part of the row's key. Built-in default `false`.
    ///
    /// Key columns are required in the table, all others may be null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<bool>,
    /// How the value is written in the message, where the type does not tell; as `Millis` for a `timestamptz`.
    ///
    /// `Days`, `Seconds`, `Millis`, `Micros` and `Nanos` are numbers since 1970 or since midnight, `Iso` is text; `Plain` is a decimal number as it is read, `Base64`, `Hex` and `Latin1` are bytes.
    ///
    /// Built-in default with `DebeziumJson`: `Days` for `date`, `Iso` for `timestamptz`, `Base64` for `decimal` and `binary`; for `time` and `timestamp` it has to be said, because the unit depends on the source's column. With `TicdcDebeziumJson` the same, but `Micros` for `time` and `Plain` for `decimal`. With `TicdcSimpleJson`, `CanalJson` and `Json`: `Iso` for all times, `Plain` for `decimal`, and for `binary` `Base64`, with `CanalJson` `Latin1` (a character a byte); a `timestamptz` of `CanalJson` has to be said, because its messages do not name the zone: `Iso` means UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<EncodingName>")]
    pub encoding: Option<Encoding>,
}

/// When rows are committed.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CommitSpec {
    /// The longest time between two commits while there are rows, from `1s` to `1h`. Built-in default `60s`.
    ///
    /// A shorter one makes rows and claim visible earlier, and files smaller. It takes effect with the next commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<LengthText>,
}

/// What is kept of a table's history.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ExpireSpec {
    /// Whether this pipeline expires old snapshots and deletes files that no snapshot names. Built-in default `true`.
    ///
    /// Data files are deleted from the age of three days on, and only its own. Set `false` where something else maintains the
    /// table: a table has one who does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How long the pipeline's own snapshots are kept, from `1m` to `30d`. Built-in default `6h`. `history.expire.*` on the table wins.
    ///
    /// A reader that travels in time further back finds nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<LengthText>,
    /// How many of its own snapshots are kept at most, from 3 to 1000. Built-in default 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 3, max = 1000))]
    pub keep_snapshots: Option<u32>,
    /// How long after the expiry of its last snapshot a file is deleted, from `0s` to `7d`. Built-in default `1h`.
    ///
    /// A reader that started before the expiry may still need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<LengthText>,
}

/// Changes of the table's identity that are agreed to.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SinkAcceptSpec {
    /// The UUID of the table to go on with, after it was made again. The old one's claim does not hold for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<UuidText>")]
    pub table_uuid: Option<Uuid>,
    /// The installation to take the table over from. It must no longer run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub installation: Option<String>,
    /// The id of a snapshot of main to go on from, where main no longer leads to the pipeline's last commit (reasons `LineageUnknown`, `TableReplaced`, `CherryPicked`).
    ///
    /// The message of the condition names the id. The claim begins anew, as at a first commit. Offsets go on where the table's state says they were; after `TableReplaced` only with `onRollback: KeepOffsets`, else at `startFrom`. An id works once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub lineage: Option<i64>,
}

/// The bounds that a claim rests on.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(validation = Rule::new("!has(self.zone) || (has(self.cell) && self.cell in ['1d', '24h'])").message("zone goes with cell: 1d"))]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.terms) && 'Percentile' in self.terms) == has(self.quantile)").message("quantile goes with Percentile in terms, and each needs the other")
)]
pub struct FinalizationSpec {
    /// What is finalized at once: a length from `1s` up that divides a day, counted from midnight UTC. Built-in default `1h`.
    ///
    /// With `15m`, 10:00–10:15 becomes final by itself, and the table is committed at least that often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new(format!("[{}].all(ms, ms >= 1000 && ms % 1000 == 0 && 86400000 % ms == 0)", length_in_cel("self"))).message("a cell is a whole number of seconds that divides a day: 15m, 1h, 1d"))]
    pub cell: Option<LengthText>,
    /// The zone whose days are finalized, by its name in the tz database, as `Europe/Berlin`. It goes with `cell: 1d`; UTC by default.
    ///
    /// A day there has 23 or 25 hours where its clocks change. A change of cell or zone never takes back what is published: the claim stays the instant that it is until a cell of the new kind ends after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub zone: Option<String>,
    /// How far out of order the rows of one source partition may come. Built-in default `5m`, at most `168h`.
    ///
    /// A longer time makes the claim later, never wrong: with `15m`, 10:00–11:00 is final once every partition has passed 11:15. A change never takes back a published cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_lateness: Option<LengthText>,
    /// How long after its event time a row is in Kafka at the latest: capture, producer and clocks together. Built-in default `10m`, at most `168h`.
    ///
    /// It is the least delay of every claim. Too short a time can make a claim wrong where a partition is silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<LengthText>,
    /// How far in the future an event time may lie. Built-in default `5m`, at most `168h`.
    ///
    /// A row beyond it is written, counted as `future`, and has no say: one broken clock must not close cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_future_skew: Option<LengthText>,
    /// How old a row may be, against its Kafka timestamp. No bound by default; at most `10000d`.
    ///
    /// A row beyond it is written, counted as `past`, and has no say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<LengthText>,
    /// How many commits with rows of a partition its window holds, from 1 to 64. Built-in default 3.
    ///
    /// More commits make the claim later and survive more disorder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub window_commits: Option<u32>,
    /// How far back the window reaches at least, whatever the number of commits. None by default; at most `24h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_duration: Option<LengthText>,
    /// What may close a cell, 1 to 6 terms: `Minimum` and `Percentile` look at the recent rows, `CaughtUp` at partitions that were read to their end, `Heartbeat` at the heartbeat table, `Resolved` at TiCDC's watermarks, `Clock` at the clock alone. Built-in default `[Minimum, CaughtUp]`.
    ///
    /// The term that gets furthest counts. Without `CaughtUp`, `Heartbeat` or `Resolved` a partition without new rows holds the claim. `Percentile` is not held by the few oldest rows of a commit, and leaves less margin. `Resolved` needs none of the bounds; name it only where one changefeed feeds the topics. `Clock` proves nothing: you vouch that a row is in the table within `maxDelay`. Readers can ask which ones a claim rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<TermName>>", length(min = 1, max = 6))]
    pub terms: Option<Vec<Term>>,
    /// Which share of a commit's rows `Percentile` may leave below itself: `0.001`, `0.01` or `0.05`. It goes with `Percentile`; no default.
    ///
    /// Every commit keeps all three, so that a change takes effect at once. A greater one is earlier and leaves less margin; rows stay covered by `allowedLateness` with each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<QuantileNumber>")]
    pub quantile: Option<Quantile>,
    /// From when on the table is complete: `Unbounded` where it holds everything there ever was, or an instant. Worked out by default.
    ///
    /// By default that is the first cell that lies behind the first rows read. Set it only if you know that older rows are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 40))]
    pub complete_from: Option<String>,
    /// What rows do that come for a final cell: `Ignore` counts them, `Notify` gives the cell a revision, `Reopen` withholds it as well. Built-in default `Notify`.
    ///
    /// The rows are written, and the claim stays where it is, whatever is chosen. With `Reopen`, `tidemark wait` over the cell answers not yet until the claim next rises. A change holds for the rows to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<LateDataName>")]
    pub late_data: Option<LateData>,
    /// What a topic does to the claim that is added to the pipeline, or that a changed pattern begins to match: `Reopen` takes the claim back until the topic is read, `Backfill` keeps it. Built-in default `Reopen`.
    ///
    /// With `Backfill` the topic's rows below the claim are written, counted as `backfill`, and have no say: what is claimed does not speak of them. It is for a topic whose past nobody waits for. A change holds for topics to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<OnJoinName>")]
    pub on_join: Option<OnJoin>,
    /// In whose words the claim is told as well, for readers made for them: `KafkaConnect`, `Flink`, `Gobblin`, `AutoMq`. None by default.
    ///
    /// None of them has a word for gaps: the value ends before the first one. What is written is taken away by the next commit after a name was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<AlsoWriteName>>", length(max = 4))]
    pub also_write: Option<Vec<AlsoWrite>>,
}

/// Where reading starts.
#[derive(Serialize, Deserialize, VariantNames, Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartFromName {
    /// At the first row that is still there.
    Earliest,
    /// At the rows that come after the first commit.
    Latest,
    /// At `startTimestamp`.
    Timestamp,
}

/// Where the event time is.
#[derive(Serialize, Deserialize, VariantNames, Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTimeFrom {
    /// When the source committed the change.
    SourceCommit,
    /// A column of the row.
    Column,
    /// A header of the record.
    Header,
    /// The record's Kafka timestamp.
    RecordTimestamp,
}

/// Which changes have a say.
#[derive(Serialize, Deserialize, VariantNames, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// All.
    All,
    /// Creations only.
    Creates,
}

/// A text with the schema of a length.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(transparent)]
pub struct LengthText(pub String);

/// A text with the schema of a size.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(transparent)]
pub struct BytesText(pub String);

/// A text with the schema of an instant.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(transparent)]
pub struct InstantText(pub String);

choices!(StartFromName EventTimeFrom Operations);

/// Stand-ins for enums of [`super::worker`], which know no schema.
macro_rules! schema_names {
    ($($name:ident)*) => {$(
        pub(super) struct $name;
    )*};
}

schema_names!(FormatName OnGapName OnRollbackName CatalogKindName EncodingName TermName QuantileNumber LateDataName OnJoinName AlsoWriteName ProtocolName SaslMechanismName UuidText SecretRefSpec);

inline_schema! {
    LengthText: {"type": "string", "maxLength": 16, "pattern": "^([0-9]{1,9}(ms|s|m|h|d))+$"};
    BytesText: {"type": "string", "maxLength": 16, "pattern": "^[0-9]{1,12}(Ki|Mi|Gi|Ti|k|M|G|T)?$"};
    InstantText: {"type": "string", "maxLength": 40, "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,18}(Z|[+-][0-9]{2}:[0-9]{2})$"};
    FormatName: {"type": "string", "enum": ["DebeziumJson", "TicdcDebeziumJson", "TicdcSimpleJson", "CanalJson", "Json"]};
    OnGapName: {"type": "string", "enum": ["Stop", "Continue"]};
    OnRollbackName: {"type": "string", "enum": ["Replay", "KeepOffsets"]};
    CatalogKindName: {"type": "string", "enum": ["Rest", "Sql"]};
    EncodingName: {"type": "string", "enum": ["Days", "Seconds", "Millis", "Micros", "Nanos", "Iso", "Plain", "Base64", "Hex", "Latin1"]};
    TermName: {"type": "string", "enum": ["Resolved", "Minimum", "Heartbeat", "CaughtUp", "Percentile", "Clock"]};
    QuantileNumber: {"type": "number", "enum": [0.001, 0.01, 0.05]};
    LateDataName: {"type": "string", "enum": ["Ignore", "Notify", "Reopen"]};
    OnJoinName: {"type": "string", "enum": ["Reopen", "Backfill"]};
    AlsoWriteName: {"type": "string", "enum": ["KafkaConnect", "Flink", "Gobblin", "AutoMq"]};
    ProtocolName: {"type": "string", "enum": ["Plaintext", "Ssl", "SaslPlaintext", "SaslSsl"]};
    SaslMechanismName: {"type": "string", "enum": ["Plain", "ScramSha256", "ScramSha512"]};
    UuidText: {"type": "string", "maxLength": 36, "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"};
    SecretRefSpec: {
        "type": "object",
        "required": ["name", "key"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "description": "The Secret."},
            "key": {"type": "string", "minLength": 1, "maxLength": 253, "pattern": "^[-._a-zA-Z0-9]+$", "description": "The entry in it."}
        }
    };
}
