//! The product itself: `tidemark run` on manifests, with an SQL catalog and a warehouse in a folder.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use iceberg::{TableIdent, table::Table};
use serde_json::Value;
use tidemark::lake::catalog::{self, CatalogKind, CatalogSettings};

use super::{cpu::Process, wait};

/// Far beyond what any round takes, on any machine.
const PATIENCE: Duration = Duration::from_mins(20);

/// Catalog, warehouse and manifests of one run.
pub(crate) struct Place {
    folder: PathBuf,
}

impl Place {
    /// In a folder, which is made.
    pub(crate) fn new(folder: PathBuf) -> Self {
        fs::create_dir_all(folder.join("pipelines")).expect("a folder for manifests");
        fs::create_dir_all(folder.join("warehouse")).expect("a folder for tables");
        Self { folder }
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds a pipeline from a topic into the table `bench.<name>`.
    pub(crate) fn add(&self, name: &str, bootstrap: &str, topic: &str, interval: &str) {
        let manifest = format!(
            "\
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: {name}, namespace: bench}}
spec:
  source:
    kafka: {{bootstrapServers: \"{bootstrap}\", topics: [{topic}]}}
    format: DebeziumJson
  sink:
    catalog:
      type: Sql
      name: bench
      uri: sqlite://{folder}/catalog.db
      warehouse: {folder}/warehouse
    table: bench.{name}
    schema:
      - {{name: id, type: long, key: true}}
      - {{name: customer_id, type: int}}
      - {{name: status, type: string}}
      - {{name: sku, type: string}}
      - {{name: city, type: string}}
      - {{name: price, type: \"decimal(12, 2)\", encoding: Plain}}
      - {{name: quantity, type: int}}
      - {{name: gift, type: boolean}}
      - {{name: weight, type: double}}
      - {{name: note, type: string}}
      - {{name: created_at, type: timestamptz, encoding: Millis}}
      - {{name: updated_at, type: timestamptz, encoding: Micros}}
    commit: {{interval: {interval}}}
",
            folder = self.folder.display(),
        );
        let file = self.folder.join(format!("pipelines/{name}.yaml"));
        fs::write(file, manifest).expect("a manifest");
    }

    /// Loads the table that a pipeline has made in `folder`.
    pub(crate) async fn table(folder: &Path, name: &str) -> Table {
        let folder = folder.display();
        let uri = format!("sqlite://{folder}/catalog.db");
        let mut settings = CatalogSettings::new(CatalogKind::Sql { uri });
        "bench".clone_into(&mut settings.name);
        settings.warehouse = Some(format!("{folder}/warehouse"));
        let catalog = catalog::open(&settings).await.expect("the catalog");
        let ident = TableIdent::from_strs(["bench", name]).expect("a name");
        catalog::load(&*catalog, &ident).await.expect("the table")
    }
}

/// A running worker.
pub(crate) struct Worker {
    child: Child,
    /// What it uses.
    pub(crate) process: Process,
    log: PathBuf,
}

/// What its log says of commits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Commits {
    /// Pipelines that read.
    pub(crate) reading: usize,
    /// Commits with rows.
    pub(crate) count: u64,
    /// Rows in them.
    pub(crate) rows: u64,
}

impl Worker {
    /// Starts `tidemark run` on all manifests of a place.
    pub(crate) fn start(place: &Place) -> Self {
        let log = place.folder.join("worker.log");
        let child = Command::new(env!("CARGO_BIN_EXE_tidemark"))
            .arg("run")
            .arg(place.folder.join("pipelines"))
            .args([
                "--admin",
                "127.0.0.1:0",
                "--log-format",
                "json",
                "--log",
                "info",
            ])
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("a log file"))
            .spawn()
            .expect("the tidemark program");
        let process = Process::of(child.id());
        Self {
            child,
            process,
            log,
        }
    }

    /// What it has committed so far. The log tells it: asking the worker would cost it time.
    pub(crate) fn commits(&mut self) -> Commits {
        let ended = self.child.try_wait().expect("our own child");
        assert!(
            ended.is_none(),
            "the worker ended, see {}",
            self.log.display()
        );
        let mut commits = Commits::default();
        let log = fs::read_to_string(&self.log).expect("the worker's log");
        for line in log.lines() {
            let Ok(line) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            assert!(
                line["level"] != "ERROR",
                "the worker has failed, see {}: {line}",
                self.log.display()
            );
            match line["message"].as_str() {
                Some("reading") => commits.reading += 1,
                Some("committed") if line["rows"] != 0 => {
                    commits.count += 1;
                    commits.rows += line["rows"].as_u64().unwrap_or(0);
                }
                _ => {}
            }
        }
        commits
    }

    /// Waits until that many rows are on tables.
    pub(crate) fn wait_for(&mut self, rows: u64) -> Commits {
        wait::within(PATIENCE, "all rows on the table", || {
            Some(self.commits()).filter(|commits| commits.rows >= rows)
        })
    }
}

/// Ends it, also where a bench fails.
impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
