//! `versions`: compares the throughput of two programs in turns.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Result, ensure};
use rashomon_clock::Clock;
use serde_json::json;
use xtask::{http, service::Service};

use super::{
    content::{Contents, HTML_SIZE},
    load::{self, Pace, Plan},
    reads::Reads,
    report::Report,
    service,
    writes::{self, Writes},
};

const WARM_UP: Duration = Duration::from_secs(1);
/// The number of pages of each store, and of imported revisions of each page. The last revision of a page is
/// its latest; the others are old.
const PAGES: usize = 50;
pub(crate) const REVISIONS: u64 = 20;
/// The number of turns before the measurement may end, and the half width of the interval at which it ends.
const MIN_TURNS: usize = 5;
const INTERVAL: f64 = 0.03;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The other program `rashomon`, which is compared with this version.
    #[arg(long, value_name = "FILE")]
    other: std::path::PathBuf,
    /// Seconds of each measurement of a turn, after one second of warm-up.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Number of concurrent connections.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// The maximum number of turns. The measurement ends earlier if the interval of each ratio is narrow.
    #[arg(long, default_value_t = 20)]
    turns: usize,
}

/// The kinds of requests, in the order of a turn.
const KINDS: [&str; 4] = ["POST", "GET of the latest", "GET of an old render", "GET of an archived render"];

pub(crate) fn run(options: &Options, binary: &Path, clock: &dyn Clock) -> Result<Report> {
    let mut report = Report::new(
        "versions",
        format!(
            "This version and another one in turns, in alternating order: POST of revisions (html of {HTML_SIZE} \
             bytes, data-parsoid) to {PAGES} pages, GET of the latest html, and GET of old html by tid, from rows and \
             from the archive. {} connections are kept alive. Each measurement takes {} s after {} s of warm-up. The \
             turns end when the 95 % interval of each mean ratio is within 3 %, or after {} turns",
            options.connections,
            options.seconds,
            WARM_UP.as_secs(),
            options.turns
        ),
    );
    let contents = Contents::new(1);
    let folder = service::data_folder()?;
    let dump = folder.path().join("dump.jsonl");
    fs::write(&dump, history(&contents, PAGES)?)?;
    let start =
        |program: &Path, name: &str| Side::start(program, &folder.path().join(name), &dump, &contents);
    let mut sides = [start(binary, "this")?, start(&options.other, "other")?];
    let mut ratios = [const { Vec::new() }; KINDS.len()];
    for turn in 0..options.turns {
        eprintln!("turn {}", turn + 1);
        for (kind, ratios) in ratios.iter_mut().enumerate() {
            let mut rates = [0.0; 2];
            // The order of the programs alternates from turn to turn.
            for side in [turn % 2, 1 - turn % 2] {
                rates[side] = sides[side].measure(kind, options, &contents, clock)?;
            }
            let [this, other] = rates;
            report.add(KINDS[kind], "a second", this);
            report.add(&format!("{}, the other", KINDS[kind]), "a second", other);
            report.add(&format!("{}, this / the other", KINDS[kind]), "", this / other);
            ratios.push(this / other);
        }
        if turn + 1 >= MIN_TURNS && ratios.iter().all(|ratios| half_width(ratios) <= INTERVAL) {
            break;
        }
    }
    for (kind, ratios) in KINDS.iter().zip(&ratios) {
        report.add(&format!("{kind}, half width of the interval"), "", half_width(ratios));
    }
    Ok(report)
}

/// Half of the width of the 95 % interval of the mean.
fn half_width(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    // The quantile of Student's distribution is between 2.8 (5 values) and 2.1 (20 values). This
    // approximation differs from it by less than 1 %.
    let quantile = 1.96 + 2.4 / (count - 1.0) + 3.4 / (count - 1.0).powi(2);
    quantile * (variance / count).sqrt()
}

/// A program with its stores.
struct Side {
    rows: Service,
    archive: Service,
    next_revision: u64,
}

impl Side {
    fn start(program: &Path, folder: &Path, dump: &Path, contents: &Contents) -> Result<Self> {
        fs::create_dir(folder)?;
        for (store, option) in [("rows", None), ("archive", Some("--archive"))] {
            let mut import = Command::new(program);
            import.arg("import").args(option).args(["--domain", service::DOMAIN, "--data"]);
            service::finish(import.arg(folder.join(store)).arg(dump))?;
        }
        let config = folder.join("archive.toml");
        fs::write(&config, "[archive]\n")?;
        let (data, log) = (folder.join("archive"), folder.join("archive.log"));
        let arguments =
            ["serve".as_ref(), "--config".as_ref(), config.as_os_str(), "--data".as_ref(), data.as_os_str()];
        let archive = Service::start(program, &arguments, &log)?;
        let rows = service::serve(program, &folder.join("rows"))?;
        let side = Self { rows, archive, next_revision: REVISIONS + 1 };
        for service in [&side.rows, &side.archive] {
            let (status, html) =
                http::Client::connect(service.address())?.get(&by_tid(&writes::titles(PAGES), 1))?;
            ensure!(status == 200 && html == contents.html(1), "a render is not served as it was imported");
        }
        Ok(side)
    }

    /// The answers per second of a kind of request.
    fn measure(
        &mut self,
        kind: usize,
        options: &Options,
        contents: &Contents,
        clock: &dyn Clock,
    ) -> Result<f64> {
        let service = if kind == 3 { &self.archive } else { &self.rows };
        let plan = Plan {
            address: service.address(),
            connections: options.connections,
            pace: Pace::Closed,
            warm_up: WARM_UP,
            measure: Duration::from_secs(options.seconds),
        };
        let titles = writes::titles(PAGES);
        if kind == 0 {
            let mut writes = Writes::new(contents, titles, self.next_revision, options.connections);
            let rate = load::run(&plan, clock, &mut writes)?.per_second();
            self.next_revision = writes.next();
            return Ok(rate);
        }
        let paths: Vec<String> = match kind {
            1 => titles.iter().map(|title| format!("{}?rev/latest/html", writes::page_path(title))).collect(),
            _ => old_revisions().map(|number| by_tid(&titles, number)).collect(),
        };
        let expected = (kind != 1).then(|| old_revisions().map(|number| contents.html(number)).collect());
        let mut reads = Reads::new(&paths, Some(HTML_SIZE), expected, options.connections);
        Ok(load::run(&plan, clock, &mut reads)?.per_second())
    }
}

/// The numbers of all revisions that are not the latest of their pages.
fn old_revisions() -> impl Iterator<Item = u64> {
    (1..=PAGES as u64 * REVISIONS).filter(|number| number % REVISIONS != 0)
}

/// The path of the html of an imported revision. The revisions of all pages are numbered together, from 1.
pub(crate) fn by_tid(titles: &[String], number: u64) -> String {
    let title = &titles[((number - 1) / REVISIONS) as usize];
    format!("{}?rev/{}/html", writes::page_path(title), tid(number))
}

/// The tid of the only render of an imported revision: a UUID of version 1.
fn tid(number: u64) -> String {
    format!("{:08x}-2601-11e3-885c-4160918f0fb9", 0x8f54_5ba0 + number * 10_000)
}

/// Writes this many pages as JSON lines.
pub(crate) fn history(contents: &Contents, pages: usize) -> Result<String> {
    let mut lines = vec![json!({"kind": "siteinfo", "version": 1}).to_string()];
    for (page, title) in writes::titles(pages).iter().enumerate() {
        lines.push(json!({"kind": "page", "title": title}).to_string());
        for rev in 1..=REVISIONS {
            let number = page as u64 * REVISIONS + rev;
            let timestamp = format!("2013-09-25T16:{rev:02}:09Z");
            lines.push(json!({"kind": "revision", "rev": rev, "timestamp": timestamp}).to_string());
            let html = String::from_utf8(contents.html(number))?;
            let properties = json!({"html": {"text": html}});
            lines.push(json!({"kind": "render", "tid": tid(number), "properties": properties}).to_string());
        }
    }
    let revisions = pages as u64 * REVISIONS;
    let end = json!({"kind": "end", "pages": pages, "revisions": revisions, "renders": revisions});
    lines.push(end.to_string());
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_that_of_students_distribution() {
        // The quantiles are 2.776 (5 values), 2.262 (10 values) and 2.093 (20 values).
        for (count, quantile) in [(5, 2.776), (10, 2.262), (20, 2.093)] {
            let values: Vec<f64> = (0..count).map(f64::from).collect();
            let mean = f64::from(count - 1) / 2.0;
            let variance =
                values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / f64::from(count - 1);
            let exact = quantile * (variance / f64::from(count)).sqrt();
            let ratio = half_width(&values) / exact;
            assert!((0.99..1.01).contains(&ratio), "{count}: {ratio}");
        }
    }

    #[test]
    fn each_imported_render_has_its_own_tid() {
        let history = history(&Contents::new(1), PAGES).unwrap();
        for number in 1..=PAGES as u64 * REVISIONS {
            assert_eq!(history.matches(&tid(number)).count(), 1, "{number}");
        }
    }
}
