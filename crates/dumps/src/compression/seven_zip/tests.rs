use std::io::{Cursor, Write};

use super::*;
use crate::{DecompressionLimits, Source};

const TEXT: &[u8] = b"<mediawiki>The quick brown fox jumps over the lazy dog, again and again.</mediawiki>\n";
/// The memory limit of a server.
const MEMORY: u64 = 256 << 20;
/// A size that no machine has.
const HUGE: u64 = 1 << 60;

/// A number in its longest encoding.
fn number(number: u64) -> Vec<u8> {
    [&[0xff][..], &number.to_le_bytes()].concat()
}

/// An archive of packed streams with this header.
fn archive(packed: &[u8], header: &[u8]) -> Vec<u8> {
    let start = start_header(packed.len() as u64, header.len() as u64, crc32(header));
    [&start, packed, header].concat()
}

fn start_header(offset: u64, size: u64, crc: u32) -> Vec<u8> {
    let fields = [&offset.to_le_bytes()[..], &size.to_le_bytes(), &crc.to_le_bytes()].concat();
    [b"7z\xbc\xaf\x27\x1c\x00\x04", &crc32(&fields).to_le_bytes()[..], &fields].concat()
}

/// A folder of one coder.
fn coder(method: &[u8], properties: &[u8]) -> Vec<u8> {
    let flags = u8::try_from(method.len()).unwrap() | 0x20;
    [&number(1)[..], &[flags], method, &number(properties.len() as u64), properties].concat()
}

/// A list with one stream of `packed` bytes, which unpacks to `unpacked` bytes.
fn streams(packed: u64, coder: &[u8], unpacked: u64, crc: u32) -> Vec<u8> {
    let crc = crc.to_le_bytes();
    let pack_info = [&[6][..], &number(0), &number(1), &[9], &number(packed), &[0]].concat();
    let unpack_info =
        [&[7, 0x0b][..], &number(1), &[0], coder, &[0x0c], &number(unpacked), &[0x0a, 1], &crc, &[0]]
            .concat();
    [&pack_info[..], &unpack_info, &[0]].concat()
}

/// The header of an archive with one file.
fn header(streams: &[u8]) -> Vec<u8> {
    [&[1, 4][..], streams, &[5], &number(1), &[0, 0]].concat()
}

/// An archive with one file, compressed by this coder.
fn one_file(packed: &[u8], coder: &[u8]) -> Vec<u8> {
    archive(packed, &header(&streams(packed.len() as u64, coder, TEXT.len() as u64, crc32(TEXT))))
}

fn raw(filters: &liblzma::stream::Filters, text: &[u8]) -> Vec<u8> {
    let stream = liblzma::stream::Stream::new_raw_encoder(filters).unwrap();
    let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn lzma1(text: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut filters = liblzma::stream::Filters::new();
    filters.lzma1(liblzma::stream::LzmaOptions::new_preset(6).unwrap().dict_size(1 << 20));
    (raw(&filters, text), coder(&[3, 1, 1], &[0x5d, 0, 0, 0x10, 0]))
}

/// Reads an input as a file and as a stream. Checks that both succeed, or that both fail.
fn read_all(input: &[u8], memory: u64) -> io::Result<Vec<u8>> {
    let limits = DecompressionLimits { memory, ..DecompressionLimits::default() };
    let read = |source| {
        let mut all = Vec::new();
        super::super::read(source, &limits, |reader, _| reader.read_to_end(&mut all))?.map(|_| all)
    };
    let mut file = tempfile::tempfile()?;
    file.write_all(input)?;
    file.rewind()?;
    let of_file = read(Source::file(file)?);
    let of_stream = read(Source::stream(Cursor::new(input.to_vec())));
    assert_eq!(of_file.is_ok(), of_stream.is_ok(), "{of_file:?} {of_stream:?}");
    of_file
}

#[track_caller]
fn refused(input: &[u8], kind: io::ErrorKind, words: &str) {
    let error = read_all(input, MEMORY).unwrap_err();
    assert!(error.kind() == kind && error.to_string().contains(words), "{:?}: {error}", error.kind());
}

#[test]
fn every_method_is_read_with_plain_and_compressed_headers() {
    let mut lzma2 = liblzma::stream::Filters::new();
    lzma2.lzma2(liblzma::stream::LzmaOptions::new_preset(6).unwrap().dict_size(1 << 20));
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    bzip2.write_all(TEXT).unwrap();
    let mut ppmd = ppmd_rust::Ppmd7Encoder::new(Vec::new(), 6, 1 << 20).unwrap();
    ppmd.write_all(TEXT).unwrap();
    let archives = [
        (TEXT.to_vec(), coder(&[0], &[])),
        lzma1(TEXT),
        (raw(&lzma2, TEXT), coder(&[0x21], &[16])),
        (bzip2.finish().unwrap(), coder(&[4, 2, 2], &[])),
        (ppmd.finish(false).unwrap(), coder(&[3, 4, 1], &[6, 0, 0, 0x10, 0])),
    ];
    for (packed, coder) in archives {
        assert_eq!(read_all(&one_file(&packed, &coder), MEMORY).unwrap(), TEXT, "{coder:?}");
        // The same archive with a compressed header after the packed stream.
        let plain = header(&streams(packed.len() as u64, &coder, TEXT.len() as u64, crc32(TEXT)));
        let (packed_header, header_coder) = lzma1(&plain);
        let mut encoded =
            streams(packed_header.len() as u64, &header_coder, plain.len() as u64, crc32(&plain));
        encoded[1..10].copy_from_slice(&number(packed.len() as u64));
        let input = archive(&[packed, packed_header].concat(), &[&[0x17][..], &encoded].concat());
        assert_eq!(read_all(&input, MEMORY).unwrap(), TEXT, "{coder:?}");
    }
}

#[test]
fn start_header_that_declares_more_than_the_file_has_is_refused() {
    for (offset, size) in
        [(0, 1 << 46), (1 << 46, 10), (0, 33), (u64::MAX, 1), (HUGE, HUGE), (u64::MAX - 32, 64)]
    {
        let input = start_header(offset, size, 0);
        assert!(read_all(&input, MEMORY).is_err(), "{offset} {size}");
    }
    refused(&start_header(0, 1 << 46, 0), io::ErrorKind::UnexpectedEof, "shorter than it declares");
}

#[test]
fn declared_counts_are_compared_with_the_bytes_of_the_header() {
    let folder = coder(&[0x21], &[16]);
    let cases: Vec<Vec<u8>> = vec![
        // Files.
        [&[1, 5][..], &number(HUGE), &[0, 0]].concat(),
        // Packed streams, with sizes or checksums.
        [&[1, 4, 6][..], &number(0), &number(HUGE), &[9]].concat(),
        [&[1, 4, 6][..], &number(0), &number(HUGE), &[0x0a, 1]].concat(),
        // Folders, coders, and properties of a coder.
        [&[1, 4, 7, 0x0b][..], &number(HUGE), &[0]].concat(),
        [&[1, 4, 7, 0x0b][..], &number(1), &[0], &number(HUGE), &[0x01, 0x21]].concat(),
        [&[1, 4, 7, 0x0b][..], &number(1), &[0], &number(1), &[0x21, 0x21], &number(HUGE)].concat(),
        // Streams in and out of a coder.
        [&[1, 4, 7, 0x0b][..], &number(1), &[0], &number(1), &[0x11, 0x21], &number(HUGE), &number(HUGE)]
            .concat(),
        // Contents of a folder, with sizes and with checksums.
        [&[1, 4, 7, 0x0b][..], &number(1), &[0], &folder, &[0x0c, 1, 0, 8, 0x0d], &number(HUGE), &[9]]
            .concat(),
        [&[1, 4, 7, 0x0b][..], &number(1), &[0], &folder, &[0x0c, 1, 0, 8, 0x0d], &number(HUGE), &[0x0a, 1]]
            .concat(),
        // The length of a name.
        [&[1, 5][..], &number(1), &[0x11], &number(HUGE)].concat(),
        // A property of the archive.
        [&[1, 2, 1][..], &number(u64::MAX)].concat(),
    ];
    for header in cases {
        let error = read_all(&archive(b"", &header), MEMORY).unwrap_err();
        let kinds = [io::ErrorKind::InvalidData, io::ErrorKind::Unsupported];
        assert!(kinds.contains(&error.kind()), "{header:x?}: {error}");
    }
}

#[test]
fn dictionaries_and_models_are_compared_with_the_memory_limit() {
    let packed = vec![0; 2 << 20];
    for (coder, unpacked) in [
        (coder(&[3, 1, 1], &[0x5d, 0xff, 0xff, 0xff, 0xff]), HUGE),
        (coder(&[0x21], &[40]), HUGE),
        (coder(&[3, 4, 1], &[6, 0xdb, 0xff, 0xff, 0xff]), 1 << 30),
        (coder(&[3, 4, 1], &[6, 0, 0, 0, 0x10]), 1 << 30),
    ] {
        let declared = header(&streams(packed.len() as u64, &coder, unpacked, 0));
        refused(&archive(&packed, &declared), io::ErrorKind::FileTooLarge, "smaller dictionary");
        // The compressed header itself is decompressed too, and must be small.
        let encoded = streams(packed.len() as u64, &coder, unpacked, 0);
        let input = archive(&packed, &[&[0x17][..], &encoded].concat());
        refused(&input, io::ErrorKind::Unsupported, "its header has");
    }
}

#[test]
fn dictionaries_and_models_are_not_larger_than_the_content_needs() {
    let mut lzma2 = liblzma::stream::Filters::new();
    lzma2.lzma2(liblzma::stream::LzmaOptions::new_preset(6).unwrap().dict_size(1 << 20));
    let mut ppmd = ppmd_rust::Ppmd7Encoder::new(Vec::new(), 6, 1 << 20).unwrap();
    ppmd.write_all(TEXT).unwrap();
    for (packed, coder) in [
        (lzma1(TEXT).0, coder(&[3, 1, 1], &[0x5d, 0xff, 0xff, 0xff, 0xff])),
        (raw(&lzma2, TEXT), coder(&[0x21], &[40])),
        (ppmd.finish(false).unwrap(), coder(&[3, 4, 1], &[6, 0, 0, 0, 0xf0])),
    ] {
        let needed = DECODER_MEMORY + (128 << 10);
        assert_eq!(read_all(&one_file(&packed, &coder), needed).unwrap(), TEXT, "{coder:?}");
    }
}

#[test]
fn ppmd_with_an_impossible_size_is_refused() {
    let coder = coder(&[3, 4, 1], &[64, 0, 0, 0xe0, 0x0f]);
    let declared = |unpacked| archive(&[0; 20], &header(&streams(20, &coder, unpacked, 0)));
    refused(&declared(1 << 40), io::ErrorKind::InvalidData, "can unpack to");
    refused(&declared(20 * 2837 + 1), io::ErrorKind::InvalidData, "can unpack to");
    // The limit allows the largest model that a content of 20 * 2837 bytes can use. This model is smaller
    // than the declared 254 MiB.
    let limit = DECODER_MEMORY + (70 << 20);
    let error = read_all(&declared(20 * 2837), limit).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
}

/// The content of `fixtures/ppmd_model_254m.7z`: lines of a random word and a random number.
fn words_and_numbers() -> String {
    let mut state: u32 = 1;
    let mut below = |bound| {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12345) & 0x7fff_ffff;
        (state >> 8) % bound
    };
    let lines: Vec<_> = (0..3000).map(|_| format!("w{} {}", below(400), below(50))).collect();
    lines.join("\n")
}

/// Written by 7-Zip 26.02: `7zz a -si -m0=PPMd:mem=254m:o=32 -mhc=off ppmd_model_254m.7z`. With standard
/// input 7-Zip does not know the size, so it does not choose a smaller model.
#[test]
fn archive_of_7zip_with_a_large_model_is_read_in_little_memory() {
    let archive = include_bytes!("../../../tests/fixtures/ppmd_model_254m.7z");
    let memory = DECODER_MEMORY + (20 << 20);
    assert_eq!(read_all(archive, memory).unwrap(), words_and_numbers().into_bytes());
}

#[test]
fn large_nested_and_invalid_compressed_headers_are_refused() {
    let (packed, coder) = lzma1(TEXT);
    let size = packed.len() as u64;
    let encoded = |unpacked| [&[0x17][..], &streams(size, &coder, unpacked, crc32(TEXT))].concat();
    refused(&archive(&packed, &encoded(1 << 50)), io::ErrorKind::Unsupported, "its header has");
    // The decompressed bytes are not a header, or are another compressed header.
    refused(&archive(&packed, &encoded(TEXT.len() as u64)), io::ErrorKind::InvalidData, "unexpected field");
    let inner = encoded(5);
    let (packed, coder) = lzma1(&inner);
    let outer = streams(packed.len() as u64, &coder, inner.len() as u64, crc32(&inner));
    let input = archive(&packed, &[&[0x17][..], &outer].concat());
    refused(&input, io::ErrorKind::Unsupported, "more than once");
}

#[test]
fn streams_outside_of_the_archive_and_wrong_sizes_are_refused() {
    let (packed, coder) = lzma1(TEXT);
    let (size, len) = (packed.len() as u64, TEXT.len() as u64);
    let with = |size, len, crc| archive(&packed, &header(&streams(size, &coder, len, crc)));
    refused(&with(HUGE, len, 0), io::ErrorKind::InvalidData, "not within the archive");
    refused(&with(size + 1, len, 0), io::ErrorKind::InvalidData, "not within the archive");
    refused(&with(size, len, 0), io::ErrorKind::InvalidData, "checksum");
    refused(&with(size, HUGE, 0), io::ErrorKind::InvalidData, "before its declared end");
    refused(&with(0, len, 0), io::ErrorKind::InvalidData, "before its declared end");
}

#[test]
fn filters_and_encryption_are_refused_with_advice() {
    refused(&one_file(TEXT, &coder(&[6, 0xf1, 7, 1], &[0; 2])), io::ErrorKind::Unsupported, "extract it");
    refused(
        &one_file(TEXT, &coder(&[3, 3, 1, 3], &[])),
        io::ErrorKind::Unsupported,
        "compression method 03030103 is not supported",
    );
    let two = [&number(2)[..], &[0x01, 0x21, 0x01, 0x00], &number(1), &number(0)].concat();
    refused(&one_file(TEXT, &two), io::ErrorKind::Unsupported, "more than one decoding step");
}

#[test]
fn space_for_streams_is_shared_and_released() {
    let input = one_file(TEXT, &coder(&[0], &[]));
    let size = input.len() as u64;
    let space = Arc::new(SpoolSpace::new(size, 2 * size - 1));
    let limits = DecompressionLimits { memory: MEMORY, spool: Arc::clone(&space) };
    let stream = || Source::stream(Cursor::new(input.clone()));
    let second = super::super::read(stream(), &limits, |_, _| {
        assert_eq!(space.used(), size);
        super::super::read(stream(), &limits, |_, _| ()).unwrap_err()
    });
    let error = second.unwrap();
    assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    assert!(error.to_string().contains("try again when other imports are done"), "{error}");
    assert_eq!(space.used(), 0);
    super::super::read(stream(), &limits, |_, _| ()).unwrap();
    let limits = DecompressionLimits { memory: MEMORY, spool: Arc::new(SpoolSpace::new(size - 1, size)) };
    let error = super::super::read(stream(), &limits, |_, _| ()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
}
