//! Keeping a table's metadata small: old snapshots, and the files nothing points to any more.
//!
//! Snapshots of ours are kept for some hours, up to a number and a size, and always the newest: the pipeline's state is
//! rebuilt from it. `history.expire.*` on the table wins over that, and `gc.enabled=false` stops all of it. Files are deleted
//! only when this house wrote them (their names carry a mark), when no snapshot and no metadata log names them, and after
//! a grace time in which a reader or a commit on its way may still want them.
//!
//! Never: a data file. Never the newest snapshot of ours, nor the head of any branch or tag. One owner a table: the caller
//! decides which worker that is; two at once do no harm but work.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use iceberg::Catalog;
use iceberg::spec::{SnapshotRef, TableMetadata};
use iceberg::table::Table;
use iceberg::transaction::{ApplyTransactionAction, Transaction};
use tracing::{debug, info};
use uuid::Uuid;

use super::lineage::lineage;
use super::manifests::{MAINTENANCE, MERGE_AT, merge_manifests};
use super::raw::RawCommitter;
use super::{Error, catalog};
use crate::watermark::contract::COMMIT_ID;

/// Iceberg's default age of a snapshot, applied to those of other writers: 5 days.
const FOREIGN_AGE_MS: i64 = 5 * 24 * 3_600_000;

/// Times within a grace that files are looked for: each is deleted at most a sixth later than it could be.
const SWEEPS_A_GRACE: i64 = 6;

/// Bytes that a snapshot takes in the metadata beside its summary.
const SNAPSHOT_BYTES: usize = 400;

/// Bytes 6 and 7 of the ids in the names of this house's manifests and manifest lists: version 8 ("custom") and a mark, so
/// that no other writer draws one.
const MARK: [u8; 2] = [0x87, 0xde];

/// How long what is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintainSettings {
    /// Age to which own snapshots are kept.
    pub snapshot_age: Duration,
    /// Own snapshots kept at most.
    pub snapshots: usize,
    /// Bytes of metadata that own snapshots may take at most.
    pub snapshot_bytes: usize,
    /// Time from when a file was last needed, and from when it was written, to its deletion. Longer than the longest read
    /// of a snapshot and than any commit may be on its way.
    pub grace: Duration,
    /// Small manifests at which they are merged.
    pub merge_at: usize,
    /// Whether old `*.metadata.json` files are this house's: with an SQL catalog they are, a REST server has its own.
    pub metadata_files: bool,
}

impl Default for MaintainSettings {
    /// 6 hours, 300, 8 MiB; one hour of grace; merged at [`MERGE_AT`]; metadata files left alone.
    fn default() -> Self {
        Self {
            snapshot_age: Duration::from_hours(6),
            snapshots: 300,
            snapshot_bytes: 8 * 1024 * 1024,
            grace: Duration::from_hours(1),
            merge_at: MERGE_AT,
            metadata_files: false,
        }
    }
}

/// What one run did.
#[derive(Debug, Clone)]
pub struct Report {
    /// The table as loaded last.
    pub table: Table,
    /// Whether manifests were merged, by a snapshot of its own.
    pub merged: bool,
    /// Snapshots expired.
    pub expired: usize,
    /// Files deleted.
    pub deleted: usize,
    /// Files that nothing points to, within their grace.
    pub waiting: usize,
}

/// Maintains one table. It remembers since when files are not needed; a new one begins their grace anew.
#[derive(Debug)]
pub struct Maintainer {
    settings: MaintainSettings,
    /// Without one manifests are not merged.
    committer: Option<Arc<dyn RawCommitter>>,
    /// By file name: when it was first seen that nothing points to it, ms.
    unneeded_since_ms: HashMap<String, i64>,
    /// When files were last looked for, ms.
    swept_ms: Option<i64>,
}

impl Maintainer {
    /// A maintainer that has seen nothing yet. Without a committer it merges no manifests.
    #[must_use]
    pub fn new(settings: MaintainSettings, committer: Option<Arc<dyn RawCommitter>>) -> Self {
        Self {
            settings,
            committer,
            unneeded_since_ms: HashMap::new(),
            swept_ms: None,
        }
    }

    /// Merges manifests, expires snapshots, deletes files. `now_ms` is the wall clock, ms since 1970-01-01 UTC.
    ///
    /// Merging moves main: go on from the table in the report, not from the one given.
    ///
    /// # Errors
    /// [`Error::Catalog`] when the catalog fails, [`Error::File`] when storage does; those of
    /// [`commit`](super::commit::commit) when another commit comes between. What was done stays done.
    pub async fn run(
        &mut self,
        catalog: &dyn Catalog,
        table: &Table,
        now_ms: i64,
    ) -> Result<Report, Error> {
        if !collects_garbage(table.metadata()) {
            return Ok(Report {
                table: table.clone(),
                merged: false,
                expired: 0,
                deleted: 0,
                waiting: 0,
            });
        }
        let merged = match &self.committer {
            Some(committer) => {
                merge_manifests(committer.as_ref(), table, self.settings.merge_at, now_ms).await?
            }
            None => None,
        };
        let table = merged.as_ref().unwrap_or(table);
        let expiring = plan_expiry(table.metadata(), &self.settings, now_ms);
        let table = if expiring.is_empty() {
            table.clone()
        } else {
            expire(catalog, table, &expiring).await?
        };
        let deleted = self.sweep(&table, now_ms).await?;
        Ok(Report {
            merged: merged.is_some(),
            expired: expiring.len(),
            deleted,
            waiting: self.unneeded_since_ms.len(),
            table,
        })
    }

    /// Deletes files whose grace is over; how many.
    ///
    /// Looking for them reads the list of every snapshot once manifests were merged, so it is done a few times a grace.
    async fn sweep(&mut self, table: &Table, now_ms: i64) -> Result<usize, Error> {
        let pause_ms = millis(self.settings.grace) / SWEEPS_A_GRACE;
        if self
            .swept_ms
            .is_some_and(|swept_ms| now_ms.saturating_sub(swept_ms) < pause_ms)
        {
            return Ok(0);
        }
        self.swept_ms = Some(now_ms);
        let unneeded = self.unneeded(table, now_ms).await?;
        let mut deleted = 0;
        for name in self.due(&unneeded, now_ms) {
            let path = format!("{}/metadata/{name}", table.metadata().location());
            let gone = table.file_io().delete(&path).await;
            gone.map_err(|error| Error::file(&path, "deleted", error))?;
            self.unneeded_since_ms.remove(&name);
            deleted += 1;
        }
        if deleted > 0 {
            debug!(table = %table.identifier(), files = deleted, "old metadata deleted");
        }
        Ok(deleted)
    }

    /// Names of files of ours in the metadata folder that are old enough to be looked at and that nothing points to.
    async fn unneeded(&self, table: &Table, now_ms: i64) -> Result<HashSet<String>, Error> {
        let location = format!("{}/metadata", table.metadata().location());
        let Some(folder) = catalog::local_path(&location) else {
            return Ok(HashSet::new());
        };
        let written_before_ms = now_ms.saturating_sub(millis(self.settings.grace));
        let metadata_files = self.settings.metadata_files;
        let listed = tokio::task::spawn_blocking(move || {
            list_files(&folder, written_before_ms, metadata_files)
        })
        .await
        .map_err(|error| Error::file(&location, "listed", error))?
        .map_err(|error| Error::file(&location, "listed", error))?;
        let mut unneeded = listed;
        for path in named_by(table) {
            unneeded.remove(name_of(&path));
        }
        // The newest list names nearly every manifest; the lists of older snapshots are read only for what is left.
        let metadata = table.metadata();
        let newest = metadata.current_snapshot();
        let others = metadata.snapshots().filter(|other| {
            newest.is_none_or(|newest| newest.snapshot_id() != other.snapshot_id())
        });
        for snapshot in newest.into_iter().chain(others) {
            if !unneeded.iter().any(|name| is_manifest(name)) {
                break;
            }
            remove_manifests(table, snapshot, &mut unneeded).await?;
        }
        Ok(unneeded)
    }

    /// Those whose grace is over. Begins it for those seen for the first time, ends it for those needed again.
    fn due(&mut self, unneeded: &HashSet<String>, now_ms: i64) -> Vec<String> {
        self.unneeded_since_ms
            .retain(|name, _| unneeded.contains(name));
        let grace_ms = millis(self.settings.grace);
        let mut due = Vec::new();
        for name in unneeded {
            let since_ms = *self.unneeded_since_ms.entry(name.clone()).or_insert(now_ms);
            if now_ms.saturating_sub(since_ms) >= grace_ms {
                due.push(name.clone());
            }
        }
        due
    }
}

/// An id for the names of one attempt's metadata files, with this house's mark. Never used twice: a retry under the same
/// name would overwrite a file that may be committed.
pub(super) fn file_mark() -> Uuid {
    let mut bytes = Uuid::now_v7().into_bytes();
    bytes[6..8].copy_from_slice(&MARK);
    Uuid::from_bytes(bytes)
}

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

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

fn collects_garbage(metadata: &TableMetadata) -> bool {
    metadata
        .properties()
        .get("gc.enabled")
        .is_none_or(|value| !value.eq_ignore_ascii_case("false"))
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

async fn expire(catalog: &dyn Catalog, table: &Table, expiring: &[i64]) -> Result<Table, Error> {
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

/// Files that the metadata itself names: its own, older ones in its log, and a manifest list a snapshot.
fn named_by(table: &Table) -> HashSet<String> {
    let metadata = table.metadata();
    let own = table.metadata_location().map(str::to_owned);
    let logged = metadata
        .metadata_log()
        .iter()
        .map(|entry| entry.metadata_file.clone());
    let lists = metadata
        .snapshots()
        .map(|snapshot| snapshot.manifest_list().to_owned());
    own.into_iter().chain(logged).chain(lists).collect()
}

async fn remove_manifests(
    table: &Table,
    snapshot: &SnapshotRef,
    unneeded: &mut HashSet<String>,
) -> Result<(), Error> {
    let list = table.manifest_list_reader(snapshot).load().await;
    let list = list.map_err(|error| Error::file(snapshot.manifest_list(), "read", error))?;
    for manifest in list.entries() {
        unneeded.remove(name_of(&manifest.manifest_path));
    }
    Ok(())
}

fn list_files(
    folder: &Path,
    written_before_ms: i64,
    metadata_files: bool,
) -> std::io::Result<HashSet<String>> {
    let mut names = HashSet::new();
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        // Nothing was written yet: a server may keep its own metadata elsewhere.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(names),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if !is_ours(&name, metadata_files) {
            continue;
        }
        // Another worker may have deleted it since it was listed.
        let Ok(written) = entry.metadata().and_then(|file| file.modified()) else {
            continue;
        };
        let written_ms = written.duration_since(UNIX_EPOCH).map_or(0, millis);
        if written_ms <= written_before_ms {
            names.insert(name);
        }
    }
    Ok(names)
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn is_manifest(name: &str) -> bool {
    name.strip_suffix(".avro")
        .is_some_and(|stem| !stem.starts_with("snap-"))
}

/// `snap-<id>-<attempt>-<mark>.avro`, `<mark>-m<n>.avro`, and where they are ours `<version>-<uuid>.metadata.json`.
fn is_ours(name: &str, metadata_files: bool) -> bool {
    if let Some(stem) = name.strip_suffix(".avro") {
        let id = match stem.strip_prefix("snap-") {
            Some(_) => stem
                .len()
                .checked_sub(36)
                .and_then(|start| stem.get(start..)),
            None => stem.rsplit_once("-m").map(|(id, _)| id),
        };
        return id
            .and_then(|id| Uuid::parse_str(id).ok())
            .is_some_and(|id| id.as_bytes()[6..8] == MARK);
    }
    let Some(stem) = name.strip_suffix(".metadata.json") else {
        return false;
    };
    let stem = stem.strip_suffix(".gz").unwrap_or(stem);
    metadata_files
        && stem.split_once('-').is_some_and(|(version, id)| {
            version.parse::<u32>().is_ok() && Uuid::parse_str(id).is_ok()
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::commit::{Append, commit};
    use super::super::fixture::{self, add_row, append, ident, lake, read_ids};
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn settings() -> MaintainSettings {
        MaintainSettings {
            grace: Duration::ZERO,
            metadata_files: true,
            ..MaintainSettings::default()
        }
    }

    fn newest_ms(table: &Table) -> i64 {
        table.metadata().current_snapshot().unwrap().timestamp_ms()
    }

    async fn rows(lake: &fixture::Lake, count: i64) -> Table {
        fixture::table(lake.catalog.as_ref()).await;
        for id in 0..count {
            add_row(lake.catalog.as_ref(), id).await;
        }
        catalog::load(lake.catalog.as_ref(), &ident())
            .await
            .unwrap()
    }

    async fn property(lake: &fixture::Lake, key: &str, value: &str) -> Table {
        let base = catalog::load(lake.catalog.as_ref(), &ident())
            .await
            .unwrap();
        let append = Append {
            commit_id: Uuid::now_v7(),
            set_properties: [(key.to_owned(), value.to_owned())].into(),
            ..Append::default()
        };
        commit(lake.catalog.as_ref(), &base, &append).await.unwrap()
    }

    fn metadata_files(table: &Table) -> BTreeSet<String> {
        let folder = catalog::local_path(table.metadata().location()).unwrap();
        std::fs::read_dir(folder.join("metadata"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[tokio::test]
    async fn own_snapshots_go_by_age_and_the_newest_stays() {
        let lake = lake().await;
        let table = rows(&lake, 4).await;
        let now_ms = newest_ms(&table);
        assert!(plan_expiry(table.metadata(), &settings(), now_ms + 6 * HOUR_MS).is_empty());
        let expiring = plan_expiry(table.metadata(), &settings(), now_ms + 7 * HOUR_MS);
        assert_eq!(expiring.len(), 3);
        assert!(!expiring.contains(&table.metadata().current_snapshot_id().unwrap()));
    }

    #[tokio::test]
    async fn own_snapshots_go_by_number_and_size() {
        let lake = lake().await;
        let table = rows(&lake, 12).await;
        let now_ms = newest_ms(&table);
        let few = MaintainSettings {
            snapshots: 10,
            ..settings()
        };
        assert_eq!(
            plan_expiry(table.metadata(), &few, now_ms).len(),
            3,
            "down to 9, below the 10"
        );
        let enough = MaintainSettings {
            snapshots: 12,
            ..settings()
        };
        assert!(plan_expiry(table.metadata(), &enough, now_ms).is_empty());
        let small = MaintainSettings {
            snapshot_bytes: 2000,
            ..settings()
        };
        assert!(plan_expiry(table.metadata(), &small, now_ms).len() > 8);
    }

    #[tokio::test]
    async fn properties_of_the_table_win() {
        let lake = lake().await;
        rows(&lake, 4).await;
        let table = property(&lake, "history.expire.max-snapshot-age-ms", "1000").await;
        let now_ms = newest_ms(&table) + HOUR_MS;
        assert_eq!(plan_expiry(table.metadata(), &settings(), now_ms).len(), 4);
        let table = property(&lake, "history.expire.min-snapshots-to-keep", "4").await;
        let now_ms = newest_ms(&table) + HOUR_MS;
        assert_eq!(plan_expiry(table.metadata(), &settings(), now_ms).len(), 2);
        let table = property(&lake, "gc.enabled", "false").await;
        let mut maintainer = Maintainer::new(settings(), None);
        let report = maintainer
            .run(lake.catalog.as_ref(), &table, now_ms + HOUR_MS)
            .await
            .unwrap();
        assert_eq!((report.expired, report.deleted, report.waiting), (0, 0, 0));
    }

    /// The newest snapshot of ours holds the pipeline's state, however many of others' came after it.
    #[tokio::test]
    async fn the_newest_own_snapshot_stays_below_others() {
        let lake = lake().await;
        let own = rows(&lake, 3).await;
        let kept = own.metadata().current_snapshot_id().unwrap();
        let files = append(&own, 50..51).await.files;
        let transaction = Transaction::new(&own);
        let foreign = transaction.fast_append().add_data_files(files);
        let foreign = foreign.apply(transaction).unwrap();
        let table = foreign.commit(lake.catalog.as_ref()).await.unwrap();
        let expiring = plan_expiry(
            table.metadata(),
            &settings(),
            newest_ms(&table) + 7 * HOUR_MS,
        );
        assert_eq!(expiring.len(), 2);
        assert!(!expiring.contains(&kept));
    }

    #[tokio::test]
    async fn files_nothing_points_to_are_deleted_and_all_rows_stay() {
        let lake = lake().await;
        let table = rows(&lake, 30).await;
        let folder = catalog::local_path(table.metadata().location())
            .unwrap()
            .join("metadata");
        let foreign = format!("{}-m0.avro", Uuid::now_v7());
        let orphan = format!("{}-m0.avro", file_mark());
        std::fs::write(folder.join(&foreign), b"another writer's").unwrap();
        std::fs::write(folder.join(&orphan), b"a failed attempt's").unwrap();
        let before = metadata_files(&table);
        let now_ms = newest_ms(&table) + 7 * HOUR_MS;
        let mut maintainer = Maintainer::new(settings(), None);
        let report = maintainer
            .run(lake.catalog.as_ref(), &table, now_ms)
            .await
            .unwrap();
        assert_eq!(report.expired, 29);
        let after = metadata_files(&report.table);
        assert!(after.contains(&foreign) && !after.contains(&orphan));
        let lists = after
            .iter()
            .filter(|name| name.starts_with("snap-"))
            .count();
        assert_eq!(lists, 1, "one snapshot, one list");
        let metadata = after
            .iter()
            .filter(|name| name.ends_with(".metadata.json"))
            .count();
        assert_eq!(metadata, 21, "the newest and the 20 of the log");
        assert_eq!(report.deleted, before.len() + 1 - after.len());
        assert_eq!(read_ids(&report.table).await, (0..30).collect::<Vec<i64>>());
        assert!(
            add_row(lake.catalog.as_ref(), 30)
                .await
                .metadata()
                .current_snapshot()
                .is_some()
        );
    }

    #[tokio::test]
    async fn files_wait_for_their_grace_from_when_they_were_last_needed() {
        let lake = lake().await;
        let table = rows(&lake, 3).await;
        let patient = MaintainSettings {
            grace: Duration::from_hours(1),
            ..settings()
        };
        let mut maintainer = Maintainer::new(patient, None);
        let now_ms = newest_ms(&table) + 7 * HOUR_MS;
        let first = maintainer
            .run(lake.catalog.as_ref(), &table, now_ms)
            .await
            .unwrap();
        assert_eq!((first.expired, first.deleted, first.waiting), (2, 0, 2));
        let early = maintainer
            .run(lake.catalog.as_ref(), &first.table, now_ms + HOUR_MS / 2)
            .await
            .unwrap();
        assert_eq!((early.deleted, early.waiting), (0, 2));
        let due = maintainer
            .run(lake.catalog.as_ref(), &first.table, now_ms + HOUR_MS)
            .await
            .unwrap();
        assert_eq!((due.deleted, due.waiting), (2, 0));
        assert_eq!(read_ids(&due.table).await, [0, 1, 2]);
    }

    #[tokio::test]
    async fn merged_manifests_hold_the_same_rows_and_old_ones_go() {
        let lake = lake().await;
        let table = rows(&lake, 12).await;
        let committer = super::super::raw::open_raw(&lake.settings).await.unwrap();
        let merging = MaintainSettings {
            merge_at: 10,
            ..settings()
        };
        let mut maintainer = Maintainer::new(merging, Some(committer));
        let now_ms = newest_ms(&table);
        let first = maintainer
            .run(lake.catalog.as_ref(), &table, now_ms)
            .await
            .unwrap();
        assert!(first.merged && first.expired == 0);
        let now_ms = now_ms + 7 * HOUR_MS;
        let report = maintainer
            .run(lake.catalog.as_ref(), &first.table, now_ms)
            .await
            .unwrap();
        assert_eq!(
            report.expired, 11,
            "all but the newest commit and the merge"
        );
        let newest = report.table.metadata().current_snapshot().unwrap();
        let list = report
            .table
            .manifest_list_reader(newest)
            .load()
            .await
            .unwrap();
        assert_eq!(list.entries().len(), 1);
        let summary = &newest.summary().additional_properties;
        assert_eq!(
            (
                summary["total-records"].as_str(),
                summary["total-data-files"].as_str()
            ),
            ("12", "12")
        );
        assert_eq!(
            lineage(report.table.metadata()).own().count(),
            1,
            "a merge is no commit of the pipeline"
        );
        let next = add_row(lake.catalog.as_ref(), 12).await;
        assert_eq!(read_ids(&next).await, (0..13).collect::<Vec<i64>>());
        let again = maintainer
            .run(lake.catalog.as_ref(), &next, now_ms + 1)
            .await
            .unwrap();
        assert!(!again.merged);
    }

    #[test]
    fn only_names_with_the_mark_are_ours() {
        let mark = file_mark();
        assert_eq!(mark.get_version_num(), 8);
        assert!(is_ours(&format!("{mark}-m0.avro"), false));
        assert!(is_ours(&format!("snap-123-0-{mark}.avro"), false));
        let other = Uuid::now_v7();
        assert!(!is_ours(&format!("{other}-m0.avro"), true));
        assert!(!is_ours(&format!("snap-123-0-{other}.avro"), true));
        assert!(!is_ours("snap-1.avro", true));
        assert!(!is_ours("20260101-stats.puffin", true));
        let metadata = format!("00012-{other}.metadata.json");
        assert!(is_ours(&metadata, true) && !is_ours(&metadata, false));
        assert!(
            !is_ours("v3.metadata.json", true),
            "Hadoop tables are not ours"
        );
    }
}
