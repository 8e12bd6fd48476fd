//! A server of the service, with a store in memory.

use std::{net::SocketAddr, sync::Arc};

use rashomon_client::{Page, Servers, Store};
use rashomon_clock::SystemClock;
use rashomon_entries::KeyValueStore;
use rashomon_pages::RevisionStore;
use rashomon_server::access::{Access, AccessOptions, Grant, NewToken, Policy, Right, TokenStore};
use rashomon_server::{Api, Components, Registry, ServeOptions, Settings, Tls, serve};
use rashomon_tables::Memory;
use tokio::{net::TcpListener, runtime::Handle};

/// A server that runs until the test ends.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    tokens: TokenStore,
}

impl Server {
    /// A server on which everybody may do everything.
    pub(crate) async fn start() -> Self {
        Self::with(Policy::Open, None).await
    }

    pub(crate) async fn with(policy: Policy, tls: Option<Tls>) -> Self {
        let clock = Arc::new(SystemClock::new());
        let tables = Arc::new(Memory::new(clock.clone()));
        let tokens = TokenStore::new(tables.clone(), clock.clone());
        let options = AccessOptions { policy, jwks_file: None, audience: String::new(), stores_uses: false };
        let of_buckets = rashomon_pages::Settings::default();
        let buckets = RevisionStore::open(tables, clock.clone(), of_buckets, 7).await.unwrap();
        let components = Components {
            key_value: KeyValueStore::new(Arc::clone(buckets.parts().records), Default::default()),
            buckets,
            access: Arc::new(Access::new(options, tokens.clone(), clock.clone()).unwrap()),
            clock,
            seed: 7,
            registry: Registry::default(),
            audit_log: None,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let api = Api::new(Settings::default(), components);
        let (writes, never) = (Handle::current(), std::future::pending());
        tokio::spawn(serve(listener, api, writes, tls, never, ServeOptions::default()));
        Self { address, tokens }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn store(&self) -> Store {
        Store::new(Servers::new([self.url()])).unwrap()
    }

    pub(crate) fn page(&self, title: &str) -> Page {
        self.store().domain("enwiki").unwrap().page(title).unwrap()
    }

    /// Makes a token for every domain.
    pub(crate) async fn token(&self, rights: &[Right]) -> String {
        let grant = Grant {
            rights: rights.iter().copied().collect(),
            domains: vec!["*".parse().unwrap()],
            buckets: None,
        };
        let new = NewToken { grant, expires_at: None, note: None };
        self.tokens.create(new).await.unwrap().reveal().to_string()
    }
}
