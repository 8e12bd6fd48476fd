//! What an import packs into blocks: whatever the order of pages and revisions, after an interruption, and through a
//! server.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::{
    process::{ProcessOutput, finish, rashomon, run},
    serving::serve_data,
};

const PAGES: u64 = 20;
const REVISIONS: u64 = 12;

/// Random words, so that a text does not compress well by itself.
fn words(seed: u64, count: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::new();
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let _ = write!(text, "{:x} ", state >> 32);
    }
    text
}

/// The revision of a page. Its number is in the order of time over all pages.
fn revision(page: u64, number: u64) -> (u64, String) {
    let id = (number - 1) * PAGES + page;
    let text = words(page, 600) + &words(1000 + page * REVISIONS + number, 4 * number as usize);
    let xml = format!(
        "<revision><id>{id}</id><timestamp>2020-{number:02}-01T00:00:{page:02}Z</timestamp><contributor>\
         <username>Ann</username><id>7</id></contributor><model>wikitext</model><format>text/x-wiki</format>\
         <text xml:space=\"preserve\">{text}</text></revision>"
    );
    (id, xml)
}

fn page(page: u64, revisions: &[String]) -> String {
    let revisions = revisions.concat();
    format!("<page><title>Page {page}</title><ns>0</ns><id>{page}</id>{revisions}</page>\n")
}

fn wrapped(pages: &[String]) -> String {
    let pages = pages.concat();
    format!(
        "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.11/\" version=\"0.11\" xml:lang=\"en\">\n{pages}</mediawiki>\n"
    )
}

/// Page elements with the revisions `numbers` of each page.
fn page_by_page(numbers: std::ops::RangeInclusive<u64>) -> Vec<String> {
    let of_page = |of| {
        let revisions: Vec<_> = numbers.clone().map(|number| revision(of, number).1).collect();
        page(of, &revisions)
    };
    (1..=PAGES).map(of_page).collect()
}

/// A page element for each revision, in the order of time.
fn page_per_revision() -> Vec<String> {
    let mut elements: Vec<_> = (1..=PAGES)
        .flat_map(|of| (1..=REVISIONS).map(move |number| (of, revision(of, number))))
        .map(|(of, (id, xml))| (id, page(of, &[xml])))
        .collect();
    elements.sort_by_key(|(id, _)| *id);
    elements.into_iter().map(|(_, element)| element).collect()
}

fn directory() -> TempDir {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("whole.xml"), wrapped(&page_by_page(1..=REVISIONS))).unwrap();
    directory
}

fn import(directory: &Path, data: &str, files: &[&str]) -> ProcessOutput {
    run(directory, &[&["import", "--domain", "wiki", "--data", data], files].concat()).ends_with(0)
}

fn export(directory: &Path, data: &str) -> String {
    run(directory, &["export", "--domain", "wiki", "--history", "--data", data]).ends_with(0).stdout
}

/// The revisions in blocks, those in rows, and the bytes of the blocks.
fn packed(directory: &Path, data: &str) -> (u64, u64, u64) {
    let ran = run(directory, &["archive", "stats", "--json", "--data", data]).ends_with(0);
    let stats: Value = serde_json::from_str(&ran.stdout).unwrap();
    let of = |field: &str| {
        let of_bucket = &stats["wiki"]["page"];
        of_bucket[field].as_u64().unwrap_or_else(|| panic!("{field}: {of_bucket}"))
    };
    (of("revisions"), of("open_revisions"), of("block_bytes"))
}

#[test]
fn page_element_for_each_revision_is_packed_like_whole_pages() {
    let directory = directory();
    let directory = directory.path();
    import(directory, "whole", &["whole.xml"]).stdout_contains(&["240 revisions of 20 pages", "240 stored"]);
    let (revisions, in_rows, bytes) = packed(directory, "whole");
    assert_eq!((revisions, in_rows), (240, 0));
    let whole = export(directory, "whole");

    let in_time = page_per_revision();
    let reversed: Vec<_> = in_time.iter().rev().cloned().collect();
    let (older, newer) = (page_by_page(1..=6), page_by_page(7..=REVISIONS));
    let mixed: Vec<_> = (0..240).map(|place| in_time[place * 77 % 240].clone()).collect();
    for (data, files) in [
        ("time", vec![&in_time[..]]),
        ("reversed", vec![&reversed[..]]),
        ("mixed", vec![&mixed[..]]),
        ("files", vec![&in_time[..100], &in_time[100..101], &in_time[101..]]),
        ("halves", vec![&older[..], &newer[..]]),
        ("mixed-files", vec![&mixed[..100], &reversed[..]]),
    ] {
        let mut names = Vec::new();
        for (number, elements) in files.iter().enumerate() {
            names.push(format!("{data}-{number}.xml"));
            fs::write(directory.join(&names[number]), wrapped(elements)).unwrap();
        }
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let ran = import(directory, data, &names);
        ran.stdout_contains(&["of 20 pages", "240 stored", "0 in conflict, 0 left out"]);
        let (revisions, in_rows, of_parts) = packed(directory, data);
        assert_eq!((revisions, in_rows), (240, 0), "{data}");
        assert!(of_parts * 10 <= bytes * 12, "{data}: {of_parts} bytes instead of {bytes}");
        assert!(export(directory, data) == whole, "{data}: another export");
        run(directory, &["verify", "--data", data]).ends_with(0);
    }
}

/// An import that cannot sort stores everything all the same.
#[test]
fn unusable_folder_for_temporary_files_is_named() {
    let directory = tempdir().unwrap();
    let elements: Vec<_> = (1..=8_u64)
        .flat_map(|number| (1..=40_u64).map(move |of| (of, number)))
        .map(|(of, number)| {
            let (id, text) = (of * 100 + number, words(of * 100 + number, 1_500));
            let time = format!("2020-01-{number:02}T00:00:00Z");
            let xml =
                format!("<revision><id>{id}</id><timestamp>{time}</timestamp><text>{text}</text></revision>");
            page(of, &[xml])
        })
        .collect();
    fs::write(directory.path().join("parts.xml"), wrapped(&elements)).unwrap();
    let mut command = rashomon(directory.path());
    command.args(["import", "--domain", "wiki", "--data", "data", "parts.xml"]).env("TMPDIR", "/nowhere");
    let ran = finish(&mut command).ends_with(0).stdout_contains(&["320 revisions of 40 pages"]);
    ran.stderr_contains(&["not sorted any more", "/nowhere", "TMPDIR"]);
}

#[test]
fn truncated_page_elements_are_stored_up_to_the_fault() {
    let directory = directory();
    let directory = directory.path();
    let whole = wrapped(&page_per_revision());
    fs::write(directory.join("cut.xml"), &whole[..whole.len() / 2]).unwrap();
    run(directory, &["import", "--domain", "wiki", "--data", "cut", "cut.xml"])
        .ends_with(1)
        .stdout_contains(&["of 20 pages", " stored"])
        .stderr_contains(&["cut.xml", "truncated"]);
    let (revisions, in_rows, _) = packed(directory, "cut");
    assert!(revisions > 100 && in_rows == 0, "{revisions}, {in_rows}");
    fs::write(directory.join("all.xml"), &whole).unwrap();
    import(directory, "cut", &["all.xml"]).stdout_contains(&["of 20 pages"]);
    import(directory, "whole", &["whole.xml"]);
    assert!(export(directory, "cut") == export(directory, "whole"));
}

#[test]
fn revisions_of_stored_pages_are_packed() {
    let directory = directory();
    let directory = directory.path();
    import(directory, "whole", &["whole.xml"]);
    let (_, _, bytes) = packed(directory, "whole");
    for (data, first, rest) in
        [("later", 1..=6, 7..=12), ("earlier", 7..=12, 1..=6), ("again", 1..=9, 1..=12)]
    {
        fs::write(directory.join("first.xml"), wrapped(&page_by_page(first.clone()))).unwrap();
        fs::write(directory.join("rest.xml"), wrapped(&page_by_page(rest))).unwrap();
        import(directory, data, &["first.xml"]);
        let ran = import(directory, data, &["rest.xml"]);
        assert!(!ran.stdout.contains("as rows"), "{}", ran.stdout);
        let (revisions, in_rows, of_parts) = packed(directory, data);
        assert_eq!((revisions, in_rows), (240, 0), "{data}");
        assert!(10 * of_parts < 13 * bytes, "{data}: {of_parts} bytes instead of {bytes}");
        assert!(export(directory, data) == export(directory, "whole"), "{data}");
        run(directory, &["verify", "--data", data]).ends_with(0);
    }
}

/// The later revisions of a page are sealed together with the earlier ones, and not by themselves to be merged later.
#[test]
fn revisions_of_stored_pages_are_packed_once() {
    let directory = tempdir().unwrap();
    let directory = directory.path();
    let part = |of: u64, id: u64, count: usize| {
        let text = words(id, count);
        let revision = format!(
            "<revision><id>{id}</id><timestamp>2020-01-{id:02}T00:00:00Z</timestamp><text>{text}</text></revision>"
        );
        page(of, &[revision])
    };
    let large: Vec<_> = (1..=10).map(|of| part(of, of, 600)).collect();
    let small: Vec<_> = (1..=10).map(|of| part(of, of + 10, 1)).collect();
    fs::write(directory.join("large.xml"), wrapped(&large)).unwrap();
    fs::write(directory.join("small.xml"), wrapped(&small)).unwrap();
    let ran = import(directory, "data", &["--json", "large.xml", "small.xml"]);
    let outcome: Value = serde_json::from_str(&ran.stdout).unwrap();
    let sealed = outcome["sealed"]["stored_bytes"].as_u64().unwrap();
    let (revisions, in_rows, bytes) = packed(directory, "data");
    assert_eq!((revisions, in_rows), (20, 0));
    // The blocks of the first file, and those that replace them.
    assert!(10 * sealed > 18 * bytes, "{sealed} bytes sealed, {bytes} bytes stored");
    run(directory, &["verify", "--data", "data"]).ends_with(0);
}

/// An import that was killed may leave rows.
#[test]
fn rows_of_an_earlier_import_are_packed() {
    let directory = directory();
    let directory = directory.path();
    import(directory, "whole", &["whole.xml"]);
    import(directory, "rows", &["--rows", "whole.xml"]);
    assert_eq!(packed(directory, "rows").1, 240);
    let before = fs::metadata(directory.join("rows/rashomon.sqlite")).unwrap().len();
    import(directory, "rows", &["whole.xml"])
        .stdout_contains(&["0 stored, 240 stored before", "240 revisions in "]);
    let (revisions, in_rows, _) = packed(directory, "rows");
    assert_eq!((revisions, in_rows), (240, 0));
    let after = fs::metadata(directory.join("rows/rashomon.sqlite")).unwrap().len();
    assert!(after < before / 3, "{after} bytes after {before}");
    assert!(export(directory, "rows") == export(directory, "whole"));
    run(directory, &["verify", "--data", "rows"]).ends_with(0);
}

#[test]
fn import_through_a_server_is_packed() {
    let directory = directory();
    let directory = directory.path();
    import(directory, "whole", &["whole.xml"]);
    let (_, _, bytes) = packed(directory, "whole");
    fs::write(directory.join("parts.xml"), wrapped(&page_per_revision())).unwrap();
    fs::write(directory.join("first.xml"), wrapped(&page_by_page(1..=5))).unwrap();
    for files in [&["whole.xml"][..], &["parts.xml"], &["first.xml", "whole.xml"]] {
        let served = tempdir().unwrap();
        let (server, address) = serve_data(served.path());
        let url = format!("http://{address}");
        let ran =
            run(directory, &[&["import", "--to", &url, "--domain", "wiki"], files].concat()).ends_with(0);
        ran.stdout_contains(&["240 stored", "240 revisions in "]);
        server.stop().ends_with(0);
        let data = served.path().join("data").display().to_string();
        let (revisions, in_rows, of_server) = packed(directory, &data);
        assert_eq!((revisions, in_rows), (240, 0), "{files:?}");
        assert!(of_server < 3 * bytes, "{files:?}: {of_server} bytes instead of {bytes}");
        assert!(export(directory, &data) == export(directory, "whole"), "{files:?}");
        run(directory, &["verify", "--data", &data]).ends_with(0);
    }
}

/// An export without its texts. Keeps their sizes and SHA-1s.
fn stub_of(export: &str) -> String {
    let mut stub = String::new();
    for (number, part) in export.split("<text ").enumerate() {
        let rest = match part.split_once(" xml:space=\"preserve\">") {
            Some((attributes, rest)) if number > 0 => {
                assert!(attributes.contains("bytes=") && attributes.contains("sha1="), "{attributes}");
                let _ = write!(stub, "<text {attributes} id=\"{number}\" />");
                rest.split_once("</text>").unwrap().1
            }
            _ => part,
        };
        stub += rest;
    }
    stub
}

#[test]
fn full_dump_after_a_stub_dump_adds_the_texts() {
    let directory = directory();
    let directory = directory.path();
    import(directory, "whole", &["whole.xml"]);
    let (_, _, bytes) = packed(directory, "whole");
    let whole = export(directory, "whole");
    fs::write(directory.join("full.xml"), &whole).unwrap();
    fs::write(directory.join("stub.xml"), stub_of(&whole)).unwrap();
    for (data, words) in [("blocks", &[][..]), ("rows", &["--rows"])] {
        let run_import = |file| import(directory, data, &[words, &[file]].concat());
        run_import("stub.xml").stdout_contains(&["240 stored"]);
        run_import("full.xml").stdout_contains(&["240 stored, 0 stored before, 0 in conflict"]);
        assert!(export(directory, data) == whole, "{data}: another export");
        run_import("full.xml").stdout_contains(&["0 stored, 240 stored before, 0 in conflict"]);
        run_import("stub.xml").stdout_contains(&["0 stored, 240 stored before, 0 in conflict"]);
        run(directory, &["verify", "--data", data]).ends_with(0);
    }
    let (_, in_rows, of_both) = packed(directory, "blocks");
    assert_eq!(in_rows, 0);
    assert!(of_both < 3 * bytes, "{of_both} bytes instead of {bytes}");

    // A text with other bytes than the stub says is a conflict.
    let other = whole.replacen("</text>", "x</text>", 1);
    fs::write(directory.join("other.xml"), other).unwrap();
    import(directory, "third", &["stub.xml"]);
    run(directory, &["import", "--domain", "wiki", "--data", "third", "other.xml"])
        .ends_with(3)
        .stdout_contains(&["239 stored", "1 in conflict"]);
}
