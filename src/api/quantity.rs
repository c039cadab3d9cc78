//! Lengths, sizes and instants as people write them.
//!
//! Texts become µs, bytes and µs since 1970 and back; inside the house nothing else is passed on.

use std::fmt::{self, Write};

use jiff::Timestamp;

const MS_US: i64 = 1_000;
const SECOND_US: i64 = 1_000 * MS_US;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: i64 = 24 * HOUR_US;

const LENGTH_UNITS: [(&str, i64); 5] = [
    ("ms", MS_US),
    ("d", DAY_US),
    ("h", HOUR_US),
    ("m", MINUTE_US),
    ("s", SECOND_US),
];

const SIZE_UNITS: [(&str, u64); 8] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];

/// A length from `90s`, `1h30m`, `250ms` or `1d`, in µs; `None` where the text is none.
#[must_use]
pub fn parse_length_us(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut total = 0_i64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let (unit, us) = LENGTH_UNITS
            .iter()
            .find(|(unit, _)| rest.starts_with(unit))?;
        rest = &rest[unit.len()..];
        total = total.checked_add(number.checked_mul(*us)?)?;
    }
    (!text.is_empty()).then_some(total)
}

/// A length as people write it: `5m`, `1h30m`, `250ms`; what is below a millisecond is dropped.
#[must_use]
pub fn length(us: i64) -> String {
    let mut rest = us.unsigned_abs();
    let mut text = String::from(if us < 0 { "-" } else { "" });
    for (unit, length) in [
        LENGTH_UNITS[1],
        LENGTH_UNITS[2],
        LENGTH_UNITS[3],
        LENGTH_UNITS[4],
        LENGTH_UNITS[0],
    ] {
        let length = length.unsigned_abs();
        if rest >= length {
            let _ = write!(text, "{}{unit}", rest / length);
            rest %= length;
        }
    }
    if text.trim_start_matches('-').is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

/// A size from `256Mi`, `1G` or plain bytes; `None` where the text is none.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "" => 1,
        unit => SIZE_UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    number.checked_mul(unit)
}

/// A size in the greatest binary unit that divides it: `256Mi`.
#[must_use]
pub fn bytes(size: u64) -> String {
    for (unit, bytes) in SIZE_UNITS[..4].iter().rev() {
        if size > 0 && size.is_multiple_of(*bytes) {
            return format!("{}{unit}", size / bytes);
        }
    }
    size.to_string()
}

/// Thousandths of a core from `500m`, `2` or `0.5`; `None` where the text is none.
#[must_use]
pub fn parse_cpu_millis(text: &str) -> Option<u32> {
    if let Some(millis) = text.strip_suffix('m') {
        return digits(millis)?.parse().ok();
    }
    let (cores, part) = text.split_once('.').unwrap_or((text, "0"));
    let (cores, part) = (digits(cores)?, digits(part).filter(|part| part.len() <= 3)?);
    let part: u32 = format!("{part:0<3}").parse().ok()?;
    cores
        .parse::<u32>()
        .ok()?
        .checked_mul(1_000)?
        .checked_add(part)
}

fn digits(text: &str) -> Option<&str> {
    (!text.is_empty() && text.chars().all(|c| c.is_ascii_digit())).then_some(text)
}

/// An amount of CPU as people write it: `500m`, `2`.
#[must_use]
pub fn cpu(millis: u32) -> String {
    if millis.is_multiple_of(1_000) {
        (millis / 1_000).to_string()
    } else {
        format!("{millis}m")
    }
}

/// An instant from ISO 8601, in µs since 1970 UTC: `2026-11-30T10:00:00Z`, `2026-11-30T11:00+01:00`; `None` where the text is none.
///
/// Without an offset it would mean another instant on each machine, so it is none.
#[must_use]
pub fn parse_instant_us(text: &str) -> Option<i64> {
    let instant: Timestamp = text.parse().ok()?;
    Some(instant.as_microsecond())
}

/// An instant in ISO 8601, UTC: `2026-11-30T10:00:00Z`; beyond the years ±9999 the number of µs.
#[must_use]
pub fn instant(us: i64) -> String {
    Timestamp::from_microsecond(us).map_or_else(|_| us.to_string(), |instant| instant.to_string())
}

/// An instant that shows as ISO 8601.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub i64);

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&instant(self.0))
    }
}

/// Serde: µs as ISO 8601 on the wire, for `#[serde(with = "…")]`.
pub mod iso {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes `2026-11-30T10:00:00Z`.
    ///
    /// # Errors
    /// The serializer fails.
    pub fn serialize<S: Serializer>(us: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::instant(*us))
    }

    /// Reads `2026-11-30T10:00:00Z`.
    ///
    /// # Errors
    /// The text is no instant with an offset.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_instant_us(&text)
            .ok_or_else(|| D::Error::custom(format!("\"{text}\" is no instant")))
    }
}

/// Serde: the same where there may be none.
pub mod iso_option {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes the instant, or null.
    ///
    /// # Errors
    /// The serializer fails.
    pub fn serialize<S: Serializer>(us: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
        match us {
            Some(us) => serializer.serialize_some(&super::instant(*us)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads an instant, or null.
    ///
    /// # Errors
    /// The text is no instant with an offset.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<i64>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| {
            super::parse_instant_us(&text)
                .ok_or_else(|| D::Error::custom(format!("\"{text}\" is no instant")))
        })
        .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_written() {
        let read = ["5m", "90s", "1h30m", "250ms", "1d", "0s"].map(parse_length_us);
        assert_eq!(
            read,
            [
                300_000_000,
                90_000_000,
                5_400_000_000,
                250_000,
                86_400_000_000,
                0
            ]
            .map(Some)
        );
        for wrong in [
            "",
            "5",
            "m",
            "5 m",
            "-5m",
            "5M",
            "5m3",
            "99999999999999d",
            "1.5h",
        ] {
            assert_eq!(parse_length_us(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lengths_are_shown_as_people_write_them() {
        let shown = [
            0,
            300_000_000,
            5_400_000_000,
            250_000,
            86_400_000_000,
            -61_000_000,
        ]
        .map(length);
        assert_eq!(shown, ["0s", "5m", "1h30m", "250ms", "1d", "-1m1s"]);
    }

    #[test]
    fn sizes_are_read_and_shown() {
        assert_eq!(
            ["256Mi", "1G", "4096", "1Ki"].map(parse_bytes),
            [268_435_456, 1_000_000_000, 4096, 1024].map(Some)
        );
        for wrong in ["", "Mi", "1.5Gi", "1mi", "-1", "99999999999Ti"] {
            assert_eq!(parse_bytes(wrong), None, "{wrong}");
        }
        assert_eq!([268_435_456, 1000, 0].map(bytes), ["256Mi", "1000", "0"]);
    }

    #[test]
    fn amounts_of_cpu_are_read_and_shown() {
        let read = ["500m", "2", "0.5", "1.25", "0.001", "0", "0m"].map(parse_cpu_millis);
        assert_eq!(read, [500, 2_000, 500, 1_250, 1, 0, 0].map(Some));
        for wrong in [
            "", "m", "0.0001", ".5", "1.", "-1", "+1m", "1.5m", "1e3", "5000000",
        ] {
            assert_eq!(parse_cpu_millis(wrong), None, "{wrong}");
        }
        assert_eq!([500, 2_000, 1_250].map(cpu), ["500m", "2", "1250m"]);
    }

    /// An instant without an offset would be another one on each machine.
    #[test]
    fn instants_need_an_offset() {
        assert_eq!(
            parse_instant_us("2026-11-30T10:00:00Z"),
            Some(1_796_032_800_000_000)
        );
        assert_eq!(
            parse_instant_us("2026-11-30T11:00+01:00"),
            Some(1_796_032_800_000_000)
        );
        assert_eq!(parse_instant_us("2026-11-30T10:00"), None);
        assert_eq!(instant(1_796_032_800_000_000), "2026-11-30T10:00:00Z");
    }
}
