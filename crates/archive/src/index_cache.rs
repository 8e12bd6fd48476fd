//! A cache of what is known of pages: their indexes, and whether all their rows are in blocks.

use std::{num::NonZeroUsize, sync::Arc};

use crate::format::Positions;
use rashomon_records::{Error, INDEX_PAGE_ROWS, Result, schemas::ARCHIVE_INDEX};
use rashomon_tables::{
    Error as StoreError, ReadFrom, Scan, TableStore, Value, VersionedCache, VersionedRead, Walk, first_keys,
};

use super::{
    index::{IndexRow, index_from},
    part::archived_tables,
};

/// The maximum size of the index rows in memory, of all pages together.
const MAX_CACHED_BYTES: u64 = 8 << 20;

/// The approximate memory that an index row takes without its positions.
const ROW_BYTES: usize = 512;

/// The rows that are read first. A page with more rows is not sealed, or has many index rows.
const FEW_ROWS: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");
const FEW_BYTES: usize = 4 << 10;

/// An index with more rows is kept by a walk through many pages, too.
const MANY_INDEX_ROWS: usize = 4;

/// The number of result pages that are read to learn whether a page is sealed. A page with more rows counts as one that is
/// not.
const MAX_WALKS: usize = 8;

/// Caches what is known of pages, since one read of a page searches the index several times. Caches nothing if
/// the store has no partition versions.
///
/// A cached state is used only if no commit has changed the page since, and no commit is in progress. So the cached state
/// is always the one that the store would return.
#[derive(Debug)]
pub(super) struct IndexCache(VersionedCache<Vec<Value>, PageState>);

/// What is known of a page at one version of its partition.
#[derive(Debug, Clone)]
pub(super) struct PageState {
    /// `None` if it has to be read: the tables have rows of the page.
    pub(super) index: Option<Arc<[IndexRow]>>,
    /// Whether the tables have no rows that blocks can have. Then a reader need not ask them.
    pub(super) is_sealed: bool,
}

/// The size of the text in a part of a partition's key.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        _ => 0,
    }
}

impl IndexCache {
    pub(super) fn new() -> Self {
        Self(VersionedCache::new(MAX_CACHED_BYTES))
    }

    fn insert(&self, read: VersionedRead<'_>, partition: &[Value], state: PageState) {
        let key: usize = partition.iter().map(|value| size_of::<Value>() + text_bytes(value)).sum();
        let index = state.index.as_deref().unwrap_or_default();
        let positions = index.iter().filter_map(|row| row.positions.as_ref());
        let positions: usize = positions.map(Positions::memory).sum();
        let bytes = (index.len() + 1) * ROW_BYTES + positions + key;
        self.0.insert(read, partition.to_vec(), state, bytes);
    }

    /// Returns the highest revision that a block of the page may have. In a store without partition versions, and if a
    /// row of the index is damaged, reads only the first key of the index, which has the highest revision.
    pub(super) async fn highest(
        &self,
        store: &dyn TableStore,
        partition: &[Value],
        read_from: ReadFrom,
    ) -> Result<Option<i64>> {
        if store.partition_versions().is_some() {
            match self.index_of(store, partition, read_from).await {
                Ok(index) => return Ok(index.iter().map(|row| row.revs.1.get()).max()),
                Err(Error::Store(StoreError::Corrupt(_))) => {}
                Err(error) => return Err(error),
            }
        }
        let scan = Scan { read_from, ..Scan::new(partition.to_vec(), NonZeroUsize::MIN) };
        let keys = first_keys(store, &ARCHIVE_INDEX, scan).await?;
        let last_revs = keys.iter().filter_map(|key| match key.clustering.first() {
            Some(Value::Int(last_rev)) => Some(*last_rev),
            _ => None,
        });
        Ok(last_revs.max())
    }

    /// Returns the index of the page that has this partition. If the index is not in memory, reads it from
    /// the replicas that `read_from` names.
    pub(super) async fn index_of(
        &self,
        store: &dyn TableStore,
        partition: &[Value],
        read_from: ReadFrom,
    ) -> Result<Arc<[IndexRow]>> {
        let read = begin_read(store, partition);
        let state = self.state(store, partition).await?;
        let is_known = state.is_some();
        if let Some(index) = state.and_then(|state| state.index) {
            return Ok(index);
        }
        let index: Arc<[IndexRow]> = index_from(store, partition, read_from).await?.into();
        if let Some(read) = read.filter(|_| is_known) {
            self.keep_index(read, partition, Arc::clone(&index));
        }
        Ok(index)
    }

    /// Keeps the index of a page whose tables have rows, unless a commit has changed the page since the read began: before
    /// that of its state.
    pub(super) fn keep_index(&self, read: VersionedRead<'_>, partition: &[Value], index: Arc<[IndexRow]>) {
        self.insert(read, partition, PageState { index: Some(index), is_sealed: false });
    }

    /// Returns what is known of the page that has this partition, and reads it if necessary. `None` if the store has no
    /// partition versions, or a commit changes the page.
    pub(super) async fn state(
        &self,
        store: &dyn TableStore,
        partition: &[Value],
    ) -> Result<Option<PageState>> {
        self.state_kept_if(store, partition, |_| true).await
    }

    /// Like [`Self::state`], but keeps nothing of a sealed page with a short index: for walks through many pages, most of
    /// which are read once.
    pub(super) async fn state_of_walked(
        &self,
        store: &dyn TableStore,
        partition: &[Value],
    ) -> Result<Option<PageState>> {
        // If the page is not sealed, its rows are read next, and each of these reads needs the state. A long history is
        // read in parts.
        let is_long = |index: &Arc<[IndexRow]>| index.len() > MANY_INDEX_ROWS;
        let is_kept = |state: &PageState| !state.is_sealed || state.index.as_ref().is_some_and(is_long);
        self.state_kept_if(store, partition, is_kept).await
    }

    async fn state_kept_if(
        &self,
        store: &dyn TableStore,
        partition: &[Value],
        is_kept: impl FnOnce(&PageState) -> bool,
    ) -> Result<Option<PageState>> {
        let Some(read) = begin_read(store, partition) else { return Ok(None) };
        if let Some(known) = self.0.get_for(&read, &partition.to_vec()) {
            return Ok(Some(known));
        }
        let state = Box::pin(read_state(store, partition)).await?;
        if !read.is_current() {
            return Ok(None);
        }
        // Another reader may have kept the index of this version meanwhile, which is more than this state.
        if is_kept(&state) && self.0.get_for(&read, &partition.to_vec()).is_none() {
            self.insert(read, partition, state.clone());
        }
        Ok(Some(state))
    }

    /// Returns what is known of the page that has this partition, if it is in memory.
    pub(super) fn cached(&self, store: &dyn TableStore, partition: &[Value]) -> Option<PageState> {
        self.0.get_for(&begin_read(store, partition)?, &partition.to_vec())
    }
}

/// Reads the state of a page. If the page has few rows, this takes one call.
async fn read_state(store: &dyn TableStore, partition: &[Value]) -> Result<PageState> {
    let tables = archived_tables().into_iter().chain([&*ARCHIVE_INDEX]).collect();
    let mut walk = Walk { max_bytes: FEW_BYTES, ..Walk::new(tables, FEW_ROWS).within(partition.to_vec()) };
    let mut index = Vec::new();
    for _ in 0..MAX_WALKS {
        let page = match store.walk(walk.clone()).await {
            // A damaged row must not hide the others.
            Err(StoreError::Corrupt(_)) => break,
            page => page?,
        };
        let (of_index, others): (Vec<_>, Vec<_>) =
            page.rows.iter().partition(|(table, _)| table.name() == ARCHIVE_INDEX.name());
        for (_, row) in of_index {
            index.push(IndexRow::from_row(row)?);
        }
        match page.next {
            None => return Ok(PageState { index: Some(index.into()), is_sealed: others.is_empty() }),
            // The page has many rows, and is not sealed.
            Some(_) if !others.is_empty() => break,
            // The index has many rows, as that of a page with a long history, so far without others.
            next => {
                walk =
                    Walk { after: next, limit: INDEX_PAGE_ROWS, max_bytes: Scan::DEFAULT_MAX_BYTES, ..walk }
            }
        }
    }
    Ok(PageState { index: None, is_sealed: false })
}

/// Begins a read of a partition. `None` if the store has no partition versions, or a commit is in progress.
pub(super) fn begin_read<'s>(store: &'s dyn TableStore, partition: &[Value]) -> Option<VersionedRead<'s>> {
    store.partition_versions().and_then(|versions| versions.begin_read(partition))
}
