//! The rules of `spec.source` and `spec.eventTime`.
//!
//! Options of the client that would break exactly-once, and secrets, are refused by name, and their values are not shown.

use std::collections::BTreeSet;

use regex::Regex;

use super::{Broken, Rules, is_secret};
use crate::api::{
    pipeline::{
        ColumnSpec, EventTimeFrom, EventTimeSpec, IngestionPipelineSpec, KafkaSaslSpec,
        KafkaSecuritySpec, KafkaSpec, Operations, SourceSpec, StartFromName,
    },
    quantity::parse_instant_us,
    worker::{
        EventTime, Format, Heartbeat, KafkaSasl, KafkaSecurity, KafkaTls, OnGap, Protocol, Source,
        SourceAccept, StartFrom, Topics,
    },
};

/// Options of the Kafka client that a manifest may not set, each with what stands in its place.
pub const REFUSED_KAFKA_PROPERTIES: [(&str, &str); 20] = [
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
    ("security.protocol", "set source.kafka.security.protocol"),
    (
        "enable.ssl.certificate.verification",
        "certificates are always looked at; set source.kafka.security.tls.caRef",
    ),
];

/// Options of TLS that a manifest may set; all others are those of `source.kafka.security`.
pub const FREE_TLS_PROPERTIES: [&str; 4] = [
    "ssl.cipher.suites",
    "ssl.curves.list",
    "ssl.sigalgs.list",
    "ssl.crl.location",
];

/// Why an option is none that a manifest may set, where its name is one of security.
fn of_security(name: &str) -> Option<&'static str> {
    if name.starts_with("sasl.") {
        return Some("set source.kafka.security.sasl; its password is named by passwordRef");
    }
    if name.starts_with("ssl.") && !FREE_TLS_PROPERTIES.contains(&name) {
        return Some("set source.kafka.security.tls; certificates and keys are named by reference");
    }
    is_secret(name).then_some("a secret never stands in a manifest")
}

impl Rules {
    pub(super) fn source(&mut self, spec: &SourceSpec) -> Source {
        let kafka = &spec.kafka;
        let topics = self.topics(kafka);
        let start_from = self.start_from(kafka);
        self.kafka_properties(kafka);
        let security = kafka.security.as_ref();
        let security = security.and_then(|security| self.security(security));
        let dead_letter = spec
            .dead_letter
            .as_ref()
            .map(|dead_letter| dead_letter.topic.clone());
        if let Some(topic) = &dead_letter {
            self.dead_letter(topic, &topics);
        }
        let heartbeat = self.heartbeat(spec);
        let accept = spec.accept.clone();
        Source {
            bootstrap_servers: kafka.bootstrap_servers.clone(),
            topics,
            start_from,
            group_id: kafka.group_id.clone().unwrap_or_default(),
            security,
            properties: kafka.properties.clone().unwrap_or_default(),
            format: spec.format,
            heartbeat,
            on_gap: spec.on_gap.unwrap_or(OnGap::Stop),
            dead_letter,
            accept: accept.map_or_else(SourceAccept::default, |accept| SourceAccept {
                cluster_id: accept.cluster_id,
                topic_ids: accept.topic_ids.unwrap_or_default(),
            }),
        }
    }

    fn heartbeat(&mut self, spec: &SourceSpec) -> Option<Heartbeat> {
        let [topic, table] = ["spec.source.heartbeatTopic", "spec.source.heartbeatTable"];
        let (path, heartbeat) = match (&spec.heartbeat_topic, &spec.heartbeat_table) {
            (None, None) => return None,
            (Some(name), None) => (topic, Heartbeat::Connector(name.clone())),
            (None, Some(name)) => (table, Heartbeat::Table(name.clone())),
            (Some(_), Some(name)) => {
                let remedy = "set one of them: the one caps CaughtUp, the other replaces it";
                self.refuse_pair([topic, table], "do not go together", remedy);
                (table, Heartbeat::Table(name.clone()))
            }
        };
        if spec.format != Format::DebeziumJson {
            let remedy = "heartbeats go with format: DebeziumJson; leave it out";
            self.refuse_pair([path, "spec.source.format"], "do not go together", remedy);
        }
        Some(heartbeat)
    }

    fn topics(&mut self, kafka: &KafkaSpec) -> Topics {
        let pair = ["spec.source.kafka.topics", "spec.source.kafka.topicPattern"];
        let (list, pattern) = (&kafka.topics, &kafka.topic_pattern);
        if list.is_some() == pattern.is_some() {
            let problem = if list.is_some() {
                "do not go together"
            } else {
                "are both missing"
            };
            self.refuse_pair(pair, problem, "set one of them");
        }
        if let Some(list) = list {
            let distinct: BTreeSet<&String> = list.iter().collect();
            if distinct.len() < list.len() {
                let value = list.join(", ");
                self.refuse(pair[0], &value, "names a topic twice", "name each once");
            }
        }
        if let Some(pattern) = pattern
            && let Err(error) = Regex::new(pattern)
        {
            let said = error.to_string();
            let remedy = said.lines().last().unwrap_or_default().to_owned();
            self.refuse(pair[1], pattern, "is no regular expression", remedy);
        }
        match (list, pattern) {
            (None, Some(pattern)) => Topics::Pattern(pattern.clone()),
            (list, _) => Topics::List(list.clone().unwrap_or_default()),
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
        for (name, value) in kafka.properties.iter().flatten() {
            let path = format!("spec.source.kafka.properties[{name}]");
            let listed = REFUSED_KAFKA_PROPERTIES
                .iter()
                .find(|(refused, _)| refused == name);
            let why = listed.map(|(_, why)| *why).or_else(|| of_security(name));
            if let Some(why) = why {
                // The value is not shown: it may be a secret.
                self.broken
                    .push(Broken::new(&path, None, "may not be set", why));
            } else if let Some((problem, remedy)) = (self.property)(name, value) {
                self.refuse(&path, value, &problem, remedy);
            }
        }
    }

    fn security(&mut self, spec: &KafkaSecuritySpec) -> Option<KafkaSecurity> {
        let path = |field: &str| format!("spec.source.kafka.security.{field}");
        let protocol = spec.protocol.unwrap_or(Protocol::Plaintext);
        let (encrypted, with_credentials) = protocol.asks_for();
        if spec.sasl.is_some() && !with_credentials {
            let remedy = "sasl goes with protocol: SaslSsl or SaslPlaintext";
            self.refuse_pair(
                [&path("protocol"), &path("sasl")],
                "do not go together",
                remedy,
            );
        }
        if spec.tls.is_some() && !encrypted {
            let remedy = "tls goes with protocol: Ssl or SaslSsl";
            self.refuse_pair(
                [&path("protocol"), &path("tls")],
                "do not go together",
                remedy,
            );
        }
        let tls = spec.tls.clone().unwrap_or_default();
        let [certificate, key, password] =
            ["tls.certificateRef", "tls.keyRef", "tls.keyPasswordRef"].map(path);
        if tls.certificate_ref.is_some() != tls.key_ref.is_some() {
            let remedy = "name the secrets of both, or of neither";
            self.refuse_pair([&certificate, &key], "do not go together", remedy);
        }
        if tls.key_password_ref.is_some() && tls.key_ref.is_none() {
            let remedy = "a password goes with its key: name the secrets of both";
            self.refuse_pair([&password, &key], "do not go together", remedy);
        }
        (protocol != Protocol::Plaintext).then(|| KafkaSecurity {
            protocol,
            tls: spec.tls.is_some().then_some(KafkaTls {
                ca_ref: tls.ca_ref,
                certificate_ref: tls.certificate_ref,
                key_ref: tls.key_ref,
                key_password_ref: tls.key_password_ref,
            }),
            sasl: with_credentials
                .then(|| self.sasl(spec.sasl.as_ref()))
                .flatten(),
        })
    }

    /// As whom the client reads, where the protocol asks for it.
    fn sasl(&mut self, spec: Option<&KafkaSaslSpec>) -> Option<KafkaSasl> {
        let path = |field: &str| format!("spec.source.kafka.security.{field}");
        let asked_by = path("protocol");
        let Some(spec) = spec else {
            let remedy = "name the mechanism, username and passwordRef that the protocol asks for, or take Plaintext or Ssl";
            self.refuse_missing(&path("sasl"), &asked_by, remedy);
            return None;
        };
        let needed = [
            (
                "sasl.mechanism",
                spec.mechanism.is_none(),
                "write Plain, ScramSha256 or ScramSha512, whichever the listener offers",
            ),
            (
                "sasl.username",
                spec.username.is_none(),
                "name the user that reads",
            ),
            (
                "sasl.passwordRef",
                spec.password_ref.is_none(),
                "name the secret and the key with the password of this username",
            ),
        ];
        for (field, _, remedy) in needed.iter().filter(|(_, missing, _)| *missing) {
            self.refuse_missing(&path(field), &asked_by, remedy);
        }
        Some(KafkaSasl {
            mechanism: spec.mechanism?,
            username: spec.username.clone()?,
            password_ref: spec.password_ref.clone()?,
        })
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

    pub(super) fn event_time(&mut self, spec: &IngestionPipelineSpec) -> EventTime {
        let none = EventTimeSpec {
            from: None,
            column: None,
            header: None,
            operations: None,
        };
        let own = spec.event_time.as_ref().unwrap_or(&none);
        let from = own.from.expect("the built-in defaults name one");
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
            EventTimeFrom::Header => EventTime::Header {
                name: own.header.clone().unwrap_or_default(),
            },
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
}
