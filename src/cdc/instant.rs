//! Instants, dates and times of day as sources write them.
//!
//! Everything becomes µs since 1970-01-01 UTC (or since midnight, or days). What is not exactly one of the known forms is `None`.

use crate::watermark::in_range;

const DAY_US: i64 = 86_400_000_000;

/// The unit of an instant that came as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
    Micros,
    Nanos,
    Days,
}

impl Unit {
    /// The number in µs, rounded down.
    pub(super) fn to_us(self, number: i64) -> Option<i64> {
        match self {
            Unit::Seconds => number.checked_mul(1_000_000),
            Unit::Millis => number.checked_mul(1_000),
            Unit::Micros => Some(number),
            Unit::Nanos => Some(number.div_euclid(1_000)),
            Unit::Days => number.checked_mul(DAY_US),
        }
    }

    /// The one unit in which the number lies between 1990 and 2200: the four ranges do not overlap.
    pub(super) fn by_magnitude(number: i64) -> Option<Unit> {
        let fits = |unit: &Unit| unit.to_us(number).is_some_and(in_range);
        [Unit::Millis, Unit::Micros, Unit::Nanos, Unit::Seconds]
            .into_iter()
            .find(fits)
    }
}

/// An event time as text (ISO 8601, or a number) or as a number; the unit of a number is found by its magnitude when none is given.
pub(super) fn event_time_us(text: &[u8], unit: Option<Unit>) -> Option<i64> {
    if let Some(number) = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.trim().parse::<i64>().ok())
    {
        return unit.or_else(|| Unit::by_magnitude(number))?.to_us(number);
    }
    timestamp_us(text)
}

/// `2026-11-30`, also with a zone behind it, which a date does not have.
pub(super) fn date_days(text: &[u8]) -> Option<i32> {
    let (days, rest) = date(text)?;
    match rest {
        b"" | b"Z" => i32::try_from(days).ok(),
        _ => None,
    }
}

/// `10:00`, `10:00:00.123456`, also with `Z`.
pub(super) fn time_us(text: &[u8]) -> Option<i64> {
    let (us, rest) = time(text)?;
    matches!(rest, b"" | b"Z").then_some(us)
}

/// `2026-11-30T10:00:00.123456Z`: a space for the `T`, another offset or none (UTC), or the date alone. Finer than µs is cut off.
pub(super) fn timestamp_us(text: &[u8]) -> Option<i64> {
    let (days, rest) = date(text)?;
    let midnight_us = days * DAY_US;
    let [b'T' | b't' | b' ', clock @ ..] = rest else {
        return rest.is_empty().then_some(midnight_us);
    };
    let (clock_us, zone) = time(clock)?;
    Some(midnight_us + clock_us - offset_us(zone)?)
}

/// The leading date in days since 1970-01-01, and what follows.
fn date(text: &[u8]) -> Option<(i64, &[u8])> {
    let (date, rest) = text.split_at_checked(10)?;
    if date[4] != b'-' || date[7] != b'-' {
        return None;
    }
    let (year, month, day) = (
        number(&date[..4])?,
        number(&date[5..7])?,
        number(&date[8..])?,
    );
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last_day = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last_day).contains(&day) {
        return None;
    }
    // Howard Hinnant, "chrono-compatible low-level date algorithms", days_from_civil: years begin in March, eras are 400 years.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some((era * 146_097 + day_of_era - 719_468, rest))
}

/// The leading time of day in µs, and what follows.
fn time(text: &[u8]) -> Option<(i64, &[u8])> {
    let (clock, mut rest) = text.split_at_checked(5)?;
    let (hour, minute) = (number(&clock[..2])?, number(&clock[3..])?);
    if clock[2] != b':' || hour > 23 || minute > 59 {
        return None;
    }
    let mut us = (hour * 60 + minute) * 60_000_000;
    if let [b':', tens, ones, after @ ..] = rest {
        let second = number(&[*tens, *ones])?;
        if second > 59 {
            return None;
        }
        us += second * 1_000_000;
        rest = after;
        if let [b'.', fraction @ ..] = rest {
            let digits = fraction.iter().take_while(|c| c.is_ascii_digit()).count();
            if digits == 0 {
                return None;
            }
            let mut unit = 100_000;
            for digit in &fraction[..digits.min(6)] {
                us += i64::from(digit - b'0') * unit;
                unit /= 10;
            }
            rest = &fraction[digits..];
        }
    }
    Some((us, rest))
}

/// `Z`, `+01:00`, `+0100`, `+01`, or nothing.
fn offset_us(zone: &[u8]) -> Option<i64> {
    let (sign, digits) = match zone {
        b"" | b"Z" | b"z" => return Some(0),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits {
        [a, b] => (number(&[*a, *b])?, 0),
        [a, b, c, d] | [a, b, b':', c, d] => (number(&[*a, *b])?, number(&[*c, *d])?),
        _ => return None,
    };
    (hours <= 18 && minutes <= 59).then_some(sign * (hours * 60 + minutes) * 60_000_000)
}

/// Digits and nothing else.
fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |value, c| {
        c.is_ascii_digit().then(|| value * 10 + i64::from(c - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forms that connectors write, with what they mean.
    #[test]
    fn iso_text_is_read_in_all_its_forms() {
        let at = 1_796_032_800_000_000; // 2026-11-30T10:00:00Z
        for text in [
            "2026-11-30T10:00:00Z",
            "2026-11-30 10:00:00",
            "2026-11-30T10:00",
            "2026-11-30T10:00:00.000Z",
            "2026-11-30T11:30:00+01:30",
            "2026-11-30T05:00:00-0500",
            "2026-11-30 10:00:00+00",
        ] {
            assert_eq!(timestamp_us(text.as_bytes()), Some(at), "{text}");
        }
        assert_eq!(
            timestamp_us(b"2026-11-30T10:00:00.1234569Z"),
            Some(at + 123_456)
        );
        assert_eq!(timestamp_us(b"1969-12-31T23:59:59.999999Z"), Some(-1));
        assert_eq!(timestamp_us(b"2026-11-30"), Some(at - 36_000_000_000));
        assert_eq!(date_days(b"1970-01-01"), Some(0));
        assert_eq!(date_days(b"2000-02-29"), Some(11_016));
        assert_eq!(date_days(b"0001-01-01"), Some(-719_162));
        assert_eq!(time_us(b"23:59:59.5Z"), Some(86_399_500_000));
    }

    /// Nothing is guessed: what is not quite a date is none.
    #[test]
    fn what_is_not_iso_text_is_refused() {
        for text in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "1900-02-29",
            "2026-11-31",
            "2026-11-30T",
            "2026-11-30T24:00:00Z",
            "2026-11-30T10:60Z",
            "2026-11-30T10:00:00.Z",
            "2026-11-30T10:00:00X",
            "2026-11-30T10:00:00+19:00",
            "2026/11/30",
            "infinity",
            "0000-00-00 00:00:00",
        ] {
            assert_eq!(timestamp_us(text.as_bytes()), None, "{text}");
        }
        assert_eq!(date_days(b"2026-11-30T10:00"), None);
        assert_eq!(time_us(b"10:00:00+01:00"), None);
    }

    /// One number has one meaning between 1990 and 2200; outside there is none.
    #[test]
    fn the_unit_of_an_event_time_follows_from_its_magnitude() {
        let at = 1_796_032_800_000_000;
        for text in [
            "1796032800",
            "1796032800000",
            "1796032800000000",
            "1796032800000000999",
            "2026-11-30T10:00:00Z",
        ] {
            assert_eq!(event_time_us(text.as_bytes(), None), Some(at), "{text}");
        }
        for number in [0, -1, 1, i64::MAX, i64::MIN, 631_151_999, 7_258_118_400] {
            assert_eq!(Unit::by_magnitude(number), None, "{number}");
        }
        assert_eq!(event_time_us(b"0", Some(Unit::Millis)), Some(0));
    }
}
