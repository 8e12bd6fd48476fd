//! The size of a set's texts in the formats that blocks are compared with.

use std::io::Write;

use anyhow::Result;
use zstd::zstd_safe::{CCtx, CParameter, compress_bound, get_error_name};

use super::sets::Set;

const LEVEL: i32 = 19;
/// The number of texts in a frame, and in a chain that begins with a key frame.
const FRAME: usize = 64;
const CHAIN: usize = 256;
/// The sizes of runs in the tables that the notes describe.
const DEFLATE_RUN: usize = 256 << 10;
const LZ4_RUN: usize = 64 << 10;

/// Packs a set, and returns the size in bytes.
pub(super) type Packer = fn(&Set) -> Result<usize>;

pub(super) const PACKERS: &[(&str, Packer)] = &[
    ("zstd -19, frames of 64 revisions", frames),
    ("zstd -19, each with the one before as reference, a key frame every 256", chain),
    ("xz -9e of each page", xz),
    ("LZMA of each page", lzma),
    ("Deflate over runs of 256 KiB", deflate),
    ("LZ4 over runs of 64 KiB", lz4),
];

fn frames(set: &Set) -> Result<usize> {
    let mut size = 0;
    for page in &set.pages {
        for versions in page.versions.chunks(FRAME) {
            let texts: Vec<&[u8]> = versions.iter().map(|version| version.text.as_slice()).collect();
            size += compress(&texts.concat(), &[])?;
        }
    }
    Ok(size)
}

fn chain(set: &Set) -> Result<usize> {
    let mut size = 0;
    for page in &set.pages {
        for versions in page.versions.chunks(CHAIN) {
            let mut before: &[u8] = &[];
            for version in versions {
                size += compress(&version.text, before)?;
                before = &version.text;
            }
        }
    }
    Ok(size)
}

fn compress(text: &[u8], before: &[u8]) -> Result<usize> {
    let refused = |code| anyhow::anyhow!("zstd: {}", get_error_name(code));
    let mut context = CCtx::create();
    let window = (text.len() + before.len()).max(1024).next_power_of_two().ilog2();
    context.set_parameter(CParameter::CompressionLevel(LEVEL)).map_err(refused)?;
    context.set_parameter(CParameter::WindowLog(window)).map_err(refused)?;
    context.ref_prefix(before).map_err(refused)?;
    let mut out = Vec::with_capacity(compress_bound(text.len()));
    context.compress2(&mut out, text).map_err(refused)
}

fn xz(set: &Set) -> Result<usize> {
    let extreme = liblzma::stream::PRESET_EXTREME;
    with_liblzma(set, || {
        Ok(liblzma::stream::Stream::new_easy_encoder(9 | extreme, liblzma::stream::Check::Crc64)?)
    })
}

/// Packs in the format of LZMA's own tools, with their default preset.
fn lzma(set: &Set) -> Result<usize> {
    with_liblzma(set, || {
        let options = liblzma::stream::LzmaOptions::new_preset(6)?;
        Ok(liblzma::stream::Stream::new_lzma_encoder(&options)?)
    })
}

fn with_liblzma(set: &Set, stream: impl Fn() -> Result<liblzma::stream::Stream>) -> Result<usize> {
    let mut size = 0;
    for page in &set.pages {
        let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream()?);
        for version in &page.versions {
            encoder.write_all(&version.text)?;
        }
        size += encoder.finish()?.len();
    }
    Ok(size)
}

fn deflate(set: &Set) -> Result<usize> {
    runs(set, DEFLATE_RUN, |run| {
        // The level that Cassandra uses.
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(run)?;
        Ok(encoder.finish()?.len())
    })
}

fn lz4(set: &Set) -> Result<usize> {
    runs(set, LZ4_RUN, |run| Ok(lz4_flex::block::compress(run).len()))
}

/// Packs all texts in runs, as a store packs the rows of a file.
fn runs(set: &Set, run: usize, pack: impl Fn(&[u8]) -> Result<usize>) -> Result<usize> {
    let mut size = 0;
    let mut gathered = Vec::with_capacity(run);
    for text in set.texts() {
        let mut rest = text;
        while gathered.len() + rest.len() >= run {
            let (now, later) = rest.split_at(run - gathered.len());
            gathered.extend_from_slice(now);
            size += pack(&gathered)?;
            gathered.clear();
            rest = later;
        }
        gathered.extend_from_slice(rest);
    }
    Ok(size + pack(&gathered)?)
}
