//! Event times: the unit, the range, and which rows have a say in the watermark.
//!
//! An instant is an `i64` of microseconds since 1970-01-01 UTC, a length an `i64` of microseconds. The clock is a parameter.
//! The functions here run once a row: no allocation, no division.
//!
//! A row without a say is written like every other and counted under its own name; it neither moves nor holds a claim.

/// One second in microseconds.
pub const SECOND_US: i64 = 1_000_000;

/// The least event time that counts as one: 1990-01-01T00:00:00Z.
pub const LEAST_US: i64 = 631_152_000 * SECOND_US;

/// The first instant that no longer counts as an event time: 2200-01-01T00:00:00Z.
pub const END_US: i64 = 7_258_118_400 * SECOND_US;

/// Whether an instant can be an event time at all: 1990 up to, not including, 2200. Sentinels (−1, 0, `i64::MIN`,
/// `i64::MAX`, seconds or nanoseconds taken for microseconds) lie outside.
#[inline]
#[must_use]
pub const fn in_range(us: i64) -> bool {
    us >= LEAST_US && us < END_US
}

/// Rounded down to whole seconds: for lower bounds.
#[inline]
#[must_use]
pub const fn floor_second(us: i64) -> i64 {
    us.saturating_sub(us.rem_euclid(SECOND_US))
}

/// Rounded up to whole seconds: for upper bounds.
#[inline]
#[must_use]
pub const fn ceil_second(us: i64) -> i64 {
    floor_second(us.saturating_add(SECOND_US - 1))
}

/// The declared bounds under which a claim is a theorem. All lengths are in microseconds and not negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Within a source partition and among rows with a say, no row is older than an earlier one by more than this.
    pub allowed_lateness_us: i64,
    /// A row is below its partition's high watermark within this time of its event time.
    pub max_delay_us: i64,
    /// An event time further ahead of record time and worker's clock than this has no say.
    pub max_future_skew_us: i64,
    /// An event time further behind its record's time than this has no say; `None`: any age has one.
    pub max_age_us: Option<i64>,
}

/// Whether a row has a say in the watermark, and if not, under which name it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Say {
    /// It has.
    Yes,
    /// No event time, or none that could be one.
    Missing,
    /// From a snapshot: its event time says when it was read, not when it happened.
    Snapshot,
    /// Delivered once more by its source.
    Replayed,
    /// Of a topic that joined without taking the claim back, and below what was claimed then.
    Backfill,
    /// Too far in the future.
    Future,
    /// Older against its record's time than the greatest age.
    Past,
}

/// What decides a row's say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowTime {
    /// Its event time.
    pub event_time_us: Option<i64>,
    /// The timestamp of its Kafka record.
    pub record_time_us: Option<i64>,
    /// Whether it comes from a snapshot of the source.
    pub snapshot: bool,
    /// Whether its source delivered it before ([`super::SourcePositions::judge`]).
    pub replayed: bool,
    /// What was claimed when its topic joined, where that did not take the claim back.
    pub backfill_before_us: Option<i64>,
}

impl Bounds {
    /// Whether a row has a say, by the worker's clock `now_us`. The first name that fits, in the order of [`Say`].
    ///
    /// Without a record timestamp there is no age to judge: the row then has a say, which holds a claim back rather
    /// than moving it.
    #[inline]
    #[must_use]
    pub fn say(&self, row: &RowTime, now_us: i64) -> Say {
        let Some(event) = row.event_time_us.filter(|us| in_range(*us)) else {
            return Say::Missing;
        };
        if row.snapshot {
            return Say::Snapshot;
        }
        if row.replayed {
            return Say::Replayed;
        }
        if row.backfill_before_us > Some(event) {
            return Say::Backfill;
        }
        let seen = row
            .record_time_us
            .map_or(now_us, |record| record.min(now_us));
        if event.saturating_sub(self.max_future_skew_us) > seen {
            return Say::Future;
        }
        match (self.max_age_us, row.record_time_us) {
            (Some(age), Some(record)) if event.saturating_add(age) < record => Say::Past,
            _ => Say::Yes,
        }
    }
}

/// Rows without a say, by name, and those that could not be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    /// See [`Say::Missing`].
    pub missing: u64,
    /// See [`Say::Snapshot`].
    pub snapshot: u64,
    /// See [`Say::Replayed`].
    pub replayed: u64,
    /// See [`Say::Future`].
    pub future: u64,
    /// See [`Say::Past`].
    pub past: u64,
    /// See [`Say::Backfill`].
    pub backfill: u64,
    /// Messages that no decoder understood: dead letters.
    pub undecodable: u64,
}

impl Excluded {
    /// Counts one row; [`Say::Yes`] counts nothing.
    #[inline]
    pub fn count(&mut self, say: Say) {
        match say {
            Say::Yes => {}
            Say::Missing => self.missing += 1,
            Say::Snapshot => self.snapshot += 1,
            Say::Replayed => self.replayed += 1,
            Say::Backfill => self.backfill += 1,
            Say::Future => self.future += 1,
            Say::Past => self.past += 1,
        }
    }

    /// Adds the counts of another batch.
    pub fn add(&mut self, other: &Excluded) {
        self.missing += other.missing;
        self.snapshot += other.snapshot;
        self.replayed += other.replayed;
        self.future += other.future;
        self.past += other.past;
        self.backfill += other.backfill;
        self.undecodable += other.undecodable;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_796_000_000 * SECOND_US;

    fn bounds() -> Bounds {
        Bounds {
            allowed_lateness_us: 300 * SECOND_US,
            max_delay_us: 600 * SECOND_US,
            max_future_skew_us: 300 * SECOND_US,
            max_age_us: Some(3600 * SECOND_US),
        }
    }

    fn say(event: i64, record: Option<i64>) -> Say {
        let row = RowTime {
            event_time_us: Some(event),
            record_time_us: record,
            ..RowTime::default()
        };
        bounds().say(&row, NOW)
    }

    #[test]
    fn sentinels_and_wrong_units_are_no_event_time() {
        for us in [
            -1,
            0,
            i64::MIN,
            i64::MAX,
            NOW / 1000,
            NOW.saturating_mul(1000),
        ] {
            assert!(!in_range(us), "{us}");
            assert_eq!(say(us, Some(NOW)), Say::Missing);
        }
        assert!(
            in_range(LEAST_US)
                && in_range(END_US - 1)
                && !in_range(END_US)
                && !in_range(LEAST_US - 1)
        );
    }

    #[test]
    fn skew_is_measured_against_the_lesser_of_record_time_and_clock() {
        let edge = 300 * SECOND_US;
        assert_eq!(say(NOW + edge, Some(NOW)), Say::Yes);
        assert_eq!(say(NOW + edge + 1, Some(NOW)), Say::Future);
        assert_eq!(
            say(NOW + edge + 1, Some(NOW + edge)),
            Say::Future,
            "the clock is the lesser"
        );
        assert_eq!(
            say(NOW - 10 * edge, Some(NOW - 11 * edge - 1)),
            Say::Future,
            "the record is"
        );
        assert_eq!(say(NOW + edge, None), Say::Yes);
    }

    #[test]
    fn age_is_measured_against_the_record_alone() {
        let age = 3600 * SECOND_US;
        let record = NOW - 90 * 86_400 * SECOND_US;
        assert_eq!(
            say(record - age, Some(record)),
            Say::Yes,
            "the same when read months later"
        );
        assert_eq!(say(record - age - 1, Some(record)), Say::Past);
        assert_eq!(say(NOW - 2 * age, None), Say::Yes, "no record time, no age");
    }

    #[test]
    fn a_row_is_counted_under_one_name() {
        let mut row = RowTime {
            event_time_us: Some(NOW + 3600 * SECOND_US),
            record_time_us: Some(NOW),
            snapshot: true,
            replayed: true,
            backfill_before_us: Some(NOW + 7200 * SECOND_US),
        };
        let mut counted = Excluded::default();
        counted.count(bounds().say(&row, NOW));
        row.snapshot = false;
        counted.count(bounds().say(&row, NOW));
        row.replayed = false;
        counted.count(bounds().say(&row, NOW));
        row.backfill_before_us = row.event_time_us;
        counted.count(bounds().say(&row, NOW));
        let whole = Excluded {
            snapshot: 1,
            replayed: 1,
            backfill: 1,
            future: 1,
            ..Excluded::default()
        };
        assert_eq!(counted, whole);
    }

    #[test]
    fn whole_seconds_round_down_below_and_up_above_also_before_1970() {
        assert_eq!(
            (floor_second(1_500_000), ceil_second(1_500_000)),
            (1_000_000, 2_000_000)
        );
        assert_eq!((floor_second(-1), ceil_second(-1)), (-1_000_000, 0));
        assert_eq!(
            (floor_second(2_000_000), ceil_second(2_000_000)),
            (2_000_000, 2_000_000)
        );
    }
}
