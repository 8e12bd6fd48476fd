//! Tests of the replacement of a property in place.

use std::time::Duration;

use super::world::{PAGE, World};

#[tokio::test]
async fn bytes_and_type_are_replaced_in_place() {
    let world = World::new().await;
    let tid = world.revision("_rev=7&html=old&meta={}").await;
    let url = format!("{PAGE}?rev/{tid}/html");
    let old_tag = world.get(&url).await.header("etag").to_owned();
    let headers =
        [("content-type", "text/html; charset=utf-8; profile=\"2.8.0\""), ("content-language", "de")];
    let written = world.request("PUT", &url, &headers, "new bytes").await.expect(200);
    let json = written.json();
    assert_eq!(
        (&json["message"], &json["tid"], &json["rev"]),
        (&"Replaced".into(), &tid.as_str().into(), &7.into())
    );
    assert_eq!(written.header("content-type"), "application/json; profile=\"urn:rashomon:written/1.0\"");
    let answer = world.get(&url).await.expect(200);
    assert_eq!(answer.text(), "new bytes");
    assert_eq!(answer.header("content-type"), headers[0].1);
    assert_eq!(answer.header("content-language"), "de");
    let micros = last_part_of_tag(&answer);
    assert_eq!(answer.header("etag"), format!("\"7/{tid}/{micros}\""));
    assert_eq!(written.header("etag"), answer.header("etag"));
    assert_eq!(answer.header("last-modified"), "Mon, 01 Jan 2024 00:00:01 GMT");
    assert_eq!(answer.header("memento-datetime"), "Mon, 01 Jan 2024 00:00:00 GMT");
    assert_eq!(world.get(&format!("{PAGE}?rev/latest/html")).await.text(), "new bytes");
    world.get_with(&url, &[("if-none-match", &old_tag)]).await.expect(200);
    world.get_with(&url, &[("if-none-match", answer.header("etag"))]).await.expect(304);
}

fn last_part_of_tag(answer: &crate::world::Answer) -> String {
    answer.header("etag").trim_matches('"').rsplit('/').next().unwrap().to_owned()
}

#[tokio::test]
async fn only_existing_properties_are_replaced() {
    let world = World::new().await;
    let tid = world.revision("_rev=7&html=old").await;
    let before = world.dump().await;
    world.request("PUT", &format!("{PAGE}?rev/{tid}/meta"), &[], "{}").await.expect(404);
    let other = tid.replacen(&tid[..8], "00000000", 1);
    world.request("PUT", &format!("{PAGE}?rev/{other}/html"), &[], "x").await.expect(404);
    world.request("PUT", &format!("/v1/enwiki/page/Other?rev/{tid}/html"), &[], "x").await.expect(404);
    world
        .request("PUT", &format!("{PAGE}?rev/{tid}/html"), &[("content-type", "html")], "x")
        .await
        .expect(400);
    let encoded = [("content-encoding", "gzip")];
    world.request("PUT", &format!("{PAGE}?rev/{tid}/html"), &encoded, "x").await.expect(415);
    let fresh = [("if-none-match", "*")];
    world.request("PUT", &format!("{PAGE}?rev/{tid}/html"), &fresh, "x").await.expect(400);
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn only_the_expected_version_is_replaced() {
    let world = World::new().await;
    let tid = world.revision("_rev=7&html=old").await;
    let url = format!("{PAGE}?rev/{tid}/html");
    let first = world.get(&url).await.header("etag").to_owned();
    let before = world.dump().await;
    for wrong in ["\"else\"", "\"6/x\"", &format!("\"7/{tid}/5\"")] {
        world.request("PUT", &url, &[("if-match", wrong)], "x").await.expect(412);
    }
    assert_eq!(world.dump().await, before);
    world.request("PUT", &url, &[("if-match", &format!("W/{first}"))], "x").await.expect(200);
    world.clock.advance(Duration::from_secs(1));
    let second = world.get(&url).await.header("etag").to_owned();
    assert_ne!(second, first);
    world.request("PUT", &url, &[("if-match", &first)], "y").await.expect(412);
    let weakened = format!("W/{}-gzip\"", second.trim_end_matches('"'));
    world.request("PUT", &url, &[("if-match", &weakened)], "y").await.expect(200);
    world.request("PUT", &url, &[("if-match", "*")], "z").await.expect(200);
    assert_eq!(world.get(&url).await.text(), "z");
}

#[tokio::test]
async fn repeated_replacement_changes_nothing() {
    let world = World::new().await;
    let tid = world.revision("_rev=7&html=old").await;
    let url = format!("{PAGE}?rev/{tid}/html");
    let before = world.dump().await;
    // Without a type in the request, the stored type is kept.
    for headers in [&[("content-type", "text/html; charset=utf-8")][..], &[]] {
        let answer = world.request("PUT", &url, headers, "old").await.expect(200);
        assert_eq!(answer.json()["message"], "Unchanged");
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn a_property_is_not_larger_than_its_definition_allows() {
    let world = World::new().await;
    let tid = world.revision("_rev=7&small=0123456789").await;
    let before = world.dump().await;
    world.request("PUT", &format!("{PAGE}?rev/{tid}/small"), &[], "0123456789X").await.expect(413);
    assert_eq!(world.dump().await, before);
}
