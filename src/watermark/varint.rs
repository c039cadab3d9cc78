//! Small numbers in few bytes: LEB128 and zigzag, as in Protocol Buffers.
//!
//! Writes into a byte vector, reads out of a slice.
//!
//! The reader survives any bytes: what is not there is `None`, and no length is believed before its bytes are seen.

/// Appends an unsigned number.
pub(super) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

/// Appends a signed number.
pub(super) fn put_signed(bytes: &mut Vec<u8>, value: i64) {
    put(bytes, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Appends text with its length.
pub(super) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

/// Reads what the functions above wrote.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// How many bytes were read.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn is_done(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn signed(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        let bytes = self.take(8)?;
        Some(i64::from_le_bytes(bytes.try_into().ok()?))
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.varint()?).ok()?;
        std::str::from_utf8(self.take(len)?).ok()
    }

    /// A count of things of which each takes at least one byte.
    pub(super) fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.varint()?).ok()?;
        (count <= self.bytes.len() - self.at).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn prop_numbers_come_back(unsigned: u64, signed: i64) {
            let mut bytes = Vec::new();
            put(&mut bytes, unsigned);
            put_signed(&mut bytes, signed);
            put_text(&mut bytes, "naïve");
            let mut reader = Reader::new(&bytes);
            let back = (reader.varint(), reader.signed(), reader.text(), reader.is_done());
            prop_assert_eq!(back, (Some(unsigned), Some(signed), Some("naïve"), true));
        }
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_none() {
        assert_eq!(Reader::new(&[0x80]).varint(), None);
        assert_eq!(Reader::new(&[0xff; 11]).varint(), None);
        assert_eq!(Reader::new(&[5, b'a']).text(), None);
        assert_eq!(Reader::new(&[200, 1]).count(), None);
        assert_eq!(
            Reader::new(&[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]).text(),
            None
        );
    }
}
