//! Asks two backends at once: servers, and code of the program.
//!
//! ```sh
//! rashomon demo &
//! cargo run -p rashomon-client --example registry -- http://127.0.0.1:7231
//! ```

use std::{env::args, error::Error};

use futures::future::BoxFuture;
use rashomon_client::{Backend, Body, RawRequest, Registry, Servers, Store, TransportError};

/// A backend that gives one answer.
#[derive(Debug)]
struct Pong;

impl Backend for Pong {
    fn send(&self, _: http::Request<Body>) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>> {
        Box::pin(async { Ok(http::Response::new(Body::from("pong"))) })
    }
}

/// Returns a line for each answer.
pub(crate) async fn ask(server: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let registry =
        Registry::for_domain("enwiki")?.servers("/", Servers::new([server])).backend("/ping", Pong);
    let store = Store::of(registry)?;
    let requests = ["/page/No_such_page?rev/latest/html", "/ping/me"].map(RawRequest::get);
    let mut lines = Vec::new();
    for result in store.run(requests).await {
        let answer = result?;
        lines.push(match answer.status.is_success() {
            true => format!("{}: {}", answer.status, String::from_utf8_lossy(&answer.body)),
            false => answer.status.to_string(),
        });
    }
    Ok(lines)
}

#[tokio::main]
#[allow(clippy::print_stdout)] // The result of the program.
async fn main() -> Result<(), Box<dyn Error>> {
    let server = args().nth(1).ok_or("usage: registry SERVER")?;
    for line in ask(&server).await? {
        println!("{line}");
    }
    Ok(())
}
