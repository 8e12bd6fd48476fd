//! Repair: restores damaged and missing rows whose content follows from undamaged rows.
//!
//! Each repaired row is a separate write, so another repair can continue an interrupted one. Damage that
//! cannot be repaired from an undamaged row of the same page or entry is left unchanged, and `verify` reports
//! it.

use std::{collections::BTreeSet, fmt::Display, sync::Arc};

use crate::{Error, Page, Result, Revision, RevisionStore, Tid};
use async_recursion::async_recursion as boxed;
use rashomon_entries::{KeyValueStore, Settings as KeyValueSettings};
use rashomon_records::{
    INDEX_PAGE_ROWS, Records,
    catalog::entries,
    content::{BodyRow, ChunkSet, Stored},
    rows::{
        BodyKey, ChunkReference, RenderRow, RevisionRow, RowKey, TidRow, TimeKey, TitleKey, TypedRow,
        page_of, partition_of,
    },
    schemas::{
        CHUNK_REFERENCES, DOMAINS, RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS, REVISIONS_BY_TID,
        REVISIONS_BY_TIME, TITLES,
    },
};
use rashomon_tables::{Batch, Error as StoreError, Key, Mutation, Row, Scan, Schema, TableStore as _, Value};

/// The maximum number of repairs that a report describes. Further repairs are only counted.
const MAX_DESCRIBED_REPAIRS: usize = 1000;

/// The report of a repair, or of a dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// The first repairs, each in a sentence.
    pub repairs: Vec<String>,
    /// The number of further repairs, which are not described.
    pub more_repairs: u64,
}

impl RepairReport {
    fn add(&mut self, page: &Page, what: impl Display) {
        let Page { domain, bucket, title } = page;
        self.describe(format!("domain {domain}, bucket {bucket}, title {title}: {what}"));
    }

    fn describe(&mut self, repair: String) {
        if self.repairs.len() < MAX_DESCRIBED_REPAIRS {
            self.repairs.push(repair);
        } else {
            self.more_repairs += 1;
        }
    }
}

/// The result of reading a row.
enum RowState<T> {
    /// An undamaged row.
    Whole(T),
    /// The row is missing or damaged. Contains the word "missing" or "damaged", for the report.
    Lost(&'static str),
}

impl<T> RowState<T> {
    fn of(result: Result<Option<T>>) -> Result<Self> {
        match result {
            Ok(Some(row)) => Ok(Self::Whole(row)),
            Ok(None) => Ok(Self::Lost("missing")),
            Err(Error::Store(StoreError::Corrupt(_))) => Ok(Self::Lost("damaged")),
            Err(error) => Err(error),
        }
    }
}

/// Restores rows that can be derived from undamaged rows: the catalog entries of titles and domains, the
/// indexes of revisions by time and by tid, damaged references to chunks, and missing keys in the indexes of
/// key-value buckets. Also removes damaged catalog rows of titles without a page.
///
/// If `dry_run` is set, writes nothing, and returns the same report. No other process or task may write
/// meanwhile. A repair may be interrupted at any point.
#[boxed(?Send)]
pub async fn repair(store: &RevisionStore, dry_run: bool) -> Result<RepairReport> {
    let mut report = RepairReport::default();
    let records = &**store.parts().records;
    let (mut restored, mut partitions) = (BTreeSet::new(), records.partitions(&REVISIONS, INDEX_PAGE_ROWS));
    while let Some(partition) = partitions.next().await? {
        let Some(page) = page_of(&partition) else { continue };
        let (restored, report) = (&mut restored, &mut report);
        Repair { records, page: &page, dry_run, restored, report }.repair_page().await?;
    }
    remove_titles_of_no_page(records, dry_run, &mut report).await?;
    let entries = KeyValueStore::new(Arc::clone(store.parts().records), KeyValueSettings::default());
    entries.repair_index(dry_run, &mut |repair| report.describe(repair)).await?;
    Ok(report)
}

/// Removes damaged rows of titles without a page. Either the key of such a row is damaged, or the page was
/// never written.
async fn remove_titles_of_no_page(records: &Records, dry_run: bool, report: &mut RepairReport) -> Result<()> {
    let mut partitions = records.partitions(&TITLES, INDEX_PAGE_ROWS);
    while let Some(partition) = partitions.next().await? {
        let mut scan = Scan::new(partition.clone(), INDEX_PAGE_ROWS).reporting_damage();
        loop {
            let rows = records.store.scan(&TITLES, scan.clone()).await?;
            for row in rows.damaged {
                let [Value::Text(domain), Value::Text(bucket), _] = &partition[..] else { continue };
                let Some(TitleKey { title }) = RowKey::read(&row.key) else { continue };
                let Some(page) = Page::parse(domain, bucket, title.as_str()) else { continue };
                if records.catalog.is_stored(&page).await? {
                    continue;
                }
                report.add(&page, "removed the damaged catalog row of a title without a page");
                if !dry_run {
                    let mut batch = Batch::new(partition.clone());
                    batch.delete(&TITLES, row.key.clustering, rashomon_clock::Timestamp::MAX);
                    records.store.write(Vec::new(), batch).await?;
                }
            }
            scan.after = rows.next;
            if scan.after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

/// The repair of a page.
struct Repair<'a> {
    records: &'a Records,
    page: &'a Page,
    dry_run: bool,
    /// The keys of the domain rows that were restored. A domain may have many pages, and its row is restored
    /// only once.
    restored: &'a mut BTreeSet<Key>,
    report: &'a mut RepairReport,
}

impl Repair<'_> {
    async fn repair_page(&mut self) -> Result<()> {
        let has_undamaged_revision = self.repair_index_by_time().await?;
        self.repair_index_by_tid().await?;
        self.repair_references(&REVISION_CONTENT).await?;
        self.repair_references(&RENDER_CONTENT).await?;
        if has_undamaged_revision {
            self.repair_catalog().await?;
        }
        Ok(())
    }

    async fn write(&mut self, batches: Vec<Batch>, what: impl Display) -> Result<()> {
        self.report.add(self.page, what);
        if self.dry_run {
            return Ok(());
        }
        for batch in batches {
            self.records.store.write(Vec::new(), batch).await?;
        }
        Ok(())
    }

    /// Restores the catalog entries of the page: the entry of its title, and the entry of its domain.
    async fn repair_catalog(&mut self) -> Result<()> {
        let names = ["the catalog row of its title", "the catalog row of its domain"];
        for (batch, name) in entries(self.page, self.records.clock.now()).into_iter().zip(names) {
            for mutation in &batch.mutations {
                let Mutation::Put { table, clustering, .. } = mutation else { continue };
                let key = Key::new(batch.partition.clone(), clustering.clone());
                if self.restored.contains(&key) {
                    continue;
                }
                let found = self.records.store.get(table, &key).await.map_err(Error::from);
                if let RowState::Lost(how) = RowState::of(found)? {
                    self.write(vec![batch.clone()], format_args!("restored {name}, which was {how}")).await?;
                    if table.name() == DOMAINS.name() {
                        self.restored.insert(key);
                    }
                }
            }
        }
        Ok(())
    }

    /// Restores the index of revisions by time. Returns whether any revision of the page is undamaged.
    async fn repair_index_by_time(&mut self) -> Result<bool> {
        let (mut has_undamaged_revision, mut after) = (false, None);
        while let Some(rows) = self.records.next_rows(&REVISIONS, self.page, &mut after).await? {
            for row in &rows {
                let Ok(row) = RevisionRow::from_row(row) else { continue };
                has_undamaged_revision = true;
                let rev = row.record.rev;
                let key = TimeKey { timestamp: row.record.timestamp, rev }.clustering();
                self.restore(
                    &REVISIONS_BY_TIME,
                    key,
                    Vec::new(),
                    |_| true,
                    || format!("the index row of revision {rev} by time"),
                )
                .await?;
            }
        }
        Ok(has_undamaged_revision)
    }

    /// Restores the index of revisions by the tids of their renders.
    async fn repair_index_by_tid(&mut self) -> Result<()> {
        let mut after = None;
        while let Some(rows) = self.records.next_rows(&RENDERS, self.page, &mut after).await? {
            for row in &rows {
                let Ok(RenderRow { rev, tid, .. }) = RenderRow::from_row(row) else { continue };
                let row = TidRow { tid, rev };
                self.restore(
                    &REVISIONS_BY_TID,
                    row.clustering(),
                    row.values(),
                    |row| TidRow::read(row).is_some(),
                    || format!("the index row of render {tid} of revision {rev} by tid"),
                )
                .await?;
            }
        }
        Ok(())
    }

    /// Restores damaged references to the chunks of the bodies in a content table.
    async fn repair_references(&mut self, table: &'static Schema) -> Result<()> {
        let mut after = None;
        while let Some(rows) = self.records.next_rows(table, self.page, &mut after).await? {
            for row in &rows {
                let Ok(BodyRow { stored: Stored::Chunks(set), .. }) = BodyRow::from_row(row) else {
                    continue;
                };
                let Some(BodyKey { rev, tid, .. }) = BodyKey::read(&row.key) else { continue };
                self.repair_reference(&set, rev, tid).await?;
            }
        }
        Ok(())
    }

    async fn repair_reference(&mut self, set: &ChunkSet, rev: Revision, tid: Option<Tid>) -> Result<()> {
        // Only a damaged reference is restored. The content of a missing reference does not follow from the
        // body: for example, the reference for a body in a block names no revision.
        let key = vec![set.name()];
        let found = self.records.get(&CHUNK_REFERENCES, self.page, key.clone()).await;
        if let Err(Error::Store(StoreError::Corrupt(_))) = found {
            let row = ChunkReference::of_body(set.id, rev, tid);
            let what = || format!("the reference to the chunks of a body of revision {rev}");
            self.restore(&CHUNK_REFERENCES, key, row.values(), |_| true, what).await?;
        }
        Ok(())
    }

    /// Writes a row of the page, unless the row exists and `is_right` returns true for it.
    async fn restore(
        &mut self,
        table: &'static Schema,
        key: Vec<Value>,
        values: Vec<Option<Value>>,
        is_right: impl Fn(&Row) -> bool,
        what: impl Fn() -> String,
    ) -> Result<()> {
        let how = match RowState::of(self.records.get(table, self.page, key.clone()).await)? {
            RowState::Whole(row) if is_right(&row) => return Ok(()),
            RowState::Whole(_) => "unreadable",
            RowState::Lost(how) => how,
        };
        let mut batch = Batch::new(partition_of(self.page));
        batch.put(table, key, values, self.records.clock.now());
        self.write(vec![batch], format_args!("restored {}, which was {how}", what())).await
    }
}
