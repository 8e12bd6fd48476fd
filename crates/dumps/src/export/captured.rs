//! Reads pages ahead, and captures their output.
//!
//! The pages of an import are in blocks of the archive in the order of the import, and each block has hundreds of short
//! pages. In the order of their titles, each page would be in another block. So the pages of a window are read block by
//! block, and their output waits in memory for its turn. A page whose output is large is read in its turn.

use std::{io::Write, iter};

use futures::{StreamExt, stream};
use rashomon_pages::{FoundDamage, Page, PageStream, RevisionStore};
use tokio_util::task::AbortOnDropHandle;
use zstd::bulk::{Compressor, Decompressor};

use super::{
    Export, ExportError, ExportProgress, ExportReport, Sink,
    pages::{self, PageExport, Part},
    report::NewNumber,
};

/// The maximum number of bytes of captured, compressed output in memory, except for a page that turns out to be too large.
const MAX_CAPTURED_BYTES: usize = 64 << 20;

/// A page with more bytes of output is not captured.
const MAX_BYTES_OF_A_PAGE: usize = 1 << 20;

/// The number of pages in the first window. The later ones have as many as probably fit into memory.
const PAGES_IN_FIRST_WINDOW: usize = 64;
const MAX_PAGES_IN_WINDOW: usize = 64 << 10;

/// The number of pages that a task reads.
const PAGES_OF_A_TASK: usize = 128;

/// The number of bytes of output, or of bodies, after which such a task ends.
const MAX_BYTES_OF_A_TASK: usize = 4 << 20;

/// The maximum number of such tasks.
const MAX_TASKS: usize = 3;

/// What is found, besides the output, while a page is captured.
#[derive(Debug, Default)]
pub(super) struct Capture {
    pub(super) damage: Vec<FoundDamage>,
    /// The numbers of the page and of its revisions in the output.
    pub(super) numbers: Vec<NewNumber>,
}

/// A page with more bytes of output waits in memory compressed.
const MIN_PACKED_BYTES: usize = 2 << 10;

/// The level of the fastest compression.
const LEVEL: i32 = 1;

/// The output of a page, before its turn.
struct CapturedPage {
    output: Sink,
    /// The size of the output, if it is compressed.
    unpacked: Option<usize>,
    report: ExportReport,
    numbers: Vec<NewNumber>,
}

impl CapturedPage {
    /// Compresses the output, if that saves much.
    fn pack(&mut self, compressor: &mut Compressor<'_>) {
        let output = self.output.buffer();
        if output.len() > MIN_PACKED_BYTES
            && let Ok(packed) = compressor.compress(output)
            && packed.len() < output.len() / 2
        {
            self.unpacked = Some(std::mem::replace(output, packed).len());
        }
        self.output.shrink();
    }

    fn unpack(&mut self, decompressor: &mut Decompressor<'_>) -> Result<(), ExportError> {
        if let Some(size) = self.unpacked.take() {
            let output = self.output.buffer();
            *output = decompressor.decompress(output, size)?;
        }
        Ok(())
    }

    /// The approximate memory that it takes.
    fn memory(&mut self) -> usize {
        size_of::<Self>() + self.output.buffer().capacity() + self.numbers.capacity() * size_of::<NewNumber>()
    }
}

/// What a task has read of a page.
enum ReadPage {
    Captured(Box<CapturedPage>),
    /// The page is captured later. Contains its first part, if that was read.
    Begun(Option<Part>),
    /// The page is not captured.
    TooLarge,
}

impl ReadPage {
    /// The approximate memory that it takes.
    fn memory(&mut self) -> usize {
        match self {
            Self::Captured(page) => page.memory(),
            Self::Begun(first) => first.as_ref().map_or(0, pages::body_bytes),
            Self::TooLarge => 0,
        }
    }
}

/// Pages whose output is captured together.
struct Window {
    /// In the order of their titles.
    pages: Vec<Page>,
    /// The order in which they are read: the indexes of the pages.
    order: Vec<usize>,
}

/// The pages of an export, in windows.
struct Windows<'a> {
    buckets: RevisionStore,
    titles: PageStream<'a>,
    /// The next pages.
    listed: Vec<Page>,
}

impl Windows<'_> {
    /// Reads the next pages ahead: at most this many. Returns no pages at the end.
    async fn next(&mut self, size: usize) -> Result<Window, ExportError> {
        while self.listed.len() < size
            && let Some(page) = self.titles.next().await?
        {
            self.listed.push(page);
        }
        let order = self.buckets.read_ahead(&self.listed).await?;
        Ok(Window { pages: self.listed.drain(..order.len()).collect(), order })
    }
}

impl<W: Write + Send + 'static> Export<'_, W> {
    /// Writes all pages.
    pub(super) async fn export_pages(
        &mut self,
        titles: PageStream<'_>,
        progress: &mut (impl FnMut(&ExportProgress) + Send),
    ) -> Result<(), ExportError> {
        let mut windows = Windows { buckets: self.buckets.clone(), titles, listed: Vec::new() };
        let (mut size, mut decompressor) = (PAGES_IN_FIRST_WINDOW, Decompressor::new()?);
        let mut window = windows.next(size).await?;
        while !window.pages.is_empty() {
            let captured = self.capture_window(&window).await?;
            let (mut bytes, mut count) = (0, 0);
            for (page, captured) in window.pages.into_iter().zip(captured) {
                match captured {
                    Some(mut captured) => {
                        (bytes, count) = (bytes + captured.memory(), count + 1);
                        captured.unpack(&mut decompressor)?;
                        self.write_captured(&page, captured, progress).await?;
                    }
                    None => drop(self.export_page(page, progress).await?),
                }
            }
            self.flush_buffer(true).await?;
            if let Some(bytes_of_page) = bytes.checked_div(count) {
                // A window is at most four times as large as the last one, whose pages may not be typical.
                size = (MAX_CAPTURED_BYTES / bytes_of_page.max(1)).min(4 * count);
                size = size.clamp(PAGES_IN_FIRST_WINDOW, MAX_PAGES_IN_WINDOW);
            }
            window = windows.next(size).await?;
        }
        Ok(())
    }

    /// Captures the pages of a window, as far as their output fits into memory.
    async fn capture_window(
        &mut self,
        Window { pages, order }: &Window,
    ) -> Result<Vec<Option<CapturedPage>>, ExportError> {
        let (mut captured, mut bytes) = (Vec::new(), 0);
        captured.resize_with(pages.len(), || None);
        if pages.len() == 1 {
            return Ok(captured);
        }
        let beside = self.beside();
        let task = |indexes: &[usize]| {
            let of_task = indexes.iter().map(|index| pages[*index].clone()).collect();
            let read = AbortOnDropHandle::new(tokio::spawn(beside.beside().capture_sealed(of_task)));
            let indexes = indexes.to_vec();
            async move {
                let read = read.await.unwrap_or_default().into_iter();
                let read = read.chain(iter::repeat_with(|| ReadPage::Begun(None)));
                stream::iter(indexes.into_iter().zip(read))
            }
        };
        let mut read_pages =
            stream::iter(order.chunks(PAGES_OF_A_TASK).map(task)).buffered(MAX_TASKS).flatten();
        while bytes < MAX_CAPTURED_BYTES
            && let Some((index, page)) = read_pages.next().await
        {
            captured[index] = match page {
                ReadPage::Captured(page) => Some(*page),
                ReadPage::TooLarge => None,
                ReadPage::Begun(first) => self.capture(pages[index].clone(), first).await?,
            };
            bytes += captured[index].as_mut().map_or(0, CapturedPage::memory);
        }
        Ok(captured)
    }

    /// Reads the first part of each page, or its latest revision, if the page is in blocks of the archive, and captures the
    /// page if that is all of it. Ends when the pages take about [`MAX_BYTES_OF_A_TASK`]. Reports no damage: a page in
    /// which some may be found is captured by the export itself.
    async fn capture_sealed(mut self, pages: Vec<Page>) -> Vec<ReadPage> {
        let (mut read, mut bytes) = (Vec::with_capacity(pages.len()), 0);
        let Ok(mut compressor) = Compressor::new(LEVEL) else { return read };
        for page in pages {
            if bytes >= MAX_BYTES_OF_A_TASK {
                break;
            }
            let read_page = match pages::read_first_part(&self.buckets, &page, self.history).await {
                Some(part) if pages::is_whole(&part) => match self.capture(page, Some(part)).await {
                    Ok(Some(mut captured)) => {
                        captured.pack(&mut compressor);
                        ReadPage::Captured(Box::new(captured))
                    }
                    Ok(None) => ReadPage::TooLarge,
                    // It is found again.
                    Err(_) => ReadPage::Begun(None),
                },
                first => ReadPage::Begun(first),
            };
            read.push(read_page);
            bytes += read.last_mut().map_or(0, ReadPage::memory);
        }
        read
    }

    /// Reads a page. Returns `None` if it has too much output.
    async fn capture(
        &mut self,
        page: Page,
        first: Option<Part>,
    ) -> Result<Option<CapturedPage>, ExportError> {
        let mut sink = self.sink.for_pages();
        std::mem::swap(&mut self.sink, &mut sink);
        let report = std::mem::take(&mut self.report);
        self.capture = Some(Capture::default());
        let captured = self.capture_into_sink(page, first).await;
        let Capture { mut damage, numbers } = self.capture.take().unwrap_or_default();
        std::mem::swap(&mut self.sink, &mut sink);
        let report = std::mem::replace(&mut self.report, report);
        let is_whole = captured?;
        if !is_whole {
            self.returned_damage.append(&mut damage);
        }
        Ok(is_whole.then_some(CapturedPage { output: sink, unpacked: None, report, numbers }))
    }

    /// Returns whether the whole page was written.
    async fn capture_into_sink(&mut self, page: Page, first: Option<Part>) -> Result<bool, ExportError> {
        let mut page = PageExport::new(self, page, first).await?;
        while page.write_part().await? {}
        if page.export.is_capture_too_large() {
            return Ok(false);
        }
        page.end_page()?;
        Ok(true)
    }

    /// Whether a page is captured whose output turns out to be too large.
    pub(super) fn is_capture_too_large(&mut self) -> bool {
        self.capture.is_some() && self.sink.buffer().len() > MAX_BYTES_OF_A_PAGE
    }

    async fn write_captured(
        &mut self,
        page: &Page,
        captured: CapturedPage,
        progress: &mut (impl FnMut(&ExportProgress) + Send),
    ) -> Result<(), ExportError> {
        let CapturedPage { output, report, numbers, .. } = captured;
        numbers.into_iter().for_each(|number| self.add_number(&page.title, number));
        self.report.append(report);
        self.sink.append(output);
        self.flush_buffer(false).await?;
        progress(&self.report.progress());
        Ok(())
    }
}
