//! Reading a history in whichever format it is.

use std::io::{BufRead, Read};

use rashomon_buckets::Definitions;

use crate::{Event, Place, Problem, ReadError, input::Input, json_lines::JsonLinesReader, xml::XmlReader};

/// How large the parts of an input may be.
#[derive(Debug, Clone, Copy)]
pub struct ReadLimits {
    /// The most bytes of a text in XML.
    pub text: usize,
    /// The most bytes of a line in JSON lines.
    pub line: usize,
}

impl Default for ReadLimits {
    /// Texts as large as a property may be, and lines of half a gigabyte: the bodies of one write, which are
    /// 256 MiB at most, with room for how JSON writes them.
    fn default() -> Self {
        Self { text: Definitions::DEFAULT_MAX_SIZE as usize, line: 512 << 20 }
    }
}

/// Gives what a history holds, one event after another. Nothing comes after an error.
pub struct HistoryReader<R> {
    format: Format<R>,
}

enum Format<R> {
    Xml(Box<XmlReader<R>>),
    JsonLines(Box<JsonLinesReader<R>>),
}

impl<R: Read> HistoryReader<R> {
    /// Looks at the first byte that is no space: `<` begins XML, `{` JSON lines.
    pub fn new(reader: R, limits: ReadLimits) -> Result<Self, ReadError> {
        let mut input = Input::new(reader);
        let first = match first_byte(&mut input) {
            Ok(first) => first,
            Err(problem) => return Err(ReadError { problem, place: place(&input) }),
        };
        let format = match first {
            Some(b'<') => Format::Xml(Box::new(XmlReader::new(input, limits.text))),
            Some(b'{') => Format::JsonLines(Box::new(JsonLinesReader::new(input, limits.line))),
            None => {
                let problem = Problem::CutShort("there is nothing in it".to_owned());
                return Err(ReadError { problem, place: place(&input) });
            }
            Some(0xfe | 0xff | 0) => {
                let what = "it is not UTF-8, which is the only encoding that is read (UTF-16 is not)";
                let problem = Problem::Unsupported(what.to_owned());
                return Err(ReadError { problem, place: place(&input) });
            }
            Some(_) => {
                let what = "it is neither XML nor JSON lines, nor compressed in a way that is known \
                            (gzip, bzip2, xz, lzma, zstd, 7z)";
                let problem = Problem::Unsupported(what.to_owned());
                return Err(ReadError { problem, place: place(&input) });
            }
        };
        Ok(Self { format })
    }

    /// The next event; `None` at the end.
    #[allow(clippy::should_implement_trait)] // It can fail, and is fused.
    pub fn next(&mut self) -> Result<Option<Event>, ReadError> {
        match &mut self.format {
            Format::Xml(reader) => reader.next(),
            Format::JsonLines(reader) => reader.next(),
        }
    }
}

fn place<R: Read>(input: &Input<R>) -> Place {
    Place { line: input.line(), offset: input.offset(), ..Place::default() }
}

/// The first byte that counts, which is not consumed; spaces and a byte order mark before it are.
fn first_byte<R: Read>(input: &mut Input<R>) -> Result<Option<u8>, Problem> {
    loop {
        let available = input.fill_buf().map_err(Problem::of_io)?;
        let Some(&first) = available.first() else { return Ok(None) };
        if first == 0xef {
            let mut mark = [0; 3];
            input.read_exact(&mut mark).map_err(Problem::of_io)?;
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
