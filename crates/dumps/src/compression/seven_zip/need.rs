//! The memory that the decoder of a 7z archive can really use. It may be far less than the archive declares.
//!
//! An archive of 88 bytes can declare a model of 254 MiB. 7-Zip itself writes such archives if it does not know
//! the size of its input, for example from standard input. A decoder gets only the memory that it can use. So
//! the memory depends on the size of the content, and small archives are readable whatever they declare.

use ppmd_rust::{PPMD7_MAX_ORDER, PPMD7_MIN_MEM_SIZE};

/// The smallest dictionary of LZMA and LZMA2.
const MIN_DICTIONARY: u64 = 4 << 10;

/// Returns the part of a dictionary of `declared` bytes that can be used: no reference goes back beyond the beginning
/// of the content.
pub(super) fn dictionary(declared: u64, unpacked: u64) -> u64 {
    declared.min(unpacked.max(MIN_DICTIONARY))
}

/// Returns the properties of LZMA with a dictionary of the usable size, and this size.
pub(super) fn lzma(properties: [u8; 5], unpacked: u64) -> ([u8; 5], u64) {
    let [literals, size @ ..] = properties;
    let size = u32::try_from(dictionary(u32::from_le_bytes(size).into(), unpacked)).unwrap_or(u32::MAX);
    let [a, b, c, d] = size.to_le_bytes();
    ([literals, a, b, c, d], size.into())
}

/// Returns the property of LZMA2 with the smallest dictionary that has the usable size, and the size of this
/// dictionary. Possible sizes are 2^n and 3·2^n.
pub(super) fn lzma2(declared: u8, unpacked: u64) -> (u8, u64) {
    // The value 40 means 4 GiB less one byte; this formula gives one byte more.
    let size = |bits: u8| (2 | u64::from(bits & 1)) << (bits / 2 + 11);
    let bits = (0..declared).find(|bits| size(*bits) >= unpacked).unwrap_or(declared);
    (bits, size(bits))
}

/// The maximum number of symbols that the range decoder of PPMd gets out of a byte.
///
/// A symbol leaves at most 16352/16384 of the range, which is the highest probability that a binary context
/// reaches. Each byte that is read widens the range by a factor of 256. So the number is ln(256) /
/// -ln(16352/16384) = 2836.4.
const PPMD_SYMBOLS_PER_BYTE: u64 = 2837;

/// The size of a unit of a PPMd model, in bytes. A context takes one unit.
const PPMD_UNIT_BYTES: u64 = 12;

/// The maximum number of bytes that one more state costs in arrays of states. An array grows from block to
/// block, and leaves the smaller blocks free. It needs the largest block for its 249th state. All its blocks
/// together then have 2,152 units, for 248 states in addition to the first one. Free blocks are reused.
const PPMD_STATE_BYTES: u64 = 105;

/// The maximum number of bytes per symbol that are lost when a context drops rare states. The block of the
/// context is then split, and the context needs a new block when it grows again. A block has at most 128
/// units, and a context drops states at most once in ten symbols.
const PPMD_SPLIT_BYTES: u64 = 154;

/// The number of units of an empty model: the first context and its 256 states.
const PPMD_EMPTY_UNITS: u64 = 1 + 128;

/// The maximum number of bytes that `packed` bytes of PPMd data can unpack to.
pub(super) const fn ppmd_unpacked(packed: u64) -> u64 {
    packed.saturating_mul(PPMD_SYMBOLS_PER_BYTE)
}

/// Returns the part of a PPMd model of `declared` bytes that can be used.
///
/// The size of the model affects the decoded bytes only if the model is exhausted: then PPMd joins free
/// blocks, and finally starts a new model. A smaller model that is never exhausted gives the same bytes. So
/// the result is an upper bound of the memory that `unpacked` symbols can use:
///
/// - A symbol makes at most one context for each order, and one more.
/// - A symbol adds a state to each context from which it escaped. An escape leads to a shorter context, and
///   each symbol climbs by at most one. So the number of all these states is at most the number of symbols
///   plus `order`.
/// - A symbol adds a byte of text. The text has an eighth of the model, which is enough if the rest is.
pub(super) fn ppmd(declared: u32, order: u32, unpacked: u64) -> u32 {
    let order = u64::from(order.min(PPMD7_MAX_ORDER));
    let of_symbols =
        unpacked.saturating_mul((order + 1) * PPMD_UNIT_BYTES + PPMD_STATE_BYTES + PPMD_SPLIT_BYTES);
    let units = of_symbols.saturating_add(order * PPMD_STATE_BYTES + PPMD_EMPTY_UNITS * PPMD_UNIT_BYTES);
    // Seven eighths of the model are units, rounded down.
    let model =
        (units / 7).saturating_mul(8).saturating_add(16 * PPMD_UNIT_BYTES).max(PPMD7_MIN_MEM_SIZE.into());
    declared.min(u32::try_from(model).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
