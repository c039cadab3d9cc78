//! From a manifest to what runs: its layers merged (built-in defaults, policies' defaults, the manifest, policies' overrides),
//! then every rule between fields.
//!
//! The layers are merged leaf by leaf before anything is read ([`layers`]). The result leaves nothing open, and whoever holds one
//! need not check it again.
//!
//! A bad combination is refused with the names of both fields, and of the policy that said one of them; nothing is corrected
//! silently.

use std::sync::Arc;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    manifest::{Fault, shown},
    pipeline::{BytesText, IngestionPipeline, IngestionPipelineSpec, LengthText},
    pod::WorkerSpec,
    quantity::{bytes, length, parse_bytes, parse_length_us},
    worker::{EffectiveSpec, Format, Sink, WorkerShare, short_hash},
};

mod finalization;
pub mod layers;
mod pod;
mod sink;
mod source;

pub use layers::{Fallen, Layered, Leaf, Origin};
pub use pod::{Dedicated, EffectivePod, Place, Resources};
pub use sink::{METADATA_COLUMNS, catalog_property_remedy};
pub use source::{FREE_TLS_PROPERTIES, REFUSED_KAFKA_PROPERTIES};

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: i64 = 24 * HOUR_US;

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

/// The field beside the one that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
enum With {
    /// It is wrong by itself.
    Nothing,
    /// The two do not go together.
    Against(String),
    /// This one asks for the other, which is missing.
    AskedBy(String),
}

/// A fault whose object is not known yet.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    pub(super) path: String,
    with: With,
    pub(super) value: Option<String>,
    problem: String,
    remedy: String,
}

impl Broken {
    pub(crate) fn new(
        path: &str,
        value: Option<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (problem, remedy) = (problem.into(), remedy.into());
        Self {
            path: path.to_owned(),
            with: With::Nothing,
            value,
            problem,
            remedy,
        }
    }

    /// Whether somebody else may still say what is wanted: it is no fault of whoever asks for it.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.with, With::AskedBy(_))
    }

    /// Whether it is about the same fields, and says the same of them.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let said = |one: &Self| (one.path.clone(), one.with.clone(), one.problem.clone());
        said(self) == said(other)
    }

    /// Whether it says nothing beside a fault at `path`: it is about that alone, or about what is only made up below it.
    pub(super) fn follows(&self, path: &str) -> bool {
        let below = |own: &str| {
            own.strip_prefix(path)
                .is_some_and(|rest| rest.starts_with(['.', '[']))
        };
        let alone = self.with == With::Nothing && self.path == path;
        alone || self.paths().any(below)
    }

    /// The fields that it is about.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        let other = match &self.with {
            With::Nothing => None,
            With::Against(other) | With::AskedBy(other) => Some(other),
        };
        [Some(&self.path), other]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    /// The fault of this object, whose specification has these layers.
    fn of(self, object: &str, layered: &Layered) -> Fault {
        let said = |path: &str| {
            let origin = layered.origin(path)?;
            origin
                .policy()
                .is_some()
                .then(|| format!("{path}: {origin}"))
        };
        Fault {
            said_by: self.paths().filter_map(said).collect(),
            ..self.alone(object)
        }
    }

    /// The same with its fields somewhere else, as `spec.worker` of a pipeline is `spec.defaults.worker` of a policy.
    pub(crate) fn below(mut self, from: &str, to: &str) -> Self {
        let other = match &mut self.with {
            With::Nothing => None,
            With::Against(other) | With::AskedBy(other) => Some(other),
        };
        for path in [Some(&mut self.path), other].into_iter().flatten() {
            *path = path.replacen(from, to, 1);
        }
        self
    }

    /// The fault of this object by itself.
    pub(crate) fn alone(self, object: &str) -> Fault {
        let path = match self.with {
            With::Against(other) => format!("{} and {other}", self.path),
            With::Nothing | With::AskedBy(_) => self.path,
        };
        Fault {
            object: object.to_owned(),
            path,
            value: self.value.unwrap_or_default(),
            problem: self.problem,
            said_by: Vec::new(),
            remedy: self.remedy,
        }
    }
}

/// What runs for a pipeline: what its workers are given, and what their pods are like.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// What a worker is given.
    pub spec: EffectiveSpec,
    /// What the pods are like; without effect outside Kubernetes.
    pub pod: EffectivePod,
}

impl Resolved {
    /// A short hash of the whole; equal ones have equal ones.
    #[must_use]
    pub fn hash(&self) -> String {
        format!("{:016x}", short_hash(&(&self.spec, &self.pod)))
    }
}

/// What policies say to one pipeline, each in the shape of `spec`; of several the last one counts.
#[derive(Debug, Clone, Default)]
pub struct PolicyLayers<'a> {
    /// Below what the pipeline says.
    pub defaults: Vec<(Arc<str>, &'a Value)>,
    /// Above it.
    pub overrides: Vec<(Arc<str>, &'a Value)>,
}

/// Everything about one pipeline by itself, without a policy.
///
/// # Errors
/// Every rule that the pipeline breaks.
pub fn effective(pipeline: &IngestionPipeline) -> Result<EffectiveSpec, Vec<Fault>> {
    let layered = layered(pipeline, &PolicyLayers::default());
    resolve(pipeline, &layered).map(|resolved| resolved.spec)
}

/// A pipeline's specification with every layer in it, and with the built-in defaults that depend on other fields.
///
/// # Panics
/// Never: a specification is valid JSON.
#[must_use]
pub fn layered(pipeline: &IngestionPipeline, policies: &PolicyLayers<'_>) -> Layered {
    let built_in = built_in_defaults();
    let own = serde_json::to_value(&pipeline.spec).expect("a specification is valid JSON");
    let defaults = policies.defaults.iter();
    let overrides = policies.overrides.iter();
    let layers = std::iter::once((Origin::BuiltIn, &built_in))
        .chain(defaults.map(|(name, values)| (Origin::Default(Arc::clone(name)), *values)))
        .chain([(Origin::Pipeline, &own)])
        .chain(overrides.map(|(name, values)| (Origin::Override(Arc::clone(name)), *values)));
    let mut layered = Layered::new(layers);
    let dotted = dotted(pipeline);
    let group = format!("tidemark.{dotted}");
    layered.fill(&["source", "kafka", "groupId"], group.into());
    layered.fill(&["sink", "writer"], dotted.into());
    let event_time = match pipeline.spec.source.format {
        Format::Json => "RecordTimestamp",
        _ => "SourceCommit",
    };
    layered.fill(&["eventTime", "from"], event_time.into());
    pod::fill(&mut layered);
    layered
}

/// Everything about one pipeline, resolved and checked.
///
/// # Errors
/// Every rule that it breaks, each with the policy that has a part in it.
pub fn resolve(pipeline: &IngestionPipeline, layered: &Layered) -> Result<Resolved, Vec<Fault>> {
    let label = label(pipeline);
    let told = |broken: Vec<Broken>| {
        let told = broken.into_iter().map(|fault| fault.of(&label, layered));
        told.collect()
    };
    check(pipeline, layered, ANY_PROPERTY).map_err(told)
}

/// Everything that is wrong with a pipeline whose specification has these layers.
pub(crate) fn broken(pipeline: &IngestionPipeline, layered: &Layered) -> Vec<Broken> {
    check(pipeline, layered, ANY_PROPERTY)
        .err()
        .unwrap_or_default()
}

/// `namespace/name`, as faults and logs show it.
#[must_use]
pub fn label(pipeline: &IngestionPipeline) -> String {
    format!("{}/{}", namespace(pipeline), pipeline.name_any())
}

fn namespace(pipeline: &IngestionPipeline) -> String {
    pipeline.namespace().unwrap_or_else(|| "default".to_owned())
}

fn dotted(pipeline: &IngestionPipeline) -> String {
    format!("{}.{}", namespace(pipeline), pipeline.name_any())
}

/// The lowest layer: what holds where nothing else is said.
///
/// What depends on other fields (group, writer, event time, pods) is filled in when they are known, by [`layered`].
#[must_use]
pub fn built_in_defaults() -> Value {
    json!({
        "source": {"kafka": {"startFrom": "Earliest", "security": {"protocol": "Plaintext"}}, "onGap": "Stop"},
        "sink": {
            "catalog": {"name": "default"},
            "metadataPrefix": "_cdc_",
            "partitioning": "Hour",
            "commit": {"interval": "60s"},
            "expire": {"enabled": true, "keep": "6h", "keepSnapshots": 300, "grace": "1h"},
            "onRollback": "Replay",
        },
        "finalization": {
            "cell": "1h",
            "allowedLateness": "5m",
            "maxDelay": "10m",
            "maxFutureSkew": "5m",
            "windowCommits": 3,
            "terms": ["Minimum", "CaughtUp"],
            "lateData": "Notify",
            "onJoin": "Reopen",
        },
        "worker": {"replicas": 1, "memoryBudget": "256Mi", "placement": "Dedicated"},
        "suspend": false,
    })
}

/// What the Kafka client thinks of an option: the problem and the remedy. Pure rooms know no client, so whoever has one brings it.
pub type PropertyCheck = fn(name: &str, value: &str) -> Option<(String, String)>;

/// Takes any option.
pub(super) const ANY_PROPERTY: PropertyCheck = |_, _| None;

pub(super) fn check(
    pipeline: &IngestionPipeline,
    layered: &Layered,
    property: PropertyCheck,
) -> Result<Resolved, Vec<Broken>> {
    let spec: IngestionPipelineSpec = serde_json::from_value(layered.value())
        .expect("layers of a specification make a specification");
    let mut rules = Rules {
        broken: Vec::new(),
        property,
    };
    let finalization = spec.finalization.clone().unwrap_or_default();
    let worker = spec.worker.clone().unwrap_or_default();
    let sink = Sink {
        also_write: rules.also_write(&finalization),
        ..rules.sink(&spec.sink, spec.source.format)
    };
    let source = rules.source(&spec.source);
    let event_time = rules.event_time(&spec);
    let share = rules.worker(&worker);
    let pod = rules.pod(&worker, share.memory_budget_bytes);
    let resolved = EffectiveSpec {
        uid: pipeline.uid().unwrap_or_else(|| dotted(pipeline)),
        writer_id: spec.sink.writer.unwrap_or_default(),
        finalization: rules.finalization(&finalization, &source, &event_time),
        event_time,
        source,
        worker: share,
        suspend: spec.suspend.unwrap_or_default(),
        sink,
        namespace: namespace(pipeline),
        name: pipeline.name_any(),
    };
    if rules.broken.is_empty() {
        Ok(Resolved {
            spec: resolved,
            pod,
        })
    } else {
        Err(rules.broken)
    }
}

/// Reads fields and keeps what is wrong with them. A field that is absent or wrong reads as nothing: the result of a broken
/// specification is thrown away.
struct Rules {
    broken: Vec<Broken>,
    property: PropertyCheck,
}

impl Rules {
    fn refuse(&mut self, path: &str, value: &str, problem: &str, remedy: impl Into<String>) {
        let value = Some(shown(&Value::from(value)));
        self.broken.push(Broken::new(path, value, problem, remedy));
    }

    fn refuse_pair(&mut self, pair: [&str; 2], problem: &str, remedy: &str) {
        let mut broken = Broken::new(pair[0], None, problem, remedy);
        broken.with = With::Against(pair[1].to_owned());
        self.broken.push(broken);
    }

    /// A field that nobody has said, and the one that asks for it.
    fn refuse_missing(&mut self, path: &str, asked_by: &str, remedy: &str) {
        let mut broken = Broken::new(path, None, "is missing", remedy);
        broken.with = With::AskedBy(asked_by.to_owned());
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

/// Whether an option of this name holds a secret.
fn is_secret(name: &str) -> bool {
    SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::{sink::parse_transforms, *};
    use crate::api::{
        manifest::load_manifests,
        worker::{Encoding, EventTime, Heartbeat, Quantile, Term, Transform, TransformKind},
    };

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
            (
                "source: {format: Json, kafka: {bootstrapServers: 'k:1', topics: [a]}, heartbeatTopic: h}\n",
                ["heartbeatTopic", "source.format"],
            ),
            (
                "source: {format: DebeziumJson, kafka: {bootstrapServers: 'k:1', topics: [a]}, heartbeatTopic: h, heartbeatTable: t}\n",
                ["heartbeatTopic", "heartbeatTable"],
            ),
        ];
        for (extra, names) in cases {
            let told = refused(&format!("{extra}{SINK}"));
            assert!(names.iter().all(|name| told.contains(name)), "{told}");
        }
    }

    #[test]
    fn terms_come_with_what_they_need() {
        let with = |source: &str, finalization: &str| {
            let source = SOURCE.replace("{format", &format!("{{{source}format"));
            format!("{source}{SINK}finalization: {{{finalization}}}\n")
        };
        for (source, finalization, names) in [
            ("", "terms: [Percentile]", ["terms", "quantile"]),
            ("", "quantile: 0.01", ["terms", "quantile"]),
            ("", "terms: [Heartbeat]", ["terms", "heartbeatTable"]),
            ("", "terms: [Resolved]", ["terms", "source.format"]),
            (
                "heartbeatTable: h, ",
                "terms: [Minimum]",
                ["terms", "heartbeatTable"],
            ),
            (
                "heartbeatTopic: h, ",
                "terms: [Minimum]",
                ["terms", "heartbeatTopic"],
            ),
        ] {
            let told = refused(&with(source, finalization));
            assert!(names.iter().all(|name| told.contains(name)), "{told}");
        }
        for wrong in ["0.02", "1", "'0.01'"] {
            let told = refused(&with(
                "",
                &format!("terms: [Percentile], quantile: {wrong}"),
            ));
            assert!(
                told.contains("0.001, 0.01, 0.05") || told.contains("number"),
                "{told}"
            );
        }
        let spec = resolved(&with("", "terms: [Percentile, Clock], quantile: 0.001"));
        assert_eq!(spec.finalization.quantile, Some(Quantile::Permille));
        let back = EffectiveSpec::from_yaml(&spec.to_yaml()).unwrap();
        assert_eq!(back, spec, "{}", spec.to_yaml());
    }

    /// Whoever names a heartbeat table need not know the term for it.
    #[test]
    fn a_heartbeat_table_takes_the_place_of_what_is_caught_up() {
        let source = SOURCE.replace("{format", "{heartbeatTable: shop.heartbeat, format");
        let plain = resolved(&format!("{source}{SINK}"));
        assert_eq!(plain.finalization.terms, [Term::Minimum, Term::Heartbeat]);
        let table = Heartbeat::Table("shop.heartbeat".into());
        assert_eq!(plain.source.heartbeat, Some(table));
        for terms in ["[Heartbeat]", "[CaughtUp]", "[CaughtUp, Heartbeat]"] {
            let spec = resolved(&format!("{source}{SINK}finalization: {{terms: {terms}}}\n"));
            assert_eq!(spec.finalization.terms, [Term::Heartbeat], "{terms}");
        }
        let capped = SOURCE.replace(
            "{format",
            "{heartbeatTopic: __debezium-heartbeat.shop, format",
        );
        let capped = resolved(&format!("{capped}{SINK}"));
        assert_eq!(capped.finalization.terms, [Term::Minimum, Term::CaughtUp]);
        let without = resolved(&format!("{SOURCE}{SINK}"));
        assert_ne!(capped.policy_hash(), without.policy_hash());
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

    /// What other clients take as properties has a field or a reference here; its value may be a secret and is not shown.
    #[test]
    fn secrets_of_a_store_are_refused_by_name_with_the_remedy() {
        for (name, remedy) in [
            ("s3.access-key-id", "storage.accessKeyIdRef"),
            ("s3.secret-access-key", "storage.secretAccessKeyRef"),
            ("client.secret-access-key", "storage.secretAccessKeyRef"),
            ("s3.session-token", "storage.sessionTokenRef"),
            ("s3.endpoint", "storage.endpoint"),
            ("client.region", "storage.region"),
            ("s3.sse.key", "encryption of the bucket"),
            ("s3.acl", "it has no such field"),
            ("header.Authorization", "credentialRef"),
            ("token", "credentialRef"),
        ] {
            let told = refused(&format!(
                "{SOURCE}sink: {{table: a.b, catalog: {{type: Rest, uri: 'http://c', properties: {{{name}: hush}}}}}}\n"
            ));
            assert!(told.contains(&format!("properties[{name}]")), "{told}");
            assert!(told.contains(remedy) && !told.contains("hush"), "{told}");
        }
    }

    #[test]
    fn a_store_is_opened_by_a_whole_key_or_by_none() {
        let sink = |storage: &str| {
            format!(
                "{SOURCE}sink: {{table: a.b, catalog: {{type: Rest, uri: 'http://c', storage: {{{storage}}}}}}}\n"
            )
        };
        let id = "accessKeyIdRef: {name: n, key: i}";
        let secret = "secretAccessKeyRef: {name: n, key: s}";
        for (storage, names) in [
            (id.to_owned(), ["accessKeyIdRef", "secretAccessKeyRef"]),
            (
                "sessionTokenRef: {name: n, key: t}".to_owned(),
                ["sessionTokenRef", "accessKeyIdRef"],
            ),
            (
                "caRef: {name: n, key: c}, endpoint: 'http://store'".to_owned(),
                ["caRef", "endpoint"],
            ),
        ] {
            let told = refused(&sink(&storage));
            assert!(names.iter().all(|name| told.contains(name)), "{told}");
        }
        let spec = resolved(&sink(&format!("{id}, {secret}, pathStyleAccess: true")));
        let refs: Vec<String> = spec.secret_refs().map(ToString::to_string).collect();
        assert_eq!(refs, ["n/i", "n/s"]);
        assert!(
            spec.sink
                .catalog
                .storage
                .as_ref()
                .unwrap()
                .path_style_access
        );
        assert_eq!(EffectiveSpec::from_yaml(&spec.to_yaml()).unwrap(), spec);
    }

    #[test]
    fn brokers_are_reached_as_the_protocol_says_and_no_half_of_it() {
        let source = |security: &str| {
            format!(
                "source: {{format: DebeziumJson, kafka: {{bootstrapServers: 'k:1', topics: [a], security: {{{security}}}}}}}\n{SINK}"
            )
        };
        let sasl = "sasl: {mechanism: ScramSha512, username: u, passwordRef: {name: n, key: p}}";
        for (security, names) in [
            (sasl.to_owned(), ["protocol", "sasl"]),
            (
                "protocol: SaslSsl".to_owned(),
                ["sasl: is missing", "username"],
            ),
            (
                "protocol: SaslSsl, sasl: {mechanism: Plain, username: u}".to_owned(),
                ["sasl.passwordRef: is missing", "of this username"],
            ),
            (
                "tls: {caRef: {name: n, key: c}}".to_owned(),
                ["protocol", "tls"],
            ),
            (
                "protocol: Ssl, tls: {certificateRef: {name: n, key: c}}".to_owned(),
                ["certificateRef", "keyRef"],
            ),
            (
                "protocol: Ssl, tls: {keyPasswordRef: {name: n, key: c}}".to_owned(),
                ["keyPasswordRef", "keyRef"],
            ),
        ] {
            let told = refused(&source(&security));
            assert!(names.iter().all(|name| told.contains(name)), "{told}");
        }
        let spec = resolved(&source(&format!("protocol: SaslSsl, {sasl}")));
        assert_eq!(spec.secret_refs().count(), 1);
        assert_eq!(EffectiveSpec::from_yaml(&spec.to_yaml()).unwrap(), spec);
        // What says nothing is not written: the hash of what runs stays what it was.
        assert_eq!(
            resolved(&source("protocol: Plaintext")).source.security,
            None
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
        assert!(
            told.contains("Millis") && told.contains("schema[0].encoding"),
            "{told}"
        );
        let spec = resolved(&sink("{name: at, type: timestamp, encoding: Micros}"));
        assert_eq!(
            spec.sink.schema.unwrap()[0].encoding,
            Some(Encoding::Micros)
        );
        let told = refused(&sink("{name: at, type: int, encoding: Micros}"));
        assert!(told.contains("is no encoding of type int"), "{told}");
    }

    /// Each format of TiCDC writes values in its own way; a commit time they all have.
    #[test]
    fn formats_of_ticdc_say_how_values_are_usually_written() {
        use Encoding::{Base64, Days, Iso, Latin1, Micros, Plain};
        let columns = "[{name: a, type: 'decimal(12,2)'}, {name: b, type: date}, {name: c, type: time}, \
                       {name: d, type: timestamptz}, {name: e, type: binary}, {name: f, type: long}]";
        for (format, usual) in [
            ("CanalJson", [Plain, Iso, Iso, Iso, Latin1]),
            ("TicdcSimpleJson", [Plain, Iso, Iso, Iso, Base64]),
            ("TicdcDebeziumJson", [Plain, Days, Micros, Iso, Base64]),
        ] {
            let source = SOURCE.replace("DebeziumJson", format);
            let sink = |columns: &str| {
                format!(
                    "{source}sink: {{table: a.b, catalog: {{type: Rest, uri: 'http://c'}}, schema: {columns}}}\n"
                )
            };
            let spec = if format == "CanalJson" {
                // Read in the wrong zone, every value would be off by hours.
                let told = refused(&sink(columns));
                assert!(
                    told.contains("--tz=UTC") && told.contains("schema[3].encoding"),
                    "{told}"
                );
                let said = "type: timestamptz, encoding: Iso";
                resolved(&sink(&columns.replace("type: timestamptz", said)))
            } else {
                resolved(&sink(columns))
            };
            assert_eq!(spec.event_time, EventTime::SourceCommit);
            let schema = spec.sink.schema.unwrap();
            let found: Vec<_> = schema.iter().map(|column| column.encoding).collect();
            let usual: Vec<_> = usual.map(Some).into_iter().chain([None]).collect();
            assert_eq!(found, usual, "{format}");
        }
    }

    #[test]
    fn columns_may_not_look_like_metadata() {
        let sink = "sink: {table: a.b, catalog: {type: Rest, uri: 'http://c'}, schema: [{name: _CDC_op, type: int}]}\n";
        assert!(refused(&format!("{SOURCE}{sink}")).contains("metadataPrefix"));
    }
}
