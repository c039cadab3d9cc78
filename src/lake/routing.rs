//! Which rows of a batch go to which partition.

use arrow::array::{Array, TimestampMicrosecondArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::record_batch::RecordBatch;
use iceberg::arrow::RecordBatchPartitionSplitter;
use iceberg::spec::{Literal, PartitionSpecRef, PrimitiveType, SchemaRef, Struct, Transform, Type};

pub(super) const HOUR_US: i64 = 3_600_000_000;
const DAY_US: i64 = 24 * HOUR_US;

/// How the rows of a table are taken apart.
pub(super) enum Routing {
    Whole,
    /// One time transform of a µs timestamp column: the usual case.
    Time {
        column: usize,
        length_us: i64,
    },
    Other(Box<RecordBatchPartitionSplitter>),
}

/// A batch, taken apart.
pub(super) enum Parts {
    One(Struct),
    Many(Vec<(Struct, RecordBatch)>),
}

impl Routing {
    pub(super) fn of(spec: &PartitionSpecRef, schema: &SchemaRef) -> Result<Self, String> {
        if spec.is_unpartitioned() {
            return Ok(Self::Whole);
        }
        if let [field] = spec.fields() {
            let length_us = match field.transform {
                Transform::Hour => Some(HOUR_US),
                Transform::Day => Some(DAY_US),
                _ => None,
            };
            let fields = schema.as_struct().fields();
            let column = fields
                .iter()
                .position(|column| column.id == field.source_id);
            if let (Some(length_us), Some(column)) = (length_us, column)
                && matches!(
                    fields[column].field_type.as_ref(),
                    Type::Primitive(PrimitiveType::Timestamp | PrimitiveType::Timestamptz)
                )
            {
                return Ok(Self::Time { column, length_us });
            }
        }
        RecordBatchPartitionSplitter::try_new_with_computed_values(schema.clone(), spec.clone())
            .map(|splitter| Self::Other(Box::new(splitter)))
            .map_err(|error| error.to_string())
    }

    pub(super) fn split(&self, batch: &RecordBatch) -> Result<Parts, String> {
        match self {
            Self::Whole => Ok(Parts::One(Struct::empty())),
            Self::Time { column, length_us } => {
                let times = batch
                    .column(*column)
                    .as_any()
                    .downcast_ref::<TimestampMicrosecondArray>()
                    .ok_or("the partition column holds no µs timestamps")?;
                split_by_time(batch, times, *length_us)
            }
            Self::Other(splitter) => splitter
                .split(batch)
                .map(|parts| {
                    let parts = parts.into_iter();
                    Parts::Many(
                        parts
                            .map(|(key, rows)| (key.data().clone(), rows))
                            .collect(),
                    )
                })
                .map_err(|error| error.to_string()),
        }
    }
}

fn split_by_time(
    batch: &RecordBatch,
    times: &TimestampMicrosecondArray,
    length_us: i64,
) -> Result<Parts, String> {
    if times.null_count() == times.len() {
        return Ok(Parts::One(time_partition(None)?));
    }
    let values: &[i64] = times.values();
    if times.null_count() == 0 {
        let (least, greatest) = values
            .iter()
            .fold((i64::MAX, i64::MIN), |(least, greatest), value| {
                (least.min(*value), greatest.max(*value))
            });
        let cell = least.div_euclid(length_us);
        if cell == greatest.div_euclid(length_us) {
            return Ok(Parts::One(time_partition(Some(cell))?));
        }
    }
    let mut cells: Vec<(Option<i64>, Vec<u32>)> = Vec::new();
    let mut last = 0;
    for (row, value) in (0u32..).zip(values) {
        let valid = times.is_valid(row as usize);
        let cell = valid.then(|| value.div_euclid(length_us));
        if cells.get(last).is_none_or(|(known, _)| *known != cell) {
            last = cells
                .iter()
                .position(|(known, _)| *known == cell)
                .unwrap_or_else(|| {
                    cells.push((cell, Vec::new()));
                    cells.len() - 1
                });
        }
        cells[last].1.push(row);
    }
    cells
        .into_iter()
        .map(|(cell, rows)| {
            let rows = take_record_batch(batch, &UInt32Array::from(rows));
            Ok((
                time_partition(cell)?,
                rows.map_err(|error| error.to_string())?,
            ))
        })
        .collect::<Result<Vec<_>, String>>()
        .map(Parts::Many)
}

fn time_partition(cell: Option<i64>) -> Result<Struct, String> {
    let literal = cell
        .map(|cell| i32::try_from(cell).map(Literal::int))
        .transpose()
        .map_err(|_| "a time lies beyond what a partition can name".to_owned())?;
    Ok(Struct::from_iter([literal]))
}
