//! `rashomon serve`.

use std::{path::PathBuf, sync::Arc};

use crate::configuration::{AuditLogTarget, RawSettings, Settings, unknown_variables};
use rashomon_clock::{Clock, SystemClock};
use rashomon_server::audit_log::AuditLog;
use tokio::runtime::Handle;

use crate::{
    arguments::{ServeArguments, store_of, variables},
    declared_buckets::DeclaredBuckets,
    errors::CommandError,
    exit::Exit,
    logging, output,
    registry::Registry,
    server::{self, ServedStores},
    signals::{Reloads, Signals},
    store::{Store, store_is_open_to_others},
    threads::ServerThreads,
};

/// Serves a store until a signal comes.
pub(crate) fn run(arguments: ServeArguments) -> Result<Exit, CommandError> {
    let ServeArguments { config, data, accept_lost_log, raw } = arguments;
    let raw = RawSettings { store: store_of(data, raw.store.clone()), ..raw };
    let mut settings = Settings::load(raw.clone(), config.as_deref())?;
    settings.accept_lost_log = accept_lost_log;
    let _log = logging::start_in_thread(settings.merged.log_format, &settings.merged.log_level);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let target = settings.merged.audit_log.clone();
    let audit_log =
        target.map(|AuditLogTarget(target)| AuditLog::open(target, Arc::clone(&clock))).transpose()?;
    let threads = ServerThreads::start()?;
    let writes = threads.writes();
    let outcome = threads.run(open_and_serve(&settings, (raw, config), audit_log.clone(), clock, writes));
    // Requests that are aborted write their lines of the audit log when they are dropped.
    threads.shut_down();
    if let Some(audit_log) = audit_log {
        audit_log.close();
    }
    outcome
}

async fn open_and_serve(
    settings: &Settings,
    (raw, config): (RawSettings, Option<PathBuf>),
    audit_log: Option<AuditLog>,
    clock: Arc<dyn Clock>,
    writes: Handle,
) -> Result<Exit, CommandError> {
    let signals = Signals::listen()?;
    let reloads = Reloads::listen()?;
    if let Some(audit_log) = audit_log.clone() {
        tokio::spawn(reopen(audit_log, reloads.clone()));
    }
    let store = Box::pin(Store::open_to_serve(settings, Arc::clone(&clock))).await;
    if let Ok(store) = &store {
        let archive = store.archive();
        tracing::info!(store = %settings.store, %archive, "the store is open");
    }
    for warning in unknown_variables(&variables()) {
        tracing::warn!("{warning}");
    }
    if let Some(warning) = store_is_open_to_others(&settings.store) {
        tracing::warn!("{warning}");
    }
    let store = store?;
    let registry = match Box::pin(Registry::open(settings, &clock)).await {
        Ok(registry) => registry,
        Err(error) => {
            store.close().await;
            return Err(error);
        }
    };
    let reloader = registry.as_ref().and_then(|registry| registry.reloader(raw, config));
    if let Some(reloader) = reloader {
        tokio::spawn(reloader.run(reloads.clone()));
    }
    let served = ServedStores { store: &store, registry: registry.as_ref(), writes: &writes };
    let declared = DeclaredBuckets::of(settings, &store, registry.as_ref());
    let outcome = match Box::pin(declared.make()).await {
        Err(error) => Err(error),
        Ok(is_done) => tokio::select! {
            outcome = listen_and_serve(settings, served, audit_log, clock, signals, reloads) => outcome,
            error = store.wait_for_failure() => Err(error),
            error = wait_for_registry_failure(registry.as_ref()) => Err(error),
            error = declared.keep_trying(), if !is_done => Err(error),
        },
    };
    if let Some(registry) = registry {
        registry.close().await;
    }
    store.close().await;
    tracing::info!("the store is closed");
    outcome
}

/// Returns an error of one of the registry's stores, if waiting cannot solve this error. Otherwise never returns.
async fn wait_for_registry_failure(registry: Option<&Registry>) -> CommandError {
    match registry {
        Some(registry) => registry.wait_for_failure().await,
        None => std::future::pending().await,
    }
}

/// Opens the audit log again at each SIGHUP.
async fn reopen(audit_log: AuditLog, mut reloads: Reloads) {
    loop {
        reloads.next().await;
        audit_log.reopen();
    }
}

async fn listen_and_serve(
    settings: &Settings,
    served: ServedStores<'_>,
    audit_log: Option<AuditLog>,
    clock: Arc<dyn Clock>,
    signals: Signals,
    reloads: Reloads,
) -> Result<Exit, CommandError> {
    // The listener is opened after the store, so every client that can connect gets an answer.
    let listener = server::listen(settings.merged.listen.0).await?;
    let address = (listener.local_addr())
        .map_err(|source| CommandError::Io { doing: "cannot listen".to_owned(), source })?;
    let line = format!(
        "rashomon {} listens on {}://{address}, with its store in {}",
        env!("CARGO_PKG_VERSION"),
        settings.scheme(),
        settings.store
    );
    match output::line(&line) {
        // A server continues if nobody reads its standard output.
        Ok(()) | Err(CommandError::OutputClosed) => {}
        Err(error) => return Err(error),
    }
    tracing::debug!("{line}");
    server::serve(listener, served, settings, audit_log, clock, signals, reloads).await?;
    Ok(Exit::Done)
}
