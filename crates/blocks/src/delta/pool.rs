//! The pool of literals, and an index that finds the bytes of a text in it.

/// The number of bytes at each position whose hash is in the index.
const KEY_BYTES: usize = 16;
/// The table has `1 << TABLE_BITS` slots.
const TABLE_BITS: u32 = 18;

/// The literals of a block, and an index of them.
#[derive(Debug)]
pub(crate) struct Pool {
    bytes: Vec<u8>,
    /// For each hash, the last position with this hash, plus one. Empty until the first literals are indexed,
    /// since some builders never get any.
    table: Vec<u32>,
    /// The size of the part that is in the table.
    indexed: usize,
    /// The number of literals of the first group, after its end. Later groups may use them.
    shared: usize,
    /// The table of the first group, after its end.
    shared_table: Option<Vec<u32>>,
}

impl Pool {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), table: Vec::new(), indexed: 0, shared: 0, shared_table: None }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The number of literals that every later group may use.
    pub(crate) fn shared(&self) -> usize {
        self.shared
    }

    /// Ends a group: the next one finds its own literals, and those of the first group.
    pub(crate) fn end_group(&mut self) {
        match &self.shared_table {
            None => {
                self.shared = self.bytes.len();
                self.shared_table = Some(self.table.clone());
            }
            Some(shared) => self.table.clone_from(shared),
        }
        self.indexed = self.bytes.len();
    }

    /// The literals from a position on that a copy may use.
    pub(crate) fn copyable(&self, from: usize) -> &[u8] {
        let end = if from < self.shared { self.shared } else { self.bytes.len() };
        &self.bytes[from..end]
    }

    pub(crate) fn append(&mut self, literal: &[u8]) {
        self.bytes.extend_from_slice(literal);
    }

    /// Cuts the pool to a length it had before. Indexed text cannot be removed.
    pub(crate) fn truncate(&mut self, len: usize) {
        debug_assert!(self.indexed <= len, "indexed literals have to stay");
        self.bytes.truncate(len);
    }

    /// Adds all new literals to the index.
    pub(crate) fn index(&mut self) {
        if self.table.is_empty() && self.bytes.len() >= self.indexed + KEY_BYTES {
            self.table = vec![0; 1 << TABLE_BITS];
        }
        while let Some(key) = self.bytes.get(self.indexed..self.indexed + KEY_BYTES) {
            self.table[slot(key)] = self.indexed as u32 + 1;
            self.indexed += 1;
        }
    }

    /// The last indexed position at which the first bytes of the text may occur, according to their hash. The
    /// caller has to compare the bytes.
    pub(crate) fn candidate(&self, text: &[u8]) -> Option<usize> {
        let position = self.table.get(slot(text.get(..KEY_BYTES)?))?;
        position.checked_sub(1).map(|position| position as usize)
    }

    /// Removes all literals.
    pub(crate) fn clear(&mut self) {
        // To empty the table would touch all of it, and a small block uses little of it.
        *self = Self::new();
    }
}

fn slot(key: &[u8]) -> usize {
    let (first, second) = key.split_at(8);
    let mixed =
        word(first).wrapping_mul(0x9E37_79B1_85EB_CA87) ^ word(second).wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    (mixed.wrapping_mul(0x9E37_79B1_85EB_CA87) >> (64 - TABLE_BITS)) as usize
}

/// Eight bytes as a number.
pub(super) fn word(bytes: &[u8]) -> u64 {
    let (word, _) = bytes.split_first_chunk().expect("eight bytes are asked for");
    u64::from_le_bytes(*word)
}
