//! A request for every answer that the document describes.

use std::time::Duration;

use rashomon_pages::DomainName;
use rashomon_server::Settings;
use rashomon_server::access::{AnonymousRights, DomainPattern, Grant, NewToken, Right, Rights, TokenText};
use rashomon_tables::{Call, Fault, Outage, Plan, Rates};

use crate::world::{Answer, World};

/// A tid that no render here has.
const OTHER_TID: &str = "8f545ba0-2601-11e3-885c-4160918f0fb9";

/// The file of the store on the full disk.
const FULL_DISK: &str = "/data/rashomon.sqlite";

/// The number of writes that fail on the server with a full disk: more than the scenarios have.
const FAILING_WRITES: u64 = 100;

/// The server that gets the request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Server {
    /// Accepts everything.
    Open,
    /// Refuses writes.
    ReadOnly,
    /// Accepts no more imports, and no large bodies.
    Busy,
    /// Has a store that does not answer.
    Failing,
    /// Has a full disk.
    Full,
    /// Gets requests with a token that may only read.
    Restricted,
    /// Gets requests with a token that may only write.
    WriteOnly,
}

/// A request, and the expected status of its answer.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) id: &'static str,
    pub(crate) status: u16,
    server: Server,
    method: &'static str,
    /// The URL, with placeholders that [`Servers::fill`] replaces, such as `{other}` for a missing render.
    url: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
}

impl Scenario {
    const fn on(self, server: Server) -> Self {
        Self { server, ..self }
    }

    const fn with(self, headers: &'static [(&'static str, &'static str)]) -> Self {
        Self { headers, ..self }
    }

    /// Whether the scenario is a request for a URL of this template.
    pub(crate) fn is_of(&self, method: &str, template: &str) -> bool {
        let segments = |url: &str| url.split(['/', '?']).map(str::to_owned).collect::<Vec<_>>();
        let url = self.url.split('&').next().unwrap_or_default();
        // The queries of HTML pages are not part of their templates.
        let url = if template.contains('?') { url } else { url.split('?').next().unwrap_or_default() };
        let (url, template) = (segments(url), segments(template));
        let fits =
            |(part, name): (&String, &String)| part == name || (name.starts_with('{') && !part.is_empty());
        self.method == method && url.len() == template.len() && url.iter().zip(&template).all(fits)
    }
}

const fn get(id: &'static str, status: u16, url: &'static str) -> Scenario {
    Scenario { id, status, server: Server::Open, method: "GET", url, headers: &[], body: "" }
}

const fn post(id: &'static str, status: u16, url: &'static str, body: &'static str) -> Scenario {
    Scenario {
        method: "POST",
        headers: &[("content-type", "application/x-www-form-urlencoded")],
        body,
        ..get(id, status, url)
    }
}

const fn put(id: &'static str, status: u16, url: &'static str, body: &'static str) -> Scenario {
    Scenario { method: "PUT", headers: &[("content-type", "text/html")], body, ..get(id, status, url) }
}

const ANY: &[(&str, &str)] = &[("if-none-match", "*")];
const OTHER: &[(&str, &str)] = &[("if-match", "\"other\"")];
/// The host of the domain `enwiki`.
const HOST: (&str, &str) = ("host", "en.example.org");

const RANGE: &[(&str, &str)] = &[("range", "bytes=0-1")];
const BEYOND: &[(&str, &str)] = &[("range", "bytes=1000-")];
const XML: &[(&str, &str)] = &[("content-type", "application/xml")];

/// More bytes than a request for a token may have.
const TOO_LARGE: &str = match std::str::from_utf8(&[b' '; (64 << 10) + 1]) {
    Ok(text) => text,
    Err(_) => panic!("spaces are UTF-8"),
};

/// More bytes than all headers of an entry may have.
const LONG: &str = match std::str::from_utf8(&[b'x'; 8 << 10]) {
    Ok(text) => text,
    Err(_) => panic!("letters are UTF-8"),
};

/// The headers of a definition of a bucket that must not exist yet.
const NEW_JSON: &[(&str, &str)] = &[("content-type", "application/json"), ("if-none-match", "*")];

const fn define(status: u16, url: &'static str, body: &'static str) -> Scenario {
    Scenario { headers: &[("content-type", "application/json")], ..put("putBucket", status, url, body) }
}

const fn put_entry(status: u16, url: &'static str) -> Scenario {
    put("putEntry", status, url, "x")
}

const fn delete(id: &'static str, status: u16, url: &'static str) -> Scenario {
    Scenario { method: "DELETE", ..get(id, status, url) }
}

const fn make_token(status: u16, body: &'static str) -> Scenario {
    Scenario {
        headers: &[("content-type", "application/json")],
        ..post("makeToken", status, "/v1/tokens", body)
    }
}

const fn batch(status: u16, body: &'static str) -> Scenario {
    Scenario {
        headers: &[("content-type", "application/json")],
        ..post("sendBatch", status, "/v1/batch", body)
    }
}

/// A text, bytes, an error and an element that is no request.
const BATCH: &str = r#"[
    {"method": "GET", "path": "/v1/enwiki/page/Main_Page?rev/latest/html"},
    {"method": "GET", "path": "/v1/enwiki/page/Main_Page?rev/latest/html", "headers": {"accept-encoding": "zstd"}},
    {"method": "GET", "path": "/nothing"},
    7
]"#;

const fn revoke_token(status: u16, url: &'static str) -> Scenario {
    Scenario { method: "DELETE", ..get("revokeToken", status, url) }
}

/// At least one request for every answer of every operation except 301, in the order in which they are sent. The page
/// has revisions 1 and 2; revision 2 has html, wikitext and small.
pub(crate) const SCENARIOS: &[Scenario] = &[
    get("readLatestProperty", 200, "/v1/enwiki/page/Main_Page?rev/latest/html"),
    get("readLatestProperty", 206, "/v1/enwiki/page/Main_Page?rev/latest/html").with(RANGE),
    get("readLatestProperty", 304, "/v1/enwiki/page/Main_Page?rev/latest/html").with(ANY),
    get("readLatestProperty", 404, "/v1/enwiki/page/Main_Page?rev/latest/meta"),
    get("readLatestProperty", 412, "/v1/enwiki/page/Main_Page?rev/latest/html").with(OTHER),
    get("readLatestProperty", 416, "/v1/enwiki/page/Main_Page?rev/latest/html").with(BEYOND),
    get("readLatestRender", 200, "/v1/enwiki/page/Main_Page?rev/latest/"),
    get("readLatestRender", 304, "/v1/enwiki/page/Main_Page?rev/latest/").with(ANY),
    get("readLatestRender", 404, "/v1/enwiki/page/Other?rev/latest/"),
    get("readLatestRender", 412, "/v1/enwiki/page/Main_Page?rev/latest/").with(OTHER),
    get("listRevisions", 200, "/v1/enwiki/page/Main_Page?rev/"),
    get("listRevisions", 200, "/v1/enwiki/page/Main_Page?rev/&limit=1"),
    get("listRevisions", 304, "/v1/enwiki/page/Main_Page?rev/").with(ANY),
    get("listRevisions", 400, "/v1/enwiki/page/Main_Page?rev/&limit=0"),
    get("listRevisions", 404, "/v1/enwiki/page/Other?rev/"),
    get("listRevisions", 412, "/v1/enwiki/page/Main_Page?rev/").with(OTHER),
    get("readRevision", 200, "/v1/enwiki/page/Main_Page?rev/2/"),
    get("readRevision", 304, "/v1/enwiki/page/Main_Page?rev/2/").with(ANY),
    get("readRevision", 400, "/v1/enwiki/page/Main_Page?rev/2/&limit=0"),
    get("readRevision", 404, "/v1/enwiki/page/Main_Page?rev/3/"),
    get("readRevision", 412, "/v1/enwiki/page/Main_Page?rev/2/").with(OTHER),
    get("findPropertyOfRevision", 302, "/v1/enwiki/page/Main_Page?rev/2/html"),
    get("findPropertyOfRevision", 404, "/v1/enwiki/page/Main_Page?rev/2/meta"),
    get("findPropertyOfRevision", 502, "/v1/enwiki/page/Main_Page?rev/2/broken"),
    get("findPropertyOfRevision", 504, "/v1/enwiki/page/Main_Page?rev/1/broken"),
    get("readLatestProperty", 502, "/v1/enwiki/page/Main_Page?rev/latest/broken"),
    get("readRender", 200, "/v1/enwiki/page/Main_Page?rev/{tid}/"),
    get("readRender", 304, "/v1/enwiki/page/Main_Page?rev/{tid}/").with(ANY),
    get("readRender", 404, "/v1/enwiki/page/Main_Page?rev/{other}/"),
    get("readRender", 412, "/v1/enwiki/page/Main_Page?rev/{tid}/").with(OTHER),
    get("readProperty", 200, "/v1/enwiki/page/Main_Page?rev/{tid}/html"),
    get("readProperty", 206, "/v1/enwiki/page/Main_Page?rev/{tid}/html").with(RANGE),
    get("readProperty", 304, "/v1/enwiki/page/Main_Page?rev/{tid}/html").with(ANY),
    get("readProperty", 404, "/v1/enwiki/page/Main_Page?rev/{tid}/meta"),
    get("readProperty", 412, "/v1/enwiki/page/Main_Page?rev/{tid}/html").with(OTHER),
    get("readProperty", 416, "/v1/enwiki/page/Main_Page?rev/{tid}/html").with(BEYOND),
    get("readPage", 302, "/v1/enwiki/page/Main_Page"),
    get("openRevisions", 302, "/v1/enwiki/page/Main_Page?rev"),
    get("openLatest", 302, "/v1/enwiki/page/Main_Page?rev/latest"),
    get("openRevision", 302, "/v1/enwiki/page/Main_Page?rev/2"),
    get("openRender", 302, "/v1/enwiki/page/Main_Page?rev/{tid}"),
    Scenario { method: "OPTIONS", ..get("askForMethods", 204, "/v1/enwiki/page/Main_Page") },
    get("readPageOfHost", 302, "/wiki/Main_Page").with(&[("host", "en.example.org")]),
    get("readPageOfHost", 404, "/wiki/Main_Page").with(&[("host", "de.example.org")]),
    get("findPropertyAtTime", 302, "/v1/enwiki/page/Main_Page?rev/2024-01-02T00:00:00Z/html"),
    get("findPropertyAtTime", 404, "/v1/enwiki/page/Main_Page?rev/2013-02-23T22:23:24Z/html"),
    get("timegate", 302, "/v1/enwiki/page/Main_Page?timegate/html"),
    get("timegate", 400, "/v1/enwiki/page/Main_Page?timegate/html").with(&[("accept-datetime", "yesterday")]),
    get("timegate", 404, "/v1/enwiki/page/Main_Page?timegate/meta"),
    get("timemap", 200, "/v1/enwiki/page/Main_Page?timemap/html"),
    get("timemap", 304, "/v1/enwiki/page/Main_Page?timemap/html").with(ANY),
    get("timemap", 400, "/v1/enwiki/page/Main_Page?timemap/html&limit=x"),
    get("timemap", 404, "/v1/enwiki/page/Main_Page?timemap/meta"),
    get("timemap", 412, "/v1/enwiki/page/Main_Page?timemap/html").with(OTHER),
    post("writeRevision", 201, "/v1/enwiki/page/New?rev/", "_rev=1&html=x"),
    get("readLatestProperty", 504, "/v1/enwiki/page/New?rev/latest/broken"),
    post("writeRevision", 200, "/v1/enwiki/page/Main_Page?rev/", "_rev=1&html=one"),
    post("writeRevision", 400, "/v1/enwiki/page/Main_Page?rev/", "html=x"),
    post("writeRevision", 403, "/v1/enwiki/page/Main_Page?rev/", "_rev=9&html=x").on(Server::ReadOnly),
    post("writeRevision", 409, "/v1/enwiki/page/Main_Page?rev/", "_rev=1&html=other"),
    post("writeRevision", 409, "/v1/enwiki/page/Main_Page?rev/", "_rev=3&html=x&_if_latest=1"),
    post("writeRevision", 409, "/v1/enwiki/page/Nowhere?rev/", "_rev=3&html=x&_if_latest=1"),
    post("writeRevision", 413, "/v1/enwiki/page/Main_Page?rev/", "_rev=3&small=12345678901"),
    post("writeRevision", 415, "/v1/enwiki/page/Main_Page?rev/", "<a/>").with(XML),
    post("writeRevision", 422, "/v1/enwiki/page/Main_Page?rev/", "_rev=Other?rev/3&html=x"),
    post("writeRender", 201, "/v1/enwiki/page/Main_Page?rev/1/", "html=again"),
    post("writeRender", 200, "/v1/enwiki/page/Main_Page?rev/2/", "html=two"),
    post("writeRender", 400, "/v1/enwiki/page/Main_Page?rev/2/", "_rev=2&html=x"),
    post("writeRender", 403, "/v1/enwiki/page/Main_Page?rev/2/", "html=x").on(Server::ReadOnly),
    post("writeRender", 404, "/v1/enwiki/page/Main_Page?rev/3/", "html=x"),
    post("writeRender", 409, "/v1/enwiki/page/Main_Page?rev/2/", "wikitext=other"),
    post("writeRender", 413, "/v1/enwiki/page/Main_Page?rev/2/", "small=12345678901"),
    post("writeRender", 415, "/v1/enwiki/page/Main_Page?rev/2/", "<a/>").with(XML),
    post("writeRender", 422, "/v1/enwiki/page/Main_Page?rev/2/", "html=x&_timestamp=2124-01-01T00:00:00Z"),
    post("writeRenderFrom", 201, "/v1/enwiki/page/Main_Page?rev/{first}/", "html=once+more"),
    post("writeRenderFrom", 200, "/v1/enwiki/page/Main_Page?rev/{tid}/", "html=two"),
    post("writeRenderFrom", 400, "/v1/enwiki/page/Main_Page?rev/{tid}/", "_user=Ann&html=x"),
    post("writeRenderFrom", 403, "/v1/enwiki/page/Main_Page?rev/{tid}/", "html=x").on(Server::ReadOnly),
    post("writeRenderFrom", 404, "/v1/enwiki/page/Main_Page?rev/{other}/", "html=x"),
    post("writeRenderFrom", 409, "/v1/enwiki/page/Main_Page?rev/{tid}/", "html=x&_if_latest=1"),
    post("writeRenderFrom", 413, "/v1/enwiki/page/Main_Page?rev/{tid}/", "small=12345678901"),
    post("writeRenderFrom", 415, "/v1/enwiki/page/Main_Page?rev/{tid}/", "<a/>").with(XML),
    post(
        "writeRenderFrom",
        422,
        "/v1/enwiki/page/Main_Page?rev/{tid}/",
        "html=x&_timestamp=1989-01-01T00:00:00Z",
    ),
    put("replaceProperty", 412, "/v1/enwiki/page/Main_Page?rev/{tid}/html", "x").with(OTHER),
    put("replaceProperty", 400, "/v1/enwiki/page/Main_Page?rev/{tid}/html", "x").with(ANY),
    put("replaceProperty", 403, "/v1/enwiki/page/Main_Page?rev/{tid}/html", "x").on(Server::ReadOnly),
    put("replaceProperty", 404, "/v1/enwiki/page/Main_Page?rev/{tid}/meta", "x"),
    put("replaceProperty", 413, "/v1/enwiki/page/Main_Page?rev/{tid}/small", "12345678901"),
    put("replaceProperty", 415, "/v1/enwiki/page/Main_Page?rev/{tid}/html", "x")
        .with(&[("content-encoding", "gzip")]),
    post("writeRevision", 507, "/v1/enwiki/page/Main_Page?rev/", "_rev=9&html=x").on(Server::Full),
    post("writeRender", 507, "/v1/enwiki/page/Main_Page?rev/2/", "html=x").on(Server::Full),
    post("writeRenderFrom", 507, "/v1/enwiki/page/Main_Page?rev/{full}/", "html=x").on(Server::Full),
    put("replaceProperty", 507, "/v1/enwiki/page/Main_Page?rev/{full}/html", "x").on(Server::Full),
    put("replaceProperty", 200, "/v1/enwiki/page/Main_Page?rev/{tid}/html", "two, with love"),
    Scenario { headers: &[], ..post("importHistory", 200, "/v1/imported/import", EXPORT) },
    Scenario { headers: &[], ..post("importHistory", 400, "/v1/imported/import", "<html/>") },
    Scenario { headers: &[], ..post("importHistory", 403, "/v1/imported/import", EXPORT) }
        .on(Server::ReadOnly),
    Scenario { headers: &[], ..post("importHistory", 404, "/v1/enwiki/import?bucket=none", EXPORT) },
    Scenario { headers: &[], ..post("importHistory", 422, "/v1/enwiki/import?bucket=math-png", EXPORT) },
    Scenario { headers: &[], ..post("importHistory", 507, "/v1/imported/import", EXPORT) }.on(Server::Full),
    Scenario { headers: &[], ..post("importHistory", 503, "/v1/imported/import", EXPORT) }.on(Server::Busy),
    batch(200, BATCH),
    batch(400, "{}"),
    batch(413, TOO_LARGE).on(Server::Busy),
    batch(415, BATCH).with(XML),
    get("listBuckets", 200, "/v1/enwiki/"),
    get("listBuckets", 200, "/v1/enwiki/?limit=1"),
    get("listBuckets", 400, "/v1/enwiki/?limit=0"),
    get("listEntries", 200, "/v1/enwiki/math-png/"),
    get("listEntries", 200, "/v1/enwiki/math-png/?limit=1"),
    get("listEntries", 200, "/v1/enwiki/clicks/"),
    get("listEntries", 400, "/v1/enwiki/math-png/?prefix=a"),
    get("listEntries", 404, "/v1/enwiki/none/"),
    get("readBucket", 200, "/v1/enwiki/math-png"),
    get("readBucket", 304, "/v1/enwiki/math-png").with(ANY),
    get("readBucket", 404, "/v1/enwiki/none"),
    get("readBucket", 412, "/v1/enwiki/math-png").with(OTHER),
    define(201, "/v1/enwiki/new", r#"{"type": "ordered-blob", "public": true, "ttl": 60, "max_size": 5}"#),
    define(200, "/v1/enwiki/math-png", r#"{"type": "blob", "public": true}"#),
    define(400, "/v1/enwiki/math-png", r#"{"type": "blob", "x": 1}"#),
    define(403, "/v1/enwiki/math-png", r#"{"type": "blob"}"#).on(Server::Restricted),
    define(409, "/v1/enwiki/math-png", r#"{"type": "blob", "ttl": 60}"#),
    define(412, "/v1/enwiki/math-png", r#"{"type": "blob"}"#).with(NEW_JSON),
    define(413, "/v1/enwiki/math-png", TOO_LARGE),
    define(415, "/v1/enwiki/math-png", "<a/>").with(XML),
    define(422, "/v1/enwiki/math-png", r#"{"type": "blob", "ttl": 0}"#),
    define(507, "/v1/enwiki/new", r#"{"type": "blob"}"#).on(Server::Full),
    get("readEntry", 200, "/v1/enwiki/math-png/a.png"),
    get("readEntry", 206, "/v1/enwiki/math-png/a.png").with(RANGE),
    get("readEntry", 304, "/v1/enwiki/math-png/a.png").with(ANY),
    get("readEntry", 404, "/v1/enwiki/math-png/b.png"),
    get("readEntry", 412, "/v1/enwiki/math-png/a.png").with(OTHER),
    get("readEntry", 416, "/v1/enwiki/math-png/a.png").with(BEYOND),
    get("readEntryOfHost", 200, "/wiki/?blob/math-png/a.png").with(&[HOST]),
    get("readEntryOfHost", 206, "/wiki/?blob/math-png/a.png").with(const { &[HOST, RANGE[0]] }),
    get("readEntryOfHost", 304, "/wiki/?blob/math-png/a.png").with(const { &[HOST, ANY[0]] }),
    get("readEntryOfHost", 404, "/wiki/?blob/math-png/b.png").with(&[HOST]),
    get("readEntryOfHost", 412, "/wiki/?blob/math-png/a.png").with(const { &[HOST, OTHER[0]] }),
    get("readEntryOfHost", 416, "/wiki/?blob/math-png/a.png").with(const { &[HOST, BEYOND[0]] }),
    put_entry(201, "/v1/enwiki/math-png/new.png"),
    put_entry(200, "/v1/enwiki/math-png/new.png"),
    put_entry(400, "/v1/enwiki/math-png/new.png").with(&[("content-type", "png")]),
    put_entry(403, "/v1/enwiki/math-png/new.png").on(Server::Restricted),
    put_entry(404, "/v1/enwiki/none/new.png"),
    put_entry(412, "/v1/enwiki/math-png/new.png").with(OTHER),
    Scenario { body: "123456", ..put_entry(413, "/v1/enwiki/new/new.png") },
    put_entry(415, "/v1/enwiki/math-png/new.png").with(&[("content-encoding", "gzip")]),
    put_entry(422, "/v1/enwiki/math-png/new.png").with(&[("x-long", LONG)]),
    put_entry(507, "/v1/enwiki/math-png/new.png").on(Server::Full),
    delete("deleteEntry", 403, "/v1/enwiki/math-png/new.png").on(Server::Restricted),
    delete("deleteEntry", 404, "/v1/enwiki/none/new.png"),
    delete("deleteEntry", 412, "/v1/enwiki/math-png/new.png").with(OTHER),
    delete("deleteEntry", 507, "/v1/enwiki/math-png/a.png").on(Server::Full),
    delete("deleteEntry", 204, "/v1/enwiki/math-png/new.png"),
    post("incrementCounter", 200, "/v1/enwiki/clicks/a", "increment=5"),
    post("incrementCounter", 204, "/v1/enwiki/clicks/a", "increment=5").on(Server::WriteOnly),
    post("incrementCounter", 400, "/v1/enwiki/clicks/a", "increment=x"),
    post("incrementCounter", 403, "/v1/enwiki/clicks/a", "").on(Server::Restricted),
    post("incrementCounter", 404, "/v1/enwiki/none/a", ""),
    post("incrementCounter", 405, "/v1/enwiki/math-png/a.png", ""),
    post("incrementCounter", 413, "/v1/enwiki/clicks/a", TOO_LARGE),
    post("incrementCounter", 415, "/v1/enwiki/clicks/a", "<a/>").with(XML),
    post("incrementCounter", 422, "/v1/enwiki/clicks/a", "increment=9223372036854775807"),
    post("incrementCounter", 507, "/v1/enwiki/clicks/a", "").on(Server::Full),
    delete("deleteEntry", 204, "/v1/enwiki/clicks/a"),
    delete("deleteBucket", 403, "/v1/enwiki/new").on(Server::Restricted),
    delete("deleteBucket", 404, "/v1/enwiki/none"),
    delete("deleteBucket", 412, "/v1/enwiki/new").with(OTHER),
    delete("deleteBucket", 507, "/v1/enwiki/math-png").on(Server::Full),
    delete("deleteBucket", 204, "/v1/enwiki/new"),
    make_token(201, TOKEN_REQUEST),
    make_token(400, "{"),
    make_token(403, TOKEN_REQUEST).on(Server::Restricted),
    make_token(403, TOKEN_REQUEST).on(Server::ReadOnly),
    make_token(413, TOO_LARGE),
    make_token(415, TOKEN_REQUEST).with(XML),
    make_token(422, r#"{"rights": ["reed"], "domains": ["enwiki"]}"#),
    get("listTokens", 200, "/v1/tokens"),
    get("listTokens", 200, "/v1/tokens?limit=1"),
    get("listTokens", 400, "/v1/tokens?limit=0"),
    get("listTokens", 403, "/v1/tokens").on(Server::Restricted),
    revoke_token(400, "/v1/tokens/1"),
    revoke_token(403, "/v1/tokens/{id}").on(Server::Restricted),
    revoke_token(403, "/v1/tokens/{id}").on(Server::ReadOnly),
    revoke_token(404, "/v1/tokens/00000000000000000000"),
    revoke_token(204, "/v1/tokens/{id}"),
    get("health", 200, "/healthz"),
    get("readiness", 200, "/readyz"),
    get("readiness", 503, "/readyz").on(Server::Failing),
    get("metrics", 200, "/metrics"),
    get("openapi", 200, "/openapi.json"),
    get("openapi", 304, "/openapi.json").with(ANY),
    get("openapi", 412, "/openapi.json").with(OTHER),
    get("documentation", 200, "/docs"),
    get("showDomains", 200, "/"),
    get("showDomains", 400, "/?x"),
    get("showTitles", 200, "/pages/enwiki/"),
    get("showTitles", 404, "/pages/nowiki/"),
    get("showPage", 200, "/pages/enwiki/Main_Page"),
    get("showPage", 200, "/pages/enwiki/Main_Page?rev/{tid}/"),
    get("showPage", 404, "/pages/enwiki/Other"),
    get("showTitlesOfBucket", 200, "/buckets/enwiki/docs/"),
    get("showTitlesOfBucket", 404, "/buckets/enwiki/none/"),
    get("showPageOfBucket", 200, "/buckets/enwiki/docs/Main_Page"),
    get("showPageOfBucket", 404, "/buckets/enwiki/docs/Other"),
];

/// A request for a token with all members.
const TOKEN_REQUEST: &str = r#"{"rights": ["read", "write"], "domains": ["en*"], "buckets": ["page"],
    "expires": "90d", "note": "Ann's bot"}"#;

const EXPORT: &str = r#"<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <page><title>A</title><ns>0</ns><id>1</id><revision><id>3</id><timestamp>2010-01-01T00:00:00Z</timestamp>
  <contributor><username>Ann</username><id>1</id></contributor><model>wikitext</model><format>text/x-wiki</format>
  <text bytes="1" xml:space="preserve">x</text></revision></page></mediawiki>"#;

/// Creates a bucket with an entry, one with a counter, and one with a page.
async fn fill_buckets(world: &World) {
    let json = [("content-type", "application/json")];
    world
        .request("PUT", "/v1/enwiki/math-png", &json, r#"{"type": "blob", "public": true}"#)
        .await
        .expect(201);
    world.request("PUT", "/v1/enwiki/math-png/a.png", &[], "image").await.expect(201);
    world.request("PUT", "/v1/enwiki/clicks", &json, r#"{"type": "counter"}"#).await.expect(201);
    world.request("POST", "/v1/enwiki/clicks/a", &[], "").await.expect(200);
    world.request("PUT", "/v1/enwiki/docs", &json, r#"{"type": "revisioned"}"#).await.expect(201);
    world.post("/v1/enwiki/docs/Main_Page?rev/", "_rev=1&html=x").await.expect(201);
}

/// The servers that get requests.
pub(crate) struct Servers {
    pub(crate) open: World,
    read_only: World,
    busy: World,
    failing: World,
    full: World,
    restricted: World,
    /// The text of a token that may only read, and the id of that token.
    token: TokenText,
    /// The text of a token that may only write.
    write_token: TokenText,
    first: String,
    tid: String,
    full_tid: String,
}

impl Servers {
    pub(crate) async fn start() -> Self {
        let hosts = [("en.example.org".to_owned(), DomainName::new("enwiki").unwrap())];
        let settings = || Settings { hosts: hosts.clone().into(), ..Settings::default() };
        let open = World::with(settings()).await;
        let first = open.revision("_rev=1&html=one").await;
        let tid =
            open.revision("_rev=2&_parent=1&html=two&wikitext=text&small=x&_user=Ann&_comment=More").await;
        open.clock.advance(Duration::from_secs(60));
        fill_buckets(&open).await;
        let failing = World::new().await;
        failing.store.set_plan(Plan::seeded(1, Rates { before: 1000, ..Rates::default() }));
        let full = World::new().await;
        full.revision("_rev=1&html=one").await;
        let full_tid = full.revision("_rev=2&html=two").await;
        let writes = 1..=FAILING_WRITES;
        fill_buckets(&full).await;
        full.store.set_plan(writes.fold(Plan::empty(), |plan, call| {
            plan.on(Call::Write, call, Fault::Before).on(Call::Swap, call, Fault::Before)
        }));
        full.store.set_outage(Outage::StorageFull { path: FULL_DISK.into(), detail: "no space".to_owned() });
        let restricted = open.with_access(settings(), AnonymousRights::default());
        let create_token = async |right| {
            let rights = Rights::from_iter([right]);
            let grant = Grant { rights, domains: vec![DomainPattern::any()], buckets: None };
            let new = NewToken { grant, expires_at: None, note: None };
            open.access.create_token(new).await.unwrap()
        };
        let token = create_token(Right::Read).await;
        let write_token = create_token(Right::Write).await;
        Self {
            restricted,
            token,
            write_token,
            open,
            read_only: World::with(Settings { read_only: true, ..settings() }).await,
            busy: World::with(Settings { max_imports: 0, max_body_bytes: 4096, ..settings() }).await,
            failing,
            full,
            first,
            tid,
            full_tid,
        }
    }

    /// Fills in a URL template with existing values.
    pub(crate) fn fill(&self, template: &str) -> String {
        [
            ("domain}/{bucket}/{title", "enwiki/docs/Main_Page"),
            ("domain", "enwiki"),
            ("title", "Main_Page"),
            ("rev", "2"),
            ("tid", self.tid.as_str()),
            ("first", self.first.as_str()),
            ("full", self.full_tid.as_str()),
            ("other", OTHER_TID),
            ("time", "2024-01-02T00:00:00Z"),
            ("property", "html"),
            ("bucket", "math-png"),
            ("key", "a.png"),
            ("id", self.token.id().as_str()),
        ]
        .iter()
        .fold(template.to_owned(), |url, (name, value)| url.replace(&format!("{{{name}}}"), value))
    }

    pub(crate) async fn ask(&self, scenario: &Scenario) -> Answer {
        let world = match scenario.server {
            Server::Open => &self.open,
            Server::ReadOnly => &self.read_only,
            Server::Busy => &self.busy,
            Server::Failing => &self.failing,
            Server::Full => &self.full,
            Server::Restricted | Server::WriteOnly => &self.restricted,
        };
        let token = match scenario.server {
            Server::Restricted => Some(&self.token),
            Server::WriteOnly => Some(&self.write_token),
            _ => None,
        };
        let bearer = token.map(|token| format!("Bearer {}", token.reveal()));
        let mut headers = scenario.headers.to_vec();
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        world.request(scenario.method, &self.fill(scenario.url), &headers, scenario.body).await
    }
}
