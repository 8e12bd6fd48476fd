//! The cost of a result page of the list of domains, and of a lookup of one domain.

use rashomon_pages::{DomainName, SiteInfo};
use rashomon_tables::Counting;

use crate::{bounded_reads::cost, support::World};

#[tokio::test]
async fn domain_reads_cost_the_same_for_any_number_of_domains() {
    let (world, store) = World::over_memory(Counting::new).await;
    let catalog = world.buckets.catalog();
    let domain = |number| DomainName::new(&format!("d{number:05}")).unwrap();
    let site = SiteInfo {
        name: None,
        database: None,
        base: None,
        generator: None,
        case: None,
        namespaces: Vec::new(),
        language: None,
        as_of: None,
    };
    for number in 0..3_000 {
        catalog.put_site_info(&domain(number), &site).await.unwrap();
    }
    for (known, number) in [(true, 2_999), (false, 3_000)] {
        let (found, calls, rows) = cost(&store, catalog.has_domain(&domain(number))).await;
        assert_eq!((found.unwrap(), calls), (known, 1));
        assert!(rows <= 1, "{rows} rows");
    }
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (listing, calls, rows) = cost(&store, catalog.domain_list(after.as_ref(), 100)).await;
        let listing = listing.unwrap();
        assert!(calls == 1 && rows <= 101 && listing.items.len() == 100, "{calls} calls, {rows} rows");
        all.extend(listing.items);
        after = listing.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(all, (0..3_000).map(domain).collect::<Vec<_>>());
    assert_eq!(catalog.domains().await.unwrap(), all);
    let (ping, _, rows) = cost(&store, world.buckets.ping()).await;
    ping.unwrap();
    assert!(rows <= 2, "{rows} rows");
}
