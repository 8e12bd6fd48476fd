//! A clock that moves only on command, and random bytes that depend only on a seed, for any program.

use std::path::Path;

use anyhow::Result;

use crate::preload::Preload;

#[derive(Debug)]
pub(super) struct FrozenClock {
    preload: Preload,
    micros: i64,
}

impl FrozenClock {
    /// Makes a clock that shows `micros` microseconds since 1970. Its files are in `folder`.
    pub(super) fn new(folder: &Path, micros: i64) -> Result<Self> {
        Ok(Self { preload: Preload::new(folder, "frozen.c", micros)?, micros })
    }

    /// Moves the clock ahead.
    pub(super) fn advance(&mut self, micros: i64) -> Result<()> {
        self.micros += micros;
        self.preload.set(self.micros)
    }

    /// The environment variables for a process. Processes with different seeds draw different bytes.
    pub(super) fn environment(&self, seed: u64) -> Vec<(String, String)> {
        let mut variables = self.preload.environment("FROZEN_CLOCK");
        variables.push(("FROZEN_SEED".to_owned(), seed.to_string()));
        variables
    }
}
