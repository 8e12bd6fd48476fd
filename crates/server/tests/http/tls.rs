//! Tests of connections with TLS.

use std::{fs, io::ErrorKind, time::Duration};

use rashomon_server::{ServeOptions, TlsReload};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    refusals::problem,
    socket::{STEP_TIMEOUT, Server, get, read_until},
    tls_files::{ELSEWHERE, Files, LOCALHOST, client},
    world::{PAGE, World},
};

/// The first bytes of a handshake, which lacks the rest.
const HALF_A_HANDSHAKE: &[u8] = &[22, 3, 1, 2, 0, 1, 0];

async fn failed_handshakes(world: &World) -> u64 {
    let metrics = world.get("/metrics").await;
    let line = "rashomon_http_tls_handshake_failures_total ";
    metrics.text().lines().find_map(|found| found.strip_prefix(line)?.parse().ok()).expect(line)
}

async fn await_failed_handshakes(world: &World, count: u64) {
    let counted = async {
        while failed_handshakes(world).await < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(STEP_TIMEOUT, counted).await.expect("the failure is counted");
}

/// The answer to a GET on a connection, up to this end.
async fn answer(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin), url: &str, end: &str) -> String {
    stream.write_all(&get(url, "")).await.unwrap();
    tokio::time::timeout(STEP_TIMEOUT, read_until(stream, end)).await.unwrap()
}

#[tokio::test]
async fn requests_over_tls_are_answered() {
    let (world, files) = (World::new().await, Files::of(LOCALHOST));
    world.revision("_rev=1&html=x-body-x").await;
    let server = Server::over(Some(files.tls()), &world, ServeOptions::default()).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for protocols in [&[][..], &["http/1.1"], &["h2", "http/1.1"]] {
            let config = client(&[version], protocols);
            let mut stream = server.negotiate(config, "localhost").await.unwrap();
            assert_eq!(stream.get_ref().1.protocol_version(), Some(version.version));
            let selected = (!protocols.is_empty()).then_some(&b"http/1.1"[..]);
            assert_eq!(stream.get_ref().1.alpn_protocol(), selected);
            for _ in 0..3 {
                let answer = answer(&mut stream, &format!("{PAGE}?rev/latest/html"), "x-body-x").await;
                assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            }
        }
    }
    // A request that cannot be read gets its own answer, and then the orderly end of the connection.
    let mut stream = server.connect_with_tls("localhost").await;
    stream.write_all(b"nonsense\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the end is announced");
    assert!(problem(&answer, 400)["detail"].as_str().unwrap().contains("HTTP/1.1"));
    assert_eq!(failed_handshakes(&world).await, 0);
}

#[tokio::test]
async fn client_without_http_1_1_is_refused_in_the_handshake() {
    let (world, files) = (World::new().await, Files::of(LOCALHOST));
    let server = Server::over(Some(files.tls()), &world, ServeOptions::default()).await;
    let config = client(rustls::ALL_VERSIONS, &["h2"]);
    let error = server.negotiate(config, "localhost").await.unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    await_failed_handshakes(&world, 1).await;
    // A client that does not trust the certificate ends the handshake, too.
    let config = client(rustls::ALL_VERSIONS, &[]);
    let error = server.negotiate(config, "elsewhere").await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    await_failed_handshakes(&world, 2).await;
}

#[tokio::test]
async fn addresses_on_pages_have_the_scheme_of_the_client() {
    let (world, files) = (World::new().await, Files::of(LOCALHOST));
    let encrypted = Server::over(Some(files.tls()), &world, ServeOptions::default()).await;
    let plain = Server::of(&world, ServeOptions::default()).await;
    for url in ["/", "/docs"] {
        for (forwarded, over_tls, without) in
            [("", "https", "http"), ("https", "https", "https"), ("http", "http", "http")]
        {
            let header = match forwarded {
                "" => String::new(),
                scheme => format!("x-forwarded-proto: {scheme}\r\n"),
            };
            let request = get(url, &format!("connection: close\r\n{header}"));
            let mut stream = encrypted.connect_with_tls("localhost").await;
            stream.write_all(&request).await.unwrap();
            let mut page = String::new();
            stream.read_to_string(&mut page).await.unwrap();
            let address = |scheme: &str| format!("{scheme}://en.example.org");
            assert!(page.contains(&address(over_tls)), "{url} {forwarded}: {page}");
            let page = plain.exchange(&request).await;
            assert!(page.contains(&address(without)), "{url} {forwarded}: {page}");
        }
    }
}

#[tokio::test]
async fn request_without_tls_is_answered_with_advice() {
    let (world, files) = (World::new().await, Files::of(LOCALHOST));
    let before = world.dump().await;
    let server = Server::over(Some(files.tls()), &world, ServeOptions::default()).await;
    let form = format!(
        "POST {PAGE}?rev/ HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: 13\r\n\r\n_rev=1&html=x"
    );
    for request in [&get("/", "")[..], form.as_bytes(), b"\r\nGET / HTTP/1.1\r\n\r\n", b"nonsense"] {
        let mut stream = server.connect().await;
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("the answer is not lost to a reset");
        assert!(problem(&answer, 400)["detail"].as_str().unwrap().contains("use https://"), "{answer}");
    }
    assert_eq!(world.dump().await, before);
    // Neither these clients nor one that sends nothing has failed in a handshake.
    drop(server.connect().await);
    answer(&mut server.connect_with_tls("localhost").await, "/healthz", "}").await;
    assert_eq!(failed_handshakes(&world).await, 0);
    // Bytes of no known protocol get no HTTP answer.
    let mut stream = server.connect().await;
    stream.write_all(&[0x80; 10]).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    await_failed_handshakes(&world, 1).await;
}

#[tokio::test]
async fn changed_files_are_used_for_new_connections() {
    let (world, files) = (World::new().await, Files::of(LOCALHOST));
    let tls = files.tls();
    let server = Server::over(Some(tls.clone()), &world, ServeOptions::default()).await;
    let mut first = server.connect_with_tls("localhost").await;
    answer(&mut first, "/healthz", "}").await;
    assert_eq!(tls.reload(false).await, TlsReload::Unchanged);

    files.rename(ELSEWHERE);
    assert_eq!(tls.reload(false).await, TlsReload::Replaced);
    assert_eq!(tls.reload(false).await, TlsReload::Unchanged);
    let mut second = server.connect_with_tls("elsewhere").await;
    answer(&mut second, "/healthz", "}").await;
    assert!(server.negotiate(client(rustls::ALL_VERSIONS, &[]), "localhost").await.is_err());
    // The connection with the old certificate stays.
    answer(&mut first, "/healthz", "}").await;
}

/// Certbot switches links below the folder `live` to files in the folder `archive`.
#[cfg(unix)]
#[tokio::test]
async fn switched_links_are_followed() {
    use std::os::unix::fs::symlink;
    let (world, files) = (World::new().await, Files::of(LOCALHOST));
    let linked =
        rashomon_server::TlsFiles { certificate: files.path("live chain"), key: files.path("live key") };
    symlink(&files.files.certificate, &linked.certificate).unwrap();
    symlink(&files.files.key, &linked.key).unwrap();
    let tls = rashomon_server::Tls::load(linked.clone()).unwrap();
    let server = Server::over(Some(tls.clone()), &world, ServeOptions::default()).await;
    server.connect_with_tls("localhost").await;

    let other = Files::of(ELSEWHERE);
    for (link, target) in [(&linked.certificate, &other.files.certificate), (&linked.key, &other.files.key)] {
        fs::remove_file(link).unwrap();
        symlink(target, link).unwrap();
    }
    assert_eq!(tls.reload(false).await, TlsReload::Replaced);
    server.connect_with_tls("elsewhere").await;
}

#[tokio::test]
async fn unusable_files_leave_the_old_certificate_in_use() {
    let (world, files) = (World::new().await, Files::of(LOCALHOST));
    let tls = files.tls();
    let server = Server::over(Some(tls.clone()), &world, ServeOptions::default()).await;
    // The certificate has been replaced, and the key has not yet.
    fs::write(&files.files.certificate, ELSEWHERE.0).unwrap();
    assert_eq!(tls.reload(false).await, TlsReload::Failed);
    server.connect_with_tls("localhost").await;
    fs::write(&files.files.certificate, "").unwrap();
    assert_eq!(tls.reload(false).await, TlsReload::Failed);
    fs::remove_file(&files.files.certificate).unwrap();
    assert_eq!(tls.reload(false).await, TlsReload::Failed);
    server.connect_with_tls("localhost").await;
    // The same files as before are no change.
    fs::write(&files.files.certificate, LOCALHOST.0).unwrap();
    assert_eq!(tls.reload(false).await, TlsReload::Unchanged);
    files.rename(ELSEWHERE);
    assert_eq!(tls.reload(false).await, TlsReload::Replaced);
    server.connect_with_tls("elsewhere").await;
}

#[tokio::test]
async fn slow_handshakes_are_cut_off() {
    let (world, files) = (World::new().await, Files::of(LOCALHOST));
    let options = ServeOptions { head_seconds: 1, ..ServeOptions::default() };
    let server = Server::over(Some(files.tls()), &world, options).await;
    for (count, sent) in [(1, &b""[..]), (2, HALF_A_HANDSHAKE)] {
        let mut stream = server.connect().await;
        stream.write_all(sent).await.unwrap();
        let mut answer = Vec::new();
        let closed = tokio::time::timeout(STEP_TIMEOUT, stream.read_to_end(&mut answer)).await;
        assert!(closed.is_ok(), "the connection is closed");
        await_failed_handshakes(&world, count).await;
    }
    // After the handshake, the head of the first request has a limit of its own.
    let mut stream = server.connect_with_tls("localhost").await;
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let mut answer = String::new();
    let closed = tokio::time::timeout(STEP_TIMEOUT, stream.read_to_string(&mut answer)).await;
    closed.unwrap().expect("the end is announced");
    problem(&answer, 408);
}

#[tokio::test]
async fn connection_counts_from_the_beginning_of_its_handshake() {
    let (world, files) = (World::new().await, Files::of(LOCALHOST));
    let options = ServeOptions { max_connections: 1, ..ServeOptions::default() };
    let server = Server::over(Some(files.tls()), &world, options).await;
    // Connections are accepted in the order in which they were made.
    let mut first = server.connect().await;
    first.write_all(HALF_A_HANDSHAKE).await.unwrap();
    let mut second = server.connect().await;
    second.write_all(&get("/healthz", "")).await.unwrap();
    // Other tasks run meanwhile, so a second connection that had been accepted would be answered.
    for _ in 0..100 {
        failed_handshakes(&world).await;
        tokio::task::yield_now().await;
    }
    let early = second.try_read(&mut [0]).unwrap_err();
    assert_eq!(early.kind(), ErrorKind::WouldBlock, "the second connection waits for the end of the first");
    drop(first);
    let answer = tokio::time::timeout(STEP_TIMEOUT, read_until(&mut second, "}")).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test]
async fn handshake_does_not_delay_the_shutdown() {
    let (world, files) = (World::new().await, Files::of(LOCALHOST));
    let options = ServeOptions { shutdown_seconds: 3600, head_seconds: 3600, ..ServeOptions::default() };
    let mut server = Server::over(Some(files.tls()), &world, options).await;
    let silent = server.connect().await;
    let mut half = server.connect().await;
    half.write_all(HALF_A_HANDSHAKE).await.unwrap();
    let mut idle = server.connect_with_tls("localhost").await;
    answer(&mut idle, "/healthz", "}").await;
    server.stop.take().unwrap().send(()).unwrap();
    tokio::time::timeout(STEP_TIMEOUT, server.done).await.expect("the server ends").unwrap().unwrap();
    // The idle connection is closed in an orderly way, so its client knows that nothing is missing.
    assert_eq!(idle.read(&mut [0]).await.expect("the end is announced"), 0);
    drop((silent, half));
}

#[tokio::test]
async fn accepted_request_over_tls_is_finished_at_shutdown() {
    let (world, files) = (World::new().await, Files::of(LOCALHOST));
    let mut server = Server::over(Some(files.tls()), &world, ServeOptions::default()).await;
    let mut stream = server.connect_with_tls("localhost").await;
    let head = format!(
        "POST {PAGE}?rev/ HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: 13\r\nexpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read_until(&mut stream, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    server.stop.take().unwrap().send(()).unwrap();
    let refused = async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(STEP_TIMEOUT, refused).await.expect("nothing more is accepted");
    stream.write_all(b"_rev=1&html=x").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the end is announced");
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    tokio::time::timeout(STEP_TIMEOUT, server.done).await.unwrap().unwrap().unwrap();
}

/// A client that does not read its answers is disconnected, and makes room for another one.
#[tokio::test]
async fn client_that_reads_nothing_is_disconnected() {
    let (world, files) = (World::new().await, Files::of(LOCALHOST));
    world.revision(&format!("_rev=1&html={}", "x".repeat(900_000))).await;
    let options = ServeOptions { max_connections: 1, stalled_seconds: 1, ..ServeOptions::default() };
    for tls in [None, Some(files.tls())] {
        let is_encrypted = tls.is_some();
        let server = Server::over(tls, &world, options).await;
        // The answers do not fit into the buffers of both sockets.
        let requests = get(&format!("{PAGE}?rev/latest/html"), "").repeat(40);
        let (mut plain, mut encrypted);
        let stalled: &mut (dyn tokio::io::AsyncWrite + Unpin + Send) = if is_encrypted {
            encrypted = server.connect_with_tls("localhost").await;
            &mut encrypted
        } else {
            plain = server.connect().await;
            &mut plain
        };
        stalled.write_all(&requests).await.unwrap();
        let next = async {
            if is_encrypted {
                answer(&mut server.connect_with_tls("localhost").await, "/healthz", "}").await
            } else {
                answer(&mut server.connect().await, "/healthz", "}").await
            }
        };
        let next = tokio::time::timeout(STEP_TIMEOUT, next).await.expect("there is room for another client");
        assert!(next.starts_with("HTTP/1.1 200 "), "{next}");
    }
}
