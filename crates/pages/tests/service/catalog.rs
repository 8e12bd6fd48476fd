//! The catalog: domains, titles, and the data of exports about wikis and pages.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;
use rashomon_pages::{BucketName, DomainName, Page, PageInfo, SiteInfo, Title};
use rashomon_tables::{Call, Fault, Faulty, Plan};

use crate::support::{AlteredStore, World, at, block_on, every_point_or_nth, page, page_of, rev};

crate::support::on_every_store![
    domains_and_buckets_are_separate,
    last_written_site_info_wins_whatever_the_clock_shows,
];

async fn titles(world: &World, page: &Page, limit: usize) -> Vec<String> {
    let (mut all, mut after): (Vec<String>, Option<Title>) = (Vec::new(), None);
    loop {
        let part = world.buckets.catalog().titles(&page.domain, &page.bucket, after.as_ref(), limit).await;
        let part = part.unwrap();
        assert!(part.items.len() <= limit);
        all.extend(part.items.iter().map(ToString::to_string));
        after = part.next;
        if after.is_none() {
            return all;
        }
    }
}

#[tokio::test]
async fn every_title_is_listed_though_result_pages_of_the_store_are_short() {
    let (world, _) = World::over(AlteredStore::with_short_pages).await;
    let mut expected = BTreeSet::new();
    for index in 0..300 {
        let page = page(&format!("Page {index}"));
        world.put_revision(&page, 1, &[("html", "x")]).await.unwrap();
        expected.insert(page.title.to_string());
    }
    let expected: Vec<_> = expected.into_iter().collect();
    for limit in [1, 50, 500] {
        assert_eq!(titles(&world, &page("x"), limit).await, expected, "{limit}");
    }
    world.assert_consistent().await;
}

#[tokio::test]
async fn every_title_is_listed_once_in_byte_order() {
    let world = World::new().await;
    let mut expected = BTreeSet::new();
    let count = 2000 / every_point_or_nth(4);
    for index in 0..count {
        let title = match index % 4 {
            0 => format!("Page {index}"),
            1 => format!("Straße/{index}"),
            2 => format!("{}{index}", "long_".repeat(150)),
            _ => format!("{index:05}"),
        };
        let page = page(&title);
        let written = match index % 2 {
            0 => world.put_revision(&page, 1, &[("html", "x")]).await.map(drop),
            _ => {
                let revision = world.imported_revision(&page, 1, at(-1), b"x").await;
                world.buckets.import(&page, vec![revision]).await.map(drop)
            }
        };
        written.unwrap();
        expected.insert(page.title.to_string());
    }
    let expected: Vec<_> = expected.into_iter().collect();
    for limit in [11, count / 4, count - 1, count, count + 1, 5000] {
        assert_eq!(titles(&world, &page("x"), limit).await, expected, "{limit}");
    }
    let middle = Title::new(&expected[count / 2]).unwrap();
    let (domain, bucket) = (page("x").domain, BucketName::page());
    let part = world.buckets.catalog().titles(&domain, &bucket, Some(&middle), 1).await.unwrap();
    assert_eq!(part.items[0].as_str(), expected[count / 2 + 1]);
}

async fn domains_and_buckets_are_separate(world: World) {
    let catalog = world.buckets.catalog();
    assert_eq!(catalog.domains().await.unwrap(), []);
    let other = Page { bucket: BucketName::new("drafts").unwrap(), ..page("B") };
    for page in [page("A"), other.clone(), page_of("dewiki", "C")] {
        world.put_revision(&page, 1, &[("html", "x")]).await.unwrap();
    }
    let names = ["dewiki", "enwiki"].map(|name| DomainName::new(name).unwrap());
    assert_eq!(catalog.domains().await.unwrap(), names);
    assert_eq!(titles(&world, &page("x"), 10).await, ["A"]);
    assert_eq!(titles(&world, &other, 10).await, ["B"]);
    assert_eq!(titles(&world, &page_of("dewiki", "x"), 10).await, ["C"]);
    assert_eq!(titles(&world, &page_of("frwiki", "x"), 10).await, Vec::<String>::new());
}

/// A title is written before its page, so a page never exists without its title.
#[tokio::test]
async fn stored_page_is_listed_after_any_fault() {
    for fault in
        [Fault::Before, Fault::After, Fault::Midway { batches: 0b01 }, Fault::Midway { batches: 0b10 }]
    {
        let (world, store) = World::over(|store| Faulty::new(store, Plan::empty())).await;
        let page = page("A");
        store.set_plan(Plan::empty().on(Call::Write, 1, fault.clone()));
        world.put_revision(&page, 1, &[("html", "x")]).await.unwrap_err();
        world.assert_consistent().await;
        world.put_revision(&page, 1, &[("html", "x")]).await.unwrap();
        assert_eq!(titles(&world, &page, 10).await, ["A"], "{fault:?}");
        assert_eq!(world.buckets.catalog().domains().await.unwrap(), std::slice::from_ref(&page.domain));
        world.assert_consistent().await;
    }
}

fn site(name: &str) -> SiteInfo {
    SiteInfo {
        name: Some(name.to_owned()),
        database: None,
        base: None,
        generator: None,
        case: None,
        namespaces: Vec::new(),
        language: None,
        as_of: None,
    }
}

async fn last_written_site_info_wins_whatever_the_clock_shows(world: World) {
    let (catalog, domain) = (world.buckets.catalog(), page("x").domain);
    assert_eq!(catalog.site_info(&domain).await.unwrap(), None);
    for (name, seconds) in [("one", 0), ("two", 0), ("three", -100), ("four", 5)] {
        world.clock.set(at(seconds));
        catalog.put_site_info(&domain, &site(name)).await.unwrap();
        let (info, _) = catalog.site_info(&domain).await.unwrap().unwrap();
        assert_eq!(info, site(name));
    }
    assert_eq!(catalog.domains().await.unwrap(), [domain]);
}

fn info(as_of: i64, page_id: i64, redirect: Option<&str>) -> PageInfo {
    PageInfo {
        as_of: rev(as_of),
        page_id: Some(page_id),
        namespace: Some(0),
        redirect: redirect.map(str::to_owned),
        restrictions: None,
    }
}

proptest! {
    #![proptest_config(crate::support::cases(32))]

    #[test]
    fn page_infos_in_any_order_give_the_same_result(order in Just(vec![0, 1, 2, 3, 4]).prop_shuffle()) {
        block_on(async {
            let infos =
                [info(5, 1, None), info(9, 1, Some("B")), info(9, 1, None), info(7, 1, Some("C")), info(9, 1, Some("A"))];
            let (world, page) = (World::new().await, page("A"));
            for index in order {
                // The clock may go back between two imports.
                world.clock.set(at(-(index as i64)));
                world.buckets.catalog().put_page_info(&page, &infos[index]).await.unwrap();
            }
            assert_eq!(world.buckets.catalog().page_info(&page).await.unwrap(), Some(infos[1].clone()));
        });
    }
}

#[tokio::test]
async fn title_without_a_page_is_not_counted() {
    let (world, store) = World::over(|store| Faulty::new(store, Plan::empty())).await;
    let (there, never) = (page("There"), page("Never"));
    world.put_revision(&there, 1, &[("html", "x")]).await.unwrap();
    store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Midway { batches: u64::MAX }));
    world.put_revision(&never, 1, &[("html", "x")]).await.unwrap_err();
    world.pass(Duration::from_secs(1));
    assert_eq!(titles(&world, &there, 10).await, ["Never", "There"]);
    let stats =
        rashomon_pages::operations::stats(&world.buckets, &there.domain, &mut |_| {}).await.unwrap().page;
    assert_eq!((stats.pages, stats.revisions, stats.renders), (1, 1, 1));
    assert_eq!(world.latest_rev(&never).await, None);
}
