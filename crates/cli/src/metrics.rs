//! What `/metrics` shows of the buckets, beside what the API counts itself.

use std::sync::Arc;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};
use rashomon_api::Registry;
use rashomon_buckets::Revisioned;
use rashomon_tables_sqlite::SqliteStore;

use crate::supervised::Panics;

/// Asks the buckets whenever somebody looks.
#[derive(Debug)]
struct OfBuckets(Revisioned);

/// Counts the panics of the process's threads and background tasks.
#[derive(Debug)]
struct OfThreads {
    sqlite: Option<Arc<SqliteStore>>,
    background: Panics,
}

/// Registers what the buckets count, and the panics that were survived.
pub(crate) fn registry(
    buckets: &Revisioned,
    sqlite: Option<Arc<SqliteStore>>,
    background: Panics,
) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(OfBuckets(buckets.clone())));
    registry.register_collector(Box::new(OfThreads { sqlite, background }));
    registry
}

impl Collector for OfThreads {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let of_store = self.sqlite.as_ref().map_or(0, |store| store.thread_panics());
        let panics = ConstCounter::new(of_store + self.background.count());
        let help = "Panics that ended a call or a turn of a background task, and no thread";
        panics.encode(encoder.encode_descriptor("thread_panics", help, None, panics.metric_type())?)
    }
}

impl Collector for OfBuckets {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (cache, retention) = (self.0.cache_stats(), self.0.retention_stats());
        let mut one = |name: &str, help: &str, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        for (name, help, value) in [
            ("cache_hits", "Reads of the latest answered from memory", cache.hits),
            ("cache_misses", "Reads of the latest that went to the store", cache.misses),
            ("retention_notes", "Notes of what is due that were worked off", retention.notes),
            (
                "retention_culled_renders",
                "Superseded renders whose bodies were deleted",
                retention.culled_renders,
            ),
            (
                "retention_culled_bytes",
                "Bytes of the bodies that were deleted, as they came",
                retention.culled_bytes,
            ),
            (
                "retention_timeline_entries",
                "Entries of the timeline that were noted",
                retention.timeline_entries,
            ),
            (
                "retention_kept_renders",
                "Superseded renders kept for longer because somebody read them",
                retention.kept_renders,
            ),
            ("generator_hits", "Reads that found what had been made before", retention.generator_hits),
            (
                "generator_misses",
                "Times that the renderer was asked, for one reader or many",
                retention.generator_misses,
            ),
            ("generator_failures", "Times that it made nothing of use", retention.generator_failures),
        ] {
            one(name, help, &ConstCounter::new(value))?;
        }
        for (name, help, value) in [
            ("cache_bytes", "Bytes of newest properties in memory, about", cache.bytes as f64),
            (
                "retention_overdue_seconds",
                "How long the oldest superseded value has been due that is not culled yet",
                retention.overdue.as_secs_f64(),
            ),
            (
                "retention_paused",
                "1 while nothing is culled because the time of day was set, until a grace has passed",
                f64::from(u8::from(retention.paused)),
            ),
            ("generator_in_flight", "Renders being made", retention.generator_in_flight as f64),
        ] {
            one(name, help, &ConstGauge::new(value))?;
        }
        Ok(())
    }
}
