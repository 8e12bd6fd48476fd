//! Damaged and truncated exports.

use rashomon_dumps::entries::export_entries;
use rashomon_entries::{BucketType, Definition};

use crate::support::{World, key, large};

const BUCKET: &str = r#"{"bucket":{"name":"files","version":1,"definition":{"type":"blob"}}}"#;
const SMALL: &str = r#"{"entry":{"key":"a","headers":{"content_type":"a/b"},"size":3,"sha1":"a9993e364706816aba3e25717850c26c9cd0d89d","modified":"2026-11-27T00:00:00Z","body":"YWJj"}}"#;

/// Imports lines into a new store, and returns the error and the body of the entry `a`.
async fn import(lines: &[&str]) -> (String, Option<Vec<u8>>) {
    let world = World::new().await;
    let file: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (report, outcome) = world.import("files", file.as_bytes()).await;
    let bucket = world.bucket("files", Definition::of(BucketType::Blob)).await;
    let error =
        outcome.err().map_or_else(|| format!("{:?}", report.left_out.first), |error| error.to_string());
    (error, world.body(&bucket, "a").await)
}

#[tokio::test]
async fn wrong_line_is_an_error_with_its_line_number() {
    let end = r#"{"end":{"entries":1}}"#;
    let stored = Some(b"abc".to_vec());
    assert_eq!(import(&[BUCKET, SMALL, end]).await, ("[]".to_owned(), stored.clone()));
    let replaced = |from: &str, to: &str| SMALL.replace(from, to);
    let in_parts = replaced(r#","body":"YWJj""#, "");
    for (lines, expected, body) in [
        (vec![], "line 0: the input is empty", None),
        (vec![SMALL], "line 1: the first line of an export of entries names its bucket", None),
        (vec![BUCKET, SMALL], "line 2: the input is truncated: its last line is missing", stored.clone()),
        (vec![BUCKET, end], "line 2: the last line counts 1 entries, but the export has 0", None),
        (vec![BUCKET, SMALL, end, end], "line 4: the export goes on after its last line", stored.clone()),
        (vec![BUCKET, SMALL, BUCKET], "line 3: the export has a second bucket", stored.clone()),
        (
            vec![BUCKET, r#"{"part":"YWJj"}"#],
            "line 2: this line continues a body, but no body is incomplete here",
            None,
        ),
        (
            vec![BUCKET, r#"{"counter":{"key":"a","value":1}}"#],
            "line 2: this line does not fit the type",
            None,
        ),
        (vec![BUCKET, "<mediawiki>"], "line 2: this is no line of an export of entries", None),
        (
            vec![BUCKET, &replaced("YWJj", "YWJk"), end],
            "line 2: the body of a is damaged: its SHA-1 is",
            None,
        ),
        (vec![BUCKET, &replaced("YWJj", "YWI="), end], "line 3: 1 bytes of the body of a are missing", None),
        (
            vec![BUCKET, &replaced("YWJj", "YWJjZA=="), end],
            "line 2: the body of a does not have 3 bytes",
            None,
        ),
        (vec![BUCKET, &replaced("YWJj", "YW*j"), end], "line 2: a piece of the body of a is damaged", None),
        (vec![BUCKET, &replaced("\"a\"", "\"..\""), end], "line 2: no part of a key", None),
        (vec![BUCKET, &in_parts, r#"{"part":"YWJj"}"#, end], "[]", stored.clone()),
        (
            vec![BUCKET, &in_parts, r#"{"part":"YWI="}"#, r#"{"incomplete":{"reason":"lost"}}"#, end],
            "[\"a: the export has only a part of the body: lost\"]",
            None,
        ),
        (vec![BUCKET, &in_parts, r#"{"part":""}"#, end], "line 3: the body of a does not have 3 bytes", None),
        (
            vec![&BUCKET.replace("\"version\":1", "\"version\":2")],
            "line 1: the export has the format 2",
            None,
        ),
        (vec![BUCKET, &replaced("a/b", "ab"), end], "[\"a: a Content-Type is a media type", None),
    ] {
        let (error, found) = import(&lines).await;
        assert!(error.contains(expected), "{lines:?}\n{error}");
        assert_eq!(found, body, "{lines:?}");
    }
}

#[tokio::test]
async fn entry_that_is_too_large_for_the_bucket_is_left_out() {
    let world = World::new().await;
    let bucket = BUCKET.replace("\"blob\"", "\"blob\",\"max_size\":2");
    let file = format!("{bucket}\n{SMALL}\n{}\n", r#"{"end":{"entries":1}}"#);
    let (report, outcome) = world.import("files", file.as_bytes()).await;
    outcome.unwrap();
    assert_eq!(report.left_out.first, ["a: the body has 3 bytes, and the bucket allows 2"]);
}

/// The import of a truncated export fails wherever the export ends, and stores only whole entries.
#[tokio::test]
async fn truncated_export_is_an_error_and_stores_whole_entries() {
    let world = World::new().await;
    let file = world.export(&world.files().await).await;
    let ends = file.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
    let cuts: Vec<usize> = ends.flat_map(|end| [end.saturating_sub(20), end, end + 1]).collect();
    for cut in cuts.into_iter().filter(|cut| *cut < file.len()) {
        let other = World::new().await;
        let (report, outcome) = other.import("files", &file[..cut]).await;
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("truncated") || error.contains("missing"), "{cut}: {error}");
        let bucket = other.bucket("files", Definition::of(BucketType::OrderedBlob)).await;
        let large_body = other.body(&bucket, "large").await;
        assert!(large_body.is_none_or(|body| body == large(3_500_000)), "{cut}");
        // The import of the whole file stores the entries that are missing.
        let (again, outcome) = other.import("files", &file).await;
        outcome.unwrap();
        assert_eq!((again.unchanged, again.stored), (report.stored, 3 - report.stored), "{cut}");
    }
}

#[tokio::test]
async fn entry_that_the_store_has_lost_is_left_out_and_reported() {
    let world = World::new().await;
    let files = world.files().await;
    world.lose_chunks().await;
    let (report, file) = export_entries(&world.store, &files, Vec::new(), |_| {}).await.unwrap();
    assert_eq!((report.entries, report.unreadable.count), (2, 1), "{report:?}");
    assert!(report.unreadable.first[0].starts_with("large: "), "{report:?}");
    let other = World::new().await;
    let (report, outcome) = other.import("files", &file).await;
    outcome.unwrap();
    assert_eq!((report.stored, report.left_out.count), (2, 1), "{report:?}");
    let bucket = other.bucket("files", files.definition.clone()).await;
    assert!(other.store.entry(&bucket, &key("large")).await.unwrap().is_none());
}
