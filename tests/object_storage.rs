//! Tables in a real store that speaks S3: each row once through lost requests and rotated keys, and faults by their names.

use std::{
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use arrow::{
    array::{Int64Array, StringArray},
    record_batch::RecordBatch,
};
use iceberg::TableIdent;
use iceberg::spec::{DataFile, NestedField, PrimitiveType, Schema, Type};
use iceberg::{NamespaceIdent, TableCreation};
use serde_json::Value;
use tidemark::api::worker::{SecretRef, Storage};
use tidemark::lake::catalog::{CatalogKind, CatalogSettings, load, open, open_with_files};
use tidemark::lake::commit::{Append, commit};
use tidemark::lake::maintain::{MaintainSettings, Maintainer};
use tidemark::lake::storage::StorageSettings;
use tidemark::lake::writer::{TableWriter, WriterSettings};
use tidemark::process::secret::Secrets;

use super::support::{
    catalog::Catalog,
    certificates::{Certificates, SecretFolder},
    kafka::Broker,
    pipeline::{total_records, write},
    proxy::{Fate, Proxy},
    readers::python,
    server::own_name,
    store::{Encrypted, Key, Store},
    worker::{Worker, manifest_of_rows},
};

/// How long a worker may take for anything on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// A pipeline of key-value rows into `<namespace>.rows`; `catalog` are the fields of its catalog.
fn manifest(
    name: &str,
    (broker, topic): (&Broker, &str),
    catalog: &str,
    namespace: &str,
) -> String {
    let kafka = format!(
        "bootstrapServers: '{}', topics: [{topic}]",
        broker.bootstrap()
    );
    manifest_of_rows(name, &kafka, catalog, &format!("{namespace}.rows"))
}

/// The storage of a catalog's fields, opened by the keys of the secret `lake`.
fn with_keys(endpoint: &str) -> String {
    format!(
        "storage: {{endpoint: '{endpoint}', region: us-east-1, pathStyleAccess: true, accessKeyIdRef: {{name: lake, key: id}}, \
         secretAccessKeyRef: {{name: lake, key: secret}}}}"
    )
}

pub(super) fn write_key(secrets: &SecretFolder, key: Key) {
    secrets.write("lake", "id", key.id);
    secrets.write("lake", "secret", key.secret);
}

fn run(name: &str, manifest: &str, secrets: &SecretFolder) -> Worker {
    let folder = secrets.path().display().to_string();
    let variables = [
        ("TIDEMARK_SECRETS", folder.as_str()),
        // No identity of the machine: what is not named is not there.
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ];
    Worker::run((name, "one"), manifest, &variables)
}

/// The rows' ids, in order, as PyIceberg reads them.
fn ids(arguments: &[&str], endpoint: &str, key: Key) -> Vec<u64> {
    let properties = [
        format!("s3.endpoint={endpoint}"),
        "s3.region=us-east-1".to_owned(),
        format!("s3.access-key-id={}", key.id),
        format!("s3.secret-access-key={}", key.secret),
    ];
    let mut all: Vec<&str> = [&["pyiceberg"], arguments].concat();
    for property in &properties {
        all.extend(["--property", property]);
    }
    let read = python("rows.py", &all);
    let mut ids: Vec<u64> = read
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["id"]
                .as_u64()
                .unwrap()
        })
        .collect();
    ids.sort_unstable();
    ids
}

/// A way to the store that loses every tenth request, and every tenth answer; and how many there were.
fn lossy(store: &Store) -> (Proxy, Arc<AtomicU32>) {
    let requests = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&requests);
    let proxy = Proxy::start(store.address(), move |_| {
        match counter.fetch_add(1, Ordering::Relaxed) % 10 {
            4 => Fate::LostRequest,
            9 => Fate::LostAnswer,
            _ => Fate::Pass,
        }
    });
    (proxy, requests)
}

/// Waits until a table of a REST catalog has so many rows.
fn wait_for_rows(worker: &Worker, (catalog, namespace): (&Catalog, &str), wanted: u64) {
    worker.wait_for_rows(wanted, PATIENCE, || {
        Some(total_records(&catalog.table(namespace, "rows")?))
    });
}

/// A wrong key is told by its name and taken up once it is right; then every fifth request to the store or its answer is lost.
#[test]
fn rows_reach_a_table_in_a_store_once_through_a_wrong_key_and_lost_requests() {
    let test = "lost";
    let (broker, store) = (Broker::shared(), Store::shared());
    let bucket = store.bucket(test);
    let catalog =
        Catalog::start_own_with(&[&format!("s3={}", store.uri()), &format!("bucket={bucket}")]);
    let (proxy, requests) = lossy(store);
    let (topic, namespace) = (broker.topic(test, 2), catalog.namespace(test));
    let fields = format!(
        "type: Rest, uri: '{}', {}",
        catalog.uri(),
        with_keys(&proxy.uri())
    );
    let secrets = SecretFolder::new();
    write_key(
        &secrets,
        Key {
            secret: "wrong-secret",
            ..Key::USUAL
        },
    );
    write(broker, &topic, 0, 0..50);
    let name = own_name(test);
    let worker = run(
        &name,
        &manifest(&name, (broker, &topic), &fields, &namespace),
        &secrets,
    );
    worker.wait_for_reason("CredentialsRefused", PATIENCE);
    write_key(&secrets, Key::USUAL);
    for (partition, from) in [(1, 50), (0, 100), (1, 150), (0, 200)] {
        write(broker, &topic, partition, from..from + 50);
        wait_for_rows(&worker, (&catalog, &namespace), from + 50);
    }
    assert!(
        requests.load(Ordering::Relaxed) > 20,
        "the store was hardly asked"
    );
    let table = format!("{namespace}.rows");
    let read = ids(
        &["--uri", &catalog.uri(), "--table", &table],
        &store.uri(),
        Key::USUAL,
    );
    assert_eq!(read, (0..250).collect::<Vec<_>>());
    worker.assert_hidden(&["wrong-secret", Key::USUAL.secret]);
    assert!(worker.terminate().success());
}

/// The metadata file that a SQL catalog names for the table.
fn metadata_location(settings: &CatalogSettings, table: &TableIdent) -> Option<String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let catalog = open(settings).await.ok()?;
        let table = load(catalog.as_ref(), table).await.ok()?;
        table.metadata_location().map(str::to_owned)
    })
}

pub(super) fn settings(
    folder: &Path,
    bucket: &str,
    endpoint: &str,
    secrets: &SecretFolder,
) -> CatalogSettings {
    let reference = |key: &str| {
        Some(SecretRef {
            name: "lake".into(),
            key: key.into(),
        })
    };
    let mut settings = CatalogSettings::new(CatalogKind::Sql {
        uri: format!("sqlite://{}/catalog.db", folder.display()),
    });
    settings.name = "default".into();
    settings.warehouse = Some(format!("s3://{bucket}/warehouse"));
    settings.storage = StorageSettings {
        storage: Storage {
            endpoint: Some(endpoint.to_owned()),
            region: Some("us-east-1".into()),
            path_style_access: true,
            access_key_id_ref: reference("id"),
            secret_access_key_ref: reference("secret"),
            ..Storage::default()
        },
        secrets: Secrets::in_folder(secrets.path()),
        authorities: None,
    };
    settings
}

/// The key after the usual one.
const NEXT: Key = Key {
    id: "next",
    secret: "next-secret",
};

/// The rows of a table of a SQL catalog, by its newest summary.
pub(super) fn rows_of(settings: &CatalogSettings, table: &TableIdent) -> Option<u64> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let table = runtime.block_on(async {
        let catalog = open(settings).await.ok()?;
        load(catalog.as_ref(), table).await.ok()
    })?;
    let newest = table.metadata().current_snapshot()?.clone();
    let total = newest
        .summary()
        .additional_properties
        .get("total-records")?;
    total.parse().ok()
}

/// A reader's command, with a store of flags and a key of the environment; the variables of `nowhere` name what is not there.
fn get(
    uri: &str,
    (bucket, endpoint): (&str, &str),
    secret: &str,
    nowhere: &[&str],
) -> std::process::Output {
    let warehouse = format!("s3://{bucket}/warehouse");
    Command::new(env!("CARGO_BIN_EXE_tidemark"))
        .args(["get", "rotated.rows", "--catalog-uri", uri])
        .args(["--warehouse", &warehouse, "--s3-endpoint", endpoint])
        .args(["--s3-region", "us-east-1", "--s3-path-style"])
        .env("AWS_ACCESS_KEY_ID", NEXT.id)
        .env("AWS_SECRET_ACCESS_KEY", secret)
        .envs(nowhere.iter().map(|variable| (variable, "/nowhere")))
        .output()
        .unwrap()
}

/// The store takes the new key alone from one moment to the next; nothing is lost or doubled, and readers' commands work with the
/// variables of the environment.
#[test]
fn a_rotated_key_is_taken_up_while_rows_go_on() {
    let test = "rotated";
    let broker = Broker::shared();
    let store = Store::start_own(Key::USUAL);
    let bucket = store.bucket(test);
    let (topic, folder) = (broker.topic(test, 1), tempfile::tempdir().unwrap());
    let secrets = SecretFolder::new();
    write_key(&secrets, Key::USUAL);
    let uri = format!("sqlite://{}/catalog.db", folder.path().display());
    let fields = format!(
        "type: Sql, uri: '{uri}', warehouse: 's3://{bucket}/warehouse', {}",
        with_keys(&store.uri())
    );
    let name = own_name(test);
    write(broker, &topic, 0, 0..100);
    let worker = run(
        &name,
        &manifest(&name, (broker, &topic), &fields, "rotated"),
        &secrets,
    );
    let own = settings(folder.path(), &bucket, &store.uri(), &secrets);
    let ident = TableIdent::from_strs(["rotated", "rows"]).unwrap();
    let total = |wanted: u64| worker.wait_for_rows(wanted, PATIENCE, || rows_of(&own, &ident));
    total(100);
    store.take_only(NEXT);
    write(broker, &topic, 0, 100..200);
    worker.wait_for_reason("CredentialsRefused", PATIENCE);
    write_key(&secrets, NEXT);
    total(200);
    let metadata = metadata_location(&own, &ident).unwrap();
    let read = ids(&["--metadata", &metadata], &store.uri(), NEXT);
    assert_eq!(read, (0..200).collect::<Vec<_>>());
    worker.assert_hidden(&[Key::USUAL.secret, NEXT.secret]);

    let endpoint = store.uri();
    let place = (bucket.as_str(), endpoint.as_str());
    let got = get(&uri, place, NEXT.secret, &[]);
    assert!(
        got.status.success(),
        "{}",
        String::from_utf8_lossy(&got.stderr)
    );
    let refused = get(&uri, place, "wrong-secret", &[]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && told.contains("SignatureDoesNotMatch"),
        "{told}"
    );
    assert!(!told.contains("wrong-secret"), "{told}");
    let bare = get(&uri, place, NEXT.secret, &["SSL_CERT_FILE", "SSL_CERT_DIR"]);
    let told = String::from_utf8_lossy(&bare.stderr);
    assert!(
        told.contains("name a file") && !told.contains("panicked"),
        "{told}"
    );
}

/// A key of a session is good with its token alone. Whoever makes them renews them, and the next one is taken up while rows go on.
#[test]
fn a_session_s_next_token_is_taken_up_while_rows_go_on() {
    let test = "session";
    let (broker, store) = (Broker::shared(), Store::shared());
    let bucket = store.bucket(test);
    let token = Arc::new(Mutex::new("hush-token-1"));
    let current = Arc::clone(&token);
    let proxy = Proxy::start(store.address(), move |request| {
        match request.header("x-amz-security-token") {
            Some(shown) if shown == *current.lock().unwrap() => Fate::Pass,
            _ => Fate::Refused(403),
        }
    });
    let (topic, folder) = (broker.topic(test, 1), tempfile::tempdir().unwrap());
    let secrets = SecretFolder::new();
    write_key(&secrets, Key::USUAL);
    secrets.write("lake", "token", "hush-token-1");
    let uri = format!("sqlite://{}/catalog.db", folder.path().display());
    let storage = with_keys(&proxy.uri()).replace(
        "secretAccessKeyRef",
        "sessionTokenRef: {name: lake, key: token}, secretAccessKeyRef",
    );
    let fields =
        format!("type: Sql, uri: '{uri}', warehouse: 's3://{bucket}/warehouse', {storage}");
    let name = own_name(test);
    write(broker, &topic, 0, 0..100);
    let worker = run(
        &name,
        &manifest(&name, (broker, &topic), &fields, "session"),
        &secrets,
    );
    let own = settings(folder.path(), &bucket, &store.uri(), &secrets);
    let ident = TableIdent::from_strs(["session", "rows"]).unwrap();
    let total = |wanted: u64| {
        let found = worker.wait_for_rows(wanted, PATIENCE, || rows_of(&own, &ident));
        assert_eq!(found, wanted);
    };
    total(100);
    *token.lock().unwrap() = "hush-token-2";
    write(broker, &topic, 0, 100..200);
    worker.wait_for_reason("CredentialsRefused", PATIENCE);
    secrets.write("lake", "token", "hush-token-2");
    total(200);
    worker.assert_hidden(&["hush-token", Key::USUAL.secret]);
    assert!(worker.terminate().success());
}

/// The keys come with the table; the store's certificate is signed by an authority that only the secret names.
#[test]
fn vended_keys_open_a_store_with_a_certificate_of_ones_own() {
    let test = "vended";
    let (broker, store) = (Broker::shared(), Store::shared());
    let (ours, theirs) = (Certificates::make(), Certificates::make());
    let encrypted = Encrypted::start(store.address(), &ours);
    let bucket = store.bucket(test);
    let catalog = Catalog::start_own_with(&[
        &format!("s3={}", store.uri()),
        &format!("bucket={bucket}"),
        "vends=1",
    ]);
    let (topic, namespace) = (broker.topic(test, 1), catalog.namespace(test));
    let fields = format!(
        "type: Rest, uri: '{}', storage: {{endpoint: '{}', pathStyleAccess: true, caRef: {{name: store-ca, key: ca.crt}}}}",
        catalog.uri(),
        encrypted.uri()
    );
    let secrets = SecretFolder::new();
    let name = own_name(test);
    write(broker, &topic, 0, 0..100);
    let worker = run(
        &name,
        &manifest(&name, (broker, &topic), &fields, &namespace),
        &secrets,
    );
    worker.wait_for_reason("SecretMissing", PATIENCE);
    secrets.write("store-ca", "ca.crt", &theirs.read("ca.pem"));
    worker.wait_for_reason("CertificateUntrusted", PATIENCE);
    secrets.write("store-ca", "ca.crt", &ours.read("ca.pem"));
    wait_for_rows(&worker, (&catalog, &namespace), 100);
    let table = format!("{namespace}.rows");
    let read = ids(
        &["--uri", &catalog.uri(), "--table", &table],
        &store.uri(),
        Key::USUAL,
    );
    assert_eq!(read, (0..100).collect::<Vec<_>>());
    worker.assert_hidden(&[Key::USUAL.secret]);
    assert!(worker.terminate().success());
}

/// A table in a bucket of the shared store, through `endpoint`, and all that is done to it.
struct Lake {
    catalog: Arc<dyn iceberg::Catalog>,
    lister: tidemark::lake::storage::Lister,
    table: iceberg::table::Table,
    _folder: tempfile::TempDir,
    _secrets: SecretFolder,
}

impl Lake {
    async fn new(bucket: &str, endpoint: &str) -> Self {
        let secrets = SecretFolder::new();
        write_key(&secrets, Key::USUAL);
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), bucket, endpoint, &secrets);
        let (catalog, lister) = open_with_files(&settings).await.unwrap();
        let namespace = NamespaceIdent::new("lake".into());
        catalog
            .create_namespace(&namespace, [].into())
            .await
            .unwrap();
        let field =
            |id, name: &str, kind| NestedField::required(id, name, Type::Primitive(kind)).into();
        let schema = Schema::builder()
            .with_fields([
                field(1, "id", PrimitiveType::Long),
                field(2, "text", PrimitiveType::String),
            ])
            .build()
            .unwrap();
        let creation = TableCreation::builder()
            .name("rows".into())
            .schema(schema)
            .build();
        let table = catalog.create_table(&namespace, creation).await.unwrap();
        Self {
            catalog,
            lister,
            table,
            _folder: folder,
            _secrets: secrets,
        }
    }

    /// Writes so many thousands of rows that do not compress; the files, and the most that the writer held.
    async fn write(&self, thousands: i64, row_group_bytes: usize) -> (Vec<DataFile>, usize) {
        let (table, runtime) = (self.table.clone(), tokio::runtime::Handle::current());
        let written = tokio::task::spawn_blocking(move || {
            // A thread of its own: a writer waits for storage itself.
            let written = std::thread::spawn(move || {
                let settings = WriterSettings {
                    row_group_bytes,
                    ..WriterSettings::default()
                };
                let mut writer = TableWriter::new(&table, settings, runtime).unwrap();
                let mut most = 0;
                for turn in 0..thousands {
                    let ids: Vec<i64> = (turn * 1_000..(turn + 1) * 1_000).collect();
                    let text = |_: &i64| -> String {
                        std::iter::repeat_with(fastrand::alphanumeric)
                            .take(1_500)
                            .collect()
                    };
                    let texts: Vec<String> = ids.iter().map(text).collect();
                    let columns: Vec<arrow::array::ArrayRef> = vec![
                        Arc::new(Int64Array::from(ids)),
                        Arc::new(StringArray::from(texts)),
                    ];
                    let schema = writer.arrow_schema().clone();
                    let batch = RecordBatch::try_new(schema, columns).unwrap();
                    writer.write(&batch).unwrap();
                    most = most.max(writer.held_bytes());
                }
                (writer.finish().unwrap(), most)
            });
            written.join().unwrap()
        });
        written.await.unwrap()
    }
}

/// A file of several row groups leaves in parts, and what is on its way counts as held.
#[tokio::test(flavor = "multi_thread")]
async fn large_files_leave_in_parts() {
    let store = Store::shared();
    let bucket = store.bucket("large");
    let seen = Arc::new(AtomicU32::new(0));
    let parts = Arc::clone(&seen);
    let proxy = Proxy::start(store.address(), move |request| {
        let part = request.method == "PUT" && request.path.contains("partNumber=");
        parts.fetch_add(u32::from(part), Ordering::Relaxed);
        Fate::Pass
    });
    let lake = Lake::new(&bucket, &proxy.uri()).await;
    let (files, most) = lake.write(18, 6 << 20).await;
    assert!(most > 6 << 20 && most < 40 << 20, "{most}");
    assert_eq!(files.len(), 1);
    assert!(files[0].file_size_in_bytes() > 16 << 20);
    let objects = store.objects(&bucket, ".parquet");
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0].1, files[0].file_size_in_bytes());
    assert!(seen.load(Ordering::Relaxed) >= 3, "{seen:?} parts");
    let input = lake.table.file_io().new_input(files[0].file_path());
    let read = input.unwrap().read().await.unwrap();
    assert_eq!(read.len() as u64, files[0].file_size_in_bytes());
}

/// What a killed worker leaves in a store is found and deleted; what the table names, and what others have put there, stays.
#[tokio::test(flavor = "multi_thread")]
async fn files_in_a_store_that_nothing_names_are_deleted() {
    let store = Store::shared();
    let bucket = store.bucket("swept");
    let lake = Lake::new(&bucket, &store.uri()).await;
    let (kept, _) = lake.write(1, 6 << 20).await;
    let append = Append {
        commit_id: uuid::Uuid::now_v7(),
        files: kept.clone(),
        ..Append::default()
    };
    let table = commit(lake.catalog.as_ref(), &lake.table, &append)
        .await
        .unwrap();
    let (left, _) = lake.write(1, 6 << 20).await;
    let key = |file: &DataFile| {
        let (_, key) = tidemark::lake::storage::object(file.file_path()).unwrap();
        key.to_owned()
    };
    let other = "warehouse/lake/rows/data/others.parquet";
    let io = table.file_io();
    let output = io.new_output(format!("s3://{bucket}/{other}")).unwrap();
    output.write("theirs".into()).await.unwrap();
    let settings = MaintainSettings {
        grace: Duration::ZERO,
        orphan_age: Duration::ZERO,
        metadata_files: true,
        ..MaintainSettings::default()
    };
    let mut maintainer = Maintainer::new(settings, None).with_lister(lake.lister.clone());
    let now_ms = tidemark::process::clock::Clock::system().now_us() / 1_000 + 60_000;
    let report = maintainer
        .run(lake.catalog.as_ref(), &table, now_ms)
        .await
        .unwrap();
    assert_eq!(report.orphans, left.len());
    let objects = store.objects(&bucket, ".parquet");
    let found: Vec<&str> = objects.iter().map(|(key, _)| key.as_str()).collect();
    let mut expected = vec![other.to_owned(), key(&kept[0])];
    expected.sort();
    assert_eq!(found, expected);
    let read = report.table.file_io().new_input(kept[0].file_path());
    assert!(read.unwrap().exists().await.unwrap());
}
