//! A JSON scanner that learns the order of keys.
//!
//! Each kind of object remembers its keys as they came last. The usual message matches them one masked comparison a key; any other
//! order, key or white space takes the general path, is just as correct, and is learned. Everything that is passed over is checked
//! as strictly as what is kept: strings are UTF-8, numbers are JSON's, nesting ends at 64 levels.
#![expect(
    clippy::inline_always,
    reason = "the innermost loop: measured, 464 against 530 ns a row"
)]

use super::Bad;
use super::keys::Keys;
use super::lexeme::{digit, eight_digits, is_number, text_end};

/// Deepest nesting of a value.
const MAX_DEPTH: u32 = 64;

/// A number: whole if it was written so and fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

/// A string: a part of the message that is valid UTF-8, or the scan's `unescaped`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    Plain(usize, usize),
    Unescaped,
}

/// A place in a message.
pub(super) struct Scan<'a> {
    pub(super) message: &'a [u8],
    pub(super) at: usize,
    /// The last string that had escapes.
    pub(super) unescaped: &'a mut String,
}

impl<'a> Scan<'a> {
    pub(super) fn new(message: &'a [u8], unescaped: &'a mut String) -> Scan<'a> {
        Scan {
            message,
            at: 0,
            unescaped,
        }
    }

    #[inline(always)]
    fn peek(&self) -> u8 {
        self.message.get(self.at).copied().unwrap_or(0)
    }

    /// The next byte that is no white space; 0 at the end.
    #[inline(always)]
    pub(super) fn token(&mut self) -> u8 {
        let c = self.peek();
        if c > b' ' {
            c
        } else {
            self.token_behind_space()
        }
    }

    #[cold]
    fn token_behind_space(&mut self) -> u8 {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
        self.peek()
    }

    pub(super) fn bad<T>(&self) -> Result<T, Bad> {
        Err(Bad::Syntax(self.at))
    }

    #[inline(always)]
    fn expect(&mut self, c: u8) -> Result<(), Bad> {
        if self.token() == c {
            self.at += 1;
            Ok(())
        } else {
            self.bad()
        }
    }

    /// `null`, `true` or `false`.
    #[inline(always)]
    pub(super) fn word(&mut self, word: &[u8]) -> Result<(), Bad> {
        if self.message[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(())
        } else {
            self.bad()
        }
    }

    /// Nothing but white space may follow.
    pub(super) fn end(&mut self) -> Result<(), Bad> {
        self.token();
        if self.at == self.message.len() {
            Ok(())
        } else {
            self.bad()
        }
    }

    /// The string at an opening quote.
    #[inline(always)]
    pub(super) fn text(&mut self) -> Result<Text, Bad> {
        let from = self.at + 1;
        let (to, ascii) = text_end(self.message, from);
        if self.message.get(to) == Some(&b'"') {
            if !ascii && std::str::from_utf8(&self.message[from..to]).is_err() {
                return Err(Bad::Utf8(from));
            }
            self.at = to + 1;
            return Ok(Text::Plain(from, to));
        }
        self.unescape(from, to)?;
        Ok(Text::Unescaped)
    }

    /// The bytes of a string that `text` has returned.
    pub(super) fn bytes(&self, text: Text) -> &[u8] {
        match text {
            Text::Plain(from, to) => &self.message[from..to],
            Text::Unescaped => self.unescaped.as_bytes(),
        }
    }

    /// A string that nobody wants: checked all the same.
    #[inline(always)]
    fn skip_text(&mut self) -> Result<(), Bad> {
        let from = self.at + 1;
        let (to, ascii) = text_end(self.message, from);
        if ascii && self.message.get(to) == Some(&b'"') {
            self.at = to + 1;
            return Ok(());
        }
        self.text().map(drop)
    }

    /// A string with an escape at `stop`, or one that is broken there.
    #[cold]
    fn unescape(&mut self, mut from: usize, mut stop: usize) -> Result<(), Bad> {
        self.unescaped.clear();
        loop {
            let plain =
                std::str::from_utf8(&self.message[from..stop]).map_err(|_| Bad::Utf8(from))?;
            self.unescaped.push_str(plain);
            self.at = stop;
            match self.message.get(stop) {
                Some(b'"') => {
                    self.at = stop + 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    let c = self.escape()?;
                    self.unescaped.push(c);
                    from = self.at;
                    stop = text_end(self.message, from).0;
                }
                _ => return self.bad(),
            }
        }
    }

    /// The character of the escape that begins here.
    fn escape(&mut self) -> Result<char, Bad> {
        let kind = self.message.get(self.at + 1).copied();
        let c = match kind {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return self.bad(),
        };
        self.at += 2;
        Ok(c)
    }

    /// `\uXXXX`, or two of them for a character beyond the first plane.
    fn unicode_escape(&mut self) -> Result<char, Bad> {
        let first = self.hex_escape()?;
        let code = match first {
            0xD800..0xDC00 => {
                let second = self.hex_escape()?;
                if !(0xDC00..0xE000).contains(&second) {
                    return self.bad();
                }
                0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            }
            _ => first,
        };
        char::from_u32(code).ok_or(Bad::Syntax(self.at))
    }

    fn hex_escape(&mut self) -> Result<u32, Bad> {
        let Some([b'\\', b'u', digits @ ..]) = self.message.get(self.at..self.at + 6) else {
            return self.bad();
        };
        let value = digits.iter().try_fold(0, |value, c| {
            Some(value * 16 + char::from(*c).to_digit(16)?)
        });
        let value = value.ok_or(Bad::Syntax(self.at))?;
        self.at += 6;
        Ok(value)
    }

    /// The number at a digit or minus.
    #[inline(always)]
    pub(super) fn number(&mut self) -> Result<Number, Bad> {
        let start = self.at;
        let negative = self.peek() == b'-';
        let first = start + usize::from(negative);
        let mut at = first;
        let mut value = 0;
        if let Some(eight) = eight_digits(self.message, at) {
            value = eight;
            at += 8;
            if let Some(eight) = eight_digits(self.message, at) {
                value = value * 100_000_000 + eight;
                at += 8;
            }
        }
        while let Some(digit) = digit(self.message, at) {
            if at - first >= 18 {
                return self.long_number();
            }
            value = value * 10 + digit;
            at += 1;
        }
        let digits = at - first;
        if digits == 0 || (digits > 1 && self.message[first] == b'0') {
            return self.bad();
        }
        match self.message.get(at) {
            Some(b'.') => self.fraction(negative, value, first, at + 1),
            Some(b'e' | b'E') => self.long_number(),
            _ => {
                self.at = at;
                let value = value.cast_signed();
                Ok(Number::Int(if negative { -value } else { value }))
            }
        }
    }

    /// Digits behind the point, while digits and power of ten are both exact as doubles: then their quotient is the nearest double.
    #[inline(always)]
    fn fraction(
        &mut self,
        negative: bool,
        mut value: u64,
        first: usize,
        point: usize,
    ) -> Result<Number, Bad> {
        const POWERS: [f64; 19] = [
            1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
            1e16, 1e17, 1e18,
        ];
        let mut at = point;
        while let Some(digit) = digit(self.message, at)
            && at - first < 19
        {
            value = value * 10 + digit;
            at += 1;
        }
        let more = matches!(self.message.get(at), Some(b'e' | b'E' | b'0'..=b'9'));
        if at == point || more || value > 1 << 53 {
            return self.long_number();
        }
        self.at = at;
        #[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
        let value = value as f64 / POWERS[at - point];
        Ok(Number::Float(if negative { -value } else { value }))
    }

    /// Any number. One that is whole but does not fit 64 bits is a float, as is one with an exponent.
    #[cold]
    fn long_number(&mut self) -> Result<Number, Bad> {
        let rest = &self.message[self.at..];
        let length = rest
            .iter()
            .take_while(|c| matches!(c, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
            .count();
        let written = std::str::from_utf8(&rest[..length])
            .ok()
            .filter(|_| is_number(&rest[..length]));
        let Some(written) = written else {
            return self.bad();
        };
        let number = match (written.parse(), written.parse::<f64>()) {
            (Ok(int), _) => Number::Int(int),
            (_, Ok(float)) if float.is_finite() => Number::Float(float),
            _ => return self.bad(),
        };
        self.at += length;
        Ok(number)
    }

    /// Passes over any value.
    #[inline]
    pub(super) fn skip(&mut self) -> Result<(), Bad> {
        self.skip_at(0)
    }

    #[inline]
    fn skip_at(&mut self, depth: u32) -> Result<(), Bad> {
        match self.token() {
            b'"' => self.skip_text(),
            b'n' => self.word(b"null"),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'-' | b'0'..=b'9' => self.number().map(drop),
            b'{' | b'[' => self.skip_nested(depth),
            _ => self.bad(),
        }
    }

    fn skip_nested(&mut self, depth: u32) -> Result<(), Bad> {
        if depth > MAX_DEPTH {
            return Err(Bad::Depth(self.at));
        }
        let object = self.peek() == b'{';
        let close = if object { b'}' } else { b']' };
        self.at += 1;
        if self.token() == close {
            self.at += 1;
            return Ok(());
        }
        loop {
            if object {
                if self.token() != b'"' {
                    return self.bad();
                }
                self.skip_text()?;
                self.expect(b':')?;
            }
            self.skip_at(depth + 1)?;
            match self.token() {
                b',' => self.at += 1,
                c if c == close => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.bad(),
            }
        }
    }

    /// Passes over any value and says where it stands.
    #[inline]
    pub(super) fn span(&mut self) -> Result<(usize, usize), Bad> {
        self.token();
        let from = self.at;
        self.skip()?;
        Ok((from, self.at))
    }

    /// A whole number; any other value is passed over.
    #[inline(always)]
    pub(super) fn int(&mut self) -> Result<Option<i64>, Bad> {
        if matches!(self.token(), b'-' | b'0'..=b'9') {
            return Ok(match self.number()? {
                Number::Int(value) => Some(value),
                Number::Float(_) => None,
            });
        }
        self.skip().map(|()| None)
    }

    /// Where a string without escapes stands; any other value is passed over.
    #[inline(always)]
    pub(super) fn plain_text(&mut self) -> Result<Option<(usize, usize)>, Bad> {
        if self.token() != b'"' {
            return self.skip().map(|()| None);
        }
        Ok(match self.text()? {
            Text::Plain(from, to) => Some((from, to)),
            Text::Unescaped => None,
        })
    }

    /// Whether the value is an object; anything but an object or null is refused.
    #[inline(always)]
    pub(super) fn object_or_null(&mut self, member: &'static str) -> Result<bool, Bad> {
        match self.token() {
            b'{' => Ok(true),
            b'n' => self.word(b"null").map(|()| false),
            _ => Err(Bad::Member(member)),
        }
    }

    /// The object here: `member` is called at each value and must move past it.
    #[inline]
    pub(super) fn object<S: Copy>(
        &mut self,
        keys: &mut Keys<S>,
        mut member: impl FnMut(&mut Self, S) -> Result<(), Bad>,
    ) -> Result<(), Bad> {
        self.expect(b'{')?;
        if self.token() == b'}' {
            self.at += 1;
            return Ok(());
        }
        let mut expected = 0;
        loop {
            let slot = self.key(keys, &mut expected)?;
            member(self, slot)?;
            match self.token() {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.bad(),
            }
        }
    }

    /// What the key here stands for; moves past its colon.
    #[inline(always)]
    fn key<S: Copy>(&mut self, keys: &mut Keys<S>, expected: &mut usize) -> Result<S, Bad> {
        if let Some((slot, length)) = keys.expected(*expected, self.message, self.at) {
            self.at += length;
            *expected += 1;
            return Ok(slot);
        }
        self.other_key(keys, expected)
    }

    #[inline(never)]
    fn other_key<S: Copy>(&mut self, keys: &mut Keys<S>, expected: &mut usize) -> Result<S, Bad> {
        if self.token() != b'"' {
            return self.bad();
        }
        let text = self.text()?;
        let name = std::str::from_utf8(self.bytes(text)).map_err(|_| Bad::Utf8(self.at))?;
        let slot = keys.find(name, matches!(text, Text::Plain(..)), expected);
        self.expect(b':')?;
        Ok(slot)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::UnknownFields;
    use super::*;

    /// Any JSON value as its text, with white space and escapes where they may be.
    pub(in crate::cdc) fn json() -> impl Strategy<Value = String> {
        let number = prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            any::<u64>().prop_map(|n| n.to_string()),
            (-100_000..100_000_i64, 0..7_u32).prop_map(|(n, digits)| format!(
                "{n}.{:0>width$}",
                7_u32.pow(digits),
                width = 6
            )),
            any::<f64>()
                .prop_filter("a number", |n| n.is_finite())
                .prop_map(|n| format!("{n:e}")),
        ];
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            Just("false".to_owned()),
            number,
            text(),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5)
                    .prop_map(|values| format!("[ {} ]", values.join(" ,\n"))),
                prop::collection::vec((text(), inner), 0..5).prop_map(|members| {
                    let members = members
                        .into_iter()
                        .map(|(name, value)| format!("{name}\t: {value}"));
                    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
                }),
            ]
        })
    }

    /// A string's JSON text, some characters escaped.
    fn text() -> impl Strategy<Value = String> {
        prop::collection::vec((any::<char>(), 0..8_u8), 0..24).prop_map(|chars| {
            let mut text = String::from("\"");
            for (c, escape) in chars {
                if c < ' ' || c == '"' || c == '\\' || escape == 0 {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        let _ = write!(text, "\\u{unit:04x}");
                    }
                } else if c == '/' {
                    text.push_str("\\/");
                } else {
                    text.push(c);
                }
            }
            text + "\""
        })
    }

    fn skips(message: &[u8]) -> Result<(), Bad> {
        let mut unescaped = String::new();
        let mut scan = Scan::new(message, &mut unescaped);
        scan.skip()?;
        scan.end()
    }

    fn scanned_number(text: &str) -> Result<Number, Bad> {
        let mut unescaped = String::new();
        let mut scan = Scan::new(text.as_bytes(), &mut unescaped);
        let number = scan.number()?;
        scan.end().map(|()| number)
    }

    proptest! {
        /// What is JSON is passed over; what serde_json refuses is refused, however small the damage.
        #[test]
        fn prop_json_is_told_from_what_is_not(message in json(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            prop_assert_eq!(skips(message.as_bytes()), Ok(()));
            let mut damaged = message.into_bytes();
            let at = at.index(damaged.len());
            damaged[at] = byte;
            let expected = serde_json::from_slice::<Value>(&damaged).is_ok();
            prop_assert_eq!(skips(&damaged).is_ok(), expected, "{:?}", String::from_utf8_lossy(&damaged));
            damaged.truncate(at);
            prop_assert_eq!(skips(&damaged).is_ok(), serde_json::from_slice::<Value>(&damaged).is_ok());
        }

        /// A number is the integer that it is, else the nearest double, to the last bit.
        #[test]
        fn prop_numbers_are_exact(text in "-?(0|[1-9][0-9]{0,21})(\\.[0-9]{1,21})?([eE][+-]?[0-9]{1,2})?") {
            let expected: serde_json::Number = serde_json::from_str(&text).unwrap();
            match scanned_number(&text).unwrap() {
                Number::Int(int) => prop_assert_eq!(text.parse::<i64>(), Ok(int)),
                Number::Float(float) => {
                    prop_assert!(text.parse::<i64>().is_err());
                    prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), float.to_bits());
                    prop_assert!(expected.as_f64().is_some());
                }
            }
        }

        /// A string comes out as serde_json has it.
        #[test]
        fn prop_strings_are_unescaped(text in text()) {
            let mut unescaped = String::new();
            let mut scan = Scan::new(text.as_bytes(), &mut unescaped);
            let found = scan.text().unwrap();
            let expected = serde_json::from_str::<String>(&text).unwrap();
            prop_assert_eq!(expected.as_bytes(), scan.bytes(found));
        }

        /// No bytes make the scanner panic.
        #[test]
        fn prop_any_bytes_are_harmless(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(skips(&bytes).is_ok(), serde_json::from_slice::<Value>(&bytes).is_ok());
        }
    }

    /// Leading zeros, lone signs and signs in front are no JSON, whichever path reads them.
    #[test]
    fn what_only_looks_like_a_number_is_refused() {
        for text in [
            "01",
            "-",
            "+1",
            "1.",
            ".5",
            "1e",
            "1e+",
            "--1",
            "1.2.3",
            "1e400",
            "0000000000000000000001",
            "-012345678901234567890",
        ] {
            assert!(scanned_number(text).is_err(), "{text}");
        }
        assert_eq!(
            scanned_number("-9223372036854775808"),
            Ok(Number::Int(i64::MIN))
        );
        assert_eq!(
            scanned_number("9223372036854775808"),
            Ok(Number::Float(9_223_372_036_854_775_808.0))
        );
    }

    /// A message that is nothing but brackets ends at a level, not at the end of the stack.
    #[test]
    fn nesting_ends_at_64_levels() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(skips(nested(65).as_bytes()), Ok(()));
        assert_eq!(skips(nested(66).as_bytes()), Err(Bad::Depth(65)));
        assert_eq!(skips("[".repeat(100_000).as_bytes()), Err(Bad::Depth(65)));
    }

    /// Lone surrogates are no characters.
    #[test]
    fn half_a_character_is_refused() {
        for text in [
            r#""\ud83c""#,
            r#""\udf0a""#,
            r#""\ud83cx""#,
            r#""\ud83c\n""#,
            r#""\ud83c\ud83c""#,
            r#""\u12g4""#,
            r#""\x""#,
            "\"\\",
        ] {
            assert!(skips(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(skips(b"\"\xff\""), Err(Bad::Utf8(1)));
    }

    /// Keys are found in any order, each order is learned, and unknown names are reported once.
    #[test]
    fn keys_are_found_in_any_order() {
        let mut keys = Keys::new(
            [
                ("a".to_owned(), 1),
                ("a longer name than a word".to_owned(), 2),
            ],
            0,
        );
        let mut read = |message: &str| {
            let (mut unescaped, mut slots) = (String::new(), Vec::new());
            let mut scan = Scan::new(message.as_bytes(), &mut unescaped);
            let done = scan.object(&mut keys, |scan, slot| {
                slots.push(slot);
                scan.skip()
            });
            done.and_then(|()| scan.end()).map(|()| slots)
        };
        for _ in 0..2 {
            assert_eq!(
                read(r#"{"a":1,"a longer name than a word":2,"x":3}"#),
                Ok(vec![1, 2, 0])
            );
            assert_eq!(
                read(r#" { "x" : 1 , "a longer name than a word" : 2, "a":3 } "#),
                Ok(vec![0, 2, 1])
            );
            assert_eq!(read(r#"{"\u0061":1,"y\n":2}"#), Ok(vec![1, 0]));
            assert_eq!(read("{}"), Ok(vec![]));
        }
        assert!(
            read(r#"{"a":1,}"#).is_err() && read(r#"{"a" 1}"#).is_err() && read(r"{a:1}").is_err()
        );
        let mut fields = UnknownFields::default();
        keys.report(&mut fields);
        assert_eq!(fields.new_names, ["x", "y\n"]);
        keys.report(&mut fields);
        assert_eq!(fields.new_names.len(), 2);
    }
}
