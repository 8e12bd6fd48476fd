//! `rashomon bucket`, on the store and through a server, and exports and imports of entries.

use std::fs;

use crate::{
    home::Home,
    process::{ProcessOutput, finish, rashomon},
};

/// Three megabytes, so more than a row of the store.
fn large() -> Vec<u8> {
    (0..3_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Runs `rashomon bucket` on the store, or through a server.
fn bucket(home: &Home, address: Option<&str>, words: &[&str]) -> ProcessOutput {
    match address {
        None => home.run(&[&["bucket"], words].concat()),
        Some(address) => {
            let mut command = rashomon(home.path());
            finish(command.arg("bucket").args(words).args(["--to", &format!("http://{address}")]))
        }
    }
}

fn check_commands(home: &Home, address: Option<&str>) {
    let run = |words: &[&str]| bucket(home, address, words);
    let thumbs = ["create", "wiki/thumbs", "--type", "blob", "--content-type", "image/png"];
    run(&thumbs).ends_with(0).stdout_contains(&["created wiki/thumbs: {\"type\":\"blob\""]);
    run(&thumbs).ends_with(0).stdout_contains(&["exists already with this definition"]);
    let other = [&thumbs[..], &["--max-size", "4 MiB"]].concat();
    run(&other).ends_with(1).stderr_contains(&[
        "exists with another definition: to replace",
        "with --replace",
        "4194304",
    ]);
    run(&[&other[..], &["--replace"]].concat()).ends_with(0).stdout_contains(&["replaced the definition"]);
    run(&["create", "wiki/huge", "--type", "blob", "--max-size", "300MiB"])
        .ends_with(2)
        .stderr_contains(&["--max-size is a number of bytes from 1 to 268435456"]);
    let ordered = ["create", "wiki/thumbs", "--type", "ordered-blob", "--replace"];
    run(&ordered).ends_with(1).stderr_contains(&["the type of a bucket never changes"]);

    fs::write(home.path().join("large"), large()).unwrap();
    home.write("small", "small body");
    run(&["put", "wiki/thumbs/a b_ü?/large.png", "large"]).ends_with(0).stdout_contains(&["3.0 MB"]);
    run(&["put", "wiki/thumbs/note", "small", "--content-type", "text/plain"]).ends_with(0);
    let list = run(&["list", "wiki/thumbs"]).ends_with(0).stdout;
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), 2, "{list}");
    assert_eq!(lines[0][..3], ["a b_ü?/large.png", "3000000", "image/png"]);
    assert_eq!(lines[1][..3], ["note", "10", "text/plain"]);
    run(&["list", "wiki", "--json"])
        .ends_with(0)
        .stdout_contains(&["{\"definition\":{", "\"name\":\"thumbs\""]);

    run(&["get", "wiki/thumbs/a b_ü?/large.png", "--output", "copy"]).ends_with(0);
    assert!(fs::read(home.path().join("copy")).unwrap() == large());
    assert_eq!(run(&["get", "wiki/thumbs/note"]).ends_with(0).stdout, "small body");
    run(&["get", "wiki/thumbs/none", "--output", "copy"])
        .ends_with(1)
        .stderr_contains(&["there is no entry"]);
    assert!(fs::read(home.path().join("copy")).unwrap() == large());
    run(&["get", "wiki/none/x"]).ends_with(1).stderr_contains(&["there is no bucket wiki/none"]);
    fs::write(home.path().join("too-large"), vec![b'x'; (4 << 20) + 1]).unwrap();
    run(&["put", "wiki/thumbs/x", "too-large"]).ends_with(1);
    run(&["get", "wiki/thumbs/x"]).ends_with(1);

    run(&["delete", "wiki/thumbs/note"]).ends_with(0);
    run(&["get", "wiki/thumbs/note"]).ends_with(1);
    run(&["delete", "wiki/thumbs"])
        .ends_with(2)
        .stderr_contains(&["with all of its entries or pages", "add --yes"]);
    run(&["delete", "wiki/thumbs", "--yes"]).ends_with(0);
    run(&["list", "wiki/thumbs"]).ends_with(1).stderr_contains(&["there is no bucket wiki/thumbs"]);
    run(&["delete", "wiki/thumbs", "--yes"]).ends_with(1);
}

#[test]
fn buckets_and_entries_are_managed_on_the_store_and_through_a_server() {
    let Some(home) = Home::new() else { return };
    check_commands(&home, None);
    let (server, address) = home.serve(&[]);
    check_commands(&home, Some(&address));
    server.stop().ends_with(0);
}

#[test]
fn wrong_commands_on_buckets_change_nothing() {
    let Some(home) = Home::new() else { return };
    for (words, reason) in [
        (&["create", "wiki", "--type", "blob"][..], "as in enwiki/thumbnails"),
        (&["create", "wiki/page", "--type", "blob"], "'page' is reserved"),
        (&["create", "wiki/import", "--type", "blob"], "'import' is reserved"),
        (&["create", "wiki/a", "--type", "blobb"], "blob, ordered-blob, counter, revisioned"),
        (&["create", "wiki/a", "--type", "counter", "--ttl", "1d"], "--ttl is for buckets of type blob"),
        (&["create", "wiki/a", "--type", "blob", "--ttl", "1500ms"], "--ttl is a whole number of seconds"),
        (&["create", "wiki/a", "--type", "blob", "--content-type", "png"], "--content-type: "),
        (&["delete", "wiki/page", "--yes"], "wiki/page is built in and cannot be deleted: erase"),
        (&["put", "wiki/a/b", "no-such-file"], "cannot read no-such-file"),
        (&["get", "wiki/a"], "a domain, a bucket and a key"),
    ] {
        bucket(&home, None, words).ends_with(2).stderr_contains(&[reason]);
    }
    home.run(&["bucket", "create", "wiki/a", "--type", "blob"]).ends_with(0);
    home.run(&["bucket", "list", "wiki/page"]).ends_with(1).stderr_contains(&["has pages, not entries"]);
}

/// An export with two counters.
const COUNTERS: &str = "{\"bucket\":{\"name\":\"clicks\",\"version\":1,\"definition\":{\"type\":\"counter\"}}}\n\
                        {\"counter\":{\"key\":\"a\",\"value\":7}}\n{\"counter\":{\"key\":\"b\",\"value\":-3}}\n\
                        {\"end\":{\"entries\":2}}\n";

#[test]
fn exported_entries_and_counters_survive_a_round_trip() {
    let Some(home) = Home::new() else { return };
    home.write("clicks.jsonl", COUNTERS);
    let import =
        |bucket: &str, file: &str| home.run(&["import", "--domain", "wiki", "--bucket", bucket, file]);
    import("clicks", "clicks.jsonl").ends_with(0).stdout_contains(&["(a new bucket): 2 stored"]);
    import("clicks", "clicks.jsonl").ends_with(0).stdout_contains(&["0 stored, 2 stored before"]);
    assert_eq!(home.run(&["bucket", "get", "wiki/clicks/b"]).ends_with(0).stdout, "-3\n");
    assert_eq!(home.run(&["bucket", "list", "wiki/clicks"]).ends_with(0).stdout, "a\t7\nb\t-3\n");
    home.export(&[])
        .ends_with(0)
        .stderr_contains(&["has no pages, so this export is empty", "--bucket: clicks"]);
    let counters = home.export(&["--bucket", "clicks"]).ends_with(0).stdout;
    let expected = COUNTERS.replace("{\"type\":\"counter\"}", "{\"type\":\"counter\",\"public\":false}");
    assert_eq!(counters, expected);

    home.run(&["bucket", "create", "wiki/files", "--type", "blob", "--ttl", "1d"]).ends_with(0);
    fs::write(home.path().join("large"), large()).unwrap();
    home.write("small", "small body");
    for (key, file) in [("large", "large"), ("b/small", "small")] {
        home.run(&["bucket", "put", &format!("wiki/files/{key}"), file, "--content-type", "text/x"])
            .ends_with(0);
    }
    home.export(&["--bucket", "files", "--output", "files.jsonl.gz"])
        .ends_with(0)
        .stderr_contains(&["2 entries"]);
    import("files", "files.jsonl.gz").ends_with(0).stdout_contains(&["0 stored, 2 stored before"]);
    import("copies", "files.jsonl.gz").ends_with(0).stdout_contains(&["(a new bucket): 2 stored"]);
    home.run(&["bucket", "get", "wiki/copies/large", "--output", "copy"]).ends_with(0);
    assert!(fs::read(home.path().join("copy")).unwrap() == large());

    // A stored entry with other content stays.
    home.run(&["bucket", "put", "wiki/copies/b/small", "large"]).ends_with(0);
    let conflict = import("copies", "files.jsonl.gz").ends_with(3);
    conflict.stderr_contains(&["is stored with other content, which stays: b/small"]);
    import("clicks", "files.jsonl.gz").ends_with(1).stderr_contains(&["another definition", "--bucket"]);
    home.run(&["bucket", "create", "wiki/expiring", "--type", "counter", "--public"]).ends_with(0);
    import("expiring", "clicks.jsonl")
        .ends_with(1)
        .stderr_contains(&["rashomon bucket create wiki/expiring --type counter --replace"]);
    // Each kind of export names the bucket that it needs.
    import("page", "clicks.jsonl")
        .ends_with(1)
        .stderr_contains(&["the entries of a key-value bucket", "--bucket NAME"]);
    home.write("pages.xml", "<mediawiki>\n</mediawiki>\n");
    import("none", "pages.xml").ends_with(1).stderr_contains(&[
        "There is no bucket wiki/none",
        "rashomon bucket create wiki/none --type revisioned",
    ]);
    import("files", "pages.xml")
        .ends_with(1)
        .stderr_contains(&["wiki/files has the type blob", "name a bucket of type revisioned"]);
    home.export(&["--bucket", "files", "--output", "files.xml"])
        .ends_with(2)
        .stderr_contains(&["JSON lines"]);
    home.export(&["--bucket", "files", "--history"])
        .ends_with(2)
        .stderr_contains(&["--history is for pages"]);
    home.export(&["--bucket", "none"]).ends_with(1).stderr_contains(&["wiki has no bucket none"]);
}
