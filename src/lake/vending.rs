//! Credentials that a REST catalog vends with a table, and their way into the table's files.
//!
//! A table that is loaded anew hands its fresh credentials to every earlier copy of it: a writer whose files are open for an
//! hour goes on with them. Where nobody loads it for so long, it is loaded for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use iceberg::io::FileIOBuilder;
use iceberg::table::Table;
use iceberg::{Catalog, Result as IcebergResult, Runtime, TableIdent};

use super::storage::{Access, Files, Renew, Store, Vended, vended};

/// The tables of one catalog for which its server has vended credentials.
#[derive(Debug)]
pub(super) struct Vending {
    /// The server, without this.
    server: Arc<dyn Catalog>,
    store: Arc<Store>,
    tables: Mutex<HashMap<TableIdent, Opened>>,
}

/// What was vended for a table, and the storage that it opens.
type Opened = (Arc<Vended>, Arc<Access>);

impl Vending {
    pub(super) fn new(server: Arc<dyn Catalog>, store: Arc<Store>) -> Self {
        Self {
            server,
            store,
            tables: Mutex::default(),
        }
    }

    /// What opens the files of a table, where the server has vended it.
    pub(super) fn access(&self, table: &TableIdent) -> Option<Arc<Access>> {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.get(table).map(|(_, access)| Arc::clone(access))
    }

    /// The table as the server has just given it, with files that stay open to it.
    pub(super) fn equip(&self, table: Table) -> IcebergResult<Table> {
        let properties = table.file_io().config().props();
        let Some(credential) = vended(properties) else {
            return Ok(table);
        };
        let ident = table.identifier().clone();
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let access = if let Some((vended, access)) = tables.get(&ident) {
            vended.hold(credential);
            Arc::clone(access)
        } else {
            let again = Again {
                server: Arc::clone(&self.server),
                table: ident.clone(),
            };
            let vended = Arc::new(Vended::new(credential, Box::new(again)));
            let access = self.store.vended_access(properties, Arc::clone(&vended));
            tables.insert(ident.clone(), (vended, Arc::clone(&access)));
            access
        };
        let built = Table::builder()
            .identifier(ident)
            .file_io(FileIOBuilder::new(Arc::new(Files::of_access(access))).build())
            .metadata(table.metadata_ref())
            .runtime(Runtime::try_current()?);
        match table.metadata_location() {
            Some(location) => built.metadata_location(location).build(),
            None => built.build(),
        }
    }
}

/// Loads a table once more, for what comes with it.
struct Again {
    server: Arc<dyn Catalog>,
    table: TableIdent,
}

#[async_trait]
impl Renew for Again {
    async fn renew(&self) -> IcebergResult<HashMap<String, String>> {
        let table = self.server.load_table(&self.table).await?;
        Ok(table.file_io().config().props().clone())
    }
}
