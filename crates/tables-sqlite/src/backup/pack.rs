//! Files with pages.
//!
//! A file begins with a header: the magic number, the version of the format, and the size of a page. The pages
//! follow one after the other. Each begins with its number, its stored size and its hash. The content is
//! compressed with Zstandard, unless this makes it no smaller. All numbers are little-endian.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    ops::RangeInclusive,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use crate::backup::{BackupError, error::Result, folder::FILE_MODE};

const MAGIC: [u8; 8] = *b"RSHMPAGE";

const VERSION: u32 = 1;

/// The size of the header of a file.
const FILE_HEADER_BYTES: u64 = 16;

/// The size of the header of a page: number, stored size, hash.
const PAGE_HEADER_BYTES: usize = 8 + HASH_BYTES;

const HASH_BYTES: usize = 16;

/// The smallest and the largest page size of SQLite, in bytes.
pub(crate) const PAGE_BYTES: RangeInclusive<usize> = 512..=1 << 16;

/// The number of bytes after which a new file is synchronized, so that the system never has more of the file to write
/// at once.
const SYNC_BYTES: u64 = 64 << 20;

/// The level of Zstandard. Most pages hold compressed bodies, which a higher level does not make smaller.
const COMPRESSION_LEVEL: i32 = 1;

/// The first half of a page's BLAKE3 hash.
pub(crate) type Hash = [u8; HASH_BYTES];

/// Hashes a page.
pub(crate) fn hash(page: &[u8]) -> Hash {
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(&blake3::hash(page).as_bytes()[..HASH_BYTES]);
    hash
}

/// The location of a page in the backup, and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredPage {
    /// The number of the file.
    pub(crate) pack: u32,
    /// The offset of the page's header in the file.
    pub(crate) offset: u64,
    pub(crate) hash: Hash,
}

/// Writes a new file of pages.
pub(crate) struct PackWriter {
    path: PathBuf,
    number: u32,
    file: BufWriter<File>,
    compressor: zstd::bulk::Compressor<'static>,
    offset: u64,
    synced: u64,
}

impl PackWriter {
    pub(crate) fn create(path: PathBuf, number: u32, page_bytes: usize) -> Result<Self> {
        let io = BackupError::io(&path);
        let created = || {
            let file = File::options().write(true).create_new(true).mode(FILE_MODE).open(&path)?;
            let mut file = BufWriter::with_capacity(1 << 20, file);
            file.write_all(&MAGIC)?;
            file.write_all(&VERSION.to_le_bytes())?;
            file.write_all(&(page_bytes as u32).to_le_bytes())?;
            Ok((file, zstd::bulk::Compressor::new(COMPRESSION_LEVEL)?))
        };
        let (file, compressor) = created().map_err(io)?;
        Ok(Self { path, number, file, compressor, offset: FILE_HEADER_BYTES, synced: 0 })
    }

    /// The number of bytes written.
    pub(crate) const fn bytes(&self) -> u64 {
        self.offset
    }

    /// Appends a page.
    pub(crate) fn push(&mut self, page: u32, content: &[u8], hash: Hash) -> Result<StoredPage> {
        let mut pushed = || {
            let packed = self.compressor.compress(content)?;
            let stored = if packed.len() < content.len() { &packed } else { content };
            self.file.write_all(&page.to_le_bytes())?;
            self.file.write_all(&(stored.len() as u32).to_le_bytes())?;
            self.file.write_all(&hash)?;
            self.file.write_all(stored)?;
            if self.offset - self.synced > SYNC_BYTES {
                self.file.flush()?;
                self.file.get_ref().sync_data()?;
                self.synced = self.offset;
            }
            Ok((PAGE_HEADER_BYTES + stored.len()) as u64)
        };
        let bytes = pushed().map_err(BackupError::io(&self.path))?;
        let stored = StoredPage { pack: self.number, offset: self.offset, hash };
        self.offset += bytes;
        Ok(stored)
    }

    /// Makes the file durable. The caller synchronizes its folder.
    pub(crate) fn finish(self) -> Result<()> {
        let io = BackupError::io(&self.path);
        let file = self.file.into_inner().map_err(std::io::IntoInnerError::into_error);
        file.and_then(|file| file.sync_all()).map_err(io)
    }
}

/// Reads a file of pages.
pub(crate) struct PackReader {
    path: PathBuf,
    file: File,
    bytes: u64,
    page_bytes: usize,
}

impl PackReader {
    /// Opens a file. `None` if it does not exist, or has no complete header.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(BackupError::io(path)(error)),
        };
        let bytes = file.metadata().map_err(BackupError::io(path))?.len();
        if bytes < FILE_HEADER_BYTES {
            return Ok(None);
        }
        let mut header = [0; FILE_HEADER_BYTES as usize];
        file.read_exact_at(&mut header, 0).map_err(BackupError::io(path))?;
        let (version, page_bytes) = (read_u32(&header, 8), read_u32(&header, 12) as usize);
        if header[..8] != MAGIC || !page_bytes.is_power_of_two() || !PAGE_BYTES.contains(&page_bytes) {
            return Err(BackupError::damaged(path, "its header is not that of a file of pages"));
        }
        if version > VERSION {
            return Err(BackupError::LaterFormat { path: path.to_owned(), found: version, known: VERSION });
        }
        Ok(Some(Self { path: path.to_owned(), file, bytes, page_bytes }))
    }

    /// The size of a page.
    pub(crate) const fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The offset before which every page begins.
    pub(crate) const fn end(&self) -> u64 {
        self.bytes.saturating_sub(PAGE_HEADER_BYTES as u64)
    }

    /// Reads a page, and checks it.
    pub(crate) fn read(&self, page: u32, stored: &StoredPage) -> Result<Vec<u8>> {
        let (found, content, _) = self.read_at(stored.offset)?;
        if found.0 != page || found.1 != stored.hash {
            let what = format!("page {page} is not at the offset {}", stored.offset);
            return Err(BackupError::damaged(&self.path, what));
        }
        Ok(content)
    }

    /// Reads the pages one after the other, up to the first page that is incomplete or cannot be read. An interrupted
    /// run leaves an incomplete page at the end.
    pub(crate) fn pages(&self, pack: u32) -> impl Iterator<Item = (u32, StoredPage)> {
        let mut offset = FILE_HEADER_BYTES;
        std::iter::from_fn(move || {
            let ((page, hash), _, next) = self.read_at(offset).ok()?;
            let stored = StoredPage { pack, offset, hash };
            offset = next;
            Some((page, stored))
        })
    }

    /// Reads the page at an offset, and checks its hash. Returns its number and hash, its content, and the
    /// offset of the next page.
    fn read_at(&self, offset: u64) -> Result<((u32, Hash), Vec<u8>, u64)> {
        let read = |bytes: &mut [u8], at: u64| {
            self.file.read_exact_at(bytes, at).map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => {
                    BackupError::damaged(&self.path, format!("the page at the offset {offset} is truncated"))
                }
                _ => BackupError::io(&self.path)(error),
            })
        };
        if offset >= self.end() {
            let what = format!("it ends before the offset {offset}");
            return Err(BackupError::damaged(&self.path, what));
        }
        let damaged =
            || BackupError::damaged(&self.path, format!("the page at the offset {offset} is not as written"));
        let mut header = [0; PAGE_HEADER_BYTES];
        read(&mut header, offset)?;
        let (page, bytes) = (read_u32(&header, 0), read_u32(&header, 4) as usize);
        if bytes > self.page_bytes {
            return Err(damaged());
        }
        let mut content = vec![0; bytes];
        read(&mut content, offset + PAGE_HEADER_BYTES as u64)?;
        if bytes < self.page_bytes {
            content = zstd::bulk::decompress(&content, self.page_bytes).map_err(|_| damaged())?;
        }
        let mut stored_hash = [0; HASH_BYTES];
        stored_hash.copy_from_slice(&header[8..]);
        if content.len() != self.page_bytes || hash(&content) != stored_hash {
            return Err(damaged());
        }
        Ok(((page, stored_hash), content, offset + (PAGE_HEADER_BYTES + bytes) as u64))
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
