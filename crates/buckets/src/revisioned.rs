//! Buckets of revisions.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rashomon_clock::{Clock, Timestamp};
use rashomon_tables::TableStore;

use crate::{
    Definitions, Expect, ImportOutcome, ImportRevision, Listing, NewRender, NewRevision, Page, Property,
    PropertyInfo, PropertyName, PropertySink, PropertyVersion, Render, Result, Revision, RevisionDetail,
    RevisionSummary, Staged, StoredRevision, Tid, Written,
};

/// The settings of the revisioned buckets.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What is known of properties beforehand.
    pub definitions: Definitions,
    /// The bytes of newest properties that are kept in memory, where the store allows it.
    pub cache_bytes: u64,
    /// How far in the future the time given for a write may lie.
    pub skew: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { definitions: Definitions::default(), cache_bytes: 256 << 20, skew: Duration::from_secs(300) }
    }
}

/// All revisioned buckets of a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Revisioned {
    _private: (),
}

impl Revisioned {
    /// Opens the buckets of a store, and makes the tables that are missing. `seed` is random: of two processes
    /// each has its own.
    pub async fn open(
        _store: Arc<dyn TableStore>,
        _clock: Arc<dyn Clock>,
        _settings: Settings,
        _seed: u64,
    ) -> Result<Self> {
        todo!()
    }

    /// The settings that it was opened with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        todo!()
    }

    // ---- reading

    /// A property of the newest render of the latest revision. Served from memory where it can be: the same
    /// `Arc` is then given again and again, until the page changes.
    pub async fn latest(&self, _page: &Page, _name: &PropertyName) -> Result<Arc<Property>> {
        todo!()
    }

    /// The newest render of the latest revision.
    pub async fn latest_render(&self, _page: &Page) -> Result<Render> {
        todo!()
    }

    /// A property of a render.
    pub async fn property(&self, _page: &Page, _tid: Tid, _name: &PropertyName) -> Result<Property> {
        todo!()
    }

    /// A render.
    pub async fn render(&self, _page: &Page, _tid: Tid) -> Result<Render> {
        todo!()
    }

    /// The newest render of a revision.
    pub async fn newest_render(&self, _page: &Page, _rev: Revision) -> Result<Render> {
        todo!()
    }

    /// The render of the page as it was at a time: of the revision with the greatest timestamp at or before
    /// it, the newest render at or before it, else its oldest. `BeforeFirst` where there was no page yet.
    pub async fn at_time(&self, _page: &Page, _time: Timestamp) -> Result<Render> {
        todo!()
    }

    /// A revision with all its renders.
    pub async fn revision(&self, _page: &Page, _rev: Revision) -> Result<RevisionDetail> {
        todo!()
    }

    /// The page's revisions, latest first, from the one below `after` on. `Page` where there are none at all.
    pub async fn revisions(
        &self,
        _page: &Page,
        _after: Option<Revision>,
        _limit: usize,
    ) -> Result<Listing<RevisionSummary, Revision>> {
        todo!()
    }

    /// The state of the page at a time (`None`: now) among the revisions that have the property, for RFC 7089.
    /// Before the first, the first.
    pub async fn memento(&self, _page: &Page, _name: &PropertyName, _time: Option<Timestamp>) -> Result<PropertyVersion> {
        todo!()
    }

    /// All states of the page that [`Self::memento`] can select, oldest first, from the one after `after` on.
    pub async fn mementos(
        &self,
        _page: &Page,
        _name: &PropertyName,
        _after: Option<PropertyVersion>,
        _limit: usize,
    ) -> Result<Listing<PropertyVersion, PropertyVersion>> {
        todo!()
    }

    // ---- writing

    /// Starts receiving the body of a property.
    #[must_use]
    pub fn stage(&self, _page: &Page, _name: &PropertyName) -> PropertySink {
        todo!()
    }

    /// Receives a body that is in memory already.
    pub async fn stage_bytes(&self, _page: &Page, _name: &PropertyName, _body: &[u8]) -> Result<Staged> {
        todo!()
    }

    /// Stores a new revision with its first render.
    pub async fn put_revision(&self, _page: &Page, _new: NewRevision) -> Result<Written> {
        todo!()
    }

    /// Stores a new render of a revision that stands.
    pub async fn put_render(&self, _page: &Page, _new: NewRender) -> Result<Written> {
        todo!()
    }

    /// Replaces the bytes and the type of a property in place, and gives its new version.
    pub async fn rewrite(
        &self,
        _page: &Page,
        _tid: Tid,
        _property: crate::NewProperty,
        _expect: Expect,
    ) -> Result<(PropertyVersion, PropertyInfo)> {
        todo!()
    }

    // ---- whole histories

    /// Stores revisions of one page as they are, and says of each, in their order, what became of it.
    pub async fn import(&self, _page: &Page, _revisions: Vec<ImportRevision>) -> Result<Vec<ImportOutcome>> {
        todo!()
    }

    /// The page's revisions, lowest first, from the one above `after` on, at most `limit` and about 4 MiB.
    pub async fn history(
        &self,
        _page: &Page,
        _after: Option<Revision>,
        _limit: usize,
    ) -> Result<Listing<StoredRevision, Revision>> {
        todo!()
    }

    /// The bodies of one property that belongs to revisions, for the revisions from `first` to `last`, at most
    /// about 4 MiB of them: what a whole history is read with. Go on from the last that was given.
    pub async fn bodies(
        &self,
        _page: &Page,
        _name: &PropertyName,
        _first: Revision,
        _last: Revision,
    ) -> Result<BTreeMap<Revision, Property>> {
        todo!()
    }
}
