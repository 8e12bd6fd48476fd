//! Traffic that reads.

use anyhow::{Result, ensure};
use xtask::http;

use super::load::Traffic;

/// One of every `COMPARE_EVERY` answers is compared byte for byte.
const COMPARE_EVERY: u64 = 64;

/// Reads some paths in turn.
#[derive(Debug)]
pub(crate) struct Reads {
    requests: Vec<Vec<u8>>,
    /// The expected status of each answer.
    status: u16,
    /// The expected length of each body. `None`: the lengths differ, and are not compared.
    length: Option<usize>,
    /// The expected body of each request. `None`: bodies are not compared, for example because writes change them.
    expected: Option<Vec<Vec<u8>>>,
    /// The index of the request that each connection sent last.
    sent: Vec<usize>,
    next: usize,
    answers: u64,
}

impl Reads {
    pub(crate) fn new(
        paths: &[String],
        length: Option<usize>,
        expected: Option<Vec<Vec<u8>>>,
        connections: usize,
    ) -> Self {
        Self::of(paths.iter().map(|path| http::get(path)).collect(), length, expected, connections)
    }

    /// Sends any requests.
    pub(crate) fn of(
        requests: Vec<Vec<u8>>,
        length: Option<usize>,
        expected: Option<Vec<Vec<u8>>>,
        connections: usize,
    ) -> Self {
        Self { requests, status: 200, length, expected, sent: vec![0; connections], next: 0, answers: 0 }
    }

    /// Expects another status.
    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}

impl Traffic for Reads {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        self.sent[connection] = self.next;
        out.clear();
        out.extend_from_slice(&self.requests[self.next]);
        self.next = (self.next + 1) % self.requests.len();
    }

    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<()> {
        ensure!(
            status == self.status && self.length.is_none_or(|length| body.len() == length),
            "a request was answered with {status}, {} bytes",
            body.len()
        );
        self.answers += 1;
        if let Some(expected) = self.expected.as_ref().filter(|_| self.answers.is_multiple_of(COMPARE_EVERY))
        {
            ensure!(body == expected[self.sent[connection]], "a read was answered with other bytes");
        }
        Ok(())
    }
}
