//! Reads a log of SQLite: finds out how much of it is undamaged, and whether acknowledged commits after the
//! undamaged part are lost.
//!
//! SQLite reads a log up to its first damaged frame, and drops the rest without an error. This is correct if
//! a crash interrupted a write: the rest is then at most one transaction, which was never acknowledged. But a
//! commit that is followed by more frames was acknowledged.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{ErrorKind, Read},
    path::Path,
};

/// The size of the header of a log.
pub(crate) const HEADER_BYTES: usize = 32;
/// The size of the header of a frame.
pub(crate) const FRAME_HEADER_BYTES: usize = 24;

/// The maximum page size of SQLite.
const MAX_PAGE_BYTES: u32 = 1 << 16;

/// The magic number of a log. Its lowest bit gives the byte order of the checksum.
const MAGIC: u32 = 0x377f_0682;

/// The state of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogScan {
    /// The number of the log. SQLite increments it each time that the log restarts at the front.
    pub(crate) number: u32,
    /// The number of frames up to the end of the last complete and undamaged commit.
    pub(crate) frames: u32,
    /// Whether a commit after these frames was acknowledged, and is therefore lost.
    pub(crate) has_lost_commits: bool,
}

/// The header of a log.
#[derive(Debug, Clone, Copy)]
struct Header {
    is_big_endian: bool,
    page_bytes: usize,
    number: u32,
    salts: [u8; 8],
    sum: Checksum,
}

/// The running checksum of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Checksum(u32, u32);

/// Reads the number in the header of a log. The inner error says that the log is missing, or describes its damage.
pub(crate) fn number_of(log: &Path) -> std::io::Result<Result<u32, &'static str>> {
    let Some(mut file) = open(log)? else { return Ok(Err(LOG_MISSING)) };
    Ok(read_header(&mut file)?.map(|header| header.number))
}

/// Reads the whole log. The inner error says that the log is missing, or describes the damage of its header.
pub(crate) fn scan(log: &Path) -> std::io::Result<Result<LogScan, &'static str>> {
    let Some(mut log) = open(log)? else { return Ok(Err(LOG_MISSING)) };
    let header = match read_header(&mut log)? {
        Ok(header) => header,
        Err(what) => return Ok(Err(what)),
    };
    let mut frames = 0;
    let (mut sum, mut is_whole) = (header.sum, true);
    let mut bytes = vec![0; FRAME_HEADER_BYTES + header.page_bytes];
    let mut number = 0;
    // The frames after the last undamaged commit, and the number of them up to the last frame of this log.
    let mut behind = Vec::new();
    let mut ends = 0;
    while read_full(&mut log, &mut bytes)? {
        number += 1;
        is_whole = is_whole && header.follows(&bytes, &mut sum);
        behind.push(Frame { page: word(&bytes, 0), is_commit: word(&bytes, 4) != 0 });
        // A frame without the salts of this log is from an earlier log. If a frame of this log follows, the
        // frame before it is damaged, and belongs to this log.
        if header.has_frame(&bytes) {
            ends = behind.len();
        }
        if is_whole && word(&bytes, 4) != 0 {
            frames = number;
            behind.clear();
            ends = 0;
        }
    }
    behind.truncate(ends);
    let has_lost_commits = has_several_commits(&behind);
    Ok(Ok(LogScan { number: header.number, frames, has_lost_commits }))
}

const LOG_MISSING: &str = "the log is missing";

/// A frame after the undamaged part of a log.
#[derive(Debug, Clone, Copy)]
struct Frame {
    page: u32,
    is_commit: bool,
}

/// Whether these frames belong to more than one transaction: frames follow a commit, or a page occurs twice.
/// Within one transaction, SQLite writes each page once; only the last frame may repeat a page.
fn has_several_commits(frames: &[Frame]) -> bool {
    let Some((_, frames)) = frames.split_last() else { return false };
    let pages: BTreeSet<_> = frames.iter().map(|frame| frame.page).collect();
    frames.iter().any(|frame| frame.is_commit) || pages.len() < frames.len()
}

impl Header {
    /// Whether a frame belongs to this log, and not to an earlier log in the same file.
    fn has_frame(&self, frame: &[u8]) -> bool {
        frame[8..16] == self.salts
    }

    /// Whether a frame is undamaged, and follows a frame with the checksum `sum`. Sets `sum` to the checksum of
    /// this frame.
    fn follows(&self, frame: &[u8], sum: &mut Checksum) -> bool {
        let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
        *sum = sum.of(&head[..8], self.is_big_endian).of(page, self.is_big_endian);
        self.has_frame(frame) && *sum == Checksum(word(head, 16), word(head, 20))
    }
}

impl Checksum {
    fn of(self, bytes: &[u8], is_big_endian: bool) -> Self {
        let read =
            |word: [u8; 4]| if is_big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) };
        let Self(mut one, mut two) = self;
        for [first, second] in bytes.as_chunks::<4>().0.as_chunks::<2>().0 {
            one = one.wrapping_add(read(*first)).wrapping_add(two);
            two = two.wrapping_add(read(*second)).wrapping_add(one);
        }
        Self(one, two)
    }
}

fn open(log: &Path) -> std::io::Result<Option<File>> {
    match File::open(log) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_header(log: &mut File) -> std::io::Result<Result<Header, &'static str>> {
    const DAMAGED: &str = "the present log is damaged";
    let mut bytes = [0; HEADER_BYTES];
    if !read_full(log, &mut bytes)? {
        return Ok(Err("the present log is truncated"));
    }
    let (magic, page_bytes) = (word(&bytes, 0), word(&bytes, 8));
    let is_big_endian = magic & 1 == 1;
    let sum = Checksum(0, 0).of(&bytes[..24], is_big_endian);
    let is_whole = magic & !1 == MAGIC && sum == Checksum(word(&bytes, 24), word(&bytes, 28));
    if !is_whole || !page_bytes.is_power_of_two() || !(512..=MAX_PAGE_BYTES).contains(&page_bytes) {
        return Ok(Err(DAMAGED));
    }
    let mut salts = [0; 8];
    salts.copy_from_slice(&bytes[16..24]);
    Ok(Ok(Header { is_big_endian, page_bytes: page_bytes as usize, number: word(&bytes, 16), salts, sum }))
}

/// Fills the buffer. Returns `false` if the file ends before the buffer is full.
fn read_full(file: &mut File, buffer: &mut [u8]) -> std::io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads a number of four bytes.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
