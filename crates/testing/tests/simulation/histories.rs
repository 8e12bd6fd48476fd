//! A few simulated histories (random steps from a seed) that run with the other tests. `cargo xtask simulate`
//! runs any number, and with `--collector` those of the garbage collector. The step `retention` of
//! `cargo xtask test` also runs more of them, but not those of the garbage collector.

use std::time::Duration;

use rashomon_pages::{Policy, Strategy};
use rashomon_testing::simulation::{
    Action, Disturbance, History, Name, Names, Plan, Step, Store, StorePool, Variant, many, run,
};

/// A seed far from the default seed of the program, so that the tests and the program run different histories.
const SEED: u64 = 1_000_000_000;

fn no_promise_is_broken(store: Store, histories: u64) {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let plan = Plan { histories, seed: SEED, store, threads };
    let found = many(plan, &Variant::SOUND, &|_| {}).unwrap();
    if let Some(found) = found {
        panic!("{}\nwith seed {}; shortened:\n{}", found.violation, found.seed, found.shortest);
    }
}

#[test]
fn no_promise_is_broken_in_memory() {
    no_promise_is_broken(Store::Memory, 200);
}

/// A write to the further bucket arrives after the bucket was deleted, and made again. Nothing of it is left when the
/// pages of the deleted bucket were deleted twice.
#[tokio::test(start_paused = true)]
async fn late_write_to_a_deleted_bucket_leaves_nothing() {
    let history = History::of_seed(3, false, |setup| {
        setup.processes = 2;
        setup.pages = 1;
        setup.skew = Duration::ZERO;
        setup.jumps = false;
        setup.further = true;
    });
    let put = |page, rev| Action::PutRevision {
        page,
        rev,
        names: Names(1 << Name::Html as u8),
        variant: 0,
        age: None,
        if_latest: false,
    };
    let late = Some(Disturbance::Late(Duration::from_secs(3600)));
    let steps = [
        (put(0, 1), None),
        (put(1, 2), None),
        (put(1, 3), late),
        (Action::RecreateBucket, None),
        (Action::DeletePages, None),
        (put(1, 1), None),
        (Action::Pass(Duration::from_secs(7200)), None),
    ];
    let steps = steps.map(|(action, disturbance)| Step { process: 0, action, disturbance });
    let pool = StorePool::open(Store::Memory).await.unwrap();
    let outcome = run(&history.with(steps.into()), &pool, &Variant::SOUND).await.unwrap();
    assert_eq!(outcome.found, None, "{}", outcome.log);
    assert!(outcome.log.contains("a write is late"), "{}", outcome.log);
}

/// Two processes write, seal and collect garbage on three replicas. A batch may reach only some of the
/// replicas.
#[test]
fn collector_loses_no_acknowledged_revision() {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    rashomon_testing::simulation::collecting::many(60, SEED, threads, &|_| {}).unwrap();
}

/// A write reached one replica, a read repaired some of its rows on the others, and other revisions of its
/// page were sealed.
#[tokio::test(start_paused = true)]
async fn half_repaired_write_is_whole_after_a_seal() {
    rashomon_testing::simulation::collecting::run(5850).await.unwrap();
}

#[test]
fn no_promise_is_broken_in_sqlite() {
    no_promise_is_broken(Store::Sqlite, 10);
}

#[tokio::test(start_paused = true)]
async fn same_seed_gives_the_same_history_and_run() {
    let pool = StorePool::open(Store::Memory).await.unwrap();
    let mut runs = Vec::new();
    for seed in [7, 8, 9, 7, 8, 9] {
        let history = History::of_seed(seed, false, |_| {});
        let outcome = run(&history, &pool, &Variant::SOUND).await.unwrap();
        runs.push(format!("{history}{outcome:?}"));
    }
    assert_eq!(runs[..3], runs[3..]);
    assert_ne!(runs[0], runs[1]);
}

/// A read by the tid of a generated render may also find a property of the revision. The model allows that.
#[tokio::test(start_paused = true)]
async fn property_of_the_revision_may_be_read_by_the_tid_of_a_generated_render() {
    let history = History::of_seed(3, true, |setup| {
        setup.generator = true;
        setup.strategy = Strategy::AppTtl;
        setup.policy = Some(Policy::default());
    });
    let put = |rev, names: &[Name]| {
        let names = Names(names.iter().map(|name| 1 << *name as u8).sum());
        Action::PutRevision { page: 0, rev, names, variant: 0, age: None, if_latest: false }
    };
    let actions = [
        put(8, &[Name::Html, Name::Parsoid]),
        put(4, &[Name::Wikitext, Name::Slot]),
        Action::ReadRevision { page: 0, render: 1, name: Name::Html },
        Action::Read { page: 0, render: 0, name: Name::Slot },
        Action::SetPolicy(None),
        Action::Read { page: 0, render: 0, name: Name::Slot },
    ];
    let steps = actions.map(|action| Step { process: 0, action, disturbance: None });
    let pool = StorePool::open(Store::Memory).await.unwrap();
    let outcome = run(&history.with(steps.into()), &pool, &Variant::SOUND).await.unwrap();
    assert_eq!(outcome.found, None, "{}", outcome.log);
    assert!(outcome.log.contains("read html"), "nothing was made: {}", outcome.log);
}

/// The write of revision 9 is held back until another process has rolled it back. Then its rows arrive
/// without effect, and its writer records in the timeline that revision 7 is superseded. Only two days later,
/// revision 8 supersedes revision 7. The write of revision 8 culls, and must not cull revision 7.
#[tokio::test(start_paused = true)]
async fn entry_of_a_write_that_lost_its_lease_culls_nothing_early() {
    let history = History::of_seed(3, false, |setup| {
        setup.processes = 2;
        setup.skew = Duration::ZERO;
        setup.sample = Duration::ZERO;
        setup.timeline_beside = true;
        setup.strategy = Strategy::AppTtl;
        let skew = Duration::ZERO;
        setup.policy = Some(Policy { delete_probability: 1.0, skew, ..Policy::default() });
    });
    let put = |rev, if_latest| Action::PutRevision {
        page: 0,
        rev,
        names: Names(1 << Name::Html as u8),
        variant: 0,
        age: None,
        if_latest,
    };
    let steps = [
        (put(7, false), None),
        (put(9, true), Some(Disturbance::LosesLease)),
        (Action::Pass(2 * Policy::default().grace), None),
        (put(8, false), None),
    ];
    let steps = steps.map(|(action, disturbance)| Step { process: 0, action, disturbance });
    let pool = StorePool::open(Store::Memory).await.unwrap();
    let outcome = run(&history.with(steps.into()), &pool, &Variant::SOUND).await.unwrap();
    assert_eq!(outcome.found, None, "{}", outcome.log);
    assert!(outcome.log.contains("the write took too long"), "no lease was lost: {}", outcome.log);
}
