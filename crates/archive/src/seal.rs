//! Sealing: what was superseded long enough goes from the tables of its page into a block.
//!
//! Nothing is taken from a table before the block that has it is in the store, was read back, and was compared
//! with what went in. Then one batch a page puts its index row and takes the rows away; readers find each row
//! in one of both. An interrupted seal leaves at most a block that no page references, and a note of it.

mod reading;
mod renders;
mod worth;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    time::Duration,
};

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, ClusteringRange, Error as StoreError, Scan, TableStore};

use super::{
    Archive, ArchivePolicy, BucketArchive, PageLeases,
    candidates::{Candidate, candidates},
    decide::{Stays, judge},
    deletes::{self, Anew, Standing},
    entries::{Place, Unit},
    erase::Epoch,
    index::{IndexRow, index_of},
    large::take_in,
    made::Made,
    pending::Pending,
    policy::Thinning,
    seal::renders::{RenderReader, RendersOf, TOO_MANY},
    size::UnitSize,
};
use rashomon_records::{
    BucketName, DomainName, Error, Page, Result, Revision, Tid, Title,
    content::{ChunkSet, ChunkStore},
    rows::{
        ChunkReference, RenderKey, RenderRow, RevisionKey, RevisionRow, RowKey, TypedRow, partition_of,
        rev_key,
    },
    schemas::{RENDERS, REVISIONS, REVISIONS_BY_TID, REVISIONS_BY_TIME},
};

/// Revisions that are read together.
const STEP: NonZeroUsize = NonZeroUsize::new(128).expect("not zero");

/// Bytes of bodies, as they came, and of metadata that are read together, but for one revision that alone has more.
const STEP_BYTES: u64 = 8 << 20;

/// Titles that are looked at together.
const TITLES: usize = 500;

/// How eagerly to seal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sealing {
    /// Only of pages that have many revisions to be sealed, or one that might have been sealed so long ago. `None`:
    /// all that may be sealed, however few, which makes more and smaller blocks.
    pub unless_younger: Option<Duration>,
    /// How long to rest after each page, so that readers and writers are not held up.
    pub rest: Duration,
}

/// What was sealed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Sealed {
    /// Pages that were looked at.
    pub pages: u64,
    /// Blocks that were made.
    pub blocks: u64,
    /// Revisions in them.
    pub revisions: u64,
    /// Renders of those.
    pub renders: u64,
    /// Bytes of their bodies, as they came; of those that are in chunks nothing.
    pub raw_bytes: u64,
    /// Bytes of the blocks.
    pub stored_bytes: u64,
    /// Revisions that stay until another time, since they are being changed or have lost bodies.
    pub left: u64,
    /// Revisions that stay, since they are too large to be sealed, or something of them is damaged.
    pub kept: u64,
    /// Those of `kept` that are too large.
    pub too_large: u64,
}

impl Sealed {
    /// Revisions that stay, since something of them is damaged.
    #[must_use]
    pub const fn damaged(&self) -> u64 {
        self.kept - self.too_large
    }
}

impl std::ops::Add for Sealed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            pages: self.pages + other.pages,
            blocks: self.blocks + other.blocks,
            revisions: self.revisions + other.revisions,
            renders: self.renders + other.renders,
            raw_bytes: self.raw_bytes + other.raw_bytes,
            stored_bytes: self.stored_bytes + other.stored_bytes,
            left: self.left + other.left,
            kept: self.kept + other.kept,
            too_large: self.too_large + other.too_large,
        }
    }
}

impl Archive {
    /// Seals all that may be sealed of a bucket: revisions that were superseded long enough, with all that they have.
    /// Seals nothing if the archive is off. Safe to be cut off at any point, and beside writers and other sealers;
    /// `progress` is called after every page. Damage of one page does not keep other pages from being sealed.
    pub async fn seal(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        how: Sealing,
        leases: &dyn PageLeases,
        progress: &mut (dyn FnMut(&Sealed) + Send),
    ) -> Result<Sealed> {
        let Some(settings) = &self.settings else { return Ok(Sealed::default()) };
        let _alone = self.blocks.sealing.lock().await;
        let mut sealer = Sealer::new(self, leases, settings.of_bucket(domain, bucket), how)?;
        let mut last = None;
        loop {
            let titles = self.records.catalog.titles(domain, bucket, last.as_ref(), TITLES).await?;
            for title in titles.items {
                sealer.page(&Page { domain: domain.clone(), bucket: bucket.clone(), title }).await?;
                progress(&sealer.sealed);
                if !how.rest.is_zero() {
                    tokio::time::sleep(how.rest).await;
                }
            }
            last = titles.next;
            if last.is_none() {
                sealer.end_block().await?;
                progress(&sealer.sealed);
                return Ok(sealer.sealed);
            }
        }
    }
}

struct Sealer<'a> {
    archive: &'a Archive,
    leases: &'a dyn PageLeases,
    cutoff: Timestamp,
    how: Sealing,
    policy: ArchivePolicy,
    /// Of the page that is being sealed.
    thinning: Thinning,
    pending: Pending,
    /// Renders of it that are in blocks, and are sealed again.
    anew: BTreeMap<Title, Anew>,
    /// Of the page that is being sealed: what stands in its tables without the rest.
    parts: BTreeSet<Revision>,
    /// Of the page that is being sealed: where the revisions are that have not had their turn.
    rest: ClusteringRange,
    /// That of the bucket, before anything was read of what is pending.
    epoch: Option<Epoch>,
    sealed: Sealed,
}

/// Why no more of a page is taken.
#[derive(Debug)]
enum Ends {
    /// Something of the page is damaged: what is known of that.
    Page(String),
    /// Of no page can anything be taken.
    All(Error),
}

type Taken<T = ()> = std::result::Result<T, Ends>;

/// Of what is read of a page.
impl<E: Into<Error>> From<E> for Ends {
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
        leases: &'a dyn PageLeases,
        settings: BucketArchive,
        how: Sealing,
    ) -> Result<Self> {
        let cutoff = archive
            .records
            .clock
            .now()
            .saturating_sub(settings.after)
            .saturating_sub(archive.records.early());
        let policy = settings.policy;
        Ok(Self {
            archive,
            leases,
            cutoff,
            how,
            policy,
            thinning: Thinning::new(policy, None),
            pending: Pending::new()?,
            anew: BTreeMap::new(),
            parts: BTreeSet::new(),
            rest: ClusteringRange::all(),
            epoch: None,
            sealed: Sealed::default(),
        })
    }

    /// Takes what may go of a page. Blocks that get full are sealed. Behind damage nothing more is taken of it.
    async fn page(&mut self, page: &Page) -> Result<()> {
        self.sealed.pages += 1;
        if self.epoch.is_none() {
            self.epoch = Some(self.archive.blocks.epoch(page).await?);
        }
        (self.parts, self.rest) = (BTreeSet::new(), ClusteringRange::all());
        match Box::pin(self.what_may_go(page)).await {
            Err(Ends::Page(what)) => {
                let rest = self.count_rest(page).await? + self.parts.len() as u64;
                self.damaged(page, &what, rest.max(1));
                Ok(())
            }
            Err(Ends::All(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// Counts revisions that stay, since something of their page is damaged.
    fn damaged(&mut self, page: &Page, what: &str, revisions: u64) {
        let (domain, title) = (&page.domain, &page.title);
        tracing::error!(%domain, %title, what, revisions, "damaged data is not sealed");
        self.sealed.kept += revisions;
    }

    async fn what_may_go(&mut self, page: &Page) -> Taken {
        let Some(below) = self.superseded_below(page).await? else { return Ok(()) };
        self.rest = ClusteringRange::all().below(below.get());
        if !self.is_worth_it(page, below).await? {
            return Ok(());
        }
        if self.leases.is_held(page).await? {
            // Rows that a write on a condition left may have to be taken back.
            self.sealed.left += 1;
            return Ok(());
        }
        let index = index_of(&*self.archive.blocks.store, &partition_of(page)).await?;
        self.thinning = self.thinning_on(&index);
        if !index.is_empty() {
            self.parts = self.renders_alone(page, below).await?;
        }
        loop {
            let scan = Scan::new(partition_of(page), STEP).range(self.rest.clone()).reverse();
            let rows = self.standing(&REVISIONS, scan.reporting_damage()).await?;
            let mut revisions = Vec::with_capacity(rows.items.len());
            for row in &rows.items {
                match RevisionRow::from_row(row) {
                    Ok(revision) => revisions.push(revision),
                    Err(Error::Store(StoreError::Corrupt(what))) => self.damaged(page, &what, 1),
                    Err(error) => return Err(error.into()),
                }
            }
            for row in &rows.damaged {
                self.damaged(page, &row.reason, 1);
            }
            let keys = rows.items.iter().map(|row| &row.key).chain(rows.damaged.iter().map(|row| &row.key));
            let Some(last) = keys.filter_map(RevisionKey::read).map(|key| key.rev).max() else { break };
            self.revisions(page, revisions).await?;
            self.had_its_turn(last);
            if rows.next.is_none() {
                break;
            }
        }
        while let Some(rev) = self.parts.first().copied() {
            match self.anew(page, rev).await {
                Err(Ends::Page(what)) => self.damaged(page, &what, 1),
                taken => taken?,
            }
            self.parts.remove(&rev);
        }
        Ok(())
    }

    /// What is thinned out of a page that has this index.
    fn thinning_on(&self, index: &[IndexRow]) -> Thinning {
        Thinning::new(self.policy, index.iter().filter_map(|row| row.kept_at).max())
    }

    fn had_its_turn(&mut self, rev: Revision) {
        self.rest = self.rest.clone().above(rev.get());
    }

    /// Takes a revision as readers see it: what a block has of it, and what was written since. Nothing of it is
    /// thinned out: what is late was made since somebody asked for it.
    async fn anew(&mut self, page: &Page, rev: Revision) -> Taken {
        if self.is_known_too_large(page, rev) {
            return Ok(());
        }
        let standing = self.all(&RENDERS, page, ClusteringRange::prefix(rev_key(rev)), true).await?;
        let standing = standing.iter().map(|row| Some((RenderKey::read(&row.key)?.tid, row.written_at)));
        let Some(standing) = standing.collect::<Option<Vec<_>>>() else { return Ok(()) };
        let (revision, renders) = match self.as_read(page, rev).await? {
            Some((revision, RendersOf::All(renders))) => (revision, renders),
            Some((_, RendersOf::TooMany)) => {
                self.too_large(page, rev, TOO_MANY);
                return Ok(());
            }
            Some((_, RendersOf::Damaged(what))) => return Err(Ends::Page(what)),
            None => return Ok(()),
        };
        if let Some(why) = UnitSize::of(&revision, &renders, &BTreeSet::new()).excess() {
            self.too_large(page, rev, why);
            return Ok(());
        }
        let of_rev = vec![(revision, renders)];
        let mut candidates = candidates(&*self.archive.records.store, page, of_rev, &BTreeSet::new()).await?;
        let Some(candidate) = candidates.pop() else { return Ok(()) };
        if let Some(what) = candidate.damage {
            return Err(Ends::Page(what));
        }
        if let Err(why) = judge(&candidate.unit, &candidate.texts, self.cutoff) {
            self.stays(page, rev, why);
            return Ok(());
        }
        self.make_room(&candidate.unit).await.map_err(Ends::All)?;
        self.anew.entry(page.title.clone()).or_default().insert(rev, standing);
        self.push(page, candidate).map_err(Ends::All)
    }

    /// Takes revisions that follow one another, as many at once as may be in memory.
    async fn revisions(&mut self, page: &Page, revisions: Vec<RevisionRow>) -> Taken {
        let (Some(first), Some(last)) = (revisions.first(), revisions.last()) else { return Ok(()) };
        let range = ClusteringRange::all().at_least(first.record.rev.get()).at_most(last.record.rev.get());
        let archive = self.archive;
        let blocks = &archive.blocks;
        let mut reader = RenderReader::new(&*blocks.store, page, range);
        let (mut step, mut bytes, all) = (Vec::new(), 0, BTreeSet::new());
        for revision in revisions {
            let rev = revision.record.rev;
            let is_known = blocks.too_large.is_known(page, rev, self.archive.records.clock.now());
            let renders = if is_known { None } else { Some(reader.of(rev).await?) };
            let size = match &renders {
                Some(RendersOf::All(renders)) => UnitSize::of(&revision, renders, &all),
                _ => UnitSize::default(),
            };
            let is_small = matches!(renders, Some(RendersOf::All(_))) && size.excess().is_none();
            let more = size.bodies + size.values as u64;
            if (bytes + more > STEP_BYTES || !is_small) && !step.is_empty() {
                self.step(page, std::mem::take(&mut step), &all).await?;
                bytes = 0;
            }
            match renders {
                Some(RendersOf::All(renders)) if is_small => {
                    bytes += more;
                    step.push((revision, renders));
                    continue;
                }
                Some(RendersOf::All(renders)) => self.large(page, revision, renders).await?,
                Some(RendersOf::Damaged(what)) => self.damaged(page, &what, 1),
                Some(RendersOf::TooMany) => self.too_large(page, rev, TOO_MANY),
                None => {
                    reader.skip(rev);
                    self.count_too_large();
                }
            }
            self.had_its_turn(rev);
        }
        self.step(page, step, &all).await
    }

    /// Takes a revision of which not everything may be in memory: so much of it as is kept, unless that is too much.
    async fn large(&mut self, page: &Page, revision: RevisionRow, renders: Vec<RenderRow>) -> Taken {
        let mut thinning = self.thinning;
        let left_out = thinning.left_out(&renders);
        match UnitSize::of(&revision, &renders, &left_out).excess() {
            None => self.step(page, vec![(revision, renders)], &left_out).await,
            Some(why) => {
                self.too_large(page, revision.record.rev, why);
                Ok(())
            }
        }
    }

    /// Counts a revision that no block takes. It is not read again for a while.
    fn too_large(&mut self, page: &Page, rev: Revision, why: &str) {
        self.archive.blocks.too_large.remember(page, rev, why, self.archive.records.clock.now());
        self.count_too_large();
    }

    fn count_too_large(&mut self) {
        self.sealed.kept += 1;
        self.sealed.too_large += 1;
    }

    /// Whether the revision was found too large a short time ago: then it is counted.
    fn is_known_too_large(&mut self, page: &Page, rev: Revision) -> bool {
        let is_known = self.archive.blocks.too_large.is_known(page, rev, self.archive.records.clock.now());
        if is_known {
            self.count_too_large();
        }
        is_known
    }

    /// Reads the bodies of some revisions but for the renders that will be left out, and takes those that may go.
    async fn step(
        &mut self,
        page: &Page,
        step: Vec<(RevisionRow, Vec<RenderRow>)>,
        left_out: &BTreeSet<Tid>,
    ) -> Taken {
        for candidate in candidates(&*self.archive.blocks.store, page, step, left_out).await? {
            let rev = candidate.unit.revision.record.rev;
            if let Some(what) = &candidate.damage {
                self.damaged(page, what, 1);
                self.had_its_turn(rev);
                continue;
            }
            match judge(&candidate.unit, &candidate.texts, self.cutoff) {
                Ok(()) => self.take(page, candidate).await?,
                // The rest of it may be in a block.
                Err(Stays::Incomplete) => drop(self.parts.insert(rev)),
                Err(stays) => self.stays(page, rev, stays),
            }
            self.had_its_turn(rev);
        }
        Ok(())
    }

    /// Counts a revision that stays.
    fn stays(&mut self, page: &Page, rev: Revision, why: Stays) {
        match why {
            Stays::Fresh | Stays::Incomplete => self.sealed.left += 1,
            Stays::Damaged => {
                tracing::error!(domain = %page.domain, title = %page.title, %rev, "damaged body is not sealed");
                self.sealed.kept += 1;
            }
        }
    }

    async fn take(&mut self, page: &Page, mut candidate: Candidate) -> Taken {
        let mut gone = self.thinning.thin(&mut candidate.unit, &mut candidate.texts);
        let chunks = &self.archive.records.chunks;
        gone.append(&mut take_in(chunks, &mut candidate.unit, &mut candidate.texts).await?);
        self.make_room(&candidate.unit).await.map_err(Ends::All)?;
        self.pending.let_go(page, candidate.unit.revision.record.rev, gone);
        self.push(page, candidate).map_err(Ends::All)
    }

    async fn make_room(&mut self, next: &Unit) -> Result<()> {
        if self.pending.is_full_for(&UnitSize::of_unit(next)) {
            self.end_block().await?;
        }
        Ok(())
    }

    fn push(&mut self, page: &Page, candidate: Candidate) -> Result<()> {
        self.sealed.revisions += 1;
        self.sealed.renders += candidate.unit.renders.len() as u64;
        self.sealed.raw_bytes += candidate.texts.values().map(|text| text.len() as u64).sum::<u64>();
        self.pending.push(page, candidate.unit, &candidate.texts)
    }

    /// Seals the block that is being filled, unless nothing is in it.
    async fn end_block(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut pending = std::mem::replace(&mut self.pending, Pending::new()?);
        let gone = pending.take_gone();
        let Some(made) = self.archive.make_block(pending).await? else { return Ok(()) };
        self.sealed.blocks += 1;
        self.sealed.stored_bytes += made.bytes;
        let mut all_name_it = true;
        for (page, units) in &made.pages {
            let gone = gone.get(&page.title).map_or(&[][..], |gone| gone);
            let names_it = match self.place(page, units, &made, gone).await {
                Err(Ends::Page(what)) => {
                    self.damaged(page, &what, units.len() as u64);
                    false
                }
                Err(Ends::All(error)) => return Err(error),
                Ok(names_it) => names_it,
            };
            all_name_it &= names_it;
        }
        if all_name_it {
            self.archive.blocks.settle(made.id, made.noted_at).await?;
        }
        self.anew.clear();
        Ok(())
    }

    /// Has a page name a block, and takes from its tables what the block has of it. `false`: it does not name it.
    async fn place(
        &self,
        page: &Page,
        units: &[Unit],
        made: &Made,
        gone: &[(Revision, ChunkSet)],
    ) -> Taken<bool> {
        let Some(index) = IndexRow::of(made.id, units) else { return Ok(false) };
        let revs = ClusteringRange::all().at_least(index.revs.0.get()).at_most(index.revs.1.get());
        let times = ClusteringRange::all().at_least(index.times.0).at_most(index.times.1);
        let tids =
            ClusteringRange::all().at_least(index.tids.0.as_time_uuid()).at_most(index.tids.1.as_time_uuid());
        let standing = Standing {
            revisions: self.all(&REVISIONS, page, revs.clone(), true).await?,
            renders: self.all(&RENDERS, page, revs, true).await?,
            by_time: self.all(&REVISIONS_BY_TIME, page, times, true).await?,
            by_tid: self.all(&REVISIONS_BY_TID, page, tids, false).await?,
        };
        let none = Anew::new();
        let going = deletes::going(units, &standing, self.anew.get(&page.title).unwrap_or(&none))?;
        if going.is_empty() {
            // Another sealer was faster, or all of them were written again.
            return Ok(false);
        }
        let mut batch = Batch::new(partition_of(page));
        index.to_stored().put(&mut batch, self.archive.records.clock.now());
        for unit in going.values() {
            release_owner(&mut batch, unit);
        }
        deletes::delete(&mut batch, &going, &standing)?;
        let gone = gone.iter().filter(|(rev, _)| going.contains_key(rev));
        let first = let_go(&mut batch, page, gone, self.archive.records.clock.now());
        if let Some(epoch) = &self.epoch {
            self.archive.blocks.check_epoch(page, epoch).await.map_err(Ends::All)?;
        }
        made.deadline().check(&*self.archive.records.clock)?;
        self.archive.blocks.store.write(first, batch).await.map_err(|error| Ends::All(error.into()))?;
        Ok(true)
    }
}

/// The chunks of a body that was sealed are named by the page as before, but no more as those of a revision: no
/// cull takes them with that.
pub(super) fn release_owner(batch: &mut Batch, unit: &Unit) {
    let at = unit.last_written().just_after();
    for (_, _, body) in unit.all_bodies() {
        if let Place::Chunks(set) = &body.place {
            ChunkReference::archived(set.id).put(batch, at);
        }
    }
}

/// The page names some chunks no more: they are collected when nobody can be reading them, or with their revision when
/// that is erased.
pub(super) fn let_go<'s>(
    batch: &mut Batch,
    page: &Page,
    gone: impl Iterator<Item = &'s (Revision, ChunkSet)>,
    now: Timestamp,
) -> Vec<Batch> {
    gone.map(|(rev, set)| ChunkStore::release(batch, page, set.id, Some(*rev), now)).collect()
}
