//! TLS: the certificate of the server and its key, which are replaced when their files change.

mod expiry;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rashomon_clock::watched_file::{ReadError, Reload, Source, Watched, read_regular_file};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use x509_cert::der;

use self::expiry::Validity;
pub use self::expiry::{ExpiryLog, ExpiryNotice};

/// How often a server should call [`Tls::reload`].
pub const TLS_RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// The size limit of a file with certificates or a key.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The settings that name the files, for error messages.
const CERTIFICATE: &str = "tls_certificate";
const KEY: &str = "tls_key";

/// The only protocol that a client may select by ALPN (RFC 7301). Decision 0031 has the reason.
const HTTP_1_1: &[u8] = b"http/1.1";

/// The first byte of a TLS connection: the record type of a handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;

/// The files of a certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the server, followed by those of the intermediate authorities.
    pub certificate: PathBuf,
    /// The private key of the certificate, without a password. The key may be in the same file as the certificate.
    pub key: PathBuf,
}

/// The reason why a certificate and its key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {setting} {}: {source}; name a PEM file that the server may read", path.display())]
    Unreadable {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: ReadError,
    },
    /// A file does not have the expected content.
    #[error("{setting} {} {why}", path.display())]
    Unusable {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong, and how to correct it.
        why: String,
    },
    /// The key is not that of the certificate.
    #[error(
        "the key in {KEY} {} does not belong to the first certificate in {CERTIFICATE} {}: name the key of this \
         certificate, and put the certificate of the server before those of the authorities",
        files.key.display(),
        files.certificate.display()
    )]
    Mismatch {
        /// The files.
        files: TlsFiles,
    },
}

/// The server's side of TLS. It has the certificate and the key that are in use. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tls(Arc<Watched<PemFiles>>);

/// The result of [`Tls::reload`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsReload {
    /// The files have the content that is in use.
    Unchanged,
    /// New connections get the certificate that the files have now.
    Replaced,
    /// The files cannot be used. The certificate that was in use before stays in use.
    Failed,
}

impl Tls {
    /// Loads a certificate and its key.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read, has no certificate or no key, or if the key is not that of the
    /// certificate.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        Watched::open(PemFiles(files)).map(|watched| Self(Arc::new(watched)))
    }

    /// Loads the certificate and its key again if the files have changed. Existing connections keep the old ones.
    ///
    /// If the files cannot be used, nothing changes. The reason is logged if it is new, or if `requested` is set, which
    /// means that an operator asked for the reload.
    pub async fn reload(&self, requested: bool) -> TlsReload {
        let this = self.clone();
        // The files may be on a disk that does not answer.
        let reloaded = tokio::task::spawn_blocking(move || this.reload_blocking(requested)).await;
        reloaded.unwrap_or(TlsReload::Failed)
    }

    fn reload_blocking(&self, requested: bool) -> TlsReload {
        match self.0.reload() {
            Reload::Unchanged => TlsReload::Unchanged,
            Reload::Replaced => {
                let PemFiles(files) = self.0.source();
                tracing::info!(
                    certificate = %files.certificate.display(),
                    "TLS certificate or key has changed; new connections use it"
                );
                TlsReload::Replaced
            }
            Reload::Failed { error, is_new } => {
                if requested || is_new {
                    tracing::warn!(
                        %error,
                        "cannot load the TLS certificate and key again; the previous ones stay in use"
                    );
                }
                TlsReload::Failed
            }
        }
    }
}

/// The files from which the configuration of TLS is loaded.
#[derive(Debug)]
struct PemFiles(TlsFiles);

impl Source for PemFiles {
    type Contents = Contents;
    type Value = LoadedCertificate;
    type Error = TlsError;

    fn read(&self) -> Result<Contents, TlsError> {
        let TlsFiles { certificate, key } = &self.0;
        Ok(Contents { certificate: read(CERTIFICATE, certificate)?, key: read(KEY, key)? })
    }

    fn parse(&self, contents: Contents) -> Result<LoadedCertificate, TlsError> {
        contents.load(&self.0)
    }
}

/// A certificate that is in use.
#[derive(Debug)]
struct LoadedCertificate {
    config: Arc<ServerConfig>,
    /// The validity of the certificate. TLS works without this value, so a certificate is used even if its validity
    /// cannot be read.
    validity: Result<Validity, der::Error>,
}

/// The bytes of the two files.
#[derive(Hash)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Contents {
    fn load(&self, files: &TlsFiles) -> Result<LoadedCertificate, TlsError> {
        let certificates = self.certificates(&files.certificate)?;
        // The first certificate is the certificate of the server.
        let validity = Validity::of(&certificates[0]);
        let key = self.key(&files.key)?;
        let unusable = |error: rustls::Error| match error {
            rustls::Error::InconsistentKeys(_) => TlsError::Mismatch { files: files.clone() },
            error @ rustls::Error::InvalidCertificate(_) => unusable(
                CERTIFICATE,
                &files.certificate,
                format!("has a certificate that cannot be read ({error}): write it again"),
            ),
            error => unusable(
                KEY,
                &files.key,
                format!(
                    "has a key that cannot be used ({error}): use an RSA, ECDSA or Ed25519 key in PKCS #8"
                ),
            ),
        };
        let mut config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .map_err(unusable)?;
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        Ok(LoadedCertificate { config: Arc::new(config), validity })
    }

    /// The certificates of a file, at least one.
    fn certificates(&self, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        match certificates {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_) => Err(unusable(
                CERTIFICATE,
                path,
                "has no certificate: write the certificate of the server in PEM (BEGIN CERTIFICATE), and after it \
                 those of the intermediate authorities",
            )),
            Err(error) => {
                Err(unusable(CERTIFICATE, path, format!("is not a PEM file ({error}): write it again")))
            }
        }
    }

    fn key(&self, path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
        let is_encrypted = self.key.windows(b"ENCRYPTED".len()).any(|word| word == b"ENCRYPTED");
        PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| match error {
            _ if is_encrypted => unusable(
                KEY,
                path,
                "has a key with a password: write the key without one, as in openssl pkey -in OLD -out NEW",
            ),
            rustls::pki_types::pem::Error::NoItemsFound => unusable(
                KEY,
                path,
                "has no private key: write the key of the certificate in PEM (BEGIN PRIVATE KEY)",
            ),
            error => unusable(KEY, path, format!("is not a PEM file ({error}): write it again")),
        })
    }
}

fn unusable(setting: &'static str, path: &Path, why: impl Into<String>) -> TlsError {
    TlsError::Unusable { setting, path: path.to_owned(), why: why.into() }
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    read_regular_file(path, MAX_FILE_BYTES).map_err(|error| match error {
        ReadError::NotRegular => unusable(setting, path, "is not a regular file: name a PEM file"),
        ReadError::TooLarge { max_bytes } => {
            let why =
                format!("has more than {max_bytes} bytes: write only the needed certificates or the key");
            unusable(setting, path, why)
        }
        source => TlsError::Unreadable { setting, path: path.to_owned(), source },
    })
}

/// A connection with TLS.
pub(crate) type TlsStream<S> = tokio_rustls::server::TlsStream<S>;

/// The kind of the first byte that a client sent on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// The client has closed the connection.
    Nothing,
    /// A text, as in a request without TLS.
    Text,
    /// A handshake of TLS, or bytes of another protocol.
    Handshake,
}

impl Opening {
    /// Waits for the first byte of a connection, without consuming it.
    pub(crate) async fn of(stream: &TcpStream) -> io::Result<Self> {
        let mut first = [0];
        Ok(match stream.peek(&mut first).await? {
            0 => Self::Nothing,
            _ if first[0] == HANDSHAKE => Self::Handshake,
            // The method of a request, or an empty line before it (RFC 9112, section 2.2).
            _ if first[0].is_ascii_graphic() || matches!(first[0], b'\r' | b'\n') => Self::Text,
            _ => Self::Handshake,
        })
    }
}

impl Tls {
    /// Negotiates TLS on a connection.
    pub(crate) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        TlsAcceptor::from(Arc::clone(&self.0.current().config)).accept(stream).await
    }
}

#[cfg(test)]
mod tests;
