//! Reads bzip2 data of any number of streams. Empty streams are skipped without a decoder.
//!
//! A bzip2 decoder allocates 4 MB before it sees that its stream is empty, and an empty stream has only 14
//! bytes. So with a decoder for each stream, a small input could occupy a processor for minutes.

use std::io::{self, BufRead, Chain, Cursor, Read};

use bzip2::bufread::BzDecoder;

use super::gzip_members::skip_zeros;

/// The size of an empty stream, which is the shortest possible stream.
const EMPTY_STREAM_BYTES: usize = 14;

/// The rest of an empty stream after the magic bytes and the level: the end mark and a checksum of zero.
const EMPTY_STREAM_END: &[u8] = &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90, 0, 0, 0, 0];

/// The first bytes of a stream, and the rest of the input.
type Stream<R> = Chain<Cursor<Vec<u8>>, R>;

/// Reads the content of any number of streams, one after another.
pub(super) struct Bzip2Streams<R> {
    state: State<R>,
}

enum State<R> {
    /// Before the first stream.
    Before(R),
    /// After a stream.
    Between(R),
    Within(Box<BzDecoder<Stream<R>>>),
    /// After an error.
    Failed,
}

impl<R: BufRead> Bzip2Streams<R> {
    pub(super) const fn new(input: R) -> Self {
        Self { state: State::Before(input) }
    }
}

impl<R: BufRead> Read for Bzip2Streams<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.state, State::Failed) {
                state @ (State::Before(_) | State::Between(_)) => {
                    let is_first = matches!(state, State::Before(_));
                    let (State::Before(mut input) | State::Between(mut input)) = state else { continue };
                    let first = skip_empty_streams(&mut input, is_first)?;
                    if first.is_empty() {
                        self.state = State::Between(input);
                        return Ok(0);
                    }
                    self.state = State::Within(Box::new(BzDecoder::new(Cursor::new(first).chain(input))));
                }
                State::Within(mut decoder) => {
                    let count = decoder.read(buffer)?;
                    if count > 0 {
                        self.state = State::Within(decoder);
                        return Ok(count);
                    }
                    // The cursor can be dropped. It had at most as many bytes as the shortest stream, so the
                    // decoder has read all of them.
                    self.state = State::Between(decoder.into_inner().into_inner().1);
                }
                State::Failed => {
                    return Err(io::Error::other("an earlier part of the bzip2 data could not be read"));
                }
            }
        }
    }
}

/// Skips empty streams, and zeros at the end. Returns the first bytes of the next stream, or none at the end.
fn skip_empty_streams(input: &mut impl BufRead, mut is_first: bool) -> io::Result<Vec<u8>> {
    let mut first = Vec::with_capacity(EMPTY_STREAM_BYTES);
    loop {
        first.clear();
        if !is_first && input.fill_buf()?.first() == Some(&0) {
            skip_zeros(input, "bzip2")?;
        }
        is_first = false;
        input.take(EMPTY_STREAM_BYTES as u64).read_to_end(&mut first)?;
        let is_empty_stream =
            matches!(&first[..], [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..] if rest == EMPTY_STREAM_END);
        if !is_empty_stream {
            return Ok(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, time::Duration};

    use rashomon_clock::{Clock as _, SystemClock};

    use super::*;

    fn packed(content: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn unpack(input: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        // The size of the buffer depends on the input, so that streams end at different offsets of it.
        let input = io::BufReader::with_capacity(1 + input.len() % 40, input);
        Bzip2Streams::new(input).read_to_end(&mut content).map(|_| content)
    }

    #[test]
    fn streams_with_empty_ones_between_are_read_as_one() {
        let (empty, one) = (packed(b""), packed(b"one"));
        assert_eq!(empty.len(), EMPTY_STREAM_BYTES);
        assert_eq!(unpack(b"").unwrap(), b"");
        assert_eq!(unpack(&empty).unwrap(), b"");
        for before in 0..30 {
            let input =
                [empty.repeat(before), one.clone(), empty.repeat(2), one.clone(), empty.clone()].concat();
            assert_eq!(unpack(&input).unwrap(), b"oneone");
        }
    }

    #[test]
    fn damage_is_an_error_after_the_complete_streams() {
        let (empty, one) = (packed(b""), packed(b"one"));
        let cut = [&empty[..], &one[..one.len() - 1]].concat();
        assert_eq!(unpack(&cut).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        for end in 1..EMPTY_STREAM_BYTES {
            let input = [&one[..], &empty[..end]].concat();
            assert_eq!(unpack(&input).unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{end}");
        }
        for bad in [&b"garbage that is long"[..], b"BZh0", &[b"BZh9", EMPTY_STREAM_END, b"x"].concat()] {
            let mut streams = Bzip2Streams::new(io::Cursor::new([&one[..], bad].concat()));
            let mut content = [0; 3];
            streams.read_exact(&mut content).unwrap();
            assert_eq!(&content, b"one");
            streams.read(&mut content).unwrap_err();
            streams.read(&mut content).unwrap_err();
        }
    }

    #[test]
    fn empty_streams_cost_almost_nothing() {
        let input = packed(b"").repeat(300_000);
        let clock = SystemClock::new();
        let begun = clock.monotonic();
        assert_eq!(Bzip2Streams::new(&input[..]).read(&mut [0; 10]).unwrap(), 0);
        // With a decoder for each stream, this would take a minute.
        let took = clock.monotonic() - begun;
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}
