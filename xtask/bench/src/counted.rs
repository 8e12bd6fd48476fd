//! Traffic whose answers are counted: served requests, and refusals with 503.

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;

use super::load::{self, Traffic};

/// The answers within the measured time.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) served: u64,
    /// The latencies of refusals, in nanoseconds.
    pub(crate) refused: Histogram<u64>,
}

/// Counts the answers to the requests of another traffic.
pub(crate) struct CountedTraffic<T> {
    pub(crate) inner: T,
    pub(crate) outcome: Outcome,
    /// The number of answers after which the run ends.
    limit: u64,
}

impl<T> CountedTraffic<T> {
    pub(crate) fn new(inner: T) -> Result<Self> {
        Ok(Self { inner, outcome: Outcome { served: 0, refused: load::empty_histogram()? }, limit: u64::MAX })
    }

    /// Ends the run after this number of answers.
    pub(crate) fn ending_after(mut self, answers: u64) -> Self {
        self.limit = answers;
        self
    }
}

impl<T: Traffic> Traffic for CountedTraffic<T> {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        self.inner.request(connection, out);
    }

    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<()> {
        match status {
            503 => Ok(()),
            status => self.inner.answer(connection, status, body),
        }
    }

    fn record(&mut self, status: u16, since_sent: Duration) {
        if status == 503 {
            self.outcome.refused.saturating_record(u64::try_from(since_sent.as_nanos()).unwrap_or(u64::MAX));
        } else {
            self.outcome.served += 1;
        }
    }

    fn is_done(&self) -> bool {
        self.outcome.served + self.outcome.refused.len() >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::Reads;

    #[test]
    fn refusals_are_counted_apart_and_end_a_run() {
        let inner = Reads::new(&["/".to_owned()], None, None, 1);
        let mut traffic = CountedTraffic::new(inner).unwrap().ending_after(2);
        traffic.record(200, Duration::from_millis(1));
        assert!(!traffic.is_done());
        traffic.record(503, Duration::from_millis(50));
        assert!(traffic.is_done());
        traffic.answer(0, 503, b"").unwrap();
        traffic.answer(0, 500, b"").unwrap_err();
        assert_eq!((traffic.outcome.served, traffic.outcome.refused.len()), (1, 1));
        let latency = traffic.outcome.refused.value_at_quantile(0.5);
        assert!((49_000_000..51_000_000).contains(&latency), "{latency} ns");
    }
}
