//! Iceberg: what a table is to the rest of the house.
//!
//! A table is opened once ([`table::open_or_create`]), written through a [`writer::TableWriter`] that turns Arrow batches
//! into Parquet files, and moved on by [`commit::commit`]: files, summary and table properties in one atomic step on
//! exactly the base that the caller derived them from. [`lineage::lineage`] reads back what was committed, newest first;
//! [`maintain::Maintainer`] keeps metadata from growing and deletes what killed workers left behind. The room knows neither Kafka nor what a claim means.
//!
//! Never: a commit on another base than the given one; a file deleted that may be on the table; a fault of the catalog
//! taken for a missing table.

pub mod catalog;
pub mod check;
pub mod commit;
pub mod lineage;
pub mod maintain;
pub mod manifests;
pub mod orphans;
pub mod raw;
pub mod storage;
pub mod table;
pub mod writer;

mod bounded;
mod encoding;
mod expiry;
#[cfg(test)]
mod fixture;
mod metrics;
mod names;
mod rest;
mod routing;
mod vending;

use iceberg::{ErrorKind, TableIdent};
use uuid::Uuid;

use crate::process::tls;

/// What a caller does about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Load the table, derive everything anew, try at once.
    Again,
    /// Wait (back-off), then try again: it may heal by itself.
    Later,
    /// Trying again changes nothing: a person has to change the manifest or the table.
    AwaitChange,
    /// Data is at risk: stop this pipeline.
    Stop,
}

/// Why the lake could not do what was asked.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
pub enum Error {
    /// A setting that cannot work.
    #[error("{field} \"{value}\": {problem}")]
    Settings {
        /// The field of the manifest.
        field: &'static str,
        /// What it holds; secrets blotted out.
        value: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The catalog could not be asked, or answered with a fault. Says nothing about any table. The source names its address.
    #[error(
        "the catalog failed to {doing}; check that it runs at its address and accepts these credentials"
    )]
    Catalog {
        /// What was asked of it.
        doing: &'static str,
        /// Its answer.
        source: Box<iceberg::Error>,
    },
    /// The catalog works and has no such table.
    #[error("table \"{table}\" does not exist in the catalog")]
    NoSuchTable {
        /// The table asked for.
        table: TableIdent,
    },
    /// The table exists and differs from the manifest. Every difference is named.
    #[error("table \"{table}\" does not fit: {}", check::list(.problems))]
    Disagreement {
        /// The table.
        table: TableIdent,
        /// All that differs, each with its remedy.
        problems: Vec<check::Problem>,
    },
    /// The commit was never sent. Nothing of ours is on the table.
    #[error(
        "table \"{table}\": commit {commit_id} was not sent, its metadata could not be written"
    )]
    NotSent {
        /// The table.
        table: TableIdent,
        /// The commit.
        commit_id: Uuid,
        /// Why.
        source: Box<iceberg::Error>,
    },
    /// Another commit came first. Nothing of ours is on the table.
    #[error("table \"{table}\": snapshot {} is no longer the newest ({} is); derive the commit again", snapshot(*.base), snapshot(*.newest))]
    Conflict {
        /// The table.
        table: TableIdent,
        /// The snapshot the commit was derived from; `None` for a table without one.
        base: Option<i64>,
        /// The newest snapshot seen afterwards, when the catalog still answered.
        newest: Option<i64>,
    },
    /// No usable answer. Ours may be on the table, now or soon: look before writing again, delete nothing.
    #[error(
        "table \"{table}\": the outcome of commit {commit_id} is unknown; load the table and look for it"
    )]
    Unknown {
        /// The table.
        table: TableIdent,
        /// The commit.
        commit_id: Uuid,
        /// What came instead of an answer.
        source: Box<iceberg::Error>,
    },
    /// The commit was refused for what it is. Nothing of ours is on the table.
    #[error("table \"{table}\": commit {commit_id} was refused")]
    Refused {
        /// The table.
        table: TableIdent,
        /// The commit.
        commit_id: Uuid,
        /// Why.
        source: Box<iceberg::Error>,
    },
    /// A data or metadata file could not be written, read or deleted.
    #[error("file \"{path}\" could not be {doing}")]
    File {
        /// The file.
        path: String,
        /// `written`, `read`, `listed`, `deleted`.
        doing: &'static str,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A batch does not fit the table it is meant for.
    #[error("batch for table \"{table}\" does not fit its schema: {problem}")]
    Batch {
        /// The table.
        table: TableIdent,
        /// What does not fit.
        problem: String,
    },
}

impl Error {
    /// What the caller does.
    #[must_use]
    pub fn next(&self) -> Next {
        match self {
            Self::Conflict { .. } | Self::Unknown { .. } => Next::Again,
            // Refused: most often a clock more than a minute behind the table's newest snapshot, which heals.
            Self::Catalog { .. }
            | Self::NotSent { .. }
            | Self::File { .. }
            | Self::Refused { .. } => Next::Later,
            Self::Settings { .. } | Self::NoSuchTable { .. } | Self::Disagreement { .. } => {
                Next::AwaitChange
            }
            Self::Batch { .. } => Next::Stop,
        }
    }

    /// What a store says, where one is at fault.
    #[must_use]
    pub fn store(&self) -> Option<&storage::StoreError> {
        storage::store_error(self)
    }

    /// What keeps a catalog from answering about tables, where that is the cause.
    #[must_use]
    pub fn catalog(&self) -> Option<&catalog::CatalogFault> {
        catalog::catalog_fault(self)
    }

    /// What is wrong with a certificate, the catalog's or the store's, where one is at fault.
    #[must_use]
    pub fn certificate(&self) -> Option<tls::Fault> {
        tls::fault(self)
    }

    /// The label of the reason, from the variant.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.into()
    }

    fn from_catalog(doing: &'static str, table: &TableIdent, source: iceberg::Error) -> Self {
        match source.kind() {
            ErrorKind::TableNotFound | ErrorKind::NamespaceNotFound => Self::NoSuchTable {
                table: table.clone(),
            },
            _ => Self::Catalog {
                doing,
                source: Box::new(source),
            },
        }
    }

    fn file(
        path: &str,
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::File {
            path: path.to_owned(),
            doing,
            source: source.into(),
        }
    }
}

fn snapshot(id: Option<i64>) -> String {
    id.map_or_else(|| "none".to_owned(), |id| id.to_string())
}
