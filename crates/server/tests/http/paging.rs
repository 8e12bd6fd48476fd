//! Tests that lists and documents have bounded sizes, however long the history is.

use std::collections::BTreeSet;

use serde_json::Value;

use super::world::{Answer, PAGE, World};

/// The maximum size of the entries in a part of a JSON list.
const MAX_RESULT_PAGE_BYTES: usize = 1 << 20;

/// Stores a page with one revision of `count` renders. Returns their tids, oldest first.
async fn renders(world: &World, count: usize) -> Vec<String> {
    let mut tids = vec![world.revision("_rev=1&html=0").await];
    for number in 1..count {
        tids.push(world.render("1", &format!("html={number}")).await);
    }
    tids
}

/// Follows `next` from a list to its end. Returns the answers.
async fn pages_of(world: &World, list: &str) -> Vec<Answer> {
    let (mut pages, mut url) = (Vec::new(), format!("{PAGE}{list}"));
    loop {
        let page = world.get(&url).await.expect(200);
        let next = page.json()["next"].as_str().map(|next| format!("{PAGE}{next}"));
        pages.push(page);
        match next {
            Some(next) => url = next,
            None => return pages,
        }
    }
}

fn tids_of(page: &Answer) -> Vec<String> {
    let page = page.json();
    let renders = page["renders"].as_array().unwrap().iter();
    renders.map(|render| render["tid"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn renders_of_a_revision_come_in_result_pages() {
    let world = World::new().await;
    let mut tids = renders(&world, 120).await;
    tids.reverse();
    for (list, lengths) in
        [("?rev/1/", vec![50, 50, 20]), ("?rev/1/&limit=60", vec![60, 60]), ("?rev/1/&limit=500", vec![120])]
    {
        let pages = pages_of(&world, list).await;
        assert_eq!(pages.iter().map(|page| tids_of(page).len()).collect::<Vec<_>>(), lengths, "{list}");
        assert_eq!(pages.iter().flat_map(tids_of).collect::<Vec<_>>(), tids, "{list}");
        for page in &pages {
            assert_eq!(page.json()["rev"], 1);
            assert!(page.header("cache-control").contains("s-maxage=0"));
        }
    }
    // A requested limit applies to the following parts, and is in their links.
    let first = world.get(&format!("{PAGE}?rev/1/&limit=7")).await.expect(200).json();
    assert!(first["next"].as_str().unwrap().starts_with("?rev/1/&limit=7&page="), "{first}");
    for refused in ["limit=501", "limit=0", "limit=5&limit=5", "page=x", "after=1"] {
        world.get(&format!("{PAGE}?rev/1/&{refused}")).await.expect(400);
        world.post(&format!("{PAGE}?rev/1/&limit=5"), "html=x").await.expect(400);
    }
    world.get(&format!("{PAGE}?rev/2/&limit=5")).await.expect(404);
}

#[tokio::test]
async fn result_page_of_renders_ends_at_one_mebibyte() {
    let world = World::new().await;
    let long_names: Vec<String> = (0..64).map(|number| format!("p{number:0>63}")).collect();
    let form: String = long_names.iter().map(|name| format!("&{name}=x")).collect();
    let mut tids = BTreeSet::from([world.revision(&format!("_rev=1{form}")).await]);
    for number in 1..70 {
        tids.insert(world.render("1", &format!("{}={number}", long_names[0])).await);
    }
    let pages = pages_of(&world, "?rev/1/&limit=500").await;
    assert!(pages.len() > 1);
    for page in &pages {
        assert!(page.body.len() <= MAX_RESULT_PAGE_BYTES + 1024, "{}", page.body.len());
    }
    let listed: Vec<String> = pages.iter().flat_map(tids_of).collect();
    assert_eq!(listed.len(), tids.len());
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), tids);
}

#[tokio::test]
async fn result_page_of_revisions_ends_at_one_mebibyte() {
    let world = World::new().await;
    // A control character takes six bytes in JSON.
    let comment = "%01".repeat(4096);
    for number in 1..=60 {
        world.revision(&format!("_rev={number}&html=x&_comment={comment}")).await;
    }
    let pages = pages_of(&world, "?rev/&limit=500").await;
    assert!(pages.len() > 1);
    let mut revs = Vec::new();
    for page in &pages {
        assert!(page.body.len() <= MAX_RESULT_PAGE_BYTES + 1024, "{}", page.body.len());
        let page = page.json();
        revs.extend(page["revisions"].as_array().unwrap().iter().map(|line| line["rev"].as_i64().unwrap()));
    }
    assert_eq!(revs, (1..=60).rev().collect::<Vec<_>>());
    // HTML pages show the beginning of each comment.
    let page = world.get("/pages/enwiki/Main_Page").await.expect(200);
    assert!(page.body.len() < 200 << 10, "{}", page.body.len());
}

#[tokio::test]
async fn rows_are_read_until_the_result_page_is_full() {
    let world = World::new().await;
    let (comment, user) = ("c".repeat(4096), "u".repeat(4096));
    for number in 1..=300 {
        world.revision(&format!("_rev={number}&html=x&_comment={comment}&_user={user}")).await;
    }
    let pages = pages_of(&world, "?rev/&limit=500").await;
    assert_eq!(pages.len(), 3);
    let revs = |page: &Answer| {
        page.json()["revisions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["rev"].as_i64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(pages.iter().flat_map(revs).collect::<Vec<_>>(), (1..=300).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn every_render_can_be_reached_from_the_html_pages() {
    let world = World::new().await;
    let tids = renders(&world, 160).await;
    let (mut seen, mut shown) = (BTreeSet::new(), tids[159].clone());
    for _ in 0..4 {
        let page = world.get(&format!("/pages/enwiki/Main_Page?rev/{shown}/")).await.expect(200);
        assert!(page.body.len() < 100 << 10, "{}", page.body.len());
        let listed: Vec<&String> = tids.iter().filter(|tid| page.text().contains(tid.as_str())).collect();
        assert!(listed.len() <= 101, "{}", listed.len());
        shown.clone_from(listed[0]);
        seen.extend(listed);
    }
    assert_eq!(seen.len(), tids.len());
    // The last shown render is the oldest.
    assert_eq!(shown, tids[0]);
}

#[tokio::test]
async fn a_conflict_shows_one_render() {
    let world = World::new().await;
    renders(&world, 60).await;
    let conflict = world.post(&format!("{PAGE}?rev/"), "_rev=2&html=x&_if_latest=7").await.expect(409);
    let latest: Value = conflict.json()["latest"].clone();
    assert_eq!(latest["rev"], 1);
    assert!(latest.get("renders").is_none());
    assert!(conflict.body.len() < 4096);
}
