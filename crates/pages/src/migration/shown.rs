//! The progress of a migration, for display.

use std::sync::{Mutex, PoisonError};

use rashomon_tables::Row;

/// A number of rows, and the approximate number of their bytes, as [`rashomon_tables::Row::size`] counts
/// them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of rows.
    pub rows: u64,
    /// The number of bytes of their keys and values.
    pub bytes: u64,
}

impl Counts {
    pub(crate) fn of(rows: &[Row]) -> Self {
        Self { rows: rows.len() as u64, bytes: rows.iter().map(Row::size).sum::<usize>() as u64 }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
    }
}

/// Adds up the progress of concurrent work, and reports the sum.
pub(crate) struct ProgressReporter<'a>(Mutex<ReportedProgress<'a>>);

struct ReportedProgress<'a> {
    so_far: Counts,
    show: &'a mut (dyn FnMut(Counts) + Send),
}

impl<'a> ProgressReporter<'a> {
    pub(crate) const fn new(show: &'a mut (dyn FnMut(Counts) + Send)) -> Self {
        Self(Mutex::new(ReportedProgress { so_far: Counts { rows: 0, bytes: 0 }, show }))
    }

    pub(crate) fn add(&self, done: Counts) {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.so_far.add(done);
        let so_far = watched.so_far;
        (watched.show)(so_far);
    }
}
