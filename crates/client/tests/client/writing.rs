//! Writes to a server of the service.

use rashomon_client::{Body, Error, InputError, Outcome, ProblemKind, PropertyContent, Selector, Timestamp};

use crate::{
    server::Server,
    socket::{Behavior::Answer, FakeServer, OK, page_of, quick},
};

fn kind(error: &Error) -> ProblemKind {
    error.problem().and_then(|problem| problem.kind).unwrap_or_else(|| panic!("{error}"))
}

#[tokio::test]
async fn revision_is_stored_with_its_headers_and_a_repeat_is_unchanged() {
    let server = Server::start().await;
    let page = server.page("A");
    let write = || {
        let html =
            PropertyContent::new("<p>é").content_type("text/html; charset=utf-8; x=1").header("X-Note", "n");
        page.new_revision(5).property("html", html).property("wikitext", "é\r\n--\0")
    };
    let written = write().send().await.unwrap();
    assert_eq!((written.outcome, written.title.as_str()), (Outcome::Created, "A"));
    let again = write().send().await.unwrap();
    assert_eq!((again.outcome, again.tid), (Outcome::Unchanged, written.tid));
    let html = page.latest("html").await.unwrap();
    assert_eq!(html.content_type.as_deref(), Some("text/html; charset=utf-8; x=1"));
    assert_eq!(html.headers["x-note"], "n");
    let wikitext = page.latest("wikitext").await.unwrap();
    assert_eq!(wikitext.content_type.as_deref(), Some("text/x-wiki; charset=utf-8"));
    assert_eq!(wikitext.text(100).await.unwrap(), "é\r\n--\0");
    let error = page.new_revision(5).property("html", "other").send().await.unwrap_err();
    assert_eq!(kind(&error), ProblemKind::Conflict);
}

#[tokio::test]
async fn conditional_write_names_the_latest_render() {
    let server = Server::start().await;
    let page = server.page("A");
    let first = page.new_revision(1).if_new().property("html", "1").send().await.unwrap();
    for write in [page.new_revision(3).if_latest(2), page.new_revision(3).if_new()] {
        let error = write.property("html", "3").send().await.unwrap_err();
        assert_eq!(kind(&error), ProblemKind::NotLatest);
        assert_eq!(error.problem().unwrap().latest.as_ref().map(|latest| latest.tid), Some(first.tid));
    }
    let error = server.page("B").new_revision(3).if_latest(2).property("html", "3").send().await.unwrap_err();
    assert_eq!((kind(&error), error.problem().unwrap().latest.is_none()), (ProblemKind::NotLatest, true));
    page.new_revision(2).if_latest(1).property("html", "2").send().await.unwrap();
    let error = page.new_render(2).if_latest(1).property("html", "3").send().await.unwrap_err();
    assert_eq!(kind(&error), ProblemKind::NotLatest);
}

#[tokio::test]
async fn render_inherits_from_its_base() {
    let server = Server::start().await;
    let page = server.page("A");
    let first = page.new_revision(1).property("html", "1").property("meta", "{}").send().await.unwrap();
    let second = page.new_render(1).property("html", "2").send().await.unwrap();
    assert_eq!(page.read(second.tid, "meta").await.unwrap().text(9).await.unwrap(), "{}");
    assert_eq!(page.new_render(1).property("html", "2").send().await.unwrap().outcome, Outcome::Unchanged);
    let third = page.new_render_based_on(first.tid).property("meta", "[]").send().await.unwrap();
    assert_eq!(page.read(third.tid, "html").await.unwrap().text(9).await.unwrap(), "1");
    let error = page.new_render(9).property("html", "2").send().await.unwrap_err();
    assert_eq!(kind(&error), ProblemKind::NotFound);
}

#[tokio::test]
async fn property_is_replaced_in_place_under_a_condition() {
    let server = Server::start().await;
    let page = server.page("A");
    let tid = page.new_revision(1).property("html", "1").send().await.unwrap().tid;
    let etag = page.latest("html").await.unwrap().etag.unwrap();
    let body = Body::from_reader(&b"<p>2"[..]);
    let replaced =
        page.replace(tid, "html", body).content_type("text/html").if_match(&etag).send().await.unwrap();
    assert_eq!((replaced.outcome, replaced.tid), (Outcome::Replaced, tid));
    let html = page.read(tid, "html").await.unwrap();
    assert_eq!(html.content_type.as_deref(), Some("text/html"));
    assert_eq!(html.tid, Some(tid), "the tag of a replaced property is understood");
    let error = page.replace(tid, "html", "3").if_match(&etag).send().await.unwrap_err();
    assert_eq!(kind(&error), ProblemKind::PreconditionFailed);
    assert_eq!(page.latest("html").await.unwrap().text(9).await.unwrap(), "<p>2");
}

#[tokio::test]
async fn invalid_input_is_refused_before_anything_is_sent() {
    let server = FakeServer::start(&[Answer(OK)]).await;
    let page = page_of(quick([server.url()]));
    let tid = "8f545ba0-2601-11e3-885c-4160918f0fb9".parse().unwrap();
    let write = || page.new_revision(1).property("html", "x");
    let content = |name: &str, value: &str| PropertyContent::new("x").header(name, value);
    let long = "a".repeat(4097);
    let results = [
        page.new_revision(0).property("html", "x").send().await.err(),
        page.new_revision(1).send().await.err(),
        write().property("html", "y").send().await.err(),
        write().property("Html", "y").send().await.err(),
        write().parent(0).send().await.err(),
        write().if_latest(-1).send().await.err(),
        write().comment(&long).send().await.err(),
        write().user(&long).send().await.err(),
        page.new_revision(1).property("html", content("x-a", "b\r\nc: d")).send().await.err(),
        page.new_revision(1).property("html", content("set-cookie", "a")).send().await.err(),
        page.new_render(0).property("html", "x").send().await.err(),
        page.replace(tid, "_rev", "x").send().await.err(),
        page.replace(tid, "html", "x").content_type("text/html\n").send().await.err(),
        page.latest("").await.err(),
        page.read(0, "html").await.err(),
        page.request(Selector::Latest, "a/b").send().await.err(),
        page.revision(0).await.err(),
        write().timestamp(Timestamp::MAX).send().await.err(),
        page.new_render(1).property("html", "x").timestamp(Timestamp::MIN).send().await.err(),
        page.request(Timestamp::MAX, "html").send().await.err(),
    ];
    for (index, result) in results.into_iter().enumerate() {
        let error = result.unwrap_or_else(|| panic!("input {index} is accepted"));
        assert!(matches!(error, Error::Input(_)), "input {index}: {error}");
    }
    let store = server_store(&server);
    assert!(matches!(store.domain("En Wiki"), Err(InputError::Name(_))));
    assert!(matches!(store.domain("enwiki").unwrap().page("a/../b"), Err(InputError::Name(_))));
    assert_eq!(server.connections(), 0);
}

fn server_store(server: &FakeServer) -> rashomon_client::Store {
    rashomon_client::Store::new(quick([server.url()])).unwrap()
}
