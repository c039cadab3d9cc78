//! What a process remembers of a pipeline from one session to the next.
//!
//! The table is the truth; this is what it cannot tell. A table that was dropped and made again, or restored from an old
//! metadata file, looks whole to anybody who has not seen it before. A log that was cut and has grown again looks whole from outside.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

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

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
