//! Tests of answers to clients that take gzip and not zstd.

use std::io::Read as _;

use crate::world::{Answer, PAGE, World};

const GZIP: (&str, &str) = ("accept-encoding", "gzip, deflate, br");

fn unpacked(answer: &Answer) -> Vec<u8> {
    assert_eq!(answer.header("content-encoding"), "gzip", "{:?}", answer.headers);
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_end(&mut plain).unwrap();
    plain
}

fn varies(answer: &Answer) -> bool {
    let mut values =
        answer.headers.get_all("vary").iter().flat_map(|value| value.to_str().unwrap().split(','));
    values.any(|name| name.trim().eq_ignore_ascii_case("accept-encoding"))
}

/// URLs with their media type, of every kind of answer that has a body.
async fn urls(world: &World) -> Vec<String> {
    let html = "<p>Fog over the island.</p>".repeat(100);
    let tid = world.revision(&format!("_rev=7&html={html}&wikitext={html}")).await;
    let large = "<p>Large.</p>".repeat(200_000);
    let list = "/v1/enwiki/page/Large?rev/";
    world.post(list, &format!("_rev=1&html={large}")).await.expect(201);
    let json = [("content-type", "application/json")];
    world
        .request("PUT", "/v1/enwiki/notes", &json, r#"{"type": "blob", "content_type": "text/plain"}"#)
        .await
        .expect(201);
    world.request("PUT", "/v1/enwiki/notes/a", &[], html.clone()).await.expect(201);
    vec![
        format!("{PAGE}?rev/latest/html"),
        format!("{PAGE}?rev/{tid}/wikitext"),
        format!("{PAGE}?rev/"),
        format!("{PAGE}?rev/latest/"),
        format!("{PAGE}?timemap/html"),
        "/v1/enwiki/page/Large?rev/latest/html".to_owned(),
        "/v1/enwiki/notes/a".to_owned(),
        "/pages/enwiki/Main_Page".to_owned(),
        "/openapi.json".to_owned(),
        "/docs".to_owned(),
    ]
}

#[tokio::test]
async fn clients_without_zstd_get_gzip() {
    let world = World::new().await;
    for url in urls(&world).await {
        let plain = world.get(&url).await.expect(200);
        assert!(
            varies(&plain) && !plain.headers.contains_key("content-encoding"),
            "{url}: {:?}",
            plain.headers
        );
        let gzip = world.get_with(&url, &[GZIP]).await.expect(200);
        assert_eq!(unpacked(&gzip), plain.body, "{url}");
        assert!(gzip.body.len() < plain.body.len() && varies(&gzip), "{url}");
        assert!(["", &gzip.body.len().to_string()].contains(&gzip.header("content-length")), "{url}");
        assert!(!gzip.headers.contains_key("accept-ranges"), "{url}");
        for name in ["content-type", "cache-control", "last-modified", "content-security-policy"] {
            assert_eq!(gzip.header(name), plain.header(name), "{url}");
        }
        let etag = plain.header("etag").to_owned();
        if !etag.is_empty() {
            let of_gzip = format!("{};gzip\"", &etag[..etag.len() - 1]);
            assert_eq!(gzip.header("etag"), of_gzip, "{url}");
            // Each form is found by its tag, whatever the client takes now.
            for (sent, headers) in [(&of_gzip, &[GZIP][..]), (&of_gzip, &[]), (&etag, &[GZIP]), (&etag, &[])]
            {
                let headers = [headers, &[("if-none-match", sent.as_str())]].concat();
                let same = world.get_with(&url, &headers).await.expect(304);
                assert_eq!(
                    (same.header("etag"), same.header("content-encoding")),
                    (sent.as_str(), ""),
                    "{url}"
                );
                assert!(varies(&same), "{url}");
            }
            let weak = format!("W/{of_gzip}");
            world.get_with(&url, &[GZIP, ("if-none-match", &weak)]).await.expect(304);
            world.get_with(&url, &[GZIP, ("if-match", &of_gzip)]).await.expect(200);
        }
        let head = world.request("HEAD", &url, &[GZIP], "").await.expect(200);
        assert_eq!(
            (head.header("content-encoding"), head.header("etag")),
            ("gzip", gzip.header("etag")),
            "{url}"
        );
        assert!(["", gzip.header("content-length")].contains(&head.header("content-length")), "{url}");
    }
}

#[tokio::test]
async fn weights_and_ranges_decide_about_gzip() {
    let world = World::new().await;
    let url = urls(&world).await.remove(0);
    for (accepted, encoding) in [
        ("gzip", "gzip"),
        ("x-gzip;q=0.1", "gzip"),
        ("zstd;q=0, gzip", "gzip"),
        ("gzip, zstd", "zstd"),
        ("gzip;q=0", ""),
        ("gzip;q=0.5, identity", ""),
        ("identity", ""),
        ("*", ""),
    ] {
        let answer = world.get_with(&url, &[("accept-encoding", accepted)]).await.expect(200);
        assert_eq!(answer.header("content-encoding"), encoding, "{accepted}");
    }
    let plain = world.get(&url).await.expect(200);
    let part = world.get_with(&url, &[GZIP, ("range", "bytes=3-9")]).await.expect(206);
    assert_eq!((&part.body[..], part.header("content-encoding")), (&plain.body[3..=9], ""));
    assert_eq!(part.header("etag"), plain.header("etag"));
    // A part of the compressed body is not sent: the tag of the compressed body gets the whole.
    let gzip = world.get_with(&url, &[GZIP]).await.expect(200);
    let headers = [GZIP, ("range", "bytes=3-9"), ("if-range", gzip.header("etag"))];
    assert_eq!(unpacked(&world.get_with(&url, &headers).await.expect(200)), plain.body);
    // The tag of a compressed body names the version that a write replaces.
    let put = |tag: String| {
        let tid = plain.header("content-location").to_owned();
        let world = &world;
        async move { world.request("PUT", &format!("{PAGE}{tid}"), &[("if-match", &tag)], "<p>new</p>").await }
    };
    put("\"7/8f545ba0-2601-11e3-885c-4160918f0fb9;gzip\"".to_owned()).await.expect(412);
    put(gzip.header("etag").to_owned()).await.expect(200);
}

#[tokio::test]
async fn other_answers_are_not_compressed() {
    let world = World::new().await;
    let url = urls(&world).await.remove(0);
    for (request, status) in [
        (format!("{PAGE}?rev/9/"), 404),
        (format!("{PAGE}?rev/latest"), 302),
        (format!("{PAGE}?rev/latest/none"), 404),
    ] {
        let answer = world.get_with(&request, &[GZIP]).await.expect(status);
        assert!(!answer.headers.contains_key("content-encoding"), "{request}");
    }
    let json = [("content-type", "application/json"), GZIP];
    let batch = serde_json::json!([{"method": "GET", "path": url, "headers": {"accept-encoding": "gzip"}}]);
    let answer = world.request("POST", "/v1/batch", &json, batch.to_string()).await.expect(200);
    assert!(answer.json()[0]["body"].as_str().unwrap().starts_with("<p>Fog"), "{}", answer.text());
    // What is short or compressed already would hardly become shorter.
    let image = [("content-type", "image/png")];
    world.request("PUT", "/v1/enwiki/notes/image", &image, "x".repeat(1000)).await.expect(201);
    world.request("PUT", "/v1/enwiki/notes/short", &[], "x".repeat(100)).await.expect(201);
    for key in ["image", "short"] {
        let answer = world.get_with(&format!("/v1/enwiki/notes/{key}"), &[GZIP]).await.expect(200);
        assert!(!answer.headers.contains_key("content-encoding") && varies(&answer), "{key}");
    }
}
