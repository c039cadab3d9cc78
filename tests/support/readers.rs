//! Somebody else's software reading our tables: PyIceberg and DuckDB, in a virtual environment of the cache.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
};

use serde_json::Value;

use super::{catalog::Catalog, server::lay};

/// Who reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    PyIceberg,
    DuckDb,
}

impl Reader {
    /// Both, for a test that wants them to agree.
    pub(crate) const ALL: [Self; 2] = [Self::PyIceberg, Self::DuckDb];

    fn name(self) -> &'static str {
        match self {
            Self::PyIceberg => "pyiceberg",
            Self::DuckDb => "duckdb",
        }
    }

    /// Every row of a table, found through its catalog; each is an object in the form that `tests/readers/rows.py` describes.
    pub(crate) fn rows(self, catalog: &Catalog, namespace: &str, table: &str) -> Vec<Value> {
        lines(&python(
            "rows.py",
            &[
                self.name(),
                "--uri",
                &catalog.uri(),
                "--table",
                &format!("{namespace}.{table}"),
            ],
        ))
    }

    /// Every row of the table whose metadata file this is, without any catalog.
    pub(crate) fn rows_of_metadata(self, metadata: &Path) -> Vec<Value> {
        lines(&python(
            "rows.py",
            &[self.name(), "--metadata", &metadata.display().to_string()],
        ))
    }
}

/// Runs a script of `tests/readers` and gives what it printed.
pub(crate) fn python(script: &str, arguments: &[&str]) -> String {
    static READERS: OnceLock<std::path::PathBuf> = OnceLock::new();
    let answer = Command::new(READERS.get_or_init(|| lay("readers")).join("bin/python"))
        .arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/readers")
                .join(script),
        )
        .args(arguments)
        .stderr(Stdio::piped())
        .output()
        .expect("a Python of the readers");
    assert!(
        answer.status.success(),
        "{script} {arguments:?}: {}",
        String::from_utf8_lossy(&answer.stderr)
    );
    String::from_utf8(answer.stdout).expect("text")
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::catalog::local_path;

    /// Otherwise a difference between our rows and theirs could be one of form.
    #[test]
    fn readers_give_the_same_rows_in_the_same_form() {
        let catalog = Catalog::shared();
        let namespace = catalog.namespace("readers_give");
        let table = format!("{namespace}.sample");
        let metadata = python("sample.py", &["--uri", &catalog.uri(), "--table", &table]);
        let facts = catalog
            .table(&namespace, "sample")
            .expect("the table just made");
        assert_eq!(facts["metadata-location"], metadata.trim());
        assert!(local_path(metadata.trim()).starts_with(catalog.warehouse()));

        let mut seen = Vec::new();
        for reader in Reader::ALL {
            seen.push((reader, reader.rows(catalog, &namespace, "sample")));
            seen.push((reader, reader.rows_of_metadata(local_path(metadata.trim()))));
        }
        assert_eq!(seen[0].1.len(), 4);
        let instants: Vec<_> = seen[0].1.iter().map(|row| row["instant"].clone()).collect();
        assert!(
            instants.contains(&Value::from(1_796_032_799_999_999_i64)),
            "{instants:?}"
        );
        for (reader, rows) in &seen[1..] {
            assert_eq!(sorted(rows), sorted(&seen[0].1), "{reader:?}");
        }
    }

    fn sorted(rows: &[Value]) -> Vec<String> {
        let mut texts: Vec<_> = rows.iter().map(ToString::to_string).collect();
        texts.sort();
        texts
    }
}
