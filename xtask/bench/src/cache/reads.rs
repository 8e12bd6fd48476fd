//! Compares GET of the latest html from the memory of Varnish with the same requests directly to the server.

use anyhow::Result;
use xtask::varnish::{
    Files,
    cached::{Caches, Method, Server},
};

use super::{Bench, latest_htmls, write_pages};
use crate::{content::HTML_SIZE, reads::Reads, report::Report, service};

/// The number of pages that are read in turn.
pub(super) const PAGES: usize = 50;

pub(super) fn measure(bench: &Bench<'_>, files: &Files, report: &mut Report) -> Result<()> {
    let folder = service::data_folder()?;
    let caches = Caches { methods: &[Method::Keys], are_up: true };
    let server = Server::start(bench.binary, files, &folder.path().join("server"), caches)?;
    write_pages(bench, server.address(), PAGES)?;
    server.drain()?;
    let paths = latest_htmls(PAGES);
    server.store(&paths)?;
    let expected: Vec<Vec<u8>> = (1..=PAGES as u64).map(|rev| bench.contents.html(rev)).collect();
    for turn in 0..bench.runs {
        eprintln!("reads, turn {}", turn + 1);
        let reads = || Reads::new(&paths, Some(HTML_SIZE), Some(expected.clone()), bench.options.connections);
        bench.compare(
            turn,
            report,
            ("GET through Varnish", server.cache(), &mut reads()),
            ("GET from the server", server.address(), &mut reads()),
        )?;
    }
    Ok(())
}
