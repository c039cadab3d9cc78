//! What was committed, newest first.
//!
//! Walks the ancestors of main's newest snapshot by parent links in one loaded metadata: no I/O. Snapshots of other writers
//! (compaction, a person's `INSERT`) are entries too, without a commit id of ours.
//!
//! A parent that was expired ends the walk and is told apart from the table's first snapshot: an absence below it proves nothing.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use iceberg::spec::{Operation, SnapshotRef, TableMetadata};
use uuid::Uuid;

use crate::watermark::contract::{COMMIT_ID, WITHDRAWAL_ID, WRITER};
use crate::watermark::{self, Ancestor, Picked, SOURCE_SNAPSHOT_ID};

/// One snapshot of main.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The snapshot's id, drawn anew on each attempt.
    pub snapshot_id: i64,
    /// Its parent as it was committed; the parent itself may be expired.
    pub parent_id: Option<i64>,
    /// When it was committed by its writer's clock, ms since 1970-01-01 UTC.
    pub timestamp_ms: i64,
    /// What it did.
    pub operation: Operation,
    /// Our commit id, where the snapshot is ours.
    pub commit_id: Option<Uuid>,
    /// The id of our withdrawal of a claim, where the snapshot is one.
    pub withdrawal_id: Option<Uuid>,
    /// What it repeats, where it was cherry-picked.
    pub picked: Option<Picked>,
    snapshot: SnapshotRef,
}

impl Entry {
    /// The snapshot's summary: ours, and the counters of the format.
    #[must_use]
    pub fn summary(&self) -> &HashMap<String, String> {
        &self.snapshot.summary().additional_properties
    }

    fn ancestor(&self) -> Ancestor<'_> {
        Ancestor {
            snapshot_id: self.snapshot_id,
            parent_id: self.parent_id,
            summary: Cow::Borrowed(self.summary()),
            picked: self.picked.clone(),
        }
    }
}

/// How a lineage ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// At the first snapshot of the table, or there is none.
    First,
    /// At a snapshot whose parent is no longer in the metadata.
    Expired {
        /// The parent that is gone.
        parent_id: i64,
    },
}

/// Main's ancestors, newest first.
#[derive(Debug, Clone)]
pub struct Lineage {
    /// The snapshots, newest first.
    pub entries: Vec<Entry>,
    /// What lies below the last of them.
    pub end: End,
}

impl Lineage {
    /// Our snapshots, newest first.
    pub fn own(&self) -> impl Iterator<Item = &Entry> {
        self.entries
            .iter()
            .filter(|entry| entry.commit_id.is_some())
    }

    /// The snapshot with this id of ours: of a commit, or of a withdrawal.
    #[must_use]
    pub fn find(&self, id: Uuid) -> Option<&Entry> {
        let id = Some(id);
        let mut entries = self.entries.iter();
        entries.find(|entry| entry.commit_id == id || entry.withdrawal_id == id)
    }

    /// The same as the finalization core reads it.
    #[must_use]
    pub fn ancestry(&self) -> watermark::Lineage<'_> {
        watermark::Lineage {
            snapshots: self.entries.iter().map(Entry::ancestor).collect(),
            broken: self.end != End::First,
        }
    }

    /// Whether this snapshot is an ancestor of main's newest, or that one itself.
    #[must_use]
    pub fn contains(&self, snapshot_id: i64) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.snapshot_id == snapshot_id)
    }
}

/// Walks main.
#[must_use]
pub fn lineage(metadata: &TableMetadata) -> Lineage {
    let mut entries = Vec::new();
    let mut seen = HashSet::new();
    let mut next_id = metadata.current_snapshot_id();
    let mut end = End::First;
    while let Some(id) = next_id {
        // A ring can only come from broken metadata; walking it for ever would hang the pipeline instead of stopping it.
        if !seen.insert(id) {
            break;
        }
        let Some(snapshot) = metadata.snapshot_by_id(id) else {
            end = End::Expired { parent_id: id };
            break;
        };
        entries.push(entry(metadata, snapshot));
        next_id = snapshot.parent_snapshot_id();
    }
    Lineage { entries, end }
}

fn entry(metadata: &TableMetadata, snapshot: &SnapshotRef) -> Entry {
    let summary = snapshot.summary();
    let id = |name: &str| {
        let text = summary.additional_properties.get(name)?;
        Uuid::parse_str(text).ok()
    };
    Entry {
        snapshot_id: snapshot.snapshot_id(),
        parent_id: snapshot.parent_snapshot_id(),
        timestamp_ms: snapshot.timestamp_ms(),
        operation: summary.operation.clone(),
        commit_id: id(COMMIT_ID),
        withdrawal_id: id(WITHDRAWAL_ID),
        picked: picked(metadata, snapshot),
        snapshot: snapshot.clone(),
    }
}

/// Whose snapshot a cherry-picked one repeats: its own summary does not tell, that of the original does while it is there.
fn picked(metadata: &TableMetadata, snapshot: &SnapshotRef) -> Option<Picked> {
    let names = |snapshot: &SnapshotRef| {
        let names = &snapshot.summary().additional_properties;
        let ours = names.contains_key(COMMIT_ID);
        ours.then(|| names.get(WRITER).cloned().unwrap_or_default())
    };
    let source = snapshot
        .summary()
        .additional_properties
        .get(SOURCE_SNAPSHOT_ID)?;
    if let Some(writer) = names(snapshot) {
        return Some(Picked::Ours(writer));
    }
    let source = source
        .parse()
        .ok()
        .and_then(|id| metadata.snapshot_by_id(id));
    Some(match source.map(names) {
        Some(Some(writer)) => Picked::Ours(writer),
        Some(None) => Picked::Foreign,
        None => Picked::Gone,
    })
}

#[cfg(test)]
mod tests {
    use iceberg::transaction::{ApplyTransactionAction, Transaction};

    use super::super::fixture::{self, add_row, append, ident};
    use super::super::{catalog, commit};
    use super::*;

    #[tokio::test]
    async fn the_walk_goes_from_the_newest_to_the_first() {
        let lake = fixture::lake().await;
        let empty = fixture::table(lake.catalog.as_ref()).await;
        assert!(lineage(empty.metadata()).entries.is_empty());
        for id in 0..3 {
            add_row(lake.catalog.as_ref(), id).await;
        }
        let table = catalog::load(lake.catalog.as_ref(), &ident())
            .await
            .unwrap();
        let walked = lineage(table.metadata());
        assert_eq!(walked.end, End::First);
        assert_eq!(walked.entries.len(), 3);
        let newest = &walked.entries[0];
        assert_eq!(
            Some(newest.snapshot_id),
            table.metadata().current_snapshot_id()
        );
        assert_eq!(newest.parent_id, Some(walked.entries[1].snapshot_id));
        assert_eq!(newest.summary()["total-records"], "3");
        assert!(newest.timestamp_ms >= walked.entries[2].timestamp_ms);
    }

    /// A compaction between two commits must hide neither.
    #[tokio::test]
    async fn others_snapshots_are_walked_over() {
        let lake = fixture::lake().await;
        fixture::table(lake.catalog.as_ref()).await;
        let base = add_row(lake.catalog.as_ref(), 1).await;
        let ours = lineage(base.metadata())
            .own()
            .next()
            .unwrap()
            .commit_id
            .unwrap();
        let transaction = Transaction::new(&base);
        let files = append(&base, 2..3).await.files;
        let foreign = transaction.fast_append().add_data_files(files);
        let foreign = foreign.apply(transaction).unwrap();
        let table = foreign.commit(lake.catalog.as_ref()).await.unwrap();
        let walked = lineage(table.metadata());
        assert_eq!(walked.entries.len(), 2);
        assert_eq!(walked.entries[0].commit_id, None);
        assert_eq!(walked.own().count(), 1);
        assert!(walked.find(ours).is_some());
        assert!(walked.contains(base.metadata().current_snapshot_id().unwrap()));
    }

    /// What lies below an expired parent is not known; a table's first snapshot has nothing below it.
    #[tokio::test]
    async fn an_expired_parent_is_told_from_a_first_snapshot() {
        let lake = fixture::lake().await;
        fixture::table(lake.catalog.as_ref()).await;
        let first = add_row(lake.catalog.as_ref(), 1).await;
        let parent_id = first.metadata().current_snapshot_id().unwrap();
        let base = add_row(lake.catalog.as_ref(), 2).await;
        let transaction = Transaction::new(&base);
        let expiry = transaction
            .expire_snapshots()
            .expire_snapshot_ids([parent_id]);
        let expiry = expiry.expire_older_than_ms(0).apply(transaction).unwrap();
        let table = expiry.commit(lake.catalog.as_ref()).await.unwrap();
        let walked = lineage(table.metadata());
        assert_eq!(walked.end, End::Expired { parent_id });
        assert_eq!(walked.entries.len(), 1);
        let next = append(&table, 3..4).await;
        assert!(
            commit::commit(lake.catalog.as_ref(), &table, &next)
                .await
                .is_ok()
        );
    }
}
