//! The revisions of a page.

use askama::Template;
use axum::response::Response;
use rashomon_clock::{Timestamp, rfc3339};
use rashomon_pages::{Error, Page, Parent, PropertyName, Revision, RevisionSummary, StoreError};

use super::{
    address::{PageAddresses, form_value},
    html,
    notation::{self, RenderLink, Time, grouped},
};
use crate::{
    Api,
    answer::redirect,
    caching::Caching,
    collecting,
    page_token::list_href,
    problem::{Problem, Result},
};

/// The number of revisions on one page.
const REVISIONS_PER_PAGE: usize = 50;

/// The maximum number of letters of a comment or a name in the list. The page of a revision shows all letters.
const MAX_COMMENT_LETTERS: usize = 1_000;

struct RevisionLine {
    rev: Revision,
    parent: Option<Revision>,
    /// `None` if the row of the revision is damaged.
    time: Option<Time>,
    by: String,
    comment: String,
    minor: bool,
    bytes: String,
    damaged: bool,
    /// Whether the bodies of the revision are stored.
    stored: bool,
    erased: Option<notation::Erased>,
    /// The newest renders.
    renders: Vec<RenderLink>,
    more_renders: u64,
}

#[derive(Template)]
#[template(path = "history.html")]
struct HistoryPage {
    page: PageAddresses,
    lines: Vec<RevisionLine>,
    /// The properties of the latest render.
    latest: Vec<PropertyName>,
    /// Whether the latest render cannot be read, so that its properties are unknown.
    latest_is_damaged: bool,
    /// The initial value of the time field: the time of the newest revision in the list whose row is not damaged.
    at: Option<String>,
    /// Whether there are newer revisions before the listed ones.
    continued: bool,
    next: Option<String>,
}

/// `/pages/{domain}/{title}`
pub(super) async fn list(api: &Api, page: &Page, after: Option<Revision>) -> Result<Response> {
    let _permit = api.collecting.take(collecting::OF_ROWS).await?;
    let read = futures::future::try_join(api.buckets.revisions(page, after, REVISIONS_PER_PAGE), async {
        // If the latest render is damaged, the page has no links to its properties, but lists the revisions.
        match api.buckets.latest_render(page).await {
            Err(Error::Store(StoreError::Corrupt(_))) => Ok(None),
            latest => latest.map(|latest| Some(latest.properties)),
        }
    });
    let (listing, latest) = api.read_page(page, read).await?;
    let lines: Vec<_> = listing.items.iter().map(line).collect();
    html(&HistoryPage {
        page: PageAddresses::of(page),
        // The time field has a precision of a minute.
        at: (lines.iter().find_map(|line| line.time.as_ref()))
            .map(|newest| newest.exact.chars().take(16).collect()),
        lines,
        latest_is_damaged: latest.is_none(),
        latest: latest.unwrap_or_default().into_keys().collect(),
        continued: after.is_some(),
        next: listing.next.map(|last| list_href("?rev/", None, Some(last))),
    })
}

fn line(summary: &RevisionSummary) -> RevisionLine {
    let record = &summary.record;
    let tids = &summary.newest_renders;
    RevisionLine {
        rev: record.rev,
        parent: parent(record.parent),
        time: (!summary.unreadable).then(|| record.timestamp.into()),
        by: notation::beginning(notation::by(record), MAX_COMMENT_LETTERS),
        comment: notation::beginning(notation::comment(record), MAX_COMMENT_LETTERS),
        minor: record.minor,
        bytes: grouped(summary.size),
        damaged: summary.damaged,
        stored: summary.stored,
        erased: notation::erased(record),
        more_renders: summary.renders.saturating_sub(tids.len() as u64),
        renders: tids.iter().copied().map(RenderLink::from).collect(),
    }
}

/// The parent, if it is known and exists.
pub(super) fn parent(parent: Option<Parent>) -> Option<Revision> {
    match parent {
        Some(Parent::Revision(parent)) => Some(parent),
        Some(Parent::None) | None => None,
    }
}

/// `?at=2013-02-23T22:23`: redirects to the page at that time.
pub(super) async fn redirect_to_time(api: &Api, page: &Page, time: &str) -> Result<Response> {
    let time = parse_time(&form_value("at", time)?).ok_or_else(|| {
        Problem::malformed("A time is a date and a time of day in UTC, such as 2013-02-23T22:23.")
    })?;
    let render = api.read_page(page, api.buckets.at_time(page, time)).await?;
    Ok(redirect(&format!("?rev/{}/", render.tid), Caching::NoStore))
}

/// Parses a time as people or browsers write it. The result is the end of the day, minute or second that the text
/// names. So a time that is copied from the list selects the revision that was saved at this time. A time with a
/// fraction of a second, or with a time zone, is taken exactly.
fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim().replacen(' ', "T", 1);
    if let Some(time) = rfc3339::parse(&text).or_else(|| rfc3339::parse_end_of_day(&text)) {
        return Some(time);
    }
    let rest = match text.len() {
        16 => ":59.999999Z",
        19 => ".999999Z",
        _ => "Z",
    };
    rfc3339::parse(&format!("{text}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_time_means_the_end_of_its_period() {
        for (text, exact) in [
            ("2013-02-23T22:23", "2013-02-23T22:23:59.999999Z"),
            ("2013-02-23 22:23", "2013-02-23T22:23:59.999999Z"),
            ("2013-02-23T22:23:24", "2013-02-23T22:23:24.999999Z"),
            ("2013-02-23T22:23:24.5", "2013-02-23T22:23:24.5Z"),
            ("2013-02-23T22:23:24Z", "2013-02-23T22:23:24Z"),
            ("2013-02-24T00:23:24+02:00", "2013-02-23T22:23:24Z"),
            (" 2013-02-23 ", "2013-02-23T23:59:59.999999Z"),
        ] {
            assert_eq!(parse_time(text), rfc3339::parse(exact), "{text}");
            assert!(parse_time(text).is_some(), "{text}");
        }
        for text in
            ["", "yesterday", "2013-02-30", "2013-02-23T25:00", "2013-02-23T22:23:24+0", "é013-02-23T"]
        {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
