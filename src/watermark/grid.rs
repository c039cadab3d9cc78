//! Cells: what is finalized. From one second up any length that divides a day, counted from UTC midnight.
//!
//! Instants in and out; names are for people and for paths.
//!
//! A cell is final exactly when its end is not after the claim, so a claim is always the edge of a cell.

use super::event_time::SECOND_US;

const DAY_US: i64 = 86_400 * SECOND_US;
const HOUR_US: i64 = 3_600 * SECOND_US;
const MINUTE_US: i64 = 60 * SECOND_US;

/// A grid of cells of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Grid {
    cell_us: i64,
}

/// A length that no grid of whole seconds over a day has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cell of {cell_us} µs: take whole seconds that divide a day, from 1s up to 1d")]
pub struct NoGrid {
    /// The length asked for.
    pub cell_us: i64,
}

impl Grid {
    /// A grid of cells of this length.
    ///
    /// # Errors
    /// When it is not a whole number of seconds that divides a day.
    pub fn new(cell_us: i64) -> Result<Self, NoGrid> {
        if cell_us < SECOND_US || cell_us % SECOND_US != 0 || DAY_US % cell_us != 0 {
            return Err(NoGrid { cell_us });
        }
        Ok(Grid { cell_us })
    }

    /// The length of a cell.
    #[must_use]
    pub fn cell_us(&self) -> i64 {
        self.cell_us
    }

    /// The start of the cell that holds an instant. At the edge of `i64` the result saturates.
    #[inline]
    #[must_use]
    pub fn floor(&self, us: i64) -> i64 {
        us.saturating_sub(us.rem_euclid(self.cell_us))
    }

    /// The first cell edge that is not before an instant.
    #[must_use]
    pub fn ceil(&self, us: i64) -> i64 {
        let floor = self.floor(us);
        if floor == us {
            us
        } else {
            floor.saturating_add(self.cell_us)
        }
    }

    /// The first cell edge after an instant: the end of the cell that holds it.
    #[must_use]
    pub fn end(&self, us: i64) -> i64 {
        self.floor(us).saturating_add(self.cell_us)
    }

    /// The name of the cell that holds an instant: `2026-11-30T09`, with cells below an hour `2026-11-30T09:45`, below a
    /// minute `2026-11-30T09:45:05`, of a day `2026-11-30`.
    #[must_use]
    pub fn name(&self, us: i64) -> String {
        let cell =
            jiff::Timestamp::from_microsecond(self.floor(us)).unwrap_or(jiff::Timestamp::MIN);
        let format = match self.cell_us {
            DAY_US => "%Y-%m-%d",
            cell if cell % HOUR_US == 0 => "%Y-%m-%dT%H",
            cell if cell % MINUTE_US == 0 => "%Y-%m-%dT%H:%M",
            _ => "%Y-%m-%dT%H:%M:%S",
        };
        cell.strftime(format).to_string()
    }

    /// The name of the newest cell that is final under a claim.
    #[must_use]
    pub fn last_final(&self, claim_us: i64) -> String {
        self.name(self.floor(claim_us).saturating_sub(self.cell_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(iso: &str) -> i64 {
        iso.parse::<jiff::Timestamp>().unwrap().as_microsecond()
    }

    fn grid(seconds: i64) -> Grid {
        Grid::new(seconds * SECOND_US).unwrap()
    }

    #[test]
    fn only_whole_seconds_that_divide_a_day_make_a_grid() {
        for seconds in [1, 5, 45, 900, 2_700, 3_600, 28_800, 86_400] {
            assert!(Grid::new(seconds * SECOND_US).is_ok(), "{seconds}");
        }
        for cell in [
            0,
            -SECOND_US,
            500_000,
            1_500_000,
            7 * SECOND_US,
            2 * DAY_US,
            i64::MAX,
            i64::MIN,
        ] {
            assert_eq!(Grid::new(cell), Err(NoGrid { cell_us: cell }));
        }
    }

    #[test]
    fn an_edge_belongs_to_the_cell_that_begins_there() {
        let hour = grid(3600);
        let edge = us("2026-11-30T09:00:00Z");
        assert_eq!(
            (hour.floor(edge), hour.ceil(edge), hour.end(edge)),
            (edge, edge, edge + HOUR_US)
        );
        assert_eq!(
            (
                hour.floor(edge - 1),
                hour.ceil(edge - 1),
                hour.end(edge - 1)
            ),
            (edge - HOUR_US, edge, edge)
        );
    }

    #[test]
    fn before_1970_cells_are_floored_not_truncated() {
        assert_eq!(grid(3600).floor(-1), -HOUR_US);
        assert_eq!(grid(3600).ceil(-1), 0);
        assert_eq!(grid(3600).name(-1), "1969-12-31T23");
    }

    #[test]
    fn names_say_no_more_than_the_cell() {
        let at = us("2026-11-30T09:45:07.9Z");
        let names: Vec<String> = [86_400, 7_200, 3_600, 900, 5]
            .map(|s| grid(s).name(at))
            .to_vec();
        assert_eq!(
            names,
            [
                "2026-11-30",
                "2026-11-30T08",
                "2026-11-30T09",
                "2026-11-30T09:45",
                "2026-11-30T09:45:05"
            ]
        );
        assert_eq!(
            grid(3600).last_final(us("2026-11-30T10:00:00Z")),
            "2026-11-30T09"
        );
    }

    #[test]
    fn the_edges_of_the_number_line_do_not_overflow() {
        for at in [i64::MIN, i64::MAX] {
            let _ = (
                grid(3600).floor(at),
                grid(3600).ceil(at),
                grid(3600).end(at),
                grid(3600).name(at),
            );
        }
    }
}
