//! Traffic that writes: each request is a new revision with html and data-parsoid, or with html alone.

use anyhow::{Result, bail};
use xtask::http::Client;

use super::{content::Contents, load::Traffic, service::DOMAIN};

const BOUNDARY: &str = "rashomon-bench-boundary";

/// One write. Its number is also the number of its revision, so each write has a revision of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) page: usize,
    pub(crate) rev: u64,
}

/// A write that was answered with 201.
#[derive(Debug, Clone)]
pub(crate) struct Acknowledged {
    pub(crate) write: Write,
    pub(crate) tid: String,
}

/// Writes to some pages in turn.
#[derive(Debug)]
pub(crate) struct Writes<'a> {
    contents: &'a Contents,
    pages: Vec<String>,
    next: u64,
    body: Vec<u8>,
    /// The write that each connection has sent but has no answer to.
    pub(crate) in_flight: Vec<Option<Write>>,
    /// All acknowledged writes. `None` if no journal is kept.
    pub(crate) journal: Option<Vec<Acknowledged>>,
    /// An answer that refused a write, if there was one.
    pub(crate) refused: Option<String>,
    /// Whether a revision has html alone.
    only_html: bool,
}

impl<'a> Writes<'a> {
    /// Writes to `pages`, with revisions from `first` on.
    pub(crate) fn new(contents: &'a Contents, pages: Vec<String>, first: u64, connections: usize) -> Self {
        Self {
            contents,
            pages,
            next: first,
            body: Vec::new(),
            in_flight: vec![None; connections],
            journal: None,
            refused: None,
            only_html: false,
        }
    }

    /// Keeps a journal of acknowledged writes.
    pub(crate) fn with_journal(mut self) -> Self {
        self.journal = Some(Vec::new());
        self
    }

    /// Writes revisions that have html alone.
    pub(crate) fn only_html(mut self) -> Self {
        self.only_html = true;
        self
    }

    /// Writes this many revisions, one after the other.
    pub(crate) fn send(&mut self, client: &mut Client, count: usize) -> Result<()> {
        let mut request = Vec::new();
        for _ in 0..count {
            self.request(0, &mut request);
            let (status, body) = client.send(&request)?;
            self.answer(0, status, &body)?;
        }
        Ok(())
    }

    /// The number of the next write.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// Replaces the content of `out` with the request of a write.
    fn make(&mut self, write: Write, out: &mut Vec<u8>) {
        let part = |body: &mut Vec<u8>, name: &str, content_type: &str| {
            body.extend_from_slice(
                format!(
                    "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n{content_type}\r\n"
                )
                .as_bytes(),
            );
        };
        let body = &mut self.body;
        body.clear();
        part(body, "_rev", "");
        body.extend_from_slice(format!("{}\r\n", write.rev).as_bytes());
        part(body, "html", "Content-Type: text/html; charset=utf-8\r\n");
        self.contents.append_html(write.rev, body);
        if !self.only_html {
            body.extend_from_slice(b"\r\n");
            part(body, "data-parsoid", "Content-Type: application/json\r\n");
            self.contents.append_data_parsoid(write.rev, body);
        }
        body.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());

        out.clear();
        out.extend_from_slice(
            format!(
                "POST {}?rev/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: {}\r\n\r\n",
                page_path(&self.pages[write.page]),
                self.body.len()
            )
            .as_bytes(),
        );
        out.extend_from_slice(&self.body);
    }
}

impl Traffic for Writes<'_> {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        let write = Write { page: self.next as usize % self.pages.len(), rev: self.next };
        self.next += 1;
        self.in_flight[connection] = Some(write);
        self.make(write, out);
    }

    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<()> {
        if status != 201 {
            let refused = format!("a write was answered with {status}: {}", String::from_utf8_lossy(body));
            self.refused = Some(refused.clone());
            bail!(refused);
        }
        if let (Some(journal), Some(write)) = (&mut self.journal, self.in_flight[connection]) {
            let answer: serde_json::Value = serde_json::from_slice(body)?;
            let tid = answer["tid"].as_str().unwrap_or_default().to_owned();
            journal.push(Acknowledged { write, tid });
        }
        self.in_flight[connection] = None;
        Ok(())
    }
}

/// The path of a page with this title.
pub(crate) fn page_path(title: &str) -> String {
    format!("/v1/{DOMAIN}/page/{title}")
}

/// Makes `count` titles.
pub(crate) fn titles(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("Page_{number:04}")).collect()
}
