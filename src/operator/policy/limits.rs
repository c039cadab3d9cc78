//! What of a specification is beyond the limits of a policy.
//!
//! What is looked at is what runs: a built-in value beyond a limit is beyond it like any other. What a policy has overridden is
//! exempt. The API server tells the same of what a pipeline says itself, in the same words.
//!
//! A limit that cannot be read binds nothing, and neither do the others of its policy: see [`Limits::new`].

use std::{fmt, sync::Arc};

use serde_json::Value;

use crate::api::{
    effective::{Broken, Layered, Leaf, Origin},
    manifest::shown,
    policy::{LimitsSpec, PolicyMode},
    quantity::{parse_bytes, parse_cpu_millis, parse_length_us},
    worker::Quantile,
};

/// How values are compared with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Lengths of time, from `min` to `max`.
    Lengths,
    /// Whole numbers, from `min` to `max`.
    Counts,
    /// A size at most.
    Size,
    /// An amount of CPU at most.
    Cpu,
    /// A share of rows at most.
    Share,
    /// Each entry is one of these.
    Names,
    /// Each entry matches one of these patterns.
    Patterns,
    /// The same for addresses, which are told without who logs in there: it may hold a password.
    Addresses,
    /// The same for entries that stand in one text, separated by commas.
    PatternsOfList,
    /// It cannot be held against the patterns.
    Incomparable,
}

/// Every limit, with the fields that it bounds below `spec`. What ends with `Ref.name` names a secret wherever it stands.
pub(super) const RULES: [(&str, Kind, &[&str]); 20] = [
    ("terms", Kind::Names, &["finalization.terms"]),
    ("quantile", Kind::Share, &["finalization.quantile"]),
    (
        "allowedLateness",
        Kind::Lengths,
        &["finalization.allowedLateness"],
    ),
    ("maxDelay", Kind::Lengths, &["finalization.maxDelay"]),
    (
        "maxFutureSkew",
        Kind::Lengths,
        &["finalization.maxFutureSkew"],
    ),
    (
        "windowCommits",
        Kind::Counts,
        &["finalization.windowCommits"],
    ),
    ("commitInterval", Kind::Lengths, &["sink.commit.interval"]),
    ("replicas", Kind::Counts, &["worker.replicas"]),
    ("memoryBudget", Kind::Size, &["worker.memoryBudget"]),
    (
        "cpu",
        Kind::Cpu,
        &[
            "worker.resources.requests.cpu",
            "worker.resources.limits.cpu",
        ],
    ),
    (
        "memory",
        Kind::Size,
        &[
            "worker.resources.requests.memory",
            "worker.resources.limits.memory",
        ],
    ),
    (
        "brokers",
        Kind::PatternsOfList,
        &["source.kafka.bootstrapServers"],
    ),
    (
        "topics",
        Kind::Patterns,
        &[
            "source.kafka.topics",
            "source.deadLetter.topic",
            "source.heartbeatTopic",
            "source.heartbeatTable",
        ],
    ),
    ("topics", Kind::Incomparable, &["source.kafka.topicPattern"]),
    (
        "protocols",
        Kind::Names,
        &["source.kafka.security.protocol"],
    ),
    ("catalogs", Kind::Addresses, &["sink.catalog.uri"]),
    (
        "stores",
        Kind::Addresses,
        &["sink.catalog.storage.endpoint"],
    ),
    ("tables", Kind::Patterns, &["sink.table"]),
    (
        "serviceAccounts",
        Kind::Patterns,
        &["worker.serviceAccountName"],
    ),
    ("secrets", Kind::Patterns, &["*Ref.name"]),
];

/// A value beyond a limit of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The policy.
    pub policy: Arc<str>,
    /// What becomes of the pipeline.
    pub mode: PolicyMode,
    /// Which field, as `spec.finalization.maxDelay`.
    pub field: String,
    /// Its value; of a list the entries beyond the limit.
    pub value: String,
    /// Who said the value.
    pub origin: Origin,
    /// What would be right, as `at most 1h`.
    pub allowed: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.field, self.value)?;
        if self.origin != Origin::Pipeline {
            write!(f, " ({})", self.origin)?;
        }
        write!(
            f,
            "; the policy \"{}\" allows {}",
            self.policy, self.allowed
        )
    }
}

/// The limits of one policy, read and checked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Limits {
    bounds: Vec<(Kind, &'static [&'static str], Bound)>,
}

/// What a limit asks for; each amount with its text.
#[derive(Debug, Clone, PartialEq)]
enum Bound {
    Between(Option<(u64, String)>, Option<(u64, String)>),
    Names(Vec<String>),
    Patterns(Vec<String>),
}

impl Limits {
    /// Reads limits, or says everything that is wrong with them; then none of them binds.
    pub(super) fn new(spec: &LimitsSpec) -> Result<Self, Vec<Broken>> {
        let written = serde_json::to_value(spec).expect("limits are valid JSON");
        let mut broken = Vec::new();
        let mut bounds = Vec::new();
        for (name, kind, fields) in RULES {
            if let Some(said) = written.get(name) {
                let path = format!("spec.limits.{name}");
                bounds.push((kind, fields, bound(&path, kind, said, &mut broken)));
            }
        }
        if broken.is_empty() {
            Ok(Self { bounds })
        } else {
            Err(broken)
        }
    }

    /// What is beyond the limits, field by field, in a namespace. What a policy has overridden is not looked at.
    pub(super) fn check(
        &self,
        layered: &Layered,
        namespace: &str,
        (policy, mode): (&Arc<str>, PolicyMode),
    ) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (kind, fields, bound) in &self.bounds {
            for leaf in fields.iter().flat_map(|field| looked_at(layered, field)) {
                if matches!(leaf.origin, Origin::Override(_)) {
                    continue;
                }
                let beyond = bound.beyond(*kind, &leaf.value, namespace);
                violations.extend(beyond.map(|value| Violation {
                    policy: Arc::clone(policy),
                    mode,
                    field: leaf.path,
                    value,
                    origin: leaf.origin,
                    allowed: bound.allowed(*kind, namespace),
                }));
            }
        }
        violations
    }
}

/// The leaves that a field of [`RULES`] stands for.
fn looked_at(layered: &Layered, field: &str) -> Vec<Leaf> {
    if let Some(ending) = field.strip_prefix('*') {
        let leaves = layered.leaves().into_iter();
        return leaves.filter(|leaf| leaf.path.ends_with(ending)).collect();
    }
    let keys: Vec<&str> = field.split('.').collect();
    let found = layered.get(&keys).map(|(value, origin)| Leaf {
        path: format!("spec.{field}"),
        value: value.clone(),
        origin: origin.clone(),
    });
    found.into_iter().collect()
}

fn bound(path: &str, kind: Kind, said: &Value, broken: &mut Vec<Broken>) -> Bound {
    let mut read = |path: &str, said: Option<&Value>| {
        let said = said?;
        let amount = amount(kind, said);
        if amount.is_none() {
            broken.push(Broken::new(
                path,
                Some(shown(said)),
                "cannot be read",
                kind.form(),
            ));
        }
        Some((amount?, plain(said)))
    };
    match kind {
        Kind::Names => Bound::Names(texts(said)),
        Kind::Patterns | Kind::Addresses | Kind::PatternsOfList | Kind::Incomparable => {
            Bound::Patterns(texts(said))
        }
        Kind::Size | Kind::Cpu | Kind::Share => Bound::Between(None, read(path, Some(said))),
        Kind::Lengths | Kind::Counts => {
            let [least, most] =
                ["min", "max"].map(|end| read(&format!("{path}.{end}"), said.get(end)));
            if let (Some((min, _)), Some((max, most))) = (&least, &most)
                && min > max
            {
                let problem = format!("is above max: {most}");
                let remedy = "write a min that is at most max: no value could be right";
                let value = Some(shown(&said["min"]));
                broken.push(Broken::new(&format!("{path}.min"), value, problem, remedy));
            }
            Bound::Between(least, most)
        }
    }
}

impl Kind {
    /// How such a limit is written.
    fn form(self) -> &'static str {
        match self {
            Self::Lengths => "write a length, as 90s, 5m or 7d",
            Self::Counts => "write a whole number",
            Self::Size => "write a size, as 512Mi",
            Self::Cpu => "write an amount of CPU, as 500m or 2",
            Self::Share => "write 0.001, 0.01 or 0.05",
            Self::Names
            | Self::Patterns
            | Self::Addresses
            | Self::PatternsOfList
            | Self::Incomparable => "write a list of texts",
        }
    }
}

/// An amount that can be compared with others of its kind.
fn amount(kind: Kind, value: &Value) -> Option<u64> {
    match kind {
        Kind::Lengths => parse_length_us(value.as_str()?)?.try_into().ok(),
        Kind::Counts => value.as_u64(),
        Kind::Size => parse_bytes(value.as_str()?),
        Kind::Cpu => parse_cpu_millis(value.as_str()?).map(u64::from),
        Kind::Share => {
            let share = Quantile::try_from(value.as_f64()?).ok()?;
            let rank = Quantile::ALL.iter().position(|one| *one == share)?;
            rank.try_into().ok()
        }
        Kind::Names
        | Kind::Patterns
        | Kind::Addresses
        | Kind::PatternsOfList
        | Kind::Incomparable => None,
    }
}

/// A value as a manifest has it.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The texts of a list, or the one text.
fn texts(value: &Value) -> Vec<String> {
    let entries = value
        .as_array()
        .map_or(std::slice::from_ref(value), Vec::as_slice);
    entries.iter().map(plain).collect()
}

impl Bound {
    /// What of a value is beyond the limit. A value that cannot be read is wrong by itself, and told elsewhere.
    fn beyond(&self, kind: Kind, value: &Value, namespace: &str) -> Option<String> {
        let entries: Vec<String> = match self {
            Self::Between(least, most) => {
                let found = amount(kind, value)?;
                let below = least.as_ref().is_some_and(|(least, _)| found < *least);
                let above = most.as_ref().is_some_and(|(most, _)| found > *most);
                return (below || above).then(|| plain(value));
            }
            Self::Names(names) => {
                let entries = texts(value).into_iter();
                entries.filter(|text| !names.contains(text)).collect()
            }
            Self::Patterns(patterns) => {
                let text = plain(value);
                let entries = match kind {
                    Kind::PatternsOfList => {
                        text.split(',').map(|one| one.trim().to_owned()).collect()
                    }
                    _ => texts(value),
                };
                let patterns: Vec<String> = filled(patterns, namespace);
                let fits = |text: &String| patterns.iter().any(|pattern| matches(pattern, text));
                let comparable = kind != Kind::Incomparable;
                let beyond = |text: &String| !(comparable && fits(text));
                let beyond = entries.into_iter().filter(beyond);
                if kind == Kind::Addresses {
                    beyond.map(|address| without_user(&address)).collect()
                } else {
                    beyond.collect()
                }
            }
        };
        (!entries.is_empty()).then(|| cut(&entries.join(", ")))
    }

    /// What the limit allows, in words.
    fn allowed(&self, kind: Kind, namespace: &str) -> String {
        let only = |entries: &[String]| match entries {
            [] => "none".to_owned(),
            entries => format!("only {}", cut(&entries.join(", "))),
        };
        match self {
            Self::Between(Some((_, least)), Some((_, most))) => format!("{least} to {most}"),
            Self::Between(Some((_, least)), None) => format!("at least {least}"),
            Self::Between(None, Some((_, most))) => format!("at most {most}"),
            Self::Between(None, None) => "any".to_owned(),
            Self::Names(names) => only(names),
            Self::Patterns(patterns) if kind == Kind::Incomparable => {
                let patterns = cut(&filled(patterns, namespace).join(", "));
                format!("only topics by name, and of these {patterns}")
            }
            Self::Patterns(patterns) => only(&filled(patterns, namespace)),
        }
    }
}

/// An address without who logs in there: `http://…@host`. The API server shows it in the same way.
fn without_user(address: &str) -> String {
    let Some((_, host)) = address.rsplit_once('@') else {
        return address.to_owned();
    };
    let before = address.split('@').next().unwrap_or_default();
    let scheme = before
        .split_once("://")
        .map(|(scheme, _)| format!("{scheme}://"));
    format!("{}…@{host}", scheme.unwrap_or_default())
}

/// How many characters of a list are told.
pub(super) const CUT: usize = 200;

/// A text on one line, cut where it is long.
fn cut(text: &str) -> String {
    match text.char_indices().nth(CUT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Patterns with the namespace in the place of its name.
fn filled(patterns: &[String], namespace: &str) -> Vec<String> {
    let filled = patterns
        .iter()
        .map(|pattern| pattern.replace("{namespace}", namespace));
    filled.collect()
}

/// Whether the whole text matches, `*` being any number of characters.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    // The earliest place for each part leaves the most for those behind it.
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;
    use serde_json::json;

    use super::*;
    use crate::api::{
        custom_resource_definitions,
        effective::{PolicyLayers, layered},
        parse_manifests,
        pipeline::IngestionPipeline,
    };

    const COMMIT: &str = "commit: {interval: 9s}";

    /// Limits, what the pipeline says, what is told of it, what is allowed.
    const CASES: [(&str, &str, &str, &str); 22] = [
        (
            "terms: [Minimum]",
            "finalization: {terms: [Minimum, Clock]}",
            "finalization.terms is Clock",
            "only Minimum",
        ),
        (
            "quantile: 0.01",
            "finalization: {terms: [Percentile], quantile: 0.05}",
            "finalization.quantile is 0.05",
            "at most 0.01",
        ),
        (
            "allowedLateness: {max: 7d}",
            "finalization: {allowedLateness: 168h}",
            "",
            "",
        ),
        (
            "allowedLateness: {min: 10m}",
            "",
            "finalization.allowedLateness is 5m (built-in)",
            "at least 10m",
        ),
        (
            "maxDelay: {max: 1h}",
            "finalization: {maxDelay: 3601s}",
            "finalization.maxDelay is 3601s",
            "at most 1h",
        ),
        (
            "maxDelay: {max: 60m}",
            "finalization: {maxDelay: 1h}",
            "",
            "",
        ),
        (
            "maxFutureSkew: {max: 1m}",
            "",
            "finalization.maxFutureSkew is 5m (built-in)",
            "at most 1m",
        ),
        (
            "windowCommits: {min: 4}",
            "finalization: {windowCommits: 3}",
            "finalization.windowCommits is 3",
            "at least 4",
        ),
        (
            "commitInterval: {min: 10s, max: 1m}",
            COMMIT,
            "sink.commit.interval is 9s",
            "10s to 1m",
        ),
        (
            "replicas: {max: 2}",
            "worker: {replicas: 3}",
            "worker.replicas is 3",
            "at most 2",
        ),
        (
            "memoryBudget: 1G",
            "worker: {memoryBudget: 1Gi}",
            "worker.memoryBudget is 1Gi",
            "at most 1G",
        ),
        (
            "cpu: 1500m",
            "worker: {resources: {requests: {cpu: '1.5'}, limits: {cpu: '2'}}}",
            "worker.resources.limits.cpu is 2",
            "at most 1500m",
        ),
        (
            "memory: 1Gi",
            "worker: {resources: {limits: {memory: 1025Mi}}}",
            "worker.resources.limits.memory is 1025Mi",
            "at most 1Gi",
        ),
        (
            "brokers: ['a.*:9092']",
            "",
            "source.kafka.bootstrapServers is b.kafka:9092",
            "only a.*:9092",
        ),
        (
            "topics: ['{namespace}.*', 'shared.*']",
            "",
            "source.kafka.topics is hr.pay",
            "only shop.*, shared.*",
        ),
        (
            "protocols: [Ssl, SaslSsl]",
            "",
            "source.kafka.security.protocol is Plaintext (built-in)",
            "only Ssl, SaslSsl",
        ),
        ("catalogs: ['http://*:8181']", "", "", ""),
        (
            "stores: ['https://*.example.org']",
            "",
            "sink.catalog.storage.endpoint is http://elsewhere:9000",
            "only https://*.example.org",
        ),
        (
            "tables: ['lake.{namespace}.*']",
            "",
            "sink.table is shop.orders",
            "only lake.shop.*",
        ),
        ("serviceAccounts: [writer-*]", "", "", ""),
        (
            "serviceAccounts: [writer-*]",
            "worker: {serviceAccountName: admin}",
            "worker.serviceAccountName is admin",
            "only writer-*",
        ),
        (
            "secrets: []",
            "",
            "sink.catalog.credentialRef.name is shop-catalog",
            "none",
        ),
    ];

    /// A pipeline of the namespace shop: `extra` stands below its `spec`, `sink` in its sink.
    fn pipeline(sink: &str, extra: &str) -> IngestionPipeline {
        let text = format!(
            "apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: orders, namespace: shop}}
spec:
  source: {{format: DebeziumJson, kafka: {{bootstrapServers: 'a.kafka:9092, b.kafka:9092', topics: [shop.orders, hr.pay]}}, deadLetter: {{topic: shop.dead}}}}
  sink: {{table: shop.orders, catalog: {{type: Rest, uri: 'http://catalog:8181', credentialRef: {{name: shop-catalog, key: c}}, storage: {{endpoint: 'http://elsewhere:9000'}}}}, {sink}}}
  {extra}"
        );
        parse_manifests(&text)
            .unwrap_or_else(|faults| panic!("{faults:?}"))
            .remove(0)
    }

    fn told(limits: &str, pipeline: &IngestionPipeline) -> Vec<String> {
        let limits = Limits::new(&serde_yaml::from_str(limits).unwrap());
        let limits = limits.unwrap_or_else(|broken| panic!("{broken:?}"));
        let layered = layered(pipeline, &PolicyLayers::default());
        let policy = "gold".into();
        let violations = limits.check(&layered, "shop", (&policy, PolicyMode::Enforce));
        violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_limit_is_told_with_field_value_and_what_is_allowed() {
        for (limits, extra, found, allowed) in CASES {
            let pipeline = if extra == COMMIT {
                pipeline(extra, "")
            } else {
                pipeline("", extra)
            };
            let expected = format!("spec.{found}; the policy \"gold\" allows {allowed}");
            let expected: &[String] = if found.is_empty() { &[] } else { &[expected] };
            assert_eq!(told(limits, &pipeline), expected, "{limits} {extra}");
        }
        for (name, ..) in RULES {
            assert!(
                CASES.iter().any(|(limits, ..)| limits.starts_with(name)),
                "{name} has no case"
            );
        }
    }

    #[test]
    fn every_topic_that_is_touched_is_looked_at_and_a_pattern_is_none() {
        let mut pipeline = pipeline("", "");
        pipeline.spec.source.kafka.topics = None;
        pipeline.spec.source.kafka.topic_pattern = Some("shop.*".into());
        pipeline.spec.source.heartbeat_topic = Some("beats".into());
        let expected = [
            r#"spec.source.heartbeatTopic is beats; the policy "gold" allows only shop.*"#,
            r#"spec.source.kafka.topicPattern is shop.*; the policy "gold" allows only topics by name, and of these shop.*"#,
        ];
        assert_eq!(told("topics: ['{namespace}.*']", &pipeline), expected);
    }

    /// A policy whose limits are half understood would let through what it means to stop.
    #[test]
    fn limits_that_cannot_be_read_are_all_named() {
        let spec: LimitsSpec = serde_yaml::from_str(
            "maxDelay: {min: 2h, max: 90m}\nreplicas: {min: 3, max: 2}\nmemory: 1Zi\ncpu: many\nallowedLateness: {max: 5 minutes}",
        )
        .unwrap();
        let broken = Limits::new(&spec).unwrap_err().into_iter();
        let told: Vec<String> = broken
            .map(|broken| broken.alone("gold").to_string())
            .collect();
        let expected = [
            r#"gold: spec.limits.allowedLateness.max: "5 minutes": cannot be read; write a length, as 90s, 5m or 7d"#,
            r#"gold: spec.limits.maxDelay.min: "2h": is above max: 90m; write a min that is at most max: no value could be right"#,
            r"gold: spec.limits.replicas.min: 3: is above max: 2; write a min that is at most max: no value could be right",
            r#"gold: spec.limits.cpu: "many": cannot be read; write an amount of CPU, as 500m or 2"#,
            r#"gold: spec.limits.memory: "1Zi": cannot be read; write a size, as 512Mi"#,
        ];
        assert_eq!(told, expected);
    }

    /// The schema of the specification of one kind.
    fn schema(kind: &str) -> Value {
        let definitions = custom_resource_definitions();
        let parsed = definitions
            .iter()
            .map(|(_, text)| serde_yaml::from_str::<Value>(text).unwrap());
        let mut parsed = parsed.filter(|definition| definition["spec"]["names"]["kind"] == kind);
        let schema = &parsed.next().unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        schema["properties"]["spec"].clone()
    }

    /// A limit that the table does not know would be accepted and bind nothing; a field that does not exist would never be bound.
    #[test]
    fn table_of_limits_is_that_of_the_schema() {
        let policy = schema("IngestionPolicy");
        let limits = policy["properties"]["limits"]["properties"]
            .as_object()
            .unwrap();
        let mut known: Vec<&str> = limits.keys().map(String::as_str).collect();
        known.sort_unstable();
        let mut named = RULES.map(|(name, ..)| name).to_vec();
        named.sort_unstable();
        named.dedup();
        assert_eq!(named, known);
        let pipeline = schema("IngestionPipeline");
        let fields = RULES.iter().flat_map(|(.., fields)| *fields);
        for field in fields.filter(|field| !field.starts_with('*')) {
            let found = field
                .split('.')
                .fold(&pipeline, |schema, name| &schema["properties"][name]);
            assert!(found.is_object(), "{field} is no field of a pipeline");
        }
    }

    /// Every field of a schema that names a secret, as keys.
    fn references(schema: &Value, path: &[String], found: &mut Vec<Vec<String>>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path: Vec<String> = path.iter().chain([name]).cloned().collect();
            if name.ends_with("Ref") {
                found.push(path.clone());
            }
            references(field, &path, found);
        }
    }

    /// A reference that is not looked at would open any secret of its namespace.
    #[test]
    fn every_reference_to_a_secret_is_bound() {
        let mut found = Vec::new();
        references(&schema("IngestionPipeline"), &[], &mut found);
        assert!(found.len() >= 10, "{found:?}");
        let limits: LimitsSpec = serde_yaml::from_str("secrets: ['shop-*']").unwrap();
        let limits = Limits::new(&limits).unwrap();
        for path in found {
            let named = json!({"name": "other", "key": "k"});
            let own = path
                .iter()
                .rev()
                .fold(named, |value, key| json!({key: value}));
            let layered = Layered::new([(Origin::BuiltIn, &json!({})), (Origin::Pipeline, &own)]);
            let policy = ("gold".into(), PolicyMode::Enforce);
            let told = limits.check(&layered, "shop", (&policy.0, policy.1));
            let fields: Vec<&str> = told.iter().map(|told| told.field.as_str()).collect();
            assert_eq!(fields, [format!("spec.{}.name", path.join("."))]);
        }
    }

    proptest! {
        /// The oracle is a regular expression.
        #[test]
        fn prop_patterns_match_as_expressions_do(pattern in "[ab.*]{0,6}", text in "[ab.]{0,8}") {
            let expression = format!("^{}$", regex::escape(&pattern).replace(r"\*", ".*"));
            prop_assert_eq!(matches(&pattern, &text), Regex::new(&expression).unwrap().is_match(&text));
        }

        /// Texts of one amount are bound alike, whatever the unit.
        #[test]
        fn prop_lengths_are_compared_as_amounts(found in 0..20_000_u64, limit in 0..20_000_u64) {
            let forms = |seconds: u64| [
                format!("{seconds}s"),
                format!("{}m{}s", seconds / 60, seconds % 60),
                format!("{}h{}s", seconds / 3_600, seconds % 3_600),
                format!("{}ms", seconds * 1_000),
            ];
            for limit_text in forms(limit) {
                let bound = Bound::Between(None, Some((limit * 1_000_000, limit_text)));
                for text in forms(found) {
                    let beyond = bound.beyond(Kind::Lengths, &json!(text), "shop");
                    prop_assert_eq!(beyond, (found > limit).then_some(text));
                }
            }
        }
    }
}
