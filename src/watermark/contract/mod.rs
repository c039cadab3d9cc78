//! Every name that Tidemark writes on a table, and what stands there.
//!
//! Properties are the table's claim as of its newest commit; a summary is what one commit brought and published. Both are
//! plain text: engines show them as they are, and `docs/table-contract.md` explains them.
//!
//! A name means the same for ever. What cannot be read is an error, never a claim.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use super::advance::Advanced;
use super::claim::Claim;
use super::codec::Unreadable;
use super::event_time::Bounds;
use super::foreign;
use super::left::Left;
use super::state::{Published, Record};

mod lists;
mod read;
mod settings;
mod summary;

use lists::{amended_text, reopened_text, retracted_text, stretches};
use settings::{complete_from_text, evidence_text};

pub(super) use lists::{left_text, seen_by};
pub use read::{read_properties, read_summary, read_summary_claim, summary_commit_id};
pub use settings::bounds_text;
pub use summary::summary;

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
/// Summary: the next offset of every partition of the writer, and of those that have left.
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

/// The most bytes that our part of a summary takes, names included; more only where a pipeline reads very many topics.
pub const MAX_SUMMARY: usize = 24 * 1024;

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
    /// The topics that have one for which there was no room: other summaries of about the time have it.
    pub ids_left_out: BTreeSet<String>,
    /// Next offset and leader epoch by topic and partition.
    pub next: BTreeMap<(String, i32), (i64, Option<i32>)>,
    /// What has left.
    pub left: Left,
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

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::testing::{Table, news, policy};
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
