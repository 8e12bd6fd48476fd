//! The token for a renderer.

use std::{fs, path::PathBuf};

use rashomon_upstream::generator::{HttpGenerator, SettingsError, Upstream};

use crate::{
    LONG_TIMEOUT, bytes_of, make,
    server::{Server, html, says},
    settings, source, upstream,
};

/// A generator of `html` from this URL, with a token in a file.
fn with_token(url: &str, hosts: &[String], file: PathBuf) -> Result<HttpGenerator, SettingsError> {
    let renderer = upstream(&[("html", source(url))], hosts, LONG_TIMEOUT);
    HttpGenerator::new(settings(Upstream { token_file: Some(file), ..renderer }))
}

/// The values of the header `Authorization` of each request.
fn tokens(server: &Server) -> Vec<Vec<String>> {
    let of = |head: String| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let lines = lines.filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        lines.map(|(_, value)| value.to_owned()).collect()
    };
    server.requests().into_iter().map(of).collect()
}

#[tokio::test]
async fn token_is_sent_and_read_again_when_the_file_changes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    fs::write(&file, "first\n").unwrap();
    let server = Server::new(|_| html("<p>")).await;
    let generator = with_token(&server.url("/"), &[server.host()], file.clone()).unwrap();
    assert_eq!(bytes_of(make(&generator).await), "<p>");
    fs::write(directory.path().join("new"), "second\n").unwrap();
    fs::rename(directory.path().join("new"), &file).unwrap();
    assert_eq!(bytes_of(make(&generator).await), "<p>");
    // A file that has become unusable changes nothing.
    fs::write(&file, "not a token\n").unwrap();
    assert_eq!(bytes_of(make(&generator).await), "<p>");
    assert_eq!(tokens(&server), [["Bearer first"], ["Bearer second"], ["Bearer second"]]);
}

#[tokio::test]
async fn token_does_not_follow_a_redirect_to_another_host() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    fs::write(&file, "secret").unwrap();
    let other = Server::new(|_| html("there")).await;
    let there = other.url("/");
    let server = Server::new(move |target| match target {
        "/" => says("302 Found", "location: /again\r\n", ""),
        _ => says("302 Found", &format!("location: {there}\r\n"), ""),
    })
    .await;
    let hosts = [server.host(), other.host()];
    let generator = with_token(&server.url("/"), &hosts, file).unwrap();
    assert_eq!(bytes_of(make(&generator).await), "there");
    // A redirect on the same host needs the token, too.
    assert_eq!(tokens(&server), [["Bearer secret"], ["Bearer secret"]]);
    assert_eq!(tokens(&other), [[""; 0]]);
}

#[tokio::test]
async fn without_a_token_file_no_token_is_sent() {
    let server = Server::new(|_| html("<p>")).await;
    let renderer = upstream(&[("html", source(server.url("/")))], &[server.host()], LONG_TIMEOUT);
    assert_eq!(bytes_of(make(&HttpGenerator::new(settings(renderer)).unwrap()).await), "<p>");
    assert_eq!(tokens(&server), [[""; 0]]);
}

#[test]
fn unusable_token_file_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let refused = |words: &[&str]| {
        let error = with_token("http://localhost/", &["localhost".to_owned()], file.clone()).unwrap_err();
        assert!(matches!(error, SettingsError::Token(_)), "{error:?}");
        let error = error.to_string();
        assert!(error.contains(file.to_str().unwrap()) && !error.contains("secret"), "{error}");
        words.iter().for_each(|word| assert!(error.contains(word), "no {word:?} in {error}"));
    };
    refused(&["token_file", "cannot read"]);
    fs::write(&file, "Bearer secret").unwrap();
    refused(&["token_file", "the word Bearer"]);
}
