//! Reads gzip data of any number of members. Zeros after the last member are skipped, as gzip itself does: tapes and
//! some tools fill the last block of a file with them.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// Reads the content of any number of members, one after another.
pub(super) struct GzipMembers<R> {
    state: State<R>,
}

enum State<R> {
    /// After a member.
    Between(R),
    Within(Box<GzDecoder<R>>),
    /// After an error.
    Failed,
}

impl<R: BufRead> GzipMembers<R> {
    pub(super) fn new(input: R) -> Self {
        Self { state: State::Within(Box::new(GzDecoder::new(input))) }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.state, State::Failed) {
                State::Between(mut input) => {
                    if input.fill_buf()?.first() == Some(&0) {
                        skip_zeros(&mut input, "gzip")?;
                    }
                    if input.fill_buf()?.is_empty() {
                        self.state = State::Between(input);
                        return Ok(0);
                    }
                    self.state = State::Within(Box::new(GzDecoder::new(input)));
                }
                State::Within(mut decoder) => {
                    let count = decoder.read(buffer)?;
                    self.state = match count {
                        0 => State::Between(decoder.into_inner()),
                        _ => State::Within(decoder),
                    };
                    if count > 0 {
                        return Ok(count);
                    }
                }
                State::Failed => {
                    return Err(io::Error::other("an earlier part of the gzip data could not be read"));
                }
            }
        }
    }
}

/// Skips zeros up to the end of the input. Fails if anything else follows them.
pub(super) fn skip_zeros(input: &mut impl BufRead, format: &str) -> io::Result<()> {
    loop {
        let available = input.fill_buf()?;
        let count = available.len();
        if count == 0 {
            return Ok(());
        }
        if available.iter().any(|byte| *byte != 0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("other data follows the end of the {format} data"),
            ));
        }
        input.consume(count);
    }
}
