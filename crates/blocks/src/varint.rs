//! Numbers of variable length (LEB128): seven bits in each byte, the lowest bits first. The top bit is set on
//! all bytes except the last.

/// The maximum number of bytes of a number.
const MAX_BYTES: u32 = 10;

/// Appends a number.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps small numbers of both signs to small numbers: 0, -1, 1, -2 become 0, 1, 2, 3.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Bytes that are read from front to back. A method returns `None` if the bytes end too early, or are not a
/// valid number.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Reads a number.
    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        // Most numbers have one byte.
        if let [first, rest @ ..] = self.0
            && *first < 0x80
        {
            self.0 = rest;
            return Some(u64::from(*first));
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Option<u64> {
        let mut value = 0;
        for index in 0..MAX_BYTES {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if index + 1 == MAX_BYTES && bits > 1 {
                return None;
            }
            value |= bits << (7 * index);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a number that is a size or a position.
    #[inline]
    pub fn size(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    /// Reads a number of at most 32 bits.
    #[inline]
    pub(crate) fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// Reads this many bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads an array of bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Returns `Some` if all bytes have been read.
    pub fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_unchanged() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            let mut input = Input(&bytes);
            assert_eq!(input.number(), Some(value));
            assert!(input.end().is_some());
            assert_eq!(Input(&bytes[..bytes.len() - 1]).number(), None, "{value} cut short");
        }
        for value in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }

    #[test]
    fn numbers_of_more_than_64_bits_are_refused() {
        assert_eq!(Input(&[0xff; 11]).number(), None);
        assert_eq!(Input(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number(), None);
    }
}
