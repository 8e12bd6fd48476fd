//! Tests of the HTML pages: their content and their links, and that no stored content can run in them.

use std::time::Duration;

use rashomon_server::Settings;

use super::world::{IMPORT, PAGE, World};
use crate::html::{BROWSER, addresses, attributes, check_page, text_of};

const MAIN_PAGE: &str = "/pages/enwiki/Main_Page";

/// Titles that are easily shown or linked wrongly, with their spelling in URLs.
const ODD_TITLES: [(&str, &str); 8] = [
    ("<script>alert(1)</script>", "%3Cscript%3Ealert(1)%3C/script%3E"),
    ("\"onmouseover=\"alert(1)", "%22onmouseover%3D%22alert(1)"),
    ("It's 100% & more?#top", "It%27s_100%25_%26_more%3F%23top"),
    ("&lt;b&gt;", "%26lt;b%26gt;"),
    ("{{ 7*7 }}", "%7B%7B_7*7_%7D%7D"),
    ("A//B/ C/", "A//B/_C/"),
    ("مرحبا", "%D9%85%D8%B1%D8%AD%D8%A8%D8%A7"),
    ("Über/Île", "%C3%9Cber/%C3%8Ele"),
];

async fn put(world: &World, title: &str, form: &str) -> String {
    let answer = world.post(&format!("/v1/enwiki/page/{title}?rev/"), form).await.expect(201);
    world.clock.advance(Duration::from_secs(1));
    answer.json()["tid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn empty_server_shows_how_to_begin() {
    let world = World::new().await;
    let page = world.page("/", 200).await;
    let text = text_of(&page);
    assert!(text.contains("Nothing is stored here yet"), "{text}");
    assert!(text.contains("curl 'http://localhost/v1/enwiki/page/Main_Page?rev/' -d _rev=1"), "{text}");
}

#[tokio::test]
async fn links_lead_from_the_list_of_domains_to_the_bodies() {
    let world = World::new().await;
    let first = world.revision("_rev=1&html=<p>one</p>&wikitext=one&_user=Ann").await;
    let again = world.render("1", "html=<p>again</p>").await;
    let second = world.revision("_rev=2&_parent=1&html=<p>two</p>&_comment=More").await;
    let mut followed = 0;
    for url in [
        "/".to_owned(),
        "/pages/enwiki/".to_owned(),
        MAIN_PAGE.to_owned(),
        format!("{MAIN_PAGE}?rev/{first}/"),
        format!("{MAIN_PAGE}?rev/{again}/"),
        format!("{MAIN_PAGE}?rev/{second}/"),
    ] {
        let page = world.page(&url, 200).await;
        followed += world.follow(&url, &page).await;
    }
    assert!(followed > 60, "{followed}");
    let leads = |page: &str, to: &str| addresses(page).iter().any(|address| address == to);
    assert!(leads(&world.page("/", 200).await, "/pages/enwiki/"));
    assert!(leads(&world.page("/pages/enwiki/", 200).await, MAIN_PAGE));
    assert!(leads(&world.page(MAIN_PAGE, 200).await, &format!("{MAIN_PAGE}?rev/{again}/")));
    assert!(leads(&world.page(MAIN_PAGE, 200).await, &format!("{PAGE}?rev/1/")));
}

#[tokio::test]
async fn odd_titles_are_shown_and_linked_correctly() {
    let world = World::new().await;
    for (title, spelling) in ODD_TITLES {
        let tid =
            put(&world, spelling, "_rev=1&wikitext=%3Ci%3Etext&_user=%3Cb%3EEve&_comment=%3Cu%3E").await;
        for url in [format!("/pages/enwiki/{spelling}"), format!("/pages/enwiki/{spelling}?rev/{tid}/")] {
            let page = world.page(&url, 200).await;
            let text = text_of(&page);
            assert!(text.contains(title), "{title}: {text}");
            assert!(text.contains("<b>Eve") && text.contains("<u>"), "{text}");
            assert!(!page.contains("<b>Eve") && !page.contains("<u>") && !page.contains("<i>text"), "{page}");
            world.follow(&url, &page).await;
        }
    }
    let page = world.page("/pages/enwiki/", 200).await;
    let links = addresses(&page);
    for (title, spelling) in ODD_TITLES {
        assert!(links.contains(&format!("/pages/enwiki/{spelling}")), "{spelling} in {links:?}");
        assert!(text_of(&page).contains(title), "{title}");
    }
}

#[tokio::test]
async fn the_longest_title_is_shown() {
    let world = World::new().await;
    let title = "Long_".repeat(204);
    put(&world, &title, "_rev=1&html=x").await;
    let page = world.page(&format!("/pages/enwiki/{title}"), 200).await;
    assert!(text_of(&page).contains(&"Long ".repeat(203)), "{page}");
}

#[tokio::test]
async fn titles_are_listed_in_order_in_several_parts() {
    let world = World::new().await;
    for number in 0..450 {
        put(&world, &format!("Page_%26_{number:03}"), "_rev=1&html=x").await;
    }
    let mut url = "/pages/enwiki/".to_owned();
    let mut titles = Vec::new();
    let mut parts = 0;
    loop {
        let page = world.page(&url, 200).await;
        let links = addresses(&page);
        titles.extend(links.iter().filter(|link| link.contains("/Page_")).cloned());
        parts += 1;
        match links.iter().find(|link| link.starts_with("?after=")) {
            Some(next) => url = format!("/pages/enwiki/{next}"),
            None => break,
        }
    }
    assert_eq!((parts, titles.len()), (3, 450));
    assert!(titles.is_sorted());
}

#[tokio::test]
async fn a_page_is_opened_by_its_title() {
    let world = World::new().await;
    put(&world, "R%26D", "_rev=1&html=x").await;
    put(&world, "Zebra", "_rev=1&html=x").await;
    let answer = world.get("/pages/enwiki/?title=+R%26D+").await.expect(302);
    assert_eq!(answer.header("location"), "/pages/enwiki/R%26D");
    assert_eq!(answer.header("cache-control"), "no-store");
    let page = world.page("/pages/enwiki/?title=Some+%3Cthing%3E", 200).await;
    let text = text_of(&page);
    assert!(text.contains("There is no page with the title Some <thing> ."), "{text}");
    let links = addresses(&page);
    assert!(links.contains(&"/pages/enwiki/Zebra".to_owned()), "{links:?}");
    assert!(!links.contains(&"/pages/enwiki/R%26D".to_owned()), "{links:?}");
    assert!(attributes(&page, "value").contains(&"Some <thing>".to_owned()));
    world.page("/pages/enwiki/?title=Zzz", 200).await;
}

#[tokio::test]
async fn history_shows_all_metadata_of_revisions() {
    let world = World::new().await;
    world.revision("_rev=7&html=<p>one</p>&_user=Ann&_comment=First+words&_parent=0").await;
    world.revision("_rev=9&_parent=7&html=<p>two+two</p>&_user=192.0.2.1&_minor=1").await;
    for number in 1..=6 {
        world.render("9", &format!("html=again+{number}")).await;
    }
    let page = world.page(MAIN_PAGE, 200).await;
    let text = text_of(&page);
    for expected in [
        "9 from 7 2024-01-01 00:00:01 192.0.2.1 minor 7 2024-01-01 00:00:07 2024-01-01 00:00:06 2024-01-01 00:00:05 \
         2024-01-01 00:00:04 and 3 older JSON",
        "7 2024-01-01 00:00:00 Ann First words 10 2024-01-01 00:00:00 JSON",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    assert!(text.find("192.0.2.1") < text.find("First words"), "{text}");
    let headers: Vec<_> = page.matches("scope=\"col\"").collect();
    assert_eq!(headers.len(), 7);
    // The time field contains the time of the newest revision, to the minute.
    assert!(attributes(&page, "value").contains(&"2024-01-01T00:00".to_owned()));
}

#[tokio::test]
async fn long_history_is_listed_in_several_parts() {
    let world = World::new().await;
    for rev in 1..=120 {
        world.revision(&format!("_rev={rev}&html=x")).await;
    }
    world.render("3", "html=y").await;
    let mut url = MAIN_PAGE.to_owned();
    let mut revisions = Vec::new();
    loop {
        let page = world.page(&url, 200).await;
        let links = addresses(&page);
        let api = format!("{PAGE}?rev/");
        let of_part =
            links.iter().filter_map(|link| link.strip_prefix(&api)?.strip_suffix('/')?.parse::<u32>().ok());
        revisions.extend(of_part);
        match links.into_iter().find(|link| link.contains("&page=")) {
            Some(next) => url = next,
            None => break,
        }
    }
    assert_eq!(revisions, (1..=120).rev().collect::<Vec<_>>());
    // The oldest part has revision 3 with both of its renders.
    let text = text_of(&world.page(&url, 200).await);
    assert!(text.contains("1 2024-01-01 00:02:00 2024-01-01 00:00:02 JSON"), "{text}");
}

#[tokio::test]
async fn newest_render_at_a_given_time_is_found() {
    let world = World::new().await;
    let first = world.revision("_rev=1&html=one").await;
    world.clock.advance(Duration::from_secs(90));
    let second = world.revision("_rev=2&html=two").await;
    for (time, tid) in [
        ("2024-01-01T00%3A00", &first),
        ("2024-01-01T00:01", &second),
        ("2024-01-01+00%3A01%3A30", &first),
        ("2024-01-01T00:01:31", &second),
        ("2024-01-01", &second),
        ("2030-01-01T00:00", &second),
    ] {
        let answer = world.get(&format!("{MAIN_PAGE}?at={time}")).await.expect(302);
        assert_eq!(answer.header("location"), format!("{MAIN_PAGE}?rev/{tid}/"), "{time}");
        assert_eq!(answer.header("cache-control"), "no-store");
    }
    let text = text_of(&world.page(&format!("{MAIN_PAGE}?at=2023-12-31T23:59"), 404).await);
    assert!(text.contains("The first revision of the page is later than the requested time"), "{text}");
    for time in ["", "yesterday", "%FF", "2024-02-30T00:00"] {
        world.page(&format!("{MAIN_PAGE}?at={time}"), 400).await;
    }
}

#[tokio::test]
async fn render_is_shown_in_a_sandbox_with_its_properties() {
    let world = World::new().await;
    let first = world.revision("_rev=5&html=<script>alert(1)</script>&meta={}&_user=Ann").await;
    let again = world.render("5", "html=again").await;
    world.revision("_rev=6&_parent=5&html=two").await;
    let page = world.page(&format!("{MAIN_PAGE}?rev/{first}/"), 200).await;
    let frame = format!(
        "<iframe class=\"content\" sandbox title=\"The page, as HTML\" src=\"{PAGE}?rev/{first}/html\">"
    );
    assert!(page.contains(&frame), "{page}");
    assert!(!page.contains("alert(1)"));
    let text = text_of(&page);
    for expected in [
        "As it was with revision 5, saved 2024-01-01 00:00:00 UTC by Ann",
        "Renders of revision 5 2024-01-01 00:00:01 2024-01-01 00:00:00 Newer render →",
        "html text/html; charset=utf-8 25 ",
        "meta application/json 2 bf21a9e8fbc5a3846fb05b4fa0859e0917b2202f",
        "All revisions Revision 6 →",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    let newer = text_of(&world.page(&format!("{MAIN_PAGE}?rev/{again}/"), 200).await);
    assert!(newer.contains("← Older render") && !newer.contains("Newer render"), "{newer}");
    let latest = world.get(&format!("{MAIN_PAGE}?rev/latest/")).await.expect(302);
    let latest = text_of(&world.page(latest.header("location"), 200).await);
    assert!(latest.contains("As it is with revision 6"), "{latest}");
    assert!(latest.contains("← Revision 5 All revisions") && !latest.contains("Revision 7"), "{latest}");
    let of_revision = world.get(&format!("{MAIN_PAGE}?rev/5/")).await.expect(302);
    assert_eq!(of_revision.header("location"), format!("{MAIN_PAGE}?rev/{again}/"));
}

#[tokio::test]
async fn a_page_without_html_is_shown_as_its_text() {
    let world = World::new().await;
    let tid = world.revision("_rev=1&wikitext='''A'''+%3Cb%3E%0Aline").await;
    let page = world.page(&format!("{MAIN_PAGE}?rev/{tid}/"), 200).await;
    assert!(page.contains("&#39;&#39;&#39;A&#39;&#39;&#39; &#60;b&#62;\nline</pre>"), "{page}");
    assert!(!page.contains("<iframe"));
    let long = "é".repeat(200_000);
    let tid = world.revision(&format!("_rev=2&wikitext=x{long}")).await;
    let page = world.page(&format!("{MAIN_PAGE}?rev/{tid}/"), 200).await;
    assert!(text_of(&page).contains("Only its beginning is shown"));
    // The text is cut within the bytes of a character, which is left out.
    assert_eq!(page.matches('é').count(), (256 * 1024 - 1) / 2);
    assert!(!page.contains('\u{fffd}'));
    let tid = world.revision("_rev=3&meta={}").await;
    let page = world.page(&format!("{MAIN_PAGE}?rev/{tid}/"), 200).await;
    assert!(text_of(&page).contains("There is neither HTML nor wikitext in this render"));
}

#[tokio::test]
async fn hidden_text_is_shown_as_hidden() {
    let world = World::new().await;
    let export = r#"<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
      <siteinfo><sitename>The &lt;Wiki&gt;</sitename><dbname>enwiki</dbname></siteinfo>
      <page><title>Main Page</title><ns>0</ns><id>1</id><revision><id>3</id>
        <timestamp>2010-01-01T00:00:00Z</timestamp><contributor deleted="deleted" /><comment deleted="deleted" />
        <model>wikitext</model><format>text/x-wiki</format><text deleted="deleted" /></revision></page></mediawiki>"#;
    world.request("POST", IMPORT, &[], export).await.expect(200);
    let text = text_of(&world.page(MAIN_PAGE, 200).await);
    assert!(text.contains("3 2010-01-01 00:00:00 (hidden) (hidden) 0 2010-01-01 00:00:00"), "{text}");
    let render = world.get(&format!("{MAIN_PAGE}?rev/3/")).await.expect(302);
    let page = world.page(render.header("location"), 200).await;
    assert!(text_of(&page).contains("The text of this revision was hidden in the wiki that it came from"));
    // The wiki's own name is shown and escaped.
    for url in ["/", "/pages/enwiki/"] {
        assert!(text_of(&world.page(url, 200).await).contains("The <Wiki>"));
    }
}

#[tokio::test]
async fn missing_resources_have_an_html_page() {
    let world = World::new().await;
    let tid = world.revision("_rev=1&html=x").await;
    let other = tid.replacen(&tid[..8], "00000000", 1);
    for (url, status) in [
        ("/pages/enwiki/%3Cscript%3E".to_owned(), 404),
        ("/pages/nowiki/".to_owned(), 404),
        ("/pages/nowiki/Main_Page".to_owned(), 404),
        (format!("{MAIN_PAGE}?rev/{other}/"), 404),
        (format!("{MAIN_PAGE}?rev/9/"), 404),
        (format!("{MAIN_PAGE}?rev/latest/html"), 404),
        (format!("{MAIN_PAGE}?timemap/html"), 404),
        (format!("{MAIN_PAGE}?rev/0/"), 400),
        (format!("{MAIN_PAGE}?%3Cscript%3E"), 400),
        (format!("{MAIN_PAGE}?rev/&page=*"), 400),
        ("/pages/En/".to_owned(), 400),
        ("/pages/%3Cscript%3E/".to_owned(), 400),
        ("/pages/enwiki/%FF".to_owned(), 400),
        ("/pages/enwiki/..%2F".to_owned(), 400),
        ("/pages/enwiki/?x=1".to_owned(), 400),
        ("/pages/enwiki/?after=".to_owned(), 400),
        ("/pages/enwiki/?title=%FF".to_owned(), 400),
        ("/?x".to_owned(), 400),
        ("/?after=EN".to_owned(), 400),
    ] {
        let page = world.page(&url, status).await;
        assert!(text_of(&page).contains("All domains"), "{page}");
        // Clients that do not ask for HTML get a problem.
        world.get(&url).await.expect(status).check_problem();
    }
    // The page of a problem links to existing pages.
    for url in [format!("{MAIN_PAGE}?rev/9/"), "/pages/enwiki/No_such".to_owned()] {
        let page = world.page(&url, 404).await;
        world.follow(&url, &page).await;
        assert!(addresses(&page).contains(&"/pages/enwiki/".to_owned()));
    }
}

#[tokio::test]
async fn problem_names_the_parameter_that_is_not_utf8() {
    let world = World::new().await;
    for (path, parameter) in [("/pages/enwiki/", "after"), ("/pages/enwiki/", "title"), (MAIN_PAGE, "at")] {
        let problem = world.get(&format!("{path}?{parameter}=%FF")).await.expect(400);
        let detail = format!("The value of the parameter '{parameter}' must be percent-encoded UTF-8.");
        assert!(problem.text().contains(&detail), "{}", problem.text());
    }
}

#[tokio::test]
async fn store_failure_has_an_html_page() {
    let world = World::new().await;
    world.revision("_rev=1&html=x").await;
    let failing = rashomon_tables::Rates { before: 1000, ..Default::default() };
    world.store.set_plan(rashomon_tables::Plan::seeded(1, failing));
    for url in
        ["/", "/pages/enwiki/", "/pages/enwiki/?title=A", MAIN_PAGE, &format!("{MAIN_PAGE}?at=2024-01-01")]
    {
        let answer = world.get_with(url, BROWSER).await;
        assert_eq!(answer.status, 503, "{url}");
        check_page(url, &answer);
        assert_eq!(answer.header("retry-after"), "2");
    }
    // The description of the API does not need the store.
    world.page("/docs", 200).await;
}

#[tokio::test]
async fn each_page_has_one_address() {
    let world = World::new().await;
    world.revision("_rev=1&html=x").await;
    let tid = world.revision("_rev=2&html=x").await;
    for (url, status, location) in [
        ("/pages/enwiki".to_owned(), 301, "/pages/enwiki/".to_owned()),
        ("/pages/enwiki?after=A".to_owned(), 301, "/pages/enwiki/?after=A".to_owned()),
        ("/pages/enwiki/Main%20Page?rev/2/".to_owned(), 301, format!("{MAIN_PAGE}?rev/2/")),
        ("/pages/enwiki/M%61in_Page".to_owned(), 301, MAIN_PAGE.to_owned()),
        (format!("{MAIN_PAGE}?rev"), 302, format!("{MAIN_PAGE}?rev/")),
        (format!("{MAIN_PAGE}?rev/2"), 302, format!("{MAIN_PAGE}?rev/2/")),
        (format!("{MAIN_PAGE}?rev/latest"), 302, format!("{MAIN_PAGE}?rev/latest/")),
        (format!("{MAIN_PAGE}?rev/{tid}"), 302, format!("{MAIN_PAGE}?rev/{tid}/")),
    ] {
        let answer = world.get(&url).await.expect(status);
        assert_eq!(answer.header("location"), location, "{url}");
    }
    let first = world.page(MAIN_PAGE, 200).await;
    assert_eq!(world.page(&format!("{MAIN_PAGE}?rev/"), 200).await, first);
}

#[tokio::test]
async fn html_pages_are_read_only() {
    let world = World::with(Settings { read_only: true, ..Settings::default() }).await;
    for url in ["/", "/pages/enwiki/", MAIN_PAGE, "/docs", "/openapi.json", "/assets/style.css"] {
        let answer = world.request("POST", url, &[], "x").await.expect(405);
        assert_eq!(answer.header("allow"), "GET, HEAD, OPTIONS", "{url}");
    }
    let head = world.request("HEAD", "/", &[], "").await;
    assert_eq!(head.header("content-length"), world.get("/").await.body.len().to_string());
}

#[tokio::test]
async fn style_sheet_is_cacheable_and_self_contained() {
    let world = World::new().await;
    for (url, content_type) in
        [("/assets/style.css", "text/css; charset=utf-8"), ("/assets/icon.svg", "image/svg+xml")]
    {
        let answer = world.get(url).await.expect(200);
        assert_eq!(answer.header("content-type"), content_type);
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        let again = world.get_with(url, &[("if-none-match", answer.header("etag"))]).await;
        assert_eq!(again.status, 304);
        for forbidden in ["@import", "url(", "<script", "<style"] {
            assert!(!answer.text().contains(forbidden), "{forbidden} in {url}");
        }
    }
    let style = world.get("/assets/style.css").await;
    assert!(style.text().contains("prefers-color-scheme: dark"));
}
