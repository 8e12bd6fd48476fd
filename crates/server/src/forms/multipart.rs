//! Multipart bodies (RFC 2046, section 5.1; RFC 7578), parsed as they arrive.
//!
//! The service has its own parser, since libraries for multipart bodies have two faults: the library reads as long as
//! the client sends, even if the store cannot keep up, and it holds a header block of any length in memory.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem::Finder;
use rashomon_records::excerpt;

use crate::forms::{Field, FormError, MAX_NAME_BYTES, RequestBody, media_type::parse_parameters};

/// The longest boundary that the standard allows.
const MAX_BOUNDARY_BYTES: usize = 70;

/// The size limit of a part's headers.
const MAX_HEADER_BLOCK_BYTES: usize = 16 << 10;

/// The maximum number of a part's headers.
const MAX_HEADERS: usize = 32;

/// The maximum number of spaces after a boundary on its line. Gateways add some spaces.
const MAX_PADDING: usize = 256;

/// The headers from which a part gets its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartNaming {
    /// The name is in `Content-Disposition: form-data; name="html"`.
    FormData,
    /// The name is in any `Content-Disposition`, or in `Content-ID: <html>`.
    Any,
}

/// A multipart body that is being read.
#[derive(Debug)]
pub(crate) struct Multipart {
    body: RequestBody,
    naming: PartNaming,
    /// Searches for a delimiter: a line break, `--` and the boundary.
    delimiter: Finder<'static>,
    /// Received bytes that have not been parsed yet.
    buffer: BytesMut,
    state: ParserState,
}

/// The state of the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParserState {
    /// Before a delimiter: in the preamble, or in a part.
    Content,
    /// Directly after a delimiter.
    AfterDelimiter,
    /// After the last delimiter.
    End,
}

impl Multipart {
    pub(crate) fn new(body: RequestBody, boundary: &str, naming: PartNaming) -> Result<Self, FormError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
        if boundary.is_empty()
            || boundary.len() > MAX_BOUNDARY_BYTES
            || boundary.ends_with(' ')
            || !boundary.bytes().all(allowed)
        {
            return Err(FormError::malformed(format!(
                "a boundary must have 1 to {MAX_BOUNDARY_BYTES} of the characters that RFC 2046 allows, and must not \
                 end with a space"
            )));
        }
        let delimiter = Finder::new(format!("\r\n--{boundary}").as_bytes()).into_owned();
        // The first delimiter may be at the very beginning, without a line break.
        Ok(Self {
            body,
            naming,
            delimiter,
            buffer: BytesMut::from(&b"\r\n"[..]),
            state: ParserState::Content,
        })
    }

    pub(crate) async fn next_field(&mut self) -> Result<Option<Field>, FormError> {
        // Skips the preamble, or the rest of the previous part.
        while self.chunk().await?.is_some() {}
        if self.state == ParserState::AfterDelimiter {
            self.state =
                if self.read_end_of_delimiter().await? { ParserState::End } else { ParserState::Content };
        }
        if self.state == ParserState::End {
            self.buffer.clear();
            while self.body.next().await?.is_some() {}
            return Ok(None);
        }
        let block = self.read_header_block().await?;
        self.parse_headers(&block).map(Some)
    }

    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, FormError> {
        while self.state == ParserState::Content {
            let length = self.delimiter.needle().len();
            if let Some(at) = self.delimiter.find(&self.buffer) {
                let content = self.buffer.split_to(at).freeze();
                self.buffer.advance(length);
                self.state = ParserState::AfterDelimiter;
                return Ok(Some(content).filter(|content| !content.is_empty()));
            }
            // The last bytes of the buffer may be the beginning of a delimiter.
            let safe = (self.buffer.len() + 1).saturating_sub(length);
            if safe > 0 {
                return Ok(Some(self.buffer.split_to(safe).freeze()));
            }
            self.fill("its last boundary").await?;
        }
        Ok(None)
    }

    pub(crate) fn length(&self) -> Option<u64> {
        self.body.length()
    }

    pub(crate) fn hold(&mut self, bytes: usize) {
        self.body.hold(bytes);
    }

    /// Reads the text that follows a delimiter: `--` if the delimiter is the last one, else spaces and a line break.
    /// Returns whether the delimiter is the last one.
    async fn read_end_of_delimiter(&mut self) -> Result<bool, FormError> {
        loop {
            if self.buffer.starts_with(b"--") {
                return Ok(true);
            }
            let padding = self.buffer.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            match &self.buffer[padding..] {
                [b'\r', b'\n', ..] if padding <= MAX_PADDING => {
                    // The line break stays in the buffer: it is also the end of an empty header block.
                    self.buffer.advance(padding);
                    return Ok(false);
                }
                [] | [b'\r'] if padding <= MAX_PADDING => {}
                [b'-'] if padding == 0 => {}
                _ => {
                    return Err(FormError::malformed(format!(
                        "a boundary must be followed by a line break (after at most {MAX_PADDING} spaces), and \
                         the last one by '--'"
                    )));
                }
            }
            self.fill("the end of a boundary").await?;
        }
    }

    /// Reads a part's headers, with the line break before them and the empty line after them.
    async fn read_header_block(&mut self) -> Result<BytesMut, FormError> {
        loop {
            let end = memchr::memmem::find(&self.buffer, b"\r\n\r\n");
            if let Some(end) = end.filter(|end| *end <= MAX_HEADER_BLOCK_BYTES) {
                return Ok(self.buffer.split_to(end + 4));
            }
            if self.buffer.len() > MAX_HEADER_BLOCK_BYTES {
                return Err(FormError::malformed(format!(
                    "the headers of a part must have at most {MAX_HEADER_BLOCK_BYTES} bytes"
                )));
            }
            self.fill("the end of the headers of a part").await?;
        }
    }

    fn parse_headers(&self, block: &[u8]) -> Result<Field, FormError> {
        let mut parsed = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let malformed = || FormError::malformed("the headers of a part are malformed, or more than 32");
        // Skip the first line break, which the parser would take for the end.
        match httparse::parse_headers(&block[2..], &mut parsed) {
            Ok(httparse::Status::Complete(_)) => {}
            _ => return Err(malformed()),
        }
        let mut name = None;
        let mut id = None;
        let mut headers: Vec<(String, String)> = Vec::new();
        for header in parsed.iter().take_while(|header| !header.name.is_empty()) {
            let value = std::str::from_utf8(header.value).map_err(|_| malformed())?.trim();
            let header = header.name.to_ascii_lowercase();
            match header.as_str() {
                "content-disposition" => name = self.parse_disposition(value)?,
                "content-id" => id = Some(value.trim_start_matches('<').trim_end_matches('>').to_owned()),
                "content-transfer-encoding" => check_transfer_encoding(value)?,
                "content-length" | "mime-version" => {}
                _ if headers.iter().any(|(known, _)| *known == header) => {
                    let header = excerpt(header);
                    return Err(FormError::malformed(format!(
                        "a part has the header {header} twice: send it once"
                    )));
                }
                _ => headers.push((header, value.to_owned())),
            }
        }
        let id = id.filter(|_| self.naming == PartNaming::Any);
        let name = name.or(id).ok_or_else(|| match self.naming {
            PartNaming::FormData => {
                FormError::malformed("each part needs a Content-Disposition such as form-data; name=\"html\"")
            }
            PartNaming::Any => FormError::malformed(
                "each part needs a name in its Content-Disposition, or a Content-ID such as <html>",
            ),
        })?;
        if name.len() > MAX_NAME_BYTES {
            return Err(FormError::malformed(format!(
                "the name of a part has more than {MAX_NAME_BYTES} bytes"
            )));
        }
        Ok(Field { name, headers })
    }

    /// Parses the name in a `Content-Disposition`.
    fn parse_disposition(&self, value: &str) -> Result<Option<String>, FormError> {
        let (disposition, parameters) = parse_parameters(value)
            .ok_or_else(|| FormError::malformed("the Content-Disposition of a part is malformed"))?;
        if self.naming == PartNaming::FormData && disposition != "form-data" {
            return Err(FormError::malformed(
                "in multipart/form-data, each Content-Disposition must be form-data",
            ));
        }
        Ok(parameters.into_iter().find(|(name, _)| name == "name").map(|(_, value)| value))
    }

    /// Waits for more bytes. `until` names the expected content, for the error at the end of the body.
    async fn fill(&mut self, until: &str) -> Result<(), FormError> {
        match self.body.next().await? {
            Some(data) if self.buffer.is_empty() => self.buffer = data.into(),
            Some(data) => self.buffer.extend_from_slice(&data),
            None => return Err(FormError::malformed(format!("the multipart body ends before {until}"))),
        }
        Ok(())
    }
}

/// Checks that a part is not encoded, since its bytes are stored as they arrive.
fn check_transfer_encoding(value: &str) -> Result<(), FormError> {
    if ["binary", "8bit", "7bit"].iter().any(|identity| value.eq_ignore_ascii_case(identity)) {
        Ok(())
    } else {
        Err(FormError::Unsupported(
            "parts must not be encoded: leave out Content-Transfer-Encoding, or set it to binary".to_owned(),
        ))
    }
}
