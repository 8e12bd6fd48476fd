//! What clients learn from a backend that sees the token of the forwarding server, not theirs.

use rashomon_server::access::{AnonymousRights, Policy, Right};
use rashomon_server::registry::ServerList;

use crate::{
    backends::{Behavior, SocketBackend},
    http::{Answer, request, send},
    server::{Parts, Server, entry_of},
};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const JSON: (&str, &str) = ("content-type", "application/json");

fn anonymous(rights: &[Right]) -> Policy {
    let everywhere = rights.iter().copied().collect();
    Policy::Anonymous(AnonymousRights { everywhere, ..AnonymousRights::default() })
}

/// A server that has everything in its own store, and one with the same settings that forwards to a backend, with a
/// token that has all rights there.
struct Servers {
    own: Server,
    front: Server,
}

impl Servers {
    async fn start(rights: &[Right], is_public: bool) -> Self {
        let behind = Server::with(Parts { policy: anonymous(&[]), ..Parts::default() }).await;
        let front = front(behind.url(), &behind.token(&Right::ALL, None).await, rights, is_public).await;
        let own = Server::with(Parts { policy: anonymous(rights), ..Parts::default() }).await;
        Self { own, front }
    }

    /// Sends a request to both servers, with a token of these rights on these buckets. Checks that the answers are
    /// equal, and returns one of them.
    async fn ask(&self, caller: Option<(&[Right], Option<&[&str]>)>, sent: &Sent<'_>) -> Answer {
        let mut answers = Vec::new();
        for server in [&self.own, &self.front] {
            let token = match caller {
                Some((rights, buckets)) => Some(server.token(rights, buckets).await),
                None => None,
            };
            answers.push(sent.send(server, token.as_deref()).await);
        }
        let [own, front] = [&answers[0], &answers[1]];
        let shown = |answer: &Answer| {
            let names = ["etag", "location", "x-rev", "x-parent", "content-type", "retry-after", "allow"];
            let headers = names.map(|name| match name {
                "etag" => answer.headers.contains_key(name).to_string(),
                name => without_tids(answer.header(name)),
            });
            (answer.status, headers, without_tids(answer.text()))
        };
        assert_eq!(shown(front), shown(own), "{sent:?} {caller:?}");
        answers.swap_remove(1)
    }
}

async fn front(backend: String, token: &str, rights: &[Right], is_public: bool) -> Server {
    let directory = tempfile::tempdir().unwrap().keep();
    let file = directory.join("token");
    std::fs::write(&file, token).unwrap();
    let list = ServerList { token_file: Some(file), public: is_public, ..ServerList::new(vec![backend]) };
    let entries = vec![entry_of("/", list)];
    Server::with(Parts { entries, policy: anonymous(rights), ..Parts::default() }).await
}

#[derive(Debug)]
struct Sent<'a> {
    method: &'a str,
    path: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: &'static str,
}

impl Sent<'_> {
    async fn send(&self, server: &Server, token: Option<&str>) -> Answer {
        let authorization = token.map(|token| format!("Bearer {token}"));
        let mut headers = self.headers.to_vec();
        headers.extend(authorization.iter().map(|value| ("authorization", value.as_str())));
        send(server.address, request(self.method, self.path, &headers, self.body)).await
    }
}

fn sent<'a>(
    method: &'a str,
    path: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: &'static str,
) -> Sent<'a> {
    Sent { method, path, headers, body }
}

/// A text with the same id in place of each tid.
fn without_tids(text: &str) -> String {
    let is_of_tid = |letter: char| letter.is_ascii_hexdigit() || letter == '-';
    let words = text.split_inclusive(|letter| !is_of_tid(letter));
    let is_tid = |word: &str| word.len() == 36 && word.matches('-').count() == 4;
    words
        .map(|word| match word.trim_end_matches(|letter| !is_of_tid(letter)) {
            tid if is_tid(tid) => word.replace(tid, "TID"),
            _ => word.to_owned(),
        })
        .collect()
}

const PAGE: &str = "/v1/enwiki/page/Secret?rev/";

/// Stores pages, entries and counters in both servers.
async fn fill(servers: &Servers) {
    let all = Some((&Right::ALL[..], None));
    for (method, path, header, body) in [
        ("POST", PAGE, FORM, "_rev=7&html=secret&wikitext=secret+text&_user=Alice"),
        ("PUT", "/v1/enwiki/payroll", JSON, r#"{"type":"blob"}"#),
        ("PUT", "/v1/enwiki/payroll/alice", JSON, "1"),
        ("PUT", "/v1/enwiki/clicks", JSON, r#"{"type":"counter"}"#),
        ("POST", "/v1/enwiki/clicks/a", FORM, "increment=414141414"),
        ("PUT", "/v1/enwiki/drafts", JSON, r#"{"type":"revisioned"}"#),
        ("POST", "/v1/enwiki/drafts/D?rev/", FORM, "_rev=7&html=secret"),
    ] {
        let answer = servers.ask(all, &sent(method, path, &[header], body)).await;
        assert!(answer.status.is_success(), "{answer:?}");
    }
}

#[tokio::test]
async fn list_of_buckets_has_those_that_the_caller_may_read() {
    let servers = Servers::start(&[Right::Read], false).await;
    fill(&servers).await;
    let list = async |caller: Option<(&[Right], Option<&[&str]>)>, query: &str| {
        let path = format!("/v1/enwiki/{query}");
        let answer = servers.ask(caller, &sent("GET", &path, &[], "")).await;
        answer.text().to_owned()
    };
    let (read, write) = (&[Right::Read][..], &[Right::Write][..]);
    let names = |text: &str| {
        ["clicks", "drafts", "page", "payroll"].map(|name| text.contains(&format!("\"{name}\"")))
    };
    assert_eq!(names(&list(None, "").await), [false, true, true, false]);
    assert_eq!(names(&list(Some((write, None)), "").await), [false, true, true, false]);
    assert_eq!(names(&list(Some((read, Some(&["clicks"][..]))), "").await), [true, true, true, false]);
    assert_eq!(names(&list(Some((read, None)), "").await), [true; 4]);
    // `next` never names a bucket that is not shown, and a part is full although buckets are left out.
    let mut query = "?limit=1".to_owned();
    let mut parts = Vec::new();
    for _ in 0..4 {
        let text = list(None, &query).await;
        let next = text.split("\"next\":\"").nth(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        parts.push(text);
        let Some(next) = next else { break };
        assert!(!next.contains("clicks") && !next.contains("payroll"), "{next}");
        query = next;
    }
    assert_eq!(parts.len(), 2, "{parts:?}");
    for malformed in ["?limit=0", "?limit=501", "?x=1", "?after=A"] {
        assert!(list(None, malformed).await.contains("malformed"), "{malformed}");
    }
    let head = send(servers.front.address, request("HEAD", "/v1/enwiki/", &[], "")).await;
    assert_eq!((head.status.as_u16(), head.text()), (200, ""));

    let nobody = Servers::start(&[], false).await;
    fill(&nobody).await;
    for (caller, status) in
        [(None, 401), (Some((write, None)), 403), (Some((read, Some(&["clicks"][..]))), 200)]
    {
        let answer = nobody.ask(caller, &sent("GET", "/v1/enwiki/", &[], "")).await;
        assert_eq!(answer.status, status, "{caller:?} {answer:?}");
    }
}

#[tokio::test]
async fn buckets_behind_a_public_entry_are_listed() {
    let servers = Servers::start(&[Right::Read], true).await;
    fill(&servers).await;
    let answer = send(servers.front.address, request("GET", "/v1/enwiki/", &[], "")).await;
    assert!(answer.text().contains("payroll"), "{answer:?}");
}

#[tokio::test]
async fn caller_that_may_not_read_gets_the_answers_of_a_server_with_its_own_store() {
    let servers = Servers::start(&[], false).await;
    fill(&servers).await;
    let alice = "/v1/enwiki/payroll/alice";
    let write = &[Right::Write][..];
    let with_import = &[Right::Write, Right::Import][..];
    let (rewrite, admin) = (&[Right::Rewrite][..], &[Right::Admin][..]);
    let if_match = [("if-match", "*"), FORM];
    for (rights, sent, status) in [
        // A revision that is stored already, with the same content and with another one.
        (write, sent("POST", PAGE, &[FORM], "_rev=7&html=secret&wikitext=secret+text&_user=Alice"), 201),
        (write, sent("POST", PAGE, &[FORM], "_rev=7&html=guess"), 409),
        (write, sent("POST", PAGE, &[FORM], "_rev=9&html=x&_if_latest=7"), 403),
        (write, sent("POST", PAGE, &[FORM], "_rev=9&html=x&_if_latest=8"), 403),
        (write, sent("POST", PAGE, &[FORM], "_rev=9&html=x&_timestamp=2019-01-01T00:00:00Z"), 403),
        (with_import, sent("POST", PAGE, &[FORM], "_rev=6&html=x&_timestamp=2019-01-01T00:00:00Z"), 201),
        (write, sent("POST", PAGE, &if_match, "_rev=9&html=x"), 403),
        (write, sent("POST", "/v1/enwiki/page/Secret?rev/7/", &[FORM], "html=secret"), 201),
        (write, sent("POST", "/v1/enwiki/page/Secret?rev/7/", &[FORM], "wikitext=other"), 409),
        (write, sent("POST", "/v1/enwiki/page/Secret?rev/8/", &[FORM], "html=x"), 404),
        (write, sent("POST", "/v1/enwiki/drafts/D?rev/", &[FORM], "_rev=7&html=secret"), 201),
        (write, sent("POST", "/v1/enwiki/drafts/D?rev/", &[FORM], "_rev=7&html=guess"), 409),
        (write, sent("PUT", alice, &[FORM], "1"), 201),
        (write, sent("PUT", "/v1/enwiki/payroll/bob", &[FORM], "1"), 201),
        (write, sent("PUT", alice, &if_match, "1"), 403),
        (write, sent("DELETE", "/v1/enwiki/payroll/carol", &[], ""), 204),
        (write, sent("DELETE", alice, &[], ""), 204),
        (write, sent("POST", "/v1/enwiki/clicks/a", &[FORM], "increment=1"), 204),
        (write, sent("POST", "/v1/enwiki/clicks/a", &[FORM], "increment=9223372036854775807"), 403),
        (write, sent("POST", "/v1/enwiki/clicks/a", &[FORM], "increment=x"), 400),
        (write, sent("DELETE", "/v1/enwiki/clicks/a", &[], ""), 204),
        (write, sent("GET", PAGE, &[], ""), 403),
        (write, sent("PUT", "/v1/enwiki/payroll", &[JSON], r#"{"type":"blob"}"#), 403),
        (
            rewrite,
            sent("PUT", "/v1/enwiki/page/Secret?rev/b2ed53b6-ebb7-11f1-94b2-89b36ab4f02d/html", &[], "x"),
            404,
        ),
        (admin, sent("PUT", "/v1/enwiki/payroll", &[JSON], r#"{"type":"blob"}"#), 201),
        (admin, sent("PUT", "/v1/enwiki/payroll", &[JSON], r#"{"type":"blob","ttl":7}"#), 409),
        (
            admin,
            sent("PUT", "/v1/enwiki/payroll", &[JSON, ("if-none-match", "*")], r#"{"type":"blob"}"#),
            403,
        ),
        (admin, sent("DELETE", "/v1/enwiki/payroll", &[], ""), 204),
        (admin, sent("DELETE", "/v1/enwiki/payroll", &[], ""), 204),
    ] {
        let answer = servers.ask(Some((rights, None)), &sent).await;
        assert_eq!(answer.status, status, "{sent:?} {answer:?}");
        let text = answer.text();
        assert!(!text.contains("secret") && !text.contains("Alice") && !text.contains("4141"), "{answer:?}");
    }
}

/// A client without a token is asked for one, by the status of a server with its own store.
#[tokio::test]
async fn refused_client_without_a_token_is_asked_for_one() {
    let servers = Servers::start(&[Right::Write], true).await;
    fill(&servers).await;
    let big = "increment=9223372036854775807";
    for sent in [
        sent("POST", PAGE, &[FORM], "_rev=9&html=x&_if_latest=7"),
        sent("POST", PAGE, &[FORM], "_rev=9&html=x&_timestamp=2019-01-01T00:00:00Z"),
        sent("POST", "/v1/enwiki/page/Secret?rev/7/", &[FORM], "html=x&_if_latest=7"),
        sent("POST", "/v1/enwiki/drafts/D?rev/", &[FORM], "_rev=9&html=x&_if_latest=7"),
        sent("POST", PAGE, &[("if-match", "*"), FORM], "_rev=9&html=x"),
        sent("PUT", "/v1/enwiki/page", &[JSON], r#"{"type":"blob"}"#),
        sent("GET", PAGE, &[], ""),
    ] {
        let answer = servers.ask(None, &sent).await;
        assert_eq!((answer.status.as_u16(), answer.header("www-authenticate")), (401, "Bearer"), "{sent:?}");
    }
    // The bucket is public behind this entry, but not in the own store of a server.
    let refused = sent("POST", "/v1/enwiki/clicks/a", &[FORM], big).send(&servers.front, None).await;
    assert_eq!((refused.status.as_u16(), refused.header("www-authenticate")), (401, "Bearer"));
    // A token would not change these refusals.
    let readonly = "HTTP/1.1 403 Forbidden\r\nContent-Type: application/problem+json\r\nConnection: close\r\n\r\n\
        {\"detail\":\"this server refuses all writes\"}";
    let own = "HTTP/1.1 403 Forbidden\r\nContent-Type: application/problem+json\r\nConnection: close\r\n\r\n\
        {\"detail\":\"the token does not allow this request, which needs the right 'write' on a bucket\"}";
    let page = "HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n<p>no";
    for answer in [readonly, own, page] {
        let backend = SocketBackend::start(Behavior::Answer(answer)).await;
        let front = front(backend.url(), "own", &[Right::Write], false).await;
        let got = sent("POST", PAGE, &[FORM], "_rev=9&html=x").send(&front, None).await;
        assert_eq!(got.status, 403, "{answer}");
        assert!(answer.ends_with(got.text()), "{got:?}");
    }
}

/// The definition of `page` belongs to every domain.
#[tokio::test]
async fn definition_of_page_is_answered_as_by_a_server_with_its_own_store() {
    let servers = Servers::start(&[], false).await;
    let definition = "/v1/enwiki/page";
    let (blob, revisioned) = (r#"{"type":"blob"}"#, r#"{"type":"revisioned"}"#);
    let (admin, read) = (&[Right::Admin][..], &[Right::Read][..]);
    for (rights, method, body, status) in [
        (&Right::ALL[..], "PUT", blob, 409),
        (&Right::ALL[..], "PUT", revisioned, 200),
        (admin, "PUT", blob, 409),
        (admin, "PUT", revisioned, 201),
        (&[Right::Rewrite, Right::Write], "PUT", revisioned, 403),
        (read, "GET", "", 200),
        (admin, "GET", "", 403),
        (admin, "DELETE", "", 405),
        (read, "DELETE", "", 405),
        (read, "POST", "", 405),
        (read, "OPTIONS", "", 204),
    ] {
        let answer = servers.ask(Some((rights, None)), &sent(method, definition, &[JSON], body)).await;
        assert_eq!(answer.status, status, "{method} {body} {rights:?}");
    }
    for (method, path) in
        [("POST", "/v1/enwiki/"), ("OPTIONS", "/v1/enwiki/"), ("DELETE", "/v1/enwiki/page/A")]
    {
        servers.ask(None, &sent(method, path, &[], "")).await;
    }
}

/// The backend sees one caller, the forwarding server, in place of all callers of that server.
#[tokio::test]
async fn idempotency_key_belongs_to_the_caller_of_the_front() {
    let behind = Server::with(Parts { policy: anonymous(&[]), ..Parts::default() }).await;
    let own_token = behind.token(&Right::ALL, None).await;
    let start = async |tokens| {
        let file = tempfile::tempdir().unwrap().keep().join("token");
        std::fs::write(&file, &own_token).unwrap();
        let list = ServerList { token_file: Some(file), ..ServerList::new(vec![behind.url()]) };
        let (entries, policy) = (vec![entry_of("/", list)], anonymous(&[]));
        Server::with(Parts { entries, policy, tokens, ..Parts::default() }).await
    };
    let first = start(None).await;
    let (alice, bob) = (first.token(&Right::ALL, None).await, first.token(&Right::ALL, None).await);
    let definition = sent("PUT", "/v1/enwiki/clicks", &[JSON], r#"{"type":"counter"}"#);
    assert_eq!(definition.send(&first, Some(&alice)).await.status, 201);
    let increment = async |server: &Server, token: &str, form| {
        let headers = [FORM, ("idempotency-key", "order-1")];
        let answer = sent("POST", "/v1/enwiki/clicks/a", &headers, form).send(server, Some(token)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.text().to_owned()
    };
    assert_eq!(increment(&first, &bob, "increment=0").await, r#"{"value":0}"#);
    assert_eq!(increment(&first, &alice, "increment=5").await, r#"{"value":5}"#);
    // Another server that knows the same tokens, and a server that was started again, send the same keys.
    let second = start(Some(first.tokens.clone())).await;
    for server in [&first, &second] {
        assert_eq!(increment(server, &alice, "increment=5").await, r#"{"value":5}"#);
        assert_eq!(increment(server, &bob, "increment=0").await, r#"{"value":0}"#);
    }
    for key in ["", "a b"] {
        let headers = [FORM, ("idempotency-key", key)];
        let refused = sent("POST", "/v1/enwiki/clicks/a", &headers, "").send(&first, Some(&alice)).await;
        assert_eq!(refused.status, 400, "{refused:?}");
    }
}

#[tokio::test]
async fn import_shows_a_caller_that_may_not_read_no_stored_content() {
    let servers = Servers::start(&[], false).await;
    fill(&servers).await;
    let import = async |text: &str| {
        let xml = format!(
            "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.11/\" version=\"0.11\" xml:lang=\"en\"><page>\
             <title>Secret</title><ns>0</ns><id>1</id><revision><id>7</id><timestamp>2013-02-23T22:23:24Z</timestamp>\
             <contributor><username>Ann</username><id>1</id></contributor><model>wikitext</model>\
             <format>text/x-wiki</format><text xml:space=\"preserve\">{text}</text></revision></page></mediawiki>"
        );
        let token = servers.front.token(&[Right::Import], None).await;
        let headers = [("authorization", &*format!("Bearer {token}"))];
        send(servers.front.address, request("POST", "/v1/enwiki/import", &headers, xml)).await
    };
    let answer = import("guess").await;
    assert!(answer.text().contains("\"conflicts\":1"), "{answer:?}");
    assert!(!answer.text().contains("secret") && !answer.text().contains("Alice"), "{answer:?}");
}

#[tokio::test]
async fn requests_of_a_batch_have_the_rights_of_its_caller() {
    let servers = Servers::start(&[], false).await;
    fill(&servers).await;
    let batch = r#"[{"method":"PUT","path":"/v1/enwiki/payroll/alice","body":"2"},
        {"method":"POST","path":"/v1/enwiki/clicks/a"},
        {"method":"POST","path":"/v1/enwiki/page/Secret?rev/","body":"_rev=7&html=guess",
         "headers":{"content-type":"application/x-www-form-urlencoded"}}]"#;
    let token = servers.front.token(&[Right::Write], None).await;
    let answer = sent("POST", "/v1/batch", &[JSON], batch).send(&servers.front, Some(&token)).await;
    for status in [201, 204, 409] {
        assert!(answer.text().contains(&format!("\"status\":{status},")), "{answer:?}");
    }
    assert!(!answer.text().contains("secret") && !answer.text().contains("4141"), "{answer:?}");
}

/// A backend that knows nothing of the rights of the caller.
#[tokio::test]
async fn answers_of_any_backend_show_nothing_stored_to_a_caller_that_may_not_read() {
    const WRITTEN: &str = "HTTP/1.1 200 OK\r\nETag: \"7/secret\"\r\nX-Rev: secret\r\nConnection: close\r\n\r\n\
        {\"message\":\"Unchanged\",\"domain\":\"enwiki\",\"title\":\"A\",\"rev\":7,\"tid\":\"t\",\"href\":\"h\",\"latest\":\"secret\"}";
    const VALUE: &str = "HTTP/1.1 200 OK\r\nETag: \"secret\"\r\nConnection: close\r\n\r\n{\"value\": 414141414, \"x\": \"secret\"}";
    const STORED: &str = "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nConnection: close\r\n\r\n";
    const CONFLICT: &str =
        "HTTP/1.1 409 Conflict\r\nETag: \"secret\"\r\nConnection: close\r\n\r\n{\"latest\":\"secret\"}";
    const FAILED: &str =
        "HTTP/1.1 412 Precondition Failed\r\nX-Rev: secret\r\nConnection: close\r\n\r\nsecret";
    const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nsecret";
    const OVERFLOW: &str =
        "HTTP/1.1 422 Unprocessable Content\r\nConnection: close\r\n\r\nthe value is secret";
    const BUSY: &str = "HTTP/1.1 503 Busy\r\nRetry-After: 4141\r\nConnection: close\r\n\r\n";
    const REPORT: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"status\":\"progress\"}\n\
        {\"created\":2,\"unchanged\":3,\"first_conflicts\":[{\"rev\":7,\"detail\":\"secret\"}]}\n";
    let (entry, counter) = ("/v1/enwiki/payroll/a", "/v1/enwiki/clicks/a");
    for (answer, method, path, status, shown) in [
        (
            WRITTEN,
            "POST",
            PAGE,
            201,
            "{\"message\":\"Created\",\"domain\":\"enwiki\",\"title\":\"A\",\"rev\":7,",
        ),
        (WRITTEN, "POST", "/v1/enwiki/drafts/D?rev/", 201, "\"message\":\"Created\""),
        (WRITTEN, "PUT", "/v1/enwiki/page/A?rev/x/html", 200, "\"message\":\"Replaced\""),
        (VALUE, "POST", counter, 204, ""),
        (VALUE, "POST", PAGE, 200, ""),
        (VALUE, "DELETE", entry, 204, ""),
        (VALUE, "DELETE", "/v1/enwiki/payroll", 204, ""),
        (STORED, "PUT", entry, 201, ""),
        (STORED, "PUT", "/v1/enwiki/payroll", 201, ""),
        (NOT_FOUND, "DELETE", "/v1/enwiki/payroll", 204, ""),
        (OVERFLOW, "POST", counter, 422, "closer to 0"),
        (BUSY, "POST", counter, 503, ""),
        (REPORT, "POST", "/v1/enwiki/import", 200, "\"created\":5"),
        (CONFLICT, "POST", PAGE, 409, "the right 'read' shows why"),
        (CONFLICT, "PUT", "/v1/enwiki/payroll", 409, "the right 'read' shows why"),
        (CONFLICT, "POST", "/v1/enwiki/import", 409, "the right 'read' shows why"),
        (FAILED, "PUT", entry, 412, "the right 'read' shows why"),
        (NOT_FOUND, "POST", PAGE, 404, "the right 'read' shows why"),
        (NOT_FOUND, "PUT", entry, 404, "the right 'read' shows why"),
    ] {
        let backend = SocketBackend::start(Behavior::Answer(answer)).await;
        let front = front(backend.url(), "own", &[], false).await;
        let blind = [Right::Write, Right::Import, Right::Rewrite, Right::Admin];
        let token = front.token(&blind, None).await;
        let got = sent(method, path, &[FORM], "").send(&front, Some(&token)).await;
        assert_eq!(got.status, status, "{method} {path} {got:?}");
        assert!(got.text().contains(shown), "{method} {path} {got:?}");
        let all = format!("{got:?}");
        assert!(!all.contains("secret") && !all.contains("4141"), "{method} {path} {all}");
        assert_eq!(got.headers.contains_key("etag"), answer == STORED && path == entry, "{all}");
        // A caller that may read gets the answer as it is.
        let backend = SocketBackend::start(Behavior::Answer(answer)).await;
        let front = self::front(backend.url(), "own", &[Right::Read], true).await;
        let token = front.token(&blind, None).await;
        let got = sent(method, path, &[FORM], "").send(&front, Some(&token)).await;
        assert!(answer.contains(&format!(" {} ", got.status.as_u16())), "{method} {path} {got:?}");
        assert!(answer.ends_with(got.text()), "{method} {path} {got:?}");
    }
}

#[tokio::test]
async fn list_that_is_none_or_does_not_end_is_502() {
    for answer in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nsecret",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"buckets\":[{\"name\":\"B\",\"type\":\"blob\"}]}",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"buckets\":[{\"name\":\"a\",\"type\":\"blob\"}],\"next\":\"?after=a\"}",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"buckets\":[],\"next\":\"?after=a\"}",
    ] {
        let backend = SocketBackend::start(Behavior::Answer(answer)).await;
        let front = front(backend.url(), "own", &[Right::Read], false).await;
        let got = sent("GET", "/v1/enwiki/", &[], "").send(&front, None).await;
        assert_eq!(got.problem(), "backend-failed", "{answer}");
    }
}

#[tokio::test]
async fn client_may_waive_rights_and_gains_none() {
    let server = Server::with(Parts { policy: anonymous(&[Right::Read]), ..Parts::default() }).await;
    let all = server.token(&Right::ALL, None).await;
    let put = async |token: &str, rights: &[&str]| {
        let mut headers = vec![FORM];
        headers.extend(rights.iter().map(|rights| ("rashomon-rights", *rights)));
        sent("POST", PAGE, &headers, "_rev=7&html=x").send(&server, Some(token)).await.status.as_u16()
    };
    assert_eq!(put(&all, &["read, import"]).await, 403);
    assert_eq!(put(&all, &[""]).await, 403);
    assert_eq!(put(&all, &["write", "read"]).await, 403, "both lines hold");
    let reader = server.token(&[Right::Read], None).await;
    assert_eq!(put(&reader, &["write"]).await, 403);
    assert_eq!(put(&all, &["unknown,write"]).await, 201);
    let read =
        |rights: &'static str| send(server.address, request("GET", PAGE, &[("rashomon-rights", rights)], ""));
    assert_eq!((read("read").await.status.as_u16(), read("write").await.status.as_u16()), (200, 403));
}
