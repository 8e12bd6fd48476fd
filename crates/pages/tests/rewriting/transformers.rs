//! Tests of transformers with wrong, late or missing answers.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    http::StatusCode,
    response::{IntoResponse as _, Redirect, Response},
    routing::post,
};
use rashomon_pages::rewriting::{MAX_CONSECUTIVE_FAILURES, RewriteError, RewriteOptions};
use rashomon_upstream::transformer::Settings as TransformerSettings;

use crate::support::{
    World, answer, broken_transformer, html, new_version, noise, options, page, serve, transformer,
    transformers,
};

/// Makes the answer of a transformer.
type Respond = Box<dyn Fn() -> Response + Send + Sync>;

/// Rewrites three pages, without and with the blocks of the archive. For the second page, the transformer answers with
/// `respond`. Expects that only this page fails and stays unchanged. Returns the reason of the failure.
async fn reason_of(
    respond: impl Fn() -> Response + Clone + Send + Sync + 'static,
    settings: TransformerSettings,
) -> String {
    let world = World::in_memory().await;
    let mut tids = Vec::new();
    for title in ["A", "Bad", "C"] {
        tids.push(world.put(&page(title), 1, &html("2.8.0"), title.as_bytes()).await);
    }
    let url = serve(Router::new().route(
        "/new",
        post(move |body: Bytes| async move {
            if body == "Bad" { respond() } else { answer(&html("3.0.0"), new_version(&body)) }
        }),
    ))
    .await;
    for archived in [false, true] {
        let all = transformers(&url, settings.clone());
        let (report, result) = world.rewrite_with(all, RewriteOptions { archived, ..options() }).await;
        result.unwrap();
        assert_eq!(report.failures.count, 1, "{report:?}");
        let failure = &report.failures.first[0];
        assert_eq!((&failure.page, failure.tid), (&page("Bad"), Some(tids[1])));
        assert!(failure.to_string().starts_with(&format!("enwiki/page/Bad?rev/{}/: ", tids[1])), "{failure}");
        world.assert_old(&page("Bad"), tids[1], &html("2.8.0"), b"Bad").await;
        world.assert_new(&page("A"), tids[0], b"A").await;
        world.assert_new(&page("C"), tids[2], b"C").await;
        if archived {
            return failure.reason.clone();
        }
    }
    unreachable!("the loop ends with a return")
}

#[tokio::test]
async fn bad_answer_is_counted_and_named_and_the_run_continues() {
    let foreign = serve(Router::new().route("/new", post(|| async { answer(&html("3.0.0"), "evil") }))).await;
    let answers: [(&str, Respond); 9] = [
        (
            "text/html was expected",
            Box::new(|| answer("text/plain; profile=\"https://example.org/html/3.0.0\"", "x")),
        ),
        ("without a profile", Box::new(|| answer("text/html", "x"))),
        ("2.8.0, but", Box::new(|| answer(&html("2.8.0"), "x"))),
        ("3.1.0, but", Box::new(|| answer(&html("3.1.0"), "x"))),
        (
            "other/3.0.0, but",
            Box::new(|| answer("text/html; profile=\"https://example.org/other/3.0.0\"", "x")),
        ),
        ("malformed", Box::new(|| answer("nonsense", "x"))),
        ("500", Box::new(|| StatusCode::INTERNAL_SERVER_ERROR.into_response())),
        ("1,000", Box::new(|| answer(&html("3.0.0"), noise(1, 5_000)))),
        ("host", Box::new(move || Redirect::temporary(&foreign).into_response())),
    ];
    for (words, respond) in answers {
        let respond = Arc::new(respond);
        let settings = TransformerSettings { max_size: 1_000, ..TransformerSettings::default() };
        let reason = reason_of(move || respond(), settings).await;
        let reason = reason.replace("1000", "1,000");
        assert!(reason.contains(words), "{words}: {reason}");
    }
}

#[tokio::test]
async fn slow_transformer_times_out() {
    let world = World::in_memory().await;
    let tid = world.put(&page("Late"), 1, &html("2.8.0"), b"late").await;
    let url = serve(Router::new().route("/new", post(std::future::pending::<StatusCode>))).await;
    let settings =
        TransformerSettings { timeout: Duration::from_millis(100), ..TransformerSettings::default() };
    let (report, result) = world.rewrite_with(transformers(&url, settings), options()).await;
    result.unwrap();
    assert_eq!(report.failures.count, 1);
    assert!(report.failures.first[0].reason.contains("did not answer in time"), "{report:?}");
    world.assert_old(&page("Late"), tid, &html("2.8.0"), b"late").await;
}

#[tokio::test]
async fn transformer_that_is_down_ends_the_run_soon() {
    let world = World::in_memory().await;
    let mut tids = Vec::new();
    for number in 0..100 {
        tids.push(world.put(&page(&format!("P{number:02}")), 1, &html("2.8.0"), b"old").await);
    }
    let (url, asked) = broken_transformer(StatusCode::SERVICE_UNAVAILABLE).await;
    let all = transformers(&url, TransformerSettings::default());
    let (report, result) = world.rewrite_with(all, options()).await;
    let error = result.unwrap_err();
    assert!(matches!(error, RewriteError::TooManyFailures(_)), "{error}");
    assert!(
        error.to_string().contains("20 values in succession, the last time for enwiki/page/P"),
        "{error}"
    );
    let asked = asked.load(Ordering::SeqCst) as u64;
    assert!((MAX_CONSECUTIVE_FAILURES..MAX_CONSECUTIVE_FAILURES + 4).contains(&asked), "{asked}");
    assert!(report.failures.count >= MAX_CONSECUTIVE_FAILURES && report.failures.first.len() == 20);
    world.assert_old(&page("P00"), tids[0], &html("2.8.0"), b"old").await;

    // After the transformer is up again, another run rewrites all values.
    let (url, _) = transformer().await;
    assert_eq!(world.rewrite(&url, options()).await.rewritten, 100);
}

/// The transformer fails for every second value. The run continues, since the failures are not in succession.
#[tokio::test]
async fn success_resets_the_count_of_failures() {
    let world = World::in_memory().await;
    for number in 0..100 {
        world.put(&page(&format!("P{number:02}")), 1, &html("2.8.0"), format!("{number}").as_bytes()).await;
    }
    let url = serve(Router::new().route(
        "/new",
        post(move |body: Bytes| async move {
            let is_even = std::str::from_utf8(&body).unwrap().parse::<u32>().unwrap() % 2 == 0;
            if is_even { answer(&html("3.0.0"), "new") } else { StatusCode::BAD_GATEWAY.into_response() }
        }),
    ))
    .await;
    let serial = RewriteOptions { concurrency: std::num::NonZeroUsize::MIN, ..options() };
    let report = world.rewrite(&url, serial).await;
    assert_eq!((report.rewritten, report.failures.count), (50, 50));
    assert_eq!(report.failures.first.len(), 20);
}

/// The new document is larger than the property may be.
#[tokio::test]
async fn document_that_is_too_large_for_the_property_is_refused() {
    let world = World::in_memory().await;
    let tid = world.put(&page("Big"), 1, &html("2.8.0"), b"small").await;
    let limit = 64 << 20;
    let url = serve(
        Router::new()
            .route("/new", post(move || async move { answer(&html("3.0.0"), vec![b'x'; limit + 1]) })),
    )
    .await;
    let settings = TransformerSettings { max_size: 200 << 20, ..TransformerSettings::default() };
    let (report, result) = world.rewrite_with(transformers(&url, settings), options()).await;
    result.unwrap();
    assert_eq!(report.failures.count, 1, "{report:?}");
    assert!(report.failures.first[0].reason.contains("its limit"), "{report:?}");
    world.assert_old(&page("Big"), tid, &html("2.8.0"), b"small").await;
    assert_eq!(world.buckets.maintenance().collect_chunks().await.unwrap(), 0, "its chunks were deleted");
}
