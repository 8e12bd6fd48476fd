//! Tests of the answers to reads: their JSON and their headers.

use serde_json::json;

use super::world::{PAGE, World};

const TWO_REVISIONS: [&str; 2] = [
    "_rev=12344&wikitext=one&html=<p>one</p>&_user=Ann&_comment=first&_parent=0",
    "_rev=12345&_parent=12344&wikitext=two&html=<p>two</p>&meta={}&_user=Bob&_minor=1",
];

async fn world_with_two_revisions() -> (World, [String; 2]) {
    let world = World::new().await;
    let tids = [world.revision(TWO_REVISIONS[0]).await, world.revision(TWO_REVISIONS[1]).await];
    (world, tids)
}

#[tokio::test]
async fn the_latest_property_has_all_its_headers() {
    let (world, [_, tid]) = world_with_two_revisions().await;
    let answer = world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
    assert_eq!(answer.text(), "<p>two</p>");
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("content-length", "10"),
        ("etag", &format!("\"12345/{tid}\"")),
        ("last-modified", "Mon, 01 Jan 2024 00:00:01 GMT"),
        ("content-location", &format!("?rev/{tid}/html")),
        ("x-rev", "Main_Page?rev/12345"),
        ("x-parent", "Main_Page?rev/12344"),
        ("memento-datetime", ""),
        ("x-content-type-options", "nosniff"),
        ("vary", "Accept-Encoding"),
        ("cache-control", "public, max-age=0, s-maxage=0, must-revalidate"),
        ("accept-ranges", "bytes"),
        (
            "link",
            "<http://localhost/v1/enwiki/page/Main_Page>; rel=\"original\", \
             <http://localhost/v1/enwiki/page/Main_Page?rev/latest/html>; rel=\"latest-version\", \
             <http://localhost/v1/enwiki/page/Main_Page?timegate/html>; rel=\"timegate\", \
             <http://localhost/v1/enwiki/page/Main_Page?timemap/html>; rel=\"timemap\"; \
             type=\"application/link-format\"",
        ),
    ] {
        assert_eq!(answer.header(name), value, "{name}");
    }
    let policy = answer.header("content-security-policy");
    assert!(policy.starts_with("sandbox; default-src 'none'") && !policy.contains("script"), "{policy}");
    // The second answer comes from memory, with prepared headers, unless the store is a cluster.
    let again = world.get(&format!("{PAGE}?rev/latest/html")).await;
    assert_eq!(without_id(again), without_id(answer));
}

fn without_id(mut answer: crate::world::Answer) -> crate::world::Answer {
    answer.headers.remove("x-request-id");
    answer
}

#[tokio::test]
async fn a_property_under_its_tid_is_cached_and_has_its_date() {
    let (world, [first, _]) = world_with_two_revisions().await;
    let answer = world.get(&format!("{PAGE}?rev/{first}/html")).await.expect(200);
    assert_eq!(answer.text(), "<p>one</p>");
    assert_eq!(answer.header("memento-datetime"), "Mon, 01 Jan 2024 00:00:00 GMT");
    assert_eq!(answer.header("cache-control"), "public, max-age=3600, s-maxage=3600");
    assert_eq!(answer.header("x-rev"), "Main_Page?rev/12344");
    assert_eq!(answer.header("x-parent"), "");
    world.get(&format!("{PAGE}?rev/{first}/meta")).await.expect(404);
}

#[tokio::test]
async fn latest_changes_when_the_page_does() {
    let (world, _) = world_with_two_revisions().await;
    let latest = format!("{PAGE}?rev/latest/html");
    assert_eq!(world.get(&latest).await.text(), "<p>two</p>");
    world.render("12345", "html=again").await;
    assert_eq!(world.get(&latest).await.text(), "again");
    // The latest is the highest revision, in any order of writes.
    world.revision("_rev=12340&html=old").await;
    assert_eq!(world.get(&latest).await.text(), "again");
    world.revision("_rev=12346&html=new").await;
    assert_eq!(world.get(&latest).await.text(), "new");
}

#[tokio::test]
async fn latest_without_the_property_links_to_the_newest_revision_with_it() {
    let (world, _) = world_with_two_revisions().await;
    world.revision("_rev=12346&wikitext=three").await;
    let answer = world.get(&format!("{PAGE}?rev/latest/html")).await.expect(404);
    assert!(answer.json()["detail"].as_str().unwrap().contains("12345"), "{}", answer.text());
    let link = answer.header("link");
    assert!(link.ends_with("/html>; rel=\"predecessor-version\""), "{link}");
    let target = &link[1..link.find('>').unwrap()];
    let target = target.strip_prefix("http://localhost").unwrap();
    assert_eq!(world.get(target).await.expect(200).text(), "<p>two</p>");
    world.get(&format!("{PAGE}?rev/latest/never-given")).await.expect(404);
}

#[tokio::test]
async fn render_document_has_all_members_in_their_order() {
    let (world, [_, tid]) = world_with_two_revisions().await;
    let expected = json!({
        "domain": "enwiki", "title": "Main_Page", "rev": 12345, "parent": 12344,
        "tid": tid, "timestamp": "2024-01-01T00:00:01Z", "user": "Bob", "comment": null, "minor": true,
        "href": format!("?rev/{tid}/"),
        "properties": {
            "html": {
                "content_type": "text/html; charset=utf-8", "size": 10,
                "sha1": "29184eeb6e3b5d763723ef1a695071f7c55d532e", "href": format!("?rev/{tid}/html"),
            },
            "meta": {
                "content_type": "application/json", "size": 2,
                "sha1": "bf21a9e8fbc5a3846fb05b4fa0859e0917b2202f", "href": format!("?rev/{tid}/meta"),
            },
            "wikitext": {
                "content_type": "text/x-wiki; charset=utf-8", "size": 3,
                "sha1": "ad782ecdac770fc6eb9a62e44f90873fb97fb26b", "href": format!("?rev/{tid}/wikitext"),
            },
        },
    });
    for query in ["rev/latest/", &format!("rev/{tid}/")] {
        let answer = world.get(&format!("{PAGE}?{query}")).await.expect(200);
        assert_eq!(answer.header("content-type"), "application/json; profile=\"urn:rashomon:render/1.0\"");
        assert_eq!(answer.header("cache-control"), "public, max-age=0, s-maxage=0, must-revalidate");
        assert_eq!(answer.json(), expected);
        // The order of the members is fixed.
        let text = answer.text();
        let order =
            ["domain", "title", "rev", "parent", "tid", "timestamp", "user", "comment", "minor", "href"];
        let positions: Vec<_> =
            order.iter().map(|name| text.find(&format!("\"{name}\":")).unwrap()).collect();
        assert!(positions.is_sorted(), "{text}");
    }
}

#[tokio::test]
async fn a_revision_has_its_renders_newest_first() {
    let (world, [first, _]) = world_with_two_revisions().await;
    let second = world.render("12344", "html=again").await;
    let answer = world.get(&format!("{PAGE}?rev/12344/")).await.expect(200);
    assert_eq!(answer.header("content-type"), "application/json; profile=\"urn:rashomon:revision/1.0\"");
    let revision = answer.json();
    let mut names: Vec<_> = revision.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["comment", "href", "minor", "parent", "renders", "rev", "timestamp", "user"]);
    assert_eq!(revision["rev"], 12344);
    assert_eq!(revision["parent"], json!(null));
    assert_eq!(revision["timestamp"], "2024-01-01T00:00:00Z");
    assert_eq!(revision["user"], "Ann");
    assert_eq!(revision["comment"], "first");
    assert_eq!(revision["minor"], false);
    assert_eq!(revision["href"], "?rev/12344/");
    let renders = revision["renders"].as_array().unwrap();
    assert_eq!([&renders[0]["tid"], &renders[1]["tid"]], [&json!(second), &json!(first)]);
    assert_eq!(renders[0]["timestamp"], "2024-01-01T00:00:02Z");
    assert_eq!(renders[0]["href"], format!("?rev/{second}/"));
    assert_eq!(renders[0]["properties"]["html"]["href"], format!("?rev/{second}/html"));
    assert_eq!(renders[1]["properties"]["html"]["size"], 10);
    assert_eq!(renders[0].as_object().unwrap().len(), 4);
}

#[tokio::test]
async fn list_has_an_entry_for_each_revision_in_parts() {
    let world = World::new().await;
    for rev in 1..=7 {
        world.revision(&format!("_rev={rev}&wikitext=text&html=number {rev}&_user=Ann")).await;
    }
    world.render("7", "html=again").await;
    let answer = world.get(&format!("{PAGE}?rev/")).await.expect(200);
    assert_eq!(answer.header("content-type"), "application/json; profile=\"urn:rashomon:revision-list/1.0\"");
    let list = answer.json();
    assert_eq!((&list["domain"], &list["title"]), (&json!("enwiki"), &json!("Main_Page")));
    assert!(list.get("next").is_none());
    let revisions = list["revisions"].as_array().unwrap();
    let numbers: Vec<_> = revisions.iter().map(|revision| revision["rev"].as_i64().unwrap()).collect();
    assert_eq!(numbers, [7, 6, 5, 4, 3, 2, 1]);
    let tid = revisions[0]["tid"].as_str().unwrap();
    assert_eq!(
        revisions[0],
        json!({
            "rev": 7, "parent": null, "timestamp": "2024-01-01T00:00:06Z", "tid": tid, "renders": 2, "size": 9,
            "user": "Ann", "comment": null, "minor": false, "href": "?rev/7/",
        })
    );
    assert_eq!(world.get(&format!("{PAGE}?rev/{tid}/html")).await.text(), "again");

    let mut url = format!("{PAGE}?rev/&limit=3");
    let mut pages = Vec::new();
    loop {
        let page = world.get(&url).await.expect(200).json();
        let revisions = page["revisions"].as_array().unwrap();
        pages.push(revisions.iter().map(|revision| revision["rev"].as_i64().unwrap()).collect::<Vec<_>>());
        match page["next"].as_str() {
            Some(next) => {
                assert!(next.starts_with("?rev/&limit=3&page="), "{next}");
                url = format!("{PAGE}{next}");
            }
            None => break,
        }
    }
    assert_eq!(pages, [vec![7, 6, 5], vec![4, 3, 2], vec![1]]);
}

#[tokio::test]
async fn missing_resources_are_not_found() {
    let (world, [tid, _]) = world_with_two_revisions().await;
    let other_tid = tid.replacen(&tid[..8], "00000000", 1);
    for url in [
        format!("{PAGE}?rev/99/"),
        format!("{PAGE}?rev/99/html"),
        format!("{PAGE}?rev/12344/meta"),
        format!("{PAGE}?rev/{other_tid}/"),
        format!("{PAGE}?rev/{other_tid}/html"),
        format!("{PAGE}?rev/{tid}/other"),
        "/v1/enwiki/page/Other?rev/".to_owned(),
        "/v1/enwiki/page/Other?rev/latest/".to_owned(),
        "/v1/enwiki/page/Other?rev/latest/html".to_owned(),
        format!("/v1/dewiki/page/Main_Page?rev/{tid}/html"),
        "/v1/enwiki/math-png/Main_Page".to_owned(),
        "/v1/enwiki/math-png".to_owned(),
        "/v1/enwiki".to_owned(),
        "/v1/batch/".to_owned(),
        "/v2/enwiki/page/Main_Page".to_owned(),
        "/nowhere".to_owned(),
    ] {
        let answer = world.get(&url).await.expect(404);
        assert_eq!(answer.json()["type"], "urn:rashomon:problem:not-found");
        assert_eq!(answer.json()["instance"], url);
    }
}

#[tokio::test]
async fn head_is_get_without_its_body() {
    let (world, [tid, _]) = world_with_two_revisions().await;
    for query in [
        "rev/latest/html".to_owned(),
        format!("rev/{tid}/html"),
        "rev/".to_owned(),
        "rev/latest/".to_owned(),
        "rev/12345/".to_owned(),
        "rev/12345".to_owned(),
        "rev/99/".to_owned(),
        "rev/0/".to_owned(),
        "timemap/html".to_owned(),
    ] {
        let url = format!("{PAGE}?{query}");
        let get = world.get(&url).await;
        let head = world.request("HEAD", &url, &[], "").await;
        assert_eq!(head.status, get.status, "{query}");
        assert_eq!(head.header("content-length"), get.body.len().to_string(), "{query}");
        let mut head = without_id(head).headers;
        let mut get = without_id(get).headers;
        head.remove("content-length");
        get.remove("content-length");
        assert_eq!(head, get, "{query}");
    }
}

#[tokio::test]
async fn reading_changes_nothing() {
    let (world, [tid, _]) = world_with_two_revisions().await;
    let before = world.dump().await;
    for query in
        ["", "rev", "rev/", "rev/latest", "rev/latest/", "rev/latest/html", "rev/12345/", "timegate/html"]
    {
        world.get(&format!("{PAGE}?{query}")).await;
    }
    world.get(&format!("{PAGE}?rev/{tid}/html")).await;
    assert_eq!(world.dump().await, before);
}
