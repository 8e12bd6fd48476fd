//! Parses and checks one page of a tree of rows: <https://www.sqlite.org/fileformat2.html>.

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};

use super::record::Record;

const LEAF: u8 = 0x0a;
const INTERIOR: u8 = 0x02;

/// The size of the header of a leaf page.
const LEAF_HEADER_BYTES: usize = 8;
/// The size of the header of an interior page. Its last four bytes are the number of the last child page.
const INTERIOR_HEADER_BYTES: usize = 12;

/// The size of a page number.
const NUMBER_BYTES: usize = 4;

/// The number of columns of a row. The first column is the key.
const COLUMNS: usize = 5;

/// A parsed page. Its structure is valid: after the unused space in the middle of the page, each byte belongs
/// to exactly one row or free block, or is counted as a fragment.
#[derive(Debug)]
pub(crate) struct TreePage {
    /// The keys of all rows, one after the other.
    keys: Vec<u8>,
    /// The end of each row's key in `keys`.
    ends: Vec<usize>,
    /// The offset of each row on the page.
    cells: Vec<usize>,
    /// The child page before each row, then the child page after the last row. Empty for a leaf.
    children: Vec<u32>,
    /// For each row, whether its key was compared with its checksum. Empty for a leaf.
    checked: Vec<AtomicBool>,
}

/// The bytes of a row on its page, and its key.
struct Cell {
    bytes: Range<usize>,
    key: Key,
}

/// The location of a row's key: completely on the page, or continued on overflow pages.
enum Key {
    Local(Range<usize>),
    Continued { start: usize, local_end: usize, bytes: usize, next: u32 },
}

impl TreePage {
    /// Parses a page. An error if the page is damaged, or if its rows are not in ascending order.
    ///
    /// `overflow` reads the rest of a key from its overflow pages. Its arguments are the first overflow page
    /// and the number of bytes. The error describes the damage.
    pub(crate) fn parse(
        page: &[u8],
        overflow: impl FnMut(u32, usize) -> Result<Vec<u8>, String>,
    ) -> Result<Self, String> {
        let parsed = Self::parse_unordered(page, overflow)?;
        match (1..parsed.rows()).find(|row| parsed.key(row - 1) >= parsed.key(*row)) {
            Some(row) => Err(format!("its row {row} does not sort after the row before it")),
            None => Ok(parsed),
        }
    }

    /// Parses a page without checking the order of its rows. See [`Self::parse`].
    pub(crate) fn parse_unordered(
        page: &[u8],
        mut overflow: impl FnMut(u32, usize) -> Result<Vec<u8>, String>,
    ) -> Result<Self, String> {
        let kind = *page.first().ok_or("it is empty")?;
        let header = match kind {
            LEAF => LEAF_HEADER_BYTES,
            INTERIOR => INTERIOR_HEADER_BYTES,
            _ => return Err(format!("its kind is {kind}, which is not that of a page of rows")),
        };
        let truncated = || "its header is truncated".to_owned();
        let rows = short(page, 3).ok_or_else(truncated)?;
        let content = match short(page, 5).ok_or_else(truncated)? {
            0 => 1 << 16,
            content => content,
        };
        if content > page.len() || header + 2 * rows > content {
            return Err("its rows begin within its row offsets, or after its end".to_owned());
        }
        let mut parsed = Self {
            keys: Vec::new(),
            ends: Vec::with_capacity(rows),
            cells: Vec::with_capacity(rows),
            children: Vec::new(),
            checked: Vec::new(),
        };
        let mut used = free_blocks(page, content)?;
        for row in 0..rows {
            let at = short(page, header + 2 * row).ok_or_else(truncated)?;
            let cell = (at >= content).then(|| cell(page, at, kind)).flatten();
            let cell = cell.ok_or_else(|| format!("its row {row} cannot be read"))?;
            if kind == INTERIOR {
                parsed.children.push(number(page, at).ok_or_else(truncated)?);
                parsed.checked.push(AtomicBool::new(false));
            }
            match cell.key {
                Key::Local(key) => parsed.keys.extend_from_slice(&page[key]),
                Key::Continued { start, local_end, bytes, next } => {
                    parsed.keys.extend_from_slice(&page[start..local_end]);
                    parsed.keys.extend(overflow(next, bytes - (local_end - start))?);
                }
            }
            parsed.ends.push(parsed.keys.len());
            parsed.cells.push(at);
            used.push(cell.bytes);
        }
        if kind == INTERIOR {
            parsed.children.push(number(page, 8).ok_or_else(truncated)?);
        }
        check_coverage(page, content, used)?;
        Ok(parsed)
    }

    pub(super) const fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    pub(crate) const fn rows(&self) -> usize {
        self.ends.len()
    }

    /// The size of this value in memory.
    pub(super) const fn bytes(&self) -> usize {
        let of_a_row = size_of::<(usize, usize, u32, AtomicBool)>();
        size_of::<Self>() + self.keys.capacity() + of_a_row * self.rows()
    }

    pub(crate) fn key(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.keys[start..self.ends[row]]
    }

    /// Whether the key of this row was compared with the row's checksum. Always `true` for a leaf: its rows
    /// separate no child pages, so their keys are not compared.
    pub(crate) fn is_checked(&self, row: usize) -> bool {
        self.checked.get(row).is_none_or(|checked| checked.load(Ordering::Relaxed))
    }

    /// Records that the key of this row was compared with the row's checksum.
    pub(crate) fn set_checked(&self, row: usize) {
        self.checked.iter().skip(row).take(1).for_each(|checked| checked.store(true, Ordering::Relaxed));
    }

    /// The number of rows with keys before this key.
    pub(crate) fn rows_before(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.rows());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.key(middle) < key { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The child page before a row. With `row == self.rows()`, the child page after the last row. `None` for
    /// a leaf.
    pub(crate) fn child(&self, row: usize) -> Option<u32> {
        self.children.get(row).copied()
    }
}

impl TreePage {
    /// Decodes the columns of a row, except its key. `page` has to be the bytes from which this page was parsed.
    /// `overflow` is the same as in [`Self::parse`].
    pub(crate) fn record(
        &self,
        page: &[u8],
        row: usize,
        mut overflow: impl FnMut(u32, usize) -> Result<Vec<u8>, String>,
    ) -> Result<Record, String> {
        let unreadable = || format!("its row {row} cannot be read");
        let mut at = self.cells[row] + if self.children.is_empty() { 0 } else { NUMBER_BYTES };
        let payload = varint(page, &mut at).and_then(|bytes| usize::try_from(bytes).ok());
        let payload = payload.ok_or_else(unreadable)?;
        let local = local_bytes(page.len(), payload);
        let mut record = page.get(at..at + local).ok_or_else(unreadable)?.to_vec();
        if local < payload {
            record.extend(overflow(number(page, at + local).ok_or_else(unreadable)?, payload - local)?);
        }
        let (mut kind_at, mut columns) = (0, Vec::with_capacity(COLUMNS));
        let mut value_at = varint(&record, &mut kind_at)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(unreadable)?;
        for _ in 0..COLUMNS {
            let kind = varint(&record, &mut kind_at).ok_or_else(unreadable)?;
            let bytes = column_bytes(kind).ok_or_else(unreadable)?;
            let bytes = value_at..value_at + bytes;
            value_at = bytes.end;
            columns.push((kind, bytes));
        }
        let int = |column: usize| {
            let (kind, bytes) = &columns[column];
            int(*kind, record.get(bytes.clone())?)
        };
        let key = columns[0].1.clone();
        Ok(Record {
            written_at: int(1).ok_or_else(unreadable)?,
            expires_at: int(2),
            large: int(3),
            value: (columns[4].0 != 0)
                .then(|| record.get(columns[4].1.clone()).map(<[u8]>::to_vec))
                .flatten(),
            key: at + key.start..at + key.end.min(local),
        })
    }
}

/// Decodes an integer column. `None` if the column is null or has another type.
fn int(kind: u64, bytes: &[u8]) -> Option<i64> {
    match kind {
        8 => Some(0),
        9 => Some(1),
        1..=6 => {
            let negative = bytes.first().is_some_and(|byte| *byte >= 0x80);
            let start = if negative { -1 } else { 0 };
            Some(bytes.iter().fold(start, |number, byte| number << 8 | i64::from(*byte)))
        }
        _ => None,
    }
}

/// The size of a column with this serial type. `None` for the reserved types.
fn column_bytes(kind: u64) -> Option<usize> {
    usize::try_from(match kind {
        0 | 8 | 9 => 0,
        5 => 6,
        6 => 8,
        small @ 1..=4 => small,
        10 | 11 => return None,
        long => (long - 12) / 2,
    })
    .ok()
}

/// Returns the free blocks of a page. On the page they are a linked list. An error if the list is not in
/// ascending order, or leads outside of the page.
fn free_blocks(page: &[u8], content: usize) -> Result<Vec<Range<usize>>, String> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    let mut next = short(page, 1).unwrap_or(0);
    while next != 0 {
        let behind = blocks.last().map_or(content, |block| block.end);
        let (after, size) = (short(page, next), short(page, next + 2));
        let (Some(after), Some(size)) = (after, size) else {
            return Err("its list of free blocks leads outside of it".to_owned());
        };
        if next < behind || size < 4 || next + size > page.len() {
            return Err("one of its free blocks is in a wrong place, or has a wrong size".to_owned());
        }
        blocks.push(next..next + size);
        next = after;
    }
    Ok(blocks)
}

/// Checks that rows and free blocks do not overlap. Also compares the number of bytes that belong to no row
/// and no free block with the number of fragmented bytes in the header.
fn check_coverage(page: &[u8], content: usize, mut used: Vec<Range<usize>>) -> Result<(), String> {
    used.sort_unstable_by_key(|range| range.start);
    let (mut end, mut between) = (content, 0);
    for range in used {
        if range.start < end {
            return Err("its rows or free blocks overlap".to_owned());
        }
        between += range.start - end;
        end = range.end;
    }
    between += page.len() - end;
    if between == usize::from(page[7]) {
        Ok(())
    } else {
        Err(format!("it has {between} fragmented bytes, and its header has another number"))
    }
}

/// Parses the row that begins at `start`. `None` if the row does not have the columns of the table `rows`, or
/// does not end on the page.
fn cell(page: &[u8], start: usize, kind: u8) -> Option<Cell> {
    let mut at = start + if kind == INTERIOR { NUMBER_BYTES } else { 0 };
    let payload = usize::try_from(varint(page, &mut at)?).ok()?;
    let local = local_bytes(page.len(), payload);
    let local_end = at.checked_add(local)?;
    let end = if local < payload { local_end + NUMBER_BYTES } else { local_end };
    if end > page.len() {
        return None;
    }
    let record = at;
    let header = usize::try_from(varint(page, &mut at)?).ok()?;
    let (mut key_bytes, mut columns_bytes) = (0, 0usize);
    for column in 0..COLUMNS {
        let kind = varint(page, &mut at)?;
        let is_number = kind <= 6 || kind == 8 || kind == 9;
        let is_blob = kind >= 12 && kind.is_multiple_of(2);
        let fits = match column {
            0 => is_blob,
            1..=3 => is_number,
            _ => is_blob || kind == 0,
        };
        if !fits {
            return None;
        }
        let bytes = column_bytes(kind)?;
        columns_bytes = columns_bytes.checked_add(bytes)?;
        if column == 0 {
            key_bytes = bytes;
        }
    }
    let key = record.checked_add(header)?;
    if at != key || key > local_end || header.checked_add(columns_bytes)? != payload {
        return None;
    }
    let key = if key + key_bytes <= local_end {
        Key::Local(key..key + key_bytes)
    } else {
        Key::Continued { start: key, local_end, bytes: key_bytes, next: number(page, local_end)? }
    };
    Some(Cell { bytes: start..end.max(start + 4), key })
}

/// Returns how many bytes of a row's record are on its page. The rest is on overflow pages.
const fn local_bytes(page: usize, payload: usize) -> usize {
    local_bytes_up_to(page, payload, (page - 12) * 64 / 255 - 23)
}

/// Does the same as [`local_bytes`] for pages that hold at most `most` bytes of a record.
pub(super) const fn local_bytes_up_to(page: usize, payload: usize, most: usize) -> usize {
    if payload <= most {
        return payload;
    }
    let least = (page - 12) * 32 / 255 - 23;
    let local = least + (payload - least) % (page - NUMBER_BYTES);
    if local <= most { local } else { least }
}

/// Reads a number of two bytes.
pub(super) fn short(page: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes(page.get(at..at + 2)?.try_into().ok()?)))
}

/// Reads a number of four bytes, such as a page number.
pub(super) fn number(page: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(page.get(at..at + NUMBER_BYTES)?.try_into().ok()?))
}

/// Reads a number of up to nine bytes, the most significant byte first, and moves `at` behind the number. The
/// first eight bytes contribute seven bits each, and the ninth byte contributes eight.
pub(super) fn varint(page: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for byte in 0..9 {
        let next = *page.get(*at)?;
        *at += 1;
        if byte == 8 {
            return Some(value << 8 | u64::from(next));
        }
        value = value << 7 | u64::from(next & 0x7f);
        if next < 0x80 {
            break;
        }
    }
    Some(value)
}
