//! 7z archives. The table of contents is at the end, so archives are read from seekable files.
//!
//! Sizes that an archive declares are compared with its real size and with the limits before memory is
//! reserved. Only the archives that dumps need can be read: with one compression method for each file, as dumps and the
//! archives of wikis (a dump with lists and images) have. See decision 0014.

mod header;
mod need;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    sync::{Arc, atomic::AtomicU64},
};

use self::header::{
    Coder, Contents, Header, PackedStream, START_HEADER_BYTES, StartHeader, crc32, unsupported,
};
use super::{
    Compression,
    bzip2_streams::Bzip2Streams,
    memory::{self, MemoryErrors},
    source::CountingReader,
    spool::{SpoolSpace, SpooledFile},
};

/// The maximum size of an archive's header, as stored and decompressed. The header of a dump has some hundred bytes.
/// That of an archive with a wiki's images has about a hundred bytes for each image.
const MAX_HEADER_BYTES: u64 = 4 << 20;

/// The memory that a decoder uses in addition to its dictionary, rounded up.
const DECODER_MEMORY: u64 = 1 << 20;
/// The maximum memory of bzip2: 4 bytes for each byte of a block of 900 kB.
const BZIP2_MEMORY: u64 = 4 << 20;

/// Copies a stream to a temporary file. First compares the size that the archive declares with the limits.
pub(super) fn spool(mut stream: impl Read, space: &Arc<SpoolSpace>) -> io::Result<SpooledFile> {
    let mut start = Vec::with_capacity(START_HEADER_BYTES as usize);
    stream.by_ref().take(START_HEADER_BYTES).read_to_end(&mut start)?;
    let start: [u8; START_HEADER_BYTES as usize] = start.try_into().map_err(|_| cut_short())?;
    space.check(StartHeader::parse(&start)?.end())?;
    space.fill(start.chain(stream))
}

/// Calls `read` with the content of the only file in the archive.
pub(super) fn read<T>(
    file: File,
    consumed: Arc<AtomicU64>,
    memory: u64,
    read: impl FnOnce(&mut dyn Read, Compression) -> T,
) -> io::Result<T> {
    let len = file.metadata()?.len();
    let mut file = CountingReader::new(file, consumed);
    let (contents, packed_end) = read_contents(&mut file, len, memory)?;
    if contents.files != 1 {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "the 7z archive has {} files, and only one is supported here: extract it, and import its files",
                contents.files
            ),
        ));
    }
    contents.check()?;
    let mut content: Box<dyn Read> =
        match contents.streams.folders.iter().any(|folder| !folder.sizes.is_empty()) {
            true => {
                let packed = contents.streams.first_with_content()?;
                Box::new(open_stream(&mut file, packed_end, &packed, memory)?)
            }
            false => Box::new(io::empty()),
        };
    Ok(read(&mut content, Compression::SevenZip))
}

/// A function that is called with the content of each file and its name, if the archive has several.
type Visitor<'a> = dyn FnMut(&mut dyn Read, Compression, Option<&str>) -> bool + 'a;

/// Calls `visit` with the content and the name of each file in the archive, the empty ones first, until it returns
/// `false`. The name is `None` if the archive has only one file.
pub(super) fn read_each(
    file: File,
    consumed: Arc<AtomicU64>,
    memory: u64,
    visit: &mut Visitor<'_>,
) -> io::Result<()> {
    let len = file.metadata()?.len();
    let mut file = CountingReader::new(file, consumed);
    let (contents, packed_end) = read_contents(&mut file, len, memory)?;
    contents.check()?;
    if contents.streams.folders.iter().all(|folder| folder.sizes.is_empty()) {
        visit(&mut io::empty(), Compression::SevenZip, None);
        return Ok(());
    }
    for name in &contents.empty_names {
        if !visit(&mut io::empty(), Compression::SevenZip, Some(name)) {
            return Ok(());
        }
    }
    let mut number = 0;
    for (index, folder) in contents.streams.folders.iter().enumerate() {
        if folder.sizes.is_empty() {
            continue;
        }
        let packed = contents.streams.packed(index)?;
        let mut decoder = open_packed(&mut file, packed_end, &packed, memory)?;
        for (position, size) in folder.sizes.iter().enumerate() {
            let crc = folder.crcs.get(position).copied().flatten();
            let mut content = ContentReader::new(&mut decoder, *size, crc);
            let name = (contents.files > 1).then(|| contents.name(number).unwrap_or("a file without a name"));
            number += 1;
            if !visit(&mut content, Compression::SevenZip, name) {
                return Ok(());
            }
            // The next content follows in the same stream.
            io::copy(&mut content, &mut io::sink())?;
        }
    }
    Ok(())
}

/// Reads the table of contents. Also returns an upper bound of the offset at which the packed streams end.
fn read_contents(file: &mut CountingReader<File>, len: u64, memory: u64) -> io::Result<(Contents, u64)> {
    let mut start = [0; START_HEADER_BYTES as usize];
    file.seek(SeekFrom::Start(0))?;
    file.read_exact(&mut start)?;
    let start = StartHeader::parse(&start)?;
    if start.end() > len {
        return Err(cut_short());
    }
    if start.end() < len {
        let more = len - start.end();
        return Err(damaged(&format!("{more} bytes follow its end")));
    }
    check_header_size(start.size)?;
    let bytes = read_exactly(&mut *file, start.begin, start.size)?;
    if crc32(&bytes) != start.crc {
        return Err(damaged("the checksum of its header is wrong"));
    }
    if bytes.is_empty() {
        return Ok((Contents::default(), start.begin));
    }
    let header = match Header::parse(&bytes)? {
        Header::Plain(contents) => return Ok((contents, start.begin)),
        Header::Encoded(streams) => {
            let packed = streams.first_with_content()?;
            check_header_size(packed.unpack_size)?;
            let mut header = Vec::new();
            open_stream(file, start.begin, &packed, memory)?.read_to_end(&mut header)?;
            header
        }
    };
    match Header::parse(&header)? {
        Header::Plain(contents) => Ok((contents, start.begin)),
        Header::Encoded(_) => Err(unsupported("its header is compressed more than once")),
    }
}

fn check_header_size(size: u64) -> io::Result<()> {
    if size > MAX_HEADER_BYTES {
        return Err(unsupported(&format!(
            "its header has {size} bytes, and at most {MAX_HEADER_BYTES} are allowed"
        )));
    }
    Ok(())
}

/// Reads exactly `size` bytes at an offset. The caller has compared `size` with a limit.
fn read_exactly(file: &mut (impl Read + Seek), begin: u64, size: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < size { Err(cut_short()) } else { Ok(bytes) }
}

/// Opens a stream for decompression, and checks its size and checksum. The stream must end at `end` or before.
fn open_stream<'a>(
    file: &'a mut CountingReader<File>,
    end: u64,
    packed: &PackedStream<'_>,
    memory: u64,
) -> io::Result<ContentReader<Box<dyn Read + 'a>>> {
    let decoder = open_packed(file, end, packed, memory)?;
    Ok(ContentReader::new(decoder, packed.unpack_size, packed.crc))
}

/// Opens a stream for decompression. The stream must end at `end` or before.
fn open_packed<'a>(
    file: &'a mut CountingReader<File>,
    end: u64,
    packed: &PackedStream<'_>,
    memory: u64,
) -> io::Result<Box<dyn Read + 'a>> {
    if packed.begin.checked_add(packed.size).is_none_or(|packed_end| packed_end > end) {
        return Err(damaged("it declares a stream that is not within the archive"));
    }
    file.seek(SeekFrom::Start(packed.begin))?;
    let input = BufReader::with_capacity(1 << 16, file.take(packed.size));
    make_decoder(input, packed, memory)
}

/// Makes the decoder of a compression method, within the memory limit.
fn make_decoder<'a>(
    input: impl BufRead + 'a,
    packed: &PackedStream<'_>,
    memory: u64,
) -> io::Result<Box<dyn Read + 'a>> {
    let PackedStream { coder: Coder { method, properties }, size: packed, unpack_size: unpacked, .. } =
        *packed;
    let wrong_properties = || damaged("the properties of its compression method are wrong");
    let raw = |filters: &liblzma::stream::Filters| liblzma::stream::Stream::new_raw_decoder(filters);
    Ok(match (&method[..], &properties[..]) {
        ([] | [0x00], []) => Box::new(input),
        ([0x03, 0x01, 0x01], &[a, b, c, d, e]) => {
            let (properties, dictionary) = need::lzma([a, b, c, d, e], unpacked);
            memory::check("LZMA", dictionary.saturating_add(DECODER_MEMORY), memory)?;
            let mut filters = liblzma::stream::Filters::new();
            let stream = raw(filters.lzma1_properties(&properties).map_err(|_| wrong_properties())?)?;
            let decoder = liblzma::bufread::XzDecoder::new_stream(input, stream);
            Box::new(MemoryErrors::new(decoder, "LZMA", memory))
        }
        ([0x21], &[declared @ 0..=40]) => {
            let (property, dictionary) = need::lzma2(declared, unpacked);
            memory::check("LZMA2", dictionary.saturating_add(DECODER_MEMORY), memory)?;
            let mut filters = liblzma::stream::Filters::new();
            let stream = raw(filters.lzma2_properties(&[property]).map_err(|_| wrong_properties())?)?;
            let decoder = liblzma::bufread::XzDecoder::new_stream(input, stream);
            Box::new(MemoryErrors::new(decoder, "LZMA2", memory))
        }
        ([0x03, 0x04, 0x01], &[order, a, b, c, d]) => {
            if unpacked > need::ppmd_unpacked(packed) {
                return Err(damaged("it declares more content than its packed bytes can unpack to"));
            }
            let model = need::ppmd(u32::from_le_bytes([a, b, c, d]), u32::from(order), unpacked);
            memory::check("PPMd", u64::from(model).saturating_add(DECODER_MEMORY), memory)?;
            let decoder = ppmd_rust::Ppmd7Decoder::new(input, u32::from(order), model);
            Box::new(decoder.map_err(|_| wrong_properties())?)
        }
        ([0x04, 0x02, 0x02], []) => {
            memory::check("bzip2", BZIP2_MEMORY, memory)?;
            Box::new(Bzip2Streams::new(input))
        }
        ([0x03, 0x01, 0x01] | [0x21] | [0x03, 0x04, 0x01], _) => return Err(wrong_properties()),
        (method, _) => {
            let method: String = method.iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(unsupported(&format!(
                "its compression method {method} is not supported; LZMA, LZMA2, PPMd, bzip2 and \
                 uncompressed data are"
            )));
        }
    })
}

/// A reader of a content with a declared size and perhaps a checksum. Reading fails if the content is shorter than
/// declared, or if its checksum is wrong. More content than declared is not read.
struct ContentReader<R> {
    decoder: R,
    left: u64,
    crc: flate2::Crc,
    expected: Option<u32>,
}

impl<R> ContentReader<R> {
    fn new(decoder: R, left: u64, expected: Option<u32>) -> Self {
        Self { decoder, left, crc: flate2::Crc::new(), expected }
    }
}

impl<R: Read> Read for ContentReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if len == 0 {
            return match self.expected {
                Some(expected) if self.left == 0 && expected != self.crc.sum() => {
                    Err(damaged("the checksum of its content is wrong"))
                }
                _ => Ok(0),
            };
        }
        let count = match self.decoder.read(&mut buffer[..len]) {
            Ok(count) => count,
            // The archive is complete, so an early end of the packed data means a wrong size, and not a
            // truncated input.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !super::source_failed(&error) => 0,
            Err(error) => return Err(error),
        };
        if count == 0 {
            return Err(damaged(&format!("its content ends {} bytes before its declared end", self.left)));
        }
        self.left -= count as u64;
        self.crc.update(&buffer[..count]);
        Ok(count)
    }
}

fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the 7z archive is shorter than it declares")
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the 7z archive cannot be read: {what}"))
}

#[cfg(test)]
mod tests;
