//! `rashomon stats`.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use crate::configuration::ArchiveState;
use rashomon_clock::{Clock, SystemClock};
use rashomon_pages::operations::{BucketContent, BucketStats, BucketType, DomainStats, PageStats};
use rashomon_pages::{BucketName, DomainName};
use rashomon_tables_sqlite::{SqliteStore, TableStats};
use serde::Serialize;

use super::archive::{print_damage, print_damaged_blocks};
use crate::{
    arguments::StatsArguments,
    errors::CommandError,
    exit::Exit,
    logging,
    output::{self, counted},
    progress::{Progress, ProgressCounts},
    store::Store,
};

/// The content of a store.
#[derive(Debug, Serialize)]
struct Stats {
    archive: ArchiveState,
    domains: BTreeMap<DomainName, DomainStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sqlite: Option<Files>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cassandra: Option<Cluster>,
}

/// The cluster of the store. Its size on disk is known only to the nodes.
#[derive(Debug, Serialize)]
struct Cluster {
    release: String,
    keyspace: String,
}

/// The sizes of the files, and the versions of SQLite and of the format.
#[derive(Debug, Serialize)]
struct Files {
    sqlite_version: &'static str,
    format_version: u32,
    file_bytes: u64,
    log_bytes: u64,
    free_bytes: u64,
    tables: Vec<Table>,
    /// Damage of rows, reported on standard error.
    #[serde(skip)]
    damaged: Vec<String>,
}

/// The size of a table.
#[derive(Debug, Serialize)]
struct Table {
    name: String,
    rows: u64,
    key_bytes: u64,
    value_bytes: u64,
}

/// Prints the content of a store.
pub(crate) async fn run(arguments: StatsArguments) -> Result<Exit, CommandError> {
    logging::start_for_command();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Store::open_for_reading(&arguments.store, Arc::clone(&clock)).await?;
    let counted = Box::pin(count(&store, &clock)).await;
    let found = store.buckets().found_damage();
    store.close().await;
    let files = counted.as_ref().ok().and_then(|stats| stats.sqlite.as_ref());
    let damage = print_damage(&found, files.map_or(&[][..], |files| &files.damaged));
    let stats = counted?;
    if arguments.json {
        output::json(&stats)?;
    } else {
        output::line(stats.to_text().trim_end())?;
    }
    let pages = stats.domains.values().flat_map(DomainStats::page_buckets);
    let archives = pages.filter_map(|(_, pages)| pages.archive.as_ref());
    let exit = print_damaged_blocks(archives);
    Ok(if damage { Exit::Failed } else { exit })
}

async fn count(store: &Store, clock: &Arc<dyn Clock>) -> Result<Stats, CommandError> {
    store.buckets().maintenance().skip_damage();
    let domains = store.buckets().catalog().domains().await?;
    // The file is read on another thread meanwhile.
    let files = async {
        match store.sqlite() {
            Some(sqlite) => count_files(sqlite).await.map(Some),
            None => Ok(None),
        }
    };
    let (domains, sqlite) = tokio::join!(stats_of(store, clock, &domains), files);
    let (domains, sqlite) = (domains?, sqlite?);
    let cassandra = (store.cluster()).map(|cluster| Cluster {
        release: cluster.release().to_owned(),
        keyspace: cluster.keyspace().to_owned(),
    });
    Ok(Stats { archive: store.archive(), domains, sqlite, cassandra })
}

/// Counts the content of domains, and shows the progress.
pub(super) async fn stats_of(
    store: &Store,
    clock: &Arc<dyn Clock>,
    domains: &[DomainName],
) -> Result<BTreeMap<DomainName, DomainStats>, CommandError> {
    let mut progress = Progress::new(Arc::clone(clock), "stats".to_owned(), "revision", None);
    let mut show = |stats: &PageStats| {
        progress.show(ProgressCounts {
            items: stats.revisions,
            bytes: stats.raw_bytes,
            position: stats.pages,
        });
    };
    let stats = rashomon_pages::operations::stats_of(store.buckets(), domains, &mut show).await;
    progress.finish();
    Ok(stats?)
}

async fn count_files(sqlite: Arc<SqliteStore>) -> Result<Files, CommandError> {
    let counted = tokio::task::spawn_blocking(move || sqlite.stats()).await;
    let counted = counted.map_err(|error| CommandError::TaskFailed(error.to_string()))?;
    let counted = counted.map_err(rashomon_pages::Error::from)?;
    let table = |table: TableStats| {
        let TableStats { name, rows, key_bytes, value_bytes } = table;
        Table { name, rows, key_bytes, value_bytes }
    };
    Ok(Files {
        sqlite_version: counted.sqlite_version,
        format_version: counted.format_version,
        file_bytes: counted.file_bytes,
        log_bytes: counted.log_bytes,
        free_bytes: u64::from(counted.free_pages) * u64::from(counted.page_bytes),
        tables: counted.tables.into_iter().map(table).collect(),
        damaged: counted.damaged,
    })
}

impl Stats {
    fn to_text(&self) -> String {
        let mut text = format!("archive: {}\n", self.archive);
        for (name, domain) in &self.domains {
            write_pages(&mut text, &name.to_string(), &domain.page);
            // The lines of key-value buckets are indented below the name of the domain.
            for (bucket, content) in &domain.buckets {
                if let BucketContent::Entries(stats) = content {
                    write_entries(&mut text, bucket, stats);
                }
            }
            for (bucket, content) in &domain.buckets {
                if let BucketContent::Pages { stats, .. } = content {
                    write_pages(&mut text, &format!("{name}/{bucket}"), stats);
                }
            }
        }
        if let Some(files) = &self.sqlite {
            files.write(&mut text);
        }
        if let Some(Cluster { release, keyspace }) = &self.cassandra {
            let _ = writeln!(
                text,
                "cluster: Cassandra {release}, keyspace {keyspace}; for its size on disk, ask its nodes: \
                 `nodetool tablestats {keyspace}`"
            );
        }
        text
    }
}

fn write_entries(text: &mut String, name: &BucketName, bucket: &BucketStats) {
    let kind = bucket.bucket_type;
    let _ = match kind {
        BucketType::Counter => writeln!(
            text,
            "  bucket {name}, {kind}: {}, {}",
            output::entries(bucket.entries),
            counted(bucket.idempotency_keys, "idempotency key"),
        ),
        _ => writeln!(
            text,
            "  bucket {name}, {kind}: {}, {} in {}",
            output::entries(bucket.entries),
            output::bytes(bucket.raw_bytes),
            stored(bucket.raw_bytes, bucket.stored_bytes),
        ),
    };
}

fn write_pages(text: &mut String, of: &str, stats: &PageStats) {
    let _ = writeln!(
        text,
        "{of}: {}, {}, {}; {} in {}",
        counted(stats.pages, "page"),
        counted(stats.revisions, "revision"),
        counted(stats.renders, "render"),
        output::bytes(stats.raw_bytes),
        stored(stats.raw_bytes, stats.stored_bytes),
    );
    if let Some(archive) = &stats.archive {
        let _ = writeln!(
            text,
            "  in the archive: {}, {} in {}",
            counted(archive.revisions, "revision"),
            output::bytes(archive.raw_bytes),
            stored(archive.raw_bytes, archive.block_bytes),
        );
    }
    for (name, property) in &stats.properties {
        let _ = write!(
            text,
            "  {name}: {} times, {} in {}",
            output::thousands(property.bodies - property.archived),
            output::bytes(property.raw_bytes - property.archived_raw_bytes),
            stored(property.raw_bytes - property.archived_raw_bytes, property.stored_bytes),
        );
        let _ = match property.archived {
            0 => writeln!(text),
            archived => writeln!(
                text,
                ", and {} times in the archive, {}",
                output::thousands(archived),
                output::bytes(property.archived_raw_bytes),
            ),
        };
    }
}

impl Files {
    fn write(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "files: {} and a log of {}; {} are free; format {}, SQLite {}",
            output::bytes(self.file_bytes),
            output::bytes(self.log_bytes),
            output::bytes(self.free_bytes),
            self.format_version,
            self.sqlite_version,
        );
        for table in &self.tables {
            let _ = writeln!(
                text,
                "  {}: {}, keys {}, values {}",
                table.name,
                counted(table.rows, "row"),
                output::bytes(table.key_bytes),
                output::bytes(table.value_bytes),
            );
        }
    }
}

/// Formats a size and its share: `35.1 MB (25 %)`.
fn stored(raw: u64, stored: u64) -> String {
    let share = if raw == 0 { 100.0 } else { stored as f64 / raw as f64 * 100.0 };
    format!("{} ({share:.0} %)", output::bytes(stored))
}
