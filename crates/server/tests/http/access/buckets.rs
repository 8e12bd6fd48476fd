//! Tests of rights on key-value buckets, and of the answers to clients without these rights.

use rashomon_server::Settings;
use rashomon_server::access::{AnonymousRights, DomainRights, Right, Rights};
use rashomon_tables::Call;
use serde_json::Value;

use super::{HTML, JSON, PUBLIC, comparable, domain, expect_challenge, fill, grant, guarded, servers};
use crate::world::World;

const PRIVATE_BLOB: &str = r#"{"type": "blob"}"#;
const PUBLIC_BLOB: &str = r#"{"type": "blob", "public": true}"#;

/// Makes a private bucket and a public one in a domain, each with an entry.
async fn fill_buckets(open: &World, domain: &str) {
    for (bucket, definition) in [("secret", PRIVATE_BLOB), ("open", PUBLIC_BLOB)] {
        let url = format!("/v1/{domain}/{bucket}");
        open.ask("", "PUT", &url, &[JSON], definition).await.expect(201);
        open.ask(
            "",
            "PUT",
            &format!("{url}/a"),
            &[HTML, ("cache-control", "public, max-age=60, s-maxage=99")],
            "x",
        )
        .await
        .expect(201);
    }
}

/// The names in the list of buckets.
async fn listed(world: &World, token: &str, domain: &str) -> Vec<String> {
    let list = world.ask(token, "GET", &format!("/v1/{domain}/"), &[], "").await.expect(200).json();
    let buckets = list["buckets"].as_array().unwrap();
    buckets.iter().map(|bucket: &Value| bucket["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn readers_of_pages_may_read_public_buckets_only() {
    let (open, world) = guarded().await;
    for domain in ["enwiki", PUBLIC] {
        fill(&open, domain).await;
        fill_buckets(&open, domain).await;
    }
    let of_pages = world.token_of(grant(&[Right::Read], &["*"], Some(&["page"])), None).await;
    let of_all = world.token(&[Right::Read], &["*"]).await;
    let of_secret = world.token_of(grant(&[Right::Read], &["*"], Some(&["sec*"])), None).await;
    for (token, domain, public, private, names) in [
        ("", PUBLIC, 200, 401, &["open", "page"][..]),
        ("", "enwiki", 401, 401, &[]),
        (&of_pages, PUBLIC, 200, 403, &["open", "page"]),
        (&of_pages, "enwiki", 200, 403, &["open", "page"]),
        (&of_all, "enwiki", 200, 200, &["open", "page", "secret"]),
        (&of_secret, "enwiki", 403, 200, &["secret"]),
        (&of_secret, PUBLIC, 200, 200, &["open", "page", "secret"]),
    ] {
        for (bucket, status) in [("open", public), ("secret", private)] {
            for url in [format!("/v1/{domain}/{bucket}"), format!("/v1/{domain}/{bucket}/a")] {
                let answer = world.ask(token, "GET", &url, &[], "").await;
                assert_eq!(answer.status.as_u16(), status, "{token} {url}");
                if status == 401 {
                    expect_challenge(answer);
                }
            }
        }
        if names.is_empty() {
            expect_challenge(world.ask(token, "GET", &format!("/v1/{domain}/"), &[], "").await);
        } else {
            assert_eq!(listed(&world, token, domain).await, names, "{token} {domain}");
        }
    }
}

#[tokio::test]
async fn entry_that_needs_a_right_is_kept_by_no_shared_cache() {
    let (open, world) = guarded().await;
    let token = world.token(&[Right::Read], &["*"]).await;
    let (shared, private) = ("public, max-age=60, s-maxage=99", "private, max-age=60");
    for (domain, bucket, expected) in
        [(PUBLIC, "open", shared), (PUBLIC, "secret", private), ("enwiki", "open", private)]
    {
        if bucket == "open" {
            fill_buckets(&open, domain).await;
        }
        let url = format!("/v1/{domain}/{bucket}/a");
        for headers in [&[][..], &[("range", "bytes=0-0")], &[("if-none-match", "*")]] {
            let answer = world.ask(&token, "GET", &url, headers, "").await;
            assert_eq!(answer.header("cache-control"), expected, "{url} {headers:?}");
        }
        let plain = format!("/v1/{domain}/{bucket}/b");
        open.ask("", "PUT", &plain, &[HTML], "x").await.expect(201);
        let is_shared = expected == shared;
        let answer = world.ask(&token, "GET", &plain, &[], "").await.expect(200);
        assert_eq!(answer.header("cache-control").contains("private"), !is_shared, "{plain}");
        let redirect =
            world.ask(&token, "GET", &format!("/v1/{domain}/{bucket}/%61"), &[], "").await.expect(301);
        assert_eq!(redirect.header("cache-control").contains("private"), !is_shared, "{plain}");
    }
}

#[tokio::test]
async fn rights_of_a_bucket_replace_those_of_everybody() {
    let read = Rights::from_iter([Right::Read]);
    let write = Rights::from_iter([Right::Write]);
    let buckets = [
        ("secret", read),
        ("open", Rights::NONE),
        ("written", write),
        ("docs", write),
        ("hidden", Rights::NONE),
        ("clicks", Rights::from_iter([Right::Read, Right::Write])),
        ("blind", write),
    ];
    let of_domain = DomainRights {
        anonymous: Some(read),
        buckets: buckets
            .map(|(name, rights)| (rashomon_pages::BucketName::new(name).unwrap(), rights))
            .into(),
    };
    let rights =
        AnonymousRights { everywhere: Rights::NONE, domains: [(domain("enwiki"), of_domain)].into() };
    let (open, world) = servers(Settings::default(), rights).await;
    fill_buckets(&open, "enwiki").await;
    open.ask("", "PUT", "/v1/enwiki/written", &[JSON], PRIVATE_BLOB).await.expect(201);
    world.get("/v1/enwiki/secret/a").await.expect(200);
    // Every reader of the pages may read a public bucket.
    world.get("/v1/enwiki/open/a").await.expect(200);
    world.request("PUT", "/v1/enwiki/secret/a", &[HTML], "x").await.expect(401);
    world.request("PUT", "/v1/enwiki/written/a", &[HTML], "x").await.expect(201);
    world.get("/v1/enwiki/written/a").await.expect(401);
    for (name, definition) in [
        ("docs", r#"{"type": "revisioned"}"#),
        ("hidden", r#"{"type": "revisioned"}"#),
        ("more", r#"{"type": "revisioned"}"#),
        ("clicks", r#"{"type": "counter"}"#),
        ("blind", r#"{"type": "counter"}"#),
        ("other", r#"{"type": "counter"}"#),
    ] {
        open.ask("", "PUT", &format!("/v1/enwiki/{name}"), &[JSON], definition).await.expect(201);
    }
    for (name, written, read) in [("docs", 201, 401), ("hidden", 401, 401), ("more", 401, 404)] {
        let page = format!("/v1/enwiki/{name}/A");
        world.post(&format!("{page}?rev/"), "_rev=1&html=x").await.expect(written);
        world.get(&format!("{page}?rev/latest/html")).await.expect(read);
    }
    for (name, counted, read) in [("clicks", 200, 200), ("blind", 204, 401), ("other", 401, 401)] {
        let counter = format!("/v1/enwiki/{name}/a");
        world.post(&counter, "").await.expect(counted);
        world.get(&counter).await.expect(read);
    }
}

#[tokio::test]
async fn definitions_need_admin_and_entries_need_write() {
    let (open, world) = guarded().await;
    fill_buckets(&open, "enwiki").await;
    for right in Right::ALL {
        let token = world.token(&[right], &["enwiki"]).await;
        let define = world.ask(&token, "PUT", "/v1/enwiki/new", &[JSON], PRIVATE_BLOB).await;
        assert_eq!(define.status.as_u16(), if right == Right::Admin { 201 } else { 403 }, "{right}");
        let delete = world.ask(&token, "DELETE", "/v1/enwiki/new", &[], "").await;
        assert_eq!(delete.status.as_u16(), if right == Right::Admin { 204 } else { 403 }, "{right}");
        for bucket in ["open", "secret"] {
            let url = format!("/v1/enwiki/{bucket}/b");
            let put = world.ask(&token, "PUT", &url, &[HTML], "x").await;
            assert_eq!(put.status.as_u16(), if right == Right::Write { 201 } else { 403 }, "{right}");
            let delete = world.ask(&token, "DELETE", &url, &[], "").await;
            assert_eq!(delete.status.as_u16(), if right == Right::Write { 204 } else { 403 }, "{right}");
        }
    }
}

/// Clients without a token have all rights here, but no grant names a bucket. So the rights do not hold on private
/// buckets, nor on the definitions of key-value buckets.
#[tokio::test]
async fn rights_without_a_token_do_not_hold_on_private_buckets() {
    let all = Rights::from_iter(Right::ALL);
    let rights = AnonymousRights { everywhere: all, ..AnonymousRights::default() };
    let (open, world) = servers(Settings::default(), rights).await;
    fill_buckets(&open, "enwiki").await;
    world.request("PUT", "/v1/enwiki/open/b", &[HTML], "x").await.expect(201);
    for url in ["/v1/enwiki/secret/a", "/v1/enwiki/none/a"] {
        for method in ["GET", "PUT", "DELETE"] {
            expect_challenge(world.request(method, url, &[HTML], "x").await);
        }
    }
    // A definition is changed with a token only, so that nobody makes a private bucket public.
    for url in ["/v1/enwiki/secret", "/v1/enwiki/open", "/v1/enwiki/none"] {
        expect_challenge(world.request("PUT", url, &[JSON], PUBLIC_BLOB).await);
        expect_challenge(world.request("DELETE", url, &[], "").await);
    }
}

#[tokio::test]
async fn answers_to_a_writer_without_read_do_not_show_stored_content() {
    let (open, world) = guarded().await;
    fill_buckets(&open, "enwiki").await;
    let token = world.token(&[Right::Write, Right::Admin], &["enwiki"]).await;
    let put = |key: &str| format!("/v1/enwiki/secret/{key}");
    let [existing, missing] = [put("a"), put("new")].map(|url| {
        let (world, token) = (&world, &token);
        async move {
            let mut answer = comparable(world.ask(token, "PUT", &url, &[HTML], "y").await.expect(201), true);
            answer.headers.remove("etag");
            answer
        }
    });
    assert_eq!(existing.await, missing.await);
    for key in ["a", "none"] {
        for condition in [
            ("if-match", "*"),
            ("if-none-match", "*"),
            ("if-unmodified-since", "Mon, 01 Jan 2024 00:00:00 GMT"),
        ] {
            world.ask(&token, "PUT", &put(key), &[HTML, condition], "y").await.expect(403);
            world.ask(&token, "DELETE", &put(key), &[condition], "").await.expect(403);
        }
        world.ask(&token, "DELETE", &put(key), &[], "").await.expect(204);
    }
    let other = world
        .ask(&token, "PUT", "/v1/enwiki/secret", &[JSON], r#"{"type": "blob", "ttl": 5}"#)
        .await
        .expect(409);
    assert!(!other.headers.contains_key("etag") && other.json().get("definition").is_none());
    assert!(other.json()["detail"].as_str().unwrap().contains("the right 'read'"));
    let same = world.ask(&token, "PUT", "/v1/enwiki/secret", &[JSON], PRIVATE_BLOB).await.expect(201);
    assert!(!same.headers.contains_key("etag"));
    for url in ["/v1/enwiki/secret", "/v1/enwiki/none"] {
        world.ask(&token, "DELETE", url, &[], "").await.expect(204);
    }
}

#[tokio::test]
async fn answers_to_a_writer_without_read_do_not_show_the_value_of_a_counter() {
    let (open, world) = guarded().await;
    open.ask("", "PUT", "/v1/enwiki/clicks", &[JSON], r#"{"type": "counter"}"#).await.expect(201);
    let url = "/v1/enwiki/clicks/a";
    let [write, read, both] =
        [&[Right::Write][..], &[Right::Read], &[Right::Read, Right::Write]].map(|rights| {
            let world = &world;
            async move { world.token(rights, &["enwiki"]).await }
        });
    let (write, read, both) = (write.await, read.await, both.await);
    let increment = async |token: &str, by: &str| {
        world.ask(token, "POST", url, &[JSON], &format!("{{\"increment\": {by}}}")).await
    };
    for _ in 0..2 {
        let counted = increment(&write, "12345").await.expect(204);
        assert!(counted.body.is_empty());
        assert_eq!(counted.header("cache-control"), "no-store");
    }
    world.ask(&write, "GET", url, &[], "").await.expect(403);
    world.ask(&write, "GET", "/v1/enwiki/clicks/", &[], "").await.expect(403);
    // Otherwise, a binary search finds the value with 63 increments: each answer tells whether it would overflow.
    for by in ["2147483648", "-2147483649", "9223372036854775807", "-9223372036854775808"] {
        let refused = increment(&write, by).await.expect(403);
        assert!(refused.text().contains("the right 'read' for an increment beyond"), "{}", refused.text());
    }
    for by in ["2147483647", "-2147483647"] {
        increment(&write, by).await.expect(204);
    }
    let refused = increment(&both, "9223372036854775807").await.expect(422);
    assert!(refused.text().contains("24690"), "{}", refused.text());
    increment(&read, "1").await.expect(403);
    world.ask(&read, "DELETE", url, &[], "").await.expect(403);
    assert_eq!(increment(&both, "1").await.expect(200).json()["value"], 24691);
    assert_eq!(world.ask(&read, "GET", url, &[], "").await.expect(200).json()["value"], 24691);
    world.ask(&write, "DELETE", url, &[], "").await.expect(204);
    // An overflow is refused without the value.
    increment(&both, "9223372036854775800").await.expect(200);
    let refused = increment(&write, "8").await.expect(422);
    assert!(!refused.text().contains("922337203685477580"), "{}", refused.text());
    increment(&write, "-2147483648").await.expect(204);
}

/// A client without a right on a bucket gets the same answers for every type of bucket.
#[tokio::test]
async fn type_of_a_bucket_is_hidden_from_clients_without_a_right() {
    let (open, world) = guarded().await;
    let types = ["blob", "ordered-blob", "counter"];
    for name in types {
        let definition = format!("{{\"type\": \"{name}\"}}");
        open.ask("", "PUT", &format!("/v1/enwiki/of-{name}"), &[JSON], &definition).await.expect(201);
    }
    let other = world.token(&Right::ALL, &["dewiki"]).await;
    for token in ["", &other] {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            for path in ["/", "/?prefix=a", "/?x", "/a", "/a?x", "/%61", "/..", "/%FF"] {
                for header in [JSON, ("idempotency-key", "1"), ("idempotency-key", ""), ("if-match", "*")] {
                    let mut first = None;
                    for name in types.into_iter().chain(["none"]) {
                        let name = format!("of-{name}");
                        let url = format!("/v1/enwiki/{name}{path}");
                        let answer = comparable(world.ask(token, method, &url, &[header], "{}").await, true);
                        let body = String::from_utf8(answer.body).unwrap().replace(&name, "BUCKET");
                        let mut headers = answer.headers;
                        headers.remove("content-length");
                        let seen = (answer.status, headers, body);
                        assert_eq!(first.get_or_insert_with(|| seen.clone()), &seen, "{method} {url}");
                    }
                }
            }
        }
    }
}

/// Whether a bucket or a key exists, and what it is, does not change the answer to a client that may not read it.
#[tokio::test]
async fn private_and_missing_buckets_look_the_same() {
    let (open, world) = guarded().await;
    let (_, empty) = guarded().await;
    for domain in ["enwiki", PUBLIC] {
        fill_buckets(&open, domain).await;
    }
    empty.clock.set(rashomon_clock::Clock::now(&*world.clock));
    let grants = [
        ("nobody", None),
        ("another domain", Some(grant(&Right::ALL, &["dewiki"], None))),
        ("another bucket", Some(grant(&Right::ALL, &["*"], Some(&["other"])))),
    ];
    let mut compared = 0;
    for (name, grant) in grants {
        let tokens = match grant {
            Some(grant) => [world.token_of(grant.clone(), None).await, empty.token_of(grant, None).await],
            None => [String::new(), String::new()],
        };
        for (domain, buckets) in [
            ("enwiki", &["secret", "open", "none"][..]),
            (PUBLIC, &["secret", "none"]),
            ("nowiki", &["none"]),
        ] {
            let mut first = None;
            for bucket in buckets {
                for key in ["", "/a", "/none", "/%61"] {
                    for (method, body) in [("GET", ""), ("PUT", PRIVATE_BLOB), ("DELETE", ""), ("POST", "x")]
                    {
                        // No bucket takes a POST at the URL of its definition.
                        if method == "POST" && key.is_empty() {
                            continue;
                        }
                        for header in
                            [HTML, JSON, ("if-match", "\"x\""), ("if-none-match", "*"), ("range", "bytes=9-")]
                        {
                            let url = format!("/v1/{domain}/{bucket}{key}");
                            let answers =
                                [(&world, &tokens[0]), (&empty, &tokens[1])].map(|(world, token)| {
                                    let url = &url;
                                    async move {
                                        comparable(world.ask(token, method, url, &[header], body).await, true)
                                    }
                                });
                            let [full, empty] = answers;
                            let (full, empty) = (full.await, empty.await);
                            assert_eq!(full, empty, "{name}: {method} {url}");
                            let refused = if tokens[0].is_empty() { 401 } else { 403 };
                            assert_eq!(full.status.as_u16(), refused, "{name}: {method} {url}");
                            // The answers for the other buckets and keys differ only in the names of the bucket
                            // and of the right.
                            let detail = String::from_utf8(full.body).unwrap().replace(bucket, "BUCKET");
                            let detail = ["write", "admin"]
                                .iter()
                                .fold(detail, |text, right| text.replace(right, "read"));
                            let mut headers = full.headers;
                            headers.remove("content-length");
                            let seen = (headers, detail);
                            assert_eq!(
                                first.get_or_insert_with(|| seen.clone()),
                                &seen,
                                "{name}: {method} {url}"
                            );
                            compared += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(compared > 500, "{compared}");
}

/// If the store were asked, the time until the refusal would depend on stored content.
#[tokio::test]
async fn refused_request_does_not_ask_the_store_for_the_bucket() {
    let (open, world) = guarded().await;
    fill_buckets(&open, "enwiki").await;
    let token = world.token_of(grant(&Right::ALL, &["enwiki"], Some(&["other"])), None).await;
    world.ask(&token, "GET", "/v1/enwiki/secret/a", &[], "").await.expect(403);
    let calls = || [Call::Get, Call::Scan, Call::Swap, Call::Write].map(|call| world.store.calls(call));
    let before = calls();
    for token in ["", &token] {
        for bucket in ["secret", "open", "none"] {
            for url in [format!("/v1/enwiki/{bucket}"), format!("/v1/enwiki/{bucket}/a")] {
                for method in ["GET", "PUT", "DELETE"] {
                    let answer = world.ask(token, method, &url, &[JSON], PRIVATE_BLOB).await;
                    assert!([401, 403].contains(&answer.status.as_u16()), "{answer:?}");
                    assert_eq!(calls(), before, "{method} {url}");
                }
            }
        }
    }
}

#[tokio::test]
async fn public_entry_needs_the_right_to_read_the_pages() {
    let host = ("host", "en.example.org");
    let open = World::new().await;
    let json = [("content-type", "application/json")];
    open.request("PUT", "/v1/enwiki/open", &json, r#"{"type": "blob", "public": true}"#).await.expect(201);
    open.request("PUT", "/v1/enwiki/open/a", &[], "image").await.expect(201);
    let settings =
        Settings { hosts: [("en.example.org".to_owned(), domain("enwiki"))].into(), ..Default::default() };
    let closed = open.with_access(settings, AnonymousRights::default());
    for key in ["open/a", "open/b", "missing/a"] {
        closed.get_with(&format!("/wiki/?blob/{key}"), &[host]).await.expect(401);
    }
    let token = closed.token(&[Right::Read], &["enwiki"]).await;
    let answer = closed.ask(&token, "GET", "/wiki/?blob/open/a", &[host], "").await.expect(200);
    assert!(answer.header("cache-control").starts_with("private"), "{:?}", answer.headers);
}
