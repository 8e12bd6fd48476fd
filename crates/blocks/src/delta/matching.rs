//! Finds how a text can be derived from another text, at a bounded cost.
//!
//! The matcher first finds the common start and the common end, at little cost. Between these two, it looks up
//! each position of the text in an index of the parent, and in the pool. A match has a gain: the bits that
//! its bytes would take as literals, minus the bits that encode the match. The gains are estimates in tenths
//! of a bit, tuned on real histories. The estimates affect the size of a block and the time that readers need.

use super::{
    pool::{Pool, word},
    script::Edit,
};

/// The minimum length of a match in the parent. The index has hashes of this many bytes.
const KEY_BYTES: usize = 8;
/// The maximum number of indexed positions of the parent that are compared for one position of the text.
const MAX_CANDIDATES: usize = 48;
/// The maximum number of positions of the parent in the index. If the parent is longer, only every second or
/// third position, and so on, is indexed.
const MAX_INDEXED: usize = 1 << 20;
/// The minimum length of a match in the pool. The position of such a match is costly to encode.
const MIN_POOL_MATCH: usize = 28;
/// The length of a match in the parent from which on the pool is not searched.
const GOOD_MATCH: usize = 64;
/// The length of a match from which on no better match is searched.
const LONG_MATCH: usize = 200;
/// The maximum number of further positions at which a better match is searched.
const LAZY_STEPS: usize = 2;

/// The costs of a literal byte, and of a literal byte that repeats text of the pool.
const LITERAL_COST: i64 = 23;
const POOL_LITERAL_COST: i64 = 18;
/// The costs of an edit, of a skip in it, of each bit of the skip, and of a piece of the pool.
const EDIT_COST: i64 = 180;
const SKIP_COST: i64 = 30;
const SKIP_BIT_COST: i64 = 10;
const POOL_PIECE_COST: i64 = 450;
/// The cost of moving back in the parent. A script that moves back takes long to fold, so without this cost,
/// reading would be slow. If moving back were forbidden, blocks would be larger.
const MOVE_BACK_COST: i64 = 600;
/// The minimum difference of the gains for which a match at a later position is preferred.
const MIN_LAZY_GAIN: i64 = 20;

/// The number of bytes that may be compared for each byte of a text and of its parent, in addition to
/// [`MAX_COMPARED_BASE`]. Beyond this limit, only one candidate is compared at each position.
const MAX_COMPARED_PER_BYTE: u64 = 64;
/// The number of bytes that may be compared for any text. See [`MAX_COMPARED_PER_BYTE`].
const MAX_COMPARED_BASE: u64 = 1 << 20;

/// Bytes of the text that are equal to bytes of the parent or of the pool.
#[derive(Debug, Clone, Copy)]
struct Match {
    gain: i64,
    len: usize,
    source: Source,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    /// A position in the middle of the parent.
    Parent(usize),
    Pool(usize),
}

/// Finds the edits between texts. Reuses its buffers from one text to the next.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    /// For each hash, the number of the last indexed position in the parent with this hash, plus one.
    heads: Vec<u32>,
    /// For each indexed position, the previous position with the same hash, plus one.
    chain: Vec<u32>,
    /// The number of bytes that were compared, for all texts. Tests compare it with a bound.
    compared: u64,
}

impl Matcher {
    /// Returns the edits that make `text` from `parent`. Appends new literals to the pool.
    pub(crate) fn edits(&mut self, parent: &[u8], text: &[u8], pool: &mut Pool) -> Vec<Edit> {
        let prefix = common_prefix(parent, text);
        let suffix = common_suffix(&parent[prefix..], &text[prefix..]);
        let parent = &parent[prefix..parent.len() - suffix];
        let text = &text[prefix..text.len() - suffix];
        let step = self.index(parent);
        let max_compared = MAX_COMPARED_BASE + MAX_COMPARED_PER_BYTE * (parent.len() + text.len()) as u64;
        let search = Search {
            parent,
            text,
            step,
            heads: &self.heads,
            chain: &self.chain,
            compared: self.compared,
            limit: self.compared + max_compared,
        };
        let (edits, compared) = search.run(prefix, pool);
        self.compared = compared;
        edits
    }

    /// Builds the index of a parent's middle. Returns the distance between the indexed positions.
    fn index(&mut self, parent: &[u8]) -> usize {
        self.heads.clear();
        self.chain.clear();
        if parent.len() < KEY_BYTES {
            return 1;
        }
        let step = parent.len() / MAX_INDEXED + 1;
        self.heads.resize(1 << bits(parent.len()), 0);
        self.chain.reserve(parent.len() / step + 1);
        for place in (0..=parent.len() - KEY_BYTES).step_by(step) {
            let head = &mut self.heads[slot(&parent[place..], parent.len())];
            self.chain.push(*head);
            *head = (place / step) as u32 + 1;
        }
        step
    }

    #[cfg(test)]
    pub(crate) fn compared(&self) -> u64 {
        self.compared
    }
}

/// The search for the edits between a parent and a text, without their common start and end.
struct Search<'a> {
    parent: &'a [u8],
    text: &'a [u8],
    step: usize,
    heads: &'a [u32],
    chain: &'a [u32],
    compared: u64,
    limit: u64,
}

impl Search<'_> {
    fn run(mut self, prefix: usize, pool: &mut Pool) -> (Vec<Edit>, u64) {
        let mut edits = Vec::new();
        let mut edit = Edit { copy: prefix as u32, ..Edit::default() };
        // The end of the last copy in the parent, the start of the literals in the text, and the position in
        // the text.
        let (mut parent_position, mut written, mut text_position) = (0, 0, 0);
        while text_position < self.text.len() {
            let Some(found) = self.best_near(&mut text_position, parent_position, pool) else {
                text_position += 1;
                continue;
            };
            match found.source {
                Source::Parent(from) => {
                    let grown = self.extension_back(from, text_position, parent_position, written);
                    let (from, start) = (from - grown, text_position - grown);
                    edit.literal += append(pool, &self.text[written..start]);
                    edit.skip = (from as i64 - parent_position as i64) as i32;
                    let len = (found.len + grown) as u32;
                    if edit.is_nothing() {
                        edit.copy += len;
                    } else {
                        edits.push(std::mem::replace(&mut edit, Edit { copy: len, ..Edit::default() }));
                    }
                    parent_position = from + found.len + grown;
                }
                Source::Pool(from) => {
                    edit.literal += append(pool, &self.text[written..text_position]);
                    (edit.pool_at, edit.pool_len) = (from as u32, found.len as u32);
                    edits.push(std::mem::take(&mut edit));
                }
            }
            text_position += found.len;
            written = text_position;
        }
        edit.literal += append(pool, &self.text[written..]);
        edit.skip = (self.parent.len() - parent_position) as i32;
        if !edit.is_nothing() {
            edits.push(edit);
        }
        (edits, self.compared)
    }

    /// The best match at `text_position` or a little further on. Moves `text_position` to the match.
    fn best_near(&mut self, text_position: &mut usize, parent_position: usize, pool: &Pool) -> Option<Match> {
        let mut best = self.best(*text_position, parent_position, pool)?;
        for _ in 0..LAZY_STEPS {
            if best.len >= LONG_MATCH {
                break;
            }
            match self.best(*text_position + 1, parent_position, pool) {
                Some(next) if next.gain > best.gain + MIN_LAZY_GAIN => {
                    best = next;
                    *text_position += 1;
                }
                _ => break,
            }
        }
        Some(best)
    }

    fn best(&mut self, text_position: usize, parent_position: usize, pool: &Pool) -> Option<Match> {
        let text = self.text.get(text_position..).filter(|text| text.len() >= KEY_BYTES)?;
        let mut best = None;
        if parent_position < self.parent.len() {
            self.try_parent(parent_position, parent_position, text, &mut best);
        }
        if self.parent.len() >= KEY_BYTES {
            let mut next = self.heads[slot(text, self.parent.len())];
            let depth = if self.compared < self.limit { MAX_CANDIDATES } else { 1 };
            for _ in 0..depth {
                let Some(candidate) = next.checked_sub(1) else { break };
                self.try_parent(candidate as usize * self.step, parent_position, text, &mut best);
                next = self.chain[candidate as usize];
            }
        }
        if best.is_none_or(|best| best.len < GOOD_MATCH)
            && let Some(from) = pool.candidate(text)
        {
            let len = self.common(pool.copyable(from), text);
            let gain = len as i64 * POOL_LITERAL_COST - POOL_PIECE_COST;
            if len >= MIN_POOL_MATCH && gain > best.map_or(0, |best: Match| best.gain) {
                best = Some(Match { gain, len, source: Source::Pool(from) });
            }
        }
        best
    }

    fn try_parent(&mut self, from: usize, parent_position: usize, text: &[u8], best: &mut Option<Match>) {
        let len = self.common(&self.parent[from..], text);
        if len < KEY_BYTES {
            return;
        }
        let distance = from.abs_diff(parent_position);
        let mut cost = EDIT_COST;
        if distance > 0 {
            cost += SKIP_COST + SKIP_BIT_COST * i64::from(distance.ilog2() + 1);
        }
        if from < parent_position {
            cost += MOVE_BACK_COST;
        }
        let gain = len as i64 * LITERAL_COST - cost;
        if gain > best.map_or(0, |best| best.gain) {
            *best = Some(Match { gain, len, source: Source::Parent(from) });
        }
    }

    /// The number of bytes by which a match can be extended back, over equal bytes that are not written yet.
    /// A match ahead of the position in the parent is not extended back beyond that position.
    fn extension_back(
        &self,
        from: usize,
        text_position: usize,
        parent_position: usize,
        written: usize,
    ) -> usize {
        let most = if from >= parent_position { from - parent_position } else { from };
        common_suffix(&self.parent[from - most..from], &self.text[written..text_position])
    }

    fn common(&mut self, one: &[u8], other: &[u8]) -> usize {
        let len = common_prefix(one, other);
        self.compared += len as u64 + 1;
        len
    }
}

fn append(pool: &mut Pool, literal: &[u8]) -> u32 {
    pool.append(literal);
    literal.len() as u32
}

/// The index of a parent has `1 << bits` slots.
fn bits(parent: usize) -> u32 {
    (parent.ilog2() + 1).clamp(8, 17)
}

fn slot(key: &[u8], parent: usize) -> usize {
    (word(key).wrapping_mul(0x9E37_79B1_85EB_CA87) >> (64 - bits(parent))) as usize
}

/// The length of the common start.
pub(super) fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let words = one.chunks_exact(8).zip(other.chunks_exact(8));
    let mut len = 0;
    for (a, b) in words {
        let differ = word(a) ^ word(b);
        if differ != 0 {
            return len + differ.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + one[len..].iter().zip(&other[len..]).take_while(|(a, b)| a == b).count()
}

/// The length of the common end.
pub(super) fn common_suffix(one: &[u8], other: &[u8]) -> usize {
    let words = one.rchunks_exact(8).zip(other.rchunks_exact(8));
    let mut len = 0;
    for (a, b) in words {
        let differ = word(a) ^ word(b);
        if differ != 0 {
            return len + differ.leading_zeros() as usize / 8;
        }
        len += 8;
    }
    let (one, other) = (&one[..one.len() - len], &other[..other.len() - len]);
    len + one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count()
}
