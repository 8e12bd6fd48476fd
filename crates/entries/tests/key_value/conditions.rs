//! Conditional requests.

use std::sync::Arc;

use rashomon_entries::Error;
use rashomon_records::schemas::{ENTRY_KEYS, has_rows};

use crate::support::{World, blob, headers, key, put};

#[tokio::test]
async fn each_put_makes_another_version() {
    let world = World::new().await;
    let bucket = world.bucket("images", blob()).await;
    let first = world.put(&bucket, "a", b"same").await;
    let second = world.put(&bucket, "a", b"same").await;
    assert!(!first.replaced && second.replaced);
    assert_ne!(first.etag, second.etag);
    assert!(second.modified > first.modified);
    assert_eq!(world.entry(&bucket, "a").await.unwrap().etag, second.etag);
}

#[tokio::test]
async fn condition_sees_the_current_version() {
    let world = World::new().await;
    let bucket = world.bucket("images", blob()).await;
    let refused = world.store.delete(&bucket, &key("a"), &|tag| tag.is_some()).await;
    assert!(matches!(refused, Err(Error::ConditionFailed)));
    let first = world.put(&bucket, "a", b"one").await;
    let body = world.store.stage(&bucket, &key("a")).finish().await.unwrap();
    let refused = world.store.put(&bucket, &key("a"), headers(), body.clone(), &|tag| tag.is_none()).await;
    assert!(matches!(refused, Err(Error::ConditionFailed)));
    assert_eq!(world.body(&bucket, "a").await.unwrap(), b"one");
    let stored =
        world.store.put(&bucket, &key("a"), headers(), body, &|tag| tag == Some(&first.etag)).await.unwrap();
    assert!(stored.replaced);
    let refused = world.store.delete(&bucket, &key("a"), &|tag| tag == Some(&first.etag)).await;
    assert!(matches!(refused, Err(Error::ConditionFailed)));
    assert!(world.store.delete(&bucket, &key("a"), &|tag| tag == Some(&stored.etag)).await.unwrap());
    assert!(!world.store.delete(&bucket, &key("a"), &|_| true).await.unwrap());
    assert!(world.entry(&bucket, "a").await.is_none());
}

/// Clients of two processes count in an entry, each with the version that it has read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_conditional_write_is_lost() {
    const CLIENTS: u64 = 8;
    const WRITES: u64 = 10;
    for world in [World::new().await, World::cluster().await] {
        let bucket = Arc::new(world.bucket("images", blob()).await);
        world.put(&bucket, "n", b"0").await;
        let is_alone = world.tables.partition_versions().is_some();
        let other = if is_alone { world.store.clone() } else { world.process(2) };
        let clients = (0..CLIENTS).map(|client| {
            let store = if client % 2 == 0 { world.store.clone() } else { other.clone() };
            let bucket = Arc::clone(&bucket);
            tokio::spawn(async move {
                let mut done = 0;
                while done < WRITES {
                    let entry = store.entry(&bucket, &key("n")).await.unwrap().unwrap();
                    let text = entry.body.clone().whole().await.unwrap();
                    let number: u64 = std::str::from_utf8(&text).unwrap().parse().unwrap();
                    let mut sink = store.stage(&bucket, &key("n"));
                    sink.write((number + 1).to_string().as_bytes()).await.unwrap();
                    let body = sink.finish().await.unwrap();
                    let allows = |tag: Option<&_>| tag == Some(&entry.etag);
                    match store.put(&bucket, &key("n"), headers(), body, &allows).await {
                        Ok(_) => done += 1,
                        Err(Error::ConditionFailed) => tokio::task::yield_now().await,
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
        assert_eq!(world.body(&bucket, "n").await.unwrap(), (CLIENTS * WRITES).to_string().as_bytes());
    }
}

/// Two processes whose clocks differ delete an entry and create it again. After that, the index lists the
/// entry.
#[tokio::test]
async fn deleted_entry_that_is_made_again_is_listed() {
    let world = World::cluster().await;
    let bucket = world.bucket("images", blob()).await;
    world.put(&bucket, "a", b"one").await;
    assert!(world.store.delete(&bucket, &key("a"), &|_| true).await.unwrap());
    // The clock of the second process is behind that of the first.
    let behind = world.behind(std::time::Duration::from_secs(60));
    put(&behind, &bucket, &key("a"), b"two").await.unwrap();
    let listed = world
        .store
        .list(&bucket, &rashomon_entries::KeyRange::all(), Default::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(listed.items.len(), 1);
}

/// Two processes make one entry at the same time. The process whose clock is behind succeeds first. A DELETE then
/// removes both rows of the index. (In memory, since a node decides by itself which process succeeds first.)
#[tokio::test]
async fn delete_leaves_nothing_in_the_index() {
    let (world, _) = World::faulty(false).await;
    let bucket = world.bucket("images", blob()).await;
    let behind = world.behind(std::time::Duration::from_secs(60));
    let (a, b) = (key("a"), key("a"));
    let (one, two) =
        futures::join!(put(&behind, &bucket, &a, b"one"), put(&world.store, &bucket, &b, b"two"));
    assert_eq!([one.unwrap().replaced, two.unwrap().replaced], [false, true]);
    assert!(world.store.delete(&bucket, &a, &|_| true).await.unwrap());
    assert!(!has_rows(&*world.tables, &ENTRY_KEYS).await.unwrap());
}
