//! A clock that is set wrong while the process that looks at it goes on.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::test::{Tool, Toolbox};

/// Seconds since midnight come again after so many.
const DAY: i64 = 24 * 60 * 60;

/// A library that tells a process another time than it is, and the file that says how far off it is.
#[derive(Debug)]
pub(super) struct FalseClock {
    library: PathBuf,
    offset: PathBuf,
}

impl FalseClock {
    /// One that is right at first; its file lies in this folder.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let clock = Self { library: library()?, offset: folder.join("clock") };
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets it so many seconds ahead; the process sees that within a second.
    pub(super) fn set(&self, seconds_ahead: i64) -> Result<()> {
        // The file is read at any moment, and has to be whole.
        let new = self.offset.with_extension("new");
        fs::write(&new, format!("{seconds_ahead:+}"))?;
        Ok(fs::rename(&new, &self.offset)?)
    }

    /// What a process needs in its environment. Times that only measure how long something takes stay true.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        [
            ("LD_PRELOAD", &*self.library.to_string_lossy()),
            ("FAKETIME_TIMESTAMP_FILE", &*self.offset.to_string_lossy()),
            ("FAKETIME_CACHE_DURATION", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("TZ", "UTC"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}

/// Finds the library; it is fetched where it is missing and we may.
pub(super) fn library() -> Result<PathBuf> {
    // The program `faketime` stays in front of what it starts, where signals would meet it alone.
    Toolbox::new(false).fetch(Tool::Faketime)?;
    let folders = fs::read_dir("/usr/lib")?.filter_map(Result::ok);
    let mut files = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    files.find(|file| file.is_file()).context("faketime has no library below /usr/lib")
}

/// How many seconds a clock is ahead that shows this date and time (`2024-01-31 23:59:58`, UTC), where it is so
/// many seconds after 1970. Half a day is the most that can be told.
pub(super) fn seconds_ahead(shown: &str, now: i64) -> Option<i64> {
    let (_, time) = shown.split_once(' ')?;
    let mut parts = time.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let [hours, minutes, seconds] = [parts.next()??, parts.next()??, parts.next()??];
    let difference = (hours * 60 + minutes) * 60 + seconds - now;
    Some((difference + DAY / 2).rem_euclid(DAY) - DAY / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_ahead_or_behind_over_midnight_too() {
        // 2026-11-21 00:02:00
        let now = 1_795_219_320;
        assert_eq!(seconds_ahead("2026-11-21 00:02:00", now), Some(0));
        assert_eq!(seconds_ahead("2026-11-21 00:07:01", now), Some(301));
        assert_eq!(seconds_ahead("2026-11-20 23:57:00", now), Some(-300));
        assert_eq!(seconds_ahead("Full thread dump OpenJDK 64-Bit Server VM (17.0.1):", now), None);
    }
}
