//! A clock that only moves when it is told to, and chance without chance, for any program.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// A library that a process preloads, and the file with the time that it shows.
#[derive(Debug)]
pub(super) struct FrozenClock {
    library: PathBuf,
    file: PathBuf,
    micros: i64,
}

impl FrozenClock {
    /// A clock that shows `micros` microseconds since 1970. Its files lie in `folder`.
    pub(super) fn new(folder: &Path, micros: i64) -> Result<Self> {
        let clock = Self { library: folder.join("frozen.so"), file: folder.join("time"), micros };
        let source = crate::root().join("xtask/same/frozen.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&clock.library).arg(source);
        let status = compiler.status().context("cannot run cc (Debian: gcc)")?;
        ensure!(status.success(), "the frozen clock does not compile");
        File::create(&clock.file)?.write_all_at(&micros.to_ne_bytes(), 0)?;
        Ok(clock)
    }

    /// Moves it.
    pub(super) fn advance(&mut self, micros: i64) -> Result<()> {
        self.micros += micros;
        // In place: processes have this very file in their memory.
        let file = fs::OpenOptions::new().write(true).open(&self.file)?;
        Ok(file.write_all_at(&self.micros.to_ne_bytes(), 0)?)
    }

    /// The variables that a process needs in its environment. Processes with different seeds draw different bytes.
    pub(super) fn environment(&self, seed: u64) -> Vec<(String, String)> {
        [
            ("LD_PRELOAD", self.library.to_string_lossy().into_owned()),
            ("FROZEN_CLOCK", self.file.to_string_lossy().into_owned()),
            ("FROZEN_SEED", seed.to_string()),
            ("TZ", "UTC".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}
