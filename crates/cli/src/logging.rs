//! Where log lines go: to standard error, as text for people or as JSON for programs.

mod line;
mod queue;

use std::io::IsTerminal as _;

use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::{
    fmt::MakeWriter, layer::SubscriberExt as _, registry, util::SubscriberInitExt as _,
};

use self::line::BoundedLines;
use crate::config::{LogFormat, LogLevel};

/// Begins to log beside serving: nobody who asks the server waits until standard error is read. Called once;
/// what is logged last is written when the guard goes.
pub(crate) fn start_beside(format: LogFormat, level: &LogLevel) -> WorkerGuard {
    let (lines, guard) = queue::start(std::io::stderr());
    start(format, level, lines);
    guard
}

/// Begins to log what a person who runs a command must know, and nothing else. Called once.
pub(crate) fn start_quietly() {
    start(LogFormat::Text, &"warn".parse().expect("warn is a level"), std::io::stderr);
}

fn start(format: LogFormat, level: &LogLevel, writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static) {
    let lines = tracing_subscriber::fmt::layer().with_writer(BoundedLines { inner: writer, format });
    match format {
        LogFormat::Text => {
            let lines = lines.with_ansi(std::io::stderr().is_terminal()).with_target(false);
            registry().with(lines).with(level.targets()).init();
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_span_list(false);
            registry().with(lines).with(level.targets()).init();
        }
    }
}
