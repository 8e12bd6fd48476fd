//! Serves a store until a signal comes, for `serve` and `demo`.

use std::{io::ErrorKind, net::SocketAddr, sync::Arc, time::Duration};

use crate::configuration::Settings;
use rashomon_clock::Clock;
use rashomon_pages::operations::{Background, Panics};
use rashomon_server::access::{Access, TokenStore};
use rashomon_server::audit_log::AuditLog;
use rashomon_server::registry::ForwardMetrics;
use rashomon_server::{Api, Components, ExpiryLog, TLS_RELOAD_INTERVAL, Tls};
use rashomon_upstream::purges::PurgeMetrics;
use tokio::{net::TcpListener, runtime::Handle, task::JoinSet, time::MissedTickBehavior};

use crate::{
    errors::CommandError,
    metrics::{self, PanicCollector},
    registry::Registry,
    signals::{Reloads, Signals},
    store::{Store, seed},
};

/// The time between two calls of [`Access::maintain`], which reads changed keys and stores the last uses of tokens.
const ACCESS_INTERVAL: Duration = Duration::from_secs(3);

/// The longest time that the server waits at its shutdown until the last uses of tokens are stored.
const LAST_MAINTENANCE_LIMIT: Duration = Duration::from_secs(5);

/// The longest time that the server waits at its shutdown until the caches have acknowledged the last purges.
const LAST_PURGES_LIMIT: Duration = Duration::from_secs(5);

/// Binds the address that the server listens on.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, CommandError> {
    TcpListener::bind(address).await.map_err(|source| {
        let cure = match source.kind() {
            ErrorKind::AddrInUse => {
                "another process already listens there; stop that process, or choose another address with --listen"
            }
            ErrorKind::PermissionDenied => "you have no permission for this port; choose a port from 1024 on",
            ErrorKind::AddrNotAvailable => "this machine has no such address; choose another address with --listen",
            _ => "choose another address with --listen",
        };
        CommandError::Io { doing: format!("cannot listen on {address} ({cure})"), source }
    })
}

/// The stores that a server serves, and its threads for writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServedStores<'a> {
    /// The main store.
    pub(crate) store: &'a Store,
    /// The other backends, if there are any.
    pub(crate) registry: Option<&'a Registry>,
    /// The threads for requests that write.
    pub(crate) writes: &'a Handle,
}

/// Serves the store until a signal comes, then finishes the accepted requests.
pub(crate) async fn serve(
    listener: TcpListener,
    ServedStores { store, registry: others, writes }: ServedStores<'_>,
    settings: &Settings,
    audit_log: Option<AuditLog>,
    clock: Arc<dyn Clock>,
    mut signals: Signals,
    reloads: Reloads,
) -> Result<(), CommandError> {
    let tls = settings.tls()?;
    let buckets = store.buckets();
    let stores = || std::iter::once(store).chain(others.into_iter().flat_map(Registry::stores));
    let background = Panics::default();
    let tasks: Vec<Background> = stores()
        .map(|store| {
            Background::start(store.buckets(), store.key_value(), settings.background(), background.clone())
        })
        .collect();
    let panics = PanicCollector { stores: stores().filter_map(Store::sqlite).collect(), background };
    let mut registry = metrics::registry(buckets, store.sqlite(), panics, audit_log.clone(), tls.clone());
    if let Some(others) = others {
        registry.register_collector(Box::new(ForwardMetrics(others.forwarder())));
    }
    if let Some(purger) = store.purger() {
        registry.register_collector(Box::new(PurgeMetrics(purger.clone())));
    }
    let mut purges = JoinSet::new();
    // A server that refuses writes cannot store its position in the purge queue, and leaves purges to other servers.
    if !settings.is_read_only() {
        for store in stores() {
            if let Some(purger) = store.purger() {
                purges.spawn(purger.clone().run(Arc::clone(store.buckets().parts().records)));
            }
        }
    }
    let tokens = TokenStore::new(store.tables(), Arc::clone(&clock));
    let access = settings.access(tokens, Arc::clone(&clock));
    let access = Arc::new(access.map_err(|error| CommandError::Usage(error.to_string()))?);
    let maintenance = tokio::spawn(maintain(Arc::clone(&access)));
    let components = Components {
        buckets: buckets.clone(),
        key_value: store.key_value().clone(),
        access: Arc::clone(&access),
        clock: Arc::clone(&clock),
        seed: seed()?,
        registry,
        audit_log,
    };
    let mut api = Api::new(settings.api(), components);
    if let Some(others) = others {
        api = api.with_forwarding(others.forwarding());
    }
    if let Some(transformers) = settings.transformers().map_err(CommandError::Usage)? {
        api = api.with_transformers(transformers);
    }
    let shutdown = async {
        signals.first().await;
        tracing::info!("stopping: finishing accepted requests");
    };
    let (writes, options) = (writes.clone(), settings.connections());
    let served = tokio::select! {
        served = rashomon_server::serve(listener, api.clone(), writes, tls.clone(), shutdown, options) => served,
        () = watch_certificate(tls, clock, reloads) => Ok(()),
    };
    for background in tasks {
        background.stop().await;
    }
    // Writes continue after their clients have disconnected, but only for a limited time, since an import may
    // take hours.
    if tokio::time::timeout(settings.merged.shutdown_grace.0, api.finish()).await.is_err() {
        tracing::warn!(
            "some writes had not finished and are aborted; none of them was acknowledged, but some may be stored"
        );
        api.abort().await;
    }
    maintenance.abort();
    // Purges that are not sent now are sent at the next start.
    let drained = async {
        for purger in stores().filter_map(Store::purger) {
            purger.drain().await;
        }
    };
    if !purges.is_empty() && tokio::time::timeout(LAST_PURGES_LIMIT, drained).await.is_err() {
        tracing::warn!(
            "some purges of HTTP caches were not sent before the shutdown; they are sent at the next start"
        );
    }
    purges.shutdown().await;
    // Stores the last uses of tokens.
    if tokio::time::timeout(LAST_MAINTENANCE_LIMIT, access.maintain()).await.is_err() {
        tracing::warn!("the last uses of tokens could not be stored in time");
    }
    served.map_err(|source| CommandError::Io { doing: "cannot serve".to_owned(), source })
}

/// Reads changed keys and stores the last uses of tokens, until it is aborted.
async fn maintain(access: Arc<Access>) {
    let mut ticks = tokio::time::interval(ACCESS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        access.maintain().await;
    }
}

/// Loads the certificate of TLS again whenever its files have changed, and at SIGHUP. Logs when the certificate expires
/// soon or has expired. Never returns.
async fn watch_certificate(tls: Option<Tls>, clock: Arc<dyn Clock>, mut reloads: Reloads) {
    let Some(tls) = tls else { return std::future::pending().await };
    let mut expiry = ExpiryLog::new(tls.clone(), clock);
    loop {
        expiry.check();
        let requested = tokio::time::timeout(TLS_RELOAD_INTERVAL, reloads.next()).await.is_ok();
        tls.reload(requested).await;
    }
}
