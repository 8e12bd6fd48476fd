//! Records whether the store can be written. Keeps the cause of a failed write until a test of the disk succeeds.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rashomon_tables::{Error, Outage};

use crate::{errors::with_path, file};

/// The name of the probe: a file that is written to find out whether the disk accepts writes, and is deleted at
/// once.
const PROBE_FILE: &str = "rashomon.probe";

/// A store counts as writable again only if its disk has room for the failed write and for this margin. The
/// margin is necessary because SQLite writes whole pages, first to the log and then to the file.
const PROBE_MARGIN_BYTES: usize = 1 << 20;

/// The maximum size of a probe. After a successful probe, a larger write may still fail.
const MAX_PROBE_BYTES: usize = 16 << 20;

/// The piece of which a probe is made.
static PROBE_PIECE: [u8; 64 << 10] = [0; 64 << 10];

/// The known state of the disk below a store.
#[derive(Debug)]
pub(crate) struct Health {
    directory: PathBuf,
    fault: Mutex<Option<Fault>>,
}

#[derive(Debug, Clone)]
struct Fault {
    outage: Outage,
    /// The size of the largest write that has failed during the outage.
    bytes: usize,
}

impl Health {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), fault: Mutex::default() }
    }

    /// The reason why writes fail at present. `None` if writes succeed, as far as the store knows.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.with_fault(|fault| fault.as_ref().map(|fault| fault.outage.clone()))
    }

    /// Records that a write of this size failed, if the disk is the cause. Returns the error with its cause and
    /// the path of the file. Logs the first such error of an outage.
    pub(crate) fn record_failure(&self, error: Error, bytes: usize) -> Error {
        let Error::Unavailable(outage) = with_path(&file::path(&self.directory), error.clone()) else {
            return error;
        };
        if !outage.is_caused_by_disk() {
            return error;
        }
        let outage = diagnose(&self.directory, outage);
        self.record_outage(outage.clone(), bytes);
        Error::Unavailable(outage)
    }

    /// Records that the store cannot be written. Logs the first cause of an outage. `bytes` is the size of the failed
    /// write.
    pub(crate) fn record_outage(&self, outage: Outage, bytes: usize) {
        self.with_fault(|fault| match fault {
            Some(fault) => fault.bytes = fault.bytes.max(bytes),
            None => {
                tracing::error!(%outage, "the store cannot be written; reads go on");
                *fault = Some(Fault { outage, bytes });
            }
        });
    }

    /// Tests whether the disk has room for the failed write, by writing a file of this size.
    pub(crate) fn probe(&self) -> io::Result<()> {
        let bytes = self.with_fault(|fault| fault.as_ref().map_or(0, |fault| fault.bytes));
        write_and_delete(&self.directory.join(PROBE_FILE), bytes.saturating_add(PROBE_MARGIN_BYTES))
    }

    /// Ends the outage: records that the store was written successfully.
    pub(crate) fn record_recovery(&self) {
        if self.with_fault(Option::take).is_some() {
            tracing::info!(path = %file::path(&self.directory).display(), "the store can be written again");
        }
    }

    fn with_fault<T>(&self, work: impl FnOnce(&mut Option<Fault>) -> T) -> T {
        work(&mut self.fault.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Finds the cause of an I/O error, which SQLite does not report. A full or read-only file system also refuses a probe
/// file.
pub(crate) fn diagnose(directory: &Path, outage: Outage) -> Outage {
    let Outage::Io { path, detail } = outage else { return outage };
    let probed = write_and_delete(&directory.join(PROBE_FILE), PROBE_PIECE.len());
    match probed.map_err(|error| Outage::from_io(&path, &error)) {
        Err(Outage::StorageFull { .. }) => Outage::StorageFull { path, detail },
        Err(Outage::ReadOnly { .. }) => Outage::ReadOnly { path, detail },
        _ => Outage::Io { path, detail },
    }
}

/// Writes a file of about this size durably, and deletes it. Deletes it even if the writing fails.
fn write_and_delete(path: &Path, bytes: usize) -> io::Result<()> {
    let written = File::create(path).and_then(|mut file| {
        for _ in 0..bytes.min(MAX_PROBE_BYTES).div_ceil(PROBE_PIECE.len()) {
            file.write_all(&PROBE_PIECE)?;
        }
        file.sync_all()
    });
    match fs::remove_file(path) {
        Err(error) if written.is_ok() => Err(error),
        _ => written,
    }
}
