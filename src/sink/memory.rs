//! What a process remembers of a pipeline from one session to the next.
//!
//! The table is the truth; this is what it cannot tell. A table that was dropped and made again, or restored from an old
//! metadata file, looks whole to anybody who has not seen it before. A log that was cut and has grown again looks whole from outside.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::kafka::TopicPartition;
use crate::watermark::Seen;

/// The memory of one pipeline. It outlives a changed specification, not the process.
#[derive(Debug, Default)]
pub(super) struct Memory {
    remembered: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    seen: Option<Seen>,
    truncated: BTreeMap<TopicPartition, i64>,
    /// When each of the partitions that the broker does not name was first found missing.
    missing: BTreeMap<TopicPartition, Duration>,
}

impl Memory {
    /// The newest commit of the writer that was seen on its table.
    pub(super) fn seen(&self) -> Option<Seen> {
        self.lock().seen
    }

    /// A commit of the writer is on its table.
    pub(super) fn see(&self, seen: Seen) {
        self.lock().seen = Some(seen);
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

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
