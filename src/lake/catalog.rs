//! Opening a catalog and the storage beneath it.
//!
//! REST and SQL (SQLite, PostgreSQL) come out as the same `Arc<dyn Catalog>`. Every call of it has a deadline, and its errors
//! name the catalog's address; secrets come in resolved and never show in `Debug`, errors or logs.
//!
//! Where the files are is a matter of [`storage`](super::storage): the catalog is handed one, and gives each table a part of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use iceberg::table::Table;
use iceberg::{Catalog, CatalogBuilder, TableIdent};
use iceberg_catalog_sql::{SqlBindStyle, SqlCatalogBuilder};
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};

use super::Error;
pub use super::bounded::bounded;
use super::bounded::{ADDRESS_KEY, no_answer, vending};
use super::rest::Rest;
pub use super::rest::{CatalogFault, catalog_fault};
pub use super::storage::local_path;
use super::storage::{Files, Lister, StorageSettings, Store, is_writable};
use crate::api::worker;
use crate::process::secret::{Secret, Secrets};
use crate::process::tls::Authorities;

/// Time one call of a catalog may take, when nothing else is set. Longer than the slowest commit of a healthy catalog, shorter
/// than a commit interval that anyone would notice.
pub const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// How long a process waits for another one's write to the SQLite file. Writes take milliseconds.
const SQLITE_BUSY: Duration = Duration::from_secs(20);

/// Which catalog, and where.
#[derive(Clone, PartialEq, Eq)]
pub enum CatalogKind {
    /// An Iceberg REST catalog.
    Rest {
        /// `http://host:port` or `https://…`, with a path where the server has one.
        uri: String,
    },
    /// Iceberg's SQL catalog, shared with `PyIceberg` and Java's `JdbcCatalog`.
    Sql {
        /// `sqlite:///path/to/file` or `postgres://user@host/database`.
        uri: String,
    },
}

impl CatalogKind {
    /// The address without a password.
    #[must_use]
    pub fn address(&self) -> String {
        let (Self::Rest { uri } | Self::Sql { uri }) = self;
        without_password(uri)
    }
}

impl fmt::Debug for CatalogKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Rest { .. } => "Rest",
            Self::Sql { .. } => "Sql",
        };
        f.debug_struct(name).field("uri", &self.address()).finish()
    }
}

/// All that is needed to open a catalog.
#[derive(Debug, Clone)]
pub struct CatalogSettings {
    /// Which catalog, and where.
    pub kind: CatalogKind,
    /// Its name; an SQL catalog keeps several catalogs apart by it.
    pub name: String,
    /// REST: the warehouse the server knows by this name, when it wants one. SQL: the folder for new tables.
    pub warehouse: Option<String>,
    /// Handed to the client as they are (`header.*`, `scope`, `prefix`, …).
    pub properties: BTreeMap<String, String>,
    /// REST: `id:secret` of a client, exchanged for tokens, or a bearer token. SQL: the password, or `user:password`.
    pub credential: Option<Secret>,
    /// REST: who may have signed the server's certificate beside the usual authorities.
    pub authorities: Option<Authorities>,
    /// Time one call may take.
    pub deadline: Duration,
    /// SQLite: whether the file is made, with its folder, where it is missing.
    pub create: bool,
    /// How the files of its tables are reached.
    pub storage: StorageSettings,
}

impl CatalogSettings {
    /// As a specification names it, with its credential already read.
    #[must_use]
    pub fn of(catalog: &worker::Catalog, credential: Option<Secret>) -> Self {
        let uri = catalog.uri.clone();
        let kind = match catalog.kind {
            worker::CatalogKind::Rest => CatalogKind::Rest { uri },
            worker::CatalogKind::Sql => CatalogKind::Sql { uri },
        };
        Self {
            name: catalog.name.clone(),
            warehouse: catalog.warehouse.clone(),
            properties: catalog.properties.clone(),
            credential,
            authorities: catalog.ca_ref.as_ref().map(|reference| {
                let secrets = Secrets::from_environment();
                Authorities::of_secret("sink.catalog.caRef", reference, &secrets)
            }),
            storage: StorageSettings::of(catalog.storage.as_ref()),
            ..Self::new(kind)
        }
    }

    /// Trusts these where the specification names no others: for the catalog, and for its store.
    pub fn trust(&mut self, authorities: &Authorities) {
        for own in [&mut self.authorities, &mut self.storage.authorities] {
            own.get_or_insert_with(|| authorities.clone());
        }
    }

    /// Settings with nothing but an address; the catalog is called `tidemark`.
    #[must_use]
    pub fn new(kind: CatalogKind) -> Self {
        Self {
            kind,
            name: "tidemark".to_owned(),
            warehouse: None,
            properties: BTreeMap::new(),
            credential: None,
            authorities: None,
            deadline: CALL_DEADLINE,
            create: true,
            storage: StorageSettings::of(None),
        }
    }
}

/// Opens the catalog. A REST server is first asked when a table is.
///
/// # Errors
/// [`Error::Settings`] for what cannot work, [`Error::Catalog`] when the database does not answer.
pub async fn open(settings: &CatalogSettings) -> Result<Arc<dyn Catalog>, Error> {
    Ok(open_with_files(settings).await?.0)
}

/// Opens the catalog, with what lists the files of its tables.
///
/// # Errors
/// As [`open`].
pub async fn open_with_files(
    settings: &CatalogSettings,
) -> Result<(Arc<dyn Catalog>, Lister), Error> {
    let store = Store::new(&settings.storage);
    let address = settings.kind.address();
    Ok(match &settings.kind {
        CatalogKind::Rest { uri } => {
            let catalog = Rest::new(settings, uri, Files::of_store(Arc::clone(&store)))?;
            if store.has_keys() {
                let catalog = bounded(Arc::new(catalog), address, settings.deadline);
                (catalog, Lister::new(store, None))
            } else {
                let catalog = Arc::new(catalog.delegated());
                let (catalog, vended) =
                    vending(catalog, address, settings.deadline, Arc::clone(&store));
                (catalog, Lister::new(store, Some(vended)))
            }
        }
        CatalogKind::Sql { uri } => {
            let catalog = open_sql(settings, uri, Arc::clone(&store)).await?;
            let catalog = bounded(catalog, address, settings.deadline);
            (catalog, Lister::new(store, None))
        }
    })
}

/// Loads a table.
///
/// # Errors
/// [`Error::NoSuchTable`] when the catalog says so; [`Error::Catalog`] when it says anything else, or nothing.
pub async fn load(catalog: &dyn Catalog, table: &TableIdent) -> Result<Table, Error> {
    catalog
        .load_table(table)
        .await
        .map_err(|source| Error::from_catalog("load the table", table, source))
}

/// The address as the driver wants it, password included, and how it writes parameters. A missing SQLite file is created
/// where the settings say so.
pub(super) async fn sql_uri(
    settings: &CatalogSettings,
    uri: &str,
) -> Result<(String, SqlBindStyle), Error> {
    if uri.starts_with("sqlite:") {
        return Ok((
            prepare_sqlite(uri, settings.create).await?,
            SqlBindStyle::QMark,
        ));
    }
    if uri.starts_with("postgres://") || uri.starts_with("postgresql://") {
        let uri = with_password(uri, settings.credential.as_ref())?;
        return Ok((uri, SqlBindStyle::DollarNumeric));
    }
    Err(Error::Settings {
        field: "sink.catalog.uri",
        value: without_password(uri),
        problem: "an SQL catalog is sqlite:///path/to/file or postgres://user@host/database"
            .to_owned(),
    })
}

async fn open_sql(
    settings: &CatalogSettings,
    uri: &str,
    store: Arc<Store>,
) -> Result<Arc<dyn Catalog>, Error> {
    let (uri, bind_style) = sql_uri(settings, uri).await?;
    let warehouse = sql_warehouse(settings.warehouse.as_deref())?;
    let catalog = SqlCatalogBuilder::default()
        .with_storage_factory(Arc::new(Files::of_store(store)))
        .uri(uri)
        .warehouse_location(warehouse)
        .sql_bind_style(bind_style)
        .load(
            settings.name.clone(),
            settings.properties.clone().into_iter().collect(),
        );
    let catalog = tokio::time::timeout(settings.deadline, catalog)
        .await
        .unwrap_or_else(|_| Err(no_answer("open the catalog", settings.deadline)))
        .map_err(|source| opening(settings, source))?;
    Ok(Arc::new(catalog))
}

fn opening(settings: &CatalogSettings, source: iceberg::Error) -> Error {
    Error::Catalog {
        doing: "open",
        source: Box::new(source.with_context(ADDRESS_KEY, settings.kind.address())),
    }
}

/// Creates the file when missing, if it may, and sets what lets several processes share it; the mode stays in the file.
async fn prepare_sqlite(uri: &str, create: bool) -> Result<String, Error> {
    let invalid = |problem: String| Error::Settings {
        field: "sink.catalog.uri",
        value: uri.to_owned(),
        problem,
    };
    let options = SqliteConnectOptions::from_str(uri)
        .map_err(|error| invalid(format!("{error}; write it as sqlite:///path/to/file")))?;
    let file = options.get_filename().to_owned();
    if uri.contains(":memory:") || file.as_os_str().is_empty() {
        return Err(invalid(
            "a catalog in memory is lost between two connections; name a file: sqlite:///path/to/file".to_owned(),
        ));
    }
    if !create && !file.exists() {
        return Err(invalid("there is no such file".to_owned()));
    }
    if let Some(folder) = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder)
            .map_err(|error| invalid(format!("its folder cannot be created: {error}")))?;
    }
    // Write-ahead log: readers do not wait for a writer, and a writer waits for another instead of failing.
    let connection = options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(SQLITE_BUSY)
        .connect()
        .await
        .map_err(|error| {
            invalid(format!(
                "cannot be opened ({error}); the file must be a database this user may write"
            ))
        })?;
    drop(connection);
    Ok(sqlite_uri(uri, &file))
}

fn sqlite_uri(uri: &str, file: &Path) -> String {
    if uri.contains('?') {
        uri.to_owned()
    } else {
        format!("sqlite://{}?mode=rwc", file.display())
    }
}

fn sql_warehouse(warehouse: Option<&str>) -> Result<String, Error> {
    let invalid = |value: &str, problem: &str| Error::Settings {
        field: "sink.catalog.warehouse",
        value: value.to_owned(),
        problem: problem.to_owned(),
    };
    let Some(warehouse) = warehouse.filter(|text| !text.is_empty()) else {
        return Err(invalid(
            "",
            "an SQL catalog needs the folder for new tables, such as file:///var/lib/warehouse",
        ));
    };
    let warehouse = warehouse.trim_end_matches('/');
    if is_writable(warehouse) {
        return Ok(warehouse.to_owned());
    }
    if warehouse.contains(':') {
        return Err(invalid(
            warehouse,
            "files can be written to the local file system (file:///path or /path) and to a store that speaks S3 (s3://bucket/path)",
        ));
    }
    std::path::absolute(warehouse)
        .map(|path| path.display().to_string())
        .map_err(|_| invalid(warehouse, "write it as an absolute path"))
}

fn with_password(uri: &str, credential: Option<&Secret>) -> Result<String, Error> {
    let Some(credential) = credential else {
        return Ok(uri.to_owned());
    };
    let invalid = |problem: String| Error::Settings {
        field: "sink.catalog.uri",
        value: without_password(uri),
        problem,
    };
    let mut url = reqwest::Url::parse(uri).map_err(|error| {
        invalid(format!(
            "{error}; write it as postgres://user@host/database"
        ))
    })?;
    let (user, password) = match credential.expose().split_once(':') {
        Some((user, password)) => (Some(user), password),
        None => (None, credential.expose()),
    };
    let placed = user.is_none_or(|user| url.set_username(user).is_ok())
        && url.set_password(Some(password)).is_ok();
    if !placed {
        return Err(invalid(
            "it names no host to give the password to".to_owned(),
        ));
    }
    Ok(url.into())
}

pub(super) fn without_password(uri: &str) -> String {
    match reqwest::Url::parse(uri) {
        Ok(mut url) if url.password().is_some() => {
            if url.set_password(Some("…")).is_err() {
                return "…".to_owned();
            }
            url.into()
        }
        _ => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{add_row, ident, lake, read_ids, table};
    use super::super::{Next, commit, lineage};
    use super::*;

    #[test]
    fn secrets_do_not_show() {
        let mut settings = CatalogSettings::new(CatalogKind::Sql {
            uri: "postgres://me:hunter2@db/lake".to_owned(),
        });
        settings.credential = Some(Secret::new("hunter2"));
        let shown = format!("{settings:?} {}", settings.kind.address());
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("me:"), "{shown}");
    }

    #[test]
    fn a_password_is_put_into_the_address() {
        let uri = |credential: &str| {
            let secret = Secret::new(credential);
            with_password("postgres://me@db:5432/lake", Some(&secret)).unwrap()
        };
        assert_eq!(uri("p@ss"), "postgres://me:p%40ss@db:5432/lake");
        assert_eq!(uri("you:p"), "postgres://you:p@db:5432/lake");
    }

    #[tokio::test]
    async fn settings_that_cannot_work_are_named_with_their_remedy() {
        let cases = [
            (
                CatalogKind::Rest {
                    uri: "catalog:8181".to_owned(),
                },
                None,
                "http://",
            ),
            (
                CatalogKind::Sql {
                    uri: "mysql://h/d".to_owned(),
                },
                None,
                "postgres://",
            ),
            (
                CatalogKind::Sql {
                    uri: "sqlite::memory:".to_owned(),
                },
                Some("/w"),
                "name a file",
            ),
            (
                CatalogKind::Sql {
                    uri: "sqlite:///proc/none/c.db".to_owned(),
                },
                Some("/w"),
                "folder",
            ),
        ];
        for (kind, warehouse, remedy) in cases {
            let mut settings = CatalogSettings::new(kind);
            settings.warehouse = warehouse.map(str::to_owned);
            let error = open(&settings).await.unwrap_err();
            assert_eq!(error.next(), Next::AwaitChange);
            assert!(error.to_string().contains(remedy), "{error}");
        }
        let lake = lake().await;
        for warehouse in [None, Some("gs://bucket/w")] {
            let mut settings = lake.settings.clone();
            settings.warehouse = warehouse.map(str::to_owned);
            let error = open(&settings).await.unwrap_err();
            assert!(
                error.to_string().starts_with("sink.catalog.warehouse"),
                "{error}"
            );
        }
    }

    /// A reader that takes an unreachable catalog for a missing table would create a second one.
    #[tokio::test]
    async fn a_catalog_that_fails_is_no_missing_table() {
        let lake = lake().await;
        let missing = load(lake.catalog.as_ref(), &ident()).await.unwrap_err();
        assert!(matches!(missing, Error::NoSuchTable { .. }), "{missing:?}");
        // Port 9 is the discard service: nobody listens.
        let uri = "http://127.0.0.1:9".to_owned();
        let unreachable = open(&CatalogSettings::new(CatalogKind::Rest { uri }))
            .await
            .unwrap();
        let error = load(unreachable.as_ref(), &ident()).await.unwrap_err();
        assert_eq!(error.next(), Next::Later);
        let Error::Catalog { source, .. } = &error else {
            panic!("{error:?}");
        };
        assert!(
            source.to_string().contains("http://127.0.0.1:9"),
            "{source}"
        );
    }

    /// Several processes share the file: each handle here has its own connections, as another process would.
    #[tokio::test]
    async fn workers_that_share_a_sqlite_file_all_commit() {
        let lake = lake().await;
        table(lake.catalog.as_ref()).await;
        let mut workers = tokio::task::JoinSet::new();
        for worker in 0..3 {
            let catalog = open(&lake.settings).await.unwrap();
            workers.spawn(async move {
                for turn in 0..4 {
                    let id = worker * 100 + turn;
                    loop {
                        let base = load(catalog.as_ref(), &ident()).await.unwrap();
                        let ours = super::super::fixture::append(&base, id..id + 1).await;
                        match commit::commit(catalog.as_ref(), &base, &ours).await {
                            Ok(_) => break,
                            Err(error) => {
                                assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
                            }
                        }
                    }
                }
            });
        }
        while let Some(ended) = workers.join_next().await {
            ended.unwrap();
        }
        let table = load(lake.catalog.as_ref(), &ident()).await.unwrap();
        let wanted: Vec<i64> = (0..3)
            .flat_map(|worker| (0..4).map(move |turn| worker * 100 + turn))
            .collect();
        assert_eq!(read_ids(&table).await, wanted);
        assert_eq!(lineage::lineage(table.metadata()).own().count(), 12);
    }

    /// Java writes `file:/x`, the warehouse says `file:///x`, people say `/x`.
    #[tokio::test]
    async fn files_are_read_by_any_spelling() {
        let lake = lake().await;
        table(lake.catalog.as_ref()).await;
        let table = add_row(lake.catalog.as_ref(), 1).await;
        let location = table.metadata_location().unwrap();
        let path = local_path(location).unwrap().display().to_string();
        for spelling in [
            path.clone(),
            format!("file:{path}"),
            format!("file://{path}"),
        ] {
            let input = table.file_io().new_input(&spelling).unwrap();
            assert!(input.exists().await.unwrap(), "{spelling}");
            assert!(!input.read().await.unwrap().is_empty(), "{spelling}");
        }
    }
}
