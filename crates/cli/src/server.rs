//! Serves a store until a signal comes, for `serve` and `demo`.

use std::{io::ErrorKind, net::SocketAddr, sync::Arc, time::Duration};

use rashomon_api::{Api, Components};
use rashomon_clock::Clock;
use tokio::net::TcpListener;

use crate::{
    config::Settings,
    errors::CommandError,
    maintenance, metrics,
    signals::Signals,
    store::{Store, seed},
    supervised::{Panics, supervise},
};

/// Chunks younger than this may belong to a body whose write is not complete yet.
pub(crate) const ORPHAN_AGE: Duration = Duration::from_secs(24 * 3600);

/// Binds an address to listen on.
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
    let panics = Panics::default();
    let registry = metrics::registry(buckets, store.sqlite(), panics.clone());
    let components = Components { buckets: buckets.clone(), clock, seed: seed()?, registry };
    let api = Api::new(settings.api(), components);
    let mut beside = tokio::task::JoinSet::new();
    let (every, age) = (settings.collect_every.0, orphan_age(settings));
    let of = buckets.clone();
    let collect = move || maintenance::collect(of.clone(), every, age);
    beside.spawn(supervise("collect", panics.clone(), collect));
    if !settings.read_only {
        let of = buckets.clone();
        beside.spawn(supervise("walk", panics.clone(), move || maintenance::rescan(of.clone())));
        let of = buckets.clone();
        beside.spawn(supervise("sweep", panics.clone(), move || maintenance::sweep(of.clone())));
        let (every, within) = (settings.archive.every.0, settings.archive.within.0);
        let of = buckets.clone();
        let seal = move || maintenance::seal(of.clone(), every, within);
        beside.spawn(supervise("seal", panics, seal));
    }
    let shutdown = async {
        signals.first().await;
        tracing::info!("stopping: finishing accepted requests");
    };
    let served = rashomon_api::serve(listener, api.clone(), shutdown, settings.connections()).await;
    beside.shutdown().await;
    // Writes continue after their clients have gone, but only for a time: an import may have hours to go.
    if tokio::time::timeout(settings.shutdown_grace.0, api.finish()).await.is_err() {
        tracing::warn!("some writes had not finished and are aborted; none of them was acknowledged");
    }
    served.map_err(|source| CommandError::Io { doing: "cannot serve".to_owned(), source })
}

/// The minimum age of an unreferenced chunk that is deleted. It is longer than the longest possible upload.
fn orphan_age(settings: &Settings) -> Duration {
    ORPHAN_AGE.max(settings.body_timeout.0.saturating_mul(2))
}
