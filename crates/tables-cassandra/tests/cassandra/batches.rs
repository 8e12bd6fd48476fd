//! Checks how a node applied logged batches, by its own metrics.

use std::{thread::sleep, time::Duration};

/// The maximum number of checks. A check is repeated if other tests wrote to the node at the same time.
const MAX_CHECKS: usize = 100;

/// The pause between two checks.
const PAUSE: Duration = Duration::from_secs(2);

/// Panics unless `write` makes this many logged batches and each batch is one mutation. A split batch would go
/// through the batch log, and readers could see only a part of it.
///
/// The node also counts the batches of other tests. It also counts its own batches: when a table is created or
/// dropped, it writes the permission on the table, and an entry of the permission in an index. So the check is
/// repeated until no other batches were counted. Panics at once if the node counted less than `batches` whole batches,
/// since others can only add to them.
pub(crate) fn assert_each_is_one_mutation(
    batches: u64,
    nodetool: impl Fn(&[&str]) -> Option<String>,
    mut write: impl FnMut(),
) {
    // The first call does one-time work, such as creating tables, before batches are counted.
    write();
    for _ in 0..MAX_CHECKS {
        let Some(before) = Batches::count(&nodetool) else { return };
        write();
        let counted = Batches::count(&nodetool).expect("it was there").since(before);
        if counted == (Batches { whole: batches, split: 0 }) {
            return;
        }
        assert!(
            counted.whole >= batches,
            "each of {batches} batches must be one mutation; the node counted {counted:?}, including batches of others"
        );
        sleep(PAUSE);
    }
    panic!(
        "no check of {MAX_CHECKS} counted exactly {batches} whole batches: other clients wrote all the time, or \
         some batches were split"
    );
}

/// The numbers of batches since the node started: with one partition, and with several partitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Batches {
    whole: u64,
    split: u64,
}

impl Batches {
    /// Reads the numbers from the node by its nodetool. `None` if there is no nodetool.
    fn count(nodetool: impl Fn(&[&str]) -> Option<String>) -> Option<Self> {
        let bean = "org.apache.cassandra.metrics:type=Batch,name=PartitionsPerLoggedBatch";
        let text = nodetool(&["sjk", "mx", "-b", bean, "-mc", "-op", "values"])?;
        // The numbers of batches with one partition, with two partitions, and so on.
        let Some((_, numbers)) = text.split_once('[') else { panic!("no numbers in {text}") };
        let numbers = numbers.split([',', ']']).map(|number| number.trim().parse::<u64>());
        let numbers: Vec<u64> = numbers.map_while(Result::ok).collect();
        let (whole, others) = numbers.split_first().unwrap_or_else(|| panic!("no numbers in {text}"));
        Some(Self { whole: *whole, split: others.iter().sum() })
    }

    /// The difference since an earlier count.
    const fn since(self, before: Self) -> Self {
        Self { whole: self.whole - before.whole, split: self.split - before.split }
    }
}
