//! Decimal numbers at the scale of their column: exact, or refused.
//!
//! They come as text, as JSON numbers, or as the base64 of an unscaled two's complement number.

use base64::Engine as _;

use super::Misfit;
use super::column::BASE64;

/// How a decimal column takes its values.
#[derive(Clone, Copy)]
pub(super) struct Decimal {
    pub(super) scale: u8,
    /// 10^precision: the least magnitude that is too large.
    pub(super) limit: i128,
    /// The text is the unscaled value in base64.
    pub(super) unscaled: bool,
}

impl Decimal {
    /// A whole number at the column's scale.
    #[inline]
    pub(super) fn scaled(self, value: i128) -> Result<i128, Misfit> {
        self.limited(value.checked_mul(10_i128.pow(self.scale.into())))
    }

    #[inline]
    fn limited(self, value: Option<i128>) -> Result<i128, Misfit> {
        value
            .filter(|value| value.unsigned_abs() < self.limit.unsigned_abs())
            .ok_or(Misfit::Range)
    }

    /// Decimal text, exact or refused. This is the usual form: at most 18 digits, no exponent, no more of them than the scale.
    #[inline]
    pub(super) fn parse(self, text: &[u8]) -> Result<i128, Misfit> {
        let (negative, digits) = match text {
            [b'-', digits @ ..] => (true, digits),
            _ => (false, text),
        };
        if digits.is_empty() || digits.len() > 18 {
            return self.parse_any(text);
        }
        let (mut value, mut fraction_digits, mut point) = (0_u64, 0_u8, false);
        for c in digits {
            let digit = c.wrapping_sub(b'0');
            if digit < 10 {
                value = value * 10 + u64::from(digit);
                fraction_digits += u8::from(point);
            } else if *c == b'.' && !point {
                point = true;
            } else {
                return self.parse_any(text);
            }
        }
        if fraction_digits > self.scale || digits.len() == usize::from(point) {
            return self.parse_any(text);
        }
        let mut value = i128::from(value);
        for _ in fraction_digits..self.scale {
            value = value.checked_mul(10).ok_or(Misfit::Range)?;
        }
        self.limited(Some(if negative { -value } else { value }))
    }

    /// Any decimal text: sign, digits, point, exponent. Digits behind the scale must be zeros.
    #[cold]
    fn parse_any(self, text: &[u8]) -> Result<i128, Misfit> {
        let text = std::str::from_utf8(text).map_err(|_| Misfit::Type)?;
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                (mantissa, exponent.parse::<i32>().map_err(|_| Misfit::Type)?)
            }
            None => (text, 0),
        };
        let negative = mantissa.starts_with('-');
        let unsigned = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let is_digits = |part: &str| part.bytes().all(|c| c.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !is_digits(whole) || !is_digits(fraction) {
            return Err(Misfit::Type);
        }
        let digits = whole.bytes().chain(fraction.bytes());
        let significant = digits.clone().rev().skip_while(|c| *c == b'0').count();
        if significant == 0 {
            return Ok(0);
        }
        let value = digits.take(significant).try_fold(0_i128, |value, c| {
            value.checked_mul(10)?.checked_add(i128::from(c - b'0'))
        });
        // The value is 0.whole·fraction × 10^(digits of whole + exponent); taken here: `significant` digits of it.
        let point = i64::try_from(whole.len()).map_err(|_| Misfit::Range)? + i64::from(exponent);
        let shift = point + i64::from(self.scale)
            - i64::try_from(significant).map_err(|_| Misfit::Range)?;
        let factor = u32::try_from(shift)
            .ok()
            .and_then(|shift| 10_i128.checked_pow(shift))
            .ok_or(Misfit::Range)?;
        let value = value.and_then(|value| value.checked_mul(factor));
        self.limited(if negative {
            value.map(|value| -value)
        } else {
            value
        })
    }

    /// Base64 of a big endian two's complement number, to be read at the column's scale.
    pub(super) fn unscaled(self, text: &[u8]) -> Result<i128, Misfit> {
        self.limited(Some(twos_complement(text)?))
    }

    /// `{"scale": 2, "value": "Bdw="}`, as Debezium writes a number whose column has no scale.
    pub(super) fn variable(self, written: &[u8]) -> Result<i128, Misfit> {
        let object =
            serde_json::from_slice::<serde_json::Value>(written).map_err(|_| Misfit::Type)?;
        let scale = object
            .get("scale")
            .and_then(serde_json::Value::as_i64)
            .ok_or(Misfit::Type)?;
        let value = object
            .get("value")
            .and_then(serde_json::Value::as_str)
            .ok_or(Misfit::Type)?;
        let value = twos_complement(value.as_bytes())?;
        let power = |by: u64| {
            u32::try_from(by)
                .ok()
                .and_then(|by| 10_i128.checked_pow(by))
        };
        let shift = i64::from(self.scale)
            .checked_sub(scale)
            .ok_or(Misfit::Range)?;
        let factor = power(shift.unsigned_abs()).ok_or(Misfit::Range)?;
        if shift >= 0 {
            return self.limited(value.checked_mul(factor));
        }
        self.limited((value % factor == 0).then_some(value / factor))
    }
}

/// Base64 of a big endian two's complement number of at most 16 bytes.
fn twos_complement(text: &[u8]) -> Result<i128, Misfit> {
    // Room for what the decoder writes ahead.
    let mut bytes = [0; 24];
    if text.len() > 24 {
        return Err(Misfit::Range);
    }
    let length = BASE64
        .decode_slice(text, &mut bytes)
        .map_err(|_| Misfit::Type)?;
    if !(1..=16).contains(&length) {
        return Err(if length == 0 {
            Misfit::Type
        } else {
            Misfit::Range
        });
    }
    let sign = if bytes[0] & 0x80 == 0 { 0 } else { 0xff };
    let mut wide = [sign; 16];
    wide[16 - length..].copy_from_slice(&bytes[..length]);
    Ok(i128::from_be_bytes(wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(precision: u8, scale: u8) -> Decimal {
        Decimal {
            scale,
            limit: 10_i128.pow(precision.into()),
            unscaled: false,
        }
    }

    /// Exact or refused: nothing is rounded.
    #[test]
    fn decimals_are_exact_or_refused() {
        let money = decimal(12, 2);
        for (text, cents) in [
            ("12.5", 1250),
            ("-0.01", -1),
            ("7", 700),
            ("+7", 700),
            ("7.", 700),
            (".5", 50),
            ("1.5000", 150),
            ("1e3", 100_000),
            ("125e-1", 1250),
            ("0.000000000000000000000000000000000000000000", 0),
            ("0e999999999", 0),
            ("00012.30", 1230),
            ("9999999999.99", 999_999_999_999),
            ("1234567890.0000000000000000", 123_456_789_000),
        ] {
            assert_eq!(money.parse(text.as_bytes()), Ok(cents), "{text}");
        }
        for text in [
            "", "-", ".", "1.2.3", "abc", "1e", "0x1", "NaN", "1,5", "--1", "1_000",
        ] {
            assert_eq!(money.parse(text.as_bytes()), Err(Misfit::Type), "{text}");
        }
        for text in [
            "0.001",
            "10000000000",
            "1e30",
            "1e2147483647",
            "1.0000000000000000000000000000000000000001",
        ] {
            assert_eq!(money.parse(text.as_bytes()), Err(Misfit::Range), "{text}");
        }
        assert_eq!(
            decimal(38, 10).parse(b"-9999999999999999999999999999.9999999999"),
            Ok(1 - 10_i128.pow(38))
        );
    }

    /// Debezium's `precise`: two's complement, big endian, as short as can be.
    #[test]
    fn unscaled_decimals_are_read_with_their_sign() {
        let rule = Decimal {
            unscaled: true,
            ..decimal(38, 3)
        };
        for (text, value) in [
            ("Bdw=", 1500),
            ("SZYC0w==", 1_234_567_891),
            ("/av0HAE=", -9_999_999_999),
            ("/w==", -1),
            ("AA==", 0),
            ("AA", 0),
        ] {
            assert_eq!(rule.unscaled(text.as_bytes()), Ok(value), "{text}");
        }
        assert_eq!(rule.unscaled(b""), Err(Misfit::Type));
        assert_eq!(rule.unscaled(b"12.5"), Err(Misfit::Type));
        assert_eq!(
            rule.unscaled(b"Afd+5uOsaXA1hlpdOME4xULa4ZgorjmBFQ=="),
            Err(Misfit::Range)
        );
        assert_eq!(
            rule.unscaled(b"f////////////////////w=="),
            Err(Misfit::Range)
        );
    }

    /// A scale that comes with each value is brought to the column's, if that is exact.
    #[test]
    fn decimals_with_their_own_scale_are_rescaled() {
        let rule = decimal(20, 4);
        assert_eq!(rule.variable(br#"{"scale":2,"value":"Bdw="}"#), Ok(150_000));
        assert_eq!(
            rule.variable(br#"{"scale":5,"value":"BMsv"}"#),
            Err(Misfit::Range)
        );
        assert_eq!(
            rule.variable(br#"{"scale":-2,"value":"AQ=="}"#),
            Ok(1_000_000)
        );
        assert_eq!(rule.variable(br#"{"value":"AQ=="}"#), Err(Misfit::Type));
        assert_eq!(rule.variable(b"[1]"), Err(Misfit::Type));
    }
}
