//! Shows the progress of a long command on standard error: a bar on a terminal, otherwise a line every few seconds.

use std::{io::IsTerminal as _, sync::Arc, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rashomon_clock::Clock;
use rashomon_pages::VerifyProgress;

use crate::output;

/// The interval between lines if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// How many times a second the bar is drawn.
const DRAWS_PER_SECOND: u8 = 10;

/// The progress at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProgressCounts {
    /// The number of counted items, such as revisions or rows.
    pub(crate) items: u64,
    /// The number of processed bytes; 0 if bytes are not counted.
    pub(crate) bytes: u64,
    /// The finished part of [`Progress`]'s total, in the unit of the total.
    pub(crate) position: u64,
}

/// Shows the progress of a command.
#[derive(Debug)]
pub(crate) struct Progress {
    clock: Arc<dyn Clock>,
    started: Duration,
    /// The current object, such as the name of a file.
    label: String,
    /// The unit of the items, such as `revision`.
    unit: &'static str,
    /// The final position; `None` if it is unknown, as for standard input.
    total: Option<u64>,
    shown: ProgressOutput,
}

#[derive(Debug)]
enum ProgressOutput {
    Bar(ProgressBar),
    Lines { last: Duration },
}

impl Progress {
    /// Starts to measure the time. Nothing is shown yet.
    pub(crate) fn new(clock: Arc<dyn Clock>, label: String, unit: &'static str, total: Option<u64>) -> Self {
        let started = clock.monotonic();
        let shown = if std::io::stderr().is_terminal() {
            let bar =
                ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND));
            bar.set_style(style(total.is_some()));
            ProgressOutput::Bar(bar)
        } else {
            ProgressOutput::Lines { last: started }
        };
        Self { clock, started, label, unit, total, shown }
    }

    /// Sets the label to another object, such as the next file.
    pub(crate) fn set_label(&mut self, label: String) {
        self.label = label;
    }

    /// Sets the final position, if it was not known at the start, or has changed.
    pub(crate) fn set_total(&mut self, total: u64) {
        if self.total.replace(total) != Some(total)
            && let ProgressOutput::Bar(bar) = &self.shown
        {
            bar.set_style(style(true));
            bar.set_length(total);
        }
    }

    /// Shows the progress. A call is cheap, so callers need not limit their calls.
    pub(crate) fn show(&mut self, done: ProgressCounts) {
        let now = self.clock.monotonic();
        let describe = || {
            let text = describe(done, self.unit, self.total, now.saturating_sub(self.started));
            format!("{}: {text}", self.label)
        };
        match &mut self.shown {
            ProgressOutput::Bar(bar) => {
                bar.set_message(describe());
                bar.set_position(done.position);
            }
            ProgressOutput::Lines { last } if now.saturating_sub(*last) >= LINE_INTERVAL => {
                output::to_stderr(describe());
                *last = now;
            }
            ProgressOutput::Lines { .. } => {}
        }
    }

    /// Shows the progress of a verification.
    pub(crate) fn show_verified(&mut self, VerifyProgress { items, position, total }: VerifyProgress) {
        if let Some(total) = total {
            self.set_total(total);
        }
        self.show(ProgressCounts { items, bytes: 0, position });
    }

    /// Prints lines, above the bar if there is one.
    pub(crate) fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.shown {
            ProgressOutput::Bar(bar) => bar.suspend(print),
            ProgressOutput::Lines { .. } => print(),
        }
    }

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.started)
    }

    /// Removes the bar, if there is one.
    pub(crate) fn finish(&self) {
        if let ProgressOutput::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

fn style(has_total: bool) -> ProgressStyle {
    let template = if has_total { "{bar:30} {msg}" } else { "{spinner} {msg}" };
    ProgressStyle::with_template(template).expect("the template is well-formed")
}

/// Formats the progress: `12,345 revisions, 8,123/s, 35.1 MB/s, 62 %, 0:12 left`.
fn describe(done: ProgressCounts, unit: &str, total: Option<u64>, elapsed: Duration) -> String {
    let mut text = output::counted(done.items, unit);
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 {
        text += &format!(", {}/s", output::thousands((done.items as f64 / seconds) as u64));
        if done.bytes > 0 {
            text += &format!(", {}/s", output::bytes((done.bytes as f64 / seconds) as u64));
        }
    }
    if let Some(total) = total.filter(|total| *total > 0) {
        let share = (done.position as f64 / total as f64).min(1.0);
        text += &format!(", {:.0} %", share * 100.0);
        // At the very beginning the remaining time would be a guess.
        if share >= 0.01 && seconds >= 1.0 {
            text += &format!(", {} left", minutes(Duration::from_secs_f64(seconds / share - seconds)));
        }
    }
    text
}

/// Formats a duration: `0:12`, `61:05`.
fn minutes(duration: Duration) -> String {
    format!("{}:{:02}", duration.as_secs() / 60, duration.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, items: u64, bytes: u64, position: u64, total: Option<u64>) -> String {
        describe(ProgressCounts { items, bytes, position }, "revision", total, Duration::from_secs(seconds))
    }

    #[test]
    fn rates_and_remaining_time_follow_from_progress() {
        assert_eq!(
            at(20, 162_460, 702_000_000, 62, Some(100)),
            "162,460 revisions, 8,123/s, 35.1 MB/s, 62 %, 0:12 left"
        );
        assert_eq!(at(600, 600, 600_000, 1, Some(2)), "600 revisions, 1/s, 1.0 kB/s, 50 %, 10:00 left");
    }

    #[test]
    fn unknown_figures_are_left_out() {
        assert_eq!(at(2, 10, 2_000, 0, None), "10 revisions, 5/s, 1.0 kB/s");
        assert_eq!(at(0, 0, 0, 0, Some(100)), "0 revisions, 0 %");
        assert_eq!(at(2, 1, 0, 0, Some(0)), "1 revision, 0/s");
    }
}
