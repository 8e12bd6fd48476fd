//! Erased content is in no table, under every strategy, even if it was read and copied before.

use std::num::NonZeroUsize;

use rashomon_pages::operations::EraseOptions;
use rashomon_pages::{Error, Page, Sha1, schemas};
use rashomon_records::rows::{Column as _, partition_of};
use rashomon_tables::{Call, Fault, Gate, Plan, Scan, Schema};

use crate::{
    retention::{DAY, HOUR, STRATEGIES, one_row::ONE_ROW, policy_with, races::TwoProcesses, with_retention},
    support::{ContendedStore, World, name, noise, on_every_store, page, rev},
};

on_every_store![erased_content_is_in_no_table];

const SECRET: &[u8] = b"Mr Zwyxhorn lives at Qurmel Street 41.";

/// Revision 1 is superseded and was read, revision 2 is superseded and was never read, revision 3 has other
/// content, and revision 4 is the latest.
async fn erased_content_is_in_no_table(world: World) {
    let (mut world, large) = (world, noise(1, 2_500_000));
    for (number, strategy) in STRATEGIES.into_iter().enumerate() {
        let (page, what) = (page(&format!("Page_{number}")), format!("{strategy:?}"));
        world = with_retention(world, policy_with(strategy)).await;
        let secret = [("html", SECRET), ("wikitext", large.as_slice())];
        let first = world.put_revision(&page, 1, &secret).await.unwrap().tid;
        world.put_revision(&page, 2, &secret).await.unwrap();
        let kept = world.put_revision(&page, 3, &[("html", "kept"), ("wikitext", "kept")]).await.unwrap().tid;
        world.read(&page, kept, "html").await;
        let latest = world.put_revision(&page, 4, &secret).await.unwrap().tid;
        for tid in [first, latest] {
            world.read_if_kept(&page, tid, "html").await;
            world.read_if_kept(&page, tid, "wikitext").await;
        }
        world.read_latest(&page, "html").await;
        for number in [1, 2, 4] {
            rashomon_pages::operations::erase(&world.buckets, &page, rev(number), EraseOptions::default())
                .await
                .unwrap();
        }
        world.assert_no_row_has_a_body(&page, &[SECRET, &large], &what).await;
        for tid in [first, latest] {
            let read = world.buckets.property(&page, tid, &name("html")).await;
            assert!(matches!(read, Err(Error::Erased { .. })), "{what}: {read:?}");
        }
        assert!(
            matches!(world.buckets.latest(&page, &name("html")).await, Err(Error::Erased { .. })),
            "{what}"
        );
        // The next write and the sweep do not copy erased content either.
        world.put_revision(&page, 5, &[("html", "next")]).await.unwrap();
        world.pass(HOUR);
        assert_eq!(world.read(&page, kept, "html").await, b"kept", "{what}");
        world.assert_no_row_has_a_body(&page, &[SECRET, &large], &what).await;
        world.pass(3 * DAY);
        world.sweep().await;
        world.assert_no_row_has_a_body(&page, &[SECRET, &large], &what).await;
    }
    world.assert_consistent().await;
}

/// A server has read content and is about to store a copy of it, for a reader or in a write. Before the copy is stored,
/// another server erases the content. No copy remains.
#[tokio::test]
async fn copies_made_during_an_erase_are_deleted() {
    for strategy in STRATEGIES {
        for call in 1.. {
            let (two, page) = (TwoProcesses::with_strategy(strategy).await, page("Main_Page"));
            let first = two.other.put_revision(&page, 1, &[("html", SECRET)]).await.unwrap().tid;
            two.other.put_revision(&page, 2, &[("html", SECRET)]).await.unwrap();
            two.other.pass(HOUR);
            let gate = Gate::new();
            two.calls_of_one.set_plan(Plan::empty().on(Call::Write, call, Fault::Pause(gate.clone())));
            let work = async {
                // Both reads may fail because the content was erased.
                drop(two.one.buckets.property(&page, first, &name("html")).await);
                drop(two.one.buckets.latest(&page, &name("html")).await);
                two.one.put_revision(&page, 3, &[("html", "next")]).await.unwrap()
            };
            let mut work = std::pin::pin!(work);
            tokio::select! {
                _ = &mut work => break,
                () = gate.reached() => {}
            }
            for number in [1, 2] {
                rashomon_pages::operations::erase(
                    &two.other.buckets,
                    &page,
                    rev(number),
                    EraseOptions::default(),
                )
                .await
                .unwrap();
            }
            gate.open();
            work.await;
            two.other
                .assert_no_row_has_a_body(&page, &[SECRET], &format!("{strategy:?}, write {call}"))
                .await;
        }
    }
}

/// Other processes keep changing a `current` row. The erasure fails, is listed as unfinished, and can be repeated.
#[tokio::test]
async fn erasure_with_a_contended_row_stays_unfinished() {
    let (world, store) = World::over_memory(|memory| ContendedStore::new(memory, &schemas::CURRENT)).await;
    let world = with_retention(world, policy_with(ONE_ROW)).await;
    let page = page("Main_Page");
    world.put_revision(&page, 1, &[("html", SECRET)]).await.unwrap();
    let erase = || rashomon_pages::operations::erase(&world.buckets, &page, rev(1), EraseOptions::default());
    let is_finished = || async {
        let states =
            rashomon_pages::operations::erasures(&world.buckets, &page.domain, &page.bucket).await.unwrap();
        states.iter().all(|state| state.finished_at.is_some())
    };
    store.set_contended(true);
    let refused = erase().await;
    assert!(matches!(refused, Err(Error::Store(_))), "{refused:?}");
    assert!(!is_finished().await);
    store.set_contended(false);
    erase().await.unwrap();
    assert!(is_finished().await);
    world.assert_no_row_has_a_body(&page, &[SECRET], "repeated").await;
}

fn tables_of_bodies() -> [&'static Schema; 5] {
    use schemas::{BY_REV, CURRENT, HISTORICAL, RENDER_CONTENT, REVISION_CONTENT};
    [&*REVISION_CONTENT, &*RENDER_CONTENT, &*HISTORICAL, &*BY_REV, &*CURRENT]
}

impl World {
    /// Panics if a row of the page has one of these bodies, or if any chunk is stored. In these tests, only erased
    /// bodies are large enough for chunks.
    async fn assert_no_row_has_a_body(&self, page: &Page, bodies: &[&[u8]], what: &str) {
        let sha1s: Vec<_> = bodies.iter().map(|body| Sha1::of(body).to_column()).collect();
        let many = NonZeroUsize::new(1000).unwrap();
        for table in tables_of_bodies() {
            let scan = Scan::new(partition_of(page), many);
            for row in self.store.scan(table, scan).await.unwrap().items {
                let has = row.values.iter().any(|value| sha1s.contains(value));
                assert!(!has, "{what}: {} has {:?}", table.name(), row.key);
            }
        }
        let chunks: Vec<_> = self.rows(&schemas::CHUNKS).await.into_iter().map(|row| row.key).collect();
        assert!(chunks.is_empty(), "{what}: {chunks:?}");
    }
}
