//! The state that all parts of retention share.

use std::{sync::Arc, time::Duration};

use moka::sync::Cache;
use rashomon_clock::Timestamp;
use rashomon_records::{BucketName, DomainName, Page, Records, rows::RevisionRow};
use tokio::sync::{OnceCell, Semaphore};

use crate::{
    Policy, Retention, Sampling, clock_jumps::ClockJumpDetector, hooks::MAX_BACKGROUND_CULLS,
    read_copies::CopyExpiries, stats::Counters,
};

/// The maximum number of buckets in [`Core::unqueued`].
const MAX_UNQUEUED_BUCKETS: u64 = 10_000;

/// The records, the settings, and the state of this process.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) records: Arc<Records>,
    pub(crate) settings: Retention,
    pub(crate) sampling: Sampling,
    pub(crate) clock_jumps: ClockJumpDetector,
    /// Set when this process has read the clock state that other processes stored.
    pub(crate) clock_is_known: OnceCell<()>,
    pub(crate) copies: CopyExpiries,
    /// Whether the table `current` may have rows: some bucket uses the table now, or used it earlier. Read from
    /// the store at the first use.
    pub(crate) current_table_may_have_rows: OnceCell<bool>,
    /// Buckets without a policy whose rescan this process has already restarted, since their writes are not
    /// enqueued.
    pub(crate) unqueued: Cache<(DomainName, BucketName), ()>,
    /// Locked by the task of this process that continues a rescan, or restarts all rescans.
    pub(crate) rescans: tokio::sync::Mutex<()>,
    /// The permits of the culls that run in the background after writes. Each cull takes one.
    pub(crate) culls: Arc<Semaphore>,
    pub(crate) counters: Counters,
}

impl Core {
    pub(crate) fn new(records: Arc<Records>, settings: Retention) -> Self {
        let one_row = settings.policies().any(|policy| policy.strategy.is_one_row());
        Self {
            sampling: Sampling::new(&settings),
            clock_jumps: ClockJumpDetector::new(&records.clock),
            clock_is_known: OnceCell::new(),
            copies: CopyExpiries::new(),
            current_table_may_have_rows: OnceCell::new_with(one_row.then_some(true)),
            unqueued: Cache::new(MAX_UNQUEUED_BUCKETS),
            rescans: tokio::sync::Mutex::default(),
            culls: Arc::new(Semaphore::new(MAX_BACKGROUND_CULLS)),
            counters: Counters::default(),
            records,
            settings,
        }
    }

    /// The policy of a page's bucket, if its superseded values expire by themselves.
    pub(crate) fn expiring_policy(&self, page: &Page) -> Option<&Policy> {
        self.settings.of(page).filter(|policy| policy.strategy.expires())
    }

    /// Whether the latest value of each property of the page is in the table `current`.
    pub(crate) fn uses_current(&self, page: &Page) -> bool {
        self.settings.of(page).is_some_and(|policy| policy.strategy.is_one_row())
    }

    /// The time for which a superseded value is kept beyond its grace, because clocks differ and writes may get
    /// early write times.
    fn margin(&self, policy: &Policy) -> Duration {
        policy.skew.saturating_add(self.records.max_write_time_lag())
    }

    /// A lower bound of the write times of a revision's bodies. The write time of its row is no such bound: the
    /// row is written again when the revision gets another property.
    pub(crate) fn first_written(&self, revision: &RevisionRow) -> Timestamp {
        revision.stored_at.saturating_sub(self.records.max_write_time_lag())
    }

    /// The cutoff: values that were superseded at this time or earlier may be culled now. A value is culled only when
    /// it is certain that its grace has passed.
    pub(crate) fn cutoff(&self, policy: &Policy) -> Timestamp {
        self.certain_now(policy).saturating_sub(policy.grace).saturating_sub(self.margin(policy))
    }

    /// The time of day up to which the graces of a policy have certainly passed. Jumps since the start of this process
    /// are left to [`Self::is_paused`].
    pub(crate) fn certain_now(&self, policy: &Policy) -> Timestamp {
        self.records.clock.passed().after_start(policy.grace.saturating_add(self.margin(policy)))
    }

    /// When a value that was superseded at `at` becomes eligible.
    pub(crate) fn eligible_at(&self, policy: &Policy, at: Timestamp) -> Timestamp {
        at.saturating_add(policy.grace).saturating_add(self.margin(policy))
    }

    /// Whether nothing may be culled now, because of a recent clock jump. An operator may trust the clock all the same.
    pub(crate) fn is_paused(&self, policy: &Policy) -> bool {
        self.clock_jumps.pauses(&self.records.clock, policy.grace, policy.skew)
            && !self.records.clock.passed().is_trusted()
    }

    /// Returns `true` with the given probability.
    pub(crate) fn happens(&self, probability: f64) -> bool {
        // An `f64` represents integers of up to 53 bits exactly.
        let chance = (self.records.distinction() >> 11) as f64 / (1_u64 << 53) as f64;
        chance < probability
    }
}
