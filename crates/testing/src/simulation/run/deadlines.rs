//! The times from which retention must have deleted the values that it may delete.

use std::time::Duration;

use rashomon_clock::Timestamp;
use rashomon_pages::Policy;

use super::{HINTS, RESCAN_INTERVAL};
use crate::simulation::{
    model::Lifetime,
    setup::{START, Setup},
};

/// The maximum delay that the queue adds to an entry that is eligible at once.
const QUEUE_DELAY: Duration = Duration::from_secs(10);

/// The policy of a world, and the events that postpone the deletion of values or prove it complete.
pub(super) struct Deadlines {
    /// The maximum difference between two clocks.
    skew: Duration,
    policy: Option<Policy>,
    /// From this time on, deletable values are expected to be deleted. `None`: retention is off, or no rescan
    /// has finished since the policy was set.
    enforced_from: Option<Timestamp>,
    /// After the clocks were set, no value is expected to be deleted before this time, whatever the policy.
    clocks_agree_from: Timestamp,
    /// The longest time for which any of the policies has kept a copy.
    kept_for: Duration,
    /// The time at which the policy was set. Values that were already stored were enqueued at that time.
    policy_since: Timestamp,
    /// The time at which a sweep last processed the whole queue.
    swept_at: Option<Timestamp>,
    /// The largest amount by which the clocks have been set ahead, in microseconds.
    most_ahead: i64,
}

impl Deadlines {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            skew: setup.skew,
            policy: setup.policy.clone(),
            enforced_from: setup.policy.is_some().then_some(START),
            clocks_agree_from: START,
            kept_for: setup.policy.as_ref().map_or(Duration::ZERO, kept_for),
            policy_since: START,
            swept_at: None,
            most_ahead: 0,
        }
    }

    pub(super) fn policy(&self) -> Option<&Policy> {
        self.policy.as_ref()
    }

    /// The later of `enforced_from` and `clocks_agree_from`. `None` if `enforced_from` is `None`.
    pub(super) fn enforced_from(&self) -> Option<Timestamp> {
        self.enforced_from.map(|enforced_from| enforced_from.max(self.clocks_agree_from))
    }

    /// Whether a sweep has processed the whole queue at a time when the bodies should already have been gone.
    pub(super) fn is_overdue(&self, lifetime: Option<Lifetime>) -> bool {
        let (Some(Lifetime { gone_by: Some(gone_by), .. }), Some(swept_at), Some(enforced_from)) =
            (lifetime, self.swept_at, self.enforced_from())
        else {
            return false;
        };
        swept_at >= gone_by.max(enforced_from).saturating_add(self.skew)
    }

    /// Whether the last sweep of the whole queue was at this time.
    pub(super) fn is_swept_at(&self, time: Timestamp) -> bool {
        self.swept_at == Some(time)
    }

    /// The maximum time after the last write for which an unreferenced chunk may be stored.
    pub(super) fn chunks_kept_for(&self) -> Duration {
        // Copies are kept for at most `kept_for` under any of the policies, and their chunks for at most
        // `HINTS` longer. After a jump ahead and back, write times may be ahead of the collector's clock by
        // the length of the jump.
        let ahead = Duration::from_micros(self.most_ahead.max(0).unsigned_abs());
        self.kept_for + HINTS + ahead
    }

    /// Records that a sweep has processed the whole queue.
    pub(super) fn record_sweep(&mut self, now: Timestamp) {
        self.swept_at = Some(now);
    }

    /// Records that a rescan has enqueued all stored values. Only the first rescan under a policy counts.
    pub(super) fn record_rescan(&mut self, now: Timestamp) {
        if let Some(policy) = &self.policy {
            let enforced_from = now.saturating_add(policy.slack + Duration::from_secs(2));
            self.enforced_from.get_or_insert(enforced_from);
        }
    }

    /// Records a new policy. The values that are stored are not enqueued yet.
    pub(super) fn record_policy(&mut self, policy: Option<&Policy>, now: Timestamp) {
        self.policy = policy.cloned();
        self.kept_for = self.kept_for.max(policy.map_or(Duration::ZERO, kept_for));
        self.policy_since = now;
        self.enforced_from = None;
        if let Some(policy) = policy.filter(|_| now < self.clocks_agree_from) {
            // The pause after the clocks were set depends on the grace of the new policy.
            self.clocks_agree_from = self.clocks_agree_from.saturating_add(2 * policy.grace);
        }
    }

    /// Records that all clocks were set. `jumped` is the total by which they are ahead now, in microseconds.
    pub(super) fn record_jump(&mut self, ahead: bool, jumped: i64, now: Timestamp) {
        self.most_ahead = self.most_ahead.max(jumped);
        let behind = Duration::from_micros(self.most_ahead.abs_diff(jumped));
        let mut later = self.enqueued_by(now);
        if !ahead {
            // Until the clocks again show a time that they showed before, no value is expected to be deleted.
            let grace = self.policy.as_ref().map_or(Duration::ZERO, |policy| policy.grace);
            later = later.saturating_add(behind + 2 * grace);
        }
        self.clocks_agree_from = self.clocks_agree_from.max(later);
    }

    /// Records that a write took effect late. If the process that sent the write had another policy, or none,
    /// its queue entries may be missing or have other times.
    pub(super) fn record_late_write(&mut self, sent: Timestamp) {
        if sent < self.policy_since {
            let later = self.enqueued_by(self.policy_since);
            self.enforced_from = self.enforced_from.map(|enforced_from| enforced_from.max(later));
        }
    }

    /// The time by which all values that were stored or being written at `since` have been enqueued: some hours later.
    /// For a while after the clocks were set, nothing is enqueued.
    fn enqueued_by(&self, since: Timestamp) -> Timestamp {
        let slack = self.policy.as_ref().map_or(Duration::ZERO, |policy| policy.slack);
        since.saturating_add(HINTS + 2 * RESCAN_INTERVAL + 2 * self.skew + slack + QUEUE_DELAY)
    }
}

/// The maximum time for which a policy keeps a copy.
fn kept_for(policy: &Policy) -> Duration {
    (2 * policy.ttl).max(policy.grace + policy.slack)
}
