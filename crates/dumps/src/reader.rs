//! Reads a history in either format.

use std::{
    collections::VecDeque,
    io::{BufRead, Read},
};

use crate::{
    Event, InputPosition, Problem, ReadError, ReadLimits,
    format::FormatReader,
    input::Input,
    json_lines::JsonLinesReader,
    recognise::{LOOK_BYTES, describe_other_format},
    xml::XmlReader,
};

/// Returns the content of a history, one event after another. After an error it returns no more events.
pub struct HistoryReader<'a> {
    format: Box<dyn FormatReader + 'a>,
    /// Events that were found but not returned yet.
    found: VecDeque<Event>,
    state: ReaderState,
}

/// The state of a reader after the events that were found.
enum ReaderState {
    /// More of the input can be read.
    Open,
    /// The reader returns this error next.
    Failed(ReadError),
    /// The reader returns nothing more.
    Ended,
}

impl<'a> HistoryReader<'a> {
    /// Recognises the format by the first byte after spaces and a byte order mark: `<` begins XML, `{` JSON lines.
    pub fn new(reader: impl Read + 'a, limits: ReadLimits) -> Result<Self, ReadError> {
        let mut input = Input::new(reader);
        let first = match first_byte(&mut input) {
            Ok(first) => first,
            Err(problem) => return Err(ReadError { problem, position: position_in(&input) }),
        };
        let format: Box<dyn FormatReader> = match first {
            Some(b'<') => Box::new(XmlReader::new(input, limits)),
            Some(b'{') => Box::new(JsonLinesReader::new(input, limits)),
            None => {
                return Err(ReadError { problem: Problem::Empty, position: position_in(&input) });
            }
            Some(first) => {
                let known = match input.peek(LOOK_BYTES) {
                    Ok(bytes) => describe_other_format(bytes),
                    Err(error) => {
                        let problem = Problem::from_io_error(error);
                        return Err(ReadError { problem, position: position_in(&input) });
                    }
                };
                let what = known.unwrap_or_else(|| match first {
                    0xfe | 0xff | 0 => {
                        "the input is not UTF-8, the only supported encoding (UTF-16 is not supported)".to_owned()
                    }
                    _ => "the input is neither XML nor JSON lines, nor in a supported compression (gzip, bzip2, xz, \
                          lzma, zstd, 7z)"
                        .to_owned(),
                });
                let problem = Problem::Unsupported(what);
                return Err(ReadError { problem, position: position_in(&input) });
            }
        };
        Ok(Self { format, found: VecDeque::new(), state: ReaderState::Open })
    }

    /// Returns the next event, or `None` at the end or after an error.
    #[allow(clippy::should_implement_trait)] // The function can fail, and returns `None` after an error.
    pub fn next(&mut self) -> Result<Option<Event>, ReadError> {
        loop {
            if let Some(event) = self.found.pop_front() {
                return Ok(Some(event));
            }
            match std::mem::replace(&mut self.state, ReaderState::Ended) {
                ReaderState::Ended => return Ok(None),
                ReaderState::Failed(error) => return Err(error),
                ReaderState::Open => {}
            }
            self.state = match self.format.step(&mut self.found) {
                Ok(true) => ReaderState::Open,
                Ok(false) => ReaderState::Ended,
                Err(problem) => {
                    let position = Box::new(self.format.position(&problem));
                    ReaderState::Failed(ReadError { problem, position })
                }
            };
        }
    }
}

fn position_in<R: Read>(input: &Input<R>) -> Box<InputPosition> {
    Box::new(InputPosition { line: input.line(), offset: input.offset(), ..InputPosition::default() })
}

/// Returns the first significant byte without consuming it. Consumes spaces and a byte order mark before it.
fn first_byte<R: Read>(input: &mut Input<R>) -> Result<Option<u8>, Problem> {
    loop {
        let available = input.fill_buf().map_err(Problem::from_io_error)?;
        let Some(&first) = available.first() else { return Ok(None) };
        if first == 0xef {
            // An input that ends within these bytes is invalid, and is not reported as truncated.
            let mut mark = Vec::with_capacity(3);
            input.by_ref().take(3).read_to_end(&mut mark).map_err(Problem::from_io_error)?;
            if mark != [0xef, 0xbb, 0xbf] {
                return Ok(Some(first));
            }
        } else if first.is_ascii_whitespace() {
            input.consume(1);
        } else {
            return Ok(Some(first));
        }
    }
}
