//! A clock that is off, for one process.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

use crate::test::{Tool, Toolbox};

/// How far it is off, as libfaketime has it, and in seconds.
pub(super) const BEHIND: (&str, i64) = ("-5m", -300);
/// The other way.
pub(super) const AHEAD: (&str, i64) = ("+5m", 300);

/// A library that tells a process another time than it is.
#[derive(Debug)]
pub(super) struct FalseClock {
    library: PathBuf,
    offset: &'static str,
}

impl FalseClock {
    /// Finds the library; it is fetched where it is missing and we may.
    pub(super) fn new(offset: &'static str) -> Result<Self> {
        // The program `faketime` stays in front of what it starts, where signals would meet it alone.
        Toolbox::new(false).fetch(Tool::Faketime)?;
        let folders = fs::read_dir("/usr/lib")?.filter_map(Result::ok);
        let mut files = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
        let library = files.find(|file| file.is_file()).context("faketime has no library below /usr/lib")?;
        Ok(Self { library, offset })
    }

    /// What the process needs in its environment. Times that only measure how long something takes stay true.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        [
            ("LD_PRELOAD", &*self.library.to_string_lossy()),
            ("FAKETIME", self.offset),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}
