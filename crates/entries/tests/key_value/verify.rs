//! Verification and statistics.

use rashomon_entries::{BucketStats, BucketType, Definition, IdempotencyKey};
use rashomon_records::{
    VerifyReport,
    rows::ColumnValue as _,
    schemas::{BUCKET_ENTRIES, BUCKETS, CHUNKS, COUNTERS, ENTRY_KEYS},
};
use rashomon_tables::{Batch, ClusteringRange, Key, PartitionStream, Row, Scan, Value};

use crate::support::{World, blob, key, name};

async fn verify(world: &World) -> VerifyReport {
    let mut report = VerifyReport::default();
    world.store.verify(&mut report, &mut |_| ()).await.expect("verified");
    report
}

/// A store with entries, one of them in chunks, and a counter. Returns the bucket of the entries.
async fn filled_store() -> (World, rashomon_entries::Bucket) {
    let world = World::new().await;
    let bucket = world.bucket("images", blob()).await;
    world.put(&bucket, "a", b"one").await;
    world.put(&bucket, "b", &[1; 2_500_000]).await;
    world.put(&bucket, "c", b"gone").await;
    world.store.delete(&bucket, &key("c"), &|_| true).await.expect("deleted");
    let counters = world.bucket("clicks", Definition::of(BucketType::Counter)).await;
    let once = IdempotencyKey::new("once").expect("a key");
    world.store.increment(&counters, &key("n"), 1, Some(&once)).await.expect("counted");
    world.store.increment(&counters, &key("gone"), 1, None).await.expect("counted");
    world.store.delete_counter(&counters, &key("gone")).await.expect("deleted");
    (world, bucket)
}

/// Deletes all rows of a table.
async fn clear(world: &World, table: &'static rashomon_tables::Schema) {
    let mut partitions = PartitionStream::new(&*world.tables, table, std::num::NonZeroUsize::MIN);
    while let Some(partition) = partitions.next().await.expect("listed") {
        let mut batch = Batch::new(partition);
        batch.delete_range(table, ClusteringRange::all(), rashomon_clock::Timestamp::MAX);
        world.tables.write(Vec::new(), batch).await.expect("deleted");
    }
}

#[tokio::test]
async fn sound_store_has_no_problem() {
    let (world, bucket) = filled_store().await;
    let report = verify(&world).await;
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.entries, report.bytes), (3, 2_500_003));
    let stats = world.store.bucket_stats(&bucket).await.unwrap();
    let BucketStats { entries, raw_bytes, stored_bytes, .. } = stats;
    assert_eq!((entries, raw_bytes), (2, 2_500_003));
    assert!(stored_bytes < 2000, "{stored_bytes}");
    let counters = world.store.bucket(&bucket.domain, &name("clicks")).await.unwrap().unwrap();
    let stats = world.store.bucket_stats(&counters).await.unwrap();
    assert_eq!((stats.entries, stats.idempotency_keys), (1, 1));
    // The entries of a bucket that is being deleted are no problem.
    world.store.delete_bucket(&bucket.domain, &name("images")).await.unwrap();
    assert_eq!(verify(&world).await.problems, Vec::<String>::new());
}

#[tokio::test]
async fn verify_names_lost_rows_and_repair_adds_lost_keys() {
    let (world, _) = filled_store().await;
    clear(&world, &ENTRY_KEYS).await;
    let report = verify(&world).await;
    let place = "domain enwiki, bucket images, key";
    let places =
        || [format!("{place} a"), format!("{place} b"), "domain enwiki, bucket clicks, key n".to_owned()];
    assert_eq!(
        report.problems,
        places().map(|place| format!("{place}: the entry is missing from the index of its bucket")).to_vec()
    );
    for dry_run in [true, false] {
        let mut repairs = Vec::new();
        world.store.repair_index(dry_run, &mut |repair| repairs.push(repair)).await.unwrap();
        assert_eq!(repairs, places().map(|place| format!("{place}: added the key to the index")).to_vec());
    }
    assert_eq!(verify(&world).await.problems, Vec::<String>::new());
    let (world, _) = filled_store().await;
    clear(&world, &CHUNKS).await;
    let [problem] = verify(&world).await.problems.try_into().unwrap();
    assert!(problem.starts_with(&format!("{place} b: chunk 0 of 3")), "{problem}");
}

/// A repair goes on after a row that cannot be decoded, and `verify` names the row.
#[tokio::test]
async fn repair_skips_rows_that_cannot_be_decoded() {
    for (table, undecodable, others) in [
        (&*BUCKET_ENTRIES, "bucket images, key a", ["bucket images, key b", "bucket clicks, key n"]),
        (&*COUNTERS, "bucket clicks, key n", ["bucket images, key a", "bucket images, key b"]),
    ] {
        let (world, _) = filled_store().await;
        clear(&world, &ENTRY_KEYS).await;
        let entry_key = if table.name() == COUNTERS.name() { "n" } else { "a" };
        let mut partitions = PartitionStream::new(&*world.tables, table, std::num::NonZeroUsize::MIN);
        while let Some(partition) = partitions.next().await.unwrap() {
            if partition[1] != Value::from(entry_key) {
                continue;
            }
            let key = Key::new(partition, Vec::new());
            let row = world.tables.get(table, &key).await.unwrap().unwrap();
            let new = Row { values: vec![None; row.values.len()], ..row.clone() };
            world.tables.swap(Vec::new(), table, &key, Some(&row), Some(new)).await.unwrap();
        }
        let mut repairs = Vec::new();
        world.store.repair_index(false, &mut |repair| repairs.push(repair)).await.unwrap();
        let added = |place| format!("domain enwiki, {place}: added the key to the index");
        assert_eq!(repairs, others.map(added));
        let [problem] = verify(&world).await.problems.try_into().unwrap();
        let place = format!("domain enwiki, {undecodable}: ");
        assert!(problem.starts_with(&place) && problem.contains("cannot be decoded"), "{problem}");
    }
}

#[tokio::test]
async fn verify_names_entries_of_an_unknown_bucket() {
    let (world, _) = filled_store().await;
    let mut domains = PartitionStream::new(&*world.tables, &BUCKETS, std::num::NonZeroUsize::MIN);
    while let Some(domain) = domains.next().await.unwrap() {
        let scan = Scan::new(domain, std::num::NonZeroUsize::new(100).unwrap());
        for row in world.tables.scan(&BUCKETS, scan).await.unwrap().items {
            world.tables.swap(Vec::new(), &BUCKETS, &row.key, Some(&row), None).await.unwrap();
        }
    }
    let problems = verify(&world).await.problems;
    let unknown =
        |key| format!("an entry under the key {key}: its bucket neither exists nor is being deleted");
    assert!(problems.contains(&unknown("a")) && problems.contains(&unknown("n")), "{problems:?}");
}

#[tokio::test]
async fn verify_names_a_changed_chunk() {
    let (world, _) = filled_store().await;
    let mut sets = PartitionStream::new(&*world.tables, &CHUNKS, std::num::NonZeroUsize::MIN);
    let set = sets.next().await.unwrap().unwrap();
    let mut batch = Batch::new(set);
    let frame = rashomon_records::content::compress(&[2; 1_000_000]);
    let later = rashomon_clock::Timestamp::from_micros(1_900_000_000_000_000);
    batch.put(&CHUNKS, vec![Value::Int(1)], vec![Some(frame.to_value())], later);
    world.tables.write(Vec::new(), batch).await.unwrap();
    let [problem] = verify(&world).await.problems.try_into().unwrap();
    assert!(problem.contains("key b: the body differs"), "{problem}");
}
