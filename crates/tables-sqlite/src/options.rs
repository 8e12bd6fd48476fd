//! The options of a store.

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

/// How to open a store. The defaults suit most uses. All other parameters are constants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The number of threads that read, each with a connection of its own. Default: twice the cores.
    pub readers: NonZeroUsize,
    /// Maximum number of reads in the queue. Further reads wait until there is room. Default: 1,024.
    pub queued_reads: NonZeroUsize,
    /// How many bytes of the file's pages the writing connection keeps in memory. Default: 32 MiB.
    pub writer_cache_bytes: usize,
    /// How many bytes of the file's pages each reading connection keeps in memory. Default: 2 MiB.
    pub reader_cache_bytes: usize,
    /// The size of the log, in bytes, at which it is written into the file. A page of the file that many
    /// commits have changed is then written once. After a crash, opening the store reads the log. Under load,
    /// the log becomes longer while it is written into the file. Default: 128 MiB.
    pub log_bytes: u64,
    /// After this time without writes, upkeep runs: it deletes expired rows, and gives free pages back to the
    /// file system. Under steady writes, upkeep does a step of each at this interval. Default: one second.
    pub upkeep_interval: Duration,
    /// How many expired rows one pass deletes, which bounds how long the pass may delay a write. Default:
    /// 500.
    pub sweep_rows: NonZeroUsize,
    /// How many pages the file may have. `None`: as many as the disk has room for.
    pub max_pages: Option<u32>,
    /// Opens a file whose log is missing or damaged, without the lost writes. Default: `false`.
    pub accept_lost_log: bool,
    /// For commands that only read, with `accept_lost_log`: leaves the mark of the lost log in the file until
    /// something is written. So the next opening reports the loss again. Default: `false`.
    pub is_read_only_command: bool,
    /// The properties that a new store gets when its file is created, by name. An existing store keeps its
    /// own, see [`SqliteStore::properties`](crate::SqliteStore::properties). Default: none.
    pub new_properties: BTreeMap<String, String>,
}

impl Default for Options {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self {
            readers: cores.saturating_mul(TWO),
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

const TWO: NonZeroUsize = NonZeroUsize::new(2).expect("not zero");
const QUEUED_READS: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");
const SWEEP_ROWS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");
