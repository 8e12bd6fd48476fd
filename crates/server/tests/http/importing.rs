//! Tests of imports over HTTP.

use std::{io::Write, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use rashomon_server::{ServeOptions, Settings};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::world::{Answer, IMPORT, PAGE, World};
use crate::socket::{STEP_TIMEOUT, Server};

/// An export of one page with three revisions.
fn export() -> String {
    let revision = |id: u32, text: &str| {
        format!(
            "<revision><id>{id}</id><timestamp>2013-01-0{id}T00:00:00Z</timestamp>\
             <contributor><username>Ann</username><id>7</id></contributor><comment>edit {id}</comment>\
             <model>wikitext</model><format>text/x-wiki</format><text bytes=\"{}\">{text}</text></revision>",
            text.len()
        )
    };
    format!(
        "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.11/\" version=\"0.11\" xml:lang=\"en\">\n\
         <page><title>Main Page</title><ns>0</ns><id>1</id>\n{}\n{}\n{}\n</page>\n</mediawiki>\n",
        revision(1, "one"),
        revision(2, "two"),
        revision(3, "three")
    )
}

fn lines(answer: &Answer) -> Vec<Value> {
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn import(world: &World, body: impl Into<Body>) -> Answer {
    world.request("POST", IMPORT, &[], body).await
}

#[tokio::test]
async fn export_is_imported_and_repeating_changes_nothing() {
    let world = World::new().await;
    let answer = import(&world, export()).await.expect(200);
    assert_eq!(answer.header("content-type"), "application/jsonl");
    assert_eq!(answer.header("cache-control"), "no-store");
    let lines_of_first = lines(&answer);
    assert_eq!(lines_of_first[0]["status"], "progress");
    assert_eq!(
        *lines_of_first.last().unwrap(),
        json!({
            "status": "done", "pages": 1, "revisions": 3, "created": 3, "unchanged": 0, "conflicts": 0,
            "left_out": 0, "mismatches": 0, "text_bytes": 11,
        })
    );
    let latest = world.get(&format!("{PAGE}?rev/latest/wikitext")).await.expect(200);
    assert_eq!(latest.text(), "three");
    let before = world.dump().await;
    let again = lines(&import(&world, export()).await.expect(200));
    assert_eq!(again.last().unwrap()["unchanged"], 3);
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn compressed_import_in_pieces_stores_the_same() {
    let world = World::new().await;
    import(&world, export()).await.expect(200);
    let expected = world.dump().await;
    let fresh = World::new().await;
    let compressed = zstd::encode_all(export().as_bytes(), 1).unwrap();
    let pieces: Vec<_> =
        compressed.chunks(50).map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece))).collect();
    import(&fresh, Body::from_stream(stream::iter(pieces))).await.expect(200);
    assert_eq!(fresh.dump().await, expected);
}

#[tokio::test]
async fn conflicting_revision_is_named() {
    let world = World::new().await;
    import(&world, export()).await.expect(200);
    let other = export().replace("two", "TWO").replace("<id>3</id>", "<id>none</id>");
    let answer = lines(&import(&world, other).await.expect(200));
    let last = answer.last().unwrap();
    assert_eq!(
        (&last["conflicts"], &last["left_out"], &last["unchanged"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(last["first_conflicts"][0]["rev"], 2);
    assert_eq!(last["first_conflicts"][0]["title"], "Main_Page");
    assert!(last["first_left_out"][0]["detail"].as_str().unwrap().contains("none"));
}

#[tokio::test]
async fn truncated_import_names_the_place() {
    let world = World::new().await;
    // The texts are so long that the first revisions are stored before the missing end is noticed.
    let padding = "x".repeat(3 << 20);
    let whole = export().replace("one", &padding).replace("two", &padding).replace("three", &padding);
    let half = &whole[..whole.len() - 1_000_000];
    let answer = lines(&import(&world, half.to_owned()).await.expect(200));
    let last = answer.last().unwrap();
    assert_eq!(last["status"], "failed");
    assert_eq!(last["created"], 2);
    assert_eq!((&last["place"]["page"], &last["place"]["revision"]), (&json!("Main Page"), &json!("3")));
    assert!(last["place"]["offset"].as_u64().unwrap() > 0);
    assert!(last["error"].as_str().unwrap().contains("revision 3"), "{last}");
    assert_eq!(world.get(&format!("{PAGE}?rev/")).await.json()["revisions"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn broken_page_is_an_error_or_is_skipped_on_request() {
    let world = World::new().await;
    let export = export();
    let broken = "<page><title>Broken</title>\n<revision><id>9</id></page>\n";
    let input = export.replace("<page>", &format!("{broken}<page>"));
    let refused = import(&world, input.clone()).await.expect(400).json();
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("page \"Broken\" that begins in line 2"), "{detail}");
    let url = |skip: &str| {
        let separator = if IMPORT.contains('?') { '&' } else { '?' };
        format!("{IMPORT}{separator}skip_broken={skip}")
    };
    world.request("POST", &url("maybe"), &[], input.clone()).await.expect(400);
    world.request("POST", &url("true&skip_broken=true"), &[], input.clone()).await.expect(400);
    let answer = lines(&world.request("POST", &url("true"), &[], input).await.expect(200));
    let last = answer.last().unwrap();
    assert_eq!((&last["status"], &last["created"], &last["broken"]), (&json!("done"), &json!(3), &json!(1)));
    assert_eq!(
        (&last["first_broken"][0]["title"], &last["first_broken"][0]["line"]),
        (&json!("Broken"), &json!(2))
    );
}

/// A proxy such as nginx stops sending the body once the answer has begun.
#[tokio::test]
async fn answer_waits_for_the_end_of_a_body_that_comes_through_a_proxy() {
    let padding = "x".repeat(3 << 20);
    let whole = export().replace("one", &padding).replace("two", &padding).replace("three", &padding);
    let (most, end) = whole.split_at(whole.len() - 1_000_000);
    let direct = ("accept", "*/*");
    let headers = [direct, ("via", "1.1 a"), ("forwarded", "for=a"), ("x-forwarded-for", "192.0.2.7")];
    for (name, value) in headers {
        for (end, status) in [(end, "done"), ("", "failed")] {
            let world = World::new().await;
            world.get(&format!("{PAGE}?rev/")).await.expect(404);
            let (sender, body) = tokio::sync::mpsc::channel::<std::io::Result<Bytes>>(1);
            let body = stream::unfold(body, async |mut body| Some((body.recv().await?, body)));
            let request = http::Request::post(IMPORT).header("host", "localhost").header(name, value);
            let request = request.body(Body::from_stream(body)).unwrap();
            let mut answer = tokio::spawn(tower::ServiceExt::oneshot(world.router.clone(), request));
            sender.send(Ok(Bytes::copy_from_slice(most.as_bytes()))).await.unwrap();
            let is_stored = async {
                while world.get(&format!("{PAGE}?rev/latest/wikitext")).await.status != 200 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(STEP_TIMEOUT, is_stored).await.expect("the first revision is stored");
            let patience = if name == direct.0 { STEP_TIMEOUT } else { Duration::from_millis(50) };
            let early = tokio::time::timeout(patience, &mut answer).await;
            assert_eq!(early.is_ok(), name == direct.0, "{name}");
            sender.send(Ok(Bytes::copy_from_slice(end.as_bytes()))).await.unwrap();
            drop(sender);
            let answer = match early {
                Ok(answer) => answer,
                Err(_) => answer.await,
            };
            let answer = answer.unwrap().unwrap();
            assert_eq!(answer.status(), 200, "{name}");
            let answer = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            let lines: Vec<Value> =
                answer.split(|byte| *byte == b'\n').flat_map(serde_json::from_slice).collect();
            assert_eq!(lines[0]["status"], "progress", "{name}");
            assert_eq!(lines.last().unwrap()["status"], status, "{name}");
        }
    }
}

#[tokio::test]
async fn other_documents_are_bad_requests() {
    let world = World::new().await;
    let before = world.dump().await;
    for body in ["", "hello", "<html></html>", "{\"not\": \"it\"}\n"] {
        import(&world, body).await.expect(400);
    }
    let broken = stream::iter([Ok(Bytes::from("<mediawiki>")), Err(std::io::Error::other("gone"))]);
    import(&world, Body::from_stream(broken)).await.expect(400);
    world.request("POST", "/v1/ENWIKI/import", &[], export()).await.expect(400);
    world.request("POST", "/v1/enwiki/import?dry-run", &[], export()).await.expect(400);
    // The methods of a bucket are refused as for other reserved names.
    for (method, status, allow) in [("GET", 400, ""), ("HEAD", 400, ""), ("PATCH", 405, "POST, OPTIONS")] {
        let answer = world.request(method, IMPORT, &[], export()).await;
        assert_eq!((answer.status.as_u16(), answer.header("allow")), (status, allow), "{method}");
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn memory_of_an_import_is_bounded() {
    let world = World::new().await;
    let before = world.dump().await;
    let compressed = |window| {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(window).unwrap();
        encoder.write_all(export().as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let refused = import(&world, compressed(28)).await.expect(413);
    assert!(refused.text().contains("memory"), "{}", refused.text());
    assert_eq!(world.dump().await, before);
    import(&world, compressed(27)).await.expect(200);
    let world = World::with(Settings { max_body_bytes: 1000, ..Settings::default() }).await;
    let line = format!("{{\"kind\": \"siteinfo\", \"version\": 1, \"x\": \"{}\"}}\n", "x".repeat(1000));
    let refused = import(&world, line).await.expect(413);
    assert!(refused.text().contains("1000 bytes"), "{}", refused.text());
    // The limit does not apply to the whole body.
    import(&world, export().replace("one", &"x".repeat(2000))).await.expect(200);
}

/// A 7z archive of 32 bytes, which declares that the header at its end has 2^46 bytes.
const DECLARES_HEADER: &[u8] = b"7z\xbc\xaf\x27\x1c\x00\x04\xf4\xee\xde\x4b\x00\x00\x00\x00\x00\x00\x00\x00\
    \x00\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00\x00";

/// A 7z archive that declares 2^60 files.
const DECLARES_FILES: &[u8] = b"7z\xbc\xaf\x27\x1c\x00\x04\xd3\xd7\xa3\xff\x00\x00\x00\x00\x00\x00\x00\x00\
    \x0d\x00\x00\x00\x00\x00\x00\x00\xcd\xd8\x5c\x4c\x01\x05\xff\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00";

/// A 7z archive that declares a dictionary of 4 GiB and a content of 1 TiB.
const DECLARES_DICTIONARY: &[u8] =
    b"7z\xbc\xaf\x27\x1c\x00\x04\x46\x39\x15\xda\x01\x00\x00\x00\x00\x00\x00\x00\
    \x59\x00\x00\x00\x00\x00\x00\x00\x94\x35\xbe\xca\x00\x01\x04\x06\xff\x00\x00\x00\x00\x00\x00\x00\x00\
    \xff\x01\x00\x00\x00\x00\x00\x00\x00\x09\xff\x01\x00\x00\x00\x00\x00\x00\x00\x00\x07\x0b\xff\x01\x00\
    \x00\x00\x00\x00\x00\x00\x00\xff\x01\x00\x00\x00\x00\x00\x00\x00\x21\x21\xff\x01\x00\x00\x00\x00\x00\
    \x00\x00\x28\x0c\xff\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x05\xff\x01\x00\x00\x00\x00\x00\x00\x00\
    \x00\x00";

#[tokio::test]
async fn sizes_declared_by_an_archive_reserve_no_memory() {
    let world = World::new().await;
    let before = world.dump().await;
    let refused = import(&world, DECLARES_HEADER).await.expect(413);
    assert!(refused.text().contains("send its content as .xz or .zst"), "{}", refused.text());
    let refused = import(&world, DECLARES_FILES).await.expect(400);
    assert!(refused.text().contains("declares"), "{}", refused.text());
    let refused = import(&world, DECLARES_DICTIONARY).await.expect(413);
    assert!(refused.text().contains("smaller dictionary"), "{}", refused.text());
    // lzma with a dictionary of 4 GiB.
    let lzma = [&[0x5d, 0, 0, 0xff, 0xff][..], &[0xff; 8], &[0; 20]].concat();
    let refused = import(&world, lzma).await.expect(413);
    assert!(refused.text().contains("smaller dictionary"), "{}", refused.text());
    assert_eq!(world.dump().await, before);
    import(&world, export()).await.expect(200);
}

#[tokio::test]
async fn archives_of_all_imports_share_disk_space() {
    let world = World::with(Settings { max_spool_bytes: 1000, ..Settings::default() }).await;
    world.get(&format!("{PAGE}?rev/")).await.expect(404);
    let (sender, body) = tokio::sync::mpsc::channel::<std::io::Result<Bytes>>(1);
    // The start header declares 900 bytes. All but the last byte are sent.
    const DECLARES_900: &[u8] = b"7z\xbc\xaf\x27\x1c\x00\x04\xfb\xaa\x63\xbd\x00\x00\x00\x00\x00\x00\x00\x00\
        \x64\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";
    let slow = Body::from_stream(stream::unfold(body, async |mut body| Some((body.recv().await?, body))));
    let router = world.router.clone();
    let first = tokio::spawn(async move {
        let request = http::Request::post(IMPORT).header("host", "localhost").body(slow).unwrap();
        tower::ServiceExt::oneshot(router, request).await.unwrap().status().as_u16()
    });
    sender.send(Ok(Bytes::from_static(DECLARES_900))).await.unwrap();
    sender.send(Ok(Bytes::from(vec![0; 867]))).await.unwrap();
    // Once this piece is accepted, the pieces before it are on disk.
    sender.send(Ok(Bytes::new())).await.unwrap();
    sender.reserve().await.unwrap();
    let refused = import(&world, [DECLARES_900, &[0; 868]].concat()).await.expect(503);
    assert_eq!(refused.json()["type"], "urn:rashomon:problem:busy");
    assert!(refused.text().contains("try again when other imports are done"), "{}", refused.text());
    assert!(!refused.header("retry-after").is_empty());
    drop(sender);
    assert_eq!(first.await.unwrap(), 400);
    // The space of the first archive is free again.
    import(&world, [DECLARES_900, &[0; 868]].concat()).await.expect(400);
    let refused = import(&world, DECLARES_HEADER).await.expect(413);
    assert!(refused.text().contains("at most 1000 bytes"), "{}", refused.text());
}

#[tokio::test]
async fn failed_import_is_answered_with_its_body_unread() {
    let world = World::new().await;
    world.get(&format!("{PAGE}?rev/")).await.expect(404);
    let server = Server::of(&world, ServeOptions::default()).await;
    let mut stream = server.connect().await;
    let body = vec![b'x'; 20 << 20];
    let head = format!("POST {IMPORT} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the answer is not lost to a reset");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("cannot be read"), "{answer}");
}

#[tokio::test]
async fn imports_are_bounded_and_refused_on_read_only_servers() {
    let world = World::with(Settings { max_imports: 0, ..Settings::default() }).await;
    let answer = import(&world, export()).await.expect(503);
    assert_eq!(answer.json()["type"], "urn:rashomon:problem:busy");
    assert_eq!(answer.json()["title"], "The server is busy");
    assert!(!answer.header("retry-after").is_empty());
    let world = World::with(Settings { read_only: true, ..Settings::default() }).await;
    import(&world, export()).await.expect(403);
}
