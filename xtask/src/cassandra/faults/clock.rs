//! A clock that is set wrong while a process that uses the clock runs.

use std::path::Path;

use anyhow::Result;

use crate::preload::Preload;

/// The number of seconds in a day.
const DAY: i64 = 24 * 60 * 60;

/// A clock that shows a process a wrong time, by a small preloaded library of this project.
///
/// libfaketime takes a lock at every call, and a node with libfaketime needs minutes to start.
#[derive(Debug)]
pub(super) struct FalseClock(Preload);

impl FalseClock {
    /// Makes a clock that is right at first. Its files are in this folder.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        Ok(Self(Preload::new(folder, "ahead.c", 0)?))
    }

    /// Sets the clock this many seconds ahead.
    pub(super) fn set(&self, seconds_ahead: i64) -> Result<()> {
        self.0.set(seconds_ahead)
    }

    /// The environment variables for a process. Monotonic times stay correct.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        self.0.environment("CLOCK_AHEAD")
    }
}

/// Returns by how many seconds a clock is ahead. The clock shows `shown` (such as `2024-01-31 23:59:58`, UTC), and the
/// true time is `now` seconds after 1970. The dates are not compared, so the difference must be below half a day.
pub(super) fn seconds_ahead(shown: &str, now: i64) -> Option<i64> {
    let (_, time) = shown.split_once(' ')?;
    let mut parts = time.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let [hours, minutes, seconds] = [parts.next()??, parts.next()??, parts.next()??];
    let difference = (hours * 60 + minutes) * 60 + seconds - now;
    Some((difference + DAY / 2).rem_euclid(DAY) - DAY / 2)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn clock_difference_is_found_over_midnight() {
        // 2026-11-21 00:02:00
        let now = 1_795_219_320;
        assert_eq!(seconds_ahead("2026-11-21 00:02:00", now), Some(0));
        assert_eq!(seconds_ahead("2026-11-21 00:07:01", now), Some(301));
        assert_eq!(seconds_ahead("2026-11-20 23:57:00", now), Some(-300));
        assert_eq!(seconds_ahead("Full thread dump OpenJDK 64-Bit Server VM (17.0.1):", now), None);
    }

    #[test]
    fn a_process_sees_how_the_clock_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let clock = FalseClock::new(folder.path()).unwrap();
        let shown = |environment: Vec<(String, String)>| -> i64 {
            let output = Command::new("date").arg("+%s").envs(environment).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
        };
        for seconds in [-300, 300, 0] {
            clock.set(seconds).unwrap();
            let before = shown(Vec::new());
            let ahead = shown(clock.environment()) - before;
            assert!((seconds..seconds + 30).contains(&ahead), "{seconds}: {ahead}");
        }
    }
}
