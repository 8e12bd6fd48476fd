//! Reads pages ahead, and captures their output.
//!
//! The pages of an import are in blocks of the archive in the order of the import, and each block has hundreds of short
//! pages. In the order of their titles, each page would be in another block. So the pages of a window are read block by
//! block, and their output waits in memory for its turn. A page whose output is large is read in its turn.

use std::{io::Write, iter};

use futures::{StreamExt, stream};
use rashomon_buckets::{FoundDamage, Page, PageStream};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Export, ExportError, ExportProgress, ExportReport, Sink,
    pages::{PageExport, Part, read_first_parts},
    report::NewNumber,
};

/// The maximum number of bytes of captured output in memory, except for a page that turns out to be too large.
const MAX_CAPTURED_BYTES: usize = 64 << 20;

/// A page with more bytes of output is not captured.
const MAX_BYTES_OF_A_PAGE: usize = 1 << 20;

/// The number of pages in the first window. The later ones have as many as probably fit into memory.
const PAGES_IN_FIRST_WINDOW: usize = 64;
const MAX_PAGES_IN_WINDOW: usize = 16 << 10;

/// The number of pages that a task reads while the output of others is made.
const PAGES_OF_A_TASK: usize = 32;

/// The maximum number of such tasks.
const MAX_TASKS: usize = 2;

/// What is found, besides the output, while a page is captured.
#[derive(Debug, Default)]
pub(super) struct Capture {
    pub(super) damage: Vec<FoundDamage>,
    /// The numbers of the page and of its revisions in the output.
    pub(super) numbers: Vec<NewNumber>,
}

/// The output of a page, before its turn.
struct CapturedPage {
    output: Sink,
    report: ExportReport,
    numbers: Vec<NewNumber>,
}

impl<W: Write + Send + 'static> Export<'_, W> {
    /// Writes all pages.
    pub(super) async fn export_pages(
        &mut self,
        mut pages: PageStream<'_>,
        progress: &mut (impl FnMut(&ExportProgress) + Send),
    ) -> Result<(), ExportError> {
        let (mut window, mut size) = (Vec::new(), PAGES_IN_FIRST_WINDOW);
        loop {
            while window.len() < size
                && let Some(page) = pages.next().await?
            {
                window.push(page);
            }
            if window.is_empty() {
                return Ok(());
            }
            let order = self.buckets.read_ahead(&window).await?;
            let read: Vec<Page> = window.drain(..order.len()).collect();
            let (mut captured, mut bytes, mut count) = (Vec::new(), 0, 0);
            captured.resize_with(read.len(), || None);
            let (buckets, history) = (self.buckets.clone(), self.history);
            let first_parts = |indexes: &[usize]| {
                let pages = indexes.iter().map(|index| read[*index].clone()).collect();
                let parts = read_first_parts(buckets.clone(), pages, history);
                let parts = AbortOnDropHandle::new(tokio::spawn(parts));
                let indexes = indexes.to_vec();
                async move {
                    let parts = parts.await.unwrap_or_default().into_iter().chain(iter::repeat_with(|| None));
                    stream::iter(indexes.into_iter().zip(parts))
                }
            };
            let first_parts = stream::iter(order.chunks(PAGES_OF_A_TASK).map(first_parts));
            let mut first_parts = first_parts.buffered(MAX_TASKS).flatten();
            while bytes < MAX_CAPTURED_BYTES
                && read.len() > 1
                && let Some((index, first)) = first_parts.next().await
            {
                captured[index] = self.capture(read[index].clone(), first).await?;
                bytes += captured[index].as_mut().map_or(0, |page| page.output.buffer().len());
                count += 1;
            }
            drop(first_parts);
            for (page, captured) in read.into_iter().zip(captured) {
                match captured {
                    Some(captured) => self.write_captured(&page, captured, progress).await?,
                    None => drop(self.export_page(page, progress).await?),
                }
            }
            self.flush_buffer(true).await?;
            if let Some(bytes_of_page) = bytes.checked_div(count) {
                // A window is at most four times as large as the last one, whose pages may not be typical.
                size = (MAX_CAPTURED_BYTES / bytes_of_page.max(1)).min(4 * count);
                size = size.clamp(PAGES_IN_FIRST_WINDOW, MAX_PAGES_IN_WINDOW);
            }
        }
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
        Ok(is_whole.then_some(CapturedPage { output: sink, report, numbers }))
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
        let CapturedPage { output, report, numbers } = captured;
        numbers.into_iter().for_each(|number| self.add_number(&page.title, number));
        self.report.append(report);
        self.sink.append(output);
        self.flush_buffer(false).await?;
        progress(&self.report.progress());
        Ok(())
    }
}
