//! `rashomon archive`: what is sealed is read as before, by every command and over HTTP.

use serde_json::Value;
use tempfile::tempdir;

use crate::{
    home::Home,
    http::get,
    process::run,
    wiki::{dump, pages},
};

/// What a reader gets of an address, with its ETag, but for the header fields that tell one answer from another.
fn read(address: &str, target: &str) -> String {
    let answer = get(address, target);
    let status = answer.split(' ').nth(1).unwrap_or_default();
    assert!(matches!(status, "200" | "302"), "{target}: {answer}");
    let own = ["date:", "x-request-id:"];
    let told = answer.lines().filter(|line| !own.iter().any(|name| line.to_lowercase().starts_with(name)));
    told.collect::<Vec<_>>().join("\n")
}

/// Every way in which a page is asked for: by its lists, by number, by tid, by time.
fn read_every_way(address: &str, page: &str) -> Vec<String> {
    let list = get(address, &format!("{page}?rev/"));
    let list: Value = serde_json::from_str(list.split_once("\r\n\r\n").unwrap().1).unwrap();
    let renders = list["revisions"].as_array().unwrap();
    let by_tid = renders.iter().map(|render| format!("?rev/{}/wikitext", render["tid"].as_str().unwrap()));
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
    targets.map(|target| read(address, &format!("{page}{target}"))).collect()
}

/// These are about a file: of a cluster every server has to know of its archive first.
fn on_a_file(home: &Home, words: &[&str]) -> crate::process::Ran {
    run(home.path(), &[words, &["--data", "archived"]].concat())
}

#[test]
fn what_is_sealed_is_read_as_before() {
    let Some(home) = Home::new() else { return };
    let texts: Vec<(String, String)> =
        (1..=30).map(|rev| (rev.to_string(), format!("{}the end", "a line\n".repeat(rev)))).collect();
    let revisions: Vec<(&str, &str)> =
        texts.iter().map(|(rev, text)| (rev.as_str(), text.as_str())).collect();
    home.write("dump.xml", &dump("A", &revisions));
    home.write("pages.xml", &pages(20));
    let import = ["import", "--domain", "wiki", "dump.xml", "pages.xml"];
    on_a_file(&home, &import).ends_with(0);
    let export = ["export", "--domain", "wiki", "--history", "--format", "jsonl"];
    let before = on_a_file(&home, &export).ends_with(0).stdout;
    let answers = |home: &Home| {
        let mut command = crate::process::rashomon(home.path());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data", "archived"]);
        let mut server = crate::process::Running::start(&mut command);
        let line = server.line();
        let address =
            line.split("http://").nth(1).and_then(|rest| rest.split(',').next()).unwrap().to_owned();
        let answers = read_every_way(&address, "/v1/wiki/page/A");
        server.stop().ends_with(0);
        answers
    };
    let read_before = answers(&home);
    let bodies = read_before.iter().filter(|answer| answer.contains("the end"));
    assert!(bodies.clone().count() >= 31, "{read_before:?}");
    assert!(bodies.clone().all(|answer| answer.to_lowercase().contains("\netag: ")), "{read_before:?}");

    on_a_file(&home, &["archive", "seal"]).ends_with(0).prints(&["wiki: sealed 0 revisions"]);
    let sealed = on_a_file(&home, &["archive", "seal", "--after", "0s"]).ends_with(0);
    sealed.prints(&["wiki: sealed 29 revisions with 29 renders of 21 pages", "1 block"]);

    assert_eq!(on_a_file(&home, &export).ends_with(0).stdout, before);
    assert_eq!(answers(&home), read_before);
    // More of it, in blocks of its own: merged, it is read as before.
    let more = [("31", "something else"), ("32", "and more"), ("33", "and more of it")];
    home.write("more.xml", &dump("A", &more));
    on_a_file(&home, &["import", "--domain", "wiki", "more.xml"]).ends_with(0);
    on_a_file(&home, &["archive", "seal", "--after", "0s"]).ends_with(0).prints(&["sealed 3 revisions"]);
    let unmerged = on_a_file(&home, &export).ends_with(0).stdout;
    on_a_file(&home, &["archive", "merge"])
        .ends_with(0)
        .prints(&["looked at 21 pages, and merged 2 parts of blocks with 32 revisions", "1 block"])
        .prints(&["deleted 2 blocks that nobody needs any more"]);
    assert_eq!(on_a_file(&home, &export).ends_with(0).stdout, unmerged);
    on_a_file(&home, &["archive", "verify"]).ends_with(0).prints(&["sound: 1 block"]);
    on_a_file(&home, &["verify"]).ends_with(0).prints(&["sound: 21 pages, 53 revisions", "1 block"]);
    // What comes again is known.
    on_a_file(&home, &import).ends_with(0).prints(&["0 stored"]);
    let stats = on_a_file(&home, &["archive", "stats", "--json"]).ends_with(0);
    let stats: Value = serde_json::from_str(&stats.stdout).unwrap();
    let stats = &stats["wiki"]["page"];
    assert_eq!(stats["revisions"], 32, "{stats}");
    assert_eq!(stats["open_revisions"], 21, "{stats}");
    let wikitext = &stats["properties"]["wikitext"];
    assert_eq!((&wikitext["bodies"], &wikitext["blocks"]), (&32.into(), &1.into()), "{stats}");
    let records = stats["record_bytes"].as_u64().unwrap();
    assert_eq!(wikitext["stored_bytes"].as_u64().unwrap() + records, stats["block_bytes"], "{stats}");
    on_a_file(&home, &["archive", "stats"]).ends_with(0).prints(&[
        "wiki/page: 32 revisions and 32 renders in 1 block",
        "wikitext: 32 times in 1 block, ",
        "records and checksums: ",
        "the goal for a wiki with a long history is 1.90 %",
    ]);
    on_a_file(&home, &["archive", "seal", "--domain", "nowhere"])
        .ends_with(2)
        .tells(&["nothing of the domain nowhere"]);
}

/// A history that goes into blocks as it comes is exported and verified as one that came as rows.
#[test]
fn an_import_goes_straight_into_blocks() {
    let Some(home) = Home::new() else { return };
    let texts: Vec<(String, String)> =
        (1..=30).map(|rev| (rev.to_string(), format!("{}the end", "a line\n".repeat(rev)))).collect();
    let revisions: Vec<(&str, &str)> =
        texts.iter().map(|(rev, text)| (rev.as_str(), text.as_str())).collect();
    let whole = dump("A", &revisions);
    home.write("dump.xml", &whole);
    home.write("pages.xml", &pages(20));
    let export = ["export", "--domain", "wiki", "--history", "--format", "jsonl"];
    on_a_file(&home, &["import", "--domain", "wiki", "dump.xml", "pages.xml"]).ends_with(0);
    let as_rows = on_a_file(&home, &export).ends_with(0).stdout;

    let straight = |words: &[&str]| run(home.path(), &[words, &["--data", "straight"]].concat());
    let import = ["import", "--archive", "--domain", "wiki", "dump.xml", "pages.xml"];
    straight(&import).ends_with(0).prints(&["50 stored", "29 revisions in 1 block"]);
    assert_eq!(straight(&export).ends_with(0).stdout, as_rows);
    straight(&["verify"]).ends_with(0).prints(&["sound: 21 pages, 50 revisions", "1 block"]);
    straight(&import).ends_with(0).prints(&["0 stored, 50 stood so already"]);
    straight(&["import", "--archive", "--to", "http://127.0.0.1:1", "--domain", "wiki", "dump.xml"])
        .ends_with(2)
        .tells(&["--archive", "--to"]);
    // The first page is read from its first block on, and the damage is told.
    let cut = whole.replace("</page>", "").replace("</mediawiki>", "");
    home.write("cut.xml", &cut);
    let cut_off = |words: &[&str]| run(home.path(), &[words, &["--data", "cut"]].concat());
    cut_off(&["import", "--archive", "--domain", "wiki", "cut.xml"]).ends_with(1).prints(&["30 stored"]);
    cut_off(&["verify"]).ends_with(0).prints(&["sound: 1 page, 30 revisions"]);
}

#[test]
fn what_is_erased_is_given_to_nobody() {
    let Some(home) = Home::new() else { return };
    let revisions =
        [("1", "one"), ("2", "two"), ("3", "Mr Zwyxhorn, Qurmel Street 41"), ("4", "four"), ("5", "five")];
    home.write("dump.xml", &dump("A", &revisions));
    let import = ["import", "--domain", "wiki", "dump.xml"];
    on_a_file(&home, &import).ends_with(0);
    on_a_file(&home, &["archive", "seal", "--after", "0s"]).ends_with(0).prints(&["sealed 4 revisions"]);
    let erase = ["archive", "erase", "--domain", "wiki", "--title", "A", "--by", "Bea", "--rev"];
    let erase = |rev| on_a_file(&home, &[&erase[..], &[rev]].concat());
    erase("3").ends_with(0).prints(&["erased revision 3: 1 render and 1 body, 1 block made anew"]);
    erase("3").ends_with(0).prints(&["erased revision 3, which had been erased before"]);
    erase("9").ends_with(2).tells(&["the page has no revision 9"]);
    let several = ["archive", "erase", "--domain", "wiki", "--title", "A", "--rev", "4", "--rev", "9"];
    on_a_file(&home, &several).ends_with(2).tells(&["the page has no revision 9"]);
    on_a_file(&home, &["archive", "erase", "--status"])
        .ends_with(0)
        .prints(&["wiki: revision 3 of A, ", " by Bea: gone"]);
    on_a_file(&home, &["verify"]).ends_with(0).prints(&["sound"]);

    let xml = on_a_file(&home, &["export", "--domain", "wiki", "--history"]).ends_with(0).stdout;
    assert!(!xml.contains("Zwyxhorn") && xml.contains("deleted=\"deleted\" />"), "{xml}");
    let lines = on_a_file(&home, &["export", "--domain", "wiki", "--history", "--format", "jsonl"]);
    home.write("lines.jsonl", &lines.ends_with(0).stdout);
    on_a_file(&home, &import).ends_with(3).tells(&["revision 3 of A was left out: it was erased on "]);
    // Whoever takes the export knows that it was erased, too.
    run(home.path(), &["import", "--domain", "wiki", "lines.jsonl", "--data", "other"]).ends_with(0);
    let other = ["export", "--domain", "wiki", "--history", "--format", "jsonl", "--data", "other"];
    let lines = std::fs::read_to_string(home.path().join("lines.jsonl")).unwrap();
    assert_eq!(run(home.path(), &other).ends_with(0).stdout, lines);

    let mut command = crate::process::rashomon(home.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data", "archived"]);
    let mut server = crate::process::Running::start(&mut command);
    let line = server.line();
    let address = line.split("http://").nth(1).and_then(|rest| rest.split(',').next()).unwrap().to_owned();
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
    on_a_file(&home, &["archive", "erase", "--domain", "wiki", "--title", "A", "--rev", "4"]).ends_with(1);
    server.stop().ends_with(0);
}

#[test]
fn settings_that_contradict_the_archive_are_told() {
    let directory = tempdir().unwrap();
    let check = |text: &str| {
        std::fs::write(directory.path().join("c.toml"), text).unwrap();
        run(directory.path(), &["check-config", "c.toml"])
    };
    check("[archive]\n")
        .ends_with(0)
        .prints(&["[archive]\nenabled = true\npolicy = \"every\"\nafter = \"24h\""]);
    check("[archive]\npolicy = { interval = \"1d\" }\n")
        .ends_with(0)
        .prints(&["[archive.policy]\ninterval = \"24h\""]);
    check("[archive]\npolicy = \"first-render\"\n").ends_with(0).prints(&["policy = \"first-render\""]);
    check("[archive]\npolicy = \"last\"\n").ends_with(2).tells(&["first-render"]);
    check("").ends_with(0).prints(&["[archive]\nenabled = false"]);
    check("[retention]\ngrace = \"48h\"\n[archive]\n").ends_with(0).prints(&["after = \"48h\""]);
    check("[archive]\nafter = \"1m\"\n").ends_with(2).tells(&["raise it to at least 1h"]);
    check("[archive]\nevery = \"0s\"\n").ends_with(2).tells(&["between two looks"]);
    check("[retention]\nstrategy = \"two-table\"\n[archive]\n")
        .ends_with(2)
        .tells(&["strategy = \"app-ttl\""]);
    std::fs::write(directory.path().join("r.toml"), "[retention]\n").unwrap();
    let cluster = ["--store", "cassandra://127.0.0.1:1/wiki"];
    run(directory.path(), &[&["archive", "seal"], &cluster[..]].concat())
        .ends_with(2)
        .tells(&["into the configuration of every server"]);
    run(directory.path(), &["archive", "seal", "--config", "r.toml"])
        .ends_with(2)
        .tells(&["so that it is sealed instead"]);
    std::fs::write(directory.path().join("a.toml"), "[archive]\n").unwrap();
    run(directory.path(), &["retention", "--now", "--config", "a.toml"])
        .ends_with(2)
        .tells(&["nothing is deleted"]);
}
