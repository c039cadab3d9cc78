//! A pipeline's Kafka settings → options of librdkafka.
//!
//! The house owns every option on which exactly-once or the memory bound rests; a manifest that names one of them is refused
//! with the reason, and so is an option that librdkafka does not know. Secrets are never accepted here.
//!
//! A fetch may hold at most a sixteenth of the pipeline's memory, whatever the number of partitions.

use std::collections::BTreeMap;

use rdkafka::ClientConfig;
use rdkafka::error::{IsError, KafkaError};
use rdkafka::types::RDKafkaConfRes;

use super::{Error, Security, sys};
use crate::api::effective::FREE_TLS_PROPERTIES;

/// Which topics a pipeline reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topics {
    /// These, all of which must exist.
    List(Vec<String>),
    /// Every topic, but Kafka's internal ones, whose whole name matches this regular expression.
    Pattern(String),
}

/// What one pipeline's clients are made from.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `host:port`, comma-separated.
    pub bootstrap_servers: String,
    /// The consumer group: members share the partitions, and lag tools look here.
    pub group_id: String,
    /// How this process shows up at the broker (`client.id`): the pipeline's and the worker's name, not a pod's address.
    pub member: String,
    /// How the brokers are reached, and as whom.
    pub security: Security,
    /// Options of librdkafka as the manifest gives them.
    pub properties: BTreeMap<String, String>,
    /// Memory of the whole pipeline in bytes; the fetch buffers take a sixteenth.
    pub memory_budget_bytes: u64,
}

/// Options of the house: `(name, why nobody else sets it)`.
const REFUSED: &[(&str, &str)] = &[
    ("bootstrap.servers", "it is source.kafka.bootstrapServers"),
    (
        "metadata.broker.list",
        "it is source.kafka.bootstrapServers",
    ),
    ("group.id", "it is source.kafka.groupId"),
    ("client.id", "it is the pipeline's and the worker's name"),
    (
        "group.instance.id",
        "membership is dynamic: a worker that dies gives its partitions up at once",
    ),
    (
        "group.protocol",
        "rebalances are answered cooperatively under the classic protocol",
    ),
    (
        "group.protocol.type",
        "rebalances are answered cooperatively under the classic protocol",
    ),
    (
        "group.remote.assignor",
        "rebalances are answered cooperatively under the classic protocol",
    ),
    (
        "partition.assignment.strategy",
        "a worker keeps what it has buffered only under cooperative-sticky",
    ),
    (
        "enable.auto.commit",
        "positions are in the table; group offsets follow a commit and never lead it",
    ),
    (
        "auto.commit.enable",
        "positions are in the table; group offsets follow a commit and never lead it",
    ),
    (
        "auto.commit.interval.ms",
        "positions are in the table; group offsets follow a commit and never lead it",
    ),
    (
        "enable.auto.offset.store",
        "positions are in the table; group offsets follow a commit and never lead it",
    ),
    (
        "offset.store.method",
        "positions are in the table; group offsets follow a commit and never lead it",
    ),
    (
        "offset.store.path",
        "positions are in the table; group offsets follow a commit and never lead it",
    ),
    (
        "offset.store.sync.interval.ms",
        "positions are in the table; group offsets follow a commit and never lead it",
    ),
    (
        "auto.offset.reset",
        "a position that is gone stops the pipeline; use source.onGap to go on",
    ),
    (
        "isolation.level",
        "rows of aborted transactions would be written to the table",
    ),
    (
        "enable.partition.eof",
        "end-of-partition events carry the position over control records",
    ),
    (
        "check.crcs",
        "damaged records must be found, and it costs nothing",
    ),
    (
        "allow.auto.create.topics",
        "a misspelt topic must be an error, not a new topic",
    ),
    (
        "topic.blacklist",
        "it would hide topics without a trace; use source.kafka.topicPattern",
    ),
    (
        "plugin.library.paths",
        "a manifest may not load code into the worker",
    ),
    (
        "test.mock.num.brokers",
        "it would put a simulated cluster in the place of the real one",
    ),
    (
        "test.mock.broker.rtt",
        "it would put a simulated cluster in the place of the real one",
    ),
    ("security.protocol", "it is source.kafka.security.protocol"),
    (
        "enable.ssl.certificate.verification",
        "whoever is not who he says he is gets nothing",
    ),
];

/// The options whose names begin so: `(beginning, why nobody else sets them, those that anybody may)`.
const REFUSED_BEGINNINGS: [(&str, &str, &[&str]); 2] = [
    ("sasl.", "it is source.kafka.security.sasl", &[]),
    (
        "ssl.",
        "it is source.kafka.security.tls",
        &FREE_TLS_PROPERTIES,
    ),
];

/// Options that matter to any client of this cluster, so that a producer gets them as well.
const SHARED: &[&str] = &[
    "ssl.",
    "https.",
    "socket.",
    "broker.",
    "reconnect.",
    "connections.",
    "retry.",
    "client.",
    "api.version",
    "debug",
];

impl Settings {
    /// Every fault of the properties at once; empty when they are fine.
    #[must_use]
    pub fn faults(&self) -> Vec<Error> {
        self.properties
            .iter()
            .filter_map(|(name, value)| fault(name, value))
            .collect()
    }

    /// The options of the consumer that reads `partitions` partitions.
    pub(super) fn consumer(&self, partitions: usize) -> Result<ClientConfig, Error> {
        let fetch = FetchBytes::of(self.memory_budget_bytes, partitions);
        let mut config = self.common()?;
        config
            .set("group.id", &self.group_id)
            .set("isolation.level", "read_committed")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("check.crcs", "true")
            .set("fetch.message.max.bytes", fetch.per_partition.to_string())
            .set("fetch.max.bytes", fetch.per_request.to_string())
            .set(
                "queued.max.messages.kbytes",
                (fetch.queued / 1024).to_string(),
            )
            .set("queued.min.messages", "10000")
            .set("fetch.queue.backoff.ms", "5")
            .set("topic.metadata.refresh.interval.ms", "60000");
        self.overlay(&mut config, |_| true);
        Ok(config)
    }

    /// The options of the client that asks questions.
    pub(super) fn inquirer(&self) -> Result<ClientConfig, Error> {
        let mut config = self.common()?;
        // Watermarks must not stop at an open transaction: it is the high watermark that is promised against.
        config.set("isolation.level", "read_uncommitted");
        self.overlay(&mut config, |_| true);
        Ok(config)
    }

    /// The options of the producer of dead letters.
    pub(super) fn producer(&self) -> Result<ClientConfig, Error> {
        let mut config = self.common()?;
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            // What one broker took as a record must fit with five more headers; the topic's own limit still counts.
            .set("message.max.bytes", "104857600")
            .set("linger.ms", "20");
        self.overlay(&mut config, |name| {
            SHARED.iter().any(|prefix| name.starts_with(prefix))
        });
        Ok(config)
    }

    fn common(&self) -> Result<ClientConfig, Error> {
        if let Some(fault) = self.faults().into_iter().next() {
            return Err(fault);
        }
        if let Some(fault) = self.security.faults() {
            return Err(fault);
        }
        let mut config = ClientConfig::new();
        self.security.apply(&mut config);
        config
            .set("bootstrap.servers", &self.bootstrap_servers)
            .set("client.id", &self.member)
            .set("allow.auto.create.topics", "false");
        Ok(config)
    }

    fn overlay(&self, config: &mut ClientConfig, wanted: impl Fn(&str) -> bool) {
        for (name, value) in self.properties.iter().filter(|(name, _)| wanted(name)) {
            config.set(name, value);
        }
    }
}

/// What is wrong with one option, and what to do; `None`: nothing. For whoever checks a specification before it is run.
#[must_use]
pub fn property_fault(name: &str, value: &str) -> Option<(String, String)> {
    Some(match fault(name, value)? {
        Error::PropertyRefused { reason, .. } => ("may not be set".to_owned(), reason.to_owned()),
        Error::PropertyUnknown { version, .. } => (
            format!("is unknown to librdkafka {version}"),
            "take a name of its CONFIGURATION.md, or leave it out".to_owned(),
        ),
        Error::PropertyInvalid { problem, .. } => (
            format!("is not taken by librdkafka: {problem}"),
            "correct the value, or leave it out".to_owned(),
        ),
        other => (other.to_string(), "leave it out".to_owned()),
    })
}

/// Why nobody but the house sets this option.
fn refusal(name: &str) -> Option<&'static str> {
    let named = REFUSED.iter().find(|(refused, _)| *refused == name);
    let begun = REFUSED_BEGINNINGS
        .iter()
        .find(|(beginning, _, free)| name.starts_with(beginning) && !free.contains(&name));
    named
        .map(|(_, reason)| *reason)
        .or_else(|| begun.map(|(_, reason, _)| *reason))
}

fn fault(name: &str, value: &str) -> Option<Error> {
    if let Some(reason) = refusal(name) {
        return Some(Error::PropertyRefused {
            name: name.to_owned(),
            reason,
        });
    }
    let mut alone = ClientConfig::new();
    alone.set(name, value);
    match alone.create_native_config() {
        Ok(_) => None,
        Err(KafkaError::ClientConfig(result, problem, _, _)) if result.is_error() => {
            let name = name.to_owned();
            Some(match result {
                RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN => Error::PropertyUnknown {
                    name,
                    version: sys::version(),
                },
                _ => Error::PropertyInvalid {
                    name,
                    value: value.to_owned(),
                    problem,
                },
            })
        }
        Err(source) => Some(Error::Create { source }),
    }
}

/// How much may be on its way, in bytes.
#[derive(Debug, PartialEq, Eq)]
struct FetchBytes {
    queued: u64,
    per_request: u64,
    per_partition: u64,
}

impl FetchBytes {
    /// 256 MiB and 16 partitions give what was measured best: 16 MiB queued, 256 KiB a partition. More per partition leaves
    /// the processor's cache (1 MiB: +10 %, 4 MiB: +55 % of the time of a record); less than 32 KiB makes requests the cost.
    fn of(memory_budget_bytes: u64, partitions: usize) -> Self {
        const MIB: u64 = 1 << 20;
        let queued = (memory_budget_bytes / 16).clamp(MIB, 64 * MIB);
        let partitions = u64::try_from(partitions.max(1)).unwrap_or(u64::MAX);
        let per_partition = (queued / 4 / partitions).clamp(32 << 10, 256 << 10);
        // librdkafka wants fetch.max.bytes to hold one largest record (message.max.bytes, 1,000,000 by default).
        let per_request = queued.max(MIB);
        Self {
            queued,
            per_request,
            per_partition,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::Next;

    fn with(properties: &[(&str, &str)]) -> Settings {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Settings {
            bootstrap_servers: "localhost:9092".to_owned(),
            group_id: "g".to_owned(),
            member: "m".to_owned(),
            security: Security::default(),
            properties: properties.iter().map(owned).collect(),
            memory_budget_bytes: 256 << 20,
        }
    }

    #[test]
    fn every_fault_of_the_properties_comes_at_once() {
        let faults = with(&[
            ("enable.auto.commit", "true"),
            ("fetch.wait.max.ms", "100"),
            ("fetch.wait.max.ms.", "100"),
            ("session.timeout.ms", "soon"),
        ])
        .faults();
        let reasons: Vec<_> = faults.iter().map(Error::reason).collect();
        assert_eq!(
            reasons,
            ["PropertyRefused", "PropertyUnknown", "PropertyInvalid"]
        );
        assert!(faults.iter().all(|fault| fault.next() == Next::AwaitChange));
        assert!(
            faults[0].to_string().contains("enable.auto.commit"),
            "{}",
            faults[0]
        );
        assert!(
            faults[1].to_string().contains("fetch.wait.max.ms."),
            "{}",
            faults[1]
        );
        assert!(faults[2].to_string().contains("soon"), "{}", faults[2]);
    }

    /// A name that librdkafka does not know could never be set; it would stand in the list for nothing.
    #[test]
    fn every_refused_property_exists() {
        let free = FREE_TLS_PROPERTIES.iter().map(|name| (*name, ""));
        for (name, _) in REFUSED.iter().copied().chain(free) {
            let mut alone = ClientConfig::new();
            alone.set(name, "surely not a value of this");
            let unknown = matches!(
                alone.create_native_config(),
                Err(KafkaError::ClientConfig(
                    RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN,
                    ..
                ))
            );
            assert!(!unknown, "{name}");
        }
    }

    /// Secrets and the check of who answers are not for whoever writes options.
    #[test]
    fn options_of_security_are_refused_by_their_beginnings() {
        for name in [
            "sasl.password",
            "sasl.oauthbearer.client.secret",
            "ssl.key.pem",
            "ssl.endpoint.identification.algorithm",
            "security.protocol",
            "enable.ssl.certificate.verification",
        ] {
            let told = with(&[(name, "hush")]).faults().remove(0);
            assert_eq!(told.reason(), "PropertyRefused", "{name}");
            assert!(!told.to_string().contains("hush"), "{told}");
        }
        let free = with(&[("ssl.cipher.suites", "ECDHE-RSA-AES256-GCM-SHA384")]);
        assert!(free.faults().is_empty());
        assert!(free.producer().unwrap().get("ssl.cipher.suites").is_some());
    }

    /// What exactly-once rests on stays, whatever else a manifest sets; what it may set wins over the derived values.
    #[test]
    fn properties_go_over_the_derived_options() {
        let config = with(&[("queued.min.messages", "5"), ("fetch.max.bytes", "2000000")])
            .consumer(4)
            .unwrap();
        assert_eq!(config.get("queued.min.messages"), Some("5"));
        assert_eq!(config.get("fetch.max.bytes"), Some("2000000"));
        assert_eq!(config.get("isolation.level"), Some("read_committed"));
        assert_eq!(config.get("auto.offset.reset"), Some("error"));
        let producer = with(&[("queued.min.messages", "5"), ("socket.timeout.ms", "9000")])
            .producer()
            .unwrap();
        assert_eq!(producer.get("queued.min.messages"), None);
        assert_eq!(producer.get("socket.timeout.ms"), Some("9000"));
    }

    #[test]
    fn fetch_buffers_follow_memory_and_partitions() {
        const MIB: u64 = 1 << 20;
        let measured = FetchBytes {
            queued: 16 * MIB,
            per_request: 16 * MIB,
            per_partition: 256 << 10,
        };
        assert_eq!(FetchBytes::of(256 * MIB, 16), measured);
        assert_eq!(FetchBytes::of(256 * MIB, 0).per_partition, 256 << 10);
        assert_eq!(FetchBytes::of(256 * MIB, 1_000).per_partition, 32 << 10);
        assert_eq!(FetchBytes::of(1, 1).queued, MIB);
        assert_eq!(FetchBytes::of(u64::MAX, 1).queued, 64 * MIB);
    }
}
