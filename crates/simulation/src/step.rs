//! What can happen.

use std::{fmt, time::Duration};

use rashomon_buckets::Policy;
use rashomon_tables::Call;

use crate::name::{Name, Names};

/// One thing that happens, in one process, with what goes wrong meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Which process does it; of so many as there are, counted round.
    pub process: usize,
    /// What it does.
    pub action: Action,
    /// What goes wrong.
    pub disturbance: Option<Disturbance>,
}

/// What happens. Pages and renders are named by numbers that are counted round, over what there is then.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // Of the fields: they are called what they are.
pub enum Action {
    /// Time passes.
    Pass(Duration),
    /// Time passes until just before the next value may go, or until then.
    PassToEdge {
        /// Until then, and not a microsecond less.
        reached: bool,
    },
    /// A revision comes. `age`: as history, made so long ago.
    /// `if_latest`: on the condition that the latest is the one that it is.
    PutRevision { page: usize, rev: i64, names: Names, variant: u8, age: Option<Duration>, if_latest: bool },
    /// A render comes, of the revision that a render has, and based on that or on the newest.
    PutRender {
        page: usize,
        render: usize,
        on_render: bool,
        names: Names,
        variant: u8,
        age: Option<Duration>,
    },
    /// A revision of history comes with its renders.
    Import { page: usize, rev: i64, renders: u8, names: Names, variant: u8, age: Duration },
    /// A property is replaced in place.
    Rewrite { page: usize, render: usize, name: Name, variant: u8 },
    /// Somebody reads a property by the tid of its render.
    Read { page: usize, render: usize, name: Name },
    /// Somebody reads a property of the latest.
    ReadLatest { page: usize, name: Name },
    /// Somebody reads a property of a revision, which may be made for it.
    ReadRevision { page: usize, render: usize, name: Name },
    /// Some of what is due is worked off.
    Sweep { limit: usize },
    /// All that is due is.
    SweepAll,
    /// The queue is worked off from its beginning, once more.
    SweepAgain,
    /// What stands already is noted as due.
    Walk,
    /// All processes begin again with other settings.
    SetPolicy(Option<Policy>),
    /// A clock is set, within what clocks may differ: so many thousandths of that ahead of the slowest.
    Skew { thousandths: u32 },
    /// All clocks are set, by more than they may differ: ahead while the processes see it, or back, and then, or
    /// meanwhile, all processes begin again.
    Jump { by: Duration, ahead: bool, all_begin_again: bool },
    /// Nothing is left of the timeline.
    LoseTimeline,
    /// The process begins again.
    Restart,
}

/// What goes wrong while something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Disturbance {
    /// A call fails: the one of this number, of its kind.
    Fails { call: Call, number: u64, how: Failure },
    /// The process dies after so many calls of the store, and begins again a while later.
    Dies { after: u64 },
    /// Every delete of bodies fails.
    CullsFail,
    /// The first write of a page fails, and comes to pass so much later.
    Late(Duration),
    /// The first write of a page under a lease reaches the store only when the lease has expired, and another process has
    /// taken the write back.
    LosesLease,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Failure {
    /// Nothing of it happened.
    Before,
    /// All of it happened.
    After,
    /// Some batches of it happened.
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
