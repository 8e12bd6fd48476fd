//! Tests of the room for answers: which answers are kept, and which are dropped.

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http_body_util::BodyExt as _;
use prometheus_client::registry::Registry;
use serde_json::Value;

use super::*;
use crate::{Settings, staging::Staging};

const KIB: usize = 1 << 10;

async fn answers(count: usize, limit: usize, memory: usize) -> Answers {
    let settings = Settings { staging_bytes: 2 * memory as u64, ..Settings::default() };
    let staging = Staging::new(&settings, &mut Registry::default());
    let claim = staging.claim_batch(count * RESERVED_BYTES).await.unwrap();
    Answers::new(count, limit as u64, claim).ok().unwrap()
}

fn endless() -> Response {
    let pieces = stream::repeat_with(|| Ok::<_, io::Error>(Bytes::from(vec![b'x'; KIB])));
    Response::new(Body::from_stream(pieces))
}

/// An answer whose body has `size` bytes, in two pieces.
fn of_size(size: usize) -> Response {
    let pieces = vec![Bytes::from(vec![b'x'; size / 2]), Bytes::from(vec![b'x'; size - size / 2])];
    Response::new(Body::from_stream(stream::iter(pieces).map(Ok::<_, io::Error>)))
}

/// The sizes of the bodies; `None` for answers that were dropped.
async fn sizes(answers: Answers) -> Vec<Option<usize>> {
    let dropped = answers.dropped();
    for at in &dropped {
        answers
            .replace(*at, replacement_answer(&too_large(), http::HeaderValue::from_static("id"), None))
            .await;
    }
    let body = answers.into_body();
    let announced = http_body::Body::size_hint(&body).exact().unwrap();
    let json = body.collect().await.unwrap().to_bytes();
    assert_eq!(json.len() as u64, announced);
    let all: Vec<Value> = serde_json::from_slice(&json).unwrap();
    let size = |(at, answer): (usize, &Value)| {
        (!dropped.contains(&at)).then(|| answer["body"].as_str().unwrap().len())
    };
    all.iter().enumerate().map(size).collect()
}

#[tokio::test]
async fn endless_answer_is_dropped_and_earlier_answers_are_kept() {
    for (limit, memory) in [(100 * KIB, 1 << 20), (1 << 20, 200 * KIB)] {
        let all = answers(4, limit, memory).await;
        assert!(matches!(all.collect(3, of_size(KIB)).await, Collected::Whole));
        assert!(matches!(all.collect(2, endless()).await, Collected::Dropped));
        assert!(matches!(all.collect(0, of_size(50 * KIB)).await, Collected::Whole));
        assert!(matches!(all.collect(1, of_size(10 * KIB)).await, Collected::Whole));
        assert_eq!(sizes(all).await, [Some(50 * KIB), Some(10 * KIB), None, Some(KIB)]);
    }
}

#[tokio::test]
async fn earlier_answers_take_precedence_over_finished_later_ones() {
    let all = answers(3, 100 * KIB, 1 << 20).await;
    assert!(matches!(all.collect(2, of_size(60 * KIB)).await, Collected::Whole));
    assert!(matches!(all.collect(1, of_size(60 * KIB)).await, Collected::Whole));
    assert!(matches!(all.collect(0, of_size(60 * KIB)).await, Collected::Whole));
    assert_eq!(sizes(all).await, [Some(60 * KIB), None, None]);
}

#[tokio::test]
async fn small_answers_have_room_beside_an_endless_one() {
    let all = answers(3, 16 * KIB, 1 << 20).await;
    assert!(matches!(all.collect(0, endless()).await, Collected::Dropped));
    for at in [1, 2] {
        assert!(matches!(all.collect(at, of_size(3 * KIB)).await, Collected::Whole));
    }
    assert_eq!(sizes(all).await, [None, Some(3 * KIB), Some(3 * KIB)]);
}

#[tokio::test]
async fn memory_is_released_when_answers_are_dropped_and_sent() {
    let settings = Settings { staging_bytes: 2 << 20, ..Settings::default() };
    let staging = Staging::new(&settings, &mut Registry::default());
    let claim = staging.claim_batch(2 * RESERVED_BYTES).await.unwrap();
    let all = Answers::new(2, u64::MAX, claim).ok().unwrap();
    all.collect(0, of_size(200 * KIB)).await;
    all.collect(1, endless()).await;
    // The memory of the dropped answer is free again.
    let used = 200 * KIB + 2 * RESERVED_BYTES;
    drop(staging.claim_batch((1 << 20) - used).await.unwrap());
    sizes(all).await;
    drop(staging.claim_batch(1 << 20).await.unwrap());
}

#[tokio::test]
async fn replacement_answers_fit_into_the_reserved_part() {
    let id = http::HeaderValue::from_str(&"i".repeat(132)).unwrap();
    for problem in [too_large(), crate::observe::batch_timed_out()] {
        let (head, body) = replacement_answer(&problem, id.clone(), None).into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let size = AnswerJson::new(&head, &body).size();
        assert!(size <= MIN_RESERVED_BYTES, "{size}");
    }
}

#[tokio::test]
async fn replacement_answer_has_only_short_urls_and_fits_into_its_part() {
    for (url, expected) in [
        (format!("/{}", "a".repeat(MAX_SHORT_URL_BYTES - 1)), true),
        (format!("/{}", "a".repeat(MAX_SHORT_URL_BYTES)), false),
        ("/\"".to_owned(), false),
    ] {
        let all = answers(1, 1 << 20, 1 << 20).await;
        let id = http::HeaderValue::try_from("x".repeat(140)).unwrap();
        all.replace(0, replacement_answer(&too_large(), id, Some(&url.parse().unwrap()))).await;
        let json = all.into_body().collect().await.unwrap().to_bytes();
        assert!(json.len() <= MIN_RESERVED_BYTES + 2, "{}", json.len());
        let all: Vec<Value> = serde_json::from_slice(&json).unwrap();
        let problem: Value = serde_json::from_str(all[0]["body"].as_str().unwrap()).unwrap();
        assert_eq!(problem["instance"] == url, expected, "{problem}");
    }
}
