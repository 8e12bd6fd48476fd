//! Many requests at once.

use std::sync::Arc;

use futures::future::join_all;
use rashomon_pages::{BucketName, GenerateError, Generator as _, Page};
use rashomon_upstream::generator::HttpGenerator;
use tokio::task::JoinSet;

use crate::{
    LONG_TIMEOUT, SHORT_TIMEOUT, at_most, page, rev,
    server::{Reply, Server, html},
    settings, source, upstream, with_bucket,
};

#[tokio::test]
async fn concurrent_requests_are_bounded() {
    let server =
        Server::new(|target| if target.ends_with("/B") { html("<p>") } else { Reply::Nothing }).await;
    let renderer =
        upstream(&[("html", source(server.url("/{rev}/{title}")))], &[server.host()], LONG_TIMEOUT);
    let generator = Arc::new(HttpGenerator::new(at_most(2, settings(renderer))).unwrap());
    let mut waiting = JoinSet::new();
    for number in 1..=6 {
        let generator = Arc::clone(&generator);
        waiting.spawn(async move { generator.generate(&page("A"), rev(number)).await });
    }
    server.await_requests(2).await;
    // If the limit did not hold, the four waiting requests would arrive while another generator gets these 20
    // answers.
    let page = page("B");
    let renderer =
        upstream(&[("html", source(server.url("/{rev}/{title}")))], &[server.host()], LONG_TIMEOUT);
    let other = HttpGenerator::new(settings(renderer)).unwrap();
    for number in 1..=20 {
        other.generate(&page, rev(number)).await.unwrap();
    }
    assert_eq!(server.asked(), 2 + 20);
    waiting.abort_all();
    // The aborted requests no longer count, so six requests for another page succeed.
    let made = join_all((1..=6).map(|number| generator.generate(&page, rev(number)))).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
}

#[tokio::test]
async fn request_that_waits_too_long_fails_with_busy() {
    let server = Server::new(|_| Reply::Nothing).await;
    let renderer = upstream(&[("html", source(server.url("/{rev}")))], &[server.host()], SHORT_TIMEOUT);
    let generator = HttpGenerator::new(at_most(1, settings(renderer))).unwrap();
    let page = page("A");
    // All three requests give up at about the same time. At most one of the waiting requests still gets the
    // place of the first.
    let made = join_all((1..=3).map(|number| generator.generate(&page, rev(number)))).await;
    let is_busy = |made: &Result<_, GenerateError>| matches!(made, Err(GenerateError::Busy(why)) if why.contains("500ms"));
    assert!(made.iter().any(is_busy), "{made:?}");
    assert!(server.asked() < 3);
}

#[tokio::test]
async fn hanging_renderer_does_not_block_another() {
    let hanging = Server::new(|_| Reply::Nothing).await;
    let server = Server::new(|_| html("<p>")).await;
    let from = |server: &Server, timeout| {
        upstream(&[("html", source(server.url("/{rev}")))], &[server.host()], timeout)
    };
    // This timeout is shorter than that of the hanging renderer, and longer than six answers take on a busy
    // machine.
    let both = with_bucket(
        Some(from(&server, LONG_TIMEOUT / 3)),
        "wiki.example",
        "slow",
        from(&hanging, LONG_TIMEOUT),
    );
    let generator = Arc::new(HttpGenerator::new(at_most(2, both)).unwrap());
    let slow = Page { bucket: BucketName::new("slow").unwrap(), ..page("A") };
    let mut waiting = JoinSet::new();
    for number in 1..=4 {
        let (generator, slow) = (Arc::clone(&generator), slow.clone());
        waiting.spawn(async move { generator.generate(&slow, rev(number)).await });
    }
    hanging.await_requests(2).await;
    let page = page("A");
    let made = join_all((1..=6).map(|number| generator.generate(&page, rev(number)))).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    assert_eq!((hanging.asked(), server.asked()), (2, 6));
}
