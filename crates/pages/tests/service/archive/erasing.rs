//! Erasures: erased content is never returned, is in no row, and cannot be written again.

use std::sync::Arc;

use rashomon_blocks::{Block, Limits};
use rashomon_clock::{Clock as _, ManualClock};
use rashomon_pages::operations::{EraseOptions, EraseReport, SameBytes};
use rashomon_pages::{
    BucketName, DomainName, Error, ImportOutcome, Page, RenderBase, Result, Sha1, Tid, schemas,
};
use rashomon_records::rows::Column as _;
use rashomon_tables::{Call, Fault, Faulty, Gate, Memory, Plan, Row};

use super::{HOUR, hour, seal_delay, settings, with_archive};
use crate::support::{
    AnyStore, Cluster, START, World, block_bytes, name, noise, on_every_store, page, rev, runs_on_cassandra,
};

on_every_store! {
    reads_and_writes_of_an_erased_revision_are_refused,
    erase_deletes_an_unsealed_revision,
    erase_deletes_the_latest_revision,
    erase_removes_user_and_comment_on_request,
    erase_deletes_chunks_of_large_bodies,
    erase_keeps_and_reports_other_revisions_with_the_same_bytes,
    erase_deletes_replaced_and_compacted_content,
    erased_revision_can_be_sealed_and_compacted,
    erase_of_a_missing_revision_is_an_error,
    revision_erased_during_a_bulk_load_is_in_no_block,
}

/// The wikitext of revision 3, and the html of its renders. In most tests, no other revision has these texts.
const SECRET: &str = "Mr Zwyxhorn lives at Qurmel Street 41 with all seven cats. ";
const RENDERED: &str = "<p>Mr <b>Zwyxhorn</b> lives at Qurmel Street 41.</p>";

/// The options of the erasures in these tests.
fn erase_options() -> EraseOptions {
    EraseOptions {
        by: Some("Ann".to_owned()),
        reason: Some("it was private".to_owned()),
        ..EraseOptions::default()
    }
}

impl World {
    async fn try_erase(&self, page: &Page, number: i64) -> Result<EraseReport> {
        rashomon_pages::operations::erase(&self.buckets, page, rev(number), erase_options()).await
    }

    /// Writes two pages. One of them, Main_Page, has a secret in revision 3 and in its renders. Returns the tid of the
    /// first render of each revision of Main_Page.
    async fn put_pages_with_a_secret(&self) -> Vec<Tid> {
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

    /// Reads the page Other, and revisions 1, 2 and 4 to 6 of Main_Page.
    async fn read_other_revisions(&self) -> Vec<String> {
        let mut all = self.read_everything(&page("Other")).await;
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

    /// Panics if any content of revision 3 can be read or is stored.
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
        self.assert_no_row_has_the_secret(what).await;
        self.assert_consistent().await;
    }

    /// Panics if a row has a text of revision 3, or the SHA-1 of one.
    async fn assert_no_row_has_the_secret(&self, what: &str) {
        let texts = [SECRET.repeat(3), RENDERED.repeat(2), RENDERED.repeat(5)];
        for table in schemas::all() {
            for row in self.rows(table).await {
                let shown = format!("{row:?}");
                for text in &texts {
                    let sha1 = Sha1::of(text.as_bytes());
                    assert!(!shown.contains(&sha1.to_string()), "{what}: {} has {shown}", table.name());
                    let has_it = row.values.contains(&sha1.to_column());
                    assert!(!has_it, "{what}: {} has {shown}", table.name());
                }
                assert!(!shown.contains("Zwyxhorn"), "{what}: {} has {shown}", table.name());
                if table.name() == schemas::ARCHIVE_BLOCKS.name() {
                    let bytes = block_bytes(&row);
                    let block = Block::open(&bytes, Limits::default()).unwrap();
                    assert!(!texts_of(&row).iter().any(|text| text.contains("Zwyxhorn")), "{what}: a block");
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

async fn reads_and_writes_of_an_erased_revision_are_refused(world: World) {
    let world = with_archive(world).await;
    let main = page("Main_Page");
    let tids = world.put_pages_with_a_secret().await;
    world.pass(seal_delay());
    world.seal().await;
    let others = world.read_other_revisions().await;
    let history = world.imported_revision(&main, 3, hour(2), SECRET.repeat(3).as_bytes()).await;
    let at = world.clock.now();
    let erased = world.try_erase(&main, 3).await.unwrap();
    assert_eq!((erased.again, erased.renders, erased.bodies, erased.blocks), (false, 2, 3, 1), "{erased:?}");
    assert_eq!((erased.erasure.at, erased.left), (at, 0));
    assert_eq!(erased.kept_for.is_some(), runs_on_cassandra(), "nodes keep deleted data for a time");
    for world in [&world, &world.reopened().await] {
        world.assert_erased("now").await;
        assert_eq!(world.read_other_revisions().await, others);
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
        world.assert_erased("after repeated writes").await;
    }
    let again = world.try_erase(&main, 3).await.unwrap();
    assert_eq!((again.again, again.bodies, again.blocks, again.erasure.at), (true, 0, 0, at));
    let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
    let states = rashomon_pages::operations::erasures(&world.buckets, &domain, &bucket).await.unwrap();
    assert_eq!(states.len(), 1);
    assert_eq!((&states[0].page, states[0].rev, &states[0].erasure), (&main, rev(3), &erased.erasure));
    assert!(
        states[0].finished_at.is_some() && states[0].kept_until.is_some() == runs_on_cassandra(),
        "{states:?}"
    );
}

async fn erase_deletes_an_unsealed_revision(world: World) {
    let world = with_archive(world).await;
    world.put_pages_with_a_secret().await;
    let others = world.read_other_revisions().await;
    let erased = world.try_erase(&page("Main_Page"), 3).await.unwrap();
    assert_eq!((erased.bodies, erased.blocks), (3, 0));
    world.assert_erased("from tables").await;
    assert_eq!(world.read_other_revisions().await, others);
}

async fn erase_deletes_the_latest_revision(world: World) {
    let world = with_archive(world).await;
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

async fn erase_removes_user_and_comment_on_request(world: World) {
    let world = with_archive(world).await;
    let main = page("Main_Page");
    let mut history = world.imported_revision(&main, 3, hour(-3), SECRET.as_bytes()).await;
    (history.record.user, history.record.comment) = (Some("Zwyxhorn".into()), Some("Zwyxhorn".into()));
    history.record.export.sha1 = Some("abc".into());
    history.record.export.main =
        Some(rashomon_pages::SlotRecord { bytes: Some(9), sha1: Some("abc".into()), ..Default::default() });
    world.buckets.import(&main, vec![history]).await.unwrap();
    world.edit(&main, 4..=6).await;
    world.pass(seal_delay());
    world.seal().await;
    world.try_erase(&main, 3).await.unwrap();
    let record = world.buckets.revision(&main, rev(3)).await.unwrap().record;
    assert_eq!((record.user.as_deref(), record.comment.as_deref()), (Some("Zwyxhorn"), Some("Zwyxhorn")));
    let slot = record.export.main.clone().unwrap();
    assert_eq!((slot.deleted, slot.bytes, slot.sha1, &record.export.sha1), (true, None, None, &None));
    world.pass(seal_delay());
    world.seal().await;
    let options = EraseOptions { user: true, comment: true, ..erase_options() };
    rashomon_pages::operations::erase(&world.buckets, &main, rev(3), options).await.unwrap();
    let record = world.buckets.revision(&main, rev(3)).await.unwrap().record;
    assert_eq!((&record.user, &record.comment), (&None, &None));
    assert!(record.export.user_deleted && record.export.comment_deleted);
    world.assert_erased("user and comment").await;
}

async fn erase_deletes_chunks_of_large_bodies(world: World) {
    let world = with_archive(world).await;
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
            world.pass(seal_delay());
            world.seal().await;
        }
        let before = world.rows(&schemas::CHUNKS).await.len();
        // Each body has two chunks. A seal leaves the chunks of sealed bodies.
        assert_eq!(before, if sealed { 6 } else { 10 });
        world.try_erase(&main, if sealed { 2 } else { 3 }).await.unwrap();
        if runs_on_cassandra() {
            // Other processes may be reading chunks that were released, so only a later collection deletes them.
            world.pass(seal_delay());
            world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
        }
        // After the seal, the erase (on Cassandra the collection) has deleted the chunks of sealed bodies, and only
        // the latest body has chunks.
        assert_eq!(world.rows(&schemas::CHUNKS).await.len(), if sealed { 2 } else { 6 });
        world.assert_consistent().await;
    }
    let read = world.buckets.newest_with(&main, rev(1), &name("wikitext")).await.unwrap();
    assert_eq!(world.read(&main, read, "wikitext").await, noise(11, 1_300_000));
}

async fn erase_keeps_and_reports_other_revisions_with_the_same_bytes(world: World) {
    let world = with_archive(world).await;
    let main = page("Main_Page");
    world.edit(&main, 1..=2).await;
    world.put_revision(&main, 3, &[("wikitext", SECRET)]).await.unwrap();
    for number in 4..=5 {
        let bodies = [("wikitext", SECRET), ("data-parsoid", "{}")];
        world.put_revision(&main, number, &bodies).await.unwrap();
    }
    world.edit(&main, 6..=7).await;
    world.pass(seal_delay());
    world.seal().await;
    let erased = world.try_erase(&main, 4).await.unwrap();
    let same =
        [("data-parsoid", vec![rev(5)]), ("wikitext", vec![rev(3), rev(5)])].map(|(property, revisions)| {
            SameBytes { property: name(property), count: revisions.len() as u64, revisions }
        });
    assert_eq!(erased.same, same);
    let tid = world.buckets.newest_with(&main, rev(5), &name("wikitext")).await.unwrap();
    assert_eq!(world.read(&main, tid, "wikitext").await, SECRET.as_bytes());
    world.assert_consistent().await;
    for number in [3, 5] {
        world.try_erase(&main, number).await.unwrap();
    }
    world.assert_no_row_has_the_secret("all revisions with the text").await;
    world.assert_consistent().await;
}

/// The content may be in several blocks: in a block that was sealed before a rewrite, and in a block that a compaction
/// wrote.
async fn erase_deletes_replaced_and_compacted_content(world: World) {
    let world = with_archive(world).await;
    let main = page("Main_Page");
    let tids = world.put_pages_with_a_secret().await;
    world.pass(seal_delay());
    world.seal().await;
    world.rewrite(&main, tids[2], "html", format!("{SECRET} in other words")).await.unwrap();
    world.edit(&main, 7..=8).await;
    world.pass(seal_delay());
    world.seal().await;
    world.compact().await;
    assert!(world.block_count().await > 1);
    let others = world.read_other_revisions().await;
    let erased = world.try_erase(&main, 3).await.unwrap();
    assert_eq!(
        erased.left > 0,
        runs_on_cassandra(),
        "on Cassandra a block is left, since another process may be about to reference it"
    );
    if erased.left > 0 {
        world.pass(seal_delay());
        assert_eq!(world.try_erase(&main, 3).await.unwrap().left, 0);
    }
    world.assert_erased("replaced and compacted").await;
    assert_eq!(world.read_other_revisions().await, others);
}

async fn erased_revision_can_be_sealed_and_compacted(world: World) {
    let world = with_archive(world).await;
    let main = page("Main_Page");
    world.put_pages_with_a_secret().await;
    world.try_erase(&main, 3).await.unwrap();
    let before = world.read_everything(&page("Other")).await;
    world.pass(seal_delay());
    assert_eq!(world.seal().await.revisions, 7);
    world.assert_erased("sealed").await;
    world.edit(&main, 7..=8).await;
    world.pass(seal_delay());
    world.seal().await;
    world.compact().await;
    let world = world.reopened().await;
    world.assert_erased("compacted").await;
    assert_eq!(world.read_everything(&page("Other")).await, before);
}

async fn erase_of_a_missing_revision_is_an_error(world: World) {
    let world = with_archive(world).await;
    world.edit(&page("Main_Page"), 1..=2).await;
    assert!(matches!(world.try_erase(&page("Main_Page"), 3).await, Err(Error::NotFound(_))));
    assert!(matches!(world.try_erase(&page("Nowhere"), 3).await, Err(Error::NotFound(_))));
    let domain = DomainName::new("enwiki").unwrap();
    assert_eq!(
        rashomon_pages::operations::erasures(&world.buckets, &domain, &BucketName::page()).await.unwrap(),
        []
    );
}

/// When a block is full, the highest revision of the page so far is written into the tables. It stays there until the
/// next block, which will contain it, is written. Another process erases the revision meanwhile.
async fn revision_erased_during_a_bulk_load_is_in_no_block(world: World) {
    let world = with_archive(world).await;
    let main = page("Main_Page");
    let archiver = world.buckets.maintenance().history_archiver().expect("the archive is on");
    let secret = |number: i64| format!("{number} of Qurmel Street");
    // Revisions 1 to 5 fill a block. Revision 7 causes the block to be written.
    for number in 1..=8 {
        let text = [secret(number).as_bytes(), &noise(number as u64, 60_000)].concat();
        let revision = world.imported_revision(&main, number, hour(number), &text).await;
        archiver.import(&main, vec![revision]).await.unwrap();
        world.pass(std::time::Duration::from_secs(1));
    }
    let written = async {
        while world.rows(&schemas::ARCHIVE_INDEX).await.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(300), written)
        .await
        .expect("the archiver writes a block");
    let erased = world.latest_rev(&main).await.expect("the highest revision of the page");
    world.reopened().await.try_erase(&main, erased).await.unwrap();
    let finished = archiver.finish().await;
    assert!(matches!(finished, Err(Error::Store(_))), "{finished:?}");
    world.pass(seal_delay());
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    for row in world.rows(&schemas::ARCHIVE_BLOCKS).await {
        assert!(!texts_of(&row).iter().any(|text| text.contains(&secret(erased))));
    }
    world.assert_consistent().await;
}

/// The contents of a block, as text.
fn texts_of(row: &Row) -> Vec<String> {
    let bytes = block_bytes(row);
    let block = Block::open(&bytes, Limits::default()).unwrap();
    let texts = block.iter().map(|content| content.unwrap().bytes.unwrap_or_default());
    texts.map(|text| String::from_utf8_lossy(&text).into_owned()).collect()
}

/// A test world whose store calls fail according to a plan.
async fn world(clustered: bool) -> (World, Arc<Faulty<AnyStore>>) {
    let clock = Arc::new(ManualClock::new(START));
    let memory = Memory::new(Arc::clone(&clock) as Arc<dyn rashomon_clock::Clock>);
    let store: AnyStore = if clustered { Arc::new(Cluster::new(memory)) } else { Arc::new(memory) };
    let faulty = Arc::new(Faulty::new(store, Plan::empty()));
    (World::on(Arc::clone(&faulty) as AnyStore, clock, settings(), 1).await, faulty)
}

/// After any failed call of an erase, other revisions are read as before, whether or not the failed call took effect. A
/// revision that is marked as erased cannot be read, and a second erase completes the work.
#[tokio::test]
async fn interrupted_erase_is_completed_by_the_next() {
    let (mut listed, mut reported) = (0, 0);
    for clustered in [false, true] {
        for call in [Call::Get, Call::Scan, Call::Write, Call::Swap] {
            let faults = [Fault::Before, Fault::After, Fault::Midway { batches: 1 }];
            let writes = matches!(call, Call::Write | Call::Swap);
            for fault in faults.into_iter().take(if writes { 3 } else { 1 }) {
                for number in 1.. {
                    let (world, faulty) = world(clustered).await;
                    let tids = world.put_pages_with_a_secret().await;
                    world.pass(seal_delay());
                    world.seal().await;
                    let others = world.read_other_revisions().await;
                    let world = world.reopened().await;
                    faulty.set_plan(Plan::empty().on(call, number, fault.clone()));
                    let interrupted = world.try_erase(&page("Main_Page"), 3).await;
                    faulty.set_plan(Plan::empty());
                    let what = format!("{clustered} {call:?} {number} {fault:?}");
                    world.pass(HOUR);
                    let world = world.reopened().await;
                    assert_eq!(world.read_other_revisions().await, others, "{what}");
                    let read = world.buckets.property(&page("Main_Page"), tids[2], &name("html")).await;
                    let is_marked = match read {
                        Ok(_) => false,
                        Err(Error::Erased { .. }) => true,
                        Err(error) => panic!("{what}: {error}"),
                    };
                    assert!(is_marked || interrupted.is_err(), "{what}");
                    let domain = DomainName::new("enwiki").unwrap();
                    let states =
                        rashomon_pages::operations::erasures(&world.buckets, &domain, &BucketName::page())
                            .await
                            .unwrap();
                    let is_listed = states.iter().any(|state| state.finished_at.is_none());
                    // If the error came after the last step, the erasure is finished.
                    if is_marked && interrupted.is_err() && !is_listed {
                        assert!(!states.is_empty(), "{what}");
                        world.assert_erased(&what).await;
                    }
                    listed += usize::from(is_listed);
                    // `verify` reports missing parts together with the interrupted erasure.
                    let problems = world.verify().await.problems;
                    let is_reported = problems.iter().any(|problem| {
                        problem.contains("the erasure of revision 3 was interrupted")
                            && problem.contains("`rashomon archive erase` again")
                    });
                    assert!(problems.is_empty() || is_reported, "{what}: {problems:#?}");
                    reported += usize::from(is_reported);
                    // On a cluster, a block that is left is deleted only when no process can be about to
                    // reference it.
                    world.pass(seal_delay());
                    world.try_erase(&page("Main_Page"), 3).await.unwrap();
                    world.assert_erased(&what).await;
                    assert_eq!(world.read_other_revisions().await, others, "{what}");
                    if interrupted.is_ok() {
                        break;
                    }
                }
            }
        }
    }
    assert!(listed > 0 && reported > 0, "{listed} listed, {reported} reported");
}

/// One process pauses at any step of an erase while another seals, compacts or erases, and then continues; and the
/// other way round. In the end the erased revision is gone. Unless a second revision was erased, revisions 1, 2 and
/// 4 to 6 and the other page are read as before.
#[tokio::test]
async fn erase_succeeds_during_a_seal_compaction_or_erase() {
    for what in ["seal", "compaction", "erase"] {
        for erases_first in [false, true] {
            for call in [Call::Get, Call::Scan, Call::Write] {
                for number in 1.. {
                    let (world, faulty) = world(true).await;
                    let other = world.restarted_with(settings()).await;
                    world.put_pages_with_a_secret().await;
                    world.pass(seal_delay());
                    world.seal().await;
                    world.edit(&page("Main_Page"), 7..=9).await;
                    world.pass(seal_delay());
                    if what == "compaction" {
                        world.seal().await;
                    }
                    // Of two writes with the same time, the delete wins on a cluster. Real clocks advance
                    // between two writes.
                    let one_second = std::time::Duration::from_secs(1);
                    world.pass(one_second);
                    let others = world.read_other_revisions().await;
                    let work = |world: World| async move {
                        match what {
                            "seal" => world.try_seal().await.map(drop),
                            "compaction" => world.try_compact().await.map(drop),
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
                    world.pass(one_second);
                    let second_result = if erases_first { work(two).await } else { erase(two).await };
                    gate.open();
                    let first_result = first.await;
                    // An error of the store means that the caller has to try again.
                    for result in [first_result, second_result] {
                        assert!(matches!(result, Ok(()) | Err(Error::Store(_))), "{at}: {result:?}");
                    }
                    world.pass(seal_delay());
                    let world = world.reopened().await;
                    if what == "erase" {
                        world.try_erase(&page("Main_Page"), 4).await.unwrap_or_else(|e| panic!("{at}: {e}"));
                    }
                    world.try_erase(&page("Main_Page"), 3).await.unwrap_or_else(|e| panic!("{at}: {e}"));
                    world.assert_erased(&at).await;
                    if what != "erase" {
                        assert_eq!(world.read_other_revisions().await, others, "{at}");
                    }
                }
            }
        }
    }
}

/// An erase replaces the block of a page, and deletes the old block at once, between any two steps of a reader of other
/// revisions.
#[tokio::test]
async fn page_is_readable_while_one_of_its_revisions_is_erased() {
    for (call, after) in [(Call::Get, true), (Call::Scan, false), (Call::Scan, true)] {
        for number in 1.. {
            let (world, faulty) = world(true).await;
            world.put_pages_with_a_secret().await;
            world.pass(seal_delay());
            world.seal().await;
            let others = world.read_other_revisions().await;
            let (reader, eraser) = (world.reopened().await, world.restarted_with(settings()).await);
            let gate = Gate::new();
            let fault = if after { Fault::PauseAfter(gate.clone()) } else { Fault::Pause(gate.clone()) };
            faulty.set_plan(Plan::empty().on(call, number, fault));
            let mut reading = std::pin::pin!(reader.read_other_revisions());
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
