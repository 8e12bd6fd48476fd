//! The registry, and several requests at once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
use rashomon_client::{
    Backend, Body, Error, InputError, RawRequest, Registry, Servers, Store, TransportError,
};
use tokio::sync::Barrier;

use crate::{
    server::Server,
    socket::{Behavior::Answer, FakeServer, OK, quick, refusing},
};

#[tokio::test]
async fn requests_run_side_by_side_with_results_in_their_order() {
    let (english, german) = (Server::start().await, Server::start().await);
    let registry = Registry::for_domain("enwiki")
        .unwrap()
        .servers("/", Servers::new([english.url()]))
        .servers("//dewiki", Servers::new([german.url()]))
        .servers("/broken", quick([refusing().await]).attempts(1));
    let store = Store::of(registry).unwrap();
    let write = |path: &str| RawRequest::post(path).form([("_rev", "1"), ("html", "<p>é & ü")]);
    let results = store
        .run([
            write("/page/Über uns?rev/"),
            RawRequest::get("/broken/A"),
            RawRequest::get("/page/No_page?rev/latest/"),
            RawRequest::get("page/A"),
            write("//dewiki/page/A?rev/"),
        ])
        .await;
    assert_eq!(results.len(), 5);
    assert_eq!(results[0].as_ref().unwrap().status, 201);
    assert!(matches!(results[1], Err(Error::Transport(_))));
    assert_eq!(results[2].as_ref().unwrap().status, 404);
    assert!(matches!(results[3], Err(Error::Input(InputError::Path { .. }))));
    assert_eq!(results[4].as_ref().unwrap().status, 201);
    for (server, domain, title) in [(&english, "enwiki", "Über uns"), (&german, "dewiki", "A")] {
        let page = server.store().domain(domain).unwrap().page(title).unwrap();
        assert_eq!(page.latest("html").await.unwrap().text(100).await.unwrap(), "<p>é & ü");
    }
    assert!(german.store().domain("enwiki").unwrap().page("Über uns").unwrap().latest("html").await.is_err());
    // Redirects are returned.
    let results = store.run([RawRequest::get("/page/Über uns?rev/1/html")]).await;
    assert_eq!(results[0].as_ref().unwrap().status, 301);
}

#[tokio::test]
async fn many_requests_are_answered_in_order() {
    let server = Server::start().await;
    let page = server.page("A");
    for number in 1..=40 {
        page.new_revision(number).property("html", format!("{number}")).send().await.unwrap();
    }
    let registry = Registry::for_domain("enwiki").unwrap().servers("/", Servers::new([server.url()]));
    let store = Store::of(registry).unwrap();
    let results = store.run((1..=40).map(|number| RawRequest::get(format!("/page/A?rev/{number}/")))).await;
    for (number, result) in (1..=40).zip(results) {
        let body = result.unwrap().body;
        assert!(body.starts_with(format!("{{\"rev\":{number},").as_bytes()), "{body:?}");
    }
}

#[tokio::test]
async fn path_without_a_backend_is_refused() {
    let server = FakeServer::start(&[Answer(OK)]).await;
    let registry = Registry::new().servers("//enwiki", quick([server.url()]));
    let store = Store::of(registry).unwrap();
    let error = store.domain("dewiki").unwrap().page("A").unwrap().latest("html").await.unwrap_err();
    assert!(matches!(error, Error::Input(InputError::NoBackend(_))), "{error}");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn prefix_of_a_proxy_is_added() {
    let server = FakeServer::start(&[Answer(OK)]).await;
    let store = Store::new(quick([format!("{}/store/", server.url())])).unwrap();
    store.domain("enwiki").unwrap().page("A b").unwrap().latest("html").await.unwrap();
    let request = &server.requests()[0];
    assert!(request.starts_with("GET /store/v1/enwiki/page/A_b?rev/latest/html HTTP/1.1\r\n"), "{request}");
}

/// A backend that answers when 16 requests are there, and counts the requests that run.
#[derive(Debug)]
struct BarrierBackend {
    barrier: Barrier,
    running: AtomicUsize,
    most: Arc<AtomicUsize>,
}

impl Backend for BarrierBackend {
    fn send(&self, _: http::Request<Body>) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>> {
        Box::pin(async {
            self.most.fetch_max(self.running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            self.barrier.wait().await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            Ok(http::Response::new(Body::empty()))
        })
    }
}

#[tokio::test]
async fn sixteen_requests_run_at_the_same_time() {
    let most = Arc::new(AtomicUsize::new(0));
    let backend =
        BarrierBackend { barrier: Barrier::new(16), running: AtomicUsize::new(0), most: Arc::clone(&most) };
    let store = Store::of(Registry::for_domain("enwiki").unwrap().backend("/", backend)).unwrap();
    let results = store.run((0..64).map(|_| RawRequest::get("/page/A"))).await;
    assert!(results.len() == 64 && results.iter().all(Result::is_ok));
    assert_eq!(most.load(Ordering::SeqCst), 16);
}
