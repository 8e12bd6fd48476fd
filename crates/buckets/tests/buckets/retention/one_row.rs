//! Option A of table-per-query: what becomes of the one row a property in which the latest lies, when it is superseded
//! by something that copies nothing, and when it is replaced.

use std::sync::Arc;

use rashomon_buckets::{Current, Error, Fill, NewRevision, Page, Parent, Policy, Strategy, Written, schemas};
use rashomon_clock::{Clock, ManualClock};
use rashomon_tables::{Call, Fault, Faulty, Gate, Memory, Plan};
use tokio::task::JoinHandle;

use crate::{
    retention::{DAY, HOUR, SECOND, by, policy, retaining, settings},
    support::{AnyStore, Cluster, START, World, at, name, on_every_store, page, rev, stands_on_cassandra},
};

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

const ONE_ROW: Strategy = Strategy::TablePerQuery(Current::OneRow, Fill::CopyOnUpdate);

on_every_store![
    what_an_import_superseded_stays_for_a_grace,
    what_an_import_superseded_goes_as_a_whole,
    what_an_import_superseded_and_was_replaced_stays_for_a_grace,
];

/// R2 and R4 of what lies in the row of the latest when an import supersedes it: the next write takes its place there.
async fn what_an_import_superseded_stays_for_a_grace(world: World) {
    let (world, page) = (retaining(world, by(ONE_ROW)).await, page("Main_Page"));
    let with_meta = [HTML, &[("meta", "{}")]].concat();
    let first = world.put_revision(&page, 1, &with_meta).await.unwrap();
    // Its copies expire.
    world.pass(10 * DAY);
    world.sweep().await;
    let imported = world.history(&page, 5, at(5), b"text 5").await;
    world.buckets.import(&page, vec![imported]).await.unwrap();
    world.pass(HOUR);
    world.put_revision(&page, 6, HTML).await.unwrap();
    world.pass(DAY - HOUR - SECOND);
    world.sweep().await;
    for (property, body) in &with_meta {
        assert!(!world.places(first.tid, property).await.is_empty() || *property == "wikitext");
        assert_eq!(world.read(&page, first.tid, property).await, body.as_bytes(), "{property}");
    }
    world.assert_whole().await;
    // The reads copied it.
    world.pass(3 * DAY);
    world.sweep().await;
    for property in ["html", "data-parsoid", "meta"] {
        world.assert_somewhere(first.tid, property, false).await;
    }
    assert_eq!(world.read_latest(&page, "html").await, b"<p>");
    world.assert_whole().await;
}

/// R6 of the same, where the sweep has not come in its time: a write takes the place of some of it, and so of all.
async fn what_an_import_superseded_goes_as_a_whole(world: World) {
    for (after, goes) in [(DAY - SECOND, false), (DAY + HOUR, true)] {
        let world = retaining(world.reopened().await, by(ONE_ROW)).await;
        let page = page(&format!("Page after {after:?}"));
        let first = world.put_revision(&page, 1, &[HTML, &[("meta", "{}")]].concat()).await.unwrap();
        world.pass(10 * DAY);
        let imported = world.history(&page, 5, at(5), b"text 5").await;
        world.buckets.import(&page, vec![imported]).await.unwrap();
        world.pass(after);
        world.put_revision(&page, 6, HTML).await.unwrap();
        for property in ["html", "data-parsoid", "meta"] {
            world.assert_somewhere(first.tid, property, !goes).await;
        }
    }
}

/// R6 of what is replaced then: it gets its time again, as a whole.
async fn what_an_import_superseded_and_was_replaced_stays_for_a_grace(world: World) {
    let (world, page) = (retaining(world, by(ONE_ROW)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(10 * DAY);
    let imported = world.history(&page, 5, at(5), b"text 5").await;
    world.buckets.import(&page, vec![imported]).await.unwrap();
    world.pass(20 * HOUR);
    world.rewrite(&page, first.tid, "html", "mended").await.unwrap();
    world.put_revision(&page, 6, HTML).await.unwrap();
    world.pass(DAY - SECOND);
    world.sweep().await;
    assert_eq!(world.read(&page, first.tid, "html").await, b"mended");
    assert_eq!(world.read(&page, first.tid, "data-parsoid").await, b"{}");
    world.assert_whole().await;
}

/// R2 of what was cut off before its rows were set, and superseded by an import before the sweep finished it.
#[tokio::test]
async fn what_was_not_set_and_an_import_superseded_stays_for_a_grace() {
    let plan = Plan::empty().on(Call::Swap, 4, Fault::Before);
    let (world, _) = World::with(|store| Faulty::new(store, plan), settings(by(ONE_ROW))).await;
    let page = page("Main_Page");
    world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap_err();
    let second = world.buckets.latest_render(&page).await.unwrap().tid;
    world.pass(20 * HOUR);
    let imported = world.history(&page, 5, at(5), b"text 5").await;
    world.buckets.import(&page, vec![imported]).await.unwrap();
    world.pass(DAY - SECOND);
    world.sweep().await;
    for (property, body) in HTML {
        assert_eq!(world.read(&page, second, property).await, body.as_bytes());
    }
}

/// A replacement of the latest that is cut off has happened or has not: it is read so by whoever asks, before and
/// after its copies expire, and the index says the same.
#[tokio::test]
async fn a_replacement_that_was_cut_off_has_happened_or_has_not() {
    let (mut failed, mut happened) = (0, 0);
    for (call, fault) in [Call::Write, Call::Swap]
        .into_iter()
        .flat_map(|call| [Fault::Before, Fault::After].into_iter().map(move |fault| (call, fault)))
    {
        for number in 1..=6 {
            let (world, faulty) =
                World::with(|store| Faulty::new(store, Plan::empty()), settings(by(ONE_ROW))).await;
            let page = page("Main_Page");
            let first = world.put_revision(&page, 1, HTML).await.unwrap();
            world.pass(HOUR);
            faulty.set_plan(Plan::empty().on(call, number, fault.clone()));
            let result = world.rewrite(&page, first.tid, "html", "mended").await;
            faulty.set_plan(Plan::empty());
            failed += u32::from(result.is_err());
            let read = world.read(&page, first.tid, "html").await;
            assert!(read == b"mended" || (result.is_err() && read == b"<p>"));
            happened += u32::from(result.is_err() && read == b"mended");
            assert_eq!(world.read_latest(&page, "html").await, read, "{call:?} {number}");
            // Before the sweep, and after it.
            for _ in 0..2 {
                world.pass(2 * DAY);
                assert_eq!(world.read(&page, first.tid, "html").await, read, "{call:?} {number}");
                assert_eq!(world.read_latest(&page, "html").await, read, "{call:?} {number}");
                assert_eq!(world.read_latest(&page, "data-parsoid").await, b"{}");
                world.assert_whole().await;
                world.sweep().await;
            }
        }
    }
    // On a cluster it is looked at what became of it: it is taken back, or has not failed.
    assert!(failed > 3 && (happened > 0 || stands_on_cassandra()), "{failed} {happened}");
}

/// What is replaced lies where any strategy has it, until the next write, and is copied from there.
#[tokio::test]
async fn what_was_replaced_is_superseded_as_what_was_not() {
    let (world, page) = (retaining(World::in_memory().await, by(ONE_ROW)).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(10 * DAY);
    world.rewrite(&page, first.tid, "html", "mended").await.unwrap();
    assert_eq!(world.places(first.tid, "html").await, ["render_content"]);
    assert_eq!(world.places(first.tid, "data-parsoid").await, ["render_content"]);
    world.put_revision(&page, 2, HTML).await.unwrap();
    for property in ["html", "data-parsoid"] {
        assert_eq!(world.places(first.tid, property).await, ["historical", "by_rev"]);
    }
    assert_eq!(world.rows(&schemas::CURRENT).await.len(), HTML.len());
    world.pass(DAY - SECOND);
    assert_eq!(world.read(&page, first.tid, "html").await, b"mended");
    world.pass(4 * DAY);
    world.sweep().await;
    world.assert_somewhere(first.tid, "html", false).await;
    world.assert_whole().await;
}

/// By a clock that is ahead the copies have expired, so that they are not replaced with what they are copies of. By
/// another they stand, and are not what is read.
#[tokio::test]
async fn what_is_replaced_as_its_copies_expire_is_read_as_it_is() {
    for current in [Current::OneRow, Current::WideRow] {
        for fill in [Fill::CopyOnUpdate, Fill::WriteThrough] {
            let strategy = by(Strategy::TablePerQuery(current, fill));
            let (world, page) = (retaining(World::in_memory().await, strategy).await, page("Main_Page"));
            let first = world.put_revision(&page, 1, HTML).await.unwrap();
            world.pass(DAY + policy().slack - SECOND);
            let now = world.clock.now();
            world.clock.set(now.saturating_add(policy().skew));
            world.rewrite(&page, first.tid, "html", "mended").await.unwrap();
            world.rewrite(&page, first.tid, "wikitext", "mended").await.unwrap();
            world.clock.set(now);
            assert_eq!(world.read(&page, first.tid, "html").await, b"mended", "{current:?} {fill:?}");
            assert_eq!(world.read(&page, first.tid, "wikitext").await, b"mended");
        }
    }
}

/// What a revision has, and its writer was cut off before he had set, is read of the render that came after his: from
/// the copies of his, and for good once the sweep has set it.
#[tokio::test]
async fn what_was_not_set_is_read_of_the_next_render() {
    for swap in 1..=HTML.len() as u64 {
        let plan = Plan::empty().on(Call::Swap, swap, Fault::Before);
        let (world, _) = World::with(|store| Faulty::new(store, plan.clone()), settings(by(ONE_ROW))).await;
        let page = page("Main_Page");
        world.put_revision(&page, 1, HTML).await.unwrap_err();
        let next = world.put_render(&page, 1, &[("html", "next"), ("data-parsoid", "{}")]).await.unwrap();
        for _ in 0..2 {
            assert_eq!(world.read_latest(&page, "wikitext").await, b"text", "{swap}");
            assert_eq!(world.read(&page, next.tid, "wikitext").await, b"text", "{swap}");
            assert_eq!(world.read_latest(&page, "html").await, b"next", "{swap}");
            world.pass(DAY + HOUR);
            world.sweep().await;
            world.pass(2 * DAY);
        }
        world.assert_whole().await;
    }
}

/// R6 on a cluster, of a write whose rows were set by half: where its batch had its bodies too, they go with the sweep,
/// as a whole, and not some of them with their copies.
#[tokio::test]
async fn what_was_set_by_half_goes_as_a_whole() {
    let clock = Arc::new(ManualClock::new(START));
    let cluster: AnyStore = Arc::new(Cluster::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>)));
    let store = Arc::new(Faulty::new(cluster, Plan::empty().on(Call::Swap, 3, Fault::Before)));
    let short = Policy { slack: HOUR, ..by(ONE_ROW) };
    let (world, page) = (World::on(store, clock, settings(short), 1).await, page("Main_Page"));
    world.put_revision(&page, 1, HTML).await.unwrap_err();
    let first = world.buckets.latest_render(&page).await.unwrap().tid;
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY + HOUR);
    assert_eq!(world.places(first, "html").await, ["render_content"]);
    assert_eq!(world.places(first, "data-parsoid").await, ["render_content"]);
    world.sweep().await;
    world.assert_somewhere(first, "html", false).await;
    world.assert_somewhere(first, "data-parsoid", false).await;
    world.assert_whole().await;
}

/// R6 on a cluster, of what a clock ahead set: that was later than the import counts as stored that superseded it, and than
/// what is culled is deleted.
#[tokio::test]
async fn what_a_clock_ahead_set_and_an_import_superseded_goes() {
    let clock = Arc::new(ManualClock::new(START));
    let cluster = Cluster::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let policy = by(ONE_ROW);
    let world = World::on(Arc::new(cluster), clock, settings(policy.clone()), 1).await;
    let page = page("Main_Page");
    world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(HOUR);
    let now = world.clock.now();
    world.clock.set(now.saturating_add(policy.skew));
    // What is new of a revision is written as of earlier, and then set.
    let second = world.put_render(&page, 1, &[("html", "<b>"), ("slot-notes", "n")]).await.unwrap();
    world.clock.set(now);
    let imported = world.history(&page, 5, at(5), b"text 5").await;
    world.buckets.import(&page, vec![imported]).await.unwrap();
    world.put_revision(&page, 6, &[HTML, &[("slot-notes", "m")]].concat()).await.unwrap();
    // As soon as it falls due.
    world.pass(policy.grace + policy.skew * 2);
    for _ in 0..10 {
        world.pass(SECOND);
        world.sweep().await;
    }
    world.pass(10 * DAY);
    world.sweep().await;
    for property in ["html", "data-parsoid", "slot-notes"] {
        assert!(world.places(second.tid, property).await.is_empty(), "{property}");
    }
    world.assert_whole().await;
}

/// One process of a cluster has written a revision on the condition that 8 is the latest, and stops before it gives the
/// page back, until the gate is opened. Gives another process, and the write.
async fn written_and_not_given_back(
    page: &Page,
    strategy: Strategy,
    number: i64,
) -> (World, Gate, JoinHandle<Result<Written, Error>>) {
    let clock = Arc::new(ManualClock::new(START));
    let cluster = Cluster::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let store = Arc::new(Faulty::new(Arc::new(cluster) as AnyStore, Plan::empty()));
    let dying = World::on(Arc::clone(&store) as AnyStore, clock, settings(by(strategy)), 1).await;
    let other = dying.reopened().await;
    dying.put_revision(page, 8, HTML).await.unwrap();
    dying.pass(HOUR);
    let gate = Gate::new();
    store.set_plan(Plan::empty().on(Call::Write, 1, Fault::PauseAfter(gate.clone())));
    let if_latest = Some(Parent::Revision(rev(8)));
    let new = NewRevision { if_latest, ..dying.new_revision(page, number, HTML).await };
    let write = tokio::spawn({
        let page = page.clone();
        async move { dying.buckets.put_revision(&page, new).await }
    });
    gate.reached().await;
    store.set_plan(Plan::empty());
    (other, gate, write)
}

/// A write on a condition had happened, bodies that lie elsewhere and all, and its process died before it could say so:
/// whoever finds that does not take back what somebody may have read.
#[tokio::test]
async fn what_was_written_whole_stands_though_its_process_died() {
    for current in [Current::OneRow, Current::WideRow] {
        let page = page("Main_Page");
        // The bodies of a lower revision lie among the copies.
        let strategy = Strategy::TablePerQuery(current, Fill::CopyOnUpdate);
        let (other, gate, write) = written_and_not_given_back(&page, strategy, 3).await;
        let written = other.buckets.newest_with(&page, rev(3), &name("html")).await.unwrap();
        other.pass(60 * SECOND);
        other.rewrite(&page, written, "html", "mended").await.unwrap();
        assert_eq!(other.read(&page, written, "html").await, b"mended", "{current:?}");
        gate.open();
        write.await.unwrap().unwrap_err();
        assert_eq!(other.read(&page, written, "html").await, b"mended", "{current:?}");
        other.assert_whole().await;
    }
}

/// Nor if others have superseded it since, and have deleted what they had copied of it.
#[tokio::test]
async fn what_was_written_whole_and_superseded_stands_though_its_process_died() {
    let per_query = |current| Strategy::TablePerQuery(current, Fill::CopyOnUpdate);
    for strategy in
        [Strategy::AppTtl, Strategy::TwoTable, per_query(Current::OneRow), per_query(Current::WideRow)]
    {
        let page = page("Main_Page");
        let (other, gate, write) = written_and_not_given_back(&page, strategy, 9).await;
        other.pass(SECOND);
        let last = other.put_revision(&page, 10, HTML).await.unwrap();
        let written = other.buckets.newest_with(&page, rev(9), &name("html")).await.unwrap();
        if strategy == Strategy::AppTtl {
            // It is the sweep that deletes.
            other.pass(2 * DAY);
            other.sweep().await;
        }
        other.pass(60 * SECOND);
        other.rewrite(&page, last.tid, "html", "mended").await.unwrap();
        gate.open();
        write.await.unwrap().unwrap_err();
        let kept = (strategy != Strategy::AppTtl).then(|| b"<p>".to_vec());
        assert_eq!(other.read_if_kept(&page, written, "html").await, kept, "{strategy:?}");
        let listed = other.buckets.newest_render(&page, rev(9)).await;
        assert_eq!(listed.unwrap().tid, written, "{strategy:?}");
        other.assert_whole().await;
    }
}
