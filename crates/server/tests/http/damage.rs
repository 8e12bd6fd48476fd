//! Reads of revisions in a damaged block of the archive.

use std::{num::NonZeroUsize, time::Duration};

use bytes::Bytes;
use rashomon_pages::{
    ArchiveSettings, BucketArchive, BucketName, DomainName, RevisionStore, SealOptions,
    schemas::ARCHIVE_BLOCKS,
};
use rashomon_records::{rows::TypedRow as _, typed_row};
use rashomon_tables::{Batch, Row, Scan, TableStore as _};
use serde_json::Value as Json;

use crate::world::{PAGE, World};

const DAY: Duration = Duration::from_secs(24 * 3600);
const REVISIONS: i64 = 40;

/// Settings by which revisions are sealed a day after they were superseded.
fn settings() -> rashomon_pages::Settings {
    let all = BucketArchive { after: DAY, ..BucketArchive::default() };
    let archive = Some(ArchiveSettings { all, ..ArchiveSettings::default() });
    rashomon_pages::Settings { archive, ..rashomon_pages::Settings::default() }
}

/// A new server over the same store.
async fn restarted(world: &World) -> World {
    World::of(world.store.clone(), world.clock.clone(), Default::default(), settings()).await
}

/// Seals all revisions but the latest, and returns the row of their block.
async fn sealed() -> (World, Row) {
    let world = World::new().await;
    for number in 1..=REVISIONS {
        let text = format!("{number} {}", number * number * 1_000_003);
        world.revision(&format!("_rev={number}&wikitext={text}")).await;
    }
    world.clock.advance(2 * DAY);
    let buckets = RevisionStore::open(world.store.clone(), world.clock.clone(), settings(), 8).await.unwrap();
    let domain = DomainName::new("enwiki").unwrap();
    buckets
        .maintenance()
        .seal(&domain, &BucketName::page(), SealOptions::default(), &mut |_| {})
        .await
        .unwrap();
    let partitions = world.store.partitions(&ARCHIVE_BLOCKS, None, NonZeroUsize::MIN).await.unwrap();
    let scan = Scan::new(partitions.items[0].clone(), NonZeroUsize::MIN);
    let row = world.store.scan(&ARCHIVE_BLOCKS, scan).await.unwrap().items.remove(0);
    (restarted(&world).await, row)
}

typed_row! {
    /// A piece of a block, one of `parts`.
    struct BlockPiece in ARCHIVE_BLOCKS {
        key { part: i64 }
        values { parts: i64, value: Bytes }
    }
}

/// Replaces the bytes of a block that has one piece.
async fn replace(world: &World, row: &Row, block: Vec<u8>) {
    let mut batch = Batch::new(row.key.partition.clone());
    world.clock.advance(Duration::from_secs(1));
    let now = rashomon_clock::Clock::now(&*world.clock);
    BlockPiece { value: block.into(), ..BlockPiece::from_row(row).unwrap() }.put(&mut batch, now);
    world.store.write(Vec::new(), batch).await.unwrap();
}

async fn listed(world: &World) -> Vec<Json> {
    let list = world.get(&format!("{PAGE}?rev/&limit=100")).await.expect(200).json();
    list["revisions"].as_array().unwrap().clone()
}

fn is_damaged(json: &Json) -> bool {
    json.get("damaged").is_some_and(|damaged| damaged == true)
}

#[tokio::test]
async fn unreadable_revisions_are_listed_as_damaged() {
    let (world, row) = sealed().await;
    let before = listed(&world).await;
    assert!(before.len() as i64 == REVISIONS && !before.iter().any(is_damaged));
    let block = BlockPiece::from_row(&row).unwrap().value;
    let mut found = 0;
    for position in (0..block.len()).step_by(61) {
        let mut damaged = block.to_vec();
        damaged[position] ^= 0x10;
        replace(&world, &row, damaged).await;
        let world = restarted(&world).await;
        if world.get(&format!("{PAGE}?rev/&limit=100")).await.status == 500 {
            // Nothing of the block can be read.
            continue;
        }
        let lines = listed(&world).await;
        let html = world.get("/pages/enwiki/Main_Page").await;
        assert_eq!(html.text().contains("damaged</span>"), lines.iter().any(is_damaged), "at {position}");
        for (line, before) in lines.iter().zip(&before) {
            let tid = line["tid"].as_str().unwrap();
            let text = world.get(&format!("{PAGE}?rev/{tid}/wikitext")).await;
            assert_eq!(text.status == 500, is_damaged(line), "at {position}: {line}");
            let revision = world.get(&format!("{PAGE}?rev/{}/", line["rev"])).await.expect(200).json();
            let property = &revision["renders"][0]["properties"]["wikitext"];
            assert_eq!(is_damaged(property), is_damaged(line), "at {position}: {property}");
            if is_damaged(line) {
                found += 1;
                assert!(property.get("size").is_none() && property.get("sha1").is_none(), "{property}");
            } else {
                assert_eq!(line, before, "at {position}");
            }
        }
    }
    assert!(found > 0);
}
