//! What is kept, and for how long: `[retention]` for all buckets, and a table of a bucket's own above it.

use std::{collections::BTreeMap, fmt, num::NonZeroU32, ops::Range, str::FromStr, sync::Arc, time::Duration};

use rashomon_buckets::{
    BucketName, Cull, Current, DomainName, Fill, MemoryTimeline, Policy, Timeline, excerpt,
};
use rashomon_clock::Clock;
use rashomon_timeline_redis::RedisTimeline;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use toml::Spanned;

use super::{
    File, Problem,
    given::GivenDomain,
    values::{Span, as_text},
};
use crate::maintenance::LOOK;

/// How superseded values are kept and culled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Strategy {
    /// Everything stays.
    KeepEverything,
    /// What was superseded goes after its time, by our clock.
    AppTtl,
    /// What is superseded is copied into a table whose rows expire.
    TwoTable,
    /// One table for the latest, and two whose rows expire for what is asked for by revision and by tid.
    TablePerQuery,
}

/// Where it is noted when values were superseded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TimelineStore {
    /// In the tables, with the write that did it.
    Table,
    /// In this process.
    Memory,
    /// In Redis.
    Redis(String),
}

/// Pages that a timeline in memory keeps in mind.
const TIMELINE_PAGES: u64 = 100_000;

impl TimelineStore {
    /// What the bucket layer notes it in, beside its tables.
    pub(crate) fn open(&self, clock: &Arc<dyn Clock>) -> Result<Option<Arc<dyn Timeline>>, String> {
        let clock = Arc::clone(clock);
        Ok(match self {
            Self::Table => None,
            Self::Memory => Some(Arc::new(MemoryTimeline::new(clock, TIMELINE_PAGES))),
            Self::Redis(url) => {
                let redis = RedisTimeline::new(rashomon_timeline_redis::Settings::new(url), clock);
                Some(Arc::new(redis.map_err(|error| format!("[retention] timeline: {error}"))?))
            }
        })
    }

    /// What is wrong with it, as a sentence that names the cure.
    pub(super) fn wrong(&self) -> Option<String> {
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
                "'{}' is no place for the timeline; there are table, memory, and Redis, as in \
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

/// What a table of the file says.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenRetention {
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

/// The retention of a bucket as it is in effect.
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

/// The retention of all buckets that have none of their own, and what is one for all.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RetentionSettings {
    #[serde(flatten)]
    pub(crate) all: BucketRetention,
    pub(crate) timeline: TimelineStore,
    pub(crate) sample: Span,
    pub(crate) domain_rate: NonZeroU32,
    /// Whether a table is there that says it: then everything is kept on purpose where it is.
    #[serde(skip)]
    said: bool,
}

/// Who says it makes no difference: what is printed of the defaults is a table that says them.
impl PartialEq for RetentionSettings {
    fn eq(&self, other: &Self) -> bool {
        let Self { all, timeline, sample, domain_rate, said: _ } = self;
        (all, timeline, sample, domain_rate)
            == (&other.all, &other.timeline, &other.sample, &other.domain_rate)
    }
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
        let buckets = rashomon_buckets::Retention::default();
        Self {
            all: BucketRetention::default(),
            timeline: TimelineStore::Table,
            sample: Span(buckets.sample),
            domain_rate: buckets.domain_rate,
            said: false,
        }
    }
}

impl BucketRetention {
    /// What a table says above `self`. A table that says nothing of the strategy turns retention on.
    fn with(&self, given: GivenRetention) -> Self {
        let grace = given.grace.unwrap_or(self.grace);
        // The slack is a quarter of the grace wherever it is not said.
        let slack = given.slack.or_else(|| given.grace.map(|Span(grace)| Span(grace / 4)));
        let slack = slack.unwrap_or(self.slack);
        // What is noted as due is remembered twice as long as it takes to be, wherever it is not said.
        let remembered = Span((grace.0.saturating_add(slack.0)).saturating_mul(2)).max(self.index_ttl);
        let strategy = given.strategy.unwrap_or(Strategy::AppTtl);
        // What is said above of another strategy is nothing to this one.
        let of_above = (strategy == self.strategy).then_some((self.option, self.fill));
        let (option, fill) = of_above.unwrap_or_default();
        Self {
            strategy,
            option: given.option.or(option),
            fill: given.fill.or(fill),
            grace,
            ttl: given.ttl.unwrap_or(self.ttl),
            slack,
            index_ttl: given.index_ttl.unwrap_or(remembered),
            delete_probability: given.delete_probability.unwrap_or(self.delete_probability),
            cull: given.cull.unwrap_or(self.cull),
            min_keep: given.min_keep.unwrap_or(self.min_keep),
            skew: given.skew.unwrap_or(self.skew),
        }
    }

    /// What is wrong with it, as a sentence that names the cure. `early`: by how much rows may be stamped
    /// before their time, where others write to the store too.
    fn wrong(&self, early: Option<Span>) -> Option<String> {
        let Self { grace, ttl, slack, index_ttl, delete_probability, skew, .. } = self;
        if grace.0.is_zero() || ttl.0.is_zero() {
            return Some(
                "grace and ttl are longer than nothing: an editor has to be able to save; leave the table \
                 out to keep everything"
                    .to_owned(),
            );
        }
        if !(0.0..=1.0).contains(delete_probability) {
            return Some(format!("delete_probability is {delete_probability}, and lies between 0 and 1"));
        }
        if slack.0 < MIN_SLACK {
            return Some(format!(
                "slack is {slack}: the sweep needs at least {}, so that it need not run all the time",
                Span(MIN_SLACK)
            ));
        }
        if *skew > *slack {
            return Some(format!("skew is {skew}, more than slack, {slack}: raise slack"));
        }
        if let Some(message) = self.wrong_among_others(early).or_else(|| self.wrong_for_its_strategy()) {
            return Some(message);
        }
        let least = grace.0.saturating_add(slack.0).saturating_add(skew.0);
        (index_ttl.0 < least).then(|| {
            format!(
                "index_ttl is {index_ttl}, and what is noted as due would be forgotten before it is: raise it \
                 to at least {}, grace, slack and skew together",
                Span(least)
            )
        })
    }

    /// A slack that is over before the sweep comes. Among others a write may count as made by `early` later
    /// than it was, and what it superseded as stored by as much later than its row says.
    fn wrong_among_others(&self, early: Option<Span>) -> Option<String> {
        let early = early.filter(|_| self.strategy != Strategy::KeepEverything)?;
        let waits = early.0.saturating_mul(2).saturating_add(self.skew.0);
        // The sweep rests for a quarter of the slack, which is a third of what is left of it.
        let rests = (waits / 3).clamp(*LOOK.start(), *LOOK.end());
        let least = Span(waits.saturating_add(rests));
        (self.slack < least).then(|| {
            format!(
                "slack is {}, and on a cluster what was superseded goes up to {least} after its grace: twice the \
                 skew of the server, {early}, the skew of retention, {}, and {} between two looks of the sweep: \
                 raise slack to that, or lower the skew of the server",
                self.slack,
                self.skew,
                Span(rests)
            )
        })
    }

    /// Settings that its strategy does not have, or cannot keep.
    fn wrong_for_its_strategy(&self) -> Option<String> {
        if self.strategy != Strategy::TablePerQuery {
            return (self.option.is_some() || self.fill.is_some()).then(|| {
                "option and fill are those of another strategy: leave them out, or take strategy = \
                 \"table-per-query\""
                    .to_owned()
            });
        }
        if self.min_keep.get() > 1 {
            return Some(format!(
                "min_keep is {}, and table-per-query keeps the latest revision alone: leave it out, or take \
                 app-ttl or two-table",
                self.min_keep
            ));
        }
        (self.cull == Cull::Renders).then(|| {
            "cull is renders, and table-per-query keeps the latest render alone: leave it out, or take app-ttl \
             or two-table"
                .to_owned()
        })
    }

    /// `None`: everything stays.
    pub(crate) fn policy(&self) -> Option<Policy> {
        let strategy = match self.strategy {
            Strategy::KeepEverything => return None,
            Strategy::AppTtl => rashomon_buckets::Strategy::AppTtl,
            Strategy::TwoTable => rashomon_buckets::Strategy::TwoTable,
            Strategy::TablePerQuery => rashomon_buckets::Strategy::TablePerQuery(
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

/// The least slack.
const MIN_SLACK: Duration = Duration::from_millis(100);

impl RetentionSettings {
    pub(super) fn merge(
        given: Option<Spanned<GivenRetention>>,
        early: Option<Span>,
        file: &File,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let default = Self::default();
        let Some(given) = given else { return default };
        let span = given.span();
        let given = given.into_inner();
        let (timeline, sample, domain_rate) = (given.timeline.clone(), given.sample, given.domain_rate);
        let all = default.all.with(given);
        report(all.wrong(early), span, file, problems);
        Self {
            all,
            timeline: timeline.unwrap_or(default.timeline),
            sample: sample.unwrap_or(default.sample),
            domain_rate: domain_rate.unwrap_or(default.domain_rate),
            said: true,
        }
    }

    /// Those of single buckets, each above that of all.
    pub(super) fn of_buckets(
        &self,
        domain: &GivenDomain,
        early: Option<Span>,
        file: &File,
        problems: &mut Vec<Problem>,
    ) -> BTreeMap<BucketName, BucketRetention> {
        let mut all = BTreeMap::new();
        for (name, bucket) in &domain.buckets {
            let Some(given) = bucket.retention.clone() else { continue };
            let span = given.span();
            let given = given.into_inner();
            if given.timeline.is_some() || given.sample.is_some() || given.domain_rate.is_some() {
                let message =
                    "timeline, sample and domain_rate are one for all buckets: they belong into [retention]";
                problems.push(file.problem(span.clone(), message.to_owned()));
            }
            let retention = self.all.with(given);
            report(retention.wrong(early), span, file, problems);
            all.insert(name.clone(), retention);
        }
        all
    }
}

fn report(wrong: Option<String>, span: Range<usize>, file: &File, problems: &mut Vec<Problem>) {
    problems.extend(wrong.map(|message| file.problem(span, message)));
}

/// What a command that retains says above the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Above<'a> {
    /// Of this domain alone.
    pub(crate) domain: Option<&'a DomainName>,
    pub(crate) grace: Option<Span>,
    pub(crate) min_keep: Option<NonZeroU32>,
    /// What goes by it is gone; else it is looked at only.
    pub(crate) deletes: bool,
}

impl Above<'_> {
    fn says_something(&self) -> bool {
        self.grace.is_some() || self.min_keep.is_some()
    }

    /// It above one table. `said`: a table is there, and what it says is meant.
    fn over(&self, below: &BucketRetention, said: bool) -> Result<BucketRetention, String> {
        let keeps = below.strategy == Strategy::KeepEverything;
        if keeps && said && self.deletes && self.says_something() {
            return Err("the configuration keeps everything (strategy = \"keep-everything\"), and no flag \
                        deletes above that: take that out of the configuration, or see with --dry-run what \
                        would be freed"
                .to_owned());
        }
        // A number of revisions alone is no policy by which something is deleted.
        let turns_on = self.grace.is_some() || !self.deletes && (self.min_keep.is_some() || !said);
        if keeps && !turns_on || !keeps && !self.says_something() {
            return Ok(below.clone());
        }
        let strategy = Some(if keeps { Strategy::AppTtl } else { below.strategy });
        let Self { grace, min_keep, .. } = *self;
        Ok(below.with(GivenRetention { strategy, grace, min_keep, ..GivenRetention::default() }))
    }
}

impl super::Settings {
    fn own_retentions(&self) -> impl Iterator<Item = &BucketRetention> {
        let of_buckets = self.domains.values().flat_map(|domain| domain.buckets.values());
        of_buckets.filter_map(|bucket| bucket.retention.as_ref())
    }

    /// Puts above what was configured what flags say. Says what is wrong with that, which is what is wrong with it
    /// in a file; and nothing is deleted where nobody has said what may go, nor where everything is kept.
    pub(crate) fn retain(&mut self, above: Above<'_>) -> Result<(), String> {
        // Where a table is there for one bucket, that of the others nothing is said is meant, unless flags say it.
        let said = self.retention.said || self.own_retentions().next().is_some();
        if above.deletes && !said && above.grace.is_none() {
            return Err("no policy is configured, so nobody has said what may go: name the configuration of the \
                        store's server with --config FILE, or give --grace TIME; --dry-run says what would be \
                        freed"
                .to_owned());
        }
        match above.domain {
            Some(domain) => self.retain_of(domain, above, said)?,
            None => self.retain_of_all(above, said)?,
        }
        let early = self.store.early(self.skew);
        let wrong = std::iter::once(&self.retention.all)
            .chain(self.own_retentions())
            .find_map(|all| all.wrong(early));
        wrong.map_or(Ok(()), |wrong| {
            let grace = above.grace.map(|grace| format!("--grace {grace}, of which slack is a quarter"));
            let min_keep = above.min_keep.map(|number| format!("--min-keep {number}"));
            let flags: Vec<_> = grace.into_iter().chain(min_keep).collect();
            Err(if flags.is_empty() { wrong } else { format!("{}: {wrong}", flags.join(", and ")) })
        })
    }

    fn retain_of_all(&mut self, above: Above<'_>, said: bool) -> Result<(), String> {
        let said = self.retention.said || said && !above.says_something();
        self.retention.all = above.over(&self.retention.all, said)?;
        let buckets = self.domains.values_mut().flat_map(|domain| domain.buckets.values_mut());
        for own in buckets.filter_map(|bucket| bucket.retention.as_mut()) {
            if own.strategy != Strategy::KeepEverything {
                *own = above.over(own, true)?;
            }
        }
        Ok(())
    }

    /// The sweep works off what is due of others too, which goes by what is configured for them.
    fn retain_of(&mut self, domain: &DomainName, above: Above<'_>, said: bool) -> Result<(), String> {
        let (all, all_said) = (self.retention.all.clone(), self.retention.said);
        let none = || super::Domain { hosts: Vec::new(), buckets: BTreeMap::new() };
        let buckets = &mut self.domains.entry(domain.clone()).or_insert_with(none).buckets;
        let none = || super::Bucket { retention: None, archive: None, generator: None };
        let own = &mut buckets.entry(BucketName::page()).or_insert_with(none).retention;
        let said = all_said || own.is_some() || said && !above.says_something();
        *own = Some(above.over(own.as_ref().unwrap_or(&all), said)?);
        Ok(())
    }

    /// The retention of all buckets, as the bucket layer takes it.
    pub(super) fn retention(&self) -> rashomon_buckets::Retention {
        let of_bucket = |domain: &DomainName, (bucket, own): (&BucketName, &super::Bucket)| {
            let own = own.retention.as_ref()?;
            Some(((domain.clone(), bucket.clone()), own.policy()))
        };
        rashomon_buckets::Retention {
            policy: self.retention.all.policy(),
            buckets: (self.domains.iter())
                .flat_map(|(domain, settings)| {
                    settings.buckets.iter().filter_map(move |bucket| of_bucket(domain, bucket))
                })
                .collect(),
            sample: self.retention.sample.0,
            domain_rate: self.retention.domain_rate,
            ..rashomon_buckets::Retention::default()
        }
    }
}
