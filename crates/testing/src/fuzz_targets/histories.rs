//! Dumps: each decompressor, and the readers of the two formats.

use std::{
    io::{self, Cursor, Read},
    sync::Arc,
};

use rashomon_dumps::{
    DecompressionLimits, Event, HistoryReader, ReadLimits, Source, SpoolSpace, compression,
};

/// The memory limit of decompression. It is low, so that the fuzzer's own limit finds code that exceeds it.
const MEMORY: u64 = 16 << 20;
/// The maximum number of decompressed bytes that are read, since small inputs may expand very much.
const MAX_OUTPUT: u64 = 4 << 20;
/// The size limit of a text and of a line.
const MAX_PART: usize = 1 << 16;

/// Decompresses an input that starts with these magic bytes.
fn decompress(magic: &[u8], input: &[u8]) {
    let input = [magic, input].concat();
    let spool = Arc::new(SpoolSpace::new(1 << 20, 1 << 20));
    let limits = DecompressionLimits { memory: MEMORY, spool: Arc::clone(&spool) };
    let source = Source::stream(Cursor::new(input));
    let mut left = MAX_OUTPUT;
    let _ = compression::read_each(source, &limits, |reader, _, _| {
        let read = io::copy(&mut reader.take(left), &mut io::sink());
        left -= read.as_ref().map_or(left, |read| *read);
        left > 0
    });
    assert_eq!(spool.used(), 0, "all space of the spool is released");
}

/// Any bytes after the magic bytes of gzip are decompressed or return an error, within the limits.
pub fn gzip(input: &[u8]) {
    decompress(&[0x1f, 0x8b], input);
}

/// Any bytes after the magic bytes of bzip2 are decompressed or return an error, within the limits.
pub fn bzip2(input: &[u8]) {
    decompress(b"BZh9", input);
}

/// Any bytes after the magic bytes of xz are decompressed or return an error, within the limits.
pub fn xz(input: &[u8]) {
    decompress(b"\xfd7zXZ\0", input);
}

/// Any bytes after the first bytes of lzma are decompressed or return an error, within the limits.
pub fn lzma(input: &[u8]) {
    decompress(&[0x5d, 0, 0], input);
}

/// Any bytes after the magic bytes of zstd are decompressed or return an error, within the limits.
pub fn zstd(input: &[u8]) {
    decompress(&[0x28, 0xb5, 0x2f, 0xfd], input);
}

/// Any packed bytes with any header are an archive or return an error, within the limits. The first byte of the input
/// is the number of packed bytes. The target computes the start header, because the fuzzer would never guess its
/// checksum.
pub fn seven_zip(input: &[u8]) {
    let Some((split, input)) = input.split_first() else { return };
    let (packed, header) = input.split_at(input.len().min(usize::from(*split)));
    let fields = [
        &(packed.len() as u64).to_le_bytes()[..],
        &(header.len() as u64).to_le_bytes(),
        &crc32(header).to_le_bytes(),
    ]
    .concat();
    let start = [b"\0\x04", &crc32(&fields).to_le_bytes()[..], &fields].concat();
    decompress(b"7z\xbc\xaf\x27\x1c", &[&start, packed, header].concat());
    // The unchanged input is tried too, with any start header.
    decompress(b"7z\xbc\xaf\x27\x1c", input);
}

/// Any bytes are decompressed and parsed, or return an error. Their beginning determines the format.
pub fn plain(input: &[u8]) {
    decompress(b"", input);
    history(input);
}

/// Any bytes after the beginning of an XML document are parsed to events or an error.
pub fn xml(input: &[u8]) {
    history(&[b"<", input].concat());
}

/// Any bytes after the beginning of JSON lines are parsed to events or an error.
pub fn json_lines(input: &[u8]) {
    history(&[b"{", input].concat());
}

fn history(input: &[u8]) {
    // All events of an input that is read to its end.
    let mut whole = None;
    for skip_broken in [false, true] {
        let limits = ReadLimits { text: MAX_PART, line: MAX_PART, skip_broken, ..ReadLimits::default() };
        let Ok(mut reader) = HistoryReader::new(input, limits) else { return };
        let mut events = Vec::new();
        let end = loop {
            match reader.next() {
                Ok(Some(event)) => events.push(event),
                end => break end,
            }
        };
        assert!(matches!(reader.next(), Ok(None)), "nothing comes after the end or an error");
        let has_broken = events.iter().any(|event| matches!(event, Event::Broken(_)));
        assert!(skip_broken || !has_broken, "a broken page is an error unless it is to be skipped");
        match (skip_broken, end) {
            (false, Ok(_)) => whole = Some(events),
            (true, Ok(_)) if !has_broken && whole.is_some() => {
                assert_eq!(whole, Some(events), "an input without broken pages is read the same");
                return;
            }
            _ => {}
        }
    }
}

/// The CRC-32 that 7z uses.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}
