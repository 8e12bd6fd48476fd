//! TLS: the certificate of the server and its key, which are replaced when their files change.

use std::{
    fmt,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use xxhash_rust::xxh3::xxh3_128;

/// How often a server should call [`Tls::reload`].
pub const TLS_RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// The size limit of a file with certificates or a key.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The settings that name the files, for error messages.
const CERTIFICATE: &str = "tls_certificate";
const KEY: &str = "tls_key";

/// The protocol that a client may select by ALPN (RFC 7301). Decision 0031 says why there is no other one.
const HTTP_1_1: &[u8] = b"http/1.1";

/// The first byte of a TLS connection: the record type of a handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;

/// The files of a certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the server, followed by those of the intermediate authorities.
    pub certificate: PathBuf,
    /// The private key of the certificate, without a password. May be the same file.
    pub key: PathBuf,
}

/// Why a certificate and its key cannot be used.
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
        /// The error of the operating system.
        source: io::Error,
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

/// The server's side of TLS, with the certificate and the key that are in use. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    files: TlsFiles,
    loaded: RwLock<Loaded>,
    /// Why the files could not be loaded the last time. `None` if they could.
    failure: Mutex<Option<String>>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    /// Identifies the content of the files.
    fingerprint: u128,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}

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
        let loaded = Contents::read(&files)?.load(&files)?;
        Ok(Self(Arc::new(Shared { files, loaded: RwLock::new(loaded), failure: Mutex::new(None) })))
    }

    /// Loads the certificate and its key again if the files have changed. Existing connections keep theirs.
    ///
    /// If the files cannot be used, nothing changes, and the reason is logged: once, or at every call with
    /// `requested`, which means that somebody waits for the result.
    pub async fn reload(&self, requested: bool) -> TlsReload {
        let shared = Arc::clone(&self.0);
        // The files may be on a disk that does not answer.
        let reloaded = tokio::task::spawn_blocking(move || shared.reload(requested)).await;
        reloaded.unwrap_or(TlsReload::Failed)
    }

    /// The acceptor of a new connection.
    fn acceptor(&self) -> TlsAcceptor {
        let loaded = self.0.loaded.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&loaded.config).into()
    }
}

impl Shared {
    fn reload(&self, requested: bool) -> TlsReload {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = Contents::read(&self.files).and_then(|contents| {
            let current = self.loaded.read().unwrap_or_else(PoisonError::into_inner).fingerprint;
            if contents.fingerprint() == current { Ok(None) } else { contents.load(&self.files).map(Some) }
        });
        match loaded {
            Ok(None) => {
                *failure = None;
                TlsReload::Unchanged
            }
            Ok(Some(loaded)) => {
                *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
                *failure = None;
                tracing::info!(
                    certificate = %self.files.certificate.display(),
                    "the TLS certificate has changed; new connections get the new one"
                );
                TlsReload::Replaced
            }
            Err(error) => {
                let error = error.to_string();
                if requested || failure.as_ref() != Some(&error) {
                    tracing::warn!(
                        %error,
                        "cannot load the changed TLS certificate; the previous one stays in use"
                    );
                }
                *failure = Some(error);
                TlsReload::Failed
            }
        }
    }
}

/// The bytes of the two files.
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Contents {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Self { certificate: read(CERTIFICATE, &files.certificate)?, key: read(KEY, &files.key)? })
    }

    fn fingerprint(&self) -> u128 {
        let hashes = [xxh3_128(&self.certificate), xxh3_128(&self.key)].map(u128::to_le_bytes);
        xxh3_128(&hashes.concat())
    }

    fn load(self, files: &TlsFiles) -> Result<Loaded, TlsError> {
        let fingerprint = self.fingerprint();
        let certificates = self.certificates(&files.certificate)?;
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
        Ok(Loaded { config: config.into(), fingerprint })
    }

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

/// Reads a regular file. Another kind of file could make the server wait, and could not be read again.
fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { setting, path: path.to_owned(), source };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unusable(setting, path, "is not a regular file: name a PEM file"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let why =
            format!("has more than {MAX_FILE_BYTES} bytes: write only the needed certificates or the key");
        return Err(unusable(setting, path, why));
    }
    Ok(bytes)
}

/// A connection with TLS.
pub(crate) type TlsStream<S> = tokio_rustls::server::TlsStream<S>;

/// The beginning of a connection, as the client sent it.
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
    /// Waits for the first byte of a connection, and leaves it there.
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
        self.acceptor().accept(stream).await
    }
}

#[cfg(test)]
mod tests;
