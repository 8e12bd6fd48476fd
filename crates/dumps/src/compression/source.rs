//! The sources of imports.

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

/// The source of an import, compressed or not.
pub struct Source {
    input: Input,
    size: Option<u64>,
    consumed: Arc<AtomicU64>,
}

/// The kinds of inputs.
pub(super) enum Input {
    /// A seekable file.
    File(File),
    /// Any other input.
    Stream(Box<dyn Read + Send>),
}

impl Source {
    /// A source from a file. A file that is not seekable, such as a named pipe, is read as a stream.
    pub fn file(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(Self::stream(file));
        }
        Ok(Self { input: Input::File(file), size: Some(metadata.len()), consumed: Arc::default() })
    }

    /// A source from a stream, such as standard input. Reads of the stream may block.
    #[must_use]
    pub fn stream(input: impl Read + Send + 'static) -> Self {
        Self { input: Input::Stream(Box::new(input)), size: None, consumed: Arc::default() }
    }

    /// A source from an asynchronous stream, such as the body of a request. Must be called within a runtime
    /// of tokio.
    #[must_use]
    pub fn async_stream(input: impl AsyncRead + Send + Unpin + 'static) -> Self {
        Self::stream(SyncIoBridge::new(input))
    }

    /// The size of the source, in its compressed form, if it is known.
    #[must_use]
    pub const fn size(&self) -> Option<u64> {
        self.size
    }

    /// Sets the size, if the caller knows it.
    #[must_use]
    pub const fn with_size(mut self, size: Option<u64>) -> Self {
        self.size = size;
        self
    }

    /// Returns the counter of the bytes read so far, in their compressed form. For a 7z archive, the counter shows the
    /// position in the archive.
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

/// An error of the source itself: the disk or the network failed, and the content may be valid.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct SourceError(io::Error);

fn source_error(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), SourceError(error))
}

/// A reader that counts the bytes that it has read. A seek sets the count to the new position.
pub(super) struct CountingReader<R> {
    inner: R,
    consumed: Arc<AtomicU64>,
}

impl<R> CountingReader<R> {
    pub(super) const fn new(inner: R, consumed: Arc<AtomicU64>) -> Self {
        Self { inner, consumed }
    }

    pub(super) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.consumed)
    }
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Ok(count) => {
                self.consumed.fetch_add(count as u64, Ordering::Relaxed);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => Err(source_error(error)),
        }
    }
}

impl<R: Seek> Seek for CountingReader<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = self.inner.seek(to).map_err(source_error)?;
        self.consumed.store(position, Ordering::Relaxed);
        Ok(position)
    }
}
