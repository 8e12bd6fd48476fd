//! A list of byte strings in one allocation.

use crate::varint::{self, Input};

/// Byte strings, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    bytes: Vec<u8>,
    /// The end of each string.
    ends: Vec<u32>,
}

impl Strings {
    /// Decodes the output of [`put`] for `count` strings.
    pub(crate) fn read(input: &mut Input<'_>, count: usize) -> Option<Self> {
        // A length takes at least one byte.
        let mut ends = Vec::with_capacity(count.min(input.0.len()));
        let mut end = 0_u32;
        for _ in 0..count {
            end = end.checked_add(input.small()?)?;
            ends.push(end);
        }
        Some(Self { bytes: input.take(end as usize)?.to_vec(), ends })
    }

    /// Decodes strings after their number.
    pub(crate) fn read_counted(input: &mut Input<'_>) -> Option<Self> {
        let count = input.size()?;
        Self::read(input, count)
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.bytes.get(start as usize..end as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Appends the strings of another list.
    pub(crate) fn append(&mut self, other: &Self) {
        let before = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }

    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

/// Encodes the lengths of all strings, then their bytes.
pub(crate) fn put<'a>(out: &mut Vec<u8>, strings: impl Iterator<Item = &'a [u8]> + Clone) {
    for string in strings.clone() {
        varint::put(out, string.len() as u64);
    }
    for string in strings {
        out.extend_from_slice(string);
    }
}
