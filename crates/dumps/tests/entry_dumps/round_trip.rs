//! An import of an export restores the content of a bucket.

use std::time::Duration;

use rashomon_dumps::entries::{EntryImportError, EntryImportReport};
use rashomon_entries::{BucketType, Definition};

use crate::support::{World, headers, key, large};

#[tokio::test]
async fn entries_survive_a_round_trip_with_headers_and_bodies() {
    let world = World::new().await;
    let files = world.files().await;
    let file = world.export(&files).await;
    let lines: Vec<&[u8]> = file.split(|byte| *byte == b'\n').collect();
    assert!(lines.iter().all(|line| line.len() < 2 << 20), "no line has a whole large body");
    let other = World::new().await;
    let (report, outcome) = other.import("files", &file).await;
    outcome.unwrap();
    let expected = EntryImportReport { is_new_bucket: true, stored: 3, ..EntryImportReport::default() };
    assert_eq!(report, expected);
    let imported = other.bucket("files", files.definition.clone()).await;
    for name in ["a/small", "empty", "large"] {
        assert!(
            world.body(&files, name).await.unwrap() == other.body(&imported, name).await.unwrap(),
            "{name}"
        );
        let before = world.store.entry(&files, &key(name)).await.unwrap().unwrap();
        let after = other.store.entry(&imported, &key(name)).await.unwrap().unwrap();
        assert_eq!(before.headers, after.headers);
    }
    // The clock of the test did not advance, so both exports have the same times.
    assert!(other.export(&imported).await == file);
}

#[tokio::test]
async fn second_import_changes_nothing_and_other_content_stays() {
    let world = World::new().await;
    let files = world.files().await;
    let file = world.export(&files).await;
    let tag = world.store.entry(&files, &key("large")).await.unwrap().unwrap().etag;
    world.put(&files, "empty", headers("a/b"), b"newer").await;
    world.put(&files, "a/small", headers("other/type"), b"small body").await;
    let (report, outcome) = world.import("files", &file).await;
    outcome.unwrap();
    assert_eq!((report.stored, report.unchanged, report.conflicts.count), (0, 1, 2), "{report:?}");
    assert!(!report.is_clean() && report.conflicts.first[0].starts_with("a/small: "), "{report:?}");
    assert_eq!(world.store.entry(&files, &key("large")).await.unwrap().unwrap().etag, tag);
    assert_eq!(world.body(&files, "empty").await.unwrap(), b"newer");
}

#[tokio::test]
async fn counters_survive_a_round_trip() {
    let world = World::new().await;
    let clicks = world.bucket("clicks", Definition::of(BucketType::Counter)).await;
    for (name, by) in [("a", 5), ("zero", 0), ("least", i64::MIN), ("gone", 3)] {
        world.store.increment(&clicks, &key(name), by, None).await.unwrap();
    }
    world.store.delete_counter(&clicks, &key("gone")).await.unwrap();
    let file = world.export(&clicks).await;
    let other = World::new().await;
    for expected in [(3, 0), (0, 3)] {
        let (report, outcome) = other.import("clicks", &file).await;
        outcome.unwrap();
        assert_eq!((report.stored, report.unchanged), expected, "{report:?}");
    }
    let imported = other.bucket("clicks", Definition::of(BucketType::Counter)).await;
    assert_eq!(other.store.counter(&imported, &key("least")).await.unwrap(), Some(i64::MIN));
    assert_eq!(other.store.counter(&imported, &key("zero")).await.unwrap(), Some(0));
    assert_eq!(other.store.counter(&imported, &key("gone")).await.unwrap(), None);
    other.store.increment(&imported, &key("a"), 1, None).await.unwrap();
    let (report, outcome) = other.import("clicks", &file).await;
    outcome.unwrap();
    assert_eq!(report.conflicts.first, ["a: the counter has 6, and 5 in the export"]);
}

#[tokio::test]
async fn expired_entries_are_left_out_and_the_ttl_of_others_begins_at_the_import() {
    let world = World::new().await;
    let hour = Definition { ttl: Some(3600), ..Definition::of(BucketType::Blob) };
    let sessions = world.bucket("sessions", hour).await;
    world.put(&sessions, "early", headers("a/b"), b"early").await;
    world.clock.advance(Duration::from_secs(1800));
    world.put(&sessions, "late", headers("a/b"), &large(2_000_000)).await;
    let file = world.export(&sessions).await;
    world.clock.advance(Duration::from_secs(1800));
    let (report, outcome) = world.import("copies", &file).await;
    outcome.unwrap();
    assert_eq!((report.stored, report.expired), (1, 1), "{report:?}");
    let copies = world.bucket("copies", sessions.definition.clone()).await;
    assert_eq!(world.body(&copies, "early").await, None);
    world.clock.advance(Duration::from_secs(3599));
    assert!(world.body(&copies, "late").await.is_some());
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(world.body(&copies, "late").await, None);
}

#[tokio::test]
async fn bucket_with_another_definition_is_an_error() {
    let world = World::new().await;
    let file = world.export(&world.files().await).await;
    world.bucket("clicks", Definition::of(BucketType::Counter)).await;
    let (_, outcome) = world.import("clicks", &file).await;
    let error = outcome.unwrap_err();
    assert!(matches!(error, EntryImportError::OtherDefinition { .. }), "{error}");
    assert!(error.to_string().contains("\"type\":\"ordered-blob\""), "{error}");
}
