//! Traffic that reads several values in turn.

use anyhow::{Result, ensure};
use xtask::http;

use crate::{
    content::{Contents, HTML_SIZE},
    load::Traffic,
    writes::{Acknowledged, page_path},
};

/// One of every `COMPARE_EVERY` answers is compared byte for byte. Comparing all of them would slow the load generator
/// down.
const COMPARE_EVERY: u64 = 64;

/// Reads of the html of renders, or of the newest html of pages.
pub(super) struct Reads<'a> {
    contents: &'a Contents,
    /// The requests, each with the number of the write whose html is expected. `None` if other requests write
    /// meanwhile.
    asked: &'a [(Vec<u8>, Option<u64>)],
    next: usize,
    /// The request that each connection sent last.
    in_flight: Vec<usize>,
    answers: u64,
}

/// Requests for the html of renders by their tids.
pub(super) fn by_tid<'a>(
    titles: &'a [String],
    renders: impl IntoIterator<Item = &'a Acknowledged>,
) -> Vec<(Vec<u8>, Option<u64>)> {
    let ask = |render: &Acknowledged| {
        let path = format!("{}?rev/{}/html", page_path(&titles[render.write.page]), render.tid);
        (http::get(&path), Some(render.write.rev))
    };
    renders.into_iter().map(ask).collect()
}

/// Requests for the newest html of pages.
pub(super) fn latest(titles: &[String]) -> Vec<(Vec<u8>, Option<u64>)> {
    titles.iter().map(|title| (http::get(&format!("{}?rev/latest/html", page_path(title))), None)).collect()
}

impl<'a> Reads<'a> {
    pub(super) fn new(
        contents: &'a Contents,
        asked: &'a [(Vec<u8>, Option<u64>)],
        connections: usize,
    ) -> Self {
        Self { contents, asked, next: 0, in_flight: vec![0; connections], answers: 0 }
    }
}

impl Traffic for Reads<'_> {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        let asked = self.next % self.asked.len();
        self.next += 1;
        self.in_flight[connection] = asked;
        out.clear();
        out.extend_from_slice(&self.asked[asked].0);
    }

    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<()> {
        ensure!(
            status == 200 && body.len() == HTML_SIZE,
            "a read was answered with {status}, {} bytes",
            body.len()
        );
        self.answers += 1;
        let (_, written) = &self.asked[self.in_flight[connection]];
        if let Some(number) = written.filter(|_| self.answers.is_multiple_of(COMPARE_EVERY)) {
            ensure!(body == self.contents.html(number), "a read was answered with other bytes");
        }
        Ok(())
    }
}
