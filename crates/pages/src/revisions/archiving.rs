//! The operations of the archive that the service offers.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use rashomon_clock::Timestamp;
use rashomon_clock::admission::Permits;
use rashomon_records::{ImportUnit, VerifyProgress, VerifyReport};

use super::{Maintenance, StoreInner, import::BodyState};
use crate::{
    BucketName, DomainName, ImportOutcome, ImportRevision, Page, Result, Revision,
    archive::{
        AttachedChanges, CompactionOptions, CompactionReport, HistoryArchiver, ImportedRows, RowImporter,
        SealOptions, SealReport, SkippedDamage, Unit,
    },
};

impl Maintenance {
    /// Returns the permits to unpack a block of the archive, or `None` if there is no archive.
    #[must_use]
    pub fn unpacks(&self) -> Option<&Permits> {
        self.0.archive.as_ref().map(|archive| archive.permits())
    }

    /// Returns the number of blocks of the archive that were read from the store and unpacked, since the
    /// process started.
    #[must_use]
    pub fn opened_blocks(&self) -> u64 {
        self.0.archive.as_ref().map_or(0, |archive| archive.opened_blocks())
    }

    /// Seals the eligible revisions of a bucket, with their renders and bodies. A revision is eligible when
    /// it was superseded long enough ago. If the archive seals idle pages, their latest revisions are eligible,
    /// too.
    ///
    /// Seals nothing if the archive is off. A seal may be interrupted at any point, and may run beside
    /// writers and other seals. Calls `progress` after every page. Damage of one page does not prevent the
    /// seal of other pages.
    #[boxed]
    pub async fn seal(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        options: SealOptions,
        progress: &mut (dyn FnMut(&SealReport) + Send),
    ) -> Result<SealReport> {
        match &self.0.archive {
            Some(archive) => archive.seal(domain, bucket, options, &self.0.writes, progress).await,
            None => Ok(SealReport::default()),
        }
    }

    /// Whether [`Self::seal_imported`] seals anything: the archive is on, and no other process writes to the store.
    #[must_use]
    pub fn seals_imports(&self) -> bool {
        self.0.records.is_alone() && self.0.archive.as_ref().is_some_and(|archive| archive.is_on())
    }

    /// Seals revisions of a bucket that an import has just stored as rows, or that were left in rows by an earlier
    /// import, and no others. Returns also how many of them this import has stored.
    #[boxed]
    pub async fn seal_imported(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        imported: ImportedRows,
    ) -> Result<(SealReport, u64)> {
        match &self.0.archive {
            Some(archive) => archive.seal_imported(domain, bucket, imported, &self.0.writes).await,
            None => Ok((SealReport::default(), 0)),
        }
    }

    /// Compacts the archive of a bucket: rewrites pages that are spread over many small blocks into fewer,
    /// larger ones.
    ///
    /// Garbage collection deletes the unreferenced blocks once no reader can be reading them. A compaction
    /// may be interrupted at any point, and may run beside writers, seals and other compactions. Calls
    /// `progress` after every page.
    #[boxed]
    pub async fn compact_archive(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        options: CompactionOptions,
        progress: &mut (dyn FnMut(&CompactionReport) + Send),
    ) -> Result<CompactionReport> {
        match &self.0.archive {
            Some(archive) => archive.compact(domain, bucket, options, progress).await,
            None => Ok(CompactionReport::default()),
        }
    }

    /// Compacts these pages of one bucket, in this order, like [`Self::compact_archive`].
    #[boxed]
    pub async fn compact_pages(&self, pages: &[Page]) -> Result<CompactionReport> {
        match &self.0.archive {
            Some(archive) => archive.compact_pages(pages).await,
            None => Ok(CompactionReport::default()),
        }
    }

    /// Returns an archiver that writes imported histories directly into blocks, or `None` if the archive is
    /// off. In this process, no other archiver and no other writer may work on the same pages at the same
    /// time.
    #[must_use]
    pub fn history_archiver(&self) -> Option<HistoryArchiver> {
        let rows = Arc::clone(&self.0) as Arc<dyn RowImporter>;
        HistoryArchiver::new(Arc::clone(self.0.archive.as_ref()?), rows)
    }

    /// Verifies only the archive: every block can be decoded completely, the indexes of its pages reference
    /// the revisions in the block, and the blocks have the revisions that the indexes name.
    ///
    /// Skips the buckets `deleted`, which are being deleted. Calls `progress` regularly, with the number
    /// of blocks read.
    #[boxed]
    pub async fn verify_archive(
        &self,
        deleted: &BTreeSet<(DomainName, BucketName)>,
        progress: &mut (dyn FnMut(VerifyProgress) + Send),
    ) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        if let Some(archive) = &self.0.archive {
            archive.verify(deleted, &mut report, progress).await?;
        }
        Ok(report)
    }

    /// Makes all later reads skip the unreadable parts of damaged blocks, as if these parts did not exist.
    ///
    /// A command calls this function if no other reader uses these buckets, and if the command reads everything
    /// readable and reports the missing parts. If a value was written again after its seal, a reader may get
    /// the earlier content of the value from an earlier block.
    pub fn skip_damage(&self) {
        if let Some(archive) = &self.0.archive {
            archive.skip_damage();
        }
    }

    /// Returns the damage that was skipped since the last call.
    #[must_use]
    pub fn skipped_damage(&self) -> Vec<SkippedDamage> {
        self.0.archive.as_ref().map(|archive| archive.skipped_damage()).unwrap_or_default()
    }

    /// Returns the error `Unsupported` if a later version of the program wrote a block that may have the
    /// revision. Only the later version can read the block. This version neither gives up the block nor
    /// rewrites it.
    pub async fn check_versions(&self, page: &Page, rev: Revision) -> Result<()> {
        match &self.0.archive {
            Some(archive) => archive.check_versions(page, rev).await,
            None => Ok(()),
        }
    }

    /// Gives up completely unreadable blocks that may have the revision: removes the blocks from the indexes
    /// of their pages, and deletes the blocks. Returns the lost revisions, by page. Fails as
    /// [`Self::check_versions`] does, before any change. The call may be interrupted at any point; a repeated
    /// call or the garbage collection completes the work.
    #[boxed]
    pub async fn give_up_unreadable(&self, page: &Page, rev: Revision) -> Result<Vec<SkippedDamage>> {
        match &self.0.archive {
            Some(archive) => archive.give_up_unreadable(page, rev).await,
            None => Ok(Vec::new()),
        }
    }
}

#[async_trait]
impl RowImporter for StoreInner {
    fn new_units(&self, revision: ImportRevision) -> std::result::Result<Vec<ImportUnit>, String> {
        self.importer().new_units(revision)
    }

    async fn stored(&self, page: &Page, revisions: &[ImportRevision]) -> Result<HashSet<Revision>> {
        self.importer().stored(page, revisions).await
    }

    fn compare(
        &self,
        page: &Page,
        revisions: &[ImportRevision],
        stored: &HashMap<Revision, Unit>,
    ) -> Option<Vec<ImportOutcome>> {
        self.importer().compare(page, revisions, stored)
    }

    async fn import(&self, page: &Page, revisions: Vec<ImportRevision>) -> Result<Vec<ImportOutcome>> {
        self.importer().import(page, revisions, BodyState::Plain).await
    }

    async fn write_units(
        &self,
        page: &Page,
        units: Vec<ImportUnit>,
        is_new: bool,
        at: Timestamp,
        with: AttachedChanges,
    ) -> Result<()> {
        self.importer().write_units(page, units, is_new, at, with).await
    }
}
