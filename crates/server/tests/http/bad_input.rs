//! Tests that every kind of bad input gets a clear error and changes nothing.

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use rashomon_server::Settings;

use crate::world::{PAGE, World};

const URLENCODED: [(&str, &str); 1] = [("content-type", "application/x-www-form-urlencoded")];

/// A world with one revision, the tid of its render, and a dump of the store.
async fn world() -> (World, String, std::collections::BTreeMap<String, String>) {
    let world = World::new().await;
    let tid = world.revision("_rev=5&html=x&wikitext=w").await;
    let dump = world.dump().await;
    (world, tid, dump)
}

/// Many clients print a problem, and a terminal obeys such characters.
#[tokio::test]
async fn characters_of_the_request_that_are_unsafe_to_show_are_escaped_in_problems() {
    let (world, ..) = world().await;
    let answer = world.post(&format!("{PAGE}?rev/"), "_x%C2%9B31m%E2%80%AE%1B=1&html=x").await;
    assert!((400..500).contains(&answer.status.as_u16()), "{answer:?}");
    assert!(!answer.text().chars().any(rashomon_pages::is_unsafe_to_show), "{answer:?}");
    assert!(answer.json()["detail"].as_str().unwrap().contains("31m"), "{answer:?}");
}

#[tokio::test]
async fn malformed_titles_are_refused() {
    let (world, tid, before) = world().await;
    let long = "a".repeat(1025);
    let encoded = "%C3%BC".repeat(513);
    for title in [
        "",
        ".",
        "..",
        "../Main_Page",
        "a/../b",
        "a/..",
        "./a",
        "%2e%2e",
        "%2E%2e/x",
        "%2E.",
        ".%2e/x",
        "a%2F..%2Fb",
        "%00",
        "a%00b",
        "a%0Ab",
        "%0d",
        "%1F",
        "%7F",
        "%C2%9F",
        "%",
        "%4",
        "%zz",
        "a%2",
        "%FF",
        "%C3",
        "%C3x",
        "%ED%A0%80",
        "%C0%AE%C0%AE",
        "%F8%88%80%80%80",
        &long,
        &encoded,
    ] {
        for (method, query) in [
            ("GET", ""),
            ("GET", "?rev/latest/html"),
            ("HEAD", "?rev/"),
            ("POST", "?rev/"),
            ("POST", "?rev/5/"),
            ("PUT", &*format!("?rev/{tid}/html")),
        ] {
            let answer = world
                .request(method, &format!("/v1/enwiki/page/{title}{query}"), &URLENCODED, "_rev=6&html=y")
                .await;
            assert_eq!(answer.status.as_u16(), 400, "{method} {title}{query}: {answer:?}");
            if method != "HEAD" {
                answer.check_problem();
            }
        }
        let answer = world.get_with(&format!("/wiki/{title}"), &[("host", "en.example.org")]).await;
        answer.expect(400);
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn malformed_domains_are_refused() {
    let (world, _, before) = world().await;
    let long = "a".repeat(129);
    for domain in
        ["EN", "-en", ".en", "_en", "changes", "batch", "e%6Ewiki", "..", "%2e%2e", "en%2Fwiki", "é", &long]
    {
        let url = format!("/v1/{domain}/page/Main_Page?rev/");
        world.get(&url).await.expect(400);
        world.post(&url, "_rev=6&html=y").await.expect(400);
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn too_long_urls_are_refused() {
    let (world, _, before) = world().await;
    let title = "a".repeat(60_000);
    for url in [
        format!("/v1/enwiki/page/{title}?rev/latest/html"),
        format!("/wiki/{title}"),
        format!("{PAGE}?rev/&page={title}"),
        format!("/{title}"),
    ] {
        let answer = world.get(&url).await.expect(414);
        assert!(answer.body.len() < 1000);
        world.post(&url, "_rev=6&html=y").await.expect(414);
    }
    // The limit of URLs is higher than the limit of titles.
    world.get(&format!("/v1/enwiki/page/{}", "a".repeat(16_000))).await.expect(400);
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn malformed_queries_are_refused() {
    let (world, _, before) = world().await;
    for query in [
        "rev/0/",
        "rev/05/",
        "rev/-5/",
        "rev/9223372036854775808/",
        "rev/5.0/html",
        "rev/five/",
        "rev//html",
        "rev/latest/HTML",
        "rev/latest/_user",
        "rev/latest/a%2Fb",
        "rev/5/&x=1",
        "rev/latest/html&oldid=5",
        "rev/&limit=0",
        "rev/&limit=501",
        "rev/&limit=x",
        "rev/&page=x",
        "rev/&limit=5&limit=6",
        "rev/8F545BA0-2601-11E3-885C-4160918F0FB9/",
        "rev/8f545ba0-2601-41e3-885c-4160918f0fb9/",
        "rev/8f545ba0-2601-71e3-885c-4160918f0fb9/html",
        "rev/8f545ba0-2601-11e3-c85c-4160918f0fb9/html",
        "rev/2013-02-30T00:00:00Z/html",
        "rev/2013-02-30/html",
        "rev/2013-02-23T22:23:24/html",
        "rev/2013-02-23T25:00:00Z/html",
        "action=edit",
        "timegate/HTML",
        "timemap/html&limit=501",
    ] {
        let url = format!("{PAGE}?{query}");
        for method in ["GET", "OPTIONS"] {
            world.request(method, &url, &URLENCODED, "").await.expect(400);
        }
        for method in ["DELETE", "TRACE"] {
            world.request(method, &url, &URLENCODED, "").await.expect(405);
        }
        // If the path in the query names a resource that does not take the method, the answer is 405.
        for method in ["POST", "PUT"] {
            let refused = world.request(method, &url, &URLENCODED, "_rev=6&html=y").await;
            refused.check_problem();
            assert!([400, 405].contains(&refused.status.as_u16()), "{method} {url}: {refused:?}");
        }
    }
    for query in ["history", "rev/latest/html/", "rev/5/html/x", "rev/2013-02-23T22:23:24Z/", "blob/a"] {
        for method in ["GET", "POST", "PUT"] {
            let url = format!("{PAGE}?{query}");
            world.request(method, &url, &URLENCODED, "_rev=6&html=y").await.expect(404);
        }
    }
    for query in ["rev/&limit=1", "rev/&page=NQ", "rev/&limit=1&page=NQ"] {
        world.get(&format!("{PAGE}?{query}")).await.expect(200);
        world.post(&format!("{PAGE}?{query}"), "_rev=6&html=y").await.expect(400);
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn wrong_methods_are_refused() {
    let (world, tid, before) = world().await;
    let render = format!("rev/{tid}/");
    let property = format!("rev/{tid}/html");
    for (query, methods, allow) in [
        ("", &["POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"][..], "GET, HEAD, OPTIONS"),
        ("rev", &["POST", "PUT"], "GET, HEAD, OPTIONS"),
        ("rev/", &["PUT", "DELETE", "PATCH"], "GET, HEAD, POST, OPTIONS"),
        ("rev/latest/", &["POST", "PUT", "DELETE"], "GET, HEAD, OPTIONS"),
        ("rev/latest/html", &["POST", "PUT", "DELETE"], "GET, HEAD, OPTIONS"),
        ("rev/5/", &["PUT", "DELETE"], "GET, HEAD, POST, OPTIONS"),
        ("rev/5/html", &["POST", "PUT", "DELETE"], "GET, HEAD, OPTIONS"),
        (&render, &["PUT", "DELETE"], "GET, HEAD, POST, OPTIONS"),
        (&property, &["POST", "DELETE"], "GET, HEAD, PUT, OPTIONS"),
        ("timegate/html", &["POST"], "GET, HEAD, OPTIONS"),
    ] {
        for method in methods {
            let answer = world
                .request(method, &format!("{PAGE}?{query}"), &URLENCODED, "_rev=6&html=y")
                .await
                .expect(405);
            assert_eq!(answer.header("allow"), allow, "{method} {query}");
        }
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn wrong_fields_of_a_revision_are_refused() {
    let (world, _, before) = world().await;
    let many: String = (0..65).map(|n| format!("&p{n}=x")).collect();
    let long_user = format!("_rev=6&html=y&_user={}", "u".repeat(4097));
    let long_comment = format!("_rev=6&html=y&_comment={}", "ü".repeat(2049));
    let long_name = format!("_rev=6&{}=y", "n".repeat(65));
    let long_rev = format!("_rev={}&html=y", "1".repeat(20_000));
    for (form, status) in [
        ("", 400),
        ("_rev=6", 400),
        ("html=y", 400),
        ("_rev=&html=y", 400),
        ("_rev=0&html=y", 400),
        ("_rev=06&html=y", 400),
        ("_rev=-6&html=y", 400),
        ("_rev=9223372036854775808&html=y", 400),
        ("_rev=Main_Page?rev/&html=y", 400),
        ("_rev=?rev/6&html=y", 400),
        ("_rev=Other?rev/6&html=y", 422),
        (&long_rev, 422),
        ("_rev=6&_rev=6&html=y", 400),
        ("_rev=6&html=y&html=y", 400),
        ("_rev=6&html=y&_unknown=1", 400),
        ("_rev=6&html=y&_http-equiv=1", 400),
        ("_rev=6&html=y&_tid=8f545ba0-2601-11e3-885c-4160918f0fb9", 400),
        ("_rev=6&HTML=y", 400),
        ("_rev=6&1html=y", 400),
        ("_rev=6&h%C3%A9=y", 400),
        ("_rev=6&=y", 400),
        (&long_name, 400),
        ("_rev=6&html=y&_parent=", 400),
        ("_rev=6&html=y&_parent=-1", 400),
        ("_rev=6&html=y&_parent=six", 400),
        ("_rev=6&html=y&_parent=6", 422),
        ("_rev=6&html=y&_if_latest=", 400),
        ("_rev=6&html=y&_if_latest=latest", 400),
        ("_rev=6&html=y&_if_latest=4", 409),
        ("_rev=6&html=y&_minor=true", 400),
        ("_rev=6&html=y&_minor=", 400),
        ("_rev=6&html=y&_timestamp=yesterday", 400),
        ("_rev=6&html=y&_timestamp=", 400),
        ("_rev=6&html=y&_timestamp=2013-02-23T22:23:24", 400),
        ("_rev=6&html=y&_timestamp=2013-02-23T22:23:24.1234567Z", 400),
        ("_rev=6&html=y&_timestamp=1989-12-31T00:00:00Z", 422),
        ("_rev=6&html=y&_timestamp=2034-01-01T00:00:00Z", 422),
        ("_rev=6&html=y&_user=%FF", 400),
        ("_rev=6&html=y&_comment=%C3", 400),
        (&long_user, 422),
        (&long_comment, 422),
        ("_rev=6&html=%zz", 400),
        ("_rev=6&html=%", 400),
        (&format!("_rev=6{many}"), 400),
        ("_rev=6&small=0123456789X", 413),
        ("_rev=6&html=y&_http-equiv.html=", 400),
        ("_rev=6&html=y&_http-equiv.html=[]", 400),
        ("_rev=6&html=y&_http-equiv.html={\"Content-Type\":1}", 400),
        ("_rev=6&html=y&_http-equiv.html={\"Content-Type\":\"nonsense\"}", 400),
        ("_rev=6&html=y&_http-equiv.html={\"X-A\":\"a\\nb\"}", 400),
        ("_rev=6&html=y&_http-equiv.html={\"Set-Cookie\":\"a\"}", 422),
        ("_rev=6&html=y&_http-equiv.html={\"X-Accel-Redirect\":\"/etc\"}", 422),
        ("_rev=6&html=y&_http-equiv.html={\"X-Sendfile\":\"/etc\"}", 422),
        ("_rev=6&html=y&_http-equiv.html={\"x-rev\":\"1\"}", 422),
        ("_rev=6&html=y&_http-equiv.meta={\"Content-Type\":\"a/b\"}", 400),
        ("_rev=6&html=y&_http-equiv.HTML={}", 400),
        ("_rev=5&html=other&wikitext=w", 409),
    ] {
        let answer = world.post(&format!("{PAGE}?rev/"), form).await;
        assert_eq!(answer.status.as_u16(), status, "{form:.100}: {}", answer.text());
        answer.check_problem();
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn refusal_of_too_many_fields_names_both_limits() {
    let (world, _, before) = world().await;
    let properties: String = (0..65).map(|n| format!("&p{n}=x")).collect();
    let headers: String = (0..150).map(|n| format!("&_http-equiv.p{n}={{}}")).collect();
    for many in [properties, headers] {
        let refused = world.post(&format!("{PAGE}?rev/"), &format!("_rev=6{many}")).await.expect(400);
        let limits = "at most 64 properties, and at most 64 fields _http-equiv.NAME";
        assert!(refused.text().contains(limits), "{}", refused.text());
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn wrong_fields_of_a_render_are_refused() {
    let (world, tid, before) = world().await;
    for (form, status) in [
        ("", 400),
        ("_rev=5&html=y", 400),
        ("html=y&_user=Ann", 400),
        ("html=y&_comment=c", 400),
        ("html=y&_minor=1", 400),
        ("html=y&_parent=4", 400),
        ("html=y&_timestamp=now", 400),
        ("html=y&_timestamp=1970-01-01T00:00:00Z", 422),
        ("html=y&_if_latest=6", 409),
        ("wikitext=other", 409),
    ] {
        for base in ["5", &tid] {
            let answer = world.post(&format!("{PAGE}?rev/{base}/"), form).await;
            assert_eq!(answer.status.as_u16(), status, "{form}: {}", answer.text());
            answer.check_problem();
        }
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn wrong_encodings_are_refused() {
    let (world, _, before) = world().await;
    let url = format!("{PAGE}?rev/");
    for (headers, status) in [
        (&[][..], 415),
        (&[("content-type", "application/json")], 415),
        (&[("content-type", "text/plain")], 415),
        (&[("content-type", "multipart/alternative; boundary=x")], 415),
        (&[("content-type", "nonsense")], 400),
        (&[("content-type", "multipart/form-data")], 400),
        (&[("content-type", "multipart/form-data; boundary=")], 400),
        (&[("content-type", "multipart/form-data; boundary=\"")], 400),
        (&[("content-type", "application/x-www-form-urlencoded; charset=iso-8859-1")], 415),
        (&[("content-type", "application/x-www-form-urlencoded"), ("content-encoding", "gzip")], 415),
    ] {
        world.request("POST", &url, headers, "_rev=6&html=y").await.expect(status);
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn malformed_multipart_is_refused() {
    let (world, _, before) = world().await;
    let rev = "--b\r\nContent-Disposition: form-data; name=\"_rev\"\r\n\r\n6\r\n";
    let html = "--b\r\nContent-Disposition: form-data; name=\"html\"\r\n\r\ny";
    for (body, status) in [
        (String::new(), 400),
        ("--b--".to_owned(), 400),
        (format!("{rev}{html}"), 400),
        (format!("{rev}{html}\r\n--b"), 400),
        (format!("{rev}{html}\r\n--c--"), 400),
        (format!("{rev}{rev}{html}\r\n--b--"), 400),
        (format!("{rev}{html}\r\n{html}\r\n--b--"), 400),
        (format!("{rev}--b\r\n\r\ny\r\n--b--"), 400),
        (format!("{rev}--b\r\nContent-Disposition: form-data\r\n\r\ny\r\n--b--"), 400),
        (format!("{rev}--b\r\nContent-Disposition: form-data; name=\"ht\nml\"\r\n\r\ny\r\n--b--"), 400),
        (
            format!("{rev}--b\r\nContent-Disposition: form-data; name=html\r\nX-A: \u{e9}\r\n\r\ny\r\n--b--"),
            400,
        ),
        (
            format!("{rev}--b\r\nContent-Disposition: form-data; name=html\r\nRefresh: 1\r\n\r\ny\r\n--b--"),
            422,
        ),
        (
            format!(
                "{rev}--b\r\nContent-Disposition: form-data; name=html\r\nX-Sendfile: /\r\n\r\ny\r\n--b--"
            ),
            422,
        ),
        (
            format!(
                "{rev}--b\r\nContent-Disposition: form-data; name=html\r\nContent-Transfer-Encoding: base64\r\n\r\n\
                 eA==\r\n--b--"
            ),
            415,
        ),
        (format!("{rev}--b\r\nX: {}", "x".repeat(50_000)), 400),
    ] {
        let headers = [("content-type", "multipart/form-data; boundary=b")];
        let answer = world.request("POST", &format!("{PAGE}?rev/"), &headers, body.clone()).await;
        assert_eq!(answer.status.as_u16(), status, "{body:.300}: {}", answer.text());
        answer.check_problem();
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn too_large_bodies_are_refused() {
    let settings = Settings { max_body_bytes: 1000, ..Settings::default() };
    let world = World::with(settings).await;
    let before = world.dump().await;
    let url = format!("{PAGE}?rev/");
    let form = format!("_rev=6&html={}", "y".repeat(1000));
    world.post(&url, &form).await.expect(413);
    // A body without a declared length is refused, too.
    let pieces: Vec<_> = form
        .as_bytes()
        .chunks(100)
        .map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)))
        .collect();
    world.request("POST", &url, &URLENCODED, Body::from_stream(stream::iter(pieces))).await.expect(413);
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn incomplete_bodies_change_nothing() {
    let (world, tid, before) = world().await;
    let broken = || {
        let pieces = [
            Ok(Bytes::from_static(b"_rev=6&html=y")),
            Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the client has gone")),
        ];
        Body::from_stream(stream::iter(pieces))
    };
    world.request("POST", &format!("{PAGE}?rev/"), &URLENCODED, broken()).await.expect(400);
    world.request("POST", &format!("{PAGE}?rev/5/"), &URLENCODED, broken()).await.expect(400);
    world.request("PUT", &format!("{PAGE}?rev/{tid}/html"), &[], broken()).await.expect(400);
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn body_without_a_length_is_accepted() {
    let world = World::new().await;
    let pieces = ["_rev=6&ht", "ml=%", "41"].map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
    let body = Body::from_stream(stream::iter(pieces));
    world.request("POST", &format!("{PAGE}?rev/"), &URLENCODED, body).await.expect(201);
    assert_eq!(world.get(&format!("{PAGE}?rev/latest/html")).await.text(), "A");
}

/// The header promises that a request takes effect once, so it must not be ignored.
#[tokio::test]
async fn idempotency_key_is_refused_where_it_has_no_effect() {
    let (world, tid, _) = world().await;
    let json = [("content-type", "application/json")];
    world.request("PUT", "/v1/enwiki/math-png", &json, r#"{"type": "blob"}"#).await.expect(201);
    let before = world.dump().await;
    for (method, url) in [
        ("POST", "/v1/enwiki/page/Main_Page?rev/".to_owned()),
        ("PUT", format!("/v1/enwiki/page/Main_Page?rev/{tid}/html")),
        ("GET", "/v1/enwiki/page/Main_Page?rev/latest/html".to_owned()),
        ("POST", "/v1/enwiki/import".to_owned()),
        ("PUT", "/v1/enwiki/math-png".to_owned()),
        ("PUT", "/v1/enwiki/math-png/a.png".to_owned()),
        ("POST", "/v1/tokens".to_owned()),
        ("DELETE", "/v1/tokens/00000000000000000000".to_owned()),
        ("POST", "/v1/batch".to_owned()),
    ] {
        let headers = [URLENCODED[0], ("idempotency-key", "1")];
        let answer = world.request(method, &url, &headers, "_rev=6&html=y").await.expect(400);
        assert!(answer.text().contains("Idempotency-Key"), "{method} {url}: {}", answer.text());
    }
    assert_eq!(world.dump().await, before);
}
