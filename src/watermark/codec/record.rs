//! What one commit says of its partitions, as a summary has it.

use super::partition::{
    put_epoch, put_gap, put_positions, put_sources, put_stats, read_epoch, read_gap,
    read_positions, read_sources, read_stats, sources,
};
use super::{
    Detail, Times, Unreadable, flag, is_of_part, pack, put_change, read_change, read_uuid, unpack,
};
use crate::watermark::event_time::SECOND_US;
use crate::watermark::state::{PartitionRecord, Record};
use crate::watermark::varint::{Reader, put, put_signed, put_text};

impl Record {
    /// The partitions of the record for a summary, without their source positions.
    pub(in crate::watermark) fn encode_partitions(&self, detail: Detail) -> String {
        let mut bytes = Vec::new();
        let out = &mut bytes;
        let times = Times::against(self.committed_at_us);
        put_signed(out, self.committed_at_us.div_euclid(SECOND_US));
        put_change(out, self.newest_change);
        times.put_some(out, self.newest_heartbeat_us);
        let bare = detail == Detail::Bare;
        let ids = self.topic_ids.iter();
        let ids = ids.filter(|(_, id)| !bare || is_of_part(**id, self.commit_id));
        let ids: Vec<_> = ids.collect();
        put(out, ids.len() as u64);
        for (topic, id) in ids {
            put_text(out, topic);
            out.extend_from_slice(id.as_bytes());
        }
        let begins = |news: &PartitionRecord| {
            let anchored = news.anchor_us.or(news.backfill_before_us).is_some();
            anchored || news.reset || news.gap.is_some()
        };
        let partitions = self.partitions.iter();
        let partitions = partitions.filter(|(_, news)| !bare || begins(news));
        let partitions: Vec<_> = partitions.collect();
        put(out, partitions.len() as u64);
        for ((topic, partition), news) in partitions {
            put_text(out, topic);
            put_signed(out, i64::from(*partition));
            put_news(out, times, news, detail);
        }
        pack(&bytes)
    }

    /// The source positions of the record for a summary; `None` when there are none.
    pub(in crate::watermark) fn encode_positions(&self) -> Option<String> {
        let known = self
            .partitions
            .iter()
            .filter_map(|(key, news)| Some((key, news.positions.as_ref()?)));
        let known: Vec<_> = known.collect();
        if known.is_empty() {
            return None;
        }
        let mut bytes = Vec::new();
        let out = &mut bytes;
        let sources = sources(known.iter().map(|(_, positions)| *positions));
        put_sources(out, &sources);
        put(out, known.len() as u64);
        for ((topic, partition), positions) in known {
            put_text(out, topic);
            put_signed(out, i64::from(*partition));
            put_positions(out, &sources, positions);
        }
        Some(pack(&bytes))
    }

    /// Fills the record's partitions from a summary.
    pub(in crate::watermark) fn decode_partitions(
        &mut self,
        text: &str,
        positions: Option<&str>,
    ) -> Result<(), Unreadable> {
        let (_, bytes) = unpack(text)?;
        read_news(&mut Reader::new(&bytes), self).ok_or(Unreadable::Damaged)?;
        if let Some(positions) = positions {
            let (_, bytes) = unpack(positions)?;
            read_all_positions(&mut Reader::new(&bytes), self).ok_or(Unreadable::Damaged)?;
        }
        Ok(())
    }
}

pub(super) fn put_news(out: &mut Vec<u8>, times: Times, news: &PartitionRecord, detail: Detail) {
    put_signed(out, news.next_offset);
    put_epoch(out, news.leader_epoch);
    out.push(u8::from(news.reset));
    times.put_some(out, news.anchor_us);
    times.put_some(out, news.backfill_before_us);
    times.put_some(out, news.caught_up_us);
    times.put_some(out, news.heartbeat_us);
    times.put_some(out, news.resolved_us);
    put_gap(out, times, news.gap);
    let stats = news.stats.as_ref().filter(|_| detail != Detail::Bare);
    out.push(u8::from(stats.is_some()));
    if let Some(stats) = stats {
        put_stats(out, times, stats, detail);
    }
}

pub(super) fn read_news(reader: &mut Reader<'_>, record: &mut Record) -> Option<()> {
    let committed_at = reader.signed()?;
    let times = Times { base: committed_at };
    record.committed_at_us = committed_at.checked_mul(SECOND_US)?;
    record.newest_change = read_change(reader)?;
    record.newest_heartbeat_us = times.read_some(reader)?;
    for _ in 0..reader.count()? {
        let topic = reader.text()?.to_owned();
        record.topic_ids.insert(topic, read_uuid(reader)?);
    }
    for _ in 0..reader.count()? {
        let topic = reader.text()?.to_owned();
        let partition = i32::try_from(reader.signed()?).ok()?;
        let news = PartitionRecord {
            next_offset: reader.signed()?,
            leader_epoch: read_epoch(reader)?,
            reset: flag(reader)?,
            anchor_us: times.read_some(reader)?,
            backfill_before_us: times.read_some(reader)?,
            caught_up_us: times.read_some(reader)?,
            heartbeat_us: times.read_some(reader)?,
            resolved_us: times.read_some(reader)?,
            gap: read_gap(reader, times)?,
            stats: if flag(reader)? {
                Some(read_stats(reader, times)?)
            } else {
                None
            },
            positions: None,
        };
        record.partitions.insert((topic, partition), news);
    }
    reader.is_done().then_some(())
}

pub(super) fn read_all_positions(reader: &mut Reader<'_>, record: &mut Record) -> Option<()> {
    let sources = read_sources(reader)?;
    for _ in 0..reader.count()? {
        let key = (
            reader.text()?.to_owned(),
            i32::try_from(reader.signed()?).ok()?,
        );
        let positions = read_positions(reader, &sources)?;
        record.partitions.get_mut(&key)?.positions = Some(positions);
    }
    reader.is_done().then_some(())
}
