//! Certificates and their keys in files, and clients that trust the certificates.

use std::{fs, path::PathBuf, sync::Arc};

use rashomon_server::{Tls, TlsFiles};
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::socket::Server;

/// A certificate and its key, in PEM.
pub(crate) type Pair = (&'static str, &'static str);

/// Certificates for hosts with these names, each its own authority, with their keys. They are valid until the year
/// 2126.
pub(crate) const LOCALHOST: Pair = (
    include_str!("../../../upstream/tests/generator/certificates/localhost.pem"),
    include_str!("../../../upstream/tests/generator/certificates/localhost.key"),
);
pub(crate) const ELSEWHERE: Pair = (
    include_str!("../../../upstream/tests/generator/certificates/elsewhere.pem"),
    include_str!("../../../upstream/tests/generator/certificates/elsewhere.key"),
);

/// The files of a server's certificate.
pub(crate) struct Files {
    directory: TempDir,
    pub(crate) files: TlsFiles,
}

impl Files {
    pub(crate) fn of((certificate, key): Pair) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = TlsFiles {
            certificate: directory.path().join("chain.pem"),
            key: directory.path().join("key.pem"),
        };
        fs::write(&files.certificate, certificate).unwrap();
        fs::write(&files.key, key).unwrap();
        Self { directory, files }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn tls(&self) -> Tls {
        Tls::load(self.files.clone()).unwrap()
    }

    /// Replaces both files by renaming others.
    pub(crate) fn rename(&self, (certificate, key): Pair) {
        fs::write(self.path("new chain"), certificate).unwrap();
        fs::write(self.path("new key"), key).unwrap();
        fs::rename(self.path("new chain"), &self.files.certificate).unwrap();
        fs::rename(self.path("new key"), &self.files.key).unwrap();
    }
}

/// The settings of a client that trusts both certificates, and offers these protocols.
pub(crate) fn client(versions: &[&'static SupportedProtocolVersion], protocols: &[&str]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for (certificate, _) in [LOCALHOST, ELSEWHERE] {
        roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    config
}

impl Server {
    /// Connects with TLS to the server of this name.
    pub(crate) async fn connect_with_tls(&self, name: &'static str) -> TlsStream<TcpStream> {
        self.negotiate(client(rustls::ALL_VERSIONS, &["h2", "http/1.1"]), name).await.unwrap()
    }

    pub(crate) async fn negotiate(
        &self,
        config: ClientConfig,
        name: &'static str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(ServerName::try_from(name).unwrap(), self.connect().await).await
    }
}
