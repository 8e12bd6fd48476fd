//! Verifies pages whose rows are all in blocks by reading each block once, for all its pages.
//!
//! A walk returns the rows of each page in the tables and in the index of the archive. If the tables have no rows of the
//! page, and its parts in blocks do not overlap, readers see exactly what is in the blocks. So the page is sound if its
//! index matches the blocks, if each part is sound by itself, and if the catalog lists the page. This proves that pages
//! are sound, and names no problems: a second walk finds all other pages, which are verified page by page.

use crate::{Error, Result, VerifyReport};
use rashomon_archive::{Archive, BlockChecks, PageParts, PageWalk, WalkedPage};
use rashomon_records::{
    ListedPages,
    rows::{PageInfoRow, TypedRow},
    schemas::{
        ARCHIVE_INDEX, CURRENT, PAGES, RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS,
        REVISIONS_BY_TID, REVISIONS_BY_TIME,
    },
};
use rashomon_tables::{Error as StoreError, Schema};

use super::{Counted, LISTED_TABLES, ListedPage, Verifier};

/// The number of pages that are collected before they are verified page by page.
const PAGES_AT_A_TIME: usize = 500;

/// Verifies all pages, and compares the index of the archive with the blocks. `Corrupt` if damage prevents a walk.
pub(super) async fn verify<'a>(
    verifier: &'a Verifier<'_>,
    archive: &'a Archive,
    report: &mut VerifyReport,
) -> Result<BlockChecks> {
    let (checks, listed) = (BlockChecks::default(), ListedPages::default());
    let mut this = ByBlocks { verifier, archive, checks, listed, others: 0 };
    let mut pages = this.walk();
    while let Some(page) = pages.next().await? {
        this.add(page, report);
        if this.checks.is_full() {
            this.visit_blocks(report).await?;
        }
    }
    verifier.progress.set_left(this.checks.to_visit().1 + this.others);
    this.visit_blocks(report).await?;
    if this.others > 0 || this.checks.has_unlike_blocks() || !this.listed.are_all_listed() {
        this.verify_others(report).await?;
    }
    Ok(this.checks)
}

struct ByBlocks<'a, 'v> {
    verifier: &'a Verifier<'v>,
    archive: &'a Archive,
    checks: BlockChecks,
    /// The pages that are verified block by block, and whether the catalog lists them.
    listed: ListedPages,
    /// The number of pages that are verified page by page.
    others: u64,
}

impl ByBlocks<'_, '_> {
    /// Begins a walk through all rows that decide how a page is verified.
    fn walk(&self) -> PageWalk {
        let tables = vec![
            &*REVISIONS,
            &*RENDERS,
            &*REVISIONS_BY_TIME,
            &*REVISIONS_BY_TID,
            &*REVISION_CONTENT,
            &*RENDER_CONTENT,
            &*CURRENT,
            &*PAGES,
            &*ARCHIVE_INDEX,
        ];
        PageWalk::new(self.archive.tables().clone(), tables)
    }

    /// Collects the parts of a page in blocks.
    fn add(&mut self, mut walked: WalkedPage, report: &mut VerifyReport) {
        let Some(parts) = walked.take_parts() else {
            self.checks.note_unreadable_index();
            self.others += u64::from(!listed_in(&walked).is_empty());
            return;
        };
        let (buckets, page) = (self.verifier.buckets, parts.page());
        let is_in_blocks = self.is_in_blocks(&walked, &parts);
        if is_in_blocks {
            report.pages += 1;
            self.listed.seek(page);
        } else if buckets.exists(page) || !buckets.is_deleted(page) {
            self.others += u64::from(!listed_in(&walked).is_empty());
        }
        if !buckets.is_deleted(page) {
            self.checks.expect(&parts, is_in_blocks);
        }
    }

    /// Whether a page is verified block by block: its bucket exists, and readers see exactly what is in its blocks.
    fn is_in_blocks(&self, walked: &WalkedPage, parts: &PageParts) -> bool {
        let is_besides = |table: &Schema| [ARCHIVE_INDEX.name(), PAGES.name()].contains(&table.name());
        let is_info_sound = walked.info.as_ref().is_none_or(|row| PageInfoRow::from_row(row).is_ok());
        let (buckets, page) = (self.verifier.buckets, parts.page());
        !walked.is_damaged
            && !parts.is_empty()
            && parts.are_apart()
            && is_info_sound
            && walked.tables.iter().all(|table| is_besides(table))
            && buckets.exists(page)
            && !buckets.is_deleted(page)
    }

    /// Visits the blocks of the collected parts, and looks for the catalog entries of the pages.
    async fn visit_blocks(&mut self, report: &mut VerifyReport) -> Result<()> {
        self.listed.look(&self.verifier.records.catalog).await?;
        let mut visits = self.checks.visits(self.archive)?;
        while let Some(visit) = visits.next().await? {
            let (mut is_sound, mut bodies) = (true, 0);
            if let Some(content) = visit.content() {
                for body in &content.chunked {
                    let verified =
                        self.verifier.verify_body(&body.page, body.rev, body.tid, body.row.clone());
                    match verified.await {
                        Err(Error::Store(StoreError::Corrupt(_))) => is_sound = false,
                        verified => verified?,
                    }
                }
                if is_sound {
                    report.revisions += content.revisions;
                    report.renders += content.renders;
                    report.bodies += content.bodies;
                    report.bytes += content.bytes;
                    bodies = content.bodies;
                }
            }
            self.checks.add(&visit, is_sound);
            self.verifier.progress.finish(visit.parts, bodies);
        }
        Ok(())
    }

    /// Verifies page by page what was not found to be sound.
    async fn verify_others(&self, report: &mut VerifyReport) -> Result<()> {
        let (mut pages, mut others) = (self.walk(), Vec::new());
        while let Some(page) = pages.next().await? {
            others.extend(self.other_page(page, report));
            if others.len() == PAGES_AT_A_TIME {
                self.verifier.verify_pages(std::mem::take(&mut others), report).await?;
            }
        }
        self.verifier.verify_pages(others, report).await
    }

    /// The page, if it has to be verified page by page.
    fn other_page(&self, mut walked: WalkedPage, report: &mut VerifyReport) -> Option<ListedPage> {
        let tables = listed_in(&walked);
        let mut counted = Counted::All;
        if let Some(parts) = walked.take_parts()
            && self.is_in_blocks(&walked, &parts)
        {
            let unlike = self.checks.unlike_parts(&parts);
            if unlike.is_empty() && self.listed.has(parts.page()) {
                return None;
            }
            counted = Counted::Within(unlike);
        }
        self.verifier.listed_page(walked.partition, tables, counted, report)
    }
}

/// The tables from which the page is listed. Each part in a block has a revision and a render.
fn listed_in(walked: &WalkedPage) -> Vec<&'static Schema> {
    let is_in_index = walked.has_rows_in(&ARCHIVE_INDEX);
    let is_listed = |table: &&'static Schema| {
        let is_in_parts = [REVISIONS.name(), RENDERS.name()].contains(&table.name());
        walked.has_rows_in(table) || (is_in_index && is_in_parts)
    };
    LISTED_TABLES.into_iter().map(|table| &**table).filter(is_listed).collect()
}
