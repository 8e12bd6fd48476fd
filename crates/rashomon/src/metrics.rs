//! The metrics in `/metrics` that do not come from the API: buckets, panics, commits of SQLite, audit log, certificate.

use std::sync::Arc;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};
use rashomon_clock::Timestamp;
use rashomon_pages::RevisionStore;
use rashomon_pages::operations::Panics;
use rashomon_server::audit_log::AuditLog;
use rashomon_server::{Registry, Tls};
use rashomon_tables_sqlite::SqliteStore;

/// Reads the metrics of the buckets at each request for `/metrics`.
#[derive(Debug)]
struct BucketCollector(RevisionStore);

/// Counts the panics in calls of SQLite stores and in background tasks.
#[derive(Debug)]
pub(crate) struct PanicCollector {
    /// The SQLite stores of the server: the main store, and those of the registry.
    pub(crate) stores: Vec<Arc<SqliteStore>>,
    /// The panics in the background tasks of all stores.
    pub(crate) background: Panics,
}

/// Counts the commits of a SQLite store.
#[derive(Debug)]
struct CommitCollector(Arc<SqliteStore>);

/// Counts the lines of the audit log.
#[derive(Debug)]
struct AuditLogCollector(AuditLog);

/// Reads the expiry of the certificate in use.
#[derive(Debug)]
struct CertificateCollector(Tls);

/// Registers the metrics of the buckets, the counters of panics, of commits and of the audit log, and the expiry of the
/// certificate.
pub(crate) fn registry(
    buckets: &RevisionStore,
    sqlite: Option<Arc<SqliteStore>>,
    panics: PanicCollector,
    audit_log: Option<AuditLog>,
    tls: Option<Tls>,
) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(BucketCollector(buckets.clone())));
    registry.register_collector(Box::new(panics));
    if let Some(store) = sqlite {
        registry.register_collector(Box::new(CommitCollector(store)));
    }
    if let Some(log) = audit_log {
        registry.register_collector(Box::new(AuditLogCollector(log)));
    }
    if let Some(tls) = tls {
        registry.register_collector(Box::new(CertificateCollector(tls)));
    }
    registry
}

impl Collector for CertificateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(expiry) = self.0.expiry() else { return Ok(()) };
        let expiry = ConstGauge::new(expiry.since(Timestamp::EPOCH).as_secs());
        expiry.encode(encoder.encode_descriptor(
            "rashomon_http_tls_certificate_expiry_timestamp_seconds",
            "Time at which the certificate of TLS expires, in seconds since 1970",
            None,
            expiry.metric_type(),
        )?)
    }
}

impl Collector for AuditLogCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.0.counts();
        let written = ConstCounter::new(counts.written);
        let help = "Lines of the audit log written";
        written.encode(encoder.encode_descriptor(
            "rashomon_audit_lines",
            help,
            None,
            written.metric_type(),
        )?)?;
        let help = "Lines of the audit log lost: the target could not be written, or was too slow";
        let kind = written.metric_type();
        let mut lost = encoder.encode_descriptor("rashomon_audit_lost_lines", help, None, kind)?;
        for (reason, count) in
            [("write_failed", counts.lost_to_failures), ("queue_full", counts.lost_to_full_queue)]
        {
            ConstCounter::new(count).encode(lost.encode_family(&[("reason", reason)])?)?;
        }
        Ok(())
    }
}

impl Collector for PanicCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let of_stores: u64 = self.stores.iter().map(|store| store.thread_panics()).sum();
        let panics = ConstCounter::new(of_stores + self.background.count());
        let help = "Panics in calls of all stores and in background tasks; the threads continued";
        panics.encode(encoder.encode_descriptor(
            "rashomon_thread_panics",
            help,
            None,
            panics.metric_type(),
        )?)
    }
}

impl Collector for CommitCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let ((_, commits), (total, longest)) = (self.0.calls_and_commits(), self.0.commit_times());
        for (name, help, metric) in [
            (
                "rashomon_sqlite_commits",
                "Commits of the SQLite store; several writes may share one",
                &ConstCounter::new(commits) as &dyn EncodeMetric,
            ),
            (
                "rashomon_sqlite_commit_seconds",
                "Time that these commits took; other writes wait meanwhile",
                &ConstCounter::new(total.as_secs_f64()),
            ),
            (
                "rashomon_sqlite_longest_commit_seconds",
                "The longest of these commits since the start",
                &ConstGauge::new(longest.as_secs_f64()),
            ),
        ] {
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        Ok(())
    }
}

impl Collector for BucketCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (cache, retention) = (self.0.cache_stats(), self.0.maintenance().retention_stats());
        let mut one = |name: &str, help: &str, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        for (name, help, value) in [
            ("rashomon_cache_hits", "Reads of the latest answered from memory", cache.hits),
            ("rashomon_cache_misses", "Reads of the latest answered from the store", cache.misses),
            (
                "rashomon_archive_blocks_opened",
                "Blocks of the archive read from the store and unpacked",
                self.0.maintenance().opened_blocks(),
            ),
            ("rashomon_retention_notes", "Retention queue entries processed", retention.entries),
            (
                "rashomon_retention_culled_renders",
                "Superseded renders whose bodies were deleted",
                retention.culled_renders,
            ),
            (
                "rashomon_retention_culled_bytes",
                "Uncompressed bytes of the deleted bodies",
                retention.culled_bytes,
            ),
            (
                "rashomon_retention_timeline_entries",
                "Entries added to the timeline",
                retention.timeline_entries,
            ),
            (
                "rashomon_retention_kept_renders",
                "Superseded renders kept for longer because they were read",
                retention.kept_renders,
            ),
            ("rashomon_generator_hits", "Reads that found a render made earlier", retention.generator_hits),
            (
                "rashomon_generator_misses",
                "Requests to the renderer; several readers may share one",
                retention.generator_misses,
            ),
            (
                "rashomon_generator_failures",
                "Requests to the renderer without a usable answer",
                retention.generator_failures,
            ),
        ] {
            one(name, help, &ConstCounter::new(value))?;
        }
        for (name, help, value) in [
            (
                "rashomon_cache_bytes",
                "Approximate bytes of the latest properties in memory",
                cache.bytes as f64,
            ),
            (
                "rashomon_retention_overdue_seconds",
                "Time for which the oldest value in the retention queue has been overdue",
                retention.overdue.as_secs_f64(),
            ),
            (
                "rashomon_retention_paused",
                "1 while culling is paused after a clock jump, else 0",
                f64::from(u8::from(retention.paused)),
            ),
            (
                "rashomon_archive_on",
                "1 if the archive of the store is on, else 0",
                f64::from(u8::from(self.0.settings().archive.is_some())),
            ),
            ("rashomon_generator_in_flight", "Renders being made", retention.generator_in_flight as f64),
        ] {
            one(name, help, &ConstGauge::new(value))?;
        }
        Ok(())
    }
}
