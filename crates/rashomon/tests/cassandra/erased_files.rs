//! Erased content disappears from the files of a node, as docs/erasing.md describes for administrators.

use std::{fs, path::Path, thread::sleep, time::Duration};

use scylla::{client::session::Session, value::CqlValue};

use crate::{
    home::Home,
    http::post,
    piece_set::{PieceSet, letters},
    test_stores::{ask, nodetool, storage},
    wiki::dump,
};

/// The sizes of the erased texts: small texts, and one text in chunks.
const LENGTHS: [usize; 4] = [9_000, 700, 1_300_000, 30_000];

/// A correct search finds more pieces of the texts than this.
const MIN_FOUND_PIECES: usize = 10_000;

/// If the commit log is read soon enough, it has more pieces of a new text than this. Several texts are tried.
const MIN_LOGGED_PIECES: usize = 100;
const LOG_ATTEMPTS: u64 = 8;

/// Rows that fill more than one segment of the node's commit log.
const FILLING_ROWS: usize = 5;
const FILLING_BYTES: usize = 8 << 20;

/// Returns the contents of all files below a folder, one after the other.
fn files(folder: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    // A file may be deleted during the search.
    for path in fs::read_dir(folder).into_iter().flatten().map_while(Result::ok).map(|entry| entry.path()) {
        all.extend(if path.is_dir() { files(&path) } else { fs::read(path).unwrap_or_default() });
    }
    all
}

async fn execute(session: &Session, text: &str) {
    session.query_unpaged(text, ()).await.unwrap_or_else(|error| panic!("{text}: {error}"));
}

async fn tables(session: &Session, keyspace: &str) -> Vec<String> {
    let text = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
    let rows = session.query_unpaged(text, (keyspace,)).await.unwrap().into_rows_result().unwrap();
    rows.rows::<(String,)>().unwrap().map(|row| row.unwrap().0).collect()
}

/// Returns all blobs in the tables.
async fn stored(session: &Session, keyspace: &str) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for table in tables(session, keyspace).await {
        let rows = session.query_unpaged(format!("SELECT cell FROM {keyspace}.{table}"), ()).await.unwrap();
        for cell in rows.into_rows_result().unwrap().rows::<(Option<CqlValue>,)>().unwrap() {
            let Some(CqlValue::UserDefinedType { fields, .. }) = cell.unwrap().0 else { continue };
            all.extend(fields.into_iter().filter_map(|(_, value)| match value {
                Some(CqlValue::Blob(bytes)) => Some(bytes),
                _ => None,
            }));
        }
    }
    all
}

/// Checks repeatedly until nothing is left, since a node deletes unused files with a delay.
fn assert_disappears(what: &str, left: impl Fn() -> usize) {
    /// The number of attempts in a minute.
    const MAX_POLLS: u32 = 120;
    for _ in 0..MAX_POLLS {
        if left() == 0 {
            return;
        }
        sleep(Duration::from_millis(500));
    }
    panic!("{} pieces of erased content are still in {what}", left());
}

#[test]
fn erased_content_leaves_tables_when_compacted_and_the_commit_log_when_segments_are_deleted() {
    let (Some(home), Some(storage)) = (Home::archiving(), storage()) else { return };
    let (node, keyspace) = (home.stores.node(), home.stores.keyspace("data"));
    let (tables_of_store, log) = (storage.join("data").join(&keyspace), storage.join("commitlog"));
    // The import makes the tables. Then compression is turned off, so that texts can be found in the files, and
    // automatic compaction, so that no file is deleted before the search.
    home.import(&dump("Other", &[("90", "first"), ("91", "second")]));
    ask(node, async |session| {
        for table in tables(&session, &keyspace).await {
            execute(
                &session,
                &format!("ALTER TABLE {keyspace}.{table} WITH compression = {{'enabled': false}}"),
            )
            .await;
        }
    });
    if nodetool(&["disableautocompaction", &keyspace]).is_none() {
        return;
    }

    let mut texts: Vec<String> =
        LENGTHS.iter().zip(1..).map(|(length, seed)| letters(seed, *length)).collect();
    // This revision is not erased, and is sealed in the same blocks.
    let stays = letters(100, 20_000);
    let revisions: Vec<_> = ["1", "2", "3", "4"].into_iter().zip(texts.iter().map(String::as_str)).collect();
    home.import(&dump("A", &[&revisions[..], &[("5", stays.as_str()), ("6", "last")]].concat()));
    let (server, address) = home.serve(&[]);
    let html = letters(200, 12_000);
    let post_html = |page: &str, html: &str| {
        let written = post(&address, &format!("/v1/wiki/page/{page}"), &format!("html={html}"));
        assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    };
    post_html("A?rev/2/", &html);
    texts.push(html);
    let mut pieces = PieceSet::new();
    let look = |pieces: &mut PieceSet| {
        let all = ask(node, async |session| stored(&session, &keyspace).await);
        all.iter().for_each(|bytes| pieces.add(bytes));
    };
    look(&mut pieces);
    // Other tests fill the commit log too, so a segment may be deleted before it is read. So several texts are tried.
    let mut is_logged = |seed: &u64| {
        post_html("Other?rev/91/", &letters(*seed, 12_000));
        look(&mut pieces);
        pieces.found_in(&files(&log)).len() > MIN_LOGGED_PIECES
    };
    assert!((300..300 + LOG_ATTEMPTS).any(|seed| is_logged(&seed)), "no new text is in the commit log");
    server.stop().ends_with(0);
    let assert_found = |pieces: &PieceSet, folder: &Path| {
        let found = pieces.found_in(&files(folder)).len();
        assert!(found > MIN_FOUND_PIECES, "only {found} pieces of the texts are in {}", folder.display());
    };
    home.seal().ends_with(0).stdout_contains(&["wiki: sealed 6 revisions"]);
    look(&mut pieces);
    home.import(&dump("A", &[("7", "more"), ("8", "the last of all")]));
    home.seal().ends_with(0).stdout_contains(&["wiki: sealed 2 revisions"]);
    home.run(&["archive", "merge"]).ends_with(0).stdout_contains(&["merged 2 parts"]);
    look(&mut pieces);
    nodetool(&["flush", &keyspace]);
    assert_found(&pieces, &tables_of_store);

    home.pass_late_writes();
    let erase = ["archive", "erase", "--trust-clock", "--domain", "wiki", "--title", "A"];
    let revs = ["--rev", "1", "--rev", "2", "--rev", "3", "--rev", "4"];
    home.run(&[&erase[..], &revs].concat())
        .ends_with(0)
        .stdout_contains(&["the nodes' files hold the content until a compaction removes it"]);
    let mut erased = PieceSet::new();
    texts.iter().for_each(|text| erased.add(text.as_bytes()));
    let in_tables: Vec<u8> = ask(node, async |session| stored(&session, &keyspace).await).concat();
    assert_eq!(erased.found_in(&in_tables).len(), 0, "reads return erased content");
    // Some pieces remain: those of the content that stays. They are far fewer, since the old blocks are gone.
    let current = pieces.found_in(&in_tables);
    assert!((1..MIN_FOUND_PIECES / 2).contains(&current.len()), "{} pieces are in the tables", current.len());
    let left = |folder: &Path| {
        let found = files(folder);
        pieces.found_in(&found).difference(&current).count() + erased.found_in(&found).len()
    };
    nodetool(&["flush", &keyspace]);
    assert!(left(&tables_of_store) > MIN_FOUND_PIECES, "erased content left the files before compaction");
    nodetool(&["compact", &keyspace]);
    assert_disappears("the tables", || left(&tables_of_store));
    home.run(&["verify"]).ends_with(0).stdout_contains(&["sound: 2 pages, 10 revisions"]);

    // A segment of the commit log is deleted when it is full and all of its data is in the tables.
    let filler = home.stores.keyspace("filler");
    ask(node, async |session| {
        let replicas = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        execute(&session, &format!("CREATE KEYSPACE {filler} WITH replication = {replicas}")).await;
        execute(&session, &format!("CREATE TABLE {filler}.bytes (id int PRIMARY KEY, bytes blob)")).await;
        let text = format!("INSERT INTO {filler}.bytes (id, bytes) VALUES (?, ?)");
        for id in 0..FILLING_ROWS {
            session.query_unpaged(text.as_str(), (id as i32, vec![0_u8; FILLING_BYTES])).await.unwrap();
        }
    });
    nodetool(&["flush"]);
    assert_disappears("the commit log", || left(&log));
    for other in ["data/system", "hints", "saved_caches", "cdc"] {
        assert_eq!(left(&storage.join(other)), 0, "{other}");
    }
}
