//! What was erased is in no file of the store: not as it came, and not as it was ever stored.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use rashomon_buckets::{Erasing, schemas};
use rashomon_tables::Value;

use super::{HOUR, archiving, later};
use crate::support::{World, noise, page, rev};

/// Bytes that are searched for together.
const WINDOW: usize = 32;

/// Letters without any order, which are theirs alone.
fn letters(seed: u64, length: usize) -> String {
    noise(seed, length).into_iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}

/// Pieces of bytes, by the first eight of each.
#[derive(Debug, Default)]
struct Wanted(HashMap<u64, HashSet<[u8; WINDOW]>>);

impl Wanted {
    fn add(&mut self, bytes: &[u8]) {
        for piece in bytes.as_chunks::<WINDOW>().0 {
            // What repeats one byte is everywhere.
            if piece.iter().collect::<HashSet<_>>().len() > WINDOW / 4 {
                self.0.entry(first(piece)).or_default().insert(*piece);
            }
        }
    }

    /// Those that are somewhere in the bytes.
    fn found_in(&self, bytes: &[u8]) -> HashSet<[u8; WINDOW]> {
        let mut found = HashSet::new();
        for window in bytes.windows(WINDOW) {
            if let Some(pieces) = self.0.get(&first(window))
                && let Ok(window) = <&[u8; WINDOW]>::try_from(window)
                && pieces.contains(window)
            {
                found.insert(*window);
            }
        }
        found
    }
}

fn first(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// All values of bytes that stand.
async fn stored(world: &World) -> Vec<Vec<u8>> {
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
fn files(directory: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        all.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_erased_is_in_no_file() {
    let world = archiving(World::in_sqlite().await).await;
    let (main, directory) = (page("Main_Page"), world.directory().to_owned());
    let mut wanted = Wanted::default();
    let mut texts = Vec::new();
    // A life: it is written, replaced, gets renders, is sealed, replaced in the archive, sealed again, and merged.
    for number in 1..=6_i64 {
        let seed = number as u64;
        // The third is small, and the fourth in chunks.
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
        stored(&world).await.iter().for_each(|bytes| wanted.add(bytes));
        texts.push((written.tid, [text, html, replaced, again]));
        if number % 2 == 0 {
            world.pass(later());
            world.seal().await;
            stored(&world).await.iter().for_each(|bytes| wanted.add(bytes));
        }
    }
    let late = letters(400, 5_000);
    world.rewrite(&main, texts[2].0, "wikitext", &late).await.unwrap();
    world.edit(&main, 7..=8).await;
    world.pass(later());
    world.seal().await;
    world.merge().await;
    stored(&world).await.iter().for_each(|bytes| wanted.add(bytes));
    assert!(wanted.found_in(&files(&directory)).len() > 1_000, "they are looked for where they are");

    for number in 1..=5 {
        world.buckets.erase(&main, rev(number), Erasing::default()).await.unwrap();
    }
    let mut erased = Wanted::default();
    for (_, texts) in &texts[..5] {
        texts.iter().for_each(|text| erased.add(text.as_bytes()));
    }
    erased.add(late.as_bytes());
    let files = files(&directory);
    assert_eq!(erased.found_in(&files).len(), 0, "as it came");
    // What it was stored as (frames, blocks) is nowhere, as far as it is not the stored form of what stands.
    let mut stands = HashSet::new();
    for bytes in stored(&world).await {
        stands.extend(wanted.found_in(&bytes));
    }
    let found = wanted.found_in(&files);
    let left = found.iter().filter(|piece| !stands.contains(*piece)).count();
    assert_eq!(left, 0, "as it was stored, of {} pieces", found.len());
    assert!(!stands.is_empty());
    assert_eq!(world.read(&main, texts[5].0, "wikitext").await, texts[5].1[0].as_bytes());
    world.assert_whole().await;
}
