//! Messages of HTTP/1.1 as they are on the wire, so that tests can send and see every header.

use std::{
    fmt,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

/// The time limit of connecting, and of each read.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// The maximum length of a line of a head.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// The maximum number of bytes of a body that an error shows.
const MAX_SHOWN_BYTES: usize = 1_000;

/// The maximum number of headers of a message.
const MAX_HEADERS: usize = 256;

/// A request or an answer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The first line.
    pub first: String,
    /// The names, in lower case, and values of the headers.
    pub headers: Vec<(String, String)>,
    /// The body, without the framing of chunks.
    pub body: Vec<u8>,
}

impl fmt::Debug for Message {
    /// The body is shown as a text, up to a limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(MAX_SHOWN_BYTES)]);
        write!(f, "{} {:?} {body:?}", self.first, self.headers)
    }
}

impl Message {
    /// The value of the first header with this name in lower case, or an empty text.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// The status of an answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// The method of a request.
    #[must_use]
    pub fn method(&self) -> &str {
        self.first.split(' ').next().unwrap_or_default()
    }

    /// The path and query of a request.
    #[must_use]
    pub fn url(&self) -> &str {
        self.first.split(' ').nth(1).unwrap_or_default()
    }

    /// The body as a text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Reads a head. `None` if the connection was closed before it began.
    pub fn read_head(input: &mut impl BufRead) -> Result<Option<Self>> {
        let Some(first) = read_line(input)? else { return Ok(None) };
        let mut message = Self { first, ..Self::default() };
        loop {
            let line = read_line(input)?.context("the connection was closed in a head")?;
            if line.is_empty() {
                return Ok(Some(message));
            }
            ensure!(message.headers.len() < MAX_HEADERS, "a message with more than {MAX_HEADERS} headers");
            let (name, value) = line.split_once(':').with_context(|| format!("not a header: {line}"))?;
            message.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// Reads the answer to a GET request, after which the connection is closed.
    pub fn read(input: &mut impl BufRead) -> Result<Self> {
        let mut answer = Self::read_head(input)?.context("no answer")?;
        answer.read_body(input, true)?;
        Ok(answer)
    }

    /// Reads the body that belongs to the head. A body without a length has the rest of the connection if
    /// `to_the_end` is set, and else no bytes.
    pub fn read_body(&mut self, input: &mut impl BufRead, to_the_end: bool) -> Result<()> {
        if self.header("transfer-encoding").eq_ignore_ascii_case("chunked") {
            while let length @ 1.. = read_chunk_length(input)? {
                let begin = self.body.len();
                self.body.resize(begin + length, 0);
                input.read_exact(&mut self.body[begin..])?;
                ensure!(read_line(input)?.is_some_and(|line| line.is_empty()), "a chunk without an end");
            }
            read_line(input)?;
        } else if let Ok(length) = self.header("content-length").parse() {
            self.body.resize(length, 0);
            input.read_exact(&mut self.body)?;
        } else if to_the_end {
            input.read_to_end(&mut self.body)?;
        }
        Ok(())
    }
}

fn read_chunk_length(input: &mut impl BufRead) -> Result<usize> {
    let line = read_line(input)?.context("the connection was closed in a body")?;
    usize::from_str_radix(line.trim(), 16).with_context(|| format!("not the length of a chunk: {line}"))
}

fn read_line(input: &mut impl BufRead) -> Result<Option<String>> {
    let mut line = Vec::new();
    if input.take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    ensure!(line.ends_with(b"\n"), "a line of a head is cut off, or too long");
    Ok(Some(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned()))
}

/// A request that tests send. Each has a connection of its own.
#[derive(Debug, Clone)]
pub struct Request {
    method: &'static str,
    url: String,
    host: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Request {
    /// A request with the host `store.example.org`.
    #[must_use]
    pub fn new(method: &'static str, url: impl Into<String>) -> Self {
        Self {
            method,
            url: url.into(),
            host: "store.example.org".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Replaces the host.
    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends the request, and returns the connection.
    pub fn send(&self, address: SocketAddr) -> Result<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect_timeout(&address, READ_LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_LIMIT))?;
        let mut bytes = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", self.method, self.url, self.host);
        for (name, value) in &self.headers {
            bytes += &format!("{name}: {value}\r\n");
        }
        if !self.body.is_empty() || self.method == "POST" {
            bytes += &format!("Content-Length: {}\r\n", self.body.len());
        }
        bytes += "Connection: close\r\n\r\n";
        stream.write_all(&[bytes.as_bytes(), &self.body].concat())?;
        Ok(BufReader::new(stream))
    }

    /// Sends the request, and returns the whole answer.
    pub fn answer(&self, address: SocketAddr) -> Result<Message> {
        let mut input = self.send(address)?;
        let mut answer = Message::read_head(&mut input)?.context("no answer")?;
        if self.method != "HEAD" && ![204, 304].contains(&answer.status()) {
            answer.read_body(&mut input, true)?;
        }
        Ok(answer)
    }
}

/// A GET request.
pub fn get(url: impl Into<String>) -> Request {
    Request::new("GET", url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Message {
        let mut input = text.as_bytes();
        let mut message = Message::read_head(&mut input).unwrap().unwrap();
        message.read_body(&mut input, true).unwrap();
        message
    }

    #[test]
    fn bodies_of_every_framing_are_read() {
        for framing in [
            "Content-Length: 5\r\n\r\nhello rest",
            "Transfer-Encoding: chunked\r\n\r\n1\r\nh\r\n4\r\nello\r\n0\r\n\r\n",
            "\r\nhello",
        ] {
            let message = read(&format!("HTTP/1.1 200 OK\r\nX-A: b\r\n{framing}"));
            assert_eq!((message.status(), message.header("x-a"), &*message.text()), (200, "b", "hello"));
        }
    }

    #[test]
    fn cut_off_messages_are_errors() {
        assert!(Message::read_head(&mut "HTTP/1.1 200 OK\r\nX-A".as_bytes()).is_err());
        assert!(Message::read_head(&mut "".as_bytes()).unwrap().is_none());
    }
}
