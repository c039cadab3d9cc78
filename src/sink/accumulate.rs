//! What a batch says about its rows: the statistics of event time, and whatever else wants to see each row.
//!
//! An [`Accumulator`] sees the rows of a batch as they go into the files, and folds what it found into the batch when it is
//! sealed. It does no I/O and knows no clock. A batch that is dropped takes its accumulators with it: what they saw was never
//! committed.
//!
//! A row counts once, under one name: with a say, or excluded as one of [`Say`]'s kinds.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;

use super::tracks::Known;
use crate::cdc::{NO_TIME, Op, RowFacts, Snapshot, SourcePartition};
use crate::watermark::{
    Bounds, CellCounts, Digest, Excluded, Grid, NewestChange, PartitionStats, Policy, RowTime, Say,
    Sketch,
};

/// Rows on their way into the files.
#[derive(Clone, Copy)]
pub struct Observed<'a> {
    /// The rows in the table's schema, metadata columns and all.
    pub batch: &'a RecordBatch,
    /// What is known of each row beside its columns.
    pub facts: &'a [RowFacts],
    /// Whether each row has a say about the claim.
    pub says: &'a [Say],
    /// Topics and partitions by [`RowFacts::partition`]; places stay the same for the life of a pipeline.
    pub partitions: &'a [SourcePartition],
}

/// Sees each row of a batch, and folds what it found into the snapshot's summary.
pub trait Accumulator: Send {
    /// Looks at some of the batch's rows; called once for each row of the batch, in the order of each partition.
    fn observe(&mut self, rows: &Observed<'_>);

    /// The batch is sealed: adds to its summary. Keys begin with the name of whoever adds them; `tidemark.` is taken.
    fn fold(&mut self, summary: &mut BTreeMap<String, String>);
}

/// Makes the accumulators of one batch; called anew for each.
pub type AccumulatorFactory = Arc<dyn Fn() -> Box<dyn Accumulator> + Send + Sync>;

/// What the rows of one source partition showed.
#[derive(Clone, Debug, Default)]
pub struct PartitionTimes {
    /// The rows with a say; `None`: there was none.
    pub stats: Option<PartitionStats>,
    /// The newest change, with a say or without.
    pub newest_change: Option<NewestChange>,
}

/// The statistics of event time of one sealed batch.
#[derive(Clone, Debug)]
pub struct EventTimes {
    /// By the place of the partition.
    pub partitions: Vec<PartitionTimes>,
    /// Rows in all.
    pub rows: u64,
    /// Rows without a say.
    pub excluded: Excluded,
    /// Rows with a say, by cell.
    pub cells: CellCounts,
    /// The event times of the rows with a say.
    pub sketch: Option<Sketch>,
}

/// How the rows of a pipeline are to be read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The event time is a column that updates and deletes carry on: only created rows have a say, the others count as without
    /// one.
    pub creates_only: bool,
    /// A partition has the changes of a source in the order of their positions. Where it does not, a replay is below a resolved
    /// position, not below the greatest one.
    pub in_source_order: bool,
    /// The table's claim: an edge of the cells of before, where these have changed.
    pub claim_us: Option<i64>,
}

/// Gathers [`EventTimes`] while a batch is open.
pub struct EventTimeStatistics {
    bounds: Bounds,
    grid: Grid,
    reading: Reading,
    partitions: Vec<Gathering>,
    times: Vec<i64>,
    rows: u64,
    excluded: Excluded,
    cells: CellCounts,
}

#[derive(Default)]
struct Gathering {
    digest: Digest,
    least_us: Option<i64>,
    greatest_us: Option<i64>,
    newest_change: Option<NewestChange>,
}

impl EventTimeStatistics {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(policy: &Policy, reading: Reading) -> Self {
        Self {
            bounds: policy.bounds.clone(),
            grid: policy.grid,
            reading,
            partitions: Vec::new(),
            times: Vec::new(),
            rows: 0,
            excluded: Excluded::default(),
            cells: CellCounts::new(policy.grid, reading.claim_us),
        }
    }

    /// Judges rows before they become a batch: marks replays, and says for each row whether it counts. `sources` are the names
    /// of the sources by place, `known` is what is known by place of the partition, `now_us` the worker's wall clock.
    ///
    /// # Panics
    /// The place of a row's source or partition is not there.
    pub fn judge(
        &self,
        rows: &mut [RowFacts],
        sources: &[Arc<str>],
        known: &mut [Known],
        now_us: i64,
        says: &mut Vec<Say>,
    ) {
        says.clear();
        says.reserve(rows.len());
        for facts in rows {
            let source = &sources[facts.source as usize];
            let commit_time_us = some(facts.commit_time_us);
            let known = &mut known[facts.partition as usize];
            let positions = &mut known.positions;
            let judged = if self.reading.in_source_order {
                positions.judge(source, facts.position, commit_time_us)
            } else {
                positions.judge_resolved(facts.position)
            };
            facts.replayed = judged.replayed;
            facts.incarnation = judged.counter;
            says.push(
                self.bounds.say(
                    &RowTime {
                        event_time_us: some(facts.event_time_us)
                            .filter(|_| !self.reading.creates_only || facts.op == Op::Create),
                        record_time_us: some(facts.record_time_us),
                        snapshot: facts.snapshot != Snapshot::Streamed,
                        replayed: judged.replayed,
                        backfill_before_us: known.backfill_before_us,
                    },
                    now_us,
                ),
            );
        }
    }

    /// Looks at judged rows, which have one say each, in the order of each partition.
    pub fn observe(&mut self, facts: &[RowFacts], says: &[Say]) {
        self.rows += facts.len() as u64;
        let runs = facts.chunk_by(|a, b| a.partition == b.partition);
        let mut from = 0;
        for run in runs {
            let says = &says[from..from + run.len()];
            from += run.len();
            self.observe_run(run, says);
        }
    }

    fn observe_run(&mut self, run: &[RowFacts], says: &[Say]) {
        let place = run[0].partition as usize;
        if self.partitions.len() <= place {
            self.partitions.resize_with(place + 1, Gathering::default);
        }
        self.times.clear();
        let mut newest: Option<NewestChange> = None;
        for (facts, say) in run.iter().zip(says) {
            match say {
                Say::Yes => self.times.push(facts.event_time_us),
                say => self.excluded.count(*say),
            }
            let change = NewestChange {
                record_time_us: facts.record_time_us,
                snapshot: facts.snapshot == Snapshot::Initial,
            };
            if facts.record_time_us != NO_TIME {
                newest = Some(newest.map_or(change, |newest| newest.newer(change)));
            }
        }
        self.cells.extend(&self.times);
        let gathering = &mut self.partitions[place];
        gathering.newest_change = match (gathering.newest_change, newest) {
            (Some(old), Some(new)) => Some(old.newer(new)),
            (old, new) => new.or(old),
        };
        for time_us in &self.times {
            gathering.least_us = Some(
                gathering
                    .least_us
                    .map_or(*time_us, |least| least.min(*time_us)),
            );
            gathering.greatest_us = gathering.greatest_us.max(Some(*time_us));
        }
        gathering.digest.extend(&self.times);
    }

    /// Counts a message that no decoder understood.
    pub(crate) fn count_undecodable(&mut self) {
        self.excluded.undecodable += 1;
    }

    /// How many rows there are so far, and messages that no decoder understood.
    #[must_use]
    pub(crate) fn records(&self) -> u64 {
        self.rows + self.excluded.undecodable
    }

    /// What the partition at `place` would show if the batch were sealed now, without its quantiles: the least stands for
    /// each. Good enough to see whether a cell could close.
    #[must_use]
    pub(crate) fn outlook(&self, place: usize) -> PartitionTimes {
        let Some(gathering) = self.partitions.get(place) else {
            return PartitionTimes::default();
        };
        let stats = gathering
            .least_us
            .zip(gathering.greatest_us)
            .map(|(least_us, greatest_us)| PartitionStats {
                rows: gathering.digest.count(),
                least_us,
                ladder_us: [least_us; 3],
                greatest_us,
            });
        PartitionTimes {
            stats,
            newest_change: gathering.newest_change,
        }
    }

    /// The statistics of the batch; everything begins anew.
    pub fn seal(&mut self) -> EventTimes {
        let mut sketches = Vec::with_capacity(self.partitions.len());
        let mut partitions = Vec::with_capacity(self.partitions.len());
        for gathering in &mut self.partitions {
            let sketch = gathering.digest.finish();
            partitions.push(PartitionTimes {
                stats: sketch.as_ref().map(Sketch::stats),
                newest_change: gathering.newest_change,
            });
            sketches.extend(sketch);
            *gathering = Gathering::default();
        }
        EventTimes {
            partitions,
            rows: std::mem::take(&mut self.rows),
            excluded: std::mem::take(&mut self.excluded),
            cells: std::mem::replace(
                &mut self.cells,
                CellCounts::new(self.grid, self.reading.claim_us),
            ),
            sketch: Sketch::merge(&sketches),
        }
    }
}

fn some(us: i64) -> Option<i64> {
    (us != NO_TIME).then_some(us)
}
