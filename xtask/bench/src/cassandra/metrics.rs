//! The metrics of Cassandra.

use std::{ops::Sub, process::Command, thread, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use xtask::cassandra::Node;

/// The maximum number of checks whether compactions have ended, a second or more apart.
const MAX_COMPACTION_CHECKS: usize = 60;

/// Numbers of requests of clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Requests {
    /// SELECTs of a partition.
    pub(super) reads: f64,
    /// Mutations. A logged batch of one partition counts as one.
    pub(super) writes: f64,
}

impl Sub for Requests {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { reads: self.reads - earlier.reads, writes: self.writes - earlier.writes }
    }
}

/// The requests since the node started.
pub(super) fn requests(node: &Node) -> Result<Requests> {
    let beans = "org.apache.cassandra.metrics:type=ClientRequest,scope=*,name=Latency";
    parse_requests(&nodetool(node, &["sjk", "mx", "-all", "-b", beans, "-f", "Count", "-mg"])?)
}

/// The number of SSTables that recent reads of a table touched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SsTables {
    pub(super) median: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// The SSTables per read over the last minutes.
pub(super) fn sstables_per_read(node: &Node, keyspace: &str, table: &str) -> Result<SsTables> {
    parse_sstables(&nodetool(node, &["tablehistograms", keyspace, table])?)
}

/// Flushes all data in memory to the disk, and waits until the resulting compactions have ended.
pub(super) fn flush_and_wait_for_compactions(node: &Node, keyspace: &str) -> Result<()> {
    flush(node, keyspace)?;
    for _ in 0..MAX_COMPACTION_CHECKS {
        if parse_pending(&nodetool(node, &["compactionstats"])?)? == 0 {
            return Ok(());
        }
        thread::sleep(Duration::from_secs(1));
    }
    bail!("compactions have not ended after {MAX_COMPACTION_CHECKS} checks, a second or more apart")
}

/// Flushes all data in memory to the disk.
pub(crate) fn flush(node: &Node, keyspace: &str) -> Result<()> {
    nodetool(node, &["flush", keyspace]).map(drop)
}

/// Runs nodetool, and returns its output.
pub(crate) fn nodetool(node: &Node, arguments: &[&str]) -> Result<String> {
    let output = Command::new(node.nodetool()).args(arguments).output().context("cannot start nodetool")?;
    ensure!(
        output.status.success(),
        "nodetool {arguments:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Parses the number of pending compactions.
fn parse_pending(text: &str) -> Result<u64> {
    let line = text.lines().find(|line| line.starts_with("pending tasks"));
    let number = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
    number.with_context(|| format!("no pending tasks in {text}"))
}

/// Parses an output in which a line with the bean's name is followed by one with its count.
fn parse_requests(text: &str) -> Result<Requests> {
    let count = |scope: &str| {
        let mut lines = text.lines().skip_while(|line| !line.contains(&format!("scope={scope},")));
        let count = lines.nth(1).and_then(|line| line.trim().parse().ok());
        count.with_context(|| format!("no count of {scope} in {text}"))
    };
    Ok(Requests { reads: count("Read")?, writes: count("Write")? })
}

/// Parses a table with a line for each percentile. The heading determines the column of the SSTables.
fn parse_sstables(text: &str) -> Result<SsTables> {
    let heading = text.lines().find(|line| line.starts_with("Percentile")).unwrap_or_default();
    // A heading of two words is one column.
    let heading = heading.replace(" Latency", "").replace(" Size", "").replace(" Count", "");
    let column = heading.split_whitespace().position(|column| column == "SSTables");
    let column = column.with_context(|| format!("no SSTables in {text}"))?;
    let value = |percentile: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(percentile));
        let value = line.and_then(|line| line.split_whitespace().nth(column)?.parse().ok());
        value.with_context(|| format!("no percentile {percentile} in {text}"))
    };
    Ok(SsTables { median: value("50%")?, p99: value("99%")?, max: value("Max")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_from_the_totals_over_all_consistencies() {
        let text = "org.apache.cassandra.metrics:type=ClientRequest,scope=Write-THREE,name=Latency\n1\n\
                    org.apache.cassandra.metrics:type=ClientRequest,scope=Read,name=Latency\n291\n\
                    org.apache.cassandra.metrics:type=ClientRequest,scope=CASWrite,name=Latency\n4\n\
                    org.apache.cassandra.metrics:type=ClientRequest,scope=Write,name=Latency\n58\n";
        assert_eq!(parse_requests(text).unwrap(), Requests { reads: 291.0, writes: 58.0 });
        assert!(parse_requests("").is_err());
    }

    #[test]
    fn pending_compactions_are_counted() {
        let text = "concurrent compactors           1\npending tasks                   12\ncompactions completed     7\n";
        assert_eq!(parse_pending(text).unwrap(), 12);
        assert!(parse_pending("").is_err());
    }

    #[test]
    fn sstables_are_found_under_their_heading() {
        let text = "bench/renders histograms\n\
                    Percentile      Read Latency     Write Latency          SSTables    Partition Size        Cell Count\n\
                    \x20                    (micros)          (micros)                             (bytes)                  \n\
                    50%                   126.93             35.43              1.00              1109                10\n\
                    99%                   263.21            126.93              3.00              1597                14\n\
                    Min                    42.51             17.09              0.00                73                 0\n\
                    Max                   379.02            454.83              4.00              1597                14\n";
        assert_eq!(parse_sstables(text).unwrap(), SsTables { median: 1.0, p99: 3.0, max: 4.0 });
        assert!(parse_sstables("").is_err());
    }
}
