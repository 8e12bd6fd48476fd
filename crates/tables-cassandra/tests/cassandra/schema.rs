//! Tests with tables that already exist in the cluster: created by the statements of `ddl`, changed by hand, or of
//! other versions.

use std::{collections::HashMap, num::NonZeroUsize, sync::LazyLock, time::Duration};

use rashomon_tables::{
    Batch, ColumnType, Direction, Error, Mutation, Row, Scan, Schema, Swap, TableStore, contract::block_on,
};
use rashomon_tables_cassandra::ddl;
use scylla::client::session::Session;

use crate::fixtures::{Keyspace, key, pages, system_clock, system_time, values};

static PAGES: LazyLock<Schema> = LazyLock::new(|| pages("pages").build());
static GROWN: LazyLock<Schema> =
    LazyLock::new(|| pages("pages").value("size", ColumnType::Int).version(2).build());
static HEADS: LazyLock<Schema> = LazyLock::new(|| pages("heads").swap_only().build());
static GROWN_HEADS: LazyLock<Schema> =
    LazyLock::new(|| pages("heads").value("size", ColumnType::Int).swap_only().version(2).build());
static LATER: LazyLock<Schema> = LazyLock::new(|| pages("later").build());
/// A table whose names are reserved words of CQL.
static WORDS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("table")
        .partition("select", ColumnType::Text)
        .partition("token", ColumnType::Int)
        .clustering("order", ColumnType::TimeUuid, Direction::Ascending)
        .clustering("timestamp", ColumnType::Timestamp, Direction::Descending)
        .value("index", ColumnType::Blob)
        .value("set", ColumnType::Text)
        .default_ttl(Duration::from_secs(60))
        .build()
});

async fn run(session: &Session, statement: String) {
    session
        .query_unpaged(statement.as_str(), ())
        .await
        .unwrap_or_else(|error| panic!("{statement}: {error}"));
}

/// The tables of a keyspace, each with the time of its last change.
async fn tables_of(session: &Session, keyspace: &str) -> Vec<(String, i64)> {
    let text = "SELECT table_name, WRITETIME(comment) FROM system_schema.tables WHERE keyspace_name = ?";
    let answer = session.query_unpaged(text, (keyspace,)).await.expect("read");
    let rows = answer.into_rows_result().expect("rows");
    rows.rows::<(String, i64)>().expect("rows").map(|row| row.expect("a row")).collect()
}

/// The store accepts the tables that the printed statements create, and does not change them. The statements can be
/// executed again.
#[test]
fn printed_tables_are_accepted_by_the_store() {
    let Some(keyspace) = Keyspace::new() else { return };
    let schemas: [&'static Schema; 3] = [&PAGES, &HEADS, &WORDS];
    block_on(async {
        let session = keyspace.session().await;
        let text = ddl(&schemas, &keyspace.options());
        for _ in 0..2 {
            let lines = text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
            for statement in lines.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
                run(&session, statement.to_owned()).await;
            }
        }
        let store = keyspace.connect(system_clock()).await;
        let before = tables_of(&session, keyspace.name()).await;
        assert_eq!(before.len(), schemas.len());
        for schema in schemas {
            store.create(schema).await.expect("it exists");
        }
        assert_eq!(tables_of(&session, keyspace.name()).await, before, "a table was created or changed");
        // Tables that the store creates itself have the printed compaction.
        assert!(store.upgrade(&GROWN_HEADS).await.expect("a column is added"));
        store.create(&LATER).await.expect("made");
        let text = "SELECT table_name, compaction FROM system_schema.tables WHERE keyspace_name = ?";
        let answer = session.query_unpaged(text, (keyspace.name(),)).await.expect("read");
        let answer = answer.into_rows_result().expect("rows");
        assert_eq!(answer.rows_num(), 4);
        for row in answer.rows::<(String, HashMap<String, String>)>().expect("rows") {
            let (table, compaction) = row.expect("a row");
            assert!(compaction["class"].ends_with("UnifiedCompactionStrategy"), "{table}: {compaction:?}");
            assert_eq!(compaction["scaling_parameters"], "L10", "{table}");
        }
    });
}

#[test]
fn a_table_that_was_changed_by_hand_is_refused() {
    let Some(keyspace) = Keyspace::new() else { return };
    block_on(async {
        let store = keyspace.connect(system_clock()).await;
        store.create(&PAGES).await.expect("created");
        let name = keyspace.name();
        run(&keyspace.session().await, format!("ALTER TABLE {name}.pages ADD surprise text")).await;
        let store = keyspace.connect(system_clock()).await;
        let refused = store.create(&PAGES).await;
        let Err(Error::Unsupported(message)) = refused else { panic!("{refused:?}") };
        assert!(message.contains("surprise"), "{message}");
    });
}

#[test]
fn interrupted_change_is_completed() {
    let Some(keyspace) = Keyspace::new() else { return };
    block_on(async {
        let session = keyspace.session().await;
        let name = keyspace.name();
        let store = keyspace.connect(system_clock()).await;
        run(&session, format!("CREATE TYPE {name}.heads_cell (expires_at bigint, written_at bigint)")).await;
        store.create(&HEADS).await.expect("the rest is made");
        store.create(&PAGES).await.expect("created");
        run(&session, format!("ALTER TYPE {name}.pages_cell ADD size bigint")).await;
        let store = keyspace.connect(system_clock()).await;
        store.create(&PAGES).await.expect("it is as it was, until the change is done");
        assert!(store.upgrade(&GROWN).await.expect("the change is done"));
        assert!(!store.upgrade(&GROWN).await.expect("nothing is left to do"));
        store.create(&GROWN).await.expect("it has the column");
        let refused = keyspace.connect(system_clock()).await.create(&PAGES).await;
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    });
}

/// Only an upgrade adds columns. An upgrade creates no tables.
#[test]
fn table_without_columns_is_refused_and_the_command_is_named() {
    let Some(keyspace) = Keyspace::new() else { return };
    block_on(async {
        let session = keyspace.session().await;
        let store = keyspace.connect(system_clock()).await;
        assert!(!store.upgrade(&GROWN).await.expect("there is no table"));
        assert_eq!(tables_of(&session, keyspace.name()).await, []);
        store.create(&PAGES).await.expect("created");
        let before = tables_of(&session, keyspace.name()).await;
        let refused = keyspace.connect(system_clock()).await.create(&GROWN).await;
        let Err(Error::Unsupported(message)) = refused else { panic!("{refused:?}") };
        let command = format!("rashomon upgrade --store cassandra://{}/{}", keyspace.node(), keyspace.name());
        assert!(message.contains("table pages lacks columns") && message.contains(&command), "{message}");
        assert_eq!(tables_of(&session, keyspace.name()).await, before);
        keyspace.connect(system_clock()).await.create(&PAGES).await.expect("it is as it was");
    });
}

/// A cell with fewer fields than its type is compared and swapped like any other cell.
#[test]
fn rows_from_before_a_change_can_be_swapped() {
    let Some(keyspace) = Keyspace::new() else { return };
    block_on(async {
        let store = keyspace.connect(system_clock()).await;
        store.create(&HEADS).await.expect("created");
        let key = key("page", 1);
        let row = |values| Row { key: key.clone(), values, written_at: system_time(), expires_at: None };
        let swap = store.swap(Vec::new(), &HEADS, &key, None, Some(row(values(1)))).await.expect("answered");
        assert_eq!(swap, Swap::Applied);
        assert!(store.upgrade(&GROWN_HEADS).await.expect("a column is added"));
        store.create(&GROWN_HEADS).await.expect("it has the column");
        let longer = |number, size| [values(number), vec![size]].concat();
        let expected = row(longer(1, None));
        let new = row(longer(2, Some(7.into())));
        let swap =
            store.swap(Vec::new(), &GROWN_HEADS, &key, Some(&expected), Some(new)).await.expect("answered");
        assert_eq!(swap, Swap::Applied);
        let found = store.get(&GROWN_HEADS, &key).await.expect("read").expect("a row");
        assert_eq!(found.values, longer(2, Some(7.into())));
    });
}

/// A process with the older schema continues to read and write after another process has added a column.
#[test]
fn older_process_continues_beside_newer_one() {
    let Some(keyspace) = Keyspace::new() else { return };
    block_on(async {
        let old = keyspace.connect(system_clock()).await;
        let new = keyspace.connect(system_clock()).await;
        let put = |schema: &'static Schema, rev: i64, values| {
            let mut batch = Batch::new(vec!["page".into()]);
            batch.put(schema, vec![rev.into()], values, system_time());
            batch.put(schema, vec![(rev + 100).into()], vec![None; schema.values().len()], system_time());
            batch
        };
        old.create(&PAGES).await.expect("created");
        old.write(Vec::new(), put(&PAGES, 1, values(1))).await.expect("written");
        let scan = || Scan::new(vec!["page".into()], NonZeroUsize::MAX);
        assert_eq!(old.scan(&PAGES, scan()).await.expect("read").items.len(), 2);
        assert!(new.upgrade(&GROWN).await.expect("a column is added"));
        new.create(&GROWN).await.expect("it has the column");
        let grown = [values(2), vec![Some(7.into())]].concat();
        new.write(Vec::new(), put(&GROWN, 2, grown.clone())).await.expect("written");
        old.write(Vec::new(), put(&PAGES, 3, values(3))).await.expect("written");

        let found = old.get(&PAGES, &key("page", 2)).await.expect("read").expect("a row");
        assert_eq!(found.values, values(2));
        assert_eq!(old.scan(&PAGES, scan()).await.expect("read").items.len(), 6);
        let found = new.get(&GROWN, &key("page", 3)).await.expect("read").expect("a row");
        assert_eq!(found.values, [values(3), vec![None]].concat());
        let found = new.get(&GROWN, &key("page", 2)).await.expect("read").expect("a row");
        assert_eq!(found.values, grown);
    });
}

/// A person can read the values and the times of a row in CQL. Cassandra removes the row some time after its expiry.
#[test]
fn a_row_is_readable_in_cql() {
    let Some(keyspace) = Keyspace::new() else { return };
    block_on(async {
        let store = keyspace.connect(system_clock()).await;
        store.create(&PAGES).await.expect("created");
        let now = system_time();
        let expires_at = now.saturating_add(Duration::from_secs(100));
        let mut batch = Batch::new(vec!["page".into()]);
        batch.mutations.push(Mutation::Put {
            table: &PAGES,
            clustering: vec![1.into()],
            values: values(7),
            written_at: now,
            expires_at: Some(expires_at),
        });
        store.write(Vec::new(), batch).await.expect("written");
        let text = format!(
            "SELECT rev, cell.number, cell.note, cell.expires_at, WRITETIME(cell), TTL(cell) FROM {}.pages",
            keyspace.name()
        );
        let session = keyspace.session().await;
        let answer = session.query_unpaged(text, ()).await.expect("read").into_rows_result().expect("rows");
        let row = answer.single_row::<(i64, i64, String, i64, i64, i32)>().expect("one row");
        assert_eq!((row.0, row.1, row.2.as_str()), (1, 7, "note"));
        assert_eq!((row.3, row.4), (expires_at.as_micros(), now.as_micros()));
        assert!((3600..3800).contains(&row.5), "the TTL is {} s", row.5);
    });
}
