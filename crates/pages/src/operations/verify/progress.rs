//! The progress of a verification.

use std::sync::{Mutex, PoisonError};

use crate::VerifyProgress;

/// Counts what a verification has read, and reports the counts to a callback.
pub(super) struct BodyProgress<'a>(Mutex<(VerifyProgress, &'a mut (dyn FnMut(VerifyProgress) + Send))>);

impl<'a> BodyProgress<'a> {
    pub(super) fn new(callback: &'a mut (dyn FnMut(VerifyProgress) + Send)) -> Self {
        Self(Mutex::new((VerifyProgress::default(), callback)))
    }

    /// Adds to the number of bodies and entries read, and reports the new number.
    pub(super) fn add(&self, bodies: u64) {
        self.change(|progress| progress.items += bodies);
    }

    /// Adds to the finished part, and to the number of bodies read.
    pub(super) fn finish(&self, part: u64, bodies: u64) {
        self.change(|progress| {
            progress.position += part;
            progress.items += bodies;
        });
    }

    /// Sets what is left, in the unit of the finished part.
    pub(super) fn set_left(&self, left: u64) {
        self.change(|progress| progress.total = Some(progress.position + left));
    }

    fn change(&self, change: impl FnOnce(&mut VerifyProgress)) {
        let (progress, callback) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(progress);
        callback(*progress);
    }
}
