//! Rights and tokens.

use rashomon_server::Settings;
use rashomon_server::access::{AnonymousRights, Policy, Right, Rights};
use rashomon_server::registry::{Entry, ServerList};

use crate::{
    backends::Recorder,
    http::{Answer, get, request, send},
    server::{Parts, Server, entry_of},
};

/// A policy in which clients without a token may read.
fn readable() -> Policy {
    let everywhere = Rights::from_iter([Right::Read]);
    Policy::Anonymous(AnonymousRights { everywhere, ..AnonymousRights::default() })
}

async fn forwarding(list: ServerList, policy: Policy) -> Server {
    let entries: Vec<Entry> = vec![entry_of("/", list)];
    Server::with(Parts { entries, policy, ..Parts::default() }).await
}

async fn ask(server: &Server, method: &str, path: &str, token: Option<&str>) -> Answer {
    let authorization = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = authorization.iter().map(|value| ("authorization", value.as_str())).collect();
    send(server.address, request(method, path, &headers, "html=x")).await
}

/// Posts a revision that does not exist yet.
async fn post_revision(server: &Server, token: Option<&str>) -> Answer {
    let authorization = token.map(|token| format!("Bearer {token}"));
    let mut headers = vec![("content-type", "application/x-www-form-urlencoded")];
    headers.extend(authorization.iter().map(|value| ("authorization", value.as_str())));
    send(server.address, request("POST", "/v1/enwiki/page/A?rev/", &headers, "_rev=1&html=x")).await
}

#[tokio::test]
async fn backend_gets_the_token_of_the_caller_or_its_own_and_never_both() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "own\n").unwrap();
    let path = "/v1/enwiki/page/A?rev/";
    for (forward_authorization, token_file, expected) in
        [(false, None, ""), (true, None, "caller"), (false, Some(file), "Bearer own")]
    {
        let backend = Recorder::start();
        let list = ServerList { forward_authorization, token_file, ..ServerList::new(vec![backend.url()]) };
        let server = forwarding(list, readable()).await;
        let token = server.token(&[Right::Write], None).await;
        assert_eq!(ask(&server, "POST", path, Some(&token)).await.status, 200);
        let got = backend.log.only();
        let values: Vec<_> = got.headers.get_all("authorization").iter().collect();
        match expected {
            "" => assert!(values.is_empty(), "{values:?}"),
            "caller" => assert_eq!(values, [&format!("Bearer {token}")]),
            own => assert_eq!(values, [own]),
        }
    }
}

#[tokio::test]
async fn rights_are_checked_before_the_backend_is_asked() {
    let backend = Recorder::start();
    let server = forwarding(ServerList::new(vec![backend.url()]), readable()).await;
    let (reader, writer) =
        (server.token(&[Right::Read], None).await, server.token(&[Right::Write], None).await);
    let math = server.token(&[Right::Write, Right::Read], Some(&["math-png"])).await;
    let (page, png) = ("/v1/enwiki/page/A?rev/7/", "/v1/enwiki/math-png/a");
    for (method, path, token, status) in [
        ("POST", page, None, 401),
        ("POST", page, Some("wrong"), 401),
        ("POST", page, Some(&*reader), 403),
        ("POST", page, Some(&*math), 403),
        ("PUT", page, Some(&*writer), 403),
        ("POST", "/v1/enwiki/import", Some(&*writer), 403),
        ("DELETE", "/v1/enwiki/math-png", Some(&*math), 403),
        // Other buckets need a token that names them, also for reading.
        ("GET", png, None, 401),
        ("PUT", png, Some(&*reader), 403),
    ] {
        assert_eq!(ask(&server, method, path, token).await.status, status, "{method} {path}");
    }
    assert!(backend.log.all().is_empty(), "{:?}", backend.log.all());
    for (method, path, token) in [
        ("GET", page, None),
        ("POST", page, Some(&*writer)),
        ("GET", png, Some(&*reader)),
        ("PUT", png, Some(&*math)),
    ] {
        assert_eq!(ask(&server, method, path, token).await.status, 200, "{method} {path}");
    }
    // A condition shows what is stored, and this token may only write.
    let headers = [("authorization", &*format!("Bearer {writer}")), ("if-match", "\"1\"")];
    let before = backend.log.all().len();
    assert_eq!(send(server.address, request("PUT", png, &headers, "")).await.status, 403);
    assert_eq!(backend.log.all().len(), before);
}

#[tokio::test]
async fn bucket_behind_a_public_entry_is_open_and_its_answers_may_be_cached() {
    let backend = Recorder::start();
    let closed = forwarding(ServerList::new(vec![backend.url()]), readable()).await;
    let public = ServerList { public: true, ..ServerList::new(vec![backend.url()]) };
    let open = forwarding(public, readable()).await;
    let png = "/v1/enwiki/math-png/a";
    assert_eq!(ask(&closed, "GET", png, None).await.status, 401);
    let answer = ask(&open, "GET", png, None).await;
    assert_eq!((answer.status.as_u16(), answer.header("cache-control")), (200, "public, max-age=60"));
    let token = closed.token(&[Right::Read], None).await;
    let answer = ask(&closed, "GET", png, Some(&token)).await;
    assert_eq!(answer.header("cache-control"), "private, max-age=0, must-revalidate");
}

#[tokio::test]
async fn refusal_of_the_servers_own_token_is_no_refusal_of_the_client() {
    let backend = Recorder::start();
    let server = forwarding(ServerList::new(vec![backend.url()]), Policy::Open).await;
    let answer = ask(&server, "GET", "/v1/enwiki/page/A?401", None).await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (502, "backend-failed"));
    let list = ServerList { forward_authorization: true, ..ServerList::new(vec![backend.url()]) };
    let server = forwarding(list, Policy::Open).await;
    assert_eq!(ask(&server, "GET", "/v1/enwiki/page/A?401", None).await.status, 401);
}

#[tokio::test]
async fn backend_refuses_a_missing_token_and_the_server_an_unknown_one() {
    let behind = Server::with(Parts { policy: readable(), ..Parts::default() }).await;
    let list = ServerList { forward_authorization: true, ..ServerList::new(vec![behind.url()]) };
    let entries = vec![entry_of("/", list)];
    let server = Server::with(Parts { entries, ..Parts::default() }).await;
    // This server is open, and the backend is not.
    assert_eq!(post_revision(&server, None).await.status, 401);
    // This server does not know the token of the backend. Each server of a chain has to know the tokens.
    let foreign = behind.token(&[Right::Write], None).await;
    let answer = post_revision(&server, Some(&foreign)).await;
    assert_eq!(answer.status, 401, "{answer:?}");
}

#[tokio::test]
async fn backend_checks_the_rights_of_the_callers_token() {
    let behind = Server::with(Parts { policy: readable(), ..Parts::default() }).await;
    // This server is open, so only the backend checks rights. Both servers know the same tokens.
    let open_server = async |forward_authorization: bool| {
        let list = ServerList { forward_authorization, ..ServerList::new(vec![behind.url()]) };
        let (entries, tokens) = (vec![entry_of("/", list)], Some(behind.tokens.clone()));
        Server::with(Parts { entries, tokens, ..Parts::default() }).await
    };
    let (reader, writer) =
        (behind.token(&[Right::Read], None).await, behind.token(&[Right::Write], None).await);
    let server = open_server(true).await;
    let refused = post_revision(&server, Some(&reader)).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    let written = post_revision(&server, Some(&writer)).await;
    assert_eq!(written.status, 201, "{written:?}");
    let read = get(behind.address, "/v1/enwiki/page/A?rev/latest/html").await;
    assert_eq!((read.status.as_u16(), read.text()), (200, "x"));
    // Without the token, the backend refuses the request.
    let withheld = post_revision(&open_server(false).await, Some(&writer)).await;
    assert_eq!((withheld.status.as_u16(), withheld.problem().as_str()), (502, "backend-failed"));
}

#[tokio::test]
async fn read_only_server_forwards_no_write() {
    let backend = Recorder::start();
    let entries = vec![entry_of("/", ServerList::new(vec![backend.url()]))];
    let settings = Settings { read_only: true, ..Settings::default() };
    let server = Server::with(Parts { entries, settings, ..Parts::default() }).await;
    assert_eq!(ask(&server, "POST", "/v1/enwiki/page/A?rev/", None).await.status, 403);
    assert_eq!(ask(&server, "GET", "/v1/enwiki/page/A?rev/", None).await.status, 200);
    assert_eq!(backend.log.all().len(), 1);
}
