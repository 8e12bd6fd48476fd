//! A clock that shows processes an earlier time, and that a test can advance.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    time::Duration,
};

/// A library that adds the seconds in a file to the time of day. The nodes of `cargo xtask cassandra faults`
/// use it, too.
const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../xtask/preload/ahead.c");

/// The time by which the clock starts behind the real time, so that advancing it never leads to writes in the future.
const BEHIND: Duration = Duration::from_secs(1_000 * 24 * 3600);

/// A clock that starts far behind, so that it is never ahead of the real time.
#[derive(Debug)]
pub(crate) struct FalseClock {
    library: PathBuf,
    offset: PathBuf,
    behind: Mutex<Duration>,
}

impl FalseClock {
    /// Creates the clock. Its files are in this folder.
    pub(crate) fn new(folder: &Path) -> Self {
        let clock = Self {
            library: folder.join("clock.so"),
            offset: folder.join("clock"),
            behind: Mutex::new(BEHIND),
        };
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&clock.library).arg(LIBRARY);
        assert!(compiler.status().expect("there is cc (Debian: gcc)").success(), "the clock compiles");
        File::create(&clock.offset).unwrap();
        clock.set(BEHIND);
        clock
    }

    /// Advances the clock by this time at once, also for running processes.
    pub(crate) fn pass(&self, time: Duration) {
        let mut behind = self.behind.lock().unwrap();
        *behind = behind.checked_sub(time).expect("it never comes ahead");
        self.set(*behind);
    }

    fn set(&self, behind: Duration) {
        // The file is overwritten in place, since processes have mapped it.
        let file = OpenOptions::new().write(true).open(&self.offset).unwrap();
        let ahead = -behind.as_secs().cast_signed();
        file.write_all_at(&ahead.to_ne_bytes(), 0).unwrap();
    }

    /// The environment variables of a process.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        [("LD_PRELOAD", &self.library), ("CLOCK_AHEAD", &self.offset)]
            .map(|(name, path)| (name.to_owned(), path.to_str().expect("UTF-8").to_owned()))
            .to_vec()
    }
}
