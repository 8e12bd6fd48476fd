//! Imports of histories: the stored content is the same for any order, any pieces, and any concurrent
//! imports.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use proptest::prelude::*;
use rashomon_pages::{
    Error, ImportOutcome, ImportRender, ImportRevision, Parent, RevisionRecord, SlotRecord, Tid, schemas,
};
use rashomon_tables::{Faulty, Plan, Rates};

use crate::support::{World, at, block_on, name, noise, page, record, rev};

crate::support::on_every_store![parallel_imports_give_the_same_store, import_writes_batches_within_the_limit,];

/// A varied history of a page: several revisions of one second, several renders, large bodies, a rewrite, and
/// numbers that do not rise with time.
async fn varied_history(world: &World) -> Vec<ImportRevision> {
    let page = page("Main_Page");
    let mut revisions = Vec::new();
    for number in 1..=24 {
        let text = format!("text {number} ").repeat(50);
        // Three revisions share each second.
        let mut revision =
            world.imported_revision(&page, number, at(-1000 + (number * 7 % 24) / 3), text.as_bytes()).await;
        match number % 4 {
            1 => {
                let html =
                    world.properties_without_rewrite_time(&page, &[("html", format!("html {number}"))]).await;
                revision.renders[0].properties = html;
            }
            2 => {
                revision.renders = Vec::new();
                for render in 0..3 {
                    let tid = Tid::new(at(-500 + render), (number * 10 + render).unsigned_abs());
                    let bodies = [("html", format!("{render}")), ("meta", "{}".to_owned())];
                    let mut properties = world.properties_without_rewrite_time(&page, &bodies).await;
                    properties[1].1 = Some(at(-400));
                    revision.renders.push(ImportRender { tid, properties });
                }
            }
            _ => {}
        }
        if number == 7 {
            let large = noise(7, 1_000_001);
            revision.renders[0].properties =
                world.properties_without_rewrite_time(&page, &[("html", large)]).await;
        }
        revisions.push(revision);
    }
    revisions
}

/// All rows of the store except chunks, whose sets have random names. Rows that reference chunks are cut
/// before the encoding of the body.
async fn dump_without_chunks(world: &World) -> Vec<String> {
    let lines = world.dump().await.into_iter();
    let mut lines: Vec<_> = lines
        .filter(|line| !line.starts_with("chunk"))
        .map(|line| match line.contains("chunks") {
            true => line.split("encoding").next().unwrap_or_default().to_owned(),
            false => line,
        })
        .collect();
    lines.sort();
    lines
}

/// Imports the whole history with one call. Returns the world, and the rows of its store.
async fn import_at_once() -> (World, Vec<String>) {
    let (world, page) = (World::new().await, page("Main_Page"));
    let outcomes = world.buckets.import(&page, varied_history(&world).await).await.unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == ImportOutcome::Created));
    let dump = dump_without_chunks(&world).await;
    (world, dump)
}

#[tokio::test]
async fn imported_history_is_read_back_unchanged() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let mut revision = world.imported_revision(&page, 5, at(-100), b"text").await;
    let slot = SlotRecord { model: Some("wikitext".to_owned()), deleted: true, ..SlotRecord::default() };
    revision.record.export.user_id = Some(7);
    revision.record.export.slots.insert("main".to_owned(), slot);
    let expected = revision.record.clone();
    world.buckets.import(&page, vec![revision]).await.unwrap();
    let render = world.buckets.latest_render(&page).await.unwrap();
    assert_eq!(*render.record, expected);
    assert_eq!(render.tid, Tid::imported(&page, rev(5), at(-100)));
    assert_eq!(world.read_latest(&page, "wikitext").await, b"text");
    let history = world.buckets.history(&page, None, 10).await.unwrap();
    assert_eq!(*history.items[0].record, expected);
    assert_eq!(world.buckets.catalog().domains().await.unwrap(), std::slice::from_ref(&page.domain));
}

proptest! {
    #![proptest_config(crate::support::cases(16))]

    #[test]
    fn import_in_any_order_and_in_pieces_gives_the_same_store(
        order in Just((0..24_usize).collect::<Vec<_>>()).prop_shuffle(),
        piece in 1..30_usize,
        twice in any::<bool>(),
    ) {
        block_on(async {
            let (_, expected) = import_at_once().await;
            let (world, page) = (World::new().await, page("Main_Page"));
            let revisions = varied_history(&world).await;
            let mut shuffled: Vec<_> = order.into_iter().map(|index| revisions[index].clone()).collect();
            // The renders of each revision may come in any order too.
            shuffled.iter_mut().for_each(|revision| revision.renders.reverse());
            for piece in shuffled.chunks(piece) {
                world.pass(Duration::from_secs(1));
                let outcomes = world.buckets.import(&page, piece.to_vec()).await.unwrap();
                assert!(outcomes.iter().all(|outcome| *outcome == ImportOutcome::Created));
                if twice {
                    let again = world.buckets.import(&page, piece.to_vec()).await.unwrap();
                    assert!(again.iter().all(|outcome| *outcome == ImportOutcome::Unchanged));
                }
            }
            assert_eq!(dump_without_chunks(&world).await, expected);
            world.assert_consistent().await;
        });
    }
}

async fn parallel_imports_give_the_same_store(world: World) {
    let (_, expected) = import_at_once().await;
    let (world, page) = (Arc::new(world), page("Main_Page"));
    let revisions = varied_history(&world).await;
    // Three importers do the same work, and each begins with a different revision.
    let importers = (0..3).map(|importer| {
        let (world, page) = (Arc::clone(&world), page.clone());
        let mut revisions = revisions.clone();
        revisions.rotate_left(8 * importer);
        tokio::spawn(async move {
            for piece in revisions.chunks(2 + importer) {
                world.buckets.import(&page, piece.to_vec()).await.unwrap();
            }
        })
    });
    for importer in join_all(importers).await {
        importer.unwrap();
    }
    assert_eq!(dump_without_chunks(&world).await, expected);
    world.assert_consistent().await;
}

#[tokio::test]
async fn importing_again_changes_nothing() {
    let (world, expected) = import_at_once().await;
    let page = page("Main_Page");
    let written: Vec<_> = world.rows(&schemas::REVISIONS).await;
    world.pass(Duration::from_secs(1000));
    let again = world.buckets.import(&page, varied_history(&world).await).await.unwrap();
    assert!(again.iter().all(|outcome| *outcome == ImportOutcome::Unchanged), "{again:?}");
    assert_eq!(dump_without_chunks(&world).await, expected);
    assert_eq!(world.rows(&schemas::REVISIONS).await, written);
    // Posting an imported revision changes nothing either.
    let first = world.put_revision_at(&page, 3, at(-1000 + 7), &[("wikitext", "text 3 ".repeat(50))]).await;
    assert!(!first.unwrap().created);
}

#[tokio::test]
async fn revisions_of_one_second_have_different_tids() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let mut revisions = Vec::new();
    for number in 1..=300 {
        revisions.push(world.imported_revision(&page, number, at(-60), format!("{number}").as_bytes()).await);
    }
    world.buckets.import(&page, revisions).await.unwrap();
    let report = world.assert_consistent().await;
    assert_eq!((report.revisions, report.renders), (300, 300));
    for number in [1, 150, 300] {
        let tid = Tid::imported(&page, rev(number), at(-60));
        assert_eq!(world.read(&page, tid, "wikitext").await, number.to_string().into_bytes());
    }
}

#[tokio::test]
async fn import_that_contradicts_the_store_is_reported_and_changes_nothing() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let mut stored = world.imported_revision(&page, 5, at(-100), b"text").await;
    stored.renders[0].properties = world.properties_without_rewrite_time(&page, &[("html", "html")]).await;
    world.buckets.import(&page, vec![stored.clone()]).await.unwrap();
    let before = world.dump().await;

    let with_record = |change: fn(&mut RevisionRecord)| {
        let mut revision = stored.clone();
        change(&mut revision.record);
        revision
    };
    let with_properties = async |bodies: &[(&str, &str)]| ImportRevision {
        properties: world.properties_without_rewrite_time(&page, bodies).await,
        ..stored.clone()
    };
    let with_render = async |bodies: &[(&str, &str)]| {
        let mut revision = stored.clone();
        revision.renders[0].properties = world.properties_without_rewrite_time(&page, bodies).await;
        // A new render is not stored if another render of the revision contradicts the store.
        let tid = Tid::new(at(-150), 1);
        let properties = world.properties_without_rewrite_time(&page, &[("html", "new")]).await;
        revision.renders.insert(0, ImportRender { tid, properties });
        revision
    };
    let mut contradictions = Vec::new();
    for (what, revision) in [
        ("timestamp", with_record(|record| record.timestamp = at(-99))),
        ("user", with_record(|record| record.user = Some("Bob".to_owned()))),
        ("comment", with_record(|record| record.comment = Some("other".to_owned()))),
        ("minor", with_record(|record| record.minor = !record.minor)),
        ("parent", with_record(|record| record.parent = Some(Parent::Revision(rev(2))))),
        ("wikitext", with_properties(&[("wikitext", "other")]).await),
        ("without", with_properties(&[("wikitext", "text"), ("slot-x", "s")]).await),
        ("lacks", with_properties(&[]).await),
        ("html", with_render(&[("html", "other")]).await),
        ("without", with_render(&[("html", "html"), ("meta", "{}")]).await),
    ] {
        let outcomes = world.buckets.import(&page, vec![revision.clone()]).await.unwrap();
        match &outcomes[..] {
            [ImportOutcome::Conflict(why)] => assert!(why.contains(what), "{what}: {why}"),
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(world.dump().await, before, "{what}");
        contradictions.push(revision);
    }
    // Other revisions of the same import are stored.
    contradictions.insert(3, world.imported_revision(&page, 6, at(-90), b"six").await);
    let outcomes = world.buckets.import(&page, contradictions).await.unwrap();
    let created: Vec<_> = outcomes.iter().map(|outcome| *outcome == ImportOutcome::Created).collect();
    assert_eq!(created.iter().position(|created| *created), Some(3));
    assert_eq!(created.iter().filter(|created| **created).count(), 1);
    assert_eq!(world.assert_consistent().await.renders, 2);

    // Fields that the import lacks, as from an old export, contradict nothing.
    let incomplete = with_record(|record| {
        (record.user, record.comment, record.parent) = (None, None, Some(Parent::None));
    });
    assert_eq!(world.buckets.import(&page, vec![incomplete]).await.unwrap(), [ImportOutcome::Unchanged]);
}

#[tokio::test]
async fn inconsistent_import_is_reported_and_changes_nothing() {
    let (world, page) = (World::new().await, page("Main_Page"));
    world
        .buckets
        .import(&page, vec![world.imported_revision(&page, 5, at(-100), b"text").await])
        .await
        .unwrap();
    let before = world.dump().await;
    let render = async |tid: Tid, bodies: &[(&str, &str)]| ImportRender {
        tid,
        properties: world.properties_without_rewrite_time(&page, bodies).await,
    };
    let tid = Tid::new(at(-50), 1);
    let of_five = Tid::imported(&page, rev(5), at(-100));
    for number in [5, 6] {
        let revision = ImportRevision {
            renders: Vec::new(),
            ..world.imported_revision(&page, number, at(-100), b"text").await
        };
        let of_another = if number == 5 { None } else { Some(vec![render(of_five, &[("html", "x")]).await]) };
        let renders = [
            Some(vec![render(tid, &[("html", "x")]).await, render(tid, &[("html", "y")]).await]),
            // A property of the revision cannot be a property of a render.
            Some(vec![render(tid, &[("html", "x"), ("wikitext", "text")]).await]),
            of_another,
        ];
        for renders in renders.into_iter().flatten() {
            let what = format!("{number} {renders:?}");
            let outcomes = world
                .buckets
                .import(&page, vec![ImportRevision { renders, ..revision.clone() }])
                .await
                .unwrap();
            assert!(matches!(outcomes[..], [ImportOutcome::Conflict(_)]), "{what}: {outcomes:?}");
            assert_eq!(world.dump().await, before, "{what}");
        }
    }
    // A property of renders cannot be a property of the revision, and a render cannot belong to two
    // revisions.
    let html = ImportRevision {
        properties: world.properties_without_rewrite_time(&page, &[("html", "x")]).await,
        ..world.imported_revision(&page, 7, at(-100), b"text").await
    };
    let mut twice = Vec::new();
    for number in [8, 9] {
        let renders = vec![render(tid, &[("html", "x")]).await];
        twice.push(ImportRevision {
            renders,
            ..world.imported_revision(&page, number, at(-100), b"text").await
        });
    }
    let outcomes = world.buckets.import(&page, [vec![html], twice].concat()).await.unwrap();
    let conflict = |outcome: &ImportOutcome| matches!(outcome, ImportOutcome::Conflict(_));
    assert_eq!(outcomes.iter().map(conflict).collect::<Vec<_>>(), [true, false, true], "{outcomes:?}");
    world.assert_consistent().await;

    let nothing =
        ImportRevision { renders: Vec::new(), ..world.imported_revision(&page, 9, at(-1), b"text").await };
    let refused = world.buckets.import(&page, vec![nothing]).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

#[tokio::test]
async fn import_adds_new_renders_to_a_stored_revision() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let mut revision = world.imported_revision(&page, 5, at(-100), b"text").await;
    world.buckets.import(&page, vec![revision.clone()]).await.unwrap();
    for (seconds, body) in [(-50, "one"), (-70, "two"), (-30, "three")] {
        let tid = Tid::new(at(seconds), 1);
        let properties = world.properties_without_rewrite_time(&page, &[("html", body)]).await;
        revision.renders.push(ImportRender { tid, properties });
        let outcomes = world.buckets.import(&page, vec![revision.clone()]).await.unwrap();
        assert_eq!(outcomes, [ImportOutcome::Created]);
        assert_eq!(world.read(&page, tid, "html").await, body.as_bytes());
    }
    let detail = world.buckets.revision(&page, rev(5)).await.unwrap();
    let seconds: Vec<_> = detail.renders.iter().map(|render| render.tid.time()).collect();
    assert_eq!(seconds, [at(-30), at(-50), at(-70), at(-100)]);
    // The renders of one revision may come in several calls, and one call may have a revision twice.
    let parts: Vec<_> = (revision.renders.iter())
        .map(|render| ImportRevision { renders: vec![render.clone()], ..revision.clone() })
        .collect();
    let other = World::new().await;
    other.buckets.import(&page, parts.clone()).await.unwrap();
    assert_eq!(dump_without_chunks(&other).await, dump_without_chunks(&world).await);
    assert_eq!(
        other.buckets.import(&page, parts).await.unwrap(),
        vec![ImportOutcome::Unchanged; 4],
        "all renders are stored already"
    );
}

/// An import from an XML export knows no renders. The stored revision has one.
#[tokio::test]
async fn import_without_known_renders_adds_none_to_a_stored_revision() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let without_renders = world.imported_revision(&page, 5, at(-100), b"text").await;
    let properties = world.properties_without_rewrite_time(&page, &[("html", "html")]).await;
    let renders = vec![ImportRender { tid: Tid::new(at(-50), 1), properties }];
    let with_render = ImportRevision { renders, ..without_renders.clone() };
    world.buckets.import(&page, vec![with_render]).await.unwrap();
    let before = world.dump().await;
    assert_eq!(world.buckets.import(&page, vec![without_renders]).await.unwrap(), [ImportOutcome::Unchanged]);
    assert_eq!(world.dump().await, before);
}

/// The batches of a page stay within their limit, however large the export is.
async fn import_writes_batches_within_the_limit(world: World) {
    let page = page("Main_Page");
    let mut revisions = Vec::new();
    for number in 1..=300 {
        let mut revision = world
            .imported_revision(&page, number, at(number - 1000), &noise(number.unsigned_abs(), 40_000))
            .await;
        revision.record.comment = Some("c".repeat(20_000));
        let mut html = world.properties_without_rewrite_time(&page, &[("html", "x")]).await;
        html[0].0.other_headers.insert("x-long".to_owned(), "h".repeat(10_000));
        revision.renders[0].properties = html;
        revisions.push(revision);
    }
    let outcomes = world.buckets.import(&page, revisions).await.unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == ImportOutcome::Created));
    assert_eq!(world.assert_consistent().await.revisions, 300);

    // A revision that no batch can hold is skipped and reported.
    let mut absurd = vec![world.imported_revision(&page, 1000, at(-1), b"text").await; 3];
    absurd[0].record.comment = Some("c".repeat(2 << 20));
    let mut html = world.properties_without_rewrite_time(&page, &[("html", "x")]).await;
    html[0].0.other_headers.insert("x-long".to_owned(), "h".repeat(2 << 20));
    absurd[1].renders[0].properties = html;
    let outcomes = world.buckets.import(&page, absurd).await.unwrap();
    let conflict = |outcome: &ImportOutcome| matches!(outcome, ImportOutcome::Conflict(_));
    assert_eq!(outcomes.iter().map(conflict).collect::<Vec<_>>(), [true, true, false], "{outcomes:?}");
}

/// An interrupted import stores a part of the history, and a repeated import stores the rest.
#[tokio::test]
async fn failed_import_can_be_repeated() {
    let (_, expected) = import_at_once().await;
    let mut failures = 0;
    for seed in 0..10 {
        let (world, store) = World::over(|store| Faulty::new(store, Plan::empty())).await;
        let page = page("Main_Page");
        let revisions = varied_history(&world).await;
        let rates = Rates { before: 40, after: 40, midway: 40 };
        store.set_plan(Plan::seeded(seed, rates));
        for piece in revisions.chunks(5) {
            while let Err(error) = world.buckets.import(&page, piece.to_vec()).await {
                assert!(matches!(error, Error::Store(rashomon_tables::Error::Unavailable(_))), "{error:?}");
                failures += 1;
            }
        }
        store.set_plan(Plan::empty());
        assert_eq!(dump_without_chunks(&world).await, expected, "seed {seed}");
        world.assert_consistent().await;
    }
    assert!(failures > 10, "{failures}");
}

#[tokio::test]
async fn import_keeps_the_time_of_a_rewrite() {
    let (world, _) = import_at_once().await;
    let page = page("Main_Page");
    let render = world.buckets.newest_render(&page, rev(2)).await.unwrap();
    let rewritten: BTreeMap<_, _> =
        render.properties.iter().map(|(name, info)| (name.to_string(), info.rewritten_at)).collect();
    assert_eq!(rewritten["meta"], Some(at(-400)));
    assert_eq!((rewritten["html"], rewritten["wikitext"]), (None, None));
    let property = world.buckets.property(&page, render.tid, &name("meta")).await.unwrap();
    assert_eq!(property.version.rewritten_at, Some(at(-400)));
    assert_eq!(record(2, at(0)).parent, render.record.parent);
}
