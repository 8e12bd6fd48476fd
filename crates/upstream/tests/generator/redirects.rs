//! Redirects of a renderer that are followed, and those that are refused.

use std::sync::{Arc, OnceLock};

use rashomon_upstream::bounded::MAX_REDIRECTS;

use crate::{
    LONG_TIMEOUT, assert_failed, bytes_of, html_from, make,
    server::{Reply, Server, html, says},
};

fn to(location: &str) -> Reply {
    says("302 Found", &format!("location: {location}\r\ncontent-length: 0\r\n"), "")
}

#[tokio::test]
async fn redirects_to_allowed_hosts_are_followed() {
    let there = Server::new(|target| match target {
        "/there?x=1" => html("there"),
        _ => to("there?x=1"),
    })
    .await;
    let location = there.url("/here");
    for status in ["301 Moved", "302 Found", "303 See", "307 Temporary", "308 Permanent"] {
        let location = location.clone();
        let first = Server::new(move |_| says(status, &format!("location: {location}\r\n"), "")).await;
        let hosts = [first.host(), there.host()];
        assert_eq!(
            bytes_of(make(&html_from(&first.url("/"), &hosts, LONG_TIMEOUT)).await),
            "there",
            "{status}"
        );
    }
}

#[tokio::test]
async fn hosts_that_are_not_allowed_are_never_reached() {
    let other = Server::new(|_| html("secret")).await;
    let (address, port) = (other.address, other.address.port());
    for location in [
        format!("http://{address}/"),
        format!("//{address}/"),
        format!("\\\\\\\\{address}/"),
        format!("http:\\\\{address}/"),
        format!("http://localhost:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("https://{address}/"),
        format!("HTTP://ALLOWED@{address}/"),
        format!("http://ALLOWED%2F@{address}/"),
        format!("http://ALLOWED:80@{address}/#ALLOWED"),
    ] {
        let allowed = Arc::new(OnceLock::<String>::new());
        let first = Server::new({
            let (allowed, location) = (Arc::clone(&allowed), location.clone());
            move |target| match (target, allowed.get()) {
                ("/to", Some(allowed)) => to(&location.replace("ALLOWED", allowed)),
                _ => html("no such target"),
            }
        })
        .await;
        allowed.set(first.host()).unwrap();
        let made = make(&html_from(&first.url("/to"), &[first.host()], LONG_TIMEOUT)).await;
        assert!(matches!(made, Err(rashomon_pages::GenerateError::Failed(_))), "{location}: {made:?}");
        assert_eq!((first.asked(), other.asked()), (1, 0), "{location}");
    }
    // The other host is reachable, so only the check prevented the redirects.
    assert_eq!(bytes_of(make(&html_from(&other.url("/"), &[other.host()], LONG_TIMEOUT)).await), "secret");
}

#[tokio::test]
async fn redirects_without_a_plain_url_are_refused() {
    let server = Server::new(|target| match target {
        "/file" => to("file:///etc/passwd"),
        "/ftp" => to("ftp://127.0.0.1/"),
        "/data" => to("data:text/html,x"),
        "/nowhere" => to("http://"),
        "/none" => says("302 Found", "", ""),
        _ => html("no such target"),
    })
    .await;
    let address = server.address;
    let with_user = Server::new(move |_| to(&format!("http://me:secret@{address}/x"))).await;
    let hosts = [server.host(), with_user.host()];
    for path in ["/file", "/ftp", "/data", "/nowhere", "/none"] {
        assert_failed(make(&html_from(&server.url(path), &hosts, LONG_TIMEOUT)).await, "redirected to");
    }
    let asked = server.asked();
    assert_failed(
        make(&html_from(&with_user.url("/"), &hosts, LONG_TIMEOUT)).await,
        "other than a plain URL",
    );
    assert_eq!(server.asked(), asked);
}

#[tokio::test]
async fn endless_redirects_are_stopped() {
    let server = Server::new(|_| to("/")).await;
    assert_failed(
        make(&html_from(&server.url("/"), &[server.host()], LONG_TIMEOUT)).await,
        "more than 3 times",
    );
    assert_eq!(server.asked(), MAX_REDIRECTS + 1);
}

#[tokio::test]
async fn the_body_of_a_redirect_is_not_read() {
    let server = Server::new(|target| match target {
        "/" => Reply::Floods("HTTP/1.1 302 Found\r\nlocation: /x\r\n\r\n".to_owned(), "x".repeat(1000)),
        _ => html("there"),
    })
    .await;
    assert_eq!(bytes_of(make(&html_from(&server.url("/"), &[server.host()], LONG_TIMEOUT)).await), "there");
}
