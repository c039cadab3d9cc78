//! Whether a sealed batch may still go onto the table.
//!
//! In come the offset ranges of a batch and the next offsets that the table holds; out comes what to do with the batch. No
//! I/O: the table was loaded by the caller, and the commit that follows is guarded by exactly that base.
//!
//! A batch goes whole or not at all: its files mix partitions, so one lost partition loses them all.

use crate::kafka::TopicPartition;

/// What a batch holds of one source partition: the offsets `[start, end)`, whether or not each of them was a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetRange {
    /// The partition.
    pub at: TopicPartition,
    /// Where reading began: the offset that was sought to, or the end of the batch before.
    pub start: i64,
    /// The next offset after the batch (exclusive).
    pub end: i64,
}

/// What the table says of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The table stands where the batch begins, in every partition.
    Go,
    /// The table stands where the batch ends: an attempt whose answer was lost did take effect.
    Done,
    /// Somebody else has moved these partitions on. Drop the batch and read the table.
    Fenced(Vec<Lost>),
}

/// A partition that the table no longer has where the batch begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The partition.
    pub at: TopicPartition,
    /// Where the batch begins.
    pub start: i64,
    /// The table's next offset; `None`: the table does not know the partition. The same as the start: the batch was read from another log.
    pub next: Option<i64>,
}

/// Judges a batch by the table's next offsets. `outcome_unknown` tells whether an attempt to commit this very batch was sent and
/// never answered: only then can its end on the table be ours.
///
/// A range without offsets judges nothing but that the partition still stands there.
pub fn judge(
    ranges: &[OffsetRange],
    next: impl Fn(&TopicPartition) -> Option<i64>,
    outcome_unknown: bool,
) -> Verdict {
    let moved = ranges.iter().any(|range| range.end > range.start);
    if outcome_unknown
        && moved
        && ranges
            .iter()
            .all(|range| next(&range.at) == Some(range.end))
    {
        return Verdict::Done;
    }
    let lost: Vec<Lost> = ranges
        .iter()
        .filter_map(|range| {
            let next = next(&range.at);
            (next != Some(range.start)).then(|| Lost {
                at: range.at.clone(),
                start: range.start,
                next,
            })
        })
        .collect();
    if lost.is_empty() {
        Verdict::Go
    } else {
        Verdict::Fenced(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn range(partition: i32, start: i64, end: i64) -> OffsetRange {
        OffsetRange {
            at: TopicPartition::new("t", partition),
            start,
            end,
        }
    }

    fn verdict(table: &[(i32, i64)], ranges: &[OffsetRange], unknown: bool) -> Verdict {
        let table: BTreeMap<i32, i64> = table.iter().copied().collect();
        judge(ranges, |at| table.get(&at.partition).copied(), unknown)
    }

    #[test]
    fn batch_goes_where_the_table_stands_at_its_start() {
        assert_eq!(
            verdict(&[(0, 5), (1, 7)], &[range(0, 5, 9), range(1, 7, 7)], false),
            Verdict::Go
        );
    }

    #[test]
    fn one_moved_partition_fences_the_whole_batch() {
        let Verdict::Fenced(lost) =
            verdict(&[(0, 5), (1, 8)], &[range(0, 5, 9), range(1, 7, 9)], false)
        else {
            panic!("not fenced");
        };
        assert_eq!(
            lost,
            [Lost {
                at: TopicPartition::new("t", 1),
                start: 7,
                next: Some(8)
            }]
        );
    }

    /// Another worker committed the same range: our rows are on the table once already, through its files.
    #[test]
    fn end_on_the_table_is_ours_only_after_a_lost_answer() {
        let table = [(0, 9), (1, 9)];
        let ranges = [range(0, 5, 9), range(1, 7, 9)];
        assert_eq!(verdict(&table, &ranges, true), Verdict::Done);
        assert!(matches!(
            verdict(&table, &ranges, false),
            Verdict::Fenced(_)
        ));
    }

    #[test]
    fn half_of_a_batch_on_the_table_is_never_done() {
        assert!(matches!(
            verdict(&[(0, 9), (1, 7)], &[range(0, 5, 9), range(1, 7, 9)], true),
            Verdict::Fenced(_)
        ));
    }

    /// Trying an empty commit again is harmless, taking it for done would lose its news.
    #[test]
    fn empty_batch_is_never_done() {
        assert_eq!(verdict(&[(0, 5)], &[range(0, 5, 5)], true), Verdict::Go);
    }

    #[test]
    fn partition_unknown_to_the_table_fences() {
        assert!(matches!(
            verdict(&[], &[range(0, 0, 1)], false),
            Verdict::Fenced(_)
        ));
    }
}
