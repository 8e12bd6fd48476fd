//! Ctrl-C and SIGTERM: the first signal asks the command to end, and the second ends the process. SIGHUP asks a server
//! to read its files again.

use std::{
    convert::Infallible,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use tokio::{runtime::Builder, sync::watch};

use crate::{errors::CommandError, exit::Exit, output};

/// A receiver of Ctrl-C and SIGTERM.
#[derive(Debug, Clone)]
pub(crate) struct Signals(watch::Receiver<Option<Exit>>);

impl Signals {
    /// Starts to listen for signals. From then on, the first signal does not end the process, but the second signal
    /// does. A separate thread listens until the process exits, also after the runtimes of the command have ended.
    pub(crate) fn listen() -> Result<Self, CommandError> {
        let (sender, receiver) = watch::channel(None);
        let (started, result) = mpsc::channel();
        let listen = move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let Err(error) =
                runtime.and_then(|runtime| runtime.block_on(handle_two_signals(&started, sender)));
            let _ = started.send(Err(error));
        };
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(listen);
        // The thread sends its result at once.
        thread
            .and_then(|_| result.recv().unwrap_or_else(|closed| Err(io::Error::other(closed))))
            .map_err(|source| CommandError::Io { doing: "cannot listen for signals".to_owned(), source })?;
        Ok(Self(receiver))
    }

    /// Waits for the first signal. Returns the exit code of a command that the signal interrupts.
    pub(crate) async fn first(&mut self) -> Exit {
        match self.0.wait_for(Option::is_some).await {
            Ok(exit) => exit.unwrap_or(Exit::Interrupted),
            // The listening thread never ends before the process does.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Sends the first signal to a command, and ends the process at the second. Reports through `started` that it listens.
async fn handle_two_signals(
    started: &mpsc::Sender<io::Result<()>>,
    sender: watch::Sender<Option<Exit>>,
) -> io::Result<Infallible> {
    let mut source = SignalSource::new()?;
    let _ = started.send(Ok(()));
    let first = source.next().await;
    // The receivers are gone when the command is over.
    let _ = sender.send(Some(first));
    let second = source.next().await;
    output::to_stderr("ended at once by the second signal");
    std::process::exit(second.code().into())
}

/// A receiver of SIGHUP. Each clone receives every signal; signals in quick succession may be received as one.
#[derive(Debug, Clone)]
pub(crate) struct Reloads(watch::Receiver<()>);

impl Reloads {
    /// Starts to listen for SIGHUP, which does not end the process from then on.
    pub(crate) fn listen() -> Result<Self, CommandError> {
        let (sender, receiver) = watch::channel(());
        let mut hangups = Hangups::new()
            .map_err(|source| CommandError::Io { doing: "cannot listen for signals".to_owned(), source })?;
        tokio::spawn(async move {
            loop {
                hangups.next().await;
                tracing::info!("SIGHUP: reading files again");
                // If there is no receiver, no file has to be read again.
                let _ = sender.send(());
            }
        });
        Ok(Self(receiver))
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The listening task never ends before the process does.
            std::future::pending::<()>().await;
        }
    }
}

/// Runs blocking work. The first signal sets a flag, and the work stops soon after that. Returns the result of the
/// work, and the exit code of the signal, if one came.
pub(crate) async fn run_until_signal<T: Send + 'static>(
    work: impl FnOnce(&Arc<AtomicBool>) -> T + Send + 'static,
) -> Result<(T, Option<Exit>), CommandError> {
    let mut signals = Signals::listen()?;
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&is_interrupted);
    let mut work = tokio::task::spawn_blocking(move || work(&stops));
    let (result, exit) = tokio::select! {
        result = &mut work => (result, None),
        exit = signals.first() => {
            is_interrupted.store(true, Ordering::Relaxed);
            (work.await, Some(exit))
        }
    };
    Ok((result.map_err(|error| CommandError::TaskFailed(error.to_string()))?, exit))
}

#[cfg(unix)]
struct SignalSource {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl SignalSource {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
        }
    }
}

#[cfg(unix)]
struct Hangups(tokio::signal::unix::Signal);

#[cfg(unix)]
impl Hangups {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self(signal(SignalKind::hangup())?))
    }

    async fn next(&mut self) {
        self.0.recv().await;
    }
}

#[cfg(not(unix))]
struct Hangups;

#[cfg(not(unix))]
impl Hangups {
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        std::future::pending().await
    }
}

#[cfg(not(unix))]
struct SignalSource;

#[cfg(not(unix))]
impl SignalSource {
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> Exit {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Exit::Interrupted,
            Err(_) => std::future::pending().await,
        }
    }
}
