//! `rashomon serve`.

use std::sync::Arc;

use rashomon_clock::{Clock, SystemClock};

use crate::{
    arguments::{ServeArguments, store_of, variables},
    config::{RawSettings, Settings, unknown_variables},
    errors::CommandError,
    exit::Exit,
    logging, output, server,
    signals::Signals,
    store::Store,
};

/// Serves a store until a signal comes.
pub(crate) async fn run(arguments: ServeArguments) -> Result<Exit, CommandError> {
    let ServeArguments { config, data, accept_lost_log, raw } = arguments;
    let raw = RawSettings { store: store_of(data, raw.store.clone()), ..raw };
    let mut settings = Settings::load(raw, config.as_deref())?;
    settings.accept_lost_log = accept_lost_log;
    let _log = logging::start_beside(settings.merged.log_format, &settings.merged.log_level);
    let signals = Signals::listen()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Box::pin(Store::open_to_serve(&settings, Arc::clone(&clock))).await;
    if let Ok(store) = &store {
        let archive = store.archive();
        tracing::info!(store = %settings.store, %archive, "the store is open");
    }
    for warning in unknown_variables(&variables()) {
        tracing::warn!("{warning}");
    }
    let store = store?;
    let outcome = tokio::select! {
        outcome = listen_and_serve(&settings, &store, clock, signals) => outcome,
        error = store.failure() => Err(error),
    };
    store.close().await;
    tracing::info!("the store is closed");
    outcome
}

async fn listen_and_serve(
    settings: &Settings,
    store: &Store,
    clock: Arc<dyn Clock>,
    signals: Signals,
) -> Result<Exit, CommandError> {
    // The listener is opened after the store, so every client that can connect gets an answer.
    let listener = server::listen(settings.merged.listen.0).await?;
    let address = (listener.local_addr())
        .map_err(|source| CommandError::Io { doing: "cannot listen".to_owned(), source })?;
    let line = format!(
        "rashomon {} listens on http://{address}, with its store in {}",
        env!("CARGO_PKG_VERSION"),
        settings.store
    );
    match output::line(&line) {
        // A server continues if nobody reads its standard output.
        Ok(()) | Err(CommandError::OutputClosed) => {}
        Err(error) => return Err(error),
    }
    tracing::debug!("{line}");
    server::serve(listener, store, settings, clock, signals).await?;
    Ok(Exit::Done)
}
