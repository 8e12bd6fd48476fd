//! Compares PUT and GET of entries with POST of revisions and GET of the latest render of the same size.

use anyhow::{Result, bail, ensure};
use xtask::http::Client;

use super::{Bench, append_with_body, entry_path, in_turn};
use crate::{
    content::{Contents, HTML_SIZE},
    load::Traffic,
    reads::Reads,
    report::Report,
    writes::{self, Writes},
};

pub(super) const BUCKET: &str = "blobs";
/// The size whose requests are compared with those of revisions.
pub(super) const COMPARED: Size = Size { name: "20 KiB", bytes: HTML_SIZE, keys: 1_000 };
const SIZES: [Size; 3] = [
    Size { name: "1 KiB", bytes: 1 << 10, keys: 1_000 },
    COMPARED,
    // Such bodies are stored in chunks.
    Size { name: "1 MiB", bytes: 1 << 20, keys: 20 },
];
/// The number of entries, or of pages, that are read in turn.
const READ_ENTRIES: usize = 20;
/// The number of the first entry that is read. No measured PUT replaces the entries from this number on.
const FIRST_READ: usize = 1_000_000_000;

/// Bodies of one size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) name: &'static str,
    pub(super) bytes: usize,
    /// The number of keys that are written in turn.
    pub(super) keys: usize,
}

impl Size {
    fn key(self, number: usize) -> String {
        format!("{}/{number:04}.html", self.bytes)
    }

    pub(super) fn path(self, number: usize) -> String {
        entry_path(BUCKET, &self.key(number))
    }

    /// Appends the body of the write with this number.
    fn append(self, contents: &Contents, number: u64, out: &mut Vec<u8>) {
        let end = out.len() + self.bytes;
        while out.len() < end {
            contents.append_html(number + (out.len() / HTML_SIZE) as u64, out);
        }
        out.truncate(end);
    }

    pub(super) fn body(self, contents: &Contents, number: u64) -> Vec<u8> {
        let mut body = Vec::new();
        self.append(contents, number, &mut body);
        body
    }

    /// Stores the entries that are read, and returns their paths and bodies.
    pub(super) fn store(self, bench: &Bench<'_>) -> Result<(Vec<String>, Vec<Vec<u8>>)> {
        let mut client = Client::connect(bench.address)?;
        let read = || (0..READ_ENTRIES).map(|number| FIRST_READ + number);
        let paths: Vec<String> = read().map(|number| self.path(number)).collect();
        let bodies: Vec<Vec<u8>> = read().map(|number| self.body(bench.contents, number as u64)).collect();
        for (path, body) in paths.iter().zip(&bodies) {
            let (status, _) = client.send(&super::with_body("PUT", path, "text/html", body))?;
            ensure!(matches!(status, 200 | 201), "a PUT is answered with {status}");
        }
        Ok((paths, bodies))
    }
}

/// The numbers of the next writes, and the traffic of the reads.
pub(super) struct Blobs {
    next_entry: u64,
    next_revision: u64,
    /// The traffic of the reads: for each size, and for the pages.
    reads: Vec<Reads>,
    latest: Reads,
}

impl Blobs {
    pub(super) fn prepare(bench: &Bench<'_>) -> Result<Self> {
        bench.must_create(BUCKET, r#"{"type": "blob"}"#)?;
        let connections = bench.options.connections;
        let mut reads = Vec::new();
        for size in SIZES {
            let (paths, bodies) = size.store(bench)?;
            reads.push(Reads::new(&paths, Some(size.bytes), Some(bodies), connections));
        }
        let titles: Vec<String> = (0..READ_ENTRIES).map(|number| format!("Read_{number}")).collect();
        let mut writes = Writes::new(bench.contents, titles.clone(), 1, 1).only_html();
        let mut client = Client::connect(bench.address)?;
        writes.send(&mut client, titles.len())?;
        let paths: Vec<String> =
            titles.iter().map(|title| format!("{}?rev/latest/html", writes::page_path(title))).collect();
        // Revision `n` is that of the title `n % READ_ENTRIES`.
        let bodies =
            (0..READ_ENTRIES as u64).map(|place| if place == 0 { READ_ENTRIES as u64 } else { place });
        let bodies = bodies.map(|number| bench.contents.html(number)).collect();
        let latest = Reads::new(&paths, Some(HTML_SIZE), Some(bodies), connections);
        Ok(Self { next_entry: 0, next_revision: 1, reads, latest })
    }

    pub(super) fn measure(&mut self, bench: &Bench<'_>, turn: usize, report: &mut Report) -> Result<()> {
        let connections = bench.options.connections;
        for (place, size) in SIZES.into_iter().enumerate() {
            let is_compared = size.bytes == COMPARED.bytes;
            let (next_entry, next_revision) = (&mut self.next_entry, &mut self.next_revision);
            let put = || {
                let mut puts = Puts::new(bench.contents, size, *next_entry);
                let measured = bench.run(&mut puts)?;
                *next_entry = puts.next;
                Ok(measured)
            };
            let post = || {
                if !is_compared {
                    return Ok(None);
                }
                let titles = writes::titles(size.keys);
                let mut posts = Writes::new(bench.contents, titles, *next_revision, connections).only_html();
                let rate = bench.run(&mut posts)?.per_second();
                *next_revision = posts.next();
                Ok(Some(rate))
            };
            let (put, post) = in_turn(turn, put, post)?;
            report.add(&format!("PUT of {}", size.name), "a second", put.per_second());
            report.add(&format!("PUT of {}, p50", size.name), "ms", put.latency_ms(0.5));
            report.add(&format!("PUT of {}, p99", size.name), "ms", put.latency_ms(0.99));
            if let Some(post) = post {
                report.add(&format!("POST of a revision of {}", size.name), "a second", post);
                report.add(&format!("PUT / POST, {}", size.name), "", put.per_second() / post);
            }
            let (reads, latest) = (&mut self.reads[place], &mut self.latest);
            let (get, latest) =
                in_turn(turn, || bench.run(reads), || is_compared.then(|| bench.run(latest)).transpose())?;
            report.add(&format!("GET of {}", size.name), "a second", get.per_second());
            report.add(&format!("GET of {}, p50", size.name), "ms", get.latency_ms(0.5));
            if let Some(latest) = latest {
                let latest = latest.per_second();
                report.add(&format!("GET of the latest of {}", size.name), "a second", latest);
                report.add(
                    &format!("GET of an entry / of the latest, {}", size.name),
                    "",
                    get.per_second() / latest,
                );
            }
        }
        Ok(())
    }
}

/// Traffic that writes entries under some keys in turn.
pub(super) struct Puts<'a> {
    contents: &'a Contents,
    size: Size,
    pub(super) next: u64,
    body: Vec<u8>,
}

impl<'a> Puts<'a> {
    pub(super) fn new(contents: &'a Contents, size: Size, next: u64) -> Self {
        Self { contents, size, next, body: Vec::new() }
    }
}

impl Traffic for Puts<'_> {
    fn request(&mut self, _: usize, out: &mut Vec<u8>) {
        self.body.clear();
        self.size.append(self.contents, self.next, &mut self.body);
        out.clear();
        let path = self.size.path(self.next as usize % self.size.keys);
        append_with_body("PUT", &path, "text/html", &self.body, out);
        self.next += 1;
    }

    fn answer(&mut self, _: usize, status: u16, body: &[u8]) -> Result<()> {
        if !matches!(status, 200 | 201) {
            bail!("a PUT was answered with {status}: {}", String::from_utf8_lossy(body));
        }
        Ok(())
    }
}
