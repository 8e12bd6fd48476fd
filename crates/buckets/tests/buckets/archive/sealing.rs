//! What is sealed, and when.

use std::time::Duration;

use rashomon_buckets::{BucketName, DomainName, Sealing, schemas};
use rashomon_clock::Clock as _;
use rashomon_tables::TableStore as _;

use super::{DAY, HOUR, archiving, later};
use crate::support::{World, name, on_every_store, page};

on_every_store! {
    only_what_was_superseded_long_enough_is_sealed,
    what_is_changed_after_it_was_sealed_is_sealed_again,
    a_block_that_no_page_names_is_collected,
    what_is_hardly_worth_it_waits,
    what_was_superseded_a_short_time_ago_waits_however_old_it_is,
    statistics_tell_blocks_from_rows,
}

async fn only_what_was_superseded_long_enough_is_sealed(world: World) {
    let world = archiving(world).await;
    let page = page("Main_Page");
    world.put_revision(&page, 1, &[("wikitext", "one")]).await.unwrap();
    world.pass(30 * DAY);
    assert_eq!(world.seal().await.revisions, 0, "it is the latest, however old");
    world.put_revision(&page, 2, &[("wikitext", "two")]).await.unwrap();
    world.pass(DAY - HOUR);
    assert_eq!(world.seal().await.revisions, 0, "it was superseded a short time ago");
    world.pass(2 * HOUR);
    assert_eq!(world.seal().await.revisions, 1);
    assert_eq!(world.seal().await.revisions, 0);
    // A render of a sealed revision that came since stays for its time.
    world.put_render(&page, 1, &[("html", "<p>one</p>")]).await.unwrap();
    world.pass(HOUR);
    assert_eq!(world.seal().await.revisions, 0);
    world.assert_whole().await;
}

async fn what_is_changed_after_it_was_sealed_is_sealed_again(world: World) {
    let world = archiving(world).await;
    let page = page("Main_Page");
    let tids = world.edit(&page, 1..=4).await;
    world.pass(later());
    world.seal().await;
    world.rewrite(&page, tids[1], "html", "<p>better</p>").await.unwrap();
    world.rewrite(&page, tids[2], "wikitext", "better").await.unwrap();
    world.put_render(&page, 1, &[("html", "<p>again</p>")]).await.unwrap();
    let before = world.all_of(&page).await;
    world.assert_whole().await;
    world.pass(later());
    world.seal().await;
    assert_eq!(world.all_of(&page).await, before);
    world.assert_whole().await;
}

async fn a_block_that_no_page_names_is_collected(world: World) {
    let world = archiving(world).await;
    let page = page("Main_Page");
    world.edit(&page, 1..=4).await;
    world.pass(later());
    world.seal().await;
    let before = world.all_of(&page).await;
    // As if the sealing had been cut off before the page named its block.
    let row = world.rows(&schemas::ARCHIVE_BLOCKS).await.remove(0);
    let mut partition = row.key.partition.clone();
    partition[2] = rashomon_tables::Value::Blob(vec![7; 16].into());
    let mut orphan = rashomon_tables::Batch::new(partition);
    orphan.put(&schemas::ARCHIVE_BLOCKS, row.key.clustering, row.values, row.written_at);
    world.store.write(Vec::new(), orphan).await.unwrap();
    let now = world.clock.now();
    let hour = rashomon_tables::Value::Int(now.as_micros() / HOUR.as_micros() as i64);
    let mut noted = rashomon_tables::Batch::new(vec![hour]);
    let name = rashomon_tables::Value::Blob(vec![7; 16].into());
    let values = ["enwiki", "page", r#"["Main_Page"]"#].map(|text| Some(text.into()));
    let values = values.into_iter().chain([Some(now.into())]).collect();
    noted.put(&schemas::ARCHIVE_NOTES, vec![name], values, now);
    world.store.write(Vec::new(), noted).await.unwrap();

    world.pass(HOUR);
    world.buckets.collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.rows(&schemas::ARCHIVE_BLOCKS).await.len(), 2, "it may be being sealed");
    world.pass(2 * HOUR);
    world.buckets.collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.rows(&schemas::ARCHIVE_BLOCKS).await.len(), 1);
    assert_eq!(world.rows(&schemas::ARCHIVE_NOTES).await.len(), 0);
    assert_eq!(world.reopened().await.all_of(&page).await, before);
}

async fn what_is_hardly_worth_it_waits(world: World) {
    let world = archiving(world).await;
    world.edit(&page("Main_Page"), 1..=5).await;
    world.pass(later());
    let how = Sealing { unless_younger: Some(30 * DAY), rest: Duration::from_micros(1) };
    let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
    let seal = || async { world.buckets.seal(&domain, &bucket, how, &mut |_| {}).await.unwrap().revisions };
    assert_eq!(seal().await, 0);
    world.pass(30 * DAY);
    assert_eq!(seal().await, 4);
    let busy = page("Busy");
    for number in 1..=258 {
        world.put_revision(&busy, number, &[("wikitext", "text")]).await.unwrap();
    }
    world.pass(later());
    assert_eq!(seal().await, 257, "many at once are worth it");
}

/// A page that is edited once in two months has what was superseded since sealed together.
async fn what_was_superseded_a_short_time_ago_waits_however_old_it_is(world: World) {
    let world = archiving(world).await;
    let page = page("Main_Page");
    let how = Sealing { unless_younger: Some(100 * DAY), rest: Duration::ZERO };
    let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
    let seal = || async { world.buckets.seal(&domain, &bucket, how, &mut |_| {}).await.unwrap().revisions };
    world.edit(&page, 1..=1).await;
    for number in 2..=3 {
        world.pass(60 * DAY);
        world.edit(&page, number..=number).await;
        world.pass(later());
        assert_eq!(seal().await, 0, "{number} came two days ago");
    }
    // The first was superseded 64 days ago, and could be sealed a day later.
    world.pass(36 * DAY);
    assert_eq!(seal().await, 0);
    world.pass(DAY + HOUR);
    assert_eq!(seal().await, 2, "and the second with it");
    world.put_render(&page, 1, &[("html", "<p>late</p>")]).await.unwrap();
    world.pass(later());
    assert_eq!(seal().await, 0, "it could have been sealed a day ago");
    world.pass(100 * DAY);
    assert_eq!(seal().await, 1);
    world.edit(&page, 4..=4).await;
    for number in 0..260 {
        world.put_render(&page, 4, &[("html", &format!("<p>{number}</p>"))]).await.unwrap();
    }
    world.pass(later());
    assert_eq!(seal().await, 0, "renders of the latest are none that could be sealed");
    world.assert_whole().await;
}

async fn statistics_tell_blocks_from_rows(world: World) {
    let world = archiving(world).await;
    let page = page("Main_Page");
    world.edit(&page, 1..=6).await;
    world.pass(later());
    let domain = DomainName::new("enwiki").unwrap();
    let before = world.buckets.stats(&domain, &mut |_| {}).await.unwrap();
    world.seal().await;
    let mut told = Vec::new();
    let after = world.buckets.stats(&domain, &mut |stats| told.push(stats.raw_bytes)).await.unwrap();
    // Of a page of very many revisions it is told while they are counted.
    assert!(told.is_sorted() && told.len() > after.pages as usize, "{told:?}");
    assert_eq!(told.last(), Some(&after.raw_bytes));
    assert_eq!((after.pages, after.revisions, after.renders), (1, 6, 6));
    assert_eq!(after.raw_bytes, before.raw_bytes);
    let html = &after.properties[&name("html")];
    assert_eq!((html.bodies, html.archived), (6, 5));
    let archive = after.archive.unwrap();
    assert_eq!((archive.blocks, archive.index_rows, archive.revisions, archive.renders), (1, 1, 5, 5));
    assert_eq!(archive.open_revisions, 1);
    let open: u64 = after.properties.values().map(|property| property.stored_bytes).sum();
    assert_eq!(after.stored_bytes, open + archive.block_bytes);
    let in_blocks: u64 = after.properties.values().map(|property| property.archived_stored_bytes).sum();
    assert_eq!(in_blocks + archive.record_bytes, archive.block_bytes);
    assert!(html.archived_stored_bytes > 0 && html.blocks == 1, "{html:?}");
}
