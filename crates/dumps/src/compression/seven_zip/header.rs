//! The headers of a 7z archive, as `7zFormat.txt` of the LZMA SDK describes them.
//!
//! Before memory is reserved for a number of items, the number is compared with the remaining bytes of the
//! header. An item takes at least one byte, or one bit in a list of bits.

use std::io;

use super::damaged;

/// The size of the start header with the signature.
pub(super) const START_HEADER_BYTES: u64 = 32;

const END: u8 = 0x00;
const HEADER: u8 = 0x01;
const ARCHIVE_PROPERTIES: u8 = 0x02;
const MAIN_STREAMS_INFO: u8 = 0x04;
const FILES_INFO: u8 = 0x05;
const PACK_INFO: u8 = 0x06;
const UNPACK_INFO: u8 = 0x07;
const SUB_STREAMS_INFO: u8 = 0x08;
const SIZE: u8 = 0x09;
const CRC: u8 = 0x0a;
const FOLDER: u8 = 0x0b;
const CODERS_UNPACK_SIZE: u8 = 0x0c;
const NUM_UNPACK_STREAM: u8 = 0x0d;
const EMPTY_STREAM: u8 = 0x0e;
const EMPTY_FILE: u8 = 0x0f;
const NAMES: u8 = 0x11;
const ENCODED_HEADER: u8 = 0x17;

/// The maximum number of files in an archive.
const MAX_FILES: usize = 1 << 20;

/// The header at the beginning of an archive. It has the position of the other header, which is at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StartHeader {
    /// The offset of the other header in the archive.
    pub(super) begin: u64,
    /// The size of the other header.
    pub(super) size: u64,
    /// The checksum of the other header.
    pub(super) crc: u32,
}

impl StartHeader {
    pub(super) fn parse(bytes: &[u8; START_HEADER_BYTES as usize]) -> io::Result<Self> {
        if bytes[6] != 0 {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "the 7z archive has version {}.{} of the format; only 0 is supported",
                    bytes[6], bytes[7]
                ),
            ));
        }
        if crc32(&bytes[12..]) != read_u32(&bytes[8..]) {
            return Err(damaged("the checksum of its start header is wrong"));
        }
        let [offset, size] = [12, 20]
            .map(|at| u64::from(read_u32(&bytes[at..])) | u64::from(read_u32(&bytes[at + 4..])) << 32);
        let begin = START_HEADER_BYTES.checked_add(offset);
        match begin {
            Some(begin) if begin.checked_add(size).is_some() => {
                Ok(Self { begin, size, crc: read_u32(&bytes[28..]) })
            }
            _ => Err(damaged("its start header declares an impossible position")),
        }
    }

    /// The size of the archive.
    pub(super) const fn end(self) -> u64 {
        self.begin + self.size
    }
}

/// The header after the packed streams of an archive.
#[derive(Debug)]
pub(super) enum Header {
    /// The header itself: a table of contents.
    Plain(Contents),
    /// The header is compressed, in these streams.
    Encoded(Streams),
}

/// The contents of an archive.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The number of files. Directories do not count.
    pub(super) files: u64,
    /// The names of the files with content, in the order of the contents. Empty if the archive has no names.
    names: Vec<String>,
    /// The names of the empty files.
    pub(super) empty_names: Vec<String>,
    /// The number of files with content.
    with_content: u64,
    pub(super) streams: Streams,
}

impl Contents {
    /// Returns the name of a file with content.
    pub(super) fn name(&self, index: usize) -> Option<&str> {
        self.names.get(index).map(String::as_str)
    }

    /// Checks that the files with content and the contents are the same number.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.with_content != self.streams.contents {
            return Err(damaged("its list of files does not match its contents"));
        }
        Ok(())
    }
}

/// Packed streams, and for each of them the description of its decompression, which the format calls a folder.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// The offset of the first packed stream from the end of the start header.
    pack_begin: u64,
    pack_sizes: Vec<u64>,
    pub(super) folders: Vec<Folder>,
    /// The number of contents in all folders.
    contents: u64,
}

/// How to decompress a packed stream.
#[derive(Debug)]
pub(super) struct Folder {
    coder: Coder,
    unpack_size: u64,
    crc: Option<u32>,
    /// The number of contents.
    count: u64,
    /// The sizes of the contents.
    pub(super) sizes: Vec<u64>,
    /// The checksums of the contents; empty if none are known.
    pub(super) crcs: Vec<Option<u32>>,
}

/// A method of compression, and its properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Coder {
    pub(super) method: Vec<u8>,
    pub(super) properties: Vec<u8>,
}

/// A packed stream.
#[derive(Debug)]
pub(super) struct PackedStream<'a> {
    /// The offset of the stream in the archive.
    pub(super) begin: u64,
    pub(super) size: u64,
    pub(super) coder: &'a Coder,
    pub(super) unpack_size: u64,
    pub(super) crc: Option<u32>,
}

impl Streams {
    /// Adds the sizes and checksums of the contents that follow from those of their folders.
    fn with_sizes(mut self) -> io::Result<Self> {
        for folder in self.folders.iter_mut().filter(|folder| folder.count > 0) {
            // The size of a folder's last content is not stored: it is the rest of the folder.
            let left = folder.sizes.iter().try_fold(folder.unpack_size, |left, size| left.checked_sub(*size));
            match left {
                Some(left) if folder.sizes.len() as u64 + 1 == folder.count => folder.sizes.push(left),
                _ => return Err(damaged("the sizes of its contents are wrong")),
            }
            if folder.count == 1 && folder.crcs.is_empty() {
                folder.crcs.push(folder.crc);
            }
        }
        Ok(self)
    }

    /// Returns the first stream with content.
    pub(super) fn first_with_content(&self) -> io::Result<PackedStream<'_>> {
        let index = self.folders.iter().position(|folder| folder.count > 0);
        self.packed(index.ok_or_else(|| damaged("no stream in it has content"))?)
    }

    /// Returns the packed stream of a folder, which must exist.
    pub(super) fn packed(&self, index: usize) -> io::Result<PackedStream<'_>> {
        // A folder has one packed stream, as `folder` checks.
        let (folder, size) = (&self.folders[index], self.pack_sizes.get(index));
        let size = *size.ok_or_else(|| damaged("a packed stream has no size"))?;
        let begin = (self.pack_sizes[..index].iter())
            .try_fold(START_HEADER_BYTES.checked_add(self.pack_begin), |begin, size| {
                Some(begin?.checked_add(*size))
            })
            .flatten()
            .ok_or_else(|| damaged("it declares a stream at an impossible position"))?;
        Ok(PackedStream {
            begin,
            size,
            coder: &folder.coder,
            unpack_size: folder.unpack_size,
            crc: folder.crcs.first().copied().flatten(),
        })
    }
}

impl Header {
    pub(super) fn parse(bytes: &[u8]) -> io::Result<Self> {
        let mut fields = Fields { left: bytes };
        let header = match fields.byte()? {
            HEADER => Self::Plain(fields.contents()?),
            ENCODED_HEADER => {
                let mut streams = fields.streams()?;
                // Without a table of contents each folder has one content.
                streams.contents = streams.folders.len() as u64;
                Self::Encoded(streams)
            }
            kind => return Err(unexpected("header", kind)),
        };
        Ok(header)
    }
}

/// The remaining bytes of a header.
struct Fields<'a> {
    left: &'a [u8],
}

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: u64) -> io::Result<&'a [u8]> {
        let split = usize::try_from(count).ok().and_then(|count| self.left.split_at_checked(count));
        let (bytes, left) = split.ok_or_else(|| too_short(count, self.left.len()))?;
        self.left = left;
        Ok(bytes)
    }

    fn byte(&mut self) -> io::Result<u8> {
        Ok(self.bytes(1)?[0])
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(read_u32(self.bytes(4)?))
    }

    /// Reads a number of one to nine bytes. The number of leading one bits in the first byte is the number of
    /// bytes that follow. The rest of the first byte has the highest bits.
    fn number(&mut self) -> io::Result<u64> {
        let first = self.byte()?;
        let more = first.leading_ones();
        let low = self.bytes(u64::from(more))?;
        let low = low.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let high = if more < 7 { u64::from(first & (0x7f >> more)) << (8 * more) } else { 0 };
        Ok(low | high)
    }

    /// Reads the number of items that follow, each of which takes at least one byte.
    fn count(&mut self) -> io::Result<usize> {
        let count = self.number()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.left.len() => Ok(count),
            _ => Err(too_short(count, self.left.len())),
        }
    }

    /// Reads a bit for each of `count` items, highest bit first.
    fn bits(&mut self, count: usize) -> io::Result<Vec<bool>> {
        let bytes = self.bytes(count.div_ceil(8) as u64)?;
        Ok((0..count).map(|item| bytes[item / 8] & (0x80 >> (item % 8)) != 0).collect())
    }

    /// Reads the checksums of `count` items. `None` for an item that has no checksum.
    fn checksums(&mut self, count: usize) -> io::Result<Vec<Option<u32>>> {
        let defined = match self.byte()? {
            0 => self.bits(count)?,
            // Checked before memory is reserved: four bytes follow for each item.
            _ if count <= self.left.len() / 4 => vec![true; count],
            _ => return Err(too_short(count as u64 * 4, self.left.len())),
        };
        defined.into_iter().map(|defined| defined.then(|| self.u32()).transpose()).collect()
    }

    fn contents(&mut self) -> io::Result<Contents> {
        let mut contents = Contents::default();
        loop {
            match self.byte()? {
                END => return Ok(contents),
                ARCHIVE_PROPERTIES => while self.property()?.is_some() {},
                MAIN_STREAMS_INFO => contents.streams = self.streams()?,
                FILES_INFO => self.files(&mut contents)?,
                kind => return Err(unexpected("header", kind)),
            }
        }
    }

    /// Reads a property: its kind, and the bytes of its declared length. `None` at the end of the properties.
    fn property(&mut self) -> io::Result<Option<(u8, &'a [u8])>> {
        let kind = self.byte()?;
        if kind == END {
            return Ok(None);
        }
        let size = self.number()?;
        Ok(Some((kind, self.bytes(size)?)))
    }

    /// Reads the number of files, the number of files with content, and the names of these.
    fn files(&mut self, contents: &mut Contents) -> io::Result<()> {
        let count = self.count()?;
        if count > MAX_FILES {
            return Err(unsupported(&format!("it has {count} files, and at most {MAX_FILES} are allowed")));
        }
        let (mut is_empty, mut without_content, mut is_empty_file) = (Vec::new(), 0, Vec::new());
        let mut names = Vec::new();
        while let Some((kind, bytes)) = self.property()? {
            let mut fields = Fields { left: bytes };
            let ones = |bits: &[bool]| bits.iter().filter(|bit| **bit).count();
            match kind {
                EMPTY_STREAM => {
                    is_empty = fields.bits(count)?;
                    without_content = ones(&is_empty);
                }
                EMPTY_FILE => is_empty_file = fields.bits(without_content)?,
                NAMES if fields.byte()? == 0 => names = fields.names(count)?,
                // Times and attributes.
                _ => {}
            }
        }
        contents.with_content = (count - without_content) as u64;
        contents.files = contents.with_content + is_empty_file.iter().filter(|bit| **bit).count() as u64;
        let mut is_empty_file = is_empty_file.into_iter();
        for (index, name) in names.into_iter().enumerate() {
            if !is_empty.get(index).copied().unwrap_or_default() {
                contents.names.push(name);
            } else if is_empty_file.next().unwrap_or_default() {
                contents.empty_names.push(name);
            }
        }
        Ok(())
    }

    /// Reads names in UTF-16, each of which ends with a zero.
    fn names(&mut self, count: usize) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for _ in 0..count {
            let mut units = Vec::new();
            loop {
                let unit = self.bytes(2)?;
                match u16::from_le_bytes([unit[0], unit[1]]) {
                    0 => break,
                    unit => units.push(unit),
                }
            }
            names.push(String::from_utf16_lossy(&units));
        }
        Ok(names)
    }

    fn streams(&mut self) -> io::Result<Streams> {
        let mut streams = Streams::default();
        loop {
            match self.byte()? {
                END => return streams.with_sizes(),
                PACK_INFO => (streams.pack_begin, streams.pack_sizes) = self.pack_info()?,
                UNPACK_INFO => {
                    streams.folders = self.folders()?;
                    streams.contents = streams.folders.len() as u64;
                }
                SUB_STREAMS_INFO => self.sub_streams(&mut streams)?,
                kind => return Err(unexpected("list of streams", kind)),
            }
        }
    }

    fn pack_info(&mut self) -> io::Result<(u64, Vec<u64>)> {
        let begin = self.number()?;
        let (count, mut sizes) = (self.count()?, Vec::new());
        loop {
            match self.byte()? {
                END => return Ok((begin, sizes)),
                SIZE => sizes = (0..count).map(|_| self.number()).collect::<io::Result<_>>()?,
                CRC => drop(self.checksums(count)?),
                kind => return Err(unexpected("list of packed streams", kind)),
            }
        }
    }

    fn folders(&mut self) -> io::Result<Vec<Folder>> {
        let kind = self.byte()?;
        if kind != FOLDER {
            return Err(unexpected("list of folders", kind));
        }
        let count = self.count()?;
        if self.byte()? != 0 {
            return Err(unsupported("its list of folders is in another stream"));
        }
        let coders = (0..count).map(|_| self.folder()).collect::<io::Result<Vec<_>>>()?;
        let kind = self.byte()?;
        if kind != CODERS_UNPACK_SIZE {
            return Err(unexpected("list of sizes", kind));
        }
        let mut folders = Vec::with_capacity(coders.len());
        for coder in coders {
            folders.push(Folder {
                coder,
                unpack_size: self.number()?,
                crc: None,
                count: 1,
                sizes: Vec::new(),
                crcs: Vec::new(),
            });
        }
        loop {
            match self.byte()? {
                END => return Ok(folders),
                CRC => {
                    for (folder, crc) in folders.iter_mut().zip(self.checksums(count)?) {
                        folder.crc = crc;
                    }
                }
                kind => return Err(unexpected("list of folders", kind)),
            }
        }
    }

    /// Reads the only coder of a folder.
    fn folder(&mut self) -> io::Result<Coder> {
        let coders = self.number()?;
        let flags = self.byte()?;
        let method = self.bytes(u64::from(flags & 0x0f))?.to_vec();
        let (is_complex, has_properties) = (flags & 0x10 != 0, flags & 0x20 != 0);
        if method.starts_with(&[0x06, 0xf1, 0x07]) {
            return Err(unsupported("it is encrypted"));
        }
        if coders != 1 || is_complex || flags & 0xc0 != 0 {
            return Err(unsupported(
                "it needs more than one decoding step (a filter such as BCJ or Delta, or encryption)",
            ));
        }
        let properties = if has_properties { self.number()? } else { 0 };
        Ok(Coder { method, properties: self.bytes(properties)?.to_vec() })
    }

    /// Reads the number of contents in each folder, and their checksums.
    fn sub_streams(&mut self, streams: &mut Streams) -> io::Result<()> {
        let folders = &mut streams.folders;
        loop {
            match self.byte()? {
                END => break,
                NUM_UNPACK_STREAM => {
                    for folder in &mut *folders {
                        folder.count = self.number()?;
                        if folder.count > MAX_FILES as u64 {
                            let what = format!(
                                "a stream of it has {} files; at most {MAX_FILES} are allowed",
                                folder.count
                            );
                            return Err(unsupported(&what));
                        }
                    }
                }
                SIZE => {
                    for folder in &mut *folders {
                        folder.sizes = (1..folder.count).map(|_| self.number()).collect::<io::Result<_>>()?;
                    }
                }
                CRC => {
                    let is_known = |folder: &Folder| folder.count == 1 && folder.crc.is_some();
                    let missing =
                        folders.iter().filter(|folder| !is_known(folder)).map(|folder| folder.count);
                    let missing = missing.fold(0, u64::saturating_add);
                    // Each checksum takes at least one bit.
                    let count = usize::try_from(missing)
                        .ok()
                        .filter(|count| count / 8 <= self.left.len() && *count <= MAX_FILES);
                    let count = count.ok_or_else(|| too_short(missing / 8, self.left.len()))?;
                    let mut checksums = self.checksums(count)?.into_iter();
                    for folder in folders.iter_mut().filter(|folder| !is_known(folder)) {
                        let of_folder = usize::try_from(folder.count).unwrap_or(usize::MAX);
                        folder.crcs = checksums.by_ref().take(of_folder).collect();
                    }
                }
                kind => return Err(unexpected("list of contents", kind)),
            }
        }
        streams.contents = folders.iter().map(|folder| folder.count).fold(0, u64::saturating_add);
        Ok(())
    }
}

fn read_u32(bytes: &[u8]) -> u32 {
    bytes[..4].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn too_short(declared: u64, left: usize) -> io::Error {
    damaged(&format!("its header declares {declared} items or bytes, but only {left} bytes are left"))
}

fn unexpected(what: &str, kind: u8) -> io::Error {
    damaged(&format!("its {what} has an unexpected field of kind {kind:#04x}"))
}

pub(super) fn unsupported(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("the 7z archive cannot be read: {what}; extract it, and import the file inside"),
    )
}
