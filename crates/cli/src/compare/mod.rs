//! Measures the three strategies of the notes. Replays a real history through each strategy, with a clock
//! that follows the edits, and counts all operations on the tables.

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
    /// Whether the sweeper runs beside the edits. The notes have no sweeper.
    sweeps: bool,
}

/// All strategies that are compared.
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

/// The results.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) backend: String,
    pub(crate) pages: u64,
    pub(crate) edits: u64,
    pub(crate) bytes: u64,
    pub(crate) strategies: Vec<StrategyReport>,
    pub(crate) timelines: Vec<TimelineReport>,
}

/// The results of one strategy.
#[derive(Debug, Serialize)]
pub(crate) struct StrategyReport {
    pub(crate) name: &'static str,
    /// The results for each kind of action.
    pub(crate) done: Vec<Done>,
    /// The content of the tables after the last edit.
    pub(crate) stored: Stored,
}

/// The mean costs of one kind of action.
#[derive(Debug, Serialize)]
pub(crate) struct Done {
    pub(crate) what: &'static str,
    /// How many times it was done.
    pub(crate) times: u64,
    /// How many times nothing was found.
    pub(crate) missed: u64,
    /// The operations that the notes count.
    pub(crate) core: Operations,
    /// The operations that keep a read value for its ttl.
    pub(crate) keeping: Operations,
    /// The operations on indexes, titles and the retention queue.
    pub(crate) overhead: Operations,
    pub(crate) median_microseconds: u64,
    pub(crate) p99_microseconds: u64,
    /// The estimate of the notes, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) notes: Option<Operations>,
    /// The reason for a difference from the notes.
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

/// When a superseded value is read: this long after the edit that superseded it, and this long before it
/// expires.
const SOON: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests;
