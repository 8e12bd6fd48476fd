//! Tests of the lists of the entries of a bucket.

use serde_json::{Value, json};

use crate::world::World;

const JSON: (&str, &str) = ("content-type", "application/json");

/// Keys in byte order.
const KEYS: [&str; 8] = ["A", "a", "a b", "a&b", "a/b", "ab", "b", "ü"];

async fn world_with(definition: &str) -> World {
    let world = World::new().await;
    world.request("PUT", "/v1/enwiki/b", &[JSON], definition.to_owned()).await.expect(201);
    for key in ["ü", "ab", "a", "a%20b", "A", "b", "a/b", "a%26b"] {
        let url = format!("/v1/enwiki/b/{key}");
        world.request("PUT", &url, &[("content-type", "text/plain")], "123").await.expect(201);
    }
    world
}

/// Returns the keys of all result pages, beginning with the result page of this query.
async fn keys(world: &World, query: &str) -> Vec<String> {
    let (mut keys, mut query) = (Vec::new(), query.to_owned());
    for _ in 0..20 {
        let page = world.get(&format!("/v1/enwiki/b/{query}")).await.expect(200).json();
        let entries = page["entries"].as_array().expect("a list");
        keys.extend(entries.iter().map(|entry| entry["key"].as_str().expect("a key").to_owned()));
        match page.get("next") {
            Some(next) => query = next.as_str().expect("a text").to_owned(),
            None => return keys,
        }
    }
    panic!("the list has no end");
}

#[tokio::test]
async fn list_has_every_entry_with_its_data() {
    let world = world_with(r#"{"type": "ordered-blob"}"#).await;
    let list = world.get("/v1/enwiki/b/").await.expect(200);
    assert_eq!(list.header("content-type"), "application/json; profile=\"urn:rashomon:entry-list/1.0\"");
    assert_eq!(list.header("cache-control"), "no-store");
    let list = list.json();
    assert_eq!(list["entries"].as_array().unwrap().len(), KEYS.len());
    assert_eq!(list.get("next"), None);
    let entry = world.get("/v1/enwiki/b/A").await.expect(200);
    let first = &list["entries"][0];
    let etag = Value::from(entry.header("etag"));
    assert_eq!(
        (&first["key"], &first["content_type"], &first["size"], &first["etag"]),
        (&json!("A"), &json!("text/plain"), &json!(3), &etag)
    );
    assert!(first["modified"].as_str().unwrap().ends_with('Z'), "{first}");
    let empty = r#"{"type": "blob"}"#;
    world.request("PUT", "/v1/enwiki/empty", &[JSON], empty.to_owned()).await.expect(201);
    assert_eq!(world.get("/v1/enwiki/empty/").await.expect(200).json(), json!({"entries": []}));
    world.get("/v1/enwiki/none/").await.expect(404);
}

#[tokio::test]
async fn pages_of_a_list_follow_one_another_and_keep_the_parameters() {
    for definition in [r#"{"type": "blob"}"#, r#"{"type": "ordered-blob"}"#] {
        let world = world_with(definition).await;
        for limit in [1, 2, 3, 7, 8, 500] {
            let mut listed = keys(&world, &format!("?limit={limit}")).await;
            listed.sort();
            assert_eq!(listed, KEYS, "{limit}");
        }
    }
    let world = world_with(r#"{"type": "ordered-blob"}"#).await;
    for (query, expected) in [
        ("?limit=1&gt=a&lt=b", &["a b", "a&b", "a/b", "ab"][..]),
        ("?limit=2&ge=a&le=b", &["a", "a b", "a&b", "a/b", "ab", "b"]),
        ("?order=desc&limit=3", &["ü", "b", "ab", "a/b", "a&b", "a b", "a", "A"]),
        ("?order=asc&prefix=a%20", &["a b"]),
        ("?prefix=a%26&limit=1", &["a&b"]),
        ("?prefix=a/&order=desc&limit=1", &["a/b"]),
        ("?prefix=%C3%BC&limit=1", &["ü"]),
        ("?gt=x&lt=b", &[]),
        ("?after=ab", &["b", "ü"]),
        ("?after=ab&order=desc&limit=2", &["a/b", "a&b", "a b", "a", "A"]),
    ] {
        assert_eq!(keys(&world, query).await, expected, "{query}");
    }
    let next = world.get("/v1/enwiki/b/?prefix=a&limit=3&order=asc").await.json()["next"].clone();
    assert_eq!(next, json!("?prefix=a&limit=3&order=asc&after=a%26b"));
}

#[tokio::test]
async fn malformed_queries_of_a_list_are_refused() {
    let world = world_with(r#"{"type": "ordered-blob"}"#).await;
    let long = format!("?prefix={}", "a".repeat(1025));
    for query in [
        "?limit=0",
        "?limit=501",
        "?limit=x",
        "?x=1",
        "?gt=a&ge=a",
        "?lt=a&le=a",
        "?gt=",
        "?le=..",
        "?after=",
        "?order=up",
        "?prefix=a&prefix=b",
        "?prefix=%",
        &long,
    ] {
        world.get(&format!("/v1/enwiki/b/{query}")).await.expect(400);
    }
    let other = world_with(r#"{"type": "blob"}"#).await;
    for query in ["?gt=a", "?ge=a", "?lt=a", "?le=a", "?prefix=a", "?order=desc", "?order=asc"] {
        let refused = other.get(&format!("/v1/enwiki/b/{query}")).await.expect(400);
        assert!(refused.text().contains("ordered-blob"), "{}", refused.text());
    }
    for method in ["PUT", "POST", "DELETE"] {
        world.request(method, "/v1/enwiki/b/", &[], "").await.expect(405);
    }
}

#[tokio::test]
async fn deleted_and_expired_entries_are_not_listed() {
    let world = world_with(r#"{"type": "ordered-blob"}"#).await;
    world.request("DELETE", "/v1/enwiki/b/ab", &[], "").await.expect(204);
    assert!(!keys(&world, "").await.contains(&"ab".to_owned()));
    let world = world_with(r#"{"type": "ordered-blob", "ttl": 60}"#).await;
    world.clock.advance(std::time::Duration::from_secs(59));
    world.request("PUT", "/v1/enwiki/b/ab", &[], "new").await.expect(200);
    world.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(keys(&world, "").await, ["ab"]);
}

#[tokio::test]
async fn revisions_are_read_until_an_answer_is_full() {
    let world = World::new().await;
    let long = format!("html=x&_comment={0}&_user={0}", "c".repeat(4096));
    for number in 1..=300 {
        world.revision(&format!("_rev={number}&{long}")).await;
    }
    // Of 300 rows of 8 KiB, those are read that fit into an answer.
    let page = rashomon_pages::Page::parse("enwiki", "page", "Main_Page").unwrap();
    let listing = world.buckets().revisions(&page, None, 500).await.unwrap();
    assert!((100..160).contains(&listing.items.len()), "{}", listing.items.len());
    assert_eq!(listing.next, listing.items.last().map(|last| last.record.rev));
}
