//! The logs of the model: offsets that are rows, rows of an open transaction, or nothing a reader ever gets.
//!
//! Times are whole seconds since a fixed edge of a cell.

/// Greatest time from an event to its append: the declared D.
pub(super) const DELAY: u8 = 1;

/// How much older than a row before it a row may be: the declared L.
pub(super) const LATENESS: u8 = 1;

/// What stands at one offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Entry {
    /// A row with this event time.
    Row(u8),
    /// The same, of the open transaction.
    Pending(u8),
    /// A control record, or a row of an aborted transaction.
    Nothing,
}

/// One partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Log(Vec<Entry>);

impl Log {
    /// The high watermark.
    pub(super) fn end(&self) -> u8 {
        u8::try_from(self.0.len()).unwrap()
    }

    /// The last stable offset: what a reader gets ends there.
    pub(super) fn stable_end(&self) -> u8 {
        let open = self.0.iter().position(|entry| is_pending(*entry));
        open.map_or(self.end(), |at| u8::try_from(at).unwrap())
    }

    pub(super) fn has_open_transaction(&self) -> bool {
        self.stable_end() < self.end()
    }

    /// The event times that a row appended now may have, within the bounds: the present, and the oldest there may be.
    pub(super) fn event_times(&self, now: u8) -> Vec<u8> {
        let greatest = self.0.iter().filter_map(|entry| time(*entry)).max();
        let least = now
            .saturating_sub(DELAY)
            .max(greatest.unwrap_or(0).saturating_sub(LATENESS));
        let mut times = vec![least, now];
        times.dedup();
        times
    }

    pub(super) fn append(&mut self, entry: Entry) {
        self.0.push(entry);
    }

    /// Ends the open transaction. Either way a control record follows.
    pub(super) fn end_transaction(&mut self, commit: bool) {
        for entry in &mut self.0 {
            if let Entry::Pending(time) = *entry {
                *entry = if commit {
                    Entry::Row(time)
                } else {
                    Entry::Nothing
                };
            }
        }
        self.append(Entry::Nothing);
    }

    /// The event times of the rows in `[start, end)`.
    pub(super) fn rows(&self, start: u8, end: u8) -> Vec<u8> {
        let range = &self.0[usize::from(start)..usize::from(end)];
        range
            .iter()
            .filter_map(|entry| match entry {
                Entry::Row(time) => Some(*time),
                _ => None,
            })
            .collect()
    }

    /// The least event time from `offset` on, of rows that a reader may still get.
    pub(super) fn least_from(&self, offset: u8) -> Option<u8> {
        let unread = self.0.get(usize::from(offset)..).unwrap_or_default();
        unread.iter().filter_map(|entry| time(*entry)).min()
    }
}

fn is_pending(entry: Entry) -> bool {
    matches!(entry, Entry::Pending(_))
}

fn time(entry: Entry) -> Option<u8> {
    match entry {
        Entry::Row(time) | Entry::Pending(time) => Some(time),
        Entry::Nothing => None,
    }
}
