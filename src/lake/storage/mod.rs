//! Where the files of tables are: the local file system, or a store that speaks S3.
//!
//! Comes in: the settings of a store and the path of a file. Goes out: the file read, written, listed or deleted, or a
//! [`StoreError`] that says whose fault it is. `file:/x`, `file:///x` and `/x` are local, `s3://`, `s3a://` and `s3n://` are one
//! store; any other scheme is refused before a byte is written.
//!
//! Connections and credentials are kept from one file to the next: a signer of its own for each would ask for credentials
//! anew for each (`iceberg-storage-opendal` 0.10.1 does, apache/iceberg-rust#2172).
//!
//! Never: a key in an error, a log line or `Debug`.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use iceberg::io::{
    FileMetadata, FileRead, FileWrite, InputFile, LocalFsStorage, OutputFile, Storage,
    StorageConfig, StorageFactory,
};
use iceberg::{ErrorKind, Result as IcebergResult};
use opendal::Operator;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use crate::api::worker::{self, SecretRef};
use crate::process::secret::{self, Secrets};
use crate::process::tls::Authorities;

mod access;
mod connections;
mod credential;
mod fault;
mod listing;

pub(super) use access::Access;
use access::Place;
use connections::Connections;
pub(super) use credential::{Renew, Vended, vended};
pub use fault::{StoreError, store_error};
use fault::{faulty, from_store};
pub(super) use listing::Listed;
pub use listing::Lister;

/// The schemes of a store that speaks S3.
const STORE: [&str; 3] = ["s3://", "s3a://", "s3n://"];

/// How the files of tables are reached.
#[derive(Debug, Clone)]
pub struct StorageSettings {
    /// Where the store is, its secrets left out.
    pub storage: worker::Storage,
    /// Where its secrets are; they are read again when they change.
    pub secrets: Secrets,
    /// Who may have signed the store's certificate beside the usual authorities.
    pub authorities: Option<Authorities>,
}

impl StorageSettings {
    /// As a specification names it, its secrets where this process has them.
    #[must_use]
    pub fn of(storage: Option<&worker::Storage>) -> Self {
        let storage = storage.cloned().unwrap_or_default();
        let secrets = Secrets::from_environment();
        let authorities = storage.ca_ref.as_ref().map(|reference| {
            let field = "sink.catalog.storage.caRef";
            Authorities::of_secret(field, reference, &secrets)
        });
        Self {
            storage,
            secrets,
            authorities,
        }
    }

    /// Reads every secret once: one that is not there is told before anything is opened.
    ///
    /// # Errors
    /// The first that cannot be read.
    pub fn check(&self) -> Result<(), secret::Error> {
        self.storage
            .secret_refs()
            .try_for_each(|reference| self.secrets.read(reference).map(drop))
    }

    /// Key and secret, where the specification names them.
    fn keys(&self) -> Option<(&SecretRef, &SecretRef)> {
        let storage = &self.storage;
        storage
            .access_key_id_ref
            .as_ref()
            .zip(storage.secret_access_key_ref.as_ref())
    }
}

/// Path of a location on the local file system; `None` for any other storage.
#[must_use]
pub fn local_path(location: &str) -> Option<PathBuf> {
    let path = match location.strip_prefix("file:") {
        Some(rest) => {
            let rest = rest.strip_prefix("//").unwrap_or(rest);
            // `file://host/x`: another machine's file.
            if !rest.starts_with('/') {
                return None;
            }
            rest
        }
        None if location.starts_with('/') => location,
        None => return None,
    };
    Some(PathBuf::from(path))
}

/// Bucket and key of an object; `None` for any other storage.
#[must_use]
pub fn object(location: &str) -> Option<(&str, &str)> {
    let rest = STORE
        .iter()
        .find_map(|scheme| location.strip_prefix(scheme))?;
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    (!bucket.is_empty()).then_some((bucket, key))
}

/// Whether files can be written there at all.
#[must_use]
pub fn is_writable(location: &str) -> bool {
    local_path(location).is_some() || object(location).is_some()
}

/// The files of one catalog: what all of its tables have in common.
pub(super) struct Store {
    settings: StorageSettings,
    connections: Arc<Connections>,
    /// One for each address: a server may name another one than the specification for some of its tables.
    accesses: Mutex<HashMap<Place, Arc<Access>>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Store {
    pub(super) fn new(settings: &StorageSettings) -> Arc<Self> {
        Arc::new(Self {
            settings: settings.clone(),
            connections: Arc::new(Connections::trusting(settings.authorities.clone())),
            accesses: Mutex::default(),
        })
    }

    /// Whether the specification names keys: then what a catalog vends is not looked at.
    pub(super) fn has_keys(&self) -> bool {
        self.settings.keys().is_some()
    }

    /// The storage of tables that the catalog gives with these properties, by the keys of the specification or the identity
    /// of this process.
    fn access(&self, properties: &HashMap<String, String>) -> Arc<Access> {
        let place = Place::of(&self.settings.storage, properties);
        let mut accesses = self.accesses.lock().unwrap_or_else(PoisonError::into_inner);
        let access = accesses.entry(place.clone()).or_insert_with(|| {
            let credentials = match self.settings.keys() {
                Some((id, secret)) => credential::given(&self.settings, id, secret),
                None => credential::identity(),
            };
            Arc::new(Access::new(
                place,
                Arc::clone(&self.connections),
                credentials,
            ))
        });
        Arc::clone(access)
    }

    /// The storage of one table, by what its catalog has vended for it.
    pub(super) fn vended_access(
        &self,
        properties: &HashMap<String, String>,
        vended: Arc<Vended>,
    ) -> Arc<Access> {
        let place = Place::of(&self.settings.storage, properties);
        Arc::new(Access::new(place, Arc::clone(&self.connections), vended))
    }
}

/// Makes the storage of tables, as the client of a catalog asks for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Files {
    /// Neither is ever written: a storage does not leave its process.
    #[serde(skip)]
    store: Option<Arc<Store>>,
    #[serde(skip)]
    access: Option<Arc<Access>>,
}

impl Files {
    /// Of any table of a catalog.
    pub(super) fn of_store(store: Arc<Store>) -> Self {
        Self {
            store: Some(store),
            access: None,
        }
    }

    /// Of one table.
    pub(super) fn of_access(access: Arc<Access>) -> Self {
        Self {
            store: None,
            access: Some(access),
        }
    }

    fn at<'p>(&self, path: &'p str) -> IcebergResult<At<'p>> {
        if local_path(path).is_some() {
            return Ok(At::Local(LocalFsStorage::new()));
        }
        let refused = |problem: &str| {
            let problem = format!("\"{path}\" {problem}");
            iceberg::Error::new(ErrorKind::FeatureUnsupported, problem)
        };
        let Some((bucket, key)) = object(path) else {
            return Err(refused(
                "is neither on the local file system nor in a store that speaks S3",
            ));
        };
        let access = self.access.as_ref();
        let access = access.ok_or_else(|| refused("has no storage"))?;
        Ok(At::Store(access.bucket(bucket)?, key))
    }
}

/// Where one file is.
enum At<'p> {
    Local(LocalFsStorage),
    Store(Operator, &'p str),
}

#[typetag::serde(name = "TidemarkFiles")]
impl StorageFactory for Files {
    fn build(&self, config: &StorageConfig) -> IcebergResult<Arc<dyn Storage>> {
        let access = match (&self.access, &self.store) {
            (Some(access), _) => Some(Arc::clone(access)),
            (None, Some(store)) => Some(store.access(config.props())),
            (None, None) => None,
        };
        Ok(Arc::new(Self {
            store: None,
            access,
        }))
    }
}

#[async_trait]
#[typetag::serde(name = "TidemarkFiles")]
impl Storage for Files {
    async fn exists(&self, path: &str) -> IcebergResult<bool> {
        match self.at(path)? {
            At::Local(local) => local.exists(path).await,
            At::Store(bucket, key) => bucket.exists(key).await.map_err(from_store),
        }
    }

    async fn metadata(&self, path: &str) -> IcebergResult<FileMetadata> {
        match self.at(path)? {
            At::Local(local) => local.metadata(path).await,
            At::Store(bucket, key) => {
                let found = bucket.stat(key).await.map_err(from_store)?;
                let size = found.content_length();
                Ok(FileMetadata { size })
            }
        }
    }

    async fn read(&self, path: &str) -> IcebergResult<Bytes> {
        match self.at(path)? {
            At::Local(local) => local.read(path).await,
            At::Store(bucket, key) => {
                let read = bucket.read(key).await.map_err(from_store)?;
                Ok(read.to_bytes())
            }
        }
    }

    async fn reader(&self, path: &str) -> IcebergResult<Box<dyn FileRead>> {
        match self.at(path)? {
            At::Local(local) => local.reader(path).await,
            At::Store(bucket, key) => {
                let reader = bucket.reader(key).await.map_err(from_store)?;
                Ok(Box::new(Reading(reader)))
            }
        }
    }

    async fn write(&self, path: &str, bytes: Bytes) -> IcebergResult<()> {
        match self.at(path)? {
            At::Local(local) => local.write(path, bytes).await,
            At::Store(bucket, key) => {
                let written = bucket.write(key, bytes).await;
                written.map(drop).map_err(from_store)
            }
        }
    }

    async fn writer(&self, path: &str) -> IcebergResult<Box<dyn FileWrite>> {
        match self.at(path)? {
            At::Local(local) => local.writer(path).await,
            At::Store(bucket, key) => {
                let writer = bucket.writer(key).await.map_err(from_store)?;
                let runtime = Handle::current();
                Ok(Box::new(Upload {
                    writer: Some(writer),
                    runtime,
                }))
            }
        }
    }

    async fn delete(&self, path: &str) -> IcebergResult<()> {
        match self.at(path)? {
            At::Local(local) => local.delete(path).await,
            At::Store(bucket, key) => bucket.delete(key).await.map_err(from_store),
        }
    }

    async fn delete_prefix(&self, path: &str) -> IcebergResult<()> {
        match self.at(path)? {
            At::Local(local) => local.delete_prefix(path).await,
            At::Store(bucket, key) => {
                let folder = format!("{}/", key.trim_end_matches('/'));
                let deleted = bucket.delete_with(&folder).recursive(true).await;
                deleted.map_err(from_store)
            }
        }
    }

    async fn delete_stream(&self, mut paths: BoxStream<'static, String>) -> IcebergResult<()> {
        while let Some(path) = paths.next().await {
            self.delete(&path).await?;
        }
        Ok(())
    }

    fn new_input(&self, path: &str) -> IcebergResult<InputFile> {
        Ok(InputFile::new(Arc::new(self.clone()), path.to_owned()))
    }

    fn new_output(&self, path: &str) -> IcebergResult<OutputFile> {
        Ok(OutputFile::new(Arc::new(self.clone()), path.to_owned()))
    }
}

/// An object that is read.
struct Reading(opendal::Reader);

#[async_trait]
impl FileRead for Reading {
    async fn read(&self, range: Range<u64>) -> IcebergResult<Bytes> {
        let read = self.0.read(range).await.map_err(from_store)?;
        Ok(read.to_bytes())
    }
}

/// An object that is written. It is there once it is closed, whole; what was sent of one that never is takes room until it is
/// given up.
struct Upload {
    /// `None` once it is closed.
    writer: Option<opendal::Writer>,
    runtime: Handle,
}

#[async_trait]
impl FileWrite for Upload {
    async fn write(&mut self, bytes: Bytes) -> IcebergResult<()> {
        let writer = self.writer.as_mut();
        let writer = writer.ok_or_else(|| faulty("it is closed already"))?;
        writer.write(bytes).await.map_err(from_store)
    }

    async fn close(&mut self) -> IcebergResult<()> {
        let writer = self.writer.as_mut();
        let writer = writer.ok_or_else(|| faulty("it is closed already"))?;
        writer.close().await.map_err(from_store)?;
        self.writer = None;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            self.runtime.spawn(async move {
                if let Err(error) = writer.abort().await {
                    tracing::debug!(%error, "an upload could not be given up; the store's own rules remove it");
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_spellings_of_a_local_file_are_one() {
        for spelling in ["/a/b", "file:/a/b", "file:///a/b"] {
            assert_eq!(
                local_path(spelling),
                Some(PathBuf::from("/a/b")),
                "{spelling}"
            );
        }
        for other in ["s3://a/b", "a/b", "file://host/b", "hdfs:/a"] {
            assert_eq!(local_path(other), None, "{other}");
        }
    }

    /// A key is taken as it is: folders of partitions hold whatever the values do.
    #[test]
    fn the_three_schemes_of_a_store_are_one() {
        for scheme in STORE {
            let path = format!("{scheme}lake/wh/a%20b=c?d#e/x.parquet");
            assert_eq!(object(&path), Some(("lake", "wh/a%20b=c?d#e/x.parquet")));
        }
        for other in ["/a/b", "s3:/a/b", "s3:///a", "gs://a/b"] {
            assert_eq!(object(other), None, "{other}");
        }
        assert!(is_writable("s3://lake") && is_writable("/a") && !is_writable("gs://a/b"));
    }

    /// The local storage would take `gs://x` for a folder of that name.
    #[tokio::test]
    async fn other_schemes_are_refused_before_a_byte_is_written() {
        let store = Store::new(&StorageSettings::of(None));
        let files = Files::of_store(store);
        let storage = files.build(&StorageConfig::new()).unwrap();
        for path in ["gs://lake/x", "hdfs://lake/x", "x"] {
            let error = storage.write(path, Bytes::from("x")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FeatureUnsupported, "{path}");
        }
    }
}
