//! The public URL of a page, `/wiki/{title}`.

use crate::world::{PAGE, World};

#[tokio::test]
async fn the_host_selects_the_wiki() {
    let world = World::new().await;
    world.revision("_rev=1&html=x").await;
    let inside = world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
    for host in ["en.example.org", "EN.example.org:7231"] {
        let outside = world.get_with("/wiki/Main_Page?rev/latest/html", &[("host", host)]).await.expect(200);
        assert_eq!(outside.body, inside.body);
        for name in ["etag", "content-location", "link", "x-rev", "cache-control"] {
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
