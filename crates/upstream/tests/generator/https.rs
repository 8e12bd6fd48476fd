//! Renderers behind TLS.

use std::{fs, path::Path, sync::Arc};

use rashomon_upstream::generator::{HttpGenerator, Settings, SettingsError};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

use crate::{
    LONG_TIMEOUT, assert_failed, bytes_of, make,
    server::{Reply, Server, html, says},
    settings, source, upstream,
};

/// The certificates of the hosts `localhost` and `elsewhere`, with their keys. Each certificate is its own authority.
/// They are only for tests, and valid until the year 2126.
const LOCALHOST: (&str, &str) =
    (include_str!("certificates/localhost.pem"), include_str!("certificates/localhost.key"));
const ELSEWHERE: (&str, &str) =
    (include_str!("certificates/elsewhere.pem"), include_str!("certificates/elsewhere.key"));

/// A server that presents this certificate.
async fn server(
    (certificate, key): (&str, &str),
    reply: impl Fn(&str) -> Reply + Send + Sync + 'static,
) -> Server {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Server::over(reply, move |stream| acceptor.accept(stream)).await
}

/// A generator that reaches the server by a name, and trusts these certificates.
fn asking(server: &Server, authorities: &Path) -> HttpGenerator {
    let port = server.address.port();
    let url = format!("https://localhost:{port}/");
    let renderer =
        upstream(&[("html", source(url))], &[format!("localhost:{port}"), server.host()], LONG_TIMEOUT);
    HttpGenerator::new(Settings { authorities: Some(authorities.into()), ..settings(renderer) }).unwrap()
}

#[tokio::test]
async fn renderer_behind_tls_needs_a_trusted_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authorities.pem");
    let server = server(LOCALHOST, |_| html("<p>")).await;
    fs::write(&file, LOCALHOST.0).unwrap();
    assert_eq!(bytes_of(make(&asking(&server, &file)).await), "<p>");
    let of_another_name = self::server(ELSEWHERE, |_| html("<p>")).await;
    assert_failed(make(&asking(&of_another_name, &file)).await, "certificate");
    fs::write(&file, ELSEWHERE.0).unwrap();
    assert_failed(make(&asking(&of_another_name, &file)).await, "certificate");
    assert_failed(make(&asking(&server, &file)).await, "certificate");
    assert_eq!((server.asked(), of_another_name.asked()), (1, 0));
}

#[tokio::test]
async fn redirect_from_https_to_http_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authorities.pem");
    let plain = Server::new(|_| html("<p>")).await;
    let location = plain.url("/");
    let server =
        server(LOCALHOST, move |_| says("302 Found", &format!("location: {location}\r\n"), "")).await;
    fs::write(&file, LOCALHOST.0).unwrap();
    let url = format!("https://localhost:{}/", server.address.port());
    let hosts = [format!("localhost:{}", server.address.port()), plain.host()];
    let its = Settings {
        authorities: Some(file),
        ..settings(upstream(&[("html", source(url))], &hosts, LONG_TIMEOUT))
    };
    assert_failed(make(&HttpGenerator::new(its).unwrap()).await, "from https");
    assert_eq!(plain.asked(), 0);
}

#[test]
fn a_file_without_certificates_is_refused_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authorities.pem");
    let its = Settings { authorities: Some(file.clone()), ..Settings::default() };
    for text in [None, Some(""), Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")] {
        if let Some(text) = text {
            fs::write(&file, text).unwrap();
        }
        let error = HttpGenerator::new(its.clone()).unwrap_err();
        assert!(matches!(error, SettingsError::Authorities(_)), "{error:?}");
        assert!(error.to_string().contains("Name a file of certificates"), "{error}");
    }
}
