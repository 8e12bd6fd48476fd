//! The certificate and the key of a server with TLS.

use rashomon_server::{Tls, TlsFiles};

use super::{ConfigError, Settings};

impl Settings {
    /// Loads the certificate and the key. Returns `None` if the server uses no TLS.
    ///
    /// # Errors
    ///
    /// Returns an error if only one of the two files is configured, or if they cannot be used.
    pub(crate) fn tls(&self) -> Result<Option<Tls>, ConfigError> {
        let files = match (&self.merged.tls_certificate, &self.merged.tls_key) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => TlsFiles { certificate: certificate.clone(), key: key.clone() },
            (Some(_), None) => return Err(incomplete("tls_certificate", "tls_key", "the private key")),
            (None, Some(_)) => return Err(incomplete("tls_key", "tls_certificate", "the certificate")),
        };
        Tls::load(files).map(Some).map_err(|error| ConfigError::File(error.to_string()))
    }

    /// The scheme of the server's URLs.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.merged.tls_certificate.is_some() { "https" } else { "http" }
    }
}

fn incomplete(present: &str, absent: &str, meaning: &str) -> ConfigError {
    ConfigError::File(format!(
        "{present} is set, but {absent} is not: set {absent} to the PEM file with {meaning}, or remove {present}"
    ))
}
