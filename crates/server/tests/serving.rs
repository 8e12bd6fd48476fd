//! Tests of the server over real sockets, with a small application.

// Clippy lets tests unwrap, but not their helpers.
#![allow(clippy::unwrap_used)]

use std::{
    fmt, fs,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use rashomon_clock::{ManualClock, Timestamp};
use rashomon_server::connections::{
    Application, Encrypted, PeerAddress, ReceivedBody, Refusal, ServeOptions, Tls, TlsFiles, serve,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const CERTIFICATE: &str = include_str!("../../upstream/tests/generator/certificates/localhost.pem");
const KEY: &str = include_str!("../../upstream/tests/generator/certificates/localhost.key");

/// The time of the server, and its form in a header.
const NOW: Timestamp = Timestamp::from_micros(1_180_643_700_000_000);
const DATE: &str = "date: Thu, 31 May 2007 20:35:00 GMT";

/// A time limit that no step of a test reaches on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Answers every request with the data that the server passes to the application.
#[derive(Clone, Default)]
struct Mirror(Arc<ApplicationCalls>);

/// The refusals and failed handshakes that the server has reported to the application.
#[derive(Default)]
struct ApplicationCalls {
    refusals: Mutex<Vec<(Refusal, Option<String>)>>,
    failed_handshakes: AtomicU64,
    held: Mutex<Option<JoinHandle<Counted>>>,
}

/// The numbers of pieces and bytes of a body; only that of the bytes if the body broke off.
type Counted = Result<(usize, usize), usize>;

/// Reads a body. Counts its pieces and bytes.
async fn count(mut body: ReceivedBody) -> Counted {
    let (mut pieces, mut bytes) = (0, 0);
    while let Some(frame) = body.frame().await {
        pieces += 1;
        bytes += frame.map_err(|_| bytes)?.into_data().unwrap().len();
    }
    Ok((pieces, bytes))
}

impl Application for Mirror {
    type Body = Full<Bytes>;

    async fn answer(&self, request: Request<ReceivedBody>) -> Response<Full<Bytes>> {
        let extensions = request.extensions();
        let peer = extensions.get::<PeerAddress>().unwrap().ip();
        let is_encrypted = extensions.get::<Encrypted>().is_some();
        match request.uri().path() {
            "/refuse" => {
                let mut refusal = Response::new(Full::from("refused;"));
                *refusal.status_mut() = StatusCode::NOT_FOUND;
                return refusal;
            }
            "/count" => {
                let (pieces, bytes) = count(request.into_body()).await.unwrap();
                return Response::new(Full::from(format!("{bytes} bytes in {pieces} pieces;")));
            }
            "/hold" => {
                let held = tokio::spawn(count(request.into_body()));
                *self.0.held.lock().unwrap() = Some(held);
                return Response::new(Full::from("early;"));
            }
            _ => {}
        }
        let text = format!("{} of {peer}, encrypted: {is_encrypted};", request.uri());
        Response::new(Full::from(text))
    }

    fn refuse(&self, refusal: Refusal, cause: Option<&dyn fmt::Display>) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(format!("{refusal:?}")));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        self.0.refusals.lock().unwrap().push((refusal, cause.map(ToString::to_string)));
        response
    }

    fn handshake_failed(&self) {
        self.0.failed_handshakes.fetch_add(1, Ordering::SeqCst);
    }
}

struct Server {
    address: SocketAddr,
    mirror: Mirror,
    stop: oneshot::Sender<()>,
    done: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start(tls: Option<Tls>, options: ServeOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let mirror = Mirror::default();
        let clock = Arc::new(ManualClock::new(NOW));
        let done = tokio::spawn(serve(listener, mirror.clone(), clock, tls, shutdown, options));
        Self { address, mirror, stop, done }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn connect_with_tls(&self) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, self.connect().await).await.unwrap()
    }

    /// Sends a request that is refused. Checks the answer, and returns the refusal with its cause.
    async fn refused(&self, request: &[u8]) -> (Refusal, Option<String>) {
        let mut stream = self.connect().await;
        // The request may be refused before all of it is sent.
        let _ = stream.write_all(request).await;
        let mut answer = String::new();
        let read = tokio::time::timeout(STEP_TIMEOUT, stream.read_to_string(&mut answer)).await;
        read.expect("the connection is closed").expect("the answer is not lost to a reset");
        let (refusal, cause) = self.mirror.0.refusals.lock().unwrap().pop().unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, format!("{refusal:?}"));
        assert!(head.starts_with("HTTP/1.1 418 "), "{answer}");
        for line in [&format!("content-length: {}", body.len()), "connection: close", DATE] {
            assert!(head.lines().any(|found| found == line), "no {line}: {answer}");
        }
        (refusal, cause)
    }

    fn failed_handshakes(&self) -> u64 {
        self.mirror.0.failed_handshakes.load(Ordering::SeqCst)
    }
}

fn tls() -> Tls {
    let directory = tempfile::tempdir().unwrap();
    let files =
        TlsFiles { certificate: directory.path().join("chain.pem"), key: directory.path().join("key.pem") };
    fs::write(&files.certificate, CERTIFICATE).unwrap();
    fs::write(&files.key, KEY).unwrap();
    Tls::load(files).unwrap()
}

/// Sends a request, and reads up to the end of its answer.
async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), url: &str) -> String {
    stream.write_all(format!("GET {url} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while answer.last() != Some(&b';') {
        answer.push(tokio::time::timeout(STEP_TIMEOUT, stream.read_u8()).await.unwrap().unwrap());
    }
    let answer = String::from_utf8(answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[tokio::test]
async fn requests_of_a_connection_reach_the_application() {
    let server = Server::start(None, ServeOptions::default()).await;
    let mut stream = server.connect().await;
    assert_eq!(ask(&mut stream, "/any/path?x").await, "/any/path?x of 127.0.0.1, encrypted: false;");
    assert_eq!(ask(&mut stream, "/").await, "/ of 127.0.0.1, encrypted: false;");
    assert!(server.mirror.0.refusals.lock().unwrap().is_empty());
}

#[tokio::test]
async fn requests_over_tls_are_marked() {
    let server = Server::start(Some(tls()), ServeOptions::default()).await;
    let mut stream = server.connect_with_tls().await;
    assert_eq!(ask(&mut stream, "/a").await, "/a of 127.0.0.1, encrypted: true;");
    assert_eq!(server.failed_handshakes(), 0);
}

#[tokio::test]
async fn unreadable_requests_are_refused_by_the_application() {
    let options = ServeOptions { max_head_bytes: 100_000, head_seconds: 1, ..ServeOptions::default() };
    let server = Server::start(None, options).await;
    let (refusal, cause) = server.refused(b"nonsense\r\n\r\n").await;
    let Refusal::Malformed { reason } = refusal else { panic!("{refusal:?}") };
    assert_eq!(Some(reason), cause);
    let long_url = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(70_000));
    assert_eq!(server.refused(long_url.as_bytes()).await.0, Refusal::UrlTooLong);
    let large_head = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "a".repeat(200_000));
    let too_large = Refusal::HeadTooLarge { max_head_bytes: 100_000 };
    assert_eq!(server.refused(large_head.as_bytes()).await.0, too_large);
    assert_eq!(server.refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.0, Refusal::Http2);
    let (refusal, cause) = server.refused(b"GET / HT").await;
    assert_eq!((refusal, cause.is_some()), (Refusal::Late, true));
}

#[tokio::test]
async fn client_without_tls_is_refused_and_a_failed_handshake_is_reported() {
    let server = Server::start(Some(tls()), ServeOptions::default()).await;
    assert_eq!(server.refused(b"GET / HTTP/1.1\r\n\r\n").await, (Refusal::WithoutTls, None));
    assert_eq!(server.failed_handshakes(), 0);
    let mut stream = server.connect().await;
    stream.write_all(&[0x80; 10]).await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;
    let reported = async {
        while server.failed_handshakes() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(STEP_TIMEOUT, reported).await.expect("the failure is reported");
    assert!(server.mirror.0.refusals.lock().unwrap().is_empty());
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_ends_the_server() {
    let server =
        Server::start(None, ServeOptions { shutdown_seconds: 3600, ..ServeOptions::default() }).await;
    let mut idle = server.connect().await;
    ask(&mut idle, "/").await;
    server.stop.send(()).unwrap();
    tokio::time::timeout(STEP_TIMEOUT, server.done).await.expect("the server ends").unwrap().unwrap();
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
    assert!(TcpStream::connect(server.address).await.is_err());
}

/// Sends the head of a request, and after a pause its body. Returns the stream and the answer, up to its `;`.
async fn send_in_two(server: &Server, head: &str, body: &[u8], pause: Duration) -> (TcpStream, String) {
    let mut stream = server.connect().await;
    stream.write_all(format!("{head}host: a\r\n\r\n").as_bytes()).await.unwrap();
    tokio::time::sleep(pause).await;
    // The server may have closed the connection.
    let _ = stream.write_all(body).await;
    let answer = answer(&mut stream).await;
    (stream, answer)
}

/// Reads an answer up to its `;`.
async fn answer(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    while answer.last() != Some(&b';') {
        answer.push(tokio::time::timeout(STEP_TIMEOUT, stream.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(answer).unwrap()
}

/// A body in chunks of this size.
fn chunked(size: usize, count: usize) -> Vec<u8> {
    let chunk = format!("{size:x}\r\n{}\r\n", "x".repeat(size));
    [chunk.repeat(count).as_bytes(), b"0\r\n\r\n"].concat()
}

#[tokio::test]
async fn connection_stays_usable_after_a_short_body_that_nobody_read() {
    let server = Server::start(None, ServeOptions::default()).await;
    for path in ["/refuse", "/"] {
        for pause in [0, 5, 200].map(Duration::from_millis) {
            for (framing, body) in [
                ("content-length: 1000\r\n", vec![b'x'; 1000]),
                ("content-length: 1000000\r\n", vec![b'x'; 1_000_000]),
                ("transfer-encoding: chunked\r\n", chunked(100, 50)),
            ] {
                let head = format!("POST {path} HTTP/1.1\r\n{framing}");
                let (mut stream, answer) = send_in_two(&server, &head, &body, pause).await;
                assert!(!answer.contains("connection: close"), "{head}: {answer}");
                assert_eq!(ask(&mut stream, "/next").await, "/next of 127.0.0.1, encrypted: false;");
            }
        }
    }
}

#[tokio::test]
async fn connection_that_will_be_closed_is_announced() {
    let server = Server::start(None, ServeOptions::default()).await;
    for (framing, body) in [
        // Too long, malformed, too late, and a body that the client sends only if it is wanted.
        ("content-length: 3000000\r\n", vec![b'x'; 3_000_000]),
        ("transfer-encoding: chunked\r\n", chunked(10_000, 200)),
        ("transfer-encoding: chunked\r\n", b"nonsense\r\n".to_vec()),
        ("content-length: 10\r\n", b"x".to_vec()),
        ("expect: 100-continue\r\ncontent-length: 10\r\n", Vec::new()),
    ] {
        let head = format!("POST /refuse HTTP/1.1\r\n{framing}");
        let (mut stream, answer) = send_in_two(&server, &head, &body, Duration::from_millis(5)).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{head}: {answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{head}: {answer}");
        let rest = tokio::time::timeout(STEP_TIMEOUT, stream.read(&mut [0])).await.unwrap();
        assert_eq!(rest.expect("the answer is not lost to a reset"), 0);
    }
}

#[tokio::test]
async fn answer_before_the_end_of_its_body_ends_the_connection() {
    let server = Server::start(None, ServeOptions::default()).await;
    let mut stream = server.connect().await;
    stream.write_all(b"POST /hold HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n12345").await.unwrap();
    let early = answer(&mut stream).await;
    assert!(early.contains("\r\nconnection: close\r\n"), "{early}");
    // The application receives the rest, or learns that it does not arrive.
    stream.write_all(b"67890").await.unwrap();
    let held = server.mirror.0.held.lock().unwrap().take().unwrap();
    let counted = tokio::time::timeout(STEP_TIMEOUT, held).await.unwrap().unwrap();
    assert_eq!(counted.map(|(_, bytes)| bytes), Ok(10));
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    let mut stream = server.connect().await;
    stream.write_all(b"POST /hold HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n12345").await.unwrap();
    answer(&mut stream).await;
    drop(stream);
    let held = server.mirror.0.held.lock().unwrap().take().unwrap();
    assert_eq!(tokio::time::timeout(STEP_TIMEOUT, held).await.unwrap().unwrap(), Err(5));
}

#[tokio::test]
async fn short_chunks_are_joined() {
    let server = Server::start(None, ServeOptions::default()).await;
    let head = "POST /count HTTP/1.1\r\ntransfer-encoding: chunked\r\n";
    let (mut stream, answer) = send_in_two(&server, head, &chunked(1, 100_000), Duration::ZERO).await;
    let (_, counted) = answer.split_once("\r\n\r\n").unwrap();
    let pieces = counted.strip_prefix("100000 bytes in ").and_then(|rest| rest.strip_suffix(" pieces;"));
    assert!(pieces.unwrap().parse::<usize>().unwrap() < 2000, "{counted}");
    // A piece is passed on when nothing follows.
    let head = b"POST /count HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head).await.unwrap();
    for _ in 0..3 {
        stream.write_all(b"1\r\nx\r\n").await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    assert!(self::answer(&mut stream).await.ends_with("3 bytes in 3 pieces;"));
}

#[tokio::test]
async fn transfer_codings_other_than_chunked_are_refused() {
    let server = Server::start(None, ServeOptions::default()).await;
    let malformed = "Malformed";
    for (version, codings, refusal) in [
        ("1.1", &["gzip, chunked"][..], "TransferCoding"),
        ("1.1", &["gzip", "chunked"], "TransferCoding"),
        ("1.1", &["identity, chunked"], "TransferCoding"),
        ("1.1", &["gzip"], "TransferCoding"),
        ("1.1", &["identity"], "TransferCoding"),
        ("1.1", &["chunked, gzip"], "TransferCoding"),
        ("1.1", &["chunked", "identity"], "TransferCoding"),
        ("1.1", &["chunked, chunked"], malformed),
        ("1.1", &["chunked", "chunked"], malformed),
        ("1.0", &["chunked"], malformed),
    ] {
        let lines: String = codings.iter().map(|coding| format!("transfer-encoding: {coding}\r\n")).collect();
        let request = format!("POST /count HTTP/{version}\r\nhost: a\r\n{lines}\r\n0\r\n\r\n");
        let mut stream = server.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 418 "), "{request}: {answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{request}: {answer}");
        assert!(answer.split_once("\r\n\r\n").unwrap().1.starts_with(refusal), "{request}: {answer}");
    }
}

/// A proxy that obeys the other header would take a part of the body for a request, or a request for a part of it.
#[tokio::test]
async fn request_with_two_lengths_is_refused() {
    let server = Server::start(None, ServeOptions::default()).await;
    let (length, chunked) = ("content-length: 5\r\n", "transfer-encoding: chunked\r\n");
    for [first, second] in
        [[length, chunked], [chunked, length], ["Content-Length: 5\n", "Transfer-Encoding: chunked\n"]]
    {
        let request = format!("POST /a HTTP/1.1\r\nhost: a\r\n{first}x: y\r\n{second}z: y\r\n\r\n0\r\n\r\n");
        let (refusal, _) = server.refused(request.as_bytes()).await;
        let Refusal::Malformed { reason } = refusal else { panic!("{request}: {refusal:?}") };
        assert!(reason.contains("both Transfer-Encoding and Content-Length"), "{request}: {reason}");
    }
}

/// A proxy in front of the server may forbid paths, and compares them with the whole target of a request.
#[tokio::test]
async fn request_target_with_a_fragment_is_refused() {
    let server = Server::start(None, ServeOptions::default()).await;
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PURGE"] {
        for target in ["/metrics#", "/#/metrics", "/a?b#c", "http://a/b#c"] {
            let request = format!("{method} {target} HTTP/1.1\r\nhost: a\r\n\r\n");
            let (refusal, _) = server.refused(request.as_bytes()).await;
            let Refusal::Malformed { reason } = refusal else { panic!("{method} {target}: {refusal:?}") };
            assert!(reason.contains("'#'"), "{method} {target}: {reason}");
        }
    }
    // A later request of a connection is refused as well. A `#` elsewhere is not.
    let mut stream = server.connect().await;
    let first = "POST /a HTTP/1.1\r\nhost: a\r\nx: #\r\ncontent-length: 3\r\n\r\n #\n";
    let second = "GET /b# HTTP/1.1\r\nhost: a\r\n\r\n";
    stream.write_all(format!("{first}{second}").as_bytes()).await.unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.unwrap();
    let statuses: Vec<_> = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["200", "418"], "{answers}");
}
