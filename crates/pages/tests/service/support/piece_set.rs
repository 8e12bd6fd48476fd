//! Searches files for pieces of given contents.

use std::collections::{HashMap, HashSet};

/// The number of bytes of a piece.
const PIECE_BYTES: usize = 32;

/// The number of bytes at the beginning of a piece by which the search finds it.
const PREFIX_BYTES: usize = 8;

/// The number of entries of the filter. Each piece sets the entry at a hash of its first bytes. At a position of a
/// file whose bytes lead to an entry that is not set, no piece begins, and the search looks up none. Most positions
/// are of this kind.
const FILTER_ENTRIES: usize = 1 << 22;

/// Bytes that no compressor can make smaller. Each seed gives different bytes.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..length.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()
    });
    words.take(length).collect()
}

/// Random letters. Each seed gives different letters.
pub(crate) fn letters(seed: u64, length: usize) -> String {
    noise(seed, length).into_iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}

/// A set of pieces to search for.
#[derive(Debug)]
pub(crate) struct PieceSet {
    /// The pieces, by the first bytes of each.
    pieces: HashMap<u64, HashSet<[u8; PIECE_BYTES]>>,
    filter: Vec<bool>,
}

impl PieceSet {
    pub(crate) fn new() -> Self {
        Self { pieces: HashMap::new(), filter: vec![false; FILTER_ENTRIES] }
    }

    /// Adds the pieces of a content.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for piece in bytes.as_chunks::<PIECE_BYTES>().0 {
            // Pieces of repeated bytes occur in every file, so they are left out.
            if piece.iter().collect::<HashSet<_>>().len() > PIECE_BYTES / 4 {
                let first =
                    piece[..PREFIX_BYTES].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
                self.filter[filter_entry(first)] = true;
                self.pieces.entry(first).or_default().insert(*piece);
            }
        }
    }

    /// The pieces that occur in the bytes.
    pub(crate) fn found_in(&self, bytes: &[u8]) -> HashSet<[u8; PIECE_BYTES]> {
        let mut found = HashSet::new();
        let mut first = 0;
        for (at, byte) in bytes.iter().enumerate() {
            first = first << 8 | u64::from(*byte);
            if self.filter[filter_entry(first)]
                && let Some(pieces) = self.pieces.get(&first)
                && let Some(start) = (at + 1).checked_sub(PREFIX_BYTES)
                && let Some(window) = bytes[start..].first_chunk::<PIECE_BYTES>()
                && pieces.contains(window)
            {
                found.insert(*window);
            }
        }
        found
    }
}

/// The filter's entry for the first bytes of a piece.
fn filter_entry(first: u64) -> usize {
    (first.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 42) as usize
}
