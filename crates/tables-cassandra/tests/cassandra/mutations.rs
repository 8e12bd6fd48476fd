//! Tests how Cassandra applies a write, by its own metrics and traces.

use std::{
    num::NonZeroUsize,
    sync::{Arc, LazyLock},
    time::Duration,
};

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, ClusteringRange, Scan, Schema, TableStore, contract::block_on};

use crate::{
    batches::assert_each_is_one_mutation,
    fixtures::{Keyspace, key, pages, system_clock, system_time, values},
};

static CONTENT: LazyLock<Schema> = LazyLock::new(|| pages("content").build());
static INDEX: LazyLock<Schema> = LazyLock::new(|| pages("content_index").build());
static BY_TIME: LazyLock<Schema> =
    LazyLock::new(|| pages("by_time").default_ttl(Duration::from_secs(60)).build());

/// The maximum number of polls until the node has written all events of a trace, and the pause between two polls.
const MAX_POLLS: usize = 100;
const PAUSE: Duration = Duration::from_millis(100);

fn tables() -> [&'static Schema; 3] {
    [&CONTENT, &INDEX, &BY_TIME]
}

/// A batch like that of a write of a render with a cull: rows in all tables, a delete and two range deletes.
fn write_of(page: &str, now: Timestamp) -> Batch {
    let mut batch = Batch::new(vec![page.into()]);
    for table in tables() {
        for rev in 10..14 {
            batch.put(table, vec![rev.into()], values(rev), now);
        }
    }
    batch.delete(&INDEX, vec![9.into()], now);
    batch.delete_range(&CONTENT, ClusteringRange::all().at_most(5), now);
    batch.delete_range(&BY_TIME, ClusteringRange::all().below(5), now);
    batch
}

#[test]
fn a_batch_is_one_mutation() {
    const WRITES: u64 = 50;
    let Some(keyspace) = Keyspace::new() else { return };
    // Each call has four batches, one for each page. Each batch changes three tables.
    assert_each_is_one_mutation(
        4 * WRITES,
        |arguments| keyspace.nodetool(arguments),
        || {
            block_on(async {
                let store = keyspace.connect(system_clock()).await;
                for table in tables() {
                    store.create(table).await.expect("created, or there");
                }
                for number in 0..WRITES {
                    let page = |what: &str| write_of(&format!("{what} {number}"), system_time());
                    let beside = ["one", "two", "three"].map(page);
                    store.write(beside.into(), page("page")).await.expect("written");
                }
            });
        },
    );
}

/// An absent value makes no tombstone, so a read finds only rows.
#[test]
fn absent_values_leave_no_tombstones() {
    let Some(keyspace) = Keyspace::new() else { return };
    block_on(async {
        let store = keyspace.connect(system_clock()).await;
        store.create(&CONTENT).await.expect("created");
        let mut batch = Batch::new(vec!["page".into()]);
        for rev in 0..10 {
            batch.put(&CONTENT, vec![rev.into()], vec![None, None], system_time());
        }
        store.write(Vec::new(), batch).await.expect("written");
        let session = keyspace.session().await;
        let read = format!("SELECT * FROM {}.content WHERE page = 'page'", keyspace.name());
        let mut statement = scylla::statement::Statement::new(read);
        statement.set_tracing(true);
        let answer = session.query_unpaged(statement, ()).await.expect("read");
        let id = answer.tracing_id().expect("it was traced");
        // The node writes the events of a trace after the answer, one by one.
        let mut events: Vec<String> = Vec::new();
        for _ in 0..MAX_POLLS {
            let trace = session.get_tracing_info(&id).await.expect("a trace");
            events = trace.events.into_iter().filter_map(|event| event.activity).collect();
            if events.iter().any(|event| event.contains(" live rows and ")) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        let counted = events.iter().any(|event| event.contains("Read 10 live rows and 0 tombstone cells"));
        assert!(counted, "{events:#?}");
    });
}

/// A range delete never hides rows with a later write time: not before flushes and a compaction, and not after them.
/// It does not matter whether the delete or the row was written first.
#[test]
fn a_range_delete_spares_later_rows_through_flush_and_compaction() {
    let Some(keyspace) = Keyspace::new() else { return };
    let flush = || keyspace.nodetool(&["flush", keyspace.name()]);
    let before = system_time();
    let cutoff = before.saturating_add(Duration::from_micros(10));
    let after = before.saturating_add(Duration::from_micros(11));
    let put = |store: Arc<dyn TableStore>, rev: i64, written_at| async move {
        let mut batch = Batch::new(vec!["page".into()]);
        batch.put(&CONTENT, vec![rev.into()], values(rev), written_at);
        batch.put(&INDEX, vec![rev.into()], values(rev), written_at);
        store.write(Vec::new(), batch).await.expect("written");
    };
    let left = async |store: &dyn TableStore| {
        let scan = Scan::new(vec!["page".into()], NonZeroUsize::MAX);
        let page = store.scan(&CONTENT, scan).await.expect("read");
        page.items.into_iter().map(|row| row.key).collect::<Vec<_>>()
    };
    let store: Arc<dyn TableStore> = block_on(async {
        let store = keyspace.connect(system_clock()).await;
        for table in [&CONTENT, &INDEX] {
            store.create(table).await.expect("created");
        }
        for rev in 1..=3 {
            put(store.clone(), rev, before).await;
        }
        // The write time of this row is later than that of the delete, but the row arrives before the delete.
        put(store.clone(), 4, after).await;
        store
    });
    drop(store);
    if flush().is_none() {
        return;
    }
    block_on(async {
        let store = keyspace.connect(system_clock()).await;
        store.create(&CONTENT).await.expect("it is there");
        store.create(&INDEX).await.expect("it is there");
        let mut batch = Batch::new(vec!["page".into()]);
        batch.delete_range(&CONTENT, ClusteringRange::all().at_most(4), cutoff);
        store.write(Vec::new(), batch).await.expect("written");
        assert_eq!(left(&*store).await, [key("page", 4)]);
    });
    flush();
    block_on(async {
        let store = keyspace.connect(system_clock()).await;
        store.create(&CONTENT).await.expect("it is there");
        store.create(&INDEX).await.expect("it is there");
        // A row in the deleted range is written again.
        put(store.clone(), 2, after).await;
        assert_eq!(left(&*store).await, [key("page", 4), key("page", 2)]);
    });
    flush();
    keyspace.nodetool(&["compact", keyspace.name(), "content"]);
    block_on(async {
        let store = keyspace.connect(system_clock()).await;
        store.create(&CONTENT).await.expect("it is there");
        assert_eq!(left(&*store).await, [key("page", 4), key("page", 2)]);
    });
}
