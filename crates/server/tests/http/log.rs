//! Captures the log of a test.

use std::{
    io::Write,
    sync::{Arc, LazyLock, Mutex},
};

use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;

/// A second subscriber. With only one subscriber in the process, `tracing` decides for each log statement whether it is
/// enabled, in the thread that reaches the statement first, and caches the result. A test in another thread, which has
/// no subscriber, would disable the statement.
static SECOND_SUBSCRIBER: LazyLock<Dispatch> = LazyLock::new(|| {
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    Dispatch::new(subscriber.with_writer(std::io::sink).finish())
});

/// Collects the lines of the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Captures everything that is logged in this thread until the guard is dropped.
pub(crate) fn capture() -> (Log, tracing::subscriber::DefaultGuard) {
    LazyLock::force(&SECOND_SUBSCRIBER);
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    (log, tracing::subscriber::set_default(subscriber))
}
