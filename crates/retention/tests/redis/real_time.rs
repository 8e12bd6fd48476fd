//! Tests that a page that is never written again is culled in time, in real time.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use rashomon_clock::{Clock, SystemClock, Timestamp};
use rashomon_pages::{Policy, Timeline};
use rashomon_tables_sqlite::{Options, SqliteStore};

use crate::{Redis, buckets::Wiki, page, timeline};

const GRACE: Duration = Duration::from_secs(2);

/// The greatest difference between the wall clock and the monotonic clock that is not a clock jump.
const SKEW: Duration = Duration::from_millis(300);

const SLACK: Duration = Duration::from_secs(2);

/// How long the test waits, including the pauses of a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_never_written_again_is_culled_in_time_with_the_timeline_in_the_tables() {
    assert_culled_in_time(Arc::new(SystemClock::new()), None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_never_written_again_is_culled_in_time_with_the_timeline_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let clock = Arc::new(SystemClock::new());
    assert_culled_in_time(clock.clone(), Some(timeline(&redis, clock))).await;
}

async fn assert_culled_in_time(clock: Arc<dyn Clock>, timeline: Option<Arc<dyn Timeline>>) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path(), Arc::clone(&clock), Options::default()).unwrap();
    let policy =
        Policy { grace: GRACE, slack: SLACK, skew: SKEW, delete_probability: 0.0, ..Policy::default() };
    let wiki = Wiki::new(Arc::new(store), Arc::clone(&clock), policy, timeline).await;
    let page = page("Main_Page");
    let first = wiki.put(&page, 1).await;
    // The first render was superseded between these two times.
    let superseded_after = clock.now();
    let second = wiki.put(&page, 2).await;
    let superseded_before = clock.now();

    let mut kept_at = Timestamp::MIN;
    let gone_at = loop {
        // `kept_at` is when the last sweep that left the render began, apart from sweeps that paused. The end of the
        // sweep must not be used: on a busy machine, it may be much later.
        let began = clock.now();
        let sweep = wiki.buckets.maintenance().sweep(NonZeroUsize::new(100).unwrap()).await.unwrap();
        if !wiki.is_stored(&page, first).await {
            break clock.now();
        }
        // The machine may halt between the reads of its two clocks. If it halts for longer than `SKEW`, the
        // sweep sees a clock jump, and pauses.
        if !sweep.paused {
            kept_at = began;
        }
        assert!(
            began.since(superseded_before) < TEST_TIMEOUT,
            "the superseded render is still stored after {TEST_TIMEOUT:?}"
        );
        tokio::time::sleep(SWEEP_INTERVAL).await;
    };
    let age_when_gone = gone_at.since(superseded_after);
    assert!(age_when_gone >= GRACE, "the superseded render was deleted after {age_when_gone:?}");
    assert!(
        kept_at.since(superseded_before) < GRACE + SLACK,
        "the superseded render was still stored after {:?}",
        kept_at.since(superseded_before)
    );
    assert!(wiki.is_stored(&page, second).await, "the latest render was deleted");
}
