//! Damaged SQLite stores: blocks of the archive, rows, keys and the page structure of the file. Commands
//! continue where they can, and report the damage.

use std::{num::NonZeroUsize, path::Path, sync::Arc, time::Duration};

use rashomon_clock::SystemClock;
use rashomon_pages::schemas::ARCHIVE_BLOCKS;
use rashomon_tables::{Batch, Scan, TableStore as _, Value};
use rashomon_tables_sqlite::{Options, SqliteStore};
use serde_json::Value as Json;

use crate::{home::Home, process::run, wiki::dump};

/// Changes the only block of a store.
fn damage(directory: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(directory, Arc::new(SystemClock::new()), Options::default()).unwrap();
        store.create(&ARCHIVE_BLOCKS).await.unwrap();
        let one = NonZeroUsize::MIN;
        let partition = store.partitions(&ARCHIVE_BLOCKS, None, one).await.unwrap().items.remove(0);
        let row = store.scan(&ARCHIVE_BLOCKS, Scan::new(partition, one)).await.unwrap().items.remove(0);
        let mut values = row.values.clone();
        let Some(Value::Blob(block)) = &mut values[1] else { panic!("a block") };
        let mut bytes = block.to_vec();
        change(&mut bytes);
        *block = bytes.into();
        let mut batch = Batch::new(row.key.partition);
        let at = row.written_at.saturating_add(Duration::from_micros(1));
        batch.put(&ARCHIVE_BLOCKS, row.key.clustering, values, at);
        store.write(Vec::new(), batch).await.unwrap();
        store.shutdown().await;
    });
}

/// The id and the bytes of each block of a store.
fn blocks(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(directory, Arc::new(SystemClock::new()), Options::default()).unwrap();
        store.create(&ARCHIVE_BLOCKS).await.unwrap();
        let many = NonZeroUsize::new(10).unwrap();
        let mut blocks = Vec::new();
        for partition in store.partitions(&ARCHIVE_BLOCKS, None, many).await.unwrap().items {
            let Some(Value::Blob(id)) = partition.last().cloned() else { panic!("a block") };
            let row = store.scan(&ARCHIVE_BLOCKS, Scan::new(partition, many)).await.unwrap().items.remove(0);
            let Some(Value::Blob(bytes)) = &row.values[1] else { panic!("a block") };
            blocks.push((id.iter().map(|byte| format!("{byte:02x}")).collect(), bytes.to_vec()));
        }
        store.shutdown().await;
        blocks
    })
}

/// Flips a bit in the length that precedes a block in its row, so that the row cannot be read. A flipped bit
/// within the block would not have this effect: the store leaves the check of a block's bytes to the archive.
fn flip_bit_of_block_length(directory: &Path, block: &[u8]) {
    let path = directory.join("rashomon.sqlite");
    let mut file = std::fs::read(&path).unwrap();
    // Unused parts of the file may have copies of a block, since rows move from page to page.
    let is_there = |(_, bytes): &(usize, &[u8])| *bytes == &block[..48];
    let places: Vec<_> = file.windows(48).enumerate().filter(is_there).map(|(place, _)| place).collect();
    assert!(!places.is_empty(), "the block is in the file");
    for place in places {
        file[place - 2] ^= 1;
    }
    std::fs::write(path, file).unwrap();
}

/// Each block whose row cannot be read is named with its pages.
#[test]
fn each_block_whose_row_cannot_be_read_is_named() {
    let Some(home) = Home::new() else { return };
    let on_sqlite = |words: &[&str]| run(home.path(), &[words, &["--data", "rotten"]].concat());
    for title in ["A", "B", "C", "D"] {
        home.write("one.xml", &dump(title, &[("1", "one"), ("2", "two"), ("3", "three")]));
        on_sqlite(&["import", "--rows", "--domain", "wiki", "one.xml"]).ends_with(0);
        on_sqlite(&["archive", "seal", "--after", "0s"])
            .ends_with(0)
            .stdout_contains(&["sealed 2 revisions", "1 block"]);
    }
    let rotten = home.path().join("rotten");
    let blocks = blocks(&rotten);
    assert_eq!(blocks.len(), 4);
    // The two blocks in the middle: neither the first nor the last.
    for (_, bytes) in &blocks[1..3] {
        flip_bit_of_block_length(&rotten, bytes);
    }
    for words in [&["archive", "verify"][..], &["verify"]] {
        let ran = on_sqlite(words).ends_with(1).stdout_contains(&["NOT SOUND", "4 blocks"]);
        for (number, (id, _)) in blocks.iter().enumerate() {
            let named: Vec<_> = ran
                .stdout
                .lines()
                .filter(|line| line.contains(&format!("block {id} of the archive")))
                .collect();
            let is_rotten = (1..3).contains(&number);
            assert_eq!(!named.is_empty(), is_rotten, "{id}: {ran:#?}");
            let of_page = named.iter().any(|line| line.starts_with("domain wiki, bucket page, title "));
            assert_eq!(of_page, is_rotten, "{ran:#?}");
            assert!(
                named.iter().all(|line| line.contains("restore it from a replica or a backup")),
                "{ran:#?}"
            );
        }
    }
}

#[test]
fn export_and_statistics_continue_beside_damage() {
    let Some(home) = Home::new() else { return };
    let texts: Vec<(String, String)> =
        (1..=30).map(|rev| (rev.to_string(), format!("{}the end", "a line\n".repeat(rev)))).collect();
    let revisions: Vec<(&str, &str)> =
        texts.iter().map(|(rev, text)| (rev.as_str(), text.as_str())).collect();
    home.write("a.xml", &dump("A", &revisions));
    home.write("b.xml", &dump("B", &[("41", "one"), ("42", "two"), ("43", "three")]));
    // These commands work on an SQLite file.
    let on_sqlite = |words: &[&str]| run(home.path(), &[words, &["--data", "archived"]].concat());
    on_sqlite(&["import", "--rows", "--domain", "wiki", "a.xml", "b.xml"]).ends_with(0);
    on_sqlite(&["archive", "seal", "--after", "0s"]).ends_with(0).stdout_contains(&["sealed 31 revisions"]);
    let whole = on_sqlite(&["export", "--domain", "wiki", "--history"]).ends_with(0).stdout;
    let archived = home.path().join("archived");

    // Most bits of a block affect some of its texts, and a few bits affect all of them.
    let mut original = Vec::new();
    damage(&archived, |block| original.clone_from(block));
    let ran = (0..original.len()).step_by(29).find_map(|place| {
        damage(&archived, |block| {
            block.clone_from(&original);
            block[place] ^= 1;
        });
        let ran = on_sqlite(&["export", "--domain", "wiki", "--history"]);
        ran.stderr.contains("left out: revision ").then_some(ran)
    });
    let ran = ran.expect("some texts are lost").ends_with(3);
    let ran = ran.stderr_contains(&[
        " of wiki: block ",
        "could not be read: they, or some of their renders, are left out",
        "`rashomon verify`",
    ]);
    assert!(ran.stdout.len() < whole.len());
    for text in ["<id>30</id>", "<id>43</id>", ">three</text>"] {
        assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
    }
    let part: Vec<_> = ran.stdout.lines().filter(|line| line.contains("<text")).collect();
    assert!(part.iter().all(|line| whole.contains(line)), "{}", ran.stdout);

    // No part of this block can be read.
    damage(&archived, |block| block.truncate(100));
    let ran = on_sqlite(&["export", "--domain", "wiki", "--history", "--format", "jsonl"]).ends_with(3);
    ran.stderr_contains(&[
        "left out: up to 29 revisions from 1 to 29 of A of wiki: block ",
        "left out: up to 2 revisions from 41 to 42 of B of wiki: block ",
        "31 revisions could not be read",
        "2 revisions of 2 pages",
    ]);
    on_sqlite(&["export", "--domain", "wiki"]).ends_with(0).stderr_contains(&["2 revisions of 2 pages"]);
    for words in [&["archive", "stats", "--json"][..], &["stats", "--json"]] {
        let ran = on_sqlite(words).ends_with(1);
        let ran = ran.stderr_contains(&["1 block is damaged", "`rashomon archive verify`"]);
        let stats: Json = serde_json::from_str(&ran.stdout).unwrap();
        let text = stats.to_string();
        assert!(text.contains("\"damaged_blocks\":1"), "{text}");
    }
    on_sqlite(&["archive", "stats"]).ends_with(1).stdout_contains(&["2 revisions not in blocks"]);

    let erase = ["archive", "erase", "--domain", "wiki", "--title", "A", "--rev", "5"];
    on_sqlite(&erase).ends_with(1).stderr_contains(&[
        "revision 5 may be in a block",
        "if neither a replica nor a backup has the block, --give-up-damaged gives up",
    ]);
    let give_up = [&erase[..], &["--give-up-damaged"]].concat();
    on_sqlite(&[&give_up[..], &["--rev", "77"]].concat())
        .ends_with(2)
        .stderr_contains(&["the page has no revision 77"]);
    on_sqlite(&[&give_up[..], &["--rev", "6"]].concat())
        .ends_with(0)
        .stdout_contains(&[
            "given up: up to 29 revisions from 1 to 29 of A",
            "up to 2 revisions from 41 to 42 of B",
        ])
        .stdout_contains(&["revision 5 was lost with its block", "revision 6 was lost with its block"]);
    on_sqlite(&["verify"]).ends_with(0).stdout_contains(&["sound: 2 pages, 2 revisions"]);
    on_sqlite(&erase).ends_with(2).stderr_contains(&["the page has no revision 5"]);
    on_sqlite(&["export", "--domain", "wiki", "--history"])
        .ends_with(0)
        .stderr_contains(&["2 revisions of 2 pages"]);
}

/// A block of a later version is not damaged: its version is reported, and no revision in it is given up.
#[test]
fn a_block_of_a_later_version_is_not_given_up() {
    let Some(home) = Home::new() else { return };
    home.write("a.xml", &dump("A", &[("1", "one"), ("2", "two"), ("3", "three")]));
    let on_sqlite = |words: &[&str]| run(home.path(), &[words, &["--data", "later"]].concat());
    on_sqlite(&["import", "--rows", "--domain", "wiki", "a.xml"]).ends_with(0);
    on_sqlite(&["archive", "seal", "--after", "0s"]).ends_with(0);
    let whole = on_sqlite(&["export", "--domain", "wiki", "--history"]).ends_with(0).stdout;
    let later = home.path().join("later");
    // The bytes of the version and of the codec.
    for place in [4, 5] {
        let mut known = 0;
        damage(&later, |block| known = std::mem::replace(&mut block[place], 9));
        let erase = ["archive", "erase", "--domain", "wiki", "--title", "A", "--rev", "1"];
        for words in [&erase[..], &[&erase[..], &["--give-up-damaged"]].concat()] {
            let ran = on_sqlite(words).ends_with(1);
            let ran =
                ran.stderr_contains(&["revision 1 may be in a block that a later version of Rashomon wrote"]);
            assert!(!ran.stderr.contains("give-up-damaged"), "{ran:#?}");
        }
        for words in [&["archive", "stats"][..], &["stats"]] {
            let ran = on_sqlite(words).ends_with(1).stderr_contains(&[
                "1 block was written by a later version",
                "use that version of Rashomon, or a later one",
            ]);
            assert!(!ran.stderr.contains("damaged"), "{ran:#?}");
        }
        damage(&later, |block| block[place] = known);
        on_sqlite(&["verify"]).ends_with(0).stdout_contains(&["sound"]);
    }
    assert_eq!(on_sqlite(&["export", "--domain", "wiki", "--history"]).ends_with(0).stdout, whole);
}

/// Flips a bit in the checksum of a title's row, in the table of titles.
fn flip_title(directory: &Path, title: &str) {
    let path = directory.join("rashomon.sqlite");
    let mut file = std::fs::read(&path).unwrap();
    // In a key of that table the title comes last, after a shard number. In a key of a page's rows the title
    // comes after the name of a bucket.
    let is_the_key = |at: &usize| {
        file[*at..].starts_with(title.as_bytes())
            && !file[at - 14..*at].windows(4).any(|four| four == b"page")
    };
    let places: Vec<_> = (14..file.len() - 40).filter(is_the_key).collect();
    assert!(!places.is_empty(), "the title is in the file");
    for place in places {
        // After the key come the write time and the checksum.
        file[place + title.len() + 12] ^= 1;
    }
    std::fs::write(path, file).unwrap();
}

/// Flips a bit in the checksums of a page's rows in the table of revisions by time.
fn flip_times(directory: &Path, title: &str) {
    let table = rashomon_pages::schemas::REVISIONS_BY_TIME.name();
    let number = rashomon_pages::schemas::all().iter().position(|schema| schema.name() == table);
    let number = u16::try_from(number.expect("a table") + 1).expect("few tables").to_be_bytes();
    let path = directory.join("rashomon.sqlite");
    let mut file = std::fs::read(&path).unwrap();
    // In a key the title ends with two zeros, and the number of the table follows.
    let key = [title.as_bytes(), b"\0\0", &number[..]].concat();
    let places: Vec<_> = (0..file.len() - 60).filter(|at| file[*at..].starts_with(&key)).collect();
    assert!(!places.is_empty(), "the row is in the file");
    for place in places {
        // The checksum follows the time of the edit, the revision and the write time.
        file[place + key.len() + 16 + 12] ^= 1;
    }
    std::fs::write(path, file).unwrap();
}

/// The counts of pages and revisions do not need the damaged row. The damage is found when the rows of the
/// SQLite file are counted.
#[test]
fn statistics_report_a_damaged_index_row() {
    let Some(home) = Home::new() else { return };
    let on_sqlite = |words: &[&str]| run(home.path(), &[words, &["--data", "indexes"]].concat());
    home.write("one.xml", &dump("Unmistakable title", &[("1", "one"), ("2", "two")]));
    on_sqlite(&["import", "--rows", "--domain", "wiki", "one.xml"]).ends_with(0);
    on_sqlite(&["stats"]).ends_with(0);
    flip_times(&home.path().join("indexes"), "Unmistakable_title");
    on_sqlite(&["stats"]).ends_with(1).stdout_contains(&["1 page, 2 revisions"]).stderr_contains(&[
        "damaged: ",
        "table revisions_by_time",
        "its checksum does not agree",
    ]);
}

/// The counts of pages need the damaged title row, and do not need the row of the revision by time. Both are named.
#[test]
fn statistics_name_each_damaged_row_once() {
    let Some(home) = Home::new() else { return };
    let on_sqlite = |words: &[&str]| run(home.path(), &[words, &["--data", "both"]].concat());
    home.write("one.xml", &dump("Unmistakable title", &[("1", "one")]));
    on_sqlite(&["import", "--rows", "--domain", "wiki", "one.xml"]).ends_with(0);
    let both = home.path().join("both");
    flip_times(&both, "Unmistakable_title");
    flip_title(&both, "Unmistakable_title");
    let ran = on_sqlite(&["stats"]).ends_with(1).stdout_contains(&["1 page, 1 revision"]);
    for table in ["titles", "revisions_by_time"] {
        let is_row = |line: &&str| line.starts_with("damaged: ") && line.contains(&format!("table {table}"));
        assert_eq!(ran.stderr.lines().filter(is_row).count(), 1, "{table}: {}", ran.stderr);
    }
}

/// The key of the row contains the title. So all commands continue and report the damage, and a repair
/// restores the row.
#[test]
fn damaged_title_row_stops_nothing_and_is_repaired() {
    let Some(home) = Home::new() else { return };
    let on_sqlite = |words: &[&str]| run(home.path(), &[words, &["--data", "titles"]].concat());
    for title in ["Alpha", "Unmistakable title", "Omega"] {
        home.write("one.xml", &dump(title, &[("1", "one"), ("2", "two"), ("3", "three")]));
        on_sqlite(&["import", "--rows", "--domain", "wiki", "one.xml"]).ends_with(0);
    }
    let export = ["export", "--domain", "wiki", "--history", "--format", "jsonl"];
    let whole = on_sqlite(&export).ends_with(0).stdout;
    let titles = home.path().join("titles");
    flip_title(&titles, "Unmistakable_title");

    let ran = on_sqlite(&export).ends_with(3).stderr_contains(&[
        "damaged: table titles",
        "Unmistakable_title",
        "verify --repair",
    ]);
    assert_eq!(ran.stdout, whole, "nothing is left out");
    // The count reads no titles, but the rows of the file.
    on_sqlite(&["stats"])
        .ends_with(1)
        .stderr_contains(&["of table titles: its checksum does not agree"])
        .stdout_contains(&["3 pages, 9 revisions"]);
    // A seal reads no titles.
    on_sqlite(&["archive", "seal", "--after", "0s"]).ends_with(0).stdout_contains(&["sealed 6 revisions"]);
    run(home.path(), &["migrate", "--from", "sqlite:titles", "--to", "sqlite:copy", "--verify"])
        .ends_with(1)
        .stdout_contains(&["titles: DAMAGED, 1 row of the source", "NOT THE SAME"])
        .stderr_contains(&["damaged in the source, and not copied: table titles"]);

    on_sqlite(&["verify"]).ends_with(1).stdout_contains(&["NOT SOUND", "Unmistakable_title"]);
    let would =
        ["would be repaired: domain wiki, bucket page, title Unmistakable_title: restored the catalog row"];
    on_sqlite(&["verify", "--repair", "--dry-run"])
        .ends_with(1)
        .stdout_contains(&would)
        .stdout_contains(&["1 row would be repaired"]);
    on_sqlite(&["verify", "--dry-run"]).ends_with(2);
    on_sqlite(&["verify", "--repair"])
        .ends_with(0)
        .stdout_contains(&["1 row repaired", "sound: 3 pages, 9 revisions"]);
    on_sqlite(&["verify", "--repair"]).ends_with(0).stdout_contains(&["0 rows repaired"]);
    on_sqlite(&["stats"]).ends_with(0);
    assert_eq!(on_sqlite(&export).ends_with(0).stdout, whole);
}

/// Fills a store with three pages of one domain, and a page of another. Returns the keys of one table's rows,
/// in the order of the file.
fn wiki_with_keys(home: &Home, data: &str, table: &str) -> Vec<Vec<u8>> {
    for (domain, title) in [("wiki", "Alpha"), ("wiki", "Middle_title"), ("wiki", "Omega"), ("other", "Beta")]
    {
        home.write("one.xml", &dump(title, &[("1", "one"), ("2", "two"), ("3", "three")]));
        run(home.path(), &["import", "--rows", "--domain", domain, "one.xml", "--data", data]).ends_with(0);
    }
    let file = rusqlite::Connection::open(home.path().join(data).join("rashomon.sqlite")).unwrap();
    let number: u16 =
        file.query_row("SELECT number FROM schemas WHERE name = ?1", [table], |row| row.get(0)).unwrap();
    let mut keys = file.prepare("SELECT key FROM rows ORDER BY key").unwrap();
    let keys = keys.query_map((), |row| row.get::<_, Vec<u8>>(0)).unwrap().map(Result::unwrap);
    // The number of the table follows the end of the partition's last column, if that column is a text.
    let mark = [&[0, 0][..], &number.to_be_bytes()].concat();
    keys.filter(|key| key.windows(4).any(|four| four == mark)).collect()
}

/// Flips a bit in all copies of a key in the file. `byte` is the offset of the changed byte in the key.
fn flip_key(directory: &Path, key: &[u8], byte: usize, mask: u8) {
    let path = directory.join("rashomon.sqlite");
    let mut file = std::fs::read(&path).unwrap();
    let places: Vec<_> = (0..file.len()).filter(|at| file[*at..].starts_with(key)).collect();
    assert!(!places.is_empty(), "the key is in the file");
    places.into_iter().for_each(|place| file[place + byte] ^= mask);
    std::fs::write(path, file).unwrap();
}

/// With a flipped bit in a key, every other revision is exported and sealed, the damage is reported, and a
/// repair restores the key.
#[test]
fn flipped_bit_in_a_key_stops_nothing_and_is_restored() {
    let Some(home) = Home::new() else { return };
    let last = |key: &[u8]| key.len() - 1;
    let domain = |key: &[u8]| key.windows(4).position(|four| four == b"wiki").unwrap();
    // The table, the byte of a key in it, the bit to flip, and the number of revisions that an export may
    // lack.
    type Byte = fn(&[u8]) -> usize;
    let (last, domain): (Byte, Byte) = (last, domain);
    for (number, (table, byte, mask, lost)) in [
        ("revisions", last, 0x80, 1),
        ("revisions", domain, 2, 1),
        ("revision_content", last, 1, 1),
        ("revisions_by_time", last, 0x10, 0),
        ("domains", last, 1, 0),
        ("domains", |key: &[u8]| key.len() - 3, 4, 0),
    ]
    .into_iter()
    .enumerate()
    {
        let data = format!("keys{number}");
        let what = format!("{number}: {table}");
        let on_sqlite = |words: &[&str]| run(home.path(), &[words, &["--data", &data]].concat());
        let keys = wiki_with_keys(&home, &data, table);
        let export = ["export", "--domain", "wiki", "--history", "--format", "jsonl"];
        let export_other = ["export", "--domain", "other", "--history", "--format", "jsonl"];
        let (whole, other) =
            (on_sqlite(&export).ends_with(0).stdout, on_sqlite(&export_other).ends_with(0).stdout);
        let key = keys.iter().rfind(|key| key.windows(4).any(|four| four == b"wiki")).expect(&what);
        flip_key(&home.path().join(&data), key, byte(key), mask);

        // An export does not read the index by time.
        let code = if table == "revisions_by_time" { 0 } else { 3 };
        let ran = on_sqlite(&export).ends_with(code);
        let missing = whole.lines().filter(|line| !ran.stdout.contains(line)).count();
        assert!(missing <= lost + 1, "{what}: {missing} lines are missing\n{}", ran.stdout);
        assert_eq!(on_sqlite(&export_other).stdout, other, "{what}: of the other domain all is exported");
        on_sqlite(&["verify"]).ends_with(1).stdout_contains(&["NOT SOUND", &format!("table {table}")]);
        let would = format!("would be repaired: table {table}, row ");
        let planned = on_sqlite(&["verify", "--repair", "--dry-run"]).ends_with(1).stdout_contains(&[&would]);
        let repaired =
            on_sqlite(&["verify", "--repair"]).ends_with(0).stdout_contains(&["1 row repaired", "sound"]);
        let of = |text: &str, verb: &str| -> Vec<String> {
            text.lines().filter_map(|line| line.strip_prefix(verb).map(str::to_owned)).collect()
        };
        assert_eq!(of(&planned.stdout, "would be repaired: "), of(&repaired.stdout, "repaired: "), "{what}");
        assert_eq!(on_sqlite(&export).ends_with(0).stdout, whole, "{what}");
        assert_eq!(on_sqlite(&export_other).ends_with(0).stdout, other, "{what}");
    }
}

/// If an SQLite page is in the place of another one, a write could increase the damage.
#[test]
fn repair_is_refused_while_sqlite_pages_are_in_wrong_places() {
    let Some(home) = Home::new() else { return };
    let titles: Vec<String> = (0..60).map(|number| format!("Title {number}")).collect();
    for title in &titles {
        home.write(&format!("{title}.xml"), &dump(title, &[("1", "one"), ("2", "two"), ("3", "three")]));
    }
    let files: Vec<String> = titles.iter().map(|title| format!("{title}.xml")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let on_sqlite = |words: &[&str]| run(home.path(), &[words, &["--data", "pages"]].concat());
    on_sqlite(&[&["import", "--rows", "--domain", "wiki"], &files[..]].concat()).ends_with(0);
    let path = home.path().join("pages/rashomon.sqlite");
    let mut file = std::fs::read(&path).unwrap();
    const PAGE: usize = rashomon_tables_sqlite::PAGE_BYTES;
    let leaves: Vec<_> = (0..file.len() / PAGE).filter(|page| file[page * PAGE] == 10).collect();
    assert!(leaves.len() > 4, "{leaves:?}");
    let (from, to) = (leaves[leaves.len() / 2] * PAGE, leaves[leaves.len() / 2 + 1] * PAGE);
    file.copy_within(from..from + PAGE, to);
    std::fs::write(&path, &file).unwrap();
    for words in [&["verify", "--repair", "--dry-run"][..], &["verify", "--repair"]] {
        let ran = on_sqlite(words).ends_with(1);
        let ran = ran.stderr_contains(&[
            "repair refused, nothing was changed",
            "Restore a backup",
            "rashomon export",
        ]);
        assert!(!ran.stdout.contains("repaired"), "{ran:#?}");
        assert!(std::fs::read(&path).unwrap() == file, "nothing is written");
    }
}
