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
#[derive(Clone, Debug)]
pub struct CellCounts {
    grid: Grid,
    counts: BTreeMap<i64, u64>,
    /// The cell of the last row and its count so far: rows come in order of time, more or less.
    last: (i64, u64),
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
    /// Nothing counted yet.
    #[must_use]
    pub fn new(grid: Grid) -> Self {
        CellCounts {
            grid,
            counts: BTreeMap::new(),
            last: (i64::MIN, 0),
            overflow: None,
        }
    }

    /// Counts a row. Cheap while rows stay in one cell.
    #[inline]
    pub fn count(&mut self, event_time_us: i64) {
        let (start_us, rows) = &mut self.last;
        if event_time_us.wrapping_sub(*start_us).cast_unsigned()
            < self.grid.cell_us().cast_unsigned()
        {
            *rows += 1;
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
        if self.last.1 > 0 {
            *counts.entry(self.last.0).or_default() += self.last.1;
        }
        late.overflow = self.overflow.filter(|(start_us, _)| *start_us < claim_us);
        for (start_us, rows) in counts.range(..claim_us) {
            if late.cells.len() < MAX_LATE {
                late.cells.push(LateCell {
                    from_us: *start_us,
                    before_us: self.grid.end(*start_us),
                    rows: *rows,
                });
            } else {
                overflow(&mut late.overflow, *start_us, *rows);
            }
        }
        late
    }

    fn turn(&mut self, event_time_us: i64) {
        let (start_us, rows) =
            std::mem::replace(&mut self.last, (self.grid.floor(event_time_us), 1));
        if rows == 0 {
            return;
        }
        if self.counts.len() < MAX_COUNTED || self.counts.contains_key(&start_us) {
            *self.counts.entry(start_us).or_default() += rows;
        } else {
            overflow(&mut self.overflow, start_us, rows);
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
        let mut counts = CellCounts::new(Grid::new(5 * SECOND).unwrap());
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
}
