//! From a manifest to its effective specification: built-in defaults below, the manifest above, then every rule between fields.
//!
//! The layers are merged leaf by leaf before anything is read, so a further layer is one more merge. The result leaves
//! nothing open, and whoever holds one need not check it again.
//!
//! A bad combination is refused with the names of both fields; nothing is corrected silently.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use regex::Regex;
use serde_json::{Value, json};

use super::{
    manifest::{Fault, shown},
    pipeline::{
        BytesText, CatalogSpec, ColumnSpec, EventTimeFrom, EventTimeSpec, ExpireSpec,
        FinalizationSpec, IngestionPipeline, IngestionPipelineSpec, KafkaSpec, LengthText,
        Operations, SinkSpec, SourceSpec, StartFromName, WorkerSpec,
    },
    quantity::{bytes, length, parse_bytes, parse_instant_us, parse_length_us},
    worker::{
        Catalog, CatalogKind, Column, ColumnType, CompleteFrom, EffectiveSpec, Encoding, EventTime,
        Expire, Finalization, Format, OnGap, Sink, SinkAccept, Source, SourceAccept, StartFrom,
        TableName, Topics, Transform, TransformKind, WorkerShare,
    },
};

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: i64 = 24 * HOUR_US;

/// The names of the metadata columns, behind their prefix.
pub const METADATA_COLUMNS: [&str; 10] = [
    "op",
    "event_time",
    "event_time_raw",
    "position",
    "replay",
    "unavailable",
    "topic",
    "partition",
    "offset",
    "ingested_at",
];

/// Options of the Kafka client that a manifest may not set, each with what stands in its place.
pub const REFUSED_KAFKA_PROPERTIES: [(&str, &str); 22] = [
    ("bootstrap.servers", "set source.kafka.bootstrapServers"),
    ("metadata.broker.list", "set source.kafka.bootstrapServers"),
    ("group.id", "set source.kafka.groupId"),
    (
        "group.instance.id",
        "members of the group come and go by themselves",
    ),
    (
        "group.protocol",
        "the protocol of the group is part of exactly-once",
    ),
    (
        "partition.assignment.strategy",
        "the group is cooperative-sticky: exactly-once rests on it",
    ),
    (
        "enable.auto.commit",
        "the table alone decides where reading goes on",
    ),
    (
        "auto.commit.enable",
        "the table alone decides where reading goes on",
    ),
    (
        "auto.commit.interval.ms",
        "the table alone decides where reading goes on",
    ),
    (
        "enable.auto.offset.store",
        "the table alone decides where reading goes on",
    ),
    (
        "auto.offset.reset",
        "a lost offset is never skipped silently; set source.kafka.startFrom or source.onGap",
    ),
    (
        "isolation.level",
        "rows of aborted transactions are never read",
    ),
    ("enable.partition.eof", "positions rest on it"),
    (
        "allow.auto.create.topics",
        "a topic that does not exist is told, not made",
    ),
    (
        "enable.idempotence",
        "dead letters are written idempotently",
    ),
    ("transactional.id", "the worker writes no transactions"),
    ("acks", "dead letters are written to all replicas"),
    (
        "request.required.acks",
        "dead letters are written to all replicas",
    ),
    ("sasl.password", "a secret never stands in a manifest"),
    ("ssl.key.password", "a secret never stands in a manifest"),
    ("ssl.key.pem", "a secret never stands in a manifest"),
    (
        "ssl.keystore.password",
        "a secret never stands in a manifest",
    ),
];

/// What the names of options end with that hold a secret.
const SECRET_ENDINGS: [&str; 9] = [
    "password",
    "token",
    "credential",
    "secret",
    "secret-access-key",
    "access-key-secret",
    "session-token",
    "account-key",
    "client-secret",
];

/// A fault whose object is not known yet.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    pub(super) path: String,
    /// The other field where two do not go together.
    other: Option<String>,
    value: Option<String>,
    problem: String,
    remedy: String,
}

impl Broken {
    pub(super) fn new(
        path: &str,
        value: Option<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (problem, remedy) = (problem.into(), remedy.into());
        Self {
            path: path.to_owned(),
            other: None,
            value,
            problem,
            remedy,
        }
    }

    /// Whether one of its fields lies at or below one of `paths`, or above it: then it only follows from what is known.
    pub(super) fn touches(&self, paths: &[String]) -> bool {
        let below = |inner: &str, outer: &str| {
            inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let own = [Some(&self.path), self.other.as_ref()];
        own.into_iter().flatten().any(|own| {
            paths
                .iter()
                .any(|path| below(path, own) || below(own, path))
        })
    }

    pub(super) fn of(self, object: &str) -> Fault {
        let path = match self.other {
            Some(other) => format!("{} and {other}", self.path),
            None => self.path,
        };
        Fault {
            object: object.to_owned(),
            path,
            value: self.value.unwrap_or_default(),
            problem: self.problem,
            remedy: self.remedy,
        }
    }
}

/// Everything about one pipeline, resolved and checked.
///
/// # Errors
/// Every rule that the pipeline breaks.
pub fn effective(pipeline: &IngestionPipeline) -> Result<EffectiveSpec, Vec<Fault>> {
    let namespace = pipeline.namespace().unwrap_or_else(|| "default".to_owned());
    let label = format!("{namespace}/{}", pipeline.name_any());
    resolve(pipeline).map_err(|broken| broken.into_iter().map(|fault| fault.of(&label)).collect())
}

/// The lowest layer: what holds where nothing else is said.
///
/// What depends on other fields (group, writer, event time) is worked out when they are known.
#[must_use]
pub fn built_in_defaults() -> Value {
    json!({
        "source": {"kafka": {"startFrom": "Earliest"}, "onGap": "Stop"},
        "sink": {
            "catalog": {"name": "default"},
            "metadataPrefix": "_cdc_",
            "partitioning": "Hour",
            "commit": {"interval": "60s"},
            "expire": {"enabled": true, "keep": "6h", "keepSnapshots": 300, "grace": "1h"},
        },
        "finalization": {
            "cell": "1h",
            "allowedLateness": "5m",
            "maxDelay": "10m",
            "maxFutureSkew": "5m",
            "windowCommits": 3,
            "terms": ["Minimum", "CaughtUp"],
        },
        "worker": {"replicas": 1, "memoryBudget": "256Mi"},
        "suspend": false,
    })
}

/// Puts `upper` over `lower`, leaf by leaf; lists and texts are replaced whole, null is nothing.
fn merge(lower: &mut Value, upper: Value) {
    match (lower, upper) {
        (Value::Object(lower), Value::Object(upper)) => {
            for (key, value) in upper {
                merge(lower.entry(key).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (lower, upper) => *lower = upper,
    }
}

pub(super) fn resolve(pipeline: &IngestionPipeline) -> Result<EffectiveSpec, Vec<Broken>> {
    let mut merged = built_in_defaults();
    let own = serde_json::to_value(&pipeline.spec).expect("a specification is valid JSON");
    merge(&mut merged, own);
    let spec: IngestionPipelineSpec =
        serde_json::from_value(merged).expect("defaults over a specification are one");
    let namespace = pipeline.namespace().unwrap_or_else(|| "default".to_owned());
    let name = pipeline.name_any();
    let mut rules = Rules::default();
    let dotted = format!("{namespace}.{name}");
    let sink = rules.sink(&spec.sink, spec.source.format);
    let resolved = EffectiveSpec {
        uid: pipeline.uid().unwrap_or_else(|| dotted.clone()),
        writer_id: spec.sink.writer.clone().unwrap_or_else(|| dotted.clone()),
        source: rules.source(&spec.source, format!("tidemark.{dotted}")),
        event_time: rules.event_time(&spec),
        finalization: rules.finalization(&spec.finalization.unwrap_or_default()),
        worker: rules.worker(&spec.worker.unwrap_or_default()),
        suspend: spec.suspend.unwrap_or_default(),
        sink,
        namespace,
        name,
    };
    if rules.broken.is_empty() {
        Ok(resolved)
    } else {
        Err(rules.broken)
    }
}

/// Reads fields and keeps what is wrong with them. A field that is absent or wrong reads as nothing: the result of a broken
/// specification is thrown away.
#[derive(Default)]
struct Rules {
    broken: Vec<Broken>,
}

impl Rules {
    fn refuse(&mut self, path: &str, value: &str, problem: &str, remedy: impl Into<String>) {
        let value = Some(shown(&Value::from(value)));
        self.broken.push(Broken::new(path, value, problem, remedy));
    }

    fn refuse_pair(&mut self, pair: [&str; 2], problem: &str, remedy: &str) {
        let mut broken = Broken::new(pair[0], None, problem, remedy);
        broken.other = Some(pair[1].to_owned());
        self.broken.push(broken);
    }

    fn length_us(
        &mut self,
        path: &str,
        text: Option<&LengthText>,
        bounds: [i64; 2],
    ) -> Option<i64> {
        let LengthText(text) = text?;
        let within = |us: &i64| (bounds[0]..=bounds[1]).contains(us);
        let us = parse_length_us(text).filter(within);
        if us.is_none() {
            let remedy = format!(
                "write a length from {} to {}",
                length(bounds[0]),
                length(bounds[1])
            );
            self.refuse(path, text, "is out of bounds", remedy);
        }
        us
    }

    fn size(&mut self, path: &str, text: Option<&BytesText>, bounds: [u64; 2]) -> Option<u64> {
        let BytesText(text) = text?;
        let within = |size: &u64| (bounds[0]..=bounds[1]).contains(size);
        let size = parse_bytes(text).filter(within);
        if size.is_none() {
            let remedy = format!(
                "write a size from {} to {}",
                bytes(bounds[0]),
                bytes(bounds[1])
            );
            self.refuse(path, text, "is out of bounds", remedy);
        }
        size
    }

    fn source(&mut self, spec: &SourceSpec, default_group: String) -> Source {
        let kafka = &spec.kafka;
        let topics = self.topics(kafka);
        let start_from = self.start_from(kafka);
        self.kafka_properties(kafka);
        let dead_letter = spec
            .dead_letter
            .as_ref()
            .map(|dead_letter| dead_letter.topic.clone());
        if let Some(topic) = &dead_letter {
            self.dead_letter(topic, &topics);
        }
        let accept = spec.accept.clone();
        Source {
            bootstrap_servers: kafka.bootstrap_servers.clone(),
            topics,
            start_from,
            group_id: kafka.group_id.clone().unwrap_or(default_group),
            properties: kafka.properties.clone().unwrap_or_default(),
            format: spec.format,
            on_gap: spec.on_gap.unwrap_or(OnGap::Stop),
            dead_letter,
            accept: accept.map_or_else(SourceAccept::default, |accept| SourceAccept {
                cluster_id: accept.cluster_id,
                topic_ids: accept.topic_ids.unwrap_or_default(),
            }),
        }
    }

    fn topics(&mut self, kafka: &KafkaSpec) -> Topics {
        let pair = ["spec.source.kafka.topics", "spec.source.kafka.topicPattern"];
        match (&kafka.topics, &kafka.topic_pattern) {
            (Some(topics), None) => {
                let distinct: BTreeSet<&String> = topics.iter().collect();
                if distinct.len() < topics.len() {
                    self.refuse(
                        pair[0],
                        &topics.join(", "),
                        "names a topic twice",
                        "name each once",
                    );
                }
                Topics::List(topics.clone())
            }
            (None, Some(pattern)) => {
                if let Err(error) = Regex::new(pattern) {
                    let last = error.to_string();
                    let last = last.lines().last().unwrap_or_default().to_owned();
                    self.refuse(pair[1], pattern, "is no regular expression", last);
                }
                Topics::Pattern(pattern.clone())
            }
            (topics, _) => {
                let problem = if topics.is_some() {
                    "do not go together"
                } else {
                    "are both missing"
                };
                self.refuse_pair(pair, problem, "set one of them");
                Topics::List(Vec::new())
            }
        }
    }

    fn start_from(&mut self, kafka: &KafkaSpec) -> StartFrom {
        let paths = [
            "spec.source.kafka.startFrom",
            "spec.source.kafka.startTimestamp",
        ];
        let by_time = kafka.start_from == Some(StartFromName::Timestamp);
        if by_time != kafka.start_timestamp.is_some() {
            let remedy = "write startFrom: Timestamp with startTimestamp, or neither";
            self.refuse_pair(paths, "do not go together", remedy);
        }
        if let Some(text) = &kafka.start_timestamp {
            let instant = parse_instant_us(&text.0);
            if instant.is_none() {
                let remedy = "write it with its offset, as 2026-11-30T10:00:00Z";
                self.refuse(paths[1], &text.0, "is no instant", remedy);
            }
            return StartFrom::Timestamp(instant.unwrap_or_default());
        }
        match kafka.start_from {
            Some(StartFromName::Latest) => StartFrom::Latest,
            _ => StartFrom::Earliest,
        }
    }

    fn kafka_properties(&mut self, kafka: &KafkaSpec) {
        for name in kafka.properties.iter().flat_map(BTreeMap::keys) {
            let path = format!("spec.source.kafka.properties[{name}]");
            let listed = REFUSED_KAFKA_PROPERTIES
                .iter()
                .find(|(refused, _)| refused == name);
            let why = listed.map(|(_, why)| *why).or_else(|| {
                let secret = SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending));
                secret.then_some("a secret never stands in a manifest")
            });
            if let Some(why) = why {
                // The value is not shown: it may be a secret.
                self.broken
                    .push(Broken::new(&path, None, "may not be set", why));
            }
        }
    }

    fn dead_letter(&mut self, topic: &str, topics: &Topics) {
        let (other, reads_it) = match topics {
            Topics::List(list) => (
                "spec.source.kafka.topics",
                list.iter().any(|listed| listed == topic),
            ),
            Topics::Pattern(pattern) => {
                let whole = Regex::new(&format!("^(?:{pattern})$"));
                (
                    "spec.source.kafka.topicPattern",
                    whole.is_ok_and(|whole| whole.is_match(topic)),
                )
            }
        };
        if reads_it {
            let pair = ["spec.source.deadLetter.topic", other];
            self.refuse_pair(
                pair,
                "name one topic",
                "take another one: its rows would be read again",
            );
        }
    }

    fn event_time(&mut self, spec: &IngestionPipelineSpec) -> EventTime {
        let default = match spec.source.format {
            Format::DebeziumJson => EventTimeFrom::SourceCommit,
            Format::Json => EventTimeFrom::RecordTimestamp,
        };
        let none = EventTimeSpec {
            from: None,
            column: None,
            header: None,
            encoding: None,
            operations: None,
        };
        let own = spec.event_time.as_ref().unwrap_or(&none);
        let from = own.from.unwrap_or(default);
        let paths = [
            "spec.eventTime.from",
            "spec.eventTime.column",
            "spec.eventTime.header",
        ];
        let takes = [from == EventTimeFrom::Column, from == EventTimeFrom::Header];
        if takes[0] != own.column.is_some() {
            self.refuse_pair(
                [paths[0], paths[1]],
                "do not go together",
                "write from: Column with column, or neither",
            );
        }
        if takes[1] != own.header.is_some() {
            self.refuse_pair(
                [paths[0], paths[2]],
                "do not go together",
                "write from: Header with header, or neither",
            );
        }
        if own.operations.is_some() && !takes[0] {
            self.refuse_pair(
                [paths[0], "spec.eventTime.operations"],
                "do not go together",
                "operations goes with from: Column",
            );
        }
        if own.encoding.is_some() && !takes[1] {
            let remedy = "encoding goes with from: Header; a column's stands in sink.schema";
            self.refuse_pair(
                [paths[0], "spec.eventTime.encoding"],
                "do not go together",
                remedy,
            );
        }
        match from {
            EventTimeFrom::RecordTimestamp => EventTime::RecordTimestamp,
            EventTimeFrom::SourceCommit => {
                if spec.source.format == Format::Json {
                    let remedy =
                        "Json carries no commit time: take Column, Header or RecordTimestamp";
                    self.refuse_pair(
                        [paths[0], "spec.source.format"],
                        "do not go together",
                        remedy,
                    );
                }
                EventTime::SourceCommit
            }
            EventTimeFrom::Column => self.event_column(spec, own),
            EventTimeFrom::Header => self.event_header(own),
        }
    }

    fn event_header(&mut self, own: &EventTimeSpec) -> EventTime {
        let encoding = own.encoding.unwrap_or(Encoding::Millis);
        if !is_encoding_of(encoding, ColumnType::TimestampTz) {
            let remedy = "write Seconds, Millis, Micros, Nanos or Iso";
            self.refuse(
                "spec.eventTime.encoding",
                encoding.into(),
                "is no encoding of an instant",
                remedy,
            );
        }
        EventTime::Header {
            name: own.header.clone().unwrap_or_default(),
            encoding,
        }
    }

    fn event_column(&mut self, spec: &IngestionPipelineSpec, own: &EventTimeSpec) -> EventTime {
        let creates_only = own.operations == Some(Operations::Creates);
        let bounded = spec
            .finalization
            .as_ref()
            .is_some_and(|finalization| finalization.max_age.is_some());
        if !creates_only && !bounded {
            let pair = ["spec.eventTime.operations", "spec.finalization.maxAge"];
            let remedy =
                "with from: Column set operations: Creates or maxAge: updates carry old values";
            self.refuse_pair(pair, "are both missing", remedy);
        }
        let name = own.column.clone().unwrap_or_default();
        if let (Some(schema), false) = (&spec.sink.schema, name.is_empty()) {
            let column = schema.iter().find(|column| column.name == name);
            let is_time = |column: &ColumnSpec| {
                ["timestamp", "timestamptz", "date"].contains(&column.data_type.as_str())
            };
            if !column.is_some_and(is_time) {
                let problem = "is no column of sink.schema with a time";
                self.refuse(
                    "spec.eventTime.column",
                    &name,
                    problem,
                    "name one of type timestamp, timestamptz or date",
                );
            }
        }
        EventTime::Column { name, creates_only }
    }

    fn sink(&mut self, spec: &SinkSpec, format: Format) -> Sink {
        let metadata_prefix = spec.metadata_prefix.clone().unwrap_or_default();
        if !metadata_prefix.ends_with('_') {
            let remedy = "end it with _, as _cdc_";
            self.refuse(
                "spec.sink.metadataPrefix",
                &metadata_prefix,
                "does not end with _",
                remedy,
            );
        }
        let schema = spec
            .schema
            .as_ref()
            .map(|columns| self.columns(columns, format));
        let table = spec.table.parse();
        if table.is_err() {
            self.refuse(
                "spec.sink.table",
                &spec.table,
                "names no table",
                "write namespace.table",
            );
        }
        let interval = spec
            .commit
            .as_ref()
            .and_then(|commit| commit.interval.as_ref());
        let commit_interval_us =
            self.length_us("spec.sink.commit.interval", interval, [SECOND_US, HOUR_US]);
        let accept = spec.accept.clone();
        let sink = Sink {
            catalog: self.catalog(&spec.catalog),
            table: table.unwrap_or(TableName {
                namespace: Vec::new(),
                name: String::new(),
            }),
            partitioning: self.partitioning(spec, &metadata_prefix),
            commit_interval_us: commit_interval_us.unwrap_or_default(),
            expire: self.expire(&spec.expire.clone().unwrap_or_default()),
            accept: accept.map_or_else(SinkAccept::default, |accept| SinkAccept {
                table_uuid: accept.table_uuid,
                installation: accept.installation,
                lineage: accept.lineage,
            }),
            schema,
            metadata_prefix,
        };
        self.names(&sink);
        let keyless = |columns: &Vec<Column>| !columns.iter().any(|column| column.key);
        if format == Format::Json && sink.schema.as_ref().is_some_and(keyless) {
            let pair = ["spec.sink.schema", "spec.source.format"];
            let remedy = "with Json mark the columns of the record's key with key: true";
            self.refuse_pair(pair, "do not go together", remedy);
        }
        sink
    }

    fn expire(&mut self, spec: &ExpireSpec) -> Expire {
        let keep_us = self.length_us(
            "spec.sink.expire.keep",
            spec.keep.as_ref(),
            [MINUTE_US, 30 * DAY_US],
        );
        let grace_us = self.length_us(
            "spec.sink.expire.grace",
            spec.grace.as_ref(),
            [0, 7 * DAY_US],
        );
        Expire {
            enabled: spec.enabled.unwrap_or_default(),
            keep_us: keep_us.unwrap_or_default(),
            keep_snapshots: spec.keep_snapshots.unwrap_or_default(),
            grace_us: grace_us.unwrap_or_default(),
        }
    }

    /// No column may be named like another one or like a metadata column.
    fn names(&mut self, sink: &Sink) {
        let mut seen = BTreeSet::new();
        for (index, column) in sink.schema.iter().flatten().enumerate() {
            let path = format!("spec.sink.schema[{index}].name");
            // Engines compare names of columns without case.
            let lower = column.name.to_lowercase();
            if lower.starts_with(&sink.metadata_prefix.to_lowercase()) {
                let pair = [path.as_str(), "spec.sink.metadataPrefix"];
                self.refuse_pair(
                    pair,
                    "begin alike",
                    "take another metadataPrefix: the metadata columns begin with it",
                );
            }
            if !seen.insert(lower) {
                self.refuse(
                    &path,
                    &column.name,
                    "stands twice",
                    "name each column once, upper and lower case being one",
                );
            }
        }
    }

    fn columns(&mut self, columns: &[ColumnSpec], format: Format) -> Vec<Column> {
        let resolved = columns.iter().enumerate().map(|(index, column)| {
            let path = format!("spec.sink.schema[{index}]");
            let data_type = match ColumnType::try_from(column.data_type.clone()) {
                Ok(data_type) => data_type,
                Err(error) => {
                    let remedy = error.to_string();
                    self.refuse(
                        &format!("{path}.type"),
                        &column.data_type,
                        "is no type",
                        remedy,
                    );
                    ColumnType::String
                }
            };
            Column {
                name: column.name.clone(),
                data_type,
                key: column.key.unwrap_or_default(),
                encoding: self.encoding(&path, column, (data_type, format)),
            }
        });
        resolved.collect()
    }

    fn encoding(
        &mut self,
        path: &str,
        column: &ColumnSpec,
        (data_type, format): (ColumnType, Format),
    ) -> Option<Encoding> {
        let path = format!("{path}.encoding");
        if let Some(encoding) = column.encoding {
            if !is_encoding_of(encoding, data_type) {
                let problem = format!(
                    "is no encoding of type {data_type} (column \"{}\")",
                    column.name
                );
                self.refuse(&path, encoding.into(), &problem, encodings_of(data_type));
            }
            return Some(encoding);
        }
        let usual = Encoding::usual(format, data_type);
        if usual.is_none()
            && ALL_ENCODINGS
                .iter()
                .any(|encoding| is_encoding_of(*encoding, data_type))
        {
            let problem = format!(
                "is missing for column \"{}\" of type {data_type}",
                column.name
            );
            let remedy = "write Millis (MySQL DATETIME up to 3 digits) or Micros (more digits, MySQL TIME, PostgreSQL): a wrong guess would be a factor of 1000";
            self.broken.push(Broken::new(&path, None, problem, remedy));
        }
        usual
    }

    fn catalog(&mut self, spec: &CatalogSpec) -> Catalog {
        if spec.kind == CatalogKind::Sql && spec.warehouse.is_none() {
            let pair = ["spec.sink.catalog.type", "spec.sink.catalog.warehouse"];
            self.refuse_pair(
                pair,
                "do not go together",
                "type: Sql needs a warehouse, as file:///var/lake",
            );
        }
        let schemes: &[&str] = match spec.kind {
            CatalogKind::Rest => &["http://", "https://"],
            CatalogKind::Sql => &["sqlite:", "postgres://", "postgresql://"],
        };
        let path = "spec.sink.catalog.uri";
        if holds_password(&spec.uri) {
            // The value is not shown.
            self.broken.push(Broken::new(
                path,
                None,
                "holds a password",
                "move it to sink.catalog.credentialRef",
            ));
        } else if !schemes.iter().any(|scheme| spec.uri.starts_with(scheme)) {
            let remedy = format!(
                "with type: {} it begins with {}",
                spec.kind,
                schemes.join(" or ")
            );
            self.refuse(path, &spec.uri, "is no address of such a catalog", remedy);
        }
        for name in spec.properties.iter().flat_map(BTreeMap::keys) {
            if SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                let path = format!("spec.sink.catalog.properties[{name}]");
                let remedy = "a secret never stands in a manifest: use sink.catalog.credentialRef";
                self.broken
                    .push(Broken::new(&path, None, "may not be set", remedy));
            }
        }
        Catalog {
            kind: spec.kind,
            name: spec.name.clone().unwrap_or_default(),
            uri: spec.uri.clone(),
            warehouse: spec.warehouse.clone(),
            properties: spec.properties.clone().unwrap_or_default(),
            credential_ref: spec.credential_ref.clone(),
        }
    }

    fn partitioning(&mut self, spec: &SinkSpec, prefix: &str) -> Vec<Transform> {
        let path = "spec.sink.partitioning";
        let text = spec.partitioning.as_deref().unwrap_or_default();
        let event_time = format!("{prefix}event_time");
        match text {
            "None" => return Vec::new(),
            "Hour" => {
                return vec![Transform {
                    column: event_time,
                    transform: TransformKind::Hour,
                }];
            }
            _ => {}
        }
        let Some(transforms) = parse_transforms(text) else {
            let remedy = format!(
                "write Hour, None or transforms, as day({event_time}), bucket(16, customer)"
            );
            self.refuse(path, text, "is no partitioning", remedy);
            return Vec::new();
        };
        for transform in &transforms {
            let name = transform.column.as_str();
            let metadata = name
                .strip_prefix(prefix)
                .is_some_and(|rest| METADATA_COLUMNS.contains(&rest));
            let own = spec
                .schema
                .as_ref()
                .is_none_or(|columns| columns.iter().any(|column| column.name == name));
            if !metadata && !own {
                let problem = format!("names \"{name}\", which is no column");
                self.refuse(
                    path,
                    text,
                    &problem,
                    "name a column of sink.schema or a metadata column",
                );
            }
        }
        transforms
    }

    fn finalization(&mut self, spec: &FinalizationSpec) -> Finalization {
        let at = |field: &str| format!("spec.finalization.{field}");
        let week = [0, 7 * DAY_US];
        let cell_us = self.length_us(&at("cell"), spec.cell.as_ref(), [SECOND_US, DAY_US]);
        if let (Some(cell_us), Some(text)) = (cell_us, &spec.cell)
            && DAY_US % cell_us != 0
        {
            self.refuse(
                &at("cell"),
                &text.0,
                "does not divide a day",
                "write such a length, as 15m, 1h or 1d",
            );
        }
        let terms = spec.terms.clone().unwrap_or_default();
        if terms.iter().collect::<BTreeSet<_>>().len() < terms.len() {
            let text: Vec<&str> = terms.iter().map(Into::into).collect();
            self.refuse(
                &at("terms"),
                &text.join(", "),
                "names a term twice",
                "name each once",
            );
        }
        Finalization {
            cell_us: cell_us.unwrap_or_default(),
            allowed_lateness_us: self
                .length_us(&at("allowedLateness"), spec.allowed_lateness.as_ref(), week)
                .unwrap_or_default(),
            max_delay_us: self
                .length_us(&at("maxDelay"), spec.max_delay.as_ref(), week)
                .unwrap_or_default(),
            max_future_skew_us: self
                .length_us(&at("maxFutureSkew"), spec.max_future_skew.as_ref(), week)
                .unwrap_or_default(),
            max_age_us: self.length_us(
                &at("maxAge"),
                spec.max_age.as_ref(),
                [SECOND_US, 10_000 * DAY_US],
            ),
            window_commits: spec.window_commits.unwrap_or_default(),
            window_duration_us: self.length_us(
                &at("windowDuration"),
                spec.window_duration.as_ref(),
                [SECOND_US, DAY_US],
            ),
            terms,
            complete_from: spec
                .complete_from
                .as_deref()
                .and_then(|text| self.complete_from(text)),
        }
    }

    fn complete_from(&mut self, text: &str) -> Option<CompleteFrom> {
        if text == "Unbounded" {
            return Some(CompleteFrom::Unbounded);
        }
        let instant = parse_instant_us(text);
        if instant.is_none() {
            let remedy = "write Unbounded or an instant, as 2026-11-30T10:00:00Z";
            self.refuse(
                "spec.finalization.completeFrom",
                text,
                "is no instant",
                remedy,
            );
        }
        instant.map(CompleteFrom::Instant)
    }

    fn worker(&mut self, spec: &WorkerSpec) -> WorkerShare {
        let bounds = [16 << 20, 64 << 30];
        WorkerShare {
            replicas: spec.replicas.unwrap_or_default(),
            memory_budget_bytes: self
                .size(
                    "spec.worker.memoryBudget",
                    spec.memory_budget.as_ref(),
                    bounds,
                )
                .unwrap_or_default(),
        }
    }
}

/// Whether an address is of the form `scheme://user:password@host`.
fn holds_password(uri: &str) -> bool {
    let authority = uri.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    authority
        .rsplit_once('@')
        .is_some_and(|(user, _)| user.contains(':'))
}

/// `day(a), bucket(16, b)`; a name alone is the identity.
fn parse_transforms(text: &str) -> Option<Vec<Transform>> {
    let call = Regex::new(
        r"^\s*(?:(\w+)\(\s*(?:(\d{1,9})\s*,\s*)?([^(),\s]+)\s*\)|([^(),\s]+))\s*(?:,|$)",
    )
    .expect("the expression is a constant");
    let mut rest = text;
    let mut transforms = Vec::new();
    while !rest.is_empty() {
        let found = call.captures(rest)?;
        let number = found.get(2).and_then(|number| number.as_str().parse().ok());
        let transform = match (
            found.get(1).map_or("identity", |name| name.as_str()),
            number,
        ) {
            ("identity", None) => TransformKind::Identity,
            ("year", None) => TransformKind::Year,
            ("month", None) => TransformKind::Month,
            ("day", None) => TransformKind::Day,
            ("hour", None) => TransformKind::Hour,
            ("bucket", Some(count)) if count > 0 => TransformKind::Bucket(count),
            ("truncate", Some(width)) if width > 0 => TransformKind::Truncate(width),
            _ => return None,
        };
        let column = found.get(3).or(found.get(4))?.as_str().to_owned();
        transforms.push(Transform { column, transform });
        rest = &rest[found[0].len()..];
    }
    (!transforms.is_empty()).then_some(transforms)
}

const ALL_ENCODINGS: [Encoding; 9] = [
    Encoding::Days,
    Encoding::Seconds,
    Encoding::Millis,
    Encoding::Micros,
    Encoding::Nanos,
    Encoding::Iso,
    Encoding::Plain,
    Encoding::Base64,
    Encoding::Hex,
];

fn is_encoding_of(encoding: Encoding, data_type: ColumnType) -> bool {
    match data_type {
        ColumnType::Date => matches!(encoding, Encoding::Days | Encoding::Iso),
        ColumnType::Time | ColumnType::Timestamp | ColumnType::TimestampTz => matches!(
            encoding,
            Encoding::Seconds
                | Encoding::Millis
                | Encoding::Micros
                | Encoding::Nanos
                | Encoding::Iso
        ),
        ColumnType::Decimal(..) => matches!(encoding, Encoding::Plain | Encoding::Base64),
        ColumnType::Binary => matches!(encoding, Encoding::Base64 | Encoding::Hex),
        _ => false,
    }
}

fn encodings_of(data_type: ColumnType) -> String {
    let fitting = ALL_ENCODINGS
        .into_iter()
        .filter(|encoding| is_encoding_of(*encoding, data_type));
    let fitting: Vec<&str> = fitting.map(Into::into).collect();
    if fitting.is_empty() {
        "remove it".to_owned()
    } else {
        format!("write one of {}", fitting.join(", "))
    }
}

impl Encoding {
    /// How a value of this type is written where nothing is said; `None` where the type has one way only, and for Debezium's
    /// `time` and `timestamp`, whose unit depends on the source's column and has to be said.
    #[must_use]
    pub fn usual(format: Format, data_type: ColumnType) -> Option<Self> {
        match (format, data_type) {
            (Format::DebeziumJson, ColumnType::Date) => Some(Self::Days),
            (Format::DebeziumJson, ColumnType::Decimal(..)) | (_, ColumnType::Binary) => {
                Some(Self::Base64)
            }
            (Format::Json, ColumnType::Date | ColumnType::Time | ColumnType::Timestamp)
            | (_, ColumnType::TimestampTz) => Some(Self::Iso),
            (Format::Json, ColumnType::Decimal(..)) => Some(Self::Plain),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::manifest::load_manifests, *};

    fn manifest(extra: &str) -> String {
        let lines = extra.replace('\n', "\n  ");
        format!(
            "apiVersion: tidemark.dev/v1alpha1\nkind: IngestionPipeline\nmetadata: {{name: orders, namespace: shop}}\nspec:\n  {lines}"
        )
    }

    const SOURCE: &str =
        "source: {format: DebeziumJson, kafka: {bootstrapServers: 'k:1', topics: [a]}}\n";
    const SINK: &str = "sink: {table: shop.orders, catalog: {type: Rest, uri: 'http://c'}}\n";

    fn resolved(extra: &str) -> EffectiveSpec {
        let loaded = load_manifests(&manifest(extra));
        let mut loaded = loaded.unwrap_or_else(|faults| panic!("{faults:?}"));
        loaded.remove(0).1
    }

    fn refused(extra: &str) -> String {
        let faults = load_manifests(&manifest(extra)).expect_err("the manifest is wrong");
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults[0].to_string()
    }

    #[test]
    fn built_in_defaults_fill_what_is_left_out() {
        let spec = resolved(&format!("{SOURCE}{SINK}"));
        assert_eq!(spec.source.group_id, "tidemark.shop.orders");
        assert_eq!(spec.writer_id, "shop.orders");
        assert_eq!(spec.event_time, EventTime::SourceCommit);
        assert_eq!(spec.sink.commit_interval_us, 60 * SECOND_US);
        let hour = Transform {
            column: "_cdc_event_time".into(),
            transform: TransformKind::Hour,
        };
        assert_eq!(spec.sink.partitioning, [hour]);
        assert_eq!(spec.finalization.cell_us, HOUR_US);
        assert_eq!(spec.finalization.window_commits, 3);
        assert_eq!(
            spec.worker,
            WorkerShare {
                replicas: 1,
                memory_budget_bytes: 256 << 20
            }
        );
        assert_eq!(spec.sink.expire.keep_us, 6 * HOUR_US);
    }

    /// An effective specification is a file in a pod: what is written is read back whole.
    #[test]
    fn effective_specification_survives_its_file() {
        let spec = resolved(&format!(
            "{SOURCE}{SINK}finalization: {{completeFrom: '2026-11-30T10:00:00Z'}}\n"
        ));
        let text = spec.to_yaml();
        let back = EffectiveSpec::from_yaml(&text).unwrap();
        assert_eq!(back, spec, "{text}");
        assert!(!text.contains('!'), "{text}");
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(EffectiveSpec::from_yaml(&json).unwrap(), spec);
        assert_eq!(back.hash(), spec.hash());
        assert!(EffectiveSpec::from_yaml(&format!("{text}surplus: 1\n")).is_err());
    }

    /// Only what decides about the claim may raise the policy revision.
    #[test]
    fn policy_hash_follows_the_finalization_alone() {
        let spec = resolved(&format!("{SOURCE}{SINK}"));
        let written_out = resolved(&format!(
            "{SOURCE}{SINK}finalization: {{cell: 60m, maxDelay: 600s}}\nworker: {{replicas: 3}}\n"
        ));
        let other = resolved(&format!("{SOURCE}{SINK}finalization: {{cell: 15m}}\n"));
        assert_eq!(spec.policy_hash(), written_out.policy_hash());
        assert_ne!(spec.hash(), written_out.hash());
        assert_ne!(spec.policy_hash(), other.policy_hash());
    }

    #[test]
    fn pairs_that_do_not_go_together_are_both_named() {
        let cases = [
            (
                "source: {format: Json, kafka: {bootstrapServers: 'k:1', topics: [a]}}\neventTime: {from: SourceCommit}\n",
                ["eventTime.from", "source.format"],
            ),
            (
                "source: {format: DebeziumJson, kafka: {bootstrapServers: 'k:1', topics: [a], startFrom: Timestamp}}\n",
                ["startFrom", "startTimestamp"],
            ),
            (
                "source: {format: DebeziumJson, kafka: {bootstrapServers: 'k:1', topics: [a]}, deadLetter: {topic: a}}\n",
                ["deadLetter.topic", "kafka.topics"],
            ),
            (
                "source: {format: DebeziumJson, kafka: {bootstrapServers: 'k:1', topicPattern: 'a.*'}, deadLetter: {topic: a.dead}}\n",
                ["deadLetter.topic", "topicPattern"],
            ),
            (
                "source: {format: DebeziumJson, kafka: {bootstrapServers: 'k:1', topics: [a]}}\neventTime: {from: Column, column: at}\n",
                ["operations", "maxAge"],
            ),
        ];
        for (extra, names) in cases {
            let told = refused(&format!("{extra}{SINK}"));
            assert!(names.iter().all(|name| told.contains(name)), "{told}");
        }
    }

    #[test]
    fn options_that_break_exactly_once_are_refused_by_name() {
        let source = "source: {format: DebeziumJson, kafka: {bootstrapServers: 'k:1', topics: [a], properties: {NAME: hush}}}\n";
        for name in [
            "enable.auto.commit",
            "auto.offset.reset",
            "sasl.password",
            "sasl.oauthbearer.client.secret",
        ] {
            let told = refused(&format!("{}{SINK}", source.replace("NAME", name)));
            assert!(told.contains(name) && !told.contains("hush"), "{told}");
        }
        resolved(&format!(
            "{}{SINK}",
            source.replace("NAME", "fetch.wait.max.ms")
        ));
    }

    #[test]
    fn passwords_in_addresses_are_refused_and_not_shown() {
        let told = refused(&format!(
            "{SOURCE}sink: {{table: a.b, catalog: {{type: Sql, uri: 'postgresql://u:hush@h/d', warehouse: 'file:///w'}}}}\n"
        ));
        assert!(
            told.contains("credentialRef") && !told.contains("hush"),
            "{told}"
        );
    }

    #[test]
    fn partitioning_is_read_as_written() {
        let day = Transform {
            column: "_cdc_event_time".into(),
            transform: TransformKind::Day,
        };
        let bucket = Transform {
            column: "customer".into(),
            transform: TransformKind::Bucket(16),
        };
        let plain = Transform {
            column: "region".into(),
            transform: TransformKind::Identity,
        };
        let text = "day(_cdc_event_time), bucket(16, customer),region";
        assert_eq!(parse_transforms(text), Some(vec![day, bucket, plain]));
        for wrong in [
            "",
            "day",
            "bucket(customer)",
            "bucket(0, a)",
            "day(a) hour(b)",
            "week(a)",
        ] {
            let known = parse_transforms(wrong)
                .filter(|transforms| wrong != "day" || transforms.is_empty());
            assert_eq!(known, None, "{wrong}");
        }
    }

    /// A unit that is guessed wrong would be an error of a factor of 1000 in every row.
    #[test]
    fn unit_of_debezium_times_has_to_be_said() {
        let sink = |column: &str| {
            format!(
                "{SOURCE}sink: {{table: a.b, catalog: {{type: Rest, uri: 'http://c'}}, schema: [{column}]}}\n"
            )
        };
        let told = refused(&sink("{name: at, type: timestamp}"));
        assert!(told.contains("Millis") && told.contains("\"at\""), "{told}");
        let spec = resolved(&sink("{name: at, type: timestamp, encoding: Micros}"));
        assert_eq!(
            spec.sink.schema.unwrap()[0].encoding,
            Some(Encoding::Micros)
        );
        let told = refused(&sink("{name: at, type: int, encoding: Micros}"));
        assert!(told.contains("is no encoding of type int"), "{told}");
    }

    #[test]
    fn columns_may_not_look_like_metadata() {
        let sink = "sink: {table: a.b, catalog: {type: Rest, uri: 'http://c'}, schema: [{name: _CDC_op, type: int}]}\n";
        assert!(refused(&format!("{SOURCE}{sink}")).contains("metadataPrefix"));
    }
}
