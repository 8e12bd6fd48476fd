//! Settings that are refused, and the buckets to which settings apply.

use std::time::Duration;

use rashomon_pages::{BucketName, DomainName, Generator as _, Page};
use rashomon_upstream::generator::{HttpGenerator, Settings, SettingsError, Source, Upstream};

use crate::{
    LONG_TIMEOUT, name, page, rev,
    server::{Server, html},
    settings, source, upstream, with_bucket,
};

fn refused(renderer: Upstream) -> SettingsError {
    HttpGenerator::new(settings(renderer)).unwrap_err()
}

#[test]
fn invalid_settings_are_refused_with_a_remedy() {
    let hosts = ["wiki.example".to_owned()];
    let html = |url: &str| [("html", source(url))];
    for (renderer, cures) in [
        (upstream(&html("wiki.example"), &hosts, LONG_TIMEOUT), ["html", "http://"]),
        (
            upstream(&html("http://wiki.example/{x}"), &hosts, LONG_TIMEOUT),
            ["{x}", "{domain}, {title} and {rev}"],
        ),
        (upstream(&html("http://evil/{rev}"), &hosts, LONG_TIMEOUT), ["evil", "add it"]),
        (
            upstream(&html("http://wiki.example:81/{rev}"), &hosts, LONG_TIMEOUT),
            ["wiki.example:81", "add it"],
        ),
        (upstream(&html("http://wiki.example/"), &["*".to_owned()], LONG_TIMEOUT), ["'*'", "name each host"]),
        (upstream(&html("http://wiki.example/"), &hosts, Duration::ZERO), ["timeout", "30 seconds"]),
    ] {
        let error = refused(renderer).to_string();
        assert!(cures.iter().all(|cure| error.contains(cure)), "{error}");
    }
    let typed = Source { content_type: Some("html".to_owned()), ..source("http://wiki.example/") };
    let error = refused(upstream(&[("html", typed)], &hosts, LONG_TIMEOUT));
    assert!(matches!(&error, SettingsError::ContentType { .. }), "{error}");
    assert!(error.to_string().contains("such as text/html"), "{error}");
}

#[test]
fn invalid_settings_of_one_bucket_are_refused() {
    let renderer = upstream(&[("html", source("http://evil/"))], &[], LONG_TIMEOUT);
    assert!(HttpGenerator::new(with_bucket(None, "wiki.example", "page", renderer)).is_err());
}

#[tokio::test]
async fn a_bucket_has_its_own_renderer_or_that_of_all() {
    let server = Server::new(html).await;
    let of_all = upstream(&[("html", source(server.url("/all")))], &[server.host()], LONG_TIMEOUT);
    let its_own = upstream(&[("meta", source(server.url("/own")))], &[server.host()], LONG_TIMEOUT);
    let generator =
        HttpGenerator::new(with_bucket(Some(of_all.clone()), "wiki.example", "page", its_own)).unwrap();
    let elsewhere = [
        Page { domain: DomainName::new("other.example").unwrap(), ..page("A") },
        Page { bucket: BucketName::new("talk").unwrap(), ..page("A") },
    ];
    assert_eq!(generator.makes(&page("A")), [name("meta")]);
    assert_eq!(generator.generate(&page("A"), rev(1)).await.unwrap()[0].body, "/own");
    for page in &elsewhere {
        assert_eq!(generator.makes(page), [name("html")]);
        assert_eq!(generator.generate(page, rev(1)).await.unwrap()[0].body, "/all");
    }
    let off = Upstream { properties: Default::default(), ..of_all.clone() };
    let generator = HttpGenerator::new(with_bucket(Some(of_all), "wiki.example", "page", off)).unwrap();
    assert!(generator.makes(&page("A")).is_empty());
    assert!(generator.generate(&page("A"), rev(1)).await.unwrap().is_empty());
    let nothing = HttpGenerator::new(Settings::default()).unwrap();
    assert!(nothing.makes(&page("A")).is_empty());
    assert_eq!(server.asked(), 3);
}

#[tokio::test]
async fn host_from_the_domain_placeholder_must_be_allowed() {
    let server = Server::new(|_| html("<p>")).await;
    let url = format!("http://{{domain}}:{}/", server.address.port());
    let generator =
        HttpGenerator::new(settings(upstream(&[("html", source(url))], &[server.host()], LONG_TIMEOUT)))
            .unwrap();
    let on = |domain: &str| Page { domain: DomainName::new(domain).unwrap(), ..page("A") };
    assert_eq!(generator.generate(&on("127.0.0.1"), rev(1)).await.unwrap()[0].body, "<p>");
    for other in ["localhost", "127.0.0.2", "evil.example"] {
        let error = generator.generate(&on(other), rev(1)).await.unwrap_err().to_string();
        assert!(error.contains("not one of the allowed hosts"), "{error}");
    }
    assert_eq!(server.asked(), 1);
}
