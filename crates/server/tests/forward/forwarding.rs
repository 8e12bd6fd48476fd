//! The requests that a backend gets, and the answers that the client gets.

use std::{collections::HashMap, sync::Arc};

use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use rashomon_pages::DomainName;
use rashomon_server::registry::ServerList;
use rashomon_server::{Settings, Tls, TlsFiles};

use crate::{
    backends::{Behavior, Recorder, SocketBackend},
    http::{begin, get, post, request, send, wait_until},
    server::{Parts, Server, entry, entry_of},
};

const CERTIFICATE: &str = include_str!("../../../upstream/tests/generator/certificates/localhost.pem");
const KEY: &str = include_str!("../../../upstream/tests/generator/certificates/localhost.key");
const ELSEWHERE: &str = include_str!("../../../upstream/tests/generator/certificates/elsewhere.pem");

#[tokio::test]
async fn redirects_and_links_of_a_backend_have_the_host_and_the_prefix_of_the_client() {
    let settings = || Settings { proxies: vec!["127.0.0.1/32".parse().unwrap()], ..Settings::default() };
    let page = "/v1/enwiki/page/Main_Page";
    for is_trusted in [true, false] {
        let behind = match is_trusted {
            true => Server::with(Parts { settings: settings(), ..Parts::default() }).await,
            false => Server::start().await,
        };
        let entries = vec![entry("/enwiki", [behind.url()])];
        let server = Server::with(Parts { entries, settings: settings(), ..Parts::default() }).await;
        let written = post(server.address, &format!("{page}?rev/"), "_rev=1&html=Hello").await;
        assert!(written.header("location").starts_with(&format!("{page}?rev/")), "{written:?}");
        let headers = [
            ("x-forwarded-prefix", "/store"),
            ("x-forwarded-host", "wiki.example.org"),
            ("x-forwarded-proto", "https"),
        ];
        for (url, location) in [(page.to_owned(), "?rev/latest/html"), (format!("{page}?rev/1"), "?rev/1/")] {
            let answer = send(server.address, request("GET", &url, &headers, "")).await;
            assert_eq!(answer.header("location"), format!("/store{page}{location}"), "{is_trusted}");
        }
        let read =
            send(server.address, request("GET", &format!("{page}?rev/latest/html"), &headers, "")).await;
        let link = format!("<https://wiki.example.org/store{page}>; rel=\"original\"");
        assert_eq!(read.header("link").starts_with(&link), is_trusted, "{read:?}");
    }
}

/// A backend of another kind may name itself in its redirects.
#[tokio::test]
async fn redirect_of_a_backend_to_itself_leads_through_this_server() {
    const MOVED: &str = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/v1/enwiki/page/B?rev/#top\r\n\
        Content-Length: 0\r\nConnection: close\r\n\r\n";
    let backend = SocketBackend::start(Behavior::Answer(MOVED)).await;
    let servers = [backend.url(), "http://127.0.0.1:9".to_owned()];
    let settings = Settings { proxies: vec!["127.0.0.1/32".parse().unwrap()], ..Settings::default() };
    for (servers, location) in [
        (&servers[..], "/store/v1/enwiki/page/B?rev/#top"),
        (&servers[..1], "http://127.0.0.1:9/v1/enwiki/page/B?rev/#top"),
    ] {
        let (entries, settings) = (vec![entry("/", servers.to_vec())], settings.clone());
        let server = Server::with(Parts { entries, settings, ..Parts::default() }).await;
        let headers = [("x-forwarded-prefix", "/store")];
        // Nothing listens at the other server.
        let answer = send(server.address, request("GET", "/v1/enwiki/page/A", &headers, "")).await;
        assert_eq!(answer.header("location"), location);
    }
}

#[tokio::test]
async fn page_of_a_backend_is_written_and_read_like_a_local_page() {
    let behind = Server::start().await;
    let server = Server::forwarding(vec![entry("/enwiki", [behind.url()])]).await;
    let page = "/v1/enwiki/page/Main_Page";
    let written = post(server.address, &format!("{page}?rev/"), "_rev=1&html=Hello").await;
    assert_eq!(written.status, 201, "{written:?}");
    assert_eq!(get(behind.address, &format!("{page}?rev/latest/html")).await.text(), "Hello");

    let read = get(server.address, &format!("{page}?rev/latest/html")).await;
    assert_eq!((read.status.as_u16(), read.text()), (200, "Hello"));
    assert_eq!(read.header("content-length"), "5");
    assert!(read.header("via").starts_with("1.1 rashomon-"), "{read:?}");
    let etag = read.header("etag").to_owned();

    let head = send(server.address, request("HEAD", &format!("{page}?rev/latest/html"), &[], "")).await;
    assert_eq!((head.status.as_u16(), head.header("content-length"), head.text()), (200, "5", ""));
    let headers = [("if-none-match", etag.as_str())];
    let unchanged =
        send(server.address, request("GET", &format!("{page}?rev/latest/html"), &headers, "")).await;
    assert_eq!(
        (unchanged.status.as_u16(), unchanged.header("etag"), unchanged.text()),
        (304, etag.as_str(), "")
    );
    let headers = [("range", "bytes=1-2")];
    let part = send(server.address, request("GET", &format!("{page}?rev/latest/html"), &headers, "")).await;
    assert_eq!((part.status.as_u16(), part.text()), (206, "el"));

    let bare = get(server.address, page).await;
    assert_eq!(
        (bare.status.as_u16(), bare.header("location")),
        (302, "/v1/enwiki/page/Main_Page?rev/latest/html")
    );
    let other = get(server.address, "/v1/enwiki/page/Main%20Page?rev/latest/html").await;
    assert_eq!(
        (other.status.as_u16(), other.header("location")),
        (301, "/v1/enwiki/page/Main_Page?rev/latest/html")
    );
    // Problems are those of the backend.
    assert_eq!(get(server.address, "/v1/enwiki/page/Missing?rev/latest/html").await.problem(), "not-found");
    // The forwarding server answers OPTIONS itself.
    let options = send(server.address, request("OPTIONS", &format!("{page}?rev/"), &[], "")).await;
    assert_eq!((options.status.as_u16(), options.header("allow")), (204, "GET, HEAD, POST, OPTIONS"));
}

#[tokio::test]
async fn import_goes_to_the_backend_of_the_pages() {
    let behind = Server::start().await;
    let server = Server::forwarding(vec![entry("/enwiki/page", [behind.url()])]).await;
    let xml = "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.11/\" version=\"0.11\" xml:lang=\"en\">\
        <page><title>A</title><ns>0</ns><id>1</id><revision><id>7</id><timestamp>2013-02-23T22:23:24Z</timestamp>\
        <contributor><username>Ann</username><id>1</id></contributor><model>wikitext</model>\
        <format>text/x-wiki</format><text bytes=\"1\" xml:space=\"preserve\">x</text></revision></page></mediawiki>";
    let imported = send(server.address, request("POST", "/v1/enwiki/import", &[], xml)).await;
    assert_eq!(imported.status, 200, "{imported:?}");
    assert_eq!(get(behind.address, "/v1/enwiki/page/A?rev/latest/wikitext").await.text(), "x");
}

#[tokio::test]
async fn import_may_be_longer_than_other_bodies() {
    let backend = Recorder::start();
    let settings = Settings { max_body_bytes: 1000, ..Settings::default() };
    let entries = vec![entry("/", [backend.url()])];
    let server = Server::with(Parts { entries, settings, ..Parts::default() }).await;
    let imported = request("POST", "/v1/enwiki/import", &[], vec![b'x'; 5000]);
    assert_eq!(send(server.address, imported).await.status, 200);
    assert_eq!(backend.log.only().bytes, 5000);
}

#[tokio::test]
async fn host_selects_the_domain_of_paths_below_wiki() {
    let hosts = HashMap::from([("en.example.org".to_owned(), DomainName::new("enwiki").unwrap())]);
    let settings = Settings { hosts, ..Settings::default() };
    let behind = Server::with(Parts { settings: settings.clone(), ..Parts::default() }).await;
    let entries = vec![entry("/enwiki/page", [behind.url()])];
    let server = Server::with(Parts { entries, settings, ..Parts::default() }).await;
    post(behind.address, "/v1/enwiki/page/A?rev/", "_rev=1&html=Hello").await;
    let headers = [("host", "en.example.org")];
    let read = send(server.address, request("GET", "/wiki/A?rev/latest/html", &headers, "")).await;
    assert_eq!((read.status.as_u16(), read.text()), (200, "Hello"));
    let written = send(server.address, request("POST", "/wiki/A?rev/", &headers, "")).await;
    assert_eq!(written.problem(), "method-not-allowed");
}

#[tokio::test]
async fn backend_gets_the_url_as_it_is_and_the_headers_of_a_proxy() {
    let backend = Recorder::start();
    let server = Server::forwarding(vec![entry("/", [backend.url()])]).await;
    let path = "/v1/enwiki/math-png/a%2fb%20c/(d)?lt=%3f&x=%zz";
    let headers = [("host", "en.example.org"), ("x-request-id", "id-1"), ("x-forwarded-for", "192.0.2.1")];
    let answer = send(server.address, request("GET", path, &headers, "")).await;
    assert_eq!(answer.header("x-request-id"), "id-1");
    let got = backend.log.only();
    assert_eq!(got.uri, path);
    assert_eq!(got.header("host"), backend.address.to_string());
    assert_eq!(got.header("x-request-id"), "id-1");
    assert_eq!(got.header("x-forwarded-for"), "192.0.2.1, 127.0.0.1");
    assert_eq!(got.header("x-forwarded-host"), "en.example.org");
    assert_eq!(got.header("x-forwarded-proto"), "http");
    assert!(got.header("via").starts_with("1.1 rashomon-"), "{got:?}");

    // Without an id of the client, the backend gets the one of the answer.
    let answer = get(server.address, "/v1/enwiki/math-png/a").await;
    assert_eq!(backend.log.all()[1].header("x-request-id"), answer.header("x-request-id"));
    assert!(!answer.header("x-request-id").is_empty());
}

#[tokio::test]
async fn path_that_leads_to_another_bucket_is_refused() {
    let backend = Recorder::start();
    let server = Server::forwarding(vec![entry("/", [backend.url()])]).await;
    for path in ["/v1/enwiki/math-png/../page/A", "/v1/enwiki/math-png/%2e%2e/page/A"] {
        assert_eq!(get(server.address, path).await.problem(), "malformed", "{path}");
    }
    assert!(backend.log.all().is_empty());
}

#[tokio::test]
async fn requests_outside_a_domain_are_not_forwarded() {
    let backend = Recorder::start();
    let server = Server::forwarding(vec![entry("/", [backend.url()])]).await;
    assert_eq!(get(server.address, "/healthz").await.status, 200);
    assert_eq!(get(server.address, "/v1/En/page/A").await.status, 400);
    assert_eq!(get(server.address, "/v1/tokens").await.status, 200);
    assert!(backend.log.all().is_empty());
    assert_eq!(get(server.address, "/v1/enwiki/page/A").await.status, 200);
    assert_eq!(backend.log.all().len(), 1);
}

#[tokio::test]
async fn loop_ends_with_508() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let first_url = format!("http://{}", listener.local_addr().unwrap());
    let second = Server::forwarding(vec![entry("/", [first_url])]).await;
    let parts = Parts { entries: vec![entry("/", [second.url()])], ..Parts::default() };
    let first = Server::on(listener, parts).await;
    let answer = get(first.address, "/v1/enwiki/page/A?rev/").await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (508, "loop-detected"));
}

#[tokio::test]
async fn answer_begins_before_the_backend_has_sent_all_of_it() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n";
    let backend = SocketBackend::start(Behavior::Stall(text)).await;
    let server = Server::forwarding(vec![entry("/", [backend.url()])]).await;
    let answer = begin(server.address, request("GET", "/v1/enwiki/page/A?rev/", &[], "")).await;
    assert!(!answer.headers().contains_key("content-length"));
    let mut body = answer.into_data_stream();
    assert_eq!(body.next().await.unwrap().unwrap(), "begin");
}

#[tokio::test]
async fn large_answer_arrives_as_a_whole() {
    let behind = Server::start().await;
    let server = Server::forwarding(vec![entry("/enwiki", [behind.url()])]).await;
    let (path, headers) = ("/v1/enwiki/page/A?rev/", [("content-type", "application/x-www-form-urlencoded")]);
    let large = format!("_rev=1&html={}", "x".repeat(20 << 20));
    assert_eq!(send(server.address, request("POST", path, &headers, large)).await.status, 201);
    let read = get(server.address, "/v1/enwiki/page/A?rev/latest/html").await;
    assert_eq!(read.text().len(), 20 << 20);
}

#[tokio::test]
async fn backend_with_tls_is_checked_by_the_authorities_of_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        std::fs::write(directory.path().join(name), content).unwrap();
        directory.path().join(name)
    };
    let (certificate, key) = (file("certificate", CERTIFICATE), file("key", KEY));
    let tls = Tls::load(TlsFiles { certificate: certificate.clone(), key }).unwrap();
    let behind = Server::with(Parts { tls: Some(tls), ..Parts::default() }).await;
    let list = |ca_file| ServerList {
        ca_file: Some(ca_file),
        ..ServerList::new(vec![format!("https://localhost:{}", behind.address.port())])
    };
    let entries = vec![entry_of("/a", list(certificate)), entry_of("/b", list(file("elsewhere", ELSEWHERE)))];
    let server = Server::forwarding(entries).await;
    assert_eq!(post(server.address, "/v1/a/page/A?rev/", "_rev=1&html=x").await.status, 201);
    let untrusted = post(server.address, "/v1/b/page/A?rev/", "_rev=1&html=x").await;
    assert_eq!((untrusted.status.as_u16(), untrusted.problem().as_str()), (502, "backend-failed"));
}

#[tokio::test]
async fn second_store_of_the_process_answers_its_paths() {
    let other = crate::server::store().await;
    let entries = vec![rashomon_server::registry::Entry {
        prefix: "/dewiki".parse().unwrap(),
        destination: rashomon_server::registry::Destination::Store(0),
    }];
    let server = Server::with(Parts { entries, stores: vec![other.clone()], ..Parts::default() }).await;
    for domain in ["enwiki", "dewiki"] {
        let form = if domain == "enwiki" { "_rev=1&html=en" } else { "_rev=1&html=de" };
        let path = format!("/v1/{domain}/page/A");
        assert_eq!(post(server.address, &format!("{path}?rev/"), form).await.status, 201);
        let read = get(server.address, &format!("{path}?rev/latest/html")).await;
        assert_eq!(read.text(), &form[form.len() - 2..]);
    }
    let page = |domain: &str| rashomon_pages::Page {
        domain: DomainName::new(domain).unwrap(),
        bucket: rashomon_pages::BucketName::page(),
        title: rashomon_pages::Title::new("A").unwrap(),
    };
    let html = "html".parse().unwrap();
    assert!(other.buckets.latest(&page("dewiki"), &html).await.is_ok());
    assert!(other.buckets.latest(&page("enwiki"), &html).await.is_err());
    let ready = get(server.address, "/readyz").await;
    assert!(ready.text().contains("\"backends\":{\"ready\":1,\"degraded\":0,\"down\":0}"), "{ready:?}");
}

#[tokio::test]
async fn requests_of_a_batch_go_to_their_backends() {
    let (one, two) = (Recorder::start(), Recorder::start());
    let server = Server::forwarding(vec![entry("/a", [one.url()]), entry("/b", [two.url()])]).await;
    let batch =
        r#"[{"method": "GET", "path": "/v1/a/math-png/x"}, {"method": "GET", "path": "/v1/b/math-png/x"}]"#;
    let headers = [("content-type", "application/json")];
    let answer = send(server.address, request("POST", "/v1/batch", &headers, batch)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    for backend in [&one, &two] {
        assert!(answer.text().contains(&format!("\"body\":\"{}\"", backend.address.port())), "{answer:?}");
        assert!(!backend.log.only().header("x-request-id").is_empty());
    }
}

#[tokio::test]
async fn answer_of_a_backend_that_breaks_off_inside_a_batch_is_502() {
    let broken = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    let backend = SocketBackend::start(Behavior::Answer(broken)).await;
    let server = Server::forwarding(vec![entry("/a", [backend.url()])]).await;
    let batch = r#"[{"method": "GET", "path": "/v1/a/math-png/x"}]"#;
    let headers = [("content-type", "application/json")];
    let answer = send(server.address, request("POST", "/v1/batch", &headers, batch)).await;
    assert!(answer.text().contains("urn:rashomon:problem:backend-failed"), "{answer:?}");
}

#[tokio::test]
async fn longest_prefix_wins_over_http() {
    let backends: Vec<Recorder> = (0..3).map(|_| Recorder::start()).collect();
    let entries = ["/", "/enwiki", "/enwiki/math-png"];
    let entries =
        entries.iter().zip(&backends).map(|(prefix, backend)| entry(prefix, [backend.url()])).collect();
    let server = Server::forwarding(entries).await;
    for (path, expected) in [
        ("/v1/dewiki/math-png/a", 0),
        ("/v1/enwiki/math/a", 1),
        ("/v1/enwiki/page/A?rev/", 1),
        ("/v1/enwiki/math-png/a", 2),
        ("/v1/enwiki/math-png", 2),
    ] {
        let answer = get(server.address, path).await;
        assert_eq!(answer.text(), backends[expected].address.port().to_string(), "{path}");
    }
}

#[tokio::test]
async fn request_under_way_ends_with_the_old_registry() {
    let (old, new) = (Arc::new(Recorder::start()), Recorder::start());
    let server = Server::forwarding(vec![entry("/", [old.url()])]).await;
    let (sender, receiver) = futures::channel::mpsc::unbounded::<Result<bytes::Bytes, std::io::Error>>();
    let mut slow = request("PUT", "/v1/enwiki/math-png/a", &[], "");
    *slow.body_mut() = axum::body::Body::from_stream(receiver);
    sender.unbounded_send(Ok("first".into())).unwrap();
    let address = server.address;
    let slow = tokio::spawn(async move { send(address, slow).await });
    // The first piece is kept as soon as the backend gets it.
    wait_until(async || !get(address, "/metrics").await.text().contains("rashomon_forward_replay_bytes 0\n"))
        .await;
    server.forwarder.replace(vec![entry("/", [new.url()])]).unwrap();
    assert_eq!(get(address, "/v1/enwiki/math-png/b").await.text(), new.address.port().to_string());
    sender.unbounded_send(Ok("second".into())).unwrap();
    drop(sender);
    assert_eq!(slow.await.unwrap().text(), old.address.port().to_string());
    assert_eq!(old.log.only().bytes, 11);
}
