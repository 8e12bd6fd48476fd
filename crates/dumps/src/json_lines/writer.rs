//! Writes JSON lines.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use rashomon_pages::{
    PageInfo, PropertyInfo, PropertyName, RevisionRecord, SiteInfo, StoredHeaders, Tid, Title,
};
use serde::Serialize;

use super::{
    VERSION,
    line::{EndLine, Kind, PageLine, PropertyValue, RenderLine, RevisionLine, SiteLine, Time},
};

/// The counts before the first page.
const NO_LINES: EndLine = EndLine { kind: Kind::End, pages: 0, revisions: 0, renders: 0 };

/// Writes JSON lines, piece by piece.
#[derive(Debug)]
pub struct JsonLinesWriter<W> {
    out: W,
    buffer: Vec<u8>,
    counts: EndLine,
    headers: StoredHeaders,
}

/// A property to write.
#[derive(Debug, Clone)]
pub struct WrittenProperty<'a> {
    /// The name of the property.
    pub name: &'a PropertyName,
    /// The metadata of the property.
    pub info: &'a PropertyInfo,
    /// The bytes of the property.
    pub body: &'a [u8],
}

impl JsonLinesWriter<Vec<u8>> {
    /// Frees the memory that only further lines would need.
    pub(crate) fn shrink(&mut self) {
        self.out.shrink_to_fit();
        self.buffer = Vec::new();
    }
}

impl<W: Write> JsonLinesWriter<W> {
    /// Begins a history.
    pub fn new(out: W, site: Option<&SiteInfo>) -> io::Result<Self> {
        let mut writer =
            Self { out, buffer: Vec::new(), counts: NO_LINES, headers: StoredHeaders::default() };
        writer.line(&SiteLine { kind: Kind::Siteinfo, version: VERSION, site: site.cloned() })?;
        Ok(writer)
    }

    /// A writer of further pages of this history, without its first line.
    pub(crate) fn for_pages(&self) -> JsonLinesWriter<Vec<u8>> {
        JsonLinesWriter {
            out: Vec::new(),
            buffer: Vec::new(),
            counts: NO_LINES,
            headers: self.headers.clone(),
        }
    }

    /// Sets which headers of properties are written.
    #[must_use]
    pub fn with_headers(self, headers: StoredHeaders) -> Self {
        Self { headers, ..self }
    }

    /// Begins a page.
    pub fn page(&mut self, title: &Title, info: Option<&PageInfo>) -> io::Result<()> {
        self.counts.pages += 1;
        self.line(&PageLine::new(title, info))
    }

    /// Writes a revision of the last page, with the properties of the revision.
    pub fn revision(
        &mut self,
        record: &RevisionRecord,
        properties: &[WrittenProperty<'_>],
    ) -> io::Result<()> {
        self.counts.revisions += 1;
        let properties = self.values(properties);
        self.line(&RevisionLine::new(record, properties))
    }

    /// Counts the lines of another writer in the last line, too.
    pub(crate) const fn count_lines_of(&mut self, other: &Self) {
        self.counts.pages += other.counts.pages;
        self.counts.revisions += other.counts.revisions;
        self.counts.renders += other.counts.renders;
    }

    /// Writes a render of the last revision, with the properties of the render.
    pub fn render(&mut self, tid: Tid, properties: &[WrittenProperty<'_>]) -> io::Result<()> {
        self.counts.renders += 1;
        let properties = self.values(properties);
        self.line(&RenderLine { kind: Kind::Render, tid, properties })
    }

    /// Returns the underlying writer. The caller may take written data out of it, and may only write lines to it that
    /// [`Self::count_lines_of`] counts.
    pub(crate) const fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Ends the history, and returns the underlying writer.
    pub fn finish(mut self) -> io::Result<W> {
        let EndLine { pages, revisions, renders, .. } = self.counts;
        self.line(&EndLine { kind: Kind::End, pages, revisions, renders })?;
        Ok(self.out)
    }

    fn values(&self, properties: &[WrittenProperty<'_>]) -> BTreeMap<PropertyName, PropertyValue> {
        let is_written = |(name, _): &(&String, &String)| self.headers.keep(name);
        let value = |property: &WrittenProperty<'_>| {
            let headers = property.info.headers.other.iter().filter(is_written);
            let mut value = PropertyValue {
                content_type: Some(property.info.headers.content_type.clone()),
                headers: headers.map(|(name, value)| (name.clone(), value.clone())).collect(),
                rewritten_at: property.info.rewritten_at.map(Time),
                sha1: Some(property.info.sha1.to_string()),
                ..PropertyValue::default()
            };
            value.set_body(property.body);
            (property.name.clone(), value)
        };
        properties.iter().map(value).collect()
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, line)?;
        self.buffer.push(b'\n');
        self.out.write_all(&self.buffer)
    }
}
