//! The stores that are damaged: small ones of different shapes, with copies of their files after each step.

mod shapes;
mod writer;

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, Result};
use rashomon_buckets::{ArchiveSettings, BucketArchive, Settings};
use rashomon_clock::Timestamp;

use crate::{
    ask::{self, AcceptLostLog, Asked, Question},
    layout::Layout,
};

/// The files of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// `rashomon.sqlite`
    pub file: Arc<Vec<u8>>,
    /// `rashomon.sqlite-wal`
    pub log: Option<Arc<Vec<u8>>>,
}

impl Files {
    /// Writes the files into a directory.
    pub fn lay(&self, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join("rashomon.sqlite"), &*self.file)?;
        if let Some(log) = &self.log {
            std::fs::write(directory.join("rashomon.sqlite-wal"), &**log)?;
        }
        Ok(())
    }
}

/// A store as a commit left it, and how it answers.
#[derive(Debug)]
pub struct State {
    /// Its files.
    pub files: Files,
    answers: OnceLock<Asked>,
}

/// A store that is damaged.
#[derive(Debug)]
pub struct Victim {
    /// Its files.
    pub files: Files,
    /// What the pages are, in a store without a log.
    pub layout: Option<Layout>,
    /// The states that it went through, by their numbers. The last is its own.
    pub chain: Vec<usize>,
    /// Files of the same store at other times, in order.
    pub older: Vec<Files>,
}

/// One store, in all its states.
#[derive(Debug)]
pub struct Base {
    /// What it is like, in a word.
    pub name: &'static str,
    /// Whether it is served with an archive.
    pub is_archived: bool,
    /// The time at which it is asked.
    pub now: Timestamp,
    /// What it is asked.
    pub questions: Vec<Question>,
    /// All its states.
    pub states: Vec<State>,
    /// What can be damaged.
    pub victims: Vec<Victim>,
}

/// What is sealed, in a store with an archive: everything that was superseded for a day.
pub const ARCHIVED_AFTER: Duration = Duration::from_secs(24 * 3600);

impl Base {
    /// Writes all of them.
    pub fn all() -> Result<Vec<Self>> {
        let bases = ask::runtime()?.block_on(shapes::all())?;
        // The answers are needed sooner or later, and a whole store that is not whole is a fault of the tool.
        for base in &bases {
            for victim in &base.victims {
                let own = *victim.chain.last().context("a victim without a state")?;
                let asked = base.answers(own)?;
                anyhow::ensure!(
                    asked.opened.is_ok() && !asked.names_damage(),
                    "a whole store of the base {} is not sound: {:?} {:?}",
                    base.name,
                    asked.opened,
                    asked.verified
                );
            }
        }
        Ok(bases)
    }

    /// The settings that it is served with.
    #[must_use]
    pub fn settings(&self) -> Settings {
        settings(self.is_archived)
    }

    /// How a state answers.
    pub fn answers(&self, state: usize) -> Result<&Asked> {
        let state = &self.states[state];
        if let Some(asked) = state.answers.get() {
            return Ok(asked);
        }
        let directory = scratch()?;
        state.files.lay(directory.path())?;
        let asked = ask::ask(directory.path(), self, AcceptLostLog(true))?;
        Ok(state.answers.get_or_init(|| asked))
    }
}

/// A directory for copies of stores: in memory, where there is such a file system.
pub fn scratch() -> Result<tempfile::TempDir> {
    let in_memory = Path::new("/dev/shm");
    let builder = || tempfile::Builder::new();
    let directory = if in_memory.is_dir() {
        builder().prefix("rashomon-damage-").tempdir_in(in_memory)
    } else {
        builder().prefix("rashomon-damage-").tempdir()
    };
    directory.context("no directory for copies of stores")
}

fn settings(is_archived: bool) -> Settings {
    let all = BucketArchive { after: ARCHIVED_AFTER, ..BucketArchive::default() };
    let archive = ArchiveSettings { all, ..ArchiveSettings::default() };
    Settings { archive: is_archived.then_some(archive), skew: Duration::from_secs(5), ..Settings::default() }
}
