//! A commit by hand, for what the client's transaction cannot say.
//!
//! `iceberg` 0.10.1 lets nobody outside build a `TableCommit` (apache/iceberg-rust#1252). So updates are posted here: to a
//! REST server as the specification has it, to an SQL catalog by exchanging the pointer to the metadata file. Both only
//! succeed on the very base they were derived from.
//!
//! An answer that does not say what happened is [`Error::Unknown`], as everywhere in this room.

use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use iceberg::spec::{MAIN_BRANCH, TableMetadata};
use iceberg::table::Table;
use iceberg::{ErrorKind, MetadataLocation, Runtime, TableRequirement, TableUpdate};
use iceberg_catalog_rest::{CommitTableRequest, CommitTableResponse};
use reqwest::{Method, StatusCode};
use sqlx::AnyPool;
use sqlx::any::{AnyPoolOptions, install_default_drivers};
use uuid::Uuid;

use super::Error;
use super::bounded::no_answer;
use super::catalog::{CatalogKind, CatalogSettings, sql_uri};
use super::rest::{Failed, Rest};
use super::storage::{Files, Store};

/// Commits any updates on exactly the given base.
#[async_trait]
pub trait RawCommitter: Debug + Send + Sync {
    /// Applies `updates` if main's newest snapshot is still the base's. `commit_id` names the attempt in errors.
    ///
    /// # Errors
    /// As [`commit`](super::commit::commit).
    async fn update(
        &self,
        base: &Table,
        commit_id: Uuid,
        updates: Vec<TableUpdate>,
    ) -> Result<Table, Error>;
}

/// Opens the same catalog as [`open`](super::catalog::open), for commits by hand.
///
/// # Errors
/// As [`open`](super::catalog::open).
pub async fn open_raw(settings: &CatalogSettings) -> Result<Arc<dyn RawCommitter>, Error> {
    match &settings.kind {
        CatalogKind::Rest { uri } => {
            // A table that is rebuilt keeps the files of its base.
            let files = Files::of_store(Store::new(&settings.storage));
            Ok(Arc::new(Rest::new(settings, uri, files)?))
        }
        CatalogKind::Sql { uri } => {
            let (uri, _) = sql_uri(settings, uri).await?;
            install_default_drivers();
            // Opened when first used: `open` has already shown that the database answers.
            let pool = AnyPoolOptions::new()
                .max_connections(1)
                .idle_timeout(Duration::from_mins(1))
                .connect_lazy(&uri)
                .map_err(|error| Error::Settings {
                    field: "sink.catalog.uri",
                    value: settings.kind.address(),
                    problem: error.to_string(),
                })?;
            Ok(Arc::new(Sql {
                pool,
                postgres: !uri.starts_with("sqlite:"),
                name: settings.name.clone(),
                deadline: settings.deadline,
            }))
        }
    }
}

fn exact_base(base: &Table) -> Vec<TableRequirement> {
    vec![
        TableRequirement::UuidMatch {
            uuid: base.metadata().uuid(),
        },
        TableRequirement::RefSnapshotIdMatch {
            r#ref: MAIN_BRANCH.to_owned(),
            snapshot_id: base.metadata().current_snapshot_id(),
        },
    ]
}

fn rebuilt(base: &Table, metadata: TableMetadata, location: String) -> iceberg::Result<Table> {
    Table::builder()
        .identifier(base.identifier().clone())
        .file_io(base.file_io().clone())
        .metadata(metadata)
        .metadata_location(location)
        .runtime(Runtime::try_current()?)
        .build()
}

fn conflict(base: &Table) -> Error {
    Error::Conflict {
        table: base.identifier().clone(),
        base: base.metadata().current_snapshot_id(),
        newest: None,
    }
}

/// Names base and commit in the errors of one update.
struct Attempt<'a> {
    base: &'a Table,
    commit_id: Uuid,
}

impl Attempt<'_> {
    fn refused(&self, source: iceberg::Error) -> Error {
        Error::Refused {
            table: self.base.identifier().clone(),
            commit_id: self.commit_id,
            source: Box::new(source),
        }
    }

    fn not_sent(&self, source: iceberg::Error) -> Error {
        Error::NotSent {
            table: self.base.identifier().clone(),
            commit_id: self.commit_id,
            source: Box::new(source),
        }
    }

    fn unknown(&self, source: iceberg::Error) -> Error {
        Error::Unknown {
            table: self.base.identifier().clone(),
            commit_id: self.commit_id,
            source: Box::new(source),
        }
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> iceberg::Error {
    iceberg::Error::new(ErrorKind::Unexpected, "the catalog failed").with_source(error)
}

#[derive(Debug)]
struct Sql {
    pool: AnyPool,
    postgres: bool,
    name: String,
    deadline: Duration,
}

impl Sql {
    /// Exchanges the pointer; the number of rows changed. One statement outside a transaction: it is done when it returns.
    async fn exchange(&self, base: &Table, old: &str, new: &str) -> Result<u64, sqlx::Error> {
        let statement = "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? \
             WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ? \
             AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)";
        let statement = if self.postgres {
            numbered(statement)
        } else {
            statement.to_owned()
        };
        let ident = base.identifier();
        let done = sqlx::query(&statement)
            .bind(new)
            .bind(old)
            .bind(&self.name)
            .bind(ident.namespace().join("."))
            .bind(ident.name())
            .bind(old)
            .execute(&self.pool)
            .await?;
        Ok(done.rows_affected())
    }
}

/// `?` as PostgreSQL's `$1`, `$2`, …
fn numbered(statement: &str) -> String {
    let mut parts = statement.split('?');
    let mut numbered = parts.next().unwrap_or_default().to_owned();
    for (place, part) in (1_u32..).zip(parts) {
        numbered.extend(["$", &place.to_string(), part]);
    }
    numbered
}

#[async_trait]
impl RawCommitter for Sql {
    async fn update(
        &self,
        base: &Table,
        commit_id: Uuid,
        updates: Vec<TableUpdate>,
    ) -> Result<Table, Error> {
        let attempt = Attempt { base, commit_id };
        let staged = || -> iceberg::Result<(TableMetadata, MetadataLocation)> {
            let old = base.metadata_location_result()?;
            let mut builder = base.metadata().clone().into_builder(Some(old.to_owned()));
            for update in updates {
                builder = update.apply(builder)?;
            }
            let metadata = builder.build()?.metadata;
            let location = MetadataLocation::from_str(old)?
                .with_next_version()
                .with_new_metadata(&metadata);
            Ok((metadata, location))
        };
        let (metadata, location) = staged().map_err(|error| attempt.refused(error))?;
        let written = metadata.write_to(base.file_io(), &location).await;
        written.map_err(|error| attempt.not_sent(error))?;
        let old = base
            .metadata_location_result()
            .map_err(|error| attempt.refused(error))?;
        let new = location.to_string();
        let exchanged = tokio::time::timeout(self.deadline, self.exchange(base, old, &new)).await;
        match exchanged {
            Err(_) => Err(attempt.unknown(no_answer("commit", self.deadline))),
            Ok(Err(error)) => Err(attempt.unknown(other(error))),
            Ok(Ok(0)) => {
                // Nobody was ever told its name.
                base.file_io().delete(&new).await.ok();
                Err(conflict(base))
            }
            Ok(Ok(_)) => rebuilt(base, metadata, new).map_err(|error| attempt.unknown(error)),
        }
    }
}

#[async_trait]
impl RawCommitter for Rest {
    async fn update(
        &self,
        base: &Table,
        commit_id: Uuid,
        updates: Vec<TableUpdate>,
    ) -> Result<Table, Error> {
        let attempt = Attempt { base, commit_id };
        let request = serde_json::to_vec(&CommitTableRequest {
            identifier: Some(base.identifier().clone()),
            requirements: exact_base(base),
            updates,
        });
        let request = request.map_err(|error| attempt.not_sent(other(error)))?;
        let asked = self.ask_of(Method::POST, base.identifier(), &[], Some(request));
        let answer = match asked.await {
            Ok(answer) => answer,
            Err(Failed { error, sent: false }) => return Err(attempt.not_sent(error)),
            Err(Failed { error, .. }) => return Err(attempt.unknown(error)),
        };
        match answer.status {
            StatusCode::OK => {
                let committed: iceberg::Result<CommitTableResponse> = answer.expect(&[]);
                let committed = committed.map_err(|error| attempt.unknown(error))?;
                rebuilt(base, committed.metadata, committed.metadata_location)
                    .map_err(|error| attempt.unknown(error))
            }
            StatusCode::CONFLICT => Err(conflict(base)),
            StatusCode::NOT_FOUND => Err(Error::NoSuchTable {
                table: base.identifier().clone(),
            }),
            status if status.is_client_error() => Err(attempt.refused(answer.error(&[]))),
            _ => Err(attempt.unknown(answer.error(&[]))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_for_postgres() {
        assert_eq!(numbered("a = ? AND b = ?"), "a = $1 AND b = $2");
    }

    #[tokio::test]
    async fn an_unreachable_server_was_never_sent_anything() {
        let lake = super::super::fixture::lake().await;
        let base = super::super::fixture::table(lake.catalog.as_ref()).await;
        // Port 9 is the discard service: nobody listens.
        let uri = "http://127.0.0.1:9".to_owned();
        let settings = CatalogSettings::new(CatalogKind::Rest { uri });
        let committer = open_raw(&settings).await.unwrap();
        let id = Uuid::now_v7();
        let error = committer.update(&base, id, Vec::new()).await.unwrap_err();
        assert!(
            matches!(error, Error::NotSent { commit_id, .. } if commit_id == id),
            "{error:?}"
        );
    }
}
