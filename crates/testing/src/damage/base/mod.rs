//! The base stores: small stores of different shapes, with copies of their files after each step.

mod shapes;
mod writer;

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, Result};
use rashomon_clock::Timestamp;
use rashomon_pages::{ArchiveSettings, BucketArchive, Settings};

use crate::damage::{
    ask::{self, AcceptLostLog, Answers, AskOptions, Question},
    layout::Layout,
};

/// The files of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The content of `rashomon.sqlite`.
    pub file: Arc<Vec<u8>>,
    /// The content of `rashomon.sqlite-wal`, if there is such a file.
    pub log: Option<Arc<Vec<u8>>>,
}

impl Files {
    /// Writes the files into a directory.
    pub fn write_to(&self, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join("rashomon.sqlite"), &*self.file)?;
        if let Some(log) = &self.log {
            std::fs::write(directory.join("rashomon.sqlite-wal"), &**log)?;
        }
        Ok(())
    }
}

/// A store after one of its commits, with its answers.
#[derive(Debug)]
pub struct State {
    /// Its files.
    pub files: Files,
    answers: OnceLock<Answers>,
}

/// A store to damage.
#[derive(Debug)]
pub struct Victim {
    /// Its files.
    pub files: Files,
    /// The roles of the pages, for a store without a log.
    pub layout: Option<Layout>,
    /// The numbers of the states that the store went through. The last state is the store itself.
    pub chain: Vec<usize>,
    /// Files of the same store at earlier times, in order.
    pub older: Vec<Files>,
}

/// One store, in all its states.
#[derive(Debug)]
pub struct Base {
    /// The name of the shape of the store.
    pub name: &'static str,
    /// Whether the store is served with an archive.
    pub is_archived: bool,
    /// The time of the clock while the store is asked.
    pub now: Timestamp,
    /// The questions for the store.
    pub questions: Vec<Question>,
    /// All states.
    pub states: Vec<State>,
    /// The stores to damage.
    pub victims: Vec<Victim>,
}

/// A store with an archive seals revisions that have been superseded for this long.
pub const ARCHIVED_AFTER: Duration = Duration::from_secs(24 * 3600);

impl Base {
    /// Writes all base stores. Returns an error if an undamaged store has problems.
    pub fn all() -> Result<Vec<Self>> {
        let bases = ask::runtime()?.block_on(shapes::all())?;
        // Asks the undamaged stores first, because every trial needs their answers. A problem of an undamaged store is
        // a fault of this tool, or of the code under test.
        for base in &bases {
            for victim in &base.victims {
                let own = *victim.chain.last().context("a victim without a state")?;
                let answers = base.answers(own)?;
                anyhow::ensure!(
                    answers.opened.is_ok() && !answers.names_damage(),
                    "an undamaged store of the base {} has problems: opened: {:?}, verify: {:?}",
                    base.name,
                    answers.opened,
                    answers.verified
                );
            }
        }
        Ok(bases)
    }

    /// How the store is served while it is asked.
    #[must_use]
    pub fn ask_options(&self, accept_lost_log: AcceptLostLog) -> AskOptions {
        AskOptions { settings: settings(self.is_archived), now: self.now, accept_lost_log }
    }

    /// The answers of a state.
    pub fn answers(&self, state: usize) -> Result<&Answers> {
        let state = &self.states[state];
        if let Some(answers) = state.answers.get() {
            return Ok(answers);
        }
        let directory = scratch()?;
        state.files.write_to(directory.path())?;
        let answers = ask::ask(directory.path(), &self.questions, &self.ask_options(AcceptLostLog(true)))?;
        Ok(state.answers.get_or_init(|| answers))
    }
}

/// A directory for copies of stores, in a memory file system if there is one.
pub fn scratch() -> Result<tempfile::TempDir> {
    let in_memory = Path::new("/dev/shm");
    let builder = || tempfile::Builder::new();
    let directory = if in_memory.is_dir() {
        builder().prefix("rashomon-damage-").tempdir_in(in_memory)
    } else {
        builder().prefix("rashomon-damage-").tempdir()
    };
    directory.context("cannot create a directory for copies of stores")
}

fn settings(is_archived: bool) -> Settings {
    let all = BucketArchive { after: ARCHIVED_AFTER, ..BucketArchive::default() };
    let archive = ArchiveSettings { all, ..ArchiveSettings::default() };
    Settings { archive: is_archived.then_some(archive), skew: Duration::from_secs(5), ..Settings::default() }
}
