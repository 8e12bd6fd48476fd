//! Tests of the audit log.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use axum::body::Body;
use futures::{StreamExt, stream};
use http::Request;
use rashomon_entries::KeyValueStore;
use rashomon_pages::RevisionStore;
use rashomon_server::audit_log::{AuditLog, Target};
use rashomon_server::{Api, Components, Registry, ServeOptions, Settings};
use rashomon_tables::{Call, Fault, Gate, Plan, Rates};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::{
    socket::{STEP_TIMEOUT, Server},
    world::{PAGE, World},
};

/// An export of one page, without its end.
const EXPORT: &str = "<mediawiki><page><title>A</title><ns>0</ns><id>1</id><revision><id>1</id>\
                      <timestamp>2013-01-01T00:00:00Z</timestamp><contributor><ip>127.0.0.1</ip></contributor>\
                      <model>wikitext</model><format>text/x-wiki</format><text>one</text></revision></page>";

/// A server with an audit log.
struct AuditedServer {
    world: World,
    file: PathBuf,
    _directory: TempDir,
}

impl AuditedServer {
    async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    async fn with(settings: Settings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("audit.log");
        let mut world = World::with(settings.clone()).await;
        let of_buckets = rashomon_pages::Settings::default();
        let buckets = RevisionStore::open(world.store.clone(), world.clock.clone(), of_buckets, 7).await;
        let log = AuditLog::open(Target::File(file.clone()), world.clock.clone()).unwrap();
        let buckets = buckets.unwrap();
        let components = Components {
            key_value: KeyValueStore::new(Arc::clone(buckets.parts().records), Default::default()),
            buckets,
            access: Arc::clone(&world.access),
            clock: world.clock.clone(),
            seed: 7,
            registry: Registry::default(),
            audit_log: Some(log),
        };
        world.api = Api::new(settings, components);
        world.router = rashomon_server::router(world.api.clone());
        Self { world, file, _directory: directory }
    }

    /// Waits for this many lines, and returns them. There must not be more.
    #[track_caller]
    fn lines(&self, count: usize) -> impl Future<Output = Vec<Value>> {
        let caller = std::panic::Location::caller();
        async move {
            let deadline = tokio::time::Instant::now() + STEP_TIMEOUT;
            loop {
                let text = self.text();
                let lines: Vec<Value> = (text.split_inclusive('\n').filter(|line| line.ends_with('\n')))
                    .map(|line| serde_json::from_str(line).unwrap())
                    .collect();
                assert!(lines.len() <= count, "{caller}: more than {count} lines: {text}");
                if lines.len() == count {
                    return lines;
                }
                assert!(tokio::time::Instant::now() < deadline, "{caller}: not {count} lines: {text}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.file).unwrap()
    }

    /// Sends a request whose line is written at once. Lines that were written before precede this line.
    async fn add_marker_line(&self) {
        self.world.request("BREW", "/", &[], "").await.expect(405);
    }
}

/// A write of a revision whose body arrives in these pieces.
fn form(pieces: impl stream::Stream<Item = std::io::Result<&'static str>> + Send + 'static) -> Request<Body> {
    Request::post(format!("{PAGE}?rev/"))
        .header("host", "localhost")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from_stream(pieces))
        .unwrap()
}

#[tokio::test]
async fn each_write_has_one_line_and_reads_have_none() {
    let audited = AuditedServer::new().await;
    let world = &audited.world;
    let forms = [("content-type", "application/x-www-form-urlencoded")];
    let mut expected = Vec::new();
    // `write` is `None` if no write begins. The body is not read then, either.
    let mut send = async |method: &str, url: &str, body: &str, status: u16, write: Option<&str>| {
        let headers = if method == "POST" { &forms[..] } else { &[] };
        let answer = world.request(method, url, headers, body.to_owned()).await;
        assert_eq!(answer.status, status, "{method} {url}");
        expected.push(json!({
            "time": "2024-01-01T00:00:00.000000Z", "request_id": answer.header("x-request-id"), "token": null,
            "address": null, "method": method, "path": url, "status": status, "write": write,
            "bytes": write.map_or(0, |_| body.len()), "microseconds": 0,
        }));
        // Reads, also failed ones, have no line.
        for url in
            [&format!("{PAGE}?rev/latest/html"), "/v1/enwiki/page/None?rev/latest/html", "/nothing", url]
        {
            for method in ["GET", "HEAD", "OPTIONS"] {
                world.request(method, url, &[], "").await;
            }
        }
        answer
    };
    let new = format!("{PAGE}?rev/");
    let body = "_rev=1&html=secret-words";
    let answer = send("POST", &new, body, 201, Some("done")).await;
    let tid = answer.json()["tid"].as_str().unwrap().to_owned();
    send("POST", &new, body, 200, Some("done")).await;
    send("POST", &new, "_rev=1&html=other-secret-words", 409, Some("failed")).await;
    send("POST", &format!("{PAGE}?rev/1/"), "html=rendered-secret-words", 201, Some("done")).await;
    send("PUT", &format!("{PAGE}?rev/{tid}/html"), "new-secret-words", 200, Some("done")).await;
    send("PUT", &format!("{PAGE}?rev/latest/html"), "secret-words", 405, None).await;
    send("POST", "/v1/enwiki/import", "secret-words", 400, Some("failed")).await;
    send("POST", "/nothing", "secret-words", 404, None).await;
    send("DELETE", PAGE, "", 405, None).await;
    assert_eq!(audited.lines(expected.len()).await, expected);
    assert!(!audited.text().contains("secret"), "{}", audited.text());
}

#[tokio::test]
async fn each_write_of_a_batch_has_a_line() {
    let audited = AuditedServer::new().await;
    let write = |rev: &str| {
        json!({
            "method": "POST", "path": format!("{PAGE}?rev/"), "body": format!("_rev={rev}&html=secret-words"),
            "headers": {"content-type": "application/x-www-form-urlencoded"},
        })
    };
    let read = json!({"method": "GET", "path": format!("{PAGE}?rev/latest/html")});
    let body = json!([write("1"), read, write("0"), "secret-words"]).to_string();
    let headers = [("content-type", "application/json"), ("x-request-id", "mine")];
    audited.world.request("POST", "/v1/batch", &headers, body.clone()).await.expect(200);
    let lines: Vec<Value> = (audited.lines(3).await.into_iter())
        .map(|line| json!([line["request_id"], line["path"], line["status"], line["write"], line["bytes"]]))
        .collect();
    let path = format!("{PAGE}?rev/");
    let expected = [
        json!(["mine.0", path, 201, "done", 24]),
        json!(["mine.2", path, 400, null, 24]),
        json!(["mine", "/v1/batch", 200, null, body.len()]),
    ];
    assert_eq!(lines, expected);
    assert!(!audited.text().contains("secret"), "{}", audited.text());
}

#[tokio::test]
async fn requests_of_a_batch_have_the_address_of_its_client() {
    let proxies = vec!["127.0.0.0/8".parse().unwrap()];
    let audited = AuditedServer::with(Settings { proxies, ..Settings::default() }).await;
    let server = Server::of(&audited.world, ServeOptions::default()).await;
    let body = json!([{"method": "POST", "path": "/nothing"}]).to_string();
    let headers = format!(
        "x-forwarded-for: 192.0.2.7\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(&server, "POST /v1/batch", &headers).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    for line in audited.lines(2).await {
        assert_eq!(line["address"], "192.0.2.7", "{line}");
    }
}

#[tokio::test]
async fn refused_write_has_a_line_with_its_status() {
    let audited = AuditedServer::with(Settings { read_only: true, ..Settings::default() }).await;
    let headers = [("sec-fetch-site", "cross-site")];
    audited.world.request("POST", &format!("{PAGE}?rev/"), &headers, "_rev=1&html=x").await.expect(403);
    audited.world.post(&format!("{PAGE}?rev/"), "_rev=1&html=x").await.expect(403);
    audited.world.request("POST", PAGE, &[("host", "a b")], "").await.expect(400);
    let lines = audited.lines(3).await;
    let statuses: Vec<&Value> = lines.iter().map(|line| &line["status"]).collect();
    assert_eq!(statuses, [403, 403, 400]);
    assert!(lines.iter().all(|line| line["write"].is_null()), "{lines:?}");
}

#[tokio::test]
async fn write_that_the_store_refuses_is_logged_as_failed() {
    let audited = AuditedServer::new().await;
    audited.world.store.set_plan(Plan::seeded(1, Rates { before: 1000, ..Rates::default() }));
    audited.world.post(&format!("{PAGE}?rev/"), "_rev=1&html=x").await.expect(503);
    let lines = audited.lines(1).await;
    assert_eq!((&lines[0]["status"], &lines[0]["write"]), (&json!(503), &json!("failed")));
}

#[tokio::test]
async fn write_whose_client_disconnects_has_its_line_after_the_commit() {
    let audited = AuditedServer::new().await;
    let gate = Gate::new();
    audited.world.store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone())));
    let request = form(stream::iter([Ok("_rev=1&html=x")]));
    let write = tokio::spawn(audited.world.router.clone().oneshot(request));
    gate.reached().await;
    write.abort();
    assert!(write.await.unwrap_err().is_cancelled());
    audited.add_marker_line().await;
    assert_eq!(audited.lines(1).await[0]["method"], "BREW", "the write is not done yet");
    gate.open();
    audited.world.api.finish().await;
    let line = audited.lines(2).await.pop().unwrap();
    assert_eq!(
        (&line["method"], &line["status"], &line["write"]),
        (&json!("POST"), &Value::Null, &json!("done"))
    );
    assert_eq!(line["bytes"], 13);
    audited.world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
}

#[tokio::test]
async fn upload_whose_client_disconnects_has_a_line_without_a_status() {
    let audited = AuditedServer::new().await;
    let pieces = stream::iter([Ok("_rev=1&html="), Ok("12345678")]).chain(stream::pending());
    let mut write = Box::pin(audited.world.router.clone().oneshot(form(pieces)));
    // Receives all bytes that have arrived.
    assert!(futures::poll!(&mut write).is_pending());
    drop(write);
    let lines = audited.lines(1).await;
    assert_eq!((&lines[0]["status"], &lines[0]["write"]), (&Value::Null, &Value::Null));
    assert_eq!(lines[0]["bytes"], 20);
}

#[tokio::test]
async fn request_whose_handler_panics_has_a_line() {
    let audited = AuditedServer::new().await;
    let pieces = stream::poll_fn(|_| -> std::task::Poll<Option<std::io::Result<&'static str>>> {
        panic!("a panic of the test")
    });
    audited.world.send(form(pieces)).await.expect(500);
    assert_eq!(audited.lines(1).await[0]["status"], 500);
}

#[tokio::test]
async fn import_has_its_line_when_it_ends() {
    let audited = AuditedServer::new().await;
    let whole = format!("{EXPORT}</mediawiki>");
    audited.world.request("POST", "/v1/enwiki/import", &[], whole.clone()).await.expect(200);
    let line = audited.lines(1).await.pop().unwrap();
    assert_eq!((&line["status"], &line["write"]), (&json!(200), &json!("done")));
    assert_eq!(line["bytes"], whole.len());
    // The answer begins when the first page is stored. The body then ends too early.
    audited.world.request("POST", "/v1/enwiki/import", &[], EXPORT).await;
    let line = audited.lines(2).await.pop().unwrap();
    assert_eq!(line["write"], "failed");
}

#[tokio::test]
async fn import_whose_client_disconnects_has_its_line_when_it_ends() {
    let audited = AuditedServer::new().await;
    let gate = Gate::new();
    audited.world.store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone())));
    let whole = format!("{EXPORT}</mediawiki>");
    let request =
        Request::post("/v1/enwiki/import").header("host", "localhost").body(Body::from(whole)).unwrap();
    let import = tokio::spawn(audited.world.router.clone().oneshot(request));
    gate.reached().await;
    import.abort();
    assert!(import.await.unwrap_err().is_cancelled());
    audited.add_marker_line().await;
    assert_eq!(audited.lines(1).await[0]["method"], "BREW", "the import is not done yet");
    gate.open();
    audited.world.api.finish().await;
    let line = audited.lines(2).await.pop().unwrap();
    assert_eq!((&line["status"], &line["write"]), (&Value::Null, &json!("done")));
}

#[tokio::test]
async fn requests_cannot_forge_lines_and_long_ones_are_shortened() {
    let audited = AuditedServer::new().await;
    let server = Server::of(&audited.world, ServeOptions::default()).await;
    let targets = [
        "/v1/enwiki/page/A%0A{\"method\":\"POST\"}?rev/".to_owned(),
        "/v1/enwiki/page/A\u{2028}\u{85}\u{9b}2J\\\"?rev/".to_owned(),
        format!("/v1/enwiki/page/{}end", "\u{2028}".repeat(2000)),
        "http://localhost/v1/enwiki/page/A?rev/".to_owned(),
    ];
    for (number, target) in targets.iter().enumerate() {
        let answer = exchange(&server, &format!("POST {target}"), "").await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{target}: {answer}");
        let line = audited.lines(number + 1).await.pop().unwrap();
        assert!(line.to_string().len() < 20_000);
        let path = line["path"].as_str().unwrap();
        match number {
            2 => assert!(path.len() <= 2048 && path.ends_with("end"), "{path}"),
            3 => assert_eq!(path, "/v1/enwiki/page/A?rev/"),
            _ => assert_eq!(path, target),
        }
        assert_eq!(line["address"], "127.0.0.1");
    }
    exchange(&server, &format!("{} /", "B".repeat(10_000)), "x-request-id: mine\r\n").await;
    let line = audited.lines(targets.len() + 1).await.pop().unwrap();
    assert!(line["method"].as_str().unwrap().len() <= 32, "{line}");
    assert_eq!(line["request_id"], "mine");
    let text = audited.text();
    assert!(text.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{text}");
}

async fn exchange(server: &Server, request: &str, headers: &str) -> String {
    let request = format!("{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
    server.exchange(request.as_bytes()).await
}

#[tokio::test]
async fn tokens_are_made_and_revoked_even_if_the_client_goes_away() {
    let audited = AuditedServer::new().await;
    let (world, gate) = (&audited.world, Gate::new());
    let body = r#"{"rights": ["read"], "domains": ["*"]}"#;
    let number = world.store.calls(Call::Write) + 1;
    world.store.set_plan(Plan::empty().on(Call::Write, number, Fault::Pause(gate.clone())));
    let request =
        Request::post("/v1/tokens").header("host", "localhost").header("content-type", "application/json");
    let request = request.body(Body::from(body)).unwrap();
    let making = tokio::spawn(world.router.clone().oneshot(request));
    gate.reached().await;
    making.abort();
    assert!(making.await.unwrap_err().is_cancelled());
    gate.open();
    let lines = audited.lines(1).await;
    assert_eq!((&lines[0]["status"], &lines[0]["write"]), (&Value::Null, &json!("done")));
    let listed = world.get("/v1/tokens").await.expect(200).json();
    let id = listed["tokens"][0]["id"].as_str().unwrap();
    world.request("DELETE", &format!("/v1/tokens/{id}"), &[], "").await.expect(204);
    let lines = audited.lines(2).await;
    assert_eq!((&lines[1]["status"], &lines[1]["write"]), (&json!(204), &json!("done")));
}
