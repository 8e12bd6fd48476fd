//! Reads from a server of the service.

use futures::{StreamExt as _, TryStreamExt as _};
use rashomon_client::{
    Conditional, Error, InputError, Page, ProblemKind, PropertyRequest, Selector, Tid, Timestamp, Written,
};

use crate::server::Server;

/// Writes revisions 1 and 2, with two renders of revision 2, of the years 2001 to 2003.
async fn write(page: &Page) -> [Written; 3] {
    let time = |year: u32| format!("{year}-01-01T00:00:00.5Z").parse::<Timestamp>().unwrap();
    let first =
        page.new_revision(1).timestamp(time(2001)).without_parent().user("Ann").comment("typo").minor();
    let first = first.property("html", "<p>1").send().await.unwrap();
    let second = page.new_revision(2).parent(1).timestamp(time(2002)).property("html", "<p>2");
    let second = second.send().await.unwrap();
    let third = page.new_render(2).timestamp(time(2003)).property("html", "<p>3").send().await.unwrap();
    [first, second, third]
}

async fn text(page: &Page, selector: impl TryInto<Selector, Error: Into<InputError>>) -> String {
    page.read(selector, "html").await.unwrap().text(100).await.unwrap()
}

fn kind(error: &Error) -> ProblemKind {
    error.problem().and_then(|problem| problem.kind).unwrap_or_else(|| panic!("{error}"))
}

#[tokio::test]
async fn property_is_read_by_tid_revision_time_and_as_the_latest() {
    let server = Server::start().await;
    let page = server.page("Über & Co: What? 100%");
    let [first, second, third] = write(&page).await;
    assert_eq!(text(&page, Selector::Latest).await, "<p>3");
    assert_eq!(text(&page, first.tid).await, "<p>1");
    assert_eq!(text(&page, second.tid).await, "<p>2");
    assert_eq!(text(&page, 1).await, "<p>1");
    assert_eq!(text(&page, second.number).await, "<p>3");
    for (time, expected) in [
        ("2001-01-01T00:00:00.500000Z", "<p>1"),
        ("2002-06-01T02:00:00+02:00", "<p>2"),
        ("2010-01-01T00:00:00Z", "<p>3"),
    ] {
        assert_eq!(text(&page, time.parse::<Timestamp>().unwrap()).await, expected, "{time}");
    }
    let html = page.latest("html").await.unwrap();
    assert_eq!((html.number, html.tid), (Some(second.number), Some(third.tid)));
    assert_eq!(html.content_type.as_deref(), Some("text/html; charset=utf-8"));
    assert!(html.headers.contains_key("x-request-id"));
}

#[tokio::test]
async fn missing_page_revision_or_property_is_a_problem() {
    let server = Server::start().await;
    let page = server.page("A");
    write(&page).await;
    let error = page.latest("wikitext").await.unwrap_err();
    assert_eq!(kind(&error), ProblemKind::NotFound);
    let problem = error.problem().unwrap();
    assert_eq!((problem.status.as_u16(), problem.title.as_str()), (404, "Not found"));
    assert!(problem.request_id.is_some() && error.to_string().contains(&problem.detail), "{error}");
    assert_eq!(problem.instance.as_deref(), Some("/v1/enwiki/page/A?rev/latest/wikitext"));
    let before = "2000-01-01T00:00:00Z".parse::<Timestamp>().unwrap();
    assert_eq!(kind(&page.read(before, "html").await.unwrap_err()), ProblemKind::NotFound);
    assert_eq!(kind(&page.read(3, "html").await.unwrap_err()), ProblemKind::NotFound);
    assert_eq!(kind(&page.revision(3).await.unwrap_err()), ProblemKind::NotFound);
    assert_eq!(kind(&server.page("B").latest_render().await.unwrap_err()), ProblemKind::NotFound);
}

#[tokio::test]
async fn conditions_and_ranges_hold() {
    let server = Server::start().await;
    let page = server.page("A");
    let [first, ..] = write(&page).await;
    let etag = page.latest("html").await.unwrap().etag.unwrap();
    let other = page.read(first.tid, "html").await.unwrap().etag.unwrap();
    let request = || page.request(Selector::Latest, "html");
    assert!(matches!(request().if_none_match(&etag).send().await.unwrap(), Conditional::NotModified));
    for tags in [[&other, &etag], [&etag, &other]] {
        let both = tags.into_iter().fold(request(), PropertyRequest::if_none_match);
        assert!(matches!(both.send().await.unwrap(), Conditional::NotModified));
    }
    assert!(matches!(request().if_none_match(&other).send().await.unwrap(), Conditional::Found(_)));
    assert!(matches!(request().if_match(&etag).send().await.unwrap(), Conditional::Found(_)));
    let error = request().if_match(&other).send().await.unwrap_err();
    assert_eq!(kind(&error), ProblemKind::PreconditionFailed);
    let Conditional::Found(part) = request().range(1..=2).send().await.unwrap() else { panic!() };
    assert_eq!(part.text(100).await.unwrap(), "p>");
    let error = request().range(9..=10).send().await.unwrap_err();
    assert_eq!(kind(&error), ProblemKind::RangeNotSatisfiable);
    #[allow(clippy::reversed_empty_ranges)]
    let empty = request().range(2..=1).send().await;
    assert!(matches!(empty, Err(Error::Input(InputError::Field { .. }))));
}

#[tokio::test]
async fn documents_are_read_with_their_fields() {
    let server = Server::start().await;
    let page = server.page("Main Page");
    let [first, _, third] = write(&page).await;
    let render = page.render(first.tid).await.unwrap();
    assert_eq!((render.domain.as_str(), render.title.as_str()), ("enwiki", "Main_Page"));
    assert_eq!(
        (render.user.as_deref(), render.comment.as_deref(), render.minor),
        (Some("Ann"), Some("typo"), true)
    );
    assert_eq!((render.parent, render.timestamp), (None, first.tid.time()));
    assert_eq!(render.properties["html"].size, Some(4));
    assert_eq!(page.latest_render().await.unwrap().tid, third.tid);
    let revision = page.revision(2).await.unwrap();
    assert_eq!(revision.parent, Some(first.number));
    assert_eq!(revision.renders.iter().map(|render| render.tid).next(), Some(third.tid));
    assert_eq!(revision.renders.len(), 2);
}

#[tokio::test]
async fn lists_follow_next_to_the_end() {
    let server = Server::start().await;
    let page = server.page("A");
    for number in 1..=7 {
        page.new_revision(number).property("html", "x").send().await.unwrap();
    }
    for render in 0..4 {
        page.new_render(7).property("html", format!("{render}")).send().await.unwrap();
    }
    for size in [1, 3, 7, 500] {
        let revisions: Vec<_> = page.revisions().page_size(size).try_collect().await.unwrap();
        let numbers: Vec<_> = revisions.iter().map(|revision| revision.number.get()).collect();
        assert_eq!(numbers, [7, 6, 5, 4, 3, 2, 1], "{size}");
        let renders: Vec<_> = page.renders(7).page_size(size).try_collect().await.unwrap();
        let tids: Vec<Tid> = renders.iter().map(|render| render.tid).collect();
        assert_eq!(tids.len(), 5);
        assert!(tids.windows(2).all(|pair| pair[0].time() >= pair[1].time()));
    }
    assert_eq!(page.revisions().count().await, 7);
}

#[tokio::test]
async fn list_ends_after_an_error() {
    let server = Server::start().await;
    let mut missing = server.page("B").revisions();
    assert_eq!(kind(&missing.next().await.unwrap().unwrap_err()), ProblemKind::NotFound);
    assert!(missing.next().await.is_none());
    let mut invalid = server.page("B").renders(0);
    assert!(matches!(invalid.next().await, Some(Err(Error::Input(InputError::Name(_))))));
    assert!(invalid.next().await.is_none());
    for size in [0, 501] {
        let mut invalid = server.page("B").revisions().page_size(size);
        assert!(matches!(invalid.next().await, Some(Err(Error::Input(InputError::PageSize(_))))));
    }
}
