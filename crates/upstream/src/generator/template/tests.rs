use rashomon_pages::{BucketName, DomainName, Title};

use super::*;

fn url(template: &str, title: &str) -> String {
    let page = Page {
        domain: DomainName::new("en.wiki.example").unwrap(),
        bucket: BucketName::page(),
        title: Title::new(title).unwrap(),
    };
    Template::parse(template).unwrap().url(&page, Revision::new(42).unwrap()).unwrap().into()
}

#[test]
fn placeholders_are_filled() {
    assert_eq!(url("http://r/{domain}/{title}/{rev}", "Main_Page"), "http://r/en.wiki.example/Main_Page/42");
    assert_eq!(url("http://r/w?oldid={rev}&d={domain}", "x"), "http://r/w?oldid=42&d=en.wiki.example");
    assert_eq!(url("https://{domain}/w?{rev}", "x"), "https://en.wiki.example/w?42");
    assert_eq!(url("http://r-{domain}:81/", "x"), "http://r-en.wiki.example:81/");
    assert_eq!(url("http://r", "x"), "http://r/");
}

/// A title may contain anything that has a meaning in a URL.
const ODD: &str = "A/B?c&d=e#f+g%41:@;,'\"<>\\^`{|}[]$!*()Ä€";

const ODD_ENCODED: &str = "A%2FB%3Fc%26d%3De%23f%2Bg%2541%3A%40%3B%2C%27%22%3C%3E%5C%5E%60%7B%7C%7D%5B%5D%24%21%2A\
                           %28%29%C3%84%E2%82%AC";

#[test]
fn any_title_is_one_path_segment_or_one_query_value() {
    let in_path = url("http://r/p/{title}/{rev}", ODD);
    assert_eq!(in_path, format!("http://r/p/{ODD_ENCODED}/42"));
    let in_query = url("http://r/p?title={title}&oldid={rev}", ODD);
    assert_eq!(in_query, format!("http://r/p?title={ODD_ENCODED}&oldid=42"));
    let parsed = Url::parse(&in_query).unwrap();
    let pairs: Vec<_> = parsed.query_pairs().collect();
    assert_eq!(pairs, [("title".into(), ODD.into()), ("oldid".into(), "42".into())]);
    assert_eq!(Url::parse(&in_path).unwrap().path_segments().unwrap().count(), 3);
}

#[test]
fn title_with_dots_does_not_change_the_other_path_segments() {
    for title in ["...", ".a", "a..", "%2e%2e", "%2E", "a/...", "..%2f..%2fx"] {
        let filled = url("http://r/p/{title}/{rev}", title);
        let parsed = Url::parse(&filled).unwrap();
        let segments: Vec<_> = parsed.path_segments().unwrap().collect();
        assert_eq!((segments.len(), segments[0], segments[2]), (3, "p", "42"), "{title}: {filled}");
    }
}

#[test]
fn invalid_templates_are_refused_with_a_remedy() {
    for (template, cure) in [
        ("", "http://"),
        ("wiki.example/{rev}", "http://"),
        ("file:///etc/passwd", "http://"),
        ("ftp://r/{rev}", "http://"),
        ("http:///{rev}", "http://wiki.example/"),
        ("http://r:port/{rev}", "http://wiki.example/"),
        ("http://[::1/{rev}", "http://wiki.example/"),
        ("http://me:secret@r/{rev}", "leave out"),
        ("http://r/{rev}#top", "leave it out"),
        ("http://r/{revision}", "{domain}, {title} and {rev}"),
        ("http://r/{}", "{domain}, {title} and {rev}"),
        ("http://r/{rev", "{domain}, {title} and {rev}"),
        ("http://r/rev}", "{domain}, {title} and {rev}"),
        ("http://{title}/", "only {domain}"),
        ("http://r:8{rev}/", "only {domain}"),
        ("http://r/a b", "percent-encode"),
        ("http://r/ä", "percent-encode"),
        ("http://r\\{domain}/", "percent-encode"),
        ("http://r/\n", "percent-encode"),
    ] {
        let why = Template::parse(template).unwrap_err();
        assert!(why.contains(cure), "{template}: {why}");
    }
}

#[test]
fn has_one_host_detects_a_domain_in_the_host() {
    let one = |template| Template::parse(template).unwrap().has_one_host();
    assert!(one("http://r/{domain}/{rev}") && one("http://r:81/{title}"));
    assert!(!one("http://{domain}/{rev}") && !one("http://x-{domain}:81/{rev}"));
}
