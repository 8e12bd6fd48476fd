//! Tokens.

use http::Request;
use rashomon_client::{Backend as _, Body, ConfigError, ProblemKind, Servers, Store};
use rashomon_server::access::{AnonymousRights, Policy, Right};

use crate::{
    server::Server,
    socket::{Behavior::Answer, FakeServer, OK, page_of, quick},
};

#[tokio::test]
async fn token_gives_its_rights() {
    let server = Server::with(Policy::Anonymous(AnonymousRights::default()), None).await;
    let error = server.page("A").latest("html").await.unwrap_err();
    assert_eq!(error.problem().unwrap().kind, Some(ProblemKind::Unauthorized));
    let writer = server.token(&[Right::Read, Right::Write]).await;
    let page = page_of(quick([server.url()]).token(writer));
    page.new_revision(1).property("html", "x").send().await.unwrap();
    let reader = server.token(&[Right::Read]).await;
    let page = page_of(quick([server.url()]).token(reader));
    page.latest("html").await.unwrap();
    let error = page.new_revision(2).property("html", "x").send().await.unwrap_err();
    assert_eq!(error.problem().unwrap().kind, Some(ProblemKind::Forbidden));
}

#[tokio::test]
async fn changed_file_changes_the_token_of_the_next_request() {
    let server = FakeServer::start(&[Answer(OK)]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "first\n").unwrap();
    let page = page_of(quick([server.url()]).token_file(file.path()));
    page.latest("html").await.unwrap();
    std::fs::write(file.path(), "second\n").unwrap();
    page.latest("html").await.unwrap();
    let sent: Vec<_> = server
        .requests()
        .iter()
        .map(|request| {
            request.split("authorization: ").nth(1).and_then(|rest| rest.lines().next()).map(str::to_owned)
        })
        .collect();
    assert_eq!(sent, [Some("Bearer first".to_owned()), Some("Bearer second".to_owned())]);
}

#[tokio::test]
async fn token_replaces_that_of_the_request() {
    let server = FakeServer::start(&[Answer(OK)]).await;
    let backend = quick([server.url()]).token("own").open().unwrap();
    let request = Request::get("/").header("authorization", "Bearer other").body(Body::from(""));
    backend.send(request.unwrap()).await.unwrap();
    let [request] = server.requests().try_into().unwrap();
    let sent: Vec<_> = request.lines().filter(|line| line.starts_with("authorization: ")).collect();
    assert_eq!(sent, ["authorization: Bearer own"]);
}

#[tokio::test]
async fn store_with_an_exposed_token_is_refused() {
    let exposed = Servers::new(["http://store.example.org"]).token("secret");
    let error = Store::new(exposed).unwrap_err();
    assert!(
        matches!(error, ConfigError::ExposedToken(_)) && !error.to_string().contains("secret"),
        "{error}"
    );
}
