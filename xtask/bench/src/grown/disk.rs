//! Measures the disk itself during a benchmark: one small append and fsync after the other.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use anyhow::Result;
use hdrhistogram::Histogram;
use rashomon_clock::{Clock as _, SystemClock};

/// The size of each append.
pub(super) const APPEND_BYTES: usize = 4_096;
/// The time between an fsync and the next one.
pub(super) const APPEND_INTERVAL: Duration = Duration::from_millis(20);

/// A thread that appends to a file, and measures how long fsync takes.
#[derive(Debug)]
pub(super) struct Disk {
    is_active: Arc<AtomicBool>,
    measured: mpsc::Receiver<Duration>,
}

impl Disk {
    /// Starts the thread, which waits for [`Self::resume`]. It ends after the value is dropped.
    pub(super) fn start(path: &Path) -> Result<Self> {
        let mut file = File::create(path)?;
        let (sender, measured) = mpsc::channel();
        let is_active = Arc::new(AtomicBool::new(false));
        let active = Arc::clone(&is_active);
        thread::spawn(move || {
            let clock = SystemClock::new();
            loop {
                thread::sleep(APPEND_INTERVAL);
                if !active.load(Ordering::Relaxed) && Arc::strong_count(&active) > 1 {
                    continue;
                }
                let started = clock.monotonic();
                let synced = file.write_all(&[0; APPEND_BYTES]).and_then(|()| file.sync_data());
                let took = clock.monotonic().saturating_sub(started);
                if synced.is_err() || sender.send(took).is_err() {
                    return;
                }
            }
        });
        Ok(Self { is_active, measured })
    }

    pub(super) fn resume(&self) {
        self.is_active.store(true, Ordering::Relaxed);
    }

    pub(super) fn pause(&self) {
        self.is_active.store(false, Ordering::Relaxed);
    }

    /// The durations since the last call, in nanoseconds.
    pub(super) fn take(&self) -> Histogram<u64> {
        let mut durations = Histogram::new(3).expect("three digits are allowed");
        for took in self.measured.try_iter() {
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            durations.record(nanos).expect("the histogram grows");
        }
        durations
    }
}
