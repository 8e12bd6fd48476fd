//! The retention policies: which values are kept, and how long.

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use rashomon_records::{BucketName, DomainName, Page};
use serde::{Deserialize, Serialize};

use crate::{Generator, Strategy, Timeline};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Which superseded values are culled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cull {
    /// Superseded revisions, and superseded renders of the revisions that stay.
    Revisions,
    /// Superseded renders alone. The newest render of every revision stays.
    Renders,
}

/// The retention policy of a bucket: how long superseded values are kept, and by which strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// The strategy. Policies that were stored before strategies could be chosen lack this field.
    #[serde(default)]
    pub strategy: Strategy,
    /// How long a value can be read after it was superseded.
    pub grace: Duration,
    /// How long a superseded value can be read after its last read, and how long a generated value can be read
    /// after its generation.
    pub ttl: Duration,
    /// How long after its `grace` a superseded value may still be stored.
    pub slack: Duration,
    /// How long the timeline keeps its entries, and how long a queue entry stays stored after it became
    /// eligible.
    pub index_ttl: Duration,
    /// The probability, 0 to 1, with which a write culls eligible values of its page at once. The sweep culls
    /// the rest.
    pub delete_probability: f64,
    /// Which superseded values are culled.
    pub cull: Cull,
    /// How many of the newest revisions stay, whatever their age.
    pub min_keep: NonZeroU32,
    /// How much the clocks of writers may differ.
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
    /// How many of the newest revisions stay, whatever their age.
    pub(crate) fn kept(&self) -> NonZeroUsize {
        NonZeroUsize::try_from(self.min_keep).unwrap_or(NonZeroUsize::MIN)
    }

    /// Whether `self` culls values that `before` kept, or culls them sooner. If so, the values that are
    /// already stored have to be enqueued again.
    pub(crate) fn culls_more_than(&self, before: &Self) -> bool {
        self.grace.saturating_add(self.skew) < before.grace.saturating_add(before.skew)
            || self.min_keep < before.min_keep
            || (self.cull, before.cull) == (Cull::Revisions, Cull::Renders)
    }
}

/// The retention of all buckets. By default nothing is culled.
#[derive(Debug, Clone)]
pub struct Retention {
    /// The policy of every bucket that has no policy of its own. `None` if such buckets keep everything.
    pub policy: Option<Policy>,
    /// The policies of single buckets. `None` if the bucket keeps everything.
    pub buckets: BTreeMap<(DomainName, BucketName), Option<Policy>>,
    /// The index of the times at which values were superseded. `None` if this index is in the tables: a write then
    /// adds its entry in its own batch.
    pub timeline: Option<Arc<dyn Timeline>>,
    /// The minimum time between two timeline entries of one page.
    pub sample: Duration,
    /// The maximum number of timeline entries per second and domain.
    pub domain_rate: NonZeroU32,
    /// The generator of properties that are not stored.
    pub generator: Option<Arc<dyn Generator>>,
    /// Whether reads write nothing: no render is generated, and no read copy is made or renewed.
    pub read_only: bool,
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
            read_only: false,
        }
    }
}

impl Retention {
    /// The policy of a page's bucket.
    pub(crate) fn of(&self, page: &Page) -> Option<&Policy> {
        self.of_bucket(&page.domain, &page.bucket)
    }

    /// The policy of a page's bucket, if reads may make copies.
    pub(crate) fn copying(&self, page: &Page) -> Option<&Policy> {
        self.of(page).filter(|_| !self.read_only)
    }

    /// The generator, unless reads write nothing: a generated render is stored.
    #[must_use]
    pub fn used_generator(&self) -> Option<&Arc<dyn Generator>> {
        self.generator.as_ref().filter(|_| !self.read_only)
    }

    /// The policy of a bucket. `None` if the bucket keeps everything.
    #[must_use]
    pub fn of_bucket(&self, domain: &DomainName, bucket: &BucketName) -> Option<&Policy> {
        if self.buckets.is_empty() {
            return self.policy.as_ref();
        }
        self.buckets.get(&(domain.clone(), bucket.without_id())).unwrap_or(&self.policy).as_ref()
    }

    /// Whether any bucket has a policy.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.policies().next().is_some()
    }

    /// The shortest slack of any bucket. `None` if all buckets keep everything.
    #[must_use]
    pub fn least_slack(&self) -> Option<Duration> {
        self.policies().map(|policy| policy.slack).min()
    }

    /// The greatest skew of any bucket. Zero if all buckets keep everything.
    pub(crate) fn greatest_skew(&self) -> Duration {
        self.policies().map(|policy| policy.skew).max().unwrap_or_default()
    }

    /// The shortest time, in any bucket, for which a queue entry stays stored after it became eligible.
    pub(crate) fn least_index_ttl(&self) -> Duration {
        self.policies().map(|policy| policy.index_ttl).min().unwrap_or(Duration::MAX)
    }

    /// The policies of all buckets that have one.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policy.iter().chain(self.buckets.values().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_grace_or_fewer_kept_values_cull_more() {
        let policy = Policy { min_keep: NonZeroU32::new(3).unwrap(), ..Policy::default() };
        assert!(!policy.culls_more_than(&policy));
        let shorter = Policy { grace: DAY / 2, ..policy.clone() };
        assert!(shorter.culls_more_than(&policy) && !policy.culls_more_than(&shorter));
        let fewer = Policy { min_keep: NonZeroU32::MIN, ..policy.clone() };
        assert!(fewer.culls_more_than(&policy) && !policy.culls_more_than(&fewer));
        let renders = Policy { cull: Cull::Renders, ..policy.clone() };
        assert!(policy.culls_more_than(&renders) && !renders.culls_more_than(&policy));
    }
}
