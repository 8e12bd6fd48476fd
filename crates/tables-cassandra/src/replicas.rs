//! Checks that a cluster has enough nodes for the copies of a new keyspace.

use std::collections::BTreeMap;

use crate::{Consistency, Replication};

/// Checks that a keyspace with this replication can be written. The error says why not, and what to do. `nodes` has
/// the number of nodes in each data centre. `named` is the number of nodes in the options; some of these nodes may
/// still be starting.
pub(crate) fn check(
    replication: &Replication,
    consistency: Consistency,
    nodes: &BTreeMap<String, usize>,
    named: usize,
) -> Result<(), String> {
    match replication {
        Replication::Simple(copies) => {
            let all = nodes.values().sum::<usize>();
            if all.max(named) >= needed(*copies, consistency) {
                return Ok(());
            }
            Err(format!(
                "it needs {copies} copies of all data, of which {} must be written, but the cluster has \
                 {all} {}; configure fewer copies, with ?replication={all} in the URL of the store or \
                 replication = {all} in [store] of the configuration, or start more nodes first",
                needed(*copies, consistency),
                if all == 1 { "node" } else { "nodes" },
            ))
        }
        Replication::ByDatacenter(copies) => {
            let short = copies.iter().find(|(datacenter, copies)| {
                nodes.get(*datacenter).copied().unwrap_or(0) < needed(**copies, consistency)
            });
            let Some((datacenter, copies)) = short else { return Ok(()) };
            let there: Vec<_> = nodes.iter().map(|(name, nodes)| format!("{name}: {nodes}")).collect();
            Err(format!(
                "it needs {copies} copies in the data centre {datacenter}, which has too few nodes (the \
                 cluster has {}); change replication in [store] of the configuration, or start more nodes \
                 first",
                there.join(", ")
            ))
        }
    }
}

/// Returns how many copies have to answer.
const fn needed(copies: u32, consistency: Consistency) -> usize {
    let copies = copies as usize;
    match consistency {
        Consistency::LocalQuorum | Consistency::Quorum => copies / 2 + 1,
        Consistency::All => copies,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(all: &[(&str, usize)]) -> BTreeMap<String, usize> {
        all.iter().map(|(name, nodes)| ((*name).to_owned(), *nodes)).collect()
    }

    fn simple(copies: u32, consistency: Consistency, all: usize, named: usize) -> Result<(), String> {
        check(&Replication::Simple(copies), consistency, &nodes(&[("datacenter1", all)]), named)
    }

    #[test]
    fn replication_that_can_never_be_written_is_refused_with_both_remedies() {
        let reason = simple(3, Consistency::LocalQuorum, 1, 1).expect_err("one node");
        for word in
            ["3 copies", "1 node;", "?replication=1", "replication = 1 in [store]", "start more nodes"]
        {
            assert!(reason.contains(word), "no {word:?} in {reason}");
        }
        assert!(simple(1, Consistency::LocalQuorum, 1, 1).is_ok());
        assert!(simple(3, Consistency::LocalQuorum, 2, 1).is_ok());
        assert!(simple(3, Consistency::All, 2, 1).is_err());
        // The options name two more nodes, which may still be starting.
        assert!(simple(3, Consistency::LocalQuorum, 1, 3).is_ok());
    }

    #[test]
    fn every_data_centre_is_checked() {
        let copies = BTreeMap::from([("east".to_owned(), 3), ("west".to_owned(), 3)]);
        let by_name = |all: &[(&str, usize)]| {
            check(&Replication::ByDatacenter(copies.clone()), Consistency::LocalQuorum, &nodes(all), 1)
        };
        assert!(by_name(&[("east", 3), ("west", 3)]).is_ok());
        let reason = by_name(&[("east", 3), ("West", 3)]).expect_err("there is no west");
        assert!(reason.contains("data centre west") && reason.contains("West: 3"), "{reason}");
    }
}
