//! Helpers for tests that read HTML pages as a browser does.

use http::StatusCode;

use crate::world::{Answer, World};

/// The relevant headers of a browser.
pub(crate) const BROWSER: &[(&str, &str)] =
    &[("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")];

/// The values of an attribute, in order.
pub(crate) fn attributes(html: &str, name: &str) -> Vec<String> {
    let begin = format!(" {name}=\"");
    let values = html.split(begin.as_str()).skip(1).filter_map(|rest| rest.split_once('"'));
    values.map(|(value, _)| unescape(value)).collect()
}

/// All addresses in a page.
pub(crate) fn addresses(html: &str) -> Vec<String> {
    ["href", "src", "action"].iter().flat_map(|name| attributes(html, name)).collect()
}

/// Unescapes a text.
pub(crate) fn unescape(text: &str) -> String {
    [
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&#38;", "&"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

/// The text of a page without its tags, with runs of white space as one space.
pub(crate) fn text_of(html: &str) -> String {
    let mut text = String::new();
    for piece in html.split('<') {
        // Each tag becomes a space, so that words of two elements do not run together.
        text.push(' ');
        text.push_str(piece.split_once('>').map_or(piece, |(_, text)| text));
    }
    unescape(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Checks the requirements that every HTML page must meet.
#[track_caller]
pub(crate) fn check_page(url: &str, answer: &Answer) {
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8", "{url}: {answer:?}");
    assert_eq!(answer.header("x-content-type-options"), "nosniff", "{url}");
    assert_eq!(answer.header("referrer-policy"), "same-origin", "{url}");
    let caching = if answer.status == StatusCode::OK {
        "public, max-age=0, s-maxage=0, must-revalidate"
    } else {
        "no-store"
    };
    assert_eq!(answer.header("cache-control"), caching, "{url}");
    let policy = answer.header("content-security-policy");
    for directive in [
        "default-src 'none'",
        "style-src 'self'",
        "frame-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(directive), "{url}: {policy}");
    }
    assert!(!policy.contains("script") && !policy.contains("unsafe"), "{url}: {policy}");
    let html = answer.text();
    for expected in ["<!doctype html>", "<html lang=\"en\">", "<title>", "<main ", "<h1", "name=\"viewport\""]
    {
        assert!(html.contains(expected), "{url}: no {expected}");
    }
    for forbidden in ["<script", " style=\"", " onclick=", "<style"] {
        assert!(!html.contains(forbidden), "{url}: {forbidden}");
    }
    for address in addresses(html) {
        let ours = address.starts_with('/') && !address.starts_with("//");
        assert!(ours || address.starts_with(['?', '#']), "{url} leads to {address}");
    }
}

impl World {
    /// Requests an HTML page, and checks its status.
    pub(crate) async fn page(&self, url: &str, status: u16) -> String {
        let answer = self.get_with(url, BROWSER).await;
        assert_eq!(answer.status.as_u16(), status, "{url}: {}", String::from_utf8_lossy(&answer.body));
        check_page(url, &answer);
        answer.text().to_owned()
    }

    /// Requests everything that a page at `url` links to, and returns the number of links.
    pub(crate) async fn follow(&self, url: &str, html: &str) -> usize {
        let path = url.split('?').next().unwrap();
        let mut followed = 0;
        for address in addresses(html) {
            let target = match address.split_once('#').map_or(address.as_str(), |(before, _)| before) {
                "" => continue,
                query if query.starts_with('?') => format!("{path}{query}"),
                path => path.to_owned(),
            };
            let status = self.get(&target).await.status;
            assert!(status.is_success() || status.is_redirection(), "{url} leads to {target}: {status}");
            followed += 1;
        }
        followed
    }
}
