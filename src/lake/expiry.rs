//! Which snapshots go.
//!
//! Those of ours by age, number and size; others' by Iceberg's default age. `history.expire.*` on the table wins. Never the
//! newest of ours, for the pipeline's state is rebuilt from it, nor the head of any branch or tag.

use std::collections::HashSet;

use iceberg::Catalog;
use iceberg::spec::{SnapshotRef, TableMetadata};
use iceberg::table::Table;
use iceberg::transaction::{ApplyTransactionAction, Transaction};
use tracing::info;

use super::lineage::lineage;
use super::maintain::{MaintainSettings, millis};
use super::manifests::MAINTENANCE;
use super::{Error, catalog};
use crate::watermark::contract::COMMIT_ID;

/// Iceberg's default age of a snapshot, applied to those of other writers: 5 days.
const FOREIGN_AGE_MS: i64 = 5 * 24 * 3_600_000;

/// Bytes that a snapshot takes in the metadata beside its summary.
const SNAPSHOT_BYTES: usize = 400;

/// The snapshots to expire; empty while too few are due to be worth a commit.
#[must_use]
pub fn plan_expiry(metadata: &TableMetadata, settings: &MaintainSettings, now_ms: i64) -> Vec<i64> {
    let limits = Limits::of(metadata, settings);
    // A tenth of slack, so that not every commit is followed by an expiry.
    if expirable(metadata, &limits.with_slack(), now_ms).is_empty() {
        return Vec::new();
    }
    expirable(metadata, &limits, now_ms)
}

/// What of own snapshots is kept on main.
#[derive(Debug, Clone, Copy)]
struct Limits {
    own_age_ms: i64,
    foreign_age_ms: i64,
    snapshots: usize,
    bytes: usize,
    /// Newest snapshots of main, whoever wrote them, that no limit touches.
    at_least: usize,
}

impl Limits {
    fn of(metadata: &TableMetadata, settings: &MaintainSettings) -> Self {
        let number = |key: &str| -> Option<i64> { metadata.properties().get(key)?.parse().ok() };
        let at_least = number("history.expire.min-snapshots-to-keep")
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(1)
            .max(1);
        match number("history.expire.max-snapshot-age-ms") {
            Some(age_ms) => Self {
                own_age_ms: age_ms,
                foreign_age_ms: age_ms,
                snapshots: usize::MAX,
                bytes: usize::MAX,
                at_least,
            },
            None => Self {
                own_age_ms: millis(settings.snapshot_age),
                foreign_age_ms: FOREIGN_AGE_MS,
                snapshots: less_a_tenth(settings.snapshots),
                bytes: less_a_tenth(settings.snapshot_bytes),
                at_least,
            },
        }
    }

    fn with_slack(self) -> Self {
        let more = |size: usize| size.saturating_add(size / 9).saturating_add(1);
        Self {
            own_age_ms: self.own_age_ms.saturating_add(self.own_age_ms / 10),
            foreign_age_ms: self.foreign_age_ms.saturating_add(self.foreign_age_ms / 10),
            snapshots: more(self.snapshots),
            bytes: more(self.bytes),
            at_least: self.at_least,
        }
    }
}

fn less_a_tenth(size: usize) -> usize {
    size - size / 10
}

/// Commits and maintenance of this house. Only a commit holds state; both go by the same age.
fn is_own(snapshot: &SnapshotRef) -> bool {
    let summary = &snapshot.summary().additional_properties;
    summary.contains_key(COMMIT_ID) || summary.contains_key(MAINTENANCE)
}

fn size_of(snapshot: &SnapshotRef) -> usize {
    let summary = &snapshot.summary().additional_properties;
    let summary_bytes: usize = summary
        .iter()
        .map(|(key, value)| key.len() + value.len() + 6)
        .sum();
    SNAPSHOT_BYTES + summary_bytes
}

fn expirable(metadata: &TableMetadata, limits: &Limits, now_ms: i64) -> Vec<i64> {
    let main = lineage(metadata);
    let on_main: HashSet<i64> = main.entries.iter().map(|entry| entry.snapshot_id).collect();
    let newest = main
        .entries
        .iter()
        .take(limits.at_least)
        .chain(main.own().take(1));
    let mut kept: HashSet<i64> = newest.map(|entry| entry.snapshot_id).collect();
    let mut expiring = Vec::new();
    let (mut snapshots, mut bytes, mut full) = (0, 0, false);
    let ordered = main
        .entries
        .iter()
        .filter_map(|entry| metadata.snapshot_by_id(entry.snapshot_id));
    let off_main = metadata
        .snapshots()
        .filter(|snapshot| !on_main.contains(&snapshot.snapshot_id()));
    for snapshot in ordered.chain(off_main) {
        let age_ms = now_ms.saturating_sub(snapshot.timestamp_ms());
        let expires = if is_own(snapshot) {
            snapshots += 1;
            bytes += size_of(snapshot);
            // Once one does not fit none below it does: the lineage of ours has no holes of our making.
            full |=
                snapshots > limits.snapshots || bytes > limits.bytes || age_ms > limits.own_age_ms;
            full
        } else {
            age_ms > limits.foreign_age_ms
        };
        if expires {
            expiring.push(snapshot.snapshot_id());
        }
    }
    if !expiring.is_empty() {
        kept.extend(referenced(metadata, &on_main));
        expiring.retain(|id| !kept.contains(id));
    }
    expiring
}

/// Heads of all branches and tags, and what lies below them beside main: others' history, not ours to shorten.
fn referenced(metadata: &TableMetadata, on_main: &HashSet<i64>) -> HashSet<i64> {
    let mut referenced = HashSet::new();
    for head in ref_heads(metadata) {
        referenced.insert(head);
        let mut next_id = Some(head);
        while let Some(snapshot) = next_id.and_then(|id| metadata.snapshot_by_id(id)) {
            let id = snapshot.snapshot_id();
            if on_main.contains(&id) || (id != head && !referenced.insert(id)) {
                break;
            }
            next_id = snapshot.parent_snapshot_id();
        }
    }
    referenced
}

/// The client (`iceberg` 0.10.1) gives a ref by its name and does not list them, so they are read from the metadata's JSON.
fn ref_heads(metadata: &TableMetadata) -> Vec<i64> {
    let json = serde_json::to_value(metadata).unwrap_or_default();
    let refs = json.get("refs").and_then(serde_json::Value::as_object);
    refs.into_iter()
        .flat_map(serde_json::Map::values)
        .filter_map(|reference| reference.get("snapshot-id")?.as_i64())
        .collect()
}

/// Expires these snapshots, and gives the table as it is then.
pub(super) async fn expire(
    catalog: &dyn Catalog,
    table: &Table,
    expiring: &[i64],
) -> Result<Table, Error> {
    let failed = |source| Error::Catalog {
        doing: "expire snapshots",
        source: Box::new(source),
    };
    let transaction = Transaction::new(table);
    // By id alone: the action's own cutoff is set before any snapshot.
    let transaction = transaction
        .expire_snapshots()
        .expire_snapshot_ids(expiring.iter().copied())
        .expire_older_than_ms(0)
        .retain_last(1)
        .apply(transaction)
        .map_err(failed)?;
    transaction.commit(catalog).await.map_err(failed)?;
    info!(table = %table.identifier(), snapshots = expiring.len(), "snapshots expired");
    catalog::load(catalog, table.identifier()).await
}
