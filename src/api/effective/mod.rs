//! From a manifest to its effective specification: built-in defaults below, the manifest above, then every rule between fields.
//!
//! The layers are merged leaf by leaf before anything is read, so a further layer is one more merge. The result leaves
//! nothing open, and whoever holds one need not check it again.
//!
//! A bad combination is refused with the names of both fields; nothing is corrected silently.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    manifest::{Fault, shown},
    pipeline::{BytesText, FinalizationSpec, IngestionPipeline, IngestionPipelineSpec, LengthText},
    pod::WorkerSpec,
    quantity::{bytes, length, parse_bytes, parse_instant_us, parse_length_us},
    worker::{
        AlsoWrite, CompleteFrom, EffectiveSpec, EventTime, Finalization, Format, Heartbeat, Sink,
        Source, Term, WorkerShare,
    },
};
use crate::watermark::{Grid, NoGrid};

mod sink;
mod source;

pub use sink::METADATA_COLUMNS;
pub use source::REFUSED_KAFKA_PROPERTIES;

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
    let finalization = spec.finalization.clone().unwrap_or_default();
    let sink = Sink {
        also_write: rules.also_write(&finalization),
        ..rules.sink(&spec.sink, spec.source.format)
    };
    let source = rules.source(&spec.source, format!("tidemark.{dotted}"));
    let event_time = rules.event_time(&spec);
    let resolved = EffectiveSpec {
        uid: pipeline.uid().unwrap_or_else(|| dotted.clone()),
        writer_id: spec.sink.writer.clone().unwrap_or_else(|| dotted.clone()),
        finalization: rules.finalization(&finalization, &source, &event_time),
        event_time,
        source,
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

    fn finalization(
        &mut self,
        spec: &FinalizationSpec,
        source: &Source,
        event_time: &EventTime,
    ) -> Finalization {
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
        if let (Some(zone), Some(cell_us)) = (&spec.zone, cell_us) {
            match Grid::in_zone(cell_us, Some(zone)) {
                Err(NoGrid::Zoned { .. }) => self.refuse_pair(
                    [&at("zone"), &at("cell")],
                    "zone goes with cell: 1d",
                    "write cell: 1d, or leave the zone out",
                ),
                Err(NoGrid::Zone { .. }) => self.refuse(
                    &at("zone"),
                    zone,
                    "is no zone of the tz database",
                    "write a name as Europe/Berlin, or leave it out for UTC",
                ),
                Err(NoGrid::Length { .. }) | Ok(_) => {}
            }
        }
        Finalization {
            cell_us: cell_us.unwrap_or_default(),
            zone: spec.zone.clone(),
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
            terms: self.terms(spec, source, event_time),
            quantile: spec.quantile,
            complete_from: spec
                .complete_from
                .as_deref()
                .and_then(|text| self.complete_from(text)),
            late_data: spec.late_data.expect("the built-in defaults name one"),
            on_join: spec.on_join.expect("the built-in defaults name one"),
        }
    }

    /// The admitted terms; a heartbeat table takes the place of what is caught up.
    fn terms(
        &mut self,
        spec: &FinalizationSpec,
        source: &Source,
        event_time: &EventTime,
    ) -> Vec<Term> {
        let mut terms = spec.terms.clone().unwrap_or_default();
        let path = "spec.finalization.terms";
        if terms.iter().collect::<BTreeSet<_>>().len() < terms.len() {
            let text: Vec<&str> = terms.iter().map(Into::into).collect();
            self.refuse(
                path,
                &text.join(", "),
                "names a term twice",
                "name each once",
            );
        }
        let by_table = matches!(source.heartbeat, Some(Heartbeat::Table(_)));
        if by_table && !terms.contains(&Term::Heartbeat) {
            let caught_up = terms.iter_mut().filter(|term| **term == Term::CaughtUp);
            caught_up.for_each(|term| *term = Term::Heartbeat);
        } else if by_table {
            terms.retain(|term| *term != Term::CaughtUp);
        }
        let has = |term| terms.contains(&term);
        let by_connector = matches!(source.heartbeat, Some(Heartbeat::Connector(_)));
        let carried = matches!(
            source.format,
            Format::TicdcDebeziumJson | Format::TicdcSimpleJson | Format::CanalJson
        );
        let committed = *event_time == EventTime::SourceCommit;
        let rules = [
            (
                has(Term::Percentile) == spec.quantile.is_some(),
                "spec.finalization.quantile",
                "write Percentile in terms and a quantile, or neither",
            ),
            (
                has(Term::Heartbeat) == by_table,
                "spec.source.heartbeatTable",
                "write Heartbeat in terms and source.heartbeatTable, or neither",
            ),
            (
                has(Term::CaughtUp) || !by_connector,
                "spec.source.heartbeatTopic",
                "write CaughtUp in terms, which the heartbeats cap, or leave the topic out",
            ),
            (
                carried || !has(Term::Resolved),
                "spec.source.format",
                "Resolved is in the formats of TiCDC alone: leave it out",
            ),
            (
                committed || !has(Term::Resolved),
                "spec.eventTime.from",
                "Resolved speaks of commit times: take SourceCommit, or leave it out",
            ),
        ];
        for (_, other, remedy) in rules.into_iter().filter(|(fits, _, _)| !fits) {
            self.refuse_pair([path, other], "do not go together", remedy);
        }
        terms
    }

    fn also_write(&mut self, spec: &FinalizationSpec) -> BTreeSet<AlsoWrite> {
        let systems = spec.also_write.clone().unwrap_or_default();
        let names: BTreeSet<AlsoWrite> = systems.iter().copied().collect();
        if names.len() < systems.len() {
            let text: Vec<&str> = systems.iter().map(Into::into).collect();
            self.refuse(
                "spec.finalization.alsoWrite",
                &text.join(", "),
                "names a system twice",
                "name each once",
            );
        }
        names
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

/// Whether an option of this name holds a secret.
fn is_secret(name: &str) -> bool {
    SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::{sink::parse_transforms, *};
    use crate::api::{
        manifest::load_manifests,
        worker::{Encoding, Quantile, Transform, TransformKind},
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
                    told.contains("--tz=UTC") && told.contains("\"d\""),
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
