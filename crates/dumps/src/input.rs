//! The decompressed bytes of an input, with the current position.

use std::io::{self, BufRead, Read};

/// The maximum number of bytes that are read ahead.
const BUFFER_BYTES: usize = 1 << 17;

/// The beginning of the tag at which an input can be split.
const PAGE_TAG: &[u8] = b"<page";

/// A buffered reader that counts lines and offsets. The reader returns at most the bytes of a budget, until the budget
/// is set again. So a tokenizer cannot use more memory than the budget.
pub(crate) struct Input<R> {
    inner: Option<R>,
    buffer: Box<[u8]>,
    begin: usize,
    end: usize,
    at_end: bool,
    budget: usize,
    offset: u64,
    line: u64,
    /// If the input is split into parts: the end of the bytes that belong to this part, as far as that is known.
    part: Option<Part>,
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
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        let inner = Some(inner);
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
            buffer: Box::default(),
            begin: 0,
            end: 0,
            at_end: true,
            part: None,
            budget: self.budget,
            offset: self.offset,
            line: self.line,
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

    /// Reads more bytes behind those in the buffer, which are moved to its beginning.
    fn read_more(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        if let Some(part) = &mut self.part {
            part.end -= self.begin;
        }
        self.begin = 0;
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
            if self.end - self.begin <= PAGE_TAG.len() && !self.at_end {
                self.read_more()?;
            }
            self.part = Some(find_part(&self.buffer[..self.end], self.begin, self.at_end));
        }
        Ok(())
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

/// Returns the part that goes on at `begin`. Bytes at the end of the buffer that may be the beginning of a tag do not
/// belong to it yet, unless the input ends there.
fn find_part(buffer: &[u8], begin: usize, at_end: bool) -> Part {
    let mut from = begin;
    while let Some(index) = memchr::memchr(b'<', &buffer[from..]) {
        let at = from + index;
        let tag = &buffer[at..];
        if tag.len() <= PAGE_TAG.len() && PAGE_TAG.starts_with(tag) && !at_end {
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
    }
    Part { end: buffer.len(), is_complete: false }
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
