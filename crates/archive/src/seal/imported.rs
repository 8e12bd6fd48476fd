//! Seals revisions that an import has just stored as rows, without the wait of other seals: nobody has edited or read
//! them.

use std::collections::{BTreeMap, HashMap};

use crate::format::Unit;

use super::{SealOptions, SealReport, Sealer};
use crate::Archive;
use rashomon_records::{BucketName, DomainName, Page, Result, Revision, Tid, Title, write::WritePipeline};

/// Revisions of an import, by page.
pub type ImportedRows = BTreeMap<Title, HashMap<Revision, ImportedRow>>;

/// Who stored a revision that is in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportedRow {
    /// This import.
    New,
    /// Somebody before this import, which has the same content. It may be left from an import that was interrupted.
    Before,
}

impl Archive {
    /// Seals these revisions of a bucket, and no others. If idle pages are sealed, also seals those that are the latest
    /// of their pages. Does nothing if the archive is off, or if other processes may write to the store. Returns also
    /// how many of the sealed revisions this import has stored.
    ///
    /// Writers and readers may use the pages meanwhile. A revision that they have changed stays in the tables. So does
    /// a revision that was stored before, unless its only render is one that an import makes.
    pub async fn seal_imported(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        imported: ImportedRows,
        writes: &WritePipeline,
    ) -> Result<(SealReport, u64)> {
        let Some(settings) = self.settings.as_ref().filter(|_| self.records.is_alone()) else {
            return Ok((SealReport::default(), 0));
        };
        let _alone = self.alone().await;
        let of_bucket = settings.of_bucket(domain, bucket);
        let mut sealer = Sealer::new(self, writes, of_bucket, SealOptions::default())?;
        sealer.cutoff = self.records.clock.now();
        sealer.idle_since = settings.idle.map(|_| sealer.cutoff);
        for (title, revisions) in imported {
            sealer.only = Some(revisions);
            let page = Page { domain: domain.clone(), bucket: bucket.clone(), title };
            sealer.take_page(&page).await?;
        }
        sealer.end_block().await?;
        Ok((sealer.sealed, sealer.new))
    }
}

impl Sealer<'_> {
    /// Whether the seal is about this revision.
    pub(super) fn takes(&self, rev: Revision) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains_key(&rev))
    }

    /// Whether the seal is about this revision with these renders.
    pub(super) fn takes_unit(&self, page: &Page, unit: &Unit) -> bool {
        let record = &unit.revision.record;
        let is_of_import = || match &unit.renders[..] {
            [(render, _)] => render.tid == Tid::imported(page, record.rev, record.timestamp),
            _ => false,
        };
        match self.imported_row(record.rev) {
            Some(ImportedRow::Before) => is_of_import(),
            Some(ImportedRow::New) | None => true,
        }
    }

    /// Counts a revision that is sealed, if this import has stored it.
    pub(super) fn count_new(&mut self, rev: Revision) {
        if self.imported_row(rev) == Some(ImportedRow::New) {
            self.new += 1;
        }
    }

    fn imported_row(&self, rev: Revision) -> Option<ImportedRow> {
        self.only.as_ref().and_then(|only| only.get(&rev).copied())
    }
}
