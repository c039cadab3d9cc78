//! What the change-log table looks like to a decoder: source columns, then metadata columns under one prefix.
//!
//! The metadata columns are defined here once: `lake` makes the Iceberg schema of a new table from them, and `Rows` their arrays.
//! `RowSchema` is made from the table's own Arrow schema, so that a batch carries the table's field ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, SchemaRef};
use strum::IntoEnumIterator as _;

use super::kind::{Column, Kind};

/// What a source writes where JSON alone does not say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum Encoding {
    /// As the kind is usually written: dates as epoch days or ISO text, decimals as text or number, binary as base64; instants
    /// and times of day as ISO text only, since a number does not say its unit.
    #[default]
    Plain,
    /// Seconds since 1970-01-01.
    Seconds,
    /// Milliseconds since 1970-01-01, or since midnight.
    Millis,
    /// Microseconds since 1970-01-01, or since midnight.
    Micros,
    /// Nanoseconds since 1970-01-01, or since midnight.
    Nanos,
    /// ISO 8601 text.
    Iso,
    /// Days since 1970-01-01.
    Days,
    /// A decimal as text or number.
    Text,
    /// Bytes as base64; for a decimal its unscaled value, big endian two's complement (Debezium's `precise`).
    Base64,
    /// Bytes as base64 in the alphabet for URLs.
    Base64Url,
    /// Bytes as hexadecimal digits.
    Hex,
    /// Bytes as text of characters up to U+00FF, one a byte: ISO 8859-1, as Canal writes them.
    Latin1,
}

impl Encoding {
    /// Whether a column of that kind can be written so. Numbers and text may be instants too: as event time.
    fn suits(self, kind: &Kind) -> bool {
        match self {
            Encoding::Plain => true,
            Encoding::Seconds => matches!(
                kind,
                Kind::Timestamp | Kind::Timestamptz | Kind::Int | Kind::Long
            ),
            Encoding::Millis | Encoding::Micros | Encoding::Nanos => {
                matches!(
                    kind,
                    Kind::Timestamp | Kind::Timestamptz | Kind::Time | Kind::Int | Kind::Long
                )
            }
            Encoding::Iso => matches!(
                kind,
                Kind::Timestamp | Kind::Timestamptz | Kind::Time | Kind::Date | Kind::String
            ),
            Encoding::Days => matches!(kind, Kind::Date),
            Encoding::Text => matches!(kind, Kind::Decimal { .. }),
            Encoding::Base64 => matches!(kind, Kind::Decimal { .. } | Kind::Binary),
            Encoding::Base64Url | Encoding::Hex | Encoding::Latin1 => {
                matches!(kind, Kind::Binary)
            }
        }
    }
}

/// One of the columns that are not the source's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumIter)]
pub enum Metadata {
    /// What happened.
    Op,
    /// When it happened.
    EventTime,
    /// What came in place of a usable event time.
    EventTimeRaw,
    /// Where it stands in the source's own order.
    Position,
    /// Whether it had come before.
    Replay,
    /// Columns that the source left out.
    Unavailable,
    /// Kafka topic.
    Topic,
    /// Kafka partition.
    Partition,
    /// Kafka offset.
    Offset,
    /// When the worker read it.
    IngestedAt,
}

impl Metadata {
    /// Name, type and meaning of the column under `prefix`.
    #[must_use]
    pub fn column(self, prefix: &str) -> Column {
        let column = |name: &str, kind, required, doc| {
            Column::new(format!("{prefix}{name}"), kind, required, doc)
        };
        match self {
            Metadata::Op => column(
                "op",
                Kind::String,
                true,
                "c created, u updated, d deleted, r read by a snapshot, t table truncated",
            ),
            Metadata::EventTime => column(
                "event_time",
                Kind::Timestamptz,
                false,
                "when the change happened; null when missing or outside 1990-2200",
            ),
            Metadata::EventTimeRaw => column(
                "event_time_raw",
                Kind::String,
                false,
                "what the source sent where it is no usable event time",
            ),
            Metadata::Position => {
                let parts = vec![
                    Column::new(
                        "incarnation",
                        Kind::String,
                        true,
                        "the source, and how often its order began anew",
                    ),
                    Column::new(
                        "position",
                        Kind::Long,
                        true,
                        "binlog file number and position, log sequence number, commit timestamp, or offset",
                    ),
                    Column::new("sub", Kind::Int, true, "the row within its event"),
                ];
                column(
                    "position",
                    Kind::Struct(parts),
                    false,
                    "orders changes as the source committed them",
                )
            }
            Metadata::Replay => column(
                "replay",
                Kind::Boolean,
                true,
                "whether the source had sent the change before",
            ),
            Metadata::Unavailable => {
                let element = Column::new("element", Kind::String, true, "name of a column");
                column(
                    "unavailable",
                    Kind::List(Box::new(element)),
                    false,
                    "columns that are null because the source left them out",
                )
            }
            Metadata::Topic => column("topic", Kind::String, true, "Kafka topic"),
            Metadata::Partition => column("partition", Kind::Int, true, "Kafka partition"),
            Metadata::Offset => column("offset", Kind::Long, true, "Kafka offset"),
            Metadata::IngestedAt => column(
                "ingested_at",
                Kind::Timestamptz,
                true,
                "when the worker read the record",
            ),
        }
    }
}

/// The columns that every change-log table has behind the source's own, in their order.
#[must_use]
pub fn metadata_columns(prefix: &str) -> Vec<Column> {
    Metadata::iter()
        .map(|metadata| metadata.column(prefix))
        .collect()
}

/// What the table's schema does not say about its rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowSettings<'a> {
    /// What the names of the metadata columns begin with, `_cdc_` usually.
    pub metadata_prefix: &'a str,
    /// The key columns.
    pub key: &'a [String],
    /// How the source writes a column; those left out are `Encoding::Plain`.
    pub encodings: Option<&'a BTreeMap<String, Encoding>>,
}

/// A column that the source fills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceColumn {
    /// Its name, in the table and in the source.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Whether the table refuses null.
    pub required: bool,
    /// How the source writes it.
    pub encoding: Encoding,
    /// Whether it is part of the key.
    pub key: bool,
}

/// Where the array of a table column comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Source(usize),
    Metadata(Metadata),
}

/// The table's schema, made ready for `Rows` and the decoders.
#[derive(Debug)]
pub struct RowSchema {
    arrow: SchemaRef,
    origins: Vec<Origin>,
    columns: Vec<SourceColumn>,
    key: Vec<usize>,
}

/// Why a table cannot take the rows of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
pub enum SchemaFault {
    /// A type that no source column can have.
    #[error(
        "column \"{column}\": the type {data_type} is not supported; drop the column or make it a string"
    )]
    Unsupported {
        /// The column.
        column: String,
        /// Its Arrow type.
        data_type: DataType,
    },
    /// A metadata column is missing or of another type.
    #[error(
        "metadata column \"{column}\" must be there with the type {kind}; choose another metadata prefix or another table"
    )]
    Metadata {
        /// The column.
        column: String,
        /// The type it must have.
        kind: Kind,
    },
    /// A column was named in the settings that the table does not have.
    #[error("column \"{column}\" is not in the table")]
    NoSuchColumn {
        /// The column.
        column: String,
    },
    /// An encoding that says nothing about a type.
    #[error("column \"{column}\": the encoding {encoding} does not apply to the type {kind}")]
    Encoding {
        /// The column.
        column: String,
        /// Its type.
        kind: Kind,
        /// What was declared.
        encoding: Encoding,
    },
    /// The format has no commit time of its own.
    #[error(
        "event time from the source's commit is not in this format; take a column, a header or the record timestamp"
    )]
    NoSourceCommit,
}

impl RowSchema {
    /// Reads the table's schema. Metadata columns are known by prefix and name, every other column is the source's.
    ///
    /// # Errors
    /// The first disagreement between the table, the settings and what rows can hold.
    pub fn new(arrow: SchemaRef, settings: RowSettings<'_>) -> Result<Arc<RowSchema>, SchemaFault> {
        let metadata: Vec<(Metadata, Column)> = Metadata::iter()
            .map(|metadata| (metadata, metadata.column(settings.metadata_prefix)))
            .collect();
        let mut origins = Vec::with_capacity(arrow.fields().len());
        let mut columns = Vec::new();
        for field in arrow.fields() {
            if let Some((which, expected)) = metadata
                .iter()
                .find(|(_, column)| column.name == *field.name())
            {
                if !expected.kind.matches(field.data_type()) {
                    return Err(SchemaFault::Metadata {
                        column: expected.name.clone(),
                        kind: expected.kind.clone(),
                    });
                }
                origins.push(Origin::Metadata(*which));
            } else {
                origins.push(Origin::Source(columns.len()));
                columns.push(source_column(field, settings)?);
            }
        }
        if let Some((_, missing)) = metadata
            .iter()
            .find(|(which, _)| !origins.contains(&Origin::Metadata(*which)))
        {
            return Err(SchemaFault::Metadata {
                column: missing.name.clone(),
                kind: missing.kind.clone(),
            });
        }
        let index = |name: &String| {
            let no_such = || SchemaFault::NoSuchColumn {
                column: name.clone(),
            };
            columns
                .iter()
                .position(|column| column.name == *name)
                .ok_or_else(no_such)
        };
        let key = settings
            .key
            .iter()
            .map(index)
            .collect::<Result<Vec<_>, _>>()?;
        settings
            .encodings
            .into_iter()
            .flatten()
            .try_for_each(|(name, _)| index(name).map(drop))?;
        Ok(Arc::new(RowSchema {
            arrow,
            origins,
            columns,
            key,
        }))
    }

    /// The table's schema, field ids included.
    #[must_use]
    pub fn arrow(&self) -> &SchemaRef {
        &self.arrow
    }

    /// The columns that the source fills.
    #[must_use]
    pub fn columns(&self) -> &[SourceColumn] {
        &self.columns
    }

    /// The key columns, as places in `columns`.
    #[must_use]
    pub fn key(&self) -> &[usize] {
        &self.key
    }

    /// The place of a source column.
    #[must_use]
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    pub(super) fn origins(&self) -> &[Origin] {
        &self.origins
    }
}

fn source_column(field: &Field, settings: RowSettings<'_>) -> Result<SourceColumn, SchemaFault> {
    let name = field.name().clone();
    let Some(kind) = Kind::of(field.data_type()) else {
        return Err(SchemaFault::Unsupported {
            column: name,
            data_type: field.data_type().clone(),
        });
    };
    let encoding = settings
        .encodings
        .and_then(|encodings| encodings.get(&name))
        .copied()
        .unwrap_or_default();
    if !encoding.suits(&kind) {
        return Err(SchemaFault::Encoding {
            column: name,
            kind,
            encoding,
        });
    }
    let key = settings.key.contains(&name);
    Ok(SourceColumn {
        name,
        kind,
        required: !field.is_nullable(),
        encoding,
        key,
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Schema;

    use super::*;

    fn fields(columns: &[Column]) -> Vec<Field> {
        let with_id = |(n, column): (usize, &Column)| {
            let id = [("PARQUET:field_id".to_owned(), (n + 1).to_string())].into();
            Field::new(&column.name, column.kind.data_type(), !column.required).with_metadata(id)
        };
        columns.iter().enumerate().map(with_id).collect()
    }

    fn every_kind() -> Vec<Column> {
        let decimal = Kind::Decimal {
            precision: 12,
            scale: 2,
        };
        let kinds = [
            Kind::Boolean,
            Kind::Int,
            Kind::Long,
            Kind::Float,
            Kind::Double,
            decimal,
            Kind::Date,
            Kind::Time,
            Kind::Timestamp,
            Kind::Timestamptz,
            Kind::String,
            Kind::Binary,
            Kind::Uuid,
        ];
        kinds
            .into_iter()
            .map(|kind| Column::new(kind.to_string(), kind, false, ""))
            .chain(metadata_columns("_cdc_"))
            .collect()
    }

    /// Kinds and Arrow types are two names of one thing.
    #[test]
    fn every_kind_is_found_again_in_its_arrow_type() {
        let columns = every_kind();
        let schema = Arc::new(Schema::new(fields(&columns)));
        let settings = RowSettings {
            metadata_prefix: "_cdc_",
            ..RowSettings::default()
        };
        let rows = RowSchema::new(Arc::clone(&schema), settings).unwrap();
        let kinds: Vec<&Kind> = rows.columns().iter().map(|column| &column.kind).collect();
        assert_eq!(
            kinds,
            columns[..13]
                .iter()
                .map(|column| &column.kind)
                .collect::<Vec<_>>()
        );
        assert_eq!(rows.arrow(), &schema);
    }

    /// Each disagreement is named with its column.
    #[test]
    fn a_table_that_does_not_fit_is_refused() {
        let refused = |columns: &[Column], extra: Option<Field>, settings: RowSettings<'_>| {
            let fields: Vec<Field> = fields(columns).into_iter().chain(extra).collect();
            RowSchema::new(Arc::new(Schema::new(fields)), settings)
                .unwrap_err()
                .to_string()
        };
        let settings = RowSettings {
            metadata_prefix: "_cdc_",
            ..RowSettings::default()
        };
        let columns = every_kind();
        let nested = Field::new(
            "tags",
            DataType::List(Arc::new(Field::new("element", DataType::Utf8, true))),
            true,
        );
        assert!(
            refused(&columns, Some(nested), settings).starts_with("column \"tags\": the type List")
        );
        let prefixed = RowSettings {
            metadata_prefix: "_other_",
            ..settings
        };
        assert!(
            refused(&columns[..13], None, prefixed)
                .starts_with("metadata column \"_other_op\" must be there with the type string")
        );
        let key = ["id".to_owned()];
        assert_eq!(
            refused(
                &columns,
                None,
                RowSettings {
                    key: &key,
                    ..settings
                }
            ),
            "column \"id\" is not in the table"
        );
        let encodings = [("int".to_owned(), Encoding::Base64Url)].into();
        let encoded = RowSettings {
            encodings: Some(&encodings),
            ..settings
        };
        assert_eq!(
            refused(&columns, None, encoded),
            "column \"int\": the encoding base64-url does not apply to the type int"
        );
        let mut wrong = every_kind();
        wrong[16].kind = Kind::String;
        let expected = "metadata column \"_cdc_position\" must be there with the type struct<incarnation: string, position: long, sub: int>";
        assert!(refused(&wrong, None, settings).starts_with(expected));
    }
}
