//! What the logged batches of a node were, by its own count.

use std::{thread::sleep, time::Duration};

/// How often it is looked at: so long other tests may write without a rest.
const LOOKS: usize = 100;

/// How long the others are left alone before it is looked at again.
const PAUSE: Duration = Duration::from_secs(2);

/// Fails unless `write` makes so many logged batches, and each of them is one mutation. One that was taken
/// apart would go through the log of batches, and readers could see one part without the other.
///
/// The node makes batches of its own, where a table is made or dropped (the right to it, and its entry in an
/// index of rights), and other tests write too. So it is looked at again and again, until nobody else wrote
/// meanwhile. Batches that are always taken apart are never counted as it should be.
pub(crate) fn assert_each_is_one_mutation(
    batches: u64,
    nodetool: impl Fn(&[&str]) -> Option<String>,
    mut write: impl FnMut(),
) {
    // What is done once alone, such as making tables, is done here.
    write();
    for _ in 0..LOOKS {
        let Some(before) = Batches::count(&nodetool) else { return };
        write();
        let counted = Batches::count(&nodetool).expect("it was there").since(before);
        if counted == (Batches { whole: batches, taken_apart: 0 }) {
            return;
        }
        assert!(counted.taken_apart < batches, "of {batches} batches, and those of others: {counted:?}");
        sleep(PAUSE);
    }
    panic!("others wrote to the node all the time");
}

/// The batches of one partition, and those of more, since the node began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Batches {
    whole: u64,
    taken_apart: u64,
}

impl Batches {
    /// Asks the node, through its nodetool; `None` where there is none.
    fn count(nodetool: impl Fn(&[&str]) -> Option<String>) -> Option<Self> {
        let bean = "org.apache.cassandra.metrics:type=Batch,name=PartitionsPerLoggedBatch";
        let text = nodetool(&["sjk", "mx", "-b", bean, "-mc", "-op", "values"])?;
        // How many batches had one partition, how many two, and so on.
        let Some((_, numbers)) = text.split_once('[') else { panic!("no numbers in {text}") };
        let numbers = numbers.split([',', ']']).map(|number| number.trim().parse::<u64>());
        let numbers: Vec<u64> = numbers.map_while(Result::ok).collect();
        let (whole, others) = numbers.split_first().unwrap_or_else(|| panic!("no numbers in {text}"));
        Some(Self { whole: *whole, taken_apart: others.iter().sum() })
    }

    /// What came since.
    const fn since(self, before: Self) -> Self {
        Self { whole: self.whole - before.whole, taken_apart: self.taken_apart - before.taken_apart }
    }
}
