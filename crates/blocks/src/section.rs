//! A part of a chunk: bytes of one kind, compressed together, with a checksum.

use std::cell::RefCell;

use xxhash_rust::xxh3::xxh3_64;
use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, DParameter, InBuffer, MAGIC_DICTIONARY, OutBuffer, ResetDirective,
    compress_bound, get_error_name,
};

use crate::{error::Error, varint};

/// The largest window of the compressor, as a power of two: 8 MiB. A longer window has no use, and the bound
/// limits the memory of the compressor.
const MAX_WINDOW_LOG: u32 = 23;
/// The smallest window of zstd, as a power of two: 1 KiB.
const MIN_WINDOW_LOG: u32 = 10;

/// The largest section whose compressor is kept for the next one.
const MAX_BYTES_OF_KEPT_CONTEXT: usize = 64 << 10;

/// The description of a section in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Section {
    /// The unpacked size.
    pub(crate) raw: usize,
    /// The stored size. If it equals the unpacked size, the bytes are stored uncompressed.
    pub(crate) stored: usize,
    /// The checksum of the stored bytes.
    pub(crate) check: u32,
}

impl Section {
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        varint::put(out, self.raw as u64);
        if self.raw > 0 {
            // The number of bytes that compression saves: 0 if the section is stored uncompressed.
            varint::put(out, (self.raw - self.stored) as u64);
            out.extend_from_slice(&self.check.to_le_bytes());
        }
    }

    pub(crate) fn read(input: &mut varint::Input<'_>) -> Option<Self> {
        let raw = input.size()?;
        if raw == 0 {
            return Some(Self::default());
        }
        let stored = raw.checked_sub(input.size()?).filter(|stored| *stored > 0)?;
        Some(Self { raw, stored, check: u32::from_le_bytes(input.array()?) })
    }

    /// Packs a section, and appends its stored bytes to `out`. `prefix` is data with which the section may
    /// have text in common. A reader needs the same prefix to unpack the section.
    pub(crate) fn pack(raw: &[u8], prefix: &[u8], level: i32, out: &mut Vec<u8>) -> Result<Self, Error> {
        if raw.is_empty() {
            return Ok(Self::default());
        }
        let compressed = compress(raw, prefix, level)?;
        let stored = if compressed.len() < raw.len() { &compressed } else { raw };
        out.extend_from_slice(stored);
        Ok(Self { raw: raw.len(), stored: stored.len(), check: check(stored) })
    }

    /// Unpacks a section into a buffer of its size. Returns `None` if the section is damaged.
    pub(crate) fn unpack(self, stored: &[u8], prefix: &[u8], out: &mut [u8]) -> Option<()> {
        // The fuzzer cannot guess checksums, so fuzzing does not check them.
        if stored.len() != self.stored || check(stored) != self.check && !cfg!(fuzzing) {
            return None;
        }
        if self.stored == self.raw {
            out.copy_from_slice(stored);
            return Some(());
        }
        let unpacked = decompress(stored, prefix, out)?;
        (unpacked == self.raw).then_some(())
    }

    /// Unpacks the first bytes of a section, as many as fit into `out`, and returns their number. The number
    /// is lower if the section is damaged. Does not compare the checksum, so the bytes may be wrong.
    pub(crate) fn unpack_start(self, stored: &[u8], prefix: &[u8], out: &mut [u8]) -> usize {
        if self.stored == self.raw {
            let count = stored.len().min(out.len());
            out[..count].copy_from_slice(&stored[..count]);
            return count;
        }
        let Some(mut context) = DCtx::try_create() else { return 0 };
        let set = context.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG));
        if set.and_then(|_| context.ref_prefix(prefix)).is_err() {
            return 0;
        }
        let (mut from, mut to) = (InBuffer::around(stored), OutBuffer::around(out));
        loop {
            let before = (from.pos(), to.pos());
            let result = context.decompress_stream(&mut to, &mut from);
            if result.is_err() || to.pos() == to.capacity() || (from.pos(), to.pos()) == before {
                return to.pos();
            }
        }
    }

    /// Whether these stored bytes agree with the size and the checksum of the section.
    pub(crate) fn is_intact(self, stored: &[u8]) -> bool {
        self.raw == 0 || stored.len() == self.stored && check(stored) == self.check
    }
}

/// Unpacks a whole frame, and returns the number of unpacked bytes.
fn decompress(frame: &[u8], prefix: &[u8], out: &mut [u8]) -> Option<usize> {
    thread_local! {
        // A context has more than 100 kB, and a reader unpacks many small sections.
        static CONTEXT: RefCell<Option<DCtx<'static>>> = RefCell::new(DCtx::try_create());
    }
    // The kept context takes a prefix for one call alone, as a dictionary: unless the bytes look like one of zstd's own.
    if prefix.starts_with(&MAGIC_DICTIONARY.to_le_bytes()) {
        let mut context = DCtx::try_create()?;
        context.ref_prefix(prefix).ok()?;
        return context.decompress(out, frame).ok();
    }
    CONTEXT.with_borrow_mut(|context| context.as_mut()?.decompress_using_dict(out, frame, prefix).ok())
}

/// The checksum of a section, which detects accidental damage of its stored bytes. The hash of the block
/// detects every change of its bytes.
fn check(stored: &[u8]) -> u32 {
    xxh3_64(stored) as u32
}

fn compress(raw: &[u8], prefix: &[u8], level: i32) -> Result<Vec<u8>, Error> {
    thread_local! {
        // A context has some megabytes, which the system would have to clear for each small section. This one gets no prefix,
        // which it would have to outlive, and nothing long, for which it would keep far more memory.
        static CONTEXT: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    }
    if prefix.is_empty() && raw.len() <= MAX_BYTES_OF_KEPT_CONTEXT {
        return CONTEXT.with_borrow_mut(|context| {
            let context = match context {
                Some(context) => {
                    context.reset(ResetDirective::SessionAndParameters).map_err(refused)?;
                    context
                }
                None => context.insert(new_context()?),
            };
            compress_with(context, raw, &[], level)
        });
    }
    compress_with(&mut new_context()?, raw, prefix, level)
}

fn new_context<'a>() -> Result<CCtx<'a>, Error> {
    CCtx::try_create().ok_or(Error::Zstd("no memory for a compressor"))
}

fn refused(code: usize) -> Error {
    Error::Zstd(get_error_name(code))
}

fn compress_with<'a>(
    context: &mut CCtx<'a>,
    raw: &[u8],
    prefix: &'a [u8],
    level: i32,
) -> Result<Vec<u8>, Error> {
    let reach = (raw.len() + prefix.len()).max(1).next_power_of_two().ilog2();
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::WindowLog(reach.clamp(MIN_WINDOW_LOG, MAX_WINDOW_LOG)),
        // The directory has the size and a checksum already.
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
        CParameter::DictIdFlag(false),
    ] {
        context.set_parameter(parameter).map_err(refused)?;
    }
    if !prefix.is_empty() {
        context.ref_prefix(prefix).map_err(refused)?;
    }
    let mut out = Vec::with_capacity(compress_bound(raw.len()));
    context.compress2(&mut out, raw).map_err(refused)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the prefix begins with, and whatever the thread has unpacked before.
    #[test]
    fn a_kept_context_unpacks_with_any_prefix() {
        let mut rng = fastrand::Rng::with_seed(4);
        for round in 0..300 {
            let alphabet = rng.u8(1..=32);
            let mut prefix: Vec<u8> = (0..rng.usize(..4_000)).map(|_| rng.u8(..alphabet)).collect();
            if round % 3 == 0 && prefix.len() > 4 {
                prefix[..4].copy_from_slice(&MAGIC_DICTIONARY.to_le_bytes());
            }
            let mut raw = prefix[rng.usize(..=prefix.len())..].to_vec();
            raw.extend((0..rng.usize(1..2_000)).map(|_| rng.u8(..alphabet)));
            let frame = compress(&raw, &prefix, 3).unwrap();
            let mut out = vec![0; raw.len()];
            assert_eq!(decompress(&frame, &prefix, &mut out), Some(raw.len()), "{round}");
            assert_eq!(out, raw, "{round}");
        }
    }

    /// What a thread has compressed before has no influence on a section.
    #[test]
    fn a_kept_context_compresses_like_a_new_one() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut saved = 0;
        for _ in 0..300 {
            let alphabet = rng.u8(1..=32);
            let longest = 1 << rng.u32(1..=17);
            let length = rng.usize(1..=longest);
            let raw: Vec<u8> = (0..length).map(|_| rng.u8(..alphabet)).collect();
            let level = [1, 3, 19][rng.usize(..3)];
            let kept = compress(&raw, &[], level).unwrap();
            assert_eq!(kept, compress_with(&mut new_context().unwrap(), &raw, &[], level).unwrap());
            saved += usize::from(kept.len() < raw.len());
        }
        assert!(saved > 100, "{saved} of 300 became smaller");
    }
}
