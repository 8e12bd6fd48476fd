//! What was superseded goes after its time, and nothing before: R1 to R8 of the design, one after another, over
//! each store.
#![allow(clippy::unwrap_used)] // In what tests call, too.

mod archived;
mod clocks;
mod culling;
mod erasing;
mod generating;
mod keeping;
mod late;
mod lost_lease;
mod marks;
mod one_row;
mod one_strategy;
mod races;
mod strategies;
mod turning_on;

use std::{num::NonZeroUsize, time::Duration};

use rashomon_buckets::{
    Current, Error, Fill, Missing, Page, Policy, Retention, Settings, Strategy, Sweep, Tid, schemas,
};
use rashomon_tables::{Row, Value};

use crate::support::{World, bytes, name};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// All there are, with each of their settings.
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

/// The defaults, and no culling but by the sweep.
pub(crate) fn policy() -> Policy {
    Policy { delete_probability: 0.0, ..Policy::default() }
}

pub(crate) fn settings(policy: Policy) -> Settings {
    // So that the margin for writes under a reservation, where there are such, is that of the policy.
    let skew = policy.skew;
    Settings {
        retention: Retention { policy: Some(policy), ..Retention::default() },
        skew,
        ..Settings::default()
    }
}

/// Every write deletes what it supersedes.
pub(crate) fn by(strategy: Strategy) -> Policy {
    Policy { strategy, delete_probability: 1.0, ..policy() }
}

/// A world in which superseded values go.
pub(crate) async fn retaining(world: World, policy: Policy) -> World {
    world.under(settings(policy)).await
}

impl World {
    /// Works off all that is due.
    pub(crate) async fn sweep(&self) -> Sweep {
        let mut all = Sweep::default();
        loop {
            let sweep = self.buckets.sweep(NonZeroUsize::new(1000).unwrap()).await.unwrap();
            all.notes += sweep.notes;
            all.renders += sweep.renders;
            all.bytes += sweep.bytes;
            all.paused |= sweep.paused;
            all.lapsed |= sweep.lapsed;
            if sweep.notes == 0 || sweep.paused {
                return all;
            }
        }
    }

    /// Notes what stands in the bucket of a page as due. Gives the number of pages that were looked at.
    pub(crate) async fn walk(&self, page: &Page) -> u64 {
        let mut pages = 0;
        for _ in 0..100 {
            let walk = self.buckets.walk(&page.domain, &page.bucket).await.unwrap();
            pages += walk.pages;
            if walk.finished {
                return pages;
            }
        }
        panic!("a walk that comes to no end, {pages} pages so far");
    }

    /// The bytes of a property of a render, unless it was culled.
    pub(crate) async fn read_if_kept(&self, page: &Page, tid: Tid, property: &str) -> Option<Vec<u8>> {
        match self.buckets.property(page, tid, &name(property)).await {
            Ok(property) => Some(bytes(&property).await),
            Err(Error::NotFound(Missing::Culled { tid: culled, .. })) if culled == tid => None,
            Err(error) => panic!("{property} of {tid}: {error}"),
        }
    }

    /// Panics unless a property of a render is there or not, as expected. A read that finds it keeps it, so
    /// this looks at the store.
    pub(crate) async fn assert_stored(&self, tid: Tid, property: &str, expected: bool) {
        use rashomon_buckets::schemas::RENDER_CONTENT;
        let key = [Value::from(property), tid_value(tid)];
        let stored = (self.rows(&RENDER_CONTENT).await.iter())
            .any(|row| row.key.clustering[0] == key[0] && row.key.clustering[2] == key[1]);
        assert_eq!(stored, expected, "{property} of {tid}");
    }

    /// Where a property of a render lies. This looks at the tables, since a read that finds it keeps it.
    pub(crate) async fn places(&self, tid: Tid, property: &str) -> Vec<&'static str> {
        let (tid, property) = (tid_value(tid), Value::from(property));
        let mut places = Vec::new();
        for table in [&*schemas::RENDER_CONTENT, &*schemas::HISTORICAL, &*schemas::BY_REV, &*schemas::CURRENT]
        {
            let is_it = |row: &Row| {
                let values = row.key.clustering.iter().chain(row.values.iter().flatten());
                row.key.clustering.contains(&property) && values.clone().any(|value| *value == tid)
            };
            if self.rows(table).await.iter().any(is_it) {
                places.push(table.name());
            }
        }
        places
    }

    pub(crate) async fn assert_somewhere(&self, tid: Tid, property: &str, expected: bool) {
        let places = self.places(tid, property).await;
        assert_eq!(!places.is_empty(), expected, "{property} of {tid}: {places:?}");
    }
}

pub(crate) fn tid_value(tid: Tid) -> Value {
    let uuid: uuid::Uuid = tid.to_string().parse().unwrap();
    rashomon_tables::TimeUuid::new(uuid).unwrap().into()
}
