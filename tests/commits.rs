//! Commits on a real REST catalog: rivals, lost answers, racing first commits, merged manifests, expiry.
//!
//! The same facts as `src/lake/` proves on SQLite, where the server, not this process, checks the base.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, TimestampMicrosecondArray};
use arrow::record_batch::RecordBatch;
use futures::TryStreamExt;
use iceberg::spec::{DataFile, PrimitiveType, Type};
use iceberg::table::Table;
use iceberg::{Catalog, TableIdent};
use tidemark::lake::catalog::{CatalogKind, CatalogSettings, load, open};
use tidemark::lake::commit::{Append, commit};
use tidemark::lake::lineage::{End, lineage};
use tidemark::lake::maintain::{MaintainSettings, Maintainer};
use tidemark::lake::raw::open_raw;
use tidemark::lake::table::{Column, Partitioning, TableSpec, open_or_create};
use tidemark::lake::writer::{TableWriter, WriterSettings};
use tidemark::lake::{Error, Next};
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::support::catalog::Catalog as Server;

/// 2026-11-30T09:00:00Z.
const NINE_US: i64 = 1_796_029_200_000_000;

struct Lake {
    settings: CatalogSettings,
    catalog: Arc<dyn Catalog>,
    ident: TableIdent,
}

impl Lake {
    async fn on(server: &'static Server, test: &str) -> Self {
        let namespace = server.namespace(test);
        let settings = CatalogSettings::new(CatalogKind::Rest { uri: server.uri() });
        Self {
            catalog: open(&settings).await.unwrap(),
            settings,
            ident: TableIdent::from_strs([namespace.as_str(), "orders"]).unwrap(),
        }
    }

    async fn new(test: &str) -> Self {
        Self::on(Server::shared(), test).await
    }

    async fn create(&self) -> Table {
        let opened = open_or_create(self.catalog.as_ref(), &self.ident, &spec()).await;
        opened.unwrap().table
    }

    async fn load(&self) -> Table {
        load(self.catalog.as_ref(), &self.ident).await.unwrap()
    }

    async fn commit(&self, base: &Table, append: &Append) -> Result<Table, Error> {
        commit(self.catalog.as_ref(), base, append).await
    }

    async fn add_row(&self, id: i64) -> Table {
        let base = self.load().await;
        self.commit(&base, &append(&base, id).await).await.unwrap()
    }
}

fn spec() -> TableSpec {
    TableSpec {
        columns: Some(vec![Column::key(
            "id",
            Type::Primitive(PrimitiveType::Long),
        )]),
        metadata_columns: vec![Column::optional(
            "_cdc_event_time",
            Type::Primitive(PrimitiveType::Timestamptz),
        )],
        partitioning: Partitioning::Hour("_cdc_event_time".to_owned()),
        properties: [("owner".to_owned(), "shop".to_owned())].into(),
        location: None,
    }
}

async fn files(table: &Table, id: i64) -> Vec<DataFile> {
    let (table, runtime) = (table.clone(), Handle::current());
    let write = move || {
        let mut writer = TableWriter::new(&table, WriterSettings::default(), runtime).unwrap();
        let times = TimestampMicrosecondArray::from(vec![NINE_US + id]).with_timezone("+00:00");
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![id])), Arc::new(times)];
        let batch = RecordBatch::try_new(writer.arrow_schema().clone(), columns).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap()
    };
    tokio::task::spawn_blocking(write).await.unwrap()
}

async fn append(table: &Table, id: i64) -> Append {
    Append {
        commit_id: Uuid::now_v7(),
        files: files(table, id).await,
        set_properties: [("tidemark.epoch".to_owned(), id.to_string())].into(),
        ..Append::default()
    }
}

async fn read_ids(table: &Table) -> Vec<i64> {
    let scan = table.scan().select(["id"]).build().unwrap();
    let batches: Vec<RecordBatch> = scan.to_arrow().await.unwrap().try_collect().await.unwrap();
    let mut ids: Vec<i64> = batches
        .iter()
        .flat_map(|batch| {
            let ids = batch.column(0).as_any().downcast_ref::<Int64Array>();
            ids.unwrap().values().to_vec()
        })
        .collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_created_checked_and_widened_over_rest() {
    let lake = Lake::new("commits-create").await;
    let table = lake.create().await;
    assert_eq!(table.metadata().properties()["owner"], "shop");
    let fields = table.metadata().default_partition_spec().fields();
    assert_eq!(fields[0].name, "_cdc_event_time_hour");
    let mut wider = spec();
    let note = Column::optional("note", Type::Primitive(PrimitiveType::String));
    wider.columns.get_or_insert_default().push(note);
    let other = open(&lake.settings).await.unwrap();
    let (one, two) = tokio::join!(
        open_or_create(lake.catalog.as_ref(), &lake.ident, &wider),
        open_or_create(other.as_ref(), &lake.ident, &wider),
    );
    let (one, two) = (one.unwrap().table, two.unwrap().table);
    assert_eq!(
        one.metadata().current_schema(),
        two.metadata().current_schema()
    );
    let mut narrow = spec();
    narrow.partitioning = Partitioning::None;
    let error = open_or_create(lake.catalog.as_ref(), &lake.ident, &narrow).await;
    assert_eq!(error.unwrap_err().next(), Next::AwaitChange);
}

/// The server rebases what asserts nothing; what asserts its base must not move.
#[tokio::test(flavor = "multi_thread")]
async fn a_stale_base_is_a_conflict_over_rest() {
    let lake = Lake::new("commits-stale").await;
    lake.create().await;
    let base = lake.add_row(1).await;
    let stale = append(&base, 2).await;
    lake.add_row(3).await;
    let error = lake.commit(&base, &stale).await.unwrap_err();
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
    let table = lake.load().await;
    assert_eq!(read_ids(&table).await, [1, 3]);
    assert_eq!(table.metadata().properties()["tidemark.epoch"], "3");
    let table = lake.commit(&table, &stale).await.unwrap();
    assert_eq!(read_ids(&table).await, [1, 2, 3]);
    assert_eq!(lineage(table.metadata()).end, End::First);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_four_first_commits_exactly_one_wins_over_rest() {
    let lake = Lake::new("commits-first").await;
    let base = lake.create().await;
    let mut attempts = tokio::task::JoinSet::new();
    for id in 0..4 {
        let (base, append) = (base.clone(), append(&base, id).await);
        let catalog = open(&lake.settings).await.unwrap();
        attempts.spawn(async move { commit(catalog.as_ref(), &base, &append).await });
    }
    let mut won = 0;
    while let Some(ended) = attempts.join_next().await {
        match ended.unwrap() {
            Ok(_) => won += 1,
            Err(error) => assert!(
                matches!(error, Error::Conflict { base: None, .. }),
                "{error:?}"
            ),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(read_ids(&lake.load().await).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn merged_manifests_hold_the_same_rows_over_rest() {
    let lake = Lake::new("commits-merge").await;
    lake.create().await;
    for id in 0..6 {
        lake.add_row(id).await;
    }
    let base = lake.load().await;
    let settings = MaintainSettings {
        merge_at: 5,
        snapshots: 3,
        grace: Duration::ZERO,
        ..MaintainSettings::default()
    };
    let mut maintainer = Maintainer::new(settings, Some(open_raw(&lake.settings).await.unwrap()));
    let now_ms = base.metadata().last_updated_ms();
    let report = maintainer
        .run(lake.catalog.as_ref(), &base, now_ms)
        .await
        .unwrap();
    assert!(report.merged && report.expired > 0, "{report:?}");
    let newest = report.table.metadata().current_snapshot().unwrap();
    let list = report
        .table
        .manifest_list_reader(newest)
        .load()
        .await
        .unwrap();
    assert_eq!(list.entries().len(), 1);
    assert!(lineage(report.table.metadata()).own().next().is_some());
    let stale = append(&base, 9).await;
    let error = lake.commit(&base, &stale).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
    assert_eq!(
        read_ids(&lake.add_row(6).await).await,
        [0, 1, 2, 3, 4, 5, 6]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_table_is_told_from_a_failing_catalog_over_rest() {
    let lake = Lake::new("commits-missing").await;
    let error = load(lake.catalog.as_ref(), &lake.ident).await.unwrap_err();
    assert!(matches!(error, Error::NoSuchTable { .. }), "{error:?}");
    let base = lake.create().await;
    lake.catalog.drop_table(&lake.ident).await.unwrap();
    let error = lake
        .commit(&base, &append(&base, 1).await)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoSuchTable { .. }), "{error:?}");
    let again = lake.create().await;
    assert_ne!(again.metadata().uuid(), base.metadata().uuid());
    let error = lake
        .commit(&base, &append(&base, 1).await)
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Conflict { .. }),
        "a recreated table is another: {error:?}"
    );
}
