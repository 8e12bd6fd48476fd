//! The registry of a server: the other stores in its process, and the servers to which it forwards requests.

use std::{path::PathBuf, sync::Arc};

use crate::configuration::{RawSettings, Settings, StoreSettings};
use futures::future;
use rashomon_clock::Clock;
use rashomon_server::registry::{Forwarder, Forwarding, OtherStore, Prefix};

use crate::{
    errors::CommandError,
    signals::Reloads,
    store::{Store, seed},
};

/// The open backends of a server, besides its main store.
#[derive(Debug)]
pub(crate) struct Registry {
    forwarder: Arc<Forwarder>,
    /// The other stores. An entry of the registry names a store by its index in this list.
    stores: Vec<(StoreSettings, Store)>,
}

impl Registry {
    /// Opens the backends of the configuration. Returns `None` if the configuration has no registry.
    pub(crate) async fn open(
        settings: &Settings,
        clock: &Arc<dyn Clock>,
    ) -> Result<Option<Self>, CommandError> {
        if !settings.has_registry() {
            return Ok(None);
        }
        let mut stores = Vec::new();
        for of_store in settings.registry_stores() {
            let settings = settings.for_store(of_store.clone());
            match Box::pin(Store::open_to_serve(&settings, Arc::clone(clock))).await {
                Ok(store) => stores.push((of_store, store)),
                Err(error) => {
                    close(stores).await;
                    return Err(error);
                }
            }
        }
        let known: Vec<StoreSettings> = stores.iter().map(|(settings, _)| settings.clone()).collect();
        let opened = Self::open_forwarder(settings, &known);
        match opened {
            Ok(forwarder) => Ok(Some(Self { forwarder: Arc::new(forwarder), stores })),
            Err(error) => {
                close(stores).await;
                Err(error)
            }
        }
    }

    fn open_forwarder(settings: &Settings, stores: &[StoreSettings]) -> Result<Forwarder, CommandError> {
        let entries = settings.registry_entries(stores)?;
        Forwarder::open(entries, settings.replay_bytes(), seed()?)
            .map_err(|(prefix, error)| CommandError::Usage(describe_error(&prefix, &error)))
    }

    pub(crate) fn forwarder(&self) -> Arc<Forwarder> {
        Arc::clone(&self.forwarder)
    }

    /// The other stores of this process.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &Store> {
        self.stores.iter().map(|(_, store)| store)
    }

    /// The other stores of this process, with their settings.
    pub(crate) fn stores_with_settings(&self) -> impl Iterator<Item = (&StoreSettings, &Store)> {
        self.stores.iter().map(|(settings, store)| (settings, store))
    }

    /// The backends and the stores, as the API takes them.
    pub(crate) fn forwarding(&self) -> Forwarding {
        let other = |store: &Store| OtherStore {
            buckets: store.buckets().clone(),
            key_value: store.key_value().clone(),
        };
        Forwarding { forwarder: self.forwarder(), stores: self.stores().map(other).collect() }
    }

    /// Waits for clusters that did not answer at the start. Returns an error that waiting cannot solve. Otherwise
    /// never returns.
    pub(crate) async fn wait_for_failure(&self) -> CommandError {
        let failures = self.stores.iter().map(|(_, store)| Box::pin(store.wait_for_failure()));
        match failures.len() {
            0 => future::pending().await,
            _ => future::select_all(failures).await.0,
        }
    }

    /// Returns the reloader, which replaces the registry at each SIGHUP. `None` without a configuration file.
    pub(crate) fn reloader(&self, raw: RawSettings, config: Option<PathBuf>) -> Option<Reloader> {
        let stores = self.stores.iter().map(|(settings, _)| settings.clone()).collect();
        Some(Reloader { forwarder: self.forwarder(), stores, raw, config: config? })
    }

    /// Completes accepted writes, and closes the stores.
    pub(crate) async fn close(self) {
        close(self.stores).await;
    }
}

async fn close(stores: Vec<(StoreSettings, Store)>) {
    for (_, store) in stores {
        store.close().await;
    }
}

fn describe_error(prefix: &Prefix, error: &rashomon_server::registry::OpenError) -> String {
    format!("[registry.\"{prefix}\"]: {error}")
}

/// Replaces the entries of the registry by those of the configuration file.
#[derive(Debug, Clone)]
pub(crate) struct Reloader {
    forwarder: Arc<Forwarder>,
    stores: Vec<StoreSettings>,
    raw: RawSettings,
    config: PathBuf,
}

impl Reloader {
    /// Replaces the registry at each SIGHUP. Never returns.
    pub(crate) async fn run(self, mut reloads: Reloads) {
        loop {
            reloads.next().await;
            let this = self.clone();
            // The files may be on a disk that does not answer.
            let done = tokio::task::spawn_blocking(move || this.reload()).await;
            match done.map_err(|error| error.to_string()).and_then(|done| done) {
                Ok(backends) => tracing::info!(backends, "the registry was read again"),
                Err(error) => {
                    tracing::error!(
                        error,
                        "the registry cannot be read again; the previous one stays in use"
                    );
                }
            }
        }
    }

    /// Replaces the entries of the registry, and returns their number.
    fn reload(&self) -> Result<usize, String> {
        let settings =
            Settings::load(self.raw.clone(), Some(&self.config)).map_err(|error| error.to_string())?;
        let entries = settings.registry_entries(&self.stores).map_err(|error| error.to_string())?;
        let count = entries.len();
        self.forwarder.replace(entries).map_err(|(prefix, error)| describe_error(&prefix, &error))?;
        Ok(count)
    }
}
