//! Superseded values are culled after their time, and not before: the promises R1 to R8 of `docs/retention.md`,
//! over each store.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

mod archived;
mod clocks;
mod culling;
mod erasing;
mod further_buckets;
mod generating;
mod keeping;
mod late;
mod lost_lease;
mod one_row;
mod one_strategy;
mod purges;
mod races;
mod reading_only;
mod strategies;
mod turning_on;
mod watermarks;

use std::{num::NonZeroUsize, time::Duration};

use rashomon_pages::{
    Current, Error, Fill, Missing, Page, Policy, Retention, Settings, Strategy, Sweep, Tid, schemas,
};
use rashomon_records::rows::{HistoricalKey, RenderBodyKey};

use crate::support::{ByRevRow, CurrentRow, World, bytes, name};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// All strategies, with each of their settings.
pub(crate) const STRATEGIES: [Strategy; 8] = [
    Strategy::AppTtl,
    Strategy::TwoTable,
    Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate),
    Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnRead),
    Strategy::TablePerQuery(Current::OneRow, Fill::WriteThrough),
    Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnUpdate),
    Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnRead),
    Strategy::TablePerQuery(Current::WideRow, Fill::WriteThrough),
];

/// The default policy, except that only the sweep culls.
pub(crate) fn policy() -> Policy {
    Policy { delete_probability: 0.0, ..Policy::default() }
}

pub(crate) fn settings(policy: Policy) -> Settings {
    // Write times under a page lease are earlier than now by the `skew` of the settings. Here, this skew equals that of
    // the policy.
    let skew = policy.skew;
    Settings {
        retention: Retention { policy: Some(policy), ..Retention::default() },
        skew,
        ..Settings::default()
    }
}

/// A policy with which every write deletes all values that its strategy may delete at once.
pub(crate) fn policy_with(strategy: Strategy) -> Policy {
    Policy { strategy, delete_probability: 1.0, ..policy() }
}

/// The same store and clock, after a restart with this policy.
pub(crate) async fn with_retention(world: World, policy: Policy) -> World {
    world.restarted_with(settings(policy)).await
}

impl World {
    /// Processes all eligible queue entries, unless a clock jump pauses culls.
    pub(crate) async fn sweep(&self) -> Sweep {
        let mut all = Sweep::default();
        loop {
            let sweep = self.buckets.maintenance().sweep(NonZeroUsize::new(1000).unwrap()).await.unwrap();
            all.entries += sweep.entries;
            all.renders += sweep.renders;
            all.bytes += sweep.bytes;
            all.paused |= sweep.paused;
            all.lapsed |= sweep.lapsed;
            if sweep.entries == 0 || sweep.paused {
                return all;
            }
        }
    }

    /// Rescans the bucket of a page. Returns the number of pages that were examined.
    pub(crate) async fn rescan(&self, page: &Page) -> u64 {
        let mut pages = 0;
        for _ in 0..100 {
            let step = self.buckets.maintenance().rescan(&page.domain, &page.bucket).await.unwrap();
            pages += step.pages;
            if step.finished {
                return pages;
            }
        }
        panic!("the rescan does not end, {pages} pages so far");
    }

    /// The bytes of a property of a render. `None` if it was culled.
    pub(crate) async fn read_if_kept(&self, page: &Page, tid: Tid, property: &str) -> Option<Vec<u8>> {
        match self.buckets.property(page, tid, &name(property)).await {
            Ok(property) => Some(bytes(&property).await),
            Err(Error::NotFound(Missing::Culled { tid: culled, .. })) if culled == tid => None,
            Err(error) => panic!("{property} of {tid}: {error}"),
        }
    }

    /// Asserts that the content table has the body of a property of a render or, if `expected` is `false`, lacks
    /// the body. Looks at the table, since a read of the property would keep the body.
    pub(crate) async fn assert_stored(&self, tid: Tid, property: &str, expected: bool) {
        let is_of_body = |key: &RenderBodyKey| key.tid == tid && key.property == name(property);
        let stored = self.keys::<RenderBodyKey>().await.iter().any(is_of_body);
        assert_eq!(stored, expected, "{property} of {tid}");
    }

    /// The tables that have a property of a render. Looks at the tables, since a read of the property would
    /// keep the body.
    pub(crate) async fn tables_with(&self, tid: Tid, property: &str) -> Vec<&'static str> {
        let (tid, property) = (Some(tid), name(property));
        let content = self.keys::<RenderBodyKey>().await;
        let historical = self.keys::<HistoricalKey>().await;
        let by_rev = self.typed_rows::<ByRevRow>().await;
        let current = self.typed_rows::<CurrentRow>().await;
        let found = [
            (
                &*schemas::RENDER_CONTENT,
                content.iter().any(|key| Some(key.tid) == tid && key.property == property),
            ),
            (
                &*schemas::HISTORICAL,
                historical.iter().any(|key| Some(key.tid) == tid && key.property == property),
            ),
            (&*schemas::BY_REV, by_rev.iter().any(|row| Some(row.tid) == tid && row.property == property)),
            (&*schemas::CURRENT, current.iter().any(|row| row.tid == tid && row.property == property)),
        ];
        found.into_iter().filter(|(_, is_there)| *is_there).map(|(table, _)| table.name()).collect()
    }

    pub(crate) async fn assert_in_some_table(&self, tid: Tid, property: &str, expected: bool) {
        let places = self.tables_with(tid, property).await;
        assert_eq!(!places.is_empty(), expected, "{property} of {tid}: {places:?}");
    }
}
