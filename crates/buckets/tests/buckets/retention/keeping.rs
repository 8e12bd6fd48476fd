//! What somebody read stays until he may come back (R3).

use rashomon_buckets::{Policy, schemas};
use rashomon_clock::Clock;

use crate::{
    retention::{DAY, HOUR, SECOND, policy, retaining},
    support::{World, noise, on_every_store, page},
};

on_every_store![
    what_was_read_stays_for_its_time,
    the_whole_render_stays,
    what_is_read_again_and_again_is_copied_once_a_ttl,
    a_read_rewrites_nothing_that_is_current,
    large_bodies_stay_too,
    a_read_of_the_latest_copies_nothing,
    what_is_kept_outlives_a_restart,
    what_belongs_to_the_revision_is_read_by_the_tid_of_a_render_that_went,
    a_replaced_render_is_read_after_its_revision_lost_its_own,
    what_a_revision_got_later_is_kept_too,
    what_was_read_stays_for_its_time_though_less_is_promised_by_now,
    what_a_revision_got_after_its_own_went_can_be_read,
    a_copy_is_replaced_with_what_it_is_a_copy_of,
    a_copy_stands_long_enough_for_a_clock_that_is_ahead,
    a_copy_that_a_clock_ahead_replaced_is_kept_longer_with_its_render,
    a_copy_that_a_clock_ahead_made_is_kept_longer_by_one_that_is_not,
    what_came_again_after_its_revision_went_is_gone_and_not_damaged,
    what_its_revision_has_still_is_kept_with_a_copy_that_is_kept_longer,
];

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

/// A page whose first render was superseded at once, a grace ago but for a second.
async fn almost_due(world: World) -> (World, rashomon_buckets::Page, rashomon_buckets::Tid) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY - SECOND);
    (world, page, first.tid)
}

async fn what_was_read_stays_for_its_time(world: World) {
    let (world, page, tid) = almost_due(world).await;
    assert_eq!(world.read(&page, tid, "html").await, b"<p>");
    world.pass(HOUR);
    world.sweep().await;
    world.assert_stored(tid, "html", false).await;
    world.pass(DAY - HOUR - SECOND);
    assert_eq!(world.read(&page, tid, "html").await, b"<p>");
    // Read again, so that its time begins again.
    world.pass(DAY - SECOND);
    assert_eq!(world.read_if_kept(&page, tid, "html").await.as_deref(), Some(&b"<p>"[..]));
    world.pass(3 * DAY);
    assert_eq!(world.read_if_kept(&page, tid, "html").await, None);
    world.assert_whole().await;
}

async fn the_whole_render_stays(world: World) {
    let (world, page, tid) = almost_due(world).await;
    world.read(&page, tid, "html").await;
    world.pass(HOUR);
    world.sweep().await;
    world.pass(DAY - HOUR - SECOND);
    assert_eq!(world.read(&page, tid, "data-parsoid").await, b"{}");
    assert_eq!(world.read(&page, tid, "wikitext").await, b"text");
}

async fn what_is_read_again_and_again_is_copied_once_a_ttl(world: World) {
    let (world, page, tid) = almost_due(world).await;
    let copies = async || {
        let mut copies: Vec<_> =
            world.rows(&schemas::HISTORICAL).await.iter().map(|row| row.written_at).collect();
        copies.dedup();
        copies
    };
    world.read(&page, tid, "html").await;
    let first = copies().await;
    for _ in 0..11 {
        world.pass(2 * HOUR);
        world.read(&page, tid, "html").await;
        world.read(&page, tid, "data-parsoid").await;
        world.sweep().await;
    }
    assert_eq!(copies().await, first);
    world.pass(3 * HOUR);
    world.read(&page, tid, "html").await;
    let second = copies().await;
    assert_ne!(second, first);
    assert_eq!(second.len(), 1, "the whole render at once");
}

async fn a_read_rewrites_nothing_that_is_current(world: World) {
    let (world, page, tid) = almost_due(world).await;
    let before = world.rows(&schemas::RENDER_CONTENT).await;
    world.read(&page, tid, "html").await;
    assert_eq!(world.rows(&schemas::RENDER_CONTENT).await, before);
}

async fn large_bodies_stay_too(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let (large, middling) = (noise(1, 2_500_000), noise(2, 900_000));
    let bodies = [("html", &large), ("meta", &middling), ("data-parsoid", &middling), ("wikitext", &large)];
    let first = world.put_revision(&page, 1, &bodies).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY - SECOND);
    world.read(&page, first.tid, "meta").await;
    world.pass(2 * HOUR);
    world.sweep().await;
    world.pass(2 * HOUR);
    world.buckets.collect_orphans(HOUR).await.unwrap();
    for (property, body) in bodies {
        assert_eq!(world.read(&page, first.tid, property).await, *body, "{property}");
    }
    world.assert_whole().await;
    world.pass(3 * DAY);
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None);
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 0);
}

async fn a_read_of_the_latest_copies_nothing(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(DAY);
    world.read(&page, first.tid, "html").await;
    world.read_latest(&page, "html").await;
    assert!(world.rows(&schemas::HISTORICAL).await.is_empty());
}

async fn what_is_kept_outlives_a_restart(world: World) {
    let long = Policy { grace: 3 * DAY, ..policy() };
    let (world, page) = (retaining(world, long).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.read(&page, first.tid, "html").await;
    assert!(world.rows(&schemas::HISTORICAL).await.is_empty(), "it stays for longer than the ttl anyway");
    world.pass(5 * DAY / 2);
    world.read(&page, first.tid, "html").await;
    let world = world.reopened().await;
    world.pass(DAY - SECOND);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
    assert_eq!(world.read(&page, first.tid, "html").await, b"<p>");
}

async fn what_belongs_to_the_revision_is_read_by_the_tid_of_a_render_that_went(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
    assert_eq!(world.read(&page, first.tid, "wikitext").await, b"text");
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None);
}

async fn a_replaced_render_is_read_after_its_revision_lost_its_own(world: World) {
    let (world, page, tid) = almost_due(world).await;
    world.rewrite(&page, tid, "html", "mended").await.unwrap();
    world.pass(HOUR);
    world.sweep().await;
    assert_eq!(world.read(&page, tid, "html").await, b"mended");
    assert_eq!(world.read_if_kept(&page, tid, "wikitext").await, None);
}

async fn what_a_revision_got_later_is_kept_too(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, &[("html", "<p>")]).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(HOUR);
    world.read(&page, first.tid, "html").await;
    world.put_render(&page, 1, &[("html", "<b>"), ("wikitext", "text")]).await.unwrap();
    world.pass(22 * HOUR);
    world.read(&page, first.tid, "wikitext").await;
    world.pass(10 * HOUR);
    world.sweep().await;
    assert_eq!(world.read_if_kept(&page, first.tid, "wikitext").await.as_deref(), Some(&b"text"[..]));
}

/// It is copied once more, by a shorter time to live, for what its revision has got since.
async fn what_was_read_stays_for_its_time_though_less_is_promised_by_now(world: World) {
    let (world, page, tid) = almost_due(world).await;
    world.read(&page, tid, "html").await;
    world.put_render(&page, 1, &[("html", "<b>"), ("slot-notes", "notes")]).await.unwrap();
    let world = retaining(world, Policy { ttl: HOUR, ..policy() }).await;
    assert_eq!(world.read(&page, tid, "slot-notes").await, b"notes");
    world.pass(DAY - SECOND);
    world.sweep().await;
    world.assert_stored(tid, "html", false).await;
    assert_eq!(world.read_if_kept(&page, tid, "html").await.as_deref(), Some(&b"<p>"[..]));
}

async fn what_a_revision_got_after_its_own_went_can_be_read(world: World) {
    let (world, page, _) = almost_due(world).await;
    world.pass(DAY);
    world.sweep().await;
    let bodies = [("html", "<b>"), ("data-parsoid", "[]"), ("slot-notes", "notes")];
    let again = world.put_render(&page, 1, &bodies).await.unwrap();
    assert_eq!(world.read(&page, again.tid, "slot-notes").await, b"notes");
    world.pass(DAY - SECOND);
    assert_eq!(world.read(&page, again.tid, "slot-notes").await, b"notes");
    world.pass(DAY - SECOND);
    world.sweep().await;
    assert_eq!(world.read(&page, again.tid, "slot-notes").await, b"notes");
    world.assert_whole().await;
}

async fn a_copy_is_replaced_with_what_it_is_a_copy_of(world: World) {
    let (world, page, tid) = almost_due(world).await;
    world.read(&page, tid, "html").await;
    world.rewrite(&page, tid, "html", "mended").await.unwrap();
    world.pass(DAY + policy().slack);
    world.sweep().await;
    world.assert_stored(tid, "html", false).await;
    assert_eq!(world.read(&page, tid, "html").await, b"mended");
}

async fn what_came_again_after_its_revision_went_is_gone_and_not_damaged(world: World) {
    let (world, page, _) = almost_due(world).await;
    world.pass(DAY);
    world.sweep().await;
    let again = world.put_render(&page, 1, &[("html", "<b>"), ("data-parsoid", "[]"), ("wikitext", "text")]);
    let again = again.await.unwrap();
    assert_eq!(world.read(&page, again.tid, "html").await, b"<b>");
    assert_eq!(world.read_if_kept(&page, again.tid, "wikitext").await, None);
    world.assert_whole().await;
}

async fn a_copy_stands_long_enough_for_a_clock_that_is_ahead(world: World) {
    let (world, page, tid) = almost_due(world).await;
    world.read(&page, tid, "html").await;
    let skew = policy().skew;
    world.pass(DAY - skew + SECOND);
    world.read(&page, tid, "html").await;
    // To another process the same time may come sooner, by as much as clocks differ.
    let needed = rashomon_clock::Clock::now(&*world.clock).saturating_add(DAY).saturating_add(skew);
    let copies = world.rows(&schemas::HISTORICAL).await;
    assert!(copies.iter().all(|row| row.expires_at >= Some(needed)), "{copies:?}");
}

/// Two processes, of which one has a clock that is ahead: it replaces a property, and then the other one's reader
/// has the copies kept for longer.
async fn a_copy_that_a_clock_ahead_replaced_is_kept_longer_with_its_render(world: World) {
    let two_days = Policy { ttl: 2 * DAY, ..policy() };
    let (world, page) = (retaining(world, two_days).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    assert_eq!(world.read(&page, first.tid, "html").await, b"<p>");
    world.pass(2 * DAY + HOUR);
    let now = world.clock.now();
    world.clock.set(now.saturating_add(policy().skew));
    world.rewrite(&page, first.tid, "data-parsoid", "[]").await.unwrap();
    world.clock.set(now);
    assert_eq!(world.read(&page, first.tid, "html").await, b"<p>");
    world.pass(2 * DAY - SECOND);
    world.sweep().await;
    world.assert_stored(first.tid, "data-parsoid", false).await;
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await.as_deref(), Some(&b"<p>"[..]));
    assert_eq!(world.read_if_kept(&page, first.tid, "data-parsoid").await.as_deref(), Some(&b"[]"[..]));
}

/// It stands for as long as whoever read it last may come back, though the clock was set right in between.
async fn a_copy_that_a_clock_ahead_made_is_kept_longer_by_one_that_is_not(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    let now = world.clock.now();
    world.clock.set(now.saturating_add(policy().skew));
    world.read(&page, first.tid, "html").await;
    world.clock.set(now);
    // By another ttl the copies do not stand for long enough.
    let world = retaining(world, Policy { ttl: 10 * DAY, ..policy() }).await;
    world.read(&page, first.tid, "html").await;
    world.pass(10 * DAY - SECOND);
    world.sweep().await;
    for (property, body) in HTML {
        assert_eq!(world.read(&page, first.tid, property).await, body.as_bytes(), "{property}");
    }
}

/// Of what belongs to the revision one has gone, and is read from its copy; the other, which came later, is about to go.
async fn what_its_revision_has_still_is_kept_with_a_copy_that_is_kept_longer(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(23 * HOUR);
    world.read(&page, first.tid, "html").await;
    world.put_render(&page, 1, &[("slot-notes", "late")]).await.unwrap();
    world.pass(7 * HOUR + HOUR / 2);
    world.sweep().await;
    world.pass(17 * HOUR);
    assert_eq!(world.read(&page, first.tid, "wikitext").await, b"text");
    world.pass(DAY - SECOND);
    world.sweep().await;
    assert_eq!(world.read(&page, first.tid, "slot-notes").await, b"late");
}
