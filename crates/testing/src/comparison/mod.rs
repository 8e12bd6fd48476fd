//! Measures the three strategies of the notes. Replays a real history through each strategy, with a clock
//! that follows the edits, and counts all operations on the tables.
//!
//! # Invariants
//!
//! - The caller passes in the store. The clock is simulated, and follows the times of the edits.

mod error;
mod expected;
mod input;
mod picture;
mod replay;
mod tally;
mod text;
mod timelines;

use std::time::Duration;

use rashomon_pages::{Current, Fill, Policy, Strategy};
use serde::Serialize;

pub use self::{
    error::ComparisonError,
    input::History,
    picture::draw,
    replay::replay,
    tally::Operations,
    text::tables,
    timelines::{Entries, TimelineReport, timelines},
};

/// A strategy with its settings, as a contestant of the comparison.
#[derive(Debug, Clone, Copy)]
pub struct Contestant {
    /// The name in reports.
    pub name: &'static str,
    strategy: Strategy,
    delete_probability: f64,
    /// Whether the sweeper runs during the edits. The notes have no sweeper.
    sweeps: bool,
}

/// All strategies that are compared.
pub const CONTESTANTS: [Contestant; 9] = {
    const fn contestant(
        name: &'static str,
        strategy: Strategy,
        delete_probability: f64,
        sweeps: bool,
    ) -> Contestant {
        Contestant { name, strategy, delete_probability, sweeps }
    }
    const fn per_query(name: &'static str, current: Current, fill: Fill) -> Contestant {
        contestant(name, Strategy::TablePerQuery(current, fill), 1.0, true)
    }
    use {
        Current::{OneRow, WideRow},
        Fill::{CopyOnRead, CopyOnUpdate, WriteThrough},
    };
    [
        contestant("app-ttl", Strategy::AppTtl, 0.1, true),
        contestant("app-ttl, every write culls", Strategy::AppTtl, 1.0, false),
        contestant("two-table", Strategy::TwoTable, 1.0, true),
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

/// The results of a comparison.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The kind of the store.
    pub backend: String,
    /// The number of pages in the history.
    pub pages: u64,
    /// The number of edits in the history.
    pub edits: u64,
    /// The size of all texts in bytes.
    pub bytes: u64,
    /// The results of each strategy.
    pub strategies: Vec<StrategyReport>,
    /// The simulated timelines; empty if none were requested.
    pub timelines: Vec<TimelineReport>,
}

/// The results of one strategy.
#[derive(Debug, Serialize)]
pub struct StrategyReport {
    /// The name of the strategy, with its settings.
    pub name: &'static str,
    /// The results for each kind of action.
    pub done: Vec<ActionReport>,
    /// The content of the tables after the last edit.
    pub stored: Stored,
}

/// The mean costs of one kind of action.
#[derive(Debug, Serialize)]
pub struct ActionReport {
    /// The kind of action.
    pub what: &'static str,
    /// The number of actions; for sweeps, the number of processed queue entries. Reads that found nothing are counted
    /// neither here nor in the means.
    pub times: u64,
    /// The number of reads that found nothing.
    pub missed: u64,
    /// The operations that the notes count.
    pub core: Operations,
    /// The operations that keep a value for its ttl after it was read.
    pub keeping: Operations,
    /// The operations on indexes, titles and the retention queue.
    pub overhead: Operations,
    /// The median duration of the action. A sweep counts as one duration: its mean per queue entry.
    pub median_microseconds: u64,
    /// The duration that 99 of 100 actions did not exceed.
    pub p99_microseconds: u64,
    /// The estimate of the notes, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<Operations>,
    /// The reason for a difference from the notes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<&'static str>,
}

/// Rows in the tables, and their bytes.
#[derive(Debug, Default, Serialize)]
pub struct Stored {
    /// Rows of the tables with permanent bodies.
    pub current_rows: u64,
    /// The bytes of rows in the tables with permanent bodies.
    pub current_bytes: u64,
    /// Rows of the tables whose bodies expire.
    pub expiring_rows: u64,
    /// The bytes of rows in the tables whose bodies expire.
    pub expiring_bytes: u64,
    /// All other rows.
    pub overhead_rows: u64,
    /// The bytes of all other rows.
    pub overhead_bytes: u64,
}

/// The time from the moment at which a value is superseded to its first read.
const PROBE_DELAY: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests;
