//! One open batch: records in, rows in files out.
//!
//! A record is decoded where it lies in the client's memory; every few thousand rows are judged, observed by the
//! accumulators and written. What cannot be decoded goes to the dead-letter topic or stops the pipeline there. Sealing takes
//! files, offset ranges and statistics as one value and begins the next batch where this one ends.
//!
//! A batch holds every record between its offsets or none: after any error here it is given up whole.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use iceberg::spec::DataFile;

use super::Error;
use super::accumulate::{
    Accumulator, AccumulatorFactory, EventTimeStatistics, EventTimes, Observed, Reading,
};
use super::fence::OffsetRange;
use crate::cdc::{self, Decoded, Decoder, Fault, Record, Rows, Signal};
use crate::kafka::{DeadLetters, Message, Position, Rejected, TopicPartition};
use crate::lake::writer::TableWriter;
use crate::watermark::{PartitionNews, Policy, Say, SourcePositions, State};

/// Rows at which a batch of rows is handed to the writer: small enough to stay in cache, large enough for Arrow's fixed costs.
pub(super) const ROWS_A_FLUSH: usize = 8192;

/// Messages taken from the client at once.
pub(super) const CHUNK: usize = 1000;

/// How long the dead letters of a batch may take to be confirmed.
const DEAD_LETTER_PATIENCE: Duration = Duration::from_secs(30);

/// One partition that this worker reads.
#[derive(Clone, Debug)]
struct Track {
    at: TopicPartition,
    /// Where the open batch begins.
    start: i64,
    /// The next offset wanted.
    next: Position,
    reading: bool,
    /// Its place in `Rows::partitions`, once it had a row.
    place: Option<usize>,
}

/// A sealed batch: files, offset ranges and statistics as one value.
#[derive(Clone, Debug)]
pub struct SealedBatch {
    /// The data files.
    pub files: Vec<DataFile>,
    /// What it holds of each partition, without the answers of the cluster.
    pub news: Vec<PartitionNews>,
    /// The statistics of event time.
    pub times: EventTimes,
    /// What the accumulators found.
    pub summary: BTreeMap<String, String>,
}

impl SealedBatch {
    /// The offset ranges.
    #[must_use]
    pub fn ranges(&self) -> Vec<OffsetRange> {
        ranges(&self.news)
    }
}

/// The offset ranges of some news.
#[must_use]
pub(super) fn ranges(news: &[PartitionNews]) -> Vec<OffsetRange> {
    news.iter()
        .map(|news| OffsetRange {
            at: TopicPartition::new(news.topic.as_str(), news.partition),
            start: news.start_offset,
            end: news.end_offset,
        })
        .collect()
}

/// What is counted between two looks at the metrics.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    /// Records decoded or rejected.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Rows.
    pub rows: u64,
    /// Records in the dead-letter topic.
    pub dead_letters: u64,
    /// Records that are signals, by their name.
    pub signals: BTreeMap<&'static str, u64>,
    /// Values without a column.
    pub unknown_fields: u64,
    /// Names of fields without a column that were not seen before.
    pub new_unknown_fields: Vec<String>,
}

/// What an [`Ingest`] is made of.
pub(super) struct Parts {
    /// Of the pipeline's format.
    pub decoder: Box<dyn Decoder>,
    /// In the table's schema.
    pub rows: Rows,
    /// Of the table.
    pub writer: TableWriter,
    /// Where rejected records go; none stops the pipeline at the first.
    pub dead_letters: Option<DeadLetters>,
    /// Those of the user.
    pub accumulators: Vec<AccumulatorFactory>,
    /// Whose bounds decide which rows have a say.
    pub policy: Policy,
    /// Whether only created rows have a say.
    pub creates_only: bool,
    /// Bytes that open files and rows may hold.
    pub budget: usize,
}

/// The open batch of one pipeline.
pub(super) struct Ingest {
    parts: Parts,
    statistics: EventTimeStatistics,
    accumulators: Vec<Box<dyn Accumulator>>,
    /// By the slot of the source.
    tracks: Vec<Option<Track>>,
    /// Places that have a slot.
    placed: usize,
    /// By place.
    positions: Vec<SourcePositions>,
    /// The positions a track begins with, until its first row gives it a place.
    begin_positions: BTreeMap<TopicPartition, SourcePositions>,
    says: Vec<Say>,
    counted: Counted,
}

impl Ingest {
    /// Nothing read yet.
    #[must_use]
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            statistics: EventTimeStatistics::new(
                &parts.policy.bounds,
                parts.policy.grid,
                Reading {
                    creates_only: parts.creates_only,
                    in_source_order: parts.decoder.in_source_order(),
                },
            ),
            accumulators: parts.accumulators.iter().map(|make| make()).collect(),
            tracks: Vec::new(),
            placed: 0,
            positions: Vec::new(),
            begin_positions: BTreeMap::new(),
            says: Vec::new(),
            counted: Counted::default(),
            parts,
        }
    }

    /// Reading begins, or begins anew, at what the table holds of a partition.
    pub(super) fn begin(
        &mut self,
        slot: u32,
        at: &TopicPartition,
        position: Position,
        state: &State,
    ) {
        let slot = slot as usize;
        if self.tracks.len() <= slot {
            self.tracks.resize(slot + 1, None);
        }
        let place = self.tracks[slot].as_ref().and_then(|track| track.place);
        self.tracks[slot] = Some(Track {
            at: at.clone(),
            start: position.next_offset,
            next: position,
            reading: true,
            place,
        });
        let known = state.partition(&at.topic, at.partition);
        let positions = known
            .map(|known| known.positions.clone())
            .unwrap_or_default();
        match place {
            Some(place) => self.positions[place] = positions,
            None => drop(self.begin_positions.insert(at.clone(), positions)),
        }
    }

    /// Reading ends: another worker has the partition.
    pub(super) fn end(&mut self, at: &TopicPartition) {
        for track in self
            .tracks
            .iter_mut()
            .flatten()
            .filter(|track| track.at == *at)
        {
            track.reading = false;
        }
    }

    /// Takes one record.
    ///
    /// # Errors
    /// It cannot be decoded and there is no dead-letter topic, or that topic does not take it. The records before it are in
    /// the batch, and the batch ends before it.
    pub(super) fn take(&mut self, message: &Message<'_>, now_us: i64) -> Result<(), Error> {
        let Some(track) = self
            .tracks
            .get_mut(message.slot() as usize)
            .and_then(Option::as_mut)
        else {
            return Ok(());
        };
        if !track.reading || message.offset() < track.next.next_offset {
            return Ok(());
        }
        let headers = MessageHeaders(*message);
        let record = Record {
            topic: &track.at.topic,
            partition: track.at.partition,
            offset: message.offset(),
            timestamp_us: message.timestamp_us(),
            ingested_at_us: now_us,
            key: message.key(),
            value: message.value(),
            headers: &headers,
        };
        match self.parts.decoder.decode(&record, &mut self.parts.rows) {
            Ok(Decoded::Rows(rows)) => self.counted.rows += rows as u64,
            Ok(Decoded::Signal(signal)) => {
                *self.counted.signals.entry(signal_name(signal)).or_default() += 1;
            }
            Err(fault) => reject(
                self.parts.dead_letters.as_mut(),
                &mut self.statistics,
                message,
                &fault,
            )?,
        }
        self.counted.records += 1;
        self.counted.bytes +=
            (record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len)) as u64;
        track.next = Position {
            next_offset: message.offset() + 1,
            leader_epoch: message.leader_epoch().or(track.next.leader_epoch),
        };
        Ok(())
    }

    /// Everything of a partition below `offset` was delivered: what is missing there never comes. The leader epoch of the last
    /// row says nothing about an offset behind it.
    pub(super) fn end_of_partition(&mut self, slot: u32, offset: i64) {
        if let Some(Some(track)) = self.tracks.get_mut(slot as usize)
            && track.reading
            && offset > track.next.next_offset
        {
            track.next = Position::at(offset);
        }
    }

    /// Writes the rows at hand where they are enough, and closes files where memory runs short.
    ///
    /// # Errors
    /// Storage fails.
    pub(super) fn flush_if_full(&mut self, now_us: i64) -> Result<(), Error> {
        let full = self.parts.rows.len() + CHUNK > ROWS_A_FLUSH
            || self.parts.rows.bytes() > self.parts.budget / 4;
        if full { self.flush(now_us) } else { Ok(()) }
    }

    fn flush(&mut self, now_us: i64) -> Result<(), Error> {
        if self.parts.rows.is_empty() {
            return Ok(());
        }
        self.place_partitions();
        let Self {
            parts,
            statistics,
            positions,
            says,
            ..
        } = self;
        statistics.judge(&mut parts.rows, positions, now_us, says);
        statistics.observe(parts.rows.facts(), says);
        if self.accumulators.is_empty() {
            let batch = parts.rows.finish();
            parts.writer.write(&batch)?;
        } else {
            let facts = parts.rows.facts().to_vec();
            let batch = parts.rows.finish();
            let observed = Observed {
                batch: &batch,
                facts: &facts,
                says,
                partitions: parts.rows.partitions(),
            };
            for accumulator in &mut self.accumulators {
                accumulator.observe(&observed);
            }
            parts.writer.write(&batch)?;
        }
        let unknown = parts.decoder.take_unknown();
        self.counted.unknown_fields += unknown.count;
        self.counted.new_unknown_fields.extend(unknown.new_names);
        while parts.writer.held_bytes() > parts.budget {
            if parts.writer.close_largest()? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Gives new places of `Rows::partitions` their track and source positions.
    fn place_partitions(&mut self) {
        for partition in &self.parts.rows.partitions()[self.placed..] {
            let at = TopicPartition::new(Arc::clone(&partition.topic), partition.partition);
            let mut tracks = self.tracks.iter_mut().flatten();
            if let Some(track) = tracks.find(|track| track.at == at) {
                track.place = Some(self.placed);
            }
            self.placed += 1;
            self.positions
                .push(self.begin_positions.remove(&at).unwrap_or_default());
        }
    }

    /// Rows read and not sealed, and files closed.
    #[must_use]
    pub(super) fn waiting(&self) -> super::buffer::Waiting {
        super::buffer::Waiting {
            rows: self.statistics.records() + self.parts.rows.len() as u64,
            closed_files: self.parts.writer.file_counts().0,
        }
    }

    /// Bytes of rows and open files.
    #[must_use]
    pub(super) fn held_bytes(&self) -> usize {
        self.parts.rows.bytes() + self.parts.writer.held_bytes()
    }

    /// The partitions that are read, and the position delivered of each.
    #[must_use]
    pub(super) fn delivered(&self) -> Vec<(TopicPartition, i64)> {
        self.reading()
            .map(|track| (track.at.clone(), track.next.next_offset))
            .collect()
    }

    fn reading(&self) -> impl Iterator<Item = &Track> {
        self.tracks.iter().flatten().filter(|track| track.reading)
    }

    /// What sealing would bring of each partition, quantiles left out.
    #[must_use]
    pub(super) fn outlook(&self) -> Vec<PartitionNews> {
        self.news(|place| {
            let outlook = self.statistics.outlook(place);
            (outlook.stats, outlook.newest_change)
        })
    }

    fn news(
        &self,
        of_place: impl Fn(
            usize,
        ) -> (
            Option<crate::watermark::PartitionStats>,
            Option<crate::watermark::NewestChange>,
        ),
    ) -> Vec<PartitionNews> {
        let news = |track: &Track| {
            let (stats, newest_change) = track.place.map_or((None, None), &of_place);
            PartitionNews {
                topic: track.at.topic.to_string(),
                partition: track.at.partition,
                start_offset: track.start,
                end_offset: track.next.next_offset,
                leader_epoch: track.next.leader_epoch,
                stats,
                positions: track.place.map(|place| self.positions[place].clone()),
                newest_change,
                asked_end: None,
            }
        };
        self.reading().map(news).collect()
    }

    /// Takes the batch, and begins the next one where it ends.
    ///
    /// # Errors
    /// Storage fails, or dead letters are not confirmed. The batch is lost then.
    pub(super) fn seal(&mut self, now_us: i64) -> Result<SealedBatch, Error> {
        self.flush(now_us)?;
        if let Some(dead_letters) = &mut self.parts.dead_letters {
            self.counted.dead_letters += dead_letters.flush(DEAD_LETTER_PATIENCE)?;
        }
        let files = self.parts.writer.finish()?;
        let times = self.statistics.seal();
        let none = (None, None);
        let of_place = |place: usize| {
            times
                .partitions
                .get(place)
                .map_or(none, |found| (found.stats, found.newest_change))
        };
        let news = self.news(of_place);
        let mut summary = BTreeMap::new();
        for accumulator in &mut self.accumulators {
            accumulator.fold(&mut summary);
        }
        self.accumulators = self.parts.accumulators.iter().map(|make| make()).collect();
        self.advance_starts(&news);
        Ok(SealedBatch {
            files,
            news,
            times,
            summary,
        })
    }

    /// The table holds everything up to these ends: the open batch begins there.
    pub(super) fn advance_starts(&mut self, news: &[PartitionNews]) {
        let ends: HashMap<(&str, i32), i64> = news
            .iter()
            .map(|news| ((news.topic.as_str(), news.partition), news.end_offset))
            .collect();
        for track in self.tracks.iter_mut().flatten() {
            if let Some(end) = ends.get(&(&*track.at.topic, track.at.partition)) {
                track.start = track.start.max(*end);
            }
        }
    }

    /// Gives up what was read since the last seal and deletes its files: no commit was sent for them.
    pub(super) fn give_up(&mut self) {
        if !self.parts.rows.is_empty() {
            self.place_partitions();
            drop(self.parts.rows.finish());
        }
        drop(self.statistics.seal());
        self.accumulators = self.parts.accumulators.iter().map(|make| make()).collect();
        if let Err(error) = self.parts.writer.abandon() {
            tracing::warn!(%error, "files of a batch that was given up remain");
        }
    }

    /// What was counted since the last call.
    pub(super) fn take_counted(&mut self) -> Counted {
        std::mem::take(&mut self.counted)
    }
}

fn reject(
    dead_letters: Option<&mut DeadLetters>,
    statistics: &mut EventTimeStatistics,
    message: &Message<'_>,
    fault: &Fault,
) -> Result<(), Error> {
    let Some(dead_letters) = dead_letters else {
        return Err(Error::Undecodable {
            at: message.at().clone(),
            offset: message.offset(),
            fault: fault.clone(),
        });
    };
    let error = fault.to_string();
    let rejected = Rejected {
        at: message.at(),
        offset: message.offset(),
        timestamp_us: message.timestamp_us(),
        key: message.key(),
        value: message.value(),
        reason: fault.reason(),
        error: &error,
    };
    dead_letters.send(&rejected, message.headers())?;
    statistics.count_undecodable();
    Ok(())
}

fn signal_name(signal: Signal) -> &'static str {
    match signal {
        Signal::Tombstone => "tombstone",
        Signal::Heartbeat { .. } => "heartbeat",
        Signal::Resolved { .. } => "resolved",
        Signal::SchemaChange => "schema-change",
        Signal::TransactionBegin | Signal::TransactionEnd => "transaction",
        Signal::LogicalMessage => "logical-message",
    }
}

/// The headers of a message, as a decoder asks for them.
struct MessageHeaders<'m>(Message<'m>);

impl cdc::Headers for MessageHeaders<'_> {
    fn last(&self, name: &str) -> Option<&[u8]> {
        self.0
            .headers()
            .filter(|header| header.name == name)
            .last()
            .and_then(|header| header.value)
    }
}
