//! Space on disk for archives that arrive as streams and can only be read from their end.

use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The bytes that are copied, and reserved, at once.
const PIECE: usize = 1 << 18;

/// Why an archive that arrives as a stream cannot be kept, although it may be right.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    /// Other archives take the space that all of them may have.
    #[error(
        "the {0} bytes of disk for 7z archives that come as streams are in use: try again when other imports are done, \
         or send what is in it as .xz or .zst, which need no space on the disk"
    )]
    InUse(u64),
    /// The disk failed.
    #[error(
        "cannot write the temporary file of a 7z archive to {folder}: {error}; make room there, or name another folder in \
         TMPDIR"
    )]
    Disk {
        /// Where temporary files are.
        folder: String,
        /// Why.
        error: io::Error,
    },
}

impl SpoolError {
    /// The temporary file failed, not the archive.
    pub(crate) fn disk(error: io::Error) -> Self {
        Self::Disk { folder: std::env::temp_dir().display().to_string(), error }
    }

    /// Whether the disk has no room.
    pub(crate) fn is_full_disk(&self) -> bool {
        matches!(self, Self::Disk { error, .. } if is_full(error))
    }
}

impl From<SpoolError> for io::Error {
    fn from(error: SpoolError) -> Self {
        let kind = match &error {
            SpoolError::InUse(_) => io::ErrorKind::QuotaExceeded,
            SpoolError::Disk { error, .. } => error.kind(),
        };
        Self::new(kind, error)
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Space on disk for 7z archives that arrive as streams. Imports that share one have their archives counted
/// together.
#[derive(Debug)]
pub struct SpoolSpace {
    archive: u64,
    total: u64,
    used: AtomicU64,
}

impl SpoolSpace {
    /// At most `archive` bytes of an archive, and at most `total` bytes of all of them at once.
    #[must_use]
    pub const fn new(archive: u64, total: u64) -> Self {
        Self { archive, total, used: AtomicU64::new(0) }
    }

    /// The bytes that are in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// An error where an archive of so many bytes can never be kept.
    pub(super) fn check(&self, bytes: u64) -> io::Result<()> {
        let most = self.archive.min(self.total);
        if bytes <= most {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!(
                "a 7z archive that comes as a stream may have at most {most} bytes: give it as a file, or send what \
                 is in it as .xz or .zst, which need no space on the disk"
            ),
        ))
    }

    /// Keeps a stream in a temporary file, which is gone when it is closed.
    pub(super) fn fill(self: &Arc<Self>, mut stream: impl Read) -> io::Result<SpooledFile> {
        let mut spooled = SpooledFile {
            file: tempfile::tempfile().map_err(SpoolError::disk)?,
            space: Arc::clone(self),
            bytes: 0,
        };
        let mut piece = vec![0; PIECE];
        loop {
            let count = match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            spooled.reserve(count as u64)?;
            spooled.file.write_all(&piece[..count]).map_err(SpoolError::disk)?;
        }
        spooled.file.rewind()?;
        Ok(spooled)
    }
}

/// A stream in a temporary file, and the space that it takes until this is dropped.
#[derive(Debug)]
pub(super) struct SpooledFile {
    file: File,
    space: Arc<SpoolSpace>,
    bytes: u64,
}

impl SpooledFile {
    /// Another handle of the file.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        self.space.check(self.bytes.saturating_add(bytes))?;
        let add = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.space.total);
        if self.space.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return Err(SpoolError::InUse(self.space.total).into());
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for SpooledFile {
    fn drop(&mut self) {
        self.space.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
