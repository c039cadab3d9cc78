//! What a worker is given, the effective specification, and what it answers, its progress.
//!
//! An effective specification is complete: nothing in it is left to a default, lengths are µs and sizes bytes. Whoever writes
//! one has checked it. Progress is a copy of what the worker last did; reading it costs the data path nothing.
//!
//! Neither holds a secret, only references to them.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_yaml::with::singleton_map_recursive;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{
    condition::{Answer, Condition, ConditionType, Reason},
    quantity::{iso, iso_option},
};

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
    /// Options passed through to the Kafka client.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// What the messages are.
    pub format: Format,
    /// What happens where rows are lost at the source.
    pub on_gap: OnGap,
    /// Where rows go that cannot be decoded; without one the pipeline stops there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<String>,
    /// Changes of identity that a person has agreed to.
    #[serde(default)]
    pub accept: SourceAccept,
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
        /// How its value is written.
        encoding: Encoding,
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
    /// The source's columns; without them the table has to exist and says them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Vec<Column>>,
    /// What the names of the metadata columns begin with.
    pub metadata_prefix: String,
    /// How a new table is partitioned; empty is not at all.
    pub partitioning: Vec<Transform>,
    /// How long at most between two commits while there are rows, µs.
    pub commit_interval_us: i64,
    /// What is kept of the table's history.
    pub expire: Expire,
    /// Changes of identity that a person has agreed to.
    #[serde(default)]
    pub accept: SinkAccept,
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
    /// The credential: `client:secret` or a token (REST), a password (SQL).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_ref: Option<SecretRef>,
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
    /// The snapshot from which a new claim starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<i64>,
}

/// When a cell is final; every length in µs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finalization {
    /// The length of a cell.
    pub cell_us: i64,
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
    /// From when on the table is complete, where that is not worked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_from: Option<CompleteFrom>,
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
    /// The oldest row among the recent commits lies behind the cell.
    Minimum,
    /// The partition was read to its end after the cell was over.
    CaughtUp,
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

    /// A short hash of the whole; equal specifications have equal ones.
    ///
    /// # Panics
    /// Never: every part of a specification can be written as JSON.
    #[must_use]
    pub fn hash(&self) -> String {
        format!("{:016x}", short_hash(self))
    }

    /// A hash of what decides about the claim; a change of it raises the policy revision.
    #[must_use]
    pub fn policy_hash(&self) -> u64 {
        short_hash(&self.finalization)
    }
}

/// The first eight bytes of SHA-256 of the value's JSON: stable over processes and versions, fields in their order.
fn short_hash(value: &impl Serialize) -> u64 {
    let json = serde_json::to_vec(value).expect("plain structs with text keys are valid JSON");
    let digest = Sha256::digest(json);
    u64::from_be_bytes(digest[..8].try_into().expect("the digest has 32 bytes"))
}

/// What a worker is doing, as `/progress` shows it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Which worker.
    pub worker: String,
    /// The version it runs.
    pub version: String,
    /// How many bytes of rows and open files it holds.
    pub memory_held_bytes: u64,
    /// Its pipelines by uid.
    pub pipelines: BTreeMap<String, PipelineProgress>,
}

impl Progress {
    /// Which pipelines have not left their start.
    #[must_use]
    pub fn starting(&self) -> Vec<&str> {
        let starting = |pipeline: &&PipelineProgress| pipeline.state == RunState::Starting;
        self.pipelines
            .values()
            .filter(starting)
            .map(|pipeline| pipeline.pipeline.as_str())
            .collect()
    }
}

/// What one pipeline is doing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PipelineProgress {
    /// `namespace/name`.
    pub pipeline: String,
    /// The table it writes.
    pub table: String,
    /// Where it stands.
    pub state: RunState,
    /// The hash of the effective specification in force.
    pub spec_hash: String,
    /// The policy revision of the table's state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_revision: Option<u64>,
    /// The table's claim as of the newest commit seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimProgress>,
    /// What holds the next cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldProgress>,
    /// How far each source partition that this worker reads has got.
    pub partitions: Vec<PartitionProgress>,
    /// What is still to be read, over all of them.
    pub lag: LagSummary,
    /// The last commit of this worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_commit: Option<CommitProgress>,
    /// What went wrong last, until it has gone well again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ErrorProgress>,
    /// Rows committed by this worker.
    pub rows: u64,
    /// Rows written to the dead-letter topic by this worker.
    pub dead_letters: u64,
    /// Rows committed by this worker that had no say about the claim, by kind.
    pub excluded: BTreeMap<String, u64>,
}

/// Where a pipeline stands.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
)]
pub enum RunState {
    /// It opens its table and its source.
    #[default]
    Starting,
    /// It reads and commits.
    Running,
    /// Something outside is missing; it tries again by itself.
    Waiting,
    /// It needs a person; the last error says for what.
    Stopped,
    /// Its specification says that it stands still.
    Suspended,
}

/// The table's claim: what was true as of one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimProgress {
    /// Every row with an earlier event time is there; `None` is no claim.
    #[serde(rename = "finalizedBefore", with = "iso_option")]
    pub finalized_before_us: Option<i64>,
    /// From when on that holds; `None` is without a start.
    #[serde(rename = "completeFrom", with = "iso_option")]
    pub complete_from_us: Option<i64>,
    /// Where it does not hold.
    pub gaps: Vec<Interval>,
    /// Which terms carry it.
    pub evidence: Vec<String>,
    /// How much disorder it would have survived, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin_ms: Option<i64>,
    /// The epoch; within one the claim never goes back.
    pub epoch: u64,
    /// The commit it is true for.
    pub commit_id: Uuid,
}

/// From an instant up to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interval {
    /// The first instant in it, µs.
    #[serde(rename = "from", with = "iso")]
    pub from_us: i64,
    /// The first instant after it, µs.
    #[serde(rename = "before", with = "iso")]
    pub before_us: i64,
}

/// What holds the next cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldProgress {
    /// The end of the cell that is waited for.
    #[serde(rename = "cellEnd", with = "iso")]
    pub cell_end_us: i64,
    /// The partition whose frontier is the least, as `topic/partition`; none where the broker or the clock holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The term that came closest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<Term>,
    /// Why.
    pub reason: Reason,
    /// Since when.
    #[serde(rename = "since", with = "iso")]
    pub since_us: i64,
}

/// How far one source partition has got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionProgress {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The next offset that the table does not hold.
    pub next_offset: i64,
    /// The end of the partition when the broker was last asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_offset: Option<i64>,
    /// A lower bound of the event times that it can still bring.
    #[serde(
        rename = "frontier",
        with = "iso_option",
        skip_serializing_if = "Option::is_none"
    )]
    #[serde(default)]
    pub frontier_us: Option<i64>,
}

/// What is still to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LagSummary {
    /// Offsets between the table and the ends of the partitions.
    pub offsets: u64,
    /// How many partitions have such a distance.
    pub partitions_behind: u32,
}

/// A commit of this worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitProgress {
    /// Its id.
    pub commit_id: Uuid,
    /// The snapshot it became.
    pub snapshot_id: i64,
    /// When.
    #[serde(rename = "at", with = "iso")]
    pub at_us: i64,
    /// Its rows.
    pub rows: u64,
    /// How long it took, retries and all.
    pub elapsed_ms: u64,
}

/// What went wrong last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorProgress {
    /// Which kind.
    pub reason: Reason,
    /// The values that belong to it.
    pub message: String,
    /// What to do.
    pub remedy: String,
    /// Since when.
    #[serde(rename = "since", with = "iso")]
    pub since_us: i64,
}

impl ErrorProgress {
    /// An error with the remedy of its reason.
    #[must_use]
    pub fn new(reason: Reason, message: String, since_us: i64) -> Self {
        Self {
            reason,
            message,
            remedy: reason.remedy().to_owned(),
            since_us,
        }
    }
}

impl PipelineProgress {
    /// The conditions that follow from where the pipeline stands.
    #[must_use]
    pub fn conditions(&self) -> Vec<Condition> {
        let error = self.last_error.as_ref();
        let reason = |without| error.map_or(without, |error| error.reason);
        let message = || error.map_or_else(String::new, |error| error.message.clone());
        let invalid = error.is_some_and(|error| error.reason == Reason::SpecInvalid);
        let accepted = if invalid {
            (Answer::False, Reason::SpecInvalid)
        } else {
            (Answer::True, Reason::AsExpected)
        };
        let ready = match self.state {
            RunState::Running => (Answer::True, Reason::AsExpected),
            RunState::Suspended => (Answer::False, Reason::Suspended),
            RunState::Starting | RunState::Waiting | RunState::Stopped => {
                (Answer::False, reason(Reason::Starting))
            }
        };
        let advancing = match (&self.hold, ready.0) {
            (_, Answer::False) => (Answer::False, ready.1),
            (Some(hold), _) if hold.reason == Reason::Idle => (Answer::Unknown, Reason::Idle),
            (Some(hold), _) if hold.reason != Reason::CellOpen => (Answer::False, hold.reason),
            _ => (Answer::True, Reason::AsExpected),
        };
        let suspended = match self.state {
            RunState::Suspended => (Answer::True, Reason::Suspended),
            _ => (Answer::False, Reason::AsExpected),
        };
        [
            (ConditionType::Accepted, accepted),
            (ConditionType::Ready, ready),
            (ConditionType::Advancing, advancing),
            (ConditionType::Suspended, suspended),
        ]
        .map(|(kind, (status, reason))| {
            let told = error.is_some_and(|error| error.reason == reason);
            Condition {
                kind,
                status,
                reason,
                message: if told { message() } else { String::new() },
            }
        })
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(progress: &PipelineProgress, kind: ConditionType) -> (Answer, Reason, String) {
        let conditions = progress.conditions();
        let condition = conditions
            .into_iter()
            .find(|condition| condition.kind == kind)
            .unwrap();
        (condition.status, condition.reason, condition.message)
    }

    #[test]
    fn stopped_pipeline_is_neither_ready_nor_advancing() {
        let error = ErrorProgress::new(
            Reason::TopicNotFound,
            "topic \"a\" does not exist".into(),
            0,
        );
        let progress = PipelineProgress {
            state: RunState::Stopped,
            last_error: Some(error),
            ..PipelineProgress::default()
        };
        let expected = (
            Answer::False,
            Reason::TopicNotFound,
            "topic \"a\" does not exist".to_owned(),
        );
        assert_eq!(told(&progress, ConditionType::Ready), expected);
        assert_eq!(told(&progress, ConditionType::Advancing), expected);
        assert_eq!(told(&progress, ConditionType::Accepted).0, Answer::True);
    }

    /// An open cell is the usual case: no alarm may come from it.
    #[test]
    fn open_cell_is_advancing() {
        let hold = HoldProgress {
            cell_end_us: 0,
            partition: None,
            term: None,
            reason: Reason::CellOpen,
            since_us: 0,
        };
        let mut progress = PipelineProgress {
            state: RunState::Running,
            hold: Some(hold),
            ..PipelineProgress::default()
        };
        assert_eq!(told(&progress, ConditionType::Advancing).0, Answer::True);
        progress.hold.as_mut().unwrap().reason = Reason::PartitionBehind;
        assert_eq!(
            told(&progress, ConditionType::Advancing).1,
            Reason::PartitionBehind
        );
    }

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
