use super::*;

fn parse(headers: &[(&str, &str)]) -> std::result::Result<RequestHeaders, HeaderError> {
    RequestHeaders::parse(headers.iter().copied(), &IgnoredHeaders::default(), &StoredHeaders::default())
}

#[test]
fn content_headers_and_x_headers_are_kept() {
    let kept = parse(&[
        ("Content-Type", "text/html; charset=utf-8"),
        ("CONTENT-LANGUAGE", "de"),
        ("X-Spec-Version", " 2.8 "),
        ("x-review", "done"),
        ("x-odd.!~name", ""),
    ])
    .unwrap();
    assert_eq!(kept.content_type.as_deref(), Some("text/html; charset=utf-8"));
    let other: Vec<_> = kept.other.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected =
        [("content-language", "de"), ("x-odd.!~name", ""), ("x-review", "done"), ("x-spec-version", "2.8")];
    assert_eq!(other, expected);
}

#[test]
fn headers_that_are_not_kept_are_refused() {
    for name in [
        "Set-Cookie",
        "Location",
        "Content-Length",
        "Cache-Control",
        "ETag",
        "Content-Security-Policy",
        "X-Accel-Redirect",
        "x-accel-buffering",
        "X-Sendfile",
        "X-SENDFILE-Type",
        "X-LIGHTTPD-send-file",
        "X-LiteSpeed-Location",
        "X-Reproxy-URL",
        "X-Amz-Website-Redirect-Location",
        "X-Frame-Options",
        "X-Varnish",
        "X-Cache",
        "x-rev",
        "X-Parent",
        "X-Content-Type-Options",
        "Content-Encoding",
    ] {
        assert_eq!(parse(&[(name, "1")]), Err(HeaderError::NotKept(name.to_ascii_lowercase())), "{name}");
    }
}

#[test]
fn headers_that_proxies_add_are_left_out() {
    let long = "a".repeat(Headers::MAX_BYTES);
    let added = [
        ("X-Forwarded-For", "192.0.2.1"),
        ("x-forwarded-for", "192.0.2.2"),
        ("X-Real-IP", "192.0.2.1"),
        ("X-Request-ID", "7"),
        ("X-Amzn-Trace-Id", &long),
        ("X-Envoy-Attempt-Count", "\u{e9}"),
        ("X-Review", "done"),
    ];
    let kept = parse(&added).unwrap();
    assert_eq!(kept.other, [("x-review".to_owned(), "done".to_owned())].into());
    let ignored = IgnoredHeaders::new(["x-rev*".parse().unwrap(), "via".parse().unwrap()]);
    let given = [("X-Review", "done"), ("Via", "1.1 cache"), ("X-Other", "1"), ("X-Rev", "7")];
    let kept = RequestHeaders::parse(given, &ignored, &StoredHeaders::default()).unwrap();
    assert_eq!(kept.other, [("x-other".to_owned(), "1".to_owned())].into());
}

#[test]
fn headers_that_are_too_long_together_are_refused() {
    let half = "a".repeat(Headers::MAX_BYTES / 2 - "x-y".len());
    assert!(parse(&[("x-y", &half), ("x-z", &half)]).is_ok());
    assert_eq!(parse(&[("x-y", &half), ("x-zz", &half)]), Err(HeaderError::TooLong));
}

#[test]
fn malformed_header_is_refused() {
    let value = |name: &str| HeaderError::Value(name.to_owned());
    for (name, text, expected) in [
        ("", "x", HeaderError::Name),
        ("x y", "z", HeaderError::Name),
        ("x-é", "z", HeaderError::Name),
        ("x-y:", "z", HeaderError::Name),
        ("x-(y)", "z", HeaderError::Name),
        ("x-y", "a\nb", value("x-y")),
        ("x-y", "é", value("x-y")),
        ("x-y", "\u{7f}", value("x-y")),
        ("Content-Type", "a/b\r\nx: y", value("content-type")),
        ("content-type", " ", HeaderError::NoType),
        ("content-type", "nonsense", HeaderError::NoType),
        ("content-type", "/html", HeaderError::NoType),
        ("content-type", "text/ht ml", HeaderError::NoType),
    ] {
        assert_eq!(parse(&[(name, text)]), Err(expected), "{name}: {text}");
    }
    let twice = |name: &str| Err(HeaderError::Twice(name.to_owned()));
    assert_eq!(parse(&[("x-y", "1"), ("X-Y", "1")]), twice("x-y"));
    assert_eq!(parse(&[("content-type", "a/b"), ("Content-Type", "a/b")]), twice("content-type"));
}

#[test]
fn or_prefers_the_headers_of_self() {
    let part = parse(&[("content-type", "a/b"), ("x-y", "1")]).unwrap();
    let field = parse(&[("content-type", "c/d"), ("x-y", "2"), ("x-z", "3")]).unwrap();
    let both = parse(&[("content-type", "a/b"), ("x-y", "1"), ("x-z", "3")]).unwrap();
    assert_eq!(part.or(field.clone()), both);
    assert_eq!(RequestHeaders::default().or(field.clone()), field);
}
