//! The seal: moves revisions that were superseded long enough ago from the tables into blocks.
//!
//! A seal first stores a block, reads it back, and compares it with the rows. Only then does a batch for each
//! page write the index row and delete sealed rows, so that readers find each row in the tables or in the
//! block. Further batches delete the other sealed rows ([`place`]).
//!
//! An interrupted seal leaves nothing worse than a block that no page references, with a garbage collection
//! entry, or sealed rows in the tables, which the next seal seals again.

mod imported;
mod latest;
mod place;
mod reading;
mod renders;
mod report;
mod threshold;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    num::NonZeroUsize,
    time::Duration,
};

use crate::format::{Unit, UnitSize};
use rashomon_clock::Timestamp;
use rashomon_tables::{ClusteringRange, Error as StoreError, ReadFrom, Scan};

pub(super) use self::place::{release_chunks, release_owner};
pub use self::{
    imported::{ImportedRow, ImportedRows},
    place::{MAX_PLACED_BYTES, MAX_PLACED_ROWS},
    report::SealReport,
};
use super::{
    Archive, ArchivePolicy, BucketArchive,
    candidates::{Candidate, candidates},
    decide::{StayReason, check_sealable},
    deletes::Resealed,
    erase::Epoch,
    index::{IndexRow, index_of},
    large::read_from_chunks,
    page_walk::BucketPages,
    pending::PendingBlock,
    policy::Thinning,
    seal::renders::{RenderReader, RevisionRenders, TOO_MANY_RENDERS},
};
use rashomon_records::{
    BucketName, DomainName, Error, Page, Result, Revision, Tid, Title,
    rows::{RenderKey, RenderRow, RevisionKey, RevisionRow, RowKey, of_revision, partition_of},
    schemas::{RENDERS, REVISIONS},
    write::WritePipeline,
};

/// The number of revisions in one read.
const REVISIONS_PER_STEP: NonZeroUsize = NonZeroUsize::new(128).expect("not zero");

/// The maximum number of uncompressed bytes of bodies and metadata that are read together. A single revision
/// may have more.
const MAX_STEP_BYTES: u64 = 8 << 20;

/// Options of a seal.
#[derive(Debug, Clone, Copy, Default)]
pub struct SealOptions {
    /// The maximum time for which eligible revisions wait if their page has few of them. A page with many
    /// eligible revisions is sealed at once. If `None`, no revision waits, which makes more and smaller
    /// blocks.
    pub max_wait: Option<Duration>,
    /// How long to wait after each page, so that readers and writers are not delayed.
    pub rest: Duration,
    /// Whether the latest revision of an idle page stays in the tables. A process that has just started does
    /// not know which pages are read often.
    pub spare_latest: bool,
}

impl Archive {
    /// Seals eligible revisions of a bucket: whole revisions that were superseded long enough ago, and the latest
    /// revisions of idle pages. `options` may let some of them wait. Does nothing if the archive is off. A
    /// damaged page does not prevent the seal of other pages.
    ///
    /// A seal may be interrupted at any point. Writers, and other seals, of this process and of others, may run at the
    /// same time. Calls `progress` after every page.
    pub async fn seal(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        options: SealOptions,
        writes: &WritePipeline,
        progress: &mut (dyn FnMut(&SealReport) + Send),
    ) -> Result<SealReport> {
        let Some(settings) = &self.settings else { return Ok(SealReport::default()) };
        let _beside_seals = self.beside_seals().await;
        let mut sealer = Sealer::new(self, writes, settings.of_bucket(domain, bucket), options)?;
        let tables = vec![&*REVISIONS, &*RENDERS];
        let mut pages = BucketPages::new(self, domain, bucket, tables, options.rest);
        while let Some((page, _)) = pages.next().await? {
            sealer.take_page(&page).await?;
            progress(&sealer.sealed);
            if !options.rest.is_zero() {
                tokio::time::sleep(options.rest).await;
            }
        }
        sealer.end_block().await?;
        progress(&sealer.sealed);
        Ok(sealer.sealed)
    }
}

struct Sealer<'a> {
    archive: &'a Archive,
    writes: &'a WritePipeline,
    /// Revisions that were superseded after this time are not sealed.
    cutoff: Timestamp,
    /// The latest revision of a page is sealed if the page was neither written nor read since this time. If
    /// `None`, it is never sealed.
    idle_since: Option<Timestamp>,
    options: SealOptions,
    /// The revisions of the current page that may be sealed. `None` if all may be.
    only: Option<HashMap<Revision, ImportedRow>>,
    /// The number of sealed revisions that an import has stored.
    new: u64,
    policy: ArchivePolicy,
    /// Thins out the renders of the page that is being sealed.
    thinning: Thinning,
    /// The index of the page that is being sealed.
    index: Vec<IndexRow>,
    pending: PendingBlock,
    /// The revisions in the pending block of which some rows may have been in blocks before, by title.
    resealed: BTreeMap<Title, Resealed>,
    /// Revisions of the current page that have only a part of their rows in the tables.
    partly_sealed: BTreeSet<Revision>,
    /// The range of the current page's revisions that are not processed yet.
    rest: ClusteringRange,
    /// The erasure epoch of the bucket before the first revision was read.
    epoch: Option<Epoch>,
    sealed: SealReport,
}

/// The reason why a seal takes no more revisions of a page, or of any page.
#[derive(Debug)]
enum StopReason {
    /// The page is damaged. The seal continues with the next page. Contains a description of the damage.
    Page(String),
    /// The whole seal fails.
    All(Error),
}

/// Whether some block already has rows of a revision that is about to be sealed.
#[derive(Debug, Clone, Copy)]
enum SealState {
    /// No row of the revision is in a block.
    Unsealed,
    /// Some rows of the revision may be in a block already.
    PartlySealed,
}

type SealResult<T = ()> = std::result::Result<T, StopReason>;

/// Converts the error of a read of the page: damage ends the seal of the page, and any other error the whole
/// seal.
impl<E: Into<Error>> From<E> for StopReason {
    fn from(error: E) -> Self {
        match error.into() {
            Error::Store(StoreError::Corrupt(what)) => Self::Page(what),
            error => Self::All(error),
        }
    }
}

impl<'a> Sealer<'a> {
    fn new(
        archive: &'a Archive,
        writes: &'a WritePipeline,
        settings: BucketArchive,
        options: SealOptions,
    ) -> Result<Self> {
        let policy = settings.policy;
        let lag = archive.records.max_write_time_lag();
        let passed = archive.records.clock.passed();
        // A policy that keeps every render deletes nothing. Any other policy seals a page only when it is certain that
        // the time has passed.
        let before = |length: Duration| {
            let length = length.saturating_add(lag);
            let now = if policy == ArchivePolicy::Every { passed.shown() } else { passed.after(length) };
            now.saturating_sub(length)
        };
        let cutoff = before(settings.after);
        let idle = archive.settings.as_ref().and_then(|settings| settings.idle);
        let idle = idle.filter(|_| !options.spare_latest);
        let idle_since = idle.map(|idle| before(idle).min(cutoff));
        Ok(Self {
            archive,
            writes,
            cutoff,
            idle_since,
            options,
            only: None,
            new: 0,
            policy,
            thinning: Thinning::new(policy, None),
            index: Vec::new(),
            pending: PendingBlock::new(archive.block_version())?,
            resealed: BTreeMap::new(),
            partly_sealed: BTreeSet::new(),
            rest: ClusteringRange::all(),
            epoch: None,
            sealed: SealReport::default(),
        })
    }

    /// Takes the eligible revisions of a page into the pending block, and places full blocks. A revision with
    /// a damaged row stays, and is counted as damaged. If damage makes a read of the page fail, all remaining
    /// revisions stay.
    async fn take_page(&mut self, page: &Page) -> Result<()> {
        self.sealed.pages += 1;
        if self.epoch.is_none() {
            self.epoch = Some(self.archive.blocks.epoch(page).await?);
        }
        (self.partly_sealed, self.rest) = (BTreeSet::new(), ClusteringRange::all());
        match Box::pin(self.take_eligible(page)).await {
            Err(StopReason::Page(what)) => {
                let rest = self.count_rest(page).await? + self.partly_sealed.len() as u64;
                self.count_damaged(page, &what, rest.max(1));
                Ok(())
            }
            Err(StopReason::All(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// Counts and logs revisions that stay because of damage.
    fn count_damaged(&mut self, page: &Page, what: &str, revisions: u64) {
        let (domain, title) = (&page.domain, &page.title);
        tracing::error!(%domain, %title, what, revisions, "damaged data is not sealed");
        self.sealed.kept += revisions;
    }

    async fn take_eligible(&mut self, page: &Page) -> SealResult {
        let idle_latest = self.idle_latest(page).await?.filter(|rev| self.takes(*rev));
        // If a block has the latest revision, all rows of lower revisions are superseded.
        let blocks = &self.archive.blocks;
        let partition = partition_of(page);
        let sealed = blocks.indexes.highest(&*blocks.store, &partition, ReadFrom::Quorum).await?;
        let sealed = sealed.and_then(Revision::new);
        let below = self.superseded_below(page).await?.max(idle_latest).max(sealed);
        let Some(below) = below else { return Ok(()) };
        self.rest = ClusteringRange::all().below(below.get());
        if idle_latest.is_none() && !self.should_seal_now(page, below).await? {
            return Ok(());
        }
        if self.writes.writer(page).is_held().await? {
            // A process holds the page lease, and may still have to roll back the rows of its write.
            self.sealed.left += 1;
            return Ok(());
        }
        self.index = index_of(&*self.archive.blocks.store, &partition_of(page)).await?;
        self.thinning = self.thinning_on(&self.index);
        if !self.index.is_empty() {
            let partly_sealed = self.renders_alone(page, below).await?;
            self.partly_sealed = partly_sealed.into_iter().filter(|rev| self.takes(*rev)).collect();
        }
        loop {
            let scan = Scan::new(partition_of(page), REVISIONS_PER_STEP).range(self.rest.clone()).reverse();
            let rows = self.scan_tables(&REVISIONS, scan.reporting_damage()).await?;
            let mut revisions = Vec::with_capacity(rows.items.len());
            for row in &rows.items {
                match RevisionRow::from_row(row) {
                    Ok(revision) => revisions.push(revision),
                    Err(Error::Store(StoreError::Corrupt(what))) => self.count_damaged(page, &what, 1),
                    Err(error) => return Err(error.into()),
                }
            }
            for row in &rows.damaged {
                self.count_damaged(page, &row.reason, 1);
            }
            let keys = rows.items.iter().map(|row| &row.key).chain(rows.damaged.iter().map(|row| &row.key));
            let Some(last) = keys.filter_map(RevisionKey::read).map(|key| key.rev).max() else { break };
            self.take_revisions(page, revisions).await?;
            self.mark_processed(last);
            if rows.next.is_none() {
                break;
            }
        }
        while let Some(rev) = self.partly_sealed.first().copied() {
            match self.take_as_read(page, rev, SealState::PartlySealed).await {
                Err(StopReason::Page(what)) => self.count_damaged(page, &what, 1),
                taken => taken?,
            }
            self.partly_sealed.remove(&rev);
        }
        // If the latest revision is below `below`, the loop has taken it already.
        let Some(rev) = idle_latest.filter(|rev| *rev >= below) else { return Ok(()) };
        let state = match self.may_be_sealed(rev) {
            true => SealState::PartlySealed,
            false => SealState::Unsealed,
        };
        self.take_as_read(page, rev, state).await
    }

    /// Whether a block may have rows of the revision.
    fn may_be_sealed(&self, rev: Revision) -> bool {
        self.index.iter().any(|row| row.may_have_revision(rev))
    }

    /// Whether the renders of a revision are thinned out. A revision that is both in a block and in the
    /// tables is left from a seal that was interrupted between two batches. That seal has already decided
    /// which renders are kept. If the policy depends on other kept renders, a second decision could leave out
    /// a render that was kept.
    fn is_thinned(&self, rev: Revision) -> bool {
        !(self.thinning.depends_on_other_renders() && self.may_be_sealed(rev))
    }

    /// Returns the thinning for a page with this index.
    fn thinning_on(&self, index: &[IndexRow]) -> Thinning {
        Thinning::new(self.policy, index.iter().filter_map(|row| row.kept_at).max())
    }

    fn mark_processed(&mut self, rev: Revision) {
        self.rest = self.rest.clone().above(rev.get());
    }

    /// Takes a revision as readers see it: with its rows in the tables and its rows in blocks. Thins out no
    /// render: a render that was added to a sealed revision was made for a reader, and of the latest revision
    /// all renders are kept.
    async fn take_as_read(&mut self, page: &Page, rev: Revision, state: SealState) -> SealResult {
        if self.is_known_too_large(page, rev) {
            return Ok(());
        }
        let stored = self.all_rows(&RENDERS, page, of_revision(rev), true).await?;
        let stored = stored.iter().map(|row| Some((RenderKey::read(&row.key)?.tid, row.written_at)));
        let Some(stored) = stored.collect::<Option<Vec<_>>>() else { return Ok(()) };
        let (revision, renders) = match self.as_read(page, rev).await? {
            Some((revision, RevisionRenders::All(renders))) => (revision, renders),
            Some((_, RevisionRenders::TooMany)) => {
                self.note_too_large(page, rev, TOO_MANY_RENDERS);
                return Ok(());
            }
            Some((_, RevisionRenders::Damaged(what))) => return Err(StopReason::Page(what)),
            None => return Ok(()),
        };
        if let Some(why) = UnitSize::of(&revision, &renders, &BTreeSet::new()).excess() {
            self.note_too_large(page, rev, why);
            return Ok(());
        }
        let of_rev = vec![(revision, renders)];
        let mut candidates = candidates(&*self.archive.records.store, page, of_rev, &BTreeSet::new()).await?;
        let Some(mut candidate) = candidates.pop() else { return Ok(()) };
        if let Some(what) = candidate.damage {
            return Err(StopReason::Page(what));
        }
        if !self.takes_unit(page, &candidate.unit) {
            return Ok(());
        }
        if let Err(why) = check_sealable(&candidate.unit, &candidate.texts, self.cutoff) {
            self.count_staying(page, rev, why);
            return Ok(());
        }
        // The chunks of a partly sealed revision stay: a block names them, and readers may be reading that
        // block.
        let released_chunks = match state {
            SealState::PartlySealed => Vec::new(),
            SealState::Unsealed => {
                let chunks = &self.archive.records.chunks;
                read_from_chunks(chunks, &mut candidate.unit, &mut candidate.texts).await?
            }
        };
        self.make_room(&candidate.unit).await.map_err(StopReason::All)?;
        self.pending.release_chunks(page, rev, released_chunks);
        self.resealed.entry(page.title.clone()).or_default().insert(rev, stored);
        self.push(page, candidate).map_err(StopReason::All)
    }

    /// Takes consecutive revisions, in steps that fit into memory.
    async fn take_revisions(&mut self, page: &Page, revisions: Vec<RevisionRow>) -> SealResult {
        let (Some(first), Some(last)) = (revisions.first(), revisions.last()) else { return Ok(()) };
        let range = ClusteringRange::all().at_least(first.record.rev.get()).at_most(last.record.rev.get());
        let archive = self.archive;
        let blocks = &archive.blocks;
        let mut reader = RenderReader::new(&*blocks.store, page, range);
        let (mut step, mut bytes, all) = (Vec::new(), 0, BTreeSet::new());
        for revision in revisions {
            let rev = revision.record.rev;
            if !self.takes(rev) {
                // A step reads the bodies of all revisions from its first to its last one.
                self.take_step(page, std::mem::take(&mut step), &all).await?;
                bytes = 0;
                self.mark_processed(rev);
                continue;
            }
            let is_known = blocks.too_large.is_known(page, rev, self.archive.records.clock.now());
            let renders = if is_known { None } else { Some(reader.of(rev).await?) };
            let size = match &renders {
                Some(RevisionRenders::All(renders)) => UnitSize::of(&revision, renders, &all),
                _ => UnitSize::default(),
            };
            let is_small = matches!(renders, Some(RevisionRenders::All(_))) && size.excess().is_none();
            let more = size.bodies + size.values as u64;
            if (bytes + more > MAX_STEP_BYTES || !is_small) && !step.is_empty() {
                self.take_step(page, std::mem::take(&mut step), &all).await?;
                bytes = 0;
            }
            match renders {
                Some(RevisionRenders::All(renders)) if is_small => {
                    bytes += more;
                    step.push((revision, renders));
                    continue;
                }
                Some(RevisionRenders::All(renders)) => self.take_large(page, revision, renders).await?,
                Some(RevisionRenders::Damaged(what)) => self.count_damaged(page, &what, 1),
                Some(RevisionRenders::TooMany) => self.note_too_large(page, rev, TOO_MANY_RENDERS),
                None => {
                    reader.skip(rev);
                    self.count_too_large();
                }
            }
            self.mark_processed(rev);
        }
        self.take_step(page, step, &all).await
    }

    /// Takes a revision that is too large for a block with all its renders. Takes it without the bodies of
    /// renders that the policy does not keep, if it is small enough then.
    async fn take_large(
        &mut self,
        page: &Page,
        revision: RevisionRow,
        renders: Vec<RenderRow>,
    ) -> SealResult {
        let mut thinning = self.thinning;
        let left_out = match self.is_thinned(revision.record.rev) {
            true => thinning.left_out(&renders),
            false => BTreeSet::new(),
        };
        match UnitSize::of(&revision, &renders, &left_out).excess() {
            None => self.take_step(page, vec![(revision, renders)], &left_out).await,
            Some(why) => {
                self.note_too_large(page, revision.record.rev, why);
                Ok(())
            }
        }
    }

    /// Counts and remembers a revision that is too large for a block. The next seals do not read it again for
    /// a while.
    fn note_too_large(&mut self, page: &Page, rev: Revision, why: &str) {
        self.archive.blocks.too_large.remember(page, rev, why, self.archive.records.clock.now());
        self.count_too_large();
    }

    fn count_too_large(&mut self) {
        self.sealed.kept += 1;
        self.sealed.too_large += 1;
    }

    /// Whether the revision was found too large a short time ago. If so, counts it.
    fn is_known_too_large(&mut self, page: &Page, rev: Revision) -> bool {
        let is_known = self.archive.blocks.too_large.is_known(page, rev, self.archive.records.clock.now());
        if is_known {
            self.count_too_large();
        }
        is_known
    }

    /// Reads the bodies of some revisions, except those of the renders in `left_out`. Takes the revisions
    /// that can be sealed.
    async fn take_step(
        &mut self,
        page: &Page,
        step: Vec<(RevisionRow, Vec<RenderRow>)>,
        left_out: &BTreeSet<Tid>,
    ) -> SealResult {
        for candidate in candidates(&*self.archive.blocks.store, page, step, left_out).await? {
            let rev = candidate.unit.revision.record.rev;
            if let Some(what) = &candidate.damage {
                self.count_damaged(page, what, 1);
                self.mark_processed(rev);
                continue;
            }
            if !self.takes_unit(page, &candidate.unit) {
                self.mark_processed(rev);
                continue;
            }
            match check_sealable(&candidate.unit, &candidate.texts, self.cutoff) {
                Ok(()) => self.take_candidate(page, candidate).await?,
                // The missing rows of the revision may be in a block.
                Err(StayReason::Incomplete) => drop(self.partly_sealed.insert(rev)),
                Err(stays) => self.count_staying(page, rev, stays),
            }
            self.mark_processed(rev);
        }
        Ok(())
    }

    /// Counts a revision that stays in the tables for this reason.
    fn count_staying(&mut self, page: &Page, rev: Revision, why: StayReason) {
        match why {
            StayReason::Fresh | StayReason::Incomplete => self.sealed.left += 1,
            StayReason::Damaged => {
                tracing::error!(domain = %page.domain, title = %page.title, %rev, "damaged body is not sealed");
                self.sealed.kept += 1;
            }
        }
    }

    async fn take_candidate(&mut self, page: &Page, mut candidate: Candidate) -> SealResult {
        let mut released_chunks = match self.is_thinned(candidate.unit.revision.record.rev) {
            true => self.thinning.thin(&mut candidate.unit, &mut candidate.texts),
            false => Vec::new(),
        };
        let chunks = &self.archive.records.chunks;
        released_chunks
            .append(&mut read_from_chunks(chunks, &mut candidate.unit, &mut candidate.texts).await?);
        self.make_room(&candidate.unit).await.map_err(StopReason::All)?;
        self.pending.release_chunks(page, candidate.unit.revision.record.rev, released_chunks);
        self.push(page, candidate).map_err(StopReason::All)
    }

    async fn make_room(&mut self, next: &Unit) -> Result<()> {
        if self.pending.is_full_for(&UnitSize::of_unit(next)) {
            self.end_block().await?;
        }
        Ok(())
    }

    fn push(&mut self, page: &Page, candidate: Candidate) -> Result<()> {
        self.count_new(candidate.unit.revision.record.rev);
        self.sealed.revisions += 1;
        self.sealed.renders += candidate.unit.renders.len() as u64;
        self.sealed.raw_bytes += candidate.texts.values().map(|text| text.len() as u64).sum::<u64>();
        self.pending.push(page, candidate.unit, &candidate.texts)
    }

    /// Writes the block that is being filled, and makes its pages reference it. Does nothing if the block is
    /// empty.
    async fn end_block(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut pending = self.pending.take()?;
        let released_chunks = pending.take_released();
        let Some(made) = self.archive.make_block(pending).await? else { return Ok(()) };
        self.sealed.blocks += 1;
        self.sealed.stored_bytes += made.bytes;
        let mut all_reference_it = true;
        for (page, units) in &made.pages {
            let released_chunks = released_chunks.get(&page.title).map_or(&[][..], |chunks| chunks);
            let references_it = match self.place(page, units, &made, released_chunks).await {
                Err(StopReason::Page(what)) => {
                    self.count_damaged(page, &what, units.len() as u64);
                    false
                }
                Err(StopReason::All(error)) => return Err(error),
                Ok(references_it) => references_it,
            };
            all_reference_it &= references_it;
        }
        if all_reference_it {
            self.archive.blocks.dequeue(made.id, made.enqueued_at).await?;
        }
        self.resealed.clear();
        Ok(())
    }
}
