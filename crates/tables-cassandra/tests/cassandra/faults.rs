//! Tests of a cluster that is missing, that disappears, and that comes back.

use std::{sync::LazyLock, time::Duration};

use rashomon_tables::{Batch, Error, Schema, TableStore, contract::block_on};
use rashomon_tables_cassandra::{CassandraStore, Options};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::fixtures::{Keyspace, key, pages, system_clock, system_time, values};

static PAGES: LazyLock<Schema> = LazyLock::new(|| pages("pages").build());

/// The maximum time until an operator gets an error, for every cause.
const MAX_ERROR_DELAY: Duration = Duration::from_secs(5);

/// A proxy between the store and the node. A test can cut its connections.
struct Proxy {
    address: String,
    open: watch::Sender<bool>,
}

impl Proxy {
    async fn to(node: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has one").to_string();
        let (open, watched) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (node, mut watched) = (node.clone(), watched.clone());
                tokio::spawn(async move {
                    if !*watched.borrow() {
                        return;
                    }
                    let Ok(mut server) = TcpStream::connect(node).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = watched.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Self { address, open }
    }
}

/// The error names the contact points.
#[test]
fn missing_cluster_is_reported_soon() {
    block_on(async {
        let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let refusing = closed.local_addr().expect("it has one").to_string();
        drop(closed);
        // This listener accepts connections, and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let silent = silent.local_addr().map(|address| (silent, address.to_string())).expect("it has one");
        for contact_points in [vec![refusing.clone()], vec![silent.1.clone()], vec![refusing, silent.1]] {
            let options = Options { contact_points: contact_points.clone(), ..Options::default() };
            let connecting = CassandraStore::connect(options, system_clock());
            let answer = tokio::time::timeout(MAX_ERROR_DELAY, connecting).await.expect("an answer in time");
            let Err(Error::Unavailable(outage)) = answer else { panic!("{answer:?}") };
            let message = outage.to_string();
            for point in contact_points {
                assert!(message.contains(&point), "{message}");
            }
        }
    });
}

/// A client that connects to a cluster may wait for a hanging node twice: as a contact point, and as a member of the
/// cluster. The client still has to find the other nodes in time.
#[test]
fn silent_node_is_given_up_in_less_than_half_of_the_time() {
    block_on(async {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let options = Options {
            contact_points: vec![silent.local_addr().expect("it has one").to_string()],
            request_timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(8),
            ..Options::default()
        };
        let half = options.connect_timeout / 2;
        let connecting = CassandraStore::connect(options, system_clock());
        let answer = tokio::time::timeout(half, connecting).await.expect("an answer in time");
        assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    });
}

/// While the cluster is down, calls soon return `Unavailable`. When the cluster is up again, calls of the same store
/// succeed.
#[test]
fn a_store_recovers_when_the_cluster_does() {
    let Some(keyspace) = Keyspace::new() else { return };
    block_on(async {
        let proxy = Proxy::to(keyspace.node().to_owned()).await;
        let options = Options {
            contact_points: vec![proxy.address.clone()],
            request_timeout: Options::default().request_timeout,
            ..keyspace.options()
        };
        let store = CassandraStore::connect(options, system_clock()).await.expect("it is there");
        store.create(&PAGES).await.expect("created");
        let write = || {
            let mut batch = Batch::new(vec!["page".into()]);
            batch.put(&PAGES, vec![1.into()], values(1), system_time());
            store.write(Vec::new(), batch)
        };
        write().await.expect("written");
        proxy.open.send_replace(false);
        for _ in 0..3 {
            let written = tokio::time::timeout(MAX_ERROR_DELAY, write()).await.expect("an answer in time");
            assert!(matches!(written, Err(Error::Unavailable(_))), "{written:?}");
            let key = key("page", 1);
            let read = tokio::time::timeout(MAX_ERROR_DELAY, store.get(&PAGES, &key)).await.expect("in time");
            assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
        }
        proxy.open.send_replace(true);
        let recovered = async {
            while write().await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), recovered).await.expect("it recovers");
        assert!(store.get(&PAGES, &key("page", 1)).await.expect("read").is_some());
    });
}
