//! Disk space for archives that arrive as streams. Their table of contents is at the end, so they are stored
//! first.

use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The number of bytes that are reserved and copied in one step.
const PIECE_BYTES: usize = 1 << 18;

/// Why an archive that arrives as a stream cannot be stored, although it may be valid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    /// Other archives use the space that all of them share.
    #[error(
        "too few of the {0} bytes of disk for 7z archives that come as streams are free: try again when other \
         imports are done, or send the content as .xz or .zst, which need no disk space"
    )]
    InUse(u64),
    /// The temporary file cannot be written: for example, the disk is full.
    #[error(
        "cannot write the temporary file of an import to {folder}: {error}; make room there and make it writable, or \
         name another folder in TMPDIR"
    )]
    Disk {
        /// The folder of temporary files.
        folder: String,
        /// The error of the disk.
        error: io::Error,
    },
}

impl SpoolError {
    /// Creates the error for a failure of the temporary file. The archive itself may be valid.
    pub(crate) fn disk(error: io::Error) -> Self {
        Self::Disk { folder: std::env::temp_dir().display().to_string(), error }
    }

    /// Whether the disk is full.
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

/// Disk space for temporary files: for 7z archives that arrive as streams, and for revisions that an import sorts by page.
/// Imports that share a `SpoolSpace` share its limit.
#[derive(Debug)]
pub struct SpoolSpace {
    archive: u64,
    total: u64,
    used: AtomicU64,
}

impl SpoolSpace {
    /// Limits an archive to `archive` bytes, and all archives at the same time to `total` bytes.
    #[must_use]
    pub const fn new(archive: u64, total: u64) -> Self {
        Self { archive, total, used: AtomicU64::new(0) }
    }

    /// The bytes that are in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Fails if an archive of this size can never be stored.
    pub(super) fn check(&self, bytes: u64) -> io::Result<()> {
        let most = self.archive.min(self.total);
        if bytes <= most {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!(
                "a 7z archive that comes as a stream may have at most {most} bytes: give it as a file, \
                 or send its content as .xz or .zst, which need no disk space"
            ),
        ))
    }

    /// Copies a stream to a temporary file, which is deleted when it is closed.
    pub(super) fn fill(self: &Arc<Self>, mut stream: impl Read) -> io::Result<SpooledFile> {
        let mut spooled = SpooledFile::new(self).map_err(SpoolError::disk)?;
        let mut piece = vec![0; PIECE_BYTES];
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

/// A temporary file. It occupies its space until it is dropped.
#[derive(Debug)]
pub(crate) struct SpooledFile {
    file: File,
    space: Arc<SpoolSpace>,
    bytes: u64,
}

impl SpooledFile {
    /// Creates an empty file without a name, so that it is gone when the process ends.
    pub(crate) fn new(space: &Arc<SpoolSpace>) -> io::Result<Self> {
        Ok(Self { file: tempfile::tempfile()?, space: Arc::clone(space), bytes: 0 })
    }

    /// Writes bytes at the end of the file, which is at `offset`.
    pub(crate) fn append_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.reserve(bytes.len() as u64)?;
        self.file.write_all_at(bytes, offset)
    }

    /// Reads the bytes at `offset`.
    pub(crate) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    /// Returns another handle of the file.
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
