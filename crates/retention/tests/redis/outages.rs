//! Tests with a Redis that hangs, is down, is restarted, or contains other data.

use std::{sync::Arc, time::Duration};

use rashomon_clock::{Clock, ManualClock, SystemClock};
use rashomon_pages::{Error, StoreError, Superseded, Timeline};
use rashomon_retention::redis_timeline::{RETRY_PAUSE, RedisTimeline, Settings};

use crate::{DAY, REQUEST_TIMEOUT, Redis, START, at, clock, page, rev, timeline};

/// The maximum number of attempts to add an entry while Redis answers slowly.
const MAX_ATTEMPTS: u32 = 100;

const REV_1: Superseded = Superseded::Revision(rashomon_pages::Revision::MIN);

/// Creates a timeline with the default timeout.
fn timeline_with_default_timeout(redis: &Redis, clock: Arc<dyn Clock>) -> RedisTimeline {
    RedisTimeline::new(Settings::new(redis.url()), clock).unwrap()
}

/// Adds an entry when Redis answers again. On a busy machine this may take longer than the default timeout.
async fn add_when_redis_answers(timeline: &RedisTimeline, clock: &ManualClock) {
    for _ in 0..MAX_ATTEMPTS {
        if timeline.add(&page("A"), START, REV_1, at(3600)).await.is_ok() {
            return;
        }
        clock.advance(RETRY_PAUSE);
    }
    panic!("Redis answers no more");
}

fn is_unavailable(result: Result<(), Error>) -> bool {
    matches!(result, Err(Error::Store(StoreError::Unavailable(_))))
}

#[tokio::test]
async fn hanging_redis_delays_one_write_briefly() {
    let Some(redis) = Redis::start() else { return };
    // Once without a connection, once with an open connection.
    for connected in [false, true] {
        let (time, clock) = (SystemClock::new(), clock());
        let timeline = timeline_with_default_timeout(&redis, clock.clone());
        if connected {
            add_when_redis_answers(&timeline, &clock).await;
        }
        redis.hang();
        let begin = time.monotonic();
        assert!(is_unavailable(timeline.add(&page("A"), START, REV_1, at(3600)).await));
        let first = time.monotonic() - begin;
        assert!(first >= Settings::DEFAULT_TIMEOUT && first < REQUEST_TIMEOUT, "{first:?}");
        let begin = time.monotonic();
        for _ in 0..1000 {
            assert!(is_unavailable(timeline.add(&page("A"), START, REV_1, at(3600)).await));
        }
        let others = time.monotonic() - begin;
        assert!(
            others < REQUEST_TIMEOUT,
            "a thousand writes waited {others:?}, although no requests are sent to Redis"
        );
        redis.resume();
        clock.advance(RETRY_PAUSE);
        add_when_redis_answers(&timeline, &clock).await;
        let patient = self::timeline(&redis, clock);
        assert_eq!(patient.revision(&page("A"), START).await.unwrap(), Some(rev(1)));
    }
}

#[tokio::test]
async fn missing_redis_is_found_again() {
    let Some(mut redis) = Redis::start() else { return };
    let clock = clock();
    let timeline = timeline(&redis, clock.clone());
    timeline.add(&page("A"), START, REV_1, at(60)).await.unwrap();
    redis.kill();
    for _ in 0..3 {
        assert!(is_unavailable(timeline.add(&page("A"), START, REV_1, at(60)).await));
        clock.advance(RETRY_PAUSE);
    }
    let error = timeline.revision(&page("A"), START).await.unwrap_err().to_string();
    assert!(error.contains("the timeline in Redis at 127.0.0.1:"), "{error}");
    assert!(redis.restart());
    clock.advance(RETRY_PAUSE);
    assert_eq!(timeline.revision(&page("A"), START).await.unwrap(), None, "it kept nothing");
    timeline.add(&page("A"), START, REV_1, at(60)).await.unwrap();
    assert_eq!(timeline.revision(&page("A"), START).await.unwrap(), Some(rev(1)));
}

#[tokio::test]
async fn error_answer_keeps_the_connection() {
    let Some(redis) = Redis::start() else { return };
    let timeline = timeline(&redis, clock());
    redis.command("SET rashomon:revisions:enwiki:page:A text");
    assert!(is_unavailable(timeline.add(&page("A"), START, REV_1, at(60)).await));
    // The error answer started no pause, so this request is sent at once.
    timeline.add(&page("B"), START, REV_1, at(60)).await.unwrap();
    redis.command("DEL rashomon:revisions:enwiki:page:A");
    redis.command("ZADD rashomon:revisions:enwiki:page:A 0 0something");
    let error = timeline.revision(&page("A"), START).await.unwrap_err();
    assert!(error.to_string().contains("a database of its own"), "{error}");
}

#[tokio::test]
async fn entries_of_an_unchanged_page_expire_in_redis() {
    let Some(redis) = Redis::start() else { return };
    // The clock of Redis is independent of the clock of the timeline.
    let clock = clock();
    let timeline = timeline(&redis, clock.clone());
    // This time is long enough for both entries to exist at the same time, even on a busy machine.
    let soon = START.saturating_add(Duration::from_secs(5));
    timeline.add(&page("A"), START, REV_1, soon).await.unwrap();
    timeline.add(&page("B"), START, REV_1, START.saturating_add(DAY)).await.unwrap();
    assert_eq!(redis.command("DBSIZE"), ":2");
    for _ in 0..1000 {
        if redis.command("DBSIZE") == ":1" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(redis.command("DBSIZE"), ":1");
    assert_eq!(timeline.revision(&page("A"), START).await.unwrap(), None);
    assert_eq!(timeline.revision(&page("B"), START).await.unwrap(), Some(rev(1)));
}
