//! What a process remembers of a pipeline from one session to the next.
//!
//! The table is the truth; this is what it cannot tell. A table that was dropped and made again, or restored from an old
//! metadata file, looks whole to anybody who has not seen it before. A log that was cut and has grown again looks whole from outside.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iceberg::TableIdent;
use uuid::Uuid;

use super::Error;
use crate::api::Reason;
use crate::kafka::TopicPartition;
use crate::watermark::{Policy, Seen};

/// The memory of one pipeline. It outlives a changed specification, not the process.
#[derive(Debug, Default)]
pub(super) struct Memory {
    remembered: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    seen: Option<Seen>,
    /// The table that the pipeline was told to know.
    table: Option<Uuid>,
    truncated: BTreeMap<TopicPartition, i64>,
    /// When each of the partitions that the broker does not name was first found missing.
    missing: BTreeMap<TopicPartition, Duration>,
    /// The settings of the finalization, under the revision that they came with.
    policy: Option<Policy>,
    /// The revision and the claim that older settings are held at, and since when.
    overruled: Option<(Overruled, Duration)>,
}

/// A table's revision and claim.
type Overruled = (u64, Option<i64>);

impl Memory {
    /// The newest commit of the writer that was seen on its table.
    pub(super) fn seen(&self) -> Option<Seen> {
        self.lock().seen
    }

    /// A commit of the writer is on its table.
    pub(super) fn see(&self, seen: Seen) {
        self.lock().seen = Some(seen);
    }

    /// The table that was seen before this process, by the word of whoever wrote the specification.
    pub(super) fn known_table(&self) -> Option<Uuid> {
        self.lock().table
    }

    /// Whether a table may be made where there is none.
    ///
    /// # Errors
    /// It was there before.
    pub(super) fn allow_new(&self, table: &TableIdent) -> Result<(), Error> {
        let known = {
            let remembered = self.lock();
            let seen = remembered.seen.map(|seen| seen.table_uuid);
            seen.or(remembered.table)
        };
        known.map_or(Ok(()), |uuid| {
            let problem = format!(
                "table \"{table}\" is gone from the catalog; it was there with the UUID {uuid}, and is not made again without a word"
            );
            Err(Error::refused(Reason::TableNotFound, problem))
        })
    }

    /// The pipeline's table has this UUID; `None` says nothing.
    pub(super) fn know_table(&self, table: Option<Uuid>) {
        let mut remembered = self.lock();
        remembered.table = table.or(remembered.table);
    }

    /// A log was found cut below this offset.
    pub(super) fn note_truncation(&self, at: TopicPartition, offset: i64) {
        self.lock().truncated.insert(at, offset);
    }

    /// The positions below which logs were found cut, once.
    pub(super) fn take_truncations(&self) -> BTreeMap<TopicPartition, i64> {
        std::mem::take(&mut self.lock().truncated)
    }

    /// Whether these partitions, which the broker does not name, have been missing for so long. `now`: the monotonic clock. One
    /// answer may be that of a broker that has just started; what it forgot would be read again from its first row.
    pub(super) fn are_gone(
        &self,
        missing: &[TopicPartition],
        now: Duration,
        patience: Duration,
    ) -> bool {
        let mut remembered = self.lock();
        remembered.missing.retain(|at, _| missing.contains(at));
        for at in missing {
            remembered.missing.entry(at.clone()).or_insert(now);
        }
        let mut since = remembered.missing.values();
        since.all(|since| now.saturating_sub(*since) >= patience)
    }

    /// The revision under which these settings count on a table. It comes with the settings, not with a session: else, in a rolling
    /// restart, each error of an older worker would make its settings the newest.
    pub(super) fn revision(&self, policy: &Policy, table: Option<&Policy>) -> u64 {
        let mut remembered = self.lock();
        let known = remembered.policy.as_ref();
        let known = known.filter(|known| known.same_settings(policy));
        let shared = table.filter(|table| table.same_settings(policy));
        let revision = match shared.or(known) {
            Some(known) => known.revision,
            None => policy.revision_on(table),
        };
        let mut own = policy.clone();
        own.revision = revision;
        remembered.policy = Some(own);
        revision
    }

    /// Whether the settings in force on the table have held this claim all the while although it could rise: nobody who has them
    /// raises it any more. `held`: the revision and claim, where older settings are all that holds. `now`: the monotonic clock. Once
    /// so, the settings here come as newer ones.
    pub(super) fn is_overruled(
        &self,
        held: Option<Overruled>,
        now: Duration,
        patience: Duration,
    ) -> bool {
        let mut remembered = self.lock();
        let Some(held) = held else {
            remembered.overruled = None;
            return false;
        };
        let known = remembered.overruled.filter(|(known, _)| *known == held);
        let (_, since) = *remembered.overruled.insert(known.unwrap_or((held, now)));
        let over = now.saturating_sub(since) >= patience;
        if over {
            (remembered.policy, remembered.overruled) = (None, None);
        }
        over
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::testing::policy;

    #[test]
    fn a_partition_is_gone_once_it_was_missing_all_the_while() {
        let memory = Memory::default();
        let both = [TopicPartition::new("a", 0), TopicPartition::new("a", 1)];
        let at = Duration::from_secs;
        assert!(!memory.are_gone(&both[..1], at(10), at(3)));
        assert!(memory.are_gone(&[], at(11), at(3)), "none is missing");
        let back = memory.are_gone(&both[..1], at(13), at(3));
        assert!(!back, "it was there at 11");
        assert!(!memory.are_gone(&both, at(16), at(3)), "the second is new");
        assert!(memory.are_gone(&both, at(19), at(3)));
    }

    /// Of two workers in a rolling restart the older one may begin a session at any time.
    #[test]
    fn settings_come_with_a_revision_once() {
        let memory = Memory::default();
        let (own, newer) = (policy(0, 3), policy(5, 2));
        assert_eq!(memory.revision(&own, None), 1);
        assert_eq!(memory.revision(&own, Some(&newer)), 1, "in a later session");
        assert_eq!(memory.revision(&own, Some(&policy(7, 3))), 7, "the table's");
        let changed = memory.revision(&policy(0, 4), Some(&newer));
        assert_eq!(changed, 6, "another specification");
        assert_eq!(memory.revision(&own, Some(&policy(6, 4))), 7, "and back");
        assert_eq!(Memory::default().revision(&own, Some(&newer)), 6);
    }

    #[test]
    fn newer_settings_that_nobody_raises_by_are_overruled_after_a_while() {
        let memory = Memory::default();
        let (own, newer) = (policy(0, 3), policy(2, 2));
        let at = Duration::from_secs;
        let over = |held, now| memory.is_overruled(held, at(now), at(30));
        memory.revision(&own, None);
        assert!(!over(Some((2, None)), 0));
        assert!(!over(Some((2, Some(1))), 29), "somebody raised it");
        assert!(!over(None, 50), "something else holds");
        assert!(!over(Some((2, Some(1))), 60));
        assert!(!over(Some((2, Some(1))), 89));
        assert_eq!(memory.revision(&own, Some(&newer)), 1);
        assert!(over(Some((2, Some(1))), 90));
        assert_eq!(memory.revision(&own, Some(&newer)), 3);
        assert!(!over(Some((4, Some(1))), 200), "from the beginning");
    }
}
