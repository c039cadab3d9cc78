//! A real catalog in a temporary folder, and one that misbehaves on purpose.
//!
//! Everything takes an `Arc<dyn Catalog>`, so that the same tests run against any catalog.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;

use arrow::array::{Array, ArrayRef, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use futures::TryStreamExt;
use iceberg::spec::{DataFile, PrimitiveType, Type};
use iceberg::table::Table;
use iceberg::{
    Catalog, ErrorKind, Namespace, NamespaceIdent, Result as IcebergResult, TableCommit,
    TableCreation, TableIdent,
};
use tempfile::TempDir;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::catalog::{CatalogKind, CatalogSettings, open};
use super::commit::{Append, commit};
use super::table::{Column, Partitioning, TableSpec, open_or_create};
use super::writer::{TableWriter, WriterSettings};

/// 2026-11-30T09:00:00Z.
pub(super) const NINE_US: i64 = 1_796_029_200_000_000;

/// A row: id, note, event time.
pub(super) type Row<'a> = (i64, Option<&'a str>, Option<i64>);

pub(super) struct Lake {
    pub(super) catalog: Arc<dyn Catalog>,
    pub(super) settings: CatalogSettings,
    pub(super) folder: TempDir,
}

pub(super) async fn lake() -> Lake {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut settings = CatalogSettings::new(CatalogKind::Sql {
        uri: format!("sqlite://{}/catalog.db", folder.path().display()),
    });
    settings.warehouse = Some(format!("file://{}/warehouse", folder.path().display()));
    Lake {
        catalog: open(&settings).await.expect("a catalog"),
        settings,
        folder,
    }
}

pub(super) fn ident() -> TableIdent {
    TableIdent::from_strs(["shop", "orders"]).expect("a name")
}

pub(super) fn spec() -> TableSpec {
    TableSpec {
        columns: Some(vec![
            Column::key("id", Type::Primitive(PrimitiveType::Long)),
            Column::optional("note", Type::Primitive(PrimitiveType::String)),
        ]),
        metadata_columns: vec![Column::optional(
            "_cdc_event_time",
            Type::Primitive(PrimitiveType::Timestamptz),
        )],
        partitioning: Partitioning::Hour("_cdc_event_time".to_owned()),
        properties: std::collections::BTreeMap::new(),
        location: None,
    }
}

pub(super) async fn table(catalog: &dyn Catalog) -> Table {
    let opened = open_or_create(catalog, &ident(), &spec()).await;
    opened.expect("the table").table
}

pub(super) fn batch(writer: &TableWriter, rows: &[Row<'_>]) -> RecordBatch {
    let ids = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
    let notes: StringArray = rows.iter().map(|row| row.1).collect();
    let times: TimestampMicrosecondArray = rows.iter().map(|row| row.2).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(ids),
        Arc::new(notes),
        Arc::new(times.with_timezone("+00:00")),
    ];
    RecordBatch::try_new(writer.arrow_schema().clone(), columns).expect("a batch")
}

/// Runs what needs a writer where it may wait.
pub(super) async fn with_writer<T: Send + 'static>(
    table: &Table,
    settings: WriterSettings,
    work: impl FnOnce(&mut TableWriter) -> T + Send + 'static,
) -> T {
    let table = table.clone();
    let runtime = Handle::current();
    let work = move || {
        let mut writer = TableWriter::new(&table, settings, runtime).expect("a writer");
        work(&mut writer)
    };
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

pub(super) async fn files(table: &Table, ids: std::ops::Range<i64>) -> Vec<DataFile> {
    with_writer(table, WriterSettings::default(), |writer| {
        let rows: Vec<Row<'_>> = ids.map(|id| (id, Some("n"), Some(NINE_US + id))).collect();
        let batch = batch(writer, &rows);
        writer.write(&batch).expect("written");
        writer.finish().expect("finished")
    })
    .await
}

pub(super) async fn append(table: &Table, ids: std::ops::Range<i64>) -> Append {
    Append {
        commit_id: Uuid::now_v7(),
        files: files(table, ids).await,
        ..Append::default()
    }
}

/// Commits one row on the newest base.
pub(super) async fn add_row(catalog: &dyn Catalog, id: i64) -> Table {
    let base = catalog.load_table(&ident()).await.expect("the table");
    let append = append(&base, id..id + 1).await;
    commit(catalog, &base, &append).await.expect("committed")
}

/// All ids of the table, sorted.
pub(super) async fn read_ids(table: &Table) -> Vec<i64> {
    let scan = table.scan().select(["id"]).build().expect("a scan");
    let stream = scan.to_arrow().await.expect("a stream");
    let batches: Vec<RecordBatch> = stream.try_collect().await.expect("rows");
    let mut ids: Vec<i64> = batches
        .iter()
        .flat_map(|batch| {
            let ids = batch.column(0).as_any().downcast_ref::<Int64Array>();
            ids.expect("longs").values().to_vec()
        })
        .collect();
    ids.sort_unstable();
    ids
}

/// What the next commit that reaches the catalog meets.
pub(super) enum Mischief {
    /// Another worker's commit lands just before it.
    RivalFirst,
    /// It is applied and its answer is lost.
    LoseAnswer,
    /// It is lost on its way, and no answer comes.
    LoseRequest,
    /// It is applied, and then refused as if another had come first: a proxy sent it twice.
    Twice,
    /// No answer, ever.
    Hang,
}

/// A catalog that misbehaves once.
pub(super) struct Meddler {
    inner: Arc<dyn Catalog>,
    next: Mutex<Option<Mischief>>,
}

impl Meddler {
    pub(super) fn new(inner: Arc<dyn Catalog>, next: Mischief) -> Arc<Self> {
        Arc::new(Self {
            inner,
            next: Mutex::new(Some(next)),
        })
    }
}

impl fmt::Debug for Meddler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meddler")
    }
}

fn lost() -> iceberg::Error {
    iceberg::Error::new(ErrorKind::Unexpected, "the connection was closed")
}

#[async_trait]
impl Catalog for Meddler {
    async fn update_table(&self, update: TableCommit) -> IcebergResult<Table> {
        let mischief = self.next.lock().expect("no panic").take();
        match mischief {
            None => self.inner.update_table(update).await,
            Some(Mischief::RivalFirst) => {
                add_row(self.inner.as_ref(), 1_000_000).await;
                self.inner.update_table(update).await
            }
            Some(Mischief::LoseAnswer) => {
                self.inner.update_table(update).await?;
                Err(lost())
            }
            Some(Mischief::LoseRequest) => Err(lost()),
            Some(Mischief::Twice) => {
                self.inner.update_table(update).await?;
                Err(iceberg::Error::new(
                    ErrorKind::CatalogCommitConflicts,
                    "main has moved",
                ))
            }
            Some(Mischief::Hang) => std::future::pending().await,
        }
    }
    async fn load_table(&self, table: &TableIdent) -> IcebergResult<Table> {
        self.inner.load_table(table).await
    }
    async fn list_namespaces(
        &self,
        parent: Option<&NamespaceIdent>,
    ) -> IcebergResult<Vec<NamespaceIdent>> {
        self.inner.list_namespaces(parent).await
    }
    async fn create_namespace(
        &self,
        namespace: &NamespaceIdent,
        properties: HashMap<String, String>,
    ) -> IcebergResult<Namespace> {
        self.inner.create_namespace(namespace, properties).await
    }
    async fn get_namespace(&self, namespace: &NamespaceIdent) -> IcebergResult<Namespace> {
        self.inner.get_namespace(namespace).await
    }
    async fn namespace_exists(&self, namespace: &NamespaceIdent) -> IcebergResult<bool> {
        self.inner.namespace_exists(namespace).await
    }
    async fn update_namespace(
        &self,
        namespace: &NamespaceIdent,
        properties: HashMap<String, String>,
    ) -> IcebergResult<()> {
        self.inner.update_namespace(namespace, properties).await
    }
    async fn drop_namespace(&self, namespace: &NamespaceIdent) -> IcebergResult<()> {
        self.inner.drop_namespace(namespace).await
    }
    async fn list_tables(&self, namespace: &NamespaceIdent) -> IcebergResult<Vec<TableIdent>> {
        self.inner.list_tables(namespace).await
    }
    async fn create_table(
        &self,
        namespace: &NamespaceIdent,
        creation: TableCreation,
    ) -> IcebergResult<Table> {
        self.inner.create_table(namespace, creation).await
    }
    async fn drop_table(&self, table: &TableIdent) -> IcebergResult<()> {
        self.inner.drop_table(table).await
    }
    async fn purge_table(&self, table: &TableIdent) -> IcebergResult<()> {
        self.inner.purge_table(table).await
    }
    async fn table_exists(&self, table: &TableIdent) -> IcebergResult<bool> {
        self.inner.table_exists(table).await
    }
    async fn rename_table(&self, source: &TableIdent, target: &TableIdent) -> IcebergResult<()> {
        self.inner.rename_table(source, target).await
    }
    async fn register_table(&self, table: &TableIdent, location: String) -> IcebergResult<Table> {
        self.inner.register_table(table, location).await
    }
}
