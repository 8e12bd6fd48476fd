//! The options with which a store is opened.

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

/// The options with which a store is opened. The defaults suit most uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The number of threads that read, each with its own connection. Default: twice the number of cores.
    pub readers: NonZeroUsize,
    /// The maximum number of reads that are queued or running. Further reads wait until there is room. Default: 1,024.
    pub queued_reads: NonZeroUsize,
    /// How many bytes of the file's pages the writing connection keeps in memory. Default: 32 MiB.
    pub writer_cache_bytes: usize,
    /// How many bytes of the file's pages each reading connection keeps in memory. Default: 2 MiB.
    pub reader_cache_bytes: usize,
    /// The size in bytes at which the log is written into the file. With a longer log, a page that many commits
    /// have changed is written into the file only once. But after a crash, opening the store has to read the
    /// log. Under load, the log becomes longer while it is written into the file. Default: 128 MiB.
    pub log_bytes: u64,
    /// The interval of upkeep, which deletes expired rows and gives free pages back to the file system. After
    /// this time without writes, upkeep runs until nothing is left to do. Under steady writes, upkeep does one step
    /// of each of these two tasks at this interval. Default: one second.
    pub upkeep_interval: Duration,
    /// The maximum number of expired rows that one sweep deletes. It bounds how long a sweep delays a write.
    /// Default: 500.
    pub sweep_rows: NonZeroUsize,
    /// The maximum number of pages of the file. `None`: as many as the disk has room for. Default: `None`.
    pub max_pages: Option<u32>,
    /// Opens a file whose log is missing or damaged, without the lost writes. Default: `false`.
    pub accept_lost_log: bool,
    /// For commands that only read: upkeep gives no free pages back. With `accept_lost_log`, the mark of the lost
    /// log stays in the file until something is written, so that the loss is reported again when the store is
    /// opened the next time. Default: `false`.
    pub is_read_only_command: bool,
    /// The properties that a new store gets when its file is created, by name. An existing store keeps its
    /// own, see [`SqliteStore::properties`](crate::SqliteStore::properties). Default: none.
    pub new_properties: BTreeMap<String, String>,
}

impl Default for Options {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self {
            readers: cores.saturating_mul(READERS_PER_CORE),
            queued_reads: QUEUED_READS,
            writer_cache_bytes: 32 << 20,
            reader_cache_bytes: 2 << 20,
            log_bytes: 128 << 20,
            upkeep_interval: Duration::from_secs(1),
            sweep_rows: SWEEP_ROWS,
            max_pages: None,
            accept_lost_log: false,
            is_read_only_command: false,
            new_properties: BTreeMap::new(),
        }
    }
}

const READERS_PER_CORE: NonZeroUsize = NonZeroUsize::new(2).expect("not zero");
const QUEUED_READS: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");
const SWEEP_ROWS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");
