//! Tests of bodies that are stored and sent in chunks.

use std::{num::NonZeroUsize, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use rashomon_pages::operations::EraseOptions;
use rashomon_pages::{BucketName, DomainName, Page, Revision, RevisionStore, Settings, Title, schemas};
use rashomon_tables::TableStore as _;

use crate::world::{PAGE, World};

/// A body of more than three chunks, all different. A third of the bytes is pseudo-random, and the others are equal.
fn large_body() -> Vec<u8> {
    let mut state = 7_u64;
    (0..3_500_000_u32)
        .map(|index| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(u64::from(index));
            if index % 3 == 0 { (state >> 60) as u8 } else { b'x' }
        })
        .collect()
}

#[tokio::test]
async fn large_body_is_read_whole_in_part_and_compressed() {
    let world = World::new().await;
    let large = large_body();
    let head =
        b"--b\r\nContent-ID: <_rev>\r\n\r\n6\r\n--b\r\nContent-ID: <html>\r\nContent-Type: a/b\r\n\r\n";
    let body = [&head[..], &large, b"\r\n--b--"].concat();
    let pieces: Vec<_> =
        body.chunks(70_000).map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece))).collect();
    let headers = [("content-type", "multipart/related; boundary=b")];
    let body = Body::from_stream(stream::iter(pieces));
    let written = world.request("POST", &format!("{PAGE}?rev/"), &headers, body).await.expect(201);
    let tid = written.json()["tid"].as_str().unwrap().to_owned();

    for query in ["rev/latest/html".to_owned(), format!("rev/{tid}/html")] {
        let url = format!("{PAGE}?{query}");
        let whole = world.get(&url).await.expect(200);
        assert!(whole.body == large);
        assert_eq!(whole.header("content-length"), large.len().to_string());
        let head = world.request("HEAD", &url, &[], "").await.expect(200);
        assert_eq!(head.header("content-length"), large.len().to_string());

        let compressed = world.get_with(&url, &[("accept-encoding", "zstd")]).await.expect(200);
        assert_eq!(compressed.header("content-encoding"), "zstd");
        assert!(zstd::decode_all(&compressed.body[..]).unwrap() == large);

        let last = large.len() - 1;
        for (first, end) in [
            (0, 0),
            (999_999, 1_000_000),
            (1_000_000, 1_999_999),
            (5, 2_000_001),
            (3_000_000, last),
            (last, last),
        ] {
            let range = format!("bytes={first}-{end}");
            let part =
                world.get_with(&url, &[("range", &range), ("accept-encoding", "zstd")]).await.expect(206);
            assert!(part.body == large[first..=end], "{range}");
            assert_eq!(part.header("content-range"), format!("{}/{}", range.replace('=', " "), large.len()));
        }
        world.get_with(&url, &[("range", "bytes=3500000-")]).await.expect(416);
    }
    let again = world
        .request("PUT", &format!("{PAGE}?rev/{tid}/html"), &[("content-type", "a/b")], large.clone())
        .await;
    again.expect(200);
    assert!(world.get(&format!("{PAGE}?rev/{tid}/html")).await.body == large);
}

/// Erased content is not stored again, not even while the request is being refused.
#[tokio::test]
async fn body_for_an_erased_revision_is_not_stored() {
    let world = World::new().await;
    world.revision("_rev=6&html=one").await;
    let tid = world.revision("_rev=7&html=two").await;
    let page = Page {
        domain: DomainName::new("enwiki").unwrap(),
        bucket: BucketName::page(),
        title: Title::new("Main_Page").unwrap(),
    };
    // The revision is erased as by another process on the same store.
    let (store, clock) = (Arc::clone(&world.store), Arc::clone(&world.clock));
    let buckets = RevisionStore::open(store, clock, Settings::default(), 9).await.unwrap();
    rashomon_pages::operations::erase(&buckets, &page, Revision::new(7).unwrap(), EraseOptions::default())
        .await
        .unwrap();
    let put = world
        .request("PUT", &format!("{PAGE}?rev/{tid}/html"), &[("content-type", "a/b")], large_body())
        .await;
    assert_eq!(put.expect(410).json()["type"], "urn:rashomon:problem:erased");
    let form = [
        &b"--b\r\nContent-Disposition: form-data; name=\"html\"\r\n\r\n"[..],
        &large_body(),
        b"\r\n--b--\r\n",
    ];
    for base in ["7", &tid] {
        let headers = [("content-type", "multipart/form-data; boundary=b")];
        let post = world.request("POST", &format!("{PAGE}?rev/{base}/"), &headers, form.concat()).await;
        assert_eq!(post.expect(410).json()["type"], "urn:rashomon:problem:erased");
    }
    let chunks = world.store.partitions(&schemas::CHUNKS, None, NonZeroUsize::MIN).await.unwrap();
    assert!(chunks.items.is_empty(), "{chunks:?}");
}
