//! Types of columns, by Iceberg's names and as Arrow has them.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};

/// A column's type, by Iceberg's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Boolean,
    /// 32 bits.
    Int,
    /// 64 bits.
    Long,
    /// IEEE 754, 32 bits.
    Float,
    /// IEEE 754, 64 bits.
    Double,
    /// A fixed number of digits.
    Decimal {
        /// Digits in all, 1 to 38.
        precision: u8,
        /// Digits behind the point, at most `precision`.
        scale: u8,
    },
    /// Days.
    Date,
    /// Time of day, µs.
    Time,
    /// Date and time without a zone, µs.
    Timestamp,
    /// An instant, µs.
    Timestamptz,
    /// UTF-8 text.
    String,
    /// Bytes.
    Binary,
    /// Sixteen bytes.
    Uuid,
    /// Elements of one type; for metadata columns only.
    List(Box<Column>),
    /// Named parts; for metadata columns only.
    Struct(Vec<Column>),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Boolean => f.write_str("boolean"),
            Kind::Int => f.write_str("int"),
            Kind::Long => f.write_str("long"),
            Kind::Float => f.write_str("float"),
            Kind::Double => f.write_str("double"),
            Kind::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Kind::Date => f.write_str("date"),
            Kind::Time => f.write_str("time"),
            Kind::Timestamp => f.write_str("timestamp"),
            Kind::Timestamptz => f.write_str("timestamptz"),
            Kind::String => f.write_str("string"),
            Kind::Binary => f.write_str("binary"),
            Kind::Uuid => f.write_str("uuid"),
            Kind::List(element) => write!(f, "list<{}>", element.kind),
            Kind::Struct(fields) => {
                f.write_str("struct<")?;
                for (n, field) in fields.iter().enumerate() {
                    write!(
                        f,
                        "{}{}: {}",
                        if n > 0 { ", " } else { "" },
                        field.name,
                        field.kind
                    )?;
                }
                f.write_str(">")
            }
        }
    }
}

impl Kind {
    /// The kind of an Arrow type as the catalog client derives it from an Iceberg type; `None` for what a source column cannot be.
    #[must_use]
    pub fn of(data_type: &DataType) -> Option<Kind> {
        Some(match data_type {
            DataType::Boolean => Kind::Boolean,
            DataType::Int32 => Kind::Int,
            DataType::Int64 => Kind::Long,
            DataType::Float32 => Kind::Float,
            DataType::Float64 => Kind::Double,
            DataType::Decimal128(precision @ 1..=38, scale) => Kind::Decimal {
                precision: *precision,
                scale: u8::try_from(*scale)
                    .ok()
                    .filter(|scale| scale <= precision)?,
            },
            DataType::Date32 => Kind::Date,
            DataType::Time64(TimeUnit::Microsecond) => Kind::Time,
            DataType::Timestamp(TimeUnit::Microsecond, None) => Kind::Timestamp,
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Kind::Timestamptz,
            DataType::Utf8 | DataType::LargeUtf8 => Kind::String,
            DataType::Binary | DataType::LargeBinary => Kind::Binary,
            DataType::FixedSizeBinary(16) => Kind::Uuid,
            _ => return None,
        })
    }

    /// The Arrow type, without field ids.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        let field =
            |column: &Column| Field::new(&column.name, column.kind.data_type(), !column.required);
        match self {
            Kind::Boolean => DataType::Boolean,
            Kind::Int => DataType::Int32,
            Kind::Long => DataType::Int64,
            Kind::Float => DataType::Float32,
            Kind::Double => DataType::Float64,
            Kind::Decimal { precision, scale } => {
                DataType::Decimal128(*precision, scale.cast_signed())
            }
            Kind::Date => DataType::Date32,
            Kind::Time => DataType::Time64(TimeUnit::Microsecond),
            Kind::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Kind::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
            Kind::String => DataType::Utf8,
            Kind::Binary => DataType::LargeBinary,
            Kind::Uuid => DataType::FixedSizeBinary(16),
            Kind::List(element) => DataType::List(Arc::new(field(element))),
            Kind::Struct(columns) => DataType::Struct(columns.iter().map(field).collect()),
        }
    }

    /// Whether a column of this kind is what an Arrow field of that type holds.
    pub(super) fn matches(&self, data_type: &DataType) -> bool {
        let fields_match = |columns: &[Column], fields: &Fields| {
            columns.len() == fields.len()
                && columns.iter().zip(fields).all(|(column, field)| {
                    column.name == *field.name() && column.kind.matches(field.data_type())
                })
        };
        match (self, data_type) {
            (Kind::List(element), DataType::List(field)) => element.kind.matches(field.data_type()),
            (Kind::Struct(columns), DataType::Struct(fields)) => fields_match(columns, fields),
            _ => Kind::of(data_type).as_ref() == Some(self),
        }
    }
}

/// A column of the change-log table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Whether every row has a value.
    pub required: bool,
    /// What it says to a reader of the table.
    pub doc: &'static str,
}

impl Column {
    pub(super) fn new(
        name: impl Into<String>,
        kind: Kind,
        required: bool,
        doc: &'static str,
    ) -> Column {
        Column {
            name: name.into(),
            kind,
            required,
            doc,
        }
    }
}
