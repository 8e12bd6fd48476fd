//! The results of different answers of a renderer.

use std::time::Duration;

use rashomon_pages::{GenerateError, Generator as _, Page, Title};
use rashomon_upstream::generator::{HttpGenerator, Source};
use tokio::net::TcpStream;

use crate::{
    LONG_TIMEOUT, MAX_SIZE, SHORT_TIMEOUT, assert_failed, bytes_of, html_from, make, name, page, rev,
    server::{Reply, Server, html, ok, says},
    settings, source, upstream,
};

/// The result of a request to a server that replies like this.
async fn made_of(reply: Reply) -> Result<rashomon_pages::Generated, GenerateError> {
    let server = Server::new(move |_| reply.clone()).await;
    let timeout = LONG_TIMEOUT;
    make(&html_from(&server.url("/"), &[server.host()], timeout)).await
}

#[tokio::test]
async fn answers_are_returned_with_their_type() {
    let server = Server::new(|_| html("<p>")).await;
    let made = make(&html_from(&server.url("/"), &[server.host()], LONG_TIMEOUT)).await.unwrap();
    assert_eq!(made.name, name("html"));
    assert_eq!(made.content_type.as_deref(), Some("text/html; charset=utf-8"));
    assert_eq!(made.body, "<p>");
    let untyped = made_of(says("200 OK", "content-length: 1\r\n", "x")).await.unwrap();
    assert_eq!((untyped.content_type, &untyped.body[..]), (None, &b"x"[..]));
    let until_the_end = made_of(says("200 OK", "", "to the end")).await;
    assert_eq!(bytes_of(until_the_end), "to the end");
    let chunked =
        made_of(says("200 OK", "transfer-encoding: chunked\r\n", "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")).await;
    assert_eq!(bytes_of(chunked), "abc");
}

#[tokio::test]
async fn a_renderer_is_asked_for_exactly_the_revision() {
    let server = Server::new(html).await;
    let (path, query) =
        (server.url("/{domain}/v1/{title}/{rev}"), server.url("/w?title={title}&oldid={rev}"));
    let properties = [("html", source(path)), ("meta", source(query))];
    let generator =
        HttpGenerator::new(settings(upstream(&properties, &[server.host()], LONG_TIMEOUT))).unwrap();
    let odd = Page { title: Title::new("A/B?c&d=e+f%20é").unwrap(), ..page("x") };
    assert_eq!(generator.makes(&odd), [name("html"), name("meta")]);
    let made = generator.generate(&odd, rev(77)).await.unwrap();
    let bodies: Vec<_> = made.iter().map(|made| (made.name.as_str(), &made.body[..])).collect();
    assert_eq!(
        bodies,
        [
            ("html", &b"/wiki.example/v1/A%2FB%3Fc%26d%3De%2Bf%2520%C3%A9/77"[..]),
            ("meta", &b"/w?title=A%2FB%3Fc%26d%3De%2Bf%2520%C3%A9&oldid=77"[..]),
        ]
    );
    for request in server.requests() {
        let request = request.to_ascii_lowercase();
        for expected in
            ["user-agent: rashomon/", "accept-encoding: identity", "connection: close", "host: 127.0.0.1:"]
        {
            assert!(request.contains(expected), "{request}");
        }
    }
}

#[tokio::test]
async fn failure_of_one_property_fails_all() {
    let server = Server::new(|target| match target {
        "/html" => html("<p>"),
        _ => says("500 Oh", "", ""),
    })
    .await;
    let properties = [("html", source(server.url("/html"))), ("meta", source(server.url("/meta")))];
    let generator =
        HttpGenerator::new(settings(upstream(&properties, &[server.host()], LONG_TIMEOUT))).unwrap();
    let error = generator.generate(&page("A"), rev(1)).await.unwrap_err();
    assert!(matches!(&error, GenerateError::Failed(why) if why.starts_with("meta: ")), "{error}");
}

#[tokio::test]
async fn statuses_are_mapped_to_errors() {
    for status in ["404 Not Found", "410 Gone"] {
        let made = made_of(says(status, "", "an excuse")).await;
        assert!(matches!(&made, Err(GenerateError::Unknown(why)) if why.contains(&status[..3])), "{made:?}");
    }
    for status in [
        "201 Created",
        "204 No Content",
        "206 Partial Content",
        "304 Not Modified",
        "401 No",
        "429 Slow",
        "500 Oh",
        "503 No",
    ] {
        assert_failed(made_of(says(status, "", "")).await, &status[..3]);
    }
}

#[tokio::test]
async fn slow_renderer_is_given_up() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 900\r\n\r\n";
    for reply in [
        Reply::Nothing,
        Reply::After(LONG_TIMEOUT, ok("text/html", "late")),
        Reply::Drips(head.to_owned(), Duration::from_millis(50)),
        Reply::Drips("HTTP/1.1 200 OK\r\nx-long: ".to_owned(), Duration::from_millis(50)),
    ] {
        let server = Server::new({
            let reply = reply.clone();
            move |_| reply.clone()
        })
        .await;
        let generator = html_from(&server.url("/"), &[server.host()], SHORT_TIMEOUT);
        let made = tokio::time::timeout(LONG_TIMEOUT / 2, make(&generator)).await.expect("it is given up");
        assert!(
            matches!(&made, Err(GenerateError::TimedOut(why)) if why.contains("500ms")),
            "{reply:?}: {made:?}"
        );
    }
}

#[tokio::test]
async fn answers_are_bounded_by_the_size_of_the_property() {
    let max = MAX_SIZE as usize;
    assert_eq!(bytes_of(made_of(html(&"x".repeat(max))).await).len(), max);
    let words = "more than 1000 bytes";
    assert_failed(made_of(html(&"x".repeat(max + 1))).await, words);
    // The answer announces its size, so the body is not awaited.
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 10000000000000\r\n\r\n";
    assert_failed(made_of(Reply::Drips(head.to_owned(), LONG_TIMEOUT)).await, words);
    // The answer announces no size, and never ends.
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n";
    let flood = Reply::Floods(format!("{head}\r\n"), "x".repeat(100));
    assert_failed(made_of(flood).await, words);
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n");
    assert_failed(made_of(Reply::Floods(chunked, "1\r\nx\r\n".to_owned())).await, words);
    // The headers never end either.
    let headers = Reply::Floods(head.to_owned(), format!("x: {}\r\n", "x".repeat(1000)));
    assert_failed(made_of(headers).await, "");
}

#[tokio::test]
async fn incomplete_answers_are_failures() {
    let broken = "could not be read to the end";
    assert_failed(made_of(says("200 OK", "content-length: 10\r\n", "short")).await, broken);
    assert_failed(made_of(says("200 OK", "transfer-encoding: chunked\r\n", "5\r\nshort\r\n")).await, broken);
    assert_failed(made_of(says("200 OK", "transfer-encoding: chunked\r\n", "5\r\nsho")).await, broken);
    assert_failed(made_of(Reply::Says(String::new())).await, "");
    assert_failed(made_of(Reply::Says("HTTP/1.1 200".to_owned())).await, "");
    assert_failed(made_of(Reply::Says("220 mail.example ESMTP\r\n".to_owned())).await, "");
}

#[tokio::test]
async fn unexpected_encodings_and_types_are_failures() {
    let compressed = says("200 OK", "content-encoding: gzip\r\ncontent-length: 1\r\n", "x");
    assert_failed(made_of(compressed).await, "gzip");
    assert_eq!(
        bytes_of(made_of(says("200 OK", "content-encoding: identity\r\ncontent-length: 1\r\n", "x")).await),
        "x"
    );
    for content_type in ["html", "text/html\u{e9}", &format!("text/{}", "x".repeat(300))] {
        assert_failed(made_of(Reply::Says(ok(content_type, "x"))).await, "content type");
    }
}

#[tokio::test]
async fn answer_must_have_the_expected_type() {
    let server = Server::new(|target| match target {
        "/none" => says("200 OK", "content-length: 1\r\n", "x"),
        target => Reply::Says(ok(&target[1..], "x")),
    })
    .await;
    let expecting = |path: &str| {
        let source = Source { content_type: Some("text/html".to_owned()), ..source(server.url(path)) };
        HttpGenerator::new(settings(upstream(&[("html", source)], &[server.host()], LONG_TIMEOUT))).unwrap()
    };
    for path in ["/text/html", "/Text/HTML;charset=latin1"] {
        let made = make(&expecting(path)).await.unwrap();
        assert_eq!(made.content_type.as_deref(), Some(&path[1..]), "it is stored as it came");
    }
    assert_failed(
        make(&expecting("/application/json")).await,
        "application/json, but text/html was expected",
    );
    assert_failed(make(&expecting("/none")).await, "but text/html was expected");
}

#[tokio::test]
async fn missing_renderer_is_a_failure() {
    let server = Server::new(|_| html("<p>")).await;
    let (generator, address) = (html_from(&server.url("/"), &[server.host()], LONG_TIMEOUT), server.address);
    drop(server);
    // The listening task ends a moment later.
    let refused = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG_TIMEOUT, refused).await.expect("the port is closed");
    assert_failed(make(&generator).await, "refused");
    let nowhere = html_from("http://nowhere.invalid/", &["nowhere.invalid".to_owned()], LONG_TIMEOUT);
    assert_failed(make(&nowhere).await, "");
}

/// A faulty renderer may answer each request on a connection with the answer to the previous request, or may send more
/// bytes than it announced. If the connection were used again, the next request would get text of another page.
#[tokio::test]
async fn surplus_bytes_of_an_answer_do_not_reach_the_next_request() {
    let one = || ok("text/html", "one");
    for behind in [Reply::Twice(one(), one()), Reply::Says(format!("{}{}", one(), one()))] {
        let server =
            Server::new(move |target| if target == "/1" { behind.clone() } else { html("right") }).await;
        let generator = html_from(&server.url("/{rev}"), &[server.host()], LONG_TIMEOUT);
        for (number, expected) in [(1, "one"), (2, "right"), (1, "one"), (3, "right")] {
            let made = generator.generate(&page("A"), rev(number)).await.unwrap();
            assert_eq!(made[0].body, expected, "{number}");
        }
    }
}
