use rashomon_pages::CHUNK_SIZE;

use super::*;
use crate::handlers::form::MAX_FORM_TEXT_BYTES;

/// The bytes of a body that are held while it is received. hyper holds up to twice the size of its buffer, and the
/// parser of a form as much again.
const RECEIVED_BYTES: usize = 4 * (128 << 10);

fn staging(bytes: u64) -> Staging {
    let settings = Settings { staging_bytes: bytes, ..Settings::default() };
    Staging::new(&settings, &mut Registry::default())
}

#[test]
fn working_bytes_cover_what_the_documentation_lists() {
    // zstd makes a chunk larger by less than a 256th.
    let frame = CHUNK_SIZE + CHUNK_SIZE / 256;
    let receiving = RECEIVED_BYTES + CHUNK_SIZE + 2 * frame + COVERED_BODY_BYTES + MAX_FORM_TEXT_BYTES;
    assert!(receiving <= WORKING_BYTES, "{receiving}");
    const { assert!(MAX_BODIES + 2 * MAX_FORM_TEXT_BYTES <= WORKING_BYTES) };
}

#[test]
fn short_bodies_need_little_and_stay_in_memory() {
    assert_eq!(claim_size(Some(0)), (OVERHEAD_BYTES, 0));
    assert_eq!(claim_size(Some(1000)), (OVERHEAD_BYTES + 4000, 1000));
    for length in [Some(2 << 20), Some(u64::MAX), None] {
        assert_eq!(claim_size(length), (WORKING_BYTES, COVERED_BODY_BYTES));
    }
}

#[tokio::test(start_paused = true)]
async fn finished_bodies_stay_while_there_is_budget() {
    let staging = staging(2 * WORKING_BYTES as u64);
    let mut claim = staging.claim(None).await.unwrap();
    assert!(claim.keep(COVERED_BODY_BYTES));
    assert!(claim.keep(1_000_000));
    assert_eq!(staging.metrics.claimed.get(), (WORKING_BYTES + 977 * UNIT) as i64);
    assert!(claim.keep(2_000_000));
    assert!(!claim.keep(1_000_000), "more than a write keeps");
    claim.release_kept(1_000_000);
    assert!(claim.keep(1_000_000));
    // Another request cannot start meanwhile. After another one has started, neither of the two can keep more than
    // its claim covers.
    assert!(staging.claim(None).await.is_err());
    drop(claim);
    let mut first = staging.claim(None).await.unwrap();
    let second = staging.claim(None).await.unwrap();
    assert!(first.keep(COVERED_BODY_BYTES) && !first.keep(1));
    drop(second);
    assert!(first.keep(1));
    drop(first);
    assert_eq!(staging.metrics.claimed.get(), 0);
    assert_eq!(staging.units.free(), staging.units.all() as usize);
}

#[tokio::test(start_paused = true)]
async fn late_claim_covers_what_has_arrived() {
    let staging = staging(2 * WORKING_BYTES as u64);
    let claim = staging.claim(None).await.unwrap();
    assert_eq!(claim.arrive(1000).unwrap(), OVERHEAD_BYTES + 4000);
    claim.room().keep_what_arrived();
    let claimed = || staging.metrics.claimed.get() as usize;
    assert_eq!(claimed(), OVERHEAD_BYTES + 4 * UNIT);
    claim.arrive(99_000).unwrap();
    assert_eq!(claimed(), OVERHEAD_BYTES + 391 * UNIT);
    // While another request holds the rest, the claim cannot grow. After that, it grows up to a claim for any body.
    let _first = staging.claim(None).await.unwrap();
    let rest = staging.claim(Some(900_000)).await.unwrap();
    let refused = claim.arrive(100_000).unwrap_err();
    assert!(refused.detail().contains("slowly"), "{}", refused.detail());
    drop(rest);
    for _ in 0..100 {
        assert!(claim.arrive(100_000).unwrap() <= WORKING_BYTES);
    }
    assert_eq!(claimed(), 2 * WORKING_BYTES);
    drop(claim);
    assert_eq!(claimed(), WORKING_BYTES);
}

#[tokio::test(start_paused = true)]
async fn claim_of_nothing_cannot_grow() {
    let staging = staging(2 * WORKING_BYTES as u64);
    let mut nothing = staging.claim_nothing();
    assert!(nothing.grow(0) && !nothing.grow(1));
    nothing.shrink_to(0);
    drop(nothing);
    assert_eq!(staging.metrics.claimed.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_are_served_in_turn_or_refused() {
    let staging = Arc::new(staging(WORKING_BYTES as u64));
    let first = staging.claim(None).await.unwrap();
    let waiting = tokio::spawn({
        let staging = Arc::clone(&staging);
        async move { staging.claim_import().await.map(drop) }
    });
    tokio::time::sleep(Duration::from_secs(9)).await;
    drop(first);
    waiting.await.unwrap().unwrap();
    let held = staging.claim(Some(u64::MAX)).await.unwrap();
    let begun = tokio::time::Instant::now();
    let refused = staging.claim(Some(1)).await.unwrap_err();
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert!(refused.detail().contains("staging_memory for 10 s (staging_wait)"), "{}", refused.detail());
    assert_eq!((staging.metrics.waited.get(), staging.metrics.refused.get()), (2, 1));
    drop(held);
    staging.claim(Some(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn batches_hold_at_most_half_of_the_budget() {
    let staging = staging(2 * WORKING_BYTES as u64);
    let mut batch = staging.claim_batch(WORKING_BYTES - 1500).await.unwrap();
    assert!(batch.grow(1500) && !batch.grow(1), "half of the budget is the limit");
    // A request of the batch needs the other half.
    drop(staging.claim(None).await.unwrap());
    assert!(staging.claim_batch(1).await.is_err(), "batches wait for batches");
    batch.shrink(2 * UNIT);
    assert_eq!(staging.metrics.claimed.get(), (WORKING_BYTES - 2 * UNIT) as i64);
    drop(staging.claim_batch(2 * UNIT).await.unwrap());
    // A batch larger than the half takes all of the half.
    drop(batch);
    let batch = staging.claim_batch(usize::MAX / 2).await.unwrap();
    drop(staging.claim(None).await.unwrap());
    drop(batch);
    assert_eq!(staging.metrics.claimed.get(), 0);
    assert_eq!(staging.units.free(), staging.units.all() as usize);
    assert_eq!(staging.batch_units.free(), staging.batch_units.all() as usize);
}
