//! What stands already when retention is turned on, or set to free more.

use std::time::Duration;

use rashomon_buckets::{Policy, schemas};
use rashomon_clock::Clock;

use crate::{
    retention::{DAY, HOUR, policy, retaining, settings},
    support::{World, on_every_store, page},
};

on_every_store![
    what_stands_goes_when_it_is_turned_on,
    what_stands_and_is_not_due_yet_goes_when_it_is,
    a_shorter_grace_frees_what_a_longer_one_kept,
    what_was_written_while_it_was_off_goes_after_it_is_on_again,
    a_longer_grace_keeps_what_was_noted_for_a_shorter_one,
    a_dry_run_says_what_goes,
    what_was_replaced_while_it_was_off_goes_when_its_new_time_is_over,
    what_came_again_stays_where_the_policy_came_to_keep_it,
    what_the_policy_came_to_keep_goes_when_it_is_none_of_the_newest_any_more,
    a_longer_grace_delays_nothing_that_it_frees,
    what_was_due_goes_though_its_notes_have_expired,
];

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("wikitext", "text")];

async fn what_stands_goes_when_it_is_turned_on(world: World) {
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
    let world = retaining(world, policy()).await;
    assert_eq!(world.sweep().await.renders, 0, "nobody noted it");
    // Cut off after some of it, and begun again.
    let begun = world.buckets.walk(&first_page.domain, &first_page.bucket).await.unwrap();
    assert!(begun.pages > 0 && !begun.finished);
    let world = world.reopened().await;
    // By one whose clock is behind.
    world.clock.set(world.clock.now().saturating_sub(Duration::from_secs(3)));
    assert_eq!(begun.pages + world.walk(&first_page).await, 450);
    assert_eq!(world.walk(&first_page).await, 0, "once");
    world.pass(HOUR);
    assert_eq!(world.sweep().await.renders, 5);
    world.assert_stored(first[0].tid, "html", false).await;
    world.assert_stored(first[1].tid, "html", true).await;
    world.assert_whole().await;
}

async fn what_stands_and_is_not_due_yet_goes_when_it_is(world: World) {
    let page = page("Main_Page");
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(HOUR);
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY / 2);
    let world = retaining(world, policy()).await;
    world.walk(&page).await;
    world.pass(DAY / 2);
    world.sweep().await;
    world.assert_stored(first.tid, "html", true).await;
    world.pass(policy().slack);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
}

async fn a_shorter_grace_frees_what_a_longer_one_kept(world: World) {
    let (world, page) = (retaining(world, Policy { grace: 30 * DAY, ..policy() }).await, page("Main_Page"));
    world.walk(&page).await;
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(5 * DAY);
    let world = retaining(world, policy()).await;
    world.sweep().await;
    world.assert_stored(first.tid, "html", true).await;
    assert_eq!(world.walk(&page).await, 1);
    world.pass(HOUR);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
}

async fn what_was_written_while_it_was_off_goes_after_it_is_on_again(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.walk(&page).await;
    world.pass(HOUR);
    let world = world.under(rashomon_buckets::Settings::default()).await;
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(5 * DAY);
    let world = world.under(settings(policy())).await;
    assert_eq!(world.walk(&page).await, 1);
    world.pass(HOUR);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
}

async fn what_was_replaced_while_it_was_off_goes_when_its_new_time_is_over(world: World) {
    let page = page("Main_Page");
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    let second = world.put_revision(&page, 2, HTML).await.unwrap();
    world.put_revision(&page, 3, HTML).await.unwrap();
    world.pass(5 * DAY);
    world.rewrite(&page, first.tid, "html", "mended").await.unwrap();
    world.pass(12 * HOUR);
    world.rewrite(&page, second.tid, "wikitext", "mended").await.unwrap();
    let world = retaining(world, policy()).await;
    world.walk(&page).await;
    world.pass(HOUR);
    world.sweep().await;
    world.assert_stored(first.tid, "html", true).await;
    world.assert_stored(second.tid, "html", false).await;
    world.pass(DAY + policy().slack - 13 * HOUR);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
    assert_eq!(world.rows(&schemas::REVISION_CONTENT).await.len(), 2, "those of 2 and 3");
    world.pass(13 * HOUR);
    world.sweep().await;
    assert_eq!(world.rows(&schemas::REVISION_CONTENT).await.len(), 1, "that of 3");
}

async fn a_longer_grace_keeps_what_was_noted_for_a_shorter_one(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    let world = retaining(world, Policy { grace: 3 * DAY, ..policy() }).await;
    world.pass(2 * DAY);
    world.sweep().await;
    world.assert_stored(first.tid, "html", true).await;
    world.pass(DAY + policy().slack);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
}

async fn a_dry_run_says_what_goes(world: World) {
    let page = page("Main_Page");
    for number in 1..=4 {
        world.put_revision(&page, number, HTML).await.unwrap();
        world.put_render(&page, number, &[("html", "<b>")]).await.unwrap();
    }
    world.pass(5 * DAY);
    world.put_revision(&page, 5, HTML).await.unwrap();
    let world = retaining(world, policy()).await;
    let dry = async || world.buckets.dry_run(&page.domain, &page.bucket, &mut |_| {}).await.unwrap();
    let said = dry().await;
    // Revision 4 was superseded just now.
    assert_eq!((said.pages, said.pages_culled), (1, 1));
    assert_eq!((said.renders, said.renders_culled, said.revisions_culled), (9, 7, 3));
    assert_eq!((said.bytes, said.bytes_culled), (9 * 3 + 5 * 4, 7 * 3 + 3 * 4));
    world.walk(&page).await;
    world.pass(HOUR);
    let swept = world.sweep().await;
    assert_eq!((swept.renders, swept.bytes), (said.renders_culled, said.bytes_culled));
    let then = dry().await;
    assert_eq!((then.renders, then.renders_culled, then.bytes_culled), (2, 0, 0));
    assert_eq!(then.bytes, said.bytes - said.bytes_culled);
}

/// Revision 30 comes after it and its like were culled, and then the policy keeps it.
async fn what_came_again_stays_where_the_policy_came_to_keep_it(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    for number in [10, 20, 40, 50] {
        world.put_revision(&page, number, HTML).await.unwrap();
    }
    world.pass(2 * DAY);
    world.sweep().await;
    let late = world.put_revision(&page, 30, HTML).await.unwrap();
    let later = world.put_revision(&page, 1000, HTML).await.unwrap();
    let lowest = world.put_revision(&page, 60, HTML).await.unwrap();
    let world =
        retaining(world, Policy { min_keep: std::num::NonZeroU32::new(5).unwrap(), ..policy() }).await;
    // The newest five are 1000, 60, 50, 40 and 30.
    world.put_revision(&page, 5, HTML).await.unwrap();
    world.pass(3 * DAY);
    world.sweep().await;
    for written in [late, later, lowest] {
        world.assert_stored(written.tid, "html", true).await;
    }
    world.assert_whole().await;
}

/// Revision 30 comes below what has been culled, and is one of the newest four until 45 comes.
async fn what_the_policy_came_to_keep_goes_when_it_is_none_of_the_newest_any_more(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    for number in [10, 20, 35, 50] {
        world.put_revision(&page, number, HTML).await.unwrap();
    }
    world.pass(2 * DAY);
    world.sweep().await;
    let late = world.put_revision(&page, 30, HTML).await.unwrap();
    let world =
        retaining(world, Policy { min_keep: std::num::NonZeroU32::new(4).unwrap(), ..policy() }).await;
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

/// What was noted as due by a shorter grace is due by a longer one too, if it was superseded for as long.
async fn a_longer_grace_delays_nothing_that_it_frees(world: World) {
    let page = page("Main_Page");
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(10 * DAY);
    let world = retaining(world, Policy { grace: HOUR, ..policy() }).await;
    assert_eq!(world.walk(&page).await, 1);
    let world = retaining(world, policy()).await;
    assert_eq!(world.walk(&page).await, 0);
    world.pass(Duration::from_secs(20));
    assert_eq!(world.sweep().await.renders, 1);
    world.assert_stored(first.tid, "html", false).await;
}

/// Where nobody sweeps for as long as notes stand, they are made again.
async fn what_was_due_goes_though_its_notes_have_expired(world: World) {
    let (world, page) = (retaining(world, policy()).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.walk(&page).await;
    world.sweep().await;
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.clock.advance(policy().index_ttl + 2 * DAY);
    let world = world.reopened().await;
    let sweep = world.sweep().await;
    assert!(sweep.lapsed && sweep.renders == 0, "{sweep:?}");
    assert_eq!(world.walk(&page).await, 1);
    world.pass(Duration::from_secs(20));
    let sweep = world.sweep().await;
    assert!(!sweep.lapsed && sweep.renders == 1, "{sweep:?}");
    world.assert_stored(first.tid, "html", false).await;
}
