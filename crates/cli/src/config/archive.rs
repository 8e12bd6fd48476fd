//! What the configuration says of the archive.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{
    File,
    errors::Problem,
    retention::RetentionSettings,
    values::{ByteSize, Span},
};

/// How long something has to have been superseded at the least: longer than any write takes, and than clocks
/// that agree at all may differ by.
const MIN_AFTER: Duration = Duration::from_secs(3600);

/// What the table of the file says. A table that is there turns the archive on.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenArchive {
    enabled: Option<bool>,
    policy: Option<ArchivePolicy>,
    after: Option<Span>,
    within: Option<Span>,
    every: Option<Span>,
    cache_size: Option<ByteSize>,
}

/// Which renders are kept.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ArchivePolicy {
    #[default]
    Every,
    FirstRender,
    Interval(Span),
}

impl ArchivePolicy {
    fn of_buckets(self) -> rashomon_buckets::ArchivePolicy {
        match self {
            Self::Every => rashomon_buckets::ArchivePolicy::Every,
            Self::FirstRender => rashomon_buckets::ArchivePolicy::FirstRender,
            Self::Interval(Span(interval)) => rashomon_buckets::ArchivePolicy::Interval(interval),
        }
    }
}

/// The archive as it is in effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ArchiveSettings {
    pub(crate) enabled: bool,
    pub(crate) policy: ArchivePolicy,
    pub(crate) after: Span,
    pub(crate) within: Span,
    pub(crate) every: Span,
    pub(crate) cache_size: ByteSize,
}

impl Default for ArchiveSettings {
    fn default() -> Self {
        let buckets = rashomon_buckets::ArchiveSettings::default();
        let day = Duration::from_secs(24 * 3600);
        Self {
            enabled: false,
            policy: ArchivePolicy::Every,
            after: Span(buckets.after),
            within: Span(30 * day),
            every: Span(day),
            cache_size: ByteSize(buckets.cache_bytes),
        }
    }
}

impl ArchiveSettings {
    pub(super) fn merge(
        given: Option<Spanned<GivenArchive>>,
        retention: &RetentionSettings,
        file: &File,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let default = Self::default();
        let Some(given) = given else { return default };
        let span = given.span();
        let given = given.into_inner();
        // What retention would delete after its grace is sealed after it instead.
        let after = retention.all.policy().map_or(default.after, |policy| Span(policy.grace));
        let settings = Self {
            enabled: given.enabled.unwrap_or(true),
            policy: given.policy.unwrap_or(default.policy),
            after: given.after.unwrap_or(after),
            within: given.within.unwrap_or(default.within),
            every: given.every.unwrap_or(default.every),
            cache_size: given.cache_size.unwrap_or(default.cache_size),
        };
        if settings.enabled && settings.after.0 < MIN_AFTER {
            let message = format!(
                "after is {}, and what is being written may not be sealed: raise it to at least {}",
                settings.after,
                Span(MIN_AFTER)
            );
            problems.push(file.problem(span.clone(), message));
        }
        if settings.enabled && settings.every.0.is_zero() {
            let message = "every is the time between two looks at all pages: give some, such as 24h";
            problems.push(file.problem(span, message.to_owned()));
        }
        settings
    }
}

impl super::Settings {
    /// Turns the archive on where one process has the store, with another time above what was configured. Says
    /// what is wrong with that.
    pub(crate) fn seal(&mut self, after: Option<Span>) -> Result<(), String> {
        if matches!(self.store, super::StoreSettings::Cassandra(_)) {
            if !self.archive.enabled {
                return Err("a server that does not know of the archive would miss what is sealed: put [archive] \
                            into the configuration of every server of the cluster, start them anew, and name it \
                            with --config"
                    .to_owned());
            }
            if after.is_some() {
                return Err(
                    "others write to a cluster: give the time as `after` in the [archive] of all of them"
                        .to_owned(),
                );
            }
        }
        if let Some(policy) = self.retention().policy.filter(|_| !self.archive.enabled) {
            return Err(format!(
                "the configuration has what was superseded deleted after {}: put [archive] into it, so that it is \
                 sealed instead",
                Span(policy.grace)
            ));
        }
        self.archive.enabled = true;
        self.archive.after = after.unwrap_or(self.archive.after);
        Ok(())
    }

    /// The archive, as the bucket layer takes it.
    pub(super) fn archive(&self) -> Option<rashomon_buckets::ArchiveSettings> {
        let ArchiveSettings { enabled, policy, after, cache_size, .. } = &self.archive;
        enabled.then_some(rashomon_buckets::ArchiveSettings {
            policy: policy.of_buckets(),
            after: after.0,
            cache_bytes: cache_size.0,
        })
    }

    /// With an archive nothing is culled: what retention would delete is sealed instead. That is so with the
    /// strategy whose values lie where they are sealed.
    pub(super) fn wrong_beside_the_archive(&self) -> Option<String> {
        let retention = self.retention();
        let policies = retention.policy.iter().chain(retention.buckets.values().flatten());
        let other = policies.into_iter().any(|policy| policy.strategy != rashomon_buckets::Strategy::AppTtl);
        (self.archive.enabled && other).then(|| {
            "the archive takes over what app-ttl would cull, and no other strategy's: take strategy = \"app-ttl\", \
             or leave out [archive]"
                .to_owned()
        })
    }
}
