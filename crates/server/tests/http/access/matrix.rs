//! Compares the answers for every role, route, method and kind of domain with a table of expected answers.
//!
//! The table is `tests/http/access_matrix.txt`. It is written with `RASHOMON_BLESS=1`, and then reviewed by people:
//! every cell has to agree with the documentation. A route without a row, or a row without a route, fails the test.

use std::{cell::Cell, collections::BTreeMap, fmt::Write as _, path::Path, time::Duration};

use rashomon_server::access::Right;
use rashomon_server::{OperatorPages, Settings};

use super::{FORM, HTML, JSON, PUBLIC, TOKEN_REQUEST, domain, export, fill, grant, public_domain, servers};
use crate::world::World;

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];

/// URLs that `/openapi.json` does not describe: incomplete URLs, files, and sub-resources of pages for people.
const OTHER_URLS: [&str; 15] = [
    "/v1/{domain}/open",
    "/v1/{domain}/open/{key}",
    "/v1/{domain}/counters/",
    "/v1/{domain}/counters/{key}",
    "/v1/{domain}/docs/{title}?rev/",
    "/v1/{domain}/docs/",
    "/v1/{domain}/page/",
    "/wiki/",
    "/wiki/{title}?rev/latest/{property}",
    "/pages/{domain}",
    "/pages/{domain}/?title={title}",
    "/pages/{domain}/{title}?rev/{tid}/",
    "/assets/style.css",
    "/assets/icon.svg",
    "/?after={domain}",
];

/// A kind of domain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Closed to clients without a token; with content.
    Closed,
    /// Closed to clients without a token; without content.
    Empty,
    /// Everybody may read it; with content.
    Public,
    /// The URL names no domain.
    None,
}

impl Kind {
    const OF_DOMAINS: [Self; 3] = [Self::Closed, Self::Empty, Self::Public];

    const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Empty => "empty",
            Self::Public => "public",
            Self::None => "-",
        }
    }
}

/// A token: the heading of its column, its rights, its domain and its buckets.
type TokenSpec = (&'static str, &'static [Right], &'static str, Option<&'static [&'static str]>);

/// The valid tokens.
const TOKENS: [TokenSpec; 12] = [
    ("read", &[Right::Read], "enwiki", None),
    ("write", &[Right::Write], "enwiki", None),
    ("import", &[Right::Import], "enwiki", None),
    ("rewrite", &[Right::Rewrite], "enwiki", None),
    ("admin", &[Right::Admin], "enwiki", None),
    ("r+write", &[Right::Read, Right::Write], "enwiki", None),
    ("w+import", &[Right::Write, Right::Import], "enwiki", None),
    ("all", &Right::ALL, "enwiki", None),
    ("dewiki", &Right::ALL, "dewiki", None),
    ("bucket", &Right::ALL, "enwiki", Some(&["other"])),
    ("admin*", &[Right::Admin], "*", None),
    ("all*", &Right::ALL, "*", None),
];

const BLOB: &str = r#"{"type": "blob"}"#;
const REVISIONED: &str = r#"{"type": "revisioned"}"#;
const PUBLIC_BLOB: &str = r#"{"type": "blob", "public": true}"#;

const COUNTER: &str = r#"{"type": "counter"}"#;

const LEGEND: &str = "\
# The expected status of every request. Each row is a kind of domain and some methods; each column is a role.
#
# Domains: 'closed' is enwiki, which has content, and which nobody may read without a token. 'empty' is a closed domain
# without content. 'public' has content, and everybody may read it. '-': the URL names no domain.
#
# Roles: 'none' has no token. 'read', 'write', 'import', 'rewrite', 'admin': a token with this right alone on enwiki.
# 'r+write': read and write on enwiki. 'w+import': write and import on enwiki. 'all': all rights on enwiki. 'dewiki': all
# rights on another domain. 'bucket': all rights on enwiki, but only on the bucket 'other'. 'admin*': admin on
# everything. 'all*': all rights on everything. 'wrong', 'expired', 'revoked': tokens that are not valid.
#
# Buckets: '{bucket}' is the private bucket 'other', and 'open' is a public bucket. 'counters' is a private bucket of
# counters. Closed and public domains have all of them, with an entry. They also have 'docs', a bucket of pages, with a
# page; below '/buckets/', '{bucket}' is 'docs'.
#
# Requests that change something are complete, so that they succeed for those who may send them. The pages for operators
# need a token on this server (operator_pages = \"token\").
";

/// The server, and everything that its requests need.
struct Matrix {
    world: World,
    open: World,
    /// The name and the header `Authorization` of each role, in the order of the columns.
    roles: Vec<(&'static str, String)>,
    /// The tids of the second revisions.
    tids: BTreeMap<&'static str, String>,
    /// Counts requests, so that each write is new.
    number: Cell<u32>,
}

impl Matrix {
    async fn new() -> Self {
        let hosts = ["enwiki", "emptywiki", PUBLIC].map(|name| (format!("{name}.example.org"), domain(name)));
        let settings =
            Settings { hosts: hosts.into(), operator_pages: OperatorPages::Token, ..Settings::default() };
        let (open, world) = servers(settings, public_domain()).await;
        let mut tids = BTreeMap::new();
        for domain in ["enwiki", PUBLIC] {
            let [_, tid] = fill(&open, domain).await;
            tids.insert(domain, tid);
        }
        let mut roles = vec![("none", String::new())];
        for (name, rights, domain, buckets) in TOKENS {
            roles.push((name, world.token_of(grant(rights, &[domain], buckets), None).await));
        }
        let all = || grant(&Right::ALL, &["*"], None);
        roles.push(("wrong", format!("Bearer rashomon_{}_{}", "0".repeat(20), "0".repeat(64))));
        roles.push(("expired", world.token_of(all(), Some(Duration::from_secs(1))).await));
        world.clock.advance(Duration::from_secs(2));
        let revoked = world.token_of(all(), None).await;
        let id = revoked.split('_').nth(1).unwrap().parse().unwrap();
        assert!(world.access.revoke_token(&id).await.unwrap());
        roles.push(("revoked", revoked));
        Self { world, open, roles, tids, number: Cell::new(1000) }
    }

    /// Creates the buckets and their entries in a domain, if they do not exist.
    async fn fill_buckets(&self, domain: &str) {
        for (bucket, definition) in [("other", BLOB), ("open", PUBLIC_BLOB), ("counters", COUNTER)] {
            let url = format!("/v1/{domain}/{bucket}");
            let defined = self.open.ask("", "PUT", &url, &[JSON], definition).await;
            assert!(defined.status.is_success(), "{defined:?}");
            self.open.ask("", "PUT", &format!("{url}/a.png"), &[HTML], "bytes").await;
        }
        let docs = format!("/v1/{domain}/docs");
        let defined = self.open.ask("", "PUT", &docs, &[JSON], REVISIONED).await;
        assert!(defined.status.is_success(), "{defined:?}");
        self.open.ask("", "POST", &format!("{docs}/Main_Page?rev/"), &[FORM], "_rev=1&html=x").await;
    }

    /// Sends one request. Returns the status of the answer.
    async fn status(&self, token: &str, method: &str, url: &str, kind: Kind) -> u16 {
        let number = self.number.replace(self.number.get() + 1);
        let name = match kind {
            Kind::Closed | Kind::None => "enwiki".to_owned(),
            Kind::Public => PUBLIC.to_owned(),
            Kind::Empty if url.starts_with("/wiki/") => "emptywiki".to_owned(),
            // A write must not give a domain content that the next request would find.
            Kind::Empty => format!("empty{number}"),
        };
        let tid = self.tids.get(name.as_str()).unwrap_or(&self.tids["enwiki"]);
        let id = match (method, url) {
            ("DELETE", "/v1/tokens/{id}") => {
                let token = self.open.token(&[Right::Read], &["enwiki"]).await;
                token.split('_').nth(1).unwrap().to_owned()
            }
            _ => "0".repeat(20),
        };
        let is_of_bucket =
            ["{bucket}", "/open", "/counters", "}/docs/"].iter().any(|name| url.contains(name));
        if is_of_bucket && kind != Kind::Empty {
            self.fill_buckets(&name).await;
        }
        let filled = [
            ("{bucket}", if url.starts_with("/buckets/") { "docs" } else { "other" }),
            ("{key}", "a.png"),
            ("{domain}", name.as_str()),
            ("{title}", "Main_Page"),
            ("{rev}", "2"),
            ("{tid}", tid),
            ("{time}", "2024-01-01T00:01:30Z"),
            ("{property}", "html"),
            ("{id}", &id),
        ];
        let filled = filled.iter().fold(url.to_owned(), |url, (name, value)| url.replace(name, value));
        let host = format!("{name}.example.org");
        let (content_type, body) = match (method, url) {
            ("POST", "/v1/tokens") => (JSON, TOKEN_REQUEST.to_owned()),
            ("POST", "/v1/batch") => (JSON, "[]".to_owned()),
            ("POST", "/v1/{domain}/import") => (HTML, export(number, "x")),
            ("POST", url) if url.ends_with("?rev/") => (FORM, format!("_rev={number}&html=x")),
            ("POST", "/v1/{domain}/counters/{key}") => (FORM, "increment=1".to_owned()),
            ("POST", _) => (FORM, format!("html=render+{number}")),
            ("PUT", "/v1/{domain}/{bucket}") => (JSON, BLOB.to_owned()),
            ("PUT", "/v1/{domain}/open") => (JSON, PUBLIC_BLOB.to_owned()),
            ("PUT", _) => (HTML, format!("bytes {number}")),
            _ => (HTML, String::new()),
        };
        let answer = self.world.ask(token, method, &filled, &[("host", &host), content_type], &body).await;
        self.world.clock.advance(Duration::from_millis(1));
        if (method, url) == ("POST", "/v1/{domain}/import") && answer.status.is_success() {
            let last = answer.text().lines().last().unwrap().to_owned();
            assert!(last.contains("\"status\":\"done\"") && last.contains("\"created\":1"), "{last}");
        }
        answer.status.as_u16()
    }

    /// Returns all rows of one URL. Methods with equal rows share one row.
    async fn rows(&self, url: &str) -> String {
        let has_domain = url.contains("{domain}") || url.contains("{title}") || url == "/wiki/";
        let kinds = if has_domain { &Kind::OF_DOMAINS[..] } else { &[Kind::None] };
        let mut rows = String::new();
        for &kind in kinds {
            let mut merged: Vec<(Vec<&str>, Vec<u16>)> = Vec::new();
            for method in METHODS {
                let mut row = Vec::new();
                for (_, token) in &self.roles {
                    row.push(self.status(token, method, url, kind).await);
                }
                match merged.iter_mut().find(|(_, known)| *known == row) {
                    Some((methods, _)) => methods.push(method),
                    None => merged.push((vec![method], row)),
                }
            }
            for (methods, row) in merged {
                write!(rows, "{:<8}{:<43}", kind.name(), methods.join(" ")).unwrap();
                let cells: Vec<_> = row.iter().map(|status| format!("{status:<9}")).collect();
                writeln!(rows, "{}", cells.concat().trim_end()).unwrap();
            }
        }
        rows
    }
}

#[tokio::test]
async fn every_role_gets_the_answers_of_the_table() {
    const BLESS: &str = "RASHOMON_BLESS";
    let matrix = Matrix::new().await;
    let document = matrix.open.with_access(Settings::default(), public_domain());
    let document = document.get("/openapi.json").await.expect(200).json();
    let described = ["paths", "x-ms-paths"].into_iter().flat_map(|paths| {
        document[paths].as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>()
    });
    let mut urls: Vec<_> = described.chain(OTHER_URLS).collect();
    urls.sort_unstable();
    let heading: Vec<_> = matrix.roles.iter().map(|(name, _)| format!("{name:<9}")).collect();
    let heading = format!("{:<8}{:<43}{}", "domain", "methods", heading.concat());
    let mut table = format!("{LEGEND}\n{}\n", heading.trim_end());
    for url in urls {
        let rows = matrix.rows(url).await;
        write!(table, "\n{url}\n{rows}").unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/access_matrix.txt");
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differences = differences(&kept, &table);
    assert!(
        kept == table,
        "the answers differ from tests/http/access_matrix.txt:\n{differences}if all of it is intended, run `{BLESS}=1 \
         cargo test -p rashomon-server --test http access::matrix`, and read every changed cell"
    );
}

/// The lines that only one of the tables has, with the URLs to which they belong.
fn differences(kept: &str, table: &str) -> String {
    fn rows(table: &str) -> Vec<(&str, &str)> {
        let mut url = "";
        let row = |line| {
            if str::starts_with(line, '/') {
                url = line;
            }
            (url, line)
        };
        table.lines().map(row).collect()
    }
    let (kept, table) = (rows(kept), rows(table));
    let mut text = String::new();
    for (sign, these, others) in [('-', &kept, &table), ('+', &table, &kept)] {
        for (url, line) in these.iter().filter(|row| !others.contains(row)).take(20) {
            writeln!(text, "{sign} {url}: {line}").unwrap();
        }
    }
    text
}
