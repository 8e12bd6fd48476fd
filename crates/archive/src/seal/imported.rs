//! Seals revisions that an import has just stored as rows, without the wait of other seals: nobody has edited or read
//! them.

use std::collections::{BTreeMap, HashSet};

use super::{SealOptions, SealReport, Sealer};
use crate::Archive;
use rashomon_records::{BucketName, DomainName, Page, Result, Revision, Title, write::WritePipeline};

/// Revisions that an import has stored as rows, by page.
pub type ImportedRows = BTreeMap<Title, HashSet<Revision>>;

impl Archive {
    /// Seals these revisions of a bucket, and no others. If idle pages are sealed, also seals those that are the latest
    /// of their pages. Does nothing if the archive is off, or if other processes may write to the store.
    ///
    /// Writers and readers may use the pages meanwhile. A revision that they have changed stays in the tables.
    pub async fn seal_imported(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        imported: ImportedRows,
        writes: &WritePipeline,
    ) -> Result<SealReport> {
        let Some(settings) = self.settings.as_ref().filter(|_| self.records.is_alone()) else {
            return Ok(SealReport::default());
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
        Ok(sealer.sealed)
    }
}

impl Sealer<'_> {
    /// Whether the seal is about this revision.
    pub(super) fn takes(&self, rev: Revision) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&rev))
    }
}
