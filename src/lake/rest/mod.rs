//! A catalog that speaks the Iceberg REST protocol.
//!
//! Comes in: its address, who asks, and whom to trust. Goes out: a [`Catalog`]. What a server says of whoever asks, and what is
//! wrong with its certificate, is told by a [`CatalogFault`] among the causes of an error.
//!
//! The types of requests and answers are those of `iceberg-catalog-rest` 0.10.1; its client keeps a token beyond its end
//! (apache/iceberg-rust#3160) and drops the credentials that a server vends for a part of the store.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use iceberg::io::{FileIO, FileIOBuilder};
use iceberg::spec::TableMetadata;
use iceberg::table::Table;
use iceberg::{
    Catalog, ErrorKind, Namespace, NamespaceIdent, Result as IcebergResult, Runtime, TableCommit,
    TableCreation, TableIdent,
};
use iceberg_catalog_rest::{
    CommitTableRequest, CommitTableResponse, CreateNamespaceRequest, CreateTableRequest,
    ListNamespaceResponse, ListTablesResponse, LoadTableResult, NamespaceResponse,
    RegisterTableRequest, RenameTableRequest, StorageCredential,
};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;

mod answer;
mod bearer;
mod client;

pub use answer::{CatalogFault, catalog_fault};
use answer::{Meaning, NO_NAMESPACE, NO_TABLE, TABLE_THERE};
use client::json;
pub(super) use client::{Failed, Rest};

impl Rest {
    /// All pages of a list.
    async fn pages<P: Page>(
        &self,
        path: &[&str],
        parent: Option<&str>,
        missing: Meaning,
    ) -> IcebergResult<Vec<P::Item>> {
        let (mut items, mut next) = (Vec::new(), None::<String>);
        loop {
            let mut query: Vec<(&str, &str)> =
                parent.iter().map(|parent| ("parent", *parent)).collect();
            query.extend(next.iter().map(|token| ("pageToken", token.as_str())));
            let answer = self.ask(Method::GET, path, &query, None).await?;
            let page: P = answer.expect(&[missing])?;
            let (more, token) = page.take();
            items.extend(more);
            match token {
                Some(token) => next = Some(token),
                None => return Ok(items),
            }
        }
    }

    /// The table as the server has just given it.
    async fn given(&self, table: &TableIdent, given: LoadTableResult) -> IcebergResult<Table> {
        let mut properties = self.server().await?.properties.clone();
        properties.extend(given.config);
        if let Some(credential) = most_fitting(given.metadata.location(), given.storage_credentials)
        {
            properties.extend(credential.config);
        }
        properties.extend(self.properties.clone());
        let location = given.metadata_location.ok_or_else(|| {
            let problem = "the catalog's answer names no file of metadata";
            iceberg::Error::new(ErrorKind::Unexpected, problem)
        })?;
        built(table, self.file_io(properties), given.metadata, location)
    }

    fn file_io(&self, properties: HashMap<String, String>) -> FileIO {
        let files = Arc::new(self.files.clone());
        FileIOBuilder::new(files).with_props(properties).build()
    }
}

fn built(
    table: &TableIdent,
    files: FileIO,
    metadata: TableMetadata,
    location: String,
) -> IcebergResult<Table> {
    Table::builder()
        .identifier(table.clone())
        .file_io(files)
        .metadata(metadata)
        .metadata_location(location)
        .runtime(Runtime::try_current()?)
        .build()
}

/// The credential that is for this location most of all: the one with the longest prefix.
fn most_fitting(
    location: &str,
    credentials: Option<Vec<StorageCredential>>,
) -> Option<StorageCredential> {
    let fitting = credentials.into_iter().flatten();
    let fitting = fitting.filter(|credential| location.starts_with(&credential.prefix));
    fitting.max_by_key(|credential| credential.prefix.len())
}

#[async_trait]
impl Catalog for Rest {
    async fn list_namespaces(
        &self,
        parent: Option<&NamespaceIdent>,
    ) -> IcebergResult<Vec<NamespaceIdent>> {
        let parent = match parent {
            Some(parent) => Some(self.namespace(parent).await?),
            None => None,
        };
        let pages =
            self.pages::<ListNamespaceResponse>(&["namespaces"], parent.as_deref(), NO_NAMESPACE);
        pages.await
    }

    async fn create_namespace(
        &self,
        namespace: &NamespaceIdent,
        properties: HashMap<String, String>,
    ) -> IcebergResult<Namespace> {
        let request = CreateNamespaceRequest {
            namespace: namespace.clone(),
            properties,
        };
        let request = Some(json(&request)?);
        let answer = self
            .ask(Method::POST, &["namespaces"], &[], request)
            .await?;
        let taken = (StatusCode::CONFLICT, ErrorKind::NamespaceAlreadyExists);
        answer
            .expect::<NamespaceResponse>(&[taken])
            .map(Namespace::from)
    }

    async fn get_namespace(&self, namespace: &NamespaceIdent) -> IcebergResult<Namespace> {
        let name = self.namespace(namespace).await?;
        let answer = self
            .ask(Method::GET, &["namespaces", &name], &[], None)
            .await?;
        answer
            .expect::<NamespaceResponse>(&[NO_NAMESPACE])
            .map(Namespace::from)
    }

    async fn namespace_exists(&self, namespace: &NamespaceIdent) -> IcebergResult<bool> {
        let name = self.namespace(namespace).await?;
        self.ask(Method::HEAD, &["namespaces", &name], &[], None)
            .await?
            .is_there()
    }

    async fn update_namespace(
        &self,
        _: &NamespaceIdent,
        _: HashMap<String, String>,
    ) -> IcebergResult<()> {
        let problem = "properties of a namespace are not changed here";
        Err(iceberg::Error::new(ErrorKind::FeatureUnsupported, problem))
    }

    async fn drop_namespace(&self, namespace: &NamespaceIdent) -> IcebergResult<()> {
        let name = self.namespace(namespace).await?;
        let answer = self
            .ask(Method::DELETE, &["namespaces", &name], &[], None)
            .await?;
        answer.done(&[NO_NAMESPACE])
    }

    async fn list_tables(&self, namespace: &NamespaceIdent) -> IcebergResult<Vec<TableIdent>> {
        let name = self.namespace(namespace).await?;
        let path = ["namespaces", &name, "tables"];
        self.pages::<ListTablesResponse>(&path, None, NO_NAMESPACE)
            .await
    }

    async fn create_table(
        &self,
        namespace: &NamespaceIdent,
        creation: TableCreation,
    ) -> IcebergResult<Table> {
        let table = TableIdent::new(namespace.clone(), creation.name.clone());
        let request = CreateTableRequest {
            name: creation.name,
            location: creation.location,
            schema: creation.schema,
            partition_spec: creation.partition_spec,
            write_order: creation.sort_order,
            stage_create: Some(false),
            properties: creation.properties,
        };
        let name = self.namespace(namespace).await?;
        let path = ["namespaces", &name, "tables"];
        let answer = self
            .ask(Method::POST, &path, &[], Some(json(&request)?))
            .await?;
        let given = answer.expect(&[NO_NAMESPACE, TABLE_THERE])?;
        self.given(&table, given).await
    }

    async fn load_table(&self, table: &TableIdent) -> IcebergResult<Table> {
        let answer = self.ask_of(Method::GET, table, &[], None).await?;
        self.given(table, answer.expect(&[NO_TABLE])?).await
    }

    async fn drop_table(&self, table: &TableIdent) -> IcebergResult<()> {
        let answer = self.ask_of(Method::DELETE, table, &[], None).await?;
        answer.done(&[NO_TABLE])
    }

    async fn purge_table(&self, table: &TableIdent) -> IcebergResult<()> {
        let purge = [("purgeRequested", "true")];
        let answer = self.ask_of(Method::DELETE, table, &purge, None).await?;
        answer.done(&[NO_TABLE])
    }

    async fn table_exists(&self, table: &TableIdent) -> IcebergResult<bool> {
        self.ask_of(Method::HEAD, table, &[], None)
            .await?
            .is_there()
    }

    async fn rename_table(&self, source: &TableIdent, target: &TableIdent) -> IcebergResult<()> {
        let request = RenameTableRequest {
            source: source.clone(),
            destination: target.clone(),
        };
        let request = Some(json(&request)?);
        let answer = self
            .ask(Method::POST, &["tables", "rename"], &[], request)
            .await?;
        answer.done(&[NO_TABLE, TABLE_THERE])
    }

    async fn register_table(
        &self,
        table: &TableIdent,
        metadata_location: String,
    ) -> IcebergResult<Table> {
        let request = RegisterTableRequest {
            name: table.name().to_owned(),
            metadata_location,
            overwrite: Some(false),
        };
        let name = self.namespace(table.namespace()).await?;
        let path = ["namespaces", &name, "register"];
        let answer = self
            .ask(Method::POST, &path, &[], Some(json(&request)?))
            .await?;
        let given = answer.expect(&[NO_NAMESPACE, TABLE_THERE])?;
        self.given(table, given).await
    }

    async fn update_table(&self, mut commit: TableCommit) -> IcebergResult<Table> {
        let table = commit.identifier().clone();
        let request = CommitTableRequest {
            identifier: Some(table.clone()),
            requirements: commit.take_requirements(),
            updates: commit.take_updates(),
        };
        let request = Some(json(&request)?);
        let answer = self.ask_of(Method::POST, &table, &[], request).await?;
        let conflict = (StatusCode::CONFLICT, ErrorKind::CatalogCommitConflicts);
        let committed: CommitTableResponse = answer.expect(&[NO_TABLE, conflict])?;
        let properties = self.server().await?.properties.clone();
        let files = self.file_io(properties);
        built(
            &table,
            files,
            committed.metadata,
            committed.metadata_location,
        )
    }
}

/// A page of a list.
trait Page: DeserializeOwned {
    type Item;

    /// What is on it, and the way to the next one.
    fn take(self) -> (Vec<Self::Item>, Option<String>);
}

impl Page for ListNamespaceResponse {
    type Item = NamespaceIdent;

    fn take(self) -> (Vec<NamespaceIdent>, Option<String>) {
        (self.namespaces, self.next_page_token)
    }
}

impl Page for ListTablesResponse {
    type Item = TableIdent;

    fn take(self) -> (Vec<TableIdent>, Option<String>) {
        (self.identifiers, self.next_page_token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(prefix: &str) -> StorageCredential {
        StorageCredential {
            prefix: prefix.to_owned(),
            config: [("s3.access-key-id".to_owned(), prefix.to_owned())].into(),
        }
    }

    /// As the specification has it: of several the most specific.
    #[test]
    fn the_longest_prefix_of_the_table_s_location_wins() {
        let vended = [
            "s3://lake/wh/shop",
            "s3",
            "s3://lake/wh/shop/orders",
            "s3://lake/wh/shop/orders2",
        ];
        let vended: Vec<StorageCredential> = vended.map(credential).into();
        let found =
            |location| most_fitting(location, Some(vended.clone())).map(|found| found.prefix);
        assert_eq!(
            found("s3://lake/wh/shop/orders").as_deref(),
            Some("s3://lake/wh/shop/orders")
        );
        assert_eq!(
            found("s3://lake/wh/shop/items").as_deref(),
            Some("s3://lake/wh/shop")
        );
        assert_eq!(found("s3://other/x").as_deref(), Some("s3"));
        assert_eq!(found("file:///x"), None);
        assert_eq!(most_fitting("s3://lake", None), None);
    }
}
