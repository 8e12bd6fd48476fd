//! Serves a store until a signal comes, for `serve` and `demo`.

use std::{io::ErrorKind, net::SocketAddr, sync::Arc};

use rashomon_access::{Access, TokenStore};
use rashomon_api::{Api, Components};
use rashomon_clock::Clock;
use rashomon_service::{Background, BackgroundOptions, MIN_ORPHAN_AGE};
use tokio::net::TcpListener;

use crate::{
    config::Settings,
    errors::CommandError,
    metrics,
    signals::Signals,
    store::{Store, seed},
};

/// Binds the address that the server listens on.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, CommandError> {
    TcpListener::bind(address).await.map_err(|source| {
        let cure = match source.kind() {
            ErrorKind::AddrInUse => {
                "another process already listens there; stop it, or choose another with --listen"
            }
            ErrorKind::PermissionDenied => "you have no permission for this port; choose a port from 1024 on",
            ErrorKind::AddrNotAvailable => "this machine has no such address",
            _ => "choose another with --listen",
        };
        CommandError::Io { doing: format!("cannot listen on {address} ({cure})"), source }
    })
}

/// Serves the store until a signal comes, then finishes the accepted requests.
pub(crate) async fn serve(
    listener: TcpListener,
    store: &Store,
    settings: &Settings,
    clock: Arc<dyn Clock>,
    mut signals: Signals,
) -> Result<(), CommandError> {
    let buckets = store.buckets();
    let background = Background::start(buckets, background(settings));
    let registry = metrics::registry(buckets, store.sqlite(), background.panics());
    let tokens = TokenStore::new(store.tables(), Arc::clone(&clock));
    let access = Arc::new(Access::open(tokens, Arc::clone(&clock)));
    let components = Components { buckets: buckets.clone(), access, clock, seed: seed()?, registry };
    let api = Api::new(settings.api(), components);
    let shutdown = async {
        signals.first().await;
        tracing::info!("stopping: finishing accepted requests");
    };
    let served = rashomon_api::serve(listener, api.clone(), shutdown, settings.connections()).await;
    background.stop().await;
    // Writes continue after their clients have disconnected, but only for a limited time, since an import may
    // take hours.
    if tokio::time::timeout(settings.merged.shutdown_grace.0, api.finish()).await.is_err() {
        tracing::warn!("some writes had not finished and are aborted; none of them was acknowledged");
    }
    served.map_err(|source| CommandError::Io { doing: "cannot serve".to_owned(), source })
}

fn background(settings: &Settings) -> BackgroundOptions {
    BackgroundOptions {
        collect_every: settings.merged.collect_every.0,
        // Longer than the longest possible upload.
        orphan_age: MIN_ORPHAN_AGE.max(settings.merged.body_timeout.0.saturating_mul(2)),
        read_only: settings.merged.read_only,
        seal_every: settings.archive.every.0,
        seal_within: settings.archive.within.0,
    }
}
