//! `rashomon archive` is killed with SIGKILL many times. No readable revision is lost. Erased revisions stay
//! erased, or are erased when the same command is repeated.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    home::Home,
    kills::{Kills, kill_rounds},
    process::{rashomon, run},
};

/// The number of pages, and the number of revisions that each page gets in a round.
const PAGES: u64 = 12;
const REVISIONS_PER_ROUND: u64 = 4;

/// The text of a page's revision: most words of the previous revision, and some new words.
fn text(page: u64, rev: u64) -> String {
    let words = |from: u64, count: u64| {
        (from..from + count).map(|word| format!("w{:x}", word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40))
    };
    let common: Vec<_> = words(page * 1_000_000 + rev / 3, 400).collect();
    let own: Vec<_> = words((page * 1000 + rev) * 7_000_003, 20).collect();
    format!("{} {}", common.join(" "), own.join(" "))
}

/// A dump of all pages with their revisions of a round.
fn dump(round: u64) -> String {
    let mut pages = String::new();
    for page in 1..=PAGES {
        let mut revisions = String::new();
        for rev in round * REVISIONS_PER_ROUND + 1..=(round + 1) * REVISIONS_PER_ROUND {
            revisions.push_str(&format!(
                "<revision><id>{}</id><timestamp>2020-01-01T00:{:02}:{:02}Z</timestamp><contributor><username>Ann</username>\
                 </contributor><model>wikitext</model><format>text/x-wiki</format><text xml:space=\"preserve\">{}</text>\
                 </revision>",
                page * 10_000 + rev,
                rev / 60,
                rev % 60,
                text(page, rev)
            ));
        }
        pages.push_str(&format!("<page><title>P{page}</title><ns>0</ns><id>{page}</id>{revisions}</page>"));
    }
    format!(
        "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.11/\" version=\"0.11\" xml:lang=\"en\">{pages}</mediawiki>"
    )
}

/// The revisions of a whole export, each with its line and the lines of its renders.
fn revisions(export: &str) -> BTreeMap<u64, Vec<Value>> {
    let mut all: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    let mut last = 0;
    for line in export.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        match line["kind"].as_str() {
            Some("revision") => {
                last = line["rev"].as_u64().unwrap();
                all.entry(last).or_default().push(line);
            }
            Some("render") => all.entry(last).or_default().push(line),
            _ => {}
        }
    }
    all
}

#[test]
fn an_archive_survives_kills() {
    let Some(home) = Home::new() else { return };
    let on_sqlite = |words: &[&str]| run(home.path(), &[words, &["--data", "killed"]].concat());
    let mut kills = Kills::new(kill_rounds(4), 7);
    let mut model: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    let mut begun: BTreeSet<u64> = BTreeSet::new();
    while !kills.is_enough() {
        let round = kills.next_round();
        home.write("more.xml", &dump(round));
        on_sqlite(&["import", "--rows", "--domain", "wiki", "more.xml"]).ends_with(0);
        let export = ["export", "--domain", "wiki", "--history", "--format", "jsonl"];
        for (rev, lines) in revisions(&on_sqlite(&export).ends_with(0).stdout) {
            model.entry(rev).or_insert(lines);
        }
        let page = kills.random() % PAGES + 1;
        let number = kills.random() % ((round + 1) * REVISIONS_PER_ROUND) + 1;
        let (title, rev) = (format!("P{page}"), page * 10_000 + number);
        let erase = ["--title", &title, "--rev", &rev.to_string(), "--domain", "wiki"].map(str::to_owned);
        let command: Vec<String> = match round % 3 {
            0 => ["seal", "--after", "0s"].map(str::to_owned).to_vec(),
            1 => vec!["merge".to_owned()],
            _ => [&["erase".to_owned()], &erase[..]].concat(),
        };
        if round % 3 == 2 {
            begun.insert(rev);
        }
        // A compaction needs blocks that were sealed after the previous compaction.
        if round % 3 == 1 {
            on_sqlite(&["archive", "seal", "--after", "0s"]).ends_with(0);
        }
        let mut process = rashomon(home.path());
        process.arg("archive").args(&command).args(["--data", "killed"]);
        kills.kill(["seal", "merge", "erase"][(round % 3) as usize], &mut process);
        on_sqlite(&["verify"]);
        let found = revisions(&on_sqlite(&export).ends_with(0).stdout);
        assert_eq!(found.len(), model.len(), "round {round}: {command:?}");
        for (rev, lines) in &model {
            let is_erased = found[rev][0].get("erased").is_some();
            assert!(!is_erased || begun.contains(rev), "round {round}: {rev}");
            assert!(is_erased || found[rev] == *lines, "round {round} {command:?}: {rev}");
        }
        if round % 3 != 2 {
            on_sqlite(&["archive", "verify"]).ends_with(0).stdout_contains(&["sound"]);
        }
        // Repeating the command completes the erasure.
        let again: Vec<&str> = command.iter().map(String::as_str).collect();
        on_sqlite(&[&["archive"], &again[..]].concat()).ends_with(0);
        on_sqlite(&["verify"]).ends_with(0).stdout_contains(&["sound"]);
    }
    let found =
        revisions(&on_sqlite(&["export", "--domain", "wiki", "--history", "--format", "jsonl"]).stdout);
    for (rev, lines) in &model {
        assert_eq!(found[rev][0].get("erased").is_some(), begun.contains(rev), "{rev}");
        assert!(begun.contains(rev) || found[rev] == *lines, "{rev}");
    }
    on_sqlite(&["archive", "erase", "--status"]).ends_with(0).stdout_contains(&[": erased from all files"]);
}
