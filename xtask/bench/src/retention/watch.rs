//! Watches a server's metrics of retention.

use std::{net::SocketAddr, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use rashomon_clock::Clock;
use xtask::http::Client;

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The values of the metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RetentionMetrics {
    /// Renders whose bodies were culled.
    pub(super) culled: u64,
    /// Queue entries that were processed.
    pub(super) queue_entries: u64,
    /// For the oldest entry that the last pass did not reach, the time since it became overdue, in seconds.
    pub(super) overdue: f64,
}

/// A connection for reading the metrics.
pub(super) struct Watch<'a> {
    client: Client,
    clock: &'a dyn Clock,
}

impl<'a> Watch<'a> {
    pub(super) fn open(address: SocketAddr, clock: &'a dyn Clock) -> Result<Self> {
        Ok(Self { client: Client::connect(address)?, clock })
    }

    pub(super) fn look(&mut self) -> Result<RetentionMetrics> {
        let (status, text) = self.client.get("/metrics")?;
        ensure!(status == 200, "the metrics were answered with {status}");
        parse(&String::from_utf8(text)?)
    }

    /// Polls until the condition holds. Returns the monotonic time at that moment.
    pub(super) fn until(
        &mut self,
        limit: Duration,
        holds: impl Fn(&RetentionMetrics) -> bool,
    ) -> Result<Duration> {
        let started = self.clock.monotonic();
        loop {
            let (seen, now) = (self.look()?, self.clock.monotonic());
            if holds(&seen) {
                return Ok(now);
            }
            ensure!(now - started < limit, "after {limit:?}, the metrics of retention are {seen:?}");
            thread::sleep(POLL_INTERVAL);
        }
    }
}

fn parse(text: &str) -> Result<RetentionMetrics> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = line.and_then(|value| value.trim().parse::<f64>().ok());
        value.with_context(|| format!("no {name} in the metrics"))
    };
    Ok(RetentionMetrics {
        culled: value("rashomon_retention_culled_renders_total")? as u64,
        queue_entries: value("rashomon_retention_notes_total")? as u64,
        overdue: value("rashomon_retention_overdue_seconds")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_by_their_whole_names() {
        let text = "# TYPE rashomon_retention_notes counter\nrashomon_retention_notes_total 12\n\
                    rashomon_retention_culled_renders_total 7\nrashomon_retention_overdue_seconds_other 1\n\
                    rashomon_retention_overdue_seconds 0.25\n";
        assert_eq!(parse(text).unwrap(), RetentionMetrics { culled: 7, queue_entries: 12, overdue: 0.25 });
        assert!(parse("rashomon_retention_notes_total 12\n").is_err());
    }
}
