//! A reader of one format, and its limits.

use std::collections::VecDeque;

use rashomon_clock::Timestamp;
use rashomon_pages::Definitions;

use crate::{Event, InputPosition, Problem};

/// Limits on the sizes and times in an input, and what becomes of broken pages.
#[derive(Debug, Clone, Copy)]
pub struct ReadLimits {
    /// The maximum size of a text in XML, in bytes.
    pub text: usize,
    /// The maximum size of a line in JSON lines, in bytes.
    pub line: usize,
    /// The latest allowed time. A revision with a later time is left out, since it is in the future.
    pub latest: Timestamp,
    /// Whether a page that cannot be read is reported and skipped. Otherwise, it is the end of the input.
    pub skip_broken: bool,
}

impl Default for ReadLimits {
    /// Texts may be as large as a property may be by default. Lines may have 512 MiB: the bodies of one write have
    /// at most 256 MiB, and their JSON form is longer. Times are not limited.
    fn default() -> Self {
        Self {
            text: Definitions::DEFAULT_MAX_SIZE as usize,
            line: 512 << 20,
            latest: Timestamp::MAX,
            skip_broken: false,
        }
    }
}

/// A reader of one format.
pub(crate) trait FormatReader {
    /// Reads the next part, and adds its events to `found`. Returns `false` at the end. Must not be called
    /// again after the end or an error.
    fn step(&mut self, found: &mut VecDeque<Event>) -> Result<bool, Problem>;

    /// The position of the problem with which a step has ended.
    fn position(&self, problem: &Problem) -> InputPosition;
}
