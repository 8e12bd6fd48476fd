//! Tests of reads of a page at a time: with the time in the URL, and with RFC 7089.

use std::time::Duration;

use rashomon_pages::{
    ArchivePolicy, ArchiveSettings, BucketArchive, DomainName, RevisionStore, SealOptions, Settings,
};
use rashomon_tables::{Call, Fault, Plan};

use super::world::{Answer, PAGE, World};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The URL of [`PAGE`] in links.
const URL: &str = "http://localhost/v1/enwiki/page/Main_Page";

/// The states in a `Link` header: the second of each in January 2013, and its relations.
fn states(answer: &Answer) -> Vec<String> {
    let link = answer.header("link");
    let states = link.split(", <").filter_map(|link| link.split_once("; datetime=\"Tue, 01 Jan 2013 00:00:"));
    let relation = |text: &str| text.split('"').nth(1).unwrap().to_owned();
    states.map(|(link, second)| format!("{} {}", &second[..2], relation(link))).collect()
}

/// Three revisions, whose numbers do not rise with time; the first has no html.
async fn history() -> (World, [String; 3]) {
    let world = World::new().await;
    let first = world.revision("_rev=5&wikitext=a&_timestamp=2013-01-01T00:00:00Z").await;
    let second = world.revision("_rev=3&html=b&_timestamp=2013-02-01T00:00:00.5Z").await;
    let third = world.revision("_rev=9&html=c&_timestamp=2013-03-01T00:00:00Z").await;
    (world, [first, second, third])
}

#[tokio::test]
async fn time_selects_the_render_of_that_time() {
    let (world, [first, second, third]) = history().await;
    for (time, name, tid) in [
        ("2013-01-01T00:00:00Z", "wikitext", &first),
        ("2013-02-01T00:00:00.5Z", "html", &second),
        ("2013-02-15T12:00:00Z", "html", &second),
        ("2013-02-15T12%3A00%3a00Z", "html", &second),
        ("2013-02-15T12:00:00.123456Z", "html", &second),
        ("2013-03-01T01:00:00+01:00", "html", &third),
        ("9999-12-31T23:59:59Z", "html", &third),
    ] {
        let answer = world.get(&format!("{PAGE}?rev/{time}/{name}")).await.expect(302);
        assert_eq!(answer.header("location"), format!("{PAGE}?rev/{tid}/{name}"), "{time}");
        assert_eq!(answer.header("cache-control"), "no-store");
    }
    for url in [
        format!("{PAGE}?rev/2012-12-31T23:59:59.999999Z/html"),
        format!("{PAGE}?rev/0001-01-01T00:00:00Z/html"),
        // At that time the page had no html.
        format!("{PAGE}?rev/2013-01-15T00:00:00Z/html"),
        "/v1/enwiki/page/Other?rev/2013-01-15T00:00:00Z/html".to_owned(),
    ] {
        world.get(&url).await.expect(404);
    }
    // The latest is determined by number, not by time.
    let answer = world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
    assert_eq!(answer.text(), "c");
}

#[tokio::test]
async fn the_timegate_selects_by_date() {
    let (world, [_, second, third]) = history().await;
    let url = format!("{PAGE}?timegate/html");
    for (date, tid) in [
        (None, &third),
        (Some("Fri, 15 Feb 2013 00:00:00 GMT"), &second),
        // A state is found by its own date, which has whole seconds.
        (Some("Fri, 01 Feb 2013 00:00:00 GMT"), &second),
        // A date before the first state with html selects that state.
        (Some("Mon, 01 Jan 1900 00:00:00 GMT"), &second),
        (Some("Wed, 01 Jan 2098 00:00:00 GMT"), &third),
    ] {
        let headers: Vec<_> = date.iter().map(|date| ("accept-datetime", *date)).collect();
        let answer = world.get_with(&url, &headers).await.expect(302);
        assert_eq!(answer.header("location"), format!("{PAGE}?rev/{tid}/html"), "{date:?}");
        assert_eq!(answer.header("vary"), "accept-datetime");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert!(answer.header("link").contains("rel=\"original\""));
    }
    for malformed in ["yesterday", "2013-02-15T00:00:00Z", "Mon, 15 Feb 2013 00:00:00 GMT", ""] {
        let refused = world.get_with(&url, &[("accept-datetime", malformed)]).await.expect(400);
        assert_eq!(refused.header("vary"), "accept-datetime");
    }
    let missing = world.get(&format!("{PAGE}?timegate/never-given")).await.expect(404);
    assert_eq!(missing.header("vary"), "accept-datetime");
    world.get("/v1/enwiki/page/Other?timegate/html").await.expect(404);
}

#[tokio::test]
async fn the_timemap_lists_what_the_timegate_selects() {
    let (world, [_, second, third]) = history().await;
    let answer = world.get(&format!("{PAGE}?timemap/html")).await.expect(200);
    assert_eq!(answer.header("content-type"), "application/link-format");
    assert_eq!(
        answer.text(),
        format!(
            "<{URL}>; rel=\"original\",\n\
             <{URL}?rev/latest/html>; rel=\"latest-version\",\n\
             <{URL}?timegate/html>; rel=\"timegate\",\n\
             <{URL}?timemap/html>; rel=\"self\"; type=\"application/link-format\"; \
             from=\"Fri, 01 Feb 2013 00:00:00 GMT\"; until=\"Fri, 01 Mar 2013 00:00:00 GMT\",\n\
             <{URL}?rev/{second}/html>; rel=\"first memento\"; datetime=\"Fri, 01 Feb 2013 00:00:00 GMT\",\n\
             <{URL}?rev/{third}/html>; rel=\"last memento\"; datetime=\"Fri, 01 Mar 2013 00:00:00 GMT\"\n"
        )
    );
    let of_wikitext = world.get(&format!("{PAGE}?timemap/wikitext")).await.expect(200);
    assert!(of_wikitext.text().starts_with(&format!("<{URL}?rev/latest/wikitext>; rel=\"original\",\n")));
    world.get("/v1/enwiki/page/Other?timemap/html").await.expect(404);
}

#[tokio::test]
async fn a_long_timemap_comes_in_parts() {
    let world = World::new().await;
    for rev in 1..=5 {
        world.revision(&format!("_rev={rev}&html=number {rev}")).await;
    }
    let mut url = format!("{PAGE}?timemap/html&limit=2");
    let mut parts = Vec::new();
    loop {
        let part = world.get(&url).await.expect(200).text().to_owned();
        parts.push(part.matches("memento\"; datetime").count());
        let Some(next) = part.lines().find(|line| line.contains("rel=\"next timemap\"")) else { break };
        assert!(next.starts_with(&format!("<{URL}?timemap/html&limit=2&page=")), "{next}");
        url = next["<http://localhost".len()..next.find('>').unwrap()].to_owned();
    }
    assert_eq!(parts, [2, 2, 1]);
}

#[tokio::test]
async fn the_timegate_links_to_the_states_around_the_selected_one() {
    let world = World::new().await;
    let mut tids = Vec::new();
    // The revision 4 has two states, and the one without html has none.
    for (rev, second, name) in
        [(1, 10, "html"), (3, 20, "html"), (4, 30, "html"), (5, 35, "wikitext"), (9, 50, "html")]
    {
        let form = format!("_rev={rev}&{name}=number {rev}&_timestamp=2013-01-01T00:00:{second}Z");
        tids.push(world.revision(&form).await);
    }
    world.render("4", "html=again&_timestamp=2013-01-01T00:00:40Z").await;
    for (second, expected) in [
        (0, &["10 first memento", "20 next memento", "50 last memento"][..]),
        (15, &["10 first memento", "20 next memento", "50 last memento"]),
        (20, &["10 first prev memento", "20 memento", "30 next memento", "50 last memento"]),
        (39, &["10 first memento", "20 prev memento", "30 memento", "40 next memento", "50 last memento"]),
        (40, &["10 first memento", "30 prev memento", "40 memento", "50 next last memento"]),
        (59, &["10 first memento", "40 prev memento", "50 last memento"]),
    ] {
        let date = format!("Tue, 01 Jan 2013 00:00:{second:02} GMT");
        let answer = world.get_with(&format!("{PAGE}?timegate/html"), &[("accept-datetime", &date)]).await;
        assert_eq!(states(&answer.clone().expect(302)), expected, "{second}");
        let range = "rel=\"timemap\"; type=\"application/link-format\"; from=\"Tue, 01 Jan 2013 00:00:10 GMT\"; \
                     until=\"Tue, 01 Jan 2013 00:00:50 GMT\"";
        assert!(answer.header("link").contains(range), "{answer:?}");
    }
    let only = world.get(&format!("{PAGE}?timegate/wikitext")).await.expect(302);
    assert_eq!(states(&only), ["35 first last memento"]);
}

#[tokio::test]
async fn the_page_itself_links_to_its_newest_state() {
    let world = World::new().await;
    let links = async || {
        let answer = world.get(PAGE).await.expect(302);
        assert!(answer.header("link").starts_with(&format!("<{URL}>; rel=\"original\", ")), "{answer:?}");
        assert_eq!(answer.header("vary"), "");
        states(&answer)
    };
    // The page has no state yet.
    assert!(links().await.is_empty());
    world.revision("_rev=1&html=x&_timestamp=2013-01-01T00:00:01Z").await;
    assert_eq!(links().await, ["01 memento"]);
    world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
    assert_eq!(links().await, ["01 memento"]);
    world.revision("_rev=2&html=x&_timestamp=2013-01-01T00:00:02Z").await;
    assert_eq!(links().await, ["02 memento"]);
    // The redirect leads to no state now.
    world.revision("_rev=3&wikitext=x&_timestamp=2013-01-01T00:00:03Z").await;
    assert!(links().await.is_empty());
}

#[tokio::test]
async fn the_timegate_works_without_the_states_around_the_selected_one() {
    let world = World::in_memory().await;
    for rev in 1..=3 {
        world.revision(&format!("_rev={rev}&html=x&_timestamp=2013-01-01T00:00:0{rev}Z")).await;
    }
    let url = format!("{PAGE}?timegate/html");
    world.store.set_plan(Plan::empty());
    world.get(&url).await.expect(302);
    let calls = world.store.calls(Call::Scan);
    let mut broken = 0;
    for number in 1..=calls {
        world.store.set_plan(Plan::empty().on(Call::Scan, number, Fault::Before));
        let answer = world.get(&url).await;
        if answer.status != 503 {
            let states = states(&answer.expect(302));
            assert!(states.iter().any(|state| state.starts_with("03 ")), "{states:?}");
            broken += u32::from(states == ["03 memento"]);
        }
    }
    assert!(broken > 3, "{broken} of {calls}");
}

#[tokio::test]
async fn semicolons_of_titles_are_encoded_in_links() {
    let world = World::new().await;
    world.post("/v1/enwiki/page/A;B?rev/", "_rev=1&html=x&_timestamp=2013-01-01T00:00:01Z").await.expect(201);
    let (raw, encoded) = ("/v1/enwiki/page/A;B", "/v1/enwiki/page/A%3BB");
    let latest = world.get(&format!("{raw}?rev/latest/html")).await.expect(200);
    let timemap = world.get(&format!("{raw}?timemap/html")).await.expect(200);
    for links in [latest.header("link"), timemap.text()] {
        assert!(
            !links.contains("A;B") && links.contains(&format!("<http://localhost{encoded}?timegate/html>"))
        );
    }
    // Clients do not follow a redirect to a timegate.
    let gate = world.get(&format!("{encoded}?timegate/html")).await.expect(302);
    assert!(gate.header("location").starts_with(&format!("{encoded}?rev/")), "{gate:?}");
    assert_eq!(states(&gate), ["01 first last memento"]);
    world.get(&format!("{encoded}?rev/latest/html")).await.expect(301);
}

#[tokio::test]
async fn only_the_timegate_varies_on_the_date() {
    let (world, [_, _, tid]) = history().await;
    for query in [
        "rev/latest/html".to_owned(),
        format!("rev/{tid}/html"),
        "timemap/html".to_owned(),
        "rev/".to_owned(),
    ] {
        let url = format!("{PAGE}?{query}");
        let headers = [("accept-datetime", "Fri, 15 Feb 2013 00:00:00 GMT")];
        let (with, without) = (world.get_with(&url, &headers).await, world.get(&url).await);
        assert_eq!(with.body, without.body);
        assert!(!with.header("vary").contains("datetime"));
    }
}

#[tokio::test]
async fn no_read_selects_a_render_that_the_archive_left_out() {
    let world = World::new().await;
    let mut tids = Vec::new();
    for number in 1..=3 {
        let time = format!("2013-01-0{number}T00:00:00Z");
        tids.push(
            world
                .revision(&format!("_rev={number}&wikitext=w{number}&html=h{number}&_timestamp={time}"))
                .await,
        );
        world.clock.advance(Duration::from_secs(3600));
    }
    world.clock.advance(2 * DAY);
    let all = BucketArchive { policy: ArchivePolicy::Interval(30 * DAY), after: DAY };
    let archive = Some(ArchiveSettings { all, ..ArchiveSettings::default() });
    let settings = Settings { archive, ..Settings::default() };
    let buckets =
        RevisionStore::open(world.store.clone(), world.clock.clone(), settings.clone(), 8).await.unwrap();
    let domain = DomainName::new("enwiki").unwrap();
    for bucket in world.page_buckets(&domain).await {
        let options = SealOptions::default();
        buckets.maintenance().seal(&domain, &bucket, options, &mut |_| {}).await.unwrap();
    }
    let world = World::of(world.store.clone(), world.clock.clone(), Default::default(), settings).await;

    let left_out = format!("{PAGE}?rev/{}/html", tids[1]);
    world.get(&left_out).await.expect(404);
    for (url, tid, name, text) in [
        ("?rev/2013-01-02T12:00:00Z/html", &tids[0], "html", "h1"),
        ("?rev/2013-01-02T12:00:00Z/wikitext", &tids[1], "wikitext", "w2"),
        ("?rev/2/wikitext", &tids[1], "wikitext", "w2"),
        ("?rev/1/html", &tids[0], "html", "h1"),
    ] {
        let answer = world.get(&format!("{PAGE}{url}")).await.expect(302);
        assert_eq!(answer.header("location"), format!("{PAGE}?rev/{tid}/{name}"), "{url}");
        assert_eq!(world.get(&format!("{PAGE}?rev/{tid}/{name}")).await.expect(200).text(), text);
    }
    let none = world.get(&format!("{PAGE}?rev/2/html")).await.expect(404);
    assert!(
        none.text().contains("of revision 2 was superseded, and its content is not kept any more"),
        "{}",
        none.text()
    );
}
