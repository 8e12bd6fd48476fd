//! Tests of writes of new revisions and new renders.

use std::time::Duration;

use serde_json::json;

use super::world::{Answer, PAGE, World};

#[tokio::test]
async fn answer_to_a_new_revision_has_its_members_and_headers() {
    let world = World::new().await;
    let answer = world.post(&format!("{PAGE}?rev/"), "_rev=12345&html=x").await.expect(201);
    let tid = answer.json()["tid"].as_str().unwrap().to_owned();
    assert_eq!(
        answer.json(),
        json!({
            "message": "Created", "domain": "enwiki", "title": "Main_Page", "rev": 12345,
            "tid": tid, "href": format!("?rev/{tid}/"),
        })
    );
    assert_eq!(answer.header("location"), format!("{PAGE}?rev/{tid}/"));
    assert_eq!(answer.header("content-type"), "application/json; profile=\"urn:rashomon:written/1.0\"");
    assert_eq!(answer.header("cache-control"), "no-store");
}

#[tokio::test]
async fn repeated_write_returns_the_same_tid_and_changes_nothing() {
    let world = World::new().await;
    let form = "_rev=12345&html=x&wikitext=y&_user=Ann&_if_latest=0";
    let first = world.post(&format!("{PAGE}?rev/"), form).await.expect(201);
    let before = world.dump().await;
    let again = world.post(&format!("{PAGE}?rev/"), form).await.expect(200);
    assert_eq!(again.json()["tid"], first.json()["tid"]);
    assert_eq!(again.json()["message"], "Unchanged");
    world.post(&format!("{PAGE}?rev/"), "_rev=12345&html=other&wikitext=y").await.expect(409);
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn render_copies_missing_properties() {
    let world = World::new().await;
    let first = world.revision("_rev=1&html=x&meta=m&wikitext=w").await;
    let second = world.render("1", "html=y").await;
    let third = world.render(&first, "meta=n").await;
    for (tid, html, meta) in [(&first, "x", "m"), (&second, "y", "m"), (&third, "x", "n")] {
        for (name, body) in [("html", html), ("meta", meta), ("wikitext", "w")] {
            assert_eq!(world.get(&format!("{PAGE}?rev/{tid}/{name}")).await.expect(200).text(), body);
        }
    }
    let again = world.post(&format!("{PAGE}?rev/1/"), "meta=n").await.expect(200);
    assert_eq!(again.json()["tid"], third.as_str());
    world.post(&format!("{PAGE}?rev/1/"), "wikitext=other").await.expect(409);
    world.post(&format!("{PAGE}?rev/2/"), "html=z").await.expect(404);
    let other = first.replacen(&first[..8], "00000000", 1);
    world.post(&format!("{PAGE}?rev/{other}/"), "html=z").await.expect(404);
}

#[tokio::test]
async fn fields_name_revisions_with_or_without_a_title() {
    let world = World::new().await;
    let url = "/v1/enwiki/page/%C3%9Cber_uns?rev/";
    let form = "_rev=%25C3%259Cber_uns%3Frev/12&_parent=%C3%9Cber+uns%3Frev/11&_if_latest=0&html=x";
    world.post(url, form).await.expect(201);
    let render = world.get("/v1/enwiki/page/%C3%9Cber_uns?rev/latest/").await.expect(200).json();
    assert_eq!((&render["rev"], &render["parent"]), (&json!(12), &json!(11)));
    for wrong in [
        "_rev=Other?rev/13&html=x",
        "_rev=13&_parent=Other?rev/12&html=x",
        "_rev=13&_if_latest=O?rev/12&html=x",
    ] {
        world.post(url, wrong).await.expect(422);
    }
}

#[tokio::test]
async fn failed_if_latest_condition_is_answered_with_the_latest() {
    let world = World::new().await;
    let url = format!("{PAGE}?rev/");
    let missing = world.post(&url, "_rev=2&html=x&_if_latest=1").await.expect(409);
    assert_eq!(missing.json()["latest"], json!(null));
    assert!(missing.json().as_object().unwrap().contains_key("latest"));
    world.revision("_rev=1&html=x&_if_latest=0").await;
    world.revision("_rev=2&html=y&_if_latest=Main_Page?rev/1").await;
    let before = world.dump().await;
    let stale = world.post(&url, "_rev=3&html=z&_if_latest=1").await.expect(409);
    assert_eq!(stale.json()["type"], "urn:rashomon:problem:not-latest");
    // The documents are compared as texts, so that the order of members counts.
    let latest = world.get(&format!("{PAGE}?rev/latest/")).await;
    assert!(stale.text().contains(&format!("\"latest\":{}", latest.text())), "{}", stale.text());
    world.post(&url, "_rev=3&html=z&_if_latest=0").await.expect(409);
    world.post(&format!("{PAGE}?rev/1/"), "html=z&_if_latest=1").await.expect(409);
    assert_eq!(world.dump().await, before);
    world.post(&format!("{PAGE}?rev/2/"), "html=z&_if_latest=2").await.expect(201);
}

#[tokio::test]
async fn imported_times_are_stored() {
    let world = World::new().await;
    let form = "_rev=1&wikitext=x&_timestamp=2013-09-25T18:43:09.274%2B02:00";
    let tid = world.revision(form).await;
    let render = world.get(&format!("{PAGE}?rev/{tid}/")).await.expect(200).json();
    assert_eq!(render["timestamp"], "2013-09-25T16:43:09.274Z");
    assert_eq!(world.get(&format!("{PAGE}?rev/1/")).await.json()["timestamp"], "2013-09-25T16:43:09.274Z");
    let again = world.post(&format!("{PAGE}?rev/"), form).await.expect(200);
    assert_eq!(again.json()["tid"], tid.as_str());
    world.post(&format!("{PAGE}?rev/1/"), "html=y&_timestamp=2014-01-01T00:00:00Z").await.expect(201);
    // Times up to five minutes in the future are accepted, since clocks may be wrong.
    world.post(&format!("{PAGE}?rev/"), "_rev=2&html=x&_timestamp=2024-01-01T00:04:00Z").await.expect(201);
    for wrong in
        ["2024-01-01T00:06:00Z", "9999-12-31T23:59:59Z", "1989-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]
    {
        world.post(&format!("{PAGE}?rev/"), &format!("_rev=3&html=x&_timestamp={wrong}")).await.expect(422);
    }
    world.clock.advance(Duration::from_secs(1));
}

/// A property: its name, its bytes, and its headers.
type PropertyField = (&'static str, &'static [u8], &'static [(&'static str, &'static str)]);

/// The content of a write, independent of its encoding.
struct Form {
    /// The other fields, whose texts contain special characters.
    texts: &'static [(&'static str, &'static str)],
    properties: &'static [PropertyField],
}

const FORM: Form = Form {
    texts: &[
        ("_rev", "12345"),
        ("_parent", "12344"),
        ("_user", "Änn & +"),
        ("_comment", "a=b&c%\r\nd"),
        ("_minor", "1"),
    ],
    properties: &[
        (
            "html",
            b"<p>\xff\0\r\n--x\r\n&+%</p>",
            &[("Content-Type", "text/html; profile=\"2\""), ("X-A", "1")],
        ),
        ("wikitext", "wie geht's? ü".as_bytes(), &[]),
        ("data-parsoid", b"", &[]),
        ("unknown_name", b"\r\n", &[("Content-Language", "de")]),
    ],
};

impl Form {
    fn equivalents(&self) -> impl Iterator<Item = (String, String)> {
        self.properties.iter().filter(|(_, _, headers)| !headers.is_empty()).map(|(name, _, headers)| {
            let headers: serde_json::Map<_, _> =
                headers.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
            (format!("_http-equiv.{name}"), serde_json::Value::from(headers).to_string())
        })
    }

    /// Encodes the form for a URL, with the fields in this order or in reverse.
    fn to_urlencoded(&self, reversed: bool) -> (String, Vec<u8>) {
        let encode = |bytes: &[u8]| bytes.iter().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let mut fields: Vec<String> = Vec::new();
        fields.extend(self.texts.iter().map(|(name, value)| format!("{name}={}", encode(value.as_bytes()))));
        fields.extend(self.equivalents().map(|(name, value)| format!("{name}={}", encode(value.as_bytes()))));
        fields.extend(self.properties.iter().map(|(name, bytes, _)| format!("{name}={}", encode(bytes))));
        if reversed {
            fields.reverse();
        }
        ("application/x-www-form-urlencoded".to_owned(), fields.join("&").into_bytes())
    }

    /// Encodes the form in parts, with headers beside the properties or as fields of their own.
    fn to_multipart(&self, kind: &str, equivalents: bool, by_id: bool) -> (String, Vec<u8>) {
        let naming = |name: &str| match (kind, by_id) {
            ("form-data", _) => format!("Content-Disposition: form-data; name=\"{name}\""),
            (_, true) => format!("Content-ID: <{name}>"),
            (_, false) => format!("Content-Disposition: inline; name={name}"),
        };
        let mut parts: Vec<Vec<u8>> = Vec::new();
        for (name, bytes, headers) in self.properties {
            let mut part = naming(name);
            for (name, value) in headers.iter().filter(|_| !equivalents) {
                part += &format!("\r\n{name}: {value}");
            }
            parts.push([part.as_bytes(), b"\r\n\r\n", bytes].concat());
        }
        let texts = self.texts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        for (name, value) in texts.chain(self.equivalents().filter(|_| equivalents)) {
            parts.push(format!("{}\r\n\r\n{value}", naming(&name)).into_bytes());
        }
        let mut body = Vec::new();
        for part in parts {
            body.extend_from_slice(b"--boundary\r\n");
            body.extend_from_slice(&part);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--boundary--\r\n");
        (format!("multipart/{kind}; boundary=boundary"), body)
    }
}

async fn send(world: &World, (content_type, body): (String, Vec<u8>)) -> Answer {
    world.request("POST", &format!("{PAGE}?rev/"), &[("content-type", &content_type)], body).await
}

#[tokio::test]
async fn all_encodings_have_the_same_effect() {
    let world = World::new().await;
    let first = send(&world, FORM.to_urlencoded(false)).await.expect(201);
    let expected = world.dump().await;
    for encoded in [
        FORM.to_urlencoded(true),
        FORM.to_multipart("form-data", false, false),
        FORM.to_multipart("form-data", true, false),
        FORM.to_multipart("mixed", false, false),
        FORM.to_multipart("mixed", true, true),
        FORM.to_multipart("related", false, true),
    ] {
        // Repeating the write in another encoding changes nothing. In a new store, the write in this encoding leads to
        // the same rows.
        let again = send(&world, encoded.clone()).await.expect(200);
        assert_eq!(again.json()["tid"], first.json()["tid"]);
        let fresh = World::new().await;
        send(&fresh, encoded.clone()).await.expect(201);
        assert_eq!(fresh.dump().await, expected, "{}", encoded.0);
    }
    let tid = first.json()["tid"].as_str().unwrap().to_owned();
    for (name, content_type) in [
        ("html", "text/html; profile=\"2\""),
        ("wikitext", "text/x-wiki; charset=utf-8"),
        ("data-parsoid", "application/json"),
        ("unknown_name", "application/octet-stream"),
    ] {
        let (_, bytes, headers) = FORM.properties.iter().find(|(known, ..)| *known == name).unwrap();
        let answer = world.get(&format!("{PAGE}?rev/{tid}/{name}")).await.expect(200);
        assert_eq!(answer.body, *bytes);
        assert_eq!(answer.header("content-type"), content_type);
        for (name, value) in *headers {
            assert_eq!(answer.header(&name.to_ascii_lowercase()), *value);
        }
    }
    let render = world.get(&format!("{PAGE}?rev/{tid}/")).await.json();
    assert_eq!((&render["user"], &render["comment"]), (&json!("Änn & +"), &json!("a=b&c%\r\nd")));
    assert_eq!((&render["minor"], &render["parent"]), (&json!(true), &json!(12344)));
}

#[tokio::test]
async fn content_type_of_a_part_overrides_http_equiv_and_the_definition() {
    let world = World::new().await;
    let body = "--b\r\nContent-Disposition: form-data; name=\"html\"\r\nContent-Type: a/own\r\n\r\nx\r\n\
                --b\r\nContent-Disposition: form-data; name=\"_http-equiv.html\"\r\n\r\n\
                {\"content-type\": \"a/field\", \"content-language\": \"fr\"}\r\n\
                --b\r\nContent-Disposition: form-data; name=\"_rev\"\r\n\r\n1\r\n--b--";
    let content_type = [("content-type", "multipart/form-data; boundary=b")];
    world.request("POST", &format!("{PAGE}?rev/"), &content_type, body).await.expect(201);
    let answer = world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
    assert_eq!((answer.header("content-type"), answer.header("content-language")), ("a/own", "fr"));
}

#[tokio::test]
async fn empty_user_and_comment_are_stored_as_absent() {
    let world = World::new().await;
    world.revision("_rev=1&html=&_user=&_comment=").await;
    let render = world.get(&format!("{PAGE}?rev/latest/")).await.json();
    assert_eq!((&render["user"], &render["comment"]), (&json!(null), &json!(null)));
    assert_eq!(world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200).body, b"");
}
