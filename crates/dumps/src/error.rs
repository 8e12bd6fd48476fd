//! Errors of inputs, with their positions.

use std::{fmt, io, sync::Arc};

use rashomon_pages::{Shown, visible};

use crate::compression::SpoolError;

/// The error for an input that cannot be read to its end. All complete events before the position have been returned.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{position}: {}", visible(&problem.to_string(), Shown::InLine))]
pub struct ReadError {
    /// The problem.
    #[source]
    pub problem: Problem,
    /// The position of the problem.
    pub position: Box<InputPosition>,
}

impl From<io::Error> for ReadError {
    /// An error at the beginning of an input.
    fn from(error: io::Error) -> Self {
        Self { problem: Problem::from_io_error(error), position: Box::default() }
    }
}

/// What is wrong with an input.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The disk or the network failed.
    #[error("cannot read the rest of the input: {0}")]
    Source(Arc<io::Error>),
    /// The compressed data is damaged.
    #[error("the compressed data is damaged: {0}")]
    Damaged(Arc<io::Error>),
    /// The input has no content, or only spaces.
    #[error("the input is empty: check the command or the download that makes it")]
    Empty,
    /// The input is truncated.
    #[error("the input is truncated: {0}")]
    CutShort(String),
    /// The input is not well-formed, or is not an export.
    #[error("{0}")]
    Malformed(String),
    /// The input is well-formed, but has a feature that is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// A part of the input exceeds a limit.
    #[error("{0}")]
    TooLarge(String),
    /// Other imports use the space for temporary files. The input itself may be valid.
    #[error("{0}")]
    NoRoom(String),
    /// The disk for temporary files is full. The input itself may be valid.
    #[error("{0}")]
    DiskFull(String),
    /// A temporary file cannot be written. The input itself may be valid.
    #[error("{0}")]
    Disk(String),
}

/// A position in an input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InputPosition {
    /// The file in the archive, if the input is an archive with several files.
    pub member: Option<String>,
    /// The page that contains the position, or the last page before the position.
    pub page: Option<String>,
    /// The line in which that page begins, if the page has not ended before the position.
    pub page_line: Option<u64>,
    /// The revision that contains the position, or the last revision of that page before the position.
    pub revision: Option<String>,
    /// Whether the position is inside that revision, rather than after it.
    pub inside: bool,
    /// The line, counted from 1; 0 if no decompressed byte could be read.
    pub line: u64,
    /// The offset in bytes, counted from 0, in the decompressed input.
    pub offset: u64,
    /// The number of compressed bytes read so far. The decoder reads somewhat ahead.
    pub compressed: Option<u64>,
}

impl fmt::Display for InputPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(member) = &self.member {
            write!(f, "in {member:?} of the archive, ")?;
        }
        match self.line {
            0 => f.write_str("at the beginning of the input")?,
            line => write!(f, "line {line}, byte {}", self.offset)?,
        }
        if let Some(compressed) = self.compressed {
            write!(f, " (about byte {compressed} of the compressed data)")?;
        }
        let preposition = if self.inside { "in" } else { "after" };
        match (&self.page, &self.revision) {
            (Some(page), Some(revision)) => {
                write!(f, ", {preposition} revision {revision} of page {page:?}")?;
            }
            // The page may have ended before the position.
            (Some(page), None) => write!(f, ", after the beginning of page {page:?}")?,
            (None, _) if self.page_line.is_some() => f.write_str(", in a page")?,
            (None, _) => {}
        }
        self.page_line.map_or(Ok(()), |line| write!(f, " that begins in line {line}"))
    }
}

impl ReadError {
    /// Whether the problem is within a page, and pages after it can be read.
    #[must_use]
    pub const fn concerns_a_page(&self) -> bool {
        self.position.page_line.is_some() && self.problem.concerns_a_part()
    }

    /// Whether the position in the compressed data is worth reporting: the source failed, or the input is
    /// damaged or cut short.
    pub(crate) const fn concerns_compressed_data(&self) -> bool {
        matches!(self.problem, Problem::Source(_) | Problem::Damaged(_) | Problem::CutShort(_))
    }
}

impl Problem {
    /// Whether the problem concerns only a part of the input, and what follows can be read.
    pub(crate) const fn concerns_a_part(&self) -> bool {
        matches!(self, Self::Malformed(_) | Self::Unsupported(_) | Self::TooLarge(_))
    }

    /// Whether the input itself may be valid, and could not be read for another reason.
    pub(crate) const fn is_of_machine(&self) -> bool {
        matches!(self, Self::Source(_) | Self::NoRoom(_) | Self::DiskFull(_) | Self::Disk(_))
    }

    /// Converts an error of the decompressed stream.
    pub(crate) fn from_io_error(error: impl Into<Arc<io::Error>>) -> Self {
        let error = error.into();
        if crate::compression::source_failed(&error) {
            return Self::Source(error);
        }
        if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<SpoolError>()) {
            return match error {
                SpoolError::InUse(_) => Self::NoRoom(error.to_string()),
                SpoolError::Disk { .. } if error.is_full_disk() => Self::DiskFull(error.to_string()),
                SpoolError::Disk { .. } => Self::Disk(error.to_string()),
            };
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::CutShort("the compressed data is incomplete".to_owned()),
            io::ErrorKind::Unsupported => Self::Unsupported(error.to_string()),
            io::ErrorKind::FileTooLarge => Self::TooLarge(error.to_string()),
            _ => Self::Damaged(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_other_faults_and_other_imports_are_told_apart() {
        let of = |error: SpoolError| Problem::from_io_error(io::Error::from(error));
        // ENOSPC, EDQUOT, EROFS.
        for (code, is_full) in [(28, true), (122, true), (30, false)] {
            let problem = of(SpoolError::disk(io::Error::from_raw_os_error(code)));
            assert_eq!(matches!(problem, Problem::DiskFull(_)), is_full, "{problem:?}");
            assert_eq!(matches!(problem, Problem::Disk(_)), !is_full, "{problem:?}");
            assert!(problem.to_string().contains("TMPDIR"), "{problem}");
        }
        assert!(matches!(of(SpoolError::InUse(5)), Problem::NoRoom(_)));
    }
}
