//! Keeping a table small: old snapshots (`expiry`), small manifests, and the files nothing points to any more.
//!
//! Snapshots of ours are kept for some hours, up to a number and a size. `gc.enabled=false` on the table stops all of it. Files
//! are deleted only when this house wrote them (their names carry a mark), when no snapshot and no metadata log names them,
//! and after a grace time in which a reader or a commit on its way may still want them; a data file moreover only when it is
//! days old (`orphans`).
//!
//! One owner a table: the caller decides which worker that is; two at once do no harm but work.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use iceberg::Catalog;
use iceberg::spec::{SnapshotRef, TableMetadata};
use iceberg::table::Table;
use tracing::debug;

use super::expiry::expire;
pub use super::expiry::plan_expiry;
use super::manifests::{MERGE_AT, merge_manifests};
use super::names::{is_manifest, is_our_metadata, name_of};
use super::orphans::{ORPHAN_AGE, Orphans};
use super::raw::RawCommitter;
use super::storage::{Listed, Lister};
use super::{Error, catalog};

/// Times within a grace that files are looked for: each is deleted at most a sixth later than it could be.
const SWEEPS_A_GRACE: i64 = 6;

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
    /// Age from which a data file that nothing points to is an orphan. A commit with a file of half this age is not made.
    pub orphan_age: Duration,
}

impl Default for MaintainSettings {
    /// 6 hours, 300, 8 MiB; one hour of grace; merged at [`MERGE_AT`]; metadata files left alone; orphans at [`ORPHAN_AGE`].
    fn default() -> Self {
        Self {
            snapshot_age: Duration::from_hours(6),
            snapshots: 300,
            snapshot_bytes: 8 * 1024 * 1024,
            grace: Duration::from_hours(1),
            merge_at: MERGE_AT,
            metadata_files: false,
            orphan_age: ORPHAN_AGE,
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
    /// Metadata files deleted.
    pub deleted: usize,
    /// Data files deleted.
    pub orphans: usize,
    /// Files that nothing points to, within their grace.
    pub waiting: usize,
}

/// Maintains one table. It remembers since when files are not needed; a new one begins their grace anew.
#[derive(Debug)]
pub struct Maintainer {
    settings: MaintainSettings,
    /// Without one manifests are not merged.
    committer: Option<Arc<dyn RawCommitter>>,
    /// Without one no files are looked for in a store.
    lister: Option<Lister>,
    unneeded: Graces<String>,
    /// When metadata files were last looked for, ms.
    swept_ms: Option<i64>,
    orphans: Orphans,
}

impl Maintainer {
    /// A maintainer that has seen nothing yet. Without a committer it merges no manifests.
    #[must_use]
    pub fn new(settings: MaintainSettings, committer: Option<Arc<dyn RawCommitter>>) -> Self {
        Self {
            settings,
            committer,
            lister: None,
            unneeded: Graces::default(),
            swept_ms: None,
            orphans: Orphans::default(),
        }
    }

    /// The same, looking for files in a store as well.
    #[must_use]
    pub fn with_lister(mut self, lister: Lister) -> Self {
        self.lister = Some(lister);
        self
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
                orphans: 0,
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
        let files = self.lister.as_ref();
        let orphans = self.orphans.sweep(&table, &self.settings, files, now_ms);
        let orphans = orphans.await?;
        Ok(Report {
            merged: merged.is_some(),
            expired: expiring.len(),
            deleted,
            orphans,
            waiting: self.unneeded.len() + self.orphans.waiting(),
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
        let grace_ms = millis(self.settings.grace);
        for name in self.unneeded.due(&unneeded, grace_ms, now_ms) {
            let path = format!("{}/metadata/{name}", table.metadata().location());
            let gone = table.file_io().delete(&path).await;
            gone.map_err(|error| Error::file(&path, "deleted", error))?;
            self.unneeded.forget(&name);
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
        let written_before_ms = now_ms.saturating_sub(millis(self.settings.grace));
        let metadata_files = self.settings.metadata_files;
        let mut unneeded = match (catalog::local_path(&location), &self.lister) {
            (Some(folder), _) => tokio::task::spawn_blocking(move || {
                list_files(&folder, written_before_ms, metadata_files)
            })
            .await
            .map_err(|error| Error::file(&location, "listed", error))?
            .map_err(|error| Error::file(&location, "listed", error))?,
            (None, Some(lister)) => {
                let found = lister.files(table, &location).await;
                let found = found.map_err(|error| Error::file(&location, "listed", error))?;
                let ours = |file: &Listed| {
                    is_our_metadata(name_of(&file.path), metadata_files)
                        && file.written_ms.is_some_and(|at| at <= written_before_ms)
                };
                let ours = found.into_iter().filter(ours);
                ours.map(|file| name_of(&file.path).to_owned()).collect()
            }
            (None, None) => return Ok(HashSet::new()),
        };
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
}

/// Files that nothing points to, and when that was first seen of each, ms.
#[derive(Debug)]
pub(super) struct Graces<K>(HashMap<K, i64>);

impl<K> Default for Graces<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash> Graces<K> {
    /// Those whose grace is over. Begins it for those seen for the first time, ends it for those needed again.
    pub(super) fn due(&mut self, unneeded: &HashSet<K>, grace_ms: i64, now_ms: i64) -> Vec<K> {
        self.0.retain(|file, _| unneeded.contains(file));
        let mut due = Vec::new();
        for file in unneeded {
            let since_ms = *self.0.entry(file.clone()).or_insert(now_ms);
            if now_ms.saturating_sub(since_ms) >= grace_ms {
                due.push(file.clone());
            }
        }
        due
    }

    /// It is deleted.
    pub(super) fn forget(&mut self, file: &K) {
        self.0.remove(file);
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

pub(super) fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

fn collects_garbage(metadata: &TableMetadata) -> bool {
    metadata
        .properties()
        .get("gc.enabled")
        .is_none_or(|value| !value.eq_ignore_ascii_case("false"))
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
        if !is_our_metadata(&name, metadata_files) {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use iceberg::transaction::{ApplyTransactionAction, Transaction};
    use uuid::Uuid;

    use super::super::commit::{Append, commit};
    use super::super::fixture::{self, add_row, append, ident, lake, read_ids};
    use super::super::lineage::lineage;
    use super::super::names::file_mark;
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
}
