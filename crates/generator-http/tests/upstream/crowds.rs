//! Many who ask at once.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use rashomon_buckets::{BucketName, GenerateError, Generator as _, Page};
use rashomon_generator_http::HttpGenerator;
use tokio::task::JoinSet;

use crate::{
    LONG, SHORT, at_most, page, rev,
    server::{Reply, Server, html},
    settings, source, upstream, with_bucket,
};

#[tokio::test]
async fn so_many_requests_are_under_way_at_most() {
    let server =
        Server::new(|target| if target.ends_with("/B") { html("<p>") } else { Reply::Nothing }).await;
    let its = upstream(&[("html", source(server.url("/{rev}/{title}")))], &[server.host()], LONG);
    let generator = Arc::new(HttpGenerator::new(at_most(2, settings(its))).unwrap());
    let mut waiting = JoinSet::new();
    for number in 1..=6 {
        let generator = Arc::clone(&generator);
        waiting.spawn(async move { generator.generate(&page("A"), rev(number)).await });
    }
    while server.asked() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.asked(), 2);
    waiting.abort_all();
    // One after another they all have their turn.
    let page = page("B");
    let made = join_all((1..=6).map(|number| generator.generate(&page, rev(number)))).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
}

#[tokio::test]
async fn who_finds_no_place_in_time_is_told_so() {
    let server = Server::new(|target| match target {
        "/1" => Reply::Nothing,
        _ => html("<p>"),
    })
    .await;
    let its = |timeout| upstream(&[("html", source(server.url("/{rev}")))], &[server.host()], timeout);
    let both = with_bucket(Some(its(LONG)), "wiki.example", "hasty", its(SHORT));
    let generator = Arc::new(HttpGenerator::new(at_most(1, both)).unwrap());
    let hasty = Page { bucket: BucketName::new("hasty").unwrap(), ..page("A") };
    let first = tokio::spawn({
        let generator = Arc::clone(&generator);
        async move { generator.generate(&page("A"), rev(1)).await }
    });
    while server.asked() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let second = generator.generate(&hasty, rev(2)).await;
    assert!(matches!(&second, Err(GenerateError::Busy(why)) if why.contains("500ms")), "{second:?}");
    assert_eq!(server.asked(), 1);
    // Whoever goes away gives his place back.
    first.abort();
    assert!(generator.generate(&page("A"), rev(2)).await.is_ok());
}
