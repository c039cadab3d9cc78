//! Rows per cell of a batch, and which of them turn out to be late.
//!
//! The claim may rise between the moment a row is read and the commit attempt, so the batch counts every cell and each
//! attempt compares with its own base.
//!
//! Both lists are bounded: what does not fit is counted in one more entry that names its lowest cell.

use std::collections::BTreeMap;

use super::grid::Grid;

/// Cells a batch counts apart.
pub const MAX_COUNTED: usize = 4096;

/// Late cells that a commit names.
pub const MAX_LATE: usize = 32;

/// Rows with a say of one batch, by cell.
///
/// Where the grid has changed the claim may lie within a cell: there the cell is cut in two, so that its rows above are not
/// taken for late.
#[derive(Clone, Debug)]
pub struct CellCounts {
    grid: Grid,
    edge_us: Option<i64>,
    /// End of the cell and its rows, by start.
    counts: BTreeMap<i64, (i64, u64)>,
    /// The cell of the last row and its count so far: rows come in order of time, more or less.
    last: LateCell,
    overflow: Option<(i64, u64)>,
}

/// A cell with late rows of one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateCell {
    /// Its start.
    pub from_us: i64,
    /// Its end.
    pub before_us: i64,
    /// Its late rows.
    pub rows: u64,
}

/// Late rows of one commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LateCells {
    /// The cells, in order.
    pub cells: Vec<LateCell>,
    /// What the list could not hold: the lowest cell of it, and its rows.
    pub overflow: Option<(i64, u64)>,
}

impl CellCounts {
    /// Nothing counted yet. `edge_us`: the claim when the batch begins.
    #[must_use]
    pub fn new(grid: Grid, edge_us: Option<i64>) -> Self {
        CellCounts {
            grid,
            edge_us,
            counts: BTreeMap::new(),
            last: LateCell {
                from_us: i64::MAX,
                before_us: i64::MAX,
                rows: 0,
            },
            overflow: None,
        }
    }

    /// Counts a row. Cheap while rows stay in one cell.
    #[inline]
    pub fn count(&mut self, event_time_us: i64) {
        if self.last.from_us <= event_time_us && event_time_us < self.last.before_us {
            self.last.rows += 1;
        } else {
            self.turn(event_time_us);
        }
    }

    /// Counts a column.
    pub fn extend(&mut self, event_times_us: &[i64]) {
        for event_time_us in event_times_us {
            self.count(*event_time_us);
        }
    }

    /// What lies below a claim.
    #[must_use]
    pub fn below(&self, claim_us: Option<i64>) -> LateCells {
        let mut late = LateCells::default();
        let Some(claim_us) = claim_us else {
            return late;
        };
        let mut counts = self.counts.clone();
        if self.last.rows > 0 {
            let last = counts.entry(self.last.from_us);
            last.or_insert((self.last.before_us, 0)).1 += self.last.rows;
        }
        late.overflow = self.overflow.filter(|(start_us, _)| *start_us < claim_us);
        for (from_us, (before_us, rows)) in counts.range(..claim_us) {
            if late.cells.len() < MAX_LATE {
                late.cells.push(LateCell {
                    from_us: *from_us,
                    before_us: *before_us,
                    rows: *rows,
                });
            } else {
                overflow(&mut late.overflow, *from_us, *rows);
            }
        }
        late
    }

    fn turn(&mut self, event_time_us: i64) {
        let (from_us, before_us) = self.cell(event_time_us);
        let begun = LateCell {
            from_us,
            before_us,
            rows: 1,
        };
        let last = std::mem::replace(&mut self.last, begun);
        if last.rows == 0 {
            return;
        }
        if self.counts.len() < MAX_COUNTED || self.counts.contains_key(&last.from_us) {
            let count = self.counts.entry(last.from_us);
            count.or_insert((last.before_us, 0)).1 += last.rows;
        } else {
            overflow(&mut self.overflow, last.from_us, last.rows);
        }
    }

    /// The cell of a row, one that is known before the grid is asked: the day in a zone takes a microsecond to work out.
    fn cell(&self, event_time_us: i64) -> (i64, i64) {
        let known = self.counts.range(..=event_time_us).next_back();
        if let Some((from_us, (before_us, _))) = known
            && event_time_us < *before_us
        {
            return (*from_us, *before_us);
        }
        let (from_us, before_us) = self.grid.cell(event_time_us);
        match self.edge_us {
            Some(edge_us) if from_us < edge_us && edge_us <= event_time_us => (edge_us, before_us),
            Some(edge_us) if event_time_us < edge_us && edge_us < before_us => (from_us, edge_us),
            _ => (from_us, before_us),
        }
    }
}

impl LateCells {
    /// Late rows altogether.
    #[must_use]
    pub fn rows(&self) -> u64 {
        let named: u64 = self.cells.iter().map(|cell| cell.rows).sum();
        named + self.overflow.map_or(0, |(_, rows)| rows)
    }
}

fn overflow(entry: &mut Option<(i64, u64)>, start_us: i64, rows: u64) {
    let (lowest_us, counted) = entry.unwrap_or((start_us, 0));
    *entry = Some((lowest_us.min(start_us), counted + rows));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn counts(seconds: impl IntoIterator<Item = i64>) -> CellCounts {
        let mut counts = CellCounts::new(Grid::new(5 * SECOND).unwrap(), None);
        for second in seconds {
            counts.count(second * SECOND);
        }
        counts
    }

    fn named(late: &LateCells) -> Vec<(i64, u64)> {
        let cells = late.cells.iter();
        cells.map(|cell| (cell.from_us, cell.rows)).collect()
    }

    #[test]
    fn rows_are_late_by_the_claim_of_the_attempt() {
        let counts = counts([0, 4, 5, 1, 12, 9]);
        assert_eq!(counts.below(None), LateCells::default());
        assert_eq!(counts.below(Some(0)), LateCells::default());
        assert_eq!(named(&counts.below(Some(5 * SECOND))), [(0, 3)]);
        assert_eq!(
            named(&counts.below(Some(15 * SECOND))),
            [(0, 3), (5 * SECOND, 2), (10 * SECOND, 1)]
        );
    }

    #[test]
    fn what_a_list_cannot_hold_names_its_lowest_cell() {
        let late = counts((0..40).map(|cell| cell * 5)).below(Some(1_000 * SECOND));
        assert_eq!(late.cells.len(), MAX_LATE);
        assert_eq!(late.overflow, Some((32 * 5 * SECOND, 8)));
        assert_eq!(late.rows(), 40);
        let many = counts((0..5_000).map(|cell| cell * 5));
        assert_eq!(many.below(Some(i64::MAX)).rows(), 5_000);
    }

    /// After a change from hours to days the claim lies within a day: what comes above it is in time.
    #[test]
    fn a_cell_that_the_claim_cuts_is_late_below_it_only() {
        let claim = Some(7 * SECOND);
        let mut counts = CellCounts::new(Grid::new(5 * SECOND).unwrap(), claim);
        for second in [6, 8, 5, 9, 2, 7] {
            counts.count(second * SECOND);
        }
        let late = |from: i64, before: i64, rows: u64| LateCell {
            from_us: from * SECOND,
            before_us: before * SECOND,
            rows,
        };
        assert_eq!(counts.below(claim).cells, [late(0, 5, 1), late(5, 7, 2)]);
    }
}
