//! What a writer publishes, as bytes: its claim, and the bounded lists beside it.

use super::policy::{put_terms, read_terms};
use super::{Times, Unreadable, flag};
use crate::watermark::amended::{Amended, AmendedCell, MAX_AMENDED};
use crate::watermark::epoch::{Reopened, StepCause};
use crate::watermark::gaps::{Gaps, MAX_GAPS};
use crate::watermark::order::{MAX_RETRACTED, Retracted};
use crate::watermark::state::{CompleteFrom, Published};
use crate::watermark::varint::{Reader, put, put_text};

pub(super) fn put_published(out: &mut Vec<u8>, times: Times, published: &Published) {
    put(out, published.epoch);
    times.put_some(out, published.finalized_before_us);
    times.put_some(
        out,
        match published.complete_from {
            CompleteFrom::Unbounded => None,
            CompleteFrom::From(us) => Some(us),
        },
    );
    put_terms(out, &published.evidence);
    let stretches = published.gaps.stretches();
    put(out, stretches.len() as u64);
    for (from_us, to_us) in stretches {
        times.put(out, *from_us);
        times.put(out, *to_us);
    }
    times.put_some(out, published.lost_before_us);
    put_reopened(out, times, published.reopened);
    put_amended(out, times, &published.amended);
    put(out, published.retracted.len() as u64);
    for retracted in &published.retracted {
        times.put(out, retracted.from_us);
        times.put(out, retracted.before_us);
        times.put(out, retracted.at_us);
        put_text(out, &retracted.reason);
    }
    out.push(u8::from(published.drained));
}

pub(super) fn read_published(
    reader: &mut Reader<'_>,
    times: Times,
) -> Result<Published, Unreadable> {
    let damaged = Unreadable::Damaged;
    let epoch = reader.varint().ok_or(damaged)?;
    let finalized_before_us = times.read_some(reader).ok_or(damaged)?;
    let from = times.read_some(reader).ok_or(damaged)?;
    let evidence = read_terms(reader)?;
    let count = reader
        .count()
        .filter(|count| *count <= MAX_GAPS)
        .ok_or(damaged)?;
    let mut gaps = Gaps::default();
    for _ in 0..count {
        let from_us = times.read(reader).ok_or(damaged)?;
        gaps.add(from_us, times.read(reader).ok_or(damaged)?);
    }
    Ok(Published {
        epoch,
        finalized_before_us,
        complete_from: from.map_or(CompleteFrom::Unbounded, CompleteFrom::From),
        evidence,
        gaps,
        lost_before_us: times.read_some(reader).ok_or(damaged)?,
        reopened: read_reopened(reader, times).ok_or(damaged)?,
        amended: read_amended(reader, times).ok_or(damaged)?,
        retracted: read_retracted(reader, times).ok_or(damaged)?,
        drained: flag(reader).ok_or(damaged)?,
    })
}

pub(super) fn put_reopened(out: &mut Vec<u8>, times: Times, reopened: Option<Reopened>) {
    let Some(reopened) = reopened else {
        out.push(0);
        return;
    };
    out.push(reopened.cause as u8);
    times.put_some(out, reopened.from_us);
    times.put(out, reopened.before_us);
    times.put(out, reopened.at_us);
}

#[expect(
    clippy::option_option,
    reason = "the outer one says whether it could be read"
)]
pub(super) fn read_reopened(reader: &mut Reader<'_>, times: Times) -> Option<Option<Reopened>> {
    let cause = match reader.byte()? {
        0 => return Some(None),
        byte => StepCause::from_byte(byte)?,
    };
    Some(Some(Reopened {
        cause,
        from_us: times.read_some(reader)?,
        before_us: times.read(reader)?,
        at_us: times.read(reader)?,
    }))
}

pub(super) fn put_amended(out: &mut Vec<u8>, times: Times, amended: &Amended) {
    out.push(u8::from(amended.overflow().is_some()));
    times.put_some(out, amended.withheld_at_us());
    put(out, amended.cells().len() as u64);
    for cell in amended.cells().iter().chain(amended.overflow()) {
        times.put(out, cell.from_us);
        times.put(out, cell.before_us);
        put(out, cell.revision);
        put(out, cell.rows);
        times.put(out, cell.at_us);
        out.push(u8::from(cell.withheld));
    }
}

pub(super) fn read_amended(reader: &mut Reader<'_>, times: Times) -> Option<Amended> {
    let overflows = flag(reader)?;
    let withheld_at_us = times.read_some(reader)?;
    let count = reader.count().filter(|count| *count <= MAX_AMENDED)?;
    let mut cells = Vec::with_capacity(count + 1);
    for _ in 0..count + usize::from(overflows) {
        cells.push(AmendedCell {
            from_us: times.read(reader)?,
            before_us: times.read(reader)?,
            revision: reader.varint()?,
            rows: reader.varint()?,
            at_us: times.read(reader)?,
            withheld: flag(reader)?,
        });
    }
    let overflow = if overflows { cells.pop() } else { None };
    Amended::of(cells, overflow, withheld_at_us)
}

pub(super) fn read_retracted(reader: &mut Reader<'_>, times: Times) -> Option<Vec<Retracted>> {
    let count = reader.count().filter(|count| *count <= MAX_RETRACTED)?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(Retracted {
            from_us: times.read(reader)?,
            before_us: times.read(reader)?,
            at_us: times.read(reader)?,
            reason: reader.text()?.to_owned(),
        });
    }
    Some(all)
}
