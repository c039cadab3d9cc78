//! What is known of one source partition, as bytes.
//!
//! The names of sources stand once, before the partitions.

use std::collections::BTreeSet;

use super::{Detail, Times, flag};
use crate::watermark::event_time::SECOND_US;
use crate::watermark::frontier::{OpenGap, PartitionState, PartitionStats, Window, WindowEntry};
use crate::watermark::source_position::{Incarnation, MAX_INCARNATIONS, SourcePositions};
use crate::watermark::varint::{Reader, put, put_signed, put_text};

/// The names of all sources, each once.
pub(super) fn sources<'a>(positions: impl Iterator<Item = &'a SourcePositions>) -> Vec<&'a str> {
    let names = positions.flat_map(SourcePositions::incarnations);
    let names: BTreeSet<&str> = names.map(|known| known.source.as_str()).collect();
    names.into_iter().collect()
}

pub(super) fn put_sources(out: &mut Vec<u8>, sources: &[&str]) {
    put(out, sources.len() as u64);
    for source in sources {
        put_text(out, source);
    }
}

pub(super) fn read_sources<'a>(reader: &mut Reader<'a>) -> Option<Vec<&'a str>> {
    let count = reader.count()?;
    (0..count).map(|_| reader.text()).collect()
}

pub(super) fn put_positions(out: &mut Vec<u8>, sources: &[&str], positions: &SourcePositions) {
    put(out, positions.incarnations().len() as u64);
    for known in positions.incarnations() {
        let source = sources.binary_search(&known.source.as_str());
        put(out, source.expect("every source is in the list") as u64);
        put(out, u64::from(known.counter));
        put_signed(out, known.position);
        out.push(u8::from(known.commit_time_us.is_some()));
        if let Some(us) = known.commit_time_us {
            put_signed(out, us);
        }
    }
}

pub(super) fn read_positions(reader: &mut Reader<'_>, sources: &[&str]) -> Option<SourcePositions> {
    let count = reader.count().filter(|count| *count <= MAX_INCARNATIONS)?;
    let mut incarnations = Vec::with_capacity(count);
    for _ in 0..count {
        let source = usize::try_from(reader.varint()?).ok()?;
        incarnations.push(Incarnation {
            source: (*sources.get(source)?).to_owned(),
            counter: u32::try_from(reader.varint()?).ok()?,
            position: reader.signed()?,
            commit_time_us: if flag(reader)? {
                Some(reader.signed()?)
            } else {
                None
            },
        });
    }
    Some(SourcePositions::from_incarnations(incarnations))
}

pub(super) fn put_stats(out: &mut Vec<u8>, times: Times, stats: &PartitionStats, detail: Detail) {
    put(out, stats.rows);
    times.put(out, stats.least_us);
    let mut rung_us = stats.least_us;
    for next_us in stats.ladder_us {
        let next_us = if detail == Detail::Full {
            next_us
        } else {
            stats.least_us
        };
        put_signed(out, (next_us - rung_us).div_euclid(SECOND_US));
        rung_us = next_us;
    }
    put_signed(out, (stats.greatest_us - rung_us).div_euclid(SECOND_US));
}

pub(super) fn read_stats(reader: &mut Reader<'_>, times: Times) -> Option<PartitionStats> {
    let rows = reader.varint()?;
    let least_us = times.read(reader)?;
    let mut rung_us = least_us;
    let mut next = || {
        rung_us = rung_us.checked_add(reader.signed()?.checked_mul(SECOND_US)?)?;
        Some(rung_us)
    };
    let ladder_us = [next()?, next()?, next()?];
    let greatest_us = next()?;
    Some(PartitionStats {
        rows,
        least_us,
        ladder_us,
        greatest_us,
    })
}

pub(super) fn put_gap(out: &mut Vec<u8>, times: Times, gap: Option<OpenGap>) {
    out.push(u8::from(gap.is_some()));
    if let Some(gap) = gap {
        times.put_some(out, gap.from_us);
        times.put(out, gap.restart_us);
        out.push(u8::from(gap.in_order));
    }
}

#[expect(
    clippy::option_option,
    reason = "the outer one says whether it could be read"
)]
pub(super) fn read_gap(reader: &mut Reader<'_>, times: Times) -> Option<Option<OpenGap>> {
    if !flag(reader)? {
        return Some(None);
    }
    let from_us = times.read_some(reader)?;
    let restart_us = times.read(reader)?;
    Some(Some(OpenGap {
        from_us,
        restart_us,
        in_order: flag(reader)?,
    }))
}

pub(super) fn put_epoch(out: &mut Vec<u8>, leader_epoch: Option<i32>) {
    put_signed(out, leader_epoch.map_or(-1, i64::from));
}

#[expect(
    clippy::option_option,
    reason = "the outer one says whether it could be read"
)]
pub(super) fn read_epoch(reader: &mut Reader<'_>) -> Option<Option<i32>> {
    let epoch = i32::try_from(reader.signed()?).ok()?;
    Some(Some(epoch).filter(|epoch| *epoch >= 0))
}

pub(super) fn put_partition(
    out: &mut Vec<u8>,
    times: Times,
    sources: &[&str],
    state: &PartitionState,
) {
    put_signed(out, state.next_offset);
    put_epoch(out, state.leader_epoch);
    times.put_some(out, state.anchor_us);
    times.put_some(out, state.backfill_before_us);
    times.put_some(out, state.first_least_us);
    times.put_some(out, state.caught_up_us);
    times.put_some(out, state.heartbeat_us);
    times.put_some(out, state.resolved_us);
    put_gap(out, times, state.gap);
    times.put_some(out, state.window.dropped_at_us);
    put(out, state.window.entries.len() as u64);
    for entry in &state.window.entries {
        times.put(out, entry.committed_at_us);
        put(out, u64::from(entry.commits));
        put_stats(out, times, &entry.stats, Detail::Full);
    }
    put_positions(out, sources, &state.positions);
}

pub(super) fn read_partition(
    reader: &mut Reader<'_>,
    times: Times,
    sources: &[&str],
) -> Option<PartitionState> {
    let mut state = PartitionState {
        next_offset: reader.signed()?,
        leader_epoch: read_epoch(reader)?,
        anchor_us: times.read_some(reader)?,
        backfill_before_us: times.read_some(reader)?,
        first_least_us: times.read_some(reader)?,
        caught_up_us: times.read_some(reader)?,
        heartbeat_us: times.read_some(reader)?,
        resolved_us: times.read_some(reader)?,
        gap: read_gap(reader, times)?,
        window: Window {
            entries: Vec::new(),
            dropped_at_us: times.read_some(reader)?,
        },
        positions: SourcePositions::default(),
    };
    for _ in 0..reader.count()? {
        state.window.entries.push(WindowEntry {
            committed_at_us: times.read(reader)?,
            commits: u32::try_from(reader.varint()?).ok()?,
            stats: read_stats(reader, times)?,
        });
    }
    state.positions = read_positions(reader, sources)?;
    Some(state)
}
