//! Secrets by reference: where they are outside a manifest, and a type that does not show them.
//!
//! A reference `{name, key}` is the file `$TIDEMARK_SECRETS/<name>/<key>` (how a pod mounts it) or, where there is none, the
//! variable `TIDEMARK_SECRET_<NAME>_<KEY>`. Reading again sees a changed file.
//!
//! A secret is never part of a log line, an error or `/progress`: its text is reached by [`Secret::expose`] only.

use std::{env, fmt, fs, io, path::PathBuf};

use sha2::{Digest as _, Sha256};

use crate::api::worker::SecretRef;

/// The variable that names the folder of secrets.
pub const FOLDER_VARIABLE: &str = "TIDEMARK_SECRETS";

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one call that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

/// Why a secret could not be read.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
pub enum Error {
    /// Neither the file nor the variable is there.
    #[error("secret \"{reference}\" is neither the file \"{}\" nor the variable {variable}; provide one of them", .path.display())]
    Missing {
        /// Which one.
        reference: SecretRef,
        /// The file that was looked for.
        path: PathBuf,
        /// The variable that was looked for.
        variable: String,
    },
    /// The file is there and cannot be read.
    #[error("secret \"{reference}\": file \"{}\" cannot be read", .path.display())]
    Unreadable {
        /// Which one.
        reference: SecretRef,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What some secrets were when they were last looked at. Nothing can be told from it but whether they still are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct State([u8; 32]);

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State(hidden)")
    }
}

/// Where the secrets of this process are.
#[derive(Debug, Clone)]
pub struct Secrets {
    folder: PathBuf,
}

impl Secrets {
    /// The folder that [`FOLDER_VARIABLE`] names, else `/etc/tidemark/secrets`.
    #[must_use]
    pub fn from_environment() -> Self {
        let folder = env::var_os(FOLDER_VARIABLE).unwrap_or_else(|| "/etc/tidemark/secrets".into());
        Self::in_folder(folder)
    }

    /// Secrets of one folder.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// What tells whether any of these has changed: equal as long as none has. One that cannot be read counts as well.
    #[must_use]
    pub fn state_of<'r>(&self, references: impl IntoIterator<Item = &'r SecretRef>) -> State {
        let mut digest = Sha256::new();
        for reference in references {
            digest.update(reference.to_string());
            match self.read(reference) {
                Ok(secret) => {
                    digest.update([1]);
                    digest.update(Sha256::digest(secret.expose()));
                }
                Err(_) => digest.update([0]),
            }
        }
        State(digest.finalize().into())
    }

    /// Reads a secret. One trailing line end is no part of it: editors and `echo` add it.
    ///
    /// # Errors
    /// It is nowhere, or its file cannot be read.
    pub fn read(&self, reference: &SecretRef) -> Result<Secret, Error> {
        let path = self.folder.join(&reference.name).join(&reference.key);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Secret::new(without_line_end(&text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => from_variable(reference, path),
            Err(source) => Err(Error::Unreadable {
                reference: reference.clone(),
                path,
                source,
            }),
        }
    }
}

fn from_variable(reference: &SecretRef, path: PathBuf) -> Result<Secret, Error> {
    let variable = variable_of(reference);
    match env::var(&variable) {
        Ok(text) => Ok(Secret::new(text)),
        Err(_) => Err(Error::Missing {
            reference: reference.clone(),
            path,
            variable,
        }),
    }
}

/// `{name: kafka, key: sasl.password}` → `TIDEMARK_SECRET_KAFKA_SASL_PASSWORD`.
fn variable_of(reference: &SecretRef) -> String {
    let part = |text: &str| -> String {
        text.chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            })
            .collect()
    };
    format!(
        "TIDEMARK_SECRET_{}_{}",
        part(&reference.name),
        part(&reference.key)
    )
}

fn without_line_end(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> SecretRef {
        SecretRef {
            name: "catalog".into(),
            key: "client-secret".into(),
        }
    }

    #[test]
    fn secret_is_the_file_without_its_line_end() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("catalog")).unwrap();
        fs::write(folder.path().join("catalog/client-secret"), "hush\n").unwrap();
        let secret = Secrets::in_folder(folder.path())
            .read(&reference())
            .unwrap();
        assert_eq!(secret.expose(), "hush");
    }

    /// A person who has provided nothing must learn both ways of providing it.
    #[test]
    fn missing_secret_names_file_and_variable() {
        let told = Secrets::in_folder("/nowhere")
            .read(&reference())
            .unwrap_err()
            .to_string();
        assert!(told.contains("/nowhere/catalog/client-secret"), "{told}");
        assert!(
            told.contains("TIDEMARK_SECRET_CATALOG_CLIENT_SECRET"),
            "{told}"
        );
    }

    /// A pipeline that misses a secret goes on when it comes, and one that runs takes up a new one.
    #[test]
    fn state_changes_when_a_secret_comes_changes_or_goes() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = Secrets::in_folder(folder.path());
        let file = folder.path().join("catalog/client-secret");
        fs::create_dir(folder.path().join("catalog")).unwrap();
        let state = || secrets.state_of([&reference()]);
        let missing = state();
        fs::write(&file, "hush").unwrap();
        let there = state();
        assert_ne!(there, missing);
        fs::write(&file, "hush\n").unwrap();
        assert_eq!(state(), there);
        fs::write(&file, "other").unwrap();
        assert_ne!(state(), there);
        fs::remove_file(&file).unwrap();
        assert_eq!(state(), missing);
    }

    #[test]
    fn secret_is_not_shown() {
        let secret = Secret::new("hush");
        assert!(!format!("{secret} {secret:?}").contains("hush"));
    }
}
