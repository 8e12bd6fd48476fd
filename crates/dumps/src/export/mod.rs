//! `export`: writes the pages of a bucket, with all revisions or with the latest.
//!
//! The pages of an export are in the order of their titles. They are read ahead, in the order in which that costs least,
//! as far as their output fits into memory: see [`captured`]. The output goes through a bounded channel to a separate
//! thread, which compresses and writes it.

mod bodies;
mod captured;
mod pages;
mod pipe;
mod report;

use std::{io::Write, sync::Arc};

use rashomon_pages::{
    BucketName, Catalog, DomainName, Error, FoundDamage, Page, RevisionStore, SiteInfo, StoreError, Title,
};

pub use self::report::{ExportError, ExportProgress, ExportReport, Unreadable, Warning};
use self::{captured::Capture, pages::PageExport, pipe::Pipe, report::NewNumber};
use crate::{json_lines::JsonLinesWriter, xml::XmlWriter};

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// MediaWiki's XML, version 0.11: the texts of revisions, and their metadata as far as MediaWiki has such.
    Xml,
    /// JSON lines, which also contain renders and all other properties.
    JsonLines,
}

/// What to export, and how.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// The bucket of the pages, with its id.
    pub bucket: BucketName,
    /// The pages to export; `None`: all.
    pub titles: Option<Vec<Title>>,
    /// Whether to export all revisions, rather than only the latest of each page.
    pub history: bool,
    /// The format.
    pub format: Format,
}

/// Writes the pages of a bucket: titles in byte order, revisions in ascending order of their numbers. Returns
/// the writer, which the caller has to finish.
///
/// `progress` is called after each part of a page. Must be called within a runtime of tokio; `writer` is used
/// on one of its blocking threads. Writes to the store during the export may be included or not.
///
/// A revision or a render whose data is lost or damaged is left out as a whole, and the report lists it. Damaged
/// metadata of a page or of the wiki is left out, too. A title whose row is damaged is taken from the key of the row.
/// Damaged blocks of the archive are skipped only after a call of `Maintenance::skip_damage`. Otherwise such a block
/// ends the export with an error.
pub async fn export<W: Write + Send + 'static>(
    buckets: &RevisionStore,
    catalog: &Catalog,
    domain: &DomainName,
    options: &ExportOptions,
    writer: W,
    mut progress: impl FnMut(&ExportProgress) + Send,
) -> Result<(ExportReport, W), ExportError> {
    let mut pipe = Pipe::new(writer);
    let mut damaged = crate::CountedItems::default();
    let site = match catalog.site_info(domain).await {
        Err(Error::Store(StoreError::Corrupt(why))) => {
            damaged.add(format!("the imported metadata of the wiki {domain}: {why}"));
            None
        }
        site => site?.map(|(site, _)| Arc::new(SiteInfo { as_of: None, ..site })),
    };
    let sink = match options.format {
        Format::Xml => Sink::Xml(XmlWriter::new(Vec::new(), site.as_deref())?),
        Format::JsonLines => {
            let headers = buckets.settings().definitions.headers.clone();
            Sink::JsonLines(JsonLinesWriter::new(Vec::new(), site.as_deref())?.with_headers(headers))
        }
    };
    let mut export = Export {
        buckets: buckets.clone(),
        catalog: catalog.clone(),
        history: options.history,
        site,
        sink,
        pipe: Some(&mut pipe),
        capture: None,
        returned_damage: Vec::new(),
        report: ExportReport { damaged, ..ExportReport::default() },
        numbers: report::WrittenNumbers::default(),
    };
    let page_of = |title| Page { domain: domain.clone(), bucket: options.bucket.clone(), title };
    if let Some(titles) = &options.titles {
        let titles: std::collections::BTreeSet<_> = titles.iter().cloned().collect();
        for title in titles {
            if !export.export_page(page_of(title.clone()), &mut progress).await? {
                export.report.missing.push(title);
            }
        }
    } else {
        export.export_pages(catalog.pages(domain, &options.bucket), &mut progress).await?;
    }
    let (report, rest) = export.finish().await?;
    pipe.send(rest).await?;
    Ok((report, pipe.finish().await?))
}

/// An export in progress.
struct Export<'a, W> {
    buckets: RevisionStore,
    catalog: Catalog,
    history: bool,
    site: Option<Arc<SiteInfo>>,
    sink: Sink,
    /// `None` in [`Self::beside`].
    pipe: Option<&'a mut Pipe<W>>,
    /// Set while the output of a page is captured, instead of being passed to the thread that writes it.
    capture: Option<Capture>,
    /// The damage of pages that were not captured after all. It is not found again when they are read in their turn.
    returned_damage: Vec<FoundDamage>,
    report: ExportReport,
    numbers: report::WrittenNumbers,
}

/// The writer of pages. Its output is a buffer, which is passed on when it is full.
enum Sink {
    Xml(XmlWriter<Vec<u8>>),
    JsonLines(JsonLinesWriter<Vec<u8>>),
}

impl Sink {
    /// An empty sink for pages of this one, see [`Self::append`].
    fn for_pages(&self) -> Self {
        match self {
            Self::Xml(_) => Self::Xml(XmlWriter::for_pages()),
            Self::JsonLines(writer) => Self::JsonLines(writer.for_pages()),
        }
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Xml(writer) => writer.get_mut(),
            Self::JsonLines(writer) => writer.get_mut(),
        }
    }

    /// Frees the memory that only further pages would need.
    fn shrink(&mut self) {
        match self {
            Self::Xml(writer) => writer.shrink(),
            Self::JsonLines(writer) => writer.shrink(),
        }
    }

    /// Adds the pages of a sink of [`Self::for_pages`], which has only whole pages.
    fn append(&mut self, mut pages: Self) {
        let output = std::mem::take(pages.buffer());
        self.buffer().extend_from_slice(&output);
        if let (Self::JsonLines(writer), Self::JsonLines(pages)) = (self, pages) {
            writer.count_lines_of(&pages);
        }
    }

    fn finish(self) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Xml(writer) => writer.finish(),
            Self::JsonLines(writer) => writer.finish(),
        }
    }
}

impl<W: Write + Send + 'static> Export<'_, W> {
    /// A part of the export that only captures pages, on a task of its own. It leaves the damage that reads find to the
    /// export itself.
    fn beside(&self) -> Export<'static, W> {
        Export {
            buckets: self.buckets.clone(),
            catalog: self.catalog.clone(),
            history: self.history,
            site: self.site.clone(),
            sink: self.sink.for_pages(),
            pipe: None,
            capture: None,
            returned_damage: Vec::new(),
            report: ExportReport::default(),
            numbers: report::WrittenNumbers::default(),
        }
    }

    /// Writes a page. Returns `false` if no revision of the page was found, and no damage was the reason.
    async fn export_page(
        &mut self,
        page: Page,
        progress: &mut (impl FnMut(&ExportProgress) + Send),
    ) -> Result<bool, ExportError> {
        let mut page = PageExport::new(self, page, None).await?;
        loop {
            let more = page.write_part().await?;
            page.export.flush_buffer(false).await?;
            progress(&page.export.report.progress());
            if !more {
                return page.end_page();
            }
        }
    }

    /// Returns the damage that was found since the last call, and that of the page which was found before.
    fn take_found_damage(&mut self, page: &Page) -> Vec<FoundDamage> {
        let mut found: Vec<_> =
            self.returned_damage.extract_if(.., |found| found.page.as_ref() == Some(page)).collect();
        found.extend(self.buckets.found_damage());
        if let Some(capture) = &mut self.capture {
            capture.damage.extend_from_slice(&found);
        }
        found
    }

    /// Reports a number that an earlier page has, too. The numbers of a page that is captured are compared in its turn.
    fn add_number(&mut self, title: &Title, number: NewNumber) {
        if let Some(capture) = &mut self.capture {
            capture.numbers.push(number);
        } else if let Some(loss) = self.numbers.add(number) {
            self.report.invalid.add(Warning { title: title.clone(), rev: number.rev(), loss });
        }
    }

    /// Passes the buffer to the thread that writes it, if the buffer is full, or if `all` is set.
    async fn flush_buffer(&mut self, all: bool) -> Result<(), ExportError> {
        if self.capture.is_some() {
            return Ok(());
        }
        let buffer = self.sink.buffer();
        if all || buffer.len() >= pipe::PART_BYTES {
            let part = std::mem::take(buffer);
            self.report.bytes += part.len() as u64;
            if let Some(pipe) = &mut self.pipe {
                pipe.send(part).await?;
            }
        }
        Ok(())
    }

    /// Completes the report. Also returns the bytes that are still to be written.
    async fn finish(mut self) -> Result<(ExportReport, Vec<u8>), ExportError> {
        let found = self.returned_damage.drain(..).chain(self.buckets.found_damage());
        found.for_each(|found| self.report.add_damage(&found));
        self.flush_buffer(true).await?;
        let rest = self.sink.finish()?;
        self.report.bytes += rest.len() as u64;
        Ok((self.report, rest))
    }
}
