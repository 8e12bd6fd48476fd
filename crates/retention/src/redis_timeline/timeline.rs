//! The timeline, its settings, and the commands that it sends to Redis.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rashomon_clock::{Clock, Timestamp};
use rashomon_records::{Page, Result, Revision, Superseded, Tid, excerpt};
use rashomon_tables::Error as StoreError;
use redis::{Client, Pipeline};

use crate::Timeline;
use crate::redis_timeline::{
    connection::Connection,
    entry::{Entry, renders_key, renders_until, revisions_key, revisions_until},
};

/// The maximum number of entries of each kind for one page. Of the entries of revisions, the oldest are dropped
/// first. Of the entries of renders, the entries of the lowest revisions are dropped first.
pub const MAX_ENTRIES_PER_PAGE: usize = 256;

/// The address of Redis, and how long a write waits for Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The URL, `redis://HOST:PORT/DATABASE`. If Redis requires a login, the URL has `USER:PASSWORD@` before the host.
    pub url: String,
    /// The maximum time that Redis may delay a write.
    pub timeout: Duration,
}

impl Settings {
    /// The default timeout. A Redis in the same network answers in a millisecond.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(250);

    /// Creates the settings for Redis at this URL, with the default timeout.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), timeout: Self::DEFAULT_TIMEOUT }
    }
}

/// The reason why settings cannot be used. The error does not repeat the URL, since the URL may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The URL is not a URL of Redis.
    #[error(
        "the URL of the timeline is not a Redis URL ({0}): write redis://HOST:PORT/DATABASE, such as \
         redis://127.0.0.1:6379/0"
    )]
    Url(String),
    /// The timeout is zero.
    #[error("a timeout of zero leaves Redis no time to answer: 250 milliseconds are usual")]
    ZeroTimeout,
}

/// The timeline in Redis.
#[derive(Debug)]
pub struct RedisTimeline {
    connection: Connection,
    clock: Arc<dyn Clock>,
}

impl RedisTimeline {
    /// Creates a timeline in the Redis that the settings name. The timeline connects at its first use, so a server
    /// can start while Redis is down.
    ///
    /// # Errors
    ///
    /// If the settings cannot be used.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> std::result::Result<Self, SettingsError> {
        let Settings { url, timeout } = settings;
        if !url.starts_with("redis://") {
            return Err(SettingsError::Url("it does not begin with redis://".to_owned()));
        }
        if timeout.is_zero() {
            return Err(SettingsError::ZeroTimeout);
        }
        let client = Client::open(url).map_err(|error| SettingsError::Url(error.to_string()))?;
        // The client library accepts a negative number, but Redis would refuse every command.
        if client.get_connection_info().redis_settings().db() < 0 {
            return Err(SettingsError::Url("the number of a database is 0 or higher".to_owned()));
        }
        Ok(Self { connection: Connection::new(client, Arc::clone(&clock), timeout), clock })
    }

    /// Returns the highest member of a set within bounds.
    async fn highest(&self, key: &str, (lower, upper): (String, String)) -> Result<Option<String>> {
        let mut commands = Pipeline::with_capacity(1);
        commands.cmd("ZREVRANGEBYLEX").arg(key).arg(upper).arg(lower).arg("LIMIT").arg(0).arg(1);
        let mut answers: Vec<Vec<String>> = self.connection.ask(&commands).await?;
        Ok(answers.pop().and_then(|mut members| members.pop()))
    }

    /// Returns the superseded value of an entry. Returns `None` if there is no member, or if the entry has expired.
    fn decode_unexpired(
        &self,
        key: &str,
        member: Option<&str>,
        read: fn(&str) -> Option<Entry>,
    ) -> Result<Option<Superseded>> {
        let Some(member) = member else { return Ok(None) };
        let entry = read(member).ok_or_else(|| {
            StoreError::Corrupt(format!(
                "{:?} in {key:?} in Redis is not an entry of a timeline: give the timeline a database of its \
                 own",
                excerpt(member)
            ))
        })?;
        Ok((entry.until > self.clock.now()).then_some(entry.what))
    }
}

#[async_trait]
impl Timeline for RedisTimeline {
    async fn add(&self, page: &Page, at: Timestamp, what: Superseded, until: Timestamp) -> Result<()> {
        let left = until.since(self.clock.now());
        if left.is_zero() {
            return Ok(());
        }
        let key = match what {
            Superseded::Revision(_) => revisions_key(page),
            Superseded::Render(..) => renders_key(page),
        };
        // Redis drops the whole set when the last added entry expires. Redis gets a duration instead of a time,
        // since its clock may differ. The clock of this process decides whether an entry has expired.
        let expires_in = i64::try_from(left.as_millis()).unwrap_or(i64::MAX).saturating_add(1);
        let last_dropped_rank = -i64::try_from(MAX_ENTRIES_PER_PAGE + 1).unwrap_or(i64::MAX);
        let mut commands = Pipeline::with_capacity(3);
        // The commands are atomic, so that no set remains without an expiry.
        commands.atomic();
        commands.zadd(&key, Entry { at, what, until }.to_member(), 0).ignore();
        commands.cmd("ZREMRANGEBYRANK").arg(&key).arg(0).arg(last_dropped_rank).ignore();
        commands.pexpire(&key, expires_in).ignore();
        Ok(self.connection.ask::<()>(&commands).await?)
    }

    async fn revision(&self, page: &Page, at: Timestamp) -> Result<Option<Revision>> {
        let key = revisions_key(page);
        let member = self.highest(&key, revisions_until(at)).await?;
        Ok(match self.decode_unexpired(&key, member.as_deref(), Entry::of_revision)? {
            Some(Superseded::Revision(rev)) => Some(rev),
            _ => None,
        })
    }

    async fn render(&self, page: &Page, rev: Revision, at: Timestamp) -> Result<Option<Tid>> {
        let key = renders_key(page);
        let member = self.highest(&key, renders_until(rev, at)).await?;
        Ok(match self.decode_unexpired(&key, member.as_deref(), Entry::of_render)? {
            Some(Superseded::Render(_, tid)) => Some(tid),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use rashomon_clock::SystemClock;

    use super::*;

    fn timeline(url: &str) -> std::result::Result<RedisTimeline, SettingsError> {
        RedisTimeline::new(Settings::new(url), Arc::new(SystemClock::new()))
    }

    #[test]
    fn unusable_settings_are_refused_with_a_remedy() {
        for url in [
            "",
            "127.0.0.1:6379",
            "http://127.0.0.1/",
            "redis://",
            "redis://127.0.0.1/x",
            "redis://127.0.0.1/-1",
            "unix:///x",
        ] {
            let error = timeline(url).unwrap_err().to_string();
            assert!(error.contains("redis://127.0.0.1:6379/0"), "{url}: {error}");
        }
        let settings = Settings { timeout: Duration::ZERO, ..Settings::new("redis://127.0.0.1") };
        assert_eq!(
            RedisTimeline::new(settings, Arc::new(SystemClock::new())).unwrap_err(),
            SettingsError::ZeroTimeout
        );
    }

    #[test]
    fn password_is_never_shown() {
        let shown = format!("{:?}", timeline("redis://me:secret@127.0.0.1:1/0").unwrap());
        assert!(shown.contains("127.0.0.1") && !shown.contains("secret"), "{shown}");
        let refused = timeline("redis://me:secret@127.0.0.1:1/x").unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("secret"), "{refused}");
    }
}
