use std::{
    fs,
    io::Write,
    sync::{Arc, LazyLock, Mutex, MutexGuard},
};

use tempfile::TempDir;
use tracing_subscriber::fmt::MakeWriter;

use super::*;

pub(super) const CERTIFICATE_OF_LOCALHOST: &str =
    include_str!("../../../../upstream/tests/generator/certificates/localhost.pem");
pub(super) const KEY_OF_LOCALHOST: &str =
    include_str!("../../../../upstream/tests/generator/certificates/localhost.key");
const KEY_OF_ELSEWHERE: &str =
    include_str!("../../../../upstream/tests/generator/certificates/elsewhere.key");

pub(super) fn files(certificate: &str, key: &str) -> (TempDir, TlsFiles) {
    let directory = tempfile::tempdir().unwrap();
    let files =
        TlsFiles { certificate: directory.path().join("chain.pem"), key: directory.path().join("key.pem") };
    fs::write(&files.certificate, certificate).unwrap();
    fs::write(&files.key, key).unwrap();
    (directory, files)
}

/// A second subscriber. With only one subscriber in the process, `tracing` decides for each log statement whether it is
/// enabled, in the thread that reaches the statement first, and caches the result. A test in another thread, which has
/// no subscriber, would disable the statement.
static SECOND: LazyLock<tracing::Dispatch> =
    LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::fmt().with_writer(std::io::sink).finish()));

/// Collects the lines of the log.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Runs `logging`, and collects what it logs.
    pub(super) fn of(logging: impl FnOnce()) -> String {
        let log = Self::default();
        log.collect(logging);
        log.text()
    }

    /// Adds what `logging` logs.
    fn collect(&self, logging: impl FnOnce()) {
        LazyLock::force(&SECOND);
        let subscriber = tracing_subscriber::fmt().with_writer(self.clone()).finish();
        tracing::subscriber::with_default(subscriber, logging);
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.bytes().clone()).unwrap()
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[test]
fn unusable_files_are_refused_with_their_names_and_a_remedy() {
    let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let broken_key = "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n";
    let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let large = "x".repeat(2 << 20);
    let (certificate, key) = (CERTIFICATE_OF_LOCALHOST, KEY_OF_LOCALHOST);
    for (certificate, key, words) in [
        ("", key, &["tls_certificate", "chain.pem", "no certificate", "PEM"][..]),
        (key, key, &["tls_certificate", "chain.pem", "no certificate"]),
        (broken, key, &["tls_certificate", "chain.pem", "not a PEM file"]),
        (no_certificate, key, &["tls_certificate", "chain.pem", "cannot be read"]),
        (&large, key, &["tls_certificate", "chain.pem", "more than"]),
        (certificate, "", &["tls_key", "key.pem", "no private key"]),
        (certificate, certificate, &["tls_key", "key.pem", "no private key"]),
        (certificate, broken_key, &["tls_key", "key.pem", "not a PEM file"]),
        (certificate, no_key, &["tls_key", "key.pem", "cannot be used"]),
        (certificate, encrypted, &["tls_key", "key.pem", "with a password", "openssl pkey"]),
        (certificate, KEY_OF_ELSEWHERE, &["key.pem", "does not belong to", "chain.pem"]),
    ] {
        let (_directory, files) = files(certificate, key);
        let error = Tls::load(files).unwrap_err().to_string();
        words.iter().for_each(|word| assert!(error.contains(word), "no {word:?} in {error}"));
    }
    let (directory, files) = files(certificate, key);
    Tls::load(files.clone()).unwrap();
    let error = Tls::load(TlsFiles { key: directory.path().into(), ..files.clone() }).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
    fs::remove_file(&files.key).unwrap();
    let error = Tls::load(files).unwrap_err().to_string();
    assert!(error.contains("cannot read tls_key") && error.contains("key.pem"), "{error}");
}

#[test]
fn one_file_may_have_the_certificate_and_the_key() {
    let both = format!("{KEY_OF_LOCALHOST}{CERTIFICATE_OF_LOCALHOST}");
    let (_directory, files) = files(&both, "");
    Tls::load(TlsFiles { key: files.certificate.clone(), ..files }).unwrap();
}

#[test]
fn failed_reload_is_logged_once_unless_it_was_requested() {
    let (_directory, files) = files(CERTIFICATE_OF_LOCALHOST, KEY_OF_LOCALHOST);
    let tls = Tls::load(files.clone()).unwrap();
    let log = Log::default();
    log.collect(|| {
        let warnings = || {
            let text = log.text();
            text.lines().filter(|line| line.contains("WARN") && line.contains("tls_key")).count()
        };
        fs::write(&files.key, "").unwrap();
        for _ in 0..3 {
            assert_eq!(tls.reload_blocking(false), TlsReload::Failed);
            assert_eq!(warnings(), 1);
        }
        assert_eq!(tls.reload_blocking(true), TlsReload::Failed);
        assert_eq!(warnings(), 2);
        // Another reason is logged. The same reason is logged again after a success.
        fs::write(&files.key, KEY_OF_ELSEWHERE).unwrap();
        assert_eq!(
            (tls.reload_blocking(false), tls.reload_blocking(false)),
            (TlsReload::Failed, TlsReload::Failed)
        );
        assert_eq!(warnings(), 3);
        fs::write(&files.key, KEY_OF_LOCALHOST).unwrap();
        assert_eq!(tls.reload_blocking(false), TlsReload::Unchanged);
        fs::write(&files.key, KEY_OF_ELSEWHERE).unwrap();
        assert_eq!(tls.reload_blocking(false), TlsReload::Failed);
        assert_eq!(warnings(), 4);
    });
}
