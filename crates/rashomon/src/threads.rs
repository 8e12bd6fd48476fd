//! The async runtimes of the commands.

use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::errors::CommandError;

/// The maximum time for which each runtime waits, when the server stops, until its aborted tasks have ended.
const ABORT_LIMIT: Duration = Duration::from_secs(1);

/// The async runtimes of a server. [Decision 0042](../../../docs/decisions/0042-writes-have-threads-of-their-own.md)
/// says why there are two.
pub(crate) struct ServerThreads {
    main: Runtime,
    writes: Runtime,
}

impl ServerThreads {
    pub(crate) fn start() -> Result<Self, CommandError> {
        Ok(Self { main: start("serve")?, writes: start("write")? })
    }

    /// The runtime for admitted writes, imports and batches.
    pub(crate) fn writes(&self) -> Handle {
        self.writes.handle().clone()
    }

    /// Runs a server on the main threads.
    pub(crate) fn run<T>(&self, server: impl Future<Output = T>) -> T {
        self.main.block_on(server)
    }

    /// Aborts all tasks, and waits until they have ended, for at most [`ABORT_LIMIT`] for each runtime.
    pub(crate) fn shut_down(self) {
        // Connections end first: the thread of an aborted import ends only when its connection has ended.
        self.main.shutdown_timeout(ABORT_LIMIT);
        self.writes.shutdown_timeout(ABORT_LIMIT);
    }
}

/// Starts an async runtime, whose threads have this name.
pub(crate) fn start(name: &str) -> Result<Runtime, CommandError> {
    Builder::new_multi_thread()
        .thread_name(name)
        .enable_all()
        .build()
        .map_err(|source| CommandError::Io { doing: "cannot start the threads".to_owned(), source })
}
