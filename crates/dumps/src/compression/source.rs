//! The sources of imports.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::io::AsyncRead;
use tokio_util::io::SyncIoBridge;

use super::{Compression, DecompressionLimits, MAGIC_BYTES, first_bytes, seven_zip};

/// The maximum number of bytes of a stream that [`Source::look`] reads. A compressed block, or the metadata of a wiki,
/// has fewer.
const MAX_LOOK_BYTES: usize = 4 << 20;

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

    /// Calls `look` with a source that has the content of this one, and returns the result with a source that still has
    /// the whole content. `look` should read no more than the beginning: of a stream, it can read 4 MiB. A 7z archive
    /// that comes as a stream is copied to a temporary file first. May block.
    pub fn look<T>(
        self,
        limits: &DecompressionLimits,
        look: impl FnOnce(Self) -> T,
    ) -> io::Result<(T, Self)> {
        let Self { input, size, consumed } = self;
        let stream = match input {
            Input::File(mut file) => {
                let looked = look(Self::file(file.try_clone()?)?);
                file.rewind()?;
                return Ok((looked, Self { input: Input::File(file), size, consumed }));
            }
            Input::Stream(mut stream) => {
                let magic = first_bytes(&mut stream).map_err(source_error)?;
                let is_archive = Compression::detect(&magic) == Compression::SevenZip;
                let whole = io::Cursor::new(magic).chain(stream);
                if is_archive {
                    let spooled = seven_zip::spool(whole, &limits.spool)?;
                    return Self::file(spooled.file()?)?.look(limits, look);
                }
                whole
            }
        };
        let begun =
            Arc::new(Mutex::new(Begun { stream: Box::new(stream), read: Vec::with_capacity(MAGIC_BYTES) }));
        let looked = look(Self::stream(BegunReader(Arc::clone(&begun))));
        let begun = Arc::into_inner(begun).ok_or_else(|| io::Error::other("the input is in use"))?;
        let Begun { stream, read } = begun.into_inner().unwrap_or_else(PoisonError::into_inner);
        let input = Input::Stream(Box::new(io::Cursor::new(read).chain(stream)));
        Ok((looked, Self { input, size, consumed }))
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

/// A stream of which only the beginning is read.
struct Begun {
    stream: Box<dyn Read + Send>,
    /// The bytes that were read.
    read: Vec<u8>,
}

/// Reads the beginning of a stream. Fails after [`MAX_LOOK_BYTES`].
struct BegunReader(Arc<Mutex<Begun>>);

impl Read for BegunReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_LOOK_BYTES.saturating_sub(begun.read.len());
        if room == 0 && !buffer.is_empty() {
            return Err(io::Error::other("only the beginning of the input is read"));
        }
        let room = room.min(buffer.len());
        let count = begun.stream.read(&mut buffer[..room])?;
        begun.read.extend_from_slice(&buffer[..count]);
        Ok(count)
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
