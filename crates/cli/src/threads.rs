//! The threads of a server.

use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::errors::CommandError;

/// How long to wait for the ends of tasks that were aborted when the server stopped.
const ABORT_LIMIT: Duration = Duration::from_secs(2);

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

    /// The threads for requests that write.
    pub(crate) fn writes(&self) -> Handle {
        self.writes.handle().clone()
    }

    /// Runs a server on the other threads.
    pub(crate) fn run<T>(&self, server: impl Future<Output = T>) -> T {
        self.main.block_on(server)
    }

    /// Aborts all tasks, and waits for their ends, but not for long.
    pub(crate) fn shut_down(self) {
        // Connections end first: the thread of an aborted import waits for the body of its request.
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
