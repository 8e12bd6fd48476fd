//! The checkpointer: a thread that writes the log into the file, so that commits continue meanwhile.
//!
//! A pass copies the frames that the log has when the pass begins. The committer appends further frames during
//! the pass. So the log can restart at its front only after the committer itself has written the last frames
//! ([`super::checkpoints`]). The committer starts each pass, and only one runs at a time. After a failed fsync,
//! the committer starts no further pass.

use std::{path::PathBuf, sync::Arc, thread::JoinHandle};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use rusqlite::{Connection, Error::SqliteFailure, ffi};

use crate::{file, panics::Panics};

/// The state of the log after a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    /// The number of frames in the log.
    pub(crate) frames: u32,
    /// The number of frames that are in the file.
    pub(crate) in_file: u32,
}

/// The function that runs a pass. A test replaces it.
pub(crate) type RunPass = fn(&Connection) -> rusqlite::Result<Pass>;

/// The checkpointer. Its thread starts with the first pass.
#[derive(Debug)]
pub(super) struct Checkpointer {
    directory: PathBuf,
    run: RunPass,
    panics: Arc<Panics>,
    thread: Option<Thread>,
    is_running: bool,
}

#[derive(Debug)]
struct Thread {
    starts: Sender<()>,
    passes: Receiver<rusqlite::Result<Pass>>,
    handle: JoinHandle<()>,
}

impl Checkpointer {
    pub(super) const fn new(directory: PathBuf, run: RunPass, panics: Arc<Panics>) -> Self {
        Self { directory, run, panics, thread: None, is_running: false }
    }

    pub(super) const fn is_running(&self) -> bool {
        self.is_running
    }

    /// Starts a pass. Returns `false` if the thread cannot be started, or has ended.
    pub(super) fn start(&mut self) -> rusqlite::Result<bool> {
        if self.thread.is_none() {
            let connection = file::open_checkpointer(&self.directory)?;
            self.thread = Thread::start(connection, self.run, Arc::clone(&self.panics));
        }
        self.is_running = self.thread.as_ref().is_some_and(|thread| thread.starts.send(()).is_ok());
        Ok(self.is_running)
    }

    /// Returns the result of the running pass if it has ended. `None` if no pass runs, if the pass still runs, or if
    /// the thread has ended.
    pub(super) fn poll(&mut self) -> Option<rusqlite::Result<Pass>> {
        let passes = &self.thread.as_ref().filter(|_| self.is_running)?.passes;
        match passes.try_recv() {
            Ok(pass) => {
                self.is_running = false;
                Some(pass)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.is_running = false;
                None
            }
        }
    }

    /// Waits for the end of the running pass, and returns its result. `None` if no pass runs, or the thread has ended.
    pub(super) fn wait(&mut self) -> Option<rusqlite::Result<Pass>> {
        let passes = &self.thread.as_ref().filter(|_| self.is_running)?.passes;
        self.is_running = false;
        passes.recv().ok()
    }

    /// Ends the thread, and closes its connection. The caller must have waited for the running pass.
    pub(super) fn stop(&mut self) {
        if let Some(Thread { starts, handle, .. }) = self.thread.take() {
            drop(starts);
            let _ = handle.join();
        }
    }
}

impl Thread {
    fn start(connection: Connection, run: RunPass, panics: Arc<Panics>) -> Option<Self> {
        let (starts, requests) = bounded(1);
        let (results, passes) = bounded(1);
        let work = move || {
            for () in requests {
                let ended = panics.catch("tables-checkpoint", || run(&connection));
                let ended = ended.unwrap_or_else(|panicked| {
                    Err(SqliteFailure(ffi::Error::new(ffi::SQLITE_ERROR), Some(panicked.to_string())))
                });
                if results.send(ended).is_err() {
                    return;
                }
            }
        };
        let handle = std::thread::Builder::new().name("tables-checkpoint".to_owned()).spawn(work);
        Some(Self { starts, passes, handle: handle.ok()? })
    }
}

/// Writes the log into the file, without waiting for readers.
pub(crate) fn pass(connection: &Connection) -> rusqlite::Result<Pass> {
    // Without a log, both numbers are -1.
    let frames = |frames: i32| u32::try_from(frames).unwrap_or(0);
    connection
        .prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?
        .query_row((), |row| Ok(Pass { frames: frames(row.get(1)?), in_file: frames(row.get(2)?) }))
}
