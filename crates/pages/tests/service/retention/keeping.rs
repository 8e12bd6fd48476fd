//! A superseded value that was read stays readable for a ttl (R3).

use rashomon_clock::Clock;
use rashomon_pages::{Policy, schemas};

use crate::{
    retention::{DAY, HOUR, SECOND, policy, with_retention},
    support::{World, noise, on_every_store, page},
};

on_every_store![
    read_value_stays_for_the_ttl,
    read_keeps_the_whole_render,
    repeated_reads_make_one_copy_per_ttl,
    read_does_not_rewrite_the_content_tables,
    large_bodies_are_kept_after_a_read,
    read_of_the_latest_makes_no_copy,
    read_copy_survives_a_restart,
    property_of_the_revision_is_readable_by_the_tid_of_a_culled_render,
    rewritten_render_is_readable_after_properties_of_its_revision_are_culled,
    property_added_later_is_kept_after_a_read,
    read_value_stays_for_the_ttl_of_its_read_after_the_ttl_is_shortened,
    property_added_after_a_cull_is_readable,
    rewrite_replaces_the_read_copy_too,
    read_copy_lasts_long_enough_for_a_clock_ahead,
    read_copy_replaced_by_a_clock_ahead_is_extended_with_its_render,
    read_copy_made_by_a_clock_ahead_is_extended_by_a_correct_one,
    property_written_again_after_a_cull_is_culled_and_not_reported_as_lost,
    property_of_the_revision_is_extended_with_a_read_copy,
];

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

/// A page whose first render was superseded at once. The grace of this render ends in a second.
async fn almost_eligible(world: World) -> (World, rashomon_pages::Page, rashomon_pages::Tid) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY - SECOND);
    (world, page, first.tid)
}

async fn read_value_stays_for_the_ttl(world: World) {
    let (world, page, tid) = almost_eligible(world).await;
    assert_eq!(world.read(&page, tid, "html").await, b"<p>");
    world.pass(HOUR);
    world.sweep().await;
    world.assert_stored(tid, "html", false).await;
    world.pass(DAY - HOUR - SECOND);
    assert_eq!(world.read(&page, tid, "html").await, b"<p>");
    // The value was read again, so its ttl starts again.
    world.pass(DAY - SECOND);
    assert_eq!(world.read_if_kept(&page, tid, "html").await.as_deref(), Some(&b"<p>"[..]));
    world.pass(3 * DAY);
    assert_eq!(world.read_if_kept(&page, tid, "html").await, None);
    world.assert_consistent().await;
}

async fn read_keeps_the_whole_render(world: World) {
    let (world, page, tid) = almost_eligible(world).await;
    world.read(&page, tid, "html").await;
    world.pass(HOUR);
    world.sweep().await;
    world.pass(DAY - HOUR - SECOND);
    assert_eq!(world.read(&page, tid, "data-parsoid").await, b"{}");
    assert_eq!(world.read(&page, tid, "wikitext").await, b"text");
}

async fn repeated_reads_make_one_copy_per_ttl(world: World) {
    let (world, page, tid) = almost_eligible(world).await;
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
    assert_eq!(second.len(), 1, "the whole render is copied at once");
}

async fn read_does_not_rewrite_the_content_tables(world: World) {
    let (world, page, tid) = almost_eligible(world).await;
    let before = world.rows(&schemas::RENDER_CONTENT).await;
    world.read(&page, tid, "html").await;
    assert_eq!(world.rows(&schemas::RENDER_CONTENT).await, before);
}

async fn large_bodies_are_kept_after_a_read(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let (large, middling) = (noise(1, 2_500_000), noise(2, 900_000));
    let bodies = [("html", &large), ("meta", &middling), ("data-parsoid", &middling), ("wikitext", &large)];
    let first = world.put_revision(&page, 1, &bodies).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY - SECOND);
    world.read(&page, first.tid, "meta").await;
    world.pass(2 * HOUR);
    world.sweep().await;
    world.pass(2 * HOUR);
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    for (property, body) in bodies {
        assert_eq!(world.read(&page, first.tid, property).await, *body, "{property}");
    }
    world.assert_consistent().await;
    world.pass(3 * DAY);
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None);
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 0);
}

async fn read_of_the_latest_makes_no_copy(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(DAY);
    world.read(&page, first.tid, "html").await;
    world.read_latest(&page, "html").await;
    assert!(world.rows(&schemas::HISTORICAL).await.is_empty());
}

async fn read_copy_survives_a_restart(world: World) {
    let long = Policy { grace: 3 * DAY, ..policy() };
    let (world, page) = (with_retention(world, long).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.read(&page, first.tid, "html").await;
    assert!(world.rows(&schemas::HISTORICAL).await.is_empty(), "the grace lasts longer than the ttl");
    world.pass(5 * DAY / 2);
    world.read(&page, first.tid, "html").await;
    let world = world.reopened().await;
    world.pass(DAY - SECOND);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
    assert_eq!(world.read(&page, first.tid, "html").await, b"<p>");
}

async fn property_of_the_revision_is_readable_by_the_tid_of_a_culled_render(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
    assert_eq!(world.read(&page, first.tid, "wikitext").await, b"text");
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None);
}

async fn rewritten_render_is_readable_after_properties_of_its_revision_are_culled(world: World) {
    let (world, page, tid) = almost_eligible(world).await;
    world.rewrite(&page, tid, "html", "mended").await.unwrap();
    world.pass(HOUR);
    world.sweep().await;
    assert_eq!(world.read(&page, tid, "html").await, b"mended");
    assert_eq!(world.read_if_kept(&page, tid, "wikitext").await, None);
}

async fn property_added_later_is_kept_after_a_read(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
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

/// The render is copied again, with a shorter ttl, since another property was added to its revision.
async fn read_value_stays_for_the_ttl_of_its_read_after_the_ttl_is_shortened(world: World) {
    let (world, page, tid) = almost_eligible(world).await;
    world.read(&page, tid, "html").await;
    world.put_render(&page, 1, &[("html", "<b>"), ("slot-notes", "notes")]).await.unwrap();
    let world = with_retention(world, Policy { ttl: HOUR, ..policy() }).await;
    assert_eq!(world.read(&page, tid, "slot-notes").await, b"notes");
    world.pass(DAY - SECOND);
    world.sweep().await;
    world.assert_stored(tid, "html", false).await;
    assert_eq!(world.read_if_kept(&page, tid, "html").await.as_deref(), Some(&b"<p>"[..]));
}

async fn property_added_after_a_cull_is_readable(world: World) {
    let (world, page, _) = almost_eligible(world).await;
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
    world.assert_consistent().await;
}

async fn rewrite_replaces_the_read_copy_too(world: World) {
    let (world, page, tid) = almost_eligible(world).await;
    world.read(&page, tid, "html").await;
    world.rewrite(&page, tid, "html", "mended").await.unwrap();
    world.pass(DAY + policy().slack);
    world.sweep().await;
    world.assert_stored(tid, "html", false).await;
    assert_eq!(world.read(&page, tid, "html").await, b"mended");
}

async fn property_written_again_after_a_cull_is_culled_and_not_reported_as_lost(world: World) {
    let (world, page, _) = almost_eligible(world).await;
    world.pass(DAY);
    world.sweep().await;
    let again = world.put_render(&page, 1, &[("html", "<b>"), ("data-parsoid", "[]"), ("wikitext", "text")]);
    let again = again.await.unwrap();
    assert_eq!(world.read(&page, again.tid, "html").await, b"<b>");
    assert_eq!(world.read_if_kept(&page, again.tid, "wikitext").await, None);
    world.assert_consistent().await;
}

async fn read_copy_lasts_long_enough_for_a_clock_ahead(world: World) {
    let (world, page, tid) = almost_eligible(world).await;
    world.read(&page, tid, "html").await;
    let skew = policy().skew;
    world.pass(DAY - skew + SECOND);
    world.read(&page, tid, "html").await;
    // By the clock of another process, the copy may expire sooner, by as much as clocks may differ.
    let needed = rashomon_clock::Clock::now(&*world.clock).saturating_add(DAY).saturating_add(skew);
    let copies = world.rows(&schemas::HISTORICAL).await;
    assert!(copies.iter().all(|row| row.expires_at >= Some(needed)), "{copies:?}");
}

/// The clock of one of two processes is ahead. That process rewrites a property, and then a read of the other
/// process extends the copies.
async fn read_copy_replaced_by_a_clock_ahead_is_extended_with_its_render(world: World) {
    let two_days = Policy { ttl: 2 * DAY, ..policy() };
    let (world, page) = (with_retention(world, two_days).await, page("Main_Page"));
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

/// The copy lasts for a ttl after the last read, although the clock was corrected before that read.
async fn read_copy_made_by_a_clock_ahead_is_extended_by_a_correct_one(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    let now = world.clock.now();
    world.clock.set(now.saturating_add(policy().skew));
    world.read(&page, first.tid, "html").await;
    world.clock.set(now);
    // The existing copies do not last long enough for the longer ttl.
    let world = with_retention(world, Policy { ttl: 10 * DAY, ..policy() }).await;
    world.read(&page, first.tid, "html").await;
    world.pass(10 * DAY - SECOND);
    world.sweep().await;
    for (property, body) in HTML {
        assert_eq!(world.read(&page, first.tid, property).await, body.as_bytes(), "{property}");
    }
}

/// One property of the revision was culled, and is read from its copy. Another property, which was added
/// later, is about to be culled.
async fn property_of_the_revision_is_extended_with_a_read_copy(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
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
