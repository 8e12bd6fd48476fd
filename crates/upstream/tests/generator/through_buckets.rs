//! The answers that readers get, depending on the behaviour of the renderer.

use std::{sync::Arc, time::Duration};

use futures::future::{join_all, try_join_all};
use rashomon_pages::{Error, GenerateError};
use rashomon_upstream::generator::HttpGenerator;
use tokio::sync::Semaphore;

use crate::{
    LONG_TIMEOUT, MAX_SIZE, SHORT_TIMEOUT, page, rev,
    server::{Reply, Server, html, ok, says},
    settings, source, upstream,
    wiki::{DAY, Wiki, text},
};

/// A wiki whose `html` and `data-parsoid` a server makes, with this timeout.
async fn wiki(server: &Server, timeout: Duration) -> Wiki {
    let properties = [
        ("html", source(server.url("/{title}/{rev}"))),
        ("data-parsoid", source(server.url("/{title}/{rev}/dp"))),
    ];
    let renderer = upstream(&properties, &[server.host()], timeout);
    Wiki::new(HttpGenerator::new(settings(renderer)).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn old_revision_is_rendered_once_per_ttl() {
    let server = Server::new(html).await;
    let (wiki, page) = (wiki(&server, LONG_TIMEOUT).await, page("A"));
    let first = wiki.put(&page, 1, &[("html", "first")]).await;
    wiki.put(&page, 2, &[("html", "second")]).await;
    assert_eq!(wiki.read(&page, 1, "html").await.unwrap().0, first, "stored properties are not rendered");
    assert_eq!(server.asked(), 0);
    // The read above keeps the render for two days. After that, the render is gone.
    wiki.cull().await;
    wiki.clock.advance(2 * DAY);
    let (made, property) = wiki.read(&page, 1, "html").await.unwrap();
    assert_ne!(made, first);
    assert_eq!(text(&property), "/A/1");
    assert_eq!(property.info.headers.content_type, "text/html; charset=utf-8");
    let (again, property) = wiki.read(&page, 1, "data-parsoid").await.unwrap();
    assert_eq!((again, text(&property).as_str()), (made, "/A/1/dp"));
    assert_eq!(server.asked(), 2, "one request a property");
    wiki.clock.advance(4 * DAY);
    assert_ne!(wiki.read(&page, 1, "html").await.unwrap().0, made);
    assert_eq!(server.asked(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_readers_make_one_request_a_property() {
    let allowed = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&allowed);
    let server = Server::new(move |target| Reply::Held(Arc::clone(&held), ok("text/html", target))).await;
    let (wiki, page) = (wiki(&server, LONG_TIMEOUT).await, page("A"));
    wiki.put(&page, 1, &[("wikitext", "x")]).await;
    wiki.put(&page, 2, &[("wikitext", "y")]).await;
    let readers =
        (0..100).map(|reader| wiki.read(&page, 1, if reader % 2 == 0 { "html" } else { "data-parsoid" }));
    let answers = async {
        // The join polls the readers first, so all of them have begun to read by then.
        server.await_requests(2).await;
        allowed.add_permits(100);
    };
    let (read, ()) = tokio::join!(biased; try_join_all(readers), answers);
    let mut read = read.unwrap();
    read.dedup_by_key(|(tid, _)| *tid);
    assert_eq!((read.len(), server.asked()), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_renders_are_not_stored_and_other_pages_continue() {
    let fine = "/A/1/dp";
    let long = "x".repeat(MAX_SIZE as usize + 1);
    for (wrong, expected) in [
        (says("500 Oh", "", "x"), "Failed"),
        (says("404 No", "", "x"), "Unknown"),
        (Reply::Says(ok("text/html", &long)), "Failed"),
        (says("200 OK", "content-length: 100\r\n", "less"), "Failed"),
        (says("302 Found", "location: http://elsewhere.invalid/\r\n", ""), "Failed"),
        (Reply::Nothing, "TimedOut"),
        (
            Reply::Drips("HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n".into(), SHORT_TIMEOUT / 5),
            "TimedOut",
        ),
    ] {
        let server = Server::new({
            let wrong = wrong.clone();
            move |target| if target == "/A/1" { wrong.clone() } else { html(target) }
        })
        .await;
        // The read of the other page has the same timeout and must succeed. On a busy machine it may take
        // longer than `SHORT_TIMEOUT`.
        let timeout = if expected == "TimedOut" { 4 * SHORT_TIMEOUT } else { LONG_TIMEOUT };
        let (wiki, page, other) = (wiki(&server, timeout).await, page("A"), page("B"));
        for page in [&page, &other] {
            wiki.put(page, 1, &[("wikitext", "x")]).await;
            wiki.put(page, 2, &[("wikitext", "y")]).await;
        }
        let before = wiki.rows(&page).await;
        let readers = join_all((0..10).map(|_| wiki.read(&page, 1, "html")));
        let (failures, others) = tokio::join!(readers, wiki.read(&other, 1, "html"));
        assert_eq!(text(&others.unwrap().1), "/B/1", "{wrong:?}");
        for failure in failures {
            let Err(Error::Generate(error)) = failure else { panic!("{wrong:?}: {failure:?}") };
            assert_eq!(kind(&error), expected, "{error}");
        }
        assert_eq!(wiki.rows(&page).await, before, "{wrong:?}");
        let asked = server.requests();
        let times_asked =
            |target: &str| asked.iter().filter(|head| head.contains(&format!(" {target} "))).count();
        assert_eq!(times_asked("/A/1"), 1, "{asked:?}");
        assert!(times_asked(fine) <= 1, "{asked:?}");
    }
}

fn kind(error: &GenerateError) -> &'static str {
    match error {
        GenerateError::Unknown(_) => "Unknown",
        GenerateError::Failed(_) => "Failed",
        GenerateError::TimedOut(_) => "TimedOut",
        GenerateError::Busy(_) => "Busy",
        _ => "another",
    }
}

/// A generated render of the latest revision is stored permanently.
#[tokio::test(flavor = "multi_thread")]
async fn generated_render_of_the_latest_revision_is_stored() {
    let server = Server::new(html).await;
    let (wiki, page) = (wiki(&server, LONG_TIMEOUT).await, page("A"));
    wiki.put(&page, 7, &[("wikitext", "x")]).await;
    let (made, _) = wiki.read(&page, 7, "html").await.unwrap();
    wiki.cull().await;
    wiki.clock.advance(30 * DAY);
    assert_eq!(wiki.read(&page, 7, "html").await.unwrap().0, made);
    assert_eq!(wiki.buckets.newest_render(&page, rev(7)).await.unwrap().tid, made);
    assert_eq!(server.asked(), 2);
}
