//! What a worker brings to a commit.
//!
//! Facts only: offsets, statistics, answers and the clocks they were read by. What they mean for the claim is worked out on
//! the base of each attempt.

use uuid::Uuid;

use crate::watermark::cells::CellCounts;
use crate::watermark::digest::Sketch;
use crate::watermark::event_time::Excluded;
use crate::watermark::frontier::{NewestChange, OpenGap, PartitionStats};
use crate::watermark::grid::Grid;
use crate::watermark::order::Order;
use crate::watermark::source_position::SourcePositions;
use crate::watermark::state::{AskedPartitions, State};

/// Why reading begins at an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table has nothing of the partition, as far as its reader knew.
    New,
    /// It left the table, and goes on.
    Back {
        /// The next offset that it left at: on a table that remembers another one the anchor is void.
        from: i64,
    },
    /// Its owner has agreed that it is read from here, whatever the table remembers of a topic of this name (`source.accept`). In a
    /// first commit: behind what had been read of a log that is no longer the same, with which it is in no order.
    Anew,
}

/// A partition's start offset, anchored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Its topic.
    pub topic: String,
    /// The id of the topic, where the broker tells one.
    pub topic_id: Option<Uuid>,
    /// Its number.
    pub partition: i32,
    /// The first offset that will be read.
    pub offset: i64,
    /// Why there.
    pub origin: Origin,
    /// The clock **after** that offset was answered.
    pub at_us: i64,
}

/// Why a partition goes on somewhere else than the table says, as its owner allowed (`onGap: Continue`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JumpKind {
    /// The log's start passed the table's next offset.
    Forward,
    /// The log was cut back and written anew below the table's next offset.
    Truncated,
    /// The partition is no longer there: it leaves, and nothing more is read of it.
    Gone,
    /// The topic is a new one of the same name.
    Recreated {
        /// Its id, where the broker tells one.
        topic_id: Option<Uuid>,
    },
}

/// A partition that goes on somewhere else than the table says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Its topic.
    pub topic: String,
    /// Its number.
    pub partition: i32,
    /// Why.
    pub kind: JumpKind,
    /// The table's next offset that the jump was derived from: on any other base it is void.
    pub from: i64,
    /// And what the table had before it, as far as that is known: another log may stand at the same offset by now.
    pub before: Option<Before>,
    /// The first offset that will be read now.
    pub offset: i64,
    /// The clock after that offset was answered.
    pub at_us: i64,
}

/// A leader's answer about the end of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedEnd {
    /// The clock **before** the question left.
    pub at_us: i64,
    /// The newest heartbeat of the source that had been read by then: of a heartbeat table the commit time of its newest
    /// row, of a connector its clock.
    pub heartbeat_us: Option<i64>,
    /// The high watermark in the answer, not the last stable offset.
    pub high_watermark: i64,
    /// The position that the consumer had reached by then. A watermark below it proves nothing.
    pub delivered: i64,
}

/// What a batch follows in its log. Offsets alone do not tell a log from what it was before its end was cut off, or its topic made
/// anew: both may stand at the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// The id of the topic; `None`: not known.
    pub topic_id: Option<Uuid>,
    /// The leader epoch of the record before it; `None`: not known.
    pub leader_epoch: Option<i32>,
    /// What was lost before it, where no row has come since.
    pub gap: Option<OpenGap>,
}

impl Before {
    /// What a table has before the next offset of a partition.
    #[must_use]
    pub fn of(state: &State, topic: &str, partition: i32) -> Option<Self> {
        let known = state.topics.get(topic)?;
        let next = known.partitions.get(&partition)?;
        Some(Self {
            topic_id: known.id,
            leader_epoch: next.leader_epoch,
            gap: next.gap,
        })
    }

    /// Whether a table that has `there` may be what the batch was read behind.
    #[must_use]
    pub fn fits(&self, there: &Self) -> bool {
        let differ = |a: Option<i32>, b: Option<i32>| a.zip(b).is_some_and(|(a, b)| a != b);
        let ids = self.topic_id.zip(there.topic_id);
        // Rows have come where the table has no gap any more.
        let jumped = there.gap.is_some() && there.gap != self.gap;
        ids.is_none_or(|(a, b)| a == b) && !differ(self.leader_epoch, there.leader_epoch) && !jumped
    }
}

/// What a worker knows that is new of one of its partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionNews {
    /// Its topic.
    pub topic: String,
    /// Its number.
    pub partition: i32,
    /// Where the batch starts: the table's next offset, or the batch is a zombie's.
    pub start_offset: i64,
    /// Where the batch ends, exclusive. The same as the start: there is no batch, and the table's next offset counts.
    pub end_offset: i64,
    /// What the batch follows, as far as its reader knew.
    pub before: Option<Before>,
    /// The leader epoch of the record before the end of the batch; `None`, too, where the position has passed its last row.
    pub leader_epoch: Option<i32>,
    /// What its rows with a say showed; `None`: there was none.
    pub stats: Option<PartitionStats>,
    /// Its source positions after the batch.
    pub positions: Option<SourcePositions>,
    /// The newest change in the batch, with a say or without.
    pub newest_change: Option<NewestChange>,
    /// The newest promise of the source in the batch: every change with an earlier commit time was sent before it.
    pub resolved_us: Option<i64>,
    /// The newest answer about its end.
    pub asked_end: Option<AskedEnd>,
}

/// What a worker brings to a commit. An empty one is a commit without data.
#[derive(Clone, Debug)]
pub struct Contribution {
    /// The commit's id, a `UUIDv7`.
    pub commit_id: Uuid,
    /// Who commits, for people.
    pub worker: String,
    /// The worker's clock at this attempt.
    pub now_us: i64,
    /// Which topics the worker reads, as its owner wrote it: a list or a pattern.
    pub subscription: String,
    /// Start offsets of partitions that the table does not know: in the first commit of all there are, later of those that
    /// were created since, or are back.
    pub anchors: Vec<Anchor>,
    /// Partitions that go on somewhere else.
    pub jumps: Vec<Jump>,
    /// The newest commit of the state that anchors and jumps were derived from; nil: there was none. What goes back in a log counts
    /// on that very state alone: somebody else may have gone back first, and read on to the offset it started from.
    pub derived_from: Option<Uuid>,
    /// Topics that the pipeline no longer reads although the state, or its last answer about the partitions, has them. They
    /// leave both with this commit.
    pub retired: Vec<String>,
    /// News of the worker's partitions.
    pub partitions: Vec<PartitionNews>,
    /// The newest answer about which partitions there are; complete: an error for one topic is no answer.
    pub asked: Option<AskedPartitions>,
    /// What a person asks for: a commit of its own, that brings nothing else.
    pub order: Option<Order>,
    /// Rows written.
    pub rows: u64,
    /// Those of them without a say, and messages that no decoder understood.
    pub excluded: Excluded,
    /// Rows with a say by cell.
    pub cells: CellCounts,
    /// The event times of the rows with a say.
    pub event_times: Option<Sketch>,
}

impl Contribution {
    /// A commit that brings nothing yet, of a worker that counts rows by these cells.
    #[must_use]
    pub fn empty(
        (commit_id, worker): (Uuid, &str),
        subscription: &str,
        grid: Grid,
        now_us: i64,
    ) -> Self {
        Contribution {
            commit_id,
            worker: worker.to_owned(),
            now_us,
            subscription: subscription.to_owned(),
            anchors: Vec::new(),
            jumps: Vec::new(),
            derived_from: None,
            retired: Vec::new(),
            partitions: Vec::new(),
            asked: None,
            order: None,
            rows: 0,
            excluded: Excluded::default(),
            cells: CellCounts::new(grid, None),
            event_times: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both stand at one offset: only what lies before it tells them apart.
    #[test]
    fn a_batch_fits_behind_the_log_that_it_was_read_from_and_no_other() {
        let gap = |restart_us: i64| OpenGap {
            from_us: None,
            restart_us,
            in_order: false,
        };
        let read = Before {
            topic_id: Some(Uuid::from_u128(9)),
            leader_epoch: Some(5),
            gap: Some(gap(1)),
        };
        let fits = |there: Before| read.fits(&there);
        assert!(fits(read));
        assert!(fits(Before::default()), "nothing is known there");
        assert!(Before::default().fits(&Before { gap: None, ..read }));
        assert!(
            fits(Before { gap: None, ..read }),
            "its first rows are there"
        );
        for other in [
            Before {
                topic_id: Some(Uuid::from_u128(10)),
                ..read
            },
            Before {
                leader_epoch: Some(6),
                ..read
            },
            Before {
                gap: Some(gap(2)),
                ..read
            },
        ] {
            assert!(!fits(other), "{other:?}");
        }
    }
}
