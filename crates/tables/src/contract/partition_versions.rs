//! Promises about partition versions, if a store has them: a cache that uses them never serves stale values.

use std::{
    sync::Arc,
    sync::{
        LazyLock,
        atomic::{AtomicI64, Ordering},
    },
};

use super::{
    Factory,
    fixtures::{World, key, limit, numbered, plain},
};
use crate::{Batch, Row, Scan, Schema, Swap, TableStore, Value, VersionedRead};

static PAGES: LazyLock<Schema> = LazyLock::new(|| plain("pages").build());
static HEADS: LazyLock<Schema> = LazyLock::new(|| plain("heads").swap_only().build());

/// The version of a partition changes with every write and every swap of the partition, and not with reads.
pub async fn partition_version_changes_with_writes_and_not_with_reads(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES, &HEADS]).await;
    let Some(partition_versions) = world.store.partition_versions() else { return };
    let key = key("page", "a");
    let slot = partition_versions.slot(&key.partition);
    let mut seen = vec![partition_versions.current(slot).expect("no commit is in progress")];
    let mut changed = || {
        let now = partition_versions.current(slot).expect("an acknowledged commit has ended");
        let new = !seen.contains(&now);
        seen.push(now);
        new
    };

    world.put(&PAGES, &key, numbered(1)).await;
    assert!(changed(), "not changed by a put");
    world.get(&PAGES, &key).await;
    world.scan(&PAGES, Scan::new(key.partition.clone(), limit(1))).await;
    world.partitions(&PAGES, limit(1)).await;
    assert!(!changed(), "changed by reads");

    let mut first = Batch::new(key.partition.clone());
    first.delete(&PAGES, key.clustering.clone(), world.tick());
    let mut then = Batch::new(vec!["elsewhere".into()]);
    then.put(&PAGES, key.clustering.clone(), numbered(2), world.tick());
    let elsewhere = partition_versions.slot(&then.partition);
    let before = partition_versions.current(elsewhere);
    world.store.write(vec![first], then).await.expect("written");
    assert!(changed(), "not changed by a delete in `first`");
    assert_ne!(
        partition_versions.current(elsewhere),
        before,
        "not changed by a put in `then`, in another partition"
    );

    let row = Row { key: key.clone(), values: numbered(1), written_at: world.now(), expires_at: None };
    let swap = world.store.swap(Vec::new(), &HEADS, &key, None, Some(row.clone())).await.expect("answered");
    assert_eq!(swap, Swap::Applied);
    assert!(changed(), "not changed by a swap");

    for (row_expected, swap_expected) in [(Some(&row), Swap::Applied), (Some(&row), refused())] {
        let mut first = Batch::new(vec!["elsewhere".into()]);
        first.put(&PAGES, key.clustering.clone(), numbered(3), world.tick());
        let before = partition_versions.current(elsewhere);
        let swap = world.store.swap(vec![first], &HEADS, &key, row_expected, None).await.expect("answered");
        assert_eq!(swap, swap_expected);
        assert_ne!(
            partition_versions.current(elsewhere),
            before,
            "not changed by a put in `first` of a swap, in another partition"
        );
    }
}

const fn refused() -> Swap {
    Swap::Refused { current: None }
}

/// A cache that follows the rule of [`crate::PartitionVersions`] never serves a value that is older than the
/// last acknowledged value, or older than the value of an earlier read.
pub async fn values_cached_by_partition_version_are_never_stale(factory: &dyn Factory) {
    const WRITES: i64 = 300;
    let world = World::new(factory, &[&PAGES]).await;
    if world.store.partition_versions().is_none() {
        return;
    }
    let acknowledged = Arc::new(AtomicI64::new(-1));
    let writer = tokio::spawn({
        let (store, clock, acknowledged) = (world.store.clone(), world.clock.clone(), acknowledged.clone());
        async move {
            for number in 0..WRITES {
                clock.advance(std::time::Duration::from_micros(1));
                let mut batch = Batch::new(vec!["page".into()]);
                batch.put(&PAGES, vec!["a".into()], numbered(number), rashomon_clock::Clock::now(&*clock));
                store.write(Vec::new(), batch).await.expect("written");
                acknowledged.store(number, Ordering::SeqCst);
            }
        }
    });
    let mut kept = None;
    loop {
        let ended = writer.is_finished();
        let asked = acknowledged.load(Ordering::SeqCst);
        let read = number_of(&*world.store).await;
        let served = read_cached(&*world.store, &mut kept).await;
        assert!(served >= asked, "{served} was served when {asked} was acknowledged");
        assert!(served >= read, "{served} was served when {read} had been read");
        if ended {
            break;
        }
        tokio::task::yield_now().await;
    }
    writer.await.expect("every write was acknowledged");
}

/// Returns the number in the row: the cached number if its version is still current. Otherwise reads the row,
/// and caches the number if the rule allows it.
async fn read_cached(store: &dyn TableStore, kept: &mut Option<(u64, i64)>) -> i64 {
    let partition_versions = store.partition_versions().expect("the store has partition versions");
    let slot = partition_versions.slot(&["page".into()]);
    if let Some((version, number)) = *kept
        && version == partition_versions.published(slot)
    {
        return number;
    }
    let read = partition_versions.begin_read(&["page".into()]);
    let number = number_of(store).await;
    *kept = read.filter(VersionedRead::is_current).map(|read| (read.version(), number));
    number
}

/// Reads the number in the row from the store.
async fn number_of(store: &dyn TableStore) -> i64 {
    let row = store.get(&PAGES, &key("page", "a")).await.expect("read");
    match row.as_ref().map(|row| &row.values[..]) {
        Some([Some(Value::Int(number)), _]) => *number,
        _ => -1,
    }
}
