//! `rashomon archive`: sealed revisions are read as before, by every command and over HTTP, and erased
//! revisions are not read at all.

use serde_json::Value;

use crate::{
    home::Home,
    http::{get, request},
    process::run,
    test_stores::{ALONE, ERASED},
    wiki::{dump, pages},
};

/// Returns the answer for a URL, with its headers except those that differ in every answer.
fn read(address: &str, target: &str) -> String {
    without_varying_headers(target, &get(address, target))
}

fn without_varying_headers(target: &str, answer: &str) -> String {
    let status = answer.split(' ').nth(1).unwrap_or_default();
    assert!(matches!(status, "200" | "302"), "{target}: {answer}");
    let varying = ["date:", "x-request-id:"];
    let kept =
        answer.lines().filter(|line| !varying.iter().any(|name| line.to_lowercase().starts_with(name)));
    kept.collect::<Vec<_>>().join("\n")
}

/// Reads a page in every way: its lists, and its revisions by number, by tid and by time.
fn read_every_way(address: &str, page: &str) -> Vec<String> {
    let list = get(address, &format!("{page}?rev/"));
    let list: Value = serde_json::from_str(list.split_once("\r\n\r\n").unwrap().1).unwrap();
    let renders = list["revisions"].as_array().unwrap();
    let by_tid = renders.iter().map(|render| format!("?rev/{}/wikitext", render["tid"].as_str().unwrap()));
    let by_tid: Vec<String> = by_tid.collect();
    let head_answers = by_tid.clone().into_iter().map(|target| {
        let target = format!("{page}{target}");
        without_varying_headers(&target, &request(address, "HEAD", &target, "Accept-Encoding: zstd\r\n"))
    });
    let others = [
        "?rev/",
        "?rev/3",
        "?rev/3/",
        "?rev/3/wikitext",
        "?rev/2020-01-01T00:00:10Z/wikitext",
        "?rev/latest/wikitext",
        "?timegate/wikitext",
        "?timemap/wikitext",
    ];
    let targets = others.map(str::to_owned).into_iter().chain(by_tid);
    targets.map(|target| read(address, &format!("{page}{target}"))).chain(head_answers).collect()
}

/// The dump of a page of thirty revisions. Each revision adds a line.
fn growing_page() -> String {
    let texts: Vec<(String, String)> =
        (1..=30).map(|rev| (rev.to_string(), format!("{}the end", "a line\n".repeat(rev)))).collect();
    let revisions: Vec<(&str, &str)> =
        texts.iter().map(|(rev, text)| (rev.as_str(), text.as_str())).collect();
    dump("A", &revisions)
}

#[test]
fn sealed_revisions_are_read_as_before() {
    let Some(home) = Home::archiving() else { return };
    home.write("dump.xml", &growing_page());
    home.write("pages.xml", &pages(20));
    let import = ["import", "--rows", "--domain", "wiki", "dump.xml", "pages.xml"];
    home.run(&import).ends_with(0);
    let export = ["export", "--domain", "wiki", "--history", "--format", "jsonl"];
    let before = home.run(&export).ends_with(0).stdout;
    let answers = |home: &Home| {
        let (server, address) = home.serve(&[]);
        let answers = read_every_way(&address, "/v1/wiki/page/A");
        server.stop().ends_with(0);
        answers
    };
    let read_before = answers(&home);
    let bodies = read_before.iter().filter(|answer| answer.contains("the end"));
    assert!(bodies.clone().count() >= 31, "{read_before:?}");
    assert!(bodies.clone().all(|answer| answer.to_lowercase().contains("\netag: ")), "{read_before:?}");
    // The first revisions are too short to be compressed.
    let compressed = read_before.iter().filter(|answer| answer.contains(";zstd\""));
    assert!(compressed.clone().count() >= 20, "{read_before:?}");
    assert!(compressed.clone().all(|answer| answer.contains("content-length: ")), "{read_before:?}");

    home.run(&["archive", "seal"]).ends_with(0).stdout_contains(&["wiki: sealed 0 revisions"]);
    let sealed = home.seal().ends_with(0);
    sealed.stdout_contains(&["wiki: sealed 29 revisions with 29 renders of 21 pages", "1 block"]);

    assert_eq!(home.run(&export).ends_with(0).stdout, before);
    assert_eq!(answers(&home), read_before);
    // Adds revisions, which are sealed into new blocks. The compaction does not change how they are read.
    let more = [("31", "something else"), ("32", "and more"), ("33", "and more of it")];
    home.write("more.xml", &dump("A", &more));
    home.run(&["import", "--rows", "--domain", "wiki", "more.xml"]).ends_with(0);
    home.seal().ends_with(0).stdout_contains(&["sealed 3 revisions"]);
    let before_compaction = home.run(&export).ends_with(0).stdout;
    let compaction = home.run(&["archive", "merge"]).ends_with(0);
    // Without other processes, only pages with blocks are looked at.
    let looked_at = if ALONE { "looked at 1 page," } else { "looked at 21 pages," };
    let merged = "and merged 2 parts of blocks with 32 revisions";
    let compaction = compaction.stdout_contains(&[looked_at, merged, "1 block"]);
    let deleted = ["deleted 2 blocks that no page references any more"];
    if ALONE {
        compaction.stdout_contains(&deleted);
    } else {
        home.run(&["archive", "verify"]).ends_with(0).stdout_contains(&["sound: 3 blocks"]);
        home.pass_late_writes();
        home.run(&["archive", "merge", "--trust-clock"])
            .ends_with(0)
            .stdout_contains(&["merged 0 parts"])
            .stdout_contains(&deleted);
    }
    assert_eq!(answers(&home).len(), read_before.len() + 6);
    assert_eq!(home.run(&export).ends_with(0).stdout, before_compaction);
    home.run(&["archive", "verify"]).ends_with(0).stdout_contains(&["sound: 1 block"]);
    home.run(&["verify"]).ends_with(0).stdout_contains(&["sound: 21 pages, 53 revisions", "1 block"]);
    // Repeated revisions are recognised.
    home.run(&import).ends_with(0).stdout_contains(&["0 stored"]);
    let stats = home.run(&["archive", "stats", "--json"]).ends_with(0);
    let stats: Value = serde_json::from_str(&stats.stdout).unwrap();
    let stats = &stats["wiki"]["page"];
    assert_eq!(stats["revisions"], 32, "{stats}");
    assert_eq!(stats["open_revisions"], 21, "{stats}");
    let wikitext = &stats["properties"]["wikitext"];
    assert_eq!((&wikitext["bodies"], &wikitext["blocks"]), (&32.into(), &1.into()), "{stats}");
    let records = stats["record_bytes"].as_u64().unwrap();
    assert_eq!(wikitext["stored_bytes"].as_u64().unwrap() + records, stats["block_bytes"], "{stats}");
    home.run(&["archive", "stats"]).ends_with(0).stdout_contains(&[
        "wiki/page: 32 revisions and 32 renders in 1 block",
        "wikitext: 32 times in 1 block, ",
        "records and checksums: ",
        "the goal for a wiki with a long history is 1.90 %",
    ]);
    home.run(&["archive", "seal", "--domain", "nowhere"])
        .ends_with(2)
        .stderr_contains(&["the store has no domain nowhere"]);
}

/// A history that is imported directly into blocks is exported and verified like one that was stored in rows.
#[test]
fn import_writes_directly_into_blocks() {
    let Some(home) = Home::archiving() else { return };
    let whole = growing_page();
    home.write("dump.xml", &whole);
    home.write("pages.xml", &pages(20));
    let files = ["--domain", "wiki", "dump.xml", "pages.xml"];
    let on_sqlite = |words: &[&str]| run(home.path(), &[words, &["--data", "rows"]].concat());
    on_sqlite(&[&["import", "--rows"], &files[..]].concat()).ends_with(0);
    let export = ["export", "--domain", "wiki", "--history", "--format", "jsonl"];
    let as_rows = on_sqlite(&export).ends_with(0).stdout;

    let import = [&["import", "--archive"], &files[..]].concat();
    home.run(&import).ends_with(0).stdout_contains(&["50 stored", "50 revisions in 2 blocks"]);
    assert_eq!(home.everything(), as_rows);
    home.run(&["verify"]).ends_with(0).stdout_contains(&["sound: 21 pages, 50 revisions", "2 blocks"]);
    home.run(&import).ends_with(0).stdout_contains(&["0 stored, 50 stored before"]);
    run(home.path(), &[&import[..], &["--to", "http://127.0.0.1:1"]].concat())
        .ends_with(2)
        .stderr_contains(&["--archive", "--to"]);
    // This dump ends within the page. All its complete revisions are stored, and the damage is reported.
    let cut = whole.replace("</page>", "").replace("</mediawiki>", "");
    home.write("cut.xml", &cut);
    home.run(&["import", "--archive", "--domain", "cut", "cut.xml"])
        .ends_with(1)
        .stdout_contains(&["30 stored"]);
    home.run(&["verify"]).ends_with(0).stdout_contains(&["sound: 22 pages, 80 revisions", "3 blocks"]);
}

/// An erasure does not change other revisions with the same content. The report names such revisions, and the
/// property that has the content, so that users can erase them too.
#[test]
fn other_revisions_with_erased_content_are_named() {
    let Some(home) = Home::archiving() else { return };
    home.write("dump.xml", &dump("A", &[("1", "one"), ("2", "two"), ("3", "one"), ("4", "four")]));
    home.run(&["import", "--rows", "--domain", "wiki", "dump.xml"]).ends_with(0);
    home.seal().ends_with(0);
    home.run(&["archive", "erase", "--domain", "wiki", "--title", "A", "--rev", "3"])
        .ends_with(0)
        .stdout_contains(&["the same bytes stay in wikitext of revision 1"]);
}

#[test]
fn erased_content_is_returned_by_no_read() {
    let Some(home) = Home::archiving() else { return };
    let revisions =
        [("1", "one"), ("2", "two"), ("3", "Mr Zwyxhorn, Qurmel Street 41"), ("4", "four"), ("5", "five")];
    home.write("dump.xml", &dump("A", &revisions));
    let import = ["import", "--rows", "--domain", "wiki", "dump.xml"];
    home.run(&import).ends_with(0);
    home.seal().ends_with(0).stdout_contains(&["sealed 4 revisions"]);
    let erase = ["archive", "erase", "--domain", "wiki", "--title", "A", "--by", "Bea", "--rev"];
    let erase = |rev| home.run(&[&erase[..], &[rev]].concat());
    erase("3").ends_with(0).stdout_contains(&["erased revision 3: 1 render and 1 body, 1 block rewritten"]);
    erase("3").ends_with(0).stdout_contains(&["erased revision 3, which had been erased before"]);
    let by_other = [
        "archive", "erase", "--domain", "wiki", "--title", "A", "--rev", "3", "--by", "Cid", "--reason",
        "asked",
    ];
    home.run(&by_other)
        .ends_with(0)
        .stdout_contains(&["--by and --reason were not changed: the revision was first erased "]);
    for by in ["two\nlines", "two\u{2028}lines", " "] {
        home.run(&["archive", "erase", "--domain", "wiki", "--title", "A", "--rev", "4", "--by", by])
            .ends_with(2)
            .stderr_contains(&["--by <NAME>"]);
    }
    erase("9").ends_with(2).stderr_contains(&["the page has no revision 9"]);
    for (domain, bucket, expected) in [
        ("wikis", "page", "the store has no domain wikis"),
        ("wiki", "pages", "the domain wiki has no bucket pages: its buckets of pages are page"),
    ] {
        let wrong = ["--domain", domain, "--bucket", bucket, "--title", "A", "--rev", "4"];
        home.run(&[&["archive", "erase"], &wrong[..]].concat()).ends_with(2).stderr_contains(&[expected]);
    }
    let several = ["archive", "erase", "--domain", "wiki", "--title", "A", "--rev", "4", "--rev", "9"];
    home.run(&several).ends_with(2).stderr_contains(&["the page has no revision 9"]);
    home.run(&["archive", "erase", "--status"])
        .ends_with(0)
        .stdout_contains(&["wiki: revision 3 of A, ", &format!(" by Bea: {ERASED}")]);
    home.run(&["verify"]).ends_with(0).stdout_contains(&["sound"]);

    let xml = home.run(&["export", "--domain", "wiki", "--history"]).ends_with(0).stdout;
    assert!(!xml.contains("Zwyxhorn") && xml.contains("deleted=\"deleted\" />"), "{xml}");
    let lines = home.run(&["export", "--domain", "wiki", "--history", "--format", "jsonl"]);
    home.write("lines.jsonl", &lines.ends_with(0).stdout);
    home.run(&import)
        .ends_with(3)
        .stderr_contains(&["revision 3 of A was left out: the revision was erased on "]);
    // A store that imports the export records the erasure, too.
    run(home.path(), &["import", "--rows", "--domain", "wiki", "lines.jsonl", "--data", "other"])
        .ends_with(0);
    let other = ["export", "--domain", "wiki", "--history", "--format", "jsonl", "--data", "other"];
    let lines = std::fs::read_to_string(home.path().join("lines.jsonl")).unwrap();
    assert_eq!(run(home.path(), &other).ends_with(0).stdout, lines);

    let (server, address) = home.serve(&[]);
    let answer = get(&address, "/v1/wiki/page/A?rev/3/wikitext");
    assert!(
        answer.starts_with("HTTP/1.1 410 ") && answer.contains("urn:rashomon:problem:erased"),
        "{answer}"
    );
    assert!(answer.contains("revision 3 was erased on 20"), "{answer}");
    let by_time = get(&address, "/v1/wiki/page/A?rev/2020-01-01T00:00:02Z/wikitext");
    assert!(by_time.starts_with("HTTP/1.1 410 "), "{by_time}");
    for target in ["/v1/wiki/page/A?rev/", "/v1/wiki/page/A?rev/3/"] {
        let answer = get(&address, target);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"by\":\"Bea\""), "{answer}");
    }
    let history = get(&address, "/pages/wiki/A");
    assert!(history.contains("erased <time") && history.contains("<bdi>Bea</bdi>"), "{history}");
    // On SQLite the erasure fails while a server has the store open. On a cluster, the servers learn of it.
    home.run(&["archive", "erase", "--domain", "wiki", "--title", "A", "--rev", "4"]).ends_with(if ALONE {
        1
    } else {
        0
    });
    let answer = get(&address, "/v1/wiki/page/A?rev/4/wikitext");
    assert_eq!(answer.starts_with("HTTP/1.1 410 "), !ALONE, "{answer}");
    server.stop().ends_with(0);
}
