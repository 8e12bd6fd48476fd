//! Measures increments of one counter, and of a thousand counters in turn.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xtask::http::Client;

use super::{Bench, JSON, append_with_body, entry_path};
use crate::{load::Traffic, report::Report};

const BUCKET: &str = "clicks";
const COUNTERS: usize = 1_000;

/// Creates the bucket.
pub(super) fn prepare(bench: &Bench<'_>) -> Result<()> {
    bench.must_create(BUCKET, r#"{"type": "counter"}"#)
}

pub(super) fn measure(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    for (name, counters) in [("one counter", 1), ("1,000 counters in turn", COUNTERS)] {
        let mut increments = Increments { counters, next: 0, last: 0 };
        let before = value(bench, counters)?;
        let measured = bench.run(&mut increments)?;
        report.add(&format!("increments of {name}"), "a second", measured.per_second());
        report.add(&format!("increments of {name}, p99"), "ms", measured.latency_ms(0.99));
        if counters == 1 {
            let after = value(bench, counters)?;
            let max = before + i64::try_from(increments.next)?;
            ensure!(
                (increments.last..=max).contains(&after),
                "the counter is {after}; the highest answer was {}, and all sent increments make {max}",
                increments.last
            );
        }
    }
    Ok(())
}

fn path(counters: usize, number: usize) -> String {
    entry_path(BUCKET, &format!("{counters}/{:04}", number % counters))
}

fn value(bench: &Bench<'_>, counters: usize) -> Result<i64> {
    let (status, body) = Client::connect(bench.address)?.get(&path(counters, 0))?;
    ensure!(status == 200, "a counter is answered with {status}");
    value_of(&body)
}

fn value_of(body: &[u8]) -> Result<i64> {
    let answer: Value = serde_json::from_slice(body)?;
    answer["value"].as_i64().context("an answer has no value")
}

/// Traffic that increments counters in turn.
struct Increments {
    counters: usize,
    next: usize,
    /// The highest value of an answer.
    last: i64,
}

impl Traffic for Increments {
    fn request(&mut self, _: usize, out: &mut Vec<u8>) {
        out.clear();
        append_with_body("POST", &path(self.counters, self.next), JSON, br#"{"increment":1}"#, out);
        self.next += 1;
    }

    fn answer(&mut self, _: usize, status: u16, body: &[u8]) -> Result<()> {
        ensure!(status == 200, "an increment was answered with {status}: {}", String::from_utf8_lossy(body));
        self.last = self.last.max(value_of(body)?);
        Ok(())
    }
}
