//! Checks that a client that may not read cannot find out what exists. Of two servers, one has content and the other
//! has none. Both must give the client equal answers to equal requests.

use rashomon_server::Settings;
use rashomon_server::access::{AnonymousRights, Right};
use rashomon_tables::Call;

use super::{BROWSER, comparable, domain, fill, grant, page_of, servers};
use crate::world::{PAGE, World};

/// A tid that no render here has.
const OTHER_TID: &str = "8f545ba0-2601-11e3-885c-4160918f0fb9";

/// A server with content and one without, and callers that may not read `enwiki` on either.
struct Pair {
    full: World,
    empty: World,
    tid: String,
    /// For each caller its name, and its token on the first server and on the second one.
    callers: Vec<(&'static str, [String; 2])>,
}

impl Pair {
    async fn new() -> Self {
        let settings = || Settings {
            hosts: [("enwiki.example.org".to_owned(), domain("enwiki"))].into(),
            ..Settings::default()
        };
        let (open, full) = servers(settings(), AnonymousRights::default()).await;
        let (_, empty) = servers(settings(), AnonymousRights::default()).await;
        let [_, tid] = fill(&open, "enwiki").await;
        open.post("/v1/enwiki/page/Other?rev/", "_rev=9&meta=x").await.expect(201);
        // Both servers have the same time and the same callers.
        empty.clock.set(rashomon_clock::Clock::now(&*full.clock));
        let not_read = [Right::Write, Right::Import, Right::Rewrite, Right::Admin];
        let mut callers = vec![("nobody", [String::new(), String::new()])];
        for (name, grant) in [
            ("no right to read", grant(&not_read, &["*"], None)),
            ("another domain", grant(&Right::ALL, &["dewiki"], None)),
            ("another bucket", grant(&Right::ALL, &["enwiki"], Some(&["other"]))),
        ] {
            let tokens = [full.token_of(grant.clone(), None).await, empty.token_of(grant, None).await];
            callers.push((name, tokens));
        }
        Self { full, empty, tid, callers }
    }

    /// URLs that read, in groups. The URLs of a group differ only in what they name: things that exist, and
    /// things that do not.
    fn urls(&self) -> Vec<Vec<String>> {
        let tid = self.tid.as_str();
        let tids = [tid, OTHER_TID];
        let mut groups = Vec::new();
        for base in ["/v1/enwiki/page/", "/pages/enwiki/", "/wiki/"] {
            let titles = ["Main_Page", "Other", "Nowhere"].map(|title| format!("{base}{title}"));
            let mut group = |queries: &[String]| {
                let urls = titles
                    .iter()
                    .flat_map(|title| queries.iter().map(move |query| format!("{title}{query}")));
                groups.push(urls.collect::<Vec<_>>());
            };
            let of = |before: &str, names: &[&str], after: &str| {
                names.iter().map(|name| format!("{before}{name}{after}")).collect::<Vec<_>>()
            };
            group(&of("", &[""], ""));
            group(&of("?", &["rev"], ""));
            group(&of("?", &["rev/", "rev/&limit=1"], ""));
            group(&of("?rev/", &["latest", "latest/"], ""));
            group(&of("?rev/latest/", &["html", "wikitext", "meta"], ""));
            group(&of("?rev/", &["1", "2", "3"], ""));
            group(&of("?rev/", &["1", "2", "3"], "/"));
            group(&of("?rev/", &["1", "2", "3"], "/html"));
            group(&of("?rev/2/", &["html", "meta"], ""));
            group(&of("?rev/", &tids, ""));
            group(&of("?rev/", &tids, "/"));
            group(&of("?rev/", &tids, "/html"));
            group(&of(&format!("?rev/{tid}/"), &["html", "meta"], ""));
            group(&of("?rev/", &["2024-01-02T00:00:00Z", "2013-01-01T00:00:00Z"], "/html"));
            group(&of("?timegate/", &["html", "meta"], ""));
            group(&of("?timemap/", &["html", "meta"], ""));
            // Another spelling of a title, which readers are redirected from.
            groups.push([format!("{base}Main%5FPage"), format!("{base}No%5Fwhere")].into());
        }
        groups.push(vec!["/pages/enwiki/".to_owned()]);
        groups.push(vec!["/pages/enwiki".to_owned()]);
        groups.push(["Main_Page", "Other", "No"].map(|title| format!("/pages/enwiki/?after={title}")).into());
        groups.push(["Main_Page", "Other", "No"].map(|title| format!("/pages/enwiki/?title={title}")).into());
        groups.push(
            ["2024-01-02T00:00", "2013-01-01T00:00"]
                .map(|at| format!("/pages/enwiki/Main_Page?at={at}"))
                .into(),
        );
        groups.push(vec!["/docs".to_owned()]);
        groups.push(["/", "/?after=aawiki", "/?after=enwiki"].map(str::to_owned).into());
        groups
    }
}

/// Headers on which the answers to readers depend.
const HEADERS: [&[(&str, &str)]; 8] = [
    &[],
    &[BROWSER],
    &[("if-none-match", "*")],
    &[("if-match", "\"x\"")],
    &[("if-modified-since", "Mon, 01 Jan 2024 00:00:00 GMT")],
    &[("if-unmodified-since", "Mon, 01 Jan 2001 00:00:00 GMT")],
    &[("range", "bytes=0-1"), ("accept-encoding", "zstd")],
    &[("accept-datetime", "Mon, 01 Jan 2024 00:00:30 GMT")],
];

#[tokio::test]
async fn answers_without_read_do_not_depend_on_stored_content() {
    let pair = Pair::new().await;
    let mut compared = 0;
    for (name, [on_full, on_empty]) in &pair.callers {
        for group in pair.urls() {
            let mut first = None;
            for (url, method) in group.iter().flat_map(|url| [(url, "GET"), (url, "HEAD")]) {
                for of_request in HEADERS {
                    let headers = [of_request, &[("host", "enwiki.example.org")]].concat();
                    let full = pair.full.ask(on_full, method, url, &headers, "").await;
                    let empty = pair.empty.ask(on_empty, method, url, &headers, "").await;
                    let shown = format!("{name}: {method} {url} {headers:?}");
                    assert_eq!(comparable(full.clone(), false), comparable(empty, false), "{shown}");
                    if url != "/docs" {
                        let expected = if on_full.is_empty() { 401 } else { 403 };
                        let is_list = url.starts_with("/?") || url == "/";
                        let may_list = is_list && name.starts_with("another");
                        assert!(may_list || full.status == expected, "{shown}: {}", full.status);
                    }
                    // The answers for all URLs of a group are equal. HTML is left out: it has links that are derived
                    // from the URL of the request.
                    if method == "GET" && of_request != [BROWSER] {
                        let answer = comparable(full, true);
                        assert_eq!(first.get_or_insert_with(|| answer.clone()), &answer, "{shown}");
                    }
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 10_000, "{compared}");
}

/// If the store were asked, the time until the refusal would depend on stored content.
#[tokio::test]
async fn refused_read_does_not_ask_the_store() {
    let pair = Pair::new().await;
    let calls = || [Call::Get, Call::Scan, Call::Partitions].map(|call| pair.full.store.calls(call));
    for (name, [token, _]) in &pair.callers {
        let urls = pair.urls().into_iter().flatten();
        let urls: Vec<_> = urls
            .filter(|url| ["/v1/", "/wiki/", "/pages/"].iter().any(|path| url.starts_with(path)))
            .collect();
        assert!(urls.len() > 100);
        // The store is asked for the token once.
        pair.full.ask(token, "GET", PAGE, &[], "").await;
        let before = calls();
        for url in urls {
            for of_request in HEADERS {
                let headers = [of_request, &[("host", "enwiki.example.org")]].concat();
                pair.full.ask(token, "GET", &url, &headers, "").await;
                assert_eq!(calls(), before, "{name}: {url} {headers:?}");
            }
        }
    }
}

#[tokio::test]
async fn page_of_a_problem_does_not_show_whether_the_title_exists() {
    let pair = Pair::new().await;
    let (_, [token, _]) = &pair.callers[1];
    let show = async |title: &str| {
        let url = format!("/pages/enwiki/{title}");
        let answer = pair.full.ask(token, "GET", &url, &[BROWSER], "").await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("content-type")),
            (403, "text/html; charset=utf-8")
        );
        answer.text().replace(title, "TITLE")
    };
    assert_eq!(show("Other").await, show("Never").await);
}

#[tokio::test]
async fn stored_content_is_shown_only_to_readers() {
    let pair = Pair::new().await;
    let token = pair.full.token(&[Right::Read], &["enwiki"]).await;
    let mut found = 0;
    for url in pair.urls().into_iter().flatten() {
        let answer = pair.full.ask(&token, "GET", &url, &[("host", "enwiki.example.org")], "").await;
        assert!(![401, 403].contains(&answer.status.as_u16()), "{url}: {}", answer.status);
        found += u32::from(answer.status.is_success() || answer.status.is_redirection());
    }
    assert!(found > 30, "{found}");
}

#[tokio::test]
async fn docs_name_only_what_everybody_may_read() {
    for (anonymous, named) in [
        (AnonymousRights::default(), false),
        (super::anonymous_on("aawiki", &[Right::Write]), false),
        (super::anonymous_on("aawiki", &[Right::Read]), true),
    ] {
        let (open, guarded) = servers(Settings::default(), anonymous).await;
        open.post(&format!("{}?rev/", page_of("aawiki")), "_rev=77&html=x").await.expect(201);
        // Clients that may read the page get the same examples, since the examples are for everybody.
        let reader = guarded.token(&[Right::Read], &["*"]).await;
        for token in ["", &reader] {
            let docs = guarded.ask(token, "GET", "/docs", &[], "").await.expect(200);
            assert_eq!(docs.text().contains("/v1/aawiki/page/Main_Page"), named, "{}", docs.text());
        }
    }
}

#[tokio::test]
async fn metrics_name_no_domain_and_no_token() {
    let pair = Pair::new().await;
    let (_, [token, _]) = &pair.callers[1];
    pair.full.ask(token, "GET", &format!("{PAGE}?rev/"), &[], "").await.expect(403);
    let metrics = pair.full.get("/metrics").await.expect(200);
    let id = token.split('_').nth(1).unwrap();
    assert!(!metrics.text().contains("enwiki") && !metrics.text().contains(id));
}
