//! The archive, over each store: sealed revisions are read as before, rows are deleted only after their block
//! was read back, and an interruption loses nothing.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

mod batches;
mod bounds;
mod compaction;
pub(crate) mod damage;
mod damaged_rows;
mod erasing;
mod faults;
mod files;
mod histories;
mod idle;
mod large;
mod order;
mod policies;
mod reading;
mod sealing;
mod writing;

use std::{collections::BTreeMap, time::Duration};

use crate::support::{World, at, bytes, name, rev};
use rashomon_clock::Timestamp;
use rashomon_pages::{
    ArchiveSettings, BucketArchive, BucketName, DomainName, Page, Property, Revision, SealOptions,
    SealReport, Settings, StoredRevision, Tid, schemas,
};
use rashomon_tables::Schema;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// The tables whose rows are in blocks after a seal.
pub(crate) fn archived_tables() -> [&'static Schema; 6] {
    [
        &schemas::REVISIONS,
        &schemas::RENDERS,
        &schemas::REVISIONS_BY_TIME,
        &schemas::REVISIONS_BY_TID,
        &schemas::REVISION_CONTENT,
        &schemas::RENDER_CONTENT,
    ]
}

/// Settings with which revisions are sealed a day after they were superseded.
pub(crate) fn settings() -> Settings {
    let all = BucketArchive { after: DAY, ..BucketArchive::default() };
    let archive = Some(ArchiveSettings { all, ..ArchiveSettings::default() });
    Settings { archive, skew: Duration::from_secs(5), ..Settings::default() }
}

/// The same store and clock, after a restart with an archive.
pub(crate) async fn with_archive(world: World) -> World {
    world.restarted_with(settings()).await
}

impl World {
    /// Seals everything that may be sealed.
    pub(crate) async fn seal(&self) -> SealReport {
        self.try_seal().await.unwrap()
    }

    pub(crate) async fn try_seal(&self) -> rashomon_pages::Result<SealReport> {
        let domain = DomainName::new("enwiki").unwrap();
        self.buckets
            .maintenance()
            .seal(&domain, &BucketName::page(), SealOptions::default(), &mut |_| {})
            .await
    }

    /// Seals everything that may be sealed, and then writes to sealed revisions of the page. On return, these
    /// writes are old enough to be sealed too.
    pub(crate) async fn seal_and_write_again(&self, page: &Page) {
        self.seal().await;
        self.put_render(page, 2, &[("html", "<p>late</p>")]).await.unwrap();
        let third = self.buckets.revision(page, rev(3)).await.unwrap().renders[0].tid;
        self.rewrite(page, third, "html", "<p>in other words</p>").await.unwrap();
        self.pass(seal_delay());
    }

    /// The number of revisions in the tables, of all pages. Sealed revisions are not counted.
    pub(crate) async fn revisions_in_tables(&self) -> usize {
        self.rows(&schemas::REVISIONS).await.len()
    }

    /// Writes revisions of wikitext and html to a page, an hour apart.
    pub(crate) async fn edit(&self, page: &Page, revisions: std::ops::RangeInclusive<i64>) -> Vec<Tid> {
        let mut tids = Vec::new();
        for number in revisions {
            let (wikitext, html) = (text(number), format!("<p>{}</p>", text(number)));
            let written = self.put_revision(page, number, &[("wikitext", &wikitext), ("html", &html)]).await;
            tids.push(written.unwrap().tid);
            self.pass(HOUR);
        }
        tids
    }

    /// Everything that can be read of a page, as text.
    pub(crate) async fn read_everything(&self, page: &Page) -> Vec<String> {
        let mut all = Vec::new();
        for limit in [1, 2, 3, 100] {
            all.push(format!("{:?}", self.listing(page, limit).await));
            all.extend(self.whole_history(page, limit).await);
        }
        for revision in self.listing(page, 100).await {
            let rev = rev(revision.0);
            let detail = self.buckets.revision(page, rev).await.unwrap();
            all.push(format!("{rev} {:?} {:?}", detail.record, detail.renders));
            all.push(format!("{:?}", self.buckets.newest_render(page, rev).await.unwrap()));
            let time = detail.record.timestamp;
            for time in [-1, 0, 1].map(|more| Timestamp::from_micros(time.as_micros() + more)) {
                all.push(format!(
                    "{:?}",
                    self.buckets.at_time(page, time).await.map(|render| render.tid).ok()
                ));
            }
            for render in detail.renders {
                all.push(format!("{:?}", self.buckets.render(page, render.tid).await.unwrap()));
                for name in render.properties.keys() {
                    let property = self.buckets.property(page, render.tid, name).await.unwrap();
                    all.push(shown(&property).await);
                }
            }
        }
        for property in ["wikitext", "html"] {
            let latest = self.buckets.latest(page, &name(property)).await;
            all.push(format!("{:?}", latest.as_ref().map(|latest| latest.version).ok()));
        }
        let (mut bodies, mut first) = (BTreeMap::new(), Revision::MIN);
        loop {
            let some = self.buckets.bodies(page, &name("wikitext"), first, Revision::MAX).await.unwrap();
            let Some((last, _)) = some.last_key_value() else { break };
            first = last.next().unwrap();
            for (rev, property) in some {
                bodies.insert(rev, shown(&property).await);
            }
        }
        all.extend(bodies.into_iter().map(|(rev, shown)| format!("{rev} {shown}")));
        all
    }

    /// The revision list of the page, read `limit` lines at a time.
    async fn listing(&self, page: &Page, limit: usize) -> Vec<(i64, Tid, u64, u64, bool)> {
        let (mut lines, mut after) = (Vec::new(), None);
        loop {
            let listing = self.buckets.revisions(page, after, limit).await.unwrap();
            assert!(listing.items.len() <= limit);
            let line = |line: &rashomon_pages::RevisionSummary| {
                (line.record.rev.get(), line.tid, line.renders, line.size, line.stored)
            };
            lines.extend(listing.items.iter().map(line));
            after = listing.next;
            if after.is_none() {
                return lines;
            }
        }
    }

    async fn whole_history(&self, page: &Page, limit: usize) -> Vec<String> {
        let (mut lines, mut after) = (Vec::new(), None);
        loop {
            let history = self.buckets.history(page, after, limit).await.unwrap();
            for mut revision in history.items {
                self.check_bodies(page, &mut revision).await;
                lines.push(format!("{revision:?}"));
            }
            after = history.next;
            if after.is_none() {
                return lines;
            }
        }
    }

    /// Compares the bodies that came with a revision with reads of the single properties, and removes them.
    async fn check_bodies(&self, page: &Page, revision: &mut StoredRevision) {
        let newest = revision.renders.last().map(|render| render.tid);
        let is_stored = |of: &Option<Tid>| match of {
            None => revision.stored,
            Some(tid) => revision.renders.iter().any(|render| render.tid == *tid && render.stored),
        };
        let bodies = std::mem::take(&mut revision.bodies);
        for ((of, name), body) in bodies.into_iter().filter(|((of, _), _)| is_stored(of)) {
            let property = self.buckets.property(page, of.or(newest).unwrap(), &name).await.unwrap();
            assert_eq!(body.whole().await.unwrap(), bytes(&property).await, "{name} of {of:?}");
        }
    }
}

/// The text of a revision: the text of its predecessor, and one more line.
pub(crate) fn text(number: i64) -> String {
    (1..=number).map(|number| format!("Line {number} of the page, as somebody wrote it.\n")).collect()
}

/// A property with its version, its record and its bytes, as text.
async fn shown(property: &Property) -> String {
    let bytes = bytes(property).await;
    format!("{:?} {:?} {}", property.version, property.info, String::from_utf8_lossy(&bytes))
}

/// A time that is long enough for a superseded revision to become eligible for a seal under [`settings`].
pub(crate) fn seal_delay() -> Duration {
    2 * DAY
}

/// The time `number` hours after the start of the tests.
pub(crate) fn hour(number: i64) -> Timestamp {
    at(number * 3600)
}
