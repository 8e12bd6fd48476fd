//! Finds request targets with a `#`, so that they are refused.
//!
//! A request target has no fragment (RFC 9112, section 3.2). The HTTP library cuts a fragment off, so it would answer
//! `/metrics#` as `/metrics`. A proxy in front of the server that forbids `/metrics` would pass such a request on. The
//! service does not see the fragment. So [`RequestHeads`] follows the requests of a connection, and replaces the `#` by
//! a byte that the library refuses.

/// The byte that replaces a `#`. No request target has it.
const REFUSED_BYTE: u8 = 0x7f;

/// The number of bytes of a line that are examined. The lines that matter are shorter.
const MAX_LINE_BYTES: usize = 256;

/// Follows the bytes that a client sends, to know which of them are request lines.
#[derive(Debug)]
pub(crate) struct RequestHeads {
    part: Part,
    /// The beginning of the current line.
    line: Vec<u8>,
    /// How the end of the body is found, according to the headers so far.
    body: Body,
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
        Self { part: NEXT_REQUEST, line: Vec::new(), body: Body::Length(0) }
    }

    /// Follows the next bytes. Replaces each `#` in a request target. Returns whether there was one.
    pub(crate) fn replace_fragments(&mut self, mut bytes: &mut [u8]) -> bool {
        let mut found = false;
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
                    found |= self.follow_line(&mut bytes[..taken], end.is_some());
                    taken
                }
            };
            bytes = &mut bytes[taken..];
        }
        found
    }

    /// Follows bytes of one line. Returns whether they had a `#` that was replaced.
    fn follow_line(&mut self, bytes: &mut [u8], is_end: bool) -> bool {
        let mut found = false;
        if let Part::RequestLine { in_target } = &mut self.part {
            for byte in &mut *bytes {
                *in_target |= *byte == b' ';
                if *in_target && *byte == b'#' {
                    (*byte, found) = (REFUSED_BYTE, true);
                }
            }
        }
        let room = MAX_LINE_BYTES - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if is_end {
            self.part = self.after_line();
            self.line.clear();
        }
        found
    }

    /// The part of the request that follows the current line.
    fn after_line(&mut self) -> Part {
        let line = self.line.trim_ascii();
        match self.part {
            Part::RequestLine { .. } if line.is_empty() => NEXT_REQUEST,
            Part::RequestLine { .. } => {
                self.body = Body::Length(0);
                Part::Header
            }
            Part::Header if line.is_empty() => match self.body {
                Body::Length(0) => NEXT_REQUEST,
                Body::Length(length) => Part::Body(length),
                Body::Chunked => Part::ChunkSize,
            },
            Part::Header => match body_of(line, self.body) {
                Some(body) => {
                    self.body = body;
                    Part::Header
                }
                None => Part::Invalid,
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

/// How the end of the body is found, with this line of the head, and with `before` according to the lines before it.
/// `None` if the library refuses the line.
fn body_of(line: &[u8], before: Body) -> Option<Body> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if name.eq_ignore_ascii_case(b"transfer-encoding") {
        let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
        return last.trim_ascii().eq_ignore_ascii_case(b"chunked").then_some(Body::Chunked);
    }
    if name.eq_ignore_ascii_case(b"content-length") && before != Body::Chunked {
        return std::str::from_utf8(value).ok()?.parse().ok().map(Body::Length);
    }
    Some(before)
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
        let mut found = false;
        for piece in bytes.chunks_mut(piece) {
            found |= heads.replace_fragments(piece);
        }
        assert_eq!(found, bytes.contains(&REFUSED_BYTE), "{text}");
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
                format!("PUT /a HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: a, Chunked\r\nContent-Length: 1\r\n\r\n{length:X}\r\n{body}\r\n0\r\n\r\n"),
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
        assert!(!heads.replace_fragments(&mut line));
        assert!(heads.replace_fragments(&mut b" #".to_vec()));
        assert_eq!(heads.line.len(), MAX_LINE_BYTES);
    }
}
