use std::{io::Write, sync::atomic::Ordering};

use super::*;

const TEXT: &[u8] = b"The quick brown fox jumps over the lazy dog, again and again and again.\n";

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn bzip2(text: &[u8]) -> Vec<u8> {
    let mut encoder = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn xz(text: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 6);
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn lzma(text: &[u8]) -> Vec<u8> {
    let options = liblzma::stream::LzmaOptions::new_preset(6).unwrap();
    let stream = liblzma::stream::Stream::new_lzma_encoder(&options).unwrap();
    let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd_with_checksum(text: &[u8]) -> Vec<u8> {
    let mut encoder = ::zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

type Compress = fn(&[u8]) -> Vec<u8>;

/// The formats whose data can be concatenated.
const CONCATENABLE: [(Compression, Compress); 4] = [
    (Compression::Gzip, gzip),
    (Compression::Bzip2, bzip2),
    (Compression::Xz, xz),
    (Compression::Zstd, zstd_with_checksum),
];

fn read_all(input: Vec<u8>, limits: &DecompressionLimits) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    read(Source::stream(Cursor::new(input)), limits, |reader, _| reader.read_to_end(&mut all))??;
    Ok(all)
}

fn decompressed(input: Vec<u8>) -> io::Result<Vec<u8>> {
    read_all(input, &DecompressionLimits::default())
}

fn text() -> Vec<u8> {
    TEXT.repeat(5000)
}

#[test]
fn formats_are_recognised_by_their_first_bytes() {
    for (compression, compress) in CONCATENABLE {
        let input = compress(&text());
        assert_eq!(Compression::detect(&input[..MAGIC_BYTES]), compression);
        assert_eq!(decompressed(input).unwrap(), text());
    }
    let input = lzma(&text());
    assert_eq!(Compression::detect(&input[..MAGIC_BYTES]), Compression::Lzma);
    assert_eq!(decompressed(input).unwrap(), text());
    assert_eq!(decompressed(text()).unwrap(), text());
    assert_eq!(decompressed(Vec::new()).unwrap(), b"");
}

#[test]
fn several_streams_are_read_as_one() {
    for (compression, compress) in CONCATENABLE {
        let input = [compress(b"one "), compress(b""), compress(b"two")].concat();
        assert_eq!(decompressed(input).unwrap(), b"one two", "{compression:?}");
    }
}

#[test]
fn skippable_zstd_frame_is_skipped() {
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let input = [skippable.clone(), zstd_with_checksum(TEXT), skippable].concat();
    assert_eq!(decompressed(input).unwrap(), TEXT);
}

#[test]
fn truncated_data_is_an_error_at_every_length() {
    let all: Vec<_> = CONCATENABLE.into_iter().chain([(Compression::Lzma, lzma as Compress)]).collect();
    for (compression, compress) in all {
        let whole = compress(&text());
        for end in (MAGIC_BYTES + 10..whole.len()).step_by(7).chain([whole.len() - 1]) {
            let error =
                decompressed(whole[..end].to_vec()).expect_err(&format!("{compression:?} cut at {end}"));
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{compression:?} cut at {end}: {error}");
            assert!(!source_failed(&error));
        }
    }
}

#[test]
fn unrelated_data_after_the_end_is_an_error() {
    let others = [(Compression::Lzma, lzma as Compress), (Compression::SevenZip, seven_zip as Compress)];
    for (compression, compress) in CONCATENABLE.into_iter().chain(others) {
        assert_eq!(decompressed(compress(TEXT)).unwrap(), TEXT);
        for garbage in [&b"x"[..], b"garbage after the end of it", &[0; 5]] {
            let input = [&compress(TEXT)[..], garbage].concat();
            let skips_zeros =
                matches!(compression, Compression::Gzip | Compression::Bzip2 | Compression::Lzma);
            if garbage != [0; 5] || !skips_zeros {
                assert!(decompressed(input).is_err(), "{compression:?} and {garbage:?}");
            }
        }
    }
}

#[test]
fn a_damaged_byte_is_an_error() {
    for (compression, compress) in CONCATENABLE {
        let mut input = compress(&text());
        let middle = input.len() / 2;
        input[middle] ^= 0x55;
        assert!(decompressed(input).is_err(), "{compression:?}");
    }
}

#[test]
fn long_windows_are_read_if_the_limit_allows_them() {
    let mut encoder = ::zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.long_distance_matching(true).unwrap();
    encoder.window_log(28).unwrap();
    encoder.write_all(&text()).unwrap();
    let input = encoder.finish().unwrap();
    assert_eq!(decompressed(input.clone()).unwrap(), text());
    refused_for_memory(input, 256 << 20);
}

#[track_caller]
fn refused_for_memory(input: Vec<u8>, memory: u64) {
    let limits = DecompressionLimits { memory, ..DecompressionLimits::default() };
    let error = read_all(input, &limits).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{error}");
    assert!(
        error.to_string().contains("compress it again with a smaller dictionary, window or model"),
        "{error}"
    );
}

#[test]
fn memory_limit_refuses_large_dictionaries_and_windows() {
    for input in [xz(&text()), lzma(&text()), zstd_with_checksum(&text())] {
        refused_for_memory(input, 1 << 20);
    }
    // Dictionaries of 4 GiB.
    refused_for_memory([&[0x5d, 0, 0, 0xff, 0xff][..], &[0xff; 8], &[0; 20]].concat(), 256 << 20);
    assert!(decompressed(gzip(&text())).is_ok() && decompressed(bzip2(&text())).is_ok());
}

#[test]
fn frames_of_old_zstd_versions_are_refused() {
    // The magic numbers of versions 0.4 to 0.7, after a frame of the current version.
    for old in 0x24..=0x27_u8 {
        let input = [zstd_with_checksum(TEXT), vec![old, 0xb5, 0x2f, 0xfd], vec![0xff; 100]].concat();
        let error = decompressed(input).unwrap_err();
        assert!(error.to_string().contains("Unknown frame descriptor"), "{error}");
    }
}

fn archive(names: &[&str]) -> Vec<u8> {
    // Made by hand: one stored file (method Copy) per name, each in a folder of its own.
    seven_zip_fixture::archive(names, TEXT)
}

fn seven_zip(text: &[u8]) -> Vec<u8> {
    seven_zip_fixture::archive(&["dump.xml"], text)
}

/// A 7z archive of stored files, as the description of the format defines it.
mod seven_zip_fixture {
    fn crc(bytes: &[u8]) -> [u8; 4] {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum().to_le_bytes()
    }

    pub(super) fn archive(names: &[&str], content: &[u8]) -> Vec<u8> {
        let count = u8::try_from(names.len()).unwrap();
        let size = u8::try_from(content.len()).unwrap();
        let mut header = vec![0x01, 0x04];
        // The offset of the packed streams, and their sizes.
        header.extend([0x06, 0, count, 0x09]);
        header.extend(vec![size; names.len()]);
        header.push(0x00);
        // The folders, each with one coder that copies.
        header.extend([0x07, 0x0b, count, 0]);
        header.extend(names.iter().flat_map(|_| [1, 1, 0]));
        header.push(0x0c);
        header.extend(vec![size; names.len()]);
        header.extend([0x0a, 1]);
        header.extend(names.iter().flat_map(|_| crc(content)));
        // No further description of the streams: one content each.
        header.extend([0x00, 0x08, 0x00, 0x00]);
        // The files' names.
        let names_utf16: Vec<u8> =
            names.iter().flat_map(|name| name.encode_utf16().chain([0]).flat_map(u16::to_le_bytes)).collect();
        header.extend([0x05, count, 0x11, u8::try_from(names_utf16.len() + 1).unwrap(), 0]);
        header.extend(names_utf16);
        header.extend([0x00, 0x00]);

        let packed = content.repeat(names.len());
        let mut start = Vec::new();
        start.extend((packed.len() as u64).to_le_bytes());
        start.extend((header.len() as u64).to_le_bytes());
        start.extend(crc(&header));
        let mut archive = vec![b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, 0, 4];
        archive.extend(crc(&start));
        archive.extend(start);
        archive.extend(packed);
        archive.extend(header);
        archive
    }
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    io::Seek::rewind(&mut file).unwrap();
    file
}

#[test]
fn an_archive_is_read_from_a_file_and_from_a_stream() {
    let input = archive(&["dump.xml"]);
    assert_eq!(decompressed(input.clone()).unwrap(), TEXT);

    let source = Source::file(file_of(&input)).unwrap();
    assert_eq!(source.size(), Some(input.len() as u64));
    let mut all = Vec::new();
    read(source, &DecompressionLimits::default(), |reader, _| reader.read_to_end(&mut all)).unwrap().unwrap();
    assert_eq!(all, TEXT);
}

#[test]
fn unsupported_damaged_and_too_large_archives_are_refused() {
    assert_eq!(decompressed(archive(&["a", "b"])).unwrap_err().kind(), io::ErrorKind::Unsupported);
    let mut cut = archive(&["a"]);
    cut.pop();
    assert!(decompressed(cut).is_err());
    let mut damaged = archive(&["a"]);
    damaged[40] ^= 1;
    assert!(decompressed(damaged).is_err());
    let spool = Arc::new(SpoolSpace::new(20, 20));
    let limits = DecompressionLimits { spool, ..DecompressionLimits::default() };
    assert_eq!(read_all(archive(&["a"]), &limits).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
}

#[test]
fn consumed_bytes_are_counted_in_compressed_form() {
    let input = gzip(&text());
    let size = input.len() as u64;
    let source = Source::file(file_of(&input)).unwrap();
    let consumed = source.consumed();
    read(source, &DecompressionLimits::default(), |reader, _| io::copy(reader, &mut io::sink()))
        .unwrap()
        .unwrap();
    assert_eq!(consumed.load(Ordering::Relaxed), size);
}

#[test]
fn failed_source_is_distinguished_from_damaged_content() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    for (compression, compress) in CONCATENABLE {
        let whole = compress(&text());
        let half = whole.len() / 2;
        let source = Source::stream(Cursor::new(whole[..half].to_vec()).chain(Failing));
        let result =
            read(source, &DecompressionLimits::default(), |reader, _| io::copy(reader, &mut io::sink()))
                .unwrap();
        assert!(source_failed(&result.unwrap_err()), "{compression:?}");
    }
}

/// A file whose position cannot be changed.
struct FixedPosition;

impl Seek for FixedPosition {
    fn seek(&mut self, _: io::SeekFrom) -> io::Result<u64> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

#[test]
fn file_that_cannot_be_read_is_a_failed_source() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let write_only = File::options().write(true).open(file.path()).unwrap();
    let source = Source::file(write_only).unwrap();
    let error = read(source, &DecompressionLimits::default(), |_, _| ()).unwrap_err();
    assert!(source_failed(&error), "{error}");
    assert!(matches!(crate::Problem::from_io_error(error), crate::Problem::Source(_)));

    let error = CountingReader::new(FixedPosition, Arc::default()).rewind().unwrap_err();
    assert!(source_failed(&error), "{error}");
}

#[test]
fn output_is_compressed_as_its_suffix_says() {
    let folder = tempfile::tempdir().unwrap();
    for (name, compression) in [
        ("a.xml.zst", Compression::Zstd),
        ("a.xml.gz", Compression::Gzip),
        ("a.xml.bz2", Compression::Bzip2),
        ("a.xml", Compression::None),
        ("zst", Compression::None),
    ] {
        let path = folder.path().join(name);
        let mut output = Output::create(&path).unwrap();
        output.write_all(&text()).unwrap();
        assert!(!path.exists());
        output.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(Compression::detect(&bytes), compression, "{name}");
        assert_eq!(decompressed(bytes).unwrap(), text(), "{name}");
    }
}

#[test]
fn zeros_after_the_end_are_skipped_and_other_data_is_not() {
    for compress in [gzip, bzip2, lzma] as [Compress; 3] {
        for zeros in [1, 9, 512, 200_000] {
            let input = [compress(TEXT), vec![0; zeros]].concat();
            assert_eq!(decompressed(input.clone()).unwrap(), TEXT, "{zeros}");
            decompressed([&input[..], b"x"].concat()).unwrap_err();
        }
    }
    for compress in [gzip, bzip2] as [Compress; 2] {
        let input = [compress(TEXT), compress(TEXT), vec![0; 100]].concat();
        assert_eq!(decompressed(input).unwrap(), TEXT.repeat(2));
        // Zeros between two members are damage.
        decompressed([compress(TEXT), vec![0; 100], compress(TEXT)].concat()).unwrap_err();
    }
    decompressed(vec![0x1f, 0x8b, 0, 0, 0]).unwrap_err();
}

const SEVERAL_FILES: &[u8] = include_bytes!("../../tests/fixtures/several-files.7z");

/// The names and the sizes of the contents of an input, up to the content with the name `last`.
fn members(input: &[u8], last: Option<&str>) -> io::Result<Vec<(Option<String>, usize)>> {
    let mut members = Vec::new();
    let source = Source::stream(Cursor::new(input.to_vec()));
    read_each(source, &DecompressionLimits::default(), |content, _, name| {
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).unwrap();
        members.push((name.map(str::to_owned), bytes.len()));
        last.is_none() || name != last
    })?;
    Ok(members)
}

#[test]
fn every_file_of_an_archive_is_visited_with_its_name() {
    let found = members(SEVERAL_FILES, None).unwrap();
    let expected = [
        ("wiki-titles.txt", 500),
        ("images/Cat.png", 1024),
        ("wiki-history.xml", 331),
        ("siteinfo.json", 24),
        ("errors.log", 0),
        ("wiki-current.xml", 182),
        ("SpecialVersion.html", 28),
    ];
    assert_eq!(found, expected.map(|(name, size)| (Some(name.to_owned()), size)));
    assert_eq!(members(SEVERAL_FILES, Some("wiki-history.xml")).unwrap().len(), 3);
    assert_eq!(members(&gzip(TEXT), None).unwrap(), [(None, TEXT.len())]);
    // A reader of a single file refuses the archive.
    let error = decompressed(SEVERAL_FILES.to_vec()).unwrap_err();
    assert!(error.to_string().contains("7 files"), "{error}");
}

#[test]
fn damaged_archive_of_several_files_is_an_error_or_has_the_same_contents() {
    let contents = |archive: Vec<u8>| {
        let (mut all, mut is_error) = (Vec::new(), false);
        let read = read_each(
            Source::stream(Cursor::new(archive)),
            &DecompressionLimits::default(),
            |content, _, _| {
                is_error |= content.read_to_end(&mut all).is_err();
                !is_error
            },
        );
        (read.is_ok() && !is_error).then_some(all)
    };
    let whole = contents(SEVERAL_FILES.to_vec()).unwrap();
    let mut errors = 0;
    for at in 32..SEVERAL_FILES.len() {
        let mut damaged = SEVERAL_FILES.to_vec();
        damaged[at] ^= 0x55;
        match contents(damaged) {
            Some(read) => assert_eq!(read, whole, "byte {at}"),
            None => errors += 1,
        }
    }
    assert!(errors > SEVERAL_FILES.len() / 2, "{errors}");
}
