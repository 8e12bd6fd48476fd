//! Answers that break off, because the rest of a stored body cannot be read.

use std::num::NonZeroUsize;

use rashomon_clock::Clock as _;
use rashomon_pages::schemas::CHUNKS;
use rashomon_tables::{Batch, Scan, TableStore as _};

use super::{get, problem, statuses};
use crate::world::{PAGE, World};

/// The answer is the one to a single request whose first chunk is damaged. A body of 2.5 MB has three chunks.
#[tokio::test]
async fn answer_that_breaks_off_at_a_damaged_chunk_is_corrupt() {
    for damaged in 0..3 {
        let world = World::new().await;
        let tid = world.revision("_rev=1&html=one").await;
        let url = format!("{PAGE}?rev/{tid}/html");
        let entry = "/v1/enwiki/files/a";
        let bucket = [("content-type", "application/json")];
        world.request("PUT", "/v1/enwiki/files", &bucket, r#"{"type":"blob"}"#).await.expect(201);
        let large: Vec<u8> = (0..2_500_000_u32).map(|index| (index % 251) as u8).collect();
        world.request("PUT", &url, &[("content-type", "a/b")], large.clone()).await.expect(200);
        world.request("PUT", entry, &[("content-type", "a/b")], large).await.expect(201);
        let ten = NonZeroUsize::new(10).unwrap();
        for partition in world.store.partitions(&CHUNKS, None, ten).await.unwrap().items {
            let rows = world.store.scan(&CHUNKS, Scan::new(partition.clone(), ten)).await.unwrap().items;
            let key = rows[damaged].key.clustering.clone();
            let mut batch = Batch::new(partition);
            world.clock.advance(std::time::Duration::from_secs(1));
            batch.put(
                &CHUNKS,
                key,
                vec![Some(bytes::Bytes::from_static(b"damaged").into())],
                world.clock.now(),
            );
            world.store.write(Vec::new(), batch).await.unwrap();
        }
        let answers =
            world.batch(&[get(&url), get(entry), get("/v1/enwiki/page/Nowhere?rev/latest/html")]).await;
        assert_eq!(statuses(&answers), [500, 500, 404], "chunk {damaged}: {answers:?}");
        for answer in &answers[..2] {
            assert_eq!(problem(answer)["type"], "urn:rashomon:problem:corrupt", "chunk {damaged}: {answer}");
        }
    }
}
