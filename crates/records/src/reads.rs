//! Reads that several parts of the service need: of renders, and of the existence of pages and tids.

use rashomon_tables::{ClusteringRange, Cursor, Error as StoreError, Scan};

use crate::{
    Error, INDEX_PAGE_ROWS, Missing, Page, Records, Result, Revision, Tid,
    rows::{RenderKey, RenderRow, RowKey, TidRow, TypedRow, partition_of},
    schemas::{RENDERS, REVISIONS_BY_TID},
};

impl Records {
    /// Returns the key of the latest render of a page: the newest render of the highest revision.
    pub async fn latest(&self, page: &Page) -> Result<Option<RenderKey>> {
        let row = self.first(&RENDERS, page, ClusteringRange::all()).await?;
        Ok(row.and_then(|row| RenderKey::read(&row.key)))
    }

    /// Returns the next renders in a range, the highest first, and the cursor of the rest.
    pub async fn renders(
        &self,
        page: &Page,
        range: ClusteringRange,
        after: Option<Cursor>,
    ) -> Result<(Vec<RenderRow>, Option<Cursor>)> {
        let scan = Scan::new(partition_of(page), INDEX_PAGE_ROWS).range(range).after(after);
        let rows = self.scan(&RENDERS, scan).await?;
        Ok((rows.items.iter().map(RenderRow::from_row).collect::<Result<_>>()?, rows.next))
    }

    /// Whether the index by tid has the render.
    pub async fn has_tid(&self, page: &Page, tid: Tid) -> Result<bool> {
        Ok(self.get(&REVISIONS_BY_TID, page, vec![tid.as_time_uuid().into()]).await?.is_some())
    }

    /// Returns the revision of a render. Fails with `Missing::Render` if the page has no such render.
    pub async fn revision_of(&self, page: &Page, tid: Tid) -> Result<Revision> {
        let row = self.get(&REVISIONS_BY_TID, page, vec![tid.as_time_uuid().into()]).await?;
        let row = row.ok_or(Error::NotFound(Missing::Render(tid)))?;
        TidRow::from_row(&row).map(|row| row.rev)
    }

    /// Fails with `Missing::Page` unless the page has a render.
    pub async fn check_exists(&self, page: &Page) -> Result<()> {
        let latest = self.first(&RENDERS, page, ClusteringRange::all()).await?;
        latest.map(drop).ok_or(Error::NotFound(Missing::Page))
    }

    /// Returns the error for a missing revision: `Missing::Page` if the page does not exist, else `Missing::Revision`.
    /// If the store fails, returns the error of the store.
    pub async fn no_revision(&self, page: &Page, rev: Revision) -> Result<Error> {
        Ok(match self.check_exists(page).await {
            Ok(()) => Error::NotFound(Missing::Revision(rev)),
            Err(error) => error,
        })
    }

    /// Logs and returns the error for a page whose index names rows that repeated reads do not find.
    #[must_use]
    pub fn incomplete(&self, page: &Page) -> Error {
        tracing::error!(domain = %page.domain, title = %page.title, "index entry without a stored revision");
        let what =
            format!("page {} of {} is stored incompletely: run `rashomon verify`", page.title, page.domain);
        StoreError::Corrupt(what).into()
    }
}
