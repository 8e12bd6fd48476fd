//! Tests with slow clients and slow stores.

use std::time::Duration;

use axum::{
    body::Body,
    http::{Request, Response},
};
use bytes::Bytes;
use futures::{Stream, StreamExt, future::join_all, stream};
use rashomon_server::Settings;
use rashomon_tables::{Call, Fault, Gate, Plan};
use tokio::time::sleep;
use tower::ServiceExt;

use crate::world::{PAGE, World};

/// Sends the same piece repeatedly, with a `pause` between two pieces.
fn drip(piece: Bytes, pause: Duration) -> impl Stream<Item = std::io::Result<Bytes>> {
    stream::unfold(piece, move |piece| async move {
        sleep(pause).await;
        Some((Ok(piece.clone()), piece))
    })
}

/// A request that writes revision 1 of the page with this number as its title. `html` is the stream of its
/// html.
fn revision(page: usize, html: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static) -> Request<Body> {
    let beginning = stream::iter([Ok(Bytes::from_static(b"_rev=1&html="))]);
    Request::post(format!("/v1/enwiki/page/{page}?rev/"))
        .header("host", "localhost")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from_stream(beginning.chain(html)))
        .unwrap()
}

async fn send(world: &World, request: Request<Body>) -> Response<Body> {
    world.router.clone().oneshot(request).await.unwrap()
}

mod in_memory {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn write_below_the_minimum_rate_is_answered_with_408() {
        let world = World::in_memory().await;
        let begun = tokio::time::Instant::now();
        let html = drip(Bytes::from_static(b"x"), Duration::from_secs(29));
        let answer = world.send(revision(1, html)).await.expect(408);
        assert_eq!(begun.elapsed().as_secs(), 60);
        assert!(
            answer.text().contains("1024 bytes a second over 60 s (min_upload_rate)"),
            "{}",
            answer.text()
        );
        // A fast beginning does not make up for a slow rest.
        let html = stream::iter([Ok(Bytes::from(vec![b'x'; 500_000]))])
            .chain(drip(Bytes::from_static(b"x"), Duration::from_secs(1)));
        world.send(revision(1, html)).await.expect(408);
        let tid = world.revision("_rev=1&html=x").await;
        let bytes = Body::from_stream(drip(Bytes::from_static(b"x"), Duration::from_secs(1)));
        let answer = world.request("PUT", &format!("{PAGE}?rev/{tid}/html"), &[], bytes).await.expect(408);
        assert!(answer.text().contains("min_upload_rate"), "{}", answer.text());
    }

    #[tokio::test(start_paused = true)]
    async fn minimum_rate_grows_with_the_held_memory() {
        let world = World::in_memory().await;
        let after = |size: usize| {
            stream::iter([Ok(Bytes::from(vec![b'x'; size]))])
                .chain(drip(Bytes::from(vec![b'x'; 4096]), Duration::from_secs(1)).take(200))
        };
        world.send(revision(1, after(10_000))).await.expect(201);
        // With a megabyte, the write holds 4 MiB.
        let begun = tokio::time::Instant::now();
        let answer = world.send(revision(2, after(1_100_000))).await.expect(408);
        assert!(
            answer.text().contains("16384 bytes a second over 10 s (min_upload_rate)"),
            "{}",
            answer.text()
        );
        assert!(begun.elapsed().as_secs() <= 12, "{:?}", begun.elapsed());
        // A write that stops after a fast beginning does not hold its memory for the idle timeout.
        let begun = tokio::time::Instant::now();
        let stopped = stream::iter([Ok(Bytes::from(vec![b'x'; 1_100_000]))]).chain(stream::pending());
        world.send(revision(3, stopped)).await.expect(408);
        assert!(begun.elapsed().as_secs() <= 12, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn answer_to_a_late_body_names_the_exceeded_setting() {
        let world = World::in_memory().await;
        let silence = drip(Bytes::from_static(b"x"), Duration::from_secs(31));
        let answer = world.send(revision(1, silence)).await.expect(408);
        assert!(answer.text().contains("for 30 s (idle_timeout)"), "{}", answer.text());
        let endless = drip(Bytes::from(vec![b'x'; 1100]), Duration::from_secs(1));
        let answer = world.send(revision(1, endless)).await.expect(408);
        assert!(answer.text().contains("within 600 s (body_timeout)"), "{}", answer.text());
    }

    #[tokio::test(start_paused = true)]
    async fn write_at_the_minimum_rate_is_accepted() {
        let world = World::in_memory().await;
        let html = drip(Bytes::from(vec![b'x'; 1024]), Duration::from_secs(1));
        assert_eq!(send(&world, revision(1, html.take(400))).await.status(), 201);
        let world = World::in_memory_with(Settings { min_upload_rate: 0, ..Settings::default() }).await;
        let html = drip(Bytes::from_static(b"x"), Duration::from_secs(20));
        assert_eq!(send(&world, revision(1, html.take(25))).await.status(), 201);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_store_does_not_count_against_the_client() {
        let world = World::in_memory().await;
        // The store takes 200 s for the first chunk of the body.
        let gate = Gate::new();
        world.store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone())));
        let html = drip(Bytes::from(vec![b'x'; 25_000]), Duration::from_secs(1));
        let router = world.router.clone();
        let write = tokio::spawn(router.oneshot(revision(1, html.take(60))));
        gate.reached().await;
        sleep(Duration::from_secs(200)).await;
        gate.open();
        assert_eq!(write.await.unwrap().unwrap().status(), 201);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_memory_does_not_count_against_the_client() {
        let settings = Settings { staging_bytes: 4 << 20, staging_wait_seconds: 300, ..Settings::default() };
        let world = World::in_memory_with(settings).await;
        let slow = drip(Bytes::from(vec![b'x'; 1024]), Duration::from_secs(1)).take(250);
        let first = tokio::spawn(world.router.clone().oneshot(revision(1, slow)));
        sleep(Duration::from_secs(1)).await;
        let short = drip(Bytes::from_static(b"x"), Duration::from_secs(20)).take(2);
        assert_eq!(send(&world, revision(2, short)).await.status(), 201);
        assert_eq!(first.await.unwrap().unwrap().status(), 201);
    }

    /// The test advances the clock itself, for the reason given at [`too_slow_imports_release_their_slots`].
    #[tokio::test(start_paused = true)]
    async fn slow_import_is_reported_in_the_last_line() {
        let world = World::in_memory().await;
        let page = "<mediawiki><page><title>A</title><ns>0</ns><id>1</id><revision><id>1</id>\
                    <timestamp>2013-01-01T00:00:00Z</timestamp><contributor><ip>127.0.0.1</ip></contributor>\
                    <model>wikitext</model><format>text/x-wiki</format><text>one</text></revision></page>\n";
        let beginning = stream::iter([Ok(Bytes::from_static(page.as_bytes()))]);
        let body =
            Body::from_stream(beginning.chain(drip(Bytes::from_static(b" "), Duration::from_secs(20))));
        let request = Request::post("/v1/enwiki/import").header("host", "localhost").body(body).unwrap();
        let router = world.router.clone();
        let import = tokio::spawn(async move {
            let response = router.oneshot(request).await.unwrap();
            let status = response.status();
            (status, axum::body::to_bytes(response.into_body(), 100_000).await.unwrap())
        });
        while !import.is_finished() {
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let (status, text) = import.await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert_eq!(status, 200, "{text}");
        let last = text.lines().last().unwrap();
        assert!(last.contains("\"failed\"") && last.contains("(min_upload_rate)"), "{last}");
        world.get("/v1/enwiki/page/A?rev/latest/wikitext").await.expect(200);
    }

    /// The test advances the clock itself: an import is parsed in `spawn_blocking`, and tokio does not
    /// advance a paused clock while such a task runs.
    #[tokio::test(start_paused = true)]
    async fn too_slow_imports_release_their_slots() {
        let world = World::in_memory().await;
        let import = || {
            let beginning = stream::iter([Ok(Bytes::from_static(b"<mediawiki>"))]);
            let drops = drip(Bytes::from_static(b" "), Duration::from_secs(20));
            let request = Request::post("/v1/enwiki/import").header("host", "localhost");
            let request = request.body(Body::from_stream(beginning.chain(drops))).unwrap();
            tokio::spawn(world.router.clone().oneshot(request))
        };
        let imports: Vec<_> = (0..4).map(|_| import()).collect();
        let all = tokio::spawn(join_all(imports));
        while !all.is_finished() {
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        for answer in all.await.unwrap() {
            let response = answer.unwrap().unwrap();
            assert_eq!(response.status(), 408);
            let text = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
            let text = String::from_utf8(text.to_vec()).unwrap();
            assert!(text.contains("(min_upload_rate)"), "{text}");
        }
        // There is room for other imports; this one has an empty body.
        world.request("POST", "/v1/enwiki/import", &[], "").await.expect(400);
    }
}
