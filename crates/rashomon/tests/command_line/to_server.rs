//! Commands that send requests to a running server: TLS, and tokens.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::Command,
    thread,
};

use tempfile::tempdir;

use crate::{
    encrypted::{ELSEWHERE, LOCALHOST, get_with_tls, serve, write_pair},
    process::{finish, rashomon},
    serving::serve_data,
    wiki::dump,
};

/// A command that imports through a server with TLS. The command trusts only this certificate.
fn import(directory: &Path, url: &str, trusted: &str) -> Command {
    fs::write(directory.join("trusted.pem"), trusted).unwrap();
    let mut command = rashomon(directory);
    command.args(["import", "--to", url, "--domain", "wiki", "dump.xml"]);
    command.env("SSL_CERT_FILE", directory.join("trusted.pem")).env_remove("SSL_CERT_DIR");
    command
}

#[test]
fn dump_is_sent_with_tls() {
    let directory = tempdir().unwrap();
    write_pair(directory.path(), LOCALHOST);
    fs::write(directory.path().join("dump.xml"), dump("Page", &[("1", "one"), ("2", "two")])).unwrap();
    let (server, port) = serve(directory.path());
    let url = format!("https://localhost:{port}");
    let ran = finish(&mut import(directory.path(), &url, LOCALHOST.0)).ends_with(0);
    ran.stdout_contains(&["2 stored"]);
    let stored = get_with_tls(&port, "localhost", "/v1/wiki/page/Page?rev/latest/wikitext").unwrap();
    assert!(stored.ends_with("two"), "{stored}");
    // A server that refuses the dump early gives its reason.
    fs::write(directory.path().join("dump.xml"), "just words\n".repeat(200_000)).unwrap();
    let ran = finish(&mut import(directory.path(), &url, LOCALHOST.0)).ends_with(1);
    ran.stderr_contains(&["refused the import (400", "neither XML nor JSON lines"]);

    let refused = |url: &str, trusted: &str, words: &[&str]| {
        finish(&mut import(directory.path(), url, trusted)).ends_with(1).stderr_contains(words);
    };
    refused(&url, ELSEWHERE.0, &["connection with TLS", "certificate", "SSL_CERT_FILE"]);
    refused(&format!("https://127.0.0.1:{port}"), LOCALHOST.0, &["connection with TLS", "host name"]);
    refused(&format!("http://localhost:{port}"), LOCALHOST.0, &["400", "use https://"]);
    refused("https://localhost-", LOCALHOST.0, &["connection with TLS", "localhost-", "host name"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().port();
    let closing = thread::spawn(move || drop(listener.accept().unwrap()));
    refused(&format!("https://localhost:{silent}"), LOCALHOST.0, &["connection with TLS", "localhost"]);
    closing.join().unwrap();
    // Nothing was sent, so nothing can have been stored.
    let unreachable = format!("https://localhost:{silent}");
    let ran = finish(&mut import(directory.path(), &unreachable, LOCALHOST.0)).ends_with(1);
    let ran = ran.stderr_contains(&["cannot reach a server", "rashomon serve"]);
    assert!(!ran.stderr.contains("stored revisions stay"), "{}", ran.stderr);
    let ran = finish(&mut import(directory.path(), &url, "")).ends_with(2);
    ran.stderr_contains(&["no certificate authorities", "SSL_CERT_FILE"]);
    server.stop().ends_with(0);

    let (plain, address) = serve_data(directory.path());
    let port = address.split(':').nth(1).unwrap();
    refused(&format!("https://localhost:{port}"), LOCALHOST.0, &["seems not to use TLS", "http://"]);
    plain.stop().ends_with(0);
}

/// Starts a server that refuses one import. Returns its address, and a thread that returns the head of the request.
fn recorder() -> (String, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let head = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let lines = reader.by_ref().lines().map(Result::unwrap);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        // A connection that is closed with unread bytes is reset, and the answer may be lost.
        let length =
            head.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap();
        reader.read_exact(&mut vec![0; length]).unwrap();
        let body = r#"{"type":"about:blank","title":"Unauthorized","status":401,"detail":"no such token"}"#;
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/problem+json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
        .unwrap();
        head
    });
    (address, head)
}

#[test]
fn token_of_the_environment_is_sent_and_not_shown() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("dump.xml"), dump("Page", &[("1", "one")])).unwrap();
    for token in [Some("secret-Token.1~+/=="), None] {
        let (address, head) = recorder();
        let mut command = rashomon(directory.path());
        command.args(["import", "--to", &format!("http://{address}"), "--domain", "wiki", "dump.xml"]);
        token.into_iter().for_each(|token| {
            command.env("RASHOMON_TOKEN", token);
        });
        let ran = finish(&mut command).ends_with(1).stderr_contains(&["401", "no such token"]);
        assert!(!ran.stderr.contains("secret") && !ran.stdout.contains("secret"), "{ran:?}");
        let head = head.join().unwrap();
        let sent: Vec<_> =
            head.iter().filter(|line| line.to_ascii_lowercase().starts_with("authorization:")).collect();
        match token {
            Some(token) => assert_eq!(sent, [&format!("authorization: Bearer {token}")]),
            None => assert!(sent.is_empty(), "{sent:?}"),
        }
    }
}

#[test]
fn token_over_a_network_without_encryption_is_warned_of() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("dump.xml"), dump("Page", &[("1", "one")])).unwrap();
    for (host, token, is_warned) in
        [("0.0.0.0", "secret", true), ("127.0.0.1", "secret", false), ("0.0.0.0", "", false)]
    {
        let (address, head) = recorder();
        let port = address.rsplit(':').next().unwrap();
        let mut command = rashomon(directory.path());
        command.args(["import", "--to", &format!("http://{host}:{port}"), "--domain", "wiki", "dump.xml"]);
        if !token.is_empty() {
            command.env("RASHOMON_TOKEN", token);
        }
        let ran = finish(&mut command).ends_with(1);
        let warning = format!("RASHOMON_TOKEN is sent to http://{host}:{port} without encryption");
        assert_eq!(ran.stderr.contains(&warning), is_warned, "{host} {token}: {ran:?}");
        head.join().unwrap();
    }
}

#[test]
fn unusable_token_is_an_error_that_does_not_show_it() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("dump.xml"), dump("Page", &[("1", "one")])).unwrap();
    for token in ["", "secret secret", "secret\n", "Bearer secret", "secr\u{e9}t"] {
        let mut command = rashomon(directory.path());
        command.args(["import", "--to", "http://127.0.0.1:1", "--domain", "wiki", "dump.xml"]);
        let ran = finish(command.env("RASHOMON_TOKEN", token)).ends_with(2);
        assert!(!ran.stderr.contains("secr"), "{ran:?}");
        ran.stderr_contains(&["RASHOMON_TOKEN", "the token alone"]);
    }
    // The variable is not mistaken for a setting of a server.
    let mut command = rashomon(directory.path());
    let ran = finish(command.arg("check-config").env("RASHOMON_TOKEN", "secret")).ends_with(0);
    assert!(!ran.stderr.contains("RASHOMON_TOKEN"), "{ran:?}");
}
