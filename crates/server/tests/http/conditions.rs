//! Tests of conditional requests, ranges, and bodies that are sent compressed.

use super::world::{PAGE, World};

async fn world_with_one_revision() -> (World, String, String) {
    let world = World::new().await;
    let html = "<p>0123456789</p>".repeat(100);
    let tid = world.revision(&format!("_rev=7&html={html}&wikitext=0123456789")).await;
    (world, tid, html)
}

#[tokio::test]
async fn current_version_is_not_sent_again() {
    let (world, tid, _) = world_with_one_revision().await;
    for query in ["rev/latest/html".to_owned(), format!("rev/{tid}/html")] {
        let url = format!("{PAGE}?{query}");
        for tag in [
            format!("\"7/{tid}\""),
            format!("W/\"7/{tid}\""),
            format!("\"7/{tid}-gzip\""),
            format!("\"x\", \"7/{tid};zstd\""),
            "*".to_owned(),
        ] {
            let answer = world.get_with(&url, &[("if-none-match", &tag)]).await.expect(304);
            assert!(answer.body.is_empty());
            let flavor = if tag.contains("zstd") { ";zstd" } else { "" };
            assert_eq!(answer.header("etag"), format!("\"7/{tid}{flavor}\""));
            assert!(!answer.header("cache-control").is_empty());
            assert_eq!(answer.header("vary"), "Accept-Encoding");
            assert_eq!(answer.header("content-location"), format!("?rev/{tid}/html"));
            assert_eq!((answer.header("content-length"), answer.header("content-type")), ("", ""));
        }
        world.get_with(&url, &[("if-none-match", "\"8/else\"")]).await.expect(200);
        world.get_with(&url, &[("if-match", &format!("\"7/{tid}\""))]).await.expect(200);
        world.get_with(&url, &[("if-match", "\"8/else\"")]).await.expect(412);
    }
}

#[tokio::test]
async fn if_modified_since_applies_only_to_urls_with_a_tid() {
    let (world, tid, _) = world_with_one_revision().await;
    let same = [("if-modified-since", "Mon, 01 Jan 2024 00:00:00 GMT")];
    let before = [("if-modified-since", "Sun, 31 Dec 2023 23:59:59 GMT")];
    world.get_with(&format!("{PAGE}?rev/{tid}/html"), &same).await.expect(304);
    world.get_with(&format!("{PAGE}?rev/{tid}/html"), &before).await.expect(200);
    world.get_with(&format!("{PAGE}?rev/latest/html"), &same).await.expect(200);
}

#[tokio::test]
async fn if_unmodified_since_refuses_changed_properties() {
    let (world, tid, _) = world_with_one_revision().await;
    let same = [("if-unmodified-since", "Mon, 01 Jan 2024 00:00:00 GMT")];
    let before = [("if-unmodified-since", "Sun, 31 Dec 2023 23:59:59 GMT")];
    let property = format!("{PAGE}?rev/{tid}/html");
    for url in [&property, &format!("{PAGE}?rev/latest/html")] {
        world.get_with(url, &same).await.expect(200);
        world.get_with(url, &before).await.expect(412);
        let tagged = [before[0], ("if-match", "*")];
        world.get_with(url, &tagged).await.expect(200);
    }
    world.request("PUT", &property, &before, "new").await.expect(412);
    world.request("PUT", &property, &same, "new").await.expect(200);
    world.clock.advance(std::time::Duration::from_secs(1));
    // The property has been replaced a second after the render was made.
    world.request("PUT", &property, &same, "newer").await.expect(412);
    assert_eq!(world.get(&property).await.text(), "new");
}

#[tokio::test]
async fn json_has_an_entity_tag_of_its_bytes() {
    let (world, _, _) = world_with_one_revision().await;
    for query in ["rev/", "rev/latest/", "rev/7/", "timemap/html"] {
        let url = format!("{PAGE}?{query}");
        let first = world.get(&url).await.expect(200);
        let tag = first.header("etag").to_owned();
        world.get_with(&url, &[("if-none-match", &tag)]).await.expect(304);
        world.get_with(&url, &[("if-none-match", &format!("W/{}", tag.replace("\"", "")))]).await.expect(304);
        world.get_with(&url, &[("if-match", "\"else\"")]).await.expect(412);
    }
    let url = format!("{PAGE}?rev/7/");
    let tag = world.get(&url).await.header("etag").to_owned();
    world.render("7", "html=new").await;
    let changed = world.get_with(&url, &[("if-none-match", &tag)]).await.expect(200);
    assert_ne!(changed.header("etag"), tag);
}

#[tokio::test]
async fn single_range_of_a_body_is_returned() {
    let (world, tid, html) = world_with_one_revision().await;
    for (name, body) in [("wikitext", "0123456789"), ("html", &html)] {
        for query in [format!("rev/latest/{name}"), format!("rev/{tid}/{name}")] {
            let url = format!("{PAGE}?{query}");
            let size = body.len();
            for (range, first, last) in [
                ("bytes=0-0", 0, 0),
                ("bytes=2-5", 2, 5),
                ("bytes=4-", 4, size - 1),
                ("bytes=-3", size - 3, size - 1),
                ("bytes=5-99999999", 5, size - 1),
            ] {
                let headers = [("range", range), ("accept-encoding", "zstd")];
                let answer = world.get_with(&url, &headers).await.expect(206);
                assert_eq!(answer.text(), &body[first..=last], "{range}");
                assert_eq!(answer.header("content-range"), format!("bytes {first}-{last}/{size}"));
                assert_eq!(answer.header("content-length"), (last - first + 1).to_string());
                assert_eq!(answer.header("etag"), format!("\"7/{tid}\""));
                assert_eq!(answer.header("content-encoding"), "");
            }
            let answer = world.get_with(&url, &[("range", &format!("bytes={size}-"))]).await.expect(416);
            assert_eq!(answer.header("content-range"), format!("bytes */{size}"));
            for ignored in ["bytes=0-1,3-4", "bytes=5-2", "pages=1-2", "bytes=x"] {
                let answer = world.get_with(&url, &[("range", ignored)]).await.expect(200);
                assert_eq!(answer.body.len(), size);
            }
        }
    }
}

#[tokio::test]
async fn range_is_ignored_unless_the_method_is_get() {
    let (world, tid, html) = world_with_one_revision().await;
    let url = format!("{PAGE}?rev/{tid}/html");
    for range in ["bytes=0-4", "bytes=99999-"] {
        let head = world.request("HEAD", &url, &[("range", range)], "").await.expect(200);
        assert_eq!(head.header("content-length"), html.len().to_string());
    }
}

#[tokio::test]
async fn range_of_another_version_is_not_sent() {
    let (world, tid, html) = world_with_one_revision().await;
    let url = format!("{PAGE}?rev/{tid}/html");
    let fits = format!("\"7/{tid}\"");
    world.get_with(&url, &[("range", "bytes=0-4"), ("if-range", &fits)]).await.expect(206);
    let answer =
        world.get_with(&url, &[("range", "bytes=0-4"), ("if-range", "\"7/else\"")]).await.expect(200);
    assert_eq!(answer.text(), html);
}

#[tokio::test]
async fn bodies_are_compressed_for_clients_that_accept_it() {
    let (world, tid, html) = world_with_one_revision().await;
    for query in ["rev/latest/html".to_owned(), format!("rev/{tid}/html")] {
        let url = format!("{PAGE}?{query}");
        let answer = world.get_with(&url, &[("accept-encoding", "gzip, zstd;q=0.5")]).await.expect(200);
        assert_eq!(answer.header("content-encoding"), "zstd");
        assert_eq!(answer.header("etag"), format!("\"7/{tid};zstd\""));
        assert_eq!(answer.header("vary"), "Accept-Encoding");
        assert_eq!(answer.header("content-length"), answer.body.len().to_string());
        assert!(answer.body.len() < html.len());
        assert_eq!(zstd::decode_all(&answer.body[..]).unwrap(), html.as_bytes());
        for refused in ["br", "zstd;q=0", "*", ""] {
            let answer = world.get_with(&url, &[("accept-encoding", refused)]).await.expect(200);
            assert_eq!((answer.header("content-encoding"), answer.text()), ("", html.as_str()), "{refused}");
        }
    }
}
