//! What is erased is nowhere, wherever a strategy has put it, and whoever has read it.

use std::num::NonZeroUsize;

use bytes::Bytes;
use rashomon_buckets::{Erasing, Error, Page, Sha1, schemas};
use rashomon_tables::{Call, Fault, Gate, Plan, Scan, Schema, Value};

use crate::{
    retention::{DAY, HOUR, STRATEGIES, by, races::Two, retaining},
    support::{World, name, noise, on_every_store, page, rev},
};

on_every_store![what_was_erased_is_nowhere];

const SECRET: &[u8] = b"Mr Zwyxhorn lives at Qurmel Street 41.";

/// Revision 1 is superseded and read, 2 superseded and never read, 3 is of somebody else, 4 is the latest.
async fn what_was_erased_is_nowhere(world: World) {
    let (mut world, large) = (world, noise(1, 2_500_000));
    for (number, strategy) in STRATEGIES.into_iter().enumerate() {
        let (page, what) = (page(&format!("Page_{number}")), format!("{strategy:?}"));
        world = retaining(world, by(strategy)).await;
        let secret = [("html", SECRET), ("wikitext", large.as_slice())];
        let first = world.put_revision(&page, 1, &secret).await.unwrap().tid;
        world.put_revision(&page, 2, &secret).await.unwrap();
        let left = world.put_revision(&page, 3, &[("html", "left"), ("wikitext", "left")]).await.unwrap().tid;
        world.read(&page, left, "html").await;
        let latest = world.put_revision(&page, 4, &secret).await.unwrap().tid;
        for tid in [first, latest] {
            world.read_if_kept(&page, tid, "html").await;
            world.read_if_kept(&page, tid, "wikitext").await;
        }
        world.read_latest(&page, "html").await;
        for number in [1, 2, 4] {
            world.buckets.erase(&page, rev(number), Erasing::default()).await.unwrap();
        }
        world.assert_body_nowhere(&page, &[SECRET, &large], &what).await;
        for tid in [first, latest] {
            let read = world.buckets.property(&page, tid, &name("html")).await;
            assert!(matches!(read, Err(Error::Erased { .. })), "{what}: {read:?}");
        }
        assert!(
            matches!(world.buckets.latest(&page, &name("html")).await, Err(Error::Erased { .. })),
            "{what}"
        );
        // Nor does the next write, or the sweep, copy anything of it.
        world.put_revision(&page, 5, &[("html", "next")]).await.unwrap();
        world.pass(HOUR);
        assert_eq!(world.read(&page, left, "html").await, b"left", "{what}");
        world.assert_body_nowhere(&page, &[SECRET, &large], &what).await;
        world.pass(3 * DAY);
        world.sweep().await;
        world.assert_body_nowhere(&page, &[SECRET, &large], &what).await;
    }
    world.assert_whole().await;
}

/// A server that has read what another erases copies it for its reader, or with its write: nothing comes to stand.
#[tokio::test]
async fn what_is_being_copied_meanwhile_is_nowhere() {
    for strategy in STRATEGIES {
        for call in 1.. {
            let (two, page) = (Two::under(strategy).await, page("Main_Page"));
            let first = two.other.put_revision(&page, 1, &[("html", SECRET)]).await.unwrap().tid;
            two.other.put_revision(&page, 2, &[("html", SECRET)]).await.unwrap();
            two.other.pass(HOUR);
            let gate = Gate::new();
            two.calls_of_one.set_plan(Plan::empty().on(Call::Write, call, Fault::Pause(gate.clone())));
            let work = async {
                // Either may be told that it was erased.
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
                two.other.buckets.erase(&page, rev(number), Erasing::default()).await.unwrap();
            }
            gate.open();
            work.await;
            two.other.assert_body_nowhere(&page, &[SECRET], &format!("{strategy:?}, write {call}")).await;
        }
    }
}

/// The tables of bodies. On a node they hold what other tests have, too.
fn tables_of_bodies() -> [&'static Schema; 5] {
    use schemas::{BY_REV, CURRENT, HISTORICAL, RENDER_CONTENT, REVISION_CONTENT};
    [&*REVISION_CONTENT, &*RENDER_CONTENT, &*HISTORICAL, &*BY_REV, &*CURRENT]
}

impl World {
    /// Fails where a row of the page has one of these bodies, or anything is in chunks: nothing else is large.
    async fn assert_body_nowhere(&self, page: &Page, bodies: &[&[u8]], what: &str) {
        let sha1s: Vec<_> =
            bodies.iter().map(|body| Some(Value::Blob(Bytes::copy_from_slice(&Sha1::of(body).0)))).collect();
        let many = NonZeroUsize::new(1000).unwrap();
        let partition = [page.domain.as_str(), page.bucket.as_str(), page.title.as_str()];
        for table in tables_of_bodies() {
            let scan = Scan::new(partition.map(Value::from).to_vec(), many);
            for row in self.store.scan(table, scan).await.unwrap().items {
                let has = row.values.iter().any(|value| sha1s.contains(value));
                assert!(!has, "{what}: {} has {:?}", table.name(), row.key);
            }
        }
        let chunks: Vec<_> = self.rows(&schemas::CHUNKS).await.into_iter().map(|row| row.key).collect();
        assert!(chunks.is_empty(), "{what}: {chunks:?}");
    }
}
