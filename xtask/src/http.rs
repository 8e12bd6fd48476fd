//! The part of HTTP/1.1 that load generators need: answers with a known length, and prepared requests.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

/// The default time limit of connecting, and of each read.
const READ_LIMIT: Duration = Duration::from_secs(60);
const MAX_HEADERS: usize = 64;

/// The first part of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The status.
    pub status: u16,
    /// The length of the head in bytes.
    pub length: usize,
    /// The length of the body in bytes.
    pub body: usize,
}

impl Head {
    /// Parses the head at the beginning of `bytes`, once it is complete. An answer of unknown length, such as
    /// one in chunks, is an error: no request of these programs gets such an answer.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(length) = response.parse(bytes)? else { return Ok(None) };
        let status = response.code.context("an answer without a status")?;
        let given = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
        let body = match given {
            Some(header) => std::str::from_utf8(header.value)?.trim().parse()?,
            None if status == 204 || status == 304 => 0,
            None => bail!("an answer of {status} without a content length"),
        };
        Ok(Some(Self { status, length, body }))
    }
}

/// A GET request.
pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
}

/// A connection that sends a request and waits for its answer.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    /// Connects, with a limit of a minute for connecting and for each read.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        Self::connect_for(address, READ_LIMIT)
    }

    /// Connects, with this limit for connecting and for each read.
    pub fn connect_for(address: SocketAddr, limit: Duration) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        Ok(Self { stream, input: Vec::new() })
    }

    /// Sends a request. Returns the status and the body of its answer. After an error the connection cannot
    /// be used any more.
    pub fn send(&mut self, request: &[u8]) -> Result<(u16, Vec<u8>)> {
        self.stream.write_all(request)?;
        self.input.clear();
        let mut buffer = [0; 64 << 10];
        let mut head = None;
        loop {
            if head.is_none() {
                head = Head::parse(&self.input)?;
            }
            if let Some(head) = head
                && self.input.len() >= head.length + head.body
            {
                ensure!(self.input.len() == head.length + head.body, "more than one answer to one request");
                return Ok((head.status, self.input[head.length..].to_vec()));
            }
            let read = self.stream.read(&mut buffer)?;
            ensure!(read > 0, "the connection was closed in the middle of an answer");
            self.input.extend_from_slice(&buffer[..read]);
        }
    }

    /// Sends a GET request.
    pub fn get(&mut self, path: &str) -> Result<(u16, Vec<u8>)> {
        self.send(&get(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_is_parsed_once_it_is_complete() {
        let answer = b"HTTP/1.1 200 OK\r\nX-A: b\r\ncontent-LENGTH: 12\r\n\r\nabc";
        let head = Head { status: 200, length: answer.len() - 3, body: 12 };
        assert_eq!(Head::parse(answer).unwrap(), Some(head));
        assert_eq!(Head::parse(&answer[..answer.len() - 4]).unwrap(), None);
    }

    #[test]
    fn an_answer_of_unknown_length_is_an_error() {
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        assert!(Head::parse(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().is_some());
    }
}
