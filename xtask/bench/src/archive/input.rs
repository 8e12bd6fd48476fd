//! The files that the benchmark imports.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rashomon_blocks::Value;
use rashomon_clock::Timestamp;
use rashomon_pages::{BucketName, DomainName, Page, Revision, Tid, Title};
use serde_json::json;

use crate::{
    blocks::sets::{self, Set, Version},
    service::DOMAIN,
};

/// A file that can be imported.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) file: PathBuf,
    pub(super) revisions: usize,
}

impl Input {
    /// Returns the set's own file. For the set `renders`, which has no export, writes one into the folder.
    pub(super) fn of(set: &Set, folder: &Path) -> Result<Self> {
        let revisions = set.pages.iter().map(|page| page.versions.len()).sum();
        let file = match set.name {
            "renders" => json_lines(set, folder)?,
            name => xtask::test_data().join(format!("{name}.xml.zst")),
        };
        Ok(Self { file, revisions })
    }
}

/// Writes the renders as JSON lines, with revision and time as the only metadata.
fn json_lines(set: &Set, folder: &Path) -> Result<PathBuf> {
    let path = folder.join("renders.jsonl");
    let mut file = BufWriter::new(File::create(&path)?);
    let mut line = |value: serde_json::Value| writeln!(file, "{value}");
    line(json!({"kind": "siteinfo", "version": 1}))?;
    let mut revisions = 0;
    for page in &set.pages {
        line(json!({"kind": "page", "title": page.title}))?;
        for version in &page.versions {
            let (rev, time) = number_and_time(version).context("a version has no number or no time")?;
            let tid = tid_of(&page.title, version)?;
            line(
                json!({"kind": "revision", "rev": rev.get(), "timestamp": jiff::Timestamp::from_microsecond(time.as_micros())?.to_string()}),
            )?;
            let html = std::str::from_utf8(&version.text)?;
            line(json!({"kind": "render", "tid": tid.to_string(), "properties": {"html": {"text": html}}}))?;
            revisions += 1;
        }
    }
    line(json!({"kind": "end", "pages": set.pages.len(), "revisions": revisions, "renders": revisions}))?;
    file.flush()?;
    Ok(path)
}

/// The revision number and the time of a version.
pub(super) fn number_and_time(version: &Version) -> Option<(Revision, Timestamp)> {
    let integer = |column: usize| match version.values.get(column) {
        Some(Value::Integer(number)) => Some(*number),
        _ => None,
    };
    Some((Revision::new(integer(sets::REV)?)?, Timestamp::from_micros(integer(sets::TIMESTAMP)?)))
}

/// The tid of the only render of a version after an import. In the file of [`json_lines`], renders have these tids.
pub(super) fn tid_of(title: &str, version: &Version) -> Result<Tid> {
    let (rev, time) = number_and_time(version).context("a version has no number or no time")?;
    let page =
        Page { domain: DomainName::new(DOMAIN)?, bucket: BucketName::page(), title: Title::new(title)? };
    Ok(Tid::imported(&page, rev, time))
}
