//! What was erased leaves the files of a node, as docs/erasing.md tells those who run one.

use std::{fs, path::Path, thread::sleep, time::Duration};

use scylla::{client::session::Session, value::CqlValue};

use crate::{
    home::Home,
    http::post,
    kept::{ask, nodetool, storage},
    wanted::{Wanted, letters},
    wiki::dump,
};

/// The texts of the revisions that are erased: small ones, and one in chunks.
const LENGTHS: [usize; 4] = [9_000, 700, 1_300_000, 30_000];

/// So many pieces of them are found, where they are looked for in the right way.
const MANY: usize = 10_000;

/// Of one that was just written some are in the commit log, if it is looked at soon enough: sooner or later it is.
const FEW: usize = 100;
const LOOKS_AT_LOG: u64 = 8;

/// More than one segment of the node's commit log.
const FILLING: usize = 5;
const FILLING_BYTES: usize = 8 << 20;

/// The bytes of all files below a folder, one after the other.
fn files(folder: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    // A file may go while it is looked for.
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

/// All values of bytes that stand in the tables.
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

/// Looks until nothing is left: a node deletes its files a moment after it has no use for them.
fn assert_goes(what: &str, left: impl Fn() -> usize) {
    const LOOKS: u32 = 60;
    for _ in 0..LOOKS {
        if left() == 0 {
            return;
        }
        sleep(Duration::from_millis(500));
    }
    panic!("{} pieces are in {what}", left());
}

#[test]
fn what_was_erased_goes_from_a_nodes_tables_when_they_are_compacted_and_from_its_commit_log_by_segments() {
    let (Some(home), Some(storage)) = (Home::archiving(), storage()) else { return };
    let (node, keyspace) = (home.kept.node(), home.kept.keyspace("data"));
    let (tables_of_store, log) = (storage.join("data").join(&keyspace), storage.join("commitlog"));
    // Bytes are to be found as they are stored, and no file is to go before its time.
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
    // Nobody erases this one, and it is made into the same blocks.
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
    let mut wanted = Wanted::new();
    let look = |wanted: &mut Wanted| {
        let all = ask(node, async |session| stored(&session, &keyspace).await);
        all.iter().for_each(|bytes| wanted.add(bytes));
    };
    look(&mut wanted);
    // Whoever writes beside us may fill the segment at any moment, and then it may go.
    let mut is_logged = |seed: &u64| {
        post_html("Other?rev/91/", &letters(*seed, 12_000));
        look(&mut wanted);
        wanted.found_in(&files(&log)).len() > FEW
    };
    assert!((300..300 + LOOKS_AT_LOG).any(|seed| is_logged(&seed)), "it is looked for where it is logged");
    server.stop().ends_with(0);
    let assert_found = |wanted: &Wanted, folder: &Path| {
        let found = wanted.found_in(&files(folder)).len();
        assert!(found > MANY, "they are looked for where they are: {found} in {}", folder.display());
    };
    home.seal().ends_with(0).prints(&["wiki: sealed 6 revisions"]);
    look(&mut wanted);
    home.import(&dump("A", &[("7", "more"), ("8", "the last of all")]));
    home.seal().ends_with(0).prints(&["wiki: sealed 2 revisions"]);
    home.run(&["archive", "merge"]).ends_with(0).prints(&["merged 2 parts"]);
    look(&mut wanted);
    nodetool(&["flush", &keyspace]);
    assert_found(&wanted, &tables_of_store);

    home.pass_late_writes();
    let erase = ["archive", "erase", "--domain", "wiki", "--title", "A"];
    let revs = ["--rev", "1", "--rev", "2", "--rev", "3", "--rev", "4"];
    home.run(&[&erase[..], &revs].concat())
        .ends_with(0)
        .prints(&["the nodes' files have it until they are compacted"]);
    let mut erased = Wanted::new();
    texts.iter().for_each(|text| erased.add(text.as_bytes()));
    let standing: Vec<u8> = ask(node, async |session| stored(&session, &keyspace).await).concat();
    assert_eq!(erased.found_in(&standing).len(), 0, "nobody is given it");
    // Of what stands some was there before, but no block that had it.
    let stands = wanted.found_in(&standing);
    assert!((1..MANY / 2).contains(&stands.len()), "{} pieces stand", stands.len());
    let left = |folder: &Path| {
        let found = files(folder);
        wanted.found_in(&found).difference(&stands).count() + erased.found_in(&found).len()
    };
    nodetool(&["flush", &keyspace]);
    assert!(left(&tables_of_store) > MANY, "the node has it still");
    nodetool(&["compact", &keyspace]);
    assert_goes("the tables", || left(&tables_of_store));
    home.run(&["verify"]).ends_with(0).prints(&["sound: 2 pages, 10 revisions"]);

    // A segment of the log goes when it is full, and all that it has is in the tables.
    let filler = home.kept.keyspace("filler");
    ask(node, async |session| {
        let replicas = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        execute(&session, &format!("CREATE KEYSPACE {filler} WITH replication = {replicas}")).await;
        execute(&session, &format!("CREATE TABLE {filler}.bytes (id int PRIMARY KEY, bytes blob)")).await;
        let text = format!("INSERT INTO {filler}.bytes (id, bytes) VALUES (?, ?)");
        for id in 0..FILLING {
            session.query_unpaged(text.as_str(), (id as i32, vec![0_u8; FILLING_BYTES])).await.unwrap();
        }
    });
    nodetool(&["flush"]);
    assert_goes("the commit log", || left(&log));
    for other in ["data/system", "hints", "saved_caches", "cdc"] {
        assert_eq!(left(&storage.join(other)), 0, "{other}");
    }
}
