//! Tests that the list of domains shows only domains that the client may read.

use rashomon_server::Settings;
use rashomon_server::access::{AnonymousRights, DomainRights, Right, Rights};

use super::{comparable, domain, page_of, servers};
use crate::{
    html::addresses,
    world::{Answer, World},
};

/// An open server and a guarded one with these domains. On the guarded server, everybody may read the domains with an
/// even number.
async fn server(numbers: impl Iterator<Item = u32>) -> (World, World) {
    let even = |number: &u32| number.is_multiple_of(2);
    let rights = || DomainRights { anonymous: Some(Rights::from_iter([Right::Read])), ..Default::default() };
    let readable = (0..400).filter(even).map(|number| (domain(&name(number)), rights()));
    let anonymous = AnonymousRights { everywhere: Rights::NONE, domains: readable.collect() };
    let (open, guarded) = servers(Settings::default(), anonymous).await;
    for number in numbers {
        open.post(&format!("{}?rev/", page_of(&name(number))), "_rev=1&html=x").await.expect(201);
    }
    (open, guarded)
}

fn name(number: u32) -> String {
    format!("w{number:03}")
}

/// The answers to all pages of the list.
async fn pages(world: &World, token: &str) -> Vec<Answer> {
    let mut pages = Vec::new();
    let mut next = Some("/".to_owned());
    while let Some(url) = next {
        let page = world.ask(token, "GET", &url, &[], "").await.expect(200);
        next = addresses(page.text()).into_iter().find(|address| address.starts_with("/?after="));
        pages.push(comparable(page, false));
        assert!(pages.len() < 10);
    }
    pages
}

fn listed(pages: &[Answer]) -> Vec<String> {
    let links = pages.iter().flat_map(|page| addresses(page.text()));
    links.filter_map(|link| Some(link.strip_prefix("/pages/")?.strip_suffix('/')?.to_owned())).collect()
}

#[tokio::test]
async fn list_is_as_if_unreadable_domains_did_not_exist() {
    // In the second case, the last page is full, and only domains that may not be read follow.
    for (all, count) in [(300, 150), (400, 200)] {
        let last = if all == 400 { 399 } else { 300 };
        let (_, mixed) = server((0..last).chain([all].into_iter().filter(|all| all % 2 == 1))).await;
        let (_, only) = server((0..last).filter(|number| number % 2 == 0)).await;
        let (mixed, only) = (pages(&mixed, "").await, pages(&only, "").await);
        assert_eq!(mixed, only);
        assert_eq!(mixed.len(), 2);
        let names: Vec<_> = (0..last).filter(|number| number % 2 == 0).map(name).collect();
        assert_eq!(names.len(), count);
        assert_eq!(listed(&mixed), names);
    }
}

#[tokio::test]
async fn token_adds_its_domains_to_those_of_everybody() {
    let (open, guarded) = server([0, 1, 2, 3, 4, 5].into_iter()).await;
    let token = guarded.token(&[Right::Read], &["w003"]).await;
    assert_eq!(listed(&pages(&guarded, &token).await), ["w000", "w002", "w003", "w004"]);
    let writer = guarded.token(&[Right::Write, Right::Admin], &["*"]).await;
    assert_eq!(listed(&pages(&guarded, &writer).await), ["w000", "w002", "w004"]);
    assert_eq!(listed(&pages(&open, "").await).len(), 6);
}

#[tokio::test]
async fn list_is_refused_if_nothing_may_be_read() {
    let (open, guarded) = servers(Settings::default(), AnonymousRights::default()).await;
    open.post(&format!("{}?rev/", page_of("enwiki")), "_rev=1&html=x").await.expect(201);
    let refused = super::expect_challenge(guarded.get("/").await);
    assert!(refused.text().contains("the right 'read' on a domain"), "{}", refused.text());
    let writer = guarded.token(&[Right::Write], &["enwiki"]).await;
    guarded.ask(&writer, "GET", "/", &[], "").await.expect(403);
    let reader = guarded.token(&[Right::Read], &["enwiki"]).await;
    assert_eq!(listed(&pages(&guarded, &reader).await), ["enwiki"]);
    // The query is not examined for clients that may see nothing.
    super::expect_challenge(guarded.get("/?x").await);
}
