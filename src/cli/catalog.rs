//! The catalog of a reader's command: from flags, from the environment, or from the manifest that writes the table.

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use clap::ValueEnum;

use crate::{
    api::{self, worker},
    process::{
        secret::{self, Secret, Secrets},
        tls::Authorities,
    },
    sensor::Catalog,
};

/// The variable with the credential of the catalog. There is no flag for it: flags are seen by everyone on the machine.
const CREDENTIAL_VARIABLE: &str = "TIDEMARK_CATALOG_CREDENTIAL";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Catalog")]
pub(super) struct CatalogArguments {
    /// Take catalog and credential from the pipeline in this manifest that writes the table; nothing else here is then looked at
    #[arg(short, long, value_name = "MANIFEST")]
    file: Option<PathBuf>,
    /// Where the catalog is, as `http://catalog:8181` or `sqlite:///var/lake/catalog.db`
    ///
    /// Its credential, where it needs one, is read from the variable `TIDEMARK_CATALOG_CREDENTIAL`.
    #[arg(
        long,
        value_name = "URI",
        env = "TIDEMARK_CATALOG_URI",
        hide_env_values = true
    )]
    catalog_uri: Option<String>,
    /// Which protocol it speaks; told by the address where it is left out
    #[arg(
        long,
        value_name = "TYPE",
        env = "TIDEMARK_CATALOG_TYPE",
        hide_env_values = true
    )]
    catalog_type: Option<Protocol>,
    /// The name under which a SQL catalog keeps its tables
    #[arg(
        long,
        value_name = "NAME",
        env = "TIDEMARK_CATALOG_NAME",
        hide_env_values = true,
        default_value = "default"
    )]
    catalog_name: String,
    /// A file with certificates, in PEM, that are trusted beside the usual ones: those of the authority that signed the catalog's, or the store's
    #[arg(
        long,
        value_name = "FILE",
        env = "TIDEMARK_CA_FILE",
        hide_env_values = true
    )]
    ca_file: Option<PathBuf>,
    /// The warehouse: its name (rest) or its location (sql)
    #[arg(
        long,
        value_name = "WAREHOUSE",
        env = "TIDEMARK_WAREHOUSE",
        hide_env_values = true
    )]
    warehouse: Option<String>,
    /// Where the store with the table's files is, as `https://s3.example.org:9000`; Amazon's own where it is left out
    ///
    /// Its keys are read from the variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, or are those of the machine.
    #[arg(
        long,
        value_name = "URL",
        env = "TIDEMARK_S3_ENDPOINT",
        hide_env_values = true
    )]
    s3_endpoint: Option<String>,
    /// The region that requests to the store are signed for; else that of the variable `AWS_REGION`
    #[arg(
        long,
        value_name = "REGION",
        env = "TIDEMARK_S3_REGION",
        hide_env_values = true
    )]
    s3_region: Option<String>,
    /// The bucket stands in the path of the store's addresses, and not before its host
    #[arg(long, env = "TIDEMARK_S3_PATH_STYLE", hide_env_values = true)]
    s3_path_style: bool,
    /// A further option of the catalog; may be repeated
    #[arg(long = "catalog-property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Protocol {
    /// The Iceberg REST protocol.
    Rest,
    /// Tables in SQLite or PostgreSQL.
    Sql,
}

/// Why there is no catalog to ask.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Nothing names one.
    #[error(
        "no catalog is given; write --catalog-uri, set TIDEMARK_CATALOG_URI, or name the pipeline's manifest with --file"
    )]
    None,
    /// The address has no known beginning.
    #[error(
        "catalog \"{uri}\": its protocol cannot be told from the address; write --catalog-type rest or sql"
    )]
    Protocol {
        /// The address.
        uri: String,
    },
    /// The manifest cannot be read.
    #[error("manifest \"{}\" cannot be read", .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The manifest is wrong.
    #[error("manifest \"{}\": {}", .path.display(), .faults.join("\n  "))]
    Faults {
        /// Which file.
        path: PathBuf,
        /// All that is wrong.
        faults: Vec<String>,
    },
    /// No pipeline of the manifest writes the table.
    #[error("manifest \"{}\" writes no table \"{table}\"; it writes {written}", .path.display())]
    OtherTable {
        /// Which file.
        path: PathBuf,
        /// The table asked for.
        table: worker::TableName,
        /// The tables in it.
        written: String,
    },
    /// The credential is not there.
    #[error(transparent)]
    Secret(#[from] secret::Error),
}

impl CatalogArguments {
    /// The catalog for a table. The manifest wins over the rest.
    pub(super) fn resolve(&self, table: &worker::TableName) -> Result<Catalog, Error> {
        if let Some(path) = &self.file {
            return from_manifest(path.clone(), table);
        }
        let uri = self.catalog_uri.clone().ok_or(Error::None)?;
        let kind = match self.catalog_type {
            Some(Protocol::Rest) => worker::CatalogKind::Rest,
            Some(Protocol::Sql) => worker::CatalogKind::Sql,
            None => protocol_of(&uri)?,
        };
        let settings = worker::Catalog {
            kind,
            name: self.catalog_name.clone(),
            uri,
            warehouse: self.warehouse.clone(),
            properties: self.properties.iter().cloned().collect::<BTreeMap<_, _>>(),
            credential_ref: None,
            ca_ref: None,
            storage: Some(worker::Storage {
                endpoint: self.s3_endpoint.clone(),
                region: self.s3_region.clone(),
                path_style_access: self.s3_path_style,
                ..worker::Storage::default()
            }),
        };
        let credential = std::env::var(CREDENTIAL_VARIABLE).ok().map(Secret::new);
        let authorities = self.ca_file.clone();
        Ok(Catalog {
            settings,
            credential,
            authorities: authorities.map(|path| Authorities::of_file("--ca-file", path)),
        })
    }
}

fn protocol_of(uri: &str) -> Result<worker::CatalogKind, Error> {
    match uri.split(':').next() {
        Some("http" | "https") => Ok(worker::CatalogKind::Rest),
        Some("sqlite" | "postgres" | "postgresql") => Ok(worker::CatalogKind::Sql),
        _ => Err(Error::Protocol {
            uri: uri.to_owned(),
        }),
    }
}

fn from_manifest(path: PathBuf, table: &worker::TableName) -> Result<Catalog, Error> {
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(Error::File { path, source }),
    };
    let loaded = match api::load_manifests(&text) {
        Ok(loaded) => loaded,
        Err(faults) => {
            let faults = faults.iter().map(ToString::to_string).collect();
            return Err(Error::Faults { path, faults });
        }
    };
    let mut sinks = loaded.into_iter().map(|(_, spec)| spec.sink);
    let mut written = Vec::new();
    let Some(sink) = sinks.find(|sink| {
        sink.table == *table || {
            written.push(sink.table.to_string());
            false
        }
    }) else {
        let written = if written.is_empty() {
            "none".to_owned()
        } else {
            written.join(", ")
        };
        return Err(Error::OtherTable {
            path,
            table: table.clone(),
            written,
        });
    };
    let credential = sink.catalog.credential_ref.as_ref();
    let credential = credential
        .map(|reference| Secrets::from_environment().read(reference))
        .transpose()?;
    Ok(Catalog {
        settings: sink.catalog,
        credential,
        authorities: None,
    })
}

fn property(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or_else(|| format!("\"{text}\" is no NAME=VALUE"))?;
    match name {
        // Seen by everyone on the machine, as every argument.
        "s3.access-key-id" | "s3.secret-access-key" | "s3.session-token" => {
            let variable = name.trim_start_matches("s3.").replace('-', "_");
            let variable = variable.to_ascii_uppercase();
            return Err(format!(
                "\"{name}\" is a secret: set the variable AWS_{variable}"
            ));
        }
        "s3.endpoint" => return Err(format!("\"{name}\": write --s3-endpoint")),
        "s3.region" | "client.region" => return Err(format!("\"{name}\": write --s3-region")),
        "s3.path-style-access" => return Err(format!("\"{name}\": write --s3-path-style")),
        _ => {}
    }
    Ok((name.to_owned(), value.to_owned()))
}
