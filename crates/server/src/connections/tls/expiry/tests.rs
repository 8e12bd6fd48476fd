use std::fs;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rashomon_clock::ManualClock;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use tempfile::TempDir;

use super::*;
use crate::connections::tls::{
    TlsReload,
    tests::{CERTIFICATE_OF_LOCALHOST, KEY_OF_LOCALHOST, Log, files},
};

const HOUR: Duration = Duration::from_secs(3600);

/// A year, a month and a day.
type Day = (i32, u8, u8);

/// The beginning of a day.
fn at((year, month, day): Day) -> Timestamp {
    rfc3339::parse(&format!("{year}-{month:02}-{day:02}T00:00:00Z")).unwrap()
}

/// Makes a certificate that is valid from the beginning of one day to the beginning of another. Also returns its key.
/// Both are in PEM.
fn pair(from: Day, to: Day) -> (String, String) {
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    (params.not_before, params.not_after) =
        (date_time_ymd(from.0, from.1, from.2), date_time_ymd(to.0, to.1, to.2));
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// A server's certificate, with a clock and a log of the notices.
struct World {
    _directory: TempDir,
    clock: Arc<ManualClock>,
    tls: Tls,
    log: ExpiryLog,
}

impl World {
    fn new((certificate, key): &(String, String), now: Timestamp) -> Self {
        let (directory, files) = files(certificate, key);
        let (clock, tls) = (Arc::new(ManualClock::new(now)), Tls::load(files).unwrap());
        let log = ExpiryLog::new(tls.clone(), clock.clone());
        Self { _directory: directory, clock, tls, log }
    }

    /// The lines of one check.
    fn check(&mut self) -> Vec<String> {
        Log::of(|| self.log.check()).lines().map(ToOwned::to_owned).collect()
    }

    /// Checks every hour for this many days, and returns the number of logged lines. Advances the clock.
    fn lines_in_days(&mut self, days: u32, level: &str) -> usize {
        let mut lines = Vec::new();
        for _ in 0..days * 24 {
            self.clock.advance(HOUR);
            lines.extend(self.check());
        }
        assert!(lines.iter().all(|line| line.contains(level)), "{lines:#?}");
        lines.len()
    }

    fn replace(&self, (certificate, key): &(String, String)) {
        let files = &self.tls.0.source().0;
        fs::write(&files.certificate, certificate).unwrap();
        fs::write(&files.key, key).unwrap();
        assert_eq!(self.tls.reload_blocking(false), TlsReload::Replaced);
    }
}

/// Asserts that there is one line, with all these texts.
#[track_caller]
fn assert_one_line(lines: &[String], words: &[&str]) {
    assert_eq!(lines.len(), 1, "{lines:#?}");
    words.iter().for_each(|word| assert!(lines[0].contains(word), "no {word:?} in {lines:#?}"));
}

#[test]
fn notice_is_logged_from_fourteen_days_before_the_expiry() {
    let expiry = at((2030, 6, 30));
    let mut world = World::new(&pair((2030, 1, 1), (2030, 6, 30)), at((2030, 6, 1)));
    assert_eq!(world.tls.expiry(), Some(expiry));
    assert_eq!(world.lines_in_days(15, ""), 0, "fourteen days are left");
    assert_eq!(world.clock.now(), at((2030, 6, 16)));
    world.clock.advance(Duration::from_micros(1));
    let words = [
        "WARN",
        "tls_certificate",
        "chain.pem",
        "expires soon",
        "2030-06-30T00:00:00Z",
        "renew it",
        "by itself",
    ];
    assert_one_line(&world.check(), &words);
    assert!(world.check().is_empty());
    assert_eq!(world.lines_in_days(13, "WARN"), 13);
    // The last moment of the validity belongs to it.
    world.clock.set(expiry);
    assert_eq!(world.tls.expiry_notice(expiry), Some(soon(&world, expiry)));
    world.clock.set(expiry.just_after());
    let words =
        ["ERROR", "tls_certificate", "chain.pem", "expired at 2030-06-30T00:00:00Z", "renew it", "by itself"];
    assert_one_line(&world.check(), &words);
    assert!(world.check().is_empty());
    assert_eq!(world.lines_in_days(3, "ERROR"), 3);
}

fn soon(world: &World, at: Timestamp) -> ExpiryNotice {
    ExpiryNotice::Soon { path: world.tls.certificate_path().to_owned(), at }
}

#[test]
fn notice_is_not_repeated_for_a_renewed_certificate_and_is_logged_at_once_for_another_one() {
    let mut world = World::new(&pair((2030, 1, 1), (2030, 6, 30)), at((2030, 6, 20)));
    assert_one_line(&world.check(), &["WARN", "2030-06-30"]);
    // Another certificate that expires soon, perhaps the same one again by mistake.
    world.replace(&pair((2030, 1, 1), (2030, 6, 30)));
    assert_one_line(&world.check(), &["WARN", "2030-06-30"]);
    assert!(world.check().is_empty());
    world.replace(&pair((2030, 6, 20), (2030, 9, 30)));
    assert_eq!(world.tls.expiry(), Some(at((2030, 9, 30))));
    assert_eq!(world.lines_in_days(30, ""), 0);
    world.replace(&pair((2030, 1, 1), (2030, 7, 1)));
    assert_one_line(&world.check(), &["ERROR", "2030-07-01"]);
}

#[test]
fn failed_reload_keeps_the_expiry_of_the_certificate_in_use() {
    let mut world = World::new(&pair((2030, 1, 1), (2030, 6, 30)), at((2030, 6, 20)));
    assert_one_line(&world.check(), &["WARN"]);
    fs::write(world.tls.certificate_path(), pair((2030, 1, 1), (2040, 1, 1)).0).unwrap();
    assert_eq!(world.tls.reload_blocking(false), TlsReload::Failed);
    assert_eq!(world.tls.expiry(), Some(at((2030, 6, 30))));
    assert!(world.check().is_empty());
    assert_eq!(world.lines_in_days(2, "WARN"), 2);
}

#[test]
fn short_lived_certificate_has_notices_in_its_last_quarter() {
    let mut world = World::new(&pair((2030, 6, 1), (2030, 6, 9)), at((2030, 6, 1)));
    assert_eq!(world.lines_in_days(6, ""), 0);
    world.clock.advance(Duration::from_micros(1));
    assert_one_line(&world.check(), &["WARN", "2030-06-09"]);
}

#[test]
fn notices_are_about_the_first_certificate_of_the_file() {
    let (mut certificate, key) = pair((2030, 1, 1), (2040, 1, 1));
    certificate += &pair((2030, 1, 1), (2030, 2, 1)).0;
    let mut world = World::new(&(certificate, key), at((2030, 3, 1)));
    assert!(world.check().is_empty());
    assert_eq!(world.tls.expiry(), Some(at((2040, 1, 1))));
}

#[test]
fn certificate_of_a_hundred_years_has_an_expiry() {
    let pair = (CERTIFICATE_OF_LOCALHOST.to_owned(), KEY_OF_LOCALHOST.to_owned());
    let mut world = World::new(&pair, at((2030, 1, 1)));
    assert!(world.check().is_empty());
    assert!(world.tls.expiry().is_some_and(|expiry| expiry > at((2126, 1, 1))), "{:?}", world.tls.expiry());
}

/// The TLS library does not read the times of a certificate, so it accepts this certificate.
#[test]
fn unreadable_expiry_is_logged_once_and_the_certificate_is_used() {
    let (certificate, key) = pair((2030, 1, 1), (2030, 6, 30));
    let mut der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap().to_vec();
    let time = b"300630000000Z";
    let offset = der.windows(time.len()).position(|bytes| bytes == time).unwrap();
    der[offset..offset + 2].copy_from_slice(b"xx");
    let text = BASE64_STANDARD.encode(der);
    let certificate = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    let mut world = World::new(&(certificate, key), at((2030, 6, 20)));
    assert_eq!(world.tls.expiry(), None);
    assert_one_line(&world.check(), &["WARN", "cannot read when", "tls_certificate", "chain.pem"]);
    assert_eq!(world.lines_in_days(30, ""), 0);
    world.replace(&pair((2030, 1, 1), (2030, 7, 25)));
    assert_one_line(&world.check(), &["WARN", "2030-07-25"]);
}
