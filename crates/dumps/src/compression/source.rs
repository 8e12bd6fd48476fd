//! Where an import comes from.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::io::AsyncRead;
use tokio_util::io::SyncIoBridge;

/// Where an import comes from, compressed or not.
pub struct Source {
    input: Input,
    size: Option<u64>,
    consumed: Arc<AtomicU64>,
}

/// What is read from.
pub(super) enum Input {
    /// A file in which one can go back.
    File(File),
    /// Anything else.
    Stream(Box<dyn Read + Send>),
}

impl Source {
    /// A file. One in which nobody can go back, such as a pipe that has a name, is read as a stream.
    pub fn file(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(Self::stream(file));
        }
        Ok(Self { input: Input::File(file), size: Some(metadata.len()), consumed: Arc::default() })
    }

    /// A stream, such as standard input. It is read on a thread that may be blocked.
    #[must_use]
    pub fn stream(input: impl Read + Send + 'static) -> Self {
        Self { input: Input::Stream(Box::new(input)), size: None, consumed: Arc::default() }
    }

    /// A stream of tokio, such as the body of a request. To be called within a runtime.
    #[must_use]
    pub fn asynchronous(input: impl AsyncRead + Send + Unpin + 'static) -> Self {
        Self::stream(SyncIoBridge::new(input))
    }

    /// Its size as it lies there, where that is known.
    #[must_use]
    pub const fn size(&self) -> Option<u64> {
        self.size
    }

    /// Says its size, where the caller knows it.
    #[must_use]
    pub const fn with_size(mut self, size: Option<u64>) -> Self {
        self.size = size;
        self
    }

    /// Counts the bytes that have been read of it, as they lie there.
    #[must_use]
    pub fn consumed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.consumed)
    }

    pub(super) fn into_parts(self) -> (Input, Arc<AtomicU64>) {
        (self.input, self.consumed)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("size", &self.size)
            .field("consumed", &self.consumed)
            .finish_non_exhaustive()
    }
}

/// The source could not be read: the disk or the network failed, not what is in the file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct SourceFailed(io::Error);

/// A reader that counts how far it is.
pub(super) struct Counted<R> {
    inner: R,
    consumed: Arc<AtomicU64>,
}

impl<R> Counted<R> {
    pub(super) const fn new(inner: R, consumed: Arc<AtomicU64>) -> Self {
        Self { inner, consumed }
    }

    pub(super) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.consumed)
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Ok(count) => {
                self.consumed.fetch_add(count as u64, Ordering::Relaxed);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => Err(io::Error::new(error.kind(), SourceFailed(error))),
        }
    }
}

impl<R: Seek> Seek for Counted<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = self.inner.seek(to)?;
        self.consumed.store(position, Ordering::Relaxed);
        Ok(position)
    }
}
