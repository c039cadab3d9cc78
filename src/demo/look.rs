//! Where the demo keeps its table, the manifest that describes the pipeline, and how a person looks at it afterwards.

use std::path::{Path, PathBuf};

use iceberg::{NamespaceIdent, TableIdent};

use crate::{
    demo::{Error, TOPIC},
    lake::catalog::{CatalogKind, CatalogSettings},
};

/// The catalog's name, which a reader has to use, too.
pub const CATALOG: &str = "tidemark";

/// The table.
pub const TABLE: &str = "shop.orders";

/// The same as the catalog knows it.
#[must_use]
pub fn table() -> TableIdent {
    let (namespace, name) = TABLE.split_once('.').unwrap_or(("shop", TABLE));
    TableIdent::new(NamespaceIdent::new(namespace.to_owned()), name.to_owned())
}

/// The folder of one demo.
pub struct Place {
    folder: PathBuf,
}

impl Place {
    /// Prepares `folder`, or a new one among the temporary files.
    ///
    /// # Errors
    /// [`Error::Folder`] when it cannot be made, or when an earlier demo is in it.
    pub fn prepare(folder: Option<&Path>) -> Result<Self, Error> {
        let failed = |folder: &Path| {
            let folder = folder.to_owned();
            move |source| Error::Folder { folder, source }
        };
        let folder = if let Some(folder) = folder {
            std::fs::create_dir_all(folder).map_err(failed(folder))?;
            folder.canonicalize().map_err(failed(folder))?
        } else {
            let temporary = tempfile::Builder::new().prefix("tidemark-demo-").tempdir();
            temporary.map_err(failed(&std::env::temp_dir()))?.keep()
        };
        let place = Self { folder };
        if place.catalog().exists() {
            return Err(Error::Occupied {
                folder: place.folder,
            });
        }
        std::fs::create_dir_all(place.warehouse()).map_err(failed(&place.folder))?;
        Ok(place)
    }

    /// The folder itself.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of the SQLite catalog.
    #[must_use]
    pub fn catalog(&self) -> PathBuf {
        self.folder.join("catalog.db")
    }

    /// The folder of the table's files.
    #[must_use]
    pub fn warehouse(&self) -> PathBuf {
        self.folder.join("warehouse")
    }

    /// How to open the catalog.
    #[must_use]
    pub fn catalog_settings(&self) -> CatalogSettings {
        let uri = format!("sqlite://{}", self.catalog().display());
        CatalogSettings {
            name: CATALOG.to_owned(),
            warehouse: Some(self.warehouse().display().to_string()),
            ..CatalogSettings::new(CatalogKind::Sql { uri })
        }
    }

    /// Where the manifest is kept.
    #[must_use]
    pub fn manifest_file(&self) -> PathBuf {
        self.folder.join("orders.yaml")
    }

    /// The pipeline of the demo. Commits come every four minutes, that is 0.8 s of a person's time: fewer of them than usual,
    /// as each takes as long as ever.
    #[must_use]
    pub fn manifest(&self, bootstrap_servers: &str) -> String {
        format!(
            "\
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {{name: orders, namespace: shop}}
spec:
  source:
    kafka:
      bootstrapServers: {bootstrap_servers}
      topics: [{TOPIC}]
    format: DebeziumJson
  sink:
    catalog:
      type: Sql
      name: {CATALOG}
      uri: {catalog}
      warehouse: {warehouse}
    table: {TABLE}
    schema:
      - {{name: id, type: long, key: true}}
      - {{name: customer_id, type: int}}
      - {{name: status, type: string}}
      - {{name: amount, type: \"decimal(12, 2)\", encoding: Plain}}
      - {{name: note, type: string}}
      - {{name: created_at, type: timestamptz, encoding: Iso}}
    commit: {{interval: 4m}}
  finalization: {{cell: 1h, allowedLateness: 5m, maxDelay: 10m, maxFutureSkew: 5m}}
",
            catalog = yaml(&format!("sqlite://{}", self.catalog().display())),
            warehouse = yaml(&self.warehouse().display().to_string()),
        )
    }

    /// How to read the table with this and other programs, quoted for the shell, for Python and for SQL; `metadata_file` is the newest
    /// one, `program` how this one is called.
    #[must_use]
    pub fn instructions(&self, metadata_file: &str, program: &str) -> String {
        let program = shell(program);
        let (catalog, warehouse) = (self.catalog(), self.warehouse());
        let (catalog, warehouse) = (catalog.display(), warehouse.display());
        let folder = shell(&self.folder.display().to_string());
        let manifest = shell(&self.manifest_file().display().to_string());
        let metadata_file = metadata_file.trim_start_matches("file://");
        let metadata_file = metadata_file.replace('\'', "''");
        let python_catalog = python(&format!("sqlite:///{catalog}"));
        let python_warehouse = python(&format!("file://{warehouse}"));
        let spark = format!("spark.sql.catalog.{CATALOG}");
        let spark_catalog = shell(&format!("{spark}.uri=jdbc:sqlite:{catalog}"));
        let spark_warehouse = shell(&format!("{spark}.warehouse=file://{warehouse}"));
        format!(
            r#"The table is in {folder} (delete the folder when you are done). To look at it, from any shell:

# what it claims
{program} get {TABLE} --file {manifest}

# PyIceberg: pip install 'pyiceberg[sql-sqlite,pyarrow,pandas]'
python3 - <<'END'
from pyiceberg.catalog.sql import SqlCatalog
catalog = SqlCatalog("{CATALOG}", uri={python_catalog}, warehouse={python_warehouse})
table = catalog.load_table("{TABLE}")
print("complete from", table.properties["tidemark.complete-from"])
print("complete before", table.properties["tidemark.finalized-before"])
print(table.scan().to_pandas())
END

# DuckDB: pip install duckdb==1.5.5 duckdb-extensions duckdb-extension-{{avro,httpfs,iceberg}}==1.5.5
python3 - <<'END'
import duckdb, duckdb_extensions
for name in ("avro", "httpfs", "iceberg"):
    duckdb_extensions.import_extension(name)
duckdb.sql("LOAD iceberg")
duckdb.sql(r"""SELECT date_trunc('hour', _cdc_event_time) AS hour, count(*) AS changes, count(DISTINCT id) AS orders
    FROM iceberg_scan('{metadata_file}')
    GROUP BY ALL ORDER BY ALL""").show()
END

# Spark: pip install 'pyspark==4.0.*', and Java 17
spark-sql --packages org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0,org.xerial:sqlite-jdbc:3.50.3.0 \
  --conf spark.sql.catalogImplementation=in-memory \
  --conf {spark}=org.apache.iceberg.spark.SparkCatalog \
  --conf {spark}.type=jdbc \
  --conf {spark_catalog} \
  --conf {spark_warehouse} \
  -e "SHOW TBLPROPERTIES {CATALOG}.{TABLE} ('tidemark.finalized-before');
      SELECT date_trunc('hour', _cdc_event_time) AS hour, count(*) FROM {CATALOG}.{TABLE} GROUP BY 1 ORDER BY 1"
"#
        )
    }
}

/// A word of a POSIX shell.
fn shell(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-=:,+@%".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// A text of Python.
fn python(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A text of YAML: JSON is YAML.
fn yaml(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folder is a person's, and may be called anything.
    #[test]
    fn commands_work_in_a_folder_of_any_name() {
        let outer = tempfile::tempdir().expect("a folder");
        let name = "it's a \"demo\": #1 $HOME";
        let place = Place::prepare(Some(&outer.path().join(name))).expect("a folder");
        let folder = place.folder().display().to_string();
        let text = place.instructions(&format!("file://{folder}/m.json"), "tidemark");
        let get = text
            .lines()
            .find(|line| line.starts_with("tidemark get"))
            .expect("the command");
        let echoed = std::process::Command::new("sh")
            .args(["-c", &get.replace("tidemark", "printf '%s\\n'")])
            .output()
            .expect("a shell");
        let echoed = String::from_utf8(echoed.stdout).expect("text");
        let words: Vec<&str> = echoed.lines().collect();
        let manifest = format!("{folder}/orders.yaml");
        assert_eq!(words, ["get", TABLE, "--file", &manifest]);
        assert!(text.contains(&format!(
            "iceberg_scan('{}/m.json')",
            folder.replace('\'', "''")
        )));
        let loaded = crate::api::load_manifests(&place.manifest("127.0.0.1:1"));
        let catalog = loaded.expect("a sound manifest").remove(0).1.sink.catalog;
        assert_eq!(catalog.uri, format!("sqlite://{folder}/catalog.db"));
        assert_eq!(catalog.warehouse, Some(format!("{folder}/warehouse")));
    }

    /// A here-document ends only at a line that is nothing but its mark.
    #[test]
    fn instructions_can_be_pasted_as_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Place::prepare(Some(folder.path())).expect("an empty folder");
        let text = place.instructions("file:///w/metadata/00001.metadata.json", "/a b/tidemark");
        let begun = text.matches("<<'END'\n").count();
        let ended = text.lines().filter(|line| *line == "END").count();
        assert_eq!((begun, ended), (2, 2), "{text}");
        assert!(text.contains("\n'/a b/tidemark' get shop.orders"), "{text}");
        assert!(
            text.contains("iceberg_scan('/w/metadata/00001.metadata.json')"),
            "{text}"
        );
    }

    /// Two demos in one folder would be one table with rows of two brokers.
    #[test]
    fn folder_of_an_earlier_demo_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Place::prepare(Some(folder.path())).expect("an empty folder");
        std::fs::write(place.catalog(), "").expect("a file");
        assert!(matches!(
            Place::prepare(Some(folder.path())),
            Err(Error::Occupied { .. })
        ));
    }
}
