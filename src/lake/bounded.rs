//! A catalog whose calls end in time, and whose errors name its address.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use iceberg::table::Table;
use iceberg::{
    Catalog, ErrorKind, Namespace, NamespaceIdent, Result as IcebergResult, TableCommit,
    TableCreation, TableIdent,
};

use super::storage::Store;
use super::vending::Vending;

/// Key under which an error carries the address of its catalog.
pub(super) const ADDRESS_KEY: &str = "catalog";

/// Gives every call of a catalog a deadline, and its errors the address.
#[must_use]
pub fn bounded(catalog: Arc<dyn Catalog>, address: String, deadline: Duration) -> Arc<dyn Catalog> {
    Arc::new(Bounded {
        catalog,
        address,
        deadline,
        vending: None,
    })
}

/// The same, for a server that may vend credentials with its tables; and what knows of them.
pub(super) fn vending(
    catalog: Arc<dyn Catalog>,
    address: String,
    deadline: Duration,
    store: Arc<Store>,
) -> (Arc<dyn Catalog>, Arc<Vending>) {
    let server = bounded(Arc::clone(&catalog), address.clone(), deadline);
    let vending = Arc::new(Vending::new(server, store));
    let catalog = Arc::new(Bounded {
        catalog,
        address,
        deadline,
        vending: Some(Arc::clone(&vending)),
    });
    (catalog, vending)
}

pub(super) fn no_answer(doing: &'static str, deadline: Duration) -> iceberg::Error {
    iceberg::Error::new(
        ErrorKind::Unexpected,
        format!("no answer within {deadline:?} when asked to {doing}"),
    )
}

/// A catalog whose calls end in time.
#[derive(Debug)]
struct Bounded {
    catalog: Arc<dyn Catalog>,
    address: String,
    deadline: Duration,
    vending: Option<Arc<Vending>>,
}

impl Bounded {
    /// The table with the credentials that came with it.
    fn equipped(&self, table: Table) -> IcebergResult<Table> {
        match &self.vending {
            Some(vending) => vending.equip(table),
            None => Ok(table),
        }
    }

    async fn call<T>(
        &self,
        doing: &'static str,
        call: impl Future<Output = IcebergResult<T>> + Send,
    ) -> IcebergResult<T> {
        tokio::time::timeout(self.deadline, call)
            .await
            .unwrap_or_else(|_| Err(no_answer(doing, self.deadline)))
            .map_err(|error| error.with_context(ADDRESS_KEY, self.address.clone()))
    }
}

#[async_trait]
impl Catalog for Bounded {
    async fn list_namespaces(
        &self,
        parent: Option<&NamespaceIdent>,
    ) -> IcebergResult<Vec<NamespaceIdent>> {
        self.call("list namespaces", self.catalog.list_namespaces(parent))
            .await
    }

    async fn create_namespace(
        &self,
        namespace: &NamespaceIdent,
        properties: HashMap<String, String>,
    ) -> IcebergResult<Namespace> {
        let call = self.catalog.create_namespace(namespace, properties);
        self.call("create a namespace", call).await
    }

    async fn get_namespace(&self, namespace: &NamespaceIdent) -> IcebergResult<Namespace> {
        self.call("read a namespace", self.catalog.get_namespace(namespace))
            .await
    }

    async fn namespace_exists(&self, namespace: &NamespaceIdent) -> IcebergResult<bool> {
        self.call("find a namespace", self.catalog.namespace_exists(namespace))
            .await
    }

    async fn update_namespace(
        &self,
        namespace: &NamespaceIdent,
        properties: HashMap<String, String>,
    ) -> IcebergResult<()> {
        let call = self.catalog.update_namespace(namespace, properties);
        self.call("update a namespace", call).await
    }

    async fn drop_namespace(&self, namespace: &NamespaceIdent) -> IcebergResult<()> {
        self.call("drop a namespace", self.catalog.drop_namespace(namespace))
            .await
    }

    async fn list_tables(&self, namespace: &NamespaceIdent) -> IcebergResult<Vec<TableIdent>> {
        self.call("list tables", self.catalog.list_tables(namespace))
            .await
    }

    async fn create_table(
        &self,
        namespace: &NamespaceIdent,
        creation: TableCreation,
    ) -> IcebergResult<Table> {
        let call = self.catalog.create_table(namespace, creation);
        self.equipped(self.call("create the table", call).await?)
    }

    async fn load_table(&self, table: &TableIdent) -> IcebergResult<Table> {
        let loaded = self.call("load the table", self.catalog.load_table(table));
        self.equipped(loaded.await?)
    }

    async fn drop_table(&self, table: &TableIdent) -> IcebergResult<()> {
        self.call("drop the table", self.catalog.drop_table(table))
            .await
    }

    async fn purge_table(&self, table: &TableIdent) -> IcebergResult<()> {
        self.call("purge the table", self.catalog.purge_table(table))
            .await
    }

    async fn table_exists(&self, table: &TableIdent) -> IcebergResult<bool> {
        self.call("find the table", self.catalog.table_exists(table))
            .await
    }

    async fn rename_table(&self, source: &TableIdent, target: &TableIdent) -> IcebergResult<()> {
        self.call(
            "rename the table",
            self.catalog.rename_table(source, target),
        )
        .await
    }

    async fn register_table(
        &self,
        table: &TableIdent,
        metadata_location: String,
    ) -> IcebergResult<Table> {
        let call = self.catalog.register_table(table, metadata_location);
        self.call("register the table", call).await
    }

    async fn update_table(&self, commit: TableCommit) -> IcebergResult<Table> {
        self.call("commit", self.catalog.update_table(commit)).await
    }
}
