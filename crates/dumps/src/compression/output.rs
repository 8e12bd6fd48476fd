//! Writes files, compressed in the format of their name's suffix.

use std::{
    fmt,
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use crate::AtomicFile;

/// The zstd level: the default of zstd.
const ZSTD_LEVEL: i32 = 3;

/// A file that is being written, in the format of its name's suffix: `.zst`, `.bz2`, `.gz`, or else
/// uncompressed. The file gets its name in [`Self::finish`]: see [`AtomicFile`].
#[derive(Debug)]
pub struct Output {
    file: AtomicFile,
    encoder: Encoder,
}

enum Encoder {
    None(BufWriter<File>),
    Gzip(flate2::write::GzEncoder<File>),
    Bzip2(bzip2::write::BzEncoder<File>),
    Zstd(zstd::stream::write::Encoder<'static, File>),
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None(_) => "None",
            Self::Gzip(_) => "Gzip",
            Self::Bzip2(_) => "Bzip2",
            Self::Zstd(_) => "Zstd",
        })
    }
}

impl Output {
    /// Creates a file to be written under this name.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = AtomicFile::create(path)?;
        let handle = file.handle()?;
        let encoder = match path.extension().and_then(|ending| ending.to_str()) {
            Some("zst") => {
                let mut encoder = zstd::stream::write::Encoder::new(handle, ZSTD_LEVEL)?;
                encoder.include_checksum(true)?;
                Encoder::Zstd(encoder)
            }
            Some("bz2") => Encoder::Bzip2(bzip2::write::BzEncoder::new(handle, bzip2::Compression::best())),
            Some("gz") => {
                Encoder::Gzip(flate2::write::GzEncoder::new(handle, flate2::Compression::default()))
            }
            _ => Encoder::None(BufWriter::new(handle)),
        };
        Ok(Self { file, encoder })
    }

    /// Completes the file: syncs it, and renames it. Without this call, a file that already has the name is
    /// unchanged.
    pub fn finish(self) -> io::Result<()> {
        match self.encoder {
            Encoder::None(writer) => drop(writer.into_inner()?),
            Encoder::Gzip(encoder) => drop(encoder.finish()?),
            Encoder::Bzip2(encoder) => drop(encoder.finish()?),
            Encoder::Zstd(encoder) => drop(encoder.finish()?),
        }
        self.file.commit()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.encoder {
            Encoder::None(writer) => writer.write(bytes),
            Encoder::Gzip(encoder) => encoder.write(bytes),
            Encoder::Bzip2(encoder) => encoder.write(bytes),
            Encoder::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.encoder {
            Encoder::None(writer) => writer.flush(),
            Encoder::Gzip(encoder) => encoder.flush(),
            Encoder::Bzip2(encoder) => encoder.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
        }
    }
}
