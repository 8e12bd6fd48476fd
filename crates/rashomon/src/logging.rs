//! Writes log lines to standard error, as text for people or as JSON for programs.

mod line;

use std::io::IsTerminal as _;

use crate::configuration::{LogFormat, LogLevel};
use rashomon_server::audit_log::LineQueue;
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::{
    fmt::MakeWriter, layer::SubscriberExt as _, registry, util::SubscriberInitExt as _,
};

use self::line::BoundedLines;

/// Starts logging for a server, in a separate thread, so that no client waits until standard error is read. Must be
/// called only once. Dropping the guard writes the last lines.
pub(crate) fn start_in_thread(format: LogFormat, level: &LogLevel) -> WorkerGuard {
    let (lines, guard) = LineQueue::start("log", std::io::stderr());
    start(format, level, move || lines.clone());
    guard
}

/// Starts logging for a command: only messages that the user of the command must see. Must be called only once.
pub(crate) fn start_for_command() {
    start(LogFormat::Text, &"warn".parse().expect("warn is a level"), std::io::stderr);
}

fn start(format: LogFormat, level: &LogLevel, writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static) {
    let is_coloured = format == LogFormat::Text && std::io::stderr().is_terminal();
    let lines =
        tracing_subscriber::fmt::layer().with_writer(BoundedLines { inner: writer, format, is_coloured });
    match format {
        LogFormat::Text => {
            let lines = lines.with_ansi(is_coloured).with_target(false);
            registry().with(lines).with(level.targets()).init();
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_span_list(false);
            registry().with(lines).with(level.targets()).init();
        }
    }
}
