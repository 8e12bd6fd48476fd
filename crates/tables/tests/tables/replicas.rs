//! Tests that the replica store keeps the contract if every write reaches all replicas, and that its reads find partial
//! writes in the same way as reads of a cluster.

use std::{num::NonZeroUsize, sync::Arc, sync::LazyLock, time::Duration};

use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_tables::{
    Batch, ClusteringRange, ColumnType, Direction, Error, Key, Reach, ReplicaStore, Row, Scan, Schema, Swap,
    TableStore, contract,
};

mod keeps_the_contract {
    use super::*;

    fn open(clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
        Arc::new(ReplicaStore::new(&clock, Duration::ZERO))
    }

    rashomon_tables::contract_tests!(open);

    #[test]
    fn with_random_operations() {
        contract::random::assert_matches_memory(32, || open);
    }
}

static ROWS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("rows")
        .partition("page", ColumnType::Text)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .value("number", ColumnType::Int)
        .build()
});

const START: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);
const MAX_SCAN_ROWS: NonZeroUsize = NonZeroUsize::new(10).unwrap();
const ONLY_FIRST: Reach = [true, false, false];

async fn store() -> ReplicaStore {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(START));
    let store = ReplicaStore::new(&clock, Duration::from_secs(7));
    store.create(&ROWS).await.unwrap();
    store
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(START.as_micros() + micros)
}

fn batch(change: impl FnOnce(&mut Batch)) -> Batch {
    let mut batch = Batch::new(vec!["page".into()]);
    change(&mut batch);
    batch
}

async fn put(store: &ReplicaStore, rev: i64, written_at: Timestamp) -> rashomon_tables::Result<()> {
    let put = batch(|batch| batch.put(&ROWS, vec![rev.into()], vec![Some(rev.into())], written_at));
    store.write(Vec::new(), put).await
}

/// Reads the revisions from the quorum without this replica.
async fn revs_without(store: &ReplicaStore, replica: usize) -> Vec<i64> {
    store.read_without(replica);
    revs(store, Scan::new(vec!["page".into()], MAX_SCAN_ROWS)).await
}

async fn revs(store: &ReplicaStore, scan: Scan) -> Vec<i64> {
    let result = store.scan(&ROWS, scan).await.unwrap();
    let rev = |row: rashomon_tables::Row| match row.key.clustering[0] {
        rashomon_tables::Value::Int(rev) => rev,
        _ => panic!("another type"),
    };
    result.items.into_iter().map(rev).collect()
}

#[tokio::test]
async fn write_on_one_replica_is_unacknowledged_and_invisible_to_the_others() {
    let store = store().await;
    store.set_plan(|_| ONLY_FIRST);
    let refused = put(&store, 1, at(0)).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert_eq!(revs_without(&store, 0).await, Vec::<i64>::new());
    assert!(store.has_incomplete_batches());
    store.spread().await.unwrap();
    assert!(!store.has_incomplete_batches());
    assert_eq!(revs_without(&store, 0).await, [1]);
}

#[tokio::test]
async fn hints_are_delivered_and_lost_separately_from_partial_writes() {
    let store = store().await;
    let mut reaches = [ONLY_FIRST, [false; 3], [false; 3]].into_iter();
    store.set_plan(move |_| reaches.next().unwrap());
    put(&store, 1, at(0)).await.unwrap_err();
    put(&store, 2, at(0)).await.unwrap_err();
    assert!(store.has_hints());
    store.deliver_hints().await.unwrap();
    assert!(!store.has_hints() && store.has_incomplete_batches());
    assert_eq!(revs_without(&store, 0).await, [2]);
    put(&store, 3, at(0)).await.unwrap_err();
    store.lose_hints();
    store.spread().await.unwrap();
    assert_eq!(revs_without(&store, 0).await, [2, 1]);
}

/// The row of a swap is set only after a quorum has all batches of the swap.
#[tokio::test]
async fn swap_after_an_unacknowledged_batch_does_not_happen() {
    static HEADS: LazyLock<Schema> =
        LazyLock::new(|| Schema::builder("heads").partition("page", ColumnType::Text).swap_only().build());
    let store = store().await;
    store.create(&HEADS).await.unwrap();
    let key = Key::new(vec!["page".into()], Vec::new());
    let row = Row { key: key.clone(), values: Vec::new(), written_at: at(0), expires_at: None };
    let first =
        |rev: i64| vec![batch(|batch| batch.put(&ROWS, vec![rev.into()], vec![Some(rev.into())], at(rev)))];
    store.set_plan(|_| ONLY_FIRST);
    let refused = store.swap(first(1), &HEADS, &key, None, Some(row.clone())).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert_eq!(store.get(&HEADS, &key).await.unwrap(), None);
    store.set_plan(|_| [true, true, false]);
    let applied = store.swap(first(2), &HEADS, &key, None, Some(row)).await.unwrap();
    assert_eq!(applied, Swap::Applied);
    assert!(store.get(&HEADS, &key).await.unwrap().is_some());
    assert_eq!(revs_without(&store, 0).await, [2]);
}

#[tokio::test]
async fn write_on_two_replicas_is_acknowledged_and_visible_to_every_quorum() {
    let store = store().await;
    store.set_plan(|_| [true, true, false]);
    put(&store, 1, at(0)).await.unwrap();
    for replica in 0..3 {
        assert_eq!(revs_without(&store, replica).await, [1]);
    }
}

#[tokio::test]
async fn read_of_all_replicas_finds_a_partial_write_and_repairs_it() {
    let store = store().await;
    put(&store, 1, at(0)).await.unwrap();
    put(&store, 2, at(0)).await.unwrap();
    store.set_plan(|_| ONLY_FIRST);
    put(&store, 3, at(1)).await.unwrap_err();
    let delete = batch(|batch| batch.delete_range(&ROWS, ClusteringRange::all().at_most(2), at(0)));
    store.write(Vec::new(), delete).await.unwrap_err();
    assert_eq!(revs_without(&store, 0).await, [2, 1]);
    let scan = Scan::new(vec!["page".into()], MAX_SCAN_ROWS).from_all_replicas();
    assert_eq!(revs(&store, scan).await, [3]);
    assert_eq!(revs_without(&store, 0).await, [3]);
}

/// As in Cassandra, rows that one quorum has returned are returned by every later quorum.
#[tokio::test]
async fn quorum_read_repairs_the_rows_that_it_returns() {
    let store = store().await;
    store.set_plan(|_| ONLY_FIRST);
    put(&store, 1, at(0)).await.unwrap_err();
    assert_eq!(revs_without(&store, 1).await, [1]);
    assert_eq!(revs_without(&store, 0).await, [1]);
}

#[tokio::test]
async fn partial_delete_hides_an_older_row_that_spreads_later() {
    let store = store().await;
    store.set_plan(|_| ONLY_FIRST);
    put(&store, 1, at(0)).await.unwrap_err();
    store.set_plan(|_| [false, true, true]);
    let delete = batch(|batch| batch.delete(&ROWS, vec![1.into()], at(1)));
    store.write(Vec::new(), delete).await.unwrap();
    store.spread().await.unwrap();
    for replica in 0..3 {
        assert_eq!(revs_without(&store, replica).await, Vec::<i64>::new());
    }
}

#[tokio::test]
async fn read_of_all_replicas_is_unavailable_while_one_is_unreachable() {
    let store = store().await;
    put(&store, 1, at(0)).await.unwrap();
    store.set_unreachable(Some(2));
    let scan = Scan::new(vec!["page".into()], MAX_SCAN_ROWS).from_all_replicas();
    let answer = store.scan(&ROWS, scan.clone()).await;
    assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    assert!(store.get(&ROWS, &Key::new(vec!["page".into()], vec![1.into()])).await.unwrap().is_some());
    store.set_unreachable(None);
    assert_eq!(revs(&store, scan).await, [1]);
    assert_eq!(store.late_write_window().await.unwrap(), Duration::from_secs(7));
}
