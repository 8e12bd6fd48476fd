//! Reading and writing compressed data.
//!
//! The format of an input is recognised by its first bytes, never by its name: standard input has no name,
//! and names are often wrong. The format of an output is chosen by the suffix of its name, because nothing
//! else tells which format the user wants.

mod bzip2_streams;
mod gzip_members;
mod memory;
mod output;
mod seven_zip;
mod source;
mod spool;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read, Seek},
    sync::{Arc, atomic::AtomicU64},
};

pub(crate) use self::spool::{SpoolError, SpooledFile};
use self::{
    bzip2_streams::Bzip2Streams,
    gzip_members::{GzipMembers, skip_zeros},
    memory::MemoryErrors,
    source::{CountingReader, Input},
};
pub use self::{output::Output, source::Source, spool::SpoolSpace};

/// A compression format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    None,
    /// RFC 1952, with any number of members.
    Gzip,
    /// bzip2, with any number of streams.
    Bzip2,
    /// xz, with any number of streams.
    Xz,
    /// The older format of xz, without magic bytes and checksum.
    Lzma,
    /// RFC 8878, with any number of frames.
    Zstd,
    /// A 7z archive, each of whose files is compressed by one method.
    SevenZip,
}

/// The number of bytes at the beginning of an input by which its format is recognised.
const MAGIC_BYTES: usize = 6;

impl Compression {
    fn detect(first: &[u8]) -> Self {
        match first {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Self::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => Self::SevenZip,
            // The default properties of all encoders, and a dictionary whose size is a multiple of 64 KiB.
            [0x5d, 0, 0, ..] => Self::Lzma,
            _ => Self::None,
        }
    }
}

/// Limits on the resources that decompression may use.
#[derive(Debug, Clone)]
pub struct DecompressionLimits {
    /// The maximum memory of decompression, in bytes. The amount that an input needs is compared with this limit
    /// before memory is reserved. Gzip and bzip2 streams are not checked: they never use more than 5 MB.
    pub memory: u64,
    /// The disk space for 7z archives that come as streams. Such an archive must be complete before it can be
    /// read, since its table of contents is at the end.
    pub spool: Arc<SpoolSpace>,
}

impl Default for DecompressionLimits {
    /// The limits that the largest dumps need: windows and dictionaries of 2 GiB, and archives of 64 GiB.
    fn default() -> Self {
        const SPOOL: u64 = 64 << 30;
        Self { memory: (2 << 30) + (64 << 20), spool: Arc::new(SpoolSpace::new(SPOOL, SPOOL)) }
    }
}

/// Calls `read` with the decompressed content of the source and the detected format.
///
/// The reader reaches its end only if the compressed data is complete. Reading fails if the compressed data is cut
/// short, or if other data follows it; zeros may follow gzip, bzip2, xz and lzma data. It also fails if the data is
/// damaged, as far as the format detects that. If the data is cut short, the error's kind is `UnexpectedEof`.
/// [`source_failed`] recognises an error of the source itself.
pub fn read<T>(
    source: Source,
    limits: &DecompressionLimits,
    read: impl FnOnce(&mut dyn Read, Compression) -> T,
) -> io::Result<T> {
    match source.into_parts() {
        (Input::File(file), consumed) => {
            let compression = detect_in_file(&file, &consumed)?;
            if compression == Compression::SevenZip {
                return seven_zip::read(file, consumed, limits.memory, read);
            }
            read_stream(Box::new(CountingReader::new(file, consumed)), compression, limits, read)
        }
        (Input::Stream(input), consumed) => {
            let mut input = CountingReader::new(input, consumed);
            let magic = first_bytes(&mut input)?;
            let compression = Compression::detect(&magic);
            let counter = input.counter();
            let whole = Cursor::new(magic).chain(input);
            if compression == Compression::SevenZip {
                let spooled = seven_zip::spool(whole, &limits.spool)?;
                return seven_zip::read(spooled.file()?, counter, limits.memory, read);
            }
            read_stream(Box::new(whole), compression, limits, read)
        }
    }
}

/// Like [`read`], but an archive may have several files. Calls `visit` with the content and the name of each file, one
/// after the other, until it returns `false`. The name is `None` if there is only one content.
pub fn read_each(
    source: Source,
    limits: &DecompressionLimits,
    mut visit: impl FnMut(&mut dyn Read, Compression, Option<&str>) -> bool,
) -> io::Result<()> {
    match source.into_parts() {
        (Input::File(file), consumed) => {
            let compression = detect_in_file(&file, &consumed)?;
            if compression == Compression::SevenZip {
                return seven_zip::read_each(file, consumed, limits.memory, &mut visit);
            }
            let input = Box::new(CountingReader::new(file, consumed));
            read_stream(input, compression, limits, |input, compression| visit(input, compression, None))?;
        }
        (Input::Stream(input), consumed) => {
            let mut input = CountingReader::new(input, consumed);
            let magic = first_bytes(&mut input)?;
            let compression = Compression::detect(&magic);
            let counter = input.counter();
            let whole = Cursor::new(magic).chain(input);
            if compression == Compression::SevenZip {
                let spooled = seven_zip::spool(whole, &limits.spool)?;
                return seven_zip::read_each(spooled.file()?, counter, limits.memory, &mut visit);
            }
            read_stream(Box::new(whole), compression, limits, |input, compression| {
                visit(input, compression, None)
            })?;
        }
    }
    Ok(())
}

/// Whether an error of a reader from [`read`] came from the source itself (a disk or the network), and not from its
/// content.
#[must_use]
pub fn source_failed(error: &io::Error) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<source::SourceError>()).is_some()
}

/// Detects the format of a file, and rewinds the file. [`source_failed`] recognises its errors.
fn detect_in_file(file: &File, consumed: &Arc<AtomicU64>) -> io::Result<Compression> {
    let mut input = CountingReader::new(file, Arc::clone(consumed));
    let magic = first_bytes(&mut input)?;
    input.rewind()?;
    Ok(Compression::detect(&magic))
}

fn first_bytes(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut magic = Vec::with_capacity(MAGIC_BYTES);
    input.take(MAGIC_BYTES as u64).read_to_end(&mut magic)?;
    Ok(magic)
}

fn read_stream<T>(
    input: Box<dyn Read + Send + '_>,
    compression: Compression,
    limits: &DecompressionLimits,
    read: impl FnOnce(&mut dyn Read, Compression) -> T,
) -> io::Result<T> {
    let input = BufReader::with_capacity(1 << 16, input);
    let mut reader: Box<dyn Read> = match compression {
        Compression::None | Compression::SevenZip => Box::new(input),
        Compression::Gzip => Box::new(GzipMembers::new(input)),
        Compression::Bzip2 => Box::new(Bzip2Streams::new(input)),
        Compression::Xz => {
            let concatenated = liblzma::stream::CONCATENATED;
            let stream = liblzma::stream::Stream::new_stream_decoder(limits.memory, concatenated)?;
            let decoder = liblzma::bufread::XzDecoder::new_stream(input, stream);
            Box::new(MemoryErrors::new(decoder, "xz", limits.memory))
        }
        Compression::Lzma => {
            let stream = liblzma::stream::Stream::new_lzma_decoder(limits.memory)?;
            let decoder = NoTrailingData(liblzma::bufread::XzDecoder::new_stream(input, stream));
            Box::new(MemoryErrors::new(decoder, "lzma", limits.memory))
        }
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
            decoder.window_log_max(memory::zstd_window_log(limits.memory))?;
            Box::new(MemoryErrors::new(decoder, "zstd", limits.memory))
        }
    };
    Ok(read(&mut reader, compression))
}

/// A reader that fails if other data than zeros follows the compressed data. Files in the lzma format cannot be
/// concatenated, so the decoder does not check this.
struct NoTrailingData<R>(liblzma::bufread::XzDecoder<R>);

impl<R: BufRead> Read for NoTrailingData<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        if count == 0 && !buffer.is_empty() {
            skip_zeros(self.0.get_mut(), "lzma")?;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
