//! Tests of redirects: from short URLs to their targets, and to the canonical spelling of titles.

use super::world::{PAGE, World};

#[tokio::test]
async fn short_urls_redirect_to_their_targets() {
    let world = World::new().await;
    let tid = world.revision("_rev=12345&html=x").await;
    for (query, location) in [
        ("", "?rev/latest/html".to_owned()),
        ("?", "?rev/latest/html".to_owned()),
        ("?rev", "?rev/".to_owned()),
        ("?rev/latest", "?rev/latest/html".to_owned()),
        ("?rev/12345", "?rev/12345/".to_owned()),
        (&format!("?rev/{tid}"), format!("?rev/{tid}/")),
        ("?rev/12345/html", format!("?rev/{tid}/html")),
    ] {
        for page in [PAGE, "/wiki/Main_Page"] {
            let answer =
                world.get_with(&format!("{page}{query}"), &[("host", "en.example.org")]).await.expect(302);
            // In the tests of a further bucket, both pages are the same.
            let targets = [page, PAGE].map(|page| format!("{page}{location}"));
            assert!(targets.iter().any(|target| answer.header("location") == target), "{query}: {answer:?}");
            assert_eq!(answer.header("cache-control"), "public, max-age=0, s-maxage=0, must-revalidate");
        }
    }
}

#[tokio::test]
async fn a_revision_leads_to_its_newest_render() {
    let world = World::new().await;
    world.revision("_rev=1&html=x&meta=1").await;
    let newest = world.render("1", "html=y").await;
    for name in ["html", "meta"] {
        let answer = world.get(&format!("{PAGE}?rev/1/{name}")).await.expect(302);
        assert_eq!(answer.header("location"), format!("{PAGE}?rev/{newest}/{name}"));
    }
}

#[tokio::test]
async fn other_spellings_lead_to_the_canonical_one() {
    let world = World::new().await;
    for (spelling, canonical) in [
        ("Foo%2FBar", "Foo/Bar"),
        ("Foo%2fBar", "Foo/Bar"),
        ("Main%20Page", "Main_Page"),
        ("M%61in", "Main"),
        ("%c3%9cber", "%C3%9Cber"),
        ("a%3Ab", "a:b"),
        ("100%25%20sure%3f", "100%25_sure%3F"),
        ("a%7Eb", "a~b"),
        ("a|b", "a%7Cb"),
        ("%2FFoo", "/Foo"),
        // If there is a redirect, characters that are accepted in both forms get one spelling, too.
        ("R&D's%20+1=2", "R%26D%27s_%2B1%3D2"),
    ] {
        for query in ["", "?rev/latest/html", "?rev/&limit=5"] {
            for prefix in ["/v1/enwiki/page/", "/wiki/"] {
                for method in ["GET", "HEAD"] {
                    let url = format!("{prefix}{spelling}{query}");
                    let answer =
                        world.request(method, &url, &[("host", "en.example.org")], "").await.expect(301);
                    assert_eq!(answer.header("location"), format!("{prefix}{canonical}{query}"));
                }
            }
        }
    }
    let raw_utf8 = world.get("/v1/enwiki/page/Über?rev/").await.expect(301);
    assert_eq!(raw_utf8.header("location"), "/v1/enwiki/page/%C3%9Cber?rev/");
}

#[tokio::test]
async fn characters_that_proxies_decode_are_accepted_in_both_forms() {
    let world = World::new().await;
    world.post("/v1/enwiki/page/R%26D%27s_1%2B1%3D2?rev/", "_rev=1&html=x").await.expect(201);
    for (spelling, status) in [
        ("R%26D%27s_1%2B1%3D2", 200),
        ("R&D's_1+1=2", 200),
        // Purges do not name a spelling with both forms.
        ("R%26D's_1+1%3D2", 301),
        ("R%26D%27s_1%2b1%3D2", 301),
    ] {
        let answer = world.get(&format!("/v1/enwiki/page/{spelling}?rev/latest/html")).await;
        assert_eq!(answer.status.as_u16(), status, "{spelling}");
        if answer.status == 200 {
            assert_eq!(answer.header("x-rev"), "R%26D%27s_1%2B1%3D2?rev/1");
        }
    }
}

#[tokio::test]
async fn writes_accept_every_spelling_of_a_title() {
    let world = World::new().await;
    let answer = world.post("/v1/enwiki/page/%C3%9Cber%2Funs%20alle?rev/", "_rev=1&html=x").await.expect(201);
    assert_eq!(answer.json()["title"], "Über/uns_alle");
    let tid = answer.json()["tid"].as_str().unwrap().to_owned();
    let answer = world
        .request("PUT", &format!("/v1/enwiki/page/%C3%9Cber/uns%20alle?rev/{tid}/html"), &[], "y")
        .await
        .expect(200);
    assert_eq!(answer.json()["title"], "Über/uns_alle");
    assert_eq!(world.get("/v1/enwiki/page/%C3%9Cber/uns_alle?rev/latest/html").await.expect(200).text(), "y");
}

#[tokio::test]
async fn titles_with_slashes_are_pages_of_their_own() {
    let world = World::new().await;
    for title in ["A", "A/", "A//", "/A", "A/B", "A/rev", "A:B//C", "..A", "A/...", "~A", "%3F", "A%23B"] {
        world
            .post(&format!("/v1/enwiki/page/{title}?rev/"), &format!("_rev=1&html={title}"))
            .await
            .expect(201);
    }
    for title in ["A", "A/", "A//", "/A", "A/B", "A/rev", "A:B//C", "..A", "A/...", "~A"] {
        let answer = world.get(&format!("/v1/enwiki/page/{title}?rev/latest/html")).await.expect(200);
        assert_eq!(answer.text(), title);
        assert_eq!(answer.header("x-rev"), format!("{title}?rev/1"));
    }
}
