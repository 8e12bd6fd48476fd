//! RFC 7089: the timemap lists exactly the mementos that the timegate selects at any second.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rashomon_clock::Timestamp;
use rashomon_pages::{
    Error, ImportRender, ImportRevision, MementosAround, Missing, Page, PropertyVersion, Tid,
};

use crate::support::{START, World, at, block_on, name, page, record, rev};

/// Revisions get times within this number of seconds from [`START`]. Renders get times from 2 s before START to 3 s
/// after the last of these seconds.
const SECONDS: i64 = 12;

/// A revision: its time in tenths of a second, and for each render its time and whether it has html. A render
/// without html has the property `meta`.
type Edit = (i64, Vec<(i64, bool)>);

fn tenths(tenths: i64) -> Timestamp {
    Timestamp::from_micros(START.as_micros() + tenths * 100_000)
}

async fn import(world: &World, page: &Page, edits: &[Edit]) {
    let mut revisions = Vec::new();
    for (index, (time, renders)) in edits.iter().enumerate() {
        let number = i64::try_from(index).unwrap() + 1;
        let mut revision = ImportRevision {
            record: record(number, tenths(*time)),
            // Only some revisions have wikitext.
            properties: match number % 3 {
                0 => Vec::new(),
                _ => world.properties_without_rewrite_time(page, &[("wikitext", "text")]).await,
            },
            renders: Vec::new(),
        };
        for (at, has_html) in renders {
            let property = if *has_html { "html" } else { "meta" };
            revision.renders.push(ImportRender {
                tid: Tid::imported(page, rev(number), tenths(*at)),
                properties: world.properties_without_rewrite_time(page, &[(property, "x")]).await,
            });
        }
        revisions.push(revision);
    }
    world.buckets.import(page, revisions).await.unwrap();
}

/// Computes the expected memento at the end of a second directly from the definition. Only revisions and
/// renders that have the property count. The memento is of the revision with the latest time up to that second.
/// Of several revisions with this time, it is the one with the highest number. The render is the newest render
/// of that revision up to the second, or the oldest render if all are later. A second before the first revision
/// counts as the second of the first revision.
fn expected_memento(edits: &[Edit], property: &str, second: i64) -> Option<(i64, Tid)> {
    let page = page("Main_Page");
    let states: Vec<_> = (1_i64..)
        .zip(edits)
        .filter(|(number, _)| property == "html" || number % 3 != 0)
        .map(|(number, (time, renders))| {
            let renders = renders.iter().filter(|(_, has_html)| property == "wikitext" || *has_html);
            let renders: BTreeMap<_, _> =
                renders.map(|(at, _)| (Tid::imported(&page, rev(number), tenths(*at)), *at)).collect();
            ((time, number), renders)
        })
        .filter(|(_, renders)| !renders.is_empty())
        .collect();
    let first = states.iter().map(|((time, _), _)| time.div_euclid(10)).min()?;
    let second = second.max(first);
    let so_far = |at: i64| at.div_euclid(10) <= second;
    let ((_, number), renders) =
        states.iter().filter(|((time, _), _)| so_far(**time)).max_by_key(|(key, _)| *key)?;
    let newest = renders.iter().rev().find(|(_, at)| so_far(**at));
    newest.or_else(|| renders.first_key_value()).map(|(tid, _)| (*number, *tid))
}

/// Reads all result pages of the timemap of a property.
async fn all_mementos(world: &World, page: &Page, property: &str, limit: usize) -> Vec<PropertyVersion> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let part = world.buckets.mementos(page, &name(property), after, limit).await.unwrap();
        assert!(part.items.len() <= limit);
        all.extend(part.items);
        after = part.next;
        if after.is_none() {
            return all;
        }
    }
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let renders = proptest::collection::btree_map(-20..(SECONDS + 3) * 10, any::<bool>(), 1..6);
    let edit = (0..SECONDS * 10, renders.prop_map(|renders| renders.into_iter().collect()));
    proptest::collection::vec(edit, 1..8)
}

proptest! {
    #![proptest_config(crate::support::cases(200))]

    #[test]
    fn timemap_lists_exactly_what_the_timegate_selects(edits in edits(), limit in 1..5_usize) {
        block_on(async {
            let (world, page) = (World::new().await, page("Main_Page"));
            import(&world, &page, &edits).await;
            for property in ["html", "wikitext"] {
                let mut expected = Vec::new();
                for second in -5..SECONDS + 5 {
                    let selected = expected_memento(&edits, property, second);
                    for part_of_a_second in [0, 999_999] {
                        let time = Timestamp::from_micros(at(second).as_micros() + part_of_a_second);
                        let memento = world.buckets.memento(&page, &name(property), Some(time)).await;
                        let memento = memento.ok().map(|version| (version.rev.get(), version.tid));
                        assert_eq!(memento, selected, "{property} at {second}");
                    }
                    if expected.last() != selected.as_ref() {
                        expected.extend(selected);
                    }
                }
                if expected.is_empty() {
                    let none = world.buckets.mementos(&page, &name(property), None, limit).await;
                    assert!(matches!(none, Err(Error::NotFound(Missing::PropertyOfAllRevisions))), "{none:?}");
                    continue;
                }
                let listed = all_mementos(&world, &page, property, limit).await;
                for (index, selected) in listed.iter().enumerate() {
                    let around = world.buckets.mementos_around(&page, &name(property), selected).await.unwrap();
                    let expected = MementosAround {
                        first: listed.first().copied(),
                        previous: index.checked_sub(1).map(|before| listed[before]),
                        next: listed.get(index + 1).copied(),
                        last: listed.last().copied(),
                    };
                    assert_eq!(around, expected, "{property} at {index}");
                }
                let listed: Vec<_> = listed.iter().map(|version| (version.rev.get(), version.tid)).collect();
                assert_eq!(listed, expected, "{property}");
            }
        });
    }
}

#[tokio::test]
async fn missing_memento_is_an_error_with_its_reason() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let html = name("html");
    let nowhere = world.buckets.memento(&page, &html, None).await;
    assert!(matches!(nowhere, Err(Error::NotFound(Missing::Page))), "{nowhere:?}");
    let nowhere = world.buckets.mementos(&page, &html, None, 10).await;
    assert!(matches!(nowhere, Err(Error::NotFound(Missing::Page))), "{nowhere:?}");
    world.put_revision(&page, 5, &[("meta", "{}")]).await.unwrap();
    for time in [None, Some(at(5)), Some(Timestamp::MIN), Some(Timestamp::MAX)] {
        let none = world.buckets.memento(&page, &html, time).await;
        assert!(matches!(none, Err(Error::NotFound(Missing::PropertyOfAllRevisions))), "{none:?}");
        assert_eq!(world.buckets.memento(&page, &name("meta"), time).await.unwrap().rev, rev(5));
    }
}

/// The latest revision is the one with the highest number. If that revision lacks the property, the timegate
/// selects the revision with the latest time.
#[tokio::test]
async fn timegate_without_a_time_selects_the_latest() {
    let (world, page) = (World::new().await, page("Main_Page"));
    for (number, seconds) in [(9, -90), (4, -10), (5, -50)] {
        world.put_revision_at(&page, number, at(seconds), &[("html", number.to_string())]).await.unwrap();
    }
    let selected = async || world.buckets.memento(&page, &name("html"), None).await.unwrap();
    assert_eq!(selected().await, world.buckets.latest(&page, &name("html")).await.unwrap().version);
    assert_eq!(selected().await.rev, rev(9));
    world.put_revision_at(&page, 10, at(-95), &[("meta", "{}")]).await.unwrap();
    assert_eq!(selected().await.rev, rev(4));
}

#[tokio::test]
async fn memento_names_the_version_that_is_read() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let tid = world.put_revision(&page, 5, &[("html", "one"), ("wikitext", "text")]).await.unwrap().tid;
    for property in ["html", "wikitext"] {
        let version = world.rewrite(&page, tid, property, "two").await.unwrap();
        assert_eq!(world.buckets.memento(&page, &name(property), None).await.unwrap(), version);
        assert_eq!(all_mementos(&world, &page, property, 10).await, [version]);
        assert_eq!(world.buckets.property(&page, tid, &name(property)).await.unwrap().version, version);
    }
}
