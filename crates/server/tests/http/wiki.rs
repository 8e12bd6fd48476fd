//! Tests of the public URLs of pages, `/wiki/{title}`, and of entries, `/wiki/?blob/{bucket}/{key}`.

use crate::world::{Answer, PAGE, World};

#[tokio::test]
async fn the_host_selects_the_wiki() {
    let world = World::new().await;
    world.revision("_rev=1&html=x").await;
    let inside = world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
    for host in ["en.example.org", "EN.example.org:7231"] {
        let outside = world.get_with("/wiki/Main_Page?rev/latest/html", &[("host", host)]).await.expect(200);
        assert_eq!(outside.body, inside.body);
        for name in ["etag", "content-location", "x-rev", "cache-control"] {
            assert_eq!(outside.header(name), inside.header(name), "{name}");
        }
    }
    let unknown = world.get_with("/wiki/Main_Page", &[("host", "de.example.org")]).await.expect(404);
    assert!(unknown.json()["detail"].as_str().unwrap().contains("configuration"), "{}", unknown.text());
    world.get_with("/wiki/", &[("host", "en.example.org")]).await.expect(400);
    world.get_with("/wiki/Other?rev/latest/html", &[("host", "en.example.org")]).await.expect(404);
}

#[tokio::test]
async fn public_url_is_read_only() {
    let world = World::new().await;
    let tid = world.revision("_rev=1&html=x").await;
    let before = world.dump().await;
    for (method, url) in [
        ("POST", "/wiki/Main_Page?rev/".to_owned()),
        ("POST", "/wiki/Main_Page?rev/1/".to_owned()),
        ("PUT", format!("/wiki/Main_Page?rev/{tid}/html")),
        ("DELETE", "/wiki/Main_Page".to_owned()),
    ] {
        let headers = [("host", "en.example.org"), ("content-type", "application/x-www-form-urlencoded")];
        let answer = world.request(method, &url, &headers, "_rev=2&html=y").await.expect(405);
        assert_eq!(answer.header("allow"), "GET, HEAD, OPTIONS");
    }
    let options =
        world.request("OPTIONS", "/wiki/Main_Page?rev/", &[("host", "en.example.org")], "").await.expect(204);
    assert_eq!(options.header("allow"), "GET, HEAD, OPTIONS");
    assert_eq!(world.dump().await, before);
}

const HOST: (&str, &str) = ("host", "en.example.org");

async fn define(world: &World, bucket: &str, definition: &str) {
    let json = [("content-type", "application/json")];
    world.request("PUT", &format!("/v1/enwiki/{bucket}"), &json, definition.to_owned()).await.expect(201);
}

#[tokio::test]
async fn entries_of_public_buckets_have_a_public_url() {
    let world = World::new().await;
    define(&world, "open", r#"{"type": "blob", "public": true, "content_type": "image/png"}"#).await;
    for key in ["a/b.png", "a%20b", "c&d'+=e", "%3F"] {
        let inside = format!("/v1/enwiki/open/{key}");
        world.request("PUT", &inside, &[], "image").await.expect(201);
        let inside = world.get(&inside).await.expect(200);
        let url = format!("/wiki/?blob/open/{key}");
        let outside = world.get_with(&url, &[HOST]).await.expect(200);
        assert_eq!(outside.body, inside.body);
        for name in ["etag", "last-modified", "cache-control", "content-type", "content-security-policy"] {
            assert_eq!(outside.header(name), inside.header(name), "{name}");
        }
        world.get_with(&url, &[HOST, ("if-none-match", inside.header("etag"))]).await.expect(304);
        assert_eq!(world.get_with(&url, &[HOST, ("range", "bytes=0-1")]).await.expect(206).text(), "im");
        world.request("HEAD", &url, &[HOST], "").await.expect(200);
        world.request("OPTIONS", &url, &[HOST], "").await.expect(204);
        for method in ["PUT", "POST", "DELETE"] {
            let refused = world.request(method, &url, &[HOST], "x").await.expect(405);
            assert_eq!(refused.header("allow"), "GET, HEAD, OPTIONS");
        }
    }
    let moved = world.get_with("/wiki/?blob/open/a%2Fb%2Epng", &[HOST]).await.expect(301);
    assert_eq!(moved.header("location"), "/wiki/?blob/open/a/b.png");
    for bad in ["open/", "open/..", "open/%80", "import/a", "OPEN/a", "/a"] {
        world.get_with(&format!("/wiki/?blob/{bad}"), &[HOST]).await.expect(400);
    }
    world.get_with("/wiki/?blob/open/a/b.png", &[("host", "de.example.org")]).await.expect(404);
    world.get_with("/wiki/?blob/open", &[HOST]).await.expect(400);
}

#[tokio::test]
async fn other_buckets_have_no_public_url() {
    let world = World::new().await;
    define(&world, "private", r#"{"type": "blob"}"#).await;
    define(&world, "clicks", r#"{"type": "counter", "public": true}"#).await;
    define(&world, "docs", r#"{"type": "revisioned"}"#).await;
    world.request("PUT", "/v1/enwiki/private/a", &[], "secret").await.expect(201);
    let missing = world.get_with("/wiki/?blob/missing/a", &[HOST]).await.expect(404);
    for bucket in ["private", "clicks", "docs"] {
        let answer = world.get_with(&format!("/wiki/?blob/{bucket}/a"), &[HOST]).await.expect(404);
        let named = answer.text().replace(bucket, "missing");
        assert_eq!(named, missing.text(), "a client cannot tell which buckets exist");
    }
}

/// Follows redirects, and returns the URLs on the way with the last answer.
async fn follow(world: &World, url: &str) -> (Vec<String>, Answer) {
    let (mut urls, mut next) = (Vec::new(), url.to_owned());
    loop {
        let answer = world.get_with(&next, &[HOST]).await;
        if !answer.status.is_redirection() || urls.len() > 5 {
            return (urls, answer);
        }
        let location = answer.header("location").to_owned();
        next = match location.strip_prefix('?') {
            Some(query) => format!("{}?{query}", next.split('?').next().unwrap()),
            None => location,
        };
        urls.push(next.clone());
    }
}

#[tokio::test]
async fn links_of_mediawiki_lead_to_the_same_content() {
    let world = World::new().await;
    world.revision("_rev=1&html=one&wikitext=first").await;
    world.revision("_rev=2&html=two&wikitext=second").await;
    for page in ["/wiki/Main_Page", PAGE] {
        for (query, location, body) in [
            ("oldid=1", "?rev/1/html", "one"),
            ("oldid=0", "", "two"),
            ("action=raw", "?rev/latest/wikitext", "second"),
            ("oldid=1&action=raw&ctype=text/css", "?rev/1/wikitext", "first"),
            ("title=Main_Page&oldid=1", "?rev/1/html", "one"),
            ("curid=17", "", "two"),
            ("action=view", "", "two"),
        ] {
            let url = format!("{page}?{query}");
            let first = world.get_with(&url, &[HOST]).await.expect(302);
            assert_eq!(first.header("location"), format!("{page}{location}"), "{url}");
            assert_eq!(first.header("cache-control"), "public, max-age=3600, s-maxage=3600");
            let (urls, last) = follow(&world, &url).await;
            assert_eq!((last.status.as_u16(), last.text()), (200, body), "{url} {urls:?}");
            world.request("HEAD", &url, &[HOST], "").await.expect(302);
        }
        let (urls, last) = follow(&world, &format!("{page}?action=history&limit=1")).await;
        assert_eq!(urls, [format!("{page}?rev/&limit=1")]);
        assert_eq!(last.expect(200).json()["revisions"][0]["rev"], 2);
        for bad in [
            "oldid=x",
            "action=edit",
            "oldid=1&diff=prev",
            "foo=1",
            "utm_source=a&foo=1",
            "action=raw&section=1",
        ] {
            world.get_with(&format!("{page}?{bad}"), &[HOST]).await.expect(400);
        }
    }
    // Other programs add parameters to the public URL.
    for (query, location) in [
        ("utm_source=a&oldid=1&fbclid=b", "?rev/1/html"),
        ("rev/1/html&utm_source=a", "?rev/1/html"),
        ("gclid=a", ""),
    ] {
        let moved = world.get_with(&format!("/wiki/Main_Page?{query}"), &[HOST]).await.expect(302);
        assert_eq!(moved.header("location"), format!("/wiki/Main_Page{location}"), "{query}");
        world.get(&format!("{PAGE}?{query}")).await.expect(400);
    }
    for (url, location) in [
        ("/wiki/?title=Main+Page&oldid=1", "/wiki/Main_Page?rev/1/html"),
        ("/wiki/?title=%C3%9Cber%26&utm_source=a", "/wiki/%C3%9Cber%26"),
        ("/wiki/Main%20Page?oldid=1", "/wiki/Main_Page?rev/1/html"),
        ("/wiki/Main_Page?title=Other", "/wiki/Main_Page"),
    ] {
        assert_eq!(world.get_with(url, &[HOST]).await.expect(302).header("location"), location, "{url}");
    }
    for bad in ["/wiki/?title=", "/wiki/?title=a%0Ab", "/wiki/?curid=5", "/wiki/?oldid=5"] {
        world.get_with(bad, &[HOST]).await.expect(400);
    }
    // A write takes no such query.
    for query in ["oldid=1", "utm_source=a", "rev/&utm_source=a"] {
        world.post(&format!("{PAGE}?{query}"), "_rev=3&html=x").await.expect(400);
    }
}

#[tokio::test]
async fn first_letter_is_a_capital_where_the_wiki_says_so() {
    let world = World::new().await;
    world.revision("_rev=1&html=one").await;
    let post = async |title: &str| {
        world.post(&format!("/v1/enwiki/page/{title}?rev/"), "_rev=1&html=x").await.expect(201);
    };
    post("Talk:Fog").await;
    post("small").await;
    // The wiki has said nothing yet.
    world.get_with("/wiki/main_Page?rev/latest/html", &[HOST]).await.expect(404);
    let site = "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.11/\" version=\"0.11\" xml:lang=\"en\"><siteinfo>\
                <sitename>W</sitename><case>first-letter</case><namespaces><namespace key=\"0\" case=\"first-letter\" />\
                <namespace key=\"1\" case=\"first-letter\">Talk</namespace></namespaces></siteinfo><page><title>Other</title><ns>0</ns>\
                <id>1</id><revision><id>900</id><timestamp>2020-01-01T00:00:00Z</timestamp><contributor><username>Ann</username>\
                <id>1</id></contributor><model>wikitext</model><format>text/x-wiki</format><text>x</text></revision></page>\
                </mediawiki>";
    world.request("POST", "/v1/enwiki/import", &[("content-type", "text/xml")], site).await.expect(200);
    for (url, location) in [
        ("/wiki/main_Page?rev/latest/html", "/wiki/Main_Page?rev/latest/html"),
        ("/wiki/main%20page", "/wiki/Main_page"),
        ("/wiki/talk:fog?rev/", "/wiki/Talk:Fog?rev/"),
        ("/wiki/%C3%BCber", "/wiki/%C3%9Cber"),
    ] {
        let moved = world.get_with(url, &[HOST]).await.expect(301);
        assert_eq!(moved.header("location"), location, "{url}");
        assert_eq!(moved.header("cache-control"), "public, max-age=0, s-maxage=0, must-revalidate");
        world.request("HEAD", url, &[HOST], "").await.expect(301);
    }
    // A page under the small letter is read; so is the API by exact titles.
    world.get_with("/wiki/small?rev/latest/html", &[HOST]).await.expect(200);
    world.get_with("/v1/enwiki/page/main_Page?rev/latest/html", &[HOST]).await.expect(404);
    world.get_with("/wiki/Nowhere?rev/latest/html", &[HOST]).await.expect(404);
}
