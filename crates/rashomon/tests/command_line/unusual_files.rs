//! `rashomon import` of files that are no exports, or have broken or misplaced parts.

use std::{fs, io::Write as _, path::Path, process::Stdio};

use rashomon_pages::is_unsafe_to_show;
use tempfile::tempdir;

use crate::{
    home::Home,
    process::{ProcessOutput, RunningProcess, rashomon, run},
    wiki::dump,
};

/// Runs an import with this content as standard input.
fn import_stream(directory: &Path, arguments: &[&str], content: &[u8]) -> ProcessOutput {
    let mut command = rashomon(directory);
    command.args(["import", "--domain", "wiki"]).args(arguments).stdin(Stdio::piped());
    let mut import = RunningProcess::start(&mut command);
    // An import that refuses the content does not read all of it.
    let _ = import.stdin().write_all(content);
    import.wait()
}

#[test]
fn wrong_file_creates_no_store_and_is_named_with_what_to_do() {
    let directory = tempdir().unwrap();
    let directory = directory.path();
    let tar = [&[b'a'; 257][..], b"ustar\0", &[0; 300]].concat();
    let no_entries = "no line of an export of entries";
    for (content, of_page, of_entries) in [
        (&b"PK\x03\x04\x14\0\0\0"[..], "ZIP archive", "ZIP archive"),
        (&tar, "tar archive", "tar archive"),
        (b"-- MySQL dump 10.13\nCREATE TABLE page (x int);\n", "SQL dump", "SQL dump"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>\n", "web page", no_entries),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "neither XML nor JSON lines", no_entries),
        (b"just words\n", "neither XML nor JSON lines", no_entries),
        (b"{\"batchcomplete\": \"\"}\n", "line 1", no_entries),
        (b"<?xml version=\"1.0\"?>\n", "no element", no_entries),
        (b"\x1f\x8b\x08\0", "incomplete", "truncated"),
        (b"7z\xbc\xaf\x27\x1c\0\x04", "incomplete", "truncated"),
        (b"", "empty", "empty"),
    ] {
        fs::write(directory.join("input"), content).unwrap();
        for (bucket, words) in [("page", of_page), ("other", of_entries)] {
            let arguments = ["--data", "data", "--bucket", bucket];
            let from_file = [&["import", "--domain", "wiki"][..], &arguments, &["input"]].concat();
            let ran = run(directory, &from_file);
            let ran = ran.ends_with(1).stderr_contains(&["error: input: ", words]);
            assert_eq!(ran.stdout, "", "{words}");
            for (name, shown) in [("-", "standard input"), ("/dev/stdin", "/dev/stdin")] {
                let ran = import_stream(directory, &[&arguments[..], &[name]].concat(), content).ends_with(1);
                let ran = ran.stderr_contains(&[&format!("error: {shown}: "), words]);
                assert_eq!(ran.stdout, "", "{words}");
            }
            assert!(!directory.join("data").exists(), "{words}");
        }
    }
    // In a store that exists, it is not known before whether the bucket has pages or entries.
    fs::write(directory.join("good.xml"), dump("Page", &[("1", "one")])).unwrap();
    run(directory, &["import", "--data", "there", "--domain", "wiki", "good.xml"]).ends_with(0);
    let of_other = ["--data", "there", "--bucket", "other", "-"];
    for content in [&b"just words\n"[..], dump("Page", &[("1", "one")]).as_bytes()] {
        let ran = import_stream(directory, &of_other, content).ends_with(1);
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn stream_whose_beginning_was_checked_is_imported_as_a_whole() {
    let directory = tempdir().unwrap();
    let directory = directory.path();
    let revisions: Vec<_> = (1..=40).map(|rev: u32| (rev.to_string(), "word ".repeat(10_000))).collect();
    let revisions: Vec<_> = revisions.iter().map(|(rev, text)| (&**rev, &**text)).collect();
    let whole = dump("Page", &revisions);
    let packed = zstd::encode_all(whole.as_bytes(), 1).unwrap();
    let archive =
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../dumps/tests/fixtures/several-files.7z"));
    for (name, content, stored) in [
        ("plain", whole.as_bytes(), "40 stored"),
        ("packed", &packed, "40 stored"),
        ("archive", &archive.unwrap(), "3 stored"),
    ] {
        let ran = import_stream(directory, &["--data", name, "-"], content).ends_with(0);
        ran.stdout_contains(&[stored]);
    }
    let export = ["export", "--domain", "wiki", "--history", "--data"];
    let export = |data| run(directory, &[&export[..], &[data]].concat()).ends_with(0).stdout;
    assert!(export("plain") == export("packed") && export("plain").len() > whole.len() / 2);
    let entries = "{\"bucket\":{\"name\":\"x\",\"version\":1,\"definition\":{\"type\":\"counter\"}}}\n\
                   {\"counter\":{\"key\":\"a\",\"value\":7}}\n{\"end\":{\"entries\":1}}\n";
    let arguments = ["--data", "entries", "--bucket", "clicks", "-"];
    import_stream(directory, &arguments, entries.as_bytes()).ends_with(0).stdout_contains(&["1 stored"]);
}

#[test]
fn configuration_from_a_pipe_is_read_once() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("dump.xml"), dump("Page", &[("1", "one")])).unwrap();
    for archive in [&[][..], &["--archive"]] {
        let arguments = [&["--config", "/dev/stdin", "dump.xml"][..], archive].concat();
        let configuration = format!("store = 'sqlite:elsewhere{}'\n", archive.len());
        import_stream(directory.path(), &arguments, configuration.as_bytes()).ends_with(0);
        assert!(directory.path().join(format!("elsewhere{}", archive.len())).exists());
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

#[test]
fn control_characters_of_an_argument_do_not_reach_the_terminal() {
    let directory = tempdir().unwrap();
    let option = "--a\u{202e}b\u{1b}[31mc\u{9b}2J";
    for arguments in [&["import", option][..], &["a\u{202e}b"], &["serve", "--cache-size", "a\u{202e}b"]] {
        let ran = run(directory.path(), arguments).ends_with(2).stderr_contains(&["error: ", "a\\u{202e}b"]);
        assert!(ran.stderr.chars().all(|c| c == '\n' || !is_unsafe_to_show(c)), "{:?}", ran.stderr);
    }
}

#[test]
fn export_without_pages_is_imported_and_named() {
    let Some(home) = Home::new() else { return };
    const NO_PAGES: &str = "there are no pages in the input";
    let empty = "<mediawiki><siteinfo><sitename>Empty</sitename></siteinfo></mediawiki>";
    let ran = home.import_file(empty).ends_with(0).stderr_contains(&[NO_PAGES]);
    assert!(ran.stdout.starts_with("0 revisions of 0 pages"), "{}", ran.stdout);
    // The metadata of the wiki is stored.
    let ran = home.import_file(&dump("Page", &[("1", "one")])).ends_with(0);
    assert!(!ran.stderr.contains(NO_PAGES), "{}", ran.stderr);
    assert!(home.everything().contains("\"Empty\""));
    assert!(!home.import_file(&dump("Page", &[("1", "one")])).ends_with(0).stderr.contains(NO_PAGES));
}
