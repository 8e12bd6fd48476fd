//! What is kept, and for how long.

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Generator, Strategy, Timeline};
use crate::{BucketName, DomainName, Page};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// What goes once it is superseded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cull {
    /// Superseded revisions, and superseded renders of those that stay.
    Revisions,
    /// Superseded renders alone: the newest render of every revision stays.
    Renders,
}

/// How long the values of a bucket are kept once something newer has taken their place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// By which means. What was written before there was a choice says nothing of it.
    #[serde(default)]
    pub strategy: Strategy,
    /// How long a value can be read after it was superseded.
    pub grace: Duration,
    /// How long a superseded value can be read after somebody read it, and a generated one after it was made.
    pub ttl: Duration,
    /// How much later than `grace` a superseded value may still be there.
    pub slack: Duration,
    /// How long the timeline remembers, and how long the due queue can wait to be worked off.
    pub index_ttl: Duration,
    /// How likely a write culls what it finds, without waiting for the sweep: 0 to 1.
    pub delete_probability: f64,
    /// What goes.
    pub cull: Cull,
    /// The newest revisions stay, so many, whatever their age.
    pub min_keep: NonZeroU32,
    /// By how much the clocks of writers may differ.
    pub skew: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            strategy: Strategy::AppTtl,
            grace: DAY,
            ttl: DAY,
            slack: DAY / 4,
            index_ttl: 30 * DAY,
            delete_probability: 0.1,
            cull: Cull::Revisions,
            min_keep: NonZeroU32::MIN,
            skew: Duration::from_secs(5),
        }
    }
}

impl Policy {
    /// How many revisions stay whatever their age.
    pub(crate) fn kept(&self) -> NonZeroUsize {
        NonZeroUsize::try_from(self.min_keep).unwrap_or(NonZeroUsize::MIN)
    }

    /// Whether `self` frees something that `before` kept, or frees it sooner, so that what stands has to be
    /// noted as due once more.
    pub(crate) fn frees_more_than(&self, before: &Self) -> bool {
        self.grace.saturating_add(self.skew) < before.grace.saturating_add(before.skew)
            || self.min_keep < before.min_keep
            || (self.cull, before.cull) == (Cull::Revisions, Cull::Renders)
    }
}

/// The retention of all buckets: off where nothing else is said.
#[derive(Debug, Clone)]
pub struct Retention {
    /// For every bucket that has none of its own.
    pub policy: Option<Policy>,
    /// For single buckets; `None`: there everything is kept.
    pub buckets: BTreeMap<(DomainName, BucketName), Option<Policy>>,
    /// Where it is noted when values were superseded; `None`: in the tables, with the write that did it.
    pub timeline: Option<Arc<dyn Timeline>>,
    /// At most one entry of the timeline a page in this time.
    pub sample: Duration,
    /// At most so many entries of the timeline a second a domain.
    pub domain_rate: NonZeroU32,
    /// What makes properties that are stored nowhere.
    pub generator: Option<Arc<dyn Generator>>,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            policy: None,
            buckets: BTreeMap::new(),
            timeline: None,
            sample: Duration::from_secs(60),
            domain_rate: NonZeroU32::new(50).expect("not zero"),
            generator: None,
        }
    }
}

impl Retention {
    /// The policy of a page's bucket.
    pub(crate) fn of(&self, page: &Page) -> Option<&Policy> {
        self.of_bucket(&page.domain, &page.bucket)
    }

    /// The policy of a bucket; `None`: everything is kept.
    #[must_use]
    pub fn of_bucket(&self, domain: &DomainName, bucket: &BucketName) -> Option<&Policy> {
        if self.buckets.is_empty() {
            return self.policy.as_ref();
        }
        self.buckets.get(&(domain.clone(), bucket.clone())).unwrap_or(&self.policy).as_ref()
    }

    /// Whether anything is ever culled.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.policies().next().is_some()
    }

    /// The shortest slack of any bucket; `None` where everything is kept.
    #[must_use]
    pub fn least_slack(&self) -> Option<Duration> {
        self.policies().map(|policy| policy.slack).min()
    }

    /// By how much clocks may differ.
    pub(crate) fn greatest_skew(&self) -> Duration {
        self.policies().map(|policy| policy.skew).max().unwrap_or_default()
    }

    /// For how long every note of what is due stands after that.
    pub(crate) fn least_index_ttl(&self) -> Duration {
        self.policies().map(|policy| policy.index_ttl).min().unwrap_or(Duration::MAX)
    }

    pub(crate) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policy.iter().chain(self.buckets.values().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_frees_more_if_it_is_shorter_or_keeps_less() {
        let policy = Policy { min_keep: NonZeroU32::new(3).unwrap(), ..Policy::default() };
        assert!(!policy.frees_more_than(&policy));
        let shorter = Policy { grace: DAY / 2, ..policy.clone() };
        assert!(shorter.frees_more_than(&policy) && !policy.frees_more_than(&shorter));
        let fewer = Policy { min_keep: NonZeroU32::MIN, ..policy.clone() };
        assert!(fewer.frees_more_than(&policy) && !policy.frees_more_than(&fewer));
        let renders = Policy { cull: Cull::Renders, ..policy.clone() };
        assert!(policy.frees_more_than(&renders) && !renders.frees_more_than(&policy));
    }
}
