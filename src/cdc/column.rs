//! The values of one source column: plain vectors, which can be cut back to the last good row.
//!
//! JSON values go in as they were scanned, an Arrow array comes out. A value is converted exactly or refused. A refused value may
//! leave the vectors uneven: the row it belongs to is cut off as a whole.
#![expect(
    clippy::inline_always,
    reason = "the innermost loop: measured, 464 against 530 ns a row"
)]

use std::mem;
use std::num::{IntErrorKind, ParseIntError};
use std::sync::Arc;

use arrow::array::NullBufferBuilder;
use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, Date32Array, Decimal128Array,
    FixedSizeBinaryArray, Float32Array, Float64Array, Int32Array, Int64Array, LargeBinaryArray,
    LargeStringArray, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::DataType;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::Misfit;
use super::decimal::Decimal;
use super::instant::{self, Unit};
use super::kind::Kind;
use super::scan::Number;
use super::schema::{Encoding, SourceColumn};
use super::zoned;

const PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, PADDING);
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, PADDING);
const DAY_US: i64 = 86_400_000_000;

/// The values of one column.
pub(super) struct Values {
    data: Data,
    validity: NullBufferBuilder,
    /// As `validity` counts them, without a call.
    rows: usize,
    required: bool,
}

enum Data {
    Boolean(BooleanBufferBuilder),
    Int(Vec<i32>),
    Long(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Decimal(Vec<i128>, Decimal),
    Date(Vec<i32>),
    Time(Vec<i64>, Option<Unit>),
    Timestamp(Vec<i64>, Option<Unit>),
    String(Bytes),
    Binary(Bytes, Encoding),
    Uuid(Vec<u8>),
}

/// Byte strings end to end; `ends` begins with 0.
struct Bytes {
    data: Vec<u8>,
    ends: Vec<i32>,
}

impl Values {
    pub(super) fn new(column: &SourceColumn, capacity: usize) -> Values {
        let unit = match column.encoding {
            Encoding::Seconds => Some(Unit::Seconds),
            Encoding::Millis => Some(Unit::Millis),
            Encoding::Micros => Some(Unit::Micros),
            Encoding::Nanos => Some(Unit::Nanos),
            _ => None,
        };
        let data = match &column.kind {
            Kind::Boolean => Data::Boolean(BooleanBufferBuilder::new(capacity)),
            Kind::Int => Data::Int(Vec::with_capacity(capacity)),
            Kind::Long => Data::Long(Vec::with_capacity(capacity)),
            Kind::Float => Data::Float(Vec::with_capacity(capacity)),
            Kind::Double => Data::Double(Vec::with_capacity(capacity)),
            Kind::Decimal { precision, scale } => {
                let limit = 10_i128.pow(u32::from(*precision));
                let unscaled = column.encoding == Encoding::Base64;
                Data::Decimal(
                    Vec::with_capacity(capacity),
                    Decimal {
                        scale: *scale,
                        limit,
                        unscaled,
                    },
                )
            }
            Kind::Date => Data::Date(Vec::with_capacity(capacity)),
            Kind::Time => Data::Time(Vec::with_capacity(capacity), unit),
            Kind::Timestamp | Kind::Timestamptz => {
                Data::Timestamp(Vec::with_capacity(capacity), unit)
            }
            Kind::Binary => Data::Binary(Bytes::new(capacity), column.encoding),
            Kind::Uuid => Data::Uuid(Vec::with_capacity(capacity * 16)),
            // Lists and structs are never source columns: `Kind::of` has none.
            Kind::String | Kind::List(_) | Kind::Struct(_) => Data::String(Bytes::new(capacity)),
        };
        Values {
            data,
            validity: NullBufferBuilder::new(capacity),
            rows: 0,
            required: column.required,
        }
    }

    /// Rows with a value or a null.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        match &self.data {
            Data::Boolean(bits) => bits.len() / 8,
            Data::Int(values) | Data::Date(values) => values.len() * 4,
            Data::Long(values) | Data::Time(values, _) | Data::Timestamp(values, _) => {
                values.len() * 8
            }
            Data::Float(values) => values.len() * 4,
            Data::Double(values) => values.len() * 8,
            Data::Decimal(values, _) => values.len() * 16,
            Data::String(bytes) | Data::Binary(bytes, _) => bytes.data.len() + bytes.ends.len() * 4,
            Data::Uuid(bytes) => bytes.len(),
        }
    }

    #[inline(always)]
    fn append_valid(&mut self) {
        self.validity.append_non_null();
        self.rows += 1;
    }

    #[inline]
    pub(super) fn null(&mut self) -> Result<(), Misfit> {
        if self.required {
            return Err(Misfit::Required);
        }
        self.validity.append_null();
        self.rows += 1;
        self.push_empty()
    }

    /// A value in place of a null that the table refuses: zero, or no bytes.
    #[cold]
    pub(super) fn empty(&mut self) -> Result<(), Misfit> {
        self.append_valid();
        self.push_empty()
    }

    /// Whether the table refuses null.
    pub(super) fn is_required(&self) -> bool {
        self.required
    }

    #[inline]
    fn push_empty(&mut self) -> Result<(), Misfit> {
        match &mut self.data {
            Data::Boolean(bits) => bits.append(false),
            Data::Int(values) | Data::Date(values) => values.push(0),
            Data::Long(values) | Data::Time(values, _) | Data::Timestamp(values, _) => {
                values.push(0);
            }
            Data::Float(values) => values.push(0.0),
            Data::Double(values) => values.push(0.0),
            Data::Decimal(values, _) => values.push(0),
            Data::String(bytes) | Data::Binary(bytes, _) => bytes.end()?,
            Data::Uuid(bytes) => bytes.extend_from_slice(&[0; 16]),
        }
        Ok(())
    }

    #[inline]
    pub(super) fn boolean(&mut self, value: bool) -> Result<(), Misfit> {
        match &mut self.data {
            Data::Boolean(bits) => bits.append(value),
            Data::String(bytes) => bytes.push(if value { b"true" } else { b"false" })?,
            _ => return Err(Misfit::Type),
        }
        self.append_valid();
        Ok(())
    }

    /// A number, and how it was written.
    #[inline(always)]
    pub(super) fn number(&mut self, number: Number, written: &[u8]) -> Result<(), Misfit> {
        match number {
            Number::Int(value) => self.int(value, written),
            Number::Float(value) => self.float(value, written),
        }
    }

    #[inline(always)]
    fn int(&mut self, value: i64, written: &[u8]) -> Result<(), Misfit> {
        match &mut self.data {
            Data::Long(values) => values.push(value),
            Data::Int(values) | Data::Date(values) => {
                values.push(i32::try_from(value).map_err(|_| Misfit::Range)?);
            }
            Data::Timestamp(values, unit) => values.push(
                unit.ok_or(Misfit::Unit)?
                    .to_us(value)
                    .ok_or(Misfit::Range)?,
            ),
            Data::Time(values, unit) => {
                values.push(time_of_day(unit.ok_or(Misfit::Unit)?.to_us(value))?);
            }
            Data::Double(values) => {
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "the nearest double is what a double column asks for"
                )]
                values.push(value as f64);
            }
            Data::Decimal(values, rule) if !rule.unscaled => {
                values.push(rule.scaled(value.into())?);
            }
            Data::String(bytes) => bytes.push(written)?,
            Data::Boolean(bits) if matches!(value, 0 | 1) => bits.append(value == 1),
            Data::Float(values) => {
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "the nearest float is what a float column asks for"
                )]
                values.push(value as f32);
            }
            _ => return Err(Misfit::Type),
        }
        self.append_valid();
        Ok(())
    }

    #[inline]
    fn float(&mut self, value: f64, written: &[u8]) -> Result<(), Misfit> {
        match &mut self.data {
            Data::Double(values) => values.push(value),
            Data::Float(values) => values.push(narrow(value)?),
            Data::Decimal(values, rule) if !rule.unscaled => values.push(rule.parse(written)?),
            Data::String(bytes) => bytes.push(written)?,
            // A whole number beyond 64 bits.
            Data::Long(_) | Data::Int(_)
                if written.iter().all(|c| matches!(c, b'-' | b'0'..=b'9')) =>
            {
                return Err(Misfit::Range);
            }
            _ => return Err(Misfit::Type),
        }
        self.append_valid();
        Ok(())
    }

    /// The UTF-8 text `message[from..to]`. What follows it is readable too, so that a short text is one copy of 16 bytes.
    #[inline(always)]
    pub(super) fn text(&mut self, message: &[u8], from: usize, to: usize) -> Result<(), Misfit> {
        match &mut self.data {
            Data::String(bytes) => {
                match message.get(from..from + 16) {
                    Some(block) if to - from <= 16 => {
                        let length = bytes.data.len() + to - from;
                        bytes.data.extend_from_slice(block);
                        bytes.data.truncate(length);
                    }
                    _ => bytes.data.extend_from_slice(&message[from..to]),
                }
                bytes.end()?;
            }
            Data::Decimal(values, rule) if !rule.unscaled => {
                values.push(rule.parse(&message[from..to])?);
            }
            _ => self.other_text(&message[from..to])?,
        }
        self.append_valid();
        Ok(())
    }

    /// Text for a column that is no text.
    fn other_text(&mut self, text: &[u8]) -> Result<(), Misfit> {
        match &mut self.data {
            Data::Boolean(bits) => bits.append(match text {
                b"true" | b"1" => true,
                b"false" | b"0" => false,
                _ => return Err(Misfit::Type),
            }),
            Data::Int(values) => {
                values.push(i32::try_from(integer(text)?).map_err(|_| Misfit::Range)?);
            }
            Data::Long(values) => values.push(integer(text)?),
            Data::Float(values) => values.push(narrow(double(text)?)?),
            Data::Double(values) => values.push(double(text)?),
            Data::Decimal(values, rule) => values.push(rule.unscaled(text)?),
            Data::Date(values) => values.push(match instant::date_days(text) {
                Some(days) => days,
                None => i32::try_from(integer(text)?).map_err(|_| Misfit::Range)?,
            }),
            Data::Time(values, unit) => values.push(match (instant::time_us(text), unit) {
                (Some(us), _) => us,
                (None, Some(unit)) => time_of_day(unit.to_us(integer(text)?))?,
                (None, None) => return Err(Misfit::Type),
            }),
            Data::Timestamp(values, unit) => {
                values.push(match (instant::timestamp_us(text), unit) {
                    (Some(us), _) => us,
                    (None, Some(unit)) => unit.to_us(integer(text)?).ok_or(Misfit::Range)?,
                    (None, None) => return Err(Misfit::Type),
                });
            }
            Data::String(bytes) => bytes.push(text)?,
            Data::Binary(bytes, encoding) => bytes.push_decoded(text, *encoding)?,
            Data::Uuid(bytes) => {
                bytes.extend_from_slice(
                    uuid::Uuid::try_parse_ascii(text)
                        .map_err(|_| Misfit::Type)?
                        .as_bytes(),
                );
            }
        }
        Ok(())
    }

    /// An object or array, as it was written.
    pub(super) fn nested(&mut self, written: &[u8]) -> Result<(), Misfit> {
        match &mut self.data {
            Data::String(bytes) => bytes.push(written)?,
            Data::Decimal(values, rule) => values.push(rule.variable(written)?),
            Data::Timestamp(values, _) => values.push(zoned::timestamp_us(written)?),
            _ => return Err(Misfit::Type),
        }
        self.append_valid();
        Ok(())
    }

    /// Whether text in this column is bytes in base64.
    pub(super) fn is_base64(&self) -> bool {
        match &self.data {
            Data::Binary(_, encoding) => matches!(
                encoding,
                Encoding::Plain | Encoding::Base64 | Encoding::Base64Url
            ),
            Data::Decimal(_, rule) => rule.unscaled,
            _ => false,
        }
    }

    /// Cuts back to the first `rows` rows.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.validity.truncate(rows);
        self.rows = rows.min(self.rows);
        match &mut self.data {
            Data::Boolean(bits) => bits.truncate(rows),
            Data::Int(values) | Data::Date(values) => values.truncate(rows),
            Data::Long(values) | Data::Time(values, _) | Data::Timestamp(values, _) => {
                values.truncate(rows);
            }
            Data::Float(values) => values.truncate(rows),
            Data::Double(values) => values.truncate(rows),
            Data::Decimal(values, _) => values.truncate(rows),
            Data::String(bytes) | Data::Binary(bytes, _) => bytes.truncate(rows),
            Data::Uuid(bytes) => bytes.truncate(rows * 16),
        }
    }

    /// The array, of the table's own type; the values begin anew with room for as many rows.
    pub(super) fn finish(&mut self, column: &SourceColumn, data_type: &DataType) -> ArrayRef {
        let fresh = Values::new(column, self.len());
        let Values {
            data, mut validity, ..
        } = mem::replace(self, fresh);
        let nulls = validity.finish();
        match data {
            Data::Boolean(mut bits) => Arc::new(BooleanArray::new(bits.finish(), nulls)),
            Data::Int(values) => Arc::new(Int32Array::new(values.into(), nulls)),
            Data::Long(values) => Arc::new(Int64Array::new(values.into(), nulls)),
            Data::Float(values) => Arc::new(Float32Array::new(values.into(), nulls)),
            Data::Double(values) => Arc::new(Float64Array::new(values.into(), nulls)),
            Data::Decimal(values, _) => Arc::new(
                Decimal128Array::new(values.into(), nulls).with_data_type(data_type.clone()),
            ),
            Data::Date(values) => Arc::new(Date32Array::new(values.into(), nulls)),
            Data::Time(values, _) => Arc::new(Time64MicrosecondArray::new(values.into(), nulls)),
            Data::Timestamp(values, _) => Arc::new(
                TimestampMicrosecondArray::new(values.into(), nulls)
                    .with_data_type(data_type.clone()),
            ),
            Data::String(bytes) => bytes.finish_text(nulls, data_type),
            Data::Binary(bytes, _) => bytes.finish_binary(nulls, data_type),
            Data::Uuid(bytes) => Arc::new(FixedSizeBinaryArray::new(
                16,
                Buffer::from_vec(bytes),
                nulls,
            )),
        }
    }
}

impl Bytes {
    fn new(capacity: usize) -> Bytes {
        let mut ends = Vec::with_capacity(capacity + 1);
        ends.push(0);
        Bytes {
            data: Vec::with_capacity(capacity * 16),
            ends,
        }
    }

    /// Ends the value. One batch holds less than 2 GiB of a column.
    #[inline(always)]
    fn end(&mut self) -> Result<(), Misfit> {
        self.ends
            .push(i32::try_from(self.data.len()).map_err(|_| Misfit::Range)?);
        Ok(())
    }

    fn push(&mut self, value: &[u8]) -> Result<(), Misfit> {
        self.data.extend_from_slice(value);
        self.end()
    }

    fn push_decoded(&mut self, text: &[u8], encoding: Encoding) -> Result<(), Misfit> {
        match encoding {
            Encoding::Hex => {
                let digits = text.strip_prefix(b"\\x").unwrap_or(text);
                if !digits.len().is_multiple_of(2) {
                    return Err(Misfit::Type);
                }
                for pair in digits.chunks_exact(2) {
                    let [high, low] = [nibble(pair[0])?, nibble(pair[1])?];
                    self.data.push(high << 4 | low);
                }
            }
            Encoding::Latin1 => {
                let text = std::str::from_utf8(text).map_err(|_| Misfit::Type)?;
                for c in text.chars() {
                    self.data.push(u8::try_from(c).map_err(|_| Misfit::Type)?);
                }
            }
            Encoding::Base64Url => BASE64_URL
                .decode_vec(text, &mut self.data)
                .map_err(|_| Misfit::Type)?,
            _ => BASE64
                .decode_vec(text, &mut self.data)
                .map_err(|_| Misfit::Type)?,
        }
        self.end()
    }

    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows + 1);
        let end = self.ends.last().copied().unwrap_or(0);
        self.data.truncate(usize::try_from(end).unwrap_or(0));
    }

    fn finish_text(self, nulls: Option<NullBuffer>, data_type: &DataType) -> ArrayRef {
        let array = StringArray::new(
            OffsetBuffer::new(self.ends.into()),
            Buffer::from_vec(self.data),
            nulls,
        );
        match data_type {
            DataType::LargeUtf8 => Arc::new(LargeStringArray::new(
                wide(array.offsets()),
                array.values().clone(),
                array.nulls().cloned(),
            )),
            _ => Arc::new(array),
        }
    }

    fn finish_binary(self, nulls: Option<NullBuffer>, data_type: &DataType) -> ArrayRef {
        let ends = OffsetBuffer::new(self.ends.into());
        let data = Buffer::from_vec(self.data);
        match data_type {
            DataType::LargeBinary => Arc::new(LargeBinaryArray::new(wide(&ends), data, nulls)),
            _ => Arc::new(BinaryArray::new(ends, data, nulls)),
        }
    }
}

fn wide(ends: &OffsetBuffer<i32>) -> OffsetBuffer<i64> {
    OffsetBuffer::new(ends.iter().map(|end| i64::from(*end)).collect())
}

fn time_of_day(us: Option<i64>) -> Result<i64, Misfit> {
    us.filter(|us| (0..DAY_US).contains(us))
        .ok_or(Misfit::Range)
}

/// Nearest float; a finite double that no float can hold is refused.
fn narrow(value: f64) -> Result<f32, Misfit> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the nearest float is what a float column asks for"
    )]
    let float = value as f32;
    if float.is_infinite() && value.is_finite() {
        Err(Misfit::Range)
    } else {
        Ok(float)
    }
}

fn integer(text: &[u8]) -> Result<i64, Misfit> {
    let text = std::str::from_utf8(text).map_err(|_| Misfit::Type)?;
    text.parse()
        .map_err(|error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => Misfit::Range,
            _ => Misfit::Type,
        })
}

fn double(text: &[u8]) -> Result<f64, Misfit> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Misfit::Type)
}

fn nibble(digit: u8) -> Result<u8, Misfit> {
    char::from(digit)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
        .ok_or(Misfit::Type)
}
