//! A clock that shows processes an earlier time, and on which time passes when a test says so.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    time::Duration,
};

/// A library that adds to the time of day the seconds that a file has; the nodes of `cargo xtask cassandra faults`
/// have it, too.
const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../xtask/preload/ahead.c");

/// So far behind it is at first: time may pass, and nobody writes in the future.
const BEHIND: Duration = Duration::from_secs(1_000 * 24 * 3600);

/// Starts so far behind that it never comes ahead.
#[derive(Debug)]
pub(crate) struct FalseClock {
    library: PathBuf,
    offset: PathBuf,
    behind: Mutex<Duration>,
}

impl FalseClock {
    /// Its files lie in this folder.
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

    /// So much time passes at once, for processes that run as well.
    pub(crate) fn pass(&self, time: Duration) {
        let mut behind = self.behind.lock().unwrap();
        *behind = behind.checked_sub(time).expect("it never comes ahead");
        self.set(*behind);
    }

    fn set(&self, behind: Duration) {
        // In place, since processes have this very file in their memory.
        let file = OpenOptions::new().write(true).open(&self.offset).unwrap();
        let ahead = -behind.as_secs().cast_signed();
        file.write_all_at(&ahead.to_ne_bytes(), 0).unwrap();
    }

    /// What a process needs in its environment.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        [("LD_PRELOAD", &self.library), ("CLOCK_AHEAD", &self.offset)]
            .map(|(name, path)| (name.to_owned(), path.to_str().expect("UTF-8").to_owned()))
            .to_vec()
    }
}
