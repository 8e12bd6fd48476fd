//! Measures reads over HTTP of renders in blocks and of latest renders, and edits of pages that are in blocks.

use std::{fmt::Write, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use rashomon_clock::{Clock, rfc3339};
use rashomon_pages::Title;
use xtask::{
    http::{self, Client},
    service::Service,
};

use super::input::{number_and_time, tid_of};
use crate::{
    blocks::sets::{Set, Version},
    writes::page_path,
};

/// The number of reads directly after a start, when the caches of the server are empty.
pub(super) const AFTER_START: usize = 50;

/// The server caches no answers, but it caches unpacked blocks.
const UNCACHED: &str = "cache_size = 0\nprepared_answers = 0\n[archive]\n";
/// The server caches nothing, not even unpacked blocks.
const NO_BLOCKS: &str = "cache_size = 0\nprepared_answers = 0\n[archive]\ncache_size = 0\n";

/// Adds a figure: its name, its unit and its value.
type Add<'a> = dyn FnMut(&str, &'static str, f64) + 'a;

/// The number of revisions for which the blocks that a read opens are counted.
pub(super) const COUNTED_REVISIONS: usize = 200;

/// A request, and the expected answer.
struct Read<'a> {
    request: Vec<u8>,
    text: &'a [u8],
}

/// The stores that are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stores<'a> {
    /// All revisions are in blocks.
    pub(super) sealed_whole: &'a Path,
    /// The latest revision of each page is in the tables.
    pub(super) latest_in_rows: &'a Path,
}

pub(super) fn measure(
    count: usize,
    binary: &Path,
    stores: Stores<'_>,
    set: &Set,
    seed: u64,
    clock: &dyn Clock,
    add: &mut Add<'_>,
) -> Result<()> {
    let mut rng = Rng::with_seed(seed);
    let mut archived = Vec::new();
    let mut current = Vec::new();
    for page in &set.pages {
        let latest = page.versions.iter().max_by_key(|version| number_and_time(version).map(|(rev, _)| rev));
        for version in &page.versions {
            let is_latest = latest.is_some_and(|latest| std::ptr::eq(latest, version));
            if is_latest { &mut current } else { &mut archived }.push((page.title.as_str(), version));
        }
    }
    rng.shuffle(&mut archived);
    rng.shuffle(&mut current);
    let property = if set.name == "renders" { "html" } else { "wikitext" };
    measure_idle_pages(
        &current[..current.len().min(count)],
        property,
        binary,
        stores.sealed_whole,
        clock,
        add,
    )?;
    measure_opened_blocks(
        &archived[..archived.len().min(COUNTED_REVISIONS)],
        property,
        binary,
        stores.sealed_whole,
        add,
    )?;
    let archived = reads_by_tid(&archived, property, count)?;
    let current = reads_by_tid(&current, property, count)?;

    let service = serve(binary, stores.latest_in_rows, UNCACHED)?;
    let of_current = read(&service, &current, clock)?;
    ensure!(service.stop()?.success(), "the server ended with an error");
    let service = serve(binary, stores.sealed_whole, UNCACHED)?;
    let after_start = read(&service, &archived[..archived.len().min(AFTER_START)], clock)?;
    read(&service, &archived, clock)?;
    let warm = read(&service, &archived, clock)?;
    ensure!(service.stop()?.success(), "the server ended with an error");
    let service = serve(binary, stores.sealed_whole, NO_BLOCKS)?;
    let unpacking = read(&service, &archived, clock)?;
    ensure!(service.stop()?.success(), "the server ended with an error");

    for (name, times) in [
        ("current read", &of_current),
        ("random read, warm", &warm),
        ("random read, after a start", &after_start),
        ("random read, no unpacked block in memory", &unpacking),
    ] {
        add(&format!("{name}, p50"), "ms", quantile(times, 0.5));
        add(&format!("{name}, p99"), "ms", quantile(times, 0.99));
    }
    for (name, times) in [("warm", &warm), ("no unpacked block in memory", &unpacking)] {
        add(&format!("random / current, {name}, p50"), "", quantile(times, 0.5) / quantile(&of_current, 0.5));
    }
    Ok(())
}

/// Reads the latest of each page, and then edits each page. Before the edits, all revisions of the pages are in blocks.
fn measure_idle_pages(
    pages: &[(&str, &Version)],
    property: &str,
    binary: &Path,
    store: &Path,
    clock: &dyn Clock,
    add: &mut Add<'_>,
) -> Result<()> {
    let service = serve(binary, store, NO_BLOCKS)?;
    let (mut reads, mut edits) = (Vec::with_capacity(pages.len()), Vec::with_capacity(pages.len()));
    for (title, version) in pages {
        let path = page_path(&percent_encoded(Title::new(title)?.as_str()));
        let request = http::get(&format!("{path}?rev/latest/{property}"));
        reads.push(Read { request, text: &version.text });
        let Some((rev, _)) = number_and_time(version) else { continue };
        let body = format!("_rev={}&{property}=edited", rev.get() + 1);
        let form = "Content-Type: application/x-www-form-urlencoded";
        let head = format!("POST {path}?rev/ HTTP/1.1\r\nHost: localhost\r\n{form}");
        edits.push(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    }
    let reads = read(&service, &reads, clock)?;
    let mut client = Client::connect(service.address())?;
    let mut written = Vec::with_capacity(edits.len());
    for edit in edits {
        let started = clock.monotonic();
        let (status, body) = client.send(edit.as_bytes())?;
        written.push((clock.monotonic() - started).as_secs_f64() * 1e3);
        ensure!(status == 201, "an edit was answered with {status}: {}", String::from_utf8_lossy(&body));
    }
    written.sort_by(f64::total_cmp);
    ensure!(service.stop()?.success(), "the server ended with an error");
    for (name, times) in [("first read of an idle page", &reads), ("edit of an idle page", &written)] {
        add(&format!("{name}, p50"), "ms", quantile(times, 0.5));
        add(&format!("{name}, p99"), "ms", quantile(times, 0.99));
    }
    Ok(())
}

/// Reads revisions by number, by time and by tid. Counts the blocks that each read opens.
fn measure_opened_blocks(
    of: &[(&str, &Version)],
    property: &str,
    binary: &Path,
    store: &Path,
    add: &mut Add<'_>,
) -> Result<()> {
    let service = serve(binary, store, NO_BLOCKS)?;
    let mut client = Client::connect(service.address())?;
    let mut counts = [const { Vec::new() }; 3];
    let mut before = opened_blocks(&mut client)?;
    for (title, version) in of {
        let Some((rev, time)) = number_and_time(version) else { continue };
        let path = page_path(&percent_encoded(Title::new(title)?.as_str()));
        let revisions = [rev.get().to_string(), rfc3339::format(time), tid_of(title, version)?.to_string()];
        for (revision, counts) in revisions.iter().zip(&mut counts) {
            let (status, _) = client.get(&format!("{path}?rev/{revision}/{property}"))?;
            // A time is answered with a redirect to the render.
            ensure!(
                matches!(status, 200 | 302),
                "the read of {title}, {revision}, was answered with {status}"
            );
            let after = opened_blocks(&mut client)?;
            counts.push(after - before);
            before = after;
        }
    }
    ensure!(service.stop()?.success(), "the server ended with an error");
    for (name, counts) in ["number", "time", "tid"].iter().zip(&counts) {
        let max = counts.iter().max().copied().unwrap_or_default();
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        add(&format!("blocks opened per read by {name}, mean"), "", mean);
        add(&format!("blocks opened per read by {name}, most"), "", max as f64);
    }
    Ok(())
}

/// The server's counter of opened blocks.
fn opened_blocks(client: &mut Client) -> Result<u64> {
    const NAME: &str = "rashomon_archive_blocks_opened_total ";
    let (_, metrics) = client.get("/metrics")?;
    let metrics = String::from_utf8_lossy(&metrics);
    let count = metrics.lines().find_map(|line| line.strip_prefix(NAME));
    Ok(count.context("the server does not count opened blocks")?.parse()?)
}

fn reads_by_tid<'a>(of: &[(&str, &'a Version)], property: &str, count: usize) -> Result<Vec<Read<'a>>> {
    let reads = of.iter().cycle().take(count);
    reads
        .map(|(title, version)| {
            let tid = tid_of(title, version)?;
            let title = percent_encoded(Title::new(title)?.as_str());
            let path = format!("{}?rev/{tid}/{property}", page_path(&title));
            Ok(Read { request: http::get(&path), text: &version.text })
        })
        .collect()
}

/// Encodes a title as the service does: any other spelling is answered with a redirect.
fn percent_encoded(title: &str) -> String {
    let mut encoded = String::with_capacity(title.len());
    for byte in title.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~;:@$!*(),/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn serve(binary: &Path, store: &Path, settings: &str) -> Result<Service> {
    let (file, log) = (store.with_extension("toml"), store.with_extension("log"));
    fs::write(&file, settings)?;
    let arguments =
        ["serve".as_ref(), "--data".as_ref(), store.as_os_str(), "--config".as_ref(), file.as_os_str()];
    Service::start(binary, &arguments, &log)
}

/// Sends the reads one after the other. Returns the duration of each in milliseconds, in ascending order.
fn read(service: &Service, reads: &[Read<'_>], clock: &dyn Clock) -> Result<Vec<f64>> {
    let mut client = Client::connect(service.address())?;
    let mut took = Vec::with_capacity(reads.len());
    for read in reads {
        let started = clock.monotonic();
        let (status, body) = client.send(&read.request)?;
        took.push((clock.monotonic() - started).as_secs_f64() * 1e3);
        ensure!(
            status == 200 && body == read.text,
            "a read was answered with {status}, {} bytes",
            body.len()
        );
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}

fn quantile(sorted: &[f64], quantile: f64) -> f64 {
    let place = (sorted.len() as f64 * quantile) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
