//! How far each partition is read: where its open batch begins and ends, and how far its source has got.
//!
//! In come the offsets that the source delivers and the places that rows have; out comes what a batch holds of each
//! partition. No I/O.
//!
//! A batch ends where the reading stands and the next one begins there: no offset lies between two of them, none in both.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::cdc::SourcePartition;
use crate::kafka::{Position, TopicPartition};
use crate::watermark::{
    Before, NewestChange, PartitionNews, PartitionStats, SourcePositions, State,
};

/// One partition that this worker reads.
#[derive(Clone, Debug)]
struct Track {
    at: TopicPartition,
    /// Where the open batch begins, and behind what.
    start: i64,
    before: Option<Before>,
    /// The next offset wanted.
    next: Position,
    reading: bool,
    /// The newest promise of the source that was read since reading began here. It stays true of every later position.
    resolved_us: Option<i64>,
    /// Its place in `Rows::partitions`, once it had a row.
    place: Option<usize>,
}

/// The partitions of one worker.
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    /// By the slot of the source.
    slots: Vec<Option<Track>>,
    /// Places that have a slot.
    placed: usize,
    /// By place.
    known: Vec<Known>,
    /// What a track begins with, until its first row gives it a place.
    begin: BTreeMap<TopicPartition, Known>,
}

/// What decides the say of a partition's rows beside their times.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// How far its sources have got.
    pub positions: SourcePositions,
    /// Rows below have no say: what was claimed when its topic joined, where that did not take the claim back.
    pub backfill_before_us: Option<i64>,
}

impl Tracks {
    /// Reading begins, or begins anew, at what the table holds of a partition.
    pub(crate) fn begin(
        &mut self,
        slot: u32,
        at: &TopicPartition,
        position: Position,
        state: &State,
    ) {
        let slot = slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        let place = self.slots[slot].as_ref().and_then(|track| track.place);
        self.slots[slot] = Some(Track {
            at: at.clone(),
            start: position.next_offset,
            before: Before::of(state, &at.topic, at.partition),
            next: position,
            reading: true,
            resolved_us: None,
            place,
        });
        let known = state.partition(&at.topic, at.partition);
        let known = known.map(|known| Known {
            positions: known.positions.clone(),
            backfill_before_us: known.backfill_before_us,
        });
        let known = known.unwrap_or_default();
        match place {
            Some(place) => self.known[place] = known,
            None => drop(self.begin.insert(at.clone(), known)),
        }
    }

    /// Reading ends: another worker has the partition.
    pub(crate) fn end(&mut self, at: &TopicPartition) {
        for track in self
            .slots
            .iter_mut()
            .flatten()
            .filter(|track| track.at == *at)
        {
            track.reading = false;
        }
    }

    /// The partition of a record that is to be taken; `None`: it is not read here, or was taken before.
    pub(crate) fn wants(&self, slot: u32, offset: i64) -> Option<&TopicPartition> {
        let track = self.slots.get(slot as usize)?.as_ref()?;
        (track.reading && offset >= track.next.next_offset).then_some(&track.at)
    }

    /// A record is in the batch.
    pub(crate) fn take(&mut self, slot: u32, offset: i64, leader_epoch: Option<i32>) {
        if let Some(Some(track)) = self.slots.get_mut(slot as usize) {
            track.next = Position {
                next_offset: offset + 1,
                leader_epoch: leader_epoch.or(track.next.leader_epoch),
            };
        }
    }

    /// The record taken last is the source's promise about everything that comes after it.
    pub(crate) fn promise(&mut self, slot: u32, resolved_us: i64) {
        if let Some(Some(track)) = self.slots.get_mut(slot as usize) {
            track.resolved_us = track.resolved_us.max(Some(resolved_us));
        }
    }

    /// The record taken last says that the source has delivered everything below `position`, whose commit time is `time_us`:
    /// what comes behind it and is below had come before. Rows before it are judged by then.
    pub(crate) fn resolve(&mut self, slot: u32, position: i64, time_us: i64) {
        let Some(Some(track)) = self.slots.get(slot as usize) else {
            return;
        };
        let known = match track.place {
            Some(place) => &mut self.known[place],
            None => self.begin.entry(track.at.clone()).or_default(),
        };
        known.positions.resolve(position, time_us);
    }

    /// Everything of a partition below `offset` was delivered: what is missing there never comes. The leader epoch of the last
    /// row says nothing about an offset behind it.
    pub(crate) fn end_of_partition(&mut self, slot: u32, offset: i64) {
        if let Some(Some(track)) = self.slots.get_mut(slot as usize)
            && track.reading
            && offset > track.next.next_offset
        {
            track.next = Position::at(offset);
        }
    }

    /// Gives new places of `Rows::partitions` their track, and says what is known of each place.
    pub(crate) fn place(&mut self, partitions: &[SourcePartition]) -> &mut [Known] {
        for partition in &partitions[self.placed..] {
            let at = TopicPartition::new(Arc::clone(&partition.topic), partition.partition);
            let mut tracks = self.slots.iter_mut().flatten();
            if let Some(track) = tracks.find(|track| track.at == at) {
                track.place = Some(self.placed);
            }
            self.placed += 1;
            self.known.push(self.begin.remove(&at).unwrap_or_default());
        }
        &mut self.known
    }

    /// The partitions that are read, and the position delivered of each.
    #[must_use]
    pub(crate) fn delivered(&self) -> Vec<(TopicPartition, i64)> {
        self.reading()
            .map(|track| (track.at.clone(), track.next.next_offset))
            .collect()
    }

    fn reading(&self) -> impl Iterator<Item = &Track> {
        self.slots.iter().flatten().filter(|track| track.reading)
    }

    /// What the batch holds of each partition, with what its rows showed by place.
    pub(crate) fn news(
        &self,
        of_place: impl Fn(usize) -> (Option<PartitionStats>, Option<NewestChange>),
    ) -> Vec<PartitionNews> {
        let news = |track: &Track| {
            let (stats, newest_change) = track.place.map_or((None, None), &of_place);
            PartitionNews {
                topic: track.at.topic.to_string(),
                partition: track.at.partition,
                start_offset: track.start,
                end_offset: track.next.next_offset,
                before: track.before,
                leader_epoch: track.next.leader_epoch,
                stats,
                positions: self.positions_of(track),
                newest_change,
                // Without a batch there is nothing new in it.
                resolved_us: track
                    .resolved_us
                    .filter(|_| track.next.next_offset > track.start),
                asked_end: None,
            }
        };
        self.reading().map(news).collect()
    }

    /// How far the source has got in a partition; `None`: nothing of it was read.
    fn positions_of(&self, track: &Track) -> Option<SourcePositions> {
        match (track.place, track.resolved_us) {
            (Some(place), _) => Some(self.known[place].positions.clone()),
            (None, Some(_)) => Some(self.begin.get(&track.at)?.positions.clone()),
            (None, None) => None,
        }
    }

    /// The table holds everything up to these ends: the open batch begins there.
    pub(crate) fn advance_starts(&mut self, news: &[PartitionNews]) {
        let ends: HashMap<(&str, i32), &PartitionNews> = news
            .iter()
            .map(|news| ((news.topic.as_str(), news.partition), news))
            .collect();
        for track in self.slots.iter_mut().flatten() {
            let end = ends.get(&(&*track.at.topic, track.at.partition));
            if let Some(end) = end.filter(|end| end.end_offset > track.start) {
                track.start = end.end_offset;
                if let Some(before) = &mut track.before {
                    before.leader_epoch = end.leader_epoch;
                }
            }
        }
    }
}
