//! Imports of key-value buckets through a server have the results of imports into a store.

use std::{fs, path::Path};

use tempfile::tempdir;

use crate::{
    process::{ProcessOutput, RunningProcess, rashomon, run},
    serving::serve_data,
};

/// The bodies `abc` and `abd` and the empty body: each in base64, with its SHA-1.
const ABC: (&str, &str) = ("YWJj", "a9993e364706816aba3e25717850c26c9cd0d89d");
const ABD: (&str, &str) = ("YWJk", "cb4cc28df0fdbe0ecf9d9662e294b118092a5735");
const EMPTY: (&str, &str) = ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709");

fn bucket_line(definition: &str) -> String {
    format!("{{\"bucket\":{{\"name\":\"exported\",\"version\":1,\"definition\":{definition}}}}}")
}

/// The line of an entry of at most three bytes. `headers` has the members after `content_type`.
fn entry(key: &str, headers: &str, (body, sha1): (&str, &str)) -> String {
    let size = body.len() / 4 * 3;
    format!(
        "{{\"entry\":{{\"key\":\"{key}\",\"headers\":{{\"content_type\":\"text/x\"{headers}}},\"size\":{size},\
         \"sha1\":\"{sha1}\",\"modified\":\"2026-11-27T00:00:00Z\",\"body\":\"{body}\"}}}}"
    )
}

fn counter(key: &str, value: i64) -> String {
    format!("{{\"counter\":{{\"key\":\"{key}\",\"value\":{value}}}}}")
}

fn with_headers(headers: &[(&str, &str)]) -> String {
    let members: Vec<_> = headers.iter().map(|(name, value)| format!("\"{name}\":\"{value}\"")).collect();
    format!(",\"other\":{{{}}}", members.join(","))
}

/// A body of three megabytes.
fn large() -> Vec<u8> {
    (0..3_000_000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// The lines of the export of a large entry with the key `large`: the entry, and the parts of its body.
fn large_lines(at: &Path) -> Vec<String> {
    fs::write(at.join("large"), large()).unwrap();
    let bucket = |words: &[&str]| run(at, &[&["bucket"], words, &["--data", "source"]].concat()).ends_with(0);
    bucket(&["create", "wiki/files", "--type", "blob"]);
    bucket(&["put", "wiki/files/large", "large", "--content-type", "image/png"]);
    let export = run(at, &["export", "--data", "source", "--domain", "wiki", "--bucket", "files"]);
    let lines: Vec<String> = export.ends_with(0).stdout.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 6, "the bucket, the entry, three parts and the end");
    lines[1..5].to_vec()
}

/// An import of the same file through a server, and into a store.
struct Imports<'a> {
    at: &'a Path,
    url: String,
}

impl Imports<'_> {
    fn write(&self, lines: &[String], entries: usize) {
        let end = format!("{{\"end\":{{\"entries\":{entries}}}}}");
        fs::write(self.at.join("file.jsonl"), [lines, &[end]].concat().join("\n") + "\n").unwrap();
    }

    fn to_server(&self, bucket: &str) -> ProcessOutput {
        let import = ["import", "--to", &self.url, "--domain", "wiki", "--bucket", bucket, "file.jsonl"];
        run(self.at, &import)
    }

    /// Imports lines in both ways. The results are the same.
    #[track_caller]
    fn run(&self, bucket: &str, lines: &[String], entries: usize, code: i32, result: &str) -> ProcessOutput {
        self.write(lines, entries);
        let import = ["import", "--data", "local", "--domain", "wiki", "--bucket", bucket, "file.jsonl"];
        let into_store = run(self.at, &import).ends_with(code);
        let to_server = self.to_server(bucket).ends_with(code);
        assert_eq!(to_server.stdout, into_store.stdout);
        to_server.stdout_contains(&[result])
    }
}

/// The export of a bucket without times.
fn content(at: &Path, store: &str, bucket: &str) -> Vec<String> {
    let export = run(at, &["export", "--data", store, "--domain", "wiki", "--bucket", bucket]).ends_with(0);
    let without = |line: &str, member: &str| match line.split_once(&format!(",\"{member}\":\"")) {
        Some((before, after)) => before.to_owned() + after.split_once('"').unwrap().1,
        None => line.to_owned(),
    };
    export.stdout.lines().map(|line| without(&without(line, "modified"), "expires")).collect()
}

#[test]
fn import_to_a_server_has_the_results_of_an_import_into_a_store() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    let large = large_lines(at);
    let (server, address) = serve_data(at);
    let imports = Imports { at, url: format!("http://{address}") };

    let blob = bucket_line("{\"type\":\"ordered-blob\"}");
    let headers = [("cache-control", "public, max-age=60"), ("content-language", "de, en"), ("x-y", "1")];
    let rich = with_headers(&headers);
    let small = [entry("a b/ü", "", ABC), entry("rich", &rich, ABC), entry("empty", "", EMPTY)];
    let files = [&[blob.clone()][..], &small, &large].concat();
    imports.run("files", &files, 4, 0, "(a new bucket): 4 stored, 0 stored before, 0 in conflict");
    imports.run("files", &files, 4, 0, "0 stored, 4 stored before, 0 in conflict");

    // Entries with another body, with other headers, and with one header fewer. The large one has another size.
    let other = with_headers(&[("cache-control", "public, max-age=61"), headers[1], headers[2]]);
    let changed = [entry("a b/ü", "", ABD), entry("rich", &other, ABC), entry("empty", &rich, EMPTY)];
    let changed = [&[blob.clone()][..], &changed, &[entry("large", "", ABC), entry("new", "", ABD)]].concat();
    let ran = imports.run("files", &changed, 5, 3, "1 stored, 0 stored before, 4 in conflict");
    ran.stderr_contains(&["which stays: a b/ü", "which stays: rich", "which stays: empty", "stays: large"]);
    let fewer = [blob.clone(), entry("rich", &with_headers(&headers[..2]), ABC)];
    imports.run("files", &fewer, 1, 3, "0 stored, 0 stored before, 1 in conflict");

    // An incomplete body is left out, and the entries after it are stored.
    let incomplete = "{\"incomplete\":{\"reason\":\"lost\"}}".to_owned();
    let rest = [incomplete, entry("after", "", ABC)];
    let lines = [&[blob.clone(), large[0].replace("large", "part")][..], &large[1..3], &rest].concat();
    imports.run("files", &lines, 2, 3, "1 stored, 0 stored before, 0 in conflict, 1 left out");

    // Damaged bodies are errors, and nothing is stored of them.
    let sha1 = large[0].split("\"sha1\":\"").nth(1).unwrap()[..40].to_owned();
    let damaged = large[0].replace(&sha1, ABC.1).replace("large", "damaged");
    let lines = [&[blob.clone(), damaged][..], &large[1..]].concat();
    imports.run("files", &lines, 1, 1, "0 stored").stderr_contains(&["line 5: ", "is damaged", ABC.1]);
    let lines = [blob.clone(), entry("damaged", "", (ABD.0, ABC.1)), entry("later", "", ABC)];
    imports.run("files", &lines, 2, 1, "0 stored").stderr_contains(&["line 2: ", "is damaged", ABC.1]);
    let lines = [blob.clone(), entry("damaged", "", (EMPTY.0, ABC.1))];
    imports.run("files", &lines, 1, 1, "0 stored").stderr_contains(&["line 2: ", "is damaged"]);
    let lines = [&[blob.clone(), large[0].replace("large", "cut")][..], &large[1..3]].concat();
    imports.run("files", &lines, 1, 1, "0 stored").stderr_contains(&["bytes of the body of cut are missing"]);

    let counters = [bucket_line("{\"type\":\"counter\"}"), counter("a", 7), counter("b", -3)];
    imports.run("files", &counters, 2, 1, "0 stored").stderr_contains(&["another definition", "--bucket"]);
    imports.run("clicks", &counters, 2, 0, "(a new bucket): 2 stored");
    imports.run("clicks", &counters, 2, 0, "0 stored, 2 stored before");
    let counters = [counters[0].clone(), counter("a", 8), counter("c", 1)];
    imports.run("clicks", &counters, 2, 3, "1 stored, 0 stored before, 1 in conflict");

    // Expired entries are left out, and so are large ones. Headers that depend on the expiry are no conflict.
    let limited = bucket_line("{\"type\":\"blob\",\"public\":true,\"ttl\":1000,\"max_size\":3}");
    let expired =
        entry("old", "", ABC).replace(",\"body\"", ",\"expires\":\"2026-01-01T00:00:00Z\",\"body\"");
    let lines = [limited.clone(), entry("rich", &rich, ABC), expired, entry("plain", "", ABD)];
    let lines = [&lines[..], &large].concat();
    imports.run("limited", &lines, 4, 3, "2 stored, 0 stored before, 0 in conflict, 1 left out, 1 expired");
    imports.run("limited", &lines, 4, 3, "0 stored, 2 stored before, 0 in conflict, 1 left out, 1 expired");

    // The server refuses headers that it would have to send as they are.
    let malformed = entry("malformed", &with_headers(&[("cache-control", "max-age=")]), ABC);
    imports.write(&[blob.clone(), malformed, entry("well-formed", "", ABC)], 2);
    let ran = imports.to_server("checked").ends_with(3).stdout_contains(&["1 stored", "1 left out"]);
    ran.stderr_contains(&["an entry was left out: malformed: ", "(400 Bad Request)", "cache-control"]);
    imports.to_server("page").ends_with(1);

    server.stop().ends_with(0);
    for bucket in ["files", "clicks", "limited"] {
        assert_eq!(content(at, "data", bucket), content(at, "local", bucket), "{bucket}");
    }
    run(at, &["bucket", "get", "wiki/files/large", "--data", "data", "--output", "copy"]).ends_with(0);
    assert!(fs::read(at.join("copy")).unwrap() == fs::read(at.join("large")).unwrap());
    run(at, &["verify", "--data", "data"]).ends_with(0).stdout_contains(&["sound"]);
}

#[test]
fn a_server_decides_which_headers_it_stores_and_the_import_names_the_others() {
    let directory = tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("c.toml"), "stored_headers = ['x-kept', 'x-sendfile']\n").unwrap();
    let mut command = rashomon(at);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--config", "c.toml"]);
    let mut server = RunningProcess::start(&mut command);
    let imports = Imports { at, url: format!("http://{}", server.address()) };
    // By the default list, x-sendfile is not stored, and x-other is.
    let headers = with_headers(&[("x-kept", "1"), ("x-other", "2"), ("x-sendfile", "/a")]);
    let lines = [bucket_line("{\"type\":\"blob\"}"), entry("a", &headers, ABC), entry("b", &headers, ABD)];
    imports.write(&lines, 2);
    let ran = imports.to_server("files").ends_with(0).stdout_contains(&["2 stored"]);
    assert_eq!(ran.stderr.matches("was left out: it is not stored").count(), 1, "{}", ran.stderr);
    ran.stderr_contains(&["the header x-other of 2 entries was left out"]);
    server.stop().ends_with(0);
    let export = ["export", "--data", "data", "--config", "c.toml", "--domain", "wiki", "--bucket", "files"];
    let stored = run(at, &export).ends_with(0).stdout;
    assert_eq!(stored.matches("\"x-sendfile\":\"/a\"").count(), 2, "{stored}");
    assert!(stored.contains("x-kept") && !stored.contains("x-other"), "{stored}");
}
