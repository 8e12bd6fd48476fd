//! `rashomon import` of files that are no exports, or have broken or misplaced parts.

use std::fs;

use tempfile::tempdir;

use crate::{home::Home, process::run, wiki::dump};

#[test]
fn wrong_file_creates_no_store_and_is_named_with_what_to_do() {
    let directory = tempdir().unwrap();
    let tar = [&[b'a'; 257][..], b"ustar\0", &[0; 300]].concat();
    for (content, words) in [
        (&b"PK\x03\x04\x14\0\0\0"[..], "ZIP archive"),
        (&tar, "tar archive"),
        (b"-- MySQL dump 10.13\nCREATE TABLE page (x int);\n", "SQL dump"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>", "web page"),
        (b"just words\n", "neither XML nor JSON lines"),
        (b"", "empty"),
    ] {
        fs::write(directory.path().join("input"), content).unwrap();
        let ran = run(directory.path(), &["import", "--data", "data", "--domain", "wiki", "input"]);
        let ran = ran.ends_with(1).stderr_contains(&["error: input: ", words]);
        assert_eq!(ran.stdout, "", "{words}");
        assert!(!directory.path().join("data").exists(), "{words}");
    }
}

#[test]
fn broken_page_is_skipped_and_named_only_on_request() {
    let Some(home) = Home::new() else { return };
    let page = |title: &str, rev: u8| {
        let whole = dump(title, &[(&rev.to_string(), title)]);
        let begin = whole.find("<page>").unwrap();
        let end = whole.find("</page>").unwrap();
        whole[begin..end].to_owned()
    };
    let input = format!(
        "<mediawiki>\n{}</page>\n{}\n{}</page>\n</mediawiki>\n",
        page("A", 1),
        page("B", 2),
        page("C", 3)
    );
    let line = input.lines().position(|line| line.contains("<title>B<")).unwrap();
    let begun = format!("page \"B\" that begins in line {line}");
    home.import_file(&input).ends_with(1).stderr_contains(&[&begun, "--skip-broken", "\"C\" begins within"]);
    assert!(home.everything().contains("\"A\"") && !home.everything().contains("\"C\""));
    let ran = home.run(&["import", "--skip-broken", "--json", "--domain", "wiki", "dump.xml"]).ends_with(3);
    ran.stderr_contains(&[&format!("dump.xml, line {line}: page B is broken, and skipped from line")])
        .stdout_contains(&["\"broken\": 1", "\"first_broken\"", "\"unchanged\": 2", "\"created\": 1"]);
    assert!(home.everything().contains("\"C\""));
}

#[test]
fn control_characters_of_a_file_do_not_reach_the_terminal() {
    let Some(home) = Home::new() else { return };
    let input = "{\"kind\":\"siteinfo\",\"version\":1}\n\
                 {\"kind\":\"page\",\"title\":\"A\\u001b[31mRED\\u0007\\n\\u009b2J\"}\n\
                 {\"kind\":\"revision\",\"rev\":1,\"timestamp\":\"2012-03-04T05:06:07Z\"}\n\
                 {\"kind\":\"page\",\"title\":\"B\\u202e\"}\n\
                 {\"kind\":\"revision\",\"rev\":1}\n\
                 {\"kind\":\"end\",\"pages\":2,\"revisions\":2,\"renders\":0}\n";
    home.import_file(input)
        .ends_with(3)
        .stderr_contains(&["A\\u{1b}[31mRED\\u{7}\\n\\u{9b}2J was left out", "of B\\u{202e} was left out"]);
}
