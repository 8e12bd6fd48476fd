//! Tests that the comparison by random operations finds stores with flaws.

use std::{num::NonZeroUsize, panic::catch_unwind, sync::Arc};

use async_trait::async_trait;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};
use rashomon_clock::Clock;
use rashomon_tables::{
    Batch, Cursor, Decorator, Key, Memory, Mutation, Order, Page, Partition, PartitionVersions, Result, Row,
    Scan, Schema, Swap, TableStore,
    contract::{self, Factory, random},
};

/// A flaw that tests of single promises might miss.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// Range deletes with only an upper bound do nothing.
    KeepsRanges,
    /// Deletes ignore their time.
    DeletesLaterRows,
    /// Scans in reverse begin again at every page.
    ForgetsTheCursor,
    /// Swaps ignore the expected row.
    DoesNotCompare,
    /// Every page of partitions except the first lacks one partition.
    LosesPartitions,
    /// If `first` has several batches, the last one is not written.
    LosesBatches,
    /// A refused swap does not write its batches.
    LosesBatchesOfRefusedSwaps,
    /// Rows stay visible a microsecond too long.
    ExpiresLate,
}

#[derive(Debug)]
struct FlawedStore {
    flaw: Flaw,
    store: Memory,
}

impl FlawedStore {
    /// Changes a batch as the flaw does.
    fn apply_flaw(&self, batch: &mut Batch) {
        match self.flaw {
            Flaw::KeepsRanges => batch.mutations.retain(|mutation| {
                !matches!(mutation, Mutation::DeleteRange { range, .. }
                    if range.upper != std::ops::Bound::Unbounded && range.lower == std::ops::Bound::Unbounded)
            }),
            Flaw::DeletesLaterRows => {
                for mutation in &mut batch.mutations {
                    if let Mutation::DeleteRange { written_before: at, .. }
                    | Mutation::Delete { written_at: at, .. } = mutation
                    {
                        *at = rashomon_clock::Timestamp::MAX;
                    }
                }
            }
            _ => {}
        }
    }
}

#[async_trait]
impl Decorator for FlawedStore {
    type Store = Memory;

    fn below(&self) -> &Memory {
        &self.store
    }

    async fn scan(&self, table: &'static Schema, mut scan: Scan) -> Result<Page<Row>> {
        if self.flaw == Flaw::ForgetsTheCursor && scan.order == Order::Reverse {
            scan.after = None;
        }
        self.store.scan(table, scan).await
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        let second = after.is_some();
        let mut page = self.store.partitions(table, after, limit).await?;
        if self.flaw == Flaw::LosesPartitions && second {
            page.items.pop();
        }
        Ok(page)
    }

    async fn write(&self, mut first: Vec<Batch>, mut then: Batch) -> Result<()> {
        if self.flaw == Flaw::LosesBatches
            && first.len() > 1
            && first.iter().all(|batch| batch.check().is_ok())
        {
            first.pop();
        }
        first.iter_mut().chain([&mut then]).for_each(|batch| self.apply_flaw(batch));
        self.store.write(first, then).await
    }

    async fn swap(
        &self,
        mut first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        first.iter_mut().for_each(|batch| self.apply_flaw(batch));
        let current = self.store.get(table, key).await?;
        let is_expected = current.as_ref().map(|row| &row.values) == expected.map(|row| &row.values);
        match self.flaw {
            Flaw::DoesNotCompare => {
                return self.store.swap(first, table, key, current.as_ref(), new).await;
            }
            Flaw::LosesBatchesOfRefusedSwaps if !is_expected => {
                first.retain(|batch| batch.check().is_err());
            }
            _ => {}
        }
        self.store.swap(first, table, key, expected, new).await
    }

    /// Partition versions are not tested here.
    fn partition_versions(&self) -> Option<&PartitionVersions> {
        None
    }
}

/// A clock that is a microsecond behind another clock.
#[derive(Debug)]
struct LateClock(Arc<dyn Clock>);

impl Clock for LateClock {
    fn now(&self) -> rashomon_clock::Timestamp {
        self.0.now().saturating_sub(std::time::Duration::from_micros(1))
    }

    fn monotonic(&self) -> std::time::Duration {
        self.0.monotonic()
    }
}

fn factory(flaw: Flaw) -> impl Factory {
    move |clock: Arc<dyn Clock>| -> Arc<dyn TableStore> {
        let clock = if flaw == Flaw::ExpiresLate { Arc::new(LateClock(clock)) } else { clock };
        Arc::new(FlawedStore { flaw, store: Memory::new(clock) })
    }
}

/// Checks that the comparison with the store in memory fails for a store with this flaw. The first sequence that fails
/// is not simplified.
fn assert_found(flaw: Flaw) {
    let mut runner = TestRunner::new(Config {
        cases: 64,
        rng_seed: RngSeed::Fixed(1),
        max_shrink_iters: 0,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&random::operations(), |operations| {
        contract::block_on(random::compare(&factory(flaw), &operations));
        Ok(())
    });
    assert!(matches!(result, Err(TestError::Fail(..))), "{flaw:?} was not found: {result:?}");
}

#[test]
fn a_store_without_a_flaw_passes() {
    random::assert_matches_memory(64, || factory(Flaw::None));
}

#[test]
fn failure_is_reported_with_its_seed_and_a_simple_sequence() {
    let panic = catch_unwind(|| random::assert_matches_memory(64, || factory(Flaw::KeepsRanges)))
        .expect_err("a flaw");
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.contains("RASHOMON_SEED="), "{message}");
    assert!(message.matches("Put {").count() < 9, "{message}");
}

#[test]
fn a_kept_range_is_found() {
    assert_found(Flaw::KeepsRanges);
}

#[test]
fn a_delete_of_later_rows_is_found() {
    assert_found(Flaw::DeletesLaterRows);
}

#[test]
fn a_forgotten_cursor_is_found() {
    assert_found(Flaw::ForgetsTheCursor);
}

#[test]
fn a_swap_that_does_not_compare_is_found() {
    assert_found(Flaw::DoesNotCompare);
}

#[test]
fn a_lost_partition_is_found() {
    assert_found(Flaw::LosesPartitions);
}

#[test]
fn a_lost_batch_is_found() {
    assert_found(Flaw::LosesBatches);
}

#[test]
fn a_lost_batch_of_a_refused_swap_is_found() {
    assert_found(Flaw::LosesBatchesOfRefusedSwaps);
}

#[test]
fn a_late_expiry_is_found() {
    assert_found(Flaw::ExpiresLate);
}
