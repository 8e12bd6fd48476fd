//! The steps of a history.

use std::{fmt, time::Duration};

use rashomon_pages::Policy;
use rashomon_tables::Call;

use crate::simulation::name::{Name, Names};

/// One step of a history, carried out by one process, perhaps with a disturbance.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The process that carries out the step, modulo the number of processes.
    pub process: usize,
    /// The action of the process.
    pub action: Action,
    /// The disturbance during the action.
    pub disturbance: Option<Disturbance>,
}

/// An action. Pages and renders are named by numbers, modulo the number of existing ones. The numbers of the pages in
/// the further bucket follow those of the pages in `page`.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // The names of the fields say what they are.
pub enum Action {
    /// Time passes.
    Pass(Duration),
    /// Time passes until just before a value becomes deletable or a promise to a reader ends, or until
    /// exactly that time.
    PassToEdge {
        /// Whether the time itself is reached, to the microsecond.
        reached: bool,
    },
    /// A revision is written. `age`: as an old revision, with a time that is `age` and 400 days before the
    /// world begins. `if_latest`: on the condition that the latest is unchanged.
    PutRevision { page: usize, rev: i64, names: Names, variant: u8, age: Option<Duration>, if_latest: bool },
    /// A render is written for the revision of an existing render. The new render is based on that render, or on the
    /// newest render.
    PutRender {
        page: usize,
        render: usize,
        on_render: bool,
        names: Names,
        variant: u8,
        age: Option<Duration>,
    },
    /// An old revision is imported with its renders.
    Import { page: usize, rev: i64, renders: u8, names: Names, variant: u8, age: Duration },
    /// A property is replaced in place.
    Rewrite { page: usize, render: usize, name: Name, variant: u8 },
    /// A client reads a property by the tid of its render.
    Read { page: usize, render: usize, name: Name },
    /// A client reads a property of the latest.
    ReadLatest { page: usize, name: Name },
    /// A client reads a property of a revision. The renderer may generate it.
    ReadRevision { page: usize, render: usize, name: Name },
    /// A sweep processes some queue entries.
    Sweep { limit: usize },
    /// A sweep processes all eligible queue entries.
    SweepAll,
    /// Sweeps process all eligible queue entries, and then again from the first entry.
    SweepAgain,
    /// A rescan enqueues what is already stored.
    Rescan,
    /// All processes restart with other settings.
    SetPolicy(Option<Policy>),
    /// The clock of a process is set, within the allowed skew, to this many thousandths of the skew ahead of the
    /// slowest clock.
    Skew { thousandths: u32 },
    /// All clocks are set, by more than they may differ. The running processes notice if the clocks are set ahead. All
    /// processes may restart, too.
    Jump { by: Duration, ahead: bool, restart_all: bool },
    /// All entries of the timeline are lost.
    LoseTimeline,
    /// The process restarts.
    Restart,
    /// The further bucket is deleted, and made again under its name.
    RecreateBucket,
    /// The garbage collector deletes the pages of deleted buckets.
    DeletePages,
}

impl Action {
    /// The page of the action.
    pub(crate) const fn page_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::PutRevision { page, .. }
            | Self::PutRender { page, .. }
            | Self::Import { page, .. }
            | Self::Rewrite { page, .. }
            | Self::Read { page, .. }
            | Self::ReadLatest { page, .. }
            | Self::ReadRevision { page, .. } => Some(page),
            _ => None,
        }
    }
}

/// A disturbance during an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Disturbance {
    /// One call fails, chosen by its kind and its number.
    Fails { call: Call, number: u64, how: Failure },
    /// The process dies after this many calls of the store, and restarts later.
    Dies { after: u64 },
    /// Every delete of bodies fails.
    CullsFail,
    /// The first write of a page fails, and takes effect after this time.
    Late(Duration),
    /// The first write of a page under a lease is held back until the lease has expired and another process has rolled
    /// the write back.
    LosesLease,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Failure {
    /// The call had no effect.
    Before,
    /// The call had its complete effect, but returned an error.
    After,
    /// Some batches of the call were written.
    Midway { batches: u64 },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}: {:?}", self.process, self.action)?;
        match &self.disturbance {
            Some(disturbance) => write!(f, " ({disturbance:?})"),
            None => Ok(()),
        }
    }
}
