//! The buckets over a store in memory, with a generator, and a clock that the test moves.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_pages::{
    Body, NewProperty, NewRevision, Page, Policy, Property, Result, Retention, RevisionStore, Settings, Tid,
};
use rashomon_tables::{Memory, Scan, TableStore};
use rashomon_upstream::generator::HttpGenerator;

use crate::{name, rev};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// A wiki whose superseded values are culled after a day.
#[derive(Debug)]
pub(crate) struct Wiki {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) buckets: RevisionStore,
    store: Arc<Memory>,
}

impl Wiki {
    pub(crate) async fn new(generator: HttpGenerator) -> Self {
        // 2026-01-01T00:00:00Z.
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_767_225_600_000_000)));
        let store = Arc::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
        let retention = Retention {
            policy: Some(Policy { delete_probability: 0.0, ..Policy::default() }),
            generator: Some(Arc::new(generator)),
            ..Retention::default()
        };
        let settings = Settings { retention, ..Settings::default() };
        let buckets = RevisionStore::open(store.clone(), clock.clone(), settings, 1).await.unwrap();
        Self { clock, buckets, store }
    }

    pub(crate) async fn put(&self, page: &Page, number: i64, bodies: &[(&str, &str)]) -> Tid {
        let mut properties = Vec::new();
        for (property, body) in bodies {
            let body = self.buckets.stage_bytes(page, &name(property), body.as_bytes()).await.unwrap();
            let other_headers = Default::default();
            properties.push(NewProperty { name: name(property), content_type: None, other_headers, body });
        }
        let new = NewRevision::new(rev(number), properties);
        self.buckets.put_revision(page, new).await.unwrap().tid
    }

    /// Lets two days pass, and culls all values that are eligible then.
    pub(crate) async fn cull(&self) {
        self.clock.advance(2 * DAY);
        let limit = NonZeroUsize::new(1000).unwrap();
        while self.buckets.maintenance().sweep(limit).await.unwrap().entries > 0 {}
    }

    /// Reads a property of a revision. Returns the tid of the render that has it, and the property.
    pub(crate) async fn read(&self, page: &Page, number: i64, property: &str) -> Result<(Tid, Property)> {
        let tid = self.buckets.newest_with(page, rev(number), &name(property)).await?;
        let property = self.buckets.property(page, tid, &name(property)).await?;
        Ok((tid, property))
    }

    /// The number of rows in the partitions of a page, over all tables.
    pub(crate) async fn rows(&self, page: &Page) -> usize {
        let partition: Vec<_> =
            [page.domain.as_str(), page.bucket.as_str(), page.title.as_str()].map(Into::into).into();
        let limit = NonZeroUsize::new(1000).unwrap();
        let mut count = 0;
        for table in rashomon_pages::schemas::all() {
            if table.partition().len() == partition.len() {
                let scan = Scan::new(partition.clone(), limit);
                count += self.store.scan(table, scan).await.map_or(0, |rows| rows.items.len());
            }
        }
        count
    }
}

/// The text of a property that has no chunks.
pub(crate) fn text(property: &Property) -> String {
    match &property.body {
        Body::Inline(body) => String::from_utf8(body.plain.to_vec()).unwrap(),
        Body::Chunked(_) => panic!("it is short"),
    }
}
