//! The three strategies of the notes, measured: a real history is replayed through each, by a clock that follows
//! the edits, and all that reaches the tables is counted.

mod expected;
mod input;
mod picture;
mod replay;
mod tally;
mod text;
mod timelines;

use std::time::Duration;

use rashomon_buckets::{Current, Fill, Policy, Strategy};
use serde::Serialize;

use self::tally::Operations;
pub(crate) use self::{
    input::History, picture::draw, replay::replay, text::print, timelines::TimelineReport,
    timelines::timelines,
};

/// A strategy with its settings, as it is compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    strategy: Strategy,
    delete_probability: f64,
    /// Whether the sweep runs beside it. The notes have none.
    sweeps: bool,
}

/// All that are compared.
pub(crate) const CONTESTANTS: [Contestant; 9] = {
    const fn one(
        name: &'static str,
        strategy: Strategy,
        delete_probability: f64,
        sweeps: bool,
    ) -> Contestant {
        Contestant { name, strategy, delete_probability, sweeps }
    }
    const fn per_query(name: &'static str, current: Current, fill: Fill) -> Contestant {
        one(name, Strategy::TablePerQuery(current, fill), 1.0, true)
    }
    use {
        Current::{OneRow, WideRow},
        Fill::{CopyOnRead, CopyOnUpdate, WriteThrough},
    };
    [
        one("app-ttl", Strategy::AppTtl, 0.1, true),
        one("app-ttl, every write culls", Strategy::AppTtl, 1.0, false),
        one("two-table", Strategy::TwoTable, 1.0, true),
        per_query("table-per-query A, copy-on-update", OneRow, CopyOnUpdate),
        per_query("table-per-query A, write-through", OneRow, WriteThrough),
        per_query("table-per-query A, copy-on-read", OneRow, CopyOnRead),
        per_query("table-per-query B, copy-on-update", WideRow, CopyOnUpdate),
        per_query("table-per-query B, write-through", WideRow, WriteThrough),
        per_query("table-per-query B, copy-on-read", WideRow, CopyOnRead),
    ]
};

impl Contestant {
    fn policy(self) -> Policy {
        Policy { strategy: self.strategy, delete_probability: self.delete_probability, ..Policy::default() }
    }
}

/// What was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) backend: String,
    pub(crate) pages: u64,
    pub(crate) edits: u64,
    pub(crate) bytes: u64,
    pub(crate) strategies: Vec<StrategyReport>,
    pub(crate) timelines: Vec<TimelineReport>,
}

/// What was measured of one strategy.
#[derive(Debug, Serialize)]
pub(crate) struct StrategyReport {
    pub(crate) name: &'static str,
    /// By what was done.
    pub(crate) done: Vec<Done>,
    /// What lies in the tables after the last edit.
    pub(crate) stored: Stored,
}

/// What one thing that is done again and again costs, in the mean.
#[derive(Debug, Serialize)]
pub(crate) struct Done {
    pub(crate) what: &'static str,
    /// How often it was done.
    pub(crate) times: u64,
    /// How often nothing was found.
    pub(crate) missed: u64,
    /// The operations that the notes count.
    pub(crate) core: Operations,
    /// What it takes to keep what was read for its time.
    pub(crate) keeping: Operations,
    /// The indexes, titles and notes of what is due.
    pub(crate) overhead: Operations,
    pub(crate) median_microseconds: u64,
    pub(crate) p99_microseconds: u64,
    /// What the notes say, where they say something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) notes: Option<Operations>,
    /// Why it is not what the notes say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) because: Option<&'static str>,
}

/// Rows in the tables, and their bytes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Stored {
    pub(crate) current_rows: u64,
    pub(crate) current_bytes: u64,
    pub(crate) expiring_rows: u64,
    pub(crate) expiring_bytes: u64,
    pub(crate) overhead_rows: u64,
    pub(crate) overhead_bytes: u64,
}

/// How long after the edit that superseded a value it is read: at once, and shortly before its time is over.
const SOON: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests;
