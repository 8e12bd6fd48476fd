//! Tests of imports by clients that may not read.

use rashomon_pages::Revision;
use rashomon_pages::operations::EraseOptions;
use rashomon_server::access::Right;

use super::{export, fill, guarded};
use crate::world::World;

/// The last line of the answer to an import.
async fn import(world: &World, token: &str, body: &str) -> String {
    let answer = world.ask(token, "POST", "/v1/enwiki/import", &[], body).await.expect(200);
    answer.text().lines().last().unwrap().to_owned()
}

#[tokio::test]
async fn repeated_import_is_answered_as_a_new_one() {
    let (_, world) = guarded().await;
    let importer = world.token(&[Right::Import], &["enwiki"]).await;
    let reader = world.token(&[Right::Import, Right::Read], &["enwiki"]).await;
    let body = export(5, "five");
    let new = import(&world, &importer, &body).await;
    assert_eq!(import(&world, &importer, &body).await, new);
    assert!(new.contains("\"created\":1") && new.contains("\"unchanged\":0"), "{new}");
    let repeated = import(&world, &reader, &body).await;
    assert!(repeated.contains("\"created\":0") && repeated.contains("\"unchanged\":1"), "{repeated}");
}

#[tokio::test]
async fn conflict_is_reported_without_the_stored_content() {
    let (open, world) = guarded().await;
    fill(&open, "enwiki").await;
    let importer = world.token(&[Right::Import], &["enwiki"]).await;
    let reader = world.token(&[Right::Import, Right::Read], &["enwiki"]).await;
    let body = export(2, "something else");
    let of_reader: serde_json::Value = serde_json::from_str(&import(&world, &reader, &body).await).unwrap();
    let of_importer: serde_json::Value =
        serde_json::from_str(&import(&world, &importer, &body).await).unwrap();
    assert_eq!(of_importer["first_conflicts"][0]["rev"], 2, "{of_importer}");
    let detail = "it does not fit what is stored; the right 'read' shows why";
    assert_eq!(of_importer["first_conflicts"][0]["detail"], detail);
    assert_ne!(of_reader["first_conflicts"][0]["detail"], detail);
}

#[tokio::test]
async fn erasure_is_not_shown() {
    let (open, world) = guarded().await;
    fill(&open, "enwiki").await;
    let page = super::writing::main_page();
    let two = Revision::new(2).unwrap();
    rashomon_pages::operations::erase(&open.buckets(), &page, two, EraseOptions::default()).await.unwrap();
    let importer = world.token(&[Right::Import], &["enwiki"]).await;
    let reader = world.token(&[Right::Import, Right::Read], &["enwiki"]).await;
    let body = export(2, "text two");
    let of_reader = import(&world, &reader, &body).await;
    assert!(of_reader.contains("erased on 2024-01-01"), "{of_reader}");
    let of_importer = import(&world, &importer, &body).await;
    assert!(of_importer.contains("\"left_out\":1"), "{of_importer}");
    assert!(!of_importer.contains("erased") && !of_importer.contains("2024"), "{of_importer}");
}

#[tokio::test]
async fn import_needs_its_own_right() {
    let (_, world) = guarded().await;
    let others = world.token(&[Right::Read, Right::Write, Right::Rewrite, Right::Admin], &["*"]).await;
    let body = export(5, "five");
    world.ask(&others, "POST", "/v1/enwiki/import", &[], &body).await.expect(403);
    super::expect_challenge(world.ask("", "POST", "/v1/enwiki/import", &[], &body).await);
    let importer = world.token(&[Right::Import], &["enwiki"]).await;
    world.ask(&importer, "POST", "/v1/dewiki/import", &[], &body).await.expect(403);
    import(&world, &importer, &body).await;
}
