//! The contract that every store must keep, as tests: one function for each promise.
//!
//! A store runs the tests with a function that opens the store, and one line:
//!
//! ```
//! use std::sync::Arc;
//!
//! use rashomon_clock::Clock;
//! use rashomon_tables::{Memory, TableStore};
//!
//! fn open(clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
//!     Arc::new(Memory::new(clock))
//! }
//!
//! rashomon_tables::contract_tests!(open);
//! ```
//!
//! A durable store implements [`Factory`], so that the tests can close it and open it again.
//!
//! The tests require nothing that a cluster cannot promise. No two different rows have the same key and the same
//! write time. No put has a write time at or before that of an earlier delete of its row. All write times are in 2025.

mod columns;
mod creation;
mod deletes;
mod durability;
mod expiry;
mod fixtures;
mod order;
mod pages;
mod partition_versions;
mod partitions;
pub mod random;
mod swaps;
mod walks;
mod writes;

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use rashomon_clock::Clock;

pub use self::{
    columns::*, creation::*, deletes::*, durability::*, expiry::*, order::*, pages::*, partition_versions::*,
    partitions::*, swaps::*, walks::*, writes::*,
};
use crate::{Schema, TableStore};

/// Opens stores for tests.
#[async_trait]
pub trait Factory: Send + Sync {
    /// Opens a store without tables. Each promise has its own factory, and calls this method once.
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn TableStore>;

    /// Closes the store, and opens it again with its rows. `None` if the store is not durable.
    async fn reopen(&self, store: Arc<dyn TableStore>, clock: Arc<dyn Clock>) -> Option<Arc<dyn TableStore>>;

    /// Adds the value columns of a later schema to the existing table of the same name, as an operator does with a
    /// command. Returns the open store, or `None` if the store has no such command.
    async fn upgrade(
        &self,
        _store: Arc<dyn TableStore>,
        _clock: Arc<dyn Clock>,
        _schema: &'static Schema,
    ) -> Option<Arc<dyn TableStore>> {
        None
    }
}

/// A store that is not durable needs only a function that creates it.
#[async_trait]
impl<F> Factory for F
where
    F: Fn(Arc<dyn Clock>) -> Arc<dyn TableStore> + Send + Sync,
{
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
        self(clock)
    }

    async fn reopen(&self, _: Arc<dyn TableStore>, _: Arc<dyn Clock>) -> Option<Arc<dyn TableStore>> {
        None
    }
}

/// A promise of the contract, with the test that checks it.
pub struct Promise {
    /// The name of the test function.
    pub name: &'static str,
    /// Panics unless the store keeps the promise.
    pub check: for<'a> fn(&'a dyn Factory) -> BoxFuture<'a, ()>,
}

impl std::fmt::Debug for Promise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All promises. [`contract_tests!`](crate::contract_tests) defines a test for each promise.
pub const PROMISES: &[Promise] = crate::contract_tests!(@promises list);

/// Checks all promises. Each test has its own store and factory.
///
/// # Panics
///
/// At the first broken promise.
pub async fn run<F: Factory>(mut factory: impl FnMut() -> F) {
    for promise in PROMISES {
        (promise.check)(&factory()).await;
    }
}

/// Runs the future of a promise on a new runtime with two threads.
///
/// # Panics
///
/// If the future panics.
pub fn block_on<T>(promise: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().expect("a runtime").block_on(promise)
}

/// Defines a test for each promise. The tests use the store that the factory opens, and each test evaluates the
/// factory expression once.
#[macro_export]
macro_rules! contract_tests {
    ($factory:expr) => {
        $crate::contract_tests!(@promises tests $factory);
    };
    (@promises $rule:ident $($arguments:tt)*) => {
        $crate::contract_tests! {
            @$rule [$($arguments)*]
            creating_again_changes_nothing
            a_table_may_be_created_by_many_at_once
            a_table_that_lacks_columns_is_refused
            an_added_column_is_none_in_old_rows
            other_changes_of_a_schema_are_refused
            a_table_that_was_not_created_is_refused
            tables_are_separate
            values_of_every_type_are_read_unchanged
            values_may_be_none
            a_table_may_have_no_clustering_columns
            a_table_may_have_no_value_columns
            values_up_to_the_limit_are_kept
            calls_that_do_not_fit_the_table_are_refused
            text_is_sorted_by_its_bytes
            blobs_are_sorted_by_their_bytes
            numbers_are_sorted_by_size
            times_are_sorted_by_size
            time_uuids_are_sorted_by_time_then_by_signed_bytes
            columns_are_sorted_one_after_the_other
            ranges_with_a_prefix_return_exactly_their_rows
            a_row_is_read_as_it_was_put
            a_batch_spans_tables
            a_call_applies_all_its_batches
            a_batch_may_have_many_mutations
            an_empty_call_changes_nothing
            an_invalid_call_changes_nothing
            an_older_put_is_ignored
            a_later_put_replaces_all_of_the_row
            a_call_may_be_repeated
            calls_may_be_made_by_many_at_once
            a_delete_spares_rows_written_later
            a_deleted_row_can_be_put_again
            a_delete_deletes_only_its_row
            a_range_delete_spares_rows_written_later
            a_range_delete_deletes_only_its_range
            range_deletes_may_overlap
            a_range_delete_and_puts_share_a_batch
            pages_of_a_scan_have_all_its_rows
            reads_return_together_what_they_return_alone
            pages_are_bounded_in_bytes
            reads_of_all_replicas_find_the_same_rows
            limits_may_differ_between_pages
            a_cursor_may_be_used_again
            a_scan_of_nothing_ends
            a_scan_returns_each_lasting_row_once
            a_scan_during_writes_returns_each_lasting_row_once
            a_row_is_in_the_scan_of_its_partition_alone
            partitions_are_separate
            every_partition_is_listed_once
            partitions_without_a_visible_row_are_not_listed
            lasting_partitions_are_listed_once
            a_walk_has_the_rows_of_its_tables
            a_walk_visits_the_partitions_with_its_first_values
            a_walk_from_a_partition_visits_the_others_in_order
            a_walk_returns_each_lasting_row_once
            walks_that_do_not_fit_are_invalid
            a_row_is_invisible_from_its_expiry_on
            swap_treats_expired_row_as_missing
            the_default_time_to_live_counts_from_the_write_time
            the_default_time_to_live_holds_for_swaps
            row_put_after_its_expiry_is_never_visible
            a_jump_of_the_clock_hides_no_row
            an_expired_row_can_be_put_again
            a_scan_passes_over_expired_rows
            a_swap_compares_and_sets
            a_swap_compares_values_alone
            each_swap_has_a_later_write_time
            one_of_many_swaps_wins
            concurrent_swaps_lose_no_increment
            rows_written_by_swaps_are_readable
            a_swap_applies_its_batches_even_if_it_is_refused
            a_swapped_row_is_visible_after_its_batches
            size_limits_hold_for_each_batch_of_a_swap
            swaps_that_do_not_fit_are_invalid
            partition_version_changes_with_writes_and_not_with_reads
            values_cached_by_partition_version_are_never_stale
            acknowledged_writes_are_there_after_reopening
            schemas_are_known_after_reopening
        }
    };
    (@tests [$factory:expr] $($promise:ident)*) => {
        $(
            #[test]
            fn $promise() {
                let factory = $factory;
                $crate::contract::block_on($crate::contract::$promise(&factory));
            }
        )*
    };
    (@list [] $($promise:ident)*) => {
        &[$(Promise { name: stringify!($promise), check: |factory| Box::pin($promise(factory)) }),*]
    };
}

#[cfg(test)]
mod tests {
    use super::PROMISES;

    #[test]
    fn every_promise_is_listed() {
        let sources = [
            include_str!("contract/columns.rs"),
            include_str!("contract/creation.rs"),
            include_str!("contract/deletes.rs"),
            include_str!("contract/durability.rs"),
            include_str!("contract/expiry.rs"),
            include_str!("contract/partition_versions.rs"),
            include_str!("contract/order.rs"),
            include_str!("contract/pages.rs"),
            include_str!("contract/partitions.rs"),
            include_str!("contract/swaps.rs"),
            include_str!("contract/walks.rs"),
            include_str!("contract/writes.rs"),
        ];
        let written = sources
            .iter()
            .flat_map(|source| source.lines())
            .filter_map(|line| line.strip_prefix("pub async fn ")?.strip_suffix("(factory: &dyn Factory) {"));
        let mut written: Vec<_> = written.collect();
        let mut listed: Vec<_> = PROMISES.iter().map(|promise| promise.name).collect();
        written.sort_unstable();
        listed.sort_unstable();
        assert_eq!(written, listed);
    }
}
