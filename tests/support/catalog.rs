//! A real Iceberg REST catalog (the Iceberg project's reference server) on SQLite, with a local warehouse.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock},
    time::Duration,
};

use serde_json::Value;

use super::server::{Server, Start, own_name, start_somewhere};

/// How long the catalog may take to answer on a busy machine.
const REQUEST: Duration = Duration::from_mins(1);

/// A catalog on a port of its own. Dropping one that a test has started ends it.
pub(crate) struct Catalog {
    port: u16,
    data: PathBuf,
    settings: Vec<String>,
    server: Mutex<Option<Server>>,
    /// Removes the data of a test's own catalog.
    _folder: Option<tempfile::TempDir>,
}

impl Catalog {
    /// The catalog that all tests share: started by the first one that asks, gone with the test process. Never break it.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Catalog> = OnceLock::new();
        SHARED.get_or_init(|| {
            Self::start_in(
                tempfile::tempdir()
                    .expect("a folder for the catalog")
                    .keep(),
                None,
                &[],
            )
        })
    }

    /// A catalog for one test, which may kill and restart it.
    pub(crate) fn start_own() -> Self {
        Self::start_own_with(&[])
    }

    /// The same with settings of `tests/servers/run`, as `s3=URL`.
    pub(crate) fn start_own_with(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the catalog");
        Self::start_in(folder.path().to_owned(), Some(folder), settings)
    }

    /// A catalog for one test in a folder of the test's, which may be on a disk of its own.
    pub(crate) fn start_own_in(folder: &Path) -> Self {
        let folder = tempfile::tempdir_in(folder).expect("a folder for the catalog");
        Self::start_in(folder.path().to_owned(), Some(folder), &[])
    }

    fn start_in(data: PathBuf, folder: Option<tempfile::TempDir>, settings: &[&str]) -> Self {
        let start = Start {
            name: "catalog",
            data: &data,
            port: 0,
            settings,
            remove: folder.is_none(),
        };
        let (port, server) = start_somewhere(&start);
        Self {
            port,
            data,
            settings: settings.iter().map(ToString::to_string).collect(),
            server: Mutex::new(Some(server)),
            _folder: folder,
        }
    }

    /// What a client is given as `uri`.
    pub(crate) fn uri(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where a proxy in front of it connects to.
    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The folder under which all its tables lie.
    pub(crate) fn warehouse(&self) -> PathBuf {
        self.data.join("warehouse")
    }

    /// A namespace for a test, which exists when this returns.
    pub(crate) fn namespace(&self, test: &str) -> String {
        let name = own_name(test);
        let (status, body) = self.request(
            "POST",
            "/v1/namespaces",
            &serde_json::json!({"namespace": [name]}).to_string(),
        );
        assert_eq!(status, 200, "{body}");
        name
    }

    /// The newest metadata of a table as the catalog answers it, or `None` where there is no such table: `metadata-location` and
    /// `metadata` with the spec's own names.
    pub(crate) fn table(&self, namespace: &str, table: &str) -> Option<Value> {
        match self.request(
            "GET",
            &format!("/v1/namespaces/{namespace}/tables/{table}?snapshots=all"),
            "",
        ) {
            (200, body) => Some(serde_json::from_str(&body).expect("the catalog's JSON")),
            (404, _) => None,
            (status, body) => {
                panic!("the catalog answers {status} about {namespace}.{table}: {body}")
            }
        }
    }

    /// Takes a table out of the catalog; its files stay.
    pub(crate) fn drop_table(&self, namespace: &str, table: &str) {
        let path = format!("/v1/namespaces/{namespace}/tables/{table}?purgeRequested=false");
        let (status, body) = self.request("DELETE", &path, "");
        assert!(status == 200 || status == 204, "{status} {body}");
    }

    /// Makes an empty table that looks as another one did, by its metadata, and gives the UUID of it. Nobody has ever written to it.
    pub(crate) fn make_alike(&self, namespace: &str, table: &str, metadata: &Value) -> String {
        let current = &metadata["current-schema-id"];
        let schemas = metadata["schemas"].as_array().expect("schemas");
        let schema = schemas
            .iter()
            .find(|schema| schema["schema-id"] == *current);
        let wanted = serde_json::json!({
            "name": table,
            "schema": schema.expect("the current schema"),
            "partition-spec": metadata["partition-specs"][0],
        });
        let path = format!("/v1/namespaces/{namespace}/tables");
        let (status, body) = self.request("POST", &path, &wanted.to_string());
        assert_eq!(status, 200, "{body}");
        let made: Value = serde_json::from_str(&body).expect("the catalog's JSON");
        made["metadata"]["table-uuid"]
            .as_str()
            .expect("a UUID")
            .to_owned()
    }

    /// Ends the catalog as a crash would.
    pub(crate) fn kill(&self) {
        self.server
            .lock()
            .expect("no panic under this lock")
            .take()
            .expect("a running catalog")
            .kill();
    }

    /// Starts it again where it was, with what it had.
    pub(crate) fn start(&self) {
        let settings: Vec<_> = self.settings.iter().map(String::as_str).collect();
        let start = Start {
            name: "catalog",
            data: &self.data,
            port: self.port,
            settings: &settings,
            remove: false,
        };
        *self.server.lock().expect("no panic under this lock") =
            Some(Server::start(&start).expect("a catalog that starts again"));
    }

    fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        request(self.address(), method, path, body).expect("an answer of the catalog")
    }
}

/// One request, by hand: this is what judges the clients, so it uses none. HTTP/1.0, whose answer ends where the connection does;
/// `None` when there was no answer.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(REQUEST)).expect("a time-out");
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: catalog\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// A path as the local file system knows it, of `file:///a`, `file:/a` (Java's way) or `/a`.
pub(crate) fn local_path(location: &str) -> &Path {
    let path = location.strip_prefix("file:").unwrap_or(location);
    Path::new(path.strip_prefix("//").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalog_keeps_its_namespaces_over_a_kill() {
        let catalog = Catalog::start_own();
        let namespace = catalog.namespace("a_catalog_keeps");
        catalog.kill();
        catalog.start();
        let (status, _) = catalog.request("GET", &format!("/v1/namespaces/{namespace}"), "");
        assert_eq!(status, 200);
        assert_eq!(catalog.table(&namespace, "none"), None);
    }
}
