//! Erased content is in no file of the store, neither in the form in which it was received nor in a stored
//! form.

use std::{collections::HashSet, path::Path};

use rashomon_pages::operations::EraseOptions;
use rashomon_pages::schemas;
use rashomon_tables::Value;

use super::{HOUR, seal_delay, with_archive};
use crate::support::{PieceSet, World, letters, page, rev};

/// All blobs in the tables.
async fn stored_blobs(world: &World) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for table in schemas::all() {
        for row in world.rows(table).await {
            all.extend(row.values.into_iter().flatten().filter_map(|value| match value {
                Value::Blob(bytes) => Some(bytes.to_vec()),
                _ => None,
            }));
        }
    }
    all
}

/// The bytes of all files of a store.
fn file_bytes(directory: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        all.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn erased_content_is_in_no_file_of_the_store() {
    let world = with_archive(World::in_sqlite().await).await;
    let (main, directory) = (page("Main_Page"), world.directory().to_owned());
    let mut pieces = PieceSet::new();
    let mut texts = Vec::new();
    // Each revision is written and rewritten, and gets a second render. All six are sealed, the third is
    // rewritten and sealed again, and the archive is compacted.
    for number in 1..=6_i64 {
        let seed = number as u64;
        // The third body is small, and the fourth is in chunks.
        let length = [9_000, 30_000, 700, 1_300_000, 60_000, 2_000][number as usize - 1];
        let text = letters(seed, length);
        let html = format!("<p>{}</p>", letters(100 + seed, length / 2));
        let written =
            world.put_revision(&main, number, &[("wikitext", &text), ("html", &html)]).await.unwrap();
        world.pass(HOUR);
        let replaced = letters(200 + seed, length);
        world.rewrite(&main, written.tid, "html", &replaced).await.unwrap();
        let again = letters(300 + seed, length);
        world.put_render(&main, number, &[("html", &again)]).await.unwrap();
        stored_blobs(&world).await.iter().for_each(|bytes| pieces.add(bytes));
        texts.push((written.tid, [text, html, replaced, again]));
        if number % 2 == 0 {
            world.pass(seal_delay());
            world.seal().await;
            stored_blobs(&world).await.iter().for_each(|bytes| pieces.add(bytes));
        }
    }
    let late = letters(400, 5_000);
    world.rewrite(&main, texts[2].0, "wikitext", &late).await.unwrap();
    world.edit(&main, 7..=8).await;
    world.pass(seal_delay());
    world.seal().await;
    world.compact().await;
    stored_blobs(&world).await.iter().for_each(|bytes| pieces.add(bytes));
    assert!(pieces.found_in(&file_bytes(&directory)).len() > 1_000, "the search finds stored content");

    for number in 1..=5 {
        rashomon_pages::operations::erase(&world.buckets, &main, rev(number), EraseOptions::default())
            .await
            .unwrap();
    }
    let mut erased = PieceSet::new();
    for (_, texts) in &texts[..5] {
        texts.iter().for_each(|text| erased.add(text.as_bytes()));
    }
    erased.add(late.as_bytes());
    let files = file_bytes(&directory);
    assert_eq!(erased.found_in(&files).len(), 0, "pieces of erased content as it was received");
    // The files have pieces of erased content in its stored forms (frames, blocks) only if live rows have
    // these pieces too.
    let mut live = HashSet::new();
    for bytes in stored_blobs(&world).await {
        live.extend(pieces.found_in(&bytes));
    }
    let found = pieces.found_in(&files);
    let left = found.iter().filter(|piece| !live.contains(*piece)).count();
    assert_eq!(left, 0, "pieces of stored content that no live row has, of {} pieces found", found.len());
    assert!(!live.is_empty());
    assert_eq!(world.read(&main, texts[5].0, "wikitext").await, texts[5].1[0].as_bytes());
    world.assert_consistent().await;
}
