//! Erasing: what was erased is given to nobody, is nowhere, and does not come back.

use std::sync::Arc;

use rashomon_blocks::{Block, Limits};
use rashomon_buckets::{
    BucketName, DomainName, Erased, Erasing, Error, ImportOutcome, Page, RenderBase, Result, SameBytes, Sha1,
    Tid, schemas,
};
use rashomon_clock::{Clock as _, ManualClock};
use rashomon_tables::{Call, Fault, Faulty, Gate, Memory, Plan, Row, Value};

use super::{HOUR, archiving, hour, later, settings};
use crate::support::{
    AnyStore, Cluster, START, World, name, noise, on_every_store, page, rev, stands_on_cassandra,
};

on_every_store! {
    what_was_erased_is_refused_and_named,
    a_revision_that_was_not_sealed_is_erased,
    the_latest_is_erased,
    who_and_why_go_if_that_is_asked,
    large_bodies_are_erased_at_once,
    what_others_have_stays_theirs,
    what_was_replaced_or_merged_away_is_erased_with_it,
    what_was_erased_is_sealed_and_merged_as_others,
    what_is_not_there_cannot_be_erased,
    what_is_erased_while_a_history_goes_into_blocks_is_in_none,
}

/// What revision 3 says, and no other: its text, and that of its render.
const SECRET: &str = "Mr Zwyxhorn lives at Qurmel Street 41 with his seven cats. ";
const RENDERED: &str = "<p>Mr <b>Zwyxhorn</b> lives at Qurmel Street 41.</p>";

/// Erases revision 3.
fn as_ann() -> Erasing {
    Erasing { by: Some("Ann".to_owned()), reason: Some("it was private".to_owned()), ..Erasing::default() }
}

impl World {
    async fn try_erase(&self, page: &Page, number: i64) -> Result<Erased> {
        self.buckets.erase(page, rev(number), as_ann()).await
    }

    /// Two pages of which one has a secret in revision 3, and in its renders.
    async fn with_a_secret(&self) -> Vec<Tid> {
        let main = page("Main_Page");
        let mut tids = self.edit(&main, 1..=2).await;
        let bodies = [("wikitext", SECRET.repeat(3)), ("html", RENDERED.repeat(2))];
        tids.push(self.put_revision(&main, 3, &bodies).await.unwrap().tid);
        self.pass(HOUR);
        self.put_render(&main, 3, &[("html", &RENDERED.repeat(5))]).await.unwrap();
        self.pass(HOUR);
        tids.extend(self.edit(&main, 4..=6).await);
        self.edit(&page("Other"), 1..=3).await;
        tids
    }

    /// All that is read of the page but for revision 3.
    async fn others(&self) -> Vec<String> {
        let mut all = self.all_of(&page("Other")).await;
        let main = page("Main_Page");
        for number in [1, 2, 4, 5, 6] {
            let detail = self.buckets.revision(&main, rev(number)).await.unwrap();
            all.push(format!("{:?} {:?}", detail.record, detail.renders));
            for render in detail.renders {
                all.push(String::from_utf8(self.read(&main, render.tid, "html").await).unwrap());
                all.push(String::from_utf8(self.read(&main, render.tid, "wikitext").await).unwrap());
            }
        }
        all
    }

    /// Fails where anything is read or stored that revision 3 said.
    async fn assert_erased(&self, what: &str) {
        let main = page("Main_Page");
        let detail = self.buckets.revision(&main, rev(3)).await.unwrap();
        let erasure = detail.record.erased.clone().expect(what);
        assert_eq!(erasure.by.as_deref(), Some("Ann"), "{what}");
        assert!(!detail.renders.is_empty(), "{what}");
        for render in &detail.renders {
            assert!(render.properties.is_empty(), "{what}");
            for property in ["wikitext", "html"] {
                let read = self.buckets.property(&main, render.tid, &name(property)).await;
                assert!(matches!(read, Err(Error::Erased { .. })), "{what}: {read:?}");
            }
        }
        self.assert_revision_nowhere(what).await;
        self.assert_whole().await;
    }

    /// Fails where a row has anything of revision 3: text, SHA-1 or digest.
    async fn assert_revision_nowhere(&self, what: &str) {
        let texts = [SECRET.repeat(3), RENDERED.repeat(2), RENDERED.repeat(5)];
        for table in schemas::all() {
            for row in self.rows(table).await {
                let shown = format!("{row:?}");
                for text in &texts {
                    let sha1 = Sha1::of(text.as_bytes());
                    assert!(!shown.contains(&sha1.to_string()), "{what}: {} has {shown}", table.name());
                    let is_it = |value: &Option<Value>| matches!(value, Some(Value::Blob(bytes)) if **bytes == sha1.0);
                    assert!(!row.values.iter().any(is_it), "{what}: {} has {shown}", table.name());
                }
                assert!(!shown.contains("Zwyxhorn"), "{what}: {} has {shown}", table.name());
                if table.name() == schemas::ARCHIVE_BLOCKS.name() {
                    let Some(Value::Blob(bytes)) = &row.values[1] else { panic!("a block") };
                    let block = Block::open(bytes, Limits::default()).unwrap();
                    assert!(!said_by(&row).iter().any(|text| text.contains("Zwyxhorn")), "{what}: a block");
                    let lines = format!("{:?}", block.entries().unwrap());
                    for text in &texts {
                        let sha1 = format!("{:?}", Sha1::of(text.as_bytes()).0.to_vec());
                        assert!(!lines.contains(&sha1), "{what}: the records of a block");
                    }
                }
            }
        }
    }
}

async fn what_was_erased_is_refused_and_named(world: World) {
    let world = archiving(world).await;
    let main = page("Main_Page");
    let tids = world.with_a_secret().await;
    world.pass(later());
    world.seal().await;
    let others = world.others().await;
    let history = world.history(&main, 3, hour(2), SECRET.repeat(3).as_bytes()).await;
    let at = world.clock.now();
    let erased = world.try_erase(&main, 3).await.unwrap();
    assert_eq!((erased.again, erased.renders, erased.bodies, erased.blocks), (false, 2, 3, 1), "{erased:?}");
    assert_eq!((erased.erasure.at, erased.left), (at, 0));
    assert_eq!(erased.kept_for.is_some(), stands_on_cassandra(), "nodes keep what was deleted for a time");
    for world in [&world, &world.reopened().await] {
        world.assert_erased("now").await;
        assert_eq!(world.others().await, others);
        let lines = world.buckets.revisions(&main, None, 100).await.unwrap().items;
        let erased: Vec<_> = lines.iter().filter(|line| line.record.erased.is_some()).collect();
        assert_eq!(erased.len(), 1);
        assert_eq!((erased[0].record.rev, erased[0].size, erased[0].renders), (rev(3), 0, 2));

        let again = world.put_revision(&main, 3, &[("wikitext", SECRET)]).await;
        assert!(matches!(again, Err(Error::Erased { .. })), "{again:?}");
        let again = world.put_render(&main, 3, &[("html", "<p>other</p>")]).await;
        assert!(matches!(again, Err(Error::Erased { .. })), "{again:?}");
        let again = world.put_render_on(&main, RenderBase::Render(tids[2]), &[("html", "x")]).await;
        assert!(matches!(again, Err(Error::Erased { .. })), "{again:?}");
        let again = world.rewrite(&main, tids[2], "html", "x").await;
        assert!(matches!(again, Err(Error::Erased { .. })), "{again:?}");
        let newest = world.buckets.newest_with(&main, rev(3), &name("html")).await;
        assert!(matches!(newest, Err(Error::Erased { .. })), "{newest:?}");
        let again = world.buckets.import(&main, vec![history.clone()]).await.unwrap();
        assert_eq!(again, [ImportOutcome::Erased(lines[3].record.erased.clone().unwrap())]);
        world.assert_erased("after it came again").await;
    }
    let again = world.try_erase(&main, 3).await.unwrap();
    assert_eq!((again.again, again.bodies, again.blocks, again.erasure.at), (true, 0, 0, at));
    let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
    let states = world.buckets.erasures(&domain, &bucket).await.unwrap();
    assert_eq!(states.len(), 1);
    assert_eq!((&states[0].page, states[0].rev, &states[0].erasure), (&main, rev(3), &erased.erasure));
    assert!(
        states[0].finished_at.is_some() && states[0].kept_until.is_some() == stands_on_cassandra(),
        "{states:?}"
    );
}

async fn a_revision_that_was_not_sealed_is_erased(world: World) {
    let world = archiving(world).await;
    world.with_a_secret().await;
    let others = world.others().await;
    let erased = world.try_erase(&page("Main_Page"), 3).await.unwrap();
    assert_eq!((erased.bodies, erased.blocks), (3, 0));
    world.assert_erased("from tables").await;
    assert_eq!(world.others().await, others);
}

async fn the_latest_is_erased(world: World) {
    let world = archiving(world).await;
    let main = page("Main_Page");
    world.edit(&main, 1..=2).await;
    world.put_revision(&main, 3, &[("wikitext", SECRET), ("html", RENDERED)]).await.unwrap();
    assert_eq!(world.read_latest(&main, "html").await, RENDERED.as_bytes());
    world.try_erase(&main, 3).await.unwrap();
    let latest = world.buckets.latest(&main, &name("html")).await;
    assert!(matches!(latest, Err(Error::Erased { .. })), "{latest:?}");
    world.assert_erased("the latest").await;
    world.edit(&main, 4..=4).await;
    assert_eq!(world.read_latest(&main, "wikitext").await, super::text(4).into_bytes());
}

async fn who_and_why_go_if_that_is_asked(world: World) {
    let world = archiving(world).await;
    let main = page("Main_Page");
    let mut history = world.history(&main, 3, hour(-3), SECRET.as_bytes()).await;
    (history.record.user, history.record.comment) = (Some("Zwyxhorn".into()), Some("Zwyxhorn".into()));
    history.record.export.sha1 = Some("abc".into());
    history.record.export.main =
        Some(rashomon_buckets::SlotRecord { bytes: Some(9), sha1: Some("abc".into()), ..Default::default() });
    world.buckets.import(&main, vec![history]).await.unwrap();
    world.edit(&main, 4..=6).await;
    world.pass(later());
    world.seal().await;
    world.try_erase(&main, 3).await.unwrap();
    let record = world.buckets.revision(&main, rev(3)).await.unwrap().record;
    assert_eq!((record.user.as_deref(), record.comment.as_deref()), (Some("Zwyxhorn"), Some("Zwyxhorn")));
    let slot = record.export.main.clone().unwrap();
    assert_eq!((slot.deleted, slot.bytes, slot.sha1, &record.export.sha1), (true, None, None, &None));
    world.pass(later());
    world.seal().await;
    let how = Erasing { user: true, comment: true, ..as_ann() };
    world.buckets.erase(&main, rev(3), how).await.unwrap();
    let record = world.buckets.revision(&main, rev(3)).await.unwrap().record;
    assert_eq!((&record.user, &record.comment), (&None, &None));
    assert!(record.export.user_deleted && record.export.comment_deleted);
    world.assert_erased("user and comment").await;
}

async fn large_bodies_are_erased_at_once(world: World) {
    let world = archiving(world).await;
    let main = page("Main_Page");
    let large = noise(3, 1_300_000);
    for number in 1..=4 {
        let text = if number == 3 { large.clone() } else { noise(number as u64 + 10, 1_300_000) };
        let written = world.put_revision(&main, number, &[("wikitext", text)]).await.unwrap();
        if number == 3 {
            world.rewrite(&main, written.tid, "wikitext", noise(4711, 1_300_000)).await.unwrap();
        }
    }
    for sealed in [false, true] {
        if sealed {
            world.pass(later());
            world.seal().await;
        }
        let before = world.rows(&schemas::CHUNKS).await.len();
        assert_eq!(before, if sealed { 6 } else { 10 });
        world.try_erase(&main, if sealed { 2 } else { 3 }).await.unwrap();
        if stands_on_cassandra() {
            // Others may be reading what was replaced.
            world.pass(later());
            world.buckets.collect_orphans(HOUR).await.unwrap();
        }
        // What was sealed is in a block: the latest has some.
        assert_eq!(world.rows(&schemas::CHUNKS).await.len(), if sealed { 2 } else { 6 });
        world.assert_whole().await;
    }
    let read = world.buckets.newest_with(&main, rev(1), &name("wikitext")).await.unwrap();
    assert_eq!(world.read(&main, read, "wikitext").await, noise(11, 1_300_000));
}

async fn what_others_have_stays_theirs(world: World) {
    let world = archiving(world).await;
    let main = page("Main_Page");
    world.edit(&main, 1..=2).await;
    world.put_revision(&main, 3, &[("wikitext", SECRET)]).await.unwrap();
    for number in 4..=5 {
        let bodies = [("wikitext", SECRET), ("data-parsoid", "{}")];
        world.put_revision(&main, number, &bodies).await.unwrap();
    }
    world.edit(&main, 6..=7).await;
    world.pass(later());
    world.seal().await;
    let erased = world.try_erase(&main, 4).await.unwrap();
    let same =
        [("data-parsoid", vec![rev(5)]), ("wikitext", vec![rev(3), rev(5)])].map(|(property, revisions)| {
            SameBytes { property: name(property), count: revisions.len() as u64, revisions }
        });
    assert_eq!(erased.same, same);
    let tid = world.buckets.newest_with(&main, rev(5), &name("wikitext")).await.unwrap();
    assert_eq!(world.read(&main, tid, "wikitext").await, SECRET.as_bytes());
    world.assert_whole().await;
    for number in [3, 5] {
        world.try_erase(&main, number).await.unwrap();
    }
    world.assert_revision_nowhere("all of them").await;
    world.assert_whole().await;
}

/// It may lie in several blocks: in one that was sealed before it was replaced, in one that was merged with others.
async fn what_was_replaced_or_merged_away_is_erased_with_it(world: World) {
    let world = archiving(world).await;
    let main = page("Main_Page");
    let tids = world.with_a_secret().await;
    world.pass(later());
    world.seal().await;
    world.rewrite(&main, tids[2], "html", format!("{SECRET} in other words")).await.unwrap();
    world.edit(&main, 7..=8).await;
    world.pass(later());
    world.seal().await;
    world.merge().await;
    assert!(world.blocks().await > 1);
    let others = world.others().await;
    let erased = world.try_erase(&main, 3).await.unwrap();
    assert_eq!(erased.left > 0, stands_on_cassandra(), "others may be about to have pages name a block");
    if erased.left > 0 {
        world.pass(later());
        assert_eq!(world.try_erase(&main, 3).await.unwrap().left, 0);
    }
    world.assert_erased("replaced and merged").await;
    assert_eq!(world.others().await, others);
}

async fn what_was_erased_is_sealed_and_merged_as_others(world: World) {
    let world = archiving(world).await;
    let main = page("Main_Page");
    world.with_a_secret().await;
    world.try_erase(&main, 3).await.unwrap();
    let before = world.all_of(&page("Other")).await;
    world.pass(later());
    assert_eq!(world.seal().await.revisions, 7);
    world.assert_erased("sealed").await;
    world.edit(&main, 7..=8).await;
    world.pass(later());
    world.seal().await;
    world.merge().await;
    let world = world.reopened().await;
    world.assert_erased("merged").await;
    assert_eq!(world.all_of(&page("Other")).await, before);
}

async fn what_is_not_there_cannot_be_erased(world: World) {
    let world = archiving(world).await;
    world.edit(&page("Main_Page"), 1..=2).await;
    assert!(matches!(world.try_erase(&page("Main_Page"), 3).await, Err(Error::NotFound(_))));
    assert!(matches!(world.try_erase(&page("Nowhere"), 3).await, Err(Error::NotFound(_))));
    let domain = DomainName::new("enwiki").unwrap();
    assert_eq!(world.buckets.erasures(&domain, &BucketName::page()).await.unwrap(), []);
}

/// A world in which calls fail on a plan.
/// The highest revision of a page stands while the next block, which will have it, fills; another process erases it.
async fn what_is_erased_while_a_history_goes_into_blocks_is_in_none(world: World) {
    let world = archiving(world).await;
    let main = page("Main_Page");
    let archiver = world.buckets.archive_histories().expect("the archive is on");
    let secret = |number: i64| format!("{number} of Qurmel Street");
    // A block is full after five, and is written when the next but one comes.
    for number in 1..=8 {
        let text = [secret(number).as_bytes(), &noise(number as u64, 60_000)].concat();
        let revision = world.history(&main, number, hour(number), &text).await;
        archiver.import(&main, vec![revision]).await.unwrap();
        world.pass(std::time::Duration::from_secs(1));
    }
    let written = async {
        while world.rows(&schemas::ARCHIVE_INDEX).await.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(300), written).await.expect("a block is written");
    let erased = world.latest_rev(&main).await.expect("the highest revision of the first block");
    world.reopened().await.try_erase(&main, erased).await.unwrap();
    let finished = archiver.finish().await;
    assert!(matches!(finished, Err(Error::Store(_))), "{finished:?}");
    world.pass(later());
    world.buckets.collect_orphans(HOUR).await.unwrap();
    for row in world.rows(&schemas::ARCHIVE_BLOCKS).await {
        assert!(!said_by(&row).iter().any(|text| text.contains(&secret(erased))));
    }
    world.assert_whole().await;
}

/// The texts of a block.
fn said_by(row: &Row) -> Vec<String> {
    let Some(Value::Blob(bytes)) = &row.values[1] else { panic!("a block") };
    let block = Block::open(bytes, Limits::default()).unwrap();
    let texts = block.iter().map(|content| content.unwrap().bytes.unwrap_or_default());
    texts.map(|text| String::from_utf8_lossy(&text).into_owned()).collect()
}

async fn world(clustered: bool) -> (World, Arc<Faulty<AnyStore>>) {
    let clock = Arc::new(ManualClock::new(START));
    let memory = Memory::new(Arc::clone(&clock) as Arc<dyn rashomon_clock::Clock>);
    let store: AnyStore = if clustered { Arc::new(Cluster::new(memory)) } else { Arc::new(memory) };
    let faulty = Arc::new(Faulty::new(store, Plan::empty()));
    (World::on(Arc::clone(&faulty) as AnyStore, clock, settings(), 1).await, faulty)
}

/// Whatever call of it fails, having happened or not: others are read as before, nothing half erased is read, and the
/// same again finishes it.
#[tokio::test]
async fn an_erasing_that_is_cut_off_is_finished_by_the_next() {
    let mut told = 0;
    for clustered in [false, true] {
        for call in [Call::Get, Call::Scan, Call::Write, Call::Swap] {
            let faults = [Fault::Before, Fault::After, Fault::Midway { batches: 1 }];
            let writes = matches!(call, Call::Write | Call::Swap);
            for fault in faults.into_iter().take(if writes { 3 } else { 1 }) {
                for number in 1.. {
                    let (world, faulty) = world(clustered).await;
                    let tids = world.with_a_secret().await;
                    world.pass(later());
                    world.seal().await;
                    let others = world.others().await;
                    let world = world.reopened().await;
                    faulty.set_plan(Plan::empty().on(call, number, fault.clone()));
                    let cut_off = world.try_erase(&page("Main_Page"), 3).await;
                    faulty.set_plan(Plan::empty());
                    let what = format!("{clustered} {call:?} {number} {fault:?}");
                    world.pass(HOUR);
                    let world = world.reopened().await;
                    assert_eq!(world.others().await, others, "{what}");
                    let read = world.buckets.property(&page("Main_Page"), tids[2], &name("html")).await;
                    let is_marked = match read {
                        Ok(_) => false,
                        Err(Error::Erased { .. }) => true,
                        Err(error) => panic!("{what}: {error}"),
                    };
                    assert!(is_marked || cut_off.is_err(), "{what}");
                    let domain = DomainName::new("enwiki").unwrap();
                    let states = world.buckets.erasures(&domain, &BucketName::page()).await.unwrap();
                    let is_listed = states.iter().any(|state| state.finished_at.is_none());
                    assert!(!is_marked || cut_off.is_ok() || is_listed || !states.is_empty(), "{what}");
                    // Nobody takes what is half erased for lost.
                    let problems = world.verify().await.problems;
                    let is_told = problems.iter().any(|problem| {
                        problem.contains("the erasure of revision 3 was cut off")
                            && problem.contains("`rashomon archive erase` again")
                    });
                    assert!(problems.is_empty() || is_told, "{what}: {problems:#?}");
                    told += usize::from(is_told);
                    // Whatever was left of blocks on a cluster goes when nobody can be having it named.
                    world.pass(later());
                    world.try_erase(&page("Main_Page"), 3).await.unwrap();
                    world.assert_erased(&what).await;
                    assert_eq!(world.others().await, others, "{what}");
                    if cut_off.is_ok() {
                        break;
                    }
                }
            }
        }
    }
    assert!(told > 0);
}

/// Somebody seals, merges or erases in another process, at whatever step an erasing is halted, and the other way
/// round: in the end it is gone, and nothing else is.
#[tokio::test]
async fn an_erasing_beside_others_erases() {
    for what in ["seal", "merge", "erase"] {
        for erases_first in [false, true] {
            for call in [Call::Get, Call::Scan, Call::Write] {
                for number in 1.. {
                    let (world, faulty) = world(true).await;
                    let other = world.under(settings()).await;
                    world.with_a_secret().await;
                    world.pass(later());
                    world.seal().await;
                    world.edit(&page("Main_Page"), 7..=9).await;
                    world.pass(later());
                    if what == "merge" {
                        world.seal().await;
                    }
                    // Of two writes at one time a cluster takes the delete; real clocks go on between them.
                    let second = std::time::Duration::from_secs(1);
                    world.pass(second);
                    let others = world.others().await;
                    let work = |world: World| async move {
                        match what {
                            "seal" => world.try_seal().await.map(drop),
                            "merge" => world.try_merge().await.map(drop),
                            _ => world.try_erase(&page("Main_Page"), 4).await.map(drop),
                        }
                    };
                    let erase =
                        |world: World| async move { world.try_erase(&page("Main_Page"), 3).await.map(drop) };
                    let (one, two) = (world.reopened().await, other.reopened().await);
                    let gate = Gate::new();
                    faulty.set_plan(Plan::empty().on(call, number, Fault::Pause(gate.clone())));
                    let first = async move { if erases_first { erase(one).await } else { work(one).await } };
                    let mut first = std::pin::pin!(first);
                    let at = format!("{what} {erases_first} {call:?} {number}");
                    tokio::select! {
                        done = &mut first => {
                            done.unwrap();
                            break;
                        }
                        () = gate.reached() => {}
                    }
                    faulty.set_plan(Plan::empty());
                    world.pass(second);
                    let second = if erases_first { work(two).await } else { erase(two).await };
                    gate.open();
                    let first = first.await;
                    // Whoever was told to try again does.
                    for result in [first, second] {
                        assert!(matches!(result, Ok(()) | Err(Error::Store(_))), "{at}: {result:?}");
                    }
                    world.pass(later());
                    let world = world.reopened().await;
                    if what == "erase" {
                        world.try_erase(&page("Main_Page"), 4).await.unwrap_or_else(|e| panic!("{at}: {e}"));
                    }
                    world.try_erase(&page("Main_Page"), 3).await.unwrap_or_else(|e| panic!("{at}: {e}"));
                    world.assert_erased(&at).await;
                    if what != "erase" {
                        assert_eq!(world.others().await, others, "{at}");
                    }
                }
            }
        }
    }
}

/// The block of a page is made anew, and deleted at once, between any two steps of whoever reads another revision.
#[tokio::test]
async fn a_page_is_read_while_something_of_it_is_erased() {
    for (call, after) in [(Call::Get, true), (Call::Scan, false), (Call::Scan, true)] {
        for number in 1.. {
            let (world, faulty) = world(true).await;
            world.with_a_secret().await;
            world.pass(later());
            world.seal().await;
            let others = world.others().await;
            let (reader, eraser) = (world.reopened().await, world.under(settings()).await);
            let gate = Gate::new();
            let fault = if after { Fault::PauseAfter(gate.clone()) } else { Fault::Pause(gate.clone()) };
            faulty.set_plan(Plan::empty().on(call, number, fault));
            let mut reading = std::pin::pin!(reader.others());
            tokio::select! {
                read = &mut reading => {
                    assert_eq!(read, others);
                    assert!(number > 3);
                    break;
                }
                () = gate.reached() => {}
            }
            faulty.set_plan(Plan::empty());
            eraser.try_erase(&page("Main_Page"), 3).await.unwrap();
            gate.open();
            assert_eq!(reading.await, others, "{call:?} {after} {number}");
        }
    }
}
