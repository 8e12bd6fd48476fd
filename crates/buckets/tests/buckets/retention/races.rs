//! Two processes on a cluster that write a page at the same time, where superseded values expire: what one deletes or
//! sets is not what the other has written meanwhile.

use std::sync::Arc;

use rashomon_buckets::{Current, Fill, NewRevision, Page, Result, Strategy, Written, schemas};
use rashomon_clock::{Clock, ManualClock};
use rashomon_tables::{Call, Fault, Faulty, Gate, Memory, Plan, TableStore, Value};
use tokio::task::JoinHandle;

use crate::{
    retention::{DAY, HOUR, SECOND, by, settings},
    support::{AnyStore, Cluster, START, World, page},
};

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

/// The first of two processes can be stopped at a call of the store.
pub(crate) struct Two {
    pub(crate) one: World,
    pub(crate) calls_of_one: Arc<Faulty<AnyStore>>,
    pub(crate) other: World,
}

impl Two {
    pub(crate) async fn under(strategy: Strategy) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let store: AnyStore = Arc::new(Cluster::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>)));
        let calls_of_one = Arc::new(Faulty::new(Arc::clone(&store), Plan::empty()));
        let seen = Arc::clone(&calls_of_one) as Arc<dyn TableStore>;
        let settings = settings(by(strategy));
        let one = World::on(seen, Arc::clone(&clock), settings.clone(), 1).await;
        let other = World::on(store, clock, settings, 2).await;
        Self { one, calls_of_one, other }
    }

    /// The first writes a revision, and waits before a call until the gate is opened.
    async fn stopped(
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

/// R1, where the latest lies in one row a property: whoever is about to set it finds a higher one, and leaves it.
#[tokio::test]
async fn a_lower_revision_does_not_take_the_row_of_a_higher_one() {
    for fill in [Fill::CopyOnUpdate, Fill::CopyOnRead, Fill::WriteThrough] {
        let one_row = Strategy::TablePerQuery(Current::OneRow, fill);
        let (two, page) = (Two::under(one_row).await, page("Main_Page"));
        two.other.put_revision(&page, 1, HTML).await.unwrap();
        for number in 1..=HTML.len() as u64 {
            let (lower, higher) = (number as i64 * 10, number as i64 * 10 + 1);
            let (gate, writer) = two.stopped(&page, lower, (Call::Swap, number)).await;
            two.other.put_revision(&page, higher, HTML).await.unwrap();
            gate.open();
            assert!(writer.await.unwrap().unwrap().created);
            let rows = two.other.rows(&schemas::CURRENT).await;
            assert_eq!(rows.len(), HTML.len());
            for row in rows {
                assert_eq!(row.values[6], Some(Value::Int(higher)), "{:?}", row.key.clustering);
            }
        }
        // When no copy is left to help.
        two.other.pass(100 * DAY);
        for (property, body) in HTML {
            assert_eq!(two.other.read_latest(&page, property).await, body.as_bytes());
        }
    }
}

/// R6 where a write deletes after it what it has copied: what was replaced in between has its own time, with all of its
/// render.
#[tokio::test]
async fn a_delete_spares_what_was_replaced_after_it_was_copied() {
    let (two, page) = (Two::under(Strategy::TwoTable).await, page("Main_Page"));
    let first = two.other.put_revision(&page, 1, HTML).await.unwrap();
    two.other.pass(HOUR);
    let (gate, writer) = two.stopped(&page, 2, (Call::Write, 2)).await;
    // The copy is almost over.
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

/// The same where the delete is part of the write.
#[tokio::test]
async fn a_write_that_deletes_spares_what_was_replaced_after_it_was_copied() {
    let wide_row = Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnUpdate);
    let (two, page) = (Two::under(wide_row).await, page("Main_Page"));
    let first = two.other.put_revision(&page, 1, HTML).await.unwrap();
    two.other.pass(HOUR);
    let (gate, writer) = two.stopped(&page, 2, (Call::Write, 1)).await;
    two.other.rewrite(&page, first.tid, "html", "mended").await.unwrap();
    gate.open();
    assert!(writer.await.unwrap().unwrap().created);
    two.other.assert_stored(first.tid, "html", true).await;
    two.other.assert_stored(first.tid, "data-parsoid", true).await;
}
