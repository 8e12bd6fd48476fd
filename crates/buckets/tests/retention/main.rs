//! What was superseded goes after its time, and nothing before: R1 to R8 of the design, one after another, over
//! each store.
#![allow(clippy::unwrap_used)] // In what tests call, too.

#[path = "../support/mod.rs"]
mod support;

mod culling;
mod generating;
mod keeping;
mod turning_on;

use std::{num::NonZeroUsize, time::Duration};

use rashomon_buckets::{Error, Missing, Page, Policy, Retention, Settings, Sweep, Tid};

use support::{World, bytes, name};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

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
            if sweep.notes == 0 || sweep.paused {
                return all;
            }
        }
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
        let key = [rashomon_tables::Value::from(property), tid_value(tid)];
        let stored = (self.rows(&RENDER_CONTENT).await.iter())
            .any(|row| row.key.clustering[0] == key[0] && row.key.clustering[2] == key[1]);
        assert_eq!(stored, expected, "{property} of {tid}");
    }
}

fn tid_value(tid: Tid) -> rashomon_tables::Value {
    let uuid: uuid::Uuid = tid.to_string().parse().unwrap();
    rashomon_tables::TimeUuid::new(uuid).unwrap().into()
}
