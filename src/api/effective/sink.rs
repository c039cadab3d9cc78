//! The rules of `spec.sink`: catalog, columns and their encodings, partitioning.
//!
//! A unit that cannot be told from the type has to be said: a wrong guess would be wrong in every row.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::{Broken, DAY_US, HOUR_US, MINUTE_US, Rules, SECOND_US, is_secret};
use crate::api::{
    pipeline::{CatalogSpec, ColumnSpec, ExpireSpec, SinkSpec, StorageSpec},
    worker::{
        Catalog, CatalogKind, Column, ColumnType, Encoding, Expire, Format, OnRollback, Sink,
        SinkAccept, Storage, TableName, Transform, TransformKind,
    },
};

/// The names of the metadata columns, behind their prefix.
pub const METADATA_COLUMNS: [&str; 10] = [
    "op",
    "event_time",
    "event_time_raw",
    "position",
    "replay",
    "unavailable",
    "topic",
    "partition",
    "offset",
    "ingested_at",
];

impl Rules {
    pub(super) fn sink(&mut self, spec: &SinkSpec, format: Format) -> Sink {
        let metadata_prefix = spec.metadata_prefix.clone().unwrap_or_default();
        if !metadata_prefix.ends_with('_') {
            let remedy = "end it with _, as _cdc_";
            self.refuse(
                "spec.sink.metadataPrefix",
                &metadata_prefix,
                "does not end with _",
                remedy,
            );
        }
        let schema = spec
            .schema
            .as_ref()
            .map(|columns| self.columns(columns, format));
        let table = spec.table.parse();
        if table.is_err() {
            self.refuse(
                "spec.sink.table",
                &spec.table,
                "names no table",
                "write namespace.table",
            );
        }
        let interval = spec
            .commit
            .as_ref()
            .and_then(|commit| commit.interval.as_ref());
        let commit_interval_us =
            self.length_us("spec.sink.commit.interval", interval, [SECOND_US, HOUR_US]);
        let accept = spec.accept.clone();
        let sink = Sink {
            catalog: self.catalog(&spec.catalog),
            table: table.unwrap_or(TableName {
                namespace: Vec::new(),
                name: String::new(),
            }),
            known_table: None,
            partitioning: self.partitioning(spec, &metadata_prefix),
            commit_interval_us: commit_interval_us.unwrap_or_default(),
            shared: spec.shared.unwrap_or_default(),
            expire: self.expire(&spec.expire.clone().unwrap_or_default()),
            accept: accept.map_or_else(SinkAccept::default, |accept| SinkAccept {
                table_uuid: accept.table_uuid,
                installation: accept.installation,
                lineage: accept.lineage,
            }),
            on_rollback: spec.on_rollback.unwrap_or(OnRollback::Replay),
            schema,
            metadata_prefix,
            also_write: BTreeSet::new(),
        };
        self.names(&sink);
        let keyless = |columns: &Vec<Column>| !columns.iter().any(|column| column.key);
        if format == Format::Json && sink.schema.as_ref().is_some_and(keyless) {
            let pair = ["spec.sink.schema", "spec.source.format"];
            let remedy = "with Json mark the columns of the record's key with key: true";
            self.refuse_pair(pair, "do not go together", remedy);
        }
        sink
    }

    fn expire(&mut self, spec: &ExpireSpec) -> Expire {
        let keep_us = self.length_us(
            "spec.sink.expire.keep",
            spec.keep.as_ref(),
            [MINUTE_US, 30 * DAY_US],
        );
        let grace_us = self.length_us(
            "spec.sink.expire.grace",
            spec.grace.as_ref(),
            [0, 7 * DAY_US],
        );
        Expire {
            enabled: spec.enabled.unwrap_or_default(),
            keep_us: keep_us.unwrap_or_default(),
            keep_snapshots: spec.keep_snapshots.unwrap_or_default(),
            grace_us: grace_us.unwrap_or_default(),
        }
    }

    /// No column may be named like another one or like a metadata column.
    fn names(&mut self, sink: &Sink) {
        let mut seen = BTreeSet::new();
        for (index, column) in sink.schema.iter().flatten().enumerate() {
            let path = format!("spec.sink.schema[{index}].name");
            // Engines compare names of columns without case.
            let lower = column.name.to_lowercase();
            if lower.starts_with(&sink.metadata_prefix.to_lowercase()) {
                let pair = [path.as_str(), "spec.sink.metadataPrefix"];
                self.refuse_pair(
                    pair,
                    "begin alike",
                    "take another metadataPrefix: the metadata columns begin with it",
                );
            }
            if !seen.insert(lower) {
                self.refuse(
                    &path,
                    &column.name,
                    "stands twice",
                    "name each column once, upper and lower case being one",
                );
            }
        }
    }

    fn columns(&mut self, columns: &[ColumnSpec], format: Format) -> Vec<Column> {
        let resolved = columns.iter().enumerate().map(|(index, column)| {
            let path = format!("spec.sink.schema[{index}]");
            let data_type = match ColumnType::try_from(column.data_type.clone()) {
                Ok(data_type) => data_type,
                Err(error) => {
                    let remedy = error.to_string();
                    self.refuse(
                        &format!("{path}.type"),
                        &column.data_type,
                        "is no type",
                        remedy,
                    );
                    ColumnType::String
                }
            };
            Column {
                name: column.name.clone(),
                data_type,
                key: column.key.unwrap_or_default(),
                encoding: self.encoding(&path, column, (data_type, format)),
            }
        });
        resolved.collect()
    }

    fn encoding(
        &mut self,
        path: &str,
        column: &ColumnSpec,
        (data_type, format): (ColumnType, Format),
    ) -> Option<Encoding> {
        let path = format!("{path}.encoding");
        if let Some(encoding) = column.encoding {
            if !is_encoding_of(encoding, data_type) {
                let problem = format!("is no encoding of type {data_type}");
                self.refuse(&path, encoding.into(), &problem, encodings_of(data_type));
            }
            return Some(encoding);
        }
        let usual = Encoding::usual(format, data_type);
        if usual.is_none()
            && ALL_ENCODINGS
                .iter()
                .any(|encoding| is_encoding_of(*encoding, data_type))
        {
            let problem = format!("is missing for type {data_type}");
            let remedy = match format {
                Format::CanalJson => {
                    "write Iso where TiCDC runs with --tz=UTC, or take the type timestamp: its messages do not name the zone of a TIMESTAMP"
                }
                _ => {
                    "write Millis (MySQL DATETIME up to 3 digits) or Micros (more digits, MySQL TIME, PostgreSQL): a wrong guess would be a factor of 1000"
                }
            };
            self.broken.push(Broken::new(&path, None, problem, remedy));
        }
        usual
    }

    fn catalog(&mut self, spec: &CatalogSpec) -> Catalog {
        if spec.kind == CatalogKind::Sql && spec.warehouse.is_none() {
            let pair = ["spec.sink.catalog.type", "spec.sink.catalog.warehouse"];
            self.refuse_pair(
                pair,
                "do not go together",
                "type: Sql needs a warehouse, as file:///var/lake",
            );
        }
        let schemes: &[&str] = match spec.kind {
            CatalogKind::Rest => &["http://", "https://"],
            CatalogKind::Sql => &["sqlite:", "postgres://", "postgresql://"],
        };
        let path = "spec.sink.catalog.uri";
        if holds_password(&spec.uri) {
            // The value is not shown.
            self.broken.push(Broken::new(
                path,
                None,
                "holds a password",
                "move it to sink.catalog.credentialRef",
            ));
        } else if !schemes.iter().any(|scheme| spec.uri.starts_with(scheme)) {
            let remedy = format!(
                "with type: {} it begins with {}",
                spec.kind,
                schemes.join(" or ")
            );
            self.refuse(path, &spec.uri, "is no address of such a catalog", remedy);
        }
        if spec.ca_ref.is_some() && !spec.uri.starts_with("https://") {
            let remedy = "nothing is trusted but over https://: write it so, or leave caRef out";
            self.refuse_pair(
                ["spec.sink.catalog.caRef", path],
                "do not go together",
                remedy,
            );
        }
        for name in spec.properties.iter().flat_map(BTreeMap::keys) {
            if let Some(remedy) = catalog_property_remedy(name) {
                let path = format!("spec.sink.catalog.properties[{name}]");
                // The value is not shown: it may be a secret.
                self.broken
                    .push(Broken::new(&path, None, "may not be set", remedy));
            }
        }
        Catalog {
            kind: spec.kind,
            name: spec.name.clone().unwrap_or_default(),
            uri: spec.uri.clone(),
            warehouse: spec.warehouse.clone(),
            properties: spec.properties.clone().unwrap_or_default(),
            credential_ref: spec.credential_ref.clone(),
            ca_ref: spec.ca_ref.clone(),
            storage: spec.storage.as_ref().map(|storage| self.storage(storage)),
        }
    }

    fn storage(&mut self, spec: &StorageSpec) -> Storage {
        let path = |field: &str| format!("spec.sink.catalog.storage.{field}");
        let [id, secret, token] =
            ["accessKeyIdRef", "secretAccessKeyRef", "sessionTokenRef"].map(path);
        if spec.access_key_id_ref.is_some() != spec.secret_access_key_ref.is_some() {
            let remedy = "name the secrets of both, or of neither";
            self.refuse_pair([&id, &secret], "do not go together", remedy);
        }
        if spec.session_token_ref.is_some() && spec.access_key_id_ref.is_none() {
            let remedy = "a token goes with its key: name the secrets of all three";
            self.refuse_pair([&token, &id], "do not go together", remedy);
        }
        let plain = |endpoint: &String| !endpoint.starts_with("https://");
        if spec.ca_ref.is_some() && spec.endpoint.as_ref().is_some_and(plain) {
            let remedy = "nothing is trusted over http://: write https://, or leave caRef out";
            self.refuse_pair(
                [&path("caRef"), &path("endpoint")],
                "do not go together",
                remedy,
            );
        }
        Storage {
            endpoint: spec.endpoint.clone(),
            region: spec.region.clone(),
            path_style_access: spec.path_style_access.unwrap_or_default(),
            access_key_id_ref: spec.access_key_id_ref.clone(),
            secret_access_key_ref: spec.secret_access_key_ref.clone(),
            session_token_ref: spec.session_token_ref.clone(),
            ca_ref: spec.ca_ref.clone(),
        }
    }

    fn partitioning(&mut self, spec: &SinkSpec, prefix: &str) -> Vec<Transform> {
        let path = "spec.sink.partitioning";
        let text = spec.partitioning.as_deref().unwrap_or_default();
        let event_time = format!("{prefix}event_time");
        match text {
            "None" => return Vec::new(),
            "Hour" => {
                return vec![Transform {
                    column: event_time,
                    transform: TransformKind::Hour,
                }];
            }
            _ => {}
        }
        let Some(transforms) = parse_transforms(text) else {
            let remedy = format!(
                "write Hour, None or transforms, as day({event_time}), bucket(16, customer)"
            );
            self.refuse(path, text, "is no partitioning", remedy);
            return Vec::new();
        };
        for transform in &transforms {
            let name = transform.column.as_str();
            let metadata = name
                .strip_prefix(prefix)
                .is_some_and(|rest| METADATA_COLUMNS.contains(&rest));
            let own = spec
                .schema
                .as_ref()
                .is_none_or(|columns| columns.iter().any(|column| column.name == name));
            if !metadata && !own {
                let problem = format!("names \"{name}\", which is no column");
                self.refuse(
                    path,
                    text,
                    &problem,
                    "name a column of sink.schema or a metadata column",
                );
            }
        }
        transforms
    }
}

/// What to do instead of setting an option of a catalog: secrets stand in no manifest, and what has a field has no other name.
#[must_use]
pub fn catalog_property_remedy(name: &str) -> Option<&'static str> {
    // Names of headers are told apart by no case.
    let lower = name.to_ascii_lowercase();
    Some(match lower.as_str() {
        "s3.access-key-id" | "client.access-key-id" => {
            "name its secret in sink.catalog.storage.accessKeyIdRef"
        }
        "s3.secret-access-key" | "client.secret-access-key" => {
            "a secret never stands in a manifest: name it in sink.catalog.storage.secretAccessKeyRef"
        }
        "s3.session-token" | "client.session-token" => {
            "a secret never stands in a manifest: name it in sink.catalog.storage.sessionTokenRef"
        }
        "s3.endpoint" => "set sink.catalog.storage.endpoint",
        "s3.region" | "client.region" => "set sink.catalog.storage.region",
        "s3.path-style-access" => "set sink.catalog.storage.pathStyleAccess",
        other if other.starts_with("s3.sse.") => {
            "set the encryption of the bucket itself: it holds for every writer"
        }
        other if other.starts_with("s3.") || other.starts_with("client.") => {
            "sink.catalog.storage says how a store is reached; it has no such field"
        }
        "header.authorization" => {
            "a secret never stands in a manifest: use sink.catalog.credentialRef"
        }
        other if is_secret(other) => {
            "a secret never stands in a manifest: use sink.catalog.credentialRef"
        }
        _ => return None,
    })
}

/// Whether an address is of the form `scheme://user:password@host`.
fn holds_password(uri: &str) -> bool {
    let authority = uri.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    authority
        .rsplit_once('@')
        .is_some_and(|(user, _)| user.contains(':'))
}

/// `day(a), bucket(16, b)`; a name alone is the identity.
pub(super) fn parse_transforms(text: &str) -> Option<Vec<Transform>> {
    let call = Regex::new(
        r"^\s*(?:(\w+)\(\s*(?:(\d{1,9})\s*,\s*)?([^(),\s]+)\s*\)|([^(),\s]+))\s*(?:,|$)",
    )
    .expect("the expression is a constant");
    let mut rest = text;
    let mut transforms = Vec::new();
    while !rest.is_empty() {
        let found = call.captures(rest)?;
        let number = found.get(2).and_then(|number| number.as_str().parse().ok());
        let transform = match (
            found.get(1).map_or("identity", |name| name.as_str()),
            number,
        ) {
            ("identity", None) => TransformKind::Identity,
            ("year", None) => TransformKind::Year,
            ("month", None) => TransformKind::Month,
            ("day", None) => TransformKind::Day,
            ("hour", None) => TransformKind::Hour,
            ("bucket", Some(count)) if count > 0 => TransformKind::Bucket(count),
            ("truncate", Some(width)) if width > 0 => TransformKind::Truncate(width),
            _ => return None,
        };
        let column = found.get(3).or(found.get(4))?.as_str().to_owned();
        transforms.push(Transform { column, transform });
        rest = &rest[found[0].len()..];
    }
    (!transforms.is_empty()).then_some(transforms)
}

const ALL_ENCODINGS: [Encoding; 10] = [
    Encoding::Days,
    Encoding::Seconds,
    Encoding::Millis,
    Encoding::Micros,
    Encoding::Nanos,
    Encoding::Iso,
    Encoding::Plain,
    Encoding::Base64,
    Encoding::Hex,
    Encoding::Latin1,
];

pub(super) fn is_encoding_of(encoding: Encoding, data_type: ColumnType) -> bool {
    match data_type {
        ColumnType::Date => matches!(encoding, Encoding::Days | Encoding::Iso),
        ColumnType::Time | ColumnType::Timestamp | ColumnType::TimestampTz => matches!(
            encoding,
            Encoding::Seconds
                | Encoding::Millis
                | Encoding::Micros
                | Encoding::Nanos
                | Encoding::Iso
        ),
        ColumnType::Decimal(..) => matches!(encoding, Encoding::Plain | Encoding::Base64),
        ColumnType::Binary => matches!(
            encoding,
            Encoding::Base64 | Encoding::Hex | Encoding::Latin1
        ),
        _ => false,
    }
}

fn encodings_of(data_type: ColumnType) -> String {
    let fitting = ALL_ENCODINGS
        .into_iter()
        .filter(|encoding| is_encoding_of(*encoding, data_type));
    let fitting: Vec<&str> = fitting.map(Into::into).collect();
    if fitting.is_empty() {
        "remove it".to_owned()
    } else {
        format!("write one of {}", fitting.join(", "))
    }
}

impl Encoding {
    /// How a value of this type is written where nothing is said; `None` where the type has one way only, and where it has to
    /// be said: for Debezium's `time` and `timestamp`, whose unit depends on the source's column, and for Canal's
    /// `timestamptz`, whose zone depends on the server of TiCDC.
    #[must_use]
    pub fn usual(format: Format, data_type: ColumnType) -> Option<Self> {
        use ColumnType as C;
        use Format as F;
        Some(match (format, data_type) {
            (F::CanalJson, C::Binary) => Self::Latin1,
            (F::DebeziumJson, C::Decimal(..)) | (_, C::Binary) => Self::Base64,
            (_, C::Decimal(..)) => Self::Plain,
            (F::DebeziumJson | F::TicdcDebeziumJson, C::Date) => Self::Days,
            (F::TicdcDebeziumJson, C::Time) => Self::Micros,
            (F::CanalJson, C::TimestampTz)
            | (F::DebeziumJson, C::Time)
            | (F::DebeziumJson | F::TicdcDebeziumJson, C::Timestamp) => return None,
            (_, C::Date | C::Time | C::Timestamp | C::TimestampTz) => Self::Iso,
            _ => return None,
        })
    }
}
