//! Tests of further buckets of pages: their definitions, their rights, and their similarity to the bucket `page`.

use rashomon_server::Settings;
use rashomon_server::access::Right;
use serde_json::json;

use crate::{
    html::addresses,
    world::{Answer, PAGE, World},
};

const DOCS: &str = "/v1/enwiki/docs";
const JSON: (&str, &str) = ("content-type", "application/json");
const REVISIONED: &str = r#"{"type": "revisioned"}"#;
const EXPORT: &str = r#"<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <page><title>A</title><ns>0</ns><id>1</id><revision><id>3</id><timestamp>2010-01-01T00:00:00Z</timestamp>
  <contributor><username>Ann</username><id>1</id></contributor><model>wikitext</model><format>text/x-wiki</format>
  <text bytes="1" xml:space="preserve">x</text></revision></page></mediawiki>"#;

async fn define(world: &World, url: &str, definition: &str) -> Answer {
    world.request("PUT", url, &[JSON], definition.to_owned()).await
}

#[tokio::test]
async fn bucket_of_pages_is_defined_and_listed() {
    let world = World::new().await;
    let made = define(&world, DOCS, REVISIONED).await.expect(201);
    assert_eq!(made.json(), json!({"type": "revisioned", "public": false}));
    define(&world, DOCS, REVISIONED).await.expect(200);
    assert_eq!(world.get(DOCS).await.expect(200).json(), made.json());
    // All members but the type can be replaced, as in other buckets.
    let other = define(&world, DOCS, r#"{"type": "revisioned", "public": true}"#).await.expect(409);
    assert!(other.text().contains("If-Match"), "{}", other.text());
    for definition in ["content_type\": \"a/b\"", "ttl\": 5", "max_size\": 5"] {
        let refused = format!(r#"{{"type": "revisioned", "{definition}}}"#);
        define(&world, "/v1/enwiki/other", &refused).await.expect(400);
    }
    let list = world.get("/v1/enwiki/").await.expect(200).json();
    assert_eq!(list["buckets"], json!([{"name": "docs", "type": "revisioned"}]));
}

#[tokio::test]
async fn buckets_with_the_same_titles_do_not_see_each_other() {
    let world = World::new().await;
    define(&world, DOCS, REVISIONED).await.expect(201);
    let docs = format!("{DOCS}/Main_Page");
    world.revision("_rev=1&html=of+page").await;
    world.get(&format!("{docs}?rev/latest/html")).await.expect(404);
    world.post(&format!("{docs}?rev/"), "_rev=1&html=of+docs").await.expect(201);
    world.post(&format!("{docs}?rev/"), "_rev=2&html=newer").await.expect(201);
    assert_eq!(world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200).text(), "of page");
    let latest = world.get(&format!("{docs}?rev/latest/html")).await.expect(200);
    assert_eq!((latest.text(), latest.header("x-rev")), ("newer", "Main_Page?rev/2"));
    // Another spelling of a title is redirected within its bucket.
    let spelled = world.get(&format!("{DOCS}/Main%20Page?rev/1/")).await.expect(301);
    assert_eq!(spelled.header("location"), format!("{docs}?rev/1/"));
    // Neither the bucket `page` nor another bucket of pages has a list of entries.
    for url in ["/v1/enwiki/page/", "/v1/enwiki/docs/"] {
        world.get(url).await.expect(400);
    }
    world.request("DELETE", &docs, &[], "").await.expect(405);
}

#[tokio::test]
async fn deleted_bucket_can_be_made_again() {
    let world = World::new().await;
    define(&world, DOCS, REVISIONED).await.expect(201);
    let latest = format!("{DOCS}/Main_Page?rev/latest/html");
    for text in ["old", "new"] {
        world.get(&latest).await.expect(404);
        world.post(&format!("{DOCS}/Main_Page?rev/"), &format!("_rev=1&html={text}")).await.expect(201);
        assert_eq!(world.get(&latest).await.expect(200).text(), text);
        world.request("DELETE", DOCS, &[], "").await.expect(204);
        world.get(&latest).await.expect(404);
        world.post(&format!("{DOCS}/Main_Page?rev/"), "_rev=2&html=x").await.expect(404);
        define(&world, DOCS, REVISIONED).await.expect(201);
    }
}

#[tokio::test]
async fn imports_name_their_bucket() {
    let world = World::new().await;
    define(&world, DOCS, REVISIONED).await.expect(201);
    define(&world, "/v1/enwiki/blobs", r#"{"type": "blob"}"#).await.expect(201);
    let import = |query: &'static str| world.request("POST", query, &[], EXPORT);
    import("/v1/enwiki/import?bucket=docs").await.expect(200);
    assert_eq!(world.get(&format!("{DOCS}/A?rev/latest/wikitext")).await.expect(200).text(), "x");
    world.get("/v1/enwiki/page/A?rev/latest/wikitext").await.expect(404);
    import("/v1/enwiki/import?bucket=page").await.expect(200);
    world.get("/v1/enwiki/page/A?rev/latest/wikitext").await.expect(200);
    import("/v1/enwiki/import?bucket=none").await.expect(404);
    let refused = import("/v1/enwiki/import?bucket=blobs").await.expect(422);
    assert!(refused.text().contains("revisioned"), "{}", refused.text());
    import("/v1/enwiki/import?bucket=Docs").await.expect(400);
    import("/v1/enwiki/import?titles=A").await.expect(400);
}

#[tokio::test]
async fn general_rights_hold_on_buckets_of_pages_and_types_are_concealed() {
    let (open, guarded) = crate::access::servers(Settings::default(), crate::access::public_domain()).await;
    let public = crate::access::PUBLIC;
    for domain in ["enwiki", public] {
        define(&open, &format!("/v1/{domain}/docs"), REVISIONED).await.expect(201);
        define(&open, &format!("/v1/{domain}/blobs"), r#"{"type": "blob"}"#).await.expect(201);
        open.post(&format!("/v1/{domain}/docs/A?rev/"), "_rev=1&html=x").await.expect(201);
    }
    // Everybody may read the pages of the public domain.
    guarded.get(&format!("/v1/{public}/docs/A?rev/latest/html")).await.expect(200);
    guarded.get(&format!("/buckets/{public}/docs/A")).await.expect(200);
    let refused =
        [("GET", "?rev/latest/html", ""), ("POST", "?rev/", "_rev=2&html=y"), ("PUT", "?rev/1/html", "y")];
    for (method, query, body) in refused {
        let ask = |bucket| {
            let url = format!("/v1/enwiki/{bucket}/A{query}");
            let guarded = &guarded;
            async move { guarded.request(method, &url, &[], body).await.expect(401).json()["detail"].clone() }
        };
        let (docs, blobs, none) = (ask("docs").await, ask("blobs").await, ask("none").await);
        let names = |detail: serde_json::Value| {
            detail.to_string().replace("docs", "B").replace("blobs", "B").replace("none", "B")
        };
        assert_eq!(names(docs), names(none.clone()), "{method}");
        assert_eq!(names(blobs), names(none), "{method}");
    }
    for url in ["/buckets/enwiki/docs/", "/buckets/enwiki/docs/A", "/buckets/enwiki/none/"] {
        guarded.get(url).await.expect(401);
    }
    // A token for the bucket is enough.
    let grant = crate::access::grant(&[Right::Read], &["enwiki"], Some(&["docs"]));
    let token = guarded.token_of(grant, None).await;
    let authorization = [("authorization", token.as_str())];
    let with_token = async |url| guarded.get_with(url, &authorization).await;
    assert_eq!(with_token("/v1/enwiki/docs/A?rev/latest/html").await.expect(200).text(), "x");
    with_token("/v1/enwiki/page/A?rev/latest/html").await.expect(403);
    // The pages for people show the domain, and the bucket.
    assert!(with_token("/").await.expect(200).text().contains("/pages/enwiki/"));
    with_token("/buckets/enwiki/docs/").await.expect(200);
}

#[tokio::test]
async fn pages_for_people_lead_to_all_buckets_of_pages() {
    let world = World::new().await;
    world.revision("_rev=1&html=x").await;
    define(&world, DOCS, REVISIONED).await.expect(201);
    define(&world, "/v1/enwiki/blobs", r#"{"type": "blob"}"#).await.expect(201);
    world.post(&format!("{DOCS}/A?rev/"), "_rev=1&html=x").await.expect(201);
    let titles = world.page("/pages/enwiki/", 200).await;
    let leads = |page: &str, to: &str| addresses(page).iter().any(|address| address == to);
    assert!(leads(&titles, "/buckets/enwiki/docs/") && !titles.contains("blobs"));
    let titles = world.page("/buckets/enwiki/docs/", 200).await;
    assert!(leads(&titles, "/pages/enwiki/") && leads(&titles, "/buckets/enwiki/docs/A"));
    let history = world.page("/buckets/enwiki/docs/A", 200).await;
    assert!(leads(&history, "/v1/enwiki/docs/A?rev/latest/html"));
    assert!(world.follow("/buckets/enwiki/docs/A", &history).await > 5);
    world.get("/buckets/enwiki/docs").await.expect(301);
    world.page("/buckets/enwiki/blobs/", 404).await;
    world.page("/buckets/enwiki/none/", 404).await;
}
