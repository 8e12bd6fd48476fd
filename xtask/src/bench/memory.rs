//! How much memory a process takes.
//!
//! What the kernel says of a child that has ended begins with what its parent had when it was made: with hundreds of
//! megabytes, where that has read a set of histories.

use std::{thread, time::Duration};

/// How often a process is looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Looks at a process until it ends, and gives the most memory that it had of its own, in KiB. Pages of files
/// that it maps are not its own: the kernel takes them back when somebody else needs the memory.
pub(crate) fn watch(process: u32) -> thread::JoinHandle<u64> {
    thread::spawn(move || {
        let mut peak = 0;
        // The file has no such line once the process has ended, and goes once it has been waited for.
        while let Some(now) = own_memory(process) {
            peak = now.max(peak);
            thread::sleep(LOOK_EVERY);
        }
        peak
    })
}

fn own_memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
