//! The tombstones and SSTables of SELECTs, from Cassandra's histograms since they were last read.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use xtask::cassandra::Node;

use crate::cassandra::metrics;

/// The tombstones and SSTables of the SELECTs of one table.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SelectHistograms {
    /// The tombstones that each SELECT scanned. A SELECT without tombstones is counted with one.
    pub(super) tombstones: BucketCounts,
    /// The SSTables that each SELECT touched.
    pub(super) sstables: BucketCounts,
}

/// The upper ends of buckets, each with the number of SELECTs in the bucket.
#[derive(Debug, Default, PartialEq)]
pub(super) struct BucketCounts(Vec<(u64, u64)>);

impl BucketCounts {
    /// Reads the counts of buckets. The upper ends of the buckets grow by a fifth, and by at least one.
    fn new(first_end: u64, counts: &[u64]) -> Self {
        let next = |end: &u64| Some((*end + 1).max((*end as f64 * 1.2).round() as u64));
        let ends = std::iter::successors(Some(first_end), next);
        Self(ends.zip(counts.iter().copied()).filter(|(_, count)| *count > 0).collect())
    }

    /// The mean. It is not a number if there was no SELECT.
    pub(super) fn mean(&self) -> f64 {
        let all: u64 = self.0.iter().map(|(_, count)| count).sum();
        let sum: f64 = self.0.iter().map(|(end, count)| (end * count) as f64).sum();
        sum / all as f64
    }

    /// The maximum of a single SELECT.
    pub(super) fn most(&self) -> f64 {
        self.0.last().map_or(f64::NAN, |(end, _)| *end as f64)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The counts of the SELECTs of a keyspace since the last call, by table. Tables without SELECTs are omitted.
pub(super) fn take_histograms(node: &Node, keyspace: &str) -> Result<BTreeMap<String, SelectHistograms>> {
    let mut tables: BTreeMap<String, SelectHistograms> = BTreeMap::new();
    for (table, counts) in recent(node, keyspace, "TombstoneScannedHistogram")? {
        tables.entry(table).or_default().tombstones = BucketCounts::new(1, &counts);
    }
    for (table, counts) in recent(node, keyspace, "SSTablesPerReadHistogram")? {
        tables.entry(table).or_default().sstables = BucketCounts::new(0, &counts);
    }
    tables.retain(|_, of_reads| !of_reads.tombstones.is_empty() || !of_reads.sstables.is_empty());
    Ok(tables)
}

fn recent(node: &Node, keyspace: &str, histogram: &str) -> Result<Vec<(String, Vec<u64>)>> {
    let beans =
        format!("org.apache.cassandra.metrics:type=Table,keyspace={keyspace},scope=*,name={histogram}");
    parse(&metrics::nodetool(node, &["sjk", "mx", "-all", "-b", &beans, "-f", "RecentValues", "-mg"])?)
}

/// Parses an output in which a line with the bean's name is followed by one with a count for each bucket.
fn parse(text: &str) -> Result<Vec<(String, Vec<u64>)>> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let histogram = |pair: &[&str]| {
        let [bean, counts] = pair else { return None };
        let table = bean.split(',').find_map(|part| part.strip_prefix("scope="))?;
        let counts = counts.strip_prefix('[')?.strip_suffix(']')?.split(", ").map(str::parse);
        Some((table.to_owned(), counts.collect::<Result<_, _>>().ok()?))
    };
    lines.chunks(2).map(|pair| histogram(pair).with_context(|| format!("no histograms in {text}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_the_line_below_its_name() {
        let bean =
            "org.apache.cassandra.metrics:type=Table,keyspace=k,scope=renders,name=SSTablesPerReadHistogram";
        let text = format!("{bean}\n[3, 0, 2]\n\n{}\n[0, 0, 0]\n", bean.replace("renders", "due"));
        let (renders, due) = (("renders".to_owned(), vec![3, 0, 2]), ("due".to_owned(), vec![0, 0, 0]));
        assert_eq!(parse(&text).unwrap(), [renders, due]);
        assert!(parse("no beans").is_err());
    }

    #[test]
    fn buckets_end_where_those_of_cassandra_do() {
        let counted = BucketCounts::new(0, &[6, 0, 2, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(counted.0, [(0, 6), (2, 2), (10, 1)]);
        assert_eq!((counted.mean(), counted.most()), (14.0 / 9.0, 10.0));
        let none_or_one = BucketCounts::new(1, &[5]);
        assert_eq!((none_or_one.mean(), none_or_one.most()), (1.0, 1.0));
        assert!(BucketCounts::new(1, &[0]).mean().is_nan());
    }
}
