//! TLS.

use std::{fs, time::Duration};

use rashomon_client::{Error, Servers, TransportError};
use rashomon_server::access::Policy;
use rashomon_server::{Tls, TlsFiles};

use crate::{
    server::Server,
    socket::{page_of, quick},
};

/// A certificate for `localhost`, which is its own authority, with its key.
const CERTIFICATE: &str = include_str!("../../../upstream/tests/generator/certificates/localhost.pem");
const KEY: &str = include_str!("../../../upstream/tests/generator/certificates/localhost.key");
const ELSEWHERE: &str = include_str!("../../../upstream/tests/generator/certificates/elsewhere.pem");

#[tokio::test]
async fn certificate_is_checked_by_the_authorities_of_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        fs::write(directory.path().join(name), content).unwrap();
        directory.path().join(name)
    };
    let (certificate, key) = (file("certificate", CERTIFICATE), file("key", KEY));
    let tls = Tls::load(TlsFiles { certificate: certificate.clone(), key }).unwrap();
    let server = Server::with(Policy::Open, Some(tls)).await;
    let servers = |host: &str| {
        Servers::new([format!("https://{host}:{}", server.address.port())]).pause(Duration::ZERO)
    };

    let page = page_of(servers("localhost").authorities_file(&certificate));
    page.new_revision(1).property("html", "x").send().await.unwrap();
    assert_eq!(page.latest("html").await.unwrap().text(9).await.unwrap(), "x");

    for untrusting in [
        servers("localhost").authorities_file(file("elsewhere", ELSEWHERE)),
        // The certificate is not for this name.
        servers("127.0.0.1").authorities_file(&certificate),
    ] {
        // The request may be repeated, because nothing was sent.
        let error = page_of(untrusting).new_render(1).property("html", "y").send().await.unwrap_err();
        assert!(
            matches!(&error, Error::Transport(error @ TransportError::Connect { .. }) if error.is_unsent())
        );
        assert!(error.to_string().contains("certificate"), "{error}");
    }
}

#[tokio::test]
async fn handshake_that_does_not_continue_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let authorities = directory.path().join("certificate");
    fs::write(&authorities, CERTIFICATE).unwrap();
    // The system accepts connections, and nobody answers.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let limit = Duration::from_millis(200);
    let page = page_of(quick([url]).authorities_file(&authorities).connect_timeout(limit).attempts(1));
    let error = page.latest("html").await.unwrap_err();
    assert!(error.to_string().contains("no connection within 0.2 s"), "{error}");
}
