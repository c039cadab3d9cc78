//! Cells that got rows after they were final.
//!
//! A row below the claim is written like every other, and its cell gets a *revision*: whoever has read the cell reads it
//! again. By choice the cell is withheld, too: it does not count as final until the claim next rises, when the windows that
//! hold the late rows have moved on or everything was read once more.
//!
//! The list is bounded. What it cannot hold is one more entry over all that was taken out, from its lowest cell on. A
//! revision never goes back: a cell that was taken out comes in again above whatever it had.

use super::cells::LateCells;
use super::gaps::Gaps;

/// Cells kept apart.
pub const MAX_AMENDED: usize = 32;

/// What late rows do to their cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LateData {
    /// They are counted in the commit that brings them.
    Ignore = 0,
    /// The cell gets a revision, too.
    #[default]
    Notify = 1,
    /// And is withheld until the claim next rises.
    Reopen = 2,
}

/// A cell, or all that the list could not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmendedCell {
    /// Its start.
    pub from_us: i64,
    /// Its end.
    pub before_us: i64,
    /// How many commits brought late rows, at most; of several cells the greatest.
    pub revision: u64,
    /// How many late rows came.
    pub rows: u64,
    /// When the newest of these commits was made.
    pub at_us: i64,
    /// Whether it does not count as final at present.
    pub withheld: bool,
}

/// The cells of a table that were amended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amended {
    cells: Vec<AmendedCell>,
    overflow: Option<AmendedCell>,
    /// The claim below which the newest cell is withheld: above it, none is.
    withheld_at_us: Option<i64>,
}

impl LateData {
    /// Every choice.
    pub const ALL: [LateData; 3] = [LateData::Ignore, LateData::Notify, LateData::Reopen];

    /// The name in a summary.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            LateData::Ignore => "ignore",
            LateData::Notify => "notify",
            LateData::Reopen => "reopen",
        }
    }

    /// The choice of a name.
    #[must_use]
    pub fn from_label(label: &str) -> Option<LateData> {
        let mut all = LateData::ALL.into_iter();
        all.find(|choice| choice.label() == label)
    }

    /// The choice of a byte in the state.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<LateData> {
        let mut all = LateData::ALL.into_iter();
        all.find(|choice| *choice as u8 == byte)
    }
}

impl Amended {
    /// What was written down: cells in any order, the rest, and the claim that has to be passed before what is withheld counts
    /// again. `None` when it is more than a list holds.
    #[must_use]
    pub fn of(
        mut cells: Vec<AmendedCell>,
        overflow: Option<AmendedCell>,
        withheld_at_us: Option<i64>,
    ) -> Option<Self> {
        cells.sort_by_key(|cell| (cell.from_us, cell.before_us));
        (cells.len() <= MAX_AMENDED).then_some(Amended {
            cells,
            overflow,
            withheld_at_us,
        })
    }

    /// The claim above which nothing is withheld any more; `None`: nothing is.
    #[must_use]
    pub fn withheld_at_us(&self) -> Option<i64> {
        self.withheld_at_us
    }

    /// The cells, in order.
    #[must_use]
    pub fn cells(&self) -> &[AmendedCell] {
        &self.cells
    }

    /// What the list could not hold: from its lowest cell to the end of its highest.
    #[must_use]
    pub fn overflow(&self) -> Option<&AmendedCell> {
        self.overflow.as_ref()
    }

    /// Whether nothing was amended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.overflow.is_none()
    }

    /// The cells that meet `[from_us, before_us)`, and the rest where it may hold some.
    pub fn within(&self, from_us: i64, before_us: i64) -> impl Iterator<Item = &AmendedCell> {
        let all = self.cells.iter().chain(&self.overflow);
        all.filter(move |cell| cell.from_us < before_us && from_us < cell.before_us)
    }

    /// The stretches that do not count as final at present.
    #[must_use]
    pub fn withheld(&self) -> Gaps {
        let mut stretches = Gaps::default();
        for cell in self.cells.iter().chain(&self.overflow) {
            if cell.withheld {
                stretches.add(cell.from_us, cell.before_us);
            }
        }
        stretches
    }

    /// All of it as one entry, from the lowest cell to the highest.
    #[must_use]
    pub(super) fn in_one(&self) -> Amended {
        let mut one = Amended {
            cells: Vec::new(),
            overflow: self.overflow,
            withheld_at_us: self.withheld_at_us,
        };
        self.cells.iter().for_each(|cell| one.put_away(*cell));
        one
    }

    /// Takes the late rows of a commit in. `claim_us`: the claim that they lie below. `withheld_at_us`: the claim that has to be
    /// passed before their cells count again; `None`: they go on to count.
    pub(super) fn take(
        &mut self,
        late: &LateCells,
        claim_us: i64,
        at_us: i64,
        withheld_at_us: Option<i64>,
    ) {
        let withheld = withheld_at_us.is_some();
        if late.rows() > 0 {
            self.withheld_at_us = self.withheld_at_us.max(withheld_at_us);
        }
        for late in &late.cells {
            self.amend(AmendedCell {
                from_us: late.from_us,
                before_us: late.before_us,
                revision: 1,
                rows: late.rows,
                at_us,
                withheld,
            });
        }
        if let Some((from_us, rows)) = late.overflow {
            self.put_away(AmendedCell {
                from_us,
                before_us: claim_us,
                revision: self
                    .overflow
                    .map_or(0, |rest| rest.revision)
                    .saturating_add(1),
                rows,
                at_us,
                withheld,
            });
        }
    }

    /// Where the claim has risen, nothing is withheld any more.
    pub(super) fn release_above(&mut self, claim_us: Option<i64>) {
        if claim_us > self.withheld_at_us {
            let all = self.cells.iter_mut().chain(&mut self.overflow);
            all.for_each(|cell| cell.withheld = false);
            self.withheld_at_us = None;
        }
    }

    /// Takes in what another writer says of the same cells. Of a cell that one of the two no longer names, its rest says how many
    /// revisions it had there, whichever of them takes the other in.
    pub(super) fn merge(&mut self, other: &Amended) {
        if let Some(rest) = other.overflow {
            let named = |cell: &AmendedCell| {
                let mut names = other.cells.iter();
                names.any(|name| (name.from_us, name.before_us) == (cell.from_us, cell.before_us))
            };
            let met = |cell: &AmendedCell| {
                rest.from_us < cell.before_us && cell.from_us < rest.before_us && !named(cell)
            };
            for cell in self.cells.iter_mut().filter(|cell| met(cell)) {
                cell.revision = cell.revision.saturating_add(rest.revision);
            }
        }
        other.cells.iter().for_each(|cell| self.amend(*cell));
        if let Some(rest) = other.overflow {
            self.put_away(rest);
        }
        self.withheld_at_us = self.withheld_at_us.max(other.withheld_at_us);
    }

    fn amend(&mut self, news: AmendedCell) {
        let key = |cell: &AmendedCell| (cell.from_us, cell.before_us);
        match self.cells.binary_search_by_key(&key(&news), key) {
            Ok(at) => {
                let cell = &mut self.cells[at];
                cell.revision = cell.revision.saturating_add(news.revision);
                cell.rows = cell.rows.saturating_add(news.rows);
                cell.at_us = cell.at_us.max(news.at_us);
                cell.withheld |= news.withheld;
            }
            Err(at) => {
                let before = self
                    .overflow
                    .filter(|rest| rest.from_us < news.before_us && news.from_us < rest.before_us);
                let before = before.map_or(0, |rest| rest.revision);
                let revision = before.saturating_add(news.revision);
                self.cells.insert(at, AmendedCell { revision, ..news });
            }
        }
        if self.cells.len() > MAX_AMENDED {
            let cells = self.cells.iter().enumerate();
            // The one that was amended last the longest ago: who wanted to know has seen it.
            let oldest = cells.min_by_key(|(_, cell)| (cell.at_us, cell.from_us));
            if let Some((at, _)) = oldest {
                let cell = self.cells.remove(at);
                self.put_away(cell);
            }
        }
    }

    fn put_away(&mut self, cell: AmendedCell) {
        let rest = self.overflow.get_or_insert(AmendedCell { rows: 0, ..cell });
        *rest = AmendedCell {
            from_us: rest.from_us.min(cell.from_us),
            before_us: rest.before_us.max(cell.before_us),
            revision: rest.revision.max(cell.revision),
            rows: rest.rows.saturating_add(cell.rows),
            at_us: rest.at_us.max(cell.at_us),
            withheld: rest.withheld || cell.withheld,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::LateCell;
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn late(hours: impl IntoIterator<Item = i64>) -> LateCells {
        let cell = |hour: i64| LateCell {
            from_us: hour * HOUR,
            before_us: (hour + 1) * HOUR,
            rows: 2,
        };
        LateCells {
            cells: hours.into_iter().map(cell).collect(),
            overflow: None,
        }
    }

    #[test]
    fn every_commit_with_late_rows_is_a_revision() {
        let mut amended = Amended::default();
        amended.take(&late([3, 5]), 9 * HOUR, 1, None);
        amended.take(&late([5]), 9 * HOUR, 2, None);
        let seen: Vec<_> = amended
            .cells()
            .iter()
            .map(|cell| (cell.from_us / HOUR, cell.revision, cell.rows, cell.at_us))
            .collect();
        assert_eq!(seen, [(3, 1, 2, 1), (5, 2, 4, 2)]);
        assert!(amended.withheld().is_empty());
        let within = |from: i64, before: i64| amended.within(from * HOUR, before * HOUR).count();
        assert_eq!((within(3, 4), within(4, 5), within(0, 9)), (1, 0, 2));
    }

    #[test]
    fn a_withheld_cell_is_released_as_a_whole_and_keeps_its_revision() {
        let mut amended = Amended::default();
        amended.take(&late([3]), 9 * HOUR, 1, Some(9 * HOUR));
        assert_eq!(amended.withheld().stretches(), [(3 * HOUR, 4 * HOUR)]);
        amended.release_above(Some(9 * HOUR));
        assert!(!amended.withheld().is_empty(), "it has not risen");
        amended.release_above(Some(10 * HOUR));
        assert!(amended.withheld().is_empty());
        assert_eq!(amended.cells()[0].revision, 1);
    }

    #[test]
    fn two_writers_make_one_list() {
        let mut first = Amended::default();
        first.take(&late([3, 5]), 9 * HOUR, 1, None);
        let mut second = Amended::default();
        second.take(&late([5, 6]), 8 * HOUR, 2, Some(8 * HOUR));
        first.merge(&second);
        let cells = first.cells().iter();
        let seen: Vec<_> = cells
            .map(|cell| (cell.from_us / HOUR, cell.revision))
            .collect();
        assert_eq!(seen, [(3, 1), (5, 2), (6, 1)]);
        assert_eq!(first.withheld().stretches(), [(5 * HOUR, 7 * HOUR)]);
        first.release_above(Some(8 * HOUR));
        assert!(!first.withheld().is_empty());
        first.release_above(Some(8 * HOUR + 1));
        assert!(first.withheld().is_empty());
    }

    /// Else a revision would fall with the writer that commits, and the next late row be taken for a known one.
    #[test]
    fn a_cell_that_one_writer_no_longer_names_keeps_its_revisions_whoever_merges() {
        let mut full = Amended::default();
        for at_us in 1..4 {
            full.take(&late([7]), 90 * HOUR, at_us, None);
        }
        let mut short = Amended::default();
        short.take(&late([7]), 90 * HOUR, 5, None);
        let revision = |of: &Amended, with: &Amended| {
            let mut merged = of.clone();
            merged.merge(with);
            merged.within(7 * HOUR, 8 * HOUR).next().unwrap().revision
        };
        assert_eq!((revision(&full, &short), revision(&short, &full)), (4, 4));
        for hour in 10..42 {
            full.take(&late([hour]), 90 * HOUR, hour, None);
        }
        assert!(full.overflow().is_some_and(|rest| rest.revision == 3));
        let both = (revision(&full, &short), revision(&short, &full));
        assert!(both.0 >= 4 && both.1 >= 4, "{both:?}");
        short.take(&late([7]), 90 * HOUR, 50, None);
        let next = (revision(&full, &short), revision(&short, &full));
        assert!(next.0 > both.0 && next.1 > both.1, "{both:?} {next:?}");
    }

    /// A reader that compares revisions may miss no change, whatever was taken out in between.
    #[test]
    fn what_the_list_cannot_hold_is_named_from_its_lowest_cell_on() {
        let mut amended = Amended::default();
        amended.take(&late([7]), 90 * HOUR, 1, Some(9 * HOUR));
        amended.take(&late([7]), 90 * HOUR, 2, None);
        for hour in 10..42 {
            amended.take(&late([hour]), 90 * HOUR, hour, None);
        }
        assert_eq!(amended.cells().len(), MAX_AMENDED);
        let rest = amended.overflow().unwrap();
        assert_eq!((rest.from_us, rest.before_us), (7 * HOUR, 8 * HOUR));
        assert_eq!((rest.revision, rest.rows, rest.withheld), (2, 4, true));
        amended.take(&late([7]), 90 * HOUR, 50, None);
        let again = amended.within(7 * HOUR, 8 * HOUR).next().unwrap();
        assert_eq!(again.revision, 3, "above what it had");
        assert_eq!(amended.overflow().unwrap().before_us, 11 * HOUR);
        let mut many = late([]);
        many.overflow = Some((2 * HOUR, 9));
        amended.take(&many, 90 * HOUR, 60, Some(90 * HOUR));
        let rest = amended.overflow().unwrap();
        assert_eq!((rest.from_us, rest.before_us), (2 * HOUR, 90 * HOUR));
        assert_eq!((rest.revision, rest.rows), (3, 15));
        assert_eq!(amended.withheld().stretches(), [(2 * HOUR, 90 * HOUR)]);
    }

    /// Revisions stand on the table, where anybody can write any number: the greatest stays what it is.
    #[test]
    fn greatest_revision_has_none_above_it() {
        let claim_us = 20 * HOUR;
        let mut amended = Amended::default();
        amended.take(&late([7]), claim_us, 1, None);
        amended.cells[0].revision = u64::MAX;
        amended.overflow = Some(AmendedCell {
            from_us: 0,
            ..amended.cells[0]
        });
        let other = amended.clone();
        amended.take(&late([7]), claim_us, 2, None);
        let beyond = LateCells {
            overflow: Some((0, 1)),
            ..late([8])
        };
        amended.take(&beyond, claim_us, 3, None);
        amended.merge(&other);
        let all = amended.cells.iter().chain(&amended.overflow);
        assert!(all.clone().count() > 1);
        assert_eq!(amended.cells[0].revision, u64::MAX);
        assert_eq!(amended.overflow.map(|rest| rest.revision), Some(u64::MAX));
    }
}
