//! Idle pages: their latest revision is sealed too, and stays the latest.

use std::{collections::BTreeMap, sync::Arc};

use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::operations::EraseOptions;
use rashomon_pages::{
    ArchiveSettings, Error, ImportOutcome, NewRevision, Parent, SealOptions, Settings, Tid, VerifyReport,
    schemas,
};
use rashomon_tables::{Call, Fault, Faulty, Memory, Plan};

use super::{DAY, HOUR, archived_tables, hour, seal_delay, settings, text};
use crate::support::{AnyStore, Cluster, START, World, name, noise, on_every_store, page, rev};

on_every_store! {
    idle_page_is_sealed_whole,
    page_that_was_read_or_edited_is_not_idle,
    late_writes_to_an_idle_page_keep_the_latest,
    edit_of_an_idle_page_is_the_latest,
    body_rewritten_after_the_seal_is_sealed_again,
    large_body_of_an_idle_page_moves_from_chunks_into_a_block,
    content_of_an_idle_page_can_be_erased,
    late_writes_to_a_page_that_is_read_are_sealed,
    seal_with_spare_latest_leaves_the_latest_in_the_tables,
}

/// Settings with which a page is idle after a day.
pub(super) fn idle_settings() -> Settings {
    let archive = settings().archive.map(|archive| ArchiveSettings { idle: Some(DAY), ..archive });
    Settings { archive, ..settings() }
}

async fn with_idle_sealing(world: World) -> World {
    world.restarted_with(idle_settings()).await
}

impl World {
    /// Asserts that all pages are sealed whole: the tables have no rows of revisions, renders or bodies.
    pub(super) async fn assert_sealed_whole(&self) {
        for table in archived_tables() {
            assert_eq!(self.rows(table).await.len(), 0, "{}", table.name());
        }
    }
}

async fn idle_page_is_sealed_whole(world: World) {
    let world = with_idle_sealing(world).await;
    let (one, two) = (page("Main_Page"), page("Other"));
    world.edit(&one, 1..=4).await;
    world.edit(&two, 1..=1).await;
    let before = [world.read_everything(&one).await, world.read_everything(&two).await];
    let counted = world.assert_consistent().await;
    world.pass(seal_delay());
    // A new process does not know what earlier ones have read.
    let world = world.reopened().await;
    assert_eq!(world.seal().await.revisions, 5);
    world.assert_sealed_whole().await;
    for world in [&world, &world.reopened().await] {
        assert_eq!([world.read_everything(&one).await, world.read_everything(&two).await], before);
        assert_eq!(world.assert_consistent().await, VerifyReport { blocks: 1, ..counted.clone() });
    }
    let world = world.reopened().await;
    assert_eq!(world.seal().await.revisions, 0, "nothing is left to be sealed");
}

async fn page_that_was_read_or_edited_is_not_idle(world: World) {
    let world = with_idle_sealing(world).await;
    let pages = [page("Read"), page("Read_by_tid"), page("Edited"), page("Idle")];
    let mut tids = Vec::new();
    for page in &pages {
        tids.push(world.edit(page, 1..=1).await[0]);
    }
    world.pass(seal_delay());
    let world = world.reopened().await;
    world.read_latest(&pages[0], "html").await;
    world.read(&pages[1], tids[1], "html").await;
    world.edit(&pages[2], 2..=2).await;
    world.pass(HOUR);
    assert_eq!(world.seal().await.revisions, 1);
    assert_eq!(world.rows(&schemas::RENDER_CONTENT).await.len(), 4);
    world.pass(seal_delay());
    assert_eq!(world.seal().await.revisions, 4);
    world.assert_sealed_whole().await;
    world.assert_consistent().await;
}

async fn late_writes_to_an_idle_page_keep_the_latest(world: World) {
    let world = with_idle_sealing(world).await;
    let page = page("Main_Page");
    let tids = world.edit(&page, 5..=7).await;
    world.pass(seal_delay());
    let world = world.reopened().await;
    assert_eq!(world.seal().await.revisions, 3);
    let latest = tids[2];

    world.put_revision_at(&page, 3, hour(1), &[("wikitext", "three"), ("html", "three")]).await.unwrap();
    let imported = world.imported_revision(&page, 4, hour(2), b"four").await;
    assert_eq!(world.buckets.import(&page, vec![imported]).await.unwrap(), [ImportOutcome::Created]);
    world.put_render(&page, 6, &[("html", "six again")]).await.unwrap();
    assert_eq!(world.latest_rev(&page).await, Some(7));
    assert_eq!(world.buckets.latest_render(&page).await.unwrap().tid, latest);
    assert_eq!(world.read_latest(&page, "wikitext").await, text(7).into_bytes());
    let repeated = world.imported_revision(&page, 7, hour(2), b"other").await;
    let outcomes = world.buckets.import(&page, vec![repeated]).await.unwrap();
    assert!(matches!(&outcomes[..], [ImportOutcome::Conflict(_)]), "{outcomes:?}");

    world.rewrite(&page, latest, "html", "better").await.unwrap();
    assert_eq!(world.read_latest(&page, "html").await, b"better");
    assert_eq!(world.read_latest(&page, "wikitext").await, text(7).into_bytes());
    let render = world.put_render(&page, 7, &[("html", "seven again")]).await.unwrap();
    assert_eq!(world.buckets.latest_render(&page).await.unwrap().tid, render.tid);
    assert_eq!(world.read_latest(&page, "html").await, b"seven again");
    assert_eq!(world.read_latest(&page, "wikitext").await, text(7).into_bytes());

    let stale = NewRevision {
        if_latest: Some(Parent::Revision(rev(6))),
        ..world.new_revision(&page, 8, &[("wikitext", "late")]).await
    };
    assert!(matches!(world.buckets.put_revision(&page, stale).await, Err(Error::NotLatest { .. })));
    world.assert_consistent().await;
    let before = world.read_everything(&page).await;
    world.pass(seal_delay());
    let world = world.reopened().await;
    world.seal().await;
    assert_eq!(world.read_everything(&page).await, before);
    world.assert_sealed_whole().await;
    world.assert_consistent().await;
}

async fn edit_of_an_idle_page_is_the_latest(world: World) {
    let world = with_idle_sealing(world).await;
    let page = page("Main_Page");
    world.edit(&page, 1..=3).await;
    world.pass(seal_delay());
    let world = world.reopened().await;
    world.seal().await;
    let next = NewRevision {
        if_latest: Some(Parent::Revision(rev(3))),
        ..world.new_revision(&page, 4, &[("wikitext", "four"), ("html", "four")]).await
    };
    world.buckets.put_revision(&page, next).await.unwrap();
    assert_eq!(world.latest_rev(&page).await, Some(4));
    assert_eq!(world.read_latest(&page, "html").await, b"four");
    let before = world.read_everything(&page).await;
    for sealed in [1, 0] {
        world.pass(seal_delay());
        assert_eq!(world.seal().await.revisions, sealed);
        assert_eq!(world.read_everything(&page).await, before);
        world.assert_sealed_whole().await;
        world.assert_consistent().await;
    }
    world.compact().await;
    assert_eq!(world.read_everything(&page).await, before);
    world.assert_consistent().await;
}

async fn body_rewritten_after_the_seal_is_sealed_again(world: World) {
    let world = with_idle_sealing(world).await;
    let page = page("Main_Page");
    let tids = world.edit(&page, 1..=2).await;
    world.pass(seal_delay());
    let world = world.reopened().await;
    world.seal().await;
    world.rewrite(&page, tids[1], "wikitext", "better").await.unwrap();
    world.pass(seal_delay());
    assert_eq!(world.seal().await.revisions, 1);
    world.assert_sealed_whole().await;
    assert_eq!(world.read(&page, tids[1], "wikitext").await, b"better");
    assert_eq!(world.read(&page, tids[1], "html").await, format!("<p>{}</p>", text(2)).into_bytes());
    world.assert_consistent().await;
}

async fn large_body_of_an_idle_page_moves_from_chunks_into_a_block(world: World) {
    let world = with_idle_sealing(world).await;
    let page = page("Main_Page");
    let large = noise(2, 2_500_000);
    let written = world.put_revision(&page, 1, &[("html", &large)]).await.unwrap();
    world.pass(seal_delay());
    let world = world.reopened().await;
    assert_eq!(world.seal().await.revisions, 1);
    world.pass(seal_delay());
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    world.assert_sealed_whole().await;
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 0);
    assert_eq!(world.read(&page, written.tid, "html").await, large);
    world.assert_consistent().await;
    // A body above the limit of blocks stays in its chunks.
    let written = world.put_revision(&page, 2, &[("html", &noise(3, 5_000_000))]).await.unwrap();
    world.pass(seal_delay());
    let world = world.reopened().await;
    world.seal().await;
    world.assert_sealed_whole().await;
    assert_eq!(world.read(&page, written.tid, "html").await.len(), 5_000_000);
    world.assert_consistent().await;
}

async fn content_of_an_idle_page_can_be_erased(world: World) {
    let world = with_idle_sealing(world).await;
    let page = page("Main_Page");
    world.edit(&page, 1..=2).await;
    world.pass(seal_delay());
    let world = world.reopened().await;
    world.seal().await;
    rashomon_pages::operations::erase(&world.buckets, &page, rev(2), EraseOptions::default()).await.unwrap();
    let found = world.buckets.latest(&page, &name("html")).await;
    assert!(matches!(found, Err(Error::Erased { .. })), "{found:?}");
    world.assert_consistent().await;
    world.pass(seal_delay());
    let world = world.reopened().await;
    world.seal().await;
    assert_eq!(world.latest_rev(&page).await, Some(2));
    world.assert_consistent().await;
}

/// The page is read again and again, so its latest revision is not sealed again. Rows of revisions below the
/// sealed latest are superseded, and are sealed.
async fn late_writes_to_a_page_that_is_read_are_sealed(world: World) {
    let world = with_idle_sealing(world).await;
    let page = page("Main_Page");
    let tids = world.edit(&page, 5..=7).await;
    world.pass(seal_delay());
    let world = world.reopened().await;
    world.seal().await;
    world.rewrite(&page, tids[0], "wikitext", "better").await.unwrap();
    world.put_revision_at(&page, 3, hour(1), &[("wikitext", "three")]).await.unwrap();
    world.pass(seal_delay());
    world.read_latest(&page, "html").await;
    assert_eq!(world.seal().await.revisions, 2);
    world.assert_sealed_whole().await;
    assert_eq!(world.read(&page, tids[0], "wikitext").await, b"better");
    assert_eq!(world.latest_rev(&page).await, Some(7));
    world.assert_consistent().await;
}

async fn seal_with_spare_latest_leaves_the_latest_in_the_tables(world: World) {
    let world = with_idle_sealing(world).await;
    let page = page("Main_Page");
    world.edit(&page, 1..=3).await;
    world.pass(seal_delay());
    let world = world.reopened().await;
    let options = SealOptions { spare_latest: true, ..SealOptions::default() };
    let maintenance = world.buckets.maintenance();
    let sealed = maintenance.seal(&page.domain, &page.bucket, options, &mut |_| {}).await.unwrap();
    assert_eq!(sealed.revisions, 2);
    assert_eq!(world.revisions_in_tables().await, 1);
}

/// A list of titles with a damaged row asks the catalog whether the page exists.
#[tokio::test]
async fn idle_page_is_known_to_the_catalog() {
    let world = World::in_sqlite().await.restarted_with(idle_settings()).await;
    let page = page("Main_Page");
    world.edit(&page, 1..=1).await;
    world.pass(seal_delay());
    let world = world.reopened().await;
    world.seal().await;
    world.assert_sealed_whole().await;
    assert!(world.buckets.catalog().is_stored(&page).await.unwrap());
    assert!(!world.buckets.catalog().is_stored(&crate::support::page("Other")).await.unwrap());
}

/// Random writes and seals of one page. Some seals are interrupted at a random call, and a new process
/// continues. After each step, the latest is the highest revision with its newest render.
#[tokio::test]
async fn random_late_writes_keep_the_latest() {
    for seed in 0..40 {
        let clock = Arc::new(ManualClock::new(START));
        let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let store: AnyStore = if seed % 2 == 0 { Arc::new(memory) } else { Arc::new(Cluster::new(memory)) };
        let faulty = Arc::new(Faulty::new(store, Plan::empty()));
        let mut world = World::on(Arc::clone(&faulty) as AnyStore, clock, idle_settings(), 1).await;
        let page = page("Main_Page");
        let mut draws = noise(seed, 4096).into_iter();
        let mut draw = |below: u8| i64::from(draws.next().expect("enough") % below);
        let mut expected: BTreeMap<(i64, Tid), String> = BTreeMap::new();
        for step in 0..60 {
            let content = format!("{seed} {step}");
            let known: Vec<_> = expected.keys().copied().collect();
            let chosen = known.get(draw(250) as usize % known.len().max(1)).copied();
            match (draw(8), chosen) {
                (0..=2, _) | (_, None) => {
                    let number = 1 + draw(60);
                    if !known.iter().any(|(known, _)| *known == number) {
                        let bodies = [("html", content.as_str()), ("wikitext", "text")];
                        let written = world.put_revision(&page, number, &bodies).await.unwrap();
                        expected.insert((number, written.tid), content);
                    }
                }
                (3, Some((number, _))) => {
                    let written = world.put_render(&page, number, &[("html", &content)]).await.unwrap();
                    expected.insert((number, written.tid), content);
                }
                (4, Some((number, tid))) => {
                    world.rewrite(&page, tid, "html", &content).await.unwrap();
                    expected.insert((number, tid), content);
                }
                _ => {
                    world.pass(seal_delay());
                    let call = [Call::Get, Call::Scan, Call::Write][draw(3) as usize];
                    let fault = [Fault::Before, Fault::After][draw(2) as usize].clone();
                    faulty.set_plan(Plan::empty().on(call, 1 + draw(24) as u64, fault));
                    let sealed = world.try_seal().await;
                    faulty.set_plan(Plan::empty());
                    if sealed.is_err() || draw(2) == 0 {
                        world = world.reopened().await;
                    }
                }
            }
            world.pass(HOUR);
            let Some(((number, tid), html)) = expected.last_key_value() else { continue };
            let latest = world.buckets.latest(&page, &name("html")).await.unwrap();
            assert_eq!((latest.version.rev.get(), latest.version.tid), (*number, *tid), "{seed} {step}");
            assert_eq!(world.read_latest(&page, "html").await, html.as_bytes(), "{seed} {step}");
        }
        for ((_, tid), html) in &expected {
            assert_eq!(world.read(&page, *tid, "html").await, html.as_bytes(), "{seed}");
        }
        world.assert_consistent().await;
        world.pass(seal_delay());
        let world = world.reopened().await;
        world.seal().await;
        world.assert_sealed_whole().await;
        for ((_, tid), html) in &expected {
            assert_eq!(world.read(&page, *tid, "html").await, html.as_bytes(), "{seed}");
        }
        world.assert_consistent().await;
    }
}
