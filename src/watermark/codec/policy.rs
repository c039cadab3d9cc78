//! The settings in force, as bytes.

use std::collections::BTreeSet;

use super::Unreadable;
use crate::watermark::amended::LateData;
use crate::watermark::event_time::Bounds;
use crate::watermark::frontier::{FromRule, Heartbeats, OnJoin, Policy, Quantile, Term};
use crate::watermark::grid::Grid;
use crate::watermark::varint::{Reader, put, put_signed, put_text};

pub(super) fn put_terms(out: &mut Vec<u8>, terms: &BTreeSet<Term>) {
    put(out, terms.len() as u64);
    out.extend(terms.iter().map(|term| *term as u8));
}

pub(super) fn read_terms(reader: &mut Reader<'_>) -> Result<BTreeSet<Term>, Unreadable> {
    let count = reader.count().ok_or(Unreadable::Damaged)?;
    let bytes = reader.take(count).ok_or(Unreadable::Damaged)?.iter();
    bytes
        .map(|byte| Term::from_byte(*byte).ok_or(Unreadable::Term { byte: *byte }))
        .collect()
}

pub(super) fn put_policy(out: &mut Vec<u8>, policy: &Policy) {
    put(out, policy.revision);
    let bounds = &policy.bounds;
    let lengths = [
        policy.grid.cell_us(),
        bounds.allowed_lateness_us,
        bounds.max_delay_us,
        bounds.max_future_skew_us,
        bounds.max_age_us.unwrap_or(-1),
        policy.window_duration_us,
    ];
    for length in lengths {
        put_signed(out, length);
    }
    put_text(out, policy.grid.zone().unwrap_or_default());
    put(out, u64::from(policy.window_commits));
    put_terms(out, &policy.terms);
    out.push(policy.quantile.map_or(0, |rung| rung as u8 + 1));
    out.push(policy.heartbeats as u8);
    match policy.complete_from {
        FromRule::Derived => out.push(0),
        FromRule::Unbounded => out.push(1),
        FromRule::Instant(us) => {
            out.push(2);
            put_signed(out, us);
        }
    }
    out.push(policy.late_data as u8);
    out.push(policy.on_join as u8);
}

pub(super) fn read_policy(reader: &mut Reader<'_>) -> Result<Policy, Unreadable> {
    let read = (|| {
        let revision = reader.varint()?;
        let cell_us = reader.signed()?;
        let bounds = Bounds {
            allowed_lateness_us: reader.signed()?,
            max_delay_us: reader.signed()?,
            max_future_skew_us: reader.signed()?,
            max_age_us: Some(reader.signed()?).filter(|us| *us >= 0),
        };
        let window_duration_us = reader.signed()?;
        let zone = Some(reader.text()?).filter(|name| !name.is_empty());
        let grid = Grid::in_zone(cell_us, zone).ok()?;
        let window_commits = u32::try_from(reader.varint()?).ok()?;
        Some((revision, grid, bounds, window_duration_us, window_commits))
    })();
    let (revision, grid, bounds, window_duration_us, window_commits) =
        read.ok_or(Unreadable::Damaged)?;
    let terms = read_terms(reader)?;
    let quantile = read_quantile(reader).ok_or(Unreadable::Damaged)?;
    let heartbeats = reader.byte().and_then(Heartbeats::from_repr);
    let heartbeats = heartbeats.ok_or(Unreadable::Damaged)?;
    let complete_from = match reader.byte() {
        Some(0) => FromRule::Derived,
        Some(1) => FromRule::Unbounded,
        Some(2) => FromRule::Instant(reader.signed().ok_or(Unreadable::Damaged)?),
        _ => return Err(Unreadable::Damaged),
    };
    let late_data = reader.byte().and_then(LateData::from_byte);
    let on_join = reader.byte().and_then(OnJoin::from_byte);
    Ok(Policy {
        revision,
        grid,
        bounds,
        window_commits,
        window_duration_us,
        terms,
        quantile,
        heartbeats,
        complete_from,
        late_data: late_data.ok_or(Unreadable::Damaged)?,
        on_join: on_join.ok_or(Unreadable::Damaged)?,
    })
}

#[expect(
    clippy::option_option,
    reason = "the outer one says whether it could be read"
)]
pub(super) fn read_quantile(reader: &mut Reader<'_>) -> Option<Option<Quantile>> {
    match reader.byte()?.checked_sub(1) {
        None => Some(None),
        Some(rung) => Some(Some(Quantile::from_repr(rung)?)),
    }
}
