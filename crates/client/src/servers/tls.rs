//! The settings of TLS.

use std::path::Path;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::{BoxError, ConfigError};

/// The protocol that the client offers by ALPN.
const HTTP_1_1: &[u8] = b"http/1.1";

/// The settings of a client that checks certificates by the authorities in a file (PEM), or by those of the system.
pub(crate) fn client_config(authorities: Option<&Path>) -> Result<ClientConfig, ConfigError> {
    let roots = match authorities {
        Some(file) => roots_of(file)
            .map_err(|error| ConfigError::Authorities(format!("{}: {error}", file.display()).into()))?,
        None => system_roots().map_err(ConfigError::Authorities)?,
    };
    let mut config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|error| ConfigError::Authorities(error.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    Ok(config)
}

fn roots_of(file: &Path) -> Result<RootCertStore, BoxError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file)? {
        roots.add(certificate?)?;
    }
    if roots.is_empty() { Err("the file has no certificate".into()) } else { Ok(roots) }
}

fn system_roots() -> Result<RootCertStore, BoxError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some certificates of a system may be unreadable. Such certificates are skipped.
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    match found.errors.into_iter().next() {
        Some(error) => Err(error.into()),
        None => Err("the system has none: name a PEM file of certificates".into()),
    }
}
