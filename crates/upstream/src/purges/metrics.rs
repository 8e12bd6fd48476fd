//! The metrics of purges. The labels are the names of caches, so they are bounded.

use std::{fmt, sync::atomic::Ordering};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use rashomon_clock::Timestamp;

use crate::purges::{
    Purger,
    cache::{Cache, Health},
};

/// The metrics of the purges of all caches.
#[derive(Debug)]
pub struct PurgeMetrics(pub Purger);

impl PurgeMetrics {
    fn each<M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, kind): (&str, &str, MetricType),
        value: impl Fn(&Cache) -> M,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for cache in &self.0.0.caches {
            let labels = [("cache", cache.settings.name.as_str())];
            value(cache).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// The age of the oldest purge that the cache may not have acknowledged twice, in seconds. A cache that is not up
    /// may have missed purges since its cursor.
    fn oldest(&self, cache: &Cache) -> f64 {
        let cursor = match *cache.health.borrow() {
            Health::Up => None,
            Health::CatchingUp | Health::Down => Some(cache.counters.done_until.load(Ordering::Relaxed)),
        };
        let cursor = cursor.filter(|cursor| *cursor != i64::MAX).map(Timestamp::from_micros);
        let (_, waiting) = cache.tracker.waiting();
        let oldest = [cursor, waiting].into_iter().flatten().min();
        oldest.map_or(0.0, |oldest| self.0.0.clock.now().since(oldest).as_secs_f64())
    }
}

impl Collector for PurgeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let count =
            |counter: &std::sync::atomic::AtomicU64| ConstCounter::new(counter.load(Ordering::Relaxed));
        let kind = MetricType::Counter;
        let help = "Purge requests that the cache acknowledged";
        self.each(encoder, ("rashomon_purges_sent", help, kind), |cache| count(&cache.counters.sent))?;
        let help = "Attempts of purge requests that failed";
        self.each(encoder, ("rashomon_purges_failed", help, kind), |cache| count(&cache.counters.failed))?;
        let help = "Changes whose purge was left to the queue in the store, such as while the cache was down";
        self.each(encoder, ("rashomon_purges_left", help, kind), |cache| count(&cache.counters.left))?;
        let help = "Purges of all answers of the cache";
        self.each(encoder, ("rashomon_purges_of_all", help, kind), |cache| count(&cache.counters.bans))?;
        let kind = MetricType::Gauge;
        let help =
            "1 while the cache acknowledges purges and has missed none; 0 while it is down or catching up";
        self.each(encoder, ("rashomon_purge_cache_up", help, kind), |cache| {
            ConstGauge::new(i64::from(*cache.health.borrow() == Health::Up))
        })?;
        let help = "Changes in memory whose purge the cache has not acknowledged twice";
        self.each(encoder, ("rashomon_purges_waiting", help, kind), |cache| {
            ConstGauge::new(i64::try_from(cache.tracker.waiting().0).unwrap_or(i64::MAX))
        })?;
        let help = "Age of the oldest change whose purge the cache may not have acknowledged twice";
        self.each(encoder, ("rashomon_purge_oldest_seconds", help, kind), |cache| {
            ConstGauge::new(self.oldest(cache))
        })?;
        let help = "Time from the commit of a change to the first acknowledgement of its purge";
        self.each(encoder, ("rashomon_purge_delay_seconds", help, MetricType::Histogram), |cache| {
            cache.counters.delay.clone()
        })
    }
}
