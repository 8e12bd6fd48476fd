//! Measures the memory of a process.
//!
//! The kernel's own peak value of a child process includes the memory of its parent at the start of the child. After
//! the parent has read a set of histories, this memory is hundreds of megabytes.

use std::{thread, time::Duration};

/// The interval between two readings.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Watches a process until it ends, and returns the peak of its own memory, in KiB. Mapped pages of files are
/// not included: the kernel reclaims them when other processes need the memory.
pub(crate) fn watch(process: u32) -> thread::JoinHandle<u64> {
    thread::spawn(move || {
        let mut peak = 0;
        // The line is missing once the process has ended. The file is missing once its parent has waited for
        // it.
        while let Some(now) = own(process) {
            peak = now.max(peak);
            thread::sleep(POLL_INTERVAL);
        }
        peak
    })
}

/// The memory of a process that belongs to no file, in KiB.
pub(crate) fn own(process: u32) -> Option<u64> {
    status(process, "RssAnon:")
}

/// The resident memory of a process, in KiB. Mapped pages of files are included.
pub(crate) fn resident(process: u32) -> Option<u64> {
    status(process, "VmRSS:")
}

fn status(process: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
