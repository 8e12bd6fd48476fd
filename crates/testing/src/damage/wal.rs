//! The parts of the write-ahead log of SQLite that are needed to damage it:
//! <https://www.sqlite.org/fileformat2.html#walformat>.

/// Bytes of the header of a log.
pub const HEADER_BYTES: usize = 32;

/// Bytes of the header of a frame, before its page.
pub const FRAME_HEADER_BYTES: usize = 24;

/// Bytes of a page of the store.
pub const PAGE_BYTES: usize = rashomon_tables_sqlite::PAGE_BYTES;

/// Bytes of a frame.
pub const FRAME_BYTES: usize = FRAME_HEADER_BYTES + PAGE_BYTES;

/// Returns the offsets at which the commits of a log end, in order. The log ends before the first frame that does not
/// have the salt of the header.
#[must_use]
pub fn commit_ends(log: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let Some(salt) = log.get(16..24) else { return ends };
    let mut at = HEADER_BYTES;
    while let Some(frame) = log.get(at..at + FRAME_BYTES) {
        if &frame[8..16] != salt {
            break;
        }
        at += FRAME_BYTES;
        if frame[4..8] != [0; 4] {
            ends.push(at);
        }
    }
    ends
}
