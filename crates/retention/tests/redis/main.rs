//! Tests of the timeline in a real Redis. Each test starts its own Redis. The timeline keeps the same promises as
//! the timeline in memory, even if Redis loses its data, hangs or is down.
#![allow(clippy::unwrap_used)] // Also in functions that tests call.

mod buckets;
mod lost_lease;
mod outages;
mod real_time;
mod suite;

use std::{sync::Arc, time::Duration};

use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_pages::{BucketName, DomainName, Page, Revision, Timeline, Title};
use rashomon_retention::redis_timeline::{RedisTimeline, Settings};
use rashomon_testing::stores::Redis;

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// A timeout that only a hanging Redis exceeds, even on a busy machine.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The time at which the tests begin: 2026-01-01T00:00:00Z.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// Returns the time this many seconds after [`START`].
pub(crate) fn at(seconds: u64) -> Timestamp {
    START.saturating_add(Duration::from_secs(seconds))
}

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START))
}

pub(crate) fn rev(number: i64) -> Revision {
    Revision::new(number).unwrap()
}

pub(crate) fn page(title: &str) -> Page {
    page_of("enwiki", title)
}

pub(crate) fn page_of(domain: &str, title: &str) -> Page {
    Page {
        domain: DomainName::new(domain).unwrap(),
        bucket: BucketName::page(),
        title: Title::new(title).unwrap(),
    }
}

/// Creates a timeline in this Redis.
pub(crate) fn timeline(redis: &Redis, clock: Arc<dyn Clock>) -> Arc<dyn Timeline> {
    let settings = Settings { timeout: REQUEST_TIMEOUT, ..Settings::new(redis.url()) };
    Arc::new(RedisTimeline::new(settings, clock).unwrap())
}
