//! Finds requests that the HTTP library would accept, and has the library refuse them.
//!
//! A request target has no fragment (RFC 9112, section 3.2). The HTTP library cuts a fragment off, so it would answer
//! `/metrics#` as `/metrics`. A proxy in front of the server that forbids `/metrics` would pass such a request on. The
//! service does not see the fragment.
//!
//! A request with both `Transfer-Encoding` and `Content-Length` may hide another request from a proxy that obeys the
//! other header (RFC 9112, section 6.1). The library removes `Content-Length`, so the service does not see it.
//!
//! So [`RequestHeads`] follows the requests of a connection. It replaces a `#`, and the end of the second of the two
//! headers, by a byte that the library refuses.

/// The byte that makes the library refuse a request. Neither a request target nor a header has it.
const REFUSED_BYTE: u8 = 0x7f;

const FRAGMENT: &str =
    "the target of a request has no '#': leave out the fragment, or write %23 for a '#' in a name";

const TWO_LENGTHS: &str = "the request has both Transfer-Encoding and Content-Length: leave out one of them";

/// The number of bytes of a line that are examined. The lines that matter are shorter.
const MAX_LINE_BYTES: usize = 256;

/// Follows the bytes that a client sends, to know which of them are request lines.
#[derive(Debug)]
pub(crate) struct RequestHeads {
    part: Part,
    /// The beginning of the current line.
    line: Vec<u8>,
    /// How the end of the body is found, according to the headers so far.
    body: Option<Body>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A request line, and the empty lines before it.
    RequestLine {
        in_target: bool,
    },
    Header,
    /// A body with this many bytes left.
    Body(u64),
    ChunkSize,
    /// A chunk with this many bytes left.
    Chunk(u64),
    /// The end of the line after a chunk.
    ChunkEnd,
    Trailer,
    /// The library refuses what was sent.
    Invalid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Length(u64),
    Chunked,
}

const NEXT_REQUEST: Part = Part::RequestLine { in_target: false };

impl RequestHeads {
    pub(crate) fn new() -> Self {
        Self { part: NEXT_REQUEST, line: Vec::new(), body: None }
    }

    /// Follows the next bytes. Changes those by which a request has to be refused. Returns the reason, if there is one.
    pub(crate) fn follow(&mut self, mut bytes: &mut [u8]) -> Option<&'static str> {
        let mut found = None;
        while !bytes.is_empty() {
            let taken = match &mut self.part {
                Part::Invalid => return found,
                Part::Body(left) | Part::Chunk(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= taken as u64;
                    if *left == 0 {
                        self.part =
                            if matches!(self.part, Part::Chunk(_)) { Part::ChunkEnd } else { NEXT_REQUEST };
                    }
                    taken
                }
                _ => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let taken = end.map_or(bytes.len(), |end| end + 1);
                    found = found.or(self.follow_line(&mut bytes[..taken], end.is_some()));
                    taken
                }
            };
            bytes = &mut bytes[taken..];
        }
        found
    }

    /// Follows bytes of one line. Returns the reason to refuse the request, if they were changed.
    fn follow_line(&mut self, bytes: &mut [u8], is_end: bool) -> Option<&'static str> {
        let mut found = None;
        if let Part::RequestLine { in_target } = &mut self.part {
            for byte in &mut *bytes {
                *in_target |= *byte == b' ';
                if *in_target && *byte == b'#' {
                    (*byte, found) = (REFUSED_BYTE, Some(FRAGMENT));
                }
            }
        }
        let room = MAX_LINE_BYTES - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if is_end {
            if self.part == Part::Header && self.has_two_lengths() {
                if let Some(end) = bytes.last_mut() {
                    (*end, found) = (REFUSED_BYTE, Some(TWO_LENGTHS));
                }
                self.part = Part::Invalid;
            } else {
                self.part = self.after_line();
            }
            self.line.clear();
        }
        found
    }

    /// Whether the current line and an earlier one give the length of the body in different ways.
    fn has_two_lengths(&self) -> bool {
        let name = self.line.split(|byte| *byte == b':').next().unwrap_or_default();
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        match self.body {
            Some(Body::Chunked) => is(CONTENT_LENGTH),
            Some(Body::Length(_)) => is(TRANSFER_ENCODING),
            None => false,
        }
    }

    /// The part of the request that follows the current line.
    fn after_line(&mut self) -> Part {
        let line = self.line.trim_ascii();
        match self.part {
            Part::RequestLine { .. } if line.is_empty() => NEXT_REQUEST,
            Part::RequestLine { .. } => {
                self.body = None;
                Part::Header
            }
            Part::Header if line.is_empty() => match self.body {
                None | Some(Body::Length(0)) => NEXT_REQUEST,
                Some(Body::Length(length)) => Part::Body(length),
                Some(Body::Chunked) => Part::ChunkSize,
            },
            Part::Header => match body_of(line) {
                Ok(body) => {
                    self.body = body.or(self.body);
                    Part::Header
                }
                Err(Unreadable) => Part::Invalid,
            },
            Part::ChunkSize => match chunk_size(line) {
                Some(0) => Part::Trailer,
                Some(size) => Part::Chunk(size),
                None => Part::Invalid,
            },
            Part::ChunkEnd if line.is_empty() => Part::ChunkSize,
            Part::Trailer if line.is_empty() => NEXT_REQUEST,
            Part::Trailer => Part::Trailer,
            Part::Body(_) | Part::Chunk(_) | Part::ChunkEnd | Part::Invalid => Part::Invalid,
        }
    }
}

const TRANSFER_ENCODING: &str = "transfer-encoding";
const CONTENT_LENGTH: &str = "content-length";

/// A line that the library refuses.
struct Unreadable;

/// How the end of the body is found, if this line of the head says so.
fn body_of(line: &[u8]) -> Result<Option<Body>, Unreadable> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(Unreadable)?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if name.eq_ignore_ascii_case(TRANSFER_ENCODING.as_bytes()) {
        let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
        let is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
        return if is_chunked { Ok(Some(Body::Chunked)) } else { Err(Unreadable) };
    }
    if name.eq_ignore_ascii_case(CONTENT_LENGTH.as_bytes()) {
        let length = std::str::from_utf8(value).ok().and_then(|length| length.parse().ok());
        return length.map(|length| Some(Body::Length(length))).ok_or(Unreadable);
    }
    Ok(None)
}

/// The size of a chunk. Its extensions are ignored.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows a text in pieces of this size. Returns the text as the library gets it, with `~` for refused bytes.
    fn follow(text: &str, piece: usize) -> String {
        let mut heads = RequestHeads::new();
        let mut bytes = text.as_bytes().to_vec();
        let mut found = None;
        for piece in bytes.chunks_mut(piece) {
            found = found.or(heads.follow(piece));
        }
        assert_eq!(found.is_some(), bytes.contains(&REFUSED_BYTE), "{text}");
        String::from_utf8(bytes).unwrap().replace('\u{7f}', "~")
    }

    #[test]
    fn only_request_targets_lose_their_fragments() {
        let body = "GET /a# HTTP/1.1\r\n\r\n";
        let length = body.len();
        for (text, expected) in [
            ("GET /a HTTP/1.1\r\nx: #\r\n\r\n".to_owned(), None),
            ("G#T /a HTTP/1.1\r\n\r\n".to_owned(), None),
            ("GET /a# HTTP/1.1\r\n\r\n".to_owned(), Some("GET /a~ HTTP/1.1\r\n\r\n")),
            ("\r\n\nDELETE /a#b#c HTTP/1.1\n\n".to_owned(), Some("\r\n\nDELETE /a~b~c HTTP/1.1\n\n")),
            ("GET http://a#/b HTTP/1.1\r\n\r\n".to_owned(), Some("GET http://a~/b HTTP/1.1\r\n\r\n")),
            // Bodies are not changed, and the request after a body is found.
            (format!("PUT /a HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}"), None),
            (format!("PUT /a HTTP/1.1\r\ncontent-length:{length}\r\n\r\n{body}GET /b HTTP/1.1\r\n\r\n"), None),
            (
                format!("PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{length:x};a=#\r\n{body}\r\n0\r\nb: #\r\n\r\n"),
                None,
            ),
            (
                format!("PUT /a HTTP/1.1\r\nTransfer-Encoding: a, Chunked\r\nContent: 1\r\n\r\n{length:X}\r\n{body}\r\n0\r\n\r\n"),
                None,
            ),
            (
                "PUT /a HTTP/1.1\r\nContent-Length: 2\r\n\r\n# GET /b# HTTP/1.1\r\n\r\n".to_owned(),
                Some("PUT /a HTTP/1.1\r\nContent-Length: 2\r\n\r\n# GET /b~ HTTP/1.1\r\n\r\n"),
            ),
            (
                "PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n#\r\n0\r\n\r\nGET /b# HTTP/1.1\r\n\r\n".to_owned(),
                Some("PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n#\r\n0\r\n\r\nGET /b~ HTTP/1.1\r\n\r\n"),
            ),
        ] {
            for piece in [1, 2, 3, 7, 1000] {
                assert_eq!(follow(&text, piece), expected.unwrap_or(&text), "{piece}");
            }
        }
    }

    #[test]
    fn second_header_with_a_length_is_not_readable() {
        let (length, chunked) = ("Content-Length: 1\r\n", "transfer-encoding: chunked\r\n");
        let other = "Content-Length2: 1\r\n";
        for headers in [[length, chunked], [chunked, length], ["CONTENT-LENGTH: 0\n", chunked]] {
            let [first, second] = headers;
            let begin = format!("PUT /a HTTP/1.1\r\n{first}{other}{}", second.trim_end_matches('\n'));
            for piece in [1, 2, 7, 1000] {
                let end = format!("{other}\r\nGET /# HTTP/1.1\r\n");
                assert_eq!(follow(&format!("{begin}\n{end}"), piece), format!("{begin}~{end}"), "{piece}");
            }
        }
        // The library compares lengths that are repeated.
        let twice = format!("PUT /a HTTP/1.1\r\n{length}{length}\r\nxGET /# HTTP/1.1\r\n");
        assert_eq!(follow(&twice, 1000), twice.replace('#', "~"));
    }

    #[test]
    fn nothing_is_changed_after_a_request_that_is_refused_anyway() {
        for head in [
            "Content-Length: x",
            "Transfer-Encoding: gzip",
            "no header",
            "Transfer-Encoding: chunked\r\n\r\nx\r\n",
            "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
        ] {
            let text = format!("PUT /a HTTP/1.1\r\n{head}\r\n\r\nGET /a# HTTP/1.1\r\n\r\n");
            assert_eq!(follow(&text, 1000), text);
        }
    }

    #[test]
    fn long_lines_take_little_memory() {
        let mut heads = RequestHeads::new();
        let mut line = vec![b'a'; 1 << 20];
        assert_eq!(heads.follow(&mut line), None);
        assert_eq!(heads.follow(&mut b" #".to_vec()), Some(FRAGMENT));
        assert_eq!(heads.line.len(), MAX_LINE_BYTES);
    }
}
