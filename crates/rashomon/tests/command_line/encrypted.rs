//! Servers with TLS.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    sync::Arc,
    time::Duration,
};

use rashomon_clock::{Clock as _, SystemClock};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustix::process::Signal;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tempfile::tempdir;

use crate::{
    home::Home,
    http::get,
    process::{RunningProcess, finish, rashomon, run, wait_until},
};

/// Self-signed certificates for hosts with these names, with their keys.
pub(crate) const LOCALHOST: (&str, &str) = (
    include_str!("../../../upstream/tests/generator/certificates/localhost.pem"),
    include_str!("../../../upstream/tests/generator/certificates/localhost.key"),
);
pub(crate) const ELSEWHERE: (&str, &str) = (
    include_str!("../../../upstream/tests/generator/certificates/elsewhere.pem"),
    include_str!("../../../upstream/tests/generator/certificates/elsewhere.key"),
);

/// The metric with the time at which the certificate expires.
const EXPIRY: &str = "rashomon_http_tls_certificate_expiry_timestamp_seconds";

/// The flags of a server with TLS.
const FLAGS: [&str; 4] = ["--tls-certificate", "chain.pem", "--tls-key", "key.pem"];

/// Writes a certificate and its key, each by renaming a new file.
pub(crate) fn write_pair(directory: &Path, (certificate, key): (&str, &str)) {
    for (name, text) in [("chain.pem", certificate), ("key.pem", key)] {
        fs::write(directory.join("new"), text).unwrap();
        fs::rename(directory.join("new"), directory.join(name)).unwrap();
    }
}

/// Starts a server in memory with TLS. Returns it with its port.
pub(crate) fn serve(directory: &Path) -> (RunningProcess, String) {
    let mut command = rashomon(directory);
    command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0"]).args(FLAGS);
    let mut server = RunningProcess::start(&mut command);
    let line = server.line();
    let port = line.split("listens on https://127.0.0.1:").nth(1).and_then(|rest| rest.split(',').next());
    let port = port.unwrap_or_else(|| panic!("{line}")).to_owned();
    (server, port)
}

/// The answer to a GET with TLS from a server that has a certificate for this name.
pub(crate) fn get_with_tls(port: &str, name: &'static str, target: &str) -> Option<String> {
    get_trusting(&[LOCALHOST.0, ELSEWHERE.0], port, name, target)
}

/// The answer to a GET with TLS from a server that has one of these certificates, for this name.
fn get_trusting(certificates: &[&str], port: &str, name: &'static str, target: &str) -> Option<String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn server_with_a_certificate_speaks_https_alone() {
    let directory = tempdir().unwrap();
    write_pair(directory.path(), LOCALHOST);
    let (server, port) = serve(directory.path());
    let answer = get_with_tls(&port, "localhost", "/healthz").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = get(&format!("127.0.0.1:{port}"), "/healthz");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("use https://"), "{answer}");
    server.stop().ends_with(0);
}

#[test]
fn certificate_is_replaced_without_a_restart() {
    let directory = tempdir().unwrap();
    write_pair(directory.path(), LOCALHOST);
    let (server, port) = serve(directory.path());
    assert!(get_with_tls(&port, "elsewhere", "/healthz").is_none());
    write_pair(directory.path(), ELSEWHERE);
    wait_until("the files are read again", || get_with_tls(&port, "elsewhere", "/healthz").is_some());
    // A signal lets the server read the files at once, and does not end it. The interval is five seconds, so ten
    // changes would take at least half a minute without the signal.
    let clock = SystemClock::new();
    for (name, pair) in [("localhost", LOCALHOST), ("elsewhere", ELSEWHERE)].into_iter().cycle().take(10) {
        write_pair(directory.path(), pair);
        server.signal(Signal::HUP);
        wait_until("the files are read again", || get_with_tls(&port, name, "/healthz").is_some());
    }
    assert!(clock.monotonic() < Duration::from_secs(30), "{:?}", clock.monotonic());
    // Broken files change nothing.
    fs::write(directory.path().join("key.pem"), "").unwrap();
    server.signal(Signal::HUP);
    assert!(get_with_tls(&port, "elsewhere", "/healthz").is_some());
    write_pair(directory.path(), LOCALHOST);
    wait_until("the files are read again", || get_with_tls(&port, "localhost", "/healthz").is_some());
    let ran = server.stop().ends_with(0);
    ran.stderr_contains(&["TLS certificate or key has changed"]);
}

#[test]
fn signal_to_read_files_does_not_end_a_server_without_tls() {
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&[]);
    server.signal(Signal::HUP);
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 "));
    server.stop().ends_with(0);
}

#[test]
fn unusable_certificate_is_an_error_at_the_start() {
    let directory = tempdir().unwrap();
    write_pair(directory.path(), LOCALHOST);
    let refused = |flags: &[&str], words: &[&str]| {
        for command in [&["serve", "--store", "memory:", "--listen", "127.0.0.1:0"][..], &["check-config"]] {
            run(directory.path(), &[command, flags].concat()).ends_with(2).stderr_contains(words);
        }
    };
    refused(&["--tls-certificate", "chain.pem"], &["tls_certificate is set", "set tls_key"]);
    refused(&["--tls-key", "key.pem"], &["tls_key is set", "set tls_certificate"]);
    refused(
        &["--tls-certificate", "none.pem", "--tls-key", "key.pem"],
        &["cannot read tls_certificate none.pem"],
    );
    fs::write(directory.path().join("key.pem"), ELSEWHERE.1).unwrap();
    refused(&FLAGS, &["key.pem", "does not belong to", "chain.pem"]);
    // The files are settings like all others.
    write_pair(directory.path(), LOCALHOST);
    fs::write(directory.path().join("c.toml"), "tls_certificate = 'chain.pem'\ntls_key = 'key.pem'\n")
        .unwrap();
    let ran = run(directory.path(), &["check-config", "c.toml"]).ends_with(0);
    ran.stdout_contains(&["tls_certificate = \"chain.pem\"", "tls_key = \"key.pem\""]);
    let mut command = rashomon(directory.path());
    command.args(["check-config", "c.toml"]).env("RASHOMON_TLS_KEY", "other.pem");
    finish(&mut command).ends_with(2).stderr_contains(&["tls_key other.pem"]);
}

/// A certificate for `localhost` that is valid from 2001 until the beginning of this day, and its key.
fn pair_until(year: i32, month: u8, day: u8) -> (String, String) {
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(year, month, day));
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn expiry_in_the_metrics_follows_the_certificate() {
    let directory = tempdir().unwrap();
    let [first, second] = [pair_until(2150, 1, 1), pair_until(2160, 1, 1)];
    let expiry = |port: &str| {
        let metrics = get_trusting(&[&first.0, &second.0], port, "localhost", "/metrics").unwrap();
        let value = |line: &str| line.strip_prefix(&format!("{EXPIRY} ")).map(ToOwned::to_owned);
        metrics.lines().find_map(value).unwrap_or_else(|| panic!("no {EXPIRY}: {metrics}"))
    };
    write_pair(directory.path(), (&first.0, &first.1));
    let (server, port) = serve(directory.path());
    assert_eq!(expiry(&port), "5680281600");
    write_pair(directory.path(), (&second.0, &second.1));
    server.signal(Signal::HUP);
    wait_until("the files are read again", || expiry(&port) == "5995814400");
    let ran = server.stop().ends_with(0);
    assert!(!ran.stderr.contains("expire"), "nothing to renew: {}", ran.stderr);
}

#[test]
fn server_without_tls_has_no_expiry_in_the_metrics() {
    let Some(home) = Home::new() else { return };
    let (server, address) = home.serve(&[]);
    let metrics = get(&address, "/metrics");
    assert!(metrics.contains("rashomon_http_requests_in_flight") && !metrics.contains(EXPIRY), "{metrics}");
    server.stop().ends_with(0);
}

#[test]
fn expired_certificate_is_used_and_reported() {
    let directory = tempdir().unwrap();
    let (certificate, key) = pair_until(2002, 2, 3);
    write_pair(directory.path(), (&certificate, &key));
    let words = ["tls_certificate chain.pem expired at 2002-02-03T00:00:00Z", "renew it"];
    let ran = run(directory.path(), &[&["check-config"], &FLAGS[..]].concat()).ends_with(0);
    ran.stderr_contains(&["warning: the certificate"]).stderr_contains(&words);
    let (server, port) = serve(directory.path());
    // Clients refuse an expired certificate, even clients that trust it.
    assert!(get_trusting(&[&certificate], &port, "localhost", "/healthz").is_none());
    let other = pair_until(2003, 3, 4);
    for (pair, is_valid) in [(LOCALHOST, true), ((&other.0, &other.1), false), (LOCALHOST, true)] {
        write_pair(directory.path(), pair);
        server.signal(Signal::HUP);
        let answers = || get_with_tls(&port, "localhost", "/healthz").is_some();
        wait_until("the files are read again", || answers() == is_valid);
    }
    let ran = server.stop().ends_with(0);
    let lines: Vec<_> = ran.stderr.lines().filter(|line| line.contains("expired at")).collect();
    assert_eq!(lines.len(), 2, "{}", ran.stderr);
    for (line, time) in lines.iter().zip(["2002-02-03T00:00:00Z", "2003-03-04T00:00:00Z"]) {
        assert!(line.contains("ERROR") && line.contains("chain.pem") && line.contains(time), "{line}");
    }
    write_pair(directory.path(), LOCALHOST);
    let ran = run(directory.path(), &[&["check-config"], &FLAGS[..]].concat()).ends_with(0);
    assert_eq!(ran.stderr, "");
}
