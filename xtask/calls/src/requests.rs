//! The requests that are measured, and the stores that they need.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use xtask::http;

use super::server::store;

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Kind {
    /// POST of a new revision with html and wikitext, nothing configured
    Post,
    /// GET of the latest html, which is in memory
    Latest,
    /// GET of the html of an old render by its tid, without an archive
    Tid,
    /// GET of the html of an archived render by its tid
    Archived,
}

/// The page of all requests.
const PAGE: &str = "/v1/enwiki/page/Main_Page";

/// The number of revisions whose renders are read by tid. The page has one more revision: the latest.
const OLD_REVISIONS: usize = 16;

/// The time between the tids of two revisions, in steps of 100 ns.
const REVISION_INTERVAL: u32 = 10_000_000;

impl Kind {
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Post => "POST of a new revision",
            Self::Latest => "GET of the latest, from memory",
            Self::Tid => "GET of an old render by tid",
            Self::Archived => "GET of an archived render by tid",
        }
    }

    /// The settings of the server, which turn off work that would run beside a request.
    pub(super) const fn settings(self) -> &'static str {
        match self {
            Self::Post | Self::Latest | Self::Tid => "collect_every = \"0s\"\n",
            Self::Archived => "collect_every = \"0s\"\n[archive]\n",
        }
    }

    /// Fills the store before the server starts.
    pub(super) fn prepare(self, program: &Path, folder: &Path) -> Result<()> {
        let option: &[&str] = match self {
            Self::Post | Self::Latest => return Ok(()),
            Self::Tid => &[],
            Self::Archived => &["--archive"],
        };
        let dump = folder.join("dump.jsonl");
        fs::write(&dump, history())?;
        let mut command = Command::new(program);
        command.arg("import").args(option).args(["--domain", "enwiki", "--jobs", "1", "--data"]);
        let output = command.arg(store(folder)).arg(&dump).output().context("cannot start the program")?;
        let printed = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the import ended with {}: {}", output.status, printed.trim());
        Ok(())
    }

    /// The request with this number, and the status of its answer. The server has received the requests with
    /// lower numbers.
    pub(super) fn request(self, number: usize) -> (Vec<u8>, u16) {
        match self {
            Self::Post => (post(number + 1), 201),
            Self::Latest if number == 0 => (post(1), 201),
            Self::Latest => (http::get(&format!("{PAGE}?rev/latest/html")), 200),
            // Each request is for another render, so that no earlier read has left its values in memory.
            Self::Tid | Self::Archived => {
                let tid = tid(number % OLD_REVISIONS + 1);
                (http::get(&format!("{PAGE}?rev/{tid}/html")), 200)
            }
        }
    }
}

fn post(rev: usize) -> Vec<u8> {
    let (html, wikitext) = (text(rev, "<p>"), text(rev, "* "));
    let encode = |text: &str| text.replace('<', "%3C").replace('>', "%3E").replace(' ', "+");
    let form = format!("_rev={rev}&html={}&wikitext={}", encode(&html), encode(&wikitext));
    format!(
        "POST {PAGE}?rev/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n{form}",
        form.len()
    )
    .into_bytes()
}

/// A text of about 2 kB.
fn text(rev: usize, start: &str) -> String {
    (0..40).fold(String::new(), |mut text, line| {
        let _ = write!(text, "{start}Line {} of the page in revision {rev} ", line * rev);
        text
    })
}

/// A history as JSON lines.
fn history() -> String {
    let mut lines = vec![
        r#"{"kind":"siteinfo","version":1}"#.to_owned(),
        r#"{"kind":"page","title":"Main_Page"}"#.to_owned(),
    ];
    for rev in 1..=OLD_REVISIONS + 1 {
        let (html, wikitext, tid) = (text(rev, "<p>"), text(rev, "* "), tid(rev));
        lines.push(format!(
            r#"{{"kind":"revision","rev":{rev},"timestamp":"2013-09-25T16:{rev:02}:09Z","user":"Ann","properties":{{"wikitext":{{"text":"{wikitext}"}}}}}}"#
        ));
        lines.push(format!(
            r#"{{"kind":"render","tid":"{tid}","properties":{{"html":{{"text":"{html}"}}}}}}"#
        ));
    }
    let (revisions, renders) = (OLD_REVISIONS + 1, OLD_REVISIONS + 1);
    lines.push(format!(r#"{{"kind":"end","pages":1,"revisions":{revisions},"renders":{renders}}}"#));
    lines.join("\n") + "\n"
}

/// The tid of the only render of an imported revision: a UUID of version 1.
fn tid(rev: usize) -> String {
    let time = 0x8f54_5ba0 + u32::try_from(rev).unwrap_or(0) * REVISION_INTERVAL;
    format!("{time:08x}-2601-11e3-885c-4160918f0fb9")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_imported_revision_has_its_own_tid() {
        let history = history();
        for rev in 1..=OLD_REVISIONS + 1 {
            assert_eq!(history.matches(&tid(rev)).count(), 1, "{rev}");
        }
        for line in history.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }

    #[test]
    fn requests_are_not_repeated_unless_the_latest_is_read() {
        for kind in [Kind::Post, Kind::Tid, Kind::Archived] {
            let requests: std::collections::BTreeSet<_> = (0..8).map(|number| kind.request(number)).collect();
            assert_eq!(requests.len(), 8, "{kind:?}");
        }
        assert_eq!(Kind::Latest.request(1), Kind::Latest.request(2));
    }
}
