//! A real store that speaks S3: one for all tests, and one of its own for a test that breaks it.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock},
    time::Duration,
};

use super::{
    certificates::Certificates,
    server::{Server, Start, free_port, own_name, start_somewhere},
    wait::within,
};

/// The key that a store takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) id: &'static str,
    pub(crate) secret: &'static str,
}

impl Key {
    /// The one of the shared store.
    pub(crate) const USUAL: Self = Self {
        id: "store",
        secret: "store-secret",
    };
}

/// A store on a port of its own. Dropping one that a test has started ends it.
pub(crate) struct Store {
    port: u16,
    data: PathBuf,
    server: Mutex<Option<Server>>,
    /// Removes the data of a test's own store.
    _folder: Option<tempfile::TempDir>,
}

impl Store {
    /// The store that all tests share. Never break it.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Store> = OnceLock::new();
        SHARED.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a folder for the store").keep();
            Self::start_in(folder, None, Key::USUAL)
        })
    }

    /// A store for one test, which may end it and give it another key.
    pub(crate) fn start_own(key: Key) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the store");
        Self::start_in(folder.path().to_owned(), Some(folder), key)
    }

    fn start_in(data: PathBuf, folder: Option<tempfile::TempDir>, key: Key) -> Self {
        let settings = settings(key);
        let settings: Vec<_> = settings.iter().map(String::as_str).collect();
        let (port, server) = start_somewhere(&Start {
            name: "s3",
            data: &data,
            port: 0,
            settings: &settings,
            remove: folder.is_none(),
        });
        Self {
            port,
            data,
            server: Mutex::new(Some(server)),
            _folder: folder,
        }
    }

    /// What a client is given as its endpoint.
    pub(crate) fn uri(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where a proxy in front of it connects to.
    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// A bucket for a test. Keep its name and those of tables short: the store keeps what it knows of an object in a file whose name
    /// has both bucket and key in Base64, and names of files end at 255 characters.
    pub(crate) fn bucket(&self, test: &str) -> String {
        let name = own_name(test).replace('_', "-");
        fs::create_dir_all(self.data.join("buckets").join(&name)).expect("a folder for a bucket");
        name
    }

    /// The objects of a bucket whose keys end so, and their sizes.
    pub(crate) fn objects(&self, bucket: &str, ending: &str) -> Vec<(String, u64)> {
        let root = self.data.join("buckets").join(bucket);
        let mut folders = vec![root.clone()];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder of objects") {
                let entry = entry.expect("an entry");
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.to_string_lossy().ends_with(ending) {
                    let key = path.strip_prefix(&root).expect("below its bucket");
                    let size = entry.metadata().expect("an object").len();
                    found.push((key.display().to_string(), size));
                }
            }
        }
        found.sort();
        found
    }

    /// Ends it and starts it again with another key, as a rotation does that leaves the old one no time.
    pub(crate) fn take_only(&self, key: Key) {
        let settings = settings(key);
        let settings: Vec<_> = settings.iter().map(String::as_str).collect();
        let mut server = self.server.lock().expect("no panic under this lock");
        server.take().expect("a running store").kill();
        let start = Start {
            name: "s3",
            data: &self.data,
            port: self.port,
            settings: &settings,
            remove: false,
        };
        *server = Some(Server::start(&start).expect("a store that starts again"));
    }
}

fn settings(key: Key) -> [String; 2] {
    [format!("key={}", key.id), format!("secret={}", key.secret)]
}

/// A server of TLS in front of another one; it ends with its value.
pub(crate) struct Encrypted {
    port: u16,
    process: Child,
}

impl Encrypted {
    /// Encrypts what goes to `upstream`, with the certificate of `certificates`.
    pub(crate) fn start(upstream: SocketAddr, certificates: &Certificates) -> Self {
        Self::start_as("broker", upstream, certificates)
    }

    /// The same with the certificate of this name among them.
    pub(crate) fn start_as(name: &str, upstream: SocketAddr, certificates: &Certificates) -> Self {
        Self::start_at(free_port(), upstream, (certificates, name))
    }

    /// Where a proxy in front of it connects to.
    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Ends it and starts it again with another certificate.
    pub(crate) fn show(&mut self, upstream: SocketAddr, certificates: &Certificates) {
        self.end();
        *self = Self::start_at(self.port, upstream, (certificates, "broker"));
    }

    fn start_at(port: u16, upstream: SocketAddr, (of, name): (&Certificates, &str)) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/tls.py");
        let process = Command::new("python3")
            .arg(script)
            .arg(port.to_string())
            .arg(upstream.port().to_string())
            .arg(of.folder().join(format!("{name}.pem")))
            .stdin(Stdio::piped())
            .spawn()
            .expect("a Python");
        within(Duration::from_secs(20), "a server of TLS", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        });
        Self { port, process }
    }

    /// Its address by a name that its certificate has.
    pub(crate) fn uri(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }
}

impl Encrypted {
    fn end(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Drop for Encrypted {
    fn drop(&mut self) {
        self.end();
    }
}
