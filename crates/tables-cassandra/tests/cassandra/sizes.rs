//! Tests with large partitions and large rows.

use std::{num::NonZeroUsize, sync::LazyLock};

use bytes::Bytes;
use rashomon_tables::{
    Batch, ClusteringRange, ColumnType, Direction, MAX_VALUE_BYTES, Scan, Schema, TableStore, Value,
    contract::block_on,
};

use crate::fixtures::{Keyspace, pages, system_clock, system_time, values};

static INDEX: LazyLock<Schema> = LazyLock::new(|| pages("revisions").build());
static CHUNKS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("chunks")
        .partition("chunk_set", ColumnType::Blob)
        .clustering("number", ColumnType::Int, Direction::Ascending)
        .value("value", ColumnType::Blob)
        .build()
});

fn rows(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).expect("above 0")
}

/// The chunks of a body of 64 MiB are written one after the other. They are read in result pages that are limited in
/// bytes, even if more rows are requested.
#[test]
fn large_body_is_read_in_bounded_pages() {
    const COUNT: usize = 64;
    let Some(keyspace) = Keyspace::new() else { return };
    let chunk = |number: usize| {
        let bytes: Vec<u8> = (0..MAX_VALUE_BYTES).map(|at| ((at * (number + 7)) >> 5) as u8).collect();
        Value::Blob(Bytes::from(bytes))
    };
    let set = || vec![Value::Blob(Bytes::from_static(b"set"))];
    block_on(async {
        let store = keyspace.connect(system_clock()).await;
        store.create(&CHUNKS).await.expect("created");
        for number in 0..COUNT {
            let mut batch = Batch::new(set());
            batch.put(&CHUNKS, vec![(number as i64).into()], vec![Some(chunk(number))], system_time());
            store.write(Vec::new(), batch).await.expect("written");
        }
        let mut scan = Scan::new(set(), rows(COUNT));
        let (mut seen, mut most) = (0, 0);
        loop {
            let page = store.scan(&CHUNKS, scan.clone()).await.expect("read");
            most = most.max(page.items.len());
            for row in page.items {
                assert!(row.values == [Some(chunk(seen))], "chunk {seen} was read with other bytes");
                seen += 1;
            }
            let Some(next) = page.next else { break };
            scan.after = Some(next);
        }
        assert_eq!((seen, most), (COUNT, Scan::DEFAULT_MAX_BYTES / MAX_VALUE_BYTES));
    });
}

/// One read returns the newest revision, even after a large cull. All revisions can be listed.
#[test]
#[ignore = "writes a million rows, which takes minutes"]
fn a_partition_may_have_a_million_rows() {
    const COUNT: i64 = 1_000_000;
    const BATCH: i64 = 1_000;
    let Some(keyspace) = Keyspace::new() else { return };
    let page = || vec![Value::from("page")];
    block_on(async {
        let store = keyspace.connect(system_clock()).await;
        store.create(&INDEX).await.expect("created");
        for first in (0..COUNT).step_by(BATCH as usize) {
            let mut batch = Batch::new(page());
            for rev in first..first + BATCH {
                batch.put(&INDEX, vec![rev.into()], values(rev), system_time());
            }
            store.write(Vec::new(), batch).await.expect("written");
        }
        let newest = async || {
            let scan = Scan::new(page(), NonZeroUsize::MIN);
            store.scan(&INDEX, scan).await.expect("read").items.remove(0).key.clustering
        };
        assert_eq!(newest().await, [Value::Int(COUNT - 1)]);
        let count = async || {
            let mut scan = Scan::new(page(), rows(1_000));
            let mut revisions = 0;
            loop {
                let page = store.scan(&INDEX, scan).await.expect("read");
                revisions += page.items.len();
                let Some(next) = page.next else { return revisions as i64 };
                scan = Scan::new(vec!["page".into()], rows(1_000)).after(Some(next));
            }
        };
        assert_eq!(count().await, COUNT);
        let mut batch = Batch::new(page());
        batch.delete_range(&INDEX, ClusteringRange::all().below(COUNT / 2), system_time());
        store.write(Vec::new(), batch).await.expect("written");
        assert_eq!(newest().await, [Value::Int(COUNT - 1)]);
        assert_eq!(count().await, COUNT / 2);
    });
}
