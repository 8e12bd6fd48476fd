//! The promises of every timeline, tested in memory and in Redis.

use std::sync::Arc;

use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_pages::{BucketName, MemoryTimeline, Page, Revision, Superseded, Tid, Timeline};
use rashomon_retention::redis_timeline::MAX_ENTRIES_PER_PAGE;

use crate::{DAY, Redis, START, at, clock, page, page_of, rev, timeline};

/// Defines a test of each function for each timeline.
macro_rules! on_every_timeline {
    ($($test:ident),+ $(,)?) => {
        mod in_memory {
            $(#[tokio::test]
            async fn $test() {
                let clock = super::clock();
                super::$test(super::memory(&clock), clock).await;
            })+
        }

        mod in_redis {
            $(#[tokio::test]
            async fn $test() {
                let Some(redis) = super::Redis::start() else { return };
                let clock = super::clock();
                super::$test(super::timeline(&redis, clock.clone()), clock).await;
            })+
        }
    };
}

on_every_timeline![
    lookup_returns_newest_entry_at_or_before_the_time,
    the_order_of_arrival_does_not_matter,
    pages_are_separate,
    revisions_are_separate,
    an_entry_expires_at_its_time,
    oldest_entries_are_dropped_beyond_the_limit,
    adding_an_entry_twice_keeps_one,
    first_and_last_moment_can_be_added,
];

fn memory(clock: &Arc<ManualClock>) -> Arc<dyn Timeline> {
    Arc::new(MemoryTimeline::new(Arc::clone(clock) as Arc<dyn Clock>, 100))
}

fn tid(number: u64) -> Tid {
    Tid::new(START, number)
}

/// Returns the time 30 days after [`START`].
fn later() -> Timestamp {
    START.saturating_add(30 * DAY)
}

async fn add_revision(timeline: &dyn Timeline, page: &Page, at: Timestamp, number: i64) {
    timeline.add(page, at, Superseded::Revision(rev(number)), later()).await.unwrap();
}

async fn add_render(timeline: &dyn Timeline, page: &Page, at: Timestamp, number: i64, tid: Tid) {
    timeline.add(page, at, Superseded::Render(rev(number), tid), later()).await.unwrap();
}

async fn revision(timeline: &dyn Timeline, page: &Page, at: Timestamp) -> Option<i64> {
    timeline.revision(page, at).await.unwrap().map(Revision::get)
}

async fn lookup_returns_newest_entry_at_or_before_the_time(timeline: Arc<dyn Timeline>, _: Arc<ManualClock>) {
    let (timeline, page) = (&*timeline, page("Main_Page"));
    assert_eq!(revision(timeline, &page, later()).await, None, "there is no entry yet");
    assert_eq!(timeline.render(&page, rev(1), later()).await.unwrap(), None);
    for (time, number) in [(10, 9), (20, 10), (30, 4096)] {
        add_revision(timeline, &page, at(time), number).await;
        add_render(timeline, &page, at(time), 7, tid(number as u64)).await;
    }
    for (time, expected) in [(9, None), (10, Some(9)), (19, Some(9)), (20, Some(10)), (31, Some(4096))] {
        assert_eq!(revision(timeline, &page, at(time)).await, expected, "at {time}");
        let render = timeline.render(&page, rev(7), at(time)).await.unwrap();
        assert_eq!(render, expected.map(|number| tid(number as u64)), "at {time}");
    }
    let micro = Timestamp::from_micros(at(20).as_micros() - 1);
    assert_eq!(revision(timeline, &page, micro).await, Some(9), "a microsecond before");
}

async fn the_order_of_arrival_does_not_matter(timeline: Arc<dyn Timeline>, _: Arc<ManualClock>) {
    let (timeline, page) = (&*timeline, page("Main_Page"));
    for (time, number) in [(30, 2), (10, 5), (20, 1)] {
        add_revision(timeline, &page, at(time), number).await;
    }
    assert_eq!(revision(timeline, &page, at(15)).await, Some(5));
    assert_eq!(revision(timeline, &page, at(25)).await, Some(1));
    assert_eq!(revision(timeline, &page, at(35)).await, Some(2));
}

async fn pages_are_separate(timeline: Arc<dyn Timeline>, _: Arc<ManualClock>) {
    let talk = Page { bucket: BucketName::new("talk").unwrap(), ..page("A") };
    let pages =
        [page("A"), page("A:B"), page("B"), page_of("dewiki", "A"), page("a"), page("Ä*?[A]\"'"), talk];
    for (number, page) in (1..).zip(&pages) {
        add_revision(&*timeline, page, at(10), number).await;
        add_render(&*timeline, page, at(10), 1, tid(number as u64)).await;
    }
    for (number, page) in (1..).zip(&pages) {
        assert_eq!(revision(&*timeline, page, at(10)).await, Some(number), "{page:?}");
        let render = timeline.render(page, rev(1), at(10)).await.unwrap();
        assert_eq!(render, Some(tid(number as u64)), "{page:?}");
    }
}

async fn revisions_are_separate(timeline: Arc<dyn Timeline>, _: Arc<ManualClock>) {
    let (timeline, page) = (&*timeline, page("Main_Page"));
    add_render(timeline, &page, at(10), 15, tid(15)).await;
    add_render(timeline, &page, at(10), 17, tid(17)).await;
    assert_eq!(timeline.render(&page, rev(15), at(20)).await.unwrap(), Some(tid(15)));
    assert_eq!(timeline.render(&page, rev(17), at(20)).await.unwrap(), Some(tid(17)));
    for other in [1, 14, 16, 18, i64::MAX] {
        assert_eq!(timeline.render(&page, rev(other), at(20)).await.unwrap(), None, "{other}");
    }
    assert_eq!(revision(timeline, &page, at(20)).await, None, "renders are no revisions");
}

async fn an_entry_expires_at_its_time(timeline: Arc<dyn Timeline>, clock: Arc<ManualClock>) {
    let page = page("Main_Page");
    let what = Superseded::Render(rev(1), tid(1));
    timeline.add(&page, at(0), Superseded::Revision(rev(1)), at(60)).await.unwrap();
    timeline.add(&page, at(0), what, at(60)).await.unwrap();
    clock.set(Timestamp::from_micros(at(60).as_micros() - 1));
    assert_eq!(revision(&*timeline, &page, at(1)).await, Some(1));
    assert_eq!(timeline.render(&page, rev(1), at(1)).await.unwrap(), Some(tid(1)));
    clock.set(at(60));
    assert_eq!(revision(&*timeline, &page, at(1)).await, None);
    assert_eq!(timeline.render(&page, rev(1), at(1)).await.unwrap(), None);
    // An entry that has expired already is not added.
    timeline.add(&page, at(50), Superseded::Revision(rev(2)), at(60)).await.unwrap();
    assert_eq!(revision(&*timeline, &page, at(60)).await, None);
}

async fn oldest_entries_are_dropped_beyond_the_limit(timeline: Arc<dyn Timeline>, _: Arc<ManualClock>) {
    let (timeline, page) = (&*timeline, page("Main_Page"));
    for number in 1..=MAX_ENTRIES_PER_PAGE as u64 + 2 {
        add_revision(timeline, &page, at(number), number as i64).await;
        add_render(timeline, &page, at(number), 1, tid(number)).await;
    }
    assert_eq!(revision(timeline, &page, at(2)).await, None);
    assert_eq!(revision(timeline, &page, at(3)).await, Some(3));
    assert_eq!(revision(timeline, &page, at(1000)).await, Some(MAX_ENTRIES_PER_PAGE as i64 + 2));
    assert_eq!(timeline.render(&page, rev(1), at(2)).await.unwrap(), None);
    assert_eq!(timeline.render(&page, rev(1), at(3)).await.unwrap(), Some(tid(3)));
}

async fn adding_an_entry_twice_keeps_one(timeline: Arc<dyn Timeline>, _: Arc<ManualClock>) {
    let (timeline, page) = (&*timeline, page("Main_Page"));
    add_revision(timeline, &page, at(1), 1).await;
    for _ in 0..=MAX_ENTRIES_PER_PAGE {
        add_revision(timeline, &page, at(10), 2).await;
    }
    assert_eq!(revision(timeline, &page, at(10)).await, Some(2));
    assert_eq!(revision(timeline, &page, at(9)).await, Some(1), "the entry is counted once");
}

async fn first_and_last_moment_can_be_added(timeline: Arc<dyn Timeline>, _: Arc<ManualClock>) {
    let page = page("Main_Page");
    for (at, number) in [(Timestamp::MIN, 1), (Timestamp::EPOCH, 2), (Timestamp::MAX, i64::MAX)] {
        let what = Superseded::Revision(rev(number));
        timeline.add(&page, at, what, Timestamp::MAX).await.unwrap();
    }
    let before_1970 = Timestamp::from_micros(-1);
    assert_eq!(revision(&*timeline, &page, before_1970).await, Some(1));
    assert_eq!(revision(&*timeline, &page, Timestamp::EPOCH).await, Some(2));
    assert_eq!(revision(&*timeline, &page, Timestamp::MAX).await, Some(i64::MAX));
}
