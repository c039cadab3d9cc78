//! What the generator's messages became at the broker, and the judgement by it.
//!
//! The record is kept by the sender alone: offsets and instants from the broker's receipts, never from the table. The judge
//! compares it with what a reader of the table found: every row is there exactly once, and a table that called an hour
//! final held every row of it.
//!
//! A row is excused from the second rule only where the record itself shows that it broke a declared bound.

use std::collections::{BTreeMap, BTreeSet};

/// One message that the broker has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Where it lies in its partition.
    pub offset: i64,
    /// The order it is about.
    pub order: i64,
    /// Its event time.
    pub event_time_us: i64,
    /// When the sender knew that it was stored.
    pub stored_us: i64,
    /// Whether the generator meant it to be late.
    pub late: bool,
    /// Whether it is a row; a tombstone is none.
    pub is_row: bool,
    /// Its size.
    pub bytes: u64,
}

/// Everything that was sent, by partition and offset.
#[derive(Clone, Debug, Default)]
pub struct Record {
    partitions: BTreeMap<i32, BTreeMap<i64, Receipt>>,
}

/// What the pipeline declares about its source.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// Within one partition no row is older than an earlier one by more than this.
    pub lateness_us: i64,
    /// A row is stored within this of its event time.
    pub delay_us: i64,
}

/// A row as a reader of the table found it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// `_cdc_partition`.
    pub partition: i32,
    /// `_cdc_offset`.
    pub offset: i64,
    /// `_cdc_event_time`.
    pub event_time_us: Option<i64>,
    /// `id`.
    pub order: i64,
}

/// What a table said and held at one snapshot.
#[derive(Clone, Debug)]
pub struct Said {
    /// The snapshot.
    pub snapshot_id: i64,
    /// Complete from here on …
    pub complete_from_us: i64,
    /// … and before this.
    pub finalized_before_us: i64,
    /// The rows that a reader of this snapshot gets: partition and offset.
    pub rows: BTreeSet<(i32, i64)>,
}

/// What is wrong with a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A row was sent and is not there.
    Missing {
        /// Its partition.
        partition: i32,
        /// Its offset.
        offset: i64,
    },
    /// A row is there more than once.
    Doubled {
        /// Its partition.
        partition: i32,
        /// Its offset.
        offset: i64,
        /// How often.
        times: usize,
    },
    /// A row is there that was never sent, or is another than the one sent.
    Strange(Found),
    /// A table called a time complete, and lacked a row of it that kept the bounds.
    TooEarly {
        /// The snapshot that said so.
        snapshot_id: i64,
        /// Before which instant it called itself complete.
        finalized_before_us: i64,
        /// The row's partition.
        partition: i32,
        /// The row's offset.
        offset: i64,
        /// Its event time.
        event_time_us: i64,
    },
}

impl Record {
    /// Enters a message that was stored.
    pub fn enter(&mut self, partition: i32, receipt: Receipt) {
        self.partitions
            .entry(partition)
            .or_default()
            .insert(receipt.offset, receipt);
    }

    /// The offset after the last message of `partition` (exclusive).
    #[must_use]
    pub fn end_offset(&self, partition: i32) -> i64 {
        let last = self
            .partitions
            .get(&partition)
            .and_then(BTreeMap::last_key_value);
        last.map_or(0, |(offset, _)| offset + 1)
    }

    /// Every message with its partition, in the order of partitions and offsets.
    pub fn messages(&self) -> impl Iterator<Item = (i32, &Receipt)> {
        self.partitions.iter().flat_map(|(partition, receipts)| {
            receipts.values().map(|receipt| (*partition, receipt))
        })
    }

    /// Every row with its partition.
    pub fn rows(&self) -> impl Iterator<Item = (i32, &Receipt)> {
        self.messages().filter(|(_, receipt)| receipt.is_row)
    }

    /// How many bytes of `partition` lie at `next_offset` and after it.
    #[must_use]
    pub fn bytes_from(&self, partition: i32, next_offset: i64) -> u64 {
        let receipts = self.partitions.get(&partition);
        receipts.map_or(0, |receipts| {
            receipts
                .range(next_offset..)
                .map(|(_, receipt)| receipt.bytes)
                .sum()
        })
    }

    /// The rows that broke a declared bound, whether or not they were meant to.
    #[must_use]
    pub fn breaches(&self, declared: Declared) -> BTreeSet<(i32, i64)> {
        let mut breaches = BTreeSet::new();
        for (partition, receipts) in &self.partitions {
            let mut greatest_us = i64::MIN;
            for receipt in receipts.values().filter(|receipt| receipt.is_row) {
                let older_us = greatest_us.saturating_sub(receipt.event_time_us);
                let delay_us = receipt.stored_us - receipt.event_time_us;
                if older_us > declared.lateness_us || delay_us > declared.delay_us {
                    breaches.insert((*partition, receipt.offset));
                }
                greatest_us = greatest_us.max(receipt.event_time_us);
            }
        }
        breaches
    }

    /// Compares with what the table holds in the end; `found` in any order.
    #[must_use]
    pub fn judge_rows(&self, found: &[Found]) -> Vec<Fault> {
        let mut times: BTreeMap<(i32, i64), usize> = BTreeMap::new();
        let mut faults = Vec::new();
        for row in found {
            let sent = self
                .partitions
                .get(&row.partition)
                .and_then(|receipts| receipts.get(&row.offset));
            let same = sent.is_some_and(|sent| {
                sent.is_row
                    && row.event_time_us == Some(sent.event_time_us)
                    && row.order == sent.order
            });
            if same {
                *times.entry((row.partition, row.offset)).or_default() += 1;
            } else {
                faults.push(Fault::Strange(row.clone()));
            }
        }
        for (partition, receipt) in self.rows() {
            let offset = receipt.offset;
            match times.get(&(partition, offset)).copied().unwrap_or(0) {
                0 => faults.push(Fault::Missing { partition, offset }),
                1 => {}
                times => faults.push(Fault::Doubled {
                    partition,
                    offset,
                    times,
                }),
            }
        }
        faults
    }

    /// Compares what a table said at one snapshot with what it held then.
    #[must_use]
    pub fn judge_claim(&self, said: &Said, declared: Declared) -> Vec<Fault> {
        let breaches = self.breaches(declared);
        let called_complete = said.complete_from_us..said.finalized_before_us;
        self.rows()
            .filter(|(_, receipt)| called_complete.contains(&receipt.event_time_us))
            .map(|(partition, receipt)| ((partition, receipt.offset), receipt))
            .filter(|(at, _)| !said.rows.contains(at) && !breaches.contains(at))
            .map(|((partition, offset), receipt)| Fault::TooEarly {
                snapshot_id: said.snapshot_id,
                finalized_before_us: said.finalized_before_us,
                partition,
                offset,
                event_time_us: receipt.event_time_us,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: Declared = Declared {
        lateness_us: 50,
        delay_us: 100,
    };

    /// Rows of partition 0 with these event times, each stored 10 µs after the latest one so far.
    fn record(event_times: &[i64]) -> Record {
        let mut record = Record::default();
        let mut latest_us = 0;
        for (offset, event_time_us) in (0..).zip(event_times) {
            latest_us = latest_us.max(*event_time_us);
            let receipt = Receipt {
                offset,
                order: 1000 + offset,
                event_time_us: *event_time_us,
                stored_us: latest_us + 10,
                late: false,
                is_row: true,
                bytes: 100,
            };
            record.enter(0, receipt);
        }
        record
    }

    fn found(record: &Record) -> Vec<Found> {
        let row = |(partition, receipt): (i32, &Receipt)| Found {
            partition,
            offset: receipt.offset,
            event_time_us: Some(receipt.event_time_us),
            order: receipt.order,
        };
        record.rows().map(row).collect()
    }

    fn said(finalized_before_us: i64, offsets: std::ops::Range<i64>) -> Said {
        Said {
            snapshot_id: 1,
            complete_from_us: 0,
            finalized_before_us,
            rows: offsets.map(|offset| (0, offset)).collect(),
        }
    }

    #[test]
    fn table_with_every_row_once_has_no_fault() {
        let record = record(&[10, 20, 15]);
        assert_eq!(record.judge_rows(&found(&record)), []);
    }

    #[test]
    fn lost_doubled_and_changed_rows_are_each_named() {
        let record = record(&[10, 20, 30]);
        let mut rows = found(&record);
        rows.remove(0);
        rows.push(rows[0].clone());
        rows[1].order = 7;
        let strange = rows[1].clone();
        let expected = [
            Fault::Strange(strange),
            Fault::Missing {
                partition: 0,
                offset: 0,
            },
            Fault::Doubled {
                partition: 0,
                offset: 1,
                times: 2,
            },
            Fault::Missing {
                partition: 0,
                offset: 2,
            },
        ];
        assert_eq!(record.judge_rows(&rows), expected);
    }

    #[test]
    fn tombstone_is_expected_nowhere() {
        let mut record = record(&[10]);
        let tombstone = Receipt {
            offset: 1,
            is_row: false,
            ..record.rows().next().unwrap().1.clone()
        };
        record.enter(0, tombstone);
        assert_eq!(record.judge_rows(&found(&record)), []);
        assert_eq!(record.end_offset(0), 2);
    }

    #[test]
    fn claim_above_a_row_that_was_not_there_is_too_early() {
        let record = record(&[10, 120, 90]);
        let early = Fault::TooEarly {
            snapshot_id: 1,
            finalized_before_us: 100,
            partition: 0,
            offset: 2,
            event_time_us: 90,
        };
        assert_eq!(record.judge_claim(&said(100, 0..2), DECLARED), [early]);
        assert_eq!(record.judge_claim(&said(100, 0..3), DECLARED), []);
        assert_eq!(record.judge_claim(&said(90, 0..2), DECLARED), []);
    }

    /// The claim is a theorem under the bounds: outside of them nothing was promised.
    #[test]
    fn row_older_than_the_lateness_is_excused_by_the_record_alone() {
        let record = record(&[10, 180, 120]);
        assert_eq!(record.judge_claim(&said(130, 0..2), DECLARED), []);
        assert_eq!(record.breaches(DECLARED), BTreeSet::from([(0, 2)]));
    }

    #[test]
    fn row_stored_after_the_delay_is_excused() {
        let mut record = record(&[10]);
        let tardy = Receipt {
            offset: 1,
            event_time_us: 20,
            stored_us: 121,
            ..record.rows().next().unwrap().1.clone()
        };
        record.enter(0, tardy);
        assert_eq!(record.judge_claim(&said(100, 0..1), DECLARED), []);
    }

    #[test]
    fn rows_before_complete_from_were_never_promised() {
        let record = record(&[10, 20]);
        let said = Said {
            complete_from_us: 15,
            ..said(30, 1..2)
        };
        assert_eq!(record.judge_claim(&said, DECLARED), []);
    }
}
