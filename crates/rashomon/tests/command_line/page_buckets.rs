//! Commands on a further bucket of pages.

use std::fs;

use crate::{
    home::Home,
    http::{get, put_json},
    process::run,
    wiki::dump,
};

/// Makes the bucket `docs` and the bucket `blobs`, which has no pages.
fn make_buckets(home: &Home) {
    let (server, address) = home.serve(&[]);
    for (bucket, definition) in [("docs", r#"{"type": "revisioned"}"#), ("blobs", r#"{"type": "blob"}"#)] {
        let made = put_json(&address, &format!("/v1/wiki/{bucket}"), definition);
        assert!(made.starts_with("HTTP/1.1 201 "), "{made}");
    }
    server.stop().ends_with(0);
}

#[test]
fn commands_work_on_a_further_bucket() {
    let Some(home) = Home::archiving() else { return };
    home.import_rows(&dump("A", &[("1", "one"), ("2", "two")]));
    make_buckets(&home);
    home.write("docs.xml", &dump("A", &[("1", "of docs"), ("2", "secret"), ("3", "newest")]));
    let import = |bucket| ["import", "--rows", "--domain", "wiki", "--bucket", bucket, "docs.xml"];
    home.run(&import("docs")).ends_with(0).stdout_contains(&["3 stored"]);
    for bucket in ["none", "blobs"] {
        home.run(&import(bucket)).ends_with(2).stderr_contains(&["--rows is for pages", bucket]);
    }
    let export = ["--history", "--format", "jsonl"];
    let exported = home.export(&[&["--bucket", "docs"], &export[..]].concat()).ends_with(0).stdout;
    assert!(exported.contains("of docs") && !exported.contains("\"one\""), "{exported}");
    assert!(!home.everything().contains("of docs"));
    home.export(&["--bucket", "blobs"]).ends_with(0).stdout_contains(&["\"blobs\""]);

    home.seal().ends_with(0).stdout_contains(&["wiki: sealed 1 revision", "wiki/docs: sealed 2 revisions"]);
    home.run(&["archive", "stats"])
        .ends_with(0)
        .stdout_contains(&["wiki/page: 1 revision", "wiki/docs: 2 revisions"]);
    home.run(&["stats"]).ends_with(0).stdout_contains(&["wiki: 1 page", "wiki/docs: 1 page, 3 revisions"]);
    let erase = ["archive", "erase", "--domain", "wiki", "--bucket", "docs", "--title", "A", "--rev", "2"];
    home.run(&erase).ends_with(0).stdout_contains(&["erased revision 2"]);
    home.run(&["archive", "erase", "--status"]).ends_with(0).stdout_contains(&["wiki/docs: revision 2 of A"]);
    home.run(&["verify"]).ends_with(0).stdout_contains(&["sound"]);
    let again = home.export(&[&["--bucket", "docs"], &export[..]].concat()).ends_with(0).stdout;
    assert!(again.contains("of docs") && !again.contains("secret"), "{again}");
    assert!(home.everything().contains("two"));
}

#[test]
fn import_through_a_server_names_the_bucket() {
    let Some(home) = Home::new() else { return };
    make_buckets(&home);
    let (server, address) = home.serve(&[]);
    home.write("docs.xml", &dump("A", &[("1", "of docs")]));
    let url = format!("http://{address}");
    let import = |bucket: &str| {
        run(home.path(), &["import", "--to", &url, "--domain", "wiki", "--bucket", bucket, "docs.xml"])
    };
    import("docs").ends_with(0).stdout_contains(&["1 stored"]);
    import("none")
        .ends_with(1)
        .stderr_contains(&["no line of an export of entries", "wiki/none --type revisioned"]);
    assert!(get(&address, "/v1/wiki/docs/A?rev/latest/wikitext").ends_with("of docs"));
    assert!(get(&address, "/v1/wiki/page/A?rev/latest/wikitext").starts_with("HTTP/1.1 404 "));
    server.stop().ends_with(0);
}

#[test]
fn backup_and_migration_include_a_further_bucket() {
    let directory = tempfile::tempdir().unwrap();
    let (server, address) = crate::serving::serve_data(directory.path());
    put_json(&address, "/v1/wiki/docs", r#"{"type": "revisioned"}"#);
    server.stop().ends_with(0);
    fs::write(directory.path().join("docs.xml"), dump("A", &[("1", "of docs"), ("2", "newer")])).unwrap();
    let run = |words: &[&str]| run(directory.path(), words).ends_with(0).stdout;
    run(&["import", "--data", "data", "--domain", "wiki", "--bucket", "docs", "docs.xml"]);
    run(&["migrate", "--from", "sqlite:data", "--to", "sqlite:copy", "--verify"]);
    run(&["backup", "--data", "data", "--to", "backups"]);
    run(&["restore", "--from", "backups", "--data", "restored"]);
    let export = |store: &str| {
        let bucket = ["--domain", "wiki", "--bucket", "docs", "--history", "--format", "jsonl"];
        run(&[&["export", "--data", store], &bucket[..]].concat())
    };
    assert!(export("data").contains("of docs"));
    assert_eq!(export("copy"), export("data"));
    assert_eq!(export("restored"), export("data"));
}
