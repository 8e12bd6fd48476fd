//! Servers of the service, with stores in memory.

use std::{net::SocketAddr, sync::Arc};

use prometheus_client::registry::Registry;
use rashomon_clock::SystemClock;
use rashomon_entries::KeyValueStore;
use rashomon_pages::RevisionStore;
use rashomon_server::access::{Access, AccessOptions, Grant, NewToken, Policy, Right, TokenStore};
use rashomon_server::registry::{Destination, Entry, ForwardMetrics, Forwarder, ServerList};
use rashomon_server::registry::{Forwarding, OtherStore};
use rashomon_server::{Api, Components, ServeOptions, Settings, Tls, serve};
use rashomon_tables::Memory;
use tokio::{net::TcpListener, runtime::Handle};

/// A server that runs until the test ends.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) forwarder: Arc<Forwarder>,
    pub(crate) tokens: TokenStore,
}

/// The settings and the backends of a test server.
pub(crate) struct Parts {
    pub(crate) policy: Policy,
    /// The tokens of another server. `None`: the server has tokens of its own.
    pub(crate) tokens: Option<TokenStore>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) stores: Vec<OtherStore>,
    pub(crate) settings: Settings,
    pub(crate) tls: Option<Tls>,
    pub(crate) replay_bytes: usize,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            policy: Policy::Open,
            tokens: None,
            entries: Vec::new(),
            stores: Vec::new(),
            settings: Settings::default(),
            tls: None,
            replay_bytes: 64 << 20,
        }
    }
}

/// A store in memory.
pub(crate) async fn store() -> OtherStore {
    let clock = Arc::new(SystemClock::new());
    let tables = Arc::new(Memory::new(clock.clone()));
    let buckets = RevisionStore::open(tables, clock, rashomon_pages::Settings::default(), 7).await.unwrap();
    let key_value = KeyValueStore::new(Arc::clone(buckets.parts().records), Default::default());
    OtherStore { buckets, key_value }
}

impl Server {
    /// A server without other backends.
    pub(crate) async fn start() -> Self {
        Self::with(Parts::default()).await
    }

    /// A server that forwards these prefixes.
    pub(crate) async fn forwarding(entries: Vec<Entry>) -> Self {
        Self::with(Parts { entries, ..Parts::default() }).await
    }

    pub(crate) async fn with(parts: Parts) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, parts).await
    }

    pub(crate) async fn on(listener: TcpListener, parts: Parts) -> Self {
        let Parts { policy, tokens, entries, stores, settings, tls, replay_bytes } = parts;
        let address = listener.local_addr().unwrap();
        let clock = Arc::new(SystemClock::new());
        let tables = Arc::new(Memory::new(clock.clone()));
        let tokens = tokens.unwrap_or_else(|| TokenStore::new(tables.clone(), clock.clone()));
        let options = AccessOptions { policy, jwks_file: None, audience: String::new(), stores_uses: false };
        // The names of the servers in `Via` differ by their ports.
        let forwarder = Forwarder::open(entries, replay_bytes, address.port().into()).unwrap();
        let forwarder = Arc::new(forwarder);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ForwardMetrics(Arc::clone(&forwarder))));
        let of_buckets = rashomon_pages::Settings::default();
        let buckets = RevisionStore::open(tables, clock.clone(), of_buckets, 7).await.unwrap();
        let components = Components {
            key_value: KeyValueStore::new(Arc::clone(buckets.parts().records), Default::default()),
            buckets,
            access: Arc::new(Access::new(options, tokens.clone(), clock.clone()).unwrap()),
            clock,
            seed: 7,
            registry,
            audit_log: None,
        };
        let api = Api::new(settings, components)
            .with_forwarding(Forwarding { forwarder: Arc::clone(&forwarder), stores });
        let (writes, never) = (Handle::current(), std::future::pending());
        tokio::spawn(serve(listener, api, writes, tls, never, ServeOptions::default()));
        Self { address, forwarder, tokens }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a token for every domain, and for some buckets.
    pub(crate) async fn token(&self, rights: &[Right], buckets: Option<&[&str]>) -> String {
        let grant = Grant {
            rights: rights.iter().copied().collect(),
            domains: vec!["*".parse().unwrap()],
            buckets: buckets.map(|names| names.iter().map(|name| name.parse().unwrap()).collect()),
        };
        let new = NewToken { grant, expires_at: None, note: None };
        self.tokens.create(new).await.unwrap().reveal().to_string()
    }
}

/// An entry for servers with the default settings.
pub(crate) fn entry(prefix: &str, servers: impl IntoIterator<Item = String>) -> Entry {
    entry_of(prefix, ServerList::new(servers.into_iter().collect()))
}

pub(crate) fn entry_of(prefix: &str, list: ServerList) -> Entry {
    Entry { prefix: prefix.parse().unwrap(), destination: Destination::Servers(list) }
}
