//! A worker and its session: what is in its memory and is gone when it dies.
//!
//! The statistics, the offsets, the cadence and the errand are the sink's own; in place of files there are the offsets of the
//! rows in them.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::broker::{Log, LogId, Logs, Row, What};
use super::plan::Settings;
use super::rules::Rules;
use crate::cdc::{Op, RowFacts, SourcePartition};
use crate::kafka::{Position, TopicPartition};
use crate::sink::SealedBatch;
use crate::sink::accumulate::{EventTimeStatistics, Reading};
use crate::sink::buffer::{Cadence, Waiting};
use crate::sink::errand::Errand;
use crate::sink::finalize::Plan;
use crate::sink::question::Answer;
use crate::sink::tracks::Tracks;
use crate::watermark::{Contribution, Policy, Say, State};

/// Rows at which they go into the statistics before the batch is sealed.
const ROWS_A_FLUSH: usize = 4;

/// Whether a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    /// It stands still and knows nothing of it.
    Stalled,
    Dead,
    /// Nobody has started it yet: it is not one of those that restart.
    ToCome,
}

/// A worker.
pub(super) struct Worker {
    pub number: usize,
    /// Whose it is.
    pub pipeline: usize,
    pub name: String,
    pub life: Life,
    pub policy: Policy,
    pub session: Option<Session>,
    /// Others have its partitions, and it has not heard of it yet.
    pub lost: bool,
    /// Logs that were found to be cut below where it read, and where that was.
    pub cuts: BTreeMap<TopicPartition, i64>,
}

impl Worker {
    pub(super) fn is_to_come(&self) -> bool {
        self.life == Life::ToCome
    }
}

/// A commit that could be sent.
pub(super) struct Ready {
    /// Of which pipeline.
    pub pipeline: usize,
    pub base_id: Option<i64>,
    pub plan: Plan,
    pub contribution: Contribution,
    /// See [`UnderWay::logs`].
    pub logs: Rc<Logs>,
    /// See [`UnderWay::read`].
    pub read: Rc<Logs>,
}

/// An errand on its way.
pub(super) struct UnderWay {
    pub errand: Errand,
    pub files: Vec<(LogId, i64)>,
    /// Whose offsets its anchors and jumps are: a topic may be made anew before they land.
    pub logs: Rc<Logs>,
    /// The logs that its rows were read from.
    pub read: Rc<Logs>,
    pub commit_id: Uuid,
    pub lost_answer: bool,
    pub ready: Option<Ready>,
}

/// A session.
pub(super) struct Session {
    pub state: State,
    pub tracks: Tracks,
    pub statistics: EventTimeStatistics,
    pub cadence: Cadence,
    facts: Vec<RowFacts>,
    says: Vec<Say>,
    places: Vec<SourcePartition>,
    sources: Vec<Arc<str>>,
    slots: Vec<TopicPartition>,
    files: Vec<(LogId, i64)>,
    /// The logs that are read.
    pub read: Logs,
    /// The answer on its way, and when it was asked for.
    pub asking: Option<Answer>,
    /// The logs as they were when it was asked.
    pub logs: Rc<Logs>,
    pub answer: Option<Answer>,
    pub under_way: Option<UnderWay>,
    /// Whether the start is settled and rows are read.
    pub reading: bool,
}

impl Session {
    pub(super) fn new(state: State, policy: &Policy, settings: &Settings, seed: u64) -> Self {
        let interval = Duration::from_millis(settings.interval_ms.unsigned_abs());
        let workers = u32::try_from(settings.workers).expect("a handful");
        Session {
            statistics: EventTimeStatistics::new(
                policy,
                Reading {
                    creates_only: false,
                    in_source_order: true,
                    claim_us: state.published.finalized_before_us,
                },
            ),
            state,
            tracks: Tracks::default(),
            cadence: Cadence::new(interval, workers, seed),
            facts: Vec::new(),
            says: Vec::new(),
            places: Vec::new(),
            sources: vec!["db/1".into()],
            slots: Vec::new(),
            files: Vec::new(),
            read: Logs::default(),
            asking: None,
            logs: Rc::default(),
            answer: None,
            under_way: None,
            reading: false,
        }
    }

    /// Reading begins in a log where a table stands.
    pub(super) fn begin(&mut self, at: &TopicPartition, state: &State, log: LogId) {
        self.read.insert((at.topic.to_string(), at.partition), log);
        let Some(known) = state.partition(&at.topic, at.partition) else {
            return;
        };
        let position = Position {
            next_offset: known.next_offset,
            leader_epoch: known.leader_epoch,
        };
        let slot = self.slot(at);
        self.tracks.begin(slot, at, position, state);
    }

    fn slot(&mut self, at: &TopicPartition) -> u32 {
        let found = self.slots.iter().position(|known| known == at);
        let slot = found.unwrap_or_else(|| {
            self.slots.push(at.clone());
            self.slots.len() - 1
        });
        u32::try_from(slot).expect("a handful")
    }

    /// Takes so many records of a partition that can be delivered; `None`: the position is not in the log. That it was cut is seen
    /// before; what a client reads of a topic made anew is not.
    pub(super) fn fetch(
        &mut self,
        at: &TopicPartition,
        next: i64,
        (log_id, log): (LogId, &Log),
        records: usize,
        now_us: i64,
    ) -> Option<()> {
        if next < log.start || next > log.end() {
            return None;
        }
        let slot = self.slot(at);
        let (mut offset, mut taken, stable) = (next, 0, log.stable());
        while offset < stable && taken < records {
            let record = log.record(offset).expect("below the end");
            if log.is_delivered(record) && self.tracks.wants(slot, offset).is_some() {
                match record.what {
                    What::Row(row) => self.take(at, (log_id, offset), &row, now_us),
                    What::Undecodable => self.statistics.count_undecodable(),
                    What::Signal | What::Resolved(_) | What::Marker => {}
                }
                self.tracks.take(slot, offset, Some(record.leader_epoch));
                if let What::Resolved(us) = record.what {
                    self.tracks.promise(slot, us);
                }
                taken += 1;
            }
            offset += 1;
        }
        if offset >= stable {
            self.tracks.end_of_partition(slot, stable);
        }
        Some(())
    }

    fn take(&mut self, at: &TopicPartition, (log, offset): (LogId, i64), row: &Row, now_us: i64) {
        let named =
            |place: &SourcePartition| place.topic == at.topic && place.partition == at.partition;
        let place = self.places.iter().position(named).unwrap_or_else(|| {
            self.places.push(SourcePartition {
                topic: Arc::clone(&at.topic),
                partition: at.partition,
            });
            self.places.len() - 1
        });
        self.files.push((log, offset));
        self.facts.push(RowFacts {
            event_time_us: row.event_us,
            record_time_us: row.record_us,
            commit_time_us: row.commit_us,
            offset,
            position: row.position,
            ingested_at_us: now_us,
            sub: 0,
            partition: u32::try_from(place).expect("a handful"),
            source: 0,
            incarnation: 0,
            op: Op::Create,
            snapshot: row.snapshot,
            replayed: false,
        });
    }

    /// Rows that are enough go into the statistics.
    pub(super) fn flush_if_full(&mut self, now_us: i64, rules: &mut dyn Rules) {
        if self.facts.len() >= ROWS_A_FLUSH {
            self.flush(now_us, rules);
        }
    }

    fn flush(&mut self, now_us: i64, rules: &mut dyn Rules) {
        rules.rows(&mut self.facts, &self.places);
        let known = self.tracks.place(&self.places);
        let (facts, says) = (&mut self.facts, &mut self.says);
        self.statistics
            .judge(facts, &self.sources, known, now_us, says);
        self.statistics.observe(&self.facts, &self.says);
        self.facts.clear();
    }

    pub(super) fn waiting(&self) -> Waiting {
        Waiting {
            rows: self.statistics.records() + self.facts.len() as u64,
            closed_files: 0,
        }
    }

    /// The errand of what is read, or only of the answers, with the rows in its files.
    pub(super) fn errand(
        &mut self,
        now_us: i64,
        rules: &mut dyn Rules,
    ) -> (Errand, Vec<(LogId, i64)>) {
        let mut errand = Errand::default();
        if self.waiting().rows > 0 {
            self.flush(now_us, rules);
            let times = self.statistics.seal();
            let of_place = |place: usize| {
                let found = times.partitions.get(place);
                found.map_or((None, None), |found| (found.stats, found.newest_change))
            };
            let news = self.tracks.news(of_place);
            self.tracks.advance_starts(&news);
            errand.news.clone_from(&news);
            errand.batch = Some(SealedBatch {
                files: Vec::new(),
                news,
                times,
                summary: BTreeMap::new(),
                begun_us: now_us,
            });
        } else {
            errand.news = self.outlook();
        }
        if let Some(answer) = self.answer.take() {
            errand.hear(answer);
        }
        (errand, std::mem::take(&mut self.files))
    }

    /// What sealing would bring.
    pub(super) fn outlook(&self) -> Vec<crate::watermark::PartitionNews> {
        self.tracks.news(|place| {
            let outlook = self.statistics.outlook(place);
            (outlook.stats, outlook.newest_change)
        })
    }
}
