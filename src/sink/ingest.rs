//! One open batch: records in, rows in files out.
//!
//! A record is decoded where it lies in the client's memory; every few thousand rows are judged, observed by the
//! accumulators and written. What cannot be decoded goes to the dead-letter topic or stops the pipeline there. Sealing takes
//! files, offset ranges and statistics as one value and begins the next batch where this one ends.
//!
//! A batch holds every record between its offsets or none: after any error here it is given up whole.

use std::collections::BTreeMap;
use std::time::Duration;

use iceberg::spec::DataFile;

use super::Error;
use super::accumulate::{
    Accumulator, AccumulatorFactory, EventTimeStatistics, EventTimes, Observed, Reading,
};
use super::fence::OffsetRange;
use super::tracks::Tracks;
use crate::cdc::{self, Decoded, Decoder, Fault, Record, Rows, Signal};
use crate::kafka::{DeadLetters, Message, Position, Rejected, TopicPartition};
use crate::lake::writer::TableWriter;
use crate::watermark::{PartitionNews, Policy, Say, State, Term};

/// Rows at which a batch of rows is handed to the writer: small enough to stay in cache, large enough for Arrow's fixed costs.
pub(super) const ROWS_A_FLUSH: usize = 8192;

/// Messages taken from the client at once.
pub(super) const CHUNK: usize = 1000;

/// How long the dead letters of a batch may take to be confirmed.
const DEAD_LETTER_PATIENCE: Duration = Duration::from_secs(30);

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
    /// When its first rows went to the writer, by the pipeline's clock: no file of it is older.
    pub begun_us: i64,
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
pub(crate) fn ranges(news: &[PartitionNews]) -> Vec<OffsetRange> {
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
    /// The table's claim.
    pub claim_us: Option<i64>,
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
    tracks: Tracks,
    /// Of the rows at hand that are judged.
    says: Vec<Say>,
    judged: Vec<Say>,
    /// Whether what the source resolves tells replays from news.
    takes_resolved: bool,
    counted: Counted,
    /// When the first rows of the batch went to the writer.
    begun_us: Option<i64>,
}

impl Ingest {
    /// Nothing read yet.
    #[must_use]
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            statistics: EventTimeStatistics::new(
                &parts.policy,
                Reading {
                    creates_only: parts.creates_only,
                    in_source_order: parts.decoder.in_source_order(),
                    claim_us: parts.claim_us,
                },
            ),
            accumulators: parts.accumulators.iter().map(|make| make()).collect(),
            tracks: Tracks::default(),
            says: Vec::new(),
            judged: Vec::new(),
            // The term declares that one changefeed feeds the topics.
            takes_resolved: !parts.decoder.in_source_order()
                && parts.policy.terms.contains(&Term::Resolved),
            counted: Counted::default(),
            begun_us: None,
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
        self.tracks.begin(slot, at, position, state);
    }

    /// Reading ends: another worker has the partition.
    pub(super) fn end(&mut self, at: &TopicPartition) {
        self.tracks.end(at);
    }

    /// Takes one record.
    ///
    /// # Errors
    /// It cannot be decoded and there is no dead-letter topic, or that topic does not take it. The records before it are in
    /// the batch, and the batch ends before it.
    pub(super) fn take(&mut self, message: &Message<'_>, now_us: i64) -> Result<(), Error> {
        let Some(at) = self.tracks.wants(message.slot(), message.offset()) else {
            return Ok(());
        };
        let headers = MessageHeaders(*message);
        let record = Record {
            topic: &at.topic,
            partition: at.partition,
            offset: message.offset(),
            timestamp_us: message.timestamp_us(),
            ingested_at_us: now_us,
            key: message.key(),
            value: message.value(),
            headers: &headers,
        };
        let mut resolved = None;
        match self.parts.decoder.decode(&record, &mut self.parts.rows) {
            Ok(Decoded::Rows(rows)) => self.counted.rows += rows as u64,
            Ok(Decoded::Signal(signal)) => {
                if let Signal::Resolved { tso, time_us } = signal {
                    resolved = Some((tso, time_us));
                }
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
        self.tracks
            .take(message.slot(), message.offset(), message.leader_epoch());
        if let Some((tso, time_us)) = resolved {
            self.tracks.promise(message.slot(), time_us);
            if self.takes_resolved {
                self.judge(now_us);
                self.tracks.resolve(message.slot(), tso, time_us);
            }
        }
        Ok(())
    }

    /// Everything of a partition below `offset` was delivered: what is missing there never comes. The leader epoch of the last
    /// row says nothing about an offset behind it.
    pub(super) fn end_of_partition(&mut self, slot: u32, offset: i64) {
        self.tracks.end_of_partition(slot, offset);
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

    /// Judges the rows that came since the last time.
    fn judge(&mut self, now_us: i64) {
        let known = self.tracks.place(self.parts.rows.partitions());
        let (facts, sources) = self.parts.rows.facts_mut();
        let facts = &mut facts[self.says.len()..];
        self.statistics
            .judge(facts, sources, known, now_us, &mut self.judged);
        self.says.append(&mut self.judged);
    }

    fn flush(&mut self, now_us: i64) -> Result<(), Error> {
        if self.parts.rows.is_empty() {
            return Ok(());
        }
        self.begun_us.get_or_insert(now_us);
        self.judge(now_us);
        let Self {
            parts,
            statistics,
            says,
            ..
        } = self;
        statistics.observe(parts.rows.facts(), says);
        let batch = if self.accumulators.is_empty() {
            parts.rows.finish()
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
            batch
        };
        says.clear();
        parts.writer.write(&batch)?;
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
        self.tracks.delivered()
    }

    /// What sealing would bring of each partition, quantiles left out.
    #[must_use]
    pub(super) fn outlook(&self) -> Vec<PartitionNews> {
        self.tracks.news(|place| {
            let outlook = self.statistics.outlook(place);
            (outlook.stats, outlook.newest_change)
        })
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
        let news = self.tracks.news(of_place);
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
            begun_us: self.begun_us.take().unwrap_or(now_us),
        })
    }

    /// The table holds everything up to these ends: the open batch begins there.
    pub(super) fn advance_starts(&mut self, news: &[PartitionNews]) {
        self.tracks.advance_starts(news);
    }

    /// Gives up what was read since the last seal and deletes its files: no commit was sent for them.
    pub(super) fn give_up(&mut self) {
        if !self.parts.rows.is_empty() {
            self.tracks.place(self.parts.rows.partitions());
            drop(self.parts.rows.finish());
        }
        self.says.clear();
        drop(self.statistics.seal());
        self.begun_us = None;
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
pub(super) struct MessageHeaders<'m>(pub(super) Message<'m>);

impl cdc::Headers for MessageHeaders<'_> {
    fn last(&self, name: &str) -> Option<&[u8]> {
        self.0
            .headers()
            .filter(|header| header.name == name)
            .last()
            .and_then(|header| header.value)
    }
}
