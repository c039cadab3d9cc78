//! Every name that Tidemark writes on a table, and what stands there.
//!
//! Properties are the table's claim as of its newest commit; a summary is what one commit brought and published. Both are
//! plain text: engines show them as they are, and `docs/table-contract.md` explains them.
//!
//! A name means the same for ever. What cannot be read is an error, never a claim.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use uuid::Uuid;

use super::advance::{Advanced, Contribution};
use super::amended::{Amended, AmendedCell, LateData};
use super::cells::LateCells;
use super::claim::Claim;
use super::codec::{Detail, Unreadable};
use super::epoch::{Reopened, StepCause};
use super::event_time::{Bounds, SECOND_US};
use super::foreign;
use super::frontier::{FromRule, Heartbeats, OnJoin, Policy, Quantile, Term};
use super::gaps::Gaps;
use super::grid::Grid;
use super::order::{MAX_RETRACTED, Retracted};
use super::state::{AskedPartitions, CompleteFrom, Published, Record, State, missed_until};

/// What every name begins with.
pub const PREFIX: &str = "tidemark.";
/// Property and summary: complete before this instant, `2026-11-30T10:00:00Z`; absent: no claim.
pub const FINALIZED_BEFORE: &str = "tidemark.finalized-before";
/// Property: the same in milliseconds since 1970.
pub const FINALIZED_BEFORE_MS: &str = "tidemark.finalized-before-ms";
/// Property: the newest final cell, for people: `2026-11-30T09`.
pub const LAST_FINAL_CELL: &str = "tidemark.last-final-cell";
/// Property and summary: complete from this instant on, or `unbounded`.
pub const COMPLETE_FROM: &str = "tidemark.complete-from";
/// Property and summary: the terms that the claim rests on, `minimum,caught-up`.
pub const EVIDENCE: &str = "tidemark.evidence";
/// Property: the bounds under which the claim is a theorem, `lateness=5m,delay=10m,skew=5m`.
pub const BOUNDS: &str = "tidemark.bounds";
/// Property: how much disorder beyond the bounds the claim survives.
pub const MARGIN_MS: &str = "tidemark.margin-ms";
/// Property: what the claim leaves out, `[["2026-11-30T04:00:00Z","2026-11-30T06:00:00Z"]]`. Summary: the same with what is
/// still open apart.
pub const GAPS: &str = "tidemark.gaps";
/// Property and summary: a claim falls only from one epoch to the next.
pub const EPOCH: &str = "tidemark.epoch";
/// Property and summary: cells that were final in an earlier epoch and are open again,
/// `{"cause":"topic-joined","from":"2026-11-30T08:00:00Z","before":"2026-11-30T12:00:00Z","at":"2026-11-30T12:07:00Z"}`.
pub const REOPENED: &str = "tidemark.reopened";
/// Property and summary: cells that got rows after they were final,
/// `{"cells":[{"from":"2026-11-30T08:00:00Z","before":"2026-11-30T09:00:00Z","revision":2,"rows":5,"at":"2026-11-30T11:20:00Z"}]}`.
pub const AMENDED: &str = "tidemark.amended";
/// Property: those of them that do not count as final at present, as [`GAPS`] has its stretches.
pub const WITHHELD: &str = "tidemark.withheld";
/// Property and summary: the stretches that were retracted last, all of them among the gaps,
/// `[{"from":"2026-11-30T08:00:00Z","before":"2026-11-30T09:00:00Z","at":"2026-11-30T10:50:00Z","reason":"…"}]`.
pub const RETRACTED: &str = "tidemark.retracted";
/// Property and summary: the commit, a `UUIDv7`. A property counts only while this commit is in the ancestry.
pub const COMMIT_ID: &str = "tidemark.commit-id";
/// Property and summary: the table that the claim is about; void on any other.
pub const TABLE_UUID: &str = "tidemark.table-uuid";
/// Property and summary: the ref that the claim is about; void on any other.
pub const REF: &str = "tidemark.ref";
/// Property and summary: the revision of the settings.
pub const POLICY_REVISION: &str = "tidemark.policy-revision";
/// Summary: the settings in force.
pub const POLICY: &str = "tidemark.policy";
/// Summary, where the table has several writers or this one is drained: what the writer publishes for itself, packed. The other
/// names have the claim of the table then.
pub const WRITER_PUBLISHED: &str = "tidemark.writer-published";
/// Summary, where the table has several writers: the newest commit of each other one, `{"shop.west":"019a…"}`. Theirs may have
/// expired when these are read.
pub const WRITERS: &str = "tidemark.writers";
/// Summary, where the table has several writers: this one's own claim, for people.
pub const WRITER_FINALIZED_BEFORE: &str = "tidemark.writer-finalized-before";
/// Summary: the writer.
pub const WRITER: &str = "tidemark.writer";
/// Summary: the worker that committed.
pub const WORKER: &str = "tidemark.worker";
/// Summary: the installation that runs the writer.
pub const INSTALLATION: &str = "tidemark.installation";
/// Summary: when, by the worker's clock.
pub const COMMITTED_AT: &str = "tidemark.committed-at";
/// Summary: the partitions that the claim ranges over, and when the broker named them.
pub const PARTITIONS_ASKED: &str = "tidemark.partitions-asked";
/// Summary: the next offset of every partition of the writer.
pub const OFFSETS: &str = "tidemark.offsets";
/// Summary: what this commit says of its partitions, packed.
pub const PARTITIONS: &str = "tidemark.partitions";
/// Summary: the source positions of its partitions, packed.
pub const SOURCE_POSITIONS: &str = "tidemark.source-positions";
/// Summary: the writer begins with this commit, and nothing that it committed before counts; `true` or absent.
pub const BEGINS: &str = "tidemark.begins";
/// Summary of a snapshot that takes a claim away from the properties because it no longer counts: the id of that withdrawal,
/// a `UUIDv7`. It is no commit of a writer.
pub const WITHDRAWAL_ID: &str = "tidemark.withdrawal-id";
/// Summary of a withdrawal: why, as the conditions name it.
pub const WITHDRAWN: &str = "tidemark.withdrawn";
/// Summary: rows written.
pub const RECORDS: &str = "tidemark.records";
/// Summary: least event time of the rows with a say.
pub const EVENT_TIME_MIN: &str = "tidemark.event-time.min";
/// Summary: greatest event time of the rows with a say.
pub const EVENT_TIME_MAX: &str = "tidemark.event-time.max";
/// Summary: their median.
pub const EVENT_TIME_P50: &str = "tidemark.event-time.p50";
/// Summary: their 99th percentile.
pub const EVENT_TIME_P99: &str = "tidemark.event-time.p99";
/// Summary: their t-digest, base64 of at most 400 bytes.
pub const EVENT_TIME_DIGEST: &str = "tidemark.event-time.digest";
/// Summary: rows below the claim at the commit's base, by cell.
pub const LATE: &str = "tidemark.late";
/// Summary: rows that their source delivered before.
pub const REPLAYED: &str = "tidemark.replayed";
/// Summary: rows too far in the future.
pub const EXCLUDED_FUTURE: &str = "tidemark.excluded.future";
/// Summary: rows older than the greatest age.
pub const EXCLUDED_PAST: &str = "tidemark.excluded.past";
/// Summary: rows without an event time.
pub const EXCLUDED_MISSING: &str = "tidemark.excluded.missing";
/// Summary: rows of a snapshot.
pub const EXCLUDED_SNAPSHOT: &str = "tidemark.excluded.snapshot";
/// Summary: rows of a topic that joined without taking the claim back, below what was claimed then.
pub const EXCLUDED_BACKFILL: &str = "tidemark.excluded.backfill";
/// Summary: messages that no decoder understood.
pub const EXCLUDED_UNDECODABLE: &str = "tidemark.excluded.undecodable";

/// The most bytes that our part of a summary takes, names included.
pub const MAX_SUMMARY: usize = 24 * 1024;

const UNBOUNDED: &str = "unbounded";

/// The property that holds the state of a writer.
#[must_use]
pub fn state_property(writer: &str) -> String {
    format!("{PREFIX}writer.{writer}.state")
}

/// The property that holds a writer's own claim, where the table has several writers.
#[must_use]
pub fn claim_property(writer: &str) -> String {
    format!("{PREFIX}writer.{writer}.finalized-before")
}

/// The writer whose state a property holds.
#[must_use]
pub fn writer_of(property: &str) -> Option<&str> {
    let writer = property.strip_prefix(PREFIX)?.strip_prefix("writer.")?;
    writer.strip_suffix(".state")
}

/// What a commit does to the table's properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertyChanges {
    /// To set.
    pub set: BTreeMap<String, String>,
    /// To remove, where they are.
    pub remove: Vec<String>,
}

/// A value on the table that is not what its name promises.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
pub enum BadValue {
    /// The name stands there with something else, or is missing.
    #[error("\"{name}\" is not readable: {value:?}")]
    Value {
        /// The name.
        name: String,
        /// What stands there, shortened; `None`: nothing.
        value: Option<String>,
    },
    /// A packed value that this release cannot use.
    #[error("\"{name}\": {source}")]
    Packed {
        /// The name.
        name: String,
        /// Why.
        source: Unreadable,
    },
}

/// A claim as it stands on a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableClaim {
    /// The commit that published it.
    pub commit_id: Uuid,
    /// The table that it is about.
    pub table_uuid: Uuid,
    /// The ref that it is about.
    pub table_ref: String,
    /// The revision of the settings behind it.
    pub policy_revision: u64,
    /// The bounds under which it is a theorem.
    pub bounds: Bounds,
    /// What it says.
    pub claim: Claim,
}

/// What one of our summaries says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnSummary {
    /// The writer.
    pub writer: String,
    /// The worker that committed.
    pub worker: String,
    /// The installation.
    pub installation: String,
    /// The Kafka cluster.
    pub cluster_id: String,
    /// The table.
    pub table_uuid: Uuid,
    /// The ref.
    pub table_ref: String,
    /// What changed.
    pub record: Record,
    /// What the writer published for itself.
    pub published: Published,
    /// What was published of the table: the same where it has one writer.
    pub of_table: Published,
    /// Gaps that were open: topic, partition, from, to.
    pub open_gaps: Vec<OpenStretch>,
    /// Next offset and leader epoch of every partition, and the topics' ids.
    pub offsets: Offsets,
}

/// A gap whose far end was not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenStretch {
    /// Its topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// Where it begins; `None`: nothing before its end can be claimed.
    pub from_us: Option<i64>,
    /// How far it can reach.
    pub to_us: i64,
}

/// The offsets of a writer after a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// Which topics the writer reads, as its owner wrote it.
    pub subscription: String,
    /// The ids of the topics that have one.
    pub topic_ids: BTreeMap<String, Uuid>,
    /// Next offset and leader epoch by topic and partition.
    pub next: BTreeMap<(String, i32), (i64, Option<i32>)>,
}

/// The properties that a commit sets and removes.
#[must_use]
pub fn properties(advanced: &Advanced) -> PropertyChanges {
    let (state, claim) = (&advanced.state, &advanced.claim);
    let mut changes = PropertyChanges::default();
    let claimed = claim.finalized_before_us;
    let withheld = claim.amended.withheld();
    let values = [
        (FINALIZED_BEFORE, claimed.map(iso)),
        (
            FINALIZED_BEFORE_MS,
            claimed.map(|us| us.div_euclid(1000).to_string()),
        ),
        (
            LAST_FINAL_CELL,
            claimed.map(|us| state.policy.grid.last_final(us)),
        ),
        (COMPLETE_FROM, Some(complete_from_text(claim.complete_from))),
        (EVIDENCE, claimed.map(|_| evidence_text(&claim.evidence))),
        (BOUNDS, Some(bounds_text(&state.bounds()))),
        (
            MARGIN_MS,
            claim.margin_us.map(|us| us.div_euclid(1000).to_string()),
        ),
        (
            GAPS,
            (!claim.gaps.is_empty()).then(|| stretches(&claim.gaps).to_string()),
        ),
        (EPOCH, Some(claim.epoch.to_string())),
        (REOPENED, claim.reopened.map(reopened_text)),
        (AMENDED, amended_text(&claim.amended)),
        (
            WITHHELD,
            (!withheld.is_empty()).then(|| stretches(&withheld).to_string()),
        ),
        (RETRACTED, retracted_text(&claim.retracted)),
        (COMMIT_ID, Some(state.commit_id.to_string())),
        (TABLE_UUID, Some(state.identity.table_uuid.to_string())),
        (REF, Some(state.identity.table_ref.clone())),
        (POLICY_REVISION, Some(state.policy.revision.to_string())),
    ];
    for (name, value) in values {
        match value {
            Some(value) => {
                changes.set.insert(name.to_owned(), value);
            }
            None => changes.remove.push(name.to_owned()),
        }
    }
    let own = state.published.finalized_before_us.map(iso);
    let name = claim_property(&state.identity.writer);
    match own.filter(|_| !state.peers.is_empty()) {
        Some(own) => drop(changes.set.insert(name, own)),
        None if state.peers.is_empty() => {}
        None => changes.remove.push(name),
    }
    changes.set.insert(
        state_property(&state.identity.writer),
        advanced.state_text.clone(),
    );
    changes
}

/// What takes a claim away that no longer counts, and the summary of the snapshot that does it. Epoch, commit, bounds and state
/// stay: they tell what the claim was. `None`: there is none to take away.
#[expect(
    clippy::implicit_hasher,
    reason = "the very type that the Iceberg crate has"
)]
#[must_use]
pub fn withdrawal(properties: &HashMap<String, String>) -> Option<PropertyChanges> {
    let claimed = [
        FINALIZED_BEFORE,
        FINALIZED_BEFORE_MS,
        LAST_FINAL_CELL,
        EVIDENCE,
        MARGIN_MS,
        WITHHELD,
    ];
    let there = claimed
        .into_iter()
        .filter(|name| properties.contains_key(*name));
    let also = properties.get(foreign::ALSO_WRITTEN);
    let told = also.map_or("", String::as_str).split(',');
    // What others read in its place goes with it.
    let told = told.filter(|name| foreign::is_foreign(name) && properties.contains_key(*name));
    let remove: Vec<String> = there.chain(told).map(str::to_owned).collect();
    (!remove.is_empty()).then(|| PropertyChanges {
        remove,
        ..PropertyChanges::default()
    })
}

/// The summary of a commit, at most [`MAX_SUMMARY`] bytes: where it would be more, source positions are left out first
/// (forgotten means "not a replay"), then the ladders, then the digest.
#[must_use]
pub fn summary(advanced: &Advanced, news: &Contribution) -> BTreeMap<String, String> {
    let mut summary = summary_of_state(advanced, &news.worker);
    summary.extend(summary_of_rows(advanced, news));
    let mut put = |name: &str, value: Option<String>| match value {
        Some(value) => summary.insert(name.to_owned(), value),
        None => summary.remove(name),
    };
    put(
        PARTITIONS,
        Some(advanced.record.encode_partitions(Detail::Full)),
    );
    put(SOURCE_POSITIONS, advanced.record.encode_positions());
    let size = |summary: &BTreeMap<String, String>| -> usize {
        summary
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum()
    };
    if size(&summary) > MAX_SUMMARY {
        summary.remove(SOURCE_POSITIONS);
    }
    if size(&summary) > MAX_SUMMARY {
        let short = advanced.record.encode_partitions(Detail::NoLadder);
        summary.insert(PARTITIONS.to_owned(), short);
    }
    if size(&summary) > MAX_SUMMARY {
        summary.remove(EVENT_TIME_DIGEST);
    }
    summary
}

fn summary_of_state(advanced: &Advanced, worker: &str) -> BTreeMap<String, String> {
    let (state, claim, record) = (&advanced.state, &advanced.claim, &advanced.record);
    let own = !state.peers.is_empty() || state.published.drained;
    let values = [
        (COMMIT_ID, Some(record.commit_id.to_string())),
        (WRITER, Some(state.identity.writer.clone())),
        (WORKER, Some(worker.to_owned())),
        (INSTALLATION, Some(state.identity.installation.clone())),
        (TABLE_UUID, Some(state.identity.table_uuid.to_string())),
        (REF, Some(state.identity.table_ref.clone())),
        (EPOCH, Some(claim.epoch.to_string())),
        (POLICY_REVISION, Some(state.policy.revision.to_string())),
        (POLICY, Some(policy_text(&state.policy))),
        (COMMITTED_AT, Some(iso(record.committed_at_us))),
        (PARTITIONS_ASKED, state.asked.as_ref().map(asked_text)),
        (OFFSETS, Some(offsets_text(state))),
        (FINALIZED_BEFORE, claim.finalized_before_us.map(iso)),
        (COMPLETE_FROM, Some(complete_from_text(claim.complete_from))),
        (
            EVIDENCE,
            claim
                .finalized_before_us
                .map(|_| evidence_text(&claim.evidence)),
        ),
        (GAPS, gaps_text(state)),
        (BEGINS, record.begins.then(|| true.to_string())),
        (REOPENED, claim.reopened.map(reopened_text)),
        (AMENDED, amended_text(&claim.amended)),
        (RETRACTED, retracted_text(&claim.retracted)),
        (WRITERS, writers_text(state)),
        (WRITER_PUBLISHED, own.then(|| state.published.encode())),
        (
            WRITER_FINALIZED_BEFORE,
            state.published.finalized_before_us.filter(|_| own).map(iso),
        ),
    ];
    let present = values
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    present.collect()
}

fn summary_of_rows(advanced: &Advanced, news: &Contribution) -> BTreeMap<String, String> {
    let times = news.event_times.as_ref();
    let some = |rows: u64| (rows > 0).then(|| rows.to_string());
    let values = [
        (RECORDS, Some(news.rows.to_string())),
        (EVENT_TIME_MIN, times.map(|times| iso(times.least_us()))),
        (EVENT_TIME_MAX, times.map(|times| iso(times.greatest_us()))),
        (EVENT_TIME_P50, times.map(|times| iso(times.quantile(0.5)))),
        (EVENT_TIME_P99, times.map(|times| iso(times.quantile(0.99)))),
        (
            EVENT_TIME_DIGEST,
            times.map(|times| STANDARD.encode(times.encode())),
        ),
        (LATE, late_text(advanced.state.policy.grid, &advanced.late)),
        (REPLAYED, some(news.excluded.replayed)),
        (EXCLUDED_FUTURE, some(news.excluded.future)),
        (EXCLUDED_PAST, some(news.excluded.past)),
        (EXCLUDED_MISSING, some(news.excluded.missing)),
        (EXCLUDED_SNAPSHOT, some(news.excluded.snapshot)),
        (EXCLUDED_BACKFILL, some(news.excluded.backfill)),
        (EXCLUDED_UNDECODABLE, some(news.excluded.undecodable)),
    ];
    let present = values
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    present.collect()
}

/// The claim in a table's properties; `None` where there is none of ours.
///
/// # Errors
/// When a value is not what its name promises.
#[expect(
    clippy::implicit_hasher,
    reason = "the very type that the Iceberg crate has"
)]
pub fn read_properties(
    properties: &HashMap<String, String>,
) -> Result<Option<TableClaim>, BadValue> {
    if !properties.contains_key(COMMIT_ID) {
        return Ok(None);
    }
    let read = Names(properties);
    Ok(Some(TableClaim {
        commit_id: read.parsed(COMMIT_ID)?,
        table_uuid: read.parsed(TABLE_UUID)?,
        table_ref: read.text(REF)?.to_owned(),
        policy_revision: read.parsed(POLICY_REVISION)?,
        bounds: read.with(BOUNDS, parse_bounds)?,
        claim: Claim {
            epoch: read.parsed(EPOCH)?,
            finalized_before_us: read.some(FINALIZED_BEFORE, parse_iso)?,
            complete_from: read.with(COMPLETE_FROM, parse_complete_from)?,
            gaps: read.some(GAPS, parse_stretches)?.unwrap_or_default(),
            evidence: read.some(EVIDENCE, parse_evidence)?.unwrap_or_default(),
            margin_us: read.some(MARGIN_MS, parse_ms)?,
            reopened: read.some(REOPENED, parse_reopened)?,
            amended: read.some(AMENDED, parse_amended)?.unwrap_or_default(),
            retracted: read.some(RETRACTED, parse_retracted)?.unwrap_or_default(),
        },
    }))
}

/// The commit id in a summary of ours.
#[expect(
    clippy::implicit_hasher,
    reason = "the very type that the Iceberg crate has"
)]
#[must_use]
pub fn summary_commit_id(summary: &HashMap<String, String>) -> Option<Uuid> {
    summary.get(COMMIT_ID)?.parse().ok()
}

/// What a summary of ours says; `None` where it is not ours.
///
/// # Errors
/// When a value is not what its name promises.
#[expect(
    clippy::implicit_hasher,
    reason = "the very type that the Iceberg crate has"
)]
pub fn read_summary(summary: &HashMap<String, String>) -> Result<Option<OwnSummary>, BadValue> {
    if !summary.contains_key(COMMIT_ID) {
        return Ok(None);
    }
    let read = Names(summary);
    let mut policy = read.with(POLICY, parse_policy)?;
    policy.revision = read.parsed(POLICY_REVISION)?;
    let (cluster_id, offsets) = read.with(OFFSETS, parse_offsets)?;
    let mut record = Record {
        commit_id: read.parsed(COMMIT_ID)?,
        committed_at_us: read.with(COMMITTED_AT, parse_iso)?,
        begins: read
            .some(BEGINS, |text| text.parse().ok())?
            .unwrap_or(false),
        policy,
        subscription: offsets.subscription.clone(),
        topics: offsets
            .next
            .keys()
            .map(|(topic, _)| topic.clone())
            .collect(),
        asked: read.some(PARTITIONS_ASKED, parse_asked)?,
        newest_change: None,
        newest_heartbeat_us: None,
        topic_ids: BTreeMap::new(),
        partitions: BTreeMap::new(),
        gone: BTreeSet::new(),
    };
    let positions = summary.get(SOURCE_POSITIONS).map(String::as_str);
    let packed = record.decode_partitions(read.text(PARTITIONS)?, positions);
    packed.map_err(|source| BadValue::Packed {
        name: PARTITIONS.to_owned(),
        source,
    })?;
    // Every partition that is there has an offset.
    let left = record.partitions.keys();
    let left = left.filter(|key| !offsets.next.contains_key(*key));
    record.gone = left.cloned().collect();
    let gaps = read.some(GAPS, parse_gaps)?.unwrap_or_default();
    let of_table = Published {
        epoch: read.parsed(EPOCH)?,
        finalized_before_us: read.some(FINALIZED_BEFORE, parse_iso)?,
        complete_from: read.with(COMPLETE_FROM, parse_complete_from)?,
        evidence: read.some(EVIDENCE, parse_evidence)?.unwrap_or_default(),
        gaps: gaps.settled,
        lost_before_us: gaps.lost_before_us,
        reopened: read.some(REOPENED, parse_reopened)?,
        amended: read.some(AMENDED, parse_amended)?.unwrap_or_default(),
        retracted: read.some(RETRACTED, parse_retracted)?.unwrap_or_default(),
        drained: false,
    };
    let published = summary.get(WRITER_PUBLISHED);
    let published = published.map(|text| Published::decode(text)).transpose();
    let published = published.map_err(|source| BadValue::Packed {
        name: WRITER_PUBLISHED.to_owned(),
        source,
    })?;
    Ok(Some(OwnSummary {
        writer: read.text(WRITER)?.to_owned(),
        worker: read.text(WORKER)?.to_owned(),
        installation: read.text(INSTALLATION)?.to_owned(),
        cluster_id,
        table_uuid: read.parsed(TABLE_UUID)?,
        table_ref: read.text(REF)?.to_owned(),
        record,
        published: published.unwrap_or_else(|| of_table.clone()),
        of_table,
        open_gaps: gaps.open,
        offsets,
    }))
}

impl OwnSummary {
    /// The claim that the summary's commit published.
    #[must_use]
    pub fn table_claim(&self) -> TableClaim {
        TableClaim {
            commit_id: self.record.commit_id,
            table_uuid: self.table_uuid,
            table_ref: self.table_ref.clone(),
            policy_revision: self.record.policy.revision,
            bounds: self.record.policy.bounds.clone(),
            claim: self.claim_of(&self.of_table),
        }
    }

    /// What its writer published for itself.
    #[must_use]
    pub fn own_claim(&self) -> Claim {
        self.claim_of(&self.published)
    }

    fn claim_of(&self, published: &Published) -> Claim {
        let mut gaps = published.gaps.clone();
        for open in &self.open_gaps {
            if let Some(from_us) = open.from_us {
                gaps.add(from_us, open.to_us);
            }
        }
        Claim {
            epoch: published.epoch,
            finalized_before_us: published.finalized_before_us,
            complete_from: published.complete_from,
            gaps,
            evidence: published.evidence.clone(),
            margin_us: None,
            reopened: published.reopened,
            amended: published.amended.clone(),
            retracted: published.retracted.clone(),
        }
    }
}

/// Reads values by name.
struct Names<'a>(&'a HashMap<String, String>);

impl<'a> Names<'a> {
    fn bad(&self, name: &str) -> BadValue {
        let shorten = |value: &String| value.chars().take(80).collect();
        BadValue::Value {
            name: name.to_owned(),
            value: self.0.get(name).map(shorten),
        }
    }

    fn text(&self, name: &str) -> Result<&'a str, BadValue> {
        self.0
            .get(name)
            .map(String::as_str)
            .ok_or_else(|| self.bad(name))
    }

    fn with<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, BadValue> {
        parse(self.text(name)?).ok_or_else(|| self.bad(name))
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str) -> Result<T, BadValue> {
        self.with(name, |text| text.parse().ok())
    }

    fn some<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, BadValue> {
        match self.0.get(name) {
            None => Ok(None),
            Some(_) => self.with(name, parse).map(Some),
        }
    }
}

/// An instant as readers see it, `2026-11-30T10:00:00Z`.
#[must_use]
pub fn iso(us: i64) -> String {
    let clamped = us.clamp(
        jiff::Timestamp::MIN.as_microsecond(),
        jiff::Timestamp::MAX.as_microsecond(),
    );
    jiff::Timestamp::from_microsecond(clamped)
        .unwrap_or_default()
        .to_string()
}

fn parse_iso(text: &str) -> Option<i64> {
    Some(text.parse::<jiff::Timestamp>().ok()?.as_microsecond())
}

fn parse_ms(text: &str) -> Option<i64> {
    text.parse::<i64>().ok()?.checked_mul(1000)
}

fn complete_from_text(from: CompleteFrom) -> String {
    match from {
        CompleteFrom::Unbounded => UNBOUNDED.to_owned(),
        CompleteFrom::From(us) => iso(us),
    }
}

fn parse_complete_from(text: &str) -> Option<CompleteFrom> {
    if text == UNBOUNDED {
        return Some(CompleteFrom::Unbounded);
    }
    parse_iso(text).map(CompleteFrom::From)
}

fn evidence_text(evidence: &BTreeSet<Term>) -> String {
    let labels: Vec<&str> = evidence.iter().map(|term| term.label()).collect();
    labels.join(",")
}

fn parse_evidence(text: &str) -> Option<BTreeSet<Term>> {
    let labels = text.split(',').filter(|label| !label.is_empty());
    labels.map(Term::from_label).collect()
}

const UNITS: [(&str, i64); 5] = [
    ("d", 86_400 * SECOND_US),
    ("h", 3_600 * SECOND_US),
    ("m", 60 * SECOND_US),
    ("s", SECOND_US),
    ("us", 1),
];

/// A length as people write it, in the greatest unit that divides it: `5m`, `90s`, `1500000us`.
fn length_text(us: i64) -> String {
    let unit = UNITS
        .into_iter()
        .find(|(_, unit)| us != 0 && us % unit == 0);
    let (name, unit) = unit.unwrap_or(("s", SECOND_US));
    format!("{}{name}", us / unit)
}

fn parse_length(text: &str) -> Option<i64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, name) = text.split_at(digits);
    let (_, unit) = UNITS.into_iter().find(|(unit, _)| *unit == name)?;
    number.parse::<i64>().ok()?.checked_mul(unit)
}

/// The bounds as `tidemark.bounds` has them, `lateness=5m,delay=10m,skew=5m`.
#[must_use]
pub fn bounds_text(bounds: &Bounds) -> String {
    let mut text = format!(
        "lateness={},delay={},skew={}",
        length_text(bounds.allowed_lateness_us),
        length_text(bounds.max_delay_us),
        length_text(bounds.max_future_skew_us)
    );
    if let Some(age_us) = bounds.max_age_us {
        text.push_str(",age=");
        text.push_str(&length_text(age_us));
    }
    text
}

fn pairs(text: &str) -> Option<HashMap<&str, &str>> {
    text.split(',').map(|pair| pair.split_once('=')).collect()
}

fn parse_bounds(text: &str) -> Option<Bounds> {
    bounds_of(&pairs(text)?)
}

fn bounds_of(pairs: &HashMap<&str, &str>) -> Option<Bounds> {
    Some(Bounds {
        allowed_lateness_us: parse_length(pairs.get("lateness")?)?,
        max_delay_us: parse_length(pairs.get("delay")?)?,
        max_future_skew_us: parse_length(pairs.get("skew")?)?,
        max_age_us: match pairs.get("age") {
            Some(age) => Some(parse_length(age)?),
            None => None,
        },
    })
}

fn policy_text(policy: &Policy) -> String {
    let terms: Vec<&str> = policy.terms.iter().map(|term| term.label()).collect();
    let from = match policy.complete_from {
        FromRule::Derived => "derived".to_owned(),
        FromRule::Unbounded => UNBOUNDED.to_owned(),
        FromRule::Instant(us) => iso(us),
    };
    let zone = policy.grid.zone();
    let zone = zone.map_or_else(String::new, |name| format!(",zone={name}"));
    let mut text = format!(
        "cell={}{zone},{},window={},window-duration={},terms={},from={from},late={},join={}",
        length_text(policy.grid.cell_us()),
        bounds_text(&policy.bounds),
        policy.window_commits,
        length_text(policy.window_duration_us),
        terms.join("+"),
        policy.late_data.label(),
        policy.on_join.label(),
    );
    if let Some(rung) = policy.quantile {
        text.push_str(",quantile=");
        text.push_str(rung.label());
    }
    text.push_str(match policy.heartbeats {
        Heartbeats::None => "",
        Heartbeats::Connector => ",heartbeats=connector",
        Heartbeats::Table => ",heartbeats=table",
    });
    text
}

fn parse_policy(text: &str) -> Option<Policy> {
    let pairs = pairs(text)?;
    let terms = pairs
        .get("terms")?
        .split('+')
        .filter(|label| !label.is_empty());
    Some(Policy {
        revision: 0,
        grid: Grid::in_zone(
            parse_length(pairs.get("cell")?)?,
            pairs.get("zone").copied(),
        )
        .ok()?,
        bounds: bounds_of(&pairs)?,
        window_commits: pairs.get("window")?.parse().ok()?,
        window_duration_us: parse_length(pairs.get("window-duration")?)?,
        terms: terms.map(Term::from_label).collect::<Option<_>>()?,
        quantile: match pairs.get("quantile") {
            Some(label) => Some(Quantile::from_label(label)?),
            None => None,
        },
        heartbeats: match pairs.get("heartbeats") {
            None => Heartbeats::None,
            Some(&"connector") => Heartbeats::Connector,
            Some(&"table") => Heartbeats::Table,
            Some(_) => return None,
        },
        complete_from: match *pairs.get("from")? {
            "derived" => FromRule::Derived,
            UNBOUNDED => FromRule::Unbounded,
            instant => FromRule::Instant(parse_iso(instant)?),
        },
        late_data: LateData::from_label(pairs.get("late")?)?,
        on_join: OnJoin::from_label(pairs.get("join")?)?,
    })
}

fn asked_text(asked: &AskedPartitions) -> String {
    let topics: BTreeMap<&str, Value> = asked
        .topics
        .iter()
        .map(|(topic, set)| (topic.as_str(), set_text(set)))
        .collect();
    json!({"at": iso(asked.at_us), "topics": topics}).to_string()
}

/// How many there are, where they are counted from 0 without holes; else which.
fn set_text(set: &BTreeSet<i32>) -> Value {
    let whole = set
        .iter()
        .copied()
        .eq(0..i32::try_from(set.len()).unwrap_or(i32::MAX));
    if whole { json!(set.len()) } else { json!(set) }
}

fn parse_asked(text: &str) -> Option<AskedPartitions> {
    let value: Value = serde_json::from_str(text).ok()?;
    let at_us = parse_iso(value.get("at")?.as_str()?)?;
    let mut topics = BTreeMap::new();
    for (topic, set) in value.get("topics")?.as_object()? {
        let set: BTreeSet<i32> = match set.as_i64() {
            Some(count) => (0..i32::try_from(count)
                .ok()
                .filter(|count| *count <= MAX_PARTITIONS)?)
                .collect(),
            None => serde_json::from_value(set.clone()).ok()?,
        };
        topics.insert(topic.clone(), set);
    }
    Some(AskedPartitions { at_us, topics })
}

/// More than any topic has; a damaged count is not believed.
const MAX_PARTITIONS: i32 = 1_000_000;

fn offsets_text(state: &State) -> String {
    let mut topics = serde_json::Map::new();
    for (name, topic) in &state.topics {
        let last = topic.partitions.keys().next_back().copied().unwrap_or(-1);
        let all = || (0..=last).map(|partition| topic.partitions.get(&partition));
        let next: Vec<Option<i64>> = all().map(|known| Some(known?.next_offset)).collect();
        let epochs: Vec<Option<i32>> = all().map(|known| known?.leader_epoch).collect();
        let mut value = json!({"next": next});
        if epochs.iter().any(Option::is_some) {
            value["leader-epochs"] = json!(epochs);
        }
        if let Some(id) = topic.id {
            value["id"] = json!(id.to_string());
        }
        topics.insert(name.clone(), value);
    }
    json!({"cluster": state.identity.cluster_id, "subscription": state.subscription, "topics": topics}).to_string()
}

fn parse_offsets(text: &str) -> Option<(String, Offsets)> {
    let value: Value = serde_json::from_str(text).ok()?;
    let mut offsets = Offsets {
        subscription: value.get("subscription")?.as_str()?.to_owned(),
        ..Offsets::default()
    };
    for (topic, value) in value.get("topics")?.as_object()? {
        if let Some(id) = value.get("id") {
            offsets
                .topic_ids
                .insert(topic.clone(), id.as_str()?.parse().ok()?);
        }
        let epochs = value.get("leader-epochs").and_then(Value::as_array);
        for (at, next) in value.get("next")?.as_array()?.iter().enumerate() {
            let epoch = epochs.and_then(|epochs| epochs.get(at)?.as_i64());
            let epoch = epoch.and_then(|epoch| i32::try_from(epoch).ok());
            if let Some(next) = next.as_i64() {
                let key = (topic.clone(), i32::try_from(at).ok()?);
                offsets.next.insert(key, (next, epoch));
            }
        }
    }
    Some((value.get("cluster")?.as_str()?.to_owned(), offsets))
}

fn stretches(gaps: &Gaps) -> Value {
    let all = gaps.stretches().iter();
    all.map(|(from_us, to_us)| json!([iso(*from_us), iso(*to_us)]))
        .collect()
}

fn parse_stretches(text: &str) -> Option<Gaps> {
    gaps_of(&serde_json::from_str(text).ok()?)
}

fn gaps_of(value: &Value) -> Option<Gaps> {
    let mut gaps = Gaps::default();
    for stretch in value.as_array()? {
        let at = |end: usize| parse_iso(stretch.get(end)?.as_str()?);
        gaps.add(at(0)?, at(1)?);
    }
    Some(gaps)
}

/// The gaps of a summary, what is still open apart.
#[derive(Debug, Default)]
struct SummaryGaps {
    settled: Gaps,
    open: Vec<OpenStretch>,
    lost_before_us: Option<i64>,
}

fn gaps_text(state: &State) -> Option<String> {
    let policy = &state.policy;
    let open = state.partitions().filter_map(|(topic, partition, known)| {
        let gap = known.gap?;
        let from = gap.from_us.map(|us| iso(policy.grid.floor(us)));
        let to = iso(missed_until(policy, gap.restart_us, None));
        Some(json!({"topic": topic, "partition": partition, "from": from, "to": to}))
    });
    let open: Vec<Value> = open.collect();
    let published = &state.published;
    let mut settled = published.gaps.clone();
    for peer in &state.peers {
        let stretches = peer.claim.gaps.stretches().iter();
        stretches.for_each(|(from_us, to_us)| settled.add(*from_us, *to_us));
    }
    if settled.is_empty() && open.is_empty() && published.lost_before_us.is_none() {
        return None;
    }
    let settled = stretches(&settled);
    let lost_before = published.lost_before_us.map(iso);
    Some(json!({"settled": settled, "open": open, "lost-before": lost_before}).to_string())
}

fn parse_gaps(text: &str) -> Option<SummaryGaps> {
    let value: Value = serde_json::from_str(text).ok()?;
    let instant = |value: &Value| match value {
        Value::Null => Some(None),
        Value::String(text) => Some(Some(parse_iso(text)?)),
        _ => None,
    };
    let mut open = Vec::new();
    for gap in value.get("open")?.as_array()? {
        open.push(OpenStretch {
            topic: gap.get("topic")?.as_str()?.to_owned(),
            partition: i32::try_from(gap.get("partition")?.as_i64()?).ok()?,
            from_us: instant(gap.get("from")?)?,
            to_us: instant(gap.get("to")?)??,
        });
    }
    Some(SummaryGaps {
        settled: gaps_of(value.get("settled")?)?,
        open,
        lost_before_us: instant(value.get("lost-before")?)?,
    })
}

fn reopened_text(reopened: Reopened) -> String {
    let (cause, from) = (reopened.cause.label(), reopened.from_us.map(iso));
    let (before, at) = (iso(reopened.before_us), iso(reopened.at_us));
    json!({"cause": cause, "from": from, "before": before, "at": at}).to_string()
}

fn parse_reopened(text: &str) -> Option<Reopened> {
    let value: Value = serde_json::from_str(text).ok()?;
    let instant = |name: &str| parse_iso(value.get(name)?.as_str()?);
    Some(Reopened {
        cause: StepCause::from_label(value.get("cause")?.as_str()?)?,
        from_us: match value.get("from")? {
            Value::Null => None,
            _ => Some(instant("from")?),
        },
        before_us: instant("before")?,
        at_us: instant("at")?,
    })
}

fn amended_text(amended: &Amended) -> Option<String> {
    if amended.is_empty() {
        return None;
    }
    let cells: Vec<Value> = amended.cells().iter().map(amended_cell).collect();
    let mut value = json!({"cells": cells});
    if let Some(overflow) = amended.overflow() {
        value["overflow"] = amended_cell(overflow);
    }
    if let Some(us) = amended.withheld_at_us() {
        value["withheld-at"] = json!(iso(us));
    }
    Some(value.to_string())
}

fn amended_cell(cell: &AmendedCell) -> Value {
    let (from, before, at) = (iso(cell.from_us), iso(cell.before_us), iso(cell.at_us));
    let mut value = json!({"from": from, "before": before, "revision": cell.revision, "rows": cell.rows, "at": at});
    if cell.withheld {
        value["withheld"] = json!(true);
    }
    value
}

fn parse_amended(text: &str) -> Option<Amended> {
    let value: Value = serde_json::from_str(text).ok()?;
    let cell = |value: &Value| {
        let instant = |name: &str| parse_iso(value.get(name)?.as_str()?);
        Some(AmendedCell {
            from_us: instant("from")?,
            before_us: instant("before")?,
            revision: value.get("revision")?.as_u64()?,
            rows: value.get("rows")?.as_u64()?,
            at_us: instant("at")?,
            withheld: match value.get("withheld") {
                None => false,
                Some(withheld) => withheld.as_bool()?,
            },
        })
    };
    let cells = value.get("cells")?.as_array()?;
    let overflow = match value.get("overflow") {
        None => None,
        Some(overflow) => Some(cell(overflow)?),
    };
    let withheld_at_us = match value.get("withheld-at") {
        None => None,
        Some(at) => Some(parse_iso(at.as_str()?)?),
    };
    let cells = cells.iter().map(cell).collect::<Option<_>>()?;
    Amended::of(cells, overflow, withheld_at_us)
}

fn retracted_text(retracted: &[Retracted]) -> Option<String> {
    let all = retracted.iter().map(|one| {
        let (from, before, at) = (iso(one.from_us), iso(one.before_us), iso(one.at_us));
        json!({"from": from, "before": before, "at": at, "reason": one.reason})
    });
    let all: Value = all.collect();
    (!retracted.is_empty()).then(|| all.to_string())
}

fn parse_retracted(text: &str) -> Option<Vec<Retracted>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let all = value.as_array().filter(|all| all.len() <= MAX_RETRACTED)?;
    let one = |value: &Value| {
        let instant = |name: &str| parse_iso(value.get(name)?.as_str()?);
        Some(Retracted {
            from_us: instant("from")?,
            before_us: instant("before")?,
            at_us: instant("at")?,
            reason: value.get("reason")?.as_str()?.to_owned(),
        })
    };
    all.iter().map(one).collect()
}

fn writers_text(state: &State) -> Option<String> {
    let peers = state.peers.iter();
    let all: BTreeMap<&str, String> = peers
        .map(|peer| (peer.writer.as_str(), peer.commit_id.to_string()))
        .collect();
    (!all.is_empty()).then(|| json!(all).to_string())
}

/// The newest commits of the other writers, as one of our summaries saw them; `None`: it is none, or saw no other.
pub(super) fn seen_by(summary: &HashMap<String, String>) -> Option<BTreeMap<String, Uuid>> {
    serde_json::from_str(summary.get(WRITERS)?).ok()
}

fn late_text(grid: Grid, late: &LateCells) -> Option<String> {
    if late.rows() == 0 {
        return None;
    }
    let name = |from_us: i64, rows: u64| json!([grid.name(from_us), rows]);
    let cells = late.cells.iter();
    let cells: Vec<Value> = cells.map(|cell| name(cell.from_us, cell.rows)).collect();
    let mut value = json!({"cells": cells});
    if let Some((from_us, rows)) = late.overflow {
        value["overflow"] = name(from_us, rows);
    }
    Some(value.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{Table, at, news, policy};
    use super::super::{Digest, JumpKind, Sketch};
    use super::*;

    fn table() -> Table {
        let mut table = Table::anchored("09:00", 1);
        table.commit(news("10:20").rows(0, 0, &["10:10"]).asked("10:20", 1));
        table.commit(
            news("10:25")
                .rows(0, 1, &["10:20:30.25", "10:24"])
                .end("10:25", 3)
                .asked("10:25", 1),
        );
        table
    }

    #[test]
    fn the_properties_say_it_as_documented() {
        let table = table();
        let value = |name: &str| table.properties.get(name).map(String::as_str);
        let plain = [
            (FINALIZED_BEFORE, "2026-11-30T10:00:00Z"),
            (FINALIZED_BEFORE_MS, "1796032800000"),
            (LAST_FINAL_CELL, "2026-11-30T09"),
            (COMPLETE_FROM, "2026-11-30T10:00:00Z"),
            (EVIDENCE, "minimum"),
            (BOUNDS, "lateness=5m,delay=10m,skew=5m"),
            (MARGIN_MS, "1440000"),
            (EPOCH, "1"),
            (COMMIT_ID, "00000000-0000-0000-0000-000000000003"),
            (TABLE_UUID, "00000000-0000-0000-0000-000000000007"),
            (REF, "main"),
            (POLICY_REVISION, "1"),
        ];
        for (name, expected) in plain {
            assert_eq!(value(name), Some(expected), "{name}");
        }
        assert_eq!(value(GAPS), None);
        assert_eq!(table.properties.len(), plain.len() + 1, "and the state");
    }

    #[test]
    fn a_gap_is_set_and_a_missing_claim_removed() {
        let mut table = table();
        table.commit(news("10:30").jump(0, 3, 9, JumpKind::Forward));
        let gap = r#"[["2026-11-30T10:00:00Z","2026-11-30T11:00:00Z"]]"#;
        assert_eq!(table.properties[GAPS], gap);
        let mut fresh = Table::new(policy());
        let next = fresh.commit(news("09:00").anchor(0, 0));
        let removed = properties(&next).remove;
        assert_eq!(
            removed,
            [
                FINALIZED_BEFORE,
                FINALIZED_BEFORE_MS,
                LAST_FINAL_CELL,
                EVIDENCE,
                MARGIN_MS,
                GAPS,
                REOPENED,
                AMENDED,
                WITHHELD,
                RETRACTED
            ]
        );
    }

    #[test]
    fn the_summary_tells_the_commit() {
        let mut table = table();
        let mut late = news("10:30").rows(0, 3, &["09:59", "10:26"]);
        late.excluded.snapshot = 4;
        late.excluded.replayed = 2;
        table.commit(late);
        let summary = &table.lineage.snapshots[0].summary;
        let value = |name: &str| summary.get(name).map(String::as_str);
        for (name, expected) in [
            (WRITER, "shop.orders"),
            (WORKER, "worker-0"),
            (COMMITTED_AT, "2026-11-30T10:30:00Z"),
            (
                POLICY,
                "cell=1h,lateness=5m,delay=10m,skew=5m,window=2,window-duration=0s,terms=minimum+caught-up,from=derived,late=notify,join=reopen",
            ),
            (
                PARTITIONS_ASKED,
                r#"{"at":"2026-11-30T10:25:00Z","topics":{"shop.orders":1}}"#,
            ),
            (RECORDS, "2"),
            (EVENT_TIME_MIN, "2026-11-30T09:59:00Z"),
            (EVENT_TIME_MAX, "2026-11-30T10:26:00Z"),
            (LATE, r#"{"cells":[["2026-11-30T09",1]]}"#),
            (REPLAYED, "2"),
            (EXCLUDED_SNAPSHOT, "4"),
        ] {
            assert_eq!(value(name), Some(expected), "{name}");
        }
        assert_eq!(value(EXCLUDED_PAST), None, "zeros are left out");
        let offsets: Value = serde_json::from_str(&summary[OFFSETS]).unwrap();
        assert_eq!(offsets["topics"]["shop.orders"]["next"], json!([5]));
        let digest = STANDARD.decode(&summary[EVENT_TIME_DIGEST]).unwrap();
        assert_eq!(Sketch::decode(&digest).unwrap().count(), 2);
    }

    #[test]
    fn lengths_are_written_in_the_greatest_unit_that_divides() {
        for (us, text) in [
            (0, "0s"),
            (90 * SECOND_US, "90s"),
            (86_400 * SECOND_US, "1d"),
            (1_500, "1500us"),
        ] {
            assert_eq!(length_text(us), text);
            assert_eq!(parse_length(text), Some(us));
        }
        for bad in ["", "5", "m", "5 m", "-5m", "5w", "99999999999999d"] {
            assert_eq!(parse_length(bad), None, "{bad}");
        }
    }

    #[test]
    fn bounds_with_an_age_come_back() {
        let mut bounds = policy().bounds;
        bounds.max_age_us = Some(86_400 * SECOND_US);
        assert_eq!(bounds_text(&bounds), "lateness=5m,delay=10m,skew=5m,age=1d");
        assert_eq!(parse_bounds(&bounds_text(&bounds)), Some(bounds));
    }

    #[test]
    fn sparse_partitions_are_named() {
        let set = BTreeSet::from([0, 2]);
        let topics = BTreeMap::from([("t".to_owned(), set)]);
        let asked = AskedPartitions {
            at_us: at("10:00"),
            topics,
        };
        assert_eq!(
            asked_text(&asked),
            r#"{"at":"2026-11-30T10:00:00Z","topics":{"t":[0,2]}}"#
        );
        assert_eq!(parse_asked(&asked_text(&asked)), Some(asked));
    }

    proptest! {
        #[test]
        fn prop_any_value_under_any_name_is_survived(name in any::<prop::sample::Index>(), value in ".{0,40}", json in any::<bool>()) {
            let table = table();
            let value = if json { format!("{{\"topics\":{{\"t\":{value:?}}},\"at\":{value:?}}}") } else { value };
            let mut summary = table.lineage.snapshots[0].summary.clone().into_owned();
            let mut properties = table.properties.clone();
            for map in [&mut summary, &mut properties] {
                let mut names: Vec<String> = map.keys().cloned().collect();
                names.sort();
                map.insert(names[name.index(names.len())].clone(), value.clone());
            }
            let _ = (read_summary(&summary), read_properties(&properties), summary_commit_id(&summary));
        }
    }

    #[test]
    fn an_empty_commit_has_no_event_times() {
        let mut digest = Digest::default();
        assert_eq!(digest.finish(), None);
        let table = Table::anchored("09:00", 1);
        assert!(
            !table.lineage.snapshots[0]
                .summary
                .contains_key(EVENT_TIME_MIN)
        );
    }
}
