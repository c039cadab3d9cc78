//! Data files that no snapshot names.
//!
//! A worker that is killed leaves files behind, and one whose commit was never answered must not delete its own. They are
//! found by name, age and reachability: written by this house for this table, older than days, and named by no manifest of any
//! snapshot, branch or tag. What a rewrite of another engine left behind, and expiry has cut off, goes the same way.
//!
//! Why no file is deleted that a commit may still name: a commit is not begun with files of half that age
//! ([`COMMIT_WITHIN`]), and the other half is longer than a request can be on its way and than two clocks can differ. A
//! manifest that cannot be read ends the search, and nothing is deleted.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use iceberg::spec::{ManifestContentType, SnapshotRef, TableMetadata};
use iceberg::table::Table;
use tracing::info;
use uuid::Uuid;

use super::maintain::{Graces, MaintainSettings, millis};
use super::names::{DataFileName, data_folder, name_of};
use super::storage::Lister;
use super::{Error, catalog};

/// Age from which a data file that no snapshot names is taken for an orphan: Iceberg's own default, three days.
pub const ORPHAN_AGE: Duration = Duration::from_hours(72);

/// Age of a file after which no commit may be begun with it.
pub const COMMIT_WITHIN: Duration = Duration::from_hours(36);

/// Searches within an orphan's age while none is found: each reads every manifest.
const SWEEPS_AN_AGE: i64 = 12;

/// Folders within folders that are looked into: more than any partitioning has fields.
const DEEPEST: usize = 32;

/// The search for orphans of one table. Finding one begins its grace; a new one begins all anew.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    found: Graces<DataFileName>,
    /// When they were last looked for, ms.
    swept_ms: Option<i64>,
}

impl Orphans {
    /// How many were found and wait for the end of their grace.
    pub(super) fn waiting(&self) -> usize {
        self.found.len()
    }

    /// Looks for orphans when it is time, and deletes those whose grace is over; how many.
    pub(super) async fn sweep(
        &mut self,
        table: &Table,
        settings: &MaintainSettings,
        lister: Option<&Lister>,
        now_ms: i64,
    ) -> Result<usize, Error> {
        let pause_ms = if self.found.len() == 0 {
            millis(settings.orphan_age) / SWEEPS_AN_AGE
        } else {
            millis(settings.grace)
        };
        if self
            .swept_ms
            .is_some_and(|swept_ms| now_ms.saturating_sub(swept_ms) < pause_ms)
        {
            return Ok(0);
        }
        self.swept_ms = Some(now_ms);
        let location = data_folder(table.metadata());
        let bounds = Bounds {
            table_uuid: table.metadata().uuid(),
            written_before_ms: now_ms.saturating_sub(millis(settings.orphan_age)),
        };
        let old = match (catalog::local_path(&location), lister) {
            (Some(folder), _) => Old::in_folder(LocalFolder { folder, bounds }, &location).await?,
            (None, Some(lister)) => Old::in_store(table, lister, bounds, &location).await?,
            (None, None) => return Ok(0),
        };
        let mut orphans = old.names();
        remove_reachable(table, &mut orphans).await?;
        let due = self.found.due(&orphans, millis(settings.grace), now_ms);
        if due.is_empty() {
            return Ok(0);
        }
        let deleted = old.delete(table, &due, &location).await?;
        for orphan in &due {
            self.found.forget(orphan);
        }
        info!(table = %table.identifier(), files = deleted, "data files that no snapshot names deleted");
        Ok(deleted)
    }
}

/// Which files are looked for: those of this house for one table, of before an instant.
#[derive(Clone, Copy)]
struct Bounds {
    table_uuid: Uuid,
    written_before_ms: i64,
}

/// The old files of this house in the data folder of a table.
enum Old {
    Folder(LocalFolder, HashSet<DataFileName>),
    /// With their paths.
    Store(HashMap<DataFileName, String>),
}

impl Old {
    async fn in_folder(folder: LocalFolder, location: &str) -> Result<Self, Error> {
        let (folder, names) = folder.list(location).await?;
        Ok(Self::Folder(folder, names))
    }

    async fn in_store(
        table: &Table,
        lister: &Lister,
        bounds: Bounds,
        location: &str,
    ) -> Result<Self, Error> {
        let found = lister.files(table, location).await;
        let found = found.map_err(|error| Error::file(location, "listed", error))?;
        let old = found.into_iter().filter_map(|file| {
            let name = DataFileName::read(name_of(&file.path), bounds.table_uuid)?;
            let written_ms = file.written_ms?;
            (written_ms < bounds.written_before_ms).then_some((name, file.path))
        });
        Ok(Self::Store(old.collect()))
    }

    fn names(&self) -> HashSet<DataFileName> {
        match self {
            Self::Folder(_, names) => names.clone(),
            Self::Store(paths) => paths.keys().copied().collect(),
        }
    }

    /// How many were deleted: somebody else may have been quicker.
    async fn delete(
        self,
        table: &Table,
        orphans: &[DataFileName],
        location: &str,
    ) -> Result<usize, Error> {
        match self {
            Self::Folder(folder, _) => {
                folder
                    .delete(orphans.iter().copied().collect(), location)
                    .await
            }
            Self::Store(paths) => {
                for orphan in orphans {
                    let path = &paths[orphan];
                    let gone = table.file_io().delete(path).await;
                    gone.map_err(|error| Error::file(path, "deleted", error))?;
                }
                Ok(orphans.len())
            }
        }
    }
}

/// A data folder of this machine.
struct LocalFolder {
    folder: PathBuf,
    bounds: Bounds,
}

impl LocalFolder {
    async fn list(self, location: &str) -> Result<(Self, HashSet<DataFileName>), Error> {
        let work = move || {
            let mut names = HashSet::new();
            self.each(&mut |_, name| {
                names.insert(name);
                Ok(())
            })?;
            Ok((self, names))
        };
        blocking(location, "listed", work).await
    }

    async fn delete(self, orphans: HashSet<DataFileName>, location: &str) -> Result<usize, Error> {
        let work = move || {
            let mut deleted = 0;
            self.each(&mut |path, name| {
                if orphans.contains(&name) {
                    std::fs::remove_file(path)?;
                    deleted += 1;
                }
                Ok(())
            })?;
            Ok(deleted)
        };
        blocking(location, "cleared of orphans", work).await
    }

    /// Calls `found` for each. Links are not followed, and what vanishes meanwhile is passed over.
    fn each(
        &self,
        found: &mut dyn FnMut(&Path, DataFileName) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut folders = vec![(self.folder.clone(), 0)];
        while let Some((folder, depth)) = folders.pop() {
            let entries = match std::fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                let entry = entry?;
                let kind = entry.file_type()?;
                if kind.is_dir() && depth < DEEPEST {
                    folders.push((entry.path(), depth + 1));
                }
                let name = entry.file_name();
                let name = name
                    .to_str()
                    .and_then(|name| DataFileName::read(name, self.bounds.table_uuid));
                let Some(name) = name.filter(|_| kind.is_file()) else {
                    continue;
                };
                let Ok(written) = entry.metadata().and_then(|file| file.modified()) else {
                    continue;
                };
                let written_ms = written.duration_since(UNIX_EPOCH).map_or(0, millis);
                if written_ms < self.bounds.written_before_ms {
                    match found(&entry.path(), name) {
                        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}

async fn blocking<T: Send + 'static>(
    location: &str,
    doing: &'static str,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::file(location, doing, error))?
        .map_err(|error| Error::file(location, doing, error))
}

/// Takes out every file that a manifest of any snapshot names. The newest snapshot names nearly all, so the others are read
/// only where something is left.
async fn remove_reachable(table: &Table, files: &mut HashSet<DataFileName>) -> Result<(), Error> {
    let metadata = table.metadata();
    let mut read = HashSet::new();
    for snapshot in newest_first(metadata) {
        if files.is_empty() {
            return Ok(());
        }
        let list = table.manifest_list_reader(snapshot).load().await;
        let list = list.map_err(|error| Error::file(snapshot.manifest_list(), "read", error))?;
        for manifest in list.entries() {
            // Delete files are other engines'.
            if manifest.content != ManifestContentType::Data
                || !read.insert(manifest.manifest_path.clone())
            {
                continue;
            }
            let loaded = manifest.load_manifest(table.file_io()).await;
            let loaded =
                loaded.map_err(|error| Error::file(&manifest.manifest_path, "read", error))?;
            for entry in loaded.entries().iter().filter(|entry| entry.is_alive()) {
                let name = name_of(entry.data_file().file_path());
                if let Some(name) = DataFileName::read(name, metadata.uuid()) {
                    files.remove(&name);
                }
            }
        }
    }
    Ok(())
}

fn newest_first(metadata: &TableMetadata) -> Vec<&SnapshotRef> {
    let mut snapshots: Vec<&SnapshotRef> = metadata.snapshots().collect();
    snapshots.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.sequence_number()));
    snapshots
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use iceberg::TableUpdate;
    use iceberg::spec::{DataFile, MAIN_BRANCH, SnapshotReference, SnapshotRetention};

    use super::super::fixture::{self, Lake, add_row, ident, lake, read_ids};
    use super::super::maintain::Maintainer;
    use super::super::names::file_mark;
    use super::super::raw::open_raw;
    use super::*;

    const HOUR_MS: i64 = 3_600_000;
    const DAY_MS: i64 = 24 * HOUR_MS;

    async fn rows(lake: &Lake, count: i64) -> Table {
        fixture::table(lake.catalog.as_ref()).await;
        for id in 0..count {
            add_row(lake.catalog.as_ref(), id).await;
        }
        load(lake).await
    }

    async fn load(lake: &Lake) -> Table {
        catalog::load(lake.catalog.as_ref(), &ident())
            .await
            .unwrap()
    }

    fn path(file: &DataFile) -> PathBuf {
        catalog::local_path(file.file_path()).unwrap()
    }

    fn files_of(table: &Table) -> BTreeSet<PathBuf> {
        let folder = catalog::local_path(&data_folder(table.metadata())).unwrap();
        let mut files = BTreeSet::new();
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                } else {
                    files.insert(entry.path());
                }
            }
        }
        files
    }

    fn newest_ms(table: &Table) -> i64 {
        table.metadata().current_snapshot().unwrap().timestamp_ms()
    }

    /// What a worker that is killed between closing its files and their commit leaves behind.
    #[tokio::test]
    async fn files_of_a_killed_worker_go_after_days_and_all_rows_stay() {
        let lake = lake().await;
        let table = rows(&lake, 5).await;
        let committed = files_of(&table);
        let left = fixture::files(&table, 90..95).await;
        let mut maintainer = Maintainer::new(MaintainSettings::default(), None);
        let now_ms = newest_ms(&table);
        let mut seen = Vec::new();
        for hours in [1, 35, 71, 77, 77 + 1] {
            let at_ms = now_ms + hours * HOUR_MS;
            let table = load(&lake).await;
            let report = maintainer.run(lake.catalog.as_ref(), &table, at_ms);
            let report = report.await.unwrap();
            seen.push((report.orphans, path(&left[0]).exists()));
        }
        assert_eq!(
            seen,
            [(0, true), (0, true), (0, true), (0, true), (1, false)],
            "three days, the next search, and its grace"
        );
        assert_eq!(files_of(&table), committed);
        assert_eq!(read_ids(&load(&lake).await).await, [0, 1, 2, 3, 4]);
    }

    /// Names of others, of another table in the same folder, and links are left alone, whatever their age.
    #[tokio::test]
    async fn only_files_written_for_this_table_are_looked_at() {
        let lake = lake().await;
        let table = rows(&lake, 1).await;
        let folder = catalog::local_path(&data_folder(table.metadata())).unwrap();
        let own = DataFileName {
            writer: file_mark(),
            number: 1,
        };
        let others = [
            format!("00000-0-{}-00001.parquet", Uuid::now_v7()),
            own.write(Uuid::from_u128(1)),
            "notes.txt".to_owned(),
        ];
        for name in &others {
            std::fs::write(folder.join(name), b"another's").unwrap();
        }
        let outside = lake.folder.path().join(own.write(table.metadata().uuid()));
        std::fs::write(&outside, b"elsewhere").unwrap();
        std::os::unix::fs::symlink(lake.folder.path(), folder.join("linked")).unwrap();
        let eager = MaintainSettings {
            grace: Duration::ZERO,
            ..MaintainSettings::default()
        };
        let mut orphans = Orphans::default();
        let deleted = orphans.sweep(&table, &eager, None, newest_ms(&table) + 9 * DAY_MS);
        assert_eq!(deleted.await.unwrap(), 0);
        assert!(others.iter().all(|name| folder.join(name).exists()) && outside.exists());
    }

    /// Main was taken back behind a commit whose snapshot a tag still names.
    #[tokio::test]
    async fn file_that_only_a_tag_names_stays_until_the_tag_is_gone() {
        let lake = lake().await;
        let first = rows(&lake, 1).await;
        let second = add_row(lake.catalog.as_ref(), 1).await;
        let committer = open_raw(&lake.settings).await.unwrap();
        let id = |table: &Table| table.metadata().current_snapshot_id().unwrap();
        let name = |ref_name: &str, reference: SnapshotReference| TableUpdate::SetSnapshotRef {
            ref_name: ref_name.to_owned(),
            reference,
        };
        let kept = SnapshotReference::new(
            id(&second),
            SnapshotRetention::Tag {
                max_ref_age_ms: None,
            },
        );
        let back = SnapshotReference::new(id(&first), SnapshotRetention::branch(None, None, None));
        let updates = vec![name("audited", kept), name(MAIN_BRANCH, back)];
        let table = committer.update(&second, Uuid::now_v7(), updates).await;
        let table = table.unwrap();
        assert_eq!(read_ids(&table).await, [0]);
        let mut maintainer = Maintainer::new(MaintainSettings::default(), None);
        let now_ms = newest_ms(&table) + 9 * DAY_MS;
        for hours in [0, 7, 14] {
            let at_ms = now_ms + hours * HOUR_MS;
            let report = maintainer.run(lake.catalog.as_ref(), &table, at_ms);
            assert_eq!(report.await.unwrap().orphans, 0);
        }
        assert_eq!(files_of(&table).len(), 2);
        let gone = vec![TableUpdate::RemoveSnapshotRef {
            ref_name: "audited".to_owned(),
        }];
        let table = committer
            .update(&table, Uuid::now_v7(), gone)
            .await
            .unwrap();
        let mut orphans = 0;
        for hours in [21, 28, 35] {
            let at_ms = now_ms + hours * HOUR_MS;
            let table = load(&lake).await;
            let report = maintainer.run(lake.catalog.as_ref(), &table, at_ms);
            orphans += report.await.unwrap().orphans;
        }
        assert_eq!((orphans, files_of(&table).len()), (1, 1));
        assert_eq!(read_ids(&load(&lake).await).await, [0]);
    }

    /// What is not known to be unneeded is needed.
    #[tokio::test]
    async fn manifest_that_cannot_be_read_keeps_every_file() {
        let lake = lake().await;
        let table = rows(&lake, 3).await;
        let left = fixture::files(&table, 90..91).await;
        let newest = table.metadata().current_snapshot().unwrap();
        let list = table.manifest_list_reader(newest).load().await.unwrap();
        let manifest = catalog::local_path(&list.entries()[0].manifest_path).unwrap();
        std::fs::remove_file(manifest).unwrap();
        let eager = MaintainSettings {
            grace: Duration::ZERO,
            ..MaintainSettings::default()
        };
        let mut orphans = Orphans::default();
        let swept = orphans.sweep(&table, &eager, None, newest_ms(&table) + 9 * DAY_MS);
        let error = swept.await.unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error:?}");
        assert!(path(&left[0]).exists());
        assert_eq!(files_of(&table).len(), 4);
    }
}
