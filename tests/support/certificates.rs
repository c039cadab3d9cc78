//! Certificates for the tests' servers and clients, made by `openssl`.
//!
//! One authority and what it has signed: a server's for 127.0.0.1 (not for `localhost`), a client's. A second set is signed by
//! somebody else.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// An authority, a server's certificate and a client's.
pub(crate) struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    pub(crate) fn make() -> Self {
        let made = Self {
            folder: tempfile::tempdir().expect("a folder for certificates"),
        };
        made.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "30",
            "-subj",
            "/CN=tests",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ]);
        made.sign("broker", "subjectAltName=IP:127.0.0.1");
        made.sign("client", "extendedKeyUsage=clientAuth");
        made
    }

    /// Where `ca.pem`, `broker.pem`, `client.crt`, `client.key` and `client.pem` are; a `.pem` of a signed one holds key and
    /// certificate.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder().join(file)).expect("a file of ours")
    }

    /// Makes `name.crt`, `name.key` and `name.pem` with an extension, as `subjectAltName=DNS:example.org`.
    pub(crate) fn sign(&self, name: &str, extension: &str) {
        let [key, request, certificate, extensions] =
            ["key", "csr", "crt", "ext"].map(|ending| format!("{name}.{ending}"));
        fs::write(self.folder().join(&extensions), extension).expect("a file of extensions");
        let subject = format!("/CN={name}");
        self.openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            &subject,
            "-keyout",
            &key,
            "-out",
            &request,
        ]);
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "30",
            "-extfile",
            &extensions,
            "-out",
            &certificate,
        ]);
        let both = format!("{}{}", self.read(&key), self.read(&certificate));
        fs::write(self.folder().join(format!("{name}.pem")), both).expect("a file of both");
    }

    fn openssl(&self, arguments: &[&str]) {
        let made = Command::new("openssl")
            .args(arguments)
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .output()
            .expect("openssl");
        let told = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{arguments:?}: {told}");
    }
}

/// Secrets as a pod has them: a folder each, a file for each of its entries.
pub(crate) struct SecretFolder(tempfile::TempDir);

impl SecretFolder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder for secrets"))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    /// Writes an entry, whole at once: a worker may be reading it.
    pub(crate) fn write(&self, name: &str, key: &str, text: &str) {
        let folder = self.0.path().join(name);
        fs::create_dir_all(&folder).expect("a folder of a secret");
        let new = folder.join(format!("..{key}"));
        fs::write(&new, text).expect("an entry of a secret");
        fs::rename(new, folder.join(key)).expect("an entry in its place");
    }
}
