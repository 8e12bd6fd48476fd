//! Where log lines go: to standard error, as text for people or as JSON for programs.

use std::io::IsTerminal as _;

use tracing_subscriber::{layer::SubscriberExt as _, registry, util::SubscriberInitExt as _};

use crate::config::{LogFormat, LogLevel};

/// Begins to log. Called once.
pub(crate) fn start(format: LogFormat, level: &LogLevel) {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
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

/// Begins to log what a person who runs a command must know, and nothing else.
pub(crate) fn start_quietly() {
    start(LogFormat::Text, &"warn".parse().expect("warn is a level"));
}
