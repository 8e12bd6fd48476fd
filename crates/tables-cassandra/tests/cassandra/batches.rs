//! Checks how a node applied logged batches, by its own metrics.

use std::{thread::sleep, time::Duration};

/// The greatest number of checks, while other tests write too.
const MAX_CHECKS: usize = 100;

/// The pause between two checks.
const PAUSE: Duration = Duration::from_secs(2);

/// Panics unless `write` makes this many logged batches and each batch is one mutation. A split batch would
/// go through the batch log, and readers could see only a part of it.
///
/// The node itself makes batches when a table is created or dropped (the right to the table, and its entry in
/// an index of rights), and other tests write too. So the check is repeated until no other batches were
/// counted. If batches are always split, every check fails.
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
        if counted == (Batches { whole: batches, taken_apart: 0 }) {
            return;
        }
        assert!(
            counted.taken_apart < batches,
            "{batches} batches were written, and with those of others, {counted:?} were counted"
        );
        sleep(PAUSE);
    }
    panic!("other clients wrote to the node all the time");
}

/// The numbers of batches since the node started: with one partition, and with several partitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Batches {
    whole: u64,
    taken_apart: u64,
}

impl Batches {
    /// Asks the node through its nodetool; `None` if there is no nodetool.
    fn count(nodetool: impl Fn(&[&str]) -> Option<String>) -> Option<Self> {
        let bean = "org.apache.cassandra.metrics:type=Batch,name=PartitionsPerLoggedBatch";
        let text = nodetool(&["sjk", "mx", "-b", bean, "-mc", "-op", "values"])?;
        // The numbers of batches with one partition, with two partitions, and so on.
        let Some((_, numbers)) = text.split_once('[') else { panic!("no numbers in {text}") };
        let numbers = numbers.split([',', ']']).map(|number| number.trim().parse::<u64>());
        let numbers: Vec<u64> = numbers.map_while(Result::ok).collect();
        let (whole, others) = numbers.split_first().unwrap_or_else(|| panic!("no numbers in {text}"));
        Some(Self { whole: *whole, taken_apart: others.iter().sum() })
    }

    /// The difference since an earlier count.
    const fn since(self, before: Self) -> Self {
        Self { whole: self.whole - before.whole, taken_apart: self.taken_apart - before.taken_apart }
    }
}
