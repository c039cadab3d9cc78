//! The table read back, as any reader would, and judged by the sender's record.
//!
//! Nothing of the writing side is used: the rows come from scans of the Iceberg client, the claims from the snapshot
//! summaries. Where the claim went up, the table is read as of that very snapshot: what a job that started on the news got.

use std::collections::BTreeSet;

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{Int32Type, Int64Type, TimestampMicrosecondType},
};
use futures::TryStreamExt;
use iceberg::table::Table;
use jiff::Timestamp;

use crate::{
    demo::{
        Error,
        record::{Declared, Fault, Found, Record, Said},
    },
    lake::lineage::{Entry, lineage},
    watermark::contract,
};

/// What reading the table back has shown.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Rows found.
    pub rows: usize,
    /// How many times the claim went up and covered an hour, each judged.
    pub steps: usize,
    /// Where the claim stands in the end.
    pub finalized_before_us: Option<i64>,
    /// Rows below a claim that the record excuses: they broke a declared bound.
    pub excused: usize,
    /// Everything that is wrong.
    pub faults: Vec<Fault>,
}

/// Reads `table` back and compares it with `record`.
///
/// # Errors
/// [`Error::Read`] when the table cannot be read; what is wrong with its content is a finding.
pub async fn check(table: &Table, record: &Record, declared: Declared) -> Result<Findings, Error> {
    let found = read_rows(table).await?;
    let mut findings = Findings {
        rows: found.len(),
        faults: record.judge_rows(&found),
        excused: record.breaches(declared).len(),
        ..Findings::default()
    };
    for entry in lineage(table.metadata()).entries.iter().rev() {
        let Some((complete_from_us, finalized_before_us)) = claim_of(entry)? else {
            continue;
        };
        let says_something = complete_from_us < finalized_before_us;
        if !says_something || findings.finalized_before_us == Some(finalized_before_us) {
            continue;
        }
        let said = Said {
            snapshot_id: entry.snapshot_id,
            complete_from_us,
            finalized_before_us,
            rows: read_places(table, entry.snapshot_id).await?,
        };
        findings.faults.extend(record.judge_claim(&said, declared));
        findings.finalized_before_us = Some(finalized_before_us);
        findings.steps += 1;
    }
    Ok(findings)
}

/// The claim in the summary of a snapshot: complete from (the beginning of time where it has none), and before.
fn claim_of(entry: &Entry) -> Result<Option<(i64, i64)>, Error> {
    let instant = |name: &str| match entry.summary().get(name) {
        None => Ok(None),
        Some(text) => match text.parse::<Timestamp>() {
            Ok(timestamp) => Ok(Some(timestamp.as_microsecond())),
            Err(_) => Err(Error::Summary {
                name: name.to_owned(),
                value: text.clone(),
            }),
        },
    };
    let Some(before_us) = instant(contract::FINALIZED_BEFORE)? else {
        return Ok(None);
    };
    Ok(Some((
        instant(contract::COMPLETE_FROM)?.unwrap_or(i64::MIN),
        before_us,
    )))
}

/// Every row of the newest snapshot.
async fn read_rows(table: &Table) -> Result<Vec<Found>, Error> {
    let scan = table
        .scan()
        .select(["id", "_cdc_partition", "_cdc_offset", "_cdc_event_time"])
        .build();
    let mut batches = scan
        .map_err(Error::read)?
        .to_arrow()
        .await
        .map_err(Error::read)?;
    let mut found = Vec::new();
    while let Some(batch) = batches.try_next().await.map_err(Error::read)? {
        let (ids, partitions) = (longs(&batch, "id")?, ints(&batch, "_cdc_partition")?);
        let (offsets, times) = (
            longs(&batch, "_cdc_offset")?,
            column(&batch, "_cdc_event_time")?,
        );
        let times = times
            .as_primitive_opt::<TimestampMicrosecondType>()
            .ok_or_else(|| odd("_cdc_event_time"))?;
        for row in 0..batch.num_rows() {
            found.push(Found {
                partition: partitions.value(row),
                offset: offsets.value(row),
                event_time_us: times.is_valid(row).then(|| times.value(row)),
                order: ids.value(row),
            });
        }
    }
    Ok(found)
}

/// Partition and offset of every row that a reader of this snapshot gets.
async fn read_places(table: &Table, snapshot_id: i64) -> Result<BTreeSet<(i32, i64)>, Error> {
    let scan = table
        .scan()
        .snapshot_id(snapshot_id)
        .select(["_cdc_partition", "_cdc_offset"])
        .build();
    let mut batches = scan
        .map_err(Error::read)?
        .to_arrow()
        .await
        .map_err(Error::read)?;
    let mut places = BTreeSet::new();
    while let Some(batch) = batches.try_next().await.map_err(Error::read)? {
        let (partitions, offsets) = (
            ints(&batch, "_cdc_partition")?,
            longs(&batch, "_cdc_offset")?,
        );
        places.extend(
            partitions
                .values()
                .iter()
                .copied()
                .zip(offsets.values().iter().copied()),
        );
    }
    Ok(places)
}

type Ints<'a> = &'a arrow::array::PrimitiveArray<Int32Type>;
type Longs<'a> = &'a arrow::array::PrimitiveArray<Int64Type>;

fn ints<'a>(batch: &'a RecordBatch, name: &'static str) -> Result<Ints<'a>, Error> {
    column(batch, name)?
        .as_primitive_opt()
        .ok_or_else(|| odd(name))
}

fn longs<'a>(batch: &'a RecordBatch, name: &'static str) -> Result<Longs<'a>, Error> {
    column(batch, name)?
        .as_primitive_opt()
        .ok_or_else(|| odd(name))
}

fn column<'a>(batch: &'a RecordBatch, name: &'static str) -> Result<&'a dyn Array, Error> {
    batch
        .column_by_name(name)
        .map(AsRef::as_ref)
        .ok_or_else(|| odd(name))
}

fn odd(column: &'static str) -> Error {
    Error::Column { column }
}
