//! Tests of spec versions: the `Accept` header, 406, and versions that a transformer makes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    Router,
    body::Bytes,
    extract::DefaultBodyLimit,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use rashomon_upstream::transformer::{Settings, Step, Transformers};

use crate::world::{PAGE, World};

const SPEC: &str = "https://example.org/html";

fn html(version: &str) -> String {
    format!("text/html; charset=utf-8; profile=\"{SPEC}/{version}\"")
}

/// Stores a page whose latest revision has `html` of version 2.8.0. Returns the tid of its render.
async fn page(world: &World) -> String {
    let content_type = serde_json::json!({ "content-type": html("2.8.0") }).to_string();
    let content_type =
        percent_encoding::utf8_percent_encode(&content_type, percent_encoding::NON_ALPHANUMERIC);
    let form = format!("_rev=1&html=stored&wikitext=text&_http-equiv.html={content_type}");
    world.revision(&form).await
}

/// Starts a server. Returns its address.
async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

/// A server whose transformer makes version 1.4.0 from version 2.0.0 and from its higher minor versions.
async fn transforming(respond: impl Fn(Bytes) -> Response + Clone + Send + Sync + 'static) -> World {
    let transformer = post(async move |body: Bytes| respond(body)).layer(DefaultBodyLimit::disable());
    let address = serve(Router::new().route("/", transformer)).await;
    let steps = vec![Step {
        from: format!("{SPEC}/2.0.0"),
        to: format!("{SPEC}/1.4.0"),
        url: format!("http://{address}/"),
    }];
    let settings = Settings { steps, hosts: vec![address], ..Settings::default() };
    World::new().await.transforming(Transformers::new(settings).unwrap())
}

fn older(body: Bytes) -> Response {
    ([(header::CONTENT_TYPE, html("1.4.0"))], [b"older than ", &body[..]].concat()).into_response()
}

#[tokio::test]
async fn stored_version_satisfies_equal_and_lower_minor_versions() {
    let world = World::new().await;
    let tid = page(&world).await;
    for url in [format!("{PAGE}?rev/latest/html"), format!("{PAGE}?rev/{tid}/html")] {
        for version in ["2.8.0", "2.8.9", "2.0.0"] {
            let answer = world.get_with(&url, &[("accept", &html(version))]).await.expect(200);
            assert_eq!(answer.headers["content-type"], html("2.8.0"));
            // Only one version can be returned, and a request for another one gets 406.
            assert_eq!(answer.headers["vary"], "Accept-Encoding, Accept");
        }
        for accept in ["*/*", "text/html", "image/png", &format!("{}, */*;q=0.1", html("3.0.0"))] {
            world.get_with(&url, &[("accept", accept)]).await.expect(200);
        }
    }
}

#[tokio::test]
async fn version_that_cannot_be_returned_is_406_with_both_versions() {
    let world = World::new().await;
    let tid = page(&world).await;
    for url in [format!("{PAGE}?rev/latest/html"), format!("{PAGE}?rev/{tid}/html")] {
        for version in ["2.9.0", "1.0.0", "3.0.0", "nonsense"] {
            let accept = html(version);
            // The condition of the request is not evaluated, since there is no version to which it could apply.
            let headers = [("accept", &accept[..]), ("if-none-match", "*"), ("range", "bytes=0-0")];
            let answer = world.get_with(&url, &headers).await.expect(406);
            let problem = answer.json();
            assert_eq!(problem["type"], "urn:rashomon:problem:not-acceptable");
            assert_eq!(problem["expected"], format!("{SPEC}/{version}"));
            assert_eq!(problem["received"], format!("{SPEC}/2.8.0"));
            assert_eq!((answer.header("cache-control"), answer.header("vary")), ("no-store", "Accept"));
        }
    }
    // The wikitext was stored without a profile.
    let accept = "text/x-wiki; profile=\"https://example.org/wiki/1.0.0\"";
    let answer =
        world.get_with(&format!("{PAGE}?rev/latest/wikitext"), &[("accept", accept)]).await.expect(406);
    assert_eq!(answer.json()["received"], "text/x-wiki; charset=utf-8");
}

#[tokio::test]
async fn documents_of_the_server_have_versions_too() {
    let world = World::new().await;
    let tid = page(&world).await;
    world
        .request("PUT", "/v1/enwiki/math", &[("content-type", "application/json")], r#"{"type": "blob"}"#)
        .await
        .expect(201);
    for (url, name) in [
        (format!("{PAGE}?rev/latest/"), "render"),
        (format!("{PAGE}?rev/{tid}/"), "render"),
        (format!("{PAGE}?rev/1/"), "revision"),
        (format!("{PAGE}?rev/"), "revision-list"),
        ("/v1/enwiki/math".to_owned(), "bucket"),
        ("/v1/enwiki/math/".to_owned(), "entry-list"),
        ("/v1/enwiki/".to_owned(), "bucket-list"),
    ] {
        let accept = |version| format!("application/json; profile=\"urn:rashomon:{name}/{version}\"");
        let answer = world.get_with(&url, &[("accept", &accept("1.0"))]).await.expect(200);
        assert_eq!(answer.headers["content-type"], accept("1.0"), "{url}");
        assert_eq!(answer.headers["vary"], "Accept", "{url}");
        let head = world.request("HEAD", &url, &[], "").await.expect(200);
        assert_eq!(head.headers["vary"], "Accept", "{url}");
        if let Some(etag) = answer.headers.get("etag").map(|etag| etag.to_str().unwrap()) {
            let unchanged = world.get_with(&url, &[("if-none-match", etag)]).await.expect(304);
            assert_eq!(unchanged.headers["vary"], "Accept", "{url}");
        }
        for version in ["1.1", "2.0", "0.1"] {
            let answer = world.get_with(&url, &[("accept", &accept(version))]).await.expect(406);
            assert_eq!(answer.json()["received"], format!("urn:rashomon:{name}/1.0"), "{url}");
            assert_eq!(answer.headers["vary"], "Accept", "{url}");
        }
    }
}

#[tokio::test]
async fn write_whose_answer_is_not_accepted_changes_nothing() {
    let world = World::new().await;
    let tid = page(&world).await;
    let before = world.dump().await;
    let headers = [
        ("accept", "application/json; profile=\"urn:rashomon:written/2.0\""),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    for (method, url) in
        [("POST", "?rev/".to_owned()), ("POST", "?rev/1/".to_owned()), ("PUT", format!("?rev/{tid}/html"))]
    {
        world.request(method, &format!("{PAGE}{url}"), &headers, "_rev=2&html=x").await.expect(406);
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn transformer_makes_the_version_that_the_client_accepts() {
    let world = transforming(older).await;
    let tid = page(&world).await;
    for url in [format!("{PAGE}?rev/latest/html"), format!("{PAGE}?rev/{tid}/html")] {
        let stored = world.get(&url).await.expect(200);
        assert_eq!(stored.text(), "stored");
        assert_eq!(stored.headers["vary"], "Accept-Encoding, Accept");
        let accept = html("1.2.0");
        let made = world.get_with(&url, &[("accept", &accept)]).await.expect(200);
        assert_eq!(made.text(), "older than stored");
        assert_eq!(made.headers["content-type"], html("1.4.0"));
        assert_eq!(made.headers["vary"], "Accept-Encoding, Accept");
        for name in ["x-rev", "content-location", "link", "cache-control", "last-modified"] {
            assert_eq!(made.headers[name], stored.headers[name], "{name}");
        }
        let [of_stored, of_made] =
            [&stored, &made].map(|answer| answer.headers["etag"].to_str().unwrap().to_owned());
        let prefix = format!("{};1.4.0-", &of_stored[..of_stored.len() - 1]);
        assert!(of_made.starts_with(&prefix) && of_made.ends_with('"'), "{of_made}");
        // Each version has a tag of its own.
        world.get_with(&url, &[("accept", &accept), ("if-none-match", &of_made)]).await.expect(304);
        world.get_with(&url, &[("accept", &accept), ("if-none-match", &of_stored)]).await.expect(200);
        world.get_with(&url, &[("if-none-match", &of_made)]).await.expect(200);
        world.get_with(&url, &[("if-none-match", &of_stored)]).await.expect(304);
        let part = world.get_with(&url, &[("accept", &accept), ("range", "bytes=0-4")]).await.expect(206);
        assert_eq!(part.text(), "older");
        world.get_with(&url, &[("accept", &html("1.5.0"))]).await.expect(406);
    }
    // No transformer takes wikitext.
    let wikitext = world.get(&format!("{PAGE}?rev/latest/wikitext")).await.expect(200);
    assert_eq!(wikitext.headers["vary"], "Accept-Encoding");
}

#[tokio::test]
async fn large_body_is_transformed_as_a_whole() {
    let world = transforming(older).await;
    let content_type = html("2.8.0");
    let body = "x".repeat(3 << 20);
    let form = format!(
        "--b\r\nContent-Disposition: form-data; name=\"_rev\"\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; \
         name=\"html\"\r\nContent-Type: {content_type}\r\n\r\n{body}\r\n--b--\r\n"
    );
    let headers = [("content-type", "multipart/form-data; boundary=b")];
    world.request("POST", &format!("{PAGE}?rev/"), &headers, form).await.expect(201);
    let answer =
        world.get_with(&format!("{PAGE}?rev/latest/html"), &[("accept", &html("1.4.0"))]).await.expect(200);
    assert_eq!(answer.text(), format!("older than {body}"));
}

#[tokio::test]
async fn failure_of_a_transformer_is_502_and_names_no_host() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let world = transforming(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    })
    .await;
    page(&world).await;
    let url = format!("{PAGE}?rev/latest/html");
    let answer = world.get_with(&url, &[("accept", &html("1.4.0"))]).await.expect(502);
    assert_eq!(answer.json()["type"], "urn:rashomon:problem:transformer-failed");
    assert!(!answer.text().contains("127.0.0.1"), "{}", answer.text());
    assert_eq!(count.load(Ordering::Relaxed), 1);
    // The stored version is returned all the same.
    world.get(&url).await.expect(200);
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

/// The client has not seen the stored bytes, so its condition does not allow it to replace them.
#[tokio::test]
async fn tag_of_another_version_replaces_nothing() {
    let world = transforming(older).await;
    let tid = page(&world).await;
    let url = format!("{PAGE}?rev/{tid}/html");
    let made = world.get_with(&url, &[("accept", &html("1.4.0"))]).await.expect(200);
    assert_eq!(made.text(), "older than stored");
    let before = world.dump().await;
    world.request("PUT", &url, &[("if-match", made.header("etag"))], "edited").await.expect(412);
    assert_eq!(world.dump().await, before);
    let stored = world.get(&url).await.header("etag").to_owned();
    world.request("PUT", &url, &[("if-match", &stored)], "edited").await.expect(200);
}
