//! Serving a store until a signal comes: what `serve` and `demo` share.

use std::{io::ErrorKind, net::SocketAddr, sync::Arc, time::Duration};

use rashomon_api::{Api, Components, Registry};
use rashomon_buckets::Revisioned;
use rashomon_clock::Clock;
use tokio::net::TcpListener;

use crate::{
    config::Settings,
    errors::CommandError,
    signals::Signals,
    store::{Store, seed},
};

/// Chunks of a body that are younger than this may still be on their way to be named by a write.
pub(crate) const ORPHAN_AGE: Duration = Duration::from_secs(24 * 3600);

/// Takes an address to listen on.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, CommandError> {
    TcpListener::bind(address).await.map_err(|source| {
        let cure = match source.kind() {
            ErrorKind::AddrInUse => {
                "something listens there already; stop it, or choose another with --listen"
            }
            ErrorKind::PermissionDenied => {
                "this needs a right that you do not have; choose a port from 1024 on"
            }
            ErrorKind::AddrNotAvailable => "this machine has no such address",
            _ => "choose another with --listen",
        };
        CommandError::Io { doing: format!("cannot listen on {address} ({cure})"), source }
    })
}

/// Serves the store until a signal comes, then finishes what was accepted.
pub(crate) async fn serve(
    listener: TcpListener,
    store: &Store,
    settings: &Settings,
    clock: Arc<dyn Clock>,
    mut signals: Signals,
) -> Result<(), CommandError> {
    let components =
        Components { buckets: store.buckets().clone(), clock, seed: seed()?, registry: Registry::default() };
    let api = Api::new(settings.api(), components);
    let collector =
        tokio::spawn(collect(store.buckets().clone(), settings.collect_every.0, orphan_age(settings)));
    let shutdown = async {
        signals.first().await;
        tracing::info!("stopping: finishing what was accepted");
    };
    let served = rashomon_api::serve(listener, api.clone(), shutdown, settings.connections()).await;
    collector.abort();
    // Writes go on when their clients have gone, but not for ever: an import may have hours to go.
    if tokio::time::timeout(settings.shutdown_grace.0, api.finish()).await.is_err() {
        tracing::warn!("some writes were still under way and are cut off; none of them was acknowledged");
    }
    served.map_err(|source| CommandError::Io { doing: "cannot serve".to_owned(), source })
}

/// How old an orphan is at least: older than the longest upload may take.
fn orphan_age(settings: &Settings) -> Duration {
    ORPHAN_AGE.max(settings.body_timeout.0.saturating_mul(2))
}

/// Collects orphaned chunks now and then.
async fn collect(buckets: Revisioned, every: Duration, age: Duration) {
    if every.is_zero() {
        return;
    }
    loop {
        tokio::time::sleep(every).await;
        match buckets.collect_orphans(age).await {
            Ok(0) => {}
            Ok(bodies) => tracing::info!(bodies, "collected large bodies that no write named"),
            Err(error) => tracing::warn!(%error, "cannot collect large bodies that no write named"),
        }
    }
}
