//! Two processes on a cluster write a page at the same time, under strategies whose superseded values expire.
//! Neither process deletes or overwrites values that the other has written meanwhile.

use std::sync::Arc;

use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::{Current, Fill, NewRevision, Page, Result, Strategy, Written};
use rashomon_tables::{Call, Fault, Faulty, Gate, Memory, Plan, TableStore};
use tokio::task::JoinHandle;

use crate::{
    retention::{DAY, HOUR, SECOND, policy_with, settings},
    support::{AnyStore, Cluster, CurrentRow, START, World, page, rev},
};

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

/// Two processes. The first can be halted at a call of the store.
pub(crate) struct TwoProcesses {
    pub(crate) one: World,
    pub(crate) calls_of_one: Arc<Faulty<AnyStore>>,
    pub(crate) other: World,
}

impl TwoProcesses {
    pub(crate) async fn with_strategy(strategy: Strategy) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let store: AnyStore = Arc::new(Cluster::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>)));
        let calls_of_one = Arc::new(Faulty::new(Arc::clone(&store), Plan::empty()));
        let store_of_one = Arc::clone(&calls_of_one) as Arc<dyn TableStore>;
        let settings = settings(policy_with(strategy));
        let one = World::on(store_of_one, Arc::clone(&clock), settings.clone(), 1).await;
        let other = World::on(store, clock, settings, 2).await;
        Self { one, calls_of_one, other }
    }

    /// The first process writes a revision, and halts before a call until the gate is opened.
    async fn halted_write(
        &self,
        page: &Page,
        number: i64,
        call: (Call, u64),
    ) -> (Gate, JoinHandle<Result<Written>>) {
        let gate = Gate::new();
        let new: NewRevision = self.one.new_revision(page, number, HTML).await;
        self.calls_of_one.set_plan(Plan::empty().on(call.0, call.1, Fault::Pause(gate.clone())));
        let (buckets, page) = (self.one.buckets.clone(), page.clone());
        let writer = tokio::spawn(async move { buckets.put_revision(&page, new).await });
        gate.reached().await;
        (gate, writer)
    }
}

/// R1, if the latest value of each property is in one row: a process that is about to set the row finds a
/// higher revision in the row, and does not change it.
#[tokio::test]
async fn lower_revision_does_not_replace_the_current_row_of_a_higher() {
    for fill in [Fill::CopyOnUpdate, Fill::CopyOnRead, Fill::WriteThrough] {
        let one_row = Strategy::TablePerQuery(Current::OneRow, fill);
        let (two, page) = (TwoProcesses::with_strategy(one_row).await, page("Main_Page"));
        two.other.put_revision(&page, 1, HTML).await.unwrap();
        for number in 1..=HTML.len() as u64 {
            let (lower, higher) = (number as i64 * 10, number as i64 * 10 + 1);
            let (gate, writer) = two.halted_write(&page, lower, (Call::Swap, number)).await;
            two.other.put_revision(&page, higher, HTML).await.unwrap();
            gate.open();
            assert!(writer.await.unwrap().unwrap().created);
            let rows = two.other.typed_rows::<CurrentRow>().await;
            assert_eq!(rows.len(), HTML.len());
            for row in rows {
                assert_eq!(row.rev, rev(higher), "{}", row.property);
            }
        }
        // All copies have expired.
        two.other.pass(100 * DAY);
        for (property, body) in HTML {
            assert_eq!(two.other.read_latest(&page, property).await, body.as_bytes());
        }
    }
}

/// R6, if a write first copies a value and then deletes it: a value that was replaced in between expires by
/// its own time, with its whole render.
#[tokio::test]
async fn delete_spares_a_value_replaced_after_it_was_copied() {
    let (two, page) = (TwoProcesses::with_strategy(Strategy::TwoTable).await, page("Main_Page"));
    let first = two.other.put_revision(&page, 1, HTML).await.unwrap();
    two.other.pass(HOUR);
    let (gate, writer) = two.halted_write(&page, 2, (Call::Write, 2)).await;
    // The copy has almost expired.
    two.other.pass(DAY - HOUR);
    two.other.rewrite(&page, first.tid, "html", "mended").await.unwrap();
    gate.open();
    assert!(writer.await.unwrap().unwrap().created);
    two.other.assert_stored(first.tid, "html", true).await;
    two.other.assert_stored(first.tid, "data-parsoid", true).await;
    two.other.pass(DAY - SECOND);
    two.other.sweep().await;
    assert_eq!(two.other.read(&page, first.tid, "html").await, b"mended");
    assert_eq!(two.other.read(&page, first.tid, "data-parsoid").await, b"{}");
}

/// R6, if the copied values are deleted in the batch of the write: a value replaced in between stays.
#[tokio::test]
async fn write_with_a_delete_spares_a_value_replaced_after_it_was_copied() {
    let wide_row = Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnUpdate);
    let (two, page) = (TwoProcesses::with_strategy(wide_row).await, page("Main_Page"));
    let first = two.other.put_revision(&page, 1, HTML).await.unwrap();
    two.other.pass(HOUR);
    let (gate, writer) = two.halted_write(&page, 2, (Call::Write, 1)).await;
    two.other.rewrite(&page, first.tid, "html", "mended").await.unwrap();
    gate.open();
    assert!(writer.await.unwrap().unwrap().created);
    two.other.assert_stored(first.tid, "html", true).await;
    two.other.assert_stored(first.tid, "data-parsoid", true).await;
}
