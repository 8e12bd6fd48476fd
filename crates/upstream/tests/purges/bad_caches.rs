//! Caches over HTTP: good ones, and those that answer wrongly or not at all.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use rashomon_clock::SystemClock;
use rashomon_pages::Retention;
use rashomon_protocol::surrogate_keys::SurrogateKey;
use rashomon_tables::Memory;
use rashomon_upstream::PooledClient;
use rashomon_upstream::purges::{CacheMethod, CacheSettings, HttpTransport, PurgeRequest, Transport};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::Notify,
};

use crate::world::{World, cache_settings, page};

/// What a server does with a request.
#[derive(Debug, Clone, Copy)]
enum Reaction {
    Answer(&'static str),
    Close,
    Nothing,
}

/// A server with scripted reactions. After the script, it answers 200.
struct Server {
    address: String,
    heads: Arc<Mutex<Vec<String>>>,
    received: Arc<Notify>,
}

impl Server {
    async fn start(script: impl Into<VecDeque<Reaction>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (heads, received) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let script = Arc::new(Mutex::new(script.into()));
        let server = Self { address, heads: Arc::clone(&heads), received: Arc::clone(&received) };
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (heads, received, script) =
                    (Arc::clone(&heads), Arc::clone(&received), Arc::clone(&script));
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    while stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
                        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
                            continue;
                        };
                        let head: Vec<u8> = bytes.drain(..end + 4).collect();
                        let reaction = script.lock().unwrap().pop_front();
                        heads.lock().unwrap().push(String::from_utf8(head).unwrap());
                        received.notify_waiters();
                        match reaction.unwrap_or(Reaction::Answer("200 OK")) {
                            Reaction::Answer(status) => {
                                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
                                if stream.write_all(answer.as_bytes()).await.is_err() {
                                    return;
                                }
                            }
                            Reaction::Close => return,
                            Reaction::Nothing => std::future::pending().await,
                        }
                    }
                });
            }
        });
        server
    }

    fn transport(&self, timeout: Duration) -> HttpTransport {
        let client = PooledClient::new(None, false).unwrap();
        HttpTransport::new(client, format!("http://{}", self.address).parse().unwrap(), timeout)
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// Waits until the server has received this many requests that begin with a text.
    async fn wait_for(&self, begin: &str, times: usize) {
        let waiting = async {
            loop {
                let received = self.received.notified();
                if self.heads().iter().filter(|head| head.starts_with(begin)).count() >= times {
                    return;
                }
                received.await;
            }
        };
        let limit = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        assert!(limit.is_ok(), "{begin}: {:?}", self.heads());
    }
}

/// A timeout that no request of the tests reaches.
const LONG: Duration = Duration::from_secs(30);

fn url(host: &str, path: &str) -> PurgeRequest {
    PurgeRequest::Url { host: host.to_owned(), path: path.to_owned() }
}

#[tokio::test]
async fn requests_name_the_host_and_the_exact_url() {
    let server = Server::start([]).await;
    let transport = server.transport(LONG);
    let path = "/wiki/R&D's_1+1=2%3F//x?rev/latest/html";
    transport.send(&url("en.example.org", path)).await.unwrap();
    let key = SurrogateKey::of_page(&page("A"));
    transport.send(&PurgeRequest::Keys(vec![key, key])).await.unwrap();
    let ban = PurgeRequest::Prefix { host: "en.example.org".to_owned(), prefix: "/".to_owned() };
    transport.send(&ban).await.unwrap();
    let heads = server.heads();
    assert!(heads[0].starts_with(&format!("PURGE {path} HTTP/1.1\r\n")), "{heads:?}");
    assert!(heads[0].contains("host: en.example.org\r\n"), "{heads:?}");
    assert!(heads[1].starts_with("PURGE / HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads[1].contains(&format!("surrogate-key: {key} {key}\r\n")), "{heads:?}");
    assert!(heads[2].starts_with("BAN / HTTP/1.1\r\n"), "{heads:?}");
}

#[tokio::test]
async fn only_success_and_404_count_as_acknowledged() {
    for (status, is_acknowledged) in [
        ("200 OK", true),
        ("204 No Content", true),
        ("404 Not Found", true),
        ("301 Moved Permanently", false),
        ("403 Forbidden", false),
        ("405 Method Not Allowed", false),
        ("500 Internal Server Error", false),
        ("503 Service Unavailable", false),
    ] {
        let server = Server::start([Reaction::Answer(status)]).await;
        let sent = server.transport(LONG).send(&url("a", "/x")).await;
        assert_eq!(sent.is_ok(), is_acknowledged, "{status}: {sent:?}");
    }
    let server = Server::start([Reaction::Close]).await;
    server.transport(LONG).send(&url("a", "/x")).await.unwrap_err();
    let server = Server::start([Reaction::Nothing]).await;
    let error = server.transport(Duration::from_millis(50)).send(&url("a", "/x")).await.unwrap_err();
    assert!(error.contains("no complete answer"), "{error}");
    let server = Server::start([Reaction::Answer("nonsense")]).await;
    server.transport(LONG).send(&url("a", "/x")).await.unwrap_err();
}

#[tokio::test]
async fn bad_caches_get_every_purge_in_the_end() {
    use Reaction::{Answer, Close, Nothing};
    let mut script = vec![Answer("200 OK")];
    script.extend([
        Answer("500 Internal Server Error"),
        Close,
        Nothing,
        Close,
        Answer("500 Internal Server Error"),
    ]);
    let bad = Server::start(script).await;
    let good = Server::start([]).await;
    let clock = Arc::new(SystemClock::new());
    let caches: Vec<(CacheSettings, Arc<dyn Transport>)> = vec![
        (cache_settings("bad", CacheMethod::Purge), Arc::new(bad.transport(Duration::from_millis(50)))),
        (cache_settings("good", CacheMethod::Keys), Arc::new(good.transport(LONG))),
    ];
    let store = Arc::new(Memory::new(clock.clone()));
    let world = World::open(store, clock, Retention::default(), caches).await.run();
    bad.wait_for("BAN / ", 1).await;
    good.wait_for("BAN / ", 1).await;
    world.revision("A", 1).await;
    good.wait_for("PURGE / ", 1).await;
    bad.wait_for("PURGE /wiki/A?rev/latest/html ", 1).await;
    bad.wait_for("PURGE /v1/enwiki/page/A?rev/latest/html ", 1).await;
}
