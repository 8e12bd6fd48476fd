//! The settings of retention: `[retention]` for all buckets, and tables of single buckets, which override
//! `[retention]`.

use std::{collections::BTreeMap, fmt, num::NonZeroU32, ops::Range, str::FromStr, sync::Arc, time::Duration};

use rashomon_clock::Clock;
use rashomon_pages::operations::SWEEP_PAUSE;
use rashomon_pages::{
    BucketName, Cull, Current, DomainName, Fill, MemoryTimeline, Policy, Timeline, excerpt,
};
use rashomon_retention::redis_timeline::RedisTimeline;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use toml::Spanned;

use super::{
    File, Problem,
    raw::RawDomain,
    values::{Span, as_text},
};

/// How superseded values are kept and culled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Strategy {
    /// Everything is kept.
    KeepEverything,
    /// Superseded values are deleted after their time, by the clock of the server.
    AppTtl,
    /// Superseded values are copied into a table whose rows expire.
    TwoTable,
    /// One table has the latest values. Two tables whose rows expire serve reads by revision and by tid.
    TablePerQuery,
}

/// The store of the timeline, which records when values were superseded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TimelineStore {
    /// In the tables, written with the write that superseded the value.
    Table,
    /// In the memory of this process.
    Memory,
    /// In Redis.
    Redis(String),
}

/// The maximum number of pages in a timeline in memory.
const MAX_TIMELINE_PAGES: u64 = 100_000;

impl TimelineStore {
    /// Opens the timeline. `None`: the timeline is in the tables.
    fn open(&self, clock: &Arc<dyn Clock>) -> Result<Option<Arc<dyn Timeline>>, String> {
        let clock = Arc::clone(clock);
        Ok(match self {
            Self::Table => None,
            Self::Memory => Some(Arc::new(MemoryTimeline::new(clock, MAX_TIMELINE_PAGES))),
            Self::Redis(url) => {
                let redis = RedisTimeline::new(rashomon_retention::redis_timeline::Settings::new(url), clock);
                Some(Arc::new(redis.map_err(|error| format!("[retention] timeline: {error}"))?))
            }
        })
    }

    /// Describes an error in the setting, as a sentence that says what to do.
    pub(super) fn find_error(&self) -> Option<String> {
        let clock: Arc<dyn Clock> = Arc::new(rashomon_clock::SystemClock::new());
        self.open(&clock).err()
    }
}

impl FromStr for TimelineStore {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "table" => Ok(Self::Table),
            "memory" => Ok(Self::Memory),
            url if url.starts_with("redis://") => Ok(Self::Redis(url.to_owned())),
            _ => Err(format!(
                "'{}' is not a place for the timeline; write table, memory, or a URL of Redis, as in \
                 redis://127.0.0.1:6379/0",
                excerpt(text)
            )),
        }
    }
}

impl fmt::Display for TimelineStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table => f.write_str("table"),
            Self::Memory => f.write_str("memory"),
            Self::Redis(url) => f.write_str(url),
        }
    }
}
as_text!(TimelineStore, "a place for the timeline: \"table\", \"memory\", or \"redis://127.0.0.1:6379/0\"");

/// A table of retention in a file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRetention {
    strategy: Option<Strategy>,
    option: Option<Current>,
    fill: Option<Fill>,
    grace: Option<Span>,
    ttl: Option<Span>,
    slack: Option<Span>,
    index_ttl: Option<Span>,
    delete_probability: Option<f64>,
    cull: Option<Cull>,
    min_keep: Option<NonZeroU32>,
    skew: Option<Span>,
    timeline: Option<TimelineStore>,
    sample: Option<Span>,
    domain_rate: Option<NonZeroU32>,
}

/// The retention settings of a bucket, in effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct BucketRetention {
    pub(crate) strategy: Strategy,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) option: Option<Current>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fill: Option<Fill>,
    pub(crate) grace: Span,
    pub(crate) ttl: Span,
    pub(crate) slack: Span,
    pub(crate) index_ttl: Span,
    pub(crate) delete_probability: f64,
    pub(crate) cull: Cull,
    pub(crate) min_keep: NonZeroU32,
    pub(crate) skew: Span,
}

/// The settings of all buckets without their own, and the settings that apply to all buckets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RetentionSettings {
    #[serde(flatten)]
    pub(crate) all: BucketRetention,
    pub(crate) timeline: TimelineStore,
    pub(crate) sample: Span,
    pub(crate) domain_rate: NonZeroU32,
    /// Whether the file has a `[retention]` table. If it has, `keep-everything` is intended.
    #[serde(skip)]
    pub(super) is_configured: bool,
}

impl Default for BucketRetention {
    fn default() -> Self {
        let Policy { grace, ttl, slack, index_ttl, delete_probability, cull, min_keep, skew, .. } =
            Policy::default();
        Self {
            strategy: Strategy::KeepEverything,
            option: None,
            fill: None,
            grace: Span(grace),
            ttl: Span(ttl),
            slack: Span(slack),
            index_ttl: Span(index_ttl),
            delete_probability,
            cull,
            min_keep,
            skew: Span(skew),
        }
    }
}

impl Default for RetentionSettings {
    fn default() -> Self {
        let buckets = rashomon_pages::Retention::default();
        Self {
            all: BucketRetention::default(),
            timeline: TimelineStore::Table,
            sample: Span(buckets.sample),
            domain_rate: buckets.domain_rate,
            is_configured: false,
        }
    }
}

impl BucketRetention {
    /// Returns these settings, overridden by the settings of a table. A table without a strategy has `app-ttl`,
    /// whatever the strategy of these settings is.
    fn with(&self, raw: RawRetention) -> Self {
        let grace = raw.grace.unwrap_or(self.grace);
        // If a table has a grace and no slack, the slack is a quarter of the grace.
        let slack = raw.slack.or_else(|| raw.grace.map(|Span(grace)| Span(grace / 4)));
        let slack = slack.unwrap_or(self.slack);
        // By default, queue entries are kept at least twice as long as superseded values.
        let default_index_ttl = Span((grace.0.saturating_add(slack.0)).saturating_mul(2)).max(self.index_ttl);
        let strategy = raw.strategy.unwrap_or(Strategy::AppTtl);
        // Options of another strategy are not inherited.
        let inherited = (strategy == self.strategy).then_some((self.option, self.fill));
        let (option, fill) = inherited.unwrap_or_default();
        Self {
            strategy,
            option: raw.option.or(option),
            fill: raw.fill.or(fill),
            grace,
            ttl: raw.ttl.unwrap_or(self.ttl),
            slack,
            index_ttl: raw.index_ttl.unwrap_or(default_index_ttl),
            delete_probability: raw.delete_probability.unwrap_or(self.delete_probability),
            cull: raw.cull.unwrap_or(self.cull),
            min_keep: raw.min_keep.unwrap_or(self.min_keep),
            skew: raw.skew.unwrap_or(self.skew),
        }
    }

    /// Describes an error in the settings, as a sentence that says what to do. `max_clock_error`: how much
    /// too early the times of rows may be, if other processes write to the store.
    fn find_error(&self, max_clock_error: Option<Span>) -> Option<String> {
        let Self { grace, ttl, slack, index_ttl, delete_probability, skew, .. } = self;
        if grace.0.is_zero() || ttl.0.is_zero() {
            return Some(
                "grace and ttl must be longer than 0s, so that an editor can save; to keep everything, \
                 write only strategy = \"keep-everything\""
                    .to_owned(),
            );
        }
        if !(0.0..=1.0).contains(delete_probability) {
            return Some(format!("delete_probability is {delete_probability}, but must be between 0 and 1"));
        }
        if slack.0 < MIN_SLACK {
            return Some(format!(
                "slack is {slack}, but must be at least {}, or the sweep would run all the time",
                Span(MIN_SLACK)
            ));
        }
        if *skew > *slack {
            return Some(format!("skew is {skew}, more than slack, {slack}: raise slack, or lower skew"));
        }
        if let Some(message) =
            self.check_slack_on_cluster(max_clock_error).or_else(|| self.check_strategy_options())
        {
            return Some(message);
        }
        let least = grace.0.saturating_add(slack.0).saturating_add(skew.0);
        (index_ttl.0 < least).then(|| {
            format!(
                "index_ttl is {index_ttl}, and queue entries would expire before they are processed: raise \
                 index_ttl to at least {}, the sum of grace, slack and skew",
                Span(least)
            )
        })
    }

    /// Describes an error if the slack is too short for several writing processes: the sweep must cull a
    /// value before its slack is over. A write may count as made up to `max_clock_error` later than its time.
    /// The superseded value may also count as stored up to `max_clock_error` later than its time.
    fn check_slack_on_cluster(&self, max_clock_error: Option<Span>) -> Option<String> {
        let max_clock_error = max_clock_error.filter(|_| self.strategy != Strategy::KeepEverything)?;
        let max_delay = max_clock_error.0.saturating_mul(2).saturating_add(self.skew.0);
        // The sweep pauses for a quarter of the slack. The other three quarters must be at least `max_delay`, so
        // the pause is a third of `max_delay`.
        let pause = (max_delay / 3).clamp(*SWEEP_PAUSE.start(), *SWEEP_PAUSE.end());
        let least = Span(max_delay.saturating_add(pause));
        (self.slack < least).then(|| {
            format!(
                "slack is {}, but on a cluster superseded values may be culled as late as {least} after \
                 their grace: twice the skew of the server, {max_clock_error}, plus the skew of retention, \
                 {}, plus {} between two sweeps; raise slack to the sum, or lower the skew of the server",
                self.slack,
                self.skew,
                Span(pause)
            )
        })
    }

    /// Describes an error if a setting belongs to another strategy, or if the strategy cannot fulfil it.
    fn check_strategy_options(&self) -> Option<String> {
        if self.strategy != Strategy::TablePerQuery {
            return (self.option.is_some() || self.fill.is_some()).then(|| {
                "option and fill belong to another strategy: remove them, or use strategy = \
                 \"table-per-query\""
                    .to_owned()
            });
        }
        if self.min_keep.get() > 1 {
            return Some(format!(
                "min_keep is {}, but table-per-query keeps only the latest revision: remove min_keep, or \
                 use app-ttl or two-table",
                self.min_keep
            ));
        }
        (self.cull == Cull::Renders).then(|| {
            "cull is renders, but table-per-query keeps only the latest render: remove cull, or use app-ttl \
             or two-table"
                .to_owned()
        })
    }

    /// The policy. `None`: everything is kept.
    pub(crate) fn policy(&self) -> Option<Policy> {
        let strategy = match self.strategy {
            Strategy::KeepEverything => return None,
            Strategy::AppTtl => rashomon_pages::Strategy::AppTtl,
            Strategy::TwoTable => rashomon_pages::Strategy::TwoTable,
            Strategy::TablePerQuery => rashomon_pages::Strategy::TablePerQuery(
                self.option.unwrap_or_default(),
                self.fill.unwrap_or_default(),
            ),
        };
        Some(Policy {
            strategy,
            grace: self.grace.0,
            ttl: self.ttl.0,
            slack: self.slack.0,
            index_ttl: self.index_ttl.0,
            delete_probability: self.delete_probability,
            cull: self.cull,
            min_keep: self.min_keep,
            skew: self.skew.0,
        })
    }
}

/// The smallest allowed slack.
const MIN_SLACK: Duration = Duration::from_millis(100);

impl RetentionSettings {
    /// Whether the file has no `[retention]` table. If so, printed settings have none either.
    pub(super) fn is_absent(&self) -> bool {
        !self.is_configured
    }

    pub(super) fn merge(
        raw: Option<Spanned<RawRetention>>,
        max_clock_error: Option<Span>,
        file: &File,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let default = Self::default();
        let Some(raw) = raw else { return default };
        let span = raw.span();
        let raw = raw.into_inner();
        let (timeline, sample, domain_rate) = (raw.timeline.clone(), raw.sample, raw.domain_rate);
        let all = default.all.with(raw);
        report(all.find_error(max_clock_error), span, file, problems);
        Self {
            all,
            timeline: timeline.unwrap_or(default.timeline),
            sample: sample.unwrap_or(default.sample),
            domain_rate: domain_rate.unwrap_or(default.domain_rate),
            is_configured: true,
        }
    }

    /// Returns the settings of single buckets, which override the settings of all buckets.
    pub(super) fn merge_buckets(
        &self,
        domain: &RawDomain,
        max_clock_error: Option<Span>,
        file: &File,
        problems: &mut Vec<Problem>,
    ) -> BTreeMap<BucketName, BucketRetention> {
        let mut all = BTreeMap::new();
        for (name, bucket) in &domain.buckets {
            let Some(raw) = bucket.retention.clone() else { continue };
            let span = raw.span();
            let raw = raw.into_inner();
            if raw.timeline.is_some() || raw.sample.is_some() || raw.domain_rate.is_some() {
                let message =
                    "timeline, sample and domain_rate apply to all buckets: move them to [retention]";
                problems.push(file.problem(span.clone(), message.to_owned()));
            }
            let retention = self.all.with(raw);
            report(retention.find_error(max_clock_error), span, file, problems);
            all.insert(name.clone(), retention);
        }
        all
    }
}

fn report(error: Option<String>, span: Range<usize>, file: &File, problems: &mut Vec<Problem>) {
    problems.extend(error.map(|message| file.problem(span, message)));
}

/// The flags of `rashomon retention`, which override the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetentionFlags<'a> {
    /// If set, only this domain is affected.
    pub domain: Option<&'a DomainName>,
    /// The time for which the bodies of superseded revisions and renders stay.
    pub grace: Option<Span>,
    /// The number of newest revisions of a page that always stay, each with its newest render.
    pub min_keep: Option<NonZeroU32>,
    /// Whether the command deletes values, or only reports them.
    pub deletes: bool,
}

impl RetentionFlags<'_> {
    fn has_overrides(&self) -> bool {
        self.grace.is_some() || self.min_keep.is_some()
    }

    /// Applies the flags to one table. `is_configured`: the table is in the file, so its strategy is
    /// intended.
    fn apply_to(&self, base: &BucketRetention, is_configured: bool) -> Result<BucketRetention, String> {
        let keeps_everything = base.strategy == Strategy::KeepEverything;
        if keeps_everything && is_configured && self.deletes && self.has_overrides() {
            return Err("the configuration keeps everything (strategy = \"keep-everything\"), and flags \
                        cannot override that: remove the strategy from the configuration, or use --dry-run \
                        to see what would be freed"
                .to_owned());
        }
        // `--min-keep` alone is not a policy for deletes.
        let turns_on = self.grace.is_some() || !self.deletes && (self.min_keep.is_some() || !is_configured);
        if keeps_everything && !turns_on || !keeps_everything && !self.has_overrides() {
            return Ok(base.clone());
        }
        let strategy = Some(if keeps_everything { Strategy::AppTtl } else { base.strategy });
        let Self { grace, min_keep, .. } = *self;
        Ok(base.with(RawRetention { strategy, grace, min_keep, ..RawRetention::default() }))
    }
}

impl super::Settings {
    fn own_retentions(&self) -> impl Iterator<Item = &BucketRetention> {
        let of_buckets = self.domains.values().flat_map(|domain| domain.buckets.values());
        of_buckets.filter_map(|bucket| bucket.retention.as_ref())
    }

    /// Applies the flags to the configuration.
    ///
    /// # Errors
    ///
    /// Returns an error if the resulting settings are not allowed, as for a file. Refuses deletes if neither a
    /// configuration nor a flag sets a policy. Also refuses flags that would delete what the configuration keeps.
    pub(crate) fn apply_retention_flags(&mut self, flags: RetentionFlags<'_>) -> Result<(), String> {
        // If a bucket has a table, keeping everything is intended for the buckets without a table, unless
        // flags override it.
        let is_configured = self.retention.is_configured || self.own_retentions().next().is_some();
        if flags.deletes && !is_configured && flags.grace.is_none() {
            return Err("no retention policy is configured, so nothing may be deleted: name the \
                        configuration of the store's server with --config FILE, or give --grace TIME; \
                        --dry-run shows what would be freed"
                .to_owned());
        }
        match flags.domain {
            Some(domain) => self.apply_to_domain(domain, flags, is_configured)?,
            None => self.apply_to_all(flags, is_configured)?,
        }
        let max_clock_error = self.store.max_clock_error(self.merged.skew);
        let error = std::iter::once(&self.retention.all)
            .chain(self.own_retentions())
            .find_map(|all| all.find_error(max_clock_error));
        error.map_or(Ok(()), |error| {
            let grace = flags.grace.map(|grace| format!("--grace {grace} (slack is a quarter of it)"));
            let min_keep = flags.min_keep.map(|number| format!("--min-keep {number}"));
            let shown: Vec<_> = grace.into_iter().chain(min_keep).collect();
            Err(if shown.is_empty() { error } else { format!("{}: {error}", shown.join(", and ")) })
        })
    }

    fn apply_to_all(&mut self, flags: RetentionFlags<'_>, is_configured: bool) -> Result<(), String> {
        let is_configured = self.retention.is_configured || is_configured && !flags.has_overrides();
        self.retention.all = flags.apply_to(&self.retention.all, is_configured)?;
        let buckets = self.domains.values_mut().flat_map(|domain| domain.buckets.values_mut());
        for own in buckets.filter_map(|bucket| bucket.retention.as_mut()) {
            if own.strategy != Strategy::KeepEverything {
                *own = flags.apply_to(own, true)?;
            }
        }
        Ok(())
    }

    /// Applies the flags to one domain: to its bucket `page`, and to its other buckets whose retention tables do not
    /// keep everything. The sweep also processes queue entries of other domains, by their own configuration.
    fn apply_to_domain(
        &mut self,
        domain: &DomainName,
        flags: RetentionFlags<'_>,
        is_configured: bool,
    ) -> Result<(), String> {
        let (all, all_is_configured) = (self.retention.all.clone(), self.retention.is_configured);
        let none = || super::Domain { hosts: Vec::new(), buckets: BTreeMap::new() };
        let buckets = &mut self.domains.entry(domain.clone()).or_insert_with(none).buckets;
        let of_page = BucketName::page();
        let others = buckets.iter_mut().filter(|(name, _)| **name != of_page);
        for own in others.filter_map(|(_, bucket)| bucket.retention.as_mut()) {
            if own.strategy != Strategy::KeepEverything {
                *own = flags.apply_to(own, true)?;
            }
        }
        let own = &mut buckets.entry(of_page).or_default().retention;
        let is_configured = all_is_configured || own.is_some() || is_configured && !flags.has_overrides();
        *own = Some(flags.apply_to(own.as_ref().unwrap_or(&all), is_configured)?);
        Ok(())
    }

    /// Opens the timeline of retention. `None`: the timeline is in the tables.
    ///
    /// # Errors
    ///
    /// Returns a description of a URL of Redis that cannot be used.
    pub(crate) fn timeline(&self, clock: &Arc<dyn Clock>) -> Result<Option<Arc<dyn Timeline>>, String> {
        self.retention.timeline.open(clock)
    }

    /// The retention settings of the buckets.
    pub(super) fn retention(&self) -> rashomon_pages::Retention {
        let of_bucket = |domain: &DomainName, (bucket, own): (&BucketName, &super::Bucket)| {
            let own = own.retention.as_ref()?;
            Some(((domain.clone(), bucket.clone()), own.policy()))
        };
        rashomon_pages::Retention {
            policy: self.retention.all.policy(),
            buckets: (self.domains.iter())
                .flat_map(|(domain, settings)| {
                    settings.buckets.iter().filter_map(move |bucket| of_bucket(domain, bucket))
                })
                .collect(),
            sample: self.retention.sample.0,
            domain_rate: self.retention.domain_rate,
            ..rashomon_pages::Retention::default()
        }
    }
}
