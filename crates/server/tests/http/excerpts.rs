//! Tests that errors repeat at most an excerpt of the request, whichever part of the request is wrong.

use axum::body::Body;
use rashomon_server::Settings;
use serde_json::Value;

use crate::world::{Answer, PAGE, World};

/// The size limit of a detail that repeats one part of a request.
const MAX_DETAIL: usize = 800;

#[track_caller]
fn check(what: &str, answer: &Answer) {
    answer.check_problem();
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.len() < MAX_DETAIL, "{what}: {} bytes: {detail:.800}", detail.len());
}

#[tokio::test]
async fn details_repeat_an_excerpt_of_headers() {
    let long = "x".repeat(10_000);
    let world = World::in_memory_with(Settings { check_host: true, ..Settings::default() }).await;
    check("host", &world.get_with(PAGE, &[("host", &long)]).await.expect(421));
    let world = World::new().await;
    check("host of a wiki", &world.get_with("/wiki/A", &[("host", &long)]).await.expect(404));
    let origin = format!("http://{long}");
    let headers = [("origin", &*origin), ("content-type", "application/x-www-form-urlencoded")];
    let posted = world.request("POST", &format!("{PAGE}?rev/"), &headers, "html=x").await;
    check("origin", &posted.expect(403));
    let media_type = format!("text/{long}");
    let headers = [("content-type", &*media_type)];
    let posted = world.request("POST", &format!("{PAGE}?rev/"), &headers, "html=x").await;
    check("content-type", &posted.expect(415));
    let tid = world.revision("_rev=1&html=x").await;
    let url = format!("{PAGE}?rev/{tid}/html");
    let no_type = [("content-type", &long[..8000])];
    check("header of a PUT", &world.request("PUT", &url, &no_type, "y").await.expect(400));
    check(
        "range",
        &world.get_with(&url, &[("range", &format!("bytes=9-{}", "9".repeat(9000)))]).await.expect(416),
    );
    let refused = world.request("PUT", &url, &[("content-type", "a/b"), ("if-match", &long)], "y").await;
    check("if-match", &refused);
}

#[tokio::test]
async fn details_repeat_an_excerpt_of_queries() {
    let world = World::new().await;
    let long = "x".repeat(10_000);
    for query in [
        long.clone(),
        format!("rev/{long}"),
        format!("rev/{long}/html"),
        format!("rev/latest/{long}"),
        format!("rev/&{long}=1"),
        format!("rev/&limit={long}"),
        format!("rev/&page={long}"),
        format!("timegate/{long}"),
        format!("rev/2013-{long}/html"),
    ] {
        let answer = world.get(&format!("{PAGE}?{query}")).await;
        assert!(answer.status.is_client_error(), "{query:.60}");
        check(&query[..20], &answer);
    }
    check("domain", &world.get(&format!("/v1/{long}/page/A")).await.expect(400));
    check("title", &world.get(&format!("/v1/enwiki/page/{long}")).await.expect(400));
    check("path", &world.get(&format!("/{long}")).await.expect(404));
    check("query of a list", &world.get(&format!("/pages/enwiki/?{long}")).await.expect(400));
}

#[tokio::test]
async fn details_repeat_an_excerpt_of_forms() {
    let world = World::new().await;
    let long = "x".repeat(12_000);
    let url = format!("{PAGE}?rev/");
    for form in [
        format!("{long}=1"),
        format!("_{}=1", &long[..200]),
        format!("html=x&_parent={long}"),
        format!("html=x&_rev={long}"),
        format!("html=x&_timestamp={long}"),
        format!("html=x&_comment={long}{long}"),
        format!("html=x&_parent={}?rev/1", &long[..200]),
        format!("html=x&_http-equiv.html={{\"{long}\":\"1\"}}"),
        format!("html=x&_http-equiv.html={{\"a{}\":\"1\"}}", &long[..8000]),
        format!("html=x&_http-equiv.html={{\"x-{}\":\"%C3%A9\"}}", &long[..8000]),
        format!("html=x&_http-equiv.html={long}"),
        format!("html=x&_http-equiv.{}=1", &long[..200]),
    ] {
        let answer = world.post(&url, &form).await;
        assert!(answer.status.is_client_error(), "{form:.60}");
        check(&form[..30.min(form.len())], &answer);
    }
    let parts = |headers: &str| format!("--b\r\n{headers}\r\n\r\nx\r\n--b--\r\n");
    let disposition = "Content-Disposition: form-data; name=\"html\"";
    for body in [
        parts(&format!("Content-Disposition: form-data; name=\"{long}\"")),
        parts(&format!("{disposition}\r\nX-{}: 1\r\nX-{}: 2", &long[..7000], &long[..7000])),
        parts(&format!("{disposition}\r\n{}: 1", &long[..7000])),
        parts(&format!("{disposition}\r\nContent-Type: {long}")),
        parts(&format!("{disposition}\r\nContent-Transfer-Encoding: {long}")),
    ] {
        let headers = [("content-type", "multipart/form-data; boundary=b")];
        let answer = world.request("POST", &url, &headers, body.clone()).await;
        assert!(answer.status.is_client_error(), "{body:.80}");
        check(&body[..60], &answer);
    }
}

#[tokio::test]
async fn failed_imports_repeat_an_excerpt_of_the_input() {
    let world = World::new().await;
    let import = async |body: String| world.request("POST", "/v1/enwiki/import", &[], Body::from(body)).await;
    let long = "x".repeat(1 << 20);
    let site = "{\"kind\":\"siteinfo\",\"version\":1}\n";
    for body in [
        format!("{site}{{\"kind\":\"{long}\"}}\n"),
        format!("{site}{{\"kind\":\"page\",\"title\":\"A\",\"{long}\":1}}\n"),
        format!("<mediawiki><page></{long}></mediawiki>"),
    ] {
        check(&body[..50], &import(body.clone()).await.expect(400));
    }
    let sha1 = format!(
        "{site}{{\"kind\":\"page\",\"title\":\"A\"}}\n{{\"kind\":\"revision\",\"rev\":1,\"timestamp\":\
         \"2011-01-01T00:00:00Z\",\"properties\":{{\"wikitext\":{{\"text\":\"\",\"sha1\":\"{long}\"}}}}}}\n\
         {{\"kind\":\"end\",\"pages\":1,\"revisions\":1,\"renders\":0}}\n"
    );
    let answer = import(sha1).await.expect(200);
    let last: Value = serde_json::from_str(answer.text().lines().last().unwrap()).unwrap();
    let detail = last["first_mismatches"][0]["detail"].as_str().unwrap();
    assert!(detail.starts_with("the sha1 of") && detail.len() < MAX_DETAIL, "{detail:.800}");
}
