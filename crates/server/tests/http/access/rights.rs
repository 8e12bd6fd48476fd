//! Tests that no right implies another.

use rashomon_server::Settings;
use rashomon_server::access::{AnonymousRights, DomainRights, Right, Rights};

use super::{FORM, HTML, JSON, TOKEN_REQUEST, anonymous_on, domain, export, fill, guarded, page_of, servers};
use crate::world::{Answer, PAGE, World};

/// Sends a complete request that needs this right. Returns the answer.
async fn use_right(world: &World, token: &str, right: Right, tid: &str, number: u32) -> Answer {
    match right {
        Right::Read => world.ask(token, "GET", &format!("{PAGE}?rev/{tid}/html"), &[], "").await,
        Right::Write => world.post_as(token, &format!("{PAGE}?rev/"), &format!("_rev={number}&html=x")).await,
        Right::Import => world.ask(token, "POST", "/v1/enwiki/import", &[FORM], &export(number, "x")).await,
        Right::Rewrite => {
            let url = format!("{PAGE}?rev/{tid}/html");
            world.ask(token, "PUT", &url, &[HTML], &format!("bytes {number}")).await
        }
        Right::Admin => world.ask(token, "POST", "/v1/tokens", &[JSON], TOKEN_REQUEST).await,
    }
}

#[tokio::test]
async fn no_right_implies_another() {
    let (open, world) = guarded().await;
    let [_, tid] = fill(&open, "enwiki").await;
    let mut number = 10;
    for right in Right::ALL {
        let only = world.token(&[right], &["*"]).await;
        let others: Vec<_> = Right::ALL.into_iter().filter(|other| *other != right).collect();
        let others = world.token(&others, &["*"]).await;
        for other in Right::ALL {
            number += 2;
            let answer = use_right(&world, &only, other, &tid, number).await;
            assert_eq!(answer.status.is_success(), right == other, "{right} for {other}: {answer:?}");
            assert!(right == other || answer.status.as_u16() == 403, "{right} for {other}: {answer:?}");
            let answer = use_right(&world, &others, other, &tid, number + 1).await;
            assert_eq!(answer.status.is_success(), right != other, "all but {right} for {other}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn time_in_the_past_needs_the_right_to_import_as_well() {
    let anonymous = super::anonymous_on(super::PUBLIC, &[Right::Read, Right::Write]);
    let (open, world) = servers(Settings::default(), anonymous).await;
    let [_, tid] = fill(&open, "enwiki").await;
    fill(&open, super::PUBLIC).await;
    let write = world.token(&[Right::Read, Right::Write, Right::Rewrite, Right::Admin], &["*"]).await;
    let import = world.token(&[Right::Read, Right::Import], &["*"]).await;
    let both = world.token(&[Right::Write, Right::Import], &["enwiki"]).await;
    let targets = [
        (format!("{PAGE}?rev/"), "_rev=3&html=x&_timestamp=2020-01-01T00:00:00Z"),
        (format!("{PAGE}?rev/2/"), "html=render&_timestamp=2020-01-02T00:00:00Z"),
        (format!("{PAGE}?rev/{tid}/"), "html=other+render&_timestamp=2020-01-03T00:00:00Z"),
    ];
    let before = world.dump().await;
    for (url, form) in &targets {
        for (token, missing) in [(&write, "'import'"), (&import, "'write'")] {
            let answer = world.post_as(token, url, form).await.expect(403);
            assert!(answer.text().contains(missing), "{}", answer.text());
        }
    }
    // A client without a token is asked for one.
    let url = format!("{}?rev/", page_of(super::PUBLIC));
    let answer = super::expect_challenge(world.post_as("", &url, targets[0].1).await);
    assert!(answer.text().contains("'import'"), "{}", answer.text());
    assert_eq!(world.dump().await, before);
    for (url, form) in &targets {
        world.post_as(&both, url, form).await.expect(201);
        world.clock.advance(std::time::Duration::from_secs(1));
    }
    world.post_as(&write, &format!("{PAGE}?rev/"), "_rev=4&html=x").await.expect(201);
}

#[tokio::test]
async fn buckets_and_domains_of_a_token_are_respected() {
    let (open, world) = guarded().await;
    fill(&open, "enwiki").await;
    let url = format!("{PAGE}?rev/latest/html");
    for (domains, buckets, status) in [
        (&["enwiki"][..], None, 200),
        (&["en*"], None, 200),
        (&["*"], Some(&["page"][..]), 200),
        (&["dewiki", "enwiki"], Some(&["other", "pa*"]), 200),
        (&["enwikibooks"], None, 403),
        (&["enw"], None, 403),
        (&["dewiki"], None, 403),
        (&["enwiki"], Some(&["other"]), 403),
        (&["enwiki"], Some(&[]), 403),
        (&[], None, 403),
    ] {
        let token = world.token_of(super::grant(&[Right::Read], domains, buckets), None).await;
        let answer = world.ask(&token, "GET", &url, &[], "").await;
        assert_eq!(answer.status.as_u16(), status, "{domains:?} {buckets:?}");
    }
}

#[tokio::test]
async fn rights_without_a_token_hold_on_their_domains_and_buckets() {
    let read = Rights::from_iter([Right::Read]);
    let page = || rashomon_pages::BucketName::page();
    let of = |anonymous, buckets: &[Rights]| DomainRights {
        anonymous,
        buckets: buckets.iter().map(|rights| (page(), *rights)).collect(),
    };
    let anonymous = AnonymousRights {
        everywhere: read,
        domains: [
            (domain("closed"), of(Some(Rights::NONE), &[])),
            (domain("onebucket"), of(Some(Rights::NONE), &[read])),
            (domain("nobucket"), of(None, &[Rights::NONE])),
        ]
        .into(),
    };
    let (open, world) = servers(Settings::default(), anonymous).await;
    for (name, status) in [("enwiki", 200), ("closed", 401), ("onebucket", 200), ("nobucket", 401)] {
        fill(&open, name).await;
        world.get(&format!("{}?rev/latest/html", page_of(name))).await.expect(status);
        let token = world.token(&[], &[]).await;
        let status = if status == 401 { 403 } else { status };
        world.ask(&token, "GET", &format!("{}?rev/", page_of(name)), &[], "").await.expect(status);
    }
}

/// A token that may increment a counter cannot use up the idempotency keys of other callers.
#[tokio::test]
async fn idempotency_key_belongs_to_its_caller() {
    let anonymous = anonymous_on("enwiki", &[Right::Read]);
    let (open, world) = servers(Settings::default(), anonymous).await;
    let json = ("content-type", "application/json");
    open.request("PUT", "/v1/enwiki/clicks", &[json], r#"{"type": "counter"}"#).await.expect(201);
    let url = "/v1/enwiki/clicks/a";
    let first = world.token(&[Right::Read, Right::Write], &["enwiki"]).await;
    let second = world.token(&[Right::Read, Right::Write], &["*"]).await;
    let key = [FORM, ("idempotency-key", "order-1")];
    let increment = async |token: &str, form: &str| {
        world.ask(token, "POST", url, &key, form).await.expect(200).json()["value"].clone()
    };
    assert_eq!(increment(&first, "increment=0").await, 0);
    assert_eq!(increment(&second, "increment=5").await, 5);
    // A repeat of a caller gets its own first answer.
    assert_eq!(increment(&first, "increment=0").await, 0);
    assert_eq!(increment(&second, "increment=5").await, 5);
    // Clients without a token are one caller.
    for _ in 0..2 {
        let counted = open.request("POST", url, &key, "increment=2").await.expect(200);
        assert_eq!(counted.json()["value"], 7);
    }
    // In a batch, the caller is that of the batch.
    let element = serde_json::json!([{
        "method": "POST", "path": url, "headers": {"idempotency-key": "order-1", FORM.0: FORM.1}, "body": "increment=5",
    }]);
    let answers =
        world.ask(&second, "POST", "/v1/batch", &[json], &element.to_string()).await.expect(200).json();
    assert!(answers[0]["body"].as_str().unwrap().contains('5'), "{answers}");
    assert_eq!(open.get(url).await.expect(200).json()["value"], 7);
}
