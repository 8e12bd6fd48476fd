//! The settings of the archive.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use rashomon_pages::{BucketName, DomainName};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use toml::Spanned;

use super::{
    File,
    errors::Problem,
    raw::RawDomain,
    retention::{BucketRetention, RetentionSettings},
    values::{ByteSize, Span, as_text},
};

/// The minimum of `after` in a file. This time is longer than any write takes, and longer than the difference between
/// the clocks of working servers.
const MIN_AFTER: Duration = Duration::from_secs(3600);

/// The setting `archive` in a file. The table `[archive]` turns the archive on, unless `enabled` is false.
/// `archive = true` and `archive = false` are short for a table with `enabled` as its only key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RawArchive(RawArchiveTable);

impl<'de> Deserialize<'de> for RawArchive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = RawArchive;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or a table of its own: [archive], with its settings below")
            }

            fn visit_bool<E: de::Error>(self, enabled: bool) -> Result<RawArchive, E> {
                Ok(RawArchive(RawArchiveTable { enabled: Some(enabled), ..RawArchiveTable::default() }))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RawArchive, A::Error> {
                RawArchiveTable::deserialize(de::value::MapAccessDeserializer::new(map)).map(RawArchive)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The table `[archive]` in a file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawArchiveTable {
    enabled: Option<bool>,
    policy: Option<ArchivePolicy>,
    after: Option<Span>,
    within: Option<Span>,
    every: Option<Span>,
    cache_size: Option<ByteSize>,
    idle: Option<Idle>,
    block_version: Option<BlockVersion>,
}

/// The version of the format of new blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct BlockVersion(rashomon_pages::BlockVersion);

impl TryFrom<u8> for BlockVersion {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        match number {
            1 => Ok(Self(rashomon_pages::BlockVersion::One)),
            2 => Ok(Self(rashomon_pages::BlockVersion::Two)),
            _ => Err("the versions of blocks are 1 and 2"),
        }
    }
}

impl From<BlockVersion> for u8 {
    fn from(version: BlockVersion) -> Self {
        match version.0 {
            rashomon_pages::BlockVersion::One => 1,
            rashomon_pages::BlockVersion::Two => 2,
        }
    }
}

/// How long a page must have been neither written nor, since the start of the process, read before it is sealed with
/// its latest revision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Idle {
    /// The latest revision is never sealed.
    Never,
    /// The latest revision is sealed after this time.
    After(Span),
}

impl FromStr for Idle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self::Never),
            time => time.parse().map(Self::After).map_err(|error| format!("{error}, or never")),
        }
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::After(time) => time.fmt(f),
        }
    }
}
as_text!(Idle, "a length of time, such as \"30d\", or \"never\"");

/// The archive table of a bucket. It overrides `[archive]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table of its own: [domains.NAME.buckets.page.archive], with its settings below"
)]
pub(crate) struct RawBucketArchive {
    policy: Option<ArchivePolicy>,
    after: Option<Span>,
}

/// Which renders are kept when a revision is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ArchivePolicy {
    #[default]
    Every,
    FirstRender,
    Interval(Span),
}

/// The error for a policy `interval` without a time.
const INTERVAL_WITHOUT_TIME: &str = "an interval needs its time: policy = { interval = \"1d\" }";

impl<'de> Deserialize<'de> for ArchivePolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = ArchivePolicy;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"every\", \"first-render\", or { interval = \"1d\" }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ArchivePolicy, E> {
                match text {
                    "every" => Ok(ArchivePolicy::Every),
                    "first-render" => Ok(ArchivePolicy::FirstRender),
                    "interval" => Err(E::custom(INTERVAL_WITHOUT_TIME)),
                    other => Err(E::unknown_variant(other, &["every", "first-render", "interval"])),
                }
            }

            fn visit_map<M: de::MapAccess<'de>>(self, mut map: M) -> Result<ArchivePolicy, M::Error> {
                let mut interval = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key != "interval" {
                        return Err(de::Error::unknown_field(&key, &["interval"]));
                    }
                    interval = Some(map.next_value::<Span>()?);
                }
                match interval {
                    None => Err(de::Error::custom(INTERVAL_WITHOUT_TIME)),
                    Some(Span(time)) if time.is_zero() => Err(de::Error::custom(
                        "interval must be longer than 0s: one render is kept in each interval; write a time \
                         such as 1d, or use policy = \"every\"",
                    )),
                    Some(interval) => Ok(ArchivePolicy::Interval(interval)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl ArchivePolicy {
    fn into_buckets_policy(self) -> rashomon_pages::ArchivePolicy {
        match self {
            Self::Every => rashomon_pages::ArchivePolicy::Every,
            Self::FirstRender => rashomon_pages::ArchivePolicy::FirstRender,
            Self::Interval(Span(interval)) => rashomon_pages::ArchivePolicy::Interval(interval),
        }
    }
}

/// The archive settings of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct BucketArchive {
    pub(crate) policy: ArchivePolicy,
    pub(crate) after: Span,
}

impl BucketArchive {
    /// Describes an error in the settings, as a sentence that says what to do.
    fn find_error(self) -> Option<String> {
        let Self { after, .. } = self;
        (after.0 < MIN_AFTER).then(|| {
            let least = Span(MIN_AFTER);
            format!(
                "after is {after}, so revisions that are still being written could be sealed: raise after \
                 to at least {least}"
            )
        })
    }

    /// Describes an error if a policy leaves renders out before their grace is over. Sealing removes renders that the
    /// policy leaves out.
    fn check_grace(self, grace: Option<Duration>) -> Option<String> {
        let Self { policy, after } = self;
        let grace = grace.filter(|grace| policy != ArchivePolicy::Every && after.0 < *grace).map(Span)?;
        Some(format!(
            "after is {after}, and the grace of retention is {grace}: sealing would remove the renders \
             that policy leaves out before their grace is over: raise after to at least {grace}, lower \
             grace, or use policy = \"every\""
        ))
    }

    fn into_buckets_archive(self) -> rashomon_pages::BucketArchive {
        rashomon_pages::BucketArchive { policy: self.policy.into_buckets_policy(), after: self.after.0 }
    }
}

/// The archive settings in effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ArchiveSettings {
    /// Whether the archive is on. `None`: the configuration says nothing about the archive, and the store
    /// decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enabled: Option<bool>,
    /// The settings of all buckets without their own.
    #[serde(flatten)]
    pub(crate) all: BucketArchive,
    pub(crate) within: Span,
    pub(crate) every: Span,
    pub(crate) cache_size: ByteSize,
    pub(crate) idle: Idle,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) block_version: Option<BlockVersion>,
}

impl Default for ArchiveSettings {
    fn default() -> Self {
        let buckets = rashomon_pages::ArchiveSettings::default();
        let day = Duration::from_secs(24 * 3600);
        Self {
            enabled: None,
            all: BucketArchive { policy: ArchivePolicy::Every, after: Span(buckets.all.after) },
            within: Span(30 * day),
            every: Span(day),
            cache_size: ByteSize(buckets.cache_bytes),
            idle: Idle::After(Span(30 * day)),
            block_version: None,
        }
    }
}

impl ArchiveSettings {
    /// Whether the archive is on. `false` also if this is not decided yet.
    pub(crate) fn is_on(&self) -> bool {
        self.enabled == Some(true)
    }

    /// Whether the configuration says nothing about the archive. If so, printed settings have no table either.
    pub(super) fn is_undecided(&self) -> bool {
        self.enabled.is_none()
    }

    pub(super) fn merge(
        raw: Option<Spanned<RawArchive>>,
        retention: &RetentionSettings,
        file: &File,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let default = Self::default();
        let Some(raw) = raw else { return default };
        let span = raw.span();
        let RawArchive(raw) = raw.into_inner();
        // Without the archive, retention would delete a value after its grace. So this is when the value is sealed.
        let grace = retention.all.policy().map(|policy| policy.grace);
        let after = grace.map_or(default.all.after, Span);
        let settings = Self {
            enabled: Some(raw.enabled.unwrap_or(true)),
            all: BucketArchive {
                policy: raw.policy.unwrap_or(default.all.policy),
                after: raw.after.unwrap_or(after),
            },
            within: raw.within.unwrap_or(default.within),
            every: raw.every.unwrap_or(default.every),
            cache_size: raw.cache_size.unwrap_or(default.cache_size),
            idle: raw.idle.unwrap_or(default.idle),
            block_version: raw.block_version,
        };
        let error = settings.all.find_error().or_else(|| settings.all.check_grace(grace));
        if let Some(message) = error.filter(|_| settings.is_on()) {
            problems.push(file.problem(span.clone(), message));
        }
        if settings.is_on() && settings.every.0.is_zero() {
            let message = "every is 0s, but it is the time between two searches for revisions to seal: \
                           write a time such as 24h";
            problems.push(file.problem(span, message.to_owned()));
        }
        settings
    }

    /// Returns the settings of single buckets, which override the settings of all buckets. Only a bucket with its own
    /// archive table, or with its own retention table that does not keep everything, has such settings.
    pub(super) fn merge_buckets(
        &self,
        domain: &RawDomain,
        (retention, retentions): (&RetentionSettings, &BTreeMap<BucketName, BucketRetention>),
        file: &File,
        problems: &mut Vec<Problem>,
    ) -> BTreeMap<BucketName, BucketArchive> {
        let mut all = BTreeMap::new();
        for (name, bucket) in &domain.buckets {
            let raw = bucket.archive.as_ref();
            if !self.is_on() {
                if let Some(raw) = raw {
                    let message = "this table configures the archive of a bucket, but the configuration does \
                                   not turn the archive on: add the table [archive] without enabled = false, or \
                                   remove this table";
                    problems.push(file.problem(raw.span(), message.to_owned()));
                }
                continue;
            }
            let grace = retentions.get(name).and_then(BucketRetention::policy).map(|policy| policy.grace);
            let span = raw.map(Spanned::span).or_else(|| {
                let retention = bucket.retention.as_ref().filter(|_| grace.is_some());
                retention.map(Spanned::span)
            });
            let Some(span) = span else { continue };
            let raw = raw.map(|raw| *raw.get_ref()).unwrap_or_default();
            let own = BucketArchive {
                policy: raw.policy.unwrap_or(self.all.policy),
                after: raw.after.or(grace.map(Span)).unwrap_or(self.all.after),
            };
            let in_effect =
                retentions.get(name).unwrap_or(&retention.all).policy().map(|policy| policy.grace);
            if let Some(message) = own.find_error().or_else(|| own.check_grace(in_effect)) {
                problems.push(file.problem(span, message));
            }
            all.insert(name.clone(), own);
        }
        all
    }
}

impl super::Settings {
    /// Turns the archive on for `archive seal` and `import --archive`, optionally with another `after` and
    /// another `idle`. On a cluster, or with a retention policy, the configuration must have turned it on already.
    ///
    /// # Errors
    ///
    /// Returns an error if the result is not allowed. The error says what to do.
    pub(crate) fn enable_archive_for_sealing(
        &mut self,
        after: Option<Span>,
        idle: Option<Idle>,
    ) -> Result<(), String> {
        if matches!(self.store, super::StoreSettings::Cassandra(_)) {
            if !self.archive.is_on() {
                return Err(
                    "a server without [archive] in its configuration cannot read sealed revisions: add \
                     [archive] to the configuration of every server of the cluster, restart the servers, \
                     and name the configuration with --config"
                        .to_owned(),
                );
            }
            let refused = after.map(|_| "after").or_else(|| idle.map(|_| "idle"));
            if let Some(flag) = refused {
                return Err(format!(
                    "--{flag} is refused on a cluster, since servers write to it: set `{flag}` in [archive] of \
                     the configuration of every server"
                ));
            }
        }
        if !self.archive.is_on() && self.retention().is_on() {
            return Err(
                "the configuration deletes superseded revisions: add [archive] to it, so that they are \
                 sealed instead"
                    .to_owned(),
            );
        }
        // The archive is on for this command alone. The configuration decides what a new store records.
        self.new_store_archive = Some(self.records_archive());
        self.archive.enabled = Some(true);
        self.archive.idle = idle.unwrap_or(self.archive.idle);
        if let Some(after) = after {
            self.archive.all.after = after;
            let buckets = self.domains.values_mut().flat_map(|domain| domain.buckets.values_mut());
            buckets.filter_map(|bucket| bucket.archive.as_mut()).for_each(|own| own.after = after);
            if let Some(error) = self.check_after() {
                return Err(format!("--after {after}: {error}"));
            }
        }
        Ok(())
    }

    /// Describes an error if a bucket would be sealed before the grace of its retention is over, although its archive
    /// policy leaves renders out.
    fn check_after(&self) -> Option<String> {
        let check = |archive: BucketArchive, retention: &BucketRetention| {
            archive.check_grace(retention.policy().map(|policy| policy.grace))
        };
        let buckets = self.domains.values().flat_map(|domain| domain.buckets.values());
        let of_buckets = buckets.filter_map(|bucket| {
            let retention = bucket.retention.as_ref().unwrap_or(&self.retention.all);
            check(bucket.archive.unwrap_or(self.archive.all), retention)
        });
        check(self.archive.all, &self.retention.all).into_iter().chain(of_buckets).next()
    }

    /// The archive settings of the buckets. `None` if the archive is off.
    pub(super) fn archive(&self) -> Option<rashomon_pages::ArchiveSettings> {
        let ArchiveSettings { all, cache_size, idle, block_version, .. } = &self.archive;
        let of_buckets = |(domain, settings): (&DomainName, &super::Domain)| {
            let domain = domain.clone();
            let own =
                settings.buckets.iter().filter_map(|(name, bucket)| Some((name.clone(), bucket.archive?)));
            own.map(move |(name, own)| ((domain.clone(), name), own.into_buckets_archive()))
                .collect::<Vec<_>>()
        };
        self.archive.is_on().then(|| rashomon_pages::ArchiveSettings {
            all: all.into_buckets_archive(),
            buckets: self.domains.iter().flat_map(of_buckets).collect(),
            cache_bytes: cache_size.0,
            idle: match idle {
                Idle::Never => None,
                Idle::After(Span(time)) => Some(*time),
            },
            block_version: block_version.map(|version| version.0),
        })
    }

    /// Describes an error if the strategy does not fit the archive. With an archive nothing is culled: values
    /// that retention would delete are sealed instead. An archive needs app-ttl, since the other strategies have
    /// superseded values in tables that are not sealed.
    pub(super) fn check_archive_strategy(&self) -> Option<String> {
        let retention = self.retention();
        let policies = retention.policy.iter().chain(retention.buckets.values().flatten());
        let other = policies.into_iter().any(|policy| policy.strategy != rashomon_pages::Strategy::AppTtl);
        (self.archive.is_on() && other).then(|| {
            "the archive works only with strategy app-ttl, and seals the values that app-ttl would cull: use \
             strategy = \"app-ttl\", or remove [archive]"
                .to_owned()
        })
    }
}
