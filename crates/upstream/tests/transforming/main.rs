//! Transformers against real HTTP servers.
#![allow(clippy::unwrap_used)] // Also in functions that tests call.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
    routing::post,
};
use rashomon_pages::rewriting::Transformed;
use rashomon_protocol::spec_version::Profile;
use rashomon_upstream::transformer::{Settings, SettingsError, Step, TransformError, Transformers};
use tokio::sync::Semaphore;

/// The time after which a transformer is late. Only the tests of late answers wait for it.
const TIMEOUT: Duration = Duration::from_millis(300);

/// The time limit of the other tests.
const LONG: Duration = Duration::from_secs(60);

const MAX_SIZE: u64 = 1000;

fn profile(version: &str) -> Profile {
    Profile::parse(&format!("https://example.org/html/{version}")).unwrap()
}

fn html(version: &str) -> String {
    format!("text/html; charset=utf-8; profile=\"{}\"", profile(version))
}

/// Starts a server. Returns its address.
async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

/// The answer with a document.
fn answer(content_type: &str, body: impl Into<axum::body::Body>) -> Response {
    ([(header::CONTENT_TYPE, content_type.to_owned())], body.into()).into_response()
}

fn step(from: &str, to: &str, url: String) -> Step {
    Step { from: profile(from).to_string(), to: profile(to).to_string(), url }
}

fn settings(address: &str, steps: Vec<Step>) -> Settings {
    Settings {
        steps,
        hosts: vec![address.to_owned()],
        timeout: LONG,
        max_size: MAX_SIZE,
        ..Settings::default()
    }
}

async fn transform(
    transformers: &Transformers,
    stored: &str,
    wanted: &str,
) -> Result<Transformed, TransformError> {
    let body = Bytes::from_static(b"stored");
    transformers.transform(&html(stored), 6, &profile(wanted), async { Ok(body) }).await
}

/// The result of one step, from 2.0.0 to 1.4.0, whose transformer gives this answer.
async fn result_of(
    respond: impl Fn() -> Response + Clone + Send + Sync + 'static,
) -> Result<Transformed, TransformError> {
    let address = serve(Router::new().route("/down", post(move || async move { respond() }))).await;
    let steps = vec![step("2.0.0", "1.4.0", format!("http://{address}/down"))];
    let transformers = Transformers::new(settings(&address, steps)).unwrap();
    transform(&transformers, "2.8.0", "1.2.0").await
}

#[track_caller]
fn assert_failed(result: &Result<Transformed, TransformError>, words: &str) {
    let Err(TransformError::Failed { step, why }) = result else { panic!("{result:?}") };
    assert_eq!(step, "2.0.0 to 1.4.0");
    assert!(why.contains(words), "{why}");
}

#[tokio::test]
async fn document_passes_through_each_step_of_the_chain() {
    async fn change(headers: HeaderMap, version: &str, body: Bytes) -> Response {
        let text = format!(
            "{}|{}|{}",
            headers[header::CONTENT_TYPE].to_str().unwrap().rsplit_once('/').unwrap().1.trim_end_matches('"'),
            headers[header::ACCEPT].to_str().unwrap(),
            String::from_utf8(body.to_vec()).unwrap()
        );
        answer(&html(version), text)
    }
    let router = Router::new()
        .route("/3", post(async |headers: HeaderMap, body: Bytes| change(headers, "2.8.0", body).await))
        .route("/2", post(async |headers: HeaderMap, body: Bytes| change(headers, "1.4.1", body).await));
    let address = serve(router).await;
    let steps = vec![
        step("2.0.0", "1.4.0", format!("http://{address}/2")),
        step("3.0.0", "2.8.0", format!("http://{address}/3")),
    ];
    let transformers = Transformers::new(settings(&address, steps)).unwrap();
    assert!(transformers.can_make(&profile("3.1.0"), &profile("1.2.0")));
    assert!(!transformers.can_make(&profile("3.1.0"), &profile("1.5.0")));
    let made = transform(&transformers, "3.1.0", "1.2.0").await.unwrap();
    assert_eq!(made.content_type, html("1.4.1"));
    assert_eq!(
        made.body,
        "2.8.0|text/html; profile=\"https://example.org/html/1.4.0\"|3.1.0|text/html; \
         profile=\"https://example.org/html/2.8.0\"|stored"
    );
    let error = transform(&transformers, "1.4.0", "2.8.0").await.unwrap_err();
    assert!(matches!(error, TransformError::NoChain { .. }), "{error}");
}

#[tokio::test]
async fn answer_that_is_not_as_expected_is_refused() {
    for (content_type, words) in [
        (html("1.3.0"), "1.3.0, but https://example.org/html/1.4.0 was expected"),
        (html("1.5.0"), "1.5.0, but"),
        (html("2.4.0"), "2.4.0, but"),
        ("text/html; profile=\"https://example.org/other/1.4.0\"".to_owned(), "other/1.4.0, but"),
        ("text/html".to_owned(), "without a profile"),
        ("text/html; profile=\"nonsense\"".to_owned(), "without a profile"),
        ("application/json; profile=\"https://example.org/html/1.4.0\"".to_owned(), "text/html was expected"),
        ("nonsense".to_owned(), "malformed"),
    ] {
        let result = result_of(move || answer(&content_type, "x")).await;
        assert_failed(&result, words);
    }
    assert_failed(&result_of(|| StatusCode::OK.into_response()).await, "without a content type");
    assert_failed(&result_of(|| StatusCode::INTERNAL_SERVER_ERROR.into_response()).await, "500");
    assert_failed(&result_of(|| StatusCode::NOT_FOUND.into_response()).await, "404");
    assert_failed(&result_of(|| StatusCode::NO_CONTENT.into_response()).await, "204");
    let large = || answer(&html("1.4.0"), "x".repeat(MAX_SIZE as usize + 1));
    assert_failed(&result_of(large).await, "more than 1000 bytes");
    let encoded = || {
        let mut response = answer(&html("1.4.0"), "x");
        response.headers_mut().insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
        response
    };
    assert_failed(&result_of(encoded).await, "content encoding");
}

#[tokio::test]
async fn redirect_to_an_allowed_host_is_followed_with_the_document() {
    let router = Router::new()
        .route("/down", post(async || Redirect::temporary("/here")))
        .route("/here", post(async |body: Bytes| answer(&html("1.4.0"), body)));
    let address = serve(router).await;
    let steps = vec![step("2.0.0", "1.4.0", format!("http://{address}/down"))];
    let transformers = Transformers::new(settings(&address, steps)).unwrap();
    assert_eq!(transform(&transformers, "2.8.0", "1.4.0").await.unwrap().body, "stored");
}

#[tokio::test]
async fn other_redirects_are_refused() {
    static VISITS: AtomicUsize = AtomicUsize::new(0);
    let visited = async || {
        VISITS.fetch_add(1, Ordering::Relaxed);
        answer(&html("1.4.0"), "elsewhere")
    };
    let elsewhere = serve(Router::new().route("/", post(visited).get(visited))).await;
    let to = format!("http://{elsewhere}/");
    assert_failed(&result_of(move || Redirect::temporary(&to).into_response()).await, "allowed hosts");
    assert_eq!(VISITS.load(Ordering::Relaxed), 0);
    // A redirect that makes a GET of the POST.
    assert_failed(&result_of(|| Redirect::to("/down").into_response()).await, "keep the method");
    assert_failed(&result_of(|| Redirect::temporary("/down").into_response()).await, "more than 3 times");
}

#[tokio::test]
async fn late_answer_is_a_timeout() {
    let address = serve(Router::new().route("/down", post(std::future::pending::<()>))).await;
    let steps = vec![step("2.0.0", "1.4.0", format!("http://{address}/down"))];
    let transformers = Transformers::new(Settings { timeout: TIMEOUT, ..settings(&address, steps) }).unwrap();
    let result = transform(&transformers, "2.8.0", "1.2.0").await;
    assert!(matches!(result, Err(TransformError::TimedOut { .. })), "{result:?}");
}

#[tokio::test]
async fn large_document_is_not_read_at_all() {
    let transformers = Transformers::new(settings(
        "127.0.0.1:1",
        vec![step("2.0.0", "1.4.0", "http://127.0.0.1:1/".to_owned())],
    ))
    .unwrap();
    let read = async { panic!("the document is read") };
    let result: Result<_, TransformError> =
        transformers.transform(&html("2.8.0"), MAX_SIZE + 1, &profile("1.4.0"), read).await;
    assert_eq!(result, Err(TransformError::TooLarge { size: MAX_SIZE + 1, limit: MAX_SIZE }));
}

#[tokio::test]
async fn concurrent_transformations_are_bounded() {
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&gate);
    let respond = async move || {
        waiting.acquire().await.unwrap().forget();
        answer(&html("1.4.0"), "x")
    };
    let address = serve(Router::new().route("/down", post(respond))).await;
    let steps = vec![step("2.0.0", "1.4.0", format!("http://{address}/down"))];
    let settings =
        Settings { max_requests: NonZeroUsize::MIN, timeout: TIMEOUT, ..settings(&address, steps) };
    let transformers = Arc::new(Transformers::new(settings).unwrap());
    // The first request occupies the only place until it times out. The second request began to wait before that.
    let (first, second) = tokio::join!(transform(&transformers, "2.8.0", "1.4.0"), async {
        let result = transform(&transformers, "2.8.0", "1.4.0").await;
        gate.add_permits(8);
        result
    });
    assert!(matches!(first, Err(TransformError::TimedOut { .. })) || first.is_ok(), "{first:?}");
    assert!(matches!(second, Err(TransformError::Busy | TransformError::TimedOut { .. })), "{second:?}");
    // The place is free again.
    assert!(transform(&transformers, "2.8.0", "1.4.0").await.is_ok());
}

#[test]
fn invalid_settings_are_refused_with_a_cure() {
    let good = || step("2.0.0", "1.4.0", "http://127.0.0.1:1/".to_owned());
    let check = |change: &dyn Fn(&mut Settings), words: &str| {
        let mut settings = settings("127.0.0.1:1", vec![good()]);
        change(&mut settings);
        let error = Transformers::new(settings).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    check(&|settings| settings.timeout = Duration::ZERO, "30 seconds are usual");
    check(&|settings| settings.steps[0].from = "2.0.0".to_owned(), "such as https://");
    check(&|settings| settings.steps[0].to = "https://example.org/other/1.4.0".to_owned(), "another spec");
    check(&|settings| settings.steps[0].to = profile("2.0.0").to_string(), "not needed");
    check(
        &|settings| settings.steps[0].url = "ftp://127.0.0.1:1/".to_owned(),
        "neither http:// nor https://",
    );
    check(&|settings| settings.steps[0].url = "127.0.0.1".to_owned(), "such as http://");
    check(&|settings| settings.steps[0].url = "http://a:b@127.0.0.1:1/".to_owned(), "token_file");
    check(&|settings| settings.steps[0].url = "http://127.0.0.1:1/#a".to_owned(), "leave it out");
    check(
        &|settings| settings.steps[0].url = "http://127.0.0.1:2/".to_owned(),
        "add it to the allowed hosts",
    );
    check(&|settings| settings.hosts = vec!["*".to_owned()], "name each host");
    check(&|settings| settings.steps = vec![good(); Settings::MAX_STEPS + 1], "at most 64");
    check(&|settings| settings.token_file = Some("no-such-file".into()), "no-such-file");
    assert!(matches!(
        Transformers::new(settings(
            "127.0.0.1:1",
            vec![step("2.8.0", "2.7.0", "http://127.0.0.1:1/".to_owned())]
        )),
        Err(SettingsError::NotNeeded { .. })
    ));
}
