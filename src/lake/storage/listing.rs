//! What lies in the folders of a table in a store, for whoever looks for files that nothing needs.

use std::sync::Arc;

use futures::TryStreamExt;
use iceberg::Result as IcebergResult;
use iceberg::table::Table;
use opendal::EntryMode;

use super::fault::from_store;
use super::{Store, object};
use crate::lake::vending::Vending;

/// A file in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::lake) struct Listed {
    /// Its whole path.
    pub(in crate::lake) path: String,
    /// When it was written, ms; `None` where the store does not say.
    pub(in crate::lake) written_ms: Option<i64>,
}

/// Lists the folders of a catalog's tables, with what opens the tables themselves.
#[derive(Debug, Clone)]
pub struct Lister {
    store: Arc<Store>,
    vending: Option<Arc<Vending>>,
}

impl Lister {
    pub(in crate::lake) fn new(store: Arc<Store>, vending: Option<Arc<Vending>>) -> Self {
        Self { store, vending }
    }

    /// Every file below a folder of a table; none where the folder is in no store.
    pub(in crate::lake) async fn files(
        &self,
        table: &Table,
        folder: &str,
    ) -> IcebergResult<Vec<Listed>> {
        let folder = format!("{}/", folder.trim_end_matches('/'));
        let Some((bucket, prefix)) = object(&folder) else {
            return Ok(Vec::new());
        };
        let vended = self.vending.as_ref();
        let vended = vended.and_then(|vending| vending.access(table.identifier()));
        let access = match vended {
            Some(access) => access,
            None => self.store.access(table.file_io().config().props()),
        };
        let start = &folder[..folder.len() - prefix.len()];
        let mut found = access
            .bucket(bucket)?
            .lister_with(prefix)
            .recursive(true)
            .await
            .map_err(from_store)?;
        let mut listed = Vec::new();
        while let Some(entry) = found.try_next().await.map_err(from_store)? {
            let about = entry.metadata();
            if about.mode() == EntryMode::FILE {
                let written = about.last_modified();
                listed.push(Listed {
                    path: format!("{start}{}", entry.path()),
                    written_ms: written.map(|at| at.into_inner().as_millisecond()),
                });
            }
        }
        Ok(listed)
    }
}
