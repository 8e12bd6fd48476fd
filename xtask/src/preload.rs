//! Small libraries that a process preloads. Each reads one number from a file.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// A library that shows a process a wrong time, compiled from a file of `xtask/preload`, and the file with
/// its number.
#[derive(Debug)]
pub(crate) struct Preload {
    library: PathBuf,
    number: PathBuf,
}

impl Preload {
    /// Compiles `source`. The library and the file with its number are in `folder`.
    pub(crate) fn new(folder: &Path, source: &str, number: i64) -> Result<Self> {
        let preload = Self { library: folder.join("clock.so"), number: folder.join("clock") };
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&preload.library);
        compiler.arg(crate::root().join("xtask/preload").join(source));
        let status = compiler.status().context("cannot run cc (Debian: gcc)")?;
        ensure!(status.success(), "{source} does not compile");
        File::create(&preload.number)?;
        preload.set(number)?;
        Ok(preload)
    }

    /// Changes the number, also for running processes.
    pub(crate) fn set(&self, number: i64) -> Result<()> {
        // The file is overwritten in place, since processes have mapped it.
        let file = OpenOptions::new().write(true).open(&self.number)?;
        Ok(file.write_all_at(&number.to_ne_bytes(), 0)?)
    }

    /// The environment variables for a process that preloads the library. The variable `name` holds the path
    /// of the file.
    pub(crate) fn environment(&self, name: &str) -> Vec<(String, String)> {
        [
            ("LD_PRELOAD", self.library.to_string_lossy().into_owned()),
            (name, self.number.to_string_lossy().into_owned()),
            ("TZ", "UTC".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}
