//! The decompressed bytes of an input, with the current position.

use std::io::{self, BufRead, Read};

/// The maximum number of bytes that are read ahead.
const BUFFER_BYTES: usize = 1 << 17;

/// The beginning of the tag at which an input can be split.
const PAGE_TAG: &[u8] = b"<page";

/// The beginning and the end of a comment, of character data and of a processing instruction. A tag within them is no
/// tag.
const SECTIONS: [(&[u8], &[u8]); 3] = [(b"<!--", b"-->"), (b"<![CDATA[", b"]]>"), (b"<?", b"?>")];

/// The maximum number of bytes in which the end of such a section is searched, while the input is split. A section
/// without an end, or with a later one, is split like the rest of the input.
const MAX_SECTION_BYTES: usize = 16 << 20;

/// A buffered reader that counts lines and offsets. The reader returns at most the bytes of a budget, until the budget
/// is set again. So a tokenizer cannot use more memory than the budget.
pub(crate) struct Input<R> {
    inner: Option<R>,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    at_end: bool,
    budget: usize,
    offset: u64,
    line: u64,
    /// If the input is split into parts: the end of the bytes that belong to this part, as far as that is known.
    part: Option<Part>,
    /// For each of [`SECTIONS`]: the offset up to which the end of a section was searched and not found. So a section of
    /// this kind that begins before it has no end.
    open_until: [u64; SECTIONS.len()],
}

/// The known bytes of a part.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// The index in the buffer at which they end.
    end: usize,
    /// Whether the next part begins there.
    is_complete: bool,
}

/// The error of a read if the budget is used up.
#[derive(Debug, thiserror::Error)]
#[error("the next part of the input is larger than its budget")]
pub(crate) struct OverBudget;

impl<R: Read> Input<R> {
    pub(crate) fn new(inner: R) -> Self {
        let (inner, buffer) = (Some(inner), vec![0; BUFFER_BYTES]);
        Self {
            inner,
            buffer,
            begin: 0,
            end: 0,
            at_end: false,
            budget: usize::MAX,
            offset: 0,
            line: 1,
            part: None,
            open_until: [0; SECTIONS.len()],
        }
    }

    /// Splits the rest of the input into parts, each of which ends before the next tag `<page>`. Reading ends at the
    /// end of the first part; [`Self::next_part`] goes on.
    pub(crate) const fn split_at_pages(&mut self) {
        self.part = Some(Part { end: self.begin, is_complete: false });
    }

    /// Skips the rest of this part, and begins the next one. Returns `false` if there is none.
    pub(crate) fn next_part(&mut self) -> io::Result<bool> {
        self.budget = usize::MAX;
        loop {
            let count = self.fill_buf()?.len();
            if count == 0 {
                break;
            }
            self.consume(count);
        }
        let Some(Part { end, is_complete: true }) = self.part else { return Ok(false) };
        self.part = Some(Part { end: end + PAGE_TAG.len(), is_complete: false });
        Ok(true)
    }

    /// Moves the input out. What stays is at its end.
    pub(crate) fn move_out(&mut self) -> Self {
        let empty = Self {
            inner: None,
            buffer: Vec::new(),
            begin: 0,
            end: 0,
            at_end: true,
            part: None,
            budget: self.budget,
            offset: self.offset,
            line: self.line,
            open_until: self.open_until,
        };
        std::mem::replace(self, empty)
    }

    /// Returns the next bytes without consuming them: `count`, or fewer at the end of the input. `count` must be less
    /// than the size of the buffer.
    pub(crate) fn peek(&mut self, count: usize) -> io::Result<&[u8]> {
        while self.end - self.begin < count && !self.at_end {
            self.read_more()?;
        }
        Ok(&self.buffer[self.begin..self.end.min(self.begin + count)])
    }

    /// Reads more bytes behind those in the buffer, which are moved to its beginning. A full buffer grows.
    fn read_more(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        if let Some(part) = &mut self.part {
            part.end -= self.begin;
        }
        self.begin = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize((2 * self.end).max(BUFFER_BYTES), 0);
        }
        let Some(inner) = &mut self.inner else { return Ok(()) };
        loop {
            match inner.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    self.at_end = count == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Finds the end of the bytes that belong to the part. Reads until there is at least one, unless the part has
    /// ended.
    fn extend_part(&mut self) -> io::Result<()> {
        while let Some(Part { end, is_complete: false }) = self.part
            && end <= self.begin
            && !(self.at_end && self.begin == self.end)
        {
            let part = self.find_part();
            self.part = Some(part);
            if part.is_complete || part.end > self.begin {
                return Ok(());
            }
            // What begins here is examined again only when twice as much of it is known.
            let wanted = 2 * (self.end - self.begin) + 1;
            while self.end - self.begin < wanted && !self.at_end {
                self.read_more()?;
            }
        }
        Ok(())
    }

    /// Returns the part that goes on at the next byte. Bytes at the end of the buffer that may be the beginning of a
    /// tag, or belong to a section without an end, do not belong to the part yet, unless the input ends there.
    fn find_part(&mut self) -> Part {
        let buffer = &self.buffer[..self.end];
        let mut from = self.begin;
        while let Some(index) = memchr::memchr(b'<', &buffer[from..]) {
            let at = from + index;
            let tag = &buffer[at..];
            let may_be = |mark: &[u8], bytes: usize| tag.len() < bytes && mark.starts_with(tag);
            if !self.at_end
                && (may_be(PAGE_TAG, PAGE_TAG.len() + 1)
                    || SECTIONS.iter().any(|(mark, _)| may_be(mark, mark.len())))
            {
                return Part { end: at, is_complete: false };
            }
            if tag.starts_with(PAGE_TAG)
                && tag
                    .get(PAGE_TAG.len())
                    .is_some_and(|byte| matches!(byte, b'>' | b'/' | b' ' | b'\t' | b'\n' | b'\r'))
            {
                return Part { end: at, is_complete: true };
            }
            from = at + 1;
            let Some(kind) = SECTIONS.iter().position(|(mark, _)| tag.starts_with(mark)) else { continue };
            let (mark, end) = SECTIONS[kind];
            let offset = self.offset + (at - self.begin) as u64;
            if offset < self.open_until[kind] {
                continue;
            }
            match memchr::memmem::find(&tag[mark.len()..], end) {
                Some(length) => from = at + mark.len() + length + end.len(),
                None if !self.at_end && tag.len() < MAX_SECTION_BYTES => {
                    return Part { end: at, is_complete: false };
                }
                None => self.open_until[kind] = offset + tag.len() as u64,
            }
        }
        Part { end: buffer.len(), is_complete: false }
    }

    /// Sets the budget: the maximum number of bytes that are returned until the budget is set again.
    pub(crate) const fn set_budget(&mut self, bytes: usize) {
        self.budget = bytes;
    }

    /// The offset of the next byte, counted from 0.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The line of the next byte, counted from 1.
    pub(crate) const fn line(&self) -> u64 {
        self.line
    }

    /// Whether the end was reached: no bytes follow the returned ones.
    pub(crate) fn saw_end(&self) -> bool {
        self.at_end && self.part.is_none_or(|part| !part.is_complete && part.end >= self.end)
    }
}

impl<R: Read> BufRead for Input<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.begin == self.end && !self.at_end {
            self.read_more()?;
        }
        self.extend_part()?;
        let end = self.part.map_or(self.end, |part| part.end.max(self.begin));
        let available = &self.buffer[self.begin..end];
        if self.budget == 0 && !available.is_empty() {
            return Err(io::Error::other(OverBudget));
        }
        Ok(&available[..available.len().min(self.budget)])
    }

    fn consume(&mut self, count: usize) {
        let consumed = &self.buffer[self.begin..self.begin + count];
        self.line += memchr::memchr_iter(b'\n', consumed).count() as u64;
        self.offset += count as u64;
        self.begin += count;
        self.budget -= count;
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut available = self.fill_buf()?;
        let count = available.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_and_offset_are_those_of_the_next_byte() {
        let mut input = Input::new(&b"one\ntwo\nthree"[..]);
        input.consume_exact(5);
        assert_eq!((input.line(), input.offset()), (2, 5));
        input.consume_exact(3);
        assert_eq!((input.line(), input.offset()), (3, 8));
    }

    impl<R: Read> Input<R> {
        fn consume_exact(&mut self, count: usize) {
            let mut bytes = vec![0; count];
            self.read_exact(&mut bytes).unwrap();
        }
    }

    #[test]
    fn reads_never_exceed_the_budget() {
        let mut input = Input::new(&b"0123456789"[..]);
        input.set_budget(4);
        assert_eq!(input.fill_buf().unwrap(), b"0123");
        input.consume(4);
        assert!(input.fill_buf().unwrap_err().get_ref().unwrap().is::<OverBudget>());
        input.set_budget(100);
        assert_eq!(input.fill_buf().unwrap(), b"456789");
        input.consume(6);
        assert!(input.fill_buf().unwrap().is_empty());
        assert!(input.saw_end());
    }
}
