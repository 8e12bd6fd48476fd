//! Segment lists. A text is a list of segments of the pool. Folding a script into the list of its parent
//! gives the list of the text.

use std::{ops::Range, sync::Arc};

use super::{
    MAX_SEGMENTS, Segment,
    script::{Edit, Origin},
};

/// The maximum number of segments in one part of a [`SegmentList`]. Changing a list costs time for each part
/// of the list, and for each segment of one part, so both numbers should be small.
const MAX_PART_SEGMENTS: usize = 96;

/// The maximum number of edits of a script that moves back and is folded in place. For more edits, the whole
/// list is rebuilt, since finding the copies that can stay takes quadratic time.
const MAX_IN_PLACE_EDITS: usize = 256;

/// The maximum size of a text in bytes, even if the caller's `limit` is higher: skips in a text are signed numbers of
/// 32 bits.
const MAX_BYTES: usize = i32::MAX as usize;

/// Adds a segment. If the segment begins in the pool where the last segment of the list ends, extends that last segment
/// instead. Returns `None` if the list would have too many segments.
fn push(list: &mut Vec<Segment>, segment: Segment) -> Option<()> {
    if segment.len == 0 {
        return Some(());
    }
    if let Some(last) = list.last_mut()
        && last.end() == segment.pool_at
    {
        last.len += segment.len;
    } else if list.len() < MAX_SEGMENTS {
        list.push(segment);
    } else {
        return None;
    }
    Some(())
}

/// The size of the text with this list, in bytes.
pub(crate) fn length(list: &[Segment]) -> usize {
    list.iter().map(|segment| segment.len as usize).sum()
}

/// Folds a script into the list of its parent, and returns the list of the text. `literals_at` is the
/// position in the pool at which the script's literals begin. Returns `None` if the script moves outside of
/// its parent, or if the text would have too many segments or more bytes than `limit`.
pub(crate) fn fold(
    parent: &[Segment],
    edits: &[Edit],
    mut literals_at: u32,
    limit: usize,
) -> Option<Vec<Segment>> {
    let mut cursor = ListCursor { list: parent, index: 0, offset: 0 };
    let mut list = Vec::with_capacity((parent.len() + 2 * edits.len()).min(MAX_SEGMENTS));
    let mut bytes = 0_usize;
    for edit in edits {
        bytes += edit.copy as usize + edit.literal as usize + edit.pool_len as usize;
        if bytes > limit.min(MAX_BYTES) {
            return None;
        }
        cursor.copy(edit.copy, &mut list)?;
        push(&mut list, Segment { pool_at: literals_at, len: edit.literal })?;
        literals_at += edit.literal;
        push(&mut list, Segment { pool_at: edit.pool_at, len: edit.pool_len })?;
        cursor.skip(edit.skip)?;
    }
    while let Some(rest) = cursor.rest() {
        bytes += rest as usize;
        cursor.copy(rest, &mut list)?;
    }
    (bytes <= limit.min(MAX_BYTES)).then_some(list)
}

/// A script as [`fold_all`] and [`fold_from`] need it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptToFold<'a> {
    pub(crate) origin: Origin,
    pub(crate) edits: &'a [Edit],
    /// The position in the pool at which the script's literals begin.
    pub(crate) literals_at: u32,
}

/// Returns the list of an entry. Folds all scripts that the entry depends on. Returns `None` if one of these
/// scripts does not exist or is erased, or if [`fold`] returns `None`.
pub(crate) fn fold_all<'a>(
    index: usize,
    limit: usize,
    script: impl Fn(usize) -> Option<ScriptToFold<'a>>,
) -> Option<Vec<Segment>> {
    fold_from(index, limit, script, |_| None, |_, _| {})
}

/// The number of scripts between two lists that [`fold_from`] passes to `keep`. A reader of one entry is
/// likely to read its neighbours.
pub(crate) const CACHED_LIST_INTERVAL: usize = 32;

/// Like [`fold_all`], but begins at the nearest ancestor whose list is `known`. Passes some of the lists that
/// it builds to `keep`.
pub(crate) fn fold_from<'a>(
    index: usize,
    limit: usize,
    script: impl Fn(usize) -> Option<ScriptToFold<'a>>,
    known: impl Fn(usize) -> Option<Arc<Vec<Segment>>>,
    mut keep: impl FnMut(usize, Vec<Segment>),
) -> Option<Vec<Segment>> {
    let mut steps = Vec::new();
    let mut next = index;
    let base = loop {
        if let Some(list) = known(next) {
            break Some(list);
        }
        let step = script(next)?;
        match step.origin {
            Origin::Erased => return None,
            // A script without edits makes the text of its parent.
            Origin::Parent(_) if step.edits.is_empty() => {}
            _ => steps.push((next, step)),
        }
        let Origin::Parent(distance) = step.origin else { break None };
        next = next.checked_sub(distance as usize)?;
    };
    let mut list = match base {
        Some(base) => SegmentList::new(&base, limit),
        None => {
            let (_, root) = steps.pop()?;
            SegmentList::new(&fold(&[], root.edits, root.literals_at, limit)?, limit)
        }
    };
    for (folded, (index, step)) in (1..).zip(steps.iter().rev()) {
        list.fold(step.edits, step.literals_at)?;
        if folded % CACHED_LIST_INTERVAL == 0 {
            keep(*index, list.flat()?);
        }
    }
    list.flat()
}

/// The ranges that a script copies from a parent with `bytes` bytes: one for each edit, and one for the rest.
/// `Some(None)` if the script has too many edits. `None` if the script moves outside of its parent.
#[allow(clippy::option_option)]
fn copies(edits: &[Edit], bytes: usize) -> Option<Option<Vec<Range<u32>>>> {
    if edits.len() > MAX_IN_PLACE_EDITS {
        return Some(None);
    }
    let bytes = u32::try_from(bytes).ok()?;
    let mut copies = Vec::with_capacity(edits.len() + 1);
    let mut parent_at = 0_u32;
    for edit in edits {
        let end = parent_at.checked_add(edit.copy).filter(|end| *end <= bytes)?;
        copies.push(parent_at..end);
        parent_at = end.checked_add_signed(edit.skip).filter(|next| *next <= bytes)?;
    }
    copies.push(parent_at..bytes);
    Some(Some(copies))
}

/// Returns for each copy whether it stays where it is. The ranges of the copies that stay rise and do not overlap, and
/// as many bytes as possible stay.
pub(super) fn choose_staying(copies: &[Range<u32>]) -> Vec<bool> {
    // For each copy, under the assumption that this copy stays: the maximum number of bytes that can stay up
    // to its end, and the previous copy that stays.
    let mut best: Vec<(u64, Option<usize>)> = Vec::with_capacity(copies.len());
    for (index, range) in copies.iter().enumerate() {
        let before = (0..index)
            .filter(|before| copies[*before].end <= range.start)
            .max_by_key(|before| best[*before].0);
        let bytes = before.map_or(0, |before| best[before].0) + u64::from(range.end - range.start);
        best.push((bytes, before));
    }
    let mut stays = vec![false; copies.len()];
    let mut next = (0..copies.len()).max_by_key(|index| best[*index].0);
    while let Some(index) = next {
        stays[index] = true;
        next = best[index].1;
    }
    stays
}

/// A position in a list.
struct ListCursor<'a> {
    list: &'a [Segment],
    index: usize,
    /// The offset in the segment, which is less than its length.
    offset: u32,
}

impl ListCursor<'_> {
    /// The length of the rest of the current segment.
    fn rest(&self) -> Option<u32> {
        Some(self.list.get(self.index)?.len - self.offset)
    }

    fn advance(&mut self, step: u32) {
        self.offset += step;
        if self.rest() == Some(0) {
            self.index += 1;
            self.offset = 0;
        }
    }

    fn copy(&mut self, mut count: u32, to: &mut Vec<Segment>) -> Option<()> {
        while count > 0 {
            let step = self.rest()?.min(count);
            push(to, Segment { pool_at: self.list[self.index].pool_at + self.offset, len: step })?;
            self.advance(step);
            count -= step;
        }
        Some(())
    }

    fn skip(&mut self, by: i32) -> Option<()> {
        let mut count = by.unsigned_abs();
        while count > 0 && by > 0 {
            let step = self.rest()?.min(count);
            self.advance(step);
            count -= step;
        }
        while count > 0 && by < 0 {
            if self.offset == 0 {
                self.index = self.index.checked_sub(1)?;
                self.offset = self.list[self.index].len;
            }
            let step = self.offset.min(count);
            self.offset -= step;
            count -= step;
        }
        Some(())
    }
}

/// A segment list in parts, so that a change in one place is cheap. Used to fold many scripts one after the
/// other.
#[derive(Debug)]
struct SegmentList {
    /// Has at least one part.
    parts: Vec<SegmentListPart>,
    segments: usize,
    bytes: usize,
    limit: usize,
}

#[derive(Debug, Default)]
struct SegmentListPart {
    bytes: u32,
    segments: Vec<Segment>,
}

impl SegmentList {
    /// Builds the list from a plain one. `limit` is the maximum number of bytes of the text.
    fn new(list: &[Segment], limit: usize) -> Self {
        let mut parts: Vec<SegmentListPart> =
            list.chunks(MAX_PART_SEGMENTS / 2).map(SegmentListPart::of).collect();
        if parts.is_empty() {
            parts.push(SegmentListPart::default());
        }
        Self { parts, segments: list.len(), bytes: length(list), limit: limit.min(MAX_BYTES) }
    }

    /// The plain list. Returns `None` if it would have too many segments.
    fn flat(&self) -> Option<Vec<Segment>> {
        let mut list = Vec::with_capacity(self.segments.min(MAX_SEGMENTS));
        for part in &self.parts {
            part.segments.iter().try_for_each(|segment| push(&mut list, *segment))?;
        }
        Some(list)
    }

    /// Folds a script into the list. Returns `None` in the same cases as [`fold`].
    fn fold(&mut self, edits: &[Edit], mut literals_at: u32) -> Option<()> {
        if edits.iter().any(|edit| edit.skip < 0) {
            return self.fold_back(edits, literals_at);
        }
        let mut text_at = 0_u32;
        for edit in edits {
            text_at = text_at.checked_add(edit.copy)?;
            let mut insert = Vec::with_capacity(2);
            push(&mut insert, Segment { pool_at: literals_at, len: edit.literal })?;
            push(&mut insert, Segment { pool_at: edit.pool_at, len: edit.pool_len })?;
            self.replace(text_at, edit.skip.unsigned_abs(), &insert)?;
            literals_at += edit.literal;
            text_at = text_at.checked_add(edit.literal)?.checked_add(edit.pool_len)?;
        }
        Some(())
    }

    /// Folds a script that moves back. As many of the copied bytes as possible stay in place. The segments of
    /// the other copies are read before the list changes, and are inserted at their new positions.
    fn fold_back(&mut self, edits: &[Edit], literals_at: u32) -> Option<()> {
        let Some(copies) = copies(edits, self.bytes)? else {
            return self.fold_by_rebuilding(edits, literals_at);
        };
        let stays = choose_staying(&copies);
        let mut moved = 0;
        let mut slices = Vec::with_capacity(copies.len());
        for (range, stays) in copies.iter().zip(&stays) {
            let slice = if *stays { Vec::new() } else { self.slice(range)? };
            moved += slice.len();
            // A valid text has at most `MAX_SEGMENTS` segments. Cutting at the ends of copies can add some, so twice
            // this number is certainly too many.
            if moved > 2 * MAX_SEGMENTS {
                return None;
            }
            slices.push(slice);
        }
        let (mut text_at, mut parent_at, mut insert) = (0_u32, 0_u32, Vec::new());
        let mut literals_at = literals_at;
        for (index, range) in copies.iter().enumerate() {
            if stays[index] {
                self.replace(text_at, range.start - parent_at, &insert)?;
                let kept = range.end - range.start;
                text_at = text_at.checked_add(length(&insert) as u32)?.checked_add(kept)?;
                parent_at = range.end;
                insert.clear();
            } else {
                insert.append(&mut slices[index]);
            }
            if let Some(edit) = edits.get(index) {
                push(&mut insert, Segment { pool_at: literals_at, len: edit.literal })?;
                push(&mut insert, Segment { pool_at: edit.pool_at, len: edit.pool_len })?;
                literals_at += edit.literal;
            }
        }
        let end = text_at as usize;
        self.replace(text_at, u32::try_from(self.bytes - end).ok()?, &insert)
    }

    /// Folds a script that moves back and has very many edits, by rebuilding the whole list.
    fn fold_by_rebuilding(&mut self, edits: &[Edit], literals_at: u32) -> Option<()> {
        *self = Self::new(&fold(&self.flat()?, edits, literals_at, self.limit)?, self.limit);
        Some(())
    }

    /// The segments of a range of bytes.
    fn slice(&self, range: &Range<u32>) -> Option<Vec<Segment>> {
        let mut list = Vec::new();
        let (mut index, mut offset) = self.find(range.start)?;
        let mut left = range.end - range.start;
        while left > 0 {
            let part = self.parts.get(index)?;
            let (first, start) = part.find(0, 0, offset);
            let mut cut = start;
            for segment in &part.segments[first..] {
                let len = (segment.len - cut).min(left);
                push(&mut list, Segment { pool_at: segment.pool_at + cut, len })?;
                left -= len;
                cut = 0;
            }
            (index, offset) = (index + 1, 0);
        }
        Some(list)
    }

    /// Removes bytes at a position, and inserts segments there.
    fn replace(&mut self, at: u32, remove: u32, insert: &[Segment]) -> Option<()> {
        let (index, offset) = self.find(at)?;
        self.bytes = (self.bytes + length(insert)).checked_sub(remove as usize)?;
        if self.bytes > self.limit {
            return None;
        }
        let before = self.parts[index].segments.len();
        let mut left = remove - self.parts[index].replace(offset, remove, insert);
        self.segments = self.segments + self.parts[index].segments.len() - before;

        let (first, mut next) = (index + 1, index + 1);
        while left > 0 {
            let part = self.parts.get_mut(next)?;
            let before = part.segments.len();
            if part.bytes <= left {
                left -= part.bytes;
                self.segments -= before;
                next += 1;
            } else {
                left -= part.replace(0, left, &[]);
                self.segments -= before - part.segments.len();
            }
        }
        self.parts.drain(first..next);
        if self.parts[index].segments.len() > MAX_PART_SEGMENTS {
            let long = std::mem::take(&mut self.parts[index].segments);
            self.parts.splice(index..=index, long.chunks(MAX_PART_SEGMENTS / 2).map(SegmentListPart::of));
        }
        if self.segments > 2 * MAX_SEGMENTS {
            // Unlike the function `fold`, this method does not join segments that follow one another in the pool.
            // `flat` does.
            *self = Self::new(&self.flat()?, self.limit);
        }
        Some(())
    }

    /// Finds the part that contains a position or ends at this position, and the offset in the part.
    fn find(&self, at: u32) -> Option<(usize, u32)> {
        let mut offset = at;
        for (index, part) in self.parts.iter().enumerate() {
            if offset <= part.bytes {
                return Some((index, offset));
            }
            offset -= part.bytes;
        }
        None
    }
}

impl SegmentListPart {
    fn of(segments: &[Segment]) -> Self {
        let mut own = Vec::with_capacity(MAX_PART_SEGMENTS + 2);
        own.extend_from_slice(segments);
        Self { bytes: length(segments) as u32, segments: own }
    }

    /// Removes at most this many bytes at a position, and inserts segments there. Returns how many bytes were
    /// removed.
    fn replace(&mut self, at: u32, remove: u32, insert: &[Segment]) -> u32 {
        let remove = remove.min(self.bytes - at);
        let (first, start) = self.find(0, 0, at);
        let (last, end) = self.find(first, at - start, at + remove);
        // The segments from `first` to `last` are removed, except the beginning of the first and the end of
        // the last.
        let head = (start > 0).then(|| Segment { len: start, ..self.segments[first] });
        let tail = (end > 0).then(|| {
            let cut = self.segments[last];
            Segment { pool_at: cut.pool_at + end, len: cut.len - end }
        });
        let after = if end > 0 { last + 1 } else { last };
        self.segments.splice(first..after, head.into_iter().chain(insert.iter().copied()).chain(tail));
        self.bytes = self.bytes - remove + length(insert) as u32;
        remove
    }

    /// Finds the segment that contains the byte `at`, and the offset in this segment. Returns the end of the
    /// list if no segment contains the byte. The search begins at the segment `index`, whose first byte is
    /// `begin`.
    fn find(&self, mut index: usize, mut begin: u32, at: u32) -> (usize, u32) {
        while let Some(segment) = self.segments.get(index) {
            if at < begin + segment.len {
                break;
            }
            begin += segment.len;
            index += 1;
        }
        (index, at - begin)
    }
}
