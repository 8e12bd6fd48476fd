//! The decompressed bytes of an input, with the current position.

use std::io::{self, BufRead, Read};

/// The maximum number of bytes that are read ahead.
const BUFFER_BYTES: usize = 1 << 17;

/// A buffered reader that counts lines and offsets. The reader returns at most the bytes of a budget, until the budget
/// is set again. So a tokenizer cannot use more memory than the budget.
pub(crate) struct Input<R> {
    inner: R,
    buffer: Box<[u8]>,
    begin: usize,
    end: usize,
    at_end: bool,
    budget: usize,
    offset: u64,
    line: u64,
}

/// The error of a read if the budget is used up.
#[derive(Debug, thiserror::Error)]
#[error("the next part of the input is larger than its budget")]
pub(crate) struct OverBudget;

impl<R: Read> Input<R> {
    pub(crate) fn new(inner: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Self { inner, buffer, begin: 0, end: 0, at_end: false, budget: usize::MAX, offset: 0, line: 1 }
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
    pub(crate) const fn saw_end(&self) -> bool {
        self.at_end
    }
}

impl<R: Read> BufRead for Input<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.begin == self.end && !self.at_end {
            self.begin = 0;
            self.end = 0;
            loop {
                match self.inner.read(&mut self.buffer) {
                    Ok(count) => {
                        self.end = count;
                        self.at_end = count == 0;
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let available = &self.buffer[self.begin..self.end];
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
