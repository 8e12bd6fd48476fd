//! The certificate authorities that a client trusts.

use std::path::Path;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// There are no authorities by which the certificate of a server can be checked. The text is the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AuthoritiesError(String);

/// The settings of a client that checks certificates by the authorities in a file (PEM), or by those of the system
/// if `authorities` is `None`. If the environment variable `SSL_CERT_FILE` or `SSL_CERT_DIR` is set, its authorities
/// replace those of the system.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or contains no certificate or an unusable one. If the system has no
/// authorities, returns an error only if `needs_tls` is set: without authorities, a client can still reach servers
/// without TLS.
pub fn client_config(authorities: Option<&Path>, needs_tls: bool) -> Result<ClientConfig, AuthoritiesError> {
    let roots = match authorities {
        Some(file) => roots_of(file)?,
        None => system_roots(needs_tls)?,
    };
    let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|error| AuthoritiesError(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn roots_of(file: &Path) -> Result<RootCertStore, AuthoritiesError> {
    let error = |why: String| AuthoritiesError(format!("{}: {why}", file.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|why| error(why.to_string()))? {
        let certificate = certificate.map_err(|why| error(why.to_string()))?;
        roots.add(certificate).map_err(|why| error(why.to_string()))?;
    }
    if roots.is_empty() { Err(error("the file has no certificate".to_owned())) } else { Ok(roots) }
}

fn system_roots(needs_tls: bool) -> Result<RootCertStore, AuthoritiesError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some certificates of a system may be unreadable. Such certificates are skipped.
    roots.add_parsable_certificates(found.certs);
    if needs_tls && roots.is_empty() {
        let why = found
            .errors
            .first()
            .map_or_else(|| "the system has no certificates".to_owned(), ToString::to_string);
        return Err(AuthoritiesError(why));
    }
    Ok(roots)
}
