//! Bodies of every size (in a row, in chunks, too large), and the limits of a batch.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use rashomon_pages::{Body, Definition, Error, RenderBase, Settings, Versions, schemas};

use crate::support::{World, at, bytes, name, noise, page, rev};

crate::support::on_every_store![bodies_around_the_size_of_a_row_are_read_back];

/// The maximum number of bytes of a body that is stored in a row.
const MAX_INLINE_BYTES: usize = 1_000_000;

/// The default limit of the size of a property.
const MAX_PROPERTY_BYTES: usize = 64 << 20;

async fn bodies_around_the_size_of_a_row_are_read_back(world: World) {
    let page = page("Main_Page");
    for (index, size) in [
        0,
        1,
        MAX_INLINE_BYTES - 1,
        MAX_INLINE_BYTES,
        MAX_INLINE_BYTES + 1,
        2 * MAX_INLINE_BYTES,
        2 * MAX_INLINE_BYTES + 1,
    ]
    .into_iter()
    .enumerate()
    {
        let number = i64::try_from(index).unwrap() + 1;
        let (random, zeros) = (noise(1, size), vec![0; size]);
        let bodies = [("html", &random), ("meta", &zeros), ("wikitext", &random), ("slot-x", &zeros)];
        let tid = world.put_revision(&page, number, &bodies).await.unwrap().tid;
        for (property, expected) in bodies {
            let found = world.buckets.property(&page, tid, &name(property)).await.unwrap();
            assert!(bytes(&found).await == *expected, "{property} of {size}");
            assert_eq!(found.info.size, size as u64);
            assert_eq!(
                matches!(found.body, Body::Chunked(_)),
                size > MAX_INLINE_BYTES,
                "{property} of {size}"
            );
        }
    }
    world.assert_consistent().await;
}

#[tokio::test]
async fn compressed_form_decompresses_to_the_same_body() {
    let (world, page) = (World::new().await, page("Main_Page"));
    for (number, size) in [(1, 5_000), (2, 2_500_000)] {
        let body = b"some text that repeats itself, ".iter().copied().cycle().take(size).collect::<Vec<_>>();
        let tid = world.put_revision(&page, number, &[("html", &body)]).await.unwrap().tid;
        let compressed = match world.buckets.property(&page, tid, &name("html")).await.unwrap().body {
            Body::Inline(body) => body.zstd().expect("the body is smaller when compressed").to_vec(),
            Body::Chunked(body) => {
                assert_eq!((body.chunk_size(), body.chunks()), (MAX_INLINE_BYTES as u64, 3));
                let mut frames = Vec::new();
                for index in 0..body.chunks() {
                    frames.extend_from_slice(&body.chunk(index).await.unwrap().zstd);
                }
                assert!(body.chunk(3).await.is_err(), "the body has three chunks");
                frames
            }
        };
        assert!(compressed.len() < size / 10);
        assert!(zstd::decode_all(&compressed[..]).unwrap() == body);
    }
}

#[tokio::test]
async fn body_may_be_as_large_as_its_limit_and_no_larger() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let large = noise(1, MAX_PROPERTY_BYTES);
    let tid = world.put_revision(&page, 5, &[("html", &large)]).await.unwrap().tid;
    assert!(world.read(&page, tid, "html").await == large);

    let mut sink = world.buckets.stage(&page, &name("html"));
    // The body is received in pieces.
    for piece in large.chunks(MAX_PROPERTY_BYTES / 7) {
        sink.write(piece).await.unwrap();
    }
    match sink.write(b"x").await {
        Err(Error::TooLarge { property, limit }) => {
            assert_eq!((property, limit), (name("html"), MAX_PROPERTY_BYTES as u64));
        }
        other => panic!("{other:?}"),
    }
    drop(sink);
    assert_eq!(world.assert_consistent().await.bytes, MAX_PROPERTY_BYTES as u64);
    let age = std::time::Duration::from_secs(1);
    world.pass(age);
    assert_eq!(
        world.buckets.maintenance().collect_orphans(age).await.unwrap(),
        1,
        "the received part is collected"
    );
}

#[tokio::test]
async fn definition_sets_the_maximum_size_of_a_property() {
    let mut settings = Settings::default();
    let definition =
        Definition { content_type: "text/plain".to_owned(), versions: Versions::Revision, max_size: 10 };
    settings.definitions.define(name("note"), definition);
    let (world, _) = World::with(|store| store, settings).await;
    let page = page("Main_Page");
    let tid = world.put_revision(&page, 5, &[("note", "ten bytes!")]).await.unwrap().tid;
    let info = &world.buckets.render(&page, tid).await.unwrap().properties[&name("note")];
    assert_eq!(info.headers.content_type, "text/plain");
    let result = world.buckets.stage_bytes(&page, &name("note"), b"ten bytes!!").await;
    assert!(matches!(result, Err(Error::TooLarge { limit: 10, .. })), "{result:?}");
}

/// Each property is small enough for a row. Together they are much too large for one batch.
#[tokio::test]
async fn many_large_properties_fit_into_one_write() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let bodies: Vec<_> = (0..64).map(|index| (format!("p{index}"), noise(index, 900_000))).collect();
    let bodies: Vec<_> = bodies.iter().map(|(name, body)| (name.as_str(), body)).collect();
    let first = world.put_revision(&page, 5, &bodies).await.unwrap().tid;
    let second = world.put_render(&page, 5, &[("p3", "small")]).await.unwrap().tid;
    world.rewrite(&page, second, "p3", noise(99, 900_000)).await.unwrap();
    for (property, body) in &bodies {
        assert!(world.read(&page, first, property).await == **body);
        let expected = if *property == "p3" { &noise(99, 900_000) } else { *body };
        assert!(world.read(&page, second, property).await == *expected);
    }
    let chunked = world.rows(&schemas::CHUNK_REFERENCES).await.len();
    assert!(
        (64..128).contains(&chunked),
        "bodies that fit into the batch stay in rows; of 128, {chunked} are in chunks"
    );

    let imported = crate::support::page("Imported");
    let properties = world.properties_without_rewrite_time(&imported, &bodies).await;
    let mut revision = world.imported_revision(&imported, 5, at(-9), b"text").await;
    revision.renders[0].properties = properties;
    world.buckets.import(&imported, vec![revision]).await.unwrap();
    world.assert_consistent().await;
}

/// Headers are stored in the index rows too, where they have a limit. A revision whose headers exceed it is
/// refused. A render is refused too if it takes over so many properties that their headers do not fit.
#[tokio::test]
async fn too_many_headers_for_an_index_row_are_refused() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let bodies: Vec<_> = (0..64).map(|index| (format!("p{index}"), noise(index, 56_000))).collect();
    let bodies: Vec<_> = bodies.iter().map(|(name, body)| (name.as_str(), body)).collect();
    for size in [15 << 10, 20 << 10] {
        let mut new = world.new_revision(&page, 5, &bodies).await;
        for property in &mut new.properties {
            property.other_headers.insert("x-large".to_owned(), "x".repeat(size));
        }
        let result = world.buckets.put_revision(&page, new).await;
        assert!(matches!(result, Err(Error::Invalid(_))), "{result:?}");
    }
    assert_eq!(world.latest_rev(&page).await, None);

    world.put_revision(&page, 5, &[("html", "x")]).await.unwrap();
    let refused = async || {
        for round in 0..100 {
            let names: Vec<_> = (0..20).map(|index| format!("p{index}-{round}")).collect();
            let bodies: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
            let mut new = world.new_render(&page, RenderBase::Revision(rev(5)), &bodies).await;
            for property in &mut new.properties {
                property.other_headers.insert("x-long".to_owned(), "x".repeat(1000));
            }
            if let Err(error) = world.buckets.put_render(&page, new).await {
                return Some(error);
            }
        }
        None
    };
    let error = refused().await;
    assert!(matches!(error, Some(Error::Invalid(_))), "{error:?}");
    world.assert_consistent().await;
}
