//! TiDB's timestamps: milliseconds since 1970-01-01 UTC above 18 bits that count within the millisecond.
//!
//! Of this century they are above 2^53, so they are whole numbers of 64 bits from the first byte on and never a double.

use super::scan::{Scan, Text};
use super::{Bad, Signal};
use crate::watermark::in_range;

/// Bits of the counter within a millisecond.
const COUNTER_BITS: u32 = 18;

impl Signal {
    /// The signal that every change below the timestamp `tso` was sent; `None` where its time is not from 1990 until 2200.
    #[must_use]
    pub fn resolved(tso: i64) -> Option<Signal> {
        time_us(tso).map(|time_us| Signal::Resolved { tso, time_us })
    }
}

/// The milliseconds of a timestamp in µs since 1970-01-01 UTC; `None` where they are not from 1990 until 2200.
pub(super) fn time_us(tso: i64) -> Option<i64> {
    let ms = tso >> COUNTER_BITS;
    ms.checked_mul(1000).filter(|us| in_range(*us))
}

/// The timestamp here, as a number or as text; any other value is passed over.
pub(super) fn read(scan: &mut Scan<'_>) -> Result<Option<i64>, Bad> {
    if scan.token() != b'"' {
        return scan.int();
    }
    let Text::Plain(from, to) = scan.text()? else {
        return Ok(None);
    };
    let digits = std::str::from_utf8(&scan.message[from..to]).ok();
    Ok(digits.and_then(|digits| digits.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(text: &str) -> Result<Option<i64>, Bad> {
        let mut unescaped = String::new();
        let mut scan = Scan::new(text.as_bytes(), &mut unescaped);
        let tso = read(&mut scan)?;
        scan.end()?;
        Ok(tso)
    }

    /// Taken as TiDB's `TIDB_PARSE_TSO` takes it.
    #[test]
    fn the_time_is_above_eighteen_bits() {
        let tso = 443_852_055_297_916_932;
        assert_eq!(time_us(tso), Some(1_693_161_221_687_000));
        assert_eq!(
            Signal::resolved(tso),
            Some(Signal::Resolved {
                tso,
                time_us: time_us(tso).unwrap()
            })
        );
    }

    /// A time outside the years of event times is a broken message, not an old one.
    #[test]
    fn a_time_of_other_years_is_none() {
        for tso in [
            i64::MIN,
            -1,
            0,
            1,
            1_796_032_800_000,
            i64::MAX,
            7_258_118_400_000 << COUNTER_BITS,
        ] {
            assert_eq!(Signal::resolved(tso), None, "{tso}");
        }
        assert!(Signal::resolved((7_258_118_400_000 << COUNTER_BITS) - 1).is_some());
    }

    /// One beyond 2^53 in the last bit: a double would join the two.
    #[test]
    fn every_bit_counts_in_number_and_text() {
        for tso in [470_827_662_540_800_001_i64, 470_827_662_540_800_002] {
            assert_eq!(read_all(&tso.to_string()), Ok(Some(tso)));
            assert_eq!(read_all(&format!("\"{tso}\"")), Ok(Some(tso)));
        }
        for other in [
            "null",
            "true",
            "1.0",
            "4.7e17",
            "\"\"",
            "\"4.7e17\"",
            "\"470827662540800001 \"",
            "18446744073709551615",
            "[1]",
            "\"\\u0034\"",
        ] {
            assert_eq!(read_all(other), Ok(None), "{other}");
        }
        assert!(read_all("47x").is_err());
    }
}
