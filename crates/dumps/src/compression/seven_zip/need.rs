//! How much memory a decoder of a 7z archive can use, which may be far less than the archive declares.
//!
//! Archives of 88 bytes declare models of 254 MiB, and 7-Zip itself writes them where it does not know the size of
//! what it compresses, such as from standard input. The decoders are given what they can use, so that memory follows the
//! input and every archive stays readable.

use ppmd_rust::{PPMD7_MAX_ORDER, PPMD7_MIN_MEM_SIZE};

/// The smallest dictionary of LZMA and LZMA2.
const MIN_DICTIONARY: u64 = 4 << 10;

/// The dictionary that can be used of one with `declared` bytes: nothing is farther back than the beginning.
pub(super) fn dictionary(declared: u64, unpacked: u64) -> u64 {
    declared.min(unpacked.max(MIN_DICTIONARY))
}

/// The properties of LZMA with the dictionary that can be used.
pub(super) fn lzma(properties: [u8; 5], unpacked: u64) -> ([u8; 5], u64) {
    let [literals, size @ ..] = properties;
    let size = u32::try_from(dictionary(u32::from_le_bytes(size).into(), unpacked)).unwrap_or(u32::MAX);
    let [a, b, c, d] = size.to_le_bytes();
    ([literals, a, b, c, d], size.into())
}

/// The property of LZMA2 with the dictionary that can be used. The sizes are powers of two, and their halves more.
pub(super) fn lzma2(declared: u8, unpacked: u64) -> (u8, u64) {
    // 40 means 4 GiB less one byte.
    let size = |bits: u8| (2 | u64::from(bits & 1)) << (bits / 2 + 11);
    let bits = (0..declared).find(|bits| size(*bits) >= unpacked).unwrap_or(declared);
    (bits, size(bits))
}

/// The most symbols that the range decoder of PPMd gets out of a byte.
///
/// A symbol leaves at most 16352/16384 of the range, which is the highest probability that a binary context reaches,
/// and each byte that is read widens the range by 256: ln(256) / -ln(16352/16384) = 2836.6.
const PPMD_SYMBOLS_PER_BYTE: u64 = 2837;

/// The bytes of a unit, in which models of PPMd are counted. A context takes one unit.
const PPMD_UNIT: u64 = 12;

/// The most bytes that one more state costs in arrays of states. An array that has grown to 256 states has left one free
/// block of each smaller size behind: 2,152 units for 248 more states. Free blocks are used again.
const PPMD_STATE: u64 = 105;

/// The most bytes a symbol that are lost where a context drops rare states: its block is split, and a new one is needed
/// when it grows again. A block has 128 units, and it takes ten symbols until a context does so.
const PPMD_SPLIT: u64 = 154;

/// The units of an empty model: the first context and its 256 states.
const PPMD_EMPTY: u64 = 1 + 128;

/// The most bytes that so many bytes of PPMd can unpack to.
pub(super) const fn ppmd_unpacked(packed: u64) -> u64 {
    packed.saturating_mul(PPMD_SYMBOLS_PER_BYTE)
}

/// The model that PPMd can use of one with `declared` bytes.
///
/// What PPMd decodes depends on the size of its model only when that is exhausted: then it joins free blocks, and at
/// last begins a new model. A smaller one that is never exhausted gives the same bytes. So this is a bound of what
/// `unpacked` symbols can take:
///
/// - a symbol makes a context of each order at most, and one more;
/// - it adds a state to each context from which it escaped. It escapes from as many as it climbed before, and it climbs
///   by one a symbol, so that there are no more than symbols, and `order`;
/// - it adds a byte of text. The text has an eighth of the model, which is enough where the rest is.
pub(super) fn ppmd(declared: u32, order: u32, unpacked: u64) -> u32 {
    let order = u64::from(order.min(PPMD7_MAX_ORDER));
    let of_symbols = unpacked.saturating_mul((order + 1) * PPMD_UNIT + PPMD_STATE + PPMD_SPLIT);
    let units = of_symbols.saturating_add(order * PPMD_STATE + PPMD_EMPTY * PPMD_UNIT);
    // Seven eighths of the model are units, rounded down.
    let model = (units / 7).saturating_mul(8).saturating_add(16 * PPMD_UNIT).max(PPMD7_MIN_MEM_SIZE.into());
    declared.min(u32::try_from(model).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
