//! Conditional writes: no other write happens between the read of the latest revision and the write.

use rashomon_pages::{Error, NewRevision, Parent};
use rashomon_tables::{Call, Fault, Faulty, Gate, Plan};

use crate::support::{World, at, page, rev};

/// A conditional write has found that its condition holds, and is about to happen. Another write that starts
/// meanwhile waits for the conditional write.
#[tokio::test]
async fn condition_still_holds_when_the_write_happens() {
    for other in ["revision", "import"] {
        let (world, store) = World::over(|store| Faulty::new(store, Plan::empty())).await;
        let page = page("Main_Page");
        world.put_revision(&page, 5, &[("html", "5")]).await.unwrap();
        let gate = Gate::new();
        store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone())));

        let new = world.new_revision(&page, 7, &[("html", "7")]).await;
        let new = NewRevision { if_latest: Some(Parent::Revision(rev(5))), ..new };
        let (buckets, its_page) = (world.buckets.clone(), page.clone());
        let conditional = tokio::spawn(async move { buckets.put_revision(&its_page, new).await });
        gate.reached().await;

        let (buckets, its_page) = (world.buckets.clone(), page.clone());
        let (posted, imported) = (
            world.new_revision(&page, 6, &[("html", "6")]).await,
            world.imported_revision(&page, 6, at(-10), b"6").await,
        );
        let second = tokio::spawn(async move {
            match other {
                "revision" => buckets.put_revision(&its_page, posted).await.map(drop),
                _ => buckets.import(&its_page, vec![imported]).await.map(drop),
            }
        });
        let early = tokio::time::timeout(std::time::Duration::from_millis(50), async {
            while world.latest_rev(&page).await == Some(5) {
                tokio::task::yield_now().await;
            }
        });
        let visible_early = early.await.is_ok();
        gate.open();
        let conditional = conditional.await.unwrap();
        second.await.unwrap().unwrap();
        assert!(
            !visible_early || matches!(conditional, Err(Error::NotLatest { .. })),
            "{other}: revision 6 was visible before revision 7 was written on the condition that 5 is the latest"
        );
    }
}
