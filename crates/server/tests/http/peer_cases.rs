//! The cases that RESTBase, another store for wiki content, tests for its buckets. There is one test here for each
//! case, with the name of the case. The URLs differ. A value of RESTBase without a tid corresponds to an entry, a value
//! with a tid to a render, and a revision to a revision.

use std::time::Duration;

use serde_json::Value;

use crate::world::{Answer, World};

const BUCKET: &str = "/v1/enwiki/values";
const PAGE: &str = "/v1/enwiki/page/Peer";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A world with a bucket of bodies.
async fn world() -> World {
    let world = World::new().await;
    let json = [("content-type", "application/json")];
    world.request("PUT", BUCKET, &json, r#"{"type": "blob"}"#).await.expect(201);
    world
}

impl World {
    async fn put_value(&self, key: &str, body: impl Into<axum::body::Body>) -> Answer {
        self.request("PUT", &format!("{BUCKET}/{key}"), &[], body).await
    }

    /// Posts a form to the history of the page, a second after the write before.
    async fn post_to_page(&self, rest: &str, form: String) -> Answer {
        self.clock.advance(Duration::from_secs(1));
        self.request("POST", &format!("{PAGE}?rev/{rest}"), &[FORM], form).await
    }
}

/// Text whose characters look random, so that it is hardly compressed.
fn text(length: usize) -> String {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let digit = u32::try_from(state >> 40).expect("24 bits") % 36;
        char::from_digit(digit, 36).expect("a digit")
    };
    (0..length).map(|_| next()).collect()
}

fn tid(written: &Answer) -> String {
    written.json()["tid"].as_str().expect("a tid").to_owned()
}

/// A member of each element of a list.
fn members(document: &Value, list: &str, member: &str) -> Vec<Value> {
    document[list].as_array().expect("a list").iter().map(|element| element[member].clone()).collect()
}

#[tokio::test]
async fn stores_a_content_in_a_bucket_and_gets_it_back() {
    let world = world().await;
    for (number, length) in [60_000, 10].into_iter().enumerate() {
        let content = text(length);
        world.put_value(&format!("Test{number}"), content.clone()).await.expect(201);
        let read = world.get(&format!("{BUCKET}/Test{number}")).await.expect(200);
        assert!(read.text() == content, "{length} bytes in an entry");

        let rev = 10_000 + number;
        let form = format!("_rev={rev}&html={content}");
        let written = world.post_to_page("", form).await.expect(201);
        let read = world.get(&format!("{PAGE}?rev/{}/html", tid(&written))).await.expect(200);
        assert!(read.text() == content, "{length} bytes in a revision");
        let latest = world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
        assert!(latest.text() == content, "{length} bytes in the latest revision");
    }
}

#[tokio::test]
async fn assigns_an_etag_to_a_value_and_to_a_revision() {
    let world = world().await;
    let put = world.put_value("Test3", "value").await.expect(201);
    let read = world.get(&format!("{BUCKET}/Test3")).await.expect(200);
    assert_eq!(read.header("etag"), put.header("etag"));
    assert!(read.header("etag").len() > 2 && read.header("etag").starts_with('"'), "{read:?}");

    let written = world.post_to_page("", "_rev=10000&html=value".to_owned()).await.expect(201);
    let read = world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
    assert_eq!(read.header("etag"), format!("\"10000/{}\"", tid(&written)));
}

/// A client chooses the tid of a render by its time. The same write has the same tid.
#[tokio::test]
async fn preserves_the_tid_on_write_and_in_the_etag() {
    let world = world().await;
    let form = "_rev=10000&_timestamp=2013-09-25T16:43:09.274Z&html=value";
    let first = tid(&world.post_to_page("", form.to_owned()).await.expect(201));
    assert_eq!(tid(&world.post_to_page("", form.to_owned()).await.expect(200)), first);
    let read = world.get(&format!("{PAGE}?rev/{first}/html")).await.expect(200);
    assert_eq!(read.header("etag"), format!("\"10000/{first}\""));
    let render = world.get(&format!("{PAGE}?rev/{first}/")).await.expect(200).json();
    assert_eq!((&render["tid"], &render["timestamp"]), (&first.into(), &"2013-09-25T16:43:09.274Z".into()));

    let put = world.put_value("Test3", "value").await.expect(201);
    let read = world.get(&format!("{BUCKET}/Test3")).await.expect(200);
    assert_eq!(read.header("etag"), put.header("etag"));
}

#[tokio::test]
async fn lists_a_values_tids_newest_first() {
    let world = world().await;
    let mut tids = vec![tid(&world.post_to_page("", "_rev=10000&html=0".to_owned()).await.expect(201))];
    for render in 1..3 {
        let written = world.post_to_page("10000/", format!("html={render}")).await.expect(201);
        tids.insert(0, tid(&written));
    }
    let listed = world.get(&format!("{PAGE}?rev/10000/&limit=10")).await.expect(200).json();
    assert_eq!(members(&listed, "renders", "tid"), tids);
    for (tid, value) in tids.iter().zip(["2", "1", "0"]) {
        assert_eq!(world.get(&format!("{PAGE}?rev/{tid}/html")).await.expect(200).text(), value);
    }
}

#[tokio::test]
async fn lists_revisions_newest_first() {
    let world = world().await;
    for rev in 1..=3 {
        world.post_to_page("", format!("_rev={rev}&html=value")).await.expect(201);
    }
    let listed = world.get(&format!("{PAGE}?rev/&limit=10")).await.expect(200).json();
    assert_eq!(members(&listed, "revisions", "rev"), [3, 2, 1]);
}

#[tokio::test]
async fn invalid_revision_and_invalid_tid_are_400() {
    let world = world().await;
    world.post_to_page("", "_rev=1000&html=value".to_owned()).await.expect(201);
    let before = world.dump().await;
    world.post_to_page("", "_rev=asdf&html=value".to_owned()).await.expect(400);
    for name in ["asdf", "some_invalid_tid", "8f545ba0-2601-41e3-885c-4160918f0fb9", "-1", "01000"] {
        world.post_to_page(&format!("{name}/"), "html=value".to_owned()).await.expect(400);
        for url in [format!("{PAGE}?rev/{name}/html"), format!("{PAGE}?rev/{name}/")] {
            world.get(&url).await.expect(400);
        }
        world.request("PUT", &format!("{PAGE}?rev/{name}/html"), &[], "value").await.expect(400);
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn missing_key_or_revision_is_404() {
    let world = world().await;
    world.post_to_page("", "_rev=1000&html=value".to_owned()).await.expect(201);
    let absent = "8f545ba0-2601-11e3-885c-4160918f0fb9";
    for url in [
        format!("{BUCKET}/some_not_existing_key"),
        "/v1/enwiki/no-such-bucket/key".to_owned(),
        format!("{PAGE}?rev/123456789/html"),
        format!("{PAGE}?rev/123456789/"),
        format!("{PAGE}?rev/{absent}/html"),
        format!("{PAGE}?rev/{absent}/"),
        "/v1/enwiki/page/No_such_page?rev/latest/html".to_owned(),
    ] {
        world.get(&url).await.expect(404);
    }
}

#[tokio::test]
async fn older_revision_written_out_of_order_is_201_and_readable() {
    let world = world().await;
    let newer = tid(&world.post_to_page("", "_rev=1001&html=newer".to_owned()).await.expect(201));
    let older = tid(&world.post_to_page("", "_rev=1000&html=older".to_owned()).await.expect(201));
    for (rev, tid, value) in [(1000, older, "older"), (1001, newer, "newer")] {
        let redirect = world.get(&format!("{PAGE}?rev/{rev}/html")).await.expect(302);
        assert_eq!(redirect.header("location"), format!("{PAGE}?rev/{tid}/html"));
        let read = world.get(redirect.header("location")).await.expect(200);
        assert_eq!((read.text(), read.header("etag")), (value, format!("\"{rev}/{tid}\"").as_str()));
    }
    assert_eq!(world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200).text(), "newer");
    let listed = world.get(&format!("{PAGE}?rev/")).await.expect(200).json();
    assert_eq!(members(&listed, "revisions", "rev"), [1001, 1000]);
}
