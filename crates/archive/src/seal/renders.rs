//! Reads the renders of successive revisions, with bounded memory.

use std::collections::VecDeque;

use rashomon_tables::{ClusteringRange, Cursor, Error as StoreError, Key, Row, Scan, TableStore};

use crate::format::{MAX_UNIT_ENTRIES, MAX_UNIT_VALUE_BYTES};
use rashomon_records::{
    Error, INDEX_PAGE_ROWS, Page, Result, Revision,
    rows::{RenderKey, RenderRow, RowKey, partition_of},
    schemas::RENDERS,
};

/// The result of reading the renders of one revision.
#[derive(Debug)]
pub(super) enum RevisionRenders {
    /// All renders, the oldest first.
    All(Vec<RenderRow>),
    /// The revision has more renders, or more metadata of renders, than a block takes of one revision. Not
    /// all renders were read.
    TooMany,
    /// The row of a render is damaged. Contains a description of the damage.
    Damaged(String),
}

/// The reason for [`RevisionRenders::TooMany`].
pub(super) const TOO_MANY_RENDERS: &str =
    "it has more renders, or more metadata of renders, than a block takes of one revision";

/// Reads the renders of revisions. The caller requests each revision once, in rising order.
pub(super) struct RenderReader<'a> {
    store: &'a dyn TableStore,
    page: &'a Page,
    /// The range that is not read yet.
    range: ClusteringRange,
    after: Option<Cursor>,
    is_done: bool,
    rows: VecDeque<Row>,
    /// Revisions with a damaged row, each with a description of the damage.
    damaged: VecDeque<(Revision, String)>,
}

impl<'a> RenderReader<'a> {
    /// Creates a reader for the revisions in a range.
    pub(super) fn new(store: &'a dyn TableStore, page: &'a Page, range: ClusteringRange) -> Self {
        let (rows, damaged) = (VecDeque::new(), VecDeque::new());
        Self { store, page, range, after: None, is_done: false, rows, damaged }
    }

    /// Returns the renders of a revision. Skips the renders of lower revisions.
    pub(super) async fn of(&mut self, rev: Revision) -> Result<RevisionRenders> {
        let (mut renders, mut bytes) = (Vec::new(), 0);
        loop {
            while let Some(row) = self.rows.front() {
                let of = rev_of(&row.key);
                if of.is_some_and(|of| of > rev) {
                    return Ok(self.finish(rev, renders));
                }
                let Some(row) = self.rows.pop_front() else { break };
                if of != Some(rev) {
                    continue;
                }
                bytes += row.size();
                if renders.len() >= MAX_UNIT_ENTRIES || bytes > MAX_UNIT_VALUE_BYTES {
                    self.skip(rev);
                    return Ok(RevisionRenders::TooMany);
                }
                match RenderRow::from_row(&row) {
                    Ok(render) => renders.push(render),
                    Err(Error::Store(StoreError::Corrupt(what))) => self.damaged.push_front((rev, what)),
                    Err(error) => return Err(error),
                }
            }
            if self.is_done {
                return Ok(self.finish(rev, renders));
            }
            self.fetch().await?;
        }
    }

    /// Skips the renders of this revision and of lower ones.
    pub(super) fn skip(&mut self, rev: Revision) {
        if self.rows.back().and_then(|row| rev_of(&row.key)).is_some_and(|last| last > rev) {
            self.rows.retain(|row| rev_of(&row.key).is_some_and(|of| of > rev));
        } else {
            self.rows.clear();
            self.range = self.range.clone().above(rev.get());
            self.after = None;
        }
        self.damaged.retain(|(of, _)| *of > rev);
    }

    fn finish(&mut self, rev: Revision, renders: Vec<RenderRow>) -> RevisionRenders {
        let found = self.damaged.iter().position(|(of, _)| *of == rev);
        let what = found.and_then(|at| self.damaged.remove(at));
        self.damaged.retain(|(of, _)| *of > rev);
        what.map_or(RevisionRenders::All(renders), |(_, what)| RevisionRenders::Damaged(what))
    }

    async fn fetch(&mut self) -> Result<()> {
        let scan = Scan::new(partition_of(self.page), INDEX_PAGE_ROWS).range(self.range.clone()).reverse();
        let rows = self.store.scan(&RENDERS, scan.after(self.after.take()).reporting_damage()).await?;
        for row in rows.damaged {
            if let Some(rev) = rev_of(&row.key) {
                self.damaged.push_back((rev, row.reason));
            }
        }
        self.rows.extend(rows.items);
        (self.is_done, self.after) = (rows.next.is_none(), rows.next);
        Ok(())
    }
}

/// Returns the revision in the key of a render.
fn rev_of(key: &Key) -> Option<Revision> {
    RenderKey::read(key).map(|key| key.rev)
}
