//! Tests of passwords, rights, certificates and compression.

use std::{path::PathBuf, sync::LazyLock};

use rashomon_tables::{Batch, Error, Result, Row, Schema, Swap, TableStore, contract::block_on};
use rashomon_tables_cassandra::{CassandraStore, Compression, Credentials, Options};

use crate::fixtures::{Keyspace, key, pages, skip, system_clock, system_time, values};

static PAGES: LazyLock<Schema> = LazyLock::new(|| pages("pages").build());
static HEADS: LazyLock<Schema> = LazyLock::new(|| pages("heads").swap_only().build());
static LATER: LazyLock<Schema> = LazyLock::new(|| pages("later").build());

/// The environment variable with the path of a PEM file, which has the certificate of the node.
const AUTHORITIES: &str = "RASHOMON_TEST_CASSANDRA_AUTHORITIES";

async fn connect(options: Options) -> Result<CassandraStore> {
    CassandraStore::connect(options, system_clock()).await
}

/// Writes, reads and swaps.
async fn use_tables(store: &CassandraStore) {
    for table in [&PAGES, &HEADS] {
        store.create(table).await.expect("the table exists or is created");
    }
    let mut batch = Batch::new(vec!["page".into()]);
    batch.put(&PAGES, vec![1.into()], values(1), system_time());
    batch.delete(&PAGES, vec![2.into()], system_time());
    store.write(Vec::new(), batch).await.expect("written");
    let key = key("page", 1);
    assert!(store.get(&PAGES, &key).await.expect("read").is_some());
    let existing = store.get(&HEADS, &key).await.expect("read");
    let new = Row { key: key.clone(), values: values(7), written_at: system_time(), expires_at: None };
    let swap = store.swap(Vec::new(), &HEADS, &key, existing.as_ref(), Some(new)).await.expect("answered");
    assert_eq!(swap, Swap::Applied);
}

/// Whether the node asks for a password. The node of the build server asks for one. A node that was not started
/// for these tests may ask for none.
async fn asks_for_a_password(keyspace: &Keyspace) -> bool {
    let asks = connect(Options { credentials: None, ..keyspace.options() }).await.is_err();
    if !asks {
        skip("the node asks for no password");
    }
    asks
}

#[test]
fn wrong_password_is_reported() {
    let Some(keyspace) = Keyspace::new() else { return };
    block_on(async {
        if !asks_for_a_password(&keyspace).await {
            return;
        }
        let credentials = Credentials { user: "cassandra".to_owned(), password: "wrong".to_owned() };
        let refused = connect(Options { credentials: Some(credentials), ..keyspace.options() }).await;
        let Err(Error::Unsupported(message)) = refused else { panic!("{refused:?}") };
        assert!(message.contains("user cassandra") && message.contains(keyspace.node()), "{message}");
        let refused = connect(Options { credentials: None, ..keyspace.options() }).await;
        let Err(Error::Unsupported(message)) = refused else { panic!("{refused:?}") };
        assert!(message.contains("asks for a user"), "{message}");
    });
}

/// A wrong password is reported in any order of the contact points.
#[test]
fn wrong_password_is_reported_beside_missing_nodes() {
    let Some(keyspace) = Keyspace::new() else { return };
    block_on(async {
        if !asks_for_a_password(&keyspace).await {
            return;
        }
        let [closed, node, other_closed] = ["127.0.0.1:1", keyspace.node(), "127.0.0.1:2"].map(str::to_owned);
        for contact_points in [
            vec![closed.clone(), node.clone()],
            vec![node.clone(), closed.clone()],
            vec![closed, node, other_closed],
        ] {
            let credentials = Credentials { user: "cassandra".to_owned(), password: "wrong".to_owned() };
            let options = Options { credentials: Some(credentials), contact_points, ..keyspace.options() };
            let refused = connect(options).await;
            let Err(Error::Unsupported(message)) = refused else { panic!("{refused:?}") };
            assert!(message.contains("user cassandra"), "{message}");
        }
    });
}

/// An administrator creates the tables. The service only reads and writes, and reports a missing table.
#[test]
fn right_to_create_tables_is_not_needed() {
    let Some(keyspace) = Keyspace::new() else { return };
    block_on(async {
        if !asks_for_a_password(&keyspace).await {
            return;
        }
        let (session, name) = (keyspace.session().await, keyspace.name());
        let credentials = Credentials { user: name.to_owned(), password: "little".to_owned() };
        let options = Options { credentials: Some(credentials), ..keyspace.options() };
        let role = format!("CREATE ROLE {name} WITH PASSWORD = 'little' AND LOGIN = true");
        session.query_unpaged(role, ()).await.expect("a role");
        let refused = connect(options.clone()).await;
        let Err(Error::Unsupported(message)) = refused else { panic!("{refused:?}") };
        assert!(message.contains(name) && message.contains("rashomon cassandra schema"), "{message}");

        use_tables(&connect(keyspace.options()).await.expect("the user has all rights")).await;
        for right in ["SELECT", "MODIFY"] {
            let grant = format!("GRANT {right} ON KEYSPACE {name} TO {name}");
            session.query_unpaged(grant, ()).await.expect("granted");
        }
        let store = connect(options).await.expect("the keyspace is there");
        use_tables(&store).await;
        let refused = store.create(&LATER).await;
        let Err(Error::Unsupported(message)) = refused else { panic!("{refused:?}") };
        assert!(message.contains("later") && message.contains("rashomon cassandra schema"), "{message}");
        session.query_unpaged(format!("DROP ROLE {name}"), ()).await.expect("dropped");
    });
}

#[test]
fn encrypted_connection_requires_a_trusted_certificate() {
    let Some(keyspace) = Keyspace::new() else { return };
    let Some(authorities) = std::env::var_os(AUTHORITIES).map(PathBuf::from) else {
        return skip(&format!("{AUTHORITIES} names no certificate"));
    };
    block_on(async {
        let with = |tls: PathBuf| Options { tls: Some(tls), ..keyspace.options() };
        use_tables(&connect(with(authorities.clone())).await.expect("the certificate is trusted")).await;

        let stranger =
            PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cassandra/data/stranger.pem"));
        let refused = connect(with(stranger)).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        let missing = connect(with(authorities.with_extension("missing"))).await;
        assert!(matches!(missing, Err(Error::Unsupported(_))), "{missing:?}");
    });
}

#[test]
fn traffic_can_be_compressed() {
    let Some(keyspace) = Keyspace::new() else { return };
    block_on(async {
        for compression in [Compression::Lz4, Compression::Snappy] {
            let options = Options { compression: Some(compression), ..keyspace.options() };
            use_tables(&connect(options).await.expect("the node accepts the compression")).await;
        }
    });
}
