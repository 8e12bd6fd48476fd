//! The real histories that the block benchmarks use.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use rashomon_blocks::{Column, Value};
use rashomon_dumps::{Event, HistoryReader, ReadLimits, Source, compression};
use rashomon_pages::{Parent, RevisionRecord};
use serde_json::Value as Json;

/// The histories of several pages.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) pages: Vec<Page>,
}

/// The history of a page.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) title: String,
    pub(crate) versions: Vec<Version>,
}

/// The text of a revision or of a render.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) text: Vec<u8>,
    /// The metadata of the version, in the order of [`columns`].
    pub(crate) values: Vec<Value>,
}

/// The positions of the number and of the time in [`Version::values`].
pub(crate) const REV: usize = 0;
pub(crate) const TIMESTAMP: usize = 2;

/// The columns for the metadata of a revision.
pub(crate) fn columns() -> Vec<Column> {
    vec![
        Column::integer("rev"),
        Column::integer("parent"),
        Column::integer("timestamp"),
        Column::bytes("user"),
        Column::bytes("comment"),
        Column::integer("minor"),
    ]
}

impl Page {
    /// The size of all its texts in bytes.
    pub(crate) fn raw(&self) -> usize {
        self.versions.iter().map(|version| version.text.len()).sum()
    }
}

impl Set {
    /// Loads one of the sets in `RASHOMON_TEST_DATA`.
    pub(crate) fn load(name: &'static str) -> Result<Self> {
        let data = xtask::test_data();
        let pages = match name {
            "renders" => renders(&data.join("renders")),
            _ => xml(&data.join(format!("{name}.xml.zst"))),
        };
        let mut pages = pages.with_context(|| {
            format!("cannot read {name} in {} (set RASHOMON_TEST_DATA to the folder)", data.display())
        })?;
        // A seal packs small pages in the order of their titles.
        pages.sort_by(|a, b| a.title.cmp(&b.title));
        Ok(Self { name, pages })
    }

    /// All texts, page by page.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.pages.iter().flat_map(|page| &page.versions).map(|version| version.text.as_slice())
    }

    /// The size of all texts in bytes.
    pub(crate) fn raw(&self) -> usize {
        self.texts().map(<[u8]>::len).sum()
    }
}

fn xml(path: &Path) -> Result<Vec<Page>> {
    let mut pages: BTreeMap<String, Page> = BTreeMap::new();
    compression::read(Source::file(File::open(path)?)?, &Default::default(), |input, _| {
        let mut reader = HistoryReader::new(input, ReadLimits::default())?;
        while let Some(event) = reader.next()? {
            let Event::Revision(title, revision) = event else { continue };
            let values = values(&revision.record);
            let text = revision.properties.into_iter().find(|property| property.name.as_str() == "wikitext");
            let text = text.map(|text| text.body.to_vec()).unwrap_or_default();
            let title = title.to_string();
            let page = pages.entry(title.clone()).or_insert_with(|| Page { title, versions: Vec::new() });
            page.versions.push(Version { text, values });
        }
        anyhow::Ok(())
    })??;
    Ok(pages.into_values().collect())
}

fn values(record: &RevisionRecord) -> Vec<Value> {
    let bytes =
        |text: &Option<String>| text.as_ref().map_or(Value::Absent, |text| Value::Bytes(text.clone().into()));
    let parent = match record.parent {
        Some(Parent::Revision(parent)) => Value::Integer(parent.get()),
        _ => Value::Absent,
    };
    vec![
        Value::Integer(record.rev.get()),
        parent,
        Value::Integer(record.timestamp.as_micros()),
        bytes(&record.user),
        bytes(&record.comment),
        if record.minor { Value::Integer(1) } else { Value::Absent },
    ]
}

/// Reads a folder in which each file has the renders of a page, one a line.
fn renders(folder: &Path) -> Result<Vec<Page>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = BufReader::new(zstd::Decoder::new(File::open(entry?.path())?)?);
        let mut page = Page { title: String::new(), versions: Vec::new() };
        for line in file.lines() {
            let line: Json = serde_json::from_str(&line?)?;
            page.title = line["title"].as_str().context("a render has no title")?.to_owned();
            let text = line["html"].as_str().context("a render has no html")?.as_bytes().to_vec();
            let mut values = vec![Value::Absent; columns().len()];
            values[REV] = line["rev"].as_i64().map_or(Value::Absent, Value::Integer);
            let time: jiff::Timestamp =
                line["timestamp"].as_str().context("a render has no time")?.parse()?;
            values[TIMESTAMP] = Value::Integer(time.as_microsecond());
            page.versions.push(Version { text, values });
        }
        ensure!(!page.versions.is_empty(), "a file has no renders");
        pages.push(page);
    }
    Ok(pages)
}
