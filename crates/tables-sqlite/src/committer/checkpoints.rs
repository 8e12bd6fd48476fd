//! Decides when the log is written into the file, and which thread does it.
//!
//! The log grows up to [`Options::log_bytes`], so that a page that was changed by many commits is written into
//! the file only once. The thread of [`Checkpointer`] copies most of the log, in one or more passes, while
//! commits continue. Then the committer copies the last frames, so that SQLite can restart the log at its front.
//! The committer alone copies a short log.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use rashomon_tables::Result;
use rusqlite::Connection;

use super::{
    Committer,
    checkpointer::{self, Checkpointer, Pass},
};
use crate::{Options, file::PAGE_BYTES, log_mark, log_scan::FRAME_HEADER_BYTES};

/// The committer copies the last frames itself if their size is at most [`Options::log_bytes`] divided by this: 8 MB
/// by default.
const LAST_FRAMES_DIVISOR: u32 = 16;

/// The maximum number of passes in a checkpoint. After these, the committer copies the rest of the log. On a
/// slow disk, or while a reader keeps its snapshot, further passes would not come closer to the end of the log.
const MAX_PASSES: u32 = 4;

/// The state of the log.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// The number of frames in the log, as of the last commit.
    frames: Arc<AtomicU32>,
    /// While writes come in, a checkpoint begins when a new log has this many frames.
    max_frames: u32,
    /// The number of frames that the log had at the last checkpoint. 0 for a new log.
    done: u32,
    checkpointer: Checkpointer,
    /// The number of passes since the last checkpoint.
    passes: u32,
}

impl Checkpoints {
    pub(super) fn new(
        connection: &mut Connection,
        options: &Options,
        checkpointer: Checkpointer,
    ) -> rusqlite::Result<Self> {
        let frames = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&frames);
        connection.wal_hook(Some(move |_: &mut _, frames: i32| {
            counted.store(u32::try_from(frames).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        let max_frames = options.log_bytes / (PAGE_BYTES + FRAME_HEADER_BYTES) as u64;
        let max_frames = u32::try_from(max_frames).unwrap_or(u32::MAX).max(1);
        Ok(Self { frames, max_frames, done: 0, checkpointer, passes: 0 })
    }

    /// The number of frames in the log, as of the last commit.
    pub(super) fn log_frames(&self) -> u32 {
        self.frames.load(Ordering::Relaxed)
    }

    /// The number of frames that were added to the log since the last checkpoint.
    fn pending(&mut self) -> u32 {
        let frames = self.log_frames();
        // A log with fewer frames than at the last checkpoint is a new log.
        if frames < self.done {
            self.done = 0;
        }
        frames - self.done
    }

    /// The number of new frames at which a checkpoint of a long log begins. If a reader prevented the restart of
    /// the log after the last checkpoint, this number is small, so that the log does not become twice as long.
    fn checkpoint_threshold(&mut self) -> u32 {
        // Resets `done` if the log has restarted.
        self.pending();
        if self.done > 0 { self.max_last_frames() } else { self.max_frames }
    }

    /// The maximum number of frames that the committer copies itself after a pass.
    fn max_last_frames(&self) -> u32 {
        (self.max_frames / LAST_FRAMES_DIVISOR).max(1)
    }

    /// Whether a pass runs.
    pub(super) const fn is_running(&self) -> bool {
        self.checkpointer.is_running()
    }

    /// Writes the log into the file, without waiting for readers. Must not be called while a pass runs.
    pub(super) fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        // If a reader prevents a complete checkpoint, the next attempt follows only after further writes.
        self.done = checkpointer::pass(connection)?.frames;
        self.passes = 0;
        Ok(())
    }
}

impl Committer {
    /// Takes the next step of a checkpoint: starts a pass, or copies the last frames after a pass. If no
    /// checkpoint is in progress, begins one if the log has at least `min` new frames.
    pub(super) fn step_checkpoint(&mut self, min: u32) {
        if let Err(error) = self.try_step_checkpoint(min) {
            self.upkeep_failed(error, 0, "the log could not be written into the file");
        }
    }

    /// Takes the next step of a checkpoint. If no checkpoint is in progress, begins one if the log is long.
    pub(super) fn step_checkpoint_of_long_log(&mut self) {
        let min = self.upkeep.checkpoints.checkpoint_threshold();
        self.step_checkpoint(min);
    }

    fn try_step_checkpoint(&mut self, min: u32) -> Result<()> {
        if self.stopped.is_some() {
            return Ok(());
        }
        let checkpoints = &mut self.upkeep.checkpoints;
        let left = if checkpoints.checkpointer.is_running() {
            let Some(ended) = checkpoints.checkpointer.poll() else { return Ok(()) };
            self.pass_ended(ended)?
        } else {
            let pending = checkpoints.pending();
            if pending < min.max(1) {
                return Ok(());
            }
            pending
        };
        let checkpoints = &self.upkeep.checkpoints;
        if left <= checkpoints.max_last_frames() || checkpoints.passes >= MAX_PASSES {
            return self.write_log_into_file();
        }
        self.mark_log()?;
        let checkpoints = &mut self.upkeep.checkpoints;
        checkpoints.passes += 1;
        let started = checkpoints.checkpointer.start().map_err(|error| self.write_error(&error))?;
        if started { Ok(()) } else { self.write_log_into_file() }
    }

    /// Handles the result of a pass. Returns how many frames of the log are not in the file yet.
    fn pass_ended(&mut self, ended: rusqlite::Result<Pass>) -> Result<u32> {
        let pass = ended.map_err(|error| {
            // The committer takes the next step itself.
            self.upkeep.checkpoints.passes = MAX_PASSES;
            self.write_error(&error)
        })?;
        Ok(self.upkeep.checkpoints.log_frames().saturating_sub(pass.in_file))
    }

    /// Waits for the end of the running pass, if a pass runs.
    pub(super) fn finish_pass(&mut self) -> Result<()> {
        match self.upkeep.checkpoints.checkpointer.wait() {
            Some(ended) => self.pass_ended(ended).map(drop),
            None => Ok(()),
        }
    }

    /// Writes the log into the file, without waiting for readers. Does nothing after a failed fsync.
    pub(super) fn write_log_into_file(&mut self) -> Result<()> {
        if self.stopped.is_some() {
            return Ok(());
        }
        self.finish_pass()?;
        self.mark_log()?;
        self.upkeep.checkpoints.write(&self.parts.connection).map_err(|error| self.write_error(&error))
    }

    /// Writes the length of the log into the mark. This happens before the log is written into the file.
    fn mark_log(&mut self) -> Result<()> {
        if !self.log_is_marked {
            return Ok(());
        }
        let frames = self.upkeep.checkpoints.log_frames();
        log_mark::renew(&self.parts.connection, &self.parts.directory, frames)
    }

    /// Waits for the running pass, and ends the thread of the checkpointer. Returns the error of the pass if it
    /// failed.
    pub(super) fn stop_passes(&mut self) -> Result<()> {
        let finished = self.finish_pass();
        self.upkeep.checkpoints.checkpointer.stop();
        finished
    }
}

#[cfg(test)]
mod tests;
