//! What a worker is given, the effective specification, and, from `progress`, what it answers.
//!
//! An effective specification is complete: nothing in it is left to a default, lengths are µs and sizes bytes. Whoever writes
//! one has checked it.
//!
//! It holds no secret, only references to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_yaml::with::singleton_map_recursive;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::quantity::iso;
use crate::watermark::System;

pub use super::hold::Holding;
pub use super::progress::{
    AcceptedProgress, AmendedProgress, ClaimProgress, CommitProgress, ErrorProgress, HoldProgress,
    Interval, LagSummary, PartitionProgress, PipelineProgress, Progress, ReopenedProgress,
    RunState,
};

/// How long a pipeline may take to commit what it has read when it is stopped: below the 30 s that Kubernetes grants by default.
pub const GRACE: Duration = Duration::from_secs(25);

/// Everything about one pipeline, resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EffectiveSpec {
    /// The namespace of the pipeline.
    pub namespace: String,
    /// Its name within the namespace.
    pub name: String,
    /// What tells it from another one that had the same name; the key of [`Progress::pipelines`].
    pub uid: String,
    /// Under which name it writes to its table.
    pub writer_id: String,
    /// Where the rows come from.
    pub source: Source,
    /// Which time of a row counts.
    pub event_time: EventTime,
    /// Where the rows go.
    pub sink: Sink,
    /// When a cell is final.
    pub finalization: Finalization,
    /// What it may use of the machine.
    pub worker: WorkerShare,
    /// Whether it stands still.
    pub suspend: bool,
}

/// The source of one pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    /// Where to find the cluster: `host:port`, separated by commas.
    pub bootstrap_servers: String,
    /// Which topics.
    pub topics: Topics,
    /// Where a partition that the table does not know yet is read from at the first commit.
    pub start_from: StartFrom,
    /// The consumer group, used above one replica and for lag tools.
    pub group_id: String,
    /// How the brokers are reached; in plain text and as nobody where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<KafkaSecurity>,
    /// Options passed through to the Kafka client.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// What the messages are.
    pub format: Format,
    /// Where the source shows that it is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Heartbeat>,
    /// What happens where rows are lost at the source.
    pub on_gap: OnGap,
    /// Where rows go that cannot be decoded; without one the pipeline stops there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<String>,
    /// Changes of identity that a person has agreed to.
    #[serde(default)]
    pub accept: SourceAccept,
}

/// How the brokers are reached, and as whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KafkaSecurity {
    /// What the listener speaks.
    pub protocol: Protocol,
    /// Whom the client trusts, and how it shows who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<KafkaTls>,
    /// As whom it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sasl: Option<KafkaSasl>,
}

/// What a listener speaks.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
)]
pub enum Protocol {
    /// Nothing is encrypted, nobody is asked who it is.
    Plaintext,
    /// Encrypted.
    Ssl,
    /// With credentials.
    SaslPlaintext,
    /// Encrypted and with credentials.
    SaslSsl,
}

impl Protocol {
    /// Whether it is encrypted, and whether it takes credentials.
    #[must_use]
    pub fn asks_for(self) -> (bool, bool) {
        match self {
            Self::Plaintext => (false, false),
            Self::Ssl => (true, false),
            Self::SaslPlaintext => (false, true),
            Self::SaslSsl => (true, true),
        }
    }
}

/// Whom a Kafka client trusts, and how it shows who it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KafkaTls {
    /// The certificates that may have signed a broker's, in PEM; the system's own without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<SecretRef>,
    /// The client's certificate, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_ref: Option<SecretRef>,
    /// Its key, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_ref: Option<SecretRef>,
    /// The password of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_password_ref: Option<SecretRef>,
}

/// As whom a Kafka client reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KafkaSasl {
    /// How the password is shown to be known.
    pub mechanism: SaslMechanism,
    /// The user.
    pub username: String,
    /// The password.
    pub password_ref: SecretRef,
}

/// How a password is shown to be known.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
)]
pub enum SaslMechanism {
    /// It is sent.
    Plain,
    /// By SCRAM with SHA-256.
    ScramSha256,
    /// By SCRAM with SHA-512.
    ScramSha512,
}

impl KafkaSecurity {
    /// Every secret that it refers to.
    pub fn secret_refs(&self) -> impl Iterator<Item = &SecretRef> {
        let tls = self.tls.iter().flat_map(|tls| {
            let all = [
                &tls.ca_ref,
                &tls.certificate_ref,
                &tls.key_ref,
                &tls.key_password_ref,
            ];
            all.into_iter().flatten()
        });
        tls.chain(self.sasl.iter().map(|sasl| &sasl.password_ref))
    }
}

/// Which topics are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Topics {
    /// These.
    List(Vec<String>),
    /// All whose whole name matches the regular expression.
    Pattern(String),
}

/// The topic in which the source shows that it is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Heartbeat {
    /// The connector's own heartbeats.
    Connector(String),
    /// The captured rows of a table that somebody writes at the source for this purpose.
    Table(String),
}

/// Where reading starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StartFrom {
    /// At the first row that is still there.
    Earliest,
    /// At the rows that come after the first commit.
    Latest,
    /// At the first row whose Kafka timestamp is not before this instant, µs.
    Timestamp(#[serde(with = "iso")] i64),
}

/// How messages are read.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
)]
pub enum Format {
    /// Debezium's change events in JSON.
    DebeziumJson,
    /// Debezium's change events in JSON as TiCDC writes them.
    TicdcDebeziumJson,
    /// TiCDC's `Simple` protocol in JSON.
    TicdcSimpleJson,
    /// Canal's JSON with TiDB's extension, as TiCDC writes it.
    CanalJson,
    /// Key and value in JSON, one state a key.
    Json,
}

/// What happens where rows are lost at the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnGap {
    /// The pipeline stops and says so.
    Stop,
    /// It goes on, and the gap becomes part of the claim.
    Continue,
}

/// Changes of the source's identity that a person has agreed to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceAccept {
    /// The cluster to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The ids of recreated topics to go on with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topic_ids: Vec<Uuid>,
}

/// Which time of a row counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventTime {
    /// When the source committed the change.
    SourceCommit,
    /// A column of the row.
    #[serde(rename_all = "camelCase")]
    Column {
        /// Its name.
        name: String,
        /// Whether only creations have a say: updates carry old values.
        creates_only: bool,
    },
    /// A header of the message.
    Header {
        /// Its name.
        name: String,
    },
    /// The timestamp of the Kafka record.
    RecordTimestamp,
}

/// The target of one pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sink {
    /// Where the table is registered.
    pub catalog: Catalog,
    /// Which table.
    pub table: TableName,
    /// The UUID that the table was seen with before, by whichever worker; another table under its name is refused.
    ///
    /// Nobody asks for it, so it is no part of the hash, and a worker that runs goes on when it becomes known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_table: Option<Uuid>,
    /// The source's columns; without them the table has to exist and says them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Vec<Column>>,
    /// What the names of the metadata columns begin with.
    pub metadata_prefix: String,
    /// How a new table is partitioned; empty is not at all.
    pub partitioning: Vec<Transform>,
    /// How long at most between two commits while there are rows, µs.
    pub commit_interval_us: i64,
    /// Whether it may write beside other pipelines.
    #[serde(default)]
    pub shared: bool,
    /// What is kept of the table's history.
    pub expire: Expire,
    /// What becomes of rows that a roll-back of the table has taken out.
    pub on_rollback: OnRollback,
    /// Changes of identity that a person has agreed to.
    #[serde(default)]
    pub accept: SinkAccept,
    /// In whose words the claim is told as well.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub also_write: BTreeSet<AlsoWrite>,
}

/// A system whose readers find the claim under that system's own names.
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
    strum::Display,
    strum::IntoStaticStr,
)]
pub enum AlsoWrite {
    /// The Iceberg sink of Kafka Connect.
    KafkaConnect,
    /// Netflix's Flink sink for Iceberg.
    Flink,
    /// Apache Gobblin.
    Gobblin,
    /// `AutoMQ` Table Topic.
    AutoMq,
}

impl From<AlsoWrite> for System {
    fn from(also: AlsoWrite) -> Self {
        match also {
            AlsoWrite::KafkaConnect => Self::KafkaConnect,
            AlsoWrite::Flink => Self::Flink,
            AlsoWrite::Gobblin => Self::Gobblin,
            AlsoWrite::AutoMq => Self::AutoMq,
        }
    }
}

/// What becomes of rows that a roll-back of the table has taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnRollback {
    /// They are read again.
    Replay,
    /// They stay out, and the claim leaves them out.
    KeepOffsets,
}

/// A catalog and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Catalog {
    /// Which protocol it speaks.
    #[serde(rename = "type")]
    pub kind: CatalogKind,
    /// Its name; a SQL catalog keeps several under their names.
    pub name: String,
    /// Where it is.
    pub uri: String,
    /// The warehouse within it: a name (REST) or a location (SQL).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warehouse: Option<String>,
    /// Further options of the catalog and its storage.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// The credential: `id:secret` or a token (REST), a password (SQL).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_ref: Option<SecretRef>,
    /// Certificates that are trusted beside the usual ones, in PEM (REST).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<SecretRef>,
    /// How the files of its tables are reached, where they are in a store that speaks S3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
}

/// A store that speaks S3, and how to reach it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Storage {
    /// Where it is; Amazon's own where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The region that requests are signed for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Whether the bucket stands in the path of an address, and not before its host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub path_style_access: bool,
    /// The id of the key. Without one, what the catalog vends, or the identity of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key_id_ref: Option<SecretRef>,
    /// The key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_access_key_ref: Option<SecretRef>,
    /// The token of a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token_ref: Option<SecretRef>,
    /// Certificates that are trusted beside the usual ones, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<SecretRef>,
}

impl Storage {
    /// Every secret that it refers to.
    pub fn secret_refs(&self) -> impl Iterator<Item = &SecretRef> {
        let all = [
            &self.access_key_id_ref,
            &self.secret_access_key_ref,
            &self.session_token_ref,
            &self.ca_ref,
        ];
        all.into_iter().flatten()
    }
}

/// Which protocol a catalog speaks.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::EnumString,
)]
pub enum CatalogKind {
    /// The Iceberg REST protocol.
    Rest,
    /// Tables in SQLite or PostgreSQL, as PyIceberg and Java keep them.
    Sql,
}

/// Where a secret is: outside a pod the file `$TIDEMARK_SECRETS/<name>/<key>`, else a variable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRef {
    /// The secret.
    pub name: String,
    /// The entry in it.
    pub key: String,
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.key)
    }
}

/// A table's name: the parts of its namespace, then its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TableName {
    /// The parts of the namespace; at least one.
    pub namespace: Vec<String>,
    /// The name within it.
    pub name: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.namespace.join("."), self.name)
    }
}

/// A text that names no table.
#[derive(Debug, thiserror::Error)]
#[error("\"{text}\" names no table; write namespace.table")]
pub struct NotATable {
    text: String,
}

impl TryFrom<String> for TableName {
    type Error = NotATable;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut parts: Vec<String> = text.split('.').map(str::to_owned).collect();
        if parts.len() < 2 || parts.iter().any(String::is_empty) {
            return Err(NotATable { text });
        }
        let name = parts.pop().expect("there are two parts or more");
        Ok(Self {
            namespace: parts,
            name,
        })
    }
}

impl std::str::FromStr for TableName {
    type Err = NotATable;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.to_owned().try_into()
    }
}

impl From<TableName> for String {
    fn from(table: TableName) -> Self {
        table.to_string()
    }
}

/// A column of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Column {
    /// The name at the source and in the table.
    pub name: String,
    /// The type in the table.
    #[serde(rename = "type")]
    pub data_type: ColumnType,
    /// Whether it is part of the row's key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub key: bool,
    /// How the value is written in the message, where the type does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
}

/// The types a column can have, by Iceberg's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ColumnType {
    /// True or false.
    Boolean,
    /// 32 bits.
    Int,
    /// 64 bits.
    Long,
    /// 32 bits, floating.
    Float,
    /// 64 bits, floating.
    Double,
    /// A decimal number: digits in all, and after the point.
    Decimal(u8, u8),
    /// A day.
    Date,
    /// A time of day, µs.
    Time,
    /// A date and a time of day without a zone, µs.
    Timestamp,
    /// An instant, µs.
    TimestampTz,
    /// A text.
    String,
    /// A UUID.
    Uuid,
    /// Bytes.
    Binary,
}

const PLAIN_TYPES: [(&str, ColumnType); 12] = [
    ("boolean", ColumnType::Boolean),
    ("int", ColumnType::Int),
    ("long", ColumnType::Long),
    ("float", ColumnType::Float),
    ("double", ColumnType::Double),
    ("date", ColumnType::Date),
    ("time", ColumnType::Time),
    ("timestamp", ColumnType::Timestamp),
    ("timestamptz", ColumnType::TimestampTz),
    ("string", ColumnType::String),
    ("uuid", ColumnType::Uuid),
    ("binary", ColumnType::Binary),
];

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Decimal(digits, scale) = self {
            return write!(f, "decimal({digits},{scale})");
        }
        let plain = PLAIN_TYPES.iter().find(|(_, plain)| plain == self);
        f.write_str(plain.expect("every type but decimal is in the table").0)
    }
}

/// A text that names no type of a column.
#[derive(Debug, thiserror::Error)]
#[error(
    "\"{text}\" is no type of a column; there are {known} and decimal(digits,scale) with at most 38 digits"
)]
pub struct NotAType {
    text: String,
    known: String,
}

impl TryFrom<String> for ColumnType {
    type Error = NotAType;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if let Some((_, plain)) = PLAIN_TYPES.iter().find(|(name, _)| *name == text) {
            return Ok(*plain);
        }
        decimal(&text).ok_or_else(|| NotAType {
            text,
            known: PLAIN_TYPES.map(|(name, _)| name).join(", "),
        })
    }
}

fn decimal(text: &str) -> Option<ColumnType> {
    let (digits, scale) = text
        .strip_prefix("decimal(")?
        .strip_suffix(')')?
        .split_once(',')?;
    let (digits, scale) = (digits.trim().parse().ok()?, scale.trim().parse().ok()?);
    ((1..=38).contains(&digits) && scale <= digits).then_some(ColumnType::Decimal(digits, scale))
}

impl From<ColumnType> for String {
    fn from(column: ColumnType) -> Self {
        column.to_string()
    }
}

/// How a value is written in a message, where its type does not tell.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
)]
pub enum Encoding {
    /// Whole days since 1970-01-01.
    Days,
    /// Whole seconds since 1970, or since midnight.
    Seconds,
    /// Whole milliseconds since 1970, or since midnight.
    Millis,
    /// Whole microseconds since 1970, or since midnight.
    Micros,
    /// Whole nanoseconds since 1970, or since midnight; what is below a microsecond is dropped.
    Nanos,
    /// ISO 8601.
    Iso,
    /// A decimal number as text or as a JSON number.
    Plain,
    /// Base64: bytes, or the unscaled number of a decimal, big-endian two's complement.
    Base64,
    /// Hexadecimal digits.
    Hex,
    /// A character up to U+00FF a byte: ISO 8859-1, as in Canal's JSON.
    Latin1,
}

/// One field of a table's partitioning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Transform {
    /// The column.
    pub column: String,
    /// What is made of it.
    pub transform: TransformKind,
}

/// What a partitioning makes of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TransformKind {
    /// The value itself.
    Identity,
    /// The year of an instant.
    Year,
    /// The month of an instant.
    Month,
    /// The day of an instant.
    Day,
    /// The hour of an instant.
    Hour,
    /// A hash in this many buckets.
    Bucket(u32),
    /// The first characters, or the number rounded down to a multiple.
    Truncate(u32),
}

/// What is kept of a table's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expire {
    /// Whether this pipeline expires at all; a table has one who does.
    pub enabled: bool,
    /// The writer's own snapshots are kept this long, µs.
    pub keep_us: i64,
    /// And at most this many of them.
    pub keep_snapshots: u32,
    /// How long after its expiry a file is deleted, µs: readers may still be reading it.
    pub grace_us: i64,
}

/// Changes of the table's identity that a person has agreed to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SinkAccept {
    /// The table to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_uuid: Option<Uuid>,
    /// The installation to take the table over from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installation: Option<String>,
    /// The snapshot of main to go on from where it does not lead to this writer's last commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<i64>,
}

/// When a cell is final; every length in µs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finalization {
    /// The length of a cell.
    pub cell_us: i64,
    /// The zone whose days are the cells, by its name in the tz database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// How far out of order the rows of one source partition may come.
    pub allowed_lateness_us: i64,
    /// How long after its event time a row is in Kafka at the latest.
    pub max_delay_us: i64,
    /// How far in the future a row's event time may lie.
    pub max_future_skew_us: i64,
    /// How old a row may be when it comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age_us: Option<i64>,
    /// How many commits with rows the window holds.
    pub window_commits: u32,
    /// And how far it reaches back at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_duration_us: Option<i64>,
    /// What may close a cell.
    pub terms: Vec<Term>,
    /// Which share of the rows of the recent commits `Percentile` leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantile: Option<Quantile>,
    /// From when on the table is complete, where that is not worked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_from: Option<CompleteFrom>,
    /// What rows do that come for a final cell.
    pub late_data: LateData,
    /// What a topic does to the claim that may be older than it.
    pub on_join: OnJoin,
}

/// What may close a cell.
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
    strum::Display,
    strum::IntoStaticStr,
)]
pub enum Term {
    /// The source has said in the partition that the cell is over.
    Resolved,
    /// The oldest row among the recent commits lies behind the cell.
    Minimum,
    /// A heartbeat that was committed at the source after the cell was over has come through, and the partition was read to
    /// its end after that.
    Heartbeat,
    /// The partition was read to its end after the cell was over.
    CaughtUp,
    /// All but a small share of the rows of the recent commits lie behind the cell.
    Percentile,
    /// The cell was over long enough ago.
    Clock,
}

/// A small share of rows. Written as the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub enum Quantile {
    /// 0.001
    Permille,
    /// 0.01
    Percent,
    /// 0.05
    FivePercent,
}

impl Quantile {
    /// Every one.
    pub const ALL: [Quantile; 3] = [Quantile::Permille, Quantile::Percent, Quantile::FivePercent];
}

impl From<Quantile> for f64 {
    fn from(quantile: Quantile) -> f64 {
        match quantile {
            Quantile::Permille => 0.001,
            Quantile::Percent => 0.01,
            Quantile::FivePercent => 0.05,
        }
    }
}

impl TryFrom<f64> for Quantile {
    type Error = String;

    fn try_from(share: f64) -> Result<Self, String> {
        // A number is read and written in full: what is written so comes back the same.
        let same = |quantile: &Quantile| f64::from(*quantile).to_bits() == share.to_bits();
        let found = Quantile::ALL.into_iter().find(same);
        found.ok_or_else(|| format!("{share} is none of 0.001, 0.01, 0.05"))
    }
}

/// What rows do that come for a final cell. They are written, whatever is chosen.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
)]
pub enum LateData {
    /// They are counted in the commit that brings them.
    Ignore,
    /// The cell gets a revision, too.
    Notify,
    /// And does not count as final until the claim next rises.
    Reopen,
}

/// What a topic does to the claim that is added to a pipeline and may be older than it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
)]
pub enum OnJoin {
    /// The claim is taken back until the topic is read.
    Reopen,
    /// The claim stays, and the topic's rows below it have no say.
    Backfill,
}

/// From when on a table is said to be complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CompleteFrom {
    /// It holds everything there ever was.
    Unbounded,
    /// From this instant on.
    Instant(#[serde(with = "iso")] i64),
}

/// What a pipeline may use of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkerShare {
    /// How many workers run it.
    pub replicas: u32,
    /// How many bytes of rows and open files one of them may hold.
    pub memory_budget_bytes: u64,
}

impl EffectiveSpec {
    /// `namespace/name`, as logs show it.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Every secret that it refers to.
    pub fn secret_refs(&self) -> impl Iterator<Item = &SecretRef> {
        let catalog = &self.sink.catalog;
        let storage = catalog.storage.iter().flat_map(Storage::secret_refs);
        let own = self.lasting_secret_refs().chain(&catalog.ca_ref);
        own.chain(storage)
    }

    /// Those of them with which connections are made that last: a new one needs new connections.
    pub fn lasting_secret_refs(&self) -> impl Iterator<Item = &SecretRef> {
        let security = self.source.security.iter();
        let kafka = security.flat_map(KafkaSecurity::secret_refs);
        kafka.chain(&self.sink.catalog.credential_ref)
    }

    /// The specification as a file holds it.
    ///
    /// # Panics
    /// Never: every part of a specification can be written as YAML.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut text = Vec::new();
        let mut writer = serde_yaml::Serializer::new(&mut text);
        singleton_map_recursive::serialize(self, &mut writer)
            .expect("a specification is valid YAML");
        drop(writer);
        String::from_utf8(text).expect("YAML is text")
    }

    /// Reads such a file; JSON is read as well.
    ///
    /// # Errors
    /// The text is none, or has a field that this version does not know.
    pub fn from_yaml(text: &str) -> Result<Self, serde_yaml::Error> {
        singleton_map_recursive::deserialize(serde_yaml::Deserializer::from_str(text))
    }

    /// A short hash of all that is asked for; equal specifications have equal ones.
    ///
    /// # Panics
    /// Never: every part of a specification can be written as JSON.
    #[must_use]
    pub fn hash(&self) -> String {
        if self.sink.known_table.is_none() {
            return format!("{:016x}", short_hash(self));
        }
        let mut asked_for = self.clone();
        asked_for.sink.known_table = None;
        asked_for.hash()
    }

    /// A hash of what decides about the claim; a change of it raises the policy revision.
    #[must_use]
    pub fn policy_hash(&self) -> u64 {
        short_hash(&(&self.finalization, &self.source.heartbeat))
    }
}

/// The first eight bytes of SHA-256 of the value's JSON: stable over processes and versions, fields in their order.
pub(super) fn short_hash(value: &impl Serialize) -> u64 {
    let json = serde_json::to_vec(value).expect("plain structs with text keys are valid JSON");
    let digest = Sha256::digest(json);
    u64::from_be_bytes(digest[..8].try_into().expect("the digest has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_columns_are_written_as_iceberg_does() {
        for name in ["int", "timestamptz", "decimal(12,2)"] {
            assert_eq!(
                ColumnType::try_from(name.to_owned()).unwrap().to_string(),
                name
            );
        }
        for wrong in ["integer", "decimal(39,2)", "decimal(4,5)", "decimal(4)"] {
            assert!(ColumnType::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn table_needs_a_namespace() {
        let table: TableName = "lake.shop.orders".parse().unwrap();
        assert_eq!((table.namespace.len(), table.name.as_str()), (2, "orders"));
        for wrong in ["orders", ".orders", "shop."] {
            assert!(wrong.parse::<TableName>().is_err(), "{wrong}");
        }
    }
}
