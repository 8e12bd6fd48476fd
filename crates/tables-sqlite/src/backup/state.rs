//! The file of a state: the location of each page of the store's file.
//!
//! The file begins with a line of JSON, [`StateInfo`]. Three columns follow, compressed with Zstandard as a
//! whole: the file of pages, the offset in it, and the hash, each for all pages in ascending order. Numbers
//! are little-endian. The last 32 bytes are the BLAKE3 hash of everything before them.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rashomon_clock::rfc3339;
use serde::{Deserialize, Serialize};

use crate::backup::{
    BackupError,
    error::Result,
    folder::FILE_MODE,
    pack::{Hash, PAGE_BYTES, StoredPage},
};

/// The version of the format.
const VERSION: u32 = 1;

/// The maximum size of the line of JSON, in bytes. The line lists the files of pages.
const MAX_INFO_BYTES: u64 = 16 << 20;

const CHECKSUM_BYTES: usize = 32;

/// The level of Zstandard.
const COMPRESSION_LEVEL: i32 = 3;

/// The size of the columns for one page, in bytes.
const ENTRY_BYTES: usize = 4 + 8 + 16;

/// The description of a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateInfo {
    /// The version of the format.
    #[serde(rename = "rashomon_backup")]
    pub(crate) format: u32,
    /// The number of the state. Later states have higher numbers.
    pub number: u32,
    /// The time just before the state's snapshot: RFC 3339, in UTC. Every write that was acknowledged before the
    /// backup began is part of the state.
    pub time: String,
    /// The directory of the store.
    pub store: String,
    /// The size of a database page of the store's file, in bytes.
    pub page_bytes: usize,
    /// The number of database pages.
    pub pages: u32,
    /// The number of database pages that this state has written to the backup. Earlier states or interrupted runs have
    /// written all other pages.
    pub written_pages: u64,
    /// The size of the file of pages that this state has written, in bytes. 0 if the state has written no pages.
    pub written_bytes: u64,
    /// The numbers of the files of pages that this state refers to.
    pub(crate) packs: Vec<u32>,
}

impl StateInfo {
    /// The size of the store's file in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.pages as u64 * self.page_bytes as u64
    }
}

/// A state.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) info: StateInfo,
    /// The pages of the store's file, in ascending order.
    pub(crate) pages: Vec<StoredPage>,
}

impl State {
    /// The version of the format that this program writes.
    pub(crate) const VERSION: u32 = VERSION;

    /// Writes the file, durably except for its name.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut columns = Vec::with_capacity(self.pages.len() * ENTRY_BYTES);
        self.pages.iter().for_each(|page| columns.extend_from_slice(&page.pack.to_le_bytes()));
        self.pages.iter().for_each(|page| columns.extend_from_slice(&page.offset.to_le_bytes()));
        self.pages.iter().for_each(|page| columns.extend_from_slice(&page.hash));
        let mut bytes = serde_json::to_vec(&self.info).expect("the description is JSON");
        bytes.push(b'\n');
        let mut write = || {
            bytes.extend(zstd::bulk::compress(&columns, COMPRESSION_LEVEL)?);
            bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
            let mut file =
                File::options().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
            file.write_all(&bytes)?;
            file.sync_all()
        };
        write().map_err(BackupError::io(path))
    }

    /// Reads the file, and checks it.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let info = read_info(path)?;
        let damaged = |what: &str| BackupError::damaged(path, what);
        let size = fs::metadata(path).map_err(BackupError::io(path))?.len();
        // Hashes do not compress, and the other columns never grow by a tenth.
        if size > MAX_INFO_BYTES + u64::from(info.pages) * ENTRY_BYTES as u64 * 11 / 10 {
            return Err(damaged("it is longer than its pages need"));
        }
        let bytes = fs::read(path).map_err(BackupError::io(path))?;
        let truncated = || damaged("it is truncated");
        let content = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or_else(truncated)?;
        let (content, checksum) = bytes.split_at(content);
        if blake3::hash(content).as_bytes() != checksum {
            return Err(damaged("its checksum does not agree"));
        }
        let line = content.iter().position(|byte| *byte == b'\n').ok_or_else(truncated)?;
        let count = info.pages as usize;
        let columns = zstd::bulk::decompress(&content[line + 1..], count * ENTRY_BYTES)
            .map_err(|error| damaged(&error.to_string()))?;
        if columns.len() != count * ENTRY_BYTES {
            return Err(damaged("it has another number of pages than its description says"));
        }
        let (packs, rest) = columns.split_at(count * 4);
        let (offsets, hashes) = rest.split_at(count * 8);
        let (packs, offsets, hashes) =
            (packs.as_chunks::<4>().0, offsets.as_chunks::<8>().0, hashes.as_chunks::<16>().0);
        let pages = packs.iter().zip(offsets).zip(hashes).map(|((pack, offset), hash): (_, &Hash)| {
            StoredPage { pack: u32::from_le_bytes(*pack), offset: u64::from_le_bytes(*offset), hash: *hash }
        });
        Ok(Self { pages: pages.collect(), info })
    }

    /// Returns the numbers of the files that have these pages, in ascending order.
    pub(crate) fn packs_of(pages: &[StoredPage]) -> Vec<u32> {
        let packs: BTreeSet<_> = pages.iter().map(|page| page.pack).collect();
        packs.into_iter().collect()
    }
}

/// Reads the description of a state. The rest of the file is not checked.
pub(crate) fn read_info(path: &Path) -> Result<StateInfo> {
    #[derive(Deserialize)]
    struct Format {
        rashomon_backup: u32,
    }
    let io = BackupError::io(path);
    let mut line = Vec::new();
    let mut read = || BufReader::new(File::open(path)?.take(MAX_INFO_BYTES)).read_until(b'\n', &mut line);
    read().map_err(io)?;
    let damaged = |error: serde_json::Error| BackupError::damaged(path, error.to_string());
    let Format { rashomon_backup: found } = serde_json::from_slice(&line).map_err(damaged)?;
    if found > VERSION {
        return Err(BackupError::LaterFormat { path: path.to_owned(), found, known: VERSION });
    }
    let info: StateInfo = serde_json::from_slice(&line).map_err(damaged)?;
    let is_page_size = info.page_bytes.is_power_of_two() && PAGE_BYTES.contains(&info.page_bytes);
    if !is_page_size || rfc3339::parse(&info.time).is_none() {
        return Err(BackupError::damaged(path, "its description is not valid"));
    }
    Ok(info)
}
