//! A real MediaWiki renders revisions that it knows.

mod server;

use std::time::Duration;

use rashomon_pages::{Error, GenerateError, Page, Title};
use rashomon_upstream::generator::{HttpGenerator, Source};

use crate::{
    page, settings, source, upstream,
    wiki::{DAY, Wiki, text},
};
use server::MediaWiki;

/// MediaWiki takes seconds if nothing is cached yet, and more on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const TITLE: &str = "The_Night/of_&_the+Märigold";

/// A generator of the html of Parsoid, of the html of the older parser, and of data of the page by its title.
fn generator(mediawiki: &MediaWiki) -> HttpGenerator {
    let from = |path: &str, content_type: &str| Source {
        content_type: Some(content_type.to_owned()),
        max_size: 1 << 20,
        ..source(mediawiki.url(path))
    };
    let properties = [
        ("html", from("/rest.php/v1/revision/{rev}/html", "text/html")),
        ("legacy", from("/index.php?title={title}&oldid={rev}&action=render", "text/html")),
        ("meta", from("/rest.php/v1/page/{title}/bare", "application/json")),
    ];
    HttpGenerator::new(settings(upstream(&properties, &[mediawiki.host()], PATIENCE))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn old_revision_is_rendered_by_mediawiki_once_per_ttl() {
    let Some(mediawiki) = MediaWiki::start() else { return };
    let old = mediawiki.edit(TITLE, "First '''text''' with a [[link]].");
    let new = mediawiki.edit(TITLE, "Second.");
    let wiki = Wiki::new(generator(&mediawiki)).await;
    let page = Page { title: Title::new(TITLE).unwrap(), ..page("x") };
    let first = wiki.put(&page, old, &[("html", "as the editor sent it"), ("wikitext", "First")]).await;
    wiki.put(&page, new, &[("html", "newer"), ("wikitext", "Second")]).await;
    assert_eq!(text(&wiki.read(&page, old, "html").await.unwrap().1), "as the editor sent it");
    wiki.cull().await;
    wiki.clock.advance(2 * DAY);
    let path = format!("/rest.php/v1/revision/{old}/html");
    assert_eq!(mediawiki.asked(&path), 0);

    let (made, html) = wiki.read(&page, old, "html").await.unwrap();
    assert_ne!(made, first);
    assert!(html.info.headers.content_type.starts_with("text/html"), "{:?}", html.info.headers);
    let html = text(&html);
    assert!(
        html.contains("mw:htmlVersion") && html.contains("<b id=\"") && html.contains("text</b>"),
        "{html}"
    );
    assert!(!html.contains("Second"), "{html}");

    // All properties were made together, and none is requested again.
    let (again, legacy) = wiki.read(&page, old, "legacy").await.unwrap();
    assert!(again == made && text(&legacy).contains("First <b>text</b>"), "{}", text(&legacy));
    let (again, meta) = wiki.read(&page, old, "meta").await.unwrap();
    assert!(again == made && text(&meta).contains(TITLE), "{}", text(&meta));
    wiki.clock.advance(DAY / 2);
    assert_eq!(wiki.read(&page, old, "html").await.unwrap().0, made);
    assert_eq!(mediawiki.asked(&path), 1);
    assert_eq!(mediawiki.asked("GET "), 3, "one request a property");

    wiki.clock.advance(4 * DAY);
    let (second, html) = wiki.read(&page, old, "html").await.unwrap();
    assert_ne!(second, made);
    assert!(text(&html).contains("text</b>"));
    assert_eq!(mediawiki.asked(&path), 2);
    assert_eq!(text(&wiki.read(&page, new, "html").await.unwrap().1), "newer", "the latest is as it was");

    // A revision that MediaWiki does not know.
    let unknown = new + 50;
    wiki.put(&page, unknown, &[("wikitext", "of another wiki")]).await;
    let error = wiki.read(&page, unknown, "html").await.unwrap_err();
    assert!(matches!(&error, Error::Generate(GenerateError::Unknown(why)) if why.contains("404")), "{error}");
}
