//! From an effective specification to an open table, a source to ask, and everything between them.
//!
//! Only translation and opening: nothing is read and nothing committed here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use iceberg::TableIdent;
use iceberg::spec::{ListType, NestedField, PrimitiveType, StructType, Transform, Type};
use iceberg::table::Table;

use super::Error;
use crate::api::worker::{
    self, CatalogKind as ApiCatalogKind, EventTime, Format, StartFrom as ApiStartFrom,
    TransformKind,
};
use crate::api::{EffectiveSpec, Reason};
use crate::cdc::{
    self, Debezium, Decoder, Encoding, EventTimeFrom, KeyValue, Kind, RowSchema, RowSettings,
    TiCdc, metadata_columns,
};
use crate::kafka::{Security, Settings, StartFrom, Topics};
use crate::lake::catalog::CatalogSettings;
use crate::lake::maintain::MaintainSettings;
use crate::lake::table::{Column, Partitioning, TableSpec};
use crate::lake::writer::arrow_schema;
use crate::process::clock::length;
use crate::process::secret::{self, Secrets};
use crate::watermark::Policy;

/// The finalization that a specification asks for, at revision 0: the table's revision is found when it is loaded.
///
/// # Errors
/// The length of a cell does not divide a day, or a number is none that a manifest can bring about.
pub(super) fn policy(spec: &EffectiveSpec) -> Result<Policy, Error> {
    let refused = |problem: String| Error::refused(Reason::SpecInvalid, problem);
    let out_of_bounds: Vec<String> = spec
        .out_of_bounds()
        .iter()
        .map(ToString::to_string)
        .collect();
    if !out_of_bounds.is_empty() {
        return Err(refused(out_of_bounds.join("; ")));
    }
    spec.policy()
        .map_err(|error| refused(format!("finalization.cellUs: {error}")))
}

/// What the clients of the source are made from; reads its secrets.
///
/// # Errors
/// One of them is not there.
pub(super) fn kafka_settings(spec: &EffectiveSpec, worker: &str) -> Result<Settings, Error> {
    let security = Security::read(spec.source.security.as_ref(), &Secrets::from_environment());
    Ok(Settings {
        security: security
            .map_err(|error| Error::refused(Reason::SecretMissing, error.to_string()))?,
        bootstrap_servers: spec.source.bootstrap_servers.clone(),
        group_id: spec.source.group_id.clone(),
        member: format!("{}.{}-{worker}", spec.namespace, spec.name),
        properties: spec.source.properties.clone(),
        memory_budget_bytes: spec.worker.memory_budget_bytes,
    })
}

/// The topics of a specification.
#[must_use]
pub(super) fn topics(spec: &EffectiveSpec) -> Topics {
    match &spec.source.topics {
        worker::Topics::List(names) => Topics::List(names.clone()),
        worker::Topics::Pattern(pattern) => Topics::Pattern(pattern.clone()),
    }
}

/// The topics as one text, to tell a changed specification from a changed cluster.
#[must_use]
pub(super) fn subscription(spec: &EffectiveSpec) -> String {
    match &spec.source.topics {
        worker::Topics::List(names) => names.join(","),
        worker::Topics::Pattern(pattern) => format!("^{pattern}$"),
    }
}

/// Where the first commit anchors.
#[must_use]
pub(super) fn start_from(spec: &EffectiveSpec) -> StartFrom {
    match spec.source.start_from {
        ApiStartFrom::Earliest => StartFrom::Earliest,
        ApiStartFrom::Latest => StartFrom::Latest,
        ApiStartFrom::Timestamp(us) => StartFrom::Timestamp(us),
    }
}

/// How the catalog and its store are reached; reads their secrets.
///
/// # Errors
/// One of them is not there.
pub(super) fn catalog_settings(catalog: &worker::Catalog) -> Result<CatalogSettings, Error> {
    let secrets = Secrets::from_environment();
    let reference = catalog.credential_ref.as_ref();
    let credential = reference
        .map(|reference| secrets.read(reference))
        .transpose();
    let missing = |error: secret::Error| Error::refused(Reason::SecretMissing, error.to_string());
    if let Some(reference) = &catalog.ca_ref {
        secrets.read(reference).map_err(missing)?;
    }
    let settings = CatalogSettings::of(catalog, credential.map_err(missing)?);
    settings.storage.check().map_err(missing)?;
    Ok(settings)
}

/// The table's name in the catalog.
///
/// # Errors
/// It is none.
pub(super) fn table_ident(spec: &EffectiveSpec) -> Result<TableIdent, Error> {
    let name = &spec.sink.table;
    let parts = name.namespace.iter().chain([&name.name]);
    TableIdent::from_strs(parts)
        .map_err(|error| Error::refused(Reason::SpecInvalid, format!("sink.table: {error}")))
}

/// What the table has to look like.
#[must_use]
pub(super) fn table_spec(spec: &EffectiveSpec) -> TableSpec {
    let prefix = &spec.sink.metadata_prefix;
    TableSpec {
        columns: spec
            .sink
            .schema
            .as_ref()
            .map(|columns| columns.iter().map(source_column).collect()),
        metadata_columns: metadata_columns(prefix)
            .iter()
            .map(metadata_column)
            .collect(),
        partitioning: partitioning(spec),
        properties: BTreeMap::new(),
        location: None,
    }
}

fn source_column(column: &worker::Column) -> Column {
    let column_type = Type::Primitive(primitive(column.data_type));
    if column.key {
        Column::key(&column.name, column_type)
    } else {
        Column::optional(&column.name, column_type)
    }
}

fn primitive(column: worker::ColumnType) -> PrimitiveType {
    use worker::ColumnType as C;
    match column {
        C::Boolean => PrimitiveType::Boolean,
        C::Int => PrimitiveType::Int,
        C::Long => PrimitiveType::Long,
        C::Float => PrimitiveType::Float,
        C::Double => PrimitiveType::Double,
        C::Decimal(precision, scale) => PrimitiveType::Decimal {
            precision: precision.into(),
            scale: scale.into(),
        },
        C::Date => PrimitiveType::Date,
        C::Time => PrimitiveType::Time,
        C::Timestamp => PrimitiveType::Timestamp,
        C::TimestampTz => PrimitiveType::Timestamptz,
        C::String => PrimitiveType::String,
        C::Uuid => PrimitiveType::Uuid,
        C::Binary => PrimitiveType::Binary,
    }
}

fn metadata_column(column: &cdc::Column) -> Column {
    Column {
        name: column.name.clone(),
        column_type: iceberg_type(&column.kind),
        required: column.required,
        key: false,
        doc: Some(column.doc.to_owned()),
    }
}

/// The Iceberg type of a metadata column. Field ids inside it are drawn anew when the table is made.
fn iceberg_type(kind: &Kind) -> Type {
    let primitive = match kind {
        Kind::Boolean => PrimitiveType::Boolean,
        Kind::Int => PrimitiveType::Int,
        Kind::Long => PrimitiveType::Long,
        Kind::Float => PrimitiveType::Float,
        Kind::Double => PrimitiveType::Double,
        Kind::Decimal { precision, scale } => PrimitiveType::Decimal {
            precision: (*precision).into(),
            scale: (*scale).into(),
        },
        Kind::Date => PrimitiveType::Date,
        Kind::Time => PrimitiveType::Time,
        Kind::Timestamp => PrimitiveType::Timestamp,
        Kind::Timestamptz => PrimitiveType::Timestamptz,
        Kind::String => PrimitiveType::String,
        Kind::Binary => PrimitiveType::Binary,
        Kind::Uuid => PrimitiveType::Uuid,
        Kind::List(element) => {
            let element =
                NestedField::list_element(0, iceberg_type(&element.kind), element.required);
            return Type::List(ListType::new(element.into()));
        }
        Kind::Struct(fields) => {
            let field = |(id, field): (i32, &cdc::Column)| {
                let field_type = iceberg_type(&field.kind);
                let made = NestedField::new(id, &field.name, field_type, field.required)
                    .with_doc(field.doc);
                made.into()
            };
            return Type::Struct(StructType::new((0..).zip(fields).map(field).collect()));
        }
    };
    Type::Primitive(primitive)
}

fn partitioning(spec: &EffectiveSpec) -> Partitioning {
    let event_time = cdc::Metadata::EventTime
        .column(&spec.sink.metadata_prefix)
        .name;
    match spec.sink.partitioning.as_slice() {
        [] => Partitioning::None,
        [one] if one.transform == TransformKind::Hour && one.column == event_time => {
            Partitioning::Hour(event_time)
        }
        many => Partitioning::Transforms(
            many.iter()
                .map(|field| (field.column.clone(), transform(field.transform)))
                .collect(),
        ),
    }
}

fn transform(kind: TransformKind) -> Transform {
    match kind {
        TransformKind::Identity => Transform::Identity,
        TransformKind::Year => Transform::Year,
        TransformKind::Month => Transform::Month,
        TransformKind::Day => Transform::Day,
        TransformKind::Hour => Transform::Hour,
        TransformKind::Bucket(buckets) => Transform::Bucket(buckets),
        TransformKind::Truncate(width) => Transform::Truncate(width),
    }
}

/// What is kept of the table's history.
#[must_use]
pub(super) fn maintain_settings(spec: &EffectiveSpec) -> Option<MaintainSettings> {
    let expire = &spec.sink.expire;
    expire.enabled.then(|| MaintainSettings {
        snapshot_age: length(expire.keep_us),
        snapshots: expire.keep_snapshots as usize,
        grace: length(expire.grace_us),
        metadata_files: spec.sink.catalog.kind == ApiCatalogKind::Sql,
        ..MaintainSettings::default()
    })
}

/// The schema of rows on a table, and a decoder for them.
///
/// # Errors
/// The table cannot take the rows of the pipeline.
pub(super) fn decoder(
    spec: &EffectiveSpec,
    table: &Table,
) -> Result<(Arc<RowSchema>, Box<dyn Decoder>), Error> {
    let schema = table.metadata().current_schema();
    let key: Vec<String> = schema
        .identifier_field_ids()
        .filter_map(|id| schema.name_by_field_id(id))
        .map(str::to_owned)
        .collect();
    let columns = spec.sink.schema.iter().flatten();
    let mut encodings: BTreeMap<String, Encoding> = columns
        .filter_map(|column| {
            Some((
                column.name.clone(),
                encoding(column.encoding?, column.data_type),
            ))
        })
        .collect();
    let arrow = arrow_schema(table)?;
    // Of columns that the manifest does not name: bytes in the wrong alphabet could be read as others.
    let usual = worker::Encoding::usual(spec.source.format, worker::ColumnType::Binary);
    for field in arrow.fields() {
        if let (Some(Kind::Binary), Some(usual)) = (Kind::of(field.data_type()), usual) {
            let usual = encoding(usual, worker::ColumnType::Binary);
            encodings.entry(field.name().clone()).or_insert(usual);
        }
    }
    let settings = RowSettings {
        metadata_prefix: &spec.sink.metadata_prefix,
        key: &key,
        encodings: Some(&encodings),
    };
    let refused =
        |fault: cdc::SchemaFault| Error::refused(Reason::SchemaMismatch, fault.to_string());
    let rows = RowSchema::new(arrow, settings).map_err(refused)?;
    let event_time = match &spec.event_time {
        EventTime::SourceCommit => EventTimeFrom::SourceCommit,
        EventTime::Column { name, .. } => EventTimeFrom::Column(name.clone()),
        EventTime::Header { name } => EventTimeFrom::Header(name.clone()),
        EventTime::RecordTimestamp => EventTimeFrom::RecordTimestamp,
    };
    let decoder: Box<dyn Decoder> = match spec.source.format {
        Format::DebeziumJson => Box::new(Debezium::new(&rows, event_time)),
        Format::TicdcDebeziumJson => Box::new(Debezium::of_ticdc(&rows, event_time)),
        Format::TicdcSimpleJson => Box::new(TiCdc::simple(&rows, event_time)),
        Format::CanalJson => Box::new(TiCdc::canal_json(&rows, event_time)),
        Format::Json => Box::new(KeyValue::new(&rows, event_time).map_err(refused)?),
    };
    Ok((rows, decoder))
}

/// Whether only created rows have a say.
#[must_use]
pub(super) fn creates_only(spec: &EffectiveSpec) -> bool {
    matches!(
        spec.event_time,
        EventTime::Column {
            creates_only: true,
            ..
        }
    )
}

fn encoding(encoding: worker::Encoding, data_type: worker::ColumnType) -> Encoding {
    use worker::Encoding as E;
    match encoding {
        E::Days => Encoding::Days,
        E::Seconds => Encoding::Seconds,
        E::Millis => Encoding::Millis,
        E::Micros => Encoding::Micros,
        E::Nanos => Encoding::Nanos,
        E::Iso => Encoding::Iso,
        E::Plain if matches!(data_type, worker::ColumnType::Decimal(..)) => Encoding::Text,
        E::Plain => Encoding::Plain,
        E::Base64 => Encoding::Base64,
        E::Hex => Encoding::Hex,
        E::Latin1 => Encoding::Latin1,
    }
}

/// The commit interval.
#[must_use]
pub(super) fn commit_interval(spec: &EffectiveSpec) -> Duration {
    length(spec.sink.commit_interval_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::load_manifests;

    /// A folder of specifications is written by programs and, in need, by people.
    #[test]
    fn numbers_that_no_manifest_brings_about_are_all_refused_at_once() {
        let text = r"
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {name: orders, namespace: shop}
spec:
  source:
    kafka: {bootstrapServers: 'kafka:9092', topics: [shop.shop.orders]}
    format: DebeziumJson
  sink:
    catalog: {type: Rest, uri: 'http://catalog:8181'}
    table: shop.orders
";
        let mut spec = load_manifests(text).unwrap().remove(0).1;
        assert!(policy(&spec).is_ok());
        spec.worker.replicas = 0;
        spec.finalization.max_delay_us = -1;
        let error = policy(&spec).expect_err("two numbers are wrong");
        assert_eq!(error.reason(), Reason::SpecInvalid);
        for told in [
            "finalization.maxDelayUs: -1 is out of bounds; write a number from 0 to 604800000000",
            "worker.replicas: 0 is out of bounds; write a number from 1 to 64",
        ] {
            assert!(error.to_string().contains(told), "{told}: {error}");
        }
    }
}
