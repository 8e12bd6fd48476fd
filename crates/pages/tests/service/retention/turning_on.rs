//! Values that are already stored when retention is turned on, or when its policy is changed.

use std::time::Duration;

use rashomon_clock::Clock;
use rashomon_pages::{Policy, schemas};

use crate::{
    retention::{DAY, HOUR, policy, settings, with_retention},
    support::{World, on_every_store, page},
};

on_every_store![
    stored_values_are_culled_when_retention_is_turned_on,
    stored_values_are_culled_when_they_become_eligible,
    shorter_grace_culls_values_kept_by_a_longer_one,
    value_superseded_while_retention_was_off_is_culled_later,
    longer_grace_keeps_values_enqueued_under_a_shorter_one,
    dry_run_reports_what_a_sweep_culls,
    value_rewritten_while_retention_was_off_is_culled_after_a_new_grace,
    late_revision_stays_if_a_new_policy_keeps_it,
    value_kept_by_a_new_policy_is_culled_when_no_longer_among_the_newest,
    longer_grace_does_not_delay_eligible_values,
    overdue_value_is_culled_though_its_queue_entry_expired,
];

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("wikitext", "text")];

async fn stored_values_are_culled_when_retention_is_turned_on(world: World) {
    let first_page = page("Page_0");
    let mut first = Vec::new();
    for number in 0..450 {
        let page = page(&format!("Page_{number}"));
        first.push(world.put_revision(&page, 1, HTML).await.unwrap());
        if number % 90 == 0 {
            world.put_revision(&page, 2, HTML).await.unwrap();
        }
    }
    world.pass(5 * DAY);
    let world = with_retention(world, policy()).await;
    assert_eq!(world.sweep().await.renders, 0, "the values have no queue entries");
    // The rescan is interrupted by a restart, and continued.
    let begun = world.buckets.maintenance().rescan(&first_page.domain, &first_page.bucket).await.unwrap();
    assert!(begun.pages > 0 && !begun.finished);
    let world = world.reopened().await;
    // The clock is behind after the restart.
    world.clock.set(world.clock.now().saturating_sub(Duration::from_secs(3)));
    assert_eq!(begun.pages + world.rescan(&first_page).await, 450);
    assert_eq!(world.rescan(&first_page).await, 0, "there is one rescan only");
    world.pass(HOUR);
    assert_eq!(world.sweep().await.renders, 5);
    world.assert_stored(first[0].tid, "html", false).await;
    world.assert_stored(first[1].tid, "html", true).await;
    world.assert_consistent().await;
}

async fn stored_values_are_culled_when_they_become_eligible(world: World) {
    let page = page("Main_Page");
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(HOUR);
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY / 2);
    let world = with_retention(world, policy()).await;
    world.rescan(&page).await;
    world.pass(DAY / 2);
    world.sweep().await;
    world.assert_stored(first.tid, "html", true).await;
    world.pass(policy().slack);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
}

async fn shorter_grace_culls_values_kept_by_a_longer_one(world: World) {
    let (world, page) =
        (with_retention(world, Policy { grace: 30 * DAY, ..policy() }).await, page("Main_Page"));
    world.rescan(&page).await;
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(5 * DAY);
    let world = with_retention(world, policy()).await;
    world.sweep().await;
    world.assert_stored(first.tid, "html", true).await;
    assert_eq!(world.rescan(&page).await, 1);
    world.pass(HOUR);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
}

async fn value_superseded_while_retention_was_off_is_culled_later(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.rescan(&page).await;
    world.pass(HOUR);
    let world = world.restarted_with(rashomon_pages::Settings::default()).await;
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(5 * DAY);
    let world = world.restarted_with(settings(policy())).await;
    assert_eq!(world.rescan(&page).await, 1);
    world.pass(HOUR);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
}

async fn value_rewritten_while_retention_was_off_is_culled_after_a_new_grace(world: World) {
    let page = page("Main_Page");
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    let second = world.put_revision(&page, 2, HTML).await.unwrap();
    world.put_revision(&page, 3, HTML).await.unwrap();
    world.pass(5 * DAY);
    world.rewrite(&page, first.tid, "html", "mended").await.unwrap();
    world.pass(12 * HOUR);
    world.rewrite(&page, second.tid, "wikitext", "mended").await.unwrap();
    let world = with_retention(world, policy()).await;
    world.rescan(&page).await;
    world.pass(HOUR);
    world.sweep().await;
    world.assert_stored(first.tid, "html", true).await;
    world.assert_stored(second.tid, "html", false).await;
    world.pass(DAY + policy().slack - 13 * HOUR);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
    assert_eq!(world.rows(&schemas::REVISION_CONTENT).await.len(), 2, "the wikitext of 2 and 3");
    world.pass(13 * HOUR);
    world.sweep().await;
    assert_eq!(world.rows(&schemas::REVISION_CONTENT).await.len(), 1, "the wikitext of 3");
}

async fn longer_grace_keeps_values_enqueued_under_a_shorter_one(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    let world = with_retention(world, Policy { grace: 3 * DAY, ..policy() }).await;
    world.pass(2 * DAY);
    world.sweep().await;
    world.assert_stored(first.tid, "html", true).await;
    world.pass(DAY + policy().slack);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
}

async fn dry_run_reports_what_a_sweep_culls(world: World) {
    let page = page("Main_Page");
    for number in 1..=4 {
        world.put_revision(&page, number, HTML).await.unwrap();
        world.put_render(&page, number, &[("html", "<b>")]).await.unwrap();
    }
    world.pass(5 * DAY);
    world.put_revision(&page, 5, HTML).await.unwrap();
    let world = with_retention(world, policy()).await;
    let dry =
        async || world.buckets.maintenance().dry_run(&page.domain, &page.bucket, &mut |_| {}).await.unwrap();
    let reported = dry().await;
    // Revision 4 was superseded just now.
    assert_eq!((reported.pages, reported.pages_culled), (1, 1));
    assert_eq!((reported.renders, reported.renders_culled, reported.revisions_culled), (9, 7, 3));
    assert_eq!((reported.bytes, reported.bytes_culled), (9 * 3 + 5 * 4, 7 * 3 + 3 * 4));
    world.rescan(&page).await;
    world.pass(HOUR);
    let swept = world.sweep().await;
    assert_eq!((swept.renders, swept.bytes), (reported.renders_culled, reported.bytes_culled));
    let then = dry().await;
    assert_eq!((then.renders, then.renders_culled, then.bytes_culled), (2, 0, 0));
    assert_eq!(then.bytes, reported.bytes - reported.bytes_culled);
}

/// Revision 30 arrives after revisions around it were culled. Then a new policy keeps it.
async fn late_revision_stays_if_a_new_policy_keeps_it(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    for number in [10, 20, 40, 50] {
        world.put_revision(&page, number, HTML).await.unwrap();
    }
    world.pass(2 * DAY);
    world.sweep().await;
    let late = world.put_revision(&page, 30, HTML).await.unwrap();
    let later = world.put_revision(&page, 1000, HTML).await.unwrap();
    let lowest = world.put_revision(&page, 60, HTML).await.unwrap();
    let world =
        with_retention(world, Policy { min_keep: std::num::NonZeroU32::new(5).unwrap(), ..policy() }).await;
    // The newest five are 1000, 60, 50, 40 and 30.
    world.put_revision(&page, 5, HTML).await.unwrap();
    world.pass(3 * DAY);
    world.sweep().await;
    for written in [late, later, lowest] {
        world.assert_stored(written.tid, "html", true).await;
    }
    world.assert_consistent().await;
}

/// Revision 30 arrives below the cull watermark. It is one of the newest four until revision 45 arrives.
async fn value_kept_by_a_new_policy_is_culled_when_no_longer_among_the_newest(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    for number in [10, 20, 35, 50] {
        world.put_revision(&page, number, HTML).await.unwrap();
    }
    world.pass(2 * DAY);
    world.sweep().await;
    let late = world.put_revision(&page, 30, HTML).await.unwrap();
    let world =
        with_retention(world, Policy { min_keep: std::num::NonZeroU32::new(4).unwrap(), ..policy() }).await;
    world.put_revision(&page, 40, HTML).await.unwrap();
    world.pass(3 * DAY);
    world.sweep().await;
    world.assert_stored(late.tid, "html", true).await;
    world.put_revision(&page, 45, HTML).await.unwrap();
    world.pass(DAY);
    world.sweep().await;
    world.assert_stored(late.tid, "html", true).await;
    world.pass(policy().slack);
    world.sweep().await;
    world.assert_stored(late.tid, "html", false).await;
}

/// A value that was enqueued under a shorter grace is eligible under a longer one too, if it was superseded
/// long enough ago.
async fn longer_grace_does_not_delay_eligible_values(world: World) {
    let page = page("Main_Page");
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(10 * DAY);
    let world = with_retention(world, Policy { grace: HOUR, ..policy() }).await;
    assert_eq!(world.rescan(&page).await, 1);
    let world = with_retention(world, policy()).await;
    assert_eq!(world.rescan(&page).await, 0);
    world.pass(Duration::from_secs(20));
    assert_eq!(world.sweep().await.renders, 1);
    world.assert_stored(first.tid, "html", false).await;
}

/// If no sweep runs for so long that queue entries expire, a rescan enqueues them again.
async fn overdue_value_is_culled_though_its_queue_entry_expired(world: World) {
    let (world, page) = (with_retention(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.rescan(&page).await;
    world.sweep().await;
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.clock.advance(policy().index_ttl + 2 * DAY);
    let world = world.reopened().await;
    let sweep = world.sweep().await;
    assert!(sweep.lapsed && sweep.renders == 0, "{sweep:?}");
    assert_eq!(world.rescan(&page).await, 1);
    world.pass(Duration::from_secs(20));
    let sweep = world.sweep().await;
    assert!(!sweep.lapsed && sweep.renders == 1, "{sweep:?}");
    world.assert_stored(first.tid, "html", false).await;
}
