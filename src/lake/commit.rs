//! One atomic commit on one known base.
//!
//! In go the base that the caller derived its claim and offsets from, the data files, the summary and the table
//! properties; out comes the table as loaded afterwards, or an error that says what may have happened: never sent, refused,
//! another came first, unknown. One attempt, never more: what was derived from a base that is gone is never sent again.
//!
//! The base is exact. The client's transaction (`iceberg` 0.10.1) loads the table anew on each attempt and silently moves
//! what it was given onto what it finds (apache/iceberg-rust#3134), so it is handed a catalog that answers the load with
//! the base itself. Its requirements (table UUID; main's snapshot, or none yet) then name that base, and the catalog checks
//! them in the same step that applies the commit.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use iceberg::spec::{
    DataFile, FormatVersion, ManifestFile, Operation, SnapshotSummaryCollector, Summary,
};
use iceberg::table::Table;
use iceberg::transaction::{ApplyTransactionAction, Transaction};
use iceberg::{
    Catalog, ErrorKind, Namespace, NamespaceIdent, Result as IcebergResult, TableCommit,
    TableCreation, TableIdent, TableUpdate,
};
use uuid::Uuid;

use super::Error;
use super::lineage::lineage;
use super::manifests::Draft;
use super::names::file_mark;
use super::raw::RawCommitter;
use crate::watermark::contract::{COMMIT_ID, WITHDRAWAL_ID};

/// What one commit adds to the table.
#[derive(Debug, Clone, Default)]
pub struct Append {
    /// Our id of this commit; it is put into the summary under [`COMMIT_ID`], or [`WITHDRAWAL_ID`].
    pub commit_id: Uuid,
    /// Whether it only takes a claim away: it is then no commit of a writer.
    pub withdraws: bool,
    /// Data files; none is allowed, the snapshot then carries the summary only.
    pub files: Vec<DataFile>,
    /// Keys of the snapshot's summary. `added-*` and `total-*` are the format's own and win.
    pub summary: BTreeMap<String, String>,
    /// Table properties to set.
    pub set_properties: BTreeMap<String, String>,
    /// Table properties to remove; one that is also set stays.
    pub remove_properties: Vec<String>,
}

impl Append {
    fn id_name(&self) -> &'static str {
        if self.withdraws {
            WITHDRAWAL_ID
        } else {
            COMMIT_ID
        }
    }
}

/// Commits on exactly `base`, once.
///
/// # Errors
/// [`Error::NotSent`], [`Error::Refused`] and [`Error::Conflict`]: nothing of ours is on the table. [`Error::Unknown`]: it may
/// be, so load and look for the commit id; the files must not be deleted. [`Error::NoSuchTable`]: the table is gone.
pub async fn commit(catalog: &dyn Catalog, base: &Table, append: &Append) -> Result<Table, Error> {
    let guard = Guard {
        catalog,
        base,
        sent: AtomicBool::new(false),
    };
    let outcome = match stage(base, append) {
        Ok(transaction) => transaction.commit(&guard).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(_) => confirm(catalog, base, append.commit_id).await,
        Err(error) if guard.sent.load(Ordering::Acquire) => {
            settle(catalog, base, append.commit_id, error).await
        }
        Err(error) => Err(not_sent(base, append.commit_id, error)),
    }
}

/// Commits by hand on exactly `base`, once: as [`commit`], without the client's loads of the whole table before and after.
///
/// Where metadata is kept by this process (an SQL catalog) the client reads it twice a commit and writes it once; here it is
/// written once. `now_ms` is the wall clock, ms since 1970-01-01 UTC. The table that comes back brings the base's storage
/// credentials.
///
/// # Errors
/// As [`commit`]. Tables of another format version than 2 are [`Error::Refused`].
pub async fn commit_by_hand(
    committer: &dyn RawCommitter,
    base: &Table,
    append: &Append,
    now_ms: i64,
) -> Result<Table, Error> {
    let failed = |error| not_sent(base, append.commit_id, error);
    if base.metadata().format_version() != FormatVersion::V2 {
        return Err(failed(iceberg::Error::new(
            ErrorKind::FeatureUnsupported,
            "only tables of format version 2 are committed by hand",
        )));
    }
    let draft = Draft::new(base);
    let manifests = manifests_with(base, append, &draft).await;
    let manifests = manifests.map_err(failed)?;
    let drafted = draft.updates(manifests, hand_summary(base, append), now_ms);
    let mut updates = drafted.await.map_err(|error| {
        let text = error.to_string();
        failed(iceberg::Error::new(ErrorKind::Unexpected, text).with_source(error))
    })?;
    if !append.set_properties.is_empty() {
        updates.push(TableUpdate::SetProperties {
            updates: append.set_properties.clone().into_iter().collect(),
        });
    }
    let removals = removals(base, append);
    if !removals.is_empty() {
        updates.push(TableUpdate::RemoveProperties { removals });
    }
    committer.update(base, append.commit_id, updates).await
}

async fn manifests_with(
    base: &Table,
    append: &Append,
    draft: &Draft<'_>,
) -> IcebergResult<Vec<ManifestFile>> {
    let mut manifests = match base.metadata().current_snapshot() {
        Some(newest) => {
            let list = base.manifest_list_reader(newest).load().await?;
            list.consume_entries().into_iter().collect()
        }
        None => Vec::new(),
    };
    if !append.files.is_empty() {
        manifests.push(draft.write_added(&append.files).await?);
    }
    Ok(manifests)
}

/// The summary as the client computes it: the format's own keys win, totals go on from the base's.
fn hand_summary(base: &Table, append: &Append) -> Summary {
    let metadata = base.metadata();
    let mut collector = SnapshotSummaryCollector::default();
    for file in &append.files {
        let spec = metadata.default_partition_spec().clone();
        collector.add_file(file, metadata.current_schema().clone(), spec);
    }
    let mut properties: HashMap<String, String> = append.summary.clone().into_iter().collect();
    properties.insert(append.id_name().to_owned(), append.commit_id.to_string());
    properties.extend(collector.build());
    let number = |properties: &HashMap<String, String>, key: &str| -> u64 {
        properties
            .get(key)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    };
    let newest = metadata.current_snapshot();
    for (total, added) in [
        ("total-data-files", "added-data-files"),
        ("total-records", "added-records"),
        ("total-files-size", "added-files-size"),
        ("total-delete-files", "added-delete-files"),
        ("total-position-deletes", "added-position-deletes"),
        ("total-equality-deletes", "added-equality-deletes"),
    ] {
        let before = newest.map_or(0, |newest| {
            number(&newest.summary().additional_properties, total)
        });
        let after = before + number(&properties, added);
        properties.insert(total.to_owned(), after.to_string());
    }
    Summary {
        operation: Operation::Append,
        additional_properties: properties,
    }
}

fn removals(base: &Table, append: &Append) -> Vec<String> {
    let there = base.metadata().properties();
    append
        .remove_properties
        .iter()
        .filter(|key| !append.set_properties.contains_key(*key) && there.contains_key(*key))
        .cloned()
        .collect()
}

fn stage(base: &Table, append: &Append) -> IcebergResult<Transaction> {
    let mut summary: HashMap<String, String> = append.summary.clone().into_iter().collect();
    summary.insert(append.id_name().to_owned(), append.commit_id.to_string());
    let transaction = Transaction::new(base);
    // The duplicate check reads every manifest of the table on each commit; names of files here are never drawn twice.
    let mut transaction = transaction
        .fast_append()
        .with_check_duplicate(false)
        .set_commit_uuid(file_mark())
        .set_snapshot_properties(summary)
        .add_data_files(append.files.iter().cloned())
        .apply(transaction)?;
    let removed = removals(base, append);
    if !append.set_properties.is_empty() || !removed.is_empty() {
        let mut properties = transaction.update_table_properties();
        for (key, value) in &append.set_properties {
            properties = properties.set(key.clone(), value.clone());
        }
        for key in removed {
            properties = properties.remove(key);
        }
        transaction = properties.apply(transaction)?;
    }
    Ok(transaction)
}

/// Loads the table and finds the commit in it.
///
/// A success is read back because the SQL catalog (0.10.1) drops the error of its database's own commit, and because the
/// table that a commit returns lacks storage credentials that a load brings.
async fn confirm(catalog: &dyn Catalog, base: &Table, commit_id: Uuid) -> Result<Table, Error> {
    let unknown = |source: iceberg::Error| Error::Unknown {
        table: base.identifier().clone(),
        commit_id,
        source: Box::new(source),
    };
    let table = catalog
        .load_table(base.identifier())
        .await
        .map_err(unknown)?;
    if holds(&table, base, commit_id) {
        return Ok(table);
    }
    Err(unknown(iceberg::Error::new(
        ErrorKind::Unexpected,
        "the catalog reported success and the table does not hold the commit",
    )))
}

/// Tells what a failure after sending means.
async fn settle(
    catalog: &dyn Catalog,
    base: &Table,
    commit_id: Uuid,
    error: iceberg::Error,
) -> Result<Table, Error> {
    let table = base.identifier().clone();
    let source = Box::new(error);
    match source.kind() {
        ErrorKind::CatalogCommitConflicts => {
            // A conflict that nobody could look at may be with our own commit, sent twice by a proxy.
            let Ok(newest) = catalog.load_table(&table).await else {
                return Err(Error::Unknown {
                    table,
                    commit_id,
                    source,
                });
            };
            // A proxy that sent the request twice makes our own commit the one that "came first".
            if holds(&newest, base, commit_id) {
                return Ok(newest);
            }
            Err(Error::Conflict {
                table,
                base: base.metadata().current_snapshot_id(),
                newest: newest.metadata().current_snapshot_id(),
            })
        }
        ErrorKind::TableNotFound | ErrorKind::NamespaceNotFound => {
            Err(Error::NoSuchTable { table })
        }
        ErrorKind::DataInvalid | ErrorKind::FeatureUnsupported | ErrorKind::PreconditionFailed => {
            Err(Error::Refused {
                table,
                commit_id,
                source,
            })
        }
        _ => Err(Error::Unknown {
            table,
            commit_id,
            source,
        }),
    }
}

fn not_sent(base: &Table, commit_id: Uuid, error: iceberg::Error) -> Error {
    let table = base.identifier().clone();
    let source = Box::new(error);
    match source.kind() {
        ErrorKind::Unexpected => Error::NotSent {
            table,
            commit_id,
            source,
        },
        _ => Error::Refused {
            table,
            commit_id,
            source,
        },
    }
}

fn holds(table: &Table, base: &Table, commit_id: Uuid) -> bool {
    table.metadata().uuid() == base.metadata().uuid()
        && lineage(table.metadata()).find(commit_id).is_some()
}

/// The catalog as one transaction on one base may see it.
#[derive(Debug)]
struct Guard<'a> {
    catalog: &'a dyn Catalog,
    base: &'a Table,
    sent: AtomicBool,
}

impl Guard<'_> {
    fn refuse<T>(&self) -> IcebergResult<T> {
        Err(iceberg::Error::new(
            ErrorKind::FeatureUnsupported,
            format!(
                "a commit on table {} loads and updates that table only",
                self.base.identifier()
            ),
        ))
    }
}

#[async_trait]
impl Catalog for Guard<'_> {
    async fn load_table(&self, _table: &TableIdent) -> IcebergResult<Table> {
        Ok(self.base.clone())
    }

    async fn update_table(&self, commit: TableCommit) -> IcebergResult<Table> {
        // One attempt: nothing is retryable, and a second call would be a second commit.
        if self.sent.swap(true, Ordering::AcqRel) {
            return self.refuse();
        }
        self.catalog
            .update_table(commit)
            .await
            .map_err(|error| error.with_retryable(false))
    }

    async fn list_namespaces(
        &self,
        _: Option<&NamespaceIdent>,
    ) -> IcebergResult<Vec<NamespaceIdent>> {
        self.refuse()
    }
    async fn create_namespace(
        &self,
        _: &NamespaceIdent,
        _: HashMap<String, String>,
    ) -> IcebergResult<Namespace> {
        self.refuse()
    }
    async fn get_namespace(&self, _: &NamespaceIdent) -> IcebergResult<Namespace> {
        self.refuse()
    }
    async fn namespace_exists(&self, _: &NamespaceIdent) -> IcebergResult<bool> {
        self.refuse()
    }
    async fn update_namespace(
        &self,
        _: &NamespaceIdent,
        _: HashMap<String, String>,
    ) -> IcebergResult<()> {
        self.refuse()
    }
    async fn drop_namespace(&self, _: &NamespaceIdent) -> IcebergResult<()> {
        self.refuse()
    }
    async fn list_tables(&self, _: &NamespaceIdent) -> IcebergResult<Vec<TableIdent>> {
        self.refuse()
    }
    async fn create_table(&self, _: &NamespaceIdent, _: TableCreation) -> IcebergResult<Table> {
        self.refuse()
    }
    async fn drop_table(&self, _: &TableIdent) -> IcebergResult<()> {
        self.refuse()
    }
    async fn purge_table(&self, _: &TableIdent) -> IcebergResult<()> {
        self.refuse()
    }
    async fn table_exists(&self, _: &TableIdent) -> IcebergResult<bool> {
        self.refuse()
    }
    async fn rename_table(&self, _: &TableIdent, _: &TableIdent) -> IcebergResult<()> {
        self.refuse()
    }
    async fn register_table(&self, _: &TableIdent, _: String) -> IcebergResult<Table> {
        self.refuse()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::fixture::{self, Meddler, Mischief, add_row, append, ident, read_ids};
    use super::super::{Next, catalog};
    use super::*;

    fn entry(key: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(key.to_owned(), value.to_owned())])
    }

    async fn meddled(mischief: Mischief) -> (fixture::Lake, Arc<Meddler>, Table) {
        let lake = fixture::lake().await;
        fixture::table(lake.catalog.as_ref()).await;
        let base = add_row(lake.catalog.as_ref(), 1).await;
        let meddler = Meddler::new(lake.catalog.clone(), mischief);
        (lake, meddler, base)
    }

    /// One atomic step: readers never see the rows without the claim, nor the claim without the rows.
    #[tokio::test]
    async fn files_summary_and_properties_come_together() {
        let lake = fixture::lake().await;
        let base = fixture::table(lake.catalog.as_ref()).await;
        let mut first = append(&base, 0..3).await;
        first.summary = entry("tidemark.writer", "shop.orders");
        first.set_properties = entry("tidemark.epoch", "1");
        let table = commit(lake.catalog.as_ref(), &base, &first).await.unwrap();
        let newest = lineage(table.metadata()).entries.remove(0);
        assert_eq!(newest.commit_id, Some(first.commit_id));
        assert_eq!(newest.summary()["tidemark.writer"], "shop.orders");
        assert_eq!(table.metadata().properties()["tidemark.epoch"], "1");
        assert_eq!(
            table.metadata().metadata_log().len(),
            1,
            "one new metadata file"
        );
        assert_eq!(read_ids(&table).await, [0, 1, 2]);
    }

    #[tokio::test]
    async fn a_commit_without_files_carries_its_summary() {
        let lake = fixture::lake().await;
        let base = fixture::table(lake.catalog.as_ref()).await;
        let append = Append {
            commit_id: Uuid::now_v7(),
            remove_properties: vec![
                "no.such.property".to_owned(),
                "write.format.default".to_owned(),
            ],
            ..Append::default()
        };
        let table = commit(lake.catalog.as_ref(), &base, &append).await.unwrap();
        assert!(lineage(table.metadata()).find(append.commit_id).is_some());
        assert!(
            !table
                .metadata()
                .properties()
                .contains_key("write.format.default")
        );
        assert!(read_ids(&table).await.is_empty());
    }

    /// The plain transaction moves onto the new base and doubles rows.
    #[tokio::test]
    async fn a_stale_base_is_a_conflict() {
        let (lake, _, base) = meddled(Mischief::Hang).await;
        let stale = append(&base, 2..3).await;
        let newest = add_row(lake.catalog.as_ref(), 3).await;
        let error = commit(lake.catalog.as_ref(), &base, &stale)
            .await
            .unwrap_err();
        assert_eq!(error.next(), Next::Again);
        assert!(
            matches!(&error, Error::Conflict { base: before, newest: after, .. }
                if *before == base.metadata().current_snapshot_id()
                    && *after == newest.metadata().current_snapshot_id()),
            "{error:?}"
        );
        let table = catalog::load(lake.catalog.as_ref(), &ident())
            .await
            .unwrap();
        assert_eq!(read_ids(&table).await, [1, 3]);
    }

    #[tokio::test]
    async fn a_rival_just_before_ours_is_a_conflict() {
        let (_lake, meddler, base) = meddled(Mischief::RivalFirst).await;
        let ours = append(&base, 2..3).await;
        let error = commit(meddler.as_ref(), &base, &ours).await.unwrap_err();
        assert!(
            matches!(
                error,
                Error::Conflict {
                    newest: Some(_),
                    ..
                }
            ),
            "{error:?}"
        );
        let table = catalog::load(meddler.as_ref(), &ident()).await.unwrap();
        assert_eq!(read_ids(&table).await, [1, 1_000_000]);
        let again = commit(meddler.as_ref(), &table, &ours).await.unwrap();
        assert_eq!(
            read_ids(&again).await,
            [1, 2, 1_000_000],
            "the same files on the new base"
        );
    }

    #[tokio::test]
    async fn a_lost_answer_is_unknown_and_found_by_its_commit_id() {
        let (_lake, meddler, base) = meddled(Mischief::LoseAnswer).await;
        let ours = append(&base, 2..3).await;
        let error = commit(meddler.as_ref(), &base, &ours).await.unwrap_err();
        assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
        let table = catalog::load(meddler.as_ref(), &ident()).await.unwrap();
        assert!(lineage(table.metadata()).find(ours.commit_id).is_some());
        let again = commit(meddler.as_ref(), &base, &ours).await;
        assert!(
            again.is_ok(),
            "on the old base it is recognised, not doubled"
        );
        assert_eq!(read_ids(&again.unwrap()).await, [1, 2]);
    }

    #[tokio::test]
    async fn a_lost_request_is_unknown_and_can_be_sent_again() {
        let (_lake, meddler, base) = meddled(Mischief::LoseRequest).await;
        let ours = append(&base, 2..3).await;
        let error = commit(meddler.as_ref(), &base, &ours).await.unwrap_err();
        assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
        let table = catalog::load(meddler.as_ref(), &ident()).await.unwrap();
        assert!(lineage(table.metadata()).find(ours.commit_id).is_none());
        let table = commit(meddler.as_ref(), &table, &ours).await.unwrap();
        assert_eq!(read_ids(&table).await, [1, 2]);
    }

    #[tokio::test]
    async fn a_conflict_with_our_own_commit_is_a_success() {
        let (_lake, meddler, base) = meddled(Mischief::Twice).await;
        let ours = append(&base, 2..3).await;
        let table = commit(meddler.as_ref(), &base, &ours).await.unwrap();
        assert_eq!(read_ids(&table).await, [1, 2]);
    }

    #[tokio::test]
    async fn silence_is_unknown_after_the_deadline() {
        let (_lake, meddler, base) = meddled(Mischief::Hang).await;
        let patience = Duration::from_millis(50);
        let bounded = catalog::bounded(meddler, "http://silent".to_owned(), patience);
        let ours = append(&base, 2..3).await;
        let error = commit(bounded.as_ref(), &base, &ours).await.unwrap_err();
        let Error::Unknown { source, .. } = &error else {
            panic!("{error:?}");
        };
        assert!(source.to_string().contains("http://silent"), "{source}");
    }

    /// Whichever way a commit goes, the table is the same.
    #[tokio::test]
    async fn a_commit_by_hand_is_the_same_commit() {
        let (lake, _, base) = meddled(Mischief::Hang).await;
        let committer = super::super::raw::open_raw(&lake.settings).await.unwrap();
        let mut by_hand = append(&base, 2..4).await;
        by_hand.summary = entry("tidemark.writer", "shop.orders");
        by_hand.set_properties = entry("tidemark.epoch", "1");
        by_hand.remove_properties = vec!["write.format.default".to_owned()];
        let table = commit_by_hand(committer.as_ref(), &base, &by_hand, 0)
            .await
            .unwrap();
        let loaded = catalog::load(lake.catalog.as_ref(), &ident())
            .await
            .unwrap();
        assert_eq!(
            table.metadata(),
            loaded.metadata(),
            "the answer is the table"
        );
        assert!(
            !loaded
                .metadata()
                .properties()
                .contains_key("write.format.default")
        );
        assert_eq!(loaded.metadata().properties()["tidemark.epoch"], "1");
        assert_eq!(read_ids(&loaded).await, [1, 2, 3]);
        let by_client = append(&loaded, 4..6).await;
        let next = commit(lake.catalog.as_ref(), &loaded, &by_client)
            .await
            .unwrap();
        let walked = lineage(next.metadata()).entries;
        let keys = |place: usize| -> std::collections::BTreeSet<&String> {
            walked[place].summary().keys().collect()
        };
        let mut hand = keys(1);
        hand.remove(&"tidemark.writer".to_owned());
        assert_eq!(keys(0), hand);
        assert_eq!(walked[0].summary()["total-records"], "5");
        assert_eq!(read_ids(&next).await, [1, 2, 3, 4, 5]);
        let stale = commit_by_hand(committer.as_ref(), &base, &append(&base, 7..8).await, 0).await;
        assert!(matches!(stale.unwrap_err(), Error::Conflict { .. }));
    }

    #[tokio::test]
    async fn of_two_first_commits_by_hand_exactly_one_wins() {
        let lake = fixture::lake().await;
        let base = fixture::table(lake.catalog.as_ref()).await;
        let committer = super::super::raw::open_raw(&lake.settings).await.unwrap();
        let (one, two) = (append(&base, 1..2).await, append(&base, 2..3).await);
        let (first, second) = tokio::join!(
            commit_by_hand(committer.as_ref(), &base, &one, 0),
            commit(lake.catalog.as_ref(), &base, &two),
        );
        assert_eq!(u8::from(first.is_ok()) + u8::from(second.is_ok()), 1);
        let table = catalog::load(lake.catalog.as_ref(), &ident())
            .await
            .unwrap();
        assert_eq!(read_ids(&table).await.len(), 1);
    }

    /// Without a snapshot there is no id to assert; "main does not exist" is asserted instead.
    #[tokio::test]
    async fn of_two_first_commits_exactly_one_wins() {
        let lake = fixture::lake().await;
        let base = fixture::table(lake.catalog.as_ref()).await;
        let (one, two) = (append(&base, 1..2).await, append(&base, 2..3).await);
        let (first, second) = tokio::join!(
            commit(lake.catalog.as_ref(), &base, &one),
            commit(lake.catalog.as_ref(), &base, &two),
        );
        assert_eq!(u8::from(first.is_ok()) + u8::from(second.is_ok()), 1);
        let lost = first.err().or(second.err()).unwrap();
        assert!(
            matches!(lost, Error::Conflict { base: None, .. }),
            "{lost:?}"
        );
        let table = catalog::load(lake.catalog.as_ref(), &ident())
            .await
            .unwrap();
        assert_eq!(read_ids(&table).await.len(), 1);
    }

    #[tokio::test]
    async fn a_dropped_table_is_told() {
        let (lake, _, base) = meddled(Mischief::Hang).await;
        lake.catalog.drop_table(&ident()).await.unwrap();
        let ours = append(&base, 2..3).await;
        let error = commit(lake.catalog.as_ref(), &base, &ours)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::NoSuchTable { .. }), "{error:?}");
    }

    /// A table that was dropped and made anew under the same name is another table.
    #[tokio::test]
    async fn a_recreated_table_is_a_conflict() {
        let (lake, _, base) = meddled(Mischief::Hang).await;
        lake.catalog.drop_table(&ident()).await.unwrap();
        fixture::table(lake.catalog.as_ref()).await;
        let ours = append(&base, 2..3).await;
        let error = commit(lake.catalog.as_ref(), &base, &ours)
            .await
            .unwrap_err();
        assert!(
            matches!(error, Error::Conflict { newest: None, .. }),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn metadata_that_cannot_be_written_was_never_sent() {
        let (lake, _, base) = meddled(Mischief::Hang).await;
        let ours = append(&base, 2..3).await;
        let folder = catalog::local_path(base.metadata().location()).unwrap();
        let aside = lake.folder.path().join("aside");
        std::fs::rename(folder.join("metadata"), &aside).unwrap();
        std::fs::write(folder.join("metadata"), b"in the way").unwrap();
        let error = commit(lake.catalog.as_ref(), &base, &ours)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::NotSent { .. }), "{error:?}");
        assert_eq!(error.next(), Next::Later);
        assert_eq!(error.reason(), "NotSent");
    }
}
