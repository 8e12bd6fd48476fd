use rashomon_pages::DomainName;

use super::*;

const OWN: (&str, &str) = ("host", "localhost:7231");

fn settings() -> Settings {
    Settings {
        hosts: [("en.example.org".to_owned(), DomainName::new("enwiki").unwrap())].into(),
        other_hosts: BTreeSet::from(["wiki.internal:8080".to_owned()]),
        origins: BTreeSet::from(["https://trusted.example".to_owned()]),
        check_host: true,
        ..Settings::default()
    }
}

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    headers
}

/// Names and values of a request's headers.
type Headers<'a> = &'a [(&'a str, &'a str)];

/// Whether an accepted request comes from another origin, or why the request is refused.
type Verdict = std::result::Result<bool, Kind>;

fn verdict(method: &Method, fields: Headers<'_>) -> Verdict {
    let uri = Uri::from_static("/v1/enwiki/page/A?rev/");
    let checked = check_browser_request(method, &uri, &headers(fields), &settings());
    checked.map(|cross| cross.is_some()).map_err(|problem| problem.kind())
}

#[test]
fn only_writes_of_other_origins_are_refused() {
    let refused = Err(Kind::CrossSite);
    let rows: [(Headers<'_>, Verdict); 19] = [
        // A program that is not a browser.
        (&[], Ok(false)),
        // The server's own pages, and typed addresses.
        (&[("origin", "http://localhost:7231")], Ok(false)),
        (&[("origin", "http://localhost:7231"), ("sec-fetch-site", "same-origin")], Ok(false)),
        (&[("sec-fetch-site", "same-origin")], Ok(false)),
        (&[("sec-fetch-site", "none")], Ok(false)),
        // Another site, and another port, which is the same site.
        (&[("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")], refused),
        (&[("origin", "https://evil.example")], refused),
        (&[("sec-fetch-site", "cross-site")], refused),
        (&[("sec-fetch-site", "same-site")], refused),
        (&[("origin", "http://localhost:9999"), ("sec-fetch-site", "same-site")], refused),
        (&[("origin", "http://localhost:9999")], refused),
        (&[("origin", "http://127.0.0.1:7231")], refused),
        (&[("origin", "http://localhost")], refused),
        // A frame without an origin, a file, and an extension.
        (&[("origin", "null"), ("sec-fetch-site", "cross-site")], refused),
        (&[("origin", "null"), ("sec-fetch-site", "same-origin")], refused),
        (&[("origin", "moz-extension://localhost:7231")], refused),
        // Several origins, which no browser sends.
        (&[("origin", "http://localhost:7231"), ("origin", "https://evil.example")], refused),
        // A configured origin takes precedence over `Sec-Fetch-Site`.
        (&[("origin", "https://trusted.example"), ("sec-fetch-site", "cross-site")], Ok(true)),
        (&[("origin", "http://trusted.example"), ("sec-fetch-site", "cross-site")], refused),
    ];
    for (fields, expected) in rows {
        let fields: Vec<_> = fields.iter().copied().chain([OWN]).collect();
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            assert_eq!(verdict(&method, &fields), expected, "{method} {fields:?}");
        }
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            assert_eq!(verdict(&method, &fields), Ok(expected == Ok(true)), "{method} {fields:?}");
        }
    }
}

#[test]
fn only_an_origin_that_equals_the_host_is_accepted() {
    for (origin, host, own) in [
        ("http://en.example.org", "en.example.org", true),
        ("https://en.example.org", "en.example.org", true),
        ("https://en.example.org", "EN.example.org:443", true),
        ("https://en.example.org", "en.example.org:80", false),
        ("http://en.example.org:80", "en.example.org", true),
        ("http://[::1]:7231", "[::1]:7231", true),
        ("http://[::1]:7231", "[::1]", false),
        ("http://evil.example", "en.example.org", false),
        ("null", "en.example.org", false),
        ("", "en.example.org", false),
    ] {
        let fields = [("origin", origin), ("host", host)];
        assert_eq!(verdict(&Method::POST, &fields).is_ok(), own, "{origin} {host}");
    }
}

#[test]
fn unknown_hosts_are_refused_if_hosts_are_checked() {
    for (host, known) in [
        ("localhost", true),
        ("LOCALHOST:7231", true),
        ("localhost.:7231", true),
        ("wiki.localhost:1", true),
        ("127.0.0.1:7231", true),
        ("127.8.9.10", true),
        ("[::1]:7231", true),
        ("[::ffff:127.0.0.1]", true),
        ("en.example.org", true),
        ("en.example.org:7231", true),
        ("en.example.org.", true),
        ("wiki.internal:8080", true),
        ("wiki.internal", false),
        ("wiki.internal:8081", false),
        ("evil.example", false),
        ("evil.example:7231", false),
        ("notlocalhost", false),
        ("localhost.evil.example", false),
        ("127.0.0.1.evil.example", false),
        ("192.0.2.1", false),
        ("[2001:db8::1]", false),
        ("0.0.0.0", false),
        ("", true),
    ] {
        for method in [Method::GET, Method::POST] {
            let expected = if known { Ok(false) } else { Err(Kind::Misdirected) };
            assert_eq!(verdict(&method, &[("host", host)]), expected, "{host}");
        }
    }
    // The host in the request line takes precedence over `Host`, and an HTTP/1.0 client may name no host.
    let is_accepted = |uri: &'static str, check_host| {
        let settings = Settings { check_host, ..settings() };
        check_browser_request(&Method::GET, &Uri::from_static(uri), &headers(&[OWN]), &settings).is_ok()
    };
    assert!(!is_accepted("http://evil.example/", true));
    assert!(is_accepted("http://evil.example/", false));
    assert_eq!(verdict(&Method::POST, &[]), Ok(false));
}
