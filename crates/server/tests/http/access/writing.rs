//! Tests that the answers to clients that may write but not read show nothing about stored content.

use rashomon_pages::operations::EraseOptions;
use rashomon_pages::{Page, Revision, Title};
use rashomon_server::Settings;
use rashomon_server::access::{AnonymousRights, Right};

use super::{FORM, HTML, anonymous_on, comparable, fill, guarded, page_of, servers};
use crate::{
    log::capture,
    world::{Answer, PAGE, World},
};

const OTHER_TID: &str = "8f545ba0-2601-11e3-885c-4160918f0fb9";

/// The headers with which a write would depend on stored content.
const CONDITIONS: [(&str, &str); 6] = [
    ("if-match", "\"x\""),
    ("if-match", "*"),
    ("if-none-match", "*"),
    ("if-modified-since", "Mon, 01 Jan 2024 00:00:00 GMT"),
    ("if-unmodified-since", "Mon, 01 Jan 2024 00:00:00 GMT"),
    ("if-range", "\"x\""),
];

/// Sends every kind of conditional write.
async fn conditional_writes(world: &World, token: &str, tid: &str) -> Vec<Answer> {
    let mut answers = Vec::new();
    for condition in CONDITIONS {
        for (url, form) in [
            (format!("{PAGE}?rev/"), "_rev=3&html=three"),
            (format!("{PAGE}?rev/2/"), "html=three"),
            (format!("{PAGE}?rev/{tid}/"), "html=three"),
        ] {
            answers.push(world.ask(token, "POST", &url, &[FORM, condition], form).await);
        }
        let url = format!("{PAGE}?rev/{tid}/html");
        answers.push(world.ask(token, "PUT", &url, &[HTML, condition], "three").await);
    }
    for if_latest in ["0", "1", "2", "9"] {
        let form = format!("html=three&_if_latest={if_latest}");
        answers.push(world.post_as(token, &format!("{PAGE}?rev/"), &format!("_rev=3&{form}")).await);
        for of in ["2", tid] {
            answers.push(world.post_as(token, &format!("{PAGE}?rev/{of}/"), &form).await);
        }
    }
    answers
}

#[tokio::test]
async fn conditions_need_the_right_to_read() {
    let writing = [Right::Write, Right::Import, Right::Rewrite];
    let (open, world) = servers(Settings::default(), anonymous_on("enwiki", &writing)).await;
    let [_, tid] = fill(&open, "enwiki").await;
    let token = world.token(&writing, &["enwiki"]).await;
    let before = world.dump().await;
    for answer in conditional_writes(&world, "", &tid).await {
        let answer = super::expect_challenge(answer);
        assert!(answer.text().contains("'read'"), "{}", answer.text());
    }
    for answer in conditional_writes(&world, &token, &tid).await {
        let answer = answer.expect(403);
        assert!(answer.text().contains("'read'"), "{}", answer.text());
    }
    assert_eq!(world.dump().await, before);
    // With the right to read, the conditions are evaluated.
    let both = world.token(&[Right::Read, Right::Write, Right::Rewrite], &["enwiki"]).await;
    for answer in conditional_writes(&world, &both, &tid).await {
        assert!(![401, 403].contains(&answer.status.as_u16()), "{answer:?}");
    }
}

/// Replaces the tid in an answer by `TID`.
fn without_tid(answer: Answer) -> Answer {
    let mut answer = comparable(answer, false);
    let tid = answer.json()["tid"].as_str().unwrap().to_owned();
    let location = answer.header("location").replace(&tid, "TID");
    assert!(location.contains("TID"), "{answer:?}");
    answer.headers.insert("location", location.parse().unwrap());
    answer.body = answer.text().replace(&tid, "TID").into_bytes();
    answer
}

#[tokio::test]
async fn repeated_write_is_answered_as_a_new_one() {
    let (open, world) = guarded().await;
    let [_, tid] = fill(&open, "enwiki").await;
    let writer = world.token(&[Right::Write, Right::Rewrite], &["enwiki"]).await;
    let reader = world.token(&[Right::Read, Right::Write, Right::Rewrite], &["enwiki"]).await;
    for (url, form) in [
        (format!("{PAGE}?rev/"), "_rev=3&html=three"),
        (format!("{PAGE}?rev/2/"), "html=render"),
        (format!("{PAGE}?rev/{tid}/"), "html=another"),
    ] {
        let new = world.post_as(&writer, &url, form).await.expect(201);
        let repeated = world.post_as(&writer, &url, form).await.expect(201);
        assert_eq!(without_tid(new), without_tid(repeated), "{url}");
        let repeated = world.post_as(&reader, &url, form).await.expect(200);
        assert_eq!(repeated.json()["message"], "Unchanged");
    }
    let url = format!("{PAGE}?rev/{tid}/html");
    let new = world.ask(&writer, "PUT", &url, &[HTML], "replaced").await.expect(200);
    let repeated = world.ask(&writer, "PUT", &url, &[HTML], "replaced").await.expect(200);
    assert_eq!(comparable(new.clone(), false), comparable(repeated, false));
    assert!(!new.headers.contains_key("etag"), "{new:?}");
    let repeated = world.ask(&reader, "PUT", &url, &[HTML], "replaced").await.expect(200);
    assert_eq!(repeated.json()["message"], "Unchanged");
    assert!(repeated.headers.contains_key("etag"));
}

/// Checks that a refusal for a writer says nothing about stored content, and that the same refusal for a reader does.
#[track_caller]
fn check_concealed(writer: Answer, reader: &Answer, status: u16) -> Answer {
    let answer = comparable(writer.expect(status), true);
    let problem = answer.json();
    let members: Vec<_> = problem.as_object().unwrap().keys().collect();
    assert_eq!(members, ["detail", "status", "title", "type"]);
    assert_eq!(problem["detail"], "the write does not fit what is stored; the right 'read' shows why");
    assert_eq!(reader.status.as_u16(), status);
    assert_ne!(reader.json()["detail"], problem["detail"]);
    answer
}

#[tokio::test]
async fn refused_write_does_not_show_what_is_stored() {
    let (open, world) = guarded().await;
    let [first, tid] = fill(&open, "enwiki").await;
    open.post("/v1/enwiki/page/Gone?rev/", "_rev=7&html=secret").await.expect(201);
    let page = Page { title: Title::new("Gone").unwrap(), ..main_page() };
    let gone = open.post("/v1/enwiki/page/Gone?rev/7/", "html=secret+2").await.expect(201).json();
    let gone = gone["tid"].as_str().unwrap();
    let buckets = open.buckets();
    let seven = Revision::new(7).unwrap();
    rashomon_pages::operations::erase(&buckets, &page, seven, EraseOptions::default()).await.unwrap();
    let writer = world.token(&[Right::Write, Right::Rewrite], &["enwiki"]).await;
    let reader = world.token(&[Right::Read, Right::Write, Right::Rewrite], &["enwiki"]).await;

    // The operator can see the reason.
    let (log, guard) = capture();
    world.post_as(&writer, &format!("{PAGE}?rev/3/"), "html=x").await.expect(404);
    drop(guard);
    assert!(log.text().contains("the page has no revision 3"), "{}", log.text());

    // Everything that can be missing is refused in the same words.
    let mut missing = Vec::new();
    for (method, url) in [
        ("POST", format!("{PAGE}?rev/3/")),
        ("POST", "/v1/enwiki/page/Nowhere?rev/1/".to_owned()),
        ("POST", format!("{PAGE}?rev/{OTHER_TID}/")),
        ("POST", format!("/v1/enwiki/page/Nowhere?rev/{tid}/")),
        ("PUT", format!("{PAGE}?rev/{OTHER_TID}/html")),
        ("PUT", format!("{PAGE}?rev/{tid}/meta")),
        ("PUT", format!("/v1/enwiki/page/Nowhere?rev/{tid}/html")),
    ] {
        let header = if method == "POST" { FORM } else { HTML };
        let of_reader = world.ask(&reader, method, &url, &[header], "html=x").await;
        let of_writer = world.ask(&writer, method, &url, &[header], "html=x").await;
        missing.push(check_concealed(of_writer, &of_reader, 404));
    }
    assert!(missing.iter().all(|answer| *answer == missing[0]), "{missing:?}");

    let mut conflicts = Vec::new();
    for (url, form) in [
        (format!("{PAGE}?rev/"), "_rev=1&html=other"),
        (format!("{PAGE}?rev/"), "_rev=1&html=one"),
        (format!("{PAGE}?rev/2/"), "wikitext=other"),
        (format!("{PAGE}?rev/{first}/"), "wikitext=other"),
    ] {
        let of_reader = world.post_as(&reader, &url, form).await;
        let of_writer = world.post_as(&writer, &url, form).await;
        conflicts.push(check_concealed(of_writer, &of_reader, 409));
    }
    assert!(conflicts.iter().all(|answer| *answer == conflicts[0]), "{conflicts:?}");

    for (method, url, body) in [
        ("POST", "/v1/enwiki/page/Gone?rev/".to_owned(), "_rev=7&html=new"),
        ("POST", "/v1/enwiki/page/Gone?rev/7/".to_owned(), "html=new"),
        ("POST", format!("/v1/enwiki/page/Gone?rev/{gone}/"), "html=new"),
        ("PUT", format!("/v1/enwiki/page/Gone?rev/{gone}/html"), "new"),
    ] {
        let header = if method == "POST" { FORM } else { HTML };
        let of_reader = world.ask(&reader, method, &url, &[header], body).await;
        let of_writer = world.ask(&writer, method, &url, &[header], body).await;
        check_concealed(of_writer, &of_reader, 410);
    }
}

pub(super) fn main_page() -> Page {
    Page {
        domain: super::domain("enwiki"),
        bucket: rashomon_pages::BucketName::page(),
        title: Title::new("Main_Page").unwrap(),
    }
}

#[tokio::test]
async fn refused_write_changes_nothing() {
    let (open, world) = servers(Settings::default(), AnonymousRights::default()).await;
    let [_, tid] = fill(&open, "enwiki").await;
    let reader = world.token(&[Right::Read, Right::Admin], &["enwiki"]).await;
    let elsewhere = world.token(&Right::ALL, &["dewiki"]).await;
    let before = world.dump().await;
    for token in ["", &reader, &elsewhere] {
        for (url, form) in [
            (format!("{PAGE}?rev/"), "_rev=3&html=three".to_owned()),
            (format!("{PAGE}?rev/2/"), "html=three".to_owned()),
            (format!("{PAGE}?rev/{tid}/"), "html=three".to_owned()),
            ("/v1/enwiki/import".to_owned(), super::export(5, "x")),
        ] {
            let answer = world.post_as(token, &url, &form).await;
            answer.expect(if token.is_empty() { 401 } else { 403 });
        }
        let url = format!("{}?rev/{tid}/html", page_of("enwiki"));
        let answer = world.ask(token, "PUT", &url, &[HTML], "three").await;
        answer.expect(if token.is_empty() { 401 } else { 403 });
    }
    assert_eq!(world.dump().await, before);
}
