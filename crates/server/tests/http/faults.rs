//! Tests with stores that fail or are slow.

use axum::body::Body;
use http::Request;
use rashomon_tables::{Call, Fault, Gate, Outage, Plan, Rates};
use tower::ServiceExt;

use crate::world::{Answer, PAGE, World};

fn check_unavailable(answer: &Answer) {
    assert_eq!(answer.json()["type"], "urn:rashomon:problem:unavailable");
    assert!(answer.header("retry-after").parse::<u32>().unwrap() > 0);
    // The store's own message is only logged.
    assert!(!answer.text().contains("planned fault"), "{}", answer.text());
}

#[tokio::test]
async fn unavailable_store_is_answered_with_503() {
    let world = World::new().await;
    let tid = world.revision("_rev=1&html=x").await;
    world.store.set_plan(Plan::seeded(1, Rates { before: 1000, ..Rates::default() }));
    for query in
        ["rev/", "rev/latest/", "rev/1/", "rev/1/html", "rev/2013-02-23T22:23:24Z/html", "timemap/html"]
    {
        check_unavailable(&world.get(&format!("{PAGE}?{query}")).await.expect(503));
    }
    check_unavailable(&world.get(&format!("{PAGE}?rev/{tid}/html")).await.expect(503));
    check_unavailable(&world.get("/readyz").await.expect(503));
    check_unavailable(&world.post(&format!("{PAGE}?rev/"), "_rev=2&html=y").await.expect(503));
    check_unavailable(&world.request("PUT", &format!("{PAGE}?rev/{tid}/html"), &[], "y").await.expect(503));
    // The process is still reported as alive.
    world.get("/healthz").await.expect(200);
    world.store.set_plan(Plan::empty());
    world.post(&format!("{PAGE}?rev/"), "_rev=2&html=y").await.expect(201);
}

#[tokio::test]
async fn outage_of_a_disk_is_named_with_its_path() {
    let world = World::new().await;
    let tid = world.revision("_rev=1&html=x").await;
    let (path, detail) =
        (std::path::PathBuf::from("/data/rashomon.sqlite"), "words of the system".to_owned());
    let outages = [
        (
            Outage::StorageFull { path: path.clone(), detail: detail.clone() },
            507,
            "insufficient-storage",
            "full",
        ),
        (Outage::ReadOnly { path: path.clone(), detail: detail.clone() }, 503, "storage-fault", "read-only"),
        (Outage::Io { path, detail: detail.clone() }, 503, "storage-fault", "cannot read or write"),
        (
            Outage::Nodes { addresses: "10.0.0.7:9042".to_owned(), detail },
            503,
            "unavailable",
            "10.0.0.7:9042",
        ),
    ];
    for (outage, status, kind, word) in outages {
        let is_caused_by_disk = outage.is_caused_by_disk();
        world.store.set_plan(Plan::seeded(1, Rates { before: 1000, ..Rates::default() }));
        world.store.set_outage(outage);
        for answer in [
            world.post(&format!("{PAGE}?rev/"), "_rev=2&html=y").await,
            world.request("PUT", &format!("{PAGE}?rev/{tid}/html"), &[], "y").await,
        ] {
            let answer = answer.expect(status);
            assert_eq!(answer.json()["type"], format!("urn:rashomon:problem:{kind}"));
            assert!(answer.header("retry-after").parse::<u32>().unwrap() > 0);
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(word), "{detail}");
            assert_eq!(detail.contains("/data/rashomon.sqlite"), is_caused_by_disk, "{detail}");
        }
        let ready = world.get("/readyz").await.expect(503).json();
        assert!(ready["detail"].as_str().unwrap().contains(word), "{ready}");
    }
    world.store.set_plan(Plan::empty());
    world.get("/readyz").await.expect(200);
}

#[tokio::test]
async fn write_continues_after_its_client_has_gone() {
    let world = World::new().await;
    let gate = Gate::new();
    world.store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone())));
    let request = Request::post(format!("{PAGE}?rev/"))
        .header("host", "localhost")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from("_rev=1&html=x"))
        .unwrap();
    let client = tokio::spawn(world.router.clone().oneshot(request));
    gate.reached().await;
    client.abort();
    assert!(client.await.is_err(), "the client went away before it was answered");
    gate.open();
    world.api.finish().await;
    assert_eq!(world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200).text(), "x");
}

mod in_memory {
    use super::*;

    /// Runs in memory only: the properties of a store on a cluster are not cached.
    #[tokio::test]
    async fn cached_properties_are_served_while_the_store_does_not_answer() {
        let world = World::in_memory().await;
        world.revision("_rev=1&html=x").await;
        let url = format!("{PAGE}?rev/latest/html");
        world.get(&url).await.expect(200);
        world.store.set_plan(Plan::seeded(1, Rates { before: 1000, ..Rates::default() }));
        world.get(&url).await.expect(200);
    }

    /// Runs in memory only: this runtime advances its timers when it is idle, and would not wait for a node.
    #[tokio::test(start_paused = true)]
    async fn read_of_a_slow_store_times_out() {
        let world = World::in_memory().await;
        world.revision("_rev=1&html=x").await;
        let gate = Gate::new();
        world.store.set_plan(Plan::empty().on(Call::Scan, 1, Fault::Pause(gate)));
        check_unavailable(&world.get(&format!("{PAGE}?rev/")).await.expect(503));
    }
}
