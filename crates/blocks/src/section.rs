//! A part of a chunk: bytes of one kind, compressed together, with a checksum.

use xxhash_rust::xxh3::xxh3_64;
use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, compress_bound, get_error_name,
};

use crate::{error::Error, varint};

/// Nobody needs a longer window than this: 8 MiB. It bounds the memory of the compressor.
const MAX_WINDOW_LOG: u32 = 23;
/// zstd has no smaller one.
const MIN_WINDOW_LOG: u32 = 10;

/// What the directory says of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Section {
    /// Its bytes, unpacked.
    pub(crate) raw: usize,
    /// Its bytes as they are stored. As many as unpacked: they are stored as they are.
    pub(crate) stored: usize,
    /// Of the stored bytes.
    pub(crate) check: u32,
}

impl Section {
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        varint::put(out, self.raw as u64);
        if self.raw > 0 {
            // What is saved is at most all of it, and zero where it is stored as it is.
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

    /// Appends the stored bytes of a section. `prefix`: what a reader has unpacked before it.
    pub(crate) fn pack(raw: &[u8], prefix: &[u8], level: i32, out: &mut Vec<u8>) -> Result<Self, Error> {
        if raw.is_empty() {
            return Ok(Self::default());
        }
        let compressed = compress(raw, prefix, level)?;
        let stored = if compressed.len() < raw.len() { &compressed } else { raw };
        out.extend_from_slice(stored);
        Ok(Self { raw: raw.len(), stored: stored.len(), check: check(stored) })
    }

    /// Unpacks a section into a place of its size. `None`: it is damaged.
    pub(crate) fn unpack(self, stored: &[u8], prefix: &[u8], out: &mut [u8]) -> Option<()> {
        // The fuzzer could not get behind the checksum.
        if stored.len() != self.stored || check(stored) != self.check && !cfg!(fuzzing) {
            return None;
        }
        if self.stored == self.raw {
            out.copy_from_slice(stored);
            return Some(());
        }
        let mut context = DCtx::try_create()?;
        context.ref_prefix(prefix).ok()?;
        let unpacked = context.decompress(out, stored).ok()?;
        (unpacked == self.raw).then_some(())
    }

    /// Unpacks the first bytes of a section, as many as there is place for, and gives how many came out: fewer, where it
    /// is damaged. Its checksum is not looked at, so that what comes out may be wrong.
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

    /// Whether these are the bytes that were stored.
    pub(crate) fn is_intact(self, stored: &[u8]) -> bool {
        self.raw == 0 || stored.len() == self.stored && check(stored) == self.check
    }
}

/// Against accidents. Against everything else there is the block's hash.
fn check(stored: &[u8]) -> u32 {
    xxh3_64(stored) as u32
}

fn compress(raw: &[u8], prefix: &[u8], level: i32) -> Result<Vec<u8>, Error> {
    let refused = |code| Error::Zstd(get_error_name(code));
    let reach = (raw.len() + prefix.len()).max(1).next_power_of_two().ilog2();
    let mut context = CCtx::try_create().ok_or(Error::Zstd("no memory for a compressor"))?;
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::WindowLog(reach.clamp(MIN_WINDOW_LOG, MAX_WINDOW_LOG)),
        // The directory knows the size, and has a checksum.
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
        CParameter::DictIdFlag(false),
    ] {
        context.set_parameter(parameter).map_err(refused)?;
    }
    context.ref_prefix(prefix).map_err(refused)?;
    let mut out = Vec::with_capacity(compress_bound(raw.len()));
    context.compress2(&mut out, raw).map_err(refused)?;
    Ok(out)
}
