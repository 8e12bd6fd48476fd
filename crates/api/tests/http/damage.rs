//! What is said of revisions that a damaged block of the archive has.

use std::{num::NonZeroUsize, time::Duration};

use rashomon_buckets::{
    ArchiveSettings, BucketArchive, BucketName, DomainName, Revisioned, Sealing, schemas,
};
use rashomon_tables::{Batch, Row, Scan, TableStore as _, Value};
use serde_json::Value as Json;

use crate::world::{PAGE, World};

const DAY: Duration = Duration::from_secs(24 * 3600);
const REVISIONS: i64 = 40;

/// What was superseded for a day is sealed.
fn settings() -> rashomon_buckets::Settings {
    let all = BucketArchive { after: DAY, ..BucketArchive::default() };
    let archive = Some(ArchiveSettings { all, ..ArchiveSettings::default() });
    rashomon_buckets::Settings { archive, ..rashomon_buckets::Settings::default() }
}

/// A server that begins over the same store.
async fn begun_again(world: &World) -> World {
    World::of(world.store.clone(), world.clock.clone(), Default::default(), settings()).await
}

/// Seals all revisions but the latest, and gives the row that has their block.
async fn sealed() -> (World, Row) {
    let world = World::new().await;
    for number in 1..=REVISIONS {
        let text = format!("{number} {}", number * number * 1_000_003);
        world.revision(&format!("_rev={number}&wikitext={text}")).await;
    }
    world.clock.advance(2 * DAY);
    let buckets = Revisioned::open(world.store.clone(), world.clock.clone(), settings(), 8).await.unwrap();
    let domain = DomainName::new("enwiki").unwrap();
    buckets.seal(&domain, &BucketName::page(), Sealing::default(), &mut |_| {}).await.unwrap();
    let partitions = world.store.partitions(&schemas::ARCHIVE_BLOCKS, None, NonZeroUsize::MIN).await.unwrap();
    let scan = Scan::new(partitions.items[0].clone(), NonZeroUsize::MIN);
    let row = world.store.scan(&schemas::ARCHIVE_BLOCKS, scan).await.unwrap().items.remove(0);
    (begun_again(&world).await, row)
}

/// Puts other bytes in the place of a block.
async fn replace(world: &World, row: &Row, block: Vec<u8>) {
    let mut batch = Batch::new(row.key.partition.clone());
    let values = vec![row.values[0].clone(), Some(Value::Blob(block.into()))];
    world.clock.advance(Duration::from_secs(1));
    let now = rashomon_clock::Clock::now(&*world.clock);
    batch.put(&schemas::ARCHIVE_BLOCKS, row.key.clustering.clone(), values, now);
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
async fn what_cannot_be_read_is_listed_as_damaged() {
    let (world, row) = sealed().await;
    let before = listed(&world).await;
    assert!(before.len() as i64 == REVISIONS && !before.iter().any(is_damaged));
    let Some(Value::Blob(block)) = row.values[1].clone() else { panic!("a block") };
    let mut found = 0;
    for place in (0..block.len()).step_by(61) {
        let mut damaged = block.to_vec();
        damaged[place] ^= 0x10;
        replace(&world, &row, damaged).await;
        let world = begun_again(&world).await;
        if world.get(&format!("{PAGE}?rev/&limit=100")).await.status == 500 {
            // Nothing of it can be read.
            continue;
        }
        let lines = listed(&world).await;
        let html = world.get("/pages/enwiki/Main_Page").await;
        assert_eq!(html.text().contains("damaged</span>"), lines.iter().any(is_damaged), "at {place}");
        for (line, before) in lines.iter().zip(&before) {
            let tid = line["tid"].as_str().unwrap();
            let text = world.get(&format!("{PAGE}?rev/{tid}/wikitext")).await;
            assert_eq!(text.status == 500, is_damaged(line), "at {place}: {line}");
            let revision = world.get(&format!("{PAGE}?rev/{}/", line["rev"])).await.expect(200).json();
            let property = &revision["renders"][0]["properties"]["wikitext"];
            assert_eq!(is_damaged(property), is_damaged(line), "at {place}: {property}");
            if is_damaged(line) {
                found += 1;
                assert!(property.get("size").is_none() && property.get("sha1").is_none(), "{property}");
            } else {
                assert_eq!(line, before, "at {place}");
            }
        }
    }
    assert!(found > 0);
}
